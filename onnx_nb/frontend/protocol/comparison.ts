/** The points of a comparison, as `analysis/view/result_columns.py` packs them. */

import { type Packed, Strings, type TypedArray } from "./codec.ts";

export type Which = "cumulative" | "isolated";
export const WHICH: readonly Which[] = ["cumulative", "isolated"];

export interface Metric {
  readonly key: string;
  readonly label: string;
  readonly higher_is_better: boolean;
  readonly logarithmic: boolean;
}

/** What a point's errors are, in one byte. */
export const STATE = { UNKNOWN: 0, EQUAL: 1, DIFFERENT: 2, MISMATCHED: 3 } as const;

interface About {
  readonly reference: string;
  readonly candidate: string;
  readonly feeds: number;
  /** where the sides first differ, in words */
  readonly message: string;
  /** row of the first divergent point, −1 if none stands out */
  readonly first: number;
  /** that one, or the worst; −1 where all are equal */
  readonly notable: number;
  /** points of which any value is outside of the tolerance */
  readonly outside: number;
  readonly isolated: boolean;
  readonly metrics: readonly Metric[];
  /** where the parts of the model begin */
  readonly parts: readonly (readonly [row: number, label: string])[];
  /** points without a detail in here */
  readonly left_out: number;
}

export type Text =
  | "name"
  | "reference"
  | "candidate"
  | "op_type"
  | "matched"
  | "node"
  | "scope"
  | "source"
  | "difference"
  | "shape"
  | "dtype"
  | "missing_name"
  | "missing_reason"
  | "missing_op_type";

export class Points {
  readonly about: About;
  readonly count: number;
  /** how many values only one side has */
  readonly missing: number;
  /** the isolated error against what is usual for the kind of the point; NaN where it is not known */
  readonly score: Float64Array;
  /** log10 of the ends of all small histograms */
  readonly sparkEnds: readonly [number, number];
  readonly bars: number;

  readonly #arrays: ReadonlyMap<string, TypedArray>;
  readonly #strings: Strings;
  readonly #sparks: TypedArray;
  #rowOf: Map<string, number> | undefined;
  #placeOf: Map<number, number> | undefined;

  constructor(packed: Packed) {
    this.about = packed.meta as About;
    this.#arrays = packed.arrays;
    this.#strings = new Strings(packed);
    this.count = this.#array("name").length;
    this.missing = this.#array("missing_name").length;
    this.score = this.#array("score") as Float64Array;
    this.#sparks = this.#array("sparks");
    this.bars = this.count === 0 ? 0 : this.#sparks.length / this.count;
    const ends = this.#array("spark_ends");
    this.sparkEnds = [ends[0], ends[1]];
  }

  text(name: Text, row: number): string {
    return this.#strings.at(this.#array(name)[row]);
  }

  has(which: Which): boolean {
    return this.#arrays.has(`${which}_state`);
  }

  /** of all points; NaN where there is none */
  numbers(which: Which, metric: string): Float64Array {
    return (
      (this.#arrays.get(`${which}_${metric}`) as Float64Array | undefined) ??
      new Float64Array(this.count).fill(Number.NaN)
    );
  }

  state(which: Which, row: number): number {
    return this.#arrays.get(`${which}_state`)?.[row] ?? STATE.UNKNOWN;
  }

  /** Which errors tell most of a point. */
  best(row: number): Which {
    return this.state("isolated", row) === STATE.UNKNOWN ? "cumulative" : "isolated";
  }

  isOutput(row: number): boolean {
    return this.#array("output")[row] === 1;
  }

  spark(row: number): TypedArray {
    return this.#sparks.subarray(row * this.bars, (row + 1) * this.bars);
  }

  missingSide(row: number): Sides {
    return this.#array("missing_side")[row] === 1 ? "candidate" : "reference";
  }

  /** −1 if there is no such point */
  rowOf(name: string): number {
    if (this.#rowOf === undefined) {
      this.#rowOf = new Map();
      for (let row = this.count - 1; row >= 0; row--) this.#rowOf.set(this.text("name", row), row);
    }
    return this.#rowOf.get(name) ?? -1;
  }

  /** What was packed along of a point, null if it must be asked for. */
  detail(row: number): Uint8Array | null {
    const ends = this.#array("detail_end");
    this.#placeOf ??= new Map(Array.from(this.#array("detail_row"), (each, place) => [each, place]));
    const place = this.#placeOf.get(row);
    if (place === undefined) return null;
    return (this.#array("details") as Uint8Array).subarray(place === 0 ? 0 : ends[place - 1], ends[place]);
  }

  #array(name: string): TypedArray {
    const array = this.#arrays.get(name);
    if (array === undefined) throw new Error(`column '${name}' is missing`);
    return array;
  }
}

export type Sides = "reference" | "candidate";

/** What is known of one point besides its metrics. */
export interface Detail {
  readonly shape: readonly number[];
  readonly dtypes: readonly string[];
  readonly tolerance: readonly [rtol: number, atol: number];
  readonly count: number;
  readonly equal: number;
  readonly finite: number;
  readonly nan: number;
  readonly inf: number;
  readonly outside: number;
  readonly argmax: readonly [same: number, rows: number] | null;
  /** of the channels, −1 if there are none */
  readonly axis: number;
  readonly worst: readonly (readonly [index: string, reference: string, candidate: string, feed: number])[];
  readonly zeros: Readonly<Record<"absolute" | "relative" | "ulp", number>>;
  readonly errors: ArrayLike<number>;
  readonly channels: ArrayLike<number>;
  /** pairs of reference and candidate, one after the other */
  readonly sample: ArrayLike<number>;
  histogram(kind: Kind): { readonly counts: number[]; readonly edges: number[] };
}

export type Kind = "absolute" | "signed" | "relative" | "ulp";
export type Details = Readonly<Partial<Record<Which, Detail>>>;

export function detailsOf({ meta, arrays }: Packed): Details {
  const given = meta as unknown as Readonly<Partial<Record<Which, Detail>>>;
  const found: Partial<Record<Which, Detail>> = {};
  for (const which of WHICH) {
    const about = given[which];
    if (about === undefined) continue;
    const array = (name: string): TypedArray => arrays.get(`${which}_${name}`) ?? new Float64Array(0);
    found[which] = {
      ...about,
      errors: array("worst"),
      channels: array("channels"),
      sample: array("sample"),
      histogram: (kind) => ({
        counts: Array.from(array(`${kind}_counts`)),
        edges: Array.from(array(`${kind}_edges`)),
      }),
    };
  }
  return found;
}
