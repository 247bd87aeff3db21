/**
 * Positions on a line that keep minimum distances and minimize the total length: the network simplex method of Gansner,
 * Koutsofios, North & Vo, "A Technique for Drawing Directed Graphs" (1993). Cut values are sums over subtrees.
 */

import { itemsBy } from "../protocol/columns.ts";

/** Distances head − tail ≥ least; each unit of head − tail costs its weight. */
export interface Distances {
  readonly tail: readonly number[];
  readonly head: readonly number[];
  readonly minDistance: readonly number[];
  readonly weight: readonly number[];
}

/**
 * Improves feasible positions until they are optimal or the steps run out; a step takes about `count` + the number of
 * distances operations. The graph of the distances must be connected.
 */
export function shorten(place: Int32Array, distances: Distances, steps: number): void {
  const tree = new SpanningTree(place, distances);
  for (let step = 0; step < steps; step++) if (!tree.improve()) return;
}

/** A spanning tree of distances that are kept exactly. */
class SpanningTree {
  readonly #place: Int32Array;
  readonly #distances: Distances;
  readonly #count: number;
  readonly #inTree: Uint8Array;
  /** node → its edges: node v has incident[ptr[v]] … incident[ptr[v+1] − 1] */
  readonly #ptr: Uint32Array;
  readonly #incident: Uint32Array;
  /** node → weight of outgoing edges minus weight of incoming edges, and the sum over its subtree */
  readonly #surplus: Float64Array;
  readonly #sum: Float64Array;
  /** nodes from the root out; node → its index there, the end of its subtree, the tree's edge to its parent */
  readonly #order: Int32Array;
  readonly #begin: Int32Array;
  readonly #end: Int32Array;
  readonly #edge: Int32Array;

  constructor(place: Int32Array, distances: Distances) {
    const count = place.length;
    const { tail, head, weight } = distances;
    this.#place = place;
    this.#distances = distances;
    this.#count = count;
    this.#inTree = new Uint8Array(tail.length);
    this.#surplus = new Float64Array(count);
    for (let e = 0; e < tail.length; e++) {
      this.#surplus[tail[e]] += weight[e];
      this.#surplus[head[e]] -= weight[e];
    }
    const endpoints = tail.flatMap((v, e) => [v, head[e]]);
    const ends = itemsBy(endpoints, count);
    this.#ptr = ends.ptr;
    this.#incident = ends.items.map((end) => end >> 1);
    this.#sum = new Float64Array(count);
    this.#order = new Int32Array(count);
    this.#begin = new Int32Array(count);
    this.#end = new Int32Array(count);
    this.#edge = new Int32Array(count);
    this.#grow();
    this.#walk();
  }

  #slack(e: number): number {
    const { tail, head, minDistance } = this.#distances;
    return this.#place[head[e]] - this.#place[tail[e]] - minDistance[e];
  }

  /** Grows the tree by tight distances, one node at a time; if there is none, moves the whole tree nearer. */
  #grow(): void {
    const { tail, head } = this.#distances;
    const inTree = new Uint8Array(this.#count);
    const nodes = [0];
    inTree[0] = 1;
    for (let at = 0; nodes.length < this.#count; ) {
      for (; at < nodes.length; at++) {
        for (let j = this.#ptr[nodes[at]]; j < this.#ptr[nodes[at] + 1]; j++) {
          const e = this.#incident[j];
          const node = inTree[tail[e]] ? head[e] : tail[e];
          if (inTree[node] || this.#slack(e) !== 0) continue;
          this.#inTree[e] = 1;
          inTree[node] = 1;
          nodes.push(node);
        }
      }
      if (nodes.length === this.#count) return;
      let tightest = -1;
      for (let e = 0; e < tail.length; e++) {
        if (inTree[tail[e]] === inTree[head[e]]) continue;
        if (tightest < 0 || this.#slack(e) < this.#slack(tightest)) tightest = e;
      }
      if (tightest < 0) throw new Error("the distances are not connected");
      const move = inTree[tail[tightest]] ? this.#slack(tightest) : -this.#slack(tightest);
      for (const node of nodes) this.#place[node] += move;
      const node = inTree[tail[tightest]] ? head[tightest] : tail[tightest];
      this.#inTree[tightest] = 1;
      inTree[node] = 1;
      nodes.push(node);
    }
  }

  /** Numbers the nodes depth first, so that a subtree is a range, and sums the weights of each subtree. */
  #walk(): void {
    const { tail, head } = this.#distances;
    this.#edge.fill(-1);
    const stack = [0];
    let next = 0;
    for (let v = stack.pop(); v !== undefined; v = stack.pop()) {
      this.#begin[v] = next;
      this.#order[next++] = v;
      for (let j = this.#ptr[v]; j < this.#ptr[v + 1]; j++) {
        const e = this.#incident[j];
        if (!this.#inTree[e] || e === this.#edge[v]) continue;
        const child = tail[e] === v ? head[e] : tail[e];
        this.#edge[child] = e;
        stack.push(child);
      }
    }
    this.#sum.set(this.#surplus);
    for (let v = 0; v < this.#count; v++) this.#end[v] = this.#begin[v] + 1;
    for (let at = this.#count - 1; at > 0; at--) {
      const v = this.#order[at];
      const parent = tail[this.#edge[v]] === v ? head[this.#edge[v]] : tail[this.#edge[v]];
      this.#sum[parent] += this.#sum[v];
      this.#end[parent] = Math.max(this.#end[parent], this.#end[v]);
    }
  }

  /** Replaces one distance of the tree by another without lengthening the total; false at the optimum. */
  improve(): boolean {
    const { tail, head } = this.#distances;
    let leaving = -1; // by the node under it
    let minCut = 0;
    for (let at = 1; at < this.#count; at++) {
      const v = this.#order[at];
      const cut = tail[this.#edge[v]] === v ? this.#sum[v] : -this.#sum[v];
      if (cut >= minCut) continue;
      minCut = cut;
      leaving = v;
    }
    if (leaving < 0) return false;
    const begin = this.#begin[leaving];
    const end = this.#end[leaving];
    const inside = (v: number): boolean => this.#begin[v] >= begin && this.#begin[v] < end;
    // the subtree moves away from the leaving edge until another distance becomes tight
    const up = tail[this.#edge[leaving]] === leaving;
    let entering = -1;
    for (let at = begin; at < end; at++) {
      const v = this.#order[at];
      for (let j = this.#ptr[v]; j < this.#ptr[v + 1]; j++) {
        const e = this.#incident[j];
        if ((up ? head[e] : tail[e]) !== v || inside(up ? tail[e] : head[e])) continue;
        if (entering < 0 || this.#slack(e) < this.#slack(entering)) entering = e;
      }
    }
    if (entering < 0) return false;
    const move = up ? -this.#slack(entering) : this.#slack(entering);
    for (let at = begin; at < end; at++) this.#place[this.#order[at]] += move;
    this.#inTree[this.#edge[leaving]] = 0;
    this.#inTree[entering] = 1;
    this.#walk();
    return true;
  }
}
