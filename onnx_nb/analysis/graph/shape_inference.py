"""The types of all tensors when the shapes of the inputs are given, in one walk through the graph.

Each node is asked of onnx's own inference, equal nodes on equal inputs once: the layers of a transformer cost as much
as one of them. Small integers are computed on the way, as the shapes that exporters compute from shapes; ``onnx``'s
inference of whole models knows fewer operators, and takes seconds where this takes one.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import onnx
import onnx.inliner
import onnx.numpy_helper
from numpy.typing import NDArray
from onnx import TensorProto, TypeProto

from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.graph import INITIALIZER, Graph
from onnx_nb.analysis.graph.subgraphs import INLINED, key_of
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import ModelLike, label_of, load, with_proto
from onnx_nb.analysis.model.nodes import attribute
from onnx_nb.analysis.model.value_info import dimensions, fits, input_types

if TYPE_CHECKING:
    from onnx_nb.analysis.model.protofields import Ints
from collections.abc import Iterable

from onnx_nb.analysis.formatting import closest
from onnx_nb.analysis.model.value_info import Dims, dimensions_text, listed

INTEGERS = 256
"""Integers and booleans are computed in tensors of at most so many elements."""
FLOATS = 8
"""Floats, which become sizes after a factor, in tensors of at most so many."""
DEPTH = 100
"""Bodies that are nested deeper are left out."""
SETTLED_DEPTH = 4
"""In bodies that are nested deeper, tensors that a loop carries are taken for tensors of any shape."""

BROKEN = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError)
"""What attributes of another type or number than the operator's raise; they are only met in broken models."""

Value = NDArray[Any]

# The operators by which exporters compute shapes; they are computed here if everything that they read is known.
_ARITHMETIC = """
    Abs Add And Cast Ceil Concat Constant ConstantOfShape CumSum Div Equal Expand Flatten Floor Gather
    GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range
    ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Sign Slice Split Sqrt Squeeze
    Sub Sum Tile Transpose Trilu Unsqueeze Where Xor"""
_COMPUTED = frozenset(_ARITHMETIC.split())
# Operators whose floats decide on shapes.
_FLOATS_WANTED = frozenset({"Resize", "Upsample"})

# Operators of which onnx infers nothing, most of com.microsoft, whose result has the shape of their first input…
_UNCHANGED = """
    GroupNormalization MeanVarianceNormalization
    BiasAdd BiasGelu BiasSoftmax DequantizeBFP FastGelu Gelu GroupNorm QLinearLeakyRelu QLinearSigmoid QLinearSoftmax
    QuickGelu RotaryEmbedding SimplifiedLayerNormalization SkipGroupNorm SkipLayerNormalization
    SkipSimplifiedLayerNormalization"""
# … or that which a standard operator makes of some of their inputs.
_STAND_INS: dict[str, tuple[str, tuple[int, ...]]] = {
    **dict.fromkeys(_UNCHANGED.split(), ("Identity", (0,))),
    "EmbedLayerNormalization": ("Gather", (2, 0)),
    "FusedConv": ("Conv", (0, 1)),
    "FusedGemm": ("Gemm", (0, 1)),
    "QLinearAdd": ("Add", (0, 3)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)),
    "QLinearMul": ("Mul", (0, 3)),
}


@dataclass(frozen=True)
class Kind:
    """The type of a value."""

    proto: TypeProto
    elem_type: int
    """As in ``onnx.TensorProto.DataType``; 0 if it is unknown, or no tensor."""
    shape: Dims | None
    """None if unknown; inside it a symbol, or None for a dimension of which nothing is known."""

    @property
    def size(self) -> int | None:
        """The number of elements; None if a dimension is not known."""
        return math.prod(self.shape) if _is_static(self.shape) else None


@dataclass(frozen=True, eq=False)
class Case:
    """What some nodes have in common: operator, attributes, types of what they read and make."""

    node: onnx.NodeProto
    """One of them."""
    domain: str
    version: int
    """The opset of the operator's domain, 0 if the model imports none."""
    inputs: tuple[Kind | None, ...]
    """None where an input is left out; nothing known is a `Kind` too."""
    values: tuple[Value | None, ...]
    """The inputs that are known as numbers."""
    outputs: tuple[Kind | None, ...]
    inner: Types | None = None
    """The body of the local function that is called, with the types that it has there."""
    known_operator: bool = True
    """Whether onnx defines the operator at that opset."""


