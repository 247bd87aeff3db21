/** Searches a model for targets, best first, or for chains of nodes, in steps, so that the page stays responsive. */

import { attributePairs, type Columns, type Numbers, runToEnd } from "../protocol/columns.ts";
import type { Hit } from "../scene/state.ts";
import { chains, trace } from "./chain.ts";
import { globOf, type Matcher, shapeOf } from "./pattern.ts";
import {
  type Field,
  type Kind,
  kindsOf,
  parse,
  plainValue,
  type Query,
  QueryError,
  sizeTest,
  type Term,
} from "./query.ts";
import { type Ranks, StringIndex } from "./stringindex.ts";

/** Maximum number of hits kept; nobody steps through more. */
export const MOST_HITS = 5000;

export interface SearchResult {
  readonly hits: readonly Hit[];
  /** number of matches; more than `hits` if there are too many to keep */
  readonly total: number;
  /** there may be more than `total`: the search was stopped, or found enough chains */
  readonly more: boolean;
  /** the error in the query, or null */
  readonly problem: string | null;
}

/** Yields at intervals; `next(true)` asks it to stop early with the hits so far. */
export type Searching = Generator<undefined, SearchResult, boolean | undefined>;

const NO_RESULT: SearchResult = { hits: [], total: 0, more: false, problem: null };

/** Runs a whole search; `searching` does the same in steps. */
export function search(columns: Columns, text: string, limit = MOST_HITS): SearchResult {
  return runToEnd(searching(columns, text, limit));
}

export function* searching(columns: Columns, text: string, limit = MOST_HITS): Searching {
  try {
    const query = parse(text);
    const judge = new Judge(columns, query);
    if (query.chain) return yield* chainSearch(columns, query, judge);
    return yield* plainSearch(columns, query.steps[0].terms, judge, limit);
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    return { ...NO_RESULT, problem: error.message };
  }
}

// ---------------------------------------------------------------- targets

const SCOPE = 0;
const NODE = 1;
const VALUE = 2;
const KIND_OF = ["scope", "node", "tensor"] as const;

