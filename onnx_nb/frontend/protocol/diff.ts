/** Counterparts and differences of two graphs, as packed by `analysis/view/result_columns.py`. */

import { PackedTable, type TypedArray } from "./codec.ts";
import { append, type Columns, type Target } from "./columns.ts";

/** "new" replaces "added" where both graphs are one model before and after */
export type DiffStatus = "removed" | "added" | "changed" | "folded" | "new";

export interface DiffStatusData {
  /** the status of nodes and values that only this graph has */
  readonly ownStatus: "removed" | "added" | "new";
  /** the word for folded nodes */
  readonly foldedWord: string;
  /** a DIFF by node and by value */
  readonly nodes: Uint8Array;
  readonly values: Uint8Array;
  /** by scope, number of such nodes at any depth */
  readonly scopeOwnCount: Int32Array;
  readonly scopeChangeCount: Int32Array;
  readonly scopeFoldCount: Int32Array;
}

/** 0 is the reference, 1 the candidate. */
export type SideOf = 0 | 1;

export interface Change {
  readonly what: DiffStatus;
  /** "node", "attribute", "weight", … */
  readonly kind: string;
  readonly name: string;
  /** op type of a node, "" for other targets */
  readonly op: string;
  readonly detail: string;
  readonly reference: string;
  readonly candidate: string;
  readonly how: string;
  /** in reference and candidate, −1 for none */
  readonly nodes: readonly [number, number];
  readonly tensors: readonly [number, number];
}

interface Half {
  /** changes by the target that they are about */
  readonly changes: ReadonlyMap<string, readonly Change[]>;
  readonly there: Readonly<Record<Target["kind"], Int32Array>>;
  readonly statuses: DiffStatusData;
}

export interface PairMeta {
  readonly changes: readonly (readonly [DiffStatus, ...string[]])[];
  readonly total: number;
  readonly message?: string;
  readonly counts: Readonly<Partial<Record<DiffStatus, number>>>;
  /** word for additions in the candidate */
  readonly made?: "new";
}

export class PairData<Meta extends PairMeta = PairMeta> extends PackedTable<Meta> {
  readonly changes: readonly Change[] = this.meta.changes.map((row) => {
    const [what, kind, name, op, detail, reference, candidate, how, ...places] = row;
    const [n, m, v, w] = places.map(Number);
    return { what, kind, name, op, detail, reference, candidate, how, nodes: [n, m], tensors: [v, w] };
  });
  /** number of changes, including those that were not sent */
  readonly total = this.meta.total;
  /** in words, as where only names differ */
  readonly message = this.meta.message || "no differences";
  readonly counts = this.meta.counts;
  readonly #halves: readonly [Half, Half] = [this.#half(0), this.#half(1)];

  #half(side: SideOf): Half {
    const column = <T extends TypedArray>(name: string): T => this.column(`${name}_${side}`) as T;
    const changes = new Map<string, Change[]>();
    for (const change of this.changes) {
      for (const [kind, id] of Object.entries({ node: change.nodes[side], tensor: change.tensors[side] })) {
        if (id >= 0) append(changes, `${kind} ${id}`, change);
      }
    }
    return {
      changes,
      there: { node: column("node"), tensor: column("value"), scope: column("scope") },
      statuses: {
        ownStatus: side === 0 ? "removed" : (this.meta.made ?? "added"),
        foldedWord: side === 0 ? "folded" : "folded in",
        nodes: column("node_state"),
        values: column("value_state"),
        scopeOwnCount: column("scope_only"),
        scopeChangeCount: column("scope_changed"),
        scopeFoldCount: column("scope_folded"),
      },
    };
  }

  statuses(side: SideOf): DiffStatusData {
    return this.#halves[side].statuses;
  }

  /** Returns the counterpart of a target on the other side, or null. */
  counterpart(side: SideOf, target: Target): Target | null {
    const id = this.#halves[side].there[target.kind][target.id] ?? -1;
    return id < 0 ? null : { kind: target.kind, id };
  }

  /** Returns the changes of a target; for a node also the changes of weights and constants that it reads. */
  about(side: SideOf, target: Target, columns: Columns): readonly Change[] {
    const { changes } = this.#halves[side];
    const own = changes.get(`${target.kind} ${target.id}`) ?? [];
    if (target.kind !== "node") return own;
    const read = [...new Set(columns.inputsOf(target.id))].filter((value) => value >= 0 && columns.isConstant(value));
    const keys = read.flatMap((value) => [`tensor ${value}`, `node ${columns.producer[value]}`]);
    return [...own, ...keys.flatMap((key) => changes.get(key) ?? [])];
  }

  /** Returns the nearest ancestor that both sides have, which shows where the target would be on the other side. */
  before(side: SideOf, target: Target, columns: Columns): Target | null {
    // a set is walked in the order in which it grows
    const queue = new Set([target.kind === "node" ? target.id : columns.producer[target.id]]);
    let ancestors = 0;
    for (const node of queue) {
      if (++ancestors > MAX_ANCESTORS) return null;
      if (node < 0) continue;
      for (const value of columns.inputsOf(node)) {
        if (value < 0 || columns.isConstant(value)) continue;
        const there = this.counterpart(side, { kind: "tensor", id: value });
        if (there !== null) return there;
        queue.add(columns.producer[value]);
      }
    }
    return null;
  }
}

/** Maximum number of ancestors searched for one that both sides have. */
const MAX_ANCESTORS = 500;

/** Describes a change in one line, without the name. */
export function wordsOf({ what, kind, detail, reference, candidate }: Change): string {
  if (what !== "changed") return kind === "node" ? what : [kind, what, candidate || reference].join(" ").trim();
  const subject = kind === detail || detail === "" ? kind : kind === "attribute" ? detail : `${kind} ${detail}`;
  return `${subject}: ${reference || "none"} → ${candidate || "none"}`;
}
