/**
 * The language of the search: text → conditions on each node of a chain, or on each target.
 *
 *     attention matmul            both words, in any case
 *     op:Conv|Gemm -shape:1x*     one of two ops, without this shape
 *     name:"a b" scope:layer.1    quotes keep spaces; * matches anything
 *     /layer\.\d+/i               a regular expression, in any case
 *     size:>1MB weights > 1 MB    tensors, or only weights, of more than a million bytes
 *     MatMul > * > Softmax        nodes in a row along the flow; ** for any number of them
 */

import { type Matcher, regexOf } from "./pattern.ts";

export const FIELDS = ["op", "name", "dtype", "shape", "attr", "scope", "before", "after", "kind", "size"] as const;
export type Field = (typeof FIELDS)[number];

export const KINDS = ["node", "tensor", "weight", "input", "output", "scope"] as const;
export type Kind = (typeof KINDS)[number];

export interface Text {
  readonly type: "text";
  /** in lower case (of A–Z) */
  readonly text: string;
  /** was in quotes: no character is special */
  readonly literal: boolean;
}
export type Pattern = Text | { readonly type: "regex"; readonly matches: Matcher };

export interface Term {
  /** null: any field */
  readonly field: Field | null;
  readonly negative: boolean;
  /** at least one must match */
  readonly patterns: readonly Pattern[];
}

interface ChainStep {
  readonly terms: readonly Term[];
  /** any number of nodes may be between the previous step and this one */
  readonly gap: boolean;
}

/** A single step is an ordinary search, unless `chain` is set. */
export interface Query {
  readonly steps: readonly ChainStep[];
  readonly chain: boolean;
}

export class QueryError extends Error {}

const ALIASES: Readonly<Record<string, Field>> = {
  attrs: "attr",
  attribute: "attr",
  attributes: "attr",
  class: "scope",
  module: "scope",
  is: "kind",
};
const MAX_QUERY_LENGTH = 1000;
const MOST_STEPS = 12;
const MOST_TERMS = 32;
const GAPS: readonly string[] = ["**", "...", "…"];
const ARROW = /\s*(?:->|=>|>|→)/y;
const REGEX = /\/((?:\\.|[^\\])+?)\/(i?)(?=[\s|>→]|$)/y;
/** "weights > 1 MB" as a person writes it */
const SIZE_WORDS = /(?<![:\w])(weight|tensor|size)s?\s*([<>]=?)\s*(\d[\d.]*)\s*([kmgt]?b?)(?=\s|$)/gi;
const SIZE = /^([<>]=?)?(\d+\.?\d*|\.\d+)([kmgt]?)b?$/;
const UNITS = ["", "k", "m", "g", "t"];
const FIELD = /([a-z]+):(?!:)/iy;

/** @throws QueryError with a message for the person who typed the query */
export function parse(text: string): Query {
  if (text.length > MAX_QUERY_LENGTH) throw new QueryError(`A search has at most ${MAX_QUERY_LENGTH} characters.`);
  const sized = text.replace(SIZE_WORDS, (_, what: string, sign: string, number: string, unit: string) => {
    const kind = what.toLowerCase() === "size" ? "" : `kind:${what} `;
    return `${kind}size:${sign}${number}${unit}`;
  });
  return new Reader(sized).read();
}

/** Returns which numbers of bytes the word after `size:` means, null if none. */
export function sizeTest(word: string): ((bytes: number) => boolean) | null {
  const match = SIZE.exec(word);
  if (match === null) return null;
  const limit = Number(match[2]) * 1000 ** UNITS.indexOf(match[3]);
  if (match[1] === "<") return (bytes) => bytes < limit;
  if (match[1] === "<=") return (bytes) => bytes <= limit;
  return match[1] === ">" ? (bytes) => bytes > limit : (bytes) => bytes >= limit;
}

class Reader {
  readonly #text: string;
  #at = 0;
  #terms = 0;

  constructor(text: string) {
    this.#text = text;
  }

