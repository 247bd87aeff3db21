"""The widgets without a browser: traits, arguments, and the verbs as a browser would ask them."""

from __future__ import annotations

import io
import itertools
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
import traitlets

import onnx_nb
from onnx_nb import ExtractionError, ModelGraph, ModelSummary, ModelView
from onnx_nb.analysis.match.diff import CHANGED, SAME
from onnx_nb.types import Graph
from onnx_nb.widgets import _edits
from onnx_nb.widgets._channel import Call
from tests import models
from tests.analysis.submodel.test_extraction import BRANCHES
from tests.packed import unpacked

if TYPE_CHECKING:
    from onnx_nb.widgets._base import OnnxWidget


def graph() -> ModelGraph:
    return ModelGraph(onnx.parser.parse_model(BRANCHES))


IDS = itertools.count(1)


def ask(widget: OnnxWidget, verb: str, **args: Any) -> tuple[dict[str, Any], list[bytes]]:
    """Send what the browser would send and give the answer it would get."""
    got: list[tuple[dict[str, Any], list[bytes]]] = []
    done = threading.Event()

    def send(content: dict[str, Any], buffers: list[bytes]) -> None:
        if "progress" not in content:
            got.append((content, buffers))
            done.set()

    widget.send = send
    # an id of its own: the request before may not be forgotten yet
    widget._handle_custom_msg({"id": next(IDS), "verb": verb, "args": args}, [])
    assert done.wait(60)
    return got[0]


def test_arguments_are_checked_and_the_closest_one_is_named() -> None:
    with pytest.raises(TypeError, match=r"ModelGraph has no argument 'hieght'\. Did you mean 'height'"):
        ModelGraph(models.one_node(), hieght=300)
    with pytest.raises(TypeError, match=r"ModelSummary has no argument 'x'\. It has"):
        ModelSummary(models.one_node(), x=1)


@pytest.mark.parametrize("height", [True, -1, "700", float("nan"), float("inf")])
def test_a_height_of_columns_is_a_number(height: object) -> None:
    g = ModelGraph(models.one_node())
    with pytest.raises(traitlets.TraitError, match="column_height"):
        g.view = {"column_height": height}
    g.view = {"column_height": 700}
    assert g.view == {"column_height": 700}


def test_a_view_is_checked() -> None:
    widget = graph()
    mark = {"name": "first", "open": [], "camera": {"x": 1, "y": 2.5, "zoom": 1}}
    widget.view = {"open": ["a"], "search": "op:Add", "color": None, "bookmarks": [mark]}
    assert widget.view["bookmarks"] == [{**mark, "selection": None}]
    for wrong, message in (
        ({"serach": ""}, "Closest names: 'search'"),
        ({"open": "encoder"}, r"view\['open'\] is a list, not"),
        ({"camera": {"x": 0, "y": 0}}, "x, y, zoom"),
        ({"camera": {"x": 0, "y": 0, "zoom": 0}}, r"\['zoom'\] is a number above 0"),
        ({"bookmarks": [{"name": "first"}]}, r"view\['bookmarks'\]\[0\] lacks open, camera"),
    ):
        with pytest.raises(traitlets.TraitError, match=message):
            widget.view = wrong
    with pytest.raises(traitlets.TraitError, match="view has no 'zoom'"):
        ModelGraph(models.one_node(), view={"zoom": 2})


def test_numbers_from_a_cell_take_the_place_of_those_chosen_in_the_bar() -> None:
    widget = graph()
    widget.view = {"color": "MACs", "search": "x"}
    widget.overlay("parameters")
    assert widget.view == {"search": "x"}


def test_small_columns_are_saved_with_the_notebook_and_large_ones_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    small = graph()
    assert unpacked(small.get_state()["_parts"]["columns"]).meta["name"] == small.model.name
    monkeypatch.setattr("onnx_nb.widgets._base.COLUMNS_IN_STATE", 10)
    large = graph()
    assert large.get_state()["_parts"] == {}
    content, buffers = ask(large, "columns", part="columns")
    assert "error" not in content
    assert unpacked(bytes(buffers[0])).meta["nodes"] == 9


