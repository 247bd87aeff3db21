/** Puts the layouts of the open scopes together into one scene, from the root in. */

import { STUB } from "../layout/graph.ts";
import type { Columns, Target } from "../protocol/columns.ts";
import { EDGE_TEXT, edgeText, nameText, spokenFor } from "./arrange.ts";
import type { Arrangement, Cache } from "./cache.ts";
import type { Labels, Measure } from "./labels.ts";
import type { Label } from "./scene.ts";
import { BOX, type Boxes, type Direction, type Edges, type Placed, type Rect, type Scene } from "./scene.ts";
import { BORDER } from "./scope.ts";

/** What an edge's label says; larger numbers than TYPE: the type of so many tensors. */
const SAYS = { NOTHING: 0, TYPE: 1, NAME: -1 } as const;

/** Scopes that are put in between two yields. */
const SOME = 400;

/** Yields now and then. */
export function* assemble(
  columns: Columns,
  root: Arrangement,
  cache: Cache,
  measure: Measure,
  direction: Direction,
): Generator<number, Scene> {
  const queue: Arrangement[] = [root];
  const sizes = count(queue);
  const boxes = newBoxes(sizes.boxes);
  const edges = newEdges(sizes.edges, sizes.points);
  const scopes = newScopes(queue.length, sizes.boxes);
  const says = new Int32Array(sizes.edges);
  const { points } = edges;
  const down = direction === "down";
  const alongAxis = down ? 1 : 0;
  let nextBox = 0;
  let nextEdge = 0;
  let nextPoint = 0;
  let nextScope = 1;
  /** tensors in the scopes before: what numbers their bundles */
  let tensors = 0;
  // of the scope at hand: the box around it and where the origin of its layout stands
  let outer = -1;
  let ox = 0;
  let oy = 0;

  /** across and along the flow → world */
  const put = (across: number, along: number): void => {
    points[nextPoint++] = down ? ox + across : ox + along;
    points[nextPoint++] = down ? oy + along : oy + across;
  };
  const begin = (value: number, from: number, to: number, stub: number, captured: number): void => {
    edges.value[nextEdge] = value;
    edges.fromBox[nextEdge] = from;
    edges.toBox[nextEdge] = to;
    edges.scope[nextEdge] = outer;
    edges.captured[nextEdge] = captured;
    edges.stub[nextEdge] = stub;
  };
  const label = (value: number, across: number, along: number, what: number): void => {
    says[nextEdge] = what;
    const width = down ? 0 : cache.textWidth(text(columns, value, what, measure));
    edges.labelX[nextEdge] = down ? ox + across : ox + along - width / 2;
    edges.labelY[nextEdge] = down ? oy + along : oy + across + 6;
  };

  for (let at = 0; at < queue.length; at++) {
    if (at % SOME === SOME - 1) yield 1;
    const { scope, layout, w, h, inner } = queue[at];
    const first = nextBox;
    outer = scopes.box[at];
    if (outer >= 0) {
      ox = boxes.x[outer] + queue[at].frame.x;
      oy = boxes.y[outer] + queue[at].frame.y;
    }
    scopes.boxPtr[at] = nextBox;
    scopes.edgePtr[at] = nextEdge;
    const depth = outer < 0 ? 0 : Math.min(255, boxes.depth[outer] + 1);
    for (let item = 0; item < scope.kind.length; item++) {
      const box = nextBox++;
      const opened = inner[item] !== undefined;
      boxes.kind[box] = opened ? BOX.OPEN : scope.kind[item];
      boxes.id[box] = scope.id[item];
      boxes.parent[box] = outer;
      boxes.depth[box] = depth;
      boxes.x[box] = ox + (down ? layout.x[item] : layout.y[item]);
      boxes.y[box] = oy + (down ? layout.y[item] : layout.x[item]);
      boxes.w[box] = w[item];
      boxes.h[box] = h[item];
      if (!opened) continue;
      scopes.inside[box] = nextScope;
      scopes.box[nextScope++] = box;
    }

    const start = outer < 0 ? 0 : down ? boxes.y[outer] - oy : boxes.x[outer] - ox;
    const end = outer < 0 ? 0 : start + (down ? boxes.h[outer] : boxes.w[outer]);
    for (let e = 0; e < scope.value.length; e++) {
      const value = scope.value[e];
      const source = scope.source[e];
      const from = source >= 0 ? first + source : source === BORDER ? outer : -1;
      let labeled = Number.isNaN(layout.labelX[e]);
      if (layout.tail[e] === 1) {
        const many = scope.ptr[e + 1] > scope.ptr[e];
        const along = source < 0 ? start : layout.y[source] + (down ? h[source] : w[source]);
        begin(value, from, -1, 1, 0);
        put(layout.outX[e], along);
        put(layout.outX[e], (source < 0 ? 0 : along) + STUB.length);
        if (!labeled) label(value, layout.labelX[e], layout.labelY[e], many ? SAYS.NAME : SAYS.TYPE);
        labeled = true;
        edges.ptr[++nextEdge] = nextPoint / 2;
      }
      for (let k = scope.ptr[e]; k < scope.ptr[e + 1]; k++) {
        const p0 = layout.linePtr[k];
        const p1 = layout.linePtr[k + 1];
        if (p0 === p1) continue;
        const sink = scope.sink[k];
        const stub = layout.stub[k] === 0 ? 0 : 1;
        begin(value, from, sink >= 0 ? first + sink : sink === BORDER ? outer : -1, stub, scope.captured[k]);
        if (stub === 0 && scope.bundle[e] >= 0) edges.bundle[nextEdge] = tensors + scope.bundle[e];
        for (let p = p0; p < p1; p++) put(layout.line[2 * p], layout.line[2 * p + 1]);
        // where a line passes the border of its scope it begins (ends) on the border of the box
        if (sink === BORDER) points[nextPoint - 2 + alongAxis] = (down ? oy : ox) + end;
        if (source === BORDER && stub === 0) points[nextPoint - 2 * (p1 - p0) + alongAxis] = (down ? oy : ox) + start;
        if (layout.stub[k] === 1) {
          const length = down ? 12 : cache.textWidth(text(columns, value, SAYS.NAME, measure));
          const along = layout.line[2 * p0 + 1] - STUB.above - length / 2;
          label(value, layout.inX[k] - STUB.lead, along, SAYS.NAME);
        } else if (stub === 0 && !labeled) {
          labeled = true;
          label(value, layout.labelX[e], layout.labelY[e], spokenFor(scope, e, measure));
        }
        edges.ptr[++nextEdge] = nextPoint / 2;
      }
    }
    tensors += scope.value.length;
  }
  scopes.boxPtr[queue.length] = nextBox;
  scopes.edgePtr[queue.length] = nextEdge;
  const around = bounds(boxes, edges);
  // a label may stand out to either side of everything
  let left = around.x;
  let right = around.x + around.w;
  for (let edge = 0; edge < edges.count; edge++) {
    if (edges.labelX[edge] < left) left = edges.labelX[edge];
    if (!(edges.labelX[edge] + EDGE_TEXT.type > right)) continue;
    right = Math.max(
      right,
      edges.labelX[edge] + cache.textWidth(text(columns, edges.value[edge], says[edge], measure)),
    );
  }
  const bounded = { ...around, x: left, w: right - left };
  return new Assembled(columns, boxes, edges, scopes, says, bounded, direction, cache.labels, measure);
}

