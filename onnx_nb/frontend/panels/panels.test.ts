// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import type { Target } from "../protocol/columns.ts";
import { columnsOf } from "../protocol/testing.ts";
import { selectionOf } from "../scene/state.ts";
import { createExtractBar } from "./extractbar.ts";
import { createInspector } from "./inspector.ts";
import { createLegend } from "./legend.ts";
import { createSummary, type SummaryData } from "./summary.ts";
import { buttonIn, FakeHost, FakeView, furnish, MODEL, settle, stop } from "./testing.ts";
import { createToolbar } from "./toolbar.ts";
import { Tree } from "./tree.ts";

let root: HTMLElement;
let host: FakeHost;
let view: FakeView;
const at = (kind: Target["kind"], name: string): Target => MODEL.find(name, kind) as Target;

beforeEach(() => {
  furnish();
  root = document.createElement("div");
  document.body.replaceChildren(root);
  host = new FakeHost();
  view = new FakeView(host, MODEL, [0, at("scope", "enc").id]);
});

describe("the tree", () => {
  const tree = (): void => {
    view.show(new Tree(view), root);
  };
  const rows = (): string[] =>
    [...root.querySelectorAll<HTMLElement>("[role=treeitem]")].map(
      ({ dataset, ariaLevel }) => `${ariaLevel} ${dataset.scope ?? dataset.node ?? dataset.tensor}`,
    );
  const row = (selector: string): HTMLElement => root.querySelector(selector) as HTMLElement;
  const key = (name: string): void => {
    row("[role=tree]").dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  };

  it("lists scopes, nodes and tensors in file order, with their levels", async () => {
    tree();
    await settle();
    expect(rows()).toEqual([
      "1 x",
      "1 enc",
      "2 enc/mm",
      "3 p",
      "2 enc/split",
      "3 left",
      "3 right",
      "1 sum",
      "2 q",
      "1 act",
      "2 y",
    ]);
    expect(row("[data-scope=enc]").getAttribute("aria-expanded")).toBe("true");
    expect(row("[data-node=sum]").getAttribute("aria-posinset")).toBe("3");
    expect(row("[data-node=sum]").getAttribute("aria-setsize")).toBe("4");
  });

  it("selects and reveals an activated row, as a click on the canvas does", async () => {
    tree();
    await settle();
    row("[data-tensor=left]").click();
    expect(view.actions).toEqual([
      { type: "select", target: at("tensor", "left") },
      { type: "reveal", target: at("tensor", "left") },
    ]);
    await settle();
    expect(row("[data-tensor=left]").getAttribute("aria-selected")).toBe("true");
    expect(row("[role=tree]").getAttribute("aria-activedescendant")).toBe(row("[data-tensor=left]").id);
  });

  it("moves, opens and closes by keys", async () => {
    tree();
    await settle();
    row("[role=tree]").focus();
    key("ArrowDown");
    key("Enter");
    expect(view.now.selection).toEqual(at("scope", "enc"));
    key("ArrowLeft");
    expect(view.now.open.has(at("scope", "enc").id)).toBe(false);
    await settle();
    expect(rows()).toEqual(["1 x", "1 enc", "1 sum", "2 q", "1 act", "2 y"]);
    key("ArrowRight");
    await settle();
    key("End");
    key("ArrowLeft"); // from the tensor to its node
    key("ArrowLeft"); // hides the node's tensors
    expect(rows().at(-1)).toBe("1 act");
  });

  it("keeps only rows near the view in the page", async () => {
    const lines = Array.from({ length: 5000 }, (_, k) => `Relu n${k} : t${k} -> t${k + 1}`);
    const columns = columnsOf(`input t0 1 float32\n${lines.join("\n")}`);
    view = new FakeView(host, columns, [0]);
    tree();
    await settle();
    expect(rows().length).toBeLessThan(150);
    view.dispatch({ type: "select", target: columns.find("n4000", "node") as Target });
    await settle();
    expect(row("[data-node=n4000]").getAttribute("aria-selected")).toBe("true");
  });
});

