/** The numbers in a tensor: statistics with a histogram, pages of cells, a picture of a slice; capturing where needed. */

import { statistics, valueText } from "../charts/histogram.ts";
import type { Columns } from "../protocol/columns.ts";
import { failure, type Look, type PageReply, type PictureReply, type Place, type ValueHost } from "../protocol/host.ts";
import { plain } from "../scene/formatting.ts";
import type { Dispatch } from "../scene/state.ts";
import { button, copyButton, el, elide, focused, on, onAbort } from "./dom.ts";
import { download } from "./export.ts";
import { createProgress } from "./task.ts";

/** Cells of a page; the kernel sends no more. */
const PAGE = { rows: 16, columns: 6 } as const;
const START: Place = { index: [], row: 0, column: 0, look: "slice" };

export function createValues(
  columns: Columns,
  value: number,
  host: ValueHost,
  captures: number,
  dispatch: Dispatch,
  signal: AbortSignal,
): HTMLElement {
  const root = el("section.onnx-nb-values", { "aria-label": "Values" });
  const constant = columns.isConstant(value);
  // made by folded nodes: its literal is shown already
  if (constant && columns.producer[value] >= 0 && columns.str(columns.valueLiteral[value]) !== "") return root;
  const stats = el("div");
  const cells = el("div");
  const capture = button("Capture", () => dispatch({ type: "capture", value }), signal, {
    title: "Run the model up to here and look at this tensor",
  });
  root.append(stats, cells);
  if (!constant) root.append(el("div.onnx-nb-row", capture));
  if (!constant && captures === 0) return root;

  const trouble = (place: HTMLElement) => (error: unknown) => {
    if (!signal.aborted) place.replaceChildren(el("p.onnx-nb-dim", elide(failure(error).message, 300)));
  };
  let turning = new AbortController();
  onAbort(signal, () => turning.abort());
  const turn = async (place: Place): Promise<void> => {
    turning.abort();
    turning = new AbortController();
    const round = turning;
    const focus = focusedIn(cells);
    try {
      const page = await host.page(value, place, round.signal);
      if (round.signal.aborted) return;
      cells.replaceChildren(...paged(page, place.look, turn, keep, signal));
      focus();
    } catch (error) {
      if (!round.signal.aborted) trouble(cells)(error);
    }
  };
  const keep = async (): Promise<void> => {
    try {
      const content = await host.npy(value, signal);
      if (!signal.aborted) download(new Blob([content as Uint8Array<ArrayBuffer>]), columns.valueNameOf(value), "npy");
    } catch (error) {
      trouble(cells)(error);
    }
  };
  const offer = (): void => {
    const open = button("Values", () => void turn(START), signal, { title: "Show the numbers" });
    cells.replaceChildren(el("div.onnx-nb-row", open, saveButton(keep, signal)));
  };
  /** Reads the tensor, with progress if that takes a while: a weight may have gigabytes. */
  const read = (): void => {
    const stopping = new AbortController();
    const stop = (): void => stopping.abort();
    onAbort(signal, stop);
    const progress = createProgress("Reading", stop, signal);
    const report = (done: number, message: string): void => {
      if (!progress.element.isConnected) stats.replaceChildren(progress.element);
      progress.show(done, message);
    };
    host.statistics(value, report, stopping.signal).then(
      (found) => {
        if (signal.aborted || found === null) return;
        capture.textContent = "Capture again";
        stats.replaceChildren(...statistics(constant ? { ...found, source: "" } : found));
        if (!constant) offer();
      },
      (error: unknown) => {
        if (!stopping.signal.aborted) trouble(stats)(error);
        else if (!signal.aborted) {
          const again = button("Statistics", read, signal, { title: "Read the whole tensor" });
          stats.replaceChildren(el("div.onnx-nb-row", again));
        }
      },
    );
  };
  // a weight's pages are read by themselves, however large it is
  if (constant) offer();
  read();
  return root;
}

/** Returns back the keyboard after a page was replaced. */
function focusedIn(cells: HTMLElement): () => void {
  const held = [...cells.querySelectorAll<HTMLElement>("[aria-label], button")].find((each) => focused(each));
  return () => {
    if (held === undefined) return;
    const label = held.getAttribute("aria-label");
    const same = [...cells.querySelectorAll<HTMLButtonElement>("[aria-label]")].find(
      (each) => each.getAttribute("aria-label") === label && !each.disabled,
    );
    (same ?? cells.querySelector<HTMLElement>("[tabindex]"))?.focus({ preventScroll: true });
  };
}

function saveButton(keep: () => Promise<void>, signal: AbortSignal): HTMLButtonElement {
  return button("Save .npy", () => void keep(), signal, { title: "Download the whole tensor for numpy.load" });
}

