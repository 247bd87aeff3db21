"""A capture in a process of its own gives the same numbers, and survives what kills that process."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

from onnx_nb.analysis.errors import CaptureError, FeedError
from onnx_nb.analysis.run.capture import capture
from onnx_nb.analysis.run.value_recorder import Store
from tests import models
from tests.analysis.model.test_saving_under_faults import in_child
from tests.depth import DEPTH

MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["": 18]> g (float[n] x) => (float[n] c) {
    [first] a = Neg(x)  [second] b = Exp(a)  [third] c = Add(a, b) }"""
)
X = {"x": np.arange(1000, dtype=np.float32)}


def test_the_same_numbers_and_arrays() -> None:
    seen: list[tuple[float, str]] = []
    feeds = [X, {"x": X["x"] + 1}]
    single = capture(MODEL, feeds, subprocess=True, keep="[bc]", progress=lambda *said: seen.append(said))
    here = capture(MODEL, feeds, keep="[bc]")
    assert single.names == here.names
    assert all(single.statistics(name) == here.statistics(name) for name in here)
    assert all(np.array_equal(single["c", i], here["c", i]) for i in range(2))
    assert [node.index for node in single.nodes] == [0, 1, 2]
    assert (seen[0], seen[-1]) == ((0.0, "Neg 'first'"), (1.0, "done"))
    array = single["b"]
    assert isinstance(array, np.memmap)
    folder = Path(str(array.filename)).parent
    assert len(list(folder.iterdir())) == 4
    del single
    gc.collect()
    assert not folder.exists()


def segfault(name: str, array: Any) -> bool:
    if name == "b":
        ctypes.string_at(0)  # reads address 0, as a bug in native code does
    return False


def killed(name: str, array: Any) -> bool:
    if name == "b":
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
    return False


def leaves(name: str, array: Any) -> bool:
    if name == "b":
        os._exit(3)
    return False


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (segfault, r"was ended by signal 11 \(SIGSEGV\) while it ran Exp 'second'"),
        (killed, r"was ended by signal 9 \(SIGKILL\) while it ran Exp 'second'.*when memory runs out"),
        (leaves, r"ended with status 3 while it ran Exp 'second'"),
    ],
)
def test_the_death_of_the_process_is_an_error_that_names_the_nodes(function: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message) as caught:
        capture(MODEL, X, subprocess=True, stop_at=function, times=True)
    assert caught.value.node == "second"


def test_running_out_of_memory_names_the_node() -> None:
    """In a process that may take little more address space than onnxruntime needs to start."""
    script = """if True:
        import resource, numpy, onnx.parser, pathlib, re
        import onnx_nb
        model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 18]>
            g (int64[1] n) => (float[m] c) { [small] a = ConstantOfShape(n)  [big] c = Concat<axis = 0>(%s) }'''
            % ", ".join("a" for _ in range(200)))
        used = int(re.search("VmSize:\\\\s*(\\\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024
        resource.setrlimit(resource.RLIMIT_AS, (used + (6 << 30), used + (6 << 30)))
        try:
            onnx_nb.capture(model, {"n": numpy.array([10_000_000])}, subprocess=True)
        except onnx_nb.CaptureError as error:
            print(error.node, "|", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=models.ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.startswith("big | "), done.stdout + done.stderr[-2000:]
    assert "Concat 'big'" in done.stdout


def test_errors_of_the_child_are_raised_here() -> None:
    bad = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[n] x, int64[k] s) => (float[m] y) {
        [here] y = Reshape(x, s) }"""
    )
    with pytest.raises(CaptureError, match="Reshape 'here'") as caught:
        capture(bad, {"x": np.zeros(3, np.float32), "s": np.array([4])}, subprocess=True)
    assert caught.value.node == "here"
    with pytest.raises(FeedError):
        capture(bad, {"x": np.zeros(3)}, subprocess=True)
    with pytest.raises(ZeroDivisionError):
        capture(MODEL, X, subprocess=True, stop_at=fails)


def fails(name: str, array: Any) -> bool:
    return bool(1 / (len(name) - 1))


def prints(name: str, array: Any) -> bool:
    print("between the messages", flush=True)  # noqa: T201 (that it does no harm)
    os.write(1, b"and past Python\n")
    return True


def test_what_is_printed_does_no_harm() -> None:
    assert capture(MODEL, X, subprocess=True, stop_at=prints).stopped is not None


def test_functions_that_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = __import__("threading").Lock()  # which nothing can pickle
    with pytest.raises(CaptureError, match="cannot be sent to another process"):
        capture(MODEL, X, subprocess=True, stop_at=lambda *_: bool(lock))


