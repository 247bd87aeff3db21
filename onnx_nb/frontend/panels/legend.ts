/**
 * Meaning of the colors: the categories of this model, or the scale of an overlay with a filter on it. Pressing a
 * category highlights its nodes, as a search for its ops does, and lists the ops, so that one can be highlighted; as
 * pressing the color that less frequent labels share lists these.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import type { DiffStatus, PairData } from "../protocol/diff.ts";
import { categoryTitle, categoryVariable, createRamp, labelKeys } from "../render/theme.ts";
import { SIGNS } from "../scene/diffstatus.ts";
import { countOf, integer } from "../scene/formatting.ts";
import { FULL_RANGE, type Overlay } from "../scene/overlay.ts";
import { quote } from "../search/query.ts";
import { search } from "../search/search.ts";
import { button, el, elide, fillings, on, rememberFocus } from "../ui/dom.ts";
import { link, type Panel, type ViewContext } from "./viewcontext.ts";

/** Steps of the filter's sliders. */
const STEPS = 200;
/** Ops of the pressed category, or less frequent labels, that have buttons. */
const OPS = 16;
/** Nodes that are listed because their numbers are the largest. */
const TOP = 10;

/** Fills the legend again; the focus stays on the pressed button. */
function refill(element: HTMLElement, fill: () => void): void {
  const focusAgain = rememberFocus(element, () => null);
  fill();
  focusAgain();
}

