// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { type CostData, createSummary, type SummaryData } from "./summary.ts";
import { stop } from "./testing.ts";

let root: HTMLElement;

beforeEach(() => {
  root = document.createElement("div");
});

const COST: CostData = {
  known_macs: 4_089_184_256,
  known_flops: 8_190_000_000,
  known_activation_bytes: 105_800_000,
  unknown_macs: 0,
  unknown_flops: 0,
  unknown_activation_bytes: 0,
};

const DATA: SummaryData = {
  name: "resnet50.onnx",
  path: "",
  ir_version: 8,
  producer: "",
  opsets: [["", 18]],
  inputs: [],
  outputs: [],
  op_counts: [],
  nodes: 122,
  parameters: 0,
  nbytes: 0,
  by_dtype: [],
  largest: [],
  metadata: [],
  functions: [],
  doc: "",
  faults: [],
  cost: COST,
  scopes: [
    ["encoder/stages.0", "ResNetStage", 667_942_912, 212_992, 41_746_432],
    ["head", "", null, 4100, null],
  ],
  unbound: [],
};

function shown(data: SummaryData): { line: string; card: string } {
  createSummary(root, data, {}, stop.signal);
  const card = [...root.querySelectorAll("section")].find((each) => each.textContent?.startsWith("cost of a run"));
  return { line: root.querySelector("header")?.textContent ?? "", card: card?.textContent ?? "" };
}

describe("the cost of a run", () => {
  it("is in the line and, for each scope, in a table", () => {
    const { line, card } = shown(DATA);
    expect(line).toContain(" · 4.1 GMACs · ");
    expect(card).toContain("4.1 GMACs · 8.2 GFLOPs · 106 MB of activations");
    expect(card).toContain("encoder/stages.0 ResNetStage668 M213 k41.7 MB");
    expect(card).toContain("head ?4.1 k?");
    expect(card).not.toContain("Not known");
  });

  it("is a lower bound if nodes are unknown", () => {
    const { line, card } = shown({ ...DATA, cost: { ...COST, unknown_macs: 1, unknown_flops: 2 } });
    expect(line).toContain("≥ 4.1 GMACs");
    expect(card).toContain("Unknown for 2 nodes. See costs(model).unknown for the reasons.");
  });

  it("is unknown rather than at least nothing", () => {
    const { line } = shown({ ...DATA, cost: { ...COST, known_macs: 0, unknown_macs: 2 } });
    expect(line).toContain(" · MACs unknown · ");
    expect(line).not.toContain("≥");
  });

  it("names the dimensions that it depends on", () => {
    const { line, card } = shown({ ...DATA, cost: { ...COST, unknown_macs: 50 }, unbound: ["batch", "seq"] });
    expect(line).toContain("MACs depend on batch, seq");
    expect(card).toContain("Unknown for 50 nodes. Give sizes for batch, seq: shapes={…}.");
  });

  it("depends on the sizes that a person enters", () => {
    const cost = { ...COST, known_macs: 0, known_flops: 0, known_activation_bytes: 0 };
    const none = { ...cost, unknown_macs: 122, unknown_flops: 122, unknown_activation_bytes: 122 };
    const data = { ...DATA, cost: none, unbound: ["batch", "seq"], scopes: [["head", "", null, 4100, null]] } as const;
    const given: unknown[] = [];
    const options = { shapes: { seq: 8, x: [1, 2] }, onResize: (shapes: unknown) => given.push(shapes), problem: "no" };
    createSummary(root, { ...data, unbound: ["batch"] }, options, stop.signal);
    const card = [...root.querySelectorAll("section")].find((each) => each.textContent?.startsWith("cost of a run"));
    expect(card?.textContent, "zeros of which nothing is known").not.toMatch(/0 MACs|[?]/);
    expect(card?.querySelector("[role=alert]")?.textContent).toBe("no");
    const fields = [...root.querySelectorAll<HTMLInputElement>("input")];
    expect(fields.map((each) => [each.getAttribute("aria-label"), each.value])).toEqual([
      ["Size of seq", "8"],
      ["Size of batch", ""],
    ]);
    const type = (field: HTMLInputElement, text: string): void => {
      field.value = text;
      field.dispatchEvent(new Event("change"));
    };
    type(fields[1], "4");
    type(fields[0], "");
    expect(given).toEqual([{ seq: 8, x: [1, 2], batch: 4 }, { x: [1, 2] }]);
  });

  it("is omitted if nothing was counted", () => {
    const { line, card } = shown({ ...DATA, cost: null, scopes: [] });
    expect(line).not.toContain("MACs");
    expect(card).toBe("");
  });
});
