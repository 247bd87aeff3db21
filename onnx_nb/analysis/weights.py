"""Which weights of an export are which parameters of its torch module, and how far they are from them.

What an operator does with an input says what it is: the second of a MatMul behind a Linear is its weight, turned. A
Conv behind a batch normalisation holds both, folded; what that should have given is computed in float64. Names count
only where no such rule speaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.comparison import Comparison, Point
from onnx_nb.analysis.errors import shown
from onnx_nb.analysis.graph import INITIALIZER, Graph
from onnx_nb.analysis.metrics import Errors, precision
from onnx_nb.analysis.pytorch import to_numpy

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.alignment import Match
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.pytorch import Recording

_BEHIND: Final = ("Add", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Cast", "Flatten")
"""What an exporter puts behind the operator that does a layer's work."""
_PLACES: Final[Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]] = {
    "Linear": (("MatMul", "Gemm"), (("weight", 1), ("bias", 2))),
    "Conv1d": (("Conv",), (("weight", 1), ("bias", 2))),
    "Conv2d": (("Conv",), (("weight", 1), ("bias", 2))),
    "Conv3d": (("Conv",), (("weight", 1), ("bias", 2))),
    "ConvTranspose1d": (("ConvTranspose",), (("weight", 1), ("bias", 2))),
    "ConvTranspose2d": (("ConvTranspose",), (("weight", 1), ("bias", 2))),
    "ConvTranspose3d": (("ConvTranspose",), (("weight", 1), ("bias", 2))),
    "LayerNorm": (("LayerNormalization",), (("weight", 1), ("bias", 2))),
    "Embedding": (("Gather",), (("weight", 0),)),
    "BatchNorm1d": (("BatchNormalization",), (("weight", 1), ("bias", 2), ("running_mean", 3), ("running_var", 4))),
    "BatchNorm2d": (("BatchNormalization",), (("weight", 1), ("bias", 2), ("running_mean", 3), ("running_var", 4))),
    "BatchNorm3d": (("BatchNormalization",), (("weight", 1), ("bias", 2), ("running_mean", 3), ("running_var", 4))),
}
"""Class of a module → the operators that do its work, and which of their inputs is which parameter."""
_ROUNDED: Final = 8
"""So many times the precision of its type a weight may be off before it is said to differ."""


class _Weight(NamedTuple):
    """A parameter, and the initializer that holds it."""

    label: str
    """As "encoder.layer.1.dense → weight"."""
    parameters: str
    """Their names in the module: two where they are folded."""
    initializer: str
    expected: NDArray[Any]
    """What the initializer should be."""
    how: str
    """"operator", "folded" or "name"."""
    scope: str
    node: int


