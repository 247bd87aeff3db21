"""Free the batch of a model: find what pins it, mend it, and prove that no sample changes another.

Nodes run one by one, each for one batch, for another one, and for both at once. What a node makes of both is what it
makes of each, the same for all or side by side along an axis. Where it is not, the node pins the batch or mixes
samples. Shapes that are written for one size are mended, and constants that each sample needs; only Reshape is known
by its name, as it may let the batch slip into another axis.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from onnx_nb.analysis.edit.surgery import EditResult, copy_of, discard, fresh
from onnx_nb.analysis.errors import EditError, OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, label_of, with_proto
from onnx_nb.analysis.model.tensors import all_nodes, attribute, dimensions, input_types
from onnx_nb.analysis.model.wire import set_entries
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.random_feeds import random_feeds
from onnx_nb.analysis.simplify.verification import largest
from onnx_nb.analysis.submodel.assembly import assemble, type_of_result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.progress import Progress

RTOL, ATOL = 1e-3, 2e-4
"""Tolerances of a sample beside others: relative, and relative to its largest number."""
RARE: Final = 1e-3
"""Share of whole numbers, such as quantized ones, that rounding may move."""
SCALES: Final = (1.0, 20.0, 1e-4)
"""Factors of the samples: a loud or a silent one shows a scale, or a maximum, that all share."""
SIZES: Final = (2, 3, 7)
"""Sizes of the batch on which the result is proved."""


class BatchLayout(NamedTuple):
    """Where the samples of a value lie."""

    axis: int
    outer: int = 1
    """What stands before the batch in this axis, which is outer × batch × the rest."""


SHARED: Final = BatchLayout(-1)
"""Of a value that is the same for all samples."""
OPEN: Final = BatchLayout(-2)
"""Of a value that is made of sizes, or of positions, or is no tensor: it tells nothing of samples."""


class _Value(NamedTuple):
    one: Any
    two: Any
    both: Any
    layout: BatchLayout | None


class _Mend(NamedTuple):
    """A change to an input of a node, which then fits any batch."""

    node: int
    value: int
    axis: int
    """The entry of a shape that is the size of the batch, or the axis of a tensor that is the same for each sample."""
    rank: int
    length: int = 0
    """Entries of that axis that belong to one sample; 0 for a shape."""
    literal: tuple[int, ...] = ()
    """A shape that fits any batch."""


_Repairs = list[tuple[_Mend, _Value]]


def free(model: Model, name: str, axes: Mapping[str, int] | None, progress: Progress | None = None) -> EditResult:
    """Make the batch dynamic; see `Edit.free`."""
    session.run(model)  # where sizes are free, it finds some that the model takes, and they are kept
    failure = EditError(f"{label_of(model)} has no input with a batch.", advice="Name its axis: axes={'x': 0}.")
    for number, choice in enumerate(_choices(model, axes)):
        try:
            return _Freeing(model, name, choice, progress or (lambda _done, _what: None)).outcome()
        except EditError as error:
            failure = failure if number else error
    raise failure


def layout_of(one: Any, two: Any, both: Any) -> BatchLayout | None:
    """Return where two batches lie in what holds both; None if both are not made of the two."""
    if not all(isinstance(array, np.ndarray) for array in (one, two, both)):
        return OPEN
    if both.shape == one.shape:
        return SHARED if _is_near(one, two) and _is_near(one, both) else None
    for axis, size in enumerate(one.shape):
        if both.shape == (*one.shape[:axis], 2 * size, *one.shape[axis + 1 :]):
            for outer in range(1, size + 1):
                parts = _parts(both, BatchLayout(axis, outer), 2) if size % outer == 0 else ()
                if parts and _is_near(one, parts[0]) and _is_near(two, parts[1]):
                    return BatchLayout(axis, outer)
    return None


def _parts(array: NDArray[Any], layout: BatchLayout, count: int) -> list[NDArray[Any]]:
    before, after = array.shape[: layout.axis], array.shape[layout.axis + 1 :]
    inner = array.shape[layout.axis] // (count * layout.outer)
    split = array.reshape(*before, layout.outer, count, inner, *after)
    return [split.take(i, layout.axis + 1).reshape(*before, layout.outer * inner, *after) for i in range(count)]


def _joint(one: NDArray[Any], two: NDArray[Any], layout: BatchLayout) -> NDArray[Any]:
    axis = layout.axis
    split = [array.reshape(*array.shape[:axis], layout.outer, -1, *array.shape[axis + 1 :]) for array in (one, two)]
    return np.concatenate(split, axis + 1).reshape(*one.shape[:axis], 2 * one.shape[axis], *one.shape[axis + 1 :])


def _is_near(one: NDArray[Any], other: NDArray[Any], scale: float = 0) -> bool:
    """Return whether two arrays are equal but for rounding, of them or of numbers as large as ``scale``."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind not in "fcV":
        return not one.size or float(np.mean(one != other)) <= RARE
    atol = ATOL * largest(one) + scale * float(np.finfo(np.float32).eps)
    return bool(np.isclose(other, one, RTOL, atol, equal_nan=True).all())


