/** Suggestions for a search without matches: kinds in plain words, and the nearest names of this model. */

import type { Columns } from "../protocol/columns.ts";
import { kindsOf } from "./query.ts";
import { search } from "./search.ts";

/** Plain words of a search, which name neither a field nor a pattern. */
const WORD = /(?<=^|\s)[\w.]{3,40}(?=\s|$)/g;

/** Returns a query that finds something, like one that does not; null if there is none near. */
export function suggestion(columns: Columns, text: string): string | null {
  const names = [...columns.opName, ...columns.scopeName].map((name) => columns.str(name).slice(0, 60));
  const vocabulary = [...new Set(names.filter((name) => name.length > 2))];
  const better = text.replace(WORD, (word) => {
    const lower = word.toLowerCase();
    const [kind] = /[a-z]s$/.test(lower) ? kindsOf(lower.slice(0, -1)) : [];
    if (kind !== undefined) return `kind:${kind}`;
    if (vocabulary.some((name) => name.toLowerCase().includes(lower))) return word;
    const farthest = lower.length < 6 ? 1 : 2;
    const ranked = vocabulary.map((name) => ({ name, far: distance(lower, name.toLowerCase(), farthest) }));
    const [best] = ranked.filter(({ far }) => far <= farthest).sort((a, b) => a.far - b.far);
    return best?.name ?? word;
  });
  return better !== text && search(columns, better, 1).total > 0 ? better : null;
}

/** Returns how many letters must be inserted, removed or replaced; more than `most` if that many do not do. */
function distance(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) > most) return most + 1;
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next.push(Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + Number(a[i - 1] !== b[j - 1])));
    row = next;
  }
  return row[b.length];
}
