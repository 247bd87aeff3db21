/**
 * Layered layout of one scope, after Sugiyama: rows (rank.ts), order within rows (order.ts), x with straight spines
 * (place.ts), labels (labels.ts), ports and lines. Deterministic; coordinates are px, flow runs down from y = 0.
 */

import { append, itemsBy, rowOf } from "../protocol/columns.ts";
import { type Graph, type Layout, PORTS, STUB } from "./graph.ts";
import { type LabelPlaces, nameRoom, OUTSIDE, type Placement, placeLabels, type RowExtents } from "./labels.ts";
import { crossedBoxes, type Layers, layer } from "./order.ts";
import { halfWidth, lowerOffset, type Places, place } from "./place.ts";
import { assignRanks, spansOf } from "./rank.ts";

export function layeredLayout(graph: Graph): Layout {
  const layers = inRows(graph);
  return route(graph, layers, place(graph, layers));
}

/** Assigns and orders rows. A tall box that lines would have to cross is put into one row, which becomes tall. */
function inRows(graph: Graph): Layers {
  const span = spansOf(graph);
  for (let attempt = 0; ; attempt++) {
    const layers = layer(graph, assignRanks(graph, span));
    const boxes = crossedBoxes(layers);
    if (boxes.length === 0) return layers;
    if (attempt === ATTEMPTS) span.fill(1);
    for (const box of boxes) span[box] = 1;
  }
}

const ATTEMPTS = 3;

/** Pixels between rows. */
const ROW_GAP = { plain: 18, beside: 13, most: 60 } as const;
/** Pixels: minimum distance of ports from each other and from the corners of their box, if the box is large enough. */
const PORT = { gap: 12, corner: 10, least: 6 } as const;
/** Pixels added between rows in each round in which labels find no room. */
const EXTRA_ROOM = { rounds: 5, row: 14, most: 200 } as const;
/** Boxes beyond which a scope is not laid out again for a label. */
const MAX_BOXES_FOR_RELAYOUT = 4000;

export function route(graph: Graph, layers: Layers, { x, entryWay, exitWay }: Places): Layout {
  const { outX, inX } = placePorts(graph, layers, x);
  const tails = stubTails(graph, layers, inX);
  const gap = gapsOf(graph, layers, outX, inX, x, tails);
  let placement: Placement;
  let end: number;
  let labels: LabelPlaces;
  for (let round = 1; ; round++) {
    const rows = stackRows(graph, layers, gap, tails);
    end = rows.end;
    placement = { rows, x, y: placeBoxes(graph, layers, rows), outX, inX, tails };
    labels = placeLabels(graph, layers, placement);
    if (round === EXTRA_ROOM.rounds || layers.count > MAX_BOXES_FOR_RELAYOUT || !makeRoom(gap, labels.lacking)) break;
  }
  const { y } = placement;
  // room for a label to the left of all boxes
  const minX = labels.x.reduce((left, at) => (at < left ? at : left), -OUTSIDE.free);
  const shift = Math.ceil(-OUTSIDE.free - minX);
  if (shift > 0)
    for (const column of [x, outX, inX, labels.x]) for (let i = 0; i < column.length; i++) column[i] += shift;
  const lines = drawLines(graph, layers, placement, end);
  let width = 0;
  const left = new Float64Array(layers.boxes);
  for (let v = 0; v < layers.count; v++) {
    width = Math.max(width, x[v] + halfWidth(graph, layers, v));
    if (v < layers.boxes) left[v] = x[v] - graph.width[v] / 2;
  }
  for (let e = 0; e < graph.source.length; e++) {
    if (!Number.isNaN(labels.x[e])) {
      width = Math.max(width, labels.x[e] + graph.labelWidth[e]);
      end = Math.max(end, labels.y[e] + graph.labelLength[e] / 2);
    }
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      if (layers.stub[k] === 1) width = Math.max(width, nameRoom(graph, e, inX[k], 0, 0).right);
    }
  }
  return { width, height: end, x: left, y, outX, inX, entryWay, exitWay, ...lines, labelX: labels.x, labelY: labels.y };
}

