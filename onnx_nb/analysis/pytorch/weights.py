"""Compare the parameters of a torch module with the weights of its export.

A parameter is matched by the use of the weight in its operator: the second input of a Linear's MatMul is the weight
transposed, and a Conv may include a folded batch normalization, which is folded here in float64. Names decide next,
then the shapes and values of the weights that the nodes of a submodule read.

A weight is traced back from its reader to an initializer. Nodes between them may transpose, reshape, cast, quantize or
dequantize it. Operators on integers name scale and zero point themselves, except MatMulInteger and ConvInteger, whose
scale is a later Mul. A quantized weight may differ by its quantization step.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched
from onnx_nb.analysis.compare.isolated import Settings
from onnx_nb.analysis.compare.metrics import ErrorStats, between, precision
from onnx_nb.analysis.compare.operands import INTEGERS, TRANSPARENT, Operand, input_of, weight_of, weights_at
from onnx_nb.analysis.compare.thresholds import TIE_DISTANCE, WEIGHT_ULPS
from onnx_nb.analysis.formatting import quoted, shape_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import facts, names_where, variants
from onnx_nb.analysis.model.tensors import attribute
from onnx_nb.analysis.progress import CountedWork, Progress
from onnx_nb.analysis.pytorch.align import Pairs
from onnx_nb.analysis.pytorch.drilldown import submodule_nodes
from onnx_nb.analysis.pytorch.record import ModuleCall, Recording
from onnx_nb.analysis.pytorch.side import inputs_of
from onnx_nb.analysis.run.feeds import to_numpy

if TYPE_CHECKING:
    import torch

_FARTHEST: Final = 10
"""Maximum number of nodes searched for the one that does the work of a layer."""
_AFTER: Final = TRANSPARENT - {"Transpose"} | {"Add", "Mul", "QLinearAdd"}
"""Operators that exporters and quantizers add after the operator of a layer."""
_BEFORE: Final = names_where("rounds") | names_where("dequantizes") | {"Cast", "Identity"}
"""Operators that exporters and quantizers add before it."""
_MATMUL: Final = tuple(sorted(variants("MatMul", "Gemm")))
_CONV: Final = tuple(sorted(variants("Conv")))
_USUAL: Final = (("weight", 1), ("bias", 2))
_STATISTICS: Final = (("running_mean", 3), ("running_var", 4))
_LAYERS: Final[Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]] = {
    "Linear": (_MATMUL, _USUAL),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), (_CONV, _USUAL)),
    **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), (("ConvTranspose",), _USUAL)),
    "LayerNorm": (("LayerNormalization",), _USUAL),
    "Embedding": (("Gather",), (("weight", 0),)),
    **{f"BatchNorm{rank}d": (("BatchNormalization",), (*_USUAL, *_STATISTICS)) for rank in (1, 2, 3)},
}
"""Class of a layer → the operators that do its work, and the input of each parameter."""
_FOLDS: Final = {"weight": ("weight", "running_var"), "bias": ("bias", "running_mean")}
"""Parameter of a convolution → the parameters of a batch normalization that are folded into it."""
_RECURRENT: Final = ("LSTM", "GRU", "RNN")


class _Weight(NamedTuple):
    """A parameter, and the initializer that holds it."""

    label: str
    """Name of the point, such as "encoder.layer.1.dense → weight"."""
    parameters: tuple[str, ...]
    """Names of the parameters in the module; several if they are folded."""
    operand: Operand
    """The weight in the export."""
    reference: NDArray[Any]
    """The same weight computed from the parameters."""
    how: str
    """Method of the match: "operator", "folded", "name", "shape" (the only fitting one of those that the submodule's
    nodes read), "value" or "order" (the nearest of several, or the next)."""
    scope: str
    node: int


class _Piece(NamedTuple):
    """A parameter, or the part of it that an operator reads."""

    label: str
    parameter: str
    array: NDArray[Any]
    of_attention: bool


def _difference(weight: _Weight, errors: ErrorStats) -> str:
    """Describe the difference of a weight beyond rounding, or beyond a quantization step; empty if there is none."""
    label, steps = weight.label.rpartition(" → ")[2], weight.operand.steps
    if not weight.operand.initializer:
        return f"{label} is left out, and not zero"
    rounding = WEIGHT_ULPS * max(precision(errors), 2.0**-23) * errors.reference_norm
    if steps is None and not errors.mismatches and errors.error_norm <= rounding:
        return ""
    reference, actual = weight.reference.astype(np.float64), weight.operand.array.astype(np.float64)
    if steps is None:
        beyond = np.count_nonzero(~np.isclose(actual, reference, rtol=1e-5, atol=0, equal_nan=True))
        amount = f"at most {errors.max_abs:.3g}"
        is_transpose = np.array_equal(reference.T, actual)
    else:
        off = np.abs(actual - reference) - WEIGHT_ULPS * 2.0**-23 * np.maximum(np.abs(reference), np.abs(actual))
        with np.errstate(all="ignore"):
            in_steps = np.where(off > 0, off / steps, 0)
        beyond = np.count_nonzero(~(in_steps <= 1))
        if not beyond:
            return ""
        amount = f"up to {np.nanmax(in_steps):.3g} quantization steps"
        is_transpose = actual.shape == reference.T.shape and bool((np.abs(actual - reference.T) <= steps).all())
    if is_transpose:
        return f"{label} is transposed"
    if steps is None:
        # perhaps query, key and value
        thirds = np.split(reference, 3) if reference.ndim and len(reference) % 3 == 0 else []
        for order in itertools.permutations(range(len(thirds)), 3):
            if np.array_equal(np.concatenate([thirds[place] for place in order]), actual):
                return f"the 3 parts of {label} are in the order {', '.join(str(place + 1) for place in order)}"
        if label == "weight" and reference.ndim == 1 and np.allclose(reference + 1, actual, rtol=1e-6, atol=0):
            return ""  # of a norm that multiplies by 1 + weight
        square = float(np.vdot(reference, reference))
        factor = float(np.vdot(reference, actual)) / square if square else 0.0
        if factor and np.allclose(reference * factor, actual, rtol=1e-5, atol=1e-7 * abs(reference).max(initial=0.0)):
            return f"{label} is {factor:.4g} times what it should be"
    return f"{label} differs in {beyond:,} of {errors.count:,} values, by {amount}"


class WeightFinder:
    """Finds the weight of each parameter of a module or of its submodule ``scope``, or the reason why there is none."""

    def __init__(
        self, module: torch.nn.Module, recording: Recording, graph: Graph, pairs: Pairs, scope: str | None
    ) -> None:
        self._recording, self._calls, self._scope = recording, recording.calls, scope
        self._graph, self._pairs, self._is_constant = graph, pairs, graph.constant_values
        self._inputs = inputs_of(recording, graph)
        self._parts = dict(module.named_modules(remove_duplicate=False))
        self._parameters: dict[str, Any] = dict(module.named_parameters())
        self._tensors: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
        self._tensors |= dict(module.named_buffers(remove_duplicate=False))
        self._called = {path for call in self._calls for path in (call.path, *call.aliases)}
        self._aligned = {value for value, _ in pairs.values()}
        makers = {slot.value: number for number, call in enumerate(self._calls) for slot in call.outputs}
        norms = [(number, call) for number, call in enumerate(self._calls) if call.cls.startswith("BatchNorm")]
        self._before_norm = {number: makers.get(call.inputs[0].value, -1) for number, call in norms if call.inputs}
        """Call of a batch normalization → the call that produced its input, or −1."""
        self._norm_after = {maker: number for number, maker in self._before_norm.items()}
        self._known: set[int] = set()
        """Identities of the parameters whose weight is known."""
        self._workers: set[int] = set()
        """Nodes whose weights are known."""
        self._ruled: set[str] = set()
        """Paths of the layers whose nodes are known."""
        reason = "the weights of recurrent layers are not compared: the operator has them in another order"
        self._left_out = {name: reason for name in self._parameters if self._class_around(name) in _RECURRENT}
        """Name of a parameter → reason why it is not compared."""

    def compare(self, settings: Settings, progress: Progress | None) -> Comparison:
        """Compare the parameters with the weights of the export; the most certain rules come first."""
        weights: list[_Weight] = []
        for rule in (self._of_layers, self._by_name, self._by_shape):
            for weight in rule():
                weights.append(weight)
                self._workers.add(weight.node)
                self._known.update(id(self._tensors[name]) for name in weight.parameters if name in self._tensors)
        points = []
        work = CountedWork(progress, len(weights))
        for depth, weight in enumerate(weights):
            operand, how = weight.operand, weight.how if weight.operand.steps is None else f"{weight.how}, dequantized"
            work.reached(depth, f"comparing {quoted(operand.initializer or weight.label)}")
            errors = ErrorStats.of(weight.reference, operand.array, rtol=settings.rtol, atol=settings.atol)
            node = self._graph.names[weight.node] if weight.node >= 0 else ""
            names = weight.label, ", ".join(weight.parameters), operand.initializer
            point = Point(*names, how, depth, "weight", node, weight.scope, difference=_difference(weight, errors))
            points.append(dataclasses.replace(point, cumulative=errors, isolated=errors))
        missing = [
            Unmatched(f"{self._parent(name)} → {name.rpartition('.')[2]}", "reference", why, "weight")
            for name, tensor in (self._parameters.items() if self._scope is None else ())
            if id(tensor) not in self._known and (why := self._left_out.get(name) or self._why(name, tensor))
        ]
        reference = f"weights of torch {self._recording.cls}"
        return Comparison(reference, self._graph.model.name, tuple(points), tuple(missing))

    def _why(self, name: str, tensor: torch.Tensor) -> str:
        path = name.rpartition(".")[0]
        owner = self._owner(path)
        if owner is None:
            return f"{self._class_around(name)} {quoted(path or 'the module itself')} was not called"
        if not self._nodes_of(owner):
            output = f"the output of {quoted(owner or 'the module itself')}"
            slots = (slot for call in self._calls if call.path == owner for slot in call.outputs)
            weight = next((value for value in (self._tensor(slot.value) for slot in slots) if value >= 0), -1)
            if weight >= 0:
                return f"{output} was computed in advance: it is the weight {quoted(self._graph.value_names[weight])}"
            return f"{output} has no tensor, so its nodes are not known"
        if not bool(tensor.any()):
            return "it is zero, and no such weight is read there: the export leaves it out"
        return f"no weight of shape {shape_text(tensor.shape)} is read there: it is folded into others"

    def _class_around(self, name: str) -> str:
        return type(self._parts[name.rpartition(".")[0]]).__name__

    # --- layers -----------------------------------------------------------------------------------------------------

    def _of_layers(self) -> Iterator[_Weight]:
        """Yield the weights of layers whose output has a tensor, then of layers whose input has one."""
        for by_input in (False, True):
            for number, call in enumerate(self._calls):
                if call.cls in _LAYERS and call.path not in self._ruled and self._scope in (None, call.path):
                    yield from self._of_layer(number, call, by_input=by_input)

    def _of_layer(self, number: int, call: ModuleCall, *, by_input: bool) -> Iterator[_Weight]:
        operators, places = _LAYERS[call.cls]
        part = self._parts[call.path]
        node = self._reader(number, operators, part) if by_input else self._worker(number, operators)
        if node >= 0:
            norm = self._norm_after.get(number, -1) if by_input and "Conv" in call.cls else -1
            if norm >= 0 and next(self._ahead(int(self._graph.node_outputs(node)[0]), ("BatchNormalization",)), -1) < 0:
                yield from self._of_folded(number, norm, node)
                return
            self._ruled.add(call.path)
            for name, place in places:
                if (tensor := getattr(part, name, None)) is not None:
                    names = (f"{call.path}.{name}".removeprefix("."),)
                    yield from self._at(node, place, number, names, to_numpy(tensor))
        elif not by_input and (conv := self._before_norm.get(number, -1)) >= 0:
            before = self._calls[conv].cls
            if "Conv" in before and before in _LAYERS and (node := self._worker(number, _LAYERS[before][0])) >= 0:
                yield from self._of_folded(conv, number, node)

    def _of_folded(self, conv: int, norm: int, node: int) -> Iterator[_Weight]:
        path, norm_path = self._calls[conv].path, self._calls[norm].path
        self._ruled |= {path, norm_path}
        arrays = _fold(self._parts[path], self._parts[norm_path])
        for name, place in _USUAL:
            if name in arrays:
                names = (f"{path}.{name}", *(f"{norm_path}.{label}" for label in _FOLDS[name]))
                yield from self._at(node, place, norm, names, arrays[name])

    def _at(self, node: int, place: int, call: int, names: tuple[str, ...], array: NDArray[Any]) -> Iterator[_Weight]:
        """Yield the weight at an input of a layer's node; ``array`` is computed from parameters ``names``."""
        graph = self._graph
        path, name = names[0].rpartition(".")[::2]
        label, how = f"{self._parent(names[0])} → {name}", "operator" if len(names) == 1 else "folded"
        operand = weight_of(graph, node, place)
        op = graph.op_type(node)
        if name == "bias" and operand is None and input_of(graph, node, facts(op).bias if op in INTEGERS else 2) < 0:
            add = self._bias_add(call, node)
            if add is None:
                return
            operands = [weight_of(graph, add, term) for term in (0, 1)] if add >= 0 else []
            operand = next((term for term in operands if term is not None), None)
            if add < 0 and array.any():
                yield _Weight(label, names, Operand("", np.zeros_like(array)), array, how, path, node)
            elif add < 0:
                self._left_out |= dict.fromkeys(names, "it is zero, and the export leaves it out")
        if operand is None:
            return
        reference = _as_stored(array, graph, node) if name == "weight" else array
        if name == "bias" and operand.array.size == reference.size:
            operand = operand.map(lambda bias: bias.reshape(reference.shape))
        if operand.array.shape == reference.shape:
            yield _Weight(label, names, operand, reference, how, path, node)

    def _worker(self, number: int, operators: Sequence[str]) -> int:
        """Return the node that does the work of a layer, found from its output; −1 if unknown."""
        outputs = [self._pairs[slot.value][0] for slot in self._calls[number].outputs if slot.value in self._pairs]
        return next((node for node in (self._behind(value, operators) for value in outputs) if node >= 0), -1)

    def _reader(self, number: int, operators: Sequence[str], part: torch.nn.Module) -> int:
        """Return that node, found from the layer's input; −1 if not exactly one reads a weight of this size."""
        call = self._calls[number]
        value = self._tensor(call.inputs[0].value) if call.inputs else -1
        weight: Any = getattr(part, "weight", None)
        readers = self._ahead(value, operators) if value >= 0 and weight is not None else ()
        weights = ((node, weight_of(self._graph, node, _LAYERS[call.cls][1][0][1])) for node in readers)
        sizes = ((node, operand.array.size) for node, operand in weights if operand is not None)
        nodes = [node for node, size in sizes if node not in self._workers and size == weight.numel()]
        return nodes[0] if len(nodes) == 1 else -1

    def _tensor(self, number: int) -> int:
        """Return the tensor of a recorded value; −1 if it has none."""
        return self._pairs[number][0] if number in self._pairs else self._inputs.get(number, -1)

    def _behind(self, value: int, operators: Sequence[str]) -> int:
        """Return the nearest node of these types before a tensor, with only small nodes between; −1 if none."""
        graph = self._graph
        first, todo, count = value, [value], 0
        while todo and count < _FARTHEST:
            value = todo.pop(0)
            node = int(graph.producer[value])
            if node < 0 or node >= graph.main_count or (value in self._aligned and value != first):
                continue
            count += 1
            op = graph.op_type(node)
            if op in operators:
                return node
            if op in _AFTER:
                read = [source for source in graph.node_inputs(node).tolist() if source >= 0]
                todo += [source for source in read if not self._is_constant[source]] or read
        return -1

    def _ahead(self, value: int, operators: Sequence[str]) -> Iterator[int]:
        """Yield the nodes of these types that read a tensor, or a quantized or cast copy of it."""
        graph = self._graph
        todo = [value]
        for read in todo:
            for node in graph.consumers(read).tolist():
                if node < graph.main_count and graph.op_type(node) in operators:
                    yield node
                elif node < graph.main_count and graph.op_type(node) in _BEFORE and len(todo) < _FARTHEST:
                    todo += graph.results(node)

    def _bias_add(self, call: int, node: int) -> int | None:
        """Return the Add between the node of a layer and its output; −1 if there is none, None if unknown."""
        out = next((self._pairs[slot.value][0] for slot in self._calls[call].outputs if slot.value in self._pairs), -1)
        if out < 0:
            op = self._graph.op_type(node)  # a product has its bias in a node of its own, unless it was fused
            return -1 if facts(op).bias >= 0 and op not in variants("MatMul") else None
        return -1 if int(self._graph.producer[out]) == node else self._behind(out, ("Add", "QLinearAdd"))

    # --- other parameters -------------------------------------------------------------------------------------------

    def _by_name(self) -> Iterator[_Weight]:
        """Yield the weights with the name of a parameter that no earlier rule found."""
        for name in self._graph.model.initializers if self._scope is None else ():
            base = name.removesuffix("_quantized")
            path, _, label = base.rpartition(".")
            tensor = self._tensors.get(base)
            if tensor is None or id(tensor) in self._known or base in self._left_out:
                continue
            node, operand = self._read(name)
            array, cls = to_numpy(tensor), self._class_around(base)
            if label == "weight" and node >= 0 and "Linear" in cls:
                array = _as_stored(array, self._graph, node)
            unknown_scale = operand is not None and operand.steps is None and base != name
            may_fold = re.match("(Lazy)?(Conv|BatchNorm)", cls) is not None
            if operand is not None and not unknown_scale and not may_fold and operand.array.shape == array.shape:
                yield _Weight(f"{self._parent(base)} → {label}", (base,), operand, array, "name", path, node)

    def _parent(self, parameter: str) -> str:
        return parameter.rpartition(".")[0] or self._recording.calls[0].root

    def _read(self, name: str) -> tuple[int, Operand | None]:
        """Return the first reader of an initializer and the weight as that reader sees it, dequantized if quantized."""
        graph, value = self._graph, self._graph.value(name)
        readers = [node for node in graph.consumers(value).tolist() if node < graph.main_count]
        if not readers:  # read by a subgraph, or unused
            return -1, None if name.endswith("_quantized") else Operand(name, graph.model.tensor(name))
        if graph.op_type(readers[0]) == "DequantizeLinear":
            value = int(graph.node_outputs(readers[0])[0])
            readers = [node for node in graph.consumers(value).tolist() if node < graph.main_count]
        if not readers:
            return -1, None
        return readers[0], weight_of(graph, readers[0], graph.node_inputs(readers[0]).tolist().index(value))

    def _by_shape(self) -> Iterator[_Weight]:
        """Yield the weights that a submodule without a rule reads: by shape, then value, then order."""
        left: dict[str, list[str]] = {}
        for name, tensor in self._parameters.items():
            owner = self._owner(name.rpartition(".")[0])
            if owner is None or self._scope not in (None, owner) or self._class_around(name) in _LAYERS:
                continue
            if id(tensor) not in self._known and name not in self._left_out and tensor.numel() > 1:
                left.setdefault(owner, []).append(name)
        for owner, names in left.items():
            nodes = [n for n in self._nodes_of(owner) if n not in self._workers and n < self._graph.main_count]
            read = ((node, operand) for node in nodes for operand in weights_at(self._graph, node))
            operands = [(node, w) for node, w in read if w.array.size > 1 and w.array.dtype.kind not in "iub"]
            pieces = [piece for name in names for piece in self._pieces(name, operands)]
            yield from self._assigned(owner, pieces, operands)

    def _owner(self, path: str) -> str | None:
        """Return the innermost submodule around a path that was called."""
        while path and path not in self._called:
            path = path.rpartition(".")[0]
        return path if path in self._called else None

    def _nodes_of(self, path: str) -> list[int]:
        """Return the nodes between the inputs and outputs of a submodule, in order of execution."""
        for number, call in enumerate(self._calls):
            if path in (call.path, *call.aliases):
                nodes, _, _ = submodule_nodes(self._recording, self._graph, self._pairs, number)
                if nodes:
                    return sorted(nodes, key=lambda node: int(self._graph.rank[node]))
        return []

    def _pieces(self, name: str, operands: Sequence[tuple[int, Operand]]) -> list[_Piece]:
        """Return a whole parameter, or the parts that operators read: query, key and value of an attention."""
        array = to_numpy(self._parameters[name])
        path, label = name.rpartition(".")[::2]
        attention = "MultiheadAttention" in (self._class_around(name), self._class_around(path))
        whole = [_Piece(label, name, array, attention)]
        if not attention or not label.startswith("in_proj") or len(array) % 3:
            return whole
        query, key, value = np.split(array, 3)
        for least, parts in (
            (1, {label: array}),
            (1, {f"{label}[query]": query, f"{label}[key, value]": np.concatenate([key, value])}),
            (3, {f"{label}[query]": query, f"{label}[key]": key, f"{label}[value]": value}),
        ):
            pieces = [_Piece(part, name, rows, attention) for part, rows in parts.items()]
            if min(sum(bool(self._orientations(piece, *operand)) for operand in operands) for piece in pieces) >= least:
                return pieces
        return whole

    def _assigned(self, path: str, pieces: list[_Piece], operands: list[tuple[int, Operand]]) -> Iterator[_Weight]:
        """Yield the weight of each piece: the only one that fits, else the nearest, else the next."""
        fits = {
            (at, to): min(options, key=lambda pair: between(pair[0], pair[1].array))
            for at, piece in enumerate(pieces)
            for to, operand in enumerate(operands)
            if (options := self._orientations(piece, *operand))
        }
        ranking = sorted((between(array, weight.array), at, to) for (at, to), (array, weight) in fits.items())
        links: dict[int, tuple[int, str]] = {}
        targets: set[int] = set()
        for distance, at, to in ranking:
            only = sum(one == at or other == to for one, other in fits) == 1
            if at not in links and to not in targets and (only or distance <= TIE_DISTANCE):
                links[at] = to, "shape" if only else "value"
                targets.add(to)
        rest = [at for at in range(len(pieces)) if at not in links]
        for at in rest:
            free = [to for one, to in fits if one == at and to not in targets]
            same = [other for other in rest if other not in links and any((other, to) in fits for to in free)]
            if free and len(free) == len(same):
                links[at] = min(free), "order"
                targets.add(min(free))
        # a part of a parameter would be mistaken for all of it
        incomplete = {pieces[at].parameter for at in range(len(pieces)) if at not in links}
        for at, (to, how) in sorted(links.items()):
            label, name, _, _ = pieces[at]
            if name not in incomplete:
                array, weight = fits[at, to]
                yield _Weight(f"{self._parent(name)} → {label}", (name,), weight, array, how, path, operands[to][0])

    def _orientations(self, piece: _Piece, node: int, operand: Operand) -> list[tuple[NDArray[Any], Operand]]:
        """Return a parameter and a weight in the same shape, in each orientation in which they may be equal."""
        array, shape = piece.array, operand.array.shape
        if array.ndim == len(shape) == 2:
            options = [(matrix, operand) for matrix in (array.T, array) if matrix.shape == shape]
            if piece.of_attention and len(options) == 2:  # only one orientation of a square matrix is right
                return [options[_is_gemm_of_transposed(self._graph, node)]]
            return options
        same = [size for size in shape if size != 1] == [size for size in array.shape if size != 1]
        return [(array, operand.map(lambda weight: weight.reshape(array.shape)))] if same else []


