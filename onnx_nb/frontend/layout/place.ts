/**
 * Assigns x to every vertex. Spines (each box with its successor on the longest path) and long edges become straight
 * vertical blocks, as in Brandes & Köpf; blocks then settle where their tensors pull them, at a distance in every row.
 */

import { append, itemsBy } from "../protocol/columns.ts";
import { type Graph, PORTS } from "./graph.ts";
import type { Layers } from "./order.ts";

/** Pixels: minimum distance between neighbors in a row, by how many of the two are boxes. */
export const GAP = { boxes: 18, boxLane: 13, lanes: 10 } as const;

export interface Places {
  /** the middle of every vertex; the least left side is 0 */
  readonly x: Float64Array;
  readonly entryWay: Float64Array;
  readonly exitWay: Float64Array;
}

export function place(graph: Graph, layers: Layers): Places {
  const lines = toLines(layers);
  const ways = longestWays(graph, layers, lines);
  const spines = findSpines(graph, layers, lines, ways);
  const blocks = toBlocks(graph, layers, align(layers, spines.segments), spines.leaves);
  const at = settle(layers, blocks, constraints(graph, layers, blocks), pulls(graph, layers, blocks, spines.inLine));
  const x = new Float64Array(layers.count);
  let left = Number.POSITIVE_INFINITY;
  for (let v = 0; v < layers.count; v++) {
    x[v] = Math.round(at[blocks.of[v]]) + blocks.offset[v];
    left = Math.min(left, x[v] - halfWidth(graph, layers, v));
  }
  for (let v = 0; v < layers.count; v++) x[v] -= left;
  return {
    x,
    entryWay: Float64Array.from(layers.from, (v, e) => (graph.source[e] === -1 ? ways.down[v] : 0)),
    exitWay: Float64Array.from(layers.to, (v, k) => (graph.sink[k] === -1 ? ways.up[v] : 0)),
  };
}

export function halfWidth(graph: Graph, layers: Layers, v: number): number {
  return layers.box[v] >= 0 ? graph.width[layers.box[v]] / 2 : 3;
}

/** Returns where segment s leaves its upper vertex (or meets its lower one), from the middle; 0 but for fixed ports. */
function upperOffset(graph: Graph, layers: Layers, s: number): number {
  const box = layers.box[layers.upper[s]];
  const e = layers.segmentEdge[s];
  if (box < 0 || e < 0 || graph.ports[box] !== PORTS.FIXED) return 0;
  return graph.outOffset[e] - graph.width[box] / 2;
}

export function lowerOffset(graph: Graph, layers: Layers, s: number): number {
  const v = layers.lower[s];
  const k = layers.segmentSink[s];
  if (v >= layers.boxes || k < 0 || graph.ports[v] !== PORTS.FIXED) return 0;
  return graph.inOffset[k] - graph.width[v] / 2;
}

/** Chooses vertical segments, at most one above and one below each vertex: [vertex] → segment below, or −1. */
function align(layers: Layers, segments: readonly number[]): Int32Array {
  const { upper, lower, pos, rank } = layers;
  const below = new Int32Array(layers.count).fill(-1);
  const above = new Int32Array(layers.count).fill(-1);
  const upright: { x: number; y: number }[][] = [];
  for (const s of segments) {
    const v = upper[s];
    const w = lower[s];
    if (below[v] >= 0 || above[w] >= 0) continue;
    upright[rank[v]] ??= [];
    const row = upright[rank[v]];
    let at = row.length;
    while (at > 0 && row[at - 1].x > pos[v]) at--;
    if ((at > 0 && row[at - 1].y > pos[w]) || (at < row.length && row[at].y < pos[w])) continue;
    row.splice(at, 0, { x: pos[v], y: pos[w] });
    below[v] = s;
    above[w] = s;
  }
  return below;
}

/** Segments that may become vertical, most important first, and pairs of vertices that should be in line. */
interface Spines {
  readonly segments: readonly number[];
  readonly inLine: readonly (readonly [upper: number, lower: number])[];
  /** segment on the main path into an open scope → where that path leaves the scope, from the scope's middle */
  readonly leaves: ReadonlyMap<number, number>;
}

