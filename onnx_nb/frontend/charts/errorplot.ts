/** Errors against depth: a canvas to point at, to walk by the keyboard, and to zoom into by dragging over a part. */

import { button, el, on, onAbort } from "../panels/dom.ts";
import type { Pen } from "../render/canvas.ts";
import { SvgPen, xml } from "../render/svg.ts";
import { createMeasure, readTheme, type Theme } from "../render/theme.ts";
import {
  CAPTION,
  createPlotArea,
  drawCaption,
  drawChosen,
  drawErrors,
  type ErrorSeries,
  type Look,
  type PlotArea,
  type Span,
  spanOf,
} from "./plotarea.ts";

export interface ErrorPlotOptions {
  /** name of what is drawn */
  readonly metric: string;
  /** row of the first divergent point, −1 for none */
  readonly first: number;
  /** describes a point in a line, and in a tooltip */
  readonly describe: (row: number) => string;
  readonly tooltip: (row: number) => readonly Node[];
  /** a person chose a point */
  readonly chosen: (row: number) => void;
  /** remark over a plot without anything to see, "" for none */
  readonly note: string;
}

/** Pixels of the plot before it has a size. */
const HEIGHT = 206;
/** Pixels that a pointer moves before it drags. */
const SLOP = 5;

export class ErrorPlot {
  readonly element: HTMLElement;
  readonly #options: ErrorPlotOptions;
  readonly #plot: HTMLElement;
  readonly #ground = el("canvas.onnx-nb-depth-ground", { "aria-hidden": true });
  readonly #over = el("canvas.onnx-nb-depth-over", { "aria-hidden": true });
  readonly #tooltip = el("div.onnx-nb-tooltip", { "aria-hidden": true });
  readonly #showAll: HTMLElement;
  #errors: ErrorSeries;
  #metric: string;
  #span: Span;
  #area: PlotArea;
  #chosen = -1;
  #hovered = -1;
  #drag: { readonly from: number; to: number } | null = null;
  #theme: Theme | null = null;
  #frame = 0;
  /** the errors have to be drawn again, and not only what is chosen */
  #stale = false;

