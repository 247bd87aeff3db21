/** Chooses the scopes that are open when a model is shown for the first time. */

import { type Columns, oncePerModel, SCOPE_KIND } from "../protocol/columns.ts";
import { scopesOf } from "./scopegraph.ts";

/** Maximum number of nodes of a graph that is shown in full. */
const MAX_NODES_SHOWN = 24;
/** Number of boxes that is enough at first … */
const MIN_BOXES = 20;
/** … and the number that is too many to take in. */
const MAX_BOXES = 60;
/** Zooms tried if even the closed scopes do not fit, as long as text stays readable. */
const SMALL_ZOOMS = [0.66, 0.58] as const;
/** Maximum number of scopes that fail to fit before the search ends */
const TRIES = 10;
/** Part of the nodes of a scope that did not fit, below which a sibling is too small to say much about the model. */
const TRIVIAL = 1 / 3;
/** Scopes whose names differ in a number are equal if one has at most this many times the nodes of the other. */
const MAX_SIZE_RATIO = 4;
/** Boxes of a scope that opens wherever the first of its equals did. */
const MAX_EXAMPLE_BOXES = 6;

/**
 * Finds the column height in px at which these open scopes fit the view at a zoom, with full or brief labels: 0 if one
 * column fits, null if nothing does. One column is not tried again once fewer boxes did not fit into it, judging by
 * the height that they needed.
 */
export type Fits = (open: ReadonlySet<number>, zoom: number, brief: boolean, columnHeight: number) => number | null;

type Fit = (open: ReadonlySet<number>, columnHeight: number) => number | null;

export interface Opening {
  readonly open: ReadonlySet<number>;
  /** 0 for one column */
  readonly columnHeight: number;
  /** labels are brief */
  readonly brief: boolean;
  readonly boxes: number;
}

/**
 * Chooses the scopes open at first: they show enough of the model and fit the view at a readable size, as large
 * as possible. If few boxes fit, labels become brief to make room for more.
 *
 * @param where key for what `fits` depends on besides the columns; the search runs once for each key
 */
export function opening(columns: Columns, fits: Fits, where = ""): Opening {
  const cache = openings(columns);
  const cached = cache.get(where) ?? search(columns, fits);
  if (where !== "") cache.set(where, cached);
  return cached;
}

/** Openings found before, by the place that they were found for. */
const openings = oncePerModel(() => new Map<string, Opening>());

function search(columns: Columns, fits: Fits): Opening {
  const heights = new Map<string, number | null>();
  /** several ways try the same scopes */
  const cachedFits: Fits = (open, zoom, brief, columnHeight) => {
    const key = `${zoom} ${brief} ${columnHeight} ${[...open].sort()}`;
    const height = heights.get(key);
    if (height !== undefined) return height;
    const fitting = fits(open, zoom, brief, columnHeight);
    heights.set(key, fitting);
    return fitting;
  };
  const at = (way: Way): Opening | null =>
    openScopes(columns, (open, columnHeight) => cachedFits(open, way.zoom, way.brief, columnHeight), way);
  let bestOpening: Opening | null = null;
  for (const trivia of [false, true]) {
    for (const way of WAYS) {
      const candidate = at({ ...way, trivia });
      if (candidate !== null && candidate.boxes > (bestOpening?.boxes ?? 0)) bestOpening = candidate;
      if (bestOpening !== null && bestOpening.boxes >= MIN_BOXES) return bestOpening;
    }
  }
  for (const zoom of SMALL_ZOOMS) bestOpening ??= at({ brief: true, depthFirst: false, zoom });
  return bestOpening ?? (openScopes(columns, anywhere) as Opening);
}

/** Chooses the same for a view that has no size yet. */
export function defaultOpen(columns: Columns): ReadonlySet<number> {
  return (openScopes(columns, anywhere) as Opening).open;
}

/** One way to open scopes. */
interface Way {
  /** labels are brief */
  readonly brief: boolean;
  /** open the largest scope next wherever it is, instead of level by level */
  readonly depthFirst: boolean;
  /** open small scopes where a large scope does not fit */
  readonly trivia?: boolean;
  /** zoom at which text must fit; a title has 12 px at 1 and 9 px at 0.75, rows are smaller */
  readonly zoom: number;
}

/** Ways to open scopes; the first one that shows enough is taken. */
const WAYS: readonly Way[] = [
  { brief: false, depthFirst: false, zoom: 0.9 },
  { brief: false, depthFirst: false, zoom: 0.8 },
  { brief: true, depthFirst: false, zoom: 0.9 },
  { brief: true, depthFirst: true, zoom: 0.85 },
  { brief: true, depthFirst: false, zoom: 0.75 },
  { brief: true, depthFirst: true, zoom: 0.75 },
];
const FIRST: Way = { brief: false, depthFirst: false, zoom: 1 };

const anywhere = (): number => 0;

/**
 * Opens everything in a small graph; otherwise the largest scopes from the outside in, while boxes stay few enough.
 *
 * - Repeated layers count as much as one of them, and open together with the first one or not at all.
 * - Of equal siblings, such as layers.0 and layers.1, the first one opens first. Small ones follow at once; larger ones
 *   at the end, all together or as many as it takes to show enough.
 * - Where a large scope does not fit, its small siblings do not take its place, unless `trivia` is set.
 * - Nodes of no module stay closed unless there is little else to see.
 *
 * Null if even the closed scopes do not fit.
 */
