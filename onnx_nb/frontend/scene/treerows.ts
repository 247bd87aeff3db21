/**
 * The rows of the accessible tree: scopes, their nodes in file order, the tensors that each node makes. Stored as
 * columns, since a large graph has more than 100,000.
 */

import type { Columns, Target } from "../protocol/columns.ts";

export interface Row {
  readonly target: Target;
  readonly level: number;
  /** null for a leaf */
  readonly expanded: boolean | null;
  /** position among its siblings, from 1 */
  readonly position: number;
  readonly siblings: number;
}

const KINDS = ["scope", "node", "tensor"] as const;
const LEAF = 0;
const CLOSED = 1;
const EXPANDED = 2;

export class Rows {
  #length = 0;
  #kind = new Uint8Array(64);
  #state = new Uint8Array(64);
  #level = new Uint16Array(64);
  #id = new Int32Array(64);
  #position = new Int32Array(64);
  #siblings = new Int32Array(64);

  /** @param folded nodes whose tensors are hidden */
  static of(columns: Columns, open: ReadonlySet<number>, folded: ReadonlySet<number>): Rows {
    const rows = new Rows();
    if (columns.scopeCount > 0) rows.#inside(columns, open, folded, firstNodesOf(columns), 0, 1);
    return rows;
  }

  get length(): number {
    return this.#length;
  }

  at(at: number): Row {
    const state = this.#state[at];
    return {
      target: this.targetAt(at),
      level: this.#level[at],
      expanded: state === LEAF ? null : state === EXPANDED,
      position: this.#position[at],
      siblings: this.#siblings[at],
    };
  }

  targetAt(at: number): Target {
    return { kind: KINDS[this.#kind[at]], id: this.#id[at] };
  }

  /** Row of a target, −1 for none. */
  indexOf({ kind, id }: Target): number {
    const wanted = KINDS.indexOf(kind);
    let at = this.#id.indexOf(id);
    while (at >= 0 && at < this.#length && this.#kind[at] !== wanted) at = this.#id.indexOf(id, at + 1);
    return at < this.#length ? at : -1;
  }

  /** Parent row, −1 at the top. */
  around(at: number): number {
    let above = at - 1;
    while (above >= 0 && this.#level[above] >= this.#level[at]) above--;
    return above;
  }

  #add(kind: number, id: number, level: number, state: number, position: number, siblings: number): void {
    if (this.#length === this.#kind.length) this.#grow();
    const at = this.#length++;
    this.#kind[at] = kind;
    this.#id[at] = id;
    this.#level[at] = level;
    this.#state[at] = state;
    this.#position[at] = position;
    this.#siblings[at] = siblings;
  }

  #grow(): void {
    const longer = <T extends Uint8Array | Uint16Array | Int32Array>(column: T, made: T): T => {
      made.set(column);
      return made;
    };
    const length = 2 * this.#length;
    this.#kind = longer(this.#kind, new Uint8Array(length));
    this.#state = longer(this.#state, new Uint8Array(length));
    this.#level = longer(this.#level, new Uint16Array(length));
    this.#id = longer(this.#id, new Int32Array(length));
    this.#position = longer(this.#position, new Int32Array(length));
    this.#siblings = longer(this.#siblings, new Int32Array(length));
  }

  #inside(
    columns: Columns,
    open: ReadonlySet<number>,
    folded: ReadonlySet<number>,
    first: Int32Array,
    scope: number,
    level: number,
  ): void {
    const [SCOPE, NODE, TENSOR] = [0, 1, 2];
    const scopes = Array.from(columns.childrenOf(scope)).sort((a, b) => first[a] - first[b]);
    const nodes: number[] = [];
    for (const id of columns.membersOf(scope)) {
      if (!columns.isFolded(id) && columns.nodeBody[id] < 0) nodes.push(id);
    }
    const inputs = scope === 0 ? columns.graphInputs : [];
    const count = inputs.length + scopes.length + nodes.length;
    let position = 0;
    for (const id of inputs) this.#add(TENSOR, id, level, LEAF, ++position, count);
    for (let g = 0, n = 0; g + n < scopes.length + nodes.length; ) {
      if (n === nodes.length || (g < scopes.length && first[scopes[g]] <= nodes[n])) {
        const id = scopes[g++];
        const expanded = open.has(id);
        this.#add(SCOPE, id, level, expanded ? EXPANDED : CLOSED, ++position, count);
        if (expanded) this.#inside(columns, open, folded, first, id, level + 1);
        continue;
      }
      const id = nodes[n++];
      let made = 0;
      // the empty name is string 0
      const named = (at: number): boolean => columns.outValue[at] >= 0 && columns.valueName[columns.outValue[at]] !== 0;
      for (let at = columns.outPtr[id]; at < columns.outPtr[id + 1]; at++) if (named(at)) made++;
      const expanded = made > 0 && !folded.has(id);
      this.#add(NODE, id, level, made === 0 ? LEAF : expanded ? EXPANDED : CLOSED, ++position, count);
      if (!expanded) continue;
      let nth = 0;
      for (let at = columns.outPtr[id]; at < columns.outPtr[id + 1]; at++) {
        if (named(at)) this.#add(TENSOR, columns.outValue[at], level + 1, LEAF, ++nth, made);
      }
    }
  }
}

const firstNodes = new WeakMap<Columns, Int32Array>();

/** scope → its first node in file order, which determines its position among its siblings. */
function firstNodesOf(columns: Columns): Int32Array {
  const known = firstNodes.get(columns);
  if (known !== undefined) return known;
  const first = new Int32Array(columns.scopeCount).fill(0x7fffffff);
  for (let node = columns.nodeCount - 1; node >= 0; node--) first[columns.nodeScope[node]] = node;
  for (let scope = columns.scopeCount - 1; scope > 0; scope--) {
    if (columns.scopeNode[scope] >= 0) first[scope] = Math.min(first[scope], columns.scopeNode[scope]);
    const parent = columns.scopeParent[scope];
    first[parent] = Math.min(first[parent], first[scope]);
  }
  firstNodes.set(columns, first);
  return first;
}
