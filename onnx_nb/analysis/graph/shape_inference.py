"""What the types of a model's values are if its inputs have given shapes; nothing is run.

`shape_walk` does the work; here are the questions to it: the whole model (`infer`), or a few values (`infer_values`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.formatting import closest, quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.inference_rules import is_integer
from onnx_nb.analysis.graph.shape_walk import Inference, Walk
from onnx_nb.analysis.model.model import ModelLike, label_of, load
from onnx_nb.analysis.model.tensors import Dims, dimensions, dimensions_text, fits, input_types, listed


def infer(
    model: ModelLike, shapes: Mapping[str, int | Sequence[int]] | None = None, *, inside_calls: bool = True
) -> Inference:
    """Find the types of all values."""
    graph = Graph.opened(load(model))
    found = Walk(graph, graph.declared, *_bound(graph, shapes)).run() if shapes else graph.inference
    plain = graph.plain
    if inside_calls or plain is graph:
        return found
    return replace(
        found, graph=plain, of_value=found.of_value[: plain.value_count], case_of=found.case_of[: plain.node_count]
    )


def infer_values(graph: Graph, values: Collection[int]) -> Inference:
    """Find the types of some values of the main graph, from the nearest values whose types are declared."""
    graph = Graph.opened(graph.model)
    if "inference" in vars(graph):
        return graph.inference
    flow, declared = Flow.of(graph.plain), graph.declared
    # small integers may decide on shapes, so their producers are walked although their types are declared
    complete = np.asarray([kind.is_complete and not is_integer(kind) for kind in declared.table.known])[
        declared.of_value
    ]
    nodes = set[int]()
    waiting = [flow.producer[value] for value in values if not complete[value]]
    while waiting:
        node = waiting.pop()
        if node >= 0 and node not in nodes:
            nodes.add(node)
            waiting += [flow.producer[value] for value in flow.reads(node) if not complete[value]]
    return Walk(graph, declared).run(nodes)


def _bound(graph: Graph, shapes: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Return the sizes of symbols and the shapes of inputs that ``shapes=`` asks for."""
    kinds = input_types(graph.model)
    names = [graph.value_names[value] for value in graph.inputs.tolist()]
    declared = {name: dimensions(kinds[name]) if kinds[name].HasField("tensor_type") else None for name in names}
    symbols = [dim for shape in declared.values() for dim in shape or () if isinstance(dim, str)]
    sizes: dict[str, int] = {}
    given: dict[str, tuple[int, ...]] = {}
    for key, size in shapes.items():
        asked = requested_size(label_of(graph.model), key, size, declared, symbols)
        if isinstance(asked, int):
            _agree(sizes, key, asked)
            continue
        given[key] = asked
        for dim, one in zip(declared[key] or (), asked, strict=False):
            if isinstance(dim, str):
                _agree(sizes, dim, one)
    return sizes, given


def _agree(sizes: dict[str, int], symbol: str, size: int) -> None:
    if sizes.setdefault(symbol, size) != size:
        message = f"dimension {quoted(symbol)} is given sizes {sizes[symbol]} and {size}."
        raise FeedError(message, advice="Give shapes that agree.")


def requested_size(
    called: str, key: str, size: Any, declared: Mapping[str, Dims | None], symbols: Sequence[str]
) -> int | tuple[int, ...]:
    """Check an entry of ``shapes=`` against the inputs of a model."""
    number = isinstance(size, int | np.integer)
    sizes = tuple(size) if isinstance(size, Iterable) else (size,)
    if any(not isinstance(one, int | np.integer) or one < 0 for one in sizes):
        raise FeedError(f"shapes[{key!r}] is {size!r:.80}, and sizes are whole numbers from 0.")
    if number and key in symbols:
        return int(size)
    if key not in declared:
        known = dict.fromkeys([*declared, *symbols])
        message = f"{called} has neither an input nor a dimension {quoted(key)}."
        raise FeedError(message, advice=f"It has {listed(closest(key, known) or known) or 'none'}.")
    shape = declared[key]
    if number or (shape is not None and not fits(shape, sizes)):
        message = f"shapes[{key!r}] is {size!r:.80}, and the input takes {dimensions_text(shape or ())}."
        raise FeedError(message, advice="Give a size for each of its axes.")
    return tuple(map(int, sizes))
