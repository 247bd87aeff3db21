/**
 * Paints the scene at most once per animation frame. A picture that is slow to draw is kept as a bitmap, which follows
 * the camera until it rests. What is painted is handed to the page: a canvas that keeps its pixels to draw on would
 * have up to four copies of them, because the page takes another one with each change of anything on it.
 */

import * as cameras from "../render/camera.ts";
import { draw, type Pen, type Picture } from "../render/canvas.ts";
import { el, onAbort } from "../ui/dom.ts";
import type { CameraControl } from "./cameracontrol.ts";

/** Milliseconds that a picture may take to draw; a slower one is moved as a bitmap … */
const SLOW_MS = 9;
/** … for at most this many milliseconds, or this many times as long as it takes to draw. */
const REDRAWN_MS = 300;
const PATIENCE = 25;
/** Milliseconds after the last movement until the picture is drawn in full. */
const SETTLE_MS = 90;

export function createPainter(
  canvas: HTMLCanvasElement,
  control: CameraControl,
  events: {
    /** null while there is nothing to draw */
    picture(): Picture | null;
    /** the window moved to a screen of another density */
    onResize(): void;
    onPaint(picture: Picture): void;
  },
  signal: AbortSignal,
) {
  const screen = canvas.getContext("bitmaprenderer");
  /** blank before each frame */
  const paper = new OffscreenCanvas(1, 1);
  const context = paper.getContext("2d", { alpha: false });
  let [frame, settleTimer] = [0, 0];
  /** milliseconds that the last picture took to draw */
  let cost = 0;
  let lastScene: Picture["scene"] | null = null;
  let bitmap: HTMLCanvasElement | null = null;
  /** camera and time of the bitmap; null if it is outdated */
  let lastBitmap: { readonly camera: cameras.Camera; readonly time: number } | null = null;
  onAbort(signal, () => {
    cancelAnimationFrame(frame);
    window.clearTimeout(settleTimer);
  });

  const densityNow = (): number => window.devicePixelRatio || 1;
  /** Returns whether the canvas has the size of the view, in pixels of the screen. */
  const fits = (width: number): boolean => canvas.width === Math.round(width * densityNow());
  /** Marks the bitmap as outdated. */
  const invalidate = (): void => {
    lastBitmap = null;
  };
  const schedule = (): void => {
    if (frame === 0) frame = requestAnimationFrame(paint);
  };
  /** Draws in full with the next frame. */
  const redraw = (): void => {
    invalidate();
    schedule();
  };
  const paint = (): void => {
    frame = 0;
    const { view, camera } = control;
    const picture = events.picture();
    if (picture === null || context === null || view.w === 0 || signal.aborted) return;
    if (!fits(view.w)) {
      events.onResize();
      return;
    }
    const density = densityNow();
    const now = performance.now();
    const { width, height } = canvas;
    Object.assign(paper, { width, height });
    if (bitmap !== null && lastBitmap !== null && now - lastBitmap.time < Math.max(REDRAWN_MS, PATIENCE * cost)) {
      const scale = camera.k / lastBitmap.camera.k;
      const at = cameras.toScreen(camera, lastBitmap.camera.x, lastBitmap.camera.y);
      context.setTransform(density, 0, 0, density, 0, 0);
      context.fillStyle = picture.theme.background;
      context.fillRect(0, 0, view.w + 1, view.h + 1);
      context.drawImage(bitmap, at.x, at.y, view.w * scale, view.h * scale);
    } else {
      // a scene whose boxes move is not painted twice
      const isSlow = cost > SLOW_MS && picture.scene === lastScene;
      lastScene = picture.scene;
      bitmap = isSlow ? (bitmap ?? el("canvas")) : null;
      if (bitmap !== null && bitmap.width !== width) bitmap.width = width;
      if (bitmap !== null && bitmap.height !== height) bitmap.height = height;
      const pen: Pen = bitmap?.getContext("2d", { alpha: false }) ?? context;
      draw(pen, picture, camera, view, density);
      cost = performance.now() - now;
      lastBitmap = isSlow ? { camera, time: now } : null;
      if (bitmap !== null) {
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.drawImage(bitmap, 0, 0);
      }
    }
    screen?.transferFromImageBitmap(paper.transferToImageBitmap());
    paper.width = 1;
    events.onPaint(picture);
  };
  return {
    redraw,
    invalidate,
    fits,
    /** Follows the camera, and draws in full once it rests. */
    onMove(): void {
      schedule();
      window.clearTimeout(settleTimer);
      settleTimer = window.setTimeout(redraw, SETTLE_MS);
    },
    /** Paints immediately: a canvas is blank after its size is set. */
    resize(): void {
      const { w, h } = control.view;
      canvas.width = Math.round(w * densityNow());
      canvas.height = Math.round(h * densityNow());
      invalidate();
      cancelAnimationFrame(frame);
      paint();
    },
  };
}
