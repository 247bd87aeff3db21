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
  /** the row under the pointer is another one, −1 for none */
  readonly onHover?: (row: number) => void;
  /** a person chose a range of rows, or none; without this, dragging over a range zooms in */
  readonly onRange?: (rows: readonly number[], chart: Pick<Chart<ChartOptions>, "zoomToRange" | "chooseRange">) => void;
  /** false: there are no ranges, since the rows have no order */
  readonly zooms?: boolean;
}

/** A part of the axis, in its units: rows, or shares of its length. */
export type Extent = readonly [from: number, to: number];

/** Pixels that a pointer must move before it drags. */
const SLOP = 5;

export abstract class Chart<Options extends ChartOptions> {
  /** responds to the pointer and the keyboard, and holds the canvases */
  protected readonly surface: HTMLElement;
  protected readonly options: Options;
  protected chosenRow = -1;
  protected hoveredRow = -1;
  /** the part of the axis that is shown; null for all of it */
  protected view: Extent | null = null;
  /** what the pointer drags over, from where it began */
  #drag: Extent | null = null;
  #range: Extent | null = null;
  /** rows between which the keyboard chose the range, by their positions: the first one stays */
  #ends: readonly [number, number] | null = null;
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
  /** all of the axis */
  protected abstract get whole(): Extent;
  /** pixels where the shown part of the axis begins and ends */
  protected abstract get reach(): Extent;
  /** Returns each row with the part of the axis that it takes, in their order. */
  protected abstract places(): readonly (readonly [row: number, from: number, to: number])[];
  /** Returns what keys do besides those of every chart. */
  protected abstract keys(): Readonly<Record<string, () => void>>;
  /** Places everything anew and redraws it with the next frame. */
  protected abstract rearrange(): void;
  protected abstract paint(): void;

  /** Marks a row, without calling `onChoose`. */
  choose(row: number): void {
    this.chosenRow = row;
    this.#describe();
    this.schedule();
    const [, from = 0, to = 0] = (this.view && this.places().find(([place]) => place === row)) ?? [];
    const [first, last] = this.extent;
    if (to > from && (to < first || from > last)) this.#zoom((from + to) / 2, last - first);
  }

  protected get extent(): Extent {
    return this.view ?? this.whole;
  }

  /** Shows a part of the axis, moved to lie on it. */
  protected zoomTo(from: number, to: number): void {
    this.#zoom((from + to) / 2, to - from);
  }

