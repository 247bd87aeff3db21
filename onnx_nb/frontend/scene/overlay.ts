/** Numbers of nodes and scopes shown as colors: the position of a number on the scale, and its text. */

import type { OverlayData } from "../protocol/host.ts";
import { formatNumber, scaleToUnit, seconds } from "./formatting.ts";
import { BOX, type Boxes } from "./scene.ts";

const DIGITS = 3;
const NO_UNITS = [""];
const COUNTS = ["", " k", " M", " G", " T"];
const BYTES = [" B", " kB", " MB", " GB", " TB"];

/** Visible part of the scale, 0 … 1 from the smallest to the largest number. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** Labels of where NaN begins, and the position of the one where all is finite, as `analysis/view/overlays.py` has them. */
const BIRTH = "begins here";
const CLEAN = 2;

export const FULL_RANGE: Range = { from: 0, to: 1 };

export class Overlay {
  readonly data: OverlayData;
  readonly range: Range;
  /** ends of the scale; a logarithmic one begins at the smallest positive number */
  readonly min: number;
  readonly max: number;

  constructor(
    data: OverlayData,
    range: Range = initialRange(data),
    ends: readonly [number, number] = endsOf(data, data.nodes),
  ) {
    this.data = data;
    this.range = range;
    [this.min, this.max] = ends;
  }

  /** its labels say where NaN begins (0), where it is (1), and where all is finite */
  get spreads(): boolean {
    return this.data.labels?.[0] === BIRTH;
  }

  /** Returns whether a node makes NaN or Inf, by its position. */
  isSpread(node: number): boolean {
    return node >= 0 && this.data.nodes[node] < CLEAN;
  }

  withRange(range: Range): Overlay {
    return new Overlay(this.data, range, [this.min, this.max]);
  }

  /** Returns the same with a scale over the drawn boxes, since the sum of a scope exceeds every number inside it. */
  scaledTo(boxes: Boxes): Overlay {
    if (this.data.labels !== undefined) return this;
    const numbers: number[] = [];
    for (let box = 0; box < boxes.count; box++) {
      if (boxes.kind[box] !== BOX.OPEN) numbers.push(this.number(boxes.kind[box], boxes.id[box]));
    }
    const ends = endsOf(this.data, numbers);
    return ends[0] === this.min && ends[1] === this.max ? this : new Overlay(this.data, this.range, ends);
  }

  /** Returns the number of a box, NaN for none. */
  number(kind: number, id: number): number {
    if (kind === BOX.NODE) return this.data.nodes[id] ?? Number.NaN;
    return kind === BOX.SCOPE || kind === BOX.OPEN ? (this.data.scopes[id] ?? Number.NaN) : Number.NaN;
  }

  /** Returns the position of a number on the scale, 0 … 1; NaN stays NaN. */
  place(x: number): number {
    if (Number.isNaN(x)) return x;
    const { labels } = this.data;
    if (labels !== undefined) return (x + 0.5) / labels.length;
    if (this.max === this.min) return x > this.max ? 1 : 0.5;
    const { min, max } = this;
    const t =
      this.data.scale === "log"
        ? (Math.log(Math.max(x, min)) - Math.log(min)) / (Math.log(max) - Math.log(min))
        : (x - min) / (max - min);
    return Math.min(1, Math.max(0, t));
  }

  /** Returns the range that shows only some labels. */
  rangeOf(from: number, to: number): Range {
    const count = this.data.labels?.length ?? 1;
    return { from: from / count, to: to / count };
  }

  /** Returns the number at a position on the scale. */
  at(t: number): number {
    const { min, max } = this;
    return this.data.scale === "log" && min > 0 ? min * (max / min) ** t : min + (max - min) * t;
  }

  /** Returns whether a number is outside the visible range; NaN always is. */
  leavesOut(x: number): boolean {
    const t = this.place(x);
    return Number.isNaN(t) || t < this.range.from || t > this.range.to;
  }

  /** Returns "1.2 ms", "3.4 MB", "0.000312". */
  say(x: number): string {
    if (Number.isNaN(x)) return "none";
    if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
    const { label, labels } = this.data;
    if (labels !== undefined) return labels[x] ?? "none";
    if (label === "seconds") return seconds(x, DIGITS);
    const units = /\bbytes$/.test(label) ? BYTES : /^(parameters|macs|flops)$/i.test(label) ? COUNTS : NO_UNITS;
    const [mantissa, unit] = scaleToUnit(x, units);
    return `${formatNumber(mantissa, DIGITS)}${unit}`;
  }
}

/** Returns the whole scale, or where NaN begins and spreads, if it does. */
function initialRange({ labels, nodes }: OverlayData): Range {
  const isSick = labels?.[0] === BIRTH && nodes.some((x) => x < CLEAN);
  return isSick ? { from: 0, to: CLEAN / labels.length } : FULL_RANGE;
}

function endsOf({ scale, ends }: OverlayData, numbers: ArrayLike<number>): readonly [number, number] {
  if (ends !== undefined) return ends;
  let [min, max] = [Infinity, -Infinity];
  for (let at = 0; at < numbers.length; at++) {
    const x = numbers[at];
    if (!Number.isFinite(x) || (scale === "log" && x <= 0)) continue;
    if (x < min) min = x;
    if (x > max) max = x;
  }
  return min <= max ? [min, max] : [0, 0];
}
