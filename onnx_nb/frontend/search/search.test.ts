import { describe, expect, it } from "vitest";
import { type Columns, SCOPE_KIND } from "../protocol/columns.ts";
import { columnsOf } from "../protocol/testing.ts";
import { WIDEST_GAP } from "./chain.ts";
import { MOST_HITS, search, searching } from "./search.ts";

const columns = columnsOf(`
  input x batch×8 float32
  weight W 8×8 float32
  scope encoder class=BertEncoder
  MatMul encoder/query : x W -> encoder/query_out
  type encoder/query_out batch×8 float32
  MatMul : encoder/query_out W -> y
  Relu act : y -> MatMul_3
  Constant c : -> hidden
  fold c
  output MatMul_3
`);

const bert = columnsOf(`
  input ids batch×seq int64
  weight emb.weight 100×48 float16
  weight enc.layer.1.dense.weight 48×48 float32
  scope enc/layer.1 class=BertLayer
  scope enc/layer.10 class=BertLayer
  Gather emb/gather : emb.weight ids -> h
  type h batch×seq×48 float16
  Cast emb/cast : h -> h32 | to float32
  type h32 batch×seq×48 float32
  MatMul enc/layer.1/mm : h32 enc.layer.1.dense.weight -> a
  type a batch×seq×48 float32
  Mul enc/layer.1/scale : a a -> b
  type b batch×12×seq×seq float32
  Softmax enc/layer.1/Softmax_7 : b -> probs | axis -1
  type probs batch×12×seq×seq float32
  MatMul enc/layer.10/mm : probs h32 -> d
  type d 1×Min(64,seq)×768 float32
  Add enc/layer.10/add : d b -> e
  Softmax enc/layer.10/Softmax_9 : e -> dense:0 | axis 1 · epsilon 1e-05
  Conv conv : dense:0 -> f | pads [1, 1, 1, 1] · kernel_shape 3×3 · strides 2×2
  MaxPool pool : f -> g | kernel_shape 2×2
  Transpose a\\nb : g -> two\\nwords | perm [0, 2, 1, 3]
  output two\\nwords
`);

const name = (each: Columns, kind: "node" | "tensor" | "scope", id: number): string =>
  each.nameOf({ kind, id }) || each.opOf(id);
const found = (text: string, each = columns): string[] =>
  search(each, text).hits.map(({ kind, id, chain }) =>
    chain === undefined ? `${kind} ${name(each, kind, id)}` : chain.map((node) => name(each, "node", node)).join(" > "),
  );

