/** What lies under a point: an index over boxes, one over the pieces of edges, one over the words on edges. */

import Flatbush from "flatbush";
import type { Target } from "../model/columns.ts";
import { type Measure, TEXT } from "../scene/labels.ts";
import { BOX, type Scene } from "../scene/scene.ts";
import { along, distance2 } from "./curve.ts";

export interface Hit {
  readonly target: Target;
  readonly part: "box" | "toggle" | "edge" | "label";
  /** index in the scene, −1 for none */
  readonly box: number;
  readonly edge: number;
}

/** Height of the strip of an open scope that stands for the scope itself; below it lies what is inside. */
const HEADER = 26;
const TOGGLE = 26;
/** An end of an edge wins over the box it touches within this many screen px. */
const PORT = 4.5;

export class HitIndex {
  readonly #scene: Scene;
  readonly #measure: Measure;
  readonly #boxes: Flatbush | null;
  #pieces: Flatbush | null | undefined;
  #pieceEdge: Uint32Array = new Uint32Array(0);
  #piecePoint: Uint32Array = new Uint32Array(0);
  #labels: Flatbush | null | undefined;
  #labelEdge: number[] = [];

  constructor(scene: Scene, measure: Measure) {
    this.#scene = scene;
    this.#measure = measure;
    const { boxes } = scene;
    this.#boxes = index(boxes.count, (add) => {
      for (let box = 0; box < boxes.count; box++) {
        add(boxes.x[box], boxes.y[box], boxes.x[box] + boxes.w[box], boxes.y[box] + boxes.h[box]);
      }
    });
  }

  /** Boxes that touch a world rectangle, parents before children. */
  boxesIn(x0: number, y0: number, x1: number, y1: number): number[] {
    return this.#boxes?.search(x0, y0, x1, y1).sort((a, b) => a - b) ?? [];
  }

  /** Edges that touch a world rectangle, each once. */
  edgesIn(x0: number, y0: number, x1: number, y1: number): number[] {
    const pieces = this.#pieceIndex();
    if (pieces === null) return [];
    const found = pieces.search(x0, y0, x1, y1).map((piece) => this.#pieceEdge[piece]);
    return [...new Set(found)].sort((a, b) => a - b);
  }

  /** `tolerance` is the reach of an edge in world px; `k` is the zoom, which says what can be seen at all. */
  hit(x: number, y: number, tolerance: number, k: number): Hit | null {
    const { boxes } = this.#scene;
    const box = this.boxAt(x, y);
    const kind = box < 0 ? -1 : boxes.kind[box];
    if (box >= 0 && kind !== BOX.OPEN) {
      const at = this.#toggleAt(box, x, y, k);
      if (at !== null) return at;
      const port = Math.min(PORT / k, boxes.h[box] / 3);
      const edge = this.#edgeAt(x, y, tolerance, (e) => this.#atPort(e, box, x, y, port, tolerance));
      return edge >= 0 ? this.#onEdge(edge, "edge") : this.#onBox(box, "box");
    }
    if (box >= 0) {
      const at = this.#toggleAt(box, x, y, k);
      if (at !== null) return at;
      if (y <= boxes.y[box] + HEADER && x <= boxes.x[box] + TEXT.group.titleX + this.#titleWidth(box)) {
        return this.#onBox(box, "box");
      }
    }
    const edge = this.#edgeAt(x, y, tolerance, null);
    if (edge >= 0) return this.#onEdge(edge, "edge");
    if (TEXT.edge * k >= LEGIBLE) {
      const label = this.#labelAt(x, y);
      if (label >= 0) return this.#onEdge(label, "label");
    }
    return box >= 0 && y <= boxes.y[box] + HEADER ? this.#onBox(box, "box") : null;
  }

  /** The innermost box at a point, −1 for none. */
  boxAt(x: number, y: number): number {
    // children come after their parents, so the last is the innermost
    return this.#boxes?.search(x, y, x, y).reduce((best, box) => Math.max(best, box), -1) ?? -1;
  }

  /** A world point where `hit` gives this target, if any: what a test or a screen reader user can click. */
  pointOf(target: Target, tolerance: number, k: number, within: (x: number, y: number) => boolean): Point | null {
    const works = (x: number, y: number): boolean => {
      const hit = within(x, y) ? this.hit(x, y, tolerance, k) : null;
      return hit !== null && hit.target.kind === target.kind && hit.target.id === target.id && hit.part !== "toggle";
    };
    const { boxes, edges, direction } = this.#scene;
    const box = this.#scene.boxOf(target.kind, target.id);
    if (box >= 0 && target.kind !== "value" && this.#boxTarget(box).id === target.id) {
      const open = boxes.kind[box] === BOX.OPEN;
      const y = open ? boxes.y[box] + HEADER / 2 : boxes.y[box] + boxes.h[box] / 2;
      for (const part of [0.5, 0.35, 0.65, 0.2, 0.8]) {
        const x = open
          ? boxes.x[box] + TEXT.group.titleX + this.#titleWidth(box) * part
          : boxes.x[box] + boxes.w[box] * part;
        if (works(x, y)) return { x, y };
      }
      return null;
    }
    if (target.kind !== "value") return null;
    for (const edge of this.#scene.edgesOf(target.id)) {
      for (let at = edges.ptr[edge]; at + 1 < edges.ptr[edge + 1]; at++) {
        const [x0, y0, x1, y1] = edges.points.subarray(2 * at, 2 * at + 4);
        for (const t of [0.5, 0.3, 0.7, 0.15, 0.85]) {
          const { x, y } = along(x0, y0, x1, y1, t, direction);
          if (works(x, y)) return { x, y };
        }
      }
    }
    for (let pill = 0; pill < boxes.count; pill++) {
      if ((boxes.kind[pill] !== BOX.INPUT && boxes.kind[pill] !== BOX.OUTPUT) || boxes.id[pill] !== target.id) continue;
      const x = boxes.x[pill] + boxes.w[pill] / 2;
      const y = boxes.y[pill] + boxes.h[pill] / 2;
      if (works(x, y)) return { x, y };
    }
    return null;
  }

  #boxTarget(box: number): Target {
    return boxTarget(this.#scene, box);
  }

  #onBox(box: number, part: "box" | "toggle"): Hit {
    return { target: this.#boxTarget(box), part, box, edge: -1 };
  }

  #onEdge(edge: number, part: "edge" | "label"): Hit {
    return { target: { kind: "value", id: this.#scene.edges.value[edge] }, part, box: -1, edge };
  }

  #toggleAt(box: number, x: number, y: number, k: number): Hit | null {
    const { boxes } = this.#scene;
    if (boxes.kind[box] !== BOX.GROUP && boxes.kind[box] !== BOX.OPEN) return null;
    if (TEXT.title * k < LEGIBLE) return null;
    const inside = x <= boxes.x[box] + TOGGLE && y <= boxes.y[box] + TOGGLE;
    return inside ? this.#onBox(box, "toggle") : null;
  }

  #titleWidth(box: number): number {
    const { title, sub } = this.#scene.label(box);
    return this.#measure(title, TEXT.title, true) + TEXT.gap + this.#measure(sub, TEXT.line, false);
  }

  #atPort(edge: number, box: number, x: number, y: number, port: number, reach: number): boolean {
    const { edges } = this.#scene;
    const first = 2 * edges.ptr[edge];
    const last = 2 * edges.ptr[edge + 1] - 2;
    const near = (at: number): boolean => {
      const dx = Math.abs(edges.points[at] - x);
      const dy = Math.abs(edges.points[at + 1] - y);
      return this.#scene.direction === "down" ? dx <= reach && dy <= port : dy <= reach && dx <= port;
    };
    return (edges.fromBox[edge] === box && near(first)) || (edges.toBox[edge] === box && near(last));
  }

  /** The nearest edge within reach that `allowed` lets through. */
  #edgeAt(x: number, y: number, reach: number, allowed: ((edge: number) => boolean) | null): number {
    const pieces = this.#pieceIndex();
    if (pieces === null) return -1;
    let best = reach * reach;
    let found = -1;
    for (const piece of pieces.search(x - reach, y - reach, x + reach, y + reach)) {
      const edge = this.#pieceEdge[piece];
      if (allowed !== null && !allowed(edge)) continue;
      const d = distance2(this.#scene.edges.points, this.#piecePoint[piece], x, y, this.#scene.direction);
      if (d <= best) {
        best = d;
        found = edge;
      }
    }
    return found;
  }

  #labelAt(x: number, y: number): number {
    if (this.#labels === undefined) {
      const { edges } = this.#scene;
      this.#labelEdge = [];
      for (let edge = 0; edge < edges.count; edge++) if (!Number.isNaN(edges.labelX[edge])) this.#labelEdge.push(edge);
      this.#labels = index(this.#labelEdge.length, (add) => {
        for (const edge of this.#labelEdge) {
          const left = edges.labelX[edge];
          const middle = edges.labelY[edge];
          const width = this.#measure(this.#scene.edgeLabel(edge), TEXT.edge, false);
          add(left - 2, middle - 7, left + width + 2, middle + 7);
        }
      });
    }
    const found = this.#labels?.search(x, y, x, y)[0];
    return found === undefined ? -1 : this.#labelEdge[found];
  }

  /** Pieces are indexed on first use: a picture that nobody points at needs none. */
  #pieceIndex(): Flatbush | null {
    if (this.#pieces !== undefined) return this.#pieces;
    const { edges } = this.#scene;
    const { points } = edges;
    let count = 0;
    for (let edge = 0; edge < edges.count; edge++) count += Math.max(0, edges.ptr[edge + 1] - edges.ptr[edge] - 1);
    this.#pieceEdge = new Uint32Array(count);
    this.#piecePoint = new Uint32Array(count);
    this.#pieces = index(count, (add) => {
      let piece = 0;
      for (let edge = 0; edge < edges.count; edge++) {
        for (let at = edges.ptr[edge]; at + 1 < edges.ptr[edge + 1]; at++) {
          this.#pieceEdge[piece] = edge;
          this.#piecePoint[piece++] = at;
          const x0 = points[2 * at];
          const y0 = points[2 * at + 1];
          const x1 = points[2 * at + 2];
          const y1 = points[2 * at + 3];
          add(Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1));
        }
      }
    });
    return this.#pieces;
  }
}

/** Screen px below which text is not drawn, and so cannot be clicked. */
export const LEGIBLE = 5;

interface Point {
  readonly x: number;
  readonly y: number;
}

export function boxTarget(scene: Scene, box: number): Target {
  const kind = scene.boxes.kind[box];
  const id = scene.boxes.id[box];
  if (kind === BOX.NODE) return { kind: "node", id };
  return { kind: kind === BOX.GROUP || kind === BOX.OPEN ? "group" : "value", id };
}

function index(
  count: number,
  fill: (add: (x0: number, y0: number, x1: number, y1: number) => void) => void,
): Flatbush | null {
  if (count === 0) return null; // flatbush takes no empty index
  const tree = new Flatbush(count);
  fill((x0, y0, x1, y1) => tree.add(x0, y0, x1, y1));
  tree.finish();
  return tree;
}
