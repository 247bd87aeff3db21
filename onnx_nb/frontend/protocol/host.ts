/**
 * The only way out of a graph view. In a notebook a host talks to the kernel; in an exported page it answers from
 * what was baked in, or rejects because there is no kernel.
 */

import type { OverlayData } from "../scene/overlay.ts";
import type { Direction } from "../scene/scene.ts";
import type { Bookmark, Plan, Standing } from "../scene/state.ts";
import type { Progress } from "./channel.ts";
import type { Target } from "./columns.ts";

export interface ExtractReply {
  /** packed columns of the submodel */
  readonly columns: Uint8Array;
  readonly message: string;
}

/** Whether a node gives an attribute, leaves it at its default, or gives just the default. */
export type Origin = "given" | "default" | "given default";

/** Facts about one target that only the kernel knows. */
export interface InspectReply {
  /** label, text */
  readonly rows: readonly (readonly [string, string])[];
  /** name, text, whether this is the schema's default */
  readonly attributes: readonly (readonly [name: string, text: string, origin: Origin])[];
  readonly documentation: string;
  /** "modeling_bert.py:312", "" if unknown */
  readonly source: string;
}

/** Facts about several nodes and scopes that only the kernel knows. */
export interface SelectionReply {
  /** label, text */
  readonly rows: readonly (readonly [string, string])[];
  /** tensors that they read from outside, and those of theirs that others read */
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  /** why they cannot be extracted, "" if they can */
  readonly obstacle: string;
}

/** A change that a person made in the view, by names, so that the kernel and a saved notebook can hold it. */
export interface Patch {
  readonly selection?: readonly Selected[];
  readonly inputs?: readonly string[];
  readonly outputs?: readonly string[];
  /** ids of open groups */
  readonly open?: readonly number[];
  readonly overlay?: OverlayData | null;
  readonly camera?: Standing;
  /** how high the columns are in which the graph is set, 0 for one column: where the camera stands depends on it */
  readonly columnHeight?: number;
  /** boxes have one line: the same */
  readonly brief?: boolean;
  readonly search?: string;
  readonly color?: string | null;
  readonly bookmarks?: readonly Bookmark[];
  readonly direction?: Direction;
}

export interface Selected extends Target {
  readonly name: string;
}

/** The statistics of a tensor; numbers that JSON cannot hold are text. */
export interface StatisticsReply {
  readonly count: number;
  readonly nan: number;
  readonly posinf: number;
  readonly neginf: number;
  readonly zeros: number;
  readonly min: number | string;
  readonly max: number | string;
  readonly mean: number | string;
  readonly std: number | string;
  /** a histogram of the finite values: counts of n bins and their n + 1 edges */
  readonly counts: readonly number[];
  readonly edges: readonly number[];
  /** "captured, 1 run on random inputs", "weight" */
  readonly source: string;
}

/** Some cells of a tensor, and a picture of the slice they are in. */
export interface PageReply {
  readonly shape: readonly number[];
  readonly index: readonly number[];
  readonly row: number;
  readonly column: number;
  /** how many dimensions of size 1 at the end the shape is without */
  readonly trailing: number;
  readonly cells: readonly (readonly string[])[];
  /** the ways in which the tensor can be seen */
  readonly looks: readonly Look[];
  readonly picture?: PictureReply;
  /** 0 for what is not finite, else 1 … 255 */
  readonly pixels?: Uint8Array;
}

/** One slice, those along the third last dimension side by side, or three of them as red, green and blue. */
export type Look = "slice" | "channels" | "color";

export interface PictureReply {
  readonly look: Look;
  /** tiles, height, width */
  readonly shape: readonly [number, number, number];
  /** the slice in the first tile */
  readonly first: number;
  /** what is darkest and brightest */
  readonly low: number | string;
  readonly high: number | string;
}

/** Which cells: a number for each dimension but the last two, and the first row and column. */
export interface Place {
  readonly index: readonly number[];
  readonly row: number;
  readonly column: number;
  readonly look: Look;
}

/** The kernel's answers about the numbers in tensors. */
export interface ValueHost {
  /** runs the model and looks at one tensor, or at all; gives a sentence */
  capture(value: number | null, progress: Progress, signal: AbortSignal): Promise<string>;
  /** null if nothing is known yet */
  statistics(value: number, progress: Progress, signal: AbortSignal): Promise<StatisticsReply | null>;
  page(value: number, place: Place, signal: AbortSignal): Promise<PageReply>;
  /** the content of a .npy file */
  npy(value: number, signal: AbortSignal): Promise<Uint8Array>;
}

/** Names of numbers by node: those of any model, and those of a capture. */
export interface Colors {
  readonly own: readonly string[];
  readonly captured: readonly string[];
}

/** Data that was written into a page, which has no kernel. */
export interface Baked {
  /** null for what was left out */
  inspect(target: Target): InspectReply | null;
  figures(target: Target): readonly (readonly [string, string])[];
  statistics(value: number): StatisticsReply | null;
  /** what the boxes can be colored by */
  readonly colors: Colors;
  overlay(name: string): OverlayData | null;
  /** what colored them when the page was written */
  readonly shown: OverlayData | null;
  /** what to say of a weight or tensor without statistics, "" for nothing */
  readonly lacking: string;
}

export interface GraphHost {
  /** whether a kernel answers; without one the inspector works from columns alone and nothing is extracted */
  readonly live: boolean;
  /** why there is no kernel, one sentence; shown where buttons are disabled */
  readonly reason: string;
  plan(inputs: string[], outputs: string[], signal: AbortSignal): Promise<Plan>;
  extract(inputs: string[], outputs: string[], signal: AbortSignal): Promise<ExtractReply>;
  inspect(target: Target, name: string, signal: AbortSignal): Promise<InspectReply>;
  /** what a node or scope costs in a run, label and text; counting may take a second */
  figures?(target: Target, signal: AbortSignal): Promise<readonly (readonly [string, string])[]>;
  /** what several targets are together */
  select?(targets: readonly Target[], signal: AbortSignal): Promise<SelectionReply>;
  /** false: nothing is cut out of this graph */
  readonly cuts?: boolean;
  changed(patch: Patch): void;
  /** what became of it in the graph that this one is compared with, label and text */
  compared?(target: Target): readonly (readonly [string, string])[];
  readonly baked?: Baked;
  readonly values?: ValueHost;
  /** numbers that the kernel can give of any model, by name */
  overlay?(name: string, signal: AbortSignal): Promise<OverlayData>;
  /** the content of an HTML file that holds the live graph; statistics of all weights take a while */
  page?(statistics: boolean, progress: Progress, signal: AbortSignal): Promise<Uint8Array>;
  /** takes the picture for where the notebook cannot show the live graph; asked for again after changes */
  picture?(svg: string): void;
}

/** An error with a way out, as `OnnxNbError` has it. */
export type Failure = ReturnType<typeof failure>;

/** Message and advice of anything thrown: errors of the channel carry `advice`, others only a message. */
export function failure(error: unknown): { readonly message: string; readonly advice: string } {
  if (!(error instanceof Error)) return { message: String(error), advice: "" };
  return { message: error.message, advice: "advice" in error ? String(error.advice) : "" };
}

/** The same in one line. */
export function failureText(error: unknown): string {
  const { message, advice } = failure(error);
  return `${message} ${advice}`.trim();
}
