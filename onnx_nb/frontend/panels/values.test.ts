// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import type { Place, ValueHost } from "../protocol/host.ts";
import type { StatisticsReply } from "../protocol/wire.ts";
import { buttonIn, FakeHost, FakeValues, FakeView, furnish, MODEL, settle, stop } from "./testing.ts";
import { createValues } from "./values.ts";

const weight = MODEL.find("W", "tensor")?.id as number;
const tensor = MODEL.find("p", "tensor")?.id as number;
const FOUND = { count: 4, nan: 0, posinf: 0, neginf: 0, zeros: 1, min: 0, max: 3, mean: 1.5, std: 1 };

let host: FakeValues;
let root: HTMLElement;

const show = (value: number, captures = 0): HTMLElement => {
  const view = new FakeView(new FakeHost(), MODEL, [0]);
  view.now = { ...view.now, captures };
  root = createValues(view, value, host, stop.signal);
  document.body.replaceChildren(root);
  return root;
};

beforeEach(() => {
  furnish();
  host = new FakeValues();
});

describe("a large weight", () => {
  let told: (done: number, message: string) => void;
  let stopped: AbortSignal;
  let answer: (found: StatisticsReply) => void;
  let asked: number;
  beforeEach(() => {
    asked = 0;
    const statistics: ValueHost["statistics"] = (_value, progress, signal) =>
      new Promise((resolve, reject) => {
        asked++;
        told = progress;
        stopped = signal;
        answer = resolve;
        signal.addEventListener("abort", () => reject(new DOMException("cancelled", "AbortError")));
      });
    host.statistics = statistics as FakeValues["statistics"];
  });

  it("offers its numbers immediately, and shows the progress of its statistics", async () => {
    show(weight);
    expect(buttonIn(root, "Values").disabled).toBe(false);
    expect(root.querySelector("progress")).toBeNull();
    told(0.25, "Reading 2.1 GB…");
    expect(root.querySelector("progress")?.value).toBe(0.25);
    expect(root.textContent).toContain("Reading 2.1 GB…");
    answer({ ...FOUND, counts: [1, 3], edges: [0, 2, 4], source: "weight" });
    await settle(0);
    expect(root.querySelector("progress")).toBeNull();
    expect(root.textContent).toContain("1.5 ± 1");
    expect(buttonIn(root, "Values").disabled).toBe(false);
  });

  it("can be cancelled, and read again", async () => {
    show(weight);
    told(0.25, "Reading 2.1 GB…");
    buttonIn(root, "Cancel").click();
    expect(stopped.aborted).toBe(true);
    await settle(0);
    buttonIn(root, "Statistics").click();
    expect(asked).toBe(2);
  });

  it("is no longer read once another target is selected", () => {
    show(weight);
    stop.abort();
    expect(stopped.aborted).toBe(true);
  });
});

describe("kinds of numbers", () => {
  it("are chosen by a button each, and a page keeps to the chosen one", async () => {
    host.kinds = ["Dequantized", "Packed"];
    show(weight);
    buttonIn(root, "Values").click();
    await settle(0);
    expect(buttonIn(root, "Dequantized").getAttribute("aria-pressed")).toBe("true");
    buttonIn(root, "Packed").click();
    await settle(0);
    expect(host.places.at(-1)).toEqual({ index: [], row: 0, column: 0, look: "channels", kind: "Packed" });
    expect(buttonIn(root, "Packed").getAttribute("aria-pressed")).toBe("true");
    expect(buttonIn(root, "Dequantized").getAttribute("aria-pressed")).toBe("false");
    buttonIn(root, "One slice").click();
    await settle(0);
    expect(host.places.at(-1)).toMatchObject({ look: "slice", kind: "Packed" });
  });

  it("are not offered where there is one", async () => {
    show(weight);
    buttonIn(root, "Values").click();
    await settle(0);
    expect(root.querySelector('[aria-label="Numbers"]')).toBeNull();
  });
});

describe("channels", () => {
  it("are side by side, and a click on one opens it", async () => {
    host.captures.push(tensor);
    show(tensor, 1);
    await settle(0);
    buttonIn(root, "Values").click();
    await settle(0);
    host.page = (_value: number, place: Place) => {
      host.places.push(place);
      return Promise.resolve({
        dtype: "float32",
        shape: [2, 3, 4],
        ...place,
        index: [0],
        cells: [["0"]],
        trailing: 0,
        looks: ["slice", "channels"],
        kinds: ["Values"],
        picture: { look: "channels", shape: [2, 3, 4], first: 0, low: 0, high: 23 },
        pixels: new Uint8Array(24).fill(7),
      });
    };
    buttonIn(root, "Channels").click();
    await settle(0);
    expect(host.places.at(-1)?.look).toBe("channels");
    expect(buttonIn(root, "Channels").getAttribute("aria-pressed")).toBe("true");
    const canvas = root.querySelector("canvas") as HTMLCanvasElement;
    // two tiles of 4×3 px, 2 px apart
    expect([canvas.width, canvas.height]).toEqual([10, 3]);
    canvas.getBoundingClientRect = () => ({ left: 0, top: 0, width: 10, height: 3 }) as DOMRect;
    canvas.dispatchEvent(new MouseEvent("click", { clientX: 7, clientY: 1 }));
    await settle(0);
    expect(host.places.at(-1)).toEqual({ index: [1], row: 0, column: 0, look: "slice" });
  });
});
