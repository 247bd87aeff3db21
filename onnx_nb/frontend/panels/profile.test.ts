// @vitest-environment jsdom
import { beforeEach, describe, expect, it, vi } from "vitest";
import { squarify, Tiles } from "../charts/tiles.ts";
import type { TypedArray } from "../protocol/codec.ts";
import { ProfileData, ResourceData } from "../protocol/profile.ts";
import { packedOf } from "../protocol/testing.ts";
import { createProfile, memoryOf, type ProfileOptions, rooflineOf, timelineOf, treemapOf } from "./profile.ts";
import { buttonIn, furnish, stop } from "./testing.ts";

const EVIL = "<img src=x onerror=alert(1)>";

/** Returns kernels: the first computes two nodes, the third runs inside the second. */
function profileOf(seconds = [4e-3, 3e-3, 2e-3, 1e-3], changes = 0): ProfileData {
  const count = seconds.length;
  const f8 = (numbers: number[]): Float64Array => Float64Array.from(numbers);
  const total = seconds.reduce((sum, each) => sum + each, 0);
  const parent = Int32Array.from(seconds, (_, row) => (row === 2 ? 1 : -1));
  const ends = seconds.map((_, row) => row + 2);
  const starts = seconds.map((_, row) =>
    row === 2 ? 5e-3 : seconds.slice(0, row).reduce((sum, each) => sum + each, 0),
  );
  const arrays = new Map<string, TypedArray>([
    ["seconds", f8(seconds)],
    ["share", f8(seconds.map((each) => each / total))],
    ...["spread", "calls", "threads"].map((name) => [name, f8(seconds.map(() => 1))] as const),
    ...["gflops", "gbs", "intensity", "memory"].map((name) => [name, f8(seconds.map(() => Number.NaN))] as const),
    ["category", new Uint8Array(count)],
    ["parent", parent],
    ["scope", Int32Array.from(seconds, (_, row) => 1 + (row % 2))],
    ["optimized", Int32Array.from(seconds, (_, row) => row)],
    ["node_ptr", Uint32Array.from([0, ...ends])],
    ["node", Int32Array.from({ length: count + 1 }, (_, node) => node)],
    ["span_kernel", Uint32Array.from(seconds, (_, row) => row)],
    ["span_start", f8(starts)],
    ["span_seconds", f8(seconds)],
    ["span_thread", new Uint32Array(count)],
    ["scope_parent", Int32Array.of(-1, 0, 0)],
    ...["before", "after", "difference", "noise", "nodes"].map(
      (name) => [`change_${name}`, new Float64Array(changes)] as const,
    ),
    ["change_kernel", new Int32Array(changes).fill(2)],
  ]);
  const each = (text: string, rows = count): string[] => Array<string>(rows).fill(text);
  const texts = {
    name: seconds.map((_, row) => (row === 0 ? EVIL : `kernel_${row}`)),
    op: seconds.map((_, row) => (row % 2 === 0 ? "Conv" : "Loop")),
    provider: each("CPUExecutionProvider"),
    edge: each(""),
    how: each("name"),
    inside: each(""),
    types: each(""),
    node_name: Array.from({ length: count + 1 }, (_, node) => `Conv 'n${node}'`),
    scope_path: ["", "layer.0", "layer.1"],
    scope_class: ["", "", ""],
    ...Object.fromEntries(
      ["verdict", "name", "op", "before_op"].map((name) => [`change_${name}`, each("slower", changes)]),
    ),
  };
  const meta = {
    model: "m.onnx",
    message: "Most of it in Conv.",
    facts: ["one thread"],
    compared: changes > 0,
    pair: false,
    categories: ["linear"],
    left_out: 0,
  };
  return new ProfileData(packedOf(arrays, texts, meta));
}

function shown(data = profileOf(), options: ProfileOptions = {}) {
  const root = document.createElement("div");
  document.body.replaceChildren(root);
  return { root, view: createProfile(root, data, options, stop.signal) };
}

beforeEach(() => furnish());

