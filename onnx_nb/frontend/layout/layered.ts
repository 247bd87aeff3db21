/**
 * Layered layout of one scope, after Sugiyama: rows (rank.ts), order within rows (order.ts), x with straight spines
 * (place.ts), ports, lines and labels (route.ts). Deterministic; coordinates are px, flow runs down from y = 0.
 */

import type { Graph, Layout } from "./graph.ts";
import { crossed, type Layers, layer } from "./order.ts";
import { place } from "./place.ts";
import { assignRanks, spansOf } from "./rank.ts";
import { route } from "./route.ts";

export function layered(graph: Graph): Layout {
  const layers = inRows(graph);
  return route(graph, layers, place(graph, layers));
}

/** A tall box that lines would have to cross is put into one row, which becomes tall. */
function inRows(graph: Graph): Layers {
  const span = spansOf(graph);
  for (let attempt = 0; ; attempt++) {
    const layers = layer(graph, assignRanks(graph, span));
    const boxes = crossed(layers);
    if (boxes.length === 0) return layers;
    if (attempt === ATTEMPTS) span.fill(1);
    for (const box of boxes) span[box] = 1;
  }
}

const ATTEMPTS = 3;
