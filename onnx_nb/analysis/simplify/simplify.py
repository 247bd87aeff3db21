"""Simplify a model without changing what it computes, explain each change, and verify the result.

`rounds` folds constants and applies rules until nothing changes; here are the function a person calls, its result, and
what happens to the inputs of the model before and after. The result is compared with the original on fresh random
feeds. The tests name what each peer gets wrong here.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto

from onnx_nb.analysis.errors import SimplificationError
from onnx_nb.analysis.foreign_names import known_keywords
from onnx_nb.analysis.formatting import count_text, plain_text, quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.shape_inference import BROKEN
from onnx_nb.analysis.model import external_data, wire
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, with_proto
from onnx_nb.analysis.model.tensors import all_nodes, dimensions, type_text
from onnx_nb.analysis.results import Displayed, Table
from onnx_nb.analysis.simplify.rounds import Rounds, Step
from onnx_nb.analysis.simplify.rules import rules, skipped_names
from onnx_nb.analysis.simplify.symbolic_dims import Change
from onnx_nb.analysis.simplify.verify import Check, Verdict

if TYPE_CHECKING:
    from onnx_nb.analysis.compare import metrics
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.simplify.constant_folding import Left
    from onnx_nb.analysis.simplify.symbolic_dims import NodeIds

Axes = Mapping[int, str] | Sequence[int]

BUDGET: Final = 1 << 20
"""Bytes by which constant folding may enlarge a model by default."""
TARGETS: Final = ("onnx", "onnxruntime")
RTOL, ATOL = 1e-4, 1e-5

_UNDO: Final = "Find the change with skip=[…], which takes names of onnx_nb.rules() and keys of single changes."


@dataclass(frozen=True, eq=False, repr=False)
class Simplification(Displayed, Table):
    """A simplified model and every change made to the original. Made by `simplify`."""

    original: Model
    """The model as it was given."""
    model: Model
    """The simplified model."""
    verdict: Verdict
    """Outcome of the verification."""
    changes: tuple[Change, ...]
    """Changes in the order in which they were made."""
    left: tuple[Left, ...]
    """Nodes with constant inputs that were not folded, and the reasons."""
    mapping: Mapping[str, str | None]
    """For each tensor of the original's main graph the equal tensor of the result; None if there is none."""
    verification: str
    """What was verified, or which output differs and by how much."""
    differences: Mapping[str, metrics.ErrorStats] = field(default_factory=dict)
    """Error of each output that differs at all, over all feeds."""
    steps: tuple[Step, ...] = ()
    """With ``trace=True`` the model after each step, starting with the original."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Nodes of each operator in the original, those of subgraphs and functions included."""
    after: Mapping[str, int] = field(default_factory=dict)
    """Nodes of each operator in the result."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `simplify` that differ from their defaults."""
    node_ids: tuple[NodeIds, NodeIds] = ({}, {})
    """Ids of the nodes of `original` and `model`, as in `Change.taken` and `Change.made`."""

    def __repr__(self) -> str:
        verified = "verified" if self.verified else "NOT verified"
        nodes = f"{sum(self.before.values())} → {sum(self.after.values())} nodes"
        return f"Simplification({nodes}, {count_text(len(self.changes), 'change')}, {len(self.left)} left, {verified})"

    @property
    def verified(self) -> bool:
        """Whether the result was run against the original and every output agreed."""
        return self.verdict == "verified"

    def again(self, *, progress: Progress | None = None, **options: Any) -> Simplification:
        """Simplify the original once more, with the same arguments except those given here.

        Examples
        --------
        >>> import onnx.parser
        >>> s = simplify(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
        ... g (float[2] x) => (float[2] z) { a = Identity(x)  b = Neg(a)  c = Neg(b)  z = Dropout(c) }'''))
        >>> s
        Simplification(4 → 2 nodes, 2 changes, 0 left, verified)
        >>> s.again(skip=[s.changes[0].key])
        Simplification(4 → 3 nodes, 1 change, 0 left, verified)
        """
        return simplify(self.original, progress=progress, **{**self.options, **options})

    def call(self) -> str:
        """Return the line of Python that makes this result; feeds given as arrays are left out.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { z = Neg(x) }'
        >>> simplify(onnx.parser.parse_model(text), skip=("eliminate_identity",), check_n=1).call()
        "onnx_nb.simplify(model, skip=['eliminate_identity'], check_n=1)"
        """
        written = [
            f"{name}={_literal(value)!r}"
            for name, value in self.options.items()
            if name != "feeds" or isinstance(value, str | os.PathLike)
        ]
        model = "model" if self.original.path is None else repr(str(self.original.path))
        return f"onnx_nb.simplify({', '.join([model, *written])})"

    _columns = tuple(Change.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each change: the fields of `Change` by name."""
        return [asdict(change) for change in self.changes]

    def report(self) -> str:
        """Return a text: the verification, how often each rule applied, what was left, operators before and after."""
        lines = [repr(self), self.verification, ""]
        counts = Counter(change.rule for change in self.changes)
        known = rules()
        lines += [f"{count:>7}  {rule}: {known[rule]}." for rule, count in counts.most_common()]
        if self.left:
            lines += ["", "Not folded:"]
            lines += [f"  {left.op_type} {left.node!r:.80}: {left.why}" for left in self.left[:20]]
            lines += [f"  and {len(self.left) - 20} more"] if len(self.left) > 20 else []
        names = sorted({*self.before, *self.after})
        width = max([len("operator"), *map(len, names)])
        lines += ["", f"{'operator':<{width}}  {'before':>7}  {'after':>7}"]
        lines += [f"{name:<{width}}  {self.before.get(name, 0):>7}  {self.after.get(name, 0):>7}" for name in names]
        lines += [f"{'all':<{width}}  {sum(self.before.values()):>7}  {sum(self.after.values()):>7}"]
        return "\n".join(lines)


@known_keywords
def simplify(
    model: ModelLike,
    *,
    shapes: Mapping[str | None, int | Sequence[int | None]] | None = None,
    dynamic_axes: Mapping[str, Axes] | None = None,
    skip: Iterable[str] = (),
    target: str = "onnx",
    size_budget: int = BUDGET,
    fold_quantization: bool = False,
    keep_inputs: bool = True,
    check_n: int = 3,
    feeds: Any = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    strict: bool = False,
    trace: bool = False,
    progress: Progress | None = None,
) -> Simplification:
    """Fold constants, replace nodes by simpler ones, and verify that the result computes the same.

    Names of inputs, outputs, tensors and nodes stay, and so do the metadata and documentation of the nodes that stay.
    A node made of several names them in its metadata, under ``onnx_nb.merged``. Initializers that a caller may
    override are not treated as constants. Random operators are never folded or merged.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    shapes
        Shapes by the name of an input (``{None: shape}`` for a model with one input), and sizes by the name of a
        dimension. None in a shape leaves a dimension as it is.
    dynamic_axes
        Axes of inputs with a fixed size that are to take any size: a name for each axis of an input, as
        ``{"x": {0: "batch"}}``, or only the axes.
    skip
        What not to do: names of `rules`, keys of single changes, ``"rewrites"`` (only fold), ``"constant_folding"``,
        ``"shape_inference"`` (trust only the types that the model declares). Rule names of onnxoptimizer, onnxsim and
        onnxslim are accepted too.
    target
        ``"onnx"`` makes only standard operators; ``"onnxruntime"`` also operators of ``com.microsoft`` that
        onnxruntime has a kernel for on every processor and that compute at once what several nodes do.
    size_budget
        Bytes by which all folding together may enlarge the model.
    fold_quantization
        Also fold QuantizeLinear and DequantizeLinear, which describe how weights are stored.
    keep_inputs
        ``False`` removes inputs that become unused.
    check_n
        Number of random feeds for the verification; 0 skips it.
    feeds
        Feeds for the verification in place of random ones, in any form that `read_feeds` takes.
    rtol, atol
        Tolerances of outputs, as in `numpy.isclose`.
    strict
        Raise if the result is not verified.
    trace
        Keep the model after each step in `Simplification.steps`.
    progress
        Called with the fraction done (0 to 1) and the current step. It may raise to cancel.

    Raises
    ------
    SimplificationError
        If an argument does not fit the model, if the nodes of the model form a cycle or make the same tensor, or with
        ``strict`` if the result is not verified.
    ModelFileError
        If a node is not what its operator defines, and onnx's checker refuses the model.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[n, 2, 3] x) => (float[n, 6] y) {
    ...   size = Shape(x)  zero = Constant <value_int = 0> ()  n = Gather(size, zero)
    ...   axes = Constant <value_ints = [0]> ()  first = Unsqueeze(n, axes)
    ...   six = Constant <value_ints = [6]> ()  shape = Concat <axis = 0> (first, six)
    ...   y = Reshape(x, shape) }''')
    >>> s = simplify(model)
    >>> s
    Simplification(8 → 1 nodes, 4 changes, 0 left, verified)
    >>> s.changes[-1].rule, s.changes[-1].why
    ('fold_reshape', 'its shape is always [0, 6]')
    """
    loaded = load(model)
    tell = progress or (lambda _done, _what: None)
    _check_numbers(check_n=check_n, rtol=rtol, atol=atol, size_budget=size_budget)
    if target not in TARGETS:
        known = ", ".join(map(quoted, TARGETS))
        raise SimplificationError(f"there is no target {target!r:.80}.", advice=f"Targets: {known}.")
    skipped = skipped_names(skip)
    feeds = list(feeds) if isinstance(feeds, Iterator) else feeds
    shaped = _with_shapes(loaded, shapes, dynamic_axes)
    constants, overridable = _without_overridable(shaped)
    rounds = Rounds(
        skipped,
        contrib=target == "onnxruntime",
        quantizing=fold_quantization,
        budget=size_budget,
        tell=tell,
        trace=trace,
    )
    try:
        rewritten = rounds.run(constants)
    except BROKEN:
        # rules expect nodes to be what their operators define: the checker names one that is not, if there is one
        external_data.check(loaded, full=True)
        raise
    result = _with_overridable(rewritten, overridable) if rewritten is not constants else shaped
    result = result if keep_inputs else _without_unused_inputs(result)
    tell(0.5, "checking")
    check = Check(shaped, result, loaded if dynamic_axes and not shapes else shaped, rtol, atol)
    check.run(check_n, feeds, tell)
    if strict and check.verdict != "verified":
        raise SimplificationError(f"{label_of(loaded)} simplified is not the same: {check.said}", advice=_UNDO)
    if check.wrong:
        warnings.warn(f"{label_of(loaded)} simplified is not the same: {check.said}", stacklevel=3)
    tell(1.0, "done")
    given = {
        "shapes": shapes,
        "dynamic_axes": dynamic_axes,
        "skip": tuple(sorted(skipped)),
        "target": target,
        "size_budget": size_budget,
        "fold_quantization": fold_quantization,
        "keep_inputs": keep_inputs,
        "check_n": check_n,
        "feeds": feeds,
        "rtol": rtol,
        "atol": atol,
        "strict": strict,
        "trace": trace,
    }
    return Simplification(
        original=loaded,
        model=result,
        verdict=check.verdict,
        changes=tuple(rounds.changes),
        left=tuple(rounds.left),
        mapping=_mapping(loaded, result, rounds.same),
        verification=check.said,
        differences=MappingProxyType(check.differences),
        steps=_steps(rounds, loaded, shaped, overridable) if trace else (),
        before=_operators(loaded),
        after=_operators(result),
        options=_not_default(given),
        node_ids=(rounds.original_ids, rounds.node_ids),
    )


def _not_default(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of `simplify` that differ from their defaults; arrays are not compared."""
    defaults = inspect.unwrap(simplify).__kwdefaults__ or {}
    found = {k: v for k, v in given.items() if type(v) is not type(defaults[k]) or v != defaults[k]}
    return MappingProxyType(found)


def _literal(value: Any) -> Any:
    """Return an argument as Python writes it."""
    if isinstance(value, Mapping):
        return {key: _literal(each) for key, each in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    return [_literal(each) for each in value] if isinstance(value, list | tuple) else value


def _check_numbers(check_n: Any, **given: Any) -> None:
    if not isinstance(check_n, int | np.integer) or check_n < 0:
        raise SimplificationError(f"check_n is {check_n!r:.80}, and must be a whole number from 0.")
    for name, number in given.items():
        if not isinstance(number, int | float | np.number) or not number >= 0:  # NaN is not
            raise SimplificationError(f"{name} is {number!r:.80}, and must be a number from 0.")


def _without_overridable(model: Model) -> tuple[Model, list[TensorProto]]:
    """Return a model in which initializers that a caller may override are plain inputs, and those initializers."""
    proto = model.proto
    if 0 < proto.ir_version < 4:
        return model, []  # there every weight had to be an input; none is meant to be fed
    inputs = {plain_text(info.name) for info in proto.graph.input}
    apart = [tensor for tensor in proto.graph.initializer if plain_text(tensor.name) in inputs]
    if not apart:
        return model, []
    without = ModelProto()
    wire.copy_fields(proto, without, without=("graph",))
    wire.copy_fields(proto.graph, without.graph, without=("initializer",))
    without.graph.initializer.extend(t for t in proto.graph.initializer if plain_text(t.name) not in inputs)
    return with_proto(model, without), apart


def _with_overridable(model: Model, overridable: Sequence[TensorProto]) -> Model:
    """Put the initializers that a caller may override back."""
    if not overridable:
        return model
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    proto.graph.initializer.extend(overridable)
    return with_proto(model, proto)


def _without_unused_inputs(model: Model) -> Model:
    """Remove inputs that no node reads, with their initializers."""
    graph = Graph.of(model)
    ends = graph.outputs.tolist()
    values = [*graph.inputs.tolist(), *graph.overridable.tolist()]
    unused = {graph.value_names[v] for v in values if not len(graph.consumers(v)) and v not in ends}
    if not unused:
        return model
    proto = ModelProto()
    wire.copy_fields(model.proto, proto, without=("graph",))
    wire.copy_fields(model.proto.graph, proto.graph, without=("input", "initializer"))
    proto.graph.input.extend(info for info in model.proto.graph.input if plain_text(info.name) not in unused)
    proto.graph.initializer.extend(t for t in model.proto.graph.initializer if plain_text(t.name) not in unused)
    return with_proto(model, proto)


def _steps(rounds: Rounds, original: Model, shaped: Model, overridable: Sequence[TensorProto]) -> tuple[Step, ...]:
    """Return all steps, from the original to the result."""
    first = [Step("original", original, 0, rounds.original_ids)]
    if shaped is not original:
        first.append(Step("set shapes", shaped, 0, rounds.original_ids))
    return (*first, *(replace(step, model=_with_overridable(step.model, overridable)) for step in rounds.steps))


def _mapping(before: Model, after: Model, same: Mapping[str, str]) -> Mapping[str, str | None]:
    graph = Graph.of(after)
    there = {graph.value_names[value] for value in np.flatnonzero(graph.value_subgraph == 0).tolist()}
    original = Graph.of(before)
    found: dict[str, str | None] = {}
    for value in np.flatnonzero(original.value_subgraph == 0).tolist():
        name: str | None = original.value_names[value]
        assert name is not None  # noqa: S101 (every value has one)
        now: str | None = name
        while now is not None and now not in there:
            now = same.get(now)
        found[name] = now
    return MappingProxyType(found)


def _operators(model: Model) -> Mapping[str, int]:
    graph = Graph.of(model)
    counts: Counter[str] = Counter()
    for (op_type, domain), count in zip(
        graph.operators, np.bincount(graph.op_index, minlength=len(graph.operators)).tolist(), strict=True
    ):
        counts[f"{domain}.{op_type}" if domain else op_type] += count
    for function in model.proto.functions:
        for node in all_nodes(function.node):
            counts[f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type] += 1
    return MappingProxyType(dict(counts))


# --- requested shapes -------------------------------------------------------------------------------------------------


def _with_shapes(
    model: Model, shapes: Mapping[str | None, Any] | None, dynamic_axes: Mapping[str, Axes] | None
) -> Model:
    """Return a model whose inputs have the shapes and dynamic axes that are asked for; the same model if none are."""
    _check_mapping("shapes", shapes, '{"x": [1, 3, None, None]}')
    _check_mapping("dynamic_axes", dynamic_axes, '{"x": {0: "batch"}}')
    if not shapes and not dynamic_axes:
        return model
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    requested = _Requested(model, proto)
    for name, axes in (dynamic_axes or {}).items():
        requested.free(name, axes)
    if dynamic_axes:
        # shapes that were declared or inferred for a fixed size no longer hold
        del proto.graph.value_info[:]
        for info in proto.graph.output:
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
    for key, shape in (shapes or {}).items():
        requested.bind(key, shape)
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if dim.dim_param in requested.sizes:
                dim.dim_value = requested.sizes[dim.dim_param]
    return with_proto(model, proto)


def _check_mapping(name: str, given: Any, example: str) -> None:
    if given is not None and not isinstance(given, Mapping):
        message = f"{name} is {given!r:.80}, and must map names of inputs."
        raise SimplificationError(message, advice=f"For example {name}={example}.")


class _Requested:
    """The inputs of a model, and the size of each symbol that the requested shapes bind."""

    def __init__(self, model: Model, proto: ModelProto) -> None:
        self.called = label_of(model)
        self.sizes: dict[str, int] = {}
        # before version 4 of the format every initializer was an input too
        has_own_weights = proto.ir_version >= 4 or not proto.ir_version
        weights = {plain_text(tensor.name) for tensor in proto.graph.initializer} if has_own_weights else ()
        self.inputs: dict[str, ValueInfoProto] = {
            plain_text(info.name): info for info in proto.graph.input if plain_text(info.name) not in weights
        }

    def input(self, name: object) -> ValueInfoProto:
        """Return the declaration of an input."""
        if isinstance(name, str) and name in self.inputs:
            return self.inputs[name]
        listed = ", ".join(
            f"{quoted(known)} ({type_text(info.type)})" for known, info in list(self.inputs.items())[:20]
        )
        message = f"{self.called} has no input {quoted(str(name))}."
        if name is None:
            message = f"{self.called} has {len(self.inputs)} inputs, and {{None: shape}} is for a model with one."
        raise SimplificationError(message, advice=f"Its inputs: {listed or 'none'}.")

    def free(self, name: str, axes: Any) -> None:
        """Make axes of an input dynamic."""
        info = self.input(name)
        shape = info.type.tensor_type.shape.dim
        is_listed = isinstance(axes, Iterable) and not isinstance(axes, str)
        if not is_listed or not all(isinstance(axis, int | np.integer) for axis in axes):
            message = f"dynamic_axes[{name!r}] is {axes!r:.80}, and axes are whole numbers."
            raise SimplificationError(message, advice='For example {0: "batch"}, or [0].')
        for axis in axes:
            if not -len(shape) <= axis < len(shape):
                message = f"dynamic_axes[{name!r}] names axis {axis}, and the input is {type_text(info.type)}."
                raise SimplificationError(message, advice="Axes count from 0.")
            shape[axis].dim_param = str(axes[axis]) if isinstance(axes, Mapping) else f"{name}_{axis % len(shape)}"

    def bind(self, key: str | None, shape: Any) -> None:
        """Write one entry of ``shapes`` into an input, or note the size of a symbol."""
        if isinstance(shape, int | np.integer):
            self._bind_symbol(key, int(shape))
            return
        (key,) = self.inputs if key is None and len(self.inputs) == 1 else (key,)
        info = self.input(key)
        asked = list(shape) if isinstance(shape, Iterable) else [shape]
        if shape is None or not all(s is None or (isinstance(s, int | np.integer) and 0 <= s < 1 << 63) for s in asked):
            message = f"shapes[{key!r}] is {shape!r:.80}, and sizes are whole numbers from 0, or None."
            raise SimplificationError(message, advice="None keeps a dimension as it is.")
        declared = dimensions(info.type)
        if declared is None:
            info.type.tensor_type.shape.Clear()
            for size in asked:
                info.type.tensor_type.shape.dim.add(**({} if size is None else {"dim_value": int(size)}))
            return
        fits = len(declared) == len(asked) and all(
            new is None or not isinstance(old, int) or old == new for old, new in zip(declared, asked, strict=True)
        )
        if not fits:
            message = f"shapes[{key!r}] is {shape!r:.80}, and the input is {type_text(info.type)}."
            advice = "Name a size for each axis. An axis with a fixed size keeps it unless dynamic_axes=… frees it."
            raise SimplificationError(message, advice=advice)
        for dim, size in zip(info.type.tensor_type.shape.dim, asked, strict=True):
            if size is not None and dim.dim_param:
                self._agree(dim.dim_param, int(size))
            elif size is not None:
                dim.dim_value = int(size)

    def _bind_symbol(self, key: str | None, size: int) -> None:
        dims = [dim for info in self.inputs.values() for dim in info.type.tensor_type.shape.dim]
        symbols = dict.fromkeys(dim.dim_param for dim in dims if dim.dim_param)
        if key not in symbols:
            message = f"{self.called} has no dimension {quoted(str(key))}."
            listed = ", ".join(map(quoted, symbols)) or "none"
            raise SimplificationError(message, advice=f"Its dynamic dimensions: {listed}. A shape is a list.")
        self._agree(str(key), size)

    def _agree(self, symbol: str, size: int) -> None:
        if self.sizes.setdefault(symbol, size) != size:
            message = f"dimension {quoted(symbol)} is bound to sizes {self.sizes[symbol]} and {size}."
            raise SimplificationError(message, advice="Ask for shapes that agree.")
