/**
 * From places in rows to what is drawn: ports slide to where lines stay straight, rows get their heights, lines run
 * from port to port (upright through the rows, bent only between them, where no box is), labels find free room.
 */

import { type Graph, type Layout, PORTS, STUB } from "./graph.ts";
import type { Layers } from "./order.ts";
import { halfWidth, type Places } from "./place.ts";
import { group } from "./rank.ts";

/** Height between rows. */
const ROW_GAP = { plain: 24, beside: 25, most: 72 } as const;
/** Least distance of ports from each other and from the corners of their box. */
const PORT = { gap: 12, corner: 10 } as const;
const LABEL = { beside: 7 } as const;

export function route(graph: Graph, layers: Layers, { x, entryWay, exitWay }: Places): Layout {
  const { outX, inX } = placePorts(graph, layers, x);
  const rows = stackRows(graph, layers, outX, inX, x);
  const y = new Float64Array(layers.boxes);
  for (let box = 0; box < layers.boxes; box++) {
    const row = layers.rank[box];
    const height = rows.bottom[row] - rows.top[row];
    // beside something very tall a box stays near its source
    const room = height - graph.height[box];
    y[box] = rows.top[row] + (room > 120 ? 0 : Math.round(room / 2));
  }
  const lines = drawLines(graph, layers, x, y, outX, inX, rows);
  const labels = placeLabels(graph, layers, x, y, outX, inX, rows, lines.stub);
  let width = 0;
  const left = new Float64Array(layers.boxes);
  for (let v = 0; v < layers.count; v++) {
    width = Math.max(width, x[v] + halfWidth(graph, layers, v));
    if (v < layers.boxes) left[v] = x[v] - graph.width[v] / 2;
  }
  for (let e = 0; e < graph.source.length; e++) {
    if (!Number.isNaN(labels.x[e])) width = Math.max(width, labels.x[e] + graph.labelWidth[e]);
  }
  return {
    width,
    height: rows.bottom[layers.rows - 1],
    x: left,
    y,
    outX,
    inX,
    entryWay,
    exitWay,
    ...lines,
    labelX: labels.x,
    labelY: labels.y,
  };
}

/** Ports on a box keep their order and stand right below (above) what they are joined to where they can. */
function placePorts(graph: Graph, layers: Layers, x: Float64Array): { outX: Float64Array; inX: Float64Array } {
  const { source, sink, ports } = graph;
  const boxes = layers.boxes;
  const outX = new Float64Array(source.length).fill(Number.NaN);
  const inX = new Float64Array(sink.length);
  const wanted = new Float64Array(Math.max(source.length, sink.length));

  const spread = (
    keys: Int32Array,
    slots: Int32Array,
    offsets: Float64Array,
    result: Float64Array,
    slack: number,
  ): void => {
    const rows = group(keys, boxes);
    for (let box = 0; box < boxes; box++) {
      const members = Array.from(rows.items.subarray(rows.ptr[box], rows.ptr[box + 1]));
      if (members.length === 0) continue;
      const left = x[box] - graph.width[box] / 2;
      if (ports[box] === PORTS.FIXED) {
        for (const each of members) result[each] = left + offsets[each];
        continue;
      }
      if (ports[box] === PORTS.ORDERED) members.sort((a, b) => slots[a] - slots[b]);
      else members.sort((a, b) => wanted[a] - wanted[b] || slots[a] - slots[b]);
      const room = graph.width[box] - 2 * PORT.corner;
      if (members.length === 1) {
        const off = wanted[members[0]] - x[box];
        result[members[0]] = x[box] + (Math.abs(off) <= (room / 2) * slack ? off : 0);
        continue;
      }
      const gap = Math.min(PORT.gap, room / (members.length - 1));
      const straight = members.map((each) => Math.abs(wanted[each] - x[box]) <= room / 2);
      const places = members.map((each, index) =>
        straight[index] ? wanted[each] : left + (graph.width[box] * (index + 1)) / (members.length + 1),
      );
      apart(places, straight, gap, left + PORT.corner, left + graph.width[box] - PORT.corner);
      members.forEach((each, index) => {
        result[each] = places[index];
      });
    }
  };

  // out of a box: above what the tensor goes to
  const goes = new Float64Array(source.length).fill(Number.NaN);
  const ends = new Float64Array(source.length);
  for (let s = 0; s < layers.segments; s++) {
    const e = layers.segmentEdge[s];
    if (layers.upper[s] !== layers.from[e]) continue;
    const at = lowerX(graph, layers, x, s);
    goes[e] = Number.isNaN(goes[e]) ? at : goes[e] + at;
    ends[e]++;
  }
  for (let e = 0; e < source.length; e++) {
    wanted[e] = Number.isNaN(goes[e]) ? Number.POSITIVE_INFINITY : goes[e] / ends[e];
  }
  // a single port leaves the middle only for a line that it makes straight
  for (let e = 0; e < source.length; e++) if (ends[e] > 1 && source[e] >= 0) wanted[e] = x[source[e]];
  spread(source, graph.outSlot, graph.outOffset, outX, 0.6);
  for (let e = 0; e < source.length; e++) if (source[e] === -1) outX[e] = x[layers.from[e]];

  for (let e = 0; e < source.length; e++) {
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      const over = layers.above[k];
      const lane = layers.lane[k];
      if (over >= 0) wanted[k] = over === layers.from[e] ? outX[e] : x[over];
      else if (lane >= 0) wanted[k] = x[lane];
      else wanted[k] = Number.POSITIVE_INFINITY;
    }
  }
  spread(sink, graph.inSlot, graph.inOffset, inX, 0.7);
  for (let k = 0; k < sink.length; k++) if (sink[k] < 0) inX[k] = x[layers.to[k]];
  return { outX, inX };
}

