/** Plot of errors against depth: points respond to the pointer and the keyboard, and dragging chooses a range. */

import type { ErrorKind } from "../protocol/comparison.ts";
import type { Pen } from "../render/canvas.ts";
import type { Theme } from "../render/theme.ts";
import { integer } from "../scene/formatting.ts";
import { button, el, onResize } from "../ui/dom.ts";
import { drawnAs } from "../ui/still.ts";
import { Chart, type ChartOptions, type Extent } from "./chart.ts";

interface ErrorPlotOptions extends ChartOptions {
  /** row of the first divergent point, −1 for none */
  readonly first: number;
  /** message over a plot that has nothing to show, "" for none */
  readonly note: string;
}

export class ErrorPlot extends Chart<ErrorPlotOptions> {
  readonly element: HTMLElement;
  readonly #ground = el("canvas.onnx-nb-depth-ground", { "aria-hidden": true });
  readonly #overlay = el("canvas.onnx-nb-depth-over", { "aria-hidden": true });
  readonly #showAll: HTMLElement;
  #errors: ErrorSeries;
  #area: PlotArea;
  /** the errors must be redrawn, not only the chosen point */
  #needsRedraw = false;

  constructor(
    errors: ErrorSeries,
    options: Omit<ErrorPlotOptions, "label"> & { readonly label?: string },
    signal: AbortSignal,
  ) {
    super("onnx-nb-depth-plot", { label: "Errors against depth", ...options }, ["activation"], signal);
    this.#errors = errors;
    this.#area = this.#areaNow();
    this.#showAll = button("Show all", () => this.showAll(), signal, {
      class: "onnx-nb-small onnx-nb-depth-whole",
      title: "Back to all points (0)",
      hidden: true,
    });
    this.surface.setAttribute("aria-valuemax", String(Math.max(1, errors.count)));
    this.surface.prepend(this.#ground, this.#overlay);
    const note = options.note === "" ? null : el("div.onnx-nb-depth-note.onnx-nb-dim", options.note);
    this.element = el("div.onnx-nb-depth", this.surface, note, this.#showAll);
    drawnAs(this.#ground, () => this.still((pen) => drawErrors(pen, this.#areaNow(), options.first, this.#look)));
    drawnAs(this.#overlay, () => this.still((pen) => this.#drawChoice(pen, this.chosenRow, this.theme.text)));
    onResize([this.surface], signal, () => this.rearrange());
  }

  show(errors: ErrorSeries): void {
    this.#errors = errors;
    this.rearrange();
  }

  // ---------------------------------------------------------------- drawing

  get #look(): Style {
    return { theme: this.theme, isolated: this.theme.categories[0] };
  }

  #areaNow(): PlotArea {
    return createPlotArea(this.#errors, this.extent, ...this.size);
  }

  /** Moves the points immediately and redraws them with the next frame. */
  protected override rearrange(): void {
    this.#area = this.#areaNow();
    this.#showAll.hidden = this.view === null;
    this.#needsRedraw = true;
    this.schedule();
  }

  protected override paint(): void {
    if (this.#needsRedraw) {
      this.#area = this.#areaNow();
      const ground = this.clear(this.#ground);
      if (ground !== null) drawErrors(ground, this.#area, this.options.first, this.#look);
    }
    this.#needsRedraw = false;
    const pen = this.clear(this.#overlay);
    if (pen === null) return;
    this.drawDrag(pen, 4, this.#area.height - 28);
    if (this.hoveredRow !== this.chosenRow) this.#drawChoice(pen, this.hoveredRow, this.theme.dim);
    this.#drawChoice(pen, this.chosenRow, this.theme.text);
  }

  /** Marks one point: a line down to its row, and a ring around each of its values. */
  #drawChoice(pen: Pen, row: number, color: string): void {
    const area = this.#area;
    if (row < 0 || !contains(area, row)) return;
    const x = area.x(row);
    pen.lineWidth = 1;
    pen.globalAlpha = 0.55;
    upright(pen, x, area.height - 24, color);
    pen.globalAlpha = 1;
    for (const { numbers } of area.errors.series) {
      const y = area.y(numbers[row]);
      if (Number.isNaN(y)) continue;
      pen.beginPath();
      circle(pen, x, y, 5);
      for (const [ink, width] of [[this.theme.background, 4] as const, [color, 2] as const]) {
        pen.strokeStyle = ink;
        pen.lineWidth = width;
        pen.stroke();
      }
    }
  }

  // ---------------------------------------------------------------- choosing

  protected override get whole(): Extent {
    return [0, Math.max(1, this.#errors.count - 1)];
  }

  protected override get minSize(): number {
    return MIN_SIZE;
  }

  protected override get reach(): Extent {
    return [this.#area.left + INSET, this.#area.right - INSET];
  }

  protected override places(): readonly (readonly [number, number, number])[] {
    return Array.from({ length: this.#errors.count }, (_, row) => [row, row - 0.4, row + 0.4] as const);
  }

  protected override rowNear(x: number, y: number): number {
    return this.#area.rowNear(x, y);
  }

  protected override pick(row: number): void {
    if (row >= 0) super.pick(row);
  }

  protected override keys(): Readonly<Record<string, () => void>> {
    const page = (pages: number) => (): void => this.step(pages * Math.ceil(this.#errors.count / 20));
    return {
      ArrowUp: () => this.step(1),
      ArrowDown: () => this.step(-1),
      PageDown: page(-1),
      PageUp: page(1),
      Enter: () => this.pick(this.options.first),
      Escape: () => this.showAll(),
    };
  }
}

interface Series {
  readonly kind: ErrorKind;
  /** by row; NaN for none, infinite where only one side is NaN or infinite */
  readonly numbers: Float64Array;
}

export interface ErrorSeries {
  readonly count: number;
  readonly series: readonly Series[];
  readonly logarithmic: boolean;
  readonly parts: readonly (readonly [row: number, label: string])[];
  /** label of points that are infinite; `INFINITE` where nothing is wrong with them */
  readonly odd: string;
}

/** Pixels around the plot for its axes. */
const MARGIN = { left: 62, right: 14, top: 12, bottom: 24 } as const;
export const INFINITE = "∞";
/** Pixels between the plot and the lines of points that are 0 or infinite. */
const SHELF = 13;
/** Minimum number of pixels between ticks. */
const TICK_GAP = 26;
/** Powers of ten on the axis of a plot without numbers. */
const EMPTY_AXIS: readonly [number, number] = [-8, 0];
const MIN_ROWS = 8;
/** Minimum number of rows in view, and pixels between the axis and the first of them. */
const MIN_SIZE = 4;
const INSET = 8;
/** Pixels along the depth within which a point can be the nearest. */
const REACH = 24;

export type PlotArea = ReturnType<typeof createPlotArea>;

export function createPlotArea(errors: ErrorSeries, span: Extent, width: number, height: number) {
  const [from, to] = span;
  const { logarithmic } = errors;
  const numbers = errors.series.flatMap(({ numbers }) => Array.from(numbers));
  const zeros = logarithmic && numbers.includes(0);
  const infinite = numbers.some((x) => Math.abs(x) === Number.POSITIVE_INFINITY);
  const finite = numbers.filter((x) => Number.isFinite(x) && !(logarithmic && x === 0));
  const sizes = logarithmic ? finite.map(Math.abs) : finite;
  const left = MARGIN.left;
  const right = Math.max(left + 40, width - MARGIN.right);
  const top = MARGIN.top + (infinite ? SHELF : 0);
  const bottom = height - MARGIN.bottom - (zeros ? SHELF : 0);
  /** y of points that are exactly 0, and y of infinite points; NaN if there are none */
  const floor = zeros ? height - MARGIN.bottom - 2 : Number.NaN;
  const ceiling = infinite ? MARGIN.top : Number.NaN;
  /** ends of the axis; their log10 if it is logarithmic */
  const [low, high] = axisOf(sizes, logarithmic);

  const x = (row: number): number =>
    left + INSET + ((row - from) / Math.max(1e-9, to - from)) * (right - left - 2 * INSET);
  /** Returns the fractional row at a position. */
  const rowAt = (px: number): number => from + ((px - left - INSET) / (right - left - 2 * INSET)) * (to - from);
  /** Returns y of a number, NaN for no number. */
  const y = (number: number): number => {
    if (Number.isNaN(number)) return Number.NaN;
    if (!Number.isFinite(number)) return ceiling;
    if (logarithmic && number === 0) return floor;
    const place = logarithmic ? Math.log10(Math.abs(number)) : number;
    return bottom - ((place - low) / (high - low)) * (bottom - top);
  };

  /** Returns horizontal lines with their labels. */
  const ticks = (): readonly (readonly [y: number, label: string])[] => {
    const count = Math.max(2, Math.floor((bottom - top) / TICK_GAP));
    if (logarithmic) {
      const step = Math.max(1, Math.ceil((high - low) / count));
      const levels: [number, string][] = [];
      for (let at = high; at >= low; at -= step) levels.push([y(10 ** at), `1e${at}`.replace("-", "−")]);
      return levels;
    }
    const step = roundStep((high - low) / count);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    const levels: [number, string][] = [];
    for (let at = Math.ceil(low / step); at * step <= high; at++) {
      levels.push([y(at * step), (at * step).toFixed(Math.min(8, digits)).replace("-", "−")]);
    }
    return levels;
  };

  /** Returns the first rows of the model's parts with their labels; row numbers if there are no parts. */
  const marks = (): readonly (readonly [row: number, label: string])[] => {
    if (errors.count === 0) return [];
    const inside = errors.parts.filter(([row]) => row >= from - 0.5 && row <= to + 0.5);
    if (inside.length > 0) return inside;
    const step = roundStep(Math.max(1, (to - from) / MIN_ROWS));
    const labels: [number, string][] = [];
    for (let row = Math.ceil(from / step) * step; row <= to; row += step) labels.push([row, integer(row)]);
    return labels;
  };

  /** Returns the row of the point nearest to a position, −1 if none is near. */
  const rowNear = (px: number, py: number): number => {
    const perRow = (right - left - 2 * INSET) / Math.max(1, to - from);
    const wide = Math.max(1, Math.ceil(REACH / perRow));
    const middle = Math.round(rowAt(px));
    let nearestPoint = -1;
    let minDistance = Number.POSITIVE_INFINITY;
    for (let row = Math.max(0, middle - wide); row <= Math.min(errors.count - 1, middle + wide); row++) {
      const dx = x(row) - px;
      for (const { numbers } of errors.series) {
        const dy = y(numbers[row]) - py;
        // depth counts more: a point far above the pointer is still the one at its depth
        const distance = dx * dx * 4 + dy * dy;
        if (distance < minDistance) [nearestPoint, minDistance] = [row, distance];
      }
    }
    return nearestPoint;
  };

  return { errors, span, width, height, left, right, top, bottom, floor, ceiling, x, rowAt, y, ticks, marks, rowNear };
}

function axisOf(sizes: readonly number[], logarithmic: boolean): readonly [low: number, high: number] {
  if (sizes.length === 0) return logarithmic ? EMPTY_AXIS : [0, 1];
  const low = sizes.reduce((min, size) => Math.min(min, size));
  const high = sizes.reduce((max, size) => Math.max(max, size));
  if (logarithmic) {
    const from = Math.floor(Math.log10(low));
    return [from, Math.max(from + 1, Math.ceil(Math.log10(high) - 1e-9))];
  }
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - margin, high + margin];
}

/** Returns the smallest of 1, 2, 5, 10, 20, … that is at least this. */
export function roundStep(minimum: number): number {
  const power = 10 ** Math.floor(Math.log10(minimum));
  return power * (minimum / power > 5 ? 10 : minimum / power > 2 ? 5 : minimum / power > 1 ? 2 : 1);
}

interface Style {
  readonly theme: Theme;
  /** color of isolated errors */
  readonly isolated: string;
}

/** Rows in view beyond which points have no dots of their own. */
const DOTS = 400;
const FONT = 10.5;

function drawErrors(pen: Pen, area: PlotArea, first: number, { theme, isolated }: Style): void {
  const { errors, left, right, bottom, height } = area;
  pen.lineWidth = 1;
  pen.font = `${FONT}px ${theme.font}`;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const zero: [number, string][] = Number.isNaN(area.floor) ? [] : [[area.floor, "0"]];
  for (const [y, label] of [...area.ticks(), ...zero]) {
    pen.fillStyle = theme.line;
    pen.fillRect(left, Math.round(y), right - left, 1);
    pen.fillStyle = theme.dim;
    pen.fillText(label, left - 8, y);
  }
  if (!Number.isNaN(area.ceiling)) {
    pen.fillStyle = errors.odd === INFINITE ? theme.dim : theme.bad;
    pen.fillText(errors.odd, left - 8, area.ceiling);
  }
  drawBands(pen, area, theme);
  drawParts(pen, area, theme);
  const diverges = first >= 0 && contains(area, first);
  if (diverges) {
    pen.setLineDash([3, 3]);
    upright(pen, area.x(first), Math.max(bottom, height - 24), theme.bad);
    pen.setLineDash([]);
  }
  for (const series of errors.series) {
    if (series.kind === "cumulative") drawLine(pen, area, series, theme.accent);
    const color = series.kind === "cumulative" ? theme.accent : isolated;
    drawDots(pen, area, series, color, errors.odd === INFINITE ? color : theme.bad);
  }
  const y = area.y(errors.series.at(-1)?.numbers[first] ?? Number.NaN);
  if (!diverges || Number.isNaN(y)) return;
  pen.fillStyle = theme.bad;
  pen.beginPath();
  circle(pen, area.x(first), y, 4.5);
  pen.fill();
}

function circle(pen: Pen, x: number, y: number, radius: number): void {
  pen.roundRect(x - radius, y - radius, 2 * radius, 2 * radius, radius);
}

/** Draws a vertical line from the top. */
function upright(pen: Pen, x: number, to: number, color: string): void {
  pen.strokeStyle = color;
  pen.beginPath();
  pen.moveTo(x, 4);
  pen.lineTo(x, to);
  pen.stroke();
}

function contains({ span }: PlotArea, row: number): boolean {
  return row >= span[0] - 0.5 && row <= span[1] + 0.5;
}

/** Draws every other part of the model as a band, from the axis up. */
function drawBands(pen: Pen, area: PlotArea, theme: Theme): void {
  const { errors, left, right, top, height } = area;
  const ends = [...errors.parts.map(([row]) => row), errors.count];
  const x = (row: number): number => Math.max(left, Math.min(right, area.x(row - 0.5)));
  pen.fillStyle = theme.halo;
  pen.globalAlpha = 0.35;
  for (let part = 1; part < errors.parts.length; part += 2) {
    pen.fillRect(x(ends[part]), top, x(ends[part + 1]) - x(ends[part]), height - MARGIN.bottom - top);
  }
  pen.globalAlpha = 1;
}

/** Draws the first rows of the model's parts, with as many names as there is room for. */
function drawParts(pen: Pen, area: PlotArea, theme: Theme): void {
  let right = area.left - 30;
  pen.textAlign = "left";
  for (const [row, label] of area.marks()) {
    const width = pen.measureText(label).width;
    const x = Math.max(2, Math.min(area.x(row), area.width - width - 2));
    if (x < right) continue;
    pen.fillStyle = theme.edge;
    pen.fillRect(Math.round(area.x(row)), area.height - 22, 1, 4);
    pen.fillStyle = theme.dim;
    pen.fillText(label, x, area.height - 10);
    right = x + width + 12;
  }
}

/** Draws the line through all points; where several share a pixel, their whole range. */
function drawLine(pen: Pen, area: PlotArea, { numbers }: Series, color: string): void {
  pen.strokeStyle = color;
  pen.lineWidth = 1.6;
  pen.lineJoin = "round";
  pen.beginPath();
  let column = Number.NaN;
  let [low, high] = [0, 0];
  const drawRange = (): void => {
    if (high - low <= 1) return;
    pen.moveTo(column, low);
    pen.lineTo(column, high);
  };
  for (const row of rowsIn(area, numbers.length)) {
    const number = numbers[row];
    // skip equal values, as shapes and other integers mostly are
    if (!Number.isFinite(number) || (number === 0 && area.errors.logarithmic)) continue;
    const [x, y] = [area.x(row), area.y(number)];
    if (Math.abs(x - column) < 0.75) {
      [low, high] = [Math.min(low, y), Math.max(high, y)];
      continue;
    }
    drawRange();
    if (Number.isNaN(column)) pen.moveTo(x, y);
    else pen.lineTo(x, y);
    [column, low, high] = [x, y, y];
  }
  drawRange();
  pen.stroke();
}

function drawDots(pen: Pen, area: PlotArea, { kind, numbers }: Series, color: string, faultColor: string): void {
  const rows = rowsIn(area, numbers.length);
  const isCrowded = rows.length > DOTS;
  const size = kind === "isolated" ? (isCrowded ? 1.1 : 2.6) : 1.9;
  const pixels = new Set<number>();
  const faults: [number, number][] = [];
  const equal: [number, number][] = [];
  pen.fillStyle = color;
  pen.globalAlpha = isCrowded ? 0.6 : 1;
  pen.beginPath();
  for (const row of rows) {
    const number = numbers[row];
    if (Number.isNaN(number)) continue;
    const [x, y] = [area.x(row), area.y(number)];
    // one point for each pixel is enough
    const cell = Math.round(x) * 8192 + Math.round(y);
    if (pixels.has(cell)) continue;
    pixels.add(cell);
    if (!Number.isFinite(number)) faults.push([x, y]);
    else if (number === 0 && area.errors.logarithmic) equal.push([x, y]);
    else if (!isCrowded) circle(pen, x, y, size);
    else if (kind === "isolated") pen.rect(x - size, y - size, 2 * size, 2 * size);
  }
  pen.fill();
  pen.globalAlpha = 1;
  pen.strokeStyle = color;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const [x, y] of equal) circle(pen, x, y, 1.8);
  pen.stroke();
  pen.fillStyle = faultColor;
  pen.beginPath();
  for (const [x, y] of faults) {
    pen.moveTo(x, y - 4);
    pen.lineTo(x + 4, y + 3);
    pen.lineTo(x - 4, y + 3);
    pen.closePath();
  }
  pen.fill();
}

/** Returns the rows in view. */
function rowsIn({ span }: PlotArea, count: number): number[] {
  const first = Math.max(0, Math.ceil(span[0]));
  const length = Math.max(0, Math.min(count - 1, Math.floor(span[1])) - first + 1);
  return Array.from({ length }, (_, at) => first + at);
}