function* plainSearch(columns: Columns, terms: readonly Term[], judge: Judge, limit: number): Searching {
  if (terms.length === 0) return NO_RESULT;
  const verdicts = terms.map((term) => judge.of(term));
  // at least one term must match the target itself, so that a scope is found and not everything in it
  const strict = terms.some((term) => !term.negative && term.field !== "kind");
  // a search that only excludes finds the kinds of targets that its fields describe
  const excludes = terms.every((term) => term.negative);
  const isSearched = (kind: number): boolean =>
    !excludes || terms.every(({ field }) => field === null || (ABOUT[field] ?? kind) === kind);
  // best first; a target is 4 × its number + its kind
  const byRank: number[][] = [[], [], [], [], []];
  let count = 0;
  let stopped = false;
  const mask = judge.slow ? 63 : 4095;
  const counts = [columns.scopeCount, columns.nodeCount, columns.valueCount];
  for (const kind of [SCOPE, NODE, VALUE]) {
    if (!isSearched(kind)) continue;
    for (let id = kind === SCOPE ? 1 : 0; id < counts[kind] && !stopped; id++) {
      if ((++count & mask) === 0 && (yield)) stopped = true;
      if (kind === NODE && columns.isFolded(id)) continue;
      let top = strict ? 0 : 1;
      let all = true;
      for (let at = 0; at < terms.length && all; at++) {
        const rank = verdicts[at][kind](id);
        all = terms[at].negative === (rank === NO);
        if (!terms[at].negative && rank > top) top = rank;
      }
      if (all && top > 0) byRank[4 - top].push(4 * id + kind);
    }
  }
  const targets = byRank.flat();
  const hits = targets.slice(0, limit).map((target) => ({ kind: KIND_OF[target & 3], id: target >> 2 }));
  return { hits, total: targets.length, more: stopped, problem: null };
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

// ---------------------------------------------------------------- chains

function* chainSearch(columns: Columns, { steps }: Query, judge: Judge): Searching {
  const masks: Uint8Array[] = [];
  const interval = judge.slow ? 63 : 4095;
  for (const { terms } of steps) {
    const verdicts = terms.map((term) => judge.of(term)[NODE]);
    const mask = new Uint8Array(columns.nodeCount);
    for (let node = 0; node < columns.nodeCount; node++) {
      if ((node & interval) === interval && (yield)) return { ...NO_RESULT, more: true };
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
const RELATED_MATCH = -1;
const NO = 0;
/** The target itself matches; up to 4, higher is better. */
const OWN_MATCH = 1;
const WHOLE_MATCH = 4;

type Verdict = (id: number) => number;
type Verdicts = readonly [scope: Verdict, node: Verdict, value: Verdict];
const matchNothing: Verdict = () => NO;

function tensorVerdicts(fits: (value: number) => boolean, isRelated: (node: number) => boolean): Verdicts {
  return [matchNothing, (node) => (isRelated(node) ? RELATED_MATCH : NO), (value) => (fits(value) ? OWN_MATCH : NO)];
}

class Judge {
  /** judging one target may take long */
  slow = false;
  readonly #columns: Columns;
  readonly #chain: boolean;
  /** there is no other term, so related matches do not count */
  readonly #isSingleTerm: boolean;
  readonly #texts: StringIndex;

  constructor(columns: Columns, { chain, steps }: Query) {
    this.#columns = columns;
    this.#chain = chain;
    this.#isSingleTerm = !chain && steps[0].terms.length === 1 && !steps[0].terms[0].negative;
    this.#texts = StringIndex.of(columns);
  }

  of(term: Term): Verdicts {
    const { valueDtype, valueShape } = this.#columns;
    const { field } = term;
    if (field === null) return this.#anywhere(term);
    if (field === "name") return this.#name(term);
    if (field === "scope") return this.#scope(term);
    if (field === "kind") return this.#kind(term);
    if (field === "size") return this.#size(term);
    if (field === "dtype") return this.#typeVerdicts(this.#dtype(term), valueDtype);
    if (field === "shape") return this.#typeVerdicts(this.#shape(term), valueShape);
    if (field === "op") return [matchNothing, this.#op(term), matchNothing];
    if (field === "attr") return [matchNothing, this.#attribute(term), matchNothing];
    return [matchNothing, this.#along(term, field), matchNothing];
  }

  /** Ranks each string of the table for one of the patterns; `whole` excludes partial matches. */
  #ranks(term: Term, whole = false): Ranks {
    const ranks = term.patterns.map((pattern): Ranks => {
      if (pattern.type === "regex") return this.#ranksByMatcher(pattern.matches);
      const { text, literal } = pattern;
      if (!literal && /^\*+$/.test(text)) return () => OWN_MATCH;
      if (!literal && text.includes("*")) return this.#ranksByMatcher(globOf(text));
      return whole ? this.#where((lower) => lower === text, WHOLE_MATCH) : this.#texts.holding(text);
    });
    return bestRank(ranks);
  }

  /** Ranks the strings that pass a test in lower case. */
  #where(test: (lower: string) => boolean, rank = OWN_MATCH): Ranks {
    return this.#texts.lazily((string) => (test(this.#texts.lower(string)) ? rank : NO));
  }

  #ranksByMatcher(matches: Matcher): Ranks {
    this.slow = true;
    return this.#texts.lazily((string) => (this.#texts.test(matches, string) ? OWN_MATCH : NO));
  }

  #anywhere(term: Term): Verdicts {
    const { opName, nodeOp, nodeName, nodeScope, nodeAttributes, valueName, valueDtype, valueShape, scopePath } =
      this.#columns;
    if (this.#chain) {
      const exactRank = this.#ranks(term, true);
      if (opName.some((name) => exactRank(name) === WHOLE_MATCH)) return [matchNothing, this.#op(term), matchNothing];
    }
    const rank = this.#ranks(term);
    const dtype = this.#ranksOf(term, (text) => {
      const name = dtypeOf(text);
      return this.#where((lower) => lower === name);
    });
    const shape = this.#ranksOf(term, (text) => {
      // an x may represent × and may be part of a name; whole dimensions, so that 6 is not in 768
      const dims = (shape: string): string => `×${shape.replaceAll("x", "×")}×`;
      const dimensions = dims(text);
      return this.#where((lower) => dims(lower).includes(dimensions));
    });
    const attribute = this.#ranksOf(term, (text) => {
      // "3x3" of "kernel_shape 3×3"
      const word = text.replaceAll("x", "×");
      const words = (all: string): string[] => all.replaceAll("x", "×").split(/[\s·,[\]]+/);
      return this.#where((lower) => words(lower).includes(word));
    });
    const ownRank = this.#scopeRank(rank);
    const matchesType = (value: number): boolean => (dtype(valueDtype[value]) || shape(valueShape[value])) !== NO;
    const nameRank = (node: number): number => Math.max(rank(opName[nodeOp[node]]), rank(nodeName[node]));
    if (this.#isSingleTerm)
      return [ownRank, nameRank, (value) => rank(valueName[value]) || (matchesType(value) ? OWN_MATCH : NO)];
    const inside = this.#inside((scope) => rank(scopePath[scope]) !== NO || ownRank(scope) !== NO);
    const about = (node: number): boolean =>
      inside[nodeScope[node]] === 1 ||
      this.#makes(node, matchesType) ||
      attribute(nodeAttributes[node]) !== NO ||
      // exporters name weights by their module, and nodes by a number
      this.#columns
        .inputsOf(node)
        .some((value) => value >= 0 && this.#columns.isConstant(value) && rank(valueName[value]) !== NO);
    return [
      (scope) => ownRank(scope) || (inside[scope] === 1 ? RELATED_MATCH : NO),
      (node) => nameRank(node) || (about(node) ? RELATED_MATCH : NO),
      (value) =>
        rank(valueName[value]) ||
        (matchesType(value) ? OWN_MATCH : inside[this.#scopeOf(value)] === 1 ? RELATED_MATCH : NO),
    ];
  }

  /** Ranks like `#ranks`, with a special way to find texts without a wildcard. */
  #ranksOf(term: Term, ranksOfText: (text: string) => Ranks): Ranks {
    const ranks = term.patterns.map((pattern): Ranks => {
      if (pattern.type === "text" && (pattern.literal || !pattern.text.includes("*"))) return ranksOfText(pattern.text);
      return this.#ranks({ ...term, patterns: [pattern] });
    });
    return bestRank(ranks);
  }

  /** Finds nodes before or after what has this name: a node, a tensor, or a scope, which stands for its nodes. */
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
    const reachedMask = trace(this.#columns, starts, way);
    return (node) => (reachedMask[node] === 1 ? OWN_MATCH : NO);
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
      const nameRank = Math.max(rank(scopeName[scope]), rank(scopeClass[scope]));
      if (nameRank !== NO) return nameRank;
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

  /** Returns the scope of a tensor: of its producer or, for a weight, of its first reader. */
  #scopeOf(value: number): number {
    const { producer, nodeScope } = this.#columns;
    if (producer[value] >= 0) return nodeScope[producer[value]];
    const [reader] = this.#columns.consumersOf(value);
    return reader === undefined || !this.#columns.isConstant(value) ? 0 : nodeScope[reader];
  }

  /** Finds the op of this name, or else ops that contain it: "pool" finds MaxPool, but "Mul" does not find MatMul. */
  #op(term: Term): Verdict {
    const { opName, opDomain, nodeOp } = this.#columns;
    const exactRank = this.#ranks(term, true);
    const part = this.#ranksOf(term, (text) => this.#where((lower) => lower.includes(text)));
    const full = new Set(term.patterns.flatMap((pattern) => (pattern.type === "text" ? [pattern.text] : [])));
    const isNamed = (op: number): boolean => {
      const domain = this.#texts.lower(opDomain[op]);
      return exactRank(opName[op]) !== NO || full.has(domain) || full.has(`${domain}.${this.#texts.lower(opName[op])}`);
    };
    const anyNamed = opName.some((_, op) => isNamed(op));
    const opRanks = Uint8Array.from(opName, (name, op) =>
      (anyNamed ? isNamed(op) : part(name) !== NO) ? WHOLE_MATCH : NO,
    );
    return (node) => opRanks[nodeOp[node]];
  }

  /** Ranks the dtype of this name if the model has one, else those with this prefix: "float" finds all float types. */
  #dtype(term: Term): Ranks {
    const dtypes = new Set(this.#columns.valueDtype);
    return this.#ranksOf(term, (text) => {
      const name = dtypeOf(text);
      const isName = [...dtypes].some((string) => this.#texts.lower(string) === name);
      return this.#where((lower) => (isName ? lower === name : lower.startsWith(name)));
    });
  }

  #shape(term: Term): Ranks {
    const ranks = term.patterns.map((pattern): Ranks => {
      if (pattern.type === "text" && pattern.literal) return this.#ranks({ ...term, patterns: [pattern] }, true);
      return this.#ranksByMatcher(pattern.type === "regex" ? pattern.matches : shapeOf(pattern.text));
    });
    const rank = bestRank(ranks);
    return (string) => (string === 0 ? NO : rank(string)); // an unknown shape matches nothing
  }

  /** Finds tensors by their bytes, where their shapes say how many, and nodes by the weights that they read. */
  #size({ patterns }: Term): Verdicts {
    const columns = this.#columns;
    const tests = patterns.flatMap((pattern) => (pattern.type === "text" ? (sizeTest(pattern.text) ?? []) : []));
    const fits = (value: number): boolean => tests.some((test) => test(columns.bytesOf(value)));
    const reads = (value: number): boolean => value >= 0 && columns.isConstant(value) && fits(value);
    return tensorVerdicts(fits, (node) => columns.inputsOf(node).some(reads));
  }

  /** Matches a tensor itself, or a node by its outputs. */
  #typeVerdicts(rank: Ranks, column: Numbers): Verdicts {
    const fits = (value: number): boolean => rank(column[value]) !== NO;
    return tensorVerdicts(fits, (node) => this.#makes(node, fits));
  }

  #makes(node: number, fits: (value: number) => boolean): boolean {
    const { outPtr, outValue } = this.#columns;
    for (let at = outPtr[node]; at < outPtr[node + 1]; at++) if (outValue[at] >= 0 && fits(outValue[at])) return true;
    return false;
  }

  /** Finds attributes that a node states; with a value also those left at the default of the op. */
  #attribute(term: Term): Verdict {
    const { nodeAttributes, nodeOp, opDefaults } = this.#columns;
    const matchers = term.patterns.map((pattern): ((attributes: string) => readonly string[]) => {
      if (pattern.type === "regex") return (attributes) => (pattern.matches(attributes) ? [attributes] : []);
      const [name, ...valueParts] = pattern.text.split("=");
      const glob = (text: string): Matcher | null => (pattern.literal || !text.includes("*") ? null : globOf(text));
      const [names, text] = [glob(name), plainValue(valueParts.join("="))];
      const values = glob(text);
      return (attributes) =>
        attributesOf(attributes).flatMap(([key, value]) => {
          if (name !== "" && !(names === null ? key === name : names(key))) return [];
          return text === "" || (values === null ? sameValue(value, text) : values(value)) ? [key] : [];
        });
    });
    this.slow = true;
    const rank = this.#texts.lazily((string) => {
      const attributes = this.#columns.str(string);
      return attributes !== "" && matchers.some((fits) => fits(attributes).length > 0) ? WHOLE_MATCH : NO;
    });
    const hasValue = term.patterns.map((pattern) => pattern.type === "text" && /^[^=]+=./.test(pattern.text));
    // op → matching attributes that apply by default
    const fitting = Array.from(opDefaults, (string) => {
      const attributes = this.#columns.str(string);
      return attributes === "" ? [] : matchers.flatMap((fits, at) => (hasValue[at] ? fits(attributes) : []));
    });
    if (fitting.every((keys) => keys.length === 0)) return (node) => rank(nodeAttributes[node]);
    return (node) => {
      const statedRank = rank(nodeAttributes[node]);
      const left = fitting[nodeOp[node]];
      if (statedRank !== NO || left.length === 0) return statedRank;
      const keys = statedKeys(this.#columns.str(nodeAttributes[node]));
      return keys !== null && left.some((key) => !keys.includes(key)) ? OWN_MATCH : NO;
    };
  }

  /** Finds a scope and its nodes. Dots are slashes; "layer.1" finds "layer.10" only if there is no "layer.1". */
  #scope(term: Term): Verdicts {
    const { scopePath, scopeClass, nodeScope, scopeParent } = this.#columns;
    const scopeMask = (part: Ranks): Uint8Array =>
      this.#inside((scope) => part(scopePath[scope]) !== NO || part(scopeClass[scope]) !== NO);
    const masks = term.patterns.map((pattern): Uint8Array => {
      if (pattern.type === "regex") return scopeMask(this.#ranksByMatcher(pattern.matches));
      const parts = (text: string): string => `/${text.replaceAll(".", "/").replace(/^\/|\/$/g, "")}/`;
      const path = parts(pattern.text);
      if (!pattern.literal && pattern.text.includes("*")) {
        const matches = globOf(`*${path}*`);
        return scopeMask(this.#where((lower) => matches(parts(lower))));
      }
      const mask = scopeMask(this.#where((lower) => parts(lower).includes(path)));
      return mask.includes(1) ? mask : scopeMask(this.#where((lower) => parts(lower).includes(path.slice(1, -1))));
    });
    const inside = (scope: number): boolean => masks.some((flags) => flags[scope] === 1);
    const outermost = (scope: number): boolean => inside(scope) && !inside(scopeParent[scope]);
    return [
      (scope) => (outermost(scope) ? WHOLE_MATCH : inside(scope) ? RELATED_MATCH : NO),
      (node) => (inside(nodeScope[node]) ? OWN_MATCH : NO),
      (value) => (inside(this.#scopeOf(value)) ? RELATED_MATCH : NO),
    ];
  }

  #kind(term: Term): Verdicts {
    const columns = this.#columns;
    const kinds = new Set(
      term.patterns.flatMap((pattern): Kind[] => (pattern.type === "text" ? kindsOf(pattern.text) : [])),
    );
    const inputs = new Set(columns.graphInputs);
    return [
      () => (kinds.has("scope") ? RELATED_MATCH : NO),
      () => (kinds.has("node") ? RELATED_MATCH : NO),
      (value) => {
        const weight = columns.isConstant(value);
        const fits =
          kinds.has(weight ? "weight" : "tensor") ||
          (kinds.has("input") && inputs.has(value)) ||
          (kinds.has("output") && columns.isGraphOutput(value));
        return fits ? RELATED_MATCH : NO;
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
function sameValue(value: string, pattern: string): boolean {
  if (value === pattern) return true;
  if (!value.endsWith("…")) return false;
  const start = value.slice(0, -1);
  if (start !== "" && !start.includes(",")) return pattern.split(",").every((item) => item === start);
  return pattern.startsWith(start.replace(/,$/, ""));
}

/** Returns the name of a dtype for an alias: f16, fp16, half, bf16, u8, long. */
function dtypeOf(text: string): string {
  const aliases: Readonly<Record<string, string>> = { half: "float16", double: "float64", long: "int64" };
  const prefixes: Readonly<Record<string, string>> = { f: "float", fp: "float", bf: "bfloat", i: "int", u: "uint" };
  return Object.hasOwn(aliases, text)
    ? aliases[text]
    : text.replace(/^(fp?|bf|i|u)(?=\d)/, (prefix) => prefixes[prefix]);
}

/** Ranks each string by the best of several ranks. */
function bestRank(ranks: readonly Ranks[]): Ranks {
  return ranks.length === 1 ? ranks[0] : (string) => Math.max(...ranks.map((rank) => rank(string)));
}
