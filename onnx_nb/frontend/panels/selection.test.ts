// @vitest-environment jsdom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Target } from "../protocol/columns.ts";
import { selectionOf } from "../scene/state.ts";
import { GraphView } from "./graphview.ts";
import { buttonIn, FakeHost, furnish, MODEL, packOf, settle, stop } from "./testing.ts";

let root: HTMLElement;
let host: FakeHost;
let view: GraphView;
let copied: string[];

const target = (kind: Target["kind"], name: string): Target => MODEL.find(name, kind) as Target;
const canvas = (): HTMLCanvasElement => root.querySelector(".onnx-nb-canvas") as HTMLCanvasElement;
const names = (): string[] => selectionOf(view.state).map((each) => MODEL.nameOf(each));
const pointer = (type: string, x: number, y: number, init: MouseEventInit = {}): void => {
  canvas().dispatchEvent(new MouseEvent(type, { clientX: x, clientY: y, button: 0, bubbles: true, ...init }));
};
const click = (name: string, init: MouseEventInit = {}): void => {
  const { x, y } = view.locate(name) ?? { x: 0, y: 0 };
  pointer("pointerdown", x, y, init);
  pointer("pointerup", x, y, init);
};
const drag = (init: MouseEventInit = {}): void => {
  pointer("pointerdown", 1, 1, init);
  pointer("pointermove", 500, 300, init);
  pointer("pointermove", 999, 599, init);
};
const press = (key: string, init: KeyboardEventInit = {}): boolean => {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...init });
  canvas().dispatchEvent(event);
  return event.defaultPrevented;
};
const panel = (): HTMLElement => root.querySelector("[aria-label=Selection]") as HTMLElement;

beforeEach(async () => {
  furnish();
  document.body.replaceChildren();
  root = document.createElement("div");
  document.body.append(root);
  host = new FakeHost();
  copied = [];
  Object.assign(navigator, { clipboard: { writeText: async (text: string) => void copied.push(text) } });
  view = new GraphView(root, MODEL, host, { maxBlockingMs: Number.POSITIVE_INFINITY }, stop.signal);
  await vi.waitFor(() => expect(root.dataset.state).toBe("drawn"), { timeout: 20_000 });
});

