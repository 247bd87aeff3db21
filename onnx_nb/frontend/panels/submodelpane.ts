/** The pane beside the graph, above the model that was made of it: its name, its edits, and what to do with it. */

import type { SaveReply, StepEntry } from "../protocol/wire.ts";
import { bytes, countOf } from "../scene/formatting.ts";
import type { Submodel } from "../scene/state.ts";
import { button, copyButton, el, elide } from "../ui/dom.ts";
import { KernelButtons } from "../ui/task.ts";
import { statusLabels } from "./legend.ts";
import { createSaveBar } from "./savebar.ts";
import type { ViewContext } from "./viewcontext.ts";

/** Titles of the pane where no cell has a name for what it shows. */
const TITLES = { extract: "Submodel", edit: "Edited model", simplify: "Simplified model" } as const;
/** Class of the sign of a verdict. */
const TONES: Readonly<Record<string, string>> = {
  "✓": ".onnx-nb-fine",
  "≈": ".onnx-nb-fine",
  "✗": ".onnx-nb-bad",
  "?": ".onnx-nb-caution",
};

/** @param tools where the view of the submodel puts its bar */
export function paneParts(
  view: ViewContext,
  submodel: Submodel,
  tools: HTMLElement,
  close: () => void,
  signal: AbortSignal,
): HTMLElement[] {
  const { host, dispatch } = view;
  const reason = host.live ? null : host.reason;
  const buttons = new KernelButtons();
  const write = (path: string, replace: boolean): Promise<SaveReply> =>
    host.save?.(path, replace, signal) ?? Promise.reject(new Error(host.reason));
  const saveBar = createSaveBar(() => submodel.file, write, buttons, signal);
  buttons.update(false, reason);
  saveBar.update(reason);
  const { nodes, nbytes } = submodel.columns.meta;
  const title = `In the kernel: ${countOf(nodes, "node")}, ${bytes(nbytes)}`;
  const { steps, redo, origin } = submodel;
  const travel = (text: string, edit: "undo" | "redo", title: string, hidden: boolean): HTMLElement =>
    button(text, () => dispatch({ type: "edit", request: { edit } }), signal, { title, hidden });
  const travels = [
    travel("Undo edit", "undo", "Take the last edit back", steps.length === 0),
    travel("Redo edit", "redo", "Make it again", !redo),
  ];
  return [
    el(
      "header.onnx-nb-bar",
      el("b", { title }, submodel.name || TITLES[origin]),
      el("span.onnx-nb-dim.onnx-nb-ellipsis", countOf(nodes, "node")),
      tools,
      ...(origin === "edit" ? travels : []),
      saveBar.opener,
      copyButton(() => submodel.code, signal, "Copy Python"),
      button("×", close, signal, { "aria-label": "Close submodel", title: "Close" }),
    ),
    el("div.onnx-nb-made", saveBar.element, ...(origin === "edit" ? [createSteps(view, submodel, signal)] : [])),
  ];
}

/** Updates what proves each edit in the list. */
export function showVerdicts(pane: HTMLElement, submodel: Submodel | null): void {
  const rows = pane.querySelectorAll<HTMLElement>(".onnx-nb-edits li");
  submodel?.steps.forEach((step, at) => {
    const [sign, words] = rows[at].children;
    sign?.replaceWith(signOf(step));
    words?.lastChild?.replaceWith(verdictOf(step));
  });
}

const signOf = ({ sign }: StepEntry): HTMLElement => el(`i${TONES[sign] ?? ""}`, sign);
const verdictOf = ({ verdict }: StepEntry): HTMLElement => el("span.onnx-nb-dim", ` ${elide(verdict, 240)}`);

/** Creates the list of edits: what proves each one, and a button that undoes it; and the marks in both graphs. */
function createSteps({ dispatch }: ViewContext, submodel: Submodel, signal: AbortSignal): HTMLElement {
  const { steps, step, differences } = submodel;
  const rows = steps.map((entry, at) => {
    const undo = (): void => dispatch({ type: "edit", request: { edit: "undo", step: at + 1 } });
    const isShown = step === at + 1;
    const show = (): void => dispatch({ type: "edit", request: { edit: "show", step: isShown ? 0 : at + 1 } });
    const hint = isShown ? "Show all steps" : "Show only what this step changed";
    const toggle = { class: "onnx-nb-link", title: hint, "aria-pressed": isShown };
    const title = "Take it back, if no later edit needs it";
    const undoing = { class: "onnx-nb-small", "aria-label": `Undo step ${at + 1}`, title };
    const words = el("span", button(elide(entry.text, 120), show, signal, toggle), verdictOf(entry));
    return el("li", signOf(entry), words, button("Undo", undo, signal, undoing));
  });
  const list = el("ol", ...(rows.length > 0 ? rows : [el("li.onnx-nb-dim", "No edits: this is the model as it was.")]));
  const marks = differences && statusLabels(differences.counts);
  return el("section.onnx-nb-edits", { "aria-label": "Edits" }, list, marks);
}
