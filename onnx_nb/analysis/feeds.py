"""What a model is run on: arrays checked against its declared inputs, read from anywhere, or made at random."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import TypeProto

from onnx_nb.analysis.errors import FeedError, closest, shown, text
from onnx_nb.analysis.model import Model, ModelLike, load
from onnx_nb.analysis.tensors import dtype_name, numpy_dtype

Dims = tuple[int | str | None, ...]
"""Sizes of a declared shape: a number, a symbol, or ``None`` if nothing is said."""


def read_feeds(model: ModelLike, feeds: Any = None) -> Iterator[dict[str, Any]]:
    """Give the feeds that are in whatever holds them, checked, one at a time.

    Parameters
    ----------
    model
        Any `ModelLike`.
    feeds
        A dict of arrays; arrays in the order of the inputs; or an iterable of such feeds, which is read as it is
        needed. ``None`` gives one of `random_feeds`.

    Yields
    ------
    dict of str to numpy.ndarray
        As `check_feeds` gives it.

    Raises
    ------
    FeedError
        If a feed does not fit the model.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Exp(x) }'
    >>> model = onnx.parser.parse_model(text)
    >>> list(read_feeds(model, [np.zeros(1, np.float32)]))
    [{'x': array([0.], dtype=float32)}]
    >>> [feed["x"].size for feed in read_feeds(model, ({"x": np.zeros(n, np.float32)} for n in (1, 2)))]
    [1, 2]
    """
    loaded = load(model)
    if feeds is None:
        yield random_feeds(loaded)
    elif isinstance(feeds, Mapping):
        yield check_feeds(loaded, feeds)
    elif _is_array(feeds):
        yield check_feeds(loaded, _by_position(loaded, [feeds]))
    elif isinstance(feeds, list | tuple) and not (feeds and all(isinstance(feed, Mapping) for feed in feeds)):
        yield check_feeds(loaded, _by_position(loaded, feeds))
    elif isinstance(feeds, Iterable):
        for feed in feeds:
            yield from read_feeds(loaded, feed)


def check_feeds(model: ModelLike, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Check arrays against the inputs that a model declares.

    Parameters
    ----------
    model
        Any `ModelLike`.
    feeds
        A value for each input: an array or torch tensor, a list of them for a sequence, ``None`` for an optional that
        is not there. Inputs that have an initializer may be left out.

    Returns
    -------
    dict of str to numpy.ndarray
        In the order of the model's inputs; torch tensors as arrays, strings as object arrays of ``str``.

    Raises
    ------
    FeedError
        If an input is missing or unknown, or its type, rank or a dimension is not what the model declares, or
        dimensions with one symbol differ. It says what is expected and what is given.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 2] x) => (float[n, 2] y) { y = Exp(x) }'
    >>> check_feeds(onnx.parser.parse_model(text), {"x": np.zeros((3, 2))})
    Traceback (most recent call last):
        ...
    onnx_nb.analysis.errors.FeedError: input 'x' takes float32 [n, 2], and is given float64 [3, 2].
        Use array.astype('float32').
    """
    loaded = load(model)
    entries = inputs(loaded)
    for name in feeds:
        if name not in entries:
            near = ", ".join(map(shown, closest(str(name), entries) or entries)) or "none"
            raise FeedError(f"{loaded.name} has no input {shown(str(name))}.", advice=f"Its inputs: {near}.")
    needed = [
        f"{shown(name)} ({type_text(kind)})"
        for name, kind in entries.items()
        if name not in feeds and name not in loaded.initializers and not kind.HasField("optional_type")
    ]
    if needed:
        raise FeedError(f"{loaded.name} also needs {', '.join(needed)}.", advice="Give an array for each input.")
    sizes: dict[str, tuple[int, str]] = {}
    checked = {}
    for name, kind in entries.items():
        if name in feeds or kind.HasField("optional_type"):
            checked[name] = _checked(f"input {shown(name)}", kind, feeds.get(name), sizes)
    return checked


def inputs(model: Model) -> dict[str, TypeProto]:
    """Give the declared type of each input, those that have an initializer included."""
    return {text(value.name): value.type for value in model.proto.graph.input}


def type_text(kind: TypeProto) -> str:
    """Write a type as ``float32 [batch, 3, ?]``.

    Examples
    --------
    >>> import onnx.helper
    >>> tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["batch", 3, None])
    >>> type_text(tensor), type_text(onnx.helper.make_sequence_type_proto(tensor))
    ('float32 [batch, 3, ?]', 'seq(float32 [batch, 3, ?])')
    """
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return f"seq({type_text(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_text(kind.optional_type.elem_type)})"
    if which == "map_type":
        return f"map({dtype_name(kind.map_type.key_type)}, {type_text(kind.map_type.value_type)})"
    if which not in ("tensor_type", "sparse_tensor_type"):
        return "a value of unknown type"
    declared = dims(kind)
    shape = "" if declared is None else " " + _shape_text(declared)
    return f"{'sparse ' if which == 'sparse_tensor_type' else ''}{dtype_name(_tensor(kind).elem_type)}{shape}"


