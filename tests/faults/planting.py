"""Faults, each planted into a copy of an export at a node that is known.

A kind of fault is a function that yields the places where it fits, each as an edit. An edit returns the outputs of the
nodes that are wrong afterwards; nodes that it adds have the name and the metadata of the node that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

Edit: TypeAlias = Callable[[], set[str]]
"""Makes an export wrong, and returns the outputs of the faulty nodes."""
Kind: TypeAlias = Callable[["Export"], Iterator[Edit]]


class Step(NamedTuple):
    """A node to put in: its operator, the inputs after the first one, and its attributes."""

    operator: str
    more: tuple[str | float, ...] = ()
    attributes: tuple[tuple[str, int], ...] = ()


class Export:
    """A copy of an export and what its nodes compute in the sound one."""

    def __init__(self, proto: onnx.ModelProto, values: dict[str, NDArray[Any]]) -> None:
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(proto)
        del self.proto.graph.value_info[:]  # some would be wrong
        self.graph = self.proto.graph
        self.values = values
        """Tensors of the sound export."""
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.weights = {tensor.name: tensor for tensor in self.graph.initializer}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.fixed = fixed_tensors(self.graph)
        self.missing: NodeProto | None = None
        """A node that an edit took out; those that read it are wrong."""

    def nodes(self, *types: str) -> Iterator[NodeProto]:
        """Yield the nodes of some types that compute more than shapes and constants."""
        for node in self.graph.node:
            if node.op_type in types and node.output[0] not in self.fixed:
                yield node

    def constant(self, name: str) -> NDArray[Any] | None:
        """Return the value of a tensor that is a weight or a Constant, through Identity, Cast, Transpose and such."""
        return self.values[name] if name in self.fixed and name in self.values else None

    def replace(self, node: NodeProto, place: int, array: NDArray[Any]) -> set[str]:
        """Let one input of a node be another constant."""
        name = f"fault {len(self.graph.initializer)} of {node.output[0]}"
        old = self.values[node.input[place]]
        fitting = np.ascontiguousarray(array.astype(old.dtype).reshape(array.shape))
        self.graph.initializer.append(numpy_helper.from_array(fitting, name))
        node.input[place] = name
        return {node.output[0]}

    def insert(self, node: NodeProto, *steps: Step) -> set[str]:
        """Put nodes behind a node, each reading the one before it first."""
        name = node.output[0]
        last = node.output[0] = f"{name} before"
        at = next(place for place, other in enumerate(self.graph.node) if last in other.output)
        made = set()
        for number, step in enumerate(steps):
            output = name if number == len(steps) - 1 else f"{name} between {number}"
            inputs = [each if isinstance(each, str) else self.scalar(each) for each in step.more]
            label = f"{node.name.rpartition('/')[0]}/Fault_{number}" if "/" in node.name else f"fault_{number}"
            new = helper.make_node(step.operator, [last, *inputs], [output], label, node.doc_string)
            new.attribute.extend(helper.make_attribute(*each) for each in step.attributes)
            new.metadata_props.extend(node.metadata_props)
            self.graph.node.insert(at + 1 + number, new)
            made.add(output)
            last = output
        return made

    def bypass(self, node: NodeProto, place: int) -> set[str]:
        """Let a node return one of its inputs."""
        source = node.input[place]
        node.op_type, node.input[:] = "Identity", [source]
        del node.attribute[:]
        return {node.output[0]}

    def scalar(self, value: float) -> str:
        """Return the name of a new scalar."""
        name = f"fault scalar {len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def is_float(self, name: str) -> bool:
        """Return whether a tensor has floats."""
        return name in self.values and self.values[name].dtype.kind == "f"

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor of the sound export."""
        return self.values[name].shape if name in self.values else None


