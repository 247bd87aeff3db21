// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import type { Target } from "../protocol/columns.ts";
import { columnsOf } from "../protocol/testing.ts";
import { SearchBox } from "./searchbox.ts";
import { FakeHost, FakeView, MODEL, settle, stop } from "./testing.ts";

let root: HTMLElement;
let box: SearchBox;
let view: FakeView;

function open(columns = MODEL): void {
  view = new FakeView(new FakeHost(), columns, [0], stop.signal);
  root = document.createElement("div");
  document.body.replaceChildren(root);
  box = view.show(new SearchBox(view, () => input().blur()), root);
  box.focus();
}
const input = (): HTMLInputElement => root.querySelector("input") as HTMLInputElement;
const options = (): string[] => [...root.querySelectorAll("[role=option]")].map((each) => each.textContent ?? "");
const active = (): string | null =>
  root.querySelector(`#${input().getAttribute("aria-activedescendant") ?? "none"}`)?.textContent ?? null;
const node = (name: string): Target => MODEL.find(name, "node") as Target;
const put = (text: string): void => {
  input().value = text;
  input().dispatchEvent(new Event("input"));
};
const type = async (text: string): Promise<void> => {
  put(text);
  await settle(70);
};
const press = (key: string, shiftKey = false): boolean =>
  input().dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, bubbles: true, cancelable: true }));

beforeEach(() => open());

describe("the search field", () => {
  it("is a combobox with a list box, whose options are announced while the focus stays", async () => {
    expect(input().getAttribute("role")).toBe("combobox");
    await type("enc/");
    expect(input().getAttribute("aria-expanded")).toBe("true");
    expect(root.querySelector(`#${input().getAttribute("aria-controls")}`)?.getAttribute("role")).toBe("listbox");
    expect(active()).toBeNull();
    press("ArrowDown");
    expect(active()).toContain("enc/mm");
    press("ArrowDown");
    expect(active()).toContain("enc/split");
    expect(view.now.selection).toEqual(node("enc/split"));
    press("Enter", true);
    expect(view.now.selection).toEqual(node("enc/mm"));
    input().blur();
    expect(input().getAttribute("aria-expanded")).toBe("false");
    expect(active()).toBeNull();
  });

  it("offers what a person may have meant where nothing is found", async () => {
    await type("matmull");
    expect(options()).toEqual(["MatMulnothing found: did you mean this?"]);
    press("ArrowDown");
    press("Enter");
    await settle(70);
    expect(input().value).toBe("MatMul");
    expect(view.now.hits.length).toBeGreaterThan(0);
    await type("matmul nodes");
    expect(options()[0]).toContain("matmul kind:node");
    await type("nothing like it");
    expect(options()).toEqual([]);
  });

  it("takes verbs: Enter does the only one, the arrows choose among several", async () => {
    Object.assign(view.host, { overlay: () => Promise.reject(new Error("no numbers")) });
    await type("profi");
    expect(options()).toEqual(["profilewhere the time goes"]);
    press("Enter");
    expect(view.actions.at(-1)).toEqual({ type: "profile" });
    expect(input().value).toBe("");
    await type("color");
    expect(options().length).toBe(7);
    await type("color na");
    expect(options()[0]).toMatch(/^color by NaN/);
    press("ArrowDown");
    press("Enter");
    expect(view.actions.at(-1)).toEqual({ type: "color", by: "NaN" });
    await type("extract enc/mm");
    expect(options()[0]).toMatch(/^extract enc\/mm/);
    press("Enter");
    expect(view.actions.at(-1)).toMatchObject({ type: "extract", targets: [node("enc/mm")] });
    await type("simpl");
    expect(options()[0]).toMatch(/^simplify/);
    Object.assign(view.host, { live: false });
    await type("simp");
    expect(options(), "without a kernel").toEqual([]);
  });

  it("starts with the fields, and continues with the values in the model", async () => {
    expect(options()[0]).toMatch(/^op:/);
    press("ArrowDown");
    press("Enter");
    expect(input().value).toBe("op:");
    expect(options()).toEqual(["MatMul1", "Split1", "Add1", "Relu1"]);
    await type("op:a");
    expect(options().slice(0, 2)).toEqual(["Add1", "MatMul1"]);
    press("ArrowDown");
    press("ArrowDown");
    press("ArrowUp");
    expect(active()).toBe("Add1");
    expect(press("Tab")).toBe(false);
    await settle(70);
    expect(input().value).toBe("op:Add");
    expect(view.now.hits).toEqual([node("sum")]);
    expect(press("Tab")).toBe(true); // nothing is chosen, so the focus may move on
  });

  it("shows all of a chain and selects its beginning", async () => {
    await type("Split > Add > Relu");
    expect(root.textContent).toContain("1 of 1");
    expect(options()[0]).toContain("Split › Add › Relu");
    press("Enter");
    expect(view.now.selection).toEqual(node("enc/split"));
    expect(view.actions.filter(({ type }) => type === "reveal")).toEqual(
      ["act", "sum", "enc/split"].map((name) => ({ type: "reveal", target: node(name) })),
    );
  });

  it("accepts Enter before the result is ready", async () => {
    put("relu");
    press("Enter");
    expect(view.now.selection).toBeNull();
    await settle(70);
    expect(view.now.selection).toEqual(node("act"));
  });

  it("shows the error in a query, and examples if nothing is found", async () => {
    await type('"enc');
    expect(root.textContent).toContain("not understood");
    expect(root.querySelector("[aria-live=polite].onnx-nb-search-note")?.textContent).toBe(
      'The quote at "enc is not closed.',
    );
    await type("attr:no");
    expect(root.textContent).toContain("nothing found");
    expect(root.textContent).toContain("default value");
    expect(root.textContent).toContain("A > * > B in a row");
    await type("relu");
    expect(root.querySelector<HTMLElement>(".onnx-nb-search-note")?.hidden).toBe(true);
  });

  it("stays responsive during a search of many nodes, and drops it for the next", async () => {
    const lines = Array.from({ length: 40_000 }, (_, at) => `Relu n${at} : v${at} -> v${at + 1}`);
    open(columnsOf(["input v0 8 float32", ...lines].join("\n")));
    put("/(n|v)+.*(1|2|3)+x/ * > ** > /y/");
    put("* > * > * > * > *");
    await settle(130);
    put("n39999");
    await settle(800);
    expect(view.actions.filter(({ type }) => type === "search").at(-1)).toMatchObject({ text: "n39999" });
    expect(view.now.hits).toHaveLength(1);
    await type("relu");
    await settle(400);
    expect(root.textContent).toContain("1 of 40,000");
    expect(root.textContent).toContain("The first 5,000");
  });

  it("runs a restored regular expression only when asked to", async () => {
    open();
    box.search("/mm|add/");
    await settle(70);
    expect(view.now.search).toBe("");
    expect(root.textContent).toContain("Enter to search");
    press("Enter");
    await settle(70);
    expect(view.now.search).toBe("/mm|add/");
    box.search("mm");
    await settle(70);
    expect(view.now.search).toBe("mm");
  });
});
