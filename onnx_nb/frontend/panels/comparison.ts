/** What a comparison found: where errors begin, all points in a table, and the one that is chosen in detail. */

import type { Details, Points } from "../protocol/comparison.ts";
import { counted, plain } from "../scene/formatting.ts";
import { createMissingTable, createPointTable, pointsCsv } from "./comparisontables.ts";
import { button, el, elide } from "./dom.ts";
import { createErrorSection } from "./errorsection.ts";
import { download } from "./export.ts";
import { createMenu, item, type Menu } from "./menu.ts";
import { createPointDetail } from "./pointdetail.ts";
import { createTableTabs } from "./tabletabs.ts";
import { createTaskBar, type OnProgress, type TaskBar } from "./task.ts";

export interface ComparisonOptions {
  readonly height?: number;
  readonly metric?: string;
  /** a person chose a point, "" for none */
  readonly chosen?: (name: string) => void;
  readonly turned?: (metric: string) => void;
  /** loads what is known of a point beyond its metrics */
  readonly detail: (row: number, signal: AbortSignal) => Promise<Details>;
  /** writes the whole as a page */
  readonly page?: (signal: AbortSignal, progress: OnProgress) => Promise<Uint8Array>;
  /** extracts a point's module, and returns where it is */
  readonly reproduce?: (name: string, signal: AbortSignal, progress: OnProgress) => Promise<string>;
  /** shows the operations in a point's module */
  readonly drill?: (name: string, signal: AbortSignal, progress: OnProgress) => Promise<void>;
  /** a button that leads back */
  readonly back?: { readonly text: string; readonly go: () => void };
}

export interface ComparisonView {
  /** the chosen point by name, "" for none */
  choose(name: string): void;
  setMetric(key: string): void;
  /** shows which graph is linked, "" for none */
  setLinked(text: string): void;
  redraw(): void;
  svg(): string;
}

export function createComparison(
  root: HTMLElement,
  points: Points,
  options: ComparisonOptions,
  signal: AbortSignal,
): ComparisonView {
  const { about } = points;
  const title = elide(`${about.reference} and ${about.candidate}`, 120);
  root.classList.add("onnx-nb-comparison");
  root.style.setProperty("--nb-height", `${options.height ?? 560}px`);
  let chosen = -1;
  const live = el("div.onnx-nb-voice", { "aria-live": "polite" });
  const announce = (text: string): void => {
    live.textContent = elide(text, 300);
  };
  const task = createTaskBar((busy) => disableActions(root, busy), announce, signal);
  const choose = (row: number, person: boolean): void => {
    if (row === chosen) return;
    chosen = row;
    table.choose(row);
    chart.plot.choose(row);
    detail.show(row);
    if (row >= 0) announce(`${points.text("name", row)}, ${chart.errorsOf(row)}`);
    if (person) options.chosen?.(row < 0 ? "" : points.text("name", row));
  };
  const pick = (row: number): void => choose(row, true);
  const turned = (metric: string): void => options.turned?.(metric);
  const chart = createErrorSection(points, options.metric ?? "rel_l2", { chosen: pick, turned }, signal);
  const detail = createPointDetail(
    points,
    {
      load: options.detail,
      dark: () => root.classList.contains("onnx-nb-dark"),
      actions: (row, round) => pointActions(points.text("name", row), options, task, round),
    },
    signal,
  );
  const activated = (): void => detail.element.focus();
  const table = createPointTable(points, title, { chosen: pick, activated }, signal);
  const missing = createMissingTable(points, title, signal);
  const tabs = createTableTabs(
    [
      ["Points", points.count, table],
      ["Unmatched", points.missing, missing],
    ],
    () => undefined,
    signal,
  );
  tabs.show(points.count === 0 && points.missing > 0 ? 1 : 0);
  tabs.buttons[1].disabled = points.missing === 0;
  const content = {
    svg: () => chart.plot.svg(about.message),
    png: () => chart.plot.png(about.message),
    csv: () => pointsCsv(points, table.rows),
  };
  const save = saveMenu(points, content, options, task, signal);
  const linked = el("span.onnx-nb-dim.onnx-nb-linked");
  linked.hidden = true;
  const goToFirst = (): void => {
    chosen = -1; // bring it into view again
    pick(about.first);
  };
  const bar = el("div.onnx-nb-below-bar", ...tabs.buttons, ...tabs.filters);
  const below = el("section.onnx-nb-below", { "aria-label": "Tables" }, bar, ...tabs.tables);
  const nothing = el("p.onnx-nb-nothing.onnx-nb-dim", "There is nothing to show.");
  const body =
    points.count > 0
      ? [el("div.onnx-nb-comparison-left", chart.element, below), detail.element]
      : [points.missing > 0 ? below : nothing];
  root.replaceChildren(
    headerOf(points, options.back, linked, goToFirst, save.element, signal),
    task.element,
    el(`div.onnx-nb-comparison-body${points.count > 0 ? "" : ".onnx-nb-pointless"}`, ...body),
    live,
  );
  return {
    choose: (name) => choose(points.rowOf(name), false),
    setMetric: chart.setMetric,
    setLinked(text) {
      linked.textContent = elide(text, 200);
      linked.hidden = text === "";
    },
    redraw() {
      chart.plot.redraw();
      detail.redraw();
    },
    svg: content.svg,
  };
}