def test_the_state_never_holds_the_weights() -> None:
    weight = onnx.numpy_helper.from_array(np.random.default_rng(0).random((500, 500)), "w")
    proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))
    state = ModelGraph(proto).get_state()
    assert sum(len(v) for k, v in state.items() if isinstance(v, (bytes, str)) and k != "_esm") < 10_000


def test_plan_says_what_analysis_says() -> None:
    widget = graph()
    content, buffers = ask(widget, "plan", inputs=["b"], outputs=["w"])
    plan = onnx_nb.plan_extraction(widget.model, ["b"], ["w"])
    structure = Graph.of(widget.model)
    value = content["value"]
    np.testing.assert_array_equal(np.frombuffer(buffers[0], "<i4"), plan.nodes)
    assert [m["name"] for m in value["missing"]] == ["c"]
    assert [structure.value_names[v] for v in value["suggestion"]] == ["b", "c"]
    assert value["message"] == plan.message
    json.dumps(content)


def test_extract_gives_the_submodel_to_kernel_and_browser() -> None:
    widget, seen = graph(), list[Any]()
    widget.observe(lambda change: seen.append(change.new), "submodel")
    content, buffers = ask(widget, "extract", inputs=["a"], outputs=["e"])
    assert widget.submodel is not None
    assert seen == [widget.submodel]
    code = "import onnx_nb\n\nsubmodel = onnx_nb.extract(model, ['a'], ['e'])"
    file = str(Path.cwd() / f"{Path(widget.model.name).stem}-part.onnx")
    assert content["value"] == {
        "message": "Extracted 3 nodes. Copy Python copies the call.",
        "name": "",
        "code": code,
        "file": file,
    }
    assert unpacked(bytes(buffers[0])).meta["nodes"] == 3
    ask(widget, "discard")
    assert widget.submodel is None, "its extraction was undone"


def test_what_was_extracted_or_edited_is_saved(tmp_path: Path) -> None:
    widget = graph()
    content, _ = ask(widget, "save", path=str(tmp_path / "part.onnx"))
    assert content["error"]["message"] == "nothing was made of the model yet."
    ask(widget, "extract", inputs=["a"], outputs=["e"])
    content, _ = ask(widget, "save", path=str(tmp_path / "part.onnx"))
    assert content["value"]["path"] == str(tmp_path / "part.onnx")
    assert onnx_nb.load(tmp_path / "part.onnx").inputs[0].name == "a"
    content, _ = ask(widget, "save", path=str(tmp_path / "part.onnx"))
    assert content["value"]["exists"]


