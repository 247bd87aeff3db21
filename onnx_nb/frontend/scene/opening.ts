/** Chooses the scopes that are open when a model is shown for the first time. */

import { type Columns, oncePerModel, SCOPE_KIND } from "../protocol/columns.ts";
import { scopesOf } from "./scopegraph.ts";

/** Maximum number of nodes of a graph that is shown in full. */
const FEW = 24;
/** Number of boxes that is enough at first … */
const ENOUGH = 20;
/** … and the number that is too many to take in. */
const MANY = 60;
/** Zooms tried if even the closed scopes do not fit, as long as text stays readable. */
const SMALL_ZOOMS = [0.66, 0.58] as const;
/** Maximum number of scopes that fail to fit before the search ends */
const TRIES = 10;
/** A scope with fewer nodes than this part of one that does not fit says little about the model. */
const TRIVIAL = 1 / 3;
/** Scopes whose names differ in a number are equal if one has at most this many times the nodes of the other. */
const SIMILAR = 4;
/** Boxes of a scope that opens wherever the first of its equals did. */
const SMALL = 6;

/**
 * Finds the column height in px at which these open scopes fit the view at a zoom, with full or brief labels: 0 if one
 * column fits, null if nothing does. One column is not tried again once fewer boxes did not fit into it, judging by
 * the height that they needed.
 */
export type Fits = (open: ReadonlySet<number>, zoom: number, brief: boolean, columnHeight: number) => number | null;

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
 * @param where what `fits` depends on, besides the columns: nothing is searched twice for the same
 */
export function opening(columns: Columns, fits: Fits, where = ""): Opening {
  const known = openings(columns);
  const found = known.get(where) ?? searched(columns, fits);
  if (where !== "") known.set(where, found);
  return found;
}

/** Openings found before, by the place that they were found for. */
const openings = oncePerModel(() => new Map<string, Opening>());

function searched(columns: Columns, fits: Fits): Opening {
  const tried = new Map<string, number | null>();
  /** several ways try the same scopes */
  const known: Fits = (open, zoom, brief, columnHeight) => {
    const key = `${zoom} ${brief} ${columnHeight} ${[...open].sort()}`;
    const found = tried.get(key);
    if (found !== undefined) return found;
    const fitting = fits(open, zoom, brief, columnHeight);
    tried.set(key, fitting);
    return fitting;
  };
  const at = (way: Way): Opening | null =>
    opened(columns, (open, columnHeight) => known(open, way.zoom, way.brief, columnHeight), way);
  let most: Opening | null = null;
  for (const trivia of [false, true]) {
    for (const way of WAYS) {
      const found = at({ ...way, trivia });
      if (found !== null && found.boxes > (most?.boxes ?? 0)) most = found;
      if (most !== null && most.boxes >= ENOUGH) return most;
    }
  }
  for (const zoom of SMALL_ZOOMS) most ??= at({ brief: true, deep: false, zoom });
  return most ?? (opened(columns, anywhere) as Opening);
}

/** Chooses the same for a view that has no size yet. */
export function defaultOpen(columns: Columns): ReadonlySet<number> {
  return (opened(columns, anywhere) as Opening).open;
}

/** One way to open scopes. */
interface Way {
  /** labels are brief */
  readonly brief: boolean;
  /** open the largest scope next wherever it is, instead of level by level */
  readonly deep: boolean;
  /** open small scopes in the place of a large one that does not fit */
  readonly trivia?: boolean;
  /** zoom at which text must fit; a title has 12 px at 1 and 9 px at 0.75, rows are smaller */
  readonly zoom: number;
}

