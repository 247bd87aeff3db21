/** Mounts what a simplification did. Another result of the same widget replaces the one that is shown. */

import { createSimplification } from "../panels/simplification.ts";
import { noKernel, pageHost, sendPicture, sideHost, watchKernel } from "../protocol/kernel.ts";
import { bindTrait } from "../protocol/model.ts";
import { loadPacked, type Parts } from "../protocol/parts.ts";
import { type Account, SimplificationData } from "../protocol/simplification.ts";
import { loadSides, pageHosts, SIDES } from "./diff.ts";
import { drawn } from "./mount.ts";
import type { Page, Widget } from "./types.ts";

type Loaded = ReturnType<Parameters<typeof createSimplification>[2]["load"]>;

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
    const view = createSimplification(
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
  createSimplification(
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
