import { describe, expect, test } from "vitest";
import { crossings, type Layers, layer } from "./order.ts";
import { assignRanks } from "./rank.ts";
import { graphOf, random } from "./testing.ts";

/** Returns three or four rows of up to four boxes, each joined to some of the next row. */
function rowsOf(seed: number): Layers {
  const next = random(seed);
  const sizes = Array.from({ length: 3 + (seed % 2) }, () => 2 + next(3));
  const edges: string[] = [];
  let first = 0;
  sizes.forEach((size, row) => {
    const below = sizes[row + 1] ?? 0;
    for (let box = first; box < first + size; box++) {
      const readers = Array.from({ length: below }, (_, i) => first + size + i).filter(() => next(2) === 0);
      if (readers.length > 0) edges.push(`${box}>${readers.join(",")}`);
    }
    first += size;
  });
  const graph = graphOf(first, edges);
  return layer(graph, assignRanks(graph, new Int32Array(first).fill(1)));
}

function permutations(items: readonly number[]): number[][] {
  if (items.length < 2) return [[...items]];
  return items.flatMap((item, i) =>
    permutations([...items.slice(0, i), ...items.slice(i + 1)]).map((rest) => [item, ...rest]),
  );
}

/** Returns the fewest crossings over all orders, found by trying each; undefined if there are too many. */
function fewest(layers: Layers): number | undefined {
  const rows = Array.from({ length: layers.rows }, (_, r) =>
    permutations(Array.from(layers.order.subarray(layers.rowPtr[r], layers.rowPtr[r + 1]))),
  );
  if (rows.reduce((product, row) => product * row.length, 1) > 20_000) return undefined;
  const order = layers.order.slice();
  const pos = layers.pos.slice();
  let best = Number.POSITIVE_INFINITY;
  const choose = (row: number): void => {
    if (row === rows.length) {
      best = Math.min(best, crossingsOf({ ...layers, order, pos }));
      return;
    }
    for (const each of rows[row] as number[][]) {
      each.forEach((v, at) => {
        order[layers.rowPtr[row] + at] = v;
        pos[v] = at;
      });
      choose(row + 1);
    }
  };
  choose(0);
  return best;
}

/** Returns the pairs of segments between the same two rows whose ends are in opposite order. */
function crossingsOf({ segments, rank, upper, lower, upperPort, lowerPort, pos }: Layers): number {
  let count = 0;
  for (let s = 0; s < segments; s++) {
    for (let t = 0; t < s; t++) {
      if (rank[upper[s]] !== rank[upper[t]]) continue;
      const above = pos[upper[s]] + upperPort[s] - pos[upper[t]] - upperPort[t];
      const below = pos[lower[s]] + lowerPort[s] - pos[lower[t]] - lowerPort[t];
      if (above * below < 0) count++;
    }
  }
  return count;
}

describe("orders within rows", () => {
  test("have the minimum number of crossings", () => {
    let graphs = 0;
    for (let seed = 1; seed <= 60; seed++) {
      const layers = rowsOf(seed);
      const best = fewest(layers);
      if (best === undefined) continue;
      graphs++;
      expect([seed, crossingsOf(layers)]).toEqual([seed, best]);
      expect(crossings(layers)).toBe(best);
    }
    expect(graphs).toBeGreaterThan(30);
  });
});
