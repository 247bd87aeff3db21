/** What the boxes are colored by: the category of their op, or numbers that the kernel has. */

import type { Colors as Offered } from "../protocol/host.ts";
import type { Dispatch, State } from "../scene/state.ts";
import { el, elide, on } from "./dom.ts";

const CATEGORY = "category";
/** Numbers that the kernel can give of every model; `analysis/view/overlays.py` has them by these names. */
const OWN = ["parameters", "weight bytes", "MACs", "activation bytes"];
/** Numbers that it has once the whole model was captured. */
const CAPTURED = ["seconds", "bytes", "std", "min", "max", "mean", "zeros", "nonfinite"];

function option(name: string): HTMLOptionElement {
  return el("option", { value: name }, name);
}

export interface Colors {
  readonly element: HTMLElement;
  update(state: State): void;
}

/** @param offered the numbers that a page has; a kernel has those above */
export function createColors(dispatch: Dispatch, signal: AbortSignal, offered?: Offered): Colors {
  const listed = offered ?? { own: OWN, captured: CAPTURED };
  const given = el("option", { value: "" });
  const select = el(
    "select.onnx-nb-field.onnx-nb-colors",
    { title: "What the boxes are colored by", "aria-label": "Color" },
    ...[CATEGORY, ...listed.own].map(option),
    given,
  );
  given.hidden = true;
  let captured = false;
  /** what was chosen and has not come yet */
  let asked: string | null = null;
  let shown: Pick<State, "overlay" | "error"> | null = null;
  on(select, "change", signal, () => {
    asked = null;
    if (select.value === CATEGORY) dispatch({ type: "overlay", overlay: null });
    else if (select.value !== "") {
      asked = select.value;
      dispatch({ type: "color", by: asked });
    }
  });
  return {
    element: el("label.onnx-nb-color", "Color ", select),
    update({ overlay, capturedAll, error }) {
      if (shown?.overlay?.data !== overlay?.data || shown?.error !== error) asked = null;
      shown = { overlay, error };
      if ((capturedAll || offered !== undefined) && !captured) {
        captured = true;
        if (listed.captured.length > 0) {
          given.before(el("optgroup", { label: "captured" }, ...listed.captured.map(option)));
        }
      }
      const names = captured ? [...listed.own, ...listed.captured] : listed.own;
      const label = overlay?.data.label;
      const own = label === undefined ? CATEGORY : names.find((name) => name === label);
      given.hidden = own !== undefined;
      if (own === undefined) given.textContent = elide(label || "value", 24);
      const wanted = asked ?? own ?? "";
      if (select.value !== wanted) select.value = wanted;
    },
  };
}
