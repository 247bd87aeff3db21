/**
 * The panel of two decoders: steps across, halves of layers down, colored by their errors, and above them the tokens
 * that both sides would choose; below, a table of the steps, and details of the chosen one.
 */

import { type TileLayout, Tiles } from "../charts/tiles.ts";
import type { Pack } from "../protocol/codec.ts";
import type { Steps } from "../protocol/decoding.ts";
import type { OverlayData } from "../protocol/host.ts";
import type { Theme } from "../render/theme.ts";
import { countOf, formatNumber, integer, magnitude } from "../scene/formatting.ts";
import { button, copyButton, el, elide, facts, fillings } from "../ui/dom.ts";
import { numbers, Table, tablesBelow, texts } from "../ui/table.ts";
import { createPanelTask, type OnProgress } from "../ui/task.ts";
import { createChartGraph, type GraphSource } from "./chartgraph.ts";
import { csvButton } from "./export.ts";

export interface DecodingOptions {
  readonly height?: number;
  /** shows the operations of a step, and returns "" */
  /** the graph of the candidate, which stands beside the chart; absent where there is none */
  readonly graph?: GraphSource;
  readonly drill?: (step: number, signal: AbortSignal, progress: OnProgress) => Promise<string>;
}

/** Pixels of the rows of tokens, of the axis below, and of the widest and the tallest tile. */
const TOKENS = 20;
const AXIS = 18;
const WIDEST = 64;
const TALLEST = 28;
/** Share of the chart, and most pixels, for the names of parts; characters of a name. */
const NAMES = [0.25, 190] as const;
const MAX_NAME = 28;
/** The error that has the first color of the scale, and the one that has the last. */
const [SMALLEST, LARGEST] = [1e-7, 1];

const SIDES = ["reference", "candidate"] as const;

export function createDecoding(root: HTMLElement, data: Steps, options: DecodingOptions, signal: AbortSignal) {
  const { about, count } = data;
  const { parts } = about;
  root.classList.add("onnx-nb-profile");
  root.style.setProperty("--nb-height", `${options.height ?? 560}px`);
  const { live, announce, task } = createPanelTask(root, signal);
  const detail = el("aside.onnx-nb-detail", { "aria-label": "Step", tabindex: 0 });
  const filling = fillings(signal);
  let chosenStep = -1;
  const nodes = parts.map((): number[] => []);
  const rows = {
    count: parts.length,
    name: (part: number): string => parts[part],
    nodesOf: (part: number, { arrays }: Pack): number[] => {
      const places = nodes.some((several) => several.length > 0) ? [] : (arrays.get("node_part") ?? []);
      for (const [node, place] of places.entries()) nodes[place]?.push(node);
      return nodes[part];
    },
    onChoose: (part: number): void => choose(Math.max(chosenStep, 0), Math.max(part, 0)),
    overlayOf: (pack: Pack): OverlayData => overlayOf(data, chosenStep, pack),
  };
  const graph = createChartGraph(options.graph, rows, task, signal);
  /** @param part the tokens of the reference and of the candidate are behind the last one */
  const choose = (step: number, part: number): void => {
    table.choose(step);
    chart.choose(step < 0 ? -1 : part * count + step);
    if (step !== chosenStep) {
      chosenStep = step;
      graph.recolor();
    }
    graph.choose(step < 0 || part >= parts.length ? -1 : part);
    const round = filling();
    const drill = options.drill;
    const compare = (abort: AbortSignal, progress: OnProgress) => drill?.(step, abort, progress) ?? Promise.resolve("");
    const run = (): void => task.run(`Comparing the operations of step ${step}…`, compare);
    const title = "Compare the operations of this step, each by itself";
    const actions =
      drill === undefined ? [] : [button("Drill down", run, round, { class: "onnx-nb-small onnx-nb-act", title })];
    if (about.drills) actions.push(copyButton(() => `c.drill(${step})`, round, "Copy Python"));
    detail.replaceChildren(...(step < 0 ? [] : detailsOf(data, step, part, actions)));
    detail.scrollTop = 0;
    if (step >= 0) announce(describe(data, step, part));
  };
  const chart = new Tiles(
    {
      label: "Errors of layers by step",
      arrange: (w, h) => layoutOf(data, w, h),
      color: (row, theme) => colorOf(data, row, theme),
      categories: [],
      stride: count,
      describe: (row) => describe(data, row % count, Math.floor(row / count)),
      onChoose: (row) => (row < 0 ? choose(-1, 0) : choose(row % count, Math.floor(row / count))),
      zooms: false,
    },
    signal,
  );
  const worst = (step: number): number => Math.max(0, parts.indexOf(data.text("part", step)));
  const table = new Table(
    {
      label: `Steps of ${elide(about.name, 80)}`,
      noun: "step",
      count,
      columns: stepColumns(data),
      onChoose: (step) => choose(step, step < 0 ? 0 : worst(step)),
      onActivate: () => detail.focus(),
    },
    signal,
  );
  const others = data.reference.filter((token, step) => token !== data.candidate[step]).length;
  const ties = data.ties.filter(Boolean).length;
  const counts = [countOf(count, "step"), countOf(parts.length, "part"), countOf(others, "other token")];
  if (ties > 0) counts.push(countOf(ties, "near tie"));
  const goToFirst = (): void => choose(...(about.first ?? [0, 0]));
  const show = button("Show it", goToFirst, signal, { class: "onnx-nb-small", title: "Choose the first fault" });
  show.hidden = about.first === null;
  const verdict = about.first !== null ? "bad" : about.quantized ? "caution" : "fine";
  root.replaceChildren(
    el(
      "header.onnx-nb-bar",
      el(`span.onnx-nb-lamp.onnx-nb-${verdict}`, { "aria-hidden": true }),
      el(
        "div.onnx-nb-announced",
        el("b.onnx-nb-said", elide(about.message, 900)),
        el("span.onnx-nb-dim", `${elide(about.name, 48)} · ${counts.join(" · ")}`),
      ),
      show,
      csvButton(table, `${about.name} steps`, signal),
    ),
    task.element,
    graph.body(
      detail,
      el("div.onnx-nb-chart-bar", legend(), el("span.onnx-nb-dim.onnx-nb-order", "steps →")),
      chart.element,
      tablesBelow([el("b", "Steps"), table.filter], [table.element]),
    ),
    live,
  );
  if (count > 0) choose(...(about.first ?? [0, worst(0)]));
  return { redraw: (): void => chart.redraw() };
}

