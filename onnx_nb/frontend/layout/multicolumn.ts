/**
 * Sets a long layout in columns, as a newspaper sets a long text. It is divided where few tensors cross between rows;
 * a tensor that crosses leads from the foot of one column to the head of the next.
 */

import { type Graph, type Layout, STUB } from "./graph.ts";
import { nameRoom } from "./labels.ts";

/** Maximum number of tensors between two columns: in the outermost scope, and in an inner one. */
const CROSSING = { outermost: 2, inner: 1 } as const;
/** Maximum height of a column that cannot be divided, relative to the wanted height; beyond it there are no columns. */
const TOO_HIGH = 1.5;
/** Minimum height of every column but the last, relative to the highest; below it there are no columns. */
const TOO_LOW = 0.3;
/** Pixels between parallel lines, from a line to an obstacle, and of a label's height. */
const ROOM = { line: 7, beside: 12, label: 13 } as const;

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

/** Divides a layout into columns of a height in px; a layout that is low enough or cannot be divided stays as it is. */
export type Divide = (height: number) => Layout;

/** Returns what divides a layout; heights at which it is divided in the same places share one result. */
export function divider(graph: Graph, layout: Layout): Divide {
  let bands: readonly RowBand[] | undefined;
  const layouts = new Map<string, Layout>();
  return (height) => {
    if (layout.height <= height) return layout;
    bands ??= bandsOf(graph, layout);
    const columns = balance(bands, height);
    const heights = columns.map(({ top, bottom }) => bottom - top);
    if (columns.length < 2 || Math.max(...heights) > TOO_HIGH * height) return layout;
    // a few boxes before all others would only add a detour
    if (Math.min(...heights.slice(0, -1)) < TOO_LOW * Math.max(...heights)) return layout;
    const places = columns.map(({ top }) => top).join();
    const division = layouts.get(places) ?? new SideBySide(graph, layout, columns).place();
    layouts.set(places, division);
    return division;
  };
}

function bandsOf(graph: Graph, layout: Layout): RowBand[] {
  const inner = graph.source.includes(-1) || graph.sink.includes(-1);
  const limit = inner ? CROSSING.inner : CROSSING.outermost;
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
      for (let band = 0; band + 1 < bands.length; band++) {
        const middle = (bands[band].bottom + bands[band + 1].top) / 2;
        if (middle < minY || middle > last) continue;
        if (back) closed[band] = 1;
        else crossing[band].add(e);
      }
    }
  }
  bands.forEach((band, at) => {
    band.below = closed[at] === 1 || crossing[at].size > limit ? null : [...crossing[at]];
  });
  return bands;
}

/** Returns the fewest columns that the height allows, of about equal height. */
function balance(bands: readonly RowBand[], height: number): Column[] {
  let bestColumns = columnsOf(bands, height);
  let [low, high] = [height / 2, height];
  for (let round = 0; round < 8; round++) {
    const middle = (low + high) / 2;
    const candidate = columnsOf(bands, middle);
    if (candidate.length > bestColumns.length || candidate.some(({ top, bottom }) => bottom - top > height))
      low = middle;
    else {
      bestColumns = candidate;
      high = middle;
    }
  }
  return bestColumns;
}

