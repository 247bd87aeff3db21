/**
 * The browser's end of `widgets/_channel.py`: each request is a promise that the kernel settles exactly once.
 * Only `on`, `off` and `send` of the widget model are used, so that any anywidget host will do.
 */

import { bytesOf } from "./codec.ts";

export interface Comm {
  on(event: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  off(event: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  send(content: unknown): void;
}

export interface Reply {
  readonly value: unknown;
  readonly buffers: readonly DataView[];
}

/** Receives the progress of a request, from 0 to 1. */
export type Progress = (fraction: number, message: string) => void;

export interface RequestOptions {
  readonly signal?: AbortSignal;
  readonly progress?: Progress | undefined;
}

/** An error of the kernel, with advice. */
export class KernelError extends Error {
  readonly advice: string;

  constructor(type: string, message: string, advice: string) {
    super(message);
    this.name = type;
    this.advice = advice;
  }
}

const GONE = "The kernel that this was made by is gone.";

interface Pending {
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
  readonly progress: Progress | undefined;
}

interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly cancelled?: boolean;
  readonly progress?: { readonly fraction: number; readonly message: string };
  readonly error?: { readonly type: string; readonly message: string; readonly advice: string };
}

export class Channel {
  readonly #comm: Comm;
  readonly #pending = new Map<number, Pending>();
  // two browser tabs may share one widget in the kernel: a random start keeps their ids apart
  #next = Math.floor(Math.random() * 2 ** 40);

  constructor(comm: Comm, signal: AbortSignal) {
    this.#comm = comm;
    const receive = (content: unknown, buffers: DataView[]): void => this.#receive(content, buffers);
    comm.on("msg:custom", receive);
    signal.addEventListener("abort", () => {
      comm.off("msg:custom", receive);
      for (const { reject } of this.#pending.values()) reject(new DOMException("the view was closed", "AbortError"));
    });
  }

  /** Asks the kernel; aborting the signal tells the kernel to stop and rejects immediately. */
  async request(verb: string, args: Readonly<Record<string, unknown>>, options: RequestOptions = {}): Promise<Reply> {
    const { signal, progress } = options;
    if (signal?.aborted) throw new DOMException("cancelled", "AbortError");
    const id = this.#next++;
    const settled = new AbortController();
    try {
      return await new Promise((resolve, reject) => {
        this.#pending.set(id, { resolve, reject, progress });
        const cancel = (): void => {
          this.#send({ id, cancel: true });
          reject(new DOMException("cancelled", "AbortError"));
        };
        signal?.addEventListener("abort", cancel, { signal: settled.signal });
        if (!this.#send({ id, verb, args })) reject(new KernelError("KernelGone", GONE, "Run the cell again."));
      });
    } finally {
      this.#pending.delete(id);
      settled.abort();
    }
  }

  /** Requests plain data. */
  async value<T>(verb: string, args: Readonly<Record<string, unknown>>, options?: RequestOptions): Promise<T> {
    return (await this.request(verb, args, options)).value as T;
  }

  /** Requests bytes. */
  async bytes(verb: string, args: Readonly<Record<string, unknown>>, options?: RequestOptions): Promise<Uint8Array> {
    const [buffer] = (await this.request(verb, args, options)).buffers;
    if (buffer === undefined) throw new Error(`the kernel sent no data for '${verb}'`);
    return bytesOf(buffer);
  }

  /** Returns false if the kernel of the widget no longer exists: it was restarted, or the widget closed. */
  #send(content: unknown): boolean {
    try {
      this.#comm.send(content);
      return true;
    } catch {
      return false;
    }
  }

  #receive(content: unknown, buffers: DataView[]): void {
    if (typeof content !== "object" || content === null || !("id" in content)) return;
    const answer = content as Answer;
    const pending = this.#pending.get(answer.id);
    if (pending === undefined) return;
    if (answer.progress !== undefined) {
      pending.progress?.(answer.progress.fraction, answer.progress.message);
      return;
    }
    if (answer.error !== undefined) {
      pending.reject(new KernelError(answer.error.type, answer.error.message, answer.error.advice));
    } else if (answer.cancelled) pending.reject(new DOMException("cancelled", "AbortError"));
    else pending.resolve({ value: answer.value, buffers });
  }
}