/** @param isDark whether the page has a dark theme now */
export function createLegend(view: ViewContext, isDark: () => boolean): Panel {
  const { columns, dispatch, signal } = view;
  const keys = el("div.onnx-nb-keys", { role: "group" });
  const top = el("ol.onnx-nb-top", { "aria-label": "Nodes with the largest numbers", hidden: true });
  const element = el("div.onnx-nb-legend", keys, top);
  const next = fillings(signal);
  const categories = categoriesOf(columns);
  let lastShown: { readonly overlay: Overlay | null; readonly dark: boolean; readonly search: string } | undefined;

  /** Highlights the nodes of a query, or clears them if they are highlighted. */
  const light = (query: string): void => {
    const lit = lastShown?.search === query;
    dispatch({ type: "search", text: lit ? "" : query, hits: lit ? [] : search(columns, query, Infinity).hits });
  };
  const fillCategories = (lit: string, round: AbortSignal): void => {
    keys.replaceChildren();
    keys.setAttribute("aria-label", "Colors of op categories");
    const press = ({ query, count }: Highlight, ...content: (Node | string)[]): HTMLElement =>
      keyOf(count, "light all", lit === query, () => light(query), round, content);
    for (const category of categories) {
      const { name, ops, query } = category;
      const color = `var(${categoryVariable(name)}, var(--nb-cat-other))`;
      keys.append(press(category, el("i", { style: { background: color } }), elide(categoryTitle(name), 40)));
      if (ops.length < 2 || (lit !== query && !ops.some((op) => op.query === lit))) continue;
      const inner = ops.slice(0, OPS).map((op) => press(op, elide(op.name, 40), el("span", ` ${integer(op.count)}`)));
      if (ops.length > OPS) inner.push(el("span", `and ${integer(ops.length - OPS)} more`));
      keys.append(el("span.onnx-nb-legend-ops", { style: { "border-color": color } }, ...inner));
    }
    element.hidden = categories.length === 0 && keys.previousElementSibling === null;
  };
  const titleOf = ({ data: { label, unmatched } }: Overlay, ...notes: string[]): HTMLElement => {
    element.hidden = false;
    keys.setAttribute("aria-label", `Colors: ${label}`);
    if (unmatched > 0) notes.push(`${countOf(unmatched, "name")} not in the model`);
    return el("div.onnx-nb-scale-title", el("b", elide(label || "value", 40)), el("span", notes.join(" · ")));
  };
  const fillLabels = (overlay: Overlay, labels: readonly string[], round: AbortSignal): void => {
    const counts = new Uint32Array(labels.length);
    for (const at of overlay.data.nodes) if (!Number.isNaN(at)) counts[at]++;
    const { range } = overlay;
    const press = (text: string, from: number, to: number, ...swatch: Node[]): HTMLElement => {
      const ownRange = overlay.rangeOf(from, to);
      const lit = range.from === ownRange.from && range.to === ownRange.to;
      const count = counts.subarray(from, to).reduce((sum, count) => sum + count, 0);
      const choose = (): void => dispatch({ type: "range", range: lit ? FULL_RANGE : ownRange });
      return keyOf(count, "show only them", lit, choose, round, [...swatch, elide(text, 40)]);
    };
    const entries = labelKeys(labels).flatMap(({ text, from, to, fill }) => {
      const key = press(text, from, to, el("i", { style: { background: fill } }));
      const ownRange = overlay.rangeOf(from, to);
      if (to - from < 2 || range.from < ownRange.from || range.to > ownRange.to) return [key];
      const last = Math.min(to, from + OPS);
      const inner = labels.slice(from, last).map((name, at) => press(name || "none", from + at, from + at + 1));
      if (last < to) inner.push(el("span", `and ${integer(to - last)} more`));
      return [key, el("span.onnx-nb-legend-ops", { style: { "border-color": fill } }, ...inner)];
    });
    keys.replaceChildren(titleOf(overlay), ...entries);
  };
  const fillScale = (overlay: Overlay, dark: boolean, round: AbortSignal): void => {
    const [from, to] = [slider("Show from", overlay.range.from), slider("Show up to", overlay.range.to)];
    for (const end of [from, to]) {
      on(end, "input", round, () => {
        const [low, high] = [Number(from.value), Number(to.value)];
        if (low > high) end.value = String(end === from ? high : low);
        dispatch({ type: "range", range: { from: Number(from.value) / STEPS, to: Number(to.value) / STEPS } });
      });
    }
    keys.replaceChildren(
      titleOf(overlay, `${overlay.data.reduce} over scopes`),
      el(
        "div.onnx-nb-scale-range",
        el("span"),
        el("div.onnx-nb-ramp", { style: { background: createRamp(dark).gradient } }, from, to),
        el("span"),
      ),
    );
  };

  return {
    element,
    update({ overlay, search }) {
      const before = lastShown;
      if (before?.overlay?.data !== overlay?.data) {
        top.replaceChildren(...(overlay === null ? [] : topRows(columns, overlay)));
        top.hidden = top.childElementCount === 0;
      }
      const dark = isDark();
      lastShown = { overlay, dark, search };
      const labels = overlay?.data.labels;
      element.classList.toggle("onnx-nb-scale", overlay !== null && labels === undefined);
      if (overlay !== null && labels !== undefined) {
        if (before?.overlay === overlay) return;
        refill(keys, () => fillLabels(overlay, labels, next()));
      } else if (overlay !== null) {
        if (before?.overlay?.data !== overlay.data || before.dark !== dark) fillScale(overlay, dark, next());
        const ends = [overlay.range.from, overlay.range.to].map((end) => overlay.say(overlay.at(end)));
        keys.querySelectorAll(".onnx-nb-scale-range > span").forEach((end, at) => void end.replaceChildren(ends[at]));
      } else if (before?.overlay !== null || before.search !== search) {
        refill(keys, () => fillCategories(search, next()));
      }
    },
  };
}

/** Returns a button of the legend, for some nodes. */
function keyOf(
  count: number,
  effect: string,
  lit: boolean,
  press: () => void,
  signal: AbortSignal,
  content: readonly (Node | string)[],
): HTMLElement {
  const title = `${countOf(count, "node")}; press to ${effect}`;
  const key = button("", press, signal, { class: "onnx-nb-swatched", title, "aria-pressed": lit });
  key.append(...content);
  return key;
}

/** Returns the legend of the marks on boxes: how many have each status. */
export function statusLabels(counts: PairData["counts"]): HTMLElement {
  const labels = (Object.keys(SIGNS) as DiffStatus[]).flatMap((status) => {
    const count = counts[status] ?? 0;
    const sign = el("i.onnx-nb-sign", { "aria-hidden": true }, SIGNS[status]);
    return count > 0 ? [el(`span.onnx-nb-status.onnx-nb-${status}`, sign, `${integer(count)} ${status}`)] : [];
  });
  return el("div.onnx-nb-statuses", { role: "group", "aria-label": "Marks" }, ...labels);
}

