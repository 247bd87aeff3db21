/** The text in a box and on an edge, elided to fit, and the size of the box that holds it. */

import { attributePairs, type Columns, NODE_DIFFERS, SCOPE_KIND } from "../protocol/columns.ts";
import { countOf, formatCompact } from "./formatting.ts";
import { Interner } from "./interner.ts";
import { BOX, isPill, type Label, type Pair } from "./scene.ts";

/** Width of a text in px; bold is weight 600. Injected: the browser asks a canvas, tests count characters. */
export interface Measure {
  (text: string, fontPx: number, bold: boolean): number;
  /** brief labels: a box has one line, so that more boxes fit into the view */
  readonly brief?: boolean;
}

/** Returns the same font with brief labels. */
export function briefly(measure: Measure): Measure {
  return Object.assign((text: string, fontPx: number, bold: boolean) => measure(text, fontPx, bold), { brief: true });
}

interface FittedLabel {
  readonly label: Label;
  readonly w: number;
  readonly h: number;
}

/** Pixels: position of text in a box from its top left corner (`y` is the baseline). */
export const TEXT = {
  title: 12,
  line: 10.5,
  pill: 11.5,
  edge: 10,
  /** a node's text begins to the right of its color stripe */
  node: { x: 13, titleY: 16, lineY: 30, lineStep: 14 },
  /** "+" or "–" at x, the title at titleX, rows at lineX */
  scope: { x: 11, titleX: 25, titleY: 17, lineX: 25, lineY: 31, lineStep: 14 },
  /** pixels between title and sub, and between two pairs of a row */
  gap: 8,
  /** pixels between key and value of a pair */
  keyGap: 4,
} as const;

const MAX_WIDTH = 260;
const MAX_ROWS = 2;
const NODE = { minWidth: 64, right: 11, height: 24 };
const CLOSED = { minWidth: 104, right: 11, height: 25 };
/** Brief boxes: maximum pixels of text after the op, and half the height that every box loses. */
const BRIEF = { note: 96, less: 1 };
const PILL = { side: 16, height: 24, minWidth: 56, maxWidth: 320 };
/** Characters of a text that are measured; longer ones are shortened first. */
const MAX_MEASURED_CHARACTERS = 300;

/** Maximum number of distinct node labels cached; labels that contain numbers may all differ. */
const MAX_CACHED_LABELS = 500;

/** The text of every box and the size that holds it; for an open scope the minimum size of its title strip. */
export class Labels {
  readonly #columns: Columns;
  readonly #measure: Measure;
  readonly #nodes = new Interner<FittedLabel>();

  constructor(columns: Columns, measure: Measure) {
    this.#columns = columns;
    this.#measure = measure;
  }

