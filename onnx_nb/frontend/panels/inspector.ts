/** What is known of the selected tensor, node or scope; of the whole model when nothing is selected. */

import { statistics } from "../charts/histogram.ts";
import { type Columns, NODE_FOLDED, SCOPE_KIND, type Target, VALUE } from "../protocol/columns.ts";
import { type Baked, failure, type GraphHost, type InspectReply, NO_KERNEL, type Origin } from "../protocol/host.ts";
import { categoryVariable } from "../render/theme.ts";
import { bytes, counted, plain, scaled } from "../scene/formatting.ts";
import type { Overlay, OverlayData } from "../scene/overlay.ts";
import { BOX } from "../scene/scene.ts";
import { boxesIn } from "../scene/scopegraph.ts";
import { type Dispatch, type State, same } from "../scene/state.ts";
import { search, statedKeys } from "../search/search.ts";
import { breakable, button, copyButton, el, elide, facts, fillings, mono } from "./dom.ts";
import { link, nodeLink, valueLink } from "./link.ts";
import { createValues } from "./values.ts";

export interface Inspector {
  update(state: State): void;
}

/** While a person goes on clicking, what takes long is not asked. */
const REST_MS = 120;
/** Long lists show this many rows and a button for the rest. */
const SHOWN = 8;

export function createInspector(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  dispatch: Dispatch,
  signal: AbortSignal,
): Inspector {
  const next = fillings(signal);
  let selection: State["selection"] | undefined;
  let boundary: State["boundary"] | undefined;
  let open: State["open"] | undefined;
  let numbers: OverlayData | undefined;
  let captures = 0;
  let marks: ((state: State) => void) | null = null;

  const fill = (state: State): void => {
    const round = next();
    const held = focusIn(root);
    root.replaceChildren();
    root.scrollTop = 0;
    marks = null;
    // what had the focus is gone: a person who pressed it with a key goes on from here
    if (held !== null) queueMicrotask(() => (labeled(root, held) ?? root).focus({ preventScroll: true }));
    const target = state.selection;
    if (target === null) {
      root.append(...overview(columns));
      if (host.values !== undefined && host.live) root.append(captureAll(state, dispatch, round));
      return;
    }
    const extra = el("div.onnx-nb-extra");
    /** what it costs in a run */
    const figures = el("div");
    switch (target.kind) {
      case "tensor":
        root.append(...tensor(columns, target.id, round));
        if (!columns.isConstant(target.id) && host.cuts !== false)
          marks = cutButtons(root, columns, host, target.id, dispatch, round);
        break;
      case "node":
        root.append(...node(columns, target.id, round));
        break;
      case "scope":
        root.append(...scopeParts(columns, target.id, round));
        if (target.id > 0) marks = openButton(root, columns, target.id, dispatch, round);
        break;
    }
    const compared = host.compared?.(target) ?? [];
    // right below the heading
    const place = root.children[2] ?? null;
    if (compared.length > 0) root.insertBefore(el("div.onnx-nb-compared", facts(compared)), place);
    if (target.kind === "tensor" && host.values !== undefined && host.live) {
      root.append(createValues(columns, target.id, host.values, state.captures, dispatch, round));
    }
    if (target.kind === "tensor" && host.baked !== undefined) {
      root.append(...bakedStatistics(columns, target.id, host.baked));
    }
    if (state.overlay !== null) root.append(...numberOf(columns, target, state.overlay));
    if (target.kind !== "scope") root.append(...traces(columns, target, dispatch, round));
    root.append(figures, extra);
    marks?.(state);
    if (!host.live) {
      const reply = host.baked?.inspect(target) ?? null;
      const rows = host.baked?.figures(target) ?? [];
      if (rows.length > 0) figures.append(facts(rows));
      if (reply !== null) extra.append(...answered(reply, round));
      else if (target.kind === "node") extra.append(...staticAttributes(columns, target.id));
      return;
    }
    host.inspect(target, columns.nameOf(target), round).then(
      (reply) => {
        if (!round.aborted) extra.replaceChildren(...answered(reply, round));
      },
      (error: unknown) => {
        if (round.aborted) return;
        extra.replaceChildren(
          ...(target.kind === "node" ? staticAttributes(columns, target.id) : []),
          el("p.onnx-nb-dim", elide(failure(error).message, 300)),
        );
      },
    );
    if (target.kind === "tensor" || host.figures === undefined) return;
    // the kernel answers in turn, and counting all of a large model once may take it a second: that is asked last
    const count = (): void => {
      host.figures?.(target, round).then(
        (rows) => {
          if (!round.aborted && rows.length > 0) figures.replaceChildren(facts(rows));
        },
        (error: unknown) => {
          if (!round.aborted) figures.replaceChildren(el("p.onnx-nb-dim", elide(failure(error).message, 300)));
        },
      );
    };
    const timer = window.setTimeout(count, REST_MS);
    round.addEventListener("abort", () => window.clearTimeout(timer), { once: true });
  };

  return {
    update(state) {
      if (
        selection === undefined ||
        !same(selection, state.selection) ||
        state.overlay?.data !== numbers ||
        state.captures !== captures
      ) {
        fill(state);
      } else if (state.boundary !== boundary || state.open !== open) marks?.(state);
      ({ selection, boundary, open, captures } = state);
      numbers = state.overlay?.data;
    },
  };
}

