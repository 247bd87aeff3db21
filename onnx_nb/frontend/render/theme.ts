/**
 * Colors and fonts for the canvas, read from the custom properties of style/base.css, which follow JupyterLab's
 * `--jp-*` variables if present. The page's appearance decides; `data-theme` on the root or an ancestor overrides it.
 */

import type { Measure } from "../scene/labels.ts";

/** Custom properties by the part that they color. */
const COLORS = {
  background: "--nb-bg",
  line: "--nb-line",
  text: "--nb-text",
  dim: "--nb-dim",
  card: "--nb-card",
  edge: "--nb-edge",
  accent: "--nb-accent",
  halo: "--nb-halo",
  bad: "--nb-bad",
  warn: "--nb-warn",
  good: "--nb-good",
  cut: "--nb-cut",
  hit: "--nb-hit",
  output: "--nb-out",
} as const;

export interface Theme extends Readonly<Record<keyof typeof COLORS, string>> {
  readonly dark: boolean;
  /** fills of open scopes, by depth, in turn */
  readonly scopes: readonly string[];
  readonly font: string;
  /** by category index */
  readonly categories: readonly string[];
  /** colormap of numbers */
  readonly ramp: Ramp;
}

/** Returns the name of the custom property of a category's color: "pool/reduce" → "--nb-cat-pool". */
export function categoryVariable(category: string): string {
  return `--nb-cat-${/^[a-z]+/.exec(category.toLowerCase())?.[0] ?? "other"}`;
}

/** Returns the name of a category in a legend. */
export function categoryTitle(category: string): string {
  return { pool: "pool/reduce", cast: "cast/quantize" }[category] ?? category;
}

export function readTheme(root: HTMLElement, categories: readonly string[]): Theme {
  // color-mix() and var() only become a color in a computed property of type color; all in one pass, for speed
  const probe = document.createElement("div");
  probe.hidden = true;
  const names = Object.keys(COLORS) as (keyof typeof COLORS)[];
  const variables = [...Object.values(COLORS), "--nb-scope0", "--nb-scope1", ...categories.map(categoryVariable)];
  const patches = variables.map((variable) => {
    const patch = document.createElement("i");
    patch.style.color = `var(${variable}, var(--nb-cat-other, gray))`;
    return patch;
  });
  probe.append(...patches);
  root.append(probe);
  const colors = patches.map((patch) => getComputedStyle(patch).color || "gray");
  probe.remove();
  const dark = isDrawnDark(root);
  return {
    ...(Object.fromEntries(names.map((name, at) => [name, colors[at]])) as Record<keyof typeof COLORS, string>),
    dark,
    scopes: colors.slice(names.length, names.length + 2),
    font: getComputedStyle(root).fontFamily || "sans-serif",
    categories: colors.slice(names.length + 2),
    ramp: createRamp(dark),
  };
}

const DARK = "onnx-nb-dark";
const OWN_THEME = "onnx-nb-own-theme";
const THEME_ATTRIBUTES = "data-theme data-jp-theme-light data-jp-theme-name data-vscode-theme-kind class theme".split(
  " ",
);

/** Returns whether a root has dark colors; `watchTheme` keeps it so. */
export function isDrawnDark(root: HTMLElement): boolean {
  return root.classList.contains(DARK);
}

/** Keeps the root's classes consistent with the page's theme and calls `changed` whenever it changes. */
export function watchTheme(root: HTMLElement, changed: () => void, signal: AbortSignal): void {
  const apply = (): boolean => {
    const before = root.className;
    const { dark, overrides } = detect(root);
    root.classList.toggle(DARK, dark);
    root.classList.toggle(OWN_THEME, overrides);
    return root.className !== before;
  };
  const turn = (): void => {
    apply();
    changed();
  };
  const page: readonly Node[] = [document.body, document.documentElement];
  const observer = new MutationObserver((mutations) => {
    // a page may have several themes that are dark
    if (apply() || mutations.some(({ target }) => page.includes(target))) changed();
  });
  const observation = { attributes: true, attributeFilter: THEME_ATTRIBUTES };
  const place = (): void => {
    for (const element of [...outwards(root), ...page]) observer.observe(element, observation);
  };
  apply();
  place();
  if (!root.isConnected) {
    const sizeObserver = new ResizeObserver(() => {
      sizeObserver.disconnect();
      place();
      if (apply()) changed();
    });
    sizeObserver.observe(root);
  }
  if (typeof matchMedia === "function") {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", turn, { signal });
  }
  signal.addEventListener("abort", () => observer.disconnect(), { once: true });
}

