/**
 * Places the labels of tensors next to their lines, over no box and no other label, and over as few lines as possible.
 * A label that finds no room asks for more between two rows.
 */

import { append, itemsBy } from "../protocol/columns.ts";
import { type Graph, STUB } from "./graph.ts";
import type { Layers } from "./order.ts";

/** Top and bottom of every row. */
export interface RowExtents {
  readonly top: Float64Array;
  readonly bottom: Float64Array;
  /** height of the gap below the last row, which holds only tails */
  readonly below: number;
}

/** Placement before labels: boxes by their upper left corners, vertices and ports in x. */
export interface Placement {
  readonly rows: RowExtents;
  readonly x: Float64Array;
  readonly y: Float64Array;
  readonly outX: Float64Array;
  readonly inX: Float64Array;
  /** sink → length of its tail, 0 where it has a line */
  readonly tails: Float64Array;
}

export interface LabelPlaces {
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
/** Cost of covering a line of another tensor or its own, of a more distant row, and of a place left of all boxes. */
const COST = { line: 1, own: 0.35, further: 0.3, outside: 0.6, order: 0.1 } as const;
/** Lines in a gap beyond which labels ignore them. */
const MAX_LINES = 400;
/** Maximum number of rows between a label and its source. */
const MAX_ROW_DISTANCE = 6;

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
  readonly tallBoxes: readonly Room[];
  /** the lines in it are the segments first … last − 1 of the list */
  readonly first: number;
  readonly last: number;
  readonly labelRooms: Room[];
}

