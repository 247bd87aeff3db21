/** Mounts two decoders, step by step, and the operations of a step. */

import { createDecoding } from "../panels/decoding.ts";
import { unpack } from "../protocol/codec.ts";
import { detailsOf } from "../protocol/comparison.ts";
import { Steps } from "../protocol/decoding.ts";
import { createDrilling } from "./comparison.ts";
import { markDrawn, type Page, roomBelow, sharing } from "./mount.ts";

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
  const view = createDecoding(root, new Steps(await part("columns")), { height: roomBelow(root, 98, 420) }, signal);
  markDrawn(root, signal, view.redraw);
};
