/**
 * Hit testing of points and rectangles, from the root into the open scopes. A scope usually has few boxes and edges,
 * which are scanned; a large scope is indexed on first use.
 */

import Flatbush from "flatbush";
import type { Target } from "../protocol/columns.ts";
import { type Measure, TEXT, textTop } from "../scene/labels.ts";
import { BOX, isPill, type Rect, type Scene } from "../scene/scene.ts";
import type { Point } from "./camera.ts";
import { along, distance2 } from "./curve.ts";
import { Titles } from "./titles.ts";

export interface PointerHit {
  readonly target: Target;
  readonly part: "box" | "toggle" | "edge" | "label";
}

/** Pixels: height of the title strip of an open scope, which represents the scope itself. */
const HEADER = 26;
const TOGGLE = 26;
/** Screen pixels within which the end of an edge wins over the box it touches. */
const PORT = 4.5;

/** Boxes or edge pieces of a scope beyond which they are indexed. */
const MAX_SCANNED = 1000;
/** Pixels by which the text on an edge may extend beyond its scope. */
const OVERHANG = 180;

/** A world rectangle, by its corners. */
type Area = readonly [x0: number, y0: number, x1: number, y1: number];

export class HitIndex {
  readonly #scene: Scene;
  readonly #measure: Measure;
  #titles: Titles | undefined;
  /** scope → index of its boxes, of the pieces of its edges */
  readonly #boxes = new Map<number, Flatbush>();
  readonly #pieces = new Map<number, { readonly tree: Flatbush; readonly edge: Uint32Array }>();

  constructor(scene: Scene, measure: Measure) {
    this.#scene = scene;
    this.#measure = measure;
  }

