"""A comparison of decoders as packed columns: steps across, halves of layers down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.columns import Columns, numbers
from onnx_nb.analysis.view.graph_columns import columns

if TYPE_CHECKING:
    from onnx_nb.analysis.generate.compare_decoding import DecodingComparison


def decoding_columns(comparison: DecodingComparison) -> Columns:
    """Return the steps, and the errors of all parts at each; ``frontend/panels/decoding.ts`` reads them."""
    rows, steps = comparison.rows(), comparison.steps
    arrays: dict[str, Any] = numbers(steps, ("position", "margin", "difference", "divergence")) | {
        "errors": comparison.errors.T.ravel().astype(np.float32),
        "faults": comparison.faults.T.ravel().astype(np.int32),
        "ties": np.asarray([row["near tie"] for row in rows], np.uint8),
        "worst": np.asarray([row["error"] for row in rows], np.float64),
    }
    words = {"part": [row["part"] for row in rows]}
    for side in ("reference", "candidate"):
        tokens = [getattr(step, side) for step in steps]
        arrays[side] = np.asarray(tokens, np.int32)
        words[f"{side}_text"] = comparison.texts(tokens)
    fault = comparison.first_fault
    meta = {
        **{name: getattr(comparison, name) for name in ("name", "message", "parts")},
        "first": None if fault is None else (fault[0], comparison.parts.index(fault[1])),
        "quantized": comparison.has_quantization,
        "drills": comparison.models is not None,
    }
    return Columns.of(arrays, words, meta)


def decoder_columns(comparison: DecodingComparison) -> Columns:
    """Return the candidate's graph, with the part of each node, and each part that is in a scope."""
    table, graph = columns(comparison.model), Graph.opened(comparison.model)
    places, tree = comparison.part_of_tensors(), scopes(graph)
    parts = np.full(graph.node_count, -1, np.int32)
    pairs = set[tuple[int, int]]()
    for value, name in enumerate(graph.value_names):
        if (node := int(graph.producer[value])) >= 0 and name in places:
            parts[node] = places[name]
            scope = int(tree.node_scope[node])
            while scope >= 0 and (scope, places[name]) not in pairs:
                pairs.add((scope, places[name]))
                scope = int(tree.scope_parent[scope])
    scope_parts = np.asarray(sorted(pairs), np.int32).ravel()
    return Columns({**table.arrays, "node_part": parts, "scope_parts": scope_parts}, table.meta)
