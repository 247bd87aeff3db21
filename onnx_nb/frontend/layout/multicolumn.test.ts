import { describe, expect, test } from "vitest";
import { layeredLayout } from "./layered.ts";
import { divider } from "./multicolumn.ts";
import { faults, graphOf, random } from "./testing.ts";

/** Returns a chain of boxes with skips over a few of them, side branches, and some tensors without a reader. */
function ladder(seed: number, boxes: number): ReturnType<typeof graphOf> {
  const next = random(seed);
  const edges: string[] = [];
  for (let box = 0; box + 1 < boxes; box++) {
    const readers = new Set([String(box + 1)]);
    if (next(3) === 0) readers.add(String(Math.min(boxes - 1, box + 2 + next(6))));
    edges.push(`${box}>${[...readers].join(",")}`);
    if (next(9) === 0) edges.push(`${box}>`);
    if (next(12) === 0) edges.push(`${box}>${box + 1}`);
  }
  if (next(2) === 0) edges.push(`0>${Array.from({ length: Math.min(12, boxes - 3) }, (_, i) => 3 + i).join(",")}`); // as stubs
  if (next(3) === 0) edges.push(`?>${2 + next(boxes - 2)}`);
  return graphOf(boxes, edges, (box) => [60 + ((box * 37) % 140), 24 + 15 * (box % 3)]);
}

describe("divider", () => {
  test("sets a chain in columns of about the same height", () => {
    const graph = graphOf(
      30,
      Array.from({ length: 29 }, (_, box) => `${box}>${box + 1}`),
    );
    const long = layeredLayout(graph);
    const layout = divider(graph, long).inColumns(long.height / 3 + 1);
    expect(faults(graph, layout)).toEqual([]);
    const lefts = [...new Set(Array.from(layout.x, (x, box) => x + graph.width[box] / 2))];
    expect(lefts).toHaveLength(3);
    const heads = lefts.map((middle) => {
      const inside = Array.from(layout.y).filter((_, box) => layout.x[box] + graph.width[box] / 2 === middle);
      return [Math.min(...inside), inside.length];
    });
    expect(new Set(heads.map(([y]) => y)).size).toBe(1);
    expect(heads.map(([, count]) => count)).toEqual([10, 10, 10]);
    expect(layout.height).toBeLessThan(long.height / 2.4);
  });

  test("makes one layout for all heights that divide in the same places", () => {
    const graph = graphOf(6, ["0>1", "1>2", "2>3", "3>4", "4>5"]);
    const long = layeredLayout(graph);
    const divide = divider(graph, long);
    const half = divide.inColumns(long.height / 2 + 1);
    expect(half).not.toBe(long);
    expect(divide.inColumns(long.height / 2 + 2)).toBe(half);
    expect(divide.inColumns(long.height / 3 + 1)).not.toBe(half);
    expect(divide.inColumns(long.height)).toBe(long);
  });

  test("routes a continuing tensor around the column, not through it", () => {
    const graph = graphOf(6, ["0>1", "1>2", "2>3", "3>4", "4>5"]);
    const long = layeredLayout(graph);
    const layout = divider(graph, long).inColumns(long.height / 2 + 1);
    const bridge = 2; // from box 2 at the foot to box 3 at the head
    const points = Array.from(layout.line.subarray(2 * layout.linePtr[bridge], 2 * layout.linePtr[bridge + 1]));
    const ys = points.filter((_, i) => i % 2 === 1);
    expect(Math.max(...ys)).toBeGreaterThan(layout.y[2] + graph.height[2]);
    expect(Math.min(...ys)).toBeLessThan(layout.y[3]);
    expect(layout.x[3]).toBeGreaterThan(layout.x[2] + graph.width[2]);
  });

  test("lays out random ladders soundly", () => {
    let set = 0;
    for (let seed = 1; seed <= 40; seed++) {
      const graph = ladder(seed, 12 + (seed % 40));
      const long = layeredLayout(graph);
      expect(faults(graph, long), `seed ${seed}, long`).toEqual([]);
      for (const parts of [2, 3, 5]) {
        const layout = divider(graph, long).inColumns(long.height / parts);
        if (layout === long) continue;
        set++;
        expect(faults(graph, layout), `seed ${seed} in ${parts}`).toEqual([]);
        expect(layout.height).toBeLessThan(long.height);
      }
      const pages = divider(graph, long);
      for (const aspect of [0.7, 2]) expect(faults(graph, pages.onPage(aspect)), `seed ${seed}, page`).toEqual([]);
    }
    expect(set).toBeGreaterThan(50);
  }, 60_000);

  test("does not change a low layout, or one that too many tensors cross everywhere", () => {
    const chain = layeredLayout(graphOf(4, ["0>1", "1>2", "2>3"]));
    expect(divider(graphOf(4, ["0>1", "1>2", "2>3"]), chain).inColumns(chain.height)).toBe(chain);
    const edges = Array.from({ length: 40 }, (_, box) =>
      [1, 2, 3, 4, 5, 6, 7].map((by) => `${box}>${Math.min(40, box + by)}`),
    ).flat();
    const dense = graphOf(41, edges);
    const layout = layeredLayout(dense);
    expect(divider(dense, layout).inColumns(layout.height / 4)).toBe(layout);
  }, 60_000);
});
