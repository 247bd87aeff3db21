"""Feeds of a model: arrays for its inputs, read from any source and checked.

Files are not trusted: nothing is unpickled, and a header must not describe more bytes than the file has.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import OptionalProto, SequenceProto, TensorProto, TypeProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.formatting import closest, plain_text, quoted
from onnx_nb.analysis.model import saved
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.model.saved import check_file, reading
from onnx_nb.analysis.model.storage import path_of
from onnx_nb.analysis.model.tensors import (
    Dims,
    dimensions,
    dimensions_text,
    fits,
    input_types,
    listed,
    numpy_dtype,
    type_text,
    values,
)
from onnx_nb.analysis.model.wire import PROTO_LIMIT
from onnx_nb.analysis.run.random_feeds import random_feeds


@known_arguments
def read_feeds(model: ModelLike, feeds: Any = None) -> Iterator[dict[str, Any]]:
    """Yield checked feeds one at a time, from any of these forms.

    Parameters
    ----------
    model
        Any `ModelLike`.
    feeds
        ``None``
            one of `random_feeds`.
        a dict
            one feed: an array or torch tensor for each input.
        an array, or a list or tuple of arrays
            one feed, in the order of the inputs.
        a path
            of a ``.npz`` file with an array for each input; of a ``.npy`` or ``.pb`` file (a serialized TensorProto,
            SequenceProto or OptionalProto) with the value of one input; of a folder of such files for one feed, named
            after the inputs or ``input_0``, ``input_1``, …; of a folder of ``.npz`` files or of folders
            ``test_data_set_0``, ``test_data_set_1``, …, one feed each.
        any other iterable
            of feeds in these forms: a generator, a ``Dataset``, a ``DataLoader``. It is read as needed.

    Yields
    ------
    dict of str to numpy.ndarray
        As `validate_feeds` returns it.

    Raises
    ------
    FeedError
        If a feed does not fit the model, or a file, which the message names, cannot be read.

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
    source = load(model)
    if feeds is None:
        yield random_feeds(source)
    elif isinstance(feeds, Mapping):
        yield validate_feeds(source, feeds)
    elif isinstance(feeds, str | os.PathLike):
        for path in _feed_paths(path_of(feeds)):
            try:
                yield validate_feeds(source, _from_path(source, path))
            except FeedError as error:
                place = _quoted(path)
                prefix = "" if place in error.message else f"{place}: "
                raise FeedError(prefix + error.message, advice=error.advice) from error
    elif is_array(feeds) or (isinstance(feeds, list | tuple) and not _is_dataset(source, feeds)):
        yield validate_feeds(source, _by_position(source, [feeds] if is_array(feeds) else feeds))
    elif isinstance(feeds, Iterable):
        for feed in feeds:
            yield from read_feeds(source, feed)
    elif hasattr(feeds, "__getitem__") and hasattr(feeds, "__len__"):  # a torch Dataset
        for index in range(len(feeds)):
            yield from read_feeds(source, feeds[index])
    else:
        message = f"feeds are arrays, files or feeds one after another, and {_described(feeds)} is given."
        raise FeedError(message, advice="Give a dict of an array for each input.")


def _by_position(model: Model, arrays: Sequence[Any]) -> dict[str, Any]:
    names = [port.name for port in model.inputs]
    if len(arrays) > len(names):
        message = f"{model.name} has {len(names)} inputs, and {len(arrays)} arrays are given."
        raise FeedError(message, advice=f"Its inputs: {listed(names) or 'none'}.")
    return dict(zip(names, arrays, strict=False))


def _is_dataset(model: Model, feeds: Sequence[Any]) -> bool:
    """Return whether a list holds feeds, not the arrays of one."""
    first = next(iter(feeds), None)
    if isinstance(first, list | tuple):
        return not (model.inputs and model.inputs[0].dtype.startswith(("seq(", "optional(")))
    return isinstance(first, Mapping | str | os.PathLike)


def _feed_paths(path: Path) -> list[Path]:
    """Return the files and folders that hold one feed each."""
    if not os.path.isdir(path):  # noqa: PTH112  # Path.is_dir raises if the name is too long
        return [path]
    inside = entries_of(path)
    sets = [entry for entry in inside if entry.name.startswith("test_data_set_") and entry.is_dir()]
    archives = [entry for entry in inside if entry.suffix == ".npz"]
    return sets or archives or [path]


