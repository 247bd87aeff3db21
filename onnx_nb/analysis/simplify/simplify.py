"""Make a model simpler without changing what it computes, say everything that was done and why, and check it.

Each round types are inferred anew, constants are folded (`folding`), and rules rewrite the graph (`rewrites`) until
nothing changes; bodies are part of the graph, and each local function is one of its own. The result is run against the
original, both as written, on fresh random inputs. What each peer gets wrong here is named in the tests.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, ModelProto, TensorProto

from onnx_nb.analysis.dataframes import data_frame
from onnx_nb.analysis.errors import SimplificationError
from onnx_nb.analysis.formatting import closest, plain_text, quoted
from onnx_nb.analysis.graph import shape_inference
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model import external_data, wire
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, with_proto
from onnx_nb.analysis.model.nodes import all_nodes
from onnx_nb.analysis.model.value_info import dimensions, type_text
from onnx_nb.analysis.simplify.constant_folding import Folding, Left
from onnx_nb.analysis.simplify.editor import Change, Rewriting, Rule
from onnx_nb.analysis.simplify.rules import RULES
from onnx_nb.analysis.simplify.rules_onnxruntime import CONTRIB
from onnx_nb.analysis.simplify.verify import Check, Verdict

if TYPE_CHECKING:
    import pandas as pd

    from onnx_nb.analysis.compare import metrics
    from onnx_nb.analysis.progress import Progress

Axes = Mapping[int, str] | Sequence[int]

BUDGET: Final = 1 << 20
"""By how many bytes folding may make a model larger if nothing else is asked for."""
TARGETS: Final = ("onnx", "onnxruntime")
ROUNDS: Final = 8
"""Types are inferred at most so often; what is left then is left."""
RTOL, ATOL = 1e-4, 1e-5

_OPAQUE: Final = "onnx_nb.opaque "
"""Before the domain of a node whose attributes only a call of its function knows."""
_FOLDS: Final = {
    "fold_constants": "Run what does not depend on the inputs, and put the result in its place",
    "fold_shapes": "Fold what is taken out of a shape where these sizes are known, though others are not",
    "fold_reshape": "Make the shape of a Reshape constant where it keeps a dimension, or leaves one to be worked out",
}
_OTHERS: Final = {
    "eliminate_deadend": "Take away nodes of which nobody reads anything",
    "eliminate_duplicate_initializer": "Keep one of constants that are equal",
    "eliminate_unused_initializer": "Take away initializers that nobody reads",
}
_LATE: Final = ("eliminate_common_subexpression", "fuse_parallel_matmuls", "fuse_gather_into_shape")
"""Rules for when all others are done: a Conv that two read takes no BatchNormalization in, and a size may be folded."""


@dataclass(frozen=True)
class Step:
    """A model on the way from the original to the simplified one."""

    name: str
    """What was just done."""
    model: Model
    done: int = 0
    """How many of the changes had been made."""


@dataclass(frozen=True, eq=False, repr=False)
class Simplification:
    """A simplified model, and all that was done to the original. Made by `simplify`."""

    original: Model
    """As it was given."""
    model: Model
    verdict: Verdict
    """What the verification came to."""
    changes: tuple[Change, ...]
    """In the order in which they were made."""
    left: tuple[Left, ...]
    """What has constant inputs and was not folded, and why."""
    mapping: Mapping[str, str | None]
    """For each tensor of the original's main graph the one that is equal now; None if there is none any more."""
    verification: str
    """What was verified, or which output differs and by how much."""
    differences: Mapping[str, metrics.ErrorStats] = field(default_factory=dict)
    """For each output that differs at all how far it is off, on all feeds."""
    steps: tuple[Step, ...] = ()
    """With ``trace=True`` the model after each step, the original first."""
    before: Mapping[str, int] = field(default_factory=dict)
    """How many nodes of each operator there were, those of bodies and functions among them."""
    after: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of `simplify` that were not as they are by default."""

    def __repr__(self) -> str:
        sure = "verified" if self.verified else "NOT verified"
        done = f"{len(self.changes)} change{'' if len(self.changes) == 1 else 's'}"
        nodes = f"{sum(self.before.values())} → {sum(self.after.values())} nodes"
        return f"Simplification({nodes}, {done}, {len(self.left)} left, {sure})"

    @property
    def verified(self) -> bool:
        """Whether it was run against the original, and every output agreed."""
        return self.verdict == "verified"

    def again(self, *, progress: Progress | None = None, **options: Any) -> Simplification:
        """Simplify the original once more, with the same arguments but for those given.

        Examples
        --------
        >>> import onnx.parser
        >>> s = simplify(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
        ... g (float[2] x) => (float[2] z) { a = Identity(x)  b = Neg(a)  c = Neg(b)  z = Dropout(c) }'''))
        >>> s
        Simplification(4 → 2 nodes, 2 changes, 0 left, verified)
        >>> s.again(skipped_optimizers=[s.changes[0].key])
        Simplification(4 → 3 nodes, 1 change, 0 left, verified)
        """
        return simplify(self.original, progress=progress, **{**self.options, **options})

    def call(self) -> str:
        """Return the line of Python that makes this result; arrays to check with are left out of it.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { z = Neg(x) }'
        >>> simplify(onnx.parser.parse_model(text), check_n=1, skipped_optimizers=("eliminate_identity",)).call()
        "onnx_nb.simplify(model, check_n=1, skipped_optimizers=['eliminate_identity'])"
        """
        written = [
            f"{name}={_plain(value)!r}"
            for name, value in self.options.items()
            if name != "check_feeds" or isinstance(value, str | os.PathLike)
        ]
        model = "model" if self.original.path is None else repr(str(self.original.path))
        return f"onnx_nb.simplify({', '.join([model, *written])})"

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each change: rule, key, names of nodes before and after, tensors, and why."""
        return [asdict(change) for change in self.changes]

    def to_frame(self) -> pd.DataFrame:
        """Return `rows` as a pandas data frame.

        Raises
        ------
        OnnxNbError
            If pandas is not installed.
        """
        return data_frame(self.rows(), list(Change.__dataclass_fields__))

    def report(self) -> str:
        """Return a text: what was verified, how often each rule applied, what was left, operators before and after."""
        lines = [repr(self), self.verification, ""]
        rules = Counter(change.rule for change in self.changes)
        known = rewrites()
        lines += [f"{count:>7}  {rule}: {known[rule]}." for rule, count in rules.most_common()]
        if self.left:
            lines += ["", "Left as it is:"]
            lines += [f"  {left.op_type} {left.node!r:.80}: {left.why}" for left in self.left[:20]]
            lines += [f"  and {len(self.left) - 20} more"] if len(self.left) > 20 else []
        names = sorted({*self.before, *self.after})
        width = max([len("operator"), *map(len, names)])
        lines += ["", f"{'operator':<{width}}  {'before':>7}  {'after':>7}"]
        lines += [f"{name:<{width}}  {self.before.get(name, 0):>7}  {self.after.get(name, 0):>7}" for name in names]
        lines += [f"{'all':<{width}}  {sum(self.before.values()):>7}  {sum(self.after.values()):>7}"]
        return "\n".join(lines)


def simplify(
    model: ModelLike,
    *,
    input_shapes: Mapping[str | None, int | Sequence[int | None]] | None = None,
    check_n: int = 3,
    check_feeds: Any = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    perform_optimization: bool = True,
    skip_fuse_bn: bool = False,
    skipped_optimizers: Iterable[str] = (),
    skip_shape_inference: bool = False,
    skip_constant_folding: bool = False,
    fold_quantization: bool = False,
    size_budget: int = BUDGET,
    keep_inputs: bool = True,
    dynamic: Mapping[str, Axes] | None = None,
    target: str = "onnx",
    strict: bool = False,
    trace: bool = False,
    progress: Progress | None = None,
) -> Simplification:
    """Fold what is constant, rewrite what is roundabout, and check that the result computes the same.

    Names of inputs, outputs, tensors and nodes stay, and so do metadata and documentation of the nodes that stay; a
    node made of several says so in its metadata, under ``onnx_nb.merged``. Initializers that a caller may replace are
    no constants. Random operators are never folded or merged.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    input_shapes
        Shapes by the name of their input, ``{None: …}`` if there is only one, and sizes by the symbol of their
        dimension. None in a shape leaves a dimension as it is.
    check_n
        On how many random feeds to run both models; 0 leaves out the verification.
    check_feeds
        What to run them on instead, in any form that `read_feeds` takes.
    rtol, atol
        By how much outputs may differ, as `numpy.isclose` has it.
    perform_optimization
        ``False`` only folds constants and shapes.
    skip_fuse_bn
        Leave BatchNormalization after Conv as it is.
    skipped_optimizers
        Names of `rewrites`, and keys of single `Change` that are to be undone.
    skip_shape_inference
        Believe only the types that the model declares.
    skip_constant_folding
        Leave constants unfolded.
    fold_quantization
        Also fold QuantizeLinear and DequantizeLinear, which say how weights are stored.
    size_budget
        By how many bytes all folds together may make the model larger.
    keep_inputs
        ``False`` takes away inputs that nobody reads any more.
    dynamic
        Axes of inputs that have a size in the model and are to be of any size: names by axis for each input, as
        ``{"x": {0: "batch"}}``, or only the axes.
    target
        ``"onnx"`` makes operators of the standard only; ``"onnxruntime"`` also those of ``com.microsoft`` that
        onnxruntime has a kernel for on every processor, where they compute at once what several nodes do.
    strict
        Raise if the result is not verified to be the same.
    trace
        Keep the model after each step in `Simplification.steps`.
    progress
        Is given the done part, from 0 to 1, and what is being done; what it raises ends the work.

    Raises
    ------
    SimplificationError
        If an argument does not fit the model, if nodes of the model depend on each other in a circle or make the same
        tensor, or with ``strict`` if the result was not verified; it says why.
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
    given = dict(locals())
    loaded = load(model)
    tell = progress or (lambda _done, _what: None)
    _check_numbers(check_n=check_n, rtol=rtol, atol=atol, size_budget=size_budget)
    _check_mapping("input_shapes", input_shapes, '{"x": [1, 3, None, None]}')
    _check_mapping("dynamic", dynamic, '{"x": {0: "batch"}}')
    if target not in TARGETS:
        known = ", ".join(map(quoted, TARGETS))
        raise SimplificationError(f"there is no target {target!r:.80}.", advice=f"Targets: {known}.")
    asked = _checked_names(skipped_optimizers)
    if isinstance(check_feeds, Iterator):
        check_feeds = list(check_feeds)
    options = _unusual({**given, "skipped_optimizers": tuple(sorted(asked)), "check_feeds": check_feeds})
    if skip_fuse_bn:
        asked |= {"fuse_bn_into_conv"}
    if skip_constant_folding:
        asked |= set(_FOLDS)
    work = _Work(
        skipped=frozenset(asked),
        optimize=perform_optimization,
        fold=not skip_constant_folding,
        infer=not skip_shape_inference,
        quantizing=fold_quantization,
        budget=size_budget,
        contrib=target == "onnxruntime",
        tell=tell,
        steps=[Step("original", loaded)] if trace else None,
    )
    shaped = _shaped(loaded, input_shapes or {}, dynamic or {})
    if work.steps and shaped is not loaded:
        work.steps.append(Step("set shapes", shaped))
    constants, replaceable = _without_replaceable(shaped)
    try:
        rewritten = work.functions(work.rewritten(constants))
    except shape_inference.BROKEN:
        # rules take nodes for what their operators define: the checker names one that is not, if there is one
        external_data.check(loaded, full=True)
        raise
    result = _with(rewritten, replaceable) if rewritten is not constants else shaped
    if not keep_inputs:
        result = _without_unread(result)
    steps = [
        Step(each.name, _with(each.model, replaceable) if each.done else each.model, each.done)
        for each in work.steps or ()
    ]
    if work.steps and work.steps[-1].done < len(work.changes):
        steps.append(Step("local functions", result, len(work.changes)))
    tell(0.5, "checking")
    check = Check(shaped, result, loaded if dynamic and not input_shapes else shaped, rtol, atol)
    check.run(check_n, check_feeds, tell)
    if strict and check.verdict != "verified":
        raise SimplificationError(f"{label_of(loaded)} simplified is not the same: {check.said}", advice=_UNDO)
    if check.wrong:
        warnings.warn(f"{label_of(loaded)} simplified is not the same: {check.said}", stacklevel=2)
    tell(1.0, "done")
    return Simplification(
        loaded,
        result,
        check.verdict,
        tuple(work.changes),
        tuple(work.left),
        _mapping(loaded, result, work.same),
        check.said,
        MappingProxyType(check.differences),
        tuple(steps),
        _operators(loaded),
        _operators(result),
        options,
    )


def rewrites() -> dict[str, str]:
    """Return what `simplify` may do: by the name of each rewrite one line of what it does.

    Examples
    --------
    >>> rewrites()["eliminate_identity"]
    'Leave out Identity nodes'
    """
    standard = {rule.name: rule.does for rule in RULES if rule.name not in _FOLDS}
    return {**_FOLDS, **standard, **_OTHERS, **{rule.name: f"{rule.does}; for onnxruntime only" for rule in CONTRIB}}


def _unusual(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return those of the arguments of `simplify` that are not as they are by default."""
    known = inspect.signature(simplify).parameters.items()
    usual = {name: each.default for name, each in known if name not in ("model", "progress")}
    return MappingProxyType(
        {
            name: given[name]
            for name, default in usual.items()
            # arrays are not compared
            if type(given[name]) is not type(default) or given[name] != default
        }
    )


def _plain(value: Any) -> Any:
    """Return an argument as Python writes it."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


_UNDO: Final = (
    "Find the change with skipped_optimizers=[…], which takes names of onnx_nb.rewrites() and keys of single changes."
)


def _check_numbers(check_n: Any, **given: Any) -> None:
    if not isinstance(check_n, int | np.integer) or check_n < 0:
        raise SimplificationError(f"check_n is {check_n!r:.80}, and is to be a whole number from 0.")
    for name, number in given.items():
        if not isinstance(number, int | float | np.number) or not number >= 0:  # NaN is not
            raise SimplificationError(f"{name} is {number!r:.80}, and is to be a number from 0.")


def _check_mapping(name: str, given: Any, example: str) -> None:
    if given is not None and not isinstance(given, Mapping):
        message = f"{name} is {given!r:.80}, and is to be by names of inputs."
        raise SimplificationError(message, advice=f"As {name}={example}.")


def _checked_names(asked: Iterable[str]) -> set[str]:
    names = {asked} if isinstance(asked, str) else set(asked)
    known = rewrites()
    for name in names:
        if name.partition(": ")[0] not in known:
            near = ", ".join(map(quoted, closest(name, known) or known))
            raise SimplificationError(
                f"there is no rewrite {quoted(name)}.",
                advice=f"Closest names: {near}. onnx_nb.rewrites() lists all; keys of changes are in s.changes.",
            )
    return names


def _check_structure(graph: Graph) -> None:
    for fault in graph.problems:
        if fault.kind in ("cycle", "recursion") or (fault.kind == "duplicate_name" and fault.value >= 0):
            raise SimplificationError(f"{label_of(graph.model)}: {fault.message}", advice="Repair or export it again.")


# --- the model as it is asked for -------------------------------------------------------------------------------------


def _shaped(model: Model, asked: Mapping[str | None, Any], dynamic: Mapping[str, Axes]) -> Model:
    """Write the shapes that are asked for into the inputs of a model."""
    if not asked and not dynamic:
        return model
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    weights = (
        {plain_text(t.name) for t in proto.graph.initializer} if proto.ir_version >= 4 or not proto.ir_version else ()
    )
    inputs = {plain_text(info.name): info for info in proto.graph.input if plain_text(info.name) not in weights}
    for name, axes in dynamic.items():
        _free(model, inputs, name, axes)
    if dynamic:
        # what was declared or inferred for a fixed size no longer holds
        del proto.graph.value_info[:]
        for info in proto.graph.output:
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
    sizes: dict[str, int] = {}
    for key, shape in asked.items():
        _bind(model, inputs, key, shape, sizes)
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return with_proto(model, proto)


def _input(model: Model, inputs: Mapping[str, onnx.ValueInfoProto], name: object) -> onnx.ValueInfoProto:
    if isinstance(name, str) and name in inputs:
        return inputs[name]
    listed = ", ".join(f"{quoted(known)} ({type_text(info.type)})" for known, info in list(inputs.items())[:20])
    message = f"{label_of(model)} has no input {quoted(str(name))}."
    if name is None:
        message = f"{label_of(model)} has {len(inputs)} inputs, and {{None: shape}} is for one that has a single one."
    raise SimplificationError(message, advice=f"Its inputs: {listed or 'none'}.")


def _free(model: Model, inputs: Mapping[str, onnx.ValueInfoProto], name: str, axes: Any) -> None:
    """Let axes of an input be of any size."""
    info = _input(model, inputs, name)
    shape = info.type.tensor_type.shape.dim
    if (
        isinstance(axes, str)
        or not isinstance(axes, Iterable)
        or not all(isinstance(a, int | np.integer) for a in axes)
    ):
        message = f"dynamic[{name!r}] is {axes!r:.80}, and axes are whole numbers."
        raise SimplificationError(message, advice='As {0: "batch"}, or [0].')
    for axis in axes:
        if not -len(shape) <= axis < len(shape):
            message = f"dynamic[{name!r}] names axis {axis}, and the input is {type_text(info.type)}."
            raise SimplificationError(message, advice="Axes count from 0.")
        shape[axis].dim_param = str(axes[axis]) if isinstance(axes, Mapping) else f"{name}_{axis % len(shape)}"


def _bind(
    model: Model, inputs: Mapping[str, onnx.ValueInfoProto], key: str | None, shape: Any, sizes: dict[str, int]
) -> None:
    """Write one entry of ``input_shapes`` down; sizes of symbols are collected."""
    if isinstance(shape, int | np.integer):
        symbols = {
            d.dim_param: None for info in inputs.values() for d in info.type.tensor_type.shape.dim if d.dim_param
        }
        if key not in symbols:
            message = f"{label_of(model)} has no dimension {quoted(str(key))}."
            listed = ", ".join(map(quoted, symbols)) or "none"
            raise SimplificationError(message, advice=f"Its dimensions of any size: {listed}. A shape is a list.")
        _agree(sizes, str(key), int(shape))
        return
    (key,) = inputs if key is None and len(inputs) == 1 else (key,)
    info = _input(model, inputs, key)
    asked = list(shape) if isinstance(shape, Iterable) else [shape]
    if shape is None or not all(s is None or (isinstance(s, int | np.integer) and 0 <= s < 1 << 63) for s in asked):
        raise SimplificationError(
            f"input_shapes[{key!r}] is {shape!r:.80}, and sizes are whole numbers from 0, or None."
        )
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
        message = f"input_shapes[{key!r}] is {shape!r:.80}, and the input is {type_text(info.type)}."
        fixed = "Give a size for each axis; one that has a size in the model stays, or is freed by dynamic=…."
        raise SimplificationError(message, advice=fixed)
    for dim, size in zip(info.type.tensor_type.shape.dim, asked, strict=True):
        if size is not None and dim.dim_param:
            _agree(sizes, dim.dim_param, int(size))
        elif size is not None:
            dim.dim_value = int(size)


def _agree(sizes: dict[str, int], symbol: str, size: int) -> None:
    if sizes.setdefault(symbol, size) != size:
        message = f"dimension {quoted(symbol)} is given sizes {sizes[symbol]} and {size}."
        raise SimplificationError(message, advice="Give shapes that agree.")


def _without_replaceable(model: Model) -> tuple[Model, list[TensorProto]]:
    """Take away the initializers that a caller may replace, so that they are plain inputs; give them apart."""
    proto = model.proto
    if 0 < proto.ir_version < 4:
        return model, []  # there every weight had to be an input; none is meant to be given by a caller
    inputs = {plain_text(info.name) for info in proto.graph.input}
    apart = [tensor for tensor in proto.graph.initializer if plain_text(tensor.name) in inputs]
    if not apart:
        return model, []
    without = ModelProto()
    wire.copy_fields(proto, without, without=("graph",))
    wire.copy_fields(proto.graph, without.graph, without=("initializer",))
    without.graph.initializer.extend(t for t in proto.graph.initializer if plain_text(t.name) not in inputs)
    return with_proto(model, without), apart


def _with(model: Model, replaceable: Sequence[TensorProto]) -> Model:
    """Put back the initializers that a caller may replace."""
    if not replaceable:
        return model
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    proto.graph.initializer.extend(replaceable)
    return with_proto(model, proto)


def _without_unread(model: Model) -> Model:
    """Take away inputs that nobody reads, with their initializers."""
    graph = Graph.of(model)
    ends = graph.outputs.tolist()
    values = [*graph.inputs.tolist(), *graph.overridable.tolist()]
    unread = {graph.value_names[v] for v in values if not len(graph.consumers(v)) and v not in ends}
    if not unread:
        return model
    proto = ModelProto()
    wire.copy_fields(model.proto, proto, without=("graph",))
    wire.copy_fields(model.proto.graph, proto.graph, without=("input", "initializer"))
    proto.graph.input.extend(info for info in model.proto.graph.input if plain_text(info.name) not in unread)
    proto.graph.initializer.extend(t for t in model.proto.graph.initializer if plain_text(t.name) not in unread)
    return with_proto(model, proto)


# --- the work ---------------------------------------------------------------------------------------------------------


@dataclass
class _Work:
    """What is done to the graphs of a model, one after another."""

    skipped: frozenset[str]
    optimize: bool
    fold: bool
    infer: bool
    quantizing: bool
    budget: int
    contrib: bool
    tell: Progress
    steps: list[Step] | None
    changes: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    same: dict[str, str] = field(default_factory=dict)
    spent: int = 0

    def rewritten(self, model: Model, prefix: str = "") -> Model:
        """Rewrite a graph until nothing changes; give the same model if nothing did."""
        _check_structure(Graph.of(model))
        rules = [rule for rule in RULES if self.optimize or rule.name in _FOLDS]
        left: list[Left] = []
        for number in range(ROUNDS):
            self.tell(min(0.45, 0.05 + 0.1 * number), f"round {number + 1}{' in ' + prefix[:-1] if prefix else ''}")
            net = Rewriting(model, self._types(model), skipped=self.skipped, prefix=prefix)
            left = self._round(net, rules, first=number == 0)
            model = self._done(net)
            if not net.changes:
                break
        if self.contrib and self.optimize:
            # at last, as other rules know the standard's operators only
            net = Rewriting(model, self._types(model), skipped=self.skipped, prefix=prefix)
            self._rules(net, CONTRIB)
            model = self._done(net)
        self.left += left
        return model

    def _done(self, net: Rewriting) -> Model:
        """Write down what was changed."""
        if not net.changes:
            return net.source
        self.changes += net.changes
        if not net.prefix:
            self.same |= net.same
        return net.model()

    def _types(self, model: Model) -> shape_inference.Types:
        if self.infer:
            return shape_inference.infer(model)
        graph = Graph.of(model)
        return shape_inference.Types(graph, [], np.full(graph.node_count, -1, np.int32), {}, ())

    def _round(self, net: Rewriting, rules: Sequence[Rule], *, first: bool) -> list[Left]:
        net.run([rule for rule in RULES if rule.name == "extract_constants"])
        if first:
            net.sweep()
            net.drop_unused()
        folding = Folding(net, budget=self.budget, spent=self.spent, quantizing=self.quantizing)
        if self.fold:
            folding.known_integers()
        while True:
            count = len(net.changes)
            if self.fold:
                folding.constants()
                self._keep(net, "fold constants")
            self._rules(net, rules)
            if len(net.changes) == count:
                break
        self.spent = folding.spent
        return list(folding.left.values())

    def _rules(self, net: Rewriting, rules: Sequence[Rule]) -> None:
        net.merge_constants()
        net.run([rule for rule in rules if rule.name not in _LATE], self._waiting)
        net.run([rule for rule in rules if rule.name in _LATE], self._waiting)
        net.sweep()
        self._keep(net, "rewrite")

    def _waiting(self, count: int) -> None:
        self.tell(0.3, f"{count} nodes to look at")

    def _keep(self, net: Rewriting, what: str) -> None:
        done = len(self.changes) + len(net.changes)
        if self.steps and not net.prefix and done > self.steps[-1].done:
            again = any(step.name == what for step in self.steps)
            self.steps.append(Step(f"{what}, again" if again else what, net.model(), done))

    def functions(self, model: Model) -> Model:
        """Rewrite the body of each local function as a graph of its own, of whose inputs nothing is known."""
        functions = model.proto.functions
        found = [self._function(model, function) for function in functions]
        if all(new is None for new in found):
            return model
        proto = ModelProto()
        wire.copy_fields(model.proto, proto, without=("functions",))
        proto.functions.extend(new or old for new, old in zip(found, functions, strict=True))
        imported = {entry.domain for entry in proto.opset_import}
        used = {entry.domain: entry.version for new in found if new is not None for entry in new.opset_import}
        for domain in sorted(set(used) - imported):
            proto.opset_import.add(domain=domain, version=used[domain])
        return with_proto(model, proto)

    def _function(self, model: Model, function: FunctionProto) -> FunctionProto | None:
        proto = ModelProto(ir_version=max(model.proto.ir_version, 8), opset_import=function.opset_import)
        proto.graph.name = function.name
        proto.graph.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
        proto.graph.node.extend(function.node)
        proto.graph.value_info.extend(function.value_info)
        for node in all_nodes(proto.graph.node):
            if any(attribute.ref_attr_name for attribute in node.attribute):
                node.domain = _OPAQUE + node.domain
        prefix = f"{plain_text(function.domain)}.{plain_text(function.name)}/"
        rewritten = self.rewritten(with_proto(model, proto, prefix[:-1]), prefix).proto
        if rewritten is proto:
            return None
        body = rewritten.graph
        found = FunctionProto()
        wire.copy_fields(function, found, without=("node", "value_info", "opset_import"))
        found.opset_import.extend(rewritten.opset_import)
        written = {plain_text(node.output[0]): node for node in function.node if node.op_type == "Constant"}
        for tensor in body.initializer:
            if plain_text(tensor.name) in written:
                found.node.append(written[plain_text(tensor.name)])
                continue
            node = onnx.helper.make_node("Constant", [], [tensor.name])
            node.attribute.add(name="value", type=AttributeProto.TENSOR, t=tensor)
            found.node.append(node)
        found.node.extend(body.node)
        for node in all_nodes(found.node):
            node.domain = node.domain.removeprefix(_OPAQUE)
        found.value_info.extend(body.value_info)
        return found


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
