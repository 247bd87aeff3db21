// @vitest-environment jsdom

import { beforeEach, describe, expect, it } from "vitest";
import { Digest } from "../protocol/capture.ts";
import type { TypedArray } from "../protocol/codec.ts";
import { packedOf } from "../protocol/testing.ts";
import { type AuditData, createExternalData } from "./audit.ts";
import { type CaptureAbout, createCapture } from "./capture.ts";
import { buttonIn, furnish, stop } from "./testing.ts";

const EVIL = "<img src=x onerror=alert(1)>";

/** Returns columns where x is 1 … 4, "evil" holds a NaN and huge numbers, and "words" has no numbers. */
function digestOf(): Digest {
  const f8 = (...numbers: number[]): Float64Array => Float64Array.from(numbers);
  const none = Number.NaN;
  const arrays = new Map<string, TypedArray>([
    ["value", Int32Array.of(4, 7, -1)],
    ["known", Uint8Array.of(1, 1, 0)],
    ["nbytes", f8(16, 16, 9)],
    ["exponent", Int32Array.of(0, 1020, -1074)],
    ["first", f8(1, -4, 0)],
    ["ptr", Uint32Array.of(0, 4, 6, 6)],
    ["bins", f8(1, 1, 1, 1, 2, 1)],
    ["count", f8(4, 4, 2)],
    ["nan", f8(0, 1, 0)],
    ["posinf", f8(0, 0, 0)],
    ["neginf", f8(0, 0, 0)],
    ["zeros", f8(0, 0, 0)],
    ["min", f8(1, -4e307, none)],
    ["max", f8(4, -3e307, none)],
    ["mean", f8(2.5, -3.5e307, none)],
    ["std", f8(1.118, 1e306, none)],
  ]);
  const texts = {
    name: ["x", EVIL, "words"],
    node: ["", EVIL, ""],
    op: ["", "Log", ""],
    dtype: ["float32", "float32", "string"],
    shape: ["4", "4", "2"],
    source: Array<string>(3).fill("captured, 1 run"),
  };
  return new Digest(packedOf(arrays, texts, { left_out: 0 }));
}

const ABOUT: CaptureAbout = {
  model: EVIL,
  runs: "1 run",
  stopped: "",
  nonfinite: { name: EVIL, message: `Log makes 1 NaN of 4 values in '${EVIL}'.` },
};

let root: HTMLElement;
beforeEach(() => {
  furnish();
  root = document.createElement("div");
  document.body.replaceChildren(root);
});
const shown = (): string[] =>
  [...root.querySelectorAll<HTMLElement>("[data-row]")].map((row) => row.firstElementChild?.textContent ?? "");

describe("a digest", () => {
  it("computes edges from two integers, even if their power exceeds the range of numbers", () => {
    const digest = digestOf();
    expect(digest.statistics(0).edges).toEqual([1, 2, 3, 4, 5]);
    const { edges } = digest.statistics(1);
    expect(edges).toEqual([-4 * 2 ** 1020, -3 * 2 ** 1020, -2 * 2 ** 1020]);
    expect(digest.statistics(2).edges).toEqual([]);
  });

  it("finds the row of a tensor of the graph", () => {
    expect([digestOf().rowOf(7), digestOf().rowOf(-1), digestOf().rowOf(1)]).toEqual([1, -1, -1]);
  });
});

describe("the panel of a capture", () => {
  it("shows the first value that is not finite, and goes to it", () => {
    const told: string[] = [];
    createCapture(root, digestOf(), ABOUT, { onChoose: (name) => told.push(name) }, stop.signal);
    expect(root.querySelector("[role=status]")?.textContent).toContain("Log makes 1 NaN of 4 values");
    buttonIn(root, "Show it").click();
    expect(told).toEqual([EVIL]);
    const detail = root.querySelector("[aria-label=Value]");
    expect(detail?.textContent).toContain("1 NaN, 0 Inf");
    expect(detail?.textContent).toContain("Log");
    expect(root.querySelector("img")).toBeNull();
  });

  it("shows a dash where a value has no numbers", () => {
    createCapture(root, digestOf(), ABOUT, {}, stop.signal).choose("words");
    const row = root.querySelector("[aria-selected=true]");
    expect(row?.lastElementChild?.textContent).toBe("–");
    expect(row?.textContent).not.toContain("NaN");
  });

  it("filters for values that are not finite, and marks them", () => {
    createCapture(root, digestOf(), ABOUT, {}, stop.signal);
    expect(shown()).toEqual(["x", EVIL, "words"]);
    buttonIn(root, "Only NaN and Inf (1)").click();
    expect(shown()).toEqual([EVIL]);
    expect(root.querySelector("[data-row] .onnx-nb-bad")?.textContent).toBe("1");
    buttonIn(root, "Only NaN and Inf (1)").click();
    expect(shown()).toHaveLength(3);
  });

  it("follows an outside choice without reporting it back", () => {
    const told: string[] = [];
    const view = createCapture(root, digestOf(), ABOUT, { onChoose: (name) => told.push(name) }, stop.signal);
    view.choose("words");
    expect(root.querySelector("[aria-label=Value]")?.textContent).toContain("It holds no numbers.");
    view.choose("nobody");
    expect(root.querySelector("[aria-selected=true]")).toBeNull();
    expect(told).toEqual([]);
  });
});

describe("the panel of an audit", () => {
  const entry = {
    name: "w",
    place: "weight 'w'",
    dtype: "float32",
    shape: [2, 3],
    nbytes: 24,
    location: "a.bin",
    offset: 0,
    alignment: 65536,
    checksum: "",
    problems: [] as string[],
  };
  const file = { location: "a.bin", nbytes: 100, tensors: 1, used: 24, padding: 6, orphan: 70 };
  const bounds = {
    kind: "bounds",
    severity: "error",
    message: `'${EVIL}' ends behind its file.`,
    advice: "Get it again.",
    tensors: 1,
    location: "a.bin",
  };
  const orphan = { ...bounds, kind: "orphan", severity: "warning", message: "70 bytes are of no tensor.", tensors: 0 };
  const show = (audit: Partial<AuditData>): void =>
    createExternalData(root, { model: "m.onnx", problems: [], files: [], tensors: [], ...audit }, {}, stop.signal);

  it("shows errors before warnings, once for the same tensors, with their rows", () => {
    const broken = { ...entry, name: EVIL, problems: ["bounds"] };
    show({ problems: [orphan, bounds, bounds], files: [file], tensors: [entry, broken] });
    const items = [...root.querySelectorAll("li")].map((item) => item.querySelector("b")?.textContent);
    expect(items).toEqual(["✕ Error: bounds", "✕ Error: bounds", "! Warning: orphan"]);
    expect(root.textContent).toContain("✕ 2 errors");
    buttonIn(root, "Show the tensor").click();
    expect(shown()).toEqual([EVIL]);
    buttonIn(root, "Show the tensor").click();
    expect(shown()).toEqual(["w", EVIL]);
    expect(root.querySelector("img")).toBeNull();
    expect(root.querySelector<HTMLElement>(".onnx-nb-orphan")?.style.width).toBe("70%");
  });

  it("shows clearly that all is well", () => {
    show({ files: [{ ...file, orphan: 0 }], tensors: [entry] });
    expect(root.textContent).toContain("✓ No problems");
    expect(root.textContent).toContain("1 of 1 tensor outside, in 1 file of 100 B");
    show({ tensors: [{ ...entry, location: null }] });
    expect(root.textContent).toContain("1 tensor, all in the model's own file");
    show({});
    expect(root.textContent).toContain("✓ No problems");
  });
});