function columnsOf(bands: readonly RowBand[], height: number): Column[] {
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
  readonly #extents: readonly ColumnBounds[];
  readonly #labelX: Float64Array;
  readonly #labelY: Float64Array;
  /** column of each label, −1 for none */
  readonly #labelHome: number[];

  constructor(graph: Graph, layout: Layout, columns: readonly Column[]) {
    this.#graph = graph;
    this.#layout = layout;
    this.#columns = columns;
    this.#home = Array.from(layout.y, (y) => this.#columnAt(y));
    this.#lines = Array.from(graph.sink, (_, k) => points(layout, k));
    this.#edge = new Int32Array(graph.sink.length);
    for (let e = 0; e < graph.source.length; e++) this.#edge.fill(e, graph.ptr[e], graph.ptr[e + 1]);
    this.#starts = Array.from(graph.source, (source) => (source < 0 ? 0 : this.#home[source]));
    // a line to the outside leaves from the last column
    this.#ends = Array.from(graph.sink, (sink) => (sink < 0 ? columns.length - 1 : this.#home[sink]));
    this.#begins = this.#ends.map((end, k) => (layout.stub[k] !== 0 ? end : this.#starts[this.#edge[k]]));
    this.#leaves = columns.map(() => new Map<number, number>());
    this.#lines.forEach((line, k) => {
      if (line.length === 0 || layout.stub[k] !== 0) return;
      for (let column = this.#begins[k]; column < this.#ends[k]; column++) {
        this.#leaves[column].set(this.#edge[k], at(line, columns[column].bottom));
      }
    });
    this.#orders = this.#leaves.map((leaves) => [...leaves].sort((p, q) => q[1] - p[1] || p[0] - q[0]).map(([e]) => e));
    this.#extents = this.#measure();
    this.#labelX = layout.labelX.slice();
    this.#labelY = layout.labelY.slice();
    this.#labelHome = Array.from(this.#labelY, (y) => (Number.isNaN(y) ? -1 : this.#columnAt(y)));
  }

  /** Returns the column at a height; the space between two columns belongs to the upper one. */
  #columnAt(y: number): number {
    let at = 0;
    while (at + 1 < this.#columns.length && y >= this.#columns[at + 1].top) at++;
    return at;
  }

  #reach(extent: ColumnBounds, left: number, right: number, top = Number.POSITIVE_INFINITY): void {
    extent.left = Math.min(extent.left, left);
    extent.right = Math.max(extent.right, right);
    extent.top = Math.min(extent.top, top);
  }

  /** Returns the extents of boxes, lines and stubs; labels are added once they are placed. */
  #measure(): ColumnBounds[] {
    const { x, y, stub } = this.#layout;
    const extents = this.#columns.map(() => ({
      left: Number.POSITIVE_INFINITY,
      right: Number.NEGATIVE_INFINITY,
      top: Number.POSITIVE_INFINITY,
    }));
    this.#home.forEach((column, box) => {
      this.#reach(extents[column], x[box], x[box] + this.#graph.width[box], y[box]);
    });
    this.#lines.forEach((line, k) => {
      for (const point of line) this.#reach(extents[this.#columnAt(point.y)], point.x, point.x);
      if (stub[k] === 0 || line.length === 0) return;
      const room = nameRoom(this.#graph, this.#edge[k], line[0].x, line[0].y, 0);
      this.#reach(extents[this.#ends[k]], room.left, room.right, room.top);
    });
    return extents;
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
      let low = floors[column] + ROOM.label;
      return order.map((e, place) => {
        // a single edge has its label next to it, several have theirs on their ways to the next column
        const isSingle = order.length === 1;
        if (hasLabel[place]) {
          this.#labelX[e] = right + (isSingle ? 6 : 10);
          this.#labelY[e] = low;
          this.#labelHome[e] = column;
        }
        const foot = isSingle && hasLabel[place] ? low + ROOM.label : low;
        low = foot + (hasLabel[place] || hasLabel[place + 1] === true ? ROOM.label : ROOM.line);
        return foot;
      });
    });
    this.#labelHome.forEach((column, e) => {
      const x = this.#labelX[e];
      if (column >= 0) this.#reach(this.#extents[column], x, x + this.#graph.labelWidth[e]);
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
    const move = (places: Float64Array, by: readonly number[]): Float64Array =>
      places.map((place, box) => place + by[this.#home[box]]);
    return {
      ...layout,
      ...this.#draw(this.#ways(feet, head, dx, dy), dx, dy),
      width,
      height: Math.max(...bottoms, ...labels),
      x: move(layout.x, dx),
      y: move(layout.y, dy),
      outX: layout.outX.map((x, e) => x + dx[this.#starts[e]]),
      inX: layout.inX.map((x, k) => x + dx[this.#ends[k]]),
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
          if (inside) points.push(x + dx[column], y + dy[column]);
        }
        if (column === end) break;
        const way = ways[column].get(this.#edge[k]) as readonly Corner[];
        for (const { x, y } of way) points.push(x, y);
        const next = this.#columns[column + 1].top;
        const into = at(line, next) + dx[column + 1];
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
