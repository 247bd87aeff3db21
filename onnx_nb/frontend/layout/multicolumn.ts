/**
 * A long layout set in columns, as a newspaper sets a long text: cut where few tensors cross from row to row, the pieces
 * side by side, and what crosses led from the foot of one column to the head of the next.
 */

import { type Graph, type Layout, STUB } from "./graph.ts";
import { nameRoom } from "./labels.ts";

/** At most so many tensors go on from one column to the next: of the outermost scope, and of one that lies in another. */
const CROSSING = { outermost: 2, inner: 1 } as const;
/** A column may be so many times as high as it should be, where nothing can be cut; else nothing is set in columns. */
const TOO_HIGH = 1.5;
/** All columns but the last are at least so high beside the highest; else nothing is. */
const TOO_LOW = 0.3;
/** px: between lines beside each other, from a line to what it passes, and the height of a label. */
const ROOM = { line: 7, beside: 12, label: 13 } as const;

/** Boxes that no cut can part, from top to bottom. */
interface Band {
  readonly top: number;
  bottom: number;
  /** hyperedges that go on below it, null where it cannot be cut */
  below: readonly number[] | null;
}

interface Column {
  readonly top: number;
  readonly bottom: number;
  /** hyperedges that go on to the next column */
  readonly on: readonly number[];
}

/** @param height how high columns should be; the layout stays as it is if it is no higher, or cannot be cut */
export function inColumns(graph: Graph, layout: Layout, height: number): Layout {
  if (layout.height <= height) return layout;
  const inner = graph.source.includes(-1) || graph.sink.includes(-1);
  const bands = bandsOf(graph, layout, inner ? CROSSING.inner : CROSSING.outermost);
  const columns = balanced(bands, height);
  const heights = columns.map(({ top, bottom }) => bottom - top);
  if (columns.length < 2 || Math.max(...heights) > TOO_HIGH * height) return layout;
  // a few boxes alone before all others would only be a long way round
  if (Math.min(...heights.slice(0, -1)) < TOO_LOW * Math.max(...heights)) return layout;
  return laidBeside(graph, layout, columns);
}

function bandsOf(graph: Graph, layout: Layout, most: number): Band[] {
  const order = Array.from(layout.y.keys()).sort((a, b) => layout.y[a] - layout.y[b]);
  const bands: Band[] = [];
  for (const box of order) {
    const [top, bottom] = [layout.y[box], layout.y[box] + graph.height[box]];
    const last = bands.at(-1);
    if (last !== undefined && top < last.bottom) last.bottom = Math.max(last.bottom, bottom);
    else bands.push({ top, bottom, below: [] });
  }
  const crossing = bands.map(() => new Set<number>());
  const closed = new Uint8Array(bands.length);
  for (let e = 0; e < graph.source.length; e++) {
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      const [from, to] = [2 * layout.linePtr[k], 2 * layout.linePtr[k + 1]];
      if (from === to || layout.stub[k] !== 0) continue;
      let [least, last, back] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, false];
      for (let p = from; p < to; p += 2) {
        const y = layout.line[p + 1];
        back ||= y < last - 0.5;
        least = Math.min(least, y);
        last = Math.max(last, y);
      }
      for (let band = 0; band + 1 < bands.length; band++) {
        const middle = (bands[band].bottom + bands[band + 1].top) / 2;
        if (middle < least || middle > last) continue;
        if (back) closed[band] = 1;
        else crossing[band].add(e);
      }
    }
  }
  bands.forEach((band, at) => {
    band.below = closed[at] === 1 || crossing[at].size > most ? null : [...crossing[at]];
  });
  return bands;
}

/** As few columns as that height allows, all of about the same. */
function balanced(bands: readonly Band[], height: number): Column[] {
  let best = columnsOf(bands, height);
  let [low, high] = [height / 2, height];
  for (let round = 0; round < 8; round++) {
    const middle = (low + high) / 2;
    const found = columnsOf(bands, middle);
    if (found.length > best.length || found.some(({ top, bottom }) => bottom - top > height)) low = middle;
    else {
      best = found;
      high = middle;
    }
  }
  return best;
}