/** Finds spines: the main path through the scope, then others from long to short, then long edges. */
function findSpines(graph: Graph, layers: Layers, lines: Lines, ways: Ways): Spines {
  const { upper, lower, firstDummy } = layers;
  const next = choose(graph, layers, lines, lines.start, lines.end, ways.down, true);
  const back = choose(graph, layers, lines, lines.end, lines.start, ways.up, false);
  const importance = new Float64Array(layers.segments).fill(-1);
  const raise = (s: number, to: number): void => {
    importance[s] = Math.max(importance[s], to);
  };
  const raiseLine = (i: number, to: number): void => {
    for (let s = lines.last[i]; s >= 0; s = s === lines.first[i] ? -1 : layers.up.items[layers.up.ptr[upper[s]]])
      raise(s, to);
  };
  for (let s = 0; s < layers.segments; s++) {
    if (upper[s] >= firstDummy && lower[s] >= firstDummy) raise(s, 1);
    if (layers.segmentEdge[s] < 0) raise(s, Number.POSITIVE_INFINITY);
  }
  for (let i = 0; i < lines.count; i++) {
    const goesOn = next.line[lines.start[i]] === i && !next.isTie[lines.start[i]];
    const comesFrom = back.line[lines.end[i]] === i && !back.isTie[lines.end[i]];
    if (goesOn && comesFrom) raiseLine(i, 2 + ways.up[lines.start[i]] + ways.down[lines.end[i]]);
    else if (lines.last[i] !== lines.first[i]) {
      if (goesOn) raise(lines.first[i], 0.5);
      if (comesFrom) raise(lines.last[i], 0.5);
    }
  }
  const inLine: [number, number][] = [];
  const leaves = new Map<number, number>();
  const isBeginning = (v: number): boolean => v < layers.boxes && graph.ports[v] !== PORTS.FIXED;
  let starts = true; // nothing is open on the main path yet, and it does not come from outside
  let fork = -1; // where the main path splits into equal ones, until they join
  for (let v = mainStart(graph, layers, lines, ways); v >= 0 && next.line[v] >= 0; v = lines.end[next.line[v]]) {
    const to = lines.end[next.line[v]];
    if (next.isTie[v]) fork = fork < 0 ? v : fork;
    else if (!back.isTie[to]) {
      raiseLine(next.line[v], Number.MAX_VALUE);
      // a scope is placed so that the path continues straight, or a stack of many layers would drift aside
      starts &&= isBeginning(v);
      if (to < layers.boxes && graph.ports[to] === PORTS.FIXED && next.line[to] >= 0) {
        const segment = lines.last[next.line[v]];
        const leave = upperOffset(graph, layers, lines.first[next.line[to]]);
        // what stands before the first of wide scopes is where one begins to read
        if (!starts || Math.abs(leave - lowerOffset(graph, layers, segment)) < WIDE) leaves.set(segment, leave);
      }
    }
    if (fork >= 0 && back.isTie[to]) {
      inLine.push([fork, to]);
      fork = -1;
    }
  }
  const segments: number[] = [];
  for (let s = 0; s < layers.segments; s++) if (importance[s] >= 0) segments.push(s);
  return { segments: segments.sort((a, b) => importance[b] - importance[a] || a - b), inLine, leaves };
}

/** Pixels between the main path's ways into and out of an open scope that is set in many columns. */
const WIDE = 250;

/** Returns the start of the longest path through the scope, −1 if there is none. */
function mainStart(graph: Graph, layers: Layers, lines: Lines, ways: Ways): number {
  const hasEntry = new Uint8Array(layers.count);
  for (const v of lines.end) hasEntry[v] = 1;
  let start = -1;
  let maxWay = -1;
  for (let v = 0; v < layers.firstDummy; v++) {
    const way = ways.up[v] + weightOf(graph, layers, v) + ways.down[v];
    if (hasEntry[v] || way <= maxWay) continue;
    start = v;
    maxWay = way;
  }
  return start;
}

