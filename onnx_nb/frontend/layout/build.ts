/**
 * Builds the scene of a model with some of its scopes open. Inner scopes are laid out first and become boxes of their
 * parents; equal scopes share one layout through the cache. The layouts are assembled from the root inward.
 */

import { type Columns, itemsBy, type Rows, rowOf, runToEnd, type Target } from "../protocol/columns.ts";
import type { Direction } from "../protocol/host.ts";
import type { Measure } from "../scene/labels.ts";
import {
  BOX,
  type Boxes,
  type Edges,
  type Label,
  type OpenScopes,
  type Rect,
  type Scene,
  type Size,
} from "../scene/scene.ts";
import { BORDER } from "../scene/scopegraph.ts";
import { arrangeAll, EDGE_TEXT, edgeText, nameText, spokenFor } from "./arrange.ts";
import { type Arrangement, Cache } from "./cache.ts";
import { STUB } from "./graph.ts";

interface Options {
  readonly direction?: Direction;
  /** px that the scene should fit; open scopes that do not are folded to pages */
  readonly room?: Size | undefined;
}

export function createCache(): Cache {
  return new Cache();
}

export function buildScene(
  columns: Columns,
  open: ReadonlySet<number>,
  measure: Measure,
  cache: Cache,
  options: Options = {},
): Scene {
  return runToEnd(sceneInParts(columns, open, measure, cache, options));
}

/** Scopes added between two yields. */
const SCOPES_PER_STEP = 400;

/** Builds the same in parts of a few milliseconds each; yields the finished fraction. */
export function* sceneInParts(
  columns: Columns,
  open: ReadonlySet<number>,
  measure: Measure,
  cache: Cache,
  { direction = "down", room }: Options = {},
): Generator<number, Scene> {
  cache.use(columns, measure);
  const root = yield* arrangeIn(room, columns, open, cache, direction, measure);
  const scene = new BuiltScene(columns, root, cache, measure, direction);
  for (let at = 0; at < scene.scopes.count; at++) {
    if (at % SCOPES_PER_STEP === SCOPES_PER_STEP - 1) yield 1;
    scene.add(at);
  }
  scene.finish();
  return scene;
}

/** Zoom at which everything is legible. */
const LEGIBLE = 0.58;
/** Part of the view that is full enough, in one direction where the other one is filled. */
const FULL = 0.68;
/** Factor by which a page must be larger than the columns of the first view where those are legible. */
const GAIN = 1.05;
/** Aspect ratios of inner scopes, relative to the view, tried in turn, and open scopes beyond which only the first is. */
const SCOPE_ASPECTS = [0.85, 1.4, 0.55, 1.1, 2] as const;
const MAX_SCOPES_FOR_RETRY = 1500;

/** Arranges in the columns of the first view while that is legible and full, else on the page that can be shown largest. */
function* arrangeIn(
  room: Size | undefined,
  columns: Columns,
  open: ReadonlySet<number>,
  cache: Cache,
  direction: Direction,
  measure: Measure,
): Generator<number, Arrangement> {
  let best: { root: Arrangement; page: Cache["page"]; zoom: number; score: number } | undefined;
  const view = room === undefined ? 0 : room.w / room.h;
  const pages = room === undefined ? [null] : [null, ...SCOPE_ASPECTS.map((scope) => ({ view, scope: view * scope }))];
  const isLarge = room !== undefined && open.size > MAX_SCOPES_FOR_RETRY;
  for (const page of isLarge ? pages.slice(1, 2) : pages) {
    cache.page = page;
    const root = (yield* arrangeAll(columns, open, cache, direction, measure)) as Arrangement;
    const { width, height } = root.layout;
    const [w, h] = direction === "down" ? [width, height] : [height, width];
    const [across, along] = room === undefined ? [1, 1] : [room.w / w, room.h / h];
    const [zoom, fill] = [Math.min(1, across, along), Math.min(across, along) / Math.max(across, along)];
    if (page === null && (zoom === 1 || (zoom >= LEGIBLE && fill >= FULL))) return root;
    const score = zoom * (fill < FULL ? fill : 1);
    const isLegible = best?.page === null && best.zoom >= LEGIBLE;
    if (best === undefined || (isLegible ? zoom > GAIN * best.zoom : score > best.score))
      best = { root, page, zoom, score };
  }
  cache.page = best?.page ?? null;
  return best?.root as Arrangement;
}