function describe(data: Steps, step: number, part: number): string {
  const { parts } = data.about;
  const tokens = SIDES.map((side) => JSON.stringify(data.token(side, step)));
  if (part >= parts.length) {
    const tie = data.ties[step] === 1 ? ", a near tie" : "";
    return `Step ${step}: ${tokens[0] === tokens[1] ? `both choose ${tokens[0]}` : `${tokens[0]} and ${tokens[1]}`}${tie}`;
  }
  const position = data.fault(step, part);
  const fault = position < 0 ? "" : `, off from position ${position} on`;
  return `Step ${step}, ${parts[part]}: ${magnitude(data.error(step, part))} of what it adds${fault}`;
}

/** Places a tile for each part at each step below two rows of tokens, and names on the left. */
export function layoutOf(data: Steps, w: number, h: number): TileLayout {
  const { count } = data;
  const { parts } = data.about;
  const left = Math.min(NAMES[0] * w, NAMES[1]);
  const top = 2 * TOKENS + 4;
  const wide = Math.min(WIDEST, (w - left) / Math.max(1, count));
  const tall = Math.min(TALLEST, (h - top - AXIS) / Math.max(1, parts.length));
  const cover = Math.min(wide, tall) < 8 ? 1 : 0; // small tiles have no gaps
  const tiles = [];
  const lines: [number, number, number, number, boolean][] = [];
  SIDES.forEach((side, at) => {
    for (let step = 0; step < count; step++) {
      const label = data.token(side, step);
      const place = { x: left + step * wide, y: at * TOKENS, w: wide, h: TOKENS };
      tiles.push({ row: (parts.length + at) * count + step, label, ...place });
    }
  });
  for (let part = 0; part < parts.length; part++) {
    for (let step = 0; step < count; step++) {
      const place = { x: left + step * wide, y: top + part * tall, w: wide + cover, h: tall + cover };
      tiles.push({ row: part * count + step, label: "", ...place });
    }
  }
  const every = Math.max(1, Math.ceil(13 / tall));
  const names = parts.flatMap((name, part) =>
    part % every === 0 ? [{ x: 2, y: top + (part + 0.5) * tall, text: elide(name, MAX_NAME) }] : [],
  );
  const sides = SIDES.map((side, at) => ({ x: 2, y: (at + 0.5) * TOKENS, text: side }));
  const bottom = top + parts.length * tall;
  const stride = Math.max(1, Math.ceil(34 / wide));
  const ticks = [];
  for (let step = 0; step < count && left + step * wide < w - 24; step += stride) {
    ticks.push({ x: left + step * wide + 2, y: bottom + AXIS / 2, text: String(step) });
    lines.push([left + step * wide, bottom, left + step * wide, bottom + 4, false]);
  }
  return { tiles, texts: [...sides, ...names, ...ticks], lines, height: bottom + AXIS };
}