def script(
    source: str, folder: Path, *options: str, arguments: tuple[str, ...] = (), **environment: str
) -> subprocess.Popen[str]:
    """Start a program that may import these tests."""
    known = {**os.environ, "PYTHONPATH": str(models.ROOT), **environment}
    command = [sys.executable, *options, "-c", source, *arguments]
    return subprocess.Popen(command, cwd=folder, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


INTERRUPTED = """if True:
    import contextlib, os, pathlib, random, signal, sys, threading, time
    import onnx_nb
    from tests.analysis.run.test_capture_subprocess import MODEL, X
    def children():
        states = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has just ended
                states[path.name] = (path / "status").read_text()
        return [number for number, state in states.items()
                if f"PPid:\\t{os.getpid()}\\n" in state and "State:\\tZ" not in state]
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, interrupt)
    dice, ends = random.Random(3), []
    onnx_nb.capture(MODEL, X)
    for delay in [0.001, 0.005, 0.02, *(dice.random() for _ in range(int(sys.argv[1]))), 100]:
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            onnx_nb.capture(MODEL, X, subprocess=True)
            ends.append("done")
        except KeyboardInterrupt:
            ends.append("interrupted")
        signal.setitimer(signal.ITIMER_REAL, 0)
    deadline = time.monotonic() + 60
    while children() and time.monotonic() < deadline:  # one that was only starting ends when it finds its pipe closed
        time.sleep(0.05)
    print(ends[:2], ends[-1], children(), threading.active_count())
"""


def test_interrupts_at_any_moment_leave_no_process(tmp_path: Path) -> None:
    with script(INTERRUPTED, tmp_path, arguments=(str(3 * DEPTH),), TMPDIR=str(tmp_path)) as process:
        said = process.communicate(timeout=300 * DEPTH)[0]
    assert said == "['interrupted', 'interrupted'] done [] 1\n"
    assert list(tmp_path.glob("onnx_nb*")) == []


def sleeps(name: str, array: Any) -> bool:
    Path(os.environ["ONNX_NB_TEST_PID"]).write_text(str(os.getpid()), encoding="ascii")
    ctypes.PyDLL(None).sleep(600)  # as a native call that holds the interpreter's lock
    return False


def test_the_process_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    source = """if True:
        from tests.analysis.run.test_capture_subprocess import MODEL, X, sleeps
        import onnx_nb
        onnx_nb.capture(MODEL, X, subprocess=True, stop_at=sleeps)"""
    number = tmp_path / "pid"
    deadline = time.monotonic() + 100
    with script(source, tmp_path, ONNX_NB_TEST_PID=str(number)) as process:
        while not (number.exists() and number.read_text("ascii")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
    status = Path("/proc", number.read_text("ascii"), "status")
    while status.exists() and "State:\tZ" not in status.read_text("utf-8"):
        assert time.monotonic() < deadline, "the process of the capture outlives its parent"
        time.sleep(0.05)


def test_the_process_imports_nothing_from_the_working_folder_that_python_has(tmp_path: Path) -> None:
    trap = "open('SHADOW_RAN', 'a').write(__name__ + ' ')\n"
    for name in ("secrets", "random", "queue", "json", "numpy", "onnx", "onnx_nb", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(trap, encoding="ascii")
    (tmp_path / "mine.py").write_text("def stop(name, array):\n    return name == 'a'\n", encoding="ascii")
    source = """if True:
        import random, sys, onnx_nb
        from tests.analysis.run.test_capture_subprocess import MODEL, X
        onnx_nb.capture(MODEL, X)
        sys.path.insert(0, "")  # as IPython does
        from mine import stop
        print(onnx_nb.capture(MODEL, X, subprocess=True, stop_at=stop).stopped.name)"""
    with script(source, tmp_path, "-P") as process:
        said = process.communicate(timeout=100)[0]
    assert said == "a\n"
    assert not (tmp_path / "SHADOW_RAN").exists()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_arrays_that_a_killed_process_kept_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stores = []

    def dies() -> None:
        stores.append(Store(0))
        stores[0].put(np.zeros(1000))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(dies)[0] == -signal.SIGKILL
    assert len(list(tmp_path.rglob("*.npy"))) == 1
    first, second = Store(0), Store(0)
    first.put(np.zeros(1000))
    second.put(np.zeros(1000))
    assert len(list(tmp_path.rglob("*.npy"))) == 2
    first.close()
    second.close()
    assert list(tmp_path.glob(".onnx_nb*")) == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_full_disk_for_arrays_to_keep_is_named(tmp_path: Path) -> None:
    def keeps() -> Any:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        try:
            return Store(0, str(tmp_path)).put(np.zeros(100_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    code, error = in_child(keeps)
    assert (code, error[:12]) == (0, "CaptureError")
    assert "an array of 800.0 kB cannot be kept in" in error
    assert "1.npy': File too large. Keep fewer values" in error


class Cancelled(Exception):  # noqa: N818
    pass


def test_a_cancel_ends_the_process_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def progress(done: float, what: str) -> None:
        if done > 0.5:
            raise Cancelled

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with pytest.raises(Cancelled):
        capture(models.chain(300), {"x": np.zeros((2, 3, 4), np.float32)}, keep="*", subprocess=True, progress=progress)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > before  # it ran, and was waited for
    assert list(tmp_path.iterdir()) == []