def entries_of(folder: Path) -> list[Path]:
    """Return the entries of a folder, "input_10" after "input_9"."""

    def natural(path: Path) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]

    with reading(folder, "a folder", FeedError):
        return sorted(folder.iterdir(), key=natural)


def _from_path(model: Model, path: Path) -> dict[str, Any]:
    """Read a file, or an input from each file of a folder, identified by the file's name, the tensor's or the order."""
    kinds, order = input_types(model), [port.name for port in model.inputs]
    files = [path]
    if os.path.isdir(path):  # noqa: PTH112  # as above
        inside = [entry for entry in entries_of(path) if entry.suffix in (".npy", ".pb")]
        files = [entry for entry in inside if not re.fullmatch(r"output_\d+", entry.stem)]
        if not files and order:
            advice = "Put .npz, .npy or .pb files in it, named after the inputs or input_0, input_1, …."
            raise FeedError(f"{_quoted(path)} holds no feed.", advice=advice)
    else:
        with reading(path, "a file", FeedError):
            check_file(path)
        if path.suffix not in (".npz", ".npy", ".pb"):
            message = f"{_quoted(path)} is not a known kind of feed file."
            raise FeedError(message, advice="Give a .npz, .npy or .pb file, or a folder of them.")
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        if set(arrays) == {f"arr_{i}" for i in range(len(arrays))} and not set(arrays) <= set(kinds):
            return _by_position(model, [arrays[f"arr_{i}"] for i in range(len(arrays))])
        return {name: _viewed(array, kinds.get(name)) for name, array in arrays.items()}
    feed: dict[str, Any] = {}
    for file in files:
        match = re.fullmatch(r"input_(\d+)", file.stem)
        place = int(match[1]) if match else 0 if len(files) == 1 else len(order)
        name = file.stem if file.stem in kinds else order[place] if place < len(order) else ""
        label, value = ("", read_arrays(file)[""]) if file.suffix == ".npy" else read_pb(file, kinds.get(name))
        if label in kinds and file.stem not in kinds:
            name = label
        if not name or name in feed:
            message = f"it is unknown to which input {_quoted(file)} belongs."
            raise FeedError(message, advice=f"Name it after one of {listed(kinds) or 'none'}.")
        feed[name] = _viewed(value, kinds.get(name))
    return feed


def _quoted(path: Path) -> str:
    return quoted(str(path))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file by name, or the array of a .npy file under an empty name."""
    with reading(path, f"a {path.suffix} file", FeedError):
        return saved.read_arrays(path)


def read_pb(path: Path, kind: TypeProto | None) -> tuple[str, Any]:
    """Return the name in a file of onnx test data, and its value."""
    what = f"a serialized {'value' if kind is None else type_text(kind)}"
    with reading(path, what, FeedError):
        check_file(path, PROTO_LIMIT)
        data = path.read_bytes()
    try:
        message: TensorProto | SequenceProto | OptionalProto = TensorProto()
        if kind is not None and kind.HasField("sequence_type"):
            message = SequenceProto()
        elif kind is not None and kind.HasField("optional_type"):
            message = OptionalProto()
        with reading(path, what, FeedError):
            message.ParseFromString(data)
        return plain_text(message.name), _pb_value(message, _quoted(path))
    except OnnxNbError as error:
        raise error if isinstance(error, FeedError) else FeedError(error.message, advice=error.advice) from error


def _pb_value(message: TensorProto | SequenceProto | OptionalProto, what: str) -> Any:
    if isinstance(message, TensorProto):
        if message.data_location == TensorProto.EXTERNAL:
            raise FeedError(f"{what} refers to another file for its values.", advice="Store them in it.")
        return values(message, what)
    if isinstance(message, SequenceProto):
        elements = [*message.tensor_values, *message.sequence_values, *message.optional_values]
        if len(message.tensor_values) != len(elements) or message.sparse_tensor_values or message.map_values:
            raise FeedError(f"{what} is a sequence of something else than tensors.", advice="Give a dict of feeds.")
        return [_pb_value(tensor, f"element {i} of {what}") for i, tensor in enumerate(elements)]
    if message.HasField("tensor_value"):
        return _pb_value(message.tensor_value, what)
    return _pb_value(message.sequence_value, what) if message.HasField("sequence_value") else None


def _viewed(value: Any, kind: TypeProto | None) -> Any:
    """Restore types such as bfloat16, which numpy's files hold as untyped bytes."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "V" and kind is not None:
        dtype = numpy_dtype(kind.tensor_type.elem_type)
        if dtype is not None and dtype.itemsize == value.dtype.itemsize and value.dtype.names is None:
            return value.view(dtype)
    return value


