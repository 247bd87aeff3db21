/** Moves the camera over the scene, immediately, by hand or gliding, and reports where it came to rest. */

import type { CameraPosition } from "../protocol/host.ts";
import * as cameras from "../render/camera.ts";
import { K_LEGIBLE } from "../render/camera.ts";
import { BOX, type Scene } from "../scene/scene.ts";
import { onAbort } from "../ui/dom.ts";
import { isStill } from "./motion.ts";

export interface CameraEvents {
  /** the picture must be redrawn */
  redraw(): void;
  /** the camera is moving: the picture may be moved as a bitmap until it rests */
  onMove(): void;
  /** the camera was moved by hand or by a glide, not by `moveTo` */
  onLook(): void;
  onRest(at: CameraPosition): void;
}

/** Milliseconds of a glide. */
const GLIDE_MS = 180;
/** Milliseconds after which a camera that does not move has come to rest. */
const REST_MS = 400;

export class CameraControl {
  camera: cameras.Camera = { x: 0, y: 0, k: 1 };
  view: cameras.Size = { w: 0, h: 0 };
  /** nobody has moved the camera yet, so a new size or scene may place it again */
  isUntouched = true;
  /** where to go once the size of the view is known */
  destination: CameraPosition | null = null;
  readonly #events: CameraEvents;
  #isFollowing = false;
  #reportedCamera: cameras.Camera | null = null;
  #restTimer = 0;
  #glideFrame = 0;

  constructor(events: CameraEvents, signal: AbortSignal) {
    this.#events = events;
    onAbort(signal, () => {
      this.#stopGlide();
      window.clearTimeout(this.#restTimer);
    });
  }

  get gliding(): boolean {
    return this.#glideFrame !== 0;
  }

  /** The point in the middle of the view; null while nothing is in view. */
  get viewpoint(): CameraPosition | null {
    if (this.view.w === 0) return this.destination;
    const { x, y } = cameras.toWorld(this.camera, this.view.w / 2, this.view.h / 2);
    return { x, y, zoom: this.camera.k };
  }

  /** Shows the beginning of a scene. */
  open(scene: Scene): void {
    if (this.view.w === 0) return;
    this.camera = cameras.opening(scene.bounds, this.view, scene.direction, openingPoint(scene, this.view));
  }

  /** Takes a new size of the view; the middle of the picture stays in the middle. */
  resize(view: cameras.Size): void {
    if (this.view.w > 0) {
      this.camera = { ...this.camera, x: this.camera.x + (this.view.w - view.w) / this.camera.k / 2 };
    }
    this.view = view;
    if (this.destination !== null) this.camera = this.#reportedCamera = cameras.cameraAt(this.destination, view);
    this.destination = null;
  }

  goTo(at: CameraPosition, scene: Scene | null, glides: boolean): void {
    const next = cameras.cameraAt(at, this.view);
    const to = scene === null ? next : cameras.keepInSight(next, scene.bounds, this.view);
    if (glides) this.glide(to);
    else {
      this.moveTo(to);
      this.#events.redraw();
    }
  }

  /** Places the camera without any event. */
  moveTo(to: cameras.Camera): void {
    this.#stopGlide();
    this.isUntouched = this.#isFollowing = false;
    this.camera = to;
  }

  /** Leaves the movement under way out of the reports: it follows another view, which a report would undo. */
  follow(): void {
    this.#isFollowing = true;
    this.scheduleReport(); // drops one that is on the way
  }

  /** Moves the camera by hand; a corner of the scene stays in view. */
  look(next: cameras.Camera, scene: Scene | null): void {
    if (scene === null) return;
    this.moveTo(cameras.keepInSight(next, scene.bounds, this.view));
    this.#events.onMove();
    this.#events.onLook();
  }

  glide(to: cameras.Camera): void {
    const from = this.camera;
    this.moveTo(from);
    if (this.view.w === 0 || isStill()) {
      this.camera = to;
      this.#events.redraw();
      this.#events.onLook();
      return;
    }
    const start = performance.now();
    const next = (): void => {
      const t = Math.min(1, (performance.now() - start) / GLIDE_MS);
      this.camera = cameras.between(from, to, cameras.ease(t), this.view);
      this.#events.onMove();
      this.#events.onLook();
      this.#glideFrame = t < 1 ? requestAnimationFrame(next) : 0;
    };
    this.#glideFrame = requestAnimationFrame(next);
  }

  #stopGlide(): void {
    cancelAnimationFrame(this.#glideFrame);
    this.#glideFrame = 0;
  }

  /** Reports where the camera is once it has rested, after a picture was painted. */
  scheduleReport(): void {
    window.clearTimeout(this.#restTimer);
    if (this.#isFollowing) this.#reportedCamera = this.camera;
    if (this.isUntouched || this.camera === this.#reportedCamera) return;
    this.#restTimer = window.setTimeout(() => {
      this.#reportedCamera = this.camera;
      const at = this.viewpoint;
      if (at !== null) this.#events.onRest(at);
    }, REST_MS);
  }
}

/** Returns the middle of the boxes in the first row, or of the first input if the view is too narrow for the row. */
function openingPoint({ boxes, direction }: Scene, view: cameras.Size): cameras.Point {
  const { count, kind, x, y, w, h } = boxes;
  const along = direction === "down" ? y : x;
  let first = Number.POSITIVE_INFINITY;
  for (let box = 0; box < count; box++) if (kind[box] !== BOX.OPEN) first = Math.min(first, along[box]);
  // the first input that the model names, or the first box if the row has no input
  let top = -1;
  const row: cameras.Rect[] = [];
  for (let box = 0; box < count; box++) {
    if (kind[box] === BOX.OPEN || along[box] > first + 1) continue;
    if (top < 0 || (kind[box] === BOX.INPUT && kind[top] !== BOX.INPUT)) top = box;
    row.push({ x: x[box], y: y[box], w: w[box], h: h[box] });
  }
  if (top < 0) return { x: 0, y: 0 };
  const all = cameras.boundsOf(row);
  const [room, extent] = direction === "down" ? [view.w, all.w] : [view.h, all.h];
  const rect = extent > room / K_LEGIBLE ? { x: x[top], y: y[top], w: w[top], h: h[top] } : all;
  return { x: rect.x + rect.w / 2, y: rect.y + rect.h / 2 };
}
