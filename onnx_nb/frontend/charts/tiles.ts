/** A chart of rectangles, one or more for each kernel: they respond to the pointer and the keyboard. */

import type { Pen } from "../render/canvas.ts";
import { documentOf, SvgPen } from "../render/svg.ts";
import { createMeasure, readTheme, type Theme } from "../render/theme.ts";
import { el, on, onAbort, onKeys, onResize, placeTooltip } from "../ui/dom.ts";
import { drawnAs } from "../ui/still.ts";

/** A rectangle in pixels of the chart. */
export interface Tile {
  /** row that it stands for, −1 for one that holds others */
  readonly row: number;
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
  readonly label: string;
  /** number of tiles around it */
  readonly depth?: number;
}

export interface TileLayout {
  /** pixels that it needs; by default the size of the chart */
  readonly height?: number;
  readonly tiles: readonly Tile[];
  /** texts outside of tiles: ticks and names of lanes */
  readonly texts?: readonly { readonly x: number; readonly y: number; readonly text: string }[];
  /** lines, as x0, y0, x1, y1, and true for one that matters more than an axis */
  readonly lines?: readonly (readonly [number, number, number, number, boolean?])[];
}

/** The part of the horizontal axis in view, from 0 to 1. */
export type Extent = readonly [from: number, to: number];

export interface TilesOptions {
  readonly label: string;
  /** places the tiles; those that are drawn later are on top */
  readonly arrange: (w: number, h: number, extent: Extent) => TileLayout;
  readonly color: (row: number, theme: Theme) => string;
  /** those whose colors `Theme.categories` has */
  readonly categories: readonly string[];
  /** rows from one to the one below it, by keyboard */
  readonly stride?: number;
  readonly describe: (row: number) => string;
  readonly onChoose: (row: number) => void;
  /** dragging over a range shows only that */
  readonly zooms: boolean;
}

const FULL_EXTENT: Extent = [0, 1];
/** Pixels: movement that starts a drag, width of a tile that gets a text, margin around a tile that still hits it. */
const SLOP = 5;
const ROOM = 26;
const HIT_MARGIN = 3;

export class Tiles {
  readonly element: HTMLElement;
  readonly #options: TilesOptions;
  readonly #canvas = el("canvas", { "aria-hidden": true });
  readonly #tooltip = el("div.onnx-nb-tooltip", { "aria-hidden": true });
  #layout: TileLayout | null = null;
  #lit: ReadonlySet<number> | null = null;
  #chosenRow = -1;
  #hoveredRow = -1;
  #extent: Extent = FULL_EXTENT;
  #drag: { readonly from: number; to: number } | null = null;
  #theme: Theme | null = null;
  #frame = 0;

