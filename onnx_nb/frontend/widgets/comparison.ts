/** Mounts the points of a comparison. */

import { type ComparisonOptions, type ComparisonView, createComparison } from "../panels/comparison.ts";
import type { Step } from "../panels/quantizers.ts";
import { unpack } from "../protocol/codec.ts";
import { type Details, detailsOf, Points } from "../protocol/comparison.ts";
import { bindLinked, bindTrait } from "../protocol/model.ts";
import { announceChosen, drawn, type Page, roomBelow, sharing } from "./mount.ts";

type Detail = ComparisonOptions["detail"];

/** Returns details that were packed with the points, and requests the others. */
function packedOr(points: Points, ask: Detail): Detail {
  return async (row, signal) => {
    const packed = points.detail(row);
    return packed === null ? ask(row, signal) : detailsOf(await unpack(packed));
  };
}

export const comparisonWidget = sharing(
  async (part) => new Points(await part("columns")),
  (points, model, channel, root, signal) => {
    const actions = model.get("_actions") as string[];
    const height = Number(model.get("height"));
    /** @param inside the module whose operations are shown, "" for none */
    const detailIn =
      (inside: string): Detail =>
      async (row, ended): Promise<Details> =>
        detailsOf(await unpack(await channel.bytes("detail", { row, inside }, { signal: ended })));

    let drilled: ComparisonView | null = null;
    const drill: NonNullable<ComparisonOptions["drill"]> = async (name, ended, progress) => {
      const inside = new Points(await unpack(await channel.bytes("drill", { name }, { signal: ended, progress })));
      if (ended.aborted) return "";
      const whole = [...root.childNodes];
      const closing = new AbortController();
      signal.addEventListener("abort", () => closing.abort(), { once: true });
      const go = (): void => {
        closing.abort();
        drilled = null;
        root.replaceChildren(...whole);
        view.redraw();
        root.querySelector<HTMLElement>(".onnx-nb-act")?.focus();
      };
      const back = { text: "← All points", go };
      const detail = packedOr(inside, detailIn(name));
      drilled = createComparison(root, inside, { height, detail, back }, closing.signal);
      root.querySelector("button")?.focus(); // the button that leads back
      if (inside.about.notable >= 0) drilled.choose(inside.text("name", inside.about.notable));
      return "";
    };
    const view = createComparison(
      root,
      points,
      {
        height,
        metric: String(model.get("metric")),
        chosen: (name) => putPoint(name),
        turned: (metric) => putMetric(metric),
        detail: packedOr(points, detailIn("")),
        page: (ended, progress) => channel.bytes("page", {}, { signal: ended, progress }),
        ...(actions.includes("reproduce") && {
          async reproduce(name, ended, progress) {
            const options = { signal: ended, progress };
            return (await channel.value<{ message: string }>("reproduce", { name }, options)).message;
          },
        }),
        ...(actions.includes("drill") && { drill }),
        ...(actions.includes("float") && {
          async change(verb, given, ended, progress) {
            const options = { signal: ended, progress };
            return (await channel.value<{ message: string }>(verb, given, options)).message;
          },
        }),
        steps: model.get("_steps") as readonly Step[],
        rounded: (tensor) => {
          model.set("selection", [{ kind: "tensor", name: tensor }]);
          model.save_changes();
        },
      },
      signal,
    );
    view.choose(String(model.get("point")));
    const putPoint = bindTrait<string>(model, "point", view.choose, signal);
    const putMetric = bindTrait<string>(model, "metric", view.setMetric, signal);
    bindLinked(model, channel, view.setLinked, signal);
    bindTrait<readonly Step[]>(model, "_steps", view.setSteps, signal);
    drawn(root, signal, () => (drilled ?? view).redraw());
  },
);

export const comparisonPage: Page = async (root, about, part, signal) => {
  const points = new Points(await part("points"));
  const lacking =
    "This page was written without the histograms of this point: panel.to_html(path, limit=…) takes more.";
  const detail = packedOr(points, () => Promise.reject(new Error(lacking)));
  const sides = ["candidate", "reference"] as const;
  const chosen = (name: string): void => {
    const row = points.rowOf(name);
    if (row >= 0) announceChosen(root, ...sides.map((side) => points.text(side, row)));
  };
  const { steps } = about as { steps: readonly Step[] };
  const rounded = (tensor: string): void => announceChosen(root, tensor);
  const options = { height: roomBelow(root, 98, 420), detail, chosen, rounded, steps };
  const view = createComparison(root, points, options, signal);
  if (points.about.notable >= 0) view.choose(points.text("name", points.about.notable));
  drawn(root, signal, view.redraw);
  return {
    choose(names) {
      for (let row = 0; row < points.count; row++) {
        if (!sides.some((side) => names.includes(points.text(side, row)))) continue;
        view.choose(points.text("name", row));
        return;
      }
    },
  };
};
