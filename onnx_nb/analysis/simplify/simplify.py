"""Simplify a model without changing what it computes, explain each change, and verify the result.

`rounds` folds constants and applies rules until nothing changes. This module has the public function, its result, the
changes to the model's inputs before and after, and the verification. It runs both models as written on random feeds,
new ones each time, and of different sizes where the inputs are dynamic, so that sizes that were fixed by mistake are
noticed. Random outputs are found by running the original twice, and are not compared.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorShapeProto, TypeProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.compare.thresholds import CONTRADICTED_ERROR
from onnx_nb.analysis.errors import FeedError, OnnxNbError, SimplificationError
from onnx_nb.analysis.formatting import count_text, plain_text, quoted, shortened
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.graph.shape_inference import BROKEN, bound
from onnx_nb.analysis.model import external_data
from onnx_nb.analysis.model.functions import key_of
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, with_proto
from onnx_nb.analysis.model.tensors import all_nodes, dimensions, input_types, listed, numpy_dtype, type_text
from onnx_nb.analysis.results import Displayed, Table
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.random_feeds import feeds_text, random_feeds, until_it_runs
from onnx_nb.analysis.simplify import symbolic_dims
from onnx_nb.analysis.simplify.editor import Change
from onnx_nb.analysis.simplify.rounds import Rounds, Step, Unfolded, rules, skipped_names
from onnx_nb.analysis.submodel.assembly import with_constants, with_weights

if TYPE_CHECKING:
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.simplify.known_graph import NodeIds

Axes = Mapping[int, str] | Sequence[int]

BUDGET: Final = 1 << 20
"""Default number of bytes by which constant folding may enlarge a model."""
RTOL, ATOL = 1e-4, 1e-5
ROUNDINGS: Final = 8
"""Roundings of the coarsest type on the way to an output by which the output may differ."""
NOISE: Final = 4
"""Factor over how far onnxruntime's own optimization moves an output, up to which an error is rounding."""
FAR_SHARE: Final = 1 / 8
"""Share of an output's values that rounding may move beyond the tolerances."""

Verdict = Literal["verified", "wrong", "unchecked"]
"""Unchecked: no check was requested, the original does not run, or all of its outputs are random."""


@dataclass(frozen=True, eq=False, repr=False)
class Simplification(Displayed, Table, panel="simplification.SimplificationPanel"):
    """A simplified model and every change made to the original, as returned by `simplify`."""

    original: Model
    model: Model
    verdict: Verdict
    changes: tuple[Change, ...]
    """Changes in chronological order."""
    left: tuple[Unfolded, ...]
    """Nodes with constant inputs that were not folded, and the reasons."""
    mapping: Mapping[str, str | None]
    """Tensor of the original's main graph → the equal tensor of the result, or None if there is none."""
    verification: str
    """Text that describes the verification, or the output that differs and its error."""
    differences: Mapping[str, ErrorStats] = field(default_factory=dict)
    """Errors of each output that differs at all, over all feeds."""
    steps: tuple[Step, ...] = ()
    """With ``trace=True``, the model after each step, starting with the original."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes of each operator in the original, including subgraphs and functions."""
    after: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes of each operator in the result."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `simplify` that differ from their defaults."""
    node_ids: tuple[NodeIds, NodeIds] = ({}, {})
    """Ids of the nodes of `original` and `model`, as in `Change.taken` and `Change.made`."""

    def __repr__(self) -> str:
        verdict = "verified" if self.verified else "NOT verified"
        nodes = f"{sum(self.before.values())} → {sum(self.after.values())} nodes"
        return f"Simplification({nodes}, {count_text(len(self.changes), 'change')}, {len(self.left)} left, {verdict})"

    @property
    def verified(self) -> bool:
        """Whether the result was run against the original and every output agreed."""
        return self.verdict == "verified"

    def again(self, *, progress: Progress | None = None, **options: Any) -> Simplification:
        """Simplify the original again, with the same arguments except those given here.

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
        """Return the line of Python that computes this result; feeds passed as arrays are omitted.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { z = Neg(x) }'
        >>> simplify(onnx.parser.parse_model(text), skip=("eliminate_identity",), check_n=1).call()
        "onnx_nb.simplify(model, skip=['eliminate_identity'], check_n=1)"
        """
        arguments = [
            f"{name}={_literal(value)!r}"
            for name, value in self.options.items()
            if name != "feeds" or isinstance(value, str | os.PathLike)
        ]
        model = "model" if self.original.path is None else repr(str(self.original.path))
        return f"onnx_nb.simplify({', '.join([model, *arguments])})"

    _columns = tuple(Change.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each change: the fields of `Change` by name."""
        return [asdict(change) for change in self.changes]

    def report(self) -> str:
        """Return a text: verification, number of uses of each rule, unfolded nodes, operators before and after."""
        lines = [repr(self), self.verification, ""]
        counts = Counter(change.rule for change in self.changes)
        descriptions = rules()
        lines += [f"{count:>7}  {rule}: {descriptions[rule]}." for rule, count in counts.most_common()]
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


