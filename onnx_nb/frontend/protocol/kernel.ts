/** Hosts of graph views: one asks the kernel about a model, another serves pages, which have no kernel. */

import { Digest } from "./capture.ts";
import { type Channel, NO_KERNEL, type Reply } from "./channel.ts";
import { alignedBytes, bytesOf, type Pack } from "./codec.ts";
import type { Target } from "./columns.ts";
import type { Extraction, GraphHost, OverlayData, PageData } from "./host.ts";
import type { Inspection, SideRequest } from "./wire.ts";

export const noKernel = (): Promise<never> => Promise.reject(new Error("This page has no kernel."));

/** Members of a host that cuts nothing out. */
const UNCUT = { plan: noKernel, extract: noKernel, discard: noKernel, changed: () => undefined };

/** Returns the host of a graph on a page, which knows the data embedded in the page. */
export function pageHost(pageData?: PageData): GraphHost {
  return {
    ...UNCUT,
    live: false,
    reason: "This page has no kernel. Open the model in a notebook with onnx_nb to extract from it.",
    inspect: noKernel,
    ...(pageData !== undefined && { pageData, overlay: async (name: string) => pageData.overlay(name) ?? noKernel() }),
  };
}

type SideHost = GraphHost & Required<Pick<GraphHost, "figures" | "overlay">>;

/** Returns the host of a graph that cuts nothing out; `about` names the model where a widget shows several. */
export function sideHost(channel: Channel, about: SideRequest): SideHost {
  return {
    ...UNCUT,
    get live(): boolean {
      return channel.live;
    },
    reason: "Nothing is extracted from two graphs side by side: show one of them by itself.",
    overlay: async (name, signal) => overlayOf(await channel.request("overlay", { ...about, name }, { signal })),
    inspect: (target, _name, signal) => channel.value("inspect", { ...about, ...target }, { signal }),
    figures: (target, signal) => channel.value("figures", { ...about, ...target }, { signal }),
  };
}

/** Returns the host of a graph that supports extraction, without `changed`. */
export function graphHost(channel: Channel): Omit<GraphHost, "changed"> {
  const { inspect, figures, overlay } = sideHost(channel, {});
  return {
    get live(): boolean {
      return channel.live;
    },
    reason: NO_KERNEL,
    inspect,
    figures,
    overlay,
    async plan(inputs, outputs, signal) {
      const { value, buffers } = await channel.request("plan", { inputs, outputs }, { signal });
      if (buffers[0] === undefined) throw new Error("the kernel's plan names no nodes");
      return { ...value, nodes: new Int32Array(alignedBytes(buffers[0])) };
    },
    extract: async (inputs, outputs, signal) =>
      extractionOf(await channel.request("extract", { inputs, outputs }, { signal })),
    edit: async (request, progress, signal) =>
      extractionOf(await channel.request("edit", request, { signal, progress })),
    save: (path, replace, signal) => channel.value("save", { path, replace }, { signal }),
    discard: (signal) => channel.value("discard", {}, { signal }),
    select(targets, signal) {
      const ids = (kind: Target["kind"]): number[] =>
        targets.filter((target) => target.kind === kind).map(({ id }) => id);
      return channel.value("select", { nodes: ids("node"), scopes: ids("scope") }, { signal });
    },
    page: (statistics, progress, signal) => channel.bytes("page", { statistics }, { signal, progress }),
    values: {
      capture: (value, progress, signal) => channel.value("capture", { value }, { signal, progress }),
      profile: (progress, signal) => channel.value("profile", {}, { signal, progress }),
      sizes: (shapes, signal) => channel.value("sizes", { choice: shapes !== null, shapes: shapes ?? {} }, { signal }),
      statistics: (value, progress, signal) => channel.value("statistics", { value }, { signal, progress }),
      async page(value, place, signal) {
        const { value: page, buffers } = await channel.request("values", { value, ...place }, { signal });
        const [pixels] = buffers;
        return { ...page, ...(pixels !== undefined && { pixels: bytesOf(pixels) }) };
      },
      npy: (value, signal) => channel.bytes("npy", { value }, { signal }),
    },
  };
}

function extractionOf({ value, buffers: [columns, differences] }: Reply<"extract" | "edit">): Extraction {
  const model = columns && { columns: bytesOf(columns) };
  return { ...value, ...model, ...(differences && { differences: bytesOf(differences) }) };
}

/** Reads numbers for coloring, as sent by the kernel. */
export function overlayOf({ value, buffers: [nodes, scopes] }: Reply<"overlay">): OverlayData {
  if (nodes === undefined || scopes === undefined) throw new Error("the kernel sent no numbers");
  const { labels = [], ...about } = value;
  const numbers = { nodes: new Float64Array(alignedBytes(nodes)), scopes: new Float64Array(alignedBytes(scopes)) };
  return { ...about, ...numbers, ...(labels.length > 0 && { labels }) };
}

type SavedReply = Omit<Inspection, "documentation"> & {
  readonly documentation: number;
  readonly figures: readonly (readonly [string, string])[];
};

type Color = Pick<OverlayData, "label" | "scale" | "reduce" | "unmatched" | "labels"> & {
  readonly kind: "own" | "captured" | "shown";
};

export function bakedOf(pack: Pack): PageData {
  const digest = new Digest(pack);
  const { meta } = digest;
  const replies = meta.replies as readonly SavedReply[];
  const documentation = meta.documentation as readonly string[];
  const replyOf = (target: { readonly kind: string; readonly id: number }): SavedReply | null => {
    const number = target.kind === "tensor" ? -1 : (pack.arrays.get(`${target.kind}_reply`)?.[target.id] ?? -1);
    return replies[number] ?? null;
  };
  const colors = (meta.overlays ?? []) as readonly Color[];
  const overlay = (name: string): OverlayData | null => {
    const number = colors.findIndex(({ label }) => label === name);
    const [nodes, scopes] = ["nodes", "scopes"].map((part) => pack.arrays.get(`overlay_${number}_${part}`));
    if (nodes === undefined || scopes === undefined) return null;
    return { ...(colors[number] as Color), nodes: Float64Array.from(nodes), scopes: Float64Array.from(scopes) };
  };
  const labels = (...kinds: readonly Color["kind"][]): string[] =>
    colors.filter(({ kind }) => kinds.includes(kind)).map(({ label }) => label);
  const [initialLabel] = labels("shown");
  return {
    colors: { own: labels("own", "shown"), captured: labels("captured") },
    initialOverlay: initialLabel === undefined ? null : overlay(initialLabel),
    overlay,
    inspect(target) {
      const reply = replyOf(target);
      return reply === null ? null : { ...reply, documentation: documentation[reply.documentation] ?? "" };
    },
    figures: (target) => replyOf(target)?.figures ?? [],
    statistics(value) {
      const row = digest.rowOf(value);
      return row < 0 || !digest.hasNumbers(row) ? null : digest.statistics(row);
    },
    lacking:
      meta.asked !== true
        ? "This page was written without statistics: to_html(path, statistics=True) puts them in."
        : Number(meta.left_out) > 0
          ? `The statistics of ${meta.left_out} smaller weights were left out, for the page to stay small; to_html(path, statistics=True, limit=…) takes more.`
          : "Its numbers could not be read when this page was written.",
  };
}
