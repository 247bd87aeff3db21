/** The bar at the top: name of the model, scopes of the selection, search, and tools for the whole view. */

import type { Saving, State } from "../scene/state.ts";
import { button, el, elide, fillings, onResize, type Properties, textField } from "../ui/dom.ts";
import { createMenu, item, type Menu } from "../ui/menu.ts";
import { SearchBox } from "./searchbox.ts";
import { link, type Panel, type ViewContext } from "./viewcontext.ts";

export type Toolbar = ReturnType<typeof createToolbar>;

/**
 * @param actions of the view: `leaveSearch` closes the list of hits and returns the focus to the graph
 * @param isNested the view is part of another one: it has only what fits beside the title
 */
export function createToolbar(
  view: ViewContext,
  actions: { help(): void; drawer(open: boolean): void; leaveSearch(): void },
  isNested = false,
) {
  const { columns, state, dispatch, signal } = view;
  const press = (text: string, title: string, act: () => void, properties: Properties = {}): HTMLButtonElement =>
    button(text, act, signal, { title, ...properties });
  const allOpen = (): boolean => state().open.size === columns.scopeCount;
  const fit = press("Fit", "Show the whole graph (f)", () => dispatch({ type: "fit" }));
  const toggle = (): void => dispatch({ type: "gathering", gathering: !state().gathering });
  const gather = press("⬚", "Drag to select boxes, click to add one (v); or drag with Shift", toggle, {
    "aria-pressed": "false",
    "aria-label": "Select boxes",
  });
  const flip = (): void => dispatch({ type: "direction", direction: state().direction === "down" ? "right" : "down" });
  const turn = press("→", "Draw from left to right, or from top to bottom (t)", flip, { "aria-label": "Turn" });
  const hide = press("Hide shapes", "Hide what computes with nothing but shapes", () => dispatch({ type: "plumbing" }));
  hide.hidden = !columns.nodeFlags.some((_, node) => columns.isPlumbing(node));
  const expand = press("Expand all", "Open all scopes (Shift+E), close them (Shift+C)", () =>
    dispatch({ type: allOpen() ? "collapseAll" : "expandAll" }),
  );
  expand.hidden = columns.scopeCount < 2;
  const showTree = (): void => {
    const open = tree.getAttribute("aria-pressed") !== "true";
    tree.setAttribute("aria-pressed", String(open));
    actions.drawer(open);
  };
  const tree = press("Tree", "List of all scopes, nodes and tensors", showTree, { "aria-pressed": "false" });
  const name = el("b.onnx-nb-name", { title: columns.meta.name }, elide(columns.meta.name || "model", 48));
  const help = press("?", "Keys (?)", actions.help, { "aria-label": "Help" });
  const save = createSaveMenu(view);
  const searchBox = new SearchBox(view, actions.leaveSearch);
  const [breadcrumbs, bookmarks] = [createBreadcrumbs(view), createBookmarks(view)];
  const outer = isNested ? [] : [gather, expand, turn, hide, bookmarks.element, save.element, help];
  const tools = el("div.onnx-nb-tools", fit, ...outer);
  const place = isNested ? [] : [tree, name, breadcrumbs.element];
  return {
    element: el("div.onnx-nb-bar", ...place, searchBox.element, tools),
    /** Opens or closes the menu of pictures. */
    save: save.toggle,
    focusSearch: () => searchBox.focus(),
    /** Searches for a text as if it had been typed. */
    search: (text: string) => searchBox.search(text),
    update(state: State): void {
      for (const panel of [searchBox, bookmarks, breadcrumbs]) panel.update(state);
      gather.setAttribute("aria-pressed", String(state.gathering));
      hide.setAttribute("aria-pressed", String(!state.plumbing));
      expand.textContent = allOpen() ? "Collapse all" : "Expand all";
      turn.textContent = state.direction === "down" ? "→" : "↓";
    },
  };
}

const PICTURES: readonly (readonly [what: Saving, text: string, title: string])[] = [
  ["svg", "SVG, whole graph", "Vectors: all that is open, at life size"],
  ["svg-view", "SVG, this view", "Vectors: what the view shows now"],
  ["png", "PNG, this view", "Pixels, at twice the size of the view"],
];
const PAGES: readonly (readonly [statistics: boolean, text: string, title: string])[] = [
  [false, "HTML page", "The live graph in one file that works offline"],
  [true, "HTML page with statistics", "… with statistics of all weights, and of the capture, in it"],
];

/** Creates the menu that saves the graph as a picture, or, where a kernel can write one, as a page. */
function createSaveMenu({ host, dispatch, signal }: ViewContext): Menu {
  const menu = createMenu("Save", "Save a picture or a page (s)", signal);
  const pages = host.page === undefined ? [] : PAGES;
  menu.offer([
    ...PICTURES.map(([what, text, title]) => ({ text, title, act: () => dispatch({ type: "save", what }) })),
    ...pages.map(([statistics, text, title]) => ({ text, title, act: () => dispatch({ type: "page", statistics }) })),
  ]);
  return menu;
}

