"""Graders of "Dynamic shapes"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

from . import Lesson, NotYet, expect, made, opened

check: Final = Lesson()


def _run(proto: onnx.ModelProto, value: Any) -> Any:
    """Run a model of one input with onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the sentence says what is wrong
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: value})[0]


@check.exercise(
    1,
    "node_name",
    "node_name",
    {
        "received": "name of a node",
        "38": "name of a node",
        "'Sqrt'": "no node of that name",
        "received.graph.node[0].name": "holds no number",
        "next(node.name for node in received.graph.node if node.op_type == 'Pow')": "of the run, not of the example",
    },
)
def _baked(answer: Any) -> None:
    expect(isinstance(answer, str), f"This has type {type(answer).__name__}; the answer is the name of a node.")
    nodes = {node.name: node for node in made("received").graph.node}
    expect(answer in nodes, "The file has no node of that name: it should be the name of a node, not its type.")
    constants = {
        node.output[0]: onnx.numpy_helper.to_array(node.attribute[0].t)
        for node in nodes.values()
        if node.op_type == "Constant"
    }
    read = [constants[name] for name in nodes[answer].input if name in constants]
    pieces = (1001 - 96) // 24 + 1
    is_power = nodes[answer].op_type == "Pow"
    expect(not is_power, "This node takes the root of a size of the run, not of the example: its constant is 0.5.")
    holds = any(np.isclose(value, [pieces, pieces**0.5]).any() for value in read if value.size == 1)
    expect(holds, "This node holds no number that follows from the example.")


_HALF: Final = "onnx_nb.export(type('Half', (nn.Module,), {'forward': lambda self, x: x%s})(), example, %s)"
_BOTH: Final = "dynamic_shapes=({0: 'batch', 1: 'samples'},)"


@check.exercise(
    2,
    "second_half",
    "second_half",
    {
        _HALF % ("[:, int(x.shape[1] / 2) :].abs().mean(1)", _BOTH): "half is that of the example",
        _HALF % ("[:, x.shape[1] // 2 :].abs().mean(1)", ""): "takes any number of samples",
        _HALF % ("[:, : x.shape[1] // 2].abs().mean(1)", _BOTH): "other numbers",
        _HALF % ("[:, (x.shape[1] + 1) // 2 :].abs().mean(1)", _BOTH): "odd number",
        _HALF % ("[:, x.shape[1] // 2 :].abs().mean()", _BOTH): "one number for each",
        "nn.Identity()": "exported model",
    },
)
def _second_half(answer: Any) -> None:
    proto = opened(answer, f"This has type {type(answer).__name__}; the answer is the exported model.").to_proto()
    dims = made("shape_of")(proto.graph.input[0])
    expect(
        len(dims) == 2 and not isinstance(dims[1], int),
        f"No file that takes any number of samples: its input is {dims}.",
    )
    expect(not isinstance(dims[0], int), f"No file that takes batches of any size: its input is {dims}.")
    for count, length in (7, 1607), (3, 1000), (1, 2400), (2, 1201):
        waves = made("sounds")(count, length, seed=length)[0]
        waves = waves * np.linspace(0.1, 2, length, dtype=np.float32)
        expected = np.abs(waves[:, length // 2 :]).mean(axis=1)
        try:
            found = _run(proto, waves)
        except Exception as error:  # noqa: BLE001 (onnxruntime has many)
            raise NotYet(f"It does not run on {length:,} samples: {' '.join(str(error).split())[-120:]}") from None
        expect(np.shape(found) == expected.shape, "The result should have one number for each sound of a batch.")
        if np.allclose(found, expected, rtol=1e-4):
            continue
        for half in 803, 804:
            is_baked = length != 1607 and np.allclose(found, np.abs(waves[:, half:]).mean(axis=1), rtol=1e-4)
            expect(not is_baked, f"With {length:,} samples, the second half is that of the example.")
        shorter = np.abs(waves[:, (length + 1) // 2 :]).mean(axis=1)
        expect(not np.allclose(found, shorter, rtol=1e-4), "For an odd number, the second half is the longer one.")
        raise NotYet(f"With {length:,} samples, the model gives other numbers than numpy.")
