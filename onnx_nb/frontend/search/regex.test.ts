import { describe, expect, it } from "vitest";
import { compile, PatternError } from "./regex.ts";

/** The same numbers at every run. */
function dice(seed: number): (faces: number) => number {
  let state = seed;
  return (faces) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * faces);
  };
}

function pattern(roll: (faces: number) => number, depth: number): string {
  const pick = (...texts: string[]): string => texts[roll(texts.length)];
  const inner = (): string => pattern(roll, depth - 1);
  const atoms = ["a", "b", "B", "_", "1", "\\.", ".", "\\d", "\\w", "\\W", "\\s", "[ab]", "[^a1]", "[A-C_-]", "[\\d.]"];
  const ends = ["^", "$", "\\b", "\\B", "é", "[É-ý]", "\\x61", "\\u0062", "]", "{", "\\/"];
  if (depth === 0) return pick(...atoms, ...ends);
  switch (roll(6)) {
    case 0:
      return `(${inner()}|${inner()})`;
    case 1:
      return `(?:${inner()})${pick("*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?")}`;
    case 2:
      return `(?<n${depth}${roll(1e9)}>${inner()})`;
    default:
      return inner() + inner();
  }
}

describe("compile", () => {
  it("answers as RegExp does, for thousands of patterns and texts", () => {
    const roll = dice(7);
    const letters = [..."aabbBA1_. -é\n/]{"];
    let found = 0;
    for (let round = 0; round < 4000; round++) {
      const source = pattern(roll, 1 + roll(4));
      const flags = roll(2) === 0 ? "i" : "";
      const own = compile(source, flags === "i");
      const truth = new RegExp(source, flags);
      for (let each = 0; each < 8; each++) {
        const text = Array.from({ length: roll(9) }, () => letters[roll(letters.length)]).join("");
        const expected = truth.test(text);
        if (expected) found++;
        expect(own(text), `/${source}/${flags} in ${JSON.stringify(text)}`).toBe(expected);
        expect(own(`ab${text}1`, 2, 2 + text.length), `/${source}/${flags} in a part`).toBe(expected);
      }
    }
    expect(found).toBeGreaterThan(5000);
    expect(found).toBeLessThan(31000);
  });

  it("is not slowed down by what makes RegExp hang", () => {
    const evil = compile("^(a+)+$|(a|aa)+b|(.*a){12}c");
    expect(evil("a".repeat(2000))).toBe(true);
    expect(evil(`${"a".repeat(2000)}!`)).toBe(false);
  });

  it("forgets sets of states when there are too many", () => {
    const source = "a[ab]{11}a";
    const own = compile(source);
    const roll = dice(3);
    for (let round = 0; round < 60; round++) {
      const text = Array.from({ length: 300 }, () => "abb"[roll(3)] + (roll(40) === 0 ? "c" : "")).join("");
      expect(own(text)).toBe(new RegExp(source).test(text));
    }
  });

  it("says what is wrong or not supported", () => {
    const problem = (source: string): string => {
      try {
        compile(source);
      } catch (error) {
        if (error instanceof PatternError) return error.message;
        throw error;
      }
      return "none";
    };
    expect(problem("(a")).toMatch(/unterminated group/i);
    expect(problem("a[")).toMatch(/unterminated character class/i);
    expect(problem("*")).toMatch(/nothing to repeat/i);
    for (const source of ["(?=a)", "(?!a)", "(?<=a)", "(?<!a)"]) expect(problem(source)).toContain("look-ahead");
    expect(problem("(a)\\1")).toContain("back-references");
    expect(problem("(((a{50}){50}){50})")).toContain("repeats too often");
    expect(problem("a{99999999}")).toContain("repeats too often");
    expect(problem("(a|b)[^c]?(?:){99999999}")).toBe("none");
  });
});
