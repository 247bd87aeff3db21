/**
 * Searches a model for targets, best first, or for chains of nodes along the flow. Runs in steps, so that the page
 * stays responsive.
 */

import { attributePairs, type Columns, type Numbers, type Target } from "../protocol/columns.ts";
import { chains, trace } from "./chain.ts";
import { globOf, type Matcher, shapeOf } from "./pattern.ts";
import { type Field, type Kind, kindsOf, parse, plainValue, type Query, QueryError, type Term } from "./query.ts";
import { type Ranks, StringIndex } from "./stringindex.ts";

/** Maximum number of hits kept; nobody steps through more. */
export const MOST_HITS = 5000;

/** A target found. For a chain it is the first node, and `chain` holds all nodes in the order of the flow. */
export interface Hit extends Target {
  readonly chain?: readonly number[];
}

export interface Found {
  readonly hits: readonly Hit[];
  /** number of matches; more than `hits` if there are too many to keep */
  readonly total: number;
  /** there may be more than `total`: the search was stopped, or found enough chains */
  readonly more: boolean;
  /** the error in the query, or null */
  readonly problem: string | null;
}

/** Yields at intervals; `next(true)` asks it to stop early with the hits so far. */
export type Searching = Generator<undefined, Found, boolean | undefined>;

const NOTHING: Found = { hits: [], total: 0, more: false, problem: null };

