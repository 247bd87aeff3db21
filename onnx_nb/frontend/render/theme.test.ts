// @vitest-environment jsdom
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { categoryVariable, watchTheme } from "./theme.ts";

const css = readFileSync("style/base.css", "utf8");

type Rgb = readonly [number, number, number];

/** Returns our palette on a page without --jp-* variables, with var() and color-mix() resolved. */
function palette(dark: boolean): (name: string) => Rgb {
  const block = (selector: string): Map<string, string> => {
    const text = css.slice(css.indexOf(`\n${selector} {`));
    const declarations = text.slice(0, text.indexOf("\n}")).matchAll(/(--nb-[\w-]+):\s*([^;]+);/g);
    return new Map([...declarations].map(([, name, value]) => [name, value.trim()]));
  };
  const variables = block(".onnx-nb");
  if (dark) for (const [name, value] of block(".onnx-nb-dark")) variables.set(name, value);
  for (const [name, value] of block(".onnx-nb-own-theme")) variables.set(name, value);
  const resolve = (value: string): Rgb => {
    const variable = /^var\((--[\w-]+)\)$/.exec(value);
    if (variable !== null) return resolve(variables.get(variable[1]) ?? "");
    const mix = /^color-mix\(in srgb, (.+) ([\d.]+)%, (.+)\)$/.exec(value);
    if (mix !== null) {
      const part = Number(mix[2]) / 100;
      const [a, b] = [resolve(mix[1]), resolve(mix[3])];
      return [0, 1, 2].map((at) => a[at] * part + b[at] * (1 - part)) as unknown as Rgb;
    }
    const hex = /^#(..)(..)(..)$/.exec(value);
    if (hex === null) throw new Error(`cannot read color '${value}'`);
    return hex.slice(1).map((digits) => Number.parseInt(digits, 16)) as unknown as Rgb;
  };
  return (name) => resolve(`var(${name})`);
}

function contrast(a: Rgb, b: Rgb): number {
  const luminance = (rgb: Rgb): number => {
    const [r, g, b] = rgb.map((each) => {
      const c = each / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}

describe.each([
  ["light", false],
  ["dark", true],
])("the %s palette", (_, dark) => {
  const color = palette(dark);
  const grounds = ["--nb-bg", "--nb-panel", "--nb-card", "--nb-scope0", "--nb-scope1"];

  it.each(["--nb-text", "--nb-dim", "--nb-accent", "--nb-bad"])("%s is legible on every background (AA)", (text) => {
    for (const ground of grounds) expect(contrast(color(text), color(ground))).toBeGreaterThanOrEqual(4.5);
  });

  it("text on a filled button and in a pill is legible", () => {
    expect(contrast(color("--nb-on-accent"), color("--nb-accent"))).toBeGreaterThanOrEqual(4.5);
    expect(contrast(color("--nb-bg"), color("--nb-text"))).toBeGreaterThanOrEqual(7);
  });

  it.each(["linear", "activation", "normalize", "arithmetic", "shape", "pool", "control", "random", "input"])(
    "the stripe of %s is distinct from its card",
    (category) => {
      expect(contrast(color(categoryVariable(category)), color("--nb-card"))).toBeGreaterThanOrEqual(3);
    },
  );
});

describe("watchTheme", () => {
  const stop = new AbortController();
  afterEach(() => {
    document.body.removeAttribute("data-jp-theme-light");
    document.body.className = "";
    document.body.removeAttribute("data-vscode-theme-kind");
    document.body.style.backgroundColor = "";
    document.documentElement.removeAttribute("theme");
  });

  const look = (prepare: (root: HTMLElement) => void): [dark: boolean, own: boolean] => {
    const root = document.createElement("div");
    document.body.append(root);
    prepare(root);
    watchTheme(root, () => undefined, stop.signal);
    root.remove();
    return [root.classList.contains("onnx-nb-dark"), root.classList.contains("onnx-nb-own-theme")];
  };

  it("follows JupyterLab and VS Code and uses their colors", () => {
    expect(look(() => document.body.setAttribute("data-jp-theme-light", "false"))).toEqual([true, false]);
    expect(look(() => document.body.setAttribute("data-jp-theme-light", "true"))).toEqual([false, false]);
    document.body.removeAttribute("data-jp-theme-light");
    expect(look(() => document.body.classList.add("vscode-dark"))).toEqual([true, false]);
    document.body.className = "vscode-high-contrast vscode-high-contrast-light";
    expect(look(() => undefined)).toEqual([false, false]);
    document.body.className = "vscode-reduce-motion";
    expect(look(() => undefined)).toEqual([false, true]);
    expect(look(() => (document.body.dataset.vscodeThemeKind = "vscode-high-contrast"))).toEqual([true, false]);
  });

  it("follows Colab, and the color that other pages paint around it, with its own colors", () => {
    document.body.style.backgroundColor = "rgb(18, 18, 18)";
    expect(look(() => undefined)).toEqual([true, true]);
    expect(look(() => document.documentElement.setAttribute("theme", "light"))).toEqual([false, true]);
    document.body.style.backgroundColor = "rgb(255, 255, 255)";
    expect(look(() => document.documentElement.setAttribute("theme", "dark"))).toEqual([true, true]);
    document.documentElement.removeAttribute("theme");
    expect(look(() => undefined)).toEqual([false, true]);
  });

  it("follows data-theme, with its own colors if the page disagrees", () => {
    document.body.setAttribute("data-jp-theme-light", "true");
    expect(look((root) => root.setAttribute("data-theme", "dark"))).toEqual([true, true]);
    expect(look((root) => root.setAttribute("data-theme", "light"))).toEqual([false, false]);
  });

  it("follows a change of the page's theme", async () => {
    const root = document.createElement("div");
    document.body.append(root);
    let turned = 0;
    watchTheme(root, () => turned++, stop.signal);
    document.body.setAttribute("data-jp-theme-light", "false");
    await new Promise((resolve) => setTimeout(resolve));
    expect(turned).toBe(1);
    expect(root.classList.contains("onnx-nb-dark")).toBe(true);
    stop.abort();
    document.body.setAttribute("data-jp-theme-light", "true");
    await new Promise((resolve) => setTimeout(resolve));
    expect(turned).toBe(1);
  });
});