@dataclass(frozen=True, eq=False)
class Types:
    """The types in a graph, by cases."""

    graph: Graph
    cases: Sequence[Case]
    case_of: Ints
    """The case of each flat node, −1 for those that were not reached."""
    trips: Mapping[int, int | None]
    """How often the bodies of a Loop or Scan node run; None if that is not known before the run."""
    unbound: tuple[str, ...]
    """Symbols in the shapes of the inputs of which no size is known."""


def infer(model: ModelLike, shapes: Mapping[str, int | Sequence[int]] | None = None) -> Types:
    """Find the types of all tensors.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    shapes
        Sizes of dimensions by their symbol, and shapes by the name of their input.

    Raises
    ------
    FeedError
        If ``shapes`` does not fit the inputs of the model.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[n, 2] x) => (float[n, k] z) { y = Concat<axis = 1>(x, x)  z = Relu(y) }''')
    >>> [case.outputs[0].shape for case in infer(model, {"n": 3}).cases]
    [(3, 4), (3, 4)]
    >>> infer(model).unbound
    ('n',)
    """
    loaded = load(model)
    graph = Graph.of(loaded)
    symbols, given = _bound(graph, shapes or {})
    return _Walk(graph, symbols, given).types()


def _bound(graph: Graph, shapes: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Return the sizes of symbols and the shapes of inputs that are asked for."""
    given_by_caller = {graph.value_names[value] for value in graph.inputs.tolist()}
    kinds = {name: kind for name, kind in input_types(graph.model).items() if name in given_by_caller}
    declared = {name: dimensions(kind) if kind.HasField("tensor_type") else None for name, kind in kinds.items()}
    symbols = [dim for shape in declared.values() for dim in shape or () if isinstance(dim, str)]
    sizes: dict[str, int] = {}
    given: dict[str, tuple[int, ...]] = {}
    for key, size in shapes.items():
        asked = requested_size(label_of(graph.model), key, size, declared, symbols)
        if isinstance(asked, int):
            _agree(sizes, key, asked)
            continue
        given[key] = asked
        for dim, one in zip(declared[key] or (), asked, strict=False):
            if isinstance(dim, str):
                _agree(sizes, dim, one)
    return sizes, given


def _agree(sizes: dict[str, int], symbol: str, size: int) -> None:
    if sizes.setdefault(symbol, size) != size:
        message = f"dimension {quoted(symbol)} is given sizes {sizes[symbol]} and {size}."
        raise FeedError(message, advice="Give shapes that agree.")


class _Walk:
    """One walk through a graph; types and known values are numbers into lists, so that they compare quickly."""

    def __init__(self, graph: Graph, symbols: Mapping[str, int], given: Mapping[str, tuple[int, ...]]) -> None:
        self.graph = graph
        self._symbols, self._given = symbols, given
        kinds = [dimensions(kind) for kind in input_types(graph.model).values() if kind.HasField("tensor_type")]
        self._of_inputs = {dim for shape in kinds for dim in shape or ()}
        self._kinds: list[Kind] = []
        self._smallness: list[int] = []
        self._kind_index: dict[bytes, int] = {}
        self._nothing = self._kind(TypeProto())
        self._values: list[Value] = []
        self._value_index: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._types_of_graph: dict[int, int] = {}
        self._type_index: list[int] = graph.type_index.tolist()
        self._kind_of = [self._nothing] * graph.value_count
        self._value_of = [_NO_VALUE] * graph.value_count
        for value in np.flatnonzero(graph.value_kind == INITIALIZER).tolist():
            self._kind_of[value] = self._declared(value)
            self._value_of[value] = _NOT_READ
        self._weights: dict[int, TensorProto] | None = None
        self._index: dict[tuple[Any, ...], int] = {}
        self._cases: list[Case] = []
        self._made: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        """The types and the known values that nodes of a case make."""
        self._case_of = np.full(graph.node_count, -1, np.int32)
        self._trips: dict[int, int | None] = {}
        self._in, self._in_ptr = graph.in_value.tolist(), graph.in_ptr.tolist()
        self._out, self._out_ptr = graph.out_value.tolist(), graph.out_ptr.tolist()
        self._op = graph.op_index.tolist()
        self._special = [
            op == "Constant" or domain == "ai.onnx.ml" or operators.may_hold_graphs(op, domain, self._opset(domain))
            for op, domain in graph.operators
        ]
        self._depth = 0
        self._opsets = [onnx.helper.make_opsetid(*entry) for entry in graph.opsets.items()]

    def _opset(self, domain: str) -> int:
        return self.graph.opsets.get(domain, 0)

    def types(self) -> Types:
        unbound: dict[str, None] = {}
        for value in self.graph.inputs.tolist():
            shape = self._kinds[self._enter(value)].shape
            unbound.update((dim, None) for dim in shape or () if isinstance(dim, str))
        self._run(0)
        return Types(self.graph, self._cases, self._case_of, self._trips, tuple(unbound))

    def _enter(self, value: int) -> int:
        """Take an input of the main graph for what it is declared, or bound to."""
        kind = self._declared(value)
        shape = self._given.get(self.graph.value_names[value])
        if shape is not None and self._kinds[kind].elem_type:
            kind = self._tensor(self._kinds[kind].elem_type, shape)
        self._kind_of[value] = kind
        return kind

    def _run(self, frame: int) -> None:
        self._depth += 1
        if self._depth <= DEPTH:
            order = self.graph.order if frame == 0 else self.graph.subgraph_order(frame)
            for node in order.tolist():
                self._step(node)
        self._depth -= 1

    def _step(self, node: int) -> None:
        read = self._in[self._in_ptr[node] : self._in_ptr[node + 1]]
        made = self._out[self._out_ptr[node] : self._out_ptr[node + 1]]
        operator = self._op[node]
        kinds = tuple([self._kind_of[value] if value >= 0 else _LEFT_OUT for value in read])
        values = self._known(read, kinds, operator)
        attributes = self.graph.attribute_bytes(node)
        left_out = tuple([value >= 0 for value in made])
        key: tuple[Any, ...] = (operator, attributes, kinds, values, left_out)
        has_bodies = False
        if self._special[operator]:
            has_bodies = bool(self.graph.bodies(node))
            op, domain = self.graph.operators[operator]
            # of large attributes the bytes are not given
            if has_bodies or domain == "ai.onnx.ml" or (op == "Constant" and not attributes):
                key = (*key, node)
            elif self.graph.functions:
                key = (*key, self.graph.nodes[node].overload)
        number = self._index.get(key)
        if number == _UNSETTLED:
            number = self._index.get((*key, *self._declared_types(made)))
        # the bodies of a loop may be walked again with other types of what is captured
        if number is None or has_bodies:
            number, settled = self._add(node, kinds, values, made)
            if settled:
                self._index[key] = number
            else:
                self._index[key] = _UNSETTLED
                self._index[(*key, *self._declared_types(made))] = number
        self._case_of[node] = number
        for value, kind, known in zip(made, *self._made[number], strict=True):
            if value >= 0:
                self._kind_of[value], self._value_of[value] = kind, known

    def _declared_types(self, made: Sequence[int]) -> list[int]:
        return [self._declared(value) if value >= 0 else _LEFT_OUT for value in made]

    def _known(self, read: Sequence[int], kinds: Sequence[int], operator: int) -> tuple[int, ...]:
        """Return the known values among inputs; floats only where they matter, or each factor would be a new case."""
        found = [self._value_of[value] if value >= 0 else _LEFT_OUT for value in read]
        wanted = self.graph.operators[operator][0] in _FLOATS_WANTED
        unknown = _NO_VALUE in found
        for slot, known in enumerate(found):
            if known == _NOT_READ:
                if unknown and not wanted and self._smallness[kinds[slot]] != _INTEGERS:
                    found[slot] = _NO_VALUE
                else:
                    found[slot] = self._value_of[read[slot]] = self._read(read[slot], kinds[slot])
        if wanted or _NO_VALUE not in found:
            return tuple(found)
        return tuple([v if v < 0 or self._values[v].dtype.kind in "iub" else _NO_VALUE for v in found])

    def _read(self, value: int, kind: int) -> int:
        """Read a weight if it is small."""
        if not self._smallness[kind]:
            return _NO_VALUE
        if self._weights is None:
            frames = self.graph.subgraphs
            self._weights = {
                v: t for frame in frames for v, t in zip(frame.weights.tolist(), frame.graph.initializer, strict=False)
            }
        tensor = self._weights.get(value)
        if tensor is None:
            return _NO_VALUE
        name = self.graph.value_names[value]
        try:
            if tensor.data_location == TensorProto.EXTERNAL:
                return self._value(self.graph.model.tensor(name))
            return self._value(tensors.values(tensor, f"tensor {quoted(name)}"))
        except OnnxNbError:
            # damaged, or its file is not here: the shapes that depend on it stay unknown, and are reported so
            return _NO_VALUE

    def _value(self, array: Value) -> int:
        key = (array.dtype.str, array.shape, array.tobytes())
        number = self._value_index.get(key)
        if number is None:
            number = self._value_index[key] = len(self._values)
            self._values.append(array)
        return number

    def _kind(self, proto: TypeProto) -> int:
        """Return the number of a type."""
        key = proto.SerializeToString(deterministic=True)
        number = self._kind_index.get(key)
        if number is None:
            number = self._kind_index[key] = len(self._kinds)
            is_tensor = proto.HasField("tensor_type")
            self._kinds.append(
                Kind(proto, proto.tensor_type.elem_type if is_tensor else 0, dimensions(proto) if is_tensor else None)
            )
            self._smallness.append(_smallness(self._kinds[-1]))
        return number

    def _tensor(self, elem_type: int, shape: Dims | None) -> int:
        return self._kind(onnx.helper.make_tensor_type_proto(elem_type, shape))

    def _declared(self, value: int) -> int:
        """Return the type that the graph knows of a value, with sizes for symbols."""
        index = self._type_index[value]
        number = self._types_of_graph.get(index)
        if number is None:
            info = self.graph.value_info(value)
            number = self._nothing
            if info is not None:
                for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
                    symbol = plain_text(dim.dim_param)
                    if symbol in self._symbols:
                        dim.dim_value = self._symbols[symbol]
                    elif re.fullmatch(r"unk__\d+", symbol) and symbol not in self._of_inputs:
                        # onnx's inference numbers the dimensions that it knows nothing about
                        dim.Clear()
                number = self._kind(info.type)
            self._types_of_graph[index] = number
        return number

    def _merged(self, own: int, declared: int) -> int:
        """Return what two sources know of one value, of which the first is trusted more."""
        one, other = self._kinds[own], self._kinds[declared]
        if own == self._nothing or (one.elem_type == other.elem_type and one.shape is None):
            return declared
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape) or _is_static(one.shape):
            return own
        shape = tuple(
            b if not isinstance(a, int) and (isinstance(b, int) or a is None) else a
            for a, b in zip(one.shape, other.shape, strict=True)
        )
        return self._tensor(one.elem_type, shape)

    def _either(self, first: int, second: int) -> int:
        """Return the type of a value that is of one type or another."""
        if first == second:
            return first
        one, other = self._kinds[first], self._kinds[second]
        if not one.elem_type or one.elem_type != other.elem_type:
            return self._nothing
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
            return self._tensor(one.elem_type, None)
        shape = tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))
        return self._tensor(one.elem_type, shape)

    def _add(self, node: int, kinds: Sequence[int], values: tuple[int, ...], made: Sequence[int]) -> tuple[int, bool]:
        """Make a case of a node like which none was before, and say whether it depends only on what the node reads."""
        proto = self.graph.nodes[node]
        domain = plain_text(proto.domain)
        domain = "" if domain == "ai.onnx" else domain
        version = self._opset(domain)
        case = Case(
            node=proto,
            domain=domain,
            version=version,
            inputs=tuple(self._kinds[kind] if kind >= 0 else None for kind in kinds),
            values=tuple(self._values[value] if value >= 0 else None for value in values),
            outputs=(),
            known_operator=operators.schema(plain_text(proto.op_type), domain, version) is not None,
        )
        inner: Types | None = None
        # attributes of a function's node that only a call knows
        depends_on_call = any(attribute.ref_attr_name for attribute in proto.attribute)
        try:
            inner, found = self._made_by(node, case) if not depends_on_call else (None, [])
        except BROKEN:
            found = []
        found = [*found, *[self._nothing] * len(made)][: len(made)]
        outputs = tuple(
            self._merged(kind, self._declared(value)) if value >= 0 else _LEFT_OUT
            for kind, value in zip(found, made, strict=True)
        )
        try:
            known = self._computed(case, values, outputs) if not depends_on_call else (_NO_VALUE,) * len(made)
        except BROKEN:
            known = (_NO_VALUE,) * len(made)
        self._made.append((outputs, known))
        described = tuple(self._kinds[kind] if kind >= 0 else None for kind in outputs)
        self._cases.append(replace(case, outputs=described, inner=inner))
        settled = all(self._kinds[kind].size is not None for kind, value in zip(found, made, strict=True) if value >= 0)
        return len(self._cases) - 1, settled

    def _made_by(self, node: int, case: Case) -> tuple[Types | None, list[int]]:
        """Find the types that a node makes, and the body of the local function that it calls."""
        function = self.graph.called(node)
        if function is not None:
            return self._call(case, function)
        if self.graph.bodies(node):
            return None, self._control(node, case)
        if case.known_operator:
            return None, self._infer(case, case.node, case.version)
        return None, self._contributed(case) if case.domain == "com.microsoft" else []

    def _infer(self, case: Case, node: onnx.NodeProto, version: int) -> list[int]:
        """Ask onnx."""
        schema = operators.schema(
            plain_text(node.op_type), "" if node.domain == "ai.onnx" else plain_text(node.domain), version
        )
        read = [
            (plain_text(name), kind, value)
            for name, kind, value in zip(node.input, case.inputs, case.values, strict=True)
        ]
        if (
            schema is not None
            and not schema.has_type_and_shape_inference_function
            and plain_text(node.op_type) in _STAND_INS
        ):
            return self._like(case, *_STAND_INS[plain_text(node.op_type)])
        if schema is None or any(kind is not None and not kind.proto.WhichOneof("value") for _, kind, _ in read):
            return []
        known = {name: kind.proto for name, kind, _ in read if kind is not None}
        data = {name: onnx.numpy_helper.from_array(value, name) for name, _, value in read if value is not None}
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, known, data, opset_imports=self._opsets, ir_version=onnx.IR_VERSION
            )
        except Exception:  # noqa: BLE001 (the C++ side lets out any kind; what is unknown then is reported)
            return []
        made = [self._kind(found[name]) if name in found else self._nothing for name in map(plain_text, node.output)]
        if plain_text(node.op_type) == "Dropout" and version < 10:
            made = made[:1] * len(made)  # of the mask, which was a float then, onnx infers no shape
        return made

    def _computed(self, case: Case, values: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[int, ...]:
        """Compute what a node makes if everything that it reads is known, and small."""
        nothing = (_NO_VALUE,) * len(outputs)
        op = plain_text(case.node.op_type)
        if case.domain or not outputs or any(kind < 0 for kind in outputs) or (op != "Split" and len(outputs) > 1):
            return nothing
        shape = case.inputs[0].shape if case.inputs and case.inputs[0] is not None else None
        if op == "Shape" and shape is not None:
            chosen = np.arange(len(shape))[_slice(case.node)]
            part = tuple(shape[axis] for axis in chosen)
            return (self._value(np.asarray(part, np.int64)),) if _is_static(part) else nothing
        if op == "Size" and _is_static(shape) and math.prod(shape) < 2**63:
            return (self._value(np.asarray(math.prod(shape), np.int64)),)
        if op not in _COMPUTED or _NO_VALUE in values or not all(self._smallness[kind] for kind in outputs):
            return nothing
        names = list(dict.fromkeys(plain_text(name) for name in case.node.input if name))
        infos = [onnx.ValueInfoProto(name=name) for name in names]
        graph = onnx.helper.make_graph(
            [case.node], "", infos, [onnx.ValueInfoProto(name=name) for name in case.node.output]
        )
        feeds = {plain_text(name): value for name, value in zip(case.node.input, case.values, strict=True) if name}
        try:
            with np.errstate(all="ignore"):
                made = _evaluator()(graph, opsets={"": case.version}).run(None, feeds)
        except Exception:  # noqa: BLE001 (onnx's reference lets out any kind; what is unknown then is reported)
            return nothing
        return tuple(self._value(np.asarray(array)) for array in made) if len(made) == len(outputs) else nothing

    def _call(self, case: Case, function: onnx.FunctionProto) -> tuple[Types | None, list[int]]:
        """Walk through a local function on the types that it is called with."""
        if self.graph.inlined_sizes[key_of(case.node)] > INLINED:
            return None, []  # functions that call each other again and again
        model = onnx.ModelProto(ir_version=onnx.IR_VERSION, functions=self.graph.model.proto.functions)
        versions = {**self.graph.opsets, **{plain_text(entry.domain): entry.version for entry in function.opset_import}}
        model.opset_import.extend(onnx.helper.make_opsetid(*entry) for entry in versions.items())
        model.graph.name = plain_text(case.node.op_type)
        model.graph.node.add().CopyFrom(case.node)
        named = zip(map(plain_text, case.node.input), case.inputs, case.values, strict=True)
        for name, kind, value in {name: (name, kind, value) for name, kind, value in named}.values():
            if value is not None:
                model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
            elif kind is not None:
                model.graph.input.add(name=name, type=kind.proto)
        made = [plain_text(name) for name in case.node.output]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name)
        try:
            inlined = onnx.inliner.inline_local_functions(model)
        except Exception:  # noqa: BLE001 (the C++ side lets out any kind; what is unknown then is reported)
            return None, []
        graph = Graph.of(with_proto(self.graph.model, inlined, model.graph.name))
        if any((domain, op) == (case.domain, plain_text(case.node.op_type)) for op, domain in graph.operators):
            return None, []  # it calls itself, or needs another opset than the model has
        walk = _Walk(graph, self._symbols, {})
        types = walk.types()
        found = dict(zip(filter(None, made), graph.outputs.tolist(), strict=True))
        outputs = [found.get(name, -1) for name in made]
        return types, [self._kind(walk._kinds[walk._kind_of[v]].proto) if v >= 0 else self._nothing for v in outputs]

    def _control(self, node: int, case: Case) -> list[int]:
        op = plain_text(case.node.op_type)
        frames = self.graph.bodies(node)
        if op == "Loop" and len(frames) == 1:
            return self._loop(node, case, frames[0])
        if op == "Scan" and len(frames) == 1 and case.version >= 9:
            return self._scan(node, case, frames[0])
        for frame in frames:
            for value in self.graph.subgraphs[frame].inputs.tolist():
                self._kind_of[value] = self._declared(value)
            self._run(frame)
        if op != "If":
            self._trips[node] = None
            return []
        branches = [[self._outer(value) for value in self.graph.subgraphs[frame].outputs.tolist()] for frame in frames]
        return [functools.reduce(self._either, kinds) for kinds in zip(*branches, strict=False)]

    def _outer(self, value: int) -> int:
        return self._kind_of[value] if value >= 0 else self._nothing

    def _loop(self, node: int, case: Case, frame: int) -> list[int]:
        place = self.graph.subgraphs[frame]
        most, going = [*case.values, None, None][:2]
        # what the condition is after a round if it was true before it
        stays = self._rounds(
            frame, [self._tensor(TensorProto.INT64, ()), self._tensor(TensorProto.BOOL, ())], self._carried(node, 2)
        )
        trips = None
        first = True if not [*case.node.input, "", ""][1] else None if going is None else bool(going.all())
        if first is False:
            trips = 0
        elif first and stays is False:
            trips = 1
        elif first and stays and most is not None:
            trips = max(int(most.reshape(-1)[0]), 0) if most.size == 1 else None
        if trips == 1 and most is not None and most.size == 1:
            trips = min(trips, max(int(most.reshape(-1)[0]), 0))
        self._trips[node] = trips
        made = [self._outer(value) for value in place.outputs.tolist()[1:]]
        carried = max(len(case.inputs) - 2, 0)
        return [*made[:carried], *(self._stacked(kind, trips, 0) for kind in made[carried:])]

    def _scan(self, node: int, case: Case, frame: int) -> list[int]:
        attributes = {
            plain_text(a.name): onnx.helper.get_attribute_value(a) for a in case.node.attribute if a.name != "body"
        }
        scanned = min(max(attributes.get("num_scan_inputs", 0), 0), len(case.inputs))
        states = len(case.inputs) - scanned
        axes = [*attributes.get("scan_input_axes", ()), *[0] * scanned]
        rows, sizes = [], []
        for kind, axis in zip(case.inputs[states:], axes, strict=False):
            shape = None if kind is None else kind.shape
            if kind is None or shape is None or not -len(shape) <= axis < len(shape):
                rows.append(self._tensor(kind.elem_type, None) if kind is not None else self._nothing)
                continue
            axis %= len(shape)  # noqa: PLW2901 (the same axis)
            rows.append(self._tensor(kind.elem_type, shape[:axis] + shape[axis + 1 :]))
            sizes.append(shape[axis])
        carried = self._carried(node, 0)
        self._rounds(frame, [], carried[:states], rows)
        trips = self._trips[node] = next((size for size in sizes if isinstance(size, int)), None)
        made = [self._outer(value) for value in self.graph.subgraphs[frame].outputs.tolist()]
        out_axes = [*attributes.get("scan_output_axes", ()), *[0] * len(made)]
        return [
            *made[:states],
            *(self._stacked(kind, trips, axis) for kind, axis in zip(made[states:], out_axes, strict=False)),
        ]

    def _carried(self, node: int, skipped: int) -> list[int]:
        read = self._in[self._in_ptr[node] : self._in_ptr[node + 1]]
        return [self._outer(value) for value in read[skipped:]]

    def _rounds(self, frame: int, before: list[int], carried: list[int], after: Sequence[int] = ()) -> bool | None:
        """Walk through a body until the types of what it carries from round to round are settled.

        Returns
        -------
        bool or None
            For a body whose second input is a condition: what it makes of it if it is true; None if that is not known.
        """
        place = self.graph.subgraphs[frame]
        # a condition comes before what is carried out of a Loop
        skipped = 1 if before else 0
        rounds = 4 if self._depth <= SETTLED_DEPTH else 1
        for left in range(rounds, 0, -1):
            if left == 1:
                carried = [self._tensor(elem, None) if (elem := self._kinds[k].elem_type) else k for k in carried]
            for value, kind in zip(place.inputs.tolist(), [*before, *carried, *after], strict=False):
                self._kind_of[value], self._value_of[value] = kind, _NO_VALUE
            if before and len(place.inputs) > 1:
                self._value_of[int(place.inputs[1])] = self._value(np.asarray(True))  # noqa: FBT003
            self._run(frame)
            made = [self._outer(value) for value in place.outputs.tolist()[skipped:]]
            wider = [self._either(*pair) for pair in zip(carried, made, strict=False)]
            if wider == carried:
                break
            carried = wider + carried[len(wider) :]
        if not before or not len(place.outputs) or place.outputs[0] < 0:
            return None
        known = self._value_of[int(place.outputs[0])]
        return bool(self._values[known].all()) if known >= 0 else None

    def _stacked(self, kind: int, trips: int | None, axis: int) -> int:
        """Return the type of what is one value a round."""
        one = self._kinds[kind]
        if not one.elem_type or one.shape is None:
            return kind
        axis = axis + len(one.shape) + 1 if axis < 0 else axis
        return self._tensor(one.elem_type, (*one.shape[:axis], trips, *one.shape[axis:]))

    def _contributed(self, case: Case) -> list[int]:
        """Return the types that an operator of onnxruntime makes, of the most common ones."""
        op = plain_text(case.node.op_type)
        stand_in = _STAND_INS.get(op)
        if stand_in is not None:
            return self._like(case, *stand_in)
        shape = _contributed_shape(case)
        first = case.inputs[0] if case.inputs else None
        if shape is None or first is None:
            return []
        quantized = first.elem_type in (TensorProto.UINT8, TensorProto.INT8)
        return [self._tensor(TensorProto.FLOAT if quantized else first.elem_type, shape)]

    def _like(self, case: Case, op: str, places: tuple[int, ...]) -> list[int]:
        if len(case.inputs) <= max(places):
            return []
        version = onnx.defs.onnx_opset_version()
        known = operators.schema(op, "", version)
        names = [case.node.input[place] for place in places]
        node = onnx.helper.make_node(op, names, case.node.output[:1])
        node.attribute.extend(a for a in case.node.attribute if known is not None and a.name in known.attributes)
        picked = replace(
            case,
            inputs=tuple(case.inputs[place] for place in places),
            values=tuple(case.values[place] for place in places),
        )
        found = self._infer(picked, node, version)
        # the fourth output of SkipLayerNormalization is the sum that it normalizes
        return [*found, self._nothing, self._nothing, *found] if op == "Identity" else found


_NO_VALUE, _NOT_READ, _LEFT_OUT, _UNSETTLED = -1, -2, -3, -4
_INTEGERS, _FLOATS = 1, 2


def broadcast(*shapes: Dims) -> Dims | None:
    """Return the shape that shapes are broadcast to; None if they do not fit.

    >>> broadcast((2, 1, "n"), (4, 1))
    (2, 4, 'n')
    """
    result: list[int | str | None] = []
    for axis in range(max(map(len, shapes))):
        sizes = {shape[-1 - axis] for shape in shapes if axis < len(shape)} - {1}
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(numbers) > 1:
            return None
        result.append(numbers[0] if numbers else 1 if not sizes else sizes.pop() if len(sizes) == 1 else None)
    return tuple(result[::-1])


def _contributed_shape(case: Case) -> Dims | None:
    op, node = plain_text(case.node.op_type), case.node
    shapes = [kind.shape if kind is not None else None for kind in case.inputs] + [None] * 3
    first, second, third = shapes[:3]
    if first is None:
        return None
    if op in ("FusedMatMul", "TransposeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
        if second is None or len(first) < 2 or len(second) < 2:
            return None
        rows = first[-1] if attribute(node, "transA", 0) else first[-2]
        columns = second[-2] if attribute(node, "transB", 0) else second[-1]
        batch = broadcast(first[:-2], second[:-2]) if len(first) > 2 or len(second) > 2 else ()
        return None if batch is None else (*batch, rows, columns)
    if op == "MatMulNBits":
        return (*first[:-1], attribute(node, "N"))
    if op == "MultiHeadAttention" and len(first) == 3 and third is not None:
        hidden = third[-1] if len(third) == 3 else _product(third[1], third[3]) if len(third) == 4 else None
        return (*first[:2], hidden)
    if op == "Attention" and len(first) == 3:
        sizes = attribute(node, "qkv_hidden_sizes")
        thirds = second[-1] if second else None
        return (*first[:2], sizes[2] if sizes else thirds // 3 if isinstance(thirds, int) else None)
    if op == "GroupQueryAttention" and len(first) == 3:
        if second is not None:
            return first
        heads, shared, hidden = attribute(node, "num_heads", 0), attribute(node, "kv_num_heads", 0), first[2]
        if isinstance(hidden, int) and heads:
            return (*first[:2], hidden * heads // (heads + 2 * shared))
    return None


def _product(one: int | str | None, other: int | str | None) -> int | None:
    return one * other if isinstance(one, int) and isinstance(other, int) else None


def _is_static(shape: Dims | None) -> TypeGuard[tuple[int, ...]]:
    return shape is not None and all(isinstance(dim, int) and dim >= 0 for dim in shape)


def _smallness(kind: Kind) -> int:
    """Return whether the values of a type may be known here, and as what."""
    dtype, size = tensors.numpy_dtype(kind.elem_type), kind.size
    if dtype is None or size is None:
        return 0
    is_integer = dtype.kind in "iub"
    return (_INTEGERS if is_integer else _FLOATS) if size <= (INTEGERS if is_integer else FLOATS) else 0


def _slice(node: onnx.NodeProto) -> slice:
    return slice(attribute(node, "start", 0), attribute(node, "end"))


def _evaluator() -> Any:
    from onnx.reference import ReferenceEvaluator  # imports a module for every operator

    return ReferenceEvaluator


def requested_size(
    called: str, key: str, size: Any, declared: Mapping[str, Dims | None], symbols: Sequence[str]
) -> int | tuple[int, ...]:
    """Check an entry of ``shapes=`` against the inputs of a model.

    Returns
    -------
    int or tuple of int
        The size of a symbol, or the shape of an input.
    """
    number = isinstance(size, int | np.integer)
    sizes = tuple(size) if isinstance(size, Iterable) else (size,)
    if any(not isinstance(one, int | np.integer) or one < 0 for one in sizes):
        raise FeedError(f"shapes[{key!r}] is {size!r:.80}, and sizes are whole numbers from 0.")
    if number and key in symbols:
        return int(size)
    if key not in declared:
        known = dict.fromkeys([*declared, *symbols])
        message = f"{called} has neither an input nor a dimension {quoted(key)}."
        raise FeedError(message, advice=f"It has {listed(closest(key, known) or known) or 'none'}.")
    shape = declared[key]
    if number or (shape is not None and not fits(shape, sizes)):
        message = f"shapes[{key!r}] is {size!r:.80}, and the input takes {dimensions_text(shape or ())}."
        raise FeedError(message, advice="Give a size for each of its axes.")
    return tuple(map(int, sizes))