/** Returns the color of a tile: a fault, the error of a part, or whether both sides choose a token. */
function colorOf(data: Steps, row: number, theme: Theme): string {
  const { count } = data;
  const [step, part] = [row % count, Math.floor(row / count)];
  if (part >= data.about.parts.length) {
    if (data.reference[step] === data.candidate[step]) return theme.good;
    return data.ties[step] === 1 ? theme.dim : theme.bad;
  }
  if (data.fault(step, part) >= 0) return theme.bad;
  return theme.ramp.color(Math.log(data.error(step, part) / SMALLEST) / Math.log(LARGEST / SMALLEST) / 1.4);
}

/** Returns the errors of a step, for each node and for each scope that has some of a part. */
function overlayOf(data: Steps, step: number, { arrays }: Pack): OverlayData {
  const error = (part: number): number => (part < 0 || step < 0 ? Number.NaN : data.error(step, part));
  const nodes = Float64Array.from(arrays.get("node_part") ?? [], error);
  const scopes = new Float64Array(arrays.get("scope_parent")?.length ?? 0).fill(Number.NaN);
  const pairs = arrays.get("scope_parts") ?? [];
  for (let at = 0; at < pairs.length; at += 2) {
    scopes[pairs[at]] = Math.max(scopes[pairs[at]] || 0, error(pairs[at + 1]));
  }
  const about = { label: `error at step ${step}`, scale: "log", reduce: "max", unmatched: 0 } as const;
  return { ...about, nodes, scopes, ends: [SMALLEST, LARGEST] };
}

function legend(): HTMLElement {
  const key = (color: string, text: string): HTMLElement => el("span", el("i", { style: { background: color } }), text);
  return el(
    "div.onnx-nb-profile-legend",
    key("var(--nb-bad)", "off by more than rounding, or another token"),
    key("var(--nb-dim)", "near tie"),
    key("var(--nb-good)", "the same token"),
  );
}

function stepColumns(data: Steps) {
  const step = Float64Array.from({ length: data.count }, (_, row) => row);
  const parted = (row: number): boolean => data.reference[row] !== data.candidate[row] && data.ties[row] === 0;
  const hint = "By how much the reference's best logit is above its second";
  return [
    numbers("step", "Step", [48, 0.2], step, integer),
    numbers("position", "Tokens", [56, 0.3], data.position, integer, { spare: 2 }),
    texts("reference", "Reference", [90, 1], (row) => data.token("reference", row)),
    texts("candidate", "Candidate", [90, 1], (row) => data.token("candidate", row), { isBad: parted }),
    ...(data.ties.some(Boolean)
      ? [texts("tie", "Tie", [44, 0.2], (row) => (data.ties[row] === 1 ? "near" : ""), { spare: 1 })]
      : []),
    numbers("margin", "Margin", [66, 0.3], data.margin, (x) => formatNumber(x, 3), { hint }),
    numbers("difference", "Logits differ", [84, 0.3], data.difference, magnitude),
    numbers("kl", "KL", [60, 0.3], data.divergence, magnitude, { spare: 1 }),
    texts("part", "Largest error", [130, 2], (row) => data.text("part", row), { names: true }),
    numbers("error", "Of what it adds", [104, 0.3], data.worst, magnitude),
  ];
}

function detailsOf(data: Steps, step: number, part: number, actions: HTMLElement[]): Node[] {
  const { parts } = data.about;
  const position = part < parts.length ? data.fault(step, part) : -1;
  const off = parts.filter((_, at) => data.fault(step, at) >= 0);
  return [
    el("div.onnx-nb-dim", `step ${step}`),
    el("h4", parts[part] ?? "tokens"),
    el("div.onnx-nb-row", ...actions),
    facts([
      ["its error", part < parts.length ? `${magnitude(data.error(step, part))} of what it adds` : ""],
      ["off from", position < 0 ? "" : `position ${position}`],
      ["also off", off.filter((name) => name !== parts[part]).join(", ")],
      ["tokens read", integer(data.position[step])],
      ...SIDES.map((side) => [side, `${data.text(`${side}_text`, step)} ${data[side][step]}`.trim()] as const),
      ["margin", `${formatNumber(data.margin[step], 3)}${data.ties[step] === 1 ? ", a near tie" : ""}`],
      ["logits differ", `by ${magnitude(data.difference[step])}`],
      ["KL divergence", `${magnitude(data.divergence[step])} nats`],
    ]),
  ];
}
