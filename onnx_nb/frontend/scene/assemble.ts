/** Assembles the layouts of the open scopes into one scene, from the root inward. */

import { STUB } from "../layout/graph.ts";
import type { Columns, Target } from "../protocol/columns.ts";
import { EDGE_TEXT, edgeText, nameText, spokenFor } from "./arrange.ts";
import type { Arrangement, Cache } from "./cache.ts";
import type { Labels, Measure } from "./labels.ts";
import type { Label } from "./scene.ts";
import { BOX, type Boxes, type Direction, type Edges, type Placed, type Rect, type Scene } from "./scene.ts";
import { BORDER } from "./scopegraph.ts";

/** Content of an edge's label; a number above TYPE means the type of that many tensors. */
const SAYS = { NOTHING: 0, TYPE: 1, NAME: -1 } as const;

/** Scopes added between two yields. */
const SOME = 400;

/** Yields now and then. */
export function* assemble(
  columns: Columns,
  root: Arrangement,
  cache: Cache,
  measure: Measure,
  direction: Direction,
): Generator<number, Scene> {
  const assembler = new Assembler(columns, root, cache, measure, direction);
  for (let at = 0; at < assembler.scopeCount; at++) {
    if (at % SOME === SOME - 1) yield 1;
    assembler.add(at);
  }
  return assembler.scene();
}

/** Fills the columns of a scene, one open scope after the other. */
class Assembler {
  readonly #columns: Columns;
  readonly #cache: Cache;
  readonly #measure: Measure;
  readonly #direction: Direction;
  readonly #down: boolean;
  readonly #queue: Arrangement[];
  readonly #boxes: Boxes;
  readonly #edges: Edges;
  readonly #scopes: Placed;
  readonly #says: Int32Array;
  #nextBox = 0;
  #nextEdge = 0;
  #nextPoint = 0;
  #nextScope = 1;
  /** tensors in the scopes before: the numbers of their bundles begin there */
  #tensors = 0;
  /** of the current scope: the box around it, −1 for the root, and the origin of its layout */
  #outer = -1;
  #ox = 0;
  #oy = 0;

  constructor(columns: Columns, root: Arrangement, cache: Cache, measure: Measure, direction: Direction) {
    this.#columns = columns;
    this.#cache = cache;
    this.#measure = measure;
    this.#direction = direction;
    this.#down = direction === "down";
    this.#queue = [root];
    const sizes = count(this.#queue);
    this.#boxes = newBoxes(sizes.boxes);
    this.#edges = newEdges(sizes.edges, sizes.points);
    this.#scopes = newScopes(this.#queue.length, sizes.boxes);
    this.#says = new Int32Array(sizes.edges);
  }

  get scopeCount(): number {
    return this.#queue.length;
  }

  add(at: number): void {
    const { scope, frame } = this.#queue[at];
    const first = this.#nextBox;
    this.#outer = this.#scopes.box[at];
    if (this.#outer >= 0) {
      this.#ox = this.#boxes.x[this.#outer] + frame.x;
      this.#oy = this.#boxes.y[this.#outer] + frame.y;
    }
    this.#scopes.boxPtr[at] = this.#nextBox;
    this.#scopes.edgePtr[at] = this.#nextEdge;
    this.#addBoxes(this.#queue[at]);
    for (let e = 0; e < scope.value.length; e++) this.#addTensor(this.#queue[at], e, first);
    this.#tensors += scope.value.length;
  }

  #addBoxes({ scope, layout, w, h, inner }: Arrangement): void {
    const boxes = this.#boxes;
    const depth = this.#outer < 0 ? 0 : Math.min(255, boxes.depth[this.#outer] + 1);
    for (let item = 0; item < scope.kind.length; item++) {
      const box = this.#nextBox++;
      const opened = inner[item] !== undefined;
      boxes.kind[box] = opened ? BOX.OPEN : scope.kind[item];
      boxes.id[box] = scope.id[item];
      boxes.parent[box] = this.#outer;
      boxes.depth[box] = depth;
      boxes.x[box] = this.#ox + (this.#down ? layout.x[item] : layout.y[item]);
      boxes.y[box] = this.#oy + (this.#down ? layout.y[item] : layout.x[item]);
      boxes.w[box] = w[item];
      boxes.h[box] = h[item];
      if (!opened) continue;
      this.#scopes.inside[box] = this.#nextScope;
      this.#scopes.box[this.#nextScope++] = box;
    }
  }

