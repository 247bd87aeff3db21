/** Mounts two graphs side by side: of a comparison, or before and after a simplification. */

import { createDiff } from "../panels/diff.ts";
import { Simplification } from "../panels/simplification.ts";
import { NO_KERNEL } from "../protocol/channel.ts";
import type { Packed } from "../protocol/codec.ts";
import { Columns } from "../protocol/columns.ts";
import { PairData } from "../protocol/diff.ts";
import type { GraphHost } from "../protocol/host.ts";
import { bakedOf, noKernel, pageHost, sideHost } from "../protocol/kernel.ts";
import { bindTrait, loadPacked, type Parts, type WidgetModel } from "../protocol/model.ts";
import { type Account, SimplificationData } from "../protocol/simplification.ts";
import { type Named, targetOf } from "../protocol/viewstate.ts";
import { drawn, type Page, roomBelow, sharing, type Widget } from "./mount.ts";

/** An entry of the trait `selection`. */
type Selected = Named & { readonly side: (typeof SIDES)[number] };

const SIDES = ["reference", "candidate"] as const;

type Loaded<T> = Promise<{ readonly columns: readonly [Columns, Columns]; readonly data: T }>;

/** Loads two graphs and their differences, of a step of a simplification or, for 0, of the whole. */
async function loadPair<T>(part: Parts, type: new (packed: Packed) => T, step = 0): Loaded<T> {
  const names = [...SIDES, "differences"].map((name) => (step === 0 ? name : `${name}-${step}`));
  const [left, right, data] = await Promise.all(names.map(part));
  return { columns: [new Columns(left), new Columns(right)], data: new type(data) };
}

/** Returns the hosts of both graphs on a page. */
async function pageHosts(part: Parts): Promise<readonly [GraphHost, GraphHost]> {
  const [left, right] = await Promise.all(SIDES.map((side) => part(`baked-${side}`)));
  return [pageHost(bakedOf(left)), pageHost(bakedOf(right))];
}

/** Returns the given height of each graph; none by default. */
function heightOf(model: WidgetModel): { readonly height?: number } {
  const height = model.get("height");
  return typeof height === "number" ? { height } : {};
}

export const diffWidget = sharing(
  (part) => loadPair(part, PairData),
  ({ columns, data }, model, channel, root, signal) => {
    const [left = "", right = ""] = model.get("_names") as string[];
    const pair = createDiff(
      root,
      columns,
      data,
      {
        graphs: [sideHost(channel, { part: "reference" }), sideHost(channel, { part: "candidate" })],
        selected: (side, selection) => putSelection(selection.map((each) => ({ ...each, side: SIDES[side] }))),
        synced: (synced) => putSynced(synced),
      },
      { ...heightOf(model), synced: model.get("synced") === true, names: [left, right] },
      signal,
    );
    channel.watch((_, live) => {
      for (const view of pair.views) view.dispatch({ type: "live", live });
    }, signal);
    const select = (selection: readonly Selected[]): void => {
      const targets = SIDES.map((side, at) =>
        selection.filter((each) => each.side === side).flatMap((each) => targetOf(columns[at], each) ?? []),
      );
      pair.show([targets[0], targets[1]]);
    };
    const putSelection = bindTrait<readonly Selected[]>(model, "selection", select, signal);
    const putSynced = bindTrait<boolean>(model, "synced", pair.setSynced, signal);
  },
);

export const diffPage: Page = async (root, about, part, signal) => {
  const { names } = about as { names: [string, string] };
  const [graphs, { columns, data }] = await Promise.all([pageHosts(part), loadPair(part, PairData)]);
  createDiff(
    root,
    columns,
    data,
    { graphs, selected: () => undefined, synced: () => undefined },
    { height: roomBelow(root, 468, 320), synced: true, names },
    signal,
  );
};

export const simplificationWidget: Widget = (model, channel) => {
  /** the steps of the current result that were loaded */
  const steps = new Map<number, Loaded<SimplificationData>>();
  let revision: unknown;
  const load = (step: number): Loaded<SimplificationData> => {
    if (revision !== model.get("_revision")) steps.clear();
    revision = model.get("_revision");
    const found = steps.get(step) ?? loadPair((name) => loadPacked(model, channel, name), SimplificationData, step);
    steps.set(step, found);
    found.catch(() => steps.delete(step)); // a later request may succeed
    return found;
  };
  return (root, signal) => {
    const account = (): Account => model.get("_about") as Account;
    const view = new Simplification(
      root,
      account(),
      {
        reason: NO_KERNEL,
        get live(): boolean {
          return channel.live;
        },
        load,
        graph: (side, step) => sideHost(channel, { part: SIDES[side], step }),
        async again(skipped, progress, round) {
          const options = { signal: round, progress };
          return (await channel.value<{ message: string }>("again", { skipped }, options)).message;
        },
        save: (path, replace, round) => channel.value("save", { path, replace }, { signal: round }),
        chosen: (key) => putChange(key),
        selected: (side, selection) => putSelection(selection.map((each) => ({ ...each, side: SIDES[side] }))),
        stepped: (step) => putStep(step),
        synced: (synced) => putSynced(synced),
      },
      {
        ...heightOf(model),
        step: Number(model.get("step")),
        synced: model.get("synced") === true,
        chosen: String(model.get("change")),
      },
      signal,
    );
    channel.watch((_, live) => view.setLive(live), signal);
    // before binding the step, which belongs to the new result
    bindTrait(model, "_revision", () => view.show(account(), Number(model.get("step"))), signal);
    const putStep = bindTrait<number>(model, "step", view.turn, signal);
    const putSelection = bindTrait<unknown[]>(model, "selection", () => undefined, signal);
    const putChange = bindTrait<string>(model, "change", view.choose, signal);
    const putSynced = bindTrait<boolean>(model, "synced", view.setSynced, signal);
    drawn(root, signal);
  };
};

/** Mounts a simplification on a page, which shows the steps; buttons that need a kernel are disabled. */
export const simplificationPage: Page = async (root, about, part, signal) => {
  const hosts = await pageHosts(part);
  new Simplification(
    root,
    about as Account,
    {
      live: false,
      reason: "This page has no kernel. Open the model in a notebook with onnx_nb to change or save it.",
      load: (step) => loadPair(part, SimplificationData, step),
      // a page holds only the graphs of the steps in between
      graph: (side, step) => (step === 0 ? hosts[side] : pageHost()),
      again: noKernel,
      save: noKernel,
      chosen: () => undefined,
      stepped: () => undefined,
      synced: () => undefined,
    },
    { height: roomBelow(root, 508, 320), step: 0, synced: true, chosen: "" },
    signal,
  );
  drawn(root, signal);
};
