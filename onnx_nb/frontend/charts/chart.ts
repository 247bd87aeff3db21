/** Base of the charts of rows: the chosen row, the one under the pointer, the dragged range, and redrawing by frames. */

import type { Pen } from "../render/canvas.ts";
import { documentOf, SvgPen } from "../render/svg.ts";
import { createMeasure, readTheme, type Theme } from "../render/theme.ts";
import { el, on, onAbort, onKeys, placeTooltip } from "../ui/dom.ts";

export interface ChartOptions {
  /** accessible name */
  readonly label: string;
  /** describes a row in one line */
  readonly describe: (row: number) => string;
  /** content of the tooltip of a row, by default its description */
  readonly tooltip?: (row: number) => readonly Node[];
  /** a person chose a row */
  readonly onChoose: (row: number) => void;
  /** false: dragging over a range does not zoom in */
  readonly zooms?: boolean;
}

/** Pixels that a pointer must move before it drags. */
const SLOP = 5;

export abstract class Chart<Options extends ChartOptions> {
  /** responds to the pointer and the keyboard, and holds the canvases */
  protected readonly surface: HTMLElement;
  protected readonly options: Options;
  protected chosenRow = -1;
  protected hoveredRow = -1;
  protected drag: { readonly from: number; to: number } | null = null;
  readonly #tooltip = el("div.onnx-nb-tooltip", { "aria-hidden": true, hidden: true });
  readonly #categories: readonly string[];
  #theme: Theme | null = null;
  #frame = 0;

  /** @param categories those whose colors `Theme.categories` has */
  constructor(className: string, options: Options, categories: readonly string[], signal: AbortSignal) {
    this.options = options;
    this.#categories = categories;
    const attributes = { class: className, role: "slider", tabindex: 0, "aria-label": options.label };
    this.surface = el("div", { ...attributes, "aria-valuemin": 1 }, this.#tooltip);
    this.#describe();
    this.#listen(signal);
    onAbort(signal, () => cancelAnimationFrame(this.#frame));
  }

  /** Returns the row at a point or near it, −1 for none. */
  protected abstract rowNear(x: number, y: number): number;
  /** Shows the rows between two positions in pixels. */
  protected abstract zoomTo(from: number, to: number): void;
  protected abstract showAll(): void;
  /** Shows a smaller or larger part of the rows. */
  protected abstract scale(factor: number): void;
  protected abstract keys(): Readonly<Record<string, () => void>>;
  /** Places everything anew and redraws it with the next frame. */
  protected abstract rearrange(): void;
  protected abstract paint(): void;

  /** Marks a row, without calling `onChoose`. */
  choose(row: number): void {
    this.chosenRow = row;
    this.#describe();
    this.schedule();
  }

  /** Draws in the colors that the page has now. */
  redraw(): void {
    this.#theme = null;
    this.rearrange();
  }

  protected get size(): [number, number] {
    return [Math.max(160, this.surface.clientWidth || 600), Math.max(80, this.surface.clientHeight || 206)];
  }

  /** ends of what can be dragged over, in pixels */
  protected get reach(): readonly [number, number] {
    return [0, this.size[0]];
  }

  protected get theme(): Theme {
    this.#theme ??= readTheme(this.surface.closest<HTMLElement>(".onnx-nb") ?? this.surface, this.#categories);
    return this.#theme;
  }

  protected schedule(): void {
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.paint();
    });
  }

  protected clear(canvas: HTMLCanvasElement): Pen | null {
    const [w, h] = this.size;
    const density = globalThis.devicePixelRatio || 1;
    if (canvas.width !== Math.round(w * density)) canvas.width = Math.round(w * density);
    if (canvas.height !== Math.round(h * density)) canvas.height = Math.round(h * density);
    const context = canvas.getContext("2d");
    context?.setTransform(density, 0, 0, density, 0, 0);
    context?.clearRect(0, 0, w, h);
    return context as Pen | null;
  }

  /** Draws the range that is dragged over. */
  protected drawDrag(pen: Pen, top: number, height: number): void {
    if (this.drag === null) return;
    const { from, to } = this.drag;
    pen.fillStyle = this.theme.halo;
    pen.fillRect(Math.min(from, to), top, Math.abs(to - from), height);
  }

  protected still(draw: (pen: Pen) => void): string {
    const pen = new SvgPen(createMeasure(this.theme.font));
    draw(pen);
    return documentOf(...this.size, pen.finish());
  }

  #describe(): void {
    const row = this.chosenRow;
    this.surface.setAttribute("aria-valuenow", String(Math.max(1, row + 1)));
    this.surface.setAttribute("aria-valuetext", row < 0 ? "nothing chosen" : this.options.describe(row));
  }

  protected pick(row: number): void {
    if (row === this.chosenRow) return;
    this.choose(row);
    this.options.onChoose(row);
  }

  #hover(row: number, x = 0, y = 0): void {
    const { describe, tooltip } = this.options;
    this.#tooltip.hidden = row < 0;
    if (row >= 0) {
      this.#tooltip.replaceChildren(...(tooltip?.(row) ?? [describe(row)]));
      placeTooltip(this.#tooltip, x, y, ...this.size);
    }
    if (row === this.hoveredRow) return;
    this.hoveredRow = row;
    this.schedule();
  }

  #listen(signal: AbortSignal): void {
    const { surface } = this;
    const at = (event: MouseEvent): [number, number] => {
      const { left, top } = surface.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    on(surface, "pointermove", signal, (event) => {
      const [x, y] = at(event);
      if (this.drag === null) this.#hover(this.rowNear(x, y), x, y);
      else {
        const [low, high] = this.reach;
        this.drag.to = Math.max(low, Math.min(high, x));
        this.#hover(-1);
        this.schedule();
      }
    });
    on(surface, "pointerleave", signal, () => this.#hover(-1));
    on(surface, "pointerdown", signal, (event) => {
      if (event.button !== 0) return;
      const [x] = at(event);
      this.drag = { from: x, to: x };
      surface.setPointerCapture?.(event.pointerId);
    });
    const endDrag = (event: PointerEvent): void => {
      if (this.drag === null) return;
      const [from, to] = [this.drag.from, this.drag.to].sort((a, b) => a - b);
      this.drag = null;
      this.schedule();
      if (event.type !== "pointerup") return;
      if (this.options.zooms !== false && to - from > SLOP) this.zoomTo(from, to);
      else this.pick(this.rowNear(...at(event)));
    };
    on(surface, "pointerup", signal, endDrag);
    on(surface, "pointercancel", signal, endDrag);
    on(surface, "dblclick", signal, () => this.showAll());
    const [closer, farther] = [(): void => this.scale(0.5), (): void => this.scale(2)];
    const zooms = { "+": closer, "=": closer, "-": farther, "0": () => this.showAll() };
    onKeys(surface, { ...zooms, ...this.keys() }, signal);
  }
}
