/** The numbers in a tensor: statistics with a histogram, pages of cells, a picture of a slice; capturing where needed. */

import type { Columns } from "../model/columns.ts";
import { failure, type PageReply, type Place, type StatisticsReply, type ValueHost } from "../scene/host.ts";
import { written } from "../scene/numbers.ts";
import type { Dispatch } from "../scene/state.ts";
import { button, copyButton, el, elide, plain } from "./dom.ts";
import { download } from "./save.ts";

/** A histogram is drawn with at most so many bars. */
const BARS = 64;
/** Cells of a page; the kernel sends no more. */
const PAGE = { rows: 16, columns: 6 } as const;
const START: Place = { index: [], row: 0, column: 0 };

export function createValues(
  columns: Columns,
  value: number,
  host: ValueHost,
  captures: number,
  dispatch: Dispatch,
  signal: AbortSignal,
): HTMLElement {
  const root = el("section", { class: "onnx-nb-values", attrs: { "aria-label": "Values" } });
  const constant = columns.isConstant(value);
  if (constant && columns.producer[value] >= 0) return root; // made by folded nodes: its literal says it
  const stats = el("div");
  const cells = el("div");
  const capture = button("Capture", () => dispatch({ type: "capture", value }), signal, {
    title: "Run the model up to here and look at this tensor",
  });
  root.append(stats, cells);
  if (!constant) root.append(el("div", { class: "onnx-nb-row" }, capture));
  if (!constant && captures === 0) return root;

  const trouble = (error: unknown): void => {
    if (!signal.aborted) cells.replaceChildren(el("p", { class: "onnx-nb-dim" }, elide(failure(error).message, 300)));
  };
  let turning = new AbortController();
  signal.addEventListener("abort", () => turning.abort(), { once: true });
  const turn = async (place: Place): Promise<void> => {
    turning.abort();
    turning = new AbortController();
    const round = turning;
    try {
      const page = await host.page(value, place, round.signal);
      if (!round.signal.aborted) cells.replaceChildren(...paged(page, turn, keep, signal));
    } catch (error) {
      if (!round.signal.aborted) trouble(error);
    }
  };
  const keep = async (): Promise<void> => {
    try {
      const content = await host.npy(value, signal);
      if (!signal.aborted) download(new Blob([content as Uint8Array<ArrayBuffer>]), columns.valueNameOf(value), "npy");
    } catch (error) {
      trouble(error);
    }
  };
  host.statistics(value, signal).then((found) => {
    if (signal.aborted || found === null) return;
    capture.textContent = "Capture again";
    stats.replaceChildren(...statistics(found));
    const open = button("Values", () => void turn(START), signal, { title: "Show the numbers" });
    cells.replaceChildren(el("div", { class: "onnx-nb-row" }, open, saveButton(keep, signal)));
  }, trouble);
  return root;
}

function saveButton(keep: () => Promise<void>, signal: AbortSignal): HTMLButtonElement {
  return button("Save .npy", () => void keep(), signal, { title: "Download the whole tensor for numpy.load" });
}

function statistics(found: StatisticsReply): Node[] {
  const odd = found.nan + found.posinf + found.neginf;
  const share = found.count > 0 ? `${Number(((100 * found.zeros) / found.count).toPrecision(3))}%` : "–";
  const rows: readonly (readonly [label: string, text: string, bad: boolean])[] = [
    ["mean ± std", `${said(found.mean)} ± ${said(found.std)}`, false],
    ["min, max", `${said(found.min)}, ${said(found.max)}`, false],
    ["NaN, Inf, 0", `${plain(found.nan)}, ${plain(found.posinf + found.neginf)}, ${share}`, odd > 0],
  ];
  const list = el("dl", { class: "onnx-nb-rows" });
  for (const [label, text, bad] of rows) {
    const cell = el("span", { class: `onnx-nb-mono${bad ? " onnx-nb-bad" : ""}` }, text);
    list.append(el("dt", {}, label), el("dd", {}, cell));
  }
  const parts: Node[] = [el("div", { class: "onnx-nb-dim" }, found.source)];
  if (found.counts.length > 1) parts.push(histogram(found));
  parts.push(list);
  return parts;
}