describe("the inspector", () => {
  let inspector: ReturnType<typeof createInspector>;
  const inspect = (target: Target | null): void => {
    view.now = { ...view.now, selection: target };
    inspector = view.show(createInspector(view), root);
  };

  it("shows a tensor with its producer, its readers and the two buttons", () => {
    inspect(at("tensor", "p"));
    expect(root.textContent).toContain("batch×8");
    expect(root.textContent).toContain("MatMul");
    expect(root.textContent).toContain("Split");
    buttonIn(root, "Output").click();
    expect(view.now.boundary.outputs).toEqual([at("tensor", "p").id]);
    expect(buttonIn(root, "Output").getAttribute("aria-pressed")).toBe("true");
    expect(buttonIn(root, "Input").getAttribute("aria-pressed")).toBe("false");
  });

  it("steps through parallel tensors, and keeps the focus", async () => {
    inspect(at("tensor", "left"));
    expect(root.textContent).toContain("1 of 2 parallel");
    const onwards = [...root.querySelectorAll("button")].find((each) => each.textContent === "›");
    expect(onwards?.dataset.go).toBe(`tensor ${at("tensor", "right").id}`);
    onwards?.focus();
    inspector.update({ ...view.now, selection: at("tensor", "right") });
    await settle(1);
    expect(root.textContent).toContain("2 of 2 parallel");
    expect(document.activeElement?.textContent).toBe("›");
    inspector.update({ ...view.now, selection: at("tensor", "p") });
    await settle(1);
    expect(root.textContent).not.toContain("parallel tensors");
    expect(document.activeElement).toBe(inspector.element);
  });

  it("shows a node with formal names of its inputs and facts from the kernel", async () => {
    host.inspection = {
      rows: [["time", "3 ms"]],
      attributes: [
        ["axis", "1", "given"],
        ["keepdims", "1", "default"],
        ["noop", "0", "given default"],
      ],
      documentation: "Adds <b>two</b> tensors.",
      source: "model.py:12",
    };
    inspect(at("node", "enc/mm"));
    await settle(5);
    for (const text of [
      "A p".slice(0, 1),
      "W",
      "3 ms",
      "keepdims 1 default",
      "noop 0 same as default",
      "Adds <b>two</b> tensors.",
      "model.py:12",
    ]) {
      expect(root.textContent).toContain(text);
    }
    expect(root.querySelector("b")).toBeNull();
  });

  it("needs only the columns if there is no kernel", () => {
    host.live = false;
    inspect(at("node", "sum"));
    expect(root.textContent).toContain("axis 1");
  });

  it("shows the content of a scope and expands it", () => {
    inspect(at("scope", "enc"));
    expect(root.textContent).toContain("MatMul  1");
    buttonIn(root, "Collapse").click();
    expect(buttonIn(root, "Expand")).toBeTruthy();
    buttonIn(root, "Select all in it").click();
    expect(view.now.open.has(at("scope", "enc").id)).toBe(true);
    expect(selectionOf(view.now)).toEqual([at("node", "enc/mm"), at("node", "enc/split")]);
  });

  it("shows the model while nothing is selected", () => {
    inspect(null);
    expect(root.querySelector("h4")?.textContent).toBe("Model"); // its name is in the bar
    expect(root.textContent).toContain("opset");
  });
});

describe("the bar of an extraction", () => {
  it("shows the next action at every step", () => {
    view.show(
      createExtractBar(view, () => undefined),
      root,
    );
    expect(root.textContent).toContain("select a tensor");
    view.dispatch({ type: "input", value: at("tensor", "p").id });
    expect(root.textContent).toContain("where it should end");
    view.dispatch({ type: "output", value: at("tensor", "q").id });
    expect(buttonIn(root, "Extract").disabled).toBe(false);
    root.querySelector<HTMLButtonElement>("[aria-label='Remove input p']")?.click();
    expect(view.now.boundary.inputs).toEqual([]);
    buttonIn(root, "Undo").click();
    expect(view.now.boundary.inputs).toEqual([at("tensor", "p").id]);
    buttonIn(root, "Clear").click();
    expect(view.now.boundary).toEqual({ inputs: [], outputs: [] });
  });
});

