"""Check feeds against the declared inputs of a model, with an error that says what to change."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import TypeProto

from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.formatting import closest, plain_text, quoted
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.model.tensors import (
    Dims,
    dimensions,
    dimensions_text,
    fits,
    input_types,
    listed,
    numpy_dtype,
    type_text,
)


def validate_feeds(model: ModelLike, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Check arrays against the inputs that a model declares.

    Parameters
    ----------
    model
        Any `ModelLike`.
    feeds
        A value for each input: an array or torch tensor, a list of them for a sequence, ``None`` for an absent
        optional. Inputs that have an initializer may be left out.

    Returns
    -------
    dict of str to numpy.ndarray
        In the order of the model's inputs; torch tensors as arrays, strings as object arrays of ``str``.

    Raises
    ------
    FeedError
        If an input is missing or unknown, or its type, rank or a dimension differs from the declared one, or
        dimensions with the same symbol differ. The message states what is expected and what is given.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 2] x) => (float[n, 2] y) { y = Exp(x) }'
    >>> validate_feeds(onnx.parser.parse_model(text), {"x": np.zeros((3, 2))})
    Traceback (most recent call last):
        ...
    onnx_nb.analysis.errors.FeedError: input 'x' takes float32 [n, 2], and is given float64 [3, 2].
        Use array.astype('float32').
    """
    loaded = load(model)
    entries = input_types(loaded)
    for name in feeds:
        if name not in entries:
            near = listed(closest(str(name), entries) or entries) or "none"
            raise FeedError(f"{loaded.name} has no input {quoted(str(name))}.", advice=f"Its inputs: {near}.")
    needed = [
        name
        for name, kind in entries.items()
        if name not in feeds and name not in loaded.initializers and not kind.HasField("optional_type")
    ]
    if needed:
        named = listed(needed, lambda name: f"{quoted(name)} ({type_text(entries[name])})")
        raise FeedError(f"{loaded.name} also needs {named}.", advice="Give an array for each input.")
    sizes: dict[str, tuple[int, str]] = {}
    checked = {}
    for name, kind in entries.items():
        if name in feeds or kind.HasField("optional_type"):
            checked[name] = _checked(f"input {quoted(name)}", kind, feeds.get(name), sizes)
    return checked


def _checked(what: str, kind: TypeProto, value: Any, sizes: dict[str, tuple[int, str]]) -> Any:
    """Return a value as onnxruntime takes it if it is of this type; ``sizes`` holds those of symbols so far."""
    which = kind.WhichOneof("value")
    if which == "optional_type":
        return None if value is None else _checked(what, kind.optional_type.elem_type, value, sizes)
    if which == "sequence_type":
        if not isinstance(value, list | tuple):
            message = f"{what} takes {type_text(kind)}, and is given {_described(value)}."
            raise FeedError(message, advice="Give a list of arrays.")
        element = kind.sequence_type.elem_type
        # each element of a sequence has a shape of its own
        return [_checked(f"element {i} of {what}", element, item, {}) for i, item in enumerate(value)]
    if which != "tensor_type":
        return value  # a map or a sparse tensor: onnxruntime checks it
    return _checked_array(what, kind, value, sizes)


def _checked_array(what: str, kind: TypeProto, value: Any, sizes: dict[str, tuple[int, str]]) -> NDArray[Any]:
    dtype = numpy_dtype(kind.tensor_type.elem_type)
    expected = type_text(kind)
    if not is_array(value):
        message = f"{what} takes {expected}, and is given {_described(value)}, not an array."
        raise FeedError(message, advice=f"Use numpy.asarray(…, dtype={dtype.name!r})." if dtype else "")
    array = _array(what, value)
    given = f"{what} takes {expected}, and is given {array.dtype.name} {dimensions_text(array.shape)}."
    if dtype is not None and dtype.kind == "O":
        array = _strings(given, array)
    elif dtype is not None and array.dtype.newbyteorder("=") == dtype:
        array = array.astype(dtype, copy=False)
    elif dtype is not None:
        name = f"ml_dtypes.{dtype.name}" if dtype.isbuiltin == 2 else repr(dtype.name)
        raise FeedError(given, advice=f"Use array.astype({name}).")
    declared = dimensions(kind)
    if declared is None:
        return array
    if not fits(declared, array.shape):
        raise FeedError(given, advice=_reshaping(declared, array.shape))
    for axis, (dim, size) in enumerate(zip(declared, array.shape, strict=True)):
        if not isinstance(dim, str):
            continue
        first, where = sizes.setdefault(dim, (size, f"axis {axis} of {what}"))
        if first != size:
            message = f"axis {axis} of {what} has size {size}, but dimension {quoted(dim)} has size {first} at {where}."
            raise FeedError(message, advice="Give arrays that agree.")
    return array


def _reshaping(declared: Dims, shape: tuple[int, ...]) -> str:
    """Return advice for common mistakes in shapes."""
    if fits(declared, (1, *shape)):
        return "The first axis is missing: use array[None]."
    if shape[:1] == (1,) and fits(declared, shape[1:]):
        return "There is one axis too many: use array[0]."
    if len(shape) == 4 and fits(declared, tuple(shape[axis] for axis in (0, 3, 1, 2))):
        return "The channels come first: use array.transpose(0, 3, 1, 2)."
    return ""


def _strings(given: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "OUST":
        raise FeedError(given, advice="Use an array of str with dtype=object.")
    strings = np.empty(array.shape, object)
    for place, value in np.ndenumerate(array):
        if not isinstance(value, str | bytes):
            raise FeedError(f"{given} {value!r:.60} is in it, which is not a str.")
        strings[place] = plain_text(value)
    return strings


def is_array(value: Any) -> bool:
    """Return whether a value is an array: numpy, torch, or anything with ``__array__``."""
    return isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__") or _is_torch(value)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _described(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[:1] in 'aeiou' or kind == 'ndarray' else 'a'} {kind}"


def _array(what: str, value: Any) -> NDArray[Any]:
    """Return a value as an array; also torch tensors of any device, and of types that numpy lacks."""
    if not _is_torch(value):
        return np.asarray(value)
    import torch

    try:
        tensor = value.detach().cpu()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        name = str(tensor.dtype).removeprefix("torch.")
        own = getattr(ml_dtypes, name, None)
        if own is None:
            return np.asarray(tensor.resolve_conj().resolve_neg().numpy())
        bits = torch.uint8 if tensor.element_size() == 1 else torch.int16
        return np.asarray(tensor.contiguous().view(bits).numpy().view(own))
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise FeedError(f"{what} is given a torch tensor that has no values for numpy: {error}.") from error