@known_arguments
def simplify(
    model: ModelLike,
    *,
    shapes: Mapping[str | None, int | Sequence[int | None]] | None = None,
    dynamic_axes: Mapping[str, Axes] | None = None,
    constants: Mapping[str, Any] | None = None,
    skip: Iterable[str] = (),
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

    Names of inputs, outputs, tensors and nodes are kept, as are the metadata and documentation of the remaining nodes.
    A node merged from several lists them in its metadata, under ``onnx_nb.merged``. Initializers that a caller may
    override are not treated as constants. Random operators are never folded or merged.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    shapes
        Shapes by the name of an input (``{None: shape}`` for a model with one input), and sizes by the name of a
        dimension. None in a shape leaves a dimension unchanged.
    dynamic_axes
        Axes of inputs with a fixed size to make dynamic: a name for each axis of an input, such as
        ``{"x": {0: "batch"}}``, or only the axes.
    constants
        Values of inputs that never change, such as ``{"sr": 16000}``: the result has no such inputs, and nothing that
        runs only for other values.
    skip
        Steps to skip: names of `rules`, keys of single changes, ``"rewrites"`` (only fold), ``"constant_folding"``,
        ``"shape_inference"`` (trust only the types that the model declares). Rule names of onnxoptimizer, onnxsim and
        onnxslim are also accepted.
    size_budget
        Maximum number of bytes by which all folding together may enlarge the model.
    fold_quantization
        Also fold QuantizeLinear and DequantizeLinear, which describe how weights are stored.
    keep_inputs
        ``False`` removes inputs that become unused.
    check_n
        Number of random feeds for the verification; 0 skips it.
    feeds
        Feeds for the verification instead of random ones, in any form that `read_feeds` accepts.
    rtol, atol
        Tolerances of outputs, as in `numpy.isclose`. They are at least a few roundings of the coarsest type on the way
        to an output: float16 or quantized values inside round float32 outputs as well. A larger error is still rounding
        if it is in few values, and onnxruntime's own optimization of the original moves the output about as far.
    strict
        Raise if the result is not verified.
    trace
        Keep the model after each step in `Simplification.steps`.
    progress
        Called with the fraction done (0 to 1) and the current step. It may raise to cancel.

    Raises
    ------
    SimplificationError
        If an argument does not fit the model, if the nodes of the model form a cycle or produce the same tensor, or
        with ``strict`` if the result is not verified.
    ModelFileError
        If a node violates the definition of its operator, and onnx's checker rejects the model.

    Warns
    -----
    UserWarning
        If the result differs from the original, or if ``dynamic_axes`` frees a size that a node needs.

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
    arguments = dict(locals())
    source = load(model)
    tell = progress or (lambda _done, _what: None)
    for name in ("check_n", "rtol", "atol", "size_budget"):
        if not arguments[name] >= 0:  # NaN is not
            raise SimplificationError(f"{name} is {arguments[name]!r:.80}, and must be a number from 0.")
    skips = skipped_names(skip)
    feeds = list(feeds) if isinstance(feeds, Iterator) else feeds
    options = {name: value for name, value in arguments.items() if name not in ("model", "progress")}
    options |= {"skip": tuple(sorted(skips)), "feeds": feeds}
    defaults = inspect.unwrap(simplify).__kwdefaults__ or {}
    # arrays are not compared
    settings = {k: v for k, v in options.items() if type(v) is not type(defaults[k]) or v != defaults[k]}
    whole = with_constants(source, constants or {})
    draft = _with_shapes(whole, shapes, dynamic_axes)
    initializers, inputs = draft.proto.graph.initializer, {plain_text(info.name) for info in draft.proto.graph.input}
    # initializers that a caller may override are temporarily plain inputs; before IR 4 every weight had to be an input
    is_old = 0 < draft.proto.ir_version < 4
    overridable = [] if is_old else [tensor for tensor in initializers if plain_text(tensor.name) in inputs]
    weights = [tensor for tensor in initializers if plain_text(tensor.name) not in inputs]
    start = with_weights(draft, weights) if overridable else draft
    rounds = Rounds(skips, quantizing=fold_quantization, budget=size_budget, tell=tell, trace=trace)
    try:
        rewritten = rounds.run(start)
    except BROKEN:
        # rules expect nodes to conform to their operators: the checker names one that does not, if there is one
        external_data.check(source, full=True)
        raise
    steps = [Step("original", source, 0, rounds.original_ids)] if trace else []
    if trace and draft is not source:
        steps.append(Step("set shapes", draft, 0, rounds.original_ids))
    steps += [replace(step, model=with_weights(step.model, overridable, add=True)) for step in rounds.steps]
    result = with_weights(rewritten, overridable, add=True) if rewritten is not start else draft
    result = result if keep_inputs else _without_unused_inputs(result)
    before = _operators(source)
    tell(0.5, "checking")
    check = _Check(draft, result, whole if dynamic_axes and not shapes else draft, rtol, atol)
    check.run(check_n, feeds, tell, is_random=not before.keys().isdisjoint(names_where("random") | {"Dropout"}))
    message = f"{label_of(source)} simplified is not the same. {check.said}"
    if strict and check.verdict == "wrong":
        advice = "Find the change with skip=[…], which takes names of onnx_nb.rules() and keys of single changes."
        raise SimplificationError(message, advice=advice, wrong=True)
    if strict and check.verdict == "unchecked":
        message = f"strict asks for a verified result of {label_of(source)}. {check.said}"
        raise SimplificationError(message, advice="Choose check_n and feeds on which the original runs.")
    if check.wrong:
        warnings.warn(message, stacklevel=3)
    if dynamic_axes and (fixing := symbolic_dims.fixing(Graph.of(result))):
        labels = Graph.of(result).node_labels(fixing)
        message = f"dynamic_axes frees a size that {labels} of {label_of(source)} needs: its shape is constant."
        warnings.warn(f"{message} Export the model with dynamic axes instead.", stacklevel=3)
    tell(1.0, "done")
    return Simplification(
        original=source,
        model=result,
        verdict=check.verdict,
        changes=tuple(rounds.changes),
        left=tuple(rounds.left),
        mapping=_mapping(source, result, rounds.same),
        verification=check.said,
        differences=MappingProxyType(check.differences),
        steps=tuple(steps),
        before=before,
        after=_operators(result),
        options=MappingProxyType(settings),
        node_ids=(rounds.original_ids, rounds.node_ids),
    )


def _literal(value: Any) -> Any:
    """Return an argument as a Python literal."""
    if isinstance(value, Mapping):
        return {key: _literal(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_literal(part) for part in value]
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _without_unused_inputs(model: Model) -> Model:
    """Remove inputs that no node reads, with their initializers."""
    graph, proto = Graph.of(model), model.proto.graph
    ends = graph.outputs.tolist()
    values = [*graph.inputs.tolist(), *graph.overridable.tolist()]
    unread = {graph.value_names[v] for v in values if not len(graph.consumers(v)) and v not in ends}
    tensors = [tensor for tensor in proto.initializer if plain_text(tensor.name) not in unread]
    return with_weights(model, tensors, [info for info in proto.input if plain_text(info.name) not in unread])


def _mapping(before: Model, after: Model, same: Mapping[str, str]) -> Mapping[str, str | None]:
    graphs = (Graph.of(before), Graph.of(after))
    original, remaining = (dict.fromkeys(np.asarray(g.value_names, object)[g.value_subgraph == 0]) for g in graphs)
    targets: dict[str, str | None] = {}
    for name in original:
        now: str | None = name
        while now is not None and now not in remaining:
            now = same.get(now)
        targets[name] = now
    return MappingProxyType(targets)


def _operators(model: Model) -> Mapping[str, int]:
    """Return the number of nodes of each operator, including those of subgraphs and functions."""
    graph = Graph.of(model)
    counts = np.bincount(graph.op_index, minlength=len(graph.operators)).tolist()
    totals = Counter(dict(zip(graph.operators, counts, strict=True)))
    nodes = all_nodes(node for function in model.proto.functions for node in function.node)
    totals.update(key_of(node)[1::-1] for node in nodes)
    return MappingProxyType({f"{domain}.{op}" if domain else op: count for (op, domain), count in totals.items()})


# --- requested shapes -------------------------------------------------------------------------------------------------


def _with_shapes(
    model: Model, shapes: Mapping[str | None, Any] | None, dynamic_axes: Mapping[str, Axes] | None
) -> Model:
    """Return a model whose inputs have the requested shapes and dynamic axes; the same model if there are none."""
    if not shapes and not dynamic_axes:
        return model
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    names = [info.name for info in model.inputs]
    types = {plain_text(info.name): info.type for info in proto.graph.input}
    for name, axes in (dynamic_axes or {}).items():
        if name not in names:
            advice = f"Its inputs: {listed(names) or 'none'}."
            raise SimplificationError(f"{label_of(model)} has no input {quoted(str(name))}.", advice=advice)
        _free(name, types[name], axes)
    if dynamic_axes:
        # shapes that were declared or inferred for a fixed size are no longer valid
        del proto.graph.value_info[:]
        for info in proto.graph.output:
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
    only = names[0] if len(names) == 1 else None
    requests: dict[Any, Any] = {only if key is None else key: shape for key, shape in (shapes or {}).items()}
    if None in requests:
        message = f"{label_of(model)} has {len(names)} inputs, and {{None: shape}} is for a model with one."
        raise SimplificationError(message, advice=f"Its inputs: {listed(names) or 'none'}.")
    try:
        sizes, input_shapes = bound(Graph.of(with_proto(model, proto)), requests, partial=True)
    except FeedError as error:
        advice = f"{error.advice} An axis with a fixed size keeps it unless dynamic_axes=… frees it."
        raise SimplificationError(error.message, advice=advice) from None
    for name, shape in input_shapes.items():
        dims = types[name].tensor_type.shape.dim
        dims.extend(TensorShapeProto.Dimension() for _ in shape[len(dims) :])
        for dim, size in zip(dims, shape, strict=True):
            if size is not None:
                dim.dim_value = int(size)
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return with_proto(model, proto)


def _free(name: str, kind: TypeProto, axes: Any) -> None:
    """Make axes of an input dynamic."""
    shape = kind.tensor_type.shape.dim
    is_list = isinstance(axes, Iterable) and not isinstance(axes, str)
    if not is_list or not all(isinstance(axis, int | np.integer) for axis in axes):
        message = f"dynamic_axes[{name!r}] is {axes!r:.80}, and axes are whole numbers."
        raise SimplificationError(message, advice='For example {0: "batch"}, or [0].')
    for axis in axes:
        if not -len(shape) <= axis < len(shape):
            message = f"dynamic_axes[{name!r}] names axis {axis}, and the input is {type_text(kind)}."
            raise SimplificationError(message, advice="Axes count from 0.")
        shape[axis].dim_param = str(axes[axis]) if isinstance(axes, Mapping) else f"{name}_{axis % len(shape)}"


# --- verification -----------------------------------------------------------------------------------------------------


class _Check:
    """Runs a model and the simplified one, both as written, on feeds generated for the inputs of ``fed``."""

    def __init__(self, reference: Model, result: Model, fed: Model, rtol: float, atol: float) -> None:
        self.reference, self.result, self.fed = reference, result, fed
        self.rtol, self.atol = rtol, atol
        self.verdict: Verdict = "wrong"
        self.said = ""
        self.differences: dict[str, ErrorStats] = {}
        self.wrong: dict[str, str] = {}
        self._far: dict[str, str] = {}
        self._rounding = ""
        self._random: set[str] = set()
        self._on = self._accepted = ""
        self._only: dict[str, int] = {}

    def run(self, count: int, feeds: Any, tell: Progress, *, is_random: bool) -> None:
        """Check, run and compare; the attributes hold the outcome."""
        if count <= 0 and feeds is None:
            self.verdict, self.said = "unchecked", "It was not verified, as check_n is 0."
            return
        self.said = _complaint(self.result)
        self._accepted = "onnx's checker accepts it"
        if self.said and not _complaint(self.reference):
            return
        if self.said:
            self._accepted = "onnx's checker refuses it, as it does the original"
        tell(0.55, "running the original")
        feeds = None if feeds is None else list(read_feeds(self.fed, feeds))
        try:
            references = self._expected(count, feeds, is_random=is_random)
        except OnnxNbError as error:
            self.verdict, self.said = "unchecked", f"It was not verified, as the original does not run: {error}"
            return
        # an output may differ by a few roundings on the way to it, relative to its largest number on any feed
        roundings = {name: ROUNDINGS * precision for name, precision in _precision(self.reference).items()}
        scales = {name: max(_largest(outputs[name]) for _, outputs in references) for name in references[0][1]}
        tolerances = {
            name: (max(self.rtol, rounding), max(self.atol, rounding * scales[name]))
            for name, rounding in roundings.items()
        }
        tell(0.8, "running the simplified model")
        try:
            self._compare_runs(references, tolerances)
        except OnnxNbError as error:
            self.said = f"The simplified model does not run: {error}"
            return
        if self._far:
            self._judge(references, tolerances)
        self._conclude(len(references[0][1]))

    def _expected(self, count: int, feeds: Any, *, is_random: bool) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return feeds, each with the outputs of the original."""
        session_ = session.create(self.reference, optimize=False)

        def run(feed: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            return feed, session.run_session(session_, feed, name=self.reference.name)

        if feeds is not None:
            self._on = f"the {count_text(len(feeds), 'feed')} given"
            runs = list(map(run, feeds))
        else:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
            runs = [until_it_runs(self.fed, lambda: run(random_feeds(self.fed, seed)))]
            first, about = runs[0][0], f"seeds from {seed}; {feeds_text(self.fed)}"
            self._on = f"{count_text(count, 'random feed')} ({about})"
            kinds = input_types(self.reference).items()
            arrays = [(kind, first[name]) for name, kind in kinds if isinstance(first.get(name), np.ndarray)]
            pairs = [pair for kind, array in arrays for pair in zip(dimensions(kind) or (), array.shape, strict=False)]
            sizes = {dim: size for dim, size in pairs if isinstance(dim, str)}
            for number in range(1, count):
                # use different sizes where dynamic, if the original accepts them
                larger = {dim: size + number for dim, size in sizes.items()}
                try:
                    runs.append(run(random_feeds(self.reference if larger else self.fed, seed + number, larger)))
                except OnnxNbError:
                    if not sizes:
                        raise
                    self._only = sizes  # the model has limits that its types do not show
                    runs.append(run(random_feeds(self.fed, seed + number)))
        if is_random:
            (feed, outputs), *_ = runs
            _, again = run(feed)
            self._random = {name for name, value in outputs.items() if not _equal(value, again[name])}
        return runs

    def _compare_runs(
        self, references: list[tuple[Any, Any]], tolerances: dict[str, tuple[float, float]], *, optimize: bool = False
    ) -> None:
        session_ = session.create(self.result, optimize=optimize)
        names = {entry.name for entry in session_.get_inputs()}
        for number, (feed, outputs) in enumerate(references):
            inputs = {name: array for name, array in feed.items() if name in names}
            outputs_ = session.run_session(session_, inputs, name=self.result.name)
            for name in outputs.keys() - self._random:
                self._compare(name, outputs[name], outputs_[name], number, tolerances[name])

    def _judge(self, references: list[tuple[Any, Any]], tolerances: dict[str, tuple[float, float]]) -> None:
        """Tell rounding from errors: onnxruntime's own optimization of the original must move the output as far."""
        own = _Check(self.reference, self.reference, self.fed, self.rtol, self.atol)
        with contextlib.suppress(OnnxNbError):  # without this yardstick the tolerances decide
            own._compare_runs(references, tolerances, optimize=True)
        for name, what in self._far.items():
            errors, noise = self.differences[name], own.differences.get(name)
            far, rmse, share = (noise.max_abs, noise.rmse, noise.relative_error) if noise else (0.0, 0.0, 0.0)
            distance = f", where onnxruntime's own optimization moves {quoted(name)} by {far:.2g}"
            # a few values may be far, but not all of them
            is_near = errors.max_abs <= NOISE * far and errors.rmse <= NOISE * rmse
            is_rare = errors.outside <= FAR_SHARE * errors.count
            if is_near and is_rare and max(share, errors.relative_error) <= CONTRADICTED_ERROR:
                self._rounding = distance
            else:
                self.wrong.setdefault(name, what + distance)

    def _compare(self, name: str, reference: Any, result: Any, number: int, tolerances: tuple[float, float]) -> None:
        if isinstance(reference, list) and isinstance(result, list) and len(reference) == len(result):
            for one, other in zip(reference, result, strict=True):
                self._compare(name, one, other, number, tolerances)
            return
        if _equal(reference, result):
            return
        if not (isinstance(reference, np.ndarray) and isinstance(result, np.ndarray)):
            self.wrong.setdefault(name, f"is {result!r:.60}, not {reference!r:.60}")
            return
        if reference.shape != result.shape or reference.dtype != result.dtype:
            what = f"is {result.dtype.name} {list(result.shape)}, not {reference.dtype.name} {list(reference.shape)}"
            self.wrong.setdefault(name, what)
            return
        rtol, atol = (0.0, 0.0) if reference.dtype.kind in "biuOSU" else tolerances
        errors = ErrorStats.of(reference, result, rtol=rtol, atol=atol, feed=number)
        if errors.is_equal:
            return
        before = self.differences.get(name)
        self.differences[name] = errors if before is None else before.merge(errors)
        if errors.outside:
            worst = f"by up to {errors.max_abs:.3g}" if errors.max_abs > 0 else "in NaN or infinity"
            what = f"differs {worst} in {errors.outside} of {errors.count} values on feed {number}"
            (self._far if rtol or atol else self.wrong).setdefault(name, what)

    def _conclude(self, count: int) -> None:
        if self.wrong:
            faults = "; ".join(f"output {quoted(name)} {what}" for name, what in list(self.wrong.items())[:5])
            self.said = f"On {self._on} {faults}."
            return
        checks = count - len(self._random)
        names = ", ".join(map(quoted, sorted(self._random)))
        rest = f" {names} is random and was not compared." if names else ""
        if count and not checks:
            self.verdict, self.said = "unchecked", f"It was not verified.{rest}"
            return
        self.verdict = "verified"
        agree = f"{checks} output{' agrees' if checks == 1 else 's agree'}"
        largest = max((errors.max_abs for errors in self.differences.values()), default=0.0)
        nearly = f"to {largest:.2g} at most{self._rounding}" if largest else "exactly"
        if self._only:
            sizes = ", ".join(f"{dim}={size}" for dim, size in self._only.items())
            rest += f" Sizes other than {shortened(sizes, 200)} were tried too, and the original refused some."
        self.said = f"{agree} on {self._on}, {nearly}; {self._accepted}.{rest}"


def _precision(model: Model) -> dict[str, float]:
    """Return for each output the coarsest relative rounding of a value on the way to it."""
    graph, whole = Graph.of(model), Graph.opened(model)
    flow, maker = Flow.of(graph), whole.producer
    kinds = [[_rounding(kind.elem_type, is_quantized=way) for way in (False, True)] for kind in whole.known_types]
    quantizing = [bool(re.search("Quantize|QLinear", op)) for op, _ in whole.operators]
    is_quantized = np.append(np.asarray(quantizing, np.intp)[whole.op_index], 0)[maker]
    coarse = np.where(maker < 0, 0.0, np.asarray(kinds)[whole.type_index, is_quantized])
    root = [-1]
    for subgraph in whole.subgraphs[1:]:  # a node rounds what its bodies and the function that it calls round
        root.append(subgraph.owner_node if subgraph.parent == 0 else root[subgraph.parent])
    main = np.where(whole.value_subgraph == 0, maker, np.asarray(root)[whole.value_subgraph])
    rounding = np.zeros(graph.main_count + 1)
    np.maximum.at(rounding, main, coarse)
    precisions: list[float] = rounding.tolist()
    precisions[-1] = 0.0  # what no node makes
    for node in graph.order.tolist():
        precisions[node] = max([precisions[node], *(precisions[flow.producer[value]] for value in flow.reads(node))])
    return {graph.value_names[value]: precisions[flow.producer[value]] for value in graph.outputs.tolist()}


def _rounding(elem_type: int, *, is_quantized: bool) -> float:
    """Return the relative rounding of a type; that of integers only counts where they are quantized floats."""
    dtype = numpy_dtype(elem_type)
    name = "" if dtype is None else dtype.name
    if "float" in name or "complex" in name:
        return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return 0.5 ** int(ml_dtypes.iinfo(dtype).bits) if is_quantized and "int" in name else 0.0  # type: ignore[no-untyped-call]


def _largest(value: Any) -> float:
    """Return the largest finite absolute value in an array or a list of arrays; 0 if there is none."""
    if isinstance(value, list):
        return max(map(_largest, value), default=0.0)
    if not isinstance(value, np.ndarray) or value.dtype.kind in "biuOSU":
        return 0.0
    sizes = np.abs(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def _complaint(model: Model) -> str:
    """Return the reason why onnx's checker, with its inference of types, rejects a model; empty if it does not."""
    try:
        # a process of its own takes longer than the check
        external_data.accepted(model, full=True, apart=session.fatal_problem(Graph.opened(model)) is not None)
    except OnnxNbError as error:
        return str(error)
    return ""


def _equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    return bool(one == other)