describe("words", () => {
  it("find ops, names and scopes in any case, exact matches first", () => {
    expect(found("matmul")).toEqual(["node encoder/query", "node MatMul", "tensor MatMul_3"]);
    expect(found("BERT")).toEqual(["scope encoder"]);
    expect(found("query")).toEqual(["node encoder/query", "tensor encoder/query_out"]);
  });

  it("find nodes by the weights that they read as well", () => {
    expect(found("op:MatMul dense", bert)).toEqual(["node enc/layer.1/mm"]);
    expect(found("dense", bert), "alone they find the weight").not.toContain("node enc/layer.1/mm");
  });

  it("are ranked by the best position of the match, and never match across two names", () => {
    const graph = columnsOf("Relu xab : in -> cdab/ab\nRelu ab : cdab/ab -> abcd\nRelu zz-ab : abcd -> ab");
    expect(found("ab", graph)).toEqual([
      "node ab",
      "tensor ab",
      "tensor abcd",
      "node zz-ab",
      "tensor cdab/ab",
      "node xab",
    ]);
    expect(found("cdab", graph)).toEqual(["tensor cdab/ab"]);
    expect(found("bz", graph)).toEqual([]);
    expect(found("abz", graph)).toEqual([]);
  });

  it("compare the bytes of tensors of known shapes, and find the nodes that read such weights", () => {
    // 100 × 48 × 2 and 48 × 48 × 4 bytes
    for (const text of ["weights > 9.5 kB", "kind:weight size:>9500", "weight>9.5k"])
      expect(found(text, bert), text).toEqual(["tensor emb.weight"]);
    expect(found("weights > 9 kB", bert)).toEqual(["tensor emb.weight", "tensor enc.layer.1.dense.weight"]);
    expect(found("weights <= 9216", bert)).toEqual(["tensor enc.layer.1.dense.weight"]);
    expect(found("op:Gather size:>9.5k", bert)).toEqual(["node emb/gather"]);
    expect(found("size:<1G", bert), "sizes that depend on an input are unknown").not.toContain("tensor h");
    expect(search(bert, "size:many").problem).toContain("size: takes a number of bytes");
    expect(found("MatMul > *", bert), "an arrow stays one").not.toEqual([]);
  });

  it("ignore a minus that no word follows yet", () => {
    expect(found("query -")).toEqual(found("query"));
  });

  it("find weights but not nodes that are folded away", () => {
    expect(found("w")).toEqual(["tensor W"]);
    expect(found("constant")).toEqual([]);
    expect(found("constant > *")).toEqual([]);
  });

  it("find nothing for an empty query", () => {
    for (const text of ["", "  ", "no such thing", "op:", "-", "->", ">"]) expect(found(text)).toEqual([]);
  });

  it("must all match, one of them the target itself, the others its scope or type as well", () => {
    expect(found("softmax layer.10", bert)).toEqual(["node enc/layer.10/Softmax_9"]);
    expect(found("cast float32", bert)).toEqual(["node emb/cast"]);
    expect(found("conv 3x3", bert)).toEqual(["node conv"]);
    expect(found("softmax axis", bert)).toHaveLength(2);
    expect(found("axis", bert)).toEqual([]);
    expect(found("BertLayer mm", bert)).toEqual(["node enc/layer.1/mm", "node enc/layer.10/mm"]);
    expect(found("layer.1", bert)[0]).toBe("scope enc/layer.1");
  });

  it("find tensors by a dtype, a dimension or a part of a shape", () => {
    expect(found("float16", bert)).toEqual(["tensor emb.weight", "tensor h"]);
    expect(found("768", bert)).toEqual(["tensor d"]);
    expect(found("12xseqxseq", bert)).toEqual(["tensor b", "tensor probs"]);
    expect(found("6", bert)).toEqual([]);
  });

  it("exclude with a minus, even as the only term", () => {
    expect(found("softmax -layer.10", bert)).toEqual(["node enc/layer.1/Softmax_7"]);
    expect(found("mm -op:MatMul", bert)).toEqual([]);
    expect(found("-op:MatMul|Softmax|Mul|Cast|Gather|Add", bert)).toEqual(["node conv", "node pool", "node a\nb"]);
    expect(found("-dtype:float -shape:...", bert)).toEqual([
      "tensor e",
      "tensor dense:0",
      "tensor f",
      "tensor g",
      "tensor two\nwords",
    ]);
  });

  it("keep their spaces in quotes, and names with colons and slashes unchanged", () => {
    expect(found('"two\nwords"', bert)).toEqual(["tensor two\nwords"]);
    expect(found("dense:0", bert)).toEqual(["tensor dense:0"]);
    expect(found("enc/layer.1/mm", bert)).toEqual(["node enc/layer.1/mm"]);
    expect(found("/gather", bert)).toEqual(["node emb/gather"]);
  });
});

