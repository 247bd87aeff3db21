/** Facts about the selected tensor, node or scope, or about the whole model when nothing is selected. */

import { statistics } from "../charts/histogram.ts";
import { attributePairs, type Columns, SCOPE_KIND, type Target, VALUE } from "../protocol/columns.ts";
import type { PageData } from "../protocol/host.ts";
import type { Inspection, Origin } from "../protocol/wire.ts";
import { categoryVariable } from "../render/theme.ts";
import { bytes, countOf, formatCompact, integer } from "../scene/formatting.ts";
import type { Overlay } from "../scene/overlay.ts";
import { BOX } from "../scene/scene.ts";
import { boxesIn } from "../scene/scopegraph.ts";
import { type Command, type State, sameTarget } from "../scene/state.ts";
import { quote } from "../search/query.ts";
import { search, statedKeys } from "../search/search.ts";
import {
  button,
  copyButton,
  el,
  elide,
  type Fact,
  facts,
  fillings,
  mono,
  moreButton,
  onAbort,
  paneHead,
  rememberFocus,
  settle,
} from "../ui/dom.ts";
import { failureNote } from "../ui/task.ts";
import { createEditForm, createShape } from "./edits.ts";
import { createSizes } from "./sizes.ts";
import { createValues } from "./values.ts";
import { link, nodeLink, type Panel, type ViewContext, valueLink } from "./viewcontext.ts";

/** Milliseconds without a click after which slow questions are asked. */
const REST_MS = 120;
/** Rows of a long list before a button shows more, and rows after which the list only counts the remainder. */
const ROWS_AT_FIRST = 8;
const MAX_ROWS = 2000;

export function createInspector(view: ViewContext): Panel {
  const { columns, host, signal } = view;
  const root = el("aside.onnx-nb-inspector", { "aria-label": "Inspector", tabindex: 0 });
  const next = fillings(signal);
  let lastState: State | undefined;
  /** updates buttons that follow the state */
  let mark: () => void = () => undefined;

  const fill = (state: State): void => {
    const round = next();
    const focusAgain = rememberFocus(root, () => root);
    if (root.hasChildNodes()) {
      root.replaceChildren();
      root.scrollTop = 0; // makes the browser lay the page out
    }
    mark = () => undefined;
    // the focused button is gone: continue here for a person who pressed it with a key
    queueMicrotask(focusAgain);
    const target = state.selection;
    const values = host.live ? host.values : undefined;
    if (target === null) {
      root.append(...overview(columns));
      if (values !== undefined) root.append(captureAll(view, round), createSizes(values, round));
      return;
    }
    const { kind, id } = target;
    const extra = el("div.onnx-nb-extra");
    /** its cost in a run */
    const figures = el("div");
    if (kind === "tensor") {
      root.append(...tensor(view, id, round));
      if (!columns.isConstant(id) && host.canExtract !== false) mark = boundaryButtons(root, view, id, round);
    } else if (kind === "node") {
      root.append(...node(columns, id, round));
      if (host.canExtract !== false) root.append(el("div.onnx-nb-row", extractButton(view, target, round)));
    } else {
      root.append(...scopeParts(columns, id, round));
      if (id > 0) mark = openButton(root, view, id, round);
    }
    const counterpart = host.counterpart?.(target) ?? [];
    // right below the heading
    if (counterpart.length > 0)
      root.insertBefore(el("div.onnx-nb-compared", facts(counterpart)), root.children[2] ?? null);
    if (kind === "tensor") {
      if (values !== undefined) root.append(createValues(view, id, values, round));
      if (host.pageData !== undefined) root.append(...bakedStatistics(columns, id, host.pageData));
    }
    const form = createEditForm(view, target, round);
    if (form !== null) root.append(form);
    const number = state.overlay === null ? null : numberOf(columns, target, state.overlay);
    if (number !== null) root.append(facts([number]));
    const besides = (rows: readonly Fact[]): Fact[] => rows.filter(([label]) => label !== number?.[0]);
    if (kind !== "scope") root.append(...traces(view, target, round));
    root.append(figures, extra);
    mark();
    const attributes = kind === "node" ? attributeList(statedAttributes(columns, id)) : [];
    if (!host.live) {
      const reply = host.pageData?.inspect(target) ?? null;
      const rows = besides(host.pageData?.figures(target) ?? []);
      if (rows.length > 0) figures.append(facts(rows));
      extra.append(...(reply === null ? attributes : replyParts(reply, round)));
      return;
    }
    settle(
      host.inspect(target, columns.nameOf(target), round),
      round,
      (reply) => extra.replaceChildren(...replyParts(reply, round)),
      (error) => extra.replaceChildren(...attributes, failureNote(error)),
    );
    if (kind === "tensor") return;
    // the kernel answers in order, and the first count of a large model may take a second: ask for it last
    const timer = window.setTimeout(() => {
      const request = host.figures?.(target, round);
      if (request === undefined) return;
      const fill = (rows: Awaited<typeof request>): void => figures.replaceChildren(facts(besides(rows)));
      settle(request, round, fill, (error) => figures.replaceChildren(failureNote(error)));
    }, REST_MS);
    onAbort(round, () => window.clearTimeout(timer));
  };

  return {
    element: root,
    update(state) {
      const before = lastState;
      lastState = state;
      const stays =
        before !== undefined &&
        sameTarget(before.selection, state.selection) &&
        before.live === state.live &&
        before.overlay?.data === state.overlay?.data &&
        before.captures === state.captures;
      if (stays) mark();
      else fill(state);
    },
  };
}

