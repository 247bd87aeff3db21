"""Compare the parameters of a torch module with the weights of its export.

A parameter is matched by how its operator uses the weight: the second input of a Linear's MatMul is the weight
transposed, an LSTM has its gates in ONNX's order, and a Conv may include a folded batch normalization, which is folded
here in float64. Then names decide, and last the shapes and values of what the nodes of a submodule read. A quantized
weight may differ by its quantization step.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched
from onnx_nb.analysis.compare.metrics import ErrorStats, between, precision
from onnx_nb.analysis.formatting import quoted, shape_text
from onnx_nb.analysis.model.tensors import attribute
from onnx_nb.analysis.pytorch.align import CLOSE, is_weight
from onnx_nb.analysis.pytorch.drilldown import submodule_nodes
from onnx_nb.analysis.pytorch.record import to_numpy
from onnx_nb.analysis.pytorch.weight_values import INTEGERS, Operand, has_bias, operator, output_of, weight_of

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.pytorch.alignment import Pairs
    from onnx_nb.analysis.pytorch.isolated_error import Settings
    from onnx_nb.analysis.pytorch.record import Call, Recording

_ROUNDED: Final = 8
"""Multiple of its type's precision by which a weight may differ."""
_FARTHEST: Final = 10
"""Nodes that are searched for the one that does the work of a layer."""
_AFTER: Final = frozenset((
    "Add", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Cast", "Flatten", "Mul", "QuantizeLinear",
    "DequantizeLinear", "QLinearAdd",
))  # fmt: skip
"""Operators that exporters and quantizers add after the operator of a layer."""
_BEFORE: Final = frozenset(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast", "Identity"))
"""Operators that they add before it."""
_WITH_BIAS: Final = frozenset(("Conv", "ConvTranspose", "Gemm", "LayerNormalization", "QLinearConv", "QGemm"))
"""Operators that have the bias of the layer themselves, if there is one."""
_MATMUL: Final = ("MatMul", "Gemm", "QLinearMatMul", "QGemm", "MatMulInteger", "DynamicQuantizeMatMul",
                  "MatMulIntegerToFloat")  # fmt: skip
_CONV: Final = ("Conv", "QLinearConv", "ConvInteger", "FusedConv")
_USUAL: Final = (("weight", 1), ("bias", 2))
_LAYERS: Final[Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]] = {
    "Linear": (_MATMUL, _USUAL),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), (_CONV, _USUAL)),
    **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), (("ConvTranspose",), _USUAL)),
    "LayerNorm": (("LayerNormalization",), _USUAL),
    "Embedding": (("Gather",), (("weight", 0),)),
    **dict.fromkeys(
        ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
        (("BatchNormalization",), (*_USUAL, ("running_mean", 3), ("running_var", 4))),
    ),
}
"""Class of a layer → the operators that do its work, and the input that each parameter is."""
_FOLDED: Final = {"weight": ("weight", "running_var"), "bias": ("bias", "running_mean")}
"""Parameter of a convolution → the parameters of the batch normalization that are folded into it."""
_GATES: Final[Mapping[str, tuple[int, ...]]] = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""Operator → for each of its gates the gate of torch: i, o, f, c of i, f, g, o; z, r, h of r, z, n."""


class Weight(NamedTuple):
    """A parameter, and the initializer that holds it."""

    label: str
    """Name of the point, such as "encoder.layer.1.dense → weight"."""
    parameters: tuple[str, ...]
    """Names in the module; several if they are folded."""
    held: Operand
    """Weight in the export."""
    expected: NDArray[Any]
    """The same weight made of the parameters."""
    how: str
    """How it was matched: "operator", "folded", "name", "shape" (the only fitting one of those that the submodule's
    nodes read), "value" or "order" (the nearest of several, or the next)."""
    scope: str
    node: int
    blocks: int = 1
    """Parts of the first axis whose order may be wrong: gates, or query, key and value."""


class _Piece(NamedTuple):
    """A parameter, or the part of it that an operator reads."""

    label: str
    parameter: str
    array: NDArray[Any]
    transposed: bool


def compare_weights(finder: WeightFinder, settings: Settings, progress: Progress | None) -> Comparison:
    """Compare the parameters that a finder knows with the weights of the export."""
    recording, graph = finder.recording, finder.graph
    found = finder.find()
    points = []
    for depth, weight in enumerate(found):
        if progress is not None:
            progress(depth / len(found), f"comparing {quoted(weight.held.initializer or weight.label)}")
        errors = ErrorStats.of(weight.expected, weight.held.array, rtol=settings.rtol, atol=settings.atol)
        points.append(
            Point(
                name=weight.label,
                reference=", ".join(weight.parameters),
                candidate=weight.held.initializer,
                matched=weight.how if weight.held.steps is None else f"{weight.how}, dequantized",
                depth=depth,
                op_type="weight",
                node=graph.names[weight.node] if weight.node >= 0 else "",
                scope=weight.scope,
                difference=_difference(weight, errors),
                cumulative=errors,
                isolated=errors,  # nothing comes before a weight
            )
        )
    missing = tuple(finder.missing())
    return Comparison(f"weights of torch {recording.cls}", graph.model.name, tuple(points), missing)


# --- differences ----------------------------------------------------------------------------------------------------


def _difference(weight: Weight, errors: ErrorStats) -> str:
    """Describe the difference of a weight beyond rounding; empty if there is none."""
    expected, actual = weight.expected, weight.held.array
    label = weight.label.rpartition(" → ")[2]
    if not weight.held.initializer:
        return f"{label} is left out, and not zero"
    if weight.held.steps is not None:
        return _difference_in_steps(label, expected, actual, weight.held.steps)
    rounding = _ROUNDED * max(precision(errors), 2.0**-23) * errors.reference_norm
    if not errors.mismatches and errors.error_norm <= rounding:
        return ""
    if _is_square(actual) and np.array_equal(expected.T, actual):
        return f"{label} is transposed"
    order = _block_order(expected, actual, weight.blocks)
    if order:
        return f"the {weight.blocks} parts of {label} are in the order {order}"
    factor = _factor(expected, actual)
    if factor:
        return f"{label} is {factor:.4g} times what it should be"
    near = np.isclose(actual.astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=0, equal_nan=True)
    many = f"{near.size - int(np.count_nonzero(near)):,} of {errors.count:,} values"
    return f"{label} differs in {many}, by at most {errors.max_abs:.3g}"


def _difference_in_steps(label: str, expected: NDArray[Any], actual: NDArray[Any], steps: NDArray[Any]) -> str:
    """Describe the difference of a quantized weight in its own steps; empty if it is at most one."""
    wanted, got = expected.astype(np.float64), actual.astype(np.float64)
    rounding = _ROUNDED * 2.0**-23 * np.maximum(np.abs(wanted), np.abs(got))
    off = np.maximum(np.abs(got - wanted) - rounding, 0)
    with np.errstate(all="ignore"):
        in_steps = np.where(off > 0, off / steps, 0)
    beyond = int(np.count_nonzero(~(in_steps <= 1)))
    if not beyond:
        return ""
    if _is_square(got) and bool((np.abs(got - wanted.T) <= steps).all()):
        return f"{label} is transposed"
    return (
        f"{label} differs in {beyond:,} of {got.size:,} values, by up to {np.nanmax(in_steps):.3g} quantization steps"
    )


def _is_square(array: NDArray[Any]) -> bool:
    return array.ndim == 2 and array.shape[0] == array.shape[1]


def _block_order(expected: NDArray[Any], actual: NDArray[Any], blocks: int) -> str:
    """Return the order in which a weight has the parts of its first axis, if nothing else differs; else empty."""
    if blocks < 2 or expected.shape != actual.shape:
        return ""
    parts = np.split(expected, blocks)
    for order in itertools.permutations(range(blocks)):
        if np.array_equal(np.concatenate([parts[place] for place in order]), actual):
            return ", ".join(str(place + 1) for place in order)
    return ""


def _factor(expected: NDArray[Any], actual: NDArray[Any]) -> float:
    """Return the number by which a weight was multiplied; 0 if there is none."""
    one, other = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
    square = float(one @ one)
    factor = float(one @ other) / square if square else 0.0
    return factor if np.allclose(one * factor, other, rtol=1e-5, atol=1e-7 * abs(one).max(initial=0.0)) else 0.0


# --- parameters and their weights -----------------------------------------------------------------------------------


class WeightFinder:
    """Finds the weight of each parameter, and the reason why there is none."""

    def __init__(
        self, module: torch.nn.Module, recording: Recording, graph: Graph, pairs: Pairs, scope: str | None
    ) -> None:
        self.recording, self.graph, self._pairs, self._scope = recording, graph, pairs, scope
        self._calls = recording.calls
        self._parts = dict(module.named_modules(remove_duplicate=False))
        self._parameters: dict[str, Any] = dict(module.named_parameters())
        self._buffers: dict[str, Any] = dict(module.named_buffers())
        self._named = dict(module.named_parameters(remove_duplicate=False))
        self._called = {path for call in self._calls for path in (call.path, *call.aliases)}
        self._makers = {slot.value: number for number, call in enumerate(self._calls) for slot in call.outputs}
        self._aligned = {value for value, _ in pairs.values()}
        self._arguments = {slot.value: slot.label for slot in self._calls[0].inputs}
        norms = {call.inputs[0].value: number for number, call in enumerate(self._calls) if _is_norm(call)}
        self._norm_after = {maker: norms[value] for value, maker in self._makers.items() if value in norms}
        """Call → the call of a batch normalization that reads its output."""
        self._known: set[int] = set()
        """Identities of the parameters whose weight is known."""
        self._workers: set[int] = set()
        """Nodes whose weights are known."""
        self._ruled: set[str] = set()
        """Paths of the layers whose node is known."""
        self._left_out: dict[str, str] = {}
        """Name of a parameter → reason why there is nothing to compare it with."""

    def find(self) -> list[Weight]:
        """Return every weight whose parameter is known; the most certain rules come first."""
        found: list[Weight] = []
        for rule in (self._of_layers, self._of_recurrent_layers, self._by_name, self._by_shape):
            for weight in rule():
                found.append(weight)
                self._workers.add(weight.node)
                self._known.update(id(self._named[name]) for name in weight.parameters if name in self._named)
        return found

    def missing(self) -> Iterator[Unmatched]:
        """Yield each parameter without a weight, with the reason; nothing if only one submodule is compared."""
        for name, tensor in self._parameters.items() if self._scope is None else ():
            if id(tensor) in self._known:
                continue
            path, label = name.rpartition(".")[::2]
            owner = self._owner(path)
            reason = self._left_out.get(name, "")
            if not reason and owner is None:
                reason = f"{_class_of(self._parts[path])} {quoted(path or 'the module itself')} was not called"
            elif not reason and owner is not None:
                reason = self._why(owner, tensor)
            yield Unmatched(f"{path or 'model'} → {label}", "reference", reason, "weight")

    def _why(self, path: str, tensor: torch.Tensor) -> str:
        """Return why a parameter of a submodule that was called has no weight."""
        if not self._nodes_of(path):
            output = f"the output of {quoted(path or 'the module itself')}"
            slots = (slot for call in self._calls if call.path == path for slot in call.outputs)
            held = next((value for value in (self._tensor(slot.value) for slot in slots) if value >= 0), -1)
            if held >= 0:
                return f"{output} was computed in advance: it is the weight {quoted(self.graph.value_names[held])}"
            return f"{output} has no tensor, so its nodes are not known"
        if not bool(tensor.any()):
            return "it is zero, and no such weight is read there: the export leaves it out"
        return f"no weight of shape {shape_text(tensor.shape)} is read there: it is folded into others"

    def _in_scope(self, path: str) -> bool:
        return self._scope in (None, path)

    # --- layers -----------------------------------------------------------------------------------------------------

    def _of_layers(self) -> Iterator[Weight]:
        """Yield the weights of layers whose output has a tensor, then of layers whose input has one."""
        for by_input in (False, True):
            for number, call in enumerate(self._calls):
                if call.cls in _LAYERS and call.path not in self._ruled and self._in_scope(call.path):
                    yield from self._of_layer(number, call, by_input=by_input)

    def _of_layer(self, number: int, call: Call, *, by_input: bool) -> Iterator[Weight]:
        operators, places = _LAYERS[call.cls]
        part = self._parts[call.path]
        node = self._reader(number, operators, part) if by_input else self._worker(number, operators)
        if node >= 0:
            norm = self._norm_after.get(number, -1) if by_input and "Conv" in call.cls else -1
            if norm >= 0 and next(self._ahead(output_of(self.graph, node), ("BatchNormalization",)), -1) < 0:
                yield from self._of_folded(number, norm, node)
                return
            self._ruled.add(call.path)
            for name, place in places:
                tensor = getattr(part, name, None)
                if tensor is not None:
                    names = (_joined(call.path, name),)
                    yield from self._at(node, place, number, call.path, name, names, to_numpy(tensor), "operator")
        elif _is_norm(call):
            conv = self._makers.get(call.inputs[0].value, -1)
            before = self._calls[conv]
            if not by_input and conv >= 0 and "Conv" in before.cls and before.cls in _LAYERS:
                node = self._worker(number, _LAYERS[before.cls][0])
                if node >= 0:
                    yield from self._of_folded(conv, number, node)

    def _of_folded(self, conv: int, norm: int, node: int) -> Iterator[Weight]:
        """Yield the weights of a convolution that includes the normalization after it."""
        path, norm_path = self._calls[conv].path, self._calls[norm].path
        self._ruled |= {path, norm_path}
        expected = _fold(self._parts[path], self._parts[norm_path])
        for name, place in _USUAL:
            if name in expected:
                names = (_joined(path, name), *(_joined(norm_path, each) for each in _FOLDED[name]))
                yield from self._at(node, place, norm, path, name, names, expected[name], "folded")

    def _at(  # noqa: PLR0917
        self,
        node: int,
        place: int,
        call: int,
        path: str,
        name: str,
        names: tuple[str, ...],
        array: NDArray[Any],
        how: str,
    ) -> Iterator[Weight]:
        """Yield the weight at an input of a layer's node."""
        graph = self.graph
        label = f"{path or 'model'} → {name}"
        held = weight_of(graph, node, place)
        if name == "bias" and held is None and not has_bias(graph, node):
            add = self._bias_add(call, node)
            if add is None:
                return
            both = [weight_of(graph, add, each) for each in (0, 1)] if add >= 0 else []
            held = next((each for each in both if each is not None), None)
            if add < 0 and array.any():
                yield Weight(label, names, Operand("", np.zeros_like(array)), array, how, path, node)
            elif add < 0:
                self._left_out |= dict.fromkeys(names, "it is zero, and the export leaves it out")
        if held is None:
            return
        wanted = _as_stored(array, graph, node) if name == "weight" else array
        if name == "bias" and held.array.size == wanted.size:
            held = held.map(lambda bias: bias.reshape(wanted.shape))
        if held.array.shape == wanted.shape:
            yield Weight(label, names, held, wanted, how, path, node)

    def _worker(self, number: int, operators: Sequence[str]) -> int:
        """Return the node that does the work of a layer, found from its output; −1 if it is not known."""
        for slot in self._calls[number].outputs:
            if slot.value in self._pairs:
                node = self._behind(self._pairs[slot.value][0], operators)
                if node >= 0:
                    return node
        return -1

    def _reader(self, number: int, operators: Sequence[str], part: torch.nn.Module) -> int:
        """Return that node, found from the layer's input; −1 if not exactly one reads a weight of this size."""
        call = self._calls[number]
        value = self._tensor(call.inputs[0].value) if call.inputs else -1
        weight: Any = getattr(part, "weight", None)
        if value < 0 or weight is None:
            return -1
        place = _LAYERS[call.cls][1][0][1]
        nodes = []
        for node in self._ahead(value, operators):
            held = weight_of(self.graph, node, place)
            if node not in self._workers and held is not None and held.array.size == weight.numel():
                nodes.append(node)
        return nodes[0] if len(nodes) == 1 else -1

    def _tensor(self, number: int) -> int:
        """Return the tensor of a recorded value; −1 if it has none."""
        if number in self._pairs:
            return self._pairs[number][0]
        names: dict[str, int] = {self.graph.value_names[value]: value for value in self.graph.inputs.tolist()}
        return names.get(self._arguments.get(number, ""), -1)

    def _behind(self, value: int, operators: Sequence[str]) -> int:
        """Return the nearest node of these types before a tensor, past small nodes only; −1 if there is none."""
        graph = self.graph
        first, todo, seen = value, [value], 0
        while todo and seen < _FARTHEST:
            value = todo.pop(0)
            node = int(graph.producer[value])
            if node < 0 or node >= graph.main_count or (value in self._aligned and value != first):
                continue
            seen += 1
            op = operator(graph, node)
            if op in operators:
                return node
            if op in _AFTER:
                read = [each for each in graph.node_inputs(node).tolist() if each >= 0]
                todo += [each for each in read if not is_weight(graph, each)] or read
        return -1

    def _ahead(self, value: int, operators: Sequence[str]) -> Iterator[int]:
        """Yield the nodes of these types that read a tensor, or a quantized or cast copy of it."""
        graph = self.graph
        todo = [value]
        for read in todo:
            for node in graph.consumers(read).tolist():
                if node >= graph.main_count:
                    continue
                op = operator(graph, node)
                if op in operators:
                    yield node
                elif op in _BEFORE and len(todo) < _FARTHEST:
                    todo += [each for each in graph.node_outputs(node).tolist() if each >= 0]

    def _bias_add(self, call: int, node: int) -> int | None:
        """Return the Add between the node of a layer and its output; −1 if there is none, None if it is not known."""
        for slot in self._calls[call].outputs:
            if slot.value in self._pairs:
                value = self._pairs[slot.value][0]
                return -1 if int(self.graph.producer[value]) == node else self._behind(value, ("Add", "QLinearAdd"))
        return -1 if operator(self.graph, node) in _WITH_BIAS else None

    # --- recurrent layers -------------------------------------------------------------------------------------------

    def _of_recurrent_layers(self) -> Iterator[Weight]:
        """Yield the weights of LSTM, GRU and RNN, whose nodes and layers have the same order."""
        graph = self.graph
        for kind, gates in _GATES.items():
            operators = (kind, f"DynamicQuantize{kind}")
            nodes = [node for node in range(graph.main_count) if operator(graph, node) in operators]
            calls = [call for call in self._calls if call.cls == kind]
            if not nodes or not calls:
                continue
            nodes.sort(key=lambda node: int(graph.rank[node]))
            wanted = [(call.path, *layer) for call in calls for layer in _recurrent_layers(self._parts[call.path])]
            there = [(node, *direction) for node in nodes for direction in enumerate(_directions(graph, node))]
            if [layer[2] for layer in wanted] != [direction[2] for direction in there]:
                reason = f"the export has {len(there):,} {kind} passes, and the module {len(wanted):,}"
                for call in calls:
                    names = dict(self._parts[call.path].named_parameters())
                    self._left_out |= {_joined(call.path, name): reason for name in names}
                continue
            done: set[tuple[str, int, str]] = set()
            for (path, layer, direction), (node, place, _) in zip(wanted, there, strict=True):
                if (path, layer, direction) not in done and self._in_scope(path):
                    done.add((path, layer, direction))
                    suffix = f"_l{layer}{'_reverse' if direction == 'reverse' else ''}"
                    yield from self._of_gates(path, suffix, node, place, gates)

    def _of_gates(self, path: str, suffix: str, node: int, place: int, gates: tuple[int, ...]) -> Iterator[Weight]:
        """Yield the weights of one layer in one direction, with torch's gates in the order of the operator."""
        for name, slot in (("weight_ih", 1), ("weight_hh", 2), ("bias_ih", 3), ("bias_hh", 3)):
            tensor = getattr(self._parts[path], name + suffix, None)
            held = weight_of(self.graph, node, slot)
            if tensor is None or held is None or held.array.ndim < 2 or place >= len(held.array):
                continue
            array = to_numpy(tensor)
            blocks = np.split(array, len(gates))
            wanted = np.concatenate([blocks[gate] for gate in gates])
            held = held.part(place)
            if slot == 3:
                half = slice(len(array), None) if name == "bias_hh" else slice(len(array))
                held = held.part(half)
            elif operator(self.graph, node).startswith("Dynamic"):
                held = held.map(np.transpose)
            if held.array.shape == wanted.shape:
                label, names = f"{path or 'model'} → {name}{suffix}", (_joined(path, name + suffix),)
                yield Weight(label, names, held, wanted, "operator", path, node, len(gates))

    # --- other parameters -------------------------------------------------------------------------------------------

    def _by_name(self) -> Iterator[Weight]:
        """Yield the weights with the name of a parameter that no rule above has found."""
        graph = self.graph
        folded = {path for path, part in self._parts.items() if re.match("(Lazy)?(Conv|BatchNorm)", _class_of(part))}
        everything = {**self._parameters, **self._buffers}
        for name in graph.model.initializers if self._scope is None else ():
            own = name.removesuffix("_quantized")
            path, _, label = own.rpartition(".")
            tensor = everything.get(own)
            if tensor is None or path in folded or id(tensor) in self._known:
                continue
            node, held = self._read(name)
            array = to_numpy(tensor)
            if label == "weight" and node >= 0 and "Linear" in _class_of(self._parts[path]):
                array = _as_stored(array, graph, node)
            unknown_scale = held is not None and held.steps is None and own != name
            if held is not None and not unknown_scale and held.array.shape == array.shape:
                yield Weight(f"{path or 'model'} → {label}", (own,), held, array, "name", path, node)

    def _read(self, name: str) -> tuple[int, Operand | None]:
        """Return the first reader of an initializer and the weight as it reads it, dequantized if it is."""
        graph, value = self.graph, self.graph.value(name)
        readers = [node for node in graph.consumers(value).tolist() if node < graph.main_count]
        if not readers:  # read by a subgraph, or unused
            return -1, None if name.endswith("_quantized") else Operand(name, graph.model.tensor(name))
        for _ in range(2):
            if not readers or readers[0] >= graph.main_count:
                break
            if operator(graph, readers[0]) != "DequantizeLinear":
                return readers[0], weight_of(graph, readers[0], graph.node_inputs(readers[0]).tolist().index(value))
            value = output_of(graph, readers[0])
            readers = graph.consumers(value).tolist()
        return -1, None

    def _by_shape(self) -> Iterator[Weight]:
        """Yield the weights that a submodule without a rule reads: by shape, then value, then order."""
        left: dict[str, list[str]] = {}
        for name, tensor in self._parameters.items():
            path = name.rpartition(".")[0]
            owner = self._owner(path)
            known = id(tensor) in self._known or name in self._left_out or tensor.numel() < 2
            if (
                owner is not None
                and not known
                and self._in_scope(owner)
                and _class_of(self._parts[path]) not in _LAYERS
            ):
                left.setdefault(owner, []).append(name)
        for owner, names in left.items():
            operands = list(self._operands(owner))
            pieces = [piece for name in names for piece in self._pieces(name, [held for _, held in operands])]
            yield from self._assigned(owner, pieces, operands)

    def _owner(self, path: str) -> str | None:
        """Return the innermost submodule around a path that was called."""
        while path not in self._called:
            if not path:
                return None
            path = path.rpartition(".")[0]
        return path

    def _nodes_of(self, path: str) -> list[int]:
        """Return the nodes between the inputs and outputs of a submodule, in order of execution."""
        for number, call in enumerate(self._calls):
            if path in (call.path, *call.aliases):
                nodes, _ = submodule_nodes(self.recording, self.graph, self._pairs, number)
                if nodes:
                    return sorted(nodes, key=lambda node: int(self.graph.rank[node]))
        return []

    def _operands(self, path: str) -> Iterator[tuple[int, Operand]]:
        """Yield the nodes of a submodule that read weights without a known parameter, with these weights."""
        for node in self._nodes_of(path):
            if node in self._workers or node >= self.graph.main_count:
                continue
            places = (1, 2) if operator(self.graph, node) in INTEGERS else range(len(self.graph.node_inputs(node)))
            for place in places:
                held = weight_of(self.graph, node, place)
                if held is not None and held.array.size > 1 and held.array.dtype.kind not in "iub":
                    yield node, held

    def _pieces(self, name: str, operands: Sequence[Operand]) -> list[_Piece]:
        """Return a parameter as a whole, or in the parts that operators read: query, key and value of an attention."""
        array = to_numpy(self._parameters[name])
        path, label = name.rpartition(".")[::2]
        around = (_class_of(self._parts[path]), _class_of(self._parts[path.rpartition(".")[0]]))
        attention = "MultiheadAttention" in around
        whole = [_Piece(label, name, array, transposed=attention)]
        if not attention or not label.startswith("in_proj") or len(array) % 3:
            return whole
        parts = np.split(array, 3)
        thirds = [
            _Piece(f"{label}[{part}]", name, each, transposed=True)
            for part, each in zip(("query", "key", "value"), parts, strict=True)
        ]
        two = [thirds[0], _Piece(f"{label}[key, value]", name, np.concatenate(parts[1:]), transposed=True)]
        for pieces in (whole, two, thirds):
            fitting = [sum(bool(_orientations(piece, held)) for held in operands) for piece in pieces]
            if min(fitting) >= (3 if pieces is thirds else 1):
                return pieces
        return whole

    def _assigned(
        self, path: str, pieces: Sequence[_Piece], operands: Sequence[tuple[int, Operand]]
    ) -> Iterator[Weight]:
        """Yield the weight of each piece: the only one that fits, else the nearest, else the next."""
        fits = {
            (at, to): min(found, key=lambda pair: between(pair[0], pair[1].array))
            for at, piece in enumerate(pieces)
            for to, (_, held) in enumerate(operands)
            if (found := _orientations(piece, held))
        }
        ranked = sorted((between(array, held.array), at, to) for (at, to), (array, held) in fits.items())
        chosen: dict[int, tuple[int, str]] = {}
        taken: set[int] = set()
        for distance, at, to in ranked:
            only = sum(one == at or other == to for one, other in fits) == 1
            if at not in chosen and to not in taken and (only or distance <= CLOSE):
                chosen[at] = to, "shape" if only else "value"
                taken.add(to)
        rest = [at for at in range(len(pieces)) if at not in chosen]
        for at in rest:
            free = [to for one, to in fits if one == at and to not in taken]
            same = [other for other in rest if other not in chosen and any((other, to) in fits for to in free)]
            if free and len(free) == len(same):
                chosen[at] = min(free), "order"
                taken.add(min(free))
        # a part of a parameter would pass for all of it
        incomplete = {pieces[at].parameter for at in range(len(pieces)) if at not in chosen}
        for at, (to, how) in sorted(chosen.items()):
            label, name, _, _ = pieces[at]
            if name not in incomplete:
                array, held = fits[at, to]
                parent = name.rpartition(".")[0] or "model"
                yield Weight(f"{parent} → {label}", (name,), held, array, how, path, operands[to][0], 3)