describe("a profile", () => {
  it("lists the slowest kernel first, and its nodes once it is chosen", () => {
    const chosen: number[] = [];
    const { root } = shown(profileOf(), { onChoose: (kernel) => chosen.push(kernel) });
    const rows = [...root.querySelectorAll<HTMLElement>("[aria-label^=Kernels] .onnx-nb-tbody .onnx-nb-tr")].slice(
      0,
      4,
    );
    expect(rows.map((row) => row.dataset.row)).toEqual(["0", "1", "2", "3"]);
    rows[0].click();
    expect(chosen).toEqual([0]);
    const detail = root.querySelector("aside");
    expect(detail?.textContent).toContain("Computes 2 nodes at once");
    expect(detail?.textContent).toContain("Conv 'n1'");
    expect(root.querySelector("img")).toBeNull(); // a name is text
  });

  it("finds the kernel of a node on both sides", () => {
    const data = profileOf();
    expect([0, 1, 2].map((node) => data.kernelOf(0, node))).toEqual([0, 0, 1]);
    expect(data.kernelOf(1, 3)).toBe(3);
    expect(data.kernelOf(0, 99)).toBe(-1);
  });

  it("shows what changed first, and chooses its kernel", () => {
    const chosen: number[] = [];
    const { root } = shown(profileOf(undefined, 1), { onChoose: (kernel) => chosen.push(kernel) });
    expect(buttonIn(root, "Changes (1)").getAttribute("aria-pressed")).toBe("true");
    root.querySelector<HTMLElement>(".onnx-nb-tbody .onnx-nb-tr")?.click();
    expect(chosen).toEqual([2]);
  });

  it("places the kernels of a chart only once it is shown", () => {
    const data = profileOf();
    const read: string[] = [];
    const text = data.text.bind(data);
    data.text = (name, row) => {
      read.push(name);
      return text(name, row);
    };
    const frames: FrameRequestCallback[] = [];
    vi.stubGlobal("requestAnimationFrame", (frame: FrameRequestCallback) => frames.push(frame));
    const { root, view } = shown(data);
    view.redraw();
    read.length = 0;
    for (const frame of frames.splice(0)) frame(0);
    expect(read).not.toContain("scope_path"); // the treemap's
    buttonIn(root, "Treemap").click();
    view.redraw();
    for (const frame of frames.splice(0)) frame(0);
    expect(read).toContain("scope_path");
    vi.unstubAllGlobals();
  });

  it("has no graphs to show where the optimized model is not known", () => {
    const { root } = shown();
    expect(root.textContent).not.toContain("Before and after");
  });
});

describe("the timeline", () => {
  it("places each execution at its time, and bodies in a lane below", () => {
    const { tiles } = timelineOf(profileOf(), 1000, 200, [0, 1]);
    expect(tiles.map(({ row }) => row)).toEqual([0, 1, 2, 3]);
    expect(tiles[0].x).toBe(0);
    expect(tiles[0].w).toBeCloseTo(400);
    expect(tiles[2].x).toBeCloseTo(500);
    expect(tiles[2].y).toBeGreaterThan(tiles[1].y);
    expect(tiles[3].x + tiles[3].w).toBeCloseTo(1000);
  });

  it("shows a part at full width", () => {
    const { tiles } = timelineOf(profileOf(), 1000, 200, [0, 0.4]);
    expect(tiles[0].w).toBeCloseTo(1000);
  });
});

/** Returns speeds of 100 GFLOP/s and 10 GB/s, and three steps, with most memory in the second. */
function resources(): ResourceData {
  const arrays = new Map<string, TypedArray>([
    ["step_kernel", Int32Array.of(0, 1, -1)],
    ["step_bytes", Float64Array.of(50, 200, 100)],
    ["held_bytes", Float64Array.of(150, 50)],
  ]);
  return new ResourceData(packedOf(arrays, { tensor: [EVIL, "y"] }, { speeds: [1e11, 1e10], message: "Peak 200 B" }));
}

