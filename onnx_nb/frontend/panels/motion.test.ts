import { describe, expect, test } from "vitest";
import { buildScene, createCache } from "../layout/build.ts";
import { columnsOf, measure, scopeAt } from "../protocol/testing.ts";
import { type Camera, toScreen } from "../render/camera.ts";
import type { Scene } from "../scene/scene.ts";
import { motionBetween } from "./motion.ts";

const COLUMNS = columnsOf(`
input x 4 float32
Relu enc/a : x -> p
Relu enc/b : p -> q
Relu dec/c : q -> y
output y
`);
const [ENC, DEC] = [scopeAt(COLUMNS, "enc"), scopeAt(COLUMNS, "dec")];
const scene = (...open: readonly number[]): Scene => buildScene(COLUMNS, new Set([0, ...open]), measure, createCache());
const [CLOSED, OPEN] = [scene(), scene(ENC)];
const [FROM, TO]: Camera[] = [
  { x: 10, y: 20, k: 1 },
  { x: -40, y: 60, k: 0.5 },
];

/** Returns where a box is on the screen. */
function placeOf({ boxes }: Scene, camera: Camera, box: number): readonly number[] {
  const { x, y } = toScreen(camera, boxes.x[box], boxes.y[box]);
  return [x, y, boxes.w[box] * camera.k, boxes.h[box] * camera.k].map(Math.round);
}

describe("a motion", () => {
  test("begins where the boxes were on the screen and ends at their places", () => {
    for (const [before, after] of [
      [CLOSED, OPEN],
      [OPEN, CLOSED],
    ] as const) {
      const motion = motionBetween(before, after, FROM, TO);
      for (const scope of [ENC, DEC]) {
        const [was, now] = [before, after].map((each) => each.boxOf("scope", scope));
        expect(placeOf(motion(0), TO, now)).toEqual(placeOf(before, FROM, was));
      }
      expect(motion(1).boxes).toEqual(after.boxes);
      expect(motion(1).edges.points).toEqual(after.edges.points);
    }
  });

  test("lets new boxes grow out of the scope that opened, with lines at the boxes", () => {
    const { boxes, edges, boxOf } = motionBetween(CLOSED, OPEN, FROM, FROM)(0);
    const [outer, inner] = [boxOf("scope", ENC), boxOf("node", COLUMNS.find("enc/b")?.id ?? -1)];
    expect(boxes.x[inner]).toBeGreaterThan(boxes.x[outer]);
    expect(boxes.y[inner] + boxes.h[inner]).toBeLessThan(boxes.y[outer] + boxes.h[outer]);
    for (let edge = 0; edge < edges.count; edge++) {
      const to = edges.toBox[edge];
      if (to < 0 || to === edges.scope[edge]) continue;
      expect(edges.points[2 * edges.ptr[edge + 1] - 1]).toBeCloseTo(boxes.y[to], 2);
    }
  });
});
