/** Keyboard commands of a graph view, and the list of keys that it shows; a test compares the two. */

import type { Columns, Target } from "../protocol/columns.ts";
import type { ArrowStep } from "../render/navigation.ts";
import { selectionOf } from "../scene/state.ts";
import { button, el, facts, on } from "../ui/dom.ts";
import type { Toolbar } from "./toolbar.ts";
import { copyNames, type ViewContext } from "./viewcontext.ts";
import type { Viewport } from "./viewport.ts";

export const KEYS: readonly (readonly [keys: string, effect: string])[] = [
  ["click", "select a box, or the tensor of an arrow"],
  ["Ctrl+click · long press", "add it to the selection, or remove it"],
  ["Shift+drag · v, then drag", "select all boxes in the rectangle"],
  ["Ctrl+A", "select all in this scope; press again for the scope around it"],
  ["Ctrl+arrow", "add the neighbor to the selection"],
  ["Ctrl+C", "copy the names of all that is selected"],
  ["right click · Menu, Shift+F10", "all that can be done with it; with Shift the menu of the browser"],
  ["double click, Enter, e", "expand or collapse the scope"],
  ["double click, F2", "change the shape of an input"],
  ["Space", "look into a closed scope, under the pointer or selected; again or Esc to close it"],
  ["Shift+E  Shift+C", "expand all, collapse all"],
  ["drag · Ctrl+wheel · pinch", "move · zoom"],
  ["wheel", "zoom, once the graph has been clicked"],
  ["↑ ↓", "to the producer, to a consumer"],
  ["Shift+↑ ↓", "to the tensor between"],
  ["← →", "to a neighbor"],
  ["i  o  x", "make the selected tensor an input, an output; extract"],
  ["Ctrl+Z  Ctrl+Shift+Z", "undo, redo"],
  ["/  Ctrl+K", "search, or a verb, as color by time; Enter, Shift+Enter for the next, the previous"],
  ["f  Shift+F  +  −", "show all, show the selection, zoom in, zoom out"],
  ["b", "bookmark this view"],
  ["s", "save a picture"],
  ["t", "draw across, draw down"],
  ["Esc", "clear the selection, cancel a layout"],
  ["?", "this list"],
];

/** Examples of searches, in the syntax of `search/query.ts`. */
const SEARCHES: readonly (readonly [query: string, finds: string])[] = [
  ["conv 3x3", "all words, in name, op, scope, dtype, shape or attributes"],
  ["op:Conv|Gemm  name:*weight", "one of two ops; a name, * is anything"],
  ["dtype:float16  shape:1x*x768", "tensors; * or ? is any size, ... any number of sizes"],
  ["attr:axis=-1  attr:axis", "nodes with an attribute, by default too; only those that set it otherwise"],
  ["scope:layer.1", "all in a scope or class"],
  ["weights > 1 MB  size:<4k", "tensors by bytes, and the nodes that read such weights"],
  ["kind:weight  -word", "node, tensor, weight, input, output, scope; not that"],
  ['"two words"  /layer\\.\\d+/i', "an exact phrase; a regular expression"],
  ["MatMul > * > Softmax", "nodes in a row along the flow; ** is any number"],
];

/** Keys of two graphs side by side, in addition to the keys of each graph. */
export const PAIR_KEYS: typeof KEYS = [["n  p", "the next, the previous difference"]];

/** @param onClose called after closing, to take the focus back */
export function createHelp(extraKeys: typeof KEYS, onClose: () => void, signal: AbortSignal) {
  const close = (): boolean => {
    if (element.hidden) return false;
    element.hidden = true;
    onClose();
    return true;
  };
  const done = button("Close", close, signal);
  const element = el(
    "div.onnx-nb-help",
    { role: "dialog", "aria-label": "Keys, gestures and search", hidden: true },
    el("div", el("h4", "Keys and gestures"), done),
    facts([...KEYS, ...extraKeys].map(([keys, effect]) => [keys, el("span", effect)])),
    el("h4", "Search"),
    facts(SEARCHES.map(([query, finds]) => [el("code", query), el("span", finds)])),
  );
  const toggle = (): void => {
    if (close()) return;
    element.hidden = false;
    element.scrollTop = 0;
    done.focus({ preventScroll: true });
  };
  return { element, close, toggle };
}

