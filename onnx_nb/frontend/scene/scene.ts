/** The drawn graph: boxes and edges of every open scope, in world pixels, as structures of arrays. */

import type { Target } from "../protocol/columns.ts";
import type { Direction } from "../protocol/host.ts";

/** Kinds of a box. The id of a node or scope box is that node or scope, of an input or output pill its value. */
export const BOX = { NODE: 0, SCOPE: 1, OPEN: 2, INPUT: 3, OUTPUT: 4 } as const;

/** Returns whether a box is that of an input or output. */
export const isPill = (kind: number): boolean => kind === BOX.INPUT || kind === BOX.OUTPUT;

export interface Point {
  readonly x: number;
  readonly y: number;
}

export interface Size {
  readonly w: number;
  readonly h: number;
}

export interface Rect extends Point, Size {}

/** Parents come before their children. */
export interface Boxes {
  readonly count: number;
  readonly kind: Uint8Array;
  readonly id: Int32Array;
  /** the open box around it, −1 at the root */
  readonly parent: Int32Array;
  readonly depth: Uint8Array;
  readonly x: Float32Array;
  readonly y: Float32Array;
  readonly w: Float32Array;
  readonly h: Float32Array;
}

/**
 * One edge per tensor, scope and consumer in that scope. An edge that enters an open box ends at the port on its border
 * and continues inside as another edge of the same value (fromBox = that open box).
 */
export interface Edges {
  readonly count: number;
  readonly value: Int32Array;
  /** −1: the value has no producer */
  readonly fromBox: Int32Array;
  /** −1: a tail at the producer of a value that is drawn as stubs or has no reader */
  readonly toBox: Int32Array;
  /** the open box around it, −1 at the root */
  readonly scope: Int32Array;
  /** edge e has points[2·ptr[e]] … points[2·ptr[e+1] − 1], as x, y pairs from port to port */
  readonly ptr: Uint32Array;
  /** the curve between two points has tangents along the direction of the layout */
  readonly points: Float32Array;
  /** 1: read in a body, from outside the body */
  readonly outerScope: Uint8Array;
  /** left end and vertical middle of the text `edgeLabel`, NaN where there is none */
  readonly labelX: Float32Array;
  readonly labelY: Float32Array;
  /** equal numbers for many tensors of one type between the same two boxes, −1 for all others */
  readonly bundle: Int32Array;
  /** 1: only the two ends are drawn, as short tails with the tensor's name */
  readonly stub: Uint8Array;
}

/** The open scopes, each after its parent; the boxes and edges of a scope are consecutive. */
export interface OpenScopes {
  readonly count: number;
  /** the open box around it, −1 for the root */
  readonly box: Int32Array;
  /** scope s has the boxes boxPtr[s] … boxPtr[s+1] − 1 and the edges edgePtr[s] … edgePtr[s+1] − 1 */
  readonly boxPtr: Uint32Array;
  readonly edgePtr: Uint32Array;
  /** box → the scope inside it, −1 where it is not open */
  readonly inside: Int32Array;
}

export type Pair = readonly [key: string, value: string];

export interface Label {
  /** op type, name of a scope, name of an input or output; bold */
  readonly title: string;
  /** dim, after the title: class of a scope and "×32", shape and dtype of an input or output */
  readonly sub: string;
  /** rows under the title: weights and scalars by formal name, attributes; the key is italic and may be "" */
  readonly lines: readonly (readonly Pair[])[];
}

export interface Scene {
  readonly direction: Direction;
  readonly boxes: Boxes;
  readonly edges: Edges;
  readonly scopes: OpenScopes;
  readonly bounds: Rect;
  /** Returns the nearest visible box that shows a target (a node in a closed scope → that scope), −1 if none does. */
  boxOf(kind: Target["kind"], id: number): number;
  /** Returns the edges that show a value, in every open scope. */
  edgesOf(value: number): Uint32Array;
  /** Returns the boxes that produce or read a value. */
  boxesOfValue(value: number): { readonly producer: number; readonly consumers: readonly number[] };
  /** Returns the text in a box, elided to fit. */
  label(box: number): Label;
  /** Returns "batch×seq×768 f32", or the name of a stub's tensor. */
  edgeLabel(edge: number): string;
}

/** Returns how far a box moved between two scenes, to move the camera as far; 0 if one of them does not show it. */
export function keepInPlace(before: Scene, after: Scene, { kind, id }: Target): { dx: number; dy: number } {
  const was = before.boxOf(kind, id);
  const now = after.boxOf(kind, id);
  if (was < 0 || now < 0) return { dx: 0, dy: 0 };
  return { dx: after.boxes.x[now] - before.boxes.x[was], dy: after.boxes.y[now] - before.boxes.y[was] };
}
