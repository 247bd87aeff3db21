/** Mounts the values of a capture. */

import { type CaptureAbout, createCapture } from "../panels/capture.ts";
import { Digest } from "../protocol/capture.ts";
import { bindTrait } from "../protocol/model.ts";
import { loadPacked } from "../protocol/parts.ts";
import type { Named } from "../protocol/viewstate.ts";
import { drawn } from "./mount.ts";
import type { Widget } from "./types.ts";

export const captureWidget: Widget = (model, channel) => {
  const loading = loadPacked(model, channel, "columns").then((packed) => new Digest(packed));
  loading.catch(() => undefined); // each view reports it
  return async (root, signal) => {
    const digest = await loading;
    if (signal.aborted) return;
    const options = {
      height: Number(model.get("height")),
      chosen: (name: string) => put(name === "" ? [] : [{ kind: "tensor", name }]),
    };
    const view = createCapture(root, digest, digest.meta as unknown as CaptureAbout, options, signal);
    const choose = ([first]: readonly Named[]): void => view.choose(first?.name ?? "");
    choose(model.get("selection") as Named[]);
    view.setLinked(String(model.get("_linked")));
    const put = bindTrait<readonly Named[]>(model, "selection", choose, signal);
    bindTrait<string>(model, "_linked", view.setLinked, signal);
    drawn(root, signal);
  };
};
