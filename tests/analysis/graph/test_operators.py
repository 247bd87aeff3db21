"""Kinds, formal names and defaults of operators."""

from __future__ import annotations

import onnx.defs
import onnxruntime
import pytest

from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.operators import CATEGORIES, category, facts

ALL = sorted({(schema.name, schema.domain) for schema in onnx.defs.get_all_schemas_with_history()})


def test_every_operator_of_the_installed_onnx_has_a_row() -> None:
    assert not [(op, domain) for op, domain in ALL if facts(op, domain).is_guess]


def test_every_operator_of_the_installed_onnxruntime_has_one_too() -> None:
    newest = (1, 32)  # the table was completed from this version
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) > newest:
        pytest.skip(f"onnxruntime {onnxruntime.__version__} is newer than the table of operators")
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    schemas = state.get_all_operator_schema()
    assert {"com.microsoft", "ai.onnx.ml", ""} <= {schema.domain for schema in schemas}
    assert not [(s.domain, s.name) for s in schemas if facts(s.name, s.domain).is_guess]
    assert not [s.name for s in schemas if facts(s.name, s.domain).category == "other"]


def test_a_variant_has_the_facts_of_its_operator_but_for_its_own() -> None:
    conv, quantized = facts("Conv"), facts("QLinearConv")
    assert (quantized.category, quantized.cost, quantized.channels) == (conv.category, conv.cost, conv.channels)
    assert (quantized.weights, quantized.bias, quantized.scales[3], quantized.out) == ((3,), 8, (4, 5), (6, 7))
    assert (conv.quantized, quantized.quantized) == ("", "integers")
    assert not facts("QLinearConcat").moves  # it has another scale
    assert {"Conv", "QLinearConv", "FusedConv"} <= operators.variants("Conv")


def test_domains_share_rows_unless_one_has_its_own() -> None:
    assert facts("Gelu", "com.microsoft") == facts("Gelu")
    assert facts("Attention", "com.microsoft") != facts("Attention")
    custom = facts("Conv", "my.domain")
    assert custom.is_guess
    assert (custom.category, custom.weights) == ("linear", ())
    assert facts("FakeQuantize", "my.domain").quantized == "rounds"


@pytest.mark.parametrize(
    ("op", "domain", "kind"),
    [
        ("Conv", "", "linear"),
        ("MultiHeadAttention", "com.microsoft", "linear"),
        ("Softmax", "", "activation"),
        ("SkipLayerNormalization", "com.microsoft", "normalize"),
        ("Add", "", "arithmetic"),
        ("Where", "", "arithmetic"),
        ("Reshape", "", "shape"),
        ("ReduceMean", "", "pool"),
        ("DequantizeLinear", "", "cast"),
        ("If", "", "control"),
        ("RandomNormal", "", "random"),
        ("Constant", "", "input"),
        ("aten_layer_norm", "pkg.onnxscript.torch_lib", "normalize"),
        ("Frobnicate", "my.domain", "other"),
        ("", "", "other"),
        ("<script>alert(1)</script>", "", "other"),
    ],
)
def test_kind(op: str, domain: str, kind: str) -> None:
    assert CATEGORIES[category(op, domain)] == kind


@pytest.mark.parametrize(("op", "domain"), ALL)
def test_input_names_are_those_of_onnx(op: str, domain: str) -> None:
    newest = onnx.defs.onnx_opset_version() if not domain else 100
    schema = onnx.defs.get_schema(op, newest, domain)
    assert operators.input_names(op, domain, newest) == tuple(formal.name for formal in schema.inputs)


def test_an_operator_has_the_names_of_its_opset() -> None:
    assert operators.input_names("Slice", "", 9) == ("data",)
    assert operators.input_names("Slice", "ai.onnx", 13) == ("data", "starts", "ends", "axes", "steps")


@pytest.mark.parametrize(
    ("op", "domain", "opset"),
    [("Mine", "my", 1), ("Relu", "", 0), ("Relu", "", -1), ("Relu", "", 2**63), ("a\0b", "", 1)],
)
def test_nothing_is_known_of_what_onnx_does_not_define(op: str, domain: str, opset: int) -> None:
    assert operators.input_names(op, domain, opset) == ()
    assert operators.documentation(op, domain, opset) == ""
    assert not operators.attribute_defaults(op, domain, opset)


def test_defaults_are_plain_values() -> None:
    assert dict(operators.attribute_defaults("Conv", "", 17)) == {"auto_pad": "NOTSET", "group": 1}


def test_only_operators_with_bodies_or_unknown_ones_may_hold_graphs() -> None:
    with_bodies = {op for op, domain in ALL if not domain and operators.may_hold_graphs(op, "", 27)}
    assert {"If", "Loop", "Scan", "SequenceMap"} <= with_bodies
    assert "MatMul" not in with_bodies
