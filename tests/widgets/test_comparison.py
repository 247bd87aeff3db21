"""ComparisonPanel: what it hands to the browser, how it goes with a graph, and its page."""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import pytest
from IPython.core.interactiveshell import InteractiveShell

import onnx_nb
from onnx_nb import ComparisonPanel, ModelGraph, OnnxNbError, compare, random_feeds
from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched
from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats
from onnx_nb.analysis.view.result_columns import SPARK, comparison_columns, detail_columns, notable, sections
from onnx_nb.widgets._channel import Call, Cancelled
from tests import models
from tests.faults.quantized import Sound, clipped
from tests.packed import Unpacked, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.standard_normal((2, 5, 40)).astype(np.float32)
NORM = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 96] x, float[96] s, float[96] b) => (float[2, 96] y)
{{ a = Exp(x)  n = LayerNormalization<epsilon = {}>(a, s, b)  y = Tanh(n) }}"""
STRANGE = '<ir_version: 8, opset_import: ["": 17]> g (float[2] p) => (float[2] q) { q = Exp(p) }'
EXACT, ROUGH = (onnx.parser.parse_model(NORM.format(epsilon)) for epsilon in ("1e-12", "1e-2"))
for _node in (*EXACT.graph.node, *ROUGH.graph.node):
    _node.name = f"{_node.op_type} node"


def errors(size: float) -> ErrorStats:
    noise = np.random.default_rng(1).standard_normal(VALUES.shape).astype(np.float32)
    return ErrorStats.of(VALUES, VALUES + np.float32(size) * noise)


def comparison(*, isolated: bool = True) -> Comparison:
    """Eight points; the sixth is wrong by itself, and all after it are because of it."""
    points = tuple(
        Point(
            name=f"encoder.layer.{depth // 2}.{('dense', 'norm')[depth % 2]}",
            reference=f"r{depth}",
            candidate=f"t{depth}",
            matched="scope",
            depth=depth,
            op_type=("Linear", "LayerNorm")[depth % 2],
            node=f"node {depth}",
            cumulative=errors(0 if depth == 0 else 1e-6 if depth < 5 else 1e-2),
            isolated=errors(1e-2 if depth == 5 else 1e-6) if isolated else None,
        )
        for depth in range(8)
    )
    return Comparison("torch Bert", "bert.onnx", points, (Unmatched("drop", "reference", "dead", "Dropout"),))


def columns_in(panel: ComparisonPanel) -> Unpacked:
    return unpacked(panel._parts["columns"])


def test_a_panel_has_every_metric_of_every_point() -> None:
    c = comparison()
    packed = columns_in(ComparisonPanel(c))
    for which in ("cumulative", "isolated"):
        for name, metric in METRICS.items():
            wanted = [metric.of(getattr(point, which)) for point in c.points]
            assert np.array_equal(packed.arrays[f"{which}_{name}"], wanted, equal_nan=True), name
    assert np.array_equal(packed.arrays["score"], c.scores("isolated"))
    assert packed.texts("name") == c.names
    assert packed.meta["message"] == c.message
    assert packed.meta["first"] == packed.meta["notable"] == 5
    assert packed.texts("missing_reason") == ["dead"]
    assert packed.meta["outside"] == 1
    assert packed.arrays["cumulative_state"].tolist() == [1, 2, 2, 2, 2, 2, 2, 2]


def test_a_small_histogram_stands_further_right_where_errors_are_larger() -> None:
    packed = comparison_columns(comparison())
    sparks = packed.arrays["sparks"].reshape(-1, SPARK)
    middle = sparks @ np.arange(SPARK) / sparks.sum(axis=1)
    assert middle[5] > middle[[0, 1, 2, 3, 4, 6, 7]].max() + 3
    low, high = packed.arrays["spark_ends"]
    largest = errors(1e-2).max_abs
    assert 10.0**low < errors(1e-6).max_abs < largest <= 10.0**high
    assert sparks.max() == 255


def test_the_detail_of_a_point_is_what_its_errors_are() -> None:
    reference, candidate = VALUES.copy(), VALUES.copy()
    candidate[0, 1, 7] += 0.5
    candidate[1, 3, 2] = np.nan
    found = ErrorStats.of(reference, candidate)
    packed = unpacked(detail_columns(Point("p", "p", "p", "name", 0, cumulative=found)).to_bytes())
    about = packed.meta["cumulative"]
    assert (about["nan"], about["inf"], about["equal"], about["axis"]) == (1, 0, 398, 2)
    assert about["worst"][0][0] == "[1, 3, 2]"
    assert about["worst"][0][2] == "NaN"
    assert about["worst"][1][0] == "[0, 1, 7]"
    assert packed.arrays["cumulative_worst"].tolist()[:2] == [math.inf, pytest.approx(0.5, rel=1e-6)]
    assert np.flatnonzero(packed.arrays["cumulative_channels"]).tolist() == [2, 7]
    counts, edges = (packed.arrays[f"cumulative_absolute_{name}"] for name in ("counts", "edges"))
    assert counts.sum() + about["zeros"]["absolute"] == 399
    assert edges[0] <= found.max_abs <= edges[-1]
    assert "isolated" not in packed.meta


def test_details_of_the_worst_points_come_along_and_others_are_asked_for() -> None:
    c = comparison()
    one = len(detail_columns(c.points[5]).to_bytes())
    packed = comparison_columns(c, details=2 * one)
    assert packed.arrays["detail_row"][0] == 5
    assert packed.meta["left_out"] == 8 - len(packed.arrays["detail_row"]) > 0
    end = packed.arrays["detail_end"][0]
    first = unpacked(packed.arrays["details"][:end].tobytes())
    assert first.meta["isolated"]["count"] == VALUES.size
    assert comparison_columns(c).meta["left_out"] == 8


def test_what_is_looked_at_first() -> None:
    assert ComparisonPanel(comparison()).point == "encoder.layer.2.norm"
    assert ComparisonPanel(comparison(), point="").selection == []
    even = dataclasses.replace(comparison(isolated=False), points=comparison(isolated=False).points[:4])
    assert even.first_divergent() is None
    found = notable(even)
    assert found is not None
    assert found.errors().rel_l2 == max(point.errors().rel_l2 for point in even.points)
    same = dataclasses.replace(even, points=even.points[:1])
    assert notable(same) is None
    assert ComparisonPanel(same).selection == []
    assert ComparisonPanel(Comparison("a", "b")).point == ""


def test_the_one_point_that_differs_by_itself_is_the_only_one() -> None:
    c = comparison()
    points = [dataclasses.replace(point, isolated=errors(1e-2 if point.depth == 5 else 0)) for point in c.points]
    said = dataclasses.replace(c, points=tuple(points)).message
    assert re.search(r": its own error is \S+ of its norm, no other has one\.$", said)


def test_sections_have_the_most_distinct_labels() -> None:
    names = ["embeddings"] + [f"encoder.layer.{n}.{part}.x" for n in range(4) for part in ("attention", "mlp")]
    assert [label for _, label in sections(names)] == ["embeddings", "layer.0", "layer.1", "layer.2", "layer.3"]
    assert sections([]) == []


def test_choosing_a_point_selects_its_tensor_in_the_graph_and_back() -> None:
    c = compare(EXACT, ROUGH)
    for model in (ROUGH, EXACT):
        g = ModelGraph(model)
        panel = ComparisonPanel(c, graph=g)
        assert [(each["kind"], each["name"]) for each in g.selection] == [("tensor", "n")]
        g.selection = [{"kind": "tensor", "name": "y"}]
        assert panel.point == "y"
        panel.point = "a"
        assert g.selection[0]["name"] == "a"
        g.selection = [{"kind": "node", "name": "Tanh node", "id": 2}]
        assert panel.point == "y"
        assert g.selection[0]["kind"] == "node"
        panel.close()
        g.selection = [{"kind": "tensor", "name": "n"}]
        assert panel.point != "n"


def test_a_graph_is_colored_by_the_errors_and_by_the_metric_that_is_drawn() -> None:
    c = compare(EXACT, ROUGH)
    g = ModelGraph(ROUGH)
    panel = ComparisonPanel(c, graph=g)
    shown: dict[str, Any] = g._overlay
    assert shown["label"] == "isolated"
    found = np.frombuffer(shown["nodes"])
    assert found.tolist() == [0.0, c["n"].errors().rel_l2, c["y"].errors().rel_l2]
    panel.metric = "max_abs"
    assert g._overlay["label"] == "max_abs"
    assert np.frombuffer(g._overlay["nodes"])[1] == c["n"].errors().max_abs
    other = ModelGraph(EXACT)
    panel.graph = other
    assert g._overlay is None
    assert other._overlay["label"] == "max_abs"
    other.overlay("parameters")
    panel.graph = None
    panel.metric = "rmse"
    assert other._overlay["label"] == "parameters"


def test_a_graph_of_neither_side_is_refused() -> None:
    stranger = ModelGraph(onnx.parser.parse_model(STRANGE))
    with pytest.raises(OnnxNbError, match=r"none of the 6 tensors of ComparisonPanel.* is in g"):
        ComparisonPanel(compare(EXACT, ROUGH), graph=stranger)
    assert stranger._overlay is None


def test_an_overlay_says_which_numbers_a_comparison_has() -> None:
    g = ModelGraph(ROUGH)
    c = compare(EXACT, ROUGH, isolated=False)
    with pytest.raises(OnnxNbError, match="isolated errors are unknown"):
        g.overlay(c, label="isolated")
    with pytest.raises(OnnxNbError, match=r"no numbers 'max'\. It has 'isolated', 'cumulative', 'max_abs'"):
        g.overlay(c, label="max")


def test_nodes_are_infinite_where_only_one_side_is_nan() -> None:
    log = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) {{ a = {}(x) y = Neg(a) }}'
    exact, other = (onnx.parser.parse_model(log.format(op)) for op in ("Log", "Identity"))
    c = compare(exact, other, {"x": -np.ones(4, np.float32)})
    g = ModelGraph(other)
    for label, expected in (("cumulative", [math.inf, math.inf]), ("isolated", [math.inf, 0.0])):
        made = g.overlay(c, label=label)
        assert made is not None
        assert made.nodes.tolist() == expected


def test_the_graph_beside_the_curve_is_that_of_the_candidate_and_its_range_is_extracted() -> None:
    c = compare(EXACT, ROUGH)
    panel = ComparisonPanel(c)
    graph = unpacked(panel._part("graph"))
    nodes = [node.output[0] for node in ROUGH.graph.node]
    made = [nodes[row] if row >= 0 else None for row in graph.arrays["row_node"]]
    assert made == [point.candidate if point.candidate in nodes else None for point in c.points]
    linked = ModelGraph(ROUGH).overlay(c)
    assert linked is not None
    assert graph.arrays["overlay_nodes"].tolist() == linked.nodes.tolist()
    assert graph.meta["overlay"]["label"] == "isolated"
    reply = panel._on_range(Call(1, "range", {"nodes": [1, 2]}, lambda *_: None))
    assert panel.submodel is not None
    assert [node.op_type for node in panel.submodel.proto.graph.node] == ["LayerNormalization", "Tanh"]
    assert reply.value.startswith("Extracted 2 nodes: panel.submodel")
    with pytest.raises(OnnxNbError, match="No node is selected"):
        panel._on_range(Call(2, "range", {"nodes": []}, lambda *_: None))
    without = ComparisonPanel(comparison())  # of values from somewhere, without a model
    assert "range" not in without._verbs()
    with pytest.raises(OnnxNbError, match="has no part 'graph'"):
        without._part("graph")


def test_the_page_holds_the_points_and_nothing_else_may_run(tmp_path: Path) -> None:
    evil = '</script><img src=x onerror="x"><!--'
    c = comparison()
    c = dataclasses.replace(c, reference=evil, points=(dataclasses.replace(c.points[0], name=evil), *c.points[1:]))
    path = ComparisonPanel(c).to_html(tmp_path / "new" / "page.html")
    text = path.read_text(encoding="utf-8")
    assert evil not in text
    assert text.count("<script") == text.count("</script>") == 3
    found = re.search(r'id="onnx-nb-points">([^<]*)<', text)
    assert found is not None
    packed = unpacked(base64.b64decode(found[1]))
    assert packed.meta["left_out"] == 0
    assert packed.texts("name")[0] == evil


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_a_comparison_displays_as_its_panel(shell: InteractiveShell) -> None:
    assert shell.display_formatter is not None
    c = compare(EXACT, ROUGH)
    data, _ = shell.display_formatter.format(c)
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == repr(c)


def test_a_module_is_drilled_into_and_isolated_from_the_panel() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
    c = onnx_nb.compare_torch(module, torch.ones(3, 4), exporter="torchscript")
    panel = ComparisonPanel(c)
    assert panel._actions == ["reproduce", "drill", "range"]
    assert ComparisonPanel(compare(EXACT, ROUGH))._actions == ["range"]
    seen: list[str] = []
    call: Call[Any] = Call(
        1, "reproduce", {"name": "2"}, lambda content, _buffers: seen.append(content["progress"]["message"])
    )
    reply = panel._on_reproduce(call)
    assert panel.reproduction is not None
    assert panel.reproduction.path == "2"
    assert "panel.reproduction" in reply.value
    assert seen == ["extracting '2'"]
    inside = unpacked(bytes(panel._on_drill(call).buffers[0]))
    assert panel.drilled is not None
    assert len(inside.arrays["name"]) == len(panel.drilled) > 0
    assert {point.source for point in panel.drilled.points} == {""}
    asked: Call[Any] = Call(2, "detail", {"row": 0, "inside": "2"}, call.send)
    detail = unpacked(bytes(panel._on_detail(asked).buffers[0]))
    assert detail.meta == detail_columns(panel.drilled.points[0]).meta
    call.stop.set()
    for answer, verb in ((panel._on_reproduce, "reproduce"), (panel._on_drill, "drill"), (panel._on_page, "page")):
        with pytest.raises(Cancelled):
            answer(replace(call, verb=verb, args={"name": "0"}))
    assert (panel.reproduction.path, list(panel._inside)) == ("2", ["2"])
    for args, said in (({"row": 0, "inside": "1"}, "'1' was not drilled into"), ({"row": 99}, "there is no point 99")):
        with pytest.raises(OnnxNbError, match=said):
            panel._on_detail(replace(asked, args=args))


@pytest.fixture(scope="module")
def quantized() -> Comparison:
    """The comparison of a small network with a quantized one, of which a range clips."""
    sound = Sound("conv")
    planted = clipped(sound, 2)
    return compare(planted.reference, planted.candidate, sound.feeds)


def test_quantizers_are_columns_with_the_worst_first(quantized: Comparison) -> None:
    packed = columns_in(ComparisonPanel(quantized))
    assert sorted(packed.texts("quantizer_name")) == sorted(each.name for each in quantized.quantizers)
    assert packed.texts("quantizer_name")[0] == "r1"
    assert "clips 9.9% of values above 0.906" in packed.texts("quantizer_message")[0]
    by_name = {each.name: each for each in quantized.quantizers}
    ends = packed.arrays["quantizer_end"]
    for row, name in enumerate(packed.texts("quantizer_name")):
        quantizer = by_name[name]
        assert packed.arrays["quantizer_clipped"][row] == quantizer.clipped
        assert quantized.points[packed.arrays["quantizer_region"][row]].quantizers.count(quantizer) == 1
        before, after = (packed.arrays[f"quantizer_{side}"][ends[row] - 96 : ends[row]] for side in ("before", "after"))
        assert before.sum() == after.sum() == quantizer.count
        beyond = before[:16].sum() + before[-16:].sum()
        assert after[:16].sum() + after[-16:].sum() == 0
        assert beyond >= quantizer.below + quantizer.above
        # rounding leaves a value in its interval, so only values beyond move, to the outermost levels
        assert np.abs(before - after)[17:79].max() <= 1
    assert packed.arrays["blame_clipping"][quantized.names.index("r1")] > 0.99
    assert not any(name.startswith(("quantizer", "blame")) for name in columns_in(ComparisonPanel(comparison())).arrays)


def test_regions_go_back_to_float_and_undo_returns(quantized: Comparison) -> None:
    panel = ComparisonPanel(quantized)
    sent: list[Any] = []
    verbs = panel._verbs()

    def ask(verb: str, **given: Any) -> str:
        return str(verbs[verb](Call(1, verb, given, lambda content, _: sent.append(content))).value)

    assert ask("float", name="r1", count=0) == "With 4 nodes in float the outputs have 37.8 dB instead of 13.7 dB."
    assert panel.curve is not None
    mixed = compare(quantized.models[0], onnx_nb.mixed(quantized, panel.curve.nodes()), quantized.feed)  # type: ignore[index]
    assert mixed["y"].cumulative is not None
    assert panel.curve.steps[-1].sqnr == pytest.approx(mixed["y"].cumulative.sqnr, abs=0.01)
    panel.put_back("r3")
    assert [step["name"] for step in panel._steps] == ["", "r1", "r3"]
    # a step that is chosen before the last one is what the next region goes to
    ask("float", name="x", count=1)
    assert [step["name"] for step in panel._steps] == ["", "r1", "x"]
    ask("undo")
    assert [step["name"] for step in panel._steps] == ["", "r1", "r3"]
    ask("suggest", target="40 dB")
    # the steps also name the activations that are put back with the nodes in front of them
    assert {*onnx_nb.suggest_exclusion(quantized, sqnr="40 dB")} <= {*panel.curve.nodes()}
    ask("worst")
    assert panel.curve.steps == onnx_nb.types.ExclusionCurve.of(quantized).steps
    assert "at the outputs" in ask("front")
    assert (panel._steps[0]["name"], panel._steps[0]["seconds"]) == ("", 0.0)
    for _ in range(6):
        ask("undo")
    assert panel._steps == []
    with pytest.raises(OnnxNbError, match="no quantized region or node"):
        ask("float", name="nothing", count=0)
    assert "float" not in ComparisonPanel(comparison())._verbs()


@pytest.mark.parametrize("how", ["qdq", "nbits", "blocks", "qoperator", "dynamic"])
def test_a_region_is_offered_exactly_where_it_can_go_back_to_float(how: str) -> None:
    source = models.exported("bert", dynamo=True)
    c = compare(source, models.transformed("bert", how), random_feeds(source, 0))
    panel = ComparisonPanel(c)
    fixed = dict(zip(c.names, columns_in(panel).texts("fixed"), strict=True))
    free = set()
    for point in c.points[:: len(c.points) // 20]:
        try:
            nodes = onnx_nb.types.ExclusionCurve.of(c, [point.name]).nodes()
        except OnnxNbError:
            assert bool(fixed[point.name]) == bool(point.quantizers)
        else:
            assert nodes
            free |= {point.name} if point.quantizers else set()
            assert fixed[point.name] == ""
    assert ("float" in panel._verbs()) == bool(free)
    assert free


def test_a_quantizer_leads_to_its_tensor_in_the_graph(quantized: Comparison) -> None:
    assert quantized.models is not None
    graph = ModelGraph(quantized.models[1])
    panel = ComparisonPanel(quantized, graph=graph)
    panel.selection = [{"kind": "tensor", "name": "w2"}]
    assert (panel.point, graph.selection) == ("r2", [{"kind": "tensor", "name": "w2_quantized"}])
    panel.selection = [{"kind": "tensor", "name": "r1"}]
    assert (panel.point, graph.selection[0]["name"]) == ("r1", "r1_DequantizeLinear_Output")
