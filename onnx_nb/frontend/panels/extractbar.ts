/** The bar below: chosen inputs and outputs as chips, what an extraction would take, what it lacks, and the buttons. */

import type { Columns } from "../protocol/columns.ts";
import { type GraphHost, NO_KERNEL } from "../protocol/host.ts";
import { bytes, counted } from "../scene/formatting.ts";
import type { Dispatch, State } from "../scene/state.ts";
import { button, el, elide, fillings } from "./dom.ts";
import { valueLink } from "./link.ts";

export interface ExtractBar {
  update(state: State): void;
}

/** More chips than this would push everything else away. */
const CHIPS = 12;
/** Characters of the name on a chip: of few chips, and of many. */
const NAMES = [46, 28] as const;
const FEW = 4;

export function createExtractBar(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  dispatch: Dispatch,
  cancel: () => void,
  signal: AbortSignal,
): ExtractBar {
  const next = fillings(signal);
  const chips = el("div.onnx-nb-chips");
  const message = el("span.onnx-nb-say.onnx-nb-dim");
  const add = button("Add it", () => choose(completed(shown)), signal, { title: "Add the suggested inputs" });
  const instead = button("", () => choose(shown?.plan?.alternative ?? []), signal);
  const undo = button("Undo", () => dispatch({ type: "undo" }), signal, { title: "Ctrl+Z" });
  const clear = button("Clear", () => dispatch({ type: "clear" }), signal);
  const stop = button("Cancel", cancel, signal);
  const extract = button("Extract", () => dispatch({ type: "extract" }), signal, { class: "onnx-nb-primary" });
  const progress = el("div.onnx-nb-progress", { role: "progressbar", "aria-label": "Working" });
  const acts = el("div.onnx-nb-cutting", add, instead, undo, clear, stop, extract);
  root.append(progress, chips, message, acts);

  let shown: State | undefined;
  const choose = (inputs: readonly number[]): void => {
    if (shown != null) dispatch({ type: "boundary", boundary: { inputs, outputs: shown.boundary.outputs } });
  };
  const fill = (state: State): void => {
    const round = next();
    const { boundary, plan } = state;
    chips.replaceChildren();
    if (boundary.inputs.length === 0 && boundary.outputs.length === 0) return;
    const most = NAMES[boundary.inputs.length + boundary.outputs.length + (plan?.missing.length ?? 0) <= FEW ? 0 : 1];
    const chip = (value: number, type: "input" | "output"): HTMLElement => {
      const redundant = type === "input" && (plan?.redundant.includes(value) ?? false);
      const name = columns.valueNameOf(value);
      const remove = button("×", () => dispatch({ type, value }), round, {
        class: "onnx-nb-x",
        "aria-label": `Remove ${type} ${elide(name, 80)}`,
      });
      return el(
        "span",
        {
          class: `onnx-nb-chip${redundant ? " onnx-nb-redundant" : ""}`,
          title: redundant ? `${name.slice(0, 2000)}\nnothing on the way to the outputs reads it` : name.slice(0, 2000),
        },
        valueLink(columns, value, most),
        remove,
      );
    };
    /** the word stays on the line of the first chip */
    const some = (word: string, values: readonly number[], type: "input" | "output"): void => {
      const [first, ...others] = values.slice(0, CHIPS).map((value) => chip(value, type));
      const named = el("span.onnx-nb-dim", word);
      chips.append(el("span.onnx-nb-end", named, first ?? null), ...others);
      if (values.length > CHIPS) chips.append(el("span.onnx-nb-dim", `and ${values.length - CHIPS} more`));
    };
    some("in", boundary.inputs, "input");
    for (const { value, name, message } of plan?.missing.slice(0, CHIPS) ?? []) {
      const { inputs, outputs } = boundary;
      chips.append(
        button(
          `+ add: ${elide(name, most)}`,
          () => dispatch({ type: "boundary", boundary: { inputs: [...inputs, value], outputs } }),
          round,
          { class: "onnx-nb-chip onnx-nb-missing", title: `${name}\n${message}`.slice(0, 2000) },
        ),
      );
    }
    const result = plan === null ? "→" : `→ ${counted(plan.nodes.length, "node")}, ${bytes(plan.nbytes)} →`;
    chips.append(el("span.onnx-nb-dim.onnx-nb-plan", result));
    some("out", boundary.outputs, "output");
  };

  return {
    update(state) {
      const before = shown;
      shown = state;
      const { boundary, plan, busy } = state;
      if (before?.boundary !== boundary || before?.plan !== plan) fill(state);
      const empty = boundary.inputs.length === 0 && boundary.outputs.length === 0;
      const text = busy ?? (host.live ? advice(state) : (host.reason ?? NO_KERNEL));
      if (message.textContent !== text) {
        message.textContent = elide(text, 240);
        message.title = text.slice(0, 4000);
      }
      progress.hidden = busy === null;
      progress.classList.toggle("onnx-nb-known", state.done !== null);
      progress.style.setProperty("--nb-done", String(state.done ?? 0));
      if (state.done === null) progress.removeAttribute("aria-valuenow");
      else progress.setAttribute("aria-valuenow", String(Math.round(100 * state.done)));
      stop.hidden = busy === null || host.cancellable !== true;
      const lacking = plan !== null && plan.missing.length > 0;
      add.hidden = !lacking;
      const added = plan === null ? 0 : plan.suggestion.filter((value) => !boundary.inputs.includes(value)).length;
      add.textContent = added > 1 ? "Add them" : "Add it";
      const other = plan?.alternative ?? [];
      instead.hidden = other.length === 0;
      if (other.length > 0) {
        const names = other.map((value) => columns.valueNameOf(value));
        instead.textContent = other.length === 1 ? `Use ${elide(names[0], 28)} instead` : "Use other inputs";
        instead.title = `Inputs in place of the chosen ones:\n${names.join("\n")}`.slice(0, 2000);
      }
      undo.hidden = state.undo.at(-1)?.boundary === undefined;
      clear.hidden = empty;
      extract.disabled = !host.live || boundary.outputs.length === 0 || busy !== null || lacking;
      extract.title = extract.disabled && busy === null ? text : "Extract this part as a model of its own (x)";
    },
  };
}

/** Returns the chosen inputs without those that are redundant, and with those that the plan suggests. */
function completed(state: State | undefined): readonly number[] {
  if (state?.plan == null) return state?.boundary.inputs ?? [];
  const { suggestion, missing, redundant } = state.plan;
  const wanted = suggestion.length > 0 ? suggestion : missing.map(({ value }) => value);
  return [...new Set([...state.boundary.inputs.filter((value) => !redundant.includes(value)), ...wanted])];
}

function advice({ boundary, plan }: State): string {
  if (boundary.inputs.length === 0 && boundary.outputs.length === 0) {
    return "To extract a submodel, select a tensor and press Input or Output (keys i, o).";
  }
  if (boundary.outputs.length === 0) return "Now select the tensor where it should end and press Output (o).";
  return plan?.message ?? "";
}
