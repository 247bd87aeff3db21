// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import type { Packed, TypedArray } from "../protocol/codec.ts";
import { type Details, detailsOf, Points } from "../protocol/comparison.ts";
import { packedOf } from "../protocol/testing.ts";
import { magnitude } from "../scene/formatting.ts";
import { type ComparisonOptions, type ComparisonView, createComparison } from "./comparison.ts";
import { figure } from "./pointdetail.ts";
import { buttonIn, furnish, settled } from "./testing.ts";

const EVIL = "<img src=x onerror=alert(1)>";
const NONE = Number.NaN;

interface Given {
  readonly names?: string[];
  readonly cumulative?: number[];
  readonly isolated?: number[];
  readonly states?: number[];
  readonly missing?: string[];
  readonly first?: number;
}

/** Returns points, the third of which is wrong by itself. */
function pointsOf({
  names = ["a", "b", EVIL, "d"],
  cumulative = [0, 1e-7, 1e-2, 1e-2],
  isolated = [0, 1e-7, 1e-2, 2e-7],
  states = [1, 2, 2, 2],
  missing = [],
  first = 2,
}: Given = {}): Points {
  const count = names.length;
  const f8 = (numbers: number[]): Float64Array => Float64Array.from(numbers);
  const arrays = new Map<string, TypedArray>([
    ["output", new Uint8Array(count)],
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
  const each = (text: string, rows = count): string[] => Array<string>(rows).fill(text);
  const texts = {
    name: names,
    candidate: names,
    reference: names,
    op_type: each("Linear"),
    matched: each("scope"),
    node: each(""),
    scope: each(""),
    source: each("bert.py:7"),
    difference: each(""),
    shape: each("2×3"),
    dtype: each("float32"),
    missing_name: missing,
    missing_reason: each("folded into Conv", missing.length),
    missing_op_type: each("BatchNorm2d", missing.length),
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
  return detailsOf({ meta: { isolated: about }, arrays } as unknown as Packed);
}

let root: HTMLElement;
const signal = new AbortController().signal;
beforeEach(() => {
  furnish();
  root = document.createElement("div");
  document.body.replaceChildren(root);
});
const show = (points: Points, options: Partial<ComparisonOptions> = {}): ComparisonView =>
  createComparison(root, points, { detail: () => Promise.resolve(detailOf()), ...options }, signal);
const tableIn = (label: string): HTMLElement =>
  root.querySelector(`[role=grid][aria-label^="${label}"]`) as HTMLElement;
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
    show(pointsOf(), { chosen: (name) => told.push(name) });
    expect(root.querySelector("header")?.textContent).toContain(`First differs at '${EVIL}'`);
    expect(root.querySelector("header")?.textContent).toContain(
      "m.onnx against torch · 4 points, 3 outside of the tolerance · 1 run",
    );
    buttonIn(root, "Show it").click();
    await settled();
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

  it("stays in order of execution if isolated errors are unknown", () => {
    show(pointsOf({ isolated: [NONE, NONE, NONE, NONE] }));
    expect(shown()).toEqual(["a", "b", EVIL, "d"]);
    expect(root.querySelectorAll(".onnx-nb-key")).toHaveLength(1);
    expect([...root.querySelectorAll("option")].map((option) => option.disabled)).toEqual([false, false]);
  });

  it("steps through the points of the plot by keyboard, and announces them", () => {
    const told: string[] = [];
    show(pointsOf(), { chosen: (name) => told.push(name) });
    expect(plot().getAttribute("aria-valuetext")).toBe("no point chosen");
    for (const key of ["Home", "ArrowRight", "End", "Enter"]) press(key);
    expect(told).toEqual(["a", "b", "d", EVIL]);
    expect(plot().getAttribute("aria-valuetext")).toBe(`${EVIL}, Linear, isolated 1.0e−2, cumulative 1.0e−2`);
    expect(plot().getAttribute("aria-valuenow")).toBe("3");
  });

  it("follows an outside choice without reporting it back", () => {
    const told: string[] = [];
    const view = show(pointsOf(), { chosen: (name) => told.push(name) });
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
    await settled();
    expect(aside().textContent).toContain("✓ Every value is the same.");
    expect(asked).toBe(0);
  });

  it("shows the metrics if the details cannot be loaded, and why", async () => {
    const view = show(pointsOf(), { detail: () => Promise.reject(new Error("no kernel")) });
    view.choose("b");
    await settled();
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
    show(pointsOf(), { turned: (metric) => turned.push(metric) });
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
    await settled();
    buttonIn(root, "Reproduce").click();
    await settled();
    expect(asked).toEqual(["b"]);
    expect(root.querySelector("[role=status]")?.textContent).toContain("it is in panel.reproduction");
    buttonIn(root, "Drill down").click();
    await settled();
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
    await settled();
    buttonIn(root, "Drill down").click();
    buttonIn(root, "Reproduce").click();
    await settled(200);
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
    await settled();
    expect(strip.textContent).toContain("it is in panel.reproduction");
  });

  it("draws the same as SVG, with names as text", () => {
    const svg = show(pointsOf()).svg();
    expect(svg).toMatch(/^<svg xmlns="http:\/\/www.w3.org\/2000\/svg" /);
    expect(svg).toContain("&lt;img");
    for (const said of ["First differs at", "‖Δ‖/‖x‖, in order of execution", ">cumulative<", ">isolated<"]) {
      expect(svg).toContain(said);
    }
    expect(svg).not.toContain("<img");
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
