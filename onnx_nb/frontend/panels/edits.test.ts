// @vitest-environment jsdom
import { beforeEach, describe, expect, it, vi } from "vitest";
import { KernelError } from "../protocol/channel.ts";
import type { Target } from "../protocol/columns.ts";
import { GraphView } from "./graphview.ts";
import { buttonIn, FakeHost, furnish, MODEL, packOf, settle, stop } from "./testing.ts";

let root: HTMLElement;
let host: FakeHost;
let view: GraphView;
let copied: string[];

const target = (kind: Target["kind"], name: string): Target => MODEL.find(name, kind) as Target;
const canvas = (): HTMLCanvasElement => root.querySelector(".onnx-nb-canvas") as HTMLCanvasElement;
const select = (wanted: Target): void => view.dispatch({ type: "select", target: wanted });
const menu = (): HTMLElement | null => root.querySelector(".onnx-nb-popup");
const texts = (): string[] => [...(menu()?.querySelectorAll("button") ?? [])].map(({ textContent }) => textContent);
const field = (label: string, parent: ParentNode = root): HTMLInputElement =>
  parent.querySelector(`input[aria-label='${label}']`) as HTMLInputElement;
const key = (name: string, init: KeyboardEventInit = {}): boolean => {
  const event = new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...init });
  document.activeElement?.dispatchEvent(event);
  return event.defaultPrevented;
};
/** Right-clicks; returns whether the browser's menu stays away, and whether the page heard of it. */
const rightClick = (name: string, kind: Target["kind"], init: MouseEventInit = {}): [boolean, boolean] => {
  const { x, y } = view.locate(name, kind) ?? { x: 0, y: 0 };
  const event = new MouseEvent("contextmenu", { clientX: x, clientY: y, bubbles: true, cancelable: true, ...init });
  let heard = false;
  document.addEventListener("contextmenu", () => (heard = true), { once: true, signal: stop.signal });
  canvas().dispatchEvent(event);
  return [event.defaultPrevented, heard];
};
const STEPS = [
  { sign: "✓", text: "removed 'sum'", verdict: "equal on the same feeds" },
  { sign: "✗", text: "removed 'act'", verdict: "NOT the same: 'y' moves by 0.5" },
];
const requests = (): unknown[] => host.edits.map(({ kind = "", id = -1, ...rest }) => [kind, id, rest]);

beforeEach(async () => {
  furnish();
  document.body.replaceChildren();
  root = document.createElement("div");
  document.body.append(root);
  host = new FakeHost();
  const reply = { columns: packOf(), message: "removed", name: "g.edits.model", code: "e.remove()", file: "/e.onnx" };
  host.answer = () => Promise.resolve({ ...reply, steps: STEPS, redo: true });
  copied = [];
  Object.assign(navigator, { clipboard: { writeText: async (text: string) => void copied.push(text) } });
  view = new GraphView(root, MODEL, host, { maxBlockingMs: Number.POSITIVE_INFINITY }, stop.signal);
  await vi.waitFor(() => expect(root.dataset.state).toBe("drawn"), { timeout: 20_000 });
});

