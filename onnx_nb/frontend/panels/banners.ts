/** Rows below the bar: the faults of a model, and an error with its advice. */

import type { Columns, Target } from "../protocol/columns.ts";
import { counted, plain } from "../scene/formatting.ts";
import type { Dispatch, State } from "../scene/state.ts";
import { button, copyButton, el, elide } from "./dom.ts";
import { link } from "./link.ts";

export interface Banners {
  update(state: State): void;
}

const LISTED = 200;

export function createBanners(root: HTMLElement, columns: Columns, dispatch: Dispatch, signal: AbortSignal): Banners {
  if (columns.meta.faults.length > 0) root.append(faults(columns, signal));

  let shown: State["error"] = null;
  const message = el("span.onnx-nb-message");
  const advice = el("span.onnx-nb-advice");
  const error = el(
    "div.onnx-nb-strip.onnx-nb-error",
    { role: "alert" },
    el("span.onnx-nb-message-text", message, " ", advice),
    copyButton(() => `${shown?.message ?? ""}\n${shown?.advice ?? ""}`.trim(), signal),
    button("Dismiss", () => dispatch({ type: "error", error: null }), signal, { class: "onnx-nb-small" }),
  );
  error.hidden = true;
  root.append(error);
  return {
    update(state) {
      if (state.error === shown) return;
      shown = state.error;
      error.hidden = shown === null;
      message.textContent = elide(shown?.message ?? "", 600);
      message.title = (shown?.message ?? "").slice(0, 4000);
      advice.textContent = elide(shown?.advice ?? "", 400);
    },
  };
}

function faults(columns: Columns, signal: AbortSignal): HTMLElement {
  const { faults } = columns.meta;
  const list = el("ol.onnx-nb-faults");
  list.hidden = true;
  const toggle = button(
    counted(faults.length, "fault"),
    () => {
      list.hidden = !list.hidden;
      first.hidden = !list.hidden;
      toggle.setAttribute("aria-expanded", String(!list.hidden));
    },
    signal,
    { class: "onnx-nb-small", "aria-expanded": "false" },
  );
  const first = el("span.onnx-nb-dim.onnx-nb-ellipsis", elide(faults[0].message, 200));
  for (const { kind, message, node, value } of faults.slice(0, LISTED)) {
    const target: Target | null =
      node >= 0 ? { kind: "node", id: node } : value >= 0 ? { kind: "tensor", id: value } : null;
    const text = elide(message, 400);
    list.append(
      el(
        "li",
        { title: message.slice(0, 4000) },
        el("span.onnx-nb-kind", kind.replaceAll("_", " ")),
        target === null ? text : link(text, target, message),
      ),
    );
  }
  if (faults.length > LISTED) list.append(el("li", `and ${plain(faults.length - LISTED)} more`));
  const sign = el("span.onnx-nb-sign", { "aria-hidden": "true" }, "⚠");
  return el("div.onnx-nb-strip.onnx-nb-warn", sign, toggle, first, list);
}
