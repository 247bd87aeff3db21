/** The entry of the second bundle: panels of results, which need no graph. As an anywidget module it shows `_kind`. */

import { Channel } from "./model/channel.ts";
import { unpack } from "./model/codec.ts";
import { Digest } from "./model/digest.ts";
import { bytesOf, type Mount, mount, type WidgetModel } from "./mount.ts";
import { type CaptureAbout, createCapture } from "./panels/capture.ts";
import { type AuditData, createExternalData } from "./panels/externaldata.ts";
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
  const follow = (): void => view.choose(String(model.get("selection")));
  follow();
  model.on("change:selection", follow);
  signal.addEventListener("abort", () => model.off("change:selection", follow));
};

const showExternalData: Show = async (root, model, signal) => {
  const { meta } = await unpack(bytesOf(model.get("_audit") as DataView));
  if (signal.aborted) return;
  createExternalData(root, meta as unknown as AuditData, { height: Number(model.get("height")) }, signal);
};

const SHOWN: Readonly<Record<string, Show>> = { capture: showCapture, external_data: showExternalData };

export default {
  render({ model, el }: Mount): () => void {
    return mount({ model, el }, css, async (root, signal) => {
      const show = SHOWN[String(model.get("_kind"))];
      if (show === undefined) throw new Error(`this bundle has no view called '${String(model.get("_kind"))}'`);
      await show(root, model, signal);
      if (signal.aborted) return;
      watchTheme(root, () => undefined, signal);
      root.dataset.state = "drawn";
    });
  },
};
