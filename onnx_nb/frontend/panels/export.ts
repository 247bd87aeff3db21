/** Downloads, and the picture that stays in the notebook. */

import type { Camera, Size } from "../render/camera.ts";
import type { Picture } from "../render/canvas.ts";
import { toSvg } from "../render/svg.ts";
import type { Saving } from "../scene/state.ts";
import { button, el } from "../ui/dom.ts";
import type { Table } from "../ui/table.ts";

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
export async function savePicture(what: Saving, picture: Picture, at: Position, announce: (text: string) => void) {
  const text = toSvg(picture, what === "svg" ? undefined : at);
  const extension = what === "png" ? "png" : "svg";
  try {
    download(what === "png" ? await pixelsOf(text) : text, picture.columns.meta.name, extension);
    announce(`Saved as ${extension.toUpperCase()}`);
  } catch (error) {
    announce(String(error));
  }
}

/** Returns an SVG document as a PNG at twice its size. */
export async function pixelsOf(svg: string): Promise<Blob> {
  const image = el("img", { src: `data:image/svg+xml,${encodeURIComponent(svg)}` });
  await image.decode();
  const canvas = el("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob === null ? reject(new Error("the picture is too large")) : resolve(blob)));
  });
}

/** Returns a button that downloads the shown rows of a table. */
export function csvButton(table: Table, name: string, signal: AbortSignal): HTMLElement {
  const save = (): void => download(table.csv(), name, "csv");
  return button("Save CSV", save, signal, { title: "The rows that are shown, with all digits" });
}

/** Media types by the extension of a file. */
const TYPES: Readonly<Record<string, string>> = {
  csv: "text/csv",
  html: "text/html",
  png: "image/png",
  svg: "image/svg+xml",
};

/** Downloads a file that is named after the model. */
export function download(content: Blob | Uint8Array | string, model: string, extension: string): void {
  const name = model.replace(/\.onnx$/i, "").replace(/[^\p{L}\p{N}._ -]+/gu, "_") || "model";
  const address = URL.createObjectURL(new Blob([content as BlobPart], { type: TYPES[extension] ?? "" }));
  const anchor = el("a", { href: address, download: `${name.slice(0, 100)}.${extension}` });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