describe("fields", () => {
  it("op: matches the op of this name, else those that contain it", () => {
    expect(found("op:mul", bert)).toEqual(["node enc/layer.1/scale"]);
    expect(found("op:pool", bert)).toEqual(["node pool"]);
    expect(found("op:*mul", bert)).toEqual(["node enc/layer.1/mm", "node enc/layer.1/scale", "node enc/layer.10/mm"]);
    expect(found("op:conv|add", bert)).toEqual(["node enc/layer.10/add", "node conv"]);
  });

  it("dtype: has aliases, and is a prefix where no dtype has that name", () => {
    for (const text of ["float16", "fp16", "half", "F16"]) {
      expect(found(`dtype:${text}`, bert)).toEqual(["tensor emb.weight", "tensor h"]);
    }
    expect(search(bert, "dtype:float").total).toBe(8);
    expect(search(bert, "dtype:i64").total).toBe(1);
    expect(found("dtype:float16 op:*", bert)).toEqual(["node emb/gather"]);
  });

  it("shape: matches the whole shape, with * or ? for a dimension and ... for any number", () => {
    const attention = ["tensor b", "tensor probs"];
    for (const text of ["batchx12xseqxseq", "batch×12×*×?", "[batch, 12, seq, seq]", "batch,12,seq,seq", "*x12x..."]) {
      expect(found(`shape:${text}`, bert)).toEqual(attention);
    }
    for (const text of ["...xseq", "...xseqxseq", "batch...seqxseq", "*x1*x*x*", "batchx...xseqxseq"]) {
      expect(found(`shape:${text} -int64`, bert)).toEqual(attention);
    }
    expect(found("shape:1xmin(64, seq)x768", bert)).toEqual(["tensor d"]);
    expect(found("shape:48", bert)).toEqual([]);
    expect(found("shape:...x48", bert)).toContain("tensor enc.layer.1.dense.weight");
    expect(found('shape:"batch×*"', bert)).toEqual([]);
  });

  it("attr: matches a name, with a value in any notation", () => {
    expect(found("attr:axis", bert)).toEqual(["node enc/layer.1/Softmax_7", "node enc/layer.10/Softmax_9"]);
    expect(found("attr:axis=-1", bert)).toEqual(["node enc/layer.1/Softmax_7"]);
    for (const text of ["3x3", "3×3", "[3, 3]", "3,3", "3x*"])
      expect(found(`attr:kernel_shape=${text}`, bert)).toEqual(["node conv"]);
    expect(found("attr:perm=0,2,1,3", bert)).toEqual(["node a\nb"]);
    expect(found("attr:epsilon=1e-5", bert)).toEqual(["node enc/layer.10/Softmax_9"]);
    expect(found("attr:kernel*", bert)).toEqual(["node conv", "node pool"]);
    expect(found("attr:=float32", bert)).toEqual(["node emb/cast"]);
    expect(found("attr:/strides 2/", bert)).toEqual(["node conv"]);
  });

  it("attr: with a value also matches attributes left at their default", () => {
    const columns = columnsOf(`
      input x 4×8 float32
      Softmax stated : x -> a | axis -1
      Softmax other : a -> b | axis 1
      Softmax left : b -> c
      Conv plain : c -> d | kernel_shape 1×1
      Conv strided : d -> e | strides 2×2
      Relu act : e -> y
    `);
    expect(found("attr:axis=-1", columns)).toEqual(["node stated", "node left"]);
    expect(found("attr:axis=1", columns)).toEqual(["node other"]);
    expect(found("attr:axis", columns)).toEqual(["node stated", "node other"]);
    expect(found("op:Softmax -attr:axis=-1", columns)).toEqual(["node other"]);
    for (const text of ["1", "1x1", "[1,1]"]) expect(found(`attr:strides=${text}`, columns)).toEqual(["node plain"]);
    expect(found("attr:pads=0,0,0,0", columns)).toEqual(["node plain", "node strided"]);
    expect(found("attr:strides=10", columns)).toEqual([]);
    expect(found("attr:group=1 attr:strides=2x2", columns)).toEqual(["node strided"]);
    expect(found("attr:a*=-1", columns)).toEqual(["node stated", "node left"]);
  });

  it("attr: assumes no default where the shortened text may state the attribute", () => {
    const columns = columnsOf(`input x 8 float32\nSoftmax cut : x -> y | text aaaaaaaaaaaaaaaaa…`);
    expect(found("attr:axis=-1", columns)).toEqual([]);
  });

  it("scope: matches everything in a scope, by whole parts of its path or its class", () => {
    const inside = ["scope enc/layer.1", "node enc/layer.1/mm", "node enc/layer.1/scale", "node enc/layer.1/Softmax_7"];
    for (const text of ["layer.1", "enc.layer.1", "enc/layer.1", "/enc/layer.1"]) {
      expect(found(`scope:${text}`, bert)).toEqual(inside);
    }
    expect(found("scope:lay op:Softmax", bert)).toHaveLength(2);
    expect(found("scope:BertLayer", bert).filter((each) => each.startsWith("scope"))).toHaveLength(2);
    expect(found("scope:layer.1 shape:48x48", bert)).toEqual(["tensor enc.layer.1.dense.weight"]);
    expect(found("op:MatMul -scope:layer.1", bert)).toEqual(["node enc/layer.10/mm"]);
  });

  it("name: matches a part of a name, or with * the whole", () => {
    expect(found("name:softmax", bert)).toEqual(["node enc/layer.1/Softmax_7", "node enc/layer.10/Softmax_9"]);
    expect(found("name:enc*weight", bert)).toEqual(["tensor enc.layer.1.dense.weight"]);
    expect(found("name:dense*", bert)).toEqual(["tensor dense:0"]);
    expect(found("kind:weight", bert)).toEqual(["tensor emb.weight", "tensor enc.layer.1.dense.weight"]);
    expect(found("kind:input|output", bert)).toEqual(["tensor ids", "tensor two\nwords"]);
  });

  it("accept regular expressions, as words do", () => {
    expect(found("name:/layer\\.\\d+\\/mm$/", bert)).toEqual(["node enc/layer.1/mm", "node enc/layer.10/mm"]);
    expect(found("/^softmax$/i", bert)).toHaveLength(2);
    expect(found("/^softmax$/", bert)).toEqual([]);
    expect(found("/^two\\swords$/", bert)).toEqual(["tensor two\nwords"]);
    expect(found("op:/^Ma/ -op:/Mul$/", bert)).toEqual(["node pool"]);
  });
});

