/**
 * The graph as the kernel sends it: typed arrays and one string table, plus the few tables that follow from them
 * (producers, consumers, children of a group). Nothing here changes after it is built.
 */

import { column, type Packed, Strings, type TypedArray } from "./codec.ts";

/** Kinds of a value, as in `Graph.value_kind`. */
export const VALUE = { NODE_OUTPUT: 0, GRAPH_INPUT: 1, INITIALIZER: 2, DANGLING: 3, BODY_INPUT: 4 } as const;
/** Kinds of a group, as in `Scopes.scope_kind`. */
export const SCOPE_KIND = {
  ROOT: 0,
  SCOPE: 1,
  REPEAT: 2,
  CHUNK: 3,
  BODY: 4,
  BRANCH: 5,
  FUNCTION: 6,
  SIBLINGS: 7,
} as const;
export const NODE_FOLDED = 1;
export const NODE_FAULT = 2;
export const NODE_FUNCTION = 4;
export const NODE_DIFFERS = 8;
export const VALUE_OUTPUT = 1;
export const VALUE_CONSTANT = 2;
export const VALUE_FAULT = 4;

/** What a person can point at. */
export interface Target {
  readonly kind: "node" | "tensor" | "scope";
  readonly id: number;
}

export interface Fault {
  readonly kind: string;
  readonly message: string;
  readonly node: number;
  readonly value: number;
}

export interface Meta {
  readonly version: number;
  readonly name: string;
  readonly ir_version: number;
  readonly opsets: Readonly<Record<string, number>>;
  readonly producer: string;
  readonly categories: readonly string[];
  readonly scope_source: string;
  readonly main_nodes: number;
  readonly nodes: number;
  readonly values: number;
  readonly nbytes: number;
  readonly faults: readonly Fault[];
}

/** Rows `row` of a compressed table: `items.subarray(ptr[row], ptr[row + 1])`. */
export interface Rows<T extends Uint32Array | Int32Array> {
  readonly ptr: Uint32Array;
  readonly items: T;
}

export class Columns {
  readonly meta: Meta;
  readonly nodeCount: number;
  readonly valueCount: number;
  readonly scopeCount: number;

  readonly opName: Uint32Array;
  readonly opDomain: Uint32Array;
  readonly opCategory: Uint8Array;
  readonly opInputs: Uint32Array;
  /** what its attributes are where a node leaves them out; "strides 1…" is as many ones as it takes */
  readonly opDefaults: Uint32Array;

  readonly nodeOp: Uint32Array;
  readonly nodeName: Uint32Array;
  readonly nodeScope: Uint32Array;
  readonly nodeFlags: Uint8Array;
  readonly nodeAttributes: Uint32Array;
  readonly nodeBody: Int32Array;
  readonly inPtr: Uint32Array;
  readonly inValue: Int32Array;
  readonly outPtr: Uint32Array;
  readonly outValue: Int32Array;

  readonly valueName: Uint32Array;
  readonly valueKind: Uint8Array;
  readonly valueFlags: Uint8Array;
  readonly valueDtype: Uint32Array;
  readonly valueShape: Uint32Array;
  readonly valueLiteral: Uint32Array;
  readonly graphInputs: Int32Array;
  readonly graphOutputs: Int32Array;
  /** what a body gives, and the output of its owner that this becomes */
  readonly yieldValue: Int32Array;
  readonly yieldOutput: Int32Array;

  readonly scopeParent: Int32Array;
  readonly scopeName: Uint32Array;
  readonly scopePath: Uint32Array;
  readonly scopeClass: Uint32Array;
  readonly scopeKind: Uint8Array;
  readonly scopeNode: Int32Array;
  readonly scopeNodes: Uint32Array;
  readonly scopeParams: Float64Array;
  readonly scopeBytes: Float64Array;
  readonly scopeRepeat: Uint32Array;
  /** members of a row of equals that differ from most; 1: a member that does */
  readonly scopeDiffers: Uint32Array;
  /** in what, or for a row of equals who */
  readonly scopeDifference: Uint32Array;

  /** value → node that makes it, −1 if none. */
  readonly producer: Int32Array;
  /** value → nodes that read it (once each). */
  readonly consumers: Rows<Uint32Array>;
  /** group → nodes directly in it. */
  readonly scopeMembers: Rows<Uint32Array>;
  /** group → groups directly in it. */
  readonly scopeChildren: Rows<Uint32Array>;
  /** group → how many groups enclose it (the root has 0). */
  readonly scopeDepth: Uint16Array;

