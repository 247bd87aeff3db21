/**
 * The entry of the bundle of two graphs side by side: what differs between two models, and what a simplification did. As
 * an anywidget module it shows `_kind`; in a page that `drawing/html.py` wrote it mounts itself on the data in that page.
 */

import {
  bytesIn,
  bytesOf,
  fail,
  hearKernel,
  hidePicture,
  type Mount,
  mount,
  rootIn,
  style,
  type WidgetModel,
} from "./mount.ts";
import { createPair } from "./panels/diff.ts";
import { createSimplification, type Saved, type SimplificationView } from "./panels/simplification.ts";
import { bakedOf } from "./protocol/baked.ts";
import { Channel, type Progress } from "./protocol/channel.ts";
import { unpack } from "./protocol/codec.ts";
import { Columns, type Packed } from "./protocol/columns.ts";
import { PairData } from "./protocol/diff.ts";
import type { GraphHost } from "./protocol/host.ts";
import { colorsOf, namesIn, noKernel, pageHost, sideHost, watchKernel } from "./protocol/kernel.ts";
import { type Account, SimplificationData } from "./protocol/simplification.ts";
import { watchTheme } from "./render/theme.ts";
import { css } from "./style/pairs.ts";

/** Two graphs beside each other: their columns, and what differs. */
class PairWidget {
  readonly #model: WidgetModel;
  readonly #channel: Channel;
  readonly #loaded: Promise<{ readonly columns: readonly [Columns, Columns]; readonly data: PairData }>;

  constructor(model: WidgetModel, signal: AbortSignal) {
    this.#model = model;
    this.#channel = new Channel(model, signal);
    this.#loaded = this.#load();
    this.#loaded.catch(() => undefined); // each view reports it
  }

  async #part(part: string): Promise<Packed> {
    const saved = this.#model.get(`_${part}`);
    if (saved instanceof DataView) return unpack(bytesOf(saved));
    const { buffers } = await this.#channel.request("columns", { part });
    const [packed] = buffers;
    if (packed === undefined) throw new Error("the kernel sent no graph");
    return unpack(bytesOf(packed));
  }

  async #load(): Promise<{ readonly columns: readonly [Columns, Columns]; readonly data: PairData }> {
    const [left, right, differences] = await Promise.all(
      ["reference", "candidate", "differences"].map((part) => this.#part(part)),
    );
    return { columns: [new Columns(left), new Columns(right)], data: new PairData(differences) };
  }

  async render(root: HTMLElement, signal: AbortSignal): Promise<void> {
    const model = this.#model;
    const { columns, data } = await this.#loaded;
    if (signal.aborted) return;
    let live = true;
    const names = namesIn(model, "_names");
    const pair = createPair(
      root,
      columns,
      data,
      {
        graphs: [
          sideHost(this.#channel, { part: "reference" }, () => live),
          sideHost(this.#channel, { part: "candidate" }, () => live),
        ],
        selected(side, selection) {
          const word = side === 0 ? "reference" : "candidate";
          const told = selection.map((each) => ({ ...each, side: word }));
          model.set("selection", told);
          model.save_changes();
        },
        synced(synced) {
          model.set("synced", synced);
          model.save_changes();
        },
        picture: (svg) => {
          if (live) this.#channel.request("picture", { svg }).catch(() => undefined); // the live graphs are there
        },
      },
      {
        height: Number(model.get("height")),
        synced: model.get("synced") === true,
        names: [names[0] ?? "", names[1] ?? ""],
      },
      signal,
    );
    const follow = (): void => pair.setSynced(model.get("synced") === true);
    model.on("change:synced", follow);
    signal.addEventListener("abort", () => model.off("change:synced", follow));
    watchKernel(this.#channel, signal, (to) => {
      live = to;
      for (const view of pair.views) view.dispatch({ type: "live", live });
    });
  }
}

/** A simplification: what is shown is made anew when another result comes. */
class SimplificationWidget {
  readonly #model: WidgetModel;
  readonly #channel: Channel;
  /** by step and part, of the result that is shown */
  readonly #parts = new Map<string, Promise<Packed>>();
  #revision: unknown;

  constructor(model: WidgetModel, signal: AbortSignal) {
    this.#model = model;
    this.#channel = new Channel(model, signal);
  }

  #part(step: number, part: string): Promise<Packed> {
    const revision = this.#model.get("_revision");
    if (this.#revision !== revision) this.#parts.clear();
    this.#revision = revision;
    const key = `${step} ${part}`;
    const found = this.#parts.get(key) ?? this.#ask(step, part);
    this.#parts.set(key, found);
    found.catch(() => this.#parts.delete(key)); // it may be asked for again
    return found;
  }

  async #ask(step: number, part: string): Promise<Packed> {
    const saved = step === 0 ? this.#model.get(`_${part}`) : null;
    if (saved instanceof DataView) return unpack(bytesOf(saved));
    const { buffers } = await this.#channel.request("columns", { part, step });
    if (buffers[0] === undefined) throw new Error("the kernel sent no graph");
    return unpack(bytesOf(buffers[0]));
  }

