/** The panel of a comparison: where errors begin, all points in a table, and details of the chosen one. */

import type { ChartOptions } from "../charts/chart.ts";
import { ErrorPlot, type ErrorSeries } from "../charts/errorplot.ts";
import { spark } from "../charts/histogram.ts";
import type { Pack } from "../protocol/codec.ts";
import { type Details, ERROR_KINDS, type ErrorKind, type Points, STATE } from "../protocol/comparison.ts";
import { countOf, integer, magnitude, percent } from "../scene/formatting.ts";
import { button, choice, el, elide, fillings, svg } from "../ui/dom.ts";
import { createMenu, type Entry, type Menu } from "../ui/menu.ts";
import { stack, stillOf } from "../ui/still.ts";
import {
  barColumn,
  createTableTabs,
  csvOf,
  numbers,
  type RowColumn,
  Table,
  type TableColumn,
  type TableOptions,
  tablesBelow,
  texts,
} from "../ui/table.ts";
import { createPanelTask, type OnProgress, type TaskBar } from "../ui/task.ts";
import { createChartGraph, type GraphSource } from "./chartgraph.ts";
import { download, pixelsOf } from "./export.ts";
import { createPointDetail, figure } from "./pointdetail.ts";
import {
  blameColumns,
  createWhatIf,
  type FloatChange,
  type FloatStep,
  quantizerColumns,
  quantizerDetail,
  type WhatIf,
} from "./quantizers.ts";

export interface ComparisonOptions {
  readonly height?: number;
  readonly metric?: string;
  /** a person chose a point, "" for none */
  readonly onChoose?: (name: string) => void;
  readonly onMetric?: (metric: string) => void;
  /** the graph of the model, which stands beside the chart; absent where there is none */
  readonly graph?: GraphSource;
  /** loads the details of a point beyond its metrics */
  readonly detail: (row: number, signal: AbortSignal) => Promise<Details>;
  /** writes the whole comparison as a page */
  readonly page?: (signal: AbortSignal, progress: OnProgress) => Promise<Uint8Array>;
  /** extracts a point's module, and returns a message with its path */
  readonly reproduce?: (name: string, signal: AbortSignal, progress: OnProgress) => Promise<string>;
  /** shows the operations in a point's module, and returns "" */
  readonly drill?: (name: string, signal: AbortSignal, progress: OnProgress) => Promise<string>;
  /** a person chose a quantizer */
  readonly onQuantizer?: (tensor: string) => void;
  /** changes which regions are in float */
  readonly change?: FloatChange;
  readonly steps?: readonly FloatStep[];
  /** a button that leads back */
  readonly back?: { readonly text: string; readonly go: () => void };
}

export type ComparisonView = ReturnType<typeof createComparison>;

