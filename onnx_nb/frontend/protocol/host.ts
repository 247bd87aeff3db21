/**
 * The only way out of a graph view. In a notebook a host talks to the kernel; in an exported page it answers from
 * the embedded data, or rejects because there is no kernel.
 */

import type { Progress } from "./channel.ts";
import type { Target } from "./columns.ts";

/** Numbers of nodes and scopes that color the boxes. */
export interface OverlayData {
  readonly label: string;
  readonly scale: "linear" | "log";
  /** how the number of a scope is derived from those of its nodes */
  readonly reduce: "sum" | "max";
  /** number of names that are not in the model */
  readonly unmatched: number;
  /** by node and by scope; NaN for none */
  readonly nodes: Float64Array;
  readonly scopes: Float64Array;
  /** labels of an overlay by category, whose numbers are indices into them */
  readonly labels?: readonly string[];
}

/** The way in which data flows in the picture. */
export type Direction = "down" | "right";

/** The result of `plan_extraction` for the chosen inputs and outputs. */
export interface Plan {
  readonly nodes: Int32Array;
  readonly missing: readonly { readonly value: number; readonly name: string; readonly message: string }[];
  readonly redundant: readonly number[];
  /** inputs that complete the extraction, when `missing` is not empty */
  readonly suggestion: readonly number[];
  /** alternative inputs that replace all chosen ones: fewer, or without a side path */
  readonly alternative: readonly number[];
  readonly nbytes: number;
  readonly message: string;
}

/** Camera independent of the size of the view: world point in the middle, and screen px per world px. */
export interface CameraPosition {
  readonly x: number;
  readonly y: number;
  readonly zoom: number;
}

/** A saved place: selection, open scopes and camera. */
export interface Bookmark {
  readonly name: string;
  readonly target: Target | null;
  readonly open: ReadonlySet<number>;
  readonly camera: CameraPosition;
}

export interface ExtractReply {
  /** packed columns of the submodel */
  readonly columns: Uint8Array;
  readonly message: string;
  /** what a cell calls it; "" where there are no cells */
  readonly name: string;
}

/** Origin of an attribute: stated by the node, left at its default, or stated with the default value. */
export type Origin = "given" | "default" | "given default";

/** Facts about one target that only the kernel knows. */
export interface InspectReply {
  /** label, text */
  readonly rows: readonly (readonly [string, string])[];
  /** name, text, origin */
  readonly attributes: readonly (readonly [name: string, text: string, origin: Origin])[];
  readonly documentation: string;
  /** "modeling_bert.py:312", "" if unknown */
  readonly source: string;
}

/** Facts about several nodes and scopes that only the kernel knows. */
export interface SelectionReply {
  /** label, text */
  readonly rows: readonly (readonly [string, string])[];
  /** tensors that they read from outside, and tensors of theirs that others read */
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  /** why they cannot be extracted, "" if they can */
  readonly obstacle: string;
}

/** A change that a person made in the view, by names, so that the kernel and a saved notebook can store it. */
export interface Patch {
  readonly selection?: readonly NamedTarget[];
  readonly inputs?: readonly string[];
  readonly outputs?: readonly string[];
  /** ids of open scopes */
  readonly open?: readonly number[];
  readonly overlay?: OverlayData | null;
  readonly camera?: CameraPosition;
  /** height of the columns of the layout, 0 for one column; the camera depends on it */
  readonly columnHeight?: number;
  /** boxes have one line; the camera depends on it, too */
  readonly brief?: boolean;
  readonly search?: string;
  readonly color?: string | null;
  readonly bookmarks?: readonly Bookmark[];
  readonly direction?: Direction;
}

export interface NamedTarget extends Target {
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
  /** histogram of the finite values: counts of n bins and their n + 1 edges */
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
  /** number of trailing dimensions of size 1 that the shape omits */
  readonly trailing: number;
  readonly cells: readonly (readonly string[])[];
  /** the possible views of the tensor */
  readonly looks: readonly Look[];
  readonly picture?: PictureReply;
  /** 0 for non-finite values, else 1 … 255 */
  readonly pixels?: Uint8Array;
}

