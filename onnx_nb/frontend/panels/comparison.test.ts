// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { ErrorPlot, INFINITE } from "../charts/errorplot.ts";
import type { Pack, TypedArray } from "../protocol/codec.ts";
import { type Details, detailsOf, Points } from "../protocol/comparison.ts";
import { packedOf } from "../protocol/testing.ts";
import { magnitude } from "../scene/formatting.ts";
import { stillOf } from "../ui/still.ts";
import { type ComparisonOptions, type ComparisonView, createComparison } from "./comparison.ts";
import { figure } from "./pointdetail.ts";
import { buttonIn, furnish, settle, stop } from "./testing.ts";

const EVIL = "<img src=x onerror=alert(1)>";
const NONE = Number.NaN;

interface Given {
  readonly names?: string[];
  readonly cumulative?: number[];
  readonly isolated?: number[];
  readonly states?: number[];
  readonly missing?: string[];
  readonly first?: number;
  readonly quantized?: boolean;
  /** why the third point cannot be put back to float */
  readonly fixed?: string;
  /** layer of each point, in which the third is the worst and the second comes next */
  readonly scope?: string[];
}

/** Columns of two quantizers, of which the first clips 10 % of the values of the third point. */
const NUMBERS = {
  zero_point: [-128, 3],
  low: [0, -1],
  high: [0.9, 1],
  clipped: [0.1, 0],
  used: [1, 0.8],
  rmse_per_scale: [1.5, 0.29],
  relative: [0.2, 0.004],
  excess: [9, 1],
  scale: [0.0035, 0.0078],
  least: [0.0035, 0.001],
  above: [0.1, 0],
};
const QUANTIZED = {
  name: [EVIL, "w"],
  node: ["q1", "q2"],
  role: ["activation", "weight"],
  dtype: ["uint8", "int8"],
  granularity: ["tensor", "channel"],
  fault: ["clipping", ""],
  message: [
    `Quantization of '${EVIL}' clips 10% of values above 0.9.`,
    "Rounding weight 'w' to int8 costs 0.4% of its norm.",
  ],
};

/** Returns points, the third of which is wrong by itself. */
function pointsOf({
  names = ["a", "b", EVIL, "d"],
  cumulative = [0, 1e-7, 1e-2, 1e-2],
  isolated = [0, 1e-7, 1e-2, 2e-7],
  states = [1, 2, 2, 2],
  missing = [],
  first = 2,
  quantized = false,
  fixed = "",
  scope = names.map(() => ""),
}: Given = {}): Points {
  const count = names.length;
  const layers = scope.every((path) => path === "") ? [] : [scope[2], scope[1]];
  const f8 = (numbers: number[]): Float64Array => Float64Array.from(numbers);
  const arrays = new Map<string, TypedArray>([
    ["output", new Uint8Array(count)],
    ["layer_share", f8(layers.map((_, row) => [0.9, 0.1][row]))],
    ["layer_error", f8(layers.map((_, row) => isolated[2 - row]))],
    ["layer_point", Int32Array.from(layers, (_, row) => 2 - row)],
    ["score", f8(isolated.map((x) => x / 1e-7))],
    ["sparks", Uint8Array.from({ length: count * 4 }, (_, at) => (at % 4 === 1 ? 255 : 0))],
    ["spark_ends", f8([-8, 0])],
    ["details", new Uint8Array(0)],
    ["detail_row", new Uint32Array(0)],
    ["detail_end", new Uint32Array(0)],
    ["missing_side", new Uint8Array(missing.length)],
    ["cumulative_state", Uint8Array.from(states)],
    ["cumulative_rel_l2", f8(cumulative)],
    ["cumulative_sqnr", f8(cumulative.map((x) => -20 * Math.log10(x)))],
  ]);
  if (isolated.some((x) => !Number.isNaN(x))) {
    arrays.set("isolated_state", Uint8Array.from(states));
    arrays.set("isolated_rel_l2", f8(isolated));
  }
  if (quantized) {
    for (const [name, numbers] of Object.entries(NUMBERS)) arrays.set(`quantizer_${name}`, f8(numbers));
    arrays.set("quantizer_point", Int32Array.of(2, 3));
    arrays.set("quantizer_region", Int32Array.of(2, 3));
    arrays.set("quantizer_end", Uint32Array.of(6, 6));
    arrays.set("quantizer_before", f8([0, 1, 3, 3, 2, 1]));
    arrays.set("quantizer_after", f8([0, 1, 3, 3, 3, 0]));
    for (const share of ["weights", "rounding", "clipping"]) arrays.set(`blame_${share}`, f8([NONE, 0, 0.75, 1]));
  }
  const each = (text: string, rows = count): string[] => Array<string>(rows).fill(text);
  const texts = {
    name: names,
    candidate: names,
    reference: names,
    op_type: each("Linear"),
    matched: each("scope"),
    node: each(""),
    scope,
    layer: layers,
    source: each("bert.py:7"),
    difference: each(""),
    shape: each("2×3"),
    dtype: each("float32"),
    missing_name: missing,
    missing_reason: each("folded into Conv", missing.length),
    missing_op_type: each("BatchNorm2d", missing.length),
    ...(quantized && { fixed: ["", "", fixed, ""] }),
    ...(quantized && Object.fromEntries(Object.entries(QUANTIZED).map(([name, all]) => [`quantizer_${name}`, all]))),
  };
  const meta = {
    reference: "torch",
    candidate: "m.onnx",
    feeds: 1,
    message: `First differs at '${EVIL}'`,
    first,
    notable: first,
    outside: states.filter((state) => state > 1).length,
    isolated: isolated.some((x) => !Number.isNaN(x)),
    metrics: [
      { key: "rel_l2", label: "‖Δ‖/‖x‖", higher_is_better: false, logarithmic: true },
      { key: "sqnr", label: "SQNR, dB", higher_is_better: true, logarithmic: false },
    ],
    parts: [],
    left_out: count,
  };
  return new Points(packedOf(arrays, texts, meta));
}

