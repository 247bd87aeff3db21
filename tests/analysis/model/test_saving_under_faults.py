"""Nothing is lost and nothing is left when writing fails: special files, kills, a full disk, folders without rights."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import resource
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb import ModelFileError, ModelGraph, external_data
from onnx_nb.analysis.model import save, saved
from onnx_nb.analysis.view.overlays import overlay
from tests import models
from tests.depth import DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable


# the children only write files and end
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def model(seed: int = 0, size: int = 200_000) -> ModelProto:
    weights = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, [size])],
        [info("y", TensorProto.FLOAT, [size])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@functools.cache
def profile() -> onnx_nb.types.Profile:
    return onnx_nb.profile(model(size=10), runs=5, warmup=0)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "save": lambda path: onnx_nb.load(model()).save(path),
    "weights": lambda path: onnx_nb.load(model()).save(path.with_name("m.onnx"), external_data=path.name),
    "convert": lambda path: external_data.convert(model(), path),
    "inline": lambda path: external_data.inline(model(), path),
    "to_html": lambda path: ModelGraph(model()).to_html(path),
    "results": lambda path: saved.write(path, (1, 2), "pair", None, ()),
    "profile": lambda path: profile().save(path),
    "trace": lambda path: profile().to_chrome_trace(path),
    "overlay": lambda path: overlay(model(), "parameters").save(path, "netron"),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["fifo", "socket", "link to a fifo"])
def test_a_special_file_is_not_replaced(writer: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "target.onnx"
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(tmp_path):  # a socket's path is short
            made.bind(path.name)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
    before = {entry.name: entry.lstat().st_mode for entry in tmp_path.iterdir()}
    with pytest.raises(ModelFileError, match=r"target.onnx' is not an ordinary file but a device, FIFO or socket"):
        WRITERS[writer](path)
    assert {entry.name: entry.lstat().st_mode for entry in tmp_path.iterdir()} == before


def test_a_result_is_not_written_over_the_model_that_it_is_of(tmp_path: Path) -> None:
    onnx.save(model(size=10), path := tmp_path / "m.onnx")
    before = path.read_bytes()
    result = onnx_nb.profile(path, runs=5, warmup=0)
    compared = onnx_nb.compare(path, model(1, size=10))
    for write in (
        result.save,
        result.to_chrome_trace,
        compared.save,
        lambda to: overlay(path, "parameters").save(to, "netron"),
    ):
        with pytest.raises(ModelFileError, match=r"is the file of m\.onnx, which would be replaced"):
            write(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("writer", WRITERS)
def test_a_name_that_no_file_can_have_is_an_error_of_ours(writer: str, tmp_path: Path) -> None:
    for name in ("x\0y", "x" * 5000):
        with pytest.raises(ModelFileError):
            WRITERS[writer](tmp_path / name)
        assert list(tmp_path.iterdir()) == []


def in_child(work: Callable[[], Any], *, kill_after: float | None = None) -> tuple[int, str]:
    """Run in a forked process that may be killed; return its status, and its error or what it returned."""
    with tempfile.TemporaryFile() as report:
        pid = os.fork()
        if pid == 0:  # a test's process must never get past here
            signal.alarm(100)
            try:
                said = str(work())
            except BaseException as error:  # noqa: BLE001 - reported
                said = f"{type(error).__name__}: {error}"
            os.write(report.fileno(), said.encode())
            os._exit(0)
        if kill_after is not None:
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        report.seek(0)
        return code, report.read().decode()


def holds(path: Path, *seeds: int) -> bool:
    expected = [numpy_helper.to_array(model(seed).graph.initializer[0]) for seed in seeds]
    return any(np.array_equal(onnx_nb.load(path).tensor("w"), each) for each in expected)


def test_a_killed_save_loses_nothing_and_what_it_leaves_goes_with_the_next_one(tmp_path: Path) -> None:
    """A single file is the former or the new one, whole, at any moment."""
    path = tmp_path / "m.onnx"
    models = [onnx_nb.load(model(seed)) for seed in (0, 1)]
    models[0].save(path)
    dice, killed = random.Random(7), 0
    started = time.perf_counter()
    models[1].save(path)
    usual = time.perf_counter() - started
    for attempt in range(20 * DEPTH):
        saving = functools.partial(models[attempt % 2].save, path)
        killed += in_child(saving, kill_after=dice.random() * 2 * usual)[0] < 0
        assert holds(path, 0, 1)
    assert killed
    models[1].save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]
    assert holds(path, 1)


def test_what_a_killed_process_leaves_is_removed_but_not_what_another_one_writes(tmp_path: Path) -> None:
    def dies() -> None:
        with save.together() as files:
            files.add(tmp_path / "one", [b"1" * 1000])
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(dies)[0] == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    shaped, linked = (f"{left.name.rpartition('-')[0]}-{token}.tmp" for token in ("0badcafe", "11111111"))
    for name in (shaped, ".onnx_nb-notes.txt", "elsewhere"):
        (tmp_path / name).mkdir() if name == "elsewhere" else (tmp_path / name).write_text("a file of a person")
    (tmp_path / "elsewhere" / "precious").write_text("precious")
    (tmp_path / linked).symlink_to("elsewhere")
    with save.together() as other:
        other.add(tmp_path / "two", [b"2"])
        with save.together() as files:
            files.add(tmp_path / "three", [b"3"])
    assert not left.exists()
    assert (tmp_path / "two").read_bytes() == b"2"
    assert (tmp_path / "three").read_bytes() == b"3"
    assert (tmp_path / "elsewhere" / "precious").read_text() == "precious"
    names = {shaped, ".onnx_nb-notes.txt", linked, "elsewhere", "two", "three"}
    assert {entry.name for entry in tmp_path.iterdir()} == names


@pytest.mark.parametrize("verb", ["compare", "profile", "check"])
def test_temporary_files_of_a_killed_process_go_with_the_next_verb(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    verbs: dict[str, Callable[[ModelProto], Any]] = {
        "compare": lambda proto: onnx_nb.compare(proto, proto),
        "profile": lambda proto: onnx_nb.profile(proto, runs=1),
        "check": external_data.check,
    }

    def dies() -> None:
        with save.working_folder() as folder:
            (folder / "weights").write_bytes(b"1" * 1000)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(dies)[0] == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    # of another machine or container, whose locks may not be seen here
    _, machine, token = left.name.split("-")
    other = tmp_path / f".onnx_nb-{int(machine, 16) ^ 1:08x}-{token}"
    other.mkdir()
    verbs[verb](model(size=8))
    assert [*tmp_path.iterdir()] == [other]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_disk_that_is_full_is_named_and_nothing_is_left(writer: str, tmp_path: Path) -> None:
    """The limit on the size of a file stands for it: like a full disk, it ends a write after it has begun."""
    path = tmp_path / "target.onnx"
    path.write_bytes(b"former")

    def writes() -> Any:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        try:
            return WRITERS[writer](path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    code, error = in_child(writes)
    assert (code, error[:14]) == (0, "ModelFileError")
    assert re.search(r"target.onnx(.data)?' cannot be written: File too large. Choose a folder", error)
    assert path.read_bytes() == b"former"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_small_disk_that_is_full(tmp_path: Path) -> None:
    if os.system(f"mount -t tmpfs -o size=300k onnx_nb {tmp_path} 2>/dev/null"):  # noqa: S605 - a fixed command
        pytest.skip("this user may not mount a file system: the limit on the size of files is tested above")
    try:
        onnx_nb.load(model(size=10)).save(tmp_path / "m.onnx")
        with pytest.raises(ModelFileError, match="No space left on device"):
            onnx_nb.load(model()).save(tmp_path / "m.onnx")
        assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]
        assert onnx_nb.load(tmp_path / "m.onnx").tensor("w").size == 10
    finally:
        os.system(f"umount {tmp_path}")  # noqa: S605 - a fixed command


def test_a_folder_without_the_right_to_write_is_named() -> None:
    """As a user without rights: the administrator may write anywhere."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "shut")
        folder.mkdir()
        Path(name).chmod(0o711)
        folder.chmod(0o555)
        loaded = onnx_nb.load(model())

        def writes() -> Any:
            if os.getuid() == 0:
                os.setuid(65534)
            return loaded.save(folder / "m.onnx")

        code, error = in_child(writes)
        assert code == 0
        assert "ModelFileError" in error
        assert "m.onnx' cannot be written: Permission denied. Choose a folder" in error
        assert list(folder.iterdir()) == []


