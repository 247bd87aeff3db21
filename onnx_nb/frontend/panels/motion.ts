/** Moves boxes from their places in one scene to those in the next, so that the eye keeps its place. */

import { type Camera, toScreen, toWorld } from "../render/camera.ts";
import { BOX, type Label, type Scene } from "../scene/scene.ts";

/** Milliseconds of a motion, and boxes beyond which nothing moves. */
export const MOTION = { ms: 150, most: 5000 } as const;

/** Returns whether nothing may move: a person asked for that, or nobody sees it. */
export function isStill(): boolean {
  return document.hidden || globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches === true;
}

const SIDES = ["x", "y", "w", "h"] as const;
/** Boxes that grow have no room for text. */
const NO_LABEL: Label = { title: "", sub: "", lines: [] };

/**
 * Returns the scene on its way, 0 ≤ t ≤ 1. A box begins where it was on screen, a new one in the scope that opened,
 * whose box was smaller; lines follow the boxes at their ends.
 */
export function motionBetween(before: Scene, after: Scene, from: Camera, to: Camera): (t: number) => Scene {
  const { boxes, edges } = after;
  const start = { x: boxes.x.slice(), y: boxes.y.slice(), w: boxes.w.slice(), h: boxes.h.slice() };
  const zoom = from.k / to.k;
  const isNew = new Uint8Array(boxes.count);
  const key = ({ kind, id }: Scene["boxes"], box: number): string =>
    `${kind[box] === BOX.OPEN ? BOX.SCOPE : kind[box]} ${id[box]}`;
  const places = new Map(Array.from(before.boxes.id, (_, box) => [key(before.boxes, box), box]));
  for (let box = 0; box < boxes.count; box++) {
    const [was, parent] = [places.get(key(boxes, box)), boxes.parent[box]];
    if (was !== undefined) {
      const screen = toScreen(from, before.boxes.x[was], before.boxes.y[was]);
      const world = toWorld(to, screen.x, screen.y);
      [start.x[box], start.y[box]] = [world.x, world.y];
      [start.w[box], start.h[box]] = [before.boxes.w[was] * zoom, before.boxes.h[was] * zoom];
    } else if (parent >= 0) {
      isNew[box] = 1;
      const [wide, high] = [start.w[parent] / boxes.w[parent], start.h[parent] / boxes.h[parent]];
      start.x[box] = start.x[parent] + (boxes.x[box] - boxes.x[parent]) * wide;
      start.y[box] = start.y[parent] + (boxes.y[box] - boxes.y[parent]) * high;
      [start.w[box], start.h[box]] = [boxes.w[box] * wide, boxes.h[box] * high];
    }
  }
  /** Returns how far a point of a box is from its place at the start. */
  const shift = (side: "x" | "y", size: "w" | "h", box: number, at: number): number =>
    start[side][box] + ((at - boxes[side][box]) * start[size][box]) / boxes[size][box] - at;
  const points = edges.points.slice();
  const labelX = new Float32Array(edges.count).fill(Number.NaN); // an edge's label has no place on the way
  for (let edge = 0; edge < edges.count; edge++) {
    const [first, last] = [edges.ptr[edge], edges.ptr[edge + 1] - 1];
    const ends = [edges.fromBox[edge], edges.toBox[edge]].map((box) => (box < 0 ? edges.scope[edge] : box));
    for (const axis of [0, 1] as const) {
      const [side, size] = [SIDES[axis], SIDES[2 + axis]] as ["x" | "y", "w" | "h"];
      const [begin, end] = [first, last].map((p, i) => {
        const box = ends[i] < 0 ? ends[1 - i] : ends[i];
        return box < 0 ? 0 : shift(side, size, box, edges.points[2 * p + axis]);
      });
      for (let p = first; p <= last; p++)
        points[2 * p + axis] += begin + ((end - begin) * (p - first)) / Math.max(1, last - first);
    }
  }
  return (t) => {
    const mix = (a: Float32Array, b: Float32Array): Float32Array => b.map((place, i) => a[i] + (place - a[i]) * t);
    const [x, y, w, h] = SIDES.map((side) => mix(start[side], boxes[side]));
    return {
      direction: after.direction,
      scopes: after.scopes,
      boxes: { ...boxes, x, y, w, h },
      edges: { ...edges, points: mix(points, edges.points), labelX },
      bounds: { ...toWorld(to, 1, 1), w: 0, h: 0 }, // all of it is drawn, and nothing has to be indexed
      boxOf: (kind, id) => after.boxOf(kind, id),
      edgesOf: (value) => after.edgesOf(value),
      boxesOfValue: (value) => after.boxesOfValue(value),
      label: (box) => (isNew[box] === 1 ? NO_LABEL : after.label(box)),
      edgeLabel: (edge) => after.edgeLabel(edge),
    };
  };
}
