"""Write a model, with its weights inside or in separate files, or any other files: all of them or none.

Weights stream through a few megabytes of memory. A `Layout` determines their files, for `Model.save` and
`external_data.convert`.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Final

from onnx import TensorProto

from onnx_nb.analysis.errors import ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, quoted
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import Model, label_of, storage_of
from onnx_nb.analysis.model.storage import MEMORY, Extent, MemorySource, Storage, embed, path_of, refer, references
from onnx_nb.analysis.model.tensors import Place, declared_bytes, may_be_shape, placed, whole_bytes
from onnx_nb.analysis.progress import CountedWork, Progress

PAGE: Final = 4096
"""Bytes; the ONNX specification advises offsets that are multiples of it, so that pages can be mapped."""

_FULL: Final = 1 << 20
"""Bytes; a disk with less room is full."""

LARGEST_ALIGNMENT: Final = 1 << 30
"""Bytes; the largest valid `Layout.alignment`."""


@dataclass(frozen=True)
class Layout:
    """Arrangement of weights in files of their own."""

    location: str
    """Name of the file; several files derive their names from it."""
    per_tensor: bool = False
    shard_size: int | None = None
    alignment: int = PAGE
    threshold: int = wire.THRESHOLD
    """Bytes; smaller tensors go into the model's file."""
    attributes: bool = False
    """Whether tensors in attributes, such as those of Constant nodes, also go into the files."""
    checksums: bool = False

    def file_name(self, part: str) -> str:
        """Return the name of one of several files."""
        path = Path(self.location)
        return f"{path.stem}-{part}{path.suffix}"


def write_model(
    path: Path, model: Model, layout: Layout | None, *, replace: bool = False, progress: Progress | None = None
) -> Path:
    """Write a model; return the path."""
    proto, storage, label = model.proto, storage_of(model), label_of(model)
    _check_target(path)
    if not path.parent.is_dir():
        raise ModelFileError(f"the folder {quoted(str(path.parent))} does not exist.", advice="Create it first.")
    if layout is not None:
        _check_layout(path, layout)
    draft = copy.deepcopy(proto)
    outside: dict[tuple[object, int, int], _Stored] = {}
    inside: dict[str, Extent] = {}
    inner: list[tuple[TensorProto, Extent]] = []
    main = len(proto.graph.initializer)
    for index, ((tensor, place), (target, _)) in enumerate(zip(placed(proto), placed(draft), strict=True)):
        extent = _extent(tensor, place, storage, f"{place.label} of {label}", layout)
        if extent is None:
            continue
        stays = may_be_shape(tensor) and not place.kind.startswith("sparse")
        if layout is not None and extent.nbytes >= max(layout.threshold, 1) and not stays:
            # Tensors that share their bytes keep sharing them; otherwise each save would make the file longer.
            same = outside.setdefault((extent.source, extent.offset, extent.nbytes), _Stored(extent, place))
            same.tensors.append(target)
        elif index < main:
            # These are streamed into place between the parts of the model, without passing through memory.
            location = f"{MEMORY}/inside/{index}"
            refer(target, location, 0, extent.nbytes)
            inside[location] = extent
        else:
            inner.append((target, extent))
    inner_bytes = sum(extent.nbytes for extent in inside.values()) + sum(extent.nbytes for _, extent in inner)
    if draft.ByteSize() + inner_bytes > wire.PROTO_LIMIT:
        message = f"{label} is {bytes_text(draft.ByteSize() + inner_bytes)}, and one .onnx file holds at most 2 GB."
        advice = "Put the weights into a file of their own: external_data.convert(model, path), or model.save(path)."
        raise ModelFileError(message, advice=advice)
    for target, extent in inner:
        embed(target, extent)
    contents = {} if layout is None else _arranged(list(outside.values()), layout)
    if path.name.lower() in map(str.lower, contents):
        raise _unusable(path.name, path)
    for file_path in (path, *map(path.with_name, contents)):
        if storage.reads(file_path) and not replace:
            message = f"{quoted(str(file_path))} cannot be replaced: {label} is read from it."
            raise ModelFileError(message, advice="Save under another name.")
    with together(progress, inner_bytes + sum(weight.extent.nbytes for weight in outside.values())) as files:
        for name, weights in contents.items():
            checksum = layout is not None and layout.checksums
            parts: list[wire.Part] = []
            position = 0
            for weight in weights:
                parts += [bytes(weight.offset - position), weight.extent]
                position = weight.offset + weight.extent.nbytes
            digest = files.add(path.with_name(name), parts, checksum=checksum)
            for weight in weights:
                for target in weight.tensors:
                    refer(target, name, weight.offset, weight.extent.nbytes, checksum=digest)
        data = draft.SerializeToString()
        files.add(destination(path), wire.splice(data, lambda tensor: inside.get(references(tensor)["location"])))
    return path


