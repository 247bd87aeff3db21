"""Locations of the bytes of weights: in files, which are mapped or streamed, or in memory.

`Storage.extent` returns that of one tensor. Files are not trusted: every offset, length and location is checked before
it is used, by onnxruntime's rule that external data must be in the model's folder or below it.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import stat
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, plain_text, quoted
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.tensors import placed, raw_bytes, type_and_shape

if TYPE_CHECKING:
    import onnx_ir

MEMORY: Final = "onnx_nb.memory"
"""Prefix of locations in memory, which name no file."""


class Storage:
    """Finds the bytes of a model's weights."""

    def __init__(self, sources: Sources | None = None, *, folder: Path | None = None, path: Path | None = None) -> None:
        self.folder: Final = folder
        self._path = path
        self._sources: dict[str, Source] = dict(sources or {})
        self._inside: dict[Path, bool] = {}
        self.options: dict[str, Any] = {}
        """Options of sessions, "custom_ops" and "providers", as a person gave them; derived models keep them."""

    def extent(self, tensor: TensorProto, what: str) -> Extent:
        """Return the location of external data, after checking it: none of it is trusted."""
        claim = Claim.of(tensor, what)
        for _, problem in claim.problems:
            raise problem
        source = self.source(claim.location, what)
        for problem in claim.beyond(source):
            raise problem
        return Extent(source, claim.offset or 0, claim.nbytes or 0, what)

    def extents(self, proto: ModelProto, label: str) -> list[Extent]:
        """Return the locations of all external data of a model, in the order of `tensors.external`."""
        pairs = ((tensor, place) for tensor, place in placed(proto) if tensor.data_location == TensorProto.EXTERNAL)
        return [self.extent(tensor, f"{place.label} of {label}") for tensor, place in pairs]

    def unusable(self, proto: ModelProto, label: str) -> list[tuple[str, OnnxNbError]]:
        """Return the first weight in each data file that cannot be used, and why; reads no file."""
        users: dict[str, list[str]] = {}
        for tensor in proto.graph.initializer:
            if tensor.data_location == TensorProto.EXTERNAL:
                users.setdefault(references(tensor).get("location", ""), []).append(plain_text(tensor.name))
        faults = []
        for location, names in users.items():
            try:
                self.source(location, f"the data of {count_text(len(names), 'weight')} of {label}")
            except OnnxNbError as error:
                faults.append((names[0], error))
        return faults

    def values(self, tensor: TensorProto, what: str) -> NDArray[Any]:
        """Return the values of a tensor, inside it or external; ``what`` names it in messages."""
        if tensor.data_location == TensorProto.EXTERNAL:
            return tensors.decoded(self.extent(tensor, what).array(), tensor, what)
        return tensors.values(tensor, what)

    def source(self, location: str, what: str) -> Source:
        """Return the content of a location; ``what`` names it in messages.

        Raises if the file is not what it was when the model was loaded: onnxruntime would read other bytes in it.
        """
        source = self._sources.get(location)
        if source is None:
            source = File(self._located(location, what), ExternalDataError, what=what)
            # a model that was written again usually has other data
            for file in filter(attrgetter("permanent"), self._sources.values()):
                file.check(what)
            self._sources[location] = source
        source.check(what)
        return source

    def _located(self, location: str, what: str) -> Path:
        """Return the file, by onnxruntime's rule: inside the folder, also after following symbolic links."""
        place = f"{what} is external data in {quoted(location)}"
        if self.folder is None:
            message = f"{place}, but a model from memory has no folder."
            raise MissingFileError(message, advice="Give it: onnx_nb.load(model, data_dir=…).")
        windows = PureWindowsPath(location)
        if not location or "\0" in location:
            message = f"{what} is external data without a usable location: {quoted(location)}."
            raise UnsafeLocationError(message, advice="Export the model again: it is unknown which file was meant.")
        if Path(location).is_absolute() or windows.drive or windows.root or ".." in windows.parts:
            message = f"{place}, which leads out of the model's folder."
            raise UnsafeLocationError(message, advice="Only files in that folder, or below it, are read.")
        path = self.folder / location
        try:
            real = path.resolve(strict=True)
            roots = [self.folder.resolve()]
            if self._path is not None and self._path.is_symlink():
                roots.append(self._path.resolve().parent)
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                message = f"{place}, which cannot be used: {error.strerror or type(error).__name__}."
                advice = "See that the file is there and that you may read it."
                raise ExternalDataError(message, advice=advice) from None
            hint = closest_text(location, file_names(self.folder))
            message = f"{place}, which is not in {quoted(str(self.folder))}. {hint}".rstrip()
            advice = "Put the file there, or give its folder: onnx_nb.load(model, data_dir=…)."
            raise MissingFileError(message, advice=advice) from None
        if not any(real.is_relative_to(root) for root in roots):
            advice = "Copy the file into the folder, or give its folder: onnx_nb.load(path, data_dir=…)."
            raise UnsafeLocationError(f"{place}, a symbolic link that leads out of the model's folder.", advice=advice)
        return path

    def like(self, more: Sources, folder: Path | None = None, **options: Any) -> Storage:
        """Return a storage with the contents of further locations, perhaps for files in another folder."""
        sources = {key: source for key, source in self._sources.items() if source.permanent or folder is None}
        other = Storage({**sources, **more}, folder=folder or self.folder, path=self._path)
        other.options = {**self.options, **options}
        return other

    def is_current(self) -> bool:
        """Return whether the files that were read are what they were then."""
        with contextlib.suppress(OnnxNbError):
            for source in self._sources.values():
                source.check("a weight")
            return True
        return False

    def reads(self, path: Path) -> bool:
        """Return whether weights were found in this file."""
        for source in self._sources.values():
            with contextlib.suppress(OSError, ValueError):  # one of the files does not exist, or no system has the path
                if source.path is not None and path.samefile(source.path):
                    return True
        return False

    def is_inside(self, location: str, source: Source) -> bool:
        """Return whether onnxruntime finds the file at a location by itself, given the folder."""
        if self.folder is None or source.path is None or source.path != self.folder / location:
            return False
        # cached: every session asks, and following links would dominate the cost of a small one
        if source.path not in self._inside:
            self._inside[source.path] = source.path.resolve().is_relative_to(self.folder.resolve())
        return self._inside[source.path]