function columnsOf(bands: readonly Band[], height: number): Column[] {
  const columns: Column[] = [];
  let first = 0;
  for (let band = 0; band < bands.length; band++) {
    if (bands[band].bottom - bands[first].top <= height) continue;
    let cut = band - 1;
    while (cut >= first && bands[cut].below === null) cut--;
    if (cut < first) continue;
    columns.push({ top: bands[first].top, bottom: bands[cut].bottom, on: bands[cut].below ?? [] });
    first = cut + 1;
  }
  const last = bands.at(-1);
  if (last !== undefined) columns.push({ top: bands[first].top, bottom: last.bottom, on: [] });
  return columns;
}

function laidBeside(graph: Graph, layout: Layout, columns: readonly Column[]): Layout {
  /** the column of what lies there, what is between two columns belongs to the upper one */
  const columnAt = (y: number): number => {
    let at = 0;
    while (at + 1 < columns.length && y >= columns[at + 1].top) at++;
    return at;
  };
  const home = Array.from(layout.y, columnAt);
  const lines = Array.from(graph.sink, (_, k) => points(layout, k));
  const edge = new Int32Array(graph.sink.length);
  for (let e = 0; e < graph.source.length; e++) edge.fill(e, graph.ptr[e], graph.ptr[e + 1]);
  // what comes from outside enters the first column, what goes out leaves from the last
  const starts = Array.from(graph.source, (source) => (source < 0 ? 0 : home[source]));
  const endOf = (k: number): number => (graph.sink[k] < 0 ? columns.length - 1 : home[graph.sink[k]]);
  const startOf = (k: number): number => (layout.stub[k] !== 0 ? endOf(k) : starts[edge[k]]);

  // where each tensor that goes on leaves its column
  const leaves = columns.map(() => new Map<number, number>());
  for (let k = 0; k < lines.length; k++) {
    if (lines[k].length === 0 || layout.stub[k] !== 0) continue;
    for (let column = startOf(k); column < endOf(k); column++) {
      leaves[column].set(edge[k], at(lines[k], columns[column].bottom));
    }
  }

  const extents = columns.map(() => ({
    left: Number.POSITIVE_INFINITY,
    right: Number.NEGATIVE_INFINITY,
    top: Number.POSITIVE_INFINITY,
  }));
  const reach = (column: number, left: number, right: number, top: number): void => {
    const extent = extents[column];
    extent.left = Math.min(extent.left, left);
    extent.right = Math.max(extent.right, right);
    extent.top = Math.min(extent.top, top);
  };
  home.forEach((column, box) => {
    reach(column, layout.x[box], layout.x[box] + graph.width[box], layout.y[box]);
  });
  for (let k = 0; k < lines.length; k++) {
    for (const { x, y } of lines[k]) reach(columnAt(y), x, x, Number.POSITIVE_INFINITY);
    if (layout.stub[k] === 0 || lines[k].length === 0) continue;
    const room = nameRoom(graph, edge[k], lines[k][0].x, lines[k][0].y, 0);
    reach(endOf(k), room.left, room.right, room.top);
  }
  const labelX = layout.labelX.slice();
  const labelY = layout.labelY.slice();
  const labelHome = Array.from(labelY, (y) => (Number.isNaN(y) ? -1 : columnAt(y)));
  // what goes on from a column has its label there: beside it where it is alone, else each on its own way to the next
  const orders = leaves.map((each) => [...each].sort((p, q) => q[1] - p[1] || p[0] - q[0]).map(([e]) => e));
  const floors = columns.map(({ bottom }) => bottom);
  for (let e = 0; e < labelY.length; e++) {
    const from = graph.source[e];
    const column = from >= 0 ? home[from] : -1;
    if (column < 0 || leaves[column].has(e)) continue;
    const label = labelHome[e] !== column ? 0 : labelY[e] + graph.labelLength[e] / 2;
    const tail = layout.tail[e] === 1 ? layout.y[from] + graph.height[from] + STUB.length : 0;
    floors[column] = Math.max(floors[column], label, tail);
  }
  const feet = columns.map(({ bottom }, column) => {
    const order = orders[column];
    const right = Math.max(...leaves[column].values());
    const labeled = order.map((e) => {
      const below = !Number.isNaN(labelY[e]) && labelY[e] > bottom;
      return starts[e] === column && below;
    });
    let low = floors[column] + ROOM.label;
    return order.map((e, place) => {
      const alone = order.length === 1;
      if (labeled[place]) {
        labelX[e] = right + (alone ? 6 : 10);
        labelY[e] = low;
        labelHome[e] = column;
      }
      const at = alone && labeled[place] ? low + ROOM.label : low;
      low = at + (labeled[place] || labeled[place + 1] === true ? ROOM.label : ROOM.line);
      return at;
    });
  });
  labelHome.forEach((column, e) => {
    if (column >= 0) reach(column, labelX[e], labelX[e] + graph.labelWidth[e], Number.POSITIVE_INFINITY);
  });

  const head = ROOM.beside + ROOM.line * Math.max(...orders.map(({ length }) => length));
  const dx: number[] = [];
  const dy: number[] = [];
  let right = 0;
  columns.forEach(({ on }, column) => {
    const { left, right: end, top } = extents[column];
    const shift = Math.ceil(right - left);
    dx.push(shift);
    dy.push(Math.ceil(head - top));
    right = shift + end + (column + 1 === columns.length ? 0 : 2 * ROOM.beside + ROOM.line * on.length);
  });

  /** the way of each tensor from the foot of a column up to the head of the next: the outer ones around the inner ones */
  const ways = columns.map(({ bottom }, column) => {
    const order = orders[column];
    return new Map(
      order.map((e, place) => {
        const x = (leaves[column].get(e) ?? 0) + dx[column];
        const low = feet[column][place] + dy[column];
        const gutter = extents[column].right + dx[column] + ROOM.beside + ROOM.line * place;
        const high = head - ROOM.beside + 2 - ROOM.line * (order.length - 1 - place);
        const way: Point[] = [
          { x, y: bottom + dy[column] },
          { x, y: low },
          { x: gutter, y: low },
          { x: gutter, y: high },
        ];
        return [e, way];
      }),
    );
  });

  labelHome.forEach((column, e) => {
    if (column < 0) return;
    labelX[e] += dx[column];
    labelY[e] += dy[column];
  });
  const height = Math.max(
    ...columns.map(({ bottom }, column) => {
      const below = column + 1 === columns.length ? layout.height - bottom : 0;
      return dy[column] + Math.max(bottom + below, ...feet[column].map((foot) => foot + ROOM.line));
    }),
    ...Array.from(labelY, (y, e) => (Number.isNaN(y) ? 0 : y + graph.labelLength[e] / 2)),
  );
  const outX = layout.outX.map((x, e) => x + dx[starts[e]]);
  const inX = layout.inX.map((x, k) => x + dx[endOf(k)]);

  const linePtr = new Uint32Array(lines.length + 1);
  const drawn: number[] = [];
  lines.forEach((line, k) => {
    if (line.length > 0) {
      const start = startOf(k);
      const end = endOf(k);
      const own = (column: number): Point[] =>
        line
          .filter(({ y }) => {
            const above = column === start || y > columns[column].top;
            return above && (column === end || y < columns[column].bottom);
          })
          .map(({ x, y }) => ({ x: x + dx[column], y: y + dy[column] }));
      for (let column = start; column <= end; column++) {
        for (const { x, y } of own(column)) drawn.push(x, y);
        if (column === end) break;
        const way = ways[column].get(edge[k]) as readonly Point[];
        for (const { x, y } of way) drawn.push(x, y);
        const { top } = columns[column + 1];
        const into = at(line, top) + dx[column + 1];
        drawn.push(into, way[way.length - 1].y, into, top + dy[column + 1]);
      }
    }
    linePtr[k + 1] = drawn.length / 2;
  });
  const moved = (places: Float64Array, by: readonly number[]): Float64Array =>
    places.map((place, box) => place + by[home[box]]);
  return {
    ...layout,
    width: right,
    height,
    x: moved(layout.x, dx),
    y: moved(layout.y, dy),
    outX,
    inX,
    linePtr,
    line: Float32Array.from(drawn),
    labelX,
    labelY,
  };
}

interface Point {
  readonly x: number;
  readonly y: number;
}

function points({ line, linePtr }: Layout, k: number): Point[] {
  return Array.from({ length: linePtr[k + 1] - linePtr[k] }, (_, i) => {
    const p = 2 * (linePtr[k] + i);
    return { x: line[p], y: line[p + 1] };
  });
}

/** Where a line that runs down is at a height; it runs upright beside boxes. */
function at(line: readonly Point[], y: number): number {
  let last = line[0];
  for (const point of line) {
    if (point.y >= y) {
      const part = point.y === last.y ? 0 : (y - last.y) / (point.y - last.y);
      return last.x + (point.x - last.x) * Math.max(0, part);
    }
    last = point;
  }
  return last.x;
}
