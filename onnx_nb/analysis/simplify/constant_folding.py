"""Constant folding: compute what does not depend on the inputs of a model, and store it.

Nodes of an explicit list of deterministic operators whose inputs are all constant run in onnxruntime, all at once and
without its optimizations. Results that would enlarge the model beyond the budget are not stored, with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, shortened
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.run import session
from onnx_nb.analysis.simplify import known_graph

if TYPE_CHECKING:
    from onnx_nb.analysis.simplify.editor import Editor
    from onnx_nb.analysis.simplify.symbolic_dims import Op

FREE: Final = 1024
"""Bytes of a result that is always folded: the node that is removed takes as much."""

_DETERMINISTIC: Final = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift BitwiseAnd
    BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu CenterCropPad Clip Col2Im Compress Concat Conv
    ConvTranspose ConstantOfShape Cos Cosh CumProd CumSum DepthToSpace Det Div Einsum Elu Equal Erf Exp Expand EyeLike
    Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater
    GreaterOrEqual GridSample GroupNormalization HammingWindow HannWindow BlackmanWindow HardSigmoid HardSwish
    Hardmax Identity InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log
    LogSoftmax LpNormalization LpPool MatMul Max MaxPool MaxUnpool Mean MeanVarianceNormalization MelWeightMatrix Min
    Mish Mod Mul Neg NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow RMSNormalization RNN Range Reciprocal
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    Relu Reshape Resize ReverseSequence RoiAlign Round Scatter ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign
    Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh TensorScatter
    ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor"""
