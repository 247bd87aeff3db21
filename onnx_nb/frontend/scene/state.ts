/** State of one graph view, and the one function that changes it. */

import type { Columns, Target } from "../protocol/columns.ts";
import type { PairData } from "../protocol/diff.ts";
import type { Bookmark, Direction, Plan } from "../protocol/host.ts";
import type { EditRequest, StepEntry } from "../protocol/wire.ts";
import type { Overlay, Range } from "./overlay.ts";

/** A target found. For a chain it is the first node, and `chain` holds all nodes in the order of the flow. */
export interface Hit extends Target {
  readonly chain?: readonly number[];
}

export interface Boundary {
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
}

/** A model that was made of this one and is shown beside it: a part, or the model with edits. */
export interface Submodel {
  readonly columns: Columns;
  readonly boundary: Boundary;
  /** what a cell calls it; "" where there are no cells */
  readonly name: string;
  /** Python that makes it */
  readonly code: string;
  /** where it may be saved */
  readonly file: string;
  readonly origin: "extract" | "edit" | "simplify";
  /** the edits, and whether one that was undone can be made again */
  readonly steps: readonly StepEntry[];
  /** the step that is shown, from 1; 0 for all */
  readonly step: number;
  readonly redo: boolean;
  /** differences from the model that was edited, which both graphs show */
  readonly differences: PairData | null;
}

/** Fields that can be undone, and the field that is undone with another. */
const UNDOABLE = ["boundary", "submodel", "open", "direction", "plumbing", "overlay", "bookmarks", "others"] as const;
const COMPANIONS: Readonly<Record<string, "color" | "selection">> = { overlay: "color", others: "selection" };
/** Fields as they were before a step. */
type UndoStep = Partial<Pick<State, (typeof UNDOABLE)[number] | "color" | "selection">>;

export interface State {
  readonly open: ReadonlySet<number>;
  /** direction of the flow */
  readonly direction: Direction;
  /** nodes that compute with nothing but shapes are shown */
  readonly plumbing: boolean;
  /** the last selected target, which the inspector shows and the keys start from */
  readonly selection: Target | null;
  /** the other selected targets in order of selection; empty if `selection` is null */
  readonly others: readonly Target[];
  /** dragging selects with a rectangle, and a click adds to the selection */
  readonly gathering: boolean;
  readonly hover: Target | null;
  readonly boundary: Boundary;
  /** the submodel next to the graph */
  readonly submodel: Submodel | null;
  /** steps to undo, the latest at the end, and steps to redo */
  readonly undo: readonly UndoStep[];
  readonly redo: readonly UndoStep[];
  readonly plan: Plan | null;
  readonly search: string;
  readonly hits: readonly Hit[];
  /** one of `hits`, −1 for none */
  readonly hit: number;
  /** numbers that color the boxes instead of the op categories */
  readonly overlay: Overlay | null;
  /** name of an overlay chosen in the bar, null for any other */
  readonly color: string | null;
  readonly bookmarks: readonly Bookmark[];
  /** number of captures so far */
  readonly captures: number;
  /** all values have been captured, not only some */
  readonly capturedAll: boolean;
  /** description of the running kernel request */
  readonly busy: string | null;
  /** fraction of it that is done, null if unknown */
  readonly done: number | null;
  /** what the last request did, until something else is done; "" for nothing */
  readonly outcome: string;
  readonly isAlarm: boolean;
  readonly error: { readonly message: string; readonly advice: string } | null;
  readonly live: boolean;
}

export type Action =
  | { readonly type: "open" | "close" | "toggle"; readonly scope: number }
  | { readonly type: "direction"; readonly direction: Direction }
  /** shows or hides shape arithmetic, by default the other way round */
  | { readonly type: "plumbing"; readonly plumbing?: boolean }
  | { readonly type: "openAll"; readonly scopes: Iterable<number> }
  /** opens these scopes and closes all others */
  | { readonly type: "openOnly"; readonly scopes: ReadonlySet<number> }
  | { readonly type: "expandAll" | "collapseAll" }
  | { readonly type: "select" | "hover"; readonly target: Target | null }
  /** adds a target to the selection or removes it */
  | { readonly type: "also"; readonly target: Target }
  | { readonly type: "selectAll"; readonly targets: readonly Target[]; readonly add?: boolean }
  | { readonly type: "gathering"; readonly gathering: boolean }
  | { readonly type: "input" | "output"; readonly value: number }
  | { readonly type: "boundary"; readonly boundary: Boundary }
  | { readonly type: "extracted"; readonly submodel: Submodel }
  /** hides the submodel, which stays in the kernel */
  | { readonly type: "closeSubmodel" }
  | { readonly type: "undo" | "redo" }
  | { readonly type: "clear" }
  | { readonly type: "plan"; readonly plan: Plan | null }
  | { readonly type: "search"; readonly text: string; readonly hits: readonly Hit[] }
  | { readonly type: "hit"; readonly hit: number }
  | { readonly type: "overlay"; readonly overlay: Overlay | null; readonly color?: string }
  | { readonly type: "bookmarks"; readonly bookmarks: readonly Bookmark[] }
  | { readonly type: "range"; readonly range: Range }
  | { readonly type: "captured"; readonly all: boolean }
  | { readonly type: "busy"; readonly busy: string | null; readonly done?: number }
  | { readonly type: "finished"; readonly outcome: string; readonly isAlarm: boolean }
  | { readonly type: "error"; readonly error: State["error"] }
  | { readonly type: "live"; readonly live: boolean };

