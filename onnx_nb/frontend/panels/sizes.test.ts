// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { createSizes } from "./sizes.ts";
import { FakeValues, furnish, settle, stop } from "./testing.ts";

let host: FakeValues;

const show = async (): Promise<HTMLInputElement[]> => {
  const root = createSizes(host, stop.signal);
  document.body.replaceChildren(root);
  await settle();
  return [...root.querySelectorAll("input")];
};
const write = async (field: HTMLInputElement, text: string): Promise<void> => {
  field.value = text;
  field.dispatchEvent(new Event("change"));
  await settle();
};

beforeEach(() => {
  furnish();
  host = new FakeValues();
  host.rows = [
    ["batch", "", "1"],
    ["x", "1×3×64×64", "1×3×32×32"],
  ];
});

describe("sizes of made-up inputs", () => {
  it("have a field each, with what will be used", async () => {
    const [batch, x] = await show();
    expect(document.querySelector("[role=group]")?.getAttribute("aria-label")).toBe("Sizes of inputs");
    expect([batch.value, batch.placeholder]).toEqual(["", "1"]);
    expect([x.value, x.placeholder]).toEqual(["1×3×64×64", "1×3×32×32"]);
    expect(batch.getAttribute("aria-label")).toBe("Size of batch");
    expect(document.body.textContent).toContain("batch = ");
  });

  it("are sent as lists, and an empty field means the usual size", async () => {
    const [batch, x] = await show();
    await write(batch, "4");
    await write(x, "");
    await write(x, "2, 3, 8 x 8");
    await write(x, "2×three");
    expect(host.chosen).toEqual([
      { batch: [4], x: [1, 3, 64, 64] },
      { batch: [4] },
      { batch: [4], x: [2, 3, 8, 8] },
      { batch: [4], x: [2, null] },
    ]);
  });

  it("show why the kernel refuses one, until it takes another", async () => {
    const [batch] = await show();
    const { sizes } = host;
    host.sizes = () => Promise.reject(Object.assign(new Error("shapes['batch'] is −1"), { advice: "Give another." }));
    await write(batch, "-1");
    expect(document.querySelector("[role=alert]")?.textContent).toBe("shapes['batch'] is −1 Give another.");
    host.sizes = sizes;
    await write(batch, "2");
    expect(document.querySelector("[role=alert]")?.textContent).toBe("");
  });

  it("are not there where nothing is open, and keep their keys to themselves", async () => {
    host.rows = [];
    await show();
    expect(document.querySelector<HTMLElement>("[role=group]")?.hidden).toBe(true);
    host.rows = [["batch", "", "1"]];
    const [field] = await show();
    let heard = 0;
    document.body.addEventListener("keydown", () => heard++);
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "f", bubbles: true }));
    expect(heard).toBe(0);
  });
});
