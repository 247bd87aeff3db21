/**
 * Synchronizes two graph views: panning, zooming, opening, searching or selecting in one does the same in the other, if
 * possible there. One rule prevents echoes: while the synchronizer changes a view, it does not listen.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import type { PairData, SideOf } from "../protocol/diff.ts";
import type { NamedTarget, Patch } from "../protocol/host.ts";
import type { Point } from "../render/camera.ts";
import { boxOf } from "../render/highlights.ts";
import { boxTarget } from "../render/hit.ts";
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
export const SIDES = [0, 1] as const;
/** Maximum number of targets whose scopes are opened. */
const MAX_REVEALED = 8;

/** @param note shows a remark at the head of a graph */
export function createSynchronizer(
  columns: readonly [Columns, Columns],
  data: PairData,
  isEnabled: boolean,
  note: (side: SideOf, text: string) => void,
  signal: AbortSignal,
) {
  let views: Views | null = null;
  let enabled = isEnabled;
  let isChanging = false;
  let openScopes: [ReadonlySet<number>, ReadonlySet<number>] = [new Set(), new Set()];
  const alignment = createAlignment(columns, data, signal);
  onAbort(signal, () => {
    views = null;
  });
  const align = (side: SideOf): void => {
    if (enabled && views !== null) alignment.start(views, side);
  };
  const change = (act: () => void): void => {
    if (isChanging) return;
    isChanging = true;
    try {
      act();
    } finally {
      isChanging = false;
    }
  };
  const mirror = (side: SideOf, act: (view: Views[number], there: SideOf) => void): void => {
    const there = otherSide(side);
    const view = views?.[there];
    if (view !== undefined) change(() => act(view, there));
  };
  const remember = (): void => {
    if (views !== null) openScopes = [views[0].state.open, views[1].state.open];
  };
  const mirrorSelection = (side: SideOf, selection: readonly NamedTarget[], view: GraphView, there: SideOf): void => {
    const counterparts = selection.flatMap((target) => data.counterpart(side, target) ?? []);
    select(view, counterparts);
    for (const side of SIDES) note(side, "");
    const last = selection.at(-1);
    if (last === undefined) return;
    const target = data.counterpart(side, last);
    if (target === null) {
      const { title, kind } = describe(columns[side], last);
      note(there, `no such ${kind}: ${elide(title || last.name, 40)}`);
    }
    const place = target ?? data.before(side, last, columns[side]);
    if (place === null) return;
    view.dispatch({ type: "reveal", target: place });
    remember();
    const origin = target === null ? data.counterpart(there, place) : last;
    alignment.anchor = origin === null ? null : side === 0 ? [origin, place] : [place, origin];
    align(side);
  };

  const synchronizer = {
    /** the side in which the person works now; the other one follows */
    leader: 0 as SideOf,
    /** Takes the views, which are created later than this. */
    attach(created: Views): void {
      views = created;
      remember();
    },
    opened(side: SideOf, open: ReadonlySet<number>): void {
      openScopes[side] = open;
    },
    get enabled(): boolean {
      return enabled;
    },
    set enabled(on: boolean) {
      enabled = on;
      if (on) align(synchronizer.leader);
    },
    /** Applies a change of one view to the other. */
    changed(side: SideOf, { selection, direction, color, open }: Patch): void {
      mirror(side, (view, there) => {
        if (selection !== undefined) mirrorSelection(side, selection, view, there);
        if (!enabled) return;
        if (direction !== undefined) view.apply({ direction });
        if (color !== undefined) view.apply({ color });
        if (open === undefined) return;
        const counterpart = (id: number): number => data.counterpart(side, { kind: "scope", id })?.id ?? -1;
        view.apply({ open: follow(view.state.open, openScopes[side], new Set(open), counterpart, columns[there]) });
      });
      if (!enabled || open === undefined || isChanging) return;
      remember();
      align(side);
    },
    /** Follows a movement of one view's camera. */
    onLook(side: SideOf): void {
      if (enabled && synchronizer.leader === side && !isChanging && views !== null) alignment.apply(views, side);
    },
    /** Follows a search in one view. */
    onSearch(side: SideOf, text: string): void {
      if (!enabled) return;
      mirror(side, (view, there) => view.dispatch({ type: "search", text, hits: search(columns[there], text).hits }));
    },
    /** Selects targets in both graphs and brings the first of each into view. */
    show(selections: readonly [readonly Target[], readonly Target[]]): void {
      if (views === null) return;
      const pair = views;
      const targets = SIDES.map((side) => drawnAs(columns[side], selections[side]));
      const [[left], [right]] = targets;
      synchronizer.leader = left === undefined ? 1 : 0;
      change(() => {
        for (const side of SIDES) {
          const [first, ...others] = targets[side];
          note(side, "");
          select(pair[side], targets[side]);
          for (const target of others.slice(0, MAX_REVEALED - 1)) pair[side].dispatch({ type: "reveal", target });
          if (first !== undefined) pair[side].dispatch({ type: "reveal", target: first, toCenter: true });
        }
        remember();
      });
      alignment.anchor = left === undefined || right === undefined ? null : [left, right];
      if (alignment.anchor !== null) align(synchronizer.leader);
    },
  };
  return synchronizer;
}

function select(view: GraphView, targets: readonly Target[]): void {
  view.apply({ selection: targets.map((target) => ({ ...target, name: view.columns.nameOf(target) })) });
}

