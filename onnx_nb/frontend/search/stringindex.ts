/** The string table of a graph as one long text, so that one pass searches all strings for a word. */

import { type Columns, oncePerModel } from "../protocol/columns.ts";
import type { Matcher } from "./pattern.ts";
import { lower } from "./query.ts";

/** String of the table → rank of the match: 0 none, 1 anywhere, 2 at a word, 3 at the beginning, 4 whole. */
export type Ranks = (string: number) => number;

/** Maximum number of characters of a string that are matched with a pattern. */
const MAX_PATTERN_CHARACTERS = 1000;

export class StringIndex {
  readonly #columns: Columns;
  readonly #ptr: Uint32Array;
  /** one character for each byte, A–Z in lower case */
  readonly #lower: string;
  /** … in original case, if all are ASCII */
  #originalCase: string | null | undefined;

  static readonly of = oncePerModel((columns) => new StringIndex(columns));

  private constructor(columns: Columns) {
    this.#columns = columns;
    const { bytes, ptr } = columns.texts();
    this.#ptr = ptr;
    for (let at = 0; at < bytes.length; at++) if (bytes[at] >= 65 && bytes[at] <= 90) bytes[at] += 32;
    this.#lower = characters(bytes);
  }

  /** Ranks of the strings that contain a lower-case text. */
  holding(text: string): Ranks {
    const needle = characters(new TextEncoder().encode(text));
    const ranks = new Uint8Array(this.#ptr.length - 1);
    const ptr = this.#ptr;
    const haystack = this.#lower;
    let string = 0;
    for (let at = haystack.indexOf(needle); at >= 0 && needle !== ""; ) {
      while (ptr[string + 1] <= at) string++;
      const [begin, end] = [ptr[string], ptr[string + 1]];
      let rank = 0;
      if (at + needle.length <= end) {
        rank = at > begin ? (wordAt(haystack, at - 1) ? 1 : 2) : at + needle.length < end ? 3 : 4;
        if (rank > ranks[string]) ranks[string] = rank;
      }
      // after a match at a word nothing better follows in the same string
      at = haystack.indexOf(needle, rank > 1 ? end : at + 1);
    }
    return (index) => ranks[index];
  }

  /** Ranks that are computed when first asked for. */
  lazily(judge: (string: number) => number): Ranks {
    const ranks = new Uint8Array(this.#ptr.length - 1).fill(UNRANKED);
    return (string) => {
      if (ranks[string] === UNRANKED) ranks[string] = judge(string);
      return ranks[string];
    };
  }

  lower(string: number): string {
    return lower(this.#columns.str(string));
  }

  test(matches: Matcher, string: number): boolean {
    if (this.#originalCase === undefined) {
      const { bytes } = this.#columns.texts();
      this.#originalCase = bytes.every((byte) => byte < 128) ? characters(bytes) : null;
    }
    if (this.#originalCase === null) return matches(this.#columns.str(string).slice(0, MAX_PATTERN_CHARACTERS));
    const begin = this.#ptr[string];
    return matches(this.#originalCase, begin, Math.min(this.#ptr[string + 1], begin + MAX_PATTERN_CHARACTERS));
  }
}

const UNRANKED = 255;

/** Returns one character for each byte; beyond ASCII it need only be consistent. */
function characters(bytes: Uint8Array): string {
  return new TextDecoder("latin1").decode(bytes);
}

function wordAt(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return (code >= 97 && code <= 122) || (code >= 48 && code <= 57) || code === 95;
}
