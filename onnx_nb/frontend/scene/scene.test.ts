import { describe, expect, test } from "vitest";
import { buildScene, createCache, sceneInParts } from "../layout/build.ts";
import { random } from "../layout/testing.ts";
import { type Columns, SCOPE_KIND } from "../protocol/columns.ts";
import type { Direction } from "../protocol/host.ts";
import { columnsOf, measure, scopeAt } from "../protocol/testing.ts";
import { boundsOf, fitAll, MARGIN } from "../render/camera.ts";
import { along } from "../render/curve.ts";
import { TEXT } from "./labels.ts";
import { BOX, keepInPlace, type Scene } from "./scene.ts";
import { type ScopeGraph, scopesOf } from "./scopegraph.ts";

const BERT = `
input ids batch×seq int64
input mask batch×seq int64
weight W 768×768 float32
weight scale 768 float32
type e batch×seq×768 float32
Gather emb/gather : W ids -> e
scope enc/layer.0 class=BertLayer
MatMul enc/layer.0/attention/q : e W -> q0
MatMul enc/layer.0/attention/k : e W -> k0
MatMul enc/layer.0/attention/v : e W -> v0
Attention enc/layer.0/attention/core : q0 k0 v0 mask -> a0
Add enc/layer.0/add : a0 e -> r0
LayerNormalization enc/layer.0/norm : r0 scale scale -> h0
scope enc/layer.1 class=BertLayer
MatMul enc/layer.1/attention/q : h0 W -> q1
MatMul enc/layer.1/attention/k : h0 W -> k1
MatMul enc/layer.1/attention/v : h0 W -> v1
Attention enc/layer.1/attention/core : q1 k1 v1 mask -> a1
Add enc/layer.1/add : a1 h0 -> r1
LayerNormalization enc/layer.1/norm : r1 scale scale -> h1
Gemm pool : h1 W -> y
output y batch×768 float32
output h1 batch×seq×768 float32
`;

/** Returns blocks of attention and a feed-forward part with residuals, as in a transformer. */
function blocks(count: number): string {
  const lines = ["input h0 1×16×96 float32", "weight W 96×96 float32", "scope h kind=REPEAT"];
  const add = (op: string, name: string, to: string, ...from: readonly string[]): void => {
    lines.push(`type ${to} 1×16×96 float32`, `${op} ${name} : ${from.join(" ")} -> ${to}`);
  };
  for (let i = 0; i < count; i++) {
    const [at, v] = [`h/${i}`, (name: string): string => `${name}_${i}`];
    add("LayerNormalization", `${at}/ln_1`, v("a"), `h${i}`, "W", "W");
    for (const part of ["q", "k", "v"]) {
      add("MatMul", `${at}/attn/${part}`, v(part), v("a"), "W");
      add("Reshape", `${at}/attn/${part}_heads`, v(`${part}h`), v(part));
      add("Transpose", `${at}/attn/${part}_turn`, v(`${part}t`), v(`${part}h`));
    }
    add("MatMul", `${at}/attn/sdpa/scores`, v("s"), v("qt"), v("kt"));
    add("Softmax", `${at}/attn/sdpa/softmax`, v("p"), v("s"));
    add("MatMul", `${at}/attn/sdpa/mix`, v("m"), v("p"), v("vt"));
    add("Transpose", `${at}/attn/back`, v("b"), v("m"));
    add("MatMul", `${at}/attn/proj`, v("o"), v("b"), "W");
    add("Add", `${at}/add_1`, v("r"), `h${i}`, v("o"));
    add("LayerNormalization", `${at}/ln_2`, v("c"), v("r"), "W", "W");
    add("MatMul", `${at}/mlp/fc`, v("f"), v("c"), "W");
    for (const [from, op, to] of ["f Pow g", "g Mul j", "j Tanh l", "l Add n"].map((step) => step.split(" ")))
      add(op, `${at}/mlp/act/${op}`, v(to), v(from));
    add("MatMul", `${at}/mlp/proj`, v("w"), v("n"), "W");
    add("Add", `${at}/add_2`, `h${i + 1}`, v("r"), v("w"));
  }
  return [...lines, `MatMul head : h${count} W -> y`, "output y"].join("\n");
}

