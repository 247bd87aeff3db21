/** Steps along the drawn graph for the arrow keys: through the borders of open scopes, to the nearest neighbor. */

import type { Columns, Target } from "../protocol/columns.ts";
import { BOX, isPill, type Scene } from "../scene/scene.ts";
import type { Rect } from "./camera.ts";
import { boxOf } from "./highlights.ts";
import { boxTarget, type HitIndex } from "./hit.ts";

export type ArrowStep = "up" | "down" | "left" | "right";

/**
 * Returns the target of a step: up and down to a producer or consumer, left and right to a neighbor at the same height.
 * With `tensors` a step from a box stops at the tensor between.
 */
export function walk(
  scene: Scene,
  columns: Columns,
  from: Target | null,
  step: ArrowStep,
  tensors: boolean,
): Target | null {
  if (scene.boxes.count === 0) return null;
  if (from === null) return boxTarget(scene, start(scene));
  const box = boxOf(scene, columns, from);
  if (from.kind === "tensor" && !isPill(scene.boxes.kind[box])) return fromTensor(scene, from.id, step);
  if (box < 0) return boxTarget(scene, start(scene));
  if (step === "left" || step === "right") return boxAside(scene, box, step);
  const next = across(scene, box, step);
  if (next === null) return null;
  return tensors ? { kind: "tensor", id: next.value } : boxTarget(scene, next.box);
}

/** Returns the first box from the top. */
function start(scene: Scene): number {
  const { count, y, kind } = scene.boxes;
  let topmost = 0;
  for (let box = 1; box < count; box++)
    if (kind[box] !== BOX.OPEN && (kind[topmost] === BOX.OPEN || y[box] < y[topmost])) topmost = box;
  return topmost;
}

function fromTensor(scene: Scene, value: number, step: ArrowStep): Target | null {
  const { producer, consumers } = scene.boxesOfValue(value);
  if (step === "up") return producer >= 0 ? boxTarget(scene, producer) : null;
  if (step === "down") return consumers.length > 0 ? boxTarget(scene, consumers[0]) : null;
  // parallel tensors share a producer, or else a consumer
  const { edges } = scene;
  const valuesBeside = (ends: Int32Array, box: number): number[] => {
    const values = new Set<number>();
    for (let edge = 0; edge < edges.count; edge++)
      if (ends[edge] === box && edges.scope[edge] !== box) values.add(edges.value[edge]);
    return [...values];
  };
  let parallels = producer >= 0 ? valuesBeside(edges.fromBox, producer) : [];
  if (parallels.length < 2 && consumers.length > 0) parallels = valuesBeside(edges.toBox, consumers[0]);
  const at = parallels.indexOf(value);
  const next = parallels[at + (step === "right" ? 1 : -1)];
  return at < 0 || next === undefined ? null : { kind: "tensor", id: next };
}

/** Returns the nearest box whose height overlaps, on the wanted side, in the same scope. */
function boxAside(scene: Scene, box: number, step: ArrowStep): Target | null {
  const { count, parent, x, y, w, h } = scene.boxes;
  const center = (candidate: number): number => x[candidate] + w[candidate] / 2;
  const distance = (candidate: number): number => (center(candidate) - center(box)) * (step === "right" ? 1 : -1);
  let nearestBox = -1; // whose distance is NaN
  for (let candidate = 0; candidate < count; candidate++) {
    if (candidate === box || parent[candidate] !== parent[box]) continue;
    if (y[candidate] > y[box] + h[box] || y[candidate] + h[candidate] < y[box]) continue;
    if (distance(candidate) > 0 && !(distance(candidate) >= distance(nearestBox))) nearestBox = candidate;
  }
  return nearestBox < 0 ? null : boxTarget(scene, nearestBox);
}

/** Returns the box at the other end of an edge that leaves (down) or enters (up) `box`, nearest in x. */
function across(scene: Scene, box: number, step: "up" | "down"): { box: number; value: number } | null {
  const { edges, boxes } = scene;
  const nearEnds = step === "down" ? edges.fromBox : edges.toBox;
  const there = step === "down" ? edges.toBox : edges.fromBox;
  const middle = boxes.x[box] + boxes.w[box] / 2;
  let nearestBox: { box: number; value: number } | null = null;
  let distance = Number.POSITIVE_INFINITY;
  const follow = (from: number, value: number, inside: boolean, depth: number): void => {
    const candidates = value < 0 ? edges.value.keys() : scene.edgesOf(value);
    for (const edge of candidates) {
      if (nearEnds[edge] !== from || there[edge] < 0 || depth > 64) continue;
      // from within an open box, its border belongs to the edges inside it; from outside, to those around it
      if (boxes.kind[from] === BOX.OPEN && (edges.scope[edge] === from) !== inside) continue;
      const to = there[edge];
      const tensor = edges.value[edge];
      if (boxes.kind[to] !== BOX.OPEN) {
        const d = Math.abs(boxes.x[to] + boxes.w[to] / 2 - middle);
        if (d < distance) {
          distance = d;
          nearestBox = { box: to, value: tensor };
        }
      } else follow(to, tensor, edges.scope[edge] !== to, depth + 1);
    }
  };
  follow(box, -1, false, 0);
  return nearestBox;
}

/** Returns the nodes and closed scopes that touch a world rectangle. */
export function targetsIn(scene: Scene, index: HitIndex, { x, y, w, h }: Rect): Target[] {
  return index
    .itemsIn(x, y, x + w, y + h)
    .boxes.filter((box) => isBox(scene, box))
    .map((box) => boxTarget(scene, box));
}

/** Returns all in the open scope around the selection, or at the root; if all are selected, in the next scope out. */
export function siblingsOf(scene: Scene, columns: Columns, selection: readonly Target[]): Target[] {
  const selectionBoxes = new Set(selection.map((target) => boxOf(scene, columns, target)));
  const { count, kind, parent } = scene.boxes;
  const last = selection.at(-1);
  const box = last === undefined ? -1 : boxOf(scene, columns, last);
  for (let parentBox = box < 0 ? -1 : parent[box]; ; parentBox = parent[parentBox]) {
    const isInside = (other: number): boolean => parent[other] === parentBox && !isPill(kind[other]);
    const inside = Array.from({ length: count }, (_, candidate) => candidate).filter(isInside);
    if (parentBox < 0 || inside.some((candidate) => !selectionBoxes.has(candidate)))
      return inside.map((candidate) => boxTarget(scene, candidate));
  }
}

function isBox({ boxes }: Scene, box: number): boolean {
  return boxes.kind[box] === BOX.NODE || boxes.kind[box] === BOX.SCOPE;
}
