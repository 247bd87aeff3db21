/** Notes for a person who has never extracted anything: in the first graph of a page, until the first extraction or ×. */

import type { GraphHost } from "../protocol/host.ts";
import type { Point } from "../render/camera.ts";
import { button, el } from "../ui/dom.ts";

/** Key in the storage of the browser once the notes have been read. */
const KEY = "onnx-nb-hints";
let isFirst = true;

function isNew({ live, canExtract }: GraphHost): boolean {
  try {
    return isFirst && live && canExtract !== false && localStorage.getItem(KEY) === null;
  } catch {
    return false; // a page in a sandbox has no storage, and would show them forever
  }
}

export function createHints(host: GraphHost, signal: AbortSignal) {
  const element = el("div", { "aria-hidden": "true", hidden: !isNew(host) });
  const end = (): void => {
    if (element.hidden) return;
    element.hidden = true;
    localStorage.setItem(KEY, "read");
  };
  const close = button("×", end, signal, { class: "onnx-nb-x", tabindex: -1 });
  const notes = ["double-click opens", "click a wire for its tensor"].map((text) => el("span.onnx-nb-note", text));
  element.append(...notes, el("span.onnx-nb-note", "i · o · x cuts out a part", close));
  if (!element.hidden) isFirst = false;
  return {
    element,
    end,
    /** Moves the notes beside a closed scope and a wire; hides the note of one that is not in view. */
    place(...points: readonly (Point | undefined)[]): void {
      notes.forEach((note, at) => {
        const { x = 0, y = 0 } = points[at] ?? {};
        note.hidden = points[at] === undefined;
        note.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
      });
    },
  };
}
