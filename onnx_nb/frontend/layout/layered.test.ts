import { describe, expect, test } from "vitest";
import type { Graph, Layout } from "./graph.ts";
import { layeredLayout } from "./layered.ts";
import { faults, graphOf, randomGraph } from "./testing.ts";

function middle(graph: Graph, layout: Layout, box: number): number {
  return layout.x[box] + graph.width[box] / 2;
}

describe("layered", () => {
  test("keeps boxes apart and lines out of boxes in random graphs", () => {
    for (let seed = 1; seed <= 30; seed++) {
      const graph = randomGraph(seed, 5 + seed, 4 + 2 * seed, false);
      expect(faults(graph, layeredLayout(graph))).toEqual([]);
    }
  });

  test("keeps boxes apart and lines out of boxes in graphs with cycles", () => {
    for (let seed = 1; seed <= 30; seed++) {
      const graph = randomGraph(seed, 5 + seed, 4 + seed, true);
      expect(faults(graph, layeredLayout(graph))).toEqual([]);
    }
  });

  test.each([15, 50])("keeps boxes apart where %i of a hundred boxes are tall", (tall) => {
    for (let seed = 1; seed <= 40; seed++) {
      const graph = randomGraph(seed, 8 + (seed % 20), 8 + seed, seed % 4 === 0, tall);
      expect(faults(graph, layeredLayout(graph))).toEqual([]);
    }
  });

  test("places small boxes next to a tall one, close to each other", () => {
    // 0 → 1 (tall) → 6, and 0 → 2 → 3 → 4 → 5 → 6
    const graph = graphOf(7, ["0>1,2", "2>3", "3>4", "4>5", "1>6", "5>6"], (box) => [100, box === 1 ? 600 : 40]);
    const layout = layeredLayout(graph);
    expect(faults(graph, layout)).toEqual([]);
    for (let box = 3; box <= 5; box++) expect(layout.y[box] - layout.y[box - 1]).toBeLessThan(120);
    expect(layout.y[5]).toBeLessThan(layout.y[1] + 600);
    expect(layout.y[6]).toBeLessThan(layout.y[1] + 600 + 120);
  });

  test("places a chain that is read below a tall box at its foot", () => {
    const graph = graphOf(5, ["0>1", "1>4", "2>3", "3>4"], (box) => [100, box === 1 ? 700 : 40]);
    const layout = layeredLayout(graph);
    expect(faults(graph, layout)).toEqual([]);
    expect(layout.y[4] - layout.y[3]).toBeLessThan(140);
    expect(layout.y[3] - layout.y[2]).toBeLessThan(140);
  });

  test("returns the same layout for the same graph", () => {
    const graph = randomGraph(7, 40, 70, true);
    expect(layeredLayout(graph)).toEqual(layeredLayout(graph));
  });

  test("handles graphs of no box and of one", () => {
    expect(layeredLayout(graphOf(0, []))).toMatchObject({ height: 0 });
    const one = graphOf(1, ["^>0", "0>_"]);
    expect(faults(one, layeredLayout(one))).toEqual([]);
    const alone = layeredLayout(graphOf(1, []));
    expect([alone.x[0], alone.y[0], alone.width, alone.height]).toEqual([0, 0, 100, 40]);
  });

  test("places a chain in a vertical line, whatever the widths", () => {
    const graph = graphOf(6, ["0>1", "1>2", "2>3", "3>4", "4>5"], (box) => [60 + 26 * box, 40]);
    const layout = layeredLayout(graph);
    for (let box = 1; box < 6; box++) expect(middle(graph, layout, box)).toBe(middle(graph, layout, 0));
  });

  test("keeps the chain vertical next to a residual connection, which has a straight lane of its own", () => {
    const graph = graphOf(7, ["0>1,5", "1>2", "2>3", "3>4", "4>5", "5>6"]);
    const layout = layeredLayout(graph);
    expect(faults(graph, layout)).toEqual([]);
    for (let box = 1; box < 7; box++) expect(middle(graph, layout, box)).toBe(middle(graph, layout, 0));
    const k = 1; // 0 → 5
    const xs = new Set<number>();
    for (let p = layout.linePtr[k]; p < layout.linePtr[k + 1]; p++) xs.add(layout.line[2 * p]);
    expect(xs.size).toBe(3); // the port, the lane, the port
  });

  test("places three branches symmetrically about the middle one, and two equal ones about their source", () => {
    const three = graphOf(5, ["0>1,2,3", "1>4", "2>4", "3>4"]);
    const layout = layeredLayout(three);
    expect(middle(three, layout, 2)).toBe(middle(three, layout, 0));
    expect(middle(three, layout, 4)).toBe(middle(three, layout, 0));
    const two = graphOf(4, ["0>1,2", "1>3", "2>3"]);
    const pair = layeredLayout(two);
    const center = (middle(two, pair, 1) + middle(two, pair, 2)) / 2;
    expect(Math.abs(middle(two, pair, 0) - center)).toBeLessThanOrEqual(1);
    expect(Math.abs(middle(two, pair, 3) - center)).toBeLessThanOrEqual(1);
  });

  test("crosses no lines unnecessarily", () => {
    const ladder = graphOf(8, ["0>2", "1>3", "2>4", "3>5", "4>6", "5>7"]);
    const layout = layeredLayout(ladder);
    for (const [a, b] of [
      [0, 1],
      [2, 3],
      [4, 5],
      [6, 7],
    ] as const) {
      expect(Math.sign(layout.x[b] - layout.x[a])).toBe(Math.sign(layout.x[1] - layout.x[0]));
    }
  });

  test("keeps input ports in the order of the inputs, and uses one port for a fan-out", () => {
    const graph = graphOf(4, ["0>3", "1>3", "2>3"]);
    const layout = layeredLayout(graph);
    expect(layout.inX[0]).toBeLessThan(layout.inX[1]);
    expect(layout.inX[1]).toBeLessThan(layout.inX[2]);
    const fan = layeredLayout(graphOf(4, ["0>1,2,3"]));
    const starts = [0, 1, 2].map((k) => fan.line[2 * fan.linePtr[k]]);
    expect(new Set(starts).size).toBe(1);
  });

  test("moves a side chain down to its reader", () => {
    const graph = graphOf(8, ["0>1", "1>2", "2>3", "3>4", "4>5", "6>7", "7>5"]);
    const layout = layeredLayout(graph);
    expect(layout.y[7]).toBe(layout.y[4]);
    expect(layout.y[6]).toBe(layout.y[3]);
  });

  test("draws distant readers of a tensor with many readers as stubs, the near ones with lines", () => {
    const edges = ["0>1,2,3,4,5,6,7,8,9,10"];
    for (let box = 1; box < 10; box++) edges.push(`${box}>${box + 1}`);
    const graph = graphOf(11, edges);
    const layout = layeredLayout(graph);
    expect(faults(graph, layout)).toEqual([]);
    expect(Array.from(layout.stub.subarray(0, 10))).toEqual([0, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    expect(layout.tail[0]).toBe(1);
  });

  test("wraps rows of very many boxes", () => {
    const graph = graphOf(200, []);
    const layout = layeredLayout(graph);
    expect(faults(graph, layout)).toEqual([]);
    expect(layout.width).toBeLessThanOrEqual(40 * 122);
  });

  test("labels every one of many tensors between the same two boxes", () => {
    const graph = graphOf(
      2,
      Array.from({ length: 6 }, () => "0>1"),
      () => [150, 40],
    );
    expect(faults(graph, layeredLayout(graph))).toEqual([]);
  });

  test("names many missing tensors at one box, one above the other", () => {
    const graph = graphOf(2, ["0>1", ...Array.from({ length: 5 }, () => "?>1")], () => [140, 40]);
    const layout = layeredLayout(graph);
    expect(faults(graph, layout)).toEqual([]);
    expect(Array.from(layout.stub)).toEqual([0, 1, 1, 1, 1, 1]);
  });

  test("lays out a chain of 20,000 boxes with skip connections", () => {
    const edges: string[] = [];
    for (let box = 0; box < 20000; box++) edges.push(`${box}>${box + 1}${box % 10 === 0 ? `,${box + 8}` : ""}`);
    const graph = graphOf20k(edges);
    const { y, height } = layeredLayout(graph);
    expect(y.every((top) => top >= 0 && top <= height)).toBe(true);
    expect(new Set(y).size).toBeGreaterThan(20000);
  }, 60_000);
});

/** Returns the same graph as graphOf, without its quadratic conveniences. */
function graphOf20k(edges: readonly string[]): Graph {
  const small = graphOf(20009, []);
  const sinks = edges.map((edge) => (edge.split(">")[1] ?? "").split(",").map(Number));
  const ptr = new Uint32Array(edges.length + 1);
  sinks.forEach((list, e) => {
    ptr[e + 1] = ptr[e] + list.length;
  });
  const zeros = (n: number): Float64Array => new Float64Array(n);
  const sinkCount = ptr[edges.length];
  return {
    ...small,
    source: Int32Array.from(edges, (edge) => Number(edge.split(">")[0])),
    ptr,
    sink: Int32Array.from(sinks.flat()),
    outSlot: new Int32Array(edges.length),
    inSlot: Int32Array.from({ length: sinkCount }, (_, k) => k),
    outOffset: zeros(edges.length),
    inOffset: zeros(sinkCount),
    outWay: zeros(edges.length),
    inWay: zeros(sinkCount),
    labelWidth: zeros(edges.length),
    labelLength: zeros(edges.length),
    nameWidth: zeros(edges.length),
    nameLength: zeros(edges.length),
  };
}