function lowerX(graph: Graph, layers: Layers, x: Float64Array, s: number): number {
  const w = layers.lower[s];
  const k = layers.segmentSink[s];
  if (w < layers.boxes && k >= 0 && graph.ports[w] === PORTS.FIXED)
    return x[w] - graph.width[w] / 2 + graph.inOffset[k];
  return x[w];
}

/** Moves places apart to `gap` and into [low, high], each as little as is needed, those of straight lines last. */
function apart(places: number[], straight: readonly boolean[], gap: number, low: number, high: number): void {
  const count = places.length;
  const middle = places.findIndex((place, i) => straight[i] && Math.abs(place - (low + high) / 2) < 0.5);
  if (middle >= 0 && places[middle] - middle * gap >= low && places[middle] + (count - 1 - middle) * gap <= high) {
    // the spine runs through the middle of the box: the others make room for it
    for (let i = middle + 1; i < count; i++) {
      places[i] = Math.min(high - (count - 1 - i) * gap, Math.max(places[i], places[i - 1] + gap));
    }
    for (let i = middle - 1; i >= 0; i--) places[i] = Math.max(low + i * gap, Math.min(places[i], places[i + 1] - gap));
    return;
  }
  for (let i = 0; i < count; i++) {
    if (straight[i]) continue;
    const next = straight.indexOf(true, i);
    const least = i > 0 ? places[i - 1] + gap : low;
    const most = next < 0 ? high - (count - 1 - i) * gap : places[next] - (next - i) * gap;
    places[i] = Math.max(least, Math.min(most, places[i]));
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

interface Rows {
  readonly top: Float64Array;
  readonly bottom: Float64Array;
}

function stackRows(graph: Graph, layers: Layers, outX: Float64Array, inX: Float64Array, x: Float64Array): Rows {
  const height = new Float64Array(layers.rows);
  for (let box = 0; box < layers.boxes; box++) {
    height[layers.rank[box]] = Math.max(height[layers.rank[box]], graph.height[box]);
  }
  const gap = new Float64Array(layers.rows).fill(ROW_GAP.plain);
  const widen = (row: number, least: number): void => {
    if (row >= 0) gap[row] = Math.max(gap[row], least);
  };
  for (let e = 0; e < graph.source.length; e++) {
    if (layers.from[e] >= 0 && graph.labelWidth[e] > 0)
      widen(layers.rank[layers.from[e]], ROW_GAP.beside + graph.labelLength[e]);
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      if (layers.stub[k] && layers.to[k] >= 0)
        widen(layers.rank[layers.to[k]] - 1, ROW_GAP.beside + graph.nameLength[e]);
      if (layers.lane[k] >= 0) {
        widen(layers.rank[layers.lane[k]] - 1, ROW_GAP.plain + 14);
        widen(layers.rank[layers.from[e]], ROW_GAP.plain + 14);
      }
    }
  }
  // long bends need height to stay legible
  for (let s = 0; s < layers.segments; s++) {
    const from =
      layers.upper[s] === layers.from[layers.segmentEdge[s]] ? outX[layers.segmentEdge[s]] : x[layers.upper[s]];
    const to = layers.segmentSink[s] >= 0 ? inX[layers.segmentSink[s]] : x[layers.lower[s]];
    widen(layers.rank[layers.upper[s]], Math.min(ROW_GAP.most, ROW_GAP.plain + Math.abs(to - from) / 14));
  }
  const top = new Float64Array(layers.rows);
  const bottom = new Float64Array(layers.rows);
  // stubs and backward edges of the first row need room above it
  let at = 0;
  for (let k = 0; k < graph.sink.length; k++) {
    if (layers.to[k] < 0 || layers.rank[layers.to[k]] > 0) continue;
    if (layers.stub[k] || layers.lane[k] >= 0) at = ROW_GAP.plain;
  }
  for (let row = 0; row < layers.rows; row++) {
    top[row] = at;
    bottom[row] = at + height[row];
    at = bottom[row] + Math.round(gap[row]);
  }
  for (let e = 0; e < graph.source.length; e++) {
    if (layers.from[e] < 0 || layers.rank[layers.from[e]] < layers.rows - 1) continue;
    const below =
      graph.ptr[e] === graph.ptr[e + 1] || layers.lane.subarray(graph.ptr[e], graph.ptr[e + 1]).some((v) => v >= 0);
    if (below) bottom[layers.rows - 1] = top[layers.rows - 1] + height[layers.rows - 1] + ROW_GAP.plain;
  }
  return { top, bottom };
}

interface Lines {
  readonly linePtr: Uint32Array;
  readonly line: Float32Array;
  readonly stub: Uint8Array;
  readonly tail: Uint8Array;
}

function drawLines(
  graph: Graph,
  layers: Layers,
  x: Float64Array,
  y: Float64Array,
  outX: Float64Array,
  inX: Float64Array,
  { top, bottom }: Rows,
): Lines {
  const { source, sink, ptr } = graph;
  const linePtr = new Uint32Array(sink.length + 1);
  const points: number[] = [];
  const tail = new Uint8Array(source.length);
  const way: number[] = []; // vertices of a line, from below
  const put = (px: number, py: number, begin: number): void => {
    const end = points.length;
    // of three points one above the other the middle one says nothing
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
      const endY = to >= 0 ? y[to] : bottom[layers.rows - 1];
      if (layers.stub[k]) {
        points.push(inX[k], endY - STUB.length, inX[k], endY);
        if (layers.from[e] >= 0) tail[e] = 1;
      } else if (layers.from[e] >= 0) {
        const startRow = layers.rank[layers.from[e]];
        put(outX[e], from >= 0 ? y[from] + graph.height[from] : 0, begin);
        if (from >= 0) put(outX[e], bottom[startRow], begin);
        if (layers.lane[k] >= 0) {
          const lane = layers.lane[k];
          const last = lane + startRow - layers.rank[lane];
          put(outX[e], bottom[startRow] + 10, begin);
          put(x[last], bottom[startRow] + 10, begin);
          for (let v = last; v >= lane; v--) {
            put(x[v], bottom[layers.rank[v]], begin);
            put(x[v], top[layers.rank[v]], begin);
          }
          put(x[lane], top[layers.rank[lane]] - 10, begin);
          put(inX[k], top[layers.rank[lane]] - 10, begin);
        } else {
          way.length = 0;
          for (let v = layers.above[k]; v >= layers.firstDummy; v = layers.dummyAbove[v - layers.firstDummy])
            way.push(v);
          for (let i = way.length - 1; i >= 0; i--) {
            put(x[way[i]], top[layers.rank[way[i]]], begin);
            put(x[way[i]], bottom[layers.rank[way[i]]], begin);
          }
          put(inX[k], to >= 0 ? top[layers.rank[to]] : top[layers.rows - 1], begin);
        }
        put(inX[k], endY, begin);
      }
      linePtr[k + 1] = points.length / 2;
    }
  }
  return { linePtr, line: Float32Array.from(points), stub: layers.stub, tail };
}

