/** Graphs for tests of the layout, from a small readable description. */

import { type Graph, type Layout, PORTS, STUB } from "./graph.ts";

/** Parses "0>1,2" (a tensor from box 0 to boxes 1 and 2), "^>0" (from the upper border), "0>_" (to the lower one). */
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

/** Returns a random graph that is always the same for a seed. */
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

/** Returns a generator of whole numbers below n, always the same ones for a seed. */
export function random(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

/** Returns the faults of a layout as text. */
export function faults(graph: Graph, layout: Layout): string[] {
  const found: string[] = [];
  const n = graph.width.length;
  const right = (box: number): number => layout.x[box] + graph.width[box];
  const bottom = (box: number): number => layout.y[box] + graph.height[box];
  for (let a = 0; a < n; a++) {
    for (let b = a + 1; b < n; b++) {
      const apart =
        layout.x[a] >= right(b) || layout.x[b] >= right(a) || layout.y[a] >= bottom(b) || layout.y[b] >= bottom(a);
      if (!apart) found.push(`boxes ${a} and ${b} overlap`);
    }
    const inside = layout.x[a] >= -0.01 && right(a) <= layout.width + 0.01 && bottom(a) <= layout.height + 0.01;
    if (!inside) found.push(`box ${a} lies outside`);
  }
  for (let e = 0; e < graph.source.length; e++) {
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) found.push(...lineFaults(graph, layout, e, k));
  }
  return [...found, ...textFaults(graph, layout)];
}

interface Room {
  readonly what: string;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** Returns labels that are missing, outside, or over a box or each other, likewise stubs' names, and crossed names. */
function textFaults(graph: Graph, layout: Layout): string[] {
  const found: string[] = [];
  const texts: Room[] = [];
  const tails: Room[] = [];
  for (let e = 0; e < graph.source.length; e++) {
    const [left, middle, half] = [layout.labelX[e], layout.labelY[e], graph.labelLength[e] / 2];
    if (Number.isNaN(left)) {
      if (graph.labelWidth[e] > 0 && graph.source[e] >= -1) found.push(`tensor ${e} has no label`);
    } else {
      const right = left + graph.labelWidth[e];
      texts.push({ what: `label ${e}`, left, right, top: middle - half, bottom: middle + half });
    }
    for (let k = graph.ptr[e]; k < graph.ptr[e + 1]; k++) {
      if (layout.stub[k] === 0) continue;
      const at = 2 * layout.linePtr[k];
      const [x, top, bottom] = [layout.line[at], layout.line[at + 1], layout.line[at + 3]];
      tails.push({ what: `tail ${k}`, left: x, right: x, top, bottom });
      const start = x - STUB.lead;
      const under = top - STUB.above;
      texts.push({
        what: `name ${k}`,
        left: start,
        right: start + graph.nameWidth[e],
        top: under - graph.nameLength[e],
        bottom: under,
      });
    }
  }
  const boxes = Array.from(graph.width, (width, box): Room => {
    const [left, top] = [layout.x[box], layout.y[box]];
    return { what: `box ${box}`, left, right: left + width, top, bottom: top + graph.height[box] };
  });
  texts.forEach((text, index) => {
    if (text.left < -8 || text.right > layout.width + 0.01 || text.top < 0 || text.bottom > layout.height) {
      found.push(`${text.what} lies outside`);
    }
    for (const other of [...boxes, ...tails, ...texts.slice(index + 1)]) {
      const apart =
        text.right <= other.left || other.right <= text.left || text.bottom <= other.top || other.bottom <= text.top;
      if (!apart) found.push(`${text.what} covers ${other.what}`);
    }
  });
  return found;
}

function lineFaults(graph: Graph, layout: Layout, e: number, k: number): string[] {
  const found: string[] = [];
  const from = graph.source[e];
  const to = graph.sink[k];
  const line = `line ${from} → ${to}`;
  const points: [number, number][] = [];
  for (let p = layout.linePtr[k]; p < layout.linePtr[k + 1]; p++) {
    points.push([layout.line[2 * p], layout.line[2 * p + 1]]);
  }
  const first = points[0];
  const last = points.at(-1);
  if (first === undefined || last === undefined || points.length < 2) return [`${line} is not drawn`];
  const near = (a: number, b: number): boolean => Math.abs(a - b) < 0.1;
  const within = (x: number, box: number): boolean => x > layout.x[box] && x < layout.x[box] + graph.width[box];
  const endY = to >= 0 ? layout.y[to] : layout.height;
  if (!near(last[1], endY) || !near(last[0], layout.inX[k]) || (to >= 0 && !within(last[0], to))) {
    found.push(`${line} does not end at its port`);
  }
  if (layout.stub[k]) {
    const length = last[1] - first[1];
    if (length < STUB.length || length > STUB.most || first[0] !== last[0]) found.push(`${line} is no stub`);
  } else {
    const startY = from >= 0 ? layout.y[from] + graph.height[from] : 0;
    if (!near(first[1], startY) || !near(first[0], layout.outX[e]) || (from >= 0 && !within(first[0], from))) {
      found.push(`${line} does not begin at its port`);
    }
  }
  for (const [x, y] of curve(points)) {
    for (let box = 0; box < graph.width.length; box++) {
      if (
        within(x, box) &&
        x - layout.x[box] > 0.5 &&
        layout.x[box] + graph.width[box] - x > 0.5 &&
        y > layout.y[box] + 0.5 &&
        y < layout.y[box] + graph.height[box] - 0.5
      ) {
        return [...found, `${line} crosses box ${box}`];
      }
    }
  }
  return found;
}

/** Returns points on the drawn curve: vertical tangents at every point of the line. */
function curve(points: readonly [number, number][]): [number, number][] {
  const found: [number, number][] = [];
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1] as [number, number];
    const [x1, y1] = points[i] as [number, number];
    for (let t = 0; t <= 1; t += 1 / 16) {
      const s = t * t * (3 - 2 * t);
      const rise = 1.5 * t * (1 - t) + t * t * t; // the cubic with control points at half the height
      found.push([x0 + (x1 - x0) * s, y0 + (y1 - y0) * rise]);
    }
  }
  return found;
}
