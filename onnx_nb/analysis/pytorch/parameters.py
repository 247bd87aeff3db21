"""Which weights of an export are which parameters of its torch module.

What an operator does with an input says what it is: the second of a MatMul behind a Linear is its weight, turned; the
gates of an LSTM stand in ONNX's order; a Conv behind a batch normalization holds both, folded, which is computed here
in float64. Names count only where no such rule speaks, and after them shapes, of what is read where a module is
computed. What has no weight says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.comparison import Unmatched
from onnx_nb.analysis.compare.distances import between
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.graph import INITIALIZER, Graph
from onnx_nb.analysis.model.nodes import attribute
from onnx_nb.analysis.pytorch.alignment import CLOSE
from onnx_nb.analysis.pytorch.drilldown import between_tensors
from onnx_nb.analysis.pytorch.operands import INTEGERS, Operand, has_bias, operator, weight_of
from onnx_nb.analysis.pytorch.record import to_numpy

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.pytorch.alignment import Match
    from onnx_nb.analysis.pytorch.record import Call, Recording

_BEHIND: Final = frozenset((
    "Add", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Cast", "Flatten", "Mul", "QuantizeLinear",
    "DequantizeLinear", "QLinearAdd",
))  # fmt: skip
"""What an exporter or a quantizer puts behind the operator that does a layer's work."""
_BEFORE: Final = frozenset(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast", "Identity"))
"""And before it."""
_FARTHEST: Final = 10
"""So many nodes are looked at for the one that does the work."""
_NORM: Final = (("weight", 1), ("bias", 2), ("running_mean", 3), ("running_var", 4))
_USUAL: Final = _NORM[:2]
_MATMUL: Final = ("MatMul", "Gemm", "QLinearMatMul", "QGemm", "MatMulInteger", "DynamicQuantizeMatMul",
                  "MatMulIntegerToFloat")  # fmt: skip
_CONV: Final = ("Conv", "QLinearConv", "ConvInteger", "FusedConv")
_PLACES: Final[Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]] = {
    "Linear": (_MATMUL, _USUAL),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), (_CONV, _USUAL)),
    **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), (("ConvTranspose",), _USUAL)),
    "LayerNorm": (("LayerNormalization",), _USUAL),
    "Embedding": (("Gather",), (("weight", 0),)),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), (("BatchNormalization",), _NORM)),
}
"""Class of a module → the operators that do its work, and which of their inputs is which parameter."""
_FOLDED: Final = {"weight": ("weight", "running_var"), "bias": ("bias", "running_mean")}
"""What of a batch normalization is in which parameter of the convolution in front of it."""
_WITH_BIAS: Final = frozenset(("Conv", "ConvTranspose", "Gemm", "LayerNormalization", "QLinearConv", "QGemm"))
"""Operators that have a bias themselves, or none is added."""
_GATES: Final[Mapping[str, tuple[int, ...]]] = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""Operator → which of torch's gates each of its own is: i, o, f, c of i, f, g, o; z, r, h of r, z, n."""


class Weight(NamedTuple):
    """A parameter, and the initializer that holds it."""

    label: str
    """As "encoder.layer.1.dense → weight"."""
    parameters: tuple[str, ...]
    """Their names in the module: several where they are folded."""
    held: Operand
    """What the export has."""
    expected: NDArray[Any]
    """What that should be."""
    how: str
    """"operator", "folded", "name", "shape" (of what the submodule's nodes read, the only one that fits), "value" or
    "order" (of several that fit the nearest, or the next)."""
    scope: str
    node: int
    blocks: int = 1
    """Into so many parts the first axis is divided that may be in the wrong order: gates, or query, key and value."""


