/** A chart of rectangles, one or more for each kernel: they respond to the pointer and the keyboard. */

import type { Pen } from "../render/canvas.ts";
import type { Theme } from "../render/theme.ts";
import { elide } from "../scene/labels.ts";
import { el, onResize } from "../ui/dom.ts";
import { drawnAs } from "../ui/still.ts";
import { Chart, type ChartOptions, type Extent } from "./chart.ts";

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

interface TilesOptions extends ChartOptions {
  /** places the tiles; those that are drawn later are on top */
  readonly arrange: (w: number, h: number, extent: Extent) => TileLayout;
  readonly color: (row: number, theme: Theme) => string;
  /** those whose colors `Theme.categories` has */
  readonly categories: readonly string[];
  /** rows from one to the one below it, by keyboard */
  readonly stride?: number;
}

const FULL_EXTENT: Extent = [0, 1];
/** Pixels: width of a tile that gets a text, margin around a tile that still hits it. */
const ROOM = 26;
const HIT_MARGIN = 3;

export class Tiles extends Chart<TilesOptions> {
  readonly element = this.surface;
  readonly #canvas = el("canvas", { "aria-hidden": true });
  #layout: TileLayout | null = null;
  #lit: ReadonlySet<number> | null = null;

  constructor(options: TilesOptions, signal: AbortSignal) {
    super("onnx-nb-tiles", options, options.categories, signal);
    this.element.prepend(this.#canvas);
    drawnAs(this.#canvas, () => this.still((pen) => this.#draw(pen)));
    onResize([this.surface], signal, () => this.rearrange());
  }

  /** Dims all rows but these; null for none. */
  light(rows: ReadonlySet<number> | null): void {
    this.#lit = rows;
    this.schedule();
  }

  get #arrangement(): TileLayout {
    this.#layout ??= this.options.arrange(...this.size, this.extent);
    return this.#layout;
  }

  protected override rearrange(): void {
    this.#layout = null;
    this.schedule();
  }

  protected override paint(): void {
    if (this.element.hidden) return; // once it is shown, the observer of its size draws it
    const { height } = this.#arrangement;
    if (height !== undefined) this.element.style.maxHeight = `${Math.ceil(height)}px`;
    const pen = this.clear(this.#canvas);
    if (pen !== null) this.#draw(pen);
  }

  #draw(pen: Pen): void {
    const { tiles, texts = [], lines = [] } = this.#arrangement;
    const { theme } = this;
    const { color } = this.options;
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
      pen.globalAlpha = row < 0 ? 1 : dim ? 0.18 : row === this.hoveredRow ? 1 : 0.82;
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
      const text = elide(label, w - 8, 11, false, (part) => pen.measureText(part).width);
      if (text.length < 4 && text !== label) continue; // that is next to nothing
      pen.fillStyle = row < 0 ? theme.dim : theme.dark ? "#0d1117" : "#ffffff";
      pen.fillText(text, x + 4, y + Math.min(h / 2, 9));
    }
    pen.fillStyle = theme.dim;
    for (const { x, y, text } of texts) pen.fillText(text, x, y);
    pen.strokeStyle = theme.text;
    pen.lineWidth = 2;
    for (const { row, x, y, w, h } of tiles) {
      if (row < 0 || row !== this.chosenRow) continue;
      pen.beginPath();
      pen.rect(x, y, Math.max(w - 1, 2), Math.max(h - 1, 2));
      pen.stroke();
    }
    this.drawDrag(pen, 0, this.size[1]);
  }

  protected override rowNear(px: number, py: number): number {
    let [hitRow, minDistance] = [-1, HIT_MARGIN];
    for (const { row, x, y, w, h } of this.#arrangement.tiles) {
      const distance = Math.max(x - px, px - x - w, y - py, py - y - h, 0);
      if (row >= 0 && distance <= minDistance) [hitRow, minDistance] = [row, distance]; // the last is on top
    }
    return hitRow;
  }

  protected override get whole(): Extent {
    return FULL_EXTENT;
  }

  protected override get reach(): Extent {
    return [0, this.size[0]];
  }

  protected override places(): readonly (readonly [number, number, number])[] {
    const [w, h] = this.size;
    const { tiles } = this.options.arrange(w, h, FULL_EXTENT);
    const places = tiles.map((tile) => [tile.row, [tile.row, tile.x / w, (tile.x + tile.w) / w]] as const);
    return [...new Map(places.filter(([row]) => row >= 0)).values()];
  }

  protected override keys(): Readonly<Record<string, () => void>> {
    const { stride = 1 } = this.options;
    const jump = (by: number) => (): void => {
      const places = this.places();
      const at = places.findIndex(([row]) => row === this.chosenRow);
      if (at < 0 || places[at + by] !== undefined) this.step(by);
    };
    const Escape = (): void => this.pick(-1);
    return stride === 1 ? { Escape } : { Escape, ArrowDown: jump(stride), ArrowUp: jump(-stride) };
  }
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
