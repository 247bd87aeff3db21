/** The camera: `screen = (world − (x, y)) · k`. Pure functions; a camera is a value. */

import type { Point, Rect, Size } from "../scene/scene.ts";

/** The world point at the top left of the viewport, and how large it is shown. */
export interface Camera extends Point {
  /** screen px per world px */
  readonly k: number;
}

export type { Point, Rect, Size };

/** Pixels around what is fitted to the view. */
export const MARGIN = 14;
const K_MIN = 1e-5;
const K_MAX = 4;
/** Zoom below which a 12 px label is unreadable. */
export const K_LEGIBLE = 0.55;
/** … and the zoom accepted for showing the whole graph. */
const K_NEARLY = 0.5;
/** Zoom for the target of a search or step if the view was too small to read. */
const K_COMFORTABLE = 0.85;

export function toWorld(camera: Camera, x: number, y: number): Point {
  return { x: x / camera.k + camera.x, y: y / camera.k + camera.y };
}

export function toScreen(camera: Camera, x: number, y: number): Point {
  return { x: (x - camera.x) * camera.k, y: (y - camera.y) * camera.k };
}

/** Returns the world rectangle that a viewport shows. */
export function visible(camera: Camera, view: Size): Rect {
  return { x: camera.x, y: camera.y, w: view.w / camera.k, h: view.h / camera.k };
}

/** Moves the picture by screen px. */
export function pan(camera: Camera, dx: number, dy: number): Camera {
  return { x: camera.x - dx / camera.k, y: camera.y - dy / camera.k, k: camera.k };
}

/** Zooms around the screen point (x, y), but not out beyond `minZoom`. */
export function zoom(camera: Camera, factor: number, x: number, y: number, minZoom = K_MIN): Camera {
  const k = Math.min(K_MAX, Math.max(Math.min(minZoom, camera.k), camera.k * factor));
  const at = toWorld(camera, x, y);
  return { x: at.x - x / k, y: at.y - y / k, k };
}

/** Returns a camera with a world point in the middle of the viewport. */
export function cameraAt(at: { readonly x: number; readonly y: number; readonly zoom: number }, view: Size): Camera {
  const k = Math.min(K_MAX, Math.max(K_MIN, at.zoom));
  return { x: at.x - view.w / k / 2, y: at.y - view.h / k / 2, k };
}

/** Returns the bounding rectangle of at least one rectangle. */
export function boundsOf(rects: readonly Rect[]): Rect {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y, w, h } of rects) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x + w);
    bottom = Math.max(bottom, y + h);
  }
  return { x: left, y: top, w: right - left, h: bottom - top };
}

/** Shows all of `bounds` in the middle of the viewport, at zoom 1 at most. */
export function fitAll(bounds: Rect, view: Size, margin = MARGIN): Camera {
  const k = Math.min(
    1,
    Math.max(1, view.w - 2 * margin) / Math.max(1, bounds.w),
    Math.max(1, view.h - 2 * margin) / Math.max(1, bounds.h),
  );
  return center(bounds, view, Math.max(K_MIN, k));
}

/**
 * Returns the first view: the whole graph if it is readable, else its beginning at a readable size; `start` is where
 * the flow begins, for a graph that is too wide as well.
 */
export function opening(bounds: Rect, view: Size, direction: "down" | "right", start: Point, margin = MARGIN): Camera {
  const fullView = fitAll(bounds, view, margin);
  if (fullView.k >= K_NEARLY) return fullView;
  const down = direction === "down";
  const k = Math.min(
    1,
    Math.max(K_LEGIBLE, down ? (view.w - 2 * margin) / bounds.w : (view.h - 2 * margin) / bounds.h),
  );
  const { x, y } = center(bounds, view, k);
  const edge = margin / k;
  // across the flow the graph is centered if it fits, else its start is
  const across = (middle: number, low: number, extent: number, extentInView: number, at: number): number =>
    extent + 2 * edge <= extentInView * 1.001
      ? middle
      : Math.min(low + extent + edge - extentInView, Math.max(low - edge, at - extentInView / 2));
  return down
    ? { x: across(x, bounds.x, bounds.w, view.w / k, start.x), y: bounds.y - edge, k }
    : { x: bounds.x - edge, y: across(y, bounds.y, bounds.h, view.h / k, start.y), k };
}

function center(bounds: Rect, view: Size, k: number): Camera {
  return { x: bounds.x + bounds.w / 2 - view.w / k / 2, y: bounds.y + bounds.h / 2 - view.h / k / 2, k };
}

/** Brings `rect` into view at a readable size by the smallest move; into the middle from out of view or if asked. */
export function reveal(camera: Camera, rect: Rect, view: Size, { margin = 48, toCenter = false } = {}): Camera {
  let k = camera.k < K_LEGIBLE ? K_COMFORTABLE : camera.k;
  const maxZoom = Math.min((view.w - margin) / rect.w, (view.h - margin) / rect.h);
  if (maxZoom < k) k = Math.max(K_LEGIBLE, maxZoom);
  if (k !== camera.k) {
    const middle = center(rect, view, k);
    return rect.h * k > view.h ? { ...middle, y: rect.y - margin / 2 / k } : middle;
  }
  const area = visible(camera, view);
  const isOutOfView =
    rect.x > area.x + area.w || rect.x + rect.w < area.x || rect.y > area.y + area.h || rect.y + rect.h < area.y;
  if ((isOutOfView || toCenter) && rect.h * k <= view.h && rect.w * k <= view.w) return center(rect, view, k);
  const edge = margin / 2 / k;
  return {
    x: nearestStart(area.x, area.w, rect.x - edge, rect.w + 2 * edge),
    y: nearestStart(area.y, area.h, rect.y - edge, rect.h + 2 * edge),
    k,
  };
}

function nearestStart(start: number, length: number, from: number, extent: number): number {
  if (extent > length) return from;
  return Math.min(from, Math.max(start, from + extent - length));
}

/** Keeps at least a corner of the graph in view. */
export function keepInSight(camera: Camera, bounds: Rect, view: Size): Camera {
  const area = visible(camera, view);
  const mx = Math.min(area.w, bounds.w) * 0.25;
  const my = Math.min(area.h, bounds.h) * 0.25;
  return {
    x: Math.min(bounds.x + bounds.w - mx, Math.max(bounds.x + mx - area.w, camera.x)),
    y: Math.min(bounds.y + bounds.h - my, Math.max(bounds.y + my - area.h, camera.y)),
    k: camera.k,
  };
}

/** Interpolates two cameras, 0 ≤ t ≤ 1: even in zoom steps, straight for the middle of the viewport. */
export function between(a: Camera, b: Camera, t: number, view: Size): Camera {
  const k = a.k * (b.k / a.k) ** t;
  const mix = (p: number, q: number): number => p + (q - p) * t;
  const x = mix(a.x + view.w / a.k / 2, b.x + view.w / b.k / 2) - view.w / k / 2;
  const y = mix(a.y + view.h / a.k / 2, b.y + view.h / b.k / 2) - view.h / k / 2;
  return { x, y, k };
}

/** Eases in and out. */
export function ease(t: number): number {
  return t < 0.5 ? 2 * t * t : 1 - (2 - 2 * t) ** 2 / 2;
}