export function createComparison(root: HTMLElement, points: Points, options: ComparisonOptions, signal: AbortSignal) {
  const { about } = points;
  const title = elide(`${about.reference} and ${about.candidate}`, 120);
  root.classList.add("onnx-nb-comparison");
  root.style.setProperty("--nb-height", `${options.height ?? 560}px`);
  let chosenRow = -1;
  const { live, announce, task } = createPanelTask(root, signal);
  const choose = (row: number, person: boolean): void => {
    if (row === chosenRow) return;
    chosenRow = row;
    table.choose(row);
    layers.choose(points.layerOf(row));
    chart.plot.choose(row);
    graph.choose(row);
    detail.show(row);
    if (row >= 0) announce(`${points.text("name", row)}, ${chart.errorsOf(row)}`);
    if (person) options.onChoose?.(row < 0 ? "" : points.text("name", row));
  };
  const pick = (row: number): void => choose(row, true);
  const rows = {
    count: points.count,
    name: (row: number): string => points.text("name", row),
    nodesOf: (row: number, { arrays }: Pack): number[] => [arrays.get("row_node")?.[row] ?? -1].filter((id) => id >= 0),
    onChoose: pick,
  };
  const graph = createChartGraph(options.graph, rows, task, signal);
  const onMetric = (metric: string): void => options.onMetric?.(metric);
  const hasWhatIf = points.quantizers > 0 && (options.change !== undefined || (options.steps ?? []).length > 1);
  const onRegion = (name: string): void => void (points.rowOf(name) >= 0 && pick(points.rowOf(name)));
  const onUpdate = (regions: number): void => tabs.buttons.at(-1)?.replaceChildren(`In float (${integer(regions)})`);
  const whatIf = hasWhatIf ? createWhatIf(options.change ?? null, task, onRegion, onUpdate, signal) : null;
  const chart = createErrorSection(
    points,
    options.metric ?? "rel_l2",
    { onChoose: pick, onMetric, ...graph.events },
    signal,
  );
  chart.bar.append(graph.bar);
  const isDark = (): boolean => root.classList.contains("onnx-nb-dark");
  const actionsOf = (row: number, round: AbortSignal): HTMLElement[] =>
    pointActions(points, row, options, task, whatIf, round);
  const detail = createPointDetail(points, options.detail, isDark, actionsOf, signal);
  const scales = createScales(points, options, whatIf, title, signal);
  const [layers, table, missing] = tablesOf(points, title, pick, () => detail.element.focus(), signal);
  const turn = (tab: number): void => {
    const floats = whatIf !== null && tab === 4;
    chart.element.hidden = floats;
    if (whatIf !== null) whatIf.chart.hidden = !floats;
    if (scales !== null) scales.detail.hidden = tab !== 3;
    detail.element.hidden = scales !== null && tab === 3;
  };
  const tabs = createTableTabs(
    [
      ["Layers", points.layers, layers],
      ["Points", points.count, table],
      ["Unmatched", points.missingCount, missing],
      ...(scales === null ? [] : [["Scales", points.quantizers, scales.table] as const]),
      ...(whatIf === null ? [] : [["In float", 0, whatIf.pane] as const]),
    ],
    signal,
    turn,
  );
  whatIf?.show(options.steps ?? []);
  tabs.buttons[0].hidden = points.layers < 2;
  tabs.buttons[2].disabled = points.missingCount === 0;
  // the operations inside a point are what a person drilled for
  const hasOnlyMissing = points.count === 0 && points.missingCount > 0;
  tabs.show(points.layers > 1 && options.back === undefined ? 0 : hasOnlyMissing ? 2 : 1);
  const content = {
    svg: () => {
      const stills = [...header.querySelectorAll(".onnx-nb-announced"), chart.element].map((part) =>
        stillOf(part, false),
      );
      return stack(stills, getComputedStyle(root).backgroundColor);
    },
    csv: () => pointsCsv(points, table.rows),
  };
  const save = saveMenu(points, content, options, task, signal);
  const linkNote = el("span.onnx-nb-dim.onnx-nb-linked");
  const goToFirst = (): void => {
    chosenRow = -1; // scroll it into view again
    pick(about.first);
  };
  const header = headerOf(points, options.back, linkNote, goToFirst, save.element, signal);
  const below = tablesBelow([...tabs.buttons, ...tabs.filters], tabs.tables);
  const emptyNote = el("p.onnx-nb-nothing.onnx-nb-dim", "There is nothing to show.");
  const left = el("div.onnx-nb-comparison-left", chart.element, whatIf?.chart ?? null);
  const body =
    points.count > 0
      ? [left, graph.element, detail.element, scales?.detail ?? null]
      : [points.missingCount > 0 ? below : emptyNote];
  if (points.count > 0) left.append(below);
  root.replaceChildren(
    header,
    task.element,
    el(`div.onnx-nb-comparison-body${points.count > 0 ? "" : ".onnx-nb-pointless"}`, ...body),
    live,
  );
  return {
    /** Chooses a point by name, "" for none. */
    choose: (name: string): void => choose(points.rowOf(name), false),
    setMetric: chart.setMetric,
    /** Shows which regions are in float. */
    setSteps: (steps: readonly FloatStep[]): void => whatIf?.show(steps),
    /** Shows the name of the linked graph, "" for none. */
    setLink: (text: string): void => linkNote.replaceChildren(elide(text, 200)),
    redraw(): void {
      chart.plot.redraw();
      whatIf?.redraw();
      detail.redraw();
    },
  };
}