const CONTROL = `
input x 2×3 float32
input cond scalar bool
Relu before : x -> h
If choose : cond -> y
scope If kind=BODY node=choose
scope If/then kind=BRANCH node=choose
scope If/else kind=BRANCH node=choose
Add If/then/add : h h -> t
Neg If/else/neg : h -> u
yield t y
yield u y
Loop repeat : y -> z
scope Loop kind=BODY node=repeat
scope Loop/body kind=BRANCH node=repeat
bodyinput carried
Mul Loop/body/mul : carried x -> m
yield m z
output z
`;

const CALLS = `
input x 2×3 float32
weight W 3×3 float32
Block call : x W unread -> h
Relu unread : x -> unread
scope call kind=FUNCTION class=Block node=call
MatMul call/project : x W -> p
Scaled call/scale : p -> s
scope call/scale kind=FUNCTION node=call/scale
Mul call/scale/mul : p p -> m
yield m s
Relu call/act : s -> r
yield r h
Through through : h -> t
scope through kind=FUNCTION node=through
yield h t
output t
`;

function all(columns: Columns): Set<number> {
  return new Set(Array.from({ length: columns.scopeCount }, (_, group) => group));
}

function sceneOf(description: string, open: "none" | "all" | readonly string[], direction: Direction = "down"): Scene {
  const columns = columnsOf(description);
  const groups =
    open === "all"
      ? all(columns)
      : new Set([0, ...(open === "none" ? [] : open.map((path) => scopeAt(columns, path)))]);
  return buildScene(columns, groups, measure, createCache(), { direction });
}

/** Returns the faults of a scene as text: boxes that overlap or leave their parent, edges that miss their boxes. */
function faults(scene: Scene): string[] {
  const { boxes, edges, direction } = scene;
  const found: string[] = [];
  const { x, y, w, h, parent, count } = boxes;
  for (let a = 0; a < count; a++) {
    const p = parent[a];
    if (p >= a) found.push(`box ${a} comes before its parent`);
    if (p >= 0 && (x[a] < x[p] || y[a] < y[p] + 20 || x[a] + w[a] > x[p] + w[p] || y[a] + h[a] > y[p] + h[p])) {
      found.push(`box ${a} leaves its parent`);
    }
    for (let b = a + 1; b < count; b++) {
      if (parent[b] !== p) continue;
      if (x[a] < x[b] + w[b] && x[b] < x[a] + w[a] && y[a] < y[b] + h[b] && y[b] < y[a] + h[a]) {
        found.push(`boxes ${a} and ${b} overlap`);
      }
    }
  }
  const down = direction === "down";
  const near = (a: number, b: number): boolean => Math.abs(a - b) < 0.6;
  /** Returns whether a point is on the side of a box where edges enter (or leave) it. */
  const onSide = (box: number, px: number, py: number, far: boolean): boolean =>
    down
      ? near(py, far ? y[box] + h[box] : y[box]) && px >= x[box] && px <= x[box] + w[box]
      : near(px, far ? x[box] + w[box] : x[box]) && py >= y[box] && py <= y[box] + h[box];
  for (let e = 0; e < edges.count; e++) {
    const first = edges.ptr[e];
    const last = edges.ptr[e + 1] - 1;
    const [x0, y0, x1, y1] = [first, last].flatMap((p) => [edges.points[2 * p], edges.points[2 * p + 1]]) as [
      number,
      number,
      number,
      number,
    ];
    const from = edges.fromBox[e];
    const to = edges.toBox[e];
    const scope = edges.scope[e];
    if (to >= 0 && !onSide(to, x1, y1, to === scope)) found.push(`edge ${e} misses its end`);
    if (from >= 0 && (!edges.stub[e] || to < 0) && !onSide(from, x0, y0, from !== scope)) {
      found.push(`edge ${e} misses its start`);
    }
    for (const end of [from, to])
      if (end >= 0 && end !== scope && parent[end] !== scope) found.push(`edge ${e} leaves its scope`);
  }
  return [...found, ...lineFaults(scene), ...labelFaults(scene)];
}

