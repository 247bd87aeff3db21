"""Numbers for nodes and scopes: from names, weights, a capture, a profile of onnxruntime."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest

from onnx_nb import OnnxNbError, capture, load, profile
from onnx_nb.analysis.run.random_feeds import random_feeds
from onnx_nb.analysis.scopes.scopes import FUNCTION, scopes
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.overlays import COSTS, OWN, STATISTICS, overlay
from onnx_nb.types import Graph, Scopes
from tests import models

if TYPE_CHECKING:
    from pathlib import Path

    from onnx_nb import Model


def test_the_lenses_offer_the_overlays_of_the_kernel() -> None:
    bar = (models.ROOT / "onnx_nb" / "frontend" / "panels" / "lenses.ts").read_text()
    lists = {name: set(json.loads(items)) for name, items in re.findall(r"^const (\w+) = (\[.*\]);", bar, re.MULTILINE)}
    lenses = set(re.findall(r'^  \["\w+", "([^"]+)", ', bar, re.MULTILINE))
    of_capture = lists["CAPTURE_COLORS"] | {"std", "NaN"}
    assert lenses | lists["MODEL_COLORS"] | of_capture == {*OWN, *COSTS, *STATISTICS, "time", "error"}
    assert of_capture == {*COSTS, *STATISTICS}


@pytest.mark.parametrize(
    ("weight", "feed", "birth"),
    [(1.0, [1.0, -1.0], "log"), (math.nan, [1.0, 1.0], "scaled"), (1.0, [math.inf, 1.0], "scaled")],
)
def test_where_nan_begins_and_spreads_is_told_from_what_is_finite(weight: float, feed: list[float], birth: str) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] y, float[2] z) <float[1] w = {1.0}> {
        scaled = Mul(x, w)  log = Log(scaled)  y = Neg(log)  z = Abs(c)  c = Constant<value_floats = [1.0, 2.0]>() }""")
    model.graph.node.insert(0, model.graph.node.pop())
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([weight], np.float32), "w"))
    colors = overlay(model, capture(model, {"x": np.array(feed, np.float32)}), label="NaN")
    spread = {"scaled": "finite", "log": "NaN or Inf", "y": "NaN or Inf", "z": "finite"}
    names = list(spread)
    for name in names[: names.index(birth)]:
        spread[name] = "finite"
    spread[birth] = "begins here"
    labels = colors.by_name()
    assert {name: labels[name] for name in names} == spread
    assert colors.labels[int(colors.scopes[0])] == "begins here"


def test_a_run_without_nan_is_finite_everywhere() -> None:
    model = load(models.chain(50))
    assert set(overlay(model, capture(model), label="NaN").by_name().values()) == {"finite"}


@pytest.fixture(scope="module")
def chain() -> Model:
    return load(models.chain(200))


def test_numbers_by_name_of_node_or_tensor_reach_their_scopes(chain: Model) -> None:
    graph, tree = Graph.of(chain), scopes(Graph.of(chain))
    random = np.random.default_rng(0)
    by_node = {name: float(random.normal()) for name in graph.names[:150]}
    for reduce, combine in (("sum", math.fsum), ("max", max)):
        made = overlay(chain, by_node, label="x", reduce=reduce)  # type: ignore[arg-type]  # of two literals
        assert made.nodes[:150].tolist() == list(by_node.values())
        assert np.isnan(made.nodes[150:]).all()
        for scope in range(len(tree.scope_parent)):
            inside = [node for node in range(150) if _is_in(tree.scope_parent, int(tree.node_scope[node]), scope)]
            expected = combine([made.nodes[node] for node in inside]) if inside else math.nan
            assert made.scopes[scope] == pytest.approx(expected, nan_ok=True)
    tensors = {graph.value_names[int(graph.node_outputs(node)[0])]: by_node[graph.names[node]] for node in range(150)}
    assert np.array_equal(overlay(chain, tensors).nodes[:150], made.nodes[:150])


def _is_in(parent: np.ndarray[tuple[int], np.dtype[np.int32]], scope: int, around: int) -> bool:
    while scope >= 0:
        if scope == around:
            return True
        scope = int(parent[scope])
    return False


def test_unknown_names_are_listed(chain: Model) -> None:
    name = Graph.of(chain).names[0]
    made = overlay(chain, {name: 1.0, "nobody": 2.0})
    assert made.unmatched == ("nobody",)
    with pytest.raises(OnnxNbError, match="Closest names"):
        overlay(chain, {name + "x": 1.0})


