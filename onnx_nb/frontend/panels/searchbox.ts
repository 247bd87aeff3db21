/** The field to search in, with what it may go on with and what was found below it. */

import type { Columns, Target } from "../protocol/columns.ts";
import type { Dispatch, State } from "../scene/state.ts";
import { type Completion, complete, SYNTAX } from "../search/completion.ts";
import { FIELDS, hasRegex } from "../search/query.ts";
import { type Found, type Hit, prepare, searching } from "../search/search.ts";
import { el, elide, focused, on, onAbort, plain } from "./dom.ts";
import { describe } from "./link.ts";

export interface SearchBox {
  readonly element: HTMLElement;
  update(state: State): void;
  focus(): void;
  /** finds what a text means, as if it had been typed */
  search(text: string): void;
}

const LISTED = 100;
/** A search works for so long before the page may paint, then in slices; in all not longer than this. */
const FIRST_MS = 40;
const SLICE_MS = 12;
const LONGEST_MS = 4000;

/** @param leave closes the search and gives the keyboard back to the graph */
export function createSearchBox(
  columns: Columns,
  dispatch: Dispatch,
  leave: () => void,
  signal: AbortSignal,
): SearchBox {
  // each widget of a page has its own copy of this module, so counting would give equal ids
  const id = `onnx-nb-search-${Math.random().toString(36).slice(2, 10)}`;
  const input = el("input.onnx-nb-field", {
    type: "search",
    placeholder: "Search: conv, op:Add, A > * > B …",
    "aria-label": "Search",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": `${id}-list`,
    "aria-haspopup": "listbox",
    "aria-autocomplete": "list",
    "aria-describedby": `${id}-note`,
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
  });
  const count = el("span.onnx-nb-count.onnx-nb-dim", { "aria-live": "polite" });
  const query = el("div.onnx-nb-query", input, count);
  // Tab leads past what can be scrolled: it is walked from the field, and gone without it
  const list = el("div", { id: `${id}-list`, role: "listbox", "aria-label": "Search results", tabindex: -1 });
  const note = el("div.onnx-nb-search-note.onnx-nb-dim", { id: `${id}-note` });
  const drop = el("div.onnx-nb-hits", list, note);
  drop.hidden = true;
  const element = el("div.onnx-nb-search", { role: "search" }, query, drop);

  let shown: State = NO_STATE;
  /** what was found last, and for which text */
  let outcome: { readonly text: string; readonly found: Found } | null = null;
  let completions: readonly Completion[] = [];
  /** the completion that Enter takes, −1 for none */
  let chosen = -1;
  /** a hit has been gone to, so that the next key goes to the next one */
  let visited = false;
  /** the list as it was built last, so that another begins at its top */
  let listing: readonly unknown[] = [];

  // ---------------------------------------------------------------- searching

  let timer = 0;
  /** goes to the first hit once there is one */
  let hurried = false;
  const later = (work: () => void, ms: number): void => {
    window.clearTimeout(timer);
    timer = window.setTimeout(work, ms);
  };
  const seek = (): void => {
    const text = input.value;
    const steps = searching(columns, text);
    const started = performance.now();
    const slice = (ms: number): void => {
      const until = performance.now() + ms;
      for (;;) {
        const { done, value } = steps.next(performance.now() - started > LONGEST_MS);
        if (done) {
          finish(text, value);
          return;
        }
        if (performance.now() > until) {
          later(() => slice(SLICE_MS), 0);
          return;
        }
      }
    };
    timer = 0;
    slice(FIRST_MS);
  };
  const finish = (text: string, found: Found): void => {
    timer = 0;
    outcome = { text, found };
    dispatch({ type: "search", text, hits: found.hits });
    if (hurried) step(0);
    hurried = false;
  };
  onAbort(signal, () => window.clearTimeout(timer));

  const typed = (): void => {
    completions = complete(columns, input.value, input.selectionStart ?? input.value.length);
    chosen = -1;
    hurried = false;
    later(seek, columns.nodeCount > 20_000 ? 120 : 40);
    show();
  };
  const take = ({ text, from, to }: Completion): void => {
    input.setRangeText(text, from, to, "end");
    input.focus();
    typed();
  };

  // ---------------------------------------------------------------- going through

  const step = (by: number): void => {
    const { hits, hit } = shown;
    if (hits.length > 0) go((hit + by + hits.length) % hits.length);
  };
  const go = (at: number): void => {
    visited = true;
    chosen = -1;
    const { kind, id, chain } = shown.hits[at];
    if (at === shown.hit) show();
    else dispatch({ type: "hit", hit: at });
    dispatch({ type: "select", target: { kind, id } });
    // the last first: all are opened, and the view comes to rest where the chain begins
    const targets: Target[] = chain?.map((node) => ({ kind: "node", id: node })) ?? [{ kind, id }];
    for (const target of [...targets].reverse()) dispatch({ type: "reveal", target });
  };
  /** Up and down lead through the completions, then through the hits. */
  const move = (by: 1 | -1): void => {
    const many = completions.length;
    if (many === 0 || (visited && chosen < 0)) step(visited || by < 0 ? by : 0);
    else if (chosen + by >= many && shown.hits.length > 0) step(0);
    else {
      chosen = chosen < 0 && by < 0 ? many - 1 : (chosen + by + many) % many;
      show();
    }
  };

  on(input, "input", signal, typed);
  on(input, "keydown", signal, (event) => {
    const choice = completions[chosen];
    if (event.key === "Tab" && choice === undefined) return;
    if (event.key === "Enter" || event.key === "Tab") {
      if (choice !== undefined) take(choice);
      else if (input.value !== shown.search) {
        hurried = true;
        if (timer === 0) seek();
      } else step(event.shiftKey ? -1 : visited ? 1 : 0);
    } else if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Escape") {
      window.clearTimeout(timer);
      timer = 0;
      completions = [];
      outcome = null;
      input.value = "";
      dispatch({ type: "search", text: "", hits: [] });
      leave();
    } else return;
    event.preventDefault();
  });
  on(input, "focus", signal, () => {
    window.setTimeout(() => signal.aborted || prepare(columns));
    completions = complete(columns, input.value, input.selectionStart ?? input.value.length);
    show();
  });
  on(element, "focusout", signal, (event) => {
    if (event.relatedTarget instanceof Node && element.contains(event.relatedTarget)) return;
    chosen = -1;
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

  const option = (name: string, active: boolean, title: string, ...parts: HTMLElement[]): HTMLElement =>
    el("div.onnx-nb-hit", { title, id: `${id}-${name}`, role: "option", "aria-selected": String(active) }, ...parts);
  const completionRow = (each: Completion, at: number): HTMLElement => {
    const row = option(
      `completion-${at}`,
      at === chosen,
      each.text,
      el("code.onnx-nb-completion", elide(each.text, 60)),
      el("span.onnx-nb-dim", each.note),
    );
    row.dataset.completion = String(at);
    return row;
  };
  const hitRow = (hit: Hit, at: number): HTMLElement => {
    const { title, sub, kind, full } = inWords(columns, hit);
    const row = option(
      `hit-${at}`,
      at === shown.hit && chosen < 0,
      full,
      el("span.onnx-nb-kind", kind),
      el("span.onnx-nb-hit-title", title),
      el("span.onnx-nb-dim", elide(sub, Math.max(20, 56 - title.length))),
    );
    row.dataset.hit = String(at);
    return row;
  };

  const show = (): void => {
    const { hits, hit, search: text } = shown;
    const found = outcome !== null && outcome.text === text ? outcome.found : null;
    const none = text.trim() === "";
    const problem = none ? null : (found?.problem ?? null);
    const total = found?.total ?? hits.length;
    const more = found?.more === true ? "+" : "";
    const waits = !none && total === 0 && completions.length > 0;
    element.classList.toggle("onnx-nb-bad", problem !== null && !waits);
    count.textContent =
      none || waits
        ? ""
        : problem !== null
          ? "not understood"
          : total === 0
            ? more === ""
              ? "nothing found"
              : "stopped"
            : `${plain(hit + 1)} of ${plain(total)}${more}`;
    note.setAttribute("aria-live", problem === null ? "off" : "polite"); // how to go on is not news
    note.replaceChildren(...remark(text, waits, problem, total, hits.length));
    note.hidden = note.childNodes.length === 0;

    const first = Math.max(0, Math.min(hit - LISTED / 2, hits.length - LISTED));
    const listed = none ? [] : hits.slice(first, first + LISTED);
    list.replaceChildren(...completions.map(completionRow), ...listed.map((each, at) => hitRow(each, first + at)));
    if (listing[0] !== completions || listing[1] !== hits) list.scrollTop = 0;
    listing = [completions, hits];
    list.hidden = list.childElementCount === 0;
    drop.hidden = !focused(input) || (list.hidden && note.hidden);
    input.setAttribute("aria-expanded", String(!drop.hidden && !list.hidden));
    const active = list.querySelector<HTMLElement>("[aria-selected=true]");
    if (active !== null && !drop.hidden && (chosen >= 0 || visited)) {
      input.setAttribute("aria-activedescendant", active.id);
      active.scrollIntoView?.({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };

  return {
    element,
    focus() {
      input.focus();
      input.select();
    },
    search(text) {
      input.value = text;
      // a saved notebook may be a stranger's: its regular expressions run only if a person asks for it
      if (!hasRegex(text)) later(seek, 0);
      else count.textContent = "Enter to search";
    },
    update(state) {
      const before = shown;
      shown = state;
      if (state.hits === before.hits && state.hit === before.hit && state.search === before.search) return;
      if (state.search !== before.search || state.hits !== before.hits) visited = false;
      if (!focused(input) && input.value !== state.search) input.value = state.search;
      show();
    },
  };
}

/** What stands below the list: what is wrong, or how to go on. */
function remark(text: string, waits: boolean, problem: string | null, total: number, kept: number): (Node | string)[] {
  const none = text.trim() === "";
  if (waits) return [];
  if (problem !== null) return [problem];
  if (total > 0 && !none) return total > kept ? [`The first ${plain(kept)} can be gone through.`] : [];
  const samples = SYNTAX.map(([sample, meaning]) => el("span", el("code", sample), ` ${meaning}`));
  if (none) return samples;
  const fields = el("span", el("code", FIELDS.map((field) => `${field}:`).join(" ")));
  const idle = el("span", "Attributes that have their default value are not searched.");
  return [...(/\battr/i.test(text) ? [idle] : []), fields, ...samples];
}

/** A hit in words; a chain by the ops of its nodes. */
function inWords(columns: Columns, hit: Hit): { title: string; sub: string; kind: string; full: string } {
  if (hit.chain === undefined) {
    const { title, sub: name, kind } = describe(columns, hit);
    // where a name is no path, the scope says more of the node
    const scope =
      hit.kind === "node" && !name.includes("/") ? columns.str(columns.scopePath[columns.scopeOf(hit)]) : "";
    const sub = scope === "" ? name : `${scope} · ${name}`;
    return { title: elide(title, 48), sub, kind, full: `${title}\n${sub}`.slice(0, 4000) };
  }
  const ops = hit.chain.map((node) => elide(columns.opOf(node), 24));
  const shown = ops.length > 5 ? [...ops.slice(0, 2), `${ops.length - 4} more`, ...ops.slice(-2)] : ops;
  const names = hit.chain.map((node) => `${columns.opOf(node)} ${columns.nameOf({ kind: "node", id: node })}`);
  const scope = columns.str(columns.scopePath[columns.scopeOf(hit)]);
  return {
    title: shown.join(" › "),
    sub: scope || columns.nameOf(hit),
    kind: "chain",
    full: names.join("\n").slice(0, 4000),
  };
}

const NO_STATE = { hits: [], hit: -1, search: "" } as unknown as State;
