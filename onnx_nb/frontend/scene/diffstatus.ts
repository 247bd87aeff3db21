/** Status of each box of a graph that is compared with another one: added, removed, changed or folded. */

import type { DiffStatus, DiffStatusData } from "../protocol/diff.ts";
import { BOX } from "./scene.ts";

export const DIFF = { SAME: 0, ONLY: 1, CHANGED: 2, FOLDED: 3 } as const;

/** A sign for each status in addition to its color, for people who cannot distinguish the colors. */
export const SIGNS: Readonly<Record<DiffStatus, string>> = {
  removed: "−",
  added: "+",
  changed: "~",
  folded: "◆",
  new: "+",
};

export class DiffStatuses {
  readonly #data: DiffStatusData;

  constructor(data: DiffStatusData) {
    this.#data = data;
  }

  /** Returns the status of a box; null if nothing differs. */
  of(kind: number, id: number): DiffStatus | null {
    const { ownStatus, nodes, values, scopeOwnCount, scopeChangeCount, scopeFoldCount } = this.#data;
    if (kind === BOX.SCOPE || kind === BOX.OPEN) {
      if (scopeChangeCount[id] > 0) return "changed";
      return scopeOwnCount[id] > 0 ? ownStatus : scopeFoldCount[id] > 0 ? "folded" : null;
    }
    const status = kind === BOX.NODE ? nodes[id] : values[id];
    return [null, ownStatus, "changed" as const, "folded" as const][status] ?? null;
  }

  /** Returns "removed"; for a closed scope "2 removed, 3 changed", in short "−2 ~3". */
  say(kind: number, id: number): { readonly text: string; readonly short: string } {
    const status = this.of(kind, id);
    if (status === null) return { text: "", short: "" };
    const { ownStatus, foldedWord, scopeOwnCount, scopeChangeCount, scopeFoldCount } = this.#data;
    if (kind !== BOX.SCOPE && kind !== BOX.OPEN) {
      return { text: status === "folded" ? foldedWord : status, short: SIGNS[status] };
    }
    const counts = [
      [scopeOwnCount[id], ownStatus],
      [scopeChangeCount[id], "changed"],
      [scopeFoldCount[id], "folded"],
    ] as const;
    const words = (word: DiffStatus): string => (word === "folded" ? foldedWord : word);
    const there = counts.filter(([count]) => count > 0);
    return {
      text: there.map(([count, word]) => `${count} ${words(word)}`).join(", "),
      short: there.map(([count, word]) => `${SIGNS[word]}${count}`).join(" "),
    };
  }
}
