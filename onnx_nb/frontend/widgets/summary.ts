/** Mounts the summary of a model. */

import { createSummary, type Shapes, type SummaryData } from "../panels/summary.ts";
import { failure } from "../protocol/host.ts";
import { bindTrait } from "../protocol/model.ts";
import { drawn } from "./mount.ts";
import type { Widget } from "./types.ts";

export const summaryWidget: Widget = (model, channel) => (root, signal) => {
  let problem = "";
  const fill = (): void => {
    const held = root.contains(document.activeElement)
      ? (document.activeElement?.getAttribute("aria-label") ?? "")
      : null;
    const options = {
      expanded: model.get("expanded") === true,
      shapes: model.get("shapes") as Shapes,
      problem,
      turned(expanded: boolean): void {
        putExpanded(expanded);
        countOnce();
      },
      resized: (shapes: Shapes): void => void count(shapes),
    };
    createSummary(root, model.get("_summary") as SummaryData, options, signal);
    if (held === null) return;
    const same = [...root.querySelectorAll<HTMLElement>("[aria-label]")].find(
      (each) => each.getAttribute("aria-label") === held,
    );
    (same ?? root.querySelector<HTMLElement>(".onnx-nb-details"))?.focus({ preventScroll: true });
  };
  /** Counts what a run costs for these sizes; what was counted arrives by the traits. */
  const count = async (shapes: Shapes): Promise<void> => {
    try {
      await channel.request("costs", { shapes }, { signal });
      problem = "";
    } catch (error) {
      if (signal.aborted) return;
      const { message, advice } = failure(error);
      problem = `${message} ${advice}`.trim();
    }
    fill();
  };
  /** Counts for tables that are opened before anything was counted, by a click or from a cell. */
  const countOnce = (): void => {
    const { cost } = model.get("_summary") as SummaryData;
    if (model.get("expanded") === true && cost == null) void count(model.get("shapes") as Shapes);
  };
  const opened = (): void => {
    fill();
    countOnce();
  };
  const putExpanded = bindTrait<boolean>(model, "expanded", opened, signal);
  bindTrait(model, "_summary", fill, signal);
  fill();
  drawn(root, signal);
};
