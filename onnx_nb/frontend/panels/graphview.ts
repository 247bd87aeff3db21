/**
 * The whole graph view: one state, the scene that follows from it, a canvas, and panels around it. Everything that
 * needs a kernel goes through the host; the rest lives here, so the graph stays alive without one.
 */

import { unpack } from "../model/codec.ts";
import { Columns, type Target, VALUE } from "../model/columns.ts";
import * as cameras from "../render/camera.ts";
import { draw, middle, type Picture } from "../render/canvas.ts";
import { boxTarget, type Hit, HitIndex } from "../render/hit.ts";
import { boxOf, faultsOf, type Marks, marksOf } from "../render/marks.ts";
import { toSvg } from "../render/svg.ts";
import { createMeasure, readTheme, type Theme, watchTheme } from "../render/theme.ts";
import { type Step, walk } from "../render/walk.ts";
import { failure, type GraphHost, type Patch, type ValueHost } from "../scene/host.ts";
import type { Measure } from "../scene/labels.ts";
import { Overlay } from "../scene/overlay.ts";
import { BOX, buildScene, createCache, type Direction, defaultOpen, keepInPlace, type Scene } from "../scene/scene.ts";
import { type Action, type Command, initialState, reduce, type Saving, type State, same } from "../scene/state.ts";
import { button, bytes, counted, el, elide } from "./dom.ts";
import { createExtractBar } from "./extractbar.ts";
import { createHelp } from "./help.ts";
import { createInspector, NO_KERNEL } from "./inspector.ts";
import { createLegend } from "./legend.ts";
import { describe, followLinks } from "./link.ts";
import { createMinimap } from "./minimap.ts";
import { listenPointer } from "./pointer.ts";
import { download } from "./save.ts";
import { createStrips } from "./strips.ts";
import { createToolbar } from "./toolbar.ts";
import { createTree } from "./tree.ts";

export interface GraphOptions {
  /** groups that stand open at first; by default enough for 20 to 60 boxes */
  readonly open?: Iterable<number>;
  /** px of the part with the picture */
  readonly height?: number;
  readonly direction?: Direction;
  /** a submodel inside another view: no bar below, no pane beside */
  readonly nested?: boolean;
}

export interface GraphView {
  readonly columns: Columns;
  readonly state: State;
  dispatch(action: Action | Command): void;
  /** Takes over what the kernel changed; does not call `host.changed`. */
  apply(patch: Patch): void;
  /** Opens the scopes around a tensor, node or scope and brings it into view. */
  reveal(name: string, kind?: Target["kind"]): Promise<void>;
  /** Where in the viewport a pointer would hit this tensor, node or scope; null if it cannot be seen now. */
  locate(name: string, kind?: Target["kind"]): { x: number; y: number } | null;
  /** Shows a submodel in a pane beside the graph. */
  showSubmodel(columns: Columns): void;
}

/** The handle that tests and tools find at the root element. */
export interface Handle extends GraphView {
  /** the view of the submodel, when one is shown */
  submodel: GraphView | null;
}

/** An edge can be hit from this many screen px. */
const REACH = 6;
/** Below this width panels go under the picture. */
const NARROW = 760;
/** A picture that takes longer than this is moved as a bitmap until it rests. */
const SLOW_MS = 9;
/** … but not longer than this */
const REDRAWN_MS = 300;
const ANIMATION_MS = 180;
/** The picture for the notebook is made when the view has rested for so long, of all of a graph of this size at most. */
const PICTURE_MS = 800;
const PICTURE_PX = 1000;
const HEIGHT = 560;