describe("the roofline", () => {
  it("places a kernel that is as fast as the machine on the roof, and others below it", () => {
    const data = profileOf();
    // on the slope, on the flat part, below it; and one that computes nothing
    data.numbers("intensity").set([1, 100, 100, 0]);
    data.numbers("gflops").set([10, 100, 10, 0]);
    const { tiles, texts = [], lines = [] } = rooflineOf(data, resources(), 800, 400);
    const [flat, slope] = lines.filter(([, , , , bold]) => bold);
    const middle = new Map(tiles.map(({ row, x, y, w, h }) => [row, [x + w / 2, y + h / 2]]));
    expect([...middle.keys()].sort()).toEqual([0, 1, 2]);
    const [x0, y0, x1, y1] = slope;
    const [x, y] = middle.get(0) ?? [];
    expect(y).toBeCloseTo(y0 + ((x - x0) / (x1 - x0)) * (y1 - y0));
    expect(middle.get(1)?.[1]).toBeCloseTo(flat[1]);
    expect(middle.get(2)?.[1]).toBeGreaterThan(flat[1]);
    expect(texts.map(({ text }) => text)).toContain("1 kernel without arithmetic");
    for (const { w, h } of rooflineOf(data, resources(), 240, 180).tiles) expect(Math.min(w, h)).toBeGreaterThan(9);
  });

  it("is chosen within three pixels of a kernel, and of two that are as near the upper one", () => {
    const chosen: number[] = [];
    const tile = (row: number, x: number) => ({ row, x, y: 40, w: 10, h: 10, label: "" });
    const options = { label: "", categories: [], zooms: false, color: () => "", describe: String };
    const arrange = () => ({ tiles: [tile(4, 20), tile(7, 34)] });
    const { element } = new Tiles({ ...options, arrange, onChoose: (row) => chosen.push(row) }, stop.signal);
    for (const x of [16, 18, 25, 32, 47, 48]) {
      for (const type of ["pointerdown", "pointerup"]) {
        element.dispatchEvent(new MouseEvent(type, { button: 0, clientX: x, clientY: 38 }));
      }
    }
    expect(chosen).toEqual([4, 7, -1]); // 16 and 48 are too far from both; 32 is as near to both
  });

  it("says so where no kernel computes anything", () => {
    const { tiles, texts } = rooflineOf(profileOf(), resources(), 800, 400);
    expect(tiles).toEqual([]);
    expect(texts?.[0].text).toBe("4 kernels without arithmetic");
  });
});

describe("the memory", () => {
  it("is as high as the bytes that are alive at each step", () => {
    const { tiles } = memoryOf(profileOf(), resources(), 300, 115, [0, 1]);
    expect(tiles.map(({ row, x, h }) => [row, x, h])).toEqual([
      [0, 0, 25],
      [1, 100, 100],
      [-1, 200, 50],
    ]);
    const zoomed = memoryOf(profileOf(), resources(), 300, 115, [1 / 3, 2 / 3]);
    expect(zoomed.tiles.map(({ x, w }) => [x, w])[0].map(Math.round)).toEqual([0, 300]);
  });

  it("lists who is alive at the peak, and selects a tensor", async () => {
    const chosen: string[] = [];
    const { root } = shown(profileOf(), {
      resources: () => Promise.resolve(resources()),
      tensor: (n) => chosen.push(n),
    });
    buttonIn(root, "Memory curve").click();
    await Promise.resolve();
    await Promise.resolve();
    const aside = root.querySelector("aside");
    expect(aside?.textContent).toContain("Peak 200 B");
    buttonIn(root, EVIL).click();
    expect(chosen).toEqual([EVIL]);
    expect(root.querySelector("img")).toBeNull();
    buttonIn(root, "Timeline").click();
    expect(aside?.textContent).not.toContain("Peak 200 B");
  });

  it("says why it cannot be shown", async () => {
    const { root } = shown(profileOf(), { resources: () => Promise.reject(new Error("the kernel is gone")) });
    buttonIn(root, "Memory curve").click();
    await new Promise((done) => setTimeout(done));
    expect(root.querySelector("[role=alert]")?.textContent).toContain("the kernel is gone");
  });
});

describe("the treemap", () => {
  it("gives each kernel an area that is its time, inside its scope", () => {
    const { tiles } = treemapOf(profileOf(), 800, 400);
    const kernels = tiles.filter(({ row }) => row >= 0);
    expect(kernels.map(({ row }) => row).sort()).toEqual([0, 1, 2, 3]);
    const heads = tiles.filter(({ row }) => row < 0);
    expect(heads.map(({ label }) => label)).toEqual(["layer.0", "layer.1"]);
    const [first] = heads;
    for (const { row, x, y, w, h } of kernels) {
      if (row % 2 !== 0) continue;
      expect(x).toBeGreaterThanOrEqual(first.x);
      expect(x + w).toBeLessThanOrEqual(first.x + first.w + 1e-6);
      expect(y + h).toBeLessThanOrEqual(first.y + first.h + 1e-6);
    }
  });

  it("divides all of a rectangle by weight", () => {
    const weights = [6, 6, 4, 3, 2, 2, 1];
    const places = squarify(weights, 0, 0, 6, 4);
    places.forEach(([, , w, h], at) => {
      expect(w * h).toBeCloseTo(weights[at]);
      expect(Math.max(w / h, h / w)).toBeLessThan(3);
    });
    expect(squarify([1, 0, 0], 0, 0, 5, 5).map(([, , w, h]) => w * h)).toEqual([25, 0, 0]);
  });
});
