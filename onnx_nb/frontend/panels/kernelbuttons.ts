/** Buttons for what only the kernel can do: they cannot be pressed while it works or does not answer. */

import { button, onAbort, type Properties } from "./dom.ts";

export class KernelButtons {
  readonly #buttons = new Map<HTMLButtonElement, string>();
  #disabled = false;
  /** why there is no kernel; null if there is one */
  #reason: string | null = null;

  /** Returns a button; `hint` is its tooltip while the kernel answers. */
  create(
    text: string,
    press: () => void,
    signal: AbortSignal,
    { hint = "", ...properties }: Properties & { readonly hint?: string },
  ): HTMLButtonElement {
    const element = button(text, press, signal, properties);
    this.#buttons.set(element, hint);
    onAbort(signal, () => this.#buttons.delete(element));
    this.#apply(element, hint);
    return element;
  }

  /** @param reason why there is no kernel; null if there is one */
  update(busy: boolean, reason: string | null): void {
    this.#disabled = busy || reason !== null;
    this.#reason = reason;
    this.refresh();
  }

  /** Enables or disables all buttons again, whatever was done to them. */
  refresh(): void {
    for (const [element, hint] of this.#buttons) this.#apply(element, hint);
  }

  #apply(element: HTMLButtonElement, hint: string): void {
    element.disabled = this.#disabled;
    element.title = this.#reason ?? hint;
  }
}