PINNED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,4] image) => (float[1,12] scores) <int64[2] shape = {1,12}, float[12] b = {1,2,3,4,5,6,7,8,9,10,11,12}> {
    [act] a = Relu (image)  [drop] d = Dropout (a)  [flat] f = Reshape (d, shape)  [add] scores = Add (f, b) }"""


def test_a_dimension_is_freed_renamed_and_fixed_where_it_stands() -> None:
    widget = onnx_nb.ModelGraph(onnx.parser.parse_model(PINNED))
    image = Graph.of(widget.model).value("image")
    shapes = [("n×3×4", "n", "freed n"), ("m×3×4", "m", "renamed n → m"), ("5×3×4", 5, "fixed m = 5")]
    for text, size, words in shapes:
        content, _ = ask(widget, "edit", edit="shape", kind="tensor", id=image, text=text)
        assert content["value"]["message"].startswith(words)
        assert widget.edits is not None
        sizes = [(info.shape or ())[0] for info in (*widget.edits.model.inputs, *widget.edits.model.outputs)]
        assert sizes == [size, size]
    ask(widget, "edit", edit="undo")
    assert widget.edits is not None
    for text, words in (("m×4", "not those of"), ("k×3×w", "cannot be freed"), ("m×3×5", "is 4 in the file")):
        content, _ = ask(widget, "edit", edit="shape", name="image", text=text)
        assert words in content["error"]["message"]
        assert content["error"]["node"] == ("add" if "freed" in words else ""), "the view lights what is in the way"
        assert len(widget.edits.steps) == 2, "all of a shape, or none of it"
    ask(widget, "edit", edit="shape", name="image", text="5×3×4")
    content, _ = ask(widget, "edit", edit="undo", step=1)
    assert content["error"]["message"].startswith("step 2 needs step 1")
    assert [step["sign"] for step in ask(widget, "edit", edit="undo")[0]["value"]["steps"]] == ["✓", "✓"]
    assert len(ask(widget, "edit", edit="redo")[0]["value"]["steps"]) == 3
    content, (table, changes) = ask(widget, "edit", edit="show", step=1)
    assert content["value"]["step"] == 1
    assert "n×3×4" in unpacked(bytes(table)).strings()
    packed = unpacked(bytes(changes))
    assert packed.meta["counts"] == {"changed": 3}, "both ends, and the vector of the Reshape; the old one is gone"
    marked = [list(packed.arrays[f"node_state_{side}"]) for side in (0, 1)]
    assert marked == [[SAME, SAME, CHANGED, SAME]] * 2, "what was mended is marked in both graphs"
    assert ask(widget, "edit", edit="show", step=4)[0]["error"]["message"] == "there is no step 4."


def test_a_node_is_inserted_and_changed_by_a_text() -> None:
    widget = onnx_nb.ModelGraph(onnx.parser.parse_model(PINNED))
    a = Graph.of(widget.model).value("a")
    content, buffers = ask(widget, "edit", edit="insert", kind="tensor", id=a, text="LeakyRelu(alpha=0.5)")
    assert content["value"]["code"].splitlines()[-1] == "e.insert('LeakyRelu', 'a', alpha=0.5)"
    assert unpacked(bytes(buffers[1])).meta["counts"]["added"] == 1
    assert widget.edits is not None
    node = [entry.op_type for entry in widget.edits.model.proto.graph.node].index("LeakyRelu")
    ask(widget, "edit", edit="set", name="insert_leakyrelu", text="alpha=0.25")
    assert widget.edits.model.proto.graph.node[node].attribute[0].f == 0.25
    for text in ("Cast to float16", "Relu(1)", "a.b()"):
        content, _ = ask(widget, "edit", edit="insert", kind="tensor", id=a, text=text)
        assert "cannot be read" in content["error"]["message"]


def test_clicks_edit_the_model_and_take_edits_back() -> None:
    widget = graph()
    columns_ = unpacked(bytes(widget._packed["columns"]))
    a = Graph.of(widget.model).value("a")
    content, buffers = ask(widget, "edit", edit="rename", kind="tensor", id=a, text="q")
    assert content["value"]["message"].startswith("renamed a → q: equal on the same feeds")
    assert content["value"]["code"].splitlines()[-1] == "e.rename({'a': 'q'})"
    assert "q" in unpacked(bytes(buffers[0])).strings()
    assert widget.edits is not None
    assert "q" in Graph.of(widget.edits.model).value_names
    content, _ = ask(widget, "edit", edit="rename", kind="tensor", id=a, text="r")
    assert content["value"]["code"].splitlines()[-1] == "e.rename({'q': 'r'})", "the graph that is shown has it as 'a'"
    ask(widget, "edit", edit="undo")
    assert widget.edits.current_name("a") == "q"
    node = int(Graph.of(widget.model).producer[Graph.of(widget.model).value("b")])
    content, _ = ask(widget, "edit", edit="remove", kind="node", id=node)
    assert len(widget.edits.steps) == 2 or content["error"]["type"] == "EditError"
    count = len(widget.edits.steps)
    ask(widget, "edit", edit="undo")
    assert len(widget.edits.steps) == count - 1
    assert columns_.meta == unpacked(bytes(widget._packed["columns"])).meta, "the model that is shown stays"


def test_edits_of_a_large_model_are_proved_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_edits, "SMALL", (0, 0))
    widget = graph()
    for name, text in (("a", "q"), ("b", "r")):
        content, _ = ask(widget, "edit", edit="rename", name=name, text=text)
        assert content["value"]["message"].startswith(f"renamed {name} → {text}: not proved yet")
    content, buffers = ask(widget, "edit", edit="verify", step=1)
    assert [step["sign"] for step in content["value"]["steps"]] == ["✓", "✓"]
    assert (content["value"]["step"], buffers) == (1, []), "the model that is shown stays"
    assert widget.edits is not None
    widget.edits.rename({"q": "s"})
    content, buffers = ask(widget, "edit", edit="verify")
    assert len(content["value"]["steps"]) == 3
    assert len(buffers) == 2, "a cell has edited on"


def test_a_proof_ends_after_the_run_that_it_is_at() -> None:
    e = onnx_nb.edit(graph().model).rename({"a": "q"}).rename({"b": "r"})
    calls: list[str] = []

    def stop(_done: float, what: str) -> None:
        calls.append(what)
        if len(calls) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        e.verify(progress=stop)
    assert calls == ["running the original"] * 2
    assert [step.proof for step in e.steps] == ["unproved"] * 2
    assert e.steps[0].verdict == "not proved yet"


def test_a_page_may_end_a_coloring_and_not_begin_one() -> None:
    widget = graph()
    widget.set_state({"_overlay": {"label": "from the page"}})
    assert widget._overlay is None
    assert widget.overlay({"a": 1.0}, label="error") is not None
    widget.set_state({"height": 300})
    assert widget._overlay is not None
    widget.set_state({"_overlay": None})
    assert widget._overlay is None


def test_extract_with_an_input_missing_is_an_error_and_changes_nothing() -> None:
    widget = graph()
    content, _ = ask(widget, "extract", inputs=["b"], outputs=["w"])
    assert content["error"]["type"] == "ExtractionError"
    assert "'c'" in content["error"]["message"]
    assert widget.submodel is None


def test_the_same_from_a_cell() -> None:
    widget = graph()
    widget.inputs, widget.outputs = ["b"], ["w"]
    assert [m.name for m in widget.plan().missing] == ["c"]
    with pytest.raises(ExtractionError):
        widget.extract()
    widget.inputs = ["b", "c"]
    assert widget.extract() is widget.submodel


@pytest.mark.parametrize(("kind", "number"), [("node", 0), ("tensor", 0), ("scope", 0)])
def test_inspect_is_plain_json(kind: str, number: int) -> None:
    content, _ = ask(graph(), "inspect", kind=kind, id=number)
    assert set(json.loads(json.dumps(content))["value"]) == {"rows", "attributes", "documentation", "source"}


def test_view_is_summary_above_graph() -> None:
    view = ModelView(models.light("squeezenet"), height=300)
    assert view.children == (view.summary, view.graph)
    assert (view.graph.height, view.summary.expanded) == (300, False)
    assert view.summary.summary.nodes == view.graph.model.proto.graph.node.__len__()


def test_closing_ends_the_worker() -> None:
    before = set(threading.enumerate())
    widget = graph()
    ask(widget, "inspect", kind="node", id=0)
    workers = [t for t in threading.enumerate() if t not in before and t.name == "onnx_nb inspect"]
    widget.close()
    for worker in workers:
        worker.join(60)
    assert workers
    assert not any(worker.is_alive() for worker in workers)


def test_the_page_is_whole_and_lets_nothing_in(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(BRANCHES)
    evil = "</script><script>alert(1)</script><!--"
    proto.graph.node[0].name = proto.graph.name = proto.doc_string = evil
    path = ModelView(proto).to_html(tmp_path / "new" / "page.html")
    text = path.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert evil not in text
    assert text.count("<script") == text.count("</script>") == 4
    assert not [p for p in path.parent.iterdir() if p != path]


def test_the_bundle_cannot_close_its_own_script_element() -> None:
    bundle = (Path(onnx_nb.__file__).parent / "static" / "widget.js").read_text(encoding="utf-8")
    assert "</script" not in bundle
    assert "<!--" not in bundle


def test_the_costs_in_a_summary_are_counted_for_the_sizes_that_are_given() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[batch, 3] x, float[3, 4] w) => (float[batch, 4] z) { z = MatMul(x, w) }"""
    summary = ModelSummary(onnx.parser.parse_model(text))
    assert summary.summary.macs is None
    assert summary.summary.unbound == ("batch",)
    for size in (5, 7):
        summary.shapes = {"batch": size}
        assert summary.summary.macs == size * 3 * 4
        assert summary._summary["cost"]["known_macs"] == size * 3 * 4
    with pytest.raises(onnx_nb.FeedError, match="'x'"):
        summary.shapes = {"x": [2, 9]}
    content, _ = ask(summary, "costs", shapes={"x": [2, 9]})
    assert "'x'" in content["error"]["message"]
    assert summary.summary.macs == 7 * 3 * 4, "what was counted stays"
    assert summary.shapes == {"batch": 7}
    content, _ = ask(summary, "costs", shapes={})
    assert "value" in content
    assert (summary.summary.macs, summary.shapes) == (None, {})
    summary.shapes = {"batch": 0}
    assert summary.summary.macs == 0
    assert ModelSummary(onnx.parser.parse_model(text), shapes={"batch": 2}).shapes == {"batch": 2}


