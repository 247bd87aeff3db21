/** The panel of a profile: kernels by their time, one run on a timeline, a treemap of scopes, original and optimized. */

import type { Extent } from "../charts/chart.ts";
import { roundStep } from "../charts/errorplot.ts";
import { squarify, type Tile, type TileLayout, Tiles } from "../charts/tiles.ts";
import { append } from "../protocol/columns.ts";
import type { ProfileData, ResourceData } from "../protocol/profile.ts";
import { categoryVariable, type Theme } from "../render/theme.ts";
import { bytes, countOf, formatNumber, integer, percent, seconds } from "../scene/formatting.ts";
import { button, el, elide, facts, paneHead, settle } from "../ui/dom.ts";
import {
  barColumn,
  barOf,
  createTableTabs,
  numbers,
  Table,
  type TableColumn,
  type TableOptions,
  tablesBelow,
  texts,
} from "../ui/table.ts";
import { createPanelTask } from "../ui/task.ts";
import { createChartGraph, type GraphSource } from "./chartgraph.ts";
import { csvButton } from "./export.ts";

export interface ProfileOptions {
  readonly height?: number;
  /** a person chose a kernel, −1 for none */
  readonly onChoose?: (kernel: number) => void;
  /** a person chose a tensor that is alive at the peak */
  readonly tensor?: (name: string) => void;
  /** reads what kernels are measured against, which takes a moment; absent where there is no kernel to ask */
  readonly resources?: () => Promise<ResourceData>;
  /** the graph of the model, which stands beside the charts */
  readonly graph?: GraphSource;
  /** shows original and optimized graph; absent where there is none */
  readonly pair?: (parent: HTMLElement, onChoose: (kernel: number) => void, signal: AbortSignal) => Promise<PairView>;
}

/** Both graphs, in which the nodes of a kernel are selected. */
export interface PairView {
  choose(kernel: number): void;
}

/** Pixels of a lane of the timeline, at most, and of the axis below. */
const LANE = 34;
const AXIS = 18;
const MINIMUM = 90;
/** Pixels of the head of a scope in the treemap, and left of a vertical axis. */
const HEAD = 15;
const LEFT = 44;
/** Maximum number of tensors that are listed as alive at the peak. */
const MAX_TENSORS = 200;

const time = (x: number): string => (Number.isNaN(x) ? "–" : seconds(x, 3));

