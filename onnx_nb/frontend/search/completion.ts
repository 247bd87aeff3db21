/** Completions of a query: the ops, dtypes, scopes … of this model, and at first the fields themselves. */

import { type Columns, SCOPE_KIND } from "../protocol/columns.ts";
import { FIELDS, type Field, KINDS, quoted } from "./query.ts";
import { attributesOf, statedKeys } from "./search.ts";

export interface Completion {
  /** replaces the text from `from` to `to` */
  readonly text: string;
  readonly from: number;
  readonly to: number;
  /** meaning or number of occurrences */
  readonly note: string;
}

const MOST = 40;

/** Completions of the word that ends at `caret`, best first; none for a complete word. */
export function complete(columns: Columns, text: string, caret: number): Completion[] {
  if (text.trim() === "") return fields(columns, text.length);
  const found = /(?:^|[\s>→-])([a-z]+):([^\s>→|"]*\|)?([^\s>→|"]*)$/i.exec(text.slice(0, caret));
  if (found === null || /^[^\s>→|]/.test(text.slice(caret))) return [];
  const [, field, , typed] = found;
  const wanted = typed.toLowerCase();
  const fitting: { value: string; count: number; first: boolean }[] = [];
  for (const [value, count] of counts(columns, field.toLowerCase(), wanted)) {
    const at = value.toLowerCase().indexOf(wanted);
    // a complete value needs no completion
    if (at === 0 && value.length === wanted.length) return [];
    if (at >= 0) fitting.push({ value, count, first: at === 0 });
  }
  return fitting
    .sort((a, b) => Number(b.first) - Number(a.first) || b.count - a.count)
    .slice(0, MOST)
    .map(({ value, count }) => ({
      text: /[\s>→|"]/.test(value) ? quoted(value) : value,
      from: caret - typed.length,
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
    const found = defaults[columns.nodeOp[node]];
    if (found === undefined || columns.isFolded(node)) continue;
    const string = columns.nodeAttributes[node];
    const stated = states.get(string) ?? statedKeys(columns.str(string))?.includes(name) ?? true;
    states.set(string, stated);
    if (!stated) yield `${name}=${found[1]}`;
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
    const most = [...counts(columns, field, "")].sort(([, m], [, n]) => n - m)[0]?.[0] ?? otherwise;
    return /\s/.test(most) || most.length > 32 ? otherwise : most;
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
  };
  return FIELDS.map((field) => ({ text: `${field}:`, from: 0, to, note: notes[field] }));
}

/** Returns value of a field → number of occurrences. */
function counts(columns: Columns, field: string, typed: string): Map<string, number> {
  const found = new Map<string, number>();
  const add = (value: string, count = 1): void => {
    if (value !== "") found.set(value, (found.get(value) ?? 0) + count);
  };
  // strings are first counted by number
  const tally = (column: ArrayLike<number>, skip?: (id: number) => boolean): Map<number, number> => {
    const byString = new Map<number, number>();
    for (let id = 0; id < column.length; id++) {
      if (skip?.(id) !== true) byString.set(column[id], (byString.get(column[id]) ?? 0) + 1);
    }
    return byString;
  };
  const folded = (node: number): boolean => columns.isFolded(node);
  switch (field) {
    case "op":
      for (const [op, count] of tally(columns.nodeOp, folded)) add(columns.str(columns.opName[op]), count);
      break;
    case "dtype":
    case "shape":
    case "before":
    case "after": {
      if (typed === "" && (field === "before" || field === "after")) break; // a list of all names helps nobody
      const { valueDtype, valueShape, valueName } = columns;
      const column = field === "dtype" ? valueDtype : field === "shape" ? valueShape : valueName;
      for (const [string, count] of tally(column)) add(columns.str(string), count);
      break;
    }
    case "attr":
      for (const [string, count] of tally(columns.nodeAttributes, folded)) {
        for (const [name, value] of attributesOf(columns.str(string))) {
          if (!typed.includes("=")) add(name, count);
          else if (typed.startsWith(`${name}=`)) add(`${name}=${value}`, count);
        }
      }
      if (typed.includes("=")) for (const value of leftOut(columns, typed.split("=")[0])) add(value);
      break;
    case "scope":
      for (let scope = 1; scope < columns.scopeCount; scope++) {
        const named = columns.scopeKind[scope] === SCOPE_KIND.SCOPE || columns.scopeKind[scope] === SCOPE_KIND.REPEAT;
        if (named) add(columns.str(columns.scopePath[scope]), columns.scopeNodes[scope]);
      }
      break;
    case "kind":
      for (const kind of KINDS) add(kind, 0);
  }
  return found;
}
