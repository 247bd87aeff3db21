/**
 * What quantization costs: a table of the quantizers, the values of the chosen one before and after rounding, and what
 * the outputs gain if regions are put back to float.
 */

import { ErrorPlot, INFINITE } from "../charts/errorplot.ts";
import { heights } from "../charts/histogram.ts";
import type { Points } from "../protocol/comparison.ts";
import type { FloatRequest, TargetQualityRequest } from "../protocol/wire.ts";
import { countOf, formatNumber, integer, magnitude, seconds } from "../scene/formatting.ts";
import { button, choice, copyButton, el, elide, facts, fillings, paneHead, svg, textField } from "../ui/dom.ts";
import { numbers, Table, type TableColumn, texts } from "../ui/table.ts";
import type { OnProgress, TaskBar } from "../ui/task.ts";
import { figure } from "./pointdetail.ts";

/** The outputs with one more region in float, as of `analysis/view/quantizer_columns.py`; a number that is not finite is a text. */
export interface FloatStep {
  readonly name: string;
  readonly nodes: readonly string[];
  readonly sqnr: number | string;
  readonly kl: number | string;
  readonly top1: number | string;
  /** more than a run of the quantized model takes; NaN if it was not timed */
  readonly seconds?: number | string;
}

/** Changes what is in float, and returns a message. */
export type FloatChange = (
  verb: "float" | "worst" | "front" | "suggest" | "undo",
  parameters: FloatRequest | TargetQualityRequest | Record<string, never>,
  signal: AbortSignal,
  progress: OnProgress,
) => Promise<string>;

const percent = (x: number): string => (Number.isNaN(x) ? "" : x > 0 && x < 0.001 ? "<0.1 %" : figure("outside", x));

/** Returns columns with the shares of quantization in the isolated error of each point. */
export function blameColumns(points: Points): readonly TableColumn[] {
  if (points.quantizers === 0) return [];
  const column = (share: string, title: string, what: string): TableColumn =>
    numbers(share, title, [64, 0.4], points.column(`blame_${share}`), percent, {
      hint: `Share of ${what} in the isolated error`,
      spare: 0.4,
    });
  return [
    column("weights", "Weights", "rounded weights"),
    column("rounding", "Rounding", "rounded activations"),
    column("clipping", "Clipping", "clipped activations"),
  ];
}

const RMSE = "0.29 where values are anywhere between two levels";

export function quantizerColumns(points: Points): readonly TableColumn[] {
  const text = (name: string) => (row: number) => points.text(`quantizer_${name}`, row);
  const fault = text("fault");
  const faulty = Array.from({ length: points.quantizers }, (_, row) => fault(row)).some(Boolean);
  const number = (
    key: string,
    title: string,
    hint: string,
    name = key,
    write?: (x: number) => string,
    faults = "",
  ): TableColumn =>
    numbers(key, title, [Math.max(66, 7 * title.length + 8), 0.4], points.column(`quantizer_${name}`), write, {
      hint,
      isBad: (row) => fault(row) !== "" && faults.includes(fault(row)),
    });
  return [
    texts("tensor", "Tensor", [170, 3], text("name"), { names: true }),
    texts("type", "Type", [122, 0.5], (row) => `${text("dtype")(row)} ${text("role")(row)}`, { spare: 1 }),
    texts("per", "Per", [62, 0.4], text("granularity"), { spare: 2, hint: "What has a scale of its own" }),
    number("scale", "Scale", "The largest one", "scale", (x) => formatNumber(x, 3), "coarse outliers"),
    number("zero", "Zero point", "The integer that stands for 0", "zero_point", integer),
    number("clipped", "Clipped", "Values beyond the range of the integers", "clipped", percent, "clipping"),
    number("used", "Used", "Levels between the smallest and the largest value", "used", percent, "coarse"),
    { ...number("rmse", "RMSE ÷ scale", RMSE, "rmse_per_scale", (x) => formatNumber(x, 3)), spare: 0.5 },
    ...(faulty
      ? [texts("wrong", "What is wrong", [230, 4], (row) => fault(row) && text("message")(row), { isBad: () => true })]
      : []),
  ];
}

