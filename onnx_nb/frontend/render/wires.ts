/** Wires by the size of their tensors, so that data stands out, and those of shape arithmetic, which recede. */

import { type Columns, oncePerModel } from "../protocol/columns.ts";
import { BOX, type Scene } from "../scene/scene.ts";

/** Returns the pixels of a wire: 1 up to 1 kB, or for an unknown size, and 4 from 100 MB on. */
export function widthOf(bytes: number): number {
  const share = (Math.log10(bytes) - 3) / 5;
  return Math.round(2 + 6 * Math.min(1, Math.max(0, share || 0))) / 2;
}

/** The width in px of the wires of each tensor; all have the batch. */
export const widthsOf = oncePerModel((columns) => {
  const { valueShape, valueDtype } = columns;
  const byType = new Map<number, number>();
  return Float32Array.from(valueShape, (shape, value) => {
    const type = shape * 2 ** 26 + valueDtype[value];
    const width = byType.get(type) ?? widthOf(columns.bytesOf(value, 1));
    byType.set(type, width);
    return width;
  });
});

/** Returns whether an edge shows shape arithmetic: what computes nothing but shapes made the tensor, or reads it here. */
export function isPlumbing({ boxes, edges }: Scene, columns: Columns, edge: number): boolean {
  const to = edges.toBox[edge];
  const isReader = boxes.kind[to] === BOX.NODE && columns.isPlumbing(boxes.id[to]);
  return isReader || columns.isPlumbing(columns.producer[edges.value[edge]]);
}