/** Creates the tables of the layers, of the points, and of the values without one. */
function tablesOf(
  points: Points,
  title: string,
  onChoose: (row: number) => void,
  onActivate: () => void,
  signal: AbortSignal,
): [Table, Table, Table] {
  const sorting = points.about.isolated ? { sorting: { key: "score", descending: true } } : {};
  const tableOf = (name: string, options: Omit<TableOptions, "label">): Table =>
    new Table({ label: `${name} of ${title}`, ...options }, signal);
  const goTo = (layer: number): void => onChoose(layer < 0 ? -1 : points.column("layer_point")[layer]);
  const [layers, rows, values] = [layerColumns, pointColumns, missingColumns].map((columns) => columns(points));
  const [hidden, count] = [judgedColumns(points), points.count];
  return [
    tableOf("Layers", { noun: "layer", count: points.layers, columns: layers, onChoose: goTo, onActivate }),
    tableOf("Points", { noun: "point", count, columns: rows, hidden, onChoose, onActivate, ...sorting }),
    tableOf("Unmatched values", { noun: "value", count: points.missingCount, columns: values }),
  ];
}

function headerOf(
  points: Points,
  back: ComparisonOptions["back"],
  linkNote: HTMLElement,
  goToFirst: () => void,
  save: HTMLElement,
  signal: AbortSignal,
): HTMLElement {
  const { about, count, missingCount } = points;
  const verdict = about.first >= 0 ? "bad" : count === 0 || about.outside > 0 ? "caution" : "fine";
  const facts = [
    `${elide(about.candidate, 48)} against ${elide(about.reference, 48)}`,
    countOf(count, "point") +
      (about.outside > 0 ? `, ${integer(about.outside)} outside of the tolerance` : "") +
      (missingCount > 0 ? `, ${integer(missingCount)} unmatched` : ""),
    countOf(about.feeds, "run"),
  ];
  const message = el("b.onnx-nb-said", elide(about.message, 600));
  const hint = "Choose the first point that differs";
  const first = button("Show it", goToFirst, signal, { class: "onnx-nb-small", title: hint });
  first.hidden = about.first < 0;
  return el(
    "header.onnx-nb-bar",
    back === undefined ? null : button(back.text, back.go, signal, { title: "Back to all points" }),
    el(`span.onnx-nb-lamp.onnx-nb-${verdict}`, { "aria-hidden": true }),
    el("div.onnx-nb-announced", message, el("span.onnx-nb-dim", facts.join(" · ")), linkNote),
    first,
    save,
  );
}

/** Creates the table of quantizers and the pane of the chosen one; null where nothing is quantized. */
function createScales(
  points: Points,
  { onQuantizer }: ComparisonOptions,
  whatIf: WhatIf | null,
  title: string,
  signal: AbortSignal,
) {
  if (points.quantizers === 0) return null;
  const detail = el("aside.onnx-nb-detail", { "aria-label": "The quantizer", tabindex: 0, hidden: true });
  const filling = fillings(signal);
  const show = (row: number): void => {
    const round = filling();
    const region = points.column("quantizer_region")[row];
    const parts =
      row < 0
        ? [el("p.onnx-nb-dim", "Choose a tensor to see how it is rounded.")]
        : quantizerDetail(points, row, floatAction(points, region, whatIf, round), round);
    detail.replaceChildren(...parts);
  };
  const onChoose = (row: number): void => {
    show(row);
    if (row >= 0) onQuantizer?.(points.text("quantizer_name", row));
  };
  const options = { label: `Quantizers of ${title}`, noun: "quantizer", count: points.quantizers };
  const onActivate = (): void => detail.focus();
  const table = new Table({ ...options, columns: quantizerColumns(points), onChoose, onActivate }, signal);
  show(-1);
  return { table, detail };
}