export function placeLabels(graph: Graph, layers: Layers, placement: Placement): LabelPlaces {
  const { source, labelWidth } = graph;
  const { rank, from } = layers;
  const x = new Float64Array(source.length).fill(Number.NaN);
  const y = new Float64Array(source.length).fill(Number.NaN);
  const lacking = new Uint16Array(layers.rows);
  const gaps = new Gaps(graph, layers, placement);
  const byRow: number[][] = Array.from({ length: layers.rows }, () => []);
  for (let e = 0; e < source.length; e++) if (labelWidth[e] > 0 && from[e] >= 0) byRow[rank[from[e]]].push(e);
  byRow.forEach((edges, row) => {
    gaps.leave(row);
    edges.sort((a, b) => placement.outX[a] - placement.outX[b] || a - b);
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
  readonly #placement: Placement;
  /** segments by the row of their upper end, and the x of both ends */
  readonly #segments: Layers["up"];
  readonly #upperX: Float64Array;
  readonly #lowerX: Float64Array;
  readonly #gaps = new Map<number, Gap>();
  /** row → names and tails of the stubs that end at the row below */
  readonly #stubs = new Map<number, Room[]>();

  constructor(graph: Graph, layers: Layers, placement: Placement) {
    this.#graph = graph;
    this.#layers = layers;
    this.#placement = placement;
    const { segments, segmentEdge, segmentSink, upper, lower, from, rank } = layers;
    const { x, outX, inX } = placement;
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
        if (placement.tails[k] === 0 || rank[layers.to[k]] === 0) continue;
        const row = rank[layers.to[k]];
        const end = placement.rows.top[row];
        const px = inX[k];
        const tail = { left: px - 4, right: px + 4, top: end - placement.tails[k], bottom: end };
        if (layers.stub[k] === 1) append(this.#stubs, row - 1, nameRoom(graph, e, px, end, placement.tails[k]));
        append(this.#stubs, row - 1, tail);
      }
    }
  }

  /** Takes the place where the label of a tensor covers the least; undefined if no place is free. */
  findRoom(e: number, first: number): Room | undefined {
    const { from, firstDummy } = this.#layers;
    const w = this.#graph.labelWidth[e];
    const half = this.#graph.labelLength[e] / 2;
    let bestRoom: Room | undefined;
    let minCost = Number.POSITIVE_INFINITY;
    let where = first;
    for (let row = first, v = from[e]; row < first + MAX_ROW_DISTANCE; row++) {
      const gap = this.#gap(row);
      let cost = (row - first) * COST.further;
      this.#candidates(e, row, v, gap, (left, middle) => {
        const placeCost = cost + (left < -OUTSIDE.free ? COST.outside : 0);
        if (left >= -OUTSIDE.most && middle + half <= gap.low - 1 && placeCost < minCost) {
          const room = { left, right: left + w, top: middle - half, bottom: middle + half };
          const totalCost = placeCost + this.#coverCost(e, room, gap, minCost - placeCost);
          if (totalCost < minCost && this.#fits(room, row, gap)) {
            minCost = totalCost;
            bestRoom = room;
            where = row;
          }
        }
        cost += COST.order;
      });
      if (minCost < COST.line) break;
      v = this.#below(v, e);
      if (v < firstDummy) break;
    }
    if (bestRoom === undefined) return undefined;
    this.#gap(where).labelRooms.push(bestRoom);
    return bestRoom;
  }

  /** Drops the gaps above a row. */
  leave(row: number): void {
    this.#gaps.delete(row - 1);
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
    const { outX, x, y, rows } = this.#placement;
    const { segmentEdge } = this.#layers;
    const { items } = this.#segments;
    const w = labelWidth[e];
    const half = labelLength[e] / 2;
    const tryBeside = (px: number, middle: number): void => {
      at(px + SPACE.beside, middle);
      at(px - SPACE.beside - w, middle);
    };
    const middle = (high + low) / 2;
    const begins = v === this.#layers.from[e];
    const px = begins ? outX[e] : x[v];
    const first = high + half + SPACE.start;
    const last = low - half - SPACE.end;
    const step = 2 * half + 2;
    let straightSegment = -1;
    let bends = 0;
    for (let j = begin; j < end; j++) {
      if (segmentEdge[items[j]] !== e) continue;
      if (straightSegment < 0 && Math.abs(this.#upperX[items[j]] - this.#lowerX[items[j]]) < 1)
        straightSegment = items[j];
      else bends++;
    }
    if (straightSegment >= 0) tryBeside(px, middle);
    // below a shorter neighbor of a taller box, or next to the boxes of a row that the line passes
    const box = source[e];
    const start = Math.max(rows.top[row], begins && box >= 0 ? y[box] + height[box] : 0);
    if (high - start > half) tryBeside(px, start + half + SPACE.start);
    if (straightSegment < 0 && bends === 0) {
      // without a reader: as close to its tail as possible
      for (let tier = start + half + SPACE.start; tier <= last; tier += step) tryBeside(px, tier);
      return;
    }
    if (first <= Math.max(last, middle)) tryBeside(px, first);
    if (bends > 0 && first <= last) {
      for (let j = begin; j < end; j++) {
        const s = items[j];
        if (segmentEdge[s] !== e || s === straightSegment) continue;
        tryBeside(this.#lowerX[s], last);
        at((this.#upperX[s] + this.#lowerX[s]) / 2 - w / 2, middle);
      }
    }
    const lastTier = bends === 0 ? last : middle;
    for (let tier = first + step; tier <= lastTier; tier += step) tryBeside(px, tier);
  }

  #gap(row: number): Gap {
    let gap = this.#gaps.get(row);
    if (gap === undefined) {
      const { top, bottom } = this.#placement.rows;
      const { ptr } = this.#segments;
      const high = bottom[row];
      const isCrowded = ptr[row + 1] - ptr[row] > MAX_LINES;
      gap = {
        high,
        low: row + 1 < this.#layers.rows ? top[row + 1] : high + this.#placement.rows.below,
        tallBoxes: this.#boxes(row, true),
        first: ptr[row],
        last: isCrowded ? ptr[row] : ptr[row + 1],
        labelRooms: this.#stubs.get(row) ?? [],
      };
      this.#gaps.set(row, gap);
    }
    return gap;
  }

  /** Returns the boxes of a row, or only those that continue in the next. */
  #boxes(row: number, tallOnly: boolean): Room[] {
    const { rowPtr, order, box, foot } = this.#layers;
    const { width, height } = this.#graph;
    const { x, y } = this.#placement;
    const rooms: Room[] = [];
    for (let at = rowPtr[row]; at < rowPtr[row + 1]; at++) {
      const v = order[at];
      const index = box[v];
      if (index < 0 || (tallOnly && foot[index] === v)) continue;
      const left = x[v] - width[index] / 2;
      rooms.push({ left, right: left + width[index], top: y[index], bottom: y[index] + height[index] });
    }
    return rooms;
  }

  #fits(room: Room, row: number, { high, tallBoxes, labelRooms }: Gap): boolean {
    for (const obstacle of labelRooms) if (overlap(room, obstacle, 4, 1)) return false;
    for (const box of room.top < high + SPACE.box - 1 ? this.#boxes(row, false) : tallBoxes) {
      if (overlap(room, box, SPACE.box, SPACE.box - 1)) return false;
    }
    return true;
  }

  /** Returns the cost of the lines that a label covers, up to `most`. */
  #coverCost(e: number, room: Room, { first, last, high, low }: Gap, limit: number): number {
    const { items } = this.#segments;
    const { segmentEdge } = this.#layers;
    let cost = 0;
    for (let j = first; j < last && cost < limit; j++) {
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
