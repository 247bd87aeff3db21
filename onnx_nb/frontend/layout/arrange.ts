/** Lays out every open scope, from the innermost out: an open scope becomes one box of its parent, with fixed ports. */

import type { Columns } from "../protocol/columns.ts";
import type { Direction } from "../protocol/host.ts";
import { integer } from "../scene/formatting.ts";
import { briefType, elide, elideType, type Measure, TEXT, typeText } from "../scene/labels.ts";
import { BOX } from "../scene/scene.ts";
import { BORDER, type ScopeGraph, scopesOf } from "../scene/scopegraph.ts";
import type { Arrangement, Cache, DividableLayout } from "./cache.ts";
import { type Graph, type Layout, PORTS } from "./graph.ts";

/** Pixels of padding around the content of an open scope and its title strip; no line enters at the toggle. */
const PAD = { side: 12, toggle: 28, title: 32, end: 12, beforePorts: 15, afterPorts: 0 } as const;
/** Pixels: maximum width of the text on an edge and at a stub. */
export const EDGE_TEXT = { type: 170, brief: 92, name: 110, height: 12 } as const;
/** Pixels between the ports on a side of a box, maximum number of ports that widen it, and pixels to the corners. */
const PORT = { apart: 12, most: 24, corners: 12 } as const;
/** A tensor with more readers than this in one scope shows its name where its tail leaves the source. */
const MAX_LABELED_READERS = 8;

const NO_ITEMS: readonly undefined[] = [];
/** Height at which an open scope is set in columns, relative to the columns of the outermost scope. */
export const INNER = 0.65;
/** Pixels along the flow below which an inner scope stays in one column. */
const MIN_FOLD = { down: 420, right: 700 } as const;

/**
 * Arranges the visible open scopes from the innermost out and returns the root's arrangement. A scope in which nothing
 * opened or closed keeps its arrangement. Yields the finished fraction before each layout.
 *
 * @param room into which the root must fit: returns undefined if an inner scope alone is larger
 */
export function* arrangeAll(
  columns: Columns,
  open: ReadonlySet<number>,
  cache: Cache,
  direction: Direction,
  measure: Measure,
  room = UNBOUNDED,
): Generator<number, Arrangement | undefined> {
  const visible: number[] = [0];
  const shows = new Uint8Array(columns.scopeCount);
  shows[0] = 1;
  for (let scope = 1; scope < columns.scopeCount; scope++) {
    if (!open.has(scope) || !shows[columns.scopeParent[scope]]) continue;
    shows[scope] = 1;
    visible.push(scope);
  }
  visible.sort((a, b) => columns.scopeDepth[b] - columns.scopeDepth[a] || a - b);
  const { arranged: arrangements, latest: latestOf } = cache.arrangements(direction);
  const innerOf = ({ kind, id }: ScopeGraph, item: number): Arrangement | undefined =>
    kind[item] === BOX.SCOPE && shows[id[item]] === 1 ? arrangements.get(id[item]) : undefined;
  const holds = (candidate: Arrangement | undefined): candidate is Arrangement =>
    candidate?.inner.every((inner, item) => inner === innerOf(candidate.scope, item)) === true;
  for (let at = 0; at < visible.length; at++) {
    let arrangement = arrangements.get(visible[at]);
    if (!holds(arrangement)) {
      yield at / visible.length;
      const previousOne = latestOf.get(visible[at]);
      if (holds(previousOne)) arrangement = inFold(columns, previousOne, cache, direction);
      else {
        const scope = scopesOf(columns).of(visible[at]);
        const inner = scope.kind.includes(BOX.SCOPE)
          ? Array.from(scope.kind, (_, item) => innerOf(scope, item))
          : NO_ITEMS;
        arrangement = arrange(columns, scope, inner, cache, direction, measure);
      }
      arrangements.set(visible[at], arrangement);
      latestOf.set(visible[at], arrangement);
    }
    if (visible[at] > 0 && (arrangement.frame.w > room.w || arrangement.frame.h > room.h)) return undefined;
  }
  return arrangements.get(0);
}

const UNBOUNDED = { w: Number.POSITIVE_INFINITY, h: Number.POSITIVE_INFINITY } as const;

