"""Arrays to keep: in memory up to a limit, then in files."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import CaptureError
from onnx_nb.analysis.formatting import bytes_text, quoted


class Spilled(NamedTuple):
    """An array in a file."""

    path: str
    dtype: Any
    """Type to view the file's bytes as, where numpy cannot write it; else None."""

    def array(self) -> NDArray[Any]:
        """Map the file."""
        array: NDArray[Any] = np.load(self.path, mmap_mode="r")
        return array if self.dtype is None else array.view(self.dtype)


class Store:
    """Keeps arrays in memory up to a limit, then in memory-mapped files."""

    def __init__(self, memory_limit: int, folder: str | None = None, prefix: str = "") -> None:
        self.held = 0
        """Bytes of arrays in memory."""
        self._limit = memory_limit // 2
        self._folder = folder
        self._removal: weakref.finalize[..., Store] | None = None
        self._prefix = prefix
        self._count = 0

    @property
    def folder(self) -> str:
        """Folder of the files."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="onnx_nb-capture-")
            self._removal = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def put(self, content: NDArray[Any] | list[Any] | Spilled) -> Any:
        """Keep an array, or the arrays of a sequence; `unspilled` returns them for what this returns."""
        if isinstance(content, Spilled):
            return content
        if isinstance(content, list):
            return [self.put(array) for array in content]
        if content.dtype.kind == "O":
            return content
        if self.held + content.nbytes <= self._limit:
            self.held += content.nbytes
            copy = content.copy()
            copy.flags.writeable = False
            return copy
        self._count += 1
        path = str(Path(self.folder) / f"{self._prefix}{self._count}.npy")
        foreign = content.dtype.isbuiltin != 1
        try:
            np.save(path, content.view(f"u{content.dtype.itemsize}") if foreign else content)
        except OSError as error:
            message = f"an array of {bytes_text(content.nbytes)} cannot be kept in {quoted(path)}: {error.strerror}."
            raise CaptureError(message, advice="Keep fewer values, or set TMPDIR to a larger disk.") from error
        return Spilled(path, content.dtype if foreign else None)

    def close(self) -> None:
        """Remove the files; arrays in use stay usable."""
        if self._removal is not None:
            self._removal()


def unspilled(found: Any) -> Any:
    """Return the array or arrays that `Store.put` was given."""
    if isinstance(found, list):
        return [unspilled(item) for item in found]
    if not isinstance(found, Spilled):
        return found
    try:
        return found.array()
    except FileNotFoundError:
        raise CaptureError("the array was kept in a file that is gone.", advice="Do not close the capture.") from None


def available_memory() -> int:
    """Return the bytes of memory that this process can still take."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        found += [max(int(limit) - int(used), 1 << 28)] if limit.isdigit() else []
    except OSError:  # another system, or no control group: use what was found
        pass
    return min(found, default=4 << 30)
