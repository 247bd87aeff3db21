/**
 * The same drawing as SVG, by a pen that replaces the canvas in `draw`, so that an exported file looks like the view.
 */

import type { Camera, Rect, Size } from "./camera.ts";
import { draw, type Picture } from "./canvas.ts";
import { SvgPen, xml } from "./svgpen.ts";

/** Pixels around a whole graph. */
const MARGIN = 12;

/** The whole graph at zoom 1, or what a camera shows, as one SVG document without scripts or references. */
export function toSvg(picture: Picture, shown?: { readonly camera: Camera; readonly view: Size }): string {
  const { camera, view } = shown ?? whole(picture.scene.bounds);
  const pen = new SvgPen(picture.measure);
  draw(pen, picture, camera, view, 1);
  const [w, h] = [Math.ceil(view.w), Math.ceil(view.h)];
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" role="img">` +
    `<title>${xml(picture.columns.meta.name || "model")}</title>${pen.finish()}</svg>`
  );
}

function whole(bounds: Rect): { camera: Camera; view: Size } {
  return {
    camera: { x: bounds.x - MARGIN, y: bounds.y - MARGIN, k: 1 },
    view: { w: bounds.w + 2 * MARGIN, h: bounds.h + 2 * MARGIN },
  };
}
