/** Downloads, and the picture that stays in the notebook. */

import type { Camera, Size } from "../render/camera.ts";
import { draw, type Picture } from "../render/canvas.ts";
import { drawScale, scaleHeight } from "../render/scale.ts";
import { toSvg } from "../render/svg.ts";
import type { Saving } from "../scene/state.ts";
import { el } from "../ui/dom.ts";

/** Limits up to which a picture shows the whole graph: pixels of width and height, and boxes. */
const MAX_PICTURE = { w: 2000, h: 6000, boxes: 400 } as const;

type Position = { readonly camera: Camera; readonly view: Size };

/** Returns the picture for the notebook: the whole graph, or only the view if the graph is larger than a few pages. */
export function snapshot(picture: Picture, position: Position): string {
  const { bounds, boxes } = picture.scene;
  const isWhole = bounds.w <= MAX_PICTURE.w && bounds.h <= MAX_PICTURE.h && boxes.count <= MAX_PICTURE.boxes;
  return toSvg(picture, isWhole ? undefined : position);
}

/** Downloads a picture as SVG or PNG. */
export function savePicture(what: Saving, picture: Picture, at: Position, announce: (text: string) => void): void {
  const hand = (content: Blob, extension: string): void => {
    download(content, picture.columns.meta.name, extension);
    announce(`Saved as ${extension.toUpperCase()}`);
  };
  if (what !== "png") {
    const text = toSvg(picture, what === "svg" ? undefined : at);
    hand(new Blob([text], { type: "image/svg+xml" }), "svg");
    return;
  }
  const { camera, view } = at;
  const canvas = el("canvas");
  [canvas.width, canvas.height] = [Math.round(2 * view.w), Math.round(2 * (view.h + scaleHeight(picture, view.w)))];
  const context = canvas.getContext("2d");
  if (context === null) return;
  draw(context, picture, camera, view, 2);
  drawScale(context, picture, view, 2);
  canvas.toBlob((content) => content !== null && hand(content, "png"), "image/png");
}

/** Downloads a file that is named after the model. */
export function download(content: Blob, model: string, extension: string): void {
  const name = model.replace(/\.onnx$/i, "").replace(/[^\p{L}\p{N}._ -]+/gu, "_") || "model";
  const address = URL.createObjectURL(content);
  const anchor = el("a", { href: address, download: `${name.slice(0, 100)}.${extension}` });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
