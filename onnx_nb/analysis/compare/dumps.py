"""Arrays that any runtime computed, as a side of a comparison: the other side's model says what their names mean."""

from __future__ import annotations

import base64
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.lockstep import Recorded
from onnx_nb.analysis.errors import AlignmentError, FeedError
from onnx_nb.analysis.formatting import closest_text, count_text, quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import label_of
from onnx_nb.analysis.model.tensors import listed
from onnx_nb.analysis.run.feeds import (
    FILE_LIMIT,
    UNREADABLE,
    check_file,
    entries_of,
    read_arrays,
    read_npy,
    read_pb,
    unreadable,
)

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

_FILES: Final = (".npz", ".npy", ".json")

Arrays = Mapping[str, NDArray[Any]]
Dump = Arrays | Sequence[Arrays] | str | os.PathLike[str]
"""Arrays by name, one mapping for each feed; or a file or folder of them."""


def is_dump(given: object) -> TypeGuard[Dump]:
    """Return whether a side of a comparison is arrays, or a path of arrays and not of a model."""
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        return path.suffix in _FILES or os.path.isdir(path)  # noqa: PTH112  # Path.is_dir raises if it is too long
    if isinstance(given, list | tuple):
        return bool(given) and all(isinstance(each, Mapping) for each in given)
    return isinstance(given, Mapping)


class Dumped(Recorded):
    """Arrays whose names are those of a model's values."""

    def __init__(self, model: Model, arrays: Sequence[Arrays], label: str, names: Mapping[int, str]) -> None:
        self.graph, self.feeds, self.label = Graph.of(model), len(arrays), label
        self.names = dict(names)
        self._arrays = arrays

    def __reduce__(self) -> tuple[Any, ...]:
        return Dumped, (self.graph.model, self._arrays, self.label, self.names)

    def array(self, name: str, number: int) -> Any:
        """Return the array of a value for one feed."""
        return np.asarray(self._arrays[number][name])


def dumped(graph: Graph, values: Mapping[str, int], given: Dump) -> tuple[Dumped, list[str]]:
    """Find the values of a graph that arrays are named after; also return the names of all others.

    A name may have other characters in place of signs, as in the name of a file.
    """
    arrays, label = _read(given)
    plain: dict[str, list[int]] = {}
    for name, value in values.items():
        plain.setdefault(_plain(name), []).append(value)
    names: dict[int, str] = {}
    unknown = []
    every = dict.fromkeys(name for each in arrays for name in each)
    for name in sorted(every, key=lambda name: name not in values):  # exact names first
        several = plain.get(_plain(name), [])
        value = values.get(name, several[0] if len(several) == 1 else -1)
        lacking = [number for number, each in enumerate(arrays) if name not in each]
        if value in names:
            both = f"{quoted(names[value])} and {quoted(name)}"
            message = f"{both} of {label} are both {quoted(graph.value_names[value])} of the model."
            raise AlignmentError(message, advice="Leave out one of them.")
        if lacking:
            message = f"{quoted(name)} of {label} is missing in feed {lacking[0]}."
            raise AlignmentError(message, advice="Give the same names for every feed.")
        if value < 0:
            unknown.append(name)
        else:
            names[value] = name
    if not names:
        message = f"no array of {label} has the name of a tensor of {label_of(graph.model)}."
        raise AlignmentError(message, advice=closest_text(next(iter(every)), values) or "See model.tensor_names().")
    return Dumped(graph.model, arrays, label, names), unknown


def _plain(name: str) -> str:
    """Return a name as runtimes write it that allow letters and digits only: "/a/MatMul_output_0" and "a.MatMul:0"."""
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def _read(given: Dump) -> tuple[list[Arrays], str]:
    """Return the arrays of each feed, and a label for them."""
    found: list[Arrays]
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        found = _polygraphy(path) if path.suffix == ".json" else [_from_path(path)]
        label = path.name
    else:
        found, label = [given] if isinstance(given, Mapping) else list(given), "the arrays"
    for arrays in found:
        for name, array in arrays.items():
            if not hasattr(array, "__array__"):
                message = f"{quoted(str(name))} in {label} is {type(array).__name__}, not an array."
                raise AlignmentError(message, advice="Give a dict of numpy arrays by the names of tensors.")
    if not any(found):
        raise AlignmentError(f"{label} has no arrays.", advice="Dump the values of the tensors to compare.")
    return found, label


def _from_path(path: Path) -> dict[str, NDArray[Any]]:
    """Read a .npz file, a .npy file named after its tensor, or a folder of .npy and .pb files."""
    if path.suffix == ".npz":
        return read_arrays(path)
    files = [path] if path.suffix == ".npy" else [file for file in entries_of(path) if file.suffix in (".npy", ".pb")]
    found: dict[str, NDArray[Any]] = {}
    for file in files:
        own, array = ("", read_arrays(file)[""]) if file.suffix == ".npy" else read_pb(file, None)
        name = own or file.stem
        if name in found:
            message = f"{quoted(str(path))} has two arrays called {quoted(name)}."
            raise AlignmentError(message, advice="Leave out one of them.")
        found[name] = array
    return found


def _polygraphy(path: Path) -> list[Arrays]:
    """Read the results of the only runner in a file of polygraphy's ``RunResults.save``."""
    size = check_file(path, FILE_LIMIT)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        runners = [(str(name), list(iterations)) for name, iterations in content["lst"]]
        if len(runners) == 1:
            return [
                {str(name): _encoded(array, size, path) for name, array in iteration["outputs"].items()}
                for iteration in runners[0][1]
            ]
    except (*UNREADABLE, AttributeError, RecursionError) as error:
        raise unreadable(path, "a file of polygraphy's run results", error) from error
    many = f"{count_text(len(runners), 'runner')} ({listed(name for name, _ in runners)})" if runners else "no runner"
    message = f"{quoted(str(path))} has the results of {many}, not of one."
    raise FeedError(message, advice="Save those of the runner to compare in a file of their own.")


def _encoded(array: Any, size: int, path: Path) -> NDArray[Any]:
    while "array" not in array:
        array = array["values"]
    data = base64.b64decode(array["array"], validate=True)
    return read_npy(io.BytesIO(data), size, path)
