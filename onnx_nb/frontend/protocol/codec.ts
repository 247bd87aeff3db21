/** Unpacks what `onnx_nb.analysis.view.graph_columns.Columns.to_bytes` packed: "ONB1", then one zlib stream of header and arrays. */

import type { Meta, Packed, TypedArray } from "./columns.ts";

interface ArrayHeader {
  readonly name: string;
  readonly dtype: string;
  readonly length: number;
  readonly offset: number;
}

const TYPES = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
} as const;

export async function unpack(bytes: Uint8Array): Promise<Packed> {
  if (new TextDecoder().decode(bytes.subarray(0, 4)) !== "ONB1") throw new Error("these bytes are not packed columns");
  const deflated = new Uint8Array(bytes.subarray(4)); // copied: a stream must not share the widget's buffer
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const headerLength = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, headerLength))) as {
    meta: Meta;
    arrays: ArrayHeader[];
  };
  const start = 4 + headerLength;
  const arrays = new Map<string, TypedArray>();
  for (const { name, dtype, length, offset } of header.arrays) {
    const type = TYPES[dtype as keyof typeof TYPES];
    if (type === undefined) throw new Error(`column '${name}' has unknown dtype '${dtype}'`);
    arrays.set(name, new type(buffer, start + offset, length));
  }
  return { meta: header.meta, arrays };
}

export function bytesOf(view: DataView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

/** Returns the bytes of a buffer at an address that any array type can begin at: those of messages need not be. */
export function alignedBytes(view: DataView): ArrayBuffer {
  return bytesOf(view).slice().buffer;
}