def test_parameters_of_a_scope_count_shared_weights_once() -> None:
    model = load(models.light("resnet50"))
    made = overlay(model, "parameters")
    assert made.scopes[0] == columns(model).arrays["scope_params"][0]
    sizes = {name: math.prod(info.shape) for name, info in model.initializers.items()}
    for node, proto in enumerate(model.proto.graph.node):
        assert made.nodes[node] == sum(sizes.get(name, 0) for name in proto.input)
    assert overlay(model, "weight bytes").nodes.sum() >= made.nodes.sum()


def test_a_capture_gives_times_and_statistics() -> None:
    model = load(models.chain(60))
    cap = capture(model, random_feeds(model))
    seconds = overlay(model, cap)
    assert (seconds.label, seconds.reduce) == ("seconds", "sum")
    assert seconds.scopes[0] == pytest.approx(sum(cost.seconds for cost in cap.nodes))
    std = overlay(model, cap, label="std")
    output = model.proto.graph.node[5].output[0]
    assert std.nodes[5] == cap.statistics(output).std
    with pytest.raises(OnnxNbError, match="no numbers 'color'"):
        overlay(model, cap, label="color")


def test_an_opened_call_has_the_number_of_its_node() -> None:
    model = load(models.functions())
    tree = scopes(Graph.opened(model))
    cap = capture(model, random_feeds(model))
    calls = np.flatnonzero((tree.scope_kind == FUNCTION) & (tree.scope_parent == 0))
    assert len(calls) == 3
    seconds, std = overlay(model, cap), overlay(model, cap, label="std")
    for scope in calls:
        node = int(tree.scope_node[scope])
        assert seconds.scopes[scope] == cap.nodes[node].seconds
        assert std.scopes[scope] == cap.statistics(model.proto.graph.node[node].output[0]).std
    # and is counted once
    assert seconds.scopes[0] == pytest.approx(sum(cost.seconds for cost in cap.nodes))
    # what is known inside of a call goes before what is said of it
    inside = int(np.flatnonzero(tree.node_scope == calls[0])[0])
    name = (
        Graph.opened(model).names[inside]
        or Graph.opened(model).value_names[int(Graph.opened(model).node_outputs(inside)[0])]
    )
    assert overlay(model, {name: 7.0}).scopes[calls[0]] == 7.0


def test_a_profile_of_onnxruntime_gives_times(tmp_path: Path) -> None:
    model = load(models.chain(60))
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.to_proto().SerializeToString(), options)
    session.run(None, random_feeds(model))
    profile = session.end_profiling()
    made = overlay(model, profile)
    events = json.loads((tmp_path / profile).read_text())
    spent = sum(event["dur"] for event in events if event["name"].endswith("_kernel_time")) / 1e6
    assert made.scopes[0] == pytest.approx(spent)
    assert made.label == "seconds"


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}', "[1, 2]", '[{"cat": "Node"}]', "[]"])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(content)
    with pytest.raises(OnnxNbError, match=r"profile|times"):
        overlay(load(models.chain(60)), path)


def test_scale_follows_the_numbers(chain: Model) -> None:
    names = Graph.of(chain).names
    assert overlay(chain, {name: 10.0**-at for at, name in enumerate(names[:8])}).scale == "log"
    assert overlay(chain, {name: 1.0 + at for at, name in enumerate(names[:8])}).scale == "linear"
    assert overlay(chain, {name: at - 1.0 for at, name in enumerate(names[:8])}).scale == "linear"


def test_macs_of_a_model_with_open_dimensions_are_those_of_random_feeds() -> None:
    model = load(models.exported("resnet50", dynamo=True))
    made = overlay(model, "MACs")
    # one image of 224×224 through ResNet-50 without the classifier's 2,048 × 2: He et al. say 4.1 billion in all
    assert made.scopes[0] == made.nodes.sum()
    assert 4.05e9 < made.scopes[0] < 4.15e9
    assert overlay(model, "activation bytes").scopes[0] > 0