/** Lines from a box or port to a box or port, through any dummies. */
interface Lines {
  readonly count: number;
  readonly start: readonly number[];
  readonly end: readonly number[];
  /** the uppermost and the lowest segment */
  readonly first: readonly number[];
  readonly last: readonly number[];
}

function toLines(layers: Layers): Lines {
  const { upper, segmentSink, lower, firstDummy } = layers;
  const start: number[] = [];
  const end: number[] = [];
  const first: number[] = [];
  const last: number[] = [];
  const topOf = new Int32Array(layers.count).fill(-1); // dummy → uppermost segment of its chain
  for (let s = 0; s < layers.segments; s++) {
    const from = upper[s];
    const top = from < firstDummy ? s : topOf[from];
    if (lower[s] >= firstDummy) topOf[lower[s]] = top;
    if (segmentSink[s] < 0 || top < 0) continue;
    const box = layers.box[upper[top]];
    start.push(box >= 0 ? box : upper[top]);
    end.push(lower[s]);
    first.push(top);
    last.push(s);
  }
  return { count: start.length, start, end, first, last };
}

/** Longest path onward from each box and port, and back, by the weights of the boxes on it. */
interface Ways {
  readonly down: Float64Array;
  readonly up: Float64Array;
}

/** A path across the border continues outside, so it outweighs every path that begins or ends in the scope. */
const ACROSS = 1e6;

function longestWays(graph: Graph, layers: Layers, lines: Lines): Ways {
  const down = new Float64Array(layers.count);
  const up = new Float64Array(layers.count);
  for (const v of layers.from) if (v >= 0 && layers.box[v] < 0) up[v] = ACROSS;
  for (const v of layers.to) if (v >= 0 && layers.box[v] < 0) down[v] = ACROSS;
  const byStart = Array.from({ length: lines.count }, (_, i) => i);
  byStart.sort((a, b) => layers.rank[lines.start[a]] - layers.rank[lines.start[b]]);
  for (const i of byStart) {
    up[lines.end[i]] = Math.max(up[lines.end[i]], up[lines.start[i]] + weightOf(graph, layers, lines.start[i]));
  }
  for (let j = byStart.length - 1; j >= 0; j--) {
    const i = byStart[j];
    const way = down[lines.end[i]] + weightOf(graph, layers, lines.end[i]);
    down[lines.start[i]] = Math.max(down[lines.start[i]], way);
  }
  return { down, up };
}

function weightOf(graph: Graph, layers: Layers, v: number): number {
  return v < layers.boxes ? graph.weight[v] : 0;
}

/** For each box and port the line on which its path goes on (or arrives), −1 for none; tie: the middle two equal. */
interface Choice {
  readonly line: Int32Array;
  readonly isTie: Uint8Array;
}

/** Chooses the longest path, or the middle one of equals. */
function choose(
  graph: Graph,
  layers: Layers,
  lines: Lines,
  starts: readonly number[],
  ends: readonly number[],
  wayFrom: Float64Array,
  downward: boolean,
): Choice {
  const line = new Int32Array(layers.count).fill(-1);
  const isTie = new Uint8Array(layers.count);
  const rows = new Map<number, number[]>();
  for (let i = 0; i < lines.count; i++) append(rows, starts[i], i);
  const place = (i: number): number =>
    downward ? layers.pos[layers.lower[lines.first[i]]] : layers.pos[layers.upper[lines.last[i]]];
  const hasDummies = (i: number): boolean => lines.first[i] !== lines.last[i];
  const way = (i: number): number => wayFrom[ends[i]] + weightOf(graph, layers, ends[i]);
  /** Returns the longest path through a line, which decides between lines of the same two boxes. */
  const pathWeight = (i: number): number =>
    graph.outWay[layers.segmentEdge[lines.first[i]]] + graph.inWay[layers.segmentSink[lines.last[i]]];
  for (const [v, row] of rows) {
    let bestLines = row;
    if (row.length > 1) {
      const main = new Map<number, number>();
      for (const i of row) {
        const rival = main.get(ends[i]);
        if (rival === undefined || pathWeight(i) > pathWeight(rival)) main.set(ends[i], i);
      }
      const candidates = [...main.values()];
      const top = candidates.reduce((max, i) => Math.max(max, way(i)), 0);
      const direct = candidates.filter((i) => !hasDummies(i));
      // three or more paths of similar length are placed symmetrically about the middle one
      if (direct.length > 2 && direct.every((i) => way(i) >= top - MAX_WEIGHT_DIFFERENCE)) bestLines = direct;
      else {
        bestLines = candidates.filter((i) => way(i) === top);
        if (bestLines.some((i) => !hasDummies(i))) bestLines = bestLines.filter((i) => !hasDummies(i));
      }
      bestLines.sort((a, b) => place(a) - place(b) || a - b);
    }
    line[v] = bestLines[(bestLines.length - 1) >> 1];
    isTie[v] = bestLines.length % 2 === 0 ? 1 : 0;
  }
  return { line, isTie };
}

