"""Every public function, with a value of a wrong type for each of its parameters: an error that says what it takes."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch
import traitlets

import onnx_nb
from tests.analysis.generate import packages

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
TEXT = f"{HEAD} g (float[2, 3] x) => (float[2, 3] y) {{ h = Relu(x)  y = Neg(h) }}"
MODEL = onnx.parser.parse_model(TEXT)
MODULE = torch.nn.Linear(3, 3).eval()
X = torch.ones(2, 3)


ROUNDED = onnx_nb.compare(*(
    onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] y) <float s = {{0.01}}, int8 z = {{0}}>
    {{ [sine] h = Sin(x)  {quantizers} y = Tanh({read}) }}""")
    for quantizers, read in (("", "h"), ("q = QuantizeLinear(h, s, z)  d = DequantizeLinear(q, s, z)", "d"))
))  # fmt: skip


class Strange:
    """An object that nothing takes."""


WRONG: tuple[Any, ...] = (3, 1.5, "nonsense", b"bytes", [1], {1: 2}, Strange(), np.ones(2), True, ())
FREE = {("compare_torch", "args"), ("record", "args"), ("export", "args")}
"""Parameters that may be anything: the arguments of a module."""

PATH = "/nowhere/model.onnx"
DECODER = packages.decoder()
VALID: dict[str, dict[str, Any]] = {
    "align": {"recording": onnx_nb.record(MODULE, (X,)), "model": MODEL},
    "calibrate": {"capture": onnx_nb.capture(MODEL)},
    "capture": {"model": MODEL},
    "check_cache": {"model": DECODER},
    "compare": {"reference": MODEL, "candidate": MODEL},
    "compare_decoding": {"reference": DECODER, "candidate": DECODER, "ids": [3, 5], "steps": 1},
    "compare_torch": {"module": MODULE, "args": (X,), "exporter": "torchscript"},
    "costs": {"model": MODEL},
    "decode": {"model": DECODER, "ids": [3, 5]},
    "diff": {"reference": MODEL, "candidate": MODEL},
    "edit": {"model": MODEL},
    "export": {"module": MODULE, "args": (X,), "exporter": "torchscript"},
    "extract": {"model": MODEL, "inputs": ["x"], "outputs": ["h"]},
    "headroom": {"capture": onnx_nb.capture(MODEL)},
    "load": {"source": MODEL},
    "mark": {"x": X, "name": "here"},
    "mixed": {"comparison": ROUNDED, "exclude": ["sine"]},
    "partition": {"model": MODEL, "at": 2},
    "plan_extraction": {"model": MODEL, "inputs": ["x"], "outputs": ["h"]},
    "plot_errors": {"comparison": onnx_nb.compare(MODEL, MODEL)},
    "plot_histogram": {"comparison": onnx_nb.compare(MODEL, MODEL), "name": "h"},
    "profile": {"model": MODEL, "runs": 1},
    "random_feeds": {"model": MODEL},
    "read_feeds": {"model": MODEL},
    "record": {"module": MODULE, "args": (X,)},
    "reduce": {"model": MODEL, "check": lambda part, _: not part.proto.graph.node},
    "report": {"path": PATH, "parts": {"Model": MODEL}},
    "rules": {},
    "run": {"model": MODEL},
    "sensitivity": {"comparison": ROUNDED},
    "session": {"model": MODEL},
    "show": {"result": MODEL},
    "simplify": {"model": MODEL, "check_n": 1},
    "suggest_exclusion": {"comparison": ROUNDED, "sqnr": "> 10 dB"},
    "summarize": {"model": MODEL},
    "to_graphviz": {"model": MODEL},
    "external_data.audit": {"model": MODEL},
    "external_data.check": {"model": MODEL},
    "external_data.convert": {"model": MODEL, "path": PATH},
    "external_data.inline": {"model": MODEL, "path": PATH},
}
VERBS = ("audit", "check", "convert", "inline")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong argument may still be the valid name of a file to write."""
    monkeypatch.chdir(tmp_path)


def function_of(name: str) -> Any:
    found: Any = onnx_nb
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_methods_that_take_values_of_a_wrong_type_say_so() -> None:
    model, graph = onnx_nb.load(MODEL), onnx_nb.ModelGraph(MODEL)
    with pytest.raises(TypeError, match=r"tensor\(\) takes name as a str, not 3"):
        model.tensor(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"overlay\(\) takes values as .*the path of a profile.*not int"):
        graph.overlay(5)  # type: ignore[arg-type]
    for trait in ("inputs", "outputs"):
        with pytest.raises(traitlets.TraitError, match=f"{trait[:-1]} tensor 'foo' is not in the model"):
            setattr(graph, trait, ["foo"])
        assert getattr(graph, trait) == []
        setattr(graph, trait, ["h"])
        setattr(graph, trait, [])


def test_costs_are_an_overlay() -> None:
    graph, costs = onnx_nb.ModelGraph(MODEL), onnx_nb.costs(MODEL)
    shown = graph.overlay(costs, label="activation_bytes")
    assert shown is not None
    assert shown.nodes.tolist() == [24, 24]
    with pytest.raises(onnx_nb.OnnxNbError, match="costs have no numbers 'time'"):
        graph.overlay(costs, label="time")
    other = onnx.parser.parse_model(TEXT.replace("h = Relu(x)", "a = Relu(x)  h = Abs(a)"))
    with pytest.raises(onnx_nb.OnnxNbError, match="another model, with 3 nodes instead of 2"):
        graph.overlay(onnx_nb.costs(other))


def test_a_name_is_explained() -> None:
    """A list is asked for where one name is given, and names of nodes and scopes lead to their tensors."""
    with pytest.raises(onnx_nb.OnnxNbError, match=r"a single name, 'h'.*Write outputs=\['h'\]"):
        onnx_nb.run(MODEL, outputs="h")
    named = onnx.parser.parse_model(TEXT)
    for node, name in zip(named.graph.node, ("/encoder/layers.0/act/Relu", "/encoder/layers.0/neg/Neg"), strict=True):
        node.name = name
    with pytest.raises(onnx_nb.OnnxNbError, match=r"no tensor but a node, Relu .*Its outputs: 'h'\."):
        onnx_nb.run(named, outputs=["/encoder/layers.0/act/Relu"])


def layered() -> onnx.ModelProto:
    """Return forty nodes in four layers, in a module around the encoder."""
    steps = [f"v{i + 1} = {('Relu', 'Neg')[i % 2]}(v{i})" for i in range(40)]
    model = onnx.parser.parse_model(f"{HEAD} g (float[2] v0) => (float[2] v40) {{ {'  '.join(steps)} }}")
    for i, node in enumerate(model.graph.node):
        node.name = f"/module/encoder/layers.{i // 10}/{('mlp', 'norm')[i // 5 % 2]}/{node.op_type}_{i}"
    return model


def test_a_scope_has_one_name_everywhere() -> None:
    """The end of its path will do in each function, and a scope among tensors is named as such."""
    model = layered()
    taken = onnx_nb.extract(model, around="encoder/layers.2")
    assert len(taken.proto.graph.node) == 10
    assert onnx_nb.costs(model).scope("encoder.layers.2") == onnx_nb.costs(model).scope("module/encoder/layers.2")
    assert len(onnx_nb.partition(model, scopes=["encoder/layers.2"])) == 3
    full, end = (
        onnx_nb.to_graphviz(model, open=[path]).source for path in ("module/encoder/layers.2", "encoder/layers.2")
    )
    assert full == end
    assert "v25" in onnx_nb.to_graphviz(model, open=["layers.2"], highlight=["encoder/layers.2"]).source
    with pytest.raises(onnx_nb.ExtractionError, match=r"'encoder' is no tensor but a scope.*scopes=\["):
        onnx_nb.partition(model, ["encoder"])
    with pytest.raises(onnx_nb.ExtractionError, match=r"'module.encoder' is no tensor but a scope.*around="):
        onnx_nb.extract(model, ["module.encoder"], ["v40"])


def test_compare_says_which_side_objects() -> None:
    other = onnx.parser.parse_model(TEXT.replace("[2, 3]", "[4, 3]"))
    with pytest.raises(onnx_nb.FeedError, match=r"the candidate, .* does not take the feeds of the reference.*'x'"):
        onnx_nb.compare(MODEL, other)
    with pytest.raises(TypeError, match="cannot use the candidate: a model is a path"):
        onnx_nb.compare(MODEL, 5)  # type: ignore[arg-type]


def test_dir_lists_public_names_only() -> None:
    assert {name for name in dir(onnx_nb) if name[0] != "_"} == set(onnx_nb.__all__)


def test_every_public_function_is_tested() -> None:
    public = {name for name in onnx_nb.__all__ if inspect.isfunction(getattr(onnx_nb, name))}
    assert public | {f"external_data.{verb}" for verb in VERBS} == set(VALID)


CASES = [
    (name, parameter.name)
    for name in VALID
    for parameter in inspect.signature(function_of(name)).parameters.values()
    if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) and (name, parameter.name) not in FREE
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "parameter"), CASES, ids=map(".".join, CASES))
def test_a_wrong_type_is_named(name: str, parameter: str) -> None:
    function, said = function_of(name), []
    for wrong in WRONG:
        try:
            found = function(**{**VALID[name], parameter: wrong})
            if inspect.isgenerator(found):
                next(found)
        except (onnx_nb.OnnxNbError, TypeError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
            # raised by us, and not by what was done with the value
            last = traceback.extract_tb(error.__traceback__)[-1]
            assert "/onnx_nb/" in last.filename, (wrong, said[-1])
            assert "raise" in (last.line or ""), (wrong, said[-1])
    assert said, f"{parameter} takes anything"
    assert all(text.strip().endswith((".", "…", ")", "?")) for text in said), said
