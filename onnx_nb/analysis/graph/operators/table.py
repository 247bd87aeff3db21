"""What is known of each operator: one row of names and facts. To teach the package an operator, add a row here.

A heading starts a category, and the facts after it hold for all rows below; a row has names and, after a colon, facts.
Domains share their rows; ``com.microsoft.Attention`` is a row for one domain alone. Inputs are numbered from 0; −1 is
none.

========================  ==============================================================================================
``like=Conv``             A variant of a standard operator: it has all its facts, but for those that its own row names.
``moves=0,2`` ``moves=*`` Inputs whose elements, or numbers between them, are those of the output; `*` are all.
``weights=1`` ``bias=2``  Inputs that hold weights, and the one that is added to the product or norm.
``scales=0:1,2;3:4,5``    Input 0 holds integers with the scale in input 1 and the zero point in input 2, and so on.
``out=6,7``               The inputs with scale and zero point of the output.
``channels=-1``           The axis of the channels.
``range=0,1``             Ends of the values that it computes.
``fits=1:0``              Axis 1 of the first input is as long as axis 0 of the first weight.
``host=1``                Inputs with sizes, axes or conditions, which a provider with its own memory reads on the host.
``feedN=…``               Valid values of input N: see `onnx_nb.analysis.run.random_feeds`.
``infer=Gather:2,0``      It has the shape that a standard operator infers from these inputs.
``cost=2``                Steps for each element of the output; ``2/input`` of the first input, ``1/tap`` of a window,
                          ``-1/operand`` for each operand but one; a rule of `onnx_nb.analysis.cost.flops`; ``?``.
========================  ==============================================================================================

Facts without a value are `Trait`.
"""

from __future__ import annotations

from typing import Final, Literal

Trait = Literal[
    "pointwise",  # each element of the output is computed from the same element of the first input
    "broadcast",  # … of all inputs, which are broadcast
    "shaped",  # the output has the shape of the first input
    "batched",  # the output has the first axis of the first input, the batch
    "reduces",  # over axes, which it keeps or not
    "commutes",  # the inputs may be in any order
    "clips",  # rounding to integers has the same effect
    "sizes",  # exporters compute shapes with it
    "of_shape",  # depends on nothing but the shape of its input
    "view",  # the first output is the first input
    "in_place",  # onnxruntime lets it write over its first input, as measured with 1.32; Add, Exp and Neg do not
    "zeros_same",  # computes the same for −0.0 and 0.0; products are added to 0.0
    "zeros_kept",  # −0.0 in place of 0.0 changes at most the sign of zeros; of Div, of the dividend
    "sequence",  # reads or makes sequences or optional values
    "random",  # varies from run to run
    "bodies",  # its kernel runs other nodes
    "inserted",  # onnxruntime inserts it; the output is the input, in another place or layout
    "host_output",  # a provider with memory of its own may leave the output on the host
    "rounds",  # quantized: it rounds real numbers,
    "dequantizes",  # makes integers real numbers again,
    "integers",  # computes on integers,
    "packed",  # or reads weights with several integers in a byte…
    "blocks",  # … with a scale for each block of the last axis
]
"""Facts that hold or do not."""

