/** Pins on the picture, as large at every zoom. */

import { BOX } from "../scene/scene.ts";
import type { Pen, Picture } from "./canvas.ts";

/** Draws a pin beside each box where NaN begins. */
export function drawPins(ctx: Pen, { scene, theme, overlay }: Picture, boxes: number[], k: number): void {
  if (overlay?.spreads !== true) return;
  const { kind, id, x, y, w, h } = scene.boxes;
  const size = Math.max(9, 9 / k);
  for (const box of boxes) {
    if (kind[box] === BOX.OPEN || overlay.number(kind[box], id[box]) !== 0) continue;
    const [tipX, tipY] = [x[box] + w[box], y[box] + h[box] / 2];
    const centerX = tipX + 1.9 * size;
    const fill = (radius: number, color: string): void => {
      ctx.roundRect(centerX - radius, tipY - radius, 2 * radius, 2 * radius, radius);
      ctx.fillStyle = color;
      ctx.fill();
      ctx.beginPath();
    };
    ctx.beginPath();
    ctx.moveTo(centerX - 0.5 * size, tipY - 0.85 * size);
    ctx.lineTo(tipX, tipY);
    ctx.lineTo(centerX - 0.5 * size, tipY + 0.85 * size);
    fill(size, theme.bad);
    fill(0.4 * size, theme.background);
  }
}
