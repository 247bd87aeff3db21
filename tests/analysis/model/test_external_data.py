"""What a person relies on when auditing and moving external data; onnx and onnxruntime are the independent sources."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shutil
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb import external_data
from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError
from onnx_nb.analysis.model import save, tensors, wire
from onnx_nb.analysis.view.graph_columns import columns
from tests import models
from tests.analysis.model.test_model import model_of, weight

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx_nb.analysis.model.auditor import Audit


def all_tensors(proto: ModelProto) -> list[TensorProto]:
    return [tensor for tensor, _ in tensors.placed(proto)]


def outside(name: str, size: int, **entries: object) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def written(proto: ModelProto, folder: Path, **files: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def everything(*, raw: bool = True) -> ModelProto:
    """Weights in the main graph, an attribute, a branch, a function, a sparse weight; strings, int4, bfloat16."""
    branch = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["picked"])],
        "branch",
        [],
        [helper.make_tensor_value_info("picked", TensorProto.FLOAT, [1000])],
        [weight("inner", 1000, 1)],
    )
    nodes = [
        helper.make_node("Constant", [], ["constant"], "c", value=weight("", 1000, 2)),
        helper.make_node("If", ["condition"], ["chosen"], "choose", then_branch=branch, else_branch=branch),
        helper.make_node("F", ["chosen"], ["called"], domain="local"),
        helper.make_node("DequantizeLinear", ["quantized", "one"], ["dequantized"]),
        helper.make_node("Cast", ["brain"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Sum", ["constant", "called", "main", "x", "s", "dequantized", "floats", "tiny"], ["y"]),
    ]
    function = helper.make_function(
        "local",
        "F",
        ["a"],
        ["c"],
        [
            helper.make_node("Constant", [], ["b"], value=weight("f", 1000, 3)),
            helper.make_node("Add", ["a", "b"], ["c"]),
        ],
        [helper.make_opsetid("", 21)],
    )
    numbers = np.random.default_rng(0)
    quantized = numbers.integers(-8, 8, 1000).astype(ml_dtypes.int4)
    brain = numbers.normal(size=1000).astype(ml_dtypes.bfloat16)
    weights = [
        weight("main", 1000, 4),
        numpy_helper.from_array(quantized, "quantized"),
        numpy_helper.from_array(brain, "brain"),
        weight("tiny", 1, 5),
        numpy_helper.from_array(np.array(1, np.float32), "one"),
        TensorProto(name="words", data_type=TensorProto.STRING, dims=[300], string_data=[b"a long word"] * 300),
    ]
    if not raw:
        for tensor in weights[:3]:
            values = numpy_helper.to_array(tensor)
            typed = helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, values.tolist())
            tensor.CopyFrom(typed)
            assert not tensor.HasField("raw_data")
    sparse = helper.make_sparse_tensor(weight("s", 500), numpy_helper.from_array(np.arange(500), "i"), [1000])
    graph = helper.make_graph(
        nodes,
        "everything",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1000])],
        weights,
        sparse_initializer=[sparse],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)


def by_onnx(path: Path) -> list[list[Any]]:
    """Every tensor's values, all external data read by onnx."""
    proto = onnx.load(path)
    return [numpy_helper.to_array(tensor).tolist() for tensor in all_tensors(proto)]


def by_onnxruntime(path: Path, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [found.tolist() for found in session.run(None, feeds)]


def can_onnxruntime(path: Path) -> bool:
    try:
        by_onnxruntime(path, x=np.zeros(1, np.float32))
    except Exception:  # noqa: BLE001  # whatever it raises, it cannot
        return False
    return True


def can_onnx(path: Path) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            by_onnx(path)
    except Exception:  # noqa: BLE001  # as above
        return False
    return True


def kinds(audited: Audit) -> list[str]:
    return [f"{problem.severity} {problem.kind}" for problem in audited.problems]


FEEDS = {"x": np.ones(1, np.float32), "condition": np.array(True)}

# convert


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"location": "weights.bin"},
        {"per_tensor": True},
        {"per_tensor": True, "attributes": True, "checksums": True},
        {"attributes": True},
        {"threshold": 0},
        {"threshold": 0, "attributes": True, "alignment": 1},
        {"threshold": 3000},
        {"threshold": 10**9},
        {"alignment": 65536, "checksums": True},
        {"shard_size": 9000},
        {"shard_size": 9000, "checksums": True, "alignment": 16, "attributes": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_a_converted_model_is_the_same_to_onnx_and_onnxruntime(
    options: dict[str, Any], raw: bool, tmp_path: Path
) -> None:
    source = written(everything(raw=raw), tmp_path / "in")
    (tmp_path / "out").mkdir()
    path = external_data.convert(source, tmp_path / "out" / "model.onnx", **options)
    shutil.rmtree(tmp_path / "in")
    onnx.checker.check_model(path)
    proto = everything()
    assert by_onnx(path) == [numpy_helper.to_array(tensor).tolist() for tensor in all_tensors(proto)]
    assert by_onnxruntime(path, **FEEDS) == by_onnxruntime(written(proto, tmp_path / "in"), **FEEDS)
    audited = external_data.audit(path, checksums=True)
    assert not audited.problems
    threshold, alignment = options.get("threshold", 1024), options.get("alignment", 4096)
    for entry in audited.tensors:
        movable = entry.dtype != "string" and "sparse" not in entry.place
        movable = movable and (options.get("attributes", False) or "attribute" not in entry.place)
        assert entry.nbytes is not None or entry.dtype == "string"
        # shapes may be computed from short vectors
        short = len(entry.shape) < 2 and math.prod(entry.shape) <= (8192 if entry.dtype in ("int32", "int64") else 8)
        assert (entry.location is not None) == (movable and (entry.nbytes or 0) >= threshold and not short), entry
        if entry.location is not None:
            assert entry.offset is not None
            assert entry.offset % alignment == 0
            assert entry.agrees
            assert entry.inside
            assert entry.checksum == ("verified" if options.get("checksums") else "")
    if options.get("shard_size"):
        assert len(audited.files) > 1
        assert all(file.nbytes <= options["shard_size"] for file in audited.files)
    if options.get("per_tensor"):
        assert len(audited.files) == sum(entry.location is not None for entry in audited.tensors)
    else:
        assert [file.location for file in audited.files if not options.get("shard_size")] in (
            [],
            [options.get("location", "model.onnx.data")],
        )
    named = {file.location for file in audited.files} | {"model.onnx"}
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == named
    again = external_data.inline(path, tmp_path / "one.onnx")
    assert by_onnx(again) == by_onnx(path)
    assert not any(t.data_location == TensorProto.EXTERNAL for t in all_tensors(onnx.load(again)))


@pytest.mark.parametrize("name", ["bert", "resnet50"])
def test_exported_models(name: str, tmp_path: Path) -> None:
    source = models.exported(name, dynamo=True)
    path = external_data.convert(source, tmp_path / "model.onnx", attributes=True, checksums=True)
    assert external_data.check(path, checksums=True).problems == ()
    expected = list(all_tensors(onnx.load(source)))
    for each in (path, external_data.inline(path, tmp_path / "one.onnx")):
        for tensor, other in zip(all_tensors(onnx.load(each)), expected, strict=True):
            assert np.array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(other))


