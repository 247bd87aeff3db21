/** What a comparison found: where errors begin, all points in a table, and the one that is chosen in detail. */

import { createDepth } from "../charts/errorplot.ts";
import type { Depth } from "../charts/errorseries.ts";
import { type Details, type Points, STATE, WHICH, type Which } from "../protocol/comparison.ts";
import { failure } from "../protocol/host.ts";
import { button, counted, el, elide, fillings, on, plain } from "./dom.ts";
import { download } from "./export.ts";
import { createMenu, item } from "./menu.ts";
import { errorsOf, figure, magnitude } from "./pointerrors.ts";
import { createTable, type Table, type TableColumn } from "./table.ts";
import { csvOf, type RowColumn } from "./tablerows.ts";
import { createTaskBar, type OnProgress, SILENCE, SILENCE_MS } from "./task.ts";

export interface ComparisonOptions {
  readonly height?: number;
  readonly metric?: string;
  /** a person chose a point, "" for none */
  readonly chosen?: (name: string) => void;
  readonly turned?: (metric: string) => void;
  /** what is known of a point beyond its metrics */
  readonly detail: (row: number, signal: AbortSignal) => Promise<Details>;
  /** gives the whole as a page */
  readonly page?: (signal: AbortSignal, told: OnProgress) => Promise<Uint8Array>;
  /** cuts a point's module out, and tells what became of it */
  readonly isolate?: (name: string, signal: AbortSignal, told: OnProgress) => Promise<string>;
  /** shows the operations in a point's module */
  readonly drill?: (name: string, signal: AbortSignal, told: OnProgress) => Promise<void>;
  /** a button that leads back */
  readonly back?: { readonly text: string; readonly go: () => void };
}

export interface ComparisonView {
  /** the chosen point by name, "" for none */
  choose(name: string): void;
  setMetric(key: string): void;
  /** says which graph goes with it, "" for none */
  setLinked(text: string): void;
  redraw(): void;
  svg(): string;
}

/** Details that take longer say so. */
const PATIENCE_MS = 150;
const NONE = Number.NaN;

