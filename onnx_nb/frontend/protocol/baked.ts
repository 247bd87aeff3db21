/** What `drawing/html.py` put into a page, so that a click is answered without a kernel. */

import type { OverlayData } from "../scene/overlay.ts";
import { Digest } from "./capture.ts";
import type { Packed } from "./codec.ts";
import type { Baked, InspectReply } from "./host.ts";

type Saved = Omit<InspectReply, "documentation"> & {
  readonly documentation: number;
  readonly figures: readonly (readonly [string, string])[];
};

type Color = Pick<OverlayData, "label" | "scale" | "reduce" | "unmatched"> & {
  readonly kind: "own" | "captured" | "shown";
};

export function bakedOf(packed: Packed): Baked {
  const digest = new Digest(packed);
  const replies = digest.meta.replies as readonly Saved[];
  const documentation = digest.meta.documentation as readonly string[];
  const saved = (target: { readonly kind: string; readonly id: number }): Saved | null => {
    const number = target.kind === "tensor" ? -1 : (packed.arrays.get(`${target.kind}_reply`)?.[target.id] ?? -1);
    return replies[number] ?? null;
  };
  const asked = digest.meta.asked === true;
  const colors = (digest.meta.overlays ?? []) as readonly Color[];
  const overlay = (name: string): OverlayData | null => {
    const number = colors.findIndex(({ label }) => label === name);
    const [nodes, groups] = ["nodes", "groups"].map((part) => packed.arrays.get(`overlay_${number}_${part}`));
    if (nodes === undefined || groups === undefined) return null;
    return { ...(colors[number] as Color), nodes: Float64Array.from(nodes), groups: Float64Array.from(groups) };
  };
  const labels = (...kinds: readonly Color["kind"][]): string[] =>
    colors.filter(({ kind }) => kinds.includes(kind)).map(({ label }) => label);
  const [shown] = labels("shown");
  return {
    colors: { own: labels("own", "shown"), captured: labels("captured") },
    shown: shown === undefined ? null : overlay(shown),
    overlay,
    inspect(target) {
      const found = saved(target);
      return found === null ? null : { ...found, documentation: documentation[found.documentation] ?? "" };
    },
    figures: (target) => saved(target)?.figures ?? [],
    statistics(value) {
      const row = digest.rowOf(value);
      return row < 0 || !digest.known(row) ? null : digest.statistics(row);
    },
    lacking: !asked
      ? "This page was written without statistics: to_html(path, statistics=True) puts them in."
      : digest.leftOut > 0
        ? `The statistics of ${digest.leftOut} smaller weights were left out, for the page to stay small; to_html(path, statistics=True, limit=…) takes more.`
        : "Its numbers could not be read when this page was written.",
  };
}
