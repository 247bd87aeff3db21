/** The words in a box and on an edge, elided to fit, and the size of the box that holds them. */

/** Width of a text in px; bold is weight 600. Injected: the browser asks a canvas, tests count characters. */
export type Measure = (text: string, fontPx: number, bold: boolean) => number;

export type Pair = readonly [key: string, value: string];

export interface Label {
  /** op type, name of a group, name of an input or output; bold */
  readonly title: string;
  /** dim, after the title: class of a group and "×32", shape and dtype of an input or output */
  readonly sub: string;
  /** rows under the title: weights and scalars by formal name, attributes; the key is italic and may be "" */
  readonly lines: readonly (readonly Pair[])[];
  /** the whole text where something was elided, else "" */
  readonly full: string;
}

/** Where text stands in a box, in px from its top left corner (`y` is the baseline), as in shared/look/graph.py. */
export const TEXT = {
  title: 12,
  line: 10.5,
  pill: 11.5,
  edge: 10,
  /** a node's text begins right of its colour stripe */
  node: { x: 13, titleY: 16, lineY: 31, lineStep: 15 },
  /** "+" or "–" at x, the title at titleX, rows at lineX */
  group: { x: 12, titleX: 28, titleY: 18, lineX: 28, lineY: 33, lineStep: 15 },
  /** between title and sub, and between two pairs of a row */
  gap: 8,
  /** between key and value of a pair */
  keyGap: 4,
} as const;
