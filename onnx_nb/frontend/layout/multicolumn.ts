/**
 * Sets a long layout in columns, as a newspaper sets a long text. It is divided where few tensors cross between rows;
 * a tensor that crosses leads from the foot of one column to the head of the next.
 */

import { type Graph, type Layout, STUB } from "./graph.ts";
import { nameRoom } from "./labels.ts";

/** Maximum number of tensors between two columns: in the outermost scope, and in an inner one. */
const CROSSING = { outermost: 2, inner: 1 } as const;
/** The same on a page, tried in turn until columns fill it well enough. */
const PAGE_CROSSINGS = [2, 4, 8] as const;
const FULL_PAGE = 0.6;
/** Columns must make the page this much smaller to be worth their detours. */
const WORTHWHILE = 0.9;
/** A page with a low column counts as this much larger. */
const LOW_COST = 1.1;
/** Maximum height of a column that cannot be divided, relative to the wanted height; beyond it there are no columns. */
const TOO_HIGH = 1.5;
/** Minimum height of every column but the last, relative to the highest; below it there are no columns. */
const TOO_LOW = 0.3;
/** Pixels between parallel lines, from a line to an obstacle, around a label along the flow, and of empty space. */
const ROOM = { line: 7, beside: 12, label: 7, empty: 28 } as const;

/** Boxes that overlap in y and cannot be divided. */
interface RowBand {
  readonly top: number;
  bottom: number;
  /** hyperedges that continue below it, null where the layout cannot be divided */
  below: readonly number[] | null;
}

interface Column {
  readonly top: number;
  readonly bottom: number;
  /** hyperedges that continue in the next column */
  readonly on: readonly number[];
}

export interface Divider {
  /** Returns columns of a height in px; a layout that is low enough or cannot be divided stays as it is. */
  inColumns(height: number): Layout;
  /** Returns the columns that fit the smallest page of an aspect ratio, width to height. */
  onPage(aspect: number): Layout;
}

/** Returns what divides a layout; divisions in the same places share one result. */
export function divider(graph: Graph, layout: Layout): Divider {
  const limit = graph.source.includes(-1) || graph.sink.includes(-1) ? CROSSING.inner : CROSSING.outermost;
  const layouts = new Map<string, Layout>();
  const pages = new Map<number, Layout>();
  let rows: readonly RowBand[] | undefined;
  const bands = (): readonly RowBand[] => {
    rows ??= bandsOf(graph, layout);
    return rows;
  };
  const divide = (columns: readonly Column[], isNarrow: boolean): Layout => {
    if (columns.length < 2) return layout;
    const places = `${isNarrow} ${columns.map(({ top }) => top)}`;
    const division = layouts.get(places) ?? new SideBySide(graph, layout, columns, isNarrow).place();
    layouts.set(places, division);
    return division;
  };
  return {
    inColumns: (height) => {
      if (layout.height <= height) return layout;
      const columns = balance(bands(), columnsOf(bands(), height, limit).length, limit);
      const heights = heightsOf(columns);
      const highest = Math.max(...heights);
      // a few boxes before all others would only add a detour
      const isBad = highest > TOO_HIGH * height || Math.min(...heights.slice(0, -1)) < TOO_LOW * highest;
      return isBad ? layout : divide(columns, false);
    },
    onPage: (aspect) => {
      const page = pages.get(aspect) ?? divide(pageOf(graph, layout, bands(), aspect), true);
      pages.set(aspect, page);
      return page;
    },
  };
}

/** Returns the columns that fit the smallest page of an aspect ratio, none if one column does. */
function pageOf(graph: Graph, layout: Layout, bands: readonly RowBand[], aspect: number): readonly Column[] {
  const { width, height } = layout;
  const spans = spansOf(graph, layout, bands, true);
  const most = bands.length < 2 ? 0 : 3 + 2 * Math.sqrt((height * aspect) / width);
  let best: readonly Column[] = [];
  let size = Math.max(width / aspect, height) * WORTHWHILE;
  let fill = Math.min(width / aspect, height) / size;
  for (const limit of PAGE_CROSSINGS) {
    if (fill >= FULL_PAGE) break;
    const lowest = 1.001 * Math.max(...heightsOf(columnsOf(bands, 0, limit)));
    for (let count = 2; count <= most; count++) {
      const columns = balance(bands, count, limit);
      const heights = heightsOf(columns);
      const high = Math.max(...heights);
      const [w, h] = [widthOf(columns, bands, spans) / aspect, high + 2 * ROOM.beside];
      const page = Math.max(w, h) * (Math.min(...heights) < TOO_LOW * high ? LOW_COST : 1);
      if (page < size) [best, size, fill] = [columns, page, Math.min(w, h) / page];
      if (high <= lowest) break;
    }
  }
  return best;
}

