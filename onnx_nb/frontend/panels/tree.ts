/**
 * The graph as a list: scopes, their nodes in file order, the tensors that each makes. It is the way through the graph
 * for a screen reader and for tests; open scopes are the same as on the canvas. Only rows near the view are in the page.
 */

import { type Columns, SCOPE_KIND, type Target } from "../protocol/columns.ts";
import { multipleText } from "../scene/labels.ts";
import { type Dispatch, type State, same, selected } from "../scene/state.ts";
import { Rows } from "../scene/treerows.ts";
import { el, elide, on, onAbort } from "./dom.ts";

/** Pixels of a row. */
const ROW = 24;
/** Rows of a list that is in the page as a whole. */
const FEW = 200;
/** Milliseconds by which the list may lag behind the picture. */
const LATER_MS = 40;
/** Rows around the view that are in the page too. */
const MORE = 30;

let trees = 0;

export class Tree {
  readonly #columns: Columns;
  readonly #dispatch: Dispatch;
  readonly #prefix = `onnx-nb-row-${trees++}-`;
  readonly #spacer = el("div.onnx-nb-rows-all", { role: "presentation" });
  readonly #tree = el("div.onnx-nb-tree", {
    role: "tree",
    tabindex: 0,
    "aria-label": "Scopes, nodes and tensors",
    "aria-multiselectable": true,
  });
  /** nodes whose tensors are hidden */
  readonly #folded = new Set<number>();
  #state: State | null = null;
  /** the state that the list shows */
  #listed: State | null = null;
  #rows: Rows;
  #selected: ReadonlySet<string> = new Set();
  /** the row of the keyboard */
  #active = 0;
  /** the selection was changed here, so the keyboard stays where it is */
  #mine = false;
  #timer = 0;

  constructor(root: HTMLElement, columns: Columns, dispatch: Dispatch, signal: AbortSignal) {
    this.#columns = columns;
    this.#dispatch = dispatch;
    this.#rows = Rows.of(columns, new Set(), this.#folded);
    this.#tree.append(this.#spacer);
    root.append(this.#tree);
    this.#listen(signal);
    onAbort(signal, () => window.clearTimeout(this.#timer));
  }

  update(state: State): void {
    this.#state = state;
    // the picture goes first
    if (this.#timer === 0) this.#timer = window.setTimeout(() => this.#catchUp(), LATER_MS);
  }

  #catchUp(): void {
    window.clearTimeout(this.#timer);
    this.#timer = 0;
    const [state, before] = [this.#state, this.#listed];
    if (state === null || state === before) return;
    this.#listed = state;
    const reopened = before?.open !== state.open;
    if (reopened) {
      const at = this.#active < this.#rows.length ? this.#rows.targetAt(this.#active) : null;
      this.#rows = Rows.of(this.#columns, state.open, this.#folded);
      // the keyboard stays on its row
      if (at !== null) this.#active = Math.max(0, this.#rows.indexOf(at));
    }
    const { selection } = state;
    const reselected = !same(selection, before?.selection ?? null) || state.others !== before?.others;
    if (reselected) this.#selected = new Set(selected(state).map(keyOf));
    const at = reselected && selection !== null ? this.#rows.indexOf(selection) : -1;
    if (at >= 0 && !this.#mine) this.#show(at);
    else if (reopened || reselected) this.#fill();
    this.#mine = false;
  }

  // ---------------------------------------------------------------- drawing

  #fill(): void {
    const [tree, count] = [this.#tree, this.#rows.length];
    this.#spacer.style.height = `${count * ROW}px`;
    const height = Math.max(tree.clientHeight, 10 * ROW);
    const all = count <= FEW;
    const from = all ? 0 : Math.max(0, Math.floor(tree.scrollTop / ROW) - MORE);
    const to = all ? count : Math.min(count, Math.ceil((tree.scrollTop + height) / ROW) + MORE);
    const wanted = new Set<number>();
    for (let at = from; at < to; at++) wanted.add(at);
    if (this.#active < count) wanted.add(this.#active); // the row of the keyboard must exist
    this.#spacer.replaceChildren(...[...wanted].sort((a, b) => a - b).map((at) => this.#row(at)));
    tree.setAttribute("aria-activedescendant", count > 0 ? `${this.#prefix}${this.#active}` : "");
  }

  #row(at: number): HTMLElement {
    const { target, level, expanded, position, siblings } = this.#rows.at(at);
    const { title, sub } = words(this.#columns, target);
    return el(
      `div.onnx-nb-treerow${at === this.#active ? ".onnx-nb-active" : ""}`,
      {
        title: `${title}\n${sub}`.slice(0, 4000),
        role: "treeitem",
        id: `${this.#prefix}${at}`,
        "aria-level": level,
        "aria-posinset": position,
        "aria-setsize": siblings,
        "aria-selected": this.#selected.has(keyOf(target)),
        "aria-expanded": expanded ?? undefined,
        style: { top: `${at * ROW}px`, "padding-inline-start": `${level * 14 - 6}px` },
        data: { row: String(at), [target.kind]: this.#columns.nameOf(target) },
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
    if (target.kind === "scope") this.#dispatch({ type: "toggle", scope: target.id });
    else if (target.kind === "node" && expanded !== null) {
      if (expanded) this.#folded.add(target.id);
      else this.#folded.delete(target.id);
      if (this.#state !== null) this.#rows = Rows.of(this.#columns, this.#state.open, this.#folded);
      this.#fill();
    }
  }

  #activate(at: number): void {
    const target = this.#rows.targetAt(at);
    this.#active = at;
    this.#dispatch({ type: "select", target });
    this.#dispatch({ type: "reveal", target });
  }

  /** Adds a row to the selection, or takes it out. */
  #toggleSelected(at: number): void {
    this.#active = at;
    this.#mine = true;
    this.#dispatch({ type: "also", target: this.#rows.targetAt(at) });
  }

  /** Adds all rows from the active one to this. */
  #extend(to: number): void {
    const at = Math.max(0, Math.min(this.#rows.length - 1, to));
    const [from, end] = [Math.min(at, this.#active), Math.max(at, this.#active)];
    const targets = Array.from({ length: end - from + 1 }, (_, k) => this.#rows.targetAt(from + k));
    this.#mine = true;
    this.#dispatch({ type: "selectAll", targets: at < this.#active ? targets.reverse() : targets, add: true });
    this.#show(at);
  }

  #listen(signal: AbortSignal): void {
    const tree = this.#tree;
    /** the row of an event, −1 for none, and whether it is on the sign that opens it */
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
      else if (event.ctrlKey || event.metaKey) this.#toggleSelected(at);
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
    const choose = (): void => (ctrlKey || metaKey ? this.#toggleSelected(at) : this.#activate(at));
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
      ArrowLeft: () => (expanded ? this.#toggle(at) : this.#show(this.#rows.around(at))),
    };
  }
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