export function createProfile(root: HTMLElement, data: ProfileData, options: ProfileOptions, signal: AbortSignal) {
  const { about } = data;
  root.classList.add("onnx-nb-profile");
  root.style.setProperty("--nb-height", `${options.height ?? 560}px`);
  let chosenKernel = -1;
  const { live, announce, task } = createPanelTask(root, signal);
  const detail = el("aside.onnx-nb-detail", { "aria-label": "Kernel", tabindex: 0 });
  const describe = (kernel: number): string =>
    `${data.text("op", kernel)} ${elide(data.text("name", kernel), 80)}: ${time(data.seconds[kernel])}, ${percent(data.share[kernel])}`;
  const choose = (kernel: number, person: boolean): void => {
    if (kernel === chosenKernel) return;
    chosenKernel = kernel;
    table.choose(kernel);
    views.choose(kernel);
    graph.choose(kernel);
    explain();
    detail.scrollTop = 0;
    if (kernel >= 0) announce(describe(kernel));
    if (person) options.onChoose?.(kernel);
  };
  const pick = (kernel: number): void => choose(kernel, true);
  const explain = (): void => detail.replaceChildren(...views.heldTensors(), ...detailsOf(data, chosenKernel, signal));
  const light = (kernels: ReadonlySet<number> | null): void => {
    for (const chart of charts) chart.light(kernels);
  };
  const color = (kernel: number, theme: Theme): string => theme.categories[data.category[kernel]] ?? theme.dim;
  const rows = {
    count: data.count,
    name: (kernel: number): string => data.text("name", kernel),
    nodesOf: (kernel: number): Int32Array => data.nodes(kernel),
    onChoose: pick,
  };
  const graph = createChartGraph(options.graph, rows, task, signal);
  const common = { color, categories: about.categories, describe, onChoose: pick, ...graph.events };
  const chart = (label: string, zooms: boolean, arrange: (w: number, h: number, extent: Extent) => TileLayout): Tiles =>
    new Tiles({ label, arrange, zooms, ...common }, signal);
  const charts = [
    chart("Kernels of one run, in order", true, (w, h, extent) => timelineOf(data, w, h, extent)),
    chart("Kernels by scope", false, (w, h) => treemapOf(data, w, h)),
  ];
  if (options.resources !== undefined) {
    const roofline = (w: number, h: number) => views.layoutOf((r) => rooflineOf(data, r, w, h));
    const memory = (w: number, h: number, extent: Extent) => views.layoutOf((r) => memoryOf(data, r, w, h, extent));
    charts.push(chart("Speed of kernels by their intensity", false, roofline), chart("Memory by step", true, memory));
  }
  const sorting = { key: "time", descending: true };
  const tableOf = (noun: string, title: string, tableOptions: Omit<TableOptions, "label" | "noun" | "sorting">) =>
    new Table({ label: `${title}s of ${elide(about.model, 80)}`, noun, sorting, ...tableOptions }, signal);
  const table = tableOf("kernel", "Kernel", {
    count: data.count,
    columns: kernelColumns(data),
    onChoose: pick,
    onActivate: () => detail.focus(),
  });
  const sums = ({ names, members }: Sums, noun: string, title: string) => {
    const columns = sumColumns(data, title, names, members);
    const lightRows = (row: number): void => light(row < 0 ? null : new Set(members[row]));
    return [names.length, tableOf(noun, title, { count: names.length, columns, onChoose: lightRows })] as const;
  };
  const byLayer = sums(byScope(data), "scope", "Scope");
  const changeTable = (): Table => {
    const onChoose = (row: number): void => pick(row < 0 ? -1 : data.column("change_kernel")[row]);
    return tableOf("set", "Change", { count: data.changes, columns: changeColumns(data), onChoose });
  };
  const tabs = createTableTabs(
    [
      ...(about.compared ? [["Changes", data.changes, changeTable()] as const] : []),
      ...(byLayer[0] > 0 ? [["Scopes", ...byLayer] as const] : []),
      ["Operators", ...sums(byOperator(data), "operator", "Operator")],
      ["Kernels", data.count, table],
    ],
    signal,
    () => light(null),
  );
  tabs.show(0);
  const views = createViews(root, data, charts, options, pick, () => explain(), signal);

  const save = csvButton(table, `${about.model} kernels`, signal);
  const linkNote = el("span.onnx-nb-dim.onnx-nb-linked");
  const left = about.left_out > 0 ? [`${countOf(about.left_out, "short execution")} not on the timeline`] : [];
  const message = el("b.onnx-nb-said", elide(about.message, 900));
  const factsLine = el("span.onnx-nb-dim", [...about.facts, ...left].join(" · "));
  views.bar.append(graph.bar);
  root.replaceChildren(
    el("header.onnx-nb-bar", el("div.onnx-nb-announced", message, factsLine, linkNote), save),
    task.element,
    graph.body(
      detail,
      views.bar,
      ...charts.map(({ element }) => element),
      views.pair,
      tablesBelow([...tabs.buttons, ...tabs.filters], tabs.tables),
    ),
    live,
  );
  explain();
  return {
    choose: (kernel: number): void => choose(kernel, false),
    setLink: (text: string): void => linkNote.replaceChildren(elide(text, 200)),
    redraw(): void {
      for (const chart of charts) chart.redraw();
    },
  };
}

