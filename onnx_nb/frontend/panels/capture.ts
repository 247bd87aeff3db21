/** The panel of a capture: a table of all values, and details of the chosen one. */

import { spark, statistics } from "../charts/histogram.ts";
import type { Digest } from "../protocol/capture.ts";
import { bytes, countOf, integer } from "../scene/formatting.ts";
import { shortDtype } from "../scene/labels.ts";
import { button, createAnnouncer, el, elide, facts, paneHead } from "../ui/dom.ts";
import { numbers, Table, type TableColumn, texts } from "../ui/table.ts";
import { csvButton } from "./export.ts";

/** Text that accompanies the numbers. */
export interface CaptureAbout {
  readonly model: string;
  /** "1 run on random inputs" */
  readonly runs: string;
  /** where it was stopped early, "" if it was not */
  readonly stopped: string;
  /** the first value that is not finite, and how it arose */
  readonly nonfinite: { readonly name: string; readonly message: string } | null;
}

const SPARKS = 32;

export function createCapture(
  root: HTMLElement,
  digest: Digest,
  about: CaptureAbout,
  options: { readonly onChoose?: (name: string) => void; readonly height?: number },
  signal: AbortSignal,
) {
  root.classList.add("onnx-nb-capture");
  root.style.setProperty("--nb-height", `${options.height ?? 420}px`);
  const rowOf = new Map(digest.names.map((name, row) => [name, row]));
  const detail = el("aside.onnx-nb-detail", { "aria-label": "Value", tabindex: 0 });
  const { element: live, announce } = createAnnouncer();
  const isOdd = (row: number): boolean => digest.nan(row) + digest.inf(row) > 0;
  // where nothing is chosen, the first value that is not finite, or the first of all
  const firstOdd = digest.names.findIndex((_, row) => isOdd(row));
  const first = Math.max(0, firstOdd);
  const show = (row: number): void => {
    detail.replaceChildren(...(digest.count === 0 ? [] : details(digest, row < 0 ? first : row, signal)));
    detail.scrollTop = 0;
    if (row >= 0) announce(`${digest.names[row]} ${digest.text("op", row)} ${trouble(digest, row)}`);
  };
  const table = new Table(
    {
      label: `Values of ${elide(about.model, 80)}`,
      noun: "value",
      count: digest.count,
      columns: columnsOf(digest),
      onChoose: (row) => {
        show(row);
        options.onChoose?.(row < 0 ? "" : digest.names[row]);
      },
      onActivate: () => detail.focus(),
    },
    signal,
  );
  const odd = digest.names.filter((_, row) => isOdd(row)).length;
  const press = (): void => {
    const on = onlyOdd.getAttribute("aria-pressed") !== "true";
    onlyOdd.setAttribute("aria-pressed", String(on));
    table.restrict(on ? isOdd : null);
  };
  const onlyOdd = button(`Only NaN and Inf (${integer(odd)})`, press, signal, { "aria-pressed": false });
  onlyOdd.hidden = odd === 0;
  const linkNote = el("div.onnx-nb-dim.onnx-nb-linked");
  const go = (name: string): void => {
    table.choose(rowOf.get(name) ?? -1);
    show(table.row);
  };
  const { nonfinite, stopped } = about;
  const strips: HTMLElement[] = [];
  if (nonfinite !== null) {
    const goThere = (): void => {
      go(nonfinite.name);
      options.onChoose?.(nonfinite.name);
    };
    const press = button("Show it", goThere, signal, { class: "onnx-nb-small" });
    const message = el("span", elide(nonfinite.message, 600));
    strips.push(el("div.onnx-nb-strip.onnx-nb-alert", { role: "status" }, message, press));
  }
  if (stopped !== "") strips.push(el("div.onnx-nb-strip", { role: "status" }, elide(stopped, 300)));
  root.replaceChildren(
    el(
      "header.onnx-nb-bar",
      el("b.onnx-nb-name", { title: about.model }, elide(about.model, 48)),
      el("span.onnx-nb-dim.onnx-nb-ellipsis", about.runs),
      table.filter,
      onlyOdd,
      csvButton(table, `${about.model} values`, signal),
    ),
    linkNote,
    ...strips,
    el("div.onnx-nb-split-body", table.element, detail),
    live,
  );
  show(-1);
  return {
    /** Chooses a tensor by name, "" for none. */
    choose(name: string): void {
      if ((rowOf.get(name) ?? -1) !== table.row) go(name);
    },
    /** Shows the name of the linked graph, "" for none. */
    setLink: (text: string): void => linkNote.replaceChildren(elide(text, 200)),
  };
}

