/** Replaces the inspector when several targets are selected: their totals, and buttons for all of them. */

import { type Columns, SCOPE_KIND, type Target } from "../protocol/columns.ts";
import { failure } from "../protocol/host.ts";
import { countOf, integer } from "../scene/formatting.ts";
import { type State, selectionOf } from "../scene/state.ts";
import { quote } from "../search/query.ts";
import { search } from "../search/search.ts";
import { button, el, elide, facts, fillings, onAbort, settle } from "../ui/dom.ts";
import { copyNames, countedByKind, describe, link, type Panel, type ViewContext } from "./viewcontext.ts";

/** Maximum numbers of rows; the rest is only counted. */
const MAX_LISTED = 200;
const OPS = 24;
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
    const take = press("Extract these", "Extract them as a model of its own, between the tensors at their border", () =>
      dispatch({ type: "extract", targets: boxes }),
    );
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
      ...opList(columns, boxes),
      el("h5", "which"),
      list(columns, targets),
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

/** Counts the nodes of each op, including those in selected scopes. */
function opList(columns: Columns, targets: readonly Target[]): Node[] {
  const counts = new Map<string, number>();
  const nodes = new Set<number>();
  let constants = 0;
  const count = (node: number): void => {
    if (nodes.has(node)) return;
    nodes.add(node);
    if (columns.isFolded(node)) constants++;
    else counts.set(columns.opOf(node), (counts.get(columns.opOf(node)) ?? 0) + 1);
  };
  const stack = targets.filter(({ kind }) => kind === "scope").map(({ id }) => id);
  for (let scope = stack.pop(); scope !== undefined; scope = stack.pop()) {
    columns.membersOf(scope).forEach(count);
    stack.push(...columns.childrenOf(scope));
  }
  for (const { kind, id } of targets) if (kind === "node") count(id);
  if (nodes.size === constants) return [];
  const rows = [...counts].sort(([, a], [, b]) => b - a);
  const items = rows
    .slice(0, OPS)
    .map(([op, count]) => el("li", `${elide(op, 48)} `, el("span.onnx-nb-dim", `×${integer(count)}`)));
  if (rows.length > OPS) items.push(el("li.onnx-nb-dim", `and ${countOf(rows.length - OPS, "other op")}`));
  const constantsNote =
    constants === 0 ? null : el("span.onnx-nb-dim", ` and ${integer(constants)} that only make constants`);
  return [
    el("h5", countOf(nodes.size - constants, "node"), constantsNote),
    el("ul.onnx-nb-list.onnx-nb-ops", ...items),
  ];
}

function list(columns: Columns, targets: readonly Target[]): HTMLElement {
  const items = targets.slice(0, MAX_LISTED).map((target) => {
    const { title, sub } = describe(columns, target);
    const entry = link(elide(title, 60) || "(unnamed)", target, columns.nameOf(target) || title);
    if (target.kind === "node" && sub !== "") entry.append(el("span.onnx-nb-dim", ` ${elide(sub, 60)}`));
    return el("li", entry);
  });
  if (targets.length > MAX_LISTED) items.push(el("li.onnx-nb-dim", `and ${integer(targets.length - MAX_LISTED)} more`));
  return el("ul.onnx-nb-list", ...items);
}