/** Characters to which names are shortened, step by step, before whole scopes are omitted. */
const LENGTHS = [40, 24, 14, 9];

/** Shows the scopes around the selection, outermost first; omits the middle ones where space is short. */
function createBreadcrumbs({ columns, signal }: ViewContext): Panel {
  const element = el("nav.onnx-nb-breadcrumbs", { "aria-label": "Scope of the selection" });
  let inside: readonly number[] = [];
  let lastSelection: State["selection"] = null;

  /** Shows `left` outer and `right` inner scopes, with names of at most `limit` characters. */
  const fill = (left: number, right: number, limit: number): void => {
    const crumb = (scope: number): HTMLElement => {
      const name = columns.str(columns.scopeName[scope]) || "scope";
      return link(elide(name, limit), { kind: "scope", id: scope }, columns.str(columns.scopePath[scope]));
    };
    const hidden = inside.slice(left, inside.length - right).map((scope) => columns.str(columns.scopeName[scope]));
    const gap = hidden.length > 0 ? [el("span", { title: hidden.join(" / ").slice(0, 2000) }, "…")] : [];
    const crumbs = [...inside.slice(0, left).map(crumb), ...gap, ...inside.slice(inside.length - right).map(crumb)];
    const slash = (): HTMLElement => el("span", { "aria-hidden": "true" }, "/");
    element.replaceChildren(...crumbs.flatMap((crumb, at) => (at === 0 ? [crumb] : [slash(), crumb])));
  };
  const refit = (): void => {
    const all = inside.length;
    // both ends stay as long as possible: the nearest scopes are the most informative, then the outermost one
    for (const limit of LENGTHS) {
      for (let right = all; right > 0; right--) {
        const left = right === all ? 0 : right > 1 || limit === LENGTHS.at(-1) ? 1 : 0;
        fill(left, right, limit);
        if (element.scrollWidth <= element.clientWidth) return;
        if (right <= 2 && limit !== LENGTHS.at(-1)) break;
      }
    }
    fill(0, Math.min(1, all), LENGTHS.at(-1) ?? 14);
  };

  onResize([element], signal, refit);
  return {
    element,
    update({ selection }) {
      if (selection === lastSelection) return;
      lastSelection = selection;
      const scope = selection?.kind === "scope" ? selection.id : selection === null ? 0 : columns.scopeOf(selection);
      inside = columns.ancestry(scope).slice(1);
      refit();
    },
  };
}

/** Creates the menu of bookmarks: open scopes, selection and camera. */
function createBookmarks({ dispatch, signal }: ViewContext): Panel {
  const next = fillings(signal);
  const menu = createMenu("☆", "Bookmarks (b keeps this view)", signal, "Bookmarks");
  const focusFirst = (): void => menu.element.querySelector<HTMLElement>(".onnx-nb-menu button")?.focus();
  let lastBookmarks: State["bookmarks"] | undefined;
  const rowOf = (bookmark: State["bookmarks"][number], all: State["bookmarks"], round: AbortSignal): HTMLElement => {
    const shortName = elide(bookmark.name, 80);
    const visit = (): void => {
      menu.close();
      dispatch({ type: "visit", bookmark });
    };
    const remove = (): void => {
      dispatch({ type: "bookmarks", bookmarks: all.filter((candidate) => candidate !== bookmark) });
      focusFirst();
    };
    const edit = (): void => {
      const commit = (text: string | null): void => {
        const name = text ?? "";
        const bookmarks = all.map((candidate) => (candidate === bookmark ? { ...candidate, name } : candidate));
        if (name === "" || name === bookmark.name) go.hidden = rename.hidden = false;
        else dispatch({ type: "bookmarks", bookmarks });
        field.remove();
        focusFirst();
      };
      const field = textField(`New name of bookmark ${shortName}`, bookmark.name, commit, round, { maxlength: 80 });
      go.hidden = rename.hidden = true;
      row.prepend(field);
      field.focus();
      field.select();
    };
    const go = item(elide(bookmark.name, 40), bookmark.name, visit, round);
    const rename = item("✎", "Rename this bookmark", edit, round, { "aria-label": `Rename bookmark ${shortName}` });
    const name = { class: "onnx-nb-x", "aria-label": `Remove bookmark ${shortName}` };
    const drop = item("×", "Remove this bookmark", remove, round, name);
    const row = el("div.onnx-nb-bookmark", { role: "presentation" }, go, rename, drop);
    return row;
  };
  return {
    element: menu.element,
    update({ bookmarks }) {
      if (bookmarks === lastBookmarks) return;
      lastBookmarks = bookmarks;
      const round = next();
      const keep = item("Bookmark this view", "Key b", () => dispatch({ type: "bookmark" }), round);
      menu.fill(keep, ...bookmarks.map((bookmark) => rowOf(bookmark, bookmarks, round)));
      menu.element.querySelector("button")?.replaceChildren(bookmarks.length > 0 ? `★ ${bookmarks.length}` : "☆");
    },
  };
}
