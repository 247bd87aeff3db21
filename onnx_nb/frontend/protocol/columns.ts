/**
 * The graph as sent by the kernel: typed arrays and one string table, plus the few tables derived from them
 * (producers, consumers, children of a scope). Nothing here changes after it is built.
 */

import { type Pack, PackedTable, release } from "./codec.ts";

/** Kinds of a value, as in `Graph.value_kind`. */
export const VALUE = { NODE_OUTPUT: 0, GRAPH_INPUT: 1, INITIALIZER: 2, DANGLING: 3, BODY_INPUT: 4 } as const;
/** Kinds of a scope, as in `Scopes.scope_kind`. */
export const SCOPE_KIND = {
  ROOT: 0,
  SCOPE: 1,
  REPEAT: 2,
  GATHERED: 3,
  BODY: 4,
  BRANCH: 5,
  FUNCTION: 6,
  SIBLINGS: 7,
} as const;
export const NODE_FOLDED = 1;
export const NODE_FAULT = 2;
export const NODE_DIFFERS = 8;
export const NODE_SHAPES = 16;
const VALUE_OUTPUT = 1;
const VALUE_CONSTANT = 2;
export const VALUE_FAULT = 4;

/** Anything that a person can select. */
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
  readonly nodes: number;
  readonly values: number;
  readonly nbytes: number;
  readonly faults: readonly Fault[];
}

/** Rows of a compressed table: `items.subarray(ptr[row], ptr[row + 1])`. */
export interface Rows {
  readonly ptr: Uint32Array;
  readonly items: Uint32Array;
}

/** Numbers from 0, as narrow as their largest allows. */
export type Numbers = Uint8Array | Uint16Array | Uint32Array;

export class Columns extends PackedTable<Meta> {
  readonly opName = this.column("op_name", Uint32Array);
  readonly opDomain = this.column("op_domain", Uint32Array);
  readonly opCategory = this.column("op_category", Uint8Array);
  readonly opInputs = this.column("op_inputs", Uint32Array);
  /** defaults of the op's attributes; "strides 1…" is any number of ones */
  readonly opDefaults = this.column("op_defaults", Uint32Array);

  readonly nodeOp = this.#numbers("node_op");
  readonly nodeName = this.column("node_name", Uint32Array);
  readonly nodeScope = this.#numbers("node_scope");
  /** name of the module that consists of this node only; 0, the empty text, for most */
  readonly nodeModule = this.#numbers("node_module");
  readonly nodeFlags = this.column("node_flags", Uint8Array);
  readonly nodeAttributes = this.#numbers("node_attributes");
  readonly nodeBody = this.column("node_body", Int32Array);
  readonly inPtr = this.column("in_ptr", Uint32Array);
  readonly inValue = this.column("in_value", Int32Array);
  readonly outPtr = this.column("out_ptr", Uint32Array);
  readonly outValue = this.column("out_value", Int32Array);

  readonly valueName = this.column("value_name", Uint32Array);
  readonly valueKind = this.column("value_kind", Uint8Array);
  readonly valueFlags = this.column("value_flags", Uint8Array);
  readonly valueDtype = this.#numbers("value_dtype");
  readonly valueShape = this.#numbers("value_shape");
  readonly valueLiteral = this.#numbers("value_literal");
  readonly graphInputs = this.column("graph_inputs", Int32Array);
  readonly graphOutputs = this.column("graph_outputs", Int32Array);
  /** result of a body, and the output of its owner that it becomes */
  readonly yieldValue = this.column("yield_value", Int32Array);
  readonly yieldOutput = this.column("yield_output", Int32Array);

  readonly scopeParent = this.column("scope_parent", Int32Array);
  readonly scopeName = this.column("scope_name", Uint32Array);
  readonly scopePath = this.column("scope_path", Uint32Array);
  readonly scopeClass = this.#numbers("scope_class");
  readonly scopeKind = this.column("scope_kind", Uint8Array);
  readonly scopeNode = this.column("scope_node", Int32Array);
  readonly scopeNodes = this.#numbers("scope_nodes");
  readonly scopeParams = this.column("scope_params", Float64Array);
  readonly scopeBytes = this.column("scope_bytes", Float64Array);
  readonly scopeRepeat = this.#numbers("scope_repeat");
  /** number of repeated members that differ from most; 1 for a member that does */
  readonly scopeDiffers = this.#numbers("scope_differs");
  /** in what a member differs, or which members of a repeat differ */
  readonly scopeDifference = this.#numbers("scope_difference");

