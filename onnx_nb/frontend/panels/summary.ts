/** Tables that summarize a model: inputs and outputs, ops, location of the bytes, and cost of a run. */

import { categoryVariable } from "../render/theme.ts";
import { bytes, countOf, formatCompact, integer } from "../scene/formatting.ts";
import { button, copyButton, el, elide, mono, moreButton, sizeField } from "../ui/dom.ts";
import { barOf } from "../ui/table.ts";

/** An `analysis.summarize` result as plain data. */
export interface SummaryData {
  readonly name: string;
  readonly path: string;
  readonly ir_version: number;
  readonly producer: string;
  /** domain, version */
  readonly opsets: readonly (readonly [string, number])[];
  /** name, dtype, shape */
  readonly inputs: readonly (readonly [string, string, string])[];
  readonly outputs: readonly (readonly [string, string, string])[];
  /** op, domain, category, count */
  readonly op_counts: readonly (readonly [string, string, string, number])[];
  readonly nodes: number;
  readonly parameters: number;
  readonly nbytes: number;
  /** dtype, parameters, bytes */
  readonly by_dtype: readonly (readonly [string, number, number])[];
  /** name, dtype, shape, bytes */
  readonly largest: readonly (readonly [string, string, string, number])[];
  /** key, value */
  readonly metadata: readonly (readonly [string, string])[];
  /** name, nodes */
  readonly functions: readonly (readonly [string, number])[];
  readonly doc: string;
  /** kind, message */
  readonly faults: readonly (readonly [string, string])[];
  /** null if it was not counted */
  readonly cost?: CostData | null;
  /** scope, class, MACs, parameters, activation bytes */
  readonly scopes?: readonly (readonly [string, string, number | null, number, number | null])[];
  /** dimensions of inputs whose size is unknown */
  readonly unbound?: readonly string[];
  /** symbol of the number of tokens, bytes for each of them, inputs, symbols that count as 1 */
  readonly caches?: readonly (readonly [string, number, readonly string[], readonly string[]])[];
}

/** `analysis.costs.Cost`: sums over nodes of known cost, and the number of other nodes. */
export interface CostData {
  readonly known_macs: number;
  readonly known_flops: number;
  readonly known_activation_bytes: number;
  readonly unknown_macs: number;
  readonly unknown_flops: number;
  readonly unknown_activation_bytes: number;
}

/** Rows of a longer table before its button is pressed. */
const ROWS_AT_FIRST = 8;
/** Tokens for which the bytes of a cache are shown. */
const TOKENS = [512, 2048, 8192, 32_768, 131_072];
/** Maximum number of rows of a table. */
const MAX_ROWS = 5000;

export interface SummaryOptions {
  /** false: one line, with a button that opens the tables */
  readonly expanded?: boolean;
  /** called when the tables are opened or closed */
  readonly onTurn?: (expanded: boolean) => void;
  /** sizes of dimensions, and shapes of inputs, for which the costs were counted */
  readonly shapes?: Shapes;
  /** counts for other sizes; absent where no kernel can do so */
  readonly onResize?: (shapes: Shapes) => void;
  /** error in the given sizes */
  readonly problem?: string;
  /** shows something in the graph below; absent where there is none */
  readonly onShow?: (part: ModelPart) => void;
}

/** Something in a model, by its name; an operator stands for all of its nodes. */
export interface ModelPart {
  readonly kind: "op" | "tensor" | "scope";
  readonly name: string;
}

export type Shapes = Readonly<Record<string, number | readonly number[]>>;

