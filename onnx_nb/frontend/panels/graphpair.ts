/** Two graph views side by side, synchronized. */

import type { Columns, Target } from "../protocol/columns.ts";
import type { PairData, SideOf } from "../protocol/diff.ts";
import type { GraphHost, NamedTarget, Patch } from "../protocol/host.ts";
import { watchTheme } from "../render/theme.ts";
import { DiffStatuses } from "../scene/diffstatus.ts";
import { defaultOpen, type Fits, type Opening, opening } from "../scene/opening.ts";
import { button, el, elide, on, onResize, onState } from "../ui/dom.ts";
import { GraphView } from "./graphview.ts";
import { createSynchronizer, openLike, otherSide, SIDES, type Views } from "./synchronizer.ts";

export interface GraphPairOptions {
  /** CSS height of each picture */
  readonly height: string;
  readonly synced: boolean;
  readonly names: readonly [string, string];
  /** the role of each graph */
  readonly titles: readonly [string, string];
  /** the left part of the bar */
  readonly tools: readonly HTMLElement[];
  /** between the bar and the graphs */
  readonly list?: HTMLElement;
  /** scopes of the reference that are open at first */
  readonly open?: Iterable<number>;
}

/** Data and events that a pair of graphs needs from its surroundings. */
export interface GraphPairHost {
  /** for each graph; it need not plan or extract */
  readonly graphs: readonly [GraphHost, GraphHost];
  onSelect?(side: SideOf, selection: readonly NamedTarget[]): void;
  onSync?(onSync: boolean): void;
  /** returns label and text of each fact about a target and its counterpart, for the inspector */
  counterpartFacts(side: SideOf, target: Target, name: string): [string, string][];
}

export type GraphPair = ReturnType<typeof createGraphPair>;

/** Zooms at which the right graph may open like the left one. */
const ZOOMS = [0.9, 0.75, 0.58];
/** Names of the graphs for tests and tools. */
export const ROLES = ["reference", "candidate"] as const;
/** Pixels of width below which the graphs are one above the other … */
const NARROW = 760;
/** … and the fraction of the height that each of them then gets, so that both fit on one screen. */
const STACKED_SHARE = 0.72;

