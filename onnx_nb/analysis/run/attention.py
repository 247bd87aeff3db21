"""What an attention attends to, by the arrays that it read.

Nothing is computed anew: its kernel runs once more on values that are 1 for one key and 0 for all others, so that its
output is the probability of that key. Rotary embedding, window, mask, soft cap, sink and cache are those of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto, helper

from onnx_nb.analysis.errors import CaptureError
from onnx_nb.analysis.formatting import bytes_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.tensors import attributes
from onnx_nb.analysis.run.session import create, run_session

LIMIT: Final = 1 << 30
"""Maximum bytes of probabilities."""
ATTENTIONS: Final = {
    "Attention": ((2,), 5, -1),
    "GroupQueryAttention": ((2, 0), 4, -1),
    "MultiHeadAttention": ((2,), 7, 3),
    "com.microsoft.Attention": ((0,), 4, 2),
}
"""Inputs that end with the values, the first that is there; that of the past ones; that whose end is added to them."""


def attention_probabilities(
    graph: Graph, node: int, inputs: list[Any], heads: Sequence[int] | slice, queries: Sequence[int] | slice
) -> NDArray[np.float32]:
    """Return the probabilities [batch, heads, queries, keys] of an attention that reads these arrays."""
    op, label = graph.op_type(node), graph.node_label(node)
    if op not in ATTENTIONS:
        raise CaptureError(f"{label} is no attention.", advice=f"Those are {', '.join(sorted(ATTENTIONS))}.")
    options, width = attributes(graph.nodes[node]), 0
    count = groups = options.get("kv_num_heads", options.get("num_heads", 0))
    if op == "Attention" and graph.nodes[node].domain == "com.microsoft":
        op, groups = "com.microsoft.Attention", 1
        inputs, width = _with_passage(inputs, options)
    places, past_place, bias_place = ATTENTIONS[op]
    arrays = [*inputs, *[None] * (past_place + 1 - len(inputs))]
    place = next((number for number in places if arrays[number] is not None), places[0])
    values, past, bias = (arrays[number] if number >= 0 else None for number in (place, past_place, bias_place))
    if values is None or (past is not None and past.dtype != values.dtype):
        what = "keys and values side by side, or a past of fewer bits"
        raise CaptureError(f"{label} reads {what}: nothing can replace them.")
    divisor = options.get("num_heads", 0) + 2 * groups if place == 0 else groups
    width = width or values.shape[-1] // (divisor if values.ndim == 3 else 1)
    start = 0 if past is None else past.shape[-2]
    keys = start + values.shape[2 if values.ndim == 4 else 1]
    runner, parts = None, list[NDArray[np.float32]]()
    for begin in range(0, keys, width):
        rows = np.eye(keys, width, -begin)
        arrays[place] = values.copy()
        size = groups * width if values.ndim == 3 else width
        arrays[place][..., -size:] = np.tile(rows[start:], size // width)
        if past is not None:
            arrays[past_place] = past.copy()
            arrays[past_place][-1 if past.ndim == 5 else ...] = rows[:start]
        if bias is not None:
            arrays[bias_place] = np.append(bias[: -count * width], np.zeros(count * width, bias.dtype))
        feeds = {f"input {number}": array for number, array in enumerate(arrays) if array is not None}
        runner = runner or _session(graph, node, feeds)
        output = run_session(runner, feeds, name=label)["output 0"]
        if output.ndim == 3:
            output = output.reshape(*output.shape[:2], -1, width).swapaxes(1, 2)
        parts.append(output[:, heads][:, :, queries, : keys - begin].astype(np.float32))
        if (nbytes := 4 * keys * math.prod(parts[0].shape[:3])) > LIMIT:
            message = f"the probabilities of {label} take {bytes_text(nbytes)}."
            raise CaptureError(message, advice="Name some heads and queries, such as heads=[0], queries=[-1].")
    return np.concatenate(parts, axis=-1)


def _with_passage(inputs: list[Any], options: Mapping[str, Any]) -> tuple[list[Any], int]:
    """Return inputs and weights of a projection whose values are the end of the input, and the size of that."""
    array, weight, *others = inputs
    size = options.get("qkv_hidden_sizes", [weight.shape[1] // 3] * 3)[2]
    width = size // options["num_heads"]
    passage = np.zeros((width, weight.shape[1]), weight.dtype)
    passage[:, -size:] = np.tile(np.eye(width), options["num_heads"])
    projection = np.concatenate([weight, passage])
    projection[: len(weight), -size:] = 0
    return [np.pad(array, ((0, 0), (0, 0), (0, width))), projection, *others], width


def _session(graph: Graph, node: int, feeds: Mapping[str, NDArray[Any]]) -> Any:
    """Return a session of a node alone, whose inputs have numbers: it may read one value twice."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    body = helper.make_graph([graph.nodes[node]], "attention", infos, [ValueInfoProto(name="output 0")])
    for names, what in ((body.node[0].input, "input"), (body.node[0].output, "output")):
        names[:] = [f"{what} {number}" if name else "" for number, name in enumerate(names)]
    opsets = [helper.make_opsetid(domain, version) for domain, version in graph.opsets_of(node).items()]
    model = ModelProto(ir_version=graph.model.proto.ir_version, opset_import=opsets, graph=body)
    return create(with_proto(graph.model, model), optimize=False)
