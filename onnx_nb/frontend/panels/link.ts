/** Links to a node, a tensor or a scope: pressing one selects it and brings it into view. */

import { type Columns, type Target, VALUE } from "../protocol/columns.ts";
import type { Dispatch } from "../scene/state.ts";
import { breakable, el, elide, on } from "./dom.ts";

export function link(text: string, target: Target, title = text): HTMLButtonElement {
  const element = el(
    "button.onnx-nb-link",
    { title: title.slice(0, 4000), data: { go: `${target.kind} ${target.id}` } },
    ...breakable(text),
  );
  element.type = "button";
  return element;
}

/** One listener for all links below `root`, however often panels are filled again; links of a nested view are its own. */
export function followLinks(root: HTMLElement, dispatch: Dispatch, signal: AbortSignal): void {
  on(root, "click", signal, (event) => {
    const element = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-go]") : null;
    if (element === null || element.closest("[data-widget]") !== root) return;
    const [kind, id] = (element.dataset.go ?? "").split(" ");
    const target = { kind, id: Number(id) } as Target;
    dispatch({ type: "select", target });
    dispatch({ type: "reveal", target });
  });
}

export function valueLink(columns: Columns, value: number, most = 48): HTMLButtonElement {
  const name = columns.valueNameOf(value);
  return link(elide(name, most) || "(unnamed)", { kind: "tensor", id: value }, name);
}

/** "MatMul  encoder.layer.0": the op and its scope. */
export function nodeLink(columns: Columns, node: number): HTMLButtonElement {
  const scope = columns.str(columns.scopePath[columns.scopeOf({ kind: "node", id: node })]);
  const op = columns.opOf(node);
  const element = link(elide(op, 40), { kind: "node", id: node }, columns.nameOf({ kind: "node", id: node }) || op);
  if (scope !== "") element.append(el("span.onnx-nb-dim", ...breakable(` ${elide(scope, 48)}`)));
  return element;
}

/** How a target is named in lists. */
export function describe(columns: Columns, target: Target): { title: string; sub: string; kind: string } {
  const { id } = target;
  switch (target.kind) {
    case "node":
      return { title: columns.opOf(id), sub: columns.nameOf(target), kind: "node" };
    case "tensor":
      return {
        title: columns.valueNameOf(id),
        sub: `${columns.shapeOf(id)} ${columns.dtypeOf(id)}`.trim(),
        kind: columns.valueKind[id] === VALUE.INITIALIZER ? "weight" : columns.isConstant(id) ? "constant" : "tensor",
      };
    case "scope":
      return {
        title: columns.str(columns.scopePath[id]) || columns.str(columns.scopeName[id]),
        sub: columns.str(columns.scopeClass[id]),
        kind: "scope",
      };
  }
}
