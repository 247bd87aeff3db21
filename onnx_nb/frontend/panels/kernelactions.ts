/**
 * Requests of a graph view to the kernel: the plan of an extraction as soon as its inputs or outputs change, numbers to
 * color by, and long tasks one after the other.
 */

import { KernelError } from "../protocol/channel.ts";
import { unpack } from "../protocol/codec.ts";
import { Columns, type Target } from "../protocol/columns.ts";
import { PairData } from "../protocol/diff.ts";
import { type Extraction, failure, type GraphHost } from "../protocol/host.ts";
import type { EditRequest } from "../protocol/wire.ts";
import { Overlay } from "../scene/overlay.ts";
import type { Boundary, Submodel } from "../scene/state.ts";
import { quote } from "../search/query.ts";
import { fillings, settle } from "../ui/dom.ts";
import { type OnProgress, Task } from "../ui/task.ts";
import { download } from "./export.ts";
import { OF_CAPTURE } from "./lenses.ts";
import type { ViewContext } from "./viewcontext.ts";

/** Returns the names of chosen tensors. */
export function namesOf(columns: Columns, boundary: Boundary): { inputs: string[]; outputs: string[] } {
  const tensorNames = (values: readonly number[]): string[] => values.map((value) => columns.valueNameOf(value));
  return { inputs: tensorNames(boundary.inputs), outputs: tensorNames(boundary.outputs) };
}

/** Returns the border of some nodes and scopes. */
async function borderOf(host: GraphHost, targets: readonly Target[], round: AbortSignal): Promise<Boundary> {
  const reply = await host.select?.(targets, round);
  if (reply === undefined || reply.obstacle !== "") throw new Error(reply?.obstacle ?? host.reason);
  return { inputs: reply.inputs, outputs: reply.outputs };
}

const BUSY: Readonly<Record<string, string>> = { simplify: "Simplifying the model…", verify: "Proving edits…" };
type Ask = (round: AbortSignal, progress: OnProgress) => Promise<() => void>;

/** Returns what runs tasks one after the other; `ask` asks the kernel, and returns a function that applies the reply. */
function createQueue({ host, dispatch }: ViewContext, task: Task, fail: (error: unknown) => void) {
  const queue: (() => void)[] = [];
  let isProving: boolean | undefined;
  return (start: { readonly busy: string; readonly done?: number }, ask: Ask, isProof?: boolean): void => {
    dispatch({ type: "error", error: host.live ? null : { message: host.reason, advice: "" } });
    if (!host.live) return;
    if (isProving && isProof === false && task.busy) task.cancel(); // an edit does not wait for a proof
    const begin = (): void => {
      isProving = isProof;
      dispatch({ type: "busy", ...start });
      void task.run(ask, {
        progress: (done, message) => dispatch({ type: "busy", busy: message, ...(done !== null && { done }) }),
        done: (finish) => finish(),
        fail,
        onEnd() {
          dispatch({ type: "busy", busy: null });
          queue.shift()?.();
        },
      });
    };
    if (task.busy) queue.push(begin);
    else begin();
  };
}

/** Returns what shows a model that the kernel made, or the proofs of the edits that are shown. */
async function show(
  { state, dispatch }: ViewContext,
  reply: Extraction,
  origin: Submodel["origin"],
  boundary: Boundary,
) {
  const { message, name, code, file, steps = [], step = 0, redo = false, columns: data, differences } = reply;
  const isAlarm = steps.some(({ sign }) => sign === "✗");
  const former = state().submodel;
  const submodel = {
    ...(former as Submodel),
    ...{ boundary, name, code, file, origin, steps, step, redo },
    ...(data && {
      columns: new Columns(await unpack(data)),
      differences: differences ? new PairData(await unpack(differences)) : null,
    }),
  };
  return (): void => {
    if (data || former) dispatch({ type: "extracted", submodel }); // else the pane was closed during the proof
    dispatch({ type: "finished", outcome: message, isAlarm });
  };
}

/** Returns what shows an error, and lights the node that it names. */
function createFail({ columns, dispatch }: ViewContext) {
  return (error: unknown): void => {
    dispatch({ type: "error", error: failure(error) });
    const name = error instanceof KernelError ? error.node : "";
    const target = columns.find(name, "node") ?? columns.find(name, "tensor");
    if (target === undefined) return;
    dispatch({ type: "search", text: quote(name), hits: [target] });
    dispatch({ type: "reveal", target });
  };
}