  /** the string table in UTF-8: string i lies in stringPtr[i] … stringPtr[i + 1] */
  readonly stringBytes: Uint8Array;
  readonly stringPtr: Uint32Array;
  readonly #strings: Strings;

  #scopeCategory: Uint8Array | undefined;
  #yielded: Set<number> | undefined;
  #given: Map<number, number[]> | undefined;

  constructor(packed: Packed) {
    const take = <T extends TypedArray>(name: string, type: new (n: number) => T): T => column(packed, name, type);
    this.meta = packed.meta as Meta;
    this.#strings = new Strings(packed);
    this.stringBytes = this.#strings.bytes;
    this.stringPtr = this.#strings.ptr;
    this.opName = take("op_name", Uint32Array);
    this.opDomain = take("op_domain", Uint32Array);
    this.opCategory = take("op_category", Uint8Array);
    this.opInputs = take("op_inputs", Uint32Array);
    this.opDefaults = take("op_defaults", Uint32Array);
    this.nodeOp = take("node_op", Uint32Array);
    this.nodeName = take("node_name", Uint32Array);
    this.nodeScope = take("node_scope", Uint32Array);
    this.nodeFlags = take("node_flags", Uint8Array);
    this.nodeAttributes = take("node_attributes", Uint32Array);
    this.nodeBody = take("node_body", Int32Array);
    this.inPtr = take("in_ptr", Uint32Array);
    this.inValue = take("in_value", Int32Array);
    this.outPtr = take("out_ptr", Uint32Array);
    this.outValue = take("out_value", Int32Array);
    this.valueName = take("value_name", Uint32Array);
    this.valueKind = take("value_kind", Uint8Array);
    this.valueFlags = take("value_flags", Uint8Array);
    this.valueDtype = take("value_dtype", Uint32Array);
    this.valueShape = take("value_shape", Uint32Array);
    this.valueLiteral = take("value_literal", Uint32Array);
    this.graphInputs = take("graph_inputs", Int32Array);
    this.graphOutputs = take("graph_outputs", Int32Array);
    this.yieldValue = take("yield_value", Int32Array);
    this.yieldOutput = take("yield_output", Int32Array);
    this.scopeParent = take("scope_parent", Int32Array);
    this.scopeName = take("scope_name", Uint32Array);
    this.scopePath = take("scope_path", Uint32Array);
    this.scopeClass = take("scope_class", Uint32Array);
    this.scopeKind = take("scope_kind", Uint8Array);
    this.scopeNode = take("scope_node", Int32Array);
    this.scopeNodes = take("scope_nodes", Uint32Array);
    this.scopeParams = take("scope_params", Float64Array);
    this.scopeBytes = take("scope_bytes", Float64Array);
    this.scopeRepeat = take("scope_repeat", Uint32Array);
    this.scopeDiffers = take("scope_differs", Uint32Array);
    this.scopeDifference = take("scope_difference", Uint32Array);
    this.nodeCount = this.nodeOp.length;
    this.valueCount = this.valueName.length;
    this.scopeCount = this.scopeParent.length;

    this.producer = new Int32Array(this.valueCount).fill(-1);
    for (let node = 0; node < this.nodeCount; node++) {
      for (let k = this.#at(this.outPtr, node); k < this.#at(this.outPtr, node + 1); k++) {
        const value = this.#at(this.outValue, k);
        if (value >= 0 && this.producer[value] === -1) this.producer[value] = node;
      }
    }
    this.consumers = this.#readers();
    this.scopeMembers = invert(this.nodeScope, this.scopeCount);
    this.scopeChildren = invert(this.scopeParent, this.scopeCount);
    this.scopeDepth = new Uint16Array(this.scopeCount);
    // parents come before their children in the kernel's numbering
    for (let group = 1; group < this.scopeCount; group++) {
      this.scopeDepth[group] = this.#at(this.scopeDepth, this.#at(this.scopeParent, group)) + 1;
    }
  }

