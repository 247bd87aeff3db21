// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { type TypedArray, unpack } from "../protocol/codec.ts";
import { type DecodingAbout, Steps } from "../protocol/decoding.ts";
import { packedOf } from "../protocol/testing.ts";
import { createDecoding, type DecodingOptions, layoutOf } from "./decoding.ts";
import type { GraphView } from "./graphview.ts";
import { buttonIn, furnish, MODEL, packOf, settle, stop } from "./testing.ts";

const EVIL = "<img src=x onerror=alert(1)>";
const PARTS = ["embedding", "layer 0 attention", EVIL];

/** Returns three steps of three parts: at the second one the attention is off, and the third is a near tie. */
function stepsOf(about: Partial<DecodingAbout> = {}, texts = ["a", EVIL, "c"]): Steps {
  const f8 = (...numbers: number[]): Float64Array => Float64Array.from(numbers);
  const arrays = new Map<string, TypedArray>([
    ["position", f8(4, 5, 6)],
    ["margin", f8(0.5, 0.25, 0.001)],
    ["difference", f8(1e-6, 0.125, 0.002)],
    ["divergence", f8(0, 1e-3, 0)],
    ["worst", f8(2e-7, 0.19, 3e-7)],
    ["ties", Uint8Array.of(0, 0, 1)],
    ["errors", Float32Array.of(0, 0, 0, 2e-7, 0.19, 1e-7, 1e-7, 1e-7, 3e-7)],
    ["faults", Int32Array.of(-1, -1, -1, -1, 4, -1, -1, -1, -1)],
    ["reference", Int32Array.of(7, 8, 9)],
    ["candidate", Int32Array.of(7, 6, 5)],
  ]);
  const words = { part: ["layer 0 attention", "layer 0 attention", EVIL] };
  const meta = { name: EVIL, message: `Step 1 is off. ${EVIL}`, parts: PARTS, first: [1, 1], quantized: false };
  const sides = { reference_text: texts, candidate_text: texts };
  return new Steps(packedOf(arrays, { ...words, ...sides }, { ...meta, drills: true, ...about }));
}

let root: HTMLElement;
const show = (data = stepsOf(), options: DecodingOptions = {}) => {
  root = document.createElement("div");
  document.body.replaceChildren(root);
  return createDecoding(root, data, options, stop.signal);
};
const aside = (): string => root.querySelector("aside[aria-label=Step]")?.textContent ?? "";
const chart = (): HTMLElement => root.querySelector("[role=slider]") as HTMLElement;
const press = (key: string): unknown => chart().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));

beforeEach(() => furnish());

