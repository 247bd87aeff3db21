/**
 * Chains of nodes along the flow: each node reads an output of the previous one or, across a gap, something made from
 * it. Also the ancestors and descendants of nodes, including those through bodies of If, Loop and Scan.
 */

import { append, type Columns } from "../protocol/columns.ts";

/** Maximum number of nodes in a gap. */
export const WIDEST_GAP = 32;
const UNREACHED_STEPS = 255;

/**
 * Finds all chains whose node at place k is in `masks[k]`, in the order of their first nodes. Across a gap it takes one
 * shortest path to each node at the end, through nodes that match neither end.
 *
 * A backward pass finds the nodes where a chain can still be completed, so that the forward pass has no dead ends.
 */
export function* chains(
  columns: Columns,
  masks: readonly Uint8Array[],
  gaps: readonly boolean[],
  limit: number,
): Generator<undefined, { readonly paths: number[][]; readonly more: boolean }, boolean | undefined> {
  const { nodeCount } = columns;
  const last = masks.length - 1;
  const candidates = [...masks];
  const passes = (node: number, place: number): boolean => masks[place][node] === 0 && masks[place - 1][node] === 0;
  /** for a gap before place k: node → number of steps to the next node of place k */
  const distances: Uint8Array[] = [];
  for (let place = last; place > 0; place--) {
    const before = new Uint8Array(nodeCount);
    const steps = new Uint8Array(nodeCount).fill(UNREACHED_STEPS);
    let front: number[] = [];
    for (let node = 0; node < nodeCount; node++) if (candidates[place][node] === 1) front.push(node);
    const reach = gaps[place] ? WIDEST_GAP + 1 : 1;
    for (let step = 1; step <= reach && front.length > 0; step++) {
      if (yield) return { paths: [], more: true };
      const next: number[] = [];
      for (const node of front) {
        for (const value of columns.inputsOf(node)) {
          const from = value < 0 ? -1 : columns.producer[value];
          if (from < 0 || steps[from] !== UNREACHED_STEPS || columns.isFolded(from)) continue;
          steps[from] = step;
          before[from] = masks[place - 1][from];
          if (passes(from, place)) next.push(from);
        }
      }
      front = next;
    }
    candidates[place - 1] = before;
    distances[place] = steps;
  }

  const paths: number[][] = [];
  const rounds = new Uint32Array(nodeCount);
  const cameFrom = new Uint32Array(nodeCount);
  let round = 0;
  const readersOf = (node: number): number[] => {
    const readers: number[] = [];
    for (const value of columns.outputsOf(node)) {
      if (value >= 0) for (const reader of columns.consumersOf(value)) readers.push(reader);
    }
    return readers;
  };
  /** Returns the paths from the end of a chain to the next place, each without its first node. */
  const onward = (from: number, place: number): number[][] => {
    const ways: number[][] = [];
    rounds[from] = ++round;
    let front = [from];
    for (let left = gaps[place] ? WIDEST_GAP : 0; front.length > 0; left--) {
      const next: number[] = [];
      for (const node of front) {
        for (const reader of readersOf(node)) {
          if (rounds[reader] === round) continue;
          rounds[reader] = round;
          cameFrom[reader] = node;
          if (candidates[place][reader] === 1) {
            const way = [reader];
            for (let at = cameFrom[reader]; at !== from; at = cameFrom[at]) way.push(at);
            ways.push(way.reverse());
          } else if (passes(reader, place) && distances[place][reader] <= left) next.push(reader);
        }
      }
      front = next;
    }
    return ways;
  };

  // depth-first search with an explicit stack
  let work = 0;
  for (let first = 0; first < nodeCount; first++) {
    if (candidates[0][first] === 0) continue;
    const due: [path: number[], place: number][] = [[[first], 0]];
    for (let top = due.pop(); top !== undefined; top = due.pop()) {
      const [path, place] = top;
      if (place === last) {
        if (paths.length === limit) return { paths, more: true };
        paths.push(path);
        continue;
      }
      if ((++work & 63) === 0 && (yield)) return { paths, more: true };
      const ways = onward(path[path.length - 1], place + 1);
      for (const way of ways.reverse()) due.push([[...path, ...way], place + 1]);
    }
  }
  return { paths, more: false };
}

/** Returns the nodes that lead to `starts`, or that are reached from them, including `starts`. */
export function trace(columns: Columns, starts: Iterable<number>, way: "before" | "after"): Uint8Array {
  const { inPtr, inValue, outPtr, outValue, producer, nodeScope } = columns;
  // scope → the node that owns the body around it, −1 in the main graph; parents have smaller numbers than children
  const owner = new Int32Array(columns.scopeCount).fill(-1);
  for (let scope = 1; scope < columns.scopeCount; scope++) {
    owner[scope] = columns.scopeNode[scope] >= 0 ? columns.scopeNode[scope] : owner[columns.scopeParent[scope]];
  }
  // a body runs with its owner, which reads the inputs of the body's nodes and produces their results
  const inside = new Map<number, number[]>();
  for (let node = 0; node < columns.nodeCount; node++) {
    const of = owner[nodeScope[node]];
    if (of >= 0 && of !== node) append(inside, of, node);
  }
  const reachedMask = new Uint8Array(columns.nodeCount);
  const stack: number[] = [];
  const reach = (node: number): void => {
    if (node < 0 || reachedMask[node] === 1) return;
    reachedMask[node] = 1;
    stack.push(node);
  };
  for (const node of starts) reach(node);
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (way === "before") {
      for (let at = inPtr[node]; at < inPtr[node + 1]; at++) if (inValue[at] >= 0) reach(producer[inValue[at]]);
      for (const inner of inside.get(node) ?? []) reach(inner);
    } else {
      for (let at = outPtr[node]; at < outPtr[node + 1]; at++) {
        if (outValue[at] >= 0) for (const reader of columns.consumersOf(outValue[at])) reach(reader);
      }
      if (owner[nodeScope[node]] !== node) reach(owner[nodeScope[node]]);
    }
  }
  return reachedMask;
}
