/**
 * Orders the boxes within each row: long edges become chains of dummy vertices, then barycenter sweeps and swaps of
 * neighbors remove crossings. A tensor with many readers has one chain, from which each reader branches off.
 */

import { itemsBy, type Rows, rowOf } from "../protocol/columns.ts";
import { type Graph, PORTS } from "./graph.ts";
import { MAX_LINE_READERS, type Ranking } from "./rank.ts";

/** Vertices in this order: boxes, further rows of tall boxes, ports on the upper border, on the lower one, dummies. */
export interface Layers {
  readonly count: number;
  readonly boxes: number;
  /** vertex → the box that it is or is a part of, −1 for ports and dummies */
  readonly box: Int32Array;
  /** box → its lowest vertex, the box itself if it takes one row */
  readonly foot: Int32Array;
  readonly firstDummy: number;
  readonly rank: Int32Array;
  readonly rows: number;
  /** row r holds order[rowPtr[r]] … order[rowPtr[r+1] − 1] from left to right; pos is a vertex's index in its row */
  readonly rowPtr: Uint32Array;
  readonly order: Int32Array;
  readonly pos: Int32Array;
  /** segments between neighboring rows, and their ports as a fraction of the width of either end */
  readonly segments: number;
  readonly upper: Int32Array;
  readonly lower: Int32Array;
  readonly upperPort: Float32Array;
  readonly lowerPort: Float32Array;
  /** the hyperedge of a segment, −1 between the parts of a box; where it ends at a box or border the sink, else −1 */
  readonly segmentEdge: Int32Array;
  readonly segmentSink: Int32Array;
  /** vertex → its segments down and up */
  readonly down: Rows;
  readonly up: Rows;
  /** hyperedge → the vertex where it begins, −1 for none; sink → vertex it ends at, −1 if the hyperedge has no line */
  readonly from: Int32Array;
  readonly to: Int32Array;
  /** sink → vertex above its last segment (−1 for stubs and backward edges); dummy → vertex above it */
  readonly above: Int32Array;
  readonly dummyAbove: Int32Array;
  /** sink that runs backward → its first dummy (the uppermost) and the vertex where it begins, −1 for others */
  readonly lane: Int32Array;
  readonly laneFrom: Int32Array;
  readonly stub: Uint8Array;
}

const SWEEPS = 8;

export function layer(graph: Graph, ranking: Ranking): Layers {
  const layers = new Builder(graph, ranking).build();
  sweep(layers);
  return layers;
}

/** Builds the vertices and segments of a ranked graph: first for boxes and ports, then for the edges between them. */
class Builder {
  readonly #graph: Graph;
  readonly #ranking: Ranking;
  /** number of rows that the ports on the upper border take */
  readonly #shift: number;
  readonly #lastRow: number;
  /** hyperedge → row where it begins, sink → row where it ends */
  readonly #startRow: Int32Array;
  readonly #endRow: Int32Array;
  readonly #ports: { readonly outPort: Float64Array; readonly inPort: Float64Array };
  readonly #stub: Uint8Array;
  readonly #foot: Int32Array;
  readonly #from: Int32Array;
  readonly #to: Int32Array;
  readonly #above: Int32Array;
  readonly #lane: Int32Array;
  readonly #laneFrom: Int32Array;
  readonly #rank: number[] = [];
  readonly #box: number[] = [];
  readonly #dummyAbove: number[] = [];
  readonly #upper: number[] = [];
  readonly #lower: number[] = [];
  readonly #upperPort: number[] = [];
  readonly #lowerPort: number[] = [];
  readonly #segmentEdge: number[] = [];
  readonly #segmentSink: number[] = [];

