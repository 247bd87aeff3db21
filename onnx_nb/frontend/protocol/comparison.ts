/** The points of a comparison, as packed by `analysis/view/result_columns.py`. */

import { type Pack, PackedTable, type TypedArray } from "./codec.ts";

export type ErrorKind = "cumulative" | "isolated";
export const ERROR_KINDS: readonly ErrorKind[] = ["cumulative", "isolated"];

export interface Metric {
  readonly key: string;
  readonly label: string;
  readonly higher_is_better: boolean;
  readonly logarithmic: boolean;
}

/** Kinds of the errors of a point, each one byte. */
export const STATE = { UNKNOWN: 0, EQUAL: 1, DIFFERENT: 2, MISMATCHED: 3 } as const;

interface ComparisonAbout {
  readonly reference: string;
  readonly candidate: string;
  readonly feeds: number;
  /** description of the first difference */
  readonly message: string;
  /** row of the first divergent point, −1 if none stands out */
  readonly first: number;
  /** the first divergent point, or the worst; −1 if all are equal */
  readonly notable: number;
  /** number of points with any value outside the tolerance */
  readonly outside: number;
  readonly isolated: boolean;
  readonly metrics: readonly Metric[];
  /** first rows of the model's parts */
  readonly parts: readonly (readonly [row: number, label: string])[];
}

export class Points extends PackedTable<ComparisonAbout> {
  readonly about = this.meta;
  readonly count = this.column("name").length;
  /** number of values that only one side has */
  readonly missingCount = this.column("missing_name").length;
  /** the isolated error relative to the usual one for the kind of the point; NaN if unknown */
  readonly score = this.column("score", Float64Array);
  /** number of layers whose errors are known, the largest share first */
  readonly layers = this.column("layer").length;
  /** log10 of the ends of all small histograms */
  readonly sparkEnds = this.column("spark_ends");
  readonly bars = this.count === 0 ? 0 : this.column("sparks").length / this.count;
  /** number of quantizers, faulty ones first */
  readonly quantizers = this.has("quantizer_name") ? this.column("quantizer_name").length : 0;

  // the first of the points with the same name
  readonly #rowOf = new Map(
    Array.from({ length: this.count }, (_, row): [string, number] => [this.text("name", row), row]).reverse(),
  );
  readonly #layerOf = Array.from({ length: this.layers }, (_, layer) => this.text("layer", layer));
  readonly #placeOf = new Map(Array.from(this.column("detail_row"), (row, place) => [row, place]));

  /** Returns the numbers of all points; NaN for none. */
  numbers(kind: ErrorKind, metric: string): Float64Array {
    const name = `${kind}_${metric}`;
    return this.has(name) ? this.column(name, Float64Array) : new Float64Array(this.count).fill(Number.NaN);
  }

  state(kind: ErrorKind, row: number): number {
    return this.has(`${kind}_state`) ? this.column(`${kind}_state`)[row] : STATE.UNKNOWN;
  }

  /** Returns the most informative kind of error of a point. */
  bestKind(row: number): ErrorKind {
    return this.state("isolated", row) === STATE.UNKNOWN ? "cumulative" : "isolated";
  }

  spark(row: number): TypedArray {
    return this.column("sparks").subarray(row * this.bars, (row + 1) * this.bars);
  }

  /** Returns the row of the layer of a point, −1 if there is none. */
  layerOf(row: number): number {
    return row < 0 ? -1 : this.#layerOf.indexOf(this.text("scope", row));
  }

  /** Returns −1 if there is no such point. */
  rowOf(name: string): number {
    return this.#rowOf.get(name) ?? -1;
  }

  /** Returns the details of a point that were packed with it, null if they must be requested. */
  detail(row: number): Uint8Array | null {
    const place = this.#placeOf.get(row);
    if (place === undefined) return null;
    const ends = this.column("detail_end");
    return this.column("details", Uint8Array).subarray(place === 0 ? 0 : ends[place - 1], ends[place]);
  }
}

/** Details of one point in addition to its metrics. */
export interface Detail {
  readonly shape: readonly number[];
  readonly dtypes: readonly string[];
  readonly tolerance: readonly [rtol: number, atol: number];
  readonly count: number;
  readonly equal: number;
  readonly nan: number;
  readonly inf: number;
  readonly outside: number;
  readonly argmax: readonly [same: number, rows: number] | null;
  /** axis of the channels, −1 if there are none */
  readonly axis: number;
  readonly worst: readonly (readonly [index: string, reference: string, candidate: string, feed: number])[];
  readonly zeros: Readonly<Record<"absolute" | "relative" | "ulp", number>>;
  readonly errors: ArrayLike<number>;
  readonly channels: ArrayLike<number>;
  /** pairs of reference and candidate, one after the other */
  readonly sample: ArrayLike<number>;
  histogram(kind: HistogramKind): { readonly counts: number[]; readonly edges: number[] };
}

export type HistogramKind = "absolute" | "signed" | "relative" | "ulp";
export type Details = Readonly<Partial<Record<ErrorKind, Detail>>>;

export function detailsOf({ meta, arrays }: Pack): Details {
  const details = meta as unknown as Readonly<Partial<Record<ErrorKind, Detail>>>;
  const views: Partial<Record<ErrorKind, Detail>> = {};
  for (const kind of ERROR_KINDS) {
    const about = details[kind];
    if (about === undefined) continue;
    const array = (name: string): TypedArray => arrays.get(`${kind}_${name}`) ?? new Float64Array(0);
    views[kind] = {
      ...about,
      errors: array("worst"),
      channels: array("channels"),
      sample: array("sample"),
      histogram: (kind) => ({ counts: Array.from(array(`${kind}_counts`)), edges: Array.from(array(`${kind}_edges`)) }),
    };
  }
  return views;
}
