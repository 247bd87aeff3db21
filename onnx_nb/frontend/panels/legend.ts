/** What the colours mean: the categories that this model has, or the scale of an overlay with a filter on it. */

import { type Columns, NODE_FOLDED } from "../model/columns.ts";
import { createRamp } from "../render/ramp.ts";
import { categoryTitle, categoryVariable } from "../render/theme.ts";
import type { Overlay } from "../scene/overlay.ts";
import type { Dispatch, State } from "../scene/state.ts";
import { button, counted, el, elide, fillings } from "./dom.ts";

export interface Legend {
  update(state: State, dark: boolean): void;
}

/** Steps of the filter's sliders. */
const STEPS = 200;

export function createLegend(root: HTMLElement, columns: Columns, dispatch: Dispatch, signal: AbortSignal): Legend {
  const next = fillings(signal);
  let shown: Overlay | null | undefined;
  let dark: boolean | undefined;
  return {
    update(state, nowDark) {
      const { overlay } = state;
      if (shown === overlay && (dark === nowDark || overlay === null)) return;
      const same = shown != null && overlay !== null && shown.data === overlay.data && dark === nowDark;
      shown = overlay;
      dark = nowDark;
      if (same) {
        say(root, overlay);
        return;
      }
      root.replaceChildren();
      const round = next();
      if (overlay === null) categories(root, columns);
      else scale(root, overlay, nowDark, dispatch, round);
      root.classList.toggle("onnx-nb-scale", overlay !== null);
    },
  };
}

function categories(root: HTMLElement, columns: Columns): void {
  const perOp = new Uint32Array(columns.opName.length);
  for (let node = 0; node < columns.nodeCount; node++) {
    if ((columns.nodeFlags[node] & NODE_FOLDED) === 0) perOp[columns.nodeOp[node]]++;
  }
  const counts = new Map<number, number>();
  perOp.forEach((count, op) => {
    const category = columns.opCategory[op];
    if (count > 0) counts.set(category, (counts.get(category) ?? 0) + count);
  });
  root.setAttribute("aria-label", "Colours of op categories");
  root.setAttribute("role", "list");
  for (const [category, count] of [...counts].sort(([a], [b]) => a - b)) {
    const name = columns.meta.categories[category] ?? "other";
    root.append(
      el(
        "span",
        { title: counted(count, "node"), attrs: { role: "listitem" } },
        el("i", { style: { background: `var(${categoryVariable(name)}, var(--nb-cat-other))` } }),
        categoryTitle(name),
      ),
    );
  }
  root.hidden = counts.size === 0;
}

function scale(root: HTMLElement, overlay: Overlay, dark: boolean, dispatch: Dispatch, signal: AbortSignal): void {
  const { label, reduce, unmatched } = overlay.data;
  root.hidden = false;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", `Colours: ${label}`);
  const slider = (name: string, value: number): HTMLInputElement =>
    el("input", {
      class: "onnx-nb-slider",
      attrs: { type: "range", min: 0, max: STEPS, step: 1, value, "aria-label": name },
    });
  const from = slider("Show from", Math.round(overlay.range.from * STEPS));
  const to = slider("Show up to", Math.round(overlay.range.to * STEPS));
  const filter = (moved: HTMLInputElement): void => {
    const [low, high] = [Number(from.value), Number(to.value)];
    if (low > high) moved.value = String(moved === from ? high : low);
    dispatch({ type: "range", range: { from: Number(from.value) / STEPS, to: Number(to.value) / STEPS } });
  };
  for (const input of [from, to]) input.addEventListener("input", () => filter(input), { signal });
  const close = button("×", () => dispatch({ type: "overlay", overlay: null }), signal, {
    class: "onnx-nb-x",
    title: "Colour by category again",
    attrs: { "aria-label": "Close overlay" },
  });
  const note = unmatched > 0 ? ` · ${counted(unmatched, "name")} not in the model` : "";
  root.append(
    el(
      "div",
      { class: "onnx-nb-scale-title" },
      el("b", {}, elide(label || "value", 40)),
      el("span", {}, `${reduce} over scopes${note}`),
      close,
    ),
    el("div", { class: "onnx-nb-ramp", style: { background: createRamp(dark).gradient } }, from, to),
    el("div", { class: "onnx-nb-scale-ends" }, el("span"), el("span")),
  );
  say(root, overlay);
}

/** The ends of what is shown, in numbers. */
function say(root: HTMLElement, overlay: Overlay): void {
  const [low, high] = root.querySelectorAll(".onnx-nb-scale-ends > span");
  if (low !== undefined) low.textContent = overlay.say(overlay.at(overlay.range.from));
  if (high !== undefined) high.textContent = overlay.say(overlay.at(overlay.range.to));
}
