/**
 * What a graph view asks of the kernel: the plan of an extraction as soon as its inputs or outputs change, numbers to
 * color by, and one long task at a time.
 */

import { unpack } from "../protocol/codec.ts";
import { Columns } from "../protocol/columns.ts";
import { failure, type GraphHost, NO_KERNEL } from "../protocol/host.ts";
import { Overlay } from "../scene/overlay.ts";
import type { Boundary, Dispatch, State } from "../scene/state.ts";
import { fillings } from "./dom.ts";
import { download } from "./export.ts";
import { type OnProgress, Task } from "./task.ts";

export interface KernelActions {
  /** asks what an extraction would take */
  plan(): void;
  extract(): void;
  /** runs the model and looks at one tensor, or at all for null */
  capture(value: number | null): void;
  /** downloads the live graph as a page */
  page(statistics: boolean): void;
  /** `restored`: a person colored by it before, and the kernel may not have these numbers any more */
  color(by: string, restored?: boolean): void;
  /** other colors were chosen: those that are still asked for come too late */
  recolored(): void;
  cancel(): void;
}

/** Returns the names of chosen tensors. */
export function namesOf(columns: Columns, boundary: Boundary): { inputs: string[]; outputs: string[] } {
  const named = (values: readonly number[]): string[] => values.map((value) => columns.valueNameOf(value));
  return { inputs: named(boundary.inputs), outputs: named(boundary.outputs) };
}

export interface KernelEvents {
  state(): State;
  readonly dispatch: Dispatch;
  announce(text: string): void;
  extracted(submodel: Columns): void;
}

export function createKernelActions(
  columns: Columns,
  host: GraphHost,
  { state, dispatch, announce, extracted }: KernelEvents,
  signal: AbortSignal,
): KernelActions {
  const task = new Task(signal);
  const planning = fillings(signal);
  const coloring = fillings(signal);
  const failed = (error: unknown): void => dispatch({ type: "error", error: failure(error) });

  /** @param ask asks the kernel, and returns what is to be done with its answer */
  const run = (
    start: { readonly busy: string; readonly done?: number },
    ask: (round: AbortSignal, progress: OnProgress) => Promise<() => void>,
  ): void => {
    if (!host.live) {
      dispatch({ type: "error", error: { message: host.reason ?? NO_KERNEL, advice: "" } });
      return;
    }
    if (task.busy) return;
    dispatch({ type: "error", error: null });
    dispatch({ type: "busy", ...start });
    void task.run(ask, {
      progress: (done, message) => dispatch({ type: "busy", busy: message, ...(done !== null && { done }) }),
      done: (finish) => finish(),
      failed,
      ended: () => dispatch({ type: "busy", busy: null }),
    });
  };

  return {
    plan() {
      const round = planning();
      const { boundary } = state();
      if (!host.live || boundary.outputs.length === 0) return;
      const { inputs, outputs } = namesOf(columns, boundary);
      host.plan(inputs, outputs, round).then(
        (plan) => {
          if (!round.aborted && state().boundary === boundary) dispatch({ type: "plan", plan });
        },
        (error: unknown) => {
          if (!round.aborted) failed(error);
        },
      );
    },
    extract() {
      run({ busy: "Extracting the submodel…" }, async (round) => {
        const { inputs, outputs } = namesOf(columns, state().boundary);
        const reply = await host.extract(inputs, outputs, round);
        const submodel = new Columns(await unpack(reply.columns));
        return () => {
          extracted(submodel);
          announce(reply.message);
        };
      });
    },
    capture(value) {
      const { values } = host;
      if (values === undefined) return; // whoever asks for it was offered it
      run({ busy: "Running the model…", done: 0 }, async (round, progress) => {
        const message = await values.capture(value, progress, round);
        return () => {
          dispatch({ type: "captured", all: value === null });
          announce(message);
        };
      });
    },
    page(statistics) {
      run({ busy: "Writing the page…", done: 0 }, async (round, progress) => {
        const content = await host.page?.(statistics, progress, round);
        return () => {
          if (content === undefined) return;
          download(new Blob([content as Uint8Array<ArrayBuffer>], { type: "text/html" }), columns.meta.name, "html");
          announce("Saved as HTML");
        };
      });
    },
    color(by, restored = false) {
      const round = coloring();
      host.overlay?.(by, round).then(
        (data) => {
          if (!round.aborted) dispatch({ type: "overlay", overlay: new Overlay(data), color: by });
        },
        (error: unknown) => {
          if (!round.aborted && !restored) failed(error);
        },
      );
    },
    recolored: () => void coloring(),
    cancel() {
      task.cancel();
      announce("Cancelled");
    },
  };
}
