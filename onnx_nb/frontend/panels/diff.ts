/** The panel of a diff of two models: both graphs side by side, synchronized, and the list of differences. */

import type { Columns, Target } from "../protocol/columns.ts";
import { type Change, type DiffStatus, type PairData, type SideOf, wordsOf } from "../protocol/diff.ts";
import { DiffStatuses, SIGNS } from "../scene/diffstatus.ts";
import { countOf, integer } from "../scene/formatting.ts";
import { BOX } from "../scene/scene.ts";
import { button, createAnnouncer, el, elide, on, onLetters } from "../ui/dom.ts";
import { createGraphPair, type GraphPair, type GraphPairHost, type GraphPairOptions, ROLES } from "./graphpair.ts";
import { fittingHeight } from "./graphview.ts";
import { otherSide } from "./synchronizer.ts";

export function createDiff(
  root: HTMLElement,
  columns: readonly [Columns, Columns],
  data: PairData,
  host: Omit<GraphPairHost, "counterpartFacts">,
  options: Pick<GraphPairOptions, "synced" | "names"> & { readonly height?: number },
  signal: AbortSignal,
): GraphPair {
  const { element: live, announce } = createAnnouncer();
  const goTo = (change: Change, text: string): void => {
    const [left, right] = [targetOf(change, 0), targetOf(change, 1)];
    const side: SideOf = left === null && right !== null ? 1 : 0;
    const target = left ?? right;
    pair.lead(side);
    pair.views[side].dispatch({ type: "select", target });
    if (target !== null) pair.views[side].dispatch({ type: "reveal", target, toCenter: true });
    announce(text);
  };
  const list = createDifferenceList(data, goTo, signal);
  const height = fittingHeight(options.height, MARGIN, [280, 460]);
  const pair = createGraphPair(
    root,
    columns,
    data,
    { ...host, counterpartFacts: (side, target, name) => comparedWith(columns[side], data, side, target, name) },
    { ...options, height, titles: ROLES, tools: list.tools, list: list.element },
    signal,
  );
  root.append(live);
  onLetters(root, { n: () => list.step(1), p: () => list.step(-1) }, signal);
  Object.assign(root, { onnxNb: pair }); // for tests and tools
  return pair;
}

function targetOf({ nodes, tensors }: Change, side: SideOf): Target | null {
  if (nodes[side] >= 0) return { kind: "node", id: nodes[side] };
  return tensors[side] >= 0 ? { kind: "tensor", id: tensors[side] } : null;
}

/** Returns what the inspector shows about a target and its counterpart. */
function comparedWith(columns: Columns, data: PairData, side: SideOf, target: Target, name: string) {
  const rows: [string, string][] = [[`in ${ROLES[otherSide(side)]}`, name]];
  if (target.kind === "scope") {
    const { text } = new DiffStatuses(data.statuses(side)).say(BOX.SCOPE, target.id);
    rows.push(["differs", text || "no"]);
    return rows;
  }
  const changes = data.about(side, target, columns);
  for (const change of changes) {
    const inside = target.kind === "node" && change.nodes[side] !== target.id;
    const label = inside ? `${change.kind === "weight" ? "weight" : "constant"} ${change.name}` : "differs";
    rows.push([label, wordsOf(change)]);
  }
  const match = changes.find(({ how }) => how !== "");
  if (match !== undefined) rows.push(["matched by", match.how]);
  return rows;
}

/** Pixels of a notebook's window that the list and all else around the graphs takes. */
const MARGIN = 440;
const KINDS: readonly DiffStatus[] = ["removed", "added", "changed"];
/** Maximum number of rows in the page; a filter leads to the others. */
const ROWS = 400;

