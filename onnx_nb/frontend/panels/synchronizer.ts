/**
 * Synchronizes two graph views: panning, zooming, opening, searching or selecting in one does the same in the other, if
 * possible there. One rule prevents echoes: while the synchronizer changes a view, it does not listen.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import type { PairData, SideOf } from "../protocol/diff.ts";
import type { NamedTarget, Patch } from "../protocol/host.ts";
import type { Point } from "../render/camera.ts";
import { boxOf } from "../render/highlights.ts";
import { defaultOpen } from "../scene/opening.ts";
import { BOX, type Scene } from "../scene/scene.ts";
import { keyOf } from "../scene/state.ts";
import { search } from "../search/search.ts";
import { elide, onAbort } from "../ui/dom.ts";
import { type GraphView, shownAs } from "./graphview.ts";
import { describe } from "./viewcontext.ts";

export type Views = readonly [GraphView, GraphView];
/** a target of the left graph and its counterpart in the right one */
type Anchor = readonly [Target, Target];

/** Pixels of the world around the middle of the view in which boxes count most. */
const MIDDLE_RADIUS = 160;
/** Boxes that count as much as the selection does. */
const ANCHOR_WEIGHT = 60;

export const otherSide = (side: SideOf): SideOf => (side === 0 ? 1 : 0);
const SIDES = [0, 1] as const;
/** Maximum number of targets whose scopes are opened. */
const MAX_REVEALED = 8;

export class Synchronizer {
  readonly #columns: readonly [Columns, Columns];
  readonly #data: PairData;
  readonly #note: (side: SideOf, text: string) => void;
  #views: Views | null = null;
  #scenes: readonly (Scene | null)[] = [];
  /** boxes that both scenes draw, in the left one and in the right one */
  #boxes: readonly [number[], number[]] = [[], []];
  #enabled: boolean;
  /** the side in which the person works; the other one follows */
  #leader: SideOf = 0;
  #isChanging = false;
  /** the last selection in both graphs: near the middle of the view it counts most in the alignment */
  #anchor: Anchor | null = null;
  #open: [ReadonlySet<number>, ReadonlySet<number>] = [new Set(), new Set()];
  #frame = 0;

