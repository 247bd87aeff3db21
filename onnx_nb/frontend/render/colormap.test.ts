import { describe, expect, test } from "vitest";
import { createRamp } from "./theme.ts";

function luminance(color: string): number {
  const channels = color.startsWith("#")
    ? [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16))
    : (color.match(/\d+/g) ?? []).map(Number);
  const [r, g, b] = channels.map((channel) => {
    const x = channel / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

describe.each([
  ["light", false],
  ["dark", true],
])("the %s ramp", (_, dark) => {
  const ramp = createRamp(dark);
  const places = Array.from({ length: 101 }, (_, at) => at / 100);

  test("only rises or only falls in lightness, so that it is readable without color", () => {
    const lights = places.map((t) => luminance(ramp.color(t)));
    const turned = dark ? lights : lights.toReversed();
    for (let at = 1; at < turned.length; at++) expect(turned[at]).toBeGreaterThanOrEqual(turned[at - 1] as number);
  });

  test("allows legible text on it, at contrast AA", () => {
    for (const t of places) {
      const [a, b] = [luminance(ramp.color(t)), luminance(ramp.ink(t))];
      expect((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), `at ${t}`).toBeGreaterThanOrEqual(4.5);
    }
  });
});
