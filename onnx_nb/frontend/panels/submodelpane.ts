/** The pane next to a graph that shows a submodel extracted from it. */

import type { Columns } from "../protocol/columns.ts";
import { bytes, counted } from "../scene/formatting.ts";
import { button, copyButton, el, onAbort } from "./dom.ts";

export interface SubmodelPane {
  readonly element: HTMLElement;
  /**
   * @param call the Python that extracts the submodel
   * @param fill makes the view of the submodel, which lives until the signal aborts
   */
  show(submodel: Columns, call: string, fill: (root: HTMLElement, signal: AbortSignal) => void): void;
}

/** @param closed called when a person has closed the pane */
export function createSubmodelPane(root: HTMLElement, closed: () => void, signal: AbortSignal): SubmodelPane {
  const element = el("section.onnx-nb-beside", { "aria-label": "Submodel" });
  element.hidden = true;
  let pane: AbortController | null = null;
  const close = (): void => {
    pane?.abort();
    pane = null;
    element.hidden = true;
    element.replaceChildren();
    root.classList.remove("onnx-nb-split");
    closed();
  };
  onAbort(signal, () => pane?.abort());
  return {
    element,
    show(submodel, call, fill) {
      pane?.abort();
      pane = new AbortController();
      const inner = el("div");
      const { nodes, nbytes } = submodel.meta;
      element.replaceChildren(
        el(
          "header.onnx-nb-bar",
          el("b", { title: "The model in the kernel" }, "g.submodel"),
          el("span.onnx-nb-dim.onnx-nb-ellipsis", `${counted(nodes, "node")}, ${bytes(nbytes)}`),
          copyButton(() => call, pane.signal, "Copy Python"),
          button("Close", close, pane.signal, { "aria-label": "Close submodel" }),
        ),
        inner,
      );
      element.hidden = false;
      root.classList.add("onnx-nb-split");
      fill(inner, pane.signal);
    },
  };
}