/** Shows statistics that are embedded in the page. */
function bakedStatistics(columns: Columns, value: number, pageData: PageData): Node[] {
  const reply = pageData.statistics(value);
  if (reply !== null) return [el("section", { "aria-label": "Values" }, ...statistics(reply))];
  if (pageData.lacking === "" || columns.str(columns.valueLiteral[value]) !== "") return [];
  return columns.valueKind[value] === VALUE.INITIALIZER ? [el("p.onnx-nb-dim", pageData.lacking)] : [];
}

/** Creates buttons that highlight the ancestors or the descendants of a target, as a search does. */
function traces({ columns, dispatch }: ViewContext, target: Target, signal: AbortSignal): Node[] {
  const name = columns.nameOf(target);
  if (name === "" || columns.find(name, target.kind)?.id !== target.id) return [];
  const trace = (label: string, way: "before" | "after", title: string): HTMLElement => {
    const text = `${way}:${quote(name)}`;
    return button(label, () => dispatch({ type: "search", text, hits: search(columns, text).hits }), signal, { title });
  };
  const first = target.kind === "tensor" && columns.producer[target.id] < 0;
  const up = first ? null : trace("Trace up", "before", "Light all that this depends on");
  return [el("div.onnx-nb-row", up, trace("Trace down", "after", "Light all that depends on this"))];
}

const CAPTURE = "Run the model and see every value in it";
const PROFILE = "Measure the model, and color its nodes by their time";
const SIMPLIFY = "Remove what computes nothing, and verify that the rest computes the same";

function captureAll({ host, state, dispatch }: ViewContext, signal: AbortSignal): Node {
  const isRepeat = state().capturedAll;
  const press = (text: string, title: string, command: Command, hidden = false): HTMLElement =>
    button(text, () => dispatch(command), signal, { title, hidden });
  const run = press(isRepeat ? "Capture again" : "Capture", CAPTURE, { type: "capture", value: null });
  const measure = press("Profile", PROFILE, { type: "profile" });
  const simplification: Command = { type: "edit", request: { edit: "simplify" } };
  const simplify = press("Simplify", SIMPLIFY, simplification, host.edit === undefined);
  const note = isRepeat
    ? "Click a tensor for its statistics, or a color below the graph."
    : "See every value, where the time goes, or what can go.";
  return el("div.onnx-nb-row", run, measure, simplify, el("span.onnx-nb-dim", note));
}

