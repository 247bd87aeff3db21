/**
 * One scope as a graph: its items (child scopes and nodes, at the root also inputs and outputs) and one hyperedge for
 * each tensor, which may begin or end at the border of the scope. It does not depend on the open scopes.
 */

import { release } from "../protocol/codec.ts";
import { append, type Columns, oncePerModel, SCOPE_KIND, type Target, VALUE } from "../protocol/columns.ts";
import { Interner } from "./interner.ts";
import { BOX } from "./scene.ts";

/** Ends of a hyperedge that are not items. */
export const BORDER = -1;
const NO_SOURCE = -2;
/** The tensor stays within one item. */
const INSIDE = -3;

/** Numbers in a block of memory that small arrays share. */
const BLOCK = 16_384;

/** More items than any scope has; combines a hyperedge and an item into one number. */
const ITEMS = 2 ** 24;

/** The part of a scope graph without nodes or tensors; equal scopes share it. */
interface Shape {
  /** items in file order: BOX.NODE, BOX.SCOPE, BOX.INPUT or BOX.OUTPUT */
  readonly kind: Uint8Array;
  /** hyperedge → item that produces the tensor, BORDER (it comes from outside) or NOBODY */
  readonly source: Int32Array;
  /** sinks of hyperedge e are ptr[e] … ptr[e+1] − 1: items that read it, once each, or BORDER if it is read outside */
  readonly ptr: Uint32Array;
  readonly sink: Int32Array;
  /** 1: every reader in that item is a body that reads the tensor from outside the body */
  readonly outerScope: Uint8Array;
  /** place of the hyperedge among the outputs of its source, and of a sink among the inputs of its item */
  readonly outSlot: Int32Array;
  readonly inSlot: Int32Array;
  /** number of equal tensors between two items that the label of a hyperedge represents, 0 for those without label */
  readonly speaksFor: Uint32Array;
  /** the same for brief labels: one of several between two items, whatever their types */
  readonly speaksBriefly: Uint32Array;
  /** hyperedge → the one whose label represents it and its equals, −1 for most */
  readonly bundle: Int32Array;
}

export interface ScopeGraph extends Shape {
  readonly scope: number;
  /** item → the node, scope or value */
  readonly id: Int32Array;
  /** hyperedge → its tensor */
  readonly value: Int32Array;
}

/** The scope graphs of a model, built once. */
export const scopesOf = oncePerModel((columns) => new ScopeGraphs(columns));

/** Returns the nodes and scopes directly inside a scope. */
export function boxesIn(columns: Columns, scope: number): Target[] {
  const { kind, id } = scopesOf(columns).of(scope);
  return Array.from(id, (target, item): Target[] => {
    if (kind[item] === BOX.NODE) return [{ kind: "node", id: target }];
    return kind[item] === BOX.SCOPE ? [{ kind: "scope", id: target }] : [];
  }).flat();
}

/** Builds the scope graphs of one model. */
class ScopeGraphs {
  readonly #columns: Columns;
  readonly #graphs = new Map<number, ScopeGraph>();
  readonly #shapes = new Interner<Shape>();
  /** scope → nearest enclosing branch of a body (itself included), −1 in the main graph */
  readonly #branch: Int32Array;
  /** the same including function calls, which have no outer-scope values */
  readonly #body: Int32Array;
  /** node → item of the current scope, valid where #stamp is current */
  #item = new Int32Array(0);
  #stamp = new Uint32Array(0);
  #edge = new Int32Array(0);
  #edgeStamp = new Uint32Array(0);
  /** body input → branch that holds all its readers */
  readonly #home = new Map<number, number>();
  #now = 0;
  #pool = new Int32Array(0);
  #poolEnd = 0;