function heightsOf(columns: readonly Column[]): number[] {
  return columns.map(({ top, bottom }) => bottom - top);
}

/** Returns the width of columns next to each other. */
function widthOf(columns: readonly Column[], bands: readonly RowBand[], spans: readonly Span[][]): number {
  let [width, band] = [0, 0];
  for (const { bottom, on } of columns) {
    const first = band;
    while (band < bands.length && bands[band].top < bottom) band++;
    const inside = spans.slice(first, band).flat();
    const { left, right } = boundsOf(inside, narrowed(inside));
    width += right - left + 2 * ROOM.beside + ROOM.line * on.length;
  }
  return width;
}

/** Returns at most this number of columns, as low as possible. */
function balance(bands: readonly RowBand[], count: number, limit: number): readonly Column[] {
  let high = bands[bands.length - 1].bottom - bands[0].top;
  let low = high / count - 1;
  let best: readonly Column[] = [];
  for (let round = 0; round < 12; round++) {
    const columns = columnsOf(bands, (low + high) / 2, limit);
    if (columns.length > count) low = (low + high) / 2;
    else [best, high] = [columns, (low + high) / 2];
  }
  return best;
}

function bandsOf(graph: Graph, layout: Layout): RowBand[] {
  const order = Array.from(layout.y.keys()).sort((a, b) => layout.y[a] - layout.y[b]);
  const bands: RowBand[] = [];
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
      let [minY, last, back] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, false];
      for (let p = from; p < to; p += 2) {
        const y = layout.line[p + 1];
        back ||= y < last - 0.5;
        minY = Math.min(minY, y);
        last = Math.max(last, y);
      }
      for (let band = indexAt(bands, minY); band + 1 < bands.length; band++) {
        const middle = (bands[band].bottom + bands[band + 1].top) / 2;
        if (middle > last) break;
        if (middle < minY) continue;
        if (back) closed[band] = 1;
        else crossing[band].add(e);
      }
    }
  }
  bands.forEach((band, at) => {
    band.below = closed[at] === 1 ? null : [...crossing[at]];
  });
  return bands;
}