/** Returns what the pane shows of a quantizer. */
export function quantizerDetail(points: Points, row: number, actions: readonly HTMLElement[], signal: AbortSignal) {
  const text = (name: string): string => points.text(`quantizer_${name}`, row);
  const of = (name: string): number => points.column(`quantizer_${name}`)[row];
  const [leastValue, scale] = [of("least"), of("scale")];
  const scales = `${formatNumber(leastValue, 3)} to ${formatNumber(scale, 3)}`;
  return [
    ...paneHead(text("role"), text("name"), signal),
    el(text("fault") === "" ? "p.onnx-nb-dim" : "p.onnx-nb-difference", text("message")),
    el("div.onnx-nb-row", ...actions),
    ...rangeOf(points, row),
    facts([
      ["type", `${text("dtype")}, a scale per ${text("granularity")}`],
      ["scale", leastValue === scale ? formatNumber(scale, 4) : scales],
      ["zero point", integer(of("zero_point"))],
      ["range", `${formatNumber(of("low"), 4)} to ${formatNumber(of("high"), 4)}`],
      ["clipped", `${percent(of("clipped"))}, ${percent(of("above"))} above`],
      ["used levels", percent(of("used"))],
      ["RMSE ÷ scale", formatNumber(of("rmse_per_scale"), 3)],
      ["‖Δ‖/‖x‖", magnitude(of("relative"))],
      ["× a fitting scale", magnitude(of("excess"))],
      ["node", text("node")],
      ["region", points.text("name", points.column("quantizer_region")[row])],
    ]),
  ];
}

/** Draws values before and after rounding over each other, between the ends of the integers. */
function rangeOf(points: Points, row: number): Node[] {
  const ends = points.column("quantizer_end");
  const [from, to] = [row === 0 ? 0 : ends[row - 1], ends[row]];
  if (from === to) return [];
  const [before, after] = ["before", "after"].map((name) => points.column(`quantizer_${name}`).slice(from, to));
  const { steep, part } = heights([...before, ...after]);
  const bars = (counts: ArrayLike<number>, inset: number): string =>
    Array.from(counts, (count, at) =>
      count === 0 ? "" : `M${at + inset} 60v${(-60 * part(count)).toFixed(1)}h${1 - 2 * inset}V60z`,
    ).join("");
  const width = before.length;
  const viewBox = `0 0 ${width} 60`;
  const path = (kind: string, d: string): SVGElement => svg("path", { class: `onnx-nb-${kind}`, d });
  const marks = [width / 6, (5 * width) / 6].map((x) => `M${x} 0V60`).join("");
  const isPerTensor = points.text("quantizer_granularity", row) === "tensor";
  const [low, top] = ["low", "high"].map((name) => formatNumber(points.column(`quantizer_${name}`)[row], 3));
  const label = `Values before and after rounding, ${percent(points.column("quantizer_clipped")[row])} of them clipped`;
  return [
    el(
      "div.onnx-nb-errors-part",
      el(
        "h5",
        el("span.onnx-nb-key.onnx-nb-key-before", "float"),
        el("span.onnx-nb-key.onnx-nb-key-after", "quantized"),
        el("span.onnx-nb-dim", steep ? "log heights" : ""),
      ),
      svg(
        "svg",
        { class: "onnx-nb-range", viewBox, preserveAspectRatio: "none", role: "img", "aria-label": label },
        path("before", bars(before, 0)),
        path("after", bars(after, 0.25)),
        path("ends", marks),
      ),
      el(
        "div.onnx-nb-scale-ends.onnx-nb-range-ends",
        el("span", isPerTensor ? low : "lowest"),
        el("span", isPerTensor ? top : "highest"),
      ),
    ),
  ];
}

