import { describe, expect, it } from "vitest";
import { columnsOf } from "../protocol/testing.ts";
import { widthOf, widthsOf } from "./wires.ts";

describe("widths of wires", () => {
  it("grow with the logarithm of the bytes, from 1 to 4 px", () => {
    expect([0, 1, 1e3, 1e4, 1e6, 1e8, 1e12].map(widthOf)).toEqual([1, 1, 1, 1.5, 3, 4, 4]);
    expect(widthOf(Number.NaN), "unknown").toBe(1);
  });

  it("count the batch as one, as all tensors have it, and no other open size", () => {
    const columns = columnsOf(`
      input x batch×1024×1024 float32
      input z batch×seq×1024 float32
      input s scalar float32
      Add sum : x z -> y
      output y
    `);
    expect(["x", "z", "s", "y"].map((name) => widthsOf(columns)[columns.find(name, "tensor")?.id ?? -1])).toEqual([
      widthOf(4 * 2 ** 20),
      1,
      1,
      1,
    ]);
  });
});