/** Content and format of a saved picture. */
export type Saving = "svg" | "svg-view" | "png";

/** A request that changes no state: it moves the camera or asks the kernel. */
export type Command =
  /** extracts some nodes and scopes, or what is between the chosen inputs and outputs */
  | { readonly type: "extract"; readonly targets?: readonly Target[] }
  | { readonly type: "edit"; readonly request: EditRequest }
  | { readonly type: "save"; readonly what: Saving }
  /** saves the live graph as one file, with statistics of the weights if asked */
  | { readonly type: "page"; readonly statistics: boolean }
  | { readonly type: "color"; readonly by: string }
  /** a tensor, or null for all */
  | { readonly type: "capture"; readonly value: number | null }
  /** measures the model and colors it by time */
  | { readonly type: "profile" }
  /** goes to a bookmark, or saves the current view as one */
  | { readonly type: "visit"; readonly bookmark: Bookmark }
  | { readonly type: "bookmark" }
  /** fits everything, or the drawn boxes of some targets */
  | { readonly type: "fit"; readonly targets?: readonly Target[] }
  /** brings it into view, or into the middle of the view */
  | { readonly type: "reveal"; readonly target: Target; readonly toCenter?: boolean };

export function initialState(open: Iterable<number>, direction: Direction = "down"): State {
  return {
    open: new Set(open),
    direction,
    plumbing: true,
    selection: null,
    others: NO_TARGETS,
    gathering: false,
    hover: null,
    boundary: { inputs: [], outputs: [] },
    submodel: null,
    undo: [],
    redo: [],
    plan: null,
    search: "",
    hits: [],
    hit: -1,
    overlay: null,
    color: null,
    bookmarks: [],
    captures: 0,
    capturedAll: false,
    busy: null,
    done: null,
    outcome: "",
    isAlarm: false,
    error: null,
    live: true,
  };
}

/** Maximum number of undo steps. */
const STEPS = 100;

/** Returns the state after an action; a command changes nothing. */
export function reduce(state: State, action: Action | Command, columns: Columns): State {
  if (action.type === "undo" || action.type === "redo") return back(state, action.type);
  const next = changed(state, action, columns);
  // dragging a filter makes a hundred changes, and is as easily reverted
  const isEdit = action.type === "extracted" && action.submodel.origin !== "extract"; // the kernel takes it back
  const skipsHistory = isEdit || action.type === "range" || action.type === "closeSubmodel";
  return next === state || skipsHistory ? next : record(state, next, action);
}

/** Records the fields that a step changed. */
function record(before: State, after: State, action: Action | Command): State {
  // selecting one target after another is no step, selecting several is
  const fields = UNDOABLE.filter((field) => before[field] !== after[field]);
  if (fields.length === 0) return after;
  const change = pick(before, [...fields, ...fields.flatMap((field) => COMPANIONS[field] ?? [])]);
  const last = before.undo.at(-1);
  // the scopes that were opened do not fit after all
  if (action.type === "openOnly" && last?.open === after.open) return { ...after, undo: before.undo.slice(0, -1) };
  return { ...after, undo: [...before.undo.slice(1 - STEPS), change], redo: [] };
}

function pick(state: State, fields: readonly string[]): UndoStep {
  return Object.fromEntries(fields.map((field) => [field, state[field as keyof UndoStep]]));
}

function back(state: State, way: "undo" | "redo"): State {
  const change = state[way].at(-1);
  if (change === undefined) return state;
  const inverse = pick(state, Object.keys(change));
  const there = way === "undo" ? "redo" : "undo";
  return {
    ...state,
    ...change,
    ...(change.boundary !== undefined && { plan: null, error: null }),
    outcome: "",
    [way]: state[way].slice(0, -1),
    [there]: [...state[there], inverse],
  };
}