  /** @param note shows a remark at the head of a graph */
  constructor(
    columns: readonly [Columns, Columns],
    data: PairData,
    enabled: boolean,
    note: (side: SideOf, text: string) => void,
    signal: AbortSignal,
  ) {
    this.#columns = columns;
    this.#data = data;
    this.#enabled = enabled;
    this.#note = note;
    onAbort(signal, () => {
      this.#views = null;
      cancelAnimationFrame(this.#frame);
    });
  }

  /** Takes the views, which are created later than this. */
  attach(views: Views): void {
    this.#views = views;
    this.#remember();
  }

  get enabled(): boolean {
    return this.#enabled;
  }

  set enabled(on: boolean) {
    this.#enabled = on;
    if (on) this.#align(this.#leader);
  }

  get leader(): SideOf {
    return this.#leader;
  }

  /** Marks the side in which the person works now. */
  lead(side: SideOf): void {
    this.#leader = side;
  }

  /** Applies a change of one view to the other. */
  changed(side: SideOf, { selection, direction, color, open }: Patch): void {
    this.#mirror(side, (view, there) => {
      if (selection !== undefined) this.#mirrorSelection(side, selection);
      if (!this.#enabled) return;
      if (direction !== undefined) view.apply({ direction });
      if (color !== undefined) view.apply({ color });
      if (open !== undefined) view.apply({ open: this.#openThere(side, new Set(open), view.state.open, there) });
    });
    if (this.#enabled && open !== undefined && !this.#isChanging) {
      this.#remember();
      this.#align(side);
    }
  }

  /** Follows a movement of one view's camera. */
  onLook(side: SideOf): void {
    if (this.#enabled && this.#leader === side && !this.#isChanging) this.#alignNow(side);
  }

  /** Follows a search in one view. */
  onSearch(side: SideOf, text: string): void {
    if (!this.#enabled) return;
    this.#mirror(side, (view, there) => {
      view.dispatch({ type: "search", text, hits: search(this.#columns[there], text).hits });
    });
  }

  /** Selects targets in both graphs and brings the first of each into view. */
  show(selections: readonly [readonly Target[], readonly Target[]]): void {
    const views = this.#views;
    if (views === null) return;
    const targets = SIDES.map((side) => drawnAs(this.#columns[side], selections[side]));
    const [[left], [right]] = targets;
    this.#leader = left === undefined ? 1 : 0;
    this.#change(() => {
      for (const side of SIDES) {
        const view = views[side];
        this.#note(side, "");
        view.apply({
          selection: targets[side].map((target) => ({ ...target, name: this.#columns[side].nameOf(target) })),
        });
        for (const target of targets[side].slice(1, MAX_REVEALED)) view.dispatch({ type: "reveal", target });
        const [target] = targets[side];
        if (target !== undefined) view.dispatch({ type: "reveal", target, toCenter: true });
      }
      this.#remember();
    });
    this.#anchor = left === undefined || right === undefined ? null : [left, right];
    if (this.#anchor !== null) this.#align(this.#leader);
  }

  /** Returns the scopes of the right graph that are open when `open` are in the left one. */
  openLike(open: ReadonlySet<number>): ReadonlySet<number> {
    const there = new Set<number>([0]);
    for (const scope of open) {
      const counterpart = this.#data.counterpart(0, { kind: "scope", id: scope });
      if (counterpart !== null) for (const inside of this.#columns[1].ancestry(counterpart.id)) there.add(inside);
    }
    for (const scope of defaultOpen(this.#columns[1])) {
      if (this.#data.counterpart(1, { kind: "scope", id: scope }) !== null) continue;
      if (this.#columns[1].ancestry(scope).every((ancestor) => ancestor === scope || there.has(ancestor)))
        there.add(scope);
    }
    return there;
  }

  // ---------------------------------------------------------------- mirroring

  #change(act: () => void): void {
    if (this.#isChanging) return;
    this.#isChanging = true;
    try {
      act();
    } finally {
      this.#isChanging = false;
    }
  }

  #mirror(side: SideOf, act: (view: Views[number], there: SideOf) => void): void {
    const there = otherSide(side);
    const view = this.#views?.[there];
    if (view !== undefined) this.#change(() => act(view, there));
  }

  #remember(): void {
    if (this.#views !== null) this.#open = [this.#views[0].state.open, this.#views[1].state.open];
  }

  #openThere(side: SideOf, now: ReadonlySet<number>, open: ReadonlySet<number>, there: SideOf): number[] {
    const before = this.#open[side];
    const scopes = new Set(open);
    const counterpart = (id: number): number => this.#data.counterpart(side, { kind: "scope", id })?.id ?? -1;
    for (const scope of before) if (!now.has(scope)) scopes.delete(counterpart(scope));
    for (const scope of now) {
      // the path of no scope is empty
      const path = before.has(scope) ? [] : this.#columns[there].ancestry(counterpart(scope));
      for (const ancestor of path) scopes.add(ancestor);
    }
    return [...scopes];
  }

  #mirrorSelection(side: SideOf, selection: readonly NamedTarget[]): void {
    const there = otherSide(side);
    const view = this.#views?.[there];
    if (view === undefined) return;
    const counterparts = selection.flatMap((target) => this.#data.counterpart(side, target) ?? []);
    view.apply({
      selection: counterparts.map((counterpart) => ({
        ...counterpart,
        name: this.#columns[there].nameOf(counterpart),
      })),
    });
    for (const side of SIDES) this.#note(side, "");
    const last = selection.at(-1);
    if (last === undefined) return;
    const target = this.#data.counterpart(side, last);
    if (target === null) {
      const { title, kind } = describe(this.#columns[side], last);
      this.#note(there, `no such ${kind}: ${elide(title || last.name, 40)}`);
    }
    const place = target ?? this.#data.before(side, last, this.#columns[side]);
    if (place === null) return;
    view.dispatch({ type: "reveal", target: place });
    this.#remember();
    const origin = target === null ? this.#data.counterpart(there, place) : last;
    this.#anchor = origin === null ? null : side === 0 ? [origin, place] : [place, origin];
    this.#align(side);
  }

  // ---------------------------------------------------------------- alignment

  /** Aligns the other graph with this one once both have been laid out. */
  #align(side: SideOf): void {
    if (!this.#enabled) return;
    cancelAnimationFrame(this.#frame);
    const wait = (): void => {
      if (this.#views?.some((view) => view.viewport.busy) === true) this.#frame = requestAnimationFrame(wait);
      else this.#alignNow(side);
    };
    this.#frame = requestAnimationFrame(wait);
  }

  #alignNow(side: SideOf): void {
    const views = this.#views;
    const offset = this.#offset(side);
    if (views === null || offset == null) return;
    const { camera, view } = views[side].viewport.position;
    const { viewport } = views[otherSide(side)];
    const size = viewport.position.view;
    if (view.w === 0 || size.w === 0) return;
    const x = camera.x + view.w / camera.k / 2 + offset.x;
    const y = camera.y + view.h / camera.k / 2 + offset.y;
    viewport.moveTo({ x: x - size.w / camera.k / 2, y: y - size.h / camera.k / 2, k: camera.k });
  }

  /** Returns the offset from boxes in the scene of `side` to their counterparts; boxes near the middle count most. */
  #offset(side: SideOf): Point | null {
    if (this.#views === null) return null;
    const [left, right] = this.#views.map((view) => view.viewport.scene);
    if (left == null || right == null) return null;
    if (this.#scenes[0] !== left || this.#scenes[1] !== right) this.#match(left, right);
    const { camera, view } = this.#views[side].viewport.position;
    const [cx, cy] = [camera.x + view.w / camera.k / 2, camera.y + view.h / camera.k / 2];
    let [sum, x, y] = [0, 0, 0];
    const count = (ends: readonly [Point, Point], times: number): void => {
      const [from, to] = [ends[side], ends[otherSide(side)]];
      const closeness = MIDDLE_RADIUS ** 2 / ((from.x - cx) ** 2 + (from.y - cy) ** 2 + MIDDLE_RADIUS ** 2);
      const weight = times * closeness * closeness;
      sum += weight;
      x += weight * (to.x - from.x);
      y += weight * (to.y - from.y);
    };
    const [a, b] = this.#boxes;
    for (let at = 0; at < a.length; at++) count([centerOf(left, a[at]), centerOf(right, b[at])], 1);
    const ends = this.#anchor?.map((target, at) => this.#center(at === 0 ? left : right, at as SideOf, target)) ?? [];
    const [start, end] = ends;
    if (start != null && end != null) count([start, end], ANCHOR_WEIGHT);
    return sum === 0 ? null : { x: x / sum, y: y / sum };
  }

  #match(left: Scene, right: Scene): void {
    const [leftBoxes, rightBoxes]: [number[], number[]] = [[], []];
    for (let box = 0; box < left.boxes.count; box++) {
      const target = targetOf(left, box);
      const counterpart = target === null ? null : this.#data.counterpart(0, target);
      const there = counterpart === null ? -1 : boxOf(right, this.#columns[1], counterpart);
      if (there < 0) continue;
      leftBoxes.push(box);
      rightBoxes.push(there);
    }
    this.#scenes = [left, right];
    this.#boxes = [leftBoxes, rightBoxes];
  }

  /** Returns the position of a target; a tensor without a box is at its producer or a reader. */
  #center(scene: Scene, side: SideOf, target: Target): Point | null {
    let box = boxOf(scene, this.#columns[side], target);
    if (box < 0 && target.kind === "tensor") {
      const { producer, consumers } = scene.boxesOfValue(target.id);
      box = producer >= 0 ? producer : (consumers[0] ?? -1);
    }
    return box < 0 ? null : centerOf(scene, box);
  }
}

/** Returns the drawn targets without duplicates. */
function drawnAs(columns: Columns, targets: readonly Target[]): Target[] {
  const drawnTargets = targets.map((target) => shownAs(columns, target));
  return [...new Map(drawnTargets.map((target) => [keyOf(target), target])).values()];
}

function centerOf({ boxes: { x, y, w, h } }: Scene, box: number): Point {
  return { x: x[box] + w[box] / 2, y: y[box] + h[box] / 2 };
}

/** Returns the target of a box; null for an open scope, whose middle is arbitrary. */
function targetOf({ boxes: { kind, id } }: Scene, box: number): Target | null {
  if (kind[box] === BOX.OPEN) return null;
  return { kind: kind[box] === BOX.NODE ? "node" : kind[box] === BOX.SCOPE ? "scope" : "tensor", id: id[box] };
}
