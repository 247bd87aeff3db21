/** The whole graph in a corner, with a frame around the visible part; dragging the frame moves the view. */

import { type Camera, type Size, visible } from "../render/camera.ts";
import type { HitIndex } from "../render/hit.ts";
import type { Theme } from "../render/theme.ts";
import { BOX, isPill, type Scene } from "../scene/scene.ts";
import { on } from "../ui/dom.ts";

const WIDTH = 104;
const HEIGHT = 124;
const MARGIN = 5;
/** Pixels of a scope below which its content is not drawn. */
const GRAIN = 2;
/** Maximum stretch of the map of a long thin graph, on which nothing could be seen otherwise. */
const STRETCH = 4;

/** Share of the graph in view above which no map is shown. */
const MOST = 0.7;

/** Returns the share of a span that is inside another one. */
function share(start: number, size: number, from: number, length: number): number {
  return Math.max(0, Math.min(start + size, from + length) - Math.max(start, from)) / Math.max(1, length);
}

/** @param move receives the world point to bring to the middle */
export function createMinimap(canvas: HTMLCanvasElement, move: (x: number, y: number) => void, signal: AbortSignal) {
  const ctx = canvas.getContext("2d");
  const map = document.createElement("canvas");
  const pen = map.getContext("2d");
  let lastDrawing: { scene: Scene; theme: Theme } | null = null;
  let [sx, sy] = [1, 1];
  let bounds = { x: 0, y: 0, w: 1, h: 1 };

  const paint = (scene: Scene, index: HitIndex, theme: Theme, dpr: number): void => {
    bounds = scene.bounds;
    sx = (WIDTH - 2 * MARGIN) / Math.max(1, bounds.w);
    sy = (HEIGHT - 2 * MARGIN) / Math.max(1, bounds.h);
    const s = Math.min(sx, sy);
    sx = Math.min(sx, s * STRETCH);
    sy = Math.min(sy, s * STRETCH);
    const width = Math.max(40, bounds.w * sx + 2 * MARGIN);
    const height = Math.max(24, bounds.h * sy + 2 * MARGIN);
    for (const target of [canvas, map]) {
      target.width = Math.round(width * dpr);
      target.height = Math.round(height * dpr);
    }
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    if (pen === null) return;
    pen.setTransform(dpr * sx, 0, 0, dpr * sy, dpr * (MARGIN - bounds.x * sx), dpr * (MARGIN - bounds.y * sy));
    const { kind, x, y, w, h } = scene.boxes;
    const { boxes } = index.itemsIn(bounds.x, bounds.y, bounds.x + bounds.w, bounds.y + bounds.h, GRAIN / s);
    const isSmall = (box: number): boolean => Math.max(w[box], h[box]) * s < GRAIN;
    const patch = (color: string, isMember: (box: number) => boolean): void => {
      pen.beginPath();
      for (const box of boxes) {
        // a box of less than a pixel still leaves a trace
        if (isMember(box)) pen.rect(x[box], y[box], Math.max(w[box], 1 / sx), Math.max(h[box] - 2, 1 / sy));
      }
      pen.fillStyle = color;
      pen.fill();
    };
    pen.globalAlpha = 0.55;
    patch(theme.line, (box) => kind[box] === BOX.OPEN);
    pen.globalAlpha = 0.8;
    const closed = (box: number): boolean => kind[box] === BOX.NODE || kind[box] === BOX.SCOPE;
    patch(theme.edge, (box) => closed(box) || (kind[box] === BOX.OPEN && isSmall(box)));
    patch(theme.text, (box) => isPill(kind[box]));
    pen.globalAlpha = 1;
  };

  const at = (event: PointerEvent): void =>
    move((event.offsetX - MARGIN) / sx + bounds.x, (event.offsetY - MARGIN) / sy + bounds.y);
  on(canvas, "pointerdown", signal, (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    event.stopPropagation();
    canvas.setPointerCapture(event.pointerId);
    at(event);
  });
  on(canvas, "pointermove", signal, (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) at(event);
  });

  return {
    update(scene: Scene, index: HitIndex, theme: Theme, camera: Camera, view: Size): void {
      const area = visible(camera, view);
      const { x, y, w, h } = scene.bounds;
      // a map of what is mostly in view would only cover it
      canvas.hidden = share(area.x, area.w, x, w) * share(area.y, area.h, y, h) > MOST;
      if (canvas.hidden || ctx === null) return;
      const dpr = window.devicePixelRatio || 1;
      if (lastDrawing?.scene !== scene || lastDrawing.theme !== theme) {
        paint(scene, index, theme, dpr);
        lastDrawing = { scene, theme };
      }
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      ctx.clearRect(0, 0, canvas.width, canvas.height);
      ctx.drawImage(map, 0, 0);
      ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
      const across = (at: number): number => Math.min(canvas.width / dpr - 1, Math.max(1, (at - x) * sx + MARGIN));
      const along = (at: number): number => Math.min(canvas.height / dpr - 1, Math.max(1, (at - y) * sy + MARGIN));
      const [left, right] = [across(area.x), across(area.x + area.w)];
      const [top, bottom] = [along(area.y), along(area.y + area.h)];
      ctx.fillStyle = theme.halo;
      ctx.strokeStyle = theme.accent;
      ctx.lineWidth = 1.5;
      ctx.beginPath();
      ctx.roundRect(left, top, Math.max(3, right - left), Math.max(3, bottom - top), 3);
      ctx.fill();
      ctx.stroke();
    },
  };
}
