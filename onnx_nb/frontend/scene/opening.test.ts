import { describe, expect, test } from "vitest";
import { buildScene, createCache, fitsInto } from "../layout/build.ts";
import { columnsOf, measure, scopeAt } from "../protocol/testing.ts";
import { briefly } from "./labels.ts";
import { defaultOpen, type Fits, opening } from "./opening.ts";

/** Returns layers of `size` nodes, each in a scope. */
function layers(count: number, size: number): string {
  const lines = ["input v", "scope layers kind=REPEAT"];
  let from = "v";
  for (let layer = 0; layer < count; layer++) {
    for (let i = 0; i < size; i++) {
      const to = `v${layer}_${i}`;
      lines.push(`Relu layers/${layer}/n${i} : ${from} -> ${to}`);
      from = to;
    }
  }
  return [...lines, `Relu head/out : ${from} -> y`, "output y"].join("\n");
}

/** Returns consecutive modules of five nodes each. */
function stages(count: number): string {
  const lines = ["input v"];
  let from = "v";
  for (let stage = 0; stage < count; stage++) {
    for (let i = 0; i < 5; i++) {
      lines.push(`Relu stage${stage}/n${i} : ${from} -> v${stage}_${i}`);
      from = `v${stage}_${i}`;
    }
  }
  return [...lines, `output ${from}`].join("\n");
}

describe("defaultOpen", () => {
  test("opens all of a small graph", () => {
    const columns = columnsOf(layers(3, 5));
    expect(defaultOpen(columns).size).toBe(columns.scopeCount);
  });

  test("folds repeated layers in a graph of moderate size too", () => {
    const columns = columnsOf(layers(10, 4));
    const open = defaultOpen(columns);
    expect(open.has(scopeAt(columns, "layers/0"))).toBe(true);
    expect(open.has(scopeAt(columns, "layers/9"))).toBe(false);
  });

  test("opens one example of repeated layers, within the budget", () => {
    const columns = columnsOf(layers(12, 10));
    const open = defaultOpen(columns);
    expect(open.has(scopeAt(columns, "layers/0"))).toBe(true);
    expect(open.has(scopeAt(columns, "layers/1"))).toBe(false);
    expect(buildScene(columns, open, measure, createCache()).boxes.count).toBeLessThanOrEqual(60);
  });

  test("leaves very many repeated layers closed", () => {
    const columns = columnsOf(layers(100, 10));
    expect(defaultOpen(columns).has(scopeAt(columns, "layers"))).toBe(false);
  });
});

/** Returns how scopes fit a view of this size, in one column or several next to each other. */
function view(columns: ReturnType<typeof columnsOf>, w: number, h: number): Fits {
  const cache = createCache();
  return (open, zoom) => {
    for (const columnHeight of [0, h / zoom]) {
      cache.columnHeight = columnHeight;
      const room = { w: w / zoom, h: h / zoom };
      if (fitsInto(room, columns, open, measure, cache, "down")) return columnHeight;
    }
    return null;
  };
}

describe("opening", () => {
  test("opens as much as fits the view, in columns if it is too long for one", () => {
    const columns = columnsOf(stages(8));
    const fits = view(columns, 1000, 500);
    const { open, columnHeight, boxes } = opening(columns, fits);
    expect(boxes).toBeGreaterThanOrEqual(20);
    expect(columnHeight).toBeGreaterThan(0);
    const cache = createCache();
    cache.columnHeight = columnHeight;
    const { boxes: drawn, bounds } = buildScene(columns, open, measure, cache);
    expect(drawn.count).toBe(boxes);
    expect(drawn.count).toBeLessThanOrEqual(60);
    expect(Math.min(1000 / bounds.w, 500 / bounds.h)).toBeGreaterThanOrEqual(0.75);
  });

  test("opens less where there is less room", () => {
    const columns = columnsOf(stages(8));
    const [wide, narrow] = [opening(columns, view(columns, 1000, 500)), opening(columns, view(columns, 420, 500))];
    expect(narrow.boxes).toBeLessThan(wide.boxes);
    expect(narrow.boxes).toBeGreaterThan(0);
  });

  test("tries nothing twice, and nothing again for the same place", () => {
    const columns = columnsOf(stages(8));
    const tried: string[] = [];
    const fits: Fits = (open, ...rest) => {
      tried.push(`${[...open]} ${rest}`);
      return null;
    };
    const nothing = opening(columns, fits, "small");
    expect(nothing.boxes).toBeGreaterThan(0);
    expect(tried.length).toBeGreaterThan(0);
    expect(new Set(tried).size).toBe(tried.length);
    expect(opening(columns, () => 0, "small")).toBe(nothing);
    expect(opening(columns, () => 0, "large")).not.toBe(nothing);
  });

  test("uses brief labels before it shows few boxes", () => {
    const columns = columnsOf(stages(8));
    const cache = createCache();
    const [whole, brief] = [measure, briefly(measure)];
    const fits: Fits = (open, zoom, says) => {
      const room = { w: 420 / zoom, h: 800 / zoom };
      return fitsInto(room, columns, open, says ? brief : whole, cache, "down") ? 0 : null;
    };
    const found = opening(columns, fits);
    expect(found.brief).toBe(true);
    expect(found.boxes).toBeGreaterThanOrEqual(20);
    const large = opening(columns, (open, zoom) => fits(open, zoom / 2, false, 0));
    expect(large.brief).toBe(false);
  });

  test("shows the beginning of a graph that can neither be closed nor fit", () => {
    const columns = columnsOf(["input v0", ...chain(47), "output v47"].join("\n"));
    expect(opening(columns, view(columns, 200, 200))).toEqual({
      open: defaultOpen(columns),
      columnHeight: 0,
      brief: false,
      boxes: 49,
    });
  });
});

function chain(nodes: number): string[] {
  return Array.from({ length: nodes }, (_, i) => `Relu n${i} : v${i} -> v${i + 1}`);
}

/** Returns a module of that many nodes after `from`. */
function block(name: string, size: number, from: string): string[] {
  return Array.from({ length: size }, (_, i) => {
    const before = i === 0 ? from : `${name}${i - 1}`;
    return `Relu ${name}/n${i} : ${before} -> ${name}${i}`;
  });
}

describe("what opens first", () => {
  const opens = (lines: readonly string[], w: number, h: number): string[] => {
    const columns = columnsOf(lines.join("\n"));
    const { open } = opening(columns, view(columns, w, h));
    return [...open].filter((scope) => scope > 0).map((scope) => columns.str(columns.scopePath[scope]));
  };

  test("is the first of equal siblings, even if a later one has a few nodes more", () => {
    const lines = (size: number): string[] => [
      ...["input v", ...block("layers.0", size, "v"), ...block("layers.1", size + 1, `layers.0${size - 1}`)],
      `output layers.1${size}`,
    ];
    expect(opens(lines(30), 1000, 800)).toEqual(["layers.0"]);
    expect(opens(lines(14), 1000, 800)).toEqual(["layers.0", "layers.1"]);
  });

  test("is not a small part in place of the large one that does not fit", () => {
    const parts = [...block("body", 40, "v"), ...block("norm", 8, "body39")];
    expect(opens(["input v", ...parts, "output norm7"], 300, 640)).not.toEqual(["norm"]);
  });

  test("is the first of repeated layers, and not the row of closed ones alone", () => {
    const lines = layers(9, 10).split("\n");
    expect(opens(lines, 900, 600)).toEqual(expect.arrayContaining(["layers", "layers/0"]));
    expect(opens(lines, 300, 420)).not.toContain("layers");
  });
});
