/** Chooses the scopes that are open when a model is shown for the first time. */

import { type Columns, SCOPE_KIND } from "../protocol/columns.ts";
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
 */
export function opening(columns: Columns, fits: Fits): Opening {
  const at = (way: Way): Opening | null =>
    opened(columns, (open, columnHeight) => fits(open, way.zoom, way.brief, columnHeight), way);
  let most: Opening | null = null;
  for (const way of WAYS) {
    const found = at(way);
    if (found !== null && found.boxes > (most?.boxes ?? 0)) most = found;
    if (most !== null && most.boxes >= ENOUGH) return most;
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
 * Repeated layers and nodes of no module stay closed unless there is little else to see. Null if even the closed
 * scopes do not fit.
 */
function opened(
  columns: Columns,
  fits: (open: ReadonlySet<number>, columnHeight: number) => number | null,
  { brief, deep }: Way = FIRST,
): Opening | null {
  const scopes = scopesOf(columns);
  const itemCount = (scope: number): number => scopes.of(scope).kind.length;
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
  const bySize = (a: number, b: number): number => columns.scopeNodes[b] - columns.scopeNodes[a] || a - b;
  const inside = (scope: number): number[] => Array.from(columns.childrenOf(scope)).sort(bySize);
  const tryOpen = (scope: number): boolean => {
    const more = itemCount(scope);
    if (boxes + more > MANY || failed > TRIES) return false;
    open.add(scope);
    const fitting = fits(open, columnHeight ?? 0);
    if (fitting === null) {
      open.delete(scope);
      failed++;
      return false;
    }
    columnHeight = fitting;
    boxes += more;
    return true;
  };
  const [repeats, gathered]: number[][] = [[], []];
  let level = inside(0);
  while (level.length > 0) {
    const next = deep ? level.slice(1) : [];
    for (const scope of deep ? level.slice(0, 1) : level) {
      if (columns.scopeKind[scope] === SCOPE_KIND.REPEAT) repeats.push(scope);
      else if (columns.scopeKind[scope] === SCOPE_KIND.GATHERED && columns.scopeRepeat[scope] <= 1)
        gathered.push(scope);
      else if (columns.scopeKind[scope] !== SCOPE_KIND.SIBLINGS && tryOpen(scope)) next.push(...inside(scope));
    }
    level = deep ? next.sort(bySize) : next;
  }
  // few boxes so far: one example of a repeated layer is worth more than none
  for (const scope of repeats) {
    if (boxes >= ENOUGH || !tryOpen(scope)) continue;
    const example = columns.childrenOf(scope)[0];
    if (example === undefined || !tryOpen(example)) continue;
    for (const inner of inside(example)) {
      if (columns.scopeKind[inner] === SCOPE_KIND.REPEAT) repeats.push(inner);
      else if (boxes < ENOUGH && columns.scopeKind[inner] !== SCOPE_KIND.SIBLINGS) tryOpen(inner);
    }
  }
  for (const scope of gathered) if (boxes < ENOUGH) tryOpen(scope);
  return { open, columnHeight, brief, boxes };
}
