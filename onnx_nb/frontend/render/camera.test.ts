import { describe, expect, it } from "vitest";
import {
  between,
  fitAll,
  keepInSight,
  MARGIN,
  opening,
  pan,
  reveal,
  toScreen,
  toWorld,
  visible,
  zoom,
} from "./camera.ts";

const view = { w: 800, h: 400 };
const bounds = { x: -100, y: -50, w: 400, h: 3000 };

describe("camera", () => {
  it("turns screen points into world points and back", () => {
    const camera = { x: 13, y: -7, k: 0.3 };
    const world = toWorld(camera, 120, 45);
    const screen = toScreen(camera, world.x, world.y);
    expect(screen.x).toBeCloseTo(120);
    expect(screen.y).toBeCloseTo(45);
  });

  it("keeps the point under the pointer while zooming, even at the limits", () => {
    const camera = { x: 5, y: 6, k: 1 };
    for (const factor of [1.5, 0.2, 1e9, 1e-9]) {
      const after = toWorld(zoom(camera, factor, 200, 100), 200, 100);
      expect(after.x).toBeCloseTo(205);
      expect(after.y).toBeCloseTo(106);
    }
  });

  it("moves the picture with the pointer", () => {
    const moved = pan({ x: 0, y: 0, k: 2 }, 10, -20);
    expect(moved).toEqual({ x: -5, y: 10, k: 2 });
  });

  it("fits the whole graph, in the middle, at zoom 1 at most", () => {
    const seen = visible(fitAll(bounds, view), view);
    expect(seen.y).toBeLessThanOrEqual(bounds.y);
    expect(seen.y + seen.h).toBeGreaterThanOrEqual(bounds.y + bounds.h);
    expect(seen.x + seen.w / 2).toBeCloseTo(bounds.x + bounds.w / 2);
    expect(fitAll({ x: 0, y: 0, w: 10, h: 10 }, view).k).toBe(1);
  });

  it("handles a viewport of no size", () => {
    expect(Number.isFinite(fitAll(bounds, { w: 0, h: 0 }).k)).toBe(true);
    expect(fitAll(bounds, { w: 0, h: 0 }).k).toBeGreaterThan(0);
  });

  it("opens a long graph at its beginning, large enough to read", () => {
    const start = { x: 100, y: -50 };
    const camera = opening(bounds, view, "down", start);
    expect(camera.k).toBeGreaterThanOrEqual(0.55);
    expect(toScreen(camera, 0, bounds.y).y).toBeCloseTo(MARGIN);
    const small = { x: 0, y: 0, w: 300, h: 300 };
    expect(opening(small, view, "down", start)).toEqual(fitAll(small, view));
    const wide = { x: 0, y: 0, w: 9000, h: 9000 };
    const seen = visible(opening(wide, view, "down", { x: 4000, y: 12 }), view);
    expect(seen.x + seen.w / 2).toBeCloseTo(4000);
    expect(visible(opening(wide, view, "down", { x: 10, y: 12 }), view).x).toBeCloseTo(-MARGIN / 0.55);
  });

  it("moves no more than needed to reveal a box", () => {
    const camera = { x: 0, y: 0, k: 1 };
    expect(reveal(camera, { x: 100, y: 100, w: 80, h: 40 }, view)).toEqual(camera);
    const right = reveal(camera, { x: 780, y: 100, w: 80, h: 40 }, view);
    expect(right.y).toBe(0);
    expect(right.x).toBeCloseTo(780 + 80 + 24 - 800);
    const away = visible(reveal(camera, { x: 900, y: 3000, w: 80, h: 40 }, view), view);
    expect([away.x + away.w / 2, away.y + away.h / 2]).toEqual([940, 3020]);
    const centered = visible(reveal(camera, { x: 100, y: 100, w: 80, h: 40 }, view, { toCenter: true }), view);
    expect([centered.x + centered.w / 2, centered.y + centered.h / 2]).toEqual([140, 120]);
    expect(reveal({ x: 0, y: 0, k: 0.01 }, { x: 900, y: 100, w: 80, h: 40 }, view).k).toBeGreaterThan(0.5);
  });

  it("keeps the graph in view", () => {
    const lost = keepInSight({ x: 1e6, y: -1e6, k: 1 }, bounds, view);
    const seen = visible(lost, view);
    expect(seen.x).toBeLessThan(bounds.x + bounds.w);
    expect(seen.y + seen.h).toBeGreaterThan(bounds.y);
  });

  it("starts and ends an animation exactly", () => {
    const a = { x: 1, y: 2, k: 0.1 };
    const b = { x: 50, y: -9, k: 2 };
    expect(between(a, b, 0, view).x).toBeCloseTo(a.x);
    expect(between(a, b, 1, view).y).toBeCloseTo(b.y);
    expect(between(a, b, 1, view).k).toBeCloseTo(2);
  });
});