/** Returns an element and its ancestors, across the borders of shadow roots. */
function* outwards(element: Element): Generator<Element> {
  for (let at: Element | undefined | null = element; at; ) {
    yield at;
    at = at.parentElement ?? (at.getRootNode() as Partial<ShadowRoot>).host;
  }
}

/** Returns whether to draw dark, and whether that overrides the page (then its own variables are ignored). */
function detect(root: HTMLElement): { dark: boolean; overrides: boolean } {
  const page = pageTheme();
  const theme = root.closest<HTMLElement>("[data-theme=light], [data-theme=dark]")?.dataset.theme;
  if (theme !== undefined) return { dark: theme === "dark", overrides: page !== (theme === "dark") };
  if (page !== undefined) return { dark: page, overrides: false };
  const colab = document.documentElement.getAttribute("theme");
  const system = typeof matchMedia === "function" && matchMedia("(prefers-color-scheme: dark)").matches;
  return { dark: colab === null ? (hasDarkPage(root) ?? system) : colab === "dark", overrides: true };
}

/** Returns whether JupyterLab or VS Code, whose colors are variables, has a dark theme; undefined elsewhere. */
function pageTheme(): boolean | undefined {
  const { dataset, className } = document.body;
  if (dataset.jpThemeLight !== undefined) return dataset.jpThemeLight === "false";
  const kinds = `${dataset.vscodeThemeKind} ${className}`;
  if (!/vscode-(light|dark|high)/.test(kinds)) return undefined;
  // that of light high contrast has the class of the dark one, too
  return !/vscode-(high-contrast-)?light/.test(kinds);
}

/** Returns whether what the page paints behind an element is dark; undefined if that cannot be known. */
function hasDarkPage(root: HTMLElement): boolean | undefined {
  for (const element of outwards(root)) {
    const dark = element === root ? undefined : isDark(getComputedStyle(element).backgroundColor);
    if (dark !== undefined) return dark;
  }
  // inside another page nothing is painted; the window itself is white, unless its page supports dark
  if (window.parent !== window) return undefined;
  const probe = document.createElement("i");
  probe.style.color = "Canvas";
  document.body.append(probe);
  const dark = isDark(getComputedStyle(probe).color);
  probe.remove();
  return dark;
}

/** Returns whether a computed color is dark; undefined if it is transparent, or given in another way. */
function isDark(color: string): boolean | undefined {
  const [, form, ...rgb] = /^(rgb|color\(srgb).([\d.]+),? ([\d.]+),? ([\d.]+)\)$/.exec(color) ?? [];
  if (form === undefined) return undefined;
  const [r, g, b] = rgb.map((part) => Number(part) * (form === "rgb" ? 1 : 255));
  return luminance([r, g, b]) < EVEN;
}

/** Measures text by a table of single characters, so that 100,000 labels need no text layout. */
export function createMeasure(font: string): Measure {
  const context = document.createElement("canvas").getContext("2d");
  const tables = [new Map<string, number>(), new Map<string, number>()] as const;
  const unit = 100;
  return (text, fontPx, bold) => {
    if (context === null) return text.length * fontPx * 0.6;
    const table = tables[bold ? 1 : 0];
    let sum = 0;
    for (const character of text) {
      let width = table.get(character);
      if (width === undefined) {
        context.font = `${bold ? "600 " : ""}${unit}px ${font}`;
        width = context.measureText(character).width;
        table.set(character, width);
      }
      sum += width;
    }
    return (sum * fontPx) / unit;
  };
}

