/** Mounts the points of a comparison. */

import { type ComparisonOptions, type ComparisonView, createComparison } from "../panels/comparison.ts";
import type { FloatStep } from "../panels/quantizers.ts";
import { unpack } from "../protocol/codec.ts";
import { detailsOf, Points } from "../protocol/comparison.ts";
import { bindLink, bindTrait } from "../protocol/model.ts";
import { announceChoice, chartGraph, markDrawn, type Page, roomBelow, sharing } from "./mount.ts";

type LoadDetail = ComparisonOptions["detail"];

/** Returns details that were packed with the points, and requests the others. */
function packedOr(points: Points, ask: LoadDetail): LoadDetail {
  return async (row, signal) => {
    const detail = points.detail(row);
    return detail === null ? ask(row, signal) : detailsOf(await unpack(detail));
  };
}

/** Shows a comparison of what is inside of a point or a step in place of the panel, with a button that leads back. */
export function createDrilling(
  root: HTMLElement,
  height: number,
  text: string,
  onEnd: () => void,
  signal: AbortSignal,
) {
  const drilling = {
    view: null as ComparisonView | null,
    /** Shows packed points, and returns "". */
    async show(bytes: Uint8Array, ask: LoadDetail, abort: AbortSignal): Promise<string> {
      const inside = new Points(await unpack(bytes));
      if (abort.aborted) return "";
      const children = [...root.childNodes];
      const closing = new AbortController();
      signal.addEventListener("abort", () => closing.abort(), { once: true });
      const go = (): void => {
        closing.abort();
        drilling.view = null;
        root.replaceChildren(...children);
        onEnd();
        root.querySelector<HTMLElement>(".onnx-nb-act")?.focus();
      };
      const options = { height, detail: packedOr(inside, ask), back: { text, go } };
      drilling.view = createComparison(root, inside, options, closing.signal);
      root.querySelector("button")?.focus(); // the button that leads back
      if (inside.about.notable >= 0) drilling.view.choose(inside.text("name", inside.about.notable));
      return "";
    },
  };
  return drilling;
}

export const comparisonWidget = sharing(
  async (part) => new Points(await part("columns")),
  (points, model, channel, root, signal) => {
    const actions = model.get("_actions") as string[];
    const height = Number(model.get("height"));
    /** @param inside the module whose operations are shown, "" for none */
    const detailIn = (inside: string): LoadDetail => {
      return async (row, signal) => detailsOf(await unpack(await channel.bytes("detail", { row, inside }, { signal })));
    };

    const drilling = createDrilling(root, height, "← All points", () => view.redraw(), signal);
    const drill: NonNullable<ComparisonOptions["drill"]> = async (name, abort, progress) =>
      drilling.show(await channel.bytes("drill", { name }, { signal: abort, progress }), detailIn(name), abort);
    const view = createComparison(
      root,
      points,
      {
        height,
        metric: String(model.get("metric")),
        onChoose: (name) => putPoint(name),
        onMetric: (metric) => putMetric(metric),
        detail: packedOr(points, detailIn("")),
        page: (abort, progress) => channel.bytes("page", {}, { signal: abort, progress }),
        ...(actions.includes("reproduce") && {
          reproduce: (name, abort, progress) => channel.value("reproduce", { name }, { signal: abort, progress }),
        }),
        ...(actions.includes("drill") && { drill }),
        ...(actions.includes("float") && {
          change: (verb, parameters, abort, progress) => channel.value(verb, parameters, { signal: abort, progress }),
        }),
        ...(actions.includes("range") && chartGraph(model, channel, "graph")),
        steps: model.get("_steps") as readonly FloatStep[],
        onQuantizer: (tensor) => {
          model.set("selection", [{ kind: "tensor", name: tensor }]);
          model.save_changes();
        },
      },
      signal,
    );
    view.choose(String(model.get("point")));
    const putPoint = bindTrait<string>(model, "point", view.choose, signal);
    const putMetric = bindTrait<string>(model, "metric", view.setMetric, signal);
    bindLink(model, channel, view.setLink, signal);
    bindTrait<readonly FloatStep[]>(model, "_steps", view.setSteps, signal);
    markDrawn(root, signal, () => (drilling.view ?? view).redraw());
  },
);

const LACKING = "This page was written without the histograms of this point: panel.to_html(path, limit=…) takes more.";

export const comparisonPage: Page = async (root, about, part, signal) => {
  const points = new Points(await part("points"));
  const sides = ["candidate", "reference"] as const;
  const onChoose = (name: string): void => {
    const row = points.rowOf(name);
    if (row >= 0) announceChoice(root, ...sides.map((side) => points.text(side, row)));
  };
  const { steps, graph } = about as { steps: readonly FloatStep[]; graph?: boolean };
  const options = {
    height: roomBelow(root, 98, 420),
    detail: packedOr(points, () => Promise.reject(new Error(LACKING))),
    onChoose,
    onQuantizer: (tensor: string): void => announceChoice(root, tensor),
    steps,
    ...(graph && { graph: { load: () => part("graph") } }),
  };
  const view = createComparison(root, points, options, signal);
  if (points.about.notable >= 0) view.choose(points.text("name", points.about.notable));
  markDrawn(root, signal, view.redraw);
  return {
    choose(names) {
      const rows = Array.from({ length: points.count }, (_, row) => row);
      const row = rows.find((at) => sides.some((side) => names.includes(points.text(side, at))));
      if (row !== undefined) view.choose(points.text("name", row));
    },
  };
};
