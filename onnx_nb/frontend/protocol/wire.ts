/** The wire, written by `python -m tests.wire` from `onnx_nb/widgets/protocol.py`: change it there. */
export type Look = "slice" | "channels" | "color";
export type Origin = "given" | "default" | "given default";
export type Aggregate = "sum" | "max";
export type Scale = "linear" | "log";
/** The picture that a notebook saves. */
export type PictureRequest = { readonly svg: string };
/** Packed columns by name, or one of several graphs. */
export interface SideRequest {
  /** name of packed columns, which is also that of their graph */
  readonly part?: string;
  /** number of the step of a simplification, 0 for all of it */
  readonly step?: number;
}
/** A node, tensor or scope of a graph. */
export type TargetRequest = SideRequest & { readonly kind: string; readonly id: number };
/** Numbers by name. */
export type OverlayRequest = SideRequest & { readonly name: string };
/** Several nodes and scopes. */
export type SelectRequest = { readonly nodes?: readonly number[]; readonly scopes?: readonly number[] };
/** The ends of a submodel. */
export type BoundaryRequest = { readonly inputs?: readonly string[]; readonly outputs?: readonly string[] };
/** An edit of the model; what is shown then is the model with all edits so far. */
export interface EditRequest {
  /** a verb of `Edit`, shape, show, or verify; or simplify, which begins from the model as it is */
  readonly edit: string;
  readonly kind?: string;
  readonly id?: number;
  /** in place of an id, the name in the edited model; of a node without one, that of what it makes */
  readonly name?: string;
  /** the new name, shape, operator or attributes */
  readonly text?: string;
  /** the step to undo, from 1, or null for the last; to show, or null for all */
  readonly step?: number | null;
}
/** A page without a kernel. */
export type PageRequest = { readonly statistics?: boolean };
/** A run of the model. */
export interface CaptureRequest {
  /** one tensor; null for all */
  readonly value?: number | null;
}
/** A tensor. */
export type ValueRequest = { readonly value: number };
/** Cells of a tensor. */
export interface CellsRequest extends ValueRequest {
  /** an index for each dimension except the last two */
  readonly index?: readonly number[];
  readonly row?: number;
  readonly column?: number;
  readonly look?: string;
  readonly kind?: string;
}
/** The details of one point. */
export interface DetailRequest {
  readonly row: number;
  /** the module that was drilled into */
  readonly inside?: string;
}
/** A point by its name. */
export type NameRequest = { readonly name: string };
/** A region to put back to float. */
export interface FloatRequest extends NameRequest {
  /** number of steps that stay */
  readonly count: number;
}
/** The quality to reach. */
export interface TargetQualityRequest {
  /** such as "> 30 dB" */
  readonly target: string;
}
/** Changes to leave out. */
export type SkipRequest = { readonly skipped?: readonly string[] };
/** A file to write. */
export type SaveRequest = { readonly path: string; readonly replace?: boolean };
/** Sizes of inputs. */
export type ShapesRequest = { readonly shapes?: Readonly<Record<string, unknown>> };
/** Sizes of made-up inputs, as lists. */
export type SizesRequest = ShapesRequest & { readonly choice?: boolean };
/** Numbers of nodes and scopes that color the boxes. */
export interface OverlayReply {
  readonly label: string;
  readonly scale: Scale;
  /** how the number of a scope is derived from those of its nodes */
  readonly reduce: Aggregate;
  /** number of names that are not in the model */
  readonly unmatched: number;
  /** labels of an overlay by category, whose numbers are indices into them; none for numbers */
  readonly labels?: readonly string[];
}
/** The result of a capture. */
export interface CaptureReply {
  readonly message: string;
  /** the first tensor with NaN or Inf */
  readonly origin?: number | null;
}
/** Facts about several nodes and scopes. */
export interface SelectReply {
  /** label, text */
  readonly rows: readonly (readonly [string, string])[];
  /** tensors that they read from outside */
  readonly inputs: readonly number[];
  /** tensors of theirs that others read */
  readonly outputs: readonly number[];
  /** why they cannot be extracted, "" if they can */
  readonly obstacle: string;
}
/** A tensor that a submodel lacks. */
export type MissingEntry = { readonly value: number; readonly name: string; readonly message: string };
/** The result of `plan_extraction` for the chosen inputs and outputs. */
export interface PlanReply {
  readonly missing: readonly MissingEntry[];
  readonly redundant: readonly number[];
  /** inputs that complete the extraction, when `missing` is not empty */
  readonly suggestion: readonly number[];
  /** alternative inputs that replace all chosen ones: fewer, or without a side path */
  readonly alternative: readonly number[];
  readonly nbytes: number;
  readonly message: string;
}
/** An edit that was made. */
export interface StepEntry {
  /** ✓, ≈, ≠, ✗ or ? */
  readonly sign: string;
  readonly text: string;
  readonly verdict: string;
}
/** A model that an extraction made. */
export interface ExtractReply {
  readonly message: string;
  /** what a cell calls it; "" where there are no cells */
  readonly name: string;
  /** Python that makes it */
  readonly code: string;
  /** a path to save it to */
  readonly file: string;
}
/** A model that edits made. */
export interface EditReply extends ExtractReply {
  /** the edits */
  readonly steps?: readonly StepEntry[];
  /** the step that is shown, from 1; 0 for all */
  readonly step?: number;
  /** an undo can be taken back */
  readonly redo?: boolean;
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
  /** histogram of the finite values: counts of n bins */
  readonly counts: readonly number[];
  /** the n + 1 edges of the bins */
  readonly edges: readonly number[];
  /** "captured, 1 run on random inputs", "weight" */
  readonly source: string;
}
/** A slice of a tensor as gray values. */
export interface PictureReply {
  readonly look: Look;
  /** tiles, height, width */
  readonly shape: readonly [number, number, number];
  /** index of the slice in the first tile */
  readonly first: number;
  /** the darkest value */
  readonly low: number | string;
  readonly high: number | string;
}
/** Some cells of a tensor, and a picture of the slice they are in. */
export interface CellsReply {
  readonly shape: readonly number[];
  /** Index of the slice along each dimension except the last two. */
  readonly index: readonly number[];
  readonly row: number;
  /** First cell of the page. */
  readonly column: number;
  readonly cells: readonly (readonly string[])[];
  /** Number of omitted trailing dimensions of size 1. */
  readonly trailing: number;
  /** the possible views of the tensor */
  readonly looks: readonly Look[];
  /** what there is to see of it, such as "Dequantized" and "Packed" */
  readonly kinds: readonly string[];
  readonly picture: PictureReply | null;
}
/** The outcome of saving a file. */
export interface SaveReply {
  readonly path: string;
  /** nothing was written, because the file exists */
  readonly exists: boolean;
  readonly size?: string;
}
/** Known facts about a node, tensor or scope, as plain text. */
export interface Inspection {
  /** Label and text. */
  readonly rows: readonly (readonly [string, string])[];
  /** Names and values of a node's attributes, and whether the node sets each, omits it, or sets it to the default. */
  readonly attributes: readonly (readonly [string, string, Origin])[];
  /** Operator documentation of onnx; empty for tensors. */
  readonly documentation: string;
  /** Line of the torch module, such as ``modeling_bert.py:312``; empty if unknown. */
  readonly source: string;
}
/** Request and reply of each verb. */
export interface Verbs {
  readonly ping: readonly [Record<string, never>, null];
  readonly code: readonly [Record<string, never>, string];
  readonly picture: readonly [PictureRequest, null];
  readonly columns: readonly [SideRequest, null];
  readonly inspect: readonly [TargetRequest, Inspection];
  readonly figures: readonly [TargetRequest, readonly (readonly [string, string])[]];
  readonly overlay: readonly [OverlayRequest, OverlayReply];
  readonly select: readonly [SelectRequest, SelectReply];
  readonly plan: readonly [BoundaryRequest, PlanReply];
  readonly extract: readonly [BoundaryRequest, ExtractReply];
  readonly edit: readonly [EditRequest, EditReply];
  readonly discard: readonly [Record<string, never>, null];
  readonly page: readonly [PageRequest, null];
  readonly capture: readonly [CaptureRequest, CaptureReply];
  readonly profile: readonly [Record<string, never>, string];
  readonly sizes: readonly [SizesRequest, readonly (readonly [string, string, string])[]];
  readonly statistics: readonly [ValueRequest, StatisticsReply | null];
  readonly values: readonly [CellsRequest, CellsReply];
  readonly npy: readonly [ValueRequest, null];
  readonly detail: readonly [DetailRequest, null];
  readonly reproduce: readonly [NameRequest, string];
  readonly drill: readonly [NameRequest, null];
  readonly float: readonly [FloatRequest, string];
  readonly worst: readonly [Record<string, never>, string];
  readonly front: readonly [Record<string, never>, string];
  readonly suggest: readonly [TargetQualityRequest, string];
  readonly undo: readonly [Record<string, never>, string];
  readonly again: readonly [SkipRequest, string];
  readonly save: readonly [SaveRequest, SaveReply];
  readonly costs: readonly [ShapesRequest, null];
  readonly range: readonly [SelectRequest, string];
}