/** Runs a whole search; `searching` does the same in steps. */
export function search(columns: Columns, text: string, most = MOST_HITS): Found {
  const steps = searching(columns, text, most);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

export function* searching(columns: Columns, text: string, most = MOST_HITS): Searching {
  try {
    const query = parse(text);
    const judge = new Judge(columns, query);
    if (query.chain) return yield* chainSearch(columns, query, judge);
    return yield* plainSearch(columns, query.steps[0].terms, judge, most);
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    return { ...NOTHING, problem: error.message };
  }
}

// ---------------------------------------------------------------- targets

const SCOPE = 0;
const NODE = 1;
const VALUE = 2;
const KIND_OF = ["scope", "node", "tensor"] as const;

function* plainSearch(columns: Columns, terms: readonly Term[], judge: Judge, most: number): Searching {
  if (terms.length === 0) return NOTHING;
  const verdicts = terms.map((term) => judge.of(term));
  // at least one term must match the target itself, so that a scope is found and not everything in it
  const strict = terms.some((term) => !term.negative && term.field !== "kind");
  const wanted = kindsWanted(terms);
  // best first; a target is 4 × its number + its kind
  const byRank: number[][] = [[], [], [], [], []];
  let visited = 0;
  let stopped = false;
  const mask = judge.slow ? 63 : 4095;
  const counts = [columns.scopeCount, columns.nodeCount, columns.valueCount];
  for (const kind of [SCOPE, NODE, VALUE]) {
    if (!wanted[kind]) continue;
    for (let id = kind === SCOPE ? 1 : 0; id < counts[kind] && !stopped; id++) {
      if ((++visited & mask) === 0 && (yield)) stopped = true;
      if (kind === NODE && columns.isFolded(id)) continue;
      let best = strict ? 0 : 1;
      let all = true;
      for (let at = 0; at < terms.length && all; at++) {
        const rank = verdicts[at][kind](id);
        all = terms[at].negative === (rank === NO);
        if (!terms[at].negative && rank > best) best = rank;
      }
      if (all && best > 0) byRank[4 - best].push(4 * id + kind);
    }
  }
  const found = byRank.flat();
  const hits = found.slice(0, most).map((each) => ({ kind: KIND_OF[each & 3], id: each >> 2 }));
  return { hits, total: found.length, more: stopped, problem: null };
}

/** The only kind of targets that a field describes. */
const ABOUT: Partial<Record<Field, number>> = {
  op: NODE,
  attr: NODE,
  before: NODE,
  after: NODE,
  dtype: VALUE,
  shape: VALUE,
};

/** Returns the kinds of targets that the fields describe, for a search that only excludes. */
function kindsWanted(terms: readonly Term[]): readonly boolean[] {
  const excludes = terms.every((term) => term.negative);
  return [SCOPE, NODE, VALUE].map(
    (kind) => !excludes || terms.every(({ field }) => field === null || (ABOUT[field] ?? kind) === kind),
  );
}

// ---------------------------------------------------------------- chains

function* chainSearch(columns: Columns, { steps }: Query, judge: Judge): Searching {
  const masks: Uint8Array[] = [];
  const every = judge.slow ? 63 : 4095;
  for (const { terms } of steps) {
    const verdicts = terms.map((term) => judge.of(term)[NODE]);
    const mask = new Uint8Array(columns.nodeCount);
    for (let node = 0; node < columns.nodeCount; node++) {
      if ((node & every) === every && (yield)) return { ...NOTHING, more: true };
      if (columns.isFolded(node)) continue;
      mask[node] = verdicts.every((verdict, at) => terms[at].negative === (verdict(node) === NO)) ? 1 : 0;
    }
    masks.push(mask);
  }
  const gaps = steps.map(({ gap }) => gap);
  const { paths, more } = yield* chains(columns, masks, gaps, MOST_HITS);
  const hits = paths.map((path): Hit => ({ kind: "node", id: path[0], ...(path.length > 1 && { chain: path }) }));
  return { hits, total: hits.length, more, problem: null };
}

// ---------------------------------------------------------------- terms

/** The term matches something related (its scope, its outputs), which ranks below a match of its own. */
const NEAR = -1;
const NO = 0;
/** The target itself matches; up to 4, higher is better. */
const OWN = 1;
const WHOLE = 4;

type Verdict = (id: number) => number;
type Verdicts = readonly [scope: Verdict, node: Verdict, value: Verdict];
const never: Verdict = () => NO;

class Judge {
  /** judging one target may take long */
  slow = false;
  readonly #columns: Columns;
  readonly #chain: boolean;
  /** there is no other term, so related matches do not count */
  readonly #alone: boolean;
  readonly #texts: StringIndex;

  constructor(columns: Columns, { chain, steps }: Query) {
    this.#columns = columns;
    this.#chain = chain;
    this.#alone = !chain && steps[0].terms.length === 1 && !steps[0].terms[0].negative;
    this.#texts = StringIndex.of(columns);
  }

  of(term: Term): Verdicts {
    const { valueDtype, valueShape } = this.#columns;
    const { field } = term;
    if (field === null) return this.#anywhere(term);
    if (field === "name") return this.#name(term);
    if (field === "scope") return this.#scope(term);
    if (field === "kind") return this.#kind(term);
    if (field === "dtype") return this.#typed(this.#dtype(term), valueDtype);
    if (field === "shape") return this.#typed(this.#shape(term), valueShape);
    if (field === "op") return [never, this.#op(term), never];
    if (field === "attr") return [never, this.#attribute(term), never];
    return [never, this.#along(term, field), never];
  }

  /** Ranks each string of the table for one of the patterns; `whole` excludes partial matches. */
  #ranks(term: Term, whole = false): Ranks {
    const each = term.patterns.map((pattern): Ranks => {
      if (pattern.type === "regex") return this.#matched(pattern.matches);
      const { text, literal } = pattern;
      if (!literal && /^\*+$/.test(text)) return () => OWN;
      if (!literal && text.includes("*")) return this.#matched(globOf(text));
      return whole ? this.#where((lower) => lower === text, WHOLE) : this.#texts.holding(text);
    });
    return best(each);
  }

  /** Ranks the strings that pass a test in lower case. */
  #where(test: (lower: string) => boolean, rank = OWN): Ranks {
    return this.#texts.lazily((string) => (test(this.#texts.lower(string)) ? rank : NO));
  }

  #matched(matches: Matcher): Ranks {
    this.slow = true;
    return this.#texts.lazily((string) => (this.#texts.test(matches, string) ? OWN : NO));
  }

  #anywhere(term: Term): Verdicts {
    const { opName, nodeOp, nodeName, nodeScope, nodeAttributes, valueName, valueDtype, valueShape, scopePath } =
      this.#columns;
    if (this.#chain) {
      const exact = this.#ranks(term, true);
      if (opName.some((name) => exact(name) === WHOLE)) return [never, this.#op(term), never];
    }
    const rank = this.#ranks(term);
    const dtype = this.#ranksOf(term, (text) => {
      const wanted = dtypeOf(text);
      return this.#where((lower) => lower === wanted);
    });
    const shape = this.#ranksOf(term, (text) => {
      // an x may represent × and may be part of a name; whole dimensions, so that 6 is not in 768
      const dims = (shape: string): string => `×${shape.replaceAll("x", "×")}×`;
      const wanted = dims(text);
      return this.#where((lower) => dims(lower).includes(wanted));
    });
    const attribute = this.#ranksOf(term, (text) => {
      // "3x3" of "kernel_shape 3×3"
      const wanted = text.replaceAll("x", "×");
      const words = (all: string): string[] => all.replaceAll("x", "×").split(/[\s·,[\]]+/);
      return this.#where((lower) => words(lower).includes(wanted));
    });
    const own = this.#scopeRank(rank);
    const typed = (value: number): boolean => (dtype(valueDtype[value]) || shape(valueShape[value])) !== NO;
    const named = (node: number): number => Math.max(rank(opName[nodeOp[node]]), rank(nodeName[node]));
    if (this.#alone) return [own, named, (value) => rank(valueName[value]) || (typed(value) ? OWN : NO)];
    const inside = this.#inside((scope) => rank(scopePath[scope]) !== NO || own(scope) !== NO);
    const about = (node: number): boolean =>
      inside[nodeScope[node]] === 1 ||
      this.#makes(node, typed) ||
      attribute(nodeAttributes[node]) !== NO ||
      // exporters name weights by their module, and nodes by a number
      this.#columns
        .inputsOf(node)
        .some((value) => value >= 0 && this.#columns.isConstant(value) && rank(valueName[value]) !== NO);
    return [
      (scope) => own(scope) || (inside[scope] === 1 ? NEAR : NO),
      (node) => named(node) || (about(node) ? NEAR : NO),
      (value) => rank(valueName[value]) || (typed(value) ? OWN : inside[this.#scopeOf(value)] === 1 ? NEAR : NO),
    ];
  }

  /** Ranks like `#ranks`, with a special way to find texts without a wildcard. */
  #ranksOf(term: Term, plain: (text: string) => Ranks): Ranks {
    const each = term.patterns.map((pattern): Ranks => {
      if (pattern.type === "text" && (pattern.literal || !pattern.text.includes("*"))) return plain(pattern.text);
      return this.#ranks({ ...term, patterns: [pattern] });
    });
    return best(each);
  }

  /**
   * Finds nodes before or after the target of this name: a node, a tensor (its producer or consumers), or a scope (its
   * nodes).
   */
  #along(term: Term, way: "before" | "after"): Verdict {
    const { nodeName, nodeScope, valueName, producer, scopePath } = this.#columns;
    const rank = this.#ranks(term, true);
    const starts: number[] = [];
    const inside = this.#inside((scope) => rank(scopePath[scope]) !== NO);
    for (let node = 0; node < nodeScope.length; node++) if (inside[nodeScope[node]] === 1) starts.push(node);
    for (let node = 0; node < nodeName.length; node++) if (rank(nodeName[node]) !== NO) starts.push(node);
    for (let value = 0; value < valueName.length; value++) {
      if (rank(valueName[value]) === NO) continue;
      if (way === "after") starts.push(...this.#columns.consumersOf(value));
      else if (producer[value] >= 0) starts.push(producer[value]);
    }
    const reached = trace(this.#columns, starts, way);
    return (node) => (reached[node] === 1 ? OWN : NO);
  }

  #name(term: Term): Verdicts {
    const { nodeName, valueName } = this.#columns;
    const rank = this.#ranks(term);
    return [this.#scopeRank(rank), (node) => rank(nodeName[node]), (value) => rank(valueName[value])];
  }

  /** Ranks a scope by its own name or class, or by a path that ends in it. */
  #scopeRank(rank: Ranks): Verdict {
    const { scopeName, scopePath, scopeClass, scopeParent } = this.#columns;
    return (scope) => {
      const own = Math.max(rank(scopeName[scope]), rank(scopeClass[scope]));
      if (own !== NO) return own;
      const path = rank(scopePath[scope]);
      return path !== NO && rank(scopePath[scopeParent[scope]]) === NO ? path : NO;
    };
  }

  /** Returns 1 for scopes that match and all scopes in them. */
  #inside(matches: (scope: number) => boolean): Uint8Array {
    const { scopeCount, scopeParent } = this.#columns;
    const inside = new Uint8Array(scopeCount);
    for (let scope = 1; scope < scopeCount; scope++) {
      inside[scope] = inside[scopeParent[scope]] === 1 || matches(scope) ? 1 : 0;
    }
    return inside;
  }

  /** Returns the scope of a tensor: that of its producer, for a weight that of its first reader. */
  #scopeOf(value: number): number {
    const { producer, nodeScope } = this.#columns;
    if (producer[value] >= 0) return nodeScope[producer[value]];
    const [reader] = this.#columns.consumersOf(value);
    return reader === undefined || !this.#columns.isConstant(value) ? 0 : nodeScope[reader];
  }

  /**
   * Finds the op of this name if the model has one, else ops that contain it: "Mul" does not find MatMul, but "pool"
   * finds MaxPool.
   */
  #op(term: Term): Verdict {
    const { opName, opDomain, nodeOp } = this.#columns;
    const exact = this.#ranks(term, true);
    const part = this.#ranksOf(term, (text) => this.#where((lower) => lower.includes(text)));
    const full = new Set(term.patterns.flatMap((pattern) => (pattern.type === "text" ? [pattern.text] : [])));
    const named = (op: number): boolean => {
      const domain = this.#texts.lower(opDomain[op]);
      return exact(opName[op]) !== NO || full.has(domain) || full.has(`${domain}.${this.#texts.lower(opName[op])}`);
    };
    const whole = opName.some((_, op) => named(op));
    const found = Uint8Array.from(opName, (name, op) => ((whole ? named(op) : part(name) !== NO) ? WHOLE : NO));
    return (node) => found[nodeOp[node]];
  }

  /** Ranks the dtype of this name if the model has one, else those with this prefix: "float" finds all float types. */
  #dtype(term: Term): Ranks {
    const used = new Set(this.#columns.valueDtype);
    return this.#ranksOf(term, (text) => {
      const wanted = dtypeOf(text);
      const whole = [...used].some((string) => this.#texts.lower(string) === wanted);
      return this.#where((lower) => (whole ? lower === wanted : lower.startsWith(wanted)));
    });
  }

  #shape(term: Term): Ranks {
    const each = term.patterns.map((pattern): Ranks => {
      if (pattern.type === "text" && pattern.literal) return this.#ranks({ ...term, patterns: [pattern] }, true);
      return this.#matched(pattern.type === "regex" ? pattern.matches : shapeOf(pattern.text));
    });
    const rank = best(each);
    return (string) => (string === 0 ? NO : rank(string)); // an unknown shape matches nothing
  }

  /** Matches a tensor itself, or a node by its outputs. */
  #typed(rank: Ranks, column: Numbers): Verdicts {
    const fits = (value: number): boolean => rank(column[value]) !== NO;
    return [never, (node) => (this.#makes(node, fits) ? NEAR : NO), (value) => (fits(value) ? OWN : NO)];
  }

  #makes(node: number, fits: (value: number) => boolean): boolean {
    const { outPtr, outValue } = this.#columns;
    for (let at = outPtr[node]; at < outPtr[node + 1]; at++) if (outValue[at] >= 0 && fits(outValue[at])) return true;
    return false;
  }

  /** Finds attributes that a node states; with a value also those left at the default of the op. */
  #attribute(term: Term): Verdict {
    const { nodeAttributes, nodeOp, opDefaults } = this.#columns;
    const wanted = term.patterns.map((pattern): ((whole: string) => readonly string[]) => {
      if (pattern.type === "regex") return (whole) => (pattern.matches(whole) ? [whole] : []);
      const [name, ...rest] = pattern.text.split("=");
      const glob = (text: string): Matcher | null => (pattern.literal || !text.includes("*") ? null : globOf(text));
      const [names, given] = [glob(name), plainValue(rest.join("="))];
      const values = glob(given);
      return (whole) =>
        attributesOf(whole).flatMap(([key, value]) => {
          if (name !== "" && !(names === null ? key === name : names(key))) return [];
          return given === "" || (values === null ? sameValue(value, given) : values(value)) ? [key] : [];
        });
    });
    this.slow = true;
    const rank = this.#texts.lazily((string) => {
      const whole = this.#columns.str(string);
      return whole !== "" && wanted.some((fits) => fits(whole).length > 0) ? WHOLE : NO;
    });
    const valued = term.patterns.map((pattern) => pattern.type === "text" && /^[^=]+=./.test(pattern.text));
    // op → matching attributes that apply by default
    const fitting = Array.from(opDefaults, (string) => {
      const whole = this.#columns.str(string);
      return whole === "" ? [] : wanted.flatMap((fits, at) => (valued[at] ? fits(whole) : []));
    });
    if (fitting.every((keys) => keys.length === 0)) return (node) => rank(nodeAttributes[node]);
    return (node) => {
      const stated = rank(nodeAttributes[node]);
      const left = fitting[nodeOp[node]];
      if (stated !== NO || left.length === 0) return stated;
      const keys = statedKeys(this.#columns.str(nodeAttributes[node]));
      return keys !== null && left.some((key) => !keys.includes(key)) ? OWN : NO;
    };
  }

  /**
   * Finds nodes in a scope, and the scope itself. Dots and slashes are equal; "layer.1" finds "layer.10" only if there
   * is no "layer.1".
   */
  #scope(term: Term): Verdicts {
    const { scopePath, scopeClass, nodeScope, scopeParent } = this.#columns;
    const one = (part: Ranks): Uint8Array =>
      this.#inside((scope) => part(scopePath[scope]) !== NO || part(scopeClass[scope]) !== NO);
    const each = term.patterns.map((pattern): Uint8Array => {
      if (pattern.type === "regex") return one(this.#matched(pattern.matches));
      const parts = (text: string): string => `/${text.replaceAll(".", "/").replace(/^\/|\/$/g, "")}/`;
      const wanted = parts(pattern.text);
      if (!pattern.literal && pattern.text.includes("*")) {
        const matches = globOf(`*${wanted}*`);
        return one(this.#where((lower) => matches(parts(lower))));
      }
      const whole = one(this.#where((lower) => parts(lower).includes(wanted)));
      return whole.includes(1) ? whole : one(this.#where((lower) => parts(lower).includes(wanted.slice(1, -1))));
    });
    const inside = (scope: number): boolean => each.some((flags) => flags[scope] === 1);
    const outermost = (scope: number): boolean => inside(scope) && !inside(scopeParent[scope]);
    return [
      (scope) => (outermost(scope) ? WHOLE : inside(scope) ? NEAR : NO),
      (node) => (inside(nodeScope[node]) ? OWN : NO),
      (value) => (inside(this.#scopeOf(value)) ? NEAR : NO),
    ];
  }

  #kind(term: Term): Verdicts {
    const columns = this.#columns;
    const kinds = new Set(term.patterns.flatMap((each): Kind[] => (each.type === "text" ? kindsOf(each.text) : [])));
    const inputs = new Set(columns.graphInputs);
    return [
      () => (kinds.has("scope") ? NEAR : NO),
      () => (kinds.has("node") ? NEAR : NO),
      (value) => {
        const weight = columns.isConstant(value);
        const fits =
          kinds.has(weight ? "weight" : "tensor") ||
          (kinds.has("input") && inputs.has(value)) ||
          (kinds.has("output") && columns.isGraphOutput(value));
        return fits ? NEAR : NO;
      },
    ];
  }
}

/** Returns names with normalized values, from "pads [1, 1] · strides 2×2". */
export function attributesOf(text: string): [name: string, value: string][] {
  return attributePairs(text).map(([name, value]) => [name.toLowerCase(), plainValue(value)]);
}

/** Returns the names of the attributes in a text; null if it was shortened, so that there may be more. */
export function statedKeys(text: string): readonly string[] | null {
  if (text.endsWith("…")) return null;
  return attributesOf(text).map(([key]) => key);
}

/** Compares values; the columns hold only the beginning of a long one, "1,2,…", and "1…" for any number of ones. */
function sameValue(value: string, given: string): boolean {
  if (value === given) return true;
  if (!value.endsWith("…")) return false;
  const start = value.slice(0, -1);
  if (start !== "" && !start.includes(",")) return given.split(",").every((item) => item === start);
  return given.startsWith(start.replace(/,$/, ""));
}

/** Returns the name of a dtype for an alias: f16, fp16, half, bf16, u8, long. */
function dtypeOf(text: string): string {
  const known: Readonly<Record<string, string>> = { half: "float16", double: "float64", long: "int64" };
  const short: Readonly<Record<string, string>> = { f: "float", fp: "float", bf: "bfloat", i: "int", u: "uint" };
  return Object.hasOwn(known, text) ? known[text] : text.replace(/^(fp?|bf|i|u)(?=\d)/, (each) => short[each]);
}

/** Ranks each string by the best of several ranks. */
function best(each: readonly Ranks[]): Ranks {
  return each.length === 1 ? each[0] : (string) => Math.max(...each.map((rank) => rank(string)));
}