  constructor(options: TilesOptions, signal: AbortSignal) {
    this.#options = options;
    this.#tooltip.hidden = true;
    const attributes = { role: "slider", tabindex: 0, "aria-label": options.label, "aria-valuemin": 1 };
    this.element = el("div.onnx-nb-tiles", attributes, this.#canvas, this.#tooltip);
    drawnAs(this.#canvas, () => this.#svg());
    this.#listen(signal);
    onResize([this.element], signal, () => this.#rearrange());
    onAbort(signal, () => cancelAnimationFrame(this.#frame));
    this.#describe();
  }

  /** Marks the tiles of a row, without calling `chosen`. */
  choose(row: number): void {
    this.#chosenRow = row;
    this.#describe();
    this.#schedule();
  }

  /** Dims all rows but these; null for none. */
  light(rows: ReadonlySet<number> | null): void {
    this.#lit = rows;
    this.#schedule();
  }

  redraw(): void {
    this.#theme = null;
    this.#rearrange();
  }

  get #size(): [number, number] {
    return [Math.max(160, this.element.clientWidth || 600), Math.max(80, this.element.clientHeight || 200)];
  }

  get #arrangement(): TileLayout {
    this.#layout ??= this.#options.arrange(...this.#size, this.#extent);
    return this.#layout;
  }

  #rearrange(): void {
    this.#layout = null;
    this.#schedule();
  }

  #zoom(extent: Extent = FULL_EXTENT): void {
    if (!this.#options.zooms) return;
    this.#extent = extent;
    this.#rearrange();
  }

  #schedule(): void {
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.element.hidden) return; // once it is shown, the observer of its size draws it
      const { height } = this.#arrangement;
      if (height !== undefined) this.element.style.maxHeight = `${Math.ceil(height)}px`;
      const [w, h] = this.#size;
      const density = globalThis.devicePixelRatio || 1;
      this.#canvas.width = Math.round(w * density);
      this.#canvas.height = Math.round(h * density);
      const pen = this.#canvas.getContext("2d");
      if (pen === null) return;
      pen.setTransform(density, 0, 0, density, 0, 0);
      this.#draw(pen as Pen);
    });
  }

  #svg(): string {
    const { font } = this.#look;
    const pen = new SvgPen(createMeasure(font));
    this.#draw(pen);
    return documentOf(...this.#size, pen.finish());
  }

  get #look(): Theme {
    const root = this.element.closest<HTMLElement>(".onnx-nb") ?? this.element;
    this.#theme ??= readTheme(root, this.#options.categories);
    return this.#theme;
  }

  #draw(pen: Pen): void {
    const { tiles, texts = [], lines = [] } = this.#arrangement;
    const theme = this.#look;
    const { color } = this.#options;
    pen.font = `11px ${theme.font}`;
    pen.textBaseline = "middle";
    for (const [x0, y0, x1, y1, bold] of lines) {
      pen.strokeStyle = bold ? theme.text : theme.line;
      pen.lineWidth = bold ? 1.5 : 1;
      pen.beginPath();
      pen.moveTo(x0, y0);
      pen.lineTo(x1, y1);
      pen.stroke();
    }
    pen.strokeStyle = theme.line;
    pen.lineWidth = 1;
    for (const { row, x, y, w, h, depth = 0 } of tiles) {
      const dim = this.#lit !== null && row >= 0 && !this.#lit.has(row);
      pen.globalAlpha = row < 0 ? 1 : dim ? 0.18 : row === this.#hoveredRow ? 1 : 0.82;
      pen.fillStyle = row < 0 ? theme.scopes[depth % 2] : color(row, theme);
      const gap = w > 3 && h > 3 ? 1 : 0;
      pen.fillRect(x, y, Math.max(w - gap, 0.6), Math.max(h - gap, 0.6));
      if (row >= 0) continue;
      pen.beginPath();
      pen.rect(x + 0.5, y + 0.5, Math.max(w - 2, 0), Math.max(h - 2, 0));
      pen.stroke();
    }
    pen.globalAlpha = 1;
    for (const { row, x, y, w, h, label } of tiles) {
      const least = Math.min(ROOM, 8 + 7 * label.length);
      if (w < least || h < 11 || label === "" || (this.#lit !== null && row >= 0 && !this.#lit.has(row))) continue;
      const text = fitText(pen, label, w - 8);
      if (text === "") continue;
      pen.fillStyle = row < 0 ? theme.dim : theme.dark ? "#0d1117" : "#ffffff";
      pen.fillText(text, x + 4, y + Math.min(h / 2, 9));
    }
    pen.fillStyle = theme.dim;
    for (const { x, y, text } of texts) pen.fillText(text, x, y);
    pen.strokeStyle = theme.text;
    pen.lineWidth = 2;
    for (const { row, x, y, w, h } of tiles) {
      if (row < 0 || row !== this.#chosenRow) continue;
      pen.beginPath();
      pen.rect(x, y, Math.max(w - 1, 2), Math.max(h - 1, 2));
      pen.stroke();
    }
    if (this.#drag !== null) {
      const { from, to } = this.#drag;
      pen.fillStyle = theme.halo;
      pen.fillRect(Math.min(from, to), 0, Math.abs(to - from), this.#size[1]);
    }
  }

  #describe(): void {
    const row = this.#chosenRow;
    this.element.setAttribute("aria-valuenow", String(Math.max(1, row + 1)));
    this.element.setAttribute("aria-valuetext", row < 0 ? "nothing chosen" : this.#options.describe(row));
  }

  #pick(row: number): void {
    if (row === this.#chosenRow) return;
    this.choose(row);
    this.#options.onChoose(row);
  }

  /** Returns the row at a point or near it, −1 for none. */
  #at(px: number, py: number): number {
    let [hitRow, minDistance] = [-1, HIT_MARGIN];
    for (const { row, x, y, w, h } of this.#arrangement.tiles) {
      const distance = Math.max(x - px, px - x - w, y - py, py - y - h, 0);
      if (row >= 0 && distance <= minDistance) [hitRow, minDistance] = [row, distance]; // the last is on top
    }
    return hitRow;
  }

  #listen(signal: AbortSignal): void {
    const { element } = this;
    const { describe } = this.#options;
    const place = (event: MouseEvent): [number, number] => {
      const { left, top } = element.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    const hover = (row: number, x = 0, y = 0): void => {
      this.#tooltip.hidden = row < 0;
      if (row >= 0) {
        this.#tooltip.textContent = describe(row);
        placeTooltip(this.#tooltip, x, y, ...this.#size);
      }
      if (row === this.#hoveredRow) return;
      this.#hoveredRow = row;
      this.#schedule();
    };
    on(element, "pointermove", signal, (event) => {
      const [x, y] = place(event);
      if (this.#drag === null) hover(this.#at(x, y), x, y);
      else {
        this.#drag.to = x;
        hover(-1);
        this.#schedule();
      }
    });
    on(element, "pointerleave", signal, () => hover(-1));
    on(element, "pointerdown", signal, (event) => {
      if (event.button !== 0) return;
      const [x] = place(event);
      this.#drag = { from: x, to: x };
      element.setPointerCapture?.(event.pointerId);
    });
    on(element, "pointerup", signal, (event) => {
      if (this.#drag === null) return;
      const [from, to] = [this.#drag.from, this.#drag.to].sort((a, b) => a - b);
      this.#drag = null;
      const [low, high] = this.#extent;
      const [w] = this.#size;
      const share = (x: number): number => low + (Math.max(0, Math.min(w, x)) / w) * (high - low);
      if (this.#options.zooms && to - from > SLOP) this.#zoom([share(from), share(to)]);
      else this.#pick(this.#at(...place(event)));
      this.#schedule();
    });
    on(element, "pointercancel", signal, () => {
      this.#drag = null;
    });
    on(element, "dblclick", signal, () => this.#zoom());
    const { stride = 1 } = this.#options;
    const step = (by: number): void => {
      const rows = [...new Set(this.#arrangement.tiles.map(({ row }) => row).filter((row) => row >= 0))];
      if (rows.length === 0) return;
      const at = rows.indexOf(this.#chosenRow);
      if (Math.abs(by) === stride && stride > 1 && rows[at + by] === undefined) return;
      this.#pick(rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))]);
    };
    const scale = (factor: number): void => {
      const [low, high] = this.#extent;
      const half = Math.min(0.5, ((high - low) / 2) * factor);
      const middle = Math.max(half, Math.min(1 - half, (low + high) / 2));
      this.#zoom([middle - half, middle + half]);
    };
    const keys: Readonly<Record<string, () => void>> = {
      ArrowRight: () => step(1),
      ArrowDown: () => step(stride),
      ArrowLeft: () => step(-1),
      ArrowUp: () => step(-stride),
      Home: () => step(-Infinity),
      End: () => step(Infinity),
      "+": () => scale(0.5),
      "=": () => scale(0.5),
      "-": () => scale(2),
      "0": () => this.#zoom(),
      Escape: () => this.#pick(-1),
    };
    onKeys(element, keys, signal);
  }
}

/** Returns as much of a text as fits, "" if that is next to nothing. */
function fitText(pen: Pen, text: string, room: number): string {
  if (text.length * 5 <= room && pen.measureText(text).width <= room) return text;
  let prefix = text.slice(0, Math.max(0, Math.floor(room / 5)));
  while (prefix.length > 2 && pen.measureText(`${prefix}…`).width > room) prefix = prefix.slice(0, -1);
  return prefix.length > 2 ? `${prefix}…` : "";
}

/** Divides a rectangle among weights, largest first, into pieces that are as square as possible. */
export function squarify(
  weights: readonly number[],
  x: number,
  y: number,
  w: number,
  h: number,
): readonly (readonly [x: number, y: number, w: number, h: number])[] {
  const places: [number, number, number, number][] = [];
  let weightLeft = weights.reduce((sum, weight) => sum + weight, 0);
  let at = 0;
  while (at < weights.length) {
    const side = Math.min(w, h);
    const scale = weightLeft > 0 ? (w * h) / weightLeft : 0;
    /** how long the worst piece is for its width, if the row has these weights */
    const aspect = (sum: number, last: number, first: number): number => {
      const area = sum * scale;
      return Math.max((side * side * first * scale) / (area * area), (area * area) / (side * side * last * scale));
    };
    let end = at + 1;
    let sum = weights[at];
    while (end < weights.length && weights[end] > 0) {
      const next = sum + weights[end];
      if (aspect(next, weights[end], weights[at]) > aspect(sum, weights[end - 1], weights[at])) break;
      sum = next;
      end++;
    }
    if (end < weights.length && weights[end] <= 0) end = weights.length;
    const thickness = side > 0 ? (sum * scale) / side : 0;
    let along = 0;
    for (let piece = at; piece < end; piece++) {
      const long = sum > 0 ? (weights[piece] / sum) * side : 0;
      places.push(w >= h ? [x, y + along, thickness, long] : [x + along, y, long, thickness]);
      along += long;
    }
    if (w >= h) [x, w] = [x + thickness, Math.max(0, w - thickness)];
    else [y, h] = [y + thickness, Math.max(0, h - thickness)];
    weightLeft -= sum;
    at = end;
  }
  return places;
}
