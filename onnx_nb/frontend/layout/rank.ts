/**
 * Assigns rows to boxes: longest path first, then every box moves to where its tensors are shortest, and in scopes of
 * moderate size to where the total length of lines is least. A tall box spans as many rows as the small ones next to it
 * need.
 */

import { itemsBy, type Rows } from "../protocol/columns.ts";
import type { Graph } from "./graph.ts";
import { type Distances, shorten } from "./simplex.ts";

export interface Ranking {
  /** box → its first row, from 0 without gaps, and the number of its rows */
  readonly rank: Int32Array;
  readonly span: Int32Array;
  readonly count: number;
  /** per sink: 1 where the edge runs against the rows, because it closes a cycle */
  readonly backward: Uint8Array;
}

/** Boxes in a row beyond which they wrap into the next. */
const MAX_ROW_BOXES = 40;
/** Readers of a tensor beyond which it is drawn as stubs; its length does not matter. */
export const MAX_LINE_READERS = 8;

export function assignRanks(graph: Graph, span: Int32Array): Ranking {
  const ends = endsOf(graph);
  const backward = findCycles(graph, ends);
  const flow = { ...ends, backward, span };
  const path = longestPath(graph, flow);
  if (!hasOneRanking(graph, flow, path)) {
    tighten(graph, flow, path);
    minimizeLength(graph, backward, path.rank, span);
  }
  return { ...wrap(path.rank, span), backward };
}

/** Pixels between two rows of boxes without labels. */
const GAP = 25;

/** Returns box → number of rows of the scope's smaller boxes that fit next to it. */
export function spansOf(graph: Graph): Int32Array {
  const lower = (values: Float64Array, part: number): number =>
    values.length === 0 ? 0 : values.slice().sort()[Math.floor((values.length - 1) * part)];
  const gap = GAP + lower(graph.labelLength, 0.5);
  const row = lower(graph.height, 0.25) + gap;
  return Int32Array.from(graph.height, (height) => Math.max(1, Math.floor((height + gap) / row)));
}

/** Returns the source of each sink's edge. */
export function sinkSources(graph: Graph): Int32Array {
  const from = new Int32Array(graph.sink.length);
  for (let e = 0; e < graph.source.length; e++) from.fill(graph.source[e], graph.ptr[e], graph.ptr[e + 1]);
  return from;
}

/** Source of each sink, and for each box its outgoing and incoming sinks. */
interface Ends {
  readonly from: Int32Array;
  readonly out: Rows;
  readonly into: Rows;
}

/** The same with the direction of each sink's line and the rows of each box. */
interface Flow extends Ends {
  readonly backward: Uint8Array;
  readonly span: Int32Array;
}

/** The boxes from top to bottom, and for each its row. */
interface Path {
  readonly order: Int32Array;
  readonly rank: Int32Array;
}

function endsOf(graph: Graph): Ends {
  const from = sinkSources(graph);
  return { from, out: itemsBy(from, graph.width.length), into: itemsBy(graph.sink, graph.width.length) };
}

function findCycles({ sink, width }: Graph, { from, out }: Ends): Uint8Array {
  const backward = new Uint8Array(sink.length);
  let isSorted = true;
  for (let k = 0; k < sink.length && isSorted; k++) isSorted = from[k] < 0 || sink[k] < 0 || from[k] < sink[k];
  if (isSorted) return backward; // boxes are in file order, and almost every file is sorted
  const n = width.length;
  const state = new Uint8Array(n); // 0 new, 1 on the path, 2 done
  const next = out.ptr.slice(0, n);
  const path: number[] = [];
  for (let start = 0; start < n; start++) {
    if (state[start] !== 0) continue;
    state[start] = 1;
    path.push(start);
    while (path.length > 0) {
      const at = path[path.length - 1];
      if (next[at] === out.ptr[at + 1]) {
        state[at] = 2;
        path.pop();
        continue;
      }
      const k = out.items[next[at]++];
      const to = sink[k];
      if (to < 0) continue;
      if (state[to] === 1) backward[k] = 1;
      else if (state[to] === 0) {
        state[to] = 1;
        path.push(to);
      }
    }
  }
  return backward;
}

