/**
 * Places the labels of tensors next to their lines, over no box and no other label, and over as few lines as possible.
 * A label that finds no room asks for more between two rows.
 */

import { itemsBy } from "../protocol/columns.ts";
import { type Graph, STUB } from "./graph.ts";
import type { Layers } from "./order.ts";

/** Top and bottom of every row. */
export interface Rows {
  readonly top: Float64Array;
  readonly bottom: Float64Array;
  /** height of the gap below the last row, which holds only tails */
  readonly below: number;
}

/** Placement before labels: boxes by their upper left corners, vertices and ports in x. */
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
  /** row → number of labels that found no room below it */
  readonly lacking: Uint16Array;
}

/** Pixels from a line to its label, and minimum pixels from a label to a box, a line and the ends of a gap. */
const SPACE = { beside: 7, box: 3, line: 2, start: 3, end: 5 } as const;
/** Pixels that a label may extend to the left of all boxes at no cost, and at most. */
export const OUTSIDE = { free: 4, most: 120 } as const;
/**
 * Cost of covering a line of another tensor, a line of its own, of a more distant row, and of a place to the left of
 * all boxes.
 */
const COST = { line: 1, own: 0.35, further: 0.3, outside: 0.6, order: 0.1 } as const;
/** Lines in a gap beyond which labels ignore them. */
const MANY = 400;
/** Maximum number of rows between a label and its source. */
const FAR = 6;

interface Room {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** The gap below a row. */
interface Gap {
  readonly high: number;
  readonly low: number;
  /** tall boxes that extend through it */
  readonly tall: readonly Room[];
  /** the lines in it are those of the segments first … last − 1 of their list */
  readonly first: number;
  readonly last: number;
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
    gaps.leave(row);
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

/** Returns the room of the name of a stub's tensor, above its tail, which ends at (x, end). */
export function nameRoom(graph: Graph, e: number, x: number, end: number, tail: number): Room {
  const left = x - STUB.lead;
  const bottom = end - tail - STUB.above;
  return { left, right: left + graph.nameWidth[e], top: bottom - graph.nameLength[e], bottom };
}

class Gaps {
  readonly #graph: Graph;
  readonly #layers: Layers;
  readonly #placed: Placed;
  /** segments by the row of their upper end, and the x of both ends */
  readonly #segments: Layers["up"];
  readonly #upperX: Float64Array;
  readonly #lowerX: Float64Array;
  readonly #known = new Map<number, Gap>();
  /** row → names and tails of the stubs that end at the row below */
  readonly #stubs: (Room[] | undefined)[] = [];

  constructor(graph: Graph, layers: Layers, placed: Placed) {
    this.#graph = graph;
    this.#layers = layers;
    this.#placed = placed;
    const { segments, segmentEdge, segmentSink, upper, lower, from, rank } = layers;
    const { x, outX, inX } = placed;
    const rowOf = new Int32Array(segments);
    this.#upperX = new Float64Array(segments);
    this.#lowerX = new Float64Array(segments);
    for (let s = 0; s < segments; s++) {
      const e = segmentEdge[s];
      const k = segmentSink[s];
      rowOf[s] = e < 0 ? -1 : rank[upper[s]];
      this.#upperX[s] = e >= 0 && upper[s] === from[e] ? outX[e] : x[upper[s]];
      this.#lowerX[s] = k >= 0 ? inX[k] : x[lower[s]];
    }
    this.#segments = itemsBy(rowOf, layers.rows);
    for (let e = 0; e < graph.source.length; e++) {
      for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
        if (placed.tails[k] === 0 || rank[layers.to[k]] === 0) continue;
        const row = rank[layers.to[k]];
        const end = placed.rows.top[row];
        const px = inX[k];
        const list = this.#stubs[row - 1] ?? [];
        if (layers.stub[k] === 1) list.push(nameRoom(graph, e, px, end, placed.tails[k]));
        list.push({ left: px - 4, right: px + 4, top: end - placed.tails[k], bottom: end });
        this.#stubs[row - 1] = list;
      }
    }
  }

