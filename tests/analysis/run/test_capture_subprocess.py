"""A capture in a process of its own gives the same numbers, and survives what kills that process."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

from onnx_nb.analysis.errors import CaptureError, FeedError
from onnx_nb.analysis.run.capture import capture
from tests import models

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
