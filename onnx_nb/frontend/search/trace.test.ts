import { describe, expect, test } from "vitest";
import type { Columns } from "../protocol/columns.ts";
import { columnsOf } from "../protocol/testing.ts";
import { trace } from "./chain.ts";
import { search } from "./search.ts";

const COLUMNS = columnsOf(`
input x 2 float32
input c scalar bool
Relu a : x -> a
Neg b : a -> b
Exp side : x -> s
If choose : c -> y
scope If kind=BODY node=choose
scope If/then kind=BRANCH node=choose
Add If/then/add : b b -> t
yield t y
Tanh last : y -> z
output z
`);

function names(columns: Columns, reached: Uint8Array): string[] {
  return Array.from(reached.keys())
    .filter((node) => reached[node] === 1)
    .map((id) => columns.nameOf({ kind: "node", id }));
}

function found(text: string): string[] {
  return search(COLUMNS, text).hits.map((hit) => COLUMNS.nameOf(hit));
}

describe("trace", () => {
  const node = (name: string): number => COLUMNS.find(name, "node")?.id as number;

  test("leads up to the inputs, into bodies and out of them", () => {
    expect(names(COLUMNS, trace(COLUMNS, [node("last")], "before"))).toEqual([
      "a",
      "b",
      "choose",
      "If/then/add",
      "last",
    ]);
    expect(names(COLUMNS, trace(COLUMNS, [node("If/then/add")], "before"))).toEqual(["a", "b", "If/then/add"]);
  });

  test("leads down to the outputs", () => {
    expect(names(COLUMNS, trace(COLUMNS, [node("a")], "after"))).toEqual(["a", "b", "choose", "If/then/add", "last"]);
    expect(names(COLUMNS, trace(COLUMNS, [node("side")], "after"))).toEqual(["side"]);
  });

  test("is searched for by the name of a node or tensor, next to other terms", () => {
    expect(found("before:last").sort()).toEqual(["If/then/add", "a", "b", "choose", "last"]);
    expect(found("after:x op:Neg")).toEqual(["b"]);
    expect(found("before:z -before:b").sort()).toEqual(["If/then/add", "choose", "last"]);
    expect(found('after:"b" before:"t"').sort()).toEqual(["If/then/add", "b"]);
    expect(search(COLUMNS, "before:nothing").hits).toEqual([]);
  });
});
