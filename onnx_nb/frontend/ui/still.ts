/**
 * The still of a view: what it shows, as one SVG document without scripts, references or HTML, for places where the
 * live view cannot be shown. The layout is the page's; a canvas draws itself with an `SvgPen`.
 */

import { documentOf, inkOf, rectangle, short, xml } from "../render/svg.ts";

/** Elements that draw themselves; the document has its own width and height. */
const portraits = new WeakMap<Element, () => string | null>();

/** Parts of a view that follow the pointer, or that nobody sees. */
const PASSING =
  ".onnx-nb-tooltip, .onnx-nb-hint, .onnx-nb-map, .onnx-nb-live, .onnx-nb-waiting, .onnx-nb-lenses, .onnx-nb-range-bar, style, option, wbr";
/** Pixels between two parts of a picture. */
const GAP = 8;

/** Registers how an element draws itself in a still: as an SVG document, or null for nothing. */
export function drawnAs(element: Element, draw: () => string | null): void {
  portraits.set(element, draw);
}

/**
 * Returns a document of the element as it is shown, or as it draws itself; null if it is not shown.
 *
 * @param hasFrame with its own ground and border
 */
export function stillOf(element: Element, hasFrame = true): string | null {
  const portrait = portraits.get(element);
  if (portrait !== undefined) return portrait();
  const box = element.getBoundingClientRect();
  if (box.width < 1 || box.height < 1) return null;
  const content = new Still(box).element(element, WHOLE_PAGE, hasFrame);
  return content === "" ? null : documentOf(Math.ceil(box.width), Math.ceil(box.height), content);
}

/** Returns documents one below the other on a common ground, narrower ones in the middle. */
export function stack(documents: readonly (string | null)[], ground: string): string {
  const parts = documents.filter((svg) => svg !== null).map((svg) => ({ svg, ...sizeOf(svg) }));
  const width = Math.max(...parts.map(({ w }) => w));
  let top = 0;
  let content = "";
  for (const { svg, w, h } of parts) {
    content += placeIn(svg, rectangle(Math.round((width - w) / 2), top, w, h));
    top += h + GAP;
  }
  const [w, h] = [width, Math.max(1, top - GAP)];
  return documentOf(w, h, `<rect width="${w}" height="${h}" rx="8" fill="${inkOf(ground)}"/>${content}`);
}

function sizeOf(svg: string): { readonly w: number; readonly h: number } {
  const [, w, h] = /^<svg [^>]*?width="(\d+)" height="(\d+)"/.exec(svg) ?? ["", "0", "0"];
  return { w: Number(w), h: Number(h) };
}

/** Returns a document as an element of another one. */
function placeIn(svg: string, place: string): string {
  const { w, h } = sizeOf(svg);
  return `<svg ${place} viewBox="0 0 ${w} ${h}">${svg.replace(/^<svg [^>]*>/, "")}`;
}

const CLEAR = /^(transparent|rgba\(.*, 0\))$/;

type Area = Pick<DOMRect, "left" | "top" | "right" | "bottom">;

const WHOLE_PAGE: Area = { left: -1e6, top: -1e6, right: 1e6, bottom: 1e6 };

/** Draws elements relative to a corner of the page. */
class Still {
  readonly #corner: Pick<DOMRect, "left" | "top">;

  constructor(corner: Pick<DOMRect, "left" | "top">) {
    this.#corner = corner;
  }

  #place({ left, top, width, height }: DOMRect): string {
    return rectangle(left - this.#corner.left, top - this.#corner.top, width, height);
  }

  /** @param clip the part of the page in which the element can be seen */
  element(element: Element, clip: Area, hasFrame = true): string {
    if (element.matches(PASSING)) return "";
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || style.opacity === "0") return "";
    if (box.right <= clip.left || box.left >= clip.right || box.bottom <= clip.top || box.top >= clip.bottom) return "";
    const content = (hasFrame ? this.#box(box, style) : "") + this.#inside(element, box, style, clip);
    return content === "" || style.opacity === "1" ? content : `<g opacity="${style.opacity}">${content}</g>`;
  }