/** Returns the edges that are drawn through a box of their scope. */
function lineFaults({ boxes, edges, direction }: Scene): string[] {
  const inside = new Map<number, number[]>();
  for (let box = 0; box < boxes.count; box++) {
    const parent = boxes.parent[box] as number;
    inside.set(parent, [...(inside.get(parent) ?? []), box]);
  }
  const found = new Set<string>();
  for (let e = 0; e < edges.count; e++) {
    for (let p = edges.ptr[e] as number; p + 1 < (edges.ptr[e + 1] as number); p++) {
      const [x0, y0, x1, y1] = Array.from(edges.points.subarray(2 * p, 2 * p + 4)) as [number, number, number, number];
      for (let t = 0; t <= 1; t += 1 / 12) {
        const { x, y } = along(x0, y0, x1, y1, t, direction);
        for (const box of inside.get(edges.scope[e] as number) ?? []) {
          const within =
            x > boxes.x[box] + 0.6 &&
            x < boxes.x[box] + boxes.w[box] - 0.6 &&
            y > boxes.y[box] + 0.6 &&
            y < boxes.y[box] + boxes.h[box] - 0.6;
          if (within) found.add(`edge ${e} crosses box ${box}`);
        }
      }
    }
  }
  return [...found];
}

/** Returns labels over a box or another label of their scope, or outside the scope. */
function labelFaults(scene: Scene): string[] {
  const { boxes, edges } = scene;
  const found: string[] = [];
  const texts = Array.from({ length: edges.count }, (_, e) => {
    const [left, middle] = [edges.labelX[e] as number, edges.labelY[e] as number];
    const right = left + measure(scene.edgeLabel(e), TEXT.edge, false);
    return { e, scope: edges.scope[e] as number, left, right, top: middle - 5, bottom: middle + 5 };
  }).filter(({ left }) => !Number.isNaN(left));
  texts.forEach((text, index) => {
    const say = (what: string): void => {
      found.push(`label '${scene.edgeLabel(text.e)}' of edge ${text.e} ${what}`);
    };
    const meets = (left: number, right: number, top: number, bottom: number): boolean =>
      text.left < right && left < text.right && text.top < bottom && top < text.bottom;
    for (const other of texts.slice(index + 1)) {
      if (other.scope !== text.scope) continue;
      if (meets(other.left, other.right, other.top, other.bottom)) say(`covers that of edge ${other.e}`);
    }
    for (let box = 0; box < boxes.count; box++) {
      const [x, y] = [boxes.x[box] as number, boxes.y[box] as number];
      const [right, bottom] = [x + (boxes.w[box] as number), y + (boxes.h[box] as number)];
      if (boxes.parent[box] === text.scope && meets(x, right, y, bottom)) say(`covers box ${box}`);
      if (box === text.scope && (text.left < x || text.right > right || text.top < y || text.bottom > bottom)) {
        say("leaves its scope");
      }
    }
  });
  return found;
}

/** Returns nodes in random scopes up to three deep; each reads some earlier tensors, sometimes a missing one. */
function randomNest(next: (n: number) => number, nodes: number): string {
  const lines = ["input x batch×seq×768 float32", "input mask batch×seq int64"];
  const made = ["x", "mask"];
  for (let i = 0; i < nodes; i++) {
    const path = Array.from({ length: next(4) }, () => `g${next(2)}`);
    const reads = Array.from({ length: 1 + next(3) }, () =>
      next(12) === 0
        ? `missing_${next(5)}`
        : next(3) === 0
          ? "x"
          : (made[Math.max(0, made.length - 1 - next(6))] as string),
    );
    const makes = next(8) === 0 ? [`v${i}`, `w${i}`] : [`v${i}`];
    for (const name of makes)
      lines.push(`type ${name} ${["batch×seq×768 float32", "4 int64", "scalar bool"][next(3)]}`);
    lines.push(
      `${["Add", "Relu", "Concat"][next(3)]} ${[...path, `n${i}`].join("/")} : ${reads.join(" ")} -> ${makes.join(" ")}`,
    );
    made.push(...makes);
  }
  return [...lines, `output ${made.at(-1)}`].join("\n");
}