function histogram({ counts, edges }: StatisticsReply): HTMLElement {
  const each = Math.ceil(counts.length / BARS);
  const bars: { readonly count: number; readonly from: number; readonly to: number }[] = [];
  for (let at = 0; at < counts.length; at += each) {
    const count = counts.slice(at, at + each).reduce((sum, part) => sum + part, 0);
    bars.push({ count, from: edges[at], to: edges[Math.min(at + each, counts.length)] });
  }
  const most = Math.max(...bars.map(({ count }) => count));
  const [first, last] = [edges[0], edges[edges.length - 1]];
  const zero = -first / (last - first);
  return el(
    "div",
    {
      class: "onnx-nb-histogram",
      attrs: { role: "img", "aria-label": `Histogram from ${said(first)} to ${said(last)}` },
    },
    el(
      "div",
      { class: "onnx-nb-bars" },
      ...bars.map(({ count, from, to }) =>
        el("i", {
          title: `${said(from)} … ${said(to)}: ${plain(count)}`,
          style: { height: `${count === 0 ? 0 : Math.max(2, (100 * count) / most)}%` },
        }),
      ),
    ),
    el(
      "div",
      { class: "onnx-nb-scale-ends" },
      el("span", {}, said(first)),
      zero > 0.2 && zero < 0.8 ? el("span", { class: "onnx-nb-zero", style: { left: `${100 * zero}%` } }, "0") : null,
      el("span", {}, said(last)),
    ),
  );
}

function paged(
  page: PageReply,
  turn: (place: Place) => Promise<void>,
  keep: () => Promise<void>,
  signal: AbortSignal,
): Node[] {
  const { shape, index, row, column, cells } = page;
  const parts: Node[] = [];
  if (index.length > 0) parts.push(slicer(page, turn, signal));
  if (page.pixels !== undefined && page.picture !== undefined) parts.push(heat(page.pixels, page.picture));
  if (cells.length === 0) parts.push(el("p", { class: "onnx-nb-dim" }, "No values: one of its dimensions is 0."));
  else
    parts.push(
      el(
        "div",
        { class: "onnx-nb-cells-box", attrs: { tabindex: 0, role: "region", "aria-label": "Cells" } },
        tableOf(page),
      ),
    );
  const rows = shape.length > 1 ? shape[shape.length - 2] : (shape[0] ?? 1);
  const across = shape.length > 1 ? shape[shape.length - 1] : 1;
  const [down, right] = [row + cells.length, column + (cells[0]?.length ?? 0)];
  const step = (text: string, name: string, to: Partial<Place>, possible: boolean): HTMLButtonElement => {
    const made = button(text, () => void turn({ index, row, column, ...to }), signal, {
      class: "onnx-nb-small",
      attrs: { "aria-label": name },
    });
    made.disabled = !possible;
    return made;
  };
  parts.push(
    el(
      "div",
      { class: "onnx-nb-row" },
      step("↑", "Rows before", { row: Math.max(0, row - PAGE.rows) }, row > 0),
      step("↓", "Rows after", { row: down }, down < rows),
      step("←", "Columns before", { column: Math.max(0, column - PAGE.columns) }, column > 0),
      step("→", "Columns after", { column: right }, right < across),
      copyButton(() => cells.map((line) => line.join("\t")).join("\n"), signal),
      saveButton(keep, signal),
    ),
  );
  return parts;
}

/** One field for each dimension but the last two. */
function slicer({ shape, index }: PageReply, turn: (place: Place) => Promise<void>, signal: AbortSignal): HTMLElement {
  const line = el("div", { class: "onnx-nb-row onnx-nb-index" }, "[");
  index.forEach((number, dimension) => {
    const field = el("input", {
      class: "onnx-nb-field",
      attrs: {
        type: "number",
        min: 0,
        max: shape[dimension] - 1,
        value: number,
        "aria-label": `Index of dimension ${dimension}`,
      },
    });
    const chosen = (): Place => ({
      index: index.map((old, at) => (at === dimension ? Number(field.value) : old)),
      row: 0,
      column: 0,
    });
    field.addEventListener("change", () => void turn(chosen()), { signal });
    line.append(field);
  });
  line.append(", :, :]");
  return line;
}

function tableOf({ cells, row, column }: PageReply): HTMLElement {
  const head = el("tr", {}, el("th", {}));
  for (let at = 0; at < cells[0].length; at++) head.append(el("th", {}, plain(column + at)));
  const body = el("tbody");
  cells.forEach((line, at) => {
    const items = line.map((text) => el("td", { title: text }, elide(text, 14)));
    body.append(el("tr", {}, el("th", {}, plain(row + at)), ...items));
  });
  return el("table", { class: "onnx-nb-cells" }, el("thead", {}, head), body);
}

/** A slice in grey, bright where it is large; what is not finite in red. */
function heat(pixels: Uint8Array, [height, width]: readonly [number, number]): HTMLElement {
  const canvas = el("canvas", {
    class: "onnx-nb-heat",
    attrs: { role: "img", "aria-label": "Picture of the slice, bright where it is large" },
  });
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  if (context === null) return canvas;
  const image = context.createImageData(width, height);
  pixels.forEach((level, at) => {
    image.data.set(level === 0 ? [220, 30, 30, 255] : [level, level, level, 255], 4 * at);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

/** "0.0021", "−3.11", "1.2e−8"; what JSON cannot hold came as text. */
function said(x: number | string): string {
  return typeof x === "string" && x !== "nan" ? x.replace("-", "−") : written(Number(x), 4);
}