describe("a selection of many", () => {
  it("grows and shrinks by Ctrl+click, and a plain click starts anew", () => {
    click("sum");
    click("act", { ctrlKey: true });
    click("left", { metaKey: true });
    expect(names()).toEqual(["sum", "act", "left"]);
    expect(host.patches.at(-1)?.selection?.map(({ name }) => name)).toEqual(["sum", "act", "left"]);
    click("act", { shiftKey: true });
    expect(names()).toEqual(["sum", "left"]);
    click("left", { ctrlKey: true });
    expect(names()).toEqual(["sum"]);
    click("act");
    expect(names()).toEqual(["act"]);
  });

  it("takes every box in a rectangle, with Shift or in its mode; otherwise dragging moves the picture", () => {
    // a tensor that was selected before is not one of the boxes
    view.dispatch({ type: "select", target: { kind: "tensor", id: view.columns.graphInputs[0] } });
    drag({ shiftKey: true });
    expect(root.querySelector<HTMLElement>(".onnx-nb-rubberband")?.hidden).toBe(false);
    pointer("pointerup", 999, 599, { shiftKey: true });
    expect(root.querySelector<HTMLElement>(".onnx-nb-rubberband")?.hidden).toBe(true);
    expect(names().sort()).toEqual(["act", "enc/mm", "enc/split", "sum"]);
    press("Escape");
    const before = view.locate("sum");
    drag();
    pointer("pointerup", 999, 599);
    expect(names()).toEqual([]);
    expect(view.locate("sum")).not.toEqual(before);
    view.dispatch({ type: "fit" });
    press("v");
    expect(buttonIn(root, "⬚").getAttribute("aria-pressed")).toBe("true");
  });

  it("takes all of the scope, then of the one around it, and the next box, by keys", () => {
    click("enc/mm");
    press("a", { ctrlKey: true });
    expect(names().sort()).toEqual(["enc/mm", "enc/split"]);
    press("a", { ctrlKey: true });
    expect(names().sort()).toEqual(["act", "enc", "sum"]);
    click("sum");
    press("ArrowDown", { ctrlKey: true });
    expect(names()).toEqual(["sum", "act"]);
    expect(root.querySelector(".onnx-nb-live")?.textContent).toBe("2 nodes selected");
  });

  it("copies its names to the clipboard", async () => {
    click("sum");
    click("act", { ctrlKey: true });
    expect(press("c", { ctrlKey: true })).toBe(true);
    await settle();
    expect(copied).toEqual(["sum\nact"]);
    press("Escape");
    expect(press("c", { ctrlKey: true }), "nothing to copy").toBe(false);
  });

  it("shows totals, and is extracted between its border tensors at once, which can be undone", async () => {
    host.answer = () =>
      Promise.resolve({ columns: packOf(), message: "Extracted 2 nodes", name: "", code: "", file: "" });
    host.selectionReply = {
      rows: [["MACs", "12 M"]],
      inputs: [target("tensor", "p").id],
      outputs: [target("tensor", "q").id],
      obstacle: "",
    };
    click("enc/split");
    click("sum", { ctrlKey: true });
    expect(root.querySelectorAll(".onnx-nb-inspector")).toHaveLength(1);
    expect(panel().textContent).toContain("2 nodes");
    const [ops] = panel().querySelectorAll("section");
    expect(Array.from(ops.querySelectorAll("li"), (row) => row.textContent)).toEqual(["Split  1", "Add  1"]);
    expect(buttonIn(panel(), "Extract these").disabled).toBe(true);
    await settle(250);
    expect(host.selections).toEqual([[target("node", "enc/split"), target("node", "sum")]]);
    expect(panel().textContent).toContain("MACs12 M");
    buttonIn(panel(), "Extract these").click();
    await vi.waitFor(() => expect(view.submodel).not.toBeNull());
    expect(host.extractions.map(([inputs, outputs]) => [inputs, outputs])).toEqual([[["p"], ["q"]]]);
    expect(host.plans).toEqual([[["p"], ["q"]]]);
    expect(root.querySelector(".onnx-nb-extract .onnx-nb-say")?.textContent).toBe("✓ Extracted 2 nodes");
    press("z", { ctrlKey: true });
    expect([view.submodel, view.state.boundary, host.discardCount]).toEqual([null, { inputs: [], outputs: [] }, 1]);
    press("Z", { ctrlKey: true, shiftKey: true });
    expect(view.submodel).not.toBeNull();
    expect(host.extractions).toHaveLength(2);
    click("act");
    expect(panel()).toBeNull();
  });

  it("shows why it cannot be extracted", async () => {
    host.selectionReply = { rows: [], inputs: [], outputs: [], obstacle: "inner lies inside a body" };
    click("sum");
    click("act", { ctrlKey: true });
    await settle(250);
    expect(panel().textContent).toContain("inner lies inside a body");
    expect(buttonIn(panel(), "Extract these").disabled).toBe(true);
  });

  it("highlights the paths between two targets, in either order, and reports if there is none", () => {
    click("act");
    click("enc/mm", { ctrlKey: true });
    buttonIn(panel(), "Path between").click();
    expect(view.state.hits.map((hit) => MODEL.nameOf(hit)).sort()).toEqual(["act", "enc/mm", "enc/split", "sum"]);
    expect(panel().textContent).toContain("4 nodes on the way");
    view.dispatch({ type: "selectAll", targets: [target("tensor", "left"), target("tensor", "right")] });
    buttonIn(panel(), "Path between").click();
    expect(panel().textContent).toContain("No path leads");
  });
});

describe("the legend", () => {
  const legend = (name: string): HTMLButtonElement =>
    [...root.querySelectorAll<HTMLButtonElement>(".onnx-nb-legend button")].find((each) =>
      each.textContent?.startsWith(name),
    ) as HTMLButtonElement;
  const lit = (): string[] => view.state.hits.map((hit) => MODEL.nameOf(hit)).sort();

  it("highlights all nodes of a category until it is pressed again", () => {
    legend("linear").click();
    expect(lit()).toEqual(["enc/mm"]);
    expect(legend("linear").getAttribute("aria-pressed")).toBe("true");
    legend("linear").click();
    expect(lit()).toEqual([]);
    expect(legend("linear").getAttribute("aria-pressed")).toBe("false");
  });
});
