/** Notes in the first graph of a page for a person who has never extracted anything. */

import type { GraphHost } from "../protocol/host.ts";
import { type Camera, toScreen } from "../render/camera.ts";
import { middle } from "../render/canvas.ts";
import { BOX, type Scene } from "../scene/scene.ts";
import { button, el } from "../ui/dom.ts";

const TEXTS = ["double-click opens", "click a wire for its tensor", "i · o · x cuts out a part "];
/** Key in the storage of the browser once the notes were read. */
const KEY = "onnx-nb-hints";
let isFirst = true;

function isNew({ live, canExtract }: GraphHost): boolean {
  try {
    return isFirst && live && canExtract !== false && localStorage.getItem(KEY) === null;
  } catch {
    return false; // a sandbox has no storage, and would show them forever
  }
}

export function createHints(host: GraphHost, signal: AbortSignal) {
  const notes = TEXTS.map((text) => el("span.onnx-nb-note", text));
  const shows = isNew(host);
  isFirst &&= !shows;
  const element = el("div", { "aria-hidden": "true" }, ...(shows ? notes : []));
  const end = (): void => {
    if (element.hasChildNodes()) localStorage.setItem(KEY, "read");
    element.replaceChildren();
  };
  notes[2].append(button("×", end, signal, { class: "onnx-nb-x", tabindex: -1 }));
  return {
    element,
    end,
    /** Moves the notes to the left of the first closed scope and of the first wire: labels and other boxes are right. */
    place(scene: Scene, camera: Camera): void {
      const { kind, x, y, h } = scene.boxes;
      const scope = kind.indexOf(BOX.SCOPE);
      const ends = [{ x: x[scope], y: y[scope] + h[scope] }, middle(scene, 0)];
      for (const [at, end] of ends.entries()) {
        const point = toScreen(camera, end.x, end.y);
        notes[at].hidden = Number.isNaN(point.x); // there is none
        notes[at].style.translate = `max(4px, ${point.x + [30, -9][at]}px - 100%) ${point.y - [4, 9][at]}px`;
      }
    },
  };
}