export function createComparison(
  root: HTMLElement,
  points: Points,
  options: ComparisonOptions,
  signal: AbortSignal,
): ComparisonView {
  const { about } = points;
  const title = `${about.reference} and ${about.candidate}`;
  root.classList.add("onnx-nb-comparison");
  root.style.setProperty("--nb-height", `${options.height ?? 560}px`);
  let metric = about.metrics.some(({ key }) => key === options.metric) ? (options.metric as string) : "rel_l2";
  let chosen = -1;
  let which: Which = about.isolated ? "isolated" : "cumulative";
  const voice = el("div.onnx-nb-voice", { "aria-live": "polite" });
  const say = (text: string): void => {
    voice.textContent = elide(text, 300);
  };
  let busy = false;
  const task = createTaskBar(
    (now) => {
      busy = now;
      for (const press of root.querySelectorAll(".onnx-nb-act")) press.setAttribute("aria-disabled", String(now));
    },
    say,
    signal,
  );

  // ---------------------------------------------------------------- errors against depth

  const shown = new Set<Which>(WHICH);
  const seriesOf = (each: Which): Float64Array => {
    const numbers = points.numbers(each, metric);
    if (metric === "mismatches") return numbers;
    return numbers.map((x, row) => {
      // where only one side is NaN no other number counts; of equal values decibels are infinite, which is no place
      if (points.state(each, row) === STATE.MISMATCHED) return Number.POSITIVE_INFINITY;
      return Number.isFinite(x) ? x : NONE;
    });
  };
  const parts = about.parts.map(([row, label]) => [row, elide(label, 24)] as const);
  const odd = oddIn(points);
  const labelOf = (): string => about.metrics.find(({ key }) => key === metric)?.label ?? metric;
  const depthOf = (): Depth => ({
    count: points.count,
    series: WHICH.filter((each) => points.has(each) && shown.has(each)).map((each) => ({
      which: each,
      numbers: seriesOf(each),
    })),
    logarithmic: about.metrics.find(({ key }) => key === metric)?.logarithmic ?? true,
    parts,
    odd,
  });
  const sizes = (row: number): string =>
    [...WHICH]
      .reverse()
      .filter((each) => points.state(each, row) !== STATE.UNKNOWN)
      .map((each) => `${each} ${said(points, each, metric, row)}`)
      .join(", ");
  const depth = createDepth(
    depthOf(),
    {
      metric: labelOf(),
      first: about.first,
      say: (row) => elide(`${points.text("name", row)}, ${points.text("op_type", row)}, ${sizes(row)}`, 300),
      tip: (row) => [
        el("b", elide(points.text("name", row), 70)),
        el("span.onnx-nb-dim", ` ${elide(points.text("op_type", row), 40)}`),
        el("div", sizes(row)),
      ],
      chosen: (row) => choose(row, true),
      note: noteOf(points),
    },
    signal,
  );
  const legend = WHICH.filter((each) => points.has(each)).map((each) =>
    button(
      each,
      (event) => {
        const press = event.currentTarget as HTMLElement;
        if (shown.has(each) && shown.size > 1) shown.delete(each);
        else shown.add(each);
        press.setAttribute("aria-pressed", String(shown.has(each)));
        depth.show(depthOf(), labelOf());
      },
      signal,
      {
        class: `onnx-nb-key onnx-nb-key-${each}`,
        title: each === "isolated" ? "Its own error, given the reference's values" : "Both sides by themselves",
        "aria-pressed": "true",
      },
    ),
  );
  const select = el(
    "select.onnx-nb-field.onnx-nb-metric",
    { title: "What is drawn against depth", "aria-label": "Metric" },
    ...about.metrics.map(({ key, label }) => {
      const option = el("option", { value: key }, label);
      option.disabled = !WHICH.some((each) => points.numbers(each, key).some((x) => !Number.isNaN(x)));
      return option;
    }),
  );
  select.value = metric;
  const setMetric = (key: string): void => {
    if (key === metric || !about.metrics.some((each) => each.key === key)) return;
    metric = key;
    select.value = key;
    depth.show(depthOf(), labelOf());
  };
  on(select, "change", signal, () => {
    setMetric(select.value);
    options.turned?.(metric);
  });
  on(select, "keydown", signal, (event) => event.stopPropagation());

  // ---------------------------------------------------------------- tables

  const table = createTable(
    {
      label: `Points of ${elide(title, 120)}`,
      noun: "point",
      count: points.count,
      columns: columnsOf(points),
      ...(about.isolated ? { sorting: { key: "score", descending: true } } : {}),
      chosen: (row) => choose(row, true),
      activated: () => detail.focus(),
    },
    signal,
  );
  const missing = createTable(
    {
      label: `Unmatched values of ${elide(title, 120)}`,
      noun: "value",
      count: points.missing,
      columns: missingColumns(points),
    },
    signal,
  );
  const lists: readonly (readonly [name: string, count: number, table: Table])[] = [
    ["Points", points.count, table],
    ["Unmatched", points.missing, missing],
  ];
  const tabs = lists.map(([name, count], at) =>
    button(`${name} (${plain(count)})`, () => turn(at), signal, {
      class: "onnx-nb-small",
      "aria-pressed": String(at === 0),
    }),
  );
  const turn = (to: number): void => {
    lists.forEach(([, , each], at) => {
      tabs[at].setAttribute("aria-pressed", String(at === to));
      each.element.hidden = at !== to;
      each.filter.hidden = at !== to;
    });
  };
  turn(points.count === 0 && points.missing > 0 ? 1 : 0);
  tabs[1].disabled = points.missing === 0;

  // ---------------------------------------------------------------- one point

  const detail = el("aside.onnx-nb-detail", { "aria-label": "Errors of the point", tabindex: 0 });
  const filling = fillings(signal);
  const loaded = new Map<number, Details>();
  const show = (): void => {
    const round = filling();
    const row = chosen;
    if (row < 0) {
      detail.replaceChildren(el("p.onnx-nb-dim", points.count === 0 ? "" : "Choose a point for its errors."));
      return;
    }
    const mine = points.state(which, row) === STATE.UNKNOWN ? points.best(row) : which;
    const fill = (details: Details | string | null): void => {
      const turned = (to: Which): void => {
        which = to;
        show();
        detail.querySelector<HTMLElement>("[aria-label=Errors] [aria-pressed=true]")?.focus();
      };
      const dark = root.classList.contains("onnx-nb-dark");
      const top = detail.scrollTop;
      detail.replaceChildren(
        ...errorsOf(points, row, { details, which: mine, dark, turned, acts: acts(row, round) }, round),
      );
      detail.scrollTop = top;
    };
    const found = loaded.get(row);
    if (found !== undefined || points.state(mine, row) === STATE.EQUAL) {
      fill(found ?? {});
      return;
    }
    const timers = [setTimeout(() => fill(null), PATIENCE_MS), setTimeout(() => fill(SILENCE), SILENCE_MS)];
    const answered = (): void => timers.forEach(clearTimeout);
    round.addEventListener("abort", answered, { once: true });
    options.detail(row, round).then(
      (details) => {
        answered();
        loaded.set(row, details);
        if (!round.aborted) fill(details);
      },
      (error) => {
        answered();
        const { message, advice } = failure(error);
        if (!round.aborted) fill(`${message} ${advice}`.trim());
      },
    );
  };
  const acts = (row: number, round: AbortSignal): HTMLElement[] => {
    const { isolate, drill } = options;
    const name = points.text("name", row);
    const act = (text: string, hint: string, work: () => void): HTMLButtonElement => {
      // not disabled: the keyboard would be lost, and the task lets no other begin
      const attrs = { "aria-disabled": String(busy) };
      return button(text, work, round, { class: "onnx-nb-small onnx-nb-act", title: hint, attrs });
    };
    const parts: HTMLElement[] = [];
    if (drill !== undefined) {
      parts.push(
        act("Drill down", "Compare the operations inside, each with its line of Python", () =>
          task.run(`Comparing the operations inside ${elide(name, 80)} …`, async (ended, told) => {
            await drill(name, ended, told);
            return "";
          }),
        ),
      );
    }
    if (isolate !== undefined) {
      parts.push(
        act("Isolate", "Extract its part of the model, with the inputs that it got", () =>
          task.run(`Cutting ${elide(name, 80)} out …`, (ended, told) => isolate(name, ended, told)),
        ),
      );
    }
    return parts;
  };

  const choose = (row: number, tellIt: boolean): void => {
    if (row === chosen) return;
    chosen = row;
    table.choose(row);
    depth.choose(row);
    detail.scrollTop = 0;
    show();
    if (row >= 0) say(`${points.text("name", row)}, ${sizes(row)}`);
    if (tellIt) options.chosen?.(row < 0 ? "" : points.text("name", row));
  };

  // ---------------------------------------------------------------- the whole

  const name = `${about.candidate.replace(/\.onnx$/i, "")} errors`;
  const menu = createMenu("Save", { title: "Save a picture, the table, or a page", label: "Save" }, signal);
  const save = (text: string, hint: string, work: () => void | Promise<void>): HTMLButtonElement =>
    item(
      text,
      hint,
      () => {
        menu.close();
        Promise.resolve(work()).catch((error) => task.fail(error));
      },
      signal,
    );
  const { page } = options;
  const pictures = [
    save("SVG of the plot", "Vectors, as it is shown", () =>
      download(new Blob([depth.svg(about.message)], { type: "image/svg+xml" }), name, "svg"),
    ),
    save("PNG of the plot", "Pixels, at twice its size", async () =>
      download(await depth.png(about.message), name, "png"),
    ),
  ];
  menu.fill(
    ...(points.count > 0 ? pictures : []),
    save("CSV of the table", "The points that are shown, every metric with all digits", () =>
      download(new Blob([csvOf(everything(points), table.rows)], { type: "text/csv" }), name, "csv"),
    ),
    ...(page === undefined
      ? []
      : [
          save("HTML page", "This panel in one file that works offline", () =>
            task.run("Writing the page …", async (ended, told) => {
              const content = await page(ended, told);
              download(new Blob([content as Uint8Array<ArrayBuffer>], { type: "text/html" }), name, "html");
              return "";
            }),
          ),
        ]),
  );
  const { back } = options;
  const verdict = about.first >= 0 ? "bad" : points.count === 0 || about.outside > 0 ? "caution" : "fine";
  const goThere = (): void => {
    choose(about.first, true);
    table.choose(about.first);
    depth.choose(about.first);
    detail.scrollTop = 0;
  };
  const first = button("Show it", goThere, signal, {
    class: "onnx-nb-small",
    title: "Choose the first point that differs",
  });
  first.hidden = about.first < 0;
  const linked = el("span.onnx-nb-dim.onnx-nb-linked");
  linked.hidden = true;
  const header = el(
    "header.onnx-nb-bar",
    back === undefined ? null : button(back.text, back.go, signal, { title: "Back to all points" }),
    el("span", { class: `onnx-nb-lamp onnx-nb-${verdict}`, "aria-hidden": "true" }),
    el(
      "div.onnx-nb-announced",
      el("b.onnx-nb-said", elide(about.message, 600)),
      el("span.onnx-nb-dim", summary(points)),
      linked,
    ),
    first,
    menu.element,
  );
  const chart = el(
    "section.onnx-nb-chart",
    { "aria-label": "Errors against depth" },
    el("div.onnx-nb-chart-bar", select, ...legend, el("span.onnx-nb-dim.onnx-nb-order", "in order of execution →")),
    depth.element,
  );
  const below = el(
    "section.onnx-nb-below",
    { "aria-label": "Tables" },
    el("div.onnx-nb-below-bar", ...tabs, table.filter, missing.filter),
    table.element,
    missing.element,
  );
  const body =
    points.count > 0
      ? [el("div.onnx-nb-comparison-left", chart, below), detail]
      : [points.missing > 0 ? below : el("p.onnx-nb-nothing.onnx-nb-dim", "There is nothing to show.")];
  root.replaceChildren(
    header,
    task.element,
    el("div", { class: `onnx-nb-comparison-body${points.count > 0 ? "" : " onnx-nb-pointless"}` }, ...body),
    voice,
  );
  show();
  return {
    choose: (to) => choose(points.rowOf(to), false),
    setMetric,
    setLinked(text) {
      linked.textContent = elide(text, 200);
      linked.hidden = text === "";
    },
    redraw() {
      depth.redraw();
      show(); // its colors are of the theme
    },
    svg: () => depth.svg(about.message),
  };
}

