/** Which groups are open when a model is shown for the first time. */

import { type Columns, GROUP } from "../model/columns.ts";
import { scopesOf } from "./scope.ts";

/** Of a graph of so few nodes everything is shown. */
const FEW = 24;

/**
 * Groups that are open at first: all of a small graph; else from the outside in the largest ones, as long as at most
 * `budget` boxes show. Repeated layers stay closed unless little else is there to see.
 */
export function defaultOpen(columns: Columns, budget = 60): Set<number> {
  const open = new Set<number>([0]);
  const scopes = scopesOf(columns);
  const itemCount = (group: number): number => scopes.of(group).kind.length;
  if (columns.nodeCount <= FEW) {
    for (let group = 1; group < columns.groupCount; group++) open.add(group);
    return open;
  }
  let boxes = itemCount(0);
  const inside = (group: number): number[] =>
    Array.from(columns.childrenOf(group)).sort((a, b) => columns.groupNodes[b] - columns.groupNodes[a] || a - b);
  const tryOpen = (group: number): boolean => {
    const more = itemCount(group);
    if (boxes + more > budget) return false;
    open.add(group);
    boxes += more;
    return true;
  };
  const repeats: number[] = [];
  let level = inside(0);
  while (level.length > 0) {
    const next: number[] = [];
    for (const group of level) {
      if (columns.groupKind[group] === GROUP.REPEAT) repeats.push(group);
      else if (columns.groupKind[group] !== GROUP.SIBLINGS && tryOpen(group)) next.push(...inside(group));
    }
    level = next;
  }
  // few boxes so far: one example of a repeated layer tells more than none
  for (const group of repeats) {
    if (boxes >= 20 || !tryOpen(group)) continue;
    const example = columns.childrenOf(group)[0];
    if (example !== undefined) tryOpen(example);
  }
  return open;
}
