/** The bar at the top: name of the model, scopes of the selection, search, and tools for the whole view. */

import type { Colors } from "../protocol/host.ts";
import type { Saving, State } from "../scene/state.ts";
import { button, el, elide, fillings, on, onAbort, type Properties } from "./dom.ts";
import { createMenu, item, type Menu } from "./menu.ts";
import { SearchBox } from "./searchbox.ts";
import { link, type Panel, type ViewContext } from "./viewcontext.ts";

export type Toolbar = ReturnType<typeof createToolbar>;

/** @param actions of the view: `leaveSearch` closes the list of hits and returns the focus to the graph */
export function createToolbar(
  view: ViewContext,
  actions: { help(): void; drawer(open: boolean): void; leaveSearch(): void },
) {
  const { columns, host, state, dispatch, signal } = view;
  const press = (text: string, title: string, act: () => void, more: Properties = {}): HTMLButtonElement =>
    button(text, act, signal, { title, ...more });
  const unpressed = { "aria-pressed": "false" };
  const allOpen = (): boolean => state().open.size === columns.scopeCount;
  const fit = press("Fit", "Show the whole graph (f)", () => dispatch({ type: "fit" }));
  const gather = press(
    "Select",
    "Drag to select boxes, click to add one (v); or drag with Shift",
    () => dispatch({ type: "gathering", gathering: !state().gathering }),
    unpressed,
  );
  const turn = press("Across", "Draw from left to right, or from top to bottom (t)", () =>
    dispatch({ type: "direction", direction: state().direction === "down" ? "right" : "down" }),
  );
  const expand = press("Expand all", "Open all scopes (Shift+E), close them (Shift+C)", () =>
    dispatch({ type: allOpen() ? "collapseAll" : "expandAll" }),
  );
  expand.hidden = columns.scopeCount < 2;
  const showTree = (): void => {
    const open = tree.getAttribute("aria-pressed") !== "true";
    tree.setAttribute("aria-pressed", String(open));
    actions.drawer(open);
  };
  const tree = press("Tree", "List of all scopes, nodes and tensors", showTree, unpressed);
  const name = el("b.onnx-nb-name", { title: columns.meta.name }, elide(columns.meta.name || "model", 48));
  const help = press("?", "Keys (?)", actions.help, { "aria-label": "Help" });
  const save = createSaveMenu(view);
  const searchBox = new SearchBox(view, actions.leaveSearch);
  const [breadcrumbs, bookmarks, color] = [createBreadcrumbs(view), createBookmarks(view), createColors(view)];
  color.element.hidden = host.overlay === undefined;
  const tools = el(
    "div.onnx-nb-tools",
    fit,
    gather,
    expand,
    turn,
    color.element,
    bookmarks.element,
    save.element,
    help,
  );
  return {
    element: el("header.onnx-nb-bar", tree, name, breadcrumbs.element, searchBox.element, tools),
    /** Opens or closes the menu of pictures. */
    save: save.toggle,
    focusSearch: () => searchBox.focus(),
    /** Searches for a text as if it had been typed. */
    search: (text: string) => searchBox.search(text),
    update(state: State): void {
      for (const panel of [searchBox, color, bookmarks, breadcrumbs]) panel.update(state);
      gather.setAttribute("aria-pressed", String(state.gathering));
      expand.textContent = allOpen() ? "Collapse all" : "Expand all";
      turn.textContent = state.direction === "down" ? "Across" : "Down";
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
  const menu = createMenu("Save", { title: "Save a picture or a page (s)", label: "Save" }, signal);
  const entry = (text: string, title: string, action: Parameters<typeof dispatch>[0]): HTMLElement => {
    const press = (): void => {
      menu.close();
      dispatch(action);
    };
    return item(text, title, press, signal);
  };
  const pages = host.page === undefined ? [] : PAGES;
  menu.fill(
    ...PICTURES.map(([what, text, title]) => entry(text, title, { type: "save", what })),
    ...pages.map(([statistics, text, title]) => entry(text, title, { type: "page", statistics })),
  );
  return menu;
}

/** Characters to which names are shortened, step by step, before whole scopes are omitted. */
const LENGTHS = [40, 24, 14, 9];

/** Shows the scopes around the selection, outermost first. If they do not fit, those in the middle are omitted. */
function createBreadcrumbs({ columns, signal }: ViewContext): Panel {
  const element = el("nav.onnx-nb-breadcrumbs", { "aria-label": "Scope of the selection" });
  let inside: readonly number[] = [];
  let shown: State["selection"] = null;

  /** Shows `left` scopes from the outside and `right` from the inside, in names of at most `most` characters. */
  const fill = (left: number, right: number, most: number): void => {
    const crumb = (scope: number): HTMLElement => {
      const name = columns.str(columns.scopeName[scope]) || "scope";
      return link(elide(name, most), { kind: "scope", id: scope }, columns.str(columns.scopePath[scope]));
    };
    const hidden = inside.slice(left, inside.length - right).map((scope) => columns.str(columns.scopeName[scope]));
    const gap = hidden.length > 0 ? [el("span", { title: hidden.join(" / ").slice(0, 2000) }, "…")] : [];
    const shown = [...inside.slice(0, left).map(crumb), ...gap, ...inside.slice(inside.length - right).map(crumb)];
    const slash = (): HTMLElement => el("span", { "aria-hidden": "true" }, "/");
    element.replaceChildren(...shown.flatMap((each, at) => (at === 0 ? [each] : [slash(), each])));
  };
  const refit = (): void => {
    const all = inside.length;
    // both ends stay as long as possible: the nearest scopes are the most informative, then the outermost one
    for (const most of LENGTHS) {
      for (let right = all; right > 0; right--) {
        const left = right === all ? 0 : right > 1 || most === LENGTHS.at(-1) ? 1 : 0;
        fill(left, right, most);
        if (element.scrollWidth <= element.clientWidth) return;
        if (right <= 2 && most !== LENGTHS.at(-1)) break;
      }
    }
    fill(0, Math.min(1, all), LENGTHS.at(-1) ?? 14);
  };

  const observer = new ResizeObserver(refit);
  observer.observe(element);
  onAbort(signal, () => observer.disconnect());
  return {
    element,
    update({ selection }) {
      if (selection === shown) return;
      shown = selection;
      const scope = selection?.kind === "scope" ? selection.id : selection === null ? 0 : columns.scopeOf(selection);
      inside = columns.ancestry(scope).slice(1);
      refit();
    },
  };
}

/** Creates the menu of bookmarks: open scopes, selection and camera. */
function createBookmarks({ dispatch, signal }: ViewContext): Panel {
  const next = fillings(signal);
  const menu = createMenu("☆", { title: "Bookmarks (b keeps this view)", label: "Bookmarks" }, signal);
  const focusFirst = (): void => menu.element.querySelector<HTMLElement>(".onnx-nb-menu button")?.focus();
  let shown: State["bookmarks"] | undefined;
  const rowOf = (bookmark: State["bookmarks"][number], all: State["bookmarks"], round: AbortSignal): HTMLElement => {
    const short = elide(bookmark.name, 80);
    const visit = (): void => {
      menu.close();
      dispatch({ type: "visit", bookmark });
    };
    const remove = (): void => {
      dispatch({ type: "bookmarks", bookmarks: all.filter((each) => each !== bookmark) });
      focusFirst();
    };
    const edit = (): void => {
      const attributes = { type: "text", maxlength: 80, "aria-label": `New name of bookmark ${short}` };
      const field = el("input.onnx-nb-field", { ...attributes, value: bookmark.name });
      const done = (name: string): void => {
        if (name === "" || name === bookmark.name) go.hidden = rename.hidden = false;
        else {
          const bookmarks = all.map((each) => (each === bookmark ? { ...each, name } : each));
          dispatch({ type: "bookmarks", bookmarks });
        }
        field.remove();
        focusFirst();
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
    const go = item(elide(bookmark.name, 40), bookmark.name, visit, round);
    const rename = item("✎", "Rename this bookmark", edit, round, { "aria-label": `Rename bookmark ${short}` });
    const drop = item("×", "Remove this bookmark", remove, round, {
      class: "onnx-nb-x",
      "aria-label": `Remove bookmark ${short}`,
    });
    const row = el("div.onnx-nb-bookmark", { role: "presentation" }, go, rename, drop);
    return row;
  };
  return {
    element: menu.element,
    update({ bookmarks }) {
      if (bookmarks === shown) return;
      shown = bookmarks;
      const round = next();
      const keep = item("Bookmark this view", "Key b", () => dispatch({ type: "bookmark" }), round);
      menu.fill(keep, ...bookmarks.map((bookmark) => rowOf(bookmark, bookmarks, round)));
      menu.element.querySelector("button")?.replaceChildren(bookmarks.length > 0 ? `★ ${bookmarks.length}` : "☆");
    },
  };
}

const CATEGORY = "category";
/** Numbers that the kernel can compute for every model; `analysis/view/overlays.py` uses these names. */
const OWN = ["parameters", "weight bytes", "MACs", "activation bytes"];
/** Numbers that it has once the whole model has been captured. */
const CAPTURED = ["seconds", "bytes", "std", "min", "max", "mean", "zeros", "nonfinite"];

/** Creates the menu of colors: categories of ops, or numbers of the kernel or of the page. */
function createColors({ host, dispatch, signal }: ViewContext): Panel {
  const offered = host.baked?.colors;
  const listed: Colors = offered ?? { own: OWN, captured: CAPTURED };
  const option = (name: string): HTMLElement => el("option", { value: name }, name);
  const given = el("option", { value: "", hidden: true });
  const select = el(
    "select.onnx-nb-field.onnx-nb-colors",
    { title: "What the boxes are colored by", "aria-label": "Color" },
    ...[CATEGORY, ...listed.own].map(option),
    given,
  );
  let captured = false;
  /** the choice that has not been applied yet */
  let asked: string | null = null;
  let shown: Pick<State, "overlay" | "error"> | null = null;
  on(select, "change", signal, () => {
    asked = null;
    if (select.value === CATEGORY) dispatch({ type: "overlay", overlay: null });
    else if (select.value !== "") {
      asked = select.value;
      dispatch({ type: "color", by: asked });
    }
  });
  return {
    element: el("label.onnx-nb-color", "Color ", select),
    update({ overlay, capturedAll, error }) {
      if (shown?.overlay?.data !== overlay?.data || shown?.error !== error) asked = null;
      shown = { overlay, error };
      if ((capturedAll || offered !== undefined) && !captured) {
        captured = true;
        if (listed.captured.length > 0) {
          given.before(el("optgroup", { label: "captured" }, ...listed.captured.map(option)));
        }
      }
      const names = captured ? [...listed.own, ...listed.captured] : listed.own;
      const label = overlay?.data.label;
      const own = label === undefined ? CATEGORY : names.find((name) => name === label);
      given.hidden = own !== undefined;
      if (own === undefined) given.textContent = elide(label || "value", 24);
      const wanted = asked ?? own ?? "";
      if (select.value !== wanted) select.value = wanted;
    },
  };
}
