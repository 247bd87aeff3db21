/** Mounts widgets that consist of tables: an audit of external data, a capture, and the summary of a model. */

import { type AuditData, createExternalData } from "../panels/audit.ts";
import { type CaptureAbout, createCapture } from "../panels/capture.ts";
import { createSummary, type Shapes, type SummaryData } from "../panels/summary.ts";
import { Digest } from "../protocol/capture.ts";
import { failureText } from "../protocol/host.ts";
import { bindLinked, bindTrait } from "../protocol/model.ts";
import type { Named } from "../protocol/viewstate.ts";
import { announceChosen, drawn, type Page, roomBelow, sharing, type Widget } from "./mount.ts";

export const auditWidget = sharing(
  async (part) => (await part("columns")).meta as AuditData,
  (audit, model, _channel, root, signal) => {
    createExternalData(root, audit, { height: Number(model.get("height")) }, signal);
    drawn(root, signal);
  },
);

export const captureWidget = sharing(
  async (part) => new Digest(await part("columns")),
  (digest, model, channel, root, signal) => {
    const options = {
      height: Number(model.get("height")),
      chosen: (name: string) => put(name === "" ? [] : [{ kind: "tensor", name }]),
    };
    const view = createCapture(root, digest, digest.meta as unknown as CaptureAbout, options, signal);
    const choose = ([first]: readonly Named[]): void => view.choose(first?.name ?? "");
    choose(model.get("selection") as Named[]);
    const put = bindTrait<readonly Named[]>(model, "selection", choose, signal);
    bindLinked(model, channel, view.setLinked, signal);
    drawn(root, signal);
  },
);

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
  /** Counts the cost of a run for these sizes; the result arrives through the traits. */
  const count = async (shapes: Shapes): Promise<void> => {
    try {
      await channel.request("costs", { shapes }, { signal });
      problem = "";
    } catch (error) {
      if (signal.aborted) return;
      problem = failureText(error);
    }
    fill();
  };
  /** Counts for tables that are opened before the first count, by a click or from a cell. */
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

export const auditPage: Page = async (root, _about, part, signal) => {
  const audit = (await part("columns")).meta as AuditData;
  createExternalData(root, audit, { height: roomBelow(root, 228, 240) }, signal);
  drawn(root, signal);
};

export const capturePage: Page = async (root, _about, part, signal) => {
  const digest = new Digest(await part("columns"));
  const chosen = (name: string): void => announceChosen(root, name);
  const options = { height: roomBelow(root, 98, 320), chosen };
  const view = createCapture(root, digest, digest.meta as unknown as CaptureAbout, options, signal);
  drawn(root, signal);
  return {
    choose(names) {
      const known = names.find((name) => digest.names.includes(name));
      if (known !== undefined) view.choose(known);
    },
  };
};

export const summaryPage: Page = (root, about, _part, signal) => {
  createSummary(root, about as SummaryData, { expanded: true }, signal);
  drawn(root, signal);
};
