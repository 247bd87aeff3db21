"""Costs counted again: by torch's counter, by formulas on paper, by numpy, and shapes by running the models."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test import loader

import onnx_nb
from onnx_nb import FeedError, OnnxNbError
from onnx_nb.analysis.model.tensors import declared_bytes
from tests import models

if TYPE_CHECKING:
    from onnx_nb.analysis.cost.costs import Cost


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 20,
    functions: Sequence[onnx.FunctionProto] = (),
    dtypes: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    dtypes = dtypes or {}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, dtypes.get(n, TensorProto.FLOAT), shape) for n, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )
    domains = {f.domain for f in functions} | {n.domain for n in nodes} - {""}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def _zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def _one(node: onnx.NodeProto, inputs: Mapping[str, Any], *, opset: int = 20, **options: Any) -> Cost:
    return onnx_nb.costs(_model([node], inputs, [o for o in node.output if o], opset=opset, **options)).total


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("name", models.EXPORTED)
def test_macs_are_half_of_what_torch_counts(name: str, *, dynamo: bool) -> None:
    path = models.exported(name, dynamo=dynamo)
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    module, given, _, axes = models._recipe(name)
    module.eval()
    # the fused attention of the CPU is not among what torch counts
    attention = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with warnings.catch_warnings(), torch.no_grad(), attention, FlopCounterMode(display=False) as counter:
        warnings.simplefilter("ignore")
        module(**given)
    shapes = {name: tuple(array.shape) for name, array in given.items()}
    costs = onnx_nb.costs(path, shapes)
    assert not costs.unknown
    assert costs.total.macs is not None
    assert 2 * costs.total.macs == counter.get_total_flops()
    assert costs.total.flops is not None
    assert costs.total.flops > 2 * costs.total.macs
    symbols = {axis: given[each].shape[place] for each, names in axes.items() for place, axis in names.items()}
    by_symbol = onnx_nb.costs(path, symbols)
    assert by_symbol.total == costs.total
    # a module's share is the share of its scope
    layers = [r for r in costs.rows("scope") if r["scope"].endswith(("layer.0", "layers.0"))]
    if name != "resnet50":
        counted = counter.get_flop_counts()
        first = next(c for scope, c in counted.items() if scope.endswith(("layer.0", "layers.0")))
        assert 2 * layers[0]["macs"] == sum(first.values())


def test_activations_are_the_bytes_of_what_onnxruntime_makes() -> None:
    path = models.exported("bert", dynamo=True)
    costs = onnx_nb.costs(path, {"batch": 2, "seq": 7})
    graph = costs.graph
    feeds = onnx_nb.random_feeds(path, shapes={"batch": 2, "seq": 7})
    captured = onnx_nb.capture(path, feeds, keep="*")
    for node in range(graph.node_count):
        made = [graph.value_names[v] for v in graph.node_outputs(node)]
        if not graph.folded[node]:
            assert costs.activation_bytes[node] == sum(captured[name].nbytes for name in made), graph.node_label(node)


def test_a_classifier_by_hand() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["m"], ["a"], "average"),
        helper.make_node("Flatten", ["a"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "v", "t"], ["l"], "head"),
        helper.make_node("Softmax", ["l"], ["y"], "softmax"),
    ]
    weights = {"w": _zeros(8, 3, 3, 3), "b": _zeros(8), "s": _zeros(8), "v": _zeros(8, 10), "t": _zeros(10)}
    costs = onnx_nb.costs(_model(nodes, {"x": ["n", 3, 16, 16]}, ["y"], weights), {"n": 2})
    out = 2 * 8 * 8 * 8
    rows = {row["node"]: row for row in costs.rows()}
    assert rows["conv"]["macs"] == out * 27
    assert rows["head"]["macs"] == 2 * 8 * 10
    expected = {
        "conv": 2 * out * 27 + out,
        "norm": 2 * out,
        "relu": out,
        "pool": out // 4 * 4,
        "average": out // 4,
        "flatten": 0,
        "head": 2 * 160 + 20,
        "softmax": 5 * 20,
    }
    assert {name: row["flops"] for name, row in rows.items()} == expected
    assert costs.total.flops == sum(expected.values())
    assert costs.total.macs == out * 27 + 160
    assert rows["norm"]["parameters"] == 8
    assert costs.total.parameters == sum(w.size for w in weights.values())
    assert costs.total.parameter_bytes == 4 * costs.total.parameters
    assert costs.total.activation_bytes == 4 * (3 * out + out // 4 + 16 + 16 + 20 + 20)
    assert not costs.unknown


def _taps(node: onnx.NodeProto, x: Any, w: Any) -> int:
    """Count the products of a convolution without a formula: of ones, so that their sum is their number."""
    (y,) = onnx_nb.run(_model([node], {"x": x.shape, "w": w.shape}, ["y"]), {"x": x, "w": w}).values()
    return round(float(np.sum(y)))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_convolutions_multiply_as_often_as_numpy(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.integers(1, 2))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inside, outside = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    strides = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    dilations = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    size = draw(st.lists(st.integers(5, 9), min_size=rank, max_size=rank))
    padding = draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    attributes: dict[str, Any] = {"group": groups, "strides": strides, "dilations": dilations, "auto_pad": padding}
    if padding == "NOTSET":
        attributes["pads"] = draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    batch = draw(st.integers(0, 2))
    weight = np.ones((outside, inside // groups, *kernel), np.float32)
    cost = _one(node, {"x": [batch, inside, *size]}, weights={"w": weight})
    # every window is visited, and every tap of it multiplied
    windows = []
    for axis in range(rank):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        if padding.startswith("SAME"):
            windows.append(math.ceil(size[axis] / strides[axis]))
        else:
            pads = attributes.get("pads", [0] * 2 * rank)
            windows.append(len(range(0, size[axis] + pads[axis] + pads[axis + rank] - reach + 1, strides[axis])))
    products = 0
    for _, channel in itertools.product(range(batch), range(outside)):
        products += int(np.ones([*windows, *weight[channel].shape]).sum())
    assert cost.macs == products
    if padding in ("NOTSET", "VALID") and not any(attributes.get("pads", [])) and batch:
        assert cost.macs == _taps(node, np.ones((batch, inside, *size), np.float32), weight)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_transposed_convolutions_multiply_as_often_as_numpy(data: st.DataObject) -> None:
    draw = data.draw
    groups, kernel, stride = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    inside, outside, size = groups * draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=groups, strides=[stride])
    x, w = np.ones((2, inside, size), np.float32), np.ones((inside, outside, kernel), np.float32)
    cost = _one(node, {"x": x.shape}, weights={"w": w})
    assert cost.macs == _taps(node, x, w)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_matmuls_multiply_as_often_as_numpy(data: st.DataObject) -> None:
    draw = data.draw
    depth = draw(st.integers(0, 4))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    one = [*batch[draw(st.integers(0, len(batch))) :], draw(st.integers(1, 4)), depth]
    other = [*[draw(st.sampled_from([1, size])) for size in batch], depth, draw(st.integers(1, 4))]
    if draw(st.booleans()):
        one = [depth]
    if draw(st.booleans()):
        other = [depth]
    products = np.matmul(np.ones(one), np.ones(other)).sum()  # each product is 1
    cost = _one(helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": one, "b": other})
    assert cost.macs == products
    assert cost.flops == 2 * products


def test_a_deformable_convolution_also_interpolates_what_it_reads() -> None:
    node = helper.make_node("DeformConv", ["x", "w", "o", "", "m"], ["y"], pads=[1, 1, 1, 1], group=2)
    inputs = {"x": [2, 4, 5, 7], "w": [6, 2, 3, 3], "o": [2, 18, 5, 7], "m": [2, 9, 5, 7]}
    total = _one(node, inputs)
    macs = (2 * 6 * 5 * 7) * (2 * 3 * 3)
    taps = (2 * 5 * 7) * 4 * (3 * 3)
    assert total.macs == macs
    assert total.flops == 2 * macs + taps * (2 * 4 + 1)


@pytest.mark.parametrize(
    ("equation", "shapes", "macs", "others"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], 24, 0),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)], 120, 0),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)], 2 * 3 * 4 * 6 * 5, 0),
        ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 4)], 7 * 24, 0),
        ("ij,jk", [(2, 3), (3, 4)], 24, 0),
        ("i,i->i", [(4,), (4,)], 0, 4),
        ("ij->i", [(4, 5)], 0, 20),
        ("ii->i", [(4, 4)], 0, 0),
        ("ij,kj->i", [(2, 3), (5, 3)], 6, 15),  # k is summed before
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], 24 + 40, 0),
    ],
)
def test_einsum_contracts_from_left_to_right(equation: str, shapes: Any, macs: int, others: int) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    cost = _one(node, dict(zip(names, shapes, strict=True)))
    assert (cost.macs, cost.flops) == (macs, 2 * macs + others)


def test_gemm_counts_bias_and_factors() -> None:
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], transA=1, transB=1, alpha=0.5, beta=2.0)
    cost = _one(node, {"a": [3, 2], "b": [4, 3], "c": [4]})
    assert (cost.macs, cost.flops) == (24, 48 + 8 + 8 + 4)


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("layout", [0, 1])
def test_recurrent_layers(op: str, gates: int, layout: int) -> None:
    steps, batch, width, cells = 5, 2, 3, 4
    node = helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=cells, direction="bidirectional", layout=layout)
    x = (batch, steps, width) if layout else (steps, batch, width)
    weights = {"w": _zeros(2, gates * cells, width), "r": _zeros(2, gates * cells, cells)}
    cost = _one(node, {"x": x}, weights=weights)
    assert cost.macs == 2 * steps * batch * gates * cells * (width + cells)


@pytest.mark.parametrize("opset", [23, 24])
def test_attention_with_a_past(opset: int) -> None:
    inputs = {"q": [2, 5, 24], "k": [2, 7, 12], "v": [2, 7, 20], "pk": [2, 2, 3, 6], "pv": [2, 2, 3, 10]}
    node = helper.make_node(
        "Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"], q_num_heads=4, kv_num_heads=2
    )
    cost = _one(node, inputs, opset=opset)
    assert cost.macs == 2 * 4 * 5 * (7 + 3) * (6 + 10)
    square = _one(
        helper.make_node("Attention", ["q", "k", "v"], ["y"]), {name: [2, 3, 4, 5] for name in "qkv"}, opset=opset
    )
    assert square.macs == 2 * 3 * 4 * 4 * 10


def test_attention_is_as_much_as_its_two_products() -> None:
    fused = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", num_heads=4)
    shape = [2, 7, 48]
    cost = _one(fused, dict.fromkeys("qkv", shape))
    plain = _one(
        helper.make_node("Attention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=4),
        dict.fromkeys("qkv", shape),
        opset=23,
    )
    assert cost == plain
    assert cost.macs == 2 * 7 * 7 * 48 * 2


def test_quantized_products() -> None:
    scale, zero = np.float32(1), np.uint8(0)
    weights = {"s": scale, "z": zero, "w": np.zeros((4, 3, 3, 3), np.uint8), "m": np.zeros((6, 5), np.uint8)}
    conv = helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], ["y"])
    types = {"x": TensorProto.UINT8, "a": TensorProto.UINT8}
    assert _one(conv, {"x": [1, 3, 8, 8]}, weights=weights, dtypes=types).macs == 4 * 36 * 27
    integer = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    assert _one(integer, {"x": [1, 3, 8, 8]}, weights=weights, dtypes=types).macs == 4 * 36 * 27
    product = helper.make_node("QLinearMatMul", ["a", "s", "z", "m", "s", "z", "s", "z"], ["y"])
    assert _one(product, {"a": [2, 6]}, weights=weights, dtypes=types).macs == 60
    product = helper.make_node("MatMulInteger", ["a", "m"], ["y"])
    cost = _one(product, {"a": [2, 6]}, weights=weights, dtypes=types)
    assert (cost.macs, cost.activation_bytes) == (60, 40)


def test_moving_data_costs_nothing_but_bytes() -> None:
    cost = _one(helper.make_node("Transpose", ["x"], ["y"]), {"x": [3, 4]})
    assert (cost.macs, cost.flops, cost.activation_bytes) == (0, 0, 48)


def _body(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[str]) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])


def test_an_if_costs_its_larger_branch() -> None:
    node = helper.make_node(
        "If",
        ["c"],
        ["y"],
        "choose",
        then_branch=_body([helper.make_node("MatMul", ["x", "w"], ["t"], "large")], [], ["t"]),
        else_branch=_body([helper.make_node("Relu", ["x"], ["e"], "small")], [], ["e"]),
    )
    types = {"c": TensorProto.BOOL}
    weights = {"w": _zeros(4, 4)}
    costs = onnx_nb.costs(_model([node], {"c": [], "x": [3, 4]}, ["y"], weights, dtypes=types))
    assert costs.total.macs == 48
    assert costs.total.parameters == 16
    assert costs.node("choose").flops == 96
    assert costs.node("small").flops == 12
    by_scope = {row["scope"]: row for row in costs.rows("scope")}
    assert [by_scope[scope]["macs"] for scope in ("", "If", "If/then_branch", "If/else_branch")] == [48, 48, 48, 0]
    assert by_scope["If"]["parameters"] == by_scope["If/then_branch"]["parameters"] == 16
    # both results have three rows and four columns, and one of them is made
    assert costs.total.activation_bytes == 2 * 48


def _loop(trips: Any, condition: str = "Identity", *, initial: str = "") -> onnx.ModelProto:
    body = _body(
        [
            helper.make_node(condition, ["going"], ["on"]),
            helper.make_node("MatMul", ["h", "w"], ["n"]),
        ],
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, None),
        ],
        ["on", "n", "n"],
    )
    loop = helper.make_node("Loop", ["trips", initial, "x"], ["last", "all"], "loop", body=body)
    dtypes = {"trips": TensorProto.INT64}
    weights = {"w": _zeros(4, 4), "true": np.asarray(True)}
    inputs: dict[str, Any] = {"x": [3, 4]}
    if trips is None:
        inputs["trips"] = []
    else:
        weights["trips"] = np.asarray(trips, np.int64)
    return _model([loop], inputs, ["last", "all"], weights, dtypes=dtypes)


@pytest.mark.parametrize("initial", ["", "true"])
def test_a_loop_costs_its_body_as_often_as_it_runs(initial: str) -> None:
    costs = onnx_nb.costs(_loop(5, initial=initial))
    assert costs.total.macs == 5 * 48
    assert costs.total.activation_bytes == 5 * (1 + 48) + 48 + 5 * 48
    assert costs.total.parameters == 16 + 1 + (1 if initial else 0)
    assert onnx_nb.costs(_loop(0)).total.macs == 0
    assert onnx_nb.costs(_loop(5, "Not")).total.macs == 48  # it stops itself after the first


def test_a_loop_of_unknown_length_has_no_cost() -> None:
    costs = onnx_nb.costs(_loop(None))
    assert costs.total.macs is None
    assert [(u.op, u.reason) for u in costs.unknown] == [
        ("Loop", "how often its body runs is not known before the run")
    ]
    assert costs.rows()[0]["macs"] is None
    assert math.isnan(costs.macs[0])


def test_bodies_with_bodies() -> None:
    costs = onnx_nb.costs(models.control_flow())
    rows = {row["node"]: row for row in costs.rows()}
    # an If of at most 6 in the Loop, and an Add of 6, three times
    assert rows["/loop/Loop"]["flops"] == 3 * (6 + 6)
    assert rows["/scan/Scan"]["flops"] == 2 * 3
    assert costs.total.flops == 6 + 6 + 36 + 6


def test_calls_cost_what_their_functions_do() -> None:
    costs = onnx_nb.costs(models.functions(), {"rows": 5})
    rows = {row["node"]: row for row in costs.rows()}
    assert rows["/block.0"]["macs"] == 5 * 9
    assert rows["/block.0"]["flops"] == 2 * 45 + 15 + 15
    assert costs.total.macs == 90
    assert rows["/block.0"]["activation_bytes"] == 3 * 60
    assert costs.total.parameters == 9 + 9 + 1
    unknown = onnx_nb.costs(models.functions()).unknown[0].reason
    assert unknown == "inside it, MatMul: 'rows', the size of axis 0 of input 0, is not known"


def test_weights_are_counted_once_in_each_sum() -> None:
    nodes = [
        helper.make_node("MatMul", [x, w], [y], f"/{scope}/{y}")
        for scope, x, w, y in [("a", "x", "w", "p"), ("a", "p", "w", "q"), ("b", "q", "w", "r"), ("b", "r", "v", "y")]
    ]
    nodes += [helper.make_node("Relu", ["y"], ["z"], "/b/z"), helper.make_node("Relu", ["q"], ["k"], "/a/k")]
    costs = onnx_nb.costs(_model(nodes, {"x": [2, 4]}, ["z", "k"], {"w": _zeros(4, 4), "v": _zeros(4, 4)}))
    assert costs.parameters.tolist() == [16, 16, 16, 16, 0, 0]
    assert costs.total.parameters == 32
    assert (costs.scope("a").parameters, costs.scope("b").parameters) == (16, 32)
    assert costs.scope("a").macs == costs.scope("b").macs == 64


def test_unknown_operators_are_told_and_not_taken_for_nothing() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Frobnicate", ["a"], ["b"], "mine", domain="my.domain"),
        helper.make_node("Relu", ["b"], ["y"], "last"),
    ]
    costs = onnx_nb.costs(_model(nodes, {"x": [2, 4]}, ["y"]))
    assert costs.total.macs is None
    assert (costs.total.known_flops, costs.total.unknown_macs, costs.total.unknown_flops) == (8, 1, 2)
    assert [u.name for u in costs.unknown] == ["mine", "last"]
    assert costs.unknown[0].reason == "what operator my.domain.Frobnicate computes is not known"
    assert costs.node("last").macs == 0  # whatever its shape is, it multiplies nothing
    assert "2 nodes unknown" in repr(costs)
    frame = costs.to_frame()
    assert math.isnan(frame["macs"][1])
    assert frame["flops"].tolist()[0] == 8


def test_what_depends_on_values_is_unknown_unless_it_is_no_product() -> None:
    node = helper.make_node("NonMaxSuppression", ["b", "s"], ["y"])
    cost = _one(node, {"b": [1, 10, 4], "s": [1, 2, 10]})
    assert (cost.macs, cost.flops, cost.activation_bytes) == (0, None, None)


def test_a_declared_sum_of_symbols_is_their_sum() -> None:
    # the Range reads vectors of one number, which onnxruntime takes and onnx's inference does not
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[now] x, float[past] y) => (int64[n] z) <int64 zero = {0}, int64 one = {1}, int64[n] r> {
        a = Shape(x)  b = Shape(y)  s = Add(a, b)  r = Range(zero, s, one)  z = Neg(r) }""")
    for value in (*model.graph.value_info, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "past + now + 1"
    costs = onnx_nb.costs(model, {"past": 5, "now": 2})
    assert costs.unknown == ()
    assert costs.of_node(4).flops == 5 + 2 + 1
    partly = onnx_nb.costs(model, {"past": 5})
    assert "'past + now + 1', the size of axis 0" in partly.unknown[-1].reason


def test_shapes_are_bound_by_symbol_or_input() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, k] x, float[k, m] w) => (float[n, m] y) { y = MatMul(x, w) }""")
    before = model.SerializeToString()
    assert onnx_nb.costs(model, {"n": 2, "k": 3, "m": 4}).total.macs == 24
    assert onnx_nb.costs(model, {"x": (2, 3), "w": [3, 4]}).total.macs == 24
    assert onnx_nb.costs(model, {"x": (2, 3), "m": 4}).total.macs == 24
    partly = onnx_nb.costs(model, {"n": 2})
    assert partly.unbound == ("k", "m")
    assert partly.total.macs is None
    assert repr(partly).endswith("bind 'k', 'm' with shapes=)")
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"q": 1}, "has neither an input nor a dimension 'q'"),
        ({"x": 3}, r"shapes\['x'\] is 3, and the input takes \[n, 2\]"),
        ({"x": (3,)}, r"the input takes \[n, 2\]"),
        ({"x": (3, 5)}, r"the input takes \[n, 2\]"),
        ({"n": -1}, "sizes are whole numbers from 0"),
        ({"n": 1.5}, "sizes are whole numbers from 0"),
        ({"n": "1"}, "sizes are whole numbers from 0"),
        ({"x": (3, 2), "n": 4}, "dimension 'n' is given sizes 3 and 4"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: Any, message: str) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }'
    with pytest.raises(FeedError, match=message):
        onnx_nb.costs(onnx.parser.parse_model(text), shapes)


def test_names_that_are_not_there_have_closest_ones() -> None:
    costs = onnx_nb.costs(models.one_node())
    with pytest.raises(OnnxNbError, match=r"no node 'rely'\. Closest names: 'relu'"):
        costs.node("rely")
    with pytest.raises(OnnxNbError, match="no scope 'encoder'"):
        costs.scope("encoder")
    assert costs.scope("") == costs.total


def test_an_empty_model_costs_nothing() -> None:
    costs = onnx_nb.costs(models.empty())
    assert (costs.total.macs, costs.total.parameters, costs.rows(), costs.unknown) == (0, 0, [], ())


def test_shapes_that_are_computed_from_shapes_are_known() -> None:
    """Floats, comparisons and scatters on sizes, which onnx's own inference gives up on."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "two"], ["h"]),
        helper.make_node("Cast", ["h"], ["hf"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["hf", "half"], ["scaled"]),
        helper.make_node("Floor", ["scaled"], ["floor"]),
        helper.make_node("Cast", ["floor"], ["hi"], to=TensorProto.INT64),
        helper.make_node("Equal", ["hi", "seven"], ["is"]),
        helper.make_node("Where", ["is", "hi", "two"], ["rows"]),
        helper.make_node("Unsqueeze", ["rows", "zero"], ["r"]),
        helper.make_node("Concat", ["r", "minus"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
        helper.make_node("MatMul", ["y", "w"], ["z"]),
    ]
    ints = {"two": 2, "seven": 7, "zero": [0], "minus": [-1]}
    weights: dict[str, Any] = {name: np.asarray(value, np.int64) for name, value in ints.items()}
    weights |= {"half": np.float32(0.5), "w": _zeros(4, 5)}
    costs = onnx_nb.costs(_model(nodes, {"x": ["n", 2, 14]}, ["z"], weights), {"n": 1})
    assert costs.total.macs == 7 * 4 * 5


def test_an_optimized_model_costs_the_same(tmp_path: Any) -> None:
    """Onnxruntime fuses into operators of its own, of which onnx infers nothing."""
    onnxruntime = pytest.importorskip("onnxruntime")
    source = models.exported("bert", dynamo=False)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    proto = onnx.load(tmp_path / "fused.onnx")
    assert {"com.microsoft"} <= {node.domain for node in proto.graph.node}
    del proto.graph.value_info[:]
    shapes = {"batch": 2, "seq": 7}
    fused = onnx_nb.costs(proto, shapes)
    assert not fused.unknown
    assert fused.total.macs == onnx_nb.costs(source, shapes).total.macs


def test_numbers_of_broken_models_do_not_overflow() -> None:
    shape = [2**62] * 60
    costs = onnx_nb.costs(_model([helper.make_node("MatMul", ["x", "x"], ["y"], "product")], {"x": shape}, ["y"]))
    assert costs.total.macs is not None
    assert costs.total.macs >= 10**299


def test_unknown_ranks_and_wrong_ranks_are_told() -> None:
    shapes: list[Any] = [None, []]
    for shape in shapes:
        cost = onnx_nb.costs(_model([helper.make_node("MatMul", ["x", "x"], ["y"])], {"x": shape}, ["y"]))
        assert cost.total.macs is None
        assert cost.unknown[0].reason


def test_shapes_are_those_of_onnx_own_cases() -> None:
    """Every node test of onnx without the shapes that it declares: what is said of the outputs is true."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = loader.load_model_tests(kind="node")
    known = asked = 0
    wrong = set()
    for case in cases:
        model = onnx.ModelProto()
        model.CopyFrom(case.model or model)
        made = {info.name: info.type.tensor_type.elem_type for info in model.graph.output}
        given, values = cast("tuple[list[Any], list[Any]]", (case.data_sets or [((), ())])[0])
        plain = all(isinstance(value, np.ndarray) and value.dtype.kind not in "OUS" for value in values)
        if len(model.graph.node) != 1 or any(a.HasField("g") for a in model.graph.node[0].attribute) or not plain:
            continue
        if [name for name in model.graph.node[0].output if name] != list(made):
            continue
        for info in model.graph.output:
            info.type.tensor_type.ClearField("shape")
        for info, value in zip(model.graph.input, given, strict=False):
            if info.type.tensor_type.elem_type in (TensorProto.INT64, TensorProto.INT32) and value.ndim < 2:
                model.graph.initializer.append(numpy_helper.from_array(value, info.name))  # sizes, axes, …
        costs = onnx_nb.costs(model)
        asked += 1
        if not costs.unknown:
            assert costs.flops[0] >= 2 * costs.macs[0], case.name
            assert costs.macs[0] >= 0, case.name
        if not math.isnan(costs.activation_bytes[0]):
            known += 1
            tensors = [TensorProto(data_type=k, dims=v.shape) for k, v in zip(made.values(), values, strict=True)]
            if not costs.graph.folded[0] and costs.activation_bytes[0] != sum(map(declared_bytes, tensors)):
                wrong.add(case.name)
    assert known > 0.9 * asked > 1000, f"{known} of {asked}"
    # of a one-sided STFT onnx infers both sides
    assert wrong <= {"test_stft", "test_stft_with_window"}


def test_nodes_that_differ_only_in_the_outputs_they_leave_out() -> None:
    nodes = [
        helper.make_node("Dropout", ["x"], ["a"]),
        helper.make_node("Dropout", ["x"], ["b", "mask"]),
        helper.make_node("TopK", ["x", "k"], ["", "places"]),
        helper.make_node("TopK", ["x", "k"], ["values", ""]),
    ]
    outputs = ["a", "b", "mask", "places", "values"]
    costs = onnx_nb.costs(_model(nodes, {"x": [2, 3]}, outputs, {"k": np.asarray([1], np.int64)}))
    assert costs.activation_bytes.tolist() == [24, 24 + 6, 2 * 8, 2 * 4]


def test_functions_of_one_name_are_told_apart_by_overload() -> None:
    opsets = [helper.make_opsetid("", 20)]
    functions = []
    for overload, op in [("one", "Relu"), ("two", "MatMul")]:
        read = ["x", "x"] if op == "MatMul" else ["x"]
        made = helper.make_function("mine", "F", ["x"], ["y"], [helper.make_node(op, read, ["y"])], opsets)
        made.overload = overload
        functions.append(made)
    nodes = [helper.make_node("F", ["x"], [name], domain="mine", overload=name) for name in ("one", "two")]
    costs = onnx_nb.costs(_model(nodes, {"x": [3, 3]}, ["one", "two"], functions=functions))
    assert costs.macs.tolist() == [0, 27, 0, 27]  # the nodes inside of the calls come last


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Einsum", ["x", "x"], ["y"]),
        helper.make_node("Einsum", ["x", "x"], ["y"], equation=[1]),
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=b"2"),
        helper.make_node("Shape", ["x"], ["y"], start=b"0"),
        helper.make_node("Scan", ["x"], ["y"], num_scan_inputs=2**62, body=_body([], [], [])),
        helper.make_node("Scan", ["x"], ["y"], num_scan_inputs=b"1", body=_body([], [], [])),
        helper.make_node("Attention", ["x", "x", "x"], ["y"], q_num_heads=[1], kv_num_heads=1),
        helper.make_node("Loop", [], ["y"], body=_body([], [], [])),
        helper.make_node("MatMulNBits", ["x"], ["y"], domain="com.microsoft", N=b"1"),
        helper.make_node("Attention", ["x", "x"], ["y"], domain="com.microsoft", qkv_hidden_sizes=[1]),
        helper.make_node("F", ["x"], ["y"], domain="mine"),
    ],
    ids=lambda node: node.op_type,
)
def test_broken_nodes_are_unknown(node: onnx.NodeProto) -> None:
    function = helper.make_function(
        "mine",
        "F",
        ["x"],
        ["y"],
        [helper.make_node("F", ["x"], ["y"], domain="mine")],
        [helper.make_opsetid("mine", 1)],
    )
    costs = onnx_nb.costs(_model([node], {"x": [2, 3, 4]}, ["y"], opset=23, functions=[function]))
    assert costs.unknown
    assert costs.unknown[0].reason
    assert onnx_nb.summarize(costs.graph.model).cost == costs.total


def _contributed(op: str, read: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, read, ["y"], domain="com.microsoft", **attributes)


def test_operators_of_onnxruntime_by_hand() -> None:
    fused = _contributed("FusedMatMul", ["a", "b"], transA=1, transB=1, alpha=0.5)
    cost = _one(fused, {"a": [7, 3, 2], "b": [5, 3]})
    assert (cost.macs, cost.flops, cost.activation_bytes) == (7 * 2 * 3 * 5, 2 * 210 + 70, 4 * 70)
    packed = _contributed("MatMulNBits", ["a", "b", "s"], K=64, N=10, bits=4, block_size=32)
    cost = _one(packed, {"a": [2, 3, 64]}, weights={"b": np.zeros((10, 2, 16), np.uint8), "s": _zeros(20)})
    assert (cost.macs, cost.activation_bytes) == (2 * 3 * 64 * 10, 4 * 60)
    # query, key and value of 4 heads and of 2, each 8 wide, side by side
    grouped = _contributed("GroupQueryAttention", ["q", "", "", "", "", "l", "t"], num_heads=4, kv_num_heads=2)
    weights = {"l": np.asarray([4, 4], np.int32), "t": np.asarray(5, np.int32)}
    cost = _one(grouped, {"q": [2, 5, 64]}, weights=weights)
    assert (cost.macs, cost.activation_bytes) == (2 * 4 * 5 * 5 * 16, 4 * 2 * 5 * 32)
    whole = _contributed("Attention", ["x", "w", "b"], num_heads=4)
    cost = _one(whole, {"x": [2, 5, 32]}, weights={"w": _zeros(32, 96), "b": _zeros(96)})
    assert cost.macs == 2 * 5 * 32 * 96 + 2 * 5 * 5 * 32 * 2
    assert cost.activation_bytes == 4 * 2 * 5 * 32


def test_masks_of_old_dropouts_have_the_size_of_the_input() -> None:
    assert not onnx_nb.costs(models.light("squeezenet")).unknown


@pytest.mark.parametrize(
    ("name", "macs"),
    # multiply-adds for one picture, as torchvision's documentation has them
    [("vgg19", 19.63e9), ("densenet121", 2.83e9), ("resnet50", 4.09e9)],
)
def test_known_networks_cost_what_is_published(name: str, macs: float) -> None:
    assert onnx_nb.costs(models.light(name)).total.macs == pytest.approx(macs, rel=0.005)
