/**
 * A strip for what the kernel works on at a person's wish, one piece at a time: how far it is, with Cancel, then what
 * came of it or went wrong.
 */

import { failure } from "../protocol/host.ts";
import { button, copyButton, el, elide, fillings } from "./dom.ts";
import { createProgress } from "./progress.ts";

/** @param done the part that is done, null if it is not known */
export type Told = (done: number | null, message: string) => void;

export interface Task {
  readonly element: HTMLElement;
  /**
   * Begins a piece of work; nothing if one is going on.
   * @param text what is worked on, until the work itself says more
   * @param work gives what to say of it, "" for nothing
   */
  run(text: string, work: (signal: AbortSignal, told: Told) => Promise<string>): void;
  /** what went wrong */
  fail(error: unknown): void;
}

/** Work that takes longer is shown. */
const PATIENCE_MS = 150;
/** A kernel that says nothing for so long is busy, or gone. */
export const SILENCE_MS = 5000;
export const SILENCE = "The kernel has said nothing for a while: it is busy, or was restarted.";

/**
 * @param changed hears when work begins and ends
 * @param say reads a sentence out
 */
export function createTask(changed: (busy: boolean) => void, say: (text: string) => void, signal: AbortSignal): Task {
  const element = el("div", { class: "onnx-nb-strip onnx-nb-task" });
  element.hidden = true;
  const filling = fillings(signal);
  let working: AbortController | null = null;
  signal.addEventListener("abort", () => working?.abort(), { once: true });

  const fill = (role: "status" | "alert", ...parts: Node[]): void => {
    element.hidden = parts.length === 0;
    element.classList.toggle("onnx-nb-error", role === "alert");
    element.setAttribute("role", role);
    element.replaceChildren(...parts);
  };
  const close = (round: AbortSignal): HTMLElement =>
    button("Dismiss", () => fill("status"), round, { class: "onnx-nb-small" });
  const tell = (message: string): void => {
    const round = filling();
    if (message === "") fill("status");
    else fill("status", el("span", { class: "onnx-nb-message-text" }, elide(message, 600)), close(round));
  };
  const fail = (error: unknown): void => {
    const round = filling();
    const { message, advice } = failure(error);
    fill(
      "alert",
      el(
        "span",
        { class: "onnx-nb-message-text" },
        el("span", { class: "onnx-nb-message", title: message.slice(0, 4000) }, elide(message, 600)),
        " ",
        el("span", { class: "onnx-nb-advice" }, elide(advice, 400)),
      ),
      copyButton(() => `${message}\n${advice}`.trim(), round),
      close(round),
    );
  };

  return {
    element,
    fail,
    run(text, work) {
      if (working !== null || signal.aborted) return;
      const round = new AbortController();
      working = round;
      const shown = filling();
      let silence: ReturnType<typeof setTimeout> | undefined;
      const end = (then: () => void): void => {
        clearTimeout(patience);
        clearTimeout(silence);
        if (working !== round) return;
        working = null;
        if (signal.aborted) return;
        then();
        changed(false);
      };
      const progress = createProgress(
        text,
        () => {
          // the kernel may take its time to stop; whoever cancels need not wait for it
          round.abort();
          end(() => tell(""));
          say("Cancelled");
        },
        shown,
      );
      progress.tell(null, text);
      const patience = setTimeout(() => fill("status", progress.element), PATIENCE_MS);
      const listen = (): void => {
        clearTimeout(silence);
        silence = setTimeout(() => progress.tell(null, SILENCE), SILENCE_MS);
      };
      fill("status");
      changed(true);
      listen();
      work(round.signal, (done, message) => {
        if (working !== round) return;
        listen();
        progress.tell(done, message);
      }).then(
        (message) => end(() => tell(message)),
        (error: unknown) => end(() => fail(error)),
      );
    },
  };
}
