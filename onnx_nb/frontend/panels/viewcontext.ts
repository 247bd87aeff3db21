/** Context of every panel of a graph view, and links in panels, which select their targets. */

import { type Columns, type Target, VALUE } from "../protocol/columns.ts";
import type { GraphHost } from "../protocol/host.ts";
import { bytes, countOf, formatCompact, percent } from "../scene/formatting.ts";
import { type Action, type Command, keyOf, type State } from "../scene/state.ts";
import { breakable, copy, el, elide, on } from "../ui/dom.ts";

export interface ViewContext {
  readonly columns: Columns;
  readonly host: GraphHost;
  state(): State;
  /** whether edits reach a kernel */
  canEdit(): boolean;
  readonly dispatch: (action: Action | Command) => void;
  /** announces a sentence to screen readers */
  announce(text: string): void;
  readonly signal: AbortSignal;
}

/** A part of the view that follows its state. */
export interface Panel {
  readonly element: HTMLElement;
  update(state: State): void;
}

export function link(text: string, target: Target, title = text): HTMLButtonElement {
  const attributes = { type: "button", title: title.slice(0, 4000), data: { go: keyOf(target) } };
  return el("button.onnx-nb-link", attributes, ...breakable(text));
}

/** Follows all links below `root`, however often panels are filled, and lights what they lead to; a nested view has its own. */
export function followLinks(root: HTMLElement, { dispatch, signal }: ViewContext): void {
  const targetOf = (event: Event): Target | null => {
    const element = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-go]") : null;
    if (element === null || element.closest("[data-widget]") !== root) return null;
    const [kind, id] = (element.dataset.go ?? "").split(" ");
    return { kind, id: Number(id) } as Target;
  };
  const light = (event: Event, isLit: boolean): void => {
    const target = targetOf(event);
    if (target !== null) dispatch({ type: "hover", target: isLit ? target : null });
  };
  for (const type of ["pointerover", "focusin"] as const) on(root, type, signal, (event) => light(event, true));
  for (const type of ["pointerout", "focusout"] as const) on(root, type, signal, (event) => light(event, false));
  on(root, "click", signal, (event) => {
    const target = targetOf(event);
    if (target === null) return;
    dispatch({ type: "select", target });
    dispatch({ type: "reveal", target });
  });
}

export function valueLink(columns: Columns, value: number, limit = 48): HTMLButtonElement {
  const name = columns.valueNameOf(value);
  return link(elide(name, limit) || "(unnamed)", { kind: "tensor", id: value }, name);
}

/** Returns the op and its scope, "MatMul  encoder.layer.0". */
export function nodeLink(columns: Columns, node: number): HTMLButtonElement {
  const target: Target = { kind: "node", id: node };
  const scope = columns.str(columns.scopePath[columns.scopeOf(target)]);
  const op = columns.opOf(node);
  const element = link(elide(op, 40), target, columns.nameOf(target) || op);
  if (scope !== "") element.append(el("span.onnx-nb-dim", ...breakable(` ${elide(scope, 48)}`)));
  return element;
}

/** Returns the name of a target in lists. */
export function describe(columns: Columns, target: Target): { title: string; sub: string; kind: string } {
  const { kind, id } = target;
  const title = columns.nameOf(target);
  if (kind === "node") return { title: columns.opOf(id), sub: title, kind };
  if (kind === "scope") {
    return { title: title || columns.str(columns.scopeName[id]), sub: columns.str(columns.scopeClass[id]), kind };
  }
  const weight = columns.valueKind[id] === VALUE.INITIALIZER;
  const sub = `${columns.shapeOf(id)} ${columns.dtypeOf(id)}`.trim();
  return { title, sub, kind: weight ? "weight" : columns.isConstant(id) ? "constant" : "tensor" };
}

/** Returns facts that no label has: who makes and reads a tensor, what is in a scope, what the weights of a node take. */
export function factsOf(columns: Columns, { kind, id }: Target): string[] {
  if (kind === "scope") {
    const [all, parameters] = [columns.scopeParams[0], columns.scopeParams[id]];
    const share = `${formatCompact(parameters)} parameters, ${percent(parameters / all)} of all`;
    return [countOf(columns.scopeNodes[id], "node"), ...(parameters > 0 && id > 0 ? [share] : [])];
  }
  if (kind === "node") {
    const weights = [...columns.inputsOf(id)].filter((value) => value >= 0 && columns.isConstant(value));
    const size = weights.reduce((sum, value) => sum + columns.bytesOf(value), 0);
    return size > 0 ? [`${bytes(size)} of weights`] : [];
  }
  const [maker, size] = [columns.producer[id], columns.bytesOf(id)];
  return [
    ...(maker >= 0 ? [`made by ${columns.opOf(maker)}`] : []),
    `read by ${countOf(columns.consumersOf(id).length, "node")}`,
    ...(Number.isNaN(size) ? [] : [bytes(size)]),
  ];
}

/** Returns "3 nodes, 1 scope". */
export function countedByKind(targets: readonly Target[]): string {
  return (["node", "scope", "tensor"] as const)
    .map((kind) => [targets.filter((target) => target.kind === kind).length, kind] as const)
    .filter(([count]) => count > 0)
    .map(([count, kind]) => countOf(count, kind))
    .join(", ");
}

/** Copies the names of targets to the clipboard, one per line. */
export async function copyNames({ columns, announce }: ViewContext, targets: readonly Target[]): Promise<void> {
  const names = targets.map((target) => columns.nameOf(target)).filter((name) => name !== "");
  const done = names.length > 0 && (await copy(names.join("\n")));
  announce(
    names.length === 0 ? "They have no names" : done ? `${countOf(names.length, "name")} copied` : "Copy failed",
  );
}