/** Returns the number of a target in the overlay; for a tensor the number of its producer, null without one. */
function numberOf(columns: Columns, { kind, id }: Target, overlay: Overlay): Fact | null {
  const { label, reduce } = overlay.data;
  const word = reduce === "sum" ? "" : ` (${reduce})`; // the sum over a scope is its own number
  if (kind === "scope") return [elide(`${label || "value"}${word}`, 40), overlay.say(overlay.number(BOX.SCOPE, id))];
  const node = kind === "node" ? id : columns.producer[id];
  if (node < 0) return null;
  return [elide(label || "value", 40), overlay.say(overlay.number(BOX.NODE, node))];
}

function overview(columns: Columns): Node[] {
  const { meta } = columns;
  const inCalls = nodesInCalls(columns);
  const opsets = Object.entries(meta.opsets).map(([domain, version]) => `${domain || "ai.onnx"} ${version}`);
  const rows: Fact[] = [
    ["nodes", integer(meta.nodes - inCalls)],
    ["in calls", inCalls > 0 ? `${integer(inCalls)} more` : ""],
    ["parameters", columns.scopeCount > 0 ? formatCompact(columns.scopeParams[0]) : ""],
    ["weights", bytes(meta.nbytes)],
    ["opset", opsets.join(", ")],
    ["producer", meta.producer],
    ["IR version", String(meta.ir_version)],
  ];
  return [
    el("h4", "Model"), // the bar above has its name
    facts(rows),
    list("inputs", columns.graphInputs, (value) => tensorRow(columns, value)),
    list("outputs", columns.graphOutputs, (value) => tensorRow(columns, value)),
    el("p.onnx-nb-dim", "Click a box or an arrow to inspect it. Press ? for keys."),
  ];
}

/** Returns the number of nodes in function calls, which the file does not list. */
function nodesInCalls(columns: Columns): number {
  const { scopeCount, scopeKind, scopeNodes, scopeParent } = columns;
  const inside = new Uint8Array(scopeCount);
  let sum = 0;
  for (let scope = 1; scope < scopeCount; scope++) {
    const call = scopeKind[scope] === SCOPE_KIND.FUNCTION;
    if (call && inside[scopeParent[scope]] === 0) sum += scopeNodes[scope];
    inside[scope] = call || inside[scopeParent[scope]] === 1 ? 1 : 0;
  }
  return sum;
}

const KINDS: Readonly<Record<number, string>> = {
  [VALUE.NODE_OUTPUT]: "tensor",
  [VALUE.GRAPH_INPUT]: "tensor · graph input",
  [VALUE.INITIALIZER]: "weight",
  [VALUE.DANGLING]: "tensor · made by no node",
  [VALUE.BODY_INPUT]: "tensor · input of a body",
};

function tensor(view: ViewContext, value: number, signal: AbortSignal): Node[] {
  const { columns } = view;
  const name = columns.valueNameOf(value);
  const producer = columns.producer[value];
  const kind = columns.valueKind[value];
  const dtype = columns.dtypeOf(value) || "unknown";
  let what = KINDS[kind] ?? "tensor";
  if (kind === VALUE.NODE_OUTPUT && columns.isConstant(value)) what = "constant";
  if (columns.isGraphOutput(value)) what += " · graph output";
  const rows: Fact[] = [
    ["type", createShape(view, value, signal) ?? `${dtype}  ${columns.shapeOf(value) || "shape unknown"}`],
    ["value", columns.str(columns.valueLiteral[value])],
    ["made by", producer >= 0 ? nodeLink(columns, producer) : ""],
  ];
  const readers = columns.consumersOf(value);
  const parts: Node[] = [el("div", ...paneHead(what, name, signal)), facts(rows), ...pager(columns, value)];
  if (readers.length > 0) parts.push(list("read by", readers, (reader) => nodeLink(columns, reader)));
  else if (!columns.isGraphOutput(value)) parts.push(el("p.onnx-nb-dim", "Read by no node."));
  return parts;
}

