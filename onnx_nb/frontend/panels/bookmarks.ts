/** The menu of places to come back to: what was open, selected, and where the viewer stood. */

import type { Dispatch, State } from "../scene/state.ts";
import { el, elide, fillings, on } from "./dom.ts";
import { createMenu, item } from "./menu.ts";

export interface Bookmarks {
  readonly element: HTMLElement;
  update(state: State): void;
}

export function createBookmarks(dispatch: Dispatch, signal: AbortSignal): Bookmarks {
  const next = fillings(signal);
  const menu = createMenu("☆", { title: "Bookmarks (b keeps this view)", label: "Bookmarks" }, signal);
  let shown: State["bookmarks"] | undefined;
  return {
    element: menu.element,
    update({ bookmarks }) {
      if (bookmarks === shown) return;
      shown = bookmarks;
      const round = next();
      const keep = item("Bookmark this view", "Key b", () => dispatch({ type: "bookmark" }), round);
      const rows = bookmarks.map((bookmark) => {
        const go = item(
          elide(bookmark.name, 40),
          bookmark.name,
          () => {
            menu.close();
            dispatch({ type: "visit", bookmark });
          },
          round,
        );
        const rename = item("✎", "Rename this bookmark", () => edit(), round);
        rename.setAttribute("aria-label", `Rename bookmark ${elide(bookmark.name, 80)}`);
        const drop = item(
          "×",
          "Remove this bookmark",
          () => {
            dispatch({ type: "bookmarks", bookmarks: bookmarks.filter((each) => each !== bookmark) });
            menu.element.querySelector<HTMLElement>(".onnx-nb-menu button")?.focus();
          },
          round,
        );
        drop.setAttribute("aria-label", `Remove bookmark ${elide(bookmark.name, 80)}`);
        drop.classList.add("onnx-nb-x");
        const row = el("div.onnx-nb-bookmark", { role: "presentation" }, go, rename, drop);
        const edit = (): void => {
          const field = el("input.onnx-nb-field", {
            type: "text",
            maxlength: 80,
            "aria-label": `New name of bookmark ${elide(bookmark.name, 80)}`,
          });
          field.value = bookmark.name;
          const done = (name: string): void => {
            if (name === "" || name === bookmark.name) go.hidden = rename.hidden = false;
            else
              dispatch({
                type: "bookmarks",
                bookmarks: bookmarks.map((each) => (each === bookmark ? { ...each, name } : each)),
              });
            field.remove();
            menu.element.querySelector<HTMLElement>(".onnx-nb-menu button")?.focus();
          };
          on(field, "keydown", round, (event) => {
            if (event.key === "Enter") done(field.value.trim());
            else if (event.key === "Escape") done("");
            else return;
            event.preventDefault();
            event.stopPropagation(); // Escape would close the menu
          });
          go.hidden = rename.hidden = true;
          row.prepend(field);
          field.focus();
          field.select();
        };
        return row;
      });
      menu.fill(keep, ...rows);
      menu.element.querySelector("button")?.replaceChildren(bookmarks.length > 0 ? `★ ${bookmarks.length}` : "☆");
    },
  };
}
