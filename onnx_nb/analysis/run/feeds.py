"""Feeds of a model: arrays for its inputs, read from any source and checked.

Files are not trusted: nothing is unpickled, and a header must not describe more bytes than the file has.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
import wave
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import OptionalProto, SequenceProto, TensorProto, TypeProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.formatting import closest, count_text, plain_text, quoted, shape_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.shape_inference import bound
from onnx_nb.analysis.graph.types import unwrapped
from onnx_nb.analysis.model import saved, tensors
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.model.saved import check_file, reading
from onnx_nb.analysis.model.storage import path_of
from onnx_nb.analysis.model.tensors import Dims, dimensions, dimensions_text, input_types, numpy_dtype, type_text
from onnx_nb.analysis.model.wire import PROTO_LIMIT
from onnx_nb.analysis.run.random_feeds import feed_shapes, random_feeds

if TYPE_CHECKING:
    import torch


@known_arguments
def read_feeds(
    model: ModelLike, feeds: Any = None, shapes: Mapping[str, int | Sequence[int]] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield checked feeds one at a time, from any of these forms.

    Parameters
    ----------
    model
        Any `ModelLike`.
    feeds
        ``None``
            one of `random_feeds`.
        a dict
            one feed: an array or torch tensor for each input, or a file with it: a picture, which gets the layout and
            size of the input and 0 to 1 (0 to 255 for uint8); a ``.wav`` (−1 to 1); a ``.txt`` with a string in each
            line; ``.npy``, ``.npz`` or ``.pb``. A warning says what was guessed.
        an array, or a list or tuple of arrays
            one feed, in the order of the inputs.
        a path
            of a ``.npz`` file with an array for each input; of another of these files with the value of one input
            (``.pb`` is a serialized TensorProto, SequenceProto or OptionalProto); of a folder of such files, named
            after the inputs or ``input_0``, ``input_1``, …; of a folder of ``.npz`` files or of folders
            ``test_data_set_0``, ``test_data_set_1``, …, one feed each.
        any other iterable
            of feeds in these forms: a generator, a ``Dataset``, a ``DataLoader``. It is read as needed.
    shapes
        Sizes of made-up feeds, as `random_feeds` takes them, and of pictures.

    Yields
    ------
    dict of str to numpy.ndarray
        As `validate_feeds` returns it.

    Raises
    ------
    FeedError
        If a feed does not fit the model, a file cannot be read, or ``shapes`` are given where nothing is made up.

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
        yield validate_feeds(source, random_feeds(source, shapes=shapes))
    elif isinstance(feeds, Mapping):
        yield validate_feeds(source, _from_files(source, feeds, shapes))
    elif isinstance(feeds, str | os.PathLike):
        for path in _feed_paths(path_of(feeds)):
            try:
                yield validate_feeds(source, _from_files(source, _from_path(source, path), shapes))
            except FeedError as error:
                place = quoted(str(path))
                prefix = "" if place in error.message else f"{place}: "
                raise FeedError(prefix + error.message, advice=error.advice) from error
    elif is_array(feeds) or (isinstance(feeds, list | tuple) and not _is_dataset(source, feeds)):
        by_name = _by_position(source, [feeds] if is_array(feeds) else feeds)
        yield validate_feeds(source, _from_files(source, by_name, shapes))
    elif isinstance(feeds, Iterable):
        for feed in feeds:
            yield from read_feeds(source, feed, shapes)
    elif hasattr(feeds, "__getitem__") and hasattr(feeds, "__len__"):  # a torch Dataset
        for index in range(len(feeds)):
            yield from read_feeds(source, feeds[index], shapes)
    else:
        message = f"feeds are arrays, files or feeds one after another, and {_described(feeds)} is given."
        raise FeedError(message, advice="Give a dict of an array for each input.")


def _by_position(model: Model, arrays: Sequence[Any]) -> dict[str, Any]:
    names = [port.name for port in model.inputs]
    if len(arrays) > len(names):
        message = f"{model.name} has {len(names)} inputs, and {len(arrays)} arrays are given."
        raise FeedError(message, advice=f"Its inputs: {tensors.listed(names) or 'none'}.")
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
        inside = [entry for entry in entries_of(path) if not re.fullmatch(r"output_\d+", entry.stem)]
        media = [file for file in inside if file.suffix.lower() in _READERS and file.stem in kinds]
        files = [file for file in inside if file.suffix in (".npy", ".pb") or file in media]
        if not files and order:
            advice = f"Put {_SUFFIXES} files in it, named after the inputs or input_0, input_1, …."
            raise FeedError(f"{quoted(str(path))} holds no feed.", advice=advice)
    else:
        with reading(path, "a file", FeedError):
            check_file(path)
        if path.suffix not in (".npz", ".npy", ".pb") and path.suffix.lower() not in _READERS:
            message = f"{quoted(str(path))} is not a known kind of feed file."
            raise FeedError(message, advice=f"Give a {_SUFFIXES} file, or a folder of them.")
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        if set(arrays) == {f"arr_{i}" for i in range(len(arrays))} and not set(arrays) <= set(kinds):
            return _by_position(model, [arrays[f"arr_{i}"] for i in range(len(arrays))])
        return {name: viewed(array, kinds.get(name)) for name, array in arrays.items()}
    feed: dict[str, Any] = {}
    for file in files:
        match = re.fullmatch(r"input_(\d+)", file.stem)
        place = int(match[1]) if match else 0 if len(files) == 1 else len(order)
        name = file.stem if file.stem in kinds else order[place] if place < len(order) else ""
        label, value = read_pb(file, kinds.get(name)) if file.suffix == ".pb" else ("", file)
        if label in kinds and file.stem not in kinds:
            name = label
        if not name or name in feed:
            message = f"it is unknown to which input {quoted(str(file))} belongs."
            raise FeedError(message, advice=f"Name it after one of {tensors.listed(kinds) or 'none'}.")
        feed[name] = viewed(value, kinds.get(name))
    return feed


def _from_files(model: Model, feed: Mapping[str, Any], shapes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a feed with the values of the files that it names."""
    names = [name for name, value in feed.items() if isinstance(value, str | os.PathLike) and not is_array(value)]
    if shapes and not any(path_of(feed[name]).suffix.lower() in _READERS for name in names):
        message = "shapes= are sizes of feeds that are made up, and feeds are given."
        raise FeedError(message, advice="Leave out one of them.")
    kinds = {name: unwrapped(kind) for name, kind in input_types(model).items() if name in names}
    return {**feed, **{name: _from_file(model, path_of(feed[name]), name, kinds[name], shapes) for name in kinds}}