  of(kind: number, id: number): FittedLabel {
    if (kind === BOX.NODE) return this.#node(id);
    if (isPill(kind)) return fitPill(this.#columns, id, this.#measure);
    return fitScope(this.#columns, id, kind === BOX.OPEN, this.#measure);
  }

  /** Returns the label of a node, which most nodes share with others. */
  #node(node: number): FittedLabel {
    const { nodeOp, nodeModule, nodeAttributes, nodeFlags, inPtr, inValue, valueLiteral, valueShape, valueDtype } =
      this.#columns;
    const parts = [nodeOp[node], nodeModule[node], nodeAttributes[node], nodeFlags[node] & NODE_DIFFERS];
    for (let k = inPtr[node]; k < inPtr[node + 1]; k++) {
      const value = inValue[k];
      if (value < 0 || !this.#columns.isConstant(value)) continue;
      parts.push(k - inPtr[node], valueLiteral[value], valueShape[value], valueDtype[value]);
    }
    return this.#nodes.of([parts], () => fitNode(this.#columns, node, this.#measure), MAX_CACHED_LABELS);
  }
}

/** Pixels from the top of a box to its text, if the box is higher than its text (many ports) or brief. */
export function textTop(kind: number, rows: number, h: number): number {
  const style = kind === BOX.NODE ? NODE : kind === BOX.SCOPE ? CLOSED : PILL;
  const step = kind === BOX.NODE ? TEXT.node.lineStep : TEXT.scope.lineStep;
  return Math.max(-BRIEF.less, Math.round((h - style.height - step * rows) / 2));
}

/** Returns "batch×seq×768 f32" for a value; "" if neither is known. */
export function typeText(columns: Columns, value: number): string {
  const shape = columns.shapeOf(value);
  const dtype = shortDtype(columns.dtypeOf(value));
  return shape === "" ? dtype : `${shape} ${dtype}`.trimEnd();
}

/** Returns the same without the most common dtype: "batch×seq×768". */
export function briefType(columns: Columns, value: number): string {
  const shape = columns.shapeOf(value);
  return columns.dtypeOf(value) === "float32" && shape !== "" ? shape : typeText(columns, value);
}

/** Returns "f32" for "float32", "bf16", "i64", "u8", "bool", "str", "seq(f32)". */
export function shortDtype(dtype: string): string {
  return dtype
    .replace("bfloat", "bf")
    .replace("float", "f")
    .replace("uint", "u")
    .replace("int", "i")
    .replace("complex", "c")
    .replace("string", "str");
}

/** Returns one line of at most `width` px without control characters; its end or middle becomes "…" where needed. */
export function elide(
  text: string,
  width: number,
  fontPx: number,
  bold: boolean,
  measure: Measure,
  where: "end" | "middle" = "end",
): string {
  const isLong = text.length > MAX_MEASURED_CHARACTERS;
  const ends = isLong ? text.slice(0, MAX_MEASURED_CHARACTERS / 2) + text.slice(-MAX_MEASURED_CHARACTERS / 2) : text;
  const full = ends.replace(CONTROLS, " ").replace(HALVES, "");
  if (!isLong && measure(full, fontPx, bold) <= width) return full;
  const shorten = (length: number): string => {
    const back = where === "end" ? 0 : Math.floor(length / 2);
    const head = full.slice(0, length - back).trimEnd();
    return `${head}…${back === 0 ? "" : full.slice(-back)}`.replace(HALVES, "");
  };
  let low = 0;
  let high = full.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(shorten(middle), fontPx, bold) <= width) low = middle;
    else high = middle - 1;
  }
  return low <= 0 ? "…" : shorten(low);
}

/** Lengths to which the symbols of a shape are cut, one after another, until it fits. */
const SYMBOL_LENGTHS = [24, 12, 8, 5, 3, 2];

/** Returns a type of at most `width` px: its symbols become short, and axes are left out, before a digit is. */
export function elideType(text: string, width: number, fontPx: number, bold: boolean, measure: Measure): string {
  const whole = elide(text, width, fontPx, bold, measure, "middle");
  const dtype = /(?<![-+*/]) [a-z][^\s×]*$/.exec(text.slice(-MAX_MEASURED_CHARACTERS))?.[0] ?? "";
  const axes = text.slice(0, text.length - dtype.length).split("×", 20);
  if (whole === text || axes.length === 1) return whole;
  const shapes = SYMBOL_LENGTHS.map((length) => axes.map((axis) => shortAxis(axis, length)));
  const beginnings = axes.map((_, at) => [...shapes[shapes.length - 1].slice(0, axes.length - 1 - at), "…"]);
  const texts = [...shapes, ...beginnings].map((parts) => parts.join("×") + dtype);
  const fitting = texts.find((shorter) => measure(shorter, fontPx, bold) <= width);
  return elide(fitting ?? text, width, fontPx, bold, measure, "middle");
}

/** Returns an axis with at most `length` characters of a symbol: "d0" for "p2o.DynamicDimension.0", or "seq…". */
function shortAxis(axis: string, length: number): string {
  if (axis.length <= length || /^\d+$/.test(axis)) return axis;
  const [, initial = "", number = ""] = /([a-z])[a-z]*[\W_]?(\d+)$/i.exec(axis.slice(-60)) ?? [];
  const numbered = initial.toLowerCase() + number;
  return numbered !== "" && numbered.length <= length ? numbered : `${axis.slice(0, length - 1)}…`;
}

