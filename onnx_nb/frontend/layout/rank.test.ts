import { describe, expect, test } from "vitest";
import type { Graph } from "./graph.ts";
import { assignRanks, sinkSources } from "./rank.ts";
import { graphOf, random } from "./testing.ts";

/** Returns the length of all lines and of the tensors with several readers, which the rows should minimize. */
function length(graph: Graph, rank: ArrayLike<number>): number {
  const lower = Math.max(...Array.from(rank)) + 1;
  let sum = 0;
  for (let e = 0; e < graph.source.length; e++) {
    const from = graph.source[e] < 0 ? 0 : (rank[graph.source[e]] as number);
    const ends = Array.from(graph.sink.subarray(graph.ptr[e], graph.ptr[e + 1]), (to) =>
      to < 0 ? lower : (rank[to] as number),
    );
    for (const end of ends) sum += 2 * (end - from);
    if (ends.length > 1) sum += Math.max(...ends) - from;
  }
  return sum;
}

function keepsOrder(graph: Graph, rank: ArrayLike<number>): boolean {
  const from = sinkSources(graph);
  return graph.sink.every((to, k) => to < 0 || from[k] < 0 || (rank[from[k]] as number) < (rank[to] as number));
}

/** Returns the smallest length over all possible rows. */
function least(graph: Graph): number {
  const boxes = graph.width.length;
  const rank = new Int32Array(boxes);
  let best = Number.POSITIVE_INFINITY;
  const choose = (box: number): void => {
    if (box === boxes) {
      if (keepsOrder(graph, rank)) best = Math.min(best, length(graph, rank));
      return;
    }
    for (let row = 0; row < boxes; row++) {
      rank[box] = row;
      choose(box + 1);
    }
  };
  choose(0);
  return best;
}

/** Returns a graph in which each later box reads some earlier ones; some tensors cross a border. */
function denseGraph(seed: number, boxes: number): Graph {
  const next = random(seed);
  const edges: string[] = [];
  for (let box = 0; box < boxes; box++) {
    const readers = Array.from({ length: boxes - box - 1 }, (_, i) => box + 1 + i).filter(() => next(5) < 2);
    edges.push(`${box}>${[...readers, ...(next(6) === 0 ? ["_"] : [])].join(",")}`);
    if (next(4) === 0) edges.push(`^>${box}`);
  }
  return graphOf(boxes, edges);
}

const ones = (graph: Graph): Int32Array => new Int32Array(graph.width.length).fill(1);

describe("rows", () => {
  test("make the lines as short as possible", () => {
    for (let seed = 1; seed <= 40; seed++) {
      const graph = denseGraph(seed, 4 + (seed % 3));
      const { rank } = assignRanks(graph, ones(graph));
      expect(keepsOrder(graph, rank)).toBe(true);
      expect([seed, length(graph, rank)]).toEqual([seed, least(graph)]);
    }
  });

  test("keep the order and the space of tall boxes, and leave no row empty", () => {
    for (let seed = 1; seed <= 30; seed++) {
      const graph = denseGraph(seed, 30);
      const next = random(seed);
      const span = ones(graph).map(() => 1 + (next(4) === 0 ? next(6) : 0));
      const { rank, span: spans, count } = assignRanks(graph, span);
      const from = sinkSources(graph);
      graph.sink.forEach((to, k) => {
        if (to >= 0 && from[k] >= 0) expect(rank[to]).toBeGreaterThanOrEqual(rank[from[k]] + spans[from[k]]);
      });
      expect(new Set(rank).size).toBe(count);
    }
  });

  test("mark the edges that close cycles as backward", () => {
    const graph = graphOf(4, ["0>1", "1>2", "2>0,3"]);
    const { rank, backward } = assignRanks(graph, ones(graph));
    expect(Array.from(rank)).toEqual([0, 1, 2, 3]);
    expect(Array.from(backward)).toEqual([0, 0, 1, 0]);
  });
});
