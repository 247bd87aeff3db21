/** The search field, with completions and results below it. */

import type { Columns, Target } from "../protocol/columns.ts";
import { integer } from "../scene/formatting.ts";
import type { Action, Command, Hit, State } from "../scene/state.ts";
import { type Completion, complete, SYNTAX } from "../search/completion.ts";
import { FIELDS, hasRegex } from "../search/query.ts";
import { type SearchResult, searching } from "../search/search.ts";
import { StringIndex } from "../search/stringindex.ts";
import { suggestion } from "../search/suggestion.ts";
import { el, elide, hasFocus, on, onAbort } from "../ui/dom.ts";
import { verbsFor } from "./verbs.ts";
import { describe, type Panel, type ViewContext } from "./viewcontext.ts";

/** A completion of the query, or a verb in its place. */
type Offer = Completion & { readonly action?: Action | Command };

/** Hits listed at a time. */
const MAX_LISTED_HITS = 100;
/** Milliseconds of a search before the page may paint, of each slice after that, and of the whole search. */
const FIRST_MS = 40;
const SLICE_MS = 12;
const LONGEST_MS = 4000;

export class SearchBox implements Panel {
  // each widget of a page has its own copy of this module, so counters would produce equal ids
  readonly #id = `onnx-nb-search-${Math.random().toString(36).slice(2, 10)}`;
  readonly #input = el("input.onnx-nb-field", {
    type: "search",
    placeholder: "Search: conv, weights > 1 MB, simplify …",
    "aria-label": "Search",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": `${this.#id}-list`,
    "aria-haspopup": "listbox",
    "aria-autocomplete": "list",
    "aria-describedby": `${this.#id}-note`,
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
  });
  readonly #count = el("span.onnx-nb-count.onnx-nb-dim", { "aria-live": "polite" });
  // Tab skips the list: arrow keys in the field move through it, and it is hidden without the field
  readonly #list = el("div", { id: `${this.#id}-list`, role: "listbox", "aria-label": "Search results", tabindex: -1 });
  readonly #note = el("div.onnx-nb-search-note.onnx-nb-dim", { id: `${this.#id}-note` });
  readonly #drop = el("div.onnx-nb-hits", { hidden: true }, this.#list, this.#note);
  readonly #query = el("div.onnx-nb-query", this.#input, this.#count);
  readonly element = el("div.onnx-nb-search", { role: "search" }, this.#query, this.#drop);
  readonly #view: ViewContext;
  readonly #leave: () => void;
  #lastState: Pick<State, "hits" | "hit" | "search"> = { hits: [], hit: -1, search: "" };
  /** the last result, and its text */
  #outcome: { readonly text: string; readonly result: SearchResult } | null = null;
  #completions: readonly Offer[] = [];
  /** the completion that Enter accepts, −1 for none */
  #completion = -1;
  /** a hit has been visited, so the next key goes to the next one */
  #hasVisited = false;
  /** completions and hits as listed last, so that a different list begins at its top */
  #lists: readonly unknown[] = [];
  #timer = 0;
  /** go to the first hit once there is one */
  #goesToFirst = false;

  /** @param leave closes the search and returns the focus to the graph */
  constructor(view: ViewContext, leave: () => void) {
    this.#view = view;
    this.#leave = leave;
    this.#listen(view.signal);
    onAbort(view.signal, () => window.clearTimeout(this.#timer));
  }

  focus(): void {
    this.#input.focus();
    this.#input.select();
  }

  /** Searches for a text as if it had been typed. */
  search(text: string): void {
    this.#input.value = text;
    // a saved notebook may be a stranger's: its regular expressions run only if a person asks for them
    if (!hasRegex(text)) this.#delay(() => this.#seek(), 0);
    else this.#count.textContent = "Enter to search";
  }

  update(state: State): void {
    const before = this.#lastState;
    this.#lastState = state;
    if (state.hits === before.hits && state.hit === before.hit && state.search === before.search) return;
    if (state.search !== before.search || state.hits !== before.hits) this.#hasVisited = false;
    if (!hasFocus(this.#input) && this.#input.value !== state.search) this.#input.value = state.search;
    this.#show();
  }

  // ---------------------------------------------------------------- searching

  #delay(work: () => void, ms: number): void {
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(work, ms);
  }

  #seek(): void {
    const text = this.#input.value;
    const steps = searching(this.#view.columns, text);
    const begin = performance.now();
    const slice = (ms: number): void => {
      const deadline = performance.now() + ms;
      do {
        const { done, value } = steps.next(performance.now() - begin > LONGEST_MS);
        if (!done) continue;
        this.#timer = 0;
        this.#outcome = { text, result: value };
        const isVain = value.total === 0 && !value.more && value.problem === null && text.trim() !== "";
        const better = isVain && this.#completions.length === 0 ? suggestion(this.#view.columns, text) : null;
        if (better !== null)
          this.#completions = [{ text: better, from: 0, to: text.length, note: "nothing found: did you mean this?" }];
        this.#view.dispatch({ type: "search", text, hits: value.hits });
        if (this.#goesToFirst) this.#step(0);
        this.#goesToFirst = false;
        return;
      } while (performance.now() <= deadline);
      this.#delay(() => slice(SLICE_MS), 0);
    };
    this.#timer = 0;
    slice(FIRST_MS);
  }

  #complete(): void {
    const { value, selectionStart } = this.#input;
    const verbs = verbsFor(value, this.#view.columns, this.#view.host);
    const offers = verbs.map((verb) => ({ ...verb, from: 0, to: value.length }));
    this.#completions = [...offers, ...complete(this.#view.columns, value, selectionStart ?? value.length)];
  }

  #onType(): void {
    this.#complete();
    this.#completion = -1;
    this.#goesToFirst = false;
    this.#delay(() => this.#seek(), this.#view.columns.nodeCount > 20_000 ? 120 : 40);
    this.#show();
  }

  #take({ text, from, to, action }: Offer): void {
    if (action !== undefined) {
      this.#clear();
      this.#view.dispatch(action);
      return;
    }
    this.#input.setRangeText(text, from, to, "end");
    this.#input.focus();
    this.#onType();
  }

  // ---------------------------------------------------------------- going through

  #step(by: number): void {
    const { hits, hit } = this.#lastState;
    if (hits.length > 0) this.#go((hit + by + hits.length) % hits.length);
  }

  #go(at: number): void {
    this.#hasVisited = true;
    this.#completion = -1;
    const { kind, id, chain } = this.#lastState.hits[at];
    if (at === this.#lastState.hit) this.#show();
    else this.#view.dispatch({ type: "hit", hit: at });
    this.#view.dispatch({ type: "select", target: { kind, id } });
    // the last first: all scopes are opened, and the view comes to rest at the beginning of the chain
    const targets: Target[] = chain?.map((node) => ({ kind: "node", id: node })) ?? [{ kind, id }];
    for (const target of targets.reverse()) this.#view.dispatch({ type: "reveal", target });
  }

  /** Moves up and down through the completions, then through the hits. */
  #move(by: 1 | -1): void {
    const count = this.#completions.length;
    const at = this.#completion;
    if (count === 0 || (this.#hasVisited && at < 0)) this.#step(this.#hasVisited || by < 0 ? by : 0);
    else if (at + by >= count && this.#lastState.hits.length > 0) this.#step(0);
    else {
      this.#completion = at < 0 && by < 0 ? count - 1 : (at + by + count) % count;
      this.#show();
    }
  }

  #enter(back: boolean): void {
    const [only] = this.#completions.length === 1 && this.#lastState.hits.length === 0 ? this.#completions : [];
    const choice = this.#completions[this.#completion] ?? (only?.action === undefined ? undefined : only);
    if (choice !== undefined) this.#take(choice);
    else if (this.#input.value === this.#lastState.search) this.#step(back ? -1 : this.#hasVisited ? 1 : 0);
    else {
      this.#goesToFirst = true;
      if (this.#timer === 0) this.#seek();
    }
  }

  #clear(): void {
    window.clearTimeout(this.#timer);
    this.#timer = 0;
    this.#completions = [];
    this.#outcome = null;
    this.#input.value = "";
    this.#view.dispatch({ type: "search", text: "", hits: [] });
    this.#leave();
  }

  #listen(signal: AbortSignal): void {
    const [element, input, drop] = [this.element, this.#input, this.#drop];
    on(input, "input", signal, () => this.#onType());
    on(input, "keydown", signal, (event) => {
      if (event.key === "Tab" && this.#completions[this.#completion] === undefined) return;
      if (event.key === "Enter" || event.key === "Tab") this.#enter(event.shiftKey);
      else if (event.key === "ArrowDown") this.#move(1);
      else if (event.key === "ArrowUp") this.#move(-1);
      else if (event.key === "Escape") this.#clear();
      else return;
      event.preventDefault();
    });
    on(input, "focus", signal, () => {
      window.setTimeout(() => signal.aborted || StringIndex.of(this.#view.columns));
      this.#complete();
      this.#show();
    });
    on(element, "focusout", signal, (event) => {
      if (event.relatedTarget instanceof Node && element.contains(event.relatedTarget)) return;
      this.#completion = -1;
      drop.hidden = true;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    });
    on(drop, "pointerdown", signal, (event) => event.preventDefault()); // keeps the focus in the field
    on(drop, "click", signal, (event) => {
      const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[role=option]") : null;
      if (row?.dataset.hit !== undefined) this.#go(Number(row.dataset.hit));
      else if (row?.dataset.completion !== undefined) this.#take(this.#completions[Number(row.dataset.completion)]);
    });
  }

  // ---------------------------------------------------------------- drawing

  #show(): void {
    const { hits, hit, search: text } = this.#lastState;
    const result = this.#outcome?.text === text ? this.#outcome.result : null;
    const isEmpty = text.trim() === "";
    const problem = isEmpty ? null : (result?.problem ?? null);
    const total = result?.total ?? hits.length;
    const waits = !isEmpty && total === 0 && this.#completions.length > 0;
    this.element.classList.toggle("onnx-nb-bad", problem !== null && !waits);
    this.#count.textContent = isEmpty || waits ? "" : countText(hit, total, problem, result?.more === true);
    this.#note.setAttribute("aria-live", problem === null ? "off" : "polite"); // hints are not announced
    this.#note.replaceChildren(...(waits ? [] : remark(text, problem, total, hits.length)));
    this.#note.hidden = this.#note.childNodes.length === 0;
    this.#fillList(isEmpty ? [] : hits, hit);
  }

  #fillList(hits: State["hits"], hit: number): void {
    const [input, list, drop] = [this.#input, this.#list, this.#drop];
    const first = Math.max(0, Math.min(hit - MAX_LISTED_HITS / 2, hits.length - MAX_LISTED_HITS));
    const visibleHits = hits.slice(first, first + MAX_LISTED_HITS);
    const option = (kind: "hit" | "completion", at: number, title: string, ...parts: Node[]): HTMLElement => {
      const active = kind === "hit" ? at === hit && this.#completion < 0 : at === this.#completion;
      const id = `${this.#id}-${kind}-${at}`;
      const attributes = { title, id, role: "option", "aria-selected": active, data: { [kind]: String(at) } };
      return el("div.onnx-nb-hit", attributes, ...parts);
    };
    const completionRow = ({ text, note }: Offer, at: number): HTMLElement =>
      option("completion", at, text, el("code.onnx-nb-completion", elide(text, 60)), el("span.onnx-nb-dim", note));
    const hitRow = (hit: Hit, at: number): HTMLElement => {
      const { title, sub, kind, full } = inWords(this.#view.columns, hit);
      const [kindLabel, name] = [el("span.onnx-nb-kind", kind), el("span.onnx-nb-hit-title", title)];
      const detail = el("span.onnx-nb-dim", elide(sub, Math.max(20, 56 - title.length)));
      return option("hit", first + at, full, kindLabel, name, detail);
    };
    const isNewList = this.#lists[0] !== this.#completions || this.#lists[1] !== this.#lastState.hits;
    if (isNewList && list.hasChildNodes()) list.scrollTop = 0; // makes the browser lay the page out
    list.replaceChildren(...this.#completions.map(completionRow), ...visibleHits.map(hitRow));
    this.#lists = [this.#completions, this.#lastState.hits];
    list.hidden = list.childElementCount === 0;
    drop.hidden = !hasFocus(input) || (list.hidden && this.#note.hidden);
    input.setAttribute("aria-expanded", String(!drop.hidden && !list.hidden));
    const active = list.querySelector<HTMLElement>("[aria-selected=true]");
    if (active !== null && !drop.hidden && (this.#completion >= 0 || this.#hasVisited)) {
      input.setAttribute("aria-activedescendant", active.id);
      active.scrollIntoView?.({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }
}

/** Returns the number of hits as the field shows it. */
function countText(hit: number, total: number, problem: string | null, isPartial: boolean): string {
  if (problem !== null) return "not understood";
  if (total === 0) return isPartial ? "stopped" : "nothing found";
  return `${integer(hit + 1)} of ${integer(total)}${isPartial ? "+" : ""}`;
}

/** Returns the note below the list: a problem, or examples. */
function remark(text: string, problem: string | null, total: number, listed: number): (Node | string)[] {
  const isEmpty = text.trim() === "";
  if (problem !== null) return [problem];
  if (total > 0 && !isEmpty) return total > listed ? [`The first ${integer(listed)} can be stepped through.`] : [];
  const samples = SYNTAX.map(([sample, meaning]) => el("span", el("code", sample), ` ${meaning}`));
  if (isEmpty) return samples;
  const fields = el("span", el("code", FIELDS.map((field) => `${field}:`).join(" ")));
  const defaultsNote = el("span", "Attributes that have their default value are not searched.");
  return [...(/\battr/i.test(text) ? [defaultsNote] : []), fields, ...samples];
}

/** Describes a hit; a chain by the ops of its nodes. */
function inWords(columns: Columns, hit: Hit): { title: string; sub: string; kind: string; full: string } {
  if (hit.chain === undefined) {
    const { title, sub: name, kind } = describe(columns, hit);
    // if a name is not a path, the scope is more informative
    const scope =
      hit.kind === "node" && !name.includes("/") ? columns.str(columns.scopePath[columns.scopeOf(hit)]) : "";
    const sub = scope === "" ? name : `${scope} · ${name}`;
    return { title: elide(title, 48), sub, kind, full: `${title}\n${sub}`.slice(0, 4000) };
  }
  const ops = hit.chain.map((node) => elide(columns.opOf(node), 24));
  const chainOps = ops.length > 5 ? [...ops.slice(0, 2), `${ops.length - 4} more`, ...ops.slice(-2)] : ops;
  const names = hit.chain.map((node) => `${columns.opOf(node)} ${columns.nameOf({ kind: "node", id: node })}`);
  const scope = columns.str(columns.scopePath[columns.scopeOf(hit)]);
  return {
    title: chainOps.join(" › "),
    sub: scope || columns.nameOf(hit),
    kind: "chain",
    full: names.join("\n").slice(0, 4000),
  };
}
