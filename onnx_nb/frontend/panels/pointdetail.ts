/** The pane with the errors of the chosen point; details from the kernel arrive later. */

import { histogram } from "../charts/histogram.ts";
import {
  type Detail,
  type Details,
  ERROR_KINDS,
  type ErrorKind,
  type HistogramKind,
  type Points,
  STATE,
} from "../protocol/comparison.ts";
import { failureText } from "../protocol/host.ts";
import { createRamp } from "../render/theme.ts";
import { countOf, integer, magnitude } from "../scene/formatting.ts";
import { el, elide, facts, fillings, on, onAbort, paneHead, settle, svg, toggleRow } from "../ui/dom.ts";

/** Milliseconds after which a point that is being loaded is shown without its details. */
const PATIENCE_MS = 150;

/** @param load requests details beyond the metrics */
export function createPointDetail(
  points: Points,
  load: (row: number, signal: AbortSignal) => Promise<Details>,
  dark: () => boolean,
  actions: (row: number, signal: AbortSignal) => readonly HTMLElement[],
  signal: AbortSignal,
) {
  const element = el("aside.onnx-nb-detail", { "aria-label": "Errors of the point", tabindex: 0 });
  const filling = fillings(signal);
  const cache = new Map<number, Details>();
  let shownRow = -1;
  let preference: ErrorKind = points.about.isolated ? "isolated" : "cumulative";

  const kindOf = (row: number): ErrorKind =>
    points.state(preference, row) === STATE.UNKNOWN ? points.bestKind(row) : preference;
  const fill = (row: number, details: Details | string | null, round: AbortSignal): void => {
    const onTurn = (to: ErrorKind): void => {
      preference = to;
      update();
      element.querySelector<HTMLElement>("[aria-label=Errors] [aria-pressed=true]")?.focus();
    };
    const top = element.scrollTop;
    element.replaceChildren(...errorsOf(points, row, kindOf(row), details, dark(), onTurn, actions(row, round), round));
    element.scrollTop = top;
  };
  const update = (): void => {
    const round = filling();
    const row = shownRow;
    if (row < 0) {
      element.replaceChildren(el("p.onnx-nb-dim", points.count === 0 ? "" : "Choose a point to see its errors."));
      return;
    }
    const isEqual = points.state(kindOf(row), row) === STATE.EQUAL;
    const cachedDetails = cache.get(row) ?? (isEqual ? {} : undefined);
    if (cachedDetails !== undefined) fill(row, cachedDetails, round);
    else request(row, round);
  };
  const request = (row: number, round: AbortSignal): void => {
    const patience = setTimeout(() => fill(row, null, round), PATIENCE_MS);
    onAbort(round, () => clearTimeout(patience));
    const done = (details: Details | string): void => {
      clearTimeout(patience);
      if (typeof details !== "string") cache.set(row, details);
      fill(row, details, round);
    };
    settle(load(row, round), round, done, (error) => done(failureText(error)));
  };
  update();
  return {
    element,
    /** Shows a point, −1 for none. */
    show(row: number): void {
      shownRow = row;
      element.scrollTop = 0;
      update();
    },
    /** Draws in the colors that the page has now. */
    redraw: update,
  };
}

const KINDS: readonly (readonly [kind: HistogramKind, title: string])[] = [
  ["absolute", "absolute error (log)"],
  ["signed", "signed error"],
  ["relative", "relative error (log)"],
];
/** Maximum number of channels that are drawn as bars. */
const BARS = 48;
const PER_ROW = 64;

/**
 * @param details beyond the metrics; null while loading, a text if they cannot be loaded
 * @param onTurn is called with the kind of error that a person chooses
 */
