/** Numbers in a tensor: statistics with a histogram, pages of cells, a picture of a slice, and capturing if needed. */

import { statistics, valueText } from "../charts/histogram.ts";
import type { CellsPage, Place, ValueHost } from "../protocol/host.ts";
import type { Look } from "../protocol/wire.ts";
import { integer } from "../scene/formatting.ts";
import { button, copyButton, el, elide, fillings, on, onAbort, rememberFocus, settle, toggleRow } from "../ui/dom.ts";
import { createProgress, failureNote } from "../ui/task.ts";
import { download } from "./export.ts";
import type { ViewContext } from "./viewcontext.ts";

/** Maximum cells of a page; the kernel sends no more. */
const PAGE = { rows: 16, columns: 6 } as const;
const START: Place = { index: [], row: 0, column: 0, look: "slice" };

/** A page, and the actions of its parts. */
interface Paging {
  readonly page: CellsPage;
  readonly place: Place;
  /** turns to another page; omitted fields keep their values */
  readonly turn: (place: Partial<Place>) => void;
  /** downloads the tensor */
  readonly keep: () => void;
  readonly signal: AbortSignal;
}

export function createValues(view: ViewContext, value: number, host: ValueHost, signal: AbortSignal): HTMLElement {
  const { columns, dispatch } = view;
  const root = el("section.onnx-nb-values", { "aria-label": "Values" });
  const constant = columns.isConstant(value);
  // produced by folded nodes: its literal is already shown
  if (constant && columns.producer[value] >= 0 && columns.str(columns.valueLiteral[value]) !== "") return root;
  const stats = el("div");
  const cells = el("div");
  const capture = button("Capture", () => dispatch({ type: "capture", value }), signal, {
    title: "Run the model up to here and look at this tensor",
  });
  root.append(stats, cells);
  if (!constant) root.append(el("div.onnx-nb-row", capture));
  if (!constant && view.state().captures === 0) return root;

  const next = fillings(signal);
  const fail = (error: unknown): void => cells.replaceChildren(failureNote(error));
  const turn = (place: Place): void => {
    const round = next();
    const focusAgain = rememberFocus(cells, () => cells.querySelector<HTMLElement>("[tabindex]"));
    const show = (page: CellsPage): void => {
      const { index, row, column } = page;
      const go = (to: Partial<Place>): void => turn({ ...place, index, row, column, ...to });
      cells.replaceChildren(...pageParts({ page, place, turn: go, keep, signal }));
      focusAgain();
      cells.scrollIntoView?.({ block: "nearest" });
    };
    settle(host.page(value, place, round), round, show, fail);
  };
  const keep = (): void => {
    const save = (content: Uint8Array): void => download(content, columns.valueNameOf(value), "npy");
    settle(host.npy(value, signal), signal, save, fail);
  };
  const offer = (): void => {
    const open = button("Values", () => turn(START), signal, { title: "Show the numbers" });
    cells.replaceChildren(el("div.onnx-nb-row", open, saveButton(keep, signal)));
  };
  /** Reads the tensor, with progress if it takes long: a weight may have gigabytes. */
  const read = async (): Promise<void> => {
    const stopping = new AbortController();
    const stop = (): void => stopping.abort();
    onAbort(signal, stop);
    const progress = createProgress("Reading", stop, signal);
    const report = (share: number, message: string): void => {
      if (!progress.element.isConnected) stats.replaceChildren(progress.element);
      progress.show(share, message);
    };
    try {
      const reply = await host.statistics(value, report, stopping.signal);
      if (signal.aborted || reply === null) return;
      capture.textContent = "Capture again";
      stats.replaceChildren(...statistics(reply));
      if (!constant) offer();
    } catch (error) {
      if (signal.aborted) return;
      const retry = button("Statistics", () => void read(), signal, { title: "Read the whole tensor" });
      stats.replaceChildren(stopping.signal.aborted ? el("div.onnx-nb-row", retry) : failureNote(error));
    }
  };
  // pages of a weight are read without the rest, however large it is
  if (constant) offer();
  void read();
  return root;
}

function saveButton(keep: () => void, signal: AbortSignal): HTMLButtonElement {
  return button("Save .npy", keep, signal, { title: "Download the whole tensor for numpy.load" });
}

