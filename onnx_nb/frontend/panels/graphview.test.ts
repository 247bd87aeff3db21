// @vitest-environment jsdom

import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Columns, Target } from "../protocol/columns.ts";
import type { GraphHost, OverlayData } from "../protocol/host.ts";
import { columnsOf } from "../protocol/testing.ts";
import { GraphView } from "./graphview.ts";
import { KEYS } from "./keys.ts";
import { buttonIn, type Drawing, FakeHost, furnish, MODEL, packOf, settle, stop } from "./testing.ts";

let root: HTMLElement;
let host: FakeHost;
let drawn: Drawing;

function show(columns: Columns = MODEL, given: GraphHost = host): GraphView {
  return new GraphView(root, columns, given, { maxBlockingMs: Number.POSITIVE_INFINITY }, stop.signal);
}
/** Waits until it is drawn, however busy the machine is. */
const shown = (): Promise<void> =>
  vi.waitFor(() => expect(performance.getEntriesByName("onnx_nb:drawn")).not.toEqual([]), { timeout: 20_000 });
const target = (kind: Target["kind"], name: string): Target => MODEL.find(name, kind) as Target;
const canvas = (): HTMLCanvasElement => root.querySelector(".onnx-nb-canvas") as HTMLCanvasElement;
const press = (key: string, init: KeyboardEventInit = {}): void => {
  canvas().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...init }));
};
const text = (selector: string): string => root.querySelector(selector)?.textContent ?? "";

beforeEach(() => {
  drawn = furnish();
  document.body.replaceChildren();
  root = document.createElement("div");
  document.body.append(root);
  host = new FakeHost();
  performance.clearMarks();
});

