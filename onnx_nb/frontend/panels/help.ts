/** What the keys do; the same list drives nothing, so a test compares it with the keys of the view. */

import { button, el } from "./dom.ts";

export const KEYS: readonly (readonly [keys: string, effect: string])[] = [
  ["click", "select a box, or the tensor of an arrow"],
  ["double click, Enter, e", "expand or collapse the scope"],
  ["drag · Ctrl+wheel · pinch", "move · zoom"],
  ["wheel", "zoom, once the graph has been clicked"],
  ["↑ ↓", "to the producer, to a consumer"],
  ["Shift+↑ ↓", "to the tensor between"],
  ["← →", "to a neighbour"],
  ["i  o", "start, end the extraction at the selected tensor"],
  ["Ctrl+Z  Ctrl+Shift+Z", "undo, redo"],
  ["/", "search; Enter, Shift+Enter for the next, the previous"],
  ["f  +  −", "show all, zoom in, zoom out"],
  ["s", "save a picture"],
  ["Esc", "clear the selection"],
  ["?", "this list"],
];

export interface Help {
  toggle(): void;
  close(): boolean;
}

export function createHelp(root: HTMLElement, closed: () => void, signal: AbortSignal): Help {
  const rows = el("dl", { class: "onnx-nb-rows" });
  for (const [keys, effect] of KEYS) rows.append(el("dt", {}, keys), el("dd", {}, effect));
  const close = (): boolean => {
    if (box.hidden) return false;
    box.hidden = true;
    closed();
    return true;
  };
  const done = button("Close", close, signal);
  const box = el(
    "div",
    { class: "onnx-nb-help", attrs: { role: "dialog", "aria-label": "Keys and gestures" } },
    el("h4", {}, "Keys and gestures"),
    rows,
    done,
  );
  box.hidden = true;
  root.append(box);
  return {
    close,
    toggle() {
      if (close()) return;
      box.hidden = false;
      done.focus();
    },
  };
}