function changed(state: State, action: Action | Command, columns: Columns): State {
  switch (action.type) {
    case "open":
    case "close":
    case "toggle": {
      const opens = action.type === "toggle" ? !state.open.has(action.scope) : action.type === "open";
      const open = new Set(state.open);
      if (opens) for (const ancestor of columns.ancestry(action.scope)) open.add(ancestor);
      else open.delete(action.scope);
      return { ...state, open };
    }
    case "direction":
    case "gathering":
    case "plan":
    case "hit":
    case "bookmarks":
    case "finished":
    case "error":
    case "live": {
      const { type, ...fields } = action;
      return { ...state, ...fields };
    }
    case "plumbing":
      return { ...state, plumbing: action.plumbing ?? !state.plumbing };
    case "openAll":
      return { ...state, open: new Set([...state.open, ...action.scopes]) };
    case "openOnly":
      return { ...state, open: action.scopes };
    case "expandAll":
      return { ...state, open: new Set(Array.from({ length: columns.scopeCount }, (_, scope) => scope)) };
    case "collapseAll":
      return { ...state, open: new Set([0]) };
    case "select":
      return { ...state, selection: action.target, others: NO_TARGETS, outcome: "" };
    case "also": {
      const remainder = selectionOf(state).filter((target) => !sameTarget(target, action.target));
      return selecting(state, remainder.length < selectionOf(state).length ? remainder : [...remainder, action.target]);
    }
    case "selectAll": {
      const now = selectionOf(state);
      const before = action.add === true ? now : [];
      const targets = new Map([...before, ...action.targets].map((target) => [keyOf(target), target]));
      const all = [...targets.values()];
      const isSame = all.length === now.length && all.every((target, at) => sameTarget(target, now[at]));
      return isSame ? state : selecting(state, all);
    }
    case "hover":
      return sameTarget(state.hover, action.target) ? state : { ...state, hover: action.target };
    case "input":
    case "output": {
      const ends = `${action.type}s` as const;
      return withBoundary(state, { ...state.boundary, [ends]: toggle(state.boundary[ends], action.value) });
    }
    case "boundary": {
      const [{ inputs, outputs }, now] = [action.boundary, state.boundary];
      const isEqual = inputs.join() === now.inputs.join() && outputs.join() === now.outputs.join();
      return isEqual ? state : withBoundary(state, action.boundary);
    }
    case "extracted": {
      const { submodel } = action;
      return { ...changed(state, { type: "boundary", boundary: submodel.boundary }, columns), submodel };
    }
    case "closeSubmodel":
      return { ...state, submodel: null };
    case "clear":
      return withBoundary(state, { inputs: [], outputs: [] });
    case "search":
      return { ...state, search: action.text, hits: action.hits, hit: action.hits.length > 0 ? 0 : -1 };
    case "overlay": {
      const { overlay, color = null } = action;
      return overlay === state.overlay && color === state.color ? state : { ...state, overlay, color };
    }
    case "range":
      return state.overlay === null ? state : { ...state, overlay: state.overlay.withRange(action.range) };
    case "busy":
      return { ...state, busy: action.busy, done: action.done ?? null, outcome: action.busy ? "" : state.outcome };
    case "captured":
      return { ...state, captures: state.captures + 1, capturedAll: state.capturedAll || action.all };
    default:
      action satisfies Command | { readonly type: "undo" | "redo" };
      return state;
  }
}

const NO_TARGETS: readonly Target[] = [];

/** Returns all selected targets, the latest at the end. */
export function selectionOf({ selection, others }: State): readonly Target[] {
  return selection === null ? [] : [...others, selection];
}

function selecting(state: State, targets: readonly Target[]): State {
  const others = targets.length < 2 ? NO_TARGETS : targets.slice(0, -1);
  return { ...state, selection: targets.at(-1) ?? null, others };
}

/** Returns a text that is the same for equal targets. */
export function keyOf({ kind, id }: Target): string {
  return `${kind} ${id}`;
}

export function sameTarget(a: Target | null, b: Target | null): boolean {
  return a === b || (a !== null && b !== null && a.kind === b.kind && a.id === b.id);
}

function withBoundary(state: State, boundary: Boundary): State {
  return { ...state, boundary, plan: null, error: null, outcome: "" };
}

function toggle(values: readonly number[], value: number): readonly number[] {
  return values.includes(value) ? values.filter((member) => member !== value) : [...values, value];
}