function fitNode(columns: Columns, node: number, measure: Measure): FittedLabel {
  const domain = columns.domainOf(node);
  const op = columns.opOf(node);
  const title = elide(op, MAX_WIDTH - 30, TEXT.title, true, measure);
  const pairs = [...constants(columns, node), ...attributePairs(columns.str(columns.nodeAttributes[node]))];
  const differs = (columns.nodeFlags[node] & NODE_DIFFERS) === 0 ? "" : "differs";
  const shownDomain = domain === "" || domain === "ai.onnx" ? "" : domain;
  // one line has room for it at projections only, in place of the shape of the weights
  const linear = columns.meta.categories[columns.categoryOf(node)] === "linear";
  const module = measure.brief === true && !linear ? "" : moduleText(columns, node);
  const note = [differs, module, shownDomain].filter((part) => part !== "").join(" ");
  if (measure.brief === true) {
    // the op and what distinguishes it best: its module or domain, or else its first weight or scalar
    const sub = elide(note || (pairs[0]?.[1] ?? ""), BRIEF.note, TEXT.line, false, measure, "middle");
    return {
      label: { title, sub, lines: [] },
      w: Math.max(NODE.minWidth, Math.ceil(titleWidth(title, sub, measure) + TEXT.node.x + NODE.right)),
      h: NODE.height - 2 * BRIEF.less,
    };
  }
  const room = MAX_WIDTH - TEXT.node.x - NODE.right;
  const left = room - measure(title, TEXT.title, true) - TEXT.gap;
  const sub = note === "" ? "" : elide(note, left, TEXT.line, false, measure);
  const lines = pack(pairs, 186, measure);
  const width = Math.max(titleWidth(title, sub, measure), ...lines.map((row) => rowWidth(row, measure)));
  return {
    label: { title, sub, lines },
    w: Math.max(NODE.minWidth, Math.min(MAX_WIDTH, Math.ceil(width + TEXT.node.x + NODE.right))),
    h: NODE.height + TEXT.node.lineStep * lines.length,
  };
}

/** Returns the name of the module that consists of this node only, unless the name repeats the op or is a number. */
function moduleText(columns: Columns, node: number): string {
  const name = columns.str(columns.nodeModule[node]);
  return /^\d*$/.test(name) || name.toLowerCase() === columns.opOf(node).toLowerCase() ? "" : name;
}

function fitScope(columns: Columns, scope: number, open: boolean, measure: Measure): FittedLabel {
  const owner = columns.scopeNode[scope];
  const body = columns.scopeKind[scope] === SCOPE_KIND.BODY && owner >= 0;
  const name = columns.str(columns.scopeName[scope]);
  const full = (body ? columns.opOf(owner) : name) || "…";
  const repeatText = multipleText(columns, scope);
  const note = [body ? (name === full ? "" : name) : columns.str(columns.scopeClass[scope]), repeatText];
  const room = MAX_WIDTH - TEXT.scope.titleX - CLOSED.right;
  const multipleWidth = repeatText === "" ? 0 : measure(repeatText, TEXT.line, false) + TEXT.keyGap;
  const repeatRoom = repeatText === "" ? 0 : multipleWidth + TEXT.gap;
  const title = elide(full, room - repeatRoom, TEXT.title, true, measure, "middle");
  const left = room - measure(title, TEXT.title, true) - TEXT.gap;
  const contents = contentsText(columns, scope);
  if (measure.brief === true) {
    const size = repeatText || (open ? "" : contents.split(" · ")[0]);
    const sizeText = size === "" || left < 24 ? "" : elide(size, left, TEXT.line, false, measure);
    const titleSpace = titleWidth(title, sizeText, measure);
    return {
      label: { title, sub: sizeText, lines: [] },
      w: Math.max(open ? 0 : NODE.minWidth, Math.ceil(titleSpace + TEXT.scope.titleX + CLOSED.right)),
      h: CLOSED.height - 2 * BRIEF.less,
    };
  }
  const kind =
    left - multipleWidth < 24 ? "" : elide(note[0] as string, left - multipleWidth, TEXT.line, false, measure);
  const sub = left < multipleWidth ? "" : `${kind === "…" ? "" : kind} ${repeatText}`.trim();
  const row: Pair = ["", elide(contents, room, TEXT.line, false, measure)];
  const width = Math.max(titleWidth(title, sub, measure), open ? 0 : measure(row[1], TEXT.line, false));
  return {
    label: { title, sub, lines: open ? [] : [[row]] },
    w: Math.max(open ? 0 : CLOSED.minWidth, Math.min(MAX_WIDTH, Math.ceil(width + TEXT.scope.titleX + CLOSED.right))),
    h: CLOSED.height + (open ? 0 : TEXT.scope.lineStep),
  };
}