/** Returns the row or column at a height; the space between two belongs to the upper one. */
function indexAt(rows: readonly { readonly top: number }[], y: number): number {
  let [low, high] = [0, rows.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (y >= rows[middle].top) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** @param limit maximum number of tensors between two columns */
function columnsOf(bands: readonly RowBand[], height: number, limit: number): Column[] {
  const columns: Column[] = [];
  let first = 0;
  for (let band = 0; band < bands.length; band++) {
    if (bands[band].bottom - bands[first].top <= height) continue;
    let cut = band - 1;
    while (cut >= first && (bands[cut].below?.length ?? Number.POSITIVE_INFINITY) > limit) cut--;
    if (cut < first) continue;
    columns.push({ top: bands[first].top, bottom: bands[cut].bottom, on: bands[cut].below ?? [] });
    first = cut + 1;
  }
  const last = bands.at(-1);
  if (last !== undefined) columns.push({ top: bands[first].top, bottom: last.bottom, on: [] });
  return columns;
}

/** Room of a box, line, stub or label. */
interface Span {
  readonly left: number;
  readonly right: number;
  readonly top: number;
}

/** Returns what is in each row or column; a label only counts where it stays in its place. */
function spansOf(
  graph: Graph,
  layout: Layout,
  rows: readonly { readonly top: number }[],
  hasLabels: boolean,
): Span[][] {
  const { x, y, stub, line, linePtr, labelX, labelY } = layout;
  const spans: Span[][] = rows.map(() => []);
  const add = (row: number, left: number, right: number, top = Number.POSITIVE_INFINITY): void => {
    spans[row].push({ left, right, top });
  };
  y.forEach((top, box) => {
    add(indexAt(rows, top), x[box], x[box] + graph.width[box], top);
  });
  for (let e = 0; e < graph.source.length; e++) {
    if (hasLabels && labelY[e] >= 0) add(indexAt(rows, labelY[e]), labelX[e], labelX[e] + graph.labelWidth[e]);
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      for (let p = 2 * linePtr[k]; p < 2 * linePtr[k + 1]; p += 2) add(indexAt(rows, line[p + 1]), line[p], line[p]);
      if (stub[k] === 0 || linePtr[k] === linePtr[k + 1]) continue;
      const room = nameRoom(graph, e, line[2 * linePtr[k]], line[2 * linePtr[k] + 1], 0);
      const row = graph.sink[k] < 0 ? rows.length - 1 : indexAt(rows, y[graph.sink[k]]);
      add(row, room.left, room.right, room.top);
    }
  }
  return spans;
}

/** Returns x → x, with the space that is empty from the top of a column to its foot narrowed. */
function narrowed(spans: readonly Span[]): (x: number) => number {
  const parts: { readonly top: number; readonly shift: number }[] = [];
  let [end, shift] = [Number.NEGATIVE_INFINITY, 0];
  for (const { left, right } of [...spans].sort((p, q) => p.left - q.left)) {
    if (left > end + ROOM.empty) {
      if (parts.length > 0) shift += Math.floor(left - end - ROOM.empty);
      parts.push({ top: left, shift });
    }
    end = Math.max(end, right);
  }
  return (x) => x - parts[indexAt(parts, x)].shift;
}

function boundsOf(spans: readonly Span[], place: (x: number) => number): ColumnBounds {
  const bounds = { left: Number.POSITIVE_INFINITY, right: Number.NEGATIVE_INFINITY, top: Number.POSITIVE_INFINITY };
  for (const { left, right, top } of spans) {
    bounds.left = Math.min(bounds.left, left);
    bounds.right = Math.max(bounds.right, right);
    bounds.top = Math.min(bounds.top, top);
  }
  return { ...bounds, left: place(bounds.left), right: place(bounds.right) };
}

/** Places each column next to the previous one, with lines from its foot to the head of the next. */
class SideBySide {
  readonly #graph: Graph;
  readonly #layout: Layout;
  readonly #columns: readonly Column[];
  /** column of each box */
  readonly #home: number[];
  /** edge of each line, and its points before anything moves */
  readonly #edge: Int32Array;
  readonly #lines: readonly Corner[][];
  /** column where each edge begins; an edge from outside enters the first */
  readonly #starts: number[];
  /** columns where each line begins and ends */
  readonly #begins: readonly number[];
  readonly #ends: readonly number[];
  /** for each column: edge → x where it leaves at the foot */
  readonly #leaves: readonly Map<number, number>[];
  /** for each column its leaving edges, the outermost way first */
  readonly #orders: readonly number[][];
  /** x in a column → x there with empty space narrowed */
  readonly #narrow: readonly ((x: number) => number)[];
  readonly #extents: readonly ColumnBounds[];
  readonly #labelX: Float64Array;
  readonly #labelY: Float64Array;
  /** column of each label, −1 for none */
  readonly #labelHome: number[];

  constructor(graph: Graph, layout: Layout, columns: readonly Column[], isNarrow: boolean) {
    this.#graph = graph;
    this.#layout = layout;
    this.#columns = columns;
    this.#home = Array.from(layout.y, (y) => indexAt(columns, y));
    this.#lines = Array.from(graph.sink, (_, k) => points(layout, k));
    this.#edge = new Int32Array(graph.sink.length);
    for (let e = 0; e < graph.source.length; e++) this.#edge.fill(e, graph.ptr[e], graph.ptr[e + 1]);
    this.#starts = Array.from(graph.source, (source) => (source < 0 ? 0 : this.#home[source]));
    // a line to the outside leaves from the last column
    this.#ends = Array.from(graph.sink, (sink) => (sink < 0 ? columns.length - 1 : this.#home[sink]));
    this.#begins = this.#ends.map((end, k) => (layout.stub[k] !== 0 ? end : this.#starts[this.#edge[k]]));
    const spans = spansOf(graph, layout, columns, isNarrow);
    const crossings: [column: number, edge: number, x: number][] = [];
    this.#lines.forEach((line, k) => {
      if (line.length === 0 || layout.stub[k] !== 0) return;
      for (let column = this.#begins[k]; column < this.#ends[k]; column++) {
        const [x, into] = [at(line, columns[column].bottom), at(line, columns[column + 1].top)];
        crossings.push([column, this.#edge[k], x]);
        spans[column].push({ left: x, right: x, top: Number.POSITIVE_INFINITY });
        spans[column + 1].push({ left: into, right: into, top: Number.POSITIVE_INFINITY });
      }
    });
    this.#narrow = spans.map((inside) => (isNarrow ? narrowed(inside) : (x) => x));
    this.#leaves = columns.map(() => new Map<number, number>());
    for (const [column, edge, x] of crossings) this.#leaves[column].set(edge, this.#narrow[column](x));
    this.#orders = this.#leaves.map((leaves) => [...leaves].sort((p, q) => q[1] - p[1] || p[0] - q[0]).map(([e]) => e));
    this.#extents = spans.map((inside, column) => boundsOf(inside, this.#narrow[column]));
    this.#labelY = layout.labelY.slice();
    this.#labelHome = Array.from(this.#labelY, (y) => (Number.isNaN(y) ? -1 : indexAt(columns, y)));
    this.#labelX = layout.labelX.map((x, e) => this.#narrow[this.#labelHome[e]]?.(x) ?? x);
  }

  /** Returns the lowest y of labels and stubs of tensors that stay in a column. */
  #floors(): number[] {
    const { y, tail } = this.#layout;
    const floors = this.#columns.map(({ bottom }) => bottom);
    for (let e = 0; e < this.#labelY.length; e++) {
      const from = this.#graph.source[e];
      const column = from >= 0 ? this.#home[from] : -1;
      if (column < 0 || this.#leaves[column].has(e)) continue;
      const label = this.#labelHome[e] !== column ? 0 : this.#labelY[e] + this.#graph.labelLength[e] / 2;
      const end = tail[e] === 1 ? y[from] + this.#graph.height[from] + STUB.length : 0;
      floors[column] = Math.max(floors[column], label, end);
    }
    return floors;
  }

  /** Returns y of each leaving edge at the foot of its column, in `#orders`; places the labels that belong there. */
  #feet(): number[][] {
    const floors = this.#floors();
    const feet = this.#columns.map(({ bottom }, column) => {
      const order = this.#orders[column];
      const right = Math.max(...this.#leaves[column].values());
      const hasLabel = order.map((e) => this.#starts[e] === column && this.#labelY[e] > bottom);
      const lengths = order.map((e, place) => (hasLabel[place] ? this.#graph.labelLength[e] : 0));
      let low = floors[column] + ROOM.label + Math.max(ROOM.beside, lengths[0] ?? 0) / 2;
      return order.map((e, place) => {
        // a single edge has its label next to it, several have theirs on their ways to the next column
        const isSingle = order.length === 1;
        const length = lengths[place];
        if (hasLabel[place]) {
          this.#labelX[e] = right + (isSingle ? 6 : 10);
          this.#labelY[e] = low;
          this.#labelHome[e] = column;
        }
        const foot = isSingle && hasLabel[place] ? low + ROOM.label + length / 2 : low;
        const next = Math.max(length, lengths[place + 1] ?? 0);
        low = foot + (next > 0 ? next + 1 : ROOM.line);
        return foot;
      });
    });
    this.#labelHome.forEach((column, e) => {
      const x = this.#labelX[e];
      if (column < 0) return;
      const extent = this.#extents[column];
      extent.left = Math.min(extent.left, x);
      extent.right = Math.max(extent.right, x + this.#graph.labelWidth[e]);
    });
    return feet;
  }

  place(): Layout {
    const layout = this.#layout;
    const columns = this.#columns;
    const feet = this.#feet();
    const head = ROOM.beside + ROOM.line * Math.max(...this.#orders.map(({ length }) => length));
    const dx: number[] = [];
    const dy: number[] = [];
    let width = 0;
    columns.forEach(({ on }, column) => {
      const { left, right, top } = this.#extents[column];
      const shift = Math.ceil(width - left);
      dx.push(shift);
      dy.push(Math.ceil(head - top));
      width = shift + right + (column + 1 === columns.length ? 0 : 2 * ROOM.beside + ROOM.line * on.length);
    });
    this.#labelHome.forEach((column, e) => {
      if (column < 0) return;
      this.#labelX[e] += dx[column];
      this.#labelY[e] += dy[column];
    });
    const bottoms = columns.map(({ bottom }, column) => {
      const below = column + 1 === columns.length ? layout.height - bottom : 0;
      return dy[column] + Math.max(bottom + below, ...feet[column].map((foot) => foot + ROOM.line));
    });
    const labels = Array.from(this.#labelY, (y, e) => (Number.isNaN(y) ? 0 : y + this.#graph.labelLength[e] / 2));
    const place = (x: number, column: number): number => this.#narrow[column](x) + dx[column];
    return {
      ...layout,
      ...this.#draw(this.#ways(feet, head, dx, dy), dx, dy),
      width,
      height: Math.max(...bottoms, ...labels),
      x: layout.x.map((x, box) => place(x, this.#home[box])),
      y: layout.y.map((y, box) => y + dy[this.#home[box]]),
      outX: layout.outX.map((x, e) => place(x, this.#starts[e])),
      inX: layout.inX.map((x, k) => place(x, this.#ends[k])),
      labelX: this.#labelX,
      labelY: this.#labelY,
    };
  }

  /** Returns for each column: edge → its way from the foot to the head of the next; outer ways enclose inner ones. */
  #ways(feet: number[][], head: number, dx: number[], dy: number[]): Map<number, Corner[]>[] {
    return this.#columns.map(({ bottom }, column) => {
      const order = this.#orders[column];
      return new Map(
        order.map((e, place) => {
          const x = (this.#leaves[column].get(e) ?? 0) + dx[column];
          const low = feet[column][place] + dy[column];
          const gutter = this.#extents[column].right + dx[column] + ROOM.beside + ROOM.line * place;
          const high = head - ROOM.beside + 2 - ROOM.line * (order.length - 1 - place);
          const foot = bottom + dy[column];
          return [
            e,
            [
              { x, y: foot },
              { x, y: low },
              { x: gutter, y: low },
              { x: gutter, y: high },
            ],
          ];
        }),
      );
    });
  }

  /** Returns every line as its parts in the columns it passes and the ways between them. */
  #draw(ways: Map<number, Corner[]>[], dx: number[], dy: number[]): Pick<Layout, "line" | "linePtr"> {
    const linePtr = new Uint32Array(this.#lines.length + 1);
    const points: number[] = [];
    this.#lines.forEach((line, k) => {
      const end = this.#ends[k];
      for (let column = this.#begins[k]; column <= end && line.length > 0; column++) {
        const { top, bottom } = this.#columns[column];
        for (const { x, y } of line) {
          const inside = (column === this.#begins[k] || y > top) && (column === end || y < bottom);
          if (inside) points.push(this.#narrow[column](x) + dx[column], y + dy[column]);
        }
        if (column === end) break;
        const way = ways[column].get(this.#edge[k]) as readonly Corner[];
        for (const { x, y } of way) points.push(x, y);
        const next = this.#columns[column + 1].top;
        const into = this.#narrow[column + 1](at(line, next)) + dx[column + 1];
        points.push(into, way[way.length - 1].y, into, next + dy[column + 1]);
      }
      linePtr[k + 1] = points.length / 2;
    });
    return { linePtr, line: Float32Array.from(points) };
  }
}

type ColumnBounds = Record<"left" | "right" | "top", number>;
type Corner = Readonly<Record<"x" | "y", number>>;

function points({ line, linePtr }: Layout, k: number): Corner[] {
  return Array.from({ length: linePtr[k + 1] - linePtr[k] }, (_, i) => {
    const p = 2 * (linePtr[k] + i);
    return { x: line[p], y: line[p + 1] };
  });
}

/** Returns x of a downward line at a height; it is vertical next to boxes. */
function at(line: readonly Corner[], y: number): number {
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