describe("an invalid query", () => {
  it.each([
    ['"abc', 'The quote at "abc is not closed.'],
    ["/(a/", "The regular expression /(a/ cannot be used: Unterminated group."],
    ["/(a+)+$/", "The regular expression /(a+)+$/ cannot be used: a repeated group may not repeat"],
    ["/((a|aa)x)*b/", "a repeated group may not repeat or choose inside"],
    [`/${"a".repeat(201)}/`, "it has more than 200 characters"],
    ["color:red", "There is no field 'color'. There are op, name, dtype"],
    ["kind:tree", "kind: is one of node, tensor"],
    ["a > > b", "A > stands between two nodes"],
    ["> b", "A > stands between two nodes"],
    ["a > **", "A chain begins and ends with a node, not with **."],
    ["... > a", "A chain begins and ends with a node, not with ...."],
    ["a".repeat(2000), "at most 1000 characters"],
    ["a ".repeat(100), "at most 32 words"],
    [Array(20).fill("a").join(" > "), "at most 12 nodes"],
  ])("%s reports the error", (text, problem) => {
    const { hits, problem: said } = search(bert, text);
    expect(hits).toEqual([]);
    expect(said).toContain(problem);
  });

  it("never throws, however the query is truncated or mixed", () => {
    const whole =
      '-name:"a b"|c*d shape:[1, *]x... attr:k=3x3 /r(e)+g/i MatMul -> ** > op:Soft|* => scope:/x/ kind:node → é';
    for (let from = 0; from < whole.length; from++) {
      for (let to = from; to <= Math.min(whole.length, from + 40); to++) search(bert, whole.slice(from, to));
    }
    for (let from = 0; from < whole.length; from++) search(bert, whole.slice(from));
  });
});

describe("chains", () => {
  it("follow the flow from node to node", () => {
    expect(found("MatMul > * > Softmax", bert)).toEqual([
      "enc/layer.1/mm > enc/layer.1/scale > enc/layer.1/Softmax_7",
      "enc/layer.10/mm > enc/layer.10/add > enc/layer.10/Softmax_9",
    ]);
    expect(found("matmul>mul -> op:Softmax scope:layer.1", bert)).toHaveLength(1);
    expect(found("Mul → -softmax", bert)).toEqual(["enc/layer.1/scale > enc/layer.10/add"]);
    expect(found("Mul > Add|Softmax", bert)).toHaveLength(2);
    expect(found("Mul > MatMul", bert)).toEqual([]);
  });

  it("match an op by its name if the model has it", () => {
    expect(found("Mul > *", bert)).toHaveLength(2);
    expect(found("layer.1 > Conv", bert)).toEqual(["enc/layer.10/Softmax_9 > conv"]);
  });

  it("take the shortest path across a gap, to the next matches", () => {
    expect(found("Cast > ** > Softmax", bert)).toEqual([
      "emb/cast > enc/layer.1/mm > enc/layer.1/scale > enc/layer.1/Softmax_7",
      "emb/cast > enc/layer.10/mm > enc/layer.10/add > enc/layer.10/Softmax_9",
    ]);
    expect(found("Gather > ... > Conv > MaxPool", bert)).toHaveLength(1);
    expect(found("Cast > … > Cast", bert)).toEqual([]);
  });

  it("allow a maximum number of nodes in a gap", () => {
    for (const [inner, count] of [
      [WIDEST_GAP, 1],
      [WIDEST_GAP + 1, 0],
    ]) {
      const lines = Array.from({ length: inner }, (_, at) => `Relu r${at} : v${at} -> v${at + 1}`);
      const long = columnsOf(["Conv c : x -> v0", ...lines, `Softmax s : v${inner} -> y`].join("\n"));
      expect(search(long, "Conv > ** > Softmax").total).toBe(count);
    }
  });

  it("are single nodes while they are incomplete", () => {
    expect(found("Cast >", bert)).toEqual(["node emb/cast"]);
  });
});

