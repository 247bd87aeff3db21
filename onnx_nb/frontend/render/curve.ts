/**
 * The curve of an edge between its control points: straight if two points are in line, else an S with tangents along
 * the flow. The canvas draws it and the hit test measures against it.
 */

import type { Direction } from "../protocol/host.ts";

type PathPen = Pick<CanvasPath, "moveTo" | "lineTo" | "bezierCurveTo">;

/** Traces points `from` … `to − 1` (x, y pairs); `back` traces from the last to the first, starting at the pen. */
export function trace(
  pen: PathPen,
  points: Float32Array,
  from: number,
  to: number,
  direction: Direction,
  back = false,
): void {
  const first = back ? to - 1 : from;
  const step1 = back ? -1 : 1;
  let x = points[2 * first];
  let y = points[2 * first + 1];
  if (back) pen.lineTo(x, y);
  else pen.moveTo(x, y);
  for (let step = 1; step < to - from; step++) {
    const at = back ? first - step : first + step;
    const nx = points[2 * at];
    const ny = points[2 * at + 1];
    if (Math.abs(nx - x) < 0.5 || Math.abs(ny - y) < 0.5) {
      const corner = step + 1 < to - from ? cornerAt(x, y, nx, ny, points, at + step1) : 0;
      if (corner === 0) pen.lineTo(nx, ny);
      else {
        // rounded: a straight piece ends where the next one begins
        const [bx, by] = toward(nx, ny, x, y, corner);
        const [ax, ay] = toward(nx, ny, points[2 * (at + step1)], points[2 * (at + step1) + 1], corner);
        pen.lineTo(bx, by);
        pen.bezierCurveTo(nx, ny, nx, ny, ax, ay);
        x = ax;
        y = ay;
        continue;
      }
    } else if (direction === "down") {
      const middle = (y + ny) / 2;
      pen.bezierCurveTo(x, middle, nx, middle, nx, ny);
    } else {
      const middle = (x + nx) / 2;
      pen.bezierCurveTo(middle, y, middle, ny, nx, ny);
    }
    x = nx;
    y = ny;
  }
}

/** Radius of a corner at (x1, y1) where the line turns by a right angle, on to the given point; 0 for none. */
function cornerAt(x0: number, y0: number, x1: number, y1: number, points: Float32Array, next: number): number {
  const x2 = points[2 * next];
  const y2 = points[2 * next + 1];
  const before = Math.abs(x1 - x0) + Math.abs(y1 - y0);
  const after = Math.abs(x2 - x1) + Math.abs(y2 - y1);
  const upright = Math.abs(x1 - x0) < 0.5;
  const turns = upright ? Math.abs(y2 - y1) < 0.5 : Math.abs(x2 - x1) < 0.5;
  return turns ? Math.min(CORNER, before / 2, after / 2) : 0;
}

/** Returns the point at a distance from (x, y) toward (tx, ty). */
function toward(x: number, y: number, tx: number, ty: number, by: number): [number, number] {
  return [x + Math.sign(Math.round(tx - x)) * by, y + Math.sign(Math.round(ty - y)) * by];
}

const CORNER = 6;
const STEPS = 12;

/** Returns the point at `t` (0…1) of the piece from (x0, y0) to (x1, y1). */
export function along(
  x0: number,
  y0: number,
  x1: number,
  y1: number,
  t: number,
  direction: Direction,
): { x: number; y: number } {
  if (Math.abs(x1 - x0) < 0.5 || Math.abs(y1 - y0) < 0.5) return { x: x0 + (x1 - x0) * t, y: y0 + (y1 - y0) * t };
  // with both inner control points at the middle, one axis is 3t(1−t)/2 + t³ of the way and the other smoothstep
  const flow = 1.5 * t * (1 - t) + t * t * t;
  const across = t * t * (3 - 2 * t);
  return direction === "down"
    ? { x: x0 + (x1 - x0) * across, y: y0 + (y1 - y0) * flow }
    : { x: x0 + (x1 - x0) * flow, y: y0 + (y1 - y0) * across };
}

/** Returns the squared distance of (x, y) from the piece that starts at control point `at`. */
export function distance2(points: Float32Array, at: number, x: number, y: number, direction: Direction): number {
  const [x0, y0, x1, y1] = points.subarray(2 * at, 2 * at + 4);
  const steps = Math.abs(x1 - x0) < 0.5 || Math.abs(y1 - y0) < 0.5 ? 1 : STEPS;
  let minDistance = Number.POSITIVE_INFINITY;
  let from = { x: x0, y: y0 };
  for (let step = 1; step <= steps; step++) {
    const to = along(x0, y0, x1, y1, step / steps, direction);
    minDistance = Math.min(minDistance, segment2(from.x, from.y, to.x, to.y, x, y));
    from = to;
  }
  return minDistance;
}

function segment2(x0: number, y0: number, x1: number, y1: number, x: number, y: number): number {
  const dx = x1 - x0;
  const dy = y1 - y0;
  const length2 = dx * dx + dy * dy;
  const t = length2 === 0 ? 0 : Math.min(1, Math.max(0, ((x - x0) * dx + (y - y0) * dy) / length2));
  return (x0 + t * dx - x) ** 2 + (y0 + t * dy - y) ** 2;
}