export function createSummary(
  root: HTMLElement,
  summary: SummaryData,
  options: SummaryOptions,
  signal: AbortSignal,
): void {
  const { name, path, nodes, faults } = summary;
  const header = el(
    "header.onnx-nb-bar",
    el("b.onnx-nb-name", { title: path || name }, elide(name, 80) || "model"),
    el("span.onnx-nb-dim", factsOf(summary).join(" · ")),
  );
  const body = el("div.onnx-nb-cards", ...cardsOf(summary, options, signal));
  if (nodes === 0) body.prepend(el("p.onnx-nb-dim", "This model has no nodes."));
  const words = ([kind, message]: readonly [string, string]): Cell[] => [kind.replaceAll("_", " "), mono(message, 240)];
  const strip = el(
    "div.onnx-nb-strip.onnx-nb-warn",
    el("span.onnx-nb-sign", { "aria-hidden": true }, "⚠"),
    el("b", countOf(faults.length, "fault")),
    copyButton(() => faults.map(([kind, message]) => `${kind}: ${message}`).join("\n"), signal),
    table(["kind", "fault"], faults, words),
  );
  root.classList.add("onnx-nb-summary");
  root.replaceChildren(header, ...(faults.length > 0 ? [strip] : []), body);
  const expand = (expanded: boolean): void => {
    body.hidden = !expanded;
    root.classList.toggle("onnx-nb-folded", !expanded);
    details.setAttribute("aria-expanded", String(expanded));
  };
  const turn = (): void => {
    const expanded = body.hidden === true;
    expand(expanded);
    options.onTurn?.(expanded);
  };
  const details = button("Details", turn, signal, { class: "onnx-nb-details" });
  header.append(details);
  expand(options.expanded ?? true);
}

/** Returns what makes the name in a row a link to the graph below, with a remark behind it. */
function linkTo({ onShow }: SummaryOptions, signal: AbortSignal) {
  return (kind: ModelPart["kind"], name: string, text: HTMLElement, remark = ""): HTMLElement => {
    const show = (): void => onShow?.({ kind, name });
    const link = onShow && button("", show, signal, { class: "onnx-nb-link", title: "Show it in the graph" });
    link?.append(text);
    return el("span", link ?? text, el("span.onnx-nb-dim", ` ${remark}`));
  };
}

/** Returns what the header shows after the name. */
function factsOf(summary: SummaryData): string[] {
  const { nodes, parameters, nbytes, opsets, producer, ir_version: ir } = summary;
  const versions = opsets.map(([domain, version]) =>
    domain === "" || domain === "ai.onnx" ? version : `${elide(domain, 32)} ${version}`,
  );
  return [
    countOf(nodes, "node"),
    countOf(parameters, "parameter").replace(integer(parameters), formatCompact(parameters)),
    bytes(nbytes),
    macsFact(summary),
    `opset ${versions.join(", ") || "none"}`,
    `IR ${ir}`,
    elide(producer, 60),
  ].filter((fact) => fact !== "");
}