def test_the_source_is_not_changed(tmp_path: Path) -> None:
    proto = everything()
    before = proto.SerializeToString(deterministic=True)
    external_data.convert(proto, tmp_path / "model.onnx", threshold=0, attributes=True, checksums=True)
    external_data.inline(proto, tmp_path / "one.onnx")
    external_data.check(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_saving_twice_does_not_grow_the_file(tmp_path: Path) -> None:
    shared = [outside(name, 1000, location="data", offset=0, length=4000) for name in ("tied", "too")]
    source = written(model_of(*shared, weight("w", 1000)), tmp_path / "in", data=weight("", 1000).raw_data)
    sizes = set()
    for name in ("a.onnx", "a.onnx", "b.onnx"):
        source = (
            external_data.convert(source, tmp_path / name, location=f"{name}.bin")
            if name != "a.onnx"
            else (external_data.convert(tmp_path / "in" / "model.onnx", tmp_path / name, location=f"{name}.bin"))
        )
        sizes.add((tmp_path / f"{name}.bin").stat().st_size)
    assert sizes == {4096 + 4000}
    entries = external_data.audit(source).tensors
    assert [entry.offset for entry in entries] == [0, 0, 4096]
    assert not external_data.audit(source).problems
    assert by_onnx(source) == by_onnx(tmp_path / "in" / "model.onnx")


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        external_data.convert(everything(), tmp_path / "model.onnx", shard_size=9000)
    finally:
        os.umask(mask)
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()} == {0o640}


NAMES = [
    "a/b",
    "../../escape",
    "A",
    "a",
    "b",
    "B",
    "a\0b",
    "🙂",
    "",
    "con",
    "n" * 10_000,
    "n" * 10_000 + "m",
    "a:b",
    "-rf",
    ".",
]


def test_any_name_of_a_tensor_gives_a_file_name(tmp_path: Path) -> None:
    folder = tmp_path / "sub" / "model"
    folder.mkdir(parents=True)
    proto = model_of(*(weight(name, 300, start) for start, name in enumerate(NAMES)))
    path = external_data.convert(proto, folder / "model.onnx", per_tensor=True)
    assert by_onnx(path) == [list(range(start, start + 300)) for start in range(len(NAMES))]
    files = sorted(entry.name for entry in folder.iterdir())
    assert len({name.lower() for name in files}) == len(NAMES) + 1
    assert all(re.fullmatch(r"model\.onnx(-[A-Za-z0-9._-]+\.data)?", name) and len(name) < 140 for name in files)
    assert [entry.name for entry in (tmp_path / "sub").iterdir()] == ["model"]
    assert by_onnx(external_data.inline(path, tmp_path / "one.onnx")) == by_onnx(path)


