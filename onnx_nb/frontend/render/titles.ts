/** Titles of scopes, which keep their size on screen, as the names of cities do on a map. */

import { elide, type Measure, TEXT } from "../scene/labels.ts";
import { BOX, type Scene } from "../scene/scene.ts";

/** Zoom below which a closed scope has room for nothing but its title. */
export const TITLE_ONLY = 0.58;
/** Screen pixels: height and smallest room of a title, space around it, and a box for whose toggle there is room. */
const TITLE = { line: 15, least: 24, pad: 4, toggle: 84 } as const;
/** Pixels from the top of an open scope to its title, and the least of them on screen. */
const TOP = { world: TEXT.scope.titleY - TEXT.title, screen: 2 } as const;
/** Pixels of an open scope that hold nothing but its title, and the part of the rest that a title may cover. */
const STRIP = 30;
const MAX_COVER = 0.15;
/** Screen pixels of a closed scope's height below which titles of neighbors would overlap. */
const MIN_HEIGHT = 6;

/** Text and room of a title, in world px. */
interface Title {
  readonly text: string;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  readonly hasToggle: boolean;
}

/** Returns the factor by which a title is enlarged in the world to stay legible on screen. */
export function enlargement(k: number): number {
  return Math.max(1, 1 / k);
}

export class Titles {
  readonly k: number;
  readonly #scene: Scene;
  readonly #measure: Measure;
  readonly #titles = new Map<number, Title | null>();

  constructor(scene: Scene, measure: Measure, k: number) {
    this.#scene = scene;
    this.#measure = measure;
    this.k = k;
  }

  /** Returns the title of an open scope, or of a closed one that shows nothing else; null if there is no room. */
  of(box: number): Title | null {
    const { kind } = this.#scene.boxes;
    if (kind[box] !== BOX.OPEN && (kind[box] !== BOX.SCOPE || this.k >= TITLE_ONLY)) return null;
    let title = this.#titles.get(box);
    if (title === undefined) {
      title = this.#place(box);
      this.#titles.set(box, title);
    }
    return title;
  }

  #place(box: number): Title | null {
    const { kind, parent, x, y, w, h } = this.#scene.boxes;
    const scale = enlargement(this.k);
    const isOpen = kind[box] === BOX.OPEN;
    const height = TITLE.line * scale;
    const covers = (width: number): boolean => (width + 2 * TITLE.pad * scale) * height > MAX_COVER * w[box] * h[box];
    const hasToggle = isOpen && w[box] >= TITLE.toggle * scale;
    const pad = isOpen ? TITLE.pad * scale : scale;
    const before = hasToggle ? TEXT.scope.titleX * scale : pad;
    const room = w[box] - before - pad;
    let top = y[box] + (isOpen ? Math.max(TOP.world, TOP.screen * scale) : (h[box] - height) / 2);
    const isLow = isOpen ? top + height > y[box] + STRIP && covers(TITLE.least * scale) : h[box] < MIN_HEIGHT * scale;
    if (isLow || room < TITLE.least * scale) return null;
    const text = elide(this.#scene.label(box).title, room, TEXT.title * scale, true, this.#measure, "middle");
    if (text === "…") return null;
    const width = this.#measure(text, TEXT.title * scale, true);
    const left = isOpen ? x[box] + before : x[box] + (w[box] - width) / 2;
    const start = (isOpen ? x[box] : left) - TITLE.pad * scale; // the toggle is before the text
    for (let at = parent[box]; at >= 0; at = parent[at]) {
      const other = this.of(at);
      if (other === null || start >= other.right || top >= other.bottom || other.top >= top + height) continue;
      if (!isOpen) return null;
      top = other.bottom;
    }
    if (isOpen && top + height > y[box] + STRIP && covers(width)) return null;
    return { text, left, right: left + width, top, bottom: top + height, hasToggle };
  }
}
