/** Columns for tests, from a small readable description instead of a model file. */

import type { Pack, TypedArray } from "./codec.ts";
import { Columns, type Meta, NODE_FAULT, NODE_FOLDED, NODE_SHAPES, SCOPE_KIND, VALUE } from "./columns.ts";

const CATEGORIES = [
  "linear",
  "activation",
  "normalize",
  "arithmetic",
  "shape",
  "pool",
  "cast",
  "control",
  "random",
  "input",
  "other",
] as const;

const CATEGORY_OF: Readonly<Record<string, (typeof CATEGORIES)[number]>> = {
  Conv: "linear",
  MatMul: "linear",
  Gemm: "linear",
  Relu: "activation",
  Softmax: "activation",
  LayerNormalization: "normalize",
  Add: "arithmetic",
  Mul: "arithmetic",
  Concat: "shape",
  Reshape: "shape",
  Split: "shape",
  MaxPool: "pool",
  Cast: "cast",
  If: "control",
  Loop: "control",
};

/** Default attributes of some ops. */
const DEFAULTS: Readonly<Record<string, string>> = {
  Softmax: "axis -1",
  Gemm: "alpha 1 · beta 1 · transA 0 · transB 0",
  Conv: "auto_pad NOTSET · group 1 · dilations 1… · strides 1… · pads 0…",
};
const FORMAL_NAMES: Readonly<Record<string, string>> = {
  Conv: "X,W,B",
  MatMul: "A,B",
  Gemm: "A,B,C",
  Add: "A,B",
  Mul: "A,B",
  LayerNormalization: "X,Scale,B",
};

interface Node {
  op: string;
  name: string;
  module: string;
  inputs: string[];
  outputs: string[];
  attributes: string;
  flags: number;
  scope: number;
  body: number;
}

interface Value {
  kind: number;
  flags: number;
  dtype: string;
  shape: string;
  literal: string;
}

interface Scope {
  parent: number;
  name: string;
  path: string;
  kind: number;
  class: string;
  repeat: number;
  differs: number;
  node: number;
}

/**
 * Returns columns of the model in these lines, one thing per line, in file order; names with "/" put a node in scopes,
 * "\\n" in a name is a line break.
 *
 *     input x batch×8 float32              graph input (any "name shape dtype")
 *     weight W 8×8 float32                 initializer; "weight s scalar float32 = 0.125" has a literal
 *     type y batch×8 float32               shape and dtype of a value
 *     MatMul enc/0/mm : x W -> y           node: op name : inputs -> outputs; "_" is an omitted input
 *     Conv c : x W -> y | strides 2×2      … with attributes
 *     output y                             graph output
 *     scope enc/0 class=BertLayer          also kind=REPEAT|GATHERED|BODY|BRANCH|FUNCTION, repeat=32, differs=2, node=NAME for the last three
 *     bodyinput i                          value passed to a body
 *     fold NAME, fault NAME, shapes NAME   flags of a node
 */
export function columnsOf(description: string, name = "test.onnx"): Columns {
  return new Columns(describedPack(description, name));
}

