/**
 * Mouse, touch and trackpad on the canvas. Dragging pans, two fingers or Ctrl+wheel zoom. A plain wheel zooms only while
 * the canvas has the focus, so that a page with a graph in it still scrolls.
 */

import { focused } from "./dom.ts";

export interface Gestures {
  pan(dx: number, dy: number): void;
  zoom(factor: number, x: number, y: number): void;
  /** a press and release in one place */
  click(x: number, y: number): void;
  doubleClick(x: number, y: number): void;
  /** null: the pointer left */
  hover(at: { x: number; y: number } | null): void;
  /** a plain wheel that was left to the page */
  passed(): void;
}

/** A press that moves less than this is a click. */
const STILL = 4;

export function listenPointer(canvas: HTMLCanvasElement, gestures: Gestures, signal: AbortSignal): void {
  const down = new Map<number, { x: number; y: number }>();
  let moved = false;
  let travelled = 0;
  const at = (event: MouseEvent): { x: number; y: number } => {
    const { left, top } = canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };

  canvas.addEventListener(
    "pointerdown",
    (event) => {
      if (event.button > 1) return;
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      if (down.size === 0) {
        moved = false;
        travelled = 0;
      } else moved = true;
      down.set(event.pointerId, at(event));
      if (event.button === 1) event.preventDefault(); // no autoscroll
    },
    { signal },
  );
  canvas.addEventListener(
    "pointermove",
    (event) => {
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
        travelled += Math.hypot(now.x - before.x, now.y - before.y);
        if (travelled < STILL && !moved) return;
        moved = true;
        canvas.classList.add("onnx-nb-dragging");
        gestures.pan(now.x - before.x, now.y - before.y);
      }
      down.set(event.pointerId, now);
    },
    { signal },
  );
  const up = (event: PointerEvent): void => {
    const known = down.delete(event.pointerId);
    canvas.classList.remove("onnx-nb-dragging");
    if (!known || event.type === "pointercancel" || moved || event.button !== 0) return;
    const { x, y } = at(event);
    gestures.click(x, y);
  };
  canvas.addEventListener("pointerup", up, { signal });
  canvas.addEventListener("pointercancel", up, { signal });
  canvas.addEventListener("pointerleave", () => gestures.hover(null), { signal });
  canvas.addEventListener(
    "dblclick",
    (event) => {
      const { x, y } = at(event);
      gestures.doubleClick(x, y);
    },
    { signal },
  );
  canvas.addEventListener(
    "wheel",
    (event) => {
      const line =
        event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : event.deltaMode === WheelEvent.DOM_DELTA_PAGE ? 400 : 1;
      const pinch = event.ctrlKey || event.metaKey; // a trackpad's pinch arrives as Ctrl+wheel
      if (!pinch && !focused(canvas)) {
        gestures.passed();
        return;
      }
      event.preventDefault();
      event.stopPropagation();
      const dx = event.deltaX * line;
      const dy = event.deltaY * line;
      if (!pinch && (event.shiftKey || Math.abs(dx) > Math.abs(dy))) {
        gestures.pan(event.shiftKey && dx === 0 ? -dy : -dx, event.shiftKey ? 0 : -dy);
        return;
      }
      const { x, y } = at(event);
      // one notch of a wheel is 100–120 px, a pinch sends a few px at a time
      const speed = pinch && Math.abs(dy) < 50 ? 0.01 : 0.0022;
      gestures.zoom(Math.exp(-Math.max(-240, Math.min(240, dy)) * speed), x, y);
    },
    { signal, passive: false },
  );
}