describe("a graph view", () => {
  it("reports when it is drawn, with the number of boxes and milliseconds", async () => {
    show();
    await shown();
    expect(root.className).toContain("onnx-nb");
    expect(root.dataset).toMatchObject({ widget: "graph", state: "drawn" });
    const [mark] = performance.getEntriesByName("onnx_nb:drawn") as PerformanceMark[];
    expect(mark.detail.boxes).toBeGreaterThan(4);
    expect(mark.detail.ms).toBeGreaterThan(0);
    expect(drawn.texts).toContain("MatMul");
  });

  it("reports every expansion again", async () => {
    const view = show();
    await shown();
    view.dispatch({ type: "toggle", scope: target("scope", "enc").id });
    await vi.waitFor(() => expect(performance.getEntriesByName("onnx_nb:drawn")).toHaveLength(2), { timeout: 20_000 });
    expect(host.patches.at(-1)?.open).toEqual([0]);
  });

  it("reports selection and choices to the host, and requests a plan once there is an output", async () => {
    const view = show();
    view.dispatch({ type: "select", target: target("tensor", "p") });
    expect(host.patches.at(-1)?.selection).toEqual([{ kind: "tensor", id: target("tensor", "p").id, name: "p" }]);
    press("i");
    expect(host.patches.at(-1)).toEqual({ inputs: ["p"], outputs: [] });
    expect(host.plans).toEqual([]);
    view.dispatch({ type: "select", target: target("node", "act") });
    press("o"); // the only output of the selected node
    expect(host.plans).toEqual([[["p"], ["y"]]]);
    press("z", { ctrlKey: true });
    expect(view.state.boundary.outputs).toEqual([]);
    press("Z", { ctrlKey: true, shiftKey: true });
    expect(view.state.boundary.outputs).toEqual([target("tensor", "y").id]);
  });

  it("applies changes of the kernel without reporting them back", () => {
    const view = show();
    const before = host.patches.length;
    view.apply({ inputs: ["p", "no such tensor"], outputs: ["y"], selection: [], open: [0] });
    expect(view.state.boundary).toEqual({ inputs: [target("tensor", "p").id], outputs: [target("tensor", "y").id] });
    expect([...view.state.open]).toEqual([0]);
    expect(host.patches).toHaveLength(before);
  });

  it("ignores the reply for a plan that is no longer wanted", async () => {
    const view = show();
    host.reply = { message: "old" };
    view.dispatch({ type: "output", value: target("tensor", "y").id });
    view.dispatch({ type: "clear" });
    await settle();
    expect(view.state.plan).toBeNull();
  });

  it("selects by a click on the point from locate", async () => {
    const view = show();
    await settle();
    for (const [kind, name] of [
      ["node", "sum"],
      ["tensor", "left"],
      ["tensor", "right"],
      ["scope", "enc"],
    ] as const) {
      const at = view.locate(name, kind);
      expect(at, name).not.toBeNull();
      const where = { clientX: at?.x ?? 0, clientY: at?.y ?? 0, button: 0, bubbles: true };
      canvas().dispatchEvent(new MouseEvent("pointerdown", where));
      canvas().dispatchEvent(new MouseEvent("pointerup", where));
      expect(view.state.selection, name).toEqual(target(kind, name));
    }
    expect(view.locate("W")).toBeNull();
    expect(view.locate("no such name")).toBeNull();
  });

  it("reveals a target in a closed scope", async () => {
    const view = show();
    view.dispatch({ type: "close", scope: target("scope", "enc").id });
    expect(view.locate("enc/split", "node")).toBeNull();
    await view.reveal("enc/split", "node");
    expect(view.state.open.has(target("scope", "enc").id)).toBe(true);
    expect(view.locate("enc/split", "node")).not.toBeNull();
    await view.reveal("W"); // a weight is shown in the node that reads it
    await expect(view.reveal("nothing")).rejects.toThrow("nothing");
  });

  it("moves by keys, clears with Escape, and keeps its keys from the notebook", () => {
    const view = show();
    let escaped = 0;
    document.body.addEventListener("keydown", () => escaped++, { signal: stop.signal });
    press("ArrowDown");
    expect(view.state.selection).toEqual(target("tensor", "x"));
    press("ArrowDown");
    expect(view.state.selection).toEqual(target("node", "enc/mm"));
    press("ArrowDown", { shiftKey: true });
    expect(view.state.selection).toEqual(target("tensor", "p"));
    press("Escape");
    expect(view.state.selection).toBeNull();
    press("d"); // not ours, but in a notebook it would delete a cell
    expect(escaped).toBe(0);
    press("s", { ctrlKey: true });
    expect(escaped).toBe(1);
  });

  it("highlights the ancestors of a tensor, and its descendants", () => {
    const view = show();
    view.dispatch({ type: "select", target: target("tensor", "q") });
    buttonIn(root, "Trace up").click();
    const lit = (): string[] => view.state.hits.map((hit) => MODEL.nameOf(hit)).sort();
    expect(lit()).toEqual(["enc/mm", "enc/split", "sum"]);
    expect(root.querySelector("input")?.value).toBe('before:"q"');
    buttonIn(root, "Trace down").click();
    expect(lit()).toEqual(["act"]);
  });

  it("draws from left to right, reports it, and accepts it from the host", () => {
    const view = show();
    const at = (name: string): { x: number; y: number } => view.locate(name, "node") ?? { x: 0, y: 0 };
    expect(at("act").y).toBeGreaterThan(at("enc/mm").y);
    buttonIn(root, "→").click();
    expect(at("act").x).toBeGreaterThan(at("enc/mm").x);
    expect(host.patches.at(-1)).toEqual({ direction: "right" });
    press("t");
    expect(view.state.direction).toBe("down");
    const told = host.patches.length;
    view.apply({ direction: "right" });
    expect(buttonIn(root, "↓")).toBeDefined();
    expect(host.patches.length).toBe(told);
  });

  it("lists its keys", () => {
    show();
    press("?");
    const help = root.querySelector<HTMLElement>("[role=dialog]");
    expect(help?.hidden).toBe(false);
    for (const [keys] of KEYS) expect(help?.textContent).toContain(keys);
    press("Escape");
    expect(help?.hidden).toBe(true);
  });

  it("has no key that is not in its list", async () => {
    Object.assign(navigator, { clipboard: { writeText: () => Promise.resolve() } });
    const view = show();
    await shown();
    const taken = (init: KeyboardEventInit): boolean => {
      view.dispatch({ type: "select", target: target("node", "sum") });
      const event = new KeyboardEvent("keydown", { bubbles: true, cancelable: true, ...init });
      canvas().dispatchEvent(event);
      return event.defaultPrevented;
    };
    const listed = KEYS.map(([keys]) => keys).join("  ");
    const printable = Array.from({ length: 94 }, (_, at) => String.fromCharCode(33 + at));
    const alone = [...printable, "Enter", "Escape"].filter((key) => taken({ key, shiftKey: /[A-Z]/.test(key) }));
    const names = KEYS.flatMap(([keys]) =>
      keys
        .replaceAll("Shift+", "")
        .toLowerCase()
        .split(/[ ,·]+/),
    );
    const words: Record<string, string> = { Escape: "esc", "=": "+", "-": "−" };
    for (const key of alone) expect(names, key).toContain(words[key] ?? key.toLowerCase());
    expect(alone.length).toBeGreaterThan(20);
    const commands = printable.filter((key) => /[a-z]/.test(key) && taken({ key, ctrlKey: true }));
    // Ctrl+Y redoes as well, as on Windows
    for (const key of commands) if (key !== "y") expect(listed).toContain(`Ctrl+${key.toUpperCase()}`);
    expect(commands.length).toBeGreaterThan(3);
  });

  it("saves a picture from its menu, by mouse and by keys", async () => {
    show();
    const saved: { name: string; blob: Blob }[] = [];
    const blobs: Blob[] = [];
    URL.createObjectURL = (blob: Blob) => `blob:${blobs.push(blob)}`;
    URL.revokeObjectURL = () => undefined;
    HTMLAnchorElement.prototype.click = function () {
      saved.push({ name: this.download, blob: blobs.at(-1) as Blob });
    };
    buttonIn(root, "Save").click();
    buttonIn(root, "SVG, whole graph").click();
    expect(saved[0]?.name).toBe("small.svg");
    expect(await saved[0]?.blob.text()).toContain(">MatMul</text>");
    expect(root.querySelector<HTMLElement>("[role=menu]")?.hidden).toBe(true);
    press("s");
    const item = document.activeElement as HTMLElement;
    expect(item.textContent).toBe("SVG, whole graph");
    item.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
    expect(document.activeElement?.textContent).toBe("SVG, this view");
    item.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    expect(root.querySelector<HTMLElement>("[role=menu]")?.hidden).toBe(true);
  });

  it("colors boxes by numbers, filters them, and returns to categories", () => {
    const view = show();
    const nodes = Float64Array.from({ length: MODEL.nodeCount }, (_, node) => node + 1);
    const scopes = new Float64Array(MODEL.scopeCount).fill(7);
    view.apply({ overlay: { label: "error", scale: "linear", reduce: "max", unmatched: 2, nodes, scopes } });
    expect(text(".onnx-nb-legend")).toContain("error");
    expect(text(".onnx-nb-legend")).toContain("2 names not in the model");
    view.dispatch({ type: "select", target: target("node", "enc/mm") });
    expect(text(".onnx-nb-inspector")).toContain(`error${nodes[target("node", "enc/mm").id]}`);
    const [from] = root.querySelectorAll<HTMLInputElement>(".onnx-nb-slider");
    if (from === undefined) throw new Error("no filter");
    from.value = "100";
    from.dispatchEvent(new Event("input"));
    expect(view.state.overlay?.range.from).toBe(0.5);
    expect(host.patches.some((patch) => "overlay" in patch)).toBe(false);
    buttonIn(root, "Kind").click();
    expect(view.state.overlay).toBeNull();
    expect(host.patches.at(-1)).toEqual({ overlay: null });
    expect(text(".onnx-nb-legend")).toContain("linear");
  });

  it("keeps the page for a dropped file, and says where to put what nobody has taken", () => {
    const view = show();
    const drop = (taken: boolean): boolean => {
      const event = Object.assign(new Event("drop", { cancelable: true }), {
        dataTransfer: { files: [{ name: "m.onnx" }] },
      });
      if (taken) event.preventDefault();
      root.dispatchEvent(event);
      return event.defaultPrevented;
    };
    expect([root.dispatchEvent(new Event("dragover", { cancelable: true })), drop(true)]).toEqual([false, true]);
    expect(view.state.error).toBeNull();
    expect(drop(false)).toBe(true);
    expect(view.state.error).toMatchObject({ message: expect.stringContaining("m.onnx is on your computer") });
  });

  it("does not color by numbers that arrive after another choice", async () => {
    const given: ((found: OverlayData) => void)[] = [];
    const overlay = (): Promise<OverlayData> => new Promise((resolve) => given.push(resolve));
    Object.assign(host, { overlay });
    const view = show();
    const numbers = { scale: "linear", reduce: "sum", unmatched: 0 } as const;
    const found = (label: string): OverlayData => ({
      ...numbers,
      label,
      nodes: new Float64Array(MODEL.nodeCount),
      scopes: new Float64Array(MODEL.scopeCount),
    });
    view.dispatch({ type: "color", by: "MACs" });
    view.dispatch({ type: "overlay", overlay: null });
    given[0]?.(found("MACs"));
    await settle();
    expect(view.state.overlay).toBeNull();
    view.dispatch({ type: "color", by: "MACs" });
    view.apply({ overlay: found("error") });
    given[1]?.(found("MACs"));
    await settle();
    expect(view.state.overlay?.data.label).toBe("error");
    // the choice in the bar stays until its numbers arrive
    const bar = root.querySelector<HTMLSelectElement>(".onnx-nb-lenses select");
    if (bar === null) throw new Error("nothing to choose colors with");
    bar.value = "parameters";
    bar.dispatchEvent(new Event("change"));
    view.dispatch({ type: "select", target: target("node", "act") });
    expect(bar.value).toBe("parameters");
    given[2]?.(found("MACs"));
    await vi.waitFor(() => expect(view.state.overlay?.data.label).toBe("MACs"), { timeout: 20_000 });
  });

  it("shows the inside of a closed scope on Space, without a change of the layout", async () => {
    const view = show();
    await shown();
    const scope = target("scope", "enc");
    view.dispatch({ type: "close", scope: scope.id });
    view.dispatch({ type: "select", target: scope });
    const before = view.viewport.scene;
    const peek = root.querySelector(".onnx-nb-peek") as HTMLElement;
    drawn.texts.length = 0;
    press(" ");
    expect(peek.hidden).toBe(false);
    expect(drawn.texts).toEqual(expect.arrayContaining(["enc", "MatMul", "Split"]));
    expect(text(".onnx-nb-live")).toBe("Inside enc: 2 parts. Enter or a double click opens it");
    expect([view.viewport.scene, view.state.open.has(scope.id)]).toEqual([before, false]);
    for (const close of [" ", "Escape", "ArrowDown"]) {
      press(close);
      expect(peek.hidden, close).toBe(true);
      if (close === "Escape") expect(view.state.selection, "Escape only closes it").toEqual(scope);
      view.dispatch({ type: "select", target: scope });
      press(" ");
    }
    canvas().dispatchEvent(new MouseEvent("pointerdown", { bubbles: true }));
    expect(peek.hidden, "a click elsewhere").toBe(true);
    press(" ");
    peek.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    expect([peek.hidden, view.state.open.has(scope.id)]).toEqual([true, true]);
    press(" ");
    expect(peek.hidden, "an open scope").toBe(true);
    expect(text(".onnx-nb-live")).toBe("Select a closed scope to look into it");
  });

  it("looks into the scope under the pointer first, and counts the parts of a large one", async () => {
    const chain = Array.from({ length: 301 }, (_, at) => `Relu big/n${at} : t${at} -> t${at + 1}`);
    const columns = columnsOf(`input t0 4 float32\n${chain.join("\n")}\nRelu small/a : t301 -> y\noutput y`);
    const view = show(columns);
    await shown();
    const [big, small] = ["big", "small"].map((name) => columns.find(name, "scope") as Target);
    view.dispatch({ type: "openOnly", scopes: new Set([0]) });
    view.dispatch({ type: "select", target: small });
    view.dispatch({ type: "hover", target: big });
    press(" ");
    expect(text(".onnx-nb-peek")).toBe("Inside big: 301 parts. Enter or a double click opens it");
  });

  it("hides what computes with nothing but shapes, in the nodes that read it", async () => {
    const columns = columnsOf(`
      input x 2×8 float32
      weight W 2 int64
      Shape shape : x -> s
      type s 2 int64
      Mul double : s W -> d
      type d 2 int64
      Relu act : x -> a
      Reshape re : a d -> y
      output y 4×8 float32
      shapes shape
      shapes double
    `);
    const view = show(columns);
    await shown();
    const boxes = (): number => view.viewport.scene?.boxes.count ?? 0;
    expect(boxes()).toBe(6);
    buttonIn(root, "Hide shapes").click();
    expect(boxes()).toBe(4);
    expect(host.patches.at(-1)).toEqual({ plumbing: false });
    const { scene } = view.viewport;
    const reshape = scene?.boxOf("node", columns.find("re", "node")?.id ?? -1) ?? -1;
    expect(scene?.label(reshape)).toMatchObject({ title: "Reshape", lines: [[["", "2"]]] });
    expect(scene?.boxOf("node", columns.find("shape", "node")?.id ?? -1), "in its reader").toBe(reshape);
    press("z", { ctrlKey: true });
    expect([boxes(), view.state.plumbing]).toEqual([6, true]);
    view.apply({ plumbing: false });
    expect(boxes()).toBe(4);
    show();
    expect(buttonIn(root, "Hide shapes").hidden, "where there is nothing to hide").toBe(true);
  });

  it("announces the selection", () => {
    const view = show();
    view.dispatch({ type: "select", target: target("tensor", "p") });
    expect(text("[aria-live=polite].onnx-nb-live")).toBe("tensor p batch×8 float32, made by MatMul, read by 1 node");
    view.dispatch({ type: "select", target: target("node", "enc/mm") });
    expect(text("[aria-live=polite].onnx-nb-live")).toBe("node MatMul enc/mm, 256 B of weights");
    view.dispatch({ type: "select", target: target("scope", "enc") });
    expect(text("[aria-live=polite].onnx-nb-live")).toContain("scope enc, 2 nodes");
  });

  it("lets a plain wheel scroll the page until it has the focus; Ctrl always zooms", () => {
    show();
    const wheel = (init: WheelEventInit): boolean => {
      const event = new WheelEvent("wheel", { deltaY: 100, bubbles: true, cancelable: true, ...init });
      canvas().dispatchEvent(event);
      return event.defaultPrevented;
    };
    expect(wheel({})).toBe(false);
    expect(wheel({ ctrlKey: true }), "ctrl").toBe(true);
    canvas().focus();
    expect(wheel({})).toBe(true);
  });

  it("stops when its signal aborts", () => {
    const view = show();
    stop.abort();
    press("ArrowDown");
    expect(view.state.selection).toBeNull();
  });
});

