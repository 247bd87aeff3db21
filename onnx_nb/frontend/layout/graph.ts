/** What the layered layout is given and what it gives: structures of arrays, in px. */

/** How the ports of a box stand: a node's keep their order, a closed scope's are free, an open scope's are given. */
export const PORTS = { ORDERED: 0, FREE: 1, FIXED: 2 } as const;

/** Boxes and hyperedges; sinks of hyperedge e are ptr[e] … ptr[e+1] − 1. */
export interface Graph {
  readonly width: Float64Array;
  readonly height: Float64Array;
  readonly ports: Uint8Array;
  /** how much a box counts when the longest way is sought, which stands upright */
  readonly weight: Float64Array;
  /** box, −1 the upper border of the scope, −2 nobody */
  readonly source: Int32Array;
  readonly ptr: Uint32Array;
  /** box, −1 the lower border */
  readonly sink: Int32Array;
  /** order of the ports */
  readonly outSlot: Int32Array;
  readonly inSlot: Int32Array;
  /** place of the ports of FIXED boxes, from the box's left side */
  readonly outOffset: Float64Array;
  readonly inOffset: Float64Array;
  /** the longest way in a FIXED box up to this port of a hyperedge's source, and on from this port of a sink */
  readonly outWay: Float64Array;
  readonly inWay: Float64Array;
  /** room that the hyperedge's label takes across the flow and along it, 0 for none */
  readonly labelWidth: Float64Array;
  readonly labelLength: Float64Array;
  /** the same for the tensor's name, which stands at stubs */
  readonly nameWidth: Float64Array;
  readonly nameLength: Float64Array;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  /** left upper corners */
  readonly x: Float64Array;
  readonly y: Float64Array;
  /** hyperedge → x of its port at the source or upper border (NaN: nobody makes it) */
  readonly outX: Float64Array;
  /** sink → x of its port */
  readonly inX: Float64Array;
  /** the longest way on from a port of the upper border (per hyperedge) and up to one of the lower border (per sink) */
  readonly entryWay: Float64Array;
  readonly exitWay: Float64Array;
  /** sink k has the points line[2·linePtr[k]] … line[2·linePtr[k+1] − 1] */
  readonly linePtr: Uint32Array;
  readonly line: Float32Array;
  /** 1: the line is only a tail above the sink; 2: and the tensor's name finds no room at it */
  readonly stub: Uint8Array;
  /** 1: a tail should stand below the source */
  readonly tail: Uint8Array;
  /** place of the hyperedge's label: its least x, and its middle along the flow; NaN for none */
  readonly labelX: Float64Array;
  readonly labelY: Float64Array;
}

/** Least and greatest length of a stub's tail, and where the name stands: above the tail, from `lead` left of it. */
export const STUB = { length: 14, most: 200, above: 3, lead: 6 } as const;