const MEASURES = [
  ["sqnr", "SQNR, dB", false],
  ["kl", "KL divergence", true],
  ["top1", "top-1 agreement", false],
] as const;

export type WhatIf = ReturnType<typeof createWhatIf>;

/**
 * Creates a curve of the outputs against the number of regions in float, and a table of these regions.
 *
 * @param change null without a kernel
 * @param onChoose is called with the name of the region of a step
 */
export function createWhatIf(
  change: FloatChange | null,
  task: TaskBar,
  onChoose: (name: string) => void,
  onUpdate: (regions: number) => void,
  signal: AbortSignal,
) {
  const filling = fillings(signal);
  let steps: readonly FloatStep[] = [];
  let at = 0;
  let plot: ErrorPlot | null = null;
  let measure: (typeof MEASURES)[number] = MEASURES[0];
  const onMeasure = (row: number): void => {
    measure = MEASURES[row];
    update();
  };
  const labels = MEASURES.map(([, label]) => label);
  const select = choice("Measure of the outputs", labels, onMeasure, signal);
  const run = (text: string, verb: Parameters<FloatChange>[0], parameters: Parameters<FloatChange>[1] = {}): void =>
    task.run(text, (abort, progress) => change?.(verb, parameters, abort, progress) ?? Promise.resolve(""));
  const act = (text: string, title: string, press: () => void): HTMLElement =>
    button(text, press, signal, { class: "onnx-nb-small onnx-nb-act", title });
  const suggest = (): void => run("Searching for the fewest nodes…", "suggest", { target: field.value });
  const enter = (text: string | null): void => {
    if (text !== null) suggest();
  };
  const properties = { class: "onnx-nb-field onnx-nb-target" };
  const field = textField("SQNR that the outputs have to reach", "30 dB", enter, signal, properties);
  const nodes = (): readonly string[] => steps.slice(0, at + 1).flatMap((step) => step.nodes);
  const quotations = (): string => Array.from(nodes(), (name) => JSON.stringify(name)).join(", ");
  const copy = copyButton(() => `nodes_to_exclude=[${quotations()}]`, signal, "Copy nodes_to_exclude");
  const status = el("span.onnx-nb-dim", { role: "status" });
  const tools =
    change === null
      ? []
      : [
          act("Worst first", WORST, () => run("Putting regions back to float…", "worst")),
          act("Best for its time", FRONT, () => run("Measuring what each layer gains and costs…", "front")),
          el("span.onnx-nb-row", field, act("Suggest", "Find few nodes with which the outputs reach this", suggest)),
          act("Undo", "Back to what was in float before", () => run("Going back…", "undo")),
        ];
  const graph = el("div");
  const order = el("span.onnx-nb-dim.onnx-nb-order", "regions in float →");
  const bar = el("div.onnx-nb-chart-bar", select, ...tools, copy, status, order);
  const label = "Outputs against regions in float";
  const chart = el("section.onnx-nb-chart", { "aria-label": label, hidden: true }, bar, graph);
  const [element, filter] = [el("div.onnx-nb-steps"), el("div.onnx-nb-filter")];
  const say = (row: number): string => {
    const step = steps[row];
    if (step === undefined) return "Nothing is in float: put a region back, or let the kernel find some.";
    const [sqnr, kl, top1] = MEASURES.map(([key]) => Number(step[key]));
    const content = row === 0 ? "nothing" : `${countOf(row, "region")}, ${countOf(nodes().length, "node")}`;
    const details = Number.isNaN(kl) ? "" : `, KL ${magnitude(kl)}, top-1 ${percent(top1)}`;
    return `${content} in float: ${figure("sqnr", sqnr)} dB${details}`;
  };
  const choose = (row: number, table: Table): void => {
    if (row < 0) return;
    at = row;
    table.choose(row);
    plot?.choose(row);
    status.textContent = say(row);
    if (row > 0) onChoose(steps[row].name);
  };
  const update = (): void => {
    const round = filling();
    const table = stepsTable(steps, (row) => choose(row, table), round);
    plot = stepsPlot(steps, measure, say, (row) => choose(row, table), round);
    graph.replaceChildren(plot.element);
    element.replaceChildren(table.element);
    filter.replaceChildren(table.filter);
    at = Math.min(at, Math.max(0, steps.length - 1));
    if (steps.length > 0) {
      table.choose(at);
      plot.choose(at);
    }
    status.textContent = say(at);
  };
  return {
    chart,
    /** for `createTableTabs` */
    pane: { element, filter },
    /** Shows what is in float now. */
    show(now: readonly FloatStep[]): void {
      steps = now;
      at = Math.max(0, steps.length - 1);
      update();
      onUpdate(at);
    },
    redraw: (): void => plot?.redraw(),
    /** Puts a region back to float, in addition to those up to the chosen step. */
    put: (name: string): void => run(`Putting ${elide(name, 80)} back to float…`, "float", { name, count: at }),
  };
}

