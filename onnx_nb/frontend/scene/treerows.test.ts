import { describe, expect, it } from "vitest";
import type { Target } from "../protocol/columns.ts";
import { columnsOf, scopeAt } from "../protocol/testing.ts";
import { Rows } from "./treerows.ts";

const columns = columnsOf(`
  input x 8 float32
  weight W 8×8 float32
  MatMul enc/mm : x W -> p
  Split enc/inner/split : p -> left right
  Add sum : left right -> q
  Relu act : q -> y
  output y
`);
const enc = scopeAt(columns, "enc");
const inner = scopeAt(columns, "enc/inner");
const target = (kind: Target["kind"], name: string): Target => columns.find(name, kind) as Target;
const named = (rows: Rows): string[] =>
  Array.from({ length: rows.length }, (_, at) => `${rows.at(at).level} ${columns.nameOf(rows.targetAt(at))}`);

describe("rows", () => {
  it("contain what is open, in file order", () => {
    expect(named(Rows.of(columns, new Set([0]), new Set()))).toEqual(["1 x", "1 enc", "1 sum", "2 q", "1 act", "2 y"]);
    const open = Rows.of(columns, new Set([0, enc, inner]), new Set([target("node", "sum").id]));
    expect(named(open)).toEqual([
      "1 x",
      "1 enc",
      "2 enc/mm",
      "3 p",
      "2 enc/inner",
      "3 enc/inner/split",
      "4 left",
      "4 right",
      "1 sum",
      "1 act",
      "2 y",
    ]);
    expect(open.at(open.indexOf(target("node", "sum")))).toEqual({
      target: target("node", "sum"),
      level: 1,
      expanded: false,
      position: 3,
      siblings: 4,
    });
  });

  it("find each target, and what it is inside of", () => {
    const rows = Rows.of(columns, new Set([0, enc, inner]), new Set());
    for (let at = 0; at < rows.length; at++) expect(rows.indexOf(rows.targetAt(at))).toBe(at);
    const around = rows.around(rows.indexOf(target("tensor", "right")));
    expect(rows.targetAt(around)).toEqual(target("node", "enc/inner/split"));
    expect(rows.around(0)).toBe(-1);
    // a weight has no row, nor what is in a closed scope
    expect(rows.indexOf(target("tensor", "W"))).toBe(-1);
    expect(Rows.of(columns, new Set([0]), new Set()).indexOf(target("tensor", "p"))).toBe(-1);
  });

  it("grow beyond their initial capacity", () => {
    const lines = Array.from({ length: 3000 }, (_, k) => `Relu n${k} : t${k} -> t${k + 1}`);
    const long = columnsOf(`input t0 1 float32\n${lines.join("\n")}`);
    const rows = Rows.of(long, new Set([0]), new Set());
    expect(rows.length).toBe(6001);
    expect(rows.indexOf(long.find("n2999", "node") as Target)).toBe(5999);
  });
});