/** Adds height between rows where labels found no room; returns false if all labels fit. */
function makeRoom(gap: Float64Array, lacking: Uint16Array): boolean {
  let grew = false;
  lacking.forEach((count, row) => {
    if (count === 0 || gap[row] >= EXTRA_ROOM.most) return;
    gap[row] += EXTRA_ROOM.row * Math.ceil(count / 2);
    grew = true;
  });
  return grew;
}

function placeBoxes(graph: Graph, layers: Layers, { top, bottom, height }: StackedRows): Float64Array {
  return Float64Array.from({ length: layers.boxes }, (_, box) => {
    const row = layers.rank[box];
    const foot = layers.foot[box];
    const room = (foot === box ? height[row] : bottom[layers.rank[foot]] - top[row]) - graph.height[box];
    // next to a very tall box, a box stays near its source
    return top[row] + (room > 120 ? 0 : Math.round(room / 2));
  });
}

/** Returns the length of each stub's tail: of close ports, tails grow from right to left, and none crosses a name. */
function stubTails(graph: Graph, layers: Layers, inX: Float64Array): Float64Array {
  const tails = new Float64Array(graph.sink.length);
  const stubs = new Map<number, { k: number; e: number }[]>();
  for (let e = 0; e < graph.source.length; e++) {
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      if (layers.stub[k] === 0) continue;
      tails[k] = STUB.length;
      append(stubs, layers.rank[layers.to[k]], { k, e });
    }
  }
  for (const row of stubs.values()) {
    row.sort((a, b) => inX[b.k] - inX[a.k] || b.k - a.k);
    row.forEach(({ k, e }, index) => {
      const { left, right } = nameRoom(graph, e, inX[k], 0, 0);
      // only the nearest names can collide; each starts at least as far left as the one before
      for (let i = Math.max(0, index - NEIGHBORS); i < index; i++) {
        const neighbor = row[i];
        if (layers.stub[neighbor.k] === 2) continue;
        const room = nameRoom(graph, neighbor.e, inX[neighbor.k], 0, tails[neighbor.k]);
        if (left < room.right - 0.5 && room.left < right - 0.5) tails[k] = Math.max(tails[k], 2 - room.top);
      }
      if (tails[k] <= STUB.most) return;
      tails[k] = STUB.length;
      layers.stub[k] = 2;
    });
  }
  return tails;
}

/** Stubs to the right of a stub that its name can reach. */
const NEIGHBORS = 12;