  #inside(element: Element, box: DOMRect, style: CSSStyleDeclaration, clip: Area): string {
    if (element instanceof SVGSVGElement) return this.#graphic(element, box, style);
    if (element instanceof HTMLCanvasElement) {
      const portrait = portraits.get(element)?.() ?? null;
      return portrait === null ? "" : placeIn(portrait, this.#place(box));
    }
    if (element instanceof HTMLSelectElement || element instanceof HTMLInputElement) {
      return this.#field(element, box, style);
    }
    const clips = style.overflowX !== "visible" && style.display !== "inline";
    const area = clips ? intersection(clip, box) : clip;
    const sign = this.#sign(element, box, style);
    const children = [...element.childNodes].map((child): readonly [number, string] => {
      if (child instanceof Text)
        return [0, this.#text(child, style, clips && style.textOverflow === "ellipsis" ? area : null)];
      if (!(child instanceof Element)) return [0, ""];
      const { position, zIndex } = getComputedStyle(child);
      return [position === "static" ? 0 : Number(zIndex) || 0.5, this.element(child, area)];
    });
    const content = children
      .sort(([a], [b]) => a - b)
      .map(([, markup]) => markup)
      .join("");
    if (!clips || content === "") return sign + content;
    const [x, y, w, h] = [box.left - this.#corner.left, box.top - this.#corner.top, box.width, box.height].map(short);
    return `<svg x="${x}" y="${y}" width="${w}" height="${h}" viewBox="${x} ${y} ${w} ${h}">${content}</svg>`;
  }

  /** Draws the patch of color that a style sheet puts before a text. */
  #sign(element: Element, box: DOMRect, { paddingLeft, borderLeftWidth }: CSSStyleDeclaration): string {
    const { content, width, height, backgroundColor, borderTopLeftRadius } = getComputedStyle(element, "::before");
    if (content !== '""' || CLEAR.test(backgroundColor)) return "";
    const [w, h] = [Number.parseFloat(width) || 0, Number.parseFloat(height) || 0];
    const x = box.left + Number.parseFloat(paddingLeft) + Number.parseFloat(borderLeftWidth) - this.#corner.left;
    const y = box.top + (box.height - h) / 2 - this.#corner.top;
    const round = borderTopLeftRadius === "0px" ? "" : ` rx="${short(h / 2)}"`;
    return `<rect ${rectangle(x, y, w, h)}${round} fill="${inkOf(backgroundColor)}"/>`;
  }

  /** Draws the ground and the borders. */
  #box(box: DOMRect, style: CSSStyleDeclaration): string {
    const [left, top] = [box.left - this.#corner.left, box.top - this.#corner.top];
    const sides = (["Top", "Right", "Bottom", "Left"] as const).map((side) => ({
      width: style[`border${side}Style`] === "none" ? 0 : Number.parseFloat(style[`border${side}Width`]) || 0,
      color: style[`border${side}Color`],
    }));
    const [{ width: line, color }] = sides;
    const isFramed = line > 0 && sides.every((side) => side.width === line && side.color === color);
    const radius = Math.min(Number.parseFloat(style.borderTopLeftRadius) || 0, box.width / 2, box.height / 2);
    const fill = CLEAR.test(style.backgroundColor) ? "" : style.backgroundColor;
    let markup = "";
    if (fill !== "" || (isFramed && !CLEAR.test(color))) {
      const inset = isFramed ? line / 2 : 0;
      const [w, h] = [box.width, box.height].map((size) => Math.max(0, size - 2 * inset));
      const place = rectangle(left + inset, top + inset, w, h);
      const round = radius > 0 ? ` rx="${short(radius)}"` : "";
      const edge = isFramed ? ` stroke="${inkOf(color)}" stroke-width="${short(line)}"` : "";
      markup = `<rect ${place}${round} fill="${inkOf(fill || "none")}"${edge}/>`;
    }
    if (isFramed) return markup;
    const [above, right, below, before] = sides;
    const bar = (x: number, y: number, w: number, h: number, ink: string): string =>
      w <= 0 || h <= 0 || CLEAR.test(ink) ? "" : `<rect ${rectangle(x, y, w, h)} fill="${inkOf(ink)}"/>`;
    return (
      markup +
      bar(left, top, box.width, above.width, above.color) +
      bar(left, top + box.height - below.width, box.width, below.width, below.color) +
      bar(left, top, before.width, box.height, before.color) +
      bar(left + box.width - right.width, top, right.width, box.height, right.color)
    );
  }

  /** Draws a text line by line; one that is cut off ends in dots. */
  #text(node: Text, style: CSSStyleDeclaration, cut: Area | null): string {
    if (node.data.trim() === "") return "";
    return linesOf(node)
      .map(({ from, to, rect }) => {
        const range = document.createRange();
        range.setStart(node, from);
        range.setEnd(node, to);
        let end = to;
        // a line that the page ends in dots has two rectangles: with them, and of all of it
        if (cut !== null && range.getBoundingClientRect().right > cut.right + 0.5) {
          // a measure of one character leaves room for the dots
          const room = Number.parseFloat(style.fontSize);
          while (end > from && range.getBoundingClientRect().right > cut.right - room) range.setEnd(node, --end);
        }
        const bounds = range.getBoundingClientRect();
        const text = node.data.slice(from, end).replace(/\s+/g, " ").trim() + (end < to ? "…" : "");
        return this.#write(text, bounds.left, rect.top, end < to ? 0 : bounds.width, style);
      })
      .join("");
  }

