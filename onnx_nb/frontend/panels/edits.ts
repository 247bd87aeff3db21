/** Edits of the selected node, tensor or scope: buttons, and a field for its new name. */

import { type Columns, type Target, VALUE } from "../protocol/columns.ts";
import { button, el, on } from "../ui/dom.ts";
import type { ViewContext } from "./viewcontext.ts";

/** Returns the form; the kernel makes the edit, proves it, and shows the result beside the graph. */
export function createEditForm({ columns, dispatch }: ViewContext, target: Target, signal: AbortSignal): HTMLElement {
  const { kind, id } = target;
  const edit = (name: string, text = ""): void => dispatch({ type: "edit", request: { edit: name, kind, id, text } });
  const row = el("div.onnx-nb-row");
  const add = (text: string, press: () => void, title: string): void => {
    row.append(button(text, press, signal, { title }));
  };
  if (kind !== "tensor") add("Remove", () => edit("remove"), "Who reads what it makes reads what it reads");
  if (kind === "tensor" && columns.valueKind[id] === VALUE.GRAPH_INPUT) {
    add("Free the batch", () => edit("free", "batch"), "Make its first axis dynamic, and mend what pins it");
  }
  if (kind === "tensor" && columns.producer[id] >= 0 && !columns.isGraphOutput(id)) {
    add("Make it an output", () => edit("output"), "The model gives this tensor as well");
  }
  if (kind !== "scope" && columns.nameOf(target) !== "") row.append(...renaming(columns, target, edit, signal));
  return el("details.onnx-nb-edit", el("summary", "Edit"), row);
}

function renaming(
  columns: Columns,
  target: Target,
  edit: (name: string, text: string) => void,
  signal: AbortSignal,
): HTMLElement[] {
  const field = el("input.onnx-nb-field", { type: "text", "aria-label": "New name", spellcheck: "false" });
  field.value = columns.nameOf(target);
  const rename = (): void => edit("rename", field.value.trim());
  on(field, "keydown", signal, (event) => {
    event.stopPropagation(); // letters are not commands to the notebook
    if (event.key === "Enter") rename();
  });
  return [field, button("Rename", rename, signal, { title: "Rename it wherever it is used" })];
}