describe("capture", () => {
  it("shows its progress, then statistics, and the numbers page by page", async () => {
    const view = show();
    view.dispatch({ type: "select", target: target("tensor", "p") });
    let finish: (message: string) => void = () => undefined;
    host.values.runCapture = () => new Promise((resolve) => (finish = resolve));
    buttonIn(root, "Capture").click();
    expect(text(".onnx-nb-extract")).toContain("MatMul and 3 more");
    expect(root.querySelector("[role=progressbar]")?.getAttribute("aria-valuenow")).toBe("50");
    finish("captured p");
    await settle();
    expect(host.values.captures).toEqual([target("tensor", "p").id]);
    const panel = text(".onnx-nb-values");
    for (const said of ["captured, 1 run", "0.0021 ± –", "−50, 49.5", "1 NaN, 0 Inf", "zeros25%"])
      expect(panel).toContain(said);
    const bars = root.querySelectorAll(".onnx-nb-bars > i");
    expect(bars.length).toBe(50); // 100 bins, two a bar
    buttonIn(root.querySelector(".onnx-nb-inspector") ?? root, "Values").click();
    await settle();
    expect(root.querySelectorAll(".onnx-nb-cells td").length).toBe(8);
    root.querySelector<HTMLElement>("[aria-label='Rows after']")?.click();
    await settle();
    expect(host.values.places.at(-1)).toMatchObject({ index: [0], row: 2, column: 0 });
    const field = root.querySelector<HTMLInputElement>(".onnx-nb-index input") as HTMLInputElement;
    field.value = "1";
    field.dispatchEvent(new Event("change"));
    expect(host.values.places.at(-1)).toMatchObject({ index: [1], row: 0, column: 0 });
  });

  it("also measures the model, and says where the time goes", async () => {
    const view = show();
    view.dispatch({ type: "select", target: null });
    buttonIn(root, "Profile").click();
    expect(view.state.busy).toContain("Measuring");
    await settle();
    expect(text(".onnx-nb-extract")).toContain("90% of 1 ms in Conv");
  });

  it("can be cancelled, and reports an error", async () => {
    const view = show();
    host.values.runCapture = () => new Promise(() => undefined);
    buttonIn(root, "Capture").click();
    expect(view.state.busy).not.toBeNull();
    buttonIn(root, "Cancel").click();
    expect(view.state.busy).toBeNull();
    host.values.runCapture = () => Promise.reject(new Error("Conv '/stem/Conv' failed"));
    buttonIn(root, "Capture").click();
    await settle();
    expect(text("[role=alert]")).toContain("Conv '/stem/Conv' failed");
  });

  it("captures every value together where a lens needs it, once, and again where it is pressed again", async () => {
    const names: string[] = [];
    const [nodes, scopes] = [new Float64Array(MODEL.nodeCount), new Float64Array(MODEL.scopeCount)];
    const overlay = (label: string): Promise<OverlayData> => {
      names.push(label);
      return Promise.resolve({ label, scale: "linear", reduce: "max", unmatched: 0, nodes, scopes });
    };
    Object.assign(host, { overlay });
    show();
    for (const lens of ["Values", "NaN", "Values", "Values"]) {
      buttonIn(root, lens).click();
      await settle();
    }
    expect(host.values.captures).toEqual([null, null]);
    expect(names).toEqual(["std", "NaN", "std", "std"]);
    expect(text(".onnx-nb-inspector")).toContain("Capture again");
    expect(buttonIn(root, "Values").getAttribute("aria-pressed")).toBe("true");
    expect(buttonIn(root, "Kind").getAttribute("aria-pressed")).toBe("false");
  });

  it("goes to where NaN begins, whatever the capture was for, and leaves the rest pale", async () => {
    const nodes = Float64Array.from({ length: MODEL.nodeCount }, () => 2);
    nodes[target("node", "act").id] = 1;
    nodes[target("node", "enc/mm").id] = 0;
    const labels = ["begins here", "NaN or Inf", "finite"];
    const scopes = new Float64Array(MODEL.scopeCount);
    const overlay = (label: string): Promise<OverlayData> =>
      Promise.resolve({ label, scale: "linear", reduce: "max", unmatched: 0, nodes, scopes, labels });
    Object.assign(host, { overlay });
    host.values.origin = target("tensor", "p").id;
    const view = show();
    buttonIn(root, "Values").click();
    await settle();
    expect(view.state.overlay?.data.label).toBe("NaN");
    expect(view.state.selection).toEqual(target("tensor", "p"));
    expect(view.state.overlay?.leavesOut(2)).toBe(true);
    expect(view.state.overlay?.leavesOut(1)).toBe(false);
    expect([...root.querySelectorAll(".onnx-nb-top li")].map((row) => row.textContent)).toEqual(["enc MatMul"]);
    expect(text(".onnx-nb-extract")).toContain("⚠ captured");
    buttonIn(root, "Time").click();
    await settle();
    expect(text(".onnx-nb-extract"), "other work is no alarm, whatever the colors").toContain("✓ 90% of 1 ms");
  });
});

