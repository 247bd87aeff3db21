/** Result of a simplification, as packed by `analysis/view/result_columns.py`: a pair of graphs, and every change. */

import type { Target } from "./columns.ts";
import { PairData, type PairMeta, type SideOf } from "./diff.ts";

/** The verdict and the figures in addition to the changes, from `result_columns.account`. */
export interface Account {
  readonly name: string;
  readonly verdict: "verified" | "wrong" | "unchecked";
  readonly said: string;
  /** Python code that produces the same */
  readonly call: string;
  /** before and after */
  readonly nodes: readonly [number, number];
  readonly bytes: readonly [number, number];
  readonly operators: readonly (readonly [name: string, before: number, after: number])[];
  readonly left: readonly (readonly [node: string, op: string, nbytes: number, why: string])[];
  readonly left_count: number;
  /** rules and changes that were skipped on request */
  readonly skipped: readonly string[];
  readonly outputs: readonly (readonly [name: string, largest: string, outside: number, count: number])[];
  /** the original comes first */
  readonly steps: readonly (readonly [name: string, nodes: number, done: number])[];
  /** suggested path of the saved model */
  readonly path: string;
}

interface SimplificationMeta extends PairMeta {
  readonly rules: readonly (readonly [name: string, does: string, count: number])[];
  /** numbers of nodes of each graph: all, removed or new, folded */
  readonly nodes: readonly [readonly number[], readonly number[]];
}

export class SimplificationData extends PairData<SimplificationMeta> {
  readonly count = this.column("rule").length;
  readonly rules = this.meta.rules;
  readonly nodes = this.meta.nodes;

  ruleOf(change: number): number {
    return this.column("rule")[change];
  }

  rule(change: number): string {
    return this.rules[this.ruleOf(change)][0];
  }

  /** Returns the tensor that the change produced. */
  tensor(change: number): string {
    return this.text("key", change);
  }

  /** Returns the key for undoing a change. */
  key(change: number): string {
    return `${this.rule(change)}: ${this.tensor(change)}`;
  }

  /** Returns −1 if no change has this key. */
  find(key: string): number {
    for (let change = 0; change < this.count; change++) if (this.key(change) === key) return change;
    return -1;
  }

  /** Returns the nodes that a change removed or added in one of the graphs, or the place where they were. */
  targets(side: SideOf, change: number): Target[] {
    const ends = this.column(`targets_end_${side}`);
    const ids = this.column(`targets_${side}`).subarray(ends[change], ends[change + 1]);
    return Array.from(ids, (id) => (id >= 0 ? { kind: "node", id } : { kind: "tensor", id: -1 - id }));
  }

  /** Returns the change that removed, folded or added a node; −1 for none. */
  changeOf(side: SideOf, target: Target): number {
    return target.kind === "node" ? (this.column(`change_${side}`)[target.id] ?? -1) : -1;
  }
}
