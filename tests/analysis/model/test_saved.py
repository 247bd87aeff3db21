"""Saved results from elsewhere: each wrong field is an error that names it, or does not matter."""

from __future__ import annotations

import copy
import io
import json
import os
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import onnx_nb
from onnx_nb import OnnxNbError
from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched
from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.compare.quantization import Quantizer
from onnx_nb.analysis.model import saved
from onnx_nb.analysis.profile.result import Profile
from onnx_nb.analysis.pytorch.align import Alignment, Match
from onnx_nb.analysis.quantize.calibration import Calibration
from onnx_nb.analysis.view.overlays import overlay
from onnx_nb.widgets.comparison import ComparisonPanel
from onnx_nb.widgets.profile import ProfilePanel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODEL = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x, float[4, 4] w) => (float[2, 4] z) { y = MatMul(x, w)  z = Relu(y) }""")


def comparison() -> Comparison:
    dice = np.random.default_rng(0)
    right = dice.standard_normal((2, 3, 4))
    errors = [ErrorStats.of(right, right + dice.standard_normal(right.shape) * size) for size in (1e-6, 1e-3, 1)]
    levels = np.ones(256, np.int64)
    quantizer = Quantizer(
        *("c", "q", "activation", "int8", "tensor", np.array([0.1, 0.2]), 0, -1.0, 1.0),
        count=256,
        below=3,
        above=4,
        levels=levels,
        spread=np.ones(96, np.int64),
        signal=100.0,
        rounding=1.0,
        clipping=9.0,
        fitted=1.0,
        by_channel=0.5,
        channels=(1,),
        lost=0.5,
    )
    points = [
        Point("c", "c", "c", "name", 2, "Mul", quantizers=(quantizer,), cumulative=errors[2], isolated=errors[2]),
        Point("b", "b", "b", "name", 1, "Add", cumulative=errors[1], isolated=errors[0], between=("a",), region=("n",)),
        Point("a", "a", "a", "name", 0, "Add", cumulative=errors[0], isolated=errors[0]),
        Point("d", "d", "d", "name", 3, "Neg", cumulative=ErrorStats.of(np.array([1j, 2]), np.array([1j, 3]))),
    ]
    return Comparison("a.onnx", "b.onnx", tuple(points), (Unmatched("u", "reference", "why"),), 2)


def npz_tree(data: bytes) -> tuple[Any, dict[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(np.load(io.BytesIO(parts.pop("tree.npy"))).tobytes()), parts


def npz(tree: Any, parts: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    np.save(text := io.BytesIO(), np.frombuffer(json.dumps(tree).encode(), np.uint8))
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in {**parts, "tree.npy": text.getvalue()}.items():
            archive.writestr(name, part)
    return file.getvalue()


def use_comparison(result: Comparison) -> None:
    assert result.message
    result.rows()
    result._still()
    assert repr(result.quantizers)
    for point in result.points:
        assert [point.blame, point.faulty, repr(point)]
        for kind in ("absolute", "signed", "relative", "ulp"):
            for which in ("cumulative", "isolated"):
                if getattr(point, which) is not None:
                    bins = result.histogram(point.name, kind, which)
                    assert [bins.total, bins.edges, repr(bins)]
    result.merge(result)


def use_profile(result: Profile) -> None:
    assert [result.message, result.facts, result.memory_peak, result.peak]
    for by in ("kernel", "node", "operator", "scope", "provider", "fallback"):
        result.rows(by)
    assert [[kernel.types, kernel.intensity, repr(kernel)] for kernel in result.kernels]
    result._still()
    result.compare(result)._still()


def use_alignment(result: Alignment) -> None:
    result.rows()
    assert [repr(result), result.matched, result.unmatched]
    result.on(MODEL)


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any], Callable[[Any], Any], Any]] = {
    "comparison.npz": (lambda path: comparison().save(path), Comparison.load, use_comparison, ComparisonPanel),
    "profile.json": (
        lambda path: onnx_nb.profile(MODEL, runs=3).save(path),
        lambda path: Profile.load(path, MODEL),
        use_profile,
        ProfilePanel,
    ),
    "alignment.json": (
        lambda path: Alignment((Match("a", 0, "", "Linear", "y", "scope"), Match("b", 1, "0", "X", "", ""))).save(path),
        Alignment.load,
        use_alignment,
        None,
    ),
    "calibration.json": (
        lambda path: onnx_nb.calibrate(onnx_nb.capture(MODEL, ranges=True)).save(path),
        lambda path: Calibration.load(path, MODEL),
        lambda result: [result.message, result.rows(), result._still()],
        None,
    ),
    "overlay.json": (
        lambda path: overlay(MODEL, {"y": 1.0, "z": 2.0}, label="a").save(path, "netron"),
        lambda path: overlay(MODEL, path),
        lambda result: [result.by_name(), repr(result), result.to_json()],
        None,
    ),
    "explorer.json": (
        lambda path: overlay(MODEL, {"y": 1.0, "z": 2.0}, label="a").save(path, "model_explorer"),
        lambda path: overlay(MODEL, path),
        lambda result: [result.by_name(), repr(result), result.to_json()],
        None,
    ),
}
MISSING = object()
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
WRONG = {
    "missing": MISSING,
    "null": None,
    "text": "\ud800é",
    "number": 7,
    "NaN": float("nan"),
    "infinite": float("-inf"),
    "huge": 10**400,
    "large": 1 << 62,
    "float": 1e308,
    "negative": -5,
    "true": True,
    "list": [],
    "longer": [1] * 7,
    "dict": {"a": 1},
    "deep": DEEP,
}


def places(tree: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every entry; of lists the first and the last."""
    parts = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    for key, part in parts if isinstance(tree, dict) else [*parts[:1], *parts[-1:]]:
        yield (key,)
        yield from ((key, *rest) for rest in places(part))