function openScopes(columns: Columns, fits: Fit, { brief, depthFirst, trivia = true }: Way = FIRST): Opening | null {
  const scopes = scopesOf(columns);
  const itemCount = (scope: number): number => scopes.of(scope).kind.length;
  const { scopeKind, scopeNodes, scopeParent, scopeRepeat } = columns;
  if (columns.nodeCount <= MAX_NODES_SHOWN) {
    const all = Array.from({ length: columns.scopeCount }, (_, scope) => scope);
    const open = new Set(all);
    const columnHeight = fits(open, 0);
    if (columnHeight !== null)
      return { open, columnHeight, brief, boxes: all.reduce((sum, scope) => sum + itemCount(scope), 0) };
  }
  const open = new Set<number>([0]);
  let columnHeight = fits(open, 0);
  if (columnHeight === null) return null;
  let boxes = itemCount(0);
  let failures = 0;
  /** scope → nodes of the largest one in it that did not fit */
  const refusals = new Map<number, number>();
  const isRepeat = (scope: number): boolean => scopeKind[scope] === SCOPE_KIND.REPEAT;
  const weightOf = (scope: number): number => scopeNodes[scope] / (isRepeat(scope) ? scopeRepeat[scope] : 1);
  const firstOf = firstsOf(columns);
  const bySize = (a: number, b: number): number => weightOf(firstOf(b)) - weightOf(firstOf(a)) || a - b;
  const inside = (scope: number): number[] => Array.from(columns.childrenOf(scope)).sort(bySize);
  /** Opens all of these scopes or none, and of repeated layers the first one. */
  const tryOpen = (...scopesToOpen: readonly number[]): boolean => {
    const [parent, weight] = [scopeParent[scopesToOpen[0]], weightOf(scopesToOpen[0])];
    const refusedSize = refusals.get(parent) ?? 0;
    if (failures > TRIES || (!trivia && weight < refusedSize * TRIVIAL)) return false;
    const all = scopesToOpen.flatMap((scope) => (isRepeat(scope) ? [scope, columns.childrenOf(scope)[0]] : [scope]));
    const addition = all.reduce((sum, scope) => sum + itemCount(scope), 0);
    for (const scope of all) open.add(scope);
    const isTried = boxes + addition <= MAX_BOXES;
    const fitting = isTried ? fits(open, columnHeight ?? 0) : null;
    if (fitting === null) {
      for (const scope of all) open.delete(scope);
      if (isTried) failures++;
      refusals.set(parent, Math.max(refusedSize, weight));
      return false;
    }
    columnHeight = fitting;
    boxes += addition;
    return true;
  };
  /** first of equal siblings → the others */
  const siblings = new Map<number, number[]>();
  const leftovers: number[] = [];
  /** the first of repeated layers, and open scopes in it: what is inside opens only if there is little else to see */
  const examples = new Set<number>();
  let level = inside(0);
  while (level.length > 0) {
    const next = depthFirst ? level.slice(1) : [];
    for (const scope of depthFirst ? level.slice(0, 1) : level) {
      const kind = scopeKind[scope];
      if (kind === SCOPE_KIND.SIBLINGS) continue;
      const first = firstOf(scope);
      if (kind === SCOPE_KIND.GATHERED && scopeRepeat[scope] <= 1) leftovers.push(scope);
      else if (first !== scope && (itemCount(scope) > MAX_EXAMPLE_BOXES || !open.has(first)))
        siblings.set(first, [...(siblings.get(first) ?? []), scope]);
      else if ((!examples.has(scopeParent[scope]) && !isRepeat(scope)) || boxes < MIN_BOXES) {
        if (!tryOpen(scope)) continue;
        const example = isRepeat(scope) ? columns.childrenOf(scope)[0] : scope;
        if (example !== scope || examples.has(scopeParent[scope])) examples.add(example);
        next.push(...inside(example));
      }
    }
    level = depthFirst ? next.sort(bySize) : next;
  }
  for (const [first, equals] of siblings) {
    const openedTogether = open.has(first) && !equals.some(isRepeat) && tryOpen(...equals);
    for (const scope of openedTogether ? [] : equals) if (boxes < MIN_BOXES) tryOpen(scope);
  }
  for (const scope of leftovers) if (boxes < MIN_BOXES) tryOpen(scope);
  return { open, columnHeight, brief, boxes };
}

/** Returns a function from a scope to the first of the siblings that differ from it in little but their number. */
function firstsOf(columns: Columns): (scope: number) => number {
  const { scopeKind, scopeName, scopeNodes, scopeParent } = columns;
  const stemOf = (scope: number): string => columns.str(scopeName[scope]).replace(/[\s._-]*\d+(–\d+)?/g, "#");
  // layers.0 and the repeated layers 1–31 differ at most in their borders
  const areEqual = (a: number, b: number): boolean =>
    stemOf(a) === stemOf(b) &&
    (Math.max(scopeNodes[a], scopeNodes[b]) <= MAX_SIZE_RATIO * Math.min(scopeNodes[a], scopeNodes[b]) ||
      [a, b].some((scope) => scopeKind[scope] === SCOPE_KIND.REPEAT));
  const firsts = new Map<number, number>();
  return (scope) => {
    const firstScopes: number[] = [];
    for (const child of firsts.has(scope) ? [] : columns.childrenOf(scopeParent[scope])) {
      const first = firstScopes.find((candidate) => areEqual(candidate, child)) ?? child;
      if (first === child) firstScopes.push(child);
      firsts.set(child, first);
    }
    return firsts.get(scope) as number;
  };
}