/** Ports on a box keep their order and are directly below (above) their neighbors where possible. */
function placePorts(graph: Graph, layers: Layers, x: Float64Array): { outX: Float64Array; inX: Float64Array } {
  const { source, sink, ports } = graph;
  const boxes = layers.boxes;
  const outX = new Float64Array(source.length).fill(Number.NaN);
  const inX = new Float64Array(sink.length);
  const targetX = new Float64Array(Math.max(source.length, sink.length));

  const spread = (
    keys: Int32Array,
    slots: Int32Array,
    offsets: Float64Array,
    result: Float64Array,
    slack: number,
  ): void => {
    const rows = itemsBy(keys, boxes);
    for (let box = 0; box < boxes; box++) {
      const members = Array.from(rowOf(rows, box));
      if (members.length === 0) continue;
      const left = x[box] - graph.width[box] / 2;
      if (ports[box] === PORTS.FIXED) {
        for (const member of members) result[member] = left + offsets[member];
        continue;
      }
      if (ports[box] === PORTS.ORDERED) members.sort((a, b) => slots[a] - slots[b]);
      else members.sort((a, b) => targetX[a] - targetX[b] || slots[a] - slots[b]);
      const spare = (graph.width[box] - PORT.gap * (members.length - 1)) / 2;
      const corner = Math.min(PORT.corner, Math.max(PORT.least, spare));
      const room = graph.width[box] - 2 * corner;
      if (members.length === 1) {
        const off = targetX[members[0]] - x[box];
        result[members[0]] = x[box] + (Math.abs(off) <= (room / 2) * slack ? off : 0);
        continue;
      }
      const gap = Math.min(PORT.gap, room / (members.length - 1));
      const isStraight = members.map((member) => Math.abs(targetX[member] - x[box]) <= room / 2);
      const places = members.map((member, index) =>
        isStraight[index] ? targetX[member] : left + (graph.width[box] * (index + 1)) / (members.length + 1),
      );
      separate(places, isStraight, gap, left + corner, left + graph.width[box] - corner);
      members.forEach((member, index) => {
        result[member] = places[index];
      });
    }
  };

  // out of a box: above the readers of the tensor
  const sum = new Float64Array(source.length);
  const ends = new Float64Array(source.length);
  for (let s = 0; s < layers.segments; s++) {
    const e = layers.segmentEdge[s];
    if (layers.upper[s] !== layers.from[e]) continue;
    sum[e] += x[layers.lower[s]] + lowerOffset(graph, layers, s);
    ends[e]++;
  }
  for (let e = 0; e < source.length; e++) {
    // a single port leaves the middle only to make its line straight
    if (ends[e] > 1 && source[e] >= 0) targetX[e] = x[source[e]];
    else targetX[e] = ends[e] === 0 ? Number.POSITIVE_INFINITY : sum[e] / ends[e];
  }
  spread(source, graph.outSlot, graph.outOffset, outX, 0.6);
  for (let e = 0; e < source.length; e++) if (source[e] === -1) outX[e] = x[layers.from[e]];

  for (let e = 0; e < source.length; e++) {
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      const vertexAbove = layers.above[k];
      const lane = layers.lane[k];
      if (vertexAbove >= 0) targetX[k] = vertexAbove === layers.from[e] ? outX[e] : x[vertexAbove];
      else if (lane >= 0) targetX[k] = x[lane];
      else targetX[k] = Number.POSITIVE_INFINITY;
    }
  }
  spread(sink, graph.inSlot, graph.inOffset, inX, 0.7);
  for (let k = 0; k < sink.length; k++) if (sink[k] < 0) inX[k] = x[layers.to[k]];
  return { outX, inX };
}

/** Moves positions as little as possible until they are `gap` apart within [low, high]; straight lines move last. */
function separate(places: number[], isStraight: readonly boolean[], gap: number, low: number, high: number): void {
  const count = places.length;
  const middle = places.findIndex((place, i) => isStraight[i] && Math.abs(place - (low + high) / 2) < 0.5);
  if (middle >= 0 && places[middle] - middle * gap >= low && places[middle] + (count - 1 - middle) * gap <= high) {
    // the spine runs through the middle of the box: the others make room for it
    for (let i = middle + 1; i < count; i++) {
      places[i] = Math.min(high - (count - 1 - i) * gap, Math.max(places[i], places[i - 1] + gap));
    }
    for (let i = middle - 1; i >= 0; i--) places[i] = Math.max(low + i * gap, Math.min(places[i], places[i + 1] - gap));
    return;
  }
  for (let i = 0; i < count; i++) {
    if (isStraight[i]) continue;
    const next = isStraight.indexOf(true, i);
    const min = i > 0 ? places[i - 1] + gap : low;
    const max = next < 0 ? high - (count - 1 - i) * gap : places[next] - (next - i) * gap;
    places[i] = Math.max(min, Math.min(max, places[i]));
  }
  const right = places.slice();
  const left = places.slice();
  for (let i = 0; i < count; i++) right[i] = Math.max(right[i], low + i * gap, i > 0 ? right[i - 1] + gap : low);
  for (let i = count - 1; i >= 0; i--) {
    left[i] = Math.min(left[i], high - (count - 1 - i) * gap, i + 1 < count ? left[i + 1] - gap : high);
  }
  for (let i = 0; i < count; i++) places[i] = (right[i] + left[i]) / 2;
  // the mean keeps the gaps but may leave the box where only one side was bounded
  for (let i = 0; i < count; i++) places[i] = Math.max(places[i], i > 0 ? places[i - 1] + gap : low);
  for (let i = count - 1; i >= 0; i--) places[i] = Math.min(places[i], i + 1 < count ? places[i + 1] - gap : high);
}