function cardsOf(summary: SummaryData, options: SummaryOptions, signal: AbortSignal): HTMLElement[] {
  const { inputs, outputs, op_counts: ops, largest, by_dtype: dtypes, nbytes, functions, metadata, doc } = summary;
  const cards: HTMLElement[] = [];
  const link = linkTo(options, signal);
  const card = (title: string, ...content: (Node | null)[]): void => {
    cards.push(el("section.onnx-nb-card", el("h4", title), ...content));
  };
  const add = <T>(title: string, heads: readonly string[], rows: readonly T[], cells: (row: T) => Cell[]): void => {
    if (rows.length > 0) card(title, table(heads, rows, cells));
  };
  const argument = ([name, dtype, shape]: readonly string[]): Cell[] => [
    link("tensor", name, mono(name)),
    dtype,
    shape || "unknown",
  ];
  add(`inputs · ${integer(inputs.length)}`, ["name", "dtype", "shape"], inputs, argument);
  add(`outputs · ${integer(outputs.length)}`, ["name", "dtype", "shape"], outputs, argument);
  const commonest = Math.max(1, ...ops.map(([, , , count]) => count));
  add(`ops · ${integer(ops.length)}`, ["op", "count", ""], ops, ([op, domain, category, count]) => [
    link("op", op, mono(domain === "" || domain === "ai.onnx" ? op : `${domain}.${op}`, 44)),
    number(integer(count)),
    barOf(count, commonest, `var(${categoryVariable(category)}, var(--nb-cat-other))`, category),
  ]);
  const heaviest = Math.max(1, ...largest.map(([, , , size]) => size));
  add("largest weights", ["name", "bytes", ""], largest, ([name, dtype, shape, size]) => [
    link("tensor", name, mono(name, 80), `${elide(shape, 40)} ${elide(dtype, 24)}`),
    number(bytes(size)),
    barOf(size, heaviest, "var(--nb-accent)", bytes(size)),
  ]);
  add("parameters by dtype", ["dtype", "parameters", "bytes", ""], dtypes, ([dtype, count, size]) => [
    dtype,
    number(formatCompact(count)),
    number(bytes(size)),
    barOf(size, nbytes, "var(--nb-accent)", bytes(size)),
  ]);
  if (summary.cost) card("cost of a run", ...costCard(summary, summary.cost, options, signal));
  for (const [length, tokenBytes, , unitDimensions] of summary.caches ?? []) {
    const conditions = [length, ...unitDimensions.map((dim) => `${dim} = 1`)].map((dim) => elide(dim, 40)).join(", ");
    add(`KV cache · ${bytes(tokenBytes)} a token · ${conditions}`, ["tokens", "bytes", ""], TOKENS, (tokens) => [
      number(integer(tokens)),
      number(bytes(tokens * tokenBytes)),
      barOf(tokens, TOKENS[TOKENS.length - 1], "var(--nb-accent)", bytes(tokens * tokenBytes)),
    ]);
  }
  add("functions", ["name", "nodes"], functions, ([name, count]) => [name, number(integer(count))]);
  add("metadata", ["key", "value"], metadata, ([key, value]) => [key, mono(value, 120)]);
  if (doc.trim() !== "") card("description", el("div.onnx-nb-doc", doc.slice(0, 20_000)));
  return cards;
}

/** Returns "4.1 GMACs", "≥ 4.1 GMACs", the dimensions they depend on, or "MACs unknown"; empty if nothing was counted. */
function macsFact({ cost, unbound = [] }: SummaryData): string {
  if (!cost) return "";
  if (cost.unknown_macs > 0 && unbound.length > 0) return `MACs depend on ${dimensions(unbound)}`;
  if (cost.unknown_macs > 0 && cost.known_macs === 0) return "MACs unknown";
  return withBound(cost.unknown_macs, withUnit(cost.known_macs, "MACs"));
}

function costCard(summary: SummaryData, cost: CostData, options: SummaryOptions, signal: AbortSignal): Node[] {
  const { scopes = [], unbound = [] } = summary;
  const { known_activation_bytes: size, unknown_activation_bytes: unknownSizes } = cost;
  const total = (sum: number, unknownCount: number, text: string): string[] =>
    sum > 0 || unknownCount === 0 ? [withBound(unknownCount, text)] : [];
  const totals = [
    ...total(cost.known_macs, cost.unknown_macs, withUnit(cost.known_macs, "MACs")),
    ...total(cost.known_flops, cost.unknown_flops, withUnit(cost.known_flops, "FLOPs")),
    ...total(size, unknownSizes, `${bytes(size)} of activations`),
  ];
  const parts: Node[] = totals.length > 0 ? [el("p", totals.join(" · "))] : [];
  const unknownCount = Math.max(cost.unknown_macs, cost.unknown_flops, unknownSizes);
  if (unknownCount > 0) {
    const sizes = options.onResize === undefined ? `Give sizes for ${dimensions(unbound)}: shapes={…}.` : "Give sizes:";
    const why = unbound.length > 0 ? sizes : "See costs(model).unknown for the reasons.";
    parts.push(el("p.onnx-nb-dim", `Unknown for ${countOf(unknownCount, "node")}. ${why}`));
  }
  parts.push(...sizeFields(unbound, options, signal));
  const max = Math.max(1, ...scopes.map(([, , macs]) => macs ?? 0));
  // a column of question marks is useless
  const run = scopes.some(([, , macs, , activations]) => macs !== null || activations !== null);
  const rows = table(
    run ? ["scope", "MACs", "parameters", "activations", ""] : ["scope", "parameters"],
    scopes,
    ([scope, cls, macs, parameters, activations]) => {
      const name = linkTo(options, signal)("scope", scope, mono(scope), elide(cls, 40));
      if (!run) return [name, number(formatCompact(parameters))];
      return [
        name,
        number(macs === null ? "?" : formatCompact(macs)),
        number(formatCompact(parameters)),
        number(activations === null ? "?" : bytes(activations)),
        barOf(macs ?? 0, max, "var(--nb-accent)", macs === null ? "unknown" : withUnit(macs, "MACs")),
      ];
    },
  );
  return rows === null ? parts : [...parts, rows];
}