/** Weight below which three or more paths count as equal. */
const MAX_WEIGHT_DIFFERENCE = 8;

interface Blocks {
  readonly count: number;
  /** vertex → its block, and its offset from the block's x */
  readonly of: Int32Array;
  readonly offset: Float64Array;
}

function toBlocks(graph: Graph, layers: Layers, below: Int32Array, leaves: Spines["leaves"]): Blocks {
  const of = new Int32Array(layers.count).fill(-1);
  const offset = new Float64Array(layers.count);
  let count = 0;
  for (let row = 0; row < layers.rows; row++) {
    for (let at = layers.rowPtr[row]; at < layers.rowPtr[row + 1]; at++) {
      const top = layers.order[at];
      if (of[top] >= 0) continue;
      of[top] = count;
      for (let v = top, s = below[v]; s >= 0; s = below[v]) {
        const w = layers.lower[s];
        of[w] = count;
        offset[w] = offset[v] + upperOffset(graph, layers, s) - (leaves.get(s) ?? lowerOffset(graph, layers, s));
        v = w;
      }
      count++;
    }
  }
  return { count, of, offset };
}

/** Block `right[c]` is at least `distance[c]` to the right of block `left[c]`; left blocks are settled first. */
interface Constraints {
  readonly left: Int32Array;
  readonly right: Int32Array;
  readonly distance: Float64Array;
}

function constraints(graph: Graph, layers: Layers, blocks: Blocks): Constraints {
  const { rowPtr, order, box } = layers;
  const reach = labelReach(graph);
  const left: number[] = [];
  const right: number[] = [];
  const distance: number[] = [];
  for (let row = 0; row < layers.rows; row++) {
    for (let at = rowPtr[row] + 1; at < rowPtr[row + 1]; at++) {
      const v = order[at - 1];
      const w = order[at];
      const gap = box[v] >= 0 && box[w] >= 0 ? GAP.boxes : box[v] >= 0 || box[w] >= 0 ? GAP.boxLane : GAP.lanes;
      left.push(blocks.of[v]);
      right.push(blocks.of[w]);
      const boxReach = halfWidth(graph, layers, v) + gap;
      const room = box[v] >= 0 && !goesOn(layers, v) && goesOn(layers, w) ? reach[box[v]] : 0;
      distance.push(Math.max(boxReach, room) + halfWidth(graph, layers, w) + blocks.offset[v] - blocks.offset[w]);
    }
  }
  const sortedPairs = fromTheLeft(blocks.count, left, right);
  return {
    left: Int32Array.from(sortedPairs, (c) => left[c]),
    right: Int32Array.from(sortedPairs, (c) => right[c]),
    distance: Float64Array.from(sortedPairs, (c) => distance[c]),
  };
}

/** Pixels between a line and its label, and between the label and a tall box. */
const LABEL_GAP = 12;