  constructor(columns: Columns) {
    this.#columns = columns;
    this.#branch = new Int32Array(columns.scopeCount).fill(-1);
    this.#body = new Int32Array(columns.scopeCount).fill(-1);
    for (let scope = 1; scope < columns.scopeCount; scope++) {
      const kind = columns.scopeKind[scope];
      const parent = columns.scopeParent[scope];
      this.#branch[scope] = kind === SCOPE_KIND.BRANCH ? scope : this.#branch[parent];
      this.#body[scope] = kind === SCOPE_KIND.BRANCH || kind === SCOPE_KIND.FUNCTION ? scope : this.#body[parent];
    }
  }

  of(scope: number): ScopeGraph {
    let graph = this.#graphs.get(scope);
    if (graph === undefined) {
      this.#allot();
      graph = this.#build(scope, this.#items(scope));
      this.#graphs.set(scope, graph);
    }
    return graph;
  }

  /** Provides scratch memory until the end of the task: a view at rest builds nothing. */
  #allot(): void {
    const { nodeCount, valueCount } = this.#columns;
    if (this.#stamp.length === nodeCount && this.#edgeStamp.length === valueCount) return;
    this.#item = new Int32Array(nodeCount);
    this.#stamp = new Uint32Array(nodeCount);
    this.#edge = new Int32Array(valueCount);
    this.#edgeStamp = new Uint32Array(valueCount);
    queueMicrotask(() => {
      for (const { buffer } of [this.#item, this.#stamp, this.#edge, this.#edgeStamp]) release(buffer);
    });
  }

  /** Numbers the items in file order and notes the item of every node inside. */
  #items(scope: number): { nodes: Int32Array; kind: number[]; id: number[] } {
    const columns = this.#columns;
    // rows are walked by index: views and iterators of tens of thousands would be 15 MB of garbage
    const { scopeMembers: members, scopeChildren: children } = columns;
    const stamp = ++this.#now;
    const items: { kind: number; id: number; first: number }[] = [];
    const nodes: number[] = [];
    const visit = (node: number, item: number): void => {
      nodes.push(node);
      this.#item[node] = item;
      this.#stamp[node] = stamp;
    };
    const bodyItem = new Map<number, number>();
    for (let c = children.ptr[scope]; c < children.ptr[scope + 1]; c++) {
      const child = children.items[c];
      const item = items.length;
      const before = nodes.length;
      const stack = [child];
      for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
        for (let m = members.ptr[at]; m < members.ptr[at + 1]; m++)
          if (!columns.isFolded(members.items[m])) visit(members.items[m], item);
        for (let inner = children.ptr[at]; inner < children.ptr[at + 1]; inner++) stack.push(children.items[inner]);
      }
      const owner = columns.ownerOf(child);
      if (owner < 0 && nodes.length === before && columns.scopeNodes[child] > 0) continue; // all of it is hidden
      if (owner >= 0) bodyItem.set(owner, item);
      let first = owner >= 0 ? owner : Number.POSITIVE_INFINITY;
      if (owner < 0) for (let k = before; k < nodes.length; k++) first = Math.min(first, nodes[k]);
      items.push({ kind: BOX.SCOPE, id: child, first });
    }
    for (let m = members.ptr[scope]; m < members.ptr[scope + 1]; m++) {
      const node = members.items[m];
      if (columns.isFolded(node)) continue;
      const body = bodyItem.get(node);
      if (body !== undefined) visit(node, body);
      else if (node === columns.scopeNode[scope]) this.#stamp[node] = 0;
      else {
        visit(node, items.length);
        items.push({ kind: BOX.NODE, id: node, first: node });
      }
    }
    const order = [...items.keys()].sort((a, b) => items[a].first - items[b].first || a - b);
    const rank = new Int32Array(items.length);
    for (const [position, item] of order.entries()) rank[item] = position;
    for (const node of nodes) this.#item[node] = rank[this.#item[node]];
    const [kind, id] = [order.map((item) => items[item].kind), order.map((item) => items[item].id)];
    return { nodes: new Int32Array(nodes).sort(), kind, id };
  }