/** Creates the views above the tables, with a button for each: charts, and both graphs once they are asked for. */
function createViews(
  root: HTMLElement,
  data: ProfileData,
  charts: readonly Tiles[],
  options: ProfileOptions,
  pick: (kernel: number) => void,
  explain: () => void,
  signal: AbortSignal,
) {
  let resources: ResourceData | string = "";
  let current = 0;
  let pair: PairView | null = null;
  let pairKernel = -1;
  const pairPlace = el("div.onnx-nb-profile-pair");
  const buttons = [
    ["Timeline", "One run, kernel by kernel; drag to choose a range, + or − to zoom, 0 for all"],
    ["Treemap", "Time of each kernel inside its scopes"],
    ...(charts.length < 4
      ? []
      : [
          ["Roofline", "Speed of each kernel, larger for more time, against what this machine can do"],
          ["Memory curve", "Bytes alive at each node, counted without optimization; drag to choose a range"],
        ]),
    ...(options.pair === undefined ? [] : [["Before and after", "The model beside what onnxruntime made of it"]]),
  ].map(([name, title], at) => button(name, () => press(at), signal, { class: "onnx-nb-small", title }));
  const legend = legendOf(data);
  const turn = (view: number): void => {
    current = view;
    const isPair = view === charts.length;
    if ((view === 2 || view === 3) && !isPair && resources === "") {
      resources = "Measuring this machine…";
      const receive = (reply: ResourceData | string): void => {
        resources = reply;
        for (const chart of charts) chart.redraw();
        explain();
      };
      settle(options.resources?.() ?? Promise.reject(), signal, receive, (error) => receive(String(error)));
    }
    for (const [at, button] of buttons.entries()) button.setAttribute("aria-pressed", String(at === view));
    for (const [at, { element }] of charts.entries()) element.hidden = at !== view;
    pairPlace.hidden = !isPair;
    legend.hidden = isPair;
    root.classList.toggle("onnx-nb-profile-pairing", isPair);
    if (!isPair || pairPlace.hasChildNodes() || options.pair === undefined) return;
    pairPlace.append(el("p.onnx-nb-nothing.onnx-nb-dim", "Reading both graphs…"));
    settle(
      options.pair(pairPlace, pick, signal),
      signal,
      (view) => {
        pair = view;
        pair.choose(pairKernel);
      },
      (error) => pairPlace.replaceChildren(el("p.onnx-nb-nothing", { role: "alert" }, String(error))),
    );
  };
  turn(0);
  const press = (view: number): void => {
    turn(view);
    explain();
  };
  const layoutOf = (arrange: (machine: ResourceData) => TileLayout): TileLayout =>
    typeof resources === "string" ? { tiles: [] } : arrange(resources);
  /** The tensors that are alive at the peak, beside the curve. */
  const heldTensors = (): Node[] => {
    if ((current !== 2 && current !== 3) || charts.length < 4 || resources === "") return [];
    if (typeof resources === "string") return [el("p", { role: "alert" }, elide(resources, 400))];
    if (current === 2) return [];
    const { about, heldBytes } = resources;
    const tensors = Array.from(heldBytes.subarray(0, MAX_TENSORS), (size, at) => {
      const name = (resources as ResourceData).text("tensor", at);
      const title = `Select ${elide(name, 160)} in the graph`;
      const show = button(elide(name, 80), () => options.tensor?.(name), signal, { class: "onnx-nb-link", title });
      return el("li", show, el("span.onnx-nb-dim", ` ${bytes(size)}`), barOf(size, heldBytes[0], "var(--nb-accent)"));
    });
    return [el("b", about.message), el("ul.onnx-nb-profile-nodes", ...tensors)];
  };
  return {
    layoutOf,
    heldTensors,
    bar: el("div.onnx-nb-chart-bar", ...buttons, legend),
    pair: pairPlace,
    choose(kernel: number): void {
      pairKernel = kernel;
      for (const chart of charts) chart.choose(kernel);
      pair?.choose(kernel);
    },
  };
}

// ---------------------------------------------------------------- charts

