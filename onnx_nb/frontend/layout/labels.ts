/**
 * Where the labels of tensors stand: beside their lines, over no box and no other label, and over as few lines as can
 * be. What finds no room asks for more of it between two rows.
 */

import { type Graph, STUB } from "./graph.ts";
import type { Layers } from "./order.ts";
import { group } from "./rank.ts";

/** Top and bottom of every row. */
export interface Rows {
  readonly top: Float64Array;
  readonly bottom: Float64Array;
}

/** What is placed before labels are: boxes from their left upper corners, vertices and ports in x. */
export interface Placed {
  readonly rows: Rows;
  readonly x: Float64Array;
  readonly y: Float64Array;
  readonly outX: Float64Array;
  readonly inX: Float64Array;
  /** sink → length of its tail, 0 where it has a line */
  readonly tails: Float64Array;
}

export interface Labels {
  /** hyperedge → least x and middle along the flow of its label; NaN for none */
  readonly x: Float64Array;
  readonly y: Float64Array;
  /** row → how many labels found no room below it */
  readonly lacking: Uint16Array;
}

/** Room below the last row, which no other limits. */
const BELOW = 38;
/** From a line to the label beside it, and least distances of a label from a box, a line, and the ends of a gap. */
const SPACE = { beside: 7, box: 3, line: 2, start: 3, end: 5 } as const;
/** A label may leave the scope's content by so much, into its padding. */
const OUTSIDE = 4;
/** What it costs to cover a line of another tensor, one of the own, and to stand in a further row. */
const COST = { line: 1, own: 0.35, further: 0.3, order: 0.1 } as const;
/** Between so many lines labels are placed without regard to them. */
const MANY = 400;
/** A label stands at most so many rows from its source. */
const FAR = 6;

interface Room {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** A line in the gap below a row, from its upper to its lower x. */
interface Span {
  readonly edge: number;
  readonly from: number;
  readonly to: number;
}

/** The gap below a row, with the boxes and lines of the row itself. */
interface Gap {
  readonly high: number;
  readonly low: number;
  readonly boxes: readonly Room[];
  readonly lines: readonly Span[];
  readonly taken: Room[];
}

export function placeLabels(graph: Graph, layers: Layers, placed: Placed): Labels {
  const { source, labelWidth } = graph;
  const { rank, from } = layers;
  const x = new Float64Array(source.length).fill(Number.NaN);
  const y = new Float64Array(source.length).fill(Number.NaN);
  const lacking = new Uint16Array(layers.rows);
  const gaps = new Gaps(graph, layers, placed);
  const byRow: number[][] = Array.from({ length: layers.rows }, () => []);
  for (let e = 0; e < source.length; e++) if (labelWidth[e] > 0 && from[e] >= 0) byRow[rank[from[e]]].push(e);
  byRow.forEach((edges, row) => {
    edges.sort((a, b) => placed.outX[a] - placed.outX[b] || a - b);
    for (const e of edges) {
      const room = gaps.findRoom(e, row);
      if (room === undefined) lacking[row]++;
      else {
        x[e] = room.left;
        y[e] = (room.top + room.bottom) / 2;
      }
    }
  });
  return { x, y, lacking };
}

/** The name of a stub's tensor stands above its tail, which ends at (x, end). */
export function nameRoom(graph: Graph, e: number, x: number, end: number, tail: number): Room {
  const left = x - STUB.lead;
  const bottom = end - tail - STUB.above;
  return { left, right: left + graph.nameWidth[e], top: bottom - graph.nameLength[e], bottom };
}

class Gaps {
  readonly #graph: Graph;
  readonly #layers: Layers;
  readonly #placed: Placed;
  readonly #segments: { readonly ptr: Uint32Array; readonly items: Uint32Array };
  readonly #known: (Gap | undefined)[] = [];
  /** row → names and tails of the stubs that end at the row below */
  readonly #stubs: (Room[] | undefined)[] = [];

  constructor(graph: Graph, layers: Layers, placed: Placed) {
    this.#graph = graph;
    this.#layers = layers;
    this.#placed = placed;
    const rowOf = Int32Array.from({ length: layers.segments }, (_, s) => layers.rank[layers.upper[s]]);
    this.#segments = group(rowOf, layers.rows);
    for (let e = 0; e < graph.source.length; e++) {
      for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
        if (placed.tails[k] === 0 || layers.to[k] < 0 || layers.rank[layers.to[k]] === 0) continue;
        const row = layers.rank[layers.to[k]];
        const end = placed.rows.top[row];
        const px = placed.inX[k];
        const list = this.#stubs[row - 1] ?? [];
        if (layers.stub[k] === 1) list.push(nameRoom(graph, e, px, end, placed.tails[k]));
        list.push({ left: px - 4, right: px + 4, top: end - placed.tails[k], bottom: end });
        this.#stubs[row - 1] = list;
      }
    }
  }

