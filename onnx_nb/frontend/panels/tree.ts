/**
 * The graph as a list: scopes, their nodes in file order, and the tensors that each produces. It serves screen readers
 * and tests; the same scopes are open as on the canvas. Only rows near the view are in the page.
 */

import { type Columns, oncePerModel, SCOPE_KIND, type Target } from "../protocol/columns.ts";
import { multipleText } from "../scene/labels.ts";
import { keyOf, type State, sameTarget, selectionOf } from "../scene/state.ts";
import { el, elide, on, onAbort } from "../ui/dom.ts";
import { describe, type ViewContext } from "./viewcontext.ts";

/** Pixels of a row. */
const ROW = 24;
/** Rows up to which the whole list is in the page. */
const MAX_FULL_ROWS = 200;
/** Milliseconds that the list may lag behind the picture. */
const LATER_MS = 40;
/** Rows around the view that are also in the page. */
const SPARE_ROWS = 30;

let trees = 0;

export function createTree({ columns, state, dispatch, signal }: ViewContext) {
  const prefix = `onnx-nb-row-${trees++}-`;
  const spacer = el("div.onnx-nb-rows-all", { role: "presentation" });
  const labels = { "aria-label": "Scopes, nodes and tensors", "aria-multiselectable": true };
  const tree = el("div.onnx-nb-tree", { role: "tree", tabindex: -1, ...labels }, spacer);
  const element = el("aside.onnx-nb-drawer.onnx-nb-hiddenish", { "aria-label": "Tree" }, tree);
  /** nodes whose tensors are hidden */
  const foldedNodes = new Set<number>();
  /** the state that the list shows */
  let listedState: State | null = null;
  let rows = TreeRows.EMPTY;
  let selection: ReadonlySet<string> = new Set();
  /** the active row */
  let active = 0;
  /** the selection was changed here, so the active row stays */
  let isOwnChange = false;
  let timer = 0;
  onAbort(signal, () => window.clearTimeout(timer));

  // the picture has priority
  const update = (): void => {
    if (timer === 0) timer = window.setTimeout(catchUp, LATER_MS);
  };
  const catchUp = (): void => {
    window.clearTimeout(timer);
    timer = 0;
    const [now, before] = [state(), listedState];
    if (now === before) return;
    listedState = now;
    const hasNewScopes = before?.open !== now.open;
    if (hasNewScopes) {
      const target = rows.length > 0 ? rows.at(active).target : null;
      rows = TreeRows.of(columns, now.open, foldedNodes);
      active = Math.max(0, rows.indexOf(target)); // the active row stays the same
    }
    const hasNewSelection = !sameTarget(now.selection, before?.selection ?? null) || now.others !== before?.others;
    if (hasNewSelection) selection = new Set(selectionOf(now).map(keyOf));
    const at = hasNewSelection ? rows.indexOf(now.selection) : -1;
    if (at >= 0 && !isOwnChange) show(at);
    else if (hasNewScopes || hasNewSelection) fill();
    isOwnChange = false;
  };

  // ---------------------------------------------------------------- drawing

  const fill = (): void => {
    const count = rows.length;
    spacer.style.height = `${count * ROW}px`;
    const height = Math.max(tree.clientHeight, 10 * ROW);
    const all = count <= MAX_FULL_ROWS;
    const from = all ? 0 : Math.max(0, Math.floor(tree.scrollTop / ROW) - SPARE_ROWS);
    const to = all ? count : Math.min(count, Math.ceil((tree.scrollTop + height) / ROW) + SPARE_ROWS);
    const rowsInView = new Set<number>();
    for (let at = from; at < to; at++) rowsInView.add(at);
    if (active < count) rowsInView.add(active); // the active row must exist
    spacer.replaceChildren(...[...rowsInView].sort((a, b) => a - b).map(rowOf));
    tree.setAttribute("aria-activedescendant", count > 0 ? `${prefix}${active}` : "");
  };
  const rowOf = (at: number): HTMLElement => {
    const { target, level, expanded, position, siblings } = rows.at(at);
    const { title, sub } = words(columns, target);
    return el(
      `div.onnx-nb-treerow${at === active ? ".onnx-nb-active" : ""}`,
      {
        title: `${title}\n${sub}`.slice(0, 4000),
        role: "treeitem",
        id: `${prefix}${at}`,
        "aria-level": level,
        "aria-posinset": position,
        "aria-setsize": siblings,
        "aria-selected": selection.has(keyOf(target)),
        "aria-expanded": expanded ?? undefined,
        style: { top: `${at * ROW}px`, "padding-inline-start": `${level * 14 - 6}px` },
        data: { row: String(at), [target.kind]: columns.nameOf(target) },
      },
      el("span.onnx-nb-twist", { "aria-hidden": true }, expanded === null ? "" : expanded ? "–" : "+"),
      el(`span.onnx-nb-tree-${target.kind}`, elide(title, 80)),
      sub === "" ? null : el("span.onnx-nb-dim", ` ${elide(sub, 60)}`),
    );
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

  // ---------------------------------------------------------------- acting

  const toggle = (at: number): void => {
    const { target, expanded } = rows.at(at);
    if (target.kind === "scope") dispatch({ type: "toggle", scope: target.id });
    else if (target.kind === "node" && expanded !== null) {
      if (expanded) foldedNodes.add(target.id);
      else foldedNodes.delete(target.id);
      rows = TreeRows.of(columns, state().open, foldedNodes);
      fill();
    }
  };
  const activate = (at: number): void => {
    const { target } = rows.at(at);
    active = at;
    dispatch({ type: "select", target });
    dispatch({ type: "reveal", target });
  };
  /** Adds a row to the selection, or removes it. */
  const toggleSelection = (at: number): void => {
    active = at;
    isOwnChange = true;
    dispatch({ type: "also", target: rows.at(at).target });
  };
  /** Adds all rows from the active one to this one. */
  const extend = (to: number): void => {
    const at = Math.max(0, Math.min(rows.length - 1, to));
    const [from, end] = [Math.min(at, active), Math.max(at, active)];
    const targets = Array.from({ length: end - from + 1 }, (_, nth) => rows.at(from + nth).target);
    isOwnChange = true;
    dispatch({ type: "selectAll", targets: at < active ? targets.reverse() : targets, add: true });
    show(at);
  };

  /** Returns the row of an event, −1 for none, and whether the event is on its toggle. */
  const place = ({ target }: Event): readonly [at: number, twist: boolean] => {
    const row = target instanceof Element ? target.closest<HTMLElement>("[data-row]") : null;
    return [Number(row?.dataset.row ?? -1), target instanceof Element && target.classList.contains("onnx-nb-twist")];
  };
  on(tree, "focus", signal, catchUp);
  on(tree, "scroll", { signal, passive: true }, fill);
  on(tree, "click", signal, (event) => {
    const [at, twist] = place(event);
    if (at < 0) return;
    if (twist && rows.at(at).expanded !== null) toggle(at);
    else if (event.shiftKey) extend(at);
    else if (event.ctrlKey || event.metaKey) toggleSelection(at);
    else activate(at);
  });
  on(tree, "dblclick", signal, (event) => {
    const [at, twist] = place(event);
    if (at >= 0 && !twist) toggle(at);
  });
  on(tree, "keydown", signal, (event) => {
    const act = rows.length > 0 && !event.altKey ? keysOf(event)[event.key] : undefined;
    if (act === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the picture has other keys
    act();
  });
  const keysOf = ({ shiftKey, ctrlKey, metaKey }: KeyboardEvent): Readonly<Record<string, () => void>> => {
    const { expanded } = rows.at(active);
    const go = shiftKey ? extend : show;
    const choose = (): void => (ctrlKey || metaKey ? toggleSelection(active) : activate(active));
    return {
      ArrowDown: () => go(active + 1),
      ArrowUp: () => go(active - 1),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      Enter: choose,
      " ": choose,
      ArrowRight: () => {
        if (expanded === false) toggle(active);
        else if (expanded) show(active + 1);
      },
      ArrowLeft: () => (expanded ? toggle(active) : show(rows.parentOf(active))),
    };
  };
  return {
    element,
    update,
    /** Shows or hides the list; a hidden one is no tab stop, but assistive technology still reads it. */
    toggle(open: boolean): void {
      element.classList.toggle("onnx-nb-hiddenish", !open);
      tree.tabIndex = open ? 0 : -1;
      update();
    },
  };
}

function words(columns: Columns, target: Target): { title: string; sub: string } {
  if (target.kind !== "scope") return describe(columns, target);
  const { id } = target;
  const owner = columns.scopeNode[id];
  const body = owner >= 0 && columns.scopeKind[id] === SCOPE_KIND.BODY;
  const parts = [columns.str(columns.scopeClass[id]), multipleText(columns, id), `${columns.scopeNodes[id]} nodes`];
  return {
    title: columns.str(columns.scopeName[id]) || (body ? columns.opOf(owner) : "scope"),
    sub: parts.filter((part) => part !== "").join(" "),
  };
}

// ---------------------------------------------------------------- rows

interface TreeRow {
  readonly target: Target;
  readonly level: number;
  /** null for a leaf */
  readonly expanded: boolean | null;
  /** position among its siblings, from 1 */
  readonly position: number;
  readonly siblings: number;
}

const KINDS = ["node", "tensor", "scope"] as const;
const [NODE, TENSOR, SCOPE] = [0, 1, 2];
const [CLOSED, EXPANDED] = [3, 6];
/** Numbers of a row. */
const STRIDE = 5;

/** The rows of the list, five numbers each: an object for each of 100,000 would take megabytes. */
export class TreeRows {
  readonly length: number;
  /** kind + 3 × (0 for a leaf, 1 closed, 2 expanded), id, level, position, siblings */
  readonly #cells: Int32Array;

  private constructor(cells: Int32Array) {
    this.#cells = cells;
    this.length = cells.length / STRIDE;
  }

  static readonly EMPTY = new TreeRows(new Int32Array(0));

  /** @param foldedNodes nodes whose tensors are hidden */
  static of(columns: Columns, open: ReadonlySet<number>, foldedNodes: ReadonlySet<number>): TreeRows {
    const cells: number[] = [];
    const first = firstNodesOf(columns);
    const fileOrder = (item: number): number => (item < 0 ? first[~item] : item);
    const add = (kind: number, id: number, level: number, position: number, siblings: number): void => {
      cells.push(kind, id, level, position, siblings);
    };
    const addScope = (scope: number, level: number): void => {
      // scopes as ~id; the sort is stable: a scope comes before its first node
      const inside = Array.from(columns.childrenOf(scope), (id) => ~id);
      for (const id of columns.membersOf(scope)) if (!columns.isFolded(id) && columns.nodeBody[id] < 0) inside.push(id);
      inside.sort((a, b) => fileOrder(a) - fileOrder(b));
      const inputs = scope === 0 ? columns.graphInputs : [];
      const count = inputs.length + inside.length;
      let position = 0;
      for (const id of inputs) add(TENSOR, id, level, ++position, count);
      for (const item of inside) {
        if (item < 0) {
          add(SCOPE + (open.has(~item) ? EXPANDED : CLOSED), ~item, level, ++position, count);
          if (open.has(~item)) addScope(~item, level + 1);
          continue;
        }
        const outputs: number[] = [];
        for (let k = columns.outPtr[item]; k < columns.outPtr[item + 1]; k++) {
          const value = columns.outValue[k];
          if (value >= 0 && columns.valueName[value] !== 0) outputs.push(value); // the empty name is string 0
        }
        const state = outputs.length === 0 ? 0 : foldedNodes.has(item) ? CLOSED : EXPANDED;
        add(NODE + state, item, level, ++position, count);
        if (state !== EXPANDED) continue;
        for (let nth = 0; nth < outputs.length; nth++) add(TENSOR, outputs[nth], level + 1, nth + 1, outputs.length);
      }
    };
    if (columns.scopeCount > 0) addScope(0, 1);
    return new TreeRows(Int32Array.from(cells));
  }

  at(row: number): TreeRow {
    const [kind, id, level, position, siblings] = this.#cells.subarray(row * STRIDE);
    const expanded = kind < CLOSED ? null : kind >= EXPANDED;
    return { target: { kind: KINDS[kind % CLOSED], id }, level, expanded, position, siblings };
  }

  /** Returns the row of a target, −1 for none. */
  indexOf(target: Target | null): number {
    if (target === null) return -1;
    const [cells, kind] = [this.#cells, KINDS.indexOf(target.kind)];
    for (let row = 0; row < this.length; row++) {
      if (cells[row * STRIDE + 1] === target.id && cells[row * STRIDE] % CLOSED === kind) return row;
    }
    return -1;
  }

  /** Returns the parent of a row, −1 at the top. */
  parentOf(row: number): number {
    const level = this.#cells[row * STRIDE + 2];
    let above = row - 1;
    while (above >= 0 && this.#cells[above * STRIDE + 2] >= level) above--;
    return above;
  }
}

/** Returns scope → its first node in file order, which determines its position among its siblings. */
const firstNodesOf = oncePerModel((columns): Int32Array => {
  const first = new Int32Array(columns.scopeCount).fill(0x7fffffff);
  for (let node = columns.nodeCount - 1; node >= 0; node--) first[columns.nodeScope[node]] = node;
  for (let scope = columns.scopeCount - 1; scope > 0; scope--) {
    if (columns.scopeNode[scope] >= 0) first[scope] = Math.min(first[scope], columns.scopeNode[scope]);
    const parent = columns.scopeParent[scope];
    first[parent] = Math.min(first[parent], first[scope]);
  }
  return first;
});
