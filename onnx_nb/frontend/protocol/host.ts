/**
 * The only way out of a graph view. In a notebook a host talks to the kernel; in an exported page it answers from
 * the embedded data, or rejects because there is no kernel.
 */

import type { Progress } from "./channel.ts";
import type { Target } from "./columns.ts";
import type {
  CaptureReply,
  CellsReply,
  EditReply,
  EditRequest,
  Inspection,
  Look,
  OverlayReply,
  PlanReply,
  SaveReply,
  SelectReply,
  StatisticsReply,
} from "./wire.ts";

/** Numbers of nodes and scopes that color the boxes. */
export interface OverlayData extends OverlayReply {
  /** by node and by scope; NaN for none */
  readonly nodes: Float64Array;
  readonly scopes: Float64Array;
  /** ends of the scale; by default those of the drawn numbers */
  readonly ends?: readonly [number, number];
}

/** The way in which data flows in the picture. */
export type Direction = "down" | "right";

/** The result of `plan_extraction` for the chosen inputs and outputs. */
export interface Plan extends PlanReply {
  readonly nodes: Int32Array;
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

export interface Extraction extends EditReply {
  /** packed columns of the submodel, unless it is as it was, and differences from the model that was edited */
  readonly columns?: Uint8Array;
  readonly differences?: Uint8Array;
}

/** Some cells of a tensor. */
export interface CellsPage extends CellsReply {
  /** 0 for non-finite values, else 1 … 255 */
  readonly pixels?: Uint8Array;
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
  /** nodes that compute with nothing but shapes are shown */
  readonly plumbing?: boolean;
  readonly search?: string;
  readonly color?: string | null;
  readonly bookmarks?: readonly Bookmark[];
  readonly direction?: Direction;
}

export interface NamedTarget extends Target {
  readonly name: string;
}

/** Position of cells: an index for each dimension except the last two, and the first row and column. */
export interface Place {
  readonly index: readonly number[];
  readonly row: number;
  readonly column: number;
  readonly look: Look;
  /** one of the kinds of the page before; absent for the first */
  readonly kind?: string;
}

/** Requests to the kernel for numbers in tensors. */
export interface ValueHost {
  /** runs the model and reads one tensor, or all for null; */
  capture(value: number | null, progress: Progress, signal: AbortSignal): Promise<CaptureReply>;
  /** measures the model; returns a message */
  profile(progress: Progress, signal: AbortSignal): Promise<string>;
  /** chooses sizes of made-up inputs, null to keep them; returns each one's name, its chosen size, and its usual one */
  sizes(
    shapes: Record<string, unknown> | null,
    signal: AbortSignal,
  ): Promise<readonly (readonly [string, string, string])[]>;
  /** null if nothing is known yet */
  statistics(value: number, progress: Progress, signal: AbortSignal): Promise<StatisticsReply | null>;
  page(value: number, place: Place, signal: AbortSignal): Promise<CellsPage>;
  /** the content of a .npy file */
  npy(value: number, signal: AbortSignal): Promise<Uint8Array>;
}

/** Data embedded in a page, which has no kernel. */
export interface PageData {
  /** null for omitted statistics */
  inspect(target: Target): Inspection | null;
  figures(target: Target): readonly (readonly [string, string])[];
  statistics(value: number): StatisticsReply | null;
  /** names of the numbers that can color the boxes: of any model, and of a captured one */
  readonly colors: { readonly own: readonly string[]; readonly captured: readonly string[] };
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
  extract(inputs: string[], outputs: string[], signal: AbortSignal): Promise<Extraction>;
  /** edits the model; returns it with all edits so far */
  edit?(request: EditRequest, progress: Progress, signal: AbortSignal): Promise<Extraction>;
  /** writes the model that was extracted or edited last */
  save?(path: string, replace: boolean, signal: AbortSignal): Promise<SaveReply>;
  /** forgets the submodel, because its extraction was undone */
  discard(signal: AbortSignal): Promise<unknown>;
  inspect(target: Target, name: string, signal: AbortSignal): Promise<Inspection>;
  /** cost of a node or scope in a run, label and text; counting may take a second */
  figures?(target: Target, signal: AbortSignal): Promise<readonly (readonly [string, string])[]>;
  /** facts about several targets together */
  select?(targets: readonly Target[], signal: AbortSignal): Promise<SelectReply>;
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