/** Returns "×32", "×32, 2 differ", or "differs" for a member that does; "" if there is only one. */
export function multipleText(columns: Columns, scope: number): string {
  const [repeat, differs] = [columns.scopeRepeat[scope], columns.scopeDiffers[scope]];
  if (!columns.isRow(scope) && repeat < 2) return differs > 0 ? "differs" : "";
  return differs === 0 ? `×${repeat}` : `×${repeat}, ${differs} ${differs === 1 ? "differs" : "differ"}`;
}

function contentsText(columns: Columns, scope: number): string {
  const repeat = columns.scopeRepeat[scope];
  const perMember = columns.isRow(scope) && repeat > 1 && columns.scopeNodes[scope] % repeat === 0;
  const share = perMember ? repeat : 1;
  const ops = `${countOf(columns.scopeNodes[scope] / share, "op")}${perMember ? " each" : ""}`;
  const params = columns.scopeParams[scope] / share;
  return params > 0 ? `${ops} · ${formatCompact(params)} ${params === 1 ? "parameter" : "parameters"}` : ops;
}

function fitPill(columns: Columns, value: number, measure: Measure): FittedLabel {
  const name = columns.valueNameOf(value);
  const type = measure.brief === true ? "" : `${columns.shapeOf(value)} ${columns.dtypeOf(value)}`.trim(); // its edge shows it as well
  const sub = elideType(type, 200, TEXT.pill, true, measure);
  const typeWidth = sub === "" ? 0 : measure(sub, TEXT.pill, true) + TEXT.gap;
  const title = elide(name, PILL.maxWidth - 2 * PILL.side - typeWidth, TEXT.pill, true, measure, "middle");
  return {
    label: { title, sub, lines: [] },
    w: Math.max(PILL.minWidth, Math.ceil(measure(title, TEXT.pill, true) + typeWidth + 2 * PILL.side)),
    h: PILL.height - (measure.brief === true ? 2 * BRIEF.less : 0),
  };
}

/** Weights and scalars that a node reads, by formal name: ["W", "64×3×7×7"], ["scale", "0.125"]. */
function constants(columns: Columns, node: number): Pair[] {
  return Array.from(columns.inputsOf(node)).flatMap((value, at): Pair[] => {
    if (value < 0 || !columns.isConstant(value)) return [];
    const literal = columns.str(columns.valueLiteral[value]);
    const text = literal || columns.shapeOf(value) || columns.dtypeOf(value) || "constant";
    return [[columns.inputNameOf(node, at), text]];
  });
}

/** Arranges pairs in at most MAX_ROWS rows of `width` px; text that does not fit becomes "…". */
function pack(pairs: readonly Pair[], width: number, measure: Measure): Pair[][] {
  const lines: Pair[][] = [];
  let lineWidth = 0;
  const ellipsis = measure("…", TEXT.line, false) + TEXT.keyGap;
  for (const [rawKey, rawValue] of pairs) {
    const key = elide(rawKey, width / 2, TEXT.line, false, measure);
    const keyWidth = key === "" ? 0 : measure(key, TEXT.line, false) + TEXT.keyGap;
    const value = elide(rawValue, width - keyWidth, TEXT.line, false, measure, "middle");
    const pairWidth = keyWidth + measure(value, TEXT.line, false);
    const last = lines.at(-1);
    if (last !== undefined && lineWidth + TEXT.gap + pairWidth + (lines.length === MAX_ROWS ? ellipsis : 0) <= width) {
      last.push([key, value]);
      lineWidth += TEXT.gap + pairWidth;
    } else if (lines.length < MAX_ROWS) {
      lines.push([[key, value]]);
      lineWidth = pairWidth;
    } else {
      if (last !== undefined && lineWidth + ellipsis <= width + ellipsis) last.push(["", "…"]);
      return lines;
    }
  }
  return lines;
}

function titleWidth(title: string, sub: string, measure: Measure): number {
  return measure(title, TEXT.title, true) + (sub === "" ? 0 : TEXT.gap + measure(sub, TEXT.line, false));
}

function rowWidth(row: readonly Pair[], measure: Measure): number {
  const widthOf = (text: string): number => measure(text, TEXT.line, false);
  return row.reduce(
    (width, [key, value]) => width + TEXT.gap + widthOf(value) + (key === "" ? 0 : TEXT.keyGap + widthOf(key)),
    -TEXT.gap,
  );
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: names may hold any character, a canvas draws none of these
const CONTROLS = /[\u0000-\u001f\u007f\u2028\u2029]+/g;
/** Halves of surrogate pairs. */
const HALVES = /\p{Cs}/gu;