  /** Takes the place where the label of a tensor covers the least; undefined if no place is free. */
  findRoom(e: number, first: number): Room | undefined {
    const { from, firstDummy } = this.#layers;
    const w = this.#graph.labelWidth[e];
    const half = this.#graph.labelLength[e] / 2;
    let best: Room | undefined;
    let least = Number.POSITIVE_INFINITY;
    let where = first;
    for (let row = first, v = from[e]; row < first + FAR; row++) {
      const gap = this.#gap(row);
      let cost = (row - first) * COST.further;
      this.#candidates(e, row, v, gap, (left, middle) => {
        const here = cost + (left < -OUTSIDE.free ? COST.outside : 0);
        if (left >= -OUTSIDE.most && middle + half <= gap.low - 1 && here < least) {
          const room = { left, right: left + w, top: middle - half, bottom: middle + half };
          const whole = here + this.#covered(e, room, gap, least - here);
          if (whole < least && this.#isFree(room, row, gap)) {
            least = whole;
            best = room;
            where = row;
          }
        }
        cost += COST.order;
      });
      if (least < COST.line) break;
      v = this.#below(v, e);
      if (v < firstDummy) break;
    }
    if (best === undefined) return undefined;
    this.#gap(where).taken.push(best);
    return best;
  }

  /** Drops the gaps above a row. */
  leave(row: number): void {
    this.#known.delete(row - 1);
  }

  /** Returns the dummy of a tensor in the next row, −1 if its line ends before. */
  #below(v: number, e: number): number {
    const { down, lower, segmentEdge, firstDummy } = this.#layers;
    for (let j = down.ptr[v]; j < down.ptr[v + 1]; j++) {
      const s = down.items[j];
      if (segmentEdge[s] === e && lower[s] >= firstDummy) return lower[s];
    }
    return -1;
  }

  /** Returns candidate places of a label in a gap, by left side and middle, best first. */
  #candidates(
    e: number,
    row: number,
    v: number,
    { high, low, first: begin, last: end }: Gap,
    at: (left: number, middle: number) => void,
  ): void {
    const { labelWidth, labelLength, source, height } = this.#graph;
    const { outX, x, y, rows } = this.#placed;
    const { segmentEdge } = this.#layers;
    const { items } = this.#segments;
    const w = labelWidth[e];
    const half = labelLength[e] / 2;
    const beside = (px: number, middle: number): void => {
      at(px + SPACE.beside, middle);
      at(px - SPACE.beside - w, middle);
    };
    const middle = (high + low) / 2;
    const begins = v === this.#layers.from[e];
    const px = begins ? outX[e] : x[v];
    const first = high + half + SPACE.start;
    const last = low - half - SPACE.end;
    const step = 2 * half + 2;
    let straight = -1;
    let bent = 0;
    for (let j = begin; j < end; j++) {
      if (segmentEdge[items[j]] !== e) continue;
      if (straight < 0 && Math.abs(this.#upperX[items[j]] - this.#lowerX[items[j]]) < 1) straight = items[j];
      else bent++;
    }
    if (straight >= 0) beside(px, middle);
    // below a shorter neighbor of a taller box, or next to the boxes of a row that the line passes
    const box = source[e];
    const start = Math.max(rows.top[row], begins && box >= 0 ? y[box] + height[box] : 0);
    if (high - start > half) beside(px, start + half + SPACE.start);
    if (straight < 0 && bent === 0) {
      // without a reader: as close to its tail as possible
      for (let tier = start + half + SPACE.start; tier <= last; tier += step) beside(px, tier);
      return;
    }
    if (first <= Math.max(last, middle)) beside(px, first);
    if (bent > 0 && first <= last) {
      for (let j = begin; j < end; j++) {
        const s = items[j];
        if (segmentEdge[s] !== e || s === straight) continue;
        beside(this.#lowerX[s], last);
        at((this.#upperX[s] + this.#lowerX[s]) / 2 - w / 2, middle);
      }
    }
    const lowest = bent === 0 ? last : middle;
    for (let tier = first + step; tier <= lowest; tier += step) beside(px, tier);
  }

  #gap(row: number): Gap {
    let gap = this.#known.get(row);
    if (gap === undefined) {
      const { top, bottom } = this.#placed.rows;
      const { ptr } = this.#segments;
      const high = bottom[row];
      const many = ptr[row + 1] - ptr[row] > MANY;
      gap = {
        high,
        low: row + 1 < this.#layers.rows ? top[row + 1] : high + this.#placed.rows.below,
        tall: this.#boxes(row, true),
        first: ptr[row],
        last: many ? ptr[row] : ptr[row + 1],
        taken: this.#stubs[row] ?? [],
      };
      this.#known.set(row, gap);
    }
    return gap;
  }

  /** Returns the boxes of a row, or only those that continue in the next. */
  #boxes(row: number, tall: boolean): Room[] {
    const { rowPtr, order, box, foot } = this.#layers;
    const { width, height } = this.#graph;
    const { x, y } = this.#placed;
    const found: Room[] = [];
    for (let at = rowPtr[row]; at < rowPtr[row + 1]; at++) {
      const v = order[at];
      const each = box[v];
      if (each < 0 || (tall && foot[each] === v)) continue;
      const left = x[v] - width[each] / 2;
      found.push({ left, right: left + width[each], top: y[each], bottom: y[each] + height[each] });
    }
    return found;
  }

  #isFree(room: Room, row: number, { high, tall, taken }: Gap): boolean {
    for (const other of taken) if (overlap(room, other, 4, 1)) return false;
    for (const box of room.top < high + SPACE.box - 1 ? this.#boxes(row, false) : tall) {
      if (overlap(room, box, SPACE.box, SPACE.box - 1)) return false;
    }
    return true;
  }

  /** Returns the cost of the lines that a label covers, up to `most`. */
  #covered(e: number, room: Room, { first, last, high, low }: Gap, most: number): number {
    const { items } = this.#segments;
    const { segmentEdge } = this.#layers;
    let cost = 0;
    for (let j = first; j < last && cost < most; j++) {
      const s = items[j];
      if (!meets(this.#upperX[s], this.#lowerX[s], room, high, low)) continue;
      cost += segmentEdge[s] === e ? COST.own : COST.line;
    }
    return cost;
  }
}

function overlap(a: Room, b: Room, across: number, along: number): boolean {
  return a.left < b.right + across && b.left < a.right + across && a.top < b.bottom + along && b.top < a.bottom + along;
}

/** Returns whether the curve of a line, from one x above to another below, passes through a label's room. */
function meets(from: number, to: number, room: Room, high: number, low: number): boolean {
  if (Math.max(from, to) <= room.left - SPACE.line || Math.min(from, to) >= room.right + SPACE.line) return false;
  const a = curve(from, to, (room.top - high) / (low - high));
  const b = curve(from, to, (room.bottom - high) / (low - high));
  return Math.max(a, b) > room.left - SPACE.line && Math.min(a, b) < room.right + SPACE.line;
}

function curve(from: number, to: number, part: number): number {
  const t = Math.max(0, Math.min(1, part));
  return from + (to - from) * t * t * (3 - 2 * t);
}
