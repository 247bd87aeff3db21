/** Statistics and histograms of many tensors, as `analysis/view/result_columns.py` packs them. */

import { column, type Packed, Strings, type TypedArray } from "./codec.ts";
import type { StatisticsReply } from "./host.ts";

export class Digest {
  readonly count: number;
  /** as the graph numbers the tensors, −1 for none */
  readonly value: Int32Array;
  readonly names: readonly string[];
  readonly nbytes: Float64Array;
  readonly min: Float64Array;
  readonly max: Float64Array;
  readonly mean: Float64Array;
  readonly std: Float64Array;
  readonly zeros: Float64Array;
  readonly elements: Float64Array;
  /** whatever else came with them */
  readonly meta: Readonly<Record<string, unknown>>;
  /** tensors that did not fit */
  readonly leftOut: number;

  readonly #nan: Float64Array;
  readonly #posinf: Float64Array;
  readonly #neginf: Float64Array;
  readonly #known: Uint8Array;
  readonly #exponent: Int32Array;
  readonly #first: Float64Array;
  readonly #ptr: Uint32Array;
  readonly #bins: Float64Array;
  readonly #packed: Packed;
  readonly #strings: Strings;
  #rowOf: Map<number, number> | undefined;

  constructor(packed: Packed) {
    const take = <T extends TypedArray>(name: string, type: new (n: number) => T): T => column(packed, name, type);
    this.#packed = packed;
    this.#strings = new Strings(packed);
    this.meta = packed.meta as Readonly<Record<string, unknown>>;
    this.leftOut = Number(this.meta.left_out);
    this.names = Array.from(take("name", Uint32Array), (text) => this.#strings.at(text));
    this.count = this.names.length;
    this.value = take("value", Int32Array);
    this.nbytes = take("nbytes", Float64Array);
    this.min = take("min", Float64Array);
    this.max = take("max", Float64Array);
    this.mean = take("mean", Float64Array);
    this.std = take("std", Float64Array);
    this.zeros = take("zeros", Float64Array);
    this.elements = take("count", Float64Array);
    this.#nan = take("nan", Float64Array);
    this.#posinf = take("posinf", Float64Array);
    this.#neginf = take("neginf", Float64Array);
    this.#known = take("known", Uint8Array);
    this.#exponent = take("exponent", Int32Array);
    this.#first = take("first", Float64Array);
    this.#ptr = take("ptr", Uint32Array);
    this.#bins = take("bins", Float64Array);
  }

  text(name: "node" | "op" | "dtype" | "shape" | "source", row: number): string {
    return this.#strings.at(column(this.#packed, name, Uint32Array)[row]);
  }

  /** whether it has numbers at all */
  known(row: number): boolean {
    return this.#known[row] === 1;
  }

  nan(row: number): number {
    return this.#nan[row];
  }

  inf(row: number): number {
    return this.#posinf[row] + this.#neginf[row];
  }

  /** The row of a tensor of the graph, −1 if it is not there. */
  rowOf(value: number): number {
    if (this.#rowOf === undefined) {
      this.#rowOf = new Map();
      for (let row = 0; row < this.count; row++) if (this.value[row] >= 0) this.#rowOf.set(this.value[row], row);
    }
    return this.#rowOf.get(value) ?? -1;
  }

  counts(row: number): Float64Array {
    return this.#bins.subarray(this.#ptr[row], this.#ptr[row + 1]);
  }

  statistics(row: number): StatisticsReply {
    const counts = Array.from(this.counts(row));
    const [first, exponent] = [this.#first[row], this.#exponent[row]];
    const edge = (at: number): number => {
      // in two steps: one power alone may leave the numbers there are
      const half = Math.trunc(exponent / 2);
      const x = (first + at) * 2 ** half * 2 ** (exponent - half);
      return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, x));
    };
    return {
      count: this.elements[row],
      nan: this.#nan[row],
      posinf: this.#posinf[row],
      neginf: this.#neginf[row],
      zeros: this.zeros[row],
      min: this.min[row],
      max: this.max[row],
      mean: this.mean[row],
      std: this.std[row],
      counts,
      edges: counts.length === 0 ? [] : Array.from({ length: counts.length + 1 }, (_, at) => edge(at)),
      source: this.text("source", row),
    };
  }
}