@dataclass
class _Stored:
    """Bytes that go into a file of weights, and the tensors of the new model that use them."""

    extent: Extent
    place: Place
    tensors: list[TensorProto] = field(default_factory=list)
    offset: int = 0


def _extent(tensor: TensorProto, place: Place, storage: Storage, what: str, layout: Layout | None) -> Extent | None:
    """Return the bytes to write; ``None`` for values that stay in the proto."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return storage.extent(tensor, what)
    if layout is None or tensor.data_type == TensorProto.STRING or tensor.HasField("segment"):
        return None
    # onnx.load reads no external data of sparse weights, and onnx's checker rejects it for their indices.
    if place.kind.startswith("sparse") or (place.in_attribute and not layout.attributes):
        return None
    nbytes = declared_bytes(tensor)
    if nbytes < max(layout.threshold, 1) or may_be_shape(tensor):
        return None
    whole_bytes(tensor, what)  # raises
    return Extent(MemorySource(tensor, nbytes, "the model"), 0, nbytes, what)


def _arranged(weights: list[_Stored], layout: Layout) -> dict[str, list[_Stored]]:
    """Return the weights of each file, and set their offsets."""
    if layout.per_tensor:
        return {name: [weight] for name, weight in zip(_file_names(weights, layout), weights, strict=True)}
    shards: list[list[_Stored]] = []
    position = 0
    for weight in weights:
        nbytes = weight.extent.nbytes
        if layout.shard_size is not None and nbytes > layout.shard_size:
            sizes = f"{bytes_text(nbytes)}, more than a shard of {bytes_text(layout.shard_size)}"
            advice = "Choose a larger shard_size: a tensor is not split."
            raise ModelFileError(f"{weight.extent.what} takes {sizes}.", advice=advice)
        weight.offset = position + -position % layout.alignment
        if not shards or (layout.shard_size is not None and weight.offset + nbytes > layout.shard_size):
            shards.append([])
            weight.offset = 0
        shards[-1].append(weight)
        position = weight.offset + nbytes
    if len(shards) == 1:
        return {layout.location: shards[0]}
    return {layout.file_name(f"{i:05}-of-{len(shards):05}"): shard for i, shard in enumerate(shards, 1)}


def _file_names(weights: Iterable[_Stored], layout: Layout) -> Iterator[str]:
    """Yield file names derived from tensor names, unique also on file systems that ignore case."""
    names: set[str] = set()
    for weight in weights:
        place = weight.place
        kind = "" if place.kind in ("weight", "attribute") else f" {place.kind}"
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{place.name}{place.within}{kind}").strip("._")
        part = plain = plain if len(plain) <= 100 else f"{plain[:60]}_{plain[-39:]}"
        count = 1
        while not part or part.lower() in names:
            count += 1
            part = f"{plain or 'tensor'}-{count}"
        names.add(part.lower())
        yield layout.file_name(part)


def _check_layout(path: Path, layout: Layout) -> None:
    location = layout.location
    windows = PureWindowsPath(location)
    plain = len(windows.parts) == 1 and not windows.drive and location not in ("..", path.name) and "\0" not in location
    # Names of files need not be valid text, but the locations in a model must be.
    encodable = location.encode(errors="replace").decode() == location
    if not plain or not encodable or os.path.isdir(path.with_name(location)):  # noqa: PTH112
        raise _unusable(location, path)
    if not 0 < layout.alignment <= LARGEST_ALIGNMENT:
        raise ValueError(f"alignment {layout.alignment} is not between 1 and {LARGEST_ALIGNMENT}.")
    if layout.threshold < 0:
        raise ValueError(f"threshold {layout.threshold} is negative.")
    if layout.shard_size is not None and layout.shard_size <= 0:
        raise ValueError(f"shard_size {layout.shard_size} is not positive.")
    if layout.shard_size is not None and layout.per_tensor:
        raise ValueError("shard_size and per_tensor exclude each other.")


def _unusable(location: str, path: Path) -> ModelFileError:
    message = f"{quoted(location)} cannot hold the weights of {quoted(path.name)}."
    return ModelFileError(message, advice="Give the name of another file in the model's folder.")


@contextmanager
def together(progress: Progress | None = None, total: int = 0) -> Iterator[Files]:
    """Write files that appear when all are complete, with the usual permissions; if anything fails, none does."""
    with ExitStack() as cleanup:
        files = Files(cleanup, progress, total)
        yield files
        files.appear()


def write_file(path: str | os.PathLike[str], content: bytes, models: Iterable[Model] = ()) -> Path:
    """Write one file as `together` does, and never in place of a file of one of the models; return its path."""
    target = path_of(path)
    for model in models:
        if storage_of(model).reads(target):
            message = f"{quoted(str(target))} is the file of {label_of(model)}, which would be replaced."
            raise ModelFileError(message, advice="Write to another file.")
    with together() as files:
        files.add(destination(target), [content])
    return target


def folder_at(path: Path) -> Path:
    """Return a folder, which is made if it is missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a ValueError for a path that no system has
        message = f"folder {quoted(str(path))} cannot be made: {getattr(error, 'strerror', None) or error}."
        raise ModelFileError(message, advice="Choose a folder that you may write to.") from error
    return path


