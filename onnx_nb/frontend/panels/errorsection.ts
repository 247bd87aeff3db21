/** The chart of a comparison: errors against depth, with the metric to draw and a key for each kind of error. */

import { ErrorPlot } from "../charts/errorplot.ts";
import type { ErrorSeries } from "../charts/plotarea.ts";
import { type Points, STATE, WHICH, type Which } from "../protocol/comparison.ts";
import { counted } from "../scene/formatting.ts";
import { isText } from "./comparisontables.ts";
import { button, el, elide, on } from "./dom.ts";
import { figure } from "./pointerrors.ts";

export interface ErrorSection {
  readonly element: HTMLElement;
  readonly plot: ErrorPlot;
  setMetric(key: string): void;
  /** Describes the errors of a point: "isolated 1.0e−2, cumulative 3.0e−2". */
  errorsOf(row: number): string;
}

export function createErrorSection(
  points: Points,
  start: string,
  events: { readonly chosen: (row: number) => void; readonly turned: (metric: string) => void },
  signal: AbortSignal,
): ErrorSection {
  const { metrics, first } = points.about;
  let metric = metrics.find(({ key }) => key === start) ?? { key: "rel_l2", label: "rel_l2", logarithmic: true };
  const available = WHICH.filter((which) => points.has(which));
  const shown = new Set<Which>(available);
  const parts = points.about.parts.map(([row, label]) => [row, elide(label, 24)] as const);
  const odd = oddValues(points);
  const data = (): ErrorSeries => ({
    count: points.count,
    series: available
      .filter((which) => shown.has(which))
      .map((which) => ({ which, numbers: seriesOf(points, which, metric.key) })),
    logarithmic: metric.logarithmic,
    parts,
    odd,
  });
  const errorsOf = (row: number): string =>
    [...WHICH]
      .reverse()
      .filter((which) => points.state(which, row) !== STATE.UNKNOWN)
      .map((which) => `${which} ${errorText(points, which, metric.key, row)}`)
      .join(", ");
  const plot = new ErrorPlot(
    data(),
    {
      metric: metric.label,
      first,
      describe: (row) => elide(`${points.text("name", row)}, ${points.text("op_type", row)}, ${errorsOf(row)}`, 300),
      tooltip: (row) => [
        el("b", elide(points.text("name", row), 70)),
        el("span.onnx-nb-dim", ` ${elide(points.text("op_type", row), 40)}`),
        el("div", errorsOf(row)),
      ],
      chosen: events.chosen,
      note: noteOf(points),
    },
    signal,
  );
  const key = (which: Which): HTMLElement => {
    const press = (): void => {
      if (shown.has(which) && shown.size > 1) shown.delete(which);
      else shown.add(which);
      element.setAttribute("aria-pressed", String(shown.has(which)));
      plot.show(data(), metric.label);
    };
    const title = which === "isolated" ? "Its own error, given the reference's values" : "Each side ran by itself";
    const element = button(which, press, signal, {
      class: `onnx-nb-key onnx-nb-key-${which}`,
      title,
      "aria-pressed": true,
    });
    return element;
  };
  const select = el("select.onnx-nb-field.onnx-nb-metric", { title: "Metric of the chart", "aria-label": "Metric" });
  for (const { key, label } of metrics) {
    const option = el("option", { value: key }, label);
    option.disabled = !WHICH.some((which) => points.numbers(which, key).some((x) => !Number.isNaN(x)));
    select.append(option);
  }
  select.value = metric.key;
  const setMetric = (key: string): void => {
    const found = metrics.find((each) => each.key === key);
    if (found === undefined || key === metric.key) return;
    metric = found;
    select.value = key;
    plot.show(data(), metric.label);
  };
  on(select, "change", signal, () => {
    setMetric(select.value);
    events.turned(metric.key);
  });
  on(select, "keydown", signal, (event) => event.stopPropagation());
  const order = el("span.onnx-nb-dim.onnx-nb-order", "in order of execution →");
  const bar = el("div.onnx-nb-chart-bar", select, ...available.map(key), order);
  const element = el("section.onnx-nb-chart", { "aria-label": "Errors against depth" }, bar, plot.element);
  return { element, plot, setMetric, errorsOf };
}

/** The numbers of a metric; infinite where only one side is NaN, for then no other number counts. */
function seriesOf(points: Points, which: Which, metric: string): Float64Array {
  const numbers = points.numbers(which, metric);
  if (metric === "mismatches") return numbers;
  return numbers.map((x, row) => {
    if (points.state(which, row) === STATE.MISMATCHED) return Number.POSITIVE_INFINITY;
    return Number.isFinite(x) ? x : Number.NaN; // decibels of equal values are infinite
  });
}

function errorText(points: Points, which: Which, metric: string, row: number): string {
  if (points.state(which, row) === STATE.MISMATCHED && metric !== "mismatches") {
    return isText(points, row) ? "texts differ" : "NaN or Inf on one side";
  }
  return figure(metric, points.numbers(which, metric)[row]);
}

/** What the points without an error are. */
function oddValues(points: Points): string {
  const found = new Set<string>();
  for (let row = 0; row < points.count; row++) {
    if (WHICH.some((which) => points.state(which, row) === STATE.MISMATCHED)) {
      found.add(isText(points, row) ? "texts" : "NaN, Inf");
    }
  }
  return found.size === 1 ? [...found][0] : "NaN, texts";
}

function noteOf(points: Points): string {
  if (points.count === 0) return "There are no points to draw.";
  for (let row = 0; row < points.count; row++) {
    if (WHICH.some((which) => points.state(which, row) > STATE.EQUAL)) return "";
  }
  return `All ${counted(points.count, "point")} are equal, to the last bit.`;
}
