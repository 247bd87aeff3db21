/**
 * The part of the view with the picture: the scene for the current state, the camera over it, the map and the
 * pointer. It changes no state itself; it dispatches what a person does here.
 */

import type { Target } from "../protocol/columns.ts";
import type { CameraPosition } from "../protocol/host.ts";
import * as cameras from "../render/camera.ts";
import { middle, type Picture } from "../render/canvas.ts";
import { boxOf, faultsOf, type Marks, marksOf } from "../render/highlights.ts";
import { boxTarget, HitIndex, type PointerHit } from "../render/hit.ts";
import { type ArrowStep, siblingsOf, targetsIn, walk } from "../render/navigation.ts";
import { toSvg } from "../render/svg.ts";
import { isDrawnDark, readTheme, type Theme, watchTheme } from "../render/theme.ts";
import type { DiffStatuses } from "../scene/diffstatus.ts";
import type { Fits } from "../scene/opening.ts";
import { BOX, isPill, keepInPlace, type Scene } from "../scene/scene.ts";
import { type Saving, type State, selectionOf } from "../scene/state.ts";
import { el, elide, hasFocus, on, onAbort, onResize, placeTooltip } from "../ui/dom.ts";
import { drawnAs } from "../ui/still.ts";
import { CameraControl } from "./cameracontrol.ts";
import { savePicture, snapshot } from "./export.ts";
import { createHints } from "./hints.ts";
import { createMinimap } from "./minimap.ts";
import { isStill, MOTION, motionBetween } from "./motion.ts";
import { createPainter } from "./painter.ts";
import { createPeek } from "./peek.ts";
import { type Gestures, listenPointer } from "./pointer.ts";
import { createSceneLoader, type Proportions } from "./sceneloader.ts";
import { describe, factsOf, type ViewContext } from "./viewcontext.ts";

/** Settings of a viewport, and its events for the view around it. */
export interface ViewportOptions {
  /** the camera has come to rest at a new place */
  onRest(at: CameraPosition): void;
  /** colors or fonts of the page have changed */
  onRestyle(): void;
  /** there is a new scene; `late`: the page was drawn in between */
  onLoad(late: boolean): void;
  /** the size of the view is now known, so the scopes that are open at first can be chosen to fit it */
  onSize(fits: Fits, where: string, first: boolean): void;
  /** the graph could not be laid out */
  onFailure(error: unknown): void;
  /** the camera has moved, by hand or in a glide */
  onLook(): void;
  /** a person asks for the menu of a target, at a point of the window */
  onMenu(target: Target, at: cameras.Point): void;
  /** a person asks for what a double click on a target does; `at`: where its label is in the window */
  onDoubleClick(target: Target, at: cameras.Point): void;
  /** differences from the graph that this one is compared with */
  statuses(): DiffStatuses | null;
  /** two graphs side by side have one layout, whatever the size of each */
  readonly isPaired: boolean;
  readonly start: Proportions;
  /** milliseconds that a layout may block the page before it continues in slices */
  readonly maxBlockingMs: number | undefined;
}

/** Screen pixels from an edge within which it can be hit. */
const REACH = 6;
/** Pixels of width below which panels go under the picture. */
const NARROW = 760;
/** Pixels by which an untouched view must change its size before the open scopes are chosen again. */
const NOTICED_PX = 12;
/** Milliseconds that the hint about the wheel is shown. */
const HINT_MS = 1100;
/** Pixels from the corner of a popup to the text in its field: its left end, its middle. */
const FIELD = { left: 14, middle: 18 };

