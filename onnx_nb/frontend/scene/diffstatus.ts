/** What a graph is to another one that it is compared with: which boxes only it has, and which changed. */

import { BOX } from "./scene.ts";

export const TONE = { SAME: 0, ONLY: 1, CHANGED: 2, FOLDED: 3 } as const;

/** "new" is what "added" is where both graphs are one model, before and after */
export type Tone = "removed" | "added" | "changed" | "folded" | "new";

/** A sign beside each color, for who cannot tell the colors apart. */
export const SIGNS: Readonly<Record<Tone, string>> = {
  removed: "−",
  added: "+",
  changed: "~",
  folded: "◆",
  new: "+",
};

export interface ToneData {
  /** what it means to be in this graph only */
  readonly only: "removed" | "added" | "new";
  /** what is said of what is folded here */
  readonly folded: string;
  /** a TONE by node and by value */
  readonly nodes: Uint8Array;
  readonly values: Uint8Array;
  /** by group, how many nodes at any depth are so */
  readonly scopeOnly: Int32Array;
  readonly scopeChanged: Int32Array;
  readonly scopeFolded: Int32Array;
}

export class Tones {
  readonly #data: ToneData;

  constructor(data: ToneData) {
    this.#data = data;
  }

  /** The tone of what a box shows; null where nothing is different. */
  of(kind: number, id: number): Tone | null {
    const { only, nodes, values, scopeOnly, scopeChanged, scopeFolded } = this.#data;
    if (kind === BOX.SCOPE || kind === BOX.OPEN) {
      if (scopeChanged[id] > 0) return "changed";
      return scopeOnly[id] > 0 ? only : scopeFolded[id] > 0 ? "folded" : null;
    }
    const tone = kind === BOX.NODE ? nodes[id] : values[id];
    return [null, only, "changed" as const, "folded" as const][tone] ?? null;
  }

  /** "removed"; of a closed scope "2 removed, 3 changed", or "−2 ~3" where there is less room. */
  say(kind: number, id: number): { readonly long: string; readonly short: string } {
    const tone = this.of(kind, id);
    if (tone === null) return { long: "", short: "" };
    const { only, folded, scopeOnly, scopeChanged, scopeFolded } = this.#data;
    if (kind !== BOX.SCOPE && kind !== BOX.OPEN) {
      return { long: tone === "folded" ? folded : tone, short: SIGNS[tone] };
    }
    const counts = [
      [scopeOnly[id], only],
      [scopeChanged[id], "changed"],
      [scopeFolded[id], "folded"],
    ] as const;
    const words = (word: Tone): string => (word === "folded" ? folded : word);
    const there = counts.filter(([count]) => count > 0);
    return {
      long: there.map(([count, word]) => `${count} ${words(word)}`).join(", "),
      short: there.map(([count, word]) => `${SIGNS[word]}${count}`).join(" "),
    };
  }
}