def destination(path: Path) -> Path:
    """Return the file that is written for a path that a person gave: where that is a link, its target."""
    _check_target(path)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


class Files:
    """Files that have been written into temporary folders. Made by `together`."""

    def __init__(self, cleanup: ExitStack, progress: Progress | None, total: int) -> None:
        self._cleanup = cleanup
        self._work = CountedWork(progress, total)
        self._temporary: dict[Path, Path] = {}
        self._folders: dict[Path, Path] = {}

    def add(self, path: Path, parts: Sequence[wire.Part], *, checksum: bool = False) -> str:
        """Write a file; return its SHA1 in hexadecimal if ``checksum``, else an empty string."""
        digest = hashlib.sha1(usedforsecurity=False) if checksum else None

        def watch(data: bytes | memoryview) -> None:
            if digest is not None:
                digest.update(data)
            self._work.add(len(data), f"writing {path.name}")

        _check_target(path)
        try:
            if path.parent not in self._folders:
                self._folders[path.parent] = temporary_folder(path.parent, self._cleanup)
            temporary = self._temporary[path] = self._folders[path.parent] / f"{len(self._temporary)}.tmp"
            with temporary.open("xb") as file:
                wire.write(file, parts, watch)
        except OSError as error:
            raise _unwritable(path, error) from error
        return "" if digest is None else digest.hexdigest()

    def appear(self) -> None:
        """Rename the files to their final names."""
        places: list[Path] = []
        former: dict[Path, Path] = {}
        try:
            for path, temporary in self._temporary.items():
                # Renaming a single file is atomic. Of several, existing ones are kept aside until all have appeared.
                if len(self._temporary) > 1 and os.path.lexists(path):
                    aside = temporary.with_suffix(".former")  # after a kill it goes with the folder
                    try:
                        os.link(path, aside, follow_symlinks=False)
                    except OSError:  # a file system without links
                        shutil.copy2(path, aside, follow_symlinks=False)
                    former[path] = aside
                if path.is_file() and not path.is_symlink():
                    temporary.chmod(stat.S_IMODE(path.stat().st_mode) & 0o777)
                temporary.replace(path)
                places.append(path)
        except BaseException as error:
            for other in places:
                if other not in former:
                    other.unlink()
            for other, aside in former.items():
                aside.replace(other)
            if isinstance(error, OSError):
                raise _unwritable(path, error) from error
            raise


