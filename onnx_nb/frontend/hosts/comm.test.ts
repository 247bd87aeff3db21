import { describe, expect, it, vi } from "vitest";
import { type CommModel, hearKernel, type ModelReference, release } from "./comm.ts";

/** Returns a model of anywidget and ipywidgets, which passes nothing on before `ready` and nothing if that fails. */
function late(ready: Promise<void>): {
  model: ModelReference;
  taken: unknown[];
  sent: unknown[];
  say: (message: unknown) => unknown;
} {
  const taken: unknown[] = [];
  const sent: unknown[] = [];
  class FromIpywidgets {
    async _handle_comm_msg(message: unknown): Promise<void> {
      taken.push(message);
    }
  }
  class FromAnywidget extends FromIpywidgets {
    override async _handle_comm_msg(message: unknown): Promise<void> {
      await ready;
      await super._handle_comm_msg(message);
    }
  }
  let say: (message: unknown) => unknown;
  const comm = {
    on_msg: (heard: (message: unknown) => unknown) => {
      say = heard;
    },
    send: (content: unknown) => sent.push(content),
  };
  const raw: CommModel = Object.assign(new FromAnywidget(), { comm });
  say = raw._handle_comm_msg.bind(raw);
  const manager = { get_model: vi.fn((id: string) => (id === "mine" ? Promise.resolve(raw) : Promise.reject())) };
  const model = { get: () => "mine", widget_manager: manager } as unknown as ModelReference;
  return { model, taken, sent, say: (message) => say(message) };
}

describe("hearKernel", () => {
  it("changes nothing if anywidget connected the kernel in time", async () => {
    const { model, taken, sent, say } = late(Promise.resolve());
    await hearKernel(model);
    await say("hello");
    expect(taken.slice(1)).toEqual(["hello"]);
    expect(sent).toEqual([]);
  });

  it("connects a kernel that anywidget gave up, and requests missed changes once", async () => {
    const ready = Promise.reject(new Error("Failed to initialize model."));
    const { model, taken, sent, say } = late(ready);
    await expect(say("lost")).rejects.toThrow("Failed");
    await hearKernel(model);
    await hearKernel(model);
    await say("hello");
    expect(taken).toEqual(["hello"]);
    expect(sent).toEqual([{ method: "request_state" }]);
  });

  it("does nothing without ipywidgets", async () => {
    await hearKernel({ get: () => "" } as unknown as ModelReference);
    const model = { get: () => "", widget_manager: { get_model: async () => ({ get: () => "" }) } };
    expect(await hearKernel(model as unknown as ModelReference)).toBe(true); // as marimo's, which has no comm
  });
});

describe("release", () => {
  it("has ipywidgets send what waits for a reply that was lost, and nothing else", async () => {
    const status = vi.fn();
    const raw = { _pending_msgs: 2, _handle_status: status };
    const model = { get: () => "mine", widget_manager: { get_model: () => Promise.resolve(raw) } };
    await release(model as unknown as ModelReference);
    expect(raw._pending_msgs).toBe(1); // the idle kernel takes it away
    expect(status).toHaveBeenCalledExactlyOnceWith({ content: { execution_state: "idle" } });
    raw._pending_msgs = 0;
    await release(model as unknown as ModelReference);
    await release({ get: () => "" } as unknown as ModelReference);
    expect(status).toHaveBeenCalledOnce();
  });
});