function headerOf(
  points: Points,
  back: ComparisonOptions["back"],
  linked: HTMLElement,
  goToFirst: () => void,
  save: HTMLElement,
  signal: AbortSignal,
): HTMLElement {
  const { about, count, missing } = points;
  const verdict = about.first >= 0 ? "bad" : count === 0 || about.outside > 0 ? "caution" : "fine";
  const facts = [
    `${elide(about.candidate, 48)} against ${elide(about.reference, 48)}`,
    counted(count, "point") +
      (about.outside > 0 ? `, ${plain(about.outside)} outside of the tolerance` : "") +
      (missing > 0 ? `, ${plain(missing)} unmatched` : ""),
    counted(about.feeds, "run"),
  ];
  const message = el("b.onnx-nb-said", elide(about.message, 600));
  const hint = "Choose the first point that differs";
  const first = button("Show it", goToFirst, signal, { class: "onnx-nb-small", title: hint });
  first.hidden = about.first < 0;
  return el(
    "header.onnx-nb-bar",
    back === undefined ? null : button(back.text, back.go, signal, { title: "Back to all points" }),
    el(`span.onnx-nb-lamp.onnx-nb-${verdict}`, { "aria-hidden": true }),
    el("div.onnx-nb-announced", message, el("span.onnx-nb-dim", facts.join(" · ")), linked),
    first,
    save,
  );
}

/** Buttons that cannot be pressed are not `disabled`, or the keyboard would be lost. */
function disableActions(root: HTMLElement, busy: boolean): void {
  for (const each of root.querySelectorAll(".onnx-nb-act")) each.setAttribute("aria-disabled", String(busy));
}

function pointActions(
  name: string,
  { reproduce, drill }: ComparisonOptions,
  task: TaskBar,
  signal: AbortSignal,
): HTMLElement[] {
  const short = elide(name, 80);
  const action = (text: string, title: string, press: () => void): HTMLElement =>
    button(text, press, signal, { class: "onnx-nb-small onnx-nb-act", title, "aria-disabled": task.busy });
  const drillDown = async (ended: AbortSignal, progress: OnProgress): Promise<string> => {
    await drill?.(name, ended, progress);
    return "";
  };
  return [
    ...(drill === undefined
      ? []
      : [
          action("Drill down", "Compare the operations inside, each with its line of Python", () =>
            task.run(`Comparing the operations inside ${short}…`, drillDown),
          ),
        ]),
    ...(reproduce === undefined
      ? []
      : [
          action("Reproduce", "Extract its part of the model, with torch's inputs and outputs", () =>
            task.run(`Extracting ${short}…`, (ended, progress) => reproduce(name, ended, progress)),
          ),
        ]),
  ];
}

function saveMenu(
  points: Points,
  content: { svg(): string; png(): Promise<Blob>; csv(): string },
  { page }: ComparisonOptions,
  task: TaskBar,
  signal: AbortSignal,
): Menu {
  const name = `${points.about.candidate.replace(/\.onnx$/i, "")} errors`;
  const menu = createMenu("Save", { title: "Save a picture, the table, or a page", label: "Save" }, signal);
  const entry = (text: string, hint: string, save: () => void | Promise<void>): HTMLElement => {
    const press = async (): Promise<void> => {
      menu.close();
      try {
        await save();
      } catch (error) {
        task.fail(error);
      }
    };
    return item(text, hint, () => void press(), signal);
  };
  const file = (parts: BlobPart, type: string, extension: string): void =>
    download(new Blob([parts], { type }), name, extension);
  const writePage = async (ended: AbortSignal, progress: OnProgress): Promise<string> => {
    const written = await page?.(ended, progress);
    if (written !== undefined) file(written as Uint8Array<ArrayBuffer>, "text/html", "html");
    return "";
  };
  const pictures = [
    entry("SVG of the plot", "Vector graphics, as it is shown", () => file(content.svg(), "image/svg+xml", "svg")),
    entry("PNG of the plot", "Pixels, at twice its size", async () => download(await content.png(), name, "png")),
  ];
  const table = entry("CSV of the table", "The points that are shown, every metric with all digits", () =>
    file(content.csv(), "text/csv", "csv"),
  );
  const html = entry("HTML page", "This panel in one file that works offline", () =>
    task.run("Writing the page…", writePage),
  );
  menu.fill(...(points.count > 0 ? pictures : []), table, ...(page === undefined ? [] : [html]));
  return menu;
}
