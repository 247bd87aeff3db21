/**
 * Draws a scene on a 2-D canvas with level of detail. Only what is in view is drawn, only in visible detail (no text
 * under 9 px boxes, no edges under 1.2 px), and fills of one color are batched.
 */

import { append, type Columns } from "../protocol/columns.ts";
import type { DiffStatus } from "../protocol/diff.ts";
import { type DiffStatuses, SIGNS } from "../scene/diffstatus.ts";
import { type Measure, TEXT, textTop } from "../scene/labels.ts";
import type { Overlay } from "../scene/overlay.ts";
import { BOX, isPill, type Label, type Scene } from "../scene/scene.ts";
import { type Band, bandsOf } from "./bundling.ts";
import { type Camera, type Size, visible } from "./camera.ts";
import { along, trace } from "./curve.ts";
import { EDGE, type Marks } from "./highlights.ts";
import { type HitIndex, LEGIBLE } from "./hit.ts";
import { drawPins } from "./pins.ts";
import type { SvgPen } from "./svg.ts";
import { labelColor, type Theme } from "./theme.ts";
import { enlargement, TITLE_ONLY, Titles } from "./titles.ts";
import { isPlumbing, widthsOf } from "./wires.ts";

export interface Picture {
  readonly scene: Scene;
  readonly columns: Columns;
  readonly index: HitIndex;
  readonly marks: Marks;
  readonly theme: Theme;
  readonly measure: Measure;
  /** numbers that color the boxes; null for the categories of their ops */
  readonly overlay: Overlay | null;
  /** differences from the graph that this one is compared with */
  readonly statuses?: DiffStatuses | null;
}

/** Returns fill and ink of a box by its number; null if the overlay has none. */
function paintOf({ overlay, scene, theme }: Picture, box: number): { fill: string; ink: string } | null {
  if (overlay === null) return null;
  const x = overlay.number(scene.boxes.kind[box], scene.boxes.id[box]);
  if (overlay.leavesOut(x)) return null;
  const { labels } = overlay.data;
  if (labels !== undefined) return labelColor(labels, x);
  const t = overlay.place(x);
  return { fill: theme.ramp.color(t), ink: theme.ramp.ink(t) };
}

/** Returns the status of a box and its color; null if nothing is different. */
function statusOf({ statuses, scene, theme }: Picture, box: number): { status: DiffStatus; color: string } | null {
  const status = statuses?.of(scene.boxes.kind[box], scene.boxes.id[box]) ?? null;
  if (status === null) return null;
  const { bad, good, warn } = theme;
  return { status, color: { removed: bad, added: good, new: good, changed: warn, folded: warn }[status] };
}

/** The part of a canvas context that drawing needs, so that a pen that writes SVG can replace it. */
export type Pen = Omit<SvgPen, "finish" | "right">;

/** Pixels on screen below which a box is a patch of color. */
const PATCH = 9;
/** Pixels on screen between the ends of an edge below which it is omitted. */
const SPECK = 1.2;
/** Opacity of the tint of a box with a diff status; text on it stays legible. */
const TINT = 0.13;
/** Pixels: font size of the diff status on the edge of a box. */
const PILL = { h: 13, pad: 6, font: 10, over: 20 } as const;
/** Pixels on screen below which an open scope is a patch of color as well. */
const GRAIN = 3;
/** Pixels on screen of an open scope below which its lines would overlap. */
const MIN_LINE_SCOPE = 6;
/** Below this zoom an S-curve looks like a straight line. */
const CURVE_ZOOM = 0.12;

export function draw(ctx: Pen, picture: Picture, camera: Camera, view: Size, dpr: number): void {
  const { index, theme } = picture;
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.fillStyle = theme.background;
  ctx.fillRect(0, 0, view.w + 1, view.h + 1); // the canvas is rounded to whole pixels of the screen
  ctx.setTransform(dpr * camera.k, 0, 0, dpr * camera.k, -camera.x * camera.k * dpr, -camera.y * camera.k * dpr);
  const { x, y, w, h } = visible(camera, view);
  const { k } = camera;
  const pad = 8 / k;
  const { boxes, edges } = index.itemsIn(x - pad, y - pad, x + w + pad, y + h + pad, GRAIN / k, MIN_LINE_SCOPE / k);

  ctx.lineJoin = "round";
  ctx.textBaseline = "alphabetic";
  drawScopes(ctx, picture, boxes, k);
  drawEdges(ctx, picture, edges, k);
  drawBoxes(ctx, picture, boxes, k);
  drawTitles(ctx, picture, boxes, k);
  drawPins(ctx, picture, boxes, k);
  drawEdgeLabels(ctx, picture, edges, k);
}

