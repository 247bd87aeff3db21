/**
 * Mouse, touch and trackpad on the canvas. Dragging pans, or with Shift selects by a rectangle; two fingers
 * or Ctrl+wheel zoom; a long press is the Ctrl+click of a finger. A plain wheel zooms only while the canvas has the
 * focus, so that a page with a graph in it still scrolls.
 */

import type { Rect } from "../render/camera.ts";
import { focused, on, onAbort } from "./dom.ts";

export interface Gestures {
  pan(dx: number, dy: number): void;
  zoom(factor: number, x: number, y: number): void;
  /** a press and release in one place; `add`: to the selection */
  click(x: number, y: number, add: boolean): void;
  /** whether a drag without Shift selects as well */
  selects(): boolean;
  /** a selecting drag continues (null: it was cancelled), and ends */
  band(rect: Rect | null): void;
  select(rect: Rect, add: boolean): void;
  doubleClick(x: number, y: number): void;
  /** null: the pointer has left */
  hover(at: { x: number; y: number } | null): void;
  /** a plain wheel was left to the page */
  wheelIgnored(): void;
}

/** Pixels below which a movement is still a click, with a mouse and with a finger. */
const STILL = 4;
const STILL_TOUCH = 9;
/** Milliseconds after which a resting finger adds to the selection. */
const LONG_MS = 450;

export function listenPointer(canvas: HTMLCanvasElement, gestures: Gestures, signal: AbortSignal): void {
  const down = new Map<number, { x: number; y: number }>();
  let [moved, traveled] = [false, 0];
  /** corner where a selecting drag began, null while dragging pans */
  let corner: { x: number; y: number } | null = null;
  let resting = 0;
  const adds = (event: MouseEvent): boolean => event.ctrlKey || event.metaKey || event.shiftKey;
  const rest = (): void => window.clearTimeout(resting);
  const at = (event: MouseEvent): { x: number; y: number } => {
    const { left, top } = canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };

  on(canvas, "pointerdown", signal, (event) => {
    if (event.button > 1) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const now = at(event);
    rest();
    if (down.size === 0) {
      [moved, traveled] = [false, 0];
      corner = event.button === 0 && (event.shiftKey || gestures.selects()) ? now : null;
      if (event.pointerType === "touch") {
        resting = window.setTimeout(() => {
          if (moved || down.size !== 1) return;
          moved = true; // releasing it is no click
          corner = null;
          gestures.click(now.x, now.y, true);
        }, LONG_MS);
      }
    } else {
      moved = true;
      if (corner !== null) gestures.band(null); // a second finger: it is a pinch
      corner = null;
    }
    down.set(event.pointerId, now);
    if (event.button === 1) event.preventDefault(); // no autoscroll
  });
  on(canvas, "pointermove", signal, (event) => {
    const now = at(event);
    const before = down.get(event.pointerId);
    if (before === undefined) {
      if (event.pointerType !== "touch") gestures.hover(now);
      return;
    }
    if (down.size === 2) {
      const other = [...down].find(([id]) => id !== event.pointerId)?.[1] ?? before;
      const was = Math.hypot(before.x - other.x, before.y - other.y);
      const is = Math.hypot(now.x - other.x, now.y - other.y);
      gestures.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
      if (was > 0 && is > 0) gestures.zoom(is / was, (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else {
      traveled += Math.hypot(now.x - before.x, now.y - before.y);
      if (!moved && traveled < (event.pointerType === "touch" ? STILL_TOUCH : STILL)) return;
      moved = true;
      rest();
      if (corner !== null) gestures.band(between(corner, now));
      else {
        canvas.classList.add("onnx-nb-dragging");
        gestures.pan(now.x - before.x, now.y - before.y);
      }
    }
    down.set(event.pointerId, now);
  });
  const up = (event: PointerEvent): void => {
    const known = down.delete(event.pointerId);
    canvas.classList.remove("onnx-nb-dragging");
    rest();
    const from = corner;
    corner = null;
    if (!known) return;
    if (event.type === "pointercancel") {
      if (from !== null) gestures.band(null);
      return;
    }
    const now = at(event);
    if (from !== null && moved) gestures.select(between(from, now), adds(event) || gestures.selects());
    else if (!moved && event.button === 0) gestures.click(now.x, now.y, adds(event) || gestures.selects());
  };
  on(canvas, "pointerup", signal, up);
  on(canvas, "pointercancel", signal, up);
  // Ctrl+click on a Mac, and the long press of a finger
  on(canvas, "contextmenu", { signal }, (event) => (event.ctrlKey || down.size > 0) && event.preventDefault());
  onAbort(signal, rest);
  on(canvas, "pointerleave", signal, () => gestures.hover(null));
  on(canvas, "dblclick", signal, (event) => {
    const { x, y } = at(event);
    gestures.doubleClick(x, y);
  });
  on(canvas, "wheel", { signal, passive: false }, (event) => {
    const line = [1, 16, 400][event.deltaMode]; // px, lines and pages
    const pinch = event.ctrlKey || event.metaKey; // a trackpad's pinch arrives as Ctrl+wheel
    if (!pinch && !focused(canvas)) {
      gestures.wheelIgnored();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    const [dx, dy] = [event.deltaX * line, event.deltaY * line];
    if (!pinch && (event.shiftKey || Math.abs(dx) > Math.abs(dy))) {
      gestures.pan(event.shiftKey && dx === 0 ? -dy : -dx, event.shiftKey ? 0 : -dy);
      return;
    }
    const { x, y } = at(event);
    // one notch of a wheel is 100–120 px, a pinch sends a few px at a time
    const speed = pinch && Math.abs(dy) < 50 ? 0.01 : 0.0022;
    gestures.zoom(Math.exp(-Math.max(-240, Math.min(240, dy)) * speed), x, y);
  });
}

function between(a: { x: number; y: number }, b: { x: number; y: number }): Rect {
  return { x: Math.min(a.x, b.x), y: Math.min(a.y, b.y), w: Math.abs(a.x - b.x), h: Math.abs(a.y - b.y) };
}
