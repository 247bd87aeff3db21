/**
 * Sequential colormaps: lightness is monotonic, so that they read without color, and the largest number stands out most
 * from the page (ColorBrewer's OrRd in the light theme, the same hues from dark to light in the dark theme).
 */

const LIGHT = ["#fdf3e1", "#fdd49e", "#fc8d59", "#d7301f", "#7f0000"];
const DARK = ["#35302b", "#6b3a1e", "#b9501f", "#fc8d59", "#ffe3c2"];

export interface Ramp {
  /** the color at 0 … 1 */
  color(t: number): string;
  /** text that is legible on it */
  ink(t: number): string;
  /** the whole as a CSS gradient */
  readonly gradient: string;
}

const STEPS = 64;
/** Luminance on which black and white are equally legible. */
const EVEN = 0.179;

export function createRamp(dark: boolean): Ramp {
  const stops = (dark ? DARK : LIGHT).map(parsed);
  const table = Array.from({ length: STEPS + 1 }, (_, step) => between(stops, step / STEPS));
  const colors = table.map(([r, g, b]) => `rgb(${r} ${g} ${b})`);
  const inks = table.map((rgb) => (luminance(rgb) > EVEN ? "#000000" : "#ffffff"));
  const step = (t: number): number => Math.round(Math.min(1, Math.max(0, t)) * STEPS);
  return {
    color: (t) => colors[step(t)],
    ink: (t) => inks[step(t)],
    gradient: `linear-gradient(to right, ${(dark ? DARK : LIGHT).join(", ")})`,
  };
}

type Rgb = readonly [number, number, number];

function parsed(hex: string): Rgb {
  const number = Number.parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function between(stops: readonly Rgb[], t: number): Rgb {
  const at = Math.min(stops.length - 2, Math.floor(t * (stops.length - 1)));
  const rest = t * (stops.length - 1) - at;
  const mix = (channel: 0 | 1 | 2): number =>
    Math.round(stops[at][channel] * (1 - rest) + stops[at + 1][channel] * rest);
  return [mix(0), mix(1), mix(2)];
}

/** Relative luminance as defined by WCAG. */
function luminance(rgb: Rgb): number {
  const [r, g, b] = rgb.map((channel) => {
    const x = channel / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