/** Returns the open scopes after their counterparts have been opened and closed: `before` were open, `now` are. */
function follow(
  open: ReadonlySet<number>,
  before: ReadonlySet<number>,
  now: ReadonlySet<number>,
  counterpart: (scope: number) => number,
  columns: Columns,
): number[] {
  const scopes = new Set(open);
  for (const scope of before) if (!now.has(scope)) scopes.delete(counterpart(scope));
  for (const scope of now) {
    // the path of no scope is empty
    const path = before.has(scope) ? [] : columns.ancestry(counterpart(scope));
    for (const ancestor of path) scopes.add(ancestor);
  }
  return [...scopes];
}

/** Returns the scopes of the right graph that are open when `open` are in the left one. */
export function openLike(
  open: ReadonlySet<number>,
  columns: readonly [Columns, Columns],
  data: PairData,
): ReadonlySet<number> {
  const there = new Set<number>([0]);
  for (const id of open) {
    const counterpart = data.counterpart(0, { kind: "scope", id });
    if (counterpart !== null) for (const inside of columns[1].ancestry(counterpart.id)) there.add(inside);
  }
  for (const id of defaultOpen(columns[1])) {
    if (data.counterpart(1, { kind: "scope", id }) !== null) continue;
    if (columns[1].ancestry(id).every((ancestor) => ancestor === id || there.has(ancestor))) there.add(id);
  }
  return there;
}

/** Moves the camera of one graph so that its boxes are beside their counterparts in the other one. */
function createAlignment(columns: readonly [Columns, Columns], data: PairData, signal: AbortSignal) {
  let scenes: readonly Scene[] = [];
  /** boxes that both scenes draw, in the left one and in the right one */
  let boxes: readonly [number[], number[]] = [[], []];
  let frame = 0;
  onAbort(signal, () => cancelAnimationFrame(frame));

  const match = (left: Scene, right: Scene): void => {
    scenes = [left, right];
    boxes = [[], []];
    for (let box = 0; box < left.boxes.count; box++) {
      // the middle of an open scope is arbitrary
      const counterpart = left.boxes.kind[box] === BOX.OPEN ? null : data.counterpart(0, boxTarget(left, box));
      const there = counterpart === null ? -1 : boxOf(right, columns[1], counterpart);
      if (there < 0) continue;
      boxes[0].push(box);
      boxes[1].push(there);
    }
  };
  /** Returns the offset from boxes in the scene of `side` to their counterparts; boxes near the middle count most. */
  const offsetOf = (views: Views, side: SideOf): Point | null => {
    const [left, right] = views.map((view) => view.viewport.scene);
    if (left === null || right === null) return null;
    if (scenes[0] !== left || scenes[1] !== right) match(left, right);
    const { camera, view } = views[side].viewport.position;
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
    const [a, b] = boxes;
    for (let at = 0; at < a.length; at++) count([centerOf(left, a[at]), centerOf(right, b[at])], 1);
    const [start, end] =
      alignment.anchor?.map((target, at) => placeOf(at === 0 ? left : right, columns[at], target)) ?? [];
    if (start != null && end != null) count([start, end], ANCHOR_WEIGHT);
    return sum === 0 ? null : { x: x / sum, y: y / sum };
  };
  const alignment = {
    /** the last selection in both graphs: near the middle of the view it counts most */
    anchor: null as Anchor | null,
    /** Aligns the other graph with that of `side`. */
    apply(views: Views, side: SideOf): void {
      const offset = offsetOf(views, side);
      const { camera, view } = views[side].viewport.position;
      const { viewport } = views[otherSide(side)];
      const size = viewport.position.view;
      if (offset === null || view.w === 0 || size.w === 0) return;
      const x = camera.x + view.w / camera.k / 2 + offset.x;
      const y = camera.y + view.h / camera.k / 2 + offset.y;
      viewport.moveTo({ x: x - size.w / camera.k / 2, y: y - size.h / camera.k / 2, k: camera.k });
    },
    /** Aligns it once both have been laid out. */
    start(views: Views, side: SideOf): void {
      cancelAnimationFrame(frame);
      const wait = (): void => {
        if (views.some((view) => view.viewport.busy)) frame = requestAnimationFrame(wait);
        else alignment.apply(views, side);
      };
      frame = requestAnimationFrame(wait);
    },
  };
  return alignment;
}

/** Returns the drawn targets without duplicates. */
function drawnAs(columns: Columns, targets: readonly Target[]): Target[] {
  const drawnTargets = targets.map((target) => shownAs(columns, target));
  return [...new Map(drawnTargets.map((target) => [keyOf(target), target])).values()];
}

function centerOf({ boxes: { x, y, w, h } }: Scene, box: number): Point {
  return { x: x[box] + w[box] / 2, y: y[box] + h[box] / 2 };
}

/** Returns the position of a target; a tensor without a box is at its producer or a reader. */
function placeOf(scene: Scene, columns: Columns, target: Target): Point | null {
  let box = boxOf(scene, columns, target);
  if (box < 0 && target.kind === "tensor") {
    const { producer, consumers } = scene.boxesOfValue(target.id);
    box = producer >= 0 ? producer : (consumers[0] ?? -1);
  }
  return box < 0 ? null : centerOf(scene, box);
}