/** Steps through parallel tensors, which the canvas may draw as one band. */
function pager(columns: Columns, value: number): Node[] {
  const parallel = columns.siblings(value);
  if (parallel.length < 2) return [];
  const at = parallel.indexOf(value);
  const step = (by: number, sign: string, label: string): HTMLElement => {
    const neighbor = parallel[(at + by + parallel.length) % parallel.length];
    const element = link(sign, { kind: "tensor", id: neighbor }, columns.valueNameOf(neighbor));
    element.ariaLabel = `${label} parallel tensor`;
    return element;
  };
  const text = ` ${integer(at + 1)} of ${integer(parallel.length)} parallel tensors `;
  return [el("p.onnx-nb-dim.onnx-nb-pager", step(-1, "‹", "Previous"), text, step(1, "›", "Next"))];
}

function node(columns: Columns, id: number, signal: AbortSignal): Node[] {
  const name = columns.nameOf({ kind: "node", id });
  const domain = columns.domainOf(id);
  const category = columns.meta.categories[columns.categoryOf(id)] ?? "other";
  const shownDomain = domain === "" || domain === "ai.onnx" ? null : el("span.onnx-nb-dim", `  ${elide(domain, 40)}`);
  const scope = columns.scopeOf({ kind: "node", id });
  const path = columns.str(columns.scopePath[scope]);
  const body = columns.nodeBody[id];
  const faults = columns.meta.faults.filter((fault) => fault.node === id);
  const inside = columns.scopeKind[body] === SCOPE_KIND.FUNCTION ? "inside" : "body";
  const rows: Fact[] = [
    ["name", name === "" ? "" : mono(name, 160)],
    ["module", columns.str(columns.nodeModule[id])],
    ["scope", scope > 0 ? link(elide(path, 80), { kind: "scope", id: scope }, path) : ""],
    [inside, body >= 0 ? link(countOf(columns.scopeNodes[body], "node"), { kind: "scope", id: body }) : ""],
    ...faults.map(({ message }): Fact => ["fault", warning(message)]),
  ];
  const kind = el("div.onnx-nb-dim", `node · ${category}`);
  if (name !== "") kind.append(copyButton(() => name, signal, "Copy name"));
  const inputs = Array.from(columns.inputsOf(id), (value, at) => ({ value, formal: columns.inputNameOf(id, at) }));
  const operands = inputs.filter(({ value }) => value >= 0);
  const outputs = columns.outputsOf(id).filter((value) => value >= 0);
  const parts: Node[] = [kind, el("h4", swatch(category), elide(columns.opOf(id), 80), shownDomain), facts(rows)];
  if (operands.length > 0)
    parts.push(list("inputs", operands, ({ value, formal }) => tensorRow(columns, value, formal)));
  if (outputs.length > 0) parts.push(list("outputs", outputs, (value) => tensorRow(columns, value)));
  return parts;
}

function swatch(category: string): HTMLElement {
  const background = `var(${categoryVariable(category)}, var(--nb-cat-other))`;
  return el("i.onnx-nb-swatch", { style: { background } });
}

const SCOPE_KINDS: Readonly<Record<number, string>> = {
  [SCOPE_KIND.ROOT]: "model",
  [SCOPE_KIND.SCOPE]: "scope",
  [SCOPE_KIND.REPEAT]: "repeated scopes",
  [SCOPE_KIND.GATHERED]: "gathered, no module",
  [SCOPE_KIND.BODY]: "node with bodies",
  [SCOPE_KIND.BRANCH]: "body",
  [SCOPE_KIND.FUNCTION]: "call of a function",
  [SCOPE_KIND.SIBLINGS]: "equal branches",
};