export function createGraphView(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  options: GraphOptions,
  signal: AbortSignal,
): GraphView {
  const started = performance.now();
  root.classList.add("onnx-nb", "onnx-nb-graph");
  root.dataset.widget = options.nested ? "submodel" : "graph";
  root.dataset.state = "loading";
  root.style.setProperty("--nb-height", `${options.height ?? HEIGHT}px`);

  let state: State = { ...initialState(options.open ?? defaultOpen(columns), options.direction), live: host.live };
  const cache = createCache();
  let theme: Theme;
  let measure: Measure;
  let scene: Scene | null = null;
  let index: HitIndex;
  let faults: ReadonlyMap<number, number> = new Map();
  let marks: Marks | null = null;
  let camera: cameras.Camera = { x: 0, y: 0, k: 1 };
  let view: cameras.Size = { w: 0, h: 0 };
  /** the camera still stands where it was put first, so a new size may put it there again */
  let untouched = true;
  /** when the picture that is due was asked for; null when no mark is due */
  let asked: number | null = started;
  let quiet = false;

  // ---------------------------------------------------------------- elements

  const bar = el("header", { class: "onnx-nb-bar" });
  const strips = el("div", { class: "onnx-nb-strips" });
  const drawer = el("aside", { class: "onnx-nb-drawer onnx-nb-hiddenish", attrs: { "aria-label": "Tree" } });
  const canvas = el("canvas", {
    class: "onnx-nb-canvas",
    attrs: {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "graph",
      "aria-label": `Graph of ${elide(columns.meta.name || "model", 80)}. Arrow keys move along it, ? lists the keys; the tree holds the same.`,
    },
  });
  const map = el("canvas", { class: "onnx-nb-map", attrs: { "aria-hidden": "true" } });
  const legend = el("div", { class: "onnx-nb-legend" });
  const tip = el("div", { class: "onnx-nb-tip", attrs: { "aria-hidden": "true" } });
  const hint = el(
    "div",
    { class: "onnx-nb-hint", attrs: { "aria-hidden": "true" } },
    "Click the graph or hold Ctrl to zoom",
  );
  const voice = el("div", { class: "onnx-nb-voice", attrs: { "aria-live": "polite" } });
  const stage = el("div", { class: "onnx-nb-stage" }, canvas, legend, map, tip, hint);
  const beside = el("section", { class: "onnx-nb-beside", attrs: { "aria-label": "Submodel" } });
  const inspectorRoot = el("aside", { class: "onnx-nb-inspector", attrs: { "aria-label": "Inspector", tabindex: 0 } });
  const body = el("div", { class: "onnx-nb-body" }, drawer, stage, beside, inspectorRoot);
  const extractRoot = el("footer", { class: "onnx-nb-extract" });
  tip.hidden = true;
  beside.hidden = true;
  root.replaceChildren(bar, strips, body, ...(options.nested ? [] : [extractRoot]), voice);

  // ---------------------------------------------------------------- state

  const dispatch = (action: Action | Command): void => {
    switch (action.type) {
      case "fit":
        if (scene !== null) glide(cameras.fitAll(scene.bounds, view));
        return;
      case "extract":
        if (state.cut.outputs.length > 0 || !host.live) void extract();
        return;
      case "reveal":
        bringIntoView(action.target);
        return;
      case "save":
        save(action.what);
        return;
      case "capture":
        // whoever asks for it was offered it
        if (host.values !== undefined) void capture(host.values, action.value);
        return;
      case "colour":
        void colour(action.by);
        return;
    }
    const before = state;
    state = reduce(state, action, columns);
    if (state === before) return;
    marks = null;
    if (state.open !== before.open) {
      asked ??= performance.now();
      rebuild("group" in action ? action.group : null);
      if (!quiet) host.changed({ open: [...state.open] });
    }
    if (state.direction !== before.direction) {
      asked ??= performance.now();
      untouched = true; // nothing stays where it was, so the view opens anew
      rebuild(null);
      if (!quiet) host.changed({ direction: state.direction });
    }
    const redrawn =
      state.open !== before.open || state.direction !== before.direction || state.overlay !== before.overlay;
    if (redrawn && state.overlay !== null && scene !== null) {
      state = { ...state, overlay: state.overlay.over(scene.boxes) };
    }
    if (!same(state.selection, before.selection)) {
      announce(state.selection);
      root.classList.toggle("onnx-nb-selected", state.selection !== null);
      if (!quiet) {
        const target = state.selection;
        host.changed({ selection: target === null ? null : { ...target, name: columns.nameOf(target) } });
      }
    }
    if (state.cut !== before.cut) {
      const { inputs, outputs } = names();
      if (!quiet) host.changed({ inputs, outputs });
      plan();
    }
    if (state.overlay?.data !== before.overlay?.data && !quiet) host.changed({ overlay: state.overlay?.data ?? null });
    if (state.plan !== before.plan && state.plan !== null) say(state.plan.message);
    refresh();
  };

  const names = (): { inputs: string[]; outputs: string[] } => {
    const named = (values: readonly number[]): string[] => values.map((value) => columns.valueNameOf(value));
    return { inputs: named(state.cut.inputs), outputs: named(state.cut.outputs) };
  };

  const refresh = (): void => {
    toolbar.update(state);
    strip.update(state);
    inspector.update(state);
    tree.update(state);
    bottom?.update(state);
    key.update(state, theme.dark);
    root.setAttribute("aria-busy", String(state.busy !== null));
    redraw();
  };

  const say = (text: string): void => {
    voice.textContent = elide(text, 300);
  };
  const announce = (target: Target | null): void => {
    if (target === null) {
      say("Nothing selected");
      return;
    }
    const { title, sub, kind } = describe(columns, target);
    let more = "";
    if (target.kind === "value") {
      const producer = columns.producer[target.id];
      const readers = columns.consumersOf(target.id).length;
      more = `${producer >= 0 ? `, made by ${columns.opOf(producer)}` : ""}, read by ${counted(readers, "node")}`;
    }
    say(`${kind} ${elide(title, 120)} ${elide(sub, 80)}${more}`);
  };

  // ---------------------------------------------------------------- kernel

  let planning: AbortController | null = null;
  const plan = (): void => {
    planning?.abort();
    planning = null;
    const { cut } = state;
    if (!host.live || cut.outputs.length === 0) return;
    const round = new AbortController();
    planning = round;
    const { inputs, outputs } = names();
    host.plan(inputs, outputs, round.signal).then(
      (reply) => {
        if (!round.signal.aborted && state.cut === cut) dispatch({ type: "plan", plan: reply });
      },
      (error: unknown) => {
        if (!round.signal.aborted) dispatch({ type: "error", error: failure(error) });
      },
    );
  };

  let working: AbortController | null = null;
  /**
   * One piece of work in the kernel at a time, which the bar shows and can cancel.
   * @param ask asks the kernel, and gives what is to be done with the answer if it is still wanted
   */
  const work = async (
    start: { readonly busy: string; readonly done?: number },
    ask: (round: AbortSignal, told: (done: number, message: string) => void) => Promise<() => void>,
  ): Promise<void> => {
    if (!host.live) {
      dispatch({ type: "error", error: { message: host.reason ?? NO_KERNEL, advice: "" } });
      return;
    }
    if (state.busy !== null) return;
    const round = new AbortController();
    working = round;
    dispatch({ type: "error", error: null });
    dispatch({ type: "busy", ...start });
    try {
      const finish = await ask(round.signal, (done, message) => {
        if (working === round) dispatch({ type: "busy", busy: message, done });
      });
      if (!round.signal.aborted && !signal.aborted) finish();
    } catch (error) {
      if (!round.signal.aborted) dispatch({ type: "error", error: failure(error) });
    } finally {
      if (working === round) {
        working = null;
        dispatch({ type: "busy", busy: null });
      }
    }
  };
  const extract = (): Promise<void> =>
    work({ busy: "Extracting the submodel…" }, async (round) => {
      const { inputs, outputs } = names();
      const reply = await host.extract(inputs, outputs, round);
      const packed = await unpack(reply.columns);
      return () => {
        showSubmodel(new Columns(packed));
        say(reply.message);
      };
    });
  const capture = (values: ValueHost, value: number | null): Promise<void> =>
    work({ busy: "Running the model…", done: 0 }, async (round, told) => {
      const message = await values.capture(value, told, round);
      return () => {
        dispatch({ type: "captured", all: value === null });
        say(message);
      };
    });

  let colouring: AbortController | null = null;
  const colour = async (by: string): Promise<void> => {
    colouring?.abort();
    const round = new AbortController();
    colouring = round;
    try {
      const found = await host.overlay?.(by, round.signal);
      if (found !== undefined && !round.signal.aborted && !signal.aborted) {
        dispatch({ type: "overlay", overlay: new Overlay(found) });
      }
    } catch (error) {
      if (!round.signal.aborted) dispatch({ type: "error", error: failure(error) });
    }
  };

  const cancel = (): void => {
    // the answer may take its time to stop; whoever cancels need not wait for it
    working?.abort();
    working = null;
    dispatch({ type: "busy", busy: null });
    say("Cancelled");
  };
  signal.addEventListener(
    "abort",
    () => {
      planning?.abort();
      working?.abort();
      colouring?.abort();
    },
    { once: true },
  );

  // ---------------------------------------------------------------- submodel beside

  let pane: AbortController | null = null;
  const closeSubmodel = (): void => {
    pane?.abort();
    pane = null;
    handle.submodel = null;
    beside.hidden = true;
    beside.replaceChildren();
    root.classList.remove("onnx-nb-split");
    canvas.focus({ preventScroll: true });
  };
  const showSubmodel = (submodel: Columns): void => {
    pane?.abort();
    pane = new AbortController();
    const inner = el("div");
    const title = `submodel — ${counted(submodel.meta.nodes, "node")}, ${bytes(submodel.meta.nbytes)}`;
    beside.replaceChildren(
      el(
        "header",
        { class: "onnx-nb-bar" },
        el("b", {}, title),
        el("span", { class: "onnx-nb-dim onnx-nb-ellipsis" }, "in the kernel: ", el("code", {}, "g.submodel")),
        button("Close", closeSubmodel, pane.signal, { attrs: { "aria-label": "Close submodel" } }),
      ),
      inner,
    );
    beside.hidden = false;
    root.classList.add("onnx-nb-split");
    handle.submodel = createGraphView(inner, submodel, NOBODY, { nested: true }, pane.signal);
  };
  signal.addEventListener("abort", () => pane?.abort(), { once: true });

  // ---------------------------------------------------------------- scene and camera

  const rebuild = (anchor: number | null): void => {
    const before = scene;
    let built: Scene;
    try {
      built = buildScene(columns, state.open, measure, cache, { direction: state.direction });
    } catch (error) {
      fail(error);
      return;
    }
    scene = built;
    index = new HitIndex(built, measure);
    faults = faultsOf(built, columns);
    marks = null;
    bitmap = null;
    if (before === null) return;
    if (untouched && anchor === null) {
      if (view.w > 0) camera = cameras.opening(built.bounds, view, built.direction, startOf(built));
      return;
    }
    // what was clicked, or else what is in the middle, stays where it is
    const kept: Target | null = anchor === null ? inTheMiddle(before) : { kind: "group", id: anchor };
    if (kept === null) return;
    const { dx, dy } = keepInPlace(before, built, kept.kind, kept.id);
    camera = { x: camera.x + dx, y: camera.y + dy, k: camera.k };
    untouched = false;
    stopGlide();
  };

  const inTheMiddle = (scene: Scene): Target | null => {
    const { x, y } = cameras.toWorld(camera, view.w / 2, view.h / 2);
    const { boxes } = scene;
    let best = -1;
    let nearest = Number.POSITIVE_INFINITY;
    for (let box = 0; box < boxes.count; box++) {
      if (boxes.kind[box] !== BOX.NODE && boxes.kind[box] !== BOX.GROUP) continue;
      const d = Math.hypot(boxes.x[box] + boxes.w[box] / 2 - x, boxes.y[box] + boxes.h[box] / 2 - y);
      if (d < nearest) {
        nearest = d;
        best = box;
      }
    }
    return best < 0 ? null : boxTarget(scene, best);
  };

  const fail = (error: unknown): void => {
    console.error(error);
    root.dataset.state = "error";
    const { message } = failure(error);
    state = {
      ...state,
      error: {
        message: `The graph could not be drawn: ${message}`,
        advice: "The tree still lists it; please report this model.",
      },
    };
  };

  let gliding = 0;
  const stopGlide = (): void => {
    cancelAnimationFrame(gliding);
    gliding = 0;
  };
  const glide = (to: cameras.Camera): void => {
    stopGlide();
    untouched = false;
    if (view.w === 0 || still()) {
      camera = to;
      redraw();
      return;
    }
    const from = camera;
    const start = performance.now();
    const frame = (): void => {
      const t = Math.min(1, (performance.now() - start) / ANIMATION_MS);
      camera = cameras.between(from, to, cameras.ease(t), view);
      moved();
      gliding = t < 1 ? requestAnimationFrame(frame) : 0;
    };
    gliding = requestAnimationFrame(frame);
  };

  /** Where a target lies in the world, as far as it is drawn. */
  const place = (target: Target): cameras.Rect | null => {
    if (scene === null) return null;
    const { boxes } = scene;
    const around = (box: number): cameras.Rect => ({
      x: boxes.x[box],
      y: boxes.y[box],
      w: boxes.w[box],
      h: boxes.h[box],
    });
    const box = boxOf(scene, columns, target);
    if (target.kind === "value") {
      if (box >= 0 && (boxes.kind[box] === BOX.INPUT || boxes.kind[box] === BOX.OUTPUT)) return around(box);
      const [edge] = scene.edgesOf(target.id);
      if (edge !== undefined) {
        const { x, y } = middle(scene, edge);
        return { x: x - 70, y: y - 50, w: 140, h: 100 };
      }
    }
    return box >= 0 ? around(box) : null;
  };

  const bringIntoView = (target: Target): void => {
    const visibleTarget = shownAs(columns, target);
    const closed = columns.ancestry(columns.groupOf(visibleTarget)).filter((group) => !state.open.has(group));
    if (closed.length > 0) dispatch({ type: "openAll", groups: closed });
    const rect = place(visibleTarget);
    if (rect !== null) glide(cameras.reveal(camera, rect, view));
  };

  // ---------------------------------------------------------------- drawing

  const ctx = canvas.getContext("2d", { alpha: false });
  let due = 0;
  /** how the picture on the canvas was drawn, null once the canvas shows something else */
  let drawnFrom: { readonly camera: cameras.Camera; readonly made: number } | null = null;
  let bitmap: { readonly canvas: HTMLCanvasElement; readonly camera: cameras.Camera; readonly made: number } | null =
    null;
  let cost = 0;
  let settle = 0;
  let picturing = 0;

  const redraw = (): void => {
    bitmap = null;
    drawnFrom = null;
    schedule();
  };
  const schedule = (): void => {
    if (due === 0) due = requestAnimationFrame(paint);
  };
  const moved = (): void => {
    if (bitmap === null && drawnFrom !== null && cost > SLOW_MS) bitmap = { canvas: copyOf(canvas), ...drawnFrom };
    schedule();
    window.clearTimeout(settle);
    settle = window.setTimeout(redraw, 90);
  };

  const pictureOf = (scene: Scene): Picture => {
    marks ??= marksOf(scene, columns, state, faults);
    return { scene, columns, index, marks, theme, measure, overlay: state.overlay };
  };

  const paint = (): void => {
    due = 0;
    if (scene === null || ctx === null || view.w === 0 || signal.aborted) return;
    const dpr = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(view.w * dpr)) {
      size(); // the window came to a screen of another density
      return;
    }
    const now = performance.now();
    if (bitmap !== null && cost > SLOW_MS && now - bitmap.made < REDRAWN_MS) {
      const s = camera.k / bitmap.camera.k;
      const at = cameras.toScreen(camera, bitmap.camera.x, bitmap.camera.y);
      ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
      ctx.fillStyle = theme.background;
      ctx.fillRect(0, 0, view.w, view.h);
      ctx.drawImage(bitmap.canvas, at.x, at.y, view.w * s, view.h * s);
    } else {
      draw(ctx, pictureOf(scene), camera, view, dpr);
      cost = performance.now() - now;
      drawnFrom = { camera, made: now };
      bitmap = null;
    }
    minimap.update(scene, theme, camera, view);
    if (asked !== null) {
      const from = asked;
      const boxes = scene.boxes.count;
      asked = null;
      root.dataset.state = "drawn";
      // the task after a frame runs when the frame is on the screen
      setTimeout(() => {
        performance.mark("onnx_nb:drawn", { detail: { boxes, ms: performance.now() - from } });
      });
      window.clearTimeout(picturing);
      if (host.picture !== undefined) picturing = window.setTimeout(leavePicture, PICTURE_MS);
    }
  };

  /** What stays in the notebook: all of the graph, or if that would take more than a page what the view shows. */
  const leavePicture = (): void => {
    if (scene === null || signal.aborted) return;
    const picture = pictureOf(scene);
    const { w, h } = scene.bounds;
    const whole = w <= PICTURE_PX && h <= PICTURE_PX;
    host.picture?.(toSvg(picture, whole ? undefined : { camera, view }));
  };

  const save = (what: Saving): void => {
    if (scene === null) return;
    const picture = pictureOf(scene);
    const hand = (content: Blob, extension: string): void => {
      download(content, columns.meta.name, extension);
      say(`Saved as ${extension.toUpperCase()}`);
    };
    if (what !== "png") {
      const text = toSvg(picture, what === "svg" ? undefined : { camera, view });
      hand(new Blob([text], { type: "image/svg+xml" }), "svg");
      return;
    }
    const sheet = el("canvas");
    [sheet.width, sheet.height] = [Math.round(2 * view.w), Math.round(2 * view.h)];
    const paper = sheet.getContext("2d");
    if (paper === null) return;
    draw(paper, picture, camera, view, 2);
    sheet.toBlob((content) => content !== null && hand(content, "png"), "image/png");
  };

  const size = (): void => {
    const { clientWidth: w, clientHeight: h } = stage;
    root.classList.toggle("onnx-nb-narrow", root.clientWidth > 0 && root.clientWidth < NARROW);
    if (w === 0 || h === 0) {
      view = { w: 0, h: 0 };
      return;
    }
    if (undressed) {
      dress();
      redraw();
    }
    const dpr = window.devicePixelRatio || 1;
    if (view.w === w && view.h === h && canvas.width === Math.round(w * dpr)) return;
    if (view.w > 0) {
      // the middle of the picture stays in the middle
      camera = { ...camera, x: camera.x + (view.w - w) / camera.k / 2 };
    }
    view = { w, h };
    canvas.width = Math.round(w * dpr);
    canvas.height = Math.round(h * dpr);
    if (untouched && scene !== null) camera = cameras.opening(scene.bounds, view, scene.direction, startOf(scene));
    bitmap = null;
    window.cancelAnimationFrame(due);
    due = 0;
    paint(); // at once: a resized canvas is blank until it is painted
  };

  // ---------------------------------------------------------------- pointer and keys

  const hitAt = (x: number, y: number): Hit | null => {
    if (scene === null) return null;
    const world = cameras.toWorld(camera, x, y);
    return index.hit(world.x, world.y, REACH / camera.k, camera.k);
  };
  const look = (next: cameras.Camera): void => {
    if (scene === null) return;
    stopGlide();
    untouched = false;
    camera = cameras.keepInSight(next, scene.bounds, view);
    tip.hidden = true;
    moved();
  };

  /** A little further out than all of the graph there is nothing to see. */
  const farthest = (): number => (scene === null ? 0.01 : cameras.fitAll(scene.bounds, view).k * 0.6);

  let hintTimer = 0;
  listenPointer(
    canvas,
    {
      pan: (dx, dy) => look(cameras.pan(camera, dx, dy)),
      zoom: (factor, x, y) => look(cameras.zoom(camera, factor, x, y, farthest())),
      click(x, y) {
        const hit = hitAt(x, y);
        if (hit?.part === "toggle") dispatch({ type: "toggle", group: hit.target.id });
        else dispatch({ type: "select", target: hit?.target ?? null });
      },
      doubleClick(x, y) {
        const hit = hitAt(x, y);
        if (hit?.part === "box" && hit.target.kind === "group") dispatch({ type: "toggle", group: hit.target.id });
      },
      hover(at) {
        const hit = at === null ? null : hitAt(at.x, at.y);
        canvas.classList.toggle("onnx-nb-pointing", hit !== null);
        dispatch({ type: "hover", target: hit?.target ?? null });
        if (hit === null || at === null || hit.part === "toggle") tip.hidden = true;
        else showTip(hit.target, at);
      },
      passed() {
        hint.classList.add("onnx-nb-shown");
        window.clearTimeout(hintTimer);
        hintTimer = window.setTimeout(() => hint.classList.remove("onnx-nb-shown"), 1100);
      },
    },
    signal,
  );

  const showTip = (target: Target, at: { x: number; y: number }): void => {
    const { title, sub } = describe(columns, target);
    const more = target.kind === "node" ? columns.str(columns.nodeAttributes[target.id]) : "";
    tip.replaceChildren(
      el("b", {}, elide(title, 70) || "(unnamed)"),
      sub === "" ? "" : el("span", {}, ` ${elide(sub, 90)}`),
    );
    if (more !== "") tip.append(el("div", { class: "onnx-nb-dim" }, elide(more, 90)));
    const { overlay } = state;
    if (overlay !== null && target.kind !== "value") {
      const x = overlay.number(target.kind === "node" ? BOX.NODE : BOX.GROUP, target.id);
      tip.append(el("div", {}, elide(`${overlay.data.label || "value"}: ${overlay.say(x)}`, 90)));
    }
    tip.hidden = false;
    const { offsetWidth: w, offsetHeight: h } = tip;
    tip.style.left = `${Math.max(4, Math.min(at.x + 14, view.w - w - 4))}px`;
    tip.style.top = `${at.y + 20 + h > view.h ? at.y - h - 10 : at.y + 18}px`;
  };

  /** The tensor that i and o mean: the selected one, or the only output of the selected node. */
  const tensorOf = (selection: Target | null): number | null => {
    if (selection?.kind === "value") return columns.isConstant(selection.id) ? null : selection.id;
    if (selection?.kind !== "node") return null;
    const made = columns.outputsOf(selection.id).filter((value) => value >= 0);
    return made.length === 1 ? made[0] : null;
  };
  const end = (type: "input" | "output"): void => {
    const value = tensorOf(state.selection);
    if (!host.live) say(host.reason ?? NO_KERNEL);
    else if (value === null) say("Select a tensor first: click an arrow, or press Shift with an arrow key");
    else dispatch({ type, value });
  };
  const step = (direction: Step, tensors: boolean): void => {
    const target = scene === null ? null : walk(scene, columns, state.selection, direction, tensors);
    if (target === null) {
      say("Nothing further that way");
      return;
    }
    dispatch({ type: "select", target });
    const rect = place(target);
    if (rect !== null) glide(cameras.reveal(camera, rect, view));
  };
  const toggleSelected = (): void => {
    const { selection } = state;
    if (selection === null) return;
    const group =
      selection.kind === "group" ? selection.id : selection.kind === "node" ? columns.nodeBody[selection.id] : -1;
    if (group >= 0) dispatch({ type: "toggle", group });
  };
  const zoomBy = (factor: number): void => look(cameras.zoom(camera, factor, view.w / 2, view.h / 2, farthest()));

  const keys: Readonly<Record<string, (event: KeyboardEvent) => void>> = {
    i: () => end("input"),
    o: () => end("output"),
    e: toggleSelected,
    Enter: toggleSelected,
    f: () => dispatch({ type: "fit" }),
    s: () => toolbar.save(),
    t: () => dispatch({ type: "direction", direction: state.direction === "down" ? "right" : "down" }),
    "/": () => toolbar.focusSearch(),
    "?": () => help.toggle(),
    "+": () => zoomBy(1.25),
    "=": () => zoomBy(1.25),
    "-": () => zoomBy(0.8),
    "−": () => zoomBy(0.8),
    ArrowUp: (event) => step("up", event.shiftKey),
    ArrowDown: (event) => step("down", event.shiftKey),
    ArrowLeft: () => step("left", false),
    ArrowRight: () => step("right", false),
    Escape: () => {
      if (!help.close()) dispatch({ type: "select", target: null });
    },
  };
  root.addEventListener(
    "keydown",
    (event) => {
      const from = event.target instanceof HTMLElement ? event.target : null;
      if (from?.closest("[data-widget]") !== root) return; // a nested view has keys of its own
      const command = event.ctrlKey || event.metaKey;
      const typing = from.matches("input, textarea, select");
      // keys without Ctrl are ours: the notebook would cut cells or stop the kernel
      if (!command && !event.altKey) event.stopPropagation();
      if (event.defaultPrevented || typing || event.altKey) return;
      if (command) {
        const key = event.key.toLowerCase();
        if (key !== "z" && key !== "y") return;
        event.preventDefault();
        event.stopPropagation();
        dispatch({ type: key === "y" || event.shiftKey ? "redo" : "undo" });
        return;
      }
      if (from.closest("button, a, summary") !== null && (event.key === "Enter" || event.key === " ")) return;
      if (inspectorRoot.contains(from) && event.key.startsWith("Arrow")) return; // it scrolls
      const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (act === undefined) return;
      event.preventDefault();
      act(event);
    },
    { signal },
  );
  canvas.addEventListener("blur", () => dispatch({ type: "hover", target: null }), { signal });

  // ---------------------------------------------------------------- panels

  const help = createHelp(stage, () => canvas.focus({ preventScroll: true }), signal);
  const toolbar = createToolbar(
    bar,
    columns,
    host.overlay !== undefined,
    dispatch,
    {
      help: help.toggle,
      drawer(open) {
        drawer.classList.toggle("onnx-nb-hiddenish", !open);
        size();
        tree.update(state);
      },
      leaveSearch: () => canvas.focus({ preventScroll: true }),
    },
    signal,
  );
  const strip = createStrips(strips, columns, dispatch, signal);
  const inspector = createInspector(inspectorRoot, columns, host, dispatch, signal);
  const tree = createTree(drawer, columns, dispatch, signal);
  const bottom = options.nested ? null : createExtractBar(extractRoot, columns, host, dispatch, cancel, signal);
  const minimap = createMinimap(
    map,
    (x, y) => look({ ...camera, x: x - view.w / camera.k / 2, y: y - view.h / camera.k / 2 }),
    signal,
  );
  const key = createLegend(legend, columns, dispatch, signal);
  followLinks(root, dispatch, signal);
  const empty = emptyState(columns);
  if (empty !== null) stage.append(empty);

  // ---------------------------------------------------------------- handle

  const find = (name: string, kind?: Target["kind"]): Target | null => columns.find(name, kind) ?? null;

  const handle: Handle = {
    columns,
    submodel: null,
    get state() {
      return state;
    },
    dispatch,
    apply(patch) {
      quiet = true;
      try {
        const values = (given: readonly string[]): number[] =>
          given.flatMap((name) => {
            const target = find(name, "value");
            return target === null ? [] : [target.id];
          });
        if (patch.inputs !== undefined || patch.outputs !== undefined) {
          const inputs = patch.inputs === undefined ? state.cut.inputs : values(patch.inputs);
          const outputs = patch.outputs === undefined ? state.cut.outputs : values(patch.outputs);
          dispatch({ type: "cut", cut: { inputs, outputs } });
        }
        if (patch.selection !== undefined) {
          const { selection } = patch;
          dispatch({ type: "select", target: selection === null ? null : { kind: selection.kind, id: selection.id } });
        }
        if (patch.direction !== undefined && patch.direction !== state.direction) {
          dispatch({ type: "direction", direction: patch.direction });
        }
        if (patch.overlay !== undefined) {
          dispatch({ type: "overlay", overlay: patch.overlay === null ? null : new Overlay(patch.overlay) });
        }
        if (patch.open !== undefined) {
          const wanted = new Set(patch.open);
          for (const group of state.open) if (!wanted.has(group)) dispatch({ type: "close", group });
          const more = patch.open.filter((group) => !state.open.has(group));
          if (more.length > 0) dispatch({ type: "openAll", groups: more });
        }
      } finally {
        quiet = false;
      }
    },
    async reveal(name, kind) {
      const target = find(name, kind);
      if (target === null) throw new Error(`there is no tensor, node or scope '${elide(name, 200)}' in this graph`);
      bringIntoView(target);
      await new Promise((resolve) => setTimeout(resolve, ANIMATION_MS + 120));
    },
    locate(name, kind) {
      const target = find(name, kind);
      if (target === null || scene === null || view.w === 0) return null;
      const { left, top } = canvas.getBoundingClientRect();
      const inside = (x: number, y: number): boolean => {
        const at = cameras.toScreen(camera, x, y);
        if (at.x < 1 || at.y < 1 || at.x > view.w - 1 || at.y > view.h - 1) return false;
        return document.elementFromPoint === undefined || uncovered(canvas, left + at.x, top + at.y);
      };
      const body = target.kind === "node" ? columns.nodeBody[target.id] : -1;
      const drawn: Target = body >= 0 ? { kind: "group", id: body } : target;
      const point = index.pointOf(drawn, REACH / camera.k, camera.k, inside);
      if (point === null) return null;
      const at = cameras.toScreen(camera, point.x, point.y);
      return { x: left + at.x, y: top + at.y };
    },
    showSubmodel,
  };
  Object.assign(root, { onnxNb: handle });

  // ---------------------------------------------------------------- life

  let font = "";
  /** nothing has a colour out of the page, where a cell is before it is shown and while it is scrolled away */
  let undressed = false;
  const dress = (): void => {
    undressed = !root.isConnected;
    theme = readTheme(root, columns.meta.categories);
    if (theme.font === font) return;
    ({ font } = theme);
    measure = createMeasure(font);
    if (scene !== null) rebuild(null);
  };
  watchTheme(
    root,
    () => {
      dress();
      refresh();
    },
    signal,
  );
  dress();
  rebuild(null);
  refresh();
  const observer = new ResizeObserver(size);
  observer.observe(stage);
  observer.observe(root);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && redraw(), { signal });
  signal.addEventListener(
    "abort",
    () => {
      observer.disconnect();
      stopGlide();
      window.cancelAnimationFrame(due);
      window.clearTimeout(settle);
      window.clearTimeout(picturing);
      window.clearTimeout(hintTimer);
    },
    { once: true },
  );
  return handle;
}