def _check_target(path: Path) -> None:
    """Raise if a path is that of a folder, or of a device, FIFO or socket, which renaming would replace by a file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    if stat.S_ISDIR(mode):
        raise ModelFileError(f"{quoted(str(path))} is a folder.", advice="Give the name of a file in it.")
    if not stat.S_ISREG(mode):
        message = f"{quoted(str(path))} is not an ordinary file but a device, FIFO or socket, which is not replaced."
        raise ModelFileError(message, advice="Give the name of a file, and copy that to it.")


def temporary_folder(parent: Path | None, cleanup: ExitStack) -> Path:
    """Make a folder that goes with the cleanup or this process, and remove those of processes that have been killed.

    A process locks its folder; the system releases the lock when the process ends. Without a parent, the folder is in
    the system's folder for temporary files.
    """
    parent = parent or Path(tempfile.gettempdir())
    for other in parent.glob(_TEMPORARY.format("*")):
        with suppress(OSError):  # in use, or removed by another process
            if (lock := _locked(other)) is not None:
                os.close(lock)
                shutil.rmtree(other, ignore_errors=True)
    for _ in range(10):
        folder = parent / _TEMPORARY.format(secrets.token_hex(4))
        folder.mkdir(mode=0o700)
        try:
            lock = _locked(folder)
        except (BlockingIOError, FileNotFoundError):  # another process has just taken it for a left one
            continue
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        if lock is not None:
            cleanup.callback(os.close, lock)
        if folder.exists():
            return folder
    raise BlockingIOError(errno.EAGAIN, "new folders in it are locked at once by another process")


@contextmanager
def working_folder() -> Iterator[Path]:
    """Make a folder among the system's temporary files, which `temporary_folder` removes even after a kill."""
    with ExitStack() as cleanup:
        folder = temporary_folder(None, cleanup)
        try:
            yield folder
        except OnnxNbError as error:  # others' programs write what fits, and say nothing
            if shutil.disk_usage(folder).free >= _FULL or isinstance(error.__cause__, OnnxNbError):
                raise
            message = f"the disk of {quoted(str(folder.parent))}, for temporary files, is full: {error.message}"
            raise OnnxNbError(message, advice="Make room on it, or name another folder in TMPDIR.") from error


_CHILD: Final = """
import ctypes, json, os, signal, sys
sys.path[:], parent = json.loads(sys.argv.pop(1))
if sys.platform == "linux":
    # a native call may hold the interpreter's lock, so that no thread of Python could end the process
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
"""


def python_command(program: str, *arguments: str) -> list[str]:
    """Return the command that runs a program in a Python of its own, which ends with this process (on Linux)."""
    here = Path.cwd().resolve()
    path = [folder for folder in sys.path if Path(folder).resolve() != here]
    # A file in the working folder may have the name of a module that Python or a package imports: it comes last.
    path += [str(here)] * (len(path) < len(sys.path))
    return [sys.executable, "-P", "-X", "utf8", "-c", _CHILD + program, json.dumps([path, os.getpid()]), *arguments]


def ending(code: int) -> str:
    """Return how a process ended, by its exit code."""
    name = next((number.name for number in signal.Signals if number == -code), "unknown")
    return f"was ended by signal {-code} ({name})" if code < 0 else f"ended with status {code}"


# with the machine: a folder shared by machines or containers may not share its locks
_TEMPORARY: Final = f".onnx_nb-{zlib.crc32(platform.node().encode()):08x}-{{}}.tmp"


def _locked(folder: Path) -> int | None:
    """Return the descriptor of a folder that it locks, None where none can be; raise `BlockingIOError` if it was."""
    if sys.platform == "win32":
        # the system removes such a file when its process ends
        with suppress(FileExistsError):
            return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_TEMPORARY)
        raise BlockingIOError
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return descriptor


def _unwritable(path: Path, error: OSError | ValueError) -> ModelFileError:
    reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    message = f"{quoted(str(path))} cannot be written: {reason}."
    return ModelFileError(message, advice="Choose a folder that you may write to and that has room for it.")
