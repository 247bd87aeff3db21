/** Edits of a node, tensor or scope: the form in the inspector, and the entries of its menu. */

import { type Target, VALUE } from "../protocol/columns.ts";
import { sameTarget, selectionOf } from "../scene/state.ts";
import { button, el, elide, textField } from "../ui/dom.ts";
import type { Entry } from "../ui/menu.ts";
import { copyNames, countedByKind, describe, type ViewContext } from "./viewcontext.ts";

/** Entries, each with whether it applies. */
type Choices = readonly (readonly [applies: boolean, entry: Entry])[];

const applicable = (choices: Choices): Entry[] => choices.flatMap(([applies, entry]) => (applies ? [entry] : []));

/** Returns the edits of a target; the kernel makes them, proves them, and shows the result beside the graph. */
function editsOf({ columns, dispatch, canEdit }: ViewContext, target: Target): Entry[] {
  const { kind, id } = target;
  const edit = (edit: string, text: string, title: string, field?: Entry["field"]): Entry => {
    const act = (text: string): void => dispatch({ type: "edit", request: { edit, kind, id, text } });
    return { text, title, act, ...(field && { field }) };
  };
  const name = columns.nameOf(target);
  const [isTensor, isNode] = [kind === "tensor", kind === "node"];
  const isOutput = isTensor && columns.isGraphOutput(id);
  const flows = isTensor && !columns.isConstant(id) && name !== "";
  const isInner = flows && columns.producer[id] >= 0 && !isOutput;
  const hasName = kind !== "scope" && name !== "";
  const isInput = isTensor && columns.valueKind[id] === VALUE.GRAPH_INPUT;
  const shape = isInput ? columns.shapeOf(id) : "";
  const hasSizes = shape !== "" && shape !== "scalar" && !shape.includes("…");
  if (!canEdit() || (kind === "scope" && id === 0)) return [];
  return applicable([
    [!isTensor, edit("remove", "Remove", "Who reads what it makes reads what it reads")],
    [isInput, edit("free", "Free the batch", "Make its first axis dynamic, and mend what pins it")],
    [hasSizes, edit("shape", "Reshape", DIMENSIONS, { label: "Shape", value: shape })],
    [isInner, edit("output", "Make it an output", "The model gives it as well")],
    [isOutput, edit("drop", "Drop this output", "With all that only this output needs")],
    [flows, edit("insert", "Insert a node", "Whoever reads this tensor reads what the node makes of it", OPERATOR)],
    [isNode, edit("set", "Set attributes", "None removes one", ATTRIBUTES)],
    [hasName, edit("rename", "Rename", "Wherever it is used", { label: "New name", value: name })],
  ]);
}

const DIMENSIONS = "A number fixes a dimension, a name frees or renames it";
const OPERATOR = { label: "Operator", value: "", hint: "Cast(to=float16)" };
const ATTRIBUTES = { label: "Attributes", value: "", hint: "axis=1" };

/** Returns the form of the inspector: a button for each edit, after the field that it needs. */
export function createEditForm(view: ViewContext, target: Target, signal: AbortSignal): HTMLElement | null {
  const parts = editsOf(view, target).map(({ text, title, field, act }) => {
    if (field === undefined) return button(text, () => act(""), signal, { title });
    const enter = (words: string | null): void => {
      if (words) act(words);
    };
    const input = textField(field.label, field.value, enter, signal, { placeholder: field.hint });
    const press = button(text, () => enter(input.value.trim()), signal, { title });
    return el("span.onnx-nb-entry", input, press);
  });
  return parts.length === 0 ? null : el("details.onnx-nb-edit", el("summary", "Edit"), el("div.onnx-nb-row", ...parts));
}

