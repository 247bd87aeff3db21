"""Facts about operators without looking at a model: category, input names, documentation, text of attributes.

Categories come from the table below; names, attributes and documentation come from ``onnx.defs``, asked once per
operator. Operators that onnx does not define (onnxruntime's, a user's) are categorized by the table or by their names.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
import onnx.defs

from onnx_nb.analysis.formatting import plain_text, shape_text
from onnx_nb.analysis.model.functions import canonical
from onnx_nb.analysis.model.tensors import dtype_name

_OPERATORS = {
    "linear": """
        Attention AffineGrid CausalConvWithState Col2Im Conv ConvInteger ConvTranspose DeformConv DFT Einsum
        FlexAttention Gemm GRU LinearAttention LinearClassifier LinearRegressor LSTM MatMul MatMulInteger
        MatMulNBits QLinearConv QLinearMatMul RNN RotaryEmbedding STFT SVMClassifier SVMRegressor TreeEnsemble
        TreeEnsembleClassifier TreeEnsembleRegressor
        BifurcationDetector CDist ConvTransposeWithDynamicPads DecoderAttention DecoderMaskedMultiHeadAttention
        DecoderMaskedSelfAttention DynamicQuantizeLSTM DynamicQuantizeMatMul FusedConv FusedGemm FusedMatMul
        FusedMatMulActivation GatedRelativePositionBias GemmFastGelu GemmFloat8 GroupQueryAttention Inverse
        LongformerAttention MatMulBnb4 MatMulFpQ4 MatMulInteger16 MatMulIntegerToFloat MoE MultiHeadAttention
        MultiHeadAttentionV2 NhwcConv NhwcFusedConv PackedAttention PackedMultiHeadAttention PagedAttention QAttention
        QGemm QMoE QOrderedAttention QOrderedLongformerAttention QOrderedMatMul RelativePositionBias Rfft Irfft
        SparseAttention SparseToDenseMatMul TransposeMatMul WordConvEmbedding
        AttnLSTM DisentangledAttention_TRT DynamicSparseAttention GRUUnit GatedDeltaNet GemmaRotaryEmbedding
        LinearAttentionGate MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulNBitsMlp MatMulNBitsQkv
        MRotaryEmbedding PackedSparseAttentionIndexer QLinearConvTranspose SparseAttentionIndexer SparsePagedAttention
        VarlenCausalConvWithState
        ConvStateReplay GatedDeltaNetStateReplay Mamba2Verify MatMulNBitsQLoRA MatMulPacked MoEPacked
        PackedSparseAttentionIndexerMerge RouterGateUpProj""",
    "activation": """
        Celu Clip Elu Erf Gelu HardSigmoid HardSwish Hardmax LeakyRelu LogSoftmax Mish PRelu Relu Selu Shrink Sigmoid
        Softmax Softplus Softsign SwiGLU Swish Tanh ThresholdedRelu
        BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu FastGelu QLinearLeakyRelu QLinearSigmoid QLinearSoftmax
        EngramGate ParametricSoftplus QOrderedGelu QuickGelu ScaledSiLU ScaledTanh SiLU""",
    "normalize": """
        BatchNormalization GroupNormalization InstanceNormalization LayerNormalization LpNormalization LRN
        MeanVarianceNormalization Normalizer RMSNormalization Scaler
        EmbedLayerNormalization GroupNorm QEmbedLayerNormalization QOrderedLayerNormalization
        Affine BranchwiseRMSNorm GatedRMSNorm Scale SimplifiedLayerNormalization SkipGroupNorm
        RMSNormRotary SkipLayerNormalization SkipSimplifiedLayerNormalization""",
    "arithmetic": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh Binarizer BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil
        Cos Cosh CumProd CumSum Det Div Equal Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Max Mean
        Min Mod Mul Neg Not Or Pow Reciprocal Round Sign Sin Sinh Sqrt Sub Sum Tan Where Xor
        Adagrad Adam Momentum
        ComplexMul ComplexMulConj DynamicTimeWarping GatedAdd HyperConnectionLowRankMix HyperConnectionPostMix
        HyperConnectionPreMix IsAllFinite
        MulInteger MurmurHash3 NGramHashMapping NGramRepeatBlock QLinearAdd QLinearMul QLinearWhere SampleOp
        VarlenNGramHashMapping""",
    "shape": """
        ArrayFeatureExtractor CenterCropPad Compress Concat ConcatFromSequence DepthToSpace Expand FeatureVectorizer
        Flatten Gather GatherElements GatherND GridSample Identity NonZero OneHot OneHotEncoder Pad RegexFullMatch
        Reshape Resize ReverseSequence Scatter ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty
        SequenceErase SequenceInsert SequenceLength Shape Size Slice SpaceToDepth Split SplitToSequence Squeeze
        StringConcat StringNormalizer StringSplit TensorScatter TfIdfVectorizer Tile Transpose Trilu Unique Unsqueeze
        Upsample ZipMap LabelEncoder CategoryMapper DictVectorizer Optional OptionalGetElement OptionalHasElement
        Crop CropAndResize DynamicSlice ExpandDims GatherBlockQuantized GatherToSplit ImageScaler PackedGather
        MemcpyFromHost MemcpyToHost MultilevelCropAndResize_TRT QLinearConcat RemovePadding ReorderInput ReorderOutput
        GatherPacked RestorePadding SpeculativePrefixCommit TorchEmbedding UnfoldTensor Tokenizer""",
    "pool": """
        ArgMax ArgMin AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxRoiPool MaxUnpool
        NegativeLogLikelihoodLoss NonMaxSuppression ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
        ReduceMin ReduceProd ReduceSum ReduceSumSquare RoiAlign SoftmaxCrossEntropyLoss TopK
        EfficientNMS_TRT NhwcMaxPool MaxpoolWithMask PyramidROIAlign_TRT QLinearAveragePool QLinearGlobalAveragePool
        MoEGroupRouter QLinearReduceMean ReduceSumInteger""",
    "cast": """
        BitCast Cast CastLike CastMap DequantizeLinear DynamicQuantizeLinear Imputer QuantizeLinear
        DequantizeBFP DequantizeWithOrder QuantizeBFP QuantizeWithOrder""",
    "control": """
        If Loop Scan SequenceMap Gradient
        BeamSearch EPContext GreedySearch Sampling Snpe WhisperBeamSearch""",
    "random": """
        Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
        BitmaskDropout BitmaskBiasDropout""",
    "input": """
        BlackmanWindow Constant ConstantOfShape EyeLike HammingWindow HannWindow ImageDecoder MelWeightMatrix Range
        GivenTensorFill""",
    "other": "",  # operators in no table, without a word of `_WORDS` in their names
}

