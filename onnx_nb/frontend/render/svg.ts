/** The same drawing as SVG, by a pen that replaces the canvas in `draw`: an exported file looks like the view. */

import type { Measure } from "../scene/labels.ts";
import type { Camera, Size } from "./camera.ts";
import { draw, type Picture } from "./canvas.ts";
import { drawScale, scaleHeight } from "./scale.ts";

/** Pixels around a whole graph. */
const MARGIN = 12;

/** Returns the whole graph at zoom 1, or a camera's view, as one SVG document without scripts or references. */
export function toSvg(picture: Picture, section?: { readonly camera: Camera; readonly view: Size }): string {
  const { x, y, w: wide, h: high } = picture.scene.bounds;
  const camera = section?.camera ?? { x: x - MARGIN, y: y - MARGIN, k: 1 };
  const drawIn = (view: Size): SvgPen => {
    const pen = new SvgPen(picture.measure);
    draw(pen, picture, camera, view, 1);
    drawScale(pen, picture, view, 1);
    return pen;
  };
  let view = section?.view ?? { w: wide + 2 * MARGIN, h: high + 2 * MARGIN };
  let pen = drawIn(view);
  if (section === undefined && pen.right + MARGIN > view.w) {
    // a name beside the last line, or a scale that is wider than the graph
    view = { w: pen.right + MARGIN, h: view.h };
    pen = drawIn(view);
  }
  const title = `<title>${xml(picture.columns.meta.name || "model")}</title>`;
  return documentOf(Math.ceil(view.w), Math.ceil(view.h + scaleHeight(picture, view.w)), title + pen.finish());
}

/** Returns an SVG document of this size. */
export function documentOf(w: number, h: number, content: string): string {
  const size = `width="${w}" height="${h}" viewBox="0 0 ${w} ${h}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img">${content}</svg>`;
}

export class SvgPen {
  fillStyle: CanvasRenderingContext2D["fillStyle"] = "#000";
  strokeStyle: CanvasRenderingContext2D["strokeStyle"] = "#000";
  lineWidth = 1;
  lineJoin: CanvasLineJoin = "miter";
  globalAlpha = 1;
  font = "10px sans-serif";
  textAlign: CanvasTextAlign = "start";
  textBaseline: CanvasTextBaseline = "alphabetic";
  readonly #measure: Measure;
  readonly #parts: string[] = [];
  #path: string[] = [];
  #dash: number[] = [];
  #hasGroup = false;
  #zoom = 1;
  #shift = 0;
  /** pixels from the left to the end of the text that is furthest to the right */
  right = 0;

  constructor(measure: Measure) {
    this.#measure = measure;
  }

