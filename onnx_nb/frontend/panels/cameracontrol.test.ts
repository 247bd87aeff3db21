// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { CameraPosition } from "../protocol/host.ts";
import { CameraControl } from "./cameracontrol.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A control of a view of 100 × 100 px that paints with each frame, and what it reports. */
function painted() {
  const reports: CameraPosition[] = [];
  const paint = (): void => control.scheduleReport();
  const events = {
    redraw: paint,
    onMove: paint,
    onLook: () => undefined,
    onRest: (at: CameraPosition) => reports.push(at),
  };
  const control: CameraControl = new CameraControl(events, new AbortController().signal);
  control.view = { w: 100, h: 100 };
  return { control, reports };
}

test("a glide by hand is reported once the camera rests", () => {
  const { control, reports } = painted();
  control.glide({ x: 200, y: 0, k: 1 });
  vi.advanceTimersByTime(2_000);
  expect(reports).toEqual([{ x: 250, y: 50, zoom: 1 }]);
});

test("a movement that follows another view is not reported, the next one by hand is", () => {
  const { control, reports } = painted();
  control.glide({ x: 200, y: 0, k: 1 });
  vi.advanceTimersByTime(50); // its report is on the way already
  control.follow();
  vi.advanceTimersByTime(2_000);
  expect([control.camera.x, reports]).toEqual([200, []]);
  control.goTo({ x: 0, y: 0, zoom: 2 }, null, false);
  control.follow();
  vi.advanceTimersByTime(2_000);
  expect(reports).toEqual([]);
  control.glide({ x: 0, y: 0, k: 1 });
  vi.advanceTimersByTime(2_000);
  expect(reports).toEqual([{ x: 50, y: 50, zoom: 1 }]);
});