def test_labels_are_categories_and_a_scope_has_that_of_all_its_nodes() -> None:
    model = load(models.exported("bert", dynamo=False, small=True))
    graph, tree = Graph.opened(model), scopes(Graph.opened(model))
    inside = [node for node, name in enumerate(graph.names) if name.startswith("/encoder/layer.0/")]
    labels: dict[str, object] = {graph.names[node]: ("GPU", 0) for node in inside}
    labels["/pooler/dense/Gemm"] = None
    made = overlay(model, labels, label="device")
    assert made.labels == ("('GPU', 0)", "None", "several")
    assert made.nodes[inside[0]] == 0
    assert np.isnan(made.nodes).sum() == graph.node_count - len(labels)
    for scope, path in enumerate(tree.scope_path):
        below = [n for n in range(graph.node_count) if under(tree, int(tree.node_scope[n]), scope)]
        found = {made.nodes[node] for node in below if not np.isnan(made.nodes[node])}
        expected = np.nan if not found else found.pop() if len(found) == 1 else 2
        assert made.scopes[scope] == expected or np.isnan(made.scopes[scope]) == np.isnan(expected) == True, path  # noqa: E712
    assert made.to_json()["labels"] == list(made.labels)


def under(tree: Scopes, scope: int, outer: int) -> bool:
    """Return whether a scope is inside of another one, or the same."""
    while scope > outer:
        scope = int(tree.scope_parent[scope])
    return scope == outer


def test_a_profile_colors_by_time_provider_and_kernel() -> None:
    model = load(models.exported("resnet50", dynamo=False))
    found = profile(model, runs=2, warmup=0)
    seconds = overlay(model, found)
    assert (seconds.label, seconds.reduce) == ("seconds", "sum")
    assert seconds.scopes[0] == pytest.approx(sum(kernel.median for kernel in found.kernels))
    fused = found.fused[0]
    assert set(seconds.nodes[list(fused.nodes)]) == {fused.median}
    by_path = {row["scope"]: row for row in found.rows("scope")}
    tree = scopes(Graph.opened(model))
    for scope, path in enumerate(tree.scope_path):
        if path in by_path and tree.scope_path.count(path) == 1:
            inside = [
                each for each, at in zip(found.kernels, found.kernel_scopes, strict=True) if under(tree, at, scope)
            ]
            assert seconds.scopes[scope] == pytest.approx(sum(kernel.median for kernel in inside))
    assert overlay(model, found, label="provider").labels == ("CPUExecutionProvider",)
    kernels = overlay(model, found, label="kernel")
    pool = next(node for node, name in enumerate(Graph.opened(model).names) if name.endswith("GlobalAveragePool"))
    assert kernels.labels[int(kernels.nodes[pool])] == "GlobalAveragePool"
    assert np.nanmax(overlay(model, found, label="intensity").nodes) > 1
    assert np.nanmax(overlay(model, found, label="memory").scopes) == found.memory_peak
    with pytest.raises(OnnxNbError, match="a profile has no numbers 'speed'"):
        overlay(model, found, label="speed")
    with pytest.raises(OnnxNbError, match="profile is that of another model"):
        overlay(models.detection(), found)


def test_a_node_of_several_kernels_has_the_color_of_the_longest() -> None:
    """onnxruntime runs a MatMul of four axes and an Add as a Gemm between two Reshapes."""
    weights = [
        onnx.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in (("w", (64, 256)), ("b", 256))
    ]
    text = (
        '<ir_version: 10, opset_import: ["": 20]> g (float[1, 32, 48, 64] x) => (float[1, 32, 48, 256] z) '
        "{ y = MatMul(x, w) z = Add(y, b) }"
    )
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(weights)
    found = profile(proto, runs=3)
    own = [kernel for kernel in found.kernels if 0 in kernel.nodes and not kernel.edge]
    assert len(own) > 1
    colors = overlay(proto, found, label="kernel")
    assert colors.labels[int(colors.nodes[0])] == max(own, key=lambda kernel: kernel.median).op


