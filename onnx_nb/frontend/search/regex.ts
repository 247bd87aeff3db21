/**
 * Regular expressions in time linear in the text, so that no pattern can hang the page: the browser's own take exponential
 * time for patterns as plain as (a+)+$. The pattern becomes a nondeterministic automaton (Thompson), whose sets of states
 * become a deterministic one as texts need them (as in RE2). Answers what `RegExp.test` answers; no groups are kept.
 */

/** States of the automaton; x{1000} repeats x as often. */
const MOST_STATES = 1000;
/** Sets of states that are remembered; past it they are forgotten and found anew. */
const MOST_SETS = 500;

export class PatternError extends Error {}

/** Tells whether the pattern is found in `text[from … to)`, as if nothing stood around that part. */
export type Matcher = (text: string, from?: number, to?: number) => boolean;

/**
 * @param source the syntax of JavaScript without the flags u and v, without look-around and back-references
 * @throws PatternError in words for a person
 */
export function compile(source: string, ignoreCase = false): Matcher {
  try {
    new RegExp(source);
  } catch (error) {
    throw new PatternError(error instanceof Error ? error.message.replace(/^.*\/: /, "") : String(error));
  }
  const automaton = new Automaton();
  const begin = automaton.build(new Parser(source, ignoreCase).parse(), automaton.add({ kind: "match" }));
  return new Sets(automaton.states, begin).matcher();
}

// ---------------------------------------------------------------- pattern → tree

type Test = (code: number) => boolean;
type Assertion = "begin" | "end" | "boundary" | "inside";
type Tree =
  | { readonly kind: "test"; readonly test: Test }
  | { readonly kind: "assert"; readonly what: Assertion }
  | { readonly kind: "all" | "any"; readonly parts: readonly Tree[] }
  | { readonly kind: "repeat"; readonly part: Tree; readonly least: number; readonly most: number };

const isDigit: Test = (code) => code >= 48 && code <= 57;
const isWord: Test = (code) =>
  isDigit(code) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code === 95;
const isBreak: Test = (code) => code === 10 || code === 13 || code === 0x2028 || code === 0x2029;
const isSpace: Test = (code) => /\s/.test(String.fromCharCode(code));
const not =
  (test: Test): Test =>
  (code) =>
    !test(code);
const CLASSES: Readonly<Record<string, Test>> = {
  d: isDigit,
  D: not(isDigit),
  w: isWord,
  W: not(isWord),
  s: isSpace,
  S: not(isSpace),
};
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, "0": 0 };

/** What RegExp accepts is well formed, so errors here are only of what is not supported. */
class Parser {
  readonly #source: string;
  readonly #ignoreCase: boolean;
  #at = 0;

  constructor(source: string, ignoreCase: boolean) {
    this.#source = source;
    this.#ignoreCase = ignoreCase;
  }

