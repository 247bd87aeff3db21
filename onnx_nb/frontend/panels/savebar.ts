/** A row that saves a model that was made here to a file; it asks before it overwrites one. */

import { failureText } from "../protocol/host.ts";
import type { SaveReply } from "../protocol/wire.ts";
import { button, el, elide, on, textField } from "../ui/dom.ts";
import type { KernelButtons } from "../ui/task.ts";

export function createSaveBar(
  suggestion: () => string,
  save: (path: string, replace: boolean) => Promise<SaveReply>,
  kernel: KernelButtons,
  signal: AbortSignal,
) {
  const enter = (text: string | null): void => {
    if (text !== null) void run(false);
    else {
      toggle(false);
      opener.focus();
    }
  };
  const path = textField("Path of the file", "", enter, signal, { class: "onnx-nb-field onnx-nb-path" });
  const outcome = el("span.onnx-nb-message-text", { role: "status" });
  const write = kernel.create("Save", () => run(false), signal, { hint: "Write the file" });
  const replace = kernel.create("Replace", () => run(true), signal, { hint: "Write over the existing file" });
  const group = { role: "group", "aria-label": "Save the model", hidden: true };
  const element = el("div.onnx-nb-strip", group, path, write, replace, outcome);
  const toggle = (open: boolean): void => {
    element.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    replace.hidden = true;
    outcome.textContent = "";
    if (!open) return;
    if (path.value === "") path.value = suggestion();
    path.focus();
    path.select();
  };
  const opener = button("Save…", () => toggle(element.hidden !== false), signal, { "aria-expanded": false });
  const run = async (overwrite: boolean): Promise<void> => {
    outcome.textContent = "Saving…";
    write.disabled = replace.disabled = true;
    try {
      const reply = await save(path.value, overwrite);
      const file = elide(reply.path, 200);
      replace.hidden = !reply.exists;
      outcome.textContent = reply.exists ? `The file ${file} already exists.` : `Saved ${reply.size ?? ""} to ${file}`;
    } catch (error) {
      outcome.textContent = elide(failureText(error), 600);
    }
    kernel.refresh();
    if (!replace.hidden) replace.focus();
  };
  on(path, "input", signal, () => {
    replace.hidden = true; // it is another file
  });
  return {
    element,
    /** the button that opens the row */
    opener,
    /** Removes the outcome of the last save, which was of another result. */
    forget(): void {
      outcome.textContent = "";
      replace.hidden = true;
    },
    /** @param reason why there is no kernel; null if there is one */
    update(reason: string | null): void {
      opener.disabled = reason !== null;
      opener.title = reason ?? "Write the model to a file";
    },
  };
}