@pytest.fixture
def small() -> Model:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}>
    { [first] a = Mul(x, w)  [second] b = Relu(a)  [third] y = Neg(b) }"""
    return load(onnx.parser.parse_model(text))


def test_verification_infos_of_torch_are_an_overlay(small: Model) -> None:
    torch = pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    from torch.onnx.verification import VerificationInfo

    pairs = {"a": (1.0, 1.5), "b": (4.0, 4.0), "y": (-4.0, -2.0)}
    infos = [VerificationInfo.from_tensors(name, *map(torch.tensor, pair)) for name, pair in pairs.items()]
    for given in (infos, [each.asdict() for each in infos]):
        found = overlay(small, given)
        assert (found.label, found.nodes.tolist()) == ("max_abs_diff", [0.5, 0.0, 2.0])
        assert overlay(small, given, label="max_rel_diff").nodes[2] == pytest.approx(0.5)
    with pytest.raises(OnnxNbError, match="verification infos have no numbers 'abs'"):
        overlay(small, infos, label="abs")
    with pytest.raises(TypeError, match="a list of VerificationInfo"):
        overlay(small, [1])


def test_errors_of_onnxruntimes_qdq_loss_debug_are_an_overlay(small: Model) -> None:
    from onnxruntime.quantization import qdq_loss_debug

    value = np.array([1, 2, 3], np.float32)
    names = ("a", "b")
    matched = {name: {"pre_qdq": [value], "post_qdq": [value + 0.1], "float": [value - 0.2]} for name in names}
    errors = qdq_loss_debug.compute_activation_error(matched)
    for label in ("qdq_err", "xmodel_err"):
        found = overlay(small, errors, label=label)
        assert found.nodes[:2].tolist() == [errors[name][label] for name in names]
    assert overlay(small, errors).label == "qdq_err"
    weights = qdq_loss_debug.compute_weight_error({"w": {"float": value, "dequantized": value + 0.1}})
    assert overlay(small, weights).nodes[0] == weights["w"]  # the node that reads the weight


@pytest.mark.parametrize("tool", ["netron", "model_explorer"])
def test_overlays_are_written_for_other_tools_and_read_again(small: Model, tool: Any, tmp_path: Path) -> None:
    for values in ({"a": 0.25, "b": 3.0}, {"a": "CPU", "y": "CUDA"}):
        path = overlay(small, values, label="measured").save(tmp_path / "overlay.json", tool)
        again = overlay(small, path)
        assert (again.label, again.by_name()) == ("measured", values)
    infinite = overlay(small, overlay(small, {"b": math.inf}).save(tmp_path / "overlay.json", tool)).by_name()
    assert infinite == {"b": np.finfo(np.float64).max}
    with pytest.raises(OnnxNbError, match="not written for 'excel'"):
        overlay(small, {"a": 1}).save(tmp_path / "overlay.json", "excel")  # type: ignore[arg-type]


def test_files_of_other_tools_are_an_overlay(small: Model, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    rows = [
        {"kind": "model", "target": "", "name": "total", "value": 7},
        {"kind": "node", "target": "second", "name": "time", "value": "12.5", "type": "us"},
        {"kind": "value", "target": "y", "name": "time", "value": "3"},
        {"kind": "tensor", "target": "w", "name": "sparsity", "value": 0.5},
    ]
    notes = [{"kind": "node", "target": "first", "name": "device", "value": "NPU"}]
    path.write_text(json.dumps({"signature": "netron:attachment", "metrics": rows, "metadata": notes}))
    assert overlay(small, path).by_name() == {"b": 12.5, "y": 3}
    assert overlay(small, str(path), label="sparsity").by_name() == {"a": 0.5}
    assert overlay(small, path, label="device").by_name() == {"a": "NPU"}
    with pytest.raises(OnnxNbError, match=r"no numbers 'speed'\. They have 'time', 'sparsity', 'device'"):
        overlay(small, path, label="speed")
    # several graphs, as `ModelNodeData` of Model Explorer writes them: that with the names of the model
    graphs = {
        "main": {"name": "my data", "results": {"a": {"value": 1}, "third": {"value": 2, "bgColor": "red"}}},
        "other": {"name": "not mine", "results": {"z": {"value": 3}}},
    }
    path.write_text(json.dumps(graphs))
    found = overlay(small, path)
    assert (found.label, found.by_name()) == ("my data", {"a": 1, "y": 2})
    path.write_text(json.dumps({"results": {"elsewhere": {"value": 1}}}))
    with pytest.raises(OnnxNbError, match="no node or tensor of the model has any of the names, such as 'elsewhere'"):
        overlay(small, path)
    for text in ("{", '{"results": {"a": {}}}', '{"results": [1]}', '{"signature": "netron:attachment", "metrics": 3}'):
        path.write_text(text)
        with pytest.raises(OnnxNbError, match="cannot be read as"):
            overlay(small, path)
