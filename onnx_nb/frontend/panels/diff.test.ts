// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import type { Pack } from "../protocol/codec.ts";
import type { Columns, Target } from "../protocol/columns.ts";
import { PairData, wordsOf } from "../protocol/diff.ts";
import { columnsOf } from "../protocol/testing.ts";
import { boxOf } from "../render/highlights.ts";
import { DiffStatuses } from "../scene/diffstatus.ts";
import { BOX } from "../scene/scene.ts";
import { createDiff } from "./diff.ts";
import type { GraphPair } from "./graphpair.ts";
import { FakeHost, furnish, settle, stop } from "./testing.ts";

const LEFT = columnsOf(
  `
  input x 8 float32
  Neg enc/neg : x -> a
  Relu enc/relu : a -> b
  Abs abs : b -> y
  output y 8 float32
`,
  "left.onnx",
);
/** the Relu is gone, a Tanh was inserted, and the Neg has another attribute */
const RIGHT = columnsOf(
  `
  input x 8 float32
  Neg enc/neg : x -> a | way 2
  Tanh enc/tanh : a -> t
  Exp enc/exp : t -> b
  Abs abs : b -> y
  output y 8 float32
`,
  "right.onnx",
);

const id = (columns: Columns, kind: Target["kind"], name: string): number => columns.find(name, kind)?.id ?? -1;

function packed(): Pack {
  const nodes = [
    ["enc/neg", "enc/neg"],
    ["abs", "abs"],
  ];
  const values = ["x", "a", "b", "y"].map((name) => [name, name]);
  const scopes = ["", "enc"].map((name) => [name, name]);
  const arrays = new Map();
  const there = (from: Columns, to: Columns, kind: Target["kind"], count: number, pairs: string[][]): Int32Array => {
    const found = new Int32Array(count).fill(-1);
    for (const [name] of pairs) {
      const own = kind === "scope" && name === "" ? 0 : id(from, kind, name);
      found[own] = kind === "scope" && name === "" ? 0 : id(to, kind, name);
    }
    return found;
  };
  for (const [side, from, to] of [
    [0, LEFT, RIGHT],
    [1, RIGHT, LEFT],
  ] as const) {
    const node = there(from, to, "node", from.nodeCount, nodes);
    arrays.set(`node_${side}`, node);
    arrays.set(`value_${side}`, there(from, to, "tensor", from.valueName.length, values));
    arrays.set(`scope_${side}`, there(from, to, "scope", from.scopeCount, scopes));
    const state = Uint8Array.from(node, (n) => (n < 0 ? 1 : 0));
    state[id(from, "node", "enc/neg")] = 2;
    arrays.set(`node_state_${side}`, state);
    arrays.set(`value_state_${side}`, new Uint8Array(from.valueName.length));
    const only = state.filter((s) => s === 1).length;
    arrays.set(`scope_only_${side}`, new Int32Array(from.scopeCount).fill(only));
    arrays.set(`scope_changed_${side}`, new Int32Array(from.scopeCount).fill(1));
    arrays.set(`scope_folded_${side}`, new Int32Array(from.scopeCount));
  }
  const row = (what: string, kind: string, name: string, op: string, n: number, m: number, ...words: string[]) => [
    what,
    kind,
    name,
    op,
    words[0] ?? "",
    words[1] ?? "",
    words[2] ?? "",
    "name",
    n,
    m,
    -1,
    -1,
  ];
  const changes = [
    row(
      "changed",
      "attribute",
      "enc/neg",
      "Neg",
      id(LEFT, "node", "enc/neg"),
      id(RIGHT, "node", "enc/neg"),
      "way",
      "1",
      "2",
    ),
    row("removed", "node", "enc/relu", "Relu", id(LEFT, "node", "enc/relu"), -1),
    row("added", "node", "enc/tanh", "Tanh", -1, id(RIGHT, "node", "enc/tanh")),
    row("added", "node", "enc/exp", "Exp", -1, id(RIGHT, "node", "enc/exp")),
  ];
  const counts = { changed: 1, removed: 1, added: 2 };
  return { meta: { changes, total: 4, counts, message: "" } as never, arrays };
}

let root: HTMLElement;
let told: [number, string[]][];

beforeEach(() => {
  furnish();
  document.body.replaceChildren();
  root = document.createElement("div");
  document.body.append(root);
  told = [];
});

function show(): GraphPair {
  return createDiff(
    root,
    [LEFT, RIGHT],
    new PairData(packed()),
    {
      graphs: [new FakeHost(), new FakeHost()],
      onSelect: (side, selection) => told.push([side, selection.map(({ name }) => name)]),
      onSync: () => undefined,
    },
    { height: 400, synced: true, names: ["left.onnx", "right.onnx"] },
    stop.signal,
  );
}
const rows = (): HTMLElement[] => [...root.querySelectorAll<HTMLElement>(".onnx-nb-change")];
const press = (key: string): void => {
  root
    .querySelector(".onnx-nb-canvas")
    ?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
};
const names = (pair: GraphPair): (string | null)[] =>
  pair.views.map(({ state, columns }) => (state.selection === null ? null : columns.nameOf(state.selection)));