function errorsOf(
  points: Points,
  row: number,
  errorKind: ErrorKind,
  details: Details | string | null,
  dark: boolean,
  onTurn: (which: ErrorKind) => void,
  actions: readonly HTMLElement[],
  signal: AbortSignal,
): Node[] {
  const kind = points.column("output")[row] === 1 ? "output of the model" : "point";
  const parts: Node[] = [...paneHead(kind, points.text("name", row), signal), origin(points, row)];
  const difference = points.text("difference", row);
  if (difference !== "") parts.push(el("p.onnx-nb-difference", elide(difference, 300)));
  if (actions.length > 0) parts.push(el("div.onnx-nb-row", ...actions));
  if (ERROR_KINDS.every((candidate) => points.state(candidate, row) !== STATE.UNKNOWN)) {
    const kinds = [
      ["isolated", "Isolated", "Its own error: the candidate was given the reference's values"],
      ["cumulative", "Cumulative", "Both sides ran by themselves"],
    ] as const;
    const toggles = kinds.map(([kind, text, title]) => [text, title, kind === errorKind, () => onTurn(kind)] as const);
    parts.push(toggleRow("Errors", toggles, signal));
  }
  const state = points.state(errorKind, row);
  if (state === STATE.EQUAL) {
    parts.push(el("p.onnx-nb-fine", "✓ Every value is the same."), figures(points, row, errorKind, null));
    return parts;
  }
  if (typeof details === "string") parts.push(el("p.onnx-nb-dim", elide(details, 300)));
  const detail = details === null || typeof details === "string" ? undefined : details[errorKind];
  if (detail === undefined) {
    if (details === null) parts.push(el("p.onnx-nb-dim", { role: "status" }, "Reading its errors …"));
    parts.push(figures(points, row, errorKind, null));
    return parts;
  }
  if (state === STATE.MISMATCHED) {
    const strings = detail.dtypes[0] === "string";
    const mismatches = detail.nan > 0 ? [countOf(detail.nan, "NaN")] : [];
    if (detail.inf > 0) mismatches.push(countOf(detail.inf, "infinity").replace("infinitys", "infinities"));
    const text = strings ? `${countOf(detail.outside, "text")} differ` : `${mismatches.join(" and ")} on one side only`;
    parts.push(el("p.onnx-nb-bad", `✕ ${text}`));
  }
  for (const [kind, title] of KINDS) {
    const distribution = detail.histogram(kind);
    // a single bar shows nothing
    if (distribution.counts.length < 2) continue;
    const zeros = kind === "signed" ? 0 : detail.zeros[kind as "absolute"];
    const note = zeros > 0 ? `and ${integer(zeros)} that ${zeros === 1 ? "is" : "are"} 0` : "";
    const style = `onnx-nb-errors-${kind === "signed" ? "signed" : "other"}`;
    parts.push(part(title, histogram(distribution, "fitting"), note, style));
  }
  if (detail.channels.length > 1) parts.push(channels(detail, dark, signal));
  const cloud = detail.sample.length > 2 ? scatter(points, row, errorKind, detail) : null;
  if (cloud !== null) parts.push(cloud);
  if (detail.worst.length > 0) parts.push(worstTable(points, detail));
  parts.push(figures(points, row, errorKind, detail));
  return parts;
}

