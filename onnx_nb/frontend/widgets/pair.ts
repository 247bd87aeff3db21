/** Mounts two graphs side by side: of a comparison, or before and after a simplification. */

import { createDiff } from "../panels/diff.ts";
import { Simplification, type SimplificationHost } from "../panels/simplification.ts";
import { Columns } from "../protocol/columns.ts";
import { PairData } from "../protocol/diff.ts";
import type { GraphHost } from "../protocol/host.ts";
import { bakedOf, noKernel, pageHost, sendPicture, sideHost, watchKernel } from "../protocol/kernel.ts";
import { bindTrait, loadPacked, type Parts } from "../protocol/model.ts";
import { type Account, SimplificationData } from "../protocol/simplification.ts";
import { type Named, targetOf } from "../protocol/viewstate.ts";
import { drawn, type Page, type Widget } from "./mount.ts";

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

type Loaded = ReturnType<SimplificationHost["load"]>;

async function loadStep(part: Parts, step: number): Loaded {
  const end = step === 0 ? "" : `-${step}`;
  const [columns, data] = await Promise.all([loadSides(part, end), part(`differences${end}`)]);
  return { columns, data: new SimplificationData(data) };
}

export const simplificationWidget: Widget = (model, channel) => {
  /** the steps of the result that is shown, as far as they were looked at */
  const steps = new Map<number, Loaded>();
  let revision: unknown;
  const load = (step: number): Loaded => {
    if (revision !== model.get("_revision")) steps.clear();
    revision = model.get("_revision");
    const found = steps.get(step) ?? loadStep((name) => loadPacked(model, channel, name), step);
    steps.set(step, found);
    found.catch(() => steps.delete(step)); // it may be asked for again
    return found;
  };
  return (root, signal) => {
    let live = true;
    const account = (): Account => model.get("_about") as Account;
    const view = new Simplification(
      root,
      account(),
      {
        get live(): boolean {
          return live;
        },
        load,
        graph: (side, step) => sideHost(channel, { part: SIDES[side], step }, () => live),
        async again(skipped, progress, round) {
          const options = { signal: round, progress };
          return (await channel.value<{ message: string }>("again", { skipped }, options)).message;
        },
        save: (path, replace, round) => channel.value("save", { path, replace }, { signal: round }),
        chosen: (key) => putChange(key),
        selected: (side, selection) => putSelection(selection.map((each) => ({ ...each, side: SIDES[side] }))),
        stepped: (step) => putStep(step),
        synced: (synced) => putSynced(synced),
        picture(svg) {
          if (live) sendPicture(channel, svg);
        },
      },
      {
        height: Number(model.get("height")),
        step: Number(model.get("step")),
        synced: model.get("synced") === true,
        chosen: String(model.get("change")),
      },
      signal,
    );
    // before the step, which is another result's
    bindTrait(model, "_revision", () => view.show(account(), Number(model.get("step"))), signal);
    const putStep = bindTrait<number>(model, "step", view.turn, signal);
    const putSelection = bindTrait<unknown[]>(model, "selection", () => undefined, signal);
    const putChange = bindTrait<string>(model, "change", view.choose, signal);
    const putSynced = bindTrait<boolean>(model, "synced", view.setSynced, signal);
    drawn(root, signal);
    watchKernel(channel, signal, (answers) => {
      live = answers;
      view.setLive(answers);
    });
  };
};

/** A page shows the steps; what takes a kernel cannot be pressed. */
export const simplificationPage: Page = async (root, about, part, signal) => {
  const hosts = await pageHosts(part);
  new Simplification(
    root,
    about as Account,
    {
      live: false,
      reason: "This page has no kernel. Open the model in a notebook with onnx_nb to change or save it.",
      load: (step) => loadStep(part, step),
      // of the steps in between the page holds only the graphs
      graph: (side, step) => (step === 0 ? hosts[side] : pageHost()),
      again: noKernel,
      save: noKernel,
      chosen: () => undefined,
      stepped: () => undefined,
      synced: () => undefined,
      picture: () => undefined,
    },
    { height: Math.max(320, window.innerHeight - 520), step: 0, synced: true, chosen: "" },
    signal,
  );
  drawn(root, signal);
};