const nameOf = (step: FloatStep): string => step.name || "all quantized";
const WORST = "Put all regions back, the worst first, and measure the outputs after each";
const FRONT = "Profile both models, and find the layers that gain most for the time they cost";
const TIME = "How much longer a run takes than that of the quantized model, by the kernels of both";
const signedTime = (x: number): string => `${x > 0 ? "+" : x < 0 ? "−" : ""}${seconds(Math.abs(x), 3)}`;
const measure = (steps: readonly FloatStep[], key: (typeof MEASURES)[number][0] | "seconds"): Float64Array =>
  Float64Array.from(steps, (step) => Number(step[key]));

/** Creates a table of the regions in the order in which they came to be in float. */
function stepsTable(steps: readonly FloatStep[], onChoose: (row: number) => void, signal: AbortSignal): Table {
  const places = Float64Array.from(steps, (_, row) => row);
  const times = measure(steps, "seconds");
  return new Table(
    {
      label: "Regions in float",
      noun: "step",
      count: steps.length,
      columns: [
        numbers("float", "In float", [60, 0.3], places, integer),
        texts("region", "Region", [150, 3], (row) => nameOf(steps[row]), { names: true }),
        texts("nodes", "Nodes", [100, 2], (row) => steps[row].nodes.join(", "), { spare: 1 }),
        numbers("sqnr", "SQNR dB", [72, 0.4], measure(steps, "sqnr"), (x) => figure("sqnr", x)),
        numbers("kl", "KL", [64, 0.4], measure(steps, "kl"), magnitude),
        numbers("top1", "Top-1", [64, 0.4], measure(steps, "top1"), percent),
        ...(times.every(Number.isNaN) ? [] : [numbers("time", "Time", [72, 0.4], times, signedTime, { hint: TIME })]),
      ],
      onChoose,
    },
    signal,
  );
}

/** Creates the curve of a measure of the outputs. */
function stepsPlot(
  steps: readonly FloatStep[],
  [key, , logarithmic]: (typeof MEASURES)[number],
  say: (row: number) => string,
  onChoose: (row: number) => void,
  signal: AbortSignal,
): ErrorPlot {
  const values = measure(steps, key).map((x) => (x === -Infinity ? Number.NaN : x));
  return new ErrorPlot(
    { count: steps.length, series: [{ kind: "cumulative", numbers: values }], logarithmic, parts: [], odd: INFINITE },
    {
      label: "Outputs against regions in float",
      first: -1,
      describe: (row) => `${nameOf(steps[row])}: ${say(row)}`,
      tooltip: (row) => [
        el("b", elide(nameOf(steps[row]), 70)),
        el("div", `${integer(row)} in float: ${figure(key, values[row])}`),
      ],
      onChoose,
      note: steps.length > 1 ? "" : "Nothing is in float.",
    },
    signal,
  );
}