  #build(scope: number, { nodes, kind, id }: { nodes: Int32Array; kind: number[]; id: number[] }): ScopeGraph {
    const columns = this.#columns;
    const stamp = this.#now;
    const value: number[] = [];
    const source: number[] = [];
    const sinks: number[][] = [];
    const outerScope: number[][] = [];
    const placeOf = new Map<number, number>(); // (hyperedge, item) → place among its sinks
    const edgeOf = (tensor: number, from: number): number => {
      if (this.#edgeStamp[tensor] === stamp) return this.#edge[tensor];
      this.#edgeStamp[tensor] = stamp;
      this.#edge[tensor] = value.length;
      value.push(tensor);
      source.push(from);
      sinks.push([]);
      outerScope.push([]);
      return value.length - 1;
    };
    const connect = (edge: number, item: number, isOuter: number): void => {
      const key = edge * ITEMS + item;
      const at = placeOf.get(key);
      if (at !== undefined) outerScope[edge][at] &= isOuter;
      else {
        placeOf.set(key, sinks[edge].length);
        sinks[edge].push(item);
        outerScope[edge].push(isOuter);
      }
    };
    const root = scope === 0;
    if (root) {
      for (const tensor of columns.graphInputs) {
        if (this.#edgeStamp[tensor] === stamp) continue; // listed twice: a problem, drawn once
        edgeOf(tensor, kind.length);
        kind.push(BOX.INPUT);
        id.push(tensor);
      }
    }
    const sourceOf = (tensor: number): number => {
      const producer = columns.producer[tensor];
      if (producer >= 0) return this.#stamp[producer] === stamp ? this.#item[producer] : BORDER;
      switch (columns.valueKind[tensor]) {
        case VALUE.DANGLING:
          return NO_SOURCE;
        case VALUE.BODY_INPUT:
          return this.#bodyInput(scope, tensor, kind, id);
        default:
          return root ? NO_SOURCE : BORDER;
      }
    };

    const { ptr, items: readers } = columns.consumers;
    for (let at = 0; at < nodes.length; at++) {
      const node = nodes[at];
      const item = this.#item[node];
      const branch = this.#branch[columns.nodeScope[node]];
      for (let k = columns.inPtr[node]; k < columns.inPtr[node + 1]; k++) {
        const tensor = columns.inValue[k];
        if (tensor < 0 || columns.isConstant(tensor)) continue;
        const producer = columns.producer[tensor];
        if (producer >= 0 && this.#stamp[producer] === stamp && this.#item[producer] === item) continue; // inside
        const isConnected = this.#edgeStamp[tensor] === stamp;
        const from = isConnected ? 0 : sourceOf(tensor);
        if (from === INSIDE) continue;
        const edge = isConnected ? this.#edge[tensor] : edgeOf(tensor, from);
        connect(edge, item, branch >= 0 && this.#isOuter(branch, tensor) ? 1 : 0);
      }
      for (let k = columns.outPtr[node]; k < columns.outPtr[node + 1]; k++) {
        const tensor = columns.outValue[k];
        if (tensor < 0 || columns.isConstant(tensor) || columns.producer[tensor] !== node) continue;
        // a graph output passes every border up to the root, a result of a body or call those up to its owner
        const frame = this.#body[columns.nodeScope[node]];
        const output = frame < 0 ? columns.isGraphOutput(tensor) : columns.isBodyOutput(tensor);
        let leaves = !root && output && this.#body[scope] === frame && columns.scopeKind[scope] !== SCOPE_KIND.FUNCTION;
        for (let c = ptr[tensor]; c < ptr[tensor + 1] && !leaves; c++)
          leaves = this.#stamp[readers[c]] !== stamp && !columns.isFolded(readers[c]);
        if (leaves) connect(edgeOf(tensor, item), BORDER, 0);
        else if (ptr[tensor] === ptr[tensor + 1] && kind[item] === BOX.NODE) edgeOf(tensor, item);
      }
    }
    // the owner of this body reads and produces its values at the border
    const owner = columns.ownerOf(scope);
    if (owner >= 0) {
      for (const tensor of columns.inputsOf(owner)) {
        if (tensor >= 0 && !columns.isConstant(tensor)) edgeOf(tensor, BORDER);
      }
      for (const tensor of columns.outputsOf(owner)) {
        if (tensor < 0 || columns.isConstant(tensor)) continue;
        // the results of the branches become one tensor: a pill, which leaves the scope
        const pill = kind.length;
        kind.push(BOX.OUTPUT);
        id.push(tensor);
        for (const bodyOutput of columns.yieldedTo(tensor)) {
          const producer = columns.producer[bodyOutput];
          if (producer >= 0 && this.#stamp[producer] === stamp)
            connect(edgeOf(bodyOutput, this.#item[producer]), pill, 0);
          // a value that a call only passes through
          else if (this.#edgeStamp[bodyOutput] === stamp) connect(this.#edge[bodyOutput], pill, 0);
        }
        connect(edgeOf(tensor, pill), BORDER, 0);
      }
    }
    if (root) {
      for (const tensor of columns.graphOutputs) {
        const isConnected = this.#edgeStamp[tensor] === stamp;
        if (isConnected || !columns.isConstant(tensor))
          connect(edgeOf(tensor, isConnected ? 0 : sourceOf(tensor)), kind.length, 0);
        kind.push(BOX.OUTPUT);
        id.push(tensor);
      }
    }
    const packedShape = finish(columns, kind, id, { value, source, sinks, outerScope });
    const shape = this.#shapes.of(Object.values(packedShape), () => packedShape);
    return { scope, id: this.#inPool(id), value: this.#inPool(value), ...shape };
  }

  /** Returns an array within a shared block; tens of thousands of small arrays would take several times its memory. */
  #inPool(numbers: readonly number[]): Int32Array {
    if (this.#poolEnd + numbers.length > this.#pool.length) {
      this.#pool = new Int32Array(Math.max(BLOCK, numbers.length));
      this.#poolEnd = 0;
    }
    const array = this.#pool.subarray(this.#poolEnd, this.#poolEnd + numbers.length);
    array.set(numbers);
    this.#poolEnd += numbers.length;
    return array;
  }

  /** Adds a body input as a pill in the innermost branch that contains all its readers; nothing shows it outside. */
  #bodyInput(scope: number, tensor: number, kind: number[], id: number[]): number {
    let home = this.#home.get(tensor);
    if (home === undefined) {
      const { nodeScope } = this.#columns;
      const branches = Array.from(this.#columns.consumersOf(tensor), (node) => this.#branch[nodeScope[node]]);
      home = branches.reduce((a, b) => this.#commonBranch(a, b));
      this.#home.set(tensor, home);
    }
    if (home === scope) {
      kind.push(BOX.INPUT);
      id.push(tensor);
      return kind.length - 1;
    }
    for (let enclosing = this.#branch[scope]; enclosing >= 0; enclosing = this.#enclosingBranch(enclosing)) {
      if (enclosing === home) return BORDER;
    }
    return home < 0 && scope === 0 ? NO_SOURCE : INSIDE;
  }

  #commonBranch(a: number, b: number): number {
    let [x, y] = [a, b];
    // parents have smaller numbers than their children
    while (x !== y) {
      if (x > y) x = this.#enclosingBranch(x);
      else y = this.#enclosingBranch(y);
    }
    return x;
  }

  #enclosingBranch(branch: number): number {
    return this.#branch[this.#columns.scopeParent[branch]];
  }

  /** Returns whether the tensor is an outer-scope value of a reader in `branch`. */
  #isOuter(branch: number, tensor: number): boolean {
    const columns = this.#columns;
    const producer = columns.producer[tensor];
    if (producer >= 0) return this.#branch[columns.nodeScope[producer]] !== branch;
    return columns.valueKind[tensor] !== VALUE.BODY_INPUT;
  }
}

interface Hyperedges {
  readonly value: readonly number[];
  readonly source: readonly number[];
  readonly sinks: readonly (readonly number[])[];
  readonly outerScope: readonly (readonly number[])[];
}

/** Packs the lists and numbers the ports of every item: for a node in the order of its inputs, else as they come. */
function finish(columns: Columns, kind: number[], id: number[], edges: Hyperedges): Shape {
  const count = edges.value.length;
  const ptr = new Uint32Array(count + 1);
  for (let e = 0; e < count; e++) ptr[e + 1] = ptr[e] + edges.sinks[e].length;
  const sink = new Int32Array(ptr[count]);
  const outerScope = new Uint8Array(ptr[count]);
  const outSlot = new Int32Array(count);
  const inSlot = new Int32Array(ptr[count]);
  const outs = new Int32Array(kind.length);
  const ins = new Int32Array(kind.length);
  for (let e = 0; e < count; e++) {
    sink.set(edges.sinks[e], ptr[e]);
    outerScope.set(edges.outerScope[e], ptr[e]);
    const from = edges.source[e];
    if (from >= 0)
      outSlot[e] = kind[from] === BOX.NODE ? columns.outputsOf(id[from]).indexOf(edges.value[e]) : outs[from]++;
    for (let k = ptr[e]; k < ptr[e + 1]; k++) {
      const to = sink[k];
      if (to >= 0) inSlot[k] = kind[to] === BOX.NODE ? columns.inputsOf(id[to]).indexOf(edges.value[e]) : ins[to]++;
    }
  }
  return {
    kind: Uint8Array.from(kind),
    source: Int32Array.from(edges.source),
    ptr,
    sink,
    outerScope,
    outSlot,
    inSlot,
    ...speakers(columns, edges, ptr, sink),
  };
}

/** Tensors of one type between two items beyond which they share one label … */
const MAX_LABELS = 8;
/** … and of any type, for brief labels. */
const MAX_BRIEF_LABELS = 3;

function speakers(columns: Columns, { value, source }: Hyperedges, ptr: Uint32Array, sink: Int32Array) {
  const speaksFor = new Uint32Array(value.length).fill(1);
  const speaksBriefly = new Uint32Array(value.length).fill(1);
  const bundle = new Int32Array(value.length).fill(-1);
  const sameType = new Map<string, number[]>();
  if (value.length <= MAX_BRIEF_LABELS) return { speaksFor, speaksBriefly, bundle };
  const sameEnds = new Map<string, number[]>();
  for (let e = 0; e < value.length; e++) {
    if (ptr[e + 1] - ptr[e] !== 1 || source[e] < 0 || sink[ptr[e]] < 0) continue;
    const ends = `${source[e]},${sink[ptr[e]]}`;
    append(sameEnds, ends, e);
    append(sameType, `${ends},${columns.valueShape[value[e]]},${columns.valueDtype[value[e]]}`, e);
  }
  for (const all of sameEnds.values()) {
    if (all.length <= MAX_BRIEF_LABELS) continue;
    // floating-point tensors are more informative than indices and sizes
    const speaker = all.find((e) => columns.dtypeOf(value[e]).includes("float")) ?? all[0];
    for (const e of all) speaksBriefly[e] = 0;
    speaksBriefly[speaker] = all.length;
  }
  for (const group of sameType.values()) {
    if (group.length <= MAX_LABELS) continue;
    const speaker = group[group.length - 1];
    for (const e of group) {
      speaksFor[e] = 0;
      bundle[e] = speaker;
    }
    speaksFor[speaker] = group.length;
  }
  return { speaksFor, speaksBriefly, bundle };
}