/** Returns whether the scene with some scopes open would fit, without building it. */
export function fitsInto(
  room: Size,
  columns: Columns,
  open: ReadonlySet<number>,
  measure: Measure,
  cache: Cache,
  direction: Direction,
): boolean {
  cache.use(columns, measure);
  cache.page = null;
  const layout = runToEnd(arrangeAll(columns, open, cache, direction, measure, room))?.layout;
  return layout !== undefined && layout.width <= room.w && layout.height <= room.h;
}

/** Content of an edge's label; a number above TYPE represents the type of that many tensors. */
const LABEL = { NOTHING: 0, TYPE: 1, NAME: -1 } as const;

/** A scene that is filled with one open scope after the other. */
class BuiltScene implements Scene {
  readonly boxes: Boxes;
  readonly edges: Edges;
  readonly scopes: OpenScopes;
  readonly direction: Direction;
  bounds: Rect = { x: 0, y: 0, w: 0, h: 0 };
  readonly #columns: Columns;
  readonly #cache: Cache;
  readonly #measure: Measure;
  readonly #down: boolean;
  readonly #queue: Arrangement[];
  readonly #labelContent: Int32Array;
  /** node, scope → its box, −1 if it has none */
  readonly #ofNode: Int32Array;
  readonly #ofScope: Int32Array;
  /** value → pill of an input, −1 − value → pill of an output */
  readonly #ofPill = new Map<number, number>();
  #edgesByValue: Rows | undefined;
  #nextBox = 0;
  #nextEdge = 0;
  #nextPoint = 0;
  #nextScope = 1;
  /** tensors in the previous scopes: the numbers of their bundles begin there */
  #tensors = 0;
  /** for the current scope: the box around it, −1 for the root, and the origin of its layout */
  #outer = -1;
  #ox = 0;
  #oy = 0;

  constructor(columns: Columns, root: Arrangement, cache: Cache, measure: Measure, direction: Direction) {
    this.#columns = columns;
    this.#cache = cache;
    this.#measure = measure;
    this.direction = direction;
    this.#down = direction === "down";
    this.#queue = [root];
    this.#ofNode = new Int32Array(columns.nodeCount).fill(-1);
    this.#ofScope = new Int32Array(columns.scopeCount).fill(-1);
    let [boxes, edges, points] = [0, 0, 0];
    // the queue grows by every open scope inside the root, each after its parent
    for (const { scope, layout, inner } of this.#queue) {
      boxes += scope.kind.length;
      points += layout.line.length;
      for (let k = 0; k < scope.sink.length; k++) if (layout.linePtr[k] < layout.linePtr[k + 1]) edges++;
      for (const tail of layout.tail) {
        edges += tail;
        points += 4 * tail;
      }
      for (const child of inner) if (child !== undefined) this.#queue.push(child);
    }
    const count = this.#queue.length;
    this.scopes = {
      count,
      box: new Int32Array(count).fill(-1),
      boxPtr: new Uint32Array(count + 1),
      edgePtr: new Uint32Array(count + 1),
      inside: new Int32Array(boxes).fill(-1),
    };
    this.boxes = {
      count: boxes,
      kind: new Uint8Array(boxes),
      id: new Int32Array(boxes),
      parent: new Int32Array(boxes),
      depth: new Uint8Array(boxes),
      x: new Float32Array(boxes),
      y: new Float32Array(boxes),
      w: new Float32Array(boxes),
      h: new Float32Array(boxes),
    };
    this.edges = {
      count: edges,
      value: new Int32Array(edges),
      fromBox: new Int32Array(edges),
      toBox: new Int32Array(edges),
      scope: new Int32Array(edges),
      ptr: new Uint32Array(edges + 1),
      points: new Float32Array(points),
      outerScope: new Uint8Array(edges),
      labelX: new Float32Array(edges).fill(Number.NaN),
      labelY: new Float32Array(edges).fill(Number.NaN),
      bundle: new Int32Array(edges).fill(-1),
      stub: new Uint8Array(edges),
    };
    this.#labelContent = new Int32Array(edges);
  }

  // ---------------------------------------------------------------- filling