def test_a_capture_on_feeds_that_were_replaced_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] y) { y = Neg(x) }""")
    widget = ModelGraph(model)
    widget.feeds = {"x": np.zeros(2, np.float32)}

    def replace(_fraction: float, _message: str) -> None:
        widget.feeds = {"x": np.ones(2, np.float32)}

    call: Call[Any] = Call(1, "capture", {}, lambda _content, _buffers: None)
    monkeypatch.setattr(call, "progress", replace)
    for args in ({}, {"value": 1}):
        call.args = args
        with pytest.raises(onnx_nb.OnnxNbError, match="the feeds were changed while the model ran"):
            widget._values.capture(call)
        assert widget.captured is None
        content, _ = ask(widget, "statistics", value=1)
        assert content["value"] is None
    widget._values.capture(Call(2, "capture", {}, lambda _content, _buffers: None))
    content, _ = ask(widget, "statistics", value=1)
    assert (content["value"]["max"], content["value"]["source"]) == (-1, "captured, 1 run on your feeds")


def test_the_heads_of_an_attention_are_one_kind_of_numbers() -> None:
    widget = ModelGraph(
        onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 23]>
    g (float[1, 6, 16] x) => (float[1, 6, 16] y) {
      k = Neg(x)  y = Attention<q_num_heads = 2, kv_num_heads = 2>(x, k, k) }""")
    )
    content, _ = ask(widget, "values", value=widget._values.graph.value("k"), index=[], row=0, column=0, look="slice")
    assert content["value"]["kinds"] == ["Values"]
    place = {"value": widget._values.graph.value("y"), "index": [], "row": 0, "column": 0, "look": "channels"}
    content, _ = ask(widget, "values", **place)
    assert (content["value"]["kinds"], content["value"]["shape"]) == (["Values", "Attention"], [1, 6, 16])
    content, [pixels] = ask(widget, "values", kind="Attention", **place)
    assert (content["value"]["shape"], content["value"]["picture"]["shape"]) == ([1, 2, 6, 6], [2, 6, 6])
    assert len(pixels) == 2 * 6 * 6
    first = widget._values.known.attention
    widget.feeds = {"x": np.zeros((1, 6, 16), np.float32)}
    content, _ = ask(widget, "values", kind="Attention", **place)
    assert {cell for line in content["value"]["cells"] for cell in line} == {f"{np.float32(1 / 6):.6g}"}
    assert widget._values.known.attention is not first