const LIGHT_STOPS = ["#fdf3e1", "#fdd49e", "#fc8d59", "#d7301f", "#7f0000"];
const DARK_STOPS = ["#35302b", "#6b3a1e", "#b9501f", "#fc8d59", "#ffe3c2"];

interface Ramp {
  /** the color at 0 … 1 */
  color(t: number): string;
  /** text that is legible on it */
  ink(t: number): string;
  /** the whole scale as a CSS gradient */
  readonly gradient: string;
}

const STEPS = 64;
/** Luminance on which black and white are equally legible. */
const EVEN = 0.179;

export function createRamp(dark: boolean): Ramp {
  const stops = (dark ? DARK_STOPS : LIGHT_STOPS).map(parseHex);
  const table = Array.from({ length: STEPS + 1 }, (_, step) => between(stops, step / STEPS));
  const colors = table.map(([r, g, b]) => `rgb(${r} ${g} ${b})`);
  const inks = table.map((rgb) => (luminance(rgb) > EVEN ? "#000000" : "#ffffff"));
  const step = (t: number): number => Math.round(Math.min(1, Math.max(0, t)) * STEPS);
  return {
    color: (t) => colors[step(t)],
    ink: (t) => inks[step(t)],
    gradient: `linear-gradient(to right, ${(dark ? DARK_STOPS : LIGHT_STOPS).join(", ")})`,
  };
}

/** Colors of labels, legible in both themes and told apart by people who are color-blind (after Okabe and Ito). */
const LABELS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a000", "#7a6fd0"];
/** Label of scopes whose nodes have different ones, as `analysis/view/overlays.py` names it. */
const MIXED_LABEL = "several";
/** Labels of `analysis/view/overlays.py` and `notebook/display.py` with a color of their own. */
const OWN_COLORS: Readonly<Record<string, string>> = {
  [MIXED_LABEL]: "#87919c",
  "begins here": "#c62828",
  "fails here": "#c62828",
  "NaN or Inf": "#f3aaa5",
  finite: "#87919c",
};

/** Returns the fill of a label, the last one for all less frequent labels, and text that is legible on it. */
export function labelColor(labels: readonly string[], at: number): { fill: string; ink: string } {
  const fill = OWN_COLORS[labels[at]] ?? LABELS[Math.min(at, LABELS.length - 1)];
  return { fill, ink: luminance(parseHex(fill)) > EVEN ? "#000000" : "#ffffff" };
}

/** Returns the rows of a legend: each color with its labels. The last color has all less frequent labels. */
export function labelKeys(labels: readonly string[]): { text: string; from: number; to: number; fill: string }[] {
  const labelCount = labels.length - Number(labels.at(-1) === MIXED_LABEL);
  const colorCount = labelCount > LABELS.length ? LABELS.length - 1 : labelCount;
  const key = (text: string, from: number, to = from + 1) => ({ text, from, to, fill: labelColor(labels, from).fill });
  return [
    ...labels.slice(0, colorCount).map((name, at) => key(name || "none", at)),
    ...(colorCount < labelCount ? [key(`${labelCount - colorCount} others`, colorCount, labelCount)] : []),
    ...labels.slice(labelCount).map((name) => key(name, labelCount)),
  ];
}

type Rgb = readonly [number, number, number];

function parseHex(hex: string): Rgb {
  const number = Number.parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function between(stops: readonly Rgb[], t: number): Rgb {
  const at = Math.min(stops.length - 2, Math.floor(t * (stops.length - 1)));
  const fraction = t * (stops.length - 1) - at;
  const mix = (channel: 0 | 1 | 2): number =>
    Math.round(stops[at][channel] * (1 - fraction) + stops[at + 1][channel] * fraction);
  return [mix(0), mix(1), mix(2)];
}

/** Returns the relative luminance as defined by WCAG. */
function luminance(rgb: Rgb): number {
  const [r, g, b] = rgb.map((channel) => {
    const x = channel / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
