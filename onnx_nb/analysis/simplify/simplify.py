"""Simplify a model without changing what it computes, explain each change, and verify the result.

`rounds` folds constants and applies rules until nothing changes, and `verification` runs both models. This module has
the public function, its result, and the changes to the model's inputs before and after.
"""

from __future__ import annotations

import copy
import inspect
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import TensorShapeProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.errors import FeedError, SimplificationError
from onnx_nb.analysis.formatting import count_text, plain_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.shape_inference import BROKEN, bound
from onnx_nb.analysis.model import external_data
from onnx_nb.analysis.model.functions import key_of
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, with_proto
from onnx_nb.analysis.model.tensors import all_nodes, listed
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table
from onnx_nb.analysis.simplify.editor import Change
from onnx_nb.analysis.simplify.known_graph import NodeIds
from onnx_nb.analysis.simplify.rounds import Rounds, Step, Unfolded, rules, skipped_names
from onnx_nb.analysis.simplify.verification import ATOL, RTOL, Verdict, Verification
from onnx_nb.analysis.submodel.assembly import with_constants, with_weights

BUDGET: Final = 1 << 20
"""Default number of bytes by which constant folding may enlarge a model."""


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

    def _still(self) -> Still:
        before, after, uses = self.before, self.after, Counter(change.rule for change in self.changes)
        names = sorted({*before, *after}, key=lambda op: after.get(op, 0) - before.get(op, 0))
        counts = [(op, before.get(op, 0), after.get(op, 0)) for op in names]
        rows = [(op, f"{b:,}", f"{a:,}") for op, b, a in counts if a != b]
        by_rule = [(rule, rules()[rule], f"{count:,}") for rule, count in uses.most_common()]
        nodes = [(node.op_type, node.node, node.why) for node in self.left]
        tables = (
            StillTable(("Operator", "Before", "After"), rows, "operator"),
            StillTable(("Rule", "What it does", "Changes"), by_rule, "rule", 2),
            StillTable(("Not folded", "Node", "Why"), nodes, "node", 3),
        )
        message = f"{sum(before.values()):,} → {sum(after.values()):,} nodes, {self.verdict}"
        return Still(message, self.verification, tables, ok={"verified": True, "wrong": False}.get(self.verdict))

    def report(self) -> str:
        """Return a text: verification, number of uses of each rule, unfolded nodes, operators before and after."""
        lines = [repr(self), self.verification, ""]
        counts = Counter(change.rule for change in self.changes)
        lines += [f"{count:>7}  {rule}: {rules()[rule]}." for rule, count in counts.most_common()]
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
        If the result differs from the original.

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
    try:
        draft = with_shapes(whole, shapes)
    except FeedError as error:
        advice = f"{error.advice} An axis with a fixed size keeps it; onnx_nb.edit(model).free() frees a batch."
        raise SimplificationError(error.message, advice=advice) from None
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
    check = Verification(draft, result, draft, limits=(rtol, atol))
    check.run(check_n, feeds, tell)
    message = f"{label_of(source)} simplified is not the same. {check.said}"
    if strict and check.verdict == "wrong":
        advice = "Find the change with skip=[…], which takes names of onnx_nb.rules() and keys of single changes."
        raise SimplificationError(message, advice=advice, wrong=True)
    if strict and check.verdict == "unchecked":
        message = f"strict asks for a verified result of {label_of(source)}. {check.said}"
        raise SimplificationError(message, advice="Choose check_n and feeds on which the original runs.")
    if check.wrong:
        warnings.warn(message, stacklevel=3)
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
    if isinstance(value, Mapping):
        return {key: _literal(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_literal(part) for part in value]
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _without_unused_inputs(model: Model) -> Model:
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
    bodies = (model.proto.graph, *model.proto.functions)
    counts = Counter(key_of(node)[:2] for body in bodies for node in all_nodes(body.node))
    return MappingProxyType({f"{domain}.{op}" if domain else op: count for (domain, op), count in counts.items()})


def with_shapes(model: Model, shapes: Mapping[Any, Any] | None) -> Model:
    """Return a model whose inputs have the requested shapes; the same model if there are none."""
    if not shapes:
        return model
    proto = copy.deepcopy(model.proto)
    names = [info.name for info in model.inputs]
    types = {plain_text(info.name): info.type for info in proto.graph.input}
    only = names[0] if len(names) == 1 else None
    requests: dict[Any, Any] = {only if key is None else key: shape for key, shape in shapes.items()}
    if None in requests:
        message = f"{label_of(model)} has {len(names)} inputs, and {{None: shape}} is for a model with one."
        raise SimplificationError(message, advice=f"Its inputs: {listed(names) or 'none'}.")
    sizes, input_shapes = bound(Graph.of(model), requests, partial=True)
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