function slider(name: string, at: number): HTMLInputElement {
  const attributes = { min: 0, max: STEPS, step: 1, value: Math.round(at * STEPS), "aria-label": name };
  return el("input.onnx-nb-slider", { type: "range", ...attributes });
}

/** Returns a row for each of the nodes with the largest numbers. */
function topRows(columns: Columns, overlay: Overlay): HTMLElement[] {
  const { label, reduce, nodes, scopes, labels } = overlay.data;
  const places = topOf(columns, overlay);
  const paths = places.map(([node]) => columns.str(columns.scopePath[columns.scopeOf({ kind: "node", id: node })]));
  const common = commonPath(paths).length;
  return places.map((place, at) => {
    const [target] = place.map((id): Target => ({ kind: "node", id }));
    const text = `${elide(paths[at].slice(common), 40)} ${place.map((node) => columns.opOf(node)).join(", ")}`;
    const number = nodes[target.id];
    const share = reduce === "sum" ? `${((100 * number) / scopes[0]).toFixed(0)}%` : overlay.say(number);
    const title = `${columns.nameOf(target) || columns.opOf(target.id)}\n${label}: ${overlay.say(number)}`;
    return el("li", link(text.trim(), target, title), labels === undefined ? ` ${share}` : null);
  });
}

/** Returns the nodes with the largest numbers, together those that share a time; of labels only where NaN begins. */
function topOf(columns: Columns, { data, spreads }: Overlay): number[][] {
  if (data.labels !== undefined && !spreads) return [];
  const isMember = (x: number, node: number): boolean => !columns.isFolded(node) && (spreads ? x === 0 : x > 0);
  const nodes = [...data.nodes.keys()].filter((node) => isMember(data.nodes[node], node));
  nodes.sort((a, b) => data.nodes[b] - data.nodes[a]);
  const places: number[][] = [];
  for (const node of nodes) {
    const place = places.at(-1);
    // one kernel computes them all
    if (data.label === "seconds" && place !== undefined && data.nodes[place[0]] === data.nodes[node]) place.push(node);
    else if (places.length === TOP) break;
    else places.push([node]);
  }
  return places;
}

/** Returns the part that all paths begin with, up to a slash. */
function commonPath(paths: readonly string[]): string {
  let common = paths[0] ?? "";
  for (const path of paths)
    while (!`${path}/`.startsWith(common)) common = common.slice(0, common.lastIndexOf("/", common.length - 2) + 1);
  return common.slice(0, common.lastIndexOf("/") + 1);
}

/** Nodes highlighted by a search. */
interface Highlight {
  readonly name: string;
  readonly count: number;
  readonly query: string;
}

/** Returns the drawn categories with their ops, the most frequent first. */
function categoriesOf(columns: Columns): (Highlight & { readonly ops: readonly Highlight[] })[] {
  const perOp = new Uint32Array(columns.opName.length);
  for (let node = 0; node < columns.nodeCount; node++) if (!columns.isFolded(node)) perOp[columns.nodeOp[node]]++;
  // an op of two domains is one word in a search
  const counts = new Map<number, Map<string, number>>();
  perOp.forEach((count, op) => {
    if (count === 0) return;
    const ops = counts.get(columns.opCategory[op]) ?? new Map<string, number>();
    const name = columns.str(columns.opName[op]);
    counts.set(columns.opCategory[op], ops.set(name, (ops.get(name) ?? 0) + count));
  });
  const word = (name: string): string => (/^\w+$/.test(name) ? name : quote(name));
  return [...counts]
    .sort(([a], [b]) => a - b)
    .map(([category, inside]) => {
      const ops = Array.from(inside, ([name, count]) => ({ name, count, query: `op:${word(name)}` }));
      ops.sort((a, b) => b.count - a.count);
      return {
        name: columns.meta.categories[category] ?? "other",
        count: ops.reduce((sum, { count }) => sum + count, 0),
        query: `op:${ops.map(({ name }) => word(name)).join("|")}`,
        ops,
      };
    });
}