def planted(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    tree = copy.deepcopy(tree)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    if value is MISSING:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return tree


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # sums of numbers that are too large
@pytest.mark.parametrize(
    "kind",
    # its fields are tried one by one, for two minutes
    [pytest.param(kind, marks=[pytest.mark.rare] if kind == "comparison.npz" else []) for kind in KINDS],
)
def test_a_wrong_field_is_an_error_that_names_the_file_or_does_not_matter(kind: str, tmp_path: Path) -> None:
    save, load, use, panel = KINDS[kind]
    save(path := tmp_path / kind)
    use(load(path))
    data = path.read_bytes()
    tree, parts = npz_tree(data) if kind.endswith("npz") else (json.loads(data), {})
    loaded, refused, wrong = 0, 0, []
    for place in dict.fromkeys(places(tree)):
        for name, value in WRONG.items():
            changed = planted(tree, place, value)
            path.write_bytes(npz(changed, parts) if kind.endswith("npz") else json.dumps(changed).encode())
            try:
                result = load(path)
            except OnnxNbError as error:
                refused += 1
                if kind not in str(error) and kind not in ("overlay.json", "explorer.json"):
                    wrong.append((place, name, f"unnamed: {error}"))
                continue
            except Exception as error:  # noqa: BLE001 - reported
                wrong.append((place, name, f"load: {type(error).__name__}: {error}"))
                continue
            loaded += 1
            try:
                use(result)
                if panel and loaded % 25 == 0:
                    panel(result).to_html(tmp_path / "panel.html")
                    onnx_nb.report(tmp_path / "report.html", {"result": result})
            except Exception as error:  # noqa: BLE001 - reported
                wrong.append((place, name, f"use: {type(error).__name__}: {error}"))
    assert wrong == []
    assert refused
    assert loaded


def test_what_is_no_file_or_takes_far_more_than_it_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO, which never ends; zeros that take a thousand times their file; an array that is only announced."""
    monkeypatch.setattr(saved, "_LEAST", 1 << 26)
    os.mkfifo(fifo := tmp_path / "fifo")
    (zeros := tmp_path / "zeros.npz").write_bytes(b"")
    np.savez_compressed(zeros, tree=np.zeros(1), float64=np.zeros(10_000_000), int64=np.zeros(1))
    (deep := tmp_path / "deep.json").write_text('{"kind": "onnx_nb alignment", "matches": ' + "[" * 100_000)
    (many := tmp_path / "many.json").write_text('{"kind": "onnx_nb alignment", "format": 1' + "0" * 5000 + "}")
    for load in (Comparison.load, Alignment.load, lambda path: Profile.load(path, MODEL)):
        for path in (fifo, zeros, deep, many, tmp_path, tmp_path / "nothing"):
            with pytest.raises(OnnxNbError, match=path.name):
                load(path)
    with pytest.raises(OnnxNbError, match=r"80.0 MB are packed into"):
        Comparison.load(zeros)
    text = b'{"kind": "comparison", "content": [' + b"[]," * 10_000_000 + b"0]}"
    np.savez_compressed(zeros, tree=np.frombuffer(text, np.uint8))
    with pytest.raises(OnnxNbError, match=r"30.0 MB of text are packed into it"):
        Comparison.load(zeros)


def test_an_array_of_more_elements_than_a_number_can_count_is_an_error(tmp_path: Path) -> None:
    for shape in ((10**30,), (0, 10**30)):
        header = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode() + b"\n"
        data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        (tmp_path / "x.npy").write_bytes(data)
        with pytest.raises(OnnxNbError, match=r"x.npy"):
            next(onnx_nb.read_feeds(MODEL, tmp_path / "x.npy"))