/** Places the executions of one run: a lane for each thread, and one below for kernels in bodies. */
export function timelineOf(data: ProfileData, w: number, h: number, [from, to]: Extent): TileLayout {
  const { kernel, start, seconds: durations, thread } = data.spans;
  const depth = new Uint8Array(data.count);
  for (let kernelRow = 0; kernelRow < data.count; kernelRow++) {
    for (let above = data.parent[kernelRow]; above >= 0; above = data.parent[above]) depth[kernelRow]++;
  }
  const keys = Array.from(kernel, (kernelRow, at) => thread[at] * 256 + depth[kernelRow]);
  const lanes = [...new Set(keys)].sort((a, b) => a - b);
  const end = start.reduce((max, begin, at) => Math.max(max, begin + durations[at]), 0) || 1;
  const lane = Math.min(LANE, (h - AXIS) / Math.max(1, lanes.length));
  const x = (t: number): number => ((t / end - from) / (to - from)) * w;
  const tiles = [];
  for (let at = 0; at < kernel.length; at++) {
    const [left, right] = [x(start[at]), x(start[at] + durations[at])];
    if (right < 0 || left > w) continue;
    const y = lanes.indexOf(keys[at]) * lane;
    const label = data.text("op", kernel[at]);
    const [x0, x1] = [Math.max(0, left), Math.min(w, right)];
    tiles.push({ row: kernel[at], x: x0, y, w: x1 - x0, h: lane, label });
  }
  const bottom = Math.min(h - AXIS, lanes.length * lane) + 2;
  const tickStep = roundStep(((to - from) * end) / Math.max(2, Math.floor(w / 110)));
  const texts = [];
  const lines: [number, number, number, number][] = [];
  for (let tick = Math.ceil((from * end) / tickStep) * tickStep; tick <= to * end + tickStep / 1e6; tick += tickStep) {
    if (x(tick) > w - 46) break;
    texts.push({ x: x(tick) + 3, y: bottom + AXIS / 2, text: time(Math.round(tick * 1e9) / 1e9) });
    lines.push([x(tick), bottom - 2, x(tick), bottom + 6]);
  }
  return { tiles, texts, lines, height: Math.max(MINIMUM, lanes.length * LANE + AXIS) };
}

/** Places scopes inside each other, and kernels in their scopes, with areas that are their time. */
export function treemapOf(data: ProfileData, w: number, h: number): TileLayout {
  const { scope, scopeParent, seconds: durations } = data;
  const inside: number[][] = Array.from(scopeParent, () => []);
  const below: number[][] = Array.from(scopeParent, () => []);
  const total = new Float64Array(scopeParent.length);
  for (let kernel = 0; kernel < data.count; kernel++) {
    const ownScope = Math.max(0, scope[kernel]);
    inside[ownScope].push(kernel);
    for (let above = ownScope; above >= 0; above = scopeParent[above]) total[above] += durations[kernel];
  }
  scopeParent.forEach((parent, child) => {
    if (parent >= 0 && total[child] > 0) below[parent].push(child);
  });
  const tiles: Tile[] = [];
  const place = (at: number, x: number, y: number, w: number, h: number, depth: number, above: string): void => {
    const parts = [...below[at].map((child) => ~child), ...inside[at]]
      .map((part) => [part, part < 0 ? total[~part] : durations[part]] as const)
      .sort(([, a], [, b]) => b - a);
    const sizes = parts.map(([, size]) => size);
    squarify(sizes, x, y, w, h).forEach(([px, py, pw, ph], number) => {
      const [part] = parts[number];
      if (pw * ph < 0.4) return;
      if (part >= 0) {
        tiles.push({ row: part, x: px, y: py, w: pw, h: ph, label: data.text("op", part) });
        return;
      }
      const path = data.text("scope_path", ~part);
      const isSingle = below[~part].length + inside[~part].length === 1;
      const hasHead = !isSingle && pw > 44 && ph > 2.2 * HEAD;
      const label = path.slice(sharedLength(path, above));
      if (hasHead) tiles.push({ row: -1, x: px, y: py, w: pw, h: ph, label, depth });
      const [head, edge] = hasHead ? [HEAD, 2] : [0, 0];
      const [wide, high] = [Math.max(0, pw - 2 * edge), Math.max(0, ph - head - edge)];
      place(~part, px + edge, py + head, wide, high, hasHead ? depth + 1 : depth, hasHead ? path : above);
    });
  };
  place(0, 0, 0, w, h, 0, "");
  return { tiles };
}