/** Puts each box into the row to which the longest path to it leads. */
function longestPath(graph: Graph, { from, out, into, backward, span }: Flow): Path {
  const n = graph.width.length;
  const waits = new Int32Array(n);
  for (let k = 0; k < graph.sink.length; k++) {
    if (from[k] >= 0 && graph.sink[k] >= 0) waits[backward[k] ? from[k] : graph.sink[k]]++;
  }
  const order = new Int32Array(n);
  const rank = new Int32Array(n);
  let count = 0;
  for (let i = 0; i < n; i++) if (waits[i] === 0) order[count++] = i;
  for (let at = 0; at < count; at++) {
    const box = order[at];
    const reach = (below: number): void => {
      rank[below] = Math.max(rank[below], rank[box] + span[box]);
      if (--waits[below] === 0) order[count++] = below;
    };
    for (let j = out.ptr[box]; j < out.ptr[box + 1]; j++) {
      const k = out.items[j];
      if (!backward[k] && graph.sink[k] >= 0) reach(graph.sink[k]);
    }
    for (let j = into.ptr[box]; j < into.ptr[box + 1]; j++) {
      const k = into.items[j];
      if (backward[k]) reach(from[k]);
    }
  }
  return { order, rank };
}

/** Returns whether every box is on a longest path, so that no row can be another; in a graph with cycles false. */
function hasOneRanking({ sink }: Graph, { out, backward, span }: Flow, { order, rank }: Path): boolean {
  if (backward.includes(1)) return false;
  let end = 0;
  for (const box of order) end = Math.max(end, rank[box] + span[box]);
  for (const box of order) {
    let next = end;
    for (let j = out.ptr[box]; j < out.ptr[box + 1]; j++) {
      const reader = sink[out.items[j]];
      if (reader >= 0) next = Math.min(next, rank[reader]);
    }
    // a box directly above a box that cannot move down cannot move down either
    if (rank[box] + span[box] !== next) return false;
  }
  return true;
}

/** Moves boxes down if that shortens more tensors than it lengthens, and whole chains without a predecessor. */
function tighten({ source, sink, ptr }: Graph, flow: Flow, { order, rank }: Path): void {
  const { from, out, into, backward, span } = flow;
  const n = order.length;
  const edgeOf = new Int32Array(sink.length);
  const lastRow = new Int32Array(source.length); // the row that a tensor reaches
  const reach = (e: number): void => {
    lastRow[e] = -1;
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      if (backward[k]) continue;
      lastRow[e] = Math.max(lastRow[e], sink[k] < 0 ? Number.MAX_SAFE_INTEGER : rank[sink[k]]);
    }
  };
  for (let e = 0; e < source.length; e++) {
    edgeOf.fill(e, ptr[e], ptr[e + 1]);
    reach(e);
  }
  const outputs = itemsBy(source, n);
  const hangs = new Uint8Array(n);
  for (const box of order) {
    hangs[box] = 1;
    for (let j = into.ptr[box]; j < into.ptr[box + 1]; j++) {
      const k = into.items[j];
      const e = edgeOf[k];
      if (from[k] < 0 || backward[k] || !hangs[from[k]] || ptr[e + 1] - ptr[e] > 1) hangs[box] = 0;
    }
    if (outputs.ptr[box + 1] - outputs.ptr[box] > 1) hangs[box] = 0;
  }
  for (let pass = 0; pass < 4; pass++) {
    let hasMoved = false;
    for (let at = n - 1; at >= 0; at--) {
      const box = order[at];
      let low = 0;
      let high = Number.MAX_SAFE_INTEGER;
      let gains = 0;
      let losses = 0;
      for (let j = out.ptr[box]; j < out.ptr[box + 1]; j++) {
        const k = out.items[j];
        if (sink[k] < 0) continue;
        if (backward[k]) low = Math.max(low, rank[sink[k]] + span[sink[k]]);
        else high = Math.min(high, rank[sink[k]] - span[box]);
      }
      if (high === Number.MAX_SAFE_INTEGER) continue;
      for (let j = outputs.ptr[box]; j < outputs.ptr[box + 1]; j++) {
        if (lastRow[outputs.items[j]] >= 0) gains++;
      }
      for (let j = into.ptr[box]; j < into.ptr[box + 1]; j++) {
        const k = into.items[j];
        if (backward[k]) high = Math.min(high, rank[from[k]] - span[box]);
        else {
          if (from[k] >= 0) low = Math.max(low, rank[from[k]] + span[from[k]]);
          const e = edgeOf[k];
          if (lastRow[e] <= rank[box] && ptr[e + 1] - ptr[e] <= MAX_LINE_READERS) losses++;
        }
      }
      const gain = gains - losses;
      const to = gain > 0 || (gain === 0 && hangs[box]) ? high : gain < 0 ? low : rank[box];
      if (to === rank[box] || to < low || to > high) continue;
      rank[box] = to;
      hasMoved = true;
      for (let j = into.ptr[box]; j < into.ptr[box + 1]; j++) {
        const e = edgeOf[into.items[j]];
        if (ptr[e + 1] - ptr[e] <= MAX_LINE_READERS) reach(e);
      }
    }
    if (!hasMoved) return;
  }
}