function detailOf(): Details {
  const f8 = (...numbers: number[]): Float64Array => Float64Array.from(numbers);
  const about = {
    shape: [2, 3],
    dtypes: ["float32", "float32"],
    tolerance: [1e-3, 1e-5],
    count: 6,
    equal: 2,
    finite: 6,
    nan: 0,
    inf: 0,
    outside: 1,
    argmax: null,
    axis: 1,
    worst: [["[0, 2]", "0.5", EVIL, 0]],
    zeros: { absolute: 2, relative: 2, ulp: 0 },
  };
  const arrays = new Map<string, TypedArray>([
    ["isolated_worst", f8(0.3)],
    ["isolated_channels", f8(1e-7, 0, 0.3)],
    ["isolated_sample", f8(0, 0, 1, 1.3)],
    ["isolated_absolute_counts", f8(3, 1)],
    ["isolated_absolute_edges", f8(1e-7, 1e-4, 0.4)],
    ["isolated_signed_counts", f8(1, 5)],
    ["isolated_signed_edges", f8(-1, 0, 1)],
  ]);
  return detailsOf({ meta: { isolated: about }, arrays } as unknown as Pack);
}

let root: HTMLElement;
beforeEach(() => {
  furnish();
  root = document.createElement("div");
  document.body.replaceChildren(root);
});
const show = (points: Points, options: Partial<ComparisonOptions> = {}): ComparisonView =>
  createComparison(root, points, { detail: () => Promise.resolve(detailOf()), ...options }, stop.signal);
const tableIn = (label: string): HTMLElement =>
  root.querySelector(`[role=grid][aria-label^="${label}"]`) as HTMLElement;
const rowsOf = (label: string): HTMLElement[] => [...tableIn(label).querySelectorAll<HTMLElement>("[data-row]")];
const shown = (label = "Points"): string[] =>
  [...tableIn(label).querySelectorAll<HTMLElement>("[data-row]")].map(
    (row) => row.firstElementChild?.textContent ?? "",
  );
const plot = (): HTMLElement => root.querySelector("[role=slider]") as HTMLElement;
const press = (key: string): boolean => plot().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const aside = (): HTMLElement => root.querySelector("aside") as HTMLElement;

