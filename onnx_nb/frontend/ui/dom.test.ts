// @vitest-environment jsdom

import { describe, expect, it } from "vitest";
import { bytes, countOf, formatCompact, integer } from "../scene/formatting.ts";
import { el, elide, fillings } from "./dom.ts";

describe("el", () => {
  it("adds text as text, even if it looks like HTML", () => {
    const element = el(
      "div",
      { title: "<b>", data: { node: '"><img>' } },
      "<script>alert(1)</script>",
      el("b", {}, "x"),
    );
    expect(element.querySelector("script")).toBeNull();
    expect(element.textContent).toBe("<script>alert(1)</script>x");
    expect(element.dataset.node).toBe('"><img>');
  });
});

describe("elide", () => {
  it("keeps both ends of a long name, the end longer", () => {
    const short = elide(`/encoder/${"layer/".repeat(100)}MatMul_output_0`, 40);
    expect(Array.from(short)).toHaveLength(40);
    expect(short.startsWith("/encoder/")).toBe(true);
    expect(short.endsWith("MatMul_output_0")).toBe(true);
  });

  it("joins lines, and shows characters that would reverse or hide text", () => {
    expect(elide("a\r\nb\nc\td", 20)).toBe("a⏎b⏎c·d");
    expect(elide("a\u202eb", 20)).toBe("a·b");
  });

  it("does not split an emoji, and accepts megabytes", () => {
    expect(elide("🐸".repeat(30), 5)).toBe("🐸🐸…🐸🐸");
    expect(Array.from(elide("x".repeat(5_000_000), 20))).toHaveLength(20);
  });
});

describe("numbers", () => {
  it("are short and never round up into four digits", () => {
    expect([0, 7, 999, 1000, 7_087_872, 109_482_240, 999_950].map(formatCompact)).toEqual([
      "0",
      "7",
      "999",
      "1.0 k",
      "7.1 M",
      "109 M",
      "1.0 M",
    ]);
    expect([0, 512, 2_400_000, 437_928_960].map(bytes)).toEqual(["0 B", "512 B", "2.4 MB", "438 MB"]);
    expect(integer(100_000)).toBe("100,000");
    expect([countOf(1, "node"), countOf(3, "node")]).toEqual(["1 node", "3 nodes"]);
  });
});

describe("a signal for fillings", () => {
  it("ends each filling with the next, and the last with the panel", () => {
    const panel = new AbortController();
    const next = fillings(panel.signal);
    const first = next();
    const second = next();
    expect([first.aborted, second.aborted]).toEqual([true, false]);
    panel.abort();
    expect([second.aborted, next().aborted]).toEqual([true, true]);
  });
});
