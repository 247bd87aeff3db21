/**
 * Builds the scene of a model with some of its scopes open. Inner scopes are laid out first and become boxes of their
 * parents; equal scopes share one layout through the cache.
 */

import type { Columns } from "../protocol/columns.ts";
import { arrangeAll } from "./arrange.ts";
import { assemble } from "./assemble.ts";
import { Cache } from "./cache.ts";
import type { Measure } from "./labels.ts";
import type { Direction, Scene } from "./scene.ts";

export interface Options {
  readonly direction?: Direction;
}

export function createCache(): Cache {
  return new Cache();
}

export function buildScene(
  columns: Columns,
  open: ReadonlySet<number>,
  measure: Measure,
  cache: Cache,
  options: Options = {},
): Scene {
  const building = sceneInParts(columns, open, measure, cache, options);
  for (;;) {
    const { done, value } = building.next();
    if (done === true) return value;
  }
}

/** The same in parts of a few milliseconds each; yields the fraction that is done. */
export function* sceneInParts(
  columns: Columns,
  open: ReadonlySet<number>,
  measure: Measure,
  cache: Cache,
  options: Options = {},
): Generator<number, Scene> {
  cache.use(columns, measure);
  const direction = options.direction ?? "down";
  const root = yield* arrangeAll(columns, open, cache, direction, measure);
  return yield* assemble(columns, root, cache, measure, direction);
}

/** Size of the scene with some scopes open, without building it. */
export function extentOf(
  columns: Columns,
  open: ReadonlySet<number>,
  measure: Measure,
  cache: Cache,
  direction: Direction,
): { readonly w: number; readonly h: number } {
  cache.use(columns, measure);
  const arranging = arrangeAll(columns, open, cache, direction, measure);
  for (;;) {
    const { done, value } = arranging.next();
    if (done === true) return { w: value.layout.width, h: value.layout.height };
  }
}
