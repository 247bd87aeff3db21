/** Two decoders side by side, as packed by `analysis/view/decoding_columns.py`. */

import { PackedTable } from "./codec.ts";

export interface DecodingAbout {
  readonly name: string;
  readonly message: string;
  /** halves of layers, from the embedding to the logits; none if the layers of both are not known */
  readonly parts: readonly string[];
  /** step and part of the first fault */
  readonly first: readonly [step: number, part: number] | null;
  /** every layer is off, since the candidate's weights are quantized */
  readonly quantized: boolean;
  /** both sides are models */
  readonly drills: boolean;
}

export class Steps extends PackedTable<DecodingAbout> {
  readonly about = this.meta;
  readonly position = this.column("position", Float64Array);
  readonly count = this.position.length;
  readonly margin = this.column("margin", Float64Array);
  readonly difference = this.column("difference", Float64Array);
  readonly divergence = this.column("divergence", Float64Array);
  /** the largest error of each step */
  readonly worst = this.column("worst", Float64Array);
  readonly ties = this.column("ties", Uint8Array);
  readonly reference = this.column("reference", Int32Array);
  readonly candidate = this.column("candidate", Int32Array);

  readonly #errors = this.column("errors", Float32Array);
  readonly #faults = this.column("faults", Int32Array);

  /** Returns the isolated error of a part at a step, by what the part adds. */
  error(step: number, part: number): number {
    return this.#errors[part * this.count + step];
  }

  /** Returns the first position of a part that is off by more than rounding, −1 for none. */
  fault(step: number, part: number): number {
    return this.about.quantized ? -1 : this.#faults[part * this.count + step];
  }

  /** Returns a token as its text, or as its number without a tokenizer. */
  token(side: "reference" | "candidate", step: number): string {
    return this.text(`${side}_text`, step) || String(this[side][step]);
  }
}
