/** The text in a box and on an edge, elided to fit, and the size of the box that holds it. */

import { type Columns, NODE_DIFFERS, SCOPE_KIND } from "../protocol/columns.ts";
import { rounded } from "./formatting.ts";
import { Interner } from "./interner.ts";
import { BOX, type Label, type Pair } from "./scene.ts";

/** Width of a text in px; bold is weight 600. Injected: the browser asks a canvas, tests count characters. */
export interface Measure {
  (text: string, fontPx: number, bold: boolean): number;
  /** brief labels: a box has one line, so that more boxes fit into the view */
  readonly brief?: boolean;
}

/** The same font with brief labels. */
export function briefly(measure: Measure): Measure {
  return Object.assign((text: string, fontPx: number, bold: boolean) => measure(text, fontPx, bold), { brief: true });
}

export interface Fitted {
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
const WHOLE = new Intl.NumberFormat("en");
/** Characters of a text that are measured; longer ones are shortened first. */
const LONGEST = 300;

/** Maximum number of distinct node labels cached; labels that contain numbers may all differ. */
const REMEMBERED = 500;

/** The text of every box and the size that holds it; for an open scope the minimum size of its title strip. */
export class Labels {
  readonly #columns: Columns;
  readonly #measure: Measure;
  readonly #nodes = new Interner<Fitted>();
  /** key of the current node's text */
  readonly #parts: number[] = [];

  constructor(columns: Columns, measure: Measure) {
    this.#columns = columns;
    this.#measure = measure;
  }

