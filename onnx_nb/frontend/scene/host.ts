/**
 * The only way out of a graph view. In a notebook a host talks to the kernel; in an exported page it answers from
 * what was baked in, or says that there is no kernel.
 */

import type { Target } from "../model/columns.ts";
import type { OverlayData } from "./overlay.ts";
import type { Plan } from "./state.ts";

export interface ExtractReply {
  /** packed columns of the submodel */
  readonly columns: Uint8Array;
  readonly message: string;
}

/** What only the kernel knows of one target. */
export interface InspectReply {
  /** label, text */
  readonly rows: readonly (readonly [string, string])[];
  /** name, text, whether this is the schema's default */
  readonly attributes: readonly (readonly [string, string, boolean])[];
  readonly documentation: string;
  /** "modeling_bert.py:312", "" if unknown */
  readonly source: string;
}

/** What a person changed in the view; names, so that the kernel and a saved notebook can hold it. */
export interface Patch {
  readonly selection?: { readonly kind: Target["kind"]; readonly name: string; readonly id: number } | null;
  readonly inputs?: readonly string[];
  readonly outputs?: readonly string[];
  /** ids of open groups */
  readonly open?: readonly number[];
  readonly overlay?: OverlayData | null;
}

/** An error with a way out, as `OnnxNbError` has it. */
export interface Failure {
  readonly message: string;
  readonly advice: string;
}

export interface GraphHost {
  /** whether a kernel answers; without one the inspector works from columns alone and nothing is extracted */
  readonly live: boolean;
  /** why there is no kernel, one sentence; shown where buttons are disabled */
  readonly reason?: string;
  /** whether aborting the signal of `extract` stops the work */
  readonly cancellable?: boolean;
  plan(inputs: string[], outputs: string[], signal: AbortSignal): Promise<Plan>;
  extract(inputs: string[], outputs: string[], signal: AbortSignal): Promise<ExtractReply>;
  inspect(target: Target, name: string, signal: AbortSignal): Promise<InspectReply>;
  changed(patch: Patch): void;
  /** numbers that the kernel can give of any model, by name */
  overlay?(name: string, signal: AbortSignal): Promise<OverlayData>;
  /** takes the picture that stands in the notebook where the live graph cannot; asked for again after changes */
  picture?(svg: string): void;
}

/** Message and advice of anything thrown: errors of the channel carry `advice`, others only a message. */
export function failure(error: unknown): Failure {
  if (error instanceof Error) {
    const advice = "advice" in error && typeof error.advice === "string" ? error.advice : "";
    return { message: error.message, advice };
  }
  return { message: String(error), advice: "" };
}
