/** The bar on top: name of the model, where the selection lies, search, and what concerns the whole view. */

import type { Columns, Target } from "../model/columns.ts";
import { MOST_HITS, search } from "../scene/search.ts";
import type { Dispatch, State } from "../scene/state.ts";
import { createColours } from "./colours.ts";
import { button, el, elide, focused, plain } from "./dom.ts";
import { describe, link } from "./link.ts";
import { createSaveMenu } from "./save.ts";

export interface ToolbarActions {
  help(): void;
  drawer(open: boolean): void;
  /** closes the list of hits and gives the keyboard back to the graph */
  leaveSearch(): void;
}

export interface Toolbar {
  update(state: State): void;
  focusSearch(): void;
  /** opens or closes the menu of pictures */
  save(): void;
}

const LISTED = 100;

export function createToolbar(
  root: HTMLElement,
  columns: Columns,
  colours: boolean,
  dispatch: Dispatch,
  actions: ToolbarActions,
  signal: AbortSignal,
): Toolbar {
  const name = el("b", { class: "onnx-nb-name", title: columns.meta.name }, elide(columns.meta.name || "model", 48));
  const crumbs = el("nav", { class: "onnx-nb-crumbs", attrs: { "aria-label": "Scope of the selection" } });

  const input = el("input", {
    class: "onnx-nb-field",
    attrs: {
      type: "search",
      placeholder: "Search ops, tensors, scopes",
      "aria-label": "Search",
      spellcheck: "false",
      autocomplete: "off",
    },
  });
  const count = el("span", { class: "onnx-nb-count onnx-nb-dim", attrs: { "aria-live": "polite" } });
  const list = el("div", { class: "onnx-nb-hits", attrs: { role: "listbox", "aria-label": "Search results" } });
  list.hidden = true;
  const box = el("div", { class: "onnx-nb-search", attrs: { role: "search" } }, input, count, list);

  const fit = button("Fit", () => dispatch({ type: "fit" }), signal, { title: "Show the whole graph (f)" });
  const tree = button(
    "Tree",
    () => {
      const open = tree.getAttribute("aria-pressed") !== "true";
      tree.setAttribute("aria-pressed", String(open));
      actions.drawer(open);
    },
    signal,
    { title: "List of all scopes, nodes and tensors", attrs: { "aria-pressed": "false" } },
  );
  const help = button("?", actions.help, signal, { title: "Keys (?)", attrs: { "aria-label": "Help" } });
  const colour = createColours(dispatch, signal);
  colour.element.hidden = !colours;
  const save = createSaveMenu(dispatch, signal);
  root.append(tree, name, crumbs, box, fit, colour.element, save.element, help);

  let timer = 0;
  const seek = (): void => {
    window.clearTimeout(timer);
    const text = input.value;
    dispatch({ type: "search", text, hits: search(columns, text).hits });
  };
  input.addEventListener(
    "input",
    () => {
      window.clearTimeout(timer);
      timer = window.setTimeout(seek, columns.nodeCount > 20_000 ? 180 : 60);
    },
    { signal },
  );
  input.addEventListener(
    "keydown",
    (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        if (input.value !== shown.search) {
          seek();
          step(0);
        } else step(event.shiftKey ? -1 : visited ? 1 : 0);
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        step(event.key === "ArrowDown" ? (visited ? 1 : 0) : -1);
      } else if (event.key === "Escape") {
        event.preventDefault();
        input.value = "";
        dispatch({ type: "search", text: "", hits: [] });
        actions.leaveSearch();
      }
    },
    { signal },
  );
  input.addEventListener("focus", () => show(shown), { signal });
  box.addEventListener(
    "focusout",
    (event) => {
      if (!(event.relatedTarget instanceof Node) || !box.contains(event.relatedTarget)) list.hidden = true;
    },
    { signal },
  );

  let shown: State = { ...EMPTY };
  let visited = false;

  const step = (by: number): void => {
    const { hits, hit } = shown;
    if (hits.length === 0) return;
    go((hit + by + hits.length) % hits.length);
  };
  const go = (hit: number): void => {
    visited = true;
    const target = shown.hits[hit];
    dispatch({ type: "hit", hit });
    dispatch({ type: "select", target });
    dispatch({ type: "reveal", target });
  };
  list.addEventListener("pointerdown", (event) => event.preventDefault(), { signal }); // keeps the focus in the field
  list.addEventListener(
    "click",
    (event) => {
      const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-hit]") : null;
      if (row !== null) go(Number(row.dataset.hit));
    },
    { signal },
  );

  const show = (state: State): void => {
    const { hits, hit, search: text } = state;
    const none = text.trim() === "";
    const total = hits.length >= MOST_HITS ? `${plain(MOST_HITS)}+` : plain(hits.length);
    count.textContent = none ? "" : hits.length === 0 ? "nothing found" : `${hit + 1} of ${total}`;
    list.replaceChildren();
    list.hidden = none || hits.length === 0 || !focused(input);
    if (list.hidden) return;
    const first = Math.max(0, Math.min(hit - LISTED / 2, hits.length - LISTED));
    for (let at = first; at < Math.min(hits.length, first + LISTED); at++) {
      const { title, sub, kind } = describe(columns, hits[at]);
      list.append(
        el(
          "div",
          {
            class: "onnx-nb-hit",
            data: { hit: String(at) },
            attrs: { role: "option", "aria-selected": String(at === hit) },
            title: `${title}\n${sub}`,
          },
          el("span", { class: "onnx-nb-kind" }, kind),
          el("span", { class: "onnx-nb-hit-title" }, elide(title, 48)),
          el("span", { class: "onnx-nb-dim" }, elide(sub, 40)),
        ),
      );
    }
    list.querySelector("[aria-selected=true]")?.scrollIntoView?.({ block: "nearest" });
  };

  return {
    save: save.toggle,
    focusSearch() {
      input.focus();
      input.select();
    },
    update(state) {
      const before = shown;
      shown = state;
      if (state.hits !== before.hits || state.hit !== before.hit || state.search !== before.search) {
        if (state.search !== before.search) visited = false;
        if (!focused(input) && input.value !== state.search) input.value = state.search;
        show(state);
      }
      colour.update(state);
      if (state.selection !== before.selection) breadcrumbs(crumbs, columns, state.selection);
    },
  };
}

const EMPTY = { hits: [], hit: -1, search: "", selection: null } as unknown as State;

function breadcrumbs(root: HTMLElement, columns: Columns, selection: Target | null): void {
  root.replaceChildren();
  if (selection === null) return;
  const inside = columns.ancestry(selection.kind === "group" ? selection.id : columns.groupOf(selection)).slice(1);
  // the nearest scopes say most: of a deep path the first and the last three stay
  const kept = inside.length > 4 ? [inside[0], -1, ...inside.slice(-3)] : inside;
  for (const group of kept) {
    if (root.childElementCount > 0) root.append(el("span", { attrs: { "aria-hidden": "true" } }, "/"));
    if (group < 0) root.append(el("span", {}, "…"));
    else {
      const text = columns.str(columns.groupName[group]) || "scope";
      root.append(link(elide(text, 28), { kind: "group", id: group }, columns.str(columns.groupPath[group])));
    }
  }
}
