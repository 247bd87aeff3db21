"""The local functions of a model: their keys, which calls which, and the size of the model without calls.

onnxruntime and onnx's checker put a copy of a function in place of each call, by recursion: some kilobytes of functions
that call each other can overflow the stack or fill the memory. They only get models that `check_calls` and
`check_nodes` accept.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from onnx import FunctionProto, ModelProto, NodeProto

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import bytes_text, plain_text, quoted, shortened
from onnx_nb.analysis.model.tensors import RANK, all_nodes, attributes

Key = tuple[str, str, str]
"""Domain, name and overload of a local function."""

DEPTH: Final = 100
"""Levels of calls inside calls that onnxruntime and onnx's checker may take apart."""
NODES: Final = 1_000_000
"""Nodes of a model, and those of its calls, with every call replaced."""
BYTES: Final = 1 << 31
"""Bytes of them."""
_TERM: Final = r"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
_EQUATION: Final = re.compile(rf"{_TERM}(?:(?:,|->){_TERM})*")


def canonical(domain: str) -> str:
    """Return the one name of a domain: the default one may be written as "ai.onnx"."""
    return "" if domain == "ai.onnx" else domain


def functions_of(proto: ModelProto) -> dict[Key, FunctionProto]:
    """Return the local functions of a model."""
    return {(canonical(plain_text(f.domain)), plain_text(f.name), plain_text(f.overload)): f for f in proto.functions}


def key_of(node: NodeProto) -> Key:
    """Return the key of the function that a node would call."""
    return canonical(plain_text(node.domain)), plain_text(node.op_type), plain_text(node.overload)


class _Size(NamedTuple):
    """The size of nodes with their calls replaced; numbers far above the limits are not exact."""

    nodes: int
    nbytes: int
    depth: int


def calls_between(functions: Mapping[Key, FunctionProto]) -> dict[Key, Counter[Key]]:
    """Return how often each local function calls each other one."""
    return {key: _calls(function.node, functions) for key, function in functions.items()}


def called_by(nodes: Iterable[NodeProto], calls: Mapping[Key, Collection[Key]]) -> tuple[Key, ...]:
    """Return the local functions that nodes call, directly or through others, given `calls_between` all."""
    closure = set[Key]()
    waiting = {key_of(node) for node in all_nodes(nodes)} & calls.keys()
    while waiting:
        closure |= waiting
        waiting = {callee for key in waiting for callee in calls[key]} - closure
    return tuple(key for key in calls if key in closure)


def check_calls(proto: ModelProto, label: str) -> None:
    """Raise `ModelFileError` if the local functions call each other too deeply, too often, or in a cycle."""
    functions = functions_of(proto)
    if not functions:
        return
    calls = calls_between(functions)
    sizes: dict[Key, _Size] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            function = functions[key]
            sizes[key] = _replaced(_Size(len(function.node), function.ByteSize(), 1), calls[key], sizes)
    except CycleError as error:
        message = f"function {quoted(error.args[1][0][1])} of {label} calls itself, directly or through others."
        raise ModelFileError(message, advice="ONNX forbids that: export the model again.") from None
    advice = "Write the nodes of the functions into the graph, or export the model with fewer functions."
    deepest = max(functions, key=lambda key: sizes[key].depth)
    if sizes[deepest].depth > DEPTH:
        message = f"{label} nests calls of functions {sizes[deepest].depth} deep, in {quoted(deepest[1])}"
        raise ModelFileError(f"{message}; onnxruntime and onnx's checker may crash beyond {DEPTH}.", advice=advice)
    total = _replaced(_Size(len(proto.graph.node), 0, 0), _calls(proto.graph.node, functions), sizes)
    if total.nodes > NODES or total.nbytes > BYTES:
        size = f"more than {NODES:,} nodes" if total.nodes > NODES else f"more than {bytes_text(BYTES)}"
        message = f"{label} would have {size} with the nodes of its functions in place of their calls."
        raise ModelFileError(message, advice=advice)


def fatal(node: NodeProto) -> str:
    """Return why onnx's type inference, which onnxruntime runs as well, crashes or never ends on a node; empty if not.

    It looks for the end of an Einsum's term by steps of three for each dot, and so misses it, and it takes the number
    of a Split's outputs from an attribute. It counts the dimensions of a GatherND from ``batch_dims`` on.
    """
    op = plain_text(node.op_type)
    if op not in ("Einsum", "GatherND", "Split") or canonical(plain_text(node.domain)):
        return ""
    values = attributes(node)
    equation, parts = values.get("equation", b""), values.get("num_outputs", len(node.output))
    if op == "Einsum" and not (isinstance(equation, bytes) and _EQUATION.fullmatch(plain_text(equation))):
        return 'its equation is not valid: each term is letters with at most one "...", as in "...ij,jk->...ik"'
    if op == "Split" and not (isinstance(parts, int) and (parts < 1 or len(node.output) <= parts <= NODES)):
        return f"num_outputs is {shortened(str(parts), 40)}, and it has {len(node.output):,} outputs"
    common = values.get("batch_dims", 0)
    if op == "GatherND" and not (isinstance(common, int) and 0 <= common <= RANK):
        return f"batch_dims is {shortened(str(common), 40)}, and no tensor has so many dimensions"
    return ""


def check_nodes(proto: ModelProto, model_label: str) -> None:
    """Raise `ModelFileError` if onnxruntime and onnx's checker would crash or never end on a node."""
    for node in all_nodes(itertools.chain(proto.graph.node, *(function.node for function in proto.functions))):
        reason = fatal(node)
        if reason:
            label = quoted(plain_text(node.name) or plain_text(next(iter(node.output), "")))
            message = f"{plain_text(node.op_type)} {label} of {model_label} would crash or hang onnxruntime: {reason}."
            raise ModelFileError(message, advice="Repair the node, or export the model again.")


def _calls(nodes: Iterable[NodeProto], functions: Mapping[Key, FunctionProto]) -> Counter[Key]:
    return Counter(key for node in all_nodes(nodes) if (key := key_of(node)) in functions)


def _replaced(size: _Size, calls: Mapping[Key, int], sizes: Mapping[Key, _Size]) -> _Size:
    nodes = size.nodes + sum(count * sizes[key].nodes for key, count in calls.items())
    nbytes = size.nbytes + sum(count * sizes[key].nbytes for key, count in calls.items())
    depth = size.depth + max((sizes[key].depth for key in calls), default=0)
    return _Size(min(nodes, 2 * NODES), min(nbytes, 2 * BYTES), depth)
