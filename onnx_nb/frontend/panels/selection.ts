/** Shown in place of the inspector when several things are selected: what they have together, and what to do with them. */

import { type Columns, SCOPE_KIND, type Target } from "../protocol/columns.ts";
import { failure, type GraphHost, type SelectionReply } from "../protocol/host.ts";
import { counted, plain } from "../scene/formatting.ts";
import { type Dispatch, type State, selected } from "../scene/state.ts";
import { search } from "../search/search.ts";
import { countedByKind } from "./announcer.ts";
import { button, copy, el, elide, fillings, on } from "./dom.ts";
import { describe, link } from "./link.ts";

export interface SelectionPanel {
  update(state: State): void;
}

/** More rows than this say nothing that the counts do not. */
const LISTED = 200;
const OPS = 24;
/** While a person goes on selecting nothing is asked. */
const REST_MS = 120;

export function createSelection(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  dispatch: Dispatch,
  say: (text: string) => void,
  signal: AbortSignal,
): SelectionPanel {
  const next = fillings(signal);
  let shown: State | undefined;

  const fill = (state: State): void => {
    const round = next();
    const targets = selected(state);
    root.replaceChildren();
    if (targets.length < 2) return;
    root.scrollTop = 0;

    const figures = el("dl.onnx-nb-rows");
    const note = el("p.onnx-nb-dim", { role: "status" });
    const take = button("Extract these", () => undefined, round, {
      title: "Takes the tensors at their border as inputs and outputs of an extraction",
    });
    take.disabled = true;
    const boxes = targets.filter(({ kind }) => kind !== "tensor");
    root.append(
      el("p.onnx-nb-dim", "selected"),
      el("h4", countedByKind(targets)),
      figures,
      el(
        "div.onnx-nb-row",
        take,
        ...(targets.length === 2
          ? [
              button("Path between", () => between(targets, note), round, {
                title: "Highlight all paths from one to the other",
              }),
            ]
          : []),
        button("Show", () => dispatch({ type: "fit", targets }), round, {
          title: "Bring all of them into view (Shift+F)",
        }),
        button("Copy names", () => void copyNames(columns, targets, say), round, { title: "One a line (Ctrl+C)" }),
        button("Clear", () => dispatch({ type: "select", target: null }), round, { title: "Esc" }),
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
    const timer = window.setTimeout(() => {
      ask(boxes, round).then(
        (reply) => {
          if (round.aborted) return;
          figures.replaceChildren(...reply.rows.flatMap(([label, text]) => [el("dt", label), el("dd", text)]));
          note.textContent = reply.obstacle;
          take.disabled = reply.obstacle !== "";
          on(take, "click", round, () => choose(reply, dispatch));
        },
        (error: unknown) => {
          if (!round.aborted) note.textContent = elide(failure(error).message, 300);
        },
      );
    }, REST_MS);
    round.addEventListener("abort", () => window.clearTimeout(timer), { once: true });
  };

  const between = ([a, b]: readonly Target[], note: HTMLElement): void => {
    const [from, to] = [wordFor(columns, a, "after"), wordFor(columns, b, "before")];
    const [back, forth] = [wordFor(columns, b, "after"), wordFor(columns, a, "before")];
    for (const words of [
      [from, to],
      [back, forth],
    ]) {
      if (words.includes(null)) {
        note.textContent = "One of them has no name of its own to search by.";
        return;
      }
      const text = words.join(" ");
      const { hits, total } = search(columns, text, Infinity);
      if (total === 0) continue;
      dispatch({ type: "search", text, hits });
      note.textContent = `${counted(total, "node")} on the way between them.`;
      return;
    }
    note.textContent = "No path leads from one to the other.";
  };

  return {
    update(state) {
      const before = shown;
      shown = state;
      if (before?.others === state.others && (state.others.length === 0 || before.selection === state.selection)) {
        if (before.live === state.live || state.others.length === 0) return;
      }
      fill(state);
    },
  };
}

/** Puts the names of targets on the clipboard, one a line. */
export async function copyNames(
  columns: Columns,
  targets: readonly Target[],
  say: (text: string) => void,
): Promise<void> {
  const names = targets.map((target) => columns.nameOf(target)).filter((name) => name !== "");
  const done = names.length > 0 && (await copy(names.join("\n")));
  say(names.length === 0 ? "They have no names" : done ? `${counted(names.length, "name")} copied` : "Copy failed");
}

function choose({ inputs, outputs }: SelectionReply, dispatch: Dispatch): void {
  dispatch({ type: "boundary", boundary: { inputs, outputs } });
}

/** The word of a search that means all before or after a target; null if it cannot be named. */
function wordFor(columns: Columns, target: Target, way: "before" | "after"): string | null {
  const quoted = (name: string): string => `${way}:"${name.replace(/["\\]/g, "\\$&")}"`;
  const name = columns.nameOf(target);
  if (
    name !== "" &&
    ((target.kind === "scope" && columns.scopeKind[target.id] === SCOPE_KIND.SCOPE) ||
      columns.find(name, target.kind)?.id === target.id)
  )
    return quoted(name);
  if (target.kind !== "node") return null;
  // a node without a name of its own goes by what it makes
  const made = columns.outputsOf(target.id).find((value) => value >= 0 && columns.valueNameOf(value) !== "");
  return made === undefined ? null : quoted(columns.valueNameOf(made));
}

/** How many of each op, those in selected scopes too. */
function opList(columns: Columns, targets: readonly Target[]): Node[] {
  const counts = new Map<string, number>();
  const seen = new Set<number>();
  let folded = 0;
  const count = (node: number): void => {
    if (seen.has(node)) return;
    seen.add(node);
    if (columns.isFolded(node)) {
      folded++;
      return;
    }
    counts.set(columns.opOf(node), (counts.get(columns.opOf(node)) ?? 0) + 1);
  };
  const stack = targets.filter(({ kind }) => kind === "scope").map(({ id }) => id);
  for (let scope = stack.pop(); scope !== undefined; scope = stack.pop()) {
    columns.membersOf(scope).forEach(count);
    stack.push(...columns.childrenOf(scope));
  }
  for (const { kind, id } of targets) if (kind === "node") count(id);
  if (seen.size === folded) return [];
  const rows = [...counts].sort(([, a], [, b]) => b - a);
  const items = rows
    .slice(0, OPS)
    .map(([op, many]) => el("li", `${elide(op, 48)} `, el("span.onnx-nb-dim", `×${plain(many)}`)));
  if (rows.length > OPS) items.push(el("li.onnx-nb-dim", `and ${counted(rows.length - OPS, "other op")}`));
  const only = folded === 0 ? null : el("span.onnx-nb-dim", ` and ${plain(folded)} that only make constants`);
  return [el("h5", counted(seen.size - folded, "node"), only), el("ul.onnx-nb-list.onnx-nb-ops", ...items)];
}

function list(columns: Columns, targets: readonly Target[]): HTMLElement {
  const items = targets.slice(0, LISTED).map((target) => {
    const { title, sub } = describe(columns, target);
    const entry = link(elide(title, 60) || "(unnamed)", target, columns.nameOf(target) || title);
    if (target.kind === "node" && sub !== "") entry.append(el("span.onnx-nb-dim", ` ${elide(sub, 60)}`));
    return el("li", entry);
  });
  if (targets.length > LISTED) items.push(el("li.onnx-nb-dim", `and ${plain(targets.length - LISTED)} more`));
  return el("ul.onnx-nb-list", ...items);
}