/** Where the flow begins: the middle of the boxes in the first row. */
function startOf({ boxes, direction }: Scene): cameras.Point {
  const { count, kind, x, y, w, h } = boxes;
  const along = direction === "down" ? y : x;
  let first = Number.POSITIVE_INFINITY;
  for (let box = 0; box < count; box++) if (kind[box] !== BOX.OPEN) first = Math.min(first, along[box]);
  let low = { x: Number.POSITIVE_INFINITY, y: Number.POSITIVE_INFINITY };
  let high = { x: Number.NEGATIVE_INFINITY, y: Number.NEGATIVE_INFINITY };
  for (let box = 0; box < count; box++) {
    if (kind[box] === BOX.OPEN || along[box] > first + 1) continue;
    low = { x: Math.min(low.x, x[box]), y: Math.min(low.y, y[box]) };
    high = { x: Math.max(high.x, x[box] + w[box]), y: Math.max(high.y, y[box] + h[box]) };
  }
  return count === 0 ? { x: 0, y: 0 } : { x: (low.x + high.x) / 2, y: (low.y + high.y) / 2 };
}

/** Whether the person asked their system for less motion. */
function still(): boolean {
  return typeof matchMedia === "function" && matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** A weight has no place of its own on the canvas: the node that reads it stands for it. */
function shownAs(columns: Columns, target: Target): Target {
  if (target.kind === "node" && columns.isFolded(target.id)) {
    const [made] = columns.outputsOf(target.id);
    return made === undefined || made < 0 ? target : shownAs(columns, { kind: "value", id: made });
  }
  if (target.kind !== "value" || !columns.isConstant(target.id)) return target;
  const [reader] = columns.consumersOf(target.id);
  if (reader === undefined || columns.isFolded(reader)) return target;
  return { kind: "node", id: reader };
}

function copyOf(canvas: HTMLCanvasElement): HTMLCanvasElement {
  const copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height;
  copy.getContext("2d")?.drawImage(canvas, 0, 0);
  return copy;
}

/** Whether nothing (legend, map) lies over the canvas at a point, or the point is scrolled out of the window. */
function uncovered(canvas: HTMLCanvasElement, x: number, y: number): boolean {
  const root = canvas.getRootNode() as Document | ShadowRoot;
  const top = root.elementFromPoint(x, y);
  return top === null || top === canvas;
}

function emptyState(columns: Columns): HTMLElement | null {
  let drawn = 0;
  for (let node = 0; node < columns.nodeCount && drawn === 0; node++) if (!columns.isFolded(node)) drawn++;
  if (drawn > 0) return null;
  const { meta } = columns;
  const weights = columns.valueKind.reduce((sum, kind) => sum + (kind === VALUE.INITIALIZER ? 1 : 0), 0);
  const holds = [
    counted(columns.graphInputs.length, "input"),
    counted(columns.graphOutputs.length, "output"),
    counted(weights, "weight") + (meta.nbytes > 0 ? ` (${bytes(meta.nbytes)})` : ""),
  ];
  const text = meta.nodes === 0 ? "This model has no nodes." : "All nodes of this model only make constants.";
  return el(
    "div",
    { class: "onnx-nb-empty" },
    el("b", {}, text),
    el("p", {}, `It holds ${holds.join(", ")}.`),
    el("p", { class: "onnx-nb-dim" }, "Was it saved before the graph was built, or cut out without outputs?"),
  );
}

/** The host of a submodel: nothing is cut out of what was cut out. */
const NOBODY: GraphHost = {
  live: false,
  reason: "This is a cut-out; in the kernel it is g.submodel.",
  plan: () => Promise.reject(new Error("a submodel is not planned")),
  extract: () => Promise.reject(new Error("a submodel is not extracted from")),
  inspect: () => Promise.reject(new Error("a submodel has no inspector in the kernel")),
  changed: () => undefined,
};
