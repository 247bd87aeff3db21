/** Rows below the bar (faults of the model, an error with its advice), and a notice in place of an empty graph. */

import { type Columns, type Target, VALUE } from "../protocol/columns.ts";
import { bytes, counted, plain } from "../scene/formatting.ts";
import type { State } from "../scene/state.ts";
import { button, el, elide, fillings } from "./dom.ts";
import { errorParts } from "./task.ts";
import { link, type Panel, type ViewContext } from "./viewcontext.ts";

const LISTED = 200;

export function createBanners({ columns, dispatch, signal }: ViewContext): Panel {
  const next = fillings(signal);
  const error = el("div.onnx-nb-strip.onnx-nb-error", { role: "alert", hidden: true });
  const dismiss = (): void => dispatch({ type: "error", error: null });
  let shown: State["error"] = null;
  return {
    element: el("div.onnx-nb-banners", columns.meta.faults.length > 0 ? faults(columns, signal) : null, error),
    update(state) {
      if (state.error === shown) return;
      shown = state.error;
      error.hidden = shown === null;
      error.replaceChildren(...(shown === null ? [] : errorParts(shown, dismiss, next())));
    },
  };
}

function faults(columns: Columns, signal: AbortSignal): HTMLElement {
  const { faults } = columns.meta;
  const list = el("ol.onnx-nb-faults", { hidden: true });
  const press = (): void => {
    first.hidden = list.hidden;
    list.hidden = !list.hidden;
    toggle.setAttribute("aria-expanded", String(!list.hidden));
  };
  const properties = { class: "onnx-nb-small", "aria-expanded": "false" };
  const toggle = button(counted(faults.length, "fault"), press, signal, properties);
  const first = el("span.onnx-nb-dim.onnx-nb-ellipsis", elide(faults[0].message, 200));
  for (const { kind, message, node, value } of faults.slice(0, LISTED)) {
    const target: Target | null =
      node >= 0 ? { kind: "node", id: node } : value >= 0 ? { kind: "tensor", id: value } : null;
    const text = elide(message, 400);
    const named = el("span.onnx-nb-kind", kind.replaceAll("_", " "));
    list.append(el("li", { title: message.slice(0, 4000) }, named, target ? link(text, target, message) : text));
  }
  if (faults.length > LISTED) list.append(el("li", `and ${plain(faults.length - LISTED)} more`));
  const sign = el("span.onnx-nb-sign", { "aria-hidden": "true" }, "⚠");
  return el("div.onnx-nb-strip.onnx-nb-warn", sign, toggle, first, list);
}

/** Returns a notice for a graph that has nothing to draw; null if there is a node to draw. */
export function emptyState(columns: Columns): HTMLElement | null {
  for (let node = 0; node < columns.nodeCount; node++) if (!columns.isFolded(node)) return null;
  const { meta } = columns;
  const weights = columns.valueKind.filter((kind) => kind === VALUE.INITIALIZER).length;
  const holds = [
    counted(columns.graphInputs.length, "input"),
    counted(columns.graphOutputs.length, "output"),
    counted(weights, "weight") + (meta.nbytes > 0 ? ` (${bytes(meta.nbytes)})` : ""),
  ];
  return el(
    "div.onnx-nb-empty",
    el("b", meta.nodes === 0 ? "This model has no nodes." : "All nodes of this model compute constants."),
    el("p", `It has ${holds.join(", ")}.`),
    el("p.onnx-nb-dim", "It may have been saved before the graph was built, or extracted without outputs."),
  );
}