describe("edits", () => {
  it("of what is selected are shown beside the graph with their verdicts, undone one by one, and made again", async () => {
    const form = (): HTMLElement => root.querySelector<HTMLElement>(".onnx-nb-edit") as HTMLElement;
    const [input, node] = [target("tensor", "x"), target("node", "sum")];
    select(node);
    buttonIn(form(), "Remove").click();
    const pane = (): HTMLElement => root.querySelector("[aria-label=Submodel]") as HTMLElement;
    await vi.waitFor(() => expect(pane().querySelector("header")?.textContent).toMatch(/^g\.edits\.model/));
    const rows = [...pane().querySelectorAll(".onnx-nb-edits li")].map((row) => row.textContent);
    expect(rows).toEqual(STEPS.map(({ sign, text, verdict }) => `${sign}${text} ${verdict}Undo`));
    expect(pane().querySelector(".onnx-nb-edits .onnx-nb-bad")?.textContent).toBe("✗");
    expect(root.querySelector(".onnx-nb-extract .onnx-nb-bad")?.textContent).toBe("⚠ removed");
    (pane().querySelector("[aria-label='Undo step 1']") as HTMLElement).click();
    await settle();
    buttonIn(pane(), STEPS[1].text).click();
    await settle();
    for (const text of ["Undo edit", "Redo edit"]) {
      buttonIn(pane(), text).click();
      await settle();
    }
    select(input);
    buttonIn(form(), "Free the batch").click();
    await settle();
    field("New name").value = "image";
    buttonIn(form(), "Rename").click();
    await settle();
    expect(requests()).toEqual([
      ["node", node.id, { edit: "remove", text: "" }],
      ["", -1, { edit: "undo", step: 1 }],
      ["", -1, { edit: "show", step: 2 }],
      ["", -1, { edit: "undo" }],
      ["", -1, { edit: "redo" }],
      ["tensor", input.id, { edit: "free", text: "" }],
      ["tensor", input.id, { edit: "rename", text: "image" }],
    ]);
  });

  it("are proved afterwards, where they stand, and another edit goes first", async () => {
    const pending = { sign: "?", text: "removed 'sum'", verdict: "not proved yet" };
    const edited = { columns: packOf(), message: "removed", name: "g", code: "", file: "", steps: [pending] };
    const { columns: _, ...proved } = { ...edited, steps: [STEPS[0]], message: "proved" };
    const aborted: boolean[] = [];
    let finish = (): void => undefined;
    host.answer = (request, signal) => {
      if (request?.edit !== "verify") return Promise.resolve(edited);
      return new Promise((resolve, reject) => {
        finish = () => resolve(proved);
        signal?.addEventListener("abort", () => {
          aborted.push(true);
          reject(new DOMException("", "AbortError"));
        });
      });
    };
    const sent = (): string[] => host.edits.map(({ edit }) => edit);
    const bar = (): string => root.querySelector(".onnx-nb-extract")?.textContent ?? "";
    view.dispatch({ type: "edit", request: { edit: "remove", kind: "node", id: 0 } });
    await vi.waitFor(() => expect(sent()).toEqual(["remove", "verify"]), { timeout: 20_000 });
    expect(bar()).toContain("Proving edits…");
    view.dispatch({ type: "edit", request: { edit: "remove", kind: "node", id: 1 } });
    await vi.waitFor(() => expect(sent()).toEqual(["remove", "verify", "remove", "verify"]), { timeout: 20_000 });
    expect(aborted).toEqual([true]);
    const row = root.querySelector(".onnx-nb-edits li") as HTMLElement;
    expect(row.textContent).toBe("?removed 'sum' not proved yetUndo");
    const undo = buttonIn(row, "Undo");
    undo.focus();
    finish();
    await vi.waitFor(() => expect(row.textContent).toBe("✓removed 'sum' equal on the same feedsUndo"), {
      timeout: 20_000,
    });
    expect(undo.isConnected && root.contains(document.activeElement)).toBe(true);
    expect(row.isConnected).toBe(true);
    expect(bar()).toContain("✓ proved");
    view.dispatch({ type: "capture", value: null });
    expect(aborted).toHaveLength(1);
    expect(sent()).toHaveLength(4);
  });

  it("of the edited model go by name, for its numbers are others", async () => {
    select(target("node", "sum"));
    buttonIn(root, "Remove").click();
    await vi.waitFor(() => expect(view.submodel).not.toBeNull());
    view.submodel?.dispatch({ type: "edit", request: { edit: "remove", kind: "node", id: 0 } });
    await settle();
    // the node has no name: that of what it makes
    expect(requests().at(-1)).toEqual(["", -1, { edit: "remove", name: "b" }]);
  });

  it("light the node that is in the way", async () => {
    host.answer = () => Promise.reject(new KernelError("EditError", "batch cannot be freed.", "Replace it.", "act"));
    view.dispatch({ type: "edit", request: { edit: "free", kind: "tensor", id: 0 } });
    await settle();
    expect(root.querySelector("[role=alert]")?.textContent).toContain("Replace it.");
    expect(view.state.hits).toEqual([target("node", "act")]);
  });

  it("change a dimension where it stands", async () => {
    const input = target("tensor", "x");
    select(input);
    const sizes = MODEL.shapeOf(input.id).split("×");
    const press = root.querySelector("[aria-label^='Dimension 0']") as HTMLElement;
    expect(press.textContent).toBe(sizes[0]);
    press.click();
    expect(document.activeElement).toBe(field("Dimension 0"));
    expect(key("Escape")).toBe(true);
    expect(document.activeElement).toBe(press);
    press.click();
    field("Dimension 0").value = "7";
    key("Enter");
    await settle();
    const text = ["7", ...sizes.slice(1)].join("×");
    expect(requests()).toEqual([["tensor", input.id, { edit: "shape", text }]]);
  });
});