describe("extraction", () => {
  const choose = (view: GraphView): void => {
    view.dispatch({ type: "input", value: target("tensor", "p").id });
    view.dispatch({ type: "output", value: target("tensor", "q").id });
  };

  it("names missing inputs and adds them with one click", async () => {
    const view = show();
    const x = target("tensor", "x").id;
    host.reply = {
      missing: [{ value: x, name: "x", message: "needed" }],
      suggestion: [x],
      message: "output 'q' also needs 'x'",
    };
    choose(view);
    await settle();
    expect(text(".onnx-nb-extract")).toContain("output 'q' also needs 'x'");
    expect(buttonIn(root, "Extract").disabled).toBe(true);
    host.reply = { nodes: Int32Array.of(1, 2), nbytes: 2_400_000 };
    buttonIn(root, "+ add: x").click();
    await settle();
    expect(host.plans.at(-1)).toEqual([["p", "x"], ["q"]]);
    expect(text(".onnx-nb-extract")).toContain("→ 2 nodes, 2.4 MB →");
    expect(buttonIn(root, "Extract").disabled).toBe(false);
  });

  it("offers other inputs in place of the chosen ones", async () => {
    const view = show();
    const x = target("tensor", "x").id;
    host.reply = { alternative: [x], message: "output q also needs p" };
    choose(view);
    await settle();
    expect(text(".onnx-nb-extract")).toContain("also needs p");
    buttonIn(root, "Use x instead").click();
    await settle();
    expect(host.plans.at(-1)).toEqual([["x"], ["q"]]);
  });

  it("shows the submodel next to the graph, and closes it", async () => {
    const view = show();
    choose(view);
    host.answer = () =>
      Promise.resolve({
        columns: packOf(),
        message: "done",
        name: "g.submodel",
        code: "extract()",
        file: "/a/part.onnx",
      });
    buttonIn(root, "Extract").click();
    expect(root.getAttribute("aria-busy")).toBe("true");
    const drawn = (): void =>
      expect(root.querySelector<HTMLElement>("[data-widget=submodel]")?.dataset.state).toBe("drawn");
    await vi.waitFor(drawn, { timeout: 20_000 });
    expect(host.extractions[0].slice(0, 2)).toEqual([["p"], ["q"]]);
    expect(text("[aria-label=Submodel] > header")).toMatch(/^g\.submodel/);
    expect(root.querySelector<HTMLElement>("[aria-label=Submodel] b")?.title).toMatch(/^In the kernel: 1 node, /);
    expect((root as HTMLElement & { onnxNb?: GraphView }).onnxNb?.submodel?.columns.meta.name).toBe("sub.onnx");
    buttonIn(root, "Save…").click();
    expect(root.querySelector<HTMLInputElement>("[aria-label='Path of the file']")?.value).toBe("/a/part.onnx");
    const bar = root.querySelector<HTMLElement>("[aria-label='Save the model']") as HTMLElement;
    buttonIn(bar, "Save").click();
    await settle();
    expect(bar.textContent).toContain("The file /a/part.onnx already exists.");
    buttonIn(bar, "Replace").click();
    await settle();
    expect(bar.textContent).toContain("Saved 12 kB to /a/part.onnx");
    expect(host.saves.map(([, replace]) => replace)).toEqual([false, true]);
    root.querySelector<HTMLButtonElement>("[aria-label='Close submodel']")?.click();
    expect(root.querySelector("[data-widget=submodel]")).toBeNull();
  });

  it("shows an error with its advice until it is dismissed", async () => {
    const view = show();
    choose(view);
    host.answer = () => Promise.reject(Object.assign(new Error("no"), { advice: "Add '26' to inputs." }));
    buttonIn(root, "Extract").click();
    await settle();
    expect(text("[role=alert]")).toContain("Add '26' to inputs.");
    expect(root.getAttribute("aria-busy")).toBe("false");
    buttonIn(root, "Dismiss").click();
    expect(root.querySelector<HTMLElement>("[role=alert]")?.hidden).toBe(true);
  });

  it("can be cancelled", async () => {
    const view = show();
    choose(view);
    host.answer = () => new Promise(() => undefined);
    buttonIn(root, "Extract").click();
    buttonIn(root, "Cancel").click();
    expect(host.extractions[0][2].aborted).toBe(true);
    await settle();
    expect(root.getAttribute("aria-busy")).toBe("false");
  });

  it("shows why it is impossible without a kernel", () => {
    host.live = false;
    const view = show();
    view.dispatch({ type: "select", target: target("tensor", "p") });
    expect(buttonIn(root, "Input").disabled).toBe(true);
    expect(buttonIn(root, "Extract").disabled).toBe(true);
    expect(text(".onnx-nb-extract")).toMatch(/kernel/);
    press("i");
    expect(view.state.boundary.inputs).toEqual([]);
  });
});