function paged(
  page: PageReply,
  look: Look,
  turn: (place: Place) => Promise<void>,
  keep: () => Promise<void>,
  signal: AbortSignal,
): Node[] {
  const { shape, index, row, column, cells } = page;
  const parts: Node[] = [];
  if (index.length > 0 || page.trailing > 0) parts.push(slicer(page, look, turn, signal));
  if (page.pixels !== undefined && page.picture !== undefined) {
    if (page.looks.length > 1) parts.push(lookSwitch(page, look, turn, signal));
    parts.push(...picture(page.pixels, page.picture, page, turn, signal));
  }
  if (cells.length === 0) parts.push(el("p.onnx-nb-dim", "No values: one of its dimensions is 0."));
  else parts.push(el("div.onnx-nb-cells-box", { tabindex: 0, role: "region", "aria-label": "Cells" }, tableOf(page)));
  const rows = shape.length > 1 ? shape[shape.length - 2] : (shape[0] ?? 1);
  const across = shape.length > 1 ? shape[shape.length - 1] : 1;
  const [down, right] = [row + cells.length, column + (cells[0]?.length ?? 0)];
  const step = (text: string, name: string, to: Partial<Place>, possible: boolean): HTMLButtonElement => {
    const made = button(text, () => void turn({ index, row, column, look, ...to }), signal, {
      class: "onnx-nb-small",
      "aria-label": name,
    });
    made.disabled = !possible;
    return made;
  };
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

/** One field for each dimension but the last two. */
function slicer(
  { shape, index, trailing }: PageReply,
  look: Look,
  turn: (place: Place) => Promise<void>,
  signal: AbortSignal,
): HTMLElement {
  const line = el("div.onnx-nb-row.onnx-nb-index", "[");
  index.forEach((number, dimension) => {
    const field = el("input.onnx-nb-field", {
      type: "number",
      min: 0,
      max: shape[dimension] - 1,
      value: number,
      "aria-label": `Index of dimension ${dimension}`,
    });
    const chosen = (): Place => ({
      index: index.map((old, at) => (at === dimension ? Number(field.value) : old)),
      row: 0,
      column: 0,
      look,
    });
    on(field, "change", signal, () => void turn(chosen()));
    line.append(field);
  });
  line.append(`${index.length > 0 ? ", " : ""}:, :${", 0".repeat(trailing)}]`);
  return line;
}

function tableOf({ cells, row, column }: PageReply): HTMLElement {
  const head = el("tr", el("th"));
  for (let at = 0; at < cells[0].length; at++) head.append(el("th", plain(column + at)));
  const body = el("tbody");
  cells.forEach((line, at) => {
    const items = line.map((text) => el("td", { title: text }, elide(text, 14)));
    body.append(el("tr", el("th", plain(row + at)), ...items));
  });
  return el("table.onnx-nb-cells", el("thead", head), body);
}

const LOOKS: Readonly<Record<Look, readonly [text: string, title: string]>> = {
  slice: ["One slice", "The matrix of the last two dimensions"],
  channels: ["Channels", "Slices along the third last dimension side by side, on one scale"],
  color: ["Color", "Its three channels as red, green and blue"],
};

function lookSwitch(
  { looks, index, row, column }: PageReply,
  look: Look,
  turn: (place: Place) => Promise<void>,
  signal: AbortSignal,
): HTMLElement {
  const choose = (each: Look): HTMLButtonElement =>
    button(LOOKS[each][0], () => void turn({ index, row, column, look: each }), signal, {
      class: "onnx-nb-small",
      title: LOOKS[each][1],
      "aria-pressed": String(each === look),
      "aria-label": LOOKS[each][0],
    });
  return el("div.onnx-nb-row", { role: "group", "aria-label": "Look" }, ...looks.map((each) => choose(each)));
}

/** px between tiles */
const GAP = 2;

/** Slices in gray, bright where they are large, or in color; what is not finite in red. A click on a tile opens it. */
function picture(
  pixels: Uint8Array,
  { look, shape: [tiles, height, width], first, low, high }: PictureReply,
  { index }: PageReply,
  turn: (place: Place) => Promise<void>,
  signal: AbortSignal,
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
      if (channel >= 0) void turn({ ...START, index: [...index.slice(0, -1), channel] });
    });
    on(canvas, "pointermove", signal, (event) => {
      const channel = at(event);
      canvas.title = channel < 0 ? "" : `[${[...index.slice(0, -1), channel].join(", ")}, :, :]`;
    });
  }
  const ends = el(
    "div.onnx-nb-gray",
    el("span", valueText(low)),
    el("i", { "aria-hidden": "true" }),
    el("span", valueText(high)),
  );
  const part = look === "channels" && tiles > 1 ? `${plain(first)} to ${plain(first + tiles - 1)}` : "";
  return [canvas, ends, ...(part === "" ? [] : [el("div.onnx-nb-dim", `Slices ${part} on one scale`)])];
}
