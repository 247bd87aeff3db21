// @vitest-environment jsdom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Target } from "../protocol/columns.ts";
import type { Patch } from "../protocol/host.ts";
import { selectionOf } from "../scene/state.ts";
import { type GraphOptions, GraphView } from "./graphview.ts";
import { buttonIn, FakeHost, furnish, MODEL, settle, stop } from "./testing.ts";

let root: HTMLElement;
let host: FakeHost;

const target = (kind: Target["kind"], name: string): Target => MODEL.find(name, kind) as Target;
const show = (options: GraphOptions = {}): GraphView =>
  new GraphView(root, MODEL, host, { maxBlockingMs: Number.POSITIVE_INFINITY, ...options }, stop.signal);
const press = (key: string, init: KeyboardEventInit = {}): void => {
  const canvas = root.querySelector(".onnx-nb-canvas") as HTMLCanvasElement;
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...init }));
};
const undo = (): void => press("z", { ctrlKey: true });
const redo = (): void => press("Z", { ctrlKey: true, shiftKey: true });
const drawn = (): Promise<void> => vi.waitFor(() => expect(root.dataset.state).toBe("drawn"), { timeout: 20_000 });
const enc = target("scope", "enc").id;

beforeEach(() => {
  furnish();
  document.body.replaceChildren();
  root = document.createElement("div");
  document.body.append(root);
  host = new FakeHost();
});

describe("undo", () => {
  it("goes back and forth through one history of all actions", () => {
    const view = show();
    view.dispatch({ type: "toggle", scope: enc });
    view.dispatch({ type: "output", value: target("tensor", "y").id });
    view.dispatch({ type: "selectAll", targets: [target("node", "sum"), target("node", "act")] });
    view.dispatch({ type: "direction", direction: "right" });
    const nodes = new Float64Array(MODEL.nodeCount);
    const scopes = new Float64Array(MODEL.scopeCount);
    view.apply({ overlay: { label: "error", scale: "linear", reduce: "max", unmatched: 0, nodes, scopes } });
    undo();
    expect(view.state.overlay).toBeNull();
    undo();
    expect(view.state.direction).toBe("down");
    undo();
    expect(selectionOf(view.state)).toEqual([]);
    expect(view.state.boundary.outputs).toHaveLength(1);
    undo();
    expect(view.state.boundary.outputs).toEqual([]);
    expect(view.state.open.has(enc)).toBe(false);
    undo();
    expect(view.state.open.has(enc)).toBe(true);
    expect(host.patches.at(-1)?.open).toContain(enc);
    undo();
    expect(root.querySelector(".onnx-nb-live")?.textContent).toBe("Nothing to undo");
    for (let step = 0; step < 5; step++) redo();
    expect(view.state.overlay?.data.label).toBe("error");
    expect(view.state.direction).toBe("right");
    expect(selectionOf(view.state)).toHaveLength(2);
  });

  it("has a button while a cut is chosen, which names a step that is no cut", () => {
    const view = show();
    const button = (): HTMLButtonElement | undefined =>
      [...root.querySelectorAll<HTMLButtonElement>(".onnx-nb-cutting button")].find((each) =>
        each.textContent.startsWith("Undo"),
      );
    view.dispatch({ type: "toggle", scope: enc });
    expect(button()?.hidden).toBe(true);
    view.dispatch({ type: "output", value: target("tensor", "y").id });
    expect([button()?.hidden, button()?.textContent]).toEqual([false, "Undo"]);
    view.dispatch({ type: "toggle", scope: enc });
    expect([button()?.hidden, button()?.textContent]).toEqual([false, "Undo: scopes"]);
    button()?.click();
    expect(button()?.textContent).toBe("Undo");
    button()?.click();
    expect(view.state.boundary.outputs).toEqual([]);
  });

  it("skips single selections, and drops undone steps at the next action", () => {
    const view = show();
    view.dispatch({ type: "toggle", scope: enc });
    view.dispatch({ type: "select", target: target("node", "sum") });
    view.dispatch({ type: "select", target: target("node", "act") });
    undo();
    expect(view.state.open.has(enc)).toBe(true);
    expect(view.state.selection).toEqual(target("node", "act"));
    view.dispatch({ type: "direction", direction: "right" });
    redo();
    expect(view.state.open.has(enc)).toBe(true);
  });

  it("starts empty in a view that is restored as a person left it", () => {
    const view = show({
      initialView: { inputs: ["p"], outputs: ["y"], selection: [{ ...target("node", "sum"), name: "sum" }] },
    });
    expect(view.state.boundary.outputs).toHaveLength(1);
    undo();
    expect(view.state.boundary.outputs).toHaveLength(1);
  });
});

describe("the view", () => {
  it("reports the viewpoint at rest, the search, and the bookmarks", async () => {
    show();
    await drawn();
    press("+");
    const told = (): Patch["camera"] => host.patches.findLast((patch) => patch.camera !== undefined)?.camera;
    // finally it reports the viewpoint
    await vi.waitFor(() => expect(told()?.zoom).toBeGreaterThan(0), { timeout: 20_000 });
    const camera = told();
    buttonIn(root, "☆").click();
    buttonIn(root, "Bookmark this view").click();
    expect(host.patches.at(-1)?.bookmarks?.[0]).toMatchObject({ name: "View", target: null, camera });
  });

  it("returns to a bookmark: open scopes, selection, and camera", async () => {
    const view = show();
    await drawn();
    view.dispatch({ type: "select", target: target("node", "enc/mm") });
    press("b");
    const before = view.locate("enc/mm");
    view.dispatch({ type: "close", scope: enc });
    view.dispatch({ type: "select", target: null });
    press("+");
    press("+");
    buttonIn(root, "★ 1").click();
    buttonIn(root, "MatMul").click();
    await settle(400);
    expect(view.state.selection).toEqual(target("node", "enc/mm"));
    const after = view.locate("enc/mm");
    expect(after?.x).toBeCloseTo(before?.x ?? 0, 0);
    expect(after?.y).toBeCloseTo(before?.y ?? 0, 0);
    buttonIn(root, "★ 1").click();
    buttonIn(root, "✎").click();
    const field = root.querySelector<HTMLInputElement>(".onnx-nb-bookmark input") ?? expect.fail("no field");
    expect(document.activeElement).toBe(field);
    const key = (name: string): void => {
      field.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
    };
    field.value = "the product";
    key("Enter");
    expect(host.patches.at(-1)?.bookmarks).toMatchObject([{ name: "the product" }]);
    buttonIn(root, "the product");
    buttonIn(root, "×").click();
    expect(view.state.bookmarks).toEqual([]);
    undo();
    expect(view.state.bookmarks).toHaveLength(1);
  });

  it("restores camera, search and bookmarks", async () => {
    const camera = { x: 40, y: 60, zoom: 0.5 };
    const bookmarks = [{ name: "first", target: null, open: new Set([0]), camera }];
    const view = show({ initialView: { camera, search: "op:Add", bookmarks } });
    await drawn();
    await settle(600);
    expect(view.state.hits.map((hit) => MODEL.nameOf(hit))).toEqual(["sum"]);
    expect(view.state.bookmarks).toEqual(bookmarks);
    expect(host.patches.some((patch) => patch.camera !== undefined || patch.bookmarks !== undefined)).toBe(false);
    press("b");
    expect(view.state.bookmarks[1]?.camera).toEqual(camera);
  });
});