/** Returns whether a box is an open scope whose content is visible. */
function showsContent({ boxes }: Scene, box: number, k: number): boolean {
  return boxes.kind[box] === BOX.OPEN && Math.max(boxes.w[box], boxes.h[box]) * k >= GRAIN;
}

/** Returns the world thickness of a line that is `px` on screen at zoom 1, but never thinner than a hairline. */
function stroke(px: number, k: number): number {
  return Math.max(px, 0.6 / k);
}

type Outline = (box: number) => void;
type Ink = string | null;

/** Draws shapes as one path: filled, or with a line. */
function paint(ctx: Pen, boxes: Iterable<number>, outline: Outline, fill: Ink, line: Ink = null, width = 0): void {
  ctx.beginPath();
  for (const box of boxes) outline(box);
  if (fill !== null) {
    ctx.fillStyle = fill;
    ctx.fill();
  }
  if (line === null) return;
  ctx.strokeStyle = line;
  ctx.lineWidth = width;
  ctx.stroke();
}

function drawScopes(ctx: Pen, { scene, theme, marks }: Picture, boxes: number[], k: number): void {
  const { x, y, w, h, depth } = scene.boxes;
  const outline = (box: number): void => {
    if (w[box] * k < 30) ctx.rect(x[box], y[box], w[box], h[box]);
    else ctx.roundRect(x[box], y[box], w[box], h[box], 9);
  };
  const open = groupBy(boxes, (box) => (showsContent(scene, box, k) ? depth[box] : undefined));
  for (const [level, group] of [...open].sort(([a], [b]) => a - b)) {
    paint(ctx, group, outline, theme.scopes[level % 2], theme.line, stroke(1, k));
    for (const box of group) {
      if (marks.selection.has(box)) paint(ctx, [box], outline, null, theme.accent, stroke(2, k));
      else if (box === marks.hovered) paint(ctx, [box], outline, null, theme.text, stroke(1, k));
    }
  }
}

function drawEdges(ctx: Pen, picture: Picture, list: number[], k: number): void {
  const { scene, columns, theme, marks, overlay } = picture;
  const { edges } = scene;
  /** the plain ones by their width; dashed ones by its negative, shape arithmetic by 0 */
  const plainEdges = new Map<number, number[]>();
  const widths = widthsOf(columns);
  const add = (edge: number): void => {
    const width = stroke(widths[edges.value[edge]], k);
    append(plainEdges, isPlumbing(scene, columns, edge) ? 0 : edges.outerScope[edge] === 1 ? -width : width, edge);
  };
  const emphasis: [edge: number, how: number][] = [];
  const bundles = new Map<number, number[]>();
  const isCrowded = list.length > 20_000;
  for (const edge of list) {
    const spreads = overlay?.spreads === true && overlay.isSpread(columns.producer[edges.value[edge]]);
    const how = Math.max(
      marks.values.get(edges.value[edge]) ?? EDGE.PLAIN,
      marks.glow.has(edge) ? EDGE.CUT : spreads ? EDGE.SPREAD : EDGE.PLAIN,
    );
    if (how !== EDGE.PLAIN) emphasis.push([edge, how]);
    else if (extent(scene, edge) * k < (isCrowded ? 3 * SPECK : SPECK)) continue;
    else if (edges.bundle[edge] >= 0) append(bundles, edges.bundle[edge], edge);
    else add(edge);
  }
  const bands: Band[] = [];
  for (const bundle of bundles.values()) {
    const parts = bandsOf(scene, bundle, k);
    bands.push(...parts.bands);
    parts.lines.forEach(add);
  }
  drawBands(ctx, picture, bands, k);
  ctx.strokeStyle = theme.edge;
  for (const [width, group] of plainEdges) {
    ctx.lineWidth = Math.abs(width) || stroke(1, k);
    ctx.globalAlpha = (k < 0.25 ? 0.75 : 1) * (width === 0 ? 0.6 : 1);
    ctx.setLineDash(width === 0 ? [2, 3] : width < 0 ? [4, 4] : []);
    strokeEdges(ctx, scene, group, k);
  }

  for (const [edge, how] of emphasis.sort(([, a], [, b]) => a - b)) {
    const missing = how === EDGE.MISSING;
    ctx.strokeStyle = edgeInk(picture, edges.value[edge], how);
    ctx.lineWidth = stroke(Math.max(how === EDGE.LIT ? 2.6 : missing ? 2 : 1.6, widths[edges.value[edge]]), k);
    ctx.globalAlpha = how === EDGE.REDUNDANT || how === EDGE.HOVER ? 0.7 : 1;
    ctx.setLineDash(missing || how === EDGE.REDUNDANT ? [5, 4] : edges.outerScope[edge] === 1 ? [4, 4] : []);
    strokeEdges(ctx, scene, [edge], k);
  }
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
}

