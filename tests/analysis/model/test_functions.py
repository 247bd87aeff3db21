"""Local functions that call each other are bounded before onnxruntime or onnx's checker get them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest

import onnx_nb
from onnx_nb.analysis.model import functions
from tests.fuzz import hostile

X = np.asarray([-1, 2], np.float32)


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (hostile.chained_functions(), r"nests calls of functions 3000 deep, in 'F2999'"),
        (hostile.multiplying_functions(), "more than 1,000,000 nodes"),
        (hostile.recursive_function(), "'A' of .* calls itself"),
    ],
    ids=["chained", "multiplying", "recursive"],
)
@pytest.mark.parametrize(
    "verb",
    [onnx_nb.run, onnx_nb.capture, onnx_nb.external_data.check],
    ids=["run", "capture", "check"],
)
def test_native_code_never_gets_them(verb: Callable[..., Any], proto: onnx.ModelProto, message: str) -> None:
    with pytest.raises(onnx_nb.OnnxNbError, match=message):
        verb(proto, **({} if verb is onnx_nb.external_data.check else {"feeds": {"x": X}}))


def test_calls_up_to_the_limits_run() -> None:
    deep = hostile.chained_functions(functions.DEPTH)
    many = hostile.multiplying_functions(5)
    for proto in (deep, many):
        assert np.array_equal(onnx_nb.run(proto, {"x": X})["y"], np.maximum(X, 0))


def test_nodes_are_counted_as_the_inliner_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = hostile.multiplying_functions(4, 3)
    inlined = len(onnx.inliner.inline_local_functions(proto).graph.node)
    calls = sum(3**i for i in range(4))  # each call counts as well
    monkeypatch.setattr(functions, "NODES", inlined + calls)
    functions.check_calls(proto, "it")
    monkeypatch.setattr(functions, "NODES", inlined + calls - 1)
    with pytest.raises(onnx_nb.ModelFileError, match="it would have more than"):
        functions.check_calls(proto, "it")


def test_bytes_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "BYTES", 1000)
    with pytest.raises(onnx_nb.ModelFileError, match=r"more than 1\.0 kB"):
        functions.check_calls(hostile.multiplying_functions(4), "it")


@pytest.mark.parametrize("equation", ["a.b", "......ij", "ij.->ji", "é", "i\\c"])
def test_an_equation_on_which_native_code_never_ends_is_refused(equation: str) -> None:
    proto = einsum(equation)
    with pytest.raises(onnx_nb.ModelFileError, match=r"Einsum 'y' of .* its equation is not valid"):
        onnx_nb.run(proto, {"x": np.eye(2, dtype=np.float32)})
    with pytest.raises(onnx_nb.ModelFileError, match=r"Einsum 'y' of .* its equation is not valid"):
        onnx_nb.external_data.check(proto)
    assert any(
        "its equation is not valid" in each.message for each in onnx_nb.types.Graph.of(onnx_nb.load(proto)).problems
    )


@pytest.mark.parametrize("parts", [5, 10**9])
def test_a_split_into_another_number_of_outputs_is_refused(parts: int) -> None:
    names = [f"y{i}" for i in range(6)]
    node = onnx.helper.make_node("Split", ["x"], names, num_outputs=parts)
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", *names)]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    with pytest.raises(onnx_nb.ModelFileError, match=rf"Split 'y0' of .* num_outputs is {parts}, and it has 6 outputs"):
        onnx_nb.run(proto, {"x": np.zeros(6, np.float32)})
    assert any("num_outputs" in each.message for each in onnx_nb.types.Graph.of(onnx_nb.load(proto)).problems)


SURVIVOR = """
import json, onnx_nb
from tests.fuzz import hostile
check = onnx_nb.external_data.check
verbs = {"run": onnx_nb.run, "capture": onnx_nb.capture, "check": lambda model: check(model, full=True)}
for name, model in hostile.negative_sizes().items():
    for verb, act in verbs.items():
        try:
            act(model)
            print(json.dumps([name, verb, ""]))
        except onnx_nb.ModelFileError as error:
            print(json.dumps([name, verb, str(error)]))
"""


def test_a_slice_of_a_negative_dimension_ends_no_process() -> None:
    command = [sys.executable, "-c", SURVIVOR]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    said = {(name, verb): text for name, verb, text in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, (said, done.stderr)
    assert {name for name, _ in said} == hostile.negative_sizes().keys()
    for (name, verb), text in said.items():
        if verb != "check":
            makes = "Expand" if name in ("computed", "function", "branch") else name
            assert f"end the process on Slice: {makes} makes a negative dimension" in text, (name, verb)
        else:  # onnx's checker follows no branch, and computes no sizes
            assert bool(text) == (name not in ("computed", "branch")), (name, text)


@pytest.mark.parametrize("equation", ["ij->ji", "ij", "...ij->...ji", "i...->...i", " i j -> j i ", "ii->"])
def test_an_equation_runs_as_in_numpy(equation: str) -> None:
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert np.array_equal(onnx_nb.run(einsum(equation), {"x": x})["y"], np.einsum(equation, x))


def einsum(equation: str) -> onnx.ModelProto:
    node = onnx.helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
