/** The tables of a comparison: its points with their errors, and what only one side has. */

import { type Points, STATE, WHICH, type Which } from "../protocol/comparison.ts";
import { magnitude, plain } from "../scene/formatting.ts";
import { elide } from "./dom.ts";
import { figure } from "./pointerrors.ts";
import { Table, type TableColumn } from "./table.ts";
import { csvOf, type RowColumn } from "./tablerows.ts";

export function createPointTable(
  points: Points,
  title: string,
  events: { readonly chosen: (row: number) => void; readonly activated: () => void },
  signal: AbortSignal,
): Table {
  const options = {
    label: `Points of ${title}`,
    noun: "point",
    count: points.count,
    columns: pointColumns(points),
    ...(points.about.isolated && { sorting: { key: "score", descending: true } }),
    ...events,
  };
  return new Table(options, signal);
}

export function createMissingTable(points: Points, title: string, signal: AbortSignal): Table {
  const { reference, candidate } = points.about;
  const side = (row: number): string => (points.missingSide(row) === "reference" ? reference : candidate);
  const columns: TableColumn[] = [
    { key: "value", title: "Value", width: [160, 2], names: true, text: (row) => points.text("missing_name", row) },
    { key: "op", title: "Op", width: [80, 0.7], text: (row) => points.text("missing_op_type", row) },
    { key: "side", title: "Only in", width: [90, 0.8], text: side },
    { key: "reason", title: "Why", width: [200, 3], text: (row) => points.text("missing_reason", row) },
  ];
  return new Table({ label: `Unmatched values of ${title}`, noun: "value", count: points.missing, columns }, signal);
}

/** Returns every metric of some points as a CSV file. */
export function pointsCsv(points: Points, rows: ArrayLike<number>): string {
  const text = (key: string, name: Parameters<Points["text"]>[0] = key as typeof name): RowColumn => ({
    key,
    text: (row) => points.text(name, row),
  });
  const metrics = WHICH.filter((which) => points.has(which)).flatMap((which) =>
    points.about.metrics.map(({ key }) => ({ key: `${which}_${key}`, numbers: points.numbers(which, key) })),
  );
  const names = ["reference", "candidate", "matched", "node", "source", "shape", "dtype"];
  const columns = [text("point", "name"), text("op", "op_type"), ...names.map((name) => text(name))];
  if (points.about.isolated) columns.push({ key: "score", numbers: points.score });
  return csvOf([...columns, ...metrics], rows);
}

/** Whether the values of a point are texts, which differ or not but have no error. */
export function isText(points: Points, row: number): boolean {
  return points.text("dtype", row).includes("string");
}

function pointColumns(points: Points): readonly TableColumn[] {
  const { isolated, first } = points.about;
  const mismatches = bestOf(points, "mismatches");
  const bad = (row: number): boolean => row === first || mismatches[row] > 0;
  const size = (x: number, row: number): string =>
    x !== Number.POSITIVE_INFINITY ? magnitude(x) : isText(points, row) ? "texts" : "NaN, Inf";
  const width = [58, 0.4] as const;
  const columns: (TableColumn | null)[] = [
    { key: "point", title: "Point", width: [226, 3], names: true, text: (row) => points.text("name", row) },
    // the names of torch modules tell their kind, so this column may go
    { key: "op", title: "Op", width: [72, 0.9], spare: 0.5, text: (row) => points.text("op_type", row) || "input" },
    {
      key: "matched",
      title: "Matched",
      hint: "How the values of both sides were found to correspond",
      width: [56, 0.3],
      spare: 3,
      text: (row) => points.text("matched", row),
    },
    isolated
      ? {
          key: "score",
          title: "× usual",
          hint: "Isolated error divided by the median of points of its kind",
          width,
          numbers: points.score,
          write: times,
          bad,
        }
      : null,
    isolated
      ? {
          key: "isolated",
          title: "Isolated",
          hint: "‖Δ‖/‖x‖ of its own error",
          width,
          numbers: worstOf(points, "isolated"),
          write: size,
          bad,
        }
      : null,
    {
      key: "cumulative",
      title: "Cumulative",
      hint: "‖Δ‖/‖x‖ where each side ran by itself",
      width: [80, 0.4],
      numbers: worstOf(points, "cumulative"),
      write: size,
      ...(!isolated && { bad }),
    },
    {
      key: "max_abs",
      title: "max |Δ|",
      hint: isolated ? "The largest error; isolated where that is known" : "The largest error",
      width,
      spare: 1,
      numbers: bestOf(points, "max_abs"),
      write: magnitude,
    },
    {
      key: "sqnr",
      title: "SQNR dB",
      hint: "Signal to quantization noise",
      width,
      spare: 2,
      numbers: bestOf(points, "sqnr"),
      write: (x) => figure("sqnr", x),
    },
    mismatches.some((x) => x > 0)
      ? {
          key: "mismatches",
          title: "Odd values",
          hint: "NaN or Inf on one side only, or texts that differ",
          width: [72, 0.4],
          numbers: mismatches,
          write: (x) => (x > 0 ? plain(x) : ""),
          bad,
        }
      : null,
    {
      key: "histogram",
      title: "|Δ|",
      hint: "Distribution of the absolute errors, on one axis for all points",
      width: [64, 0],
      draw: (row) => sparkline(points, row, bad(row)),
    },
  ];
  return columns.filter((column) => column !== null);
}

/** The isolated error of each point where it is known, else the cumulative one. */
function bestOf(points: Points, metric: string): Float64Array {
  const [own, all] = [points.numbers("isolated", metric), points.numbers("cumulative", metric)];
  if (!points.about.isolated) return all;
  return own.map((x, row) => (points.best(row) === "isolated" ? x : all[row]));
}

/** The relative error of each point; infinite where only one side is NaN, so that these come first. */
function worstOf(points: Points, which: Which): Float64Array {
  return points.numbers(which, "rel_l2").map((x, row) => {
    switch (points.state(which, row)) {
      case STATE.MISMATCHED:
        return Number.POSITIVE_INFINITY;
      case STATE.EQUAL:
        return 0;
      case STATE.UNKNOWN:
        return Number.NaN;
      default:
        return x;
    }
  });
}

/** 0.02 → "<0.1×", 3 → "3.0×", 120 → "120×" */
function times(x: number): string {
  if (Number.isNaN(x)) return "";
  if (x === 0) return "0";
  if (x < 0.05) return "<0.1×";
  return `${x >= 1e4 ? magnitude(x) : x >= 9.95 ? plain(x) : x.toFixed(1)}×`;
}

/** The absolute errors of a point on the axis of all points, so that those of a faulty one are further right. */
function sparkline(points: Points, row: number, bad: boolean): Element | null {
  let path = "";
  points.spark(row).forEach((count, at) => {
    const height = (16 * count) / 255;
    if (height > 0) path += `M${at} 16v${-Math.max(0.8, height).toFixed(1)}h0.85V16z`;
  });
  if (path === "") return null;
  const [low, high] = points.sparkEnds;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const shape = document.createElementNS(svg.namespaceURI, "path");
  const title = document.createElementNS(svg.namespaceURI, "title");
  svg.setAttribute("class", `onnx-nb-spark${bad ? " onnx-nb-spark-bad" : ""}`);
  svg.setAttribute("viewBox", `0 0 ${points.bars} 16`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  shape.setAttribute("d", path);
  title.textContent = elide(`absolute errors, from 1e${low} to 1e${high}`.replaceAll("-", "−"), 80);
  svg.append(title, shape);
  return svg;
}
