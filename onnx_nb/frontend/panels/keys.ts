/** The keyboard of a graph view; `shortcuts.ts` lists the same keys. */

import type { Columns, Target } from "../protocol/columns.ts";
import { type GraphHost, NO_KERNEL } from "../protocol/host.ts";
import type { Step } from "../render/navigation.ts";
import { type Dispatch, type State, selected } from "../scene/state.ts";
import { on } from "./dom.ts";
import { copyNames } from "./selection.ts";
import type { Help } from "./shortcuts.ts";
import type { Toolbar } from "./toolbar.ts";
import type { Viewport } from "./viewport.ts";

export interface Keyed {
  readonly columns: Columns;
  readonly host: GraphHost;
  readonly viewport: Viewport;
  readonly toolbar: Toolbar;
  readonly help: Help;
  /** panels that arrow keys scroll */
  readonly side: readonly HTMLElement[];
  state(): State;
  readonly dispatch: Dispatch;
  announce(text: string): void;
}

export function listenKeys(root: HTMLElement, view: Keyed, signal: AbortSignal): void {
  const { columns, host, viewport, toolbar, help, side, state, dispatch, announce } = view;

  const end = (type: "input" | "output"): void => {
    const value = tensorOf(columns, state().selection);
    if (!host.live) announce(host.reason ?? NO_KERNEL);
    else if (value === null) announce("Select a tensor first: click an arrow, or press Shift with an arrow key");
    else dispatch({ type, value });
  };
  const step = (direction: Step, tensors: boolean, add = false): void => {
    const target = viewport.neighbor(direction, tensors);
    if (target === null) {
      announce("Nothing further that way");
      return;
    }
    if (add) dispatch({ type: "selectAll", targets: [target], add });
    else dispatch({ type: "select", target });
    viewport.show(target);
  };
  const toggleSelected = (): void => {
    const { selection } = state();
    if (selection === null) return;
    const scope =
      selection.kind === "scope" ? selection.id : selection.kind === "node" ? columns.nodeBody[selection.id] : -1;
    if (scope >= 0) dispatch({ type: "toggle", scope });
  };

  const keys: Readonly<Record<string, (event: KeyboardEvent) => void>> = {
    i: () => end("input"),
    o: () => end("output"),
    x: () => {
      const { boundary, plan, busy } = state();
      if (!host.live) announce(host.reason ?? NO_KERNEL);
      else if (boundary.outputs.length === 0) announce("Select the tensor where it should end and press o first");
      else if (busy !== null || plan === null || plan.missing.length > 0) announce(busy ?? plan?.message ?? "");
      else dispatch({ type: "extract" });
    },
    e: (event) => (event.shiftKey ? dispatch({ type: "expandAll" }) : toggleSelected()),
    c: (event) => {
      if (event.shiftKey) dispatch({ type: "collapseAll" });
    },
    Enter: toggleSelected,
    f: (event) => {
      const targets = selected(state());
      if (!event.shiftKey) dispatch({ type: "fit" });
      else if (targets.length === 0) announce("Nothing is selected");
      else dispatch({ type: "fit", targets });
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
    ArrowUp: (event) => step("up", event.shiftKey),
    ArrowDown: (event) => step("down", event.shiftKey),
    ArrowLeft: () => step("left", false),
    ArrowRight: () => step("right", false),
    Escape: () => {
      if (!help.close() && !viewport.cancel()) dispatch({ type: "select", target: null });
    },
  };
  /** Together with Ctrl or Command. */
  const commands: Readonly<Record<string, (event: KeyboardEvent) => boolean>> = {
    z: (event) => done(() => dispatch({ type: event.shiftKey ? "redo" : "undo" })),
    y: () => done(() => dispatch({ type: "redo" })),
    a: () => done(() => dispatch({ type: "selectAll", targets: viewport.siblings() })),
    c: () => {
      const targets = selected(state());
      // marked text is what a person means to copy
      if (targets.length === 0 || window.getSelection()?.isCollapsed === false) return false;
      return done(() => void copyNames(columns, targets, announce));
    },
    arrowup: (event) => done(() => step("up", event.shiftKey, true)),
    arrowdown: (event) => done(() => step("down", event.shiftKey, true)),
    arrowleft: () => done(() => step("left", false, true)),
    arrowright: () => done(() => step("right", false, true)),
  };
  on(root, "keydown", signal, (event) => {
    const from = event.target instanceof HTMLElement ? event.target : null;
    if (from?.closest("[data-widget]") !== root) return; // a nested view has keys of its own
    const command = event.ctrlKey || event.metaKey;
    const typing = from.matches("input, textarea, select");
    // keys without Ctrl are ours: the notebook would cut cells or stop the kernel
    if (!command && !event.altKey) event.stopPropagation();
    if (event.defaultPrevented || typing || event.altKey) return;
    if (command) {
      if (commands[event.key.toLowerCase()]?.(event) !== true) return;
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (from.closest("button, a, summary") !== null && (event.key === "Enter" || event.key === " ")) return;
    if (side.some((panel) => panel.contains(from)) && event.key.startsWith("Arrow")) return; // it scrolls
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act === undefined) return;
    event.preventDefault();
    act(event);
  });
}

/** The tensor that i and o mean: the selected one, or the only output of the selected node. */
function tensorOf(columns: Columns, selection: Target | null): number | null {
  if (selection?.kind === "tensor") return columns.isConstant(selection.id) ? null : selection.id;
  if (selection?.kind !== "node") return null;
  const made = columns.outputsOf(selection.id).filter((value) => value >= 0);
  return made.length === 1 ? made[0] : null;
}

function done(act: () => void): true {
  act();
  return true;
}
