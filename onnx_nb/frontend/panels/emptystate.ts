/** Shown in place of a graph that has nothing to draw. */

import { type Columns, VALUE } from "../protocol/columns.ts";
import { bytes, counted } from "../scene/formatting.ts";
import { el } from "./dom.ts";

/** null if there is a node to draw */
export function emptyState(columns: Columns): HTMLElement | null {
  let drawn = 0;
  for (let node = 0; node < columns.nodeCount && drawn === 0; node++) if (!columns.isFolded(node)) drawn++;
  if (drawn > 0) return null;
  const { meta } = columns;
  const weights = columns.valueKind.reduce((sum, kind) => sum + (kind === VALUE.INITIALIZER ? 1 : 0), 0);
  const holds = [
    counted(columns.graphInputs.length, "input"),
    counted(columns.graphOutputs.length, "output"),
    counted(weights, "weight") + (meta.nbytes > 0 ? ` (${bytes(meta.nbytes)})` : ""),
  ];
  const text = meta.nodes === 0 ? "This model has no nodes." : "All nodes of this model compute constants.";
  return el(
    "div.onnx-nb-empty",
    el("b", text),
    el("p", `It has ${holds.join(", ")}.`),
    el("p.onnx-nb-dim", "It may have been saved before the graph was built, or extracted without outputs."),
  );
}
