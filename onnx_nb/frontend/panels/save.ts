/** The menu that saves the graph as a picture. */

import type { Dispatch, Saving } from "../scene/state.ts";
import { button, el } from "./dom.ts";

const CHOICES: readonly (readonly [what: Saving, text: string, title: string])[] = [
  ["svg", "SVG, whole graph", "Vectors: all that is open, at life size"],
  ["svg-view", "SVG, this view", "Vectors: what the view shows now"],
  ["png", "PNG, this view", "Pixels, at twice the size of the view"],
];

export interface SaveMenu {
  readonly element: HTMLElement;
  toggle(): void;
}

export function createSaveMenu(dispatch: Dispatch, signal: AbortSignal): SaveMenu {
  const opener = button("Save", () => toggle(), signal, {
    title: "Save a picture (s)",
    attrs: { "aria-haspopup": "menu", "aria-expanded": "false" },
  });
  const items = CHOICES.map(([what, text, title]) =>
    button(
      text,
      () => {
        close(true);
        dispatch({ type: "save", what });
      },
      signal,
      { title, attrs: { role: "menuitem", tabindex: -1 } },
    ),
  );
  const menu = el("div", { class: "onnx-nb-menu", attrs: { role: "menu", "aria-label": "Save a picture" } }, ...items);
  menu.hidden = true;
  const element = el("div", { class: "onnx-nb-save" }, opener, menu);

  const close = (back: boolean): void => {
    if (menu.hidden) return;
    menu.hidden = true;
    opener.setAttribute("aria-expanded", "false");
    if (back) opener.focus({ preventScroll: true });
  };
  const toggle = (): void => {
    if (!menu.hidden) {
      close(true);
      return;
    }
    menu.hidden = false;
    opener.setAttribute("aria-expanded", "true");
    items[0]?.focus({ preventScroll: true });
  };
  element.addEventListener(
    "keydown",
    (event) => {
      const at = items.indexOf(event.target as HTMLButtonElement);
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape" && !menu.hidden) close(true);
      else if (step !== undefined && at >= 0) items[(at + step + items.length) % items.length]?.focus();
      else return;
      event.preventDefault();
    },
    { signal },
  );
  element.addEventListener(
    "focusout",
    (event) => {
      if (!(event.relatedTarget instanceof Node) || !element.contains(event.relatedTarget)) close(false);
    },
    { signal },
  );
  return { element, toggle };
}

/** Hands a file to the person; the name is that of the model. */
export function download(content: Blob, model: string, extension: string): void {
  const name = model.replace(/\.onnx$/i, "").replace(/[^\p{L}\p{N}._ -]+/gu, "_") || "model";
  const address = URL.createObjectURL(content);
  const anchor = el("a", { attrs: { href: address, download: `${name.slice(0, 100)}.${extension}` } });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
