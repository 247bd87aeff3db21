/**
 * What the view asks of the kernel: the plan of an extraction as soon as its inputs or outputs change, numbers to color by, and one
 * long piece of work at a time, which shows progress and can be cancelled.
 */

import { unpack } from "../protocol/codec.ts";
import { Columns } from "../protocol/columns.ts";
import { failure, type GraphHost, NO_KERNEL } from "../protocol/host.ts";
import { Overlay } from "../scene/overlay.ts";
import type { Boundary, Dispatch, State } from "../scene/state.ts";
import { download } from "./save.ts";

export interface Work {
  /** asks what an extraction would take, for the inputs and outputs chosen now */
  plan(): void;
  extract(): void;
  /** runs the model and looks at one tensor, or at all for null */
  capture(value: number | null): void;
  /** writes the live graph as a page, and hands it to the person */
  page(statistics: boolean): void;
  color(by: string): void;
  /** colors as a person did before, if the kernel still has these numbers */
  recolor(by: string): void;
  /** other colors were chosen: those that are still asked for come too late */
  recolored(): void;
  cancel(): void;
}

/** The names of chosen tensors. */
export function namesOf(columns: Columns, boundary: Boundary): { inputs: string[]; outputs: string[] } {
  const named = (values: readonly number[]): string[] => values.map((value) => columns.valueNameOf(value));
  return { inputs: named(boundary.inputs), outputs: named(boundary.outputs) };
}

/** @param extracted takes the submodel and what to say of it */
export function createWork(
  columns: Columns,
  host: GraphHost,
  state: () => State,
  dispatch: Dispatch,
  say: (text: string) => void,
  extracted: (submodel: Columns) => void,
  signal: AbortSignal,
): Work {
  let planning: AbortController | null = null;
  let working: AbortController | null = null;
  let coloring: AbortController | null = null;

  /** @param ask asks the kernel, and gives what is to be done with the answer if it is still wanted */
  const work = async (
    start: { readonly busy: string; readonly done?: number },
    ask: (round: AbortSignal, told: (done: number, message: string) => void) => Promise<() => void>,
  ): Promise<void> => {
    if (!host.live) {
      dispatch({ type: "error", error: { message: host.reason ?? NO_KERNEL, advice: "" } });
      return;
    }
    if (state().busy !== null) return;
    const round = new AbortController();
    working = round;
    dispatch({ type: "error", error: null });
    dispatch({ type: "busy", ...start });
    try {
      const finish = await ask(round.signal, (done, message) => {
        if (working === round) dispatch({ type: "busy", busy: message, done });
      });
      if (!round.signal.aborted && !signal.aborted) finish();
    } catch (error) {
      if (!round.signal.aborted) dispatch({ type: "error", error: failure(error) });
    } finally {
      if (working === round) {
        working = null;
        dispatch({ type: "busy", busy: null });
      }
    }
  };

  signal.addEventListener(
    "abort",
    () => {
      planning?.abort();
      working?.abort();
      coloring?.abort();
    },
    { once: true },
  );

  const color = (by: string, failed: (error: unknown) => void): void => {
    coloring?.abort();
    const round = new AbortController();
    coloring = round;
    host.overlay?.(by, round.signal).then(
      (found) => {
        if (round.signal.aborted || signal.aborted) return;
        dispatch({ type: "overlay", overlay: new Overlay(found), color: by });
      },
      (error: unknown) => {
        if (!round.signal.aborted) failed(error);
      },
    );
  };

  return {
    plan() {
      planning?.abort();
      planning = null;
      const { boundary } = state();
      if (!host.live || boundary.outputs.length === 0) return;
      const round = new AbortController();
      planning = round;
      const { inputs, outputs } = namesOf(columns, boundary);
      host.plan(inputs, outputs, round.signal).then(
        (reply) => {
          if (!round.signal.aborted && state().boundary === boundary) dispatch({ type: "plan", plan: reply });
        },
        (error: unknown) => {
          if (!round.signal.aborted) dispatch({ type: "error", error: failure(error) });
        },
      );
    },
    extract() {
      void work({ busy: "Extracting the submodel…" }, async (round) => {
        const { inputs, outputs } = namesOf(columns, state().boundary);
        const reply = await host.extract(inputs, outputs, round);
        const packed = await unpack(reply.columns);
        return () => {
          extracted(new Columns(packed));
          say(reply.message);
        };
      });
    },
    capture(value) {
      const { values } = host;
      if (values === undefined) return; // whoever asks for it was offered it
      void work({ busy: "Running the model…", done: 0 }, async (round, told) => {
        const message = await values.capture(value, told, round);
        return () => {
          dispatch({ type: "captured", all: value === null });
          say(message);
        };
      });
    },
    page(statistics) {
      void work({ busy: "Writing the page…", done: 0 }, async (round, told) => {
        const content = await host.page?.(statistics, told, round);
        return () => {
          if (content === undefined) return;
          download(new Blob([content as Uint8Array<ArrayBuffer>], { type: "text/html" }), columns.meta.name, "html");
          say("Saved as HTML");
        };
      });
    },
    color: (by) => color(by, (error) => dispatch({ type: "error", error: failure(error) })),
    recolor: (by) => color(by, () => undefined),
    recolored: () => coloring?.abort(),
    cancel() {
      // the answer may take its time to stop; whoever cancels need not wait for it
      working?.abort();
      working = null;
      dispatch({ type: "busy", busy: null });
      say("Cancelled");
    },
  };
}
