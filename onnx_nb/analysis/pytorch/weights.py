"""How far the weights of an export are from the parameters of its torch module, and what is wrong with them.

Which weight is which parameter is told by `parameters`. A quantized weight may be off by what its step explains.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.comparison import Comparison, Point
from onnx_nb.analysis.compare.metrics import ErrorStats, precision
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.pytorch.parameters import Finder, Weight

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.pytorch.alignment import Match
    from onnx_nb.analysis.pytorch.operands import Operand
    from onnx_nb.analysis.pytorch.record import Recording

_ROUNDED: Final = 8
"""So many times the precision of its type a weight may be off before it is said to differ."""
_STEPS: Final = 1.0
"""And so many steps a quantized one."""


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
    finder = Finder(module, recording, graph, pairs, scope)
    found = finder.all()
    points = []
    for depth, weight in enumerate(found):
        if progress is not None:
            progress(depth / len(found), f"comparing {quoted(weight.held.initializer or weight.label)}")
        errors = ErrorStats.of(weight.expected, weight.held.array, rtol=rtol, atol=atol)
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
    missing = tuple(finder.missing()) if scope is None else ()
    return Comparison(f"weights of torch {recording.cls}", graph.model.name, tuple(points), missing)


# --- what is wrong with a weight ------------------------------------------------------------------------------------


def _difference(weight: Weight, errors: ErrorStats) -> str:
    """Return what is wrong with a weight that is off by more than rounding."""
    expected, actual, steps = weight.expected, weight.held.array, weight.held.steps
    label = weight.label.rpartition(" → ")[2]
    if not weight.held.initializer:
        return f"{label} is left out, and not zero"
    if steps is not None:
        return _difference_in_steps(label, expected, weight.held, errors)
    rounding = _ROUNDED * max(precision(errors), 2.0**-23) * errors.reference_norm
    if not errors.mismatches and errors.error_norm <= rounding:
        return ""
    if actual.ndim == 2 and actual.shape[0] == actual.shape[1] and np.array_equal(expected.T, actual):
        return f"{label} is transposed"
    order = _order(expected, actual, weight.blocks)
    if order:
        return f"the {weight.blocks} parts of {label} stand in the order {order}"
    factor = _factor(expected, actual)
    if factor:
        return f"{label} is {factor:.4g} times what it should be"
    near = np.isclose(actual.astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=0, equal_nan=True)
    many = f"{near.size - int(np.count_nonzero(near)):,} of {errors.count:,} values"
    return f"{label} differs in {many}, by at most {errors.max_abs:.3g}"


def _difference_in_steps(label: str, expected: NDArray[Any], held: Operand, errors: ErrorStats) -> str:
    """Describe the difference of a quantized weight, in its own steps."""
    assert held.steps is not None  # noqa: S101
    wanted, got = expected.astype(np.float64), held.array.astype(np.float64)
    slack = _ROUNDED * 2.0**-23 * np.maximum(np.abs(wanted), np.abs(got))
    off = np.maximum(np.abs(got - wanted) - slack, 0)
    with np.errstate(all="ignore"):
        steps = np.where(off > 0, off / held.steps, 0)
    beyond = int(np.count_nonzero(~(steps <= _STEPS)))
    if not beyond:
        return ""
    if got.ndim == 2 and got.shape[0] == got.shape[1] and bool((np.abs(got - wanted.T) <= held.steps).all()):
        return f"{label} is transposed"
    many = f"{beyond:,} of {errors.count:,} values"
    return f"{label} differs in {many}, by up to {float(np.nanmax(steps)):.3g} quantization steps"


def _order(expected: NDArray[Any], actual: NDArray[Any], blocks: int) -> str:
    """Return the order in which the parts of a weight stand where they are only exchanged; empty if it is not that."""
    if blocks < 2 or expected.shape != actual.shape:
        return ""
    parts = np.split(expected, blocks)
    for order in itertools.permutations(range(blocks)):
        if np.array_equal(np.concatenate([parts[place] for place in order]), actual):
            return ", ".join(str(place + 1) for place in order)
    return ""


def _factor(expected: NDArray[Any], actual: NDArray[Any]) -> float:
    """Return the number that a weight was multiplied with; 0 if there is none."""
    one, other = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
    square = float(one @ one)
    factor = float(one @ other) / square if square else 0.0
    return factor if np.allclose(one * factor, other, rtol=1e-5, atol=1e-7 * abs(one).max(initial=0.0)) else 0.0
