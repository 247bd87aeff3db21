import { describe, expect, it } from "vitest";
import { globOf, regexOf, shapeOf } from "./pattern.ts";

describe("wildcards", () => {
  it("match the same texts as the equivalent regular expression", () => {
    const escaped = (text: string): string => text.replace(/[\\^$.+?()[\]{}|]/g, "\\$&");
    let state = 7;
    const roll = (faces: number): number => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return Math.floor((state / 2 ** 32) * faces);
    };
    const text = (letters: string, most: number): string =>
      Array.from({ length: roll(most) }, () => letters[roll(letters.length)]).join("");
    let found = 0;
    for (let round = 0; round < 5000; round++) {
      const glob = text("aab.*", 7);
      const subject = text("aaB.b", 8);
      const expected = new RegExp(`^${escaped(glob).replaceAll("*", "[^]*")}$`, "i").test(subject);
      if (expected) found++;
      expect(globOf(glob)(subject), `${glob} in ${subject}`).toBe(expected);
      expect(globOf(glob)(`a${subject}b`, 1, 1 + subject.length), `${glob} in a part`).toBe(expected);
    }
    expect(found).toBeGreaterThan(300);
  });

  it.each([
    ["1x*x768", ["1×64×768", "1×n×768"], ["1×768", "1×64×64×768"]],
    ["...x768", ["768", "1×64×768"], ["1×7680", "1768"]],
    ["1x...", ["1", "1×2×3"], ["12", "2×1"]],
    ["1x...x3", ["1×3", "1×2×3", "1×2×2×3"], ["1×2×33", "13"]],
    ["[1, 64]", ["1×64"], ["1×64×2"]],
    ["max_len", ["max_len"], ["ma×len"]],
    ["[]", ["scalar"], ["1"]],
  ])("of a shape: %s", (shape, fitting, others) => {
    for (const each of fitting) expect(shapeOf(shape)(each), each).toBe(true);
    for (const each of others) expect(shapeOf(shape)(each), each).toBe(false);
  });

  it("take time linear in the text, whatever the pattern", () => {
    expect(globOf("*a".repeat(300))("a".repeat(1000))).toBe(true);
    expect(shapeOf("*x".repeat(200))("x".repeat(1000))).toBe(true);
  });
});

describe("regexOf", () => {
  it("matches in a part of a text", () => {
    expect(regexOf("^b+$", false)("abbc", 1, 3)).toBe(true);
    expect(regexOf("B", true)("abc")).toBe(true);
  });

  it.each(["(a+)+$", "(a|aa)*b", "((ab*)c)+", "(x(y{2,})z)*"])(
    "refuses %s, which can take exponential time",
    (source) => {
      expect(() => regexOf(source, false)).toThrow(SyntaxError);
    },
  );

  it.each(["(ab)+c", "(a|b)c", "[(+]+(x)*", "\\(a+\\)+", "layer\\.\\d+"])("accepts %s", (source) => {
    expect(() => regexOf(source, false)).not.toThrow();
  });
});