interface StackedRows extends RowExtents {
  /** height of the boxes in this row only */
  readonly height: Float64Array;
  /** y where the scope ends */
  readonly end: number;
}

/** Returns the heights between the rows, without the space that tall boxes need. */
function gapsOf(
  graph: Graph,
  layers: Layers,
  outX: Float64Array,
  inX: Float64Array,
  x: Float64Array,
  tails: Float64Array,
): Float64Array {
  const gap = new Float64Array(layers.rows).fill(ROW_GAP.plain);
  const widen = (row: number, height: number): void => {
    if (row >= 0) gap[row] = Math.max(gap[row], height);
  };
  for (let e = 0; e < graph.source.length; e++) {
    if (layers.from[e] >= 0 && graph.labelWidth[e] > 0)
      widen(layers.rank[layers.from[e]], ROW_GAP.beside + graph.labelLength[e]);
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      if (layers.stub[k]) widen(layers.rank[layers.to[k]] - 1, stubHeight(graph, e, tails[k]));
      if (layers.lane[k] >= 0) {
        widen(layers.rank[layers.lane[k]] - 1, ROW_GAP.plain + 14);
        widen(layers.rank[layers.from[e]], ROW_GAP.plain + 14);
      }
    }
  }
  // long bends need height to stay legible
  for (let s = 0; s < layers.segments; s++) {
    if (layers.segmentEdge[s] < 0) continue;
    const from =
      layers.upper[s] === layers.from[layers.segmentEdge[s]] ? outX[layers.segmentEdge[s]] : x[layers.upper[s]];
    const to = layers.segmentSink[s] >= 0 ? inX[layers.segmentSink[s]] : x[layers.lower[s]];
    widen(layers.rank[layers.upper[s]], Math.min(ROW_GAP.most, ROW_GAP.plain + Math.abs(to - from) / 14));
  }
  return gap.map(Math.round);
}

/** Pixels that a stub with its name needs above its box. */
function stubHeight(graph: Graph, e: number, tail: number): number {
  return Math.max(ROW_GAP.plain, tail + STUB.above + graph.nameLength[e] + 6);
}

function stackRows(graph: Graph, layers: Layers, gaps: Float64Array, tails: Float64Array): StackedRows {
  const gap = gaps.slice();
  const height = new Float64Array(layers.rows);
  const tallBoxes: number[][] = Array.from({ length: layers.rows }, () => []); // by their last row
  const extra = new Float64Array(layers.rows);
  for (let box = 0; box < layers.boxes; box++) {
    const row = layers.rank[layers.foot[box]];
    if (layers.foot[box] === box) height[row] = Math.max(height[row], graph.height[box]);
    else tallBoxes[row].push(box);
  }
  const lines = new Int32Array(layers.rows); // lines in the gap below a row, without lines of tall boxes
  for (let s = 0; s < layers.segments; s++) {
    const box = layers.box[layers.upper[s]];
    if (box < 0 || layers.foot[box] === box) lines[layers.rank[layers.upper[s]]]++;
  }
  const top = new Float64Array(layers.rows);
  const bottom = new Float64Array(layers.rows);
  // stubs and backward edges of the first row need room above it, tails of the last one below
  let at = 0;
  let below = 0;
  for (let e = 0; e < graph.source.length; e++) {
    const last = layers.from[e] >= 0 && layers.rank[layers.from[e]] === layers.rows - 1;
    if (last && graph.ptr[e] === graph.ptr[e + 1]) below = Math.max(below, ROW_GAP.plain, graph.labelLength[e] + 6);
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      const back = layers.lane[k] >= 0;
      if (last && back) below = Math.max(below, ROW_GAP.plain);
      if (layers.to[k] < 0 || layers.rank[layers.to[k]] > 0) continue;
      if (layers.stub[k]) at = Math.max(at, stubHeight(graph, e, tails[k]));
      else if (back) at = Math.max(at, ROW_GAP.plain);
    }
  }
  const stack = (first: number, last: number): void => {
    for (let row = first; row <= last; row++) {
      if (row > 0) at = bottom[row - 1] + gap[row - 1];
      top[row] = at;
      bottom[row] = at + height[row] + extra[row];
    }
  };
  for (let row = 0; row < layers.rows; row++) {
    stack(row, row);
    for (const box of tallBoxes[row]) {
      const shortfall = graph.height[box] - (bottom[row] - top[layers.rank[box]]);
      if (shortfall <= 0) continue;
      // the rows next to a tall box move apart where the fewest lines become longer
      let between = row;
      for (let above = layers.rank[box]; above < row; above++) if (lines[above] < lines[between]) between = above;
      if (between === row) extra[row] += shortfall;
      else gap[between] += shortfall;
      stack(Math.min(between + 1, row), row);
    }
  }
  return {
    top,
    bottom,
    height,
    below: gap[layers.rows - 1] + 14,
    end: layers.rows > 0 ? bottom[layers.rows - 1] + below : 0,
  };
}