// ---------------------------------------------------------------- against brute force

function dice(seed: number): (faces: number) => number {
  let state = seed;
  return (faces) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * faces);
  };
}

/** Returns a synthetic graph with scopes, types, attributes, weights, folded nodes and diamonds. */
function random(seed: number, nodes: number): Columns {
  const roll = dice(seed);
  const pick = <T>(of: readonly T[]): T => of[roll(of.length)];
  const lines = ["input v0 batch×8 float32", "weight w.bias 8 float16", "scope enc class=Encoder"];
  for (let at = 0; at < nodes; at++) {
    const scope = pick(["", "enc/", "enc/layer.1/", "enc/layer.10/", "dec/é/"]);
    const reads = Array.from({ length: 1 + roll(3) }, () => `v${Math.max(0, at - roll(5))}`);
    if (roll(4) === 0) reads.push("w.bias");
    const op = pick(["MatMul", "Mul", "Add", "Softmax", "Relu"]);
    const attributes = pick(["", "", " | axis -1", " | axis 1 · perm [0, 1]"]);
    lines.push(`${op} ${scope}${pick(["mm", "Add", "out"])}_${at} : ${reads.join(" ")} -> v${at + 1}${attributes}`);
    const type = pick(["", "batch×8 float32", "1×8×64 float16", "8 int64", "scalar float32"]);
    if (type !== "") lines.push(`type v${at + 1} ${type}`);
  }
  lines.push("Constant k : -> kv", "fold k", `output v${nodes}`);
  return columnsOf(lines.join("\n"));
}

/** Searchable texts of one target. */
interface Thing {
  kind: string;
  own: string[];
  op: string;
  near: string[];
  dtypes: string[];
  shapes: string[];
  attributes: string;
}
type Meaning = (thing: Thing) => "own" | "near" | null;
const has = (texts: string[], text: string): boolean => texts.some((each) => each.toLowerCase().includes(text));
const word =
  (text: string): Meaning =>
  (thing) => {
    if (has(thing.own, text) || has([thing.op], text)) return "own";
    const typed = thing.dtypes.includes(text) || thing.shapes.some((shape) => shape.split("×").includes(text));
    if (typed) return thing.kind === "tensor" ? "own" : "near";
    if (thing.attributes.split(/[^\w×-]+/).includes(text)) return "near";
    return has(thing.near, text) ? "near" : null;
  };
const TERMS: readonly (readonly [string, Meaning])[] = [
  ...["mm", "ADD", "enc", "layer.1", "float16", "8", "batch", "v1", "bias", "é", "encoder", "_1", "axis", "1"].map(
    (text) => [text, word(text.toLowerCase())] as const,
  ),
  ["op:Mul", ({ op }) => (op === "Mul" ? "own" : null)],
  ["op:m", ({ op }) => (/m/i.test(op) ? "own" : null)],
  ["name:out", ({ own }) => (has(own, "out") ? "own" : null)],
  ["name:*_1*", ({ own }) => (has(own, "_1") ? "own" : null)],
  [
    "/_\\d$/",
    ({ own, op, near, kind, dtypes, shapes, attributes }) => {
      const fits = (text: string): boolean => /_\d$/.test(text);
      if (own.some(fits) || fits(op)) return "own";
      if ([...dtypes, ...shapes].some(fits)) return kind === "tensor" ? "own" : "near";
      return near.some(fits) || fits(attributes) ? "near" : null;
    },
  ],
  ["dtype:float16", ({ dtypes, kind }) => (dtypes.includes("float16") ? (kind === "tensor" ? "own" : "near") : null)],
  [
    "shape:1x*x64",
    ({ shapes, kind }) =>
      shapes.some((shape) => /^1×[^×]+×64$/.test(shape)) ? (kind === "tensor" ? "own" : "near") : null,
  ],
  ["attr:axis=1", ({ attributes }) => (/axis 1( |$)/.test(attributes) ? "own" : null)],
];

