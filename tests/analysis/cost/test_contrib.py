"""Costs of onnxruntime's operators, counted again as those of the standard operators that compute the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.graph.graph import Graph

if TYPE_CHECKING:
    from onnx_nb.analysis.cost.costs import Costs

BYTES = TensorProto.UINT8


class Same(NamedTuple):
    """An operator, and standard operators that compute the same."""

    op: str
    inputs: Sequence[Any]
    """Shapes, with the type if it is not float; arrays of constants; None for inputs that are left out."""
    output: Sequence[int]
    plain: str
    """Inputs and nodes of a model."""
    attributes: Mapping[str, Any] = {}


def attention(heads: int, rows: int, columns: int, width: int, *, added: int = 0) -> str:
    """Return the nodes of one attention."""
    return f"""(float[{heads}, {rows}, {width}] q, float[{heads}, {width}, {columns}] k,
        float[{heads}, {columns}, {width}] v, float b) => (float[{heads}, {rows}, {width}] y) {{
        s = MatMul(q, k)  t = Mul(s, b)  {"t1 = Add(t, b)" * added}  p = Softmax({"t1" if added else "t"})
        y = MatMul(p, v)"""


# five tokens of width 8, two of three experts with 12 inner features
EXPERTS = """(float[10, 8] x, float[5, 3] r, float[8, {wide}] w1, float[12, 8] w2, float[10, 1] p, float[5, 8] a,
    float[8] b8, float[8, 12] w3, float[12] b12) => (float[5, 8] y) {{
    s = Softmax(r)  u = MatMul(x, w1) {gate}  d = MatMul(g, w2) {bias}  e = Mul(z, p)  y = Sum(a, a)"""
SAME = [
    Same(
        "MoE",
        [(5, 8), (5, 3), (3, 12, 8), None, (3, 8, 12)],
        (5, 8),
        EXPERTS.format(wide=12, gate="g = Gelu(u)", bias="z = Identity(d)"),
        {"k": 2, "activation_type": "gelu"},
    ),
    Same(
        "MoE",
        [(5, 8), (5, 3), (3, 12, 8), (3, 12), (3, 8, 12), (3, 8), (3, 12, 8)],
        (5, 8),
        EXPERTS.format(
            wide=12, gate="u1 = Add(u, b12) v = Swish(u1) l = MatMul(x, w3) g = Mul(v, l)", bias="z = Add(d, b8)"
        ),
        {"k": 2, "activation_type": "silu"},
    ),
    Same(
        "QMoE",
        [(5, 8), (5, 3), ((3, 24, 4), BYTES), (3, 24), None, ((3, 8, 6), BYTES), (3, 8)],
        (5, 8),
        EXPERTS.format(
            wide=24,
            gate="l, m = Split <axis = 1, num_outputs = 2> (u) v = Swish(l) g = Mul(v, m)",
            bias="z = Identity(d)",
        ),
        {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": 4},
    ),
    Same(
        "DecoderMaskedMultiHeadAttention",
        [(1, 1, 12), (1, 1, 12), (1, 1, 12), None, (1, 3, 1, 7), (1, 3, 6, 4), (1, 3, 6, 4)],
        (1, 1, 12),
        attention(3, 1, 7, 4, added=1),
        {"num_heads": 3},
    ),
    Same(
        "DecoderMaskedMultiHeadAttention",
        [(1, 1, 12), (1, 1, 12), (1, 1, 12), None, None, (1, 3, 99, 4), (1, 3, 99, 4), np.asarray([6], np.int32)],
        (1, 1, 12),
        attention(3, 1, 7, 4),
        {"num_heads": 3, "past_present_share_buffer": 1},
    ),
    Same(
        "PackedMultiHeadAttention",
        [(9, 12), (9, 12), (9, 12), None, ((2, 5), TensorProto.INT32), np.asarray([0, 5, 9], np.int32)],
        (9, 12),
        # sequences of five and four tokens
        attention(3, 5, 5, 4).replace("float b)", "float b, float[3, 4, 4] r)")
        + " s4 = MatMul(r, r) t4 = Mul(s4, b) p4 = Softmax(t4) y4 = MatMul(p4, r)",
        {"num_heads": 3},
    ),
    Same(
        "PackedAttention",
        [(5, 8), (8, 36), (36,), ((1, 5), TensorProto.INT32), np.asarray([0, 5], np.int32)],
        (5, 12),
        attention(3, 5, 5, 4).replace("float b)", "float b, float[5, 8] x, float[8, 36] w, float[36] c)")
        + " j = MatMul(x, w) i = Add(j, c)",
        {"num_heads": 3},
    ),
    Same(
        "QAttention",
        [((1, 5, 8), BYTES), ((8, 36), BYTES), (36,), (), ()],
        (1, 5, 12),
        attention(3, 5, 5, 4).replace("float b)", "float b, float[5, 8] x, float[8, 36] w, float[36] c)")
        + " j = MatMul(x, w) i = Add(j, c)",
        {"num_heads": 3},
    ),
    Same(
        "DecoderMaskedSelfAttention",
        [(1, 1, 8), (8, 36), (36,), None, (2, 1, 3, 6, 4)],
        (1, 1, 12),
        attention(3, 1, 7, 4).replace("float b)", "float b, float[1, 8] x, float[8, 36] w, float[36] c)")
        + " j = MatMul(x, w) i = Add(j, c)",
        {"num_heads": 3},
    ),
    Same(
        "MatMulNBitsMlp",
        [(2, 5, 8), (2, 5, 8), (8,), ((12, 1, 4), BYTES), (12,), (12,), ((12, 1, 4), BYTES), (12,)],
        (2, 5, 12),
        """(float[2, 5, 8] x, float[8] s, float[8, 12] w, float[12] b) => (float[2, 5, 12] y) {
        h = Add(x, x) n = RMSNormalization(h, s) g = MatMul(n, w) c = Add(g, b) a = Swish(c)
        u = MatMul(n, w) y = Mul(a, u)""",
        {"N": 12, "K": 8, "bits": 4, "block_size": 16},
    ),
    Same(
        "MatMulNBitsQkv",
        [
            (2, 5, 8),
            None,
            (8,),
            ((12, 1, 4), BYTES),
            (12,),
            None,
            ((6, 1, 4), BYTES),
            (6,),
            (6,),
            ((6, 1, 4), BYTES),
            (6,),
        ],
        (2, 5, 12),
        """(float[2, 5, 8] x, float[8] s, float[8, 12] w, float[8, 6] v, float[6] b) => (float[2, 5, 6] y) {
        n = RMSNormalization(x, s) q = MatMul(n, w) k = MatMul(n, v) k1 = Add(k, b) y = MatMul(n, v)""",
        {"Nq": 12, "Nkv": 6, "K": 8, "bits": 4, "block_size": 16},
    ),
    Same(
        "MatMulBlockQuantizedFp8Weight",
        [(2, 5, 8), ((12, 8), BYTES), (12, 1), None, (12,)],
        (2, 5, 12),
        "(float[2, 5, 8] x, float[8, 12] w, float[12] b) => (float[2, 5, 12] y) { u = MatMul(x, w) y = Add(u, b)",
    ),
    Same(
        "MatMulBnb4",
        [(2, 5, 8), ((48,), BYTES), (12,)],
        (2, 5, 12),
        "(float[2, 5, 8] x, float[8, 12] w) => (float[2, 5, 12] y) { y = MatMul(x, w)",
        {"N": 12, "K": 8, "block_size": 8, "quant_type": 0},
    ),
    Same(
        "GemmFastGelu",
        [(2, 5, 8), (8, 12), (12,)],
        (2, 5, 12),
        """(float[2, 5, 8] x, float[8, 12] w, float[12] b) => (float[2, 5, 12] y) {
        u = MatMul(x, w) v = Add(u, b) y = Gelu(v)""",
    ),
    Same(
        "FusedMatMulActivation",
        [(2, 5, 8), (8, 12)],
        (2, 5, 12),
        "(float[2, 5, 8] x, float[8, 12] w) => (float[2, 5, 12] y) { u = MatMul(x, w) y = Relu(u)",
        {"activation": "Relu"},
    ),
    Same(
        "QGemm",
        [((5, 8), BYTES), (), ((), BYTES), ((8, 12), BYTES), (), ((), BYTES), ((12,), TensorProto.INT32)],
        (5, 12),
        "(float[5, 8] x, float[8, 12] w, float[12] b) => (float[5, 12] y) { y = Gemm(x, w, b)",
    ),
    Same(
        "NhwcConv",
        [(1, 6, 6, 4), (8, 4, 3, 3), (8,)],
        (1, 4, 4, 8),
        "(float[1, 4, 6, 6] x, float[8, 4, 3, 3] w, float[8] b) => (float[1, 8, 4, 4] y) { y = Conv(x, w, b)",
    ),
    Same(
        "DynamicQuantizeLSTM",
        [(7, 1, 5), (1, 5, 24), (1, 6, 24), (1, 48)],
        (7, 1, 1, 6),
        """(float[7, 1, 5] x, float[1, 24, 5] w, float[1, 24, 6] r, float[1, 48] b) => (float[7, 1, 1, 6] y) {
        y = LSTM <hidden_size = 6> (x, w, r, b)""",
        {"hidden_size": 6},
    ),
    Same(
        "SkipGroupNorm",
        [(2, 6, 6, 4), (4,), (4,), (2, 6, 6, 4), (4,)],
        (2, 6, 6, 4),
        """(float[2, 4, 6, 6] x, float[4] s, float[4, 1, 1] b) => (float[2, 4, 6, 6] y) {
        u = Add(x, x) v = Add(u, b) y = GroupNormalization <num_groups = 2> (v, s, s)""",
        {"groups": 2},
    ),
    Same(
        "GatedRMSNorm",
        [(2, 5, 8), (8,), (2, 5, 8)],
        (2, 5, 8),
        """(float[2, 5, 8] x, float[8] s) => (float[2, 5, 8] y) {
        n = RMSNormalization(x, s) g = Swish(x) y = Mul(n, g)""",
    ),
    Same(
        "BiasSplitGelu",
        [(2, 5, 8), (8,)],
        (2, 5, 4),
        """(float[2, 5, 8] x, float[8] b) => (float[2, 5, 4] y) {
        u = Add(x, b) l, r = Split <axis = 2, num_outputs = 2> (u) g = Gelu(r) y = Mul(l, g)""",
    ),
    Same(
        "BiasDropout",
        [(2, 5, 8), (8,), (2, 5, 8)],
        (2, 5, 8),
        "(float[2, 5, 8] x, float[8] b) => (float[2, 5, 8] y) { u = Add(x, b) y = Add(u, x)",
    ),
    Same(
        "ComplexMul",
        [(3, 5, 2), (3, 5, 2)],
        (3, 5, 2),
        """(float[3, 5] a, float[3, 5] b) => (float[3, 5] y) {
        r = Mul(a, a) s = Mul(b, b) t = Sub(r, s) u = Mul(a, b) v = Mul(b, a) y = Add(u, v)""",
    ),
    Same(
        "GemmaRotaryEmbedding",
        [(2, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4)],
        (2, 3, 5, 4),
        """(float[2, 1, 5, 4] e, float[2, 3, 5, 4] q) => (float[2, 3, 5, 4] y) { s = Sin(e) c = Cos(e)
        a = Mul(q, c) b = Mul(q, s) o = Add(a, b) d = Mul(q, c) f = Mul(q, s) y = Add(d, f)""",
    ),
    Same(
        "MRotaryEmbedding",
        [(2, 5, 8), ((3, 2, 5), TensorProto.INT64), (50, 2), (50, 2)],
        (2, 5, 8),
        """(float[2, 5, 8] x, float[5, 4] c) => (float[2, 5, 4] y) {
        l, r = Split <axis = 2, num_outputs = 2> (x)
        a = Mul(l, c) b = Mul(r, c) s = Sub(a, b) d = Mul(l, c) e = Mul(r, c) y = Add(d, e)""",
    ),
    Same(
        "GatherBlockQuantized",
        [((50, 4), BYTES), ((2, 5), TensorProto.INT64), (50, 1)],
        (2, 5, 8),
        """(uint8[50, 8] t, int64[2, 5] i, float s) => (float[2, 5, 8] y) {
        q = Gather(t, i) y = DequantizeLinear(q, s)""",
        {"bits": 4, "block_size": 16},
    ),
    Same(
        "QLinearReduceMean",
        [((2, 5, 8), BYTES), (), ((), BYTES), (), ((), BYTES)],
        (2, 5, 1),
        "(float[2, 5, 8] x, int64[1] a) => (float[2, 5, 1] y) { y = ReduceMean(x, a)",
        {"axes": [2]},
    ),
    Same(
        "CausalConvWithState",
        [(2, 4, 8), (4, 1, 3), (4,)],
        (2, 4, 8),
        """(float[2, 4, 10] x, float[4, 1, 3] w, float[4] b) => (float[2, 4, 8] y) {
        c = Conv <group = 4> (x, w, b) s = Sigmoid(c) y = Mul(c, s)""",
        {"activation": "silu"},
    ),
    Same(  # as onnxruntime-genai's builder writes it
        "CausalConvWithState",
        [(2, 4, 8), (4, 1, 3), None, (2, 4, 2)],
        (2, 4, 8),
        "(float[2, 4, 10] x, float[4, 1, 3] w) => (float[2, 4, 8] y) { y = Conv <group = 4> (x, w)",
        {"activation": "none", "ndim": 1, "state_window": 0},
    ),
]


def _costs(same: Same) -> Costs:
    names, infos, constants = [], [], []
    for place, source in enumerate(same.inputs):
        name = "" if source is None else f"i{place}"
        names.append(name)
        if isinstance(source, np.ndarray):
            constants.append(numpy_helper.from_array(source, name))
        elif source is not None:
            shape, dtype = source if len(source) == 2 and isinstance(source[0], tuple) else (source, TensorProto.FLOAT)
            infos.append(helper.make_tensor_value_info(name, dtype, shape))
    node = helper.make_node(same.op, names, ["y"], domain="com.microsoft", **same.attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, same.output)
    graph = helper.make_graph([node], "g", infos, [output], constants)
    opsets = [helper.make_opsetid("", 28), helper.make_opsetid("com.microsoft", 1)]
    return onnx_nb.costs(helper.make_model(graph, opset_imports=opsets))


@pytest.mark.parametrize("same", SAME, ids=lambda same: f"{same.op}-{len(same.inputs)}")
def test_an_operator_costs_what_standard_ones_cost(same: Same) -> None:
    costs = _costs(same)
    assert not costs.unknown
    text = f'<ir_version: 10, opset_import: ["": 24]> g {same.plain} }}'
    plain = onnx_nb.costs(onnx.parser.parse_model(text))
    assert not plain.unknown
    assert (costs.total.macs, costs.total.flops) == (plain.total.macs, plain.total.flops)


def test_a_normalization_of_onnxruntime_in_the_domain_of_onnx_has_a_cost() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[2, 5, 8] x, float[8] s) => (float[2, 5, 8] y) {
        n = SimplifiedLayerNormalization(x, s)  y = Relu(n) }"""
    model = onnx.parser.parse_model(text)
    assert onnx_nb.costs(model).total.flops == 4 * 80 + 80
    assert not Graph.of(onnx_nb.load(model)).structural_problems.described, (
        "onnxruntime runs it, and exporters write it"
    )


def test_packed_sequences_of_unknown_lengths_have_no_cost() -> None:
    lengths = ((3,), TensorProto.INT32)
    costs = _costs(
        Same("PackedMultiHeadAttention", [(9, 12)] * 3 + [None, ((2, 5), 6), lengths], (9, 12), "", {"num_heads": 3})
    )
    assert costs.unknown[0].reason == "how many tokens there are depends on input 5"
