/** Mounts two graphs side by side. */

import { createDiff } from "../panels/diff.ts";
import { bakedOf } from "../protocol/baked.ts";
import { Columns } from "../protocol/columns.ts";
import { PairData } from "../protocol/diff.ts";
import type { GraphHost } from "../protocol/host.ts";
import { pageHost, sendPicture, sideHost, watchKernel } from "../protocol/kernel.ts";
import { bindTrait } from "../protocol/model.ts";
import { loadPacked, type Parts } from "../protocol/parts.ts";
import { type Named, targetOf } from "../protocol/viewstate.ts";
import type { Page, Widget } from "./types.ts";

/** An entry of the trait `selection`. */
type Selected = Named & { readonly side: (typeof SIDES)[number] };

export const SIDES = ["reference", "candidate"] as const;

/** @param end follows the names of the parts, as in "reference-1" of a step */
export async function loadSides(part: Parts, end = ""): Promise<readonly [Columns, Columns]> {
  const [left, right] = await Promise.all(SIDES.map((side) => part(`${side}${end}`)));
  return [new Columns(left), new Columns(right)];
}

/** Returns the hosts of both graphs on a page. */
export async function pageHosts(part: Parts): Promise<readonly [GraphHost, GraphHost]> {
  const [left, right] = await Promise.all(SIDES.map((side) => part(`baked-${side}`)));
  return [pageHost(bakedOf(left)), pageHost(bakedOf(right))];
}

export const diffWidget: Widget = (model, channel) => {
  const part: Parts = (name) => loadPacked(model, channel, name);
  const loading = Promise.all([loadSides(part), part("differences").then((packed) => new PairData(packed))]);
  loading.catch(() => undefined); // each view reports it
  return async (root, signal) => {
    const [columns, data] = await loading;
    if (signal.aborted) return;
    let live = true;
    const [left = "", right = ""] = model.get("_names") as string[];
    const pair = createDiff(
      root,
      columns,
      data,
      {
        graphs: [
          sideHost(channel, { part: "reference" }, () => live),
          sideHost(channel, { part: "candidate" }, () => live),
        ],
        selected: (side, selection) => putSelection(selection.map((each) => ({ ...each, side: SIDES[side] }))),
        synced: (synced) => putSynced(synced),
        picture(svg) {
          if (live) sendPicture(channel, svg);
        },
      },
      { height: Number(model.get("height")), synced: model.get("synced") === true, names: [left, right] },
      signal,
    );
    const select = (selection: readonly Selected[]): void => {
      const targets = SIDES.map((side, at) =>
        selection.filter((each) => each.side === side).flatMap((each) => targetOf(columns[at], each) ?? []),
      );
      pair.show([targets[0], targets[1]]);
    };
    const putSelection = bindTrait<readonly Selected[]>(model, "selection", select, signal);
    const putSynced = bindTrait<boolean>(model, "synced", pair.setSynced, signal);
    watchKernel(channel, signal, (answers) => {
      live = answers;
      for (const view of pair.views) view.dispatch({ type: "live", live });
    });
  };
};

export const diffPage: Page = async (root, about, part, signal) => {
  const { names } = about as { names: [string, string] };
  const [graphs, columns, data] = await Promise.all([pageHosts(part), loadSides(part), part("differences")]);
  createDiff(
    root,
    columns,
    new PairData(data),
    { graphs, selected: () => undefined, synced: () => undefined },
    { height: Math.max(320, window.innerHeight - 480), synced: true, names },
    signal,
  );
};
