/**
 * Packed columns, twin of `analysis/view/columns.py`: "ONB2", a length, then one zlib stream of header and arrays
 * that inflates to it. A text column holds indices into one string table.
 */

export type TypedArray = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

export interface Pack {
  readonly meta: unknown;
  readonly arrays: ReadonlyMap<string, TypedArray>;
}

const TYPES = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
} as const;

export async function unpack(bytes: Uint8Array): Promise<Pack> {
  if (new TextDecoder().decode(bytes.subarray(0, 4)) !== "ONB2") throw new Error("these bytes are not packed columns");
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(4, true);
  const buffer = await inflate(bytes.subarray(8), length);
  const headerLength = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, headerLength))) as {
    meta: unknown;
    arrays: { name: string; dtype: string; length: number; offset: number }[];
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

/** Inflates into the memory in which the arrays stay. */
async function inflate(bytes: Uint8Array, length: number): Promise<ArrayBuffer> {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // what is wrong with them is said by the reader, too
  for (const write of [writer.write(bytes as BufferSource), writer.close()]) write.catch(() => undefined);
  const plainBytes = new Uint8Array(length);
  const reader = readable.getReader();
  let at = 0;
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    const part = value as Uint8Array;
    plainBytes.set(part, at);
    at += part.length;
    if (part.length === part.buffer.byteLength) release(part.buffer);
  }
  if (at !== length) throw new Error(`packed columns have ${at} bytes instead of ${length}`);
  return plainBytes.buffer;
}

/** Frees memory that nothing reads any more; a page may not collect its garbage for minutes. */
export function release(buffer: ArrayBufferLike & { transfer?(length: number): unknown }): void {
  buffer.transfer?.(0); // browsers have it since 2024
}

export function bytesOf(view: DataView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

/** Decodes base64. */
export function bytesOfText(text: string): Uint8Array<ArrayBuffer> {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  // not Uint8Array.from: it makes an object of each character, tens of megabytes for a large graph
  for (let at = 0; at < bytes.length; at++) bytes[at] = characters.charCodeAt(at);
  return bytes;
}

/** Returns the bytes of a buffer at an address where any array type can begin. Buffers of messages may be unaligned. */
export function alignedBytes(view: DataView): ArrayBuffer {
  return bytesOf(view).slice().buffer;
}

/** Bytes of a text up to which it is built without a decoder, whose texts take twice the memory. */
const SHORT_TEXT_BYTES = 100;

/** Packed columns by name. A column of texts holds indices into one list of texts, which are decoded on first use. */
export class PackedTable<Meta = unknown> {
  readonly meta: Meta;
  protected readonly arrays: ReadonlyMap<string, TypedArray>;
  /** few of hundreds of thousands are ever used */
  readonly #texts: (string | undefined)[] = [];
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor({ meta, arrays }: Pack) {
    this.meta = meta as Meta;
    this.arrays = arrays;
  }

  /** @param index undefined, as read from beyond the end of a column, yields "" */
  str(index: number | undefined): string {
    if (index === undefined) return "";
    let text = this.#texts[index];
    if (text === undefined) {
      const bytes = this.#bytes(index);
      const isShort = bytes.length <= SHORT_TEXT_BYTES && bytes.every((byte) => byte < 128);
      text = isShort ? String.fromCharCode.apply(null, bytes as unknown as number[]) : this.#decoder.decode(bytes);
      this.#texts[index] = text;
    }
    return text;
  }

  /** Returns a text in UTF-8, which is stored as a suffix to a prefix of the text before it. */
  #bytes(index: number): Uint8Array {
    const ptr = this.column("string_ptr");
    const suffix = this.column("string_bytes", Uint8Array).subarray(ptr[index], ptr[index + 1]);
    const prefixLength = this.prefixLength(index);
    if (prefixLength === 0) return suffix;
    const text = new Uint8Array(prefixLength + suffix.length);
    text.set(this.#bytes(index - 1).subarray(0, prefixLength));
    text.set(suffix, prefixLength);
    return text;
  }

  /** Returns the length of the prefix that a text shares with the text before it; 0 in files of older versions. */
  protected prefixLength(index: number): number {
    return this.arrays.get("string_shared")?.[index] ?? 0;
  }

  /** Returns a text of a column. */
  text(name: string, row: number): string {
    return this.str(this.column(name)[row]);
  }

  has(name: string): boolean {
    return this.arrays.has(name);
  }

  /** Returns a column, which must be there and of this type. */
  column<T extends TypedArray = TypedArray>(name: string, type?: new (n: number) => T): T {
    const array = this.arrays.get(name);
    if (array === undefined || (type !== undefined && !(array instanceof type))) {
      throw new Error(`column '${name}' is missing or is not a ${type?.name ?? "column"}`);
    }
    return array as T;
  }
}