  async render(root: HTMLElement, signal: AbortSignal): Promise<void> {
    const model = this.#model;
    const channel = this.#channel;
    let live = true;
    let telling = false;
    const set = (trait: string, value: unknown): void => {
      telling = true;
      model.set(trait, value);
      model.save_changes();
      telling = false;
    };
    const account = (): Account => model.get("_about") as Account;
    const view: SimplificationView = createSimplification(
      root,
      account(),
      {
        get live(): boolean {
          return live;
        },
        load: async (step) => {
          const parts = ["reference", "candidate", "differences"].map((part) => this.#part(step, part));
          const [left, right, between] = await Promise.all(parts);
          return { columns: [new Columns(left), new Columns(right)], data: new SimplificationData(between) };
        },
        graph: (side, step) => sideHost(channel, { part: side === 0 ? "reference" : "candidate", step }, () => live),
        async again(skipped, tell, round) {
          const told = ({ fraction, message }: Progress): void => tell(fraction, message);
          const { value } = await channel.request("again", { skipped }, { signal: round, progress: told });
          return (value as { message: string }).message;
        },
        async save(path, replace, round) {
          return (await channel.request("save", { path, replace }, { signal: round })).value as Saved;
        },
        chosen: (key) => set("selection", key),
        stepped: (step) => set("step", step),
        synced: (synced) => set("synced", synced),
        picture: (svg) => {
          if (live) channel.request("picture", { svg }).catch(() => undefined); // the live graphs are there
        },
      },
      {
        height: Number(model.get("height")),
        step: Number(model.get("step")),
        synced: model.get("synced") === true,
        chosen: String(model.get("selection")),
      },
      signal,
    );
    const follow = (trait: string, act: () => void): void => {
      const changed = (): void => {
        if (!telling) act();
      };
      model.on(`change:${trait}`, changed);
      signal.addEventListener("abort", () => model.off(`change:${trait}`, changed));
    };
    follow("_revision", () => view.show(account(), Number(model.get("step"))));
    follow("step", () => view.turn(Number(model.get("step"))));
    follow("selection", () => view.choose(String(model.get("selection"))));
    follow("synced", () => view.setSynced(model.get("synced") === true));
    watchTheme(root, () => undefined, signal);
    watchKernel(channel, signal, (to) => {
      live = to;
      view.setLive(to);
    });
  }
}

export default () => {
  let shared: PairWidget | SimplificationWidget | undefined;
  const closing = new AbortController();
  const widgetOf = (model: WidgetModel): PairWidget | SimplificationWidget => {
    shared ??= new (model.get("_kind") === "pair" ? PairWidget : SimplificationWidget)(model, closing.signal);
    return shared;
  };
  return {
    initialize({ model }: { model: WidgetModel }): () => void {
      hearKernel(model).catch((error) => console.error(error)); // before anything is asked
      widgetOf(model);
      return () => closing.abort();
    },
    render({ model, el }: Mount): () => void {
      return mount({ model, el }, css, (root, signal) => {
        hidePicture(el, model);
        return widgetOf(model).render(root, signal);
      });
    },
  };
};

/** A part of a page, packed. */
function partOf(name: string): Promise<Packed> {
  const element = document.getElementById(`onnx-nb-${name}`);
  if (element === null) throw new Error(`this page lacks its part '${name}'`);
  return unpack(bytesIn(element));
}

const SIDES = ["reference", "candidate"] as const;

/** Of each side of a page what is said of it. */
async function pageHosts(): Promise<readonly [GraphHost, GraphHost]> {
  const [left, right] = await Promise.all(
    SIDES.map(async (side): Promise<GraphHost> => {
      const baked = bakedOf(await partOf(`baked-${side}`));
      return { ...pageHost, baked, ...colorsOf(baked) };
    }),
  );
  return [left, right];
}

async function pageParts(end: string): Promise<readonly [left: Columns, right: Columns, between: Packed]> {
  const [left, right, between] = await Promise.all([...SIDES, "differences"].map((part) => partOf(`${part}${end}`)));
  return [new Columns(left), new Columns(right), between];
}

/** A page with two graphs and what differs. */
async function pairPage(root: HTMLElement, about: unknown, signal: AbortSignal): Promise<void> {
  const { names } = about as { names: [string, string] };
  const [graphs, [left, right, between]] = await Promise.all([pageHosts(), pageParts("")]);
  createPair(
    root,
    [left, right],
    new PairData(between),
    { graphs, selected: () => undefined, synced: () => undefined },
    { height: Math.max(320, window.innerHeight - 480), synced: true, names },
    signal,
  );
}

/** A page with what a simplification did; what it would take a kernel for cannot be pressed. */
async function simplificationPage(root: HTMLElement, about: unknown, signal: AbortSignal): Promise<void> {
  const hosts = await pageHosts();
  createSimplification(
    root,
    about as Account,
    {
      live: false,
      reason: "This page has no kernel. Open the model in a notebook with onnx_nb to change or save it.",
      async load(step) {
        const [left, right, between] = await pageParts(step === 0 ? "" : `-${step}`);
        return { columns: [left, right], data: new SimplificationData(between) };
      },
      // of the steps in between the page has the graphs alone
      graph: (side, step) => (step === 0 ? hosts[side] : pageHost),
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
  watchTheme(root, () => undefined, signal);
}

for (const [kind, show] of Object.entries({ pair: pairPage, simplification: simplificationPage })) {
  const about = document.getElementById(`onnx-nb-${kind}`);
  if (about === null) continue;
  style(document.body, css);
  const root = rootIn(document.body, kind);
  (async () => show(root, JSON.parse(about.textContent ?? ""), new AbortController().signal))().catch(
    (error: unknown) => fail(root, error),
  );
}
