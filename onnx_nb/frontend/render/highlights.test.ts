import { describe, expect, it } from "vitest";
import { buildScene, createCache } from "../layout/build.ts";
import type { Plan } from "../protocol/host.ts";
import { columnsOf, measure, scopeAt } from "../protocol/testing.ts";
import { initialState, type State } from "../scene/state.ts";
import { boxOf, EDGE, faultsOf, marksOf } from "./highlights.ts";

const columns = columnsOf(`
  input x 8 float32
  Relu enc/a : x -> p
  Relu enc/b : p -> q
  Add sum : q x -> r
  Relu last : r -> y
  If cond : y -> z
  scope body kind=BODY node=cond
  scope body/then kind=BRANCH node=cond
  Relu body/then/inner : y -> t
  fault enc/b
  output z
`);
const value = (name: string): number => columns.find(name, "tensor")?.id ?? -1;
const node = (name: string): number => columns.find(name, "node")?.id ?? -1;
const closed = buildScene(columns, new Set([0]), measure, createCache(), {});
const open = buildScene(columns, new Set([0, scopeAt(columns, "enc")]), measure, createCache(), {});
const encoder = closed.boxOf("scope", scopeAt(columns, "enc"));
const state: State = initialState([0]);
const plan: Plan = {
  nodes: Int32Array.of(node("enc/a"), node("enc/b"), node("sum")),
  missing: [{ value: value("x"), name: "x", message: "" }],
  redundant: [value("y")],
  suggestion: [],
  alternative: [],
  nbytes: 0,
  message: "",
};

describe("marksOf", () => {
  it("highlights a tensor with its producer and all its consumers", () => {
    const marks = marksOf(open, columns, { ...state, selection: { kind: "tensor", id: value("p") } }, new Map());
    expect([...marks.lit].sort()).toEqual(
      [open.boxOf("node", node("enc/a")), open.boxOf("node", node("enc/b"))].sort(),
    );
    expect(marks.values.get(value("p"))).toBe(EDGE.LIT);
    expect(marks.selection.size).toBe(0);
  });

  it("counts the extracted nodes of a closed scope and of the open ones around it", () => {
    const marks = marksOf(closed, columns, { ...state, plan }, new Map());
    expect(marks.extraction.get(encoder)).toBe(2);
    expect(marks.extraction.get(closed.boxOf("node", node("sum")))).toBe(1);
    expect(marks.extraction.has(closed.boxOf("node", node("last")))).toBe(false);
    const inside = marksOf(open, columns, { ...state, plan }, new Map());
    expect(inside.extraction.get(open.boxOf("scope", scopeAt(columns, "enc")))).toBe(2);
  });

  it("marks missing tensors above all else, redundant ones, and the path of the extraction", () => {
    const boundary = { inputs: [value("x"), value("y")], outputs: [value("r")] };
    const marks = marksOf(closed, columns, { ...state, boundary, plan }, new Map());
    expect(marks.values.get(value("x"))).toBe(EDGE.MISSING);
    expect(marks.values.get(value("y"))).toBe(EDGE.REDUNDANT);
    expect(marks.values.get(value("r"))).toBe(EDGE.LIT);
    const [edge] = closed.edgesOf(value("q"));
    expect(marks.glow.has(edge)).toBe(true);
    for (const each of closed.edgesOf(value("z"))) expect(marks.glow.has(each)).toBe(false);
  });

  it("shows a problem on the innermost drawn box", () => {
    const faulty = {
      ...columns,
      meta: { ...columns.meta, faults: [{ kind: "x", message: "", node: node("enc/b"), value: -1 }] },
    };
    const marked = Object.assign(Object.create(Object.getPrototypeOf(columns)), columns, faulty) as typeof columns;
    expect(faultsOf(closed, marked).get(encoder)).toBe(1);
    expect([...faultsOf(open, marked).keys()]).toEqual([open.boxOf("node", node("enc/b"))]);
  });

  it("highlights the hits of a search: boxes, edges, and the box around hidden ones", () => {
    const hits = [
      { kind: "node", id: node("last") },
      { kind: "tensor", id: value("r") },
      { kind: "tensor", id: value("p") },
      { kind: "tensor", id: value("x") },
    ] as const;
    const marks = marksOf(closed, columns, { ...state, hits }, new Map());
    expect([...marks.hits].sort()).toEqual(
      [closed.boxOf("node", node("last")), encoder, closed.boxOf("tensor", value("x"))].sort(),
    );
    expect([...marks.values]).toEqual([[value("r"), EDGE.HIT]]);
  });

  it("highlights all nodes of a chain and the tensors between them, the current chain most", () => {
    const chain = (...names: string[]) => ({ kind: "node", id: node(names[0]), chain: names.map(node) }) as const;
    const hits = [chain("enc/a", "enc/b", "sum"), chain("sum", "last")];
    const selection = { kind: "node", id: node("sum") } as const;
    const marks = marksOf(open, columns, { ...state, hits, hit: 1, selection }, new Map());
    expect([...marks.hits].sort()).toEqual(
      ["enc/a", "enc/b", "sum", "last"].map((name) => open.boxOf("node", node(name))).sort(),
    );
    expect(marks.values.get(value("p"))).toBe(EDGE.HIT);
    expect(marks.values.get(value("q"))).toBe(EDGE.HIT);
    expect(marks.values.get(value("r"))).toBe(EDGE.LIT);
    expect(marks.values.has(value("x"))).toBe(false);
  });

  it("uses the box of its bodies for a node that has any", () => {
    const body = closed.boxOf("scope", scopeAt(columns, "body"));
    expect(body).toBeGreaterThanOrEqual(0);
    expect(boxOf(closed, columns, { kind: "node", id: node("cond") })).toBe(body);
  });
});
