// @vitest-environment jsdom
import { beforeEach, expect, it } from "vitest";
import type { Pack } from "../protocol/codec.ts";
import type { Columns, Target } from "../protocol/columns.ts";
import { type Account, SimplificationData } from "../protocol/simplification.ts";
import { columnsOf, packedOf } from "../protocol/testing.ts";
import type { SaveReply } from "../protocol/wire.ts";
import { Simplification, type SimplificationHost } from "./simplification.ts";
import { buttonIn, FakeHost, furnish, settle, stop } from "./testing.ts";

const LEFT = columnsOf(
  `
  input x 8 float32
  weight w 8 float32
  Identity stem/copy : x -> a
  Mul stem/mul : a w -> b
  Add stem/add : b w -> c
  Neg neg : c -> y
  output y 8 float32
`,
  "model.onnx",
);
const RIGHT = columnsOf(
  `
  input x 8 float32
  weight w 8 float32
  Gemm stem/gemm : x w -> c
  Neg neg : c -> y
  output y 8 float32
`,
  "model.onnx",
);
const id = (columns: Columns, kind: Target["kind"], name: string): number => columns.find(name, kind)?.id ?? -1;
const node = (columns: Columns, name: string): number => id(columns, "node", name);

function packed(): Pack {
  const arrays = new Map<string, Int32Array | Uint8Array | Uint32Array>();
  const both = [LEFT, RIGHT] as const;
  for (const side of [0, 1] as const) {
    const [from, to] = [both[side], both[side === 0 ? 1 : 0]];
    const nodes = new Int32Array(from.nodeCount).fill(-1);
    nodes[node(from, "neg")] = node(to, "neg");
    const values = new Int32Array(from.valueName.length).fill(-1);
    for (const name of ["x", "w", "c", "y"]) values[id(from, "tensor", name)] = id(to, "tensor", name);
    const state = Uint8Array.from(nodes, (n) => (n < 0 ? 1 : 0));
    arrays.set(`node_${side}`, nodes);
    arrays.set(`value_${side}`, values);
    arrays.set(`scope_${side}`, new Int32Array(from.scopeCount).fill(-1));
    arrays.set(`node_state_${side}`, state);
    arrays.set(`value_state_${side}`, new Uint8Array(from.valueName.length));
    for (const what of ["only", "changed", "folded"]) {
      arrays.set(`scope_${what}_${side}`, new Int32Array(from.scopeCount));
    }
  }
  arrays.set("targets_0", Int32Array.of(node(LEFT, "stem/copy"), node(LEFT, "stem/mul"), node(LEFT, "stem/add")));
  arrays.set("targets_end_0", Int32Array.of(0, 1, 3));
  arrays.set("targets_1", Int32Array.of(-1 - id(RIGHT, "tensor", "x"), node(RIGHT, "stem/gemm")));
  arrays.set("targets_end_1", Int32Array.of(0, 1, 2));
  const left = new Int32Array(LEFT.nodeCount).fill(-1);
  left[node(LEFT, "stem/copy")] = 0;
  left[node(LEFT, "stem/mul")] = left[node(LEFT, "stem/add")] = 1;
  const right = new Int32Array(RIGHT.nodeCount).fill(-1);
  right[node(RIGHT, "stem/gemm")] = 1;
  arrays.set("change_0", left);
  arrays.set("change_1", right);
  arrays.set("rule", Uint32Array.of(0, 1));
  const meta = {
    changes: [],
    total: 0,
    counts: {},
    message: "",
    made: "new",
    rules: [
      ["eliminate_identity", "Leave out Identity nodes", 1],
      ["fuse_matmul_add_bias", "Make a Gemm of both", 1],
    ],
    nodes: [
      [4, 3, 0],
      [2, 1, 0],
    ],
  };
  const texts = {
    what: ["Identity → nothing", "Mul + Add → Gemm"],
    why: ["it copies", "both are linear"],
    key: ["a", "c"],
  };
  return packedOf(arrays, texts, meta);
}