function floatAction(points: Points, row: number, whatIf: WhatIf | null, signal: AbortSignal): HTMLElement[] {
  const [region, why] = [points.text("name", row), points.text("fixed", row)];
  if (why !== "") return [el("span.onnx-nb-dim", why)];
  if (whatIf === null) return [];
  const title = `Put ${elide(region, 80)} back to float, and run what lies behind it`;
  return [button("Put back to float", () => whatIf.put(region), signal, { class: "onnx-nb-small onnx-nb-act", title })];
}

const DRILL = "Compare the operations inside, each with its line of Python";
const REPRODUCE = "Extract its part of the model, with torch's inputs and outputs";

function pointActions(
  points: Points,
  row: number,
  { reproduce, drill }: ComparisonOptions,
  task: TaskBar,
  whatIf: WhatIf | null,
  signal: AbortSignal,
): HTMLElement[] {
  const name = points.text("name", row);
  const isQuantizer = points.quantizers > 0 && points.column("quantizer_region").includes(row as never);
  const actions = [
    ["Drill down", DRILL, "Comparing the operations inside", drill],
    ["Reproduce", REPRODUCE, "Extracting", reproduce],
  ] as const;
  const buttons = isQuantizer ? floatAction(points, row, whatIf, signal) : [];
  return buttons.concat(
    actions.flatMap(([text, title, doing, work]) => {
      if (work === undefined) return [];
      const run = (): void =>
        task.run(`${doing} ${elide(name, 80)}…`, (abort, progress) => work(name, abort, progress));
      return button(text, run, signal, { class: "onnx-nb-small onnx-nb-act", title, "aria-disabled": task.busy });
    }),
  );
}

function saveMenu(
  points: Points,
  content: { svg(): string; csv(): string },
  { page }: ComparisonOptions,
  task: TaskBar,
  signal: AbortSignal,
): Menu {
  const name = `${points.about.candidate.replace(/\.onnx$/i, "")} errors`;
  const menu = createMenu("Save", "Save a picture, the table, or a page", signal);
  const entry = (extension: string, what: string, title: string, make: () => string | Promise<Blob>): Entry => {
    const save = async (): Promise<void> => download(await make(), name, extension);
    return { text: `${extension.toUpperCase()} of the ${what}`, title, act: () => void save().catch(task.fail) };
  };
  const pictures = [
    entry("svg", "plot", "Vector graphics, as it is shown", content.svg),
    entry("png", "plot", "Pixels, at twice its size", () => pixelsOf(content.svg())),
  ];
  const table = entry("csv", "table", "The points that are shown, every metric with all digits", content.csv);
  const writePage = async (abort: AbortSignal, progress: OnProgress): Promise<string> => {
    const html = await page?.(abort, progress);
    if (html !== undefined) download(html, name, "html");
    return "";
  };
  const act = (): void => task.run("Writing the page…", writePage);
  const html = { text: "HTML page", title: "This panel in one file that works offline", act };
  menu.offer([...(points.count > 0 ? pictures : []), table, ...(page === undefined ? [] : [html])]);
  return menu;
}