@dataclass(frozen=True)
class Claim:
    """External data as a tensor states it, with the problems that are visible without the file."""

    location: str
    offset: int | None
    """Bytes before the data in the file; ``None`` if it is not a number."""
    length: int | None
    """Bytes; ``None`` if it is not a number, or not given."""
    nbytes: int | None
    """Bytes required by type and shape; ``None`` if unknown."""
    entries: Mapping[str, str]
    problems: tuple[tuple[str, OnnxNbError], ...]
    """Pairs of a kind, "number" or "size", and the error."""
    what: str

    @classmethod
    def of(cls, tensor: TensorProto, what: str) -> Claim:
        """Read the entries of a tensor."""
        entries = references(tensor)
        problems: list[tuple[str, OnnxNbError]] = []
        nbytes = None
        if tensor.data_type == TensorProto.STRING:
            message = f"{what} has strings as external data, which ONNX does not define."
            advice = "Export the model again: strings stay in the model."
            problems.append(("size", ExternalDataError(message, advice=advice)))
        else:
            try:
                nbytes = tensors.stored_bytes(tensor, what)
            except OnnxNbError as error:
                problems.append(("size", error))
        numbers = {}
        for key, value in (("offset", entries.get("offset") or "0"), ("length", entries.get("length"))):
            numbers[key] = int(value) if value and is_number(value) else None
            if value and numbers[key] is None:
                message = f"{what} has external data with {key} {quoted(value)}, which is not a number of bytes."
                advice = "Export the model again: it is unknown what was meant."
                problems.append(("number", ExternalDataError(message, advice=advice)))
        length = numbers["length"]
        if None not in (length, nbytes) and length != nbytes:
            message = f"{what} has {length} bytes of external data, but {type_and_shape(tensor)} takes {nbytes}."
            advice = "Export the model again: model and data do not fit."
            problems.append(("size", ExternalDataError(message, advice=advice)))
        return cls(entries.get("location", ""), numbers["offset"], length, nbytes, entries, tuple(problems), what)

    @property
    def span(self) -> tuple[int, int] | None:
        """Range of bytes in the file, end exclusive; ``None`` if unknown."""
        nbytes = self.nbytes if self.length is None else self.length
        return None if self.offset is None or nbytes is None else (self.offset, self.offset + nbytes)

    def beyond(self, source: Source) -> Iterator[ExternalDataError]:
        """Yield an error if the bytes would extend beyond the end of the file."""
        span = self.span
        if span is not None and span[1] > source.nbytes:
            message = f"{self.what} is at bytes {span[0]} to {span[1]} of {quoted(source.label)}"
            yield ExternalDataError(f"{message}, which has only {source.nbytes}.", advice="Get the whole file again.")


