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
import { describe, type ViewContext } from "./viewcontext.ts";

/** A completion of the query, or a verb in its place. */
type Offer = Completion & { readonly action?: Action | Command };

/** Hits listed at a time. */
const MAX_LISTED_HITS = 100;
/** Milliseconds of a search before the page may paint, of each slice after that, and of the whole search. */
const FIRST_MS = 40;
const SLICE_MS = 12;
const LONGEST_MS = 4000;

export type SearchBox = ReturnType<typeof createSearchBox>;

/** @param leave closes the search and returns the focus to the graph */
export function createSearchBox({ columns, host, dispatch, signal }: ViewContext, leave: () => void) {
  // each widget of a page has its own copy of this module, so counters would produce equal ids
  const prefix = `onnx-nb-search-${Math.random().toString(36).slice(2, 10)}`;
  const input = el("input.onnx-nb-field", {
    type: "search",
    placeholder: "Search: conv, weights > 1 MB, simplify …",
    "aria-label": "Search",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": `${prefix}-list`,
    "aria-haspopup": "listbox",
    "aria-autocomplete": "list",
    "aria-describedby": `${prefix}-note`,
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
  });
  const count = el("span.onnx-nb-count.onnx-nb-dim", { "aria-live": "polite" });
  // Tab skips the list: arrow keys in the field move through it, and it is hidden without the field
  const list = el("div", { id: `${prefix}-list`, role: "listbox", "aria-label": "Search results", tabindex: -1 });
  const note = el("div.onnx-nb-search-note.onnx-nb-dim", { id: `${prefix}-note` });
  const drop = el("div.onnx-nb-hits", { hidden: true }, list, note);
  const element = el("div.onnx-nb-search", { role: "search" }, el("div.onnx-nb-query", input, count), drop);
  let lastState: Pick<State, "hits" | "hit" | "search"> = { hits: [], hit: -1, search: "" };
  /** the last result, and its text */
  let outcome: { readonly text: string; readonly result: SearchResult } | null = null;
  let completions: readonly Offer[] = [];
  /** the completion that Enter accepts, −1 for none */
  let completion = -1;
  /** a hit has been visited, so the next key goes to the next one */
  let hasVisited = false;
  /** completions and hits as listed last, so that a different list begins at its top */
  let lists: readonly unknown[] = [];
  let timer = 0;
  /** go to the first hit once there is one */
  let goesToFirst = false;
  onAbort(signal, () => window.clearTimeout(timer));

  // ---------------------------------------------------------------- searching

  const delay = (work: () => void, ms: number): void => {
    window.clearTimeout(timer);
    timer = window.setTimeout(work, ms);
  };
  const seek = (): void => {
    const text = input.value;
    const steps = searching(columns, text);
    const begin = performance.now();
    const slice = (ms: number): void => {
      const deadline = performance.now() + ms;
      do {
        const { done, value } = steps.next(performance.now() - begin > LONGEST_MS);
        if (!done) continue;
        timer = 0;
        outcome = { text, result: value };
        const isVain = value.total === 0 && !value.more && value.problem === null && text.trim() !== "";
        const better = isVain && completions.length === 0 ? suggestion(columns, text) : null;
        if (better !== null)
          completions = [{ text: better, from: 0, to: text.length, note: "nothing found: did you mean this?" }];
        dispatch({ type: "search", text, hits: value.hits });
        if (goesToFirst) step(0);
        goesToFirst = false;
        return;
      } while (performance.now() <= deadline);
      delay(() => slice(SLICE_MS), 0);
    };
    timer = 0;
    slice(FIRST_MS);
  };
  const findCompletions = (): void => {
    const { value, selectionStart } = input;
    const verbs = verbsFor(value, columns, host).map((verb) => ({ ...verb, from: 0, to: value.length }));
    completions = [...verbs, ...complete(columns, value, selectionStart ?? value.length)];
  };
  const onType = (): void => {
    findCompletions();
    completion = -1;
    goesToFirst = false;
    delay(seek, columns.nodeCount > 20_000 ? 120 : 40);
    show();
  };
  const take = ({ text, from, to, action }: Offer): void => {
    if (action !== undefined) {
      clear();
      dispatch(action);
      return;
    }
    input.setRangeText(text, from, to, "end");
    input.focus();
    onType();
  };

  // ---------------------------------------------------------------- going through

  const step = (by: number): void => {
    const { hits, hit } = lastState;
    if (hits.length > 0) go((hit + by + hits.length) % hits.length);
  };
  const go = (at: number): void => {
    hasVisited = true;
    completion = -1;
    const { kind, id, chain } = lastState.hits[at];
    if (at === lastState.hit) show();
    else dispatch({ type: "hit", hit: at });
    dispatch({ type: "select", target: { kind, id } });
    // the last first: all scopes are opened, and the view comes to rest at the beginning of the chain
    const targets: Target[] = chain?.map((node) => ({ kind: "node", id: node })) ?? [{ kind, id }];
    for (const target of targets.reverse()) dispatch({ type: "reveal", target });
  };
  /** Moves up and down through the completions, then through the hits. */
  const move = (by: 1 | -1): void => {
    const { length } = completions;
    if (length === 0 || (hasVisited && completion < 0)) step(hasVisited || by < 0 ? by : 0);
    else if (completion + by >= length && lastState.hits.length > 0) step(0);
    else {
      completion = completion < 0 && by < 0 ? length - 1 : (completion + by + length) % length;
      show();
    }
  };
  const enter = (back: boolean): void => {
    const [only] = completions.length === 1 && lastState.hits.length === 0 ? completions : [];
    const choice = completions[completion] ?? (only?.action === undefined ? undefined : only);
    if (choice !== undefined) take(choice);
    else if (input.value === lastState.search) step(back ? -1 : hasVisited ? 1 : 0);
    else {
      goesToFirst = true;
      if (timer === 0) seek();
    }
  };
  const clear = (): void => {
    window.clearTimeout(timer);
    timer = 0;
    completions = [];
    outcome = null;
    input.value = "";
    dispatch({ type: "search", text: "", hits: [] });
    leave();
  };

  on(input, "input", signal, onType);
  on(input, "keydown", signal, (event) => {
    if (event.key === "Tab" && completions[completion] === undefined) return;
    if (event.key === "Enter" || event.key === "Tab") enter(event.shiftKey);
    else if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  });
  on(input, "focus", signal, () => {
    window.setTimeout(() => signal.aborted || StringIndex.of(columns));
    findCompletions();
    show();
  });
  on(element, "focusout", signal, (event) => {
    if (event.relatedTarget instanceof Node && element.contains(event.relatedTarget)) return;
    completion = -1;
    drop.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  });
  on(drop, "pointerdown", signal, (event) => event.preventDefault()); // keeps the focus in the field
  on(drop, "click", signal, (event) => {
    const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[role=option]") : null;
    if (row?.dataset.hit !== undefined) go(Number(row.dataset.hit));
    else if (row?.dataset.completion !== undefined) take(completions[Number(row.dataset.completion)]);
  });

  // ---------------------------------------------------------------- drawing

  const show = (): void => {
    const { hits, hit, search: text } = lastState;
    const result = outcome?.text === text ? outcome.result : null;
    const isEmpty = text.trim() === "";
    const problem = isEmpty ? null : (result?.problem ?? null);
    const total = result?.total ?? hits.length;
    const waits = !isEmpty && total === 0 && completions.length > 0;
    element.classList.toggle("onnx-nb-bad", problem !== null && !waits);
    count.textContent = isEmpty || waits ? "" : countText(hit, total, problem, result?.more === true);
    note.setAttribute("aria-live", problem === null ? "off" : "polite"); // hints are not announced
    note.replaceChildren(...remark(text, waits, problem, total, hits.length));
    note.hidden = note.childNodes.length === 0;
    fillList(isEmpty ? [] : hits, hit);
  };
  const fillList = (hits: State["hits"], hit: number): void => {
    const first = Math.max(0, Math.min(hit - MAX_LISTED_HITS / 2, hits.length - MAX_LISTED_HITS));
    const option = (kind: "hit" | "completion", at: number, title: string, ...parts: Node[]): HTMLElement => {
      const active = kind === "hit" ? at === hit && completion < 0 : at === completion;
      const id = `${prefix}-${kind}-${at}`;
      const attributes = { title, id, role: "option", "aria-selected": active, data: { [kind]: String(at) } };
      return el("div.onnx-nb-hit", attributes, ...parts);
    };
    const completionRow = ({ text, note }: Offer, at: number): HTMLElement =>
      option("completion", at, text, el("code.onnx-nb-completion", elide(text, 60)), el("span.onnx-nb-dim", note));
    const hitRow = (hit: Hit, at: number): HTMLElement => {
      const { title, sub, kind, full } = inWords(columns, hit);
      const [kindLabel, name] = [el("span.onnx-nb-kind", kind), el("span.onnx-nb-hit-title", title)];
      const detail = el("span.onnx-nb-dim", elide(sub, Math.max(20, 56 - title.length)));
      return option("hit", first + at, full, kindLabel, name, detail);
    };
    const isNewList = lists[0] !== completions || lists[1] !== lastState.hits;
    if (isNewList && list.hasChildNodes()) list.scrollTop = 0; // makes the browser lay the page out
    const visibleHits = hits.slice(first, first + MAX_LISTED_HITS);
    list.replaceChildren(...completions.map(completionRow), ...visibleHits.map(hitRow));
    lists = [completions, lastState.hits];
    list.hidden = list.childElementCount === 0;
    drop.hidden = !hasFocus(input) || (list.hidden && note.hidden);
    input.setAttribute("aria-expanded", String(!drop.hidden && !list.hidden));
    const active = list.querySelector<HTMLElement>("[aria-selected=true]");
    if (active !== null && !drop.hidden && (completion >= 0 || hasVisited)) {
      input.setAttribute("aria-activedescendant", active.id);
      active.scrollIntoView?.({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };

  return {
    element,
    focus(): void {
      input.focus();
      input.select();
    },
    /** Searches for a text as if it had been typed. */
    search(text: string): void {
      input.value = text;
      // a saved notebook may be a stranger's: its regular expressions run only if a person asks for them
      if (!hasRegex(text)) delay(seek, 0);
      else count.textContent = "Enter to search";
    },
    update(state: State): void {
      const before = lastState;
      lastState = state;
      if (state.hits === before.hits && state.hit === before.hit && state.search === before.search) return;
      if (state.search !== before.search || state.hits !== before.hits) hasVisited = false;
      if (!hasFocus(input) && input.value !== state.search) input.value = state.search;
      show();
    },
  };
}

/** Returns the number of hits as the field shows it. */
function countText(hit: number, total: number, problem: string | null, isPartial: boolean): string {
  if (problem !== null) return "not understood";
  if (total === 0) return isPartial ? "stopped" : "nothing found";
  return `${integer(hit + 1)} of ${integer(total)}${isPartial ? "+" : ""}`;
}

/** Returns the note below the list: a problem, or examples. */
function remark(
  text: string,
  waits: boolean,
  problem: string | null,
  total: number,
  keptCount: number,
): (Node | string)[] {
  const isEmpty = text.trim() === "";
  if (waits) return [];
  if (problem !== null) return [problem];
  if (total > 0 && !isEmpty)
    return total > keptCount ? [`The first ${integer(keptCount)} can be stepped through.`] : [];
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