/** One slice, those along the third last dimension side by side, or three of them as red, green and blue. */
export type Look = "slice" | "channels" | "color";

export interface PictureReply {
  readonly look: Look;
  /** tiles, height, width */
  readonly shape: readonly [number, number, number];
  /** index of the slice in the first tile */
  readonly first: number;
  /** the darkest and the brightest value */
  readonly low: number | string;
  readonly high: number | string;
}

/** Position of cells: an index for each dimension except the last two, and the first row and column. */
export interface Place {
  readonly index: readonly number[];
  readonly row: number;
  readonly column: number;
  readonly look: Look;
}

/** Requests to the kernel for numbers in tensors. */
export interface ValueHost {
  /** runs the model and reads one tensor, or all for null; returns a message */
  capture(value: number | null, progress: Progress, signal: AbortSignal): Promise<string>;
  /** null if nothing is known yet */
  statistics(value: number, progress: Progress, signal: AbortSignal): Promise<StatisticsReply | null>;
  page(value: number, place: Place, signal: AbortSignal): Promise<PageReply>;
  /** the content of a .npy file */
  npy(value: number, signal: AbortSignal): Promise<Uint8Array>;
}

/** Names of the numbers of nodes that can be shown: of any model, and of a captured one. */
export interface Colors {
  readonly own: readonly string[];
  readonly captured: readonly string[];
}

/** Data embedded in a page, which has no kernel. */
export interface PageData {
  /** null for omitted statistics */
  inspect(target: Target): InspectReply | null;
  figures(target: Target): readonly (readonly [string, string])[];
  statistics(value: number): StatisticsReply | null;
  /** numbers for coloring the boxes */
  readonly colors: Colors;
  overlay(name: string): OverlayData | null;
  /** numbers that colored them when the page was written */
  readonly initialOverlay: OverlayData | null;
  /** note on a weight or tensor without statistics, "" for none */
  readonly lacking: string;
}

export interface GraphHost {
  /** whether a kernel answers; without one the inspector uses only the columns and nothing can be extracted */
  readonly live: boolean;
  /** why there is no kernel, one sentence; shown where buttons are disabled */
  readonly reason: string;
  plan(inputs: string[], outputs: string[], signal: AbortSignal): Promise<Plan>;
  extract(inputs: string[], outputs: string[], signal: AbortSignal): Promise<ExtractReply>;
  /** forgets the submodel, because its extraction was undone */
  discard(signal: AbortSignal): Promise<unknown>;
  inspect(target: Target, name: string, signal: AbortSignal): Promise<InspectReply>;
  /** cost of a node or scope in a run, label and text; counting may take a second */
  figures?(target: Target, signal: AbortSignal): Promise<readonly (readonly [string, string])[]>;
  /** facts about several targets together */
  select?(targets: readonly Target[], signal: AbortSignal): Promise<SelectionReply>;
  /** false: this graph does not support extraction */
  readonly canExtract?: boolean;
  changed(patch: Patch): void;
  /** the counterpart in the graph that this one is compared with, label and text */
  counterpart?(target: Target): readonly (readonly [string, string])[];
  readonly pageData?: PageData;
  readonly values?: ValueHost;
  /** numbers that the kernel has for any model, by name */
  overlay?(name: string, signal: AbortSignal): Promise<OverlayData>;
  /** the content of an HTML file that holds the live graph; statistics of all weights take a while */
  page?(statistics: boolean, progress: Progress, signal: AbortSignal): Promise<Uint8Array>;
}

/** An error with advice, as in `OnnxNbError`. */
export type Failure = ReturnType<typeof failure>;

/** Returns message and advice of anything thrown: errors of the channel carry `advice`, others only a message. */
export function failure(error: unknown): { readonly message: string; readonly advice: string } {
  if (!(error instanceof Error)) return { message: String(error), advice: "" };
  return { message: error.message, advice: "advice" in error ? String(error.advice) : "" };
}

/** Returns the same in one line. */
export function failureText(error: unknown): string {
  const { message, advice } = failure(error);
  return `${message} ${advice}`.trim();
}
