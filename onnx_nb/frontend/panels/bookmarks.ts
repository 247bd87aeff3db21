/** The menu of places to come back to: what was open, selected, and where the viewer stood. */

import type { Dispatch, State } from "../scene/state.ts";
import { el, elide, fillings } from "./dom.ts";
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
        return el("div", { class: "onnx-nb-bookmark", attrs: { role: "presentation" } }, go, drop);
      });
      menu.fill(keep, ...rows);
      menu.element.querySelector("button")?.replaceChildren(bookmarks.length > 0 ? `★ ${bookmarks.length}` : "☆");
    },
  };
}
