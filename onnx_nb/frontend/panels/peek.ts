/** The inside of a closed scope in a card over the graph, whose layout stays as it is. */

import { INNER } from "../layout/arrange.ts";
import { buildScene, createCache } from "../layout/build.ts";
import type { Point, Size } from "../render/camera.ts";
import { draw, type Picture } from "../render/canvas.ts";
import { marksOf } from "../render/highlights.ts";
import { HitIndex } from "../render/hit.ts";
import { countOf } from "../scene/formatting.ts";
import { boxesIn } from "../scene/scopegraph.ts";
import { el, on, placeTooltip } from "../ui/dom.ts";
import { describe, type ViewContext } from "./viewcontext.ts";

/** Boxes that a card may show, and those of them that are announced. */
const MAX_BOXES = 300;
const MAX_NAMED = 8;
/** Part of the view that a card may take, and the largest zoom of what is in it. */
const SHARE = 0.9;
const MAX_ZOOM = 0.9;

export function createPeek({ state, dispatch, announce, signal }: ViewContext) {
  const element = el("div.onnx-nb-peek", { hidden: true });
  const cache = createCache();
  let scope = 0;
  on(element, "mousedown", signal, (event) => event.preventDefault()); // the graph keeps the focus
  on(element, "dblclick", signal, () => dispatch({ type: "open", scope }));

  const canvasOf = ({ columns, measure, scene: { direction }, ...look }: Picture, size: Size): HTMLElement => {
    cache.columnHeight = Math.round((SHARE * size.h) / MAX_ZOOM / INNER);
    cache.settle(direction);
    const scene = buildScene(columns, new Set(columns.ancestry(scope)), measure, cache, { direction });
    const box = scene.boxOf("scope", scope);
    const [x, y, w, h] = (["x", "y", "w", "h"] as const).map((side) => scene.boxes[side][box]);
    const k = Math.min(MAX_ZOOM, (SHARE * size.w) / w, (SHARE * size.h) / h);
    const density = window.devicePixelRatio || 1;
    const style = { width: `${w * k}px`, height: `${h * k}px` };
    const canvas = el("canvas", { style, width: Math.round(w * k * density), height: Math.round(h * k * density) });
    const marks = marksOf(scene, columns, { ...state(), selection: null, others: [], hover: null }, new Map());
    const picture = { ...look, columns, measure, scene, marks, index: new HitIndex(scene, measure) };
    const pen = canvas.getContext("2d");
    if (pen !== null) draw(pen, picture, { x, y, k }, { w: w * k, h: h * k }, density);
    return canvas;
  };
  return {
    element,
    /** Shows the inside of a scope beside a point of a view. */
    show(inside: number, picture: Picture, at: Point, size: Size): void {
      scope = inside;
      const boxes = boxesIn(picture.columns, scope);
      const [title, ...names] = [{ kind: "scope", id: scope } as const, ...boxes.slice(0, MAX_NAMED)].map(
        (target) => describe(picture.columns, target).title,
      );
      const count = `${title}: ${countOf(boxes.length, "part")}`;
      const words = `${count}. Double click or press Enter to open it`;
      element.replaceChildren(boxes.length > MAX_BOXES ? el("p", words) : canvasOf(picture, size));
      element.hidden = false;
      placeTooltip(element, at.x, at.y, size.w, size.h);
      announce(`Inside ${count}: ${names.join(", ")}. Enter opens it`);
    },
  };
}