describe("the search", () => {
  it("lists hits with their count and steps through them", async () => {
    const actions = { help: () => undefined, drawer: () => undefined, leaveSearch: () => undefined };
    view.show(createToolbar(view, actions), root);
    const input = root.querySelector("input") as HTMLInputElement;
    const key = (name: string, shiftKey = false): void => {
      input.dispatchEvent(new KeyboardEvent("keydown", { key: name, shiftKey, bubbles: true, cancelable: true }));
    };
    input.focus();
    input.value = "enc";
    input.dispatchEvent(new Event("input"));
    await settle(120);
    expect([...root.querySelectorAll("[role=option]")]).toHaveLength(3);
    expect(root.textContent).toContain("1 of 3");
    key("Enter");
    expect(view.now.selection).toEqual(at("scope", "enc"));
    key("Enter");
    expect(view.now.selection).toEqual(at("node", "enc/mm"));
    key("Enter", true);
    expect(view.actions.at(-1)).toEqual({ type: "reveal", target: at("scope", "enc") });
    key("Escape");
    expect(view.now.hits).toEqual([]);
  });
});

describe("the legend", () => {
  it("explains only the colors in this model", () => {
    const { element } = view.show(
      createLegend(view, () => false),
      root,
    );
    expect([...element.querySelectorAll(".onnx-nb-swatched")].map((each) => each.textContent)).toEqual([
      "linear",
      "activation",
      "arithmetic",
      "shape",
    ]);
  });
});

describe("the summary", () => {
  const data: SummaryData = {
    name: "bert.onnx",
    path: "/m/bert.onnx",
    ir_version: 8,
    producer: "pytorch 2.13.0",
    opsets: [
      ["", 18],
      ["com.microsoft", 1],
    ],
    inputs: [["input_ids", "int64", "batch×seq"]],
    outputs: [["y", "float32", ""]],
    op_counts: Array.from({ length: 40 }, (_, k) => [`Op${k}`, "", "linear", 40 - k] as const),
    nodes: 442,
    parameters: 109_482_240,
    nbytes: 437_928_960,
    by_dtype: [["float32", 109_482_240, 437_928_960]],
    largest: [["w", "float32", "30522×768", 93_763_584]],
    metadata: [["note", "<script>alert(1)</script>"]],
    functions: [],
    doc: "",
    faults: [["cycle", "nodes a, b"]],
  };

  it("shows the model in one line and the rest in tables", () => {
    createSummary(root, data, {}, stop.signal);
    expect(root.querySelector("header")?.textContent).toBe(
      "bert.onnx442 nodes · 109 M parameters · 438 MB · opset 18, com.microsoft 1 · IR 8 · pytorch 2.13.0Details",
    );
    expect(root.textContent).toContain("<script>alert(1)</script>");
    expect(root.querySelector("script")).toBeNull();
    expect(root.textContent).toContain("nodes a, b");
    expect(root.textContent).not.toContain("functions");
  });

  it("shows the first rows of a long table and the rest on request", () => {
    createSummary(root, data, {}, stop.signal);
    expect(root.textContent).not.toContain("Op39");
    buttonIn(root, "show all 40").click();
    expect(root.textContent).toContain("Op39");
  });

  it("is one line that opens on request", () => {
    createSummary(root, data, { expanded: false }, stop.signal);
    const tables = root.querySelector<HTMLElement>(".onnx-nb-cards");
    expect(tables?.hidden).toBe(true);
    buttonIn(root, "Details").click();
    expect(tables?.hidden).toBe(false);
    expect(buttonIn(root, "Details").getAttribute("aria-expanded")).toBe("true");
  });

  it("draws bars in proportion", () => {
    createSummary(root, data, {}, stop.signal);
    const bars = [...root.querySelectorAll<HTMLElement>(".onnx-nb-hbar i")].slice(0, 2).map((bar) => bar.style.width);
    expect(bars).toEqual(["100%", "97.5%"]);
  });
});
