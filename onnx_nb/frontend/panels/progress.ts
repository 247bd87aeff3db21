/** A row that says how far work is, with a way to stop it. */

import { button, el, elide } from "./dom.ts";

export interface Progress {
  readonly element: HTMLElement;
  /** @param done the part that is done, null if it is not known */
  tell(done: number | null, message: string): void;
}

export function createProgress(label: string, cancel: () => void, signal: AbortSignal): Progress {
  const told = el("span", { class: "onnx-nb-dim" });
  const bar = el("progress", { attrs: { max: 1, "aria-label": label } });
  return {
    element: el("div", { class: "onnx-nb-row onnx-nb-reading" }, told, bar, button("Cancel", cancel, signal)),
    tell(done, message) {
      told.textContent = elide(message, 160);
      if (done === null) bar.removeAttribute("value");
      else bar.value = done;
    },
  };
}