  finish(): string {
    if (this.#hasGroup) this.#parts.push("</g>");
    return this.#parts.join("");
  }

  setTransform(a: number, b: number, c: number, d: number, e: number, f: number): void {
    if (this.#hasGroup) this.#parts.push("</g>");
    this.#hasGroup = true;
    [this.#zoom, this.#shift] = [a, e];
    this.#parts.push(`<g transform="matrix(${[a, b, c, d, e, f].map(precise).join(" ")})">`);
  }

  beginPath(): void {
    this.#path = [];
  }
  moveTo(x: number, y: number): void {
    this.#path.push(`M${short(x)} ${short(y)}`);
  }
  lineTo(x: number, y: number): void {
    this.#path.push(`L${short(x)} ${short(y)}`);
  }
  bezierCurveTo(x1: number, y1: number, x2: number, y2: number, x: number, y: number): void {
    this.#path.push(`C${short(x1)} ${short(y1)} ${short(x2)} ${short(y2)} ${short(x)} ${short(y)}`);
  }
  closePath(): void {
    this.#path.push("Z");
  }
  rect(x: number, y: number, w: number, h: number): void {
    this.#path.push(`M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}z`);
  }
  /** @param radii of all corners, or of the upper left, upper right, lower right and lower left one */
  roundRect(x: number, y: number, w: number, h: number, radii: number | number[]): void {
    const corners = typeof radii === "number" ? [radii, radii, radii, radii] : radii;
    const [a, b, c, d] = corners.map((radius) => Math.min(radius, w / 2, h / 2)) as [number, number, number, number];
    const turn = (radius: number, dx: number, dy: number): string =>
      radius === 0 ? "" : `a${short(radius)} ${short(radius)} 0 0 1 ${short(dx * radius)} ${short(dy * radius)}`;
    this.#path.push(
      `M${short(x + a)} ${short(y)}h${short(w - a - b)}${turn(b, 1, 1)}v${short(h - b - c)}${turn(c, -1, 1)}` +
        `h${short(c + d - w)}${turn(d, -1, -1)}v${short(a + d - h)}${turn(a, 1, -1)}z`,
    );
  }

  fill(): void {
    this.#draw(`fill="${inkOf(String(this.fillStyle))}"`);
  }
  stroke(): void {
    const dash = this.#dash.length > 0 ? ` stroke-dasharray="${this.#dash.map(precise).join(" ")}"` : "";
    const join = this.lineJoin === "round" ? ' stroke-linejoin="round"' : "";
    const line = `stroke="${inkOf(String(this.strokeStyle))}" stroke-width="${precise(this.lineWidth)}"`;
    this.#draw(`fill="none" ${line}${join}${dash}`);
  }
  fillRect(x: number, y: number, w: number, h: number): void {
    this.#parts.push(`<rect ${rectangle(x, y, w, h)} fill="${inkOf(String(this.fillStyle))}"${this.#alpha()}/>`);
  }
  setLineDash(dash: number[]): void {
    this.#dash = dash;
  }
  getLineDash(): number[] {
    return this.#dash;
  }

  measureText(text: string): { readonly width: number } {
    const { size, weight } = this.#face();
    return { width: this.#measure(text, size, weight >= 600) };
  }
  fillText(text: string, x: number, y: number): void {
    if (text === "") return;
    if (this.textAlign !== "right") {
      this.right = Math.max(this.right, this.#zoom * (x + this.measureText(text).width) + this.#shift);
    }
    const { size, weight, italic, family } = this.#face();
    // attributes instead of a class: a picture may be embedded in a page with styles of its own
    const style = `font-family="${xml(family)}" font-size="${size}"`;
    const attributes = `${weight === 400 ? "" : ` font-weight="${weight}"`}${italic ? ' font-style="italic"' : ""}`;
    const end = { right: "end", center: "middle" }[this.textAlign as string];
    const anchor = end === undefined ? "" : ` text-anchor="${end}"`;
    const middle = this.textBaseline === "middle" ? size * 0.35 : 0;
    const place = `x="${short(x)}" y="${short(y + middle)}"`;
    const ink = `fill="${inkOf(String(this.fillStyle))}"${this.#alpha()}`;
    this.#parts.push(`<text ${ink} ${style}${attributes}${anchor} ${place}>${xml(text)}</text>`);
  }

  #draw(style: string): void {
    const d = this.#path.join("");
    if (d !== "") this.#parts.push(`<path d="${d}" ${style}${this.#alpha()}/>`);
  }

  #face(): { size: number; weight: number; italic: boolean; family: string } {
    const [, style, weight, size, family] = /^(italic )?(\d{3} )?([\d.]+)px (.*)$/s.exec(this.font) ?? [];
    return {
      size: Number(size ?? 10),
      weight: Number(weight ?? 400),
      italic: style !== undefined,
      family: family ?? "sans-serif",
    };
  }

  #alpha(): string {
    return this.globalAlpha === 1 ? "" : ` opacity="${precise(this.globalAlpha)}"`;
  }
}

/** Rounds a coordinate to a tenth of a px, which keeps the file short. */
export function short(x: number): string {
  return String(Math.round(x * 10) / 10);
}

/** Returns the attributes of a rectangle. */
export function rectangle(x: number, y: number, w: number, h: number): string {
  return `x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"`;
}

function precise(x: number): string {
  return String(Math.round(x * 10_000) / 10_000);
}

/** Returns a color for all readers of SVG: browsers compute `color-mix()` to `color(srgb …)`, which few know. */
export function inkOf(color: string): string {
  const match = /^(color\(srgb|rgba?\() ?([^)]+)\)$/.exec(color);
  if (match === null) return xml(color);
  const scale = match[1] === "color(srgb" ? 255 : 1;
  const [r, g, b, alpha = 1] = match[2].split(/[ ,/]+/).map(Number);
  const rgb = [r, g, b].map((part) => Math.round(part * scale));
  if (alpha < 1) return `rgba(${rgb.join(",")},${precise(alpha)})`;
  return `#${rgb.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

const ENTITIES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Escapes text for XML: names in a model may contain characters that XML forbids. */
export function xml(text: string): string {
  return (
    text
      // biome-ignore lint/suspicious/noControlCharactersInRegex: XML allows none of these
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Cs}/gu, "\ufffd")
      .replace(/[&<>"]/g, (character) => ENTITIES[character] as string)
  );
}
