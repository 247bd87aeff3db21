"""The iterations of Loop, Scan and SequenceMap, whose body a function runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from onnx import AttributeProto, NodeProto

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.run import session as sessions

if TYPE_CHECKING:
    from onnx_nb.analysis.run.session import Value

    RunBody: TypeAlias = Callable[[int, Sequence[Value | None]], list[Value | None]]


def iterate(op_type: str, node: NodeProto, inputs: Sequence[Value | None], run_body: RunBody) -> None:
    """Run the body of a node as often as the node does."""
    if op_type == "Loop":
        _loop(inputs, run_body)
    elif op_type == "Scan":
        _scan(inputs, {plain_text(attribute.name): attribute for attribute in node.attribute}, run_body)
    else:
        _sequence_map(inputs, run_body)


def _loop(inputs: Sequence[Value | None], run_body: RunBody) -> None:
    trips, condition, carried = inputs[0], inputs[1] if len(inputs) > 1 else None, list(inputs[2:])
    count = math.inf if trips is None else int(sessions.to_array(trips).reshape(()))
    if condition is None:
        condition = sessions.to_value(np.array(True))  # noqa: FBT003
    for i in itertools.count():
        if i >= count or not bool(sessions.to_array(condition).reshape(())):
            return
        results = run_body(i, [sessions.to_value(np.array(i, np.int64)), condition, *carried])
        condition, carried = results[0], list(results[1 : 1 + len(carried)])
        assert condition is not None  # the condition is not optional  # noqa: S101


def _scan(inputs: Sequence[Value | None], attributes: Mapping[str, AttributeProto], run_body: RunBody) -> None:
    count = int(attributes["num_scan_inputs"].i)
    axes = _numbers(attributes.get("scan_input_axes"), count)
    backward = _numbers(attributes.get("scan_input_directions"), count)
    states, scanned = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    arrays = []
    for value, axis, back in zip(scanned, axes, backward, strict=True):
        assert value is not None  # Scan has no optional inputs  # noqa: S101
        array = np.moveaxis(sessions.to_array(value), axis, 0)
        arrays.append(array[::-1] if back else array)
    for i in range(len(arrays[0])):
        rows = [sessions.to_value(np.ascontiguousarray(array[i])) for array in arrays]
        states = run_body(i, [*states, *rows])[: len(states)]


def _sequence_map(inputs: Sequence[Value | None], run_body: RunBody) -> None:
    given = [value if value is None or value.is_tensor() else sessions.to_array(value) for value in inputs]
    assert isinstance(given[0], list)  # noqa: S101
    for i in range(len(given[0])):
        run_body(i, [sessions.to_value(item[i]) if isinstance(item, list) else item for item in given])


def _numbers(attribute: AttributeProto | None, count: int) -> list[int]:
    return [0] * count if attribute is None else list(attribute.ints)