function columnsOf(digest: Digest): readonly TableColumn[] {
  const rows = Array.from({ length: digest.count }, (_, row) => row);
  const nan = Float64Array.from(rows, (row) => digest.nan(row));
  const inf = Float64Array.from(rows, (row) => digest.inf(row));
  const count = (x: number): string => (x === 0 ? "" : integer(x));
  const number = (key: string, title: string, of: Float64Array, spare: number, write?: typeof bytes): TableColumn => {
    const figures = of.map((x, row) => (digest.hasNumbers(row) ? x : Number.NaN));
    return numbers(key, title, [66, 0.5], figures, write, { spare });
  };
  const type = (row: number): string => `${digest.text("shape", row)} ${shortDtype(digest.text("dtype", row))}`.trim();
  const odd = [
    numbers("nan", "NaN", [44, 0], nan, count, { isBad: (row) => nan[row] > 0 }),
    numbers("inf", "Inf", [44, 0], inf, count, { isBad: (row) => inf[row] > 0 }),
  ];
  return [
    texts("name", "Value", [140, 3], (row) => digest.names[row], { names: true }),
    texts("op", "Op", [64, 0.7], (row) => digest.text("op", row) || "input"),
    texts("type", "Type", [104, 1.2], type),
    { key: "histogram", title: "Histogram", width: [70, 0], draw: (row) => sparkOf(digest, row) },
    ...(rows.some((row) => nan[row] + inf[row] > 0) ? odd : []),
    number("min", "Min", digest.min, 1),
    number("max", "Max", digest.max, 1),
    number("mean", "Mean", digest.mean, 2),
    number("std", "Std", digest.std, 3),
    number("bytes", "Size", digest.nbytes, 4, bytes),
  ];
}

/** Returns a histogram as a small picture, of the same numbers as the other columns. */
function sparkOf(digest: Digest, row: number): Element | null {
  const counts = digest.counts(row);
  if (counts.length < 2) return null;
  const barSize = Math.ceil(counts.length / SPARKS);
  const bars = Array.from({ length: Math.ceil(counts.length / barSize) }, (_, bar) =>
    counts.subarray(bar * barSize, (bar + 1) * barSize).reduce((sum, part) => sum + part, 0),
  );
  return spark(bars, Math.max(...bars));
}

function details(digest: Digest, row: number, signal: AbortSignal): Node[] {
  const name = digest.names[row];
  const origin = `${digest.text("op", row)} ${digest.text("node", row)}`.trim();
  const list = facts([
    ["type", `${digest.text("dtype", row)}  ${digest.text("shape", row) || "shape varied"}`],
    ["size", bytes(digest.nbytes[row])],
    ["made by", origin === "" ? "input of the model" : origin],
  ]);
  const content = digest.hasNumbers(row)
    ? statistics(digest.statistics(row))
    : [el("p.onnx-nb-dim", "It holds no numbers.")];
  return [...paneHead("value", name, signal), list, ...content];
}

function trouble(digest: Digest, row: number): string {
  const [nan, inf] = [digest.nan(row), digest.inf(row)];
  return nan + inf === 0 ? "" : `has ${countOf(nan, "NaN")} and ${countOf(inf, "Inf")}`;
}
