/** The bar on top: name of the model, scopes of the selection, search, and tools for the whole view. */

import type { Columns } from "../protocol/columns.ts";
import type { GraphHost } from "../protocol/host.ts";
import type { Dispatch, State } from "../scene/state.ts";
import { createBookmarks } from "./bookmarks.ts";
import { createBreadcrumbs } from "./breadcrumbs.ts";
import { createColors } from "./colormenu.ts";
import { button, el, elide } from "./dom.ts";
import { createSaveMenu } from "./save.ts";
import { SearchBox } from "./searchbox.ts";

export interface ToolbarActions {
  help(): void;
  drawer(open: boolean): void;
  /** closes the list of hits and gives the keyboard back to the graph */
  leaveSearch(): void;
}

export interface Toolbar {
  update(state: State): void;
  focusSearch(): void;
  /** finds what a text means, as if it had been typed */
  search(text: string): void;
  /** opens or closes the menu of pictures */
  save(): void;
}

export function createToolbar(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  dispatch: Dispatch,
  actions: ToolbarActions,
  signal: AbortSignal,
): Toolbar {
  const name = el("b.onnx-nb-name", { title: columns.meta.name }, elide(columns.meta.name || "model", 48));
  const breadcrumbs = createBreadcrumbs(columns, signal);

  const searchBox = new SearchBox(columns, dispatch, actions.leaveSearch, signal);

  const fit = button("Fit", () => dispatch({ type: "fit" }), signal, { title: "Show the whole graph (f)" });
  const gather = button(
    "Select",
    () => dispatch({ type: "gathering", gathering: gather.getAttribute("aria-pressed") !== "true" }),
    signal,
    { title: "Drag to select boxes, click to add one (v); or drag with Shift", "aria-pressed": "false" },
  );
  const turn = button(
    "Across",
    () => dispatch({ type: "direction", direction: shownDirection === "down" ? "right" : "down" }),
    signal,
    { title: "Draw from left to right, or from top to bottom (t)" },
  );
  let shownDirection: State["direction"] = "down";
  let allOpen = false;
  const expand = button("Expand all", () => dispatch({ type: allOpen ? "collapseAll" : "expandAll" }), signal, {
    title: "Open all scopes (Shift+E), close them (Shift+C)",
  });
  expand.hidden = columns.scopeCount < 2;
  const tree = button(
    "Tree",
    () => {
      const open = tree.getAttribute("aria-pressed") !== "true";
      tree.setAttribute("aria-pressed", String(open));
      actions.drawer(open);
    },
    signal,
    { title: "List of all scopes, nodes and tensors", "aria-pressed": "false" },
  );
  const help = button("?", actions.help, signal, { title: "Keys (?)", "aria-label": "Help" });
  const color = createColors(dispatch, signal, host.baked?.colors);
  color.element.hidden = host.overlay === undefined;
  const save = createSaveMenu(host.page !== undefined, dispatch, signal);
  const bookmarks = createBookmarks(dispatch, signal);
  const tools = el("div.onnx-nb-tools", fit, gather, expand, turn, color.element);
  tools.append(bookmarks.element, save.element, help);
  root.append(tree, name, breadcrumbs.element, searchBox.element, tools);

  let shown: State = { ...EMPTY };
  return {
    save: save.toggle,
    focusSearch: () => searchBox.focus(),
    search: (text) => searchBox.search(text),
    update(state) {
      const before = shown;
      shown = state;
      searchBox.update(state);
      color.update(state);
      bookmarks.update(state);
      gather.setAttribute("aria-pressed", String(state.gathering));
      shownDirection = state.direction;
      allOpen = state.open.size === columns.scopeCount;
      expand.textContent = allOpen ? "Collapse all" : "Expand all";
      turn.textContent = state.direction === "down" ? "Across" : "Down";
      if (state.selection !== before.selection) breadcrumbs.update(state.selection);
    },
  };
}

const EMPTY = { selection: null } as unknown as State;
