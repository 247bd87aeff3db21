/** Width of the wires by the size of their tensors, so that data stands out and shape arithmetic recedes. */

import { type Columns, oncePerModel } from "../protocol/columns.ts";
import { BOX, type Scene } from "../scene/scene.ts";

/** Pixels: width of a wire of at most `from` bytes, or of unknown size, and of at least `to` bytes. */
const WIDTH = { thin: 1, thick: 4, from: 1e3, to: 1e8 } as const;

/** The width in px of the wires of each tensor, in steps of half a pixel. */
export const widthsOf = oncePerModel((columns) => {
  const { valueCount, valueShape, valueDtype } = columns;
  const byType = new Map<number, number>();
  const widths = new Float32Array(valueCount);
  for (let value = 0; value < valueCount; value++) {
    const type = valueShape[value] * 2 ** 26 + valueDtype[value];
    const width = byType.get(type) ?? widthOf(columns.bytesOf(value, 1)); // all have the batch
    byType.set(type, width);
    widths[value] = width;
  }
  return widths;
});

export function widthOf(bytes: number): number {
  const share = Math.log(bytes / WIDTH.from) / Math.log(WIDTH.to / WIDTH.from);
  const width = WIDTH.thin + (WIDTH.thick - WIDTH.thin) * Math.min(1, Math.max(0, share || 0));
  return Math.round(2 * width) / 2;
}

/** Returns whether an edge shows shape arithmetic: what computes nothing but shapes made the tensor, or reads it here. */
export function isPlumbing({ boxes, edges }: Scene, columns: Columns, edge: number): boolean {
  const to = edges.toBox[edge];
  if (columns.isPlumbing(columns.producer[edges.value[edge]])) return true;
  return to >= 0 && boxes.kind[to] === BOX.NODE && columns.isPlumbing(boxes.id[to]);
}
