/**
 * Lays out the open scopes. If that takes long, the old scene stays until the new one is ready, and requests to show
 * something in it wait as well.
 */

import { createCache, fitsInto, sceneInParts } from "../layout/build.ts";
import * as cameras from "../render/camera.ts";
import { createMeasure } from "../render/theme.ts";
import { briefly, type Measure } from "../scene/labels.ts";
import type { Fits } from "../scene/opening.ts";
import type { Scene } from "../scene/scene.ts";
import type { State } from "../scene/state.ts";
import { button, el, onAbort } from "../ui/dom.ts";
import type { ViewContext } from "./viewcontext.ts";

export interface SceneEvents {
  /** `late`: the page was drawn in between; `anchor`: the scope that keeps its place */
  ready(scene: Scene, anchor: number | null, late: boolean): void;
  /** the current scene is already the wanted one */
  onUnchanged(): void;
  onFailure(error: unknown): void;
  size(): cameras.Size;
}

/** The input of a layout. */
interface Ingredients {
  readonly open: ReadonlySet<number>;
  readonly direction: State["direction"];
  readonly measure: Measure;
  readonly columnHeight: number;
}

export class SceneLoader {
  readonly #view: ViewContext;
  readonly #events: SceneEvents;
  /** for full and for brief labels: the search for the open scopes tries both */
  readonly #caches = { full: createCache(), brief: createCache() };
  readonly #scheduler: ReturnType<typeof createLayoutScheduler>;
  #font = "";
  #measures: { readonly full: Measure; readonly brief: Measure } | null = null;
  #lastIngredients: Ingredients | null = null;
  #afterwards: (() => void) | null = null;
  /** world px of the height of the columns of the outermost scope; 0 for one column */
  columnHeight: number;
  /** boxes have one line */
  brief: boolean;

  /** @param maxBlockingMs milliseconds that a layout may block the page before it continues in slices */
  constructor(
    view: ViewContext,
    start: { readonly columnHeight: number; readonly brief: boolean },
    events: SceneEvents,
    maxBlockingMs?: number,
  ) {
    this.#view = view;
    this.#events = events;
    this.columnHeight = start.columnHeight;
    this.brief = start.brief;
    this.#scheduler = createLayoutScheduler(() => this.#restore(), view.signal, maxBlockingMs);
  }

  get element(): HTMLElement {
    return this.#scheduler.element;
  }

  get busy(): boolean {
    return this.#scheduler.busy;
  }