/** Returns the color of an emphasized tensor, by its role. */
function edgeInk({ theme, marks }: Picture, value: number, how: number): string {
  if (how === EDGE.MISSING || how === EDGE.SPREAD) return theme.bad;
  if (marks.inputs.has(value) && how !== EDGE.REDUNDANT) return theme.good;
  if (marks.outputs.has(value)) return theme.output;
  if (how === EDGE.CUT) return theme.cut;
  return how === EDGE.HIT ? theme.hit : how === EDGE.LIT ? theme.accent : theme.dim;
}

/** Draws many tensors as one band: the area between the outermost lines, and a line with the arrow in the middle. */
function drawBands(ctx: Pen, { scene, theme }: Picture, bands: readonly Band[], k: number): void {
  if (bands.length === 0) return;
  const { ptr, points } = scene.edges;
  ctx.beginPath();
  for (const { first, last } of bands) {
    trace(ctx, points, ptr[first], ptr[first + 1], scene.direction);
    trace(ctx, points, ptr[last], ptr[last + 1], scene.direction, true);
    ctx.closePath();
  }
  ctx.fillStyle = theme.edge;
  ctx.globalAlpha = 0.22;
  ctx.fill();
  ctx.globalAlpha = 1;
  ctx.strokeStyle = theme.edge;
  ctx.lineWidth = stroke(3, k);
  const middles = bands.map(({ middle }) => middle);
  strokeEdges(ctx, scene, middles, k);
}

/** Returns the larger side of an edge, from its ends. */
function extent(scene: Scene, edge: number): number {
  const { ptr, points } = scene.edges;
  const first = 2 * ptr[edge];
  const last = 2 * ptr[edge + 1] - 2;
  return Math.max(Math.abs(points[last] - points[first]), Math.abs(points[last + 1] - points[first + 1]));
}

function strokeEdges(ctx: Pen, scene: Scene, list: number[], k: number): void {
  if (list.length === 0) return;
  const { ptr, points, toBox } = scene.edges;
  const isStraight = k < CURVE_ZOOM;
  ctx.beginPath();
  for (const edge of list) {
    const from = ptr[edge];
    const to = ptr[edge + 1];
    if (to - from < 2) continue;
    if (isStraight) {
      ctx.moveTo(points[2 * from], points[2 * from + 1]);
      for (let at = from + 1; at < to; at++) ctx.lineTo(points[2 * at], points[2 * at + 1]);
    } else trace(ctx, points, from, to, scene.direction);
  }
  ctx.stroke();
  if (6 * k < 2) return;
  const dash = ctx.getLineDash();
  ctx.setLineDash([]);
  ctx.beginPath();
  for (const edge of list) if (toBox[edge] >= 0) tip(ctx, scene, edge);
  ctx.stroke();
  ctx.setLineDash(dash);
}

/** Draws an arrow at the end of an edge, except where the edge only passes the border of an open scope. */
function tip(ctx: Pen, scene: Scene, edge: number): void {
  const { ptr, points, toBox, scope } = scene.edges;
  if (toBox[edge] === scope[edge]) return;
  const x = points[2 * ptr[edge + 1] - 2];
  const y = points[2 * ptr[edge + 1] - 1];
  const down = scene.direction === "down";
  ctx.moveTo(x - (down ? 3.5 : 6), y - (down ? 6 : 3.5));
  ctx.lineTo(x, y);
  ctx.lineTo(x + (down ? 3.5 : -6), y + (down ? -6 : 3.5));
}