CATEGORIES: tuple[str, ...] = tuple(_OPERATORS)
"""Kinds of operators; `category` returns an index into it."""

# Words in the names of operators that are in no table, most specific first.
_WORDS = (
    ("cast", "quant|cast|fakequant"),
    ("normalize", "norm"),
    ("pool", "pool|reduce|arg_?max|arg_?min|top_?k"),
    ("linear", "conv|mat_?mul|gemm|attention|linear|lstm|gru|rnn|einsum|bmm|addmm"),
    ("activation", "relu|gelu|silu|swish|sigmoid|softmax|tanh|activation|mish"),
    ("random", "rand|dropout|bernoulli"),
    ("shape", "shape|view|transpose|permute|concat|split|slice|gather|scatter|squeeze|expand|pad|interpolate|resize"),
    ("arithmetic", "add|sub|mul|div|pow|sqrt|exp|log|where|equal|less|greater|sum|mean|min|max|abs|neg"),
)
_CATEGORY_OF = {op: index for index, kind in enumerate(CATEGORIES) for op in _OPERATORS[kind].split()}
_OTHER = CATEGORIES.index("other")


@functools.lru_cache(maxsize=8192)
def category(op_type: str, domain: str = "") -> int:  # noqa: ARG001 (two domains may yet differ in an operator)
    """Return the kind of an operator, an index into `CATEGORIES`."""
    known = _CATEGORY_OF.get(op_type)
    if known is not None:
        return known
    lowered = op_type[:200].lower()
    for kind, words in _WORDS:
        if re.search(words, lowered):
            return CATEGORIES.index(kind)
    return _OTHER