export class Viewport {
  /** panels may overlap the picture */
  readonly element: HTMLElement;
  /** null until a layout is ready, and if the graph could not be drawn */
  scene: Scene | null = null;
  readonly #root: HTMLElement;
  readonly #view: ViewContext;
  readonly #options: ViewportOptions;
  readonly #canvas: HTMLCanvasElement;
  readonly #tooltip = el("div.onnx-nb-tooltip", { "aria-hidden": "true", hidden: true });
  readonly #hint = el("div.onnx-nb-hint", { "aria-hidden": "true" }, "Click the graph or hold Ctrl to zoom");
  readonly #control: CameraControl;
  readonly #painter: ReturnType<typeof createPainter>;
  readonly #loader: ReturnType<typeof createSceneLoader>;
  readonly #map = el("canvas.onnx-nb-map", { "aria-hidden": "true" });
  readonly #minimap: ReturnType<typeof createMinimap>;
  readonly #peek: ReturnType<typeof createPeek>;
  readonly #hints: ReturnType<typeof createHints>;
  #theme: Theme | null = null;
  /** the theme was not read yet, or outside the page, where nothing has a color */
  #needsStyle = true;
  #index: HitIndex | null = null;
  /** the scene on the way to its places; null at rest */
  #moving: Scene | null = null;
  #motionFrame = 0;
  #faults: ReadonlyMap<number, number> = new Map();
  #marks: Marks | null = null;
  #shownState: State | null = null;
  /** is in view at first, although the view begins elsewhere */
  opening: Target | null = null;
  /** the size of the view for which the open scopes were chosen */
  #chosenFor: cameras.Size = { w: 0, h: 0 };
  /** time at which the scene was requested, for `performance.mark`; null once reported */
  #requestTime: number | null = performance.now();
  #hintTimer = 0;