/** Creates the list of differences, with a filter by words and by kind, and steps through them. */
function createDifferenceList(data: PairData, onChoose: (change: Change, text: string) => void, signal: AbortSignal) {
  const count = el("span.onnx-nb-pair-count");
  const list = el("ul.onnx-nb-changes", { "aria-label": "Differences" });
  const labels = { placeholder: "Filter differences", "aria-label": "Filter differences" };
  const field = el("input.onnx-nb-field.onnx-nb-pair-filter", { type: "search", ...labels });
  const hidden = new Set<DiffStatus>();
  let shownChanges: readonly number[] = [];
  let at = -1;

  const chip = (kind: DiffStatus): HTMLElement => {
    const press = (): void => {
      if (!hidden.delete(kind)) hidden.add(kind);
      element.setAttribute("aria-pressed", String(!hidden.has(kind)));
      fill();
    };
    const title = `List what was ${kind}`;
    const element = button("", press, signal, { class: `onnx-nb-chip onnx-nb-${kind}`, title, "aria-pressed": true });
    element.append(el("i", { "aria-hidden": true }, SIGNS[kind]), `${integer(data.counts[kind] ?? 0)} ${kind}`);
    return element;
  };
  const row = (index: number): HTMLElement => {
    const change = data.changes[index];
    const press = button("", () => goTo(index), signal, { class: "onnx-nb-change", data: { change: String(index) } });
    press.append(
      el(`i.onnx-nb-sign.onnx-nb-${change.what}`, { "aria-hidden": true }, SIGNS[change.what]),
      el("b", elide(change.op || change.kind, 40)),
      el("span.onnx-nb-mono.onnx-nb-ellipsis", { title: change.name.slice(0, 4000) }, elide(change.name, 90)),
      el("span.onnx-nb-change-words", elide(wordsOf(change), 160)),
      el("span.onnx-nb-dim", change.how === "" || change.how === "name" ? "" : `by ${change.how}`),
    );
    return el("li", press);
  };
  const fill = (): void => {
    const words = field.value.trim().toLowerCase().split(/\s+/);
    shownChanges = data.changes.flatMap((change, index) => {
      const text = `${change.what} ${change.op} ${change.name} ${wordsOf(change)} ${change.how}`.toLowerCase();
      return !hidden.has(change.what) && words.every((word) => text.includes(word)) ? [index] : [];
    });
    list.replaceChildren(...shownChanges.slice(0, ROWS).map(row));
    const remark = (text: string): void => list.append(el("li.onnx-nb-dim", text));
    const moreCount = shownChanges.length - Math.min(shownChanges.length, ROWS) + data.total - data.changes.length;
    if (moreCount > 0) remark(`${countOf(moreCount, "more difference")}; use the filter to find them`);
    if (data.changes.length === 0) remark("The two models are the same.");
    else if (shownChanges.length === 0) remark("No difference fits the filter.");
    update();
  };
  const update = (): void => {
    const place = shownChanges.indexOf(at);
    const total = integer(shownChanges.length);
    count.textContent = shownChanges.length === 0 ? "none" : place < 0 ? total : `${integer(place + 1)} of ${total}`;
    for (const element of list.querySelectorAll<HTMLElement>(".onnx-nb-change")) {
      if (element.dataset.change !== String(at)) {
        element.removeAttribute("aria-current");
        continue;
      }
      element.setAttribute("aria-current", "true");
      // only the list scrolls, not the notebook
      const [top, height] = [element.offsetTop, element.offsetHeight];
      if (top < list.scrollTop) list.scrollTop = top;
      else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
    }
    back.disabled = next.disabled = shownChanges.length === 0;
  };
  const goTo = (index: number): void => {
    const change = data.changes[index];
    at = index;
    update();
    onChoose(change, `${count.textContent}: ${change.op || change.kind} ${change.name} ${wordsOf(change)}`);
  };
  const step = (by: 1 | -1): void => {
    if (shownChanges.length === 0) return;
    const place = shownChanges.indexOf(at);
    const from = place < 0 && by < 0 ? 0 : place;
    goTo(shownChanges[(from + by + shownChanges.length) % shownChanges.length]);
  };
  const arrow = (text: string, by: 1 | -1, name: string, key: string): HTMLButtonElement =>
    button(text, () => step(by), signal, { class: "onnx-nb-small", title: `${name} (${key})`, "aria-label": name });
  const back = arrow("‹", -1, "Previous difference", "p");
  const next = arrow("›", 1, "Next difference", "n");
  on(field, "input", signal, fill);
  fill();

  const message = data.message[0]?.toUpperCase() + data.message.slice(1);
  const about = el("b", data.total === 0 ? message : countOf(data.total, "difference"));
  const chips = KINDS.filter((kind) => (data.counts[kind] ?? 0) > 0).map(chip);
  return {
    /** for the bar: counts by kind, the filter, and the step buttons */
    tools: [about, ...chips, field, back, count, next],
    element: list,
    step,
  };
}