/** Returns whether a vertex is part of a tall box but not its foot, so that no label fits below it. */
function goesOn(layers: Layers, v: number): boolean {
  const box = layers.box[v];
  return box >= 0 && layers.foot[box] !== v;
}

/** Returns how far labels of a box's outputs reach right of its middle. */
function labelReach({ source, labelWidth, width, ports, outOffset }: Graph): Float64Array {
  const reach = new Float64Array(width.length);
  for (let e = 0; e < source.length; e++) {
    const box = source[e];
    if (box < 0 || labelWidth[e] === 0) continue;
    const half = width[box] / 2;
    const port = ports[box] === PORTS.FIXED ? outOffset[e] - half : half * OFF_MIDDLE;
    reach[box] = Math.max(reach[box], port + LABEL_GAP + labelWidth[e]);
  }
  return reach;
}

/** Part of half a box's width that a free port may be off the middle. */
const OFF_MIDDLE = 0.6;

/** Sorts constraints by the topological order of their left blocks. Blocks do not cross, so there is one. */
function fromTheLeft(count: number, left: readonly number[], right: readonly number[]): number[] {
  const out = itemsBy(Int32Array.from(left), count);
  const waits = new Int32Array(count);
  for (const block of right) waits[block]++;
  const ready: number[] = [];
  for (let block = 0; block < count; block++) if (waits[block] === 0) ready.push(block);
  const order: number[] = [];
  for (let at = 0; at < ready.length; at++) {
    for (let j = out.ptr[ready[at]]; j < out.ptr[ready[at] + 1]; j++) {
      order.push(out.items[j]);
      if (--waits[right[out.items[j]]] === 0) ready.push(right[out.items[j]]);
    }
  }
  return order;
}

/** Springs between blocks: the segments that are not vertical. b is pulled to `offset` to the right of a. */
interface Pulls {
  readonly a: readonly number[];
  readonly b: readonly number[];
  readonly offset: readonly number[];
  readonly weight: readonly number[];
}

function pulls(graph: Graph, layers: Layers, blocks: Blocks, inLine: Spines["inLine"]): Pulls {
  const a: number[] = [];
  const b: number[] = [];
  const offset: number[] = [];
  const weight: number[] = [];
  const pull = (v: number, w: number, between: number, strength: number): void => {
    if (blocks.of[v] === blocks.of[w]) return;
    a.push(blocks.of[v]);
    b.push(blocks.of[w]);
    offset.push(blocks.offset[v] + between - blocks.offset[w]);
    weight.push(strength);
  };
  for (let s = 0; s < layers.segments; s++) {
    const v = layers.upper[s];
    const w = layers.lower[s];
    const lanes = (v >= layers.firstDummy ? 1 : 0) + (w >= layers.firstDummy ? 1 : 0);
    pull(v, w, upperOffset(graph, layers, s) - lowerOffset(graph, layers, s), lanes === 0 ? 4 : lanes === 1 ? 1 : 6);
  }
  for (let k = 0; k < layers.lane.length; k++) {
    if (layers.lane[k] >= 0) pull(layers.to[k], layers.lane[k], 0, 1);
  }
  for (const [v, w] of inLine) pull(v, w, 0, 40);
  // a block without springs stays with its neighbor
  for (let v = 0; v < layers.count; v++) {
    if (layers.down.ptr[v] < layers.down.ptr[v + 1] || layers.up.ptr[v] < layers.up.ptr[v + 1]) continue;
    const at = layers.rowPtr[layers.rank[v]] + layers.pos[v];
    const w = layers.pos[v] > 0 ? layers.order[at - 1] : layers.order[at + 1];
    if (layers.rowPtr[layers.rank[v] + 1] - layers.rowPtr[layers.rank[v]] > 1) pull(v, w, 0, 0.5);
  }
  return { a, b, offset, weight };
}

/** Iterations of pulling and pushing apart; fewer for very many blocks. */
const TURNS = 24;

