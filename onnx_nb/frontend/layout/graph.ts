/** Input and output of the layered layout: structures of arrays, in px. */

/** Placement of the ports of a box: ordered for a node, free for a closed scope, fixed for an open scope. */
export const PORTS = { ORDERED: 0, FREE: 1, FIXED: 2 } as const;

/** Boxes and hyperedges; sinks of hyperedge e are ptr[e] … ptr[e+1] − 1. */
export interface Graph {
  readonly width: Float64Array;
  readonly height: Float64Array;
  readonly ports: Uint8Array;
  /** weight of a box in the search for the longest path, which is drawn vertical */
  readonly weight: Float64Array;
  /** box, −1 for the upper border of the scope, −2 for none */
  readonly source: Int32Array;
  readonly ptr: Uint32Array;
  /** box, −1 for the lower border */
  readonly sink: Int32Array;
  /** order of the ports */
  readonly outSlot: Int32Array;
  readonly inSlot: Int32Array;
  /** position of the ports of FIXED boxes, from the box's left side */
  readonly outOffset: Float64Array;
  readonly inOffset: Float64Array;
  /** longest path inside a FIXED box up to this port of a hyperedge's source, and onward from this port of a sink */
  readonly outWay: Float64Array;
  readonly inWay: Float64Array;
  /** extent of the hyperedge's label across and along the flow, 0 for none */
  readonly labelWidth: Float64Array;
  readonly labelLength: Float64Array;
  /** the same for the tensor's name, which is drawn at stubs */
  readonly nameWidth: Float64Array;
  readonly nameLength: Float64Array;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  /** upper left corners */
  readonly x: Float64Array;
  readonly y: Float64Array;
  /** hyperedge → x of its port at the source or upper border (NaN: no producer) */
  readonly outX: Float64Array;
  /** sink → x of its port */
  readonly inX: Float64Array;
  /** longest path onward from a port of the upper border (by hyperedge), or up to one of the lower border (by sink) */
  readonly entryWay: Float64Array;
  readonly exitWay: Float64Array;
  /** sink k has the points line[2·linePtr[k]] … line[2·linePtr[k+1] − 1] */
  readonly linePtr: Uint32Array;
  readonly line: Float32Array;
  /** 1: the line is only a tail above the sink; 2: without room for the tensor's name */
  readonly stub: Uint8Array;
  /** 1: the source has a tail below it */
  readonly tail: Uint8Array;
  /** position of the hyperedge's label: its left end, and its middle along the flow; NaN for none */
  readonly labelX: Float64Array;
  readonly labelY: Float64Array;
}

/** Pixels: least and greatest length of a stub's tail; its name is above the tail, from `lead` to the left of it. */
export const STUB = { length: 14, most: 200, above: 3, lead: 6 } as const;
