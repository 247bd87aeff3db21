/** The scale of the colors below an exported picture: without it the colors say nothing. */

import type { Size } from "./camera.ts";
import type { Pen, Picture } from "./canvas.ts";
import { labelKeys } from "./theme.ts";

/** Pixels of the strip, and of what is on it. */
const STRIP = 36;
const ROW = 20;
const SIDE = 14;
const FONT = 11.5;
const RAMP = { width: 220, height: 10, steps: 44 } as const;

/** Returns the pixels that the scale takes below a picture of this width: 0 if no numbers color it. */
export function scaleHeight(picture: Picture, width: number): number {
  return picture.overlay === null ? 0 : STRIP + ROW * Math.max(0, ...placeLabels(picture, width).map(({ row }) => row));
}

/** Places the labels of an overlay in rows, after its name. */
function placeLabels({ overlay, measure }: Picture, width: number) {
  let [x, row] = [2 * SIDE + measure(overlay?.data.label || "value", FONT, true), 0];
  return labelKeys(overlay?.data.labels ?? []).map(({ text: name, fill }) => {
    const text = name.length > 40 ? `${name.slice(0, 39)}…` : name;
    const wide = RAMP.height + SIDE / 2 + measure(text, FONT, false);
    if (x + wide + SIDE > width && x > SIDE) [x, row] = [SIDE, row + 1];
    x += wide + SIDE;
    return { text, fill, row, x: x - wide - SIDE };
  });
}

/** Draws the label, the colors and the smallest and the largest number below a view. */
export function drawScale(pen: Pen, picture: Picture, view: Size, dpr: number): void {
  const { overlay, theme, measure } = picture;
  if (overlay === null) return;
  const { label, reduce } = overlay.data;
  const { from, to } = overlay.range;
  pen.setTransform(dpr, 0, 0, dpr, 0, dpr * view.h);
  pen.fillStyle = theme.background;
  pen.fillRect(0, 0, view.w, scaleHeight(picture, view.w));
  pen.fillStyle = theme.line;
  pen.fillRect(0, 0, view.w, 1);
  pen.textBaseline = "middle";
  let middle = STRIP / 2;
  let x = SIDE;
  const write = (text: string, color: string, bold: boolean): void => {
    pen.font = `${bold ? "600 " : ""}${FONT}px ${theme.font}`;
    pen.fillStyle = color;
    pen.fillText(text, x, middle);
    x += measure(text, FONT, bold) + SIDE;
  };
  write(label || "value", theme.text, true);
  if (overlay.data.labels !== undefined) {
    placeLabels(picture, view.w).forEach(({ text, fill, row, x: left }) => {
      middle = STRIP / 2 + ROW * row;
      pen.fillStyle = fill;
      pen.fillRect(left, middle - RAMP.height / 2, RAMP.height, RAMP.height);
      x = left + RAMP.height + SIDE / 2;
      write(text, theme.text, false);
    });
    pen.textBaseline = "alphabetic";
    return;
  }
  write(`${reduce} over scopes`, theme.dim, false);
  write(overlay.say(overlay.at(from)), theme.text, false);
  const step = RAMP.width / RAMP.steps;
  for (let at = 0; at < RAMP.steps; at++) {
    pen.fillStyle = theme.ramp.color(from + ((at + 0.5) / RAMP.steps) * (to - from));
    pen.fillRect(x + at * step, middle - RAMP.height / 2, step + 0.3, RAMP.height);
  }
  x += RAMP.width + SIDE;
  write(overlay.say(overlay.at(to)), theme.text, false);
  pen.textBaseline = "alphabetic";
}
