/**
 * Lays out in slices, so that the page stays responsive; shows its progress and can be cancelled. A worker would need
 * a second copy of the graph, could not run in an exported page, and would not be sooner there.
 */

import { button, el, onAbort } from "./dom.ts";

export interface LayoutScheduler {
  readonly element: HTMLElement;
  /** something is being laid out that is not there yet */
  readonly busy: boolean;
  /**
   * Goes on with a layout until it is there: at once if that takes no longer than a click may, or a person who sees
   * nothing yet waits (`first`), else in later tasks. What was under way before is dropped.
   */
  run<T>(
    parts: Generator<number, T>,
    there: (result: T, later: boolean) => void,
    failed: (error: unknown) => void,
    first?: boolean,
  ): void;
  stop(): void;
}

/** Milliseconds that the layout after a click may take at once, and the first layout of all. */
const AT_ONCE_MS = 30;
const FIRST_MS = 250;
/** Milliseconds of each slice of a layout that takes longer. */
const SLICE_MS = 16;
/** Milliseconds after which the progress is shown. */
const SHOWN_MS = 150;

/** @param atOnce how long a click may take, in ms */
export function createLayoutScheduler(cancel: () => void, signal: AbortSignal, atOnce = AT_ONCE_MS): LayoutScheduler {
  const bar = el("progress", { max: 1, "aria-label": "Laying out" });
  const element = el(
    "div.onnx-nb-laying",
    el("span", "Laying out…"),
    bar,
    button("Stop", cancel, signal, { title: "Leave the graph as it was (Esc)" }),
  );
  element.hidden = true;

  let next = 0;
  let started = 0;
  const stop = (): void => {
    window.clearTimeout(next);
    next = 0;
    element.hidden = true;
  };
  const show = (part: number): void => {
    element.hidden = performance.now() - started < SHOWN_MS;
    bar.value = part;
  };
  onAbort(signal, stop);

  return {
    element,
    get busy() {
      return next !== 0;
    },
    run(parts, there, failed, first = false) {
      stop();
      started = performance.now();
      const slice = (length: number): void => {
        const later = next !== 0;
        const until = performance.now() + length;
        try {
          for (;;) {
            const { done, value } = parts.next();
            if (done === true) {
              stop();
              there(value, later);
              return;
            }
            if (performance.now() < until) continue;
            show(value);
            next = window.setTimeout(slice, 0, SLICE_MS);
            return;
          }
        } catch (error) {
          stop();
          failed(error);
        }
      };
      slice(first ? Math.max(FIRST_MS, atOnce) : atOnce);
    },
    stop,
  };
}