@known_arguments
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
        If an input is missing or unknown, or its type, rank or a size differs from the declared one. The message states
        the expected and the given type. Dimensions of one name that differ are only a warning.

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
    source = load(model)
    entries = input_types(source)
    for name in feeds:
        if name not in entries:
            near = listed(closest(str(name), entries) or entries) or "none"
            raise FeedError(f"{source.name} has no input {quoted(str(name))}.", advice=f"Its inputs: {near}.")
    missing = [
        name
        for name, kind in entries.items()
        if name not in feeds and name not in source.initializers and not kind.HasField("optional_type")
    ]
    if missing:
        inputs = listed(missing, lambda name: f"{quoted(name)} ({type_text(entries[name])})")
        raise FeedError(f"{source.name} also needs {inputs}.", advice="Give an array for each input.")
    sizes: dict[str, tuple[int, str]] = {}
    arrays = {}
    for name, kind in entries.items():
        if name in feeds or kind.HasField("optional_type"):
            arrays[name] = _checked(f"input {quoted(name)}", kind, feeds.get(name), sizes)
    return arrays


def _checked(what: str, kind: TypeProto, value: Any, sizes: dict[str, tuple[int, str]]) -> Any:
    """Return a value as onnxruntime takes it if it is of this type; ``sizes`` holds the symbols' sizes so far."""
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
    target = type_text(kind)
    if not is_array(value):
        message = f"{what} takes {target}, and is given {_described(value)}, not an array."
        raise FeedError(message, advice=f"Use numpy.asarray(…, dtype={dtype.name!r})." if dtype else "")
    array = _array(what, value)
    mismatch = f"{what} takes {target}, and is given {array.dtype.name} {dimensions_text(array.shape)}."
    if dtype is not None and dtype.kind == "O":
        array = _strings(mismatch, array)
    elif dtype is not None and array.dtype.newbyteorder("=") == dtype:
        array = array.astype(dtype, copy=False)
    elif dtype is not None:
        name = f"ml_dtypes.{dtype.name}" if dtype.isbuiltin == 2 else repr(dtype.name)
        raise FeedError(mismatch, advice=f"Use array.astype({name}).")
    dims = dimensions(kind)
    if dims is None:
        return array
    if not fits(dims, array.shape):
        raise FeedError(mismatch, advice=_reshaping(dims, array.shape))
    for axis, (dim, size) in enumerate(zip(dims, array.shape, strict=True)):
        if not isinstance(dim, str):
            continue
        first, where = sizes.setdefault(dim, (size, f"axis {axis} of {what}"))
        if first != size:
            message = f"axis {axis} of {what} has size {size}, but dimension {quoted(dim)} has size {first} at {where}."
            # onnxruntime runs it, unless a node needs equal sizes or it reuses memory
            warnings.warn(message, stacklevel=2)
    return array


def _reshaping(dims: Dims, shape: tuple[int, ...]) -> str:
    """Return advice for common mistakes in shapes."""
    if fits(dims, (1, *shape)):
        return "The first axis is missing: use array[None]."
    if shape[:1] == (1,) and fits(dims, shape[1:]):
        return "There is one axis too many: use array[0]."
    if len(shape) == 4 and fits(dims, tuple(shape[axis] for axis in (0, 3, 1, 2))):
        return "The channels come first: use array.transpose(0, 3, 1, 2)."
    return ""


def _strings(mismatch: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "OUST":
        raise FeedError(mismatch, advice="Use an array of str with dtype=object.")
    strings = np.empty(array.shape, object)
    for place, value in np.ndenumerate(array):
        if not isinstance(value, str | bytes):
            raise FeedError(f"{mismatch} {value!r:.60} is in it, which is not a str.")
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
    """Return a value as an array, including torch tensors on any device and of types that numpy lacks."""
    if not _is_torch(value):
        return np.asarray(value)
    import torch

    try:
        tensor = value.detach().cpu()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        name = str(tensor.dtype).removeprefix("torch.")
        dtype = getattr(ml_dtypes, name, None)
        if dtype is None:
            return np.asarray(tensor.resolve_conj().resolve_neg().numpy())
        bits = torch.uint8 if tensor.element_size() == 1 else torch.int16
        return np.asarray(tensor.contiguous().view(bits).numpy().view(dtype))
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise FeedError(f"{what} is given a torch tensor that has no values for numpy: {error}.") from error