function drawBoxes(ctx: Pen, picture: Picture, boxes: number[], k: number): void {
  const { scene } = picture;
  const { h, w } = scene.boxes;
  const cards: number[] = [];
  const patches: number[] = [];
  for (const box of boxes) {
    if (showsContent(scene, box, k)) continue;
    if (Math.min(h[box], w[box]) * k < PATCH) patches.push(box);
    else cards.push(box);
  }
  drawPatches(ctx, picture, patches, k);
  drawCards(ctx, picture, cards, k);
  drawStatuses(ctx, picture, cards, k);
  if (TEXT.title * k >= LEGIBLE) drawText(ctx, picture, cards, k);
  drawPills(ctx, picture, cards, k);
  drawBadges(ctx, picture, cards, k);
}

/** Draws a tint and a frame around differences. */
function drawStatuses(ctx: Pen, picture: Picture, boxes: number[], k: number): void {
  const { scene } = picture;
  const { kind, x, y, w, h } = scene.boxes;
  const outline = (box: number): void => ctx.roundRect(x[box], y[box], w[box], h[box], kind[box] === BOX.NODE ? 5 : 7);
  for (const [color, group] of groupBy(boxes, (box) => statusOf(picture, box)?.color)) {
    ctx.globalAlpha = TINT;
    paint(ctx, group, outline, color);
    ctx.globalAlpha = 1;
    paint(ctx, group, outline, null, color, stroke(1.8, k));
  }
}

/** Writes the diff status on the upper edge of a box, for people who cannot distinguish the colors. */
function drawPills(ctx: Pen, picture: Picture, boxes: number[], k: number): void {
  const { scene, theme, statuses, measure } = picture;
  if (statuses == null) return;
  const { kind, id, x, y, w } = scene.boxes;
  const legible = TEXT.line * k >= LEGIBLE;
  ctx.textBaseline = "middle";
  ctx.font = `600 ${PILL.font}px ${theme.font}`;
  for (const box of boxes) {
    const difference = statusOf(picture, box);
    if (difference === null) continue;
    const words = statuses.say(kind[box], id[box]);
    const sign = kind[box] === BOX.SCOPE ? "" : `${SIGNS[difference.status]} `;
    const long = `${sign}${words.text}`;
    const width = (text: string): number => measure(text, PILL.font, true) + 2 * PILL.pad;
    const text = width(long) <= w[box] + PILL.over ? long : words.short;
    const right = x[box] + Math.max(w[box] - 6, Math.min(width(text) + PILL.over, w[box] + PILL.over));
    const middle = y[box]; // higher it would cover the label of the edge
    ctx.beginPath();
    ctx.roundRect(right - width(text), middle - PILL.h / 2, width(text), PILL.h, PILL.h / 2);
    ctx.fillStyle = difference.color;
    ctx.fill();
    if (!legible) continue;
    ctx.fillStyle = theme.background;
    ctx.fillText(text, right - width(text) + PILL.pad, middle + 0.5);
  }
  ctx.textBaseline = "alphabetic";
}

/** Groups boxes by a key and omits boxes without one. One path for each key is drawn fastest. */
function groupBy<K>(boxes: readonly number[], of: (box: number) => K | undefined): Map<K, number[]> {
  const lists = new Map<K, number[]>();
  for (const box of boxes) {
    const key = of(box);
    if (key !== undefined) append(lists, key, box);
  }
  return lists;
}

/** Draws boxes too small for text, with one path for each color. */
function drawPatches(ctx: Pen, picture: Picture, boxes: number[], k: number): void {
  const { scene, columns, theme, marks, overlay } = picture;
  const { kind, id, x, y, w, h } = scene.boxes;
  const colorOf = (box: number): string => {
    const difference = statusOf(picture, box);
    if (difference !== null) return difference.color;
    if (isPill(kind[box])) return theme.text;
    if (picture.statuses != null) return theme.line;
    if (overlay !== null) return paintOf(picture, box)?.fill ?? theme.line;
    if (kind[box] === BOX.SCOPE) return theme.scopes[0];
    const category = kind[box] === BOX.NODE ? columns.categoryOf(id[box]) : columns.categoryOfScope(id[box]);
    return theme.categories[category] ?? theme.dim;
  };
  const patch = (box: number): void => ctx.rect(x[box], y[box], Math.max(w[box], 1 / k), Math.max(h[box], 1 / k));
  ctx.globalAlpha = 0.85;
  for (const [color, group] of groupBy(boxes, colorOf)) {
    // a closed scope is a frame, or it would look like an operator
    const isFrame = color === theme.scopes[0];
    paint(ctx, group, patch, color, isFrame ? theme.edge : null, stroke(1, k));
  }
  ctx.globalAlpha = 1;
  const outline = (box: number): void => ctx.rect(x[box] - 1 / k, y[box] - 1 / k, w[box] + 2 / k, h[box] + 2 / k);
  for (const [color, group] of groupBy(boxes, (box) => roleOf(marks, theme, box))) {
    paint(ctx, group, outline, null, color, 2 / k);
  }
}