/** Creates the chart of errors against depth, with a choice of the metric and a key for each kind of error. */
function createErrorSection(
  points: Points,
  start: string,
  events: Pick<ChartOptions, "onChoose" | "onHover" | "onRange"> & { readonly onMetric: (metric: string) => void },
  signal: AbortSignal,
) {
  const { metrics, first } = points.about;
  let metric = metrics.find(({ key }) => key === start) ?? { key: "rel_l2", label: "rel_l2", logarithmic: true };
  const kinds = ERROR_KINDS.filter((kind) => points.has(`${kind}_state`));
  const shownKinds = new Set<ErrorKind>(kinds);
  const parts = points.about.parts.map(([row, label]) => [row, elide(label, 24)] as const);
  const odd = oddValues(points);
  const data = (): ErrorSeries => ({
    count: points.count,
    series: kinds
      .filter((kind) => shownKinds.has(kind))
      .map((kind) => ({ kind, numbers: seriesOf(points, kind, metric.key) })),
    logarithmic: metric.logarithmic,
    parts,
    odd,
  });
  /** Describes the errors of a point: "isolated 1.0e−2, cumulative 3.0e−2". */
  const errorsOf = (row: number): string =>
    [...ERROR_KINDS]
      .reverse()
      .filter((kind) => points.state(kind, row) !== STATE.UNKNOWN)
      .map((kind) => `${kind} ${errorText(points, kind, metric.key, row)}`)
      .join(", ");
  const plot = new ErrorPlot(
    data(),
    {
      first,
      describe: (row) => elide(`${points.text("name", row)}, ${points.text("op_type", row)}, ${errorsOf(row)}`, 300),
      tooltip: (row) => [
        el("b", elide(points.text("name", row), 70)),
        el("span.onnx-nb-dim", ` ${elide(points.text("op_type", row), 40)}`),
        el("div", errorsOf(row)),
      ],
      ...events,
      note: noteOf(points),
    },
    signal,
  );
  const key = (kind: ErrorKind): HTMLElement => {
    const press = (): void => {
      if (shownKinds.has(kind) && shownKinds.size > 1) shownKinds.delete(kind);
      else shownKinds.add(kind);
      element.setAttribute("aria-pressed", String(shownKinds.has(kind)));
      plot.show(data());
    };
    const title = kind === "isolated" ? "Its own error, given the reference's values" : "Each side ran by itself";
    const shape = { class: `onnx-nb-key onnx-nb-key-${kind}`, title, "aria-pressed": true };
    const element = button(kind, press, signal, shape);
    return element;
  };
  const choose = (at: number): void => {
    setMetric(metrics[at].key);
    events.onMetric(metric.key);
  };
  const labels = metrics.map(({ label }) => label);
  const select = choice("Metric", labels, choose, signal);
  select.title = "Metric of the chart";
  metrics.forEach(({ key }, at) => {
    const option = select.options[at];
    option.value = key;
    option.disabled = !ERROR_KINDS.some((kind) => points.numbers(kind, key).some((x) => !Number.isNaN(x)));
  });
  select.value = metric.key;
  const setMetric = (key: string): void => {
    const choice = metrics.find((candidate) => candidate.key === key);
    if (choice === undefined || key === metric.key) return;
    metric = choice;
    select.value = key;
    plot.show(data());
  };
  const order = el("span.onnx-nb-dim.onnx-nb-order", "in order of execution →");
  const bar = el("div.onnx-nb-chart-bar", select, ...kinds.map(key), order);
  const element = el("section.onnx-nb-chart", { "aria-label": "Errors against depth" }, bar, plot.element);
  return { element, bar, plot, setMetric, errorsOf };
}

/** Returns the numbers of a metric; infinite where only one side is NaN, since no other number counts then. */
function seriesOf(points: Points, kind: ErrorKind, metric: string): Float64Array {
  const numbers = points.numbers(kind, metric);
  if (metric === "mismatches") return numbers;
  return numbers.map((x, row) => {
    if (points.state(kind, row) === STATE.MISMATCHED) return Number.POSITIVE_INFINITY;
    return Number.isFinite(x) ? x : Number.NaN; // decibels of equal values are infinite
  });
}

function errorText(points: Points, kind: ErrorKind, metric: string, row: number): string {
  if (points.state(kind, row) === STATE.MISMATCHED && metric !== "mismatches") {
    return isText(points, row) ? "texts differ" : "NaN or Inf on one side";
  }
  return figure(metric, points.numbers(kind, metric)[row]);
}

/** Returns the label of the points without an error. */
function oddValues(points: Points): string {
  const hasOdd = (row: number): boolean => ERROR_KINDS.some((kind) => points.state(kind, row) === STATE.MISMATCHED);
  const rows = Array.from({ length: points.count }, (_, row) => row).filter(hasOdd);
  const labels = new Set(rows.map((row) => (isText(points, row) ? "texts" : "NaN, Inf")));
  return labels.size === 1 ? [...labels][0] : "NaN, texts";
}

