"""The page that needs no kernel: what is baked into it, and what is left out."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_nb import DiffPanel, ModelGraph, SimplificationPanel, capture, load, simplify
from onnx_nb.analysis.view.overlays import overlay
from onnx_nb.analysis.view.result_columns import captured_entries, statistics_columns, weight_entries
from onnx_nb.drawing.html import bake
from onnx_nb.types import Graph
from tests import models
from tests.packed import Unpacked, unpacked

if TYPE_CHECKING:
    from pathlib import Path


def baked_in(page: Path) -> Unpacked:
    found = re.search(r'id="onnx-nb-baked">([^<]*)<', page.read_text())
    assert found is not None
    return unpacked(base64.b64decode(found[1]))


def test_the_statistics_of_a_page_are_those_of_numpy(tmp_path: Path) -> None:
    g = ModelGraph(models.exported("resnet50", dynamo=True))
    baked = baked_in(g.to_html(tmp_path / "page.html", statistics=True))
    names = baked.texts("name")
    assert sorted(names) == sorted(g.model.initializers)
    for row in (0, len(names) // 2, len(names) - 1):
        array = g.model.tensor(names[row]).astype(np.float64)
        assert baked.arrays["mean"][row] == pytest.approx(array.mean(), rel=1e-9, abs=1e-7 * array.std())
        assert baked.arrays["max"][row] == array.max()
        begin, end = baked.arrays["ptr"][row : row + 2]
        counts = baked.arrays["bins"][begin:end]
        width = 2.0 ** int(baked.arrays["exponent"][row])
        edges = (baked.arrays["first"][row] + np.arange(len(counts) + 1)) * width
        # numpy counts what lies on the last edge too
        assert np.array_equal(counts, np.histogram(array, [*edges[:-1], np.nextafter(edges[-1], -np.inf)])[0])
        assert Graph.of(g.model).value_names[baked.arrays["value"][row]] == names[row]


def test_without_statistics_a_page_still_answers_clicks(tmp_path: Path) -> None:
    g = ModelGraph(models.exported("bert", dynamo=True))
    baked = baked_in(g.to_html(tmp_path / "page.html"))
    assert baked.texts("name") == []
    softmax = next(i for i, node in enumerate(g.model.proto.graph.node) if node.op_type == "Softmax")
    reply = baked.meta["replies"][baked.arrays["node_reply"][softmax]]
    assert reply["source"].startswith("modeling_bert.py:")
    text = baked.meta["documentation"][reply["documentation"]]
    assert "normalized exponential" in text
    assert dict(baked.meta["replies"][baked.arrays["scope_reply"][0]]["figures"]).keys() >= {"MACs", "FLOPs"}


def test_a_capture_goes_into_the_page_before_the_weights() -> None:
    model = load(models.exported("bert", dynamo=True))
    captured = capture(model)
    whole = unpacked(bake(model, statistics=True, capture=captured))
    assert whole.texts("name")[: len(captured)] == captured.names
    assert whole.meta["left_out"] == 0
    nothing = unpacked(bake(model, statistics=True, capture=captured, limit=0))
    assert nothing.texts("name") == captured.names
    assert nothing.meta["left_out"] == len(model.initializers)


def test_a_limit_keeps_the_largest_weights() -> None:
    model = load(models.exported("resnet50", dynamo=True))
    some = weight_entries(model, limit=20_000)
    sizes = sorted((info.nbytes for info in model.initializers.values()), reverse=True)
    assert 0 < len(some) < len(sizes)
    assert [entry.nbytes for entry in some] == sizes[: len(some)]
    baked = unpacked(bake(model, statistics=True, limit=20_000))
    assert baked.meta["left_out"] == len(sizes) - len(some)
    packed = statistics_columns(some)
    assert sum(array.nbytes for array in packed.arrays.values()) < 2 * 20_000


def test_cancelling_writes_nothing(tmp_path: Path) -> None:
    g = ModelGraph(models.exported("resnet50", dynamo=True))
    reported = []

    def stop(done: float, message: str) -> None:
        reported.append((done, message))
        if done > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        g.to_html(tmp_path / "page.html", statistics=True, progress=stop)
    assert list(tmp_path.iterdir()) == []
    parts = [done for done, _ in reported]
    assert parts == sorted(parts)
    assert reported[-1][1].startswith("Reading ")
    assert any(message.startswith("Looking at node 0 of ") for _, message in reported)


def test_values_without_numbers_have_no_statistics() -> None:
    info = helper.make_tensor_value_info
    text = numpy_helper.from_array(np.asarray(["a", "b"], object), "t")
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["s"]), helper.make_node("Identity", ["t"], ["u"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None), info("u", TensorProto.STRING, [2])],
        [text],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    for entries in (captured_entries(capture(model)), weight_entries(model)):
        packed = statistics_columns(entries)
        assert len(packed.arrays["bins"]) == packed.arrays["ptr"][-1]


def test_a_missing_weight_does_not_prevent_the_page(tmp_path: Path) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="gone.bin")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    baked = baked_in(ModelGraph(tmp_path / "m.onnx").to_html(tmp_path / "page.html", statistics=True))
    assert (baked.texts("name"), baked.arrays["known"].tolist()) == (["w"], [0])


def test_a_page_can_be_colored_without_a_kernel(tmp_path: Path) -> None:
    g = ModelGraph(models.exported("bert", dynamo=True))
    g._values.known.whole = capture(g.model)
    softmax = next(node for node in g.model.proto.graph.node if node.op_type == "Softmax")
    g.overlay({softmax.output[0]: 3.0}, label="error")
    baked = baked_in(g.to_html(tmp_path / "page.html"))
    offered = {each["label"]: number for number, each in enumerate(baked.meta["overlays"])}
    assert {"parameters", "weight bytes", "MACs", "activation bytes", "seconds", "std", "error"} <= offered.keys()
    assert baked.meta["overlays"][-1]["kind"] == "shown"
    for label in ("parameters", "MACs"):
        expected = overlay(g.model, label)
        for part, numbers in (("nodes", expected.nodes), ("scopes", expected.scopes)):
            assert np.array_equal(baked.arrays[f"overlay_{offered[label]}_{part}"], numbers, equal_nan=True)
    shown = baked.arrays[f"overlay_{offered['error']}_nodes"]
    assert {Graph.of(g.model).names[node] for node in np.flatnonzero(np.isfinite(shown))} == {softmax.name}


def test_a_simplification_is_a_page_with_its_steps(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z)
    { a = Identity(x)  b = Neg(a)  c = Neg(b)  z = Dropout(c) }"""
    panel = SimplificationPanel(simplify(onnx.parser.parse_model(text), trace=True))
    page = panel.to_html(tmp_path / "folder" / "simplified.html", statistics=True).read_text()
    about = re.search(r'id="onnx-nb-simplification">([^<]*)<', page)
    assert about is not None
    assert json.loads(about[1])["nodes"] == [4, 2]

    def nodes(part: str) -> int:
        found = re.search(f'id="onnx-nb-{part}">([^<]*)<', page)
        assert found is not None
        nodes: int = unpacked(base64.b64decode(found[1])).meta["nodes"]
        return nodes

    assert (nodes("reference"), nodes("candidate")) == (4, 2)
    steps = panel.simplification.steps
    assert len(steps) > 1
    for number in range(1, len(steps)):
        assert nodes(f"candidate-{number}") == len(steps[number].model.proto.graph.node)
    with pytest.raises(RuntimeError, match="enough"):
        panel.to_html(tmp_path / "never.html", progress=_enough)
    assert not (tmp_path / "never.html").exists()


def _enough(_done: float, _message: str) -> None:
    raise RuntimeError("enough")


def test_a_diff_takes_statistics_into_its_page(tmp_path: Path) -> None:
    path = models.exported("bert", dynamo=True)
    pair = DiffPanel(path, models.transformed("bert", "fp16"))
    reported: list[float] = []
    page = pair.to_html(tmp_path / "pair.html", statistics=True, progress=lambda done, _: reported.append(done))
    assert reported == sorted(reported)
    assert 0 <= reported[0] < 0.5 < reported[-1] <= 1
    text = page.read_text()
    for side, model in (("reference", pair.reference), ("candidate", pair.candidate)):
        found = re.search(f'id="onnx-nb-baked-{side}">([^<]*)<', text)
        assert found is not None
        baked = unpacked(base64.b64decode(found[1]))
        name = max(model.initializers.values(), key=lambda info: info.nbytes).name
        row = baked.texts("name").index(name)
        assert baked.arrays["max"][row] == model.tensor(name).max()
