"""Kinds, formal names and defaults of operators."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import onnx.defs
import onnxruntime
import pytest

from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.operators import CATEGORIES, Operator, category, facts, of_body

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
    with pytest.raises(ValueError, match="swift: no trait"):
        operators.names_where("swift")


def test_functions_of_the_specification_say_what_the_table_says() -> None:
    bodies = {op: of_body(op, domain) for op, domain in ALL if domain in ("", "ai.onnx")}
    functions = {op: body for op, body in bodies.items() if body is not None}
    assert {"Mish", "ReduceL2", "AffineGrid", "MeanVarianceNormalization"} <= functions.keys()
    assert all(body.is_deterministic == facts(op).is_deterministic for op, body in functions.items())


def test_an_operator_without_a_row_has_the_facts_of_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: row for name, row in operators.table().items() if name != "HardSwish"}
    monkeypatch.setattr(operators, "table", lambda: rows)
    facts.cache_clear()
    assert facts("HardSwish").is_deterministic
    assert not facts("HardSwish").is_guess
    facts.cache_clear()


def _inputs(schemas: Iterable[Any], words: tuple[str, ...]) -> list[tuple[str, int, Operator]]:
    """Return the inputs of operators whose names have one of the words, with their numbers."""
    inputs = [(s, place, port) for s in schemas for place, port in enumerate(s.inputs)]
    return [
        (f"{s.name}.{port.name}", place, facts(s.name, s.domain))
        for s, place, port in inputs
        if any(word in port.name.lower() for word in words)
    ]


def test_what_the_table_does_not_know_only_becomes_less() -> None:
    """Each number counts operators or inputs of onnx and onnxruntime that a column lacks; write down lower ones."""
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    contrib = [s for s in state.get_all_operator_schema() if s.domain == "com.microsoft"]
    schemas = [*onnx.defs.get_all_schemas(), *contrib]
    rows = {(s.name, s.domain): facts(s.name, s.domain) for s in schemas}
    integers = {f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    is_index = {f"{s.name}.{port.name}" for s in schemas for port in s.inputs if {*map(str, port.types)} <= integers}
    unknown: dict[str, list[Any]] = {
        "category": [op for op, row in rows.items() if row.is_guess or row.category == "other"],
        "deterministic": [op for op, row in rows.items() if not row.is_deterministic and "random" not in row.traits],
        "cost": [op for op, row in rows.items() if row.cost == "?" and row.category != "control"],
        "weights": [name for name, _, row in _inputs(schemas, ("weight", "gamma")) if not row.weights],
        "scales": [
            name
            for name, place, row in _inputs(schemas, ("_scale", "scales", "zero_point"))
            if place not in itertools.chain(row.out, *row.scales.values()) and "norm_scale" not in name
        ],
        "quantized": [name for name, _, row in _inputs(schemas, ("zero_point",)) if not row.quantized],
        "feeds": [
            name
            for name, place, row in _inputs(schemas, ("",))
            if name in is_index and not {place} & {*row.feeds, *row.weights, *row.scales, row.bias, *row.out}
        ],
    }
    maxima = {
        "category": 0,
        "deterministic": 10,
        "cost": 85,
        "weights": 17,
        "scales": 13,
        "quantized": 0,
        "feeds": 240,
    }
    assert not [(column, len(names), names) for column, names in unknown.items() if len(names) > maxima[column]]


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
