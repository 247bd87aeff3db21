import { describe, expect, it } from "vitest";
import { columnsOf } from "../protocol/testing.ts";
import { complete } from "./completion.ts";
import { parse } from "./query.ts";
import { search } from "./search.ts";

const columns = columnsOf(`
  input x batch×8 float32
  weight W 8×8 float16
  Conv enc/a : x W -> p | kernel_shape 3×3 · strides 2×2
  Conv enc/b : p W -> q | kernel_shape 3×3
  ConvTranspose dec/c : q W -> r | axis -1
  type r batch×Min(64)×8 float32
  Relu dec/d : r -> y
  Constant k : -> c
  fold k
  output y
`);
/** Returns the field after each completion of a query, whose caret is at | or at the end. */
const completed = (text: string): string[] => {
  const caret = text.includes("|") ? text.indexOf("|") : text.length;
  const whole = text.replace("|", "");
  return complete(columns, whole, caret).map(({ text: put, from, to }) => whole.slice(0, from) + put + whole.slice(to));
};

describe("complete", () => {
  it("offers the fields first, and for each field the values in the model", () => {
    expect(completed(" ")).toEqual([
      "op:",
      "name:",
      "dtype:",
      "shape:",
      "attr:",
      "scope:",
      "before:",
      "after:",
      "kind:",
      "size:",
    ]);
    expect(completed("op:")).toEqual(["op:Conv", "op:ConvTranspose", "op:Relu"]);
    expect(completed("relu -dtype:")).toEqual(["relu -dtype:float32", "relu -dtype:float16"]);
    expect(completed("scope:")).toEqual(["scope:enc", "scope:dec"]);
    expect(completed("kind:w")).toEqual(["kind:weight"]);
    expect(completed("Conv > attr:")).toEqual(["kernel_shape", "strides", "axis"].map((name) => `Conv > attr:${name}`));
    expect(completed("attr:kernel_shape=")).toEqual(["attr:kernel_shape=3,3"]);
  });

  it("offers values that contain the typed part, prefixes first", () => {
    expect(completed("op:r")).toEqual(["op:Relu", "op:ConvTranspose"]);
    expect(completed("op:r| x")).toEqual(["op:Relu x", "op:ConvTranspose x"]);
    expect(completed("shape:8")).toEqual(["shape:8×8", "shape:batch×8", "shape:batch×Min(64)×8"]);
  });

  it("completes nothing for words, complete values, unknown fields, and inside a word", () => {
    for (const text of ["conv", "op:conv", "foo:b", "op:c|onv", 'op:"c']) expect(completed(text)).toEqual([]);
  });

  it("offers queries that find something", () => {
    for (const field of ["op:", "dtype:", "shape:", "attr:", "attr:axis=", "attr:strides=", "scope:"]) {
      for (const query of completed(field)) {
        expect(() => parse(query)).not.toThrow();
        expect(search(columns, query).total, query).toBeGreaterThan(0);
      }
    }
  });
});
