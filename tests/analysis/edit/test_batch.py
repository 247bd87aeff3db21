"""A fixed batch is freed where samples stay apart, and refused with the node that mixes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnx.reference
import pytest
from onnx import ModelProto

import onnx_nb
from onnx_nb.analysis.edit import batch
from onnx_nb.analysis.edit.batch import OPEN, SHARED, BatchLayout, layout_of
from tests import models

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def parsed(text: str) -> ModelProto:
    return onnx.parser.parse_model(f"{HEAD} {text}")


def reference(model: ModelProto, x: Any) -> Any:
    """The first output that onnx's reference implementation gives."""
    return next(iter(onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})))


FREED = {
    # name: (model, what was mended, shape of the output)
    "no node pins it": ("g (float[1,3] x) => (float[1,3] y) { y = Softmax(x) }", "", ("batch", 3)),
    "a literal": (
        "g (float[1,3,4] x) => (float[1,12] y) <int64[2] s = {1,12}> { y = Reshape(x, s) }",
        "Reshape",
        ("batch", 12),
    ),
    "a literal beside −1": (
        "g (float[1,3,4] x) => (float[1,6,2] y) <int64[3] s = {1,-1,2}> { y = Reshape(x, s) }",
        "Reshape",
        ("batch", 6, 2),
    ),
    "zeros are literal": (
        "g (float[1,3,4] x) => (float[1,6,2] y) <int64[3] s = {1,-1,2}> { y = Reshape <allowzero = 1> (x, s) }",
        "Reshape",
        ("batch", 6, 2),
    ),
    "heads before the batch": (
        """g (float[1,4,6] x) => (float[1,4,6] y) <int64[4] s = {1,4,2,3}, int64[3] h = {2,4,3}, int64[4] b = {1,2,4,3},
        int64[3] o = {1,4,6}> { a = Reshape(x, s)  c = Transpose <perm = [0,2,1,3]> (a)  d = Reshape(c, h)
        e = Reshape(d, b)  f = Transpose <perm = [0,2,1,3]> (e)  y = Reshape(f, o) }""",
        "Reshape ×4",
        ("batch", 4, 6),
    ),
    "a token for each sample": (
        "g (float[1,3,2] x) => (float[1,4,2] y) <float[1,1,2] token = {1,2}> { y = Concat <axis = 1> (token, x) }",
        "Concat",
        ("batch", 4, 2),
    ),
    "two tokens": (
        """g (float[1,3,2] x) => (float[1,5,2] y) <float[1,1,2] one = {1,2}, float[1,1,2] two = {3,4}> {
        y = Concat <axis = 1> (one, two, x) }""",
        "Concat ×2",
        ("batch", 5, 2),
    ),
    "a shape to expand to": (
        "g (float[2,1,3] x) => (float[2,4,3] y) <int64[3] s = {2,4,3}> { y = Expand(x, s) }",
        "Expand",
        ("batch", 4, 3),
    ),
    "a constant for each of two samples": (
        "g (float[2,2] x) => (float[2,2] y) <float[2,2] c = {1,2,1,2}> { y = Add(x, c) }",
        "Add",
        ("batch", 2),
    ),
    "the batch behind the sequence": (
        "g (float[5,1,2] x) => (float[5,1,2] y) { y = Neg(x) }",
        "",
        (5, "batch", 2),
    ),
    "a computed shape": (
        """g (float[1,3,4] x) => (float[1,4,3] y) <int64[1] one = {1}, int64[1] two = {2}, int64[1] rest = {-1}> {
        s = Shape(x)  n = Gather(s, two)  t = Concat <axis = 0> (one, n, rest)  y = Reshape(x, t) }""",
        "Reshape",
        ("batch", None, None),
    ),
}


@pytest.mark.parametrize("name", FREED)
def test_a_batch_is_freed(name: str) -> None:
    text, mended, shape = FREED[name]
    model = parsed(text)
    axes = {"x": 1} if "behind" in name else None
    e = onnx_nb.edit(model).free("batch", axes)
    assert (f"mended {mended}" if mended else "freed batch of x") in e.steps[0].text
    assert e.steps[0].proof == "equal"
    free = e.model.to_proto()
    onnx.checker.check_model(free, full_check=True)
    found = e.model.outputs[0].shape
    assert found is not None
    assert [want for want, is_ in zip(shape, found, strict=True) if want not in (None, is_)] == []
    # onnx's own implementation is the judge: five samples, and each by itself in the model as it was
    axis = 1 if axes else 0
    size, random = model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value, np.random.default_rng(0)
    shape_of_one = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    samples = [random.normal(size=shape_of_one).astype(np.float32) * 10**k for k in range(-2, 3)]
    whole = reference(free, np.concatenate(samples, axis))
    for number, sample in enumerate(samples):
        alone = reference(model, sample)
        part = whole.take(range(number * size, (number + 1) * size), axis)
        assert np.allclose(part, alone, rtol=1e-5)


