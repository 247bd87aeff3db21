/** A button in the bar that opens a list of others below it; arrow keys move in it, Escape and leaving close it. */

import { button, el, on, type Properties } from "./dom.ts";

export interface Menu {
  readonly element: HTMLElement;
  toggle(): void;
  /** Closes it and returns the focus to its button. */
  close(): void;
  /** Replaces its content; buttons in it are its items. */
  fill(...rows: HTMLElement[]): void;
}

export function createMenu(
  text: string,
  { title, label }: { readonly title: string; readonly label: string },
  signal: AbortSignal,
): Menu {
  const opener = button(text, () => toggle(), signal, {
    title,
    "aria-haspopup": "menu",
    "aria-expanded": "false",
    ...(label !== text && { "aria-label": label }),
  });
  const list = el("div.onnx-nb-menu", { role: "menu", "aria-label": title, hidden: true });
  const element = el("div.onnx-nb-save", opener, list);
  const items = (): HTMLButtonElement[] => [...list.querySelectorAll("button")];

  const close = (back: boolean): void => {
    if (list.hidden) return;
    list.hidden = true;
    opener.setAttribute("aria-expanded", "false");
    if (back) opener.focus({ preventScroll: true });
  };
  const toggle = (): void => {
    const opens = list.hidden;
    close(true);
    if (!opens) return;
    list.hidden = false;
    list.style.right = "";
    const edge = element.closest(".onnx-nb")?.getBoundingClientRect().left ?? 0;
    const excess = edge - list.getBoundingClientRect().left; // of what the left edge of the panel would clip
    if (excess > 0) list.style.right = `${-Math.ceil(excess)}px`;
    opener.setAttribute("aria-expanded", "true");
    items()[0]?.focus({ preventScroll: true });
  };
  on(element, "keydown", signal, (event) => {
    const all = items();
    const at = all.indexOf(event.target as HTMLButtonElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" && !list.hidden) close(true);
    else if (step !== undefined && at >= 0) all[(at + step + all.length) % all.length]?.focus();
    else return;
    event.preventDefault();
  });
  on(element, "focusout", signal, (event) => {
    if (!(event.relatedTarget instanceof Node) || !element.contains(event.relatedTarget)) close(false);
  });
  return { element, toggle, close: () => close(true), fill: (...rows) => list.replaceChildren(...rows) };
}

/** Returns a button for a menu. */
export function item(
  text: string,
  title: string,
  press: () => void,
  signal: AbortSignal,
  properties: Properties = {},
): HTMLButtonElement {
  return button(text, press, signal, { title, role: "menuitem", tabindex: -1, ...properties });
}
