/**
 * Requests of a graph view to the kernel: the plan of an extraction as soon as its inputs or outputs change, numbers to
 * color by, and long tasks one after the other.
 */

import { unpack } from "../protocol/codec.ts";
import { Columns, type Target } from "../protocol/columns.ts";
import { type Extraction, failure, type GraphHost } from "../protocol/host.ts";
import type { EditRequest } from "../protocol/wire.ts";
import { Overlay } from "../scene/overlay.ts";
import type { Boundary, Dispatch, Submodel } from "../scene/state.ts";
import { fillings, settle } from "../ui/dom.ts";
import { type OnProgress, Task } from "../ui/task.ts";
import { download } from "./export.ts";
import type { ViewContext } from "./viewcontext.ts";

export type KernelActions = ReturnType<typeof createKernelActions>;

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

async function submodelOf(reply: Extraction, boundary: Boundary, isEdited: boolean): Promise<Submodel> {
  const { name, code, file } = reply;
  return { columns: new Columns(await unpack(reply.columns)), boundary, name, code, file, isEdited };
}

function shows(dispatch: Dispatch, { message }: Extraction, submodel: Submodel): () => void {
  return () => {
    dispatch({ type: "extracted", submodel });
    dispatch({ type: "finished", outcome: message });
  };
}

export function createKernelActions({ columns, host, state, dispatch, announce, signal }: ViewContext) {
  const task = new Task(signal);
  const planning = fillings(signal);
  const coloring = fillings(signal);
  /** tasks that begin when those before them have ended */
  const queue: (() => void)[] = [];
  const fail = (error: unknown): void => dispatch({ type: "error", error: failure(error) });
  const finish = (text: string): void => dispatch({ type: "finished", outcome: text });

  /** @param ask asks the kernel, and returns a function that applies the reply */
  const run = (
    start: { readonly busy: string; readonly done?: number },
    ask: (round: AbortSignal, progress: OnProgress) => Promise<() => void>,
  ): void => {
    if (!host.live) {
      dispatch({ type: "error", error: { message: host.reason, advice: "" } });
      return;
    }
    dispatch({ type: "error", error: null });
    const begin = (): void => {
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
        const reply = await host.extract(inputs, outputs, round);
        return shows(dispatch, reply, await submodelOf(reply, boundary, false));
      });
    },
    /** Edits the model, and shows the result beside it. */
    edit(request: EditRequest): void {
      run({ busy: "Editing the model…" }, async (round, progress) => {
        const reply = await (host.edit?.(request, progress, round) ??
          Promise.reject<Extraction>(new Error(host.reason)));
        return shows(dispatch, reply, await submodelOf(reply, state().boundary, true));
      });
    },
    /** Gives the kernel the submodel that is shown again after an undo, or none. */
    restore(submodel: Submodel | null): void {
      if (submodel?.isEdited) return; // the kernel keeps the edits: "Undo edit" takes one back
      const { inputs, outputs } = namesOf(columns, submodel?.boundary ?? { inputs: [], outputs: [] });
      const request: Promise<unknown> =
        submodel === null ? host.discard(signal) : host.extract(inputs, outputs, signal);
      settle(request, signal, () => undefined, fail);
    },
    /** Runs the model and reads one tensor, or all of them for null. */
    capture(value: number | null): void {
      const { values } = host;
      if (values === undefined) return; // only offered where it is possible
      run({ busy: "Running the model…", done: 0 }, async (round, progress) => {
        const message = await values.capture(value, progress, round);
        return () => {
          dispatch({ type: "captured", all: value === null });
          finish(message);
        };
      });
    },
    /** Measures the model; the kernel colors the graph by time. */
    profile(): void {
      run({ busy: "Measuring the model…", done: 0 }, async (round, progress) => {
        const message = (await host.values?.profile(progress, round)) ?? "";
        return () => finish(message);
      });
    },
    /** Downloads the live graph as a page. */
    page(statistics: boolean): void {
      run({ busy: "Writing the page…", done: 0 }, async (round, progress) => {
        const content = await host.page?.(statistics, progress, round);
        return () => {
          if (content === undefined) return;
          download(new Blob([content as Uint8Array<ArrayBuffer>], { type: "text/html" }), columns.meta.name, "html");
          finish("Saved as HTML");
        };
      });
    },
    /** @param isRestored from an earlier session; the kernel may no longer have these numbers */
    color(by: string, isRestored = false): void {
      const round = coloring();
      const request = host.overlay?.(by, round);
      if (request === undefined) return;
      const done = (data: Overlay["data"]): void =>
        dispatch({ type: "overlay", overlay: new Overlay(data), color: by });
      settle(request, round, done, (error) => isRestored || fail(error));
    },
    /** Ignores numbers that are still on their way, because other colors were chosen. */
    recolored: () => void coloring(),
    cancel(): void {
      task.cancel();
      announce("Cancelled");
    },
  };
}
