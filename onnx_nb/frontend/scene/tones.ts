/** What a graph is to another one that it is compared with: which boxes only it has, and which changed. */

import { BOX } from "./scene.ts";

export const TONE = { SAME: 0, ONLY: 1, CHANGED: 2 } as const;

export type Tone = "removed" | "added" | "changed";

/** A sign beside each colour, for who cannot tell the colours apart. */
export const SIGNS: Readonly<Record<Tone, string>> = { removed: "−", added: "+", changed: "~" };

export interface ToneData {
  /** what it means to be in this graph only */
  readonly only: "removed" | "added";
  /** a TONE by node and by value */
  readonly nodes: Uint8Array;
  readonly values: Uint8Array;
  /** by group, how many nodes at any depth are so */
  readonly groupOnly: Int32Array;
  readonly groupChanged: Int32Array;
}

export class Tones {
  readonly #data: ToneData;

  constructor(data: ToneData) {
    this.#data = data;
  }

  /** The tone of what a box shows; null where nothing is different. */
  of(kind: number, id: number): Tone | null {
    const { only, nodes, values, groupOnly, groupChanged } = this.#data;
    if (kind === BOX.GROUP || kind === BOX.OPEN) {
      if (groupChanged[id] > 0) return "changed";
      return groupOnly[id] > 0 ? only : null;
    }
    const tone = kind === BOX.NODE ? nodes[id] : values[id];
    return tone === TONE.ONLY ? only : tone === TONE.CHANGED ? "changed" : null;
  }

  /** "removed"; of a closed scope "2 removed, 3 changed", or "−2 ~3" where there is less room. */
  say(kind: number, id: number): { readonly long: string; readonly short: string } {
    const tone = this.of(kind, id);
    if (tone === null) return { long: "", short: "" };
    if (kind !== BOX.GROUP && kind !== BOX.OPEN) return { long: tone, short: SIGNS[tone] };
    const { only, groupOnly, groupChanged } = this.#data;
    const counts = [
      [groupOnly[id], only],
      [groupChanged[id], "changed"],
    ] as const;
    const there = counts.filter(([count]) => count > 0);
    return {
      long: there.map(([count, word]) => `${count} ${word}`).join(", "),
      short: there.map(([count, word]) => `${SIGNS[word]}${count}`).join(" "),
    };
  }
}