def _orientations(piece: _Piece, held: Operand) -> list[tuple[NDArray[Any], Operand]]:
    """Return a parameter and a weight in one shape, in each orientation in which they may be equal."""
    array = piece.array
    if array.ndim == 2 and held.array.ndim == 2:
        found = [(array.T, held)] if held.array.shape == array.T.shape else []
        if held.array.shape == array.shape and (not piece.transposed or not found):
            found.append((array, held))
        return found
    same = [size for size in held.array.shape if size != 1] == [size for size in array.shape if size != 1]
    return [(array, held.map(lambda weight: weight.reshape(array.shape)))] if same else []


def _recurrent_layers(part: torch.nn.Module) -> Iterator[tuple[int, str]]:
    """Yield the layers of an LSTM and their directions in the order in which they are computed."""
    for layer in range(int(part.num_layers)):  # type: ignore[arg-type]
        yield layer, "forward"
        if part.bidirectional:
            yield layer, "reverse"


def _directions(graph: Graph, node: int) -> tuple[str, ...]:
    direction = attribute(graph.nodes[node], "direction", b"forward").decode(errors="replace")
    return ("forward", "reverse") if direction == "bidirectional" else (direction,)


def _is_norm(call: Call) -> bool:
    return call.cls.startswith("BatchNorm") and len(call.inputs) > 0


