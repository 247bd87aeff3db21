// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createLayoutScheduler } from "./sceneloader.ts";
import { buttonIn } from "./testing.ts";

let closing: AbortController;
let laying: ReturnType<typeof createLayoutScheduler>;
const cancelled = vi.fn();
const failed = vi.fn();
const bar = (): HTMLProgressElement => laying.element.querySelector("progress") as HTMLProgressElement;

/** Reports its progress every `ms`. */
function* slow(steps: number, ms: number): Generator<number, string> {
  for (let step = 0; step < steps; step++) {
    vi.setSystemTime(Date.now() + ms);
    vi.spyOn(performance, "now").mockReturnValue(Date.now());
    yield step / steps;
  }
  return "there";
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
  vi.spyOn(performance, "now").mockReturnValue(Date.now());
  closing = new AbortController();
  laying = createLayoutScheduler(cancelled, closing.signal);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

describe("a layout", () => {
  it("that is short finishes immediately", () => {
    const there = vi.fn();
    laying.run(slow(5, 5), there, failed);
    expect(there).toHaveBeenCalledExactlyOnceWith("there", false);
    expect(laying.busy).toBe(false);
  });

  it("of a view that shows nothing yet may take longer", () => {
    const there = vi.fn();
    laying.run(slow(20, 10), there, failed, true);
    expect(there).toHaveBeenCalledExactlyOnceWith("there", false);
  });

  it("that is long lets the page respond in between, and shows its progress", () => {
    const there = vi.fn();
    laying.run(slow(100, 10), there, failed);
    expect(laying.busy).toBe(true);
    expect(laying.element.hidden).toBe(true); // not yet
    let tasks = 0;
    while (laying.busy && tasks < 200) {
      const before = bar().value;
      vi.advanceTimersToNextTimer();
      tasks++;
      if (laying.busy) expect(bar().value).toBeGreaterThan(before);
      if (tasks === 30) expect(laying.element.hidden).toBe(false);
    }
    expect(tasks).toBeGreaterThan(40);
    expect(there).toHaveBeenCalledExactlyOnceWith("there", true);
    expect(laying.element.hidden).toBe(true);
  });

  it("is dropped when another one starts, when it is stopped, and when the view is closed", () => {
    const first = vi.fn();
    const second = vi.fn();
    laying.run(slow(100, 10), first, failed);
    laying.run(slow(2, 1), second, failed);
    laying.run(slow(100, 10), first, failed);
    laying.stop();
    laying.run(slow(100, 10), first, failed);
    closing.abort();
    vi.runAllTimers();
    expect(second).toHaveBeenCalledOnce();
    expect(first).not.toHaveBeenCalled();
  });

  it("can be cancelled", () => {
    laying.run(slow(100, 10), vi.fn(), failed);
    buttonIn(laying.element, "Stop").click();
    expect(cancelled).toHaveBeenCalledOnce();
  });

  it("reports an error, even a late one", () => {
    laying.run(
      (function* () {
        yield* slow(20, 10);
        throw new Error("no");
      })(),
      vi.fn(),
      failed,
    );
    vi.runAllTimers();
    expect(failed).toHaveBeenCalledExactlyOnceWith(new Error("no"));
    expect(laying.busy).toBe(false);
  });
});
