/** Edge bundling: many tensors between the same two boxes are drawn as one band, like a flat cable. */

import { append } from "../protocol/columns.ts";
import type { Scene } from "../scene/scene.ts";
import { along } from "./curve.ts";

/** The outermost lines of many that are too close to distinguish, and one in their middle. */
export interface Band {
  readonly first: number;
  readonly last: number;
  readonly middle: number;
}

/** Pixels on screen below which the lines of a bundle become one band. */
const DENSE = 7.5;
/** World pixels between neighbors beyond which a box may be between them; each side becomes a band of its own. */
const MAX_NEIGHBOR_GAP = 40;

/** Runs of neighbors in each bundle, independent of the zoom. */
const runsByScene = new WeakMap<Scene, Map<number, readonly (readonly number[])[]>>();

/** Divides the lines of one bundle into bands, where they are too dense, and single lines. */
export function bandsOf(scene: Scene, bundle: readonly number[], k: number): { bands: Band[]; lines: number[] } {
  const bands: Band[] = [];
  const lines: number[] = [];
  const { ptr, points } = scene.edges;
  const across = scene.direction === "down" ? 0 : 1;
  const begin = (edge: number): number => points[2 * ptr[edge] + across];
  const end = (edge: number): number => points[2 * ptr[edge + 1] - 2 + across];
  const members = new Set(bundle);
  for (const run of runsOf(scene).get(scene.edges.bundle[bundle[0]]) ?? []) {
    const there = members.size === run.length ? run : run.filter((edge) => members.has(edge));
    if (there.length === 0) continue;
    const [first, last, middle] = [there[0], there[there.length - 1], there[there.length >> 1]];
    const wide = Math.max(begin(last) - begin(first), Math.abs(end(last) - end(first)));
    if (there.length < 3 || (wide * k) / (there.length - 1) >= DENSE) lines.push(...there);
    else bands.push({ first, last, middle });
  }
  return { bands, lines };
}

function runsOf(scene: Scene): Map<number, readonly (readonly number[])[]> {
  const before = runsByScene.get(scene);
  if (before !== undefined) return before;
  const { bundle, count, points, ptr } = scene.edges;
  const across = scene.direction === "down" ? 0 : 1;
  const bundles = new Map<number, number[]>();
  for (let edge = 0; edge < count; edge++) {
    if (bundle[edge] >= 0) append(bundles, bundle[edge], edge);
  }
  const runsByBundle = new Map<number, readonly (readonly number[])[]>();
  for (const [number, members] of bundles) {
    members.sort((a, b) => points[2 * ptr[a] + across] - points[2 * ptr[b] + across]);
    const runs: number[][] = [];
    members.forEach((edge, at) => {
      if (at === 0 || diverge(scene, members[at - 1], edge)) runs.push([edge]);
      else runs[runs.length - 1].push(edge);
    });
    runsByBundle.set(number, runs);
  }
  runsByScene.set(scene, runsByBundle);
  return runsByBundle;
}

/** Returns whether two lines diverge far enough for a box between them. */
function diverge(scene: Scene, a: number, b: number): boolean {
  const { ptr, points } = scene.edges;
  const flow = scene.direction === "down" ? 1 : 0;
  for (const [edge, neighbor] of [
    [a, b],
    [b, a],
  ] as const) {
    for (let p = ptr[edge]; p < ptr[edge + 1]; p++) {
      const there = acrossAt(scene, neighbor, points[2 * p + flow]);
      if (Math.abs(there - points[2 * p + 1 - flow]) > MAX_NEIGHBOR_GAP) return true;
    }
  }
  return false;
}

/** Returns the position of a line across the flow, at a position along it. */
function acrossAt({ edges, direction }: Scene, edge: number, place: number): number {
  const { ptr, points } = edges;
  const flow = direction === "down" ? 1 : 0;
  for (let p = ptr[edge]; p + 1 < ptr[edge + 1]; p++) {
    const [x0, y0, x1, y1] = points.subarray(2 * p, 2 * p + 4);
    const [from, to] = flow === 1 ? [y0, y1] : [x0, x1];
    if (place > Math.max(from, to) || place < Math.min(from, to)) continue;
    // along the flow a piece runs nearly evenly
    const { x, y } = along(x0, y0, x1, y1, to === from ? 0 : (place - from) / (to - from), direction);
    return flow === 1 ? x : y;
  }
  const end = place < points[2 * ptr[edge] + flow] ? ptr[edge] : ptr[edge + 1] - 1;
  return points[2 * end + 1 - flow];
}
