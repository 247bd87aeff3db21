"""Frozen dataclasses in one file: their fields as JSON and their arrays, in NumPy's own archive.

Nothing is unpickled, so that an untrusted file can do no harm. Arrays of one type are concatenated: a file with
thousands of small arrays opens as fast as one with a few.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import bytes_text, quoted
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.progress import Progress, stage

_KINDS: Final = ("float64", "int64")


def write(path: str | os.PathLike[str], content: Any, kind: str, progress: Progress | None = None) -> None:
    """Write dataclasses, tuples, numbers, texts and arrays of float64 and int64."""
    arrays: dict[str, list[NDArray[Any]]] = {name: [] for name in _KINDS}
    filled = dict.fromkeys(_KINDS, 0)
    tree = json.dumps({"kind": kind, "content": _packed(content, arrays, filled)})
    joined: dict[str, Any] = {name: np.concatenate([np.zeros(0, name), *parts]) for name, parts in arrays.items()}
    if progress is not None:
        progress(0.5, f"compressing {bytes_text(sum(array.nbytes for array in joined.values()))}")
    packed = io.BytesIO()
    np.savez_compressed(packed, tree=np.frombuffer(tree.encode(), np.uint8), **joined)
    with together(stage(progress, 0.9, 1.0), packed.tell()) as files:
        files.add(Path(path), [packed.getvalue()])


def read(path: str | os.PathLike[str], kind: str, classes: Mapping[str, Any]) -> Any:
    """Read what `write` wrote."""
    name = quoted(str(path))
    try:
        # numpy leaves a damaged file open
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as found:
            tree = json.loads(found["tree"].tobytes())
            arrays = {each: found[each] for each in _KINDS}
        if tree["kind"] != kind:
            message = f"{name} holds a {tree['kind']} and not a {kind}."
            raise ModelFileError(message, advice="Give a file that was saved as one.")
        return _unpacked(tree["content"], arrays, classes)
    except OSError as error:
        raise ModelFileError(f"{name} cannot be read: {error.strerror or error}.", advice="Is it there?") from error
    except (ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile) as error:
        message = f"{name} is not a saved {kind}, or is damaged: {error}."
        raise ModelFileError(message, advice=f"Give a file that was saved as a {kind}.") from error


def _packed(content: Any, arrays: dict[str, list[NDArray[Any]]], filled: dict[str, int]) -> Any:
    if isinstance(content, np.ndarray):
        name = content.dtype.name
        arrays[name].append(content.ravel())
        filled[name] += content.size
        return {"": "array", "type": name, "at": filled[name] - content.size, "shape": content.shape}
    if isinstance(content, complex):
        return {"": "complex", "parts": [content.real, content.imag]}
    if dataclasses.is_dataclass(content):
        fields = {each.name: getattr(content, each.name) for each in dataclasses.fields(content)}
        return {"": type(content).__name__, **{key: _packed(value, arrays, filled) for key, value in fields.items()}}
    if isinstance(content, tuple):
        return [_packed(value, arrays, filled) for value in content]
    return content


def _unpacked(tree: Any, arrays: Mapping[str, NDArray[Any]], classes: Mapping[str, Any]) -> Any:
    if isinstance(tree, list):
        return tuple(_unpacked(each, arrays, classes) for each in tree)
    if not isinstance(tree, dict):
        return tree
    kind = tree.pop("")
    if kind == "array":
        shape = tuple(tree["shape"])
        start = tree["at"]
        return arrays[tree["type"]][start : start + int(np.prod(shape))].reshape(shape)
    if kind == "complex":
        return complex(*tree["parts"])
    return classes[kind](**{key: _unpacked(value, arrays, classes) for key, value in tree.items()})
