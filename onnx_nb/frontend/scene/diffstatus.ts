/** What a graph is to another one that it is compared with: which boxes only it has, and which changed. */

import { BOX } from "./scene.ts";

export const DIFF = { SAME: 0, ONLY: 1, CHANGED: 2, FOLDED: 3 } as const;

/** "new" is what "added" is where both graphs are one model, before and after */
export type DiffStatus = "removed" | "added" | "changed" | "folded" | "new";

/** A sign beside each color, for who cannot tell the colors apart. */
export const SIGNS: Readonly<Record<DiffStatus, string>> = {
  removed: "−",
  added: "+",
  changed: "~",
  folded: "◆",
  new: "+",
};

export interface DiffStatusData {
  /** what it means to be in this graph only */
  readonly only: "removed" | "added" | "new";
  /** what is said of what is folded here */
  readonly folded: string;
  /** a DIFF by node and by value */
  readonly nodes: Uint8Array;
  readonly values: Uint8Array;
  /** by group, how many nodes at any depth are so */
  readonly scopeOnly: Int32Array;
  readonly scopeChanged: Int32Array;
  readonly scopeFolded: Int32Array;
}

export class DiffStatuses {
  readonly #data: DiffStatusData;

  constructor(data: DiffStatusData) {
    this.#data = data;
  }

  /** The status of what a box shows; null where nothing is different. */
  of(kind: number, id: number): DiffStatus | null {
    const { only, nodes, values, scopeOnly, scopeChanged, scopeFolded } = this.#data;
    if (kind === BOX.SCOPE || kind === BOX.OPEN) {
      if (scopeChanged[id] > 0) return "changed";
      return scopeOnly[id] > 0 ? only : scopeFolded[id] > 0 ? "folded" : null;
    }
    const status = kind === BOX.NODE ? nodes[id] : values[id];
    return [null, only, "changed" as const, "folded" as const][status] ?? null;
  }

  /** "removed"; of a closed scope "2 removed, 3 changed", or "−2 ~3" where there is less room. */
  say(kind: number, id: number): { readonly long: string; readonly short: string } {
    const status = this.of(kind, id);
    if (status === null) return { long: "", short: "" };
    const { only, folded, scopeOnly, scopeChanged, scopeFolded } = this.#data;
    if (kind !== BOX.SCOPE && kind !== BOX.OPEN) {
      return { long: status === "folded" ? folded : status, short: SIGNS[status] };
    }
    const counts = [
      [scopeOnly[id], only],
      [scopeChanged[id], "changed"],
      [scopeFolded[id], "folded"],
    ] as const;
    const words = (word: DiffStatus): string => (word === "folded" ? folded : word);
    const there = counts.filter(([count]) => count > 0);
    return {
      long: there.map(([count, word]) => `${count} ${words(word)}`).join(", "),
      short: there.map(([count, word]) => `${SIGNS[word]}${count}`).join(" "),
    };
  }
}
