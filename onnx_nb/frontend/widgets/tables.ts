/** Mounts widgets that consist of tables: an audit of external data, a capture, and the summary of a model. */

import { type AuditData, createExternalData } from "../panels/audit.ts";
import { type CaptureAbout, createCapture } from "../panels/capture.ts";
import { createSummary, type ModelPart, type Shapes, type SummaryData } from "../panels/summary.ts";
import { Digest } from "../protocol/capture.ts";
import { failureText } from "../protocol/host.ts";
import { bindLink, bindTrait } from "../protocol/model.ts";
import type { TargetReference } from "../protocol/viewstate.ts";
import { rememberFocus } from "../ui/dom.ts";
import { announceChoice, markDrawn, type Page, roomBelow, sharing, showInGraph, type Widget } from "./mount.ts";

export const auditWidget = sharing(
  async (part) => (await part("columns")).meta as AuditData,
  (audit, model, _channel, root, signal) => {
    createExternalData(root, audit, { height: Number(model.get("height")) }, signal);
    markDrawn(root, signal);
  },
);

export const captureWidget = sharing(
  async (part) => new Digest(await part("columns")),
  (digest, model, channel, root, signal) => {
    const options = {
      height: Number(model.get("height")),
      onChoose: (name: string) => put(name === "" ? [] : [{ kind: "tensor", name }]),
    };
    const view = createCapture(root, digest, digest.meta as unknown as CaptureAbout, options, signal);
    const choose = ([first]: readonly TargetReference[]): void => view.choose(first?.name ?? "");
    choose(model.get("selection") as TargetReference[]);
    const put = bindTrait<readonly TargetReference[]>(model, "selection", choose, signal);
    bindLink(model, channel, view.setLink, signal);
    markDrawn(root, signal);
  },
);

export const summaryWidget: Widget = (model, channel) => (root, signal) => {
  let problem = "";
  const graph = String(model.get("_graph") ?? "");
  const fill = (): void => {
    const focusAgain = rememberFocus(root, () => root.querySelector<HTMLElement>(".onnx-nb-details"));
    const options = {
      expanded: model.get("expanded") === true,
      shapes: model.get("shapes") as Shapes,
      problem,
      onTurn(expanded: boolean): void {
        putExpanded(expanded);
        countIfNeeded();
      },
      onResize: (shapes: Shapes): void => void count(shapes),
      ...(graph !== "" && { onShow: (part: ModelPart): void => showInGraph(graph, part) }),
    };
    createSummary(root, model.get("_summary") as SummaryData, options, signal);
    focusAgain();
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
  const countIfNeeded = (): void => {
    const { cost } = model.get("_summary") as SummaryData;
    if (model.get("expanded") === true && cost == null) void count(model.get("shapes") as Shapes);
  };
  const refresh = (): void => {
    fill();
    countIfNeeded();
  };
  const putExpanded = bindTrait<boolean>(model, "expanded", refresh, signal);
  bindTrait(model, "_summary", fill, signal);
  fill();
  markDrawn(root, signal);
};

export const auditPage: Page = async (root, _about, part, signal) => {
  const audit = (await part("columns")).meta as AuditData;
  createExternalData(root, audit, { height: roomBelow(root, 228, 240) }, signal);
  markDrawn(root, signal);
};

export const capturePage: Page = async (root, _about, part, signal) => {
  const digest = new Digest(await part("columns"));
  const onChoose = (name: string): void => announceChoice(root, name);
  const options = { height: roomBelow(root, 98, 320), onChoose };
  const view = createCapture(root, digest, digest.meta as unknown as CaptureAbout, options, signal);
  markDrawn(root, signal);
  return {
    choose(names) {
      const tensor = names.find((name) => digest.names.includes(name));
      if (tensor !== undefined) view.choose(tensor);
    },
  };
};

export const summaryPage: Page = (root, about, _part, signal) => {
  createSummary(root, about as SummaryData, { expanded: true }, signal);
  markDrawn(root, signal);
};