function scopeParts(columns: Columns, id: number, signal: AbortSignal): Node[] {
  const path = columns.str(columns.scopePath[id]);
  const name = columns.str(columns.scopeName[id]);
  const owner = columns.scopeNode[id];
  const rows: Fact[] = [
    ["class", columns.str(columns.scopeClass[id])],
    ["nodes", integer(columns.scopeNodes[id])],
    ["parameters", columns.scopeParams[id] > 0 ? formatCompact(columns.scopeParams[id]) : "none"],
    ["weights", columns.scopeBytes[id] > 0 ? bytes(columns.scopeBytes[id]) : ""],
    ["repeats", columns.scopeRepeat[id] > 1 ? `×${columns.scopeRepeat[id]}` : ""],
    [columns.isRow(id) ? "differ" : "differs", elide(columns.str(columns.scopeDifference[id]), 300)],
    ["of", owner >= 0 ? nodeLink(columns, owner) : ""],
  ];
  return [
    el("div", ...paneHead(SCOPE_KINDS[columns.scopeKind[id]] ?? "scope", path || name, signal)),
    facts(rows),
    opList(columns, [{ kind: "scope", id }]),
  ];
}

/** Lists the ops of nodes, and of those in scopes, the most frequent first. */
export function opList(columns: Columns, targets: readonly Target[]): HTMLElement {
  const nodes = new Set(targets.flatMap(({ kind, id }) => (kind === "node" ? [id] : [])));
  const open = targets.flatMap(({ kind, id }) => (kind === "scope" ? [id] : []));
  for (const scope of open) {
    for (const node of columns.membersOf(scope)) nodes.add(node);
    open.push(...columns.childrenOf(scope));
  }
  const counts = new Map<number, number>();
  for (const node of nodes)
    if (!columns.isFolded(node)) counts.set(columns.nodeOp[node], (counts.get(columns.nodeOp[node]) ?? 0) + 1);
  const byCount = [...counts].sort(([, a], [, b]) => b - a);
  return list("ops", byCount, ([op, count]) => {
    const [name, category] = [columns.str(columns.opName[op]), columns.meta.categories[columns.opCategory[op]]];
    return el("span", swatch(category ?? "other"), elide(name, 40), el("span.onnx-nb-dim", `  ${integer(count)}`));
  });
}

/** Returns a function that marks the buttons of the chosen ends. */
function boundaryButtons(root: HTMLElement, view: ViewContext, value: number, signal: AbortSignal): () => void {
  const { columns, host, dispatch } = view;
  const isNameless = columns.valueNameOf(value) === "";
  const why = !host.live ? host.reason : isNameless ? "A tensor without a name cannot be an end of an extraction." : "";
  const press = (text: string, type: "input" | "output", title: string) =>
    button(text, () => dispatch({ type, value }), signal, { title, disabled: why !== "" });
  const input = press("Input", "input", "Start the extraction here (i)");
  const output = press("Output", "output", "End the extraction here (o)");
  root.append(el("div.onnx-nb-row", input, output));
  if (why !== "") root.append(el("p.onnx-nb-dim", why));
  return () => {
    const { inputs, outputs } = view.state().boundary;
    input.ariaPressed = String(inputs.includes(value));
    output.ariaPressed = String(outputs.includes(value));
  };
}

/** Returns a button that extracts a node or a scope at once. */
function extractButton({ host, dispatch }: ViewContext, target: Target, signal: AbortSignal): HTMLButtonElement {
  const title = host.live ? `Extract this ${target.kind} as a model of its own` : host.reason;
  const extract = (): void => dispatch({ type: "extract", targets: [target] });
  return button("Extract", extract, signal, { title, disabled: !host.live });
}

/** Returns a function that labels the button with its effect. */
function openButton(root: HTMLElement, view: ViewContext, scope: number, signal: AbortSignal): () => void {
  const { columns, host, state, dispatch } = view;
  const toggle = button("Expand", () => dispatch({ type: "toggle", scope }), signal, { title: "e or Enter" });
  const selectAll = (): void => {
    dispatch({ type: "open", scope });
    dispatch({ type: "selectAll", targets: boxesIn(columns, scope) });
    dispatch({ type: "fit", targets: [{ kind: "scope", id: scope }] });
  };
  const title = "Every node and scope right inside; Ctrl+A does so from one of them";
  const all = button("Select all in it", selectAll, signal, { title });
  const extract = host.canExtract === false ? null : extractButton(view, { kind: "scope", id: scope }, signal);
  root.append(el("div.onnx-nb-row", toggle, all, extract));
  return () => {
    toggle.textContent = state().open.has(scope) ? "Collapse" : "Expand";
  };
}