def _is_gemm_of_transposed(graph: Graph, node: int) -> bool:
    """Return whether a node reads the weight of a layer with its axes in the order of the layer."""
    return graph.op_type(node) in _MATMUL and bool(attribute(graph.nodes[node], "transB", 0))


def _as_stored(array: NDArray[Any], graph: Graph, node: int) -> NDArray[Any]:
    """Return the weight of a layer with the axes in the order of its operator."""
    return array if _is_gemm_of_transposed(graph, node) or graph.op_type(node) not in _MATMUL else array.T


def _fold(conv: torch.nn.Module, norm: torch.nn.Module) -> dict[str, NDArray[Any]]:
    """Return weight and bias of a convolution that includes the batch normalization after it; empty if unknown."""

    def values(part: torch.nn.Module, name: str, default: float = 0.0) -> NDArray[np.float64]:
        tensor: Any = getattr(part, name, None)
        return np.asarray(default) if tensor is None else to_numpy(tensor).astype(np.float64)

    if getattr(norm, "running_var", None) is None or getattr(conv, "weight", None) is None:
        return {}
    scale: NDArray[np.float64] = values(norm, "weight", 1.0) / np.sqrt(values(norm, "running_var") + float(norm.eps))  # type: ignore[arg-type]
    weight, by_channel = values(conv, "weight"), scale
    if type(conv).__name__.startswith("ConvTranspose"):  # axes: input channels, output channels of a group, kernel
        groups = int(conv.groups)  # type: ignore[arg-type]
        by_channel = np.repeat(scale.reshape(groups, -1), len(weight) // groups, axis=0)
    weight = weight * by_channel.reshape(*by_channel.shape, *[1] * (weight.ndim - by_channel.ndim))
    bias = (values(conv, "bias") - values(norm, "running_mean")) * scale + values(norm, "bias")
    kind = to_numpy(conv.weight).dtype  # type: ignore[arg-type]
    return {"weight": weight.astype(kind), "bias": bias.astype(kind)}