def input_names(op_type: str, domain: str, opset: int) -> tuple[str, ...]:
    """Return the formal names of an operator's inputs; a variadic input is named once, as the last."""
    found = schema(op_type, domain, opset)
    return () if found is None else tuple(formal.name for formal in found.inputs)


def documentation(op_type: str, domain: str, opset: int) -> str:
    """Return onnx's description of an operator as plain text; empty if there is none."""
    found = schema(op_type, domain, opset)
    return "" if found is None else textwrap.dedent(found.doc or "").strip()


@functools.lru_cache(maxsize=8192)
def attribute_defaults(op_type: str, domain: str, opset: int) -> Mapping[str, Any]:
    """Return the defaults of an operator's attributes, those that have one."""
    found = schema(op_type, domain, opset)
    if found is None:
        return MappingProxyType({})
    defaults = {}
    for name in sorted(found.attributes):
        proto = found.attributes[name].default_value
        if proto.type != onnx.AttributeProto.UNDEFINED:
            value = onnx.helper.get_attribute_value(proto)
            defaults[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return MappingProxyType(defaults)


MARK: Final = ("onnx_nb", "Mark")
"""Domain and type of the nodes that `mark` leaves in an exported model; they return their input."""


@functools.lru_cache(maxsize=8192)
def schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    """Return onnx's schema of an operator at an opset version; None if there is none."""
    domain = canonical(domain)
    if not 0 < opset < 2**31 or "\0" in op_type + domain:
        return None
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def onnx_domains() -> frozenset[str]:
    """Return the domains that onnx defines operators for; the default one is ""."""
    return frozenset(entry.domain for entry in onnx.defs.get_all_schemas())


@functools.cache
def known_domains() -> frozenset[str]:
    """Return the domains that onnx and onnxruntime define operators for."""
    runtime = {"com.microsoft", "com.microsoft.nchwc", "com.microsoft.experimental", "com.microsoft.dml"}
    return onnx_domains() | runtime | {"com.ms.internal.nhwc", "org.pytorch.aten"}


@functools.lru_cache(maxsize=8192)
def may_hold_graphs(op_type: str, domain: str, opset: int) -> bool:
    """Return whether a node of this operator can have a graph as an attribute; unknown operators can."""
    found = schema(op_type, domain, opset)
    if found is None:
        return True
    kinds = (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS)
    return any(attribute.type in kinds for attribute in found.attributes.values())


LONGEST = 2000
"""Characters; longer texts are cut, as an untrusted model may hold megabytes in an attribute."""


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """Return the value of an attribute as text: a number, a string, or the kind of object it holds."""
    kind = onnx.AttributeProto
    if attribute.ref_attr_name:
        return f"the function's {plain_text(attribute.ref_attr_name)}"
    match attribute.type:
        case kind.GRAPH:
            return f"a graph of {len(attribute.g.node)} nodes"
        case kind.GRAPHS:
            return f"{len(attribute.graphs)} graphs"
        case kind.TENSOR:
            return f"{shape_text(attribute.t.dims)} {dtype_name(attribute.t.data_type)}"
        case kind.TENSORS | kind.SPARSE_TENSOR | kind.SPARSE_TENSORS | kind.TYPE_PROTO | kind.TYPE_PROTOS:
            return str(kind.AttributeType.Name(attribute.type)).lower().replace("_", " ")
        case kind.STRING:
            return attribute.s[:LONGEST].decode("utf-8", "replace")
        case kind.STRINGS:
            return ", ".join(text[:LONGEST].decode("utf-8", "replace") for text in attribute.strings[:100])
        case kind.INTS | kind.INT:
            return default_text(attribute.ints[:200] if attribute.type == kind.INTS else attribute.i)
        case kind.FLOATS | kind.FLOAT:
            return default_text(attribute.floats[:200] if attribute.type == kind.FLOATS else attribute.f)
        case other:
            return f"of unknown type {other}"


def default_text(value: Any) -> str:
    """Write a default as `attribute_text` writes an attribute: a float, which is a float32, with only its digits."""
    if isinstance(value, list | tuple):
        return ", ".join(map(default_text, value))
    return str(np.float32(value)) if isinstance(value, float) else str(value)
