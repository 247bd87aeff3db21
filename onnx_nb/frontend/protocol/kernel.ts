/** What the entries of graphs share: whether a kernel answers, and what is asked of it. */

import { bytesOf, type WidgetModel } from "../mount.ts";
import type { OverlayData } from "../scene/overlay.ts";
import type { Channel } from "./channel.ts";
import type { Target } from "./columns.ts";
import type { Baked, GraphHost, InspectReply } from "./host.ts";

/** A kernel that says nothing for so long is busy, or gone. */
export const SILENCE_MS = 4000;

export function namesIn(model: WidgetModel, trait: string): string[] {
  return (model.get(trait) as string[] | undefined) ?? [];
}

/** One of two graphs, of which the kernel knows by `about`. */
export function sideHost(channel: Channel, about: Readonly<Record<string, unknown>>, live: () => boolean): GraphHost {
  const ask = async (verb: string, { kind, id }: Target, signal: AbortSignal): Promise<unknown> =>
    (await channel.request(verb, { ...about, kind, id }, { signal })).value;
  return {
    ...pageHost,
    get live(): boolean {
      return live();
    },
    reason: "Nothing is cut out of two graphs side by side: show one of them by itself.",
    async overlay(name, signal) {
      const { value, buffers } = await channel.request("overlay", { ...about, name }, { signal });
      return overlayOf(value as Record<string, unknown>, buffers[0], buffers[1]);
    },
    inspect: async (target, _name, signal) => (await ask("inspect", target, signal)) as InspectReply,
    figures: async (target, signal) => (await ask("figures", target, signal)) as readonly (readonly [string, string])[],
  };
}

/** Tells whether a kernel answers: not at once, for it may be busy with a cell. */
export function watchKernel(channel: Channel, signal: AbortSignal, turn: (live: boolean) => void): void {
  const silent = setTimeout(() => turn(false), SILENCE_MS);
  signal.addEventListener("abort", () => clearTimeout(silent));
  channel.request("ping", {}).then(
    () => {
      clearTimeout(silent);
      if (!signal.aborted) turn(true);
    },
    () => undefined,
  );
}

export const noKernel = (): Promise<never> => Promise.reject(new Error("This page has no kernel."));

/** Of a page that was written: it has no kernel. */
export const pageHost: GraphHost = {
  live: false,
  reason: "This page has no kernel. Open the model in a notebook with onnx_nb to extract from it.",
  plan: noKernel,
  extract: noKernel,
  inspect: noKernel,
  changed: () => undefined,
};

/** Numbers to color by, as the kernel sends them. */
export function overlayOf(
  given: Record<string, unknown>,
  nodes: DataView | undefined,
  groups: DataView | undefined,
): OverlayData {
  if (nodes === undefined || groups === undefined) throw new Error("the kernel sent no numbers");
  // copied: the buffer of a message need not be aligned
  const numbers = (view: DataView): Float64Array => new Float64Array(bytesOf(view).slice().buffer);
  return {
    label: String(given.label),
    scale: given.scale === "log" ? "log" : "linear",
    reduce: given.reduce === "sum" ? "sum" : "max",
    unmatched: Number(given.unmatched),
    nodes: numbers(nodes),
    groups: numbers(groups),
  };
}

/** What the boxes of a page can be colored by. */
export function colorsOf(baked: Baked): Pick<GraphHost, "overlay"> {
  return {
    overlay: (name) => {
      const found = baked.overlay(name);
      return found === null ? noKernel() : Promise.resolve(found);
    },
  };
}
