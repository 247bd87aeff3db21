import { describe, expect, test } from "vitest";
import { columnsOf, groupAt, measure } from "../model/testing.ts";
import { defaultOpen } from "./opening.ts";
import { buildScene, createCache } from "./scene.ts";

/** Layers of `size` nodes under a group each. */
function layers(count: number, size: number): string {
  const lines = ["input v", "group layers kind=REPEAT"];
  let from = "v";
  for (let layer = 0; layer < count; layer++) {
    for (let i = 0; i < size; i++) {
      const to = `v${layer}_${i}`;
      lines.push(`Relu layers/${layer}/n${i} : ${from} -> ${to}`);
      from = to;
    }
  }
  return [...lines, `Relu head/out : ${from} -> y`, "output y"].join("\n");
}

describe("defaultOpen", () => {
  test("opens all of a small graph", () => {
    const columns = columnsOf(layers(3, 5));
    expect(defaultOpen(columns).size).toBe(columns.groupCount);
  });

  test("folds repeated layers in a graph of moderate size too", () => {
    const columns = columnsOf(layers(10, 4));
    const open = defaultOpen(columns);
    expect(open.has(groupAt(columns, "layers/0"))).toBe(true);
    expect(open.has(groupAt(columns, "layers/9"))).toBe(false);
  });

  test("opens one example of repeated layers, within the budget", () => {
    const columns = columnsOf(layers(12, 10));
    const open = defaultOpen(columns);
    expect(open.has(groupAt(columns, "layers/0"))).toBe(true);
    expect(open.has(groupAt(columns, "layers/1"))).toBe(false);
    expect(buildScene(columns, open, measure, createCache()).boxes.count).toBeLessThanOrEqual(60);
  });

  test("leaves very many repeated layers closed", () => {
    const columns = columnsOf(layers(100, 10));
    expect(defaultOpen(columns).has(groupAt(columns, "layers"))).toBe(false);
  });
});