interface Room {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** A label stands beside the port of its source, or of a reader, where it covers no other label and few lines. */
function placeLabels(
  graph: Graph,
  layers: Layers,
  x: Float64Array,
  y: Float64Array,
  outX: Float64Array,
  inX: Float64Array,
  { top, bottom }: Rows,
  stub: Uint8Array,
): { x: Float64Array; y: Float64Array } {
  const { source, ptr, labelWidth, labelLength } = graph;
  const labelX = new Float64Array(source.length).fill(Number.NaN);
  const labelY = new Float64Array(source.length).fill(Number.NaN);
  const taken: Room[][] = [];
  for (let row = 0; row < layers.rows; row++) taken.push([]);
  for (let e = 0; e < source.length; e++) {
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      const row = layers.to[k] >= 0 ? layers.rank[layers.to[k]] - 1 : -1;
      if (stub[k] && row >= 0) taken[row].push(stubRoom(graph, e, inX[k], top[row + 1]));
    }
  }
  const crossing = group(rowsOf(layers), layers.rows);
  const edgesOfRow: number[][] = Array.from({ length: layers.rows }, () => []);
  for (let e = 0; e < source.length; e++) {
    if (labelWidth[e] > 0 && layers.from[e] >= 0) edgesOfRow[layers.rank[layers.from[e]]].push(e);
  }
  for (let row = 0; row < layers.rows; row++) {
    const edges = edgesOfRow[row];
    if (edges.length === 0) continue;
    const high = bottom[row];
    const low = row + 1 < layers.rows ? top[row + 1] : bottom[row] + ROW_GAP.plain + 14;
    const lines = crossing.ptr[row + 1] - crossing.ptr[row] > 400 ? [] : spans(layers, crossing, row, x, outX, inX);
    edges.sort((a, b) => outX[a] - outX[b] || a - b);
    for (const e of edges) {
      const w = labelWidth[e];
      const box = source[e];
      if (box >= 0 && ptr[e] === ptr[e + 1] && y[box] + graph.height[box] < high - 1) {
        // a tail in the shade of a taller box: only where the next one leaves room
        const next = layers.rowPtr[row] + layers.pos[box] + 1;
        const right =
          next < layers.rowPtr[row + 1]
            ? x[layers.order[next]] - halfWidth(graph, layers, layers.order[next])
            : Number.POSITIVE_INFINITY;
        const under = y[box] + graph.height[box] + 3;
        const left = outX[e] + LABEL.beside;
        const room = { left, right: left + w, top: under, bottom: under + labelLength[e] };
        if (room.right > right - 4 || taken[row].some((other) => overlap(room, other))) continue;
        taken[row].push(room);
        labelX[e] = left;
        labelY[e] = (room.top + room.bottom) / 2;
        continue;
      }
      const half = labelLength[e] / 2;
      const candidates: Room[] = [];
      const at = (left: number, middle: number): void => {
        candidates.push({ left, right: left + w, top: middle - half, bottom: middle + half });
      };
      const beside = (px: number, middle: number): void => {
        at(px + LABEL.beside, middle);
        at(px - LABEL.beside - w, middle);
      };
      const middle = (high + low) / 2;
      const straight = lines.find((line) => line.edge === e && Math.abs(line.from - line.to) < 1);
      if (straight !== undefined) beside(outX[e], middle);
      beside(outX[e], high + half + 3);
      for (const line of lines) {
        if (line.edge !== e || line === straight) continue;
        beside(line.to, low - half - 5);
        at((line.from + line.to) / 2 - w / 2, middle);
      }
      let best: Room | undefined;
      let least = Number.POSITIVE_INFINITY;
      candidates.forEach((room, index) => {
        if (taken[row].some((other) => overlap(room, other))) return;
        let cost = index * 0.1 + (room.left < 0 ? 2 : 0);
        for (const line of lines) if (line.edge !== e && meets(line, room, high, low)) cost++;
        if (cost < least) {
          least = cost;
          best = room;
        }
      });
      if (best === undefined) continue;
      taken[row].push(best);
      labelX[e] = best.left;
      labelY[e] = (best.top + best.bottom) / 2;
    }
  }
  return { x: labelX, y: labelY };
}

