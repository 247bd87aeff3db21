/**
 * Long work: a task that runs one piece of work at a time and can be cancelled, a row that shows its progress, and
 * buttons for actions of the kernel.
 */

import { failure } from "../protocol/host.ts";
import { button, copyButton, createAnnouncer, el, elide, fillings, onAbort, type Properties } from "./dom.ts";

/** @param done fraction of the work, null if it is not known */
export type OnProgress = (share: number | null, message: string) => void;

interface TaskEvents<T> {
  readonly progress?: OnProgress;
  done(result: T): void;
  fail(error: unknown): void;
  /** after `done` or `fail`, or on cancellation */
  onEnd?(): void;
}

/** Runs one piece of work at a time; ignores the result of cancelled work. */
export class Task {
  readonly #signal: AbortSignal;
  #round: AbortController | null = null;
  #onEnd: (() => void) | undefined;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    onAbort(signal, () => this.#round?.abort());
  }

  get busy(): boolean {
    return this.#round !== null;
  }

  /** Starts a piece of work; does nothing while another one is running. */
  async run<T>(work: (signal: AbortSignal, progress: OnProgress) => Promise<T>, events: TaskEvents<T>): Promise<void> {
    if (this.#round !== null || this.#signal.aborted) return;
    const round = new AbortController();
    this.#round = round;
    this.#onEnd = events.onEnd;
    const isRunning = (): boolean => this.#round === round && !this.#signal.aborted;
    const progress: OnProgress = (share, message) => {
      if (isRunning()) events.progress?.(share, message);
    };
    try {
      const result = await work(round.signal, progress);
      if (isRunning()) events.done(result);
    } catch (error) {
      if (isRunning()) events.fail(error);
    }
    if (this.#round === round) this.#end();
  }

  /** Stops the work. The kernel may take a while to stop; nothing waits for it. */
  cancel(): void {
    this.#round?.abort();
    this.#end();
  }

  #end(): void {
    this.#round = null;
    if (!this.#signal.aborted) this.#onEnd?.();
  }
}

/** Creates a row that shows the progress of work, with a cancel button. */
export function createProgress(label: string, cancel: () => void, signal: AbortSignal) {
  const text = el("span.onnx-nb-dim");
  const bar = el("progress", { max: 1, "aria-label": label });
  const show: OnProgress = (share, message) => {
    text.textContent = elide(message, 160);
    if (share === null) bar.removeAttribute("value");
    else bar.value = share;
  };
  return { element: el("div.onnx-nb-row.onnx-nb-reading", text, bar, button("Cancel", cancel, signal)), show };
}

/** Returns a sentence about an error, in place of the content. */
export function failureNote(error: unknown): HTMLElement {
  return el("p.onnx-nb-dim", elide(failure(error).message, 300));
}

/** Returns the parts of a row that shows an error and can be dismissed. */
export function errorParts({ message, advice }: ReturnType<typeof failure>, dismiss: () => void, signal: AbortSignal) {
  const text = el("span.onnx-nb-message", { title: message.slice(0, 4000) }, elide(message, 900));
  return [
    el("span.onnx-nb-message-text", text, " ", el("span.onnx-nb-advice", elide(advice, 400))),
    copyButton(() => `${message}\n${advice}`.trim(), signal),
    button("Dismiss", dismiss, signal, { class: "onnx-nb-small" }),
  ];
}

export type TaskBar = ReturnType<typeof createTaskBar>;

/** Returns the announcements of a panel, and a task bar whose work the panel's actions wait for. */
export function createPanelTask(root: HTMLElement, signal: AbortSignal) {
  const { element: live, announce } = createAnnouncer();
  /** Marks buttons as disabled without `disabled`, which would take the keyboard away. */
  const enable = (busy: boolean): void => {
    for (const element of root.querySelectorAll(".onnx-nb-act")) element.setAttribute("aria-disabled", String(busy));
  };
  return { live, announce, task: createTaskBar(enable, announce, signal) };
}

/** Milliseconds after which work is shown. */
const PATIENCE_MS = 150;

/**
 * Returns a banner for the work of the kernel.
 *
 * @param changed called when work starts and ends
 * @param announce announces a sentence to screen readers
 */
export function createTaskBar(changed: (busy: boolean) => void, announce: (text: string) => void, signal: AbortSignal) {
  const element = el("div.onnx-nb-strip.onnx-nb-task", { hidden: true });
  const filling = fillings(signal);
  const task = new Task(signal);

  const fill = (role: "status" | "alert", ...parts: Node[]): void => {
    element.hidden = parts.length === 0;
    element.classList.toggle("onnx-nb-error", role === "alert");
    element.setAttribute("role", role);
    element.replaceChildren(...parts);
  };
  const dismiss = (): void => fill("status");
  const report = (message: string): void => {
    const round = filling();
    const close = button("Dismiss", dismiss, round, { class: "onnx-nb-small" });
    if (message === "") dismiss();
    else fill("status", el("span.onnx-nb-message-text", elide(message, 600)), close);
  };
  const fail = (error: unknown): void => fill("alert", ...errorParts(failure(error), dismiss, filling()));

  return {
    element,
    get busy(): boolean {
      return task.busy;
    },
    fail,
    /**
     * Starts a piece of work; does nothing while another one is running.
     *
     * @param text name of the work, until the work reports a message
     * @param work returns the message to show, "" for none
     */
    run(text: string, work: (signal: AbortSignal, progress: OnProgress) => Promise<string>): void {
      if (task.busy || signal.aborted) return;
      const cancel = (): void => {
        task.cancel();
        report("");
        announce("Cancelled");
      };
      const progress = createProgress(text, cancel, filling());
      fill("status");
      progress.show(null, text);
      const patience = setTimeout(() => fill("status", progress.element), PATIENCE_MS);
      changed(true);
      const finish = (): void => {
        clearTimeout(patience);
        changed(false);
      };
      void task.run(work, { progress: progress.show, done: report, fail, onEnd: finish });
    },
  };
}

/** Buttons for actions of the kernel: they cannot be pressed while it is busy or does not answer. */
export class KernelButtons {
  readonly #buttons = new Map<HTMLButtonElement, string>();
  #disabled = false;
  /** why there is no kernel; null if there is one */
  #reason: string | null = null;

  /** Returns a button; `hint` is its tooltip while the kernel answers. */
  create(
    text: string,
    press: () => void,
    signal: AbortSignal,
    { hint = "", ...properties }: Properties & { readonly hint?: string },
  ): HTMLButtonElement {
    const element = button(text, press, signal, properties);
    this.#buttons.set(element, hint);
    onAbort(signal, () => this.#buttons.delete(element));
    this.refresh();
    return element;
  }

  /** @param reason why there is no kernel; null if there is one */
  update(busy: boolean, reason: string | null): void {
    this.#disabled = busy || reason !== null;
    this.#reason = reason;
    this.refresh();
  }

  /** Enables or disables all buttons again, overriding other changes. */
  refresh(): void {
    for (const [element, hint] of this.#buttons) {
      element.disabled = this.#disabled;
      element.title = this.#reason ?? hint;
    }
  }
}