class Finder:
    """Finds the weights, and knows which parameters are left."""

    def __init__(
        self,
        module: torch.nn.Module,
        recording: Recording,
        graph: Graph,
        pairs: Mapping[int, tuple[int, Match]],
        scope: str | None,
    ) -> None:
        self._recording, self._graph, self._pairs, self._scope = recording, graph, pairs, scope
        self._parts = dict(module.named_modules(remove_duplicate=False))
        self._parameters: dict[str, Any] = dict(module.named_parameters())
        self._buffers: dict[str, Any] = dict(module.named_buffers())
        self._named = dict(module.named_parameters(remove_duplicate=False))
        self._makers = {slot.value: number for number, call in enumerate(recording.calls) for slot in call.outputs}
        self._stops = {value for value, _ in pairs.values()}
        self._given = {slot.label: slot.value for slot in recording.calls[0].inputs}
        self._known: set[int] = set()
        """Identities of the parameters that have their weight, or a reason."""
        self._workers: set[int] = set()
        """Nodes whose weights are known."""
        self._ruled: set[str] = set()
        """Paths of the layers whose operator is known."""
        readers = {call.inputs[0].value: number for number, call in enumerate(recording.calls) if _is_norm(call)}
        self._normalized = {maker: readers[value] for value, maker in self._makers.items() if value in readers}
        """Call → that of a batch normalization which got what it gave."""
        self._left_out: dict[str, str] = {}
        """Name of a parameter → why there is nothing to compare it with."""

    def all(self) -> list[Weight]:
        """Return every weight of which the parameter is known, the surest rules first."""
        found: list[Weight] = []
        for rule in (self._layers, self._recurrent, self._by_name, self._by_shape):
            for weight in rule():
                found.append(weight)
                self._workers.add(weight.node)
                for name in weight.parameters:
                    self._know(name)
        return found

    def missing(self) -> Iterator[Unmatched]:
        """Describe, of each parameter that is not compared why."""
        called = {path for call in self._recording.calls for path in (call.path, *call.aliases)}
        for name, tensor in self._parameters.items():
            if id(tensor) in self._known:
                continue
            path, label = name.rpartition(".")[::2]
            owner = self._owner(path, called)
            reason = self._left_out.get(name, "")
            if not reason and owner is None:
                reason = f"{_cls(self._parts[path])} {quoted(path or 'the module itself')} was not called"
            elif not reason and owner is not None:
                reason = self._why(owner, tensor)
            yield Unmatched(f"{path or 'model'} → {label}", "reference", reason, "weight")

    def _why(self, path: str, tensor: torch.Tensor) -> str:
        """Return why a parameter of a submodule that was called has no weight."""
        gave = f"what {quoted(path or 'the module itself')} gave"
        if not self._region(path):
            held = [
                self._tensor(slot.value) for call in self._recording.calls if call.path == path for slot in call.outputs
            ]
            there = [self._graph.value_names[value] for value in held if value >= 0]
            computed = f"{gave} was computed in advance: it is the weight {quoted(there[0])}" if there else ""
            return computed or f"{gave} has no tensor, by which its nodes are known"
        if not bool(tensor.any()):
            return "it is zero, and nothing like it is read there: the export leaves it out"
        shape = "×".join(map(str, tensor.shape)) or "a scalar"
        return f"no weight of {shape} is read there: it is folded into others"

    def _know(self, name: str) -> None:
        tensor = self._named.get(name)
        if tensor is not None:
            self._known.add(id(tensor))

    def _in_scope(self, path: str) -> bool:
        return self._scope in (None, path)

    # --- layers whose operator says what its inputs are -------------------------------------------------------------

    def _layers(self) -> Iterator[Weight]:
        """Return those of layers that have a tensor, then those of layers whose input has one."""
        for given in (False, True):
            for number, call in enumerate(self._recording.calls):
                if call.cls in _PLACES and call.path not in self._ruled and self._in_scope(call.path):
                    yield from self._layer(number, call, given=given)

    def _layer(self, number: int, call: Call, *, given: bool) -> Iterator[Weight]:
        operators, places = _PLACES[call.cls]
        part = self._parts[call.path]
        node = self._given_to(number, operators, part) if given else self._worker(number, operators)
        if node >= 0:
            norm = self._normalized.get(number, -1) if given and "Conv" in call.cls else -1
            if norm >= 0 and next(self._ahead(int(self._graph.node_outputs(node)[0]), ("BatchNormalization",)), -1) < 0:
                yield from self._fused(number, norm, node)
                return
            self._ruled.add(call.path)
            for name, place in places:
                array = getattr(part, name, None)
                if array is not None:
                    names = (_joined(call.path, name),)
                    yield from self._placed(call.path, name, names, to_numpy(array), "operator", node, place, number)
        elif call.cls.startswith("BatchNorm") and call.inputs:
            conv = self._makers.get(call.inputs[0].value, -1)
            before = self._recording.calls[conv]
            if conv >= 0 and "Conv" in before.cls and before.cls in _PLACES:
                node = -1 if given else self._worker(number, _PLACES[before.cls][0])
                if node >= 0:
                    yield from self._fused(conv, number, node)

    def _fused(self, conv: int, norm: int, node: int) -> Iterator[Weight]:
        """Return the weights of a convolution that does also what the normalization behind it did."""
        calls = self._recording.calls
        path, normal = calls[conv].path, calls[norm].path
        self._ruled |= {path, normal}
        expected = _folded(self._parts[path], self._parts[normal])
        for name, place in _PLACES[calls[conv].cls][1]:
            if name in expected:
                names = (_joined(path, name), *(_joined(normal, each) for each in _FOLDED[name]))
                yield from self._placed(path, name, names, expected[name], "folded", node, place, norm)

    def _placed(  # noqa: PLR0917
        self,
        path: str,
        name: str,
        names: tuple[str, ...],
        array: NDArray[Any],
        how: str,
        node: int,
        place: int,
        call: int,
    ) -> Iterator[Weight]:
        """Return the weight that an input of a layer's node is."""
        graph = self._graph
        label = f"{path or 'model'} → {name}"
        held = weight_of(graph, node, place)
        if name == "bias" and held is None and not has_bias(graph, node):
            adding = self._adding(call, node)
            if adding is None:
                return
            both = [weight_of(graph, adding, each) for each in (0, 1)] if adding >= 0 else []
            held = next((each for each in both if each is not None), None)
            if adding < 0 and array.any():
                yield Weight(label, names, Operand("", np.zeros_like(array), None), array, how, path, node)
            elif adding < 0:
                self._left_out |= dict.fromkeys(names, "it is zero, and the export leaves it out")
        if held is None:
            return
        wanted = _as_stored(array, graph, node) if name == "weight" else array
        if name == "bias" and held.array.size == wanted.size:
            held = held.shaped(wanted.shape)
        if held.array.shape == wanted.shape:
            yield Weight(label, names, held, wanted, how, path, node)

    def _worker(self, number: int, operators: Sequence[str]) -> int:
        """Return the node that does the work of a layer, by what the layer gave; −1 if that is not known."""
        for slot in self._recording.calls[number].outputs:
            if slot.value in self._pairs:
                node = self._behind(self._pairs[slot.value][0], operators)
                if node >= 0:
                    return node
        return -1

    def _given_to(self, number: int, operators: Sequence[str], part: torch.nn.Module) -> int:
        """Return it by what the layer got; −1 if not exactly one node of such a size reads it."""
        call = self._recording.calls[number]
        value = self._tensor(call.inputs[0].value) if call.inputs else -1
        weight: Any = getattr(part, "weight", None)
        if value < 0 or weight is None:
            return -1
        place = _PLACES[call.cls][1][0][1]
        nodes = []
        for node in self._ahead(value, operators):
            held = weight_of(self._graph, node, place)
            if node not in self._workers and held is not None and held.array.size == weight.numel():
                nodes.append(node)
        return nodes[0] if len(nodes) == 1 else -1

    def _tensor(self, number: int) -> int:
        """Return the tensor of a recorded value; −1 if it has none."""
        if number in self._pairs:
            return self._pairs[number][0]
        label = next((label for label, value in self._given.items() if value == number), "")
        names: dict[str, int] = {self._graph.value_names[value]: value for value in self._graph.inputs.tolist()}
        return names.get(label, -1)

    def _behind(self, value: int, operators: Sequence[str]) -> int:
        """Return the node of one of some operators that leads to a value over hardly anything; −1 if there is none."""
        graph = self._graph
        first, todo, seen = value, [value], 0
        while todo and seen < _FARTHEST:
            value = todo.pop(0)
            node = int(graph.producer[value])
            if node < 0 or node >= graph.main_count or (value in self._stops and value != first):
                continue
            seen += 1
            op = operator(graph, node)
            if op in operators:
                return node
            if op in _BEHIND:
                read = [each for each in graph.node_inputs(node).tolist() if each >= 0]
                todo += [each for each in read if not self._is_weight(each)] or read
        return -1

    def _ahead(self, value: int, operators: Sequence[str]) -> Iterator[int]:
        """Return the nodes of some operators that read a value, or what a quantizer makes of it."""
        graph = self._graph
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

    def _adding(self, call: int, node: int) -> int | None:
        """Return the Add between the node of a layer and its output; −1 if there is none, None if that is not known."""
        for slot in self._recording.calls[call].outputs:
            if slot.value in self._pairs:
                value = self._pairs[slot.value][0]
                own = int(self._graph.producer[value]) == node
                return -1 if own else self._behind(value, ("Add", "QLinearAdd"))
        return -1 if operator(self._graph, node) in _WITH_BIAS else None

    def _is_weight(self, value: int) -> bool:
        graph = self._graph
        maker = int(graph.producer[value])
        return bool(graph.folded[maker]) if maker >= 0 else graph.value_kind[value] == INITIALIZER

    # --- what is repacked -------------------------------------------------------------------------------------------

    def _recurrent(self) -> Iterator[Weight]:
        """Return the weights of LSTM, GRU and RNN, whose nodes and layers are in the same order."""
        graph, recording = self._graph, self._recording
        for kind, gates in _GATES.items():
            nodes = [
                node for node in range(graph.main_count) if operator(graph, node) in (kind, f"DynamicQuantize{kind}")
            ]
            calls = [call for call in recording.calls if call.cls == kind]
            if not nodes or not calls:
                continue
            nodes.sort(key=lambda node: int(graph.rank[node]))
            wanted = [(call.path, layer, way) for call in calls for layer, way in _layers_of(self._parts[call.path])]
            there = [(node, place, way) for node in nodes for place, way in enumerate(_ways(graph, node))]
            if [way for _, _, way in wanted] != [way for _, _, way in there]:
                reason = f"the export has {len(there):,} {kind} passes, and the module {len(wanted):,}"
                for path, _, _ in wanted:
                    self._left_out |= {
                        _joined(path, name): reason for name in dict(self._parts[path].named_parameters())
                    }
                continue
            done: set[tuple[str, int, str]] = set()
            for (path, layer, way), (node, place, _) in zip(wanted, there, strict=True):
                if (path, layer, way) not in done and self._in_scope(path):
                    done.add((path, layer, way))
                    yield from self._gates(
                        path, f"_l{layer}{'_reverse' if way == 'reverse' else ''}", node, place, gates
                    )

    def _gates(self, path: str, suffix: str, node: int, place: int, gates: tuple[int, ...]) -> Iterator[Weight]:
        """Return the weights of one layer in one direction."""
        graph, part = self._graph, self._parts[path]
        biases = weight_of(graph, node, 3)
        for name, slot in (("weight_ih", 1), ("weight_hh", 2), ("bias_ih", 3), ("bias_hh", 3)):
            tensor = getattr(part, name + suffix, None)
            if tensor is None:
                continue
            array = to_numpy(tensor)
            blocks = np.split(array, len(gates))
            wanted = np.concatenate([blocks[gate] for gate in gates])
            held = biases if slot == 3 else weight_of(graph, node, slot)
            if held is None or held.array.ndim < 2 or place >= len(held.array):
                continue
            if slot == 3:
                half = len(array)
                start = half if name == "bias_hh" else 0
                held = held.part((place, slice(start, start + half)))
            else:
                held = held.part(place)
                held = held.turned() if operator(graph, node).startswith("Dynamic") else held
            if held.array.shape == wanted.shape:
                names = (_joined(path, name + suffix),)
                label = f"{path or 'model'} → {name}{suffix}"
                yield Weight(label, names, held, wanted, "operator", path, node, len(gates))

    def _by_name(self) -> Iterator[Weight]:
        """Return the weights that bear the name of a parameter, where no rule says what is done with them."""
        graph = self._graph
        folded = {path for path, part in self._parts.items() if re.match("(Lazy)?(Conv|BatchNorm)", _cls(part))}
        everything = {**self._parameters, **self._buffers}
        for name in graph.model.initializers if self._scope is None else ():
            own = name.removesuffix("_quantized")
            path, _, label = own.rpartition(".")
            tensor = everything.get(own)
            if tensor is None or path in folded or id(tensor) in self._known:
                continue
            readers = [node for node in graph.consumers(graph.value(name)).tolist() if node < graph.main_count]
            node, held = self._read_by(readers, name)
            array = to_numpy(tensor)
            if label == "weight" and node >= 0 and "Linear" in _cls(self._parts[path]):
                array = _as_stored(array, graph, node)
            raw = held is not None and held.steps is None and own != name  # integers of an unknown scale
            if held is not None and not raw and held.array.shape == array.shape:
                yield Weight(f"{path or 'model'} → {label}", (own,), held, array, "name", path, node)

    def _read_by(self, readers: Sequence[int], name: str) -> tuple[int, Operand | None]:
        """Return who reads a weight, and that as it is, or dequantized if that is what is done with it."""
        graph, value = self._graph, self._graph.value(name)
        if not readers:  # read by a body, or by nothing
            return -1, None if name.endswith("_quantized") else Operand(name, graph.model.tensor(name), None)
        for _ in range(2):
            if not readers or readers[0] >= graph.main_count:
                break
            place = graph.node_inputs(readers[0]).tolist().index(value)
            if operator(graph, readers[0]) != "DequantizeLinear":
                return readers[0], weight_of(graph, readers[0], place)
            value = int(graph.node_outputs(readers[0])[0])
            readers = graph.consumers(value).tolist()
        return -1, None

    def _by_shape(self) -> Iterator[Weight]:
        """Return weights that are read where a module without a rule is computed: by shape, then value, then order."""
        called = {path for call in self._recording.calls for path in (call.path, *call.aliases)}
        left: dict[str, list[str]] = {}
        for name, tensor in self._parameters.items():
            path = name.rpartition(".")[0]
            owner = self._owner(path, called)
            known = id(tensor) in self._known or name in self._left_out or tensor.numel() < 2
            if owner is not None and not known and self._in_scope(owner) and _cls(self._parts[path]) not in _PLACES:
                left.setdefault(owner, []).append(name)
        for owner, names in left.items():
            operands = list(self._operands(owner))
            pieces = [piece for name in names for piece in self._pieces(name, operands)]
            yield from self._assigned(owner, pieces, operands)

    def _owner(self, path: str, called: set[str]) -> str | None:
        """Return the innermost submodule around a path that was called."""
        while path not in called:
            if not path:
                return None
            path = path.rpartition(".")[0]
        return path

    def _region(self, path: str) -> list[int]:
        """Return the nodes between what a submodule got and gave, in order of execution."""
        for number, call in enumerate(self._recording.calls):
            if path in (call.path, *call.aliases):
                nodes = between_tensors(self._recording, self._graph, self._pairs, number)
                if nodes:
                    return sorted(nodes, key=lambda node: int(self._graph.rank[node]))
        return []

    def _operands(self, path: str) -> Iterator[tuple[int, Operand]]:
        """Return the weights that a submodule's nodes read, of which nothing is known yet."""
        for node in self._region(path):
            if node in self._workers or node >= self._graph.main_count:
                continue
            places = (1, 2) if operator(self._graph, node) in INTEGERS else range(len(self._graph.node_inputs(node)))
            for place in places:
                held = weight_of(self._graph, node, place)
                if held is not None and held.array.size > 1 and held.array.dtype.kind not in "iub":
                    yield node, held

    def _pieces(self, name: str, operands: Sequence[tuple[int, Operand]]) -> list[tuple[str, str, NDArray[Any], bool]]:
        """Return a parameter whole or in the parts that operators read: label, name, values, whether transposed."""
        array = to_numpy(self._parameters[name])
        path, label = name.rpartition(".")[::2]
        attention = "MultiheadAttention" in (_cls(self._parts[path]), _cls(self._parts[path.rpartition(".")[0]]))
        whole = [(label, name, array, attention)]
        if not attention or not label.startswith("in_proj") or len(array) % 3:
            return whole
        query, key, value = np.split(array, 3)
        thirds = [
            (f"{label}[{part}]", name, each, True) for part, each in zip(_PARTS, (query, key, value), strict=True)
        ]
        two = [thirds[0], (f"{label}[key, value]", name, np.concatenate([key, value]), True)]
        for pieces in (whole, two, thirds):
            fitting = [
                sum(bool(_oriented(held, each, turned)) for _, held in operands) for _, _, each, turned in pieces
            ]
            if min(fitting) >= (3 if pieces is thirds else 1):
                return pieces
        return whole

    def _assigned(
        self,
        path: str,
        pieces: Sequence[tuple[str, str, NDArray[Any], bool]],
        operands: Sequence[tuple[int, Operand]],
    ) -> Iterator[Weight]:
        """Decide which weight is which piece: the only one that fits, else the nearest, else the next."""
        fits = {
            (at, to): min(found, key=lambda pair: between(pair[0], pair[1].array))
            for at, (_, _, array, turned) in enumerate(pieces)
            for to, (_, held) in enumerate(operands)
            if (found := _oriented(held, array, turned))
        }
        apart = sorted((between(array, held.array), at, to) for (at, to), (array, held) in fits.items())
        rivals = [sum(one == at for one, _ in fits) for at in range(len(pieces))]
        wanted = [sum(other == to for _, other in fits) for to in range(len(operands))]
        chosen: dict[int, tuple[int, str]] = {}
        taken: set[int] = set()
        for distance, at, to in apart:
            alone = rivals[at] == 1 and wanted[to] == 1
            if at not in chosen and to not in taken and (alone or distance <= CLOSE):
                chosen[at] = to, "shape" if alone else "value"
                taken.add(to)
        rest = [at for at in range(len(pieces)) if at not in chosen]
        for at in rest:
            free = [to for one, to in fits if one == at and to not in taken]
            same = [other for other in rest if other not in chosen and any((other, to) in fits for to in free)]
            if free and len(free) == len(same):
                chosen[at] = min(free), "order"
                taken.add(min(free))
        lacking = {pieces[at][1] for at in range(len(pieces)) if at not in chosen}
        for at, (to, how) in sorted(chosen.items()):
            label, name, _, _ = pieces[at]
            if name in lacking:  # a part of a parameter would pass for all of it
                continue
            node, _ = operands[to]
            array, held = fits[at, to]
            parent = name.rpartition(".")[0]
            yield Weight(f"{parent or 'model'} → {label}", (name,), held, array, how, path, node, 3)