/** Returns the type of an input whose dimensions a person can press, to change each where it stands; else null. */
export function createShape(view: ViewContext, id: number, signal: AbortSignal): HTMLElement | null {
  const { columns } = view;
  const entry = shapeEdit(view, { kind: "tensor", id });
  if (entry?.field === undefined) return null;
  const sizes = entry.field.value.split("×");
  const row = el("span.onnx-nb-mono", `${columns.dtypeOf(id) || "unknown"}  `);
  sizes.forEach((size, axis) => {
    const label = `Dimension ${axis}`;
    const commit = (text: string | null): void => {
      field.replaceWith(press);
      if (text && text !== size) entry.act(sizes.with(axis, text).join("×"));
      else press.focus();
    };
    const field = textField(label, size, commit, signal, { class: "onnx-nb-field onnx-nb-dimension" });
    const open = (): void => {
      press.replaceWith(field);
      field.focus();
      field.select();
    };
    const properties = { class: "onnx-nb-size", "aria-label": `${label}: ${size}`, title: entry.title };
    const press = button(elide(size, 30), open, signal, properties);
    row.append(...(axis > 0 ? ["×"] : []), press);
  });
  return row;
}

/** Returns the edit that changes the shape of an input; undefined for other targets. */
export function shapeEdit(view: ViewContext, target: Target): Entry | undefined {
  return editsOf(view, target).find(({ field }) => field?.label === "Shape");
}

/** Returns label and entries of the menu of a target, or, if it is one of several selected ones, of all of them. */
export function menuOf(view: ViewContext, target: Target): readonly [label: string, entries: readonly Entry[]] {
  const selection = selectionOf(view.state());
  const isOfMany = selection.length > 1 && selection.some((member) => sameTarget(member, target));
  if (isOfMany) return [countedByKind(selection), verbsOfMany(view, selection)];
  view.dispatch({ type: "select", target });
  const { title, kind } = describe(view.columns, target);
  return [`${kind} ${elide(title, 80)}`, verbsOf(view, target)];
}

function verbsOf(view: ViewContext, target: Target): Entry[] {
  const { columns, host, state, dispatch } = view;
  const { kind, id } = target;
  const verb = (text: string, title: string, act: () => void): Entry => ({ text, title, act });
  const { open, boundary } = state();
  const scope = kind === "scope" ? id : kind === "node" ? columns.nodeBody[id] : -1;
  const canExtract = host.live && host.canExtract !== false;
  const flows = kind === "tensor" && !columns.isConstant(id) && columns.valueNameOf(id) !== "";
  const end = (type: "input" | "output"): Entry => {
    const isChosen = boundary[`${type}s`].includes(id);
    const text = `${isChosen ? "No longer extract" : "Extract"} ${type === "input" ? "from" : "up to"} here`;
    return verb(text, `Key ${type[0]}`, () => dispatch({ type, value: id }));
  };
  const extract = (): void => dispatch({ type: "extract", targets: [target] });
  const before: Choices = [
    [scope > 0, verb(open.has(scope) ? "Collapse" : "Expand", "Key e", () => dispatch({ type: "toggle", scope }))],
    [canExtract && kind !== "tensor" && scope !== 0, verb("Extract", "As a model of its own", extract)],
    [canExtract && flows, end("input")],
    [canExtract && flows, end("output")],
  ];
  const capture = (): void => dispatch({ type: "capture", value: id });
  const after: Choices = [
    [flows && host.live && host.values !== undefined, verb("Capture", "Run the model and read this tensor", capture)],
    [columns.nameOf(target) !== "", verb("Copy name", "Ctrl+C", () => void copyNames(view, [target]))],
  ];
  const edits = editsOf(view, target).map((entry) => (entry.field ? { ...entry, text: `${entry.text}…` } : entry));
  return [...applicable(before), ...edits, ...applicable(after)];
}

function verbsOfMany(view: ViewContext, targets: readonly Target[]): Entry[] {
  const { host, dispatch } = view;
  const boxes = targets.filter(({ kind }) => kind !== "tensor");
  const extract = (): void => dispatch({ type: "extract", targets: boxes });
  const canExtract = host.live && host.select !== undefined && boxes.length > 0;
  return applicable([
    [canExtract, { text: "Extract these", title: "As a model of its own", act: extract }],
    [true, { text: "Show", title: "Shift+F", act: () => dispatch({ type: "fit", targets }) }],
    [true, { text: "Copy names", title: "Ctrl+C", act: () => void copyNames(view, targets) }],
  ]);
}