def _choices(model: Model, axes: Mapping[str, int] | None) -> Iterator[dict[str, int]]:
    """Yield axes that may be the batch: the first, the second of states of recurrent networks, not those of vectors."""
    shapes = {name: dimensions(kind) or () for name, kind in input_types(model).items()}
    for name, axis in (axes or {}).items():
        if name not in shapes or not 0 <= axis < len(shapes[name]):
            message = f"{label_of(model)} has no input {quoted(name)} with axis {axis}."
            raise EditError(message, advice="Axes are from 0.")
    if axes is not None:
        yield dict(axes)
        return
    size = next((shape[0] for shape in shapes.values() if shape), None)
    first = {name: shape.index(size) for name, shape in shapes.items() if size in shape[:2]}
    states = {name: 1 if len(shapes[name]) == 3 and shapes[name][1] == size else at for name, at in first.items()}
    choices = [first, states, *({n: at for n, at in c.items() if len(shapes[n]) > 1} for c in (first, states))]
    yield from (choice for at, choice in enumerate(choices) if choice and choice not in choices[:at])


class _Freeing:
    def __init__(self, model: Model, name: str, axes: Mapping[str, int], tell: Progress) -> None:
        self.model, self.name, self.axes, self.tell = model, name, axes, tell
        self.graph = Graph.of(model)
        self.mends: list[_Mend] = []
        dims = {key: dimensions(kind) or () for key, kind in input_types(model).items()}
        sizes = {dims[key][axis] for key, axis in axes.items()}
        self.symbols: dict[str, int] = {size: 1 for size in sizes if isinstance(size, str)}
        self.size = next((size for size in sizes if isinstance(size, int)), 1)

    def outcome(self) -> EditResult:
        """Return the model with a free batch, proved."""
        layouts = self._walk()
        result = self._result_of(layouts)
        rest = self._prove(result, layouts)
        ops = Counter(self.graph.op_type(mend.node) for mend in self.mends)
        text = f"freed {self.name} of {', '.join(self.axes)}"
        text += f", mended {', '.join(f'{op} ×{number}' for op, number in ops.items())}" if ops else ""
        proof = f"in batches of {', '.join(map(str, SIZES))} different samples each gives what it gives alone"
        proof += f"; {', '.join(rest)} not compared" if rest else ""
        return EditResult(result, text, is_same=True, proof=proof)

    def _feed(self, number: int) -> dict[str, Any]:
        """Return a batch as large as the model has it, of a scale of its own; other inputs are always the same."""
        feed, same = (random_feeds(self.model, seed, self.symbols) for seed in (number, 0))
        scale = SCALES[number % len(SCALES)]
        floats = {key: feed[key] * scale if feed[key].dtype.kind == "f" else feed[key] for key in self.axes}
        return same | {key: array.astype(feed[key].dtype) for key, array in floats.items()}

    def _beside(self, feeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {**feeds[0], **{key: np.concatenate([f[key] for f in feeds], axis) for key, axis in self.axes.items()}}

    def _walk(self) -> dict[str, BatchLayout]:
        """Run the nodes one by one; return the layout of every value."""
        graph, flow = self.graph, Flow.of(self.graph)
        one, two = self._feed(0), self._feed(1)
        both = self._beside([one, two])
        layouts = {key: BatchLayout(self.axes[key]) if key in self.axes else SHARED for key in one}
        values = {graph.value(key): _Value(one[key], two[key], both[key], layouts[key]) for key in one}
        order = flow.sorted(range(graph.main_count))
        last = {value: node for node in order for value in flow.reads(node)}
        for number, node in enumerate(order):
            self.tell(0.7 * number / len(order), "running node by node")
            results, reason = self._run(node, values)
            for repairs in self._repairs(node, values, results):
                trial, _ = self._run(node, {**values, **{mend.value: operand for mend, operand in repairs}})
                if all(value.layout is not None for value in trial.values()):
                    self.mends += [mend for mend, _ in repairs]
                    results = trial
                    break
            for value, entry in results.items():
                if entry.layout is None:
                    what = f"fails on two batches at once ({reason:.300})" if reason else "mixes the samples of a batch"
                    message = f"{self.name} of {label_of(self.model)} cannot be freed: {graph.node_label(node)} {what}."
                    advice = "Replace this node, or export the model with a dynamic batch."
                    raise EditError(message, advice=advice, node=graph.names[node] or graph.value_names[value])
                # roundings do not add up: the next node reads what both would give by themselves
                joint = _joint(entry.one, entry.two, entry.layout) if entry.layout.axis >= 0 else entry.both
                values[value], layouts[graph.value_names[value]] = entry._replace(both=joint), entry.layout
            for value in (value for value in flow.reads(node) if last[value] == node):
                values.pop(value, None)
        return layouts

    def _run(self, node: int, values: Mapping[int, _Value]) -> tuple[dict[int, _Value], str]:
        """Run a node on each batch and on both; return what it makes, and why it does not run on both."""
        graph, label = self.graph, self.graph.node_label(node)
        reads = [value for value in dict.fromkeys(Flow.of(graph).reads(node)) if value in values]
        ends = graph.results(node)
        arrays = {value: values[value].one for value in reads if isinstance(values[value].one, np.ndarray)}
        types = {v: type_of_result(arrays[v]) if v in arrays else graph.type_of(v).proto for v in reads}
        types |= dict.fromkeys(ends, onnx.TypeProto())
        same = [value for value in reads if values[value].layout == SHARED]
        constants = [value for value in same if value in arrays and arrays[value].nbytes < 1 << 16]
        inputs = [value for value in reads if value not in constants]
        weights = [numpy_helper.from_array(arrays[value], graph.value_names[value]) for value in constants]
        part = assemble(self.model, [node], inputs, ends, name=label, constants=weights, types=types, declare=False)
        runner = session.create(part, optimize=False, threads=1)
        layouts, sides, reason = {values[value].layout for value in reads}, list[dict[str, Any] | None](), ""
        for column in (0,) if layouts <= {SHARED} else (0, 1, 2):
            feed = {graph.value_names[value]: values[value][column] for value in inputs}
            try:
                sides.append(session.run_session(runner, feed, name=label))
            except OnnxNbError as error:
                if column < 2:
                    raise EditError(f"{label} does not run by itself: {error.message}", advice=error.advice) from None
                sides.append(None)
                reason = error.message
        results = dict[int, _Value]()
        for value in ends:
            one, two, both = (None if side is None else side[graph.value_names[value]] for side in (sides * 3)[:3])
            layout = SHARED if layouts <= {SHARED} else OPEN if layouts <= {SHARED, OPEN} else None
            layout = layout or (None if both is None else layout_of(one, two, both))
            if layout is None and isinstance(both, np.ndarray) and both.dtype in (np.int64, np.int32):
                layout = OPEN  # positions may count on through the batch: the proof decides
            results[value] = _Value(one, two, both, layout)
        return results, reason

    def _repairs(self, node: int, values: Mapping[int, _Value], results: Mapping[int, _Value]) -> Iterator[_Repairs]:
        """Yield what inputs of a node may become, if the node does not do or a Reshape lets the batch slip."""
        graph, is_reshape = self.graph, self.graph.op_type(node) == "Reshape"
        may_slip = is_reshape and next((value.layout for value in results.values()), None) not in (SHARED, OPEN)
        if not may_slip and all(value.layout is not None for value in results.values()):
            return
        operands = {
            value: values[value].one if value in values else self.model.tensor(graph.value_names[value])
            for value in graph.node_inputs(node).tolist()
            if value >= 0 and (value not in values or values[value].layout in (SHARED, OPEN))
        }
        if is_reshape:
            yield from self._shapes(node, values, next(iter(results.values())), operands)
            return
        for value, array in operands.items():
            for axis, number in enumerate(array.tolist() if array.dtype == np.int64 and array.ndim == 1 else ()):
                if number == self.size:
                    yield [(_Mend(node, value, axis, len(array)), _Value(array, array, _twice(array, axis), OPEN))]
        by_axis: dict[int, _Repairs] = {}
        for value, array in operands.items():
            for axis, number in sorted(enumerate(array.shape), key=lambda pair: pair[1] != self.size):
                parts = _parts(array, BatchLayout(axis), self.size) if number and number % self.size == 0 else ()
                if parts and all(np.array_equal(part, parts[0]) for part in parts):
                    both = _Value(array, array, np.concatenate([array, array], axis), BatchLayout(axis))
                    mend = _Mend(node, value, axis, array.ndim, number // self.size)
                    by_axis.setdefault(axis, []).append((mend, both))
                    yield by_axis[axis][-1:]
        yield from by_axis.values()

    def _shapes(
        self, node: int, values: Mapping[int, _Value], result: _Value, operands: Mapping[int, NDArray[Any]]
    ) -> Iterator[_Repairs]:
        """Yield other shapes for a Reshape: what stands before the batch in memory is the same after."""
        data, shape = self.graph.node_inputs(node).tolist()[:2]
        if data not in values or shape not in operands:
            return
        source, former, literal = values[data].layout or OPEN, values[data].one.shape, operands[shape].tolist()
        before, after = math.prod(former[: source.axis]) * source.outer, result.one.shape
        places = [j for j in range(len(after)) if math.prod(after[:j]) > 0 and before % math.prod(after[:j]) == 0]
        layout = result.layout
        if layout is not None:  # the batch may have slipped into what is left for −1
            places = [j for j in places if j < layout.axis and literal[j] == 1 and literal[layout.axis] == -1]
        size = former[source.axis]
        ranks = {j: (after[j] != self.size, before != math.prod(after[:j]), after[j] != size, j) for j in places}
        has_zeros = bool(attribute(self.graph.nodes[node], "allowzero", 0))
        for axis in sorted(places, key=ranks.__getitem__):
            is_copy = (axis, after[axis]) == (source.axis, size) and not has_zeros
            entry = -1 if -1 not in literal else 0 if is_copy else None
            trial: tuple[int, ...] = ()
            if entry is not None and (shape not in values or values[shape].layout == SHARED):
                trial = tuple(entry if at == axis else number for at, number in enumerate(literal))
            array = np.asarray(after, np.int64)
            mend = _Mend(node, shape, axis, len(array), literal=trial)
            yield [(mend, _Value(array, array, _twice(array, axis), OPEN))]

    def _result_of(self, layouts: Mapping[str, BatchLayout]) -> Model:
        """Return the model with free axes and mended inputs of nodes."""
        proto = copy_of(self.model)
        for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
            dims, layout = info.type.tensor_type.shape.dim, layouts.get(info.name, SHARED)
            if 0 <= layout.axis < len(dims):
                is_batch = info.name in self.axes or dims[layout.axis].dim_value == self.size
                dims[layout.axis].Clear()
                dims[layout.axis].dim_param = self.name if is_batch and layout.outer == 1 else ""
            elif layout == OPEN and info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
        vectors, former_nodes = dict[tuple[int, ...], str](), self.model.proto.graph.node

        def vector(*numbers: int) -> str:
            if numbers not in vectors:
                vectors[numbers] = fresh(f"{self.name}_{'_'.join(map(str, numbers)) or 'none'}", proto)
                proto.graph.initializer.append(numpy_helper.from_array(np.asarray(numbers, np.int64), vectors[numbers]))
            return vectors[numbers]

        nodes, mends = list[NodeProto](), {node: [m for m in self.mends if m.node == node] for node, *_ in self.mends}
        count, times = (fresh(f"{self.name}_{word}", proto) for word in ("size", "times"))

        def add(op: str, inputs: list[str], result: str, **attributes: Any) -> str:
            nodes.append(helper.make_node(op, inputs, [result], result, **attributes))
            return result

        if any(not mend.literal for mend in self.mends):
            source, at = next(iter(self.axes.items()))
            add("Gather", [add("Shape", [source], fresh(f"{self.name}_shape", proto)), vector(at)], count)
            add("Div", [count, vector(self.size)], times)
        for number, node in enumerate(former_nodes):
            duplicate = copy.deepcopy(node)
            for mend in mends.get(number, ()):
                former = self.graph.value_names[mend.value]
                now = vector(*mend.literal) if mend.literal else fresh(f"{former}_{self.name}_{number}", proto)
                duplicate.input[:] = [now if name == former else name for name in duplicate.input]
                if not mend.literal:
                    ones = (1,) * mend.axis, (1,) * (mend.rank - mend.axis - 1)
                    middle = count if mend.length else times
                    by = add("Concat", [vector(*ones[0]), middle, vector(*ones[1])], f"{now}_by", axis=0)
                    if mend.length and self.size > 1:
                        ends = vector(0), vector(mend.length), vector(mend.axis)
                        former = add("Slice", [former, *ends], f"{now}_first")
                    add("Tile" if mend.length else "Mul", [former, by], now)
            nodes.append(duplicate)
        set_entries(proto.graph.node, nodes)
        unread = {self.graph.value_names[mend.value] for mend in self.mends} & {w.name for w in proto.graph.initializer}
        unread.difference_update(*(node.input for node in all_nodes(nodes)), (end.name for end in proto.graph.output))
        discard(proto.graph, unread)
        return with_proto(self.model, proto)

    def _prove(self, result: Model, layouts: Mapping[str, BatchLayout]) -> list[str]:
        """Run batches and each sample alone; return the outputs that cannot be compared."""
        former, new = (session.create(model, optimize=False) for model in (self.model, result))
        gaps = []
        for number, count in enumerate(SIZES):
            self.tell(0.7 + 0.1 * number, f"proving a batch of {count}")
            feeds = [self._feed(number) for number in range(count)]
            alone = [session.run_session(former, feed, name=self.model.name) for feed in feeds]
            try:
                whole = session.run_session(new, self._beside(feeds), name=self.model.name)
            except OnnxNbError as error:
                message = f"{self.name} of {label_of(self.model)} cannot be freed: {error.message}"
                raise EditError(message, advice="Export the model with a dynamic batch.") from None
            for key, array in whole.items():
                singles, layout = [results[key] for results in alone], layouts.get(key, SHARED)
                if layout == OPEN and count == 2:
                    layouts = {**layouts, key: layout_of(singles[0], singles[1], array) or SHARED}
                    layout = layouts[key]
                if layout == OPEN:
                    gaps += [key] if key not in gaps else []
                    continue
                parts = [array] * count if layout == SHARED else _parts(array, layout, count)
                scale = max(map(largest, singles))
                if not all(_is_near(one, part, scale) for one, part in zip(singles, parts, strict=True)):
                    is_same = all(one.shape == part.shape for one, part in zip(singles, parts, strict=True))
                    why = "samples change each other in" if is_same else "values decide the size of"
                    message = f"{self.name} of {label_of(self.model)} cannot be freed: {why} {quoted(key)}."
                    advice = "A node takes a scale, a sum or a maximum over the batch, or selects by values."
                    raise EditError(message, advice=advice)
        return gaps


def _twice(array: NDArray[Any], axis: int) -> NDArray[Any]:
    return array * np.where(np.arange(len(array)) == axis, 2, 1)