_PARTS: Final = ("query", "key", "value")


def _oriented(held: Operand, array: NDArray[Any], turned: bool) -> list[tuple[NDArray[Any], Operand]]:  # noqa: FBT001
    """Return a parameter and a weight in a common shape, in each way in which they may be meant to be equal."""
    squeezed = tuple(size for size in held.array.shape if size != 1)
    if array.ndim == 2 and held.array.ndim == 2:
        found = [(array.T, held)] if held.array.shape == array.T.shape else []
        if held.array.shape == array.shape and (not turned or not found):
            found.append((array, held))
        return found
    return [(array, held.shaped(array.shape))] if squeezed == tuple(size for size in array.shape if size != 1) else []


def _layers_of(part: torch.nn.Module) -> Iterator[tuple[int, str]]:
    """Return the layers of an LSTM, and the directions of each, in the order in which they are computed."""
    for layer in range(int(part.num_layers)):  # type: ignore[arg-type]
        yield layer, "forward"
        if part.bidirectional:
            yield layer, "reverse"


def _ways(graph: Graph, node: int) -> tuple[str, ...]:
    direction = attribute(graph.nodes[node], "direction", b"forward").decode(errors="replace")
    return ("forward", "reverse") if direction == "bidirectional" else (direction,)


def _is_norm(call: Call) -> bool:
    return call.cls.startswith("BatchNorm") and len(call.inputs) > 0


