/** Completions of a query: the ops, dtypes, scopes … of this model, and at first the fields themselves. */

import { type Columns, SCOPE_KIND } from "../protocol/columns.ts";
import { FIELDS, type Field, KINDS, quote } from "./query.ts";
import { attributesOf, statedKeys } from "./search.ts";

export interface Completion {
  /** replaces the text from `from` to `to` */
  readonly text: string;
  readonly from: number;
  readonly to: number;
  /** meaning or number of occurrences */
  readonly note: string;
}

const MAX_COMPLETIONS = 40;

/** Completions of the word that ends at `caret`, best first; none for a complete word. */
export function complete(columns: Columns, text: string, caret: number): Completion[] {
  if (text.trim() === "") return fields(columns, text.length);
  const match = /(?:^|[\s>→-])([a-z]+):([^\s>→|"]*\|)?([^\s>→|"]*)$/i.exec(text.slice(0, caret));
  if (match === null || /^[^\s>→|]/.test(text.slice(caret))) return [];
  const [, field, , prefix] = match;
  const needle = prefix.toLowerCase();
  const fitting: { value: string; count: number; first: boolean }[] = [];
  for (const [value, count] of counts(columns, field.toLowerCase(), needle)) {
    const at = value.toLowerCase().indexOf(needle);
    // a complete value needs no completion
    if (at === 0 && value.length === needle.length) return [];
    if (at >= 0) fitting.push({ value, count, first: at === 0 });
  }
  return fitting
    .sort((a, b) => Number(b.first) - Number(a.first) || b.count - a.count)
    .slice(0, MAX_COMPLETIONS)
    .map(({ value, count }) => ({
      text: /[\s>→|"]/.test(value) ? quote(value) : value,
      from: caret - prefix.length,
      to: caret,
      note: count > 0 ? String(count) : "",
    }));
}

/** Yields "axis=-1" for each node that leaves an attribute of this name at its default. */
function* leftOut(columns: Columns, name: string): Generator<string> {
  const defaults = Array.from(columns.opDefaults, (string) =>
    attributesOf(columns.str(string)).find(([key, value]) => key === name && !value.endsWith("…")),
  );
  const states = new Map<number, boolean>();
  for (let node = 0; node < columns.nodeCount; node++) {
    const attribute = defaults[columns.nodeOp[node]];
    if (attribute === undefined || columns.isFolded(node)) continue;
    const string = columns.nodeAttributes[node];
    const isStated = states.get(string) ?? statedKeys(columns.str(string))?.includes(name) ?? true;
    states.set(string, isStated);
    if (!isStated) yield `${name}=${attribute[1]}`;
  }
}

/** Query syntax in addition to the fields. */
export const SYNTAX: readonly (readonly [sample: string, meaning: string])[] = [
  ["a b", "both"],
  ["-a", "not"],
  ['"a b"', "as it stands"],
  ["/a.*b/i", "regex"],
  ["A > * > B", "in a row"],
];

/** Describes each field, with a value from this model. */
function fields(columns: Columns, to: number): Completion[] {
  const first = (field: Field, otherwise: string): string => {
    const value = [...counts(columns, field, "")].sort(([, m], [, n]) => n - m)[0]?.[0] ?? otherwise;
    return /\s/.test(value) || value.length > 32 ? otherwise : value;
  };
  const notes: Readonly<Record<Field, string>> = {
    op: `nodes of an op, as op:${first("op", "Conv")}`,
    name: "by name only; * is anything, as name:*weight",
    dtype: `tensors of a dtype, as dtype:${first("dtype", "float32")}`,
    shape: "tensors of a shape, as shape:1x*x768 or shape:...x768",
    attr: `nodes that state an attribute, as attr:${first("attr", "axis")}; with =value also by default`,
    scope: "all in a scope or module class",
    before: "what a node or tensor depends on, by its name",
    after: "what depends on a node or tensor",
    kind: KINDS.join(", "),
    size: "tensors by bytes, and readers of such weights, as size:>1MB",
  };
  return FIELDS.map((field) => ({ text: `${field}:`, from: 0, to, note: notes[field] }));
}

/** Returns value of a field → number of occurrences. */
function counts(columns: Columns, field: string, prefix: string): Map<string, number> {
  const occurrences = new Map<string, number>();
  const add = (value: string, count = 1): void => {
    if (value !== "") occurrences.set(value, (occurrences.get(value) ?? 0) + count);
  };
  // strings are first counted by number
  const tally = (column: ArrayLike<number>, skip?: (id: number) => boolean): Map<number, number> => {
    const byString = new Map<number, number>();
    for (let id = 0; id < column.length; id++) {
      if (skip?.(id) !== true) byString.set(column[id], (byString.get(column[id]) ?? 0) + 1);
    }
    return byString;
  };
  const isFolded = (node: number): boolean => columns.isFolded(node);
  switch (field) {
    case "op":
      for (const [op, count] of tally(columns.nodeOp, isFolded)) add(columns.str(columns.opName[op]), count);
      break;
    case "dtype":
    case "shape":
    case "before":
    case "after": {
      if (prefix === "" && (field === "before" || field === "after")) break; // a list of all names helps nobody
      const { valueDtype, valueShape, valueName } = columns;
      const column = field === "dtype" ? valueDtype : field === "shape" ? valueShape : valueName;
      for (const [string, count] of tally(column)) add(columns.str(string), count);
      break;
    }
    case "attr":
      for (const [string, count] of tally(columns.nodeAttributes, isFolded)) {
        for (const [name, value] of attributesOf(columns.str(string))) {
          if (!prefix.includes("=")) add(name, count);
          else if (prefix.startsWith(`${name}=`)) add(`${name}=${value}`, count);
        }
      }
      if (prefix.includes("=")) for (const value of leftOut(columns, prefix.split("=")[0])) add(value);
      break;
    case "scope":
      for (let scope = 1; scope < columns.scopeCount; scope++) {
        const isScope = columns.scopeKind[scope] === SCOPE_KIND.SCOPE || columns.scopeKind[scope] === SCOPE_KIND.REPEAT;
        if (isScope) add(columns.str(columns.scopePath[scope]), columns.scopeNodes[scope]);
      }
      break;
    case "kind":
      for (const kind of KINDS) add(kind, 0);
  }
  return occurrences;
}