function said(points: Points, which: Which, metric: string, row: number): string {
  if (points.state(which, row) === STATE.MISMATCHED && metric !== "mismatches") {
    return ofTexts(points, row) ? "texts differ" : "NaN or Inf on one side";
  }
  return figure(metric, points.numbers(which, metric)[row]);
}

function ofTexts(points: Points, row: number): boolean {
  return points.text("dtype", row).includes("string");
}

/** What points are that no number tells of. */
function oddIn(points: Points): string {
  const found = new Set<string>();
  for (let row = 0; row < points.count; row++) {
    if (WHICH.some((each) => points.state(each, row) === STATE.MISMATCHED)) {
      found.add(ofTexts(points, row) ? "texts" : "NaN, Inf");
    }
  }
  return found.size === 1 ? [...found][0] : "NaN, texts";
}

function summary(points: Points): string {
  const { about, count, missing } = points;
  const runs = counted(about.feeds, "run");
  const all = missing > 0 ? `, ${plain(missing)} unmatched` : "";
  const outside = about.outside > 0 ? `, ${plain(about.outside)} outside of the tolerance` : "";
  const sides = `${elide(about.candidate, 48)} against ${elide(about.reference, 48)}`;
  return `${sides} · ${counted(count, "point")}${outside}${all} · ${runs}`;
}