class MissingFileError(ExternalDataError):
    """The file at a location does not exist."""


class UnsafeLocationError(ExternalDataError):
    """A location is outside the model's folder."""


@dataclass(frozen=True)
class Extent:
    """Location of the bytes of one weight."""

    source: Source
    offset: int
    nbytes: int
    what: str

    def array(self) -> NDArray[np.uint8]:
        """Return the bytes without copying them; read-only."""
        if not self.nbytes:
            return np.empty(0, np.uint8)
        return self.source.array(self.offset, self.offset + self.nbytes, self.what)

    def stream(self, size: int) -> Iterator[bytes | memoryview]:
        """Return the bytes in pieces of at most ``size``."""
        return self.source.stream(self.offset, self.offset + self.nbytes, size, self.what)


class File:
    """A file, mapped for arrays and read for copies. All arrays share one map: each map would take a file handle."""

    _maps: Final[weakref.WeakValueDictionary[tuple[str, int, int], mmap.mmap]] = weakref.WeakValueDictionary()

    def __init__(self, path: Path, error: type[OnnxNbError], *, what: str, permanent: bool = False) -> None:
        self.path = path.absolute()  # the working directory may change
        self.label = path.name
        self.permanent = permanent
        """Whether the file stays the same if the model's folder changes."""
        self._error = error
        status = self._stat(what)
        self.nbytes = status.st_size
        self._modified = status.st_mtime_ns
        self.identity: Final = (status.st_dev, status.st_ino)
        self.links: Final = status.st_nlink

    def _stat(self, what: str) -> os.stat_result:
        try:
            status = self.path.stat()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            message = f"{what}: {quoted(str(self.path))} cannot be opened: {reason}."
            raise self._error(message, advice="See that it is there and that you may read it.") from error
        if not stat.S_ISREG(status.st_mode):
            message = f"{what}: {quoted(str(self.path))} is not an ordinary file."
            raise self._error(message, advice="Put an ordinary file there.")
        return status

    def check(self, what: str) -> None:
        """Raise if the file was changed or removed; ``what`` names its bytes in messages."""
        status = self._stat(what)
        if (status.st_size, status.st_mtime_ns) != (self.nbytes, self._modified):
            message = f"{what}: {quoted(str(self.path))} was changed after the model was loaded."
            raise self._error(message, advice="Load the model again.")

    @property
    def is_linked(self) -> bool:
        """Whether it is a symbolic link or has several names; onnx reads neither."""
        return self.links > 1 or self.path.is_symlink()

    def array(self, start: int, stop: int, what: str) -> NDArray[np.uint8]:
        """Return some of the bytes, whose pages are read when they are touched; ``what`` names them in messages."""
        self.check(what)
        key = str(self.path), self.nbytes, self._modified
        view = self._maps.get(key)
        if view is None:
            try:
                with self.path.open("rb") as file:
                    view = mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise self._error(f"{what}: {quoted(str(self.path))} cannot be mapped: {error}.") from error
            self._maps[key] = view
        return np.frombuffer(view, np.uint8, stop - start, start)

    def stream(self, start: int, stop: int, size: int, what: str) -> Iterator[bytes | memoryview]:
        """Read a part into one buffer, piece by piece: a map would keep all of it in memory."""
        self.check(what)
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                buffer = memoryview(bytearray(min(size, stop - start)))
                while start < stop:
                    count = file.readinto(buffer[: stop - start])
                    if not count:
                        raise self._error(f"{what}: {quoted(str(self.path))} ended while it was read.")
                    yield buffer[:count]
                    start += count
        except OSError as error:
            raise self._error(f"{what}: {quoted(str(self.path))} cannot be read: {error.strerror or error}.") from error


