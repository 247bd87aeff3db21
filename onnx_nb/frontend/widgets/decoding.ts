/** Mounts two decoders, step by step, and the operations of a step. */

import { createDecoding } from "../panels/decoding.ts";
import { unpack } from "../protocol/codec.ts";
import { detailsOf } from "../protocol/comparison.ts";
import { Steps } from "../protocol/decoding.ts";
import { createDrilling } from "./comparison.ts";
import { chartGraph, markDrawn, type Page, roomBelow, sharing } from "./mount.ts";

export const decodingWidget = sharing(
  async (part) => new Steps(await part("columns")),
  (data, model, channel, root, signal) => {
    const height = Number(model.get("height"));
    const drilling = createDrilling(root, height, "← All steps", () => view.redraw(), signal);
    const view = createDecoding(
      root,
      data,
      {
        height,
        ...(data.about.parts.length > 0 && chartGraph(model, channel, "graph")),
        ...(data.about.drills && {
          drill: async (step, abort, progress) =>
            drilling.show(
              await channel.bytes("drill", { name: String(step) }, { signal: abort, progress }),
              async (row, stop) => detailsOf(await unpack(await channel.bytes("detail", { row }, { signal: stop }))),
              abort,
            ),
        }),
      },
      signal,
    );
    markDrawn(root, signal, () => (drilling.view ?? view).redraw());
  },
);

export const decodingPage: Page = async (root, _about, part, signal) => {
  const data = new Steps(await part("columns"));
  const graph = data.about.parts.length > 0 ? { graph: { load: () => part("graph") } } : {};
  const view = createDecoding(root, data, { height: roomBelow(root, 98, 420), ...graph }, signal);
  markDrawn(root, signal, view.redraw);
};