function replyParts({ rows, attributes, documentation, source }: Inspection, signal: AbortSignal): Node[] {
  const factRows: Fact[] = [...rows, ["source", source === "" ? "" : mono(source, 160)]];
  const parts: Node[] = [facts(factRows), ...attributeList(attributes)];
  if (documentation !== "") {
    const text = el("div.onnx-nb-doc", flowing(documentation.slice(0, 20_000)));
    const copying = copyButton(() => documentation, signal);
    parts.push(el("details", el("summary", "Documentation"), text, copying));
  }
  return parts;
}

/** Rejoins text that was wrapped at a fixed width; lists, indented lines and fenced text stay as they are. */
function flowing(text: string): string {
  return text
    .split("```")
    .map((part, at) => (at % 2 === 1 ? part : part.replace(/(?<=\S) *\n(?=[^\s*\-+#|>\d])/g, " ")))
    .join("");
}

/** Returns the attributes of a node as in the columns, which shorten long ones. */
function statedAttributes(columns: Columns, node: number): Inspection["attributes"] {
  const text = columns.str(columns.nodeAttributes[node]);
  const keys = statedKeys(text);
  const defaults = keys === null ? [] : attributePairs(columns.str(columns.opDefaults[columns.nodeOp[node]]));
  const values = new Map(defaults);
  const origin = (name: string, value: string): Origin => (values.get(name) === value ? "given default" : "given");
  const others = defaults.filter(([name]) => !keys?.includes(name.toLowerCase()));
  return [
    ...attributePairs(text).map(([name, value]) => [name, value, origin(name, value)] as const),
    ...others.map(([name, value]) => [name, value, "default"] as const),
  ];
}

const ORIGINS: Readonly<Record<Origin, string>> = {
  given: "",
  default: " default",
  "given default": " same as default",
};

function attributeList(attributes: Inspection["attributes"]): Node[] {
  if (attributes.length === 0) return [];
  return [
    list("attributes", attributes, ([name, text, origin]) =>
      el(
        origin === "default" ? "span.onnx-nb-dim" : "span",
        { title: `${name} ${text}`.slice(0, 4000) },
        el("em", elide(name, 40)),
        ` ${elide(text, 160)}`,
        origin === "given" ? null : el("span.onnx-nb-dim", ORIGINS[origin]),
      ),
    ),
  ];
}

function warning(text: string): HTMLElement {
  return el("span.onnx-nb-bad", { title: text.slice(0, 4000) }, elide(text, 300));
}

function tensorRow(columns: Columns, value: number, formal = ""): HTMLElement {
  const type = `${columns.shapeOf(value)} ${columns.dtypeOf(value)}`.trim();
  const literal = columns.str(columns.valueLiteral[value]);
  return el(
    "span",
    formal === "" ? null : el("em.onnx-nb-dim", `${elide(formal, 24)} `),
    valueLink(columns, value),
    el("span.onnx-nb-dim", `  ${elide(literal !== "" ? `= ${literal}` : type, 60)}`),
  );
}

/** Returns a titled list; beyond a few rows the rest waits behind "show all N". */
export function list<T>(title: string, items: ArrayLike<T>, row: (item: T) => Node): HTMLElement {
  const rows = el("ul.onnx-nb-list");
  const add = (from: number, to: number): void => {
    for (let at = from; at < to; at++) rows.append(el("li", row(items[at])));
  };
  add(0, Math.min(items.length, ROWS_AT_FIRST));
  const section = el("section", el("h5", title), rows);
  const showRest = (): void => {
    add(ROWS_AT_FIRST, Math.min(items.length, MAX_ROWS));
    if (items.length > MAX_ROWS) rows.append(el("li.onnx-nb-dim", `and ${integer(items.length - MAX_ROWS)} more`));
  };
  if (items.length > ROWS_AT_FIRST) section.append(moreButton(items.length, showRest));
  return section;
}
