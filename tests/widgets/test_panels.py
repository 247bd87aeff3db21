"""CapturePanel and AuditPanel: what they hand to the browser, and how they follow a graph."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import pytest
from IPython.core.interactiveshell import InteractiveShell
from onnx import TensorProto, helper

import onnx_nb
from onnx_nb import AuditPanel, CapturePanel, ModelGraph, OnnxNbError, capture, load
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.drawing.html import still_html
from tests import models
from tests.packed import Unpacked, unpacked
from tests.widgets.test_widgets import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG = """<ir_version: 8, opset_import: ["": 17]>
g (float[4] x) => (float[4] z) { a = Neg(x)  b = Log(a)  z = Relu(b) }"""

STRANGE = '<ir_version: 8, opset_import: ["": 17]> g (float[2] p) => (float[2] q) { q = Exp(p) }'


def tensor(name: str) -> list[dict[str, Any]]:
    return [{"kind": "tensor", "name": name}]


def digest_of(panel: CapturePanel) -> Unpacked:
    return unpacked(panel._parts["columns"])


def test_a_capture_panel_has_every_value_in_order_of_execution() -> None:
    cap = capture(load(models.exported("bert", dynamo=True)))
    packed = digest_of(CapturePanel(cap))
    assert packed.texts("name") == cap.names
    assert packed.meta["nonfinite"] is None
    for row in (0, len(cap) // 2, len(cap) - 1):
        found = cap.statistics(cap.names[row])
        assert [packed.arrays[name][row] for name in ("count", "zeros")] == [found.count, found.zeros]
        assert np.array_equal([packed.arrays["mean"][row]], [found.mean], equal_nan=True)
        begin, end = packed.arrays["ptr"][row : row + 2]
        assert np.array_equal(packed.arrays["bins"][begin:end], found.histogram.counts)


def test_the_first_value_that_is_not_finite_is_told_in_words() -> None:
    cap = capture(onnx.parser.parse_model(LOG), {"x": np.array([1, -1, 0, -2], np.float32)})
    meta = digest_of(CapturePanel(cap)).meta
    first = cap.nonfinite()
    assert first is not None
    assert meta["nonfinite"] == {"name": "b", "message": first.message}
    assert "Log makes 1 NaN and 1 −Inf" in first.message


def test_a_weight_with_nan_leads_to_the_node_that_reads_it() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Mul(x, w)  y = Neg(a) }"""
    )
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([1, np.nan], np.float32), "w"))
    panel = CapturePanel(onnx_nb.capture(model, {"x": np.ones(2, np.float32)}))
    meta = unpacked(bytes(panel._packed["columns"])).meta["nonfinite"]
    assert meta["name"] == "a"
    assert "'w' is given to the model with 1 NaN" in meta["message"]
    content, _ = ask(onnx_nb.ModelGraph(model), "capture", value=None)
    assert "'w' is given to the model with 1 NaN" in content["value"]["message"]
    assert content["value"]["origin"] == Graph.of(load(model)).value("w")


def test_choosing_a_row_selects_the_tensor_in_the_graph_and_back() -> None:
    model = load(onnx.parser.parse_model(LOG))
    g = ModelGraph(model)
    panel = CapturePanel(capture(model), graph=g)
    panel.selection = tensor("b")
    assert [(each["kind"], each["name"]) for each in g.selection] == [("tensor", "b")]
    g.selection = [{"kind": "tensor", "name": "a"}]
    assert panel.selection == tensor("a")
    g.selection = [{"kind": "node", "name": ""}]
    assert panel.selection == tensor("a")
    g.selection = [{"kind": "node", "name": "", "id": 2}]
    assert panel.selection == tensor("z")
    assert g.selection[0]["kind"] == "node"
    panel.close()
    g.selection = [{"kind": "tensor", "name": "a"}]
    assert panel.selection == tensor("z")


def test_a_graph_of_another_model_is_followed_by_name() -> None:
    other = ModelGraph(onnx.parser.parse_model(LOG.replace("b = Log(a)", "b = Exp(a)").replace("z", "q")))
    panel = CapturePanel(capture(onnx.parser.parse_model(LOG)), graph=other)
    panel.selection = tensor("b")
    assert other.selection[0]["name"] == "b"
    panel.selection = tensor("z")  # the other has none
    assert other.selection[0]["name"] == "b"
    assert panel._linked == "Linked with the graph of g, which has 3 of 4 tensors"


