"""Write the shapes and dynamic axes that a caller of `simplify` asks for into the inputs of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, ValueInfoProto

from onnx_nb.analysis.errors import SimplificationError
from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.model.model import label_of, with_proto
from onnx_nb.analysis.model.value_info import dimensions, type_text

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

Axes = Mapping[int, str] | Sequence[int]


def with_shapes(
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
