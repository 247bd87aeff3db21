/** Statistics and histograms of many tensors, as packed by `analysis/view/result_columns.py`. */

import { PackedTable } from "./codec.ts";
import type { StatisticsReply } from "./wire.ts";

export class Digest extends PackedTable<Readonly<Record<string, unknown>>> {
  readonly count = this.column("name").length;
  readonly names: readonly string[] = Array.from({ length: this.count }, (_, row) => this.text("name", row));
  /** number of the tensor in the graph, −1 for none */
  readonly value = this.column("value", Int32Array);
  readonly nbytes = this.column("nbytes", Float64Array);
  readonly min = this.column("min", Float64Array);
  readonly max = this.column("max", Float64Array);
  readonly mean = this.column("mean", Float64Array);
  readonly std = this.column("std", Float64Array);

  readonly #ptr = this.column("ptr", Uint32Array);
  readonly #bins = this.column("bins", Float64Array);
  readonly #rowOf = new Map(Array.from(this.value, (value, row) => [value, row]));

  /** Returns whether a tensor has any numbers. */
  hasNumbers(row: number): boolean {
    return this.column("known")[row] === 1;
  }

  nan(row: number): number {
    return this.column("nan")[row];
  }

  inf(row: number): number {
    return this.column("posinf")[row] + this.column("neginf")[row];
  }

  /** Returns the row of a tensor of the graph, −1 if it has none. */
  rowOf(value: number): number {
    return value < 0 ? -1 : (this.#rowOf.get(value) ?? -1);
  }

  counts(row: number): Float64Array {
    return this.#bins.subarray(this.#ptr[row], this.#ptr[row + 1]);
  }

  statistics(row: number): StatisticsReply {
    const counts = Array.from(this.counts(row));
    const number = (name: string): number => this.column(name)[row];
    const [first, exponent] = [number("first"), number("exponent")];
    const edge = (at: number): number => {
      // in two steps: a single power may exceed the range of numbers
      const half = Math.trunc(exponent / 2);
      const x = (first + at) * 2 ** half * 2 ** (exponent - half);
      return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, x));
    };
    return {
      count: number("count"),
      nan: number("nan"),
      posinf: number("posinf"),
      neginf: number("neginf"),
      zeros: number("zeros"),
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
