// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { furnish, settle } from "../panels/testing.ts";
import { csvOf, rowOrder, Table, type TableColumn } from "./table.ts";

const NAMES = ["layer.10", "layer.2", "=cmd()", "stem"];
const MAXIMA = Float64Array.of(3, Number.NaN, 1e-3, -7);
const NAME: TableColumn = { key: "name", title: "name", width: [60, 1], text: (row) => NAMES[row] };
const MAX: TableColumn = { key: "max", title: "max", width: [60, 1], numbers: MAXIMA, isBad: (row) => MAXIMA[row] < 0 };

const listed = (filter: string, sorting: { column: TableColumn; descending: boolean } | null = null): string[] =>
  Array.from(rowOrder(4, [NAME, MAX])(filter, sorting), (row) => NAMES[row]);

describe("rows", () => {
  it("are sorted by numbers, with NaN last in both directions", () => {
    expect(listed("", { column: MAX, descending: true })).toEqual(["layer.10", "=cmd()", "stem", "layer.2"]);
    expect(listed("", { column: MAX, descending: false })).toEqual(["stem", "=cmd()", "layer.10", "layer.2"]);
  });

  it("are sorted by text in natural order", () => {
    expect(listed("", { column: NAME, descending: false })).toEqual(["=cmd()", "layer.2", "layer.10", "stem"]);
  });

  it("that are equal stay in order", () => {
    const same: TableColumn = { key: "n", title: "n", width: [60, 1], numbers: Float64Array.of(1, 0, 1, 0) };
    const order = rowOrder(4, [same]);
    expect([...order("", { column: same, descending: true })]).toEqual([0, 2, 1, 3]);
    expect([...order("", { column: same, descending: false })]).toEqual([1, 3, 0, 2]);
  });

  it.each([
    ["LAYER", ["layer.10", "layer.2"]],
    ["-layer", ["=cmd()", "stem"]],
    ["max>0", ["layer.10", "=cmd()"]],
    ["max>=3 layer", ["layer.10"]],
    ["max<−1", ["stem"]],
    ["-max>0", ["layer.2", "stem"]],
    ['"layer.2"', ["layer.2"]],
    ["min>0", []],
    ["max >= 3 layer", ["layer.10"]],
    ["layer max > 200 %", ["layer.10"]],
    ["max > 2 dB", ["layer.10"]],
    ["-max > 0 dB stem", ["stem"]],
    ["max > 2 dBm", []],
    ["layer 2", ["layer.2"]],
  ])("are filtered by %s", (filter, expected) => {
    expect(listed(filter)).toEqual(expected);
  });

  it("are exported to a file in which no name is a formula", () => {
    const odd: TableColumn = { key: "x", title: "x", width: [60, 1], text: () => 'a "b", c' };
    expect(csvOf([NAME, MAX, odd], [2, 1, 3])).toBe(
      `name,max,x\r\n'=cmd(),0.001,"a ""b"", c"\r\nlayer.2,,"a ""b"", c"\r\nstem,-7,"a ""b"", c"\r\n`,
    );
  });
});

