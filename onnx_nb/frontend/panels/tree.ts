/**
 * The graph as a list: scopes, their nodes in file order, the tensors that each makes. It is the way through the graph
 * for a screen reader and for tests; open scopes are the same as on the canvas. Only rows near the view are in the page.
 */

import { type Columns, SCOPE_KIND, type Target } from "../protocol/columns.ts";
import { multipleText } from "../scene/labels.ts";
import { type Dispatch, type State, same, selected } from "../scene/state.ts";
import { Rows } from "../scene/treerows.ts";
import { el, elide, on, onAbort } from "./dom.ts";

export interface Tree {
  update(state: State): void;
}

const ROW = 24;
/** So few rows are all in the page. */
const FEW = 200;
/** How far the list may lag behind the picture. */
const LATER_MS = 40;
/** Rows around the view that are in the page too. */
const MORE = 30;

let trees = 0;

export function createTree(root: HTMLElement, columns: Columns, dispatch: Dispatch, signal: AbortSignal): Tree {
  const prefix = `onnx-nb-row-${trees++}-`;
  const spacer = el("div.onnx-nb-rows-all", { role: "presentation" });
  const tree = el(
    "div.onnx-nb-tree",
    { role: "tree", tabindex: 0, "aria-label": "Scopes, nodes and tensors", "aria-multiselectable": "true" },
    spacer,
  );
  root.append(tree);

  let state: State | undefined;
  /** nodes whose tensors are hidden */
  const folded = new Set<number>();
  let rows = Rows.of(columns, new Set(), folded);
  let chosen: ReadonlySet<string> = new Set();
  let active = 0;

  const fill = (): void => {
    spacer.style.height = `${rows.length * ROW}px`;
    const height = Math.max(tree.clientHeight, 10 * ROW);
    const all = rows.length <= FEW;
    const from = all ? 0 : Math.max(0, Math.floor(tree.scrollTop / ROW) - MORE);
    const to = all ? rows.length : Math.min(rows.length, Math.ceil((tree.scrollTop + height) / ROW) + MORE);
    const wanted = new Set<number>();
    for (let at = from; at < to; at++) wanted.add(at);
    if (active < rows.length) wanted.add(active); // what the keyboard stands on must exist
    spacer.replaceChildren(...[...wanted].sort((a, b) => a - b).map((at) => element(at)));
    tree.setAttribute("aria-activedescendant", rows.length > 0 ? `${prefix}${active}` : "");
  };

  const element = (at: number): HTMLElement => {
    const { target, level, expanded, position, siblings } = rows.at(at);
    const { title, sub } = words(columns, target);
    const row = el(
      "div",
      {
        class: `onnx-nb-treerow${at === active ? " onnx-nb-active" : ""}`,
        title: `${title}\n${sub}`.slice(0, 4000),
        role: "treeitem",
        id: `${prefix}${at}`,
        "aria-level": level,
        "aria-posinset": position,
        "aria-setsize": siblings,
        "aria-selected": String(chosen.has(keyOf(target))),
        style: { top: `${at * ROW}px`, "padding-inline-start": `${level * 14 - 6}px` },
      },
      el("span.onnx-nb-twist", { "aria-hidden": "true" }, expanded === null ? "" : expanded ? "–" : "+"),
      el("span", { class: `onnx-nb-tree-${target.kind}` }, elide(title, 80)),
      sub === "" ? null : el("span.onnx-nb-dim", ` ${elide(sub, 60)}`),
    );
    if (expanded !== null) row.setAttribute("aria-expanded", String(expanded));
    const name = columns.nameOf(target);
    row.dataset.row = String(at);
    row.dataset[target.kind === "node" ? "node" : target.kind === "tensor" ? "tensor" : "scope"] = name;
    return row;
  };

  const show = (at: number): void => {
    active = Math.max(0, Math.min(rows.length - 1, at));
    const top = active * ROW;
    const height = tree.clientHeight;
    if (height > 0 && (top < tree.scrollTop || top + ROW > tree.scrollTop + height)) {
      tree.scrollTop = top < tree.scrollTop ? top : top + ROW - height;
    }
    fill();
  };
  const toggle = (at: number): void => {
    const { target, expanded } = rows.at(at);
    if (target.kind === "scope") dispatch({ type: "toggle", group: target.id });
    else if (target.kind === "node" && expanded !== null) {
      if (expanded) folded.add(target.id);
      else folded.delete(target.id);
      if (state !== undefined) rows = Rows.of(columns, state.open, folded);
      fill();
    }
  };
  const activate = (at: number): void => {
    const target = rows.targetAt(at);
    active = at;
    dispatch({ type: "select", target });
    dispatch({ type: "reveal", target });
  };

  /** the selection changed here, so the keyboard stays where it is */
  let mine = false;
  const also = (at: number): void => {
    active = at;
    mine = true;
    dispatch({ type: "also", target: rows.targetAt(at) });
  };
  /** Adds all rows from the active one to this. */
  const extend = (to: number): void => {
    const at = Math.max(0, Math.min(rows.length - 1, to));
    const step = at < active ? -1 : 1;
    const between = Array.from({ length: Math.abs(at - active) + 1 }, (_, k) => rows.targetAt(active + k * step));
    mine = true;
    dispatch({ type: "selectAll", targets: between, add: true });
    show(at);
  };

  on(tree, "scroll", { signal, passive: true }, fill);
  on(tree, "click", signal, (event) => {
    const { target } = event;
    const row = target instanceof Element ? target.closest<HTMLElement>("[data-row]") : null;
    if (row === null || !(target instanceof Element)) return;
    const at = Number(row.dataset.row);
    if (target.classList.contains("onnx-nb-twist") && rows.at(at).expanded !== null) toggle(at);
    else if (event.shiftKey) extend(at);
    else if (event.ctrlKey || event.metaKey) also(at);
    else activate(at);
  });
  on(tree, "dblclick", signal, (event) => {
    const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-row]") : null;
    if (row !== null && !(event.target as Element).classList.contains("onnx-nb-twist")) toggle(Number(row.dataset.row));
  });
  on(tree, "keydown", signal, (event) => {
    if (event.altKey || rows.length === 0) return;
    const { expanded } = rows.at(active);
    const go = event.shiftKey ? extend : show;
    const choose = event.ctrlKey || event.metaKey ? also : activate;
    const keys: Record<string, () => void> = {
      ArrowDown: () => go(active + 1),
      ArrowUp: () => go(active - 1),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      Enter: () => choose(active),
      " ": () => choose(active),
      ArrowRight: () => {
        if (expanded === false) toggle(active);
        else if (expanded) show(active + 1);
      },
      ArrowLeft: () => {
        if (expanded) toggle(active);
        else show(rows.around(active));
      },
    };
    const act = keys[event.key];
    if (act === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the keys of the picture are others
    act();
  });

  let listed: State | undefined;
  let timer = 0;
  const catchUp = (): void => {
    window.clearTimeout(timer);
    timer = 0;
    if (state === undefined || state === listed) return;
    const before = listed;
    listed = state;
    const reopened = before?.open !== state.open;
    if (reopened) {
      const at = active < rows.length ? rows.targetAt(active) : undefined;
      rows = Rows.of(columns, state.open, folded);
      // the keyboard stays on the row it stood on
      if (at !== undefined) active = Math.max(0, rows.indexOf(at));
    }
    const { selection } = state;
    const reselected = !same(selection, before?.selection ?? null) || state.others !== before?.others;
    if (reselected) chosen = new Set(selected(state).map(keyOf));
    const at = reselected && selection !== null ? rows.indexOf(selection) : -1;
    if (at >= 0 && !mine) show(at);
    else if (reopened || reselected) fill();
    mine = false;
  };
  on(tree, "focus", signal, catchUp);
  onAbort(signal, () => window.clearTimeout(timer));

  return {
    update(next) {
      state = next;
      // the picture goes first
      if (timer === 0) timer = window.setTimeout(catchUp, LATER_MS);
    },
  };
}

function keyOf({ kind, id }: Target): string {
  return `${kind} ${id}`;
}

function words(columns: Columns, { kind, id }: Target): { title: string; sub: string } {
  switch (kind) {
    case "node":
      return { title: columns.opOf(id), sub: columns.nameOf({ kind, id }) };
    case "tensor":
      return { title: columns.valueNameOf(id), sub: `${columns.shapeOf(id)} ${columns.dtypeOf(id)}`.trim() };
    case "scope": {
      const owner = columns.scopeNode[id];
      const body = owner >= 0 && columns.scopeKind[id] === SCOPE_KIND.BODY;
      const name = columns.str(columns.scopeName[id]);
      const multiple = multipleText(columns, id);
      return {
        title: name || (body ? columns.opOf(owner) : "scope"),
        sub: `${columns.str(columns.scopeClass[id])} ${multiple} ${columns.scopeNodes[id]} nodes`
          .replace(/ {2,}/g, " ")
          .trim(),
      };
    }
  }
}
