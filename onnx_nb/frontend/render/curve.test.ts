import { describe, expect, it } from "vitest";
import { along, distance2, trace } from "./curve.ts";

/** Computes the same cubic by de Casteljau, independent of our closed form. */
function casteljau(points: [number, number][], t: number): [number, number] {
  let level = points;
  while (level.length > 1) {
    level = level
      .slice(1)
      .map(([x, y], at) => [level[at][0] + (x - level[at][0]) * t, level[at][1] + (y - level[at][1]) * t]);
  }
  return level[0];
}

describe("curve", () => {
  it("runs on the Bézier curve that the canvas draws", () => {
    const drawn: number[] = [];
    const pen = {
      moveTo: (...at: number[]) => drawn.push(...at),
      lineTo: () => expect.unreachable(),
      bezierCurveTo: (...at: number[]) => drawn.push(...at),
    };
    for (const direction of ["down", "right"] as const) {
      drawn.length = 0;
      trace(pen, Float32Array.of(10, 20, 90, 140), 0, 2, direction);
      const points = [0, 2, 4, 6].map((at) => [drawn[at], drawn[at + 1]] as [number, number]);
      for (const t of [0, 0.1, 0.37, 0.5, 0.93, 1]) {
        const [x, y] = casteljau(points, t);
        const at = along(10, 20, 90, 140, t, direction);
        expect(at.x).toBeCloseTo(x, 4);
        expect(at.y).toBeCloseTo(y, 4);
      }
    }
  });

  it("measures the distance from a straight piece and from a curved one", () => {
    const straight = Float32Array.of(0, 0, 0, 100);
    expect(distance2(straight, 0, 3, 50, "down")).toBeCloseTo(9);
    expect(distance2(straight, 0, 0, 104, "down")).toBeCloseTo(16);
    const curved = Float32Array.of(0, 0, 80, 100);
    const on = along(0, 0, 80, 100, 0.4, "down");
    expect(distance2(curved, 0, on.x, on.y, "down")).toBeLessThan(1);
    // a straight line would pass here, the S does not
    expect(distance2(curved, 0, 20, 25, "down")).toBeGreaterThan(16);
  });
});