/** Returns the color of a box by its role; the strongest counts. */
function roleOf({ selection, hovered, extraction, hits }: Marks, theme: Theme, box: number): string | undefined {
  if (selection.has(box)) return theme.accent;
  if (hits.has(box)) return theme.hit;
  if (extraction.has(box)) return theme.cut;
  return box === hovered ? theme.text : undefined;
}

function drawCards(ctx: Pen, picture: Picture, boxes: number[], k: number): void {
  const { scene, columns, theme, marks, overlay } = picture;
  const { kind, id, x, y, w, h } = scene.boxes;
  const outline = (box: number): void => {
    const radius = kind[box] === BOX.NODE ? 5 : kind[box] === BOX.SCOPE ? 7 : h[box] / 2;
    ctx.roundRect(x[box], y[box], w[box], h[box], radius);
  };
  const hairline = stroke(1, k);

  // sheets behind repeated scopes
  for (const box of boxes) {
    if (kind[box] !== BOX.SCOPE || columns.scopeRepeat[id[box]] < 2) continue;
    for (const shift of [6, 3]) {
      const sheet = (): void => ctx.roundRect(x[box] + shift, y[box] + shift, w[box], h[box], 7);
      paint(ctx, [box], sheet, theme.scopes[1], theme.line, hairline);
    }
  }

  const nodes = boxes.filter((box) => kind[box] === BOX.NODE);
  const scopes = boxes.filter((box) => kind[box] === BOX.SCOPE);
  paint(ctx, nodes, outline, theme.card);
  paint(ctx, scopes, outline, theme.scopes[0]);
  const pills = boxes.filter((box) => isPill(kind[box]));
  paint(ctx, pills, outline, theme.text);
  for (const [color, group] of groupBy(boxes, (box) => paintOf(picture, box)?.fill)) paint(ctx, group, outline, color);
  paint(ctx, [...nodes, ...scopes], outline, null, theme.line, hairline);

  // color stripes, one path for each category
  const stripe = (box: number): void => ctx.roundRect(x[box], y[box], 5, h[box], [4, 0, 0, 4]);
  for (const [category, group] of groupBy(overlay === null ? nodes : [], (box) => columns.categoryOf(id[box]))) {
    paint(ctx, group, stripe, theme.categories[category] ?? theme.dim);
  }

  const ring = (width: number, color: string, isMember: (box: number) => boolean): void =>
    paint(ctx, boxes.filter(isMember), outline, null, color, stroke(width, k));
  const { extraction, lit, hits, selection, hovered } = marks;
  const cut = boxes.filter((box) => extraction.has(box));
  ctx.globalAlpha = TINT;
  paint(ctx, cut, outline, theme.cut);
  ctx.globalAlpha = 1;
  ring(6, theme.hit, (box) => hits.has(box));
  paint(ctx, cut, outline, null, theme.cut, stroke(1.6, k));
  // the ends of a selected tensor are only its neighbors
  ctx.setLineDash([3, 3]);
  ring(1.2, theme.accent, (box) => lit.has(box));
  ctx.setLineDash([]);
  ring(1.2, theme.text, (box) => box === hovered);
  ring(9, theme.halo, (box) => selection.has(box));
  ring(2, theme.accent, (box) => selection.has(box));
}

