import { describe, expect, it, vi } from "vitest";
import { Channel, type Comm, KernelError } from "./channel.ts";

type Listener = Parameters<Comm["on"]>[1];

class Kernel implements Comm {
  readonly sent: { id: number; verb?: string; args?: unknown; cancel?: boolean }[] = [];
  readonly listeners = new Set<Listener>();
  widget_manager: Comm["widget_manager"];
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
    const second = channel.request("discard", {});
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

  it("ends, with those before it, if the kernel is gone, which watchers hear", async () => {
    const { kernel, channel, closing } = open();
    const heard: boolean[] = [];
    channel.watch((_, live) => heard.push(live), closing.signal);
    const before = channel.request("drill", { name: "a" }).catch((error: unknown) => error);
    kernel.send = () => {
      throw new Error("Cannot send");
    };
    await expect(channel.request("detail", { row: 0 })).rejects.toMatchObject({
      message: "The kernel that this was made by is gone.",
      advice: "Run the cell again, or reopen the file.",
    });
    expect(await before).toMatchObject({ name: "KernelGone" });
    expect(heard).toEqual([false]);
    expect(channel.live).toBe(false);
  });

  it.each(["restarting", "dead", undefined])("hears at once that a kernel ended: %s", async (status) => {
    const slots = new Set<(sender: unknown, status: string) => void>();
    const signal = { connect: (slot: never) => slots.add(slot), disconnect: (slot: never) => slots.delete(slot) };
    const kernel = new Kernel();
    kernel.widget_manager = { kernel: { status: "idle", statusChanged: signal, disposed: signal } };
    const closing = new AbortController();
    const channel = new Channel(kernel, closing.signal);
    const before = channel.request("picture", { svg: "" }).catch((error: unknown) => error);
    const say = (each: string): void => {
      for (const slot of slots) slot(kernel, each);
    };
    for (const each of ["busy", "idle", "unknown"]) say(each); // "unknown" as while the page connects again
    expect(channel.live).toBe(true);
    say(status as string);
    expect(await before).toMatchObject({ name: "KernelGone" });
    expect(channel.live).toBe(false);
    closing.abort();
    expect(slots.size).toBe(0);
  });

  it("sends again what was lost with the connection", async () => {
    let connected = (_sender: unknown, _status: string): void => undefined;
    const signal = { connect: (slot: typeof connected) => (connected = slot), disconnect: () => undefined };
    const kernel = new Kernel();
    kernel.widget_manager = { kernel: { status: "idle", connectionStatusChanged: signal } };
    const channel = new Channel(kernel, new AbortController().signal);
    const reconnected = vi.fn();
    channel.onReconnect = reconnected;
    const lost = channel.value("plan", { outputs: ["y"] });
    connected(kernel, "connecting");
    expect(kernel.sent).toHaveLength(1);
    connected(kernel, "connected");
    expect(kernel.sent.map(({ verb }) => verb)).toEqual(["plan", "ping"]);
    kernel.answer({ id: idOf(kernel, 1) });
    await vi.waitFor(() => expect(reconnected).toHaveBeenCalledOnce());
    expect(kernel.sent[2]).toEqual(kernel.sent[0]);
    kernel.answer({ id: idOf(kernel), value: "planned" });
    expect(await lost).toBe("planned");
  });

  it("waits for a kernel that does not listen, says so, and is answered then", async () => {
    vi.useFakeTimers();
    const { kernel, channel, closing } = open();
    const heard: string[] = [];
    channel.watch((waiting) => heard.push(waiting), closing.signal);
    kernel.widget_manager = { kernel: { status: "busy" } };
    const [first, second] = [channel.request("discard", {}), channel.request("plan", {})];
    await vi.advanceTimersByTimeAsync(600);
    expect(kernel.sent.map(({ verb }) => verb)).toEqual(["discard", "plan", "ping"]);
    expect(heard).toEqual([]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(heard).toEqual(["Waiting for the running cell…"]);
    for (const at of [0, 1, 2]) kernel.answer({ id: idOf(kernel, at), value: at });
    expect([(await first).value, (await second).value]).toEqual([0, 1]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(heard).toEqual(["Waiting for the running cell…", ""]);
    expect(kernel.sent).toHaveLength(3);
    vi.useRealTimers();
  });

  it("that takes long in a kernel that listens waits for nothing", async () => {
    vi.useFakeTimers();
    const { kernel, channel, closing } = open();
    const heard: string[] = [];
    channel.watch((waiting) => heard.push(waiting), closing.signal);
    const send = kernel.send.bind(kernel);
    kernel.send = (content) => {
      send(content);
      const { id, verb } = content as Kernel["sent"][number];
      if (verb === "ping") queueMicrotask(() => kernel.answer({ id, value: null }));
    };
    const request = channel.request("worst", {});
    await vi.advanceTimersByTimeAsync(20_000);
    kernel.answer({ id: idOf(kernel), value: [] });
    await request;
    expect(heard).toEqual([]);
    expect(kernel.sent.length).toBeLessThan(8);
    vi.useRealTimers();
  });

  it("is repeated as text if the host lost the buffers of the reply, and later ones ask for text", async () => {
    const { kernel, channel } = open();
    const request = channel.bytes("columns", { part: "columns" });
    const id = idOf(kernel);
    kernel.answer({ id, value: null, buffers: 1 });
    expect(kernel.sent[1]).toEqual({ id, verb: "columns", args: { part: "columns" }, text: true });
    kernel.answer({ id, value: null, base64: [btoa("\u0001\u00ff")] });
    expect(await request).toEqual(new Uint8Array([1, 255]));
    const next = channel.value("discard", {});
    expect(kernel.sent[2]).toMatchObject({ verb: "discard", text: true });
    kernel.answer({ id: idOf(kernel, 2), value: 3 });
    expect(await next).toBe(3);
  });

  it("ends when the view is closed", async () => {
    const { kernel, channel, closing } = open();
    const request = channel.request("plan", {});
    closing.abort();
    await expect(request).rejects.toMatchObject({ name: "AbortError" });
    expect(kernel.listeners.size).toBe(0);
  });
});