def _class_of(part: torch.nn.Module) -> str:
    return type(part).__name__


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _as_stored(array: NDArray[Any], graph: Graph, node: int) -> NDArray[Any]:
    """Return the weight of a layer with its axes as an operator reads them."""
    op = operator(graph, node)
    gemm = op in ("Gemm", "QGemm") and attribute(graph.nodes[node], "transB", 0)
    return array if gemm or op not in _MATMUL else array.T


def _fold(conv: torch.nn.Module, norm: torch.nn.Module) -> dict[str, NDArray[Any]]:
    """Return weight and bias of a convolution that includes the batch normalization after it; empty if unknown."""

    def values(part: torch.nn.Module, name: str, default: float = 0.0) -> NDArray[np.float64]:
        tensor: Any = getattr(part, name, None)
        return np.asarray(default) if tensor is None else to_numpy(tensor).astype(np.float64)

    if getattr(norm, "running_var", None) is None or getattr(conv, "weight", None) is None:
        return {}
    scale: NDArray[np.float64] = values(norm, "weight", 1.0) / np.sqrt(values(norm, "running_var") + float(norm.eps))  # type: ignore[arg-type]
    weight = values(conv, "weight")
    if _class_of(conv).startswith("ConvTranspose"):  # input channels, output channels of a group, kernel
        groups = int(conv.groups)  # type: ignore[arg-type]
        split = weight.reshape(groups, -1, *weight.shape[1:]) * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
        weight = split.reshape(weight.shape)
    else:
        weight = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    bias = (values(conv, "bias") - values(norm, "running_mean")) * scale + values(norm, "bias")
    kind = to_numpy(conv.weight).dtype  # type: ignore[arg-type]
    return {"weight": weight.astype(kind), "bias": bias.astype(kind)}
