/** The entry of the second bundle: panels of results, which need no graph. As an anywidget module it shows `_kind`. */

import { bytesIn, bytesOf, fail, hidePicture, type Mount, mount, rootIn, style, type WidgetModel } from "./mount.ts";
import { type AuditData, createExternalData } from "./panels/audit.ts";
import { type CaptureAbout, createCapture } from "./panels/capture.ts";
import { type ComparisonOptions, type ComparisonView, createComparison } from "./panels/comparison.ts";
import type { Told } from "./panels/task.ts";
import { Digest } from "./protocol/capture.ts";
import { Channel, type Progress } from "./protocol/channel.ts";
import { unpack } from "./protocol/codec.ts";
import { type Details, detailsOf, Points } from "./protocol/comparison.ts";
import { watchTheme } from "./render/theme.ts";
import { css } from "./style/results.ts";

type Show = (root: HTMLElement, model: WidgetModel, signal: AbortSignal) => Promise<void>;

const showCapture: Show = async (root, model, signal) => {
  const saved = model.get("_digest");
  const [packed] =
    saved instanceof DataView ? [saved] : (await new Channel(model, signal).request("columns", {})).buffers;
  if (packed === undefined) throw new Error("the kernel sent no values");
  const digest = new Digest(await unpack(bytesOf(packed)));
  if (signal.aborted) return;
  const chosen = (name: string): void => {
    model.set("selection", name);
    model.save_changes();
  };
  const about = digest.meta as unknown as CaptureAbout;
  const view = createCapture(root, digest, about, { height: Number(model.get("height")), chosen }, signal);
  follow(model, "selection", (name) => view.choose(name), signal);
  follow(model, "_linked", (text) => view.setLinked(text), signal);
};

/** Hands on a text now, and whenever it is another. */
function follow(model: WidgetModel, trait: string, take: (text: string) => void, signal: AbortSignal): void {
  const changed = (): void => take(String(model.get(trait) ?? ""));
  changed();
  model.on(`change:${trait}`, changed);
  signal.addEventListener("abort", () => model.off(`change:${trait}`, changed), { once: true });
}

const showExternalData: Show = async (root, model, signal) => {
  const { meta } = await unpack(bytesOf(model.get("_audit") as DataView));
  if (signal.aborted) return;
  createExternalData(root, meta as unknown as AuditData, { height: Number(model.get("height")) }, signal);
};

/** A picture is drawn when the panel has come to rest. */
const REST_MS = 400;
const NO_KERNEL = "The kernel does not answer, and the notebook was saved without the histograms of this point.";

const showComparison: Show = async (root, model, signal) => {
  const channel = new Channel(model, signal);
  const saved = model.get("_columns");
  const [packed] = saved instanceof DataView ? [saved] : (await channel.request("columns", {})).buffers;
  if (packed === undefined) throw new Error("the kernel sent no points");
  const points = new Points(await unpack(bytesOf(packed)));
  if (signal.aborted) return;
  const verbs = (model.get("_verbs") as string[] | undefined) ?? [];
  const set = (trait: string, value: string): void => {
    model.set(trait, value);
    model.save_changes();
  };
  const asked = async (row: number, inside: string, ended: AbortSignal): Promise<Details> => {
    const { buffers } = await channel.request("detail", { row, inside }, { signal: ended });
    if (buffers[0] === undefined) throw new Error(NO_KERNEL);
    return detailsOf(await unpack(bytesOf(buffers[0])));
  };
  let drilled: ComparisonView | null = null;
  const options: ComparisonOptions = {
    height: Number(model.get("height")),
    metric: String(model.get("metric")),
    chosen: (name) => set("selection", name),
    turned: (metric) => set("metric", metric),
    detail: packedOr(points, (row, ended) => asked(row, "", ended)),
    async page(ended, told) {
      const { buffers } = await channel.request("page", {}, working(ended, told));
      if (buffers[0] === undefined) throw new Error("the kernel sent no page");
      return bytesOf(buffers[0]);
    },
    ...(verbs.includes("isolate") && {
      async isolate(name: string, ended: AbortSignal, told: Told) {
        const { value } = await channel.request("isolate", { name }, working(ended, told));
        return (value as { message: string }).message;
      },
    }),
    ...(verbs.includes("drill") && {
      async drill(name: string, ended: AbortSignal, told: Told) {
        const { buffers } = await channel.request("drill", { name }, working(ended, told));
        if (buffers[0] === undefined) throw new Error("the kernel sent no operations");
        const inside = new Points(await unpack(bytesOf(buffers[0])));
        if (ended.aborted) return;
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
        drilled = createComparison(
          root,
          inside,
          {
            height: Number(model.get("height")),
            detail: packedOr(inside, (row, stopped) => asked(row, name, stopped)),
            back: { text: "← All points", go },
          },
          closing.signal,
        );
        root.querySelector("button")?.focus(); // the one that leads back
        if (inside.about.notable >= 0) drilled.choose(inside.text("name", inside.about.notable));
      },
    }),
  };
  const view = createComparison(root, points, options, signal);
  watchTheme(root, () => (drilled ?? view).redraw(), signal);
  follow(model, "selection", (name) => view.choose(name), signal);
  follow(model, "metric", (metric) => view.setMetric(metric), signal);
  follow(model, "_linked", (text) => view.setLinked(text), signal);
  const resting = setTimeout(() => {
    // the live panel is there all the same
    channel.request("picture", { svg: view.svg() }).catch(() => undefined);
  }, REST_MS);
  signal.addEventListener("abort", () => clearTimeout(resting));
};

function working(signal: AbortSignal, told: Told): { signal: AbortSignal; progress: (progress: Progress) => void } {
  return { signal, progress: ({ fraction, message }) => told(fraction, message) };
}

/** What came along with the points, else what is asked for. */
function packedOr(points: Points, ask: ComparisonOptions["detail"]): ComparisonOptions["detail"] {
  return async (row, signal) => {
    const packed = points.detail(row);
    return packed === null ? ask(row, signal) : detailsOf(await unpack(packed));
  };
}

const SHOWN: Readonly<Record<string, Show>> = {
  capture: showCapture,
  comparison: showComparison,
  external_data: showExternalData,
};

export default {
  render({ model, el }: Mount): () => void {
    return mount({ model, el }, css, async (root, signal) => {
      const show = SHOWN[String(model.get("_kind"))];
      if (show === undefined) throw new Error(`this bundle has no view called '${String(model.get("_kind"))}'`);
      if (model.get("_picture_id") !== undefined) hidePicture(el, model);
      await show(root, model, signal);
      if (signal.aborted) return;
      if (show !== showComparison) watchTheme(root, () => undefined, signal);
      root.dataset.state = "drawn";
    });
  },
};

/** An exported page has its points in an element; a notebook has none. */
async function mountPage(element: HTMLElement): Promise<void> {
  const { signal } = new AbortController();
  style(document.body, css);
  const root = rootIn(document.body, "comparison");
  try {
    const points = new Points(await unpack(bytesIn(element)));
    const lacking =
      "This page was written without the histograms of this point: panel.to_html(path, limit=…) takes more.";
    const detail = packedOr(points, () => Promise.reject(new Error(lacking)));
    const height = Math.max(420, window.innerHeight - 110);
    const view = createComparison(root, points, { height, detail }, signal);
    watchTheme(root, () => view.redraw(), signal);
    if (points.about.notable >= 0) view.choose(points.text("name", points.about.notable));
    root.dataset.state = "drawn";
  } catch (error) {
    fail(root, error);
  }
}

const given = document.getElementById("onnx-nb-points");
if (given !== null) void mountPage(given);