@pytest.mark.parametrize("name", ["layers.0.weight"])
def test_a_file_of_a_tensor_has_its_name(name: str, tmp_path: Path) -> None:
    path = external_data.convert(model_of(weight(name, 300)), tmp_path / "m.onnx", per_tensor=True, location="w.bin")
    assert [file.location for file in external_data.audit(path).files] == ["w-layers.0.weight.bin"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"location": "../out.bin"}, "cannot hold the weights"),
        ({"location": "/out.bin"}, "cannot hold the weights"),
        ({"location": "a\\b"}, "cannot hold the weights"),
        ({"location": "C:data"}, "cannot hold the weights"),
        ({"location": ""}, "cannot hold the weights"),
        ({"location": ".."}, "cannot hold the weights"),
        ({"location": "a\0b"}, "cannot hold the weights"),
        ({"location": "folder"}, "cannot hold the weights"),
        ({"location": "model.onnx"}, "cannot hold the weights"),
        ({"location": "\udcff"}, "cannot hold the weights"),
        ({"alignment": 0}, "alignment 0"),
        ({"alignment": 1 << 40}, "alignment"),
        ({"threshold": -1}, "threshold -1 is negative"),
        ({"shard_size": 0}, "shard_size 0"),
        ({"shard_size": 5000, "per_tensor": True}, "exclude each other"),
        ({"shard_size": 3000}, "weight 'main' of everything takes 4.0 kB, more than a shard of 3.0 kB.*larger"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_options_that_make_no_sense(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises((ModelFileError, ValueError), match=problem):
        external_data.convert(everything(), tmp_path / "model.onnx", **options)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("target", ["model.onnx", "data", "link.onnx"])
def test_a_file_that_is_read_from_is_not_overwritten(target: str, tmp_path: Path) -> None:
    path = external_data.convert(everything(), tmp_path / "model.onnx", location="data")
    (tmp_path / "link.onnx").symlink_to("model.onnx")
    before = {entry: entry.read_bytes() for entry in tmp_path.iterdir()}
    for action in (external_data.convert, external_data.inline):
        with pytest.raises(ModelFileError, match=r"is read from it\. Save under another name"):
            action(path, tmp_path / target)
    with pytest.raises(ModelFileError, match=r"is read from it|cannot hold"):
        external_data.convert(path, tmp_path / "new.onnx", location=target)
    assert {entry: entry.read_bytes() for entry in tmp_path.iterdir()} == before


def test_what_progress_raises_leaves_no_files(tmp_path: Path) -> None:
    class CancelError(Exception):
        pass

    seen: list[tuple[float, str]] = []

    def stop(fraction: float, message: str) -> None:
        seen.append((fraction, message))
        if fraction > 0.5:
            raise CancelError

    actions: list[Callable[[], object]] = [
        lambda: external_data.convert(everything(), tmp_path / "model.onnx", progress=stop, shard_size=9000),
        lambda: external_data.inline(model_of(weight("a", 9000), weight("b", 9000)), tmp_path / "m", progress=stop),
    ]
    for action in actions:
        with pytest.raises(CancelError):
            action()
        assert list(tmp_path.iterdir()) == []
    path = external_data.convert(everything(), tmp_path / "model.onnx", checksums=True)
    with pytest.raises(CancelError):
        external_data.audit(path, checksums=True, progress=stop)
    seen.clear()
    external_data.convert(path, tmp_path / "copy.onnx", progress=lambda *said: seen.append(said))
    assert seen[-1] == (1.0, "writing copy.onnx") or seen[-1][0] == 1.0
    assert [fraction for fraction, _ in seen] == sorted(fraction for fraction, _ in seen)


def unsupported(*_: object, **__: object) -> None:
    raise OSError(95, "Operation not supported")


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_if_a_file_cannot_appear_all_are_as_before(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for links in (True, False):
        folder = tmp_path / str(links)
        folder.mkdir()
        path = external_data.convert(everything(), folder / "model.onnx", per_tensor=True)
        next(folder.glob("*brain*")).unlink()  # of these one is new
        (folder / "model.onnx-main.data").rename(folder / "elsewhere")
        (folder / "model.onnx-main.data").symlink_to("elsewhere")
        before = {entry: (entry.is_symlink(), entry.read_bytes()) for entry in folder.iterdir()}
        count = 0
        real = Path.replace

        def replace(self: Path, target: Path) -> Path:
            nonlocal count
            if self.name.endswith(".tmp") and not target.name.endswith(".tmp"):
                count += 1
                if count == failing:
                    raise OSError(13, "Permission denied")
            return real(self, target)  # noqa: B023  # called within the loop

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            if not links:
                patch.setattr(os, "link", unsupported)
            with pytest.raises(ModelFileError, match="cannot be written: Permission denied"):
                external_data.convert(model_of(weight("main", 900), weight("brain", 900)), path, per_tensor=True)
        assert {entry: (entry.is_symlink(), entry.read_bytes()) for entry in folder.iterdir()} == before


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = wire.write, []

    def full(file: Any, *given: Any) -> None:
        calls.append(file)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(file, *given)

    monkeypatch.setattr(wire, "write", full)
    with pytest.raises(ModelFileError, match="cannot be written: No space left on device"):
        external_data.convert(everything(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_tensor_is_not_converted(tmp_path: Path) -> None:
    proto = everything()
    proto.graph.node[0].attribute[0].t.raw_data = bytes(5000)
    with pytest.raises(ModelFileError, match=r"attribute 'value' of Constant 'c' of everything has 5000 bytes, but"):
        external_data.convert(proto, tmp_path / "model.onnx", attributes=True)
    path = written(model_of(outside("w", 1000, location="data", length=4000)), tmp_path / "in", data=bytes(3999))
    with pytest.raises(ExternalDataError, match=r"weight 'w' of model.onnx is at bytes 0 to 4000 of 'data'"):
        external_data.convert(path, tmp_path / "model.onnx")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_an_extracted_model_takes_only_its_weights_along(tmp_path: Path) -> None:
    path = external_data.convert(model_of(*(weight(f"w{i}", 1000, i) for i in range(9))), tmp_path / "model.onnx")
    part = onnx_nb.extract(path, ["y3"], ["y4"])
    copied = external_data.convert(part, tmp_path / "part.onnx")
    assert (tmp_path / "part.onnx.data").stat().st_size == 4000
    assert by_onnx(copied) == [list(range(4, 1004))]
    assert external_data.check(part).ok


# audit


def test_an_audit_of_a_sound_model(tmp_path: Path) -> None:
    path = external_data.convert(everything(), tmp_path / "model.onnx", attributes=True)
    audited = external_data.audit(path)
    assert repr(audited) == "Audit('model.onnx': 6 of 12 tensors outside, 24.5 kB in 1 file, no problems)"
    assert audited.ok
    places = [entry.place for entry in audited.tensors]
    assert places[0] == "weight 'main'"
    assert "attribute 'value' of Constant 'c'" in places
    assert "weight 'inner' in then_branch of If 'choose'" in places
    assert "the indices of sparse weight 's'" in places
    assert "attribute 'value' of Constant 'b' in function 'F'" in places
    proto = onnx.load(path, load_external_data=False)
    for entry, tensor in zip(audited.tensors, all_tensors(proto), strict=True):
        info = onnx.external_data_helper.ExternalDataInfo(tensor)
        assert (entry.location or "", entry.shape) == (info.location, tuple(tensor.dims))
        if entry.location:
            assert (entry.offset, entry.length) == (info.offset, info.length)
    (file,) = audited.files
    assert file.nbytes == (tmp_path / "model.onnx.data").stat().st_size == file.used + file.padding
    assert file.orphan == 0


def test_rows_and_frame(tmp_path: Path) -> None:
    audited = external_data.audit(external_data.convert(everything(), tmp_path / "model.onnx"))
    assert [row["name"] for row in audited.rows()] == [entry.name for entry in audited.tensors]
    pytest.importorskip("pandas")
    frame = audited.to_frame()
    assert list(frame["name"]) == [entry.name for entry in audited.tensors]
    assert len(external_data.audit(ModelProto()).to_frame().columns) == len(frame.columns)


CASES = [
    # entries, problems, what onnx.load does, what onnxruntime does
    ({}, [], True, True),
    ({"length": None}, ["warning length"], False, True),
    ({"length": None, "location": "folder/data"}, [], True, True),
    ({"length": None, "offset": 16}, ["warning length"], False, True),
    ({"offset": None}, [], True, True),
    ({"offset": 3}, [], True, True),
    ({"offset": -4}, ["error number"], False, False),
    ({"offset": ""}, ["error number"], False, False),
    ({"offset": "0x10"}, ["error number"], False, False),
    ({"length": "4e3"}, ["error number"], False, False),
    ({"length": 3996}, ["error size"], False, False),
    ({"length": 4004}, ["error size"], False, False),
    ({"offset": 2000}, ["error bounds"], False, False),
    ({"offset": 2**62}, ["error bounds"], False, False),
    ({"length": 5000}, ["error size", "error bounds"], False, False),
    ({"length": 2**62}, ["error size", "error bounds"], False, False),
    ({"location": "dta"}, ["error missing file"], False, False),
    ({"location": "../outer"}, ["error unsafe path"], False, False),
    ({"location": "/etc/passwd"}, ["error unsafe path"], False, False),
    ({"location": "escaping"}, ["error unsafe path"], False, False),
    ({"location": "linked/outer"}, ["error unsafe path"], False, False),
    ({"location": "inner"}, ["warning link"], False, True),
    ({"location": "hard"}, ["warning link"], False, True),
    ({"location": "folder"}, ["error file"], False, False),
    ({"location": "pipe"}, ["error file"], False, False),
    ({"basepath": "/somewhere"}, ["error basepath"], True, False),
    ({"color": "red"}, ["error key"], True, False),
    ({"prepacked_0": "x"}, ["warning key"], True, True),
    ({"checksum": "0" * 40}, ["error checksum"], True, True),
]


def hostile(folder: Path) -> None:
    """Put everything into a folder that a location can lead to."""
    (folder / "folder").mkdir(parents=True)
    for name in ("data", "hard", "folder/data", "../outer"):
        (folder / name).write_bytes(np.arange(1000, dtype=np.float32).tobytes())
    (folder / "data").write_bytes(np.arange(1024, dtype=np.float32).tobytes())
    (folder / "inner").symlink_to("folder/data")
    (folder / "other").hardlink_to(folder / "hard")
    (folder / "escaping").symlink_to("../outer")
    (folder / "linked").symlink_to("..")
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize(
    ("entries", "problems", "onnx_loads", "runtime_loads"), CASES, ids=[str(case[0]) for case in CASES]
)
def test_the_audit_agrees_with_onnx_and_onnxruntime(
    entries: dict[str, Any], problems: list[str], onnx_loads: bool, runtime_loads: bool, tmp_path: Path
) -> None:
    hostile(tmp_path / "model")
    given = {"location": "data", "offset": 0, "length": 4000} | entries
    tensor = outside("w", 1000, **{key: value for key, value in given.items() if value is not None})
    path = written(model_of(tensor), tmp_path / "model")
    audited = external_data.audit(path, checksums=True)
    found = [kind for kind in kinds(audited) if kind != "warning orphan"]
    assert found == problems
    assert audited.ok == (not any(problem.startswith("error") for problem in problems))
    if entries.get("location") != "pipe":  # which onnx would open, and wait
        assert can_onnx(path) == onnx_loads
        assert can_onnxruntime(path) == runtime_loads
    for problem in audited.problems:
        assert "model.onnx" in problem.message
        assert problem.advice
        if problem.kind != "orphan":
            assert "weight 'w'" in problem.message or problem.kind == "link"
    assert set(audited.tensors[0].problems) == {kind.split(maxsplit=1)[1] for kind in found}
    if audited.ok:
        assert external_data.check(path).ok
        copied = external_data.convert(path, tmp_path / "copy.onnx")
        assert external_data.audit(copied).problems == ()
        assert can_onnx(copied)
        assert can_onnxruntime(copied)
    else:
        first = next(problem for problem in audited.problems if problem.severity == "error")
        with pytest.raises(ExternalDataError, match=re.escape(first.message)):
            external_data.check(path, checksums=True)


@given(
    size=st.integers(0, 5000),
    offset=st.one_of(st.integers(-10, 5000), st.sampled_from([2**31, 2**63, 2**64, 10**30])),
    length=st.one_of(st.none(), st.just(400), st.integers(-10, 5000)),
)
def test_offsets_and_lengths(
    size: int, offset: int, length: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "offsets"
    entries = {"location": "data", "offset": offset} | ({} if length is None else {"length": length})
    path = written(model_of(outside("w", 100, **entries)), folder, data=bytes(size))
    audited = external_data.audit(path)
    (entry,) = audited.tensors
    assert audited.ok == can_onnxruntime(path)
    if audited.ok and "length" not in entry.problems:
        assert can_onnx(path)
    if entry.inside is not None and entry.offset is not None:
        assert entry.inside == (entry.offset + (400 if length is None or length < 0 else length) <= size)
    for file in audited.files:
        assert file.used + file.padding + file.orphan == size


@given(spans=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=8))
def test_overlaps_and_orphans(spans: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "overlaps"
    weights = [
        outside(f"w{i}", count, location="data", offset=4 * start, length=4 * count)
        for i, (start, count) in enumerate(spans)
    ]
    audited = external_data.audit(written(model_of(*weights), folder, data=bytes(80)))
    owners: list[set[tuple[int, int]]] = [set() for _ in range(20)]
    for start, count in spans:
        for word in range(start, start + count):
            owners[word].add((start, count))
    overlapping = any(len(owner) > 1 for owner in owners)
    assert ("overlap" in {problem.kind for problem in audited.problems}) == overlapping
    assert any(entry.overlaps for entry in audited.tensors) == overlapping
    for file in audited.files:
        assert file.used == 4 * sum(bool(owner) for owner in owners)
        assert file.used + file.padding + file.orphan == 80


def test_overlaps_are_told_with_both_tensors(tmp_path: Path) -> None:
    weights = [
        outside(name, 100, location="data", offset=offset, length=400)
        for name, offset in (("a", 0), ("b", 396), ("tied", 796), ("too", 796))
    ]
    weights.append(outside("part", 10, location="./data", offset=800, length=40))
    audited = external_data.audit(written(model_of(*weights), tmp_path, data=bytes(1196)))
    assert kinds(audited) == ["error overlap", "warning overlap"]
    assert audited.problems[0].message == (
        "weight 'a' and weight 'b' of model.onnx use some of the same bytes of 'data', at 0 to 400 and 396 to 796."
    )
    assert audited.tensors[0].overlaps == ("weight 'b'",)
    assert len(audited.files) == 1
    with pytest.raises(ExternalDataError, match="use some of the same bytes"):
        external_data.check(tmp_path / "model.onnx")
    onnx.checker.check_model(tmp_path / "model.onnx")


def test_all_problems_are_told_not_only_the_first(tmp_path: Path) -> None:
    weights = [
        outside("far", 100, location="data", offset=9000, length=400),
        outside("gone", 100, location="gone", length=400),
        outside("gone too", 100, location="gone", length=400),
        outside("wrong", 100, location="data", length=300, color="red"),
        outside("fine", 100, location="data", length=400),
        TensorProto(name="inner", data_type=TensorProto.FLOAT, dims=[2], raw_data=b"abc"),
        TensorProto(name="none", data_type=99, dims=[2], raw_data=b"abc"),
        TensorProto(name="negative", data_type=TensorProto.FLOAT, dims=[-2], raw_data=b"abc"),
        TensorProto(name="words", data_type=TensorProto.STRING, dims=[2], string_data=[b"one"]),
    ]
    strings = outside("outer words", 2, location="data", length=16)
    strings.data_type = TensorProto.STRING
    audited = external_data.audit(written(model_of(*weights, strings), tmp_path, data=bytes(400)))
    assert sorted(kinds(audited)) == sorted(["error size"] * 6 + ["error bounds", "error missing file", "error key"])
    (missing,) = [problem for problem in audited.problems if problem.kind == "missing file"]
    assert missing.tensors == 2
    assert "weight 'gone' and 1 more tensor of model.onnx" in missing.message
    assert [entry.name for entry in audited.tensors if not entry.problems] == ["fine"]
    assert len(repr(audited)) < 120


def test_bytes_of_no_tensor_are_counted_and_padding_is_not(tmp_path: Path) -> None:
    for _ in range(2):  # onnx appends to the file of the first time
        proto = model_of(weight("a", 1000), weight("b", 1000))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir("/")
            onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="data")
    audited = external_data.audit(tmp_path / "model.onnx")
    assert kinds(audited) == ["warning orphan"]
    assert "8000 of the 16000 bytes of 'data' belong to no tensor" in audited.problems[0].message
    copied = external_data.convert(tmp_path / "model.onnx", tmp_path / "copy.onnx", alignment=65536)
    (file,) = external_data.audit(copied).files
    assert (file.used, file.padding, file.orphan) == (8000, 65536 - 4000, 0)


@pytest.mark.parametrize(("offset", "alignment"), [(0, 65536), (4096, 4096), (8192 + 4, 4), (65536 * 3, 65536), (7, 1)])
def test_alignment(offset: int, alignment: int, tmp_path: Path) -> None:
    path = written(model_of(outside("w", 1, location="data", offset=offset)), tmp_path, data=bytes(offset + 4))
    assert external_data.audit(path).tensors[0].alignment == alignment


def test_checksums_are_those_of_the_whole_file(tmp_path: Path) -> None:
    path = external_data.convert(everything(), tmp_path / "model.onnx", checksums=True, shard_size=9000)
    for tensor in tensors.external(onnx.load(path, load_external_data=False)):
        info = onnx.external_data_helper.ExternalDataInfo(tensor)
        assert info.checksum == hashlib.sha1((tmp_path / info.location).read_bytes()).hexdigest()  # noqa: S324
    assert {entry.checksum for entry in external_data.audit(path).tensors} == {"", "not verified"}
    audited = external_data.audit(path, checksums=True)
    assert {entry.checksum for entry in audited.tensors} == {"", "verified"}
    damaged = tmp_path / audited.files[1].location
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    audited = external_data.audit(path, checksums=True)
    assert kinds(audited) == ["error checksum"]
    assert shown_in(audited.problems[0].message, damaged.name, "get it again", audited.problems[0].advice)
    assert {entry.location for entry in audited.tensors if entry.checksum == "wrong"} == {damaged.name}
    onnx.checker.check_model(path)
    assert can_onnx(path)  # nobody else notices


def shown_in(message: str, file: str, phrase: str, advice: str) -> bool:
    return repr(file) in message and phrase in advice


def test_a_checksum_of_the_tensors_own_bytes_counts_with_a_warning(tmp_path: Path) -> None:
    data = weight("", 1000).raw_data
    digest = hashlib.sha1(data).hexdigest().upper()  # noqa: S324
    tensor = outside("w", 1000, location="data", offset=4096, length=4000, checksum=digest)
    path = written(model_of(tensor), tmp_path, data=bytes(4096) + data)
    audited = external_data.audit(path, checksums=True)
    assert "warning checksum" in kinds(audited)
    assert audited.ok
    assert audited.tensors[0].checksum == "verified"
    copied = external_data.convert(path, tmp_path / "copy.onnx")
    assert external_data.audit(copied).tensors[0].checksum == ""  # it would no longer be true


def test_sparse_weights_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    inside = external_data.convert(everything(), tmp_path / "model.onnx")
    assert {e.location for e in external_data.audit(inside).tensors if "sparse" in e.place} == {None}
    proto = onnx.load(inside)
    (sparse,) = proto.graph.sparse_initializer
    data = sparse.values.raw_data + sparse.indices.raw_data
    for tensor, offset in ((sparse.values, 0), (sparse.indices, 2000)):
        onnx.external_data_helper.set_external_data(tensor, "data", offset, len(tensor.raw_data))
        tensor.ClearField("raw_data")
    path = written(proto, tmp_path / "in", data=data)
    assert kinds(external_data.audit(path)) == ["warning sparse", "warning sparse"]
    assert onnx.load(path).graph.sparse_initializer[0].values.data_location == TensorProto.EXTERNAL  # left unread
    with pytest.raises(Exception, match="Cannot parse data from external tensors"):
        onnx.checker.check_model(path)
    assert external_data.check(path).ok
    expected = by_onnxruntime(inside, **FEEDS)
    assert by_onnxruntime(external_data.convert(path, tmp_path / "moved.onnx"), **FEEDS) == expected
    assert by_onnxruntime(external_data.inline(path, tmp_path / "one.onnx"), **FEEDS) == expected


def test_a_key_given_twice(tmp_path: Path) -> None:
    tensor = outside("w", 100, location="gone", offset=0, length=400)
    tensor.external_data.add(key="location", value="data")
    path = written(model_of(tensor), tmp_path, data=bytes(400))
    assert kinds(external_data.audit(path)) == ["warning key"]
    assert can_onnx(path)


def test_weights_inside_are_audited_too() -> None:
    audited = external_data.audit(everything(raw=False))
    assert not audited.problems
    assert {entry.location for entry in audited.tensors} == {None}
    assert {entry.name: entry.nbytes for entry in audited.tensors}["quantized"] == 500


def test_many_tensors_in_a_missing_file_are_one_problem(tmp_path: Path) -> None:
    weights = [outside(f"w{i}", 100, location="gone", offset=400 * i, length=400) for i in range(1000)]
    path = written(model_of(*weights), tmp_path)
    audited = external_data.audit(path)
    (problem,) = audited.problems
    assert problem.tensors == 1000
    assert [(file.location, file.nbytes, file.tensors) for file in audited.files] == [("gone", None, 1000)]
    assert "1000 of 1000 tensors outside, 0 B in 0 files and 1 missing" in repr(audited)
    (fault,) = columns(path).meta["faults"]
    assert "the data of 1,000 weights of model.onnx is external data in 'gone', which is not in" in fault["message"]


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["location", "offset", "length", "checksum", "basepath", "color", ""]),
        st.one_of(
            st.sampled_from(["data", "./data", "../data", "gone", "", "0", "40", "400", "-1", "1e3", "9" * 30, "a\0b"]),
            st.text(max_size=9),
        ),
    ),
    max_size=5,
)
TENSOR = st.builds(
    TensorProto,
    name=st.text(max_size=5),
    data_type=st.sampled_from([0, 1, 2, 7, 8, 16, 21, 22, 23, 99, -1]),
    dims=st.lists(st.one_of(st.integers(-2, 40), st.sampled_from([100, 2**62, -(2**63)])), max_size=3),
    data_location=st.sampled_from([0, 1]),
    raw_data=st.one_of(st.none(), st.binary(max_size=9)),
    float_data=st.lists(st.floats(width=32), max_size=3),
    string_data=st.lists(st.binary(max_size=3), max_size=2),
    external_data=ENTRIES.map(lambda entries: [onnx.StringStringEntryProto(key=k, value=v) for k, v in entries]),
)


@given(made=st.lists(TENSOR, max_size=3), place=st.sampled_from(["main", "attribute", "sparse", "body"]))
def test_whatever_a_model_says_there_is_an_audit_or_our_error(
    made: list[TensorProto], place: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    proto = model_of()
    if place == "main":
        proto.graph.initializer.extend(made)
    elif place == "attribute":
        proto.graph.node.add(op_type="Constant", output=["c"]).attribute.add(name="value", type=4).tensors.extend(made)
    elif place == "sparse":
        for tensor in made:
            proto.graph.sparse_initializer.add(values=tensor, indices=tensor, dims=[9])
    else:
        body = proto.graph.node.add(op_type="If", output=["c"]).attribute.add(name="then_branch", type=5)
        body.g.initializer.extend(made)
    folder = tmp_path_factory.getbasetemp() / "whatever"
    path = written(proto, folder, data=bytes(400))
    audited = external_data.audit(path, checksums=True)
    assert len(audited.tensors) == len(made) * (2 if place == "sparse" else 1)
    assert repr(audited)
    assert all(str(problem) and problem.advice for problem in audited.problems)
    assert audited.ok or any(entry.problems for entry in audited.tensors)
    with contextlib.suppress(OnnxNbError):
        external_data.check(path)
        assert audited.ok or "checksum" in {problem.kind for problem in audited.problems}
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    try:
        copied = external_data.convert(path, out / "model.onnx", threshold=0, attributes=True, per_tensor=True)
    except OnnxNbError:
        assert list(out.iterdir()) == []
    else:
        left = {problem.kind for problem in external_data.audit(copied).problems if problem.location is not None}
        assert left <= {"sparse"}  # they stay where they are
    assert sorted(entry.name for entry in folder.iterdir()) == ["data", "model.onnx", "out"]


def test_names_of_any_kind_are_audited(tmp_path: Path) -> None:
    path = written(model_of(*(outside(name, 10, location="gone\n" * 999, color="a") for name in NAMES)), tmp_path)
    audited = external_data.audit(path)
    assert all(len(str(problem)) < 2000 and "\n" not in problem.message for problem in audited.problems)
    proto = model_of(outside("w", 10, location="dat"))
    path.write_bytes(
        proto.SerializeToString().replace(b"dat", b"\xffat").replace(b"\x0a\x08location", b"\x0a\x08l\xffcation")
    )
    assert not external_data.audit(path).ok


# other folders, hub caches, models in memory


def test_data_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = external_data.convert(everything(), tmp_path / "model.onnx", attributes=True)
    expected = by_onnx(path)
    (tmp_path / "model.onnx.data").rename(tmp_path / "elsewhere" / "model.onnx.data")
    assert not external_data.audit(path).ok
    with pytest.raises(ExternalDataError, match=r"weight 'main' of model.onnx is external data in 'model.onnx.data'"):
        onnx_nb.load(path, data_dir=tmp_path).tensor("main")
    with pytest.raises(ExternalDataError, match=r"data_dir .*nowhere.* is not a folder"):
        onnx_nb.load(path, data_dir=tmp_path / "nowhere")
    model = onnx_nb.load(path, data_dir=tmp_path / "elsewhere")
    assert external_data.check(model).ok
    assert by_onnx(external_data.inline(model, tmp_path / "one.onnx")) == expected
    proto = onnx.load(path, load_external_data=False)
    assert external_data.audit(proto).problems[0].kind == "missing file"
    assert external_data.audit(onnx_nb.load(proto, data_dir=tmp_path / "elsewhere")).problems == ()


def test_basepath_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "data").write_bytes(bytes(400))
    tensor = outside("w", 100, location="data", length=400, basepath=tmp_path / "elsewhere")
    path = written(model_of(tensor), tmp_path / "in")
    assert kinds(external_data.audit(path)) == ["error basepath", "error missing file"]
    assert not can_onnx(path)
    model = onnx_nb.load(path, data_dir=tmp_path / "elsewhere")
    copied = external_data.convert(model, tmp_path / "copy.onnx", threshold=0)
    assert external_data.check(copied).problems == ()
    assert b"basepath" not in copied.read_bytes()
    feeds = {"x": np.ones(1, np.float32)}
    assert onnx_nb.run(model, feeds)["y0"].tolist() == onnx_nb.run(copied, feeds)["y0"].tolist()
    assert can_onnxruntime(copied)


@pytest.mark.parametrize("bodies", [False, True])
def test_a_hub_cache_of_links(bodies: bool, tmp_path: Path) -> None:
    proto = everything()
    if not bodies:
        for attribute in proto.graph.node[1].attribute:
            del attribute.g.initializer[0].dims[:]
            attribute.g.initializer[0].raw_data = np.float32(1).tobytes()
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    external_data.convert(proto, tmp_path / "model.onnx", location="data", attributes=True)
    for blob, name in (("aaaa", "model.onnx"), ("bbbb", "data")):
        (tmp_path / name).rename(blobs / blob)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    path = snapshot / "model.onnx"
    audited = external_data.audit(path)
    assert kinds(audited) == (["error link"] if bodies else []) + ["warning link"]
    assert not can_onnx(path)
    (tmp_path / "out").mkdir()
    copied = external_data.convert(path, tmp_path / "out" / "model.onnx", location="data", attributes=True)
    assert external_data.check(copied).problems == ()
    (expected,) = by_onnxruntime(copied, **FEEDS)
    assert onnx_nb.run(path, FEEDS)["y"].tolist() == expected
    if bodies:
        with pytest.raises(Exception, match="symbolic link"):
            by_onnxruntime(path, **FEEDS)
        with pytest.raises(
            ExternalDataError, match=r"onnxruntime refuses that for weight 'inner' in (then|else)_branch of If"
        ):
            external_data.check(path)
    else:
        assert by_onnxruntime(path, **FEEDS) == [expected]
        assert external_data.check(path).problems == audited.problems
    (snapshot / "data").unlink()
    (tmp_path / "secret").write_bytes(bytes(40_000))
    (snapshot / "data").symlink_to("../../secret")
    assert kinds(external_data.audit(path)) == ["error unsafe path"]
    with pytest.raises(ExternalDataError, match="leads out of the model's folder"):
        external_data.convert(path, tmp_path / "copy.onnx")


# check


def test_the_checker_misses_what_check_finds(tmp_path: Path) -> None:
    path = external_data.convert(model_of(weight("w", 1000)), tmp_path / "model.onnx")
    assert external_data.check(path, full=True).ok
    os.truncate(tmp_path / "model.onnx.data", 100)
    onnx.checker.check_model(path, full_check=True)
    with pytest.raises(ExternalDataError, match=r"is at bytes 0 to 4000 of 'model.onnx.data', which has only 100"):
        external_data.check(path)


def test_check_tells_what_the_checker_says(tmp_path: Path) -> None:
    proto = everything()
    proto.graph.node[0].op_type = "Konstant"
    path = external_data.convert(proto, tmp_path / "model.onnx")
    for source in (proto, path, onnx_nb.load(path)):
        with pytest.raises(ModelFileError, match=r"onnx's checker refuses .*: No Op registered for Konstant") as raised:
            external_data.check(source)
        assert "onnx_nb-" not in str(raised.value)
    proto = model_of(weight("w", 1000))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT8
    assert external_data.check(proto).ok
    with pytest.raises(ModelFileError, match=r"onnx's checker refuses sum"):
        external_data.check(proto, full=True)
    proto = model_of(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=b"abc"))
    with pytest.raises(ModelFileError, match="weight 'w' of sum holds 3 bytes, but FLOAT with shape"):
        external_data.check(proto)


def reshaping() -> ModelProto:
    """Return a model with a Resize by scales, a Reshape, and a Split into 200 parts."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]> g (float[1, 2, 50] x) => (float[n] y)
        <float[3] scales = {1, 1, 2}, int64[1] shape = {-1}> {
        r = Resize <mode = "nearest"> (x, "", scales)  f = Reshape(r, shape) }""")
    names = [f"part{i}" for i in range(200)]
    model.graph.node.append(helper.make_node("Split", ["f", "sizes"], names))
    model.graph.node.append(helper.make_node("Concat", names, ["y"], axis=0))
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    del model.graph.initializer[:]
    weights["sizes"] = np.ones(200, np.int64)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def test_what_shapes_are_computed_from_stays_inside(tmp_path: Path) -> None:
    """onnxruntime infers shapes before it opens data files."""
    proto, feed = reshaping(), {"x": np.arange(100, dtype=np.float32).reshape(1, 2, 50)}
    path = external_data.convert(proto, tmp_path / "model.onnx", threshold=0)
    expected = np.repeat(np.arange(100, dtype=np.float32), 2)
    assert np.array_equal(onnxruntime.InferenceSession(path).run(None, feed)[0], expected)
    assert external_data.audit(path).problems == ()
    # and a file with such values of more than a kilobyte in it runs, though large values are mapped from it
    assert np.array_equal(onnx_nb.run(written(proto, tmp_path), feed)["y"], expected)