def _from_file(model: Model, path: Path, name: str, kind: TypeProto, shapes: Mapping[str, Any] | None) -> Any:
    """Return the value of one input, and warn of what was guessed."""
    if path.suffix == ".pb":
        return read_pb(path, kind)[1]
    if path.suffix in (".npy", ".npz"):
        arrays = read_arrays(path)
        if name not in arrays and len(arrays) != 1:
            what = f"{tensors.listed(arrays) or 'nothing'}, not input {quoted(name)}"
            raise FeedError(f"{quoted(str(path))} holds {what}.")
        return viewed(arrays.get(name, next(iter(arrays.values()))), kind)
    symbols, overrides = bound(Graph.opened(model), shapes or {})
    dims, dtype = overrides.get(name) or dimensions(kind), numpy_dtype(kind.tensor_type.elem_type)
    with reading(path, f"input {quoted(name)}, {type_text(kind)}", FeedError):
        check_file(path, LARGEST)
        if path.suffix.lower() not in _READERS or dims is None or dtype is None:
            raise ValueError(f"give an array, or a {_SUFFIXES} file for an input with a shape")
        sizes = tuple(symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
        value, about = _READERS[path.suffix.lower()](path, dtype, sizes, feed_shapes(model).get(name, ()))
    warnings.warn(f"input {quoted(name)} is {path.name}: {about}, as {shape_text(value.shape)}.", stacklevel=2)
    return value


LARGEST: Final = 1 << 26
"""Maximum number of pixels of a picture, also resized, and of bytes of its file or of a sound or text."""


def _picture(path: Path, dtype: np.dtype[Any], dims: Dims, guess: Dims) -> tuple[NDArray[Any], str]:
    """Return a picture in the layout, size and range of an input; ``guess`` has sizes that it does not declare."""
    from PIL import Image, ImageOps

    modes: dict[Any, str] = {1: "L", 3: "RGB", 4: "RGBA"}
    ends = [(at, sizes[at]) for sizes in (dims[-3:], guess[-3:]) for at in (0, -1) if len(sizes) == 3]
    places = [(at, modes[channels]) for at, channels in ends if channels in modes]
    if len(dims) > 4 or not places or not (dtype == np.uint8 or "float" in dtype.name):
        raise ValueError("a picture is for float or uint8 with 1, 3 or 4 channels; give an array, or shapes=")
    at, mode = places[0]
    try:  # formats that Pillow reads without another program
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=("BMP", "GIF", "JPEG", "PNG")) as image:
            if image.width * image.height > LARGEST or image.mode[0] in "IF":
                raise ValueError(f"it has {image.width:,}×{image.height:,} pixels of mode {image.mode}; give an array")
            upright = ImageOps.exif_transpose(image).convert(mode)
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error
    height, width = (dim if isinstance(dim, int) else 0 for dim in (dims[-3:-1] if at else dims[-2:]))
    height = height or round(upright.height * width / upright.width) or upright.height
    width = width or round(upright.width * height / upright.height) or 1
    if width * height > LARGEST:
        raise ValueError(f"the input takes {width:,}×{height:,} pixels; give an array")
    pixels = np.asarray(upright.resize((width, height), Image.Resampling.BILINEAR)).reshape(height, width, -1)
    value = pixels if dtype == np.uint8 else (pixels / np.float32(255)).astype(dtype)
    about = f"{upright.width}×{upright.height} pixels, {mode}, {'0 to 255' if dtype == np.uint8 else '0 to 1'}"
    return (value if at else value.transpose(2, 0, 1))[(None,) * (len(dims) - 3)], f"{about}, {'HWC' if at else 'CHW'}"