/** Formats a metric. */
export function figure(key: string, x: number): string {
  if (Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (key === "sqnr" || key === "psnr") return x.toFixed(1).replace("-", "−");
  if (key === "cosine" && x < 1 && 1 - x < 5e-11) return `1 − ${magnitude(1 - x)}`;
  if (key === "cosine")
    return (x >= 1 ? "1" : x.toFixed(Math.min(12, Math.max(5, Math.ceil(-Math.log10(1 - x) + 1))))).replace("-", "−");
  if (key === "outside" || key === "argmax") return `${Number((100 * x).toPrecision(3))} %`;
  if (key === "mismatches") return integer(x);
  if (key === "ulp50" || key === "ulp99") return x < 1e5 ? integer(Math.round(x * 10) / 10) : magnitude(x);
  return magnitude(x);
}

function origin(points: Points, row: number): HTMLElement {
  const reference = points.text("reference", row);
  const names = [points.text("name", row), points.text("candidate", row)];
  return facts(
    [
      ["layer", names[0].includes(points.text("scope", row)) ? "" : points.text("scope", row)],
      ["made by", points.text("op_type", row) || "input of the model"],
      ["tensor", points.text("candidate", row)],
      ["reference", names.includes(reference) ? "" : reference],
      ["type", `${points.text("shape", row)} ${points.text("dtype", row)}`.trim()],
      ["source", points.text("source", row)],
      ["matched", `by ${points.text("matched", row)}`],
    ],
    ".onnx-nb-origin",
  );
}

function part(title: string, content: Element, note = "", className = ""): HTMLElement {
  const head = el("h5", el("b", title), note === "" ? null : el("span.onnx-nb-dim", note));
  return el("section", { class: `onnx-nb-errors-part ${className}`.trimEnd() }, head, content);
}

function figures(points: Points, row: number, kind: ErrorKind, detail: Detail | null): HTMLElement {
  const fact = (text: string, title = ""): HTMLElement => el("span.onnx-nb-mono", { title }, text);
  const rows = points.about.metrics
    .map(({ key, label }) => ({ key, label, x: points.numbers(kind, key)[row] }))
    .filter(({ x }) => !Number.isNaN(x))
    .map(({ key, label, x }): [string, HTMLElement] => [label, fact(figure(key, x), String(x))]);
  if (detail !== null) {
    const [rtol, atol] = detail.tolerance;
    const tolerance = `further apart than ${atol} + ${rtol}·|reference|`;
    rows.push(["outside", fact(`${integer(detail.outside)} of ${integer(detail.count)}`, tolerance)]);
    rows.push(["equal", fact(`${integer(detail.equal)} of ${integer(detail.count)}`)]);
    if (detail.argmax !== null) {
      rows.push(["argmax", fact(`${integer(detail.argmax[0])} of ${integer(detail.argmax[1])} rows agree`)]);
    }
  }
  return part(`all metrics, ${kind}`, facts(rows, ".onnx-nb-figures"));
}

/** Draws the largest error at each index of an axis: few as bars, many as a map with a pixel for each. */
function channels({ channels: errors, axis, shape }: Detail, dark: boolean, signal: AbortSignal): HTMLElement {
  const count = errors.length;
  const last = axis === shape.length - 1;
  const title = `error per channel (${last ? "last axis" : `axis ${axis}`}, ${integer(count)})`;
  const at = Array.from(errors).reduce((worst, x, channel) => (x > errors[worst] ? channel : worst), 0);
  const sizes = Array.from(errors).filter((x) => x > 0 && Number.isFinite(x));
  const min = sizes.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const max = sizes.reduce((a, b) => Math.max(a, b), 0);
  const say = (channel: number): string => `channel ${integer(channel)}: ${magnitude(errors[channel])}`;
  const place = (x: number): number => {
    if (x <= 0) return 0;
    if (!Number.isFinite(x)) return 1;
    return max <= min ? 1 : 0.08 + (0.92 * (Math.log(x) - Math.log(min))) / (Math.log(max) - Math.log(min));
  };
  const label = `The largest error is in ${say(at)}`;
  const position = `most in ${integer(at)}`;
  if (count <= BARS) {
    const bars = Array.from({ length: count }, (_, channel) =>
      el("i", {
        class: channel === at && errors[at] > 0 ? "onnx-nb-most" : "",
        title: say(channel),
        style: { height: `${100 * place(errors[channel])}%` },
      }),
    );
    return part(title, el("div.onnx-nb-bars", { role: "img", "aria-label": label }, ...bars), position);
  }
  const columns = Math.min(count, Math.max(PER_ROW, Math.ceil(Math.sqrt(count * 8))));
  const rows = Math.ceil(count / columns);
  const canvas = el("canvas.onnx-nb-channels", {
    title: label,
    role: "img",
    "aria-label": label,
    width: columns,
    height: rows,
    style: { height: `${Math.min(96, rows * 9)}px` },
  });
  const pen = canvas.getContext("2d");
  const ramp = createRamp(dark);
  for (let channel = 0; pen !== null && channel < count; channel++) {
    pen.fillStyle = ramp.color(place(errors[channel]));
    pen.fillRect(channel % columns, Math.floor(channel / columns), 1, 1);
  }
  on(canvas, "pointermove", signal, (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const channel = Math.floor(((event.clientY - box.top) / box.height) * rows) * columns + column;
    canvas.title = channel < count ? say(channel) : "";
  });
  const scale = el(
    "div.onnx-nb-scale-ends.onnx-nb-dim.onnx-nb-ramp-ends",
    el("span", Array.prototype.includes.call(errors, 0) ? "0" : magnitude(min)),
    el("i", { style: { background: ramp.gradient } }),
    el("span", magnitude(max)),
  );
  return part(title, el("div", canvas, scale), position);
}

const SIDE = 132;

/** Draws values of the candidate against the reference: on the diagonal where they are equal. */
function scatter(points: Points, row: number, kind: ErrorKind, detail: Detail): HTMLElement | null {
  const { sample, count, worst: worstValues } = detail;
  const extremes = worstValues.flatMap(([, reference, candidate]) => {
    const pair = [reference, candidate].map((text) => Number(text.replaceAll("−", "-")));
    return pair.every(Number.isFinite) ? [pair] : [];
  });
  const numbers = [...Array.from(sample), ...extremes.flat()].filter(Number.isFinite);
  if (numbers.length === 0) return null;
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const place = (x: number): number => (high > low ? (x - low) / (high - low) : 0.5) * (SIDE - 8) + 4;
  // a line of no length with round ends is a dot
  const dot = (x: number, y: number): string => `M${place(x).toFixed(1)} ${(SIDE - place(y)).toFixed(1)}h0`;
  let path = "";
  for (let at = 0; at + 1 < sample.length; at += 2) {
    const [x, y] = [sample[at], sample[at + 1]];
    if (Number.isFinite(x) && Number.isFinite(y)) path += dot(x, y);
  }
  const picture = svg(
    "svg",
    {
      class: "onnx-nb-scatter",
      viewBox: `0 0 ${SIDE} ${SIDE}`,
      width: String(SIDE),
      height: String(SIDE),
      role: "img",
      "aria-label": `Values of the candidate against the reference, from ${magnitude(low)} to ${magnitude(high)}`,
    },
    svg("path", { class: "onnx-nb-diagonal", d: `M4 ${SIDE - 4}L${SIDE - 4} 4` }),
    svg("path", { d: path }),
    svg("path", { class: "onnx-nb-extreme", d: extremes.map(([x, y]) => dot(x, y)).join("") }),
  );
  const list = el("ul.onnx-nb-dim.onnx-nb-scatter-said");
  for (const key of ["cosine", "rmse", "sqnr", "outside"]) {
    const metric = points.about.metrics.find((candidate) => candidate.key === key);
    const x = points.numbers(kind, key)[row];
    if (metric !== undefined && !Number.isNaN(x)) list.append(el("li", `${metric.label} ${figure(key, x)}`));
  }
  const countText = `${integer(sample.length / 2)} of ${integer(count)} values`;
  list.append(el("li", extremes.length > 0 ? `${countText}, and in red the worst` : countText));
  const [reference, candidate] = [elide(points.about.reference, 24), elide(points.about.candidate, 24)];
  const title = `${candidate} ↑ against ${reference} →`;
  const [lowEnd, highEnd] = [low, high].map((end) => el("span", magnitude(end)));
  const ends = el("div.onnx-nb-scale-ends.onnx-nb-dim.onnx-nb-scatter-ends", lowEnd, highEnd);
  return part(title, el("div.onnx-nb-scatter-box", el("div", picture, ends), list));
}

function worstTable(points: Points, { worst: worstValues, errors }: Detail): HTMLElement {
  const feeds = points.about.feeds > 1;
  const head = ["index", "reference", "candidate", "|Δ|", ...(feeds ? ["run"] : [])];
  const rows = worstValues.map(([index, reference, candidate, feed], at) =>
    el(
      "tr",
      ...[index, reference, candidate].map((text) => el("td", { title: text }, elide(text, 26))),
      el("td.onnx-nb-bad", magnitude(errors[at])),
      ...(feeds ? [el("td", String(feed))] : []),
    ),
  );
  const table = el(
    "table.onnx-nb-worst",
    el("thead", el("tr", ...head.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", ...rows),
  );
  const box = { tabindex: 0, role: "group", "aria-label": "worst elements" };
  return part("worst elements", el("div.onnx-nb-worst-box", box, table));
}