/** Places kernels by intensity and speed, on logarithmic axes, below what the machine can do. */
export function rooflineOf(data: ProfileData, { about }: ResourceData, w: number, h: number): TileLayout {
  const [intensity, gflops] = [data.numbers("intensity"), data.numbers("gflops")];
  const [peak, bandwidth] = about.speeds.map((speed) => speed / 1e9);
  const kernels = Array.from({ length: data.count }, (_, kernel) => kernel)
    .filter((kernel) => intensity[kernel] > 0 && gflops[kernel] > 0)
    .sort((a, b) => data.share[b] - data.share[a]);
  const idleCount = data.count - kernels.length;
  const note = idleCount > 0 ? `${countOf(idleCount, "kernel")} without arithmetic` : "";
  if (kernels.length === 0) return { tiles: [], texts: [{ x: 8, y: 14, text: note }] };
  const roofs = peak > 0;
  const scale = (values: number[], from: number, to: number) => {
    const logs = values.map(Math.log10);
    const low = Math.floor(logs.reduce((a, b) => Math.min(a, b)));
    const high = Math.max(low + 1, Math.ceil(logs.reduce((a, b) => Math.max(a, b))));
    const at = (x: number): number => from + ((Math.log10(x) - low) / (high - low)) * (to - from);
    return [at, Array.from({ length: high - low + 1 }, (_, step) => 10 ** (low + step))] as const;
  };
  const [x, xTicks] = scale([...kernels.map((k) => intensity[k]), ...(roofs ? [peak / bandwidth] : [])], LEFT, w - 28);
  const [y, yTicks] = scale([...kernels.map((k) => gflops[k]), ...(roofs ? [peak] : [])], h - AXIS - 4, HEAD);
  const lines: [number, number, number, number, boolean?][] = [];
  const texts = [
    ...xTicks.map((tick) => ({ x: x(tick) - 4, y: h - 8, text: formatNumber(tick, 3) })),
    ...yTicks.map((tick) => ({ x: 2, y: y(tick), text: formatNumber(tick, 3) })),
    { x: LEFT + 6, y: HEAD - 7, text: "GFLOP/s over FLOP/byte" },
    { x: w - 6 * note.length - 8, y: h - AXIS - 10, text: note },
  ];
  lines.push([LEFT, HEAD, LEFT, h - AXIS], [LEFT, h - AXIS, w, h - AXIS]);
  if (roofs) {
    const left = Math.max(xTicks[0], yTicks[0] / bandwidth);
    const [x0, y0, x1, y1] = [x(left), y(left * bandwidth), x(peak / bandwidth), y(peak)];
    lines.push([x1, y1, w, y1, true], [x0, y0, x1, y1, true]);
    texts.push({ x: w - 72, y: y1 - 8, text: `${formatNumber(peak, 3)} GFLOP/s` });
    // below the middle of the slope
    texts.push({ x: (x0 + x1) / 2 + 8, y: (y0 + y1) / 2 + 8, text: `${formatNumber(bandwidth, 3)} GB/s` });
  }
  const tiles = kernels.map((row) => {
    const side = Math.max(10, Math.min(34, Math.sqrt(data.share[row]) * 48));
    const [px, py] = [x(intensity[row]) - side / 2, y(gflops[row]) - side / 2];
    return { row, x: px, y: py, w: side, h: side, label: data.text("op", row) };
  });
  return { tiles, texts, lines };
}

/** Places the bytes that are alive at each step of a run, in order. */
export function memoryOf(
  data: ProfileData,
  { kernel, aliveBytes }: ResourceData,
  w: number,
  h: number,
  [from, to]: Extent,
): TileLayout {
  const max = aliveBytes.reduce((a, b) => Math.max(a, b), 0) || 1;
  const [wide, high] = [w / (to - from) / aliveBytes.length, h - HEAD];
  const tiles: Tile[] = [];
  for (let step = Math.floor(from * aliveBytes.length); step < to * aliveBytes.length; step++) {
    const [x, barHeight] = [step * wide - (from / (to - from)) * w, (aliveBytes[step] / max) * high];
    const label = kernel[step] < 0 ? "" : data.text("op", kernel[step]);
    tiles.push({ row: kernel[step], x, y: h - barHeight, w: wide, h: barHeight, label });
  }
  return { tiles, texts: [{ x: 4, y: 7, text: `Peak ${bytes(max)}` }], lines: [[0, HEAD, w, HEAD]] };
}

/** Returns the number of characters of the parts that two paths begin with. */
function sharedLength(path: string, ancestor: string): number {
  let [at, end] = [0, 0];
  while (at < ancestor.length && path[at] === ancestor[at]) if (/[/.]/.test(path[at++])) end = at;
  return at === ancestor.length && /[/.]/.test(path[at] ?? "") ? at + 1 : end;
}

