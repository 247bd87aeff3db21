/** Rows below the bar (faults of the model, an error with its advice), and a notice in place of an empty graph. */

import { type Columns, type Target, VALUE } from "../protocol/columns.ts";
import { bytes, countOf, integer } from "../scene/formatting.ts";
import type { State } from "../scene/state.ts";
import { button, el, elide, fillings } from "../ui/dom.ts";
import { errorParts } from "../ui/task.ts";
import { link, type Panel, type ViewContext } from "./viewcontext.ts";

const MAX_FAULTS = 200;

export function createBanners({ columns, dispatch, signal }: ViewContext): Panel {
  const next = fillings(signal);
  const error = el("div.onnx-nb-strip.onnx-nb-error", { role: "alert", hidden: true });
  const dismiss = (): void => dispatch({ type: "error", error: null });
  let lastError: State["error"] = null;
  return {
    element: el("div.onnx-nb-banners", columns.meta.faults.length > 0 ? faults(columns, signal) : null, error),
    update(state) {
      if (state.error === lastError) return;
      lastError = state.error;
      error.hidden = lastError === null;
      error.replaceChildren(...(lastError === null ? [] : errorParts(lastError, dismiss, next())));
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
  const toggle = button(countOf(faults.length, "fault"), press, signal, properties);
  const first = el("span.onnx-nb-dim.onnx-nb-ellipsis", elide(faults[0].message, 200));
  for (const { kind, message, node, value } of faults.slice(0, MAX_FAULTS)) {
    const target: Target | null =
      node >= 0 ? { kind: "node", id: node } : value >= 0 ? { kind: "tensor", id: value } : null;
    const text = elide(message, 400);
    const kindLabel = el("span.onnx-nb-kind", kind.replaceAll("_", " "));
    list.append(el("li", { title: message.slice(0, 4000) }, kindLabel, target ? link(text, target, message) : text));
  }
  if (faults.length > MAX_FAULTS) list.append(el("li", `and ${integer(faults.length - MAX_FAULTS)} more`));
  const sign = el("span.onnx-nb-sign", { "aria-hidden": "true" }, "⚠");
  return el("div.onnx-nb-strip.onnx-nb-warn", sign, toggle, first, list);
}

/** Returns a notice for a graph that has nothing to draw; null if there is a node to draw. */
export function emptyState(columns: Columns): HTMLElement | null {
  for (let node = 0; node < columns.nodeCount; node++) if (!columns.isFolded(node)) return null;
  const { meta } = columns;
  const weights = columns.valueKind.filter((kind) => kind === VALUE.INITIALIZER).length;
  const holds = [
    countOf(columns.graphInputs.length, "input"),
    countOf(columns.graphOutputs.length, "output"),
    countOf(weights, "weight") + (meta.nbytes > 0 ? ` (${bytes(meta.nbytes)})` : ""),
  ];
  return el(
    "div.onnx-nb-empty",
    el("b", meta.nodes === 0 ? "This model has no nodes." : "All nodes of this model compute constants."),
    el("p", `It has ${holds.join(", ")}.`),
    el("p.onnx-nb-dim", "It may have been saved before the graph was built, or extracted without outputs."),
  );
}