describe("two decoders", () => {
  it("say what is wrong, begin at the first fault, and show the same in table, chart and pane", () => {
    show();
    expect(root.querySelector("img")).toBeNull();
    expect(root.querySelector(".onnx-nb-said")?.textContent).toContain("Step 1 is off.");
    expect(root.querySelector(".onnx-nb-lamp.onnx-nb-bad")).not.toBeNull();
    expect(root.textContent).toContain("3 steps · 3 parts · 2 other tokens · 1 near tie");
    expect(aside()).toContain("step 1");
    expect(aside()).toContain("0.19 of what it adds");
    expect(aside()).toContain("position 4");
    expect(root.querySelector("[aria-selected=true]")?.textContent).toContain("layer 0 attention");
    expect(chart().getAttribute("aria-valuetext")).toBe(
      "Step 1, layer 0 attention: 0.19 of what it adds, off from position 4 on",
    );
  });

  it("are used by keyboard: steps to the sides, parts up and down, tokens above them", () => {
    show();
    press("ArrowLeft");
    expect(aside()).toContain("step 0");
    press("ArrowUp");
    expect(aside()).toContain("embedding");
    press("ArrowUp"); // above the parts are the tokens
    press("ArrowUp");
    press("ArrowUp");
    expect(chart().getAttribute("aria-valuetext")).toBe('Step 0: both choose "a"');
    press("ArrowRight");
    press("ArrowRight");
    expect(chart().getAttribute("aria-valuetext")).toContain("a near tie");
    for (let part = 0; part < 9; part++) press("ArrowDown");
    expect(aside()).toContain(EVIL);
    expect(aside()).toContain("step 2");
    press("Escape");
    expect(aside()).toBe("");
    buttonIn(root, "Show it").click();
    expect(aside()).toContain("step 1");
  });

  it("offer the operations of a step where both sides are models, and say when these fail", async () => {
    const steps: number[] = [];
    show(stepsOf(), {
      drill: (step) => {
        steps.push(step);
        return Promise.reject(new Error("It is too large."));
      },
    });
    buttonIn(root, "Drill down").click();
    await new Promise((wait) => setTimeout(wait));
    expect(steps).toEqual([1]);
    expect(root.querySelector("[role=alert]")?.textContent ?? root.textContent).toContain("It is too large.");
    show(stepsOf({ drills: false }));
    expect(root.textContent).not.toContain("Drill down");
    expect(root.textContent).not.toContain("Copy Python");
  });

  it("write tokens as numbers without a tokenizer, and have no faults where all layers are off", () => {
    show(stepsOf({ quantized: true, first: null }, ["", "", ""]));
    expect(root.querySelector("[role=grid]")?.textContent).toContain("8");
    expect(root.querySelector(".onnx-nb-lamp.onnx-nb-caution")).not.toBeNull();
    expect(aside()).not.toContain("off from");
    expect(buttonIn(root, "Show it").hidden).toBe(true);
  });

  it("show the candidate's graph beside the chart, colored by the chosen step, with the nodes of the chosen part", async () => {
    const pack = await unpack(packOf());
    const parts = Int32Array.from({ length: MODEL.nodeCount }, (_, node) => (node < 2 ? 1 : -1));
    const arrays = new Map(pack.arrays).set("node_part", parts).set("scope_parts", Int32Array.of(0, 1, 0, 2));
    show(stepsOf(), { graph: { load: () => Promise.resolve({ ...pack, arrays }) } });
    await settle();
    const { onnxNb } = root.querySelector(".onnx-nb-beside .onnx-nb") as unknown as { onnxNb: GraphView };
    const numbers = () => onnxNb.state.overlay?.data;
    const ids = () => [onnxNb.state.selection, ...onnxNb.state.others].flatMap((target) => target?.id ?? []).sort();
    expect(ids()).toEqual([0, 1]);
    expect([...(numbers()?.nodes ?? [])].slice(0, 3)).toEqual([Math.fround(0.19), Math.fround(0.19), Number.NaN]);
    expect(numbers()?.scopes[0]).toBe(Math.fround(0.19));
    expect([numbers()?.label, numbers()?.ends]).toEqual(["error at step 1", [1e-7, 1]]);
    press("ArrowRight");
    expect(numbers()?.nodes[0]).toBe(Math.fround(1e-7));
    expect(numbers()?.scopes[0]).toBe(Math.fround(3e-7));
    press("ArrowUp");
    expect(ids()).toEqual([]); // the embedding has none
    onnxNb.dispatch({ type: "select", target: { kind: "node", id: 1 } });
    expect(aside()).toContain("layer 0 attention");
    expect(aside()).toContain("step 2");
  });

  it("have a tile for each part and both tokens at each step, inside of the chart", () => {
    const { tiles, texts = [], height = 0 } = layoutOf(stepsOf(), 600, 240);
    expect(new Set(tiles.map(({ row }) => row)).size).toBe(3 * (PARTS.length + 2));
    for (const { x, y, w, h } of tiles) {
      expect(x).toBeGreaterThanOrEqual(150);
      expect(x + w).toBeLessThanOrEqual(600);
      expect(y + h).toBeLessThanOrEqual(240);
    }
    expect(height).toBeLessThanOrEqual(240);
    expect(texts.map(({ text }) => text)).toEqual(expect.arrayContaining(["reference", "embedding", "2"]));
    expect(layoutOf(stepsOf({ parts: [] }), 600, 240).tiles).toHaveLength(6);
  });
});