describe("the panel of a comparison", () => {
  it("announces the first difference, and goes there", async () => {
    const told: string[] = [];
    show(pointsOf(), { onChoose: (name) => told.push(name) });
    expect(root.querySelector("header")?.textContent).toContain(`First differs at '${EVIL}'`);
    expect(root.querySelector("header")?.textContent).toContain(
      "m.onnx against torch · 4 points, 3 outside of the tolerance · 1 run",
    );
    buttonIn(root, "Show it").click();
    await settle();
    expect(told).toEqual([EVIL]);
    expect(aside().textContent).toContain(EVIL);
    expect(aside().textContent).toContain("[0, 2]");
    expect(aside().textContent).toContain("most in 2");
    expect(root.querySelector("img")).toBeNull();
  });

  it("ranks by the isolated error, and marks the culprit", () => {
    show(pointsOf());
    expect(shown()).toEqual([EVIL, "d", "b", "a"]);
    const bad = [...tableIn("Points").querySelectorAll("[data-row] .onnx-nb-bad")].map((cell) => cell.textContent);
    expect(bad).toEqual(["1.0e5×", "1.0e−2"]);
  });

  it("filters by any metric of either error, with its unit, and NaN on one side is worse than any bound", async () => {
    show(pointsOf({ states: [1, 2, 2, 3] }));
    const field = root.querySelector("[aria-label='Filter the points']") as HTMLInputElement;
    const filtered = async (text: string): Promise<string[]> => {
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      await settle();
      return shown().toSorted();
    };
    // the cumulative SQNR is ∞, 140, 40 and 40 dB
    expect(await filtered("cumulative_sqnr < 41 dB")).toEqual([EVIL, "d"]);
    expect(await filtered("cumulative_sqnr < 20 dB")).toEqual(["d"]);
    expect(await filtered("cumulative_sqnr > 20")).toEqual([EVIL, "a", "b"]);
    expect(await filtered("rel_l2 >= 1 %")).toEqual([EVIL, "d"]);
    expect(await filtered("cumulative_rel_l2<1%")).toEqual(["a", "b"]);
  });

  it("opens at the layers, the largest share first, and follows the chosen point", () => {
    show(pointsOf({ scope: ["stem", "stem", "head/fc", "head/fc"] })).choose("b");
    expect(tableIn("Layers").hidden).toBe(false);
    expect(tableIn("Points").hidden).toBe(true);
    const [head, stem] = rowsOf("Layers");
    expect(head.textContent).toContain("90.0%");
    expect(stem.getAttribute("aria-selected")).toBe("true");
    head.click();
    expect(tableIn("Points").querySelector("[aria-selected=true]")?.textContent).toContain(EVIL);
    expect(head.getAttribute("aria-selected")).toBe("true");
    buttonIn(root, "Points (4)").click();
    expect(tableIn("Points").hidden).toBe(false);
  });

  it("stays in order of execution if isolated errors are unknown", () => {
    show(pointsOf({ isolated: [NONE, NONE, NONE, NONE] }));
    expect(shown()).toEqual(["a", "b", EVIL, "d"]);
    expect(root.querySelectorAll(".onnx-nb-key")).toHaveLength(1);
    expect([...root.querySelectorAll("option")].map((option) => option.disabled)).toEqual([false, false]);
  });

  it("steps through the points of the plot by keyboard, and announces them", () => {
    const told: string[] = [];
    show(pointsOf(), { onChoose: (name) => told.push(name) });
    expect(plot().getAttribute("aria-valuetext")).toBe("nothing chosen");
    for (const key of ["Home", "ArrowRight", "End", "Enter"]) press(key);
    expect(told).toEqual(["a", "b", "d", EVIL]);
    expect(plot().getAttribute("aria-valuetext")).toBe(`${EVIL}, Linear, isolated 1.0e−2, cumulative 1.0e−2`);
    expect(plot().getAttribute("aria-valuenow")).toBe("3");
  });

  it("follows an outside choice without reporting it back", () => {
    const told: string[] = [];
    const view = show(pointsOf(), { onChoose: (name) => told.push(name) });
    view.choose("b");
    expect(tableIn("Points").querySelector("[aria-selected=true]")?.textContent).toContain("b");
    view.choose("nobody");
    expect(tableIn("Points").querySelector("[aria-selected=true]")).toBeNull();
    expect(told).toEqual([]);
  });

  it("shows that a point is equal without requesting details", async () => {
    let asked = 0;
    const view = show(pointsOf(), {
      detail: () => {
        asked++;
        return Promise.resolve({});
      },
    });
    view.choose("a");
    await settle();
    expect(aside().textContent).toContain("✓ Every value is the same.");
    expect(asked).toBe(0);
  });

  it("shows the metrics if the details cannot be loaded, and why", async () => {
    const view = show(pointsOf(), { detail: () => Promise.reject(new Error("no kernel")) });
    view.choose("b");
    await settle();
    expect(aside().textContent).toContain("no kernel");
    expect(aside().textContent).toContain("1.0e−7");
  });

  it("ranks NaN on one side above all numbers, in the text too", async () => {
    show(pointsOf({ states: [1, 2, 3, 2] }));
    press("Enter");
    expect(plot().getAttribute("aria-valuetext")).toContain("isolated NaN or Inf on one side");
    expect(tableIn("Points").querySelector("[data-row='2']")?.textContent).toContain("NaN, Inf");
  });

  it("lists values that only one side has, with the reason", () => {
    show(pointsOf({ missing: ["bn1", "bn2"] }));
    expect(root.querySelector("header")?.textContent).toContain("4 points, 3 outside of the tolerance, 2 unmatched");
    buttonIn(root, "Unmatched (2)").click();
    expect(tableIn("Points").hidden).toBe(true);
    expect(shown("Unmatched")).toEqual(["bn1", "bn2"]);
    expect(tableIn("Unmatched").textContent).toContain("folded into Conv");
  });

  it("shows that there are no points, or no differences", () => {
    show(pointsOf({ names: [], cumulative: [], isolated: [], states: [], missing: ["x"], first: -1 }));
    expect(root.querySelector(".onnx-nb-depth, aside")).toBeNull();
    expect(shown("Unmatched")).toEqual(["x"]);
    show(pointsOf({ names: [], cumulative: [], isolated: [], states: [], first: -1 }));
    expect(root.textContent).toContain("There is nothing to show.");
    show(pointsOf({ cumulative: [0, 0, 0, 0], isolated: [0, 0, 0, 0], states: [1, 1, 1, 1], first: -1 }));
    expect(root.textContent).toContain("All 4 points are equal, to the last bit.");
  });

  it("draws another metric, and names it", () => {
    const turned: string[] = [];
    show(pointsOf(), { onMetric: (metric) => turned.push(metric) });
    const select = root.querySelector("select") as HTMLSelectElement;
    select.value = "sqnr";
    select.dispatchEvent(new Event("change"));
    press("End");
    expect(turned).toEqual(["sqnr"]);
    expect(plot().getAttribute("aria-valuetext")).toContain("cumulative 40.0");
  });

  it("runs actions on a point in the kernel, and reports the result or the error", async () => {
    const asked: string[] = [];
    const view = show(pointsOf(), {
      reproduce: (name) => {
        asked.push(name);
        return Promise.resolve("it is in panel.reproduction");
      },
      drill: () => Promise.reject(new Error("too many operations")),
    });
    view.choose("b");
    await settle();
    buttonIn(root, "Reproduce").click();
    await settle();
    expect(asked).toEqual(["b"]);
    expect(root.querySelector("[role=status]")?.textContent).toContain("it is in panel.reproduction");
    buttonIn(root, "Drill down").click();
    await settle();
    expect(root.querySelector(".onnx-nb-error")?.textContent).toContain("too many operations");
  });

  it("shows the progress of work, allows no other, and stops it", async () => {
    const ended: AbortSignal[] = [];
    const view = show(pointsOf(), {
      drill: (_name, signal, told) => {
        ended.push(signal);
        told(0.25, "1 of 4 operations");
        return new Promise(() => undefined);
      },
      reproduce: () => Promise.resolve("it is in panel.reproduction"),
    });
    view.choose("b");
    await settle();
    buttonIn(root, "Drill down").click();
    buttonIn(root, "Reproduce").click();
    await settle(200);
    const strip = root.querySelector(".onnx-nb-task") as HTMLElement;
    expect(strip.hidden).toBe(false);
    expect(strip.textContent).toContain("1 of 4 operations");
    expect(strip.querySelector("progress")?.value).toBe(0.25);
    expect(buttonIn(root, "Reproduce").getAttribute("aria-disabled")).toBe("true");
    buttonIn(strip, "Cancel").click();
    expect(ended.map(({ aborted }) => aborted)).toEqual([true]);
    expect(strip.hidden).toBe(true);
    expect(root.querySelector(".onnx-nb-live")?.textContent).toBe("Cancelled");
    buttonIn(root, "Reproduce").click();
    await settle();
    expect(strip.textContent).toContain("it is in panel.reproduction");
  });
});

