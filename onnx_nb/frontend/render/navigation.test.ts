import { describe, expect, it } from "vitest";
import { buildScene, createCache } from "../layout/build.ts";
import type { Target } from "../protocol/columns.ts";
import { columnsOf, measure, scopeAt } from "../protocol/testing.ts";
import { type ArrowStep, walk } from "./navigation.ts";

const columns = columnsOf(`
  input x 8 float32
  Relu first : x -> a
  Relu enc/inner : a -> b
  Relu enc/second : b -> c
  Relu left : c -> l
  Relu right : c -> r
  Add sum : l r -> y
  output y
`);
const scene = buildScene(columns, new Set([0, scopeAt(columns, "enc")]), measure, createCache(), {});
const at = (name: string, kind?: Target["kind"]): Target => columns.find(name, kind) as Target;
const go = (from: Target | null, step: ArrowStep, tensors = false): string | null => {
  const to = walk(scene, columns, from, step, tensors);
  return to === null ? null : `${to.kind} ${columns.nameOf(to)}`;
};

describe("walk", () => {
  it("begins at the top", () => {
    expect(go(null, "down")).toBe("tensor x");
  });

  it("follows the flow through the borders of open scopes and back", () => {
    const names = ["x", "first", "enc/inner", "enc/second"];
    const path = [at("x"), ...names.slice(1).map((name) => at(name, "node"))];
    for (let k = 0; k + 1 < path.length; k++) {
      expect(walk(scene, columns, path[k], "down", false)).toEqual(path[k + 1]);
      expect(walk(scene, columns, path[k + 1], "up", false)).toEqual(path[k]);
    }
    expect(go(at("enc/second", "node"), "down")).toMatch(/^node (left|right)$/);
    expect(go(at("sum", "node"), "down")).toBe("tensor y");
  });

  it("stops at the tensor between when asked, and continues from there", () => {
    expect(go(at("first", "node"), "down", true)).toBe("tensor a");
    expect(go(at("a"), "down")).toBe("node enc/inner");
    expect(go(at("a"), "up")).toBe("node first");
  });

  it("goes to neighbors at the same height, and to sibling tensors", () => {
    const [from, to] = [go(at("left", "node"), "right"), go(at("left", "node"), "left")];
    expect([from, to].filter((each) => each !== null)).toEqual(["node right"]);
    const beside = [go(at("l"), "right"), go(at("l"), "left")].filter((each) => each !== null);
    expect(beside).toEqual(["tensor r"]);
  });

  it("ends where the graph ends", () => {
    expect(go(at("x"), "up")).toBeNull();
  });
});