function edgesBetween(scene: Scene): string[] {
  const { edges } = scene;
  const name = (box: number, scope: number): string =>
    box < 0 ? "-" : box === scope ? "border" : scene.label(box).title;
  return Array.from({ length: edges.count }, (_, e) => {
    const scope = edges.scope[e];
    return `${name(edges.fromBox[e], scope)} → ${name(edges.toBox[e], scope)}${edges.outerScope[e] ? " outer" : ""}${edges.stub[e] ? " stub" : ""}`;
  }).sort();
}

describe("buildScene", () => {
  test("joins the results of the branches of a body to the output of its owner", () => {
    const scene = sceneOf(CONTROL, "all");
    const edges = edgesBetween(scene);
    for (const edge of ["then → y", "else → y", "y → border", "body → z", "z → border"]) expect(edges).toContain(edge);
    expect(faults(scene)).toEqual([]);
  });

  test("places every box and edge soundly, closed, partly open and fully open, in both directions", () => {
    for (const description of [BERT, CONTROL]) {
      for (const direction of ["down", "right"] as const) {
        expect(faults(sceneOf(description, "none", direction))).toEqual([]);
        expect(faults(sceneOf(description, "all", direction))).toEqual([]);
      }
    }
    expect(faults(sceneOf(BERT, ["enc", "enc/layer.1"]))).toEqual([]);
  });

  test("places random nested scopes soundly, including cycles of scopes, missing tensors and wide fan-outs", () => {
    for (let seed = 1; seed <= 25; seed++) {
      const next = random(seed);
      const columns = columnsOf(randomNest(next, 12 + seed));
      const open = new Set(
        Array.from({ length: columns.scopeCount }, (_, g) => g).filter((g) => g === 0 || next(3) > 0),
      );
      for (const direction of ["down", "right"] as const) {
        for (const room of [undefined, { w: 500, h: 300 }]) {
          const scene = buildScene(columns, open, measure, createCache(), { direction, room });
          expect([seed, direction, room, ...faults(scene)]).toEqual([seed, direction, room]);
        }
      }
    }
  });

  test.each([
    { direction: "down", w: 870, h: 590 },
    { direction: "down", w: 660, h: 330 },
    { direction: "right", w: 870, h: 590 },
    { direction: "right", w: 640, h: 520 },
  ] as const)("folds twelve open blocks to a page that fills a view of $w×$h, $direction", ({ direction, w, h }) => {
    const columns = columnsOf(blocks(12));
    const room = { w: w - 2 * MARGIN, h: h - 2 * MARGIN };
    const scene = buildScene(columns, all(columns), measure, createCache(), { direction, room });
    expect(faults(scene)).toEqual([]);
    const { kind, x, y, w: wide, h: high, count } = scene.boxes;
    const rects = Array.from({ length: count }, (_, box) => ({ x: x[box], y: y[box], w: wide[box], h: high[box] }));
    const page = boundsOf(rects);
    const { k } = fitAll(scene.bounds, { w, h });
    expect((page.w * k * page.h * k) / (w * h)).toBeGreaterThan(0.6);
    // a grid: several cards in a row, several in a column
    const cards = rects.filter((_, box) => kind[box] === BOX.OPEN && scene.boxes.depth[box] === 1);
    const places = (side: "x" | "y"): number => new Set(cards.map((card) => Math.round(card[side] / 50))).size;
    expect(cards).toHaveLength(12);
    expect(places("x")).toBeGreaterThan(1);
    expect(places("y")).toBeGreaterThan(1);
  });

  test("leaves what fits into a view as it is", () => {
    const columns = columnsOf(BERT);
    const scenes = [undefined, { w: 2000, h: 2000 }].map((room) =>
      buildScene(columns, all(columns), measure, createCache(), { room }),
    );
    expect(scenes[1]?.boxes).toEqual(scenes[0]?.boxes);
  });

  test("shows a closed scope as one box with the tensors that enter and leave it", () => {
    const scene = sceneOf(BERT, "none");
    expect(edgesBetween(scene)).toEqual(["Gemm → y", "emb → enc", "enc → Gemm", "enc → h1", "ids → emb", "mask → enc"]);
    expect(Array.from(scene.boxes.kind).filter((kind) => kind === BOX.OPEN)).toEqual([]);
  });

  test("carries a tensor over the border of an open scope at one port, inside and outside", () => {
    const scene = sceneOf(BERT, ["enc"]);
    const { edges } = scene;
    const columns = columnsOf(BERT);
    const e = columns.find("e")?.id ?? -1;
    const [outside, ...inside] = Array.from(scene.edgesOf(e)).sort((a, b) => edges.scope[a] - edges.scope[b]);
    const enc = scene.boxOf("scope", scopeAt(columns, "enc"));
    expect(edges.toBox[outside as number]).toBe(enc);
    expect(inside.map((edge) => edges.fromBox[edge])).toEqual([enc]);
    const end = 2 * (edges.ptr[(outside as number) + 1] - 1);
    const start = 2 * edges.ptr[inside[0] as number];
    expect(edges.points[end]).toBeCloseTo(edges.points[start], 1);
    expect(edges.points[end + 1]).toBeCloseTo(edges.points[start + 1], 1);
  });

  test("keeps the residual chain of two open layers in one line", () => {
    const columns = columnsOf(BERT);
    const scene = buildScene(columns, all(columns), measure, createCache());
    const at = (name: string): number => {
      const box = scene.boxOf("node", columns.find(name)?.id ?? -1);
      return scene.boxes.x[box] + scene.boxes.w[box] / 2;
    };
    expect(Math.abs(at("enc/layer.0/add") - at("enc/layer.1/add"))).toBeLessThan(1);
    expect(Math.abs(at("enc/layer.0/norm") - at("enc/layer.1/norm"))).toBeLessThan(1);
  });

  test("labels each tensor once in a scope", () => {
    const scene = sceneOf(BERT, "none");
    const { edges } = scene;
    const labels = Array.from({ length: edges.count }, (_, e) => e)
      .filter((e) => !Number.isNaN(edges.labelX[e]))
      .map((e) => scene.edgeLabel(e))
      .sort();
    expect(labels).toEqual([
      "batch×768 f32",
      "batch×seq i64",
      "batch×seq i64",
      "batch×seq×768 f32",
      "batch×seq×768 f32",
    ]);
  });

  test("labels many equal tensors between two boxes once", () => {
    const heads = Array.from({ length: 20 }, (_, i) => i);
    const columns = `
input x 2×40 float32
Split split : x -> ${heads.map((i) => `s${i}`).join(" ")}
${heads.map((i) => `type s${i} 2×2 float32\nRelu heads/r${i} : s${i} -> r${i}\ntype r${i} 2×2 float32`).join("\n")}
scope heads kind=SIBLINGS repeat=20
Concat concat : ${heads.map((i) => `r${i}`).join(" ")} -> y
output y
`;
    const scene = sceneOf(columns, "none");
    expect(faults(scene)).toEqual([]);
    const labels = Array.from(scene.edges.value, (_, e) => scene.edgeLabel(e)).filter((label) => label !== "");
    expect(labels.filter((label) => label.includes("2×2"))).toEqual(["20 tensors 2×2 f32", "20 tensors 2×2 f32"]);
    // each tensor is there nevertheless
    expect(heads.map((i) => scene.edgesOf(columnsOf(columns).find(`s${i}`, "tensor")?.id ?? -1).length)).toEqual(
      heads.map(() => 1),
    );
    const open = sceneOf(columns, "all");
    expect(faults(open)).toEqual([]);
  });

  test("finds the nearest box that shows a node, a tensor or a scope", () => {
    const columns = columnsOf(BERT);
    const scene = buildScene(columns, new Set([0, scopeAt(columns, "enc")]), measure, createCache());
    const layer = scene.boxOf("scope", scopeAt(columns, "enc/layer.0"));
    expect(scene.label(layer).title).toBe("layer.0");
    expect(scene.boxOf("node", columns.find("enc/layer.0/attention/q")?.id ?? -1)).toBe(layer);
    expect(scene.boxOf("tensor", columns.find("h0")?.id ?? -1)).toBe(layer);
    expect(scene.boxOf("scope", scopeAt(columns, "enc/layer.0/attention"))).toBe(layer);
    const shown = scene.boxesOfValue(columns.find("h0")?.id ?? -1);
    expect(shown).toEqual({ producer: layer, consumers: [scene.boxOf("scope", scopeAt(columns, "enc/layer.1"))] });
    expect(scene.boxes.kind[scene.boxOf("tensor", columns.graphInputs[0])]).toBe(BOX.INPUT);
  });

  test("draws bodies in their node: outer-scope tensors dashed, body inputs as pills, outputs at the border", () => {
    const lines = edgesBetween(sceneOf(CONTROL, "all"));
    expect(lines).toContain("Relu → If outer");
    expect(lines).toContain("border → then outer");
    expect(lines).toContain("border → Neg outer");
    expect(lines).toContain("carried → Mul");
    expect(lines).toContain("border → Mul outer");
    expect(lines).toContain("Mul → border");
    expect(lines).toContain("cond → If");
    expect(lines).toContain("If → Loop");
    expect(lines).toContain("Loop → z");
  });

  test("opens calls in place: inputs continue to the nodes inside, nothing is dashed", () => {
    const scene = sceneOf(CALLS, "all");
    expect(faults(scene)).toEqual([]);
    const columns = columnsOf(CALLS);
    const box = (kind: "node" | "scope", name: string): number => scene.boxOf(kind, columns.find(name, kind)?.id ?? -1);
    const value = (name: string): number => columns.find(name, "tensor")?.id ?? -1;
    const ends = (name: string): [number, number][] =>
      Array.from(scene.edgesOf(value(name)), (e) => [scene.edges.fromBox[e], scene.edges.toBox[e]]);
    const open = box("scope", "call");
    expect(scene.boxes.kind[open]).toBe(BOX.OPEN);
    // from its pill to the border and to the Relu outside, from the border to the node inside
    expect(ends("x")).toContainEqual([open, box("node", "call/project")]);
    expect(ends("p")).toContainEqual([box("node", "call/project"), box("scope", "call/scale")]);
    expect(ends("p")).toContainEqual([box("scope", "call/scale"), box("node", "call/scale/mul")]);
    // the result of the function becomes the result of the call
    const pill = ends("r").map(([, to]) => to);
    expect(pill.map((to) => [scene.boxes.kind[to], scene.boxes.id[to]])).toEqual([[BOX.OUTPUT, value("h")]]);
    expect(ends("h")).toContainEqual([pill[0], open]);
    // a function that only passes its input on
    expect(ends("h").map(([from]) => scene.boxes.kind[from])).toContain(BOX.OPEN);
    expect(Array.from(scene.edges.outerScope)).not.toContain(1);
    // a tensor without a reader inside still ends at the call
    expect(ends("unread")).toEqual([[box("node", "unread"), open]]);
    const closed = sceneOf(CALLS, []);
    expect(faults(closed)).toEqual([]);
    expect(closed.boxes.kind[closed.boxOf("node", columns.find("call", "node")?.id ?? -1)]).toBe(BOX.SCOPE);
  });

  test("draws no box for folded nodes, and no edge for their results", () => {
    const scene = sceneOf("input x\nConstant c : -> k\nfold c\nAdd a : x k -> y\noutput y", "none");
    expect(edgesBetween(scene)).toEqual(["Add → y", "x → Add"]);
  });

  test("shows a tensor without a producer as a stub with its name", () => {
    const scene = sceneOf("input x\nAdd a : x lost -> y\noutput y", "none");
    const stub = Array.from(scene.edges.stub).indexOf(1);
    expect(scene.edgeLabel(stub)).toBe("lost");
    expect(scene.edges.fromBox[stub]).toBe(-1);
    expect(faults(scene)).toEqual([]);
  });

  test.each(["down", "right"] as const)(
    "names every one of many missing tensors, without any overlap (%s)",
    (direction) => {
      const lost = Array.from({ length: 9 }, (_, i) => `missing_tensor_${i}`);
      const scene = sceneOf(
        `input x\nConcat a/c : x ${lost.join(" ")} -> y\nAdd b : x y -> z\noutput z`,
        "all",
        direction,
      );
      expect(faults(scene)).toEqual([]);
      const { edges } = scene;
      const named = Array.from({ length: edges.count }, (_, e) => e).filter((e) => !Number.isNaN(edges.labelX[e]));
      expect(named.map((e) => scene.edgeLabel(e))).toEqual(expect.arrayContaining(lost));
    },
  );

  test("shows many distant readers of one tensor as stubs", () => {
    const lines = ["input x 4 float32", "Relu n0 : x -> v0"];
    for (let i = 1; i <= 12; i++) lines.push(`Add n${i} : v${i - 1} x -> v${i}`);
    const scene = sceneOf([...lines, "output v12"].join("\n"), "none");
    expect(faults(scene)).toEqual([]);
    const stubs = Array.from({ length: scene.edges.count }, (_, e) => e).filter((e) => scene.edges.stub[e] === 1);
    expect(stubs.length).toBe(13); // twelve readers, and the tail at the source
    expect(new Set(stubs.map((e) => scene.edgeLabel(e)))).toEqual(new Set(["x"]));
  });

  test("draws sibling scopes that feed each other, and nodes in a cycle", () => {
    const groups = sceneOf(
      "input x\nRelu a/1 : x -> p\nRelu b/1 : p -> q\nRelu a/2 : q -> r\nRelu b/2 : r -> s\noutput s",
      "none",
    );
    expect(edgesBetween(groups)).toEqual(["a → b", "a → b", "b → a", "b → s", "x → a"]);
    expect(faults(groups)).toEqual([]);
    const nodes = sceneOf("input x\nAdd a : x q -> p\nRelu b : p -> q\nRelu self : me -> me\noutput q", "none");
    expect(faults(nodes)).toEqual([]);
    expect(edgesBetween(nodes)).toContain("Relu → Add");
  });

  test("draws an empty graph, and one with only an input", () => {
    expect(sceneOf("", "none").bounds).toEqual({ x: 0, y: 0, w: 0, h: 0 });
    expect(sceneOf("input x\noutput x", "none").boxes.count).toBe(2);
  });

  test("is the same each time, with an empty and with a filled cache", () => {
    const columns = columnsOf(BERT);
    const cache = createCache();
    const first = buildScene(columns, all(columns), measure, cache);
    const second = buildScene(columns, all(columns), measure, cache);
    const fresh = buildScene(columns, all(columns), measure, createCache());
    expect(second.boxes).toEqual(first.boxes);
    expect(second.edges).toEqual(first.edges);
    expect(fresh.edges).toEqual(first.edges);
  });

  test("gives equal layers the same inner layout", () => {
    const columns = columnsOf(BERT);
    const scene = buildScene(columns, all(columns), measure, createCache());
    const inner = (path: string): number[][] => {
      const outer = scene.boxOf("scope", scopeAt(columns, path));
      const { boxes } = scene;
      return Array.from({ length: boxes.count }, (_, box) => box)
        .filter((box) => boxes.parent[box] === outer)
        .map((box) => [boxes.x[box] - boxes.x[outer], boxes.y[box] - boxes.y[outer], boxes.w[box], boxes.h[box]]);
    };
    expect(inner("enc/layer.1/attention").map(([, y, w, h]) => [y, w, h])).toEqual(
      inner("enc/layer.0/attention").map(([, y, w, h]) => [y, w, h]),
    );
  });

  test("stores the common part of equal layers once, and the nodes of each", () => {
    const columns = columnsOf(BERT);
    const [first, second] = ["enc/layer.0/attention", "enc/layer.1/attention"].map((path) =>
      scopesOf(columns).of(scopeAt(columns, path)),
    );
    expect(second.sink).toBe(first.sink);
    expect(second.kind).toBe(first.kind);
    const names = ({ kind, id }: ScopeGraph): string[] =>
      Array.from(id, (each, item) => columns.nameOf({ kind: kind[item] === BOX.NODE ? "node" : "scope", id: each }));
    expect(names(first).every((name) => name.includes("layer.0"))).toBe(true);
    expect(names(second)).toEqual(names(first).map((name) => name.replace("layer.0", "layer.1")));
  });

  test("returns the distance that a toggled box moved", () => {
    const columns = columnsOf(BERT);
    const cache = createCache();
    const closed = buildScene(columns, new Set([0]), measure, cache);
    const enc = scopeAt(columns, "enc");
    const opened = buildScene(columns, new Set([0, enc]), measure, cache);
    const { dx, dy } = keepInPlace(closed, opened, { kind: "scope", id: enc });
    expect(closed.boxes.x[closed.boxOf("scope", enc)] + dx).toBe(opened.boxes.x[opened.boxOf("scope", enc)]);
    expect(closed.boxes.y[closed.boxOf("scope", enc)] + dy).toBe(opened.boxes.y[opened.boxOf("scope", enc)]);
    expect(keepInPlace(sceneOf("", "none"), opened, { kind: "scope", id: enc })).toEqual({ dx: 0, dy: 0 });
  });

  test("lays out the flow from left to right if asked", () => {
    const scene = sceneOf(BERT, "none", "right");
    expect(scene.bounds.w).toBeGreaterThan(scene.bounds.h);
  });

  test("handles scopes as deep as names can be", () => {
    const path = Array.from({ length: 400 }, (_, depth) => `g${depth}`).join("/");
    const scene = sceneOf(`input x\nRelu ${path}/n : x -> y\noutput y`, "all");
    expect(scene.boxes.count).toBe(403);
    expect(SCOPE_KIND.SCOPE).toBe(1);
  });
});