TABLE: Final = """
[linear]
Conv: weights=1 bias=2 channels=1 batched zeros_same fits=conv cost=conv
ConvTranspose: weights=1 bias=2 channels=1 batched zeros_same fits=1:0 cost=conv_transpose
DeformConv: weights=1 bias=3 cost=deform_conv
ConvInteger: like=Conv integers bias=-1 scales=0:-1,2;1:-1,3
QLinearConv: like=Conv integers weights=3 bias=8 scales=0:1,2;3:4,5 out=6,7
MatMul: weights=1 zeros_same fits=matmul cost=matmul
MatMulInteger: like=MatMul integers scales=0:-1,2;1:-1,3
QLinearMatMul: like=MatMul integers weights=3 scales=0:1,2;3:4,5 out=6,7
Gemm: weights=1 bias=2 channels=-1 zeros_same fits=gemm cost=gemm
Einsum: cost=einsum
GRU LSTM RNN: weights=1,2 bias=3 fits=2:2 feed4=length:0,0 cost=recurrent
Attention: feed6=length:1,-2 cost=attention
RotaryEmbedding: shaped feed3=index:1,0 cost=3
LinearClassifier LinearRegressor: cost=linear_model
AffineGrid CausalConvWithState Col2Im DFT FlexAttention LinearAttention STFT SVMClassifier SVMRegressor: cost=?
TreeEnsemble: cost=?
TreeEnsembleClassifier TreeEnsembleRegressor: cost=?

FusedConv: like=Conv infer=Conv:0,1
NhwcConv NhwcFusedConv: like=Conv
QLinearConvTranspose: like=ConvTranspose integers weights=3 bias=8 scales=0:1,2;3:4,5 out=6,7
ConvTransposeWithDynamicPads: like=ConvTranspose bias=3
FusedMatMul TransposeMatMul: like=MatMul
FusedMatMulActivation: like=MatMul cost=matmul_gelu
GemmFastGelu: like=MatMul bias=2 cost=matmul_gelu
SparseToDenseMatMul: like=MatMul cost=?
MatMulInteger16: like=MatMul integers
DynamicQuantizeMatMul: like=MatMul integers bias=4 scales=1:2,3
MatMulIntegerToFloat: like=MatMul integers bias=6 scales=0:2,4;1:3,5
QOrderedMatMul: like=MatMul cost=projection integers weights=2 bias=5 scales=0:1,-1;2:3,-1 out=4,-1
FusedGemm: like=Gemm infer=Gemm:0,1
GemmFloat8: like=Gemm
QGemm: like=Gemm integers weights=3 bias=6 scales=0:1,2;3:4,5 out=7,8
DynamicQuantizeLSTM: like=LSTM integers scales=1:8,9;2:10,11
MatMulNBits: packed blocks weights=1 bias=5 channels=-1 scales=1:2,3 cost=packed_matmul
MatMulBnb4: packed weights=1 scales=1:2,-1 cost=packed_matmul
MatMulBlockQuantizedFp4Weight: packed weights=1 bias=5 scales=1:2,-1 cost=projection
MatMulBlockQuantizedFp8Weight: packed weights=1 bias=4 scales=1:2,-1 cost=projection
MatMulFpQ4: packed weights=1 cost=projection
MatMulPacked: packed weights=1
MatMulNBitsMlp: packed weights=3,6 scales=3:4,-1;6:7,-1 cost=normed_matmuls
MatMulNBitsQkv: packed weights=3,6,9 scales=3:4,-1;6:7,-1;9:10,-1 cost=normed_matmuls
MatMulNBitsQLoRA: packed weights=1,3,5 scales=1:2,-1;3:4,-1;5:6,-1
MoE: shaped weights=2,4,6 cost=experts
MoEPacked: packed weights=2,3,4
QMoE: packed shaped weights=2,5,8 scales=2:3,11;5:6,12;8:9,13 cost=experts
com.microsoft.Attention: weights=1 bias=2 cost=packed_attention
DecoderMaskedSelfAttention: like=com.microsoft.Attention
QAttention: like=com.microsoft.Attention integers scales=0:3,6;1:4,7 cost=quantized_attention
PackedAttention: like=com.microsoft.Attention cost=packed_tokens
QOrderedAttention: integers weights=5,6,7 scales=0:1,-1;5:8,-1;6:9,-1;7:10,-1
QOrderedLongformerAttention: integers weights=2,8 scales=0:1,-1;2:3,-1;4:5,-1;8:9,-1 out=13,-1
GroupQueryAttention: cost=grouped_attention
MultiHeadAttention: bias=3 cost=multi_head
DecoderMaskedMultiHeadAttention: like=MultiHeadAttention bias=10 cost=decoder_multi_head
PackedMultiHeadAttention: bias=3 cost=packed_multi_head
MRotaryEmbedding: shaped cost=3
GemmaRotaryEmbedding: cost=gemma_rotary
com.microsoft.RotaryEmbedding: shaped feed1=index:2,0 cost=3
AttnLSTM BifurcationDetector CDist ConvStateReplay DecoderAttention DisentangledAttention_TRT
DynamicSparseAttention GatedDeltaNet GatedDeltaNetStateReplay GatedRelativePositionBias GRUUnit Inverse Irfft
LinearAttentionGate LongformerAttention Mamba2Verify MultiHeadAttentionV2 PackedSparseAttentionIndexer
PagedAttention Rfft SparseAttention PackedSparseAttentionIndexerMerge RelativePositionBias RouterGateUpProj
SparseAttentionIndexer SparsePagedAttention VarlenCausalConvWithState WordConvEmbedding

[activation] cost=1
Celu Selu Shrink Softsign ThresholdedRelu: pointwise in_place
Elu LeakyRelu: pointwise in_place zeros_kept
Tanh: pointwise in_place zeros_kept range=-1,1
Relu: pointwise in_place zeros_kept clips
Clip: pointwise in_place zeros_kept clips moves=0
HardSigmoid: pointwise in_place range=0,1
Sigmoid: pointwise in_place zeros_same range=0,1
Softplus: pointwise in_place zeros_same
Erf Gelu HardSwish Swish: pointwise zeros_kept
Mish: pointwise
Softmax: shaped in_place zeros_same range=0,1 cost=5
LogSoftmax: shaped in_place zeros_same cost=5
Hardmax SwiGLU: shaped
PRelu: shaped zeros_kept weights=1

FastGelu QuickGelu: like=Gelu
BiasAdd: shaped
BiasGelu: shaped channels=-1 cost=2
BiasSoftmax: shaped cost=6
QLinearLeakyRelu: like=LeakyRelu integers scales=0:1,2 out=3,4
QLinearSigmoid: like=Sigmoid integers scales=0:1,2 out=3,4
QLinearSoftmax: like=Softmax integers scales=0:1,2 out=3,4
QOrderedGelu: like=Gelu integers scales=0:1,-1 out=2,-1
BiasDropout: cost=bias_dropout
BiasSplitGelu: cost=4
EngramGate ParametricSoftplus ScaledSiLU ScaledTanh SiLU: cost=?
com.microsoft.SwiGLU: cost=1

[normalize]
BatchNormalization: shaped zeros_kept weights=1 bias=2 channels=1 fits=1:0 feed4=0.1..2 cost=2
InstanceNormalization: shaped zeros_kept weights=1 bias=2 channels=1 fits=1:0 cost=7
GroupNormalization: shaped weights=1 bias=2 channels=1 cost=7
LayerNormalization: shaped zeros_kept weights=1 bias=2 channels=-1 fits=-1:-1 cost=layer_norm
RMSNormalization: shaped zeros_kept weights=1 channels=-1 cost=4
LRN: shaped channels=1 cost=lrn
LpNormalization: shaped cost=3
MeanVarianceNormalization: shaped cost=5
Normalizer Scaler: cost=?

GroupNorm: shaped weights=1 bias=2 cost=7
SkipGroupNorm: shaped weights=1 bias=2 cost=skip_group_norm
GatedRMSNorm: shaped weights=1 cost=6
SimplifiedLayerNormalization: shaped weights=1 channels=-1 cost=4
SkipLayerNormalization: shaped weights=2 bias=3 channels=-1 cost=8
SkipSimplifiedLayerNormalization: shaped weights=2 channels=-1 cost=5
EmbedLayerNormalization: infer=Gather:2,0 weights=5 bias=6 feed0=index:2,0 feed1=index:4,0 cost=9
QEmbedLayerNormalization: integers scales=2:8,13;3:9,14;4:10,15;5:11,16;6:12,17
QOrderedLayerNormalization: like=LayerNormalization integers weights=2 bias=3 scales=0:1,-1 out=4,-1 cost=7
Affine BranchwiseRMSNorm RMSNormRotary Scale

[arithmetic] cost=1
Acos Acosh Asin Asinh Atan Atanh BitwiseNot Log Reciprocal Sin Sinh Tan: pointwise
Ceil Floor Not Round Sign: pointwise sizes
Neg Sqrt: pointwise sizes zeros_kept
Abs: pointwise sizes zeros_same range=0,inf
Cosh Exp: pointwise zeros_same range=0,inf
Cos IsInf IsNaN: pointwise zeros_same
Add Mul: broadcast commutes sizes zeros_kept
Sub Div: broadcast sizes zeros_kept
Mod Pow: broadcast sizes
Equal: broadcast commutes sizes zeros_same
Greater GreaterOrEqual Less LessOrEqual: broadcast sizes zeros_same
And Or Xor: broadcast commutes sizes
BitShift BitwiseAnd BitwiseOr BitwiseXor: broadcast
Max Min: broadcast commutes sizes zeros_kept moves=* cost=-1/operand
Sum: broadcast commutes sizes zeros_kept cost=-1/operand
Mean: broadcast commutes cost=0/operand
Where: broadcast sizes zeros_kept moves=1,2
CumSum: shaped sizes host=1 feed1=0 cost=1/input
CumProd: shaped feed1=0 cost=1/input
Binarizer Adagrad Adam Momentum
Det: cost=?

QLinearAdd: like=Add integers scales=0:1,2;3:4,5 out=6,7 infer=Add:0,3
QLinearMul: like=Mul integers scales=0:1,2;3:4,5 out=6,7 infer=Mul:0,3
QLinearWhere: like=Where integers scales=1:2,3;4:5,6 out=7,8
MulInteger: like=Mul integers scales=0:-1,1;2:-1,3
ComplexMul ComplexMulConj: cost=3
DynamicTimeWarping GatedAdd HyperConnectionLowRankMix HyperConnectionPostMix: cost=?
HyperConnectionPreMix: cost=?
IsAllFinite MurmurHash3 NGramHashMapping NGramRepeatBlock SampleOp VarlenNGramHashMapping: cost=?

[shape] cost=0
Identity: pointwise view moves=0 sizes zeros_kept inserted
Transpose: moves=0 sizes zeros_kept inserted
Reshape: view moves=0 sizes zeros_kept host=1 feed1=target
Flatten: view moves=0 sizes zeros_kept
Squeeze Unsqueeze: view moves=0 sizes zeros_kept host=1
Expand: moves=0 sizes zeros_kept host=1 feed1=1
Slice: moves=0 sizes zeros_kept host=1,2,3,4 feed1=0 feed2=1 feed3=axes feed4=1
Split: moves=0 sizes zeros_kept host=1
Gather: moves=0 sizes zeros_kept inserted weights=0 feed1=index:0
GatherElements: moves=0 sizes feed1=index:0
GatherND: moves=0 sizes feed1=leading
Tile: moves=0 sizes host=1 feed1=1
Pad: moves=0 zeros_kept host=1,2,3,4 feed1=pads
Concat: moves=* sizes zeros_kept
Trilu: shaped in_place moves=0 sizes host=1
ScatterElements: in_place moves=0,2 sizes feed1=index:0
ScatterND: moves=0,2 sizes feed1=leading
Scatter: moves=0,2 feed1=index:0
Compress DepthToSpace SpaceToDepth CenterCropPad ReverseSequence: moves=0
Unique: cost=?
Resize: moves=0 host=1,2,3,4 feed2=1 feed3=sizes cost=interpolation
Upsample: host=1,2,3,4 cost=interpolation
GridSample: cost=interpolation
TensorScatter: moves=0,1
OneHot: moves=2 host=1
Shape Size: of_shape zeros_same host_output
NonZero: host_output
ArrayFeatureExtractor: moves=0 feed1=index:0,-1
ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceErase SplitToSequence: sequence moves=0
SequenceConstruct: sequence moves=*
SequenceInsert: sequence moves=0,1
OptionalHasElement SequenceEmpty SequenceLength: sequence
CategoryMapper DictVectorizer FeatureVectorizer LabelEncoder OneHotEncoder RegexFullMatch

StringConcat StringNormalizer StringSplit TfIdfVectorizer ZipMap

[shape]
ExpandDims: moves=0 cost=0
GatherBlockQuantized: packed blocks weights=0 channels=-1 scales=0:2,3 feed1=index:0 cost=2
GatherPacked: packed weights=0
MemcpyFromHost MemcpyToHost ReorderInput ReorderOutput: moves=0 inserted
QLinearConcat: like=Concat integers out=0,1
Crop CropAndResize DynamicSlice GatherToSplit ImageScaler MultilevelCropAndResize_TRT PackedGather
RemovePadding RestorePadding
SpeculativePrefixCommit Tokenizer TorchEmbedding UnfoldTensor

[pool]
MaxPool: moves=0 batched zeros_kept channels=1 cost=1/tap
AveragePool: batched zeros_kept channels=1 cost=1/tap
LpPool: batched channels=1 cost=2/tap
GlobalMaxPool: moves=0 batched channels=1 cost=1/input
GlobalAveragePool: batched zeros_kept channels=1 cost=1/input
GlobalLpPool: batched channels=1 cost=2/input
ReduceMax ReduceMin: reduces moves=0 sizes zeros_kept host=1 cost=1/input
ReduceSum: reduces sizes zeros_kept host=1 cost=1/input
ReduceMean: reduces zeros_kept host=1 cost=1/input
ReduceProd: reduces sizes host=1 cost=1/input
ReduceLogSum: reduces cost=1/input
ReduceL1 ReduceL2: reduces zeros_same range=0,inf cost=2/input
ReduceLogSumExp ReduceSumSquare: reduces zeros_same cost=2/input
ArgMax ArgMin: reduces zeros_same cost=1/input
TopK: host=1 feed1=1 cost=?
NonMaxSuppression: host_output cost=?
MaxRoiPool MaxUnpool NegativeLogLikelihoodLoss RoiAlign SoftmaxCrossEntropyLoss: cost=?

QLinearAveragePool: like=AveragePool integers scales=0:1,2 out=3,4 infer=AveragePool:0
QLinearGlobalAveragePool: like=GlobalAveragePool integers scales=0:1,2 out=3,4 infer=GlobalAveragePool:0
QLinearReduceMean: like=ReduceMean integers scales=0:1,2 out=3,4
ReduceSumInteger: like=ReduceSum integers
NhwcMaxPool: like=MaxPool channels=-1
EfficientNMS_TRT MaxpoolWithMask MoEGroupRouter PyramidROIAlign_TRT

[cast] cost=0
Cast: pointwise in_place moves=0 sizes zeros_kept inserted
CastLike: pointwise moves=0
BitCast CastMap Imputer
QuantizeLinear: rounds zeros_same out=1,2 feed1=0.1..2 cost=3
DequantizeLinear: dequantizes scales=0:1,2 feed1=0.1..2 cost=2
DynamicQuantizeLinear: rounds cost=5/input
DequantizeBFP DequantizeWithOrder: dequantizes cost=?
QuantizeBFP QuantizeWithOrder: rounds cost=?

[control]
If: bodies host=0
Loop: bodies host=0,1,2 feed0=1..4 feed1=1
Scan SequenceMap: bodies
BeamSearch GreedySearch WhisperBeamSearch: bodies
Sampling: bodies random
EPContext Gradient Snpe

[random] cost=1
RandomNormal RandomNormalLike RandomUniform RandomUniformLike: random
Bernoulli Multinomial: random cost=?
Dropout: shaped view moves=0 zeros_kept cost=0
BitmaskBiasDropout: cost=bias_dropout
BitmaskDropout: cost=0

[input] cost=0
Constant: sizes
ConstantOfShape: sizes host=0 feed0=1..4
Range: sizes host=0,1,2 feed0=0 feed1=5 feed2=1
BlackmanWindow EyeLike HammingWindow HannWindow ImageDecoder MelWeightMatrix
GivenTensorFill

[other]
onnx_nb.Mark: pointwise moves=0
"""
