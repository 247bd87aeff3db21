/**
 * The part of the view with the picture: the scene that follows from the state, the camera over it, drawing, animation,
 * the map, and the pointer. It changes no state itself; what a person does here it dispatches.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import type { GraphHost } from "../protocol/host.ts";
import { siblingsOf, touched } from "../render/boxselection.ts";
import * as cameras from "../render/camera.ts";
import { draw, middle, type Picture } from "../render/canvas.ts";
import { boxOf, faultsOf, type Marks, marksOf } from "../render/highlights.ts";
import { boxTarget, type Hit, HitIndex } from "../render/hit.ts";
import { type Step, walk } from "../render/navigation.ts";
import { toSvg } from "../render/svg.ts";
import { createMeasure, readTheme, type Theme, watchTheme } from "../render/theme.ts";
import { createCache, extentOf, sceneInParts } from "../scene/build.ts";
import type { DiffStatuses } from "../scene/diffstatus.ts";
import { briefly, type Measure } from "../scene/labels.ts";
import type { Fits } from "../scene/opening.ts";
import { BOX, keepInPlace, type Scene } from "../scene/scene.ts";
import { type Dispatch, type Saving, type Standing, type State, selected } from "../scene/state.ts";
import { el, elide } from "./dom.ts";
import { createLaying } from "./layoutscheduler.ts";
import { createMinimap } from "./minimap.ts";
import { listenPointer } from "./pointer.ts";
import { download } from "./save.ts";
import { createTip } from "./tooltip.ts";

export interface Stage {
  /** panels may be laid over the picture */
  readonly element: HTMLElement;
  /** null until something is laid out, and if the graph could not be drawn */
  readonly scene: Scene | null;
  readonly dark: boolean;
  /** null while nothing is in view */
  readonly standing: Standing | null;
  /** Goes to where the viewer stood before; at once, or gliding. */
  goTo(at: Standing, glides: boolean): void;
  /** Draws for the first time; the element must be in its place. */
  start(): void;
  /**
   * Lays out what is open now; the `anchor`, an id of a group, or else what is in the middle stays where it is. If it
   * takes long the old scene stands until the new one is there, and what `fit` and `show` ask for waits as well.
   */
  rebuild(anchor: number | null): void;
  /** Lays out anew and opens the view anew, for nothing stays where it was. */
  reopen(): void;
  /** How high the columns are that the outermost scope is set in, world px; 0 for one column. */
  columnHeight: number;
  /** boxes have one line */
  brief: boolean;
  update(state: State): void;
  /** a layout is under way that is not there yet */
  readonly busy: boolean;
  /** the camera is on its way */
  readonly gliding: boolean;
  /** Returns up a layout that is under way; false if there is none. */
  cancel(): boolean;
  /** Takes over the size of its element. */
  resize(): void;
  focus(): void;
  /** Shows the whole graph, or of it what is drawn of some targets. */
  fit(targets?: readonly Target[]): void;
  /** where the viewer stands, and the size of the picture */
  readonly stand: { readonly camera: cameras.Camera; readonly view: cameras.Size };
  /** Puts the viewer elsewhere at once; `looked` is not called. */
  standAt(camera: cameras.Camera): void;
  /** Moves the camera to what is drawn of a target: as little as it must, or so that it is in the middle. */
  show(target: Target, centered?: boolean): void;
  zoomBy(factor: number): void;
  /** All in the scope around the selection; if all of it is selected, in the one further out. */
  siblings(): Target[];
  /** What is next to the selection. */
  neighbor(step: Step, tensors: boolean): Target | null;
  save(what: Saving): void;
  /** Where in the viewport a pointer would hit this target; null if it cannot be seen now. */
  locate(target: Target): cameras.Point | null;
}