def test_packed_weights_are_dequantized_and_compared_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.analysis.compare.test_operands import model_of, operand_of, packed, scale

    weights = {"w_Q4": packed(24, 4, 8), "s": scale(24, 4)}
    options = {"N": 24, "K": 64, "bits": 4, "block_size": 16}
    model = model_of("MatMulNBits", {"x": np.zeros((1, 64), np.float32)}, weights, ["x", *weights], **options)
    widget = ModelGraph(model)
    expected = operand_of(model, "w_Q4").array
    value = widget._values.graph.value("w_Q4")
    place = {"value": value, "index": [], "row": 0, "column": 0, "look": "slice"}
    content, _ = ask(widget, "statistics", value=value)
    assert content["value"]["max"] == float(expected.max())
    assert content["value"]["source"] == "dequantized to 64×24, a scale for each block of 16"
    content, _ = ask(widget, "values", **place)
    assert (content["value"]["kinds"], content["value"]["shape"]) == (["Dequantized", "Packed"], [64, 24])
    assert content["value"]["cells"][1][2] == f"{expected[1, 2]:.6g}"
    content, _ = ask(widget, "values", kind="Packed", **place)
    assert content["value"]["cells"][0][0] == str(weights["w_Q4"][0, 0, 0])
    content, _ = ask(widget, "statistics", value=widget._values.graph.value("s"))
    assert content["value"]["source"] == ""
    right = expected.copy()
    right[16:32, 3] *= 0.5
    reference = model_of("MatMul", {"x": np.zeros((1, 64), np.float32)}, {"w": right}, ["x", "w"])
    reference.proto.graph.node[0].domain = ""
    cells = {"c": onnx_nb.compare(reference, model, {"x": np.ones((1, 64), np.float32)})}
    monkeypatch.setattr("onnx_nb.widgets._graphs.variables", lambda: cells)
    content, _ = ask(widget, "values", kind="Error by block", **place)
    assert content["value"]["kinds"] == ["Dequantized", "Packed", "Error by block"]
    assert content["value"]["cells"] == [
        ["1" if (row, column) == (1, 3) else "0" for column in range(6)] for row in range(4)
    ]
    monkeypatch.setattr("onnx_nb.widgets._values.DEQUANTIZED", 100)  # of a larger one only the bytes are shown
    content, _ = ask(ModelGraph(model), "values", **place)
    assert content["value"]["kinds"] == ["Packed"]