const ACCOUNT: Account = {
  name: "model.onnx",
  verdict: "verified",
  said: "1 output agrees.",
  call: "onnx_nb.simplify(model)",
  nodes: [4, 2],
  bytes: [32, 32],
  operators: [["Neg", 1, 1]],
  left: [["big", "Expand", 5_000_000, "more than the budget"]],
  left_count: 1,
  skipped: [],
  outputs: [],
  steps: [],
  path: "model.simplified.onnx",
};

class FakeKernel implements SimplificationHost {
  live = true;
  readonly reason = "The kernel does not answer.";
  readonly asked: (readonly string[])[] = [];
  readonly keys: string[] = [];
  readonly saves: [path: string, replace: boolean][] = [];
  readonly loaded: number[] = [];
  exists = false;
  answer: () => Promise<string> = () => new Promise(() => undefined);
  round: AbortSignal | null = null;

  load(step: number): ReturnType<SimplificationHost["load"]> {
    this.loaded.push(step);
    return Promise.resolve({ columns: [LEFT, RIGHT], data: new SimplificationData(packed()) });
  }
  graph(): FakeHost {
    return new FakeHost();
  }
  simplifyAgain(skipped: readonly string[], _told: unknown, signal: AbortSignal): Promise<string> {
    this.asked.push(skipped);
    this.round = signal;
    return this.answer();
  }
  save(path: string, replace: boolean): Promise<SaveReply> {
    this.saves.push([path, replace]);
    return Promise.resolve({ path: `/home/${path}`, exists: this.exists && !replace, size: "1 kB" });
  }
  onChoose(key: string): void {
    this.keys.push(key);
  }
  onStep(): void {}
  onSync(): void {}
}

let root: HTMLElement;
let kernel: FakeKernel;

beforeEach(() => {
  furnish();
  root = document.createElement("div");
  document.body.replaceChildren(root);
  kernel = new FakeKernel();
});

async function show(account: Partial<Account> = {}): Promise<Simplification> {
  const options = { height: 300, step: 0, isSynced: true, changeKey: "" };
  const view = new Simplification(root, { ...ACCOUNT, ...account }, kernel, options, stop.signal);
  for (let at = 0; at < 100 && root.dataset.state !== "drawn"; at++) await settle(20);
  expect(root.dataset.state).toBe("drawn");
  return view;
}
const row = (at: number): HTMLElement => root.querySelector(`[aria-label=Changes] [data-row="${at}"]`) as HTMLElement;
const chosen = (): string | undefined =>
  root.querySelector<HTMLElement>('[data-row][aria-selected="true"]')?.dataset.row;
const selected = (view: Simplification, side: 0 | 1): string[] => {
  const graph = view.pair?.views[side];
  const { selection, others } = graph?.state ?? { selection: null, others: [] };
  return [...others, ...(selection === null ? [] : [selection])]
    .map((each) => graph?.columns.nameOf(each) ?? "")
    .sort();
};
const press = (key: string, on: Element): void => {
  on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
};

it("shows a change in both graphs by click and by keys, and finds the change of a box", async () => {
  const view = await show();
  row(1).click();
  expect(selected(view, 0)).toEqual(["stem/add", "stem/mul"]);
  expect(selected(view, 1)).toEqual(["stem/gemm"]);
  expect(root.querySelector("[aria-label=Change]")?.textContent).toContain("both are linear");
  expect(kernel.keys).toEqual(["fuse_matmul_add_bias: c"]);
  press("ArrowUp", root.querySelector("[role=grid][aria-label=Changes]") as Element);
  expect(selected(view, 0)).toEqual(["stem/copy"]);
  expect(selected(view, 1)).toEqual(["x"]);
  press("n", row(0));
  expect(chosen()).toBe("1");
  view.pair?.views[0].dispatch({ type: "select", target: { kind: "node", id: node(LEFT, "stem/copy") } });
  expect(chosen()).toBe("0");
  expect(selected(view, 0)).toEqual(["stem/copy"]);
});

