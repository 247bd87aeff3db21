/** The graph beside a chart of rows: colored by their numbers; it lights, shows and selects the nodes of rows. */

import type { ChartOptions } from "../charts/chart.ts";
import type { Pack } from "../protocol/codec.ts";
import { Columns, type Target } from "../protocol/columns.ts";
import type { OverlayData, Patch } from "../protocol/host.ts";
import { pageHost } from "../protocol/kernel.ts";
import type { OverlayReply } from "../protocol/wire.ts";
import { countOf } from "../scene/formatting.ts";
import { button, el, elide, settle } from "../ui/dom.ts";
import type { OnProgress, TaskBar } from "../ui/task.ts";
import { GraphView } from "./graphview.ts";

/** The graph of a panel's model. */
export interface GraphSource {
  load(): Promise<Pack>;
  /** extracts nodes, and returns a message; absent where there is no kernel */
  extract?(nodes: readonly number[], signal: AbortSignal, progress: OnProgress): Promise<string>;
}

/** The rows of a chart, and the nodes of the graph that each stands for. */
export interface GraphRows {
  readonly count: number;
  name(row: number): string;
  /** Returns the nodes of a row, by what came with the graph. */
  nodesOf(row: number, pack: Pack): ArrayLike<number>;
  onChoose(row: number): void;
  /** Returns the numbers that color the graph, by default those that came with it. */
  overlayOf?(pack: Pack): OverlayData;
}

function packedOverlay({ arrays, meta }: Pack): OverlayData {
  const [nodes, scopes] = ["nodes", "scopes"].map((name) => arrays.get(`overlay_${name}`) as Float64Array);
  return { ...(meta as { readonly overlay: OverlayReply }).overlay, nodes, scopes };
}

export function createChartGraph(
  source: GraphSource | undefined,
  { count, name, nodesOf, onChoose, overlayOf = packedOverlay }: GraphRows,
  task: TaskBar,
  signal: AbortSignal,
) {
  const inner = el("div");
  const element = el("section.onnx-nb-beside", { "aria-label": "Graph", hidden: source === undefined }, inner);
  const bar = el("div.onnx-nb-range-bar", { role: "status", hidden: true });
  const rowOf = new Map<number, number>();
  let view: GraphView | null = null;
  let targetsOf = (_row: number): Target[] => [];
  let chosenRow = -1;
  let recolor = (): void => undefined;
  const select = (targets: readonly Target[]): void =>
    view?.apply({ selection: targets.map((target) => ({ ...target, name: "" })) });
  const show = (pack: Pack): void => {
    const columns = new Columns(pack);
    targetsOf = (row) => (row < 0 ? [] : Array.from(nodesOf(row, pack), (id) => ({ kind: "node", id })));
    const changed = ({ selection: [first] = [] }: Patch): void => {
      const node = first?.kind === "tensor" ? columns.producer[first.id] : first?.kind === "node" ? first.id : -1;
      onChoose(rowOf.get(node) ?? chosenRow);
    };
    for (let row = count - 1; row >= 0; row--) for (const { id } of targetsOf(row)) rowOf.set(id, row);
    const options = { isNested: true, bar: el("div"), height: "100%" };
    view = new GraphView(inner, columns, { ...pageHost(), changed }, options, signal);
    recolor = () => view?.apply({ overlay: overlayOf(pack) });
    recolor();
    select(targetsOf(chosenRow));
  };
  if (source !== undefined) {
    settle(source.load(), signal, show, (error) => {
      console.error(error);
      element.hidden = true;
    });
  }
  const onRange: NonNullable<ChartOptions["onRange"]> = (rows, chart) => {
    bar.hidden = rows.length === 0;
    if (bar.hidden) {
      select(targetsOf(chosenRow));
      return;
    }
    const ids = rows.flatMap((row) => targetsOf(row).map(({ id }) => id)).sort((a, b) => a - b);
    // nodes between them that have no row belong to it, too: an optimizer removes some
    const between = Array.from({ length: (ids.at(-1) ?? -1) - (ids[0] ?? 0) + 1 }, (_, at) => ids[0] + at);
    const nodes = between.filter((node) => view?.columns.isFolded(node) === false);
    const targets = nodes.map((id): Target => ({ kind: "node", id }));
    select(targets);
    view?.dispatch({ type: "fit", targets });
    const press = (text: string, title: string, act: () => void): HTMLElement =>
      button(text, act, signal, { class: "onnx-nb-small", title });
    const extract = (): void =>
      task.run("Extracting…", async (abort, progress) => source?.extract?.(nodes, abort, progress) ?? "");
    const take = press("Extract this range", "Extract these nodes as a model of their own", extract);
    take.hidden = source?.extract === undefined || nodes.length === 0;
    const ends = [rows[0], rows[rows.length - 1]].map((row) => elide(name(row), 60)).join(" to ");
    bar.replaceChildren(
      el("span.onnx-nb-ellipsis", `${nodes.length > 0 ? countOf(nodes.length, "node") : ""} from ${ends}`),
      take,
      press("Zoom in", "Show only this range (0: show all)", () => chart.zoomToRange()),
      press("Clear", "Choose no range (Esc)", () => chart.chooseRange(null)),
    );
  };
  return {
    element,
    /** Returns a chart with its tables, the graph beside them, and the details of what is chosen. */
    body: (detail: HTMLElement, ...left: readonly Node[]): HTMLElement =>
      el("div.onnx-nb-profile-body", el("div.onnx-nb-profile-left", ...left), element, detail),
    /** of the charts */
    events: {
      onHover: (row: number): void => view?.dispatch({ type: "hover", target: targetsOf(row)[0] ?? null }),
      onRange,
    },
    /** what can be done with the chosen range */
    bar,
    recolor: (): void => recolor(),
    choose(row: number): void {
      chosenRow = row;
      const targets = targetsOf(row);
      select(targets);
      if (targets.length > 0) view?.dispatch({ type: "reveal", target: targets[0] });
    },
  };
}
