import { deflateSync } from "node:zlib";
import { expect, test } from "vitest";
import { unpack } from "./codec.ts";
import { columnsOf } from "./testing.ts";

test("finds targets by name: tensors before nodes before scopes, and the first of equals", () => {
  const names = ["x", "größe", "🦊", "enc/0/b", "enc/0/a", "enc", "x".repeat(300)];
  const columns = columnsOf(
    [
      ...names.slice(0, 4).map((name) => `input ${name} 2 float32`),
      ...names.slice(4).map((name) => `Relu ${name} : x -> ${name}_out`),
      "Relu enc/0/b : x -> twice",
      "Relu x/same : x -> z",
      "Relu x/same : z -> zz",
    ].join("\n"),
  );
  for (const name of names) {
    const found = columns.find(name);
    expect(found && columns.nameOf(found)).toBe(name);
  }
  expect(columns.find("x")).toEqual({ kind: "tensor", id: 0 });
  expect(columns.find("enc/0/b")?.kind).toBe("tensor");
  expect(columns.find("enc/0/b", "node")?.kind).toBe("node");
  expect(columns.find("enc/0", "scope")?.kind).toBe("scope");
  expect(columns.nodeCount - (columns.find("x/same")?.id ?? 0)).toBe(2);
  for (const absent of ["", "xx", "X", "x".repeat(299), "enc/"]) expect(columns.find(absent)).toBeUndefined();
});

test("packed columns are unpacked, and what is cut off is an error", async () => {
  const about = JSON.stringify({ meta: { version: 1 }, arrays: [{ name: "a", dtype: "i4", length: 2, offset: 0 }] });
  const header = new TextEncoder().encode(about.padEnd(4 + 8 * Math.ceil(about.length / 8)));
  const plain = new Uint8Array(4 + header.length + 8);
  const view = new DataView(plain.buffer);
  view.setUint32(0, header.length, true);
  plain.set(header, 4);
  view.setInt32(4 + header.length, -7, true);
  const size = new Uint8Array(Uint32Array.of(plain.length).buffer);
  const packed = new Uint8Array([...new TextEncoder().encode("ONB2"), ...size, ...deflateSync(plain)]);
  expect((await unpack(packed)).arrays.get("a")).toEqual(Int32Array.of(-7, 0));
  await expect(unpack(packed.subarray(0, packed.length - 9))).rejects.toThrow();
  const changed = (by: number): Uint8Array => packed.map((byte, at) => (at === 4 ? byte + by : byte));
  await expect(unpack(changed(1))).rejects.toThrow(`${plain.length} bytes instead of`);
  await expect(unpack(changed(-1))).rejects.toThrow();
  await expect(unpack(packed.subarray(4))).rejects.toThrow("not packed columns");
});