/** What a stage needs of the view around it. */
export interface Staged {
  state(): State;
  readonly dispatch: Dispatch;
  say(text: string): void;
  /** the camera has come to rest somewhere else */
  rested(at: Standing): void;
  /** colors or fonts of the page are others now */
  dressed(): void;
  /** there is a new scene; `later` than when it was asked for */
  laid(later: boolean): void;
  /** the size of the view is known now: what stands open at first may be chosen by what fits it */
  sized(fits: Fits): void;
  /** the graph could not be laid out */
  failed(error: unknown): void;
  /** the camera has moved, by hand or in a glide */
  looked(): void;
  /** what is different from the graph beside it */
  readonly statuses: DiffStatuses | null;
  /** how high the columns are that the outermost scope is set in at first, world px; 0 for one column */
  readonly start: { readonly columnHeight: number; readonly brief: boolean };
  /** how long a layout may hold up the page, in ms, before it goes on in slices */
  readonly atOnce: number | undefined;
}

/** An edge can be hit from this many screen px. */
const REACH = 6;
/** Below this width panels go under the picture. */
const NARROW = 760;
/** A picture that takes longer than this is moved as a bitmap until it rests. */
const SLOW_MS = 9;
/** … but not longer than this, or than so many times as long as it takes to draw */
const REDRAWN_MS = 300;
const PATIENCE = 25;
const ANIMATION_MS = 180;
/** The picture for the notebook is made when the view has rested for so long, of all of a graph of this size at most. */
const PICTURE_MS = 800;
const PICTURE_PX = 1000;
/** A view that becomes so much smaller or larger before anybody touched it opens anew, px. */
const NOTICED_PX = 12;
/** The camera is told when it has rested for so long. */
const RESTED_MS = 400;