function arrange(
  columns: Columns,
  scope: ScopeGraph,
  inner: readonly (Arrangement | undefined)[],
  cache: Cache,
  direction: Direction,
  measure: Measure,
): Arrangement {
  const count = scope.kind.length;
  const w = new Float64Array(count);
  const h = new Float64Array(count);
  const ports = new Uint8Array(count);
  const outOffset = new Float64Array(scope.value.length);
  const inOffset = new Float64Array(scope.sink.length);
  const weight = new Float64Array(count);
  const outWay = new Float64Array(scope.value.length);
  const inWay = new Float64Array(scope.sink.length);
  const openItems: (ReadonlyMap<number, Port> | undefined)[] = [];
  const minWidth = portRoom(scope);
  const across = direction === "down" ? w : h;
  for (let item = 0; item < count; item++) {
    const child = inner[item];
    ports[item] = scope.kind[item] === BOX.SCOPE ? PORTS.FREE : PORTS.ORDERED;
    weight[item] = weigh(columns, scope.kind[item], scope.id[item]);
    if (child === undefined) {
      const size = cache.size(scope.kind[item], scope.id[item]);
      w[item] = size.w;
      h[item] = size.h;
      across[item] = Math.max(across[item], minWidth[item]);
      continue;
    }
    const { frame } = child;
    w[item] = frame.w;
    h[item] = frame.h;
    ports[item] = PORTS.FIXED;
    openItems[item] = borderPorts(child, direction === "down" ? frame.x : frame.y);
  }
  for (let e = 0; e < scope.value.length; e++) {
    const from = scope.source[e];
    const out = from >= 0 ? openItems[from]?.get(-1 - scope.value[e]) : undefined;
    outOffset[e] = out?.place ?? 0;
    outWay[e] = out?.way ?? 0;
    for (let k = scope.ptr[e]; k < scope.ptr[e + 1]; k++) {
      const into = scope.sink[k] >= 0 ? openItems[scope.sink[k]]?.get(scope.value[e]) : undefined;
      inOffset[k] = into?.place ?? 0;
      inWay[k] = into?.way ?? 0;
    }
  }
  const down = direction === "down";
  const text = labelRoom(columns, scope, cache, measure);
  const graph: Graph = {
    width: down ? w : h,
    height: down ? h : w,
    ports,
    weight,
    source: scope.source,
    ptr: scope.ptr,
    sink: scope.sink,
    outSlot: scope.outSlot,
    inSlot: scope.inSlot,
    outOffset,
    inOffset,
    outWay,
    inWay,
    labelWidth: down ? text.label : text.label.map(textHeight),
    labelLength: down ? text.label.map(textHeight) : text.label,
    nameWidth: down ? text.name : text.name.map(textHeight),
    nameLength: down ? text.name.map(textHeight) : text.name,
  };
  const undivided = cache.layout(graph);
  const { width, height } = undivided;
  const layout = divide(columns, scope, undivided, cache, direction);
  const frame = frameOf(scope, layout, cache, direction);
  return { scope, undivided, layout, w: down ? width : height, h: down ? height : width, inner, frame };
}

/** Returns the layout of a scope in columns of the current height, or on the current page. */
function divide(
  columns: Columns,
  { scope }: ScopeGraph,
  { layout, divider }: DividableLayout,
  { columnHeight, page }: Cache,
  direction: Direction,
): Layout {
  if (page !== null) {
    const aspect = 2 * columns.scopeNodes[scope] > columns.nodeCount ? page.view : page.scope;
    if (scope > 0 && layout.height < MIN_FOLD[direction]) return layout;
    return divider.onPage(direction === "down" ? aspect : 1 / aspect);
  }
  const height = scope === 0 ? columnHeight : Math.round(INNER * columnHeight);
  return direction === "down" && height > 0 ? divider.inColumns(height) : layout;
}

/** Returns an arrangement in the current fold; the same one if it is divided in the same places. */
function inFold(columns: Columns, arrangement: Arrangement, cache: Cache, direction: Direction): Arrangement {
  const { scope, undivided } = arrangement;
  const layout = divide(columns, scope, undivided, cache, direction);
  if (layout === arrangement.layout) return arrangement;
  return { ...arrangement, layout, frame: frameOf(scope, layout, cache, direction) };
}

/** Returns the minimum width of each item for the ports on its sides. */
function portRoom(scope: ScopeGraph): Float64Array {
  const ins = new Uint32Array(scope.kind.length);
  const outs = new Uint32Array(scope.kind.length);
  for (const item of scope.sink) if (item >= 0) ins[item]++;
  for (const item of scope.source) if (item >= 0) outs[item]++;
  return Float64Array.from(ins, (count, item) => {
    const ports = Math.min(PORT.most, Math.max(count, outs[item]));
    return ports < 2 ? 0 : PORT.corners + PORT.apart * (ports - 1);
  });
}

/** Operators with learned weights are the main path through a model; shapes and masks are drawn at its side. */
const MAIN = new Set(["linear", "normalize", "activation", "pool"]);

function weigh(columns: Columns, kind: number, id: number): number {
  if (kind === BOX.INPUT) return 4;
  if (kind === BOX.NODE) {
    if (readsMatrix(columns, id)) return 20;
    return MAIN.has(columns.meta.categories[columns.categoryOf(id)]) ? 4 : 1;
  }
  if (kind !== BOX.SCOPE) return 0;
  return 1 + Math.min(20, columns.scopeNodes[id] / 4) + 2 * Math.log2(1 + columns.scopeParams[id]);
}

