/**
 * The graph as a list: scopes, their nodes in file order, and the tensors that each produces. It serves screen readers
 * and tests; the same scopes are open as on the canvas. Only rows near the view are in the page.
 */

import { type Columns, oncePerModel, SCOPE_KIND, type Target } from "../protocol/columns.ts";
import { multipleText } from "../scene/labels.ts";
import { keyOf, type State, sameTarget, selectionOf } from "../scene/state.ts";
import { el, elide, on, onAbort } from "../ui/dom.ts";
import { describe, type Panel, type ViewContext } from "./viewcontext.ts";

/** Pixels of a row. */
const ROW = 24;
/** Rows up to which the whole list is in the page. */
const MAX_FULL_ROWS = 200;
/** Milliseconds that the list may lag behind the picture. */
const LATER_MS = 40;
/** Rows around the view that are also in the page. */
const SPARE_ROWS = 30;

let trees = 0;

export class Tree implements Panel {
  readonly #view: ViewContext;
  readonly #prefix = `onnx-nb-row-${trees++}-`;
  readonly #spacer = el("div.onnx-nb-rows-all", { role: "presentation" });
  readonly #tree = el(
    "div.onnx-nb-tree",
    { role: "tree", tabindex: -1, "aria-label": "Scopes, nodes and tensors", "aria-multiselectable": true },
    this.#spacer,
  );
  readonly element = el("aside.onnx-nb-drawer.onnx-nb-hiddenish", { "aria-label": "Tree" }, this.#tree);
  /** nodes whose tensors are hidden */
  readonly #foldedNodes = new Set<number>();
  /** the state that the list shows */
  #listedState: State | null = null;
  #rows = TreeRows.EMPTY;
  #selection: ReadonlySet<string> = new Set();
  /** the active row */
  #active = 0;
  /** the selection was changed here, so the active row stays */
  #isOwnChange = false;
  #timer = 0;

  constructor(view: ViewContext) {
    this.#view = view;
    this.#listen(view.signal);
    onAbort(view.signal, () => window.clearTimeout(this.#timer));
  }

  /** Shows or hides the list; a hidden one is no tab stop, but assistive technology still reads it. */
  toggle(open: boolean): void {
    this.element.classList.toggle("onnx-nb-hiddenish", !open);
    this.#tree.tabIndex = open ? 0 : -1;
    this.update();
  }

  update(): void {
    // the picture has priority
    if (this.#timer === 0) this.#timer = window.setTimeout(() => this.#catchUp(), LATER_MS);
  }

  #catchUp(): void {
    window.clearTimeout(this.#timer);
    this.#timer = 0;
    const [state, before] = [this.#view.state(), this.#listedState];
    if (state === before) return;
    this.#listedState = state;
    const hasNewScopes = before?.open !== state.open;
    if (hasNewScopes) {
      const target = this.#rows.length > 0 ? this.#rows.at(this.#active).target : null;
      this.#rows = TreeRows.of(this.#view.columns, state.open, this.#foldedNodes);
      this.#active = Math.max(0, this.#rows.indexOf(target)); // the active row stays the same
    }
    const { selection } = state;
    const hasNewSelection = !sameTarget(selection, before?.selection ?? null) || state.others !== before?.others;
    if (hasNewSelection) this.#selection = new Set(selectionOf(state).map(keyOf));
    const at = hasNewSelection ? this.#rows.indexOf(selection) : -1;
    if (at >= 0 && !this.#isOwnChange) this.#show(at);
    else if (hasNewScopes || hasNewSelection) this.#fill();
    this.#isOwnChange = false;
  }

  // ---------------------------------------------------------------- drawing

  #fill(): void {
    const [tree, count] = [this.#tree, this.#rows.length];
    this.#spacer.style.height = `${count * ROW}px`;
    const height = Math.max(tree.clientHeight, 10 * ROW);
    const all = count <= MAX_FULL_ROWS;
    const from = all ? 0 : Math.max(0, Math.floor(tree.scrollTop / ROW) - SPARE_ROWS);
    const to = all ? count : Math.min(count, Math.ceil((tree.scrollTop + height) / ROW) + SPARE_ROWS);
    const rowsInView = new Set<number>();
    for (let at = from; at < to; at++) rowsInView.add(at);
    if (this.#active < count) rowsInView.add(this.#active); // the active row must exist
    this.#spacer.replaceChildren(...[...rowsInView].sort((a, b) => a - b).map((at) => this.#row(at)));
    tree.setAttribute("aria-activedescendant", count > 0 ? `${this.#prefix}${this.#active}` : "");
  }

  #row(at: number): HTMLElement {
    const { target, level, expanded, position, siblings } = this.#rows.at(at);
    const { title, sub } = words(this.#view.columns, target);
    return el(
      `div.onnx-nb-treerow${at === this.#active ? ".onnx-nb-active" : ""}`,
      {
        title: `${title}\n${sub}`.slice(0, 4000),
        role: "treeitem",
        id: `${this.#prefix}${at}`,
        "aria-level": level,
        "aria-posinset": position,
        "aria-setsize": siblings,
        "aria-selected": this.#selection.has(keyOf(target)),
        "aria-expanded": expanded ?? undefined,
        style: { top: `${at * ROW}px`, "padding-inline-start": `${level * 14 - 6}px` },
        data: { row: String(at), [target.kind]: this.#view.columns.nameOf(target) },
      },
      el("span.onnx-nb-twist", { "aria-hidden": true }, expanded === null ? "" : expanded ? "–" : "+"),
      el(`span.onnx-nb-tree-${target.kind}`, elide(title, 80)),
      sub === "" ? null : el("span.onnx-nb-dim", ` ${elide(sub, 60)}`),
    );
  }

  #show(at: number): void {
    const tree = this.#tree;
    this.#active = Math.max(0, Math.min(this.#rows.length - 1, at));
    const top = this.#active * ROW;
    const height = tree.clientHeight;
    if (height > 0 && (top < tree.scrollTop || top + ROW > tree.scrollTop + height)) {
      tree.scrollTop = top < tree.scrollTop ? top : top + ROW - height;
    }
    this.#fill();
  }

  // ---------------------------------------------------------------- acting

  #toggle(at: number): void {
    const { target, expanded } = this.#rows.at(at);
    if (target.kind === "scope") this.#view.dispatch({ type: "toggle", scope: target.id });
    else if (target.kind === "node" && expanded !== null) {
      if (expanded) this.#foldedNodes.add(target.id);
      else this.#foldedNodes.delete(target.id);
      this.#rows = TreeRows.of(this.#view.columns, this.#view.state().open, this.#foldedNodes);
      this.#fill();
    }
  }

  #activate(at: number): void {
    const { target } = this.#rows.at(at);
    this.#active = at;
    this.#view.dispatch({ type: "select", target });
    this.#view.dispatch({ type: "reveal", target });
  }

  /** Adds a row to the selection, or removes it. */
  #toggleSelection(at: number): void {
    this.#active = at;
    this.#isOwnChange = true;
    this.#view.dispatch({ type: "also", target: this.#rows.at(at).target });
  }

  /** Adds all rows from the active one to this one. */
  #extend(to: number): void {
    const at = Math.max(0, Math.min(this.#rows.length - 1, to));
    const [from, end] = [Math.min(at, this.#active), Math.max(at, this.#active)];
    const targets = Array.from({ length: end - from + 1 }, (_, nth) => this.#rows.at(from + nth).target);
    this.#isOwnChange = true;
    this.#view.dispatch({ type: "selectAll", targets: at < this.#active ? targets.reverse() : targets, add: true });
    this.#show(at);
  }

  #listen(signal: AbortSignal): void {
    const tree = this.#tree;
    /** Returns the row of an event, −1 for none, and whether the event is on its toggle. */
    const place = ({ target }: Event): readonly [at: number, twist: boolean] => {
      const row = target instanceof Element ? target.closest<HTMLElement>("[data-row]") : null;
      return [Number(row?.dataset.row ?? -1), target instanceof Element && target.classList.contains("onnx-nb-twist")];
    };
    on(tree, "focus", signal, () => this.#catchUp());
    on(tree, "scroll", { signal, passive: true }, () => this.#fill());
    on(tree, "click", signal, (event) => {
      const [at, twist] = place(event);
      if (at < 0) return;
      if (twist && this.#rows.at(at).expanded !== null) this.#toggle(at);
      else if (event.shiftKey) this.#extend(at);
      else if (event.ctrlKey || event.metaKey) this.#toggleSelection(at);
      else this.#activate(at);
    });
    on(tree, "dblclick", signal, (event) => {
      const [at, twist] = place(event);
      if (at >= 0 && !twist) this.#toggle(at);
    });
    on(tree, "keydown", signal, (event) => {
      const act = this.#rows.length > 0 && !event.altKey ? this.#keys(event)[event.key] : undefined;
      if (act === undefined) return;
      event.preventDefault();
      event.stopPropagation(); // the picture has other keys
      act();
    });
  }

  #keys({ shiftKey, ctrlKey, metaKey }: KeyboardEvent): Readonly<Record<string, () => void>> {
    const at = this.#active;
    const { expanded } = this.#rows.at(at);
    const go = (to: number): void => (shiftKey ? this.#extend(to) : this.#show(to));
    const choose = (): void => (ctrlKey || metaKey ? this.#toggleSelection(at) : this.#activate(at));
    return {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      Home: () => go(0),
      End: () => go(this.#rows.length - 1),
      Enter: choose,
      " ": choose,
      ArrowRight: () => {
        if (expanded === false) this.#toggle(at);
        else if (expanded) this.#show(at + 1);
      },
      ArrowLeft: () => (expanded ? this.#toggle(at) : this.#show(this.#rows.parentOf(at))),
    };
  }
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
