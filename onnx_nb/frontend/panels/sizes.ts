/** Sizes of the inputs that the kernel makes up: a field for each size that the model leaves open. */

import { failureText, type ValueHost } from "../protocol/host.ts";
import { el, elide, settle, sizeField } from "../ui/dom.ts";

/** Maximum number of fields; more sizes can be set in Python. */
const FIELDS = 12;

export function createSizes(values: ValueHost, signal: AbortSignal): HTMLElement {
  const root = el("div.onnx-nb-row.onnx-nb-sizes", { role: "group", "aria-label": "Sizes of inputs", hidden: true });
  const note = el("p.onnx-nb-bad", { role: "alert" });
  const fail = (error: unknown): void => note.replaceChildren(elide(failureText(error), 400));
  const fill = (rows: Awaited<ReturnType<ValueHost["sizes"]>>): void => {
    const fields = rows.slice(0, FIELDS).map(([name, size, usual]) => {
      const hints = { placeholder: usual, title: `${usual} if left empty`, value: size };
      return { name, field: sizeField(name, () => apply(), signal, hints) };
    });
    const apply = (): void => {
      const lists = fields.map(({ name, field }) => [name, numbersOf(field.value)] as const);
      const chosen = Object.fromEntries(lists.filter(([, sizes]) => sizes.length > 0));
      settle(values.sizes(chosen, signal), signal, () => note.replaceChildren(), fail);
    };
    for (const { name, field } of fields) {
      root.append(el("label", { title: name.slice(0, 4000) }, `${elide(name, 24)} = `, field));
    }
    root.hidden = fields.length === 0;
    root.append(note);
  };
  settle(values.sizes(null, signal), signal, fill, fail);
  return root;
}

/** Returns the numbers of "1×3×224×224" or "1, 3"; the kernel refuses what is none. */
function numbersOf(text: string): number[] {
  return text.trim() === "" ? [] : text.split(/[,x×]/).map((part) => Number(part.trim() || "?"));
}