describe("the panel of a quantized candidate", () => {
  const STEPS = [
    { name: "", nodes: [], sqnr: 13.7, kl: 0.02, top1: 0.9 },
    { name: EVIL, nodes: ["n1", 'n"2'], sqnr: 37.8, kl: 1e-4, top1: 1 },
    { name: "d", nodes: ["n3"], sqnr: "Infinity", kl: "NaN", top1: 1 },
  ];
  const tab = (name: string): void => buttonIn(root, name).click();
  const curve = (): HTMLElement => root.querySelector("[aria-label='Outputs against regions in float']") as HTMLElement;
  const options = (calls: unknown[] = []): Partial<ComparisonOptions> => ({
    steps: STEPS,
    change: (verb, given) => {
      calls.push([verb, given]);
      return Promise.resolve("With 4 nodes in float …");
    },
  });

  it("has columns of the blame, and a table of the quantizers, of which the faulty ones say why", () => {
    show(pointsOf({ quantized: true }));
    expect(tableIn("Points").textContent).toContain("75 %");
    tab("Scales (2)");
    const [first, second] = rowsOf("Quantizers").map((row) => row.textContent);
    expect(first).toContain("−128");
    expect(first).toContain("10 %");
    expect(first).toContain("clips 10% of values above 0.9.");
    expect(second).not.toContain("costs");
    expect(rowsOf("Quantizers")[0].querySelectorAll(".onnx-nb-bad")).toHaveLength(2);
    // where nothing is wrong there is no column for it
    const sound = pointsOf({ quantized: true });
    Object.assign(sound, { text: (name: string, row: number) => (name === "quantizer_fault" ? "" : `${name} ${row}`) });
    show(sound);
    expect(tableIn("Quantizers").textContent).not.toContain("What is wrong");
  });

  it("draws the values before and after rounding over each other, between the ends of the integers", () => {
    const rounded: string[] = [];
    show(pointsOf({ quantized: true }), { onQuantizer: (name) => rounded.push(name) });
    tab("Scales (2)");
    rowsOf("Quantizers")[0].click();
    const pane = root.querySelector("[aria-label='The quantizer']") as HTMLElement;
    const range = pane.querySelector("svg") as SVGElement;
    expect(range.getAttribute("aria-label")).toBe("Values before and after rounding, 10 % of them clipped");
    const [before, after, ends] = [...range.querySelectorAll("path")].map((each) => each.getAttribute("d") ?? "");
    // a bar for each count but 0; the ends are at a sixth and at five sixths of the width
    expect([before, after].map((d) => d.match(/M/g)?.length)).toEqual([5, 4]);
    expect(before).toContain("M2 60v-60.0h1V60z");
    expect(ends.match(/M[\d.]+/g)).toEqual(["M1", "M5"]);
    expect(pane.textContent).toContain("10 %, 10 % above");
    expect(pane.textContent).toContain("00.9");
    expect(rounded).toEqual([EVIL]);
    expect(root.querySelector("img")).toBeNull();
    rowsOf("Quantizers")[1].click(); // whose values are not known
    expect(pane.querySelector("svg")).toBeNull();
    expect(pane.textContent).toContain("0.001 to 0.0078");
  });

  it("shows what the outputs gain, chooses the region of a step, and copies the nodes up to it", async () => {
    const copied: string[] = [];
    Object.assign(navigator, { clipboard: { writeText: async (text: string) => copied.push(text) } });
    const chosen: string[] = [];
    show(pointsOf({ quantized: true }), { ...options(), onChoose: (name) => chosen.push(name) });
    tab("In float (2)");
    expect(curve().hidden).toBe(false);
    expect(curve().textContent).toContain("2 regions, 3 nodes in float: ∞ dB");
    rowsOf("Regions in float")[1].click();
    expect(chosen).toEqual([EVIL]);
    expect(curve().textContent).toContain("1 region, 2 nodes in float: 37.8 dB, KL 1.0e−4, top-1 100 %");
    buttonIn(root, "Copy nodes_to_exclude").click();
    await settle();
    expect(JSON.parse(copied[0].replace("nodes_to_exclude=", ""))).toEqual(["n1", 'n"2']);
    const select = curve().querySelector("select") as HTMLSelectElement;
    select.selectedIndex = 1;
    select.dispatchEvent(new Event("change"));
    expect(curve().querySelector("[role=slider]")?.getAttribute("aria-valuetext")).toContain("KL 1.0e−4");
    rowsOf("Regions in float")[0].click();
    expect(curve().textContent).toContain("nothing in float: 13.7 dB, KL 2.0e−2, top-1 90 %");
  });

  it("puts regions back behind the chosen step, suggests, and undoes", async () => {
    const calls: unknown[] = [];
    const view = show(pointsOf({ quantized: true }), options(calls));
    tab("In float (2)");
    rowsOf("Regions in float")[1].click();
    await settle();
    buttonIn(root, "Put back to float").click();
    await settle();
    const target = curve().querySelector("input") as HTMLInputElement;
    target.value = "40 dB";
    target.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    await settle();
    for (const name of ["Worst first", "Undo"]) {
      buttonIn(root, name).click();
      await settle();
    }
    expect(calls).toEqual([
      ["float", { name: EVIL, count: 1 }],
      ["suggest", { target: "40 dB" }],
      ["worst", {}],
      ["undo", {}],
    ]);
    view.setSteps([]);
    expect(buttonIn(root, "In float (0)")).toBeDefined();
    expect(curve().textContent).toContain("Nothing is in float");
  });

  it("finds what gains most for its time, and has a column of times only where they are known", () => {
    const calls: unknown[] = [];
    show(pointsOf({ quantized: true }), options(calls));
    tab("In float (2)");
    buttonIn(root, "Best for its time").click();
    expect(calls).toEqual([["front", {}]]);
    expect(tableIn("Regions in float").textContent).not.toContain("Time");
    const seconds = [0, -12.5e-6, 3e-3];
    show(pointsOf({ quantized: true }), { steps: STEPS.map((step, at) => ({ ...step, seconds: seconds[at] })) });
    tab("In float (2)");
    const rows = rowsOf("Regions in float").map((row) => row.textContent);
    expect(rows[1]).toContain("−12.5 µs");
    expect(rows[2]).toContain("+3");
  });

  it("says why a region cannot be put back to float instead of offering it", async () => {
    show(pointsOf({ quantized: true, fixed: "No pair rounds this." }), options());
    tab("Scales (2)");
    rowsOf("Quantizers")[0].click();
    const pane = root.querySelector("[aria-label='The quantizer']") as HTMLElement;
    expect(pane.textContent).toContain("No pair rounds this.");
    expect(pane.textContent).not.toContain("Put back to float");
    rowsOf("Quantizers")[1].click();
    expect(pane.textContent).toContain("Put back to float");
    tab("Points (4)");
    rowsOf("Points")[0].click();
    await settle();
    expect(aside().textContent).toContain("No pair rounds this.");
  });

  it("shows a curve without a kernel, and no buttons that need one", () => {
    show(pointsOf({ quantized: true }), { steps: STEPS });
    tab("In float (2)");
    expect(curve().textContent).not.toContain("Worst first");
    expect(rowsOf("Regions in float")).toHaveLength(3);
    show(pointsOf({ quantized: true }));
    expect(root.textContent).not.toContain("In float");
    show(pointsOf(), options());
    expect(root.textContent).not.toContain("Scales");
  });
});