/** Maximum number of dimensions that have a field; more of them can be set in Python. */
const FIELDS = 12;

/** Creates a field for each dimension whose size is known only in a run. */
function sizeFields(
  unbound: readonly string[],
  { shapes = {}, onResize, problem = "" }: SummaryOptions,
  signal: AbortSignal,
): Node[] {
  const bound = Object.keys(shapes).filter((name) => typeof shapes[name] === "number");
  const names = [...bound, ...unbound.filter((name) => !bound.includes(name))].slice(0, FIELDS);
  if (onResize === undefined || names.length === 0) return [];
  const field = (name: string): HTMLElement => {
    const apply = (): void => {
      const { [name]: _, ...otherShapes } = shapes;
      if (input.value === "") onResize(otherShapes);
      else if (/^\d+$/.test(input.value)) onResize({ ...otherShapes, [name]: Number(input.value) });
    };
    const value = bound.includes(name) ? String(shapes[name]) : "";
    const input = sizeField(name, apply, signal, { type: "number", min: 0, step: 1, placeholder: "?", value });
    return el("label", `${elide(name, 40)} = `, input);
  };
  const problemNote = el("p.onnx-nb-bad", { role: "alert" }, elide(problem, 400));
  return [el("div.onnx-nb-row.onnx-nb-sizes", ...names.map(field)), ...(problem === "" ? [] : [problemNote])];
}

function dimensions(unbound: readonly string[]): string {
  const names = unbound.slice(0, 4).map((dimension) => elide(dimension, 32));
  return names.join(", ") + (unbound.length > 4 ? ` and ${integer(unbound.length - 4)} more` : "");
}

function withBound(unknownCount: number, text: string): string {
  return unknownCount > 0 ? `≥ ${text}` : text;
}

/** Returns "4.1 GMACs", "512 MACs". */
function withUnit(count: number, unit: string): string {
  const compact = formatCompact(count);
  return /\d$/.test(compact) ? `${compact} ${unit}` : `${compact}${unit}`;
}

/** A name or number as code, or an element. */
type Cell = Node | string;

/** Returns a table whose rows beyond a few wait behind "show all N"; null if it would be empty. */
function table<T>(columns: readonly string[], rows: readonly T[], cells: (row: T) => Cell[]): HTMLElement | null {
  if (rows.length === 0) return null;
  const body = el("tbody");
  const add = (from: number, to: number): void => {
    for (const row of rows.slice(from, to)) {
      body.append(el("tr", ...cells(row).map((cell) => el("td", typeof cell === "string" ? mono(cell) : cell))));
    }
  };
  // a button must hide more than one row
  const first = rows.length <= ROWS_AT_FIRST + 2 ? rows.length : ROWS_AT_FIRST;
  add(0, first);
  const types = cells(rows[0]).map((cell) => (cell instanceof Element ? cell.className : ""));
  const heads = columns.map((title, at) => el("th", { scope: "col", class: types[at] }, title));
  const head = el("thead", el("tr", ...heads));
  const wrapper = el("div.onnx-nb-tablebox", el("table", head, body));
  const showRest = (): void => {
    add(first, MAX_ROWS);
    if (rows.length > MAX_ROWS) wrapper.append(el("p.onnx-nb-dim", `and ${integer(rows.length - MAX_ROWS)} more`));
  };
  if (first < rows.length) wrapper.append(moreButton(rows.length, showRest));
  return wrapper;
}

function number(text: string): HTMLElement {
  return el("span.onnx-nb-number", text);
}