/** Names the colors, those of the most time first. */
function legendOf(data: ProfileData): HTMLElement {
  const sums = new Map<number, number>();
  for (const [kernel, category] of data.category.entries())
    sums.set(category, (sums.get(category) ?? 0) + data.share[kernel]);
  const shares = [...sums].sort(([, a], [, b]) => b - a).filter(([, share]) => share >= 0.001);
  const keys = shares.map(([category, share]) => {
    const patch = el("i", { style: { background: colorOf(data, category) } });
    return el("span", patch, `${data.about.categories[category]} ${percent(share)}`);
  });
  return el("div.onnx-nb-profile-legend.onnx-nb-dim", ...keys);
}

function colorOf(data: ProfileData, category: number): string {
  return `var(${categoryVariable(data.about.categories[category])}, var(--nb-cat-other))`;
}

// ---------------------------------------------------------------- tables

/** Columns that identify a kernel and its time fit into the narrowest panel; the others give way. */
function kernelColumns(data: ProfileData): readonly TableColumn[] {
  const providers = new Set(Array.from({ length: data.count }, (_, kernel) => data.text("provider", kernel)));
  const rate = (name: string, title: string, hint: string, spare: number): TableColumn =>
    numbers(name, title, [62, 0.4], data.numbers(name), (x) => formatNumber(x, 3), { spare, hint });
  const nodes = Float64Array.from({ length: data.count }, (_, kernel) => data.nodes(kernel).length);
  const computes = (kernel: number): string => {
    const [first = "", ...moreNames] = data.nodeNames(kernel);
    const name = /^\S+ '(.*)'$/.exec(first)?.[1] ?? first;
    return moreNames.length === 0 ? name : `${name} +${moreNames.length}`;
  };
  const where = (kernel: number): string =>
    [data.text("inside", kernel), data.text("edge", kernel)].filter(Boolean).join(" ");
  return [
    texts("kernel", "Kernel", [100, 3], (kernel) => data.text("name", kernel), { names: true }),
    texts("op", "Op", [84, 1], (kernel) => data.text("op", kernel), { spare: 1 }),
    texts("computes", "Computes", [120, 2], computes, { names: true, hint: "Nodes of the model", spare: 6 }),
    barColumn(data.share, (kernel) => colorOf(data, data.category[kernel]), 3),
    numbers("time", "Time", [74, 0.4], data.seconds, time, { hint: "Median of the runs, without bodies" }),
    numbers("spread", "±", [64, 0.3], data.numbers("spread"), time, { spare: 4, hint: "Half the interquartile range" }),
    numbers("share", "Share", [56, 0.3], data.share, percent),
    numbers("nodes", "Nodes", [50, 0.2], nodes, integer, { spare: 5, hint: "How many nodes of the model it computes" }),
    ...(providers.size > 1
      ? [texts("provider", "Provider", [84, 1], (kernel) => shortProvider(data, kernel), { spare: 2 })]
      : []),
    rate("gflops", "GFLOP/s", "Billions of floating-point operations a second", 7),
    rate("gbs", "GB/s", "Billions of bytes read and written a second", 8),
    rate("intensity", "FLOP/B", "Arithmetic intensity: operations for each byte", 9),
    numbers("calls", "Calls", [48, 0.2], data.numbers("calls"), integer, { spare: 12 }),
    numbers("memory", "Memory", [66, 0.3], data.numbers("memory"), bytes, { spare: 11, hint: "In use when it ended" }),
    texts("where", "Inside, on", [70, 1], where, { spare: 10, names: true }),
  ];
}

function shortProvider(data: ProfileData, kernel: number): string {
  return data.text("provider", kernel).replace("ExecutionProvider", "");
}

interface Sums {
  readonly names: readonly string[];
  readonly members: readonly (readonly number[])[];
}

function byOperator(data: ProfileData): Sums {
  const members = new Map<string, number[]>();
  for (let kernel = 0; kernel < data.count; kernel++) append(members, data.text("op", kernel), kernel);
  return { names: [...members.keys()], members: [...members.values()] };
}

function byScope(data: ProfileData): Sums {
  const members: number[][] = Array.from(data.scopeParent, () => []);
  for (let kernel = 0; kernel < data.count; kernel++) {
    for (let above = data.scope[kernel]; above >= 0; above = data.scopeParent[above]) members[above].push(kernel);
  }
  const scopes = members.flatMap((kernels, scope) => (kernels.length > 0 && scope > 0 ? [scope] : []));
  return {
    names: scopes.map((scope) => `${data.text("scope_path", scope)} ${data.text("scope_class", scope)}`.trim()),
    members: scopes.map((scope) => members[scope]),
  };
}