function settle(layers: Layers, blocks: Blocks, limits: Constraints, springs: Pulls): Float64Array {
  const { count } = blocks;
  const x = new Float64Array(count);
  pushRight(x, limits);
  if (springs.a.length === 0) return x;
  const turns = layers.count > 20000 ? 8 : TURNS;
  const targetX = new Float64Array(count);
  const weight = new Float64Array(count);
  const toLeft = new Float64Array(count);
  for (let turn = 0; turn < turns; turn++) {
    targetX.fill(0);
    weight.fill(0);
    for (let i = 0; i < springs.a.length; i++) {
      const a = springs.a[i];
      const b = springs.b[i];
      const w = springs.weight[i];
      targetX[b] += w * (x[a] + springs.offset[i]);
      targetX[a] += w * (x[b] - springs.offset[i]);
      weight[a] += w;
      weight[b] += w;
    }
    for (let i = 0; i < count; i++) {
      // half the distance: two blocks that pull each other would otherwise swap places
      if (weight[i] > 0) x[i] = (x[i] + targetX[i] / weight[i]) / 2;
      toLeft[i] = x[i];
    }
    // pushing everything right and pushing everything left both keep the distances, so their mean does, too
    pushRight(x, limits);
    pushLeft(toLeft, limits);
    for (let i = 0; i < count; i++) x[i] = (x[i] + toLeft[i]) / 2;
  }
  slide(x, limits, springs, turns >> 1);
  return x;
}

function pushRight(x: Float64Array, { left, right, distance }: Constraints): void {
  for (let c = 0; c < left.length; c++) x[right[c]] = Math.max(x[right[c]], x[left[c]] + distance[c]);
}

function pushLeft(x: Float64Array, { left, right, distance }: Constraints): void {
  for (let c = left.length - 1; c >= 0; c--) x[left[c]] = Math.min(x[left[c]], x[right[c]] - distance[c]);
}

/** Moves each block to the weighted median of its pulls, as far as its neighbors allow. */
function slide(x: Float64Array, limits: Constraints, springs: Pulls, turns: number): void {
  const count = x.length;
  const rightOf = itemsBy(limits.left, count);
  const leftOf = itemsBy(limits.right, count);
  const { a, b, offset, weight } = springs;
  // both ends of each: a at s, b at a.length + s
  const ends = itemsBy([...a, ...b], count);
  for (let turn = 0; turn < turns; turn++) {
    let hasMoved = false;
    for (let step = 0; step < count; step++) {
      const i = turn % 2 === 0 ? step : count - 1 - step;
      const at: { x: number; w: number }[] = [];
      let total = 0;
      for (let j = ends.ptr[i]; j < ends.ptr[i + 1]; j++) {
        const s = ends.items[j] % a.length;
        at.push({ x: ends.items[j] < a.length ? x[b[s]] - offset[s] : x[a[s]] + offset[s], w: weight[s] });
        total += weight[s];
      }
      if (at.length === 0) continue;
      let low = Number.NEGATIVE_INFINITY;
      let high = Number.POSITIVE_INFINITY;
      for (let j = leftOf.ptr[i]; j < leftOf.ptr[i + 1]; j++) {
        const c = leftOf.items[j];
        low = Math.max(low, x[limits.left[c]] + limits.distance[c]);
      }
      for (let j = rightOf.ptr[i]; j < rightOf.ptr[i + 1]; j++) {
        const c = rightOf.items[j];
        high = Math.min(high, x[limits.right[c]] - limits.distance[c]);
      }
      const to = Math.max(low, Math.min(high, median(at, total)));
      if (Math.abs(to - x[i]) > 0.25) hasMoved = true;
      x[i] = to;
    }
    if (!hasMoved) return;
  }
}

/** Returns the weighted median: the middle of all points with at most half the weight on either side. */
function median(at: { x: number; w: number }[], total: number): number {
  at.sort((p, q) => p.x - q.x);
  let sum = 0;
  for (let i = 0; i < at.length; i++) {
    sum += at[i].w;
    if (sum * 2 > total) return at[i].x;
    if (sum * 2 === total) return (at[i].x + at[i + 1].x) / 2;
  }
  return at[at.length - 1].x;
}