def _sound(path: Path, dtype: np.dtype[Any], dims: Dims, _guess: Dims) -> tuple[NDArray[Any], str]:
    """Return a sound, mono unless the input has as many channels. Samples of one byte have no sign."""
    with wave.open(str(path), "rb") as sound:
        rate, channels, width = sound.getframerate(), sound.getnchannels(), sound.getsampwidth()
        data = sound.readframes(min(sound.getnframes(), path.stat().st_size // (channels * width)))
    numbers = np.zeros((len(data) // width, 4), np.uint8)
    numbers[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width) ^ (128 if width == 1 else 0)
    value = (numbers.view("<i4").reshape(-1, channels).T / (1 << 31)).astype(dtype)
    if "float" not in dtype.name:
        raise ValueError("a sound is for float; give an array")
    value = value if dims[-2:-1] == (channels,) else value.mean(axis=0, keepdims=True)
    about = f"{count_text(channels, 'channel')}, {rate} Hz, −1 to 1"
    return value[0] if len(dims) == 1 else value[(None,) * (len(dims) - 2)], about


def _text(path: Path, dtype: np.dtype[Any], dims: Dims, _guess: Dims) -> tuple[NDArray[Any], str]:
    """Return a text as one string, or its lines along the axis that is open."""
    if dtype.kind != "O":
        raise ValueError("a text is for strings; give an array")
    axis = next((axis for axis, dim in enumerate(dims) if dim != 1), None)
    text = path.read_text("utf-8")
    lines = np.array([text] if axis is None else text.splitlines(), object)
    return lines.reshape([-1 if at == axis else 1 for at in range(len(dims))]), count_text(len(lines), "string")


_READERS: Final = {".wav": _sound, ".txt": _text, **dict.fromkeys((".jpg", ".jpeg", ".png", ".bmp", ".gif"), _picture)}
_SUFFIXES: Final = ".npz, .npy, .pb, .jpg, .png, .wav or .txt"


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file by name, or the array of a .npy file under an empty name."""
    with reading(path, f"a {path.suffix} file", FeedError):
        return saved.read_arrays(path)


def read_pb(path: Path, kind: TypeProto | None) -> tuple[str, Any]:
    """Return the name in a file of onnx test data, and its value."""
    message: TensorProto | SequenceProto | OptionalProto = TensorProto()
    if kind is not None and kind.HasField("sequence_type"):
        message = SequenceProto()
    elif kind is not None and kind.HasField("optional_type"):
        message = OptionalProto()
    with reading(path, f"a serialized {'value' if kind is None else type_text(kind)}", FeedError):
        check_file(path, PROTO_LIMIT)
        message.ParseFromString(path.read_bytes())
    try:
        return plain_text(message.name), _pb_value(message, quoted(str(path)))
    except OnnxNbError as error:
        raise error if isinstance(error, FeedError) else FeedError(error.message, advice=error.advice) from error


def _pb_value(message: TensorProto | SequenceProto | OptionalProto, what: str) -> Any:
    if isinstance(message, TensorProto):
        if message.data_location == TensorProto.EXTERNAL:
            raise FeedError(f"{what} refers to another file for its values.", advice="Store them in it.")
        return tensors.values(message, what)
    if isinstance(message, SequenceProto):
        elements = [*message.tensor_values, *message.sequence_values, *message.optional_values]
        if len(message.tensor_values) != len(elements) or message.sparse_tensor_values or message.map_values:
            raise FeedError(f"{what} is a sequence of something else than tensors.", advice="Give a dict of feeds.")
        return [_pb_value(tensor, f"element {i} of {what}") for i, tensor in enumerate(elements)]
    if message.HasField("tensor_value"):
        return _pb_value(message.tensor_value, what)
    return _pb_value(message.sequence_value, what) if message.HasField("sequence_value") else None


def viewed(value: Any, kind: TypeProto | None) -> Any:
    """Restore types such as bfloat16, which numpy's files hold as untyped bytes."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "V" and value.dtype.names is None and kind is not None:
        dtype = numpy_dtype(kind.tensor_type.elem_type)
        if dtype is not None and dtype.isbuiltin == 2 and dtype.itemsize == value.dtype.itemsize:
            return value.view(dtype)
    return value


@known_arguments
def validate_feeds(model: ModelLike, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return a feed in the order of the model's inputs, as onnxruntime takes it.

    Torch tensors become arrays, and strings object arrays of ``str``. A sequence is a list, and an absent optional is
    ``None``. Inputs that have an initializer may be left out. A `FeedError` says which input is missing, unknown or of
    another type than declared. Sizes that differ though they have one name are only a warning.
    """
    source = load(model)
    entries = input_types(source)
    for name in feeds:
        if name not in entries:
            near = tensors.listed(closest(str(name), entries) or entries) or "none"
            raise FeedError(f"{source.name} has no input {quoted(str(name))}.", advice=f"Its inputs: {near}.")
    needs = (name for name, kind in entries.items() if not kind.HasField("optional_type"))
    if missing := [name for name in needs if name not in feeds and name not in source.initializers]:
        inputs = tensors.listed(missing, lambda name: f"{quoted(name)} ({type_text(entries[name])})")
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
    if not tensors.fits(dims, array.shape):
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
    if tensors.fits(dims, (1, *shape)):
        return "The first axis is missing: use array[None]."
    if shape[:1] == (1,) and tensors.fits(dims, shape[1:]):
        return "There is one axis too many: use array[0]."
    if len(shape) == 4 and tensors.fits(dims, tuple(shape[axis] for axis in (0, 3, 1, 2))):
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
    try:
        return to_numpy(value.to_dense())
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise FeedError(f"{what} is given a torch tensor that has no values for numpy: {error}.") from error


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor as an array that may share its memory; bfloat16 and float8 with dtypes of ``ml_dtypes``."""
    import torch

    plain = tensor.detach()
    if not plain.is_cpu or plain.is_conj() or plain.is_neg():
        plain = plain.cpu().resolve_conj().resolve_neg()
    foreign = getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch."), None)  # a type that numpy lacks
    if foreign is not None:
        plain = plain.view({1: torch.uint8, 2: torch.int16}[plain.element_size()])
    array: NDArray[Any] = plain.numpy()
    array = array if plain.is_contiguous() else array.copy()  # copying in torch wakes its threads, which takes longer
    return array if foreign is None else array.view(foreign)