  /** UTF-8 of the texts without the prefixes shared with the text before; text i has #ptr[i] … #ptr[i + 1] */
  readonly #bytes = this.column("string_bytes", Uint8Array);
  readonly #ptr = this.column("string_ptr", Uint32Array);

  readonly nodeCount = this.nodeOp.length;
  readonly valueCount = this.valueName.length;
  readonly scopeCount = this.scopeParent.length;
  /** value → node that produces it, −1 if none */
  readonly producer = new Int32Array(this.valueCount).fill(-1);
  /** value → nodes that read it (once each) */
  readonly consumers: Rows;
  /** scope → nodes directly in it, and scopes directly in it */
  readonly scopeMembers = itemsBy(this.nodeScope, this.scopeCount);
  readonly scopeChildren = itemsBy(this.scopeParent, this.scopeCount);
  /** scope → number of scopes that enclose it */
  readonly scopeDepth = new Uint16Array(this.scopeCount);

  readonly #names = { tensor: this.valueName, node: this.nodeName, scope: this.scopePath };
  readonly #bodyOutputs = new Set(this.yieldValue);
  #bodyValues: Rows | undefined;
  #scopeCategory: Uint8Array | undefined;

  constructor(pack: Pack) {
    super(pack);
    const { nodeCount, outPtr, outValue, producer, scopeDepth } = this;
    for (let node = 0; node < nodeCount; node++) {
      for (let k = outPtr[node]; k < outPtr[node + 1]; k++) {
        if (outValue[k] >= 0 && producer[outValue[k]] === -1) producer[outValue[k]] = node;
      }
    }
    this.consumers = this.#readers();
    // the kernel numbers parents before their children
    for (let scope = 1; scope < this.scopeCount; scope++) scopeDepth[scope] = scopeDepth[this.scopeParent[scope]] + 1;
  }