class MemorySource:
    """Bytes held by an object of this process: the one that the model was loaded from."""

    path = None
    permanent = True

    def __init__(
        self, content: bytes | NDArray[Any] | TensorProto | onnx_ir.TensorProtocol, nbytes: int, label: str
    ) -> None:
        self._held = content
        self.nbytes = nbytes
        self.label = label

    def check(self, what: str) -> None:
        """Do nothing: what is held cannot be written again."""

    def __getstate__(self) -> dict[str, Any]:
        # Other processes get the bytes: a torch tensor or an onnx_ir one may not be picklable.
        content = self._held if isinstance(self._held, bytes | TensorProto) else self._bytes("a weight").tobytes()
        return {"_held": content, "nbytes": self.nbytes, "label": self.label}

    def _bytes(self, what: str) -> NDArray[np.uint8]:
        content = self._held
        if isinstance(content, TensorProto):
            content = raw_bytes(content, what)
        elif not isinstance(content, bytes | np.ndarray):
            try:
                # A view of the tensor's memory, if possible; tobytes copies.
                content = content.numpy() if content.dtype.bitwidth >= 8 else content.tobytes()
            except Exception as error:
                raise ExternalDataError(f"{what} cannot be read from the given model: {error}") from error
        flat = content if isinstance(content, bytes) else np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        data = np.frombuffer(flat, np.uint8)
        if len(data) != self.nbytes:
            message = f"{what} has {len(data)} bytes, and had {self.nbytes} when the model was loaded."
            raise ModelFileError(message, advice="Load the model again after changing it.")
        return data

    def array(self, start: int, stop: int, what: str) -> NDArray[np.uint8]:
        """Return a view of a part."""
        return self._bytes(what)[start:stop]

    def stream(self, start: int, stop: int, size: int, what: str) -> Iterator[bytes | memoryview]:
        """Return views of a part, piece by piece."""
        data = np.ascontiguousarray(self._bytes(what)).data
        for position in range(start, stop, size):
            yield data[position : min(position + size, stop)]


Source: TypeAlias = File | MemorySource
"""A container of bytes of weights."""
Sources: TypeAlias = Mapping[str, Source]
"""Containers by the locations that tensors name."""

KNOWN_KEYS: Final = frozenset(("location", "offset", "length", "checksum"))
"""Keys of external data that the ONNX specification defines; onnxruntime rejects others."""


def references(tensor: TensorProto) -> dict[str, str]:
    """Return the entries of external data: "location", "offset", "length" and perhaps others."""
    return {plain_text(entry.key): plain_text(entry.value) for entry in tensor.external_data}


def is_number(value: str) -> bool:
    """Return whether an entry is a number of bytes."""
    return value.isascii() and value.isdigit() and len(value) < 20


def refer(tensor: TensorProto, location: str, offset: int, length: int, *, checksum: str = "") -> None:
    """Turn a tensor into external data, and remove its own values."""
    for field in tensors.VALUE_FIELDS:
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length), ("checksum", checksum)):
        if value != "":
            tensor.external_data.add(key=key, value=str(value))


def embed(tensor: TensorProto, extent: Extent) -> None:
    """Put external bytes into the tensor."""
    tensor.raw_data = extent.array().tobytes()
    del tensor.external_data[:]
    tensor.ClearField("data_location")


def available_memory() -> int:
    """Return the bytes of memory that this process can still take."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        usage = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        limits += [max(int(limit) - int(usage), 1 << 28)] if limit.isdigit() else []
    except OSError:  # another system, or no control group: use the values found
        pass
    return min(limits, default=4 << 30)


def path_of(path_text: str | os.PathLike[str]) -> Path:
    """Return a path that a person gave, with ``~`` as the home folder."""
    path = Path(path_text)
    try:
        return path.expanduser()
    except RuntimeError:  # nobody has this home: it may be the name of a folder
        return path


def file_names(folder: Path) -> list[str]:
    """Return the names of some files of a folder, for a hint; empty if it cannot be read."""
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names.extend(entry.name for entry in itertools.islice(entries, 2000))
    return names
