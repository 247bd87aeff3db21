/**
 * Paints the scene at most once per animation frame. A picture that is slow to draw is kept as a bitmap, which follows
 * the camera until it rests. What is painted is handed to the page: a canvas that keeps its pixels to draw on would
 * have up to four copies of them, because the page takes another one with each change of anything on it.
 */

import * as cameras from "../render/camera.ts";
import { draw, type Pen, type Picture } from "../render/canvas.ts";
import { el, onAbort } from "../ui/dom.ts";
import type { CameraControl } from "./cameracontrol.ts";

export interface PainterEvents {
  /** null while there is nothing to draw */
  picture(): Picture | null;
  /** the window moved to a screen of another density */
  onResize(): void;
  onPaint(picture: Picture): void;
}

/** Milliseconds that a picture may take to draw; a slower one is moved as a bitmap … */
const SLOW_MS = 9;
/** … for at most this many milliseconds, or this many times as long as it takes to draw. */
const REDRAWN_MS = 300;
const PATIENCE = 25;
/** Milliseconds after the last movement until the picture is drawn in full. */
const SETTLE_MS = 90;

export class Painter {
  readonly #canvas: HTMLCanvasElement;
  readonly #screen: ImageBitmapRenderingContext | null;
  /** blank before each frame */
  readonly #paper = new OffscreenCanvas(1, 1);
  readonly #context = this.#paper.getContext("2d", { alpha: false });
  readonly #control: CameraControl;
  readonly #events: PainterEvents;
  readonly #signal: AbortSignal;
  #frame = 0;
  #settleTimer = 0;
  /** milliseconds that the last picture took to draw */
  #cost = 0;
  #lastScene: Picture["scene"] | null = null;
  #bitmap: HTMLCanvasElement | null = null;
  /** camera and time of the bitmap; null if it is outdated */
  #lastBitmap: { readonly camera: cameras.Camera; readonly time: number } | null = null;

  constructor(canvas: HTMLCanvasElement, control: CameraControl, events: PainterEvents, signal: AbortSignal) {
    this.#canvas = canvas;
    this.#screen = canvas.getContext("bitmaprenderer");
    this.#control = control;
    this.#events = events;
    this.#signal = signal;
    onAbort(signal, () => {
      cancelAnimationFrame(this.#frame);
      window.clearTimeout(this.#settleTimer);
    });
  }

  /** Draws in full with the next frame. */
  redraw = (): void => {
    this.invalidate();
    this.#schedule();
  };

  /** Marks the bitmap as outdated. */
  invalidate(): void {
    this.#lastBitmap = null;
  }

  /** Follows the camera, and draws in full once it rests. */
  onMove(): void {
    this.#schedule();
    window.clearTimeout(this.#settleTimer);
    this.#settleTimer = window.setTimeout(this.redraw, SETTLE_MS);
  }

  /** Paints immediately: a canvas is blank after its size is set. */
  resize(): void {
    const density = window.devicePixelRatio || 1;
    const { w, h } = this.#control.view;
    this.#canvas.width = Math.round(w * density);
    this.#canvas.height = Math.round(h * density);
    this.invalidate();
    cancelAnimationFrame(this.#frame);
    this.#paint();
  }

  /** Returns whether the canvas has the size of the view, in pixels of the screen. */
  fits(width: number): boolean {
    return this.#canvas.width === Math.round(width * (window.devicePixelRatio || 1));
  }

  #schedule(): void {
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint(): void {
    this.#frame = 0;
    const { view, camera } = this.#control;
    const context = this.#context;
    const picture = this.#events.picture();
    if (picture === null || context === null || view.w === 0 || this.#signal.aborted) return;
    if (!this.fits(view.w)) {
      this.#events.onResize();
      return;
    }
    const density = window.devicePixelRatio || 1;
    const now = performance.now();
    const { width, height } = this.#canvas;
    Object.assign(this.#paper, { width, height });
    if (this.#lastBitmap !== null && now - this.#lastBitmap.time < Math.max(REDRAWN_MS, PATIENCE * this.#cost)) {
      this.#moveBitmap(context, this.#lastBitmap.camera, picture.theme.background, density);
    } else {
      // a scene whose boxes move is not painted twice
      const isSlow = this.#cost > SLOW_MS && picture.scene === this.#lastScene;
      this.#lastScene = picture.scene;
      this.#bitmap = isSlow ? (this.#bitmap ?? el("canvas")) : null;
      if (this.#bitmap !== null && this.#bitmap.width !== width) this.#bitmap.width = width;
      if (this.#bitmap !== null && this.#bitmap.height !== height) this.#bitmap.height = height;
      const paper: Pen = this.#bitmap?.getContext("2d", { alpha: false }) ?? context;
      draw(paper, picture, camera, view, density);
      this.#cost = performance.now() - now;
      this.#lastBitmap = isSlow ? { camera, time: now } : null;
      if (this.#bitmap !== null) {
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.drawImage(this.#bitmap, 0, 0);
      }
    }
    this.#screen?.transferFromImageBitmap(this.#paper.transferToImageBitmap());
    this.#paper.width = 1;
    this.#events.onPaint(picture);
  }

  #moveBitmap(
    context: OffscreenCanvasRenderingContext2D,
    from: cameras.Camera,
    background: string,
    density: number,
  ): void {
    if (this.#bitmap === null) return;
    const { view, camera } = this.#control;
    const scale = camera.k / from.k;
    const at = cameras.toScreen(camera, from.x, from.y);
    context.setTransform(density, 0, 0, density, 0, 0);
    context.fillStyle = background;
    context.fillRect(0, 0, view.w, view.h);
    context.drawImage(this.#bitmap, at.x, at.y, view.w * scale, view.h * scale);
  }
}