  #at(array: TypedArray, index: number): number {
    return array[index] as number;
  }

  #readers(): Rows<Uint32Array> {
    const { nodeCount, valueCount, inPtr, inValue } = this;
    const ptr = new Uint32Array(valueCount + 1);
    const last = new Int32Array(valueCount).fill(-1);
    const each = (visit: (value: number, node: number) => void): void => {
      last.fill(-1);
      for (let node = 0; node < nodeCount; node++) {
        for (let k = this.#at(inPtr, node); k < this.#at(inPtr, node + 1); k++) {
          const value = this.#at(inValue, k);
          if (value < 0 || last[value] === node) continue;
          last[value] = node;
          visit(value, node);
        }
      }
    };
    each((value) => {
      ptr[value + 1] = this.#at(ptr, value + 1) + 1;
    });
    for (let value = 0; value < valueCount; value++) ptr[value + 1] = this.#at(ptr, value + 1) + this.#at(ptr, value);
    const items = new Uint32Array(this.#at(ptr, valueCount));
    const fill = ptr.slice(0, valueCount);
    each((value, node) => {
      const at = this.#at(fill, value);
      items[at] = node;
      fill[value] = at + 1;
    });
    return { ptr, items };
  }

  /** String `index` of the table, decoded on first use. */
  str(index: number): string {
    return this.#strings.at(index);
  }

  opOf(node: number): string {
    return this.str(this.#at(this.opName, this.#at(this.nodeOp, node)));
  }

  domainOf(node: number): string {
    return this.str(this.#at(this.opDomain, this.#at(this.nodeOp, node)));
  }

  categoryOf(node: number): number {
    return this.#at(this.opCategory, this.#at(this.nodeOp, node));
  }

  /** The category of most nodes in a group, at any depth. */
  categoryOfScope(group: number): number {
    this.#scopeCategory ??= this.#mostCommon();
    return this.#at(this.#scopeCategory, group);
  }

  #mostCommon(): Uint8Array {
    const kinds = this.meta.categories.length;
    const counts = new Uint32Array(kinds * this.scopeCount);
    for (let node = 0; node < this.nodeCount; node++) {
      if (!this.isFolded(node)) counts[kinds * this.#at(this.nodeScope, node) + this.categoryOf(node)]++;
    }
    const most = new Uint8Array(this.scopeCount);
    for (let group = this.scopeCount - 1; group >= 0; group--) {
      const own = counts.subarray(kinds * group, kinds * (group + 1));
      most[group] = own.indexOf(own.reduce((a, b) => Math.max(a, b), 0));
      // children come after their parents
      const parent = this.#at(this.scopeParent, group);
      if (parent >= 0) for (let kind = 0; kind < kinds; kind++) counts[kinds * parent + kind] += own[kind];
    }
    return most;
  }

  nameOf(target: Target): string {
    switch (target.kind) {
      case "node":
        return this.str(this.#at(this.nodeName, target.id));
      case "tensor":
        return this.str(this.#at(this.valueName, target.id));
      case "scope":
        return this.str(this.#at(this.scopePath, target.id));
    }
  }

  valueNameOf(value: number): string {
    return this.str(this.#at(this.valueName, value));
  }

  dtypeOf(value: number): string {
    return this.str(this.#at(this.valueDtype, value));
  }

  shapeOf(value: number): string {
    return this.str(this.#at(this.valueShape, value));
  }

  inputsOf(node: number): Int32Array {
    return this.inValue.subarray(this.#at(this.inPtr, node), this.#at(this.inPtr, node + 1));
  }

  outputsOf(node: number): Int32Array {
    return this.outValue.subarray(this.#at(this.outPtr, node), this.#at(this.outPtr, node + 1));
  }

  consumersOf(value: number): Uint32Array {
    const { ptr, items } = this.consumers;
    return items.subarray(this.#at(ptr, value), this.#at(ptr, value + 1));
  }

  membersOf(group: number): Uint32Array {
    const { ptr, items } = this.scopeMembers;
    return items.subarray(this.#at(ptr, group), this.#at(ptr, group + 1));
  }

  childrenOf(group: number): Uint32Array {
    const { ptr, items } = this.scopeChildren;
    return items.subarray(this.#at(ptr, group), this.#at(ptr, group + 1));
  }

  /** The node whose bodies a group shows, or that calls the function it shows; −1 for other groups. */
  ownerOf(group: number): number {
    const kind = this.scopeKind[group];
    return kind === SCOPE_KIND.BODY || kind === SCOPE_KIND.FUNCTION ? this.#at(this.scopeNode, group) : -1;
  }

  isConstant(value: number): boolean {
    return (this.#at(this.valueFlags, value) & VALUE_CONSTANT) !== 0;
  }

  /** Tensors of the same type from the same node to the same readers, in order, this one among them. */
  alike(value: number): number[] {
    const maker = this.#at(this.producer, value);
    if (maker < 0 || this.isConstant(value)) return [value];
    const readers = this.consumersOf(value);
    return Array.from(this.outputsOf(maker)).filter((other) => {
      if (other < 0) return false;
      const type =
        this.valueShape[other] === this.valueShape[value] && this.valueDtype[other] === this.valueDtype[value];
      const theirs = this.consumersOf(other);
      return type && theirs.length === readers.length && theirs.every((reader, at) => reader === readers[at]);
    });
  }

  /** Whether a body gives this value to its owner. */
  isYielded(value: number): boolean {
    this.#yielded ??= new Set(this.yieldValue);
    return this.#yielded.has(value);
  }

  /** What bodies give that becomes this output of their owner. */
  yieldedTo(output: number): readonly number[] {
    if (this.#given === undefined) {
      this.#given = new Map<number, number[]>();
      for (let at = 0; at < this.yieldOutput.length; at++) {
        const known = this.#given.get(this.yieldOutput[at]);
        if (known === undefined) this.#given.set(this.yieldOutput[at], [this.yieldValue[at]]);
        else known.push(this.yieldValue[at]);
      }
    }
    return this.#given.get(output) ?? [];
  }

  isGraphOutput(value: number): boolean {
    return (this.#at(this.valueFlags, value) & VALUE_OUTPUT) !== 0;
  }

  isFolded(node: number): boolean {
    return (this.#at(this.nodeFlags, node) & NODE_FOLDED) !== 0;
  }

  /** Whether a group is a row of equal members. */
  isRow(group: number): boolean {
    const kind = this.scopeKind[group];
    return kind === SCOPE_KIND.REPEAT || kind === SCOPE_KIND.SIBLINGS;
  }

  /** Formal name of input `position` of a node ("W"), or "" where the schema gives none. */
  inputNameOf(node: number, position: number): string {
    const names = this.str(this.#at(this.opInputs, this.#at(this.nodeOp, node)));
    return names === "" ? "" : (names.split(",")[position] ?? "");
  }

  /** Groups that enclose a group, from the root down, itself last. */
  ancestry(group: number): number[] {
    const path: number[] = [];
    for (let at = group; at >= 0; at = this.#at(this.scopeParent, at)) path.push(at);
    return path.reverse();
  }

  /** Group that directly contains a target; for a value that of its producer (else the root). */
  scopeOf(target: Target): number {
    if (target.kind === "node") return this.#at(this.nodeScope, target.id);
    if (target.kind === "scope") return Math.max(0, this.#at(this.scopeParent, target.id));
    const producer = this.#at(this.producer, target.id);
    return producer < 0 ? 0 : this.#at(this.nodeScope, producer);
  }

  /** The tensor, node or scope of this name; without a kind tensors win over nodes, nodes over scopes. */
  find(name: string, kind?: Target["kind"]): Target | undefined {
    if (name === "") return undefined;
    const wanted = new TextEncoder().encode(name);
    const names = { tensor: this.valueName, node: this.nodeName, scope: this.scopePath };
    for (const each of kind === undefined ? (["tensor", "node", "scope"] as const) : [kind]) {
      const id = names[each].findIndex((string) => this.#holds(string, wanted));
      if (id >= 0) return { kind: each, id };
    }
    return undefined;
  }

  /** Whether a string of the table is this text: a table of all names would take longer than looking through them. */
  #holds(string: number, wanted: Uint8Array): boolean {
    const begin = this.#at(this.stringPtr, string);
    if (this.#at(this.stringPtr, string + 1) - begin !== wanted.length) return false;
    // names begin alike and end differently
    for (let at = wanted.length - 1; at >= 0; at--) if (this.stringBytes[begin + at] !== wanted[at]) return false;
    return true;
  }
}

/** For each key 0..count−1 the positions that hold it; negative keys belong to none. */
function invert(keys: Uint32Array | Int32Array, count: number): Rows<Uint32Array> {
  const ptr = new Uint32Array(count + 1);
  for (const key of keys) if (key >= 0) ptr[key + 1] = (ptr[key + 1] as number) + 1;
  for (let key = 0; key < count; key++) ptr[key + 1] = (ptr[key + 1] as number) + (ptr[key] as number);
  const items = new Uint32Array(ptr[count] as number);
  const fill = ptr.slice(0, count);
  for (let index = 0; index < keys.length; index++) {
    const key = keys[index] as number;
    if (key < 0) continue;
    const at = fill[key] as number;
    items[at] = index;
    fill[key] = at + 1;
  }
  return { ptr, items };
}