function noteOf(points: Points): string {
  if (points.count === 0) return "There are no points to draw.";
  const rows = Array.from({ length: points.count }, (_, row) => row);
  if (rows.some((row) => ERROR_KINDS.some((kind) => points.state(kind, row) > STATE.EQUAL))) return "";
  return `All ${countOf(points.count, "point")} are equal, to the last bit.`;
}

function layerColumns(points: Points): readonly TableColumn[] {
  const [share, error] = ["layer_share", "layer_error"].map((name) => points.column(name) as Float64Array);
  const worst = (name: string) => (layer: number) => points.text(name, points.column("layer_point")[layer]);
  const hint = "Part of what all layers add: of the sum of the squares of their isolated errors";
  return [
    texts("layer", "Layer", [180, 3], (layer) => points.text("layer", layer), { names: true }),
    barColumn(share, () => "var(--nb-accent)", 1),
    numbers("share", "Share", [56, 0.3], share, percent, { hint }),
    numbers("error", "Isolated", [58, 0.4], error, magnitude, { hint: ISOLATED }),
    texts("op", "Op", [72, 0.9], worst("op_type"), { spare: 0.5 }),
    texts("worst", "Worst point", [120, 1], worst("name"), { names: true, spare: 2 }),
  ];
}

function missingColumns(points: Points): readonly TableColumn[] {
  const { reference, candidate } = points.about;
  const side = (row: number): string => (points.column("missing_side")[row] === 1 ? candidate : reference);
  return [
    texts("value", "Value", [160, 2], (row) => points.text("missing_name", row), { names: true }),
    texts("op", "Op", [80, 0.7], (row) => points.text("missing_op_type", row)),
    texts("side", "Only in", [90, 0.8], side),
    texts("reason", "Why", [200, 3], (row) => points.text("missing_reason", row)),
  ];
}

type MetricNumbers = (kind: ErrorKind, metric: string) => Float64Array;

const metricColumns = (points: Points, of: MetricNumbers): RowColumn[] =>
  ERROR_KINDS.filter((kind) => points.has(`${kind}_state`)).flatMap((kind) =>
    points.about.metrics.map(({ key }) => ({ key: `${kind}_${key}`, numbers: of(kind, key) })),
  );

/** Returns every metric for filters, as `Comparison.failed` has it: worse than any bound where only one side is NaN. */
function judgedColumns(points: Points): RowColumn[] {
  const { metrics } = points.about;
  const of: MetricNumbers = (kind, metric) => {
    const worstValue = metrics.find(({ key }) => key === metric)?.higher_is_better ? -Infinity : Infinity;
    const counts = metric === "mismatches" || metric === "outside";
    return points
      .numbers(kind, metric)
      .map((x, row) => (points.state(kind, row) === STATE.MISMATCHED && !counts ? worstValue : x));
  };
  return [...metricColumns(points, of), ...metrics.map(({ key }) => ({ key, numbers: bestOf(points, key, of) }))];
}

/** Returns every metric of some points as a CSV file. */
function pointsCsv(points: Points, rows: ArrayLike<number>): string {
  const text = (key: string, name = key): RowColumn => ({ key, text: (row) => points.text(name, row) });
  const metrics = metricColumns(points, points.numbers.bind(points));
  const names = ["reference", "candidate", "matched", "node", "source", "shape", "dtype"];
  const columns = [text("point", "name"), text("op", "op_type"), ...names.map((name) => text(name))];
  if (points.about.isolated) columns.push({ key: "score", numbers: points.score });
  return csvOf([...columns, ...metrics], rows);
}

/** Returns whether the values of a point are texts, which may differ but have no error. */
function isText(points: Points, row: number): boolean {
  return points.text("dtype", row).includes("string");
}

