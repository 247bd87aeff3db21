import { describe, expect, it } from "vitest";
import { Channel, type Comm, KernelError } from "./channel.ts";

type Listener = Parameters<Comm["on"]>[1];

class Kernel implements Comm {
  readonly sent: { id: number; verb?: string; args?: unknown; cancel?: boolean }[] = [];
  readonly listeners = new Set<Listener>();
  on(_event: "msg:custom", listener: Listener): void {
    this.listeners.add(listener);
  }
  off(_event: "msg:custom", listener: Listener): void {
    this.listeners.delete(listener);
  }
  send(content: unknown): void {
    this.sent.push(content as Kernel["sent"][number]);
  }
  answer(content: object, buffers: DataView[] = []): void {
    for (const listener of this.listeners) listener(content, buffers);
  }
}

function open(): { kernel: Kernel; channel: Channel; closing: AbortController } {
  const kernel = new Kernel();
  const closing = new AbortController();
  return { kernel, channel: new Channel(kernel, closing.signal), closing };
}

const idOf = (kernel: Kernel, at = 0): number => kernel.sent[at]?.id ?? -1;

describe("a request", () => {
  it("is settled by the reply with its id, in any order", async () => {
    const { kernel, channel } = open();
    const first = channel.request("plan", { outputs: ["a"] });
    const second = channel.request("inspect", {});
    const buffer = new DataView(new ArrayBuffer(4));
    kernel.answer({ id: idOf(kernel, 1), value: 2 }, [buffer]);
    kernel.answer({ id: idOf(kernel, 0), value: 1 });
    expect((await first).value).toBe(1);
    expect((await second).buffers).toEqual([buffer]);
    expect(kernel.sent[0]).toMatchObject({ verb: "plan", args: { outputs: ["a"] } });
  });

  it("rejects with the kernel's error and its advice", async () => {
    const { kernel, channel } = open();
    const request = channel.request("extract", {});
    kernel.answer({ id: idOf(kernel), error: { type: "ExtractionError", message: "no", advice: "do this" } });
    const error = await request.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(KernelError);
    expect(error).toMatchObject({ name: "ExtractionError", message: "no", advice: "do this" });
  });

  it("reports progress without being settled", async () => {
    const { kernel, channel } = open();
    const seen: number[] = [];
    const request = channel.request("extract", {}, { progress: (fraction) => seen.push(fraction) });
    kernel.answer({ id: idOf(kernel), progress: { fraction: 0.5, message: "half" } });
    kernel.answer({ id: idOf(kernel), value: null });
    await request;
    expect(seen).toEqual([0.5]);
  });

  it("tells the kernel to stop when aborted, and ignores a late reply", async () => {
    const { kernel, channel } = open();
    const abort = new AbortController();
    const request = channel.request("plan", {}, { signal: abort.signal });
    abort.abort();
    await expect(request).rejects.toMatchObject({ name: "AbortError" });
    expect(kernel.sent.at(-1)).toEqual({ id: idOf(kernel), cancel: true });
    kernel.answer({ id: idOf(kernel), value: "late" });
  });

  it("reports that the kernel is gone if sending fails, and cancels silently", async () => {
    const { kernel, channel } = open();
    const abort = new AbortController();
    const before = channel.request("drill", {}, { signal: abort.signal });
    kernel.send = () => {
      throw new Error("Cannot send");
    };
    await expect(channel.request("detail", {})).rejects.toMatchObject({
      message: "The kernel that this was made by is gone.",
      advice: "Run the cell again.",
    });
    abort.abort();
    await expect(before).rejects.toMatchObject({ name: "AbortError" });
  });

  it("ends when the view is closed", async () => {
    const { kernel, channel, closing } = open();
    const request = channel.request("plan", {});
    closing.abort();
    await expect(request).rejects.toMatchObject({ name: "AbortError" });
    expect(kernel.listeners.size).toBe(0);
  });
});