def dims(kind: TypeProto) -> Dims | None:
    """Give the declared shape of a tensor type; ``None`` if even the rank is unknown."""
    tensor = _tensor(kind)
    if not tensor.HasField("shape"):
        return None
    return tuple(
        # a negative size says nothing, as onnxruntime has it
        (dim.dim_value if dim.dim_value >= 0 else None) if dim.HasField("dim_value") else text(dim.dim_param) or None
        for dim in tensor.shape.dim
    )


def _tensor(kind: TypeProto) -> TypeProto.Tensor | TypeProto.SparseTensor:
    return kind.sparse_tensor_type if kind.HasField("sparse_tensor_type") else kind.tensor_type


def _shape_text(shape: Sequence[int | str | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _checked(what: str, kind: TypeProto, value: Any, sizes: dict[str, tuple[int, str]]) -> Any:
    """Give a value as onnxruntime takes it if it is of this type; ``sizes`` are those of symbols met so far."""
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
    if not _is_array(value):
        message = f"{what} takes {expected}, and is given {_described(value)}, not an array."
        raise FeedError(message, advice=f"Use numpy.asarray(…, dtype={dtype.name!r})." if dtype else "")
    array = _array(what, value)
    given = f"{what} takes {expected}, and is given {array.dtype.name} {_shape_text(array.shape)}."
    if dtype is not None and dtype.kind == "O":
        array = _strings(given, array)
    elif dtype is not None and array.dtype.newbyteorder("=") == dtype:
        array = array.astype(dtype, copy=False)
    elif dtype is not None:
        name = f"ml_dtypes.{dtype.name}" if dtype.isbuiltin == 2 else repr(dtype.name)
        raise FeedError(given, advice=f"Use array.astype({name}).")
    declared = dims(kind)
    if declared is None:
        return array
    if not _fits(declared, array.shape):
        raise FeedError(given, advice=_reshaping(declared, array.shape))
    for axis, (dim, size) in enumerate(zip(declared, array.shape, strict=True)):
        if not isinstance(dim, str):
            continue
        first, where = sizes.setdefault(dim, (size, f"axis {axis} of {what}"))
        if first != size:
            message = f"axis {axis} of {what} has size {size}, but dimension {shown(dim)} has size {first} at {where}."
            raise FeedError(message, advice="Give arrays that agree.")
    return array


def _fits(declared: Dims, shape: Sequence[int]) -> bool:
    return len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True)
    )


def _reshaping(declared: Dims, shape: tuple[int, ...]) -> str:
    """Advise what would make the shape fit, where it is one of the usual mistakes."""
    if _fits(declared, (1, *shape)):
        return "The first axis is missing: use array[None]."
    if shape[:1] == (1,) and _fits(declared, shape[1:]):
        return "The first axis is too much: use array[0]."
    if len(shape) == 4 and _fits(declared, tuple(shape[axis] for axis in (0, 3, 1, 2))):
        return "The channels come first: use array.transpose(0, 3, 1, 2)."
    return ""


def _strings(given: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "OUST":
        raise FeedError(given, advice="Use an array of str with dtype=object.")
    strings = np.empty(array.shape, object)
    for place, value in np.ndenumerate(array):
        if not isinstance(value, str | bytes):
            raise FeedError(f"{given} {value!r:.60} is in it, which is no str.")
        strings[place] = text(value)
    return strings


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__") or _is_torch(value)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _described(value: object) -> str:
    kind = type(value).__name__
    return f"an {kind}" if kind[:1] in "aeiou" else f"a {kind}"


def _array(what: str, value: Any) -> NDArray[Any]:
    """Give an array or whatever can be made one; a torch tensor from any device, and of types that numpy lacks."""
    if not _is_torch(value):
        return np.asarray(value)
    import torch

    tensor = value.detach().cpu()
    try:
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


def _by_position(model: Model, arrays: Sequence[Any]) -> dict[str, Any]:
    names = [name for name in inputs(model) if name not in model.initializers]
    if len(arrays) > len(names):
        named = ", ".join(map(shown, names)) or "none"
        message = f"{model.name} has {len(names)} inputs, and {len(arrays)} arrays are given."
        raise FeedError(message, advice=f"Its inputs: {named}.")
    return dict(zip(names, arrays, strict=False))


def random_feeds(
    model: ModelLike, seed: int = 0, shapes: Mapping[str, int | Sequence[int]] | None = None
) -> dict[str, Any]:
    """Make random values for every input that has to be given.

    Parameters
    ----------
    model
        Any `ModelLike`.
    seed
        The same seed gives the same values.
    shapes
        Sizes of dimensions by their symbol, and shapes by the name of their input.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Exp(x) }'
    >>> random_feeds(onnx.parser.parse_model(text), shapes={"n": 3})["x"].shape
    (3,)
    """
    loaded = load(model)
    sizes: dict[str, Any] = dict(shapes or {})
    random = np.random.default_rng(seed)
    found = {}
    for name, kind in inputs(loaded).items():
        if name in loaded.initializers:
            continue
        shape = sizes.get(name)
        if not isinstance(shape, Sequence):
            shape = [dim if isinstance(dim, int) else sizes.get(dim or "", 2) for dim in dims(kind) or ()]
        dtype = numpy_dtype(kind.tensor_type.elem_type) or np.dtype(np.float32)
        values = random.integers(0, 2, shape) if dtype.kind in "biu" else random.standard_normal(shape)
        found[name] = np.asarray(values).astype(dtype)
    return check_feeds(loaded, found)