/** Returns the same as a pack. */
export function describedPack(description: string, name: string): Pack {
  const nodes: Node[] = [];
  const nodeByName = new Map<string, number>();
  const values = new Map<string, Value>();
  const valueNames: string[] = [];
  const inputs: string[] = [];
  const outputs: string[] = [];
  const scopes: Scope[] = [
    { parent: -1, name: "", path: "", kind: SCOPE_KIND.ROOT, class: "", repeat: 1, differs: 0, node: -1 },
  ];
  const scopeByPath = new Map([["", 0]]);
  const folded: string[] = [];
  const yields: [value: string, output: string][] = [];
  const owners: [scope: number, node: string][] = [];

  const value = (text: string, kind?: number): Value => {
    let found = values.get(text);
    if (found === undefined) {
      found = { kind: VALUE.DANGLING, flags: 0, dtype: "", shape: "", literal: "" };
      values.set(text, found);
      valueNames.push(text);
    }
    if (kind !== undefined) found.kind = kind;
    return found;
  };
  const scope = (path: string): number => {
    const known = scopeByPath.get(path);
    if (known !== undefined) return known;
    const cut = path.lastIndexOf("/");
    const parent = scope(cut < 0 ? "" : path.slice(0, cut));
    scopes.push({
      parent,
      name: path.slice(cut + 1),
      path,
      kind: SCOPE_KIND.SCOPE,
      class: "",
      repeat: 1,
      differs: 0,
      node: -1,
    });
    scopeByPath.set(path, scopes.length - 1);
    return scopes.length - 1;
  };
  const typed = (words: string[], kind?: number): Value => {
    const found = value(words[1] as string, kind);
    found.shape = words[2] ?? found.shape;
    found.dtype = words[3] ?? found.dtype;
    return found;
  };

  for (const raw of description.split("\n")) {
    const line = raw.trim();
    if (line === "") continue;
    const words = line.split(/\s+/);
    const [verb, subject = ""] = words;
    if (verb === "input") {
      typed(words, VALUE.GRAPH_INPUT);
      inputs.push(subject);
    } else if (verb === "weight") {
      const found = typed(words, VALUE.INITIALIZER);
      found.flags |= 2;
      found.literal = line.split(" = ")[1] ?? "";
    } else if (verb === "type") {
      typed(words);
    } else if (verb === "output") {
      typed(words).flags |= 1;
      outputs.push(subject);
    } else if (verb === "bodyinput") {
      value(subject, VALUE.BODY_INPUT);
    } else if (verb === "yield") {
      yields.push([subject, words[2] as string]);
    } else if (verb === "fold") {
      folded.push(subject);
    } else if (verb === "shapes") {
      const found = nodes[nodeByName.get(subject) ?? -1];
      if (found !== undefined) found.flags |= NODE_SHAPES;
    } else if (verb === "fault") {
      const found = nodes[nodeByName.get(subject) ?? -1];
      if (found !== undefined) found.flags |= NODE_FAULT;
    } else if (verb === "scope") {
      const index = scope(subject);
      const found = scopes[index] as Scope;
      for (const word of words.slice(2)) {
        const [key, text = ""] = word.split("=");
        if (key === "kind") found.kind = SCOPE_KIND[text as keyof typeof SCOPE_KIND];
        else if (key === "class") found.class = text;
        else if (key === "repeat") found.repeat = Number(text);
        else if (key === "differs") found.differs = Number(text);
        else if (key === "node") owners.push([index, text]);
      }
    } else {
      const [call = "", attributes = ""] = line.split(" | ");
      const [head = "", wiring = ""] = call.split(/ : ?/);
      const [reads = "", makes = ""] = wiring.split("->");
      const [op = "", named = ""] = head.split(/\s+/);
      const [path = "", module = ""] = named.split(":"); // MatMul enc/mm:k_proj
      const list = (text: string): string[] => text.split(/\s+/).filter((word) => word !== "");
      const made = list(makes);
      for (const text of made) value(text, VALUE.NODE_OUTPUT);
      for (const text of list(reads)) if (text !== "_") value(text);
      const cut = path.lastIndexOf("/");
      nodeByName.set(path, nodes.length);
      nodes.push({
        op,
        name: path,
        module,
        inputs: list(reads),
        outputs: made,
        attributes,
        flags: 0,
        scope: scope(cut < 0 ? "" : path.slice(0, cut)),
        body: -1,
      });
    }
  }
  for (const [index, owner] of owners) {
    const node = nodeByName.get(owner) ?? -1;
    (scopes[index] as Scope).node = node;
    const { kind } = scopes[index] as Scope;
    if (kind === SCOPE_KIND.BODY || kind === SCOPE_KIND.FUNCTION) (nodes[node] as Node).body = index;
  }
  for (const each of folded) {
    const node = nodes[nodeByName.get(each) ?? -1] as Node;
    node.flags |= NODE_FOLDED;
    for (const text of node.outputs) value(text).flags |= 2;
  }

  const strings = new Map([["", 0]]);
  const str = (text: string): number => {
    const known = strings.get(text);
    if (known !== undefined) return known;
    strings.set(text, strings.size);
    return strings.size - 1;
  };
  const valueIndex = new Map(valueNames.map((text, index) => [text, index]));
  const indexOf = (text: string): number => (text === "_" ? -1 : (valueIndex.get(text) as number));
  const ops = [...new Set(nodes.map((node) => node.op))];
  const opIndex = new Map(ops.map((op, index) => [op, index]));
  const all = [...values.values()];
  const inside = new Uint32Array(scopes.length);
  for (const node of nodes) {
    for (let at = node.scope; at >= 0; at = (scopes[at] as Scope).parent) inside[at]++;
  }
  const u1 = (items: readonly number[]): Uint8Array => Uint8Array.from(items);
  const u4 = (items: readonly number[]): Uint32Array => Uint32Array.from(items);
  const i4 = (items: readonly number[]): Int32Array => Int32Array.from(items);
  const pointers = (lengths: readonly number[]): Uint32Array => {
    const ptr = new Uint32Array(lengths.length + 1);
    for (let i = 0; i < lengths.length; i++) ptr[i + 1] = (ptr[i] as number) + (lengths[i] as number);
    return ptr;
  };
  const category = (op: string): number => CATEGORIES.indexOf(CATEGORY_OF[op] ?? "other");
  const arrays = new Map<string, TypedArray>([
    ["op_name", u4(ops.map(str))],
    ["op_domain", u4(ops.map(() => 0))],
    ["op_category", u1(ops.map(category))],
    ["op_inputs", u4(ops.map((op) => str(FORMAL_NAMES[op] ?? "")))],
    ["op_defaults", u4(ops.map((op) => str(DEFAULTS[op] ?? "")))],
    ["node_op", u4(nodes.map((node) => opIndex.get(node.op) as number))],
    ["node_name", u4(nodes.map((node) => str(node.name)))],
    ["node_scope", u4(nodes.map((node) => node.scope))],
    ["node_flags", u1(nodes.map((node) => node.flags))],
    ["node_module", u4(nodes.map((node) => str(node.module)))],
    ["node_attributes", u4(nodes.map((node) => str(node.attributes)))],
    ["node_body", i4(nodes.map((node) => node.body))],
    ["in_ptr", pointers(nodes.map((node) => node.inputs.length))],
    ["in_value", i4(nodes.flatMap((node) => node.inputs.map(indexOf)))],
    ["out_ptr", pointers(nodes.map((node) => node.outputs.length))],
    ["out_value", i4(nodes.flatMap((node) => node.outputs.map(indexOf)))],
    ["value_name", u4(valueNames.map(str))],
    ["value_kind", u1(all.map((each) => each.kind))],
    ["value_flags", u1(all.map((each) => each.flags | (each.kind === VALUE.DANGLING ? 4 : 0)))],
    ["value_dtype", u4(all.map((each) => str(each.dtype)))],
    ["value_shape", u4(all.map((each) => str(each.shape)))],
    ["value_literal", u4(all.map((each) => str(each.literal)))],
    ["graph_inputs", i4(inputs.map(indexOf))],
    ["graph_outputs", i4(outputs.map(indexOf))],
    ["yield_value", i4(yields.map(([text]) => indexOf(text)))],
    ["yield_output", i4(yields.map(([, text]) => indexOf(text)))],
    ["scope_parent", i4(scopes.map((each) => each.parent))],
    ["scope_name", u4(scopes.map((each) => str(each.name)))],
    ["scope_path", u4(scopes.map((each) => str(each.path)))],
    ["scope_class", u4(scopes.map((each) => str(each.class)))],
    ["scope_kind", u1(scopes.map((each) => each.kind))],
    ["scope_node", i4(scopes.map((each) => each.node))],
    ["scope_nodes", inside],
    ["scope_params", new Float64Array(scopes.length)],
    ["scope_bytes", new Float64Array(scopes.length)],
    ["scope_repeat", u4(scopes.map((each) => each.repeat))],
    ["scope_differs", u4(scopes.map((each) => each.differs))],
    ["scope_difference", u4(scopes.map(() => 0))],
  ]);
  const texts = [...strings.keys()].map((text) => text.replaceAll("\\n", "\n"));
  for (const [part, array] of stringTable(texts)) arrays.set(part, array);
  const meta: Meta = {
    version: 1,
    name,
    ir_version: 10,
    opsets: { "": 20 },
    producer: "test",
    categories: CATEGORIES,
    nodes: nodes.length,
    values: all.length,
    nbytes: 0,
    faults: [],
  };
  return { meta, arrays };
}

