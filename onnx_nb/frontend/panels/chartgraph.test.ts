// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { createPlotArea, ErrorPlot } from "../charts/errorplot.ts";
import type { Pack } from "../protocol/codec.ts";
import { unpack } from "../protocol/codec.ts";
import { createTaskBar } from "../ui/task.ts";
import { createChartGraph, type GraphSource } from "./chartgraph.ts";
import type { GraphView } from "./graphview.ts";
import { buttonIn, furnish, MODEL, packOf, settle, stop } from "./testing.ts";

beforeEach(() => {
  furnish();
});

describe("the chosen range", () => {
  const shown = () => {
    const ranges: (readonly number[])[] = [];
    const numbers = Float64Array.from({ length: 21 }, (_, row) => 10 ** -row);
    const series = [{ kind: "cumulative" as const, numbers }];
    const errors = { count: 21, series, logarithmic: true, parts: [], odd: "" };
    const options = { first: -1, note: "", describe: String, onChoose: () => undefined };
    const onRange = (rows: readonly number[]): void => void ranges.push(rows);
    const plot = new ErrorPlot(errors, { ...options, onRange }, stop.signal);
    const surface = plot.element.querySelector<HTMLElement>("[role=slider]") as HTMLElement;
    const press = (key: string, shiftKey = false) =>
      surface.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey }));
    const point = (type: string, clientX: number) =>
      surface.dispatchEvent(new MouseEvent(type, { button: 0, clientX, clientY: 50 }));
    const x = (row: number): number => createPlotArea(errors, [0, 20], 1000, 600).x(row);
    return { plot, ranges, press, point, x };
  };

  it("is dragged over, and cleared by Escape", () => {
    const { ranges, press, point, x } = shown();
    point("pointerdown", x(8.4));
    point("pointermove", x(3));
    point("pointermove", x(4.6));
    point("pointerup", x(4.6));
    press("Escape");
    expect(ranges).toEqual([[5, 6, 7, 8], []]);
  });

  it("begins at the chosen row for the keyboard, which moves its end both ways", () => {
    const { plot, ranges, press } = shown();
    plot.choose(5);
    for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft"]) press(key, true);
    expect(ranges).toEqual([[5, 6], [5, 6, 7], [5, 6], [5], [4, 5]]);
  });

  it("can be shown in the whole width, of at least a few rows", () => {
    const { plot, press, point, x, ranges } = shown();
    const whole = plot.element.querySelector("button") as HTMLButtonElement;
    plot.chooseRange([6, 14]);
    plot.zoomToRange();
    expect(whole.hidden).toBe(false);
    // rows 6 to 14 take the whole width now
    point("pointerdown", x(0));
    point("pointermove", x(10));
    point("pointerup", x(10));
    expect(ranges.at(-1)).toEqual([6, 7, 8, 9, 10]);
    press("0");
    expect(whole.hidden).toBe(true);
  });
});

describe("the graph beside a chart", () => {
  /** two rows, of the first two nodes of the model */
  const shown = async (more: Partial<GraphSource> = {}) => {
    const chosen: number[] = [];
    const { arrays, meta } = await unpack(packOf());
    const numbers = { nodes: MODEL.nodeCount, scopes: MODEL.scopeCount };
    const overlays = Object.entries(numbers).map(
      ([name, n]) => [`overlay_${name}`, new Float64Array(n).fill(2)] as const,
    );
    const overlay = { label: "isolated", scale: "linear", reduce: "max", unmatched: 0 };
    const pack = { arrays: new Map([...arrays, ...overlays]), meta: { ...(meta as object), overlay } } as Pack;
    const task = createTaskBar(
      () => undefined,
      () => undefined,
      stop.signal,
    );
    const rows = {
      count: 2,
      name: (row: number) => `point ${row}`,
      nodesOf: (row: number) => [row],
      onChoose: (row: number) => chosen.push(row),
    };
    const graph = createChartGraph({ load: () => Promise.resolve(pack), ...more }, rows, task, stop.signal);
    document.body.append(graph.element, graph.bar, task.element);
    await settle();
    const view = (graph.element.firstElementChild as HTMLElement & { onnxNb: GraphView }).onnxNb;
    return { graph, view, chosen, task };
  };
  const chart = { zoomToRange: () => undefined, chooseRange: () => undefined };

  it("is colored, and lights and selects the node of a row", async () => {
    const { graph, view } = await shown();
    expect(view.state.overlay?.data.label).toBe("isolated");
    graph.events.onHover(1);
    expect(view.state.hover).toEqual({ kind: "node", id: 1 });
    graph.events.onHover(-1);
    expect(view.state.hover).toBeNull();
    graph.choose(1);
    expect(view.state.selection).toEqual({ kind: "node", id: 1 });
  });

  it("chooses the row of a node or tensor that a person selects", async () => {
    const { view, chosen } = await shown();
    view.dispatch({ type: "select", target: { kind: "node", id: 1 } });
    view.dispatch({ type: "select", target: { kind: "tensor", id: view.columns.outputsOf(0)[0] } });
    expect(chosen).toEqual([1, 0]);
  });

  it("says how many nodes a range has, and extracts them", async () => {
    const asked: (readonly number[])[] = [];
    const extract = (nodes: readonly number[]): Promise<string> => {
      asked.push(nodes);
      return Promise.resolve("Extracted 2 nodes");
    };
    const { graph, view, task } = await shown({ extract });
    graph.events.onRange([0, 1], chart);
    expect(graph.bar.textContent).toContain("2 nodes from point 0 to point 1");
    expect([view.state.selection, ...view.state.others].map((target) => target?.id).sort()).toEqual([0, 1]);
    buttonIn(graph.bar, "Extract this range").click();
    await settle();
    expect(asked).toEqual([[0, 1]]);
    expect(task.element.textContent).toContain("Extracted 2 nodes");
    graph.events.onRange([], chart);
    expect(graph.bar.hidden).toBe(true);
    expect(view.state.selection).toBeNull();
  });

  it("extracts nothing on a page without a kernel, and is not there where it cannot be loaded", async () => {
    const { graph } = await shown();
    graph.events.onRange([0, 1], chart);
    expect(buttonIn(graph.bar, "Extract this range").hidden).toBe(true);
    const gone = await shown({ load: () => Promise.reject(new Error("the kernel is gone")) }).catch(() => null);
    expect(gone?.graph.element.hidden ?? true).toBe(true);
  });
});
