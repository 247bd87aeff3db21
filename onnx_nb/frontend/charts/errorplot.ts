/** Errors against depth: a canvas to point at, to walk by the keyboard, and to look closer at by dragging over a part. */

import { button, el, on, onAbort } from "../panels/dom.ts";
import type { Pen } from "../render/canvas.ts";
import { SvgPen, xml } from "../render/svgpen.ts";
import { createMeasure, readTheme, type Theme } from "../render/theme.ts";
import { CAPTION, drawCaption, drawChosen, drawDepth } from "./errordrawing.ts";
import { type Depth, type Span, Subgraph, spanOf } from "./errorseries.ts";

export interface DepthOptions {
  /** what is drawn */
  readonly metric: string;
  /** row of the first divergent point, −1 for none */
  readonly first: number;
  /** a point in a line: read out, and shown beside it */
  readonly say: (row: number) => string;
  readonly tip: (row: number) => readonly Node[];
  /** a person chose a point */
  readonly chosen: (row: number) => void;
  /** what stands over a plot that has nothing to tell, "" for nothing */
  readonly note: string;
}

export interface DepthView {
  readonly element: HTMLElement;
  show(depth: Depth, metric: string): void;
  choose(row: number): void;
  redraw(): void;
  /** The plot with what the panel says of it. */
  svg(title: string): string;
  png(title: string): Promise<Blob>;
}

const HEIGHT = 206;
/** px that a pointer moves before it drags */
const SLOP = 5;