function pointColumns(points: Points): readonly TableColumn[] {
  const { isolated, first } = points.about;
  const mismatches = bestOf(points, "mismatches");
  const isBad = (row: number): boolean => row === first || mismatches[row] > 0;
  const size = (x: number, row: number): string =>
    x !== Number.POSITIVE_INFINITY ? magnitude(x) : isText(points, row) ? "texts" : "NaN, Inf";
  const scoreHint = "Isolated error ÷ the median of points of its kind, or ÷ what rounding explains if that is more";
  const errorHint = isolated ? "The largest error; isolated where that is known" : "The largest error";
  const matching = "How the values of both sides were found to correspond";
  const errorOptions = { hint: "‖Δ‖/‖x‖ where each side ran by itself", ...(!isolated && { isBad }) };
  const odd = { hint: "NaN or Inf on one side only, or texts that differ", isBad };
  return [
    texts("point", "Point", [points.quantizers > 0 ? 130 : 226, 3], (row) => points.text("name", row), { names: true }),
    // names of torch modules contain their kind, so this column can be left out
    texts("op", "Op", [72, 0.9], (row) => points.text("op_type", row) || "input", { spare: 0.5 }),
    texts("matched", "Matched", [56, 0.3], (row) => points.text("matched", row), { spare: 3, hint: matching }),
    ...(isolated
      ? [
          numbers("score", "× usual", [58, 0.4], points.score, times, { hint: scoreHint, isBad }),
          numbers("isolated", "Isolated", [58, 0.4], worstOf(points, "isolated"), size, { hint: ISOLATED, isBad }),
        ]
      : []),
    ...blameColumns(points),
    numbers("cumulative", "Cumulative", [80, 0.4], worstOf(points, "cumulative"), size, errorOptions),
    numbers("max_abs", "max |Δ|", [58, 0.4], bestOf(points, "max_abs"), magnitude, { spare: 1, hint: errorHint }),
    numbers("sqnr", "SQNR dB", [58, 0.4], bestOf(points, "sqnr"), (x) => figure("sqnr", x), { spare: 2, hint: NOISE }),
    ...(mismatches.some((x) => x > 0)
      ? [numbers("mismatches", "Odd values", [72, 0.4], mismatches, (x) => (x > 0 ? integer(x) : ""), odd)]
      : []),
    {
      key: "histogram",
      title: "|Δ|",
      hint: "Distribution of the absolute errors, on one axis for all points",
      width: [64, 0],
      draw: (row) => sparkline(points, row, isBad(row)),
    },
  ];
}

const ISOLATED = "‖Δ‖/‖x‖ of its own error";
const NOISE = "Signal to quantization noise";

/** Returns the isolated error of each point where it is known, else the cumulative one. */
function bestOf(points: Points, metric: string, of: MetricNumbers = points.numbers.bind(points)): Float64Array {
  const [isolatedErrors, all] = [of("isolated", metric), of("cumulative", metric)];
  if (!points.about.isolated) return all;
  return isolatedErrors.map((x, row) => (points.bestKind(row) === "isolated" ? x : all[row]));
}

/** Returns the relative error of each point; infinite where only one side is NaN, so that these come first. */
function worstOf(points: Points, kind: ErrorKind): Float64Array {
  const byState = new Map<number, number>([
    [STATE.MISMATCHED, Number.POSITIVE_INFINITY],
    [STATE.EQUAL, 0],
    [STATE.UNKNOWN, Number.NaN],
  ]);
  return points.numbers(kind, "rel_l2").map((x, row) => byState.get(points.state(kind, row)) ?? x);
}

/** Formats a ratio: 0.02 → "<0.1×", 3 → "3.0×", 120 → "120×". */
function times(x: number): string {
  if (Number.isNaN(x)) return "";
  if (x === 0) return "0";
  if (x < 0.05) return "<0.1×";
  return `${x >= 1e4 ? magnitude(x) : x >= 9.95 ? integer(x) : x.toFixed(1)}×`;
}

/** Draws the absolute errors of a point on an axis that all points share; larger errors are further right. */
function sparkline(points: Points, row: number, isBad: boolean): Element | null {
  const counts = points.spark(row);
  if (counts.every((count) => count === 0)) return null;
  const [low, high] = points.sparkEnds;
  const title = svg("title", {});
  title.textContent = `absolute errors, from 1e${low} to 1e${high}`.replaceAll("-", "−");
  const picture = spark(counts, 255, isBad);
  picture.prepend(title);
  return picture;
}