/** The label of what has the focus in a panel, "" if that has none; null if the focus is elsewhere. */
function focusIn(root: HTMLElement): string | null {
  const { activeElement } = root.getRootNode() as Document | ShadowRoot;
  return activeElement !== null && activeElement !== root && root.contains(activeElement)
    ? (activeElement.getAttribute("aria-label") ?? "")
    : null;
}

function labeled(root: HTMLElement, label: string): HTMLElement | undefined {
  return [...root.querySelectorAll<HTMLElement>("[aria-label]")].find(
    (each) => label !== "" && each.getAttribute("aria-label") === label,
  );
}

/** Statistics that came with the page. */
function bakedStatistics(columns: Columns, value: number, baked: Baked): Node[] {
  const found = baked.statistics(value);
  if (found !== null) return [el("section", { "aria-label": "Values" }, ...statistics(found))];
  if (baked.lacking === "" || columns.str(columns.valueLiteral[value]) !== "") return [];
  return columns.valueKind[value] === VALUE.INITIALIZER ? [el("p.onnx-nb-dim", baked.lacking)] : [];
}

/** Lights what the target depends on, or what depends on it, as a search would. */
function traces(columns: Columns, target: Target, dispatch: Dispatch, signal: AbortSignal): Node[] {
  const name = columns.nameOf(target);
  if (name === "" || columns.find(name, target.kind)?.id !== target.id) return [];
  const press = (way: "before" | "after"): void => {
    const text = `${way}:"${name.replace(/["\\]/g, "\\$&")}"`;
    dispatch({ type: "search", text, hits: search(columns, text).hits });
  };
  const first = target.kind === "tensor" && columns.producer[target.id] < 0;
  return [
    el(
      "div.onnx-nb-row",
      first ? null : button("Trace up", () => press("before"), signal, { title: "Light all that this depends on" }),
      button("Trace down", () => press("after"), signal, { title: "Light all that depends on this" }),
    ),
  ];
}

function captureAll(state: State, dispatch: Dispatch, signal: AbortSignal): Node {
  const again = state.capturedAll;
  const run = button(again ? "Capture again" : "Capture", () => dispatch({ type: "capture", value: null }), signal, {
    title: "Run the model and see every value in it",
  });
  const note = again ? "Click a tensor for its statistics, or choose a color." : "Runs the model and sees every value.";
  return el("div.onnx-nb-row", run, el("span.onnx-nb-dim", note));
}

/** The number of a target in the overlay; for a tensor the number of the node that makes it. */
function numberOf(columns: Columns, target: Target, overlay: Overlay): Node[] {
  const node = target.kind === "node" ? target.id : target.kind === "tensor" ? columns.producer[target.id] : -1;
  const x =
    target.kind === "scope"
      ? overlay.number(BOX.SCOPE, target.id)
      : node >= 0
        ? overlay.number(BOX.NODE, node)
        : Number.NaN;
  const { label, reduce } = overlay.data;
  const how = target.kind === "scope" ? ` (${reduce})` : "";
  return [facts([[elide(`${label || "value"}${how}`, 40), overlay.say(x)]])];
}