REFUSED = {
    "a maximum of all": (
        "g (float[1,3] x) => (float[1,3] y) { m = ReduceMax <keepdims = 0> (x)  y = Div(x, m) }",
        "ReduceMax",
    ),
    "a scale of all": (
        "g (float[1,3] x) => (float[1,3] y) { q, s, z = DynamicQuantizeLinear(x)  y = DequantizeLinear(q, s, z) }",
        "DynamicQuantizeLinear",
    ),
    "one sample of the batch": (
        "g (float[1,3] x) => (float[3] y) <int64 zero = {0}> { y = Gather(x, zero) }",
        "Gather",
    ),
    "constants that differ": (
        "g (float[2,2] x) => (float[2,2] y) <float[2,2] c = {1,2,3,4}> { y = Add(x, c) }",
        "Add",
    ),
    "an average": (
        "g (float[1,3] x) => (float[1,3] y) { m = ReduceMean <axes = [0]> (x)  y = Sub(x, m) }",
        "ReduceMean",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_batch_that_cannot_be_freed_is_refused_with_the_node(name: str) -> None:
    text, op = REFUSED[name]
    e = onnx_nb.edit(parsed(text))
    with pytest.raises(
        onnx_nb.EditError, match=rf"batch of g cannot be freed: {op} .*(mixes the samples|fails on two)"
    ):
        e.free("batch")
    assert not e.steps


def test_values_that_decide_a_size_are_the_reason() -> None:
    e = onnx_nb.edit(parsed("g (float[1,4] x) => (int64[2,n] y) { y = NonZero(x) }"))
    with pytest.raises(onnx_nb.EditError, match=r"cannot be freed: values decide the size of 'y'.*selects by values"):
        e.free()
    assert not e.steps


def test_other_inputs_and_wrong_axes() -> None:
    model = parsed("g (float[1,3] x, float[3] w) => (float[1,3] y) { y = Mul(x, w) }")
    e = onnx_nb.edit(model).free("n")
    assert [info.shape for info in e.model.inputs] == [("n", 3), (3,)]
    with pytest.raises(onnx_nb.EditError, match="no input 'z' with axis 0"):
        onnx_nb.edit(model).free("n", {"z": 0})
    with pytest.raises(onnx_nb.EditError, match="no input with a batch"):
        onnx_nb.edit(parsed("g (float x) => (float y) { y = Neg(x) }")).free()


def test_states_of_a_recurrent_network_have_the_batch_behind() -> None:
    weights = "float[1,16,3] w, float[1,16,4] r"
    text = """g (float[5,1,3] x, float[1,1,4] h, float[1,1,4] c) => (float[5,1,1,4] y) <{}> {{
        y, hn, cn = LSTM <hidden_size = 4> (x, w, r, , , h, c) }}"""
    random = np.random.default_rng(0)
    model = parsed(text.format("").replace("<>", "").replace(") => ", f", {weights}) => "))
    arrays = {"w": random.normal(size=(1, 16, 3)), "r": random.normal(size=(1, 16, 4))}
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    del model.graph.input[3:]
    e = onnx_nb.edit(model).free("batch", {"x": 1, "h": 1, "c": 1})
    assert [info.shape for info in e.model.inputs] == [(5, "batch", 3), (1, "batch", 4), (1, "batch", 4)]


def test_layouts() -> None:
    one, two = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(2, 3)
    assert layout_of(one, one, one) == SHARED
    assert layout_of(one, two, np.concatenate([one, two])) == BatchLayout(0)
    assert layout_of(one, two, np.concatenate([one, two], 1)) == BatchLayout(1)
    inside = np.stack([one, two], 1).reshape(4, 3)  # the batch between heads and the rest
    assert layout_of(one, two, inside) == BatchLayout(0, 2)
    for place in (BatchLayout(0), BatchLayout(1), BatchLayout(0, 2), BatchLayout(1, 3)):
        assert layout_of(one, two, batch._joint(one, two, place)) == place
    assert layout_of(one, two, np.concatenate([two, one])) is None
    assert layout_of(one, two, one) is None
    assert layout_of([one], [two], [one, two]) == OPEN


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", ["bert", "vit", "segformer", "llama", "whisper"])
def test_exports_are_freed(name: str, *, dynamo: bool) -> None:
    model: Any = onnx_nb.load(models.exported(name, dynamo=dynamo, small=True))
    symbols = {info.shape[0] for info in model.inputs if info.shape}
    fixed = onnx_nb.simplify(model, shapes=dict.fromkeys(symbols, 1), check_n=0).model
    free = onnx_nb.edit(fixed).free("batch").model
    feeds = onnx_nb.random_feeds(model, shapes=dict.fromkeys(symbols, 3))
    expected, found = onnx_nb.run(model, feeds), onnx_nb.run(free, feeds)
    assert all(np.allclose(found[key], expected[key], rtol=1e-3, atol=1e-4) for key in expected)