describe("bad models", () => {
  it("draws names that are HTML, very long or multi-line as text", async () => {
    const wild = "<img/src=x/onerror=alert(1)>";
    const columns = columnsOf(`
      input ${wild} 8 float32
      Relu ${"n".repeat(10_000)} : ${wild} -> 🐸
      output 🐸
    `);
    const view = show(columns);
    for (const name of [wild, "🐸"]) view.dispatch({ type: "select", target: columns.find(name) as Target });
    await settle();
    expect(root.querySelector("img, script")).toBeNull();
    expect(root.dataset.state).toBe("drawn");
    expect(Math.max(...drawn.texts.map((each) => each.length))).toBeLessThan(400);
  });

  it("shows the other content of a model with an empty graph", async () => {
    show(columnsOf("input x 3 float32\nweight W 3 float32"));
    await settle();
    expect(text(".onnx-nb-empty")).toContain("This model has no nodes.");
    expect(text(".onnx-nb-empty")).toContain("1 input, 0 outputs");
    expect(root.dataset.state).toBe("drawn");
  });

  it("lists faults with links to them", () => {
    const columns = columnsOf("input x 3 float32\nRelu a : x -> y\noutput y");
    const faults = [{ kind: "dangling_input", message: "node 'a' reads <b>", node: 0, value: -1 }];
    Object.assign(columns, { meta: { ...columns.meta, faults } });
    const view = show(columns);
    buttonIn(root, "1 fault").click();
    buttonIn(root, "node 'a' reads <b>").click();
    expect(view.state.selection).toEqual({ kind: "node", id: 0 });
  });

  it("keep their view where focus scrolls the body", () => {
    show();
    const body = root.querySelector(".onnx-nb-body") as HTMLElement;
    body.scrollTop = 101;
    body.dispatchEvent(new Event("scroll"));
    expect(body.scrollTop).toBe(0);
  });
});
