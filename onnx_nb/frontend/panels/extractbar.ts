/** The bar at the bottom: chosen inputs and outputs as chips, size of the extraction, missing inputs, and buttons. */

import { bytes, countOf } from "../scene/formatting.ts";
import type { State } from "../scene/state.ts";
import { button, el, elide, fillings } from "../ui/dom.ts";
import { type Panel, type ViewContext, valueLink } from "./viewcontext.ts";

/** Maximum number of chips; more would push everything else away. */
const CHIPS = 12;
/** Characters of the name on a chip, if there are few chips and if there are many. */
const NAMES = { few: 46, many: 28 };
const MAX_LONG_CHIPS = 4;
/** Words for the fields that a step changed. */
const STEPS: Readonly<Record<string, string>> = { open: "scopes", others: "selection", overlay: "color" };

/** @param cancel stops the work in the kernel */
export function createExtractBar({ columns, host, dispatch, signal }: ViewContext, cancel: () => void): Panel {
  const next = fillings(signal);
  const chips = el("div.onnx-nb-chips");
  const message = el("span.onnx-nb-say.onnx-nb-dim.onnx-nb-ellipsis");
  const add = button("Add it", () => choose(completeInputs(lastState)), signal, { title: "Add the suggested inputs" });
  const instead = button("", () => choose(lastState?.plan?.alternative ?? []), signal);
  const undo = button("Undo", () => dispatch({ type: "undo" }), signal, { title: "Ctrl+Z" });
  const clear = button("Clear", () => dispatch({ type: "clear" }), signal);
  const stop = button("Cancel", cancel, signal);
  const extract = button("Extract", () => dispatch({ type: "extract" }), signal, { class: "onnx-nb-primary" });
  const progress = el("div.onnx-nb-progress", { role: "progressbar", "aria-label": "Working" });
  const acts = el("div.onnx-nb-cutting", add, instead, undo, clear, stop, extract);

  let lastState: State | undefined;
  const choose = (inputs: readonly number[], outputs = lastState?.boundary.outputs ?? []): void =>
    dispatch({ type: "boundary", boundary: { inputs, outputs } });
  const fill = ({ boundary: { inputs, outputs }, plan }: State): void => {
    const round = next();
    chips.replaceChildren();
    if (inputs.length === 0 && outputs.length === 0) return;
    const isCrowded = inputs.length + outputs.length + (plan?.missing.length ?? 0) > MAX_LONG_CHIPS;
    const limit = isCrowded ? NAMES.many : NAMES.few;
    const chip = (value: number, type: "input" | "output"): HTMLElement => {
      const redundant = type === "input" && (plan?.redundant.includes(value) ?? false);
      const name = columns.valueNameOf(value);
      const remark = redundant ? "\nnothing on the way to the outputs reads it" : "";
      const label = { class: "onnx-nb-x", "aria-label": `Remove ${type} ${elide(name, 80)}` };
      const remove = button("×", () => dispatch({ type, value }), round, label);
      const title = name.slice(0, 2000) + remark;
      const style = redundant ? ".onnx-nb-redundant" : "";
      return el(`span.onnx-nb-chip${style}`, { title }, valueLink(columns, value, limit), remove);
    };
    /** the label stays on the line of the first chip */
    const addChips = (word: string, values: readonly number[], type: "input" | "output"): void => {
      const [first, ...moreChips] = values.slice(0, CHIPS).map((value) => chip(value, type));
      chips.append(el("span.onnx-nb-end", el("span.onnx-nb-dim", word), first ?? null), ...moreChips);
      if (values.length > CHIPS) chips.append(el("span.onnx-nb-dim", `and ${values.length - CHIPS} more`));
    };
    addChips("in", inputs, "input");
    for (const { value, name, message } of plan?.missing.slice(0, CHIPS) ?? []) {
      const properties = { class: "onnx-nb-chip onnx-nb-missing", title: `${name}\n${message}`.slice(0, 2000) };
      chips.append(button(`+ add: ${elide(name, limit)}`, () => choose([...inputs, value]), round, properties));
    }
    const result = plan === null ? "→" : `→ ${countOf(plan.nodes.length, "node")}, ${bytes(plan.nbytes)} →`;
    chips.append(el("span.onnx-nb-dim.onnx-nb-plan", result));
    addChips("out", outputs, "output");
  };

  return {
    element: el("footer.onnx-nb-extract", progress, chips, message, acts),
    update(state) {
      const before = lastState;
      lastState = state;
      const { boundary, plan, busy, done, outcome, isAlarm } = state;
      if (before?.boundary !== boundary || before?.plan !== plan) fill(state);
      const sign = isAlarm ? "⚠" : "✓";
      const text = busy ?? (outcome !== "" ? `${sign} ${outcome}` : host.live ? advice(state) : host.reason);
      message.classList.toggle("onnx-nb-fine", busy === null && outcome !== "" && !isAlarm);
      message.classList.toggle("onnx-nb-bad", busy === null && outcome !== "" && isAlarm);
      if (message.textContent !== text) {
        message.textContent = elide(text, 240);
        message.title = text.slice(0, 4000);
      }
      progress.hidden = busy === null;
      progress.classList.toggle("onnx-nb-known", done !== null);
      progress.style.setProperty("--nb-done", String(done ?? 0));
      if (done === null) progress.removeAttribute("aria-valuenow");
      else progress.setAttribute("aria-valuenow", String(Math.round(100 * done)));
      stop.hidden = busy === null;
      const { missing = [], suggestion = [], alternative = [] } = plan ?? {};
      add.hidden = missing.length === 0;
      add.textContent =
        suggestion.filter((value) => !boundary.inputs.includes(value)).length > 1 ? "Add them" : "Add it";
      instead.hidden = alternative.length === 0;
      const names = alternative.map((value) => columns.valueNameOf(value));
      instead.textContent = names.length === 1 ? `Use ${elide(names[0], 28)} instead` : "Use other inputs";
      instead.title = `Inputs in place of the chosen ones:\n${names.join("\n")}`.slice(0, 2000);
      const last = state.undo.at(-1);
      const isOfCut = last?.boundary !== undefined || last?.submodel !== undefined;
      clear.hidden = boundary.inputs.length === 0 && boundary.outputs.length === 0;
      undo.hidden = last === undefined || (clear.hidden && !isOfCut);
      undo.textContent = isOfCut ? "Undo" : `Undo: ${STEPS[Object.keys(last ?? {})[0]] ?? "view"}`;
      extract.disabled = !host.live || boundary.outputs.length === 0 || busy !== null || missing.length > 0;
      extract.title = extract.disabled && busy === null ? text : "Extract this part as a model of its own (x)";
    },
  };
}

/** Returns the chosen inputs, without redundant ones and with the inputs that the plan suggests. */
function completeInputs(state: State | undefined): readonly number[] {
  if (state?.plan == null) return state?.boundary.inputs ?? [];
  const { suggestion, missing, redundant } = state.plan;
  const additions = suggestion.length > 0 ? suggestion : missing.map(({ value }) => value);
  return [...new Set([...state.boundary.inputs.filter((value) => !redundant.includes(value)), ...additions])];
}

function advice({ boundary, plan }: State): string {
  if (boundary.inputs.length === 0 && boundary.outputs.length === 0) {
    return "To extract a submodel, select a tensor and press Input or Output (keys i, o).";
  }
  if (boundary.outputs.length === 0) return "Now select the tensor where it should end and press Output (o).";
  return plan?.message ?? "";
}