/** Operations allowed in the search for the shortest lines. */
const EFFORT = 4e6;
/** Weight of the length of tensors, which decides between rows with lines of equal length. */
const COST = { line: 2, tensor: 1 } as const;

/** Improves rows until the total length of the lines is minimal. */
function minimizeLength(graph: Graph, backward: Uint8Array, rank: Int32Array, span: Int32Array): void {
  const distances = distancesOf(graph, backward, span);
  const boxes = rank.length;
  const place = new Int32Array(distances.count);
  const steps = Math.floor(EFFORT / (distances.count + distances.tail.length) / 2);
  if (boxes < 3 || steps < 30) return;
  place.set(rank);
  const { tail, head, minDistance } = distances;
  place[boxes] = 0;
  // rows of hyperedges and of the lower border follow from the boxes, so their distances come last
  for (let e = 0; e < tail.length; e++) {
    if (head[e] > boxes) place[head[e]] = Math.max(place[head[e]], place[tail[e]] + minDistance[e]);
  }
  shorten(place, distances, steps);
  for (let box = 0; box < boxes; box++) rank[box] = place[box] - place[boxes];
}

/** Creates vertices: boxes, both borders, and one for each tensor with several readers, as low as its lowest reader. */
function distancesOf(graph: Graph, backward: Uint8Array, span: Int32Array): Distances & { readonly count: number } {
  const { source, sink, ptr } = graph;
  const boxes = graph.width.length;
  const upper = boxes;
  const lower = boxes + 1;
  let count = boxes + 2;
  const tail: number[] = [];
  const head: number[] = [];
  const minDistance: number[] = [];
  const weight: number[] = [];
  const keep = (a: number, b: number, distance: number, cost: number): void => {
    tail.push(a);
    head.push(b);
    minDistance.push(distance);
    weight.push(cost);
  };
  for (let box = 0; box < boxes; box++) {
    keep(upper, box, 0, 0);
    keep(box, lower, span[box], 0);
  }
  for (let e = 0; e < source.length; e++) {
    if (source[e] < -1) continue;
    const from = source[e] < 0 ? upper : source[e];
    const height = source[e] < 0 ? 0 : span[source[e]];
    const readers = ptr[e + 1] - ptr[e];
    const joint = readers > 1 && readers <= MAX_LINE_READERS ? count++ : -1;
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      const to = sink[k] < 0 ? lower : sink[k];
      if (backward[k]) keep(to, from, span[to], COST.line);
      else {
        keep(from, to, height, readers <= MAX_LINE_READERS ? COST.line : 0);
        if (joint >= 0) keep(to, joint, 0, 0);
      }
    }
    if (joint >= 0) keep(from, joint, 0, COST.tensor);
  }
  return { count, tail, head, minDistance, weight };
}

/** Removes rows in which no box begins, and wraps rows in which too many do. */
function wrap(rank: Int32Array, span: Int32Array): { rank: Int32Array; span: Int32Array; count: number } {
  let rowCount = 0;
  for (let box = 0; box < rank.length; box++) rowCount = Math.max(rowCount, rank[box] + span[box]);
  const size = new Int32Array(rowCount);
  for (const r of rank) size[r]++;
  const start = new Int32Array(rowCount + 1);
  for (let r = 0; r < rowCount; r++) start[r + 1] = start[r] + Math.ceil(size[r] / MAX_ROW_BOXES);
  const fill = new Int32Array(rowCount);
  const rows = new Int32Array(rank.length);
  const spans = new Int32Array(rank.length);
  for (let box = 0; box < rank.length; box++) {
    const r = rank[box];
    rows[box] = start[r] + Math.floor((fill[r]++ * (start[r + 1] - start[r])) / size[r]);
    spans[box] = span[box] === 1 ? 1 : start[r + span[box]] - rows[box];
  }
  return { rank: rows, span: spans, count: start[rowCount] };
}
