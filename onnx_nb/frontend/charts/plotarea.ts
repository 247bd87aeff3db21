/** Errors against depth as places on a page: which point is where, what the axes say. Nothing here draws. */

import type { Which } from "../protocol/comparison.ts";

export interface Series {
  readonly which: Which;
  /** by row; NaN: none, infinite: only one side is NaN or infinite */
  readonly numbers: Float64Array;
}

export interface ErrorSeries {
  readonly count: number;
  readonly series: readonly Series[];
  readonly logarithmic: boolean;
  readonly parts: readonly (readonly [row: number, label: string])[];
  /** label of points that are infinite */
  readonly odd: string;
}

/** The rows in view, ends included; fractions let a view slide. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** Pixels around the plot for its axes. */
const MARGIN = { left: 62, right: 14, top: 12, bottom: 24 } as const;
/** Pixels between the plot and the lines of points that are 0 or infinite. */
const SHELF = 13;
/** Pixels between ticks, at least. */
const APART = 26;
/** Powers of ten that the axis shows where there is no number. */
const NOTHING: readonly [number, number] = [-8, 0];
const FEWEST = 8;

export class PlotArea {
  readonly errors: ErrorSeries;
  readonly span: Span;
  readonly width: number;
  readonly height: number;
  readonly left = MARGIN.left;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  /** where points are that are exactly 0, and those that are infinite; NaN if there are none */
  readonly floor: number;
  readonly ceiling: number;
  /** ends of the axis; of a logarithmic one their log10 */
  readonly low: number;
  readonly high: number;

  constructor(errors: ErrorSeries, span: Span, width: number, height: number) {
    this.errors = errors;
    this.span = span;
    this.width = width;
    this.height = height;
    this.right = Math.max(MARGIN.left + 40, width - MARGIN.right);
    let low = Number.POSITIVE_INFINITY;
    let high = Number.NEGATIVE_INFINITY;
    let zeros = false;
    let infinite = false;
    for (const { numbers } of errors.series) {
      for (let row = 0; row < numbers.length; row++) {
        const x = numbers[row];
        if (x === 0 && errors.logarithmic) zeros = true;
        else if (x === Number.POSITIVE_INFINITY || x === Number.NEGATIVE_INFINITY) infinite = true;
        else if (!Number.isNaN(x)) {
          const size = errors.logarithmic ? Math.abs(x) : x;
          if (size < low) low = size;
          if (size > high) high = size;
        }
      }
    }
    const bottom = height - MARGIN.bottom;
    this.top = MARGIN.top + (infinite ? SHELF : 0);
    this.bottom = bottom - (zeros ? SHELF : 0);
    this.floor = zeros ? bottom - 2 : Number.NaN;
    this.ceiling = infinite ? MARGIN.top : Number.NaN;
    if (low > high) [this.low, this.high] = errors.logarithmic ? NOTHING : [0, 1];
    else if (errors.logarithmic) {
      this.low = Math.floor(Math.log10(low));
      this.high = Math.max(this.low + 1, Math.ceil(Math.log10(high) - 1e-9));
    } else {
      const margin = (high - low || Math.abs(high) || 1) * 0.06;
      [this.low, this.high] = [low - margin, high + margin];
    }
  }

  x(row: number): number {
    const { from, to } = this.span;
    return this.left + 8 + ((row - from) / Math.max(1e-9, to - from)) * (this.right - this.left - 16);
  }

  /** the row at a place, as a fraction */
  rowAt(x: number): number {
    const { from, to } = this.span;
    return from + ((x - this.left - 8) / (this.right - this.left - 16)) * (to - from);
  }

  /** NaN where there is no number */
  y(number: number): number {
    if (Number.isNaN(number)) return Number.NaN;
    if (!Number.isFinite(number)) return this.ceiling;
    if (this.errors.logarithmic && number === 0) return this.floor;
    const place = this.errors.logarithmic ? Math.log10(Math.abs(number)) : number;
    return this.bottom - ((place - this.low) / (this.high - this.low)) * (this.bottom - this.top);
  }

  /** The lines across, with what they say. */
  ticks(): readonly (readonly [y: number, label: string])[] {
    const most = Math.max(2, Math.floor((this.bottom - this.top) / APART));
    if (this.errors.logarithmic) {
      const step = Math.max(1, Math.ceil((this.high - this.low) / most));
      const found: [number, string][] = [];
      for (let at = this.high; at >= this.low; at -= step) found.push([this.y(10 ** at), `1e${at}`.replace("-", "−")]);
      return found;
    }
    const rough = (this.high - this.low) / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    const found: [number, string][] = [];
    for (let at = Math.ceil(this.low / step); at * step <= this.high; at++) {
      found.push([this.y(at * step), (at * step).toFixed(Math.min(8, digits)).replace("-", "−")]);
    }
    return found;
  }

  /** Where parts of the model begin; without parts the numbers of rows. */
  marks(): readonly (readonly [row: number, label: string])[] {
    const { from, to } = this.span;
    if (this.errors.count === 0) return [];
    const inside = this.errors.parts.filter(([row]) => row >= from - 0.5 && row <= to + 0.5);
    if (inside.length > 0) return inside;
    const rough = Math.max(1, (to - from) / FEWEST);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
    const found: [number, string][] = [];
    for (let row = Math.ceil(from / step) * step; row <= to; row += step)
      found.push([row, row.toLocaleString("en-US")]);
    return found;
  }

  /** The row of the point that is nearest to a place, −1 if none is near. */
  nearest(x: number, y: number, reach = 24): number {
    const { count, series } = this.errors;
    const perRow = (this.right - this.left - 16) / Math.max(1, this.span.to - this.span.from);
    const wide = Math.max(1, Math.ceil(reach / perRow));
    const middle = Math.round(this.rowAt(x));
    let best = -1;
    let least = Number.POSITIVE_INFINITY;
    for (let row = Math.max(0, middle - wide); row <= Math.min(count - 1, middle + wide); row++) {
      const dx = this.x(row) - x;
      for (const { numbers } of series) {
        const dy = this.y(numbers[row]) - y;
        // along the depth counts more: a point far above the pointer is still the one of its place
        const far = dx * dx * 4 + dy * dy;
        if (far < least) [best, least] = [row, far];
      }
    }
    return best;
  }
}

/** Returns all rows, or a part of them that is moved inside and not smaller than a few rows. */
export function spanOf(count: number, from = 0, to = count - 1): Span {
  const last = Math.max(1, count - 1);
  const wide = Math.min(last, Math.max(to - from, Math.min(last, 4)));
  const start = Math.max(0, Math.min((from + to - wide) / 2, last - wide));
  return { from: start, to: start + wide };
}