function noteOf(points: Points): string {
  if (points.count === 0) return "There are no points to draw.";
  for (let row = 0; row < points.count; row++) {
    if (WHICH.some((each) => points.state(each, row) > STATE.EQUAL)) return "";
  }
  return `All ${counted(points.count, "point")} are equal, to the last bit.`;
}

function columnsOf(points: Points): readonly TableColumn[] {
  const { about } = points;
  const number = (
    key: string,
    title: string,
    hint: string,
    numbers: Float64Array,
    write: (x: number, row: number) => string,
  ): TableColumn => ({
    key,
    title,
    hint,
    width: [58, 0.4],
    numbers,
    write,
  });
  const best = (metric: string): Float64Array => {
    const [own, all] = [points.numbers("isolated", metric), points.numbers("cumulative", metric)];
    return about.isolated ? own.map((x, row) => (points.best(row) === "isolated" ? x : all[row])) : all;
  };
  /** infinite where only one side is NaN: these are looked for first */
  const worst = (which: Which): Float64Array =>
    points.numbers(which, "rel_l2").map((x, row) => {
      const state = points.state(which, row);
      return state === STATE.MISMATCHED
        ? Number.POSITIVE_INFINITY
        : state === STATE.EQUAL
          ? 0
          : state === STATE.UNKNOWN
            ? NONE
            : x;
    });
  const size = (x: number, row: number): string => {
    if (x !== Number.POSITIVE_INFINITY) return magnitude(x);
    return ofTexts(points, row) ? "texts" : "NaN, Inf";
  };
  const mismatches = best("mismatches");
  const marked = (row: number): boolean => row === about.first || mismatches[row] > 0;
  const times = (x: number): string =>
    Number.isNaN(x)
      ? ""
      : x < 0.05
        ? x === 0
          ? "0"
          : "<0.1×"
        : x >= 1e4
          ? `${magnitude(x)}×`
          : x >= 9.95
            ? `${plain(x)}×`
            : `${x.toFixed(1)}×`;
  return [
    { key: "point", title: "Point", width: [226, 3], names: true, text: (row) => points.text("name", row) },
    // of a torch module the name tells its kind
    { key: "op", title: "Op", width: [72, 0.9], spare: 0.5, text: (row) => points.text("op_type", row) || "input" },
    {
      key: "matched",
      title: "Matched",
      hint: "How both sides were found to mean the same",
      width: [56, 0.3],
      spare: 3,
      text: (row) => points.text("matched", row),
    },
    ...(about.isolated
      ? [
          {
            ...number("score", "× usual", "Isolated error by the median of points of its kind", points.score, times),
            bad: marked,
          },
          { ...number("isolated", "Isolated", "‖Δ‖/‖x‖ of its own error", worst("isolated"), size), bad: marked },
        ]
      : []),
    {
      ...number("cumulative", "Cumulative", "‖Δ‖/‖x‖ of both sides by themselves", worst("cumulative"), size),
      width: [80, 0.4],
      bad: (row) => !about.isolated && marked(row),
    },
    {
      ...number(
        "max_abs",
        "max |Δ|",
        about.isolated ? "Of the isolated error where it is known" : "The largest error",
        best("max_abs"),
        magnitude,
      ),
      spare: 1,
    },
    {
      ...number("sqnr", "SQNR dB", "Signal to quantization noise", best("sqnr"), (x) => figure("sqnr", x)),
      spare: 2,
    },
    ...(mismatches.some((x) => x > 0)
      ? [
          {
            ...number(
              "mismatches",
              "Odd values",
              "NaN or Inf on one side only, or texts that differ",
              mismatches,
              (x: number) => (x > 0 ? plain(x) : ""),
            ),
            width: [72, 0.4] as const,
            bad: marked,
          },
        ]
      : []),
    {
      key: "histogram",
      title: "|Δ|",
      hint: "How the absolute errors are spread, on one axis for all points",
      width: [64, 0],
      draw: (row) => spark(points, row, marked(row)),
    },
  ];
}

