/** The result of a simplification, as `analysis/view/result_columns.py` packs it: two graphs as a pair, and every change. */

import type { Packed } from "./codec.ts";
import type { Target } from "./columns.ts";
import { PairData, type SideOf } from "./diff.ts";

/** The verdict and the figures besides the changes; `result_columns.account` makes it. */
export interface Account {
  readonly name: string;
  readonly verdict: "verified" | "wrong" | "unchecked";
  readonly said: string;
  /** the Python that makes the same */
  readonly call: string;
  /** before and after */
  readonly nodes: readonly [number, number];
  readonly bytes: readonly [number, number];
  readonly operators: readonly (readonly [name: string, before: number, after: number])[];
  readonly left: readonly (readonly [node: string, op: string, nbytes: number, why: string])[];
  readonly left_count: number;
  /** rewrites and changes that are left out on request */
  readonly skipped: readonly string[];
  readonly outputs: readonly (readonly [name: string, largest: string, outside: number, count: number])[];
  /** the original first */
  readonly steps: readonly (readonly [name: string, nodes: number, done: number])[];
  /** where it might be written to */
  readonly path: string;
}

interface Meta {
  readonly rules: readonly (readonly [name: string, does: string, count: number])[];
  /** of each graph: all, gone or new, folded */
  readonly nodes: readonly [readonly number[], readonly number[]];
}

export class SimplificationData extends PairData {
  readonly count = this.column("rule").length;
  readonly rules: Meta["rules"];
  readonly nodes: Meta["nodes"];

  constructor(packed: Packed) {
    super(packed);
    ({ rules: this.rules, nodes: this.nodes } = packed.meta as Meta);
  }

  ruleOf(change: number): number {
    return this.column("rule")[change];
  }

  rule(change: number): string {
    return this.rules[this.ruleOf(change)][0];
  }

  /** "Conv + BatchNormalization → Conv" */
  what(change: number): string {
    return this.text("what", change);
  }

  why(change: number): string {
    return this.text("why", change);
  }

  /** the tensor that was made where it happened */
  tensor(change: number): string {
    return this.text("key", change);
  }

  /** By which it is undone. */
  key(change: number): string {
    return `${this.rule(change)}: ${this.tensor(change)}`;
  }

  /** −1 if there is none of this key */
  find(key: string): number {
    for (let change = 0; change < this.count; change++) if (this.key(change) === key) return change;
    return -1;
  }

  /** The nodes that a change took or made in one of the graphs, or the place where they were. */
  targets(side: SideOf, change: number): Target[] {
    const ends = this.column(`targets_end_${side}`);
    const found = this.column(`targets_${side}`).subarray(ends[change], ends[change + 1]);
    return Array.from(found, (id) => (id >= 0 ? { kind: "node", id } : { kind: "tensor", id: -1 - id }));
  }

  /** The change that took, folded or made a node; −1 for none. */
  changeOf(side: SideOf, target: Target): number {
    return target.kind === "node" ? (this.column(`change_${side}`)[target.id] ?? -1) : -1;
  }
}