def test_the_sizes_of_made_up_feeds_are_asked_for_and_kept() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[batch, 3] x, float[t] y) => (float[batch, 3] z) { z = Neg(x) }""")
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "?"
    widget = ModelGraph(model)
    content, _ = ask(widget, "sizes")
    usual = {name: array.shape for name, array in onnx_nb.random_feeds(model).items()}
    assert content["value"] == [["batch", "", str(usual["x"][0])], ["y", "", str(usual["y"][0])]]
    content, _ = ask(widget, "sizes", choice=True, shapes={"batch": [5], "y": [7]})
    assert [row[1] for row in content["value"]] == ["5", "7"]
    assert widget.shapes == {"batch": 5, "y": [7]}
    ask(widget, "capture", value=None)
    assert widget.captured is not None
    assert widget.captured.statistics("z").count == 15
    assert widget.captured.statistics("y").count == 7
    for wrong, message in (
        ({"batch": [None]}, "whole numbers from 0"),
        ({"batch": "2"}, "whole numbers from 0"),
        ({"y": [2, 3]}, "the input takes"),
    ):
        content, _ = ask(widget, "sizes", choice=True, shapes=wrong)
        assert message in content["error"]["message"]
        assert widget.shapes == {"batch": 5, "y": [7]}
    widget.shapes = {"batch": 2}  # in a cell
    assert widget.captured is None
    assert widget.get_state("shapes") == {"shapes": {"batch": 2}}  # which a notebook saves
    content, _ = ask(widget, "capture", value=None)
    assert widget.captured.statistics("z").count == 6
    widget.feeds = {"x": np.zeros((1, 3), np.float32), "y": np.zeros(1, np.float32)}
    content, _ = ask(widget, "sizes")
    assert content["value"] == []
    ask(widget, "capture", value=None)
    assert widget.captured.statistics("z").count == 3


def test_colors_that_need_a_run_say_which_and_one_of_a_comparison_finds_it_in_a_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widget = graph()
    for name, words in {"time": "Press Profile first", "NaN": "Press Capture first", "x": "There are"}.items():
        assert words in ask(widget, "overlay", name=name)[0]["error"]["advice"]
    content, _ = ask(widget, "overlay", name="error")
    assert "has not been compared" in content["error"]["message"]
    assert ask(widget, "capture", value=None)[0]["value"]["origin"] is None
    ask(widget, "profile")
    cells = {"other": onnx_nb.compare(graph().model, graph().model), "c": onnx_nb.compare(graph().model, widget.model)}
    monkeypatch.setattr("onnx_nb.widgets._graphs.variables", lambda: cells)
    for name, label in {"time": "seconds", "NaN": "NaN", "error": "isolated"}.items():
        content, buffers = ask(widget, "overlay", name=name)
        assert (content["value"]["label"], len(buffers)) == (label, 2)
    widget.feeds = None
    assert "Press Profile first" in ask(widget, "overlay", name="time")[0]["error"]["advice"]


def test_a_click_simplifies_the_model_and_what_is_saved_is_the_result(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] z) { a = Identity(x)  b = Neg(a)  z = Neg(b) }"""
    widget = ModelGraph(onnx.parser.parse_model(text))
    content, buffers = ask(widget, "edit", edit="simplify")
    assert content["value"]["message"].startswith("3 → 2 nodes. 1 output agrees")
    assert len(buffers) == 1
    assert widget.simplification is not None
    assert widget.simplification.verified
    ask(widget, "save", path=str(tmp_path / "simple.onnx"))
    assert [node.op_type for node in onnx.load(tmp_path / "simple.onnx").graph.node] == ["Neg", "Neg"]