describe("a pair of graphs", () => {
  it("is drawn when both graphs are, and lists every difference", async () => {
    show();
    await settle();
    expect(root.dataset.state).toBe("drawn");
    expect(rows().map((row) => row.textContent)).toEqual([
      "~Negenc/negway: 1 → 2",
      "−Reluenc/reluremoved",
      "+Tanhenc/tanhadded",
      "+Expenc/expadded",
    ]);
  });

  it("selects the counterpart, or shows that there is none", async () => {
    const pair = show();
    await settle();
    pair.views[0].dispatch({ type: "select", target: { kind: "node", id: id(LEFT, "node", "abs") } });
    expect(names(pair)).toEqual(["abs", "abs"]);
    pair.views[1].dispatch({ type: "select", target: { kind: "node", id: id(RIGHT, "node", "enc/exp") } });
    expect(names(pair)).toEqual([null, "enc/exp"]);
    expect(root.querySelector(".onnx-nb-pair-note")?.textContent).toBe("no such node: Exp");
    expect(told).toEqual([
      [0, ["abs"]],
      [1, ["enc/exp"]],
    ]);
  });

  it("opens and closes scopes on both sides, or on one side if not synchronized", async () => {
    const pair = show();
    await settle();
    const [left, right] = [id(LEFT, "scope", "enc"), id(RIGHT, "scope", "enc")];
    const open = (): boolean[] => [pair.views[0].state.open.has(left), pair.views[1].state.open.has(right)];
    expect(open()).toEqual([true, true]);
    pair.views[1].dispatch({ type: "toggle", scope: right });
    expect(open()).toEqual([false, false]);
    pair.views[0].dispatch({ type: "toggle", scope: left });
    expect(open()).toEqual([true, true]);
    pair.setSync(false);
    pair.views[0].dispatch({ type: "toggle", scope: left });
    expect(open()).toEqual([false, true]);
  });

  it("steps through the differences by n and p, wrapping at the ends", async () => {
    const pair = show();
    await settle();
    for (const expected of [
      ["enc/neg", "enc/neg"],
      ["enc/relu", null],
      [null, "enc/tanh"],
    ]) {
      press("n");
      expect(names(pair)).toEqual(expected);
    }
    // in the middle of the picture, not just in it
    await settle(500);
    const tanh = { kind: "node", id: id(RIGHT, "node", "enc/tanh") } as const;
    const { camera, view } = pair.views[1].viewport.position;
    const { x, y, w, h } = pair.views[1].viewport.scene?.boxes ?? expect.fail("nothing is drawn");
    const box = boxOf(pair.views[1].viewport.scene ?? expect.fail(), RIGHT, tanh);
    expect((x[box] + w[box] / 2 - camera.x) * camera.k).toBeCloseTo(view.w / 2, 0);
    expect((y[box] + h[box] / 2 - camera.y) * camera.k).toBeCloseTo(view.h / 2, 0);
    press("p");
    press("p");
    press("p");
    expect(names(pair)).toEqual([null, "enc/exp"]);
    expect(root.querySelector(".onnx-nb-pair-count")?.textContent).toBe("4 of 4");
  });

  it("lists its keys in addition to those of each graph", () => {
    show();
    const [graph] = root.querySelectorAll(".onnx-nb-canvas");
    graph?.dispatchEvent(new KeyboardEvent("keydown", { key: "?", bubbles: true, cancelable: true }));
    expect(root.querySelector("[role=dialog]")?.textContent).toContain("the previous difference");
  });

  it("lists only differences that match the chips and the filter", async () => {
    show();
    await settle();
    const chip = [...root.querySelectorAll<HTMLElement>(".onnx-nb-chip")].find((each) =>
      each.textContent?.includes("added"),
    );
    chip?.click();
    expect(rows()).toHaveLength(2);
    const field = root.querySelector(".onnx-nb-pair-filter") as HTMLInputElement;
    field.value = "relu";
    field.dispatchEvent(new Event("input"));
    expect(rows().map((row) => row.querySelector("b")?.textContent)).toEqual(["Relu"]);
    field.value = "gelu";
    field.dispatchEvent(new Event("input"));
    expect(root.querySelector(".onnx-nb-changes")?.textContent).toBe("No difference fits the filter.");
  });

  it("shows the counterpart of the selection in the inspector", async () => {
    const pair = show();
    await settle();
    pair.views[0].dispatch({ type: "select", target: { kind: "node", id: id(LEFT, "node", "enc/neg") } });
    const texts = [...root.querySelectorAll(".onnx-nb-compared")].map((each) => each.textContent);
    expect(texts).toEqual([
      "in candidateenc/negdiffersway: 1 → 2matched byname",
      "in referenceenc/negdiffersway: 1 → 2matched byname",
    ]);
  });

  it("searches both graphs", async () => {
    const pair = show();
    await settle();
    pair.views[0].dispatch({ type: "search", text: "op:Abs", hits: [] });
    expect(pair.views[1].state.hits).toHaveLength(1);
  });
});

describe("the statuses of boxes", () => {
  it("are summed over closed scopes", () => {
    const statuses = new DiffStatuses(new PairData(packed()).statuses(1));
    const enc = id(RIGHT, "scope", "enc");
    expect(statuses.of(BOX.SCOPE, enc)).toBe("changed");
    expect(statuses.say(BOX.SCOPE, enc)).toEqual({ text: "2 added, 1 changed", short: "+2 ~1" });
    expect(statuses.of(BOX.NODE, id(RIGHT, "node", "enc/exp"))).toBe("added");
    expect(statuses.of(BOX.NODE, id(RIGHT, "node", "abs"))).toBeNull();
  });

  it("are described in words", () => {
    const data = new PairData(packed());
    expect(data.changes.map(wordsOf)).toEqual(["way: 1 → 2", "removed", "added", "added"]);
    const exp: Target = { kind: "node", id: id(RIGHT, "node", "enc/exp") };
    expect(data.before(1, exp, RIGHT)).toEqual({ kind: "tensor", id: id(LEFT, "tensor", "a") });
  });
});
