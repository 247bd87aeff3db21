/** Which scopes are open when a model is shown for the first time. */

import { type Columns, SCOPE_KIND } from "../protocol/columns.ts";
import { scopesOf } from "./scopegraph.ts";

/** Of a graph of so few nodes everything is shown. */
const FEW = 24;
/** With so many boxes there is something to see … */
const ENOUGH = 20;
/** … and more than so many are too many to take in. */
const MANY = 60;
/** What does not fit even closed is shown smaller, as long as it can be read at all. */
const SMALL_ZOOMS = [0.66, 0.58] as const;
/** So many scopes that do not fit are tried before none of them is taken to. */
const TRIES = 10;

/**
 * How high columns must be for all that shows when these scopes are open to fit into the view at a zoom, 0 if one column
 * does, null if it does not fit; with boxes that say all they can, or say it briefly. One column is not tried again where
 * less did not fit into one: the height that it needed says so.
 */
export type Fits = (open: ReadonlySet<number>, zoom: number, brief: boolean, columnHeight: number) => number | null;

export interface Opening {
  readonly open: ReadonlySet<number>;
  /** 0 for one column */
  readonly columnHeight: number;
  /** boxes have one line */
  readonly brief: boolean;
  readonly boxes: number;
}

/**
 * Groups that are open at first: those that show enough of the model and fit the view at a size that can be read; as
 * large as can be with enough boxes. Where few boxes fit they say less, so that there is room for more. What fits is not
 * asked where there is no view.
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

/** The same where the view has no size yet. */
export function defaultOpen(columns: Columns): ReadonlySet<number> {
  return (opened(columns, anywhere) as Opening).open;
}

/** How scopes are opened. */
interface Way {
  /** boxes say little */
  readonly brief: boolean;
  /** the largest scope comes next wherever it is, not each level before the next */
  readonly deep: boolean;
  /** what fits at this zoom can be read: a title is 12 px at life size, 9 px at 0.75; what stands below it is smaller */
  readonly zoom: number;
}

/** The first that shows enough is taken. */
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
 * All of a small graph; else from the outside in the largest scopes, as long as few enough boxes show. Repeated layers
 * and what belongs to no module stay closed unless little else is there to see. Null if even the closed scopes do not fit.
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
      else if (columns.scopeKind[scope] === SCOPE_KIND.CHUNK && columns.scopeRepeat[scope] <= 1) gathered.push(scope);
      else if (columns.scopeKind[scope] !== SCOPE_KIND.SIBLINGS && tryOpen(scope)) next.push(...inside(scope));
    }
    level = deep ? next.sort(bySize) : next;
  }
  // few boxes so far: one example of a repeated layer tells more than none
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