describe("the table", () => {
  const COUNT = 10_000;
  const numbers = Float64Array.from({ length: COUNT }, (_, row) => (row * 7919) % COUNT);
  let table: Table;
  let chosen: number[];
  let activated: number[];

  beforeEach(() => {
    furnish(600, 260);
    chosen = [];
    activated = [];
    table = new Table(
      {
        label: "All",
        noun: "value",
        count: COUNT,
        columns: [
          { key: "name", title: "Name", width: [60, 1], text: (row) => `tensor ${row} <b>` },
          { key: "size", title: "Size", width: [60, 1], numbers },
        ],
        onChoose: (row) => chosen.push(row),
        onActivate: (row) => activated.push(row),
      },
      new AbortController().signal,
    );
    document.body.replaceChildren(table.filter, table.element);
  });

  const shown = (): number[] =>
    [...table.element.querySelectorAll<HTMLElement>("[data-row]")].map(({ dataset }) => Number(dataset.row));
  const press = (key: string): boolean =>
    table.element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const filter = (text: string): void => {
    const field = table.filter.querySelector("input") as HTMLInputElement;
    field.value = text;
    field.dispatchEvent(new Event("input"));
  };

  it("has elements only for the rows in view, and shows the number of all", async () => {
    expect(shown().length).toBeLessThan(30);
    expect(table.element.getAttribute("aria-rowcount")).toBe("10001");
    expect(table.filter.textContent).toContain("10,000 values");
    table.element.scrollTop = 26 * 5000;
    table.element.dispatchEvent(new Event("scroll"));
    await settle(30);
    expect(shown()).toContain(5000);
    expect(shown()).not.toContain(0);
    expect(table.element.querySelector("b")).toBeNull();
  });

  it("hides columns without space, and shows both ends of long texts", () => {
    const long = "encoder.layer.11.attention.output.LayerNorm";
    const heads = (width: number): (string | null)[] => {
      furnish(width, 260);
      const { element } = new Table(
        {
          label: "Few",
          noun: "value",
          count: 1,
          columns: [
            { key: "name", title: "Name", width: [60, 1], names: true, text: () => long },
            { key: "how", title: "How", width: [60, 1], spare: 2, text: () => "by name" },
            { key: "size", title: "Size", width: [60, 1], spare: 1, numbers },
          ],
        },
        new AbortController().signal,
      );
      document.body.replaceChildren(element);
      const [name, last] = [0, -1].map((at) => [...element.querySelectorAll("[role=gridcell]")].at(at));
      expect(name?.textContent).toBe(long);
      expect(name?.querySelector(".onnx-nb-tail")?.textContent).toBe("t.LayerNorm");
      expect(last?.getAttribute("aria-colindex")).toBe(width < 100 ? "1" : "3");
      return [...element.querySelectorAll<HTMLElement>("[role=columnheader]")]
        .filter((head) => !head.hidden)
        .map((head) => head.textContent);
    };
    expect(heads(400)).toEqual(["Name", "How", "Size"]);
    expect(heads(170)).toEqual(["Name", "Size"]);
    expect(heads(90)).toEqual(["Name"]);
  });

  it("sorts by a column's head: descending, ascending, then in the original order", () => {
    const head = [...table.element.querySelectorAll("button")].find((each) => each.textContent === "Size");
    const sort = (): string | null => head?.parentElement?.getAttribute("aria-sort") ?? null;
    head?.click();
    expect([sort(), numbers[table.rows[0]]]).toEqual(["descending", COUNT - 1]);
    head?.click();
    expect([sort(), numbers[table.rows[0]]]).toEqual(["ascending", 0]);
    head?.click();
    expect([sort(), table.rows[0]]).toEqual(["none", 0]);
  });

  it("handles the keyboard and keeps its keys from the notebook", () => {
    let heard = 0;
    document.body.addEventListener("keydown", () => heard++);
    press("ArrowDown");
    press("ArrowDown");
    press("Enter");
    expect([chosen, activated]).toEqual([[0, 1], [1]]);
    expect(table.element.getAttribute("aria-activedescendant")).toBe(
      table.element.querySelector("[aria-selected='true']")?.id,
    );
    press("End");
    expect(table.row).toBe(COUNT - 1);
    expect(shown()).toContain(COUNT - 1);
    press("Home");
    press("PageDown");
    expect(table.row).toBe(8);
    press("Escape");
    expect(chosen.at(-1)).toBe(-1);
    expect(heard).toBe(0);
  });

  it("filters, shows the count, and clears the filter for a row that is chosen from outside", () => {
    filter('"tensor 77 "');
    expect([...table.rows]).toEqual([77]);
    expect(table.filter.textContent).toContain("1 of 10,000 values");
    filter("nothing of this");
    expect(table.element.textContent).toContain("No value fits the filter.");
    table.choose(4321);
    expect(table.rows.length).toBe(COUNT);
    expect(shown()).toContain(4321);
    expect(chosen).toEqual([]);
  });

  it("shows only the rows of a pressed button", () => {
    table.restrict((row) => numbers[row] < 5);
    expect(table.rows.length).toBe(5);
    expect(table.csv().split("\r\n").length).toBe(7);
    table.restrict(null);
    expect(table.rows.length).toBe(COUNT);
  });
});

describe("rows of one kind", () => {
  const shown = (table: Table): string[] =>
    [...table.element.querySelectorAll<HTMLElement>("[data-row]")].map((row) => row.dataset.row ?? "");

  it("are one row until a person opens it, sorts or filters", async () => {
    furnish();
    const times: TableColumn = { key: "times", title: "×", width: [50, 0], text: () => "" };
    const kinds = Int32Array.of(1, 0, 1, 1);
    const chosen: number[] = [];
    const table = new Table(
      {
        ...{ label: "Rows", noun: "row", count: 4, kinds, columns: [times, NAME, MAX] },
        onChoose: (row) => chosen.push(row),
      },
      new AbortController().signal,
    );
    document.body.replaceChildren(table.filter, table.element);
    expect(shown(table)).toEqual(["1", "0"]);
    expect(table.filter.textContent).toBe("4 rows of 2 kinds");
    table.element.querySelector<HTMLElement>("[data-kind='0']")?.click();
    expect(shown(table)).toEqual(["1", "0", "2", "3"]);
    expect(chosen).toEqual([]);
    table.choose(0);
    table.element.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
    expect(shown(table)).toEqual(["1", "0"]);
    table.choose(3); // which is behind row 0
    expect(shown(table)).toContain("3");
    table.element.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
    const field = table.filter.querySelector("input") ?? expect.fail("no field");
    field.value = "layer";
    field.dispatchEvent(new Event("input"));
    expect(shown(table)).toEqual(["0", "1"]);
    await settle();
  });
});