describe("a curve", () => {
  it("has infinite numbers at the top, which are wrong only where they are called otherwise", () => {
    const svgOf = (odd: string): string => {
      const numbers = Float64Array.of(10, 40, Infinity);
      const series = [{ kind: "cumulative" as const, numbers }];
      const options = {
        label: "curve",
        first: -1,
        describe: () => "",
        tooltip: () => [],
        onChoose: () => {},
      };
      const errors = { count: 3, series, logarithmic: false, parts: [], odd };
      const { element } = new ErrorPlot(errors, { ...options, note: "" }, stop.signal);
      return stillOf(element.querySelector("canvas") as Element) ?? "";
    };
    const [good, bad] = [svgOf(INFINITE), svgOf("NaN, Inf")];
    expect(good).toContain(">∞<");
    expect(bad).toContain(">NaN, Inf<");
    // a triangle above the plot
    expect(good).toMatch(/d="M978 8L[^"]*" fill="var\(--nb-accent/);
    expect(good).not.toContain("var(--nb-bad");
    expect(bad).toMatch(/d="M978 8L[^"]*" fill="var\(--nb-bad/);
  });
});

describe("numbers", () => {
  it("are formatted by magnitude; decibels and fractions in their usual form", () => {
    expect([0.05, 2.9e-7, 0, NONE, Number.POSITIVE_INFINITY, 12].map(magnitude)).toEqual([
      "5.0e−2",
      "2.9e−7",
      "0",
      "–",
      "∞",
      "12",
    ]);
    expect(figure("sqnr", -3.25)).toBe("−3.3");
    expect(figure("outside", 0.016)).toBe("1.6 %");
    expect(figure("cosine", 0.99962)).toBe("0.99962");
    expect(figure("cosine", 0.999999999)).toBe("0.99999999900");
    expect(figure("cosine", 1)).toBe("1");
  });
});
