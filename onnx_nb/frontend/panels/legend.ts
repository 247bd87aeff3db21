/**
 * What the colors mean: the categories that this model has, or the scale of an overlay with a filter on it. A category
 * that is pressed lights all its nodes, as a search for its ops, and lists them, so that a single op can be lit.
 */

import { type Columns, NODE_FOLDED } from "../protocol/columns.ts";
import { categoryTitle, categoryVariable, createRamp } from "../render/theme.ts";
import { counted, plain } from "../scene/formatting.ts";
import type { Overlay } from "../scene/overlay.ts";
import type { Dispatch, State } from "../scene/state.ts";
import { search } from "../search/search.ts";
import { button, el, elide, fillings, on } from "./dom.ts";

export interface Legend {
  update(state: State, dark: boolean): void;
}

/** Steps of the filter's sliders. */
const STEPS = 200;
/** Ops of the pressed category that have a button of their own. */
const OPS = 16;

export function createLegend(root: HTMLElement, columns: Columns, dispatch: Dispatch, signal: AbortSignal): Legend {
  const next = fillings(signal);
  const known = categoriesOf(columns);
  let shown: { readonly overlay: Overlay | null; readonly dark: boolean; readonly search: string } | undefined;

  /** Lights what a query finds; nothing any more if it is lit. */
  const light = (query: string): void => {
    const lit = shown?.search === query;
    dispatch({ type: "search", text: lit ? "" : query, hits: lit ? [] : search(columns, query, Infinity).hits });
  };
  const categories = (lit: string, round: AbortSignal): void => {
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", "Colors of op categories");
    const press = (query: string, text: string, count: number, swatch: HTMLElement | null): HTMLElement => {
      const element = button("", () => light(query), round, {
        class: "onnx-nb-swatched",
        title: `${counted(count, "node")}; press to light all`,
        "aria-pressed": String(lit === query),
      });
      element.append(...(swatch === null ? [] : [swatch]), elide(text, 40));
      if (swatch === null) element.append(el("span", ` ${plain(count)}`));
      return element;
    };
    for (const { name, ops, count, query } of known) {
      const color = `var(${categoryVariable(name)}, var(--nb-cat-other))`;
      root.append(press(query, categoryTitle(name), count, el("i", { style: { background: color } })));
      if (ops.length < 2 || (lit !== query && !ops.some((op) => op.query === lit))) continue;
      const inner = ops.slice(0, OPS).map((op) => press(op.query, op.name, op.count, null));
      if (ops.length > OPS) inner.push(el("span", `and ${plain(ops.length - OPS)} more`));
      root.append(el("span.onnx-nb-legend-ops", { style: { "border-color": color } }, ...inner));
    }
    root.hidden = known.length === 0;
  };

  return {
    update(state, dark) {
      const { overlay } = state;
      const before = shown;
      shown = { overlay, dark, search: state.search };
      if (overlay === null) {
        if (before?.overlay === null && before.search === state.search) return;
        // the keyboard stays on the button that was pressed
        const at = [...root.querySelectorAll("button")].findIndex((each) => each.matches(":focus"));
        const name = root.querySelectorAll("button")[at]?.textContent;
        root.replaceChildren();
        root.classList.remove("onnx-nb-scale");
        categories(state.search, next());
        if (at >= 0) [...root.querySelectorAll("button")].find((each) => each.textContent === name)?.focus();
        return;
      }
      if (before?.overlay === overlay && before.dark === dark) return;
      if (before?.overlay?.data !== overlay.data || before.dark !== dark) {
        root.replaceChildren();
        root.classList.add("onnx-nb-scale");
        scale(root, overlay, dark, dispatch, next());
      }
      say(root, overlay);
    },
  };
}

interface Category {
  readonly name: string;
  readonly count: number;
  /** finds all its nodes */
  readonly query: string;
  readonly ops: readonly { readonly name: string; readonly count: number; readonly query: string }[];
}

/** The categories that are drawn, with their ops, the most frequent first. */
function categoriesOf(columns: Columns): Category[] {
  const perOp = new Uint32Array(columns.opName.length);
  for (let node = 0; node < columns.nodeCount; node++) {
    if ((columns.nodeFlags[node] & NODE_FOLDED) === 0) perOp[columns.nodeOp[node]]++;
  }
  // an op of two domains is one word of a search
  const counts = new Map<number, Map<string, number>>();
  perOp.forEach((count, op) => {
    if (count === 0) return;
    const ops = counts.get(columns.opCategory[op]) ?? new Map<string, number>();
    const name = columns.str(columns.opName[op]);
    counts.set(columns.opCategory[op], ops.set(name, (ops.get(name) ?? 0) + count));
  });
  const word = (name: string): string => (/^\w+$/.test(name) ? name : `"${name.replace(/["\\]/g, "\\$&")}"`);
  return [...counts]
    .sort(([a], [b]) => a - b)
    .map(([category, inside]) => {
      const ops = [...inside]
        .sort(([, a], [, b]) => b - a)
        .map(([name, count]) => ({ name, count, query: `op:${word(name)}` }));
      return {
        name: columns.meta.categories[category] ?? "other",
        count: ops.reduce((sum, { count }) => sum + count, 0),
        query: `op:${ops.map(({ name }) => word(name)).join("|")}`,
        ops,
      };
    });
}

function scale(root: HTMLElement, overlay: Overlay, dark: boolean, dispatch: Dispatch, signal: AbortSignal): void {
  const { label, reduce, unmatched } = overlay.data;
  root.hidden = false;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", `Colors: ${label}`);
  const slider = (name: string, value: number): HTMLInputElement =>
    el("input.onnx-nb-slider", { type: "range", min: 0, max: STEPS, step: 1, value, "aria-label": name });
  const from = slider("Show from", Math.round(overlay.range.from * STEPS));
  const to = slider("Show up to", Math.round(overlay.range.to * STEPS));
  const filter = (moved: HTMLInputElement): void => {
    const [low, high] = [Number(from.value), Number(to.value)];
    if (low > high) moved.value = String(moved === from ? high : low);
    dispatch({ type: "range", range: { from: Number(from.value) / STEPS, to: Number(to.value) / STEPS } });
  };
  for (const input of [from, to]) on(input, "input", signal, () => filter(input));
  const close = button("×", () => dispatch({ type: "overlay", overlay: null }), signal, {
    class: "onnx-nb-x",
    title: "Color by category again",
    "aria-label": "Close overlay",
  });
  const note = unmatched > 0 ? ` · ${counted(unmatched, "name")} not in the model` : "";
  root.append(
    el("div.onnx-nb-scale-title", el("b", elide(label || "value", 40)), el("span", `${reduce} over scopes${note}`)),
    el(
      "div.onnx-nb-scale-range",
      el("span"),
      el("div.onnx-nb-ramp", { style: { background: createRamp(dark).gradient } }, from, to),
      el("span"),
    ),
    close,
  );
}

/** The ends of what is shown, in numbers. */
function say(root: HTMLElement, overlay: Overlay): void {
  const [low, high] = root.querySelectorAll(".onnx-nb-scale-range > span");
  if (low !== undefined) low.textContent = overlay.say(overlay.at(overlay.range.from));
  if (high !== undefined) high.textContent = overlay.say(overlay.at(overlay.range.to));
}
