/** The bar of lenses: what the boxes are colored by, each one press away; the kernel runs the model where one needs it. */

import type { Action, Command, State } from "../scene/state.ts";
import { button, el, elide, on } from "../ui/dom.ts";
import type { Panel, ViewContext } from "./viewcontext.ts";

/** Name of the categories of ops, which need no numbers. */
const CATEGORY = "";
/** Word, name of the numbers as `analysis/view/overlays.py` and `widgets/_graphs.py` have it, explanation. */
export const LENSES: readonly (readonly [word: string, name: string, title: string])[] = [
  ["Kind", CATEGORY, "What the nodes do"],
  ["Size", "weight bytes", "Bytes of the weights"],
  ["MACs", "MACs", "Multiplications and additions of a run"],
  ["Time", "time", "Time of a run, by node: measures the model"],
  ["Values", "std", "Standard deviation of the values: runs the model"],
  ["NaN", "NaN", "Where NaN or Inf begins, and where it spreads: runs the model"],
  ["Error", "error", "Error against the other model of the latest comparison in a cell"],
];
/** Less common numbers: of any model, and of a captured one. */
const MODEL_COLORS = ["parameters", "activation bytes"];
const CAPTURE_COLORS = ["seconds", "bytes", "min", "max", "mean", "zeros", "nonfinite"];
/** Numbers of a capture; a lens of one captures first. */
export const OF_CAPTURE: ReadonlySet<string> = new Set([...CAPTURE_COLORS, "std", "NaN"]);

/** Returns the action that colors by these numbers. */
export function lensAction(name: string): Action | Command {
  return name === CATEGORY ? { type: "overlay", overlay: null } : { type: "color", by: name };
}

export function createLenses({ host, dispatch, signal }: ViewContext): Panel {
  const element = el("div.onnx-nb-lenses", { role: "group", "aria-label": "Color by", hidden: !host.overlay });
  const page = host.pageData?.colors;
  const names = page === undefined ? null : new Set([CATEGORY, ...page.own, ...page.captured]);
  const choose = (by: string): void => dispatch(lensAction(by));
  const buttons = LENSES.filter(([, name]) => names === null || names.delete(name)).map(([word, name, title]) => {
    const lens = button(word, () => choose(name), signal, { title, "aria-label": `Color by ${word}` });
    element.append(lens);
    return { name, lens };
  });
  const others = names === null ? [...MODEL_COLORS, ...CAPTURE_COLORS] : [...names];
  const head = el("option", { value: "" }, "more");
  const attributes = { title: "Other numbers to color by", "aria-label": "Color", hidden: others.length === 0 };
  const options = others.map((name) => el("option", { value: name }, name));
  const select = el("select.onnx-nb-field", attributes, head, ...options);
  on(select, "change", signal, () => choose(select.value));
  element.append(select);
  let last: Pick<State, "overlay" | "color" | "error"> | null = null;
  return {
    element,
    update({ overlay, color, error }) {
      if (last?.overlay?.data === overlay?.data && last?.color === color && last?.error === error) return;
      last = { overlay, color, error };
      const name = overlay === null ? CATEGORY : (color ?? overlay.data.label);
      for (const { name: own, lens } of buttons) lens.setAttribute("aria-pressed", String(own === name));
      // what a cell chose has a name of its own
      const isOther = name !== CATEGORY && !buttons.some(({ name: own }) => own === name);
      const custom = isOther && !others.includes(name);
      head.textContent = custom ? elide(overlay?.data.label || "value", 24) : "more";
      select.value = isOther && !custom ? name : "";
      select.classList.toggle("onnx-nb-pressed", isOther);
    },
  };
}