function things(of: Columns): Thing[] {
  const list: Thing[] = [];
  const around = (group: number): string[] =>
    of.ancestry(group).flatMap((each) => [of.str(of.scopePath[each]), of.str(of.scopeClass[each])]);
  const typed = (values: ArrayLike<number>, by: (value: number) => string): string[] =>
    Array.from(values)
      .filter((value) => value >= 0)
      .map(by)
      .filter((text) => text !== "");
  for (let group = 1; group < of.scopeCount; group++) {
    const [last, full] = [of.str(of.scopeName[group]), of.str(of.scopePath[group])];
    expect(of.scopeKind[group]).toBe(SCOPE_KIND.SCOPE);
    list.push({
      kind: "scope",
      own: [last, of.str(of.scopeClass[group])],
      op: "",
      near: [full, ...around(group)],
      dtypes: [],
      shapes: [],
      attributes: "",
    });
  }
  for (let node = 0; node < of.nodeCount; node++) {
    list.push({
      kind: "node",
      own: [of.nameOf({ kind: "node", id: node })],
      op: of.opOf(node),
      near: [
        ...around(of.scopeOf({ kind: "node", id: node })),
        ...Array.from(of.inputsOf(node))
          .filter((value) => value >= 0 && of.isConstant(value))
          .map((value) => of.valueNameOf(value)),
      ],
      dtypes: typed(of.outputsOf(node), (value) => of.dtypeOf(value)),
      shapes: typed(of.outputsOf(node), (value) => of.shapeOf(value)),
      attributes: of.str(of.nodeAttributes[node]),
    });
  }
  for (let value = 0; value < of.valueCount; value++) {
    const maker = of.producer[value];
    const reader = of.consumersOf(value)[0];
    const at = maker >= 0 ? maker : of.isConstant(value) && reader !== undefined ? reader : -1;
    list.push({
      kind: "tensor",
      own: [of.valueNameOf(value)],
      op: "",
      near: at < 0 ? [] : around(of.scopeOf({ kind: "node", id: at })),
      dtypes: typed([value], () => of.dtypeOf(value)),
      shapes: typed([value], () => of.shapeOf(value)),
      attributes: "",
    });
  }
  return list;
}

