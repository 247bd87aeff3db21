/** How far apart two pictures draw what they have in common. */

import type { Columns, Target } from "../protocol/columns.ts";
import type { PairData, SideOf } from "../protocol/diff.ts";
import type { Point } from "../render/camera.ts";
import { boxOf } from "../render/highlights.ts";
import { BOX, type Scene } from "../scene/scene.ts";
import type { GraphView } from "./graphview.ts";

export type Views = readonly [GraphView, GraphView];
/** a target of the left graph and its counterpart in the right one */
export type Anchor = readonly [Target, Target];

/** Pixels of the world around the middle of the view in which boxes count most. */
const NEAR = 160;
/** Boxes that the selection counts as much as. */
const ANCHOR_WEIGHT = 60;

export const other = (side: SideOf): SideOf => (side === 0 ? 1 : 0);

export class Alignment {
  readonly #columns: readonly [Columns, Columns];
  readonly #data: PairData;
  readonly #views: Views;
  #scenes: readonly (Scene | null)[] = [];
  /** boxes that both scenes draw, of the left one and of the right one */
  #boxes: readonly [number[], number[]] = [[], []];

  constructor(columns: readonly [Columns, Columns], data: PairData, views: Views) {
    this.#columns = columns;
    this.#data = data;
    this.#views = views;
  }

  /** Returns the way from where `side` draws something to where the other side does; near the middle counts most. */
  offset(side: SideOf, anchor: Anchor | null): Point | null {
    const [left, right] = this.#views.map((view) => view.viewport.scene);
    if (left == null || right == null) return null;
    if (this.#scenes[0] !== left || this.#scenes[1] !== right) this.#match(left, right);
    const { camera, view } = this.#views[side].viewport.position;
    const [cx, cy] = [camera.x + view.w / camera.k / 2, camera.y + view.h / camera.k / 2];
    let [sum, x, y] = [0, 0, 0];
    const count = (ends: readonly [Point, Point], times: number): void => {
      const [from, to] = [ends[side], ends[other(side)]];
      const near = NEAR ** 2 / ((from.x - cx) ** 2 + (from.y - cy) ** 2 + NEAR ** 2);
      const weight = times * near * near;
      sum += weight;
      x += weight * (to.x - from.x);
      y += weight * (to.y - from.y);
    };
    const [a, b] = this.#boxes;
    for (let at = 0; at < a.length; at++) count([centerOf(left, a[at]), centerOf(right, b[at])], 1);
    const ends = anchor === null ? [] : [this.#center(left, 0, anchor[0]), this.#center(right, 1, anchor[1])];
    const [start, end] = ends;
    if (start != null && end != null) count([start, end], ANCHOR_WEIGHT);
    return sum === 0 ? null : { x: x / sum, y: y / sum };
  }

  #match(left: Scene, right: Scene): void {
    const [mine, others]: [number[], number[]] = [[], []];
    for (let box = 0; box < left.boxes.count; box++) {
      const target = targetOf(left, box);
      const found = target === null ? null : this.#data.counterpart(0, target);
      const there = found === null ? -1 : boxOf(right, this.#columns[1], found);
      if (there < 0) continue;
      mine.push(box);
      others.push(there);
    }
    this.#scenes = [left, right];
    this.#boxes = [mine, others];
  }

  /** Where a target is drawn; a tensor without a box is where its producer or a reader is. */
  #center(scene: Scene, side: SideOf, target: Target): Point | null {
    let box = boxOf(scene, this.#columns[side], target);
    if (box < 0 && target.kind === "tensor") {
      const { producer, consumers } = scene.boxesOfValue(target.id);
      box = producer >= 0 ? producer : (consumers[0] ?? -1);
    }
    return box < 0 ? null : centerOf(scene, box);
  }
}

function centerOf({ boxes: { x, y, w, h } }: Scene, box: number): Point {
  return { x: x[box] + w[box] / 2, y: y[box] + h[box] / 2 };
}

/** Returns what a box shows; null for an open scope, whose middle means little. */
function targetOf({ boxes: { kind, id } }: Scene, box: number): Target | null {
  if (kind[box] === BOX.OPEN) return null;
  return { kind: kind[box] === BOX.NODE ? "node" : kind[box] === BOX.SCOPE ? "scope" : "tensor", id: id[box] };
}
