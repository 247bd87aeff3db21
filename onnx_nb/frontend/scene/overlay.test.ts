import { describe, expect, test } from "vitest";
import type { OverlayData } from "../protocol/host.ts";
import { FULL_RANGE, Overlay } from "./overlay.ts";
import { BOX, type Boxes } from "./scene.ts";

function data(nodes: number[], more: Partial<OverlayData> = {}): OverlayData {
  return {
    label: "error",
    scale: "linear",
    reduce: "max",
    unmatched: 0,
    nodes: Float64Array.from(nodes),
    scopes: Float64Array.from([1e9, Math.max(...nodes.filter((x) => Number.isFinite(x)))]),
    ...more,
  };
}

describe("Overlay", () => {
  test("places numbers between the smallest and the largest drawn one", () => {
    const overlay = new Overlay(data([2, 4, 6, Number.NaN]));
    expect([overlay.min, overlay.max]).toEqual([2, 6]);
    expect([2, 4, 6].map((x) => overlay.place(x))).toEqual([0, 0.5, 1]);
    expect(overlay.place(Number.NaN)).toBeNaN();
    expect(overlay.place(Number.POSITIVE_INFINITY)).toBe(1);
    expect(overlay.number(BOX.SCOPE, 1)).toBe(6);
    expect(overlay.number(BOX.INPUT, 1)).toBeNaN();
  });

  test("places by magnitude on a logarithmic scale, where zero is the smallest", () => {
    const overlay = new Overlay(data([0, 1e-6, 1e-3, 1], { scale: "log" }));
    expect([overlay.min, overlay.max]).toEqual([1e-6, 1]);
    expect(overlay.place(1e-3)).toBeCloseTo(0.5);
    expect(overlay.place(0)).toBe(0);
    for (const t of [0, 0.25, 1]) expect(overlay.place(overlay.at(t))).toBeCloseTo(t);
  });

  test("fits its scale to the drawn boxes", () => {
    const overlay = new Overlay(data([1, 2, 3], { scopes: Float64Array.from([6, 6]) }));
    expect([overlay.min, overlay.max]).toEqual([1, 3]);
    const boxes = { count: 3, kind: Uint8Array.of(BOX.NODE, BOX.SCOPE, BOX.OPEN), id: Int32Array.of(1, 1, 0) } as Boxes;
    const drawn = overlay.withRange({ from: 0.5, to: 1 }).scaledTo(boxes);
    expect([drawn.min, drawn.max, drawn.range.from]).toEqual([2, 6, 0.5]);
    expect(drawn.scaledTo(boxes)).toBe(drawn);
  });

  test("draws equal numbers, and no numbers at all", () => {
    expect(new Overlay(data([3, 3])).place(3)).toBe(0.5);
    const nothing = new Overlay(data([Number.NaN], { scopes: Float64Array.from([Number.NaN, Number.NaN]) }));
    expect(nothing.leavesOut(Number.NaN)).toBe(true);
    expect(nothing.at(0.5)).toBe(0);
  });

  test("leaves out numbers outside its range", () => {
    const overlay = new Overlay(data([0, 5, 10])).withRange({ from: 0.4, to: 1 });
    expect([0, 5, 10].map((x) => overlay.leavesOut(x))).toEqual([true, false, false]);
    expect(overlay.withRange(FULL_RANGE).leavesOut(0)).toBe(false);
  });

  test("shows numbers with their unit", () => {
    const say = (label: string, x: number): string => new Overlay(data([1], { label })).say(x);
    expect(say("seconds", 0.00123)).toBe("1.23 ms");
    expect(say("seconds", 4.2e-5)).toBe("42 µs");
    expect(say("weight bytes", 3_400_000)).toBe("3.4 MB");
    expect(say("parameters", 25_557_032)).toBe("25.6 M");
    expect(say("error", 0.000312)).toBe("0.000312");
    expect(say("error", 4.8e-7)).toBe("4.80e−7");
    expect(say("error", Number.NaN)).toBe("none");
  });

  test("places labels side by side, and shows only one on request", () => {
    const overlay = new Overlay(data([0, 1, 1, Number.NaN], { labels: ["CUDA", "CPU"] }));
    expect([0, 1].map((x) => overlay.say(x))).toEqual(["CUDA", "CPU"]);
    expect(overlay.leavesOut(0) || overlay.leavesOut(1)).toBe(false);
    expect(overlay.leavesOut(Number.NaN)).toBe(true);
    const cpu = overlay.withRange(overlay.rangeOf(1, 2));
    expect([0, 1].map((x) => cpu.leavesOut(x))).toEqual([true, false]);
  });
});