function drawText(ctx: Pen, picture: Picture, boxes: number[], k: number): void {
  const { scene, columns, theme, measure, overlay } = picture;
  const { kind, id, x, y: tops, w, h } = scene.boxes;
  const labels = new Map<number, Label>();
  /** box → where its text begins */
  const y: number[] = [];
  for (const box of boxes) {
    const label = scene.label(box);
    labels.set(box, label);
    y[box] = tops[box] + textTop(kind[box], label.lines.length, h[box]);
  }
  // setting a font is expensive: all titles first, then the smaller text
  ctx.font = `600 ${TEXT.title}px ${theme.font}`;
  ctx.fillStyle = theme.text;
  const inkOf = (box: number): string => (overlay === null ? theme.text : (paintOf(picture, box)?.ink ?? theme.dim));
  for (const box of boxes) {
    if (kind[box] !== BOX.NODE) continue;
    ctx.fillStyle = inkOf(box);
    ctx.fillText(labels.get(box)?.title ?? "", x[box] + TEXT.node.x, y[box] + TEXT.node.titleY);
  }
  const scopes = k < TITLE_ONLY ? [] : boxes.filter((box) => kind[box] === BOX.SCOPE);
  /** Returns the font size of a closed scope's title: the same on screen, as far as its box has room. */
  const titleSize = (box: number, title: string): number => {
    const fitting = (w[box] - TEXT.scope.titleX - 6) / measure(title, 1, true);
    return Math.max(TEXT.title, Math.min(TEXT.title * enlargement(k), fitting));
  };
  for (const box of scopes) {
    const { title } = labels.get(box) as Label;
    const size = titleSize(box, title);
    const font = `600 ${size}px ${theme.font}`;
    if (ctx.font !== font) ctx.font = font;
    ctx.fillStyle = inkOf(box);
    // a larger one grows to both sides, and not into the mark on the upper edge
    ctx.fillText(title, x[box] + TEXT.scope.titleX, y[box] + TEXT.scope.titleY + (size - TEXT.title) / 2);
  }
  ctx.fillStyle = theme.accent;
  for (const box of scopes) {
    if (overlay !== null) ctx.fillStyle = paintOf(picture, box)?.ink ?? theme.accent;
    ctx.fillText("+", x[box] + TEXT.scope.x, y[box] + TEXT.scope.titleY);
  }
  ctx.font = `600 ${TEXT.pill}px ${theme.font}`;
  ctx.fillStyle = theme.background;
  for (const box of boxes) {
    if (!isPill(kind[box])) continue;
    const { title, sub } = labels.get(box) as Label;
    const titleWidth = measure(title, TEXT.pill, true);
    const width = sub === "" ? titleWidth : titleWidth + TEXT.gap + measure(sub, TEXT.pill, true);
    const left = x[box] + (w[box] - width) / 2;
    ctx.fillText(title, left, y[box] + TEXT.node.titleY);
    if (sub === "") continue;
    ctx.globalAlpha = 0.8;
    ctx.fillText(sub, left + titleWidth + TEXT.gap, y[box] + TEXT.node.titleY);
    ctx.globalAlpha = 1;
  }

  if (TEXT.line * k < LEGIBLE) return;
  ctx.font = `${TEXT.line}px ${theme.font}`;
  const pairs: [key: string, x: number, y: number, ink: string][] = [];
  for (const box of boxes) {
    const closed = kind[box] === BOX.SCOPE;
    if (kind[box] !== BOX.NODE && (!closed || k < TITLE_ONLY)) continue;
    const { title, sub, lines } = labels.get(box) as Label;
    const { lineX, lineY, lineStep, titleX, titleY } = closed
      ? TEXT.scope
      : { ...TEXT.node, lineX: TEXT.node.x, titleX: TEXT.node.x };
    const ink = paintOf(picture, box)?.ink;
    ctx.fillStyle = ink ?? theme.dim;
    const before = titleX + measure(title, closed ? titleSize(box, title) : TEXT.title, true) + TEXT.gap;
    // a number that is cut is another number
    if (!closed || before + measure(sub, TEXT.line, false) <= w[box] - 6)
      ctx.fillText(sub, x[box] + before, y[box] + titleY);
    if (!closed) ctx.fillStyle = ink ?? (overlay === null ? theme.text : theme.dim);
    for (let row = 0; row < lines.length; row++) {
      let left = x[box] + lineX;
      const base = y[box] + lineY + row * lineStep;
      for (const [key, value] of lines[row]) {
        if (key !== "") {
          pairs.push([key, left, base, ink ?? theme.dim]);
          left += measure(key, TEXT.line, false) + TEXT.keyGap;
        }
        ctx.fillText(value, left, base);
        left += measure(value, TEXT.line, false) + TEXT.gap;
      }
    }
  }
  ctx.font = `italic ${TEXT.line}px ${theme.font}`;
  for (const [key, left, base, ink] of pairs) {
    ctx.fillStyle = ink;
    ctx.fillText(key, left, base);
  }

  // the part of a closed scope in an extraction, over the end of its text; the glow shows one that is in it as a whole
  ctx.font = `600 ${TEXT.edge}px ${theme.font}`;
  ctx.textAlign = "right";
  for (const [box, count] of picture.marks.extraction) {
    if (kind[box] !== BOX.SCOPE || !labels.has(box)) continue;
    const total = columns.scopeNodes[id[box]];
    if (count >= total) continue;
    const text = `${count} of ${total}`;
    const right = x[box] + w[box] - 9;
    const base = y[box] + (labels.get(box)?.lines.length === 0 ? TEXT.scope.titleY : TEXT.scope.lineY);
    const width = ctx.measureText(text).width + 5;
    ctx.fillStyle = paintOf(picture, box)?.fill ?? theme.scopes[0];
    ctx.fillRect(right - width, base - TEXT.edge, width, TEXT.edge + 3);
    ctx.fillStyle = paintOf(picture, box)?.ink ?? theme.cut;
    ctx.fillText(text, right, base);
  }
  ctx.textAlign = "left";
}

