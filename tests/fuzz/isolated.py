"""Run verbs on a model's bytes in a forked child with limits, and say how each ended badly."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import onnx_nb
from tests.fuzz.verbs import KERNELS, LOOK, VERBS, Given

SECONDS = 30.0
"""Processor seconds after which a verb is interrupted, besides one for each megabyte (8 on a fast machine)."""
RUNS = 2.0
"""Processor seconds of a verb that runs the model."""
GRACE = 2.0
"""Processor seconds in which it has to end then."""
PATIENCE = 20
"""Factor by which the clock may run ahead of the processor on a busy machine."""
ADDRESS_SPACE = 3 << 30
"""Bytes that a child may map in addition to its parent."""
RUNNING = ("session.run_session", "session.run_values")
"""Where onnxruntime's kernels run."""
SPENT: list[float] = []
"""Processor seconds of each child."""
MEMORY = 400 << 20
"""Bytes of memory that a verb may use, besides a hundred times the file."""


class Find(NamedTuple):
    """A verb that ended badly."""

    verb: str
    kind: str
    """crash, hang (cannot be interrupted), slow, memory or error."""
    about: str
    """The signal; or the class of the error and the place where it was raised."""

    @property
    def name(self) -> str:
        """The find as part of a file name."""
        return re.sub(r"\W+", "_", f"{self.verb}-{self.kind}-{self.about}")[:90]


def finds(data: bytes, verbs: Iterable[str] = VERBS) -> Iterator[Find]:
    """Yield the verbs that end badly on the bytes of a model; one child runs verbs until one ends it."""
    waiting = list(verbs)
    while waiting:
        # made here, as a child may be killed
        with tempfile.TemporaryDirectory(prefix="onnx_nb-fuzz-") as folder:
            waiting = yield from _in_child(data, waiting, Path(folder))


def _in_child(data: bytes, verbs: list[str], folder: Path) -> Generator[Find, None, list[str]]:
    """Run verbs in a child; return those that it did not reach."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _work(data, verbs, folder, write)
    os.close(write)
    begun, used, verb, interrupted, ended = time.monotonic(), 0.0, "", False, False
    text, trace = b"", list[str]()
    try:
        while not ended:
            limit = (SECONDS + len(data) / 1e6 if verb in LOOK else RUNS) + (GRACE if interrupted else 0)
            ready, _, _ = select.select([read], [], [], 0.2)
            if not ready and _seconds(child) - used < limit and time.monotonic() - begun < PATIENCE * limit:
                continue
            if not ready and (interrupted or verb not in LOOK):
                os.kill(child, signal.SIGKILL)
                if verb in LOOK:
                    yield Find(verb, "hang", "not interruptible")
                return verbs[verbs.index(verb) + 1 :]
            if not ready:
                os.kill(child, signal.SIGINT)
                interrupted = True
                continue
            more = os.read(read, 65536)
            ended, text = not more, text + more
            *lines, text = text.split(b"\n")
            for line in lines:
                what, _, rest = line.decode().partition(" ")
                if what == "begin":
                    begun, used, verb, interrupted = time.monotonic(), _seconds(child), rest, False
                elif what != "find":
                    trace.append(line.decode())
                else:
                    kind, _, about = rest.partition(" ")
                    if kind != "slow" or verb in LOOK:
                        yield Find(verb, kind, about)
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        SPENT.append(usage.ru_utime + usage.ru_stime)
    code = os.waitstatus_to_exitcode(status)
    if not code:
        return []
    place = _crashed(trace)
    # a kernel of onnxruntime may end the process that runs it: that is what subprocess=True is for
    if code != -signal.SIGKILL and not (verb in KERNELS and place in RUNNING):
        yield Find(verb, "crash", f"exit code {code} at {place}")
    return verbs[verbs.index(verb) + 1 :] if verb else []


def _work(data: bytes, verbs: list[str], folder: Path, write: int) -> None:
    """Run verbs in the child, which this ends."""
    code = 70
    try:
        _prepare()
        faulthandler.enable(write)

        def say(text: str) -> None:
            os.write(write, f"{text[:2000]}\n".encode("utf-8", "replace"))

        for verb in verbs:
            say(f"begin {verb}")
            before = _memory(reset=True)
            found = _outcome(verb, data, folder)
            grown = _memory() - before
            if not found and verb in LOOK and grown > MEMORY + 100 * len(data):
                found = f"memory {grown >> 20} MiB"
            if found:
                say(f"find {found}")
        code = 0
    finally:
        os._exit(code)


def _prepare() -> None:
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE, mapped + ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _outcome(verb: str, data: bytes, folder: Path) -> str:
    """Run one verb; return how it ended badly, or nothing."""
    try:
        VERBS[verb](Given(data, folder))
    except onnx_nb.OnnxNbError as error:
        try:
            str(error).encode()
        except UnicodeEncodeError:
            return f"error message of {type(error).__name__} is not UTF-8 at {_place(error)}"
    except KeyboardInterrupt as error:
        return f"slow at {_place(error)}"
    except BaseException as error:  # noqa: BLE001 (what else there is is what we look for)
        return f"error {type(error).__name__} at {_place(error)}"
    return ""


def _crashed(trace: Sequence[str]) -> str:
    """Return the innermost function of the package in what faulthandler wrote."""
    entries = (re.search(r'onnx_nb/.*?(\w+)\.py", line \d+ in (\w+)', line) for line in trace)
    return next((f"{found[1]}.{found[2]}" for found in entries if found), "?")


def _place(error: BaseException) -> str:
    """Return the innermost function of the package in a traceback."""
    entries = traceback.extract_tb(error.__traceback__)
    own = [entry for entry in entries if f"{os.sep}onnx_nb{os.sep}" in entry.filename]
    return f"{Path(own[-1].filename).stem}.{own[-1].name}" if own else "?"


def _seconds(child: int) -> float:
    """Return the processor time of a child."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(*, reset: bool = False) -> int:
    """Return the peak of resident bytes since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) << 10 if found else 0


if sys.platform != "linux":
    raise NotImplementedError("the limits of a child are those of Linux")