  of(kind: number, id: number): Fitted {
    switch (kind) {
      case BOX.NODE:
        return this.#node(id);
      case BOX.SCOPE:
      case BOX.OPEN:
        return fitScope(this.#columns, id, kind === BOX.OPEN, this.#measure);
      default:
        return fitPill(this.#columns, id, this.#measure);
    }
  }

  /** Most nodes of a model share their label with others. */
  #node(node: number): Fitted {
    const { nodeOp, nodeAttributes, nodeFlags, inPtr, inValue, valueLiteral, valueShape, valueDtype } = this.#columns;
    const parts = this.#parts;
    parts.length = 0;
    parts.push(nodeOp[node], nodeAttributes[node], nodeFlags[node] & NODE_DIFFERS);
    for (let k = inPtr[node]; k < inPtr[node + 1]; k++) {
      const value = inValue[k];
      if (value < 0 || !this.#columns.isConstant(value)) continue;
      parts.push(k - inPtr[node], valueLiteral[value], valueShape[value], valueDtype[value]);
    }
    const known = this.#nodes.find([parts]);
    if (known !== undefined) return known;
    const fitted = fitNode(this.#columns, node, this.#measure);
    if (this.#nodes.size < REMEMBERED) this.#nodes.keep([parts.slice()], fitted);
    return fitted;
  }
}

/** Pixels from the top of a box to its text, if the box is higher than its text (many ports) or brief. */
export function textTop(kind: number, rows: number, h: number): number {
  const own = kind === BOX.NODE ? NODE : kind === BOX.SCOPE ? CLOSED : PILL;
  const step = kind === BOX.NODE ? TEXT.node.lineStep : TEXT.scope.lineStep;
  return Math.max(-BRIEF.less, Math.round((h - own.height - step * rows) / 2));
}

/** "batch×seq×768 f32" of a value; "" if neither is known. */
export function typeText(columns: Columns, value: number): string {
  const shape = columns.shapeOf(value);
  const dtype = shortDtype(columns.dtypeOf(value));
  return shape === "" ? dtype : `${shape} ${dtype}`.trimEnd();
}

/** The same without the most common dtype: "batch×seq×768". */
export function briefType(columns: Columns, value: number): string {
  const shape = columns.shapeOf(value);
  return columns.dtypeOf(value) === "float32" && shape !== "" ? shape : typeText(columns, value);
}

/** "f32" for "float32", "bf16", "i64", "u8", "bool", "str", "seq(f32)". */
export function shortDtype(dtype: string): string {
  return dtype
    .replace("bfloat", "bf")
    .replace("float", "f")
    .replace("uint", "u")
    .replace("int", "i")
    .replace("complex", "c")
    .replace("string", "str");
}

/**
 * One line of at most `width` px: control characters become spaces, and what does not fit becomes "…" at the end or in
 * the middle.
 */
export function elide(
  text: string,
  width: number,
  fontPx: number,
  bold: boolean,
  measure: Measure,
  where: "end" | "middle" = "end",
): string {
  const clean = oneLine(text);
  if (clean.length === text.length && measure(clean, fontPx, bold) <= width) return clean;
  const whole = characters(text);
  if (text.length <= LONGEST && measure(joined(whole), fontPx, bold) <= width) return joined(whole);
  const cut = (kept: number): string => {
    const back = where === "end" ? 0 : Math.floor(kept / 2);
    const head = joined(whole.slice(0, kept - back)).trimEnd();
    return `${head}…${back === 0 ? "" : joined(whole.slice(-back))}`;
  };
  let low = 0;
  let high = whole.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(cut(middle), fontPx, bold) <= width) low = middle;
    else high = middle - 1;
  }
  return low <= 0 ? "…" : cut(low);
}

/** 7087872 → "7.1 M". */
export function count(n: number): string {
  return rounded(n, ["", " k", " M", " G", " T"]);
}

function fitNode(columns: Columns, node: number, measure: Measure): Fitted {
  const domain = columns.domainOf(node);
  const op = columns.opOf(node);
  const title = elide(op, MAX_WIDTH - 30, TEXT.title, true, measure);
  const pairs = [...constants(columns, node), ...attributes(columns, node)];
  const own = domain === "" || domain === "ai.onnx" ? "" : domain;
  const note = (columns.nodeFlags[node] & NODE_DIFFERS) === 0 ? own : `differs ${own}`.trim();
  if (measure.brief === true) return briefNode(title, note || (pairs[0]?.[1] ?? ""), op, domain, pairs, measure);
  const room = MAX_WIDTH - TEXT.node.x - NODE.right;
  const sub =
    note === "" ? "" : elide(note, room - measure(title, TEXT.title, true) - TEXT.gap, TEXT.line, false, measure);
  const rows = pack(pairs, 186, measure);
  const width = Math.max(titleWidth(title, sub, measure), ...rows.lines.map((row) => rowWidth(row, measure)));
  const elided = rows.elided || title !== op || sub !== note;
  return {
    label: {
      title,
      sub,
      lines: rows.lines,
      full: elided ? fullNode(op, domain, pairs) : "",
    },
    w: Math.max(NODE.minWidth, Math.min(MAX_WIDTH, Math.ceil(width + TEXT.node.x + NODE.right))),
    h: NODE.height + TEXT.node.lineStep * rows.lines.length,
  };
}

/** A node's op and what distinguishes it best: its domain, or else its first weight or scalar. */
function briefNode(
  title: string,
  note: string,
  op: string,
  domain: string,
  pairs: readonly Pair[],
  measure: Measure,
): Fitted {
  const sub = note === "" ? "" : elide(note, BRIEF.note, TEXT.line, false, measure, "middle");
  const whole = title === op && (pairs.length === 0 || (pairs.length === 1 && sub === pairs[0][1]));
  return {
    label: { title, sub, lines: [], full: whole ? "" : fullNode(op, domain, pairs) },
    w: Math.max(NODE.minWidth, Math.ceil(titleWidth(title, sub, measure) + TEXT.node.x + NODE.right)),
    h: NODE.height - 2 * BRIEF.less,
  };
}

function fullNode(op: string, domain: string, pairs: readonly Pair[]): string {
  return [`${op} ${domain}`.trim(), ...pairs.map(([key, value]) => `${key} ${value}`)].join("\n");
}

function fitScope(columns: Columns, scope: number, open: boolean, measure: Measure): Fitted {
  const owner = columns.scopeNode[scope] as number;
  const body = columns.scopeKind[scope] === SCOPE_KIND.BODY && owner >= 0;
  const name = columns.str(columns.scopeName[scope] as number);
  const full = (body ? columns.opOf(owner) : name) || "…";
  const multiple = multipleText(columns, scope);
  const note = [body ? (name === full ? "" : name) : columns.str(columns.scopeClass[scope] as number), multiple];
  const room = MAX_WIDTH - TEXT.scope.titleX - CLOSED.right;
  const multipleWidth = multiple === "" ? 0 : measure(multiple, TEXT.line, false) + TEXT.keyGap;
  const reserved = multiple === "" ? 0 : multipleWidth + TEXT.gap;
  const title = elide(full, room - reserved, TEXT.title, true, measure, "middle");
  const left = room - measure(title, TEXT.title, true) - TEXT.gap;
  const contents = contentsText(columns, scope);
  const difference = columns.str(columns.scopeDifference[scope] as number);
  const whole = [`${full} ${note.join(" ")}`.trim(), contents, ...(difference === "" ? [] : [difference])].join("\n");
  if (measure.brief === true) {
    const size = multiple || (open ? "" : (contents.split(" · ")[0] as string));
    const said = size === "" || left < 24 ? "" : elide(size, left, TEXT.line, false, measure);
    const taken = titleWidth(title, said, measure);
    return {
      label: { title, sub: said, lines: [], full: whole },
      w: Math.max(open ? 0 : NODE.minWidth, Math.ceil(taken + TEXT.scope.titleX + CLOSED.right)),
      h: CLOSED.height - 2 * BRIEF.less,
    };
  }
  const kind =
    left - multipleWidth < 24 ? "" : elide(note[0] as string, left - multipleWidth, TEXT.line, false, measure);
  const sub = left < multipleWidth ? "" : `${kind === "…" ? "" : kind} ${multiple}`.trim();
  const row: Pair = ["", elide(contents, room, TEXT.line, false, measure)];
  const width = Math.max(titleWidth(title, sub, measure), open ? 0 : measure(row[1], TEXT.line, false));
  return {
    label: {
      title,
      sub,
      lines: open ? [] : [[row]],
      full: whole === `${`${title} ${sub}`.trim()}\n${row[1]}` ? "" : whole,
    },
    w: Math.max(open ? 0 : CLOSED.minWidth, Math.min(MAX_WIDTH, Math.ceil(width + TEXT.scope.titleX + CLOSED.right))),
    h: CLOSED.height + (open ? 0 : TEXT.scope.lineStep),
  };
}

/** "×32", "×32, 2 differ", or "differs" for a member that does; "" if there is only one. */
export function multipleText(columns: Columns, scope: number): string {
  const repeat = columns.scopeRepeat[scope] as number;
  const differs = columns.scopeDiffers[scope] as number;
  if (!columns.isRow(scope) && repeat < 2) return differs > 0 ? "differs" : "";
  return differs === 0 ? `×${repeat}` : `×${repeat}, ${differs} ${differs === 1 ? "differs" : "differ"}`;
}

function contentsText(columns: Columns, scope: number): string {
  const nodes = columns.scopeNodes[scope] as number;
  const params = columns.scopeParams[scope] as number;
  const repeat = columns.scopeRepeat[scope] as number;
  const each = columns.isRow(scope) && repeat > 1 && nodes % repeat === 0;
  const share = each ? repeat : 1;
  const ops = nodes / share;
  const parts = [`${WHOLE.format(ops)} ${ops === 1 ? "op" : "ops"}${each ? " each" : ""}`];
  if (params > 0) parts.push(`${count(params / share)} ${params / share === 1 ? "parameter" : "parameters"}`);
  return parts.join(" · ");
}

function fitPill(columns: Columns, value: number, measure: Measure): Fitted {
  const name = columns.valueNameOf(value);
  const whole = `${columns.shapeOf(value)} ${columns.dtypeOf(value)}`.trim();
  const type = measure.brief === true ? "" : whole; // its edge shows it, too
  const sub = elide(type, 200, TEXT.pill, true, measure, "middle");
  const used = sub === "" ? 0 : measure(sub, TEXT.pill, true) + TEXT.gap;
  const title = elide(name, PILL.maxWidth - 2 * PILL.side - used, TEXT.pill, true, measure, "middle");
  return {
    label: { title, sub, lines: [], full: title === name && sub === whole ? "" : `${name} ${whole}`.trim() },
    w: Math.max(PILL.minWidth, Math.ceil(measure(title, TEXT.pill, true) + used + 2 * PILL.side)),
    h: PILL.height - (measure.brief === true ? 2 * BRIEF.less : 0),
  };
}

/** Weights and scalars that a node reads, by formal name: ["W", "64×3×7×7"], ["scale", "0.125"]. */
function constants(columns: Columns, node: number): Pair[] {
  const pairs: Pair[] = [];
  const inputs = columns.inputsOf(node);
  for (let k = 0; k < inputs.length; k++) {
    const value = inputs[k] as number;
    if (value < 0 || !columns.isConstant(value)) continue;
    const literal = columns.str(columns.valueLiteral[value] as number);
    pairs.push([
      columns.inputNameOf(node, k),
      literal || columns.shapeOf(value) || columns.dtypeOf(value) || "constant",
    ]);
  }
  return pairs;
}

function attributes(columns: Columns, node: number): Pair[] {
  const text = columns.str(columns.nodeAttributes[node] as number);
  if (text === "") return [];
  return text.split(" · ").map((part): Pair => {
    const space = part.indexOf(" ");
    return space < 0 ? [part, ""] : [part.slice(0, space), part.slice(space + 1)];
  });
}

/** Pairs in at most MAX_ROWS rows of `width` px; what does not fit becomes "…". */
function pack(pairs: readonly Pair[], width: number, measure: Measure): { lines: Pair[][]; elided: boolean } {
  const lines: Pair[][] = [];
  let used = 0;
  const ellipsis = measure("…", TEXT.line, false) + TEXT.keyGap;
  for (const [rawKey, rawValue] of pairs) {
    const key = elide(rawKey, width / 2, TEXT.line, false, measure);
    const keyWidth = key === "" ? 0 : measure(key, TEXT.line, false) + TEXT.keyGap;
    const value = elide(rawValue, width - keyWidth, TEXT.line, false, measure, "middle");
    const pairWidth = keyWidth + measure(value, TEXT.line, false);
    const last = lines.at(-1);
    if (last !== undefined && used + TEXT.gap + pairWidth + (lines.length === MAX_ROWS ? ellipsis : 0) <= width) {
      last.push([key, value]);
      used += TEXT.gap + pairWidth;
    } else if (lines.length < MAX_ROWS) {
      lines.push([[key, value]]);
      used = pairWidth;
    } else {
      if (last !== undefined && used + ellipsis <= width + ellipsis) last.push(["", "…"]);
      return { lines, elided: true };
    }
  }
  const elided = lines.flat().some(([key, value], index) => {
    const pair = pairs[index];
    return pair === undefined || pair[0] !== key || pair[1] !== value;
  });
  return { lines, elided };
}

function titleWidth(title: string, sub: string, measure: Measure): number {
  return measure(title, TEXT.title, true) + (sub === "" ? 0 : TEXT.gap + measure(sub, TEXT.line, false));
}

function rowWidth(row: readonly Pair[], measure: Measure): number {
  let width = -TEXT.gap;
  for (const [key, value] of row) {
    width += TEXT.gap + measure(value, TEXT.line, false);
    if (key !== "") width += TEXT.keyGap + measure(key, TEXT.line, false);
  }
  return width;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: names may hold any character, a canvas draws none of these
const CONTROLS = /[\u0000-\u001f\u007f\u2028\u2029]+/g;

function oneLine(text: string): string {
  return text.length > LONGEST ? text.slice(0, LONGEST) : text.replace(CONTROLS, " ");
}

/** Text that can be divided between any two elements: a string, unless a character takes two units. */
type Characters = string | readonly string[];

/** The characters of a text; of a very long one its first and last. */
function characters(text: string): Characters {
  const long = text.length > LONGEST;
  const parts = long ? [text.slice(0, LONGEST / 2), text.slice(-LONGEST / 2)] : [text];
  const lines = parts.map((part) => part.replace(CONTROLS, " "));
  if (!/[\ud800-\udfff]/.test(text)) return lines.join("");
  return lines.flatMap((line) => Array.from(line)).filter((character) => !/^[\ud800-\udfff]$/.test(character));
}

function joined(characters: Characters): string {
  return typeof characters === "string" ? characters : characters.join("");
}