  get measure(): Measure {
    if (this.#measures === null) throw new Error("the font is not known yet");
    return this.brief ? this.#measures.brief : this.#measures.full;
  }

  /** Takes the font of the page; lays out boxes again if it has changed, or was not loaded before. */
  setFont(font: string): void {
    const full = createMeasure(font);
    const width = (measure?: Measure): number | undefined => measure?.("kernel_shape", 100, false);
    if (font === this.#font && width(full) === width(this.#measures?.full)) return;
    this.#font = font;
    this.#measures = { full, brief: briefly(full) };
    if (this.#lastIngredients !== null || this.busy) this.load(null);
  }

  /** Lays out the open scopes once the font is known; `anchor`, a scope, or else the middle of the view keeps its place. */
  load(anchor: number | null): void {
    if (this.#measures === null) return; // the first size comes with the font, and has them laid out
    const { open, direction } = this.#view.state();
    const ingredients: Ingredients = { open, direction, measure: this.measure, columnHeight: this.columnHeight };
    const previousIngredients = this.#lastIngredients;
    const fields = ["open", "direction", "measure", "columnHeight"] as const;
    if (previousIngredients !== null && fields.every((field) => previousIngredients[field] === ingredients[field])) {
      this.#scheduler.stop();
      this.#events.onUnchanged();
      this.#afterwards = null;
      return;
    }
    const { full, brief } = this.#caches;
    const cache = this.brief ? brief : full;
    cache.columnHeight = ingredients.columnHeight;
    for (const cache of [full, brief]) cache.settle(direction);
    const parts = sceneInParts(this.#view.columns, open, ingredients.measure, cache, { direction, room: this.#room() });
    const ready = (scene: Scene, late: boolean): void => {
      this.#lastIngredients = ingredients;
      this.#events.ready(scene, anchor, late);
      this.#afterwards?.();
      this.#afterwards = null;
    };
    this.#scheduler.run(parts, ready, (error) => this.#events.onFailure(error), previousIngredients === null);
  }

  /** Acts once the scene under way is ready. */
  whenReady(act: () => void): void {
    if (this.busy) this.#afterwards = act;
    else act();
  }

  /** Cancels a layout that is under way; false if there is none. */
  cancel(): boolean {
    const busy = this.busy;
    if (busy) this.#restore();
    return busy;
  }

  #restore(): void {
    const { state, dispatch, announce } = this.#view;
    if (this.#lastIngredients === null) dispatch({ type: "collapseAll" });
    else {
      const { open, direction } = this.#lastIngredients;
      if (state().open !== open) dispatch({ type: "openOnly", scopes: open });
      if (state().direction !== direction) dispatch({ type: "direction", direction });
    }
    announce("Cancelled");
  }

  /** Returns the px that a scene should fit; undefined while the view has no size. */
  #room({ w, h }: cameras.Size = this.#events.size(), zoom = 1): cameras.Size | undefined {
    return w === 0 ? undefined : { w: (w - 2 * cameras.MARGIN) / zoom, h: (h - 2 * cameras.MARGIN) / zoom };
  }

  /** Returns what `fits` depends on, besides the columns. */
  place(view: cameras.Size): string {
    return `${view.w} ${view.h} ${this.#view.state().direction} ${this.#font}`;
  }

  /** Returns the column height at which the scopes in `open` fit a view at a zoom, null if they do not fit. */
  fits(view: cameras.Size): Fits {
    return (open, zoom, brief, before) => {
      const { direction } = this.#view.state();
      const room = this.#room(view, zoom);
      if (this.#measures === null || room === undefined) return null;
      const measure = brief ? this.#measures.brief : this.#measures.full;
      const cache = brief ? this.#caches.brief : this.#caches.full;
      const fitting = (columnHeight: number): boolean => {
        cache.columnHeight = columnHeight;
        return fitsInto(room, this.#view.columns, open, measure, cache, direction);
      };
      if (before === 0 && fitting(0)) return 0;
      if (direction !== "down") return null;
      // a column that cannot be divided at this height becomes higher: a lower height may fit
      const height = room.h;
      return [height, 0.84 * height].map(Math.floor).find(fitting) ?? null;
    };
  }
}

/** Milliseconds that the layout after a click may block the page, and the first layout of all. */
const AT_ONCE_MS = 30;
const FIRST_MS = 250;
/** Milliseconds of each slice of a layout that takes longer. */
const SLICE_MS = 16;
/** Milliseconds after which the progress is shown. */
const SHOWN_MS = 150;

/**
 * Lays out in slices, so that the page stays responsive; shows its progress and can be cancelled. A worker would need
 * a second copy of the graph, could not run in an exported page, and would not finish sooner there.
 *
 * @param maxBlockingMs milliseconds that a click may take
 */
export function createLayoutScheduler(cancel: () => void, signal: AbortSignal, maxBlockingMs = AT_ONCE_MS) {
  const bar = el("progress", { max: 1, "aria-label": "Laying out" });
  const element = el(
    "div.onnx-nb-layout",
    { hidden: true },
    el("span", "Laying out…"),
    bar,
    button("Stop", cancel, signal, { title: "Leave the graph as it was (Esc)" }),
  );

  let next = 0;
  let begin = 0;
  const stop = (): void => {
    window.clearTimeout(next);
    next = 0;
    element.hidden = true;
  };
  onAbort(signal, stop);

  return {
    element,
    /** a layout is under way */
    get busy(): boolean {
      return next !== 0;
    },
    /**
     * Continues a layout until it is ready: immediately if that takes no longer than a click may, or if a person sees
     * nothing yet (`first`), else in later tasks. Drops a layout under way.
     */
    run<T>(
      parts: Generator<number, T>,
      there: (result: T, afterPaint: boolean) => void,
      onFailure: (error: unknown) => void,
      first = false,
    ): void {
      stop();
      begin = performance.now();
      const slice = (length: number): void => {
        const afterPaint = next !== 0;
        const deadline = performance.now() + length;
        try {
          for (;;) {
            const { done, value } = parts.next();
            if (done === true) {
              stop();
              there(value, afterPaint);
              return;
            }
            if (performance.now() < deadline) continue;
            element.hidden = performance.now() - begin < SHOWN_MS;
            bar.value = value;
            next = window.setTimeout(slice, 0, SLICE_MS);
            return;
          }
        } catch (error) {
          stop();
          onFailure(error);
        }
      };
      slice(first ? Math.max(FIRST_MS, maxBlockingMs) : maxBlockingMs);
    },
    stop,
  };
}