  parse(): Tree {
    const parts: Tree[] = [];
    do {
      const items: Tree[] = [];
      while (this.#at < this.#source.length && this.#next !== "|" && this.#next !== ")") items.push(this.#item());
      parts.push({ kind: "all", parts: items });
    } while (this.#skip("|"));
    return parts.length === 1 ? parts[0] : { kind: "any", parts };
  }

  get #next(): string {
    return this.#source[this.#at] ?? "";
  }

  #skip(text: string): boolean {
    if (!this.#source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  #item(): Tree {
    let part = this.#atom();
    const [least, most] = this.#count();
    if (least >= 0) {
      this.#skip("?"); // how much is taken makes no difference to whether
      part = { kind: "repeat", part, least, most };
    }
    return part;
  }

  #count(): [least: number, most: number] {
    if (this.#skip("*")) return [0, Number.POSITIVE_INFINITY];
    if (this.#skip("+")) return [1, Number.POSITIVE_INFINITY];
    if (this.#skip("?")) return [0, 1];
    const counted = /^\{(\d+)(,(\d*))?\}/.exec(this.#source.slice(this.#at, this.#at + 40));
    if (counted === null) return [-1, -1];
    this.#at += counted[0].length;
    const least = Number(counted[1]);
    if (counted[2] === undefined) return [least, least];
    return [least, counted[3] === "" ? Number.POSITIVE_INFINITY : Number(counted[3])];
  }

  #atom(): Tree {
    if (this.#skip("(")) {
      if (!this.#skip("?:") && this.#next === "?") {
        const named = /^\?<[^=!>][^>]*>/.exec(this.#source.slice(this.#at));
        if (named === null) throw new PatternError("look-ahead, look-behind and modifiers are not supported");
        this.#at += named[0].length;
      }
      const inside = this.parse();
      this.#skip(")");
      return inside;
    }
    if (this.#skip("^")) return { kind: "assert", what: "begin" };
    if (this.#skip("$")) return { kind: "assert", what: "end" };
    if (this.#skip("\\b")) return { kind: "assert", what: "boundary" };
    if (this.#skip("\\B")) return { kind: "assert", what: "inside" };
    if (this.#skip(".")) return { kind: "test", test: not(isBreak) };
    if (this.#skip("[")) return { kind: "test", test: this.#set() };
    const one = this.#character();
    return { kind: "test", test: typeof one === "number" ? this.#range(one, one) : one };
  }

  #set(): Test {
    const inverted = this.#skip("^");
    const tests: Test[] = [];
    while (!this.#skip("]")) {
      const low = this.#skip("\\b") ? 8 : this.#character();
      const dash = this.#next === "-" && this.#source[this.#at + 1] !== "]";
      if (!dash) {
        tests.push(typeof low === "number" ? this.#range(low, low) : low);
        continue;
      }
      this.#at++;
      const high = this.#skip("\\b") ? 8 : this.#character();
      if (typeof low === "number" && typeof high === "number") tests.push(this.#range(low, high));
      else for (const end of [low, 45, high]) tests.push(typeof end === "number" ? this.#range(end, end) : end);
    }
    const found: Test = (code) => tests.some((test) => test(code));
    return inverted ? not(found) : found;
  }

  /** One character, or one of the classes \d \w \s. */
  #character(): number | Test {
    if (!this.#skip("\\")) return this.#source.charCodeAt(this.#at++);
    const name = this.#source[this.#at++] ?? "";
    if (/[1-9k]/.test(name)) throw new PatternError("back-references are not supported");
    if (/[cpP]/.test(name)) throw new PatternError(`\\${name} is not supported`);
    if (name in CLASSES) return CLASSES[name];
    if (name in CONTROLS) return CONTROLS[name];
    const hex = /^(?:x([0-9a-f]{2})|u([0-9a-f]{4}))/i.exec(this.#source.slice(this.#at - 1, this.#at + 4));
    if (hex === null) return name.charCodeAt(0);
    this.#at += hex[0].length - 1;
    return Number.parseInt(hex[1] ?? hex[2], 16);
  }

  #range(low: number, high: number): Test {
    const test: Test = (code) => code >= low && code <= high;
    return this.#ignoreCase ? (code) => test(code) || otherCases(code).some(test) : test;
  }
}

function otherCases(code: number): number[] {
  const text = String.fromCharCode(code);
  return [text.toLowerCase(), text.toUpperCase()].flatMap((other) => {
    const found = other.charCodeAt(0);
    // as in RegExp, no letter beyond ASCII (ſ, K) stands for one of ASCII
    return other.length === 1 && found !== code && found < 128 === code < 128 ? [found] : [];
  });
}

// ---------------------------------------------------------------- tree → automaton

type NState =
  | { readonly kind: "test"; readonly test: Test; readonly to: number }
  | { readonly kind: "assert"; readonly what: Assertion; readonly to: number }
  | { readonly kind: "split"; readonly to: number[] }
  | { readonly kind: "match" };

class Automaton {
  readonly states: NState[] = [];

  add(state: NState): number {
    if (this.states.length >= MOST_STATES) throw new PatternError("it is too long or repeats too often");
    this.states.push(state);
    return this.states.length - 1;
  }

  /** Adds what matches `tree` and then goes on at state `to`; gives where it begins. */
  build(tree: Tree, to: number): number {
    switch (tree.kind) {
      case "test":
        return this.add({ kind: "test", test: tree.test, to });
      case "assert":
        return this.add({ kind: "assert", what: tree.what, to });
      case "all":
        return tree.parts.reduceRight((next, part) => this.build(part, next), to);
      case "any":
        return this.add({ kind: "split", to: tree.parts.map((part) => this.build(part, to)) });
      case "repeat": {
        const { part, least, most } = tree;
        let next = to;
        if (most === Number.POSITIVE_INFINITY) {
          const loop: number[] = [to];
          next = this.add({ kind: "split", to: loop });
          loop.push(this.build(part, next));
        } else {
          for (let extra = least; extra < most; extra++) {
            next = this.add({ kind: "split", to: [to, this.build(part, next)] });
          }
        }
        for (let each = 0; each < least; each++) {
          const before = this.states.length;
          next = this.build(part, next);
          if (this.states.length === before) break; // an empty part, however often
        }
        return next;
      }
    }
  }
}

// ---------------------------------------------------------------- automaton → sets of its states

const BEGIN = 0;
const WORD = 1;
const OTHER = 2;
const END = 3;

/** States that texts may be in, before what stands between two characters (^ $ \b) is looked at. */
interface Many {
  readonly states: readonly number[];
  readonly before: number;
  /** character → what follows: −1 not known yet, −2 the pattern is found */
  readonly next: Int32Array;
  readonly further: Map<number, number>;
  /** found at the end of the text here; undefined if not known yet */
  ends: boolean | undefined;
}

const UNKNOWN = -1;
const FOUND = -2;

class Sets {
  readonly #states: readonly NState[];
  readonly #begin: number;
  #sets: Many[] = [];
  #numbers = new Map<string, number>();

  constructor(states: readonly NState[], begin: number) {
    this.#states = states;
    this.#begin = begin;
  }

  matcher(): Matcher {
    return (text, from = 0, to = text.length) => {
      if (this.#sets.length === 0 || this.#sets.length > MOST_SETS) this.#restart();
      let sets = this.#sets;
      let set = sets[0];
      for (let at = from; at < to; at++) {
        const code = text.charCodeAt(at);
        let next = code < 128 ? set.next[code] : (set.further.get(code) ?? UNKNOWN);
        if (next === UNKNOWN) {
          if (sets.length > MOST_SETS) {
            this.#restart();
            sets = this.#sets;
            set = sets[this.#number(set.states, set.before)];
          }
          next = this.#step(set, code);
          if (code < 128) set.next[code] = next;
          else set.further.set(code, next);
        }
        if (next === FOUND) return true;
        set = sets[next];
      }
      set.ends ??= this.#closure(set, END) === null;
      return set.ends;
    };
  }

  #restart(): void {
    this.#sets = [];
    this.#numbers = new Map();
    this.#number([this.#begin], BEGIN);
  }

  #number(states: readonly number[], before: number): number {
    const key = `${before} ${states.join()}`;
    let number = this.#numbers.get(key);
    if (number === undefined) {
      number = this.#sets.length;
      this.#sets.push({ states, before, next: new Int32Array(128).fill(UNKNOWN), further: new Map(), ends: undefined });
      this.#numbers.set(key, number);
    }
    return number;
  }

  #step(set: Many, code: number): number {
    const kind = isWord(code) ? WORD : OTHER;
    const tests = this.#closure(set, kind);
    if (tests === null) return FOUND;
    // the pattern may begin anywhere
    const next = new Set([this.#begin]);
    for (const each of tests) if (each.test(code)) next.add(each.to);
    return this.#number(
      [...next].sort((a, b) => a - b),
      kind,
    );
  }

  /** The characters asked for in a set of states, with `after` behind; null if the pattern is complete. */
  #closure({ states, before }: Many, after: number): Extract<NState, { kind: "test" }>[] | null {
    const tests: Extract<NState, { kind: "test" }>[] = [];
    const seen = new Set(states);
    const due = [...states];
    const go = (to: number): void => {
      if (seen.has(to)) return;
      seen.add(to);
      due.push(to);
    };
    for (let number = due.pop(); number !== undefined; number = due.pop()) {
      const state = this.#states[number];
      if (state.kind === "match") return null;
      if (state.kind === "test") tests.push(state);
      else if (state.kind === "split") state.to.forEach(go);
      else if (holds(state.what, before, after)) go(state.to);
    }
    return tests;
  }
}

function holds(what: Assertion, before: number, after: number): boolean {
  if (what === "begin") return before === BEGIN;
  if (what === "end") return after === END;
  return ((before === WORD) !== (after === WORD)) === (what === "boundary");
}
