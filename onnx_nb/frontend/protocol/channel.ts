/**
 * The browser's end of `widgets/_channel.py`: each request is a promise that the kernel settles exactly once.
 * `on`, `off` and `send` of the widget model suffice, so that any anywidget host will do.
 *
 * A kernel without subshells receives nothing while a cell runs. Requests wait for it, in order: a ping, which passes
 * long requests in the kernel, finds out.
 */

import { type Kernel, watchKernel } from "../hosts/kernel.ts";
import { bytesOf, bytesOfText } from "./codec.ts";
import type { Verbs } from "./wire.ts";

export interface Comm {
  on(event: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  off(event: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  send(content: unknown): void;
  /** in JupyterLab it has a kernel */
  readonly widget_manager?: { readonly kernel?: Kernel | null } | undefined;
}

/** Arguments of a verb. */
type Args<V extends keyof Verbs> = Verbs[V][0];

/** Reply of a verb. */
type Value<V extends keyof Verbs> = Verbs[V][1];

export interface Reply<V extends keyof Verbs = keyof Verbs> {
  readonly value: Value<V>;
  readonly buffers: readonly DataView[];
}

/** Receives the progress of a request, from 0 to 1. */
export type Progress = (fraction: number, message: string) => void;

interface RequestOptions {
  readonly signal?: AbortSignal;
  readonly progress?: Progress | undefined;
}

/** An error of the kernel, with advice. */
export class KernelError extends Error {
  readonly advice: string;
  /** name of the node in the way, or of what it makes; "" for none */
  readonly node: string;

  constructor(type: string, message: string, advice: string, node = "") {
    super(message);
    this.name = type;
    this.advice = advice;
    this.node = node;
  }
}

const LOSS = "The kernel that this was made by is gone.";
const REMEDY = "Run the cell again, or reopen the file.";
/** Why nothing can be asked of a kernel that is gone. */
export const NO_KERNEL = `${LOSS} ${REMEDY}`;

/** Milliseconds without news of a request, and then of a ping, after which the kernel counts as not listening. */
const SILENCE_MS = 400;
/** Milliseconds until a kernel that listens, but has not replied, is asked again: it may have been restarted. */
const AGAIN_MS = 5000;
const CELL = "Waiting for the running cell…";
const KERNEL = "Waiting for the kernel: it does not answer…";

interface OpenRequest {
  readonly verb: string;
  readonly args: object;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
  readonly progress: Progress | undefined;
  /** called at news of the request */
  readonly onNews: () => void;
}

interface Answer {
  readonly id: number;
  readonly value?: unknown;
  /** number of buffers that the kernel sent along */
  readonly buffers?: number;
  /** the buffers, if the request asked for text */
  readonly base64?: readonly string[];
  readonly cancelled?: boolean;
  readonly progress?: { readonly fraction: number; readonly message: string };
  readonly error?: { readonly type: string; readonly message: string; readonly advice: string; readonly node?: string };
}

const viewOf = (text: string): DataView => new DataView(bytesOfText(text).buffer);

/** Called with a sentence while requests wait for the kernel, "" otherwise; `live`: there is a kernel. */
type Watcher = (notice: string, live: boolean) => void;

export class Channel {
  readonly #comm: Comm;
  readonly #requests = new Map<number, OpenRequest>();
  readonly #watchers = new Set<Watcher>();
  // two browser tabs may share one widget in the kernel: a random start keeps their ids apart
  #next = Math.floor(Math.random() * 2 ** 40);
  #live = true;
  /** called after the connection was lost and made again */
  onReconnect: () => unknown = () => undefined;
  #notice = "";
  #pinging = false;
  /** whether buffers have to come as text, because the host loses those of messages */
  #text = false;

  constructor(comm: Comm, signal: AbortSignal) {
    this.#comm = comm;
    const receive = (content: unknown, buffers?: DataView[]): void => this.#receive(content, buffers ?? []);
    comm.on("msg:custom", receive);
    const events = { onLoss: () => this.lose(), onConnect: () => this.#live && void this.#resume() };
    watchKernel(comm.widget_manager?.kernel, events, signal);
    signal.addEventListener("abort", () => {
      comm.off("msg:custom", receive);
      for (const { reject } of this.#requests.values()) reject(new DOMException("the view was closed", "AbortError"));
    });
  }

  /** false once the kernel is known to be gone */
  get live(): boolean {
    return this.#live;
  }

  watch(watcher: Watcher, signal: AbortSignal): void {
    this.#watchers.add(watcher);
    signal.addEventListener("abort", () => this.#watchers.delete(watcher), { once: true });
    if (this.#notice !== "" || !this.#live) watcher(this.#notice, this.#live);
  }

  /** Ends all requests, and those to come, because the kernel is gone. */
  lose(): void {
    this.#turn("", false);
    for (const { reject } of this.#requests.values()) reject(new KernelError("KernelGone", LOSS, REMEDY));
  }

  /** Asks the kernel; aborting the signal tells the kernel to stop and rejects immediately. */
  async request<V extends keyof Verbs>(verb: V, args: Args<V>, options: RequestOptions = {}): Promise<Reply<V>> {
    const { signal, progress } = options;
    if (signal?.aborted) throw new DOMException("cancelled", "AbortError");
    const id = this.#next++;
    const end = new AbortController();
    let silence: ReturnType<typeof setTimeout> | undefined;
    const restartSilence = (): void => {
      clearTimeout(silence);
      silence = setTimeout(() => void this.#ping(), SILENCE_MS);
    };
    restartSilence();
    try {
      return await new Promise<Reply<V>>((resolve, reject) => {
        const answered = resolve as (reply: Reply) => void;
        this.#requests.set(id, { verb, args, resolve: answered, reject, progress, onNews: restartSilence });
        const cancel = (): void => {
          this.#send({ id, cancel: true });
          reject(new DOMException("cancelled", "AbortError"));
        };
        signal?.addEventListener("abort", cancel, { signal: end.signal });
        this.#ask(id, verb, args);
      });
    } finally {
      clearTimeout(silence);
      this.#requests.delete(id);
      end.abort();
    }
  }

  /** Finds out whether the kernel listens, and when it does again. */
  async #ping(): Promise<void> {
    if (this.#pinging) return;
    this.#pinging = true;
    const timer = setTimeout(() => {
      this.#turn(this.#comm.widget_manager?.kernel?.status === "busy" ? CELL : KERNEL, true);
    }, SILENCE_MS);
    try {
      await this.request("ping", {});
      this.#turn("", true);
      if (this.#requests.size > 0) setTimeout(() => this.#requests.size > 0 && void this.#ping(), AGAIN_MS);
    } catch {
      // the kernel is gone, or the view closed: all requests end
    } finally {
      clearTimeout(timer);
      this.#pinging = false;
    }
  }

  /** Sends again what may have been lost with the connection; the kernel ignores what it is working on. */
  async #resume(): Promise<void> {
    try {
      await this.request("ping", {}); // what the kernel had to say comes before the reply
    } catch {
      return;
    }
    for (const [id, { verb, args }] of this.#requests) this.#ask(id, verb, args);
    this.onReconnect();
  }

  #turn(notice: string, live: boolean): void {
    if (notice === this.#notice && live === this.#live) return;
    this.#notice = notice;
    this.#live = live;
    for (const watcher of this.#watchers) watcher(notice, live);
  }

  /** Requests plain data. */
  async value<V extends keyof Verbs>(verb: V, args: Args<V>, options?: RequestOptions): Promise<Value<V>> {
    return (await this.request(verb, args, options)).value;
  }

  /** Requests bytes. */
  async bytes<V extends keyof Verbs>(verb: V, args: Args<V>, options?: RequestOptions): Promise<Uint8Array> {
    const [buffer] = (await this.request(verb, args, options)).buffers;
    if (buffer === undefined) throw new Error(`the kernel sent no data for '${verb}'`);
    return bytesOf(buffer);
  }

  #ask(id: number, verb: string, args: object): void {
    if (!this.#send({ id, verb, args, ...(this.#text && { text: true }) })) this.lose();
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
    const request = this.#requests.get(answer.id);
    if (request === undefined) return;
    request.onNews();
    if (answer.progress !== undefined) {
      request.progress?.(answer.progress.fraction, answer.progress.message);
      return;
    }
    if (answer.error !== undefined) {
      const { type, message, advice, node } = answer.error;
      request.reject(new KernelError(type, message, advice, node));
    } else if (answer.cancelled) request.reject(new DOMException("cancelled", "AbortError"));
    else if ((answer.buffers ?? 0) > buffers.length) {
      this.#text = true;
      this.#ask(answer.id, request.verb, request.args);
    } else
      request.resolve({ value: answer.value as Value<keyof Verbs>, buffers: answer.base64?.map(viewOf) ?? buffers });
  }
}
