/**
 * Layered layout of one scope, after Sugiyama: rows (rank.ts), order within rows (order.ts), x with straight spines
 * (place.ts), ports, lines and labels (route.ts). Deterministic; coordinates are px, flow runs down from y = 0.
 */

import type { Graph, Layout } from "./graph.ts";
import { layer } from "./order.ts";
import { place } from "./place.ts";
import { assignRanks } from "./rank.ts";
import { route } from "./route.ts";

export function layered(graph: Graph): Layout {
  const layers = layer(graph, assignRanks(graph));
  return route(graph, layers, place(graph, layers));
}