describe("a scene built after others of the same model", () => {
  const content = (scene: Scene) => ({
    bounds: scene.bounds,
    boxes: scene.boxes,
    edges: scene.edges,
    scopes: scene.scopes,
    labels: Array.from(scene.edges.value, (_, edge) => scene.edgeLabel(edge)),
  });

  test.each([
    ["BERT", BERT],
    ["control flow", CONTROL],
    ["functions", CALLS],
  ])("of %s equals one without the cache", (_, text) => {
    const columns = columnsOf(text);
    const cache = createCache();
    const open = new Set([0]);
    // each step opens or closes one scope, in an order that visits every one several times
    for (let step = 0; step < 6 * columns.scopeCount; step++) {
      const group = (step * 7 + (step >> 2)) % columns.scopeCount;
      if (!open.delete(group)) open.add(group);
      const direction: Direction = step % 5 === 4 ? "right" : "down";
      const scene = buildScene(columns, open, measure, cache, { direction });
      expect(content(scene)).toEqual(content(buildScene(columns, open, measure, createCache(), { direction })));
    }
  });

  test("is correct even after another build was cancelled", () => {
    const columns = columnsOf(BERT);
    const cache = createCache();
    const all = new Set(Array.from({ length: columns.scopeCount }, (_, group) => group));
    const parts = sceneInParts(columns, all, measure, cache);
    const done = Array.from({ length: 4 }, () => parts.next().value as number);
    expect(done).toEqual([...done].sort((a, b) => a - b));
    expect(done.every((part) => part >= 0 && part < 1)).toBe(true);
    const few = new Set([0, scopeAt(columns, "enc")]);
    for (const open of [few, all]) {
      expect(content(buildScene(columns, open, measure, cache))).toEqual(
        content(buildScene(columns, open, measure, createCache())),
      );
    }
  });

  test("stores the boxes and edges of each scope consecutively", () => {
    const columns = columnsOf(BERT);
    const all = new Set(Array.from({ length: columns.scopeCount }, (_, group) => group));
    const { boxes, edges, scopes } = buildScene(columns, all, measure, createCache());
    expect(scopes.count).toBe(1 + boxes.kind.filter((kind) => kind === BOX.OPEN).length);
    for (let scope = 0; scope < scopes.count; scope++) {
      const outer = scopes.box[scope];
      if (outer >= 0) expect(scopes.inside[outer]).toBe(scope);
      expect(boxes.parent.slice(scopes.boxPtr[scope], scopes.boxPtr[scope + 1]).every((box) => box === outer)).toBe(
        true,
      );
      expect(edges.scope.slice(scopes.edgePtr[scope], scopes.edgePtr[scope + 1]).every((box) => box === outer)).toBe(
        true,
      );
    }
    expect(scopes.boxPtr[scopes.count]).toBe(boxes.count);
    expect(scopes.edgePtr[scopes.count]).toBe(edges.count);
  });
});
