/** Highlights in a scene: selection, hover, the planned extraction, problems, hits of a search. */

import { type Columns, NODE_FAULT, type Target, VALUE_FAULT } from "../protocol/columns.ts";
import { BOX, isPill, type Scene } from "../scene/scene.ts";
import { type Hit, type State, selectionOf } from "../scene/state.ts";

/** Styles of an edge, weakest first; a stronger reason wins. */
export const EDGE = { PLAIN: 0, SPREAD: 1, HIT: 2, CUT: 3, REDUNDANT: 4, HOVER: 5, LIT: 6, MISSING: 7 } as const;

export interface Marks {
  /** boxes that are selected */
  readonly selection: ReadonlySet<number>;
  /** −1 for none */
  readonly hovered: number;
  /** producer and consumers of the selected tensor */
  readonly lit: ReadonlySet<number>;
  /** box → number of its nodes in the extraction */
  readonly extraction: ReadonlyMap<number, number>;
  /** value → style of its edges; values not in here are plain */
  readonly values: ReadonlyMap<number, number>;
  /** edges in the planned extraction */
  readonly glow: ReadonlySet<number>;
  readonly inputs: ReadonlySet<number>;
  readonly outputs: ReadonlySet<number>;
  /** box → problems in it */
  readonly faults: ReadonlyMap<number, number>;
  readonly hits: ReadonlySet<number>;
}

/** Returns the box of a target; a node with bodies is drawn as the scope of its bodies. */
export function boxOf(scene: Scene, columns: Columns, target: Target): number {
  if (target.kind === "node" && columns.nodeBody[target.id] >= 0) {
    const body = scene.boxOf("scope", columns.nodeBody[target.id]);
    if (body >= 0) return body;
  }
  return scene.boxOf(target.kind, target.id);
}

export function marksOf(scene: Scene, columns: Columns, state: State, faults: ReadonlyMap<number, number>): Marks {
  const { selection, hover, boundary, plan } = state;
  const values = new Map<number, number>();
  const mark = (value: number, how: number): void => {
    values.set(value, Math.max(how, values.get(value) ?? EDGE.PLAIN));
  };
  const lit = new Set<number>();
  const selectionBoxes = new Set<number>();
  for (const target of selectionOf(state)) {
    const box = boxOf(scene, columns, target);
    if (target.kind !== "tensor") {
      if (box >= 0) selectionBoxes.add(box);
      continue;
    }
    mark(target.id, EDGE.LIT);
    const { producer, consumers } = scene.boxesOfValue(target.id);
    if (producer >= 0) lit.add(producer);
    for (const reader of consumers) lit.add(reader);
    // a pill represents the tensor itself; any other box is only its neighbor
    if (isPill(scene.boxes.kind[box])) selectionBoxes.add(box);
  }
  if (hover?.kind === "tensor") mark(hover.id, EDGE.HOVER);
  for (const value of boundary.inputs) mark(value, EDGE.LIT);
  for (const value of boundary.outputs) mark(value, EDGE.LIT);

  const extraction = new Map<number, number>();
  const glow = new Set<number>();
  if (plan !== null) {
    for (const value of plan.redundant) values.set(value, EDGE.REDUNDANT);
    for (const { value } of plan.missing) mark(value, EDGE.MISSING);
    count(scene, columns, plan.nodes, extraction);
    // the edges from an extracted node or a chosen input to an extracted node
    const follow = (value: number): void => {
      for (const edge of scene.edgesOf(value)) if (extraction.has(scene.edges.toBox[edge])) glow.add(edge);
    };
    for (const node of plan.nodes) for (const value of columns.outputsOf(node)) if (value >= 0) follow(value);
    boundary.inputs.forEach(follow);
  }

  const searchMarks = litBy(state.hits, scene, columns);
  for (const value of searchMarks.values) mark(value, EDGE.HIT);
  const chain = state.hits[state.hit]?.chain ?? [];
  // the tensors of the current chain are emphasized
  if (selection?.kind === "node" && chain[0] === selection.id) {
    for (const value of along(columns, chain)) mark(value, EDGE.LIT);
  }
  return {
    selection: selectionBoxes,
    hovered: hover === null || hover.kind === "tensor" ? -1 : boxOf(scene, columns, hover),
    lit,
    extraction,
    values,
    glow,
    inputs: new Set(boundary.inputs),
    outputs: new Set(boundary.outputs),
    faults,
    hits: searchMarks.boxes,
  };
}

/** Boxes of the hits, cached while the hits stay the same. */
const litBefore = new WeakMap<readonly Hit[], ReturnType<typeof litBy>>();

function litBy(
  hits: readonly Hit[],
  scene: Scene,
  columns: Columns,
): { readonly scene: Scene; readonly boxes: ReadonlySet<number>; readonly values: ReadonlySet<number> } {
  const marks = litBefore.get(hits);
  if (marks?.scene === scene) return marks;
  const boxes = new Set<number>();
  const values = new Set<number>();
  const light = (target: Target): void => {
    const box = boxOf(scene, columns, target);
    if (box >= 0 && scene.boxes.kind[box] !== BOX.OPEN) boxes.add(box);
  };
  for (const { kind, id, chain } of hits) {
    if (chain !== undefined) {
      for (const node of chain) light({ kind: "node", id: node });
      for (const value of along(columns, chain)) values.add(value);
    } else if (kind === "tensor" && shownAsEdge(scene, columns, id)) values.add(id);
    else light({ kind, id });
  }
  const lit = { scene, boxes, values };
  litBefore.set(hits, lit);
  return lit;
}

/** Returns the tensors that one node of a chain produces and the next one reads. */
function along(columns: Columns, chain: readonly number[]): number[] {
  return chain.slice(1).flatMap((node, place) => {
    const read = columns.inputsOf(node);
    return Array.from(columns.outputsOf(chain[place])).filter((value) => value >= 0 && read.includes(value));
  });
}

/** Returns whether a value has edges to highlight: if not, its own box is, or the box that contains it. */
function shownAsEdge(scene: Scene, columns: Columns, value: number): boolean {
  if (columns.isConstant(value) || scene.edgesOf(value).length === 0) return false;
  return !isPill(scene.boxes.kind[scene.boxOf("tensor", value)]);
}

/** Returns box → number of problems it shows; cached for a scene. */
export function faultsOf(scene: Scene, columns: Columns): Map<number, number> {
  const nodes: number[] = [];
  if (columns.meta.faults.length > 0) {
    for (let node = 0; node < columns.nodeCount; node++) {
      if ((columns.nodeFlags[node] & NODE_FAULT) !== 0) nodes.push(node);
    }
    for (let value = 0; value < columns.valueCount; value++) {
      if ((columns.valueFlags[value] & VALUE_FAULT) === 0) continue;
      const producer = columns.producer[value];
      if (producer >= 0) nodes.push(producer);
      else nodes.push(...columns.consumersOf(value));
    }
  }
  const faults = new Map<number, number>();
  count(scene, columns, new Set(nodes), faults);
  // an open scope shows its problems inside
  for (const box of faults.keys()) if (scene.boxes.kind[box] === BOX.OPEN) faults.delete(box);
  return faults;
}

/** Adds each node to its box and to every open box around it. */
function count(scene: Scene, columns: Columns, nodes: Iterable<number>, into: Map<number, number>): void {
  for (const node of nodes) {
    for (let box = boxOf(scene, columns, { kind: "node", id: node }); box >= 0; box = scene.boxes.parent[box]) {
      into.set(box, (into.get(box) ?? 0) + 1);
    }
  }
}