function pageParts(paging: Paging): Node[] {
  const { page, turn, keep, signal } = paging;
  const { shape, index, row, column, cells } = page;
  const parts: Node[] = [];
  if (page.kinds.length > 1) parts.push(kindSwitch(paging));
  if (index.length > 0 || page.trailing > 0) parts.push(slicer(paging));
  if (page.pixels !== undefined && page.picture !== null) {
    const looks = page.looks.map((look) => [...LOOKS[look], look === paging.place.look, () => turn({ look })] as const);
    if (looks.length > 1) parts.push(toggleRow("Look", looks, signal));
    parts.push(...picture(page.pixels, page.picture, paging));
  }
  if (cells.length === 0) parts.push(el("p.onnx-nb-dim", "No values: one of its dimensions is 0."));
  else parts.push(el("div.onnx-nb-cells-box", { tabindex: 0, role: "region", "aria-label": "Cells" }, tableOf(page)));
  const rows = shape.length > 1 ? shape[shape.length - 2] : (shape[0] ?? 1);
  const across = shape.length > 1 ? shape[shape.length - 1] : 1;
  const [down, right] = [row + cells.length, column + (cells[0]?.length ?? 0)];
  const step = (text: string, name: string, to: Partial<Place>, canStep: boolean): HTMLButtonElement =>
    button(text, () => turn(to), signal, { class: "onnx-nb-small", "aria-label": name, disabled: !canStep });
  parts.push(
    el(
      "div.onnx-nb-row",
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

/** Creates one field for each dimension except the last two. */
function slicer({ page: { shape, index, trailing }, turn, signal }: Paging): HTMLElement {
  const fields = index.map((value, dimension) => {
    const attributes = { min: 0, max: shape[dimension] - 1, value, "aria-label": `Index of dimension ${dimension}` };
    const field = el("input.onnx-nb-field", { type: "number", ...attributes });
    const press = (): void => turn({ index: index.with(dimension, Number(field.value)), row: 0, column: 0 });
    on(field, "change", signal, press);
    return field;
  });
  const trailingText = `${index.length > 0 ? ", " : ""}:, :${", 0".repeat(trailing)}]`;
  return el("div.onnx-nb-row.onnx-nb-index", "[", ...fields, trailingText);
}

function tableOf({ cells, row, column }: CellsPage): HTMLElement {
  const head = el("tr", el("th"), ...cells[0].map((_, at) => el("th", integer(column + at))));
  const lines = cells.map((line, at) =>
    el("tr", el("th", integer(row + at)), ...line.map((text) => el("td", { title: text }, elide(text, 14)))),
  );
  return el("table.onnx-nb-cells", el("thead", head), el("tbody", ...lines));
}

const LOOKS: Readonly<Record<Look, readonly [text: string, title: string]>> = {
  slice: ["One slice", "The matrix of the last two dimensions"],
  channels: ["Channels", "Slices along the third last dimension side by side, on one scale"],
  color: ["Color", "Its three channels as red, green and blue"],
};

const KINDS: Readonly<Record<string, string>> = {
  Attention: "Probabilities: queries down; across, slots of the past, then the keys of this run",
  "Error by block": "Of the root mean square of each block, by that of the float weight",
};

/** Creates a button for each kind of numbers: a weight dequantized or packed, an output or what led to it. */
function kindSwitch({ page: { kinds }, place, turn, signal }: Paging): HTMLElement {
  const toggles = kinds.map((kind, at) => {
    const look = at === 0 ? START.look : "channels"; // heads of an attention
    return [kind, KINDS[kind] ?? "", kind === (place.kind ?? kinds[0]), () => turn({ ...START, look, kind })] as const;
  });
  return toggleRow("Numbers", toggles, signal);
}

/** Pixels between tiles. */
const GAP = 2;

/** Draws slices in gray, bright for large values, or in color; non-finite values in red. A click on a tile opens it. */
function picture(
  pixels: Uint8Array,
  { look, shape: [tiles, height, width], first, low, high }: NonNullable<CellsPage["picture"]>,
  { page: { index }, turn, signal }: Paging,
): Node[] {
  const across = Math.ceil(Math.sqrt((tiles * height) / width));
  const canvas = el("canvas.onnx-nb-heat", {
    role: "img",
    "aria-label": `Picture of ${LOOKS[look][0].toLowerCase()}, bright where it is large`,
  });
  canvas.width = across * (width + GAP) - GAP;
  canvas.height = Math.ceil(tiles / across) * (height + GAP) - GAP;
  const context = canvas.getContext("2d");
  const depth = look === "color" ? 3 : 1;
  for (let tile = 0; tile < tiles && context !== null; tile++) {
    const image = context.createImageData(width, height);
    for (let at = 0; at < width * height; at++) {
      const from = (tile * width * height + at) * depth;
      const r = pixels[from];
      const [g, b] = depth === 3 ? [pixels[from + 1], pixels[from + 2]] : [r, r];
      image.data.set(r === 0 || g === 0 || b === 0 ? [220, 30, 30, 255] : [r, g, b, 255], 4 * at);
    }
    context.putImageData(image, (tile % across) * (width + GAP), Math.floor(tile / across) * (height + GAP));
  }
  if (look === "channels") {
    const at = (event: MouseEvent): number => {
      // drawn with object-fit: contain, from the left
      const box = canvas.getBoundingClientRect();
      const scale = Math.min(box.width / canvas.width, box.height / canvas.height);
      const column = Math.floor((event.clientX - box.left) / scale / (width + GAP));
      const top = (box.height - canvas.height * scale) / 2;
      const row = Math.floor((event.clientY - box.top - top) / scale / (height + GAP));
      const tile = row * across + column;
      return column >= 0 && column < across && row >= 0 && tile < tiles ? first + tile : -1;
    };
    canvas.classList.add("onnx-nb-tiles");
    on(canvas, "click", signal, (event) => {
      const channel = at(event);
      if (channel >= 0) turn({ ...START, index: [...index.slice(0, -1), channel] });
    });
    on(canvas, "pointermove", signal, (event) => {
      const channel = at(event);
      canvas.title = channel < 0 ? "" : `[${[...index.slice(0, -1), channel].join(", ")}, :, :]`;
    });
  }
  const [darkEnd, brightEnd] = [el("span", valueText(low)), el("span", valueText(high))];
  const ends = el("div.onnx-nb-gray", darkEnd, el("i", { "aria-hidden": "true" }), brightEnd);
  const part = `Slices ${integer(first)} to ${integer(first + tiles - 1)} on one scale`;
  return [canvas, ends, ...(look === "channels" && tiles > 1 ? [el("div.onnx-nb-dim", part)] : [])];
}
