/** Mounts two graphs side by side: of a comparison, or before and after a simplification. */

import { createDiff } from "../panels/diff.ts";
import { Simplification } from "../panels/simplification.ts";
import { NO_KERNEL } from "../protocol/channel.ts";
import type { Pack } from "../protocol/codec.ts";
import { Columns } from "../protocol/columns.ts";
import { PairData } from "../protocol/diff.ts";
import type { GraphHost } from "../protocol/host.ts";
import { bakedOf, noKernel, pageHost, sideHost } from "../protocol/kernel.ts";
import { bindTrait, loadPart, type Parts, type WidgetModel } from "../protocol/model.ts";
import { type Account, SimplificationData } from "../protocol/simplification.ts";
import { type TargetReference, targetOf } from "../protocol/viewstate.ts";
import { markDrawn, type Page, roomBelow, sharing, type Widget } from "./mount.ts";

/** An entry of the trait `selection`. */
type SideReference = TargetReference & { readonly side: (typeof SIDES)[number] };

export const SIDES = ["reference", "candidate"] as const;

type LoadedPair<T> = Promise<{ readonly columns: readonly [Columns, Columns]; readonly data: T }>;

/** Loads two graphs and their differences, of a step of a simplification or, for 0, of the whole. */
export async function loadPair<T>(part: Parts, type: new (pack: Pack) => T, step = 0): LoadedPair<T> {
  const names = [...SIDES, "differences"].map((name) => (step === 0 ? name : `${name}-${step}`));
  const [left, right, data] = await Promise.all(names.map(part));
  return { columns: [new Columns(left), new Columns(right)], data: new type(data) };
}

/** Returns the hosts of both graphs on a page. */
export async function pageHosts(part: Parts): Promise<readonly [GraphHost, GraphHost]> {
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
        onSelect: (side, selection) => putSelection(selection.map((target) => ({ ...target, side: SIDES[side] }))),
        onSync: (synced) => putSynced(synced),
      },
      { ...heightOf(model), synced: model.get("synced") === true, names: [left, right] },
      signal,
    );
    channel.watch((_, live) => {
      for (const view of pair.views) view.dispatch({ type: "live", live });
    }, signal);
    const select = (selection: readonly SideReference[]): void => {
      const targets = SIDES.map((side, at) =>
        selection
          .filter((reference) => reference.side === side)
          .flatMap((reference) => targetOf(columns[at], reference) ?? []),
      );
      pair.show([targets[0], targets[1]]);
    };
    const putSelection = bindTrait<readonly SideReference[]>(model, "selection", select, signal);
    const putSynced = bindTrait<boolean>(model, "synced", pair.setSync, signal);
  },
);

export const diffPage: Page = async (root, about, part, signal) => {
  const { names } = about as { names: [string, string] };
  const [graphs, { columns, data }] = await Promise.all([pageHosts(part), loadPair(part, PairData)]);
  createDiff(root, columns, data, { graphs }, { height: roomBelow(root, 468, 320), synced: true, names }, signal);
};

export const simplificationWidget: Widget = (model, channel) => {
  /** the steps of the current result that were loaded */
  const steps = new Map<number, LoadedPair<SimplificationData>>();
  let revision: unknown;
  const load = (step: number): LoadedPair<SimplificationData> => {
    if (revision !== model.get("_revision")) steps.clear();
    revision = model.get("_revision");
    const pair = steps.get(step) ?? loadPair((name) => loadPart(model, channel, name), SimplificationData, step);
    steps.set(step, pair);
    pair.catch(() => steps.delete(step)); // a later request may succeed
    return pair;
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
        simplifyAgain: (skips, progress, round) =>
          channel.value("again", { skipped: skips }, { signal: round, progress }),
        save: (path, replace, round) => channel.value("save", { path, replace }, { signal: round }),
        onChoose: (key) => putChange(key),
        onSelect: (side, selection) => putSelection(selection.map((target) => ({ ...target, side: SIDES[side] }))),
        onStep: (step) => putStep(step),
        onSync: (synced) => putSynced(synced),
      },
      {
        ...heightOf(model),
        step: Number(model.get("step")),
        isSynced: model.get("synced") === true,
        changeKey: String(model.get("change")),
      },
      signal,
    );
    channel.watch((_, live) => view.setLive(live), signal);
    // before binding the step, which belongs to the new result
    bindTrait(model, "_revision", () => view.show(account(), Number(model.get("step"))), signal);
    const putStep = bindTrait<number>(model, "step", view.turn, signal);
    const putSelection = bindTrait<unknown[]>(model, "selection", () => undefined, signal);
    const putChange = bindTrait<string>(model, "change", view.choose, signal);
    const putSynced = bindTrait<boolean>(model, "synced", view.setSync, signal);
    markDrawn(root, signal);
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
      simplifyAgain: noKernel,
      save: noKernel,
    },
    { height: roomBelow(root, 508, 320), step: 0, isSynced: true, changeKey: "" },
    signal,
  );
  markDrawn(root, signal);
};