def fixed_tensors(graph: onnx.GraphProto) -> set[str]:
    """Return the tensors that depend on no input of the model but by its shape."""
    fixed = {tensor.name for tensor in graph.initializer} | {""}
    for node in graph.node:
        if node.op_type in ("Shape", "Size") or all(name in fixed for name in node.input):
            fixed.update(node.output)
    return fixed


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """Return an attribute of a node."""
    return next((helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)


def setting(node: NodeProto, name: str, value: Any) -> Edit:
    """Return the edit that sets an attribute."""

    def edit() -> set[str]:
        others = [each for each in node.attribute if each.name != name]
        del node.attribute[:]
        node.attribute.extend([*others, helper.make_attribute(name, value)])
        return {node.output[0]}

    return edit


# --- weights --------------------------------------------------------------------------------------------------------

_LINEAR: Final = ("Gemm", "MatMul", "Conv", "ConvTranspose")


def weight(export: Export) -> Iterator[Edit]:
    """One value of a matrix or a filter has the wrong sign."""
    for node in export.nodes(*_LINEAR, "LSTM", "GRU"):
        array = export.constant(node.input[1])
        if array is not None and array.ndim > 1:
            changed = array.copy()
            changed.flat[int(np.abs(array).argmax())] *= -1
            yield partial(export.replace, node, 1, changed)


def bias(export: Export) -> Iterator[Edit]:
    """One value of a bias is wrong."""
    for node in export.nodes("Gemm", "Conv", "ConvTranspose", "Add", "LayerNormalization", "BatchNormalization"):
        for place in range(len(node.input)) if node.op_type == "Add" else [2]:
            array = export.constant(node.input[place]) if len(node.input) > place else None
            if array is not None and array.dtype.kind == "f" and array.ndim == 1 and array.size > 1:
                changed = array.copy()
                changed[array.size // 3] += 0.5
                yield partial(export.replace, node, place, changed)


def transposed_weight(export: Export) -> Iterator[Edit]:
    """A square matrix is transposed."""
    for node in export.nodes("Gemm", "MatMul"):
        array = export.constant(node.input[1])
        if array is not None and array.ndim == 2 and array.shape[0] == array.shape[1]:
            yield partial(export.replace, node, 1, array.T)


def swapped_weights(export: Export) -> Iterator[Edit]:
    """Two matrices of one shape have changed places."""
    found: dict[tuple[int, ...], NodeProto] = {}
    for node in export.nodes("Gemm", "MatMul", "Conv"):
        array = export.constant(node.input[1])
        if array is None or array.ndim < 2:
            continue
        other = found.pop(array.shape, None)
        if other is None:
            found[array.shape] = node
        elif other.input[1] != node.input[1]:

            def edit(one: NodeProto = other, two: NodeProto = node) -> set[str]:
                one.input[1], two.input[1] = two.input[1], one.input[1]
                return {one.output[0], two.output[0]}

            yield edit


def embedding(export: Export) -> Iterator[Edit]:
    """The rows of a table are shifted by one."""
    for node in export.nodes("Gather"):
        array = export.constant(node.input[0])
        if array is not None and array.ndim == 2 and array.dtype.kind == "f":
            yield partial(export.replace, node, 0, np.roll(array, 1, 0))


def norm_weight(export: Export) -> Iterator[Edit]:
    """The weight of a normalization is missing."""
    for node in export.nodes("LayerNormalization", "BatchNormalization", "Mul", "RMSNormalization"):
        for place in (0, 1):
            array = export.constant(node.input[place])
            if array is not None and array.ndim == 1 and array.size > 1 and (place or node.op_type == "Mul"):
                yield partial(export.replace, node, place, np.ones_like(array))


def shared_call(export: Export) -> Iterator[Edit]:
    """One of several nodes that read the same weight reads another one."""
    for name, tensor in export.weights.items():
        readers = [node for node in export.readers.get(name, []) if node.op_type in _LINEAR]
        for node in readers[1:]:
            array = numpy_helper.to_array(tensor)
            yield partial(export.replace, node, 1, array[::-1])


# --- attributes -----------------------------------------------------------------------------------------------------


def epsilon(export: Export) -> Iterator[Edit]:
    """The epsilon of a normalization is far too large."""
    for node in export.nodes("LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization",
                             "RMSNormalization"):  # fmt: skip
        yield setting(node, "epsilon", 0.3)
    for node in export.nodes("Add"):
        follows = {reader.op_type for reader in export.readers.get(node.output[0], [])}
        for place, name in enumerate(node.input):
            array = export.constant(name)
            tiny = array is not None and array.size == 1 and array.dtype.kind == "f" and 0 < float(array.max()) < 1e-3
            if array is not None and tiny and follows & {"Sqrt", "Rsqrt", "Pow"}:
                changed = np.full_like(array, 0.3)
                yield partial(export.replace, node, place, changed)


def axis(export: Export) -> Iterator[Edit]:
    """Softmax goes along another axis."""
    for node in export.nodes("Softmax"):
        rank = len(export.values[node.output[0]].shape)
        now = attribute(node, "axis", -1) % rank
        yield setting(node, "axis", (now - 1) % rank)


def reduced_axis(export: Export) -> Iterator[Edit]:
    """Values are joined in another order, or a mean is taken of others."""
    for node in export.nodes("Concat"):
        same = [name for name in node.input if export.shape(name) == export.shape(node.input[0])]
        if len(node.input) > 1 and len(same) == len(node.input) and len(set(node.input)) > 1:

            def edit(node: NodeProto = node) -> set[str]:
                node.input[:] = list(node.input)[::-1]
                return {node.output[0]}

            yield edit
    for node in export.nodes("Split"):
        shapes = {export.shape(name) for name in node.output}
        if len(node.output) > 1 and len(shapes) == 1:

            def turn(node: NodeProto = node) -> set[str]:
                outputs = list(node.output)
                node.output[:] = outputs[::-1]
                # as if what reads them read the wrong one
                return {
                    *outputs,
                    *(made for name in outputs for reader in export.readers[name] for made in reader.output),
                }

            yield turn


def perm(export: Export) -> Iterator[Edit]:
    """A Transpose exchanges two other axes of one size, or none."""
    for node in export.nodes("Transpose"):
        before = export.shape(node.input[0])
        if before is None:
            continue
        now = list(attribute(node, "perm", range(len(before))[::-1]))
        sizes = [before[place] for place in now]
        pairs = [(i, j) for i in range(len(now)) for j in range(i) if sizes[i] == sizes[j] > 1]
        for i, j in pairs[:1]:
            other = list(now)
            other[i], other[j] = now[j], now[i]
            yield setting(node, "perm", other)


def missing_transpose(export: Export) -> Iterator[Edit]:
    """A Transpose before a Reshape is missing: the sizes fit, the order does not."""
    for node in export.nodes("Transpose"):
        after = [reader.op_type for reader in export.readers.get(node.output[0], [])]
        if after and set(after) == {"Reshape"}:
            yield partial(export.bypass, node, 0)


def pads(export: Export) -> Iterator[Edit]:
    """Padding is on one side only."""
    for node in export.nodes("Conv", "MaxPool", "AveragePool"):
        now = list(attribute(node, "pads", []))
        half = len(now) // 2
        if now and any(now):
            yield setting(node, "pads", [2 * pad for pad in now[:half]] + [0] * half)


def dilation(export: Export) -> Iterator[Edit]:
    """A filter is dilated, and padded so that the sizes stay."""
    for node in export.nodes("Conv"):
        now = list(attribute(node, "pads", []))
        kernel = attribute(node, "kernel_shape", ())
        dilations = list(attribute(node, "dilations", [1] * len(kernel)))
        halves = [size // 2 for size in (*kernel, *kernel)]
        if now == halves and set(dilations) == {1} and any(halves):

            def edit(node: NodeProto = node, now: Sequence[int] = now, rank: int = len(kernel)) -> set[str]:
                setting(node, "pads", [2 * pad for pad in now])()
                return setting(node, "dilations", [2] * rank)()

            yield edit


def pooling(export: Export) -> Iterator[Edit]:
    """A mean instead of a maximum, or the other way round."""
    for node in export.nodes("MaxPool", "AveragePool", "GlobalAveragePool"):

        def edit(node: NodeProto = node) -> set[str]:
            other = {"MaxPool": "AveragePool", "AveragePool": "MaxPool", "GlobalAveragePool": "GlobalMaxPool"}
            node.op_type = other[node.op_type]
            kept = [each for each in node.attribute if each.name in ("kernel_shape", "pads", "strides", "auto_pad")]
            del node.attribute[:]
            node.attribute.extend(kept)
            return {node.output[0]}

        yield edit


def resize(export: Export) -> Iterator[Edit]:
    """Resize takes the nearest value."""
    for node in export.nodes("Resize"):
        if attribute(node, "mode", b"nearest") != b"nearest":
            yield setting(node, "mode", "nearest")


def direction(export: Export) -> Iterator[Edit]:
    """An LSTM runs in reverse, or with other activations."""
    for node in export.nodes("LSTM", "GRU"):
        if attribute(node, "direction", b"forward") == b"forward":
            yield setting(node, "direction", "reverse")
        count = (3 if node.op_type == "LSTM" else 2) * (2 if attribute(node, "direction") == b"bidirectional" else 1)
        now = ["Sigmoid", "Tanh", "Tanh"] if node.op_type == "LSTM" else ["Sigmoid", "Tanh"]
        relu = [name.replace("Tanh", "Relu") for name in now]
        yield setting(node, "activations", relu * (count // len(now)))


# --- operations -----------------------------------------------------------------------------------------------------


def scale(export: Export) -> Iterator[Edit]:
    """The scalar of a product or of a quotient is wrong."""
    for node in export.nodes("Mul", "Div"):
        for place, name in enumerate(node.input):
            array = export.constant(name)
            if array is not None and array.size == 1 and array.dtype.kind == "f":
                changed = np.asarray(array * np.asarray(1.3, array.dtype))
                yield partial(export.replace, node, place, changed)


def factor(export: Export) -> Iterator[Edit]:
    """What a linear layer returns is 5% too large."""
    for node in export.nodes(*_LINEAR):
        yield partial(export.insert, node, Step("Mul", (1.05,)))


def swapped_inputs(export: Export) -> Iterator[Edit]:
    """The two inputs of an operator have changed places."""
    for node in export.nodes("Sub", "Div", "Pow", "MatMul", "Where", "Less", "Greater"):
        one, two = (0, 1) if node.op_type != "Where" else (1, 2)
        shapes = export.shape(node.input[one]), export.shape(node.input[two])
        free = node.op_type in ("Sub", "Div", "Pow") and node.output[0] in export.values
        fits = shapes[0] == shapes[1] and (
            node.op_type != "MatMul" or shapes[0] is None or shapes[0][-1] == shapes[0][-2]
        )
        if fits or free:

            def edit(node: NodeProto = node, one: int = one, two: int = two) -> set[str]:
                node.input[one], node.input[two] = node.input[two], node.input[one]
                return {node.output[0]}

            yield edit


def _sums(export: Export) -> Iterator[NodeProto]:
    """Yield the sums of two tensors of one shape: residual connections."""
    for node in export.nodes("Add"):
        shapes = [export.shape(name) for name in node.input]
        if shapes[0] == shapes[1] and shapes[0] and not any(name in export.fixed for name in node.input):
            yield node


def removed_add(export: Export) -> Iterator[Edit]:
    """A residual sum returns only one of its inputs."""
    for number, node in enumerate(_sums(export)):
        yield partial(export.bypass, node, number % 2)


def missing_add(export: Export) -> Iterator[Edit]:
    """A residual sum is not in the model: what reads it reads one of its inputs."""
    outputs = {port.name for port in export.graph.output}
    for number, node in enumerate(_sums(export)):

        def edit(node: NodeProto = node, other: str = node.input[number % 2]) -> set[str]:
            export.missing = NodeProto()
            export.missing.CopyFrom(node)
            readers = export.readers[node.output[0]]
            for reader in readers:
                reader.input[:] = [other if name == node.output[0] else name for name in reader.input]
            export.graph.node.remove(node)
            return {name for reader in readers for name in reader.output}

        if node.output[0] not in outputs and node.output[0] in export.readers:
            yield edit


def doubled_add(export: Export) -> Iterator[Edit]:
    """A residual connection is added twice."""
    for number, node in enumerate(_sums(export)):
        yield partial(export.insert, node, Step("Add", (node.input[number % 2],)))


def clip(export: Export) -> Iterator[Edit]:
    """What an activation or a sum returns is clipped."""
    for node in export.nodes("Relu", "Gelu", "Tanh", "Add", "Mul", "Sigmoid", "Elu"):
        if export.is_float(node.output[0]) and (export.values[node.output[0]].ndim > 1):
            high = float(np.quantile(export.values[node.output[0]], 0.9))
            yield partial(export.insert, node, Step("Clip", (-1e9, high)))


def gelu(export: Export) -> Iterator[Edit]:
    """An activation is of another kind: tanh in GELU, another constant in its formula, no Tanh at all."""
    for node in export.nodes("Gelu"):
        now = attribute(node, "approximate", b"none")
        yield setting(node, "approximate", "tanh" if now == b"none" else "none")
    for node in export.nodes("Erf"):

        def edit(node: NodeProto = node) -> set[str]:
            node.op_type = "Tanh"
            return {node.output[0]}

        yield edit


def activation(export: Export) -> Iterator[Edit]:
    """An activation is missing."""
    for node in export.nodes("Relu", "Tanh", "Sigmoid", "Gelu", "Elu", "Softplus"):
        yield partial(export.bypass, node, 0)


def dtype(export: Export) -> Iterator[Edit]:
    """A value is rounded to float16 on its way."""
    for node in export.nodes(*_LINEAR, "Add", "Mul", "LayerNormalization"):
        if export.is_float(node.output[0]):
            casts = (Step("Cast", (), (("to", kind),)) for kind in (TensorProto.FLOAT16, TensorProto.FLOAT))
            yield partial(export.insert, node, *casts)


def _before_softmax(export: Export) -> Iterator[NodeProto]:
    for node in export.nodes("Softmax"):
        maker = export.makers.get(node.input[0])
        while maker is not None and maker.op_type in ("Cast", "Identity", "Div", "Mul", "Reshape"):
            maker = export.makers.get(maker.input[0])
        if maker is not None:
            yield maker


def mask(export: Export) -> Iterator[Edit]:
    """The mask of an attention is missing, or shifted by one."""
    for node in _before_softmax(export):
        if node.op_type == "Where":
            place = 2 if export.shape(node.input[2]) == export.shape(node.output[0]) else 1
            yield partial(export.bypass, node, place)
        if node.op_type == "Add":
            full = export.shape(node.output[0])
            place = 0 if export.makers.get(node.input[0], node).op_type in ("MatMul", "Mul", "Div") else 1
            if export.shape(node.input[place]) == full:
                yield partial(export.bypass, node, place)
            array = export.constant(node.input[1 - place])
            if array is not None:
                yield partial(export.replace, node, 1 - place, np.roll(array, 1, -1))


def table(export: Export) -> Iterator[Edit]:
    """The table of rotary or of absolute positions is wrong: shifted, or sines instead of cosines."""
    for node in export.nodes("Sin", "Cos"):

        def edit(node: NodeProto = node) -> set[str]:
            node.op_type = {"Sin": "Cos", "Cos": "Sin"}[node.op_type]
            return {node.output[0]}

        yield edit
    for node in export.nodes("Mul", "Add", "MatMul"):
        for place, name in enumerate(node.input):
            array = export.constant(name)
            if (
                array is not None
                and array.dtype.kind == "f"
                and array.size > 1
                and array.ndim > (1, 2)[node.op_type == "MatMul"]
            ):
                at = array.ndim - 2 if array.shape[-2] > 1 else array.ndim - 1
                yield partial(export.replace, node, place, np.roll(array, 1, at))


def index(export: Export) -> Iterator[Edit]:
    """A Slice or a Gather takes other positions."""
    for node in export.nodes("Slice"):
        before, after, start = (
            export.shape(node.input[0]),
            export.shape(node.output[0]),
            export.constant(node.input[1]),
        )
        if before is None or after is None or start is None or start.size != 1 or before == after:
            continue
        (at,) = (place for place in range(len(before)) if before[place] != after[place])
        first = int(start.max()) % before[at]
        moved = first + 1 if first + after[at] < before[at] else first - 1

        def edit(
            node: NodeProto = node, start: NDArray[Any] = start, moved: int = moved, size: int = after[at]
        ) -> set[str]:
            export.replace(node, 2, np.full_like(start, moved + size))
            return export.replace(node, 1, np.full_like(start, moved))

        yield edit
    for node in export.nodes("Gather"):
        place_of = export.constant(node.input[1])
        if place_of is not None and place_of.size == 1:
            size = (
                export.values[node.input[0]].shape[attribute(node, "axis", 0)] if node.input[0] in export.values else 1
            )
            if size > 1:
                other = (place_of + 1) % size
                yield partial(export.replace, node, 1, other)


KINDS: Final[dict[str, Kind]] = {
    each.__name__.replace("_", " "): each
    for each in (
        weight, bias, transposed_weight, swapped_weights, embedding, norm_weight, shared_call, epsilon, axis,
        reduced_axis, perm, missing_transpose, pads, dilation, pooling, resize, direction, scale, factor,
        swapped_inputs, removed_add, missing_add, doubled_add, clip, gelu, activation, dtype, mask, table, index,
    )
}  # fmt: skip
