/** Graphs for tests of the layout, from a small readable description. */

import { type Graph, PORTS } from "./graph.ts";

/** A graph from "0>1,2" (a tensor that box 0 makes and 1 and 2 read), "^>0" (from the upper border), "0>_" (to the lower). */
export function graphOf(
  boxes: number,
  edges: readonly string[],
  sizes: (box: number) => [number, number] = () => [100, 40],
): Graph {
  const end = (word: string): number => (word === "^" || word === "_" ? -1 : word === "?" ? -2 : Number(word));
  const source = edges.map((edge) => end(edge.split(">")[0] ?? ""));
  const sinks = edges.map((edge) =>
    (edge.split(">")[1] ?? "")
      .split(",")
      .filter((word) => word !== "")
      .map(end),
  );
  const ptr = Uint32Array.from([0, ...sinks.map((_, e) => sinks.slice(0, e + 1).flat().length)]);
  const sink = Int32Array.from(sinks.flat());
  const made = new Map<number, number>();
  const read = new Map<number, number>();
  const slot = (slots: Map<number, number>, box: number): number => {
    const next = slots.get(box) ?? 0;
    slots.set(box, next + 1);
    return next;
  };
  const zeros = (n: number): Float64Array => new Float64Array(n);
  return {
    width: Float64Array.from({ length: boxes }, (_, box) => sizes(box)[0]),
    height: Float64Array.from({ length: boxes }, (_, box) => sizes(box)[1]),
    ports: new Uint8Array(boxes).fill(PORTS.ORDERED),
    weight: zeros(boxes).fill(1),
    source: Int32Array.from(source),
    ptr,
    sink,
    outSlot: Int32Array.from(source, (box) => slot(made, box)),
    inSlot: Int32Array.from(sink, (box) => slot(read, box)),
    outOffset: zeros(source.length),
    inOffset: zeros(sink.length),
    outWay: zeros(source.length),
    inWay: zeros(sink.length),
    labelWidth: zeros(source.length).fill(80),
    labelLength: zeros(source.length).fill(12),
    nameWidth: zeros(source.length).fill(40),
    nameLength: zeros(source.length).fill(12),
  };
}

/** Random but always the same. */
export function randomGraph(seed: number, boxes: number, edges: number, cycles: boolean, tall = 0): Graph {
  const next = random(seed);
  const list: string[] = [];
  for (let e = 0; e < edges; e++) {
    const from = next(10) === 0 ? "^" : String(next(boxes));
    const readers = new Set<string>();
    for (let k = next(3); k >= 0; k--) {
      const to = next(boxes);
      if (from === "^" || to > Number(from) || (cycles && to !== Number(from))) readers.add(String(to));
    }
    if (next(12) === 0) readers.add("_");
    list.push(`${from}>${[...readers].join(",")}`);
  }
  const heights = Array.from({ length: boxes }, (_, box) =>
    next(100) < tall ? 100 + next(900) : box % 11 === 0 ? 160 : 24 + 15 * (box % 3),
  );
  return graphOf(boxes, list, (box) => [60 + ((box * 37) % 140), heights[box] as number]);
}

/** Whole numbers below n, always the same ones for a seed. */
export function random(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}