  /** Returns the nodes that read each value. It is made in place: a page may collect no garbage for minutes. */
  #readers(): Rows {
    const { nodeCount, valueCount, inPtr, inValue } = this;
    const last = new Int32Array(valueCount);
    const forEachReader = (visit: (value: number, node: number) => void): void => {
      last.fill(-1);
      for (let node = 0; node < nodeCount; node++) {
        for (let k = inPtr[node]; k < inPtr[node + 1]; k++) {
          const value = inValue[k];
          if (value < 0 || last[value] === node) continue;
          last[value] = node;
          visit(value, node);
        }
      }
    };
    const ptr = new Uint32Array(valueCount + 1);
    forEachReader((value) => ptr[value + 1]++);
    for (let value = 0; value < valueCount; value++) ptr[value + 1] += ptr[value];
    const items = new Uint32Array(ptr[valueCount]);
    // moves each pointer to the end of its row, where the next row begins
    forEachReader((value, node) => {
      items[ptr[value]++] = node;
    });
    release(last.buffer);
    ptr.copyWithin(1, 0);
    ptr[0] = 0;
    return { ptr, items };
  }

  #numbers(name: string): Numbers {
    if (this.column(name) instanceof Uint8Array) return this.column(name, Uint8Array);
    return this.column(name) instanceof Uint16Array ? this.column(name, Uint16Array) : this.column(name, Uint32Array);
  }

  opOf(node: number): string {
    return this.str(this.opName[this.nodeOp[node]]);
  }

  domainOf(node: number): string {
    return this.str(this.opDomain[this.nodeOp[node]]);
  }

  categoryOf(node: number): number {
    return this.opCategory[this.nodeOp[node]];
  }

  /** Returns the category of most nodes in a scope, at any depth. */
  categoryOfScope(scope: number): number {
    if (this.#scopeCategory !== undefined) return this.#scopeCategory[scope];
    const kinds = this.meta.categories.length;
    const counts = new Uint32Array(kinds * this.scopeCount);
    for (let node = 0; node < this.nodeCount; node++) {
      if (!this.isFolded(node)) counts[kinds * this.nodeScope[node] + this.categoryOf(node)]++;
    }
    const categories = new Uint8Array(this.scopeCount);
    for (let scope = this.scopeCount - 1; scope >= 0; scope--) {
      const members = counts.subarray(kinds * scope, kinds * (scope + 1));
      categories[scope] = members.indexOf(members.reduce((a, b) => Math.max(a, b), 0));
      // children come after their parents
      const parent = this.scopeParent[scope];
      if (parent >= 0) for (let kind = 0; kind < kinds; kind++) counts[kinds * parent + kind] += members[kind];
    }
    this.#scopeCategory = categories;
    return categories[scope];
  }

  nameOf(target: Target): string {
    return this.str(this.#names[target.kind][target.id]);
  }

  valueNameOf(value: number): string {
    return this.str(this.valueName[value]);
  }

  dtypeOf(value: number): string {
    return this.str(this.valueDtype[value]);
  }

  shapeOf(value: number): string {
    return this.str(this.valueShape[value]);
  }

  /** Returns the bytes of a tensor, NaN where its shape or its type does not say how many; `batch` if its first axis does not. */
  bytesOf(value: number, batch = Number.NaN): number {
    const [shape, dtype] = [this.shapeOf(value), this.dtypeOf(value)];
    const bits = dtype === "bool" ? 8 : Number(/\d+/.exec(dtype)?.[0]);
    const sizeOf = (size: string, axis: number): number =>
      /^\d+$/.test(size) ? Number(size) : axis === 0 ? batch : Number.NaN;
    const sizes = shape === "scalar" ? [] : shape.split("×").map(sizeOf);
    return (sizes.reduce((product, size) => product * size, 1) * bits) / 8;
  }

  inputsOf(node: number): Int32Array {
    return this.inValue.subarray(this.inPtr[node], this.inPtr[node + 1]);
  }

  outputsOf(node: number): Int32Array {
    return this.outValue.subarray(this.outPtr[node], this.outPtr[node + 1]);
  }

  consumersOf(value: number): Uint32Array {
    return rowOf(this.consumers, value);
  }

  membersOf(scope: number): Uint32Array {
    return rowOf(this.scopeMembers, scope);
  }

  childrenOf(scope: number): Uint32Array {
    return rowOf(this.scopeChildren, scope);
  }

  /** Returns the node whose bodies a scope shows, or that calls the function it shows; −1 for other scopes. */
  ownerOf(scope: number): number {
    const kind = this.scopeKind[scope];
    return kind === SCOPE_KIND.BODY || kind === SCOPE_KIND.FUNCTION ? this.scopeNode[scope] : -1;
  }

  isConstant(value: number): boolean {
    return (this.valueFlags[value] & VALUE_CONSTANT) !== 0;
  }

  /** Returns the tensors of the same type, producer and readers as this one, in order, itself included. */
  siblings(value: number): number[] {
    const maker = this.producer[value];
    if (maker < 0 || this.isConstant(value)) return [value];
    const readers = this.consumersOf(value);
    return Array.from(this.outputsOf(maker)).filter((sibling) => {
      if (sibling < 0 || this.valueShape[sibling] !== this.valueShape[value]) return false;
      if (this.valueDtype[sibling] !== this.valueDtype[value]) return false;
      const others = this.consumersOf(sibling);
      return others.length === readers.length && others.every((reader, at) => reader === readers[at]);
    });
  }

  /** Returns whether a body returns this value to its owner. */
  isBodyOutput(value: number): boolean {
    return this.#bodyOutputs.has(value);
  }

  /** Returns the values of bodies that become this output of their owner. */
  yieldedTo(output: number): readonly number[] {
    this.#bodyValues ??= itemsBy(this.yieldOutput, this.valueCount);
    return Array.from(rowOf(this.#bodyValues, output), (at) => this.yieldValue[at]);
  }

  isGraphOutput(value: number): boolean {
    return (this.valueFlags[value] & VALUE_OUTPUT) !== 0;
  }

  isFolded(node: number): boolean {
    return (this.nodeFlags[node] & NODE_FOLDED) !== 0;
  }

  /** Returns whether a node computes with nothing but shapes. */
  isPlumbing(node: number): boolean {
    return node >= 0 && (this.nodeFlags[node] & NODE_SHAPES) !== 0;
  }

  /** Returns this graph with plumbing drawn as constants are, in the nodes that read it; not what leaves the graph. */
  withoutPlumbing(): Columns {
    const valueFlags = this.valueFlags.slice();
    const nodeFlags = this.nodeFlags.map((flags, node) => {
      const outputs = this.isPlumbing(node) ? this.outputsOf(node).filter((value) => value >= 0) : [];
      if (outputs.some((value) => this.isGraphOutput(value) || this.isBodyOutput(value))) return flags;
      for (const value of outputs) valueFlags[value] |= VALUE_CONSTANT;
      return outputs.length === 0 ? flags : flags | NODE_FOLDED;
    });
    const { meta, arrays } = this;
    return new Columns({ meta, arrays: new Map([...arrays, ["node_flags", nodeFlags], ["value_flags", valueFlags]]) });
  }

  /** Returns whether a scope consists of repeated members. */
  isRow(scope: number): boolean {
    const kind = this.scopeKind[scope];
    return kind === SCOPE_KIND.REPEAT || kind === SCOPE_KIND.SIBLINGS;
  }

  /** Returns the formal name of input `position` of a node ("W"), or "" if the schema has none. */
  inputNameOf(node: number, position: number): string {
    const names = this.str(this.opInputs[this.nodeOp[node]]);
    return names === "" ? "" : (names.split(",")[position] ?? "");
  }

  /** Returns the scopes that enclose a scope, from the root down, itself last. */
  ancestry(scope: number): number[] {
    const path: number[] = [];
    for (let at = scope; at >= 0; at = this.scopeParent[at]) path.push(at);
    return path.reverse();
  }

  /** Returns the scope that directly contains a target; for a value the scope of its producer, or else the root. */
  scopeOf(target: Target): number {
    if (target.kind === "node") return this.nodeScope[target.id];
    if (target.kind === "scope") return Math.max(0, this.scopeParent[target.id]);
    const producer = this.producer[target.id];
    return producer < 0 ? 0 : this.nodeScope[producer];
  }

  /** Returns the tensor, node or scope of this name; without a kind tensors win over nodes, nodes over scopes. */
  find(name: string, kind?: Target["kind"]): Target | undefined {
    if (name === "") return undefined;
    const bytes = new TextEncoder().encode(name);
    for (const candidate of kind === undefined ? (["tensor", "node", "scope"] as const) : [kind]) {
      const id = this.#names[candidate].findIndex((string) => this.#holds(string, bytes, name));
      if (id >= 0) return { kind: candidate, id };
    }
    return undefined;
  }

  /** Returns whether a string of the table is this text. A map of all names would take longer to build than a scan. */
  #holds(string: number, bytes: Uint8Array, name: string): boolean {
    const prefix = this.prefixLength(string);
    const before = this.#ptr[string] - prefix;
    if (this.#ptr[string + 1] - before !== bytes.length) return false;
    // names often share their beginnings, seldom their ends
    for (let at = bytes.length - 1; at >= prefix; at--) if (this.#bytes[before + at] !== bytes[at]) return false;
    return prefix === 0 || this.str(string) === name;
  }

  /** Returns all texts in UTF-8: text i is between ptr[i] and ptr[i + 1]. */
  texts(): { readonly bytes: Uint8Array; readonly ptr: Uint32Array } {
    const ptr = this.#ptr.slice();
    let extra = 0;
    for (let at = 1; at < ptr.length; at++) ptr[at] += extra += this.prefixLength(at - 1);
    const bytes = new Uint8Array(this.#bytes.length + extra);
    for (let at = 0; at + 1 < ptr.length; at++) {
      const prefix = this.prefixLength(at);
      if (prefix > 0) bytes.copyWithin(ptr[at], ptr[at - 1], ptr[at - 1] + prefix);
      bytes.set(this.#bytes.subarray(this.#ptr[at], this.#ptr[at + 1]), ptr[at] + prefix);
    }
    return { bytes, ptr };
  }
}

export function rowOf({ ptr, items }: Rows, row: number): Uint32Array {
  return items.subarray(ptr[row], ptr[row + 1]);
}

/** Returns for each key 0 … count − 1 the positions that hold it; negative keys belong to none. */
export function itemsBy(keys: ArrayLike<number>, count: number): Rows {
  const ptr = new Uint32Array(count + 1);
  for (let at = 0; at < keys.length; at++) if (keys[at] >= 0) ptr[keys[at] + 1]++;
  for (let key = 0; key < count; key++) ptr[key + 1] += ptr[key];
  const fill = ptr.slice();
  const items = new Uint32Array(ptr[count]);
  for (let at = 0; at < keys.length; at++) if (keys[at] >= 0) items[fill[keys[at]]++] = at;
  return { ptr, items };
}

/** Adds an item to the list of a key. */
export function append<K, T>(lists: Map<K, T[]>, key: K, item: T): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [item]);
  else list.push(item);
}

/** Returns the result of work that is divided in parts. */
export function runToEnd<T>(parts: Generator<unknown, T>): T {
  for (;;) {
    const { done, value } = parts.next();
    if (done === true) return value;
  }
}

/** Memoizes a function of the model. */
export function oncePerModel<T>(make: (columns: Columns) => T): (columns: Columns) => T {
  const results = new WeakMap<Columns, { readonly value: T }>();
  return (columns) => {
    const { value } = results.get(columns) ?? { value: make(columns) };
    results.set(columns, { value });
    return value;
  };
}

/** Returns names and values of attributes, from "pads [1, 1] · strides 2×2". */
export function attributePairs(text: string): [name: string, value: string][] {
  return text === "" ? [] : text.split(" · ").map((part) => [part.split(" ", 1)[0], part.replace(/^[^ ]* ?/, "")]);
}
