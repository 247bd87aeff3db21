/** Replaces the inspector when several targets are selected: their totals, and buttons for all of them. */

import { type Columns, SCOPE_KIND, type Target } from "../protocol/columns.ts";
import { failure } from "../protocol/host.ts";
import { countOf } from "../scene/formatting.ts";
import { type State, selectionOf } from "../scene/state.ts";
import { quote } from "../search/query.ts";
import { search } from "../search/search.ts";
import { button, el, elide, facts, fillings, onAbort, settle } from "../ui/dom.ts";
import { list, opList } from "./inspector.ts";
import { copyNames, countedByKind, describe, link, type Panel, type ViewContext } from "./viewcontext.ts";

/** Milliseconds without a change after which the kernel is asked. */
const REST_MS = 120;

export function createSelection(view: ViewContext): Panel {
  const { columns, host, dispatch, signal } = view;
  const element = el("aside.onnx-nb-inspector", { "aria-label": "Selection", tabindex: 0 });
  const next = fillings(signal);
  let lastState: State | undefined;

  const fill = (state: State): void => {
    const round = next();
    const targets = selectionOf(state);
    element.replaceChildren();
    if (targets.length < 2) return;
    element.scrollTop = 0;

    const press = (text: string, title: string, act: () => void): HTMLButtonElement =>
      button(text, act, round, { title });
    const figures = el("div");
    const note = el("p.onnx-nb-dim", { role: "status" });
    const extract = (): void => dispatch({ type: "extract", targets: boxes });
    const take = press("Extract these", "As a model of its own, between the tensors at their border", extract);
    take.disabled = true;
    const boxes = targets.filter(({ kind }) => kind !== "tensor");
    const path = press("Path between", "Highlight all paths from one to the other", () => {
      note.textContent = showPaths(targets);
    });
    element.append(
      el("p.onnx-nb-dim", "selected"),
      el("h4", countedByKind(targets)),
      figures,
      el(
        "div.onnx-nb-row",
        take,
        targets.length === 2 ? path : null,
        press("Show", "Bring all of them into view (Shift+F)", () => dispatch({ type: "fit", targets })),
        press("Copy names", "One a line (Ctrl+C)", () => void copyNames(view, targets)),
        press("Clear", "Esc", () => dispatch({ type: "select", target: null })),
      ),
      note,
      opList(columns, boxes),
      list("which", targets, (target) => {
        const { title, sub } = describe(columns, target);
        const entry = link(elide(title, 60) || "(unnamed)", target, columns.nameOf(target) || title);
        if (target.kind === "node" && sub !== "") entry.append(el("span.onnx-nb-dim", ` ${elide(sub, 60)}`));
        return entry;
      }),
    );
    if (!host.live || host.select === undefined) {
      note.textContent = host.reason ?? "";
      return;
    }
    const ask = host.select.bind(host);
    const fail = (error: unknown): void => note.replaceChildren(elide(failure(error).message, 300));
    const timer = window.setTimeout(() => {
      const show = ({ rows, obstacle }: Awaited<ReturnType<typeof ask>>): void => {
        figures.replaceChildren(facts(rows));
        note.textContent = obstacle;
        take.disabled = obstacle !== "";
      };
      settle(ask(boxes, round), round, show, fail);
    }, REST_MS);
    onAbort(round, () => window.clearTimeout(timer));
  };

  /** Highlights the paths between two targets and returns a note about them. */
  const showPaths = ([a, b]: readonly Target[]): string => {
    for (const [from, to] of [
      [wordFor(columns, a, "after"), wordFor(columns, b, "before")],
      [wordFor(columns, b, "after"), wordFor(columns, a, "before")],
    ]) {
      if (from === null || to === null) return "One of them has no name of its own to search by.";
      const text = `${from} ${to}`;
      const { hits, total } = search(columns, text, Infinity);
      if (total === 0) continue;
      dispatch({ type: "search", text, hits });
      return `${countOf(total, "node")} on the way between them.`;
    }
    return "No path leads from one to the other.";
  };

  return {
    element,
    update(state) {
      const before = lastState;
      lastState = state;
      const isEmpty = state.others.length === 0;
      const isSame = before?.others === state.others && (isEmpty || before.selection === state.selection);
      if (!isSame || (before.live !== state.live && !isEmpty)) fill(state);
    },
  };
}

/** Returns a search term for everything before or after a target; null if it cannot be named. */
function wordFor(columns: Columns, target: Target, way: "before" | "after"): string | null {
  const name = columns.nameOf(target);
  const scope = target.kind === "scope" && columns.scopeKind[target.id] === SCOPE_KIND.SCOPE;
  if (name !== "" && (scope || columns.find(name, target.kind)?.id === target.id)) return `${way}:${quote(name)}`;
  if (target.kind !== "node") return null;
  // a node without a name is found by its output
  const output = columns.outputsOf(target.id).find((value) => value >= 0 && columns.valueNameOf(value) !== "");
  return output === undefined ? null : `${way}:${quote(columns.valueNameOf(output))}`;
}
