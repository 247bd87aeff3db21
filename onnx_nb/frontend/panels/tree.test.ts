import { describe, expect, it } from "vitest";
import type { Target } from "../protocol/columns.ts";
import { columnsOf, scopeAt } from "../protocol/testing.ts";
import { TreeRows } from "./tree.ts";

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
const named = (rows: TreeRows): string[] =>
  Array.from({ length: rows.length }, (_, at) => rows.at(at)).map(
    ({ level, target }) => `${level} ${columns.nameOf(target)}`,
  );

describe("rows", () => {
  it("contain the open scopes' content, in file order", () => {
    expect(named(TreeRows.of(columns, new Set([0]), new Set()))).toEqual([
      "1 x",
      "1 enc",
      "1 sum",
      "2 q",
      "1 act",
      "2 y",
    ]);
    const open = TreeRows.of(columns, new Set([0, enc, inner]), new Set([target("node", "sum").id]));
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

  it("find each target, and the row that contains it", () => {
    const rows = TreeRows.of(columns, new Set([0, enc, inner]), new Set());
    for (let at = 0; at < rows.length; at++) expect(rows.indexOf(rows.at(at).target)).toBe(at);
    const parent = rows.parentOf(rows.indexOf(target("tensor", "right")));
    expect(rows.at(parent).target).toEqual(target("node", "enc/inner/split"));
    expect(rows.parentOf(0)).toBe(-1);
    // neither a weight nor the content of a closed scope has a row
    expect(rows.indexOf(target("tensor", "W"))).toBe(-1);
    expect(TreeRows.of(columns, new Set([0]), new Set()).indexOf(target("tensor", "p"))).toBe(-1);
  });

  it("exist for all of thousands of nodes", () => {
    const lines = Array.from({ length: 3000 }, (_, k) => `Relu n${k} : t${k} -> t${k + 1}`);
    const long = columnsOf(`input t0 1 float32\n${lines.join("\n")}`);
    const rows = TreeRows.of(long, new Set([0]), new Set());
    expect(rows.length).toBe(6001);
    expect(rows.indexOf(long.find("n2999", "node") as Target)).toBe(5999);
  });
});
