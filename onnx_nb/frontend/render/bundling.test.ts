import { describe, expect, it } from "vitest";
import { buildScene, createCache } from "../layout/build.ts";
import { random } from "../layout/testing.ts";
import type { Direction } from "../protocol/host.ts";
import { columnsOf, measure } from "../protocol/testing.ts";
import { BOX, type Scene } from "../scene/scene.ts";
import { type Band, bandsOf } from "./bundling.ts";
import { along } from "./curve.ts";

function bands(scene: Scene, k: number): Band[] {
  const bundles = new Map<number, number[]>();
  scene.edges.bundle.forEach((bundle, edge) => {
    if (bundle >= 0) bundles.set(bundle, [...(bundles.get(bundle) ?? []), edge]);
  });
  return [...bundles.values()].flatMap((same) => bandsOf(scene, same, k).bands);
}

/** Returns the outline of the area of a band. */
function outline(scene: Scene, { first, last }: Band): [number, number][] {
  const { ptr, points } = scene.edges;
  const line = (edge: number): [number, number][] => {
    const found: [number, number][] = [];
    for (let p = ptr[edge]; p + 1 < ptr[edge + 1]; p++) {
      const [x0, y0, x1, y1] = points.subarray(2 * p, 2 * p + 4);
      for (let t = 0; t < 1; t += 1 / 16) {
        const { x, y } = along(x0, y0, x1, y1, t, scene.direction);
        found.push([x, y]);
      }
      found.push([x1, y1]);
    }
    return found;
  };
  return [...line(first), ...line(last).reverse()];
}

function inside([x, y]: [number, number], polygon: readonly [number, number][]): boolean {
  let odd = false;
  polygon.forEach(([x1, y1], at) => {
    const [x0, y0] = polygon.at(at - 1) as [number, number];
    if (y0 > y !== y1 > y && x < x0 + ((y - y0) / (y1 - y0)) * (x1 - x0)) odd = !odd;
  });
  return odd;
}

/** Returns the boxes under a band. */
function covered(scene: Scene, k: number): string[] {
  const { x, y, w, h, kind, count } = scene.boxes;
  return bands(scene, k).flatMap((band) => {
    const polygon = outline(scene, band);
    return Array.from({ length: count }, (_, box) => box)
      .filter((box) => kind[box] !== BOX.OPEN && inside([x[box] + w[box] / 2, y[box] + h[box] / 2], polygon))
      .map((box) => scene.label(box).title);
  });
}

const values = (name: string, count: number): string =>
  Array.from({ length: count }, (_, i) => `${name}${i}`).join(" ");

/** Returns a Split, half of whose results go left of a chain of boxes to a Concat and half right of it. */
function around(count: number, between: number): string {
  const half = Math.floor(count / 2);
  const lines = ["input x 8 float32", `Split s : x -> ${values("a", half)} m0 ${values("b", count - half)}`];
  for (let i = 0; i < half; i++) lines.push(`type a${i} 8 float32`);
  for (let i = 0; i < count - half; i++) lines.push(`type b${i} 8 float32`);
  for (let i = 0; i < between; i++) lines.push(`Relu between${i} : m${i} -> m${i + 1}`);
  lines.push(`Concat c : ${values("a", half)} m${between} ${values("b", count - half)} -> y`, "output y");
  return lines.join("\n");
}

describe("bandsOf", () => {
  it("makes one band of many parallel lines", () => {
    const columns = columnsOf(around(100, 0).replace(/ m0/g, ""));
    const scene = buildScene(columns, new Set([0]), measure, createCache(), {});
    expect(bands(scene, 1)).toHaveLength(1);
  });

  it.each(["down", "right"] as Direction[])(
    "splits where lines pass a box on both sides (%s)",
    (direction) => {
      for (const count of [20, 64, 300]) {
        for (const between of [1, 3]) {
          const columns = columnsOf(around(count, between));
          const scene = buildScene(columns, new Set([0]), measure, createCache(), { direction });
          for (const k of [1, 0.4, 0.1]) expect(covered(scene, k), `${count} around ${between} at ${k}`).toEqual([]);
        }
      }
    },
    60_000,
  );

  it("covers no box of random graphs with bundles", () => {
    for (let seed = 30; seed <= 45; seed++) {
      const next = random(seed);
      const lines = ["input x 8 float32", `Split s0 : x -> ${values("t0_", 12 + next(30))}`];
      const free: string[] = Array.from({ length: 12 }, (_, i) => `t0_${i}`);
      for (let node = 1; node < 9; node++) {
        // some read a dozen tensors of one node, in any order among others, some only one
        const read = next(2) === 0 ? free.slice(-(10 + next(8))) : [free[next(free.length)]];
        if (next(2) === 0) read.splice(next(read.length), 0, free[next(free.length)]);
        const made = Array.from({ length: next(3) === 0 ? 1 : 10 + next(20) }, (_, i) => `t${node}_${i}`);
        lines.push(
          `Split s${node} : ${read.join(" ")} -> ${made.join(" ")}`,
          ...made.map((t) => `type ${t} 8 float32`),
        );
        free.push(...made);
      }
      const columns = columnsOf([...lines, `output ${free.at(-1)}`].join("\n"));
      for (const direction of ["down", "right"] as const) {
        const scene = buildScene(columns, new Set([0]), measure, createCache(), { direction });
        for (const k of [1, 0.3]) expect(covered(scene, k), `seed ${seed} ${direction}`).toEqual([]);
      }
    }
  }, 60_000);
});