  constructor(errors: ErrorSeries, options: ErrorPlotOptions, signal: AbortSignal) {
    this.#options = options;
    this.#errors = errors;
    this.#metric = options.metric;
    this.#span = spanOf(errors.count);
    this.#tooltip.hidden = true;
    this.#showAll = button("Show all", () => this.#zoom(), signal, {
      class: "onnx-nb-small onnx-nb-depth-whole",
      title: "Back to all points (0)",
    });
    this.#showAll.hidden = true;
    const label = { role: "slider", tabindex: 0, "aria-label": "Errors against depth", "aria-valuemin": 1 };
    this.#plot = el("div.onnx-nb-depth-plot", label, this.#ground, this.#over);
    const note = options.note === "" ? null : el("div.onnx-nb-depth-note.onnx-nb-dim", options.note);
    this.element = el("div.onnx-nb-depth", this.#plot, note, this.#showAll, this.#tooltip);
    this.#area = this.#areaNow();
    this.#listenPointer(signal);
    this.#listenKeys(signal);
    const observer = new ResizeObserver(() => this.#rescale());
    observer.observe(this.#plot);
    onAbort(signal, () => {
      observer.disconnect();
      cancelAnimationFrame(this.#frame);
    });
    this.#describe();
  }

  show(errors: ErrorSeries, metric: string): void {
    this.#errors = errors;
    this.#metric = metric;
    this.#rescale();
  }

  choose(row: number): void {
    this.#chosen = row;
    this.#describe();
    const { from, to } = this.#span;
    const half = (to - from) / 2;
    if (row >= 0 && (row < from || row > to)) this.#zoom(row - half, row + half);
    this.#schedule();
  }

  /** Draws in the colors that the page has now. */
  redraw(): void {
    this.#theme = null;
    this.#schedule(true);
  }

  /** Returns the plot with its caption. */
  svg(title: string): string {
    const [w, h] = this.#size;
    const pen = new SvgPen(createMeasure(this.#look.theme.font));
    this.#drawWhole(pen, title, 1);
    const size = `width="${w}" height="${h + CAPTION}" viewBox="0 0 ${w} ${h + CAPTION}"`;
    const head = `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img">`;
    return `${head}<title>${xml(title)}</title>${pen.finish()}</svg>`;
  }

  /** Returns the plot with its caption, at twice its size. */
  png(title: string): Promise<Blob> {
    const [w, h] = this.#size;
    const canvas = el("canvas", { width: 2 * w, height: 2 * (h + CAPTION) });
    const pen = canvas.getContext("2d");
    if (pen === null) return Promise.reject(new Error("this browser cannot draw on a canvas"));
    this.#drawWhole(pen as Pen, title, 2);
    return new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob === null ? reject(new Error("the picture is too large")) : resolve(blob)));
    });
  }

  // ---------------------------------------------------------------- drawing

  get #size(): [number, number] {
    return [Math.max(160, this.#plot.clientWidth || 600), this.#plot.clientHeight || HEIGHT];
  }

  get #look(): Look {
    this.#theme ??= readTheme(this.element.closest<HTMLElement>(".onnx-nb") ?? this.element, ["activation"]);
    return { theme: this.#theme, isolated: this.#theme.categories[0] };
  }

  #areaNow(): PlotArea {
    return createPlotArea(this.#errors, this.#span, ...this.#size);
  }

  /** Where the points are changes at once, the drawing with the next area. */
  #rescale(): void {
    this.#area = this.#areaNow();
    this.#schedule(true);
  }

  #zoom(from = 0, to = this.#errors.count - 1): void {
    this.#span = spanOf(this.#errors.count, from, to);
    this.#showAll.hidden = this.#span.to - this.#span.from >= this.#errors.count - 1.5;
    this.#rescale();
  }

  #schedule(errors = false): void {
    this.#stale ||= errors;
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#stale) {
        this.#area = this.#areaNow();
        const pen = this.#cleared(this.#ground);
        if (pen !== null) drawErrors(pen, this.#area, this.#options.first, this.#look);
      }
      this.#stale = false;
      this.#drawMarks();
    });
  }

  #cleared(canvas: HTMLCanvasElement): Pen | null {
    const [w, h] = this.#size;
    const density = globalThis.devicePixelRatio || 1;
    if (canvas.width !== Math.round(w * density)) canvas.width = Math.round(w * density);
    if (canvas.height !== Math.round(h * density)) canvas.height = Math.round(h * density);
    const context = canvas.getContext("2d");
    context?.setTransform(density, 0, 0, density, 0, 0);
    context?.clearRect(0, 0, w, h);
    return context as Pen | null;
  }

  #drawMarks(): void {
    const pen = this.#cleared(this.#over);
    if (pen === null) return;
    const { theme } = this.#look;
    if (this.#drag !== null) {
      const { from, to } = this.#drag;
      pen.fillStyle = theme.halo;
      pen.fillRect(Math.min(from, to), 4, Math.abs(to - from), this.#area.height - 28);
    }
    if (this.#hovered !== this.#chosen) drawChosen(pen, this.#area, this.#hovered, theme.dim, theme);
    drawChosen(pen, this.#area, this.#chosen, theme.text, theme);
  }

  #drawWhole(pen: Pen, title: string, scale: number): void {
    const look = this.#look;
    const area = this.#areaNow();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = look.theme.background;
    pen.fillRect(0, 0, area.width, area.height + CAPTION);
    drawCaption(pen, area, title, this.#metric, look);
    pen.setTransform(scale, 0, 0, scale, 0, scale * CAPTION);
    drawErrors(pen, area, this.#options.first, look);
  }

  // ---------------------------------------------------------------- choosing

  #describe(): void {
    const row = this.#chosen;
    this.#plot.setAttribute("aria-valuemax", String(Math.max(1, this.#errors.count)));
    this.#plot.setAttribute("aria-valuenow", String(Math.max(1, row + 1)));
    this.#plot.setAttribute("aria-valuetext", row < 0 ? "no point chosen" : this.#options.describe(row));
  }

  #pick(row: number): void {
    if (row < 0 || row === this.#chosen) return;
    this.choose(row);
    this.#options.chosen(row);
  }

  #hover(row: number, [x, y]: readonly [number, number]): void {
    const tooltip = this.#tooltip;
    this.#hovered = row;
    tooltip.hidden = row < 0;
    if (row >= 0) {
      tooltip.replaceChildren(...this.#options.tooltip(row));
      const { offsetWidth: w, offsetHeight: h } = tooltip;
      const { width, height } = this.#area;
      tooltip.style.left = `${Math.max(4, Math.min(x + 14, width - w - 4))}px`;
      tooltip.style.top = `${y + 18 + h > height ? Math.max(0, y - h - 10) : y + 18}px`;
    }
    this.#schedule();
  }

  #listenPointer(signal: AbortSignal): void {
    const plot = this.#plot;
    const at = (event: MouseEvent): [number, number] => {
      const box = plot.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    on(plot, "pointermove", signal, (event) => {
      const place = at(event);
      const drag = this.#drag;
      if (drag === null) this.#hover(this.#area.nearest(...place), place);
      else {
        drag.to = Math.max(this.#area.left, Math.min(this.#area.right, place[0]));
        if (Math.abs(drag.to - drag.from) > SLOP) this.#hover(-1, place);
      }
    });
    on(plot, "pointerleave", signal, () => this.#hover(-1, [0, 0]));
    on(plot, "pointerdown", signal, (event) => {
      if (event.button !== 0) return;
      const [x] = at(event);
      this.#drag = { from: x, to: x };
      plot.setPointerCapture(event.pointerId);
    });
    const ended = (event: PointerEvent): void => {
      if (this.#drag === null) return;
      const [from, to] = [this.#drag.from, this.#drag.to].sort((a, b) => a - b);
      this.#drag = null;
      this.#schedule();
      if (event.type !== "pointerup") return;
      if (to - from > SLOP) this.#zoom(this.#area.rowAt(from), this.#area.rowAt(to));
      else this.#pick(this.#area.nearest(...at(event)));
    };
    on(plot, "pointerup", signal, ended);
    on(plot, "pointercancel", signal, ended);
    on(plot, "dblclick", signal, () => this.#zoom());
  }

  #listenKeys(signal: AbortSignal): void {
    const step = (by: number): void => {
      const last = this.#errors.count - 1;
      if (last >= 0) this.#pick(Math.max(0, Math.min(last, this.#chosen < 0 ? 0 : this.#chosen + by)));
    };
    const page = (): number => Math.ceil(this.#errors.count / 20);
    const scale = (factor: number): void => {
      const { from, to } = this.#span;
      const middle = this.#chosen < 0 ? (from + to) / 2 : this.#chosen;
      const half = ((to - from) / 2) * factor;
      this.#zoom(middle - half, middle + half);
    };
    const keys: Readonly<Record<string, () => void>> = {
      ArrowRight: () => step(1),
      ArrowUp: () => step(1),
      ArrowLeft: () => step(-1),
      ArrowDown: () => step(-1),
      PageDown: () => step(-page()),
      PageUp: () => step(page()),
      Home: () => this.#pick(Math.min(0, this.#errors.count - 1)),
      End: () => this.#pick(this.#errors.count - 1),
      Enter: () => this.#pick(this.#options.first),
      "+": () => scale(0.5),
      "=": () => scale(0.5),
      "-": () => scale(2),
      "0": () => this.#zoom(),
      Escape: () => this.#zoom(),
    };
    on(this.#plot, "keydown", signal, (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      event.stopPropagation(); // nothing typed here is a command to the notebook
      const act = keys[event.key];
      if (act === undefined) return;
      event.preventDefault();
      act();
    });
  }
}