/** Draws a warning sign at the corner of a box with problems. */
function drawBadges(ctx: Pen, { scene, theme, marks }: Picture, boxes: number[], k: number): void {
  if (marks.faults.size === 0) return;
  const { x, y, w } = scene.boxes;
  const size = Math.max(7, 5 / k);
  for (const box of boxes) {
    if (!marks.faults.has(box)) continue;
    const cx = x[box] + w[box] - 2;
    const cy = y[box] + 2;
    ctx.beginPath();
    ctx.moveTo(cx, cy - size);
    ctx.lineTo(cx + size, cy + size * 0.75);
    ctx.lineTo(cx - size, cy + size * 0.75);
    ctx.closePath();
    ctx.fillStyle = theme.warn;
    ctx.strokeStyle = theme.background;
    ctx.lineWidth = 2;
    ctx.stroke();
    ctx.fill();
    ctx.fillStyle = theme.background;
    ctx.fillRect(cx - size * 0.1, cy - size * 0.45, size * 0.2, size * 0.6);
    ctx.fillRect(cx - size * 0.1, cy + size * 0.3, size * 0.2, size * 0.2);
  }
}

/** Draws titles of scopes on a ground of their own above the edges, so that no line crosses a name. */
function drawTitles(ctx: Pen, picture: Picture, boxes: number[], k: number): void {
  const { scene, theme, measure } = picture;
  const { kind, x, w, depth } = scene.boxes;
  const titles = new Titles(scene, measure, k);
  const scale = enlargement(k);
  const pad = 3 * scale;
  for (const box of boxes) {
    const place = titles.of(box);
    if (place === null) continue;
    const { text, left, right, top, bottom, hasToggle } = place;
    const isOpen = kind[box] === BOX.OPEN;
    const paint = isOpen ? null : paintOf(picture, box);
    const base = top + TEXT.title * scale;
    const start = hasToggle ? x[box] + TEXT.scope.x * scale : left;
    const { sub } = scene.label(box);
    const subEnd = right + TEXT.gap + measure(sub, TEXT.line, false);
    const hasSub = isOpen && sub !== "" && TEXT.line * k >= LEGIBLE && subEnd <= x[box] + w[box];
    ctx.fillStyle = paint?.fill ?? theme.scopes[isOpen ? depth[box] % 2 : 0];
    ctx.fillRect(start - pad, top, (hasSub ? subEnd : right) - start + 2 * pad, bottom - top);
    ctx.font = `600 ${TEXT.title * scale}px ${theme.font}`;
    ctx.fillStyle = theme.accent;
    if (hasToggle) ctx.fillText("–", start, base);
    ctx.fillStyle = paint?.ink ?? theme.text;
    ctx.fillText(text, left, base);
    if (!hasSub) continue;
    ctx.font = `${TEXT.line}px ${theme.font}`;
    ctx.fillStyle = theme.dim;
    ctx.fillText(sub, right + TEXT.gap, base);
  }
}

