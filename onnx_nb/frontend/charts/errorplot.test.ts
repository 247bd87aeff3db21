import { describe, expect, it } from "vitest";
import type { Extent } from "./chart.ts";
import { createPlotArea, type ErrorSeries, type PlotArea } from "./errorplot.ts";

const errorsOf = (numbers: number[], more: Partial<ErrorSeries> = {}): ErrorSeries => ({
  count: numbers.length,
  series: [{ kind: "cumulative", numbers: Float64Array.from(numbers) }],
  logarithmic: true,
  parts: [],
  odd: "NaN, Inf",
  ...more,
});
const areaOf = (errors: ErrorSeries, span: Extent = [0, Math.max(1, errors.count - 1)]): PlotArea =>
  createPlotArea(errors, span, 800, 200);

describe("errors against depth", () => {
  it("uses the same height for a magnitude anywhere on a logarithmic axis", () => {
    const area = areaOf(errorsOf([1e-7, 1e-5, 1e-3, 1e-1]));
    const [a, b, c, d] = [1e-7, 1e-5, 1e-3, 1e-1].map((x) => area.y(x));
    expect(a - b).toBeCloseTo(b - c, 6);
    expect(b - c).toBeCloseTo(c - d, 6);
    expect(a).toBeGreaterThan(b);
  });

  it("puts equal values below the axis and NaN on one side above it", () => {
    const area = areaOf(errorsOf([0, 1e-6, Number.POSITIVE_INFINITY, Number.NaN]));
    expect(area.y(0)).toBeGreaterThan(area.bottom);
    expect(area.y(Number.POSITIVE_INFINITY)).toBeLessThan(area.top);
    expect(area.y(Number.NaN)).toBeNaN();
    expect(areaOf(errorsOf([1e-6, 1])).floor).toBeNaN();
  });

  it("draws at most as many grid lines as fit", () => {
    const labels = areaOf(errorsOf([1e-30, 1]))
      .ticks()
      .map(([, label]) => label);
    expect(labels[0]).toBe("1e0");
    expect(labels.length).toBeLessThan(9);
    const decibels = areaOf(errorsOf([-3, 140], { logarithmic: false })).ticks();
    expect(decibels.map(([, label]) => label)).toEqual(["0", "50", "100"]);
  });

  it("finds the point at a position, by depth before height", () => {
    const area = areaOf(errorsOf(Array.from({ length: 100 }, (_, row) => (row === 40 ? 1 : 1e-7))));
    expect(area.rowNear(area.x(40), area.y(1))).toBe(40);
    expect(area.rowNear(area.x(7) + 2, area.y(1e-7))).toBe(7);
    expect(areaOf(errorsOf([])).rowNear(100, 100)).toBe(-1);
    expect(areaOf(errorsOf([Number.NaN])).rowNear(100, 100)).toBe(-1);
  });

  it("finds the row at a position of a part", () => {
    const area = areaOf(errorsOf(new Array(100).fill(1e-6)), [20, 40]);
    expect(area.rowAt(area.x(33))).toBeCloseTo(33, 9);
  });

  it("names the parts in view, else numbers the rows", () => {
    const depth = errorsOf(new Array(1000).fill(1), {
      parts: [
        [0, "embeddings"],
        [500, "layer.1"],
      ],
    });
    expect(areaOf(depth).marks()).toEqual([
      [0, "embeddings"],
      [500, "layer.1"],
    ]);
    expect(areaOf(depth, [400, 600]).marks()).toEqual([[500, "layer.1"]]);
    expect(
      areaOf(errorsOf(new Array(1001).fill(1)))
        .marks()
        .map(([, label]) => label),
    ).toContain("1,000");
    expect(areaOf(errorsOf([])).marks()).toEqual([]);
  });
});