function sumColumns(data: ProfileData, title: string, names: Sums["names"], members: Sums["members"]): TableColumn[] {
  const sum = (of: Float64Array): Float64Array =>
    Float64Array.from(members, (kernels) => kernels.reduce((total, kernel) => total + of[kernel], 0));
  const share = sum(data.share);
  const counts = Float64Array.from(members, ({ length }) => length);
  return [
    texts("name", title, [100, 3], (row) => names[row], { names: true }),
    barColumn(share, () => "var(--nb-accent)", 1),
    numbers("time", "Time", [74, 0.5], sum(data.seconds), time),
    numbers("share", "Share", [56, 0.4], share, percent),
    numbers("kernels", "Kernels", [64, 0.4], counts, integer, { spare: 2 }),
  ];
}

function changeColumns(data: ProfileData): TableColumn[] {
  const column = (name: string, title: string, spare: number, hint = ""): TableColumn =>
    numbers(name, title, [70, 0.5], data.numbers(`change_${name}`), time, { spare, hint });
  const text = (name: string) => (row: number) => data.text(`change_${name}`, row);
  const ops = (row: number): string => {
    const [before, after] = [text("before_op")(row), text("op")(row)];
    return before === after || after === "" ? before : before === "" ? after : `${before} → ${after}`;
  };
  return [
    texts("verdict", "Verdict", [84, 0.4], text("verdict"), { isBad: (row) => text("verdict")(row) === "slower" }),
    texts("name", "Nodes", [80, 2], text("name"), { names: true, hint: "First node of each set" }),
    texts("op", "Kernels", [110, 2], ops, { spare: 3 }),
    column("before", "Before", 1),
    column("after", "After", 1),
    column("difference", "Difference", 0),
    column("noise", "Noise", 2, "A smaller difference may be chance"),
  ];
}

// ---------------------------------------------------------------- details

/** Describes a kernel, where none is chosen the slowest. */
function detailsOf(data: ProfileData, chosenKernel: number, signal: AbortSignal): Node[] {
  const kernel = chosenKernel < 0 ? data.share.indexOf(data.share.reduce((a, b) => Math.max(a, b), 0)) : chosenKernel;
  if (kernel < 0) return [];
  const number = (name: string): number => data.numbers(name)[kernel];
  const name = data.text("name", kernel);
  const rate = (of: string, unit: string): string =>
    Number.isNaN(number(of)) ? "" : `${formatNumber(number(of), 3)} ${unit}`;
  const list = facts([
    ["operator", data.text("op", kernel)],
    ["provider", shortProvider(data, kernel)],
    ["time", `${time(data.seconds[kernel])} ± ${time(number("spread"))}, ${percent(data.share[kernel])}`],
    ["calls", integer(number("calls"))],
    ["threads", integer(number("threads"))],
    ["speed", [rate("gflops", "GFLOP/s"), rate("gbs", "GB/s")].filter(Boolean).join(", ")],
    ["intensity", rate("intensity", "FLOP/byte")],
    ["in use after", Number.isNaN(number("memory")) ? "" : bytes(number("memory"))],
    ["types", data.text("types", kernel)],
    ["scope", data.scope[kernel] < 0 ? "" : data.text("scope_path", data.scope[kernel])],
    ["inside", data.text("inside", kernel)],
  ]);
  const names = data.nodeNames(kernel);
  const edge = data.text("edge", kernel);
  const how = data.text("how", kernel);
  const title =
    edge !== ""
      ? `Inserted by onnxruntime on ${elide(edge, 120)}, between`
      : names.length === 0
        ? "Its nodes were not found"
        : `Computes ${countOf(names.length, "node")}${names.length > 1 ? " at once" : ""}`;
  const nodes = el("ul.onnx-nb-profile-nodes", ...names.map((nodeName) => el("li.onnx-nb-mono", elide(nodeName, 160))));
  const origin = how === "" || how === "edge" ? null : el("p.onnx-nb-dim", `found by ${how}`);
  return [...paneHead("kernel", name, signal), list, el("b", title), nodes, origin].filter((node) => node !== null);
}