/** Characters of a tensor's name next to its edge. */
const MAX_NAME_LENGTH = 40;

/** Draws dtype and shape next to an edge, after the name of a chosen tensor; for a missing input its name, in red. */
function drawEdgeLabels(ctx: Pen, picture: Picture, list: number[], k: number): void {
  if (TEXT.edge * k < LEGIBLE) return;
  const { scene, columns, index, theme, marks, measure } = picture;
  const { edges } = scene;
  /** writes on a ground of its own, so that no line beside the edge strikes the text through */
  const write = (edge: number, text: string, bold: boolean, color: string, x: number, y: number): void => {
    const scope = edges.scope[edge];
    ctx.fillStyle = scope < 0 ? theme.background : theme.scopes[scene.boxes.depth[scope] % 2];
    ctx.fillRect(x - 1, y - TEXT.edge / 2, measure(text, TEXT.edge, bold) + 2, TEXT.edge);
    ctx.fillStyle = color;
    ctx.fillText(text, x, y);
  };
  ctx.textBaseline = "middle";
  const emphasis: [edge: number, how: number][] = [];
  ctx.font = `${TEXT.edge}px ${theme.font}`;
  for (const edge of list) {
    const how = marks.values.get(edges.value[edge]) ?? EDGE.PLAIN;
    if (how === EDGE.LIT || how === EDGE.MISSING || how === EDGE.HOVER) emphasis.push([edge, how]);
    else if (!Number.isNaN(edges.labelX[edge])) {
      write(edge, scene.edgeLabel(edge), false, theme.dim, edges.labelX[edge], edges.labelY[edge]);
    }
  }
  ctx.font = `600 ${TEXT.edge}px ${theme.font}`;
  // a tensor is named once, in the place of its type if that is in view
  const typeLabels = new Set<number>();
  for (const [edge] of emphasis) if (!Number.isNaN(edges.labelX[edge])) typeLabels.add(edges.value[edge]);
  const nameLabels = new Set<number>();
  for (const [edge, how] of emphasis) {
    const value = edges.value[edge];
    const missing = how === EDGE.MISSING;
    let x = edges.labelX[edge];
    let y = edges.labelY[edge];
    if (Number.isNaN(x)) {
      if (how === EDGE.HOVER || typeLabels.has(value) || nameLabels.has(value)) continue;
      ({ x, y } = middle(scene, edge));
      x += 7;
    }
    const boundaryMark = marks.inputs.has(value) ? "in" : marks.outputs.has(value) ? "out" : "";
    const pill = scene.boxes.kind[scene.boxOf("tensor", value)];
    const full = nameLabels.has(value) || isPill(pill) ? "" : columns.valueNameOf(value);
    const name = full.length > MAX_NAME_LENGTH ? `…${full.slice(1 - MAX_NAME_LENGTH)}` : full;
    nameLabels.add(value);
    const label = missing ? [name || full] : [boundaryMark, name, scene.edgeLabel(edge)].filter(Boolean);
    const isHidden = (): boolean => {
      const box = index.boxAt(x + measure(label.join("  "), TEXT.edge, true) + TEXT.gap, y);
      return box >= 0 && scene.boxes.kind[box] !== BOX.OPEN;
    };
    while (label.length > 1 && isHidden()) label.pop(); // a box beside it hides the end
    const text = label.join("  ");
    if (text !== "") write(edge, text, true, edgeInk(picture, value, how), x, y);
  }
  ctx.textBaseline = "alphabetic";
}

/** Returns the middle of an edge's longest piece. */
export function middle(scene: Scene, edge: number): { x: number; y: number } {
  const { ptr, points } = scene.edges;
  let start = ptr[edge];
  let length = -1;
  for (let at = ptr[edge]; at + 1 < ptr[edge + 1]; at++) {
    const d = Math.abs(points[2 * at + 2] - points[2 * at]) + Math.abs(points[2 * at + 3] - points[2 * at + 1]);
    if (d > length) {
      length = d;
      start = at;
    }
  }
  const [x0, y0, x1, y1] = points.subarray(2 * start, 2 * start + 4);
  return along(x0, y0, x1, y1, 0.5, scene.direction);
}