  /** Adds the lines of a tensor: a tail if it has stubs or no reader, and one line to each reader. */
  #addTensor({ scope, layout, w, h }: Arrangement, e: number, first: number): void {
    const edges = this.#edges;
    const source = scope.source[e];
    const from = source >= 0 ? first + source : source === BORDER ? this.#outer : -1;
    const [start, end] = this.#borders();
    let labeled = Number.isNaN(layout.labelX[e]);
    if (layout.tail[e] === 1) {
      const many = scope.ptr[e + 1] > scope.ptr[e];
      const along = source < 0 ? start : layout.y[source] + (this.#down ? h[source] : w[source]);
      this.#begin(scope.value[e], from, -1, 1, 0);
      this.#put(layout.outX[e], along);
      this.#put(layout.outX[e], (source < 0 ? 0 : along) + STUB.length);
      if (!labeled) this.#label(scope.value[e], layout.labelX[e], layout.labelY[e], many ? SAYS.NAME : SAYS.TYPE);
      labeled = true;
      edges.ptr[++this.#nextEdge] = this.#nextPoint / 2;
    }
    for (let k = scope.ptr[e]; k < scope.ptr[e + 1]; k++) {
      const [p0, p1] = [layout.linePtr[k], layout.linePtr[k + 1]];
      if (p0 === p1) continue;
      const sink = scope.sink[k];
      const stub = layout.stub[k] === 0 ? 0 : 1;
      const to = sink >= 0 ? first + sink : sink === BORDER ? this.#outer : -1;
      this.#begin(scope.value[e], from, to, stub, scope.captured[k]);
      if (stub === 0 && scope.bundle[e] >= 0) edges.bundle[this.#nextEdge] = this.#tensors + scope.bundle[e];
      for (let p = p0; p < p1; p++) this.#put(layout.line[2 * p], layout.line[2 * p + 1]);
      // a line that passes the border of its scope begins or ends on the border of the box
      const flow = this.#down ? 1 : 0;
      const origin = this.#down ? this.#oy : this.#ox;
      if (sink === BORDER) edges.points[this.#nextPoint - 2 + flow] = origin + end;
      if (source === BORDER && stub === 0) edges.points[this.#nextPoint - 2 * (p1 - p0) + flow] = origin + start;
      if (layout.stub[k] === 1) {
        const length = this.#down ? 12 : this.#textWidth(scope.value[e], SAYS.NAME);
        const along = layout.line[2 * p0 + 1] - STUB.above - length / 2;
        this.#label(scope.value[e], layout.inX[k] - STUB.lead, along, SAYS.NAME);
      } else if (stub === 0 && !labeled) {
        labeled = true;
        this.#label(scope.value[e], layout.labelX[e], layout.labelY[e], spokenFor(scope, e, this.#measure));
      }
      edges.ptr[++this.#nextEdge] = this.#nextPoint / 2;
    }
  }

  /** Begin and end of the box around the current scope along the flow, relative to the origin of the layout. */
  #borders(): [start: number, end: number] {
    if (this.#outer < 0) return [0, 0];
    const { x, y, w, h } = this.#boxes;
    const start = this.#down ? y[this.#outer] - this.#oy : x[this.#outer] - this.#ox;
    return [start, start + (this.#down ? h[this.#outer] : w[this.#outer])];
  }

  /** Adds a point: across and along the flow → world. */
  #put(across: number, along: number): void {
    const { points } = this.#edges;
    points[this.#nextPoint++] = this.#ox + (this.#down ? across : along);
    points[this.#nextPoint++] = this.#oy + (this.#down ? along : across);
  }

  #begin(value: number, from: number, to: number, stub: number, captured: number): void {
    const edges = this.#edges;
    edges.value[this.#nextEdge] = value;
    edges.fromBox[this.#nextEdge] = from;
    edges.toBox[this.#nextEdge] = to;
    edges.scope[this.#nextEdge] = this.#outer;
    edges.captured[this.#nextEdge] = captured;
    edges.stub[this.#nextEdge] = stub;
  }

  #label(value: number, across: number, along: number, what: number): void {
    this.#says[this.#nextEdge] = what;
    const width = this.#down ? 0 : this.#textWidth(value, what);
    this.#edges.labelX[this.#nextEdge] = this.#down ? this.#ox + across : this.#ox + along - width / 2;
    this.#edges.labelY[this.#nextEdge] = this.#down ? this.#oy + along : this.#oy + across + 6;
  }

  #textWidth(value: number, what: number): number {
    return this.#cache.textWidth(text(this.#columns, value, what, this.#measure));
  }

  scene(): Scene {
    const [boxes, edges, says] = [this.#boxes, this.#edges, this.#says];
    this.#scopes.boxPtr[this.#queue.length] = this.#nextBox;
    this.#scopes.edgePtr[this.#queue.length] = this.#nextEdge;
    const around = bounds(boxes, edges);
    // a label may extend beyond every box
    let left = around.x;
    let right = around.x + around.w;
    for (let edge = 0; edge < edges.count; edge++) {
      if (edges.labelX[edge] < left) left = edges.labelX[edge];
      if (!(edges.labelX[edge] + EDGE_TEXT.type > right)) continue;
      right = Math.max(right, edges.labelX[edge] + this.#textWidth(edges.value[edge], says[edge]));
    }
    const bounded = { ...around, x: left, w: right - left };
    const { labels } = this.#cache;
    return new Assembled(
      this.#columns,
      boxes,
      edges,
      this.#scopes,
      says,
      bounded,
      this.#direction,
      labels,
      this.#measure,
    );
  }
}

/** Appends every open scope inside the root to the queue, each after its parent. */
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
  /** node, scope → its box, −1 if it has none */
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
      for (let scope = id; scope >= 0; scope = columns.scopeParent[scope]) {
        if (this.#ofScope[scope] >= 0) return this.#ofScope[scope];
      }
      return -1;
    }
    if (kind === "node") {
      if (this.#ofNode[id] >= 0) return this.#ofNode[id];
      if (columns.nodeBody[id] >= 0) return this.boxOf("scope", columns.nodeBody[id]);
      // a folded node is shown in its reader
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