def test_a_link_is_undone_made_again_and_refused_where_it_means_nothing() -> None:
    model = load(onnx.parser.parse_model(LOG))
    one, other = ModelGraph(model), ModelGraph(model)
    panel = CapturePanel(capture(model), graph=one, selection=tensor("b"))
    assert panel._linked == "Linked with the graph of g"
    panel.graph = None
    panel.selection = tensor("a")
    one.selection = [{"kind": "tensor", "name": "z"}]
    assert (panel.selection, one.selection, panel._linked) == (tensor("a"), tensor("z"), "")
    panel.graph = other
    assert other.selection[0]["name"] == "a"
    other.selection = [{"kind": "tensor", "name": "x"}]
    assert panel.selection == tensor("x")
    stranger = ModelGraph(onnx.parser.parse_model(STRANGE))
    with pytest.raises(OnnxNbError, match=r"none of the 4 tensors of CapturePanel.* is in g"):
        panel.graph = stranger
    panel.selection = tensor("b")
    assert (panel.graph, other.selection[0]["name"]) == (other, "b")


def test_a_large_capture_is_fetched_rather_than_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    cap = capture(load(onnx.parser.parse_model(LOG)))
    monkeypatch.setattr("onnx_nb.widgets._base.COLUMNS_IN_STATE", 10)
    panel = CapturePanel(cap)
    assert panel._parts == {}
    content, buffers = ask(panel, "columns", part="columns")
    assert "value" in content
    assert unpacked(bytes(buffers[0])).texts("name") == cap.names
    content, _ = ask(panel, "columns", part="rows")
    assert "has no part 'rows'" in content["error"]["message"]


def external(tmp_path: Path, *, size: int) -> Path:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[100], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", "offset": "0", "length": "400"}.items():
        weight.external_data.add(key=key, value=value)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, [100])],
        [info("y", TensorProto.FLOAT, [100])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(bytes(size))
    return tmp_path / "m.onnx"


def test_an_audit_is_handed_on_whole(tmp_path: Path) -> None:
    path = external(tmp_path, size=300)
    found = onnx_nb.external_data.audit(path)
    for panel in (AuditPanel(path), AuditPanel(found)):
        meta = unpacked(panel._parts["columns"]).meta
        assert [problem["kind"] for problem in meta["problems"]] == ["bounds", "orphan"]
        assert meta["tensors"][0]["problems"] == ["bounds"]
        assert meta["files"][0]["nbytes"] == 300
        assert meta["model"] == "m.onnx"


def test_a_saved_notebook_has_a_table_in_place_of_the_panel(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    panel = CapturePanel(capture(onnx.parser.parse_model(LOG), {"x": np.array([1, -1, 0, -2], np.float32)}))
    place = panel._still
    rows = re.findall(r"<tr><td[^>]*>(\w+)</td><td[^>]*>(\w+)</td><td[^>]*>float32 4</td>.*?<td>(\d*)</td></tr>", place)
    assert rows == [("b", "Log", "2"), ("z", "Relu", "1"), ("x", "input", ""), ("a", "Neg", "")]
    assert "Log makes 1 NaN" in place
    model = onnx.parser.parse_model(LOG)
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = evil
    still = still_html(capture(model))
    assert evil not in still
    assert html.escape(evil) in still
    audit = AuditPanel(external(tmp_path, size=300))
    assert re.search("<td[^>]*>error</td><td[^>]*>bounds</td>", audit._still)
    many = still_html(capture(onnx.parser.parse_model(chain(40))))
    assert many.count("<tr>") == 25
    assert "and 17 more values" in many


def chain(length: int) -> str:
    nodes = " ".join(f"t{at + 1} = Neg(t{at})" for at in range(length))
    return f'<ir_version: 8, opset_import: ["": 17]> g (float[2] t0) => (float[2] t{length}) {{ {nodes} }}'


def test_arguments_are_checked() -> None:
    cap = capture(onnx.parser.parse_model(LOG))
    with pytest.raises(TypeError, match="Did you mean 'height'"):
        CapturePanel(cap, heigth=3)


@pytest.fixture
def shell() -> Iterator[Any]:
    shell: Any = InteractiveShell()
    yield shell
    shell.history_manager.end_session()


def test_results_show_their_panels_in_a_cell(shell: Any, tmp_path: Path) -> None:
    results = [capture(onnx.parser.parse_model(LOG)), onnx_nb.external_data.audit(external(tmp_path, size=400))]
    for result in results:
        data = shell.display_formatter.format(result)[0]
        assert "application/vnd.jupyter.widget-view+json" in data
        assert data["text/plain"] == repr(result)