  read(): Query {
    const steps: ChainStep[] = [];
    let chain = false;
    let gap = false;
    for (;;) {
      const from = this.#at;
      const terms = this.#step();
      const arrow = this.#match(ARROW) !== null;
      const end = !arrow && this.#at >= this.#text.length;
      chain ||= arrow;
      const word = this.#text
        .slice(from, this.#at)
        .replace(/(?:->|=>|>|→)$/, "")
        .trim();
      if (chain && GAPS.includes(word)) {
        if (steps.length === 0 || end) throw new QueryError(`A chain begins and ends with a node, not with ${word}.`);
        gap = true;
      } else if (word !== "" || !end || !chain) {
        if (chain && word === "") throw new QueryError("A > stands between two nodes; * is any node.");
        steps.push({ terms, gap });
        gap = false;
      }
      if (steps.length > MOST_STEPS) throw new QueryError(`A chain has at most ${MOST_STEPS} nodes.`);
      if (end) return { steps, chain };
    }
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    if (match !== null) this.#at = pattern.lastIndex;
    return match;
  }

  #starts(pattern: RegExp): boolean {
    pattern.lastIndex = this.#at;
    return pattern.test(this.#text);
  }

  /** Terms up to the next arrow or the end. */
  #step(): Term[] {
    const terms: Term[] = [];
    for (;;) {
      this.#match(/\s*/y);
      if (this.#at >= this.#text.length || this.#starts(ARROW)) return terms;
      const term = this.#term();
      if (term.patterns.length > 0) terms.push(term); // "op:" is incomplete
      if (++this.#terms > MOST_TERMS) throw new QueryError(`A search has at most ${MOST_TERMS} words.`);
    }
  }

  #term(): Term {
    const negative = this.#match(/-/y) !== null;
    const field = this.#field();
    const patterns: Pattern[] = [];
    do {
      const pattern = this.#pattern(field);
      if (pattern !== null) patterns.push(pattern);
    } while (this.#match(/\|/y) !== null);
    return { field, negative, patterns };
  }

  #field(): Field | null {
    const start = this.#at;
    const match = this.#match(FIELD);
    if (match === null) return null;
    const name = match[1].toLowerCase();
    if ((FIELDS as readonly string[]).includes(name)) return name as Field;
    if (Object.hasOwn(ALIASES, name)) return ALIASES[name];
    if (!this.#starts(/\d*(?:\s|$)/y)) {
      throw new QueryError(
        `There is no field '${match[1]}'. There are ${FIELDS.join(", ")}. Quotes make it a text: "${match[0]}…"`,
      );
    }
    this.#at = start; // as in TensorFlow's tensor names, "dense:0"
    return null;
  }

  #pattern(field: Field | null): Pattern | null {
    const regex = this.#match(REGEX);
    if (regex !== null) {
      if (field === "kind") throw new QueryError(`kind: is one of ${KINDS.join(", ")}.`);
      try {
        return { type: "regex", matches: regexOf(regex[1], regex[2] === "i") };
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        // the browser puts the expression before the reason
        const reason = error.message.slice(error.message.lastIndexOf(": ") + 1).trim();
        throw new QueryError(`The regular expression ${regex[0]} cannot be used: ${reason}.`);
      }
    }
    let text = "";
    let literal = false;
    // dimensions and lists may contain spaces
    const brackets = field === "shape" || field === "attr" ? /\[[^\]"]*\]|\([^)"]*\)/y : null;
    const stop = field === "size" ? /[\s→|]/y : /[\s>→|]|[-=]>/y;
    while (this.#at < this.#text.length && !this.#starts(stop)) {
      const quotation = this.#match(/"((?:\\.|[^"\\])*)"/y);
      const list = quotation === null && brackets !== null ? this.#match(brackets) : null;
      if (quotation !== null) {
        literal = true;
        text += quotation[1].replace(/\\(.)/gs, "$1");
      } else if (this.#text[this.#at] === '"') {
        throw new QueryError(`The quote at ${this.#text.slice(this.#at, this.#at + 24)} is not closed.`);
      } else text += list?.[0] ?? this.#text[this.#at++];
    }
    if (text === "") return null;
    if (field === "kind" && kindsOf(text).length === 0) throw new QueryError(`kind: is one of ${KINDS.join(", ")}.`);
    if (field === "size" && sizeTest(lower(text)) === null && !/^[<>]=?$/.test(text))
      throw new QueryError("size: takes a number of bytes, such as size:>1MB or size:<4k.");
    return { type: "text", text: lower(text), literal };
  }
}

/** Returns a text as one word of a query, in quotes. */
export function quote(text: string): string {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/** Returns whether a query has a regular expression: one from a saved notebook runs only when a person asks for it. */
export function hasRegex(text: string): boolean {
  try {
    const patterns = parse(text).steps.flatMap(({ terms }) => terms.flatMap((term) => term.patterns));
    return patterns.some(({ type }) => type === "regex");
  } catch (error) {
    if (error instanceof QueryError) return false;
    throw error;
  }
}

/** Returns the kinds for the word after `kind:`; a prefix is enough. */
export function kindsOf(word: string): Kind[] {
  const aliases = { constant: "weight", value: "tensor", group: "scope", module: "scope", op: "node" } as const;
  const prefix = word.toLowerCase();
  if (Object.hasOwn(aliases, prefix)) return [aliases[prefix as keyof typeof aliases]];
  return KINDS.filter((kind) => kind.startsWith(prefix));
}

/** Lowers A–Z only, so that the text keeps its length. */
export function lower(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** Normalizes an attribute value: [1, 1], 1×1, 1x1 and 1,1 are the same. */
export function plainValue(text: string): string {
  return lower(text)
    .replace(/^[[(]|[\])]$/g, "")
    .replace(/\s*[,;]\s*/g, ",")
    .replace(/(?<=[\d*])[x×](?=[\d*…-])/g, ",")
    .split(",")
    .map((item) => (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/.test(item) ? String(Number(item)) : item.trim()))
    .join(",");
}