export function createStage(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  { state, dispatch, say, rested, dressed, laid, sized, failed, looked, statuses, atOnce, start }: Staged,
  signal: AbortSignal,
): Stage {
  const cache = createCache();
  let { columnHeight, brief } = start;
  let theme: Theme;
  let measure: Measure;
  /** the same font, for boxes that say all they can, and for such that say it briefly */
  let measures: { readonly whole: Measure; readonly brief: Measure } | null = null;
  let scene: Scene | null = null;
  let index: HitIndex;
  let faults: ReadonlyMap<number, number> = new Map();
  let marks: Marks | null = null;
  let camera: cameras.Camera = { x: 0, y: 0, k: 1 };
  let view: cameras.Size = { w: 0, h: 0 };
  /** the size of the view for which it was chosen what stands open */
  let chosen = view;
  /** where to stand once the size of the view is known */
  let wanted: Standing | null = null;
  let told: cameras.Camera | null = null;
  let resting = 0;
  /** the camera still stands where it was put first, so a new size may put it there again */
  let untouched = true;
  /** when the picture that is due was asked for; null when no mark is due */
  let asked: number | null = performance.now();

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
  const hint = el(
    "div",
    { class: "onnx-nb-hint", attrs: { "aria-hidden": "true" } },
    "Click the graph or hold Ctrl to zoom",
  );
  const frame = el("div", { class: "onnx-nb-frame" });
  frame.hidden = true;
  const tip = createTip(columns);
  const laying = createLaying(() => stayed(), signal, atOnce);
  const stage = el("div", { class: "onnx-nb-stage" }, canvas, frame, map, tip.element, hint, laying.element);

  // ---------------------------------------------------------------- scene and camera

  /** what the scene was made of */
  let made: (Pick<State, "open" | "direction"> & { readonly measure: Measure; readonly columnHeight: number }) | null =
    null;
  /** what is to be shown once the scene that is being laid out is there */
  let afterwards: (() => void) | null = null;
  const rebuild = (anchor: number | null): void => {
    const { open, direction } = state();
    const same = made?.open === open && made.direction === direction && made.measure === measure;
    if (same && made?.columnHeight === columnHeight) {
      laying.stop(); // what is wanted is there
      if (root.dataset.state === "drawn") asked = null; // … and on the screen
      afterwards = null;
      return;
    }
    const parts = { open, direction, measure, columnHeight };
    cache.columnHeight = columnHeight;
    cache.settle();
    const there = (built: Scene, later: boolean): void => {
      made = parts;
      adopt(built, anchor);
      laid(later);
      afterwards?.();
      afterwards = null;
    };
    laying.run(sceneInParts(columns, open, measure, cache, { direction }), there, failed, made === null);
  };
  /** Returns up a layout that is not there yet. */
  const stayed = (): void => {
    if (made === null) dispatch({ type: "collapseAll" });
    else {
      const { open, direction } = made;
      if (state().open !== open) dispatch({ type: "openOnly", groups: open });
      if (state().direction !== direction) dispatch({ type: "direction", direction });
    }
    say("Cancelled");
  };
  const adopt = (built: Scene, anchor: number | null): void => {
    tip.hide(); // what it told of lies elsewhere now
    const before = scene;
    scene = built;
    index = new HitIndex(built, measure);
    faults = faultsOf(built, columns);
    marks = null;
    drawn = null;
    if (untouched && (before === null || anchor === null)) {
      if (view.w > 0) camera = cameras.opening(built.bounds, view, built.direction, startOf(built, view));
      return;
    }
    if (before === null) return;
    // what was clicked, or else what is in the middle, stays where it is
    const kept: Target | null = anchor === null ? inTheMiddle(before) : { kind: "scope", id: anchor };
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
      if (boxes.kind[box] !== BOX.NODE && boxes.kind[box] !== BOX.SCOPE) continue;
      const d = Math.hypot(boxes.x[box] + boxes.w[box] / 2 - x, boxes.y[box] + boxes.h[box] / 2 - y);
      if (d < nearest) {
        nearest = d;
        best = box;
      }
    }
    return best < 0 ? null : boxTarget(scene, best);
  };

  const whenLaid = (act: () => void): void => {
    if (laying.busy) afterwards = act;
    else act();
  };

  let gliding = 0;
  const stopGlide = (): void => {
    cancelAnimationFrame(gliding);
    gliding = 0;
  };
  const glide = (to: cameras.Camera): void => {
    tip.hide();
    stopGlide();
    untouched = false;
    if (view.w === 0 || still() || document.hidden) {
      camera = to;
      redraw();
      looked();
      return;
    }
    const from = camera;
    const start = performance.now();
    const frame = (): void => {
      const t = Math.min(1, (performance.now() - start) / ANIMATION_MS);
      camera = cameras.between(from, to, cameras.ease(t), view);
      moved();
      looked();
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
    if (target.kind === "tensor") {
      if (box >= 0 && (boxes.kind[box] === BOX.INPUT || boxes.kind[box] === BOX.OUTPUT)) return around(box);
      const [edge] = scene.edgesOf(target.id);
      if (edge !== undefined) {
        const { x, y } = middle(scene, edge);
        return { x: x - 70, y: y - 50, w: 140, h: 100 };
      }
    }
    return box >= 0 ? around(box) : null;
  };

  // ---------------------------------------------------------------- drawing

  const ctx = canvas.getContext("2d", { alpha: false });
  let due = 0;
  /** where a picture that takes long to draw is drawn, so that it can be moved */
  let sheet: HTMLCanvasElement | null = null;
  /** from where the sheet was drawn and when; null if it is not what is to be seen */
  let drawn: { readonly camera: cameras.Camera; readonly made: number } | null = null;
  let cost = 0;
  let settle = 0;
  let picturing = 0;

  const redraw = (): void => {
    drawn = null;
    schedule();
  };
  const schedule = (): void => {
    if (due === 0) due = requestAnimationFrame(paint);
  };
  const moved = (): void => {
    schedule();
    window.clearTimeout(settle);
    settle = window.setTimeout(redraw, 90);
  };

  const pictureOf = (scene: Scene): Picture => {
    marks ??= marksOf(scene, columns, state(), faults);
    return { scene, columns, index, marks, theme, measure, overlay: state().overlay, statuses };
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
    if (sheet !== null && drawn !== null && now - drawn.made < Math.max(REDRAWN_MS, PATIENCE * cost)) {
      const s = camera.k / drawn.camera.k;
      const at = cameras.toScreen(camera, drawn.camera.x, drawn.camera.y);
      ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
      ctx.fillStyle = theme.background;
      ctx.fillRect(0, 0, view.w, view.h);
      ctx.drawImage(sheet, at.x, at.y, view.w * s, view.h * s);
    } else if (cost > SLOW_MS) {
      sheet ??= el("canvas");
      if (sheet.width !== canvas.width) sheet.width = canvas.width;
      if (sheet.height !== canvas.height) sheet.height = canvas.height;
      const paper = sheet.getContext("2d", { alpha: false });
      if (paper === null) return;
      draw(paper, pictureOf(scene), camera, view, dpr);
      cost = performance.now() - now;
      drawn = { camera, made: now };
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      ctx.drawImage(sheet, 0, 0);
    } else {
      sheet = null;
      drawn = null;
      draw(ctx, pictureOf(scene), camera, view, dpr);
      cost = performance.now() - now;
    }
    minimap.update(scene, index, theme, camera, view);
    if (!untouched && camera !== told) {
      window.clearTimeout(resting);
      resting = window.setTimeout(tell, RESTED_MS);
    }
    if (asked !== null && !laying.busy) {
      const from = asked;
      const boxes = scene.boxes.count;
      asked = null;
      root.dataset.state = "drawn";
      // the task after a frame runs when the frame is on the screen
      setTimeout(() => {
        if (!signal.aborted) performance.mark("onnx_nb:drawn", { detail: { boxes, ms: performance.now() - from } });
      });
      window.clearTimeout(picturing);
      if (host.picture !== undefined) picturing = window.setTimeout(leavePicture, PICTURE_MS);
    }
  };

  const standing = (): Standing | null => {
    if (view.w === 0) return wanted;
    const { x, y } = cameras.toWorld(camera, view.w / 2, view.h / 2);
    return { x, y, zoom: camera.k };
  };
  const tell = (): void => {
    const at = standing();
    told = camera;
    if (at !== null) rested(at);
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
    root.classList.toggle("onnx-nb-narrow", root.clientWidth > 0 && root.clientWidth < NARROW);
    const { clientWidth: w, clientHeight: h } = stage;
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
    if (untouched && Math.hypot(w - chosen.w, h - chosen.h) > NOTICED_PX) {
      chosen = view;
      sized(fits);
    }
    if (wanted !== null) camera = told = cameras.standing(wanted, view);
    wanted = null;
    if (untouched && scene !== null)
      camera = cameras.opening(scene.bounds, view, scene.direction, startOf(scene, view));
    drawn = null;
    window.cancelAnimationFrame(due);
    due = 0;
    paint(); // at once: a resized canvas is blank until it is painted
  };

  const fits: Fits = (open, zoom, brief, before) => {
    const { direction } = state();
    if (measures === null) return null;
    const measure = brief ? measures.brief : measures.whole;
    const fitting = (columnHeight: number): boolean => {
      cache.columnHeight = columnHeight;
      const { w, h } = extentOf(columns, open, measure, cache, direction);
      return cameras.fitAll({ x: 0, y: 0, w, h }, view).k >= zoom;
    };
    if (before === 0 && fitting(0)) return 0;
    if (direction !== "down") return null;
    // where a column cannot be cut where it should be it becomes higher: lower ones may fit
    const most = (view.h - 2 * cameras.MARGIN) / zoom;
    return [most, 0.84 * most].map(Math.floor).find(fitting) ?? null;
  };

  // ---------------------------------------------------------------- pointer

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
    tip.hide();
    moved();
    looked();
  };

  /** A little further out than all of the graph there is nothing to see. */
  const farthest = (): number => (scene === null ? 0.01 : cameras.fitAll(scene.bounds, view).k * 0.6);

  let hintTimer = 0;
  listenPointer(
    canvas,
    {
      pan: (dx, dy) => look(cameras.pan(camera, dx, dy)),
      zoom: (factor, x, y) => look(cameras.zoom(camera, factor, x, y, farthest())),
      click(x, y, add) {
        const hit = hitAt(x, y);
        if (hit?.part === "toggle" && !add) dispatch({ type: "toggle", group: hit.target.id });
        else if (!add) dispatch({ type: "select", target: hit?.target ?? null });
        else if (hit !== null) dispatch({ type: "also", target: hit.target });
      },
      gathers: () => state().gathering,
      frame(rect) {
        frame.hidden = rect === null;
        if (rect === null) return;
        Object.assign(frame.style, {
          left: `${rect.x}px`,
          top: `${rect.y}px`,
          width: `${rect.w}px`,
          height: `${rect.h}px`,
        });
      },
      gather({ x, y, w, h }, add) {
        frame.hidden = true;
        if (scene === null) return;
        const world = { ...cameras.toWorld(camera, x, y), w: w / camera.k, h: h / camera.k };
        // a tensor that was looked at before is no box
        const kept = add ? selected(state()).filter(({ kind }) => kind !== "tensor") : [];
        dispatch({ type: "selectAll", targets: [...kept, ...touched(scene, index, world)] });
      },
      doubleClick(x, y) {
        const hit = hitAt(x, y);
        if (hit?.part === "box" && hit.target.kind === "scope") dispatch({ type: "toggle", group: hit.target.id });
      },
      hover(at) {
        const hit = at === null ? null : hitAt(at.x, at.y);
        canvas.classList.toggle("onnx-nb-pointing", hit !== null);
        dispatch({ type: "hover", target: hit?.target ?? null });
        if (hit === null || at === null || hit.part === "toggle") tip.hide();
        else tip.show(hit.target, state().overlay, at, view);
      },
      passed() {
        hint.classList.add("onnx-nb-shown");
        window.clearTimeout(hintTimer);
        hintTimer = window.setTimeout(() => hint.classList.remove("onnx-nb-shown"), 1100);
      },
    },
    signal,
  );

  canvas.addEventListener("blur", () => dispatch({ type: "hover", target: null }), { signal });
  const minimap = createMinimap(
    map,
    (x, y) => look({ ...camera, x: x - view.w / camera.k / 2, y: y - view.h / camera.k / 2 }),
    signal,
  );

  // ---------------------------------------------------------------- life

  let font = "";
  /** nothing has a color out of the page, where a cell is before it is shown and while it is scrolled away */
  let undressed = false;
  const dress = (): void => {
    undressed = !root.isConnected;
    theme = readTheme(root, columns.meta.categories);
    if (theme.font === font) return;
    ({ font } = theme);
    const whole = createMeasure(font);
    measures = { whole, brief: briefly(whole) };
    measure = brief ? measures.brief : whole;
    if (scene !== null || laying.busy) rebuild(null);
  };
  const observer = new ResizeObserver(size);
  signal.addEventListener(
    "abort",
    () => {
      observer.disconnect();
      stopGlide();
      window.cancelAnimationFrame(due);
      window.clearTimeout(settle);
      window.clearTimeout(resting);
      window.clearTimeout(picturing);
      window.clearTimeout(hintTimer);
    },
    { once: true },
  );

  let shown: State | undefined;
  return {
    element: stage,
    get scene() {
      return scene;
    },
    get dark() {
      return theme.dark;
    },
    get standing() {
      return standing();
    },
    goTo(at, glides) {
      untouched = false;
      if (view.w === 0) wanted = at;
      else
        whenLaid(() => {
          const next = cameras.standing(at, view);
          const there = scene === null ? next : cameras.keepInSight(next, scene.bounds, view);
          if (glides) glide(there);
          else {
            stopGlide();
            camera = told = there;
            redraw();
          }
        });
    },
    start() {
      watchTheme(
        root,
        () => {
          dress();
          dressed();
        },
        signal,
      );
      dress();
      rebuild(null);
      observer.observe(stage);
      observer.observe(root);
      document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && redraw(), {
        signal,
      });
    },
    rebuild(anchor) {
      asked ??= performance.now();
      rebuild(anchor);
    },
    get columnHeight() {
      return columnHeight;
    },
    set columnHeight(height) {
      columnHeight = height;
    },
    get brief() {
      return brief;
    },
    set brief(wanted) {
      brief = wanted;
      if (measures !== null) measure = wanted ? measures.brief : measures.whole;
    },
    reopen() {
      asked ??= performance.now();
      untouched = true;
      rebuild(null);
    },
    update(next) {
      if (next !== shown) marks = null;
      shown = next;
      redraw();
    },
    get busy() {
      return laying.busy;
    },
    get gliding() {
      return gliding !== 0;
    },
    cancel() {
      if (!laying.busy) return false;
      stayed();
      return true;
    },
    resize: size,
    focus: () => canvas.focus({ preventScroll: true }),
    get stand() {
      return { camera, view };
    },
    standAt(to) {
      stopGlide();
      untouched = false;
      camera = to;
      moved();
    },
    fit: (targets) =>
      whenLaid(() => {
        if (scene === null) return;
        const rects = (targets ?? []).map(place).filter((rect) => rect !== null);
        if (targets === undefined) glide(cameras.fitAll(scene.bounds, view));
        else if (rects.length > 0) glide(cameras.fitAll(cameras.around(rects), view, 48));
      }),
    show: (target, centered = false) =>
      whenLaid(() => {
        const rect = place(target);
        if (rect !== null) glide(cameras.reveal(camera, rect, view, { centered }));
      }),
    zoomBy: (factor) => look(cameras.zoom(camera, factor, view.w / 2, view.h / 2, farthest())),
    siblings: () => (scene === null ? [] : siblingsOf(scene, columns, selected(state()))),
    neighbor: (step, tensors) => (scene === null ? null : walk(scene, columns, state().selection, step, tensors)),
    save,
    locate(target) {
      if (scene === null || view.w === 0) return null;
      const { left, top } = canvas.getBoundingClientRect();
      const inside = (x: number, y: number): boolean => {
        const at = cameras.toScreen(camera, x, y);
        if (at.x < 1 || at.y < 1 || at.x > view.w - 1 || at.y > view.h - 1) return false;
        return document.elementFromPoint === undefined || uncovered(canvas, left + at.x, top + at.y);
      };
      const body = target.kind === "node" ? columns.nodeBody[target.id] : -1;
      const drawn: Target = body >= 0 ? { kind: "scope", id: body } : target;
      const point = index.pointOf(drawn, REACH / camera.k, camera.k, inside);
      if (point === null) return null;
      const at = cameras.toScreen(camera, point.x, point.y);
      return { x: left + at.x, y: top + at.y };
    },
  };
}