  #zoom(middle: number, size: number): void {
    if (this.options.zooms === false) return;
    const [first, last] = this.whole;
    const width = Math.max(size, this.minSize);
    const start = Math.max(first, Math.min(middle - width / 2, last - width));
    this.view = width >= last - first ? null : [start, start + width];
    this.rearrange();
  }

  /** Shows all of the axis. */
  protected showAll(): void {
    this.zoomTo(...this.whole);
  }

  /** Shows a smaller or larger part, around what is chosen. */
  #scale(factor: number): void {
    const [from, to] = this.extent;
    const [, ...ends] = this.places().find(([row]) => row === this.chosenRow) ?? [0, from, to];
    this.#zoom((ends[0] + ends[1]) / 2, (to - from) * factor);
  }

  zoomToRange(): void {
    if (this.#range !== null) this.zoomTo(...this.#range);
  }

  /** Chooses a range, null for none. */
  chooseRange(range: Extent | null): void {
    this.#range = range;
    if (range === null) this.#ends = null;
    const [from, to] = range ?? [1, 0];
    const places = this.places().filter(([, start, end]) => start + end >= 2 * from && start + end <= 2 * to);
    const rows = places.map(([row]) => row);
    this.options.onRange?.(rows, this);
    this.schedule();
  }

  /** Chooses a row some rows on, or moves the end of the range there, which begins at the chosen row. */
  protected step(by: number, isRange = false): void {
    const places = this.places();
    const at = places.findIndex(([row]) => row === this.chosenRow);
    const clamp = (place: number): number => Math.max(0, Math.min(places.length - 1, place));
    if (places.length === 0) return;
    if (isRange) {
      const [anchor, end] = this.#ends ?? [clamp(at), clamp(at)];
      this.#ends = [anchor, clamp(end + by)];
      const ends = this.#ends.flatMap((place) => places[place].slice(1));
      this.chooseRange([Math.min(...ends), Math.max(...ends)]);
    } else this.pick(places[clamp(at < 0 && Number.isFinite(by) ? 0 : at + by)][0]);
  }

  /** Draws in the colors that the page has now. */
  redraw(): void {
    this.#theme = null;
    this.rearrange();
  }

  protected get size(): [number, number] {
    return [Math.max(160, this.surface.clientWidth || 600), Math.max(80, this.surface.clientHeight || 206)];
  }

  /** units of the axis that are shown at least */
  protected get minSize(): number {
    return 0;
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

  /** the first unit in view, its pixel, and the pixels of a unit */
  get #axis(): readonly [number, number, number] {
    const [[first, last], [low, high]] = [this.extent, this.reach];
    return [first, low, (high - low) / (last - first)];
  }

  /** Draws the range that is dragged over, or was chosen. */
  protected drawDrag(pen: Pen, top: number, height: number): void {
    const range = this.#drag ?? this.#range;
    const [first, low, unit] = this.#axis;
    const place = (at: number): number => Math.max(low, Math.min(this.reach[1], low + (at - first) * unit));
    if (range === null) return;
    const [from, to] = range.map(place);
    pen.fillStyle = this.theme.halo;
    pen.fillRect(Math.min(from, to), top, Math.abs(to - from), height);
    pen.fillStyle = this.theme.accent;
    for (const x of [from, to]) pen.fillRect(x - 0.5, top, 1, height);
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
    this.options.onHover?.(row);
    this.schedule();
  }

  #listen(signal: AbortSignal): void {
    const { surface } = this;
    const at = (event: MouseEvent): [number, number] => {
      const { left, top } = surface.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    const unitAt = (x: number): number => {
      const [first, low, unit] = this.#axis;
      return first + (x - low) / unit;
    };
    on(surface, "pointermove", signal, (event) => {
      const [x, y] = at(event);
      if (this.#drag === null) this.#hover(this.rowNear(x, y), x, y);
      else {
        this.#drag = [this.#drag[0], unitAt(x)];
        this.#hover(-1);
        this.schedule();
      }
    });
    on(surface, "pointerleave", signal, () => this.#hover(-1));
    on(surface, "pointerdown", signal, (event) => {
      if (event.button !== 0) return;
      const start = unitAt(at(event)[0]);
      this.#drag = [start, start];
      surface.setPointerCapture?.(event.pointerId);
    });
    const endDrag = (event: PointerEvent): void => {
      if (this.#drag === null) return;
      const [from, to] = [...this.#drag].sort((a, b) => a - b);
      this.#drag = null;
      this.schedule();
      if (event.type !== "pointerup") return;
      if (this.options.zooms === false || (to - from) * this.#axis[2] <= SLOP) this.pick(this.rowNear(...at(event)));
      else if (this.options.onRange === undefined) this.zoomTo(from, to);
      else {
        this.#ends = null;
        this.chooseRange([from, to]);
      }
    };
    on(surface, "pointerup", signal, endDrag);
    on(surface, "pointercancel", signal, endDrag);
    on(surface, "dblclick", signal, () => this.showAll());
    const [closer, farther] = [(): void => this.#scale(0.5), (): void => this.#scale(2)];
    const hasRanges = this.options.onRange !== undefined && this.options.zooms !== false;
    const arrow = (by: number) => (event: KeyboardEvent) => this.step(by, hasRanges && event.shiftKey);
    const keys: Record<string, (event: KeyboardEvent) => void> = {
      ...{ "+": closer, "=": closer, "-": farther, "0": () => this.showAll() },
      ...{ ArrowRight: arrow(1), ArrowDown: arrow(1), ArrowLeft: arrow(-1), ArrowUp: arrow(-1) },
      ...{ Home: () => this.step(-Infinity), End: () => this.step(Infinity) },
      ...this.keys(),
    };
    const leave = (event: KeyboardEvent): void => (this.#range ? this.chooseRange(null) : keys.Escape(event));
    onKeys(surface, { ...keys, Escape: leave }, signal);
  }
}