def test_former_weights_go_with_the_next_save_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second link would last for ever, and onnx refuses weights that have two."""
    path = tmp_path / "m.onnx"
    onnx_nb.load(model(0)).save(path, external_data="m.data")

    def dies() -> None:
        monkeypatch.setattr(Path, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        onnx_nb.load(model(1)).save(path, external_data="m.data")

    assert in_child(dies)[0] == -signal.SIGKILL
    assert (tmp_path / "m.data").stat().st_nlink == 2
    onnx_nb.load(model(2)).save(tmp_path / "other.onnx")
    assert {entry.name for entry in tmp_path.iterdir()} == {"m.onnx", "m.data", "other.onnx"}
    assert (tmp_path / "m.data").stat().st_nlink == 1
    assert np.array_equal(numpy_helper.to_array(onnx.load(path).graph.initializer[0]), onnx_nb.load(path).tensor("w"))


def test_a_system_without_links_keeps_the_former_files_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    onnx_nb.load(model(0)).save(path, external_data="m.data")

    def refuses(*_: Any, **__: Any) -> None:
        raise OSError

    def dies() -> None:
        monkeypatch.setattr(os, "link", refuses)
        monkeypatch.setattr(Path, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        onnx_nb.load(model(1)).save(path, external_data="m.data")

    assert in_child(dies)[0] == -signal.SIGKILL
    assert holds(path, 0)


@pytest.mark.parametrize("writer", sorted(WRITERS.keys() - {"weights"}))
def test_a_file_keeps_its_mode_and_a_link_its_target(writer: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target.onnx", tmp_path / "link.onnx"
    target.write_bytes(b"former")
    target.chmod(0o600)
    link.symlink_to("elsewhere/target.onnx")
    WRITERS[writer](link)
    assert link.is_symlink()
    assert target.read_bytes() != b"former"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in target.parent.iterdir()] == [target.name]


def test_a_link_in_place_of_weights_which_nobody_named_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "m.onnx.data").symlink_to("precious")
    onnx_nb.load(model()).save(tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "precious").read_text() == "precious"
    assert holds(tmp_path / "m.onnx", 0)


def test_a_full_folder_for_temporary_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime writes as much of its profile as fits, and the rest has no run of the model."""
    if os.system(f"mount -t tmpfs -o size=60k onnx_nb {tmp_path} 2>/dev/null"):  # noqa: S605 - a fixed command
        pytest.skip("this user may not mount a file system")
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with pytest.raises(onnx_nb.OnnxNbError, match=rf"the disk of '{tmp_path}', for temporary files, is full: "):
            onnx_nb.profile(models.chain(60), runs=20)
    finally:
        os.system(f"umount {tmp_path}")  # noqa: S605 - a fixed command
