"""Files of arrays and saved results, which come from anywhere: what they hold is bounded by their size and checked.

Results are JSON, or an archive of NumPy's with arrays beside the JSON. The types of their dataclasses are the schema.
Functions raise whatever damaged files lead to, and `reading` makes that an error of ours.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import io
import json
import lzma
import math
import os
import stat
import tokenize
import types
import typing
import wave
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, cast, get_args, get_origin, get_type_hints

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from onnx_nb.analysis.errors import FeedError, ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, closest_text, path_text, plain_text, quoted
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.model.protofields import Longs
from onnx_nb.analysis.model.save import write_file
from onnx_nb.analysis.model.storage import file_names, path_of
from onnx_nb.analysis.progress import Progress

FILE_LIMIT: Final = 1 << 33
"""Maximum bytes of a file, packed or unpacked."""
_INFLATION: Final = 100
"""Times the bytes of an archive that its arrays may take: zeros take 1,000 times as much."""
_LEAST: Final = 1 << 28
"""Bytes that the arrays of any archive may take."""
_KINDS: Final = ("float64", "int64")

Count = Annotated[int, 0]
"""A number of a saved result that is not negative."""
Size = Annotated[float, 0]
"""The same; NaN if it is not known."""

# errors of numpy, zipfile and its decompressors on damaged files
_UNREADABLE: Final = (
    *(OSError, ValueError, ArithmeticError, EOFError, MemoryError, RuntimeError, SyntaxError, TypeError, LookupError),
    *(AttributeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError, DecodeError, FeedError),
    wave.Error,
)


@contextmanager
def reading(path: Path, what: str, kind: type[OnnxNbError] = ModelFileError) -> Iterator[None]:
    """Raise an error of ours where a file that is read in here is missing, or is not what it should be."""
    try:
        yield
    except _UNREADABLE as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        if isinstance(error, FileNotFoundError):
            advice = closest_text(path.name, file_names(path.parent))
            raise kind(f"there is no file {quoted(path_text(path))}.", advice=advice) from error
        raise kind(f"{quoted(path_text(path))} cannot be read as {what}: {reason.rstrip('.')}.") from error


def check_file(path: Path, limit: int = FILE_LIMIT) -> int:
    """Return the bytes of an ordinary file; raise if it is larger than a limit, or a FIFO or device without an end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not an ordinary file")
    if status.st_size > limit:
        raise OSError(errno.EFBIG, f"it holds {bytes_text(status.st_size)}, more than a file that is read may")
    return status.st_size


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    size = check_file(path)
    with path.open("rb") as file:
        return json.loads(file.read(size))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file by name, or the array of a .npy file under an empty name."""
    size = check_file(path)
    if path.suffix == ".npy":
        with path.open("rb") as file:
            return {"": _read_npy(file, size)}
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        nbytes = sum(member.file_size for member in members)
        if nbytes > min(max(_INFLATION * size, _LEAST), FILE_LIMIT):
            message = f"{bytes_text(nbytes)} are packed into {bytes_text(size)} of it, which is rarely meant well"
            raise ValueError(f"{message}; save with numpy.savez, or give arrays")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"it has two arrays called {quoted(name)}; leave out one of them")
            with archive.open(member) as stream:
                arrays[name] = _read_npy(cast("BinaryIO", stream), member.file_size)
    return arrays


def _read_npy(file: BinaryIO, size: int) -> NDArray[Any]:
    """Read an array after checking that its bytes exist: numpy allocates what the header declares."""
    version = np.lib.format.read_magic(file)
    if version not in _NPY_HEADERS:
        raise ValueError(f"version {version} of the format")
    shape, _, dtype = _NPY_HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which could run any code; save strings as array.astype(str)")
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > size:
        raise ValueError(f"{bytes_text(nbytes)} are announced, and {bytes_text(size)} are there")
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


_NPY_HEADERS: Final[Mapping[tuple[int, int], Callable[[BinaryIO], Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write(
    path: str | os.PathLike[str], content: Any, kind: str, progress: Progress | None, models: Iterable[Model]
) -> Path:
    """Write dataclasses, tuples, numbers, texts and arrays of float64 and int64."""
    arrays: dict[str, list[NDArray[Any]]] = {name: [np.zeros(0, name)] for name in _KINDS}
    tree = json.dumps({"kind": kind, "content": _packed(content, arrays, dict.fromkeys(_KINDS, 0))})
    columns: dict[str, Any] = {name: np.concatenate(parts) for name, parts in arrays.items()}
    if progress is not None:
        progress(0.5, f"compressing {bytes_text(sum(array.nbytes for array in columns.values()))}")
    archive = io.BytesIO()
    np.savez_compressed(archive, tree=np.frombuffer(tree.encode(), np.uint8), **columns)
    if progress is not None:
        progress(0.9, f"writing {bytes_text(archive.tell())}")
    return write_file(path, archive.getvalue(), models)


def read(path: str | os.PathLike[str], kind: str, content: type) -> Any:
    """Read what `write` wrote: a dataclass, whose fields and their types are the schema."""
    place = path_of(path)
    with reading(place, f"a saved {kind}"):
        arrays = read_arrays(place)
        text = arrays["tree"].tobytes()
        if len(text) > max(_INFLATION // 4 * place.stat().st_size, _LEAST // 16):  # objects take 20 times as much
            raise ValueError(f"{bytes_text(len(text))} of text are packed into it")
        tree = json.loads(text)
        if tree["kind"] != kind:
            raise ValueError(f"it holds a {plain_text(tree['kind'])}")
        return typed(tree["content"], content, "", arrays)


def _packed(content: Any, arrays: dict[str, list[NDArray[Any]]], sizes: dict[str, int]) -> Any:
    if isinstance(content, np.ndarray):
        name = content.dtype.name
        arrays[name].append(content.ravel())
        sizes[name] += content.size
        return {"at": sizes[name] - content.size, "shape": content.shape}
    if isinstance(content, complex):
        return [content.real, content.imag]
    if dataclasses.is_dataclass(content):
        content = {field.name: getattr(content, field.name) for field in dataclasses.fields(content)}
    if isinstance(content, Mapping):
        return {key: _packed(value, arrays, sizes) for key, value in content.items()}
    if isinstance(content, tuple):
        return [_packed(value, arrays, sizes) for value in content]
    return content


@functools.cache
def _schema(kind: type) -> dict[str, Any]:
    # names that modules import for annotations alone; a model is never saved
    local: dict[str, Any] = {"NDArray": NDArray, "Floats": NDArray[np.float64], "Longs": Longs, "Model": types.NoneType}
    return get_type_hints(kind, localns=local | {"Count": Count, "Size": Size}, include_extras=True)


def typed(value: Any, hint: Any, where: str, arrays: Mapping[str, NDArray[Any]] | None = None) -> Any:
    """Return a value of JSON as the type that an annotation states; raise an error, which names it, if it is not.

    ``arrays`` are those beside the JSON; without, arrays are lists. A field with a default may be absent.
    """
    if type(value) is hint and hint in (bool, float, types.NoneType):
        return value
    kind, options = get_origin(hint), get_args(hint)
    part = functools.partial(typed, arrays=arrays)
    if kind in (typing.Union, types.UnionType):
        if value is None and types.NoneType in options:
            return None
        *others, last = (option for option in options if option is not types.NoneType)
        for option in others:
            with suppress(ValueError):
                return part(value, option, where)
        return part(value, last, where)
    if kind is np.ndarray:
        return _array(value, get_args(options[1])[0], 1, where, arrays)
    if kind is Annotated and get_origin(options[0]) is np.ndarray:
        return _array(value, np.float64, hint.__metadata__[0], where, arrays)
    if kind is Annotated and not (number := part(value, options[0], where)) < hint.__metadata__[0]:
        if not number > hint.__metadata__[-1] > 0:
            return number
    elif kind is tuple and isinstance(value, list):
        hints = options[:1] * len(value) if options[-1] is ... else options
        if len(hints) == len(value):
            return tuple(part(entry, hints[n], f"{where}[{n}]") for n, entry in enumerate(value))
    elif kind is Mapping and isinstance(value, dict):
        return {options[0](key): part(entry, options[1], f"{where}[{key!r:.60}]") for key, entry in value.items()}
    elif hint in (int, float) and type(value) is int and abs(value) < 1 << 63:
        return hint(value)
    elif kind is Literal and value in options:
        return value
    elif hint is str and isinstance(value, str):
        return value.encode(errors="replace").decode()
    elif hint is complex and isinstance(value, list):
        return complex(*part(value, tuple[float, float], where))
    elif dataclasses.is_dataclass(hint) and isinstance(value, dict | list):
        schema = _schema(cast("type", hint))
        content = value if isinstance(value, dict) else dict(zip(schema, value, strict=False))
        names = [field.name for field in dataclasses.fields(hint) if field.name in content]
        return cast("type", hint)(**{name: part(content[name], schema[name], f"{where}.{name}") for name in names})
    text = f"a {type(value).__name__}" if isinstance(value, dict | list) else f"{value!r:.60}"
    raise ValueError(f"{where.removeprefix('.') or 'its content'} is {text}")


def _array(value: Any, dtype: Any, rank: int, where: str, arrays: Mapping[str, NDArray[Any]] | None) -> NDArray[Any]:
    if arrays is None:
        return np.asarray(typed(value, tuple[float, ...] if dtype is np.float64 else tuple[int, ...], where), dtype)
    start, shape = typed(value["at"], Count, f"{where}.at"), typed(value["shape"], tuple[Count, ...], f"{where}.shape")
    column = arrays[np.dtype(dtype).name][start:]
    if column.dtype != dtype or column.ndim != 1 or len(shape) != rank or math.prod(shape) > len(column):
        raise ValueError(f"{where.removeprefix('.')} is no array of {rank} axes that the file has")
    return column[: math.prod(shape)].reshape(shape)