export function createDepth(given: Depth, options: DepthOptions, signal: AbortSignal): DepthView {
  let { metric } = options;
  let depth = given;
  let span: Span = spanOf(depth.count);
  let chosen = -1;
  let hovered = -1;
  let drag: { readonly from: number; to: number } | null = null;
  let theme: Theme | null = null;

  const ground = el("canvas.onnx-nb-depth-ground", { "aria-hidden": "true" });
  const over = el("canvas.onnx-nb-depth-over", { "aria-hidden": "true" });
  const tip = el("div.onnx-nb-tip", { "aria-hidden": "true" });
  tip.hidden = true;
  const whole = button("Show all", () => zoom(spanOf(depth.count)), signal, {
    class: "onnx-nb-small onnx-nb-depth-whole",
    title: "Back to all points (0)",
  });
  whole.hidden = true;
  const plot = el(
    "div.onnx-nb-depth-plot",
    { title: "", role: "slider", tabindex: 0, "aria-label": "Errors against depth", "aria-valuemin": 1 },
    ground,
    over,
  );
  const note = options.note === "" ? null : el("div.onnx-nb-depth-note.onnx-nb-dim", options.note);
  const element = el("div.onnx-nb-depth", plot, note, whole, tip);

  // ---------------------------------------------------------------- drawing

  const size = (): [number, number] => [Math.max(160, plot.clientWidth || 600), plot.clientHeight || HEIGHT];
  let frame = new Subgraph(depth, span, ...size());
  const look = (): { theme: Theme; isolated: string } => {
    theme ??= readTheme(element.closest<HTMLElement>(".onnx-nb") ?? element, ["activation"]);
    return { theme, isolated: theme.categories[0] };
  };
  const sized = (canvas: HTMLCanvasElement): CanvasRenderingContext2D | null => {
    const [w, h] = size();
    const dpr = globalThis.devicePixelRatio || 1;
    if (canvas.width !== Math.round(w * dpr)) canvas.width = Math.round(w * dpr);
    if (canvas.height !== Math.round(h * dpr)) canvas.height = Math.round(h * dpr);
    const context = canvas.getContext("2d");
    context?.setTransform(dpr, 0, 0, dpr, 0, 0);
    context?.clearRect(0, 0, w, h);
    return context;
  };
  const drawGround = (): void => {
    frame = new Subgraph(depth, span, ...size());
    const pen = sized(ground);
    if (pen !== null) drawDepth(pen as Pen, frame, options.first, look());
    drawOver();
  };
  const drawOver = (): void => {
    const pen = sized(over);
    if (pen === null) return;
    const { theme: colors } = look();
    if (drag !== null) {
      const [a, b] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
      pen.fillStyle = colors.halo;
      pen.fillRect(a, 4, b - a, frame.height - 28);
    }
    if (hovered >= 0 && hovered !== chosen) drawChosen(pen as Pen, frame, hovered, colors.dim, colors);
    drawChosen(pen as Pen, frame, chosen, colors.text, colors);
  };
  const drawWhole = (pen: Pen, title: string, scale: number, w: number, h: number): void => {
    const colors = look();
    const whole = new Subgraph(depth, span, w, h);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colors.theme.background;
    pen.fillRect(0, 0, w, h + CAPTION);
    drawCaption(pen, whole, { title, metric }, colors);
    pen.setTransform(scale, 0, 0, scale, 0, scale * CAPTION);
    drawDepth(pen, whole, options.first, colors);
  };
  let due = 0;
  let stale = false;
  const soon = (ground = false): void => {
    stale ||= ground;
    if (due !== 0) return;
    due = requestAnimationFrame(() => {
      due = 0;
      if (stale) drawGround();
      else drawOver();
      stale = false;
    });
  };
  // what is pointed at is asked of the frame: it changes at once, the drawing with the next frame
  const reframe = (): void => {
    frame = new Subgraph(depth, span, ...size());
    soon(true);
  };
  const zoom = (to: Span): void => {
    span = to;
    whole.hidden = to.to - to.from >= depth.count - 1.5;
    reframe();
  };

  // ---------------------------------------------------------------- choosing

  const described = (): void => {
    plot.setAttribute("aria-valuemax", String(Math.max(1, depth.count)));
    plot.setAttribute("aria-valuenow", String(Math.max(1, chosen + 1)));
    plot.setAttribute("aria-valuetext", chosen < 0 ? "no point chosen" : options.say(chosen));
  };
  const choose = (row: number): void => {
    chosen = row;
    described();
    if (row >= 0 && (row < span.from || row > span.to)) {
      const half = (span.to - span.from) / 2;
      zoom(spanOf(depth.count, row - half, row + half));
    }
    soon();
  };
  const pick = (row: number): void => {
    if (row < 0 || row === chosen) return;
    choose(row);
    options.chosen(row);
  };
  const hover = (row: number, x: number, y: number): void => {
    hovered = row;
    tip.hidden = row < 0;
    if (row >= 0) {
      tip.replaceChildren(...options.tip(row));
      const { offsetWidth: w, offsetHeight: h } = tip;
      tip.style.left = `${Math.max(4, Math.min(x + 14, frame.width - w - 4))}px`;
      tip.style.top = `${y + 18 + h > frame.height ? Math.max(0, y - h - 10) : y + 18}px`;
    }
    soon();
  };
  const at = (event: MouseEvent): [number, number] => {
    const box = plot.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  on(plot, "pointermove", signal, (event) => {
    const [x, y] = at(event);
    if (drag !== null) {
      drag.to = Math.max(frame.left, Math.min(frame.right, x));
      if (Math.abs(drag.to - drag.from) > SLOP) hover(-1, x, y);
      return;
    }
    hover(frame.nearest(x, y), x, y);
  });
  on(plot, "pointerleave", signal, () => hover(-1, 0, 0));
  on(plot, "pointerdown", signal, (event) => {
    if (event.button !== 0) return;
    const [x] = at(event);
    drag = { from: x, to: x };
    plot.setPointerCapture(event.pointerId);
  });
  const ended = (event: PointerEvent): void => {
    if (drag === null) return;
    const { from, to } = drag;
    drag = null;
    if (event.type === "pointerup") {
      if (Math.abs(to - from) > SLOP) {
        zoom(spanOf(depth.count, frame.rowAt(Math.min(from, to)), frame.rowAt(Math.max(from, to))));
      } else pick(frame.nearest(...at(event)));
    }
    soon();
  };
  on(plot, "pointerup", signal, ended);
  on(plot, "pointercancel", signal, ended);
  on(plot, "dblclick", signal, () => zoom(spanOf(depth.count)));

  const step = (by: number): void => {
    if (depth.count > 0) pick(Math.max(0, Math.min(depth.count - 1, chosen < 0 ? 0 : chosen + by)));
  };
  const closer = (factor: number): void => {
    const middle = chosen < 0 ? (span.from + span.to) / 2 : chosen;
    const half = ((span.to - span.from) / 2) * factor;
    zoom(spanOf(depth.count, middle - half, middle + half));
  };
  const keys: Readonly<Record<string, () => void>> = {
    ArrowRight: () => step(1),
    ArrowUp: () => step(1),
    ArrowLeft: () => step(-1),
    ArrowDown: () => step(-1),
    PageDown: () => step(-Math.ceil(depth.count / 20)),
    PageUp: () => step(Math.ceil(depth.count / 20)),
    Home: () => pick(Math.min(0, depth.count - 1)),
    End: () => pick(depth.count - 1),
    Enter: () => options.first >= 0 && pick(options.first),
    "+": () => closer(0.5),
    "=": () => closer(0.5),
    "-": () => closer(2),
    "0": () => zoom(spanOf(depth.count)),
    Escape: () => zoom(spanOf(depth.count)),
  };
  on(plot, "keydown", signal, (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // nothing typed here is a command to the notebook
    event.stopPropagation();
    const act = keys[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  });

  const observer = new ResizeObserver(() => soon(true));
  observer.observe(plot);
  onAbort(signal, () => {
    observer.disconnect();
    cancelAnimationFrame(due);
  });
  described();
  return {
    element,
    show(next, label) {
      depth = next;
      metric = label;
      reframe();
    },
    choose,
    redraw() {
      theme = null;
      soon(true);
    },
    svg(title) {
      const [w, h] = size();
      const pen = new SvgPen(createMeasure(look().theme.font));
      drawWhole(pen, title, 1, w, h);
      const high = h + CAPTION;
      const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${high}" viewBox="0 0 ${w} ${high}" role="img">`;
      return `${head}<title>${xml(title)}</title>${pen.finish()}</svg>`;
    },
    png(title) {
      const [w, h] = size();
      const canvas = el("canvas");
      [canvas.width, canvas.height] = [2 * w, 2 * (h + CAPTION)];
      const pen = canvas.getContext("2d");
      if (pen === null) return Promise.reject(new Error("this browser draws no canvas"));
      drawWhole(pen as Pen, title, 2, w, h);
      return new Promise((resolve, reject) => {
        canvas.toBlob((blob) => (blob === null ? reject(new Error("the picture is too large")) : resolve(blob)));
      });
    },
  };
}
