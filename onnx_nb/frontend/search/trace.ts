/** Ancestors and descendants of nodes, also through bodies of If, Loop and Scan. */

import type { Columns } from "../protocol/columns.ts";

/** The nodes that lead to `starts`, or that are reached from them, including `starts`. */
export function trace(columns: Columns, starts: Iterable<number>, way: "before" | "after"): Uint8Array {
  const { inPtr, inValue, outPtr, outValue, producer, nodeScope } = columns;
  const owner = ownersOf(columns);
  // a body runs with its owner, which reads what the body's nodes read and makes what they return
  const inside = new Map<number, number[]>();
  for (let node = 0; node < columns.nodeCount; node++) {
    const of = owner[nodeScope[node]];
    if (of < 0 || of === node) continue;
    const known = inside.get(of);
    if (known === undefined) inside.set(of, [node]);
    else known.push(node);
  }
  const reached = new Uint8Array(columns.nodeCount);
  const stack: number[] = [];
  const reach = (node: number): void => {
    if (node < 0 || reached[node] === 1) return;
    reached[node] = 1;
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
  return reached;
}

/** scope → the node that owns the body around it, −1 in the main graph */
function ownersOf(columns: Columns): Int32Array {
  const owner = new Int32Array(columns.scopeCount).fill(-1);
  for (let scope = 1; scope < columns.scopeCount; scope++) {
    // parents have smaller numbers than their children
    owner[scope] = columns.scopeNode[scope] >= 0 ? columns.scopeNode[scope] : owner[columns.scopeParent[scope]];
  }
  return owner;
}