  /** Adds the boxes and lines of an open scope. */
  add(at: number): void {
    const arrangement = this.#queue[at];
    const { boxes, scopes } = this;
    const { scope, layout, w, h, inner, frame } = arrangement;
    const first = this.#nextBox;
    const outer = scopes.box[at];
    this.#outer = outer;
    if (outer >= 0) {
      this.#ox = boxes.x[outer] + frame.x;
      this.#oy = boxes.y[outer] + frame.y;
    }
    scopes.boxPtr[at] = first;
    scopes.edgePtr[at] = this.#nextEdge;
    const depth = outer < 0 ? 0 : Math.min(255, boxes.depth[outer] + 1);
    for (let item = 0; item < scope.kind.length; item++) {
      const box = this.#nextBox++;
      const kind = scope.kind[item];
      const id = scope.id[item];
      const isOpen = inner[item] !== undefined;
      boxes.kind[box] = isOpen ? BOX.OPEN : kind;
      boxes.id[box] = id;
      boxes.parent[box] = outer;
      boxes.depth[box] = depth;
      boxes.x[box] = this.#ox + (this.#down ? layout.x[item] : layout.y[item]);
      boxes.y[box] = this.#oy + (this.#down ? layout.y[item] : layout.x[item]);
      boxes.w[box] = w[item];
      boxes.h[box] = h[item];
      if (kind === BOX.NODE) this.#ofNode[id] = box;
      else if (kind === BOX.SCOPE) this.#ofScope[id] = box;
      else this.#ofPill.set(kind === BOX.INPUT ? id : -1 - id, box);
      if (!isOpen) continue;
      scopes.inside[box] = this.#nextScope;
      scopes.box[this.#nextScope++] = box;
    }
    for (let e = 0; e < scope.value.length; e++) this.#addTensor(arrangement, e, first);
    this.#tensors += scope.value.length;
  }

  /** Adds the lines of a tensor: a tail if it has stubs or no reader, and one line to each reader. */
  #addTensor({ scope, layout, w, h }: Arrangement, e: number, first: number): void {
    const edges = this.edges;
    const source = scope.source[e];
    const from = source >= 0 ? first + source : source === BORDER ? this.#outer : -1;
    const [start, end] = this.#borders();
    let hasLabel = Number.isNaN(layout.labelX[e]);
    if (layout.tail[e] === 1) {
      const hasReaders = scope.ptr[e + 1] > scope.ptr[e];
      const along = source < 0 ? start : layout.y[source] + (this.#down ? h[source] : w[source]);
      this.#begin(scope.value[e], from, -1, 1, 0);
      this.#addPoint(layout.outX[e], along);
      this.#addPoint(layout.outX[e], (source < 0 ? 0 : along) + STUB.length);
      if (!hasLabel)
        this.#label(scope.value[e], layout.labelX[e], layout.labelY[e], hasReaders ? LABEL.NAME : LABEL.TYPE);
      hasLabel = true;
      edges.ptr[++this.#nextEdge] = this.#nextPoint / 2;
    }
    for (let k = scope.ptr[e]; k < scope.ptr[e + 1]; k++) {
      const [p0, p1] = [layout.linePtr[k], layout.linePtr[k + 1]];
      if (p0 === p1) continue;
      const sink = scope.sink[k];
      const stub = layout.stub[k] === 0 ? 0 : 1;
      const to = sink >= 0 ? first + sink : sink === BORDER ? this.#outer : -1;
      this.#begin(scope.value[e], from, to, stub, scope.outerScope[k]);
      if (stub === 0 && scope.bundle[e] >= 0) edges.bundle[this.#nextEdge] = this.#tensors + scope.bundle[e];
      for (let p = p0; p < p1; p++) this.#addPoint(layout.line[2 * p], layout.line[2 * p + 1]);
      // a line that passes the border of its scope begins or ends on the border of the box
      const flow = this.#down ? 1 : 0;
      const origin = this.#down ? this.#oy : this.#ox;
      if (sink === BORDER) edges.points[this.#nextPoint - 2 + flow] = origin + end;
      if (source === BORDER && stub === 0) edges.points[this.#nextPoint - 2 * (p1 - p0) + flow] = origin + start;
      if (layout.stub[k] === 1) {
        const length = this.#down ? 12 : this.#textWidth(scope.value[e], LABEL.NAME);
        const along = layout.line[2 * p0 + 1] - STUB.above - length / 2;
        this.#label(scope.value[e], layout.inX[k] - STUB.lead, along, LABEL.NAME);
      } else if (stub === 0 && !hasLabel) {
        hasLabel = true;
        this.#label(scope.value[e], layout.labelX[e], layout.labelY[e], spokenFor(scope, e, this.#measure));
      }
      edges.ptr[++this.#nextEdge] = this.#nextPoint / 2;
    }
  }

  /** Returns the begin and end of the box around the current scope along the flow, relative to the layout's origin. */
  #borders(): [start: number, end: number] {
    if (this.#outer < 0) return [0, 0];
    const { x, y, w, h } = this.boxes;
    const start = this.#down ? y[this.#outer] - this.#oy : x[this.#outer] - this.#ox;
    return [start, start + (this.#down ? h[this.#outer] : w[this.#outer])];
  }

  /** Adds a point: across and along the flow → world. */
  #addPoint(across: number, along: number): void {
    const { points } = this.edges;
    points[this.#nextPoint++] = this.#ox + (this.#down ? across : along);
    points[this.#nextPoint++] = this.#oy + (this.#down ? along : across);
  }

  #begin(value: number, from: number, to: number, stub: number, outerScope: number): void {
    const edges = this.edges;
    edges.value[this.#nextEdge] = value;
    edges.fromBox[this.#nextEdge] = from;
    edges.toBox[this.#nextEdge] = to;
    edges.scope[this.#nextEdge] = this.#outer;
    edges.outerScope[this.#nextEdge] = outerScope;
    edges.stub[this.#nextEdge] = stub;
  }

  #label(value: number, across: number, along: number, what: number): void {
    this.#labelContent[this.#nextEdge] = what;
    const width = this.#down ? 0 : this.#textWidth(value, what);
    this.edges.labelX[this.#nextEdge] = this.#down ? this.#ox + across : this.#ox + along - width / 2;
    this.edges.labelY[this.#nextEdge] = this.#down ? this.#oy + along : this.#oy + across + 6;
  }

  #text(value: number, what: number): string {
    if (what === LABEL.NOTHING) return "";
    if (what === LABEL.NAME) return nameText(this.#columns, value, this.#measure);
    return edgeText(this.#columns, value, this.#measure, what);
  }

  #textWidth(value: number, what: number): number {
    return this.#cache.textWidth(this.#text(value, what));
  }

  /** Measures the scene once it is complete. */
  finish(): void {
    const { boxes, edges, scopes } = this;
    scopes.boxPtr[scopes.count] = this.#nextBox;
    scopes.edgePtr[scopes.count] = this.#nextEdge;
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let box = 0; box < boxes.count; box++) {
      left = Math.min(left, boxes.x[box]);
      top = Math.min(top, boxes.y[box]);
      right = Math.max(right, boxes.x[box] + boxes.w[box]);
      bottom = Math.max(bottom, boxes.y[box] + boxes.h[box]);
    }
    for (let p = 0; p < edges.points.length; p += 2) {
      left = Math.min(left, edges.points[p]);
      top = Math.min(top, edges.points[p + 1]);
      right = Math.max(right, edges.points[p]);
      bottom = Math.max(bottom, edges.points[p + 1]);
    }
    if (right < left) return;
    // a label may extend beyond every box
    for (let edge = 0; edge < edges.count; edge++) {
      if (edges.labelX[edge] < left) left = edges.labelX[edge];
      if (!(edges.labelX[edge] + EDGE_TEXT.type > right)) continue;
      right = Math.max(right, edges.labelX[edge] + this.#textWidth(edges.value[edge], this.#labelContent[edge]));
    }
    this.bounds = { x: left, y: top, w: right - left, h: bottom - top };
  }

  // ---------------------------------------------------------------- queries

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
      const [output] = columns.outputsOf(id);
      if (columns.isFolded(id) && output !== undefined && output >= 0) return this.#readerOf(output);
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
      const box = this.boxOf("node", node);
      if (box >= 0) return box;
    }
    return this.#ofPill.get(-1 - value) ?? -1;
  }

  edgesOf(value: number): Uint32Array {
    this.#edgesByValue ??= itemsBy(this.edges.value, this.#columns.valueCount);
    return rowOf(this.#edgesByValue, value);
  }

  boxesOfValue(value: number): { readonly producer: number; readonly consumers: readonly number[] } {
    const columns = this.#columns;
    const producerNode = columns.producer[value];
    const producer = producerNode >= 0 ? this.boxOf("node", producerNode) : (this.#ofPill.get(value) ?? -1);
    const consumers = new Set<number>();
    for (const node of columns.consumersOf(value)) if (!columns.isFolded(node)) consumers.add(this.boxOf("node", node));
    const output = this.#ofPill.get(-1 - value);
    if (output !== undefined) consumers.add(output);
    consumers.delete(-1);
    return { producer, consumers: [...consumers] };
  }

  label(box: number): Label {
    return this.#cache.labels.of(this.boxes.kind[box], this.boxes.id[box]).label;
  }

  edgeLabel(edge: number): string {
    return this.#text(this.edges.value[edge], this.#labelContent[edge]);
  }
}
