/** The pane with the errors of the chosen point; what the kernel has to send arrives later. */

import { type Details, type Points, STATE, type Which } from "../protocol/comparison.ts";
import { failure } from "../protocol/host.ts";
import { el, fillings, onAbort } from "./dom.ts";
import { errorsOf } from "./pointerrors.ts";
import { SILENCE, SILENCE_MS } from "./task.ts";

export interface PointDetail {
  readonly element: HTMLElement;
  /** −1 for no point */
  show(row: number): void;
  /** Draws in the colors that the page has now. */
  redraw(): void;
}

export interface PointDetailOptions {
  load(row: number, signal: AbortSignal): Promise<Details>;
  dark(): boolean;
  /** buttons for what can be done with a point */
  actions(row: number, signal: AbortSignal): readonly HTMLElement[];
}

/** Milliseconds after which a point that is being loaded is shown without its details. */
const PATIENCE_MS = 150;

export function createPointDetail(
  points: Points,
  { load, dark, actions }: PointDetailOptions,
  signal: AbortSignal,
): PointDetail {
  const element = el("aside.onnx-nb-detail", { "aria-label": "Errors of the point", tabindex: 0 });
  const filling = fillings(signal);
  const loaded = new Map<number, Details>();
  let shown = -1;
  let wanted: Which = points.about.isolated ? "isolated" : "cumulative";

  const fill = (row: number, details: Details | string | null, round: AbortSignal): void => {
    const which = points.state(wanted, row) === STATE.UNKNOWN ? points.best(row) : wanted;
    const turned = (to: Which): void => {
      wanted = to;
      update();
      element.querySelector<HTMLElement>("[aria-label=Errors] [aria-pressed=true]")?.focus();
    };
    const options = { details, which, dark: dark(), turned, actions: actions(row, round) };
    const top = element.scrollTop;
    element.replaceChildren(...errorsOf(points, row, options, round));
    element.scrollTop = top;
  };
  const update = (): void => {
    const round = filling();
    const row = shown;
    if (row < 0) {
      element.replaceChildren(el("p.onnx-nb-dim", points.count === 0 ? "" : "Choose a point to see its errors."));
      return;
    }
    const which = points.state(wanted, row) === STATE.UNKNOWN ? points.best(row) : wanted;
    const known = loaded.get(row);
    if (known !== undefined || points.state(which, row) === STATE.EQUAL) fill(row, known ?? {}, round);
    else void request(row, round);
  };
  const request = async (row: number, round: AbortSignal): Promise<void> => {
    const timers = [
      setTimeout(() => fill(row, null, round), PATIENCE_MS),
      setTimeout(() => fill(row, SILENCE, round), SILENCE_MS),
    ];
    const stop = (): void => timers.forEach(clearTimeout);
    onAbort(round, stop);
    try {
      const details = await load(row, round);
      loaded.set(row, details);
      stop();
      if (!round.aborted) fill(row, details, round);
    } catch (error) {
      stop();
      const { message, advice } = failure(error);
      if (!round.aborted) fill(row, `${message} ${advice}`.trim(), round);
    }
  };
  update();
  return {
    element,
    show(row) {
      shown = row;
      element.scrollTop = 0;
      update();
    },
    redraw: update,
  };
}