def test_cells_and_a_picture_of_a_tensor_are_sent() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }""")
    widget = ModelGraph(model)
    widget.feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    value = Graph.of(widget.model).value("y")
    content, buffers = ask(widget, "values", value=value, index=[], row=0, column=1, look="slice")
    assert content["value"]["cells"] == [["-1", "-2"], ["-4", "-5"]]
    assert (content["value"]["shape"], content["value"]["column"]) == ([2, 3], 1)
    assert content["value"]["looks"] == ["slice"]
    assert (content["value"]["picture"]["low"], content["value"]["picture"]["high"]) == (-5, 0)
    assert len(buffers) == 1
    content, buffers = ask(widget, "npy", value=value)
    assert np.load(io.BytesIO(buffers[0])).tolist() == [[0, -1, -2], [-3, -4, -5]]


def test_a_message_while_a_cell_runs_leaves_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    comms = pytest.importorskip("ipykernel.comm.comm")
    if not hasattr(comms.BaseComm, "_reply_subshell_for"):
        pytest.skip("this ipykernel passes no messages to subshells")
    events: list[str] = []
    shell = SimpleNamespace(events=SimpleNamespace(trigger=events.append))
    monkeypatch.setattr("comm.create_comm", comms.BaseComm)
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    g = ModelGraph(str(models.one_node()))
    state = {"height": 333}
    message = {"content": {"data": {"method": "update", "state": state}}, "buffers": []}
    subshell = threading.Thread(target=g.comm.handle_msg, args=(message,))
    subshell.start()
    subshell.join()
    assert (g.height, events) == (333, [])
    state["height"] = 334
    g.comm.handle_msg(message)
    assert (g.height, events) == (334, ["pre_execute", "post_execute"])
    g.close()


def test_a_tensor_inside_a_body_is_captured_by_a_click() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, bool c) => (float[2] z) {
        y = If(c) <then_branch = t () => (float[2] r) { a = Neg(x)  r = Relu(a) },
                   else_branch = e () => (float[2] s) { b = Abs(x)  s = Sqrt(b) }>
        z = Neg(y) }""")
    widget, graph = ModelGraph(model), Graph.of(model)
    widget.feeds = {"x": np.array([1, -2], np.float32), "c": np.array(True)}
    content, _ = ask(widget, "capture", value=graph.value("a"))
    assert content["value"] == {"message": "Captured 'a'", "origin": None}
    content, _ = ask(widget, "statistics", value=graph.value("a"))
    assert (content["value"]["min"], content["value"]["max"]) == (-1, 2)
    content, _ = ask(widget, "capture", value=graph.value("b"))
    assert content["error"]["message"] == "'b' has no value: else_branch of If did not run on these feeds."
