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

const MAX_BOXES = 300;
/** Part of the view that a card may take, and the largest zoom of what is in it. */
const MOST = 0.9;

export function createPeek({ state, dispatch, announce, signal }: ViewContext) {
  const element = el("div.onnx-nb-tooltip.onnx-nb-peek", { hidden: true });
  const cache = createCache();
  let scope = 0;
  on(element, "mousedown", signal, (event) => event.preventDefault()); // the graph keeps the focus
  on(element, "dblclick", signal, () => dispatch({ type: "open", scope }));

  const canvasOf = (below: Picture, size: Size): HTMLElement => {
    const { columns, measure } = below;
    const { direction } = below.scene;
    cache.columnHeight = Math.round(size.h / INNER);
    cache.settle(direction);
    const scene = buildScene(columns, new Set(columns.ancestry(scope)), measure, cache, { direction });
    const box = scene.boxOf("scope", scope);
    const [x, y, w, h] = (["x", "y", "w", "h"] as const).map((side) => scene.boxes[side][box]);
    const k = Math.min(MOST, (MOST * size.w) / w, (MOST * size.h) / h);
    const density = window.devicePixelRatio || 1;
    const canvas = el("canvas", { width: Math.round(w * k * density), height: Math.round(h * k * density) });
    canvas.style.width = `${w * k}px`;
    const marks = marksOf(scene, columns, { ...state(), selection: null, hover: null }, new Map());
    const picture = { ...below, scene, marks, index: new HitIndex(scene, measure) };
    const pen = canvas.getContext("2d");
    if (pen !== null) draw(pen, picture, { x, y, k }, { w: w * k, h: h * k }, density);
    return canvas;
  };
  return {
    element,
    /** Shows the inside of a scope beside a point of a view. */
    show(inside: number, picture: Picture, { x, y }: Point, size: Size): void {
      scope = inside;
      const count = boxesIn(picture.columns, scope).length;
      const { title } = describe(picture.columns, { kind: "scope", id: scope });
      const text = `Inside ${title}: ${countOf(count, "part")}. Enter or a double click opens it`;
      element.replaceChildren(count > MAX_BOXES ? text : canvasOf(picture, size));
      element.hidden = false;
      placeTooltip(element, x - 6, y - 18, size.w, size.h);
      announce(text);
    },
  };
}