/** Ways to open scopes; the first one that shows enough is taken. */
const WAYS: readonly Way[] = [
  { brief: false, deep: false, zoom: 0.9 },
  { brief: false, deep: false, zoom: 0.8 },
  { brief: true, deep: false, zoom: 0.9 },
  { brief: true, deep: true, zoom: 0.85 },
  { brief: true, deep: false, zoom: 0.75 },
  { brief: true, deep: true, zoom: 0.75 },
];
const FIRST: Way = { brief: false, deep: false, zoom: 1 };

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
function opened(
  columns: Columns,
  fits: (open: ReadonlySet<number>, columnHeight: number) => number | null,
  { brief, deep, trivia = true }: Way = FIRST,
): Opening | null {
  const scopes = scopesOf(columns);
  const itemCount = (scope: number): number => scopes.of(scope).kind.length;
  const { scopeKind, scopeNodes, scopeParent, scopeRepeat } = columns;
  if (columns.nodeCount <= FEW) {
    const all = Array.from({ length: columns.scopeCount }, (_, scope) => scope);
    const open = new Set(all);
    const columnHeight = fits(open, 0);
    if (columnHeight !== null)
      return { open, columnHeight, brief, boxes: all.reduce((sum, each) => sum + itemCount(each), 0) };
  }
  const open = new Set<number>([0]);
  let columnHeight = fits(open, 0);
  if (columnHeight === null) return null;
  let boxes = itemCount(0);
  let failed = 0;
  /** scope → nodes of the largest one in it that did not fit */
  const refused = new Map<number, number>();
  const isRepeat = (scope: number): boolean => scopeKind[scope] === SCOPE_KIND.REPEAT;
  const weightOf = (scope: number): number => scopeNodes[scope] / (isRepeat(scope) ? scopeRepeat[scope] : 1);
  const firstOf = firstsOf(columns);
  const bySize = (a: number, b: number): number => weightOf(firstOf(b)) - weightOf(firstOf(a)) || a - b;
  const inside = (scope: number): number[] => Array.from(columns.childrenOf(scope)).sort(bySize);
  /** Opens all of these scopes or none, and of repeated layers the first one. */
  const tryOpen = (...wanted: readonly number[]): boolean => {
    const [parent, weight] = [scopeParent[wanted[0]], weightOf(wanted[0])];
    const large = refused.get(parent) ?? 0;
    if (failed > TRIES || (!trivia && weight < large * TRIVIAL)) return false;
    const all = wanted.flatMap((each) => (isRepeat(each) ? [each, columns.childrenOf(each)[0]] : [each]));
    const more = all.reduce((sum, each) => sum + itemCount(each), 0);
    for (const each of all) open.add(each);
    const tried = boxes + more <= MANY;
    const fitting = tried ? fits(open, columnHeight ?? 0) : null;
    if (fitting === null) {
      for (const each of all) open.delete(each);
      if (tried) failed++;
      refused.set(parent, Math.max(large, weight));
      return false;
    }
    columnHeight = fitting;
    boxes += more;
    return true;
  };
  /** first of equal siblings → the others */
  const others = new Map<number, number[]>();
  const gathered: number[] = [];
  /** the first of repeated layers, and open scopes in it: what is inside opens only if there is little else to see */
  const examples = new Set<number>();
  let level = inside(0);
  while (level.length > 0) {
    const next = deep ? level.slice(1) : [];
    for (const scope of deep ? level.slice(0, 1) : level) {
      const kind = scopeKind[scope];
      if (kind === SCOPE_KIND.SIBLINGS) continue;
      const first = firstOf(scope);
      if (kind === SCOPE_KIND.GATHERED && scopeRepeat[scope] <= 1) gathered.push(scope);
      else if (first !== scope && (itemCount(scope) > SMALL || !open.has(first)))
        others.set(first, [...(others.get(first) ?? []), scope]);
      else if ((!examples.has(scopeParent[scope]) && !isRepeat(scope)) || boxes < ENOUGH) {
        if (!tryOpen(scope)) continue;
        const opened = isRepeat(scope) ? columns.childrenOf(scope)[0] : scope;
        if (opened !== scope || examples.has(scopeParent[scope])) examples.add(opened);
        next.push(...inside(opened));
      }
    }
    level = deep ? next.sort(bySize) : next;
  }
  for (const [first, equal] of others) {
    const together = open.has(first) && !equal.some(isRepeat) && tryOpen(...equal);
    for (const scope of together ? [] : equal) if (boxes < ENOUGH) tryOpen(scope);
  }
  for (const scope of gathered) if (boxes < ENOUGH) tryOpen(scope);
  return { open, columnHeight, brief, boxes };
}

/** Returns a function from a scope to the first of the siblings that differ from it in little but their number. */
function firstsOf(columns: Columns): (scope: number) => number {
  const { scopeKind, scopeName, scopeNodes, scopeParent } = columns;
  const stemOf = (scope: number): string => columns.str(scopeName[scope]).replace(/[\s._-]*\d+(–\d+)?/g, "#");
  // layers.0 and the repeated layers 1–31 differ at most in their borders
  const equal = (a: number, b: number): boolean =>
    stemOf(a) === stemOf(b) &&
    (Math.max(scopeNodes[a], scopeNodes[b]) <= SIMILAR * Math.min(scopeNodes[a], scopeNodes[b]) ||
      [a, b].some((each) => scopeKind[each] === SCOPE_KIND.REPEAT));
  const firsts = new Map<number, number>();
  return (scope) => {
    const known: number[] = [];
    for (const each of firsts.has(scope) ? [] : columns.childrenOf(scopeParent[scope])) {
      const first = known.find((other) => equal(other, each)) ?? each;
      if (first === each) known.push(each);
      firsts.set(each, first);
    }
    return firsts.get(scope) as number;
  };
}