  /** @param width the text is fitted to it, whatever fonts the reader has; 0 for its own */
  #write(text: string, left: number, top: number, width: number, style: CSSStyleDeclaration, color = style.color) {
    const { fontFamily, fontSize, fontWeight, fontStyle, textTransform } = style;
    const shownText = textTransform === "uppercase" ? text.toUpperCase() : text;
    const font = `font-family="${xml(fontFamily)}" font-size="${short(Number.parseFloat(fontSize))}"`;
    const weight = fontWeight === "400" ? "" : ` font-weight="${fontWeight}"`;
    const slant = fontStyle === "italic" ? ' font-style="italic"' : "";
    const fit = width > 0 && text.length > 1 ? ` textLength="${short(width)}" lengthAdjust="spacingAndGlyphs"` : "";
    const y = top - this.#corner.top + ascentOf(style);
    return `<text x="${short(left - this.#corner.left)}" y="${short(y)}" ${font}${weight}${slant}${fit} fill="${inkOf(color)}">${xml(shownText)}</text>`;
  }

  #field(element: HTMLSelectElement | HTMLInputElement, box: DOMRect, style: CSSStyleDeclaration): string {
    const select = element instanceof HTMLSelectElement;
    if (!select && element.type !== "text" && element.type !== "search") return "";
    const text = select ? `${element.selectedOptions[0]?.text ?? ""} ▾` : element.value || element.placeholder;
    const size = Number.parseFloat(style.fontSize);
    const left = box.left + Number.parseFloat(style.paddingLeft) + 1;
    const limit = Math.floor((box.width - 12) / (size * 0.52));
    const shownText = text.length > limit ? `${text.slice(0, Math.max(1, limit - 1))}…` : text;
    const { color } = select || element.value !== "" ? style : getComputedStyle(element, "::placeholder");
    return this.#write(shownText, left, box.top + (box.height - size * 1.2) / 2, 0, style, color);
  }

  /** Draws a small picture that is SVG already, with the colors that it has from the style sheet. */
  #graphic(element: SVGSVGElement, box: DOMRect, style: CSSStyleDeclaration): string {
    const paths = [...element.querySelectorAll("path")].map((path) => {
      const { fill, stroke, strokeWidth } = getComputedStyle(path);
      return `<path d="${xml(path.getAttribute("d") ?? "")}" fill="${inkOf(fill)}" stroke="${inkOf(stroke)}" stroke-width="${strokeWidth}"/>`;
    });
    const view = `viewBox="${xml(element.getAttribute("viewBox") ?? "")}"`;
    const ratio = `preserveAspectRatio="${xml(element.getAttribute("preserveAspectRatio") ?? "xMidYMid")}"`;
    return paths.length === 0
      ? ""
      : `<svg ${this.#place(box)} ${view} ${ratio} color="${inkOf(style.color)}">${paths.join("")}</svg>`;
  }
}

function intersection(clip: Area, box: DOMRect): Area {
  return {
    left: Math.max(clip.left, box.left),
    top: Math.max(clip.top, box.top),
    right: Math.min(clip.right, box.right),
    bottom: Math.min(clip.bottom, box.bottom),
  };
}

interface Line {
  readonly from: number;
  to: number;
  readonly rect: DOMRect;
}

/** Returns the lines into which the page has broken a text. */
function linesOf(node: Text): Line[] {
  const range = document.createRange();
  range.selectNodeContents(node);
  const rects = range.getClientRects();
  if (rects.length === 0) return [];
  if (rects.length === 1) {
    const [from, to] = [node.length - node.data.trimStart().length, node.data.trimEnd().length];
    return [{ from, to, rect: rects[0] }];
  }
  const lines: Line[] = [];
  for (const { index, 0: word } of node.data.matchAll(/\S+\s*/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.trimEnd().length);
    const parts = range.getClientRects();
    // a word that is itself broken is taken by its characters
    const pieces =
      parts.length > 1
        ? Array.from(word.trimEnd(), (_, at) => [index + at, index + at + 1])
        : [[index, index + word.length]];
    for (const [from, to] of pieces) {
      range.setStart(node, from);
      range.setEnd(node, to);
      const [rect] = range.getClientRects();
      const last = lines.at(-1);
      if (rect === undefined) continue;
      if (last !== undefined && Math.abs(last.rect.top - rect.top) < 2) last.to = to;
      else lines.push({ from, to, rect });
    }
  }
  return lines;
}

const ascents = new Map<string, number>();

/** Returns the pixels from the top of a line of text to its baseline. */
function ascentOf({ fontStyle, fontWeight, fontSize, fontFamily }: CSSStyleDeclaration): number {
  const font = `${fontStyle} ${fontWeight} ${fontSize} ${fontFamily}`;
  const cachedAscent = ascents.get(font);
  if (cachedAscent !== undefined) return cachedAscent;
  const context = document.createElement("canvas").getContext("2d");
  if (context !== null) context.font = font;
  const ascent = context?.measureText("x").fontBoundingBoxAscent ?? Number.parseFloat(fontSize) * 0.93;
  ascents.set(font, ascent);
  return ascent;
}