/** The name of a tensor stands beside the tail above its reader; `end` is where the tail meets it. */
function stubRoom(graph: Graph, e: number, x: number, end: number): Room {
  return {
    left: x + STUB.beside,
    right: x + STUB.beside + graph.nameWidth[e],
    top: end - STUB.above - graph.nameLength[e],
    bottom: end - STUB.above,
  };
}

function rowsOf(layers: Layers): Int32Array {
  const rows = new Int32Array(layers.segments);
  for (let s = 0; s < layers.segments; s++) rows[s] = layers.rank[layers.upper[s]];
  return rows;
}

interface Span {
  readonly edge: number;
  readonly from: number;
  readonly to: number;
}

function spans(
  layers: Layers,
  crossing: { readonly ptr: Uint32Array; readonly items: Uint32Array },
  row: number,
  x: Float64Array,
  outX: Float64Array,
  inX: Float64Array,
): Span[] {
  const found: Span[] = [];
  for (let j = crossing.ptr[row]; j < crossing.ptr[row + 1]; j++) {
    const s = crossing.items[j];
    const edge = layers.segmentEdge[s];
    const k = layers.segmentSink[s];
    found.push({
      edge,
      from: layers.upper[s] === layers.from[edge] ? outX[edge] : x[layers.upper[s]],
      to: k >= 0 ? inX[k] : x[layers.lower[s]],
    });
  }
  return found;
}

function overlap(a: Room, b: Room): boolean {
  return a.left < b.right + 4 && b.left < a.right + 4 && a.top < b.bottom + 1 && b.top < a.bottom + 1;
}

/** Whether the curve of a line passes through a label's room. */
function meets(line: Span, room: Room, high: number, low: number): boolean {
  const at = (y: number): number => {
    const t = Math.max(0, Math.min(1, (y - high) / (low - high)));
    return line.from + (line.to - line.from) * t * t * (3 - 2 * t);
  };
  const a = at(room.top);
  const b = at(room.bottom);
  return Math.max(a, b) > room.left - 2 && Math.min(a, b) < room.right + 2;
}
