/** Downloads, and the picture that stays in the notebook. */

import type { Camera, Size } from "../render/camera.ts";
import { draw, type Picture } from "../render/canvas.ts";
import { drawScale, scaleHeight } from "../render/scale.ts";
import { toSvg } from "../render/svg.ts";
import type { Saving } from "../scene/state.ts";
import { el } from "./dom.ts";

/** Maximum pixels, in either direction, of a graph that is saved in the notebook as a whole. */
const SNAPSHOT_PX = 1000;

type Position = { readonly camera: Camera; readonly view: Size };

/** Returns the picture for the notebook: the whole graph, or only the view if the graph is larger than a page. */
export function snapshot(picture: Picture, position: Position): string {
  const { w, h } = picture.scene.bounds;
  return toSvg(picture, w <= SNAPSHOT_PX && h <= SNAPSHOT_PX ? undefined : position);
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
  [canvas.width, canvas.height] = [Math.round(2 * view.w), Math.round(2 * (view.h + scaleHeight(picture)))];
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
