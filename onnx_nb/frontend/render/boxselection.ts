/** Boxes that a gesture selects: those that a rectangle touches, and the siblings of the selection. */

import type { Columns, Target } from "../protocol/columns.ts";
import { BOX, type Scene } from "../scene/scene.ts";
import type { Rect } from "./camera.ts";
import { boxOf } from "./highlights.ts";
import { boxTarget, type HitIndex } from "./hit.ts";

/** Nodes and closed scopes that a world rectangle touches. */
export function touched(scene: Scene, index: HitIndex, { x, y, w, h }: Rect): Target[] {
  return index
    .seen(x, y, x + w, y + h)
    .boxes.filter((box) => isBox(scene, box))
    .map((box) => boxTarget(scene, box));
}

/**
 * All nodes and scopes in the open scope around the selection; once they are selected, those one scope further out.
 * Without a selection those at the root.
 */
export function siblingsOf(scene: Scene, columns: Columns, selection: readonly Target[]): Target[] {
  const chosen = new Set(selection.map((target) => boxOf(scene, columns, target)));
  const { count, parent } = scene.boxes;
  const last = selection.at(-1);
  const box = last === undefined ? -1 : boxOf(scene, columns, last);
  for (let around = box < 0 ? -1 : parent[box]; ; around = parent[around]) {
    const inside: number[] = [];
    for (let each = 0; each < count; each++) {
      if (parent[each] === around && (isBox(scene, each) || scene.boxes.kind[each] === BOX.OPEN)) inside.push(each);
    }
    if (around < 0 || inside.some((each) => !chosen.has(each))) return inside.map((each) => boxTarget(scene, each));
  }
}

function isBox({ boxes }: Scene, box: number): boolean {
  return boxes.kind[box] === BOX.NODE || boxes.kind[box] === BOX.SCOPE;
}