/** Where the flow begins: the middle of the boxes in the first row, or of the first one if the view is too narrow for all. */
function startOf({ boxes, direction }: Scene, view: cameras.Size): cameras.Point {
  const { count, kind, x, y, w, h } = boxes;
  const along = direction === "down" ? y : x;
  let first = Number.POSITIVE_INFINITY;
  for (let box = 0; box < count; box++) if (kind[box] !== BOX.OPEN) first = Math.min(first, along[box]);
  // an input, if there is one: the first that the model names
  let top = -1;
  let low = { x: Number.POSITIVE_INFINITY, y: Number.POSITIVE_INFINITY };
  let high = { x: Number.NEGATIVE_INFINITY, y: Number.NEGATIVE_INFINITY };
  for (let box = 0; box < count; box++) {
    if (kind[box] === BOX.OPEN || along[box] > first + 1) continue;
    if (top < 0 || kind[box] === BOX.INPUT) top = kind[top] === BOX.INPUT ? top : box;
    low = { x: Math.min(low.x, x[box]), y: Math.min(low.y, y[box]) };
    high = { x: Math.max(high.x, x[box] + w[box]), y: Math.max(high.y, y[box] + h[box]) };
  }
  const room = (direction === "down" ? view.w : view.h) / cameras.K_LEGIBLE;
  if (top >= 0 && (direction === "down" ? high.x - low.x : high.y - low.y) > room) {
    return { x: x[top] + w[top] / 2, y: y[top] + h[top] / 2 };
  }
  return count === 0 ? { x: 0, y: 0 } : { x: (low.x + high.x) / 2, y: (low.y + high.y) / 2 };
}

/** Whether the person asked their system for less motion. */
function still(): boolean {
  return typeof matchMedia === "function" && matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Whether nothing (legend, map) lies over the canvas at a point, or the point is scrolled out of the window. */
function uncovered(canvas: HTMLCanvasElement, x: number, y: number): boolean {
  const root = canvas.getRootNode() as Document | ShadowRoot;
  const top = root.elementFromPoint(x, y);
  return top === null || top === canvas;
}
