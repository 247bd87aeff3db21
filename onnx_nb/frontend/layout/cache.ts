/** Layouts, sizes and labels that survive from one scene of a model to the next. */

import type { Columns } from "../protocol/columns.ts";
import type { Direction } from "../protocol/host.ts";
import { Interner } from "../scene/interner.ts";
import { Labels, type Measure, TEXT } from "../scene/labels.ts";
import { BOX, isPill } from "../scene/scene.ts";
import type { ScopeGraph } from "../scene/scopegraph.ts";
import type { Graph, Layout } from "./graph.ts";
import { layeredLayout } from "./layered.ts";
import { type Divider, divider } from "./multicolumn.ts";

/** Aspect ratios, width to height on screen: of the view, and of open scopes that hold less than half of the nodes. */
export interface Page {
  readonly view: number;
  readonly scope: number;
}

/** A layout in one column, what divides it, and the sizes it was computed for. */
export interface DividableLayout {
  readonly width: Float64Array;
  readonly height: Float64Array;
  readonly layout: Layout;
  readonly divider: Divider;
}

/** Arrangement of one scope, relative to the left end of its upper border, before title and padding. */
export interface Arrangement {
  readonly scope: ScopeGraph;
  readonly undivided: DividableLayout;
  /** the layout of `undivided`, or its division into columns */
  readonly layout: Layout;
  /** size of each item as drawn (not turned) */
  readonly w: Float64Array;
  readonly h: Float64Array;
  /** arrangement of each open scope among the items, by item; empty if no item is a scope */
  readonly inner: readonly (Arrangement | undefined)[];
  /** size of the surrounding box, and the origin of the layout inside it */
  readonly frame: { readonly w: number; readonly h: number; readonly x: number; readonly y: number };
}

/** Caches the scope graphs of one model, box sizes, and layouts by their signature. */
export class Cache {
  #columns: Columns | undefined;
  #measure: Measure | undefined;
  #labels: Labels | undefined;
  /** w, h of every node, and of every scope closed and open; 0 if not computed yet */
  #nodeSize = new Float32Array(0);
  #scopeSize = new Float32Array(0);
  readonly #layouts = new Interner<DividableLayout>();
  /** latest arrangement of each scope, and the latest in each fold */
  readonly #latestByDirection = { down: new Map<number, Arrangement>(), right: new Map<number, Arrangement>() };
  readonly #byFold = new Map<string, Map<number, Arrangement>>();
  readonly #texts = new Map<string, number>();
  /** Pixels: height of the columns of the outermost scope in downward flow, 0 for one column. */
  columnHeight = 0;
  /** Folds every scope to a page instead. */
  page: Page | null = null;

  /** Clears everything if the model or the font has changed. */
  use(columns: Columns, measure: Measure): void {
    if (this.#columns === columns && this.#measure === measure) return;
    this.#columns = columns;
    this.#measure = measure;
    this.#labels = new Labels(columns, measure);
    this.#nodeSize = new Float32Array(2 * columns.nodeCount);
    this.#scopeSize = new Float32Array(4 * columns.scopeCount);
    this.#texts.clear();
    this.forgetLayouts();
  }

  /** Clears the layouts, so that a benchmark can lay out twice. */
  forgetLayouts(): void {
    this.#layouts.clear();
    this.#byFold.clear();
    for (const arrangements of Object.values(this.#latestByDirection)) arrangements.clear();
  }

  /** Drops the arrangements for heights that were only tried, and for pages of other views. */
  settle(direction: Direction): void {
    const [fold, pages] = [this.#fold(direction), `${direction} ${this.page?.view},`];
    for (const other of this.#byFold.keys()) if (other !== fold && !other.startsWith(pages)) this.#byFold.delete(other);
  }

  /** Returns the latest arrangement of every scope, and that in this fold; the caller checks their validity. */
  arrangements(direction: Direction): Record<"arranged" | "latest", Map<number, Arrangement>> {
    const fold = this.#fold(direction);
    const arrangements = this.#byFold.get(fold) ?? new Map<number, Arrangement>();
    this.#byFold.set(fold, arrangements);
    return { arranged: arrangements, latest: this.#latestByDirection[direction] };
  }

  #fold(direction: Direction): string {
    return `${direction} ${this.page === null ? this.columnHeight : Object.values(this.page)}`;
  }

  get labels(): Labels {
    return this.#labels as Labels;
  }

  size(kind: number, id: number): { w: number; h: number } {
    const sizes = kind === BOX.NODE ? this.#nodeSize : this.#scopeSize;
    const at = kind === BOX.NODE ? 2 * id : 4 * id + (kind === BOX.OPEN ? 2 : 0);
    if (isPill(kind)) return even(this.labels.of(kind, id));
    if (sizes[at] === 0) {
      const { w, h } = even(this.labels.of(kind, id));
      sizes[at] = w;
      sizes[at + 1] = h;
    }
    return { w: sizes[at], h: sizes[at + 1] };
  }

  textWidth(text: string): number {
    let width = this.#texts.get(text);
    if (width === undefined) {
      width = Math.ceil((this.#measure as Measure)(text, TEXT.edge, false));
      this.#texts.set(text, width);
    }
    return width;
  }

  /** Returns the layout of a graph, which equal graphs share. */
  layout(graph: Graph): DividableLayout {
    const { width, height } = graph;
    return this.#layouts.of(Object.values(graph), () => {
      const layout = layeredLayout(graph);
      return { width, height, layout, divider: divider(graph, layout) };
    });
  }
}

/** Rounds up to even sizes, whose middle is on a whole pixel. */
function even({ w, h }: { w: number; h: number }): { w: number; h: number } {
  return { w: Math.ceil(w / 2) * 2, h: Math.ceil(h) };
}
