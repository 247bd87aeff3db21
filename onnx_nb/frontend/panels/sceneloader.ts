/**
 * Lays out the open scopes. If that takes long, the old scene stays until the new one is ready, and requests to show
 * something in it wait as well.
 */

import { createCache, fitsInto, sceneInParts } from "../layout/build.ts";
import { type Columns, oncePerModel } from "../protocol/columns.ts";
import * as cameras from "../render/camera.ts";
import { createMeasure } from "../render/theme.ts";
import { briefly, type Measure } from "../scene/labels.ts";
import type { Fits } from "../scene/opening.ts";
import type { Scene } from "../scene/scene.ts";
import type { State } from "../scene/state.ts";
import { button, el, onAbort } from "../ui/dom.ts";
import type { ViewContext } from "./viewcontext.ts";

/** The shape of a layout. */
export interface Proportions {
  /** world px of the height of the columns of the outermost scope; 0 for one column */
  readonly columnHeight: number;
  /** boxes have one line */
  readonly brief: boolean;
}

/** The input of a layout. */
interface Ingredients extends Pick<State, "open" | "direction" | "plumbing">, Pick<Proportions, "columnHeight"> {
  readonly measure: Measure;
}

const purified = oncePerModel((columns) => columns.withoutPlumbing());

/** @param maxBlockingMs milliseconds that a layout may block the page before it continues in slices */
export function createSceneLoader(
  { columns: whole, state, dispatch, announce, signal }: ViewContext,
  start: Proportions,
  events: {
    /** `late`: the page was drawn in between; `anchor`: the scope that keeps its place */
    ready(scene: Scene, anchor: number | null, late: boolean): void;
    onUnchanged(): void;
    onFailure(error: unknown): void;
    size(): cameras.Size;
  },
  maxBlockingMs?: number,
) {
  /** for full and for brief labels: the search for the open scopes tries both */
  const caches = { full: createCache(), brief: createCache() };
  const scheduler = createLayoutScheduler(() => restore(), signal, maxBlockingMs);
  let layout = start;
  let lastFont = "";
  let measures: { readonly full: Measure; readonly brief: Measure } | null = null;
  let lastIngredients: Ingredients | null = null;
  let afterwards: (() => void)[] = [];

  const columns = (): Columns => (state().plumbing ? whole : purified(whole));
  const restore = (): void => {
    if (lastIngredients === null) dispatch({ type: "collapseAll" });
    else {
      const { open, direction, plumbing } = lastIngredients;
      if (state().open !== open) dispatch({ type: "openOnly", scopes: open });
      if (state().direction !== direction) dispatch({ type: "direction", direction });
      if (state().plumbing !== plumbing) dispatch({ type: "plumbing", plumbing });
    }
    announce("Cancelled");
  };
  const measureNow = (): Measure => {
    if (measures === null) throw new Error("the font is not known yet");
    return measures[layout.brief ? "brief" : "full"];
  };
  /** Returns the px that a scene should fit; undefined while the view has no size. */
  const roomIn = ({ w, h }: cameras.Size, zoom = 1): cameras.Size | undefined =>
    w === 0 ? undefined : { w: (w - 2 * cameras.MARGIN) / zoom, h: (h - 2 * cameras.MARGIN) / zoom };
  /** Lays out the open scopes once the font is known; `anchor`, a scope, or else the middle of the view keeps its place. */
  const load = (anchor: number | null, proportions = layout): void => {
    layout = proportions;
    if (measures === null) return; // the first size comes with the font, and has them laid out
    const { open, direction, plumbing } = state();
    const { columnHeight } = layout;
    const ingredients: Ingredients = { open, direction, plumbing, measure: measureNow(), columnHeight };
    const names = Object.keys(ingredients) as (keyof Ingredients)[];
    if (names.every((name) => lastIngredients?.[name] === ingredients[name])) {
      scheduler.stop();
      events.onUnchanged();
      afterwards = [];
      return;
    }
    const cache = caches[layout.brief ? "brief" : "full"];
    cache.columnHeight = columnHeight;
    for (const cache of [caches.full, caches.brief]) cache.settle(direction);
    const room = roomIn(events.size());
    const parts = sceneInParts(columns(), open, ingredients.measure, cache, { direction, room });
    const ready = (scene: Scene, late: boolean): void => {
      lastIngredients = ingredients;
      events.ready(scene, anchor, late);
      for (const act of afterwards.splice(0)) act();
    };
    scheduler.run(parts, ready, events.onFailure, lastIngredients === null);
  };
  return {
    element: scheduler.element,
    load,
    columns,
    get busy(): boolean {
      return scheduler.busy;
    },
    get measure(): Measure {
      return measureNow();
    },
    get layout(): Proportions {
      return layout;
    },
    /** Takes the font of the page; lays out boxes again if it has changed, or was not loaded before. */
    setFont(font: string): void {
      const full = createMeasure(font);
      const width = (measure?: Measure): number | undefined => measure?.("kernel_shape", 100, false);
      if (font === lastFont && width(full) === width(measures?.full)) return;
      lastFont = font;
      measures = { full, brief: briefly(full) };
      if (lastIngredients !== null || scheduler.busy) load(null);
    },
    /** Acts once the scene under way is ready, in the order of the calls. */
    whenReady(act: () => void): void {
      if (scheduler.busy) afterwards.push(act);
      else act();
    },
    /** Cancels a layout that is under way; false if there is none. */
    cancel(): boolean {
      const { busy } = scheduler;
      if (busy) restore();
      return busy;
    },
    /** Returns what `fits` depends on, besides the columns. */
    place: ({ w, h }: cameras.Size): string => `${w} ${h} ${state().direction} ${lastFont}`,
    /** Returns the column height at which the scopes in `open` fit a view at a zoom, null if they do not fit. */
    fits(view: cameras.Size): Fits {
      return (open, zoom, brief, before) => {
        const { direction } = state();
        const room = roomIn(view, zoom);
        if (measures === null || room === undefined) return null;
        const [measure, cache] = brief ? [measures.brief, caches.brief] : [measures.full, caches.full];
        const fitting = (columnHeight: number): boolean => {
          cache.columnHeight = columnHeight;
          return fitsInto(room, columns(), open, measure, cache, direction);
        };
        if (before === 0 && fitting(0)) return 0;
        if (direction !== "down") return null;
        // a column that cannot be divided at this height becomes higher: a lower height may fit
        return [room.h, 0.84 * room.h].map(Math.floor).find(fitting) ?? null;
      };
    },
  };
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
  const halt = button("Stop", cancel, signal, { title: "Leave the graph as it was (Esc)" });
  const element = el("div.onnx-nb-layout", { hidden: true }, el("span", "Laying out…"), bar, halt);

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