function overview(columns: Columns): Node[] {
  const { meta } = columns;
  const inCalls = called(columns);
  const opsets = Object.entries(meta.opsets).map(([domain, version]) => `${domain || "ai.onnx"} ${version}`);
  const rows: Row[] = [
    ["nodes", plain(meta.nodes - inCalls)],
    ["in calls", inCalls > 0 ? `${plain(inCalls)} more` : ""],
    ["parameters", columns.scopeCount > 0 ? scaled(columns.scopeParams[0]) : ""],
    ["weights", bytes(meta.nbytes)],
    ["opset", opsets.join(", ")],
    ["producer", meta.producer],
    ["IR version", String(meta.ir_version)],
  ];
  return [
    heading("model", meta.name || "model"),
    facts(rows),
    list("inputs", columns.graphInputs, (value) => tensorRow(columns, value)),
    list("outputs", columns.graphOutputs, (value) => tensorRow(columns, value)),
    el("p.onnx-nb-dim", "Click a box to inspect it, an arrow to choose its tensor. Press ? for keys."),
  ];
}

/** Returns the number of nodes in function calls, which the file does not list. */
function called(columns: Columns): number {
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

function tensor(columns: Columns, value: number, signal: AbortSignal): Node[] {
  const name = columns.valueNameOf(value);
  const producer = columns.producer[value];
  const kind = columns.valueKind[value];
  let what = KINDS[kind] ?? "tensor";
  if (kind === VALUE.NODE_OUTPUT && columns.isConstant(value)) what = "constant";
  if (columns.isGraphOutput(value)) what += " · graph output";
  const rows: Row[] = [
    ["type", `${columns.dtypeOf(value) || "unknown"}  ${columns.shapeOf(value) || "shape unknown"}`],
  ];
  const literal = columns.str(columns.valueLiteral[value]);
  if (literal !== "") rows.push(["value", literal]);
  if (producer >= 0) rows.push(["made by", nodeLink(columns, producer)]);
  const readers = columns.consumersOf(value);
  const parts: Node[] = [heading(what, name, signal), facts(rows), ...pager(columns, value)];
  if (readers.length > 0) parts.push(list("read by", readers, (reader) => nodeLink(columns, reader)));
  else if (!columns.isGraphOutput(value)) parts.push(el("p.onnx-nb-dim", "Read by no node."));
  return parts;
}

/** Leads through tensors that run side by side, which on the canvas may be one band. */
function pager(columns: Columns, value: number): Node[] {
  const parallel = columns.alike(value);
  if (parallel.length < 2) return [];
  const at = parallel.indexOf(value);
  const step = (by: number, sign: string, label: string): HTMLElement => {
    const other = parallel[(at + by + parallel.length) % parallel.length];
    const element = link(sign, { kind: "tensor", id: other }, columns.valueNameOf(other));
    element.setAttribute("aria-label", `${label} parallel tensor`);
    return element;
  };
  return [
    el(
      "p.onnx-nb-dim.onnx-nb-pager",
      step(-1, "‹", "Previous"),
      ` ${plain(at + 1)} of ${plain(parallel.length)} parallel tensors `,
      step(1, "›", "Next"),
    ),
  ];
}

function node(columns: Columns, id: number, signal: AbortSignal): Node[] {
  const name = columns.nameOf({ kind: "node", id });
  const domain = columns.domainOf(id);
  const category = columns.meta.categories[columns.categoryOf(id)] ?? "other";
  const title = el(
    "h4",
    el("i.onnx-nb-swatch", { style: { background: `var(${categoryVariable(category)}, var(--nb-cat-other))` } }),
    elide(columns.opOf(id), 80),
    domain === "" || domain === "ai.onnx" ? null : el("span.onnx-nb-dim", `  ${elide(domain, 40)}`),
  );
  const rows: Row[] = [];
  if (name !== "") rows.push(["name", mono(name, 160)]);
  const scope = columns.scopeOf({ kind: "node", id });
  if (scope > 0) {
    const path = columns.str(columns.scopePath[scope]);
    rows.push(["scope", link(elide(path, 80), { kind: "scope", id: scope }, path)]);
  }
  const body = columns.nodeBody[id];
  if (body >= 0)
    rows.push([
      columns.scopeKind[body] === SCOPE_KIND.FUNCTION ? "inside" : "body",
      link(counted(columns.scopeNodes[body], "node"), { kind: "scope", id: body }),
    ]);
  for (const fault of columns.meta.faults) if (fault.node === id) rows.push(["fault", warning(fault.message)]);
  const parts: Node[] = [el("div.onnx-nb-dim", `node · ${category}`), title];
  if (name !== "") parts[0].appendChild(copyButton(() => name, signal, "Copy name"));
  parts.push(facts(rows));
  const inputs = Array.from(columns.inputsOf(id), (value, position) => ({ value, position }));
  const outputs = Array.from(columns.outputsOf(id), (value, position) => ({ value, position }));
  const given = inputs.filter(({ value }) => value >= 0);
  if (given.length > 0) {
    parts.push(
      list("inputs", given, ({ value, position }) => tensorRow(columns, value, columns.inputNameOf(id, position))),
    );
  }
  const made = outputs.filter(({ value }) => value >= 0);
  if (made.length > 0) parts.push(list("outputs", made, ({ value }) => tensorRow(columns, value)));
  return parts;
}

const SCOPE_KINDS: Readonly<Record<number, string>> = {
  [SCOPE_KIND.ROOT]: "model",
  [SCOPE_KIND.SCOPE]: "scope",
  [SCOPE_KIND.REPEAT]: "repeated scopes",
  [SCOPE_KIND.CHUNK]: "gathered, no module",
  [SCOPE_KIND.BODY]: "node with bodies",
  [SCOPE_KIND.BRANCH]: "body",
  [SCOPE_KIND.FUNCTION]: "call of a function",
  [SCOPE_KIND.SIBLINGS]: "equal branches",
};

function scopeParts(columns: Columns, id: number, signal: AbortSignal): Node[] {
  const path = columns.str(columns.scopePath[id]);
  const name = columns.str(columns.scopeName[id]);
  const rows: Row[] = [
    ["class", columns.str(columns.scopeClass[id])],
    ["nodes", plain(columns.scopeNodes[id])],
    ["parameters", columns.scopeParams[id] > 0 ? scaled(columns.scopeParams[id]) : "none"],
    ["weights", columns.scopeBytes[id] > 0 ? bytes(columns.scopeBytes[id]) : ""],
    ["repeats", columns.scopeRepeat[id] > 1 ? `×${columns.scopeRepeat[id]}` : ""],
    [columns.isRow(id) ? "differ" : "differs", elide(columns.str(columns.scopeDifference[id]), 300)],
  ];
  const owner = columns.scopeNode[id];
  if (owner >= 0) rows.push(["of", nodeLink(columns, owner)]);
  return [heading(SCOPE_KINDS[columns.scopeKind[id]] ?? "scope", path || name, signal), facts(rows), ops(columns, id)];
}

/** The commonest ops in a scope; counted over at most 200,000 nodes, which is all of them. */
function ops(columns: Columns, root: number): Node {
  const counts = new Map<number, number>();
  const open = [root];
  for (let at = 0; at < open.length; at++) {
    for (const id of columns.membersOf(open[at])) {
      if ((columns.nodeFlags[id] & NODE_FOLDED) === 0)
        counts.set(columns.nodeOp[id], (counts.get(columns.nodeOp[id]) ?? 0) + 1);
    }
    open.push(...columns.childrenOf(open[at]));
  }
  const sorted = [...counts].sort(([, a], [, b]) => b - a);
  return list("ops", sorted, ([op, count]) => {
    const category = columns.meta.categories[columns.opCategory[op]] ?? "other";
    const swatch = el("i.onnx-nb-swatch", {
      style: { background: `var(${categoryVariable(category)}, var(--nb-cat-other))` },
    });
    return el("span", swatch, elide(columns.str(columns.opName[op]), 40), el("span.onnx-nb-dim", `  ${plain(count)}`));
  });
}

function cutButtons(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  value: number,
  dispatch: Dispatch,
  signal: AbortSignal,
): (state: State) => void {
  const press = (type: "input" | "output") =>
    button(type === "input" ? "Input" : "Output", () => dispatch({ type, value }), signal, {
      title: type === "input" ? "Start the extraction here (i)" : "End the extraction here (o)",
    });
  const input = press("input");
  const output = press("output");
  const row = el("div.onnx-nb-row", input, output);
  root.append(row);
  const name = columns.valueNameOf(value);
  const why = !host.live
    ? (host.reason ?? NO_KERNEL)
    : name === ""
      ? "A tensor without a name cannot be an end of an extraction."
      : "";
  if (why !== "") root.append(el("p.onnx-nb-dim", why));
  return (state) => {
    for (const [element, chosen] of [
      [input, state.boundary.inputs],
      [output, state.boundary.outputs],
    ] as const) {
      element.disabled = why !== "";
      element.setAttribute("aria-pressed", String(chosen.includes(value)));
    }
  };
}

function openButton(
  root: HTMLElement,
  columns: Columns,
  id: number,
  dispatch: Dispatch,
  signal: AbortSignal,
): (state: State) => void {
  const toggle = button("Expand", () => dispatch({ type: "toggle", scope: id }), signal, { title: "e or Enter" });
  const all = button(
    "Select all in it",
    () => {
      dispatch({ type: "open", scope: id });
      dispatch({ type: "selectAll", targets: boxesIn(columns, id) });
    },
    signal,
    { title: "Every node and scope right inside; Ctrl+A does so from one of them" },
  );
  root.append(el("div.onnx-nb-row", toggle, all));
  return (state) => {
    toggle.textContent = state.open.has(id) ? "Collapse" : "Expand";
  };
}

function answered(reply: InspectReply, signal: AbortSignal): Node[] {
  const parts: Node[] = [];
  const rows: Row[] = reply.rows.map(([label, text]) => [label, mono(text, 300)]);
  if (reply.source !== "") rows.push(["source", mono(reply.source, 160)]);
  if (rows.length > 0) parts.push(facts(rows));
  if (reply.attributes.length > 0) {
    parts.push(
      list("attributes", reply.attributes, ([name, text, origin]) =>
        attributeRow(`${name} ${text}`, origin, el("em", elide(name, 40)), ` ${elide(text, 160)}`),
      ),
    );
  }
  if (reply.documentation !== "") {
    const text = el("div.onnx-nb-doc", flowing(reply.documentation.slice(0, 20_000)));
    parts.push(
      el(
        "details",
        el("summary", "Documentation"),
        text,
        copyButton(() => reply.documentation, signal),
      ),
    );
  }
  return parts;
}

/** Text that was broken at some width flows again; lists, indented lines and text between fences stay as they are. */
function flowing(text: string): string {
  return text
    .split("```")
    .map((part, at) => (at % 2 === 1 ? part : part.replace(/(?<=\S) *\n(?=[^\s*\-+#|>\d])/g, " ")))
    .join("");
}

function staticAttributes(columns: Columns, id: number): Node[] {
  const text = columns.str(columns.nodeAttributes[id]);
  const stated = statedKeys(text);
  const defaults = columns.str(columns.opDefaults[columns.nodeOp[id]]);
  const left = defaults === "" || stated === null ? [] : defaults.split(" · ");
  const items: (readonly [string, Origin])[] = [
    ...(text === "" ? [] : text.split(" · ")).map(
      (each) => [each, left.includes(each) ? "given default" : "given"] as const,
    ),
    ...left
      .filter((each) => stated?.includes(each.split(" ")[0].toLowerCase()) === false)
      .map((each) => [each, "default"] as const),
  ];
  if (items.length === 0) return [];
  return [list("attributes", items, ([attribute, origin]) => attributeRow(attribute, origin, elide(attribute, 120)))];
}

const ORIGINS: Readonly<Record<Origin, string>> = {
  given: "",
  default: " default",
  "given default": " same as default",
};

function attributeRow(title: string, origin: Origin, ...text: (Node | string)[]): HTMLElement {
  return el(
    "span",
    { class: origin === "default" ? "onnx-nb-dim" : "", title: title.slice(0, 4000) },
    ...text,
    origin === "given" ? null : el("span.onnx-nb-dim", ORIGINS[origin]),
  );
}

type Row = readonly [label: string, content: string | HTMLElement];

function heading(kind: string, name: string, signal?: AbortSignal): HTMLElement {
  const above = el("div.onnx-nb-dim", kind);
  if (signal !== undefined) above.append(copyButton(() => name, signal, "Copy name"));
  return el(
    "div",
    above,
    el("h4.onnx-nb-mono", { title: name.slice(0, 4000) }, ...breakable(elide(name, 160) || "(unnamed)")),
  );
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

/** A titled list; beyond a few rows the rest waits behind "show all N". */
export function list<T>(title: string, items: ArrayLike<T>, row: (item: T) => Node): HTMLElement {
  const rows = el("ul.onnx-nb-list");
  const add = (from: number, to: number): void => {
    for (let at = from; at < to; at++) rows.append(el("li", row(items[at])));
  };
  add(0, Math.min(items.length, SHOWN));
  const section = el("section", el("h5", title), rows);
  if (items.length > SHOWN) {
    const more = el("button.onnx-nb-link", `show all ${plain(items.length)}`);
    more.type = "button";
    more.addEventListener(
      "click",
      () => {
        more.remove();
        add(SHOWN, Math.min(items.length, 2000));
        if (items.length > 2000) rows.append(el("li.onnx-nb-dim", `and ${plain(items.length - 2000)} more`));
      },
      { once: true },
    );
    section.append(more);
  }
  return section;
}