describe("the shape of an input", () => {
  const shape = (): HTMLInputElement => field("Shape", menu() as HTMLElement);

  it("is edited over its label by F2 and by a double click, and Escape leaves it", async () => {
    const input = target("tensor", "x");
    select(input);
    canvas().focus();
    key("F2");
    expect([menu()?.getAttribute("role"), menu()?.getAttribute("aria-label")]).toEqual(["dialog", "Shape of x"]);
    expect(shape().value).toBe(MODEL.shapeOf(input.id));
    expect(document.activeElement).toBe(shape());
    key("Escape");
    expect(menu()).toBeNull();
    expect(document.activeElement).toBe(canvas());
    const { x, y } = view.locate("x", "tensor") ?? { x: 0, y: 0 };
    canvas().dispatchEvent(new MouseEvent("dblclick", { clientX: x, clientY: y, bubbles: true }));
    shape().value = "N×8";
    key("Enter");
    await settle();
    expect(requests()).toEqual([["tensor", input.id, { edit: "shape", text: "N×8" }]]);
  });

  it("is that of an input only, which is announced", () => {
    canvas().focus();
    const said = (): string => root.querySelector(".onnx-nb-live")?.textContent ?? "";
    key("F2");
    expect(said()).toBe("Nothing is selected");
    select(target("tensor", "y"));
    key("F2");
    expect(said()).toContain("Only the shape of an input");
    expect(menu()).toBeNull();
  });
});

describe("the menu", () => {
  it("has what can be done with a node, keeps the notebook's menu away, and returns the focus", async () => {
    canvas().focus();
    expect(rightClick("sum", "node")).toEqual([true, false]);
    expect(view.state.selection).toEqual(target("node", "sum"));
    expect(menu()?.role).toBe("menu");
    expect(texts()).toEqual(["Extract", "Remove", "Set attributes…", "Rename…", "Copy name"]);
    expect(document.activeElement?.textContent).toBe("Extract");
    key("ArrowUp");
    expect(document.activeElement?.textContent).toBe("Copy name");
    (document.activeElement as HTMLElement).click();
    expect([menu(), copied, document.activeElement]).toEqual([null, ["sum"], canvas()]);
    rightClick("sum", "node");
    expect(key("f")).toBe(false);
    key("Escape");
    expect([menu(), document.activeElement]).toEqual([null, canvas()]);
    expect(rightClick("sum", "node", { shiftKey: true })).toEqual([false, true]);
    expect(menu()).toBeNull();
  });

  it("asks for a text in its place", async () => {
    rightClick("sum", "node");
    buttonIn(menu() as HTMLElement, "Set attributes…").click();
    expect(menu()?.role).toBe("dialog");
    field("Attributes", menu() as HTMLElement).value = "axis=1";
    key("Enter");
    await settle();
    expect(menu()).toBeNull();
    expect(requests()).toEqual([["node", target("node", "sum").id, { edit: "set", text: "axis=1" }]]);
  });

  it.each([
    ["ContextMenu", {}],
    ["F10", { shiftKey: true }],
  ])("opens by %s", (name, init) => {
    canvas().focus();
    select(target("tensor", "x"));
    expect(key(name, init)).toBe(true);
    expect(texts()).toEqual([
      "Extract from here",
      "Extract up to here",
      "Free the batch",
      "Reshape…",
      "Insert a node…",
      "Rename…",
      "Capture",
      "Copy name",
    ]);
  });

  it("is that of all that is selected on one of it", () => {
    view.dispatch({ type: "selectAll", targets: [target("node", "act"), target("node", "sum")] });
    rightClick("sum", "node");
    expect(texts()).toEqual(["Extract these", "Show", "Copy names"]);
    buttonIn(menu() as HTMLElement, "Copy names").click();
    expect(copied).toEqual(["act\nsum"]);
  });

  it("stays inside of the window, and closes when the focus leaves it", () => {
    const size = vi.spyOn(HTMLElement.prototype, "getBoundingClientRect");
    size.mockImplementation(function of(this: HTMLElement) {
      return this === menu() ? new DOMRect(0, 0, 200, 300) : new DOMRect(0, 0, 1000, 600);
    });
    view.viewport.openMenu(target("node", "sum"), { x: window.innerWidth - 20, y: window.innerHeight - 20 });
    size.mockRestore();
    expect(menu()?.style.left).toBe(`${window.innerWidth - 204}px`);
    expect(menu()?.style.top).toBe(`${window.innerHeight - 304}px`);
    canvas().focus();
    expect(menu()).toBeNull();
  });
});