  /**
   * Returns boxes and edges in a world rectangle, parents before children. Omits the content of open boxes smaller
   * than `minSize` world px in both directions, and edges in boxes smaller than `minLineSize` in one direction.
   */
  itemsIn(x0: number, y0: number, x1: number, y1: number, minSize = 0, minLineSize = 0) {
    const { boxes, bounds, scopes } = this.#scene;
    const { x, y, w, h } = boxes;
    const isInside = (rect: Rect): boolean =>
      rect.x >= x0 && rect.y >= y0 && rect.x + rect.w <= x1 && rect.y + rect.h <= y1;
    const items: { readonly boxes: number[]; readonly edges: number[] } = { boxes: [], edges: [] };
    // scopes are numbered in order of discovery, so the result is sorted
    const scopesInside = [0];
    for (const scope of scopesInside) {
      const outer = scopes.box[scope];
      const lines = outer < 0 || Math.min(w[outer], h[outer]) >= minLineSize;
      const isWhole = isInside(outer < 0 ? bounds : { x: x[outer], y: y[outer], w: w[outer], h: h[outer] });
      const add = (box: number): void => {
        items.boxes.push(box);
        if (scopes.inside[box] >= 0 && Math.max(w[box], h[box]) >= minSize) scopesInside.push(scopes.inside[box]);
      };
      if (isWhole) {
        for (let box = scopes.boxPtr[scope]; box < scopes.boxPtr[scope + 1]; box++) add(box);
        const [from, to] = [scopes.edgePtr[scope], scopes.edgePtr[scope + 1]];
        for (let edge = from; lines && edge < to; edge++) items.edges.push(edge);
      } else {
        this.#boxesOf(scope, [x0, y0, x1, y1], add);
        let last = -1;
        if (!lines) continue;
        this.#piecesOf(scope, [x0, y0, x1, y1], (edge) => {
          if (edge !== last) items.edges.push(edge);
          last = edge;
        });
      }
    }
    return items;
  }

  /** @param tolerance reach of an edge in world px; the zoom `k` determines what is visible */
  hit(x: number, y: number, tolerance: number, k: number): PointerHit | null {
    const { boxes } = this.#scene;
    const box = this.boxAt(x, y);
    const kind = box < 0 ? -1 : boxes.kind[box];
    const title = k < 1 ? this.#titleAt(box, x, y, k) : null;
    if (title !== null) return title;
    const toggle = box < 0 ? null : this.#toggleAt(box, x, y, k);
    if (toggle !== null) return toggle;
    if (box >= 0 && kind !== BOX.OPEN) {
      const port = Math.min(PORT / k, boxes.h[box] / 3);
      const edge = this.#edgeAt(x, y, tolerance, (e) => this.#atPort(e, box, x, y, port, tolerance));
      return edge >= 0 ? this.#onEdge(edge, "edge") : this.#onBox(box, "box");
    }
    const isInHeader = box >= 0 && y <= boxes.y[box] + HEADER;
    if (isInHeader && x <= boxes.x[box] + TEXT.scope.titleX + this.#titleWidth(box)) return this.#onBox(box, "box");
    const edge = this.#edgeAt(x, y, tolerance, null);
    if (edge >= 0) return this.#onEdge(edge, "edge");
    const label = TEXT.edge * k >= LEGIBLE ? this.#labelAt(x, y) : -1;
    if (label >= 0) return this.#onEdge(label, "label");
    return isInHeader ? this.#onBox(box, "box") : null;
  }

  /** Returns the innermost box at a point, −1 for none. */
  boxAt(x: number, y: number): number {
    const { inside } = this.#scene.scopes;
    let at = -1;
    for (let scope = 0; scope >= 0; ) {
      let innermost = -1;
      this.#boxesOf(scope, [x, y, x, y], (box) => {
        innermost = box;
      });
      if (innermost >= 0) at = innermost;
      scope = innermost >= 0 ? inside[innermost] : -1;
    }
    return at;
  }

  /** Returns a world point where `hit` returns this target, if any: a test or a screen reader user can click there. */
  pointOf(target: Target, tolerance: number, k: number, isVisible: (x: number, y: number) => boolean): Point | null {
    const works = (x: number, y: number): boolean => {
      const hit = isVisible(x, y) ? this.hit(x, y, tolerance, k) : null;
      return hit !== null && hit.target.kind === target.kind && hit.target.id === target.id && hit.part !== "toggle";
    };
    const { boxes, edges, direction } = this.#scene;
    const box = this.#scene.boxOf(target.kind, target.id);
    if (box >= 0 && target.kind !== "tensor" && boxTarget(this.#scene, box).id === target.id) {
      const open = boxes.kind[box] === BOX.OPEN;
      const y = open ? boxes.y[box] + HEADER / 2 : boxes.y[box] + boxes.h[box] / 2;
      const [before, width] = open ? [TEXT.scope.titleX, this.#titleWidth(box)] : [0, boxes.w[box]];
      const places = [0.5, 0.35, 0.65, 0.2, 0.8].map((part) => boxes.x[box] + before + width * part);
      for (const x of places) if (works(x, y)) return { x, y };
      return null;
    }
    if (target.kind !== "tensor") return null;
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
      if (!isPill(boxes.kind[pill]) || boxes.id[pill] !== target.id) continue;
      const x = boxes.x[pill] + boxes.w[pill] / 2;
      const y = boxes.y[pill] + boxes.h[pill] / 2;
      if (works(x, y)) return { x, y };
    }
    return null;
  }

  #onBox(box: number, part: "box" | "toggle"): PointerHit {
    return { target: boxTarget(this.#scene, box), part };
  }

  #onEdge(edge: number, part: "edge" | "label"): PointerHit {
    return { target: { kind: "tensor", id: this.#scene.edges.value[edge] }, part };
  }

  /** Returns the scope whose title covers a point: small in the world, titles cover the boxes inside. */
  #titleAt(box: number, x: number, y: number, k: number): PointerHit | null {
    if (this.#titles?.k !== k) this.#titles = new Titles(this.#scene, this.#measure, k);
    for (let at = box; at >= 0; at = this.#scene.boxes.parent[at]) {
      const title = this.#titles.of(at);
      if (title === null || y < title.top || y > title.bottom || x > title.right) continue;
      if (x >= title.left) return this.#onBox(at, "box");
      if (title.hasToggle) return this.#onBox(at, "toggle");
    }
    return null;
  }

  #toggleAt(box: number, x: number, y: number, k: number): PointerHit | null {
    const { boxes } = this.#scene;
    if (boxes.kind[box] !== BOX.SCOPE && boxes.kind[box] !== BOX.OPEN) return null;
    if (TEXT.title * k < LEGIBLE) return null;
    // the sign of a closed scope is next to its title
    const closed = boxes.kind[box] === BOX.SCOPE;
    const top = boxes.y[box] + (closed ? textTop(BOX.SCOPE, this.#scene.label(box).lines.length, boxes.h[box]) : 0);
    const inside = x <= boxes.x[box] + TOGGLE && y >= top && y <= top + TOGGLE;
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
    const isNear = (at: number): boolean => {
      const dx = Math.abs(edges.points[at] - x);
      const dy = Math.abs(edges.points[at + 1] - y);
      return this.#scene.direction === "down" ? dx <= reach && dy <= port : dy <= reach && dx <= port;
    };
    return (edges.fromBox[edge] === box && isNear(first)) || (edges.toBox[edge] === box && isNear(last));
  }

  /** Returns the nearest edge within reach for which `isAllowed` is true. */
  #edgeAt(x: number, y: number, reach: number, isAllowed: ((edge: number) => boolean) | null): number {
    const { points } = this.#scene.edges;
    let minDistance = reach * reach;
    let nearestEdge = -1;
    for (const scope of this.#scopesAt(x, y, reach, reach)) {
      this.#piecesOf(scope, [x - reach, y - reach, x + reach, y + reach], (edge, at) => {
        if (isAllowed !== null && !isAllowed(edge)) return;
        const d = distance2(points, at, x, y, this.#scene.direction);
        if (d <= minDistance) {
          minDistance = d;
          nearestEdge = edge;
        }
      });
    }
    return nearestEdge;
  }

  #labelAt(x: number, y: number): number {
    const { edges, scopes } = this.#scene;
    for (const scope of this.#scopesAt(x, y, OVERHANG, 7)) {
      for (let edge = scopes.edgePtr[scope]; edge < scopes.edgePtr[scope + 1]; edge++) {
        const left = edges.labelX[edge] - 2;
        // NaN without a label: neither comparison holds
        if (!(Math.abs(edges.labelY[edge] - y) <= 7 && left <= x)) continue;
        if (x <= left + 4 + this.#measure(this.#scene.edgeLabel(edge), TEXT.edge, false)) return edge;
      }
    }
    return -1;
  }

  /** Returns the scopes within a distance of a point, from the outside in. */
  #scopesAt(x: number, y: number, dx: number, dy: number): number[] {
    const { inside } = this.#scene.scopes;
    const scopesHere = [0];
    for (const scope of scopesHere) {
      this.#boxesOf(scope, [x - dx, y - dy, x + dx, y + dy], (box) => {
        if (inside[box] >= 0) scopesHere.push(inside[box]);
      });
    }
    return scopesHere;
  }

  /** Finds boxes directly in a scope that touch a rectangle, in their order. */
  #boxesOf(scope: number, [x0, y0, x1, y1]: Area, visit: (box: number) => void): void {
    const { boxes, scopes } = this.#scene;
    const { x, y, w, h } = boxes;
    const from = scopes.boxPtr[scope];
    const to = scopes.boxPtr[scope + 1];
    if (to - from <= MAX_SCANNED) {
      for (let box = from; box < to; box++) {
        if (x[box] <= x1 && y[box] <= y1 && x[box] + w[box] >= x0 && y[box] + h[box] >= y0) visit(box);
      }
      return;
    }
    let tree = this.#boxes.get(scope);
    if (tree === undefined) {
      tree = new Flatbush(to - from);
      for (let box = from; box < to; box++) tree.add(x[box], y[box], x[box] + w[box], y[box] + h[box]);
      tree.finish();
      this.#boxes.set(scope, tree);
    }
    for (const index of tree.search(x0, y0, x1, y1).sort((a, b) => a - b)) visit(from + index);
  }

  /** Finds pieces of edges directly in a scope that touch a rectangle, in order, by the first of their two points. */
  #piecesOf(scope: number, [x0, y0, x1, y1]: Area, visit: (edge: number, at: number) => void): void {
    const { edges, scopes } = this.#scene;
    const { ptr, points } = edges;
    const from = scopes.edgePtr[scope];
    const to = scopes.edgePtr[scope + 1];
    const first = ptr[from];
    const count = ptr[to] - first;
    if (count <= MAX_SCANNED) {
      for (let edge = from; edge < to; edge++) {
        for (let at = ptr[edge]; at + 1 < ptr[edge + 1]; at++) {
          const [ax, ay, bx, by] = [points[2 * at], points[2 * at + 1], points[2 * at + 2], points[2 * at + 3]];
          if (Math.min(ax, bx) <= x1 && Math.min(ay, by) <= y1 && Math.max(ax, bx) >= x0 && Math.max(ay, by) >= y0) {
            visit(edge, at);
          }
        }
      }
      return;
    }
    let pieces = this.#pieces.get(scope);
    if (pieces === undefined) {
      // one entry for each point; the last point of an edge starts no piece
      const tree = new Flatbush(count);
      const edge = new Uint32Array(count);
      for (let e = from; e < to; e++) {
        for (let at = ptr[e]; at < ptr[e + 1]; at++) {
          const next = Math.min(at + 1, ptr[e + 1] - 1);
          const [ax, ay, bx, by] = [points[2 * at], points[2 * at + 1], points[2 * next], points[2 * next + 1]];
          edge[at - first] = e;
          tree.add(Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by));
        }
      }
      tree.finish();
      pieces = { tree, edge };
      this.#pieces.set(scope, pieces);
    }
    for (const piece of pieces.tree.search(x0, y0, x1, y1).sort((a, b) => a - b)) {
      const edge = pieces.edge[piece];
      if (first + piece + 1 < ptr[edge + 1]) visit(edge, first + piece);
    }
  }
}

/** Screen px below which text is not drawn, and so cannot be clicked. */
export const LEGIBLE = 5;

export function boxTarget(scene: Scene, box: number): Target {
  const kind = scene.boxes.kind[box];
  const id = scene.boxes.id[box];
  if (kind === BOX.NODE) return { kind: "node", id };
  return { kind: kind === BOX.SCOPE || kind === BOX.OPEN ? "scope" : "tensor", id };
}