def test_shapes_in_a_data_file_are_reported_and_can_be_run(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(reshaping(), path, save_as_external_data=True, location="data", size_threshold=0)
    with pytest.raises(Exception, match="Cannot parse data from external tensors"):
        onnxruntime.InferenceSession(path)
    audited = external_data.audit(path)
    (problem,) = audited.problems
    assert (problem.kind, problem.severity, problem.tensors) == ("shape", "warning", 3)
    assert "Reshape" in problem.advice
    assert external_data.check(path, full=True).ok
    feed = {"x": np.arange(100, dtype=np.float32).reshape(1, 2, 50)}
    assert np.array_equal(onnx_nb.run(path, feed)["y"], np.repeat(feed["x"], 2))
    assert external_data.audit(external_data.convert(path, tmp_path / "copy.onnx", threshold=0)).problems == ()


def test_over_two_gigabytes(tmp_path: Path) -> None:
    size = 1_250_000_000
    weights = [
        outside(name, size // 4, location="data", offset=size * i, length=size) for i, name in enumerate(("a", "b"))
    ]
    path = written(model_of(*weights), tmp_path / "in")
    with (tmp_path / "in" / "data").open("xb") as file:
        file.write(np.float32(1).tobytes())
        file.seek(size)
        file.write(np.float32(2).tobytes())
        file.truncate(2 * size)
    assert external_data.check(path).ok
    part = onnx_nb.extract(path, ["x"], ["y1"])
    assert external_data.check(part, full=True).ok
    with pytest.raises(
        ModelFileError, match=r"is 2.5 GB, and one .onnx file holds at most 2 GB.*external_data.convert"
    ):
        external_data.inline(path, tmp_path / "one.onnx")
    with pytest.raises(ModelFileError, match="at most 2 GB"):
        external_data.convert(path, tmp_path / "model.onnx", threshold=10**10)
    copied = external_data.convert(path, tmp_path / "model.onnx", shard_size=2_000_000_000)
    assert sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()) < 50_000_000  # zeros became holes
    model = onnx_nb.load(copied)
    assert [float(model.tensor(name)[0]) for name in ("a", "b")] == [1, 2]
    assert len(external_data.check(copied).files) == 2
    onnx.checker.check_model(copied)
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".tmp"] == []


def test_files_written_together_appear_together(tmp_path: Path) -> None:
    def fail() -> None:
        with save.together() as files:
            files.add(tmp_path / "one", [b"1"])
            assert not (tmp_path / "one").exists()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with save.together() as files:
        assert files.add(tmp_path / "one", [b"1"], checksum=True) == hashlib.sha1(b"1").hexdigest()  # noqa: S324
        files.add(tmp_path / "two", [b"22"])
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"one": b"1", "two": b"22"}