  constructor(graph: Graph, ranking: Ranking) {
    const { source, sink } = graph;
    const { rank, span, count } = ranking;
    const shift = source.includes(-1) ? 1 : 0;
    const lastRow = count + shift;
    this.#graph = graph;
    this.#ranking = ranking;
    this.#shift = shift;
    this.#lastRow = lastRow;
    this.#startRow = source.map((box) => (box >= 0 ? rank[box] + span[box] - 1 + shift : 0));
    this.#endRow = sink.map((box) => (box >= 0 ? rank[box] + shift : lastRow));
    const unset = (): Int32Array => new Int32Array(sink.length).fill(-1);
    [this.#to, this.#above, this.#lane, this.#laneFrom] = [unset(), unset(), unset(), unset()];
    this.#from = new Int32Array(source.length).fill(-1);
    this.#foot = rank.map((_, box) => box);
    this.#ports = portFractions(graph);
    this.#stub = findStubs(graph, ranking, this.#startRow, this.#endRow);
  }

  build(): Layers {
    const { source, sink } = this.#graph;
    this.#addBoxes();
    const firstBottom = this.#addPorts();
    const firstDummy = this.#rank.length;
    for (let e = 0; e < source.length; e++) if (this.#from[e] >= 0) this.#route(e);
    const rank = Int32Array.from(this.#rank);
    const rows = Math.max(this.#lastRow + (sink.includes(-1) ? 1 : 0), 1);
    const upper = Int32Array.from(this.#upper);
    const lower = Int32Array.from(this.#lower);
    const rowPtr = new Uint32Array(rows + 1);
    for (const row of rank) rowPtr[row + 1]++;
    for (let row = 0; row < rows; row++) rowPtr[row + 1] += rowPtr[row];
    const layers: Layers = {
      count: rank.length,
      boxes: this.#foot.length,
      box: Int32Array.from(this.#box),
      foot: this.#foot,
      firstDummy,
      rank,
      rows,
      rowPtr,
      order: new Int32Array(rank.length),
      pos: new Int32Array(rank.length),
      segments: upper.length,
      upper,
      lower,
      upperPort: Float32Array.from(this.#upperPort),
      lowerPort: Float32Array.from(this.#lowerPort),
      segmentEdge: Int32Array.from(this.#segmentEdge),
      segmentSink: Int32Array.from(this.#segmentSink),
      down: itemsBy(upper, rank.length),
      up: itemsBy(lower, rank.length),
      from: this.#from,
      to: this.#to,
      above: this.#above,
      dummyAbove: Int32Array.from(this.#dummyAbove),
      lane: this.#lane,
      laneFrom: this.#laneFrom,
      stub: this.#stub,
    };
    // boxes before dummies
    orderRows(layers, false, false, firstBottom);
    return layers;
  }

  /** Adds a vertex, of a box or −1. */
  #add(row: number, box: number): number {
    this.#box.push(box);
    return this.#rank.push(row) - 1;
  }

  #join(above: number, below: number, e: number, k: number): void {
    this.#upper.push(above);
    this.#lower.push(below);
    this.#upperPort.push(e >= 0 && this.#box[above] >= 0 ? this.#ports.outPort[e] : 0.5);
    this.#lowerPort.push(k >= 0 && below < this.#foot.length ? this.#ports.inPort[k] : 0.5);
    this.#segmentEdge.push(e);
    this.#segmentSink.push(k);
  }

  /** Adds a chain of dummies in rows `first` to `last` below a vertex (−1: none); returns its first dummy. */
  #chain(e: number, above: number, first: number, last: number): number {
    const start = this.#rank.length;
    for (let row = first, vertexAbove = above; row <= last; row++) {
      const dummy = this.#add(row, -1);
      this.#dummyAbove.push(vertexAbove);
      if (vertexAbove >= 0) this.#join(vertexAbove, dummy, e, -1);
      vertexAbove = dummy;
    }
    return start;
  }

  /** Adds the vertices of boxes, then those of the further rows of tall boxes. */
  #addBoxes(): void {
    const { rank, span } = this.#ranking;
    rank.forEach((row, box) => {
      this.#add(row + this.#shift, box);
    });
    span.forEach((rows, box) => {
      for (let part = 1; part < rows; part++) {
        const below = this.#add(rank[box] + this.#shift + part, box);
        this.#join(this.#foot[box], below, -1, -1);
        this.#foot[box] = below;
      }
    });
  }

  /** Adds the ports on the upper border, then those on the lower one; returns the first of the latter. */
  #addPorts(): number {
    const { source, sink } = this.#graph;
    source.forEach((box, e) => {
      if (box >= 0) this.#from[e] = this.#foot[box];
      else if (box === -1) this.#from[e] = this.#add(0, -1);
    });
    const firstBottom = this.#rank.length;
    sink.forEach((box, k) => {
      this.#to[k] = box >= 0 ? box : this.#add(this.#lastRow, -1);
    });
    return firstBottom;
  }

  /** Adds one chain for all readers of a tensor, and a separate one for each reader in an earlier row. */
  #route(e: number): void {
    const { ptr } = this.#graph;
    const { backward } = this.#ranking;
    const start = this.#startRow[e];
    let lastRow = start;
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      if (!this.#stub[k] && !backward[k]) lastRow = Math.max(lastRow, this.#endRow[k] - 1);
    }
    const first = this.#chain(e, this.#from[e], start + 1, lastRow);
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      if (this.#stub[k]) continue;
      if (backward[k]) {
        this.#lane[k] = this.#chain(e, -1, this.#endRow[k], start);
        this.#laneFrom[k] = this.#from[e];
        continue;
      }
      const row = this.#endRow[k];
      this.#above[k] = row - 1 === start ? this.#from[e] : first + (row - 2 - start);
      this.#join(this.#above[k], this.#to[k], e, k);
    }
  }
}

/** Finds lines drawn as stubs: without a producer, to distant readers of many, and the longest if dummies abound. */
function findStubs(graph: Graph, ranking: Ranking, startRow: Int32Array, endRow: Int32Array): Uint8Array {
  const { source, sink, ptr } = graph;
  const stub = new Uint8Array(sink.length);
  const lengths: number[] = [];
  let total = 0;
  for (let e = 0; e < source.length; e++) {
    const isStubbed = ptr[e + 1] - ptr[e] > MAX_LINE_READERS;
    let maxSpan = 0;
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      const span = endRow[k] - startRow[e];
      if (sink[k] >= 0 && (source[e] === -2 || (isStubbed && (span > 1 || ranking.backward[k])))) stub[k] = 1;
      else maxSpan = Math.max(maxSpan, Math.abs(span));
    }
    lengths.push(maxSpan);
    total += maxSpan;
  }
  const budget = 6 * graph.width.length + 4000;
  if (total <= budget) return stub;
  let sum = 0;
  let limit = 0;
  for (const length of lengths.sort((a, b) => a - b)) {
    sum += length;
    if (sum > budget) break;
    limit = length;
  }
  for (let e = 0; e < source.length; e++) {
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      if (sink[k] >= 0 && Math.abs(endRow[k] - startRow[e]) > Math.max(limit, 1)) stub[k] = 1;
    }
  }
  return stub;
}

/** Returns each port's position as a fraction of its box's width; ports of closed scopes are not fixed yet. */
function portFractions(graph: Graph): { outPort: Float64Array; inPort: Float64Array } {
  const { width, ports, source, sink } = graph;
  const boxes = width.length;
  const outPort = new Float64Array(source.length).fill(0.5);
  const inPort = new Float64Array(sink.length).fill(0.5);
  const spread = (keys: Int32Array, slots: Int32Array, offsets: Float64Array, result: Float64Array): void => {
    const rows = itemsBy(keys, boxes);
    for (let box = 0; box < boxes; box++) {
      const members = rowOf(rows, box);
      if (ports[box] === PORTS.FIXED) for (const member of members) result[member] = offsets[member] / width[box];
      else if (ports[box] === PORTS.ORDERED && members.length > 1) {
        const inOrder = Array.from(members).sort((a, b) => slots[a] - slots[b]);
        inOrder.forEach((member, index) => {
          result[member] = (index + 1) / (inOrder.length + 1);
        });
      }
    }
  };
  spread(source, graph.outSlot, graph.outOffset, outPort);
  spread(sink, graph.inSlot, graph.inOffset, inPort);
  return { outPort, inPort };
}

/** Vertices beyond which a scope is swept from one order only, and its rows are sorted but not sifted. */
const MAX_SIFTED_VERTICES = 3000;

/** Sweeps up and down from several initial orders and keeps the one with the fewest crossings. */
function sweep(layers: Layers): void {
  const { order } = layers;
  const talls = tallBoxes(layers);
  makeWay(layers, talls);
  let minCrossings = crossings(layers);
  if (minCrossings === 0) return;
  const isSmall = layers.count <= MAX_SIFTED_VERTICES;
  const bestOrder = order.slice();
  const keep = (): boolean => {
    const now = crossings(layers);
    if (now >= minCrossings) return false;
    minCrossings = now;
    bestOrder.set(order);
    return true;
  };
  const sweepFrom = (first: number): void => {
    let failures = 0;
    for (let i = first; i < first + SWEEPS && minCrossings > 0 && failures < 3; i++) {
      const downward = i % 2 === 0;
      for (let step = 0; step < layers.rows; step++) {
        sortRow(layers, downward ? step : layers.rows - 1 - step, downward, i % 4 >= 2);
      }
      makeWay(layers, talls);
      if (isSmall) for (let turn = 0; turn < 4 && swapNeighbors(layers); turn++);
      failures = keep() ? 0 : failures + 1;
    }
  };
  sweepFrom(0);
  for (let start = 1; isSmall && start < STARTS && minCrossings > 0; start++) {
    orderRows(layers, start % 2 === 1, start >= 2);
    makeWay(layers, talls);
    keep();
    sweepFrom(start % 2);
  }
  order.set(bestOrder);
  number(layers);
  if (isSmall && minCrossings > 0) {
    for (let turn = 0; turn < 3 && sift(layers); turn++);
    makeWay(layers, talls);
    if (!keep()) order.set(bestOrder);
  }
  number(layers);
}

/** Initial orders: depth first from above and from below, each to either side. */
const STARTS = 4;

/** Updates the index of every vertex in its row. */
function number({ rows, rowPtr, order, pos }: Layers): void {
  for (let r = 0; r < rows; r++) for (let at = rowPtr[r]; at < rowPtr[r + 1]; at++) pos[order[at]] = at - rowPtr[r];
}

/** Orders each row depth first, so that connected vertices stay together; those below `limit` come first. */
function orderRows(layers: Layers, fromBelow: boolean, isMirrored: boolean, limit = 0): void {
  const { count, rank, order, pos, rowPtr, lower, upper } = layers;
  const ahead = fromBelow ? layers.up : layers.down;
  const back = fromBelow ? layers.down : layers.up;
  const next = fromBelow ? upper : lower;
  const fill = new Int32Array(layers.rows);
  pos.fill(-1);
  const stack: number[] = [];
  const visit = (start: number): void => {
    stack.push(start);
    for (let v = stack.pop(); v !== undefined; v = stack.pop()) {
      if (pos[v] >= 0) continue;
      pos[v] = fill[rank[v]]++;
      order[rowPtr[rank[v]] + pos[v]] = v;
      const size = ahead.ptr[v + 1] - ahead.ptr[v];
      // pushed last is visited first
      for (const priority of [false, true]) {
        for (let i = 0; i < size; i++) {
          const w = next[ahead.items[ahead.ptr[v] + (isMirrored ? i : size - 1 - i)]];
          if (pos[w] < 0 && w < limit === priority) stack.push(w);
        }
      }
    }
  };
  for (const all of [limit === 0, true]) {
    for (let i = 0; i < count; i++) {
      const v = isMirrored ? count - 1 - i : i;
      if (pos[v] < 0 && back.ptr[v] === back.ptr[v + 1] && (all || rank[v] === 0)) visit(v);
    }
  }
}

/** Moves each vertex to the place in its row where its segments cross the fewest others; false if none moved. */
function sift(layers: Layers): boolean {
  const { rowPtr, order, pos } = layers;
  let hasMoved = false;
  for (let row = 0; row < layers.rows; row++) {
    const start = rowPtr[row];
    const size = rowPtr[row + 1] - start;
    if (size < 3 || size > 60) continue;
    for (const v of order.slice(start, start + size)) {
      const from = pos[v];
      let [to, maxGain] = [from, 0];
      for (const step of [1, -1]) {
        let gain = 0;
        for (let at = from + step; at >= 0 && at < size; at += step) {
          const passed = order[start + at];
          gain += step > 0 ? gainOf(layers, v, passed) : gainOf(layers, passed, v);
          if (gain > maxGain) [to, maxGain] = [at, gain];
        }
      }
      if (to === from) continue;
      hasMoved = true;
      if (to > from) order.copyWithin(start + from, start + from + 1, start + to + 1);
      else order.copyWithin(start + to + 1, start + to, start + from);
      order[start + to] = v;
      for (let at = Math.min(from, to); at <= Math.max(from, to); at++) pos[order[start + at]] = at;
    }
  }
  return hasMoved;
}

/** Crossings that a crossing with a tall box counts as. */
const TALL_BOX_WEIGHT = 64;

function weigh(layers: Layers, s: number): number {
  return layers.segmentEdge[s] < 0 ? TALL_BOX_WEIGHT : 1;
}

function tallBoxes({ foot }: Layers): number[] {
  return Array.from(foot.keys()).filter((box) => foot[box] !== box);
}

/** Returns the tall boxes that a line would have to cross. */
export function crossedBoxes(layers: Layers): number[] {
  const boxes = tallBoxes(layers);
  const turns = boxes.length > 0 ? turnsOf(layers) : [];
  return boxes.filter((box) => isCrossed(layers, box, turns));
}

/** Returns the vertex of a tall box in one of its rows. */
function partOf(layers: Layers, box: number, row: number): number {
  const foot = layers.foot[box];
  return row === layers.rank[box] ? box : foot - (layers.rank[foot] - row);
}

/** A turn of a backward line: from vertex a to vertex b of one row, in the gap below row `above`. */
type Turn = Readonly<Record<"a" | "b" | "above", number>>;

function turnsOf({ lane, laneFrom, rank, to }: Layers): Turn[] {
  const turns: Turn[] = [];
  for (let k = 0; k < lane.length; k++) {
    if (lane[k] < 0) continue;
    const source = laneFrom[k];
    turns.push({ a: to[k], b: lane[k], above: rank[lane[k]] - 1 });
    turns.push({ a: source, b: lane[k] + rank[source] - rank[lane[k]], above: rank[source] });
  }
  return turns;
}

function isCrossed(layers: Layers, box: number, turns: readonly Turn[]): boolean {
  const { rank, foot, rowPtr, order, pos, down, lower } = layers;
  for (const { a, b, above } of turns) {
    if (above < rank[box] || above >= rank[foot[box]]) continue;
    const place = pos[partOf(layers, box, rank[a])];
    if (pos[a] < place !== pos[b] < place) return true;
  }
  for (let row = rank[box]; row < rank[foot[box]]; row++) {
    const place = pos[partOf(layers, box, row)];
    const below = pos[partOf(layers, box, row + 1)];
    for (let at = rowPtr[row]; at < rowPtr[row + 1]; at++) {
      const v = order[at];
      for (let j = down.ptr[v]; j < down.ptr[v + 1]; j++) {
        if (layers.box[v] !== box && pos[v] < place !== pos[lower[down.items[j]]] < below) return true;
      }
    }
  }
  return false;
}

/** Moves each component next to a tall box to one side of it, the side with more of it. */
function makeWay(layers: Layers, boxes: readonly number[]): void {
  if (boxes.length === 0) return;
  const { rank, foot, rowPtr, order, pos, down, lower } = layers;
  const turns = turnsOf(layers);
  const joints = new Int32Array(layers.count);
  const side = new Int32Array(layers.count);
  const find = (v: number): number => {
    let at = v;
    for (; joints[at] !== at; at = joints[at]) joints[at] = joints[joints[at]];
    return at;
  };
  for (let round = 0; round < 2; round++) {
    for (const box of boxes) {
      if (!isCrossed(layers, box, turns)) continue;
      const first = rank[box];
      const last = rank[foot[box]];
      for (let at = rowPtr[first]; at < rowPtr[last + 1]; at++) {
        joints[order[at]] = order[at];
        side[order[at]] = 0;
      }
      for (let at = rowPtr[first]; at < rowPtr[last]; at++) {
        const v = order[at];
        if (layers.box[v] === box) continue;
        for (let j = down.ptr[v]; j < down.ptr[v + 1]; j++) joints[find(lower[down.items[j]])] = find(v);
      }
      for (const { a, b, above } of turns) {
        if (above >= first && above < last) joints[find(b)] = find(a);
      }
      for (let row = first; row <= last; row++) {
        const place = pos[partOf(layers, box, row)];
        for (let at = rowPtr[row]; at < rowPtr[row + 1]; at++) side[find(order[at])] += pos[order[at]] < place ? -1 : 1;
      }
      for (let row = first; row <= last; row++) {
        const vertices = Array.from(order.subarray(rowPtr[row], rowPtr[row + 1]));
        const part = partOf(layers, box, row);
        const isLeft = (v: number): boolean => v !== part && side[find(v)] < 0;
        const reordered = [...vertices.filter(isLeft), part, ...vertices.filter((v) => v !== part && !isLeft(v))];
        order.set(reordered, rowPtr[row]);
        reordered.forEach((v, at) => {
          pos[v] = at;
        });
      }
    }
  }
}

/** Sorts a row by the mean position of each vertex's neighbors above (or below); vertices without any stay. */
function sortRow(layers: Layers, row: number, downward: boolean, reverseTies: boolean): void {
  const { rowPtr, order, pos } = layers;
  const start = rowPtr[row];
  const size = rowPtr[row + 1] - start;
  if (size < 2) return;
  const rows = downward ? layers.up : layers.down;
  const neighbor = downward ? layers.upper : layers.lower;
  const port = downward ? layers.upperPort : layers.lowerPort;
  const slots: number[] = [];
  const entries: { v: number; mean: number; at: number }[] = [];
  for (let at = 0; at < size; at++) {
    const v = order[start + at];
    const degree = rows.ptr[v + 1] - rows.ptr[v];
    if (degree === 0) continue;
    let sum = 0;
    for (let j = rows.ptr[v]; j < rows.ptr[v + 1]; j++) {
      const s = rows.items[j];
      sum += pos[neighbor[s]] + port[s];
    }
    slots.push(at);
    entries.push({ v, mean: sum / degree, at: reverseTies ? -at : at });
  }
  entries.sort((a, b) => a.mean - b.mean || a.at - b.at);
  for (let i = 0; i < entries.length; i++) {
    order[start + slots[i]] = entries[i].v;
    pos[entries[i].v] = slots[i];
  }
}

/** Swaps neighbors in a row where that removes crossings. */
function swapNeighbors(layers: Layers): boolean {
  const { rowPtr, order, pos } = layers;
  let hasImproved = false;
  for (let row = 0; row < layers.rows; row++) {
    if (rowPtr[row + 1] - rowPtr[row] > 100) continue;
    for (let at = rowPtr[row]; at + 1 < rowPtr[row + 1]; at++) {
      const a = order[at];
      const b = order[at + 1];
      if (gainOf(layers, a, b) <= 0) continue;
      order[at] = b;
      order[at + 1] = a;
      pos[b]--;
      pos[a]++;
      hasImproved = true;
    }
  }
  return hasImproved;
}

/** Returns the crossings between the segments of neighbors a, b, less those if they were swapped. */
function gainOf(layers: Layers, a: number, b: number): number {
  const { up, down, upper, lower, upperPort, lowerPort } = layers;
  return gainBy(layers, up, upper, upperPort, a, b) + gainBy(layers, down, lower, lowerPort, a, b);
}

function gainBy(
  layers: Layers,
  { ptr, items }: Rows,
  neighbor: Int32Array,
  port: Float32Array,
  a: number,
  b: number,
): number {
  let gain = 0;
  for (let i = ptr[a]; i < ptr[a + 1]; i++) {
    const x = layers.pos[neighbor[items[i]]] + port[items[i]];
    for (let j = ptr[b]; j < ptr[b + 1]; j++) {
      const y = layers.pos[neighbor[items[j]]] + port[items[j]];
      if (x !== y) gain += Math.sign(x - y) * weigh(layers, items[i]) * weigh(layers, items[j]);
    }
  }
  return gain;
}

/** Returns the number of crossings in all rows, by weight: inversions, counted in a binary indexed tree. */
export function crossings(layers: Layers): number {
  const { rowPtr, order, pos, down, lower, upperPort, lowerPort } = layers;
  let total = 0;
  for (let row = 0; row + 1 < layers.rows; row++) {
    const width = rowPtr[row + 2] - rowPtr[row + 1];
    if (rowPtr[row + 1] - rowPtr[row] < 2 && width < 2) continue;
    const ends: { x: number; y: number; w: number }[] = [];
    for (let at = rowPtr[row]; at < rowPtr[row + 1]; at++) {
      const v = order[at];
      for (let j = down.ptr[v]; j < down.ptr[v + 1]; j++) {
        const s = down.items[j];
        ends.push({ x: pos[v] + upperPort[s], y: pos[lower[s]] + lowerPort[s], w: weigh(layers, s) });
      }
    }
    if (ends.length < 2) continue;
    ends.sort((p, q) => p.x - q.x || p.y - q.y);
    const ys = [...new Set(ends.map((end) => end.y))].sort((p, q) => p - q);
    const index = new Map(ys.map((y, i) => [y, i + 1]));
    const tree = new Int32Array(ys.length + 1);
    let weight = 0;
    for (const end of ends) {
      const at = index.get(end.y) as number;
      let notAfter = 0;
      for (let i = at; i > 0; i -= i & -i) notAfter += tree[i];
      total += end.w * (weight - notAfter);
      weight += end.w;
      for (let i = at; i <= ys.length; i += i & -i) tree[i] += end.w;
    }
  }
  return total;
}