/** Returns the columns of a string table; each text but every fourth shares what it can with the one before it. */
function stringTable(texts: readonly string[]): [string, TypedArray][] {
  const encoded = texts.map((text) => Array.from(new TextEncoder().encode(text)));
  const shared = encoded.map((each, at) => {
    if (at % 4 === 0) return 0;
    const differs = each.findIndex((byte, k) => k === 255 || byte !== encoded[at - 1][k]);
    return differs < 0 ? Math.min(each.length, 255) : differs;
  });
  const rests = encoded.map((each, at) => each.slice(shared[at]));
  let end = 0;
  const ends = rests.map((each) => {
    end += each.length;
    return end;
  });
  return [
    ["string_bytes", Uint8Array.from(rests.flat())],
    ["string_ptr", Uint32Array.from([0, ...ends])],
    ["string_shared", Uint8Array.from(shared)],
  ];
}

/** Returns packed columns, some of which hold texts. */
export function packedOf(
  arrays: Iterable<readonly [string, TypedArray]>,
  texts: Readonly<Record<string, readonly string[]>>,
  meta: unknown,
): Pack {
  const table = [...new Set(["", ...Object.values(texts).flat()])];
  const numbers = Object.entries(texts).map(
    ([name, column]) => [name, Uint32Array.from(column, (text) => table.indexOf(text))] as const,
  );
  return { meta, arrays: new Map<string, TypedArray>([...arrays, ...stringTable(table), ...numbers]) };
}

/** Returns the scope of a path in such columns. */
export function scopeAt(columns: Columns, path: string): number {
  const found = columns.find(path);
  if (found?.kind !== "scope") throw new Error(`no scope '${path}'`);
  return found.id;
}

/** Measures without a canvas: every character is as wide as an average one of a sans-serif font. */
export function measure(text: string, fontPx: number, bold: boolean): number {
  return text.length * fontPx * (bold ? 0.6 : 0.55);
}
