/** Finds text in names of scopes, ops, nodes and tensors. */

import { type Columns, NODE_FOLDED, type Target } from "../model/columns.ts";

/** How many hits are kept; a search with more is too wide to step through. */
export const MOST_HITS = 5000;

/** Targets whose names hold `text` (any case), best first: exact, then beginnings, then anything. */
export function search(columns: Columns, text: string): Target[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [];
  // many names share a string of the table, so each string is looked at once
  const scores: (number | undefined)[] = [];
  const score = (string: number): number => {
    const known = scores[string];
    if (known !== undefined) return known;
    const rank = match(columns.str(string).toLowerCase(), wanted);
    scores[string] = rank;
    return rank;
  };
  const byScore: Target[][] = [[], [], [], []];
  const add = (rank: number, kind: Target["kind"], id: number): void => {
    if (rank > 0) byScore[4 - rank].push({ kind, id });
  };
  for (let group = 1; group < columns.groupCount; group++) {
    add(Math.max(score(columns.groupPath[group]), score(columns.groupClass[group])), "group", group);
  }
  for (let node = 0; node < columns.nodeCount; node++) {
    if ((columns.nodeFlags[node] & NODE_FOLDED) !== 0) continue;
    add(Math.max(score(columns.opName[columns.nodeOp[node]]), score(columns.nodeName[node])), "node", node);
  }
  for (let value = 0; value < columns.valueCount; value++) add(score(columns.valueName[value]), "value", value);
  return byScore.flat().slice(0, MOST_HITS);
}

function match(text: string, wanted: string): number {
  const at = text.indexOf(wanted);
  if (at < 0) return 0;
  if (text.length === wanted.length) return 4;
  if (at === 0) return 3;
  return /[\w]/.test(text[at - 1]) ? 1 : 2;
}