describe("against brute force", () => {
  it("finds the same targets for random queries on random graphs", () => {
    const roll = dice(11);
    let total = 0;
    for (let seed = 0; seed < 12; seed++) {
      const graph = random(seed, 60);
      const all = things(graph);
      const ids = new Map(["scope", "node", "tensor"].map((kind) => [kind, kind === "scope" ? 1 : 0]));
      const label = all.map(({ kind }) => {
        const id = ids.get(kind) ?? 0;
        ids.set(kind, id + 1);
        return `${kind} ${id}`;
      });
      for (let round = 0; round < 120; round++) {
        const chosen = Array.from({ length: 1 + roll(3) }, (_, at) => ({
          term: TERMS[roll(TERMS.length)],
          negative: at > 0 && roll(3) === 0,
        }));
        const text = chosen.map(({ term, negative }) => (negative ? "-" : "") + term[0]).join(" ");
        const expected = label.filter((_, at) => {
          const thing = all[at];
          if (thing.kind === "node" && thing.op === "Constant") return false;
          const verdicts = chosen.map(({ term, negative }) => ({ verdict: term[1](thing), negative }));
          return (
            verdicts.every(({ verdict, negative }) => negative === (verdict === null)) &&
            verdicts.some(({ verdict, negative }) => !negative && verdict === "own")
          );
        });
        const hits = search(graph, text).hits.map(({ kind, id }) => `${kind} ${id}`);
        total += hits.length;
        expect(hits.sort(), text).toEqual(expected.sort());
      }
    }
    expect(total).toBeGreaterThan(3000);
  });

  it("finds the same chains", () => {
    const roll = dice(5);
    const steps = ["MatMul", "Mul", "Softmax", "Relu", "*", "dtype:float16", "-Add", "mm"];
    let total = 0;
    for (let seed = 100; seed < 120; seed++) {
      const graph = random(seed, 40);
      const nodes = Array.from({ length: graph.nodeCount }, (_, node) => node).filter((node) => !graph.isFolded(node));
      const next = nodes.map((node) =>
        nodes.filter((other) => graph.inputsOf(other).some((value) => graph.producer[value] === node)),
      );
      const fits = (step: string, node: number): boolean => {
        if (step === "*") return true;
        if (step === "mm") return graph.nameOf({ kind: "node", id: node }).includes("mm");
        if (step === "-Add") return graph.opOf(node) !== "Add";
        if (step.startsWith("dtype")) return graph.outputsOf(node).some((value) => graph.dtypeOf(value) === "float16");
        return graph.opOf(node) === step;
      };
      /** Returns node → number of nodes in the shortest gap before it. */
      const across = (from: number, step: string, before: string): Map<number, number> => {
        const length = new Map<number, number>();
        let front = new Set([from]);
        for (let inner = 0; inner <= WIDEST_GAP; inner++) {
          const reached = new Set([...front].flatMap((node) => next[node]));
          for (const node of reached) if (fits(step, node) && !length.has(node)) length.set(node, inner);
          front = new Set([...reached].filter((node) => !fits(step, node) && !fits(before, node)));
        }
        return length;
      };
      for (let round = 0; round < 15; round++) {
        const direct = Array.from({ length: 2 + roll(3) }, () => steps[roll(steps.length)]);
        let expected = nodes.filter((node) => fits(direct[0], node)).map((node) => [node]);
        for (const step of direct.slice(1)) {
          expected = expected.flatMap((path) =>
            next[path.at(-1) as number].filter((node) => fits(step, node)).map((node) => [...path, node]),
          );
        }
        const { hits, more } = search(graph, direct.join(" > "));
        total += hits.length;
        expect(more).toBe(expected.length > MOST_HITS);
        if (!more)
          expect(hits.map(({ chain }) => chain?.join()).sort(), direct.join(" > ")).toEqual(
            expected.map((path) => path.join()).sort(),
          );

        const [before, after] = direct;
        const gapped = search(graph, `${before} > ** > ${after}`).hits.map(({ chain }) => chain ?? []);
        const ends = nodes
          .filter((node) => fits(before, node))
          .flatMap((from) => [...across(from, after, before)].map(([to, inner]) => `${from} ${to} ${inner}`));
        expect(gapped.map((chain) => `${chain[0]} ${chain.at(-1)} ${chain.length - 2}`).sort()).toEqual(ends.sort());
        for (const chain of gapped) {
          for (let at = 1; at < chain.length; at++) expect(next[chain[at - 1]]).toContain(chain[at]);
        }
      }
    }
    expect(total).toBeGreaterThan(1000);
  });
});

describe("in steps", () => {
  const large = columnsOf(
    ["input v0 8 float32", ...Array.from({ length: 30_000 }, (_, at) => `Relu n${at} : v${at} -> v${at + 1}`)].join(
      "\n",
    ),
  );

  it("returns the same as in one step, and stops when asked to", () => {
    for (const text of ["n1", "/n\\d+7$/", "Relu > * > Relu"]) {
      const whole = searching(large, text);
      let count = 0;
      let last = whole.next();
      for (; !last.done; last = whole.next()) count++;
      expect(count).toBeGreaterThan(2);
      expect(last.value).toEqual(search(large, text));

      const early = searching(large, text);
      early.next();
      let stopped = early.next();
      while (!stopped.done) stopped = early.next(true);
      expect(stopped.value.more).toBe(true);
    }
  });

  it("keeps the first of many hits, and counts them all", () => {
    const { hits, total, more } = search(large, "relu");
    expect([hits.length, total, more]).toEqual([MOST_HITS, 30_000, false]);
    expect(search(large, "Relu > Relu")).toMatchObject({ total: MOST_HITS, more: true });
  });
});