function drawLines(
  graph: Graph,
  layers: Layers,
  { rows, x, y, outX, inX, tails }: Placement,
  end: number,
): Pick<Layout, "linePtr" | "line" | "stub" | "tail"> {
  const { top, bottom } = rows;
  const { source, sink, ptr } = graph;
  const linePtr = new Uint32Array(sink.length + 1);
  const points: number[] = [];
  const tail = new Uint8Array(source.length);
  const way: number[] = []; // vertices of a line, from below
  const addPoint = (px: number, py: number, begin: number): void => {
    const end = points.length;
    // the middle of three points in a vertical line is redundant
    if (end - begin >= 4 && points[end - 2] === px && points[end - 4] === px) {
      points[end - 1] = py;
      return;
    }
    if (end - begin >= 2 && points[end - 2] === px && points[end - 1] === py) return;
    points.push(px, py);
  };
  for (let e = 0; e < source.length; e++) {
    const from = source[e];
    if (from >= 0 && ptr[e] === ptr[e + 1]) tail[e] = 1;
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      const begin = points.length;
      const to = sink[k];
      const endY = to >= 0 ? y[to] : end;
      if (layers.stub[k]) {
        points.push(inX[k], endY - tails[k], inX[k], endY);
        if (layers.from[e] >= 0) tail[e] = 1;
      } else if (layers.from[e] >= 0) {
        const startRow = layers.rank[layers.from[e]];
        addPoint(outX[e], from >= 0 ? y[from] + graph.height[from] : 0, begin);
        if (from >= 0) addPoint(outX[e], bottom[startRow], begin);
        if (layers.lane[k] >= 0) {
          const lane = layers.lane[k];
          const last = lane + startRow - layers.rank[lane];
          addPoint(outX[e], bottom[startRow] + 10, begin);
          addPoint(x[last], bottom[startRow] + 10, begin);
          for (let v = last; v >= lane; v--) {
            addPoint(x[v], bottom[layers.rank[v]], begin);
            addPoint(x[v], top[layers.rank[v]], begin);
          }
          addPoint(x[lane], top[layers.rank[lane]] - 10, begin);
          addPoint(inX[k], top[layers.rank[lane]] - 10, begin);
        } else {
          way.length = 0;
          for (let v = layers.above[k]; v >= layers.firstDummy; v = layers.dummyAbove[v - layers.firstDummy])
            way.push(v);
          for (let i = way.length - 1; i >= 0; i--) {
            addPoint(x[way[i]], top[layers.rank[way[i]]], begin);
            addPoint(x[way[i]], bottom[layers.rank[way[i]]], begin);
          }
          addPoint(inX[k], to >= 0 ? top[layers.rank[to]] : top[layers.rows - 1], begin);
        }
        addPoint(inX[k], endY, begin);
      }
      linePtr[k + 1] = points.length / 2;
    }
  }
  return { linePtr, line: Float32Array.from(points), stub: layers.stub, tail };
}