DETERMINISTIC: Final = frozenset(_DETERMINISTIC.split())
"""Standard operators that compute the same whenever they run; none is random or keeps a state."""
QUANTIZING: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Operators that describe how a weight is stored, folded only on request."""


@dataclass(frozen=True)
class Left:
    """A node with constant inputs that was not folded."""

    node: str
    op_type: str
    nbytes: int
    """Bytes of its outputs; 0 if unknown."""
    why: str


class Folding:
    """Replaces what does not depend on the inputs of a graph by constants, within a budget of bytes."""

    def __init__(self, rewriting: Editor, *, budget: int, spent: int = 0, quantizing: bool = False) -> None:
        self.net = rewriting
        self.budget = budget
        self.left: dict[int, Left] = {}
        self.spent = spent
        self._ops = DETERMINISTIC | QUANTIZING if quantizing else DETERMINISTIC
        self._refused: set[int] = set()

    def known_integers(self) -> int:
        """Fold the integers that type inference computed, as the shapes of tensors of fixed shape."""
        net, count = self.net, 0
        known: dict[int, NDArray[Any]] = {}
        for op, case in net.cases:
            if not net.repeats(op.subgraph):
                read = zip(op.inputs, case.values, strict=False)
                known |= {v: array for v, array in read if v >= 0 and array is not None and array.dtype.kind in "iub"}
        for value, array in known.items():
            maker = net.maker(value)
            if maker is None or maker.bodies or maker.op_type == "Constant" or maker.domain or len(maker.outputs) != 1:
                continue
            if not net.may("fold_shapes", value):
                continue
            declared = net.kind(value)
            if declared is None or declared.elem_type != onnx.helper.np_dtype_to_tensor_dtype(array.dtype):
                continue
            with net.change("fold_shapes", value, f"it is always {_short(array)}"):
                net.make_constant(value, array)
            count += 1
        return count

    def constants(self) -> int:
        """Run the nodes whose inputs are constant, and store their results."""
        while True:
            ops = self._foldable()
            wanted = self._wanted(ops)
            over = self._over_budget(wanted)
            if not over:
                break
            self._refused.update(over)
        if not wanted:
            return 0
        found = self._run(ops, wanted)
        for value, array in found.items():
            maker = self.net.maker(value)
            if maker is None:
                continue
            with self.net.change("fold_constants", value, "its inputs are constant"):
                self.net.make_constant(value, array)
        return len(found)

    def _foldable(self) -> list[Op]:
        net = self.net
        made: set[int] = set()
        ops = []
        for op in net.in_order():
            if op.op_type not in self._ops or op.domain or op.bodies or op.number in self._refused:
                continue
            if not all(v < 0 or v in made or net.is_constant(v) for v in op.inputs):
                continue
            if not all(net.may("fold_constants", v) for v in op.outputs if v >= 0):
                continue
            nbytes = self._bytes(op)
            if nbytes is None:
                if not all(v < 0 or net.is_constant(v) for v in op.inputs):
                    continue  # more is known once its inputs are folded
                self._leave(op, 0, "the size of its outputs is not known before it runs")
                continue
            if nbytes > max(self._paid(op), self.budget, FREE):
                self._leave(
                    op,
                    nbytes,
                    f"its outputs take {bytes_text(nbytes)}, more than the budget of {bytes_text(self.budget)}",
                )
                continue
            made.update(v for v in op.outputs if v >= 0)
            ops.append(op)
        return ops

    def _leave(self, op: Op, nbytes: int, why: str) -> None:
        self._refused.add(op.number)
        self.left[op.number] = Left(op.name or op.op_type, op.op_type, nbytes, why)

    def _bytes(self, op: Op) -> int | None:
        total = 0
        for value in op.outputs:
            if value < 0:
                continue
            kind = self.net.kind(value)
            if kind is None or kind.size is None or not kind.elem_type:
                return self._range_bytes(op) if op.op_type == "Range" else None
            total += -(-kind.size * _bits(kind.elem_type) // 8)
        return total

    def _range_bytes(self, op: Op) -> int | None:
        """Return the size of a Range; exporters write its ends as vectors of one element, too."""
        found = [self.net.constant(value) for value in op.inputs]
        ends = [array for array in found if array is not None and array.size == 1]
        if len(ends) < 3:
            return None
        start, limit, delta = (float(array.reshape(())) for array in ends)
        return max(0, math.ceil((limit - start) / delta)) * ends[0].itemsize if delta else None

    def _paid(self, op: Op) -> int:
        """Return the bytes of constants that become unused once a node is folded."""
        net = self.net
        return sum(
            net.constant_bytes(value)
            for value in {v for v in op.inputs if v >= 0}
            if net.is_constant(value) and len(net.readers[value]) == 1 and not net.is_output(value)
        )

    def _wanted(self, ops: Sequence[Op]) -> list[int]:
        """Return the outputs of folded nodes that other nodes read."""
        net = self.net
        folded = {op.number for op in ops}
        return [
            value
            for op in ops
            for value in op.outputs
            if value >= 0 and (net.is_output(value) or any(number not in folded for number in net.readers[value]))
        ]

    def _over_budget(self, wanted: Sequence[int]) -> set[int]:
        """Return the nodes whose results no longer fit the budget."""
        over: set[int] = set()
        spent = 0
        for value in wanted:
            op = self.net.maker(value)
            assert op is not None  # noqa: S101 (it was just found)
            nbytes = self._bytes(op) or 0
            if nbytes <= FREE or nbytes <= self._paid(op):
                continue
            if self.spent + spent + nbytes > self.budget:
                over.add(op.number)
                why = f"{bytes_text(nbytes)} do not fit the rest of the budget of {bytes_text(self.budget)}"
                self.left[op.number] = Left(op.name or op.op_type, op.op_type, nbytes, why)
            else:
                spent += nbytes
        if not over:
            self.spent += spent
        return over

    def _run(self, ops: Sequence[Op], wanted: Sequence[int]) -> dict[int, NDArray[Any]]:
        """Run nodes in onnxruntime at once; if it fails, one by one, so that only the nodes it cannot run are left."""
        try:
            return self._run_together(ops, wanted, {})
        except OnnxNbError:
            pass
        found: dict[int, NDArray[Any]] = {}
        for op in ops:
            if not all(v < 0 or v in found or self.net.is_constant(v) for v in op.inputs):
                self._refused.add(op.number)
                continue
            try:
                found |= self._run_together([op], [v for v in op.outputs if v >= 0], found)
            except OnnxNbError as error:
                self._leave(op, 0, f"onnxruntime cannot run it: {error}")
        asked = set(wanted)
        # a node that stays needs its inputs after all
        return {
            v: array for v, array in found.items() if v in asked or any(n in self._refused for n in self.net.readers[v])
        }

    def _run_together(
        self, ops: Sequence[Op], wanted: Sequence[int], known: Mapping[int, NDArray[Any]]
    ) -> dict[int, NDArray[Any]]:
        net = self.net
        proto = onnx.ModelProto(ir_version=max(net.source.proto.ir_version, 4))
        proto.opset_import.extend(net.source.proto.opset_import)
        proto.graph.name = "constants"
        made = {value for op in ops for value in op.outputs if value >= 0}
        for value in dict.fromkeys(v for op in ops for v in op.inputs if v >= 0 and v not in made):
            if value in known:
                proto.graph.initializer.append(onnx.numpy_helper.from_array(known[value], _name(value)))
            else:
                known_graph.write_constant(net, net.constants[value], proto.graph, _name(value))
        for op in ops:
            node = proto.graph.node.add()
            known_graph.write_node(op, node, _name)
        proto.graph.output.extend(onnx.ValueInfoProto(name=_name(value)) for value in wanted)
        model = with_proto(net.source, proto, f"constants of {net.source.name}", net.large)
        made_session = session.create(model, optimize=False, transient=True)
        results = session.run_session(made_session, {}, name=model.name)
        return {value: np.asarray(results[_name(value)]) for value in wanted}


def _name(value: int) -> str:
    return f"v{value}" if value >= 0 else ""


def _bits(elem_type: int) -> int:
    dtype = tensors.numpy_dtype(elem_type)
    if dtype is None:
        return 64
    small = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
    return small.get(dtype.name, dtype.itemsize * 8)


def _short(array: NDArray[Any]) -> str:
    return shortened(" ".join(str(array.tolist()).split()), 60)