/** @param side panels that arrow keys scroll */
export function listenKeys(
  root: HTMLElement,
  view: ViewContext,
  { viewport, toolbar, help }: { viewport: Viewport; toolbar: Toolbar; help: ReturnType<typeof createHelp> },
  side: readonly HTMLElement[],
): void {
  const { columns, host, state, dispatch, announce, signal } = view;

  const end = (type: "input" | "output"): void => {
    const value = tensorOf(columns, state().selection);
    if (!host.live) announce(host.reason);
    else if (value === null) announce("Select a tensor first: click an arrow, or press Shift with an arrow key");
    else dispatch({ type, value });
  };
  const step = (event: KeyboardEvent): void => {
    const target = viewport.neighbor(event.key.slice(5).toLowerCase() as ArrowStep, event.shiftKey);
    if (target === null) {
      announce("Nothing further that way");
      return;
    }
    dispatch({ type: "hover", target: null }); // the pointer rests somewhere else
    if (event.ctrlKey || event.metaKey) dispatch({ type: "selectAll", targets: [target], add: true });
    else dispatch({ type: "select", target });
    viewport.show(target);
  };
  const toggleSelection = (): void => {
    const { selection } = state();
    if (selection === null) return;
    const scope =
      selection.kind === "scope" ? selection.id : selection.kind === "node" ? columns.nodeBody[selection.id] : -1;
    if (scope >= 0) dispatch({ type: "toggle", scope });
  };

  const onSelection = (act: (target: Target) => void) => (): void => {
    const { selection } = state();
    if (selection === null) announce("Nothing is selected");
    else act(selection);
  };
  const keys: Readonly<Record<string, (event: KeyboardEvent) => void>> = {
    i: () => end("input"),
    o: () => end("output"),
    x: () => {
      const { boundary, plan, busy } = state();
      if (!host.live) announce(host.reason);
      else if (boundary.outputs.length === 0) announce("Select the tensor where it should end and press o first");
      else if (busy !== null || plan === null || plan.missing.length > 0) announce(busy ?? plan?.message ?? "");
      else dispatch({ type: "extract" });
    },
    e: (event) => (event.shiftKey ? dispatch({ type: "expandAll" }) : toggleSelection()),
    c: (event) => {
      if (event.shiftKey) dispatch({ type: "collapseAll" });
    },
    Enter: toggleSelection,
    f: (event) => {
      const targets = selectionOf(state());
      if (!event.shiftKey) dispatch({ type: "fit" });
      else if (targets.length === 0) announce("Nothing is selected");
      else dispatch({ type: "fit", targets });
    },
    " ": () => {
      if (!viewport.dismiss() && !viewport.peek()) announce("Select a closed scope to look into it");
    },
    b: () => dispatch({ type: "bookmark" }),
    v: () => dispatch({ type: "gathering", gathering: !state().gathering }),
    s: () => toolbar.save(),
    t: () => dispatch({ type: "direction", direction: state().direction === "down" ? "right" : "down" }),
    "/": () => toolbar.focusSearch(),
    "?": () => help.toggle(),
    "+": () => viewport.zoomBy(1.25),
    "=": () => viewport.zoomBy(1.25),
    "-": () => viewport.zoomBy(0.8),
    "−": () => viewport.zoomBy(0.8),
    ContextMenu: onSelection((target) => viewport.openMenu(target)),
    F2: onSelection((target) => viewport.activate(target)),
    Escape: () => {
      if (!help.close() && !viewport.dismiss() && !viewport.cancel()) dispatch({ type: "select", target: null });
    },
  };
  /** With Ctrl or Command; false leaves a key to the page. */
  const commands: Readonly<Record<string, (event: KeyboardEvent) => unknown>> = {
    z: (event) => dispatch({ type: event.shiftKey ? "redo" : "undo" }),
    y: () => dispatch({ type: "redo" }),
    k: () => toolbar.focusSearch(),
    a: () => dispatch({ type: "selectAll", targets: viewport.siblings() }),
    c: () => {
      const targets = selectionOf(state());
      // the person wants to copy the marked text
      if (targets.length === 0 || window.getSelection()?.isCollapsed === false) return false;
      return copyNames(view, targets);
    },
  };
  on(root, "keydown", signal, (event) => {
    const from = event.target instanceof HTMLElement ? event.target : null;
    if (from?.closest("[data-widget]") !== root) return; // a nested view has keys of its own
    const command = event.ctrlKey || event.metaKey;
    const typing = from.matches("input, textarea, select");
    // keys without Ctrl are ours: the notebook would cut cells or interrupt the kernel
    if (!command && !event.altKey) event.stopPropagation();
    if (event.defaultPrevented || typing || event.altKey) return;
    const arrow = event.key.startsWith("Arrow") ? step : undefined;
    if (command) {
      const act: ((event: KeyboardEvent) => unknown) | undefined = arrow ?? commands[event.key.toLowerCase()];
      if (act === undefined || act(event) === false) return;
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (from.closest("button, a, summary") !== null && (event.key === "Enter" || event.key === " ")) return;
    if (side.some((panel) => panel.contains(from)) && /^Arrow| /.test(event.key)) return; // it scrolls
    const isMenuKey = event.key === "F10" && event.shiftKey;
    const act = arrow ?? keys[isMenuKey ? "ContextMenu" : event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act === undefined) return;
    event.preventDefault();
    act(event);
  });
}

/** Returns the tensor for the keys i and o: the selected one, or the only output of the selected node. */
function tensorOf(columns: Columns, selection: Target | null): number | null {
  if (selection?.kind === "tensor") return columns.isConstant(selection.id) ? null : selection.id;
  if (selection?.kind !== "node") return null;
  const outputs = columns.outputsOf(selection.id).filter((value) => value >= 0);
  return outputs.length === 1 ? outputs[0] : null;
}