function readsMatrix(columns: Columns, node: number): boolean {
  for (let k = columns.inPtr[node]; k < columns.inPtr[node + 1]; k++) {
    const value = columns.inValue[k];
    if (value >= 0 && columns.isConstant(value) && columns.shapeOf(value).includes("×")) return true;
  }
  return false;
}

function textHeight(width: number): number {
  return width > 0 ? EDGE_TEXT.height : 0;
}

interface Port {
  readonly place: number;
  readonly way: number;
}

/** Returns the port of each tensor on the borders of an open scope: inputs by value, outputs by −1 − value. */
function borderPorts({ scope, layout }: Arrangement, shift: number): Map<number, Port> {
  const places = new Map<number, Port>();
  for (let e = 0; e < scope.value.length; e++) {
    if (scope.source[e] === BORDER) {
      places.set(scope.value[e], { place: shift + layout.outX[e], way: layout.entryWay[e] });
    }
    for (let k = scope.ptr[e]; k < scope.ptr[e + 1]; k++) {
      if (scope.sink[k] === BORDER) {
        places.set(-1 - scope.value[e], { place: shift + layout.inX[k], way: layout.exitWay[k] });
      }
    }
  }
  return places;
}

/** Returns the size of an open scope and the origin of its layout inside it. */
function frameOf(scope: ScopeGraph, layout: Layout, cache: Cache, direction: Direction): Arrangement["frame"] {
  const title = cache.size(BOX.OPEN, scope.scope);
  const hasInput = scope.source.includes(BORDER);
  const left = scope.sink.includes(BORDER);
  if (direction === "down") {
    let port = Number.POSITIVE_INFINITY;
    for (let e = 0; e < scope.source.length; e++) if (scope.source[e] === BORDER) port = Math.min(port, layout.outX[e]);
    const side = Math.ceil(Math.max(PAD.side, PAD.toggle - port));
    const w = Math.ceil(Math.max(layout.width + side + PAD.side, title.w) / 2) * 2;
    const y = hasInput ? PAD.beforePorts : PAD.title;
    const h = Math.ceil(y + layout.height + (left ? PAD.afterPorts : PAD.end));
    return { w, h, x: side + Math.floor((w - layout.width - side - PAD.side) / 2), y };
  }
  const x = hasInput ? PAD.afterPorts : PAD.side;
  const w = Math.ceil(Math.max(x + layout.height + (left ? PAD.afterPorts : PAD.end), title.w));
  return { w, h: Math.ceil((PAD.title + layout.width + PAD.end) / 2) * 2, x, y: PAD.title };
}

/** Pixels between a label and the line next to it. */
const LABEL_MARGIN = 8;
/** Pixels between the names of two stubs. */
const NAME_MARGIN = 4;

/** Returns the widths of the texts on hyperedges (0: none) and of their names at stubs. */
function labelRoom(
  columns: Columns,
  scope: ScopeGraph,
  cache: Cache,
  measure: Measure,
): { label: Float64Array; name: Float64Array } {
  const label = new Float64Array(scope.value.length);
  const name = new Float64Array(scope.value.length);
  for (let e = 0; e < scope.value.length; e++) {
    const readers = scope.ptr[e + 1] - scope.ptr[e];
    if (readers > MAX_LABELED_READERS || scope.source[e] < BORDER) {
      name[e] = cache.textWidth(nameText(columns, scope.value[e], measure)) + NAME_MARGIN;
      if (scope.source[e] !== BORDER) label[e] = name[e];
      continue;
    }
    // a tensor that only passes a border is labeled on the other side of it
    const inside = scope.source[e] >= 0 && (readers === 0 || scope.sink[scope.ptr[e]] >= 0 || readers > 1);
    const represents = spokenFor(scope, e, measure);
    if (inside && represents > 0)
      label[e] = cache.textWidth(edgeText(columns, scope.value[e], measure, represents)) + LABEL_MARGIN;
  }
  return { label, name };
}

/** Returns the number of tensors that the label of a hyperedge represents, 0 for none. */
export function spokenFor(scope: ScopeGraph, e: number, measure: Measure): number {
  return (measure.brief === true ? scope.speaksBriefly : scope.speaksFor)[e];
}

/** Returns "4×8 f32", or "64 tensors 4×8 f32" for many of one type; in brief "4×8 f32 +63". */
export function edgeText(columns: Columns, value: number, measure: Measure, count = 1): string {
  const { brief = false } = measure;
  const fullText = brief ? briefType(columns, value) : typeText(columns, value);
  const type = elideType(fullText, brief ? EDGE_TEXT.brief : EDGE_TEXT.type, TEXT.edge, false, measure);
  if (count === 1) return type;
  return brief ? `${type} +${integer(count - 1)}` : `${integer(count)} tensors ${type}`.trimEnd();
}

export function nameText(columns: Columns, value: number, measure: Measure): string {
  return elide(columns.valueNameOf(value), EDGE_TEXT.name, TEXT.edge, false, measure, "middle");
}
