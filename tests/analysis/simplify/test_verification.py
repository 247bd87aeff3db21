"""What `simplify` may change, and what its verification says: signs of zeros, precision inside, old opsets, depth."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto, helper

import onnx_nb
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.simplify import editor, known_graph, rounds
from tests.analysis.simplify.test_simplify import operators, parsed, same_outputs

# --- signs of zeros --------------------------------------------------------------------------------------------------

OPSET = helper.make_opsetid("", 20)
NOTHING = np.array([-0.0, 0.0], np.float32)


def same_bits(before: Any, after: Any, feed: dict[str, Any]) -> bool:
    found = [onnx_nb.run(model, feed, optimize=False) for model in (before, after)]
    return all(found[0][name].tobytes() == found[1][name].tobytes() for name in found[0])


@pytest.mark.parametrize(
    ("graph", "after"),
    [
        ("a = Add(x, zero)  y = Reciprocal(a)", ["Add", "Reciprocal"]),
        ("a = Add(zero, x)  y = Div(one, a)", ["Add", "Div"]),
        ("a = Sub(x, minus)  y = Div(one, a)", ["Sub", "Div"]),
        ("a = Add(x, zero)  y = Neg(a)", ["Add", "Neg"]),
        ("y = Add(x, zero)", ["Add"]),
        ("q = Mul(x, zero)  a = Add(q, zero)  y = Reciprocal(a)", ["Mul", "Add", "Reciprocal"]),
        ("a = Add(x, zero)  b = Add(a, x)  y = Reciprocal(b)", ["Add", "Add", "Reciprocal"]),
        ("a = Add(x, minus)  y = Reciprocal(a)", ["Reciprocal"]),
        ("a = Sub(x, zero)  y = Reciprocal(a)", ["Reciprocal"]),
        ("a = Add(x, zero)  y = Exp(a)", ["Exp"]),
        ("e = Exp(x)  a = Add(e, zero)  y = Reciprocal(a)", ["Exp", "Reciprocal"]),
        ("e = Exp(x)  b = Add(x, e)  a = Add(b, zero)  y = Reciprocal(a)", ["Exp", "Add", "Reciprocal"]),
        ("a = Add(x, zero)  b = Neg(a)  c = Add(b, one)  y = Reciprocal(c)", ["Neg", "Add", "Reciprocal"]),
        ("a = Add(x, zero)  b = Pow(a, two)  y = Cos(b)", ["Pow", "Cos"]),
    ],
)
def test_adding_zero_goes_only_where_no_zero_changes_its_sign(graph: str, after: list[str]) -> None:
    weights = "<float zero = {0}, float minus = {-0.0}, float one = {1}, float two = {2}>"
    model = parsed(f"g (float[n] x) => (float[n] y) {weights} {{ {graph} }}")
    s = onnx_nb.simplify(model, feeds={"x": NOTHING})
    assert operators(s.model) == after
    assert s.verified
    assert same_bits(model, s.model, {"x": NOTHING})


def test_zero_added_to_integers_always_goes() -> None:
    model = parsed("g (int64[n] x) => (int64[n] y) <int64 zero = {0}> { a = Add(x, zero)  y = Neg(a) }")
    assert operators(onnx_nb.simplify(model).model) == ["Neg"]


UNARY = """
    Abs ArgMax ArgMin Cast Clip Cos Cosh Dropout Elu Erf Exp Flatten Gelu HardSwish Identity IsInf IsNaN LeakyRelu
    LogSoftmax Neg ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceSum ReduceSumSquare Relu Shape
    Sigmoid Size Softmax Softplus Sqrt Squeeze Tanh Transpose"""


@pytest.mark.parametrize("op", UNARY.split())
def test_operators_treat_zeros_as_their_table_says(op: str) -> None:
    """The result on −0.0 and 0.0 is the same number, and of some operators the same bits."""
    node = helper.make_node(op, ["x"], ["y"], to=TensorProto.DOUBLE if op == "Cast" else None)
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])], [onnx.ValueInfoProto(name="y")]
    model = helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=[OPSET], ir_version=9)
    one, two = (onnx_nb.run(model, {"x": np.array([[zero]], np.float32)}, optimize=False)["y"] for zero in (-0.0, 0.0))
    assert np.array_equal(one, two)
    assert op in names_where("zeros_same") | names_where("zeros_kept")
    if op in names_where("zeros_same"):
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("depth", [1, 2, 5, 33])
def test_products_are_added_to_zero(depth: int) -> None:
    model = parsed(f"""g (float[2,{depth},1] x, float[{depth},3] w) => (float[2,1,3] y, float[2,3,1] z) {{
        t = Transpose <perm = [0, 2, 1]> (x)  y = MatMul(t, w)
        v = Transpose <perm = [1, 0]> (w)  axes = Constant <value_ints = [2]> ()  u = Unsqueeze(v, axes)  z = Conv(x, u)
        }}""")
    feed = {"x": np.full((2, depth, 1), -0.0, np.float32), "w": np.ones((depth, 3), np.float32)}
    assert not any(np.signbit(array).any() for array in onnx_nb.run(model, feed, optimize=False).values())


# --- precision inside ------------------------------------------------------------------------------------------------


def normalized() -> dict[str, np.ndarray]:
    """Return the weights of a Conv and of a normalization behind it."""
    rng = np.random.default_rng(0)
    return {
        "w": rng.normal(size=(16, 8, 3, 3)),
        "s": rng.normal(size=16),
        "b": rng.normal(size=16),
        "m": rng.normal(size=16),
        "v": rng.uniform(0.5, 2, 16),
    }


def half(wrong: float = 1.0) -> ModelProto:
    """Return a Conv and a normalization in float16 between float32 inputs and outputs."""
    tensors = [
        onnx.numpy_helper.from_array((array * wrong).astype(np.float16), name) for name, array in normalized().items()
    ]
    model = parsed(
        "g (float[n,8,12,12] x) => (float[n,16,10,10] y) { h = Cast <to = 10> (x)  c = Conv(h, w)"
        "  d = BatchNormalization(c, s, b, m, v)  y = Cast <to = 1> (d) }"
    )
    model.graph.initializer.extend(tensors)
    return model


def dynamic() -> ModelProto:
    """Return a Gelu whose result is quantized dynamically, and multiplied by 8-bit integers."""
    rng = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(rng.integers(-127, 127, (512, 64)).astype(np.int8), "w")
    model = parsed(
        """g (float[512,512] x) => (float[512,64] y)
        <float half = {0.5}, float one = {1}, float root = {1.41421356}, float scale = {0.01}>
        { a = Div(x, root)  c = Erf(a)  d = Add(c, one)  f = Mul(x, d)  h = Mul(f, half)
          q, s, z = DynamicQuantizeLinear(h)  p = MatMulInteger(q, w, z)  r = Cast <to = 1> (p)  t = Mul(s, scale)
          y = Mul(r, t) }"""
    )
    model.graph.initializer.append(weight)
    return model


def test_roundings_inside_are_tolerated() -> None:
    model = half()
    s = onnx_nb.simplify(model, feeds=onnx_nb.random_feeds(model, 3))
    assert len(s.changes) > 0
    (errors,) = s.differences.values()
    # more than float32 explains: this is why the type of the output is not enough
    assert errors.max_abs > 1e-4 * np.abs(onnx_nb.run(model, onnx_nb.random_feeds(model, 3))["y"]).mean()
    assert s.verified, s.verification


@pytest.mark.parametrize("model", [half(), dynamic()], ids=["float16", "int8"])
def test_errors_larger_than_roundings_inside_are_found(model: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(net: editor.Editor, op: known_graph.Op) -> str | None:
        """Scale by 1.2."""
        array = net.constant(op.input(1))
        if array is None or net.names[op.inputs[1]] not in ("s", "scale"):
            return None
        net.set_input(op, 1, net.new_constant(array * array.dtype.type(1.2), "more"))
        return "it is wrong"

    monkeypatch.setattr(rounds, "RULES", [editor.Rule("wrong", "Scale", wrong, ("BatchNormalization", "Mul"))])
    with pytest.warns(UserWarning, match="output 'y' differs by up to"):
        assert onnx_nb.simplify(model).verdict == "wrong"


def steep(scale: float = 500.0) -> ModelProto:
    """Return convolutions whose rounding a steep Sigmoid enlarges, as at the edges of what a detector has seen."""
    weights = normalized() | {"small": np.full((16, 1, 1), 1e-4), "steep": np.asarray(scale)}
    model = parsed(
        """g (float[1,8,66,66] x) => (float[1,16,64,64] y) { c = Conv(x, w)
        d = BatchNormalization <epsilon = 1e-5> (c, s, b, m, v)  e = Add(d, small)  f = Mul(e, steep)
        h = Sigmoid(f)  i = LogSoftmax <axis = 1> (e)  j = Mul(i, steep)  k = Tanh(j)  y = Add(h, k) }"""
    )
    tensors = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    model.graph.initializer.extend(tensors)
    return model


STEEP_FEED = {"x": np.random.default_rng(1).normal(size=(1, 8, 66, 66)).astype(np.float32)}


def test_what_onnxruntime_itself_rounds_as_far_is_not_wrong() -> None:
    plain, optimized = (onnx_nb.run(steep(), STEEP_FEED, optimize=way)["y"] for way in (False, True))
    s = onnx_nb.simplify(steep(), feeds=STEEP_FEED)
    simpler = onnx_nb.run(s.model, STEEP_FEED, optimize=False)["y"]
    assert not np.allclose(simpler, plain, rtol=1e-4, atol=1e-5)
    assert not np.allclose(optimized, plain, rtol=1e-4, atol=1e-5)
    assert s.verified, s.verification
    moved = float(np.abs(optimized.astype(np.float64) - plain).max())
    assert f"where onnxruntime's own optimization moves 'y' by {moved:.2g}" in s.verification


def nudged(model: ModelProto, _node: onnx.NodeProto) -> None:
    """Add a little to one element of a weight."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "b")
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[3] += 1e-4
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, "b"))


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("Add", lambda _, node: node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))),
        ("LogSoftmax", lambda _, node: node.attribute[0].CopyFrom(helper.make_attribute("axis", 2))),
        ("BatchNormalization", lambda _, node: node.attribute[0].CopyFrom(helper.make_attribute("epsilon", 2e-5))),
        ("Conv", nudged),
        ("Sigmoid", lambda _, node: node.CopyFrom(helper.make_node("HardSigmoid", node.input, node.output))),
    ],
)
def test_wrong_rewrites_are_wrong_also_where_rounding_is_large(
    op: str, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = rounds.Rounds.run

    def wrong(self: rounds.Rounds, model: onnx_nb.Model) -> onnx_nb.Model:
        proto = run(self, model).to_proto()
        change(proto, next(node for node in proto.graph.node if node.op_type == op))
        return onnx_nb.load(proto)

    monkeypatch.setattr(rounds.Rounds, "run", wrong)
    with pytest.warns(UserWarning, match="where onnxruntime's own optimization moves 'y' by"):
        assert onnx_nb.simplify(steep(), feeds=STEEP_FEED, skip=["rewrites"]).verdict == "wrong"


def test_precision_counts_only_on_the_way_to_an_output() -> None:
    model = parsed(
        "g (float[n] x) => (float[n] y, float[n] z) { h = Cast <to = 10> (x)  y = Cast <to = 1> (h)  z = Exp(x) }"
    )
    from onnx_nb.analysis.simplify.verification import _precision

    assert _precision(onnx_nb.load(model)) == {"y": 2.0**-10, "z": 2.0**-23}
    inside = parsed(
        """g (float[n] x, bool c) => (float[n] y) { y = If(c) <
        then_branch = t () => (float[n] a) { h = Cast <to = 16> (x)  a = Cast <to = 1> (h) },
        else_branch = e () => (float[n] b) { b = Exp(x) }> }"""
    )
    assert _precision(onnx_nb.load(inside)) == {"y": 2.0**-7}
    called = parsed(
        """g (float[n] x) => (float[n] y) { y = local.f(x) }
        <domain: "local", opset_import: ["": 17]> f (a) => (b) { h = Cast <to = 10> (a)  b = Cast <to = 1> (h) }"""
    )
    assert _precision(onnx_nb.load(called)) == {"y": 2.0**-10}


# --- what the checker accepts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 8, 9])
def test_a_constant_output_is_stored_only_where_the_opset_can(opset: int) -> None:
    text = "g () => (bool[2] y) <bool[2] a = {1, 0}, bool[2] b = {1, 1}> { c = And(a, b)  d = Not(c)  y = Not(d) }"
    model = parsed(text, f'<ir_version: 4, opset_import: ["": {opset}]>')
    onnx.checker.check_model(model, full_check=True)
    s = onnx_nb.simplify(model)
    onnx.checker.check_model(s.model.to_proto(), full_check=True)
    assert operators(s.model) == (["Constant"] if opset >= 9 else ["Not"])
    assert s.verified
    assert same_outputs(model, s.model, {})


def test_floats_are_stored_in_every_opset() -> None:
    text = "g () => (float[2] y) <float[2] a = {1, 0}> { y = Neg(a) }"
    s = onnx_nb.simplify(parsed(text, '<ir_version: 4, opset_import: ["": 7]>'))
    onnx.checker.check_model(s.model.to_proto(), full_check=True)
    assert operators(s.model) == ["Constant"]


def test_the_text_on_the_checker_is_true() -> None:
    valid = parsed("g (float[2] x) => (float[2] y) { a = Identity(x)  y = Exp(a) }")
    assert "onnx's checker accepts it" in onnx_nb.simplify(valid).verification
    # declared as int64, which onnxruntime does not mind
    invalid = parsed("g (float[2] x) => (float[3] y) { a = Identity(x)  y = Exp(a) }")
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.checker.check_model(invalid, full_check=True)
    said = onnx_nb.simplify(invalid).verification
    assert "refuses" in said
    assert "accepts" not in said


# --- depth -----------------------------------------------------------------------------------------------------------


def test_an_unused_chain_of_any_length_goes() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    nodes += [helper.make_node("Neg", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(3000)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    s = onnx_nb.simplify(model)
    assert operators(s.model) == ["Relu"]
    assert len(s.changes[0].taken) == 3000


# --- shapes that a run decides ---------------------------------------------------------------------------------------

BRANCHES = """z = If (c) <then_branch = a () => (float[3,4] p) { p = Relu(x) },
    else_branch = b () => (float[n] q) { one = Constant<value=int64[1]{-1}>() q = Reshape(x, one) }>"""
LOOP = """_, z = Loop (count, , x) <body = b (int64 i, bool k, float[3,4] a) => (bool more, float[3,4] d, float[3,4] e)
    { more = Identity(k) d = Relu(a) e = Add(a, d) }>"""


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ("s = SplitToSequence<axis=0, keepdims=0>(x)  i = Constant<value=int64{1}>()  z = SequenceAt(s, i)", (4,)),
        ("s = SplitToSequence<axis=1, keepdims=0>(x)  z = ConcatFromSequence<axis=0, new_axis=1>(s)", (4, 3)),
        (f"c = Constant<value=bool{{1}}>()  {BRANCHES}", (3, 4)),
        (f"r = ReduceMax<keepdims=0>(x)  c = Cast<to=9>(r)  {BRANCHES}", (3, 4)),
        (f"count = Constant<value=int64{{0}}>()  {LOOP}", (0, 3, 4)),
        (f"r = ReduceMin<keepdims=0>(x)  count = Cast<to=7>(r)  {LOOP}", (0, 3, 4)),
    ],
)
def test_shapes_that_inference_takes_for_others_are_verified(nodes: str, shape: tuple[int, ...]) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[3, 4] x) => (float y) {{ {nodes}  y = Relu(z) }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    feed = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    assert onnx_nb.run(model, feed)["y"].shape == shape
    simplified = onnx_nb.simplify(model, feeds=feed)
    assert "verified" in repr(simplified)
    assert same_bits(model, simplified.model, feed)