def compare_weights(
    module: torch.nn.Module,
    recording: Recording,
    graph: Graph,
    pairs: Mapping[int, tuple[int, Match]],
    *,
    rtol: float,
    atol: float,
    scope: str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare the parameters of a module with the weights of its export.

    Parameters
    ----------
    module
        As it was when it was recorded.
    recording, graph
        Of the module, and its export.
    pairs
        Recorded value → tensor.
    rtol, atol
        What may differ.
    scope
        Of the submodule whose parameters are compared; of all if ``None``.
    progress
        Called before each weight. What it raises ends the work.
    """
    mine = {number: pair for number, pair in pairs.items() if scope in (None, pair[1].path)}
    found = list(_found(module, recording, graph, mine, stops={value for value, _ in pairs.values()}))
    if scope is None:
        found += _named(module, graph, found)
    points = []
    for depth, weight in enumerate(found):
        if progress is not None:
            progress(depth / len(found), f"comparing {shown(weight.initializer)}")
        actual = graph.model.tensor(weight.initializer)
        errors = Errors.of(weight.expected, actual, rtol=rtol, atol=atol)
        points.append(
            Point(
                name=weight.label,
                reference=weight.parameters,
                candidate=weight.initializer,
                matched=weight.how,
                depth=depth,
                op_type="weight",
                node=graph.names[weight.node] if weight.node >= 0 else "",
                scope=weight.scope,
                difference=_difference(weight, actual, errors),
                cumulative=errors,
                isolated=errors,  # nothing comes before a weight
            )
        )
    return Comparison(f"weights of torch {recording.cls}", graph.model.name, tuple(points))


def _difference(weight: _Weight, actual: NDArray[Any], errors: Errors) -> str:
    """Say what is wrong with a weight that is off by more than rounding."""
    rounding = _ROUNDED * max(precision(errors), 2.0**-23) * errors.reference_norm
    if not errors.mismatches and errors.error_norm <= rounding:
        return ""
    expected, label = weight.expected, weight.label.rpartition(" ")[2]
    if actual.ndim == 2 and actual.shape[0] == actual.shape[1] and np.array_equal(expected.T, actual):
        return f"{label} is transposed"
    factor = _factor(expected, actual)
    if factor:
        return f"{label} is {factor:.4g} times what it should be"
    near = np.isclose(actual.astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=0, equal_nan=True)
    many = f"{near.size - int(np.count_nonzero(near)):,} of {errors.count:,} values"
    return f"{label} differs in {many}, by at most {errors.max_abs:.3g}"


def _factor(expected: NDArray[Any], actual: NDArray[Any]) -> float:
    """Give the number that a weight was multiplied with; 0 if there is none."""
    one, other = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
    square = float(one @ one)
    factor = float(one @ other) / square if square else 0.0
    return factor if np.allclose(one * factor, other, rtol=1e-5, atol=1e-7 * abs(one).max(initial=0.0)) else 0.0


def _found(
    module: torch.nn.Module,
    recording: Recording,
    graph: Graph,
    pairs: Mapping[int, tuple[int, Match]],
    *,
    stops: set[int],
) -> Iterator[_Weight]:
    parts = dict(module.named_modules(remove_duplicate=False))
    calls = {(call.path, call.index): number for number, call in enumerate(recording.calls)}
    makers = {slot.value: number for number, call in enumerate(recording.calls) for slot in call.outputs}
    ruled: set[str] = set()
    for value, match in pairs.values():
        if match.function or match.cls not in _PLACES or match.path in ruled:
            continue
        operators, places = _PLACES[match.cls]
        node = _worker(graph, value, operators, stops)
        part = parts[match.path]
        if node < 0 and match.cls.startswith("BatchNorm"):
            node = _worker(graph, value, ("Conv", "ConvTranspose"), stops)
            number = calls[match.path, match.call]
            before = makers.get(recording.calls[number].inputs[0].value, -1)
            if node < 0 or before < 0 or not recording.calls[before].cls.startswith("Conv"):
                continue
            path = recording.calls[before].path
            expected = _folded(parts[path], part)
            names = {name: f"{path}.{name}, {match.path}" for name in expected}
            how = "folded"
        else:
            if node < 0:
                continue
            path, how = match.path, "operator"
            expected = {name: to_numpy(array) for name, _ in places if (array := getattr(part, name, None)) is not None}
            names = {name: f"{path}.{name}" for name in expected}
        ruled |= {match.path, path}
        for name, place in _PLACES[recording.calls[before].cls][1] if how == "folded" else places:
            if name not in expected:
                continue
            if name == "bias" and match.cls == "Linear" and graph.operators[int(graph.op_index[node])][0] == "MatMul":
                initializer, turned = _added(graph, value, stops), False
            else:
                initializer, turned = _initializer(graph, node, place)
            if not initializer:
                continue
            wanted = _as_stored(expected[name], graph, node, name, turned)
            if graph.model.initializers[initializer].shape != wanted.shape:
                continue
            yield _Weight(f"{path} → {name}", names[name], initializer, wanted, how, path, node)


def _named(module: torch.nn.Module, graph: Graph, known: Sequence[_Weight]) -> Iterator[_Weight]:
    """Give the weights that bear the name of a parameter, of modules of which no rule says what is done with them."""
    done = {weight.initializer for weight in known}
    ruled = {path for path, part in module.named_modules() if type(part).__name__ in _PLACES}
    everything = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, info in graph.model.initializers.items():
        path, _, label = name.rpartition(".")
        tensor = everything.get(name)
        if tensor is None or name in done or path in ruled or tuple(tensor.shape) != info.shape:
            continue
        readers = graph.consumers(graph.value(name)).tolist()
        node = readers[0] if readers and readers[0] < graph.main_count else -1
        yield _Weight(f"{path or 'model'} → {label}", name, name, to_numpy(tensor), "name", path, node)


def _worker(graph: Graph, value: int, operators: tuple[str, ...], stops: set[int]) -> int:
    """Give the node that does the work of a layer, behind which some others may make its output; −1 if none does."""
    first = value
    for _ in range(6):
        node = int(graph.producer[value])
        if node < 0 or node >= graph.main_count or (value in stops and value != first):
            return -1
        op = graph.operators[int(graph.op_index[node])][0]
        if op in operators:
            return node
        if op not in _BEHIND:
            return -1
        computed = [each for each in graph.node_inputs(node).tolist() if each >= 0 and not _is_weight(graph, each)]
        if len(computed) != 1:
            return -1
        value = computed[0]
    return -1


def _added(graph: Graph, value: int, stops: set[int]) -> str:
    """Give the initializer that is added to the product of a Linear."""
    node = _worker(graph, value, ("Add",), stops)
    found = [_initializer(graph, node, place)[0] for place in range(2)] if node >= 0 else []
    return next((name for name in found if name), "")


def _is_weight(graph: Graph, value: int) -> bool:
    maker = int(graph.producer[value])
    return bool(graph.folded[maker]) if maker >= 0 else graph.value_kind[value] == INITIALIZER


def _initializer(graph: Graph, node: int, place: int) -> tuple[str, bool]:
    """Give the initializer that an input of a node is, and whether it was transposed on the way."""
    inputs = graph.node_inputs(node).tolist()
    value = inputs[place] if place < len(inputs) else -1
    turned = False
    for _ in range(4):
        if value < 0:
            break
        maker = int(graph.producer[value])
        if maker < 0:
            name = graph.value_names[value]
            return (name, turned) if name in graph.model.initializers else ("", False)
        op = graph.operators[int(graph.op_index[maker])][0]
        if op == "Transpose":
            turned = not turned
        elif op != "Identity":
            break
        value = int(graph.node_inputs(maker)[0])
    return "", False


def _as_stored(array: NDArray[Any], graph: Graph, node: int, name: str, turned: bool) -> NDArray[Any]:  # noqa: FBT001
    """Give a parameter in the way in which an operator takes it."""
    op = graph.operators[int(graph.op_index[node])][0]
    if name != "weight" or op not in ("MatMul", "Gemm"):
        return array
    kept = False
    if op == "Gemm":
        kept = any(each.name == "transB" and each.i for each in graph.nodes[node].attribute)
    return array if kept != turned else array.T


def _folded(conv: torch.nn.Module, norm: torch.nn.Module) -> dict[str, NDArray[Any]]:
    """Give weight and bias of a convolution that does also what the normalisation behind it did."""
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