export function createKernelActions(view: ViewContext) {
  const { columns, host, state, dispatch, announce, signal } = view;
  const task = new Task(signal);
  const planning = fillings(signal);
  const coloring = fillings(signal);
  /** the model has been measured */
  let isTimed = false;
  const fail = createFail(view);
  const finish = (outcome: string, isAlarm = false): void => dispatch({ type: "finished", outcome, isAlarm });
  const run = createQueue(view, task, fail);

  /** Edits the model, and shows the result beside it; what is not proved then is proved while nothing else runs. */
  const edit = (request: EditRequest): void => {
    const isProof = request.edit === "verify";
    const ask: Ask = async (round, progress) => {
      const asked = host.edit?.(request, progress, round);
      const reply = await (asked ?? Promise.reject<Extraction>(new Error(host.reason)));
      const apply = await show(view, reply, request.edit === "simplify" ? "simplify" : "edit", state().boundary);
      return () => {
        apply();
        const { steps = [], step = 0 } = reply;
        if (!isProof && steps.some(({ sign }) => sign === "?")) edit({ edit: "verify", step });
      };
    };
    run({ busy: BUSY[request.edit] ?? "Editing the model…" }, ask, isProof);
  };

  /** @param isRestored from an earlier session; the kernel may no longer have these numbers */
  const color = (by: string, isRestored = false): void => {
    const round = coloring();
    const request = host.overlay?.(by, round);
    if (request === undefined) return;
    const draw = (data: Overlay["data"]): void => dispatch({ type: "overlay", overlay: new Overlay(data), color: by });
    settle(request, round, draw, (error) => isRestored || fail(error));
  };

  return {
    /** Asks for the plan of an extraction. */
    plan(): void {
      const round = planning();
      const { boundary } = state();
      if (!host.live || boundary.outputs.length === 0) return;
      const { inputs, outputs } = namesOf(columns, boundary);
      settle(host.plan(inputs, outputs, round), round, (plan) => dispatch({ type: "plan", plan }), fail);
    },
    /** Extracts some nodes and scopes, or what is between the chosen inputs and outputs. */
    extract(targets?: readonly Target[]): void {
      const boundaryNow = state().boundary;
      run({ busy: "Extracting the submodel…" }, async (round) => {
        const boundary = targets === undefined ? boundaryNow : await borderOf(host, targets, round);
        const { inputs, outputs } = namesOf(columns, boundary);
        return show(view, await host.extract(inputs, outputs, round), "extract", boundary);
      });
    },
    edit,
    /** Gives the kernel the submodel that is shown again after an undo, or none. */
    restore(submodel: Submodel | null): void {
      if (submodel !== null && submodel.origin !== "extract") return; // the kernel keeps the edits: "Undo" beside them takes one back
      const { inputs, outputs } = namesOf(columns, submodel?.boundary ?? { inputs: [], outputs: [] });
      const request: Promise<unknown> =
        submodel === null ? host.discard(signal) : host.extract(inputs, outputs, signal);
      settle(request, signal, () => undefined, fail);
    },
    /** Runs the model and reads one tensor, or all of them for null, then colors by NaN if there is any, or as asked. */
    capture(value: number | null, by?: string): void {
      const { values } = host;
      if (values === undefined) return; // only offered where it is possible
      run({ busy: "Running the model…", done: 0 }, async (round, progress) => {
        const { message, origin } = await values.capture(value, progress, round);
        return () => {
          dispatch({ type: "captured", all: value === null });
          if (origin != null) {
            const target: Target = { kind: "tensor", id: origin };
            color("NaN");
            dispatch({ type: "select", target });
            dispatch({ type: "reveal", target });
          } else if (by !== undefined) color(by);
          finish(message, origin != null); // after the selection, which clears the last outcome
        };
      });
    },
    /** Measures the model and colors it by time. */
    profile(): void {
      run({ busy: "Measuring the model…", done: 0 }, async (round, progress) => {
        const message = (await host.values?.profile(progress, round)) ?? "";
        return () => {
          isTimed = true;
          finish(message);
          color("time");
        };
      });
    },
    /** Downloads the live graph as a page. */
    page(statistics: boolean): void {
      run({ busy: "Writing the page…", done: 0 }, async (round, progress) => {
        const content = await host.page?.(statistics, progress, round);
        return () => {
          if (content === undefined) return;
          download(content, columns.meta.name, "html");
          finish("Saved as HTML");
        };
      });
    },
    color,
    /** Colors by numbers, after the run of the model that they need. */
    look(by: string): void {
      if (host.values === undefined) color(by);
      else if (by === "time" && (!isTimed || state().color === by)) this.profile();
      else if (OF_CAPTURE.has(by) && (!state().capturedAll || state().color === by)) this.capture(null, by);
      else color(by);
    },
    /** Ignores numbers that are still on their way, because other colors were chosen. */
    recolored: () => void coloring(),
    cancel(): void {
      task.cancel();
      announce("Cancelled");
    },
  };
}