/** Lengthens the queue, which holds the root, by all that is open inside, each after the one around it. */
function count(queue: Arrangement[]): { boxes: number; edges: number; points: number } {
  let boxes = 0;
  let edges = 0;
  let points = 0;
  for (const { scope, layout, inner } of queue) {
    boxes += scope.kind.length;
    points += layout.line.length;
    for (let k = 0; k < scope.sink.length; k++) if (layout.linePtr[k] < layout.linePtr[k + 1]) edges++;
    for (let e = 0; e < layout.tail.length; e++) {
      edges += layout.tail[e];
      points += 4 * layout.tail[e];
    }
    for (const each of inner) if (each !== undefined) queue.push(each);
  }
  return { boxes, edges, points };
}

function newScopes(count: number, boxes: number): Placed {
  return {
    count,
    box: new Int32Array(count).fill(-1),
    boxPtr: new Uint32Array(count + 1),
    edgePtr: new Uint32Array(count + 1),
    inside: new Int32Array(boxes).fill(-1),
  };
}

function newBoxes(count: number): Boxes {
  return {
    count,
    kind: new Uint8Array(count),
    id: new Int32Array(count),
    parent: new Int32Array(count),
    depth: new Uint8Array(count),
    x: new Float32Array(count),
    y: new Float32Array(count),
    w: new Float32Array(count),
    h: new Float32Array(count),
  };
}

function newEdges(count: number, points: number): Edges {
  return {
    count,
    value: new Int32Array(count),
    fromBox: new Int32Array(count),
    toBox: new Int32Array(count),
    scope: new Int32Array(count),
    ptr: new Uint32Array(count + 1),
    points: new Float32Array(points),
    captured: new Uint8Array(count),
    labelX: new Float32Array(count).fill(Number.NaN),
    labelY: new Float32Array(count).fill(Number.NaN),
    bundle: new Int32Array(count).fill(-1),
    stub: new Uint8Array(count),
  };
}

function bounds(boxes: Boxes, edges: Edges): Rect {
  let x0 = Number.POSITIVE_INFINITY;
  let y0 = Number.POSITIVE_INFINITY;
  let x1 = Number.NEGATIVE_INFINITY;
  let y1 = Number.NEGATIVE_INFINITY;
  for (let box = 0; box < boxes.count; box++) {
    x0 = Math.min(x0, boxes.x[box]);
    y0 = Math.min(y0, boxes.y[box]);
    x1 = Math.max(x1, boxes.x[box] + boxes.w[box]);
    y1 = Math.max(y1, boxes.y[box] + boxes.h[box]);
  }
  for (let p = 0; p < edges.points.length; p += 2) {
    x0 = Math.min(x0, edges.points[p]);
    y0 = Math.min(y0, edges.points[p + 1]);
    x1 = Math.max(x1, edges.points[p]);
    y1 = Math.max(y1, edges.points[p + 1]);
  }
  return x1 < x0 ? { x: 0, y: 0, w: 0, h: 0 } : { x: x0, y: y0, w: x1 - x0, h: y1 - y0 };
}