  /** Where the label of a tensor covers least, and takes that room; undefined if it is all taken. */
  findRoom(e: number, first: number): Room | undefined {
    let best: Room | undefined;
    let least = Number.POSITIVE_INFINITY;
    let where = first;
    const { from, firstDummy } = this.#layers;
    for (let row = first, v = from[e]; row < first + FAR; row++) {
      const gap = this.#gap(row);
      const further = (row - first) * COST.further;
      this.#candidates(e, row, v, gap).forEach((room, index) => {
        const cost = further + index * COST.order;
        if (cost >= least || !isFree(room, gap)) return;
        const whole = cost + covered(e, room, gap);
        if (whole >= least) return;
        least = whole;
        best = room;
        where = row;
      });
      if (least < COST.line) break;
      v = this.#below(v, e);
      if (v < firstDummy) break;
    }
    if (best !== undefined) this.#gap(where).taken.push(best);
    return best;
  }

  /** The dummy of a tensor in the next row, −1 if its line ends before. */
  #below(v: number, e: number): number {
    const { down, lower, segmentEdge, firstDummy } = this.#layers;
    for (let j = down.ptr[v]; j < down.ptr[v + 1]; j++) {
      const s = down.items[j];
      if (segmentEdge[s] === e && lower[s] >= firstDummy) return lower[s];
    }
    return -1;
  }

  #candidates(e: number, row: number, v: number, { high, low, lines }: Gap): Room[] {
    const graph = this.#graph;
    const { outX, x, y, rows } = this.#placed;
    const w = graph.labelWidth[e];
    const half = graph.labelLength[e] / 2;
    const found: Room[] = [];
    const at = (left: number, middle: number): void => {
      if (left < -OUTSIDE || middle + half > low - 1) return;
      found.push({ left, right: left + w, top: middle - half, bottom: middle + half });
    };
    const beside = (px: number, middle: number): void => {
      at(px + SPACE.beside, middle);
      at(px - SPACE.beside - w, middle);
    };
    const middle = (high + low) / 2;
    const begins = v === this.#layers.from[e];
    const px = begins ? outX[e] : x[v];
    const first = high + half + SPACE.start;
    const last = low - half - SPACE.end;
    const own = lines.filter((line) => line.edge === e);
    const straight = own.find((line) => Math.abs(line.from - line.to) < 1);
    if (straight !== undefined) beside(px, middle);
    // in the shade of a taller box, or beside the boxes of a row that is passed
    const box = graph.source[e];
    const start = Math.max(rows.top[row], begins && box >= 0 ? y[box] + graph.height[box] : 0);
    if (high - start > half) beside(px, start + half + SPACE.start);
    if (first <= Math.max(last, middle)) beside(px, first);
    for (const line of own) {
      if (line === straight || first > last) continue;
      beside(line.to, last);
      at((line.from + line.to) / 2 - w / 2, middle);
    }
    const step = 2 * half + 2;
    const lowest = straight !== undefined || own.length === 0 ? last : middle;
    for (let tier = first + step; tier <= lowest; tier += step) beside(px, tier);
    return found;
  }

  #gap(row: number): Gap {
    let gap = this.#known[row];
    if (gap === undefined) {
      const { top, bottom } = this.#placed.rows;
      const high = bottom[row];
      const low = row + 1 < this.#layers.rows ? top[row + 1] : high + BELOW;
      gap = { high, low, boxes: this.#boxes(row), lines: this.#lines(row), taken: this.#stubs[row] ?? [] };
      this.#known[row] = gap;
    }
    return gap;
  }

  #boxes(row: number): Room[] {
    const { rowPtr, order, box } = this.#layers;
    const { width, height } = this.#graph;
    const { x, y } = this.#placed;
    const found: Room[] = [];
    for (let at = rowPtr[row]; at < rowPtr[row + 1]; at++) {
      const each = box[order[at]];
      if (each < 0) continue;
      const left = x[each] - width[each] / 2;
      found.push({ left, right: left + width[each], top: y[each], bottom: y[each] + height[each] });
    }
    return found;
  }

  #lines(row: number): Span[] {
    const { segmentEdge, segmentSink, upper, lower, from } = this.#layers;
    const { ptr, items } = this.#segments;
    const { x, outX, inX } = this.#placed;
    const found: Span[] = [];
    if (ptr[row + 1] - ptr[row] > MANY) return found;
    for (let j = ptr[row]; j < ptr[row + 1]; j++) {
      const s = items[j];
      const edge = segmentEdge[s];
      if (edge < 0) continue;
      const k = segmentSink[s];
      found.push({
        edge,
        from: upper[s] === from[edge] ? outX[edge] : x[upper[s]],
        to: k >= 0 ? inX[k] : x[lower[s]],
      });
    }
    return found;
  }
}

function isFree(room: Room, { boxes, taken }: Gap): boolean {
  for (const box of boxes) if (overlap(room, box, SPACE.box, SPACE.box - 1)) return false;
  for (const other of taken) if (overlap(room, other, 4, 1)) return false;
  return true;
}

function overlap(a: Room, b: Room, across: number, along: number): boolean {
  return a.left < b.right + across && b.left < a.right + across && a.top < b.bottom + along && b.top < a.bottom + along;
}

/** What it costs that a label covers lines. */
function covered(e: number, room: Room, { lines, high, low }: Gap): number {
  let cost = 0;
  for (const line of lines) if (meets(line, room, high, low)) cost += line.edge === e ? COST.own : COST.line;
  return cost;
}

/** Whether the curve of a line passes through a label's room. */
function meets(line: Span, room: Room, high: number, low: number): boolean {
  const least = Math.min(line.from, line.to);
  const most = Math.max(line.from, line.to);
  if (most <= room.left - SPACE.line || least >= room.right + SPACE.line) return false;
  const at = (y: number): number => {
    const t = Math.max(0, Math.min(1, (y - high) / (low - high)));
    return line.from + (line.to - line.from) * t * t * (3 - 2 * t);
  };
  const a = at(room.top);
  const b = at(room.bottom);
  return Math.max(a, b) > room.left - SPACE.line && Math.min(a, b) < room.right + SPACE.line;
}
