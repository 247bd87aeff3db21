/**
 * Mouse, touch and trackpad on the canvas. Dragging pans, or with Shift selects by a rectangle; two fingers
 * or Ctrl+wheel zoom; a long press is the Ctrl+click of a finger. A plain wheel zooms only while the canvas has the
 * focus, so that a page with a graph in it still scrolls. A right click opens a menu, with Shift that of the browser.
 */

import type { Rect } from "../render/camera.ts";
import { hasFocus, on, onAbort } from "../ui/dom.ts";

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
  /** a right click; false leaves it to the page */
  menu(x: number, y: number): boolean;
  /** null: the pointer has left */
  hover(at: { x: number; y: number } | null): void;
  /** a plain wheel was left to the page */
  onPlainWheel(): void;
}

/** Pixels below which a movement is still a click, with a mouse and with a finger. */
const STILL = 4;
const STILL_TOUCH = 9;
/** Milliseconds after which a resting finger adds to the selection. */
const LONG_MS = 450;

export function listenPointer(canvas: HTMLCanvasElement, gestures: Gestures, signal: AbortSignal): void {
  const down = new Map<number, { x: number; y: number }>();
  let [hasMoved, distance] = [false, 0];
  /** corner where a selecting drag began, null while dragging pans */
  let corner: { x: number; y: number } | null = null;
  let resting = 0;
  const adds = (event: MouseEvent): boolean => event.ctrlKey || event.metaKey || event.shiftKey;
  const cancelRest = (): void => window.clearTimeout(resting);
  const at = (event: MouseEvent): { x: number; y: number } => {
    const { left, top } = canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };

  on(canvas, "pointerdown", signal, (event) => {
    if (event.button > 1) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const now = at(event);
    cancelRest();
    if (down.size === 0) {
      [hasMoved, distance] = [false, 0];
      corner = event.button === 0 && (event.shiftKey || gestures.selects()) ? now : null;
      if (event.pointerType === "touch") {
        resting = window.setTimeout(() => {
          if (hasMoved || down.size !== 1) return;
          hasMoved = true; // releasing it is no click
          corner = null;
          gestures.click(now.x, now.y, true);
        }, LONG_MS);
      }
    } else {
      hasMoved = true;
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
      const secondFinger = [...down].find(([id]) => id !== event.pointerId)?.[1] ?? before;
      const was = Math.hypot(before.x - secondFinger.x, before.y - secondFinger.y);
      const is = Math.hypot(now.x - secondFinger.x, now.y - secondFinger.y);
      gestures.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
      if (was > 0 && is > 0) gestures.zoom(is / was, (now.x + secondFinger.x) / 2, (now.y + secondFinger.y) / 2);
    } else {
      distance += Math.hypot(now.x - before.x, now.y - before.y);
      if (!hasMoved && distance < (event.pointerType === "touch" ? STILL_TOUCH : STILL)) return;
      hasMoved = true;
      cancelRest();
      if (corner !== null) gestures.band(rectOf(corner, now));
      else {
        canvas.classList.add("onnx-nb-dragging");
        gestures.pan(now.x - before.x, now.y - before.y);
      }
    }
    down.set(event.pointerId, now);
  });
  const up = (event: PointerEvent): void => {
    const wasDown = down.delete(event.pointerId);
    canvas.classList.remove("onnx-nb-dragging");
    cancelRest();
    const from = corner;
    corner = null;
    if (!wasDown) return;
    if (event.type === "pointercancel") {
      if (from !== null) gestures.band(null);
      return;
    }
    const now = at(event);
    if (from !== null && hasMoved) gestures.select(rectOf(from, now), adds(event) || gestures.selects());
    else if (!hasMoved && event.button === 0) gestures.click(now.x, now.y, adds(event) || gestures.selects());
  };
  on(canvas, "pointerup", signal, up);
  on(canvas, "pointercancel", signal, up);
  on(canvas, "contextmenu", signal, (event) => {
    const { x, y } = at(event);
    const adding = event.ctrlKey || down.size > 0; // Ctrl+click on a Mac, and the long press of a finger
    if (!adding && (event.shiftKey || !gestures.menu(x, y))) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has a menu, too
  });
  onAbort(signal, cancelRest);
  on(canvas, "pointerleave", signal, () => gestures.hover(null));
  on(canvas, "dblclick", signal, (event) => {
    const { x, y } = at(event);
    gestures.doubleClick(x, y);
  });
  on(canvas, "wheel", { signal, passive: false }, (event) => {
    const line = [1, 16, 400][event.deltaMode]; // px, lines and pages
    const pinch = event.ctrlKey || event.metaKey; // a trackpad's pinch arrives as Ctrl+wheel
    if (!pinch && !hasFocus(canvas)) {
      gestures.onPlainWheel();
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

function rectOf(a: { x: number; y: number }, b: { x: number; y: number }): Rect {
  return { x: Math.min(a.x, b.x), y: Math.min(a.y, b.y), w: Math.abs(a.x - b.x), h: Math.abs(a.y - b.y) };
}