function text(columns: Columns, value: number, what: number, measure: Measure): string {
  if (what === SAYS.NOTHING) return "";
  return what === SAYS.NAME ? nameText(columns, value, measure) : edgeText(columns, value, measure, what);
}

class Assembled implements Scene {
  readonly boxes: Boxes;
  readonly edges: Edges;
  readonly scopes: Placed;
  readonly bounds: Rect;
  readonly direction: Direction;
  readonly #columns: Columns;
  readonly #labels: Labels;
  readonly #measure: Measure;
  readonly #says: Int32Array;
  /** node, group → its box, −1 if it has none */
  readonly #ofNode: Int32Array;
  readonly #ofScope: Int32Array;
  readonly #ofPill = new Map<number, number>();
  #edgesByValue: { ptr: Uint32Array; items: Uint32Array } | undefined;

  constructor(
    columns: Columns,
    boxes: Boxes,
    edges: Edges,
    scopes: Placed,
    says: Int32Array,
    around: Rect,
    direction: Direction,
    labels: Labels,
    measure: Measure,
  ) {
    this.#columns = columns;
    this.boxes = boxes;
    this.edges = edges;
    this.scopes = scopes;
    this.#says = says;
    this.bounds = around;
    this.direction = direction;
    this.#labels = labels;
    this.#measure = measure;
    this.#ofNode = new Int32Array(columns.nodeCount).fill(-1);
    this.#ofScope = new Int32Array(columns.scopeCount).fill(-1);
    for (let box = 0; box < boxes.count; box++) {
      const id = boxes.id[box];
      const kind = boxes.kind[box];
      if (kind === BOX.NODE) this.#ofNode[id] = box;
      else if (kind === BOX.INPUT) this.#ofPill.set(id, box);
      else if (kind === BOX.OUTPUT) this.#ofPill.set(-1 - id, box);
      else this.#ofScope[id] = box;
    }
  }

  boxOf(kind: Target["kind"], id: number): number {
    const columns = this.#columns;
    if (kind === "scope") {
      for (let group = id; group >= 0; group = columns.scopeParent[group]) {
        if (this.#ofScope[group] >= 0) return this.#ofScope[group];
      }
      return -1;
    }
    if (kind === "node") {
      if (this.#ofNode[id] >= 0) return this.#ofNode[id];
      if (columns.nodeBody[id] >= 0) return this.boxOf("scope", columns.nodeBody[id]);
      // a folded node shows in what reads it
      const [made] = columns.outputsOf(id);
      if (columns.isFolded(id) && made !== undefined && made >= 0) return this.#readerOf(made);
      return this.boxOf("scope", columns.nodeScope[id]);
    }
    const pill = this.#ofPill.get(id);
    if (pill !== undefined) return pill;
    const producer = columns.producer[id];
    if (producer >= 0 && !columns.isFolded(producer)) return this.boxOf("node", producer);
    return this.#readerOf(id);
  }

  #readerOf(value: number): number {
    for (const node of this.#columns.consumersOf(value)) {
      if (!this.#columns.isFolded(node)) return this.boxOf("node", node);
    }
    return this.#ofPill.get(-1 - value) ?? -1;
  }

  edgesOf(value: number): Uint32Array {
    this.#edgesByValue ??= this.#byValue();
    const { ptr, items } = this.#edgesByValue;
    return items.subarray(ptr[value], ptr[value + 1]);
  }

  #byValue(): { ptr: Uint32Array; items: Uint32Array } {
    const { value, count: edges } = this.edges;
    const ptr = new Uint32Array(this.#columns.valueCount + 1);
    for (let e = 0; e < edges; e++) ptr[value[e] + 1]++;
    for (let v = 0; v < this.#columns.valueCount; v++) ptr[v + 1] += ptr[v];
    const fill = ptr.slice();
    const items = new Uint32Array(edges);
    for (let e = 0; e < edges; e++) items[fill[value[e]]++] = e;
    return { ptr, items };
  }

  boxesOfValue(value: number): { readonly producer: number; readonly consumers: readonly number[] } {
    const columns = this.#columns;
    const made = columns.producer[value];
    const producer = made >= 0 ? this.boxOf("node", made) : (this.#ofPill.get(value) ?? -1);
    const consumers = new Set<number>();
    for (const node of columns.consumersOf(value)) if (!columns.isFolded(node)) consumers.add(this.boxOf("node", node));
    const output = this.#ofPill.get(-1 - value);
    if (output !== undefined) consumers.add(output);
    consumers.delete(-1);
    return { producer, consumers: [...consumers] };
  }

  label(box: number): Label {
    return this.#labels.of(this.boxes.kind[box], this.boxes.id[box]).label;
  }

  edgeLabel(edge: number): string {
    return text(this.#columns, this.edges.value[edge], this.#says[edge], this.#measure);
  }
}