/** Every metric of every point, for the file. */
function everything(points: Points): readonly RowColumn[] {
  const text = (key: string, name: Parameters<Points["text"]>[0]): RowColumn => ({
    key,
    text: (row) => points.text(name, row),
  });
  return [
    text("point", "name"),
    text("op", "op_type"),
    text("reference", "reference"),
    text("candidate", "candidate"),
    text("matched", "matched"),
    text("node", "node"),
    text("source", "source"),
    text("shape", "shape"),
    text("dtype", "dtype"),
    ...(points.about.isolated ? [{ key: "score", numbers: points.score }] : []),
    ...WHICH.filter((which) => points.has(which)).flatMap((which) =>
      points.about.metrics.map(({ key }) => ({ key: `${which}_${key}`, numbers: points.numbers(which, key) })),
    ),
  ];
}

function missingColumns(points: Points): readonly TableColumn[] {
  const { reference, candidate } = points.about;
  return [
    { key: "value", title: "Value", width: [160, 2], names: true, text: (row) => points.text("missing_name", row) },
    { key: "op", title: "Op", width: [80, 0.7], text: (row) => points.text("missing_op_type", row) },
    {
      key: "side",
      title: "Only in",
      width: [90, 0.8],
      text: (row) => (points.missingSide(row) === "reference" ? reference : candidate),
    },
    { key: "reason", title: "Why", width: [200, 3], text: (row) => points.text("missing_reason", row) },
  ];
}

/** The absolute errors of a point on the axis of all points, so that those of a faulty one stand further right. */
function spark(points: Points, row: number, bad: boolean): Element | null {
  const counts = points.spark(row);
  let path = "";
  for (let at = 0; at < counts.length; at++) {
    const height = (16 * counts[at]) / 255;
    if (height > 0) path += `M${at} 16v${-Math.max(0.8, height).toFixed(1)}h0.85v16z`.replace(/v16z$/, `V16z`);
  }
  if (path === "") return null;
  const [low, high] = points.sparkEnds;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const attributes = {
    class: `onnx-nb-spark${bad ? " onnx-nb-spark-bad" : ""}`,
    viewBox: `0 0 ${points.bars} 16`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  shape.setAttribute("d", path);
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = `absolute errors, from 1e${low} to 1e${high}`.replaceAll("-", "−");
  svg.append(title, shape);
  return svg;
}
