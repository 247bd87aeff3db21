/**
 * Menus: below a button of the bar, or at a point of the window. Arrow keys move in them, Escape and leaving close
 * them.
 */

import { button, el, on, type Properties, textField } from "./dom.ts";

export type Menu = ReturnType<typeof createMenu>;

export function createMenu(text: string, title: string, signal: AbortSignal, label = text) {
  const opener = button(text, () => toggle(), signal, {
    title,
    "aria-haspopup": "menu",
    "aria-expanded": "false",
    ...(label !== text && { "aria-label": label }),
  });
  const list = el("div.onnx-nb-menu", { role: "menu", "aria-label": title, hidden: true });
  const element = el("div.onnx-nb-save", opener, list);

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
    itemsOf(list)[0]?.focus({ preventScroll: true });
  };
  listenItems(element, list, close, signal);
  const press = ({ act }: Entry): void => {
    close(true);
    act("");
  };
  return {
    element,
    toggle,
    /** Closes it and returns the focus to its button. */
    close: () => close(true),
    /** Replaces its content; buttons in it are its items. */
    fill: (...rows: HTMLElement[]) => list.replaceChildren(...rows),
    /** Replaces its content by an item for each entry, which closes it. */
    offer: (entries: readonly Entry[]) =>
      list.replaceChildren(...entries.map((entry) => item(entry.text, entry.title, () => press(entry), signal))),
  };
}

const itemsOf = (list: HTMLElement): HTMLButtonElement[] => [...list.querySelectorAll("button")];

/** @param close closes the open menu, and returns the focus if asked */
function listenItems(element: HTMLElement, list: HTMLElement, close: (back: boolean) => void, signal: AbortSignal) {
  on(element, "keydown", signal, (event) => {
    const all = itemsOf(list);
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
}

/** Returns a button for a menu. */
export function item(text: string, title: string, press: () => void, signal: AbortSignal, properties: Properties = {}) {
  return button(text, press, signal, { title, role: "menuitem", tabindex: -1, ...properties });
}

/** An entry of a menu: it acts at once, or asks for a text first. */
export interface Entry {
  readonly text: string;
  readonly title: string;
  /** label, first value and example of the text */
  readonly field?: { readonly label: string; readonly value: string; readonly hint?: string };
  act(text: string): void;
}

/** A point of the window. */
export interface Place {
  readonly x: number;
  readonly y: number;
}

/** Pixels between a menu and the edge of the window. */
const GAP = 4;

/**
 * Opens a menu at a point of the window, in the layer above the page, where no cell clips it. A single entry with a
 * field shows the field at once.
 *
 * @param home returns the focus
 */
export function openMenu(
  root: HTMLElement,
  label: string,
  at: Place,
  entries: readonly Entry[],
  home: () => void,
  signal: AbortSignal,
): void {
  const list = el("div.onnx-nb-menu.onnx-nb-popup", { popover: "manual", tabindex: -1, "aria-label": label });
  let isOpen = true;
  const close = (back: boolean): void => {
    if (!isOpen) return;
    isOpen = false; // removing it takes the focus out of it
    list.remove();
    if (back) home();
  };
  const fill = (role: "menu" | "dialog", content: readonly HTMLElement[], first: HTMLElement | undefined): void => {
    list.setAttribute("role", role);
    list.focus({ preventScroll: true }); // or the focus would leave the menu with its items
    list.replaceChildren(...content);
    const { width, height } = list.getBoundingClientRect();
    const [right, bottom] = [window.innerWidth - width - GAP, window.innerHeight - height - GAP];
    list.style.left = `${Math.max(GAP, Math.min(at.x, right))}px`;
    list.style.top = `${Math.max(GAP, Math.min(at.y, bottom))}px`;
    first?.focus({ preventScroll: true });
  };
  const ask = (entry: Entry): void => {
    const { label: name, value, hint = "" } = entry.field ?? { label: "", value: "" };
    const enter = (text: string | null): void => {
      close(true);
      if (text !== null && text !== "" && text !== value) entry.act(text);
    };
    const field = textField(name, value, enter, signal, { placeholder: hint, title: entry.title });
    field.size = Math.min(48, value.length + 12);
    fill("dialog", [field, el("span.onnx-nb-dim", entry.title)], field);
    field.select();
  };
  const press = (entry: Entry): void => {
    if (entry.field !== undefined) {
      ask(entry);
      return;
    }
    close(true);
    entry.act("");
  };
  listenItems(list, list, close, signal);
  on(list, "keydown", signal, (event) => {
    event.stopPropagation(); // no key is a command to the graph or the notebook
    if (event.key === "Tab") close(true);
  });
  on(list, "contextmenu", signal, (event) => {
    if (event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    event.stopPropagation();
  });
  signal.addEventListener("abort", () => close(false), { once: true });
  root.append(list);
  list.showPopover?.(); // a browser of 2023 has no such layer
  const [first] = entries;
  if (first === undefined) close(false);
  else if (entries.length === 1 && first.field !== undefined) ask(first);
  else {
    const items = entries.map((entry) => item(entry.text, entry.title, () => press(entry), signal));
    fill("menu", items, items[0]);
  }
}