def _cls(part: torch.nn.Module) -> str:
    return type(part).__name__


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _as_stored(array: NDArray[Any], graph: Graph, node: int) -> NDArray[Any]:
    """Return the weight of a layer in the way in which an operator takes it."""
    op = operator(graph, node)
    if op not in _MATMUL:
        return array
    return array if op in ("Gemm", "QGemm") and attribute(graph.nodes[node], "transB", 0) else array.T


def _folded(conv: torch.nn.Module, norm: torch.nn.Module) -> dict[str, NDArray[Any]]:
    """Return weight and bias of a convolution that does also what the normalization behind it did."""
    arrays: dict[str, NDArray[np.float64]] = {}
    for part, names in ((conv, ("weight", "bias")), (norm, ("weight", "bias", "running_mean", "running_var"))):
        for name in names:
            tensor = getattr(part, name, None)
            if tensor is not None:
                arrays[f"{'conv' if part is conv else 'norm'} {name}"] = to_numpy(tensor).astype(np.float64)
    if "norm running_var" not in arrays or "conv weight" not in arrays:
        return {}
    scale: NDArray[np.float64] = arrays.get("norm weight", np.float64(1)) / np.sqrt(
        arrays["norm running_var"] + float(norm.eps)  # type: ignore[arg-type]
    )
    weight = arrays["conv weight"]
    if type(conv).__name__.startswith("ConvTranspose"):  # in channels, out channels of a group, kernel
        groups = int(conv.groups)  # type: ignore[arg-type]
        split = weight.reshape(groups, -1, *weight.shape[1:]) * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
        weight = split.reshape(weight.shape)
    else:
        weight = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    bias = (arrays.get("conv bias", 0.0) - arrays["norm running_mean"]) * scale + arrays.get("norm bias", 0.0)
    kind = to_numpy(conv.weight).dtype  # type: ignore[arg-type]
    return {"weight": weight.astype(kind), "bias": bias.astype(kind)}