export function createGraphPair(
  root: HTMLElement,
  columns: readonly [Columns, Columns],
  data: PairData,
  host: GraphPairHost,
  options: GraphPairOptions,
  signal: AbortSignal,
) {
  root.classList.add("onnx-nb-pair");
  root.dataset.state = "loading";
  const { names, titles, tools, list } = options;
  const notes = SIDES.map(() => el("span.onnx-nb-pair-note", { role: "status" }));
  const inner = SIDES.map(() => el("div"));
  const panes = SIDES.map((side) => {
    const name = el("span.onnx-nb-ellipsis", { title: names[side] }, elide(names[side], 60));
    const head = el("header", el("b", titles[side]), name, notes[side]);
    const label = `${titles[side]}: ${elide(names[side], 80)}`;
    return el("section.onnx-nb-pane", { "aria-label": label }, head, inner[side]);
  });
  // in step the bar of the side in which the person works serves both
  const bars = SIDES.map((side) => el("div", { data: { widget: `${ROLES[side]}-bar` } }));
  const lead = (side: SideOf): void => {
    synchronizer.leader = side;
    for (const [at, bar] of bars.entries()) bar.hidden = synchronizer.enabled && at !== side;
  };
  const note = (side: SideOf, text: string): void => notes[side].replaceChildren(text);
  const synchronizer = createSynchronizer(columns, data, options.synced, note, signal);
  const setSync = (on: boolean): void => {
    if (on === synchronizer.enabled) return;
    toggle.setAttribute("aria-pressed", String(on));
    host.onSync?.(on);
    synchronizer.enabled = on;
    lead(synchronizer.leader);
  };
  const toggle = button("Linked views", () => setSync(!synchronizer.enabled), signal, {
    title: "Move, zoom, open and search both graphs together",
    "aria-pressed": options.synced,
  });
  const bar = el("header.onnx-nb-bar.onnx-nb-pair-bar", ...tools, toggle);
  root.replaceChildren(bar, ...(list === undefined ? [] : [list]));
  root.append(el("div.onnx-nb-pair-bars", ...bars), el("div.onnx-nb-pair-body", ...panes));
  watchTheme(root, () => undefined, signal);

  const markSelection = (): void => {
    const hasSelection = views.some((view) => view.state.selection !== null);
    root.classList.toggle("onnx-nb-pair-selected", hasSelection);
  };
  const hostOf = (side: SideOf): GraphHost => {
    const members: Partial<GraphHost> = {
      canExtract: false,
      changed(patch: Patch) {
        if (patch.selection !== undefined) host.onSelect?.(side, patch.selection);
        synchronizer.changed(side, patch);
        if (patch.selection !== undefined) markSelection();
      },
      counterpart(target) {
        const there = data.counterpart(side, target);
        const name = there === null ? "no counterpart" : columns[otherSide(side)].nameOf(there) || "(unnamed)";
        return host.counterpartFacts(side, target, name);
      },
    };
    // the other members stay those of the host, even when they change
    return Object.setPrototypeOf(members, host.graphs[side]) as GraphHost;
  };
  const open = new Set(options.open ?? defaultOpen(columns[0]));
  const choose = createOpening(columns, data, synchronizer.opened);
  const view = (side: SideOf): GraphView => {
    const graphOptions = {
      isNested: true,
      isPaired: true,
      ...(options.open === undefined
        ? { opening: choose(side) }
        : { open: side === 0 ? open : openLike(open, columns, data) }),
      height: options.height,
      bar: bars[side],
      statuses: new DiffStatuses(data.statuses(side)),
      onLook: () => synchronizer.onLook(side),
      onSearch: (text: string) => synchronizer.onSearch(side, text),
    };
    const graphView = new GraphView(inner[side], columns[side], hostOf(side), graphOptions, signal);
    inner[side].dataset.widget = ROLES[side];
    for (const type of ["pointerdown", "wheel", "keydown", "focusin"] as const) {
      for (const element of [panes[side], bars[side]]) {
        on(element, type, { signal, capture: true, passive: true }, () => lead(side));
      }
    }
    return graphView;
  };
  const views: Views = [view(0), view(1)];
  synchronizer.attach(views);
  lead(0);
  onState(inner, signal, () => {
    const states = inner.map((graph) => graph.dataset.state);
    root.dataset.state = states.includes("error") ? "error" : states.every((s) => s === "drawn") ? "drawn" : "loading";
  });
  watchWidth(root, inner, options.height, signal);

  return {
    views,
    setSync,
    /** Marks the side in which the person works now. */
    lead,
    /** Selects targets in both graphs, without notifying the host, and shows the first of each side by side. */
    show(targets: readonly [readonly Target[], readonly Target[]]): void {
      synchronizer.show(targets);
      markSelection();
    },
  };
}

/**
 * Returns what opens the scopes of a side that fit, as for one graph. The right one, whose size comes second, opens like
 * the left one if that fits.
 */
function createOpening(
  columns: readonly [Columns, Columns],
  data: PairData,
  onOpen: (side: SideOf, open: ReadonlySet<number>) => void,
) {
  let left: Opening | null = null;
  const choose = (side: SideOf, fits: Fits, where: string): Opening => {
    if (side === 1 && left !== null) {
      const open = openLike(left.open, columns, data);
      for (const zoom of ZOOMS) {
        const columnHeight = fits(open, zoom, left.brief, left.columnHeight);
        if (columnHeight !== null) return { ...left, open, columnHeight };
      }
    }
    return opening(columns[side], fits, where);
  };
  return (side: SideOf) =>
    (fits: Fits, where: string): Opening => {
      const chosen = choose(side, fits, where);
      if (side === 0) left = chosen;
      onOpen(side, chosen.open);
      return chosen;
    };
}

/** Puts one graph above the other where there is no room for both side by side. */
function watchWidth(root: HTMLElement, inner: readonly HTMLElement[], height: string, signal: AbortSignal): void {
  onResize([root], signal, () => {
    const isStacked = root.clientWidth > 0 && root.clientWidth < NARROW;
    if (isStacked === root.classList.contains("onnx-nb-stacked")) return;
    root.classList.toggle("onnx-nb-stacked", isStacked);
    const graphHeight = isStacked ? `calc(${STACKED_SHARE} * ${height})` : height;
    for (const element of inner) element.style.setProperty("--nb-height", graphHeight);
  });
}
