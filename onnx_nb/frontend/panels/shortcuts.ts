/** What the keys do; the same list drives nothing, so a test compares it with the keys of the view. */

import { button, el } from "./dom.ts";

export const KEYS: readonly (readonly [keys: string, effect: string])[] = [
  ["click", "select a box, or the tensor of an arrow"],
  ["Ctrl+click · long press", "add it to the selection, or remove it"],
  ["Shift+drag · v, then drag", "select all boxes in the rectangle"],
  ["Ctrl+A", "select all in this scope; press again for the scope around it"],
  ["Ctrl+arrow", "add the neighbor to the selection"],
  ["Ctrl+C", "copy the names of all that is selected"],
  ["double click, Enter, e", "expand or collapse the scope"],
  ["Shift+E  Shift+C", "expand all, collapse all"],
  ["drag · Ctrl+wheel · pinch", "move · zoom"],
  ["wheel", "zoom, once the graph has been clicked"],
  ["↑ ↓", "to the producer, to a consumer"],
  ["Shift+↑ ↓", "to the tensor between"],
  ["← →", "to a neighbor"],
  ["i  o  x", "make the selected tensor an input, an output; extract"],
  ["Ctrl+Z  Ctrl+Shift+Z", "undo, redo"],
  ["/", "search; Enter, Shift+Enter for the next, the previous"],
  ["f  Shift+F  +  −", "show all, show the selection, zoom in, zoom out"],
  ["b", "bookmark this view"],
  ["s", "save a picture"],
  ["t", "draw across, draw down"],
  ["Esc", "clear the selection, cancel a layout"],
  ["?", "this list"],
];

/** What a search may hold; `scene/query.ts` reads it. */
export const SEARCHES: readonly (readonly [query: string, finds: string])[] = [
  ["conv 3x3", "all words, in name, op, scope, dtype, shape or attributes"],
  ["op:Conv|Gemm  name:*weight", "one of two ops; a name, * is anything"],
  ["dtype:float16  shape:1x*x768", "tensors; * or ? is any size, ... any number of sizes"],
  ["attr:axis=-1  attr:axis", "nodes with an attribute, by default too; only those that set it otherwise"],
  ["scope:layer.1", "all in a scope or class"],
  ["kind:weight  -word", "node, tensor, weight, input, output, scope; not that"],
  ['"two words"  /layer\\.\\d+/i', "an exact phrase; a regular expression"],
  ["MatMul > * > Softmax", "nodes in a row along the flow; ** is any number"],
];

export interface Help {
  toggle(): void;
  close(): boolean;
}

/** The keys of two graphs side by side, beyond those of each. */
export const PAIR_KEYS: typeof KEYS = [["n  p", "the next, the previous difference"]];

export function createHelp(root: HTMLElement, more: typeof KEYS, closed: () => void, signal: AbortSignal): Help {
  const rows = el("dl.onnx-nb-rows");
  for (const [keys, effect] of [...KEYS, ...more]) rows.append(el("dt", keys), el("dd", effect));
  const queries = el("dl.onnx-nb-rows");
  for (const [query, finds] of SEARCHES) queries.append(el("dt", el("code", query)), el("dd", finds));
  const close = (): boolean => {
    if (box.hidden) return false;
    box.hidden = true;
    closed();
    return true;
  };
  const done = button("Close", close, signal);
  const box = el(
    "div.onnx-nb-help",
    { role: "dialog", "aria-label": "Keys, gestures and search" },
    el("h4", "Keys and gestures"),
    rows,
    el("h4", "Search"),
    queries,
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