it("undoes a change and a rule, and redoes them", async () => {
  const view = await show();
  kernel.answer = () => Promise.resolve("done");
  row(0).click();
  buttonIn(root, "Undo this change").click();
  await settle();
  buttonIn(root, "Undo the rule (1)").click();
  await settle();
  view.show({ ...ACCOUNT, skipped: ["eliminate_identity: a", "fuse_matmul_add_bias"] }, 0);
  await settle();
  buttonIn(root, "↻ eliminate_identity: a").click();
  await settle();
  buttonIn(root, "Redo all").click();
  await settle();
  expect(kernel.asked).toEqual([["eliminate_identity: a"], ["eliminate_identity"], ["fuse_matmul_add_bias"], []]);
});

it("can be stopped, reports an error, and requests nothing twice", async () => {
  await show();
  row(0).click();
  const undo = buttonIn(root, "Undo this change");
  press("u", row(0));
  expect(undo.disabled).toBe(true);
  press("u", row(0));
  expect(kernel.asked.length).toBe(1);
  await settle(200);
  buttonIn(root, "Cancel").click();
  expect(kernel.round?.aborted).toBe(true);
  expect(undo.disabled).toBe(false);
  kernel.answer = () => Promise.reject(new Error("the disk is full."));
  undo.click();
  await settle();
  expect(root.querySelector("[role=alert]")?.textContent).toContain("the disk is full.");
  expect(undo.disabled).toBe(false);
});

it("asks before it overwrites a file", async () => {
  await show();
  buttonIn(root, "Save…").click();
  kernel.exists = true;
  const group = root.querySelector('[aria-label="Save the model"]') as HTMLElement;
  buttonIn(group, "Save").click();
  await settle();
  expect(group.textContent).toContain("The file /home/model.simplified.onnx already exists.");
  buttonIn(group, "Replace").click();
  await settle();
  expect(kernel.saves).toEqual([
    ["model.simplified.onnx", false],
    ["model.simplified.onnx", true],
  ]);
  expect(group.textContent).toContain("Saved 1 kB");
});

it("has a tab for each step, selected by arrow keys", async () => {
  await show({
    steps: [
      ["original", 4, 0],
      ["fold constants", 3, 1],
      ["rewrite", 2, 2],
    ],
  });
  const tabs = (): HTMLElement[] => [...root.querySelectorAll<HTMLElement>("[role=tab]")];
  expect(tabs().map((tab) => tab.textContent)).toEqual(["All", "1. fold constants", "2. rewrite"]);
  tabs()[1].click();
  await settle();
  expect(root.textContent).toContain("after fold constants");
  press("ArrowRight", tabs()[1]);
  await settle();
  expect(kernel.loaded).toEqual([0, 1, 2]);
  expect(tabs()[2].getAttribute("aria-selected")).toBe("true");
});

it("shows its verdict, the remaining nodes, and the actions that need a kernel", async () => {
  const view = await show({ verdict: "wrong", outputs: [["y", "0.5", 3, 8]] });
  expect(root.querySelector(".onnx-nb-verdict")?.textContent).toBe("✕ Not the same");
  expect(root.textContent).toContain("y: up to 0.5 in 3 of 8");
  expect(root.textContent).toContain("3 removed");
  expect(root.textContent).toContain("1 new");
  buttonIn(root, "Left as it is (1)").click();
  expect(root.querySelector('[aria-label="Left as it is"]')?.textContent).toContain("more than the budget");
  row(0).click();
  view.setLive(false);
  expect(buttonIn(root, "Undo this change").disabled).toBe(true);
  expect(buttonIn(root, "Save…").disabled).toBe(true);
});