  constructor(root: HTMLElement, view: ViewContext, options: ViewportOptions) {
    this.#root = root;
    this.#view = view;
    this.#options = options;
    const { columns, dispatch, signal } = view;
    const onLook = (): void => {
      this.dismiss();
      options.onLook();
    };
    const [redraw, onMove] = [() => this.#painter.redraw(), () => this.#painter.onMove()];
    this.#control = new CameraControl({ redraw, onMove, onLook, onRest: options.onRest }, signal);
    const ready = (scene: Scene, anchor: number | null, late: boolean): void => {
      this.#adopt(scene, anchor);
      options.onLoad(late);
    };
    const onUnchanged = (): void => {
      if (root.dataset.state === "drawn") this.#requestTime = null; // it is on the screen
    };
    const { start, onFailure, maxBlockingMs } = options;
    const size = (): cameras.Size => (options.isPaired ? { w: 0, h: 0 } : this.#control.view);
    this.#loader = createSceneLoader(view, start, { ready, onUnchanged, onFailure, size }, maxBlockingMs);
    const name = elide(columns.meta.name || "model", 80);
    this.#canvas = el("canvas.onnx-nb-canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "graph",
      "aria-label": `Graph of ${name}. Move along it with the arrow keys, press ? for all keys; the tree has the same content.`,
    });
    const rubberBand = el("div.onnx-nb-rubberband", { hidden: true });
    this.element = el("div.onnx-nb-viewport", this.#canvas, rubberBand, this.#map, this.#tooltip, this.#hint);
    this.#peek = createPeek(view);
    this.#hints = createHints(view.host, signal);
    this.element.append(this.#hints.element, this.#loader.element, this.#peek.element);
    const painterEvents = {
      picture: () => this.#pictureNow(),
      onResize: () => this.resize(),
      onPaint: (picture: Picture) => this.#onPaint(picture),
    };
    this.#painter = createPainter(this.#canvas, this.#control, painterEvents, signal);
    listenPointer(this.#canvas, this.#gestures(rubberBand), signal);
    on(this.#canvas, "blur", signal, () => dispatch({ type: "hover", target: null }));
    this.#minimap = createMinimap(this.#map, (x, y) => this.#center(x, y), signal);
    onAbort(signal, () => {
      window.clearTimeout(this.#hintTimer);
      cancelAnimationFrame(this.#motionFrame);
    });
    drawnAs(this.#canvas, () => this.#still((picture) => toSvg(picture, this.#control)));
  }

  /** Draws as soon as the element has a size, for which the open scopes are chosen. */
  start(): void {
    const { signal } = this.#view;
    const restyle = (): void => {
      this.#readStyle();
      this.#options.onRestyle();
    };
    watchTheme(this.#root, restyle, signal);
    on(this.#root, "keydown", signal, ({ key }) => key === " " || this.dismiss());
    const leave = ({ target }: Event) => this.#peek.element.contains(target as Node) || this.dismiss();
    on(this.#root, "pointerdown", signal, leave);
    document.fonts?.addEventListener("loadingdone", restyle, { signal });
    onResize([this.element, this.#root], signal, () => this.resize());
    document.addEventListener("visibilitychange", () => this.#painter.redraw(), { signal });
  }

  // ---------------------------------------------------------------- scene

  get layout(): Proportions {
    return this.#loader.layout;
  }

  /** a layout is under way */
  get busy(): boolean {
    return this.#loader.busy;
  }

  /**
   * Lays out the open scopes; `anchor`, a scope, or else the middle of the view keeps its place. If it takes long the
   * old scene stays until the new one is ready, and requests of `fit` and `show` wait as well.
   */
  rebuild(anchor: number | null, layout = this.layout): void {
    this.#requestTime ??= performance.now();
    this.#loader.load(anchor, layout);
  }

  /** Lays out and places the camera again, because nothing kept its place. */
  reopen(): void {
    this.#control.isUntouched = true;
    this.rebuild(null);
  }

  /** Cancels a layout that is under way; false if there is none. */
  cancel(): boolean {
    return this.#loader.cancel();
  }

  update(next: State): void {
    if (next !== this.#shownState) this.#marks = null;
    if (next.submodel?.origin === "extract") this.#hints.end();
    this.#shownState = next;
    this.#painter.redraw();
  }

  #adopt(scene: Scene, anchor: number | null): void {
    this.dismiss();
    const [before, from] = [this.scene, this.#control.camera];
    this.scene = scene;
    this.#index = new HitIndex(scene, this.#loader.measure);
    this.#faults = faultsOf(scene, this.#view.columns);
    this.#marks = null;
    this.#painter.invalidate();
    if (this.#control.isUntouched && (before === null || anchor === null)) this.#open(scene);
    else if (before !== null) {
      const anchorTarget: Target | null = anchor === null ? this.#inTheMiddle(before) : { kind: "scope", id: anchor };
      if (anchorTarget === null) return;
      const { dx, dy } = keepInPlace(before, scene, anchorTarget);
      this.#control.moveTo({ ...from, x: from.x + dx, y: from.y + dy });
    }
    this.#move(this.#moving ?? before, scene, from);
  }

  /** Moves the boxes from where they are on the screen. */
  #move(before: Scene | null, scene: Scene, from: cameras.Camera): void {
    cancelAnimationFrame(this.#motionFrame);
    this.#moving = null;
    if (before === null || scene.boxes.count > MOTION.most || this.#control.view.w === 0 || isStill()) return;
    const motion = motionBetween(before, scene, from, this.#control.camera);
    const start = performance.now();
    const step = (): void => {
      const t = Math.min(1, (performance.now() - start) / MOTION.ms);
      this.#moving = t < 1 ? motion(cameras.ease(t)) : null;
      this.#painter.redraw();
      if (t < 1) this.#motionFrame = requestAnimationFrame(step);
    };
    step();
  }

  /** Shows the beginning of a scene, or as much of it as fits around what must be in view. */
  #open(scene: Scene): void {
    this.#control.open(scene);
    const rect = this.opening === null ? null : this.#place(this.opening);
    const { camera, view } = this.#control;
    if (rect !== null && view.w > 0) this.#control.camera = cameras.reveal(camera, rect, view);
  }

  #inTheMiddle(scene: Scene): Target | null {
    const { camera, view } = this.#control;
    const center = cameras.toWorld(camera, view.w / 2, view.h / 2);
    const { count, kind, x, y, w, h } = scene.boxes;
    const distance = (box: number): number =>
      Math.hypot(x[box] + w[box] / 2 - center.x, y[box] + h[box] / 2 - center.y);
    let nearestBox = -1; // whose distance is NaN
    for (let box = 0; box < count; box++)
      if ((kind[box] === BOX.NODE || kind[box] === BOX.SCOPE) && !(distance(box) >= distance(nearestBox)))
        nearestBox = box;
    return nearestBox < 0 ? null : boxTarget(scene, nearestBox);
  }

  // ---------------------------------------------------------------- drawing

  get isDark(): boolean {
    return isDrawnDark(this.#root);
  }

  #readStyle(): void {
    this.#needsStyle = !this.#root.isConnected;
    this.#theme = readTheme(this.#root, this.#view.columns.meta.categories);
    this.#loader.setFont(this.#theme.font);
  }

  #picture(): Picture | null {
    const statuses = this.#options.statuses();
    const [scene, index, theme] = [this.scene, this.#index, this.#theme];
    if (scene === null || index === null || theme === null) return null;
    const state = this.#view.state();
    const { measure } = this.#loader;
    const columns = this.#loader.columns();
    this.#marks ??= marksOf(scene, columns, state, this.#faults);
    return { scene, columns, index, marks: this.#marks, theme, measure, overlay: state.overlay, statuses };
  }

  #pictureNow(): Picture | null {
    const [picture, scene] = [this.#picture(), this.#moving];
    return picture && (scene === null ? picture : { ...picture, scene, index: new HitIndex(scene, picture.measure) });
  }

  #onPaint({ theme }: Picture): void {
    const [scene, index] = [this.scene, this.#index];
    if (scene === null || index === null) return;
    const { camera, view } = this.#control;
    this.#minimap.update(scene, index, theme, camera, view);
    this.#hints.place(scene, camera);
    this.#control.scheduleReport();
    if (this.#requestTime === null || this.busy) return;
    const from = this.#requestTime;
    this.#requestTime = null;
    this.#root.dataset.state = "drawn";
    // the task after an animation frame runs when that frame is on the screen
    setTimeout(() => {
      if (!this.#view.signal.aborted)
        performance.mark("onnx_nb:drawn", { detail: { boxes: scene.boxes.count, ms: performance.now() - from } });
    });
  }

  /** Returns the picture for the notebook. */
  still(): string | null {
    return this.#still((picture) => snapshot(picture, this.#control));
  }

  /** Draws without what follows the pointer. */
  #still(draw: (picture: Picture) => string): string | null {
    const picture = this.#picture();
    if (picture === null || this.#control.view.w === 0) return null;
    const state = { ...this.#view.state(), hover: null };
    return draw({ ...picture, marks: marksOf(picture.scene, this.#view.columns, state, this.#faults) });
  }

  /** color below everything */
  get ground(): string {
    return this.#theme?.background ?? "#ffffff";
  }

  save(what: Saving): void {
    const picture = this.#picture();
    if (picture !== null) void savePicture(what, picture, this.#control, this.#view.announce);
  }

  /** Takes the size of its element. */
  resize(): void {
    const root = this.#root;
    root.classList.toggle("onnx-nb-narrow", root.clientWidth > 0 && root.clientWidth < NARROW);
    const { clientWidth: w, clientHeight: h } = this.element;
    const control = this.#control;
    if (w === 0 || h === 0) {
      control.view = { w: 0, h: 0 };
      return;
    }
    if (this.#needsStyle) {
      this.#readStyle();
      this.#painter.redraw();
    }
    if (control.view.w === w && control.view.h === h && this.#painter.fits(w)) return;
    control.resize({ w, h });
    if (control.isUntouched && Math.hypot(w - this.#chosenFor.w, h - this.#chosenFor.h) > NOTICED_PX) {
      const first = this.#chosenFor.w === 0;
      this.#chosenFor = control.view;
      this.#options.onSize(this.#loader.fits(control.view), this.#loader.place(control.view), first);
    }
    if (this.scene === null && !this.busy) this.#loader.load(null);
    if (control.isUntouched && this.scene !== null) this.#open(this.scene);
    this.#painter.resize();
  }

  // ---------------------------------------------------------------- camera

  /** viewpoint, independent of the size of the view; null while nothing is in view */
  get viewpoint(): CameraPosition | null {
    return this.#control.viewpoint;
  }

  /** the camera and the size of the picture */
  get position(): CameraControl {
    return this.#control;
  }

  /** Goes to a viewpoint, immediately or gliding. */
  goTo(at: CameraPosition, glides: boolean): void {
    this.#control.isUntouched = false;
    if (this.#control.view.w === 0) this.#control.destination = at;
    else this.#loader.whenReady(() => this.#control.goTo(at, this.scene, glides));
  }

  /** Leaves the movement under way out of the reports, once the scene is ready. */
  follow(): void {
    this.#loader.whenReady(() => this.#control.follow());
  }

  /** Moves the camera immediately; does not call `onLook`. */
  moveTo(to: cameras.Camera): void {
    this.#control.moveTo(to);
    this.#painter.onMove();
  }

  /** Shows the whole graph, or the boxes of some targets; `keepsZoom`: moves as little as possible where they have room. */
  fit(targets?: readonly Target[], keepsZoom = false): void {
    this.#loader.whenReady(() => {
      const { camera, view } = this.#control;
      const bounds = targets === undefined ? this.scene?.bounds : this.#boundsOf(targets);
      if (bounds === undefined) return;
      const hasRoom = keepsZoom && bounds.w * camera.k < view.w && bounds.h * camera.k < view.h;
      this.#glide(hasRoom ? cameras.reveal(camera, bounds, view) : cameras.fitAll(bounds, view, targets && 48));
    });
  }

  /** Moves the camera to a target: as little as possible, or until the target is in the middle of the view. */
  show(target: Target, toCenter = false): void {
    this.#loader.whenReady(() => {
      const rect = this.#place(target);
      const { camera, view } = this.#control;
      if (rect === null) return;
      const next = cameras.reveal(camera, rect, view, { toCenter });
      this.#glide(this.#isUnderMap(rect, next) ? cameras.reveal(next, rect, view, { toCenter: true }) : next);
    });
  }

  /** Returns whether the map would cover something of a rectangle. */
  #isUnderMap({ x, y, w, h }: cameras.Rect, camera: cameras.Camera): boolean {
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = this.#map; // of no size where it is hidden
    const [first, last] = [cameras.toScreen(camera, x, y), cameras.toScreen(camera, x + w, y + h)];
    if (offsetWidth === 0 || last.x < offsetLeft || last.y < offsetTop) return false;
    return first.x < offsetLeft + offsetWidth && first.y < offsetTop + offsetHeight;
  }

  /** The innermost open scope that takes half of the view, in its middle; 0 if there is none. */
  get middleScope(): number {
    const { camera, view } = this.#control;
    const [at, half] = [cameras.toWorld(camera, view.w / 2, view.h / 2), (view.w * view.h) / camera.k ** 2 / 2];
    const { boxes } = this.scene ?? { boxes: null };
    for (let box = this.#index?.boxAt(at.x, at.y) ?? -1; boxes !== null && box >= 0; box = boxes.parent[box])
      if (boxes.kind[box] === BOX.OPEN && boxes.w[box] * boxes.h[box] >= half) return boxes.id[box];
    return 0;
  }

  zoomBy(factor: number): void {
    const { view } = this.#control;
    this.#zoom(factor, view.w / 2, view.h / 2);
  }

  get hasFocus(): boolean {
    return hasFocus(this.#canvas);
  }

  focus(): void {
    this.#canvas.focus({ preventScroll: true });
  }

  #glide(to: cameras.Camera): void {
    this.dismiss();
    this.#control.glide(to);
  }

  #zoom(factor: number, x: number, y: number): void {
    const { camera, view } = this.#control;
    // zooming further out than the whole scene shows nothing more
    const minZoom = this.scene === null ? 0.01 : cameras.fitAll(this.scene.bounds, view).k * 0.6;
    this.#control.look(cameras.zoom(camera, factor, x, y, minZoom), this.scene);
  }

  #center(x: number, y: number): void {
    const { camera, view } = this.#control;
    const { k } = camera;
    this.#control.look({ x: x - view.w / k / 2, y: y - view.h / k / 2, k }, this.scene);
  }

  /** Returns the world rectangle around targets; undefined if none is drawn. */
  #boundsOf(targets: readonly Target[]): cameras.Rect | undefined {
    const rects = targets.map((target) => this.#place(target)).filter((rect) => rect !== null);
    return rects.length === 0 ? undefined : cameras.boundsOf(rects);
  }

  /** Returns the world rectangle of a drawn target. */
  #place(target: Target): cameras.Rect | null {
    const { scene } = this;
    if (scene === null) return null;
    const { kind, x, y, w, h } = scene.boxes;
    const box = boxOf(scene, this.#view.columns, target);
    const [edge] = target.kind === "tensor" && !isPill(kind[box]) ? scene.edgesOf(target.id) : [];
    if (edge !== undefined) {
      const at = middle(scene, edge);
      return { x: at.x - 70, y: at.y - 50, w: 140, h: 100 };
    }
    return box < 0 ? null : { x: x[box], y: y[box], w: w[box], h: h[box] };
  }

  // ---------------------------------------------------------------- pointer and keys

  /** Returns everything in the scope around the selection; if all of it is selected, in the scope further out. */
  siblings(): Target[] {
    return this.scene === null ? [] : siblingsOf(this.scene, this.#view.columns, selectionOf(this.#view.state()));
  }

  /** Returns the target next to the selection. */
  neighbor(step: ArrowStep, tensors: boolean): Target | null {
    const { selection } = this.#view.state();
    return this.scene === null ? null : walk(this.scene, this.#view.columns, selection, step, tensors);
  }

  /** Returns where in the window a pointer would hit this target; null if it cannot be seen now. */
  locate(target: Target): cameras.Point | null {
    const { camera, view } = this.#control;
    if (this.#index === null || view.w === 0) return null;
    const inside = (x: number, y: number): boolean => {
      const at = cameras.toScreen(camera, x, y);
      if (at.x < 1 || at.y < 1 || at.x > view.w - 1 || at.y > view.h - 1) return false;
      return document.elementFromPoint === undefined || isVisibleAt(this.#canvas, this.#inWindow(at.x, at.y));
    };
    const body = target.kind === "node" ? this.#view.columns.nodeBody[target.id] : -1;
    const drawnTarget: Target = body >= 0 ? { kind: "scope", id: body } : target;
    const point = this.#index.pointOf(drawnTarget, REACH / camera.k, camera.k, inside);
    if (point === null) return null;
    const at = cameras.toScreen(camera, point.x, point.y);
    return this.#inWindow(at.x, at.y);
  }

  /** Opens the menu of a target, by default where it is drawn, or else in a corner of the view. */
  openMenu(target: Target, at = this.locate(target) ?? this.#inWindow(0, 0)): void {
    this.dismiss();
    this.#options.onMenu(target, at);
  }

  /** Does what a double click on a target does. */
  activate(target: Target): void {
    this.#tooltip.hidden = true;
    this.#options.onDoubleClick(target, this.#labelOf(target) ?? this.locate(target) ?? this.#inWindow(0, 0));
  }

  /** Returns where in the window a field covers the label of a tensor; null if the label is not in view. */
  #labelOf(target: Target): cameras.Point | null {
    if (this.scene === null || target.kind !== "tensor") return null;
    const { camera, view } = this.#control;
    const { labelX, labelY } = this.scene.edges;
    const [edge] = this.scene.edgesOf(target.id);
    const at = cameras.toScreen(camera, labelX[edge], labelY[edge]);
    // NaN without an edge or a label: no comparison holds
    const isInView = at.x > 0 && at.y > 0 && at.x < view.w && at.y < view.h;
    return isInView ? this.#inWindow(at.x - FIELD.left, at.y - FIELD.middle) : null;
  }

  /** Shows the inside of a closed scope, under the pointer or else selected; false if there is none. */
  peek(): boolean {
    const picture = this.#picture();
    if (picture === null) return false;
    const { scene, columns } = picture;
    const { kind, id, x, y, w } = scene.boxes;
    const { hover, selection } = this.#view.state();
    const boxes = [hover, selection].map((target) => (target === null ? -1 : boxOf(scene, columns, target)));
    const box = boxes.find((candidate) => kind[candidate] === BOX.SCOPE);
    if (box === undefined) return false;
    const { camera, view } = this.#control;
    this.#peek.show(id[box], picture, cameras.toScreen(camera, x[box] + w[box], y[box]), view);
    return true;
  }

  /** Hides the tooltip and the inside of a scope; false if the latter was not shown. */
  dismiss(): boolean {
    const { element } = this.#peek;
    const isOpen = !element.hidden;
    this.#tooltip.hidden = element.hidden = true;
    return isOpen;
  }

  #inWindow(x: number, y: number): cameras.Point {
    const { left, top } = this.#canvas.getBoundingClientRect();
    return { x: left + x, y: top + y };
  }

  #hitAt(x: number, y: number): PointerHit | null {
    const { camera } = this.#control;
    const world = cameras.toWorld(camera, x, y);
    return this.#index?.hit(world.x, world.y, REACH / camera.k, camera.k) ?? null;
  }

  #gestures(rubberBand: HTMLElement): Gestures {
    const { state, dispatch } = this.#view;
    const control = this.#control;
    return {
      pan: (dx, dy) => control.look(cameras.pan(control.camera, dx, dy), this.scene),
      zoom: (factor, x, y) => this.#zoom(factor, x, y),
      click: (x, y, add) => {
        const hit = this.#hitAt(x, y);
        if (hit?.part === "toggle" && !add) dispatch({ type: "toggle", scope: hit.target.id });
        else if (!add) dispatch({ type: "select", target: hit?.target ?? null });
        else if (hit !== null) dispatch({ type: "also", target: hit.target });
      },
      selects: () => state().gathering,
      band: (rect) => {
        rubberBand.hidden = rect === null;
        if (rect === null) return;
        const { x: left, y: top, w: width, h: height } = rect;
        for (const [side, px] of Object.entries({ left, top, width, height })) {
          rubberBand.style.setProperty(side, `${px}px`);
        }
      },
      select: ({ x, y, w, h }, add) => {
        rubberBand.hidden = true;
        if (this.scene === null || this.#index === null) return;
        const { camera } = control;
        const world = { ...cameras.toWorld(camera, x, y), w: w / camera.k, h: h / camera.k };
        // a tensor that was selected before is not a box
        const before = add ? selectionOf(state()).filter(({ kind }) => kind !== "tensor") : [];
        dispatch({ type: "selectAll", targets: [...before, ...targetsIn(this.scene, this.#index, world)] });
      },
      doubleClick: (x, y) => {
        const hit = this.#hitAt(x, y);
        if (hit !== null && hit.part !== "toggle") this.activate(hit.target);
      },
      menu: (x, y) => {
        const hit = this.#hitAt(x, y);
        if (hit !== null) this.openMenu(hit.target, this.#inWindow(x, y));
        return hit !== null;
      },
      hover: (at) => {
        const hit = at === null ? null : this.#hitAt(at.x, at.y);
        this.#canvas.classList.toggle("onnx-nb-pointing", hit !== null);
        dispatch({ type: "hover", target: hit?.target ?? null });
        if (hit === null || at === null || hit.part === "toggle") this.#tooltip.hidden = true;
        else this.#showTooltip(hit.target, at);
      },
      // the wheel zooms only with Ctrl or after a click
      onPlainWheel: () => {
        this.#hint.classList.add("onnx-nb-shown");
        window.clearTimeout(this.#hintTimer);
        this.#hintTimer = window.setTimeout(() => this.#hint.classList.remove("onnx-nb-shown"), HINT_MS);
      },
    };
  }

  /** @param at px of the view */
  #showTooltip(target: Target, at: cameras.Point): void {
    const tooltip = this.#tooltip;
    const { columns } = this.#view;
    const { overlay } = this.#view.state();
    const { title, sub } = describe(columns, target);
    const attributes = target.kind === "node" ? columns.str(columns.nodeAttributes[target.id]) : "";
    const remark = sub === "" ? "" : el("span", ` ${elide(sub, 90)}`);
    tooltip.replaceChildren(el("b", elide(title, 70) || "(unnamed)"), remark);
    const path = target.kind === "scope" ? columns.str(columns.scopePath[target.id]) : "";
    for (const line of [attributes, path === title ? "" : path, factsOf(columns, target).join(" · ")])
      if (line !== "") tooltip.append(el("div.onnx-nb-dim", elide(line, 90)));
    if (overlay !== null && target.kind !== "tensor") {
      const x = overlay.number(target.kind === "node" ? BOX.NODE : BOX.SCOPE, target.id);
      tooltip.append(el("div", elide(`${overlay.data.label || "value"}: ${overlay.say(x)}`, 90)));
    }
    tooltip.hidden = false;
    const { w, h } = this.#control.view;
    placeTooltip(tooltip, at.x, at.y, w, h);
  }
}

/** Returns whether a point is inside the window and nothing (legend, map) covers the canvas there. */
function isVisibleAt(canvas: HTMLCanvasElement, { x, y }: cameras.Point): boolean {
  const root = canvas.getRootNode() as Document | ShadowRoot;
  const top = root.elementFromPoint(x, y);
  return top === null || top === canvas;
}
