"""Graders of "External data"."""

from __future__ import annotations

import hashlib
import os
import tempfile
from numbers import Integral
from pathlib import Path
from typing import Any, Final

import onnx

import onnx_nb
from onnx_nb import external_data

from . import Lesson, NotYet, expect, made

check: Final = Lesson()


def _stated(proto: Any) -> dict[str, dict[str, str]]:
    """Return the entries that each weight has; none for a weight in the model itself."""
    return {each.name: {entry.key: entry.value for entry in each.external_data} for each in proto.graph.initializer}


def _names(answer: Any) -> set[str]:
    """Return the names of weights of an answer."""
    names = [answer] if isinstance(answer, str) else answer
    expect(
        isinstance(names, list | tuple | set) and all(isinstance(name, str) for name in names),
        f"This has type {type(answer).__name__}; the answer is a list of names of weights.",
    )
    return set(names)


@check.exercise(
    1,
    "intact",
    "intact",
    {
        "[name for name in intact if name != 'second.bias']": "in the model itself",
        "list(shapes)": "Not whole: second.weight",
        "['second.weight']": "Not whole: second.weight",
        "intact[:1]": "are missing",
        "[*external_data.audit(folder / 'download.onnx').tensors]": "names of weights",
        "len(intact)": "This has type int",
    },
)
def _whole(answer: Any) -> None:
    names, folder = _names(answer), made("folder")
    stated = _stated(onnx.load(folder / "download.onnx", load_external_data=False))
    unknown = ", ".join(names - set(stated))
    expect(not unknown, f"The model has no weight {unknown}.")
    broken = {
        name
        for name, entries in stated.items()
        if entries and int(entries["offset"]) + int(entries["length"]) > (folder / entries["location"]).stat().st_size
    }
    cut = ", ".join(sorted(names & broken))
    expect(not cut, f"Not whole: {cut}. Compare where its bytes end with the size of the file.")
    missing = set(stated) - broken - names
    expect(not any(stated[name] for name in missing), "Some weights are missing, and all their bytes are there.")
    expect(not missing, "One is missing: a weight in the model itself is whole, whatever happens to the data file.")


@check.exercise(
    2,
    "path, wrong",
    "path, wrong",
    {
        'folder / "sealed.onnx", ["words"]': "share one data file",
        'folder / "each" / "model.onnx", ["words"]': "no checksum",
        'path, ["words"]': "Not damaged",
        'external_data.convert(proto, folder / "sound.onnx", per_tensor=True, checksums=True), []': "flip a bit",
        "path, [*shapes]": "Not damaged",
        "path, []": "Nothing is named",
        "onnx_nb.load(path), wrong": "the path of the model",
        'folder / "nowhere.onnx", wrong': "There is no file",
    },
)
def _damaged(path: Any, wrong: Any) -> None:
    sentence = f"This has type {type(path).__name__}; the first part of the answer is the path of the model."
    expect(isinstance(path, str | os.PathLike), sentence)
    path = Path(path)
    expect(path.is_file(), f"There is no file {path.name} in that folder.")
    entries = {name: each for name, each in _stated(onnx.load(path, load_external_data=False)).items() if each}
    expect(entries, "All weights are in the model itself; a checksum belongs to a data file.")
    expect(
        len({each["location"] for each in entries.values()}) == len(entries),
        "Several weights share one data file, so its checksum cannot tell which of them was damaged.",
    )
    expect(all("checksum" in each for each in entries.values()), "The data files have no checksum yet: ask for it.")
    damaged = {
        name
        for name, each in entries.items()
        if hashlib.sha1((path.parent / each["location"]).read_bytes(), usedforsecurity=False).hexdigest()
        != each["checksum"]
    }
    expect(damaged, "All checksums are right, so nothing is damaged: flip a bit of a data file.")
    named = _names(wrong)
    expect(named, "Nothing is named, and a checksum is wrong: audit with checksums.")
    healthy = ", ".join(sorted(named - damaged))
    expect(not healthy, f"Not damaged: {healthy}. Only a wrong checksum shows damage.")
    expect(named == damaged, "One more data file has a wrong checksum.")


@check.exercise(
    3,
    "orphans, orphans_after_saving",
    "shared.orphan, own.orphan",
    {
        "own.orphan, shared.orphan": "the other way round",
        "shared.nbytes, 0": "whole data file",
        "shared.used, 0": "that the part uses",
        "shared.orphan - 1, 0": "`orphan` of the data file",
        "shared.orphan, shared.orphan": "a data file of its own",
        "shared, own": "numbers of bytes",
    },
)
def _orphans(before: Any, after: Any) -> None:
    expect(all(isinstance(number, Integral) for number in (before, after)), "The answer is two numbers of bytes.")
    part = onnx_nb.extract(made("folder") / "model.onnx", ["before"], ["scores"])
    (shared,) = external_data.audit(part).files
    with tempfile.TemporaryDirectory(dir=made("folder")) as place:
        (own,) = external_data.audit(external_data.convert(part, Path(place) / "part.onnx")).files
    right = shared.orphan, own.orphan
    if (after, before) == right:
        raise NotYet("These are the right numbers the other way round.")
    expect(before != shared.nbytes, "This is the size of the whole data file, and the part uses some of its bytes.")
    expect(before != shared.used, "These are the bytes that the part uses; orphans are those that it does not use.")
    expect(before == right[0], "Audit the part before you save it, and read `orphan` of the data file.")
    expect(after == right[1], "The saved part has a data file of its own: audit that one.")


_WITH = 'model_of(helper.make_graph(proto.graph.node, "tied", [ids_port], [scores_port], %s))'
_AGAIN = 'TensorProto(name="words.again", data_type=1, dims=[400, 64], data_location=1, external_data=%s)'
_ENTRIES = "small.graph.initializer[0].external_data"


@check.exercise(
    4,
    "tied",
    "tied",
    {
        'onnx_nb.load(folder / "model.onnx")': "no weight more",
        "small": "no weight more",
        _WITH % '[*small.graph.initializer, numpy_helper.from_array(np.ones((9, 9), "f4"), "words.again")]': "copied",
        _WITH % "[*small.graph.initializer, small.graph.initializer[0]]": "a name of its own",
        _WITH % f"[*small.graph.initializer[1:], {_AGAIN % _ENTRIES}]": "keep the first",
        _WITH % f"[*small.graph.initializer, {_AGAIN % 'small.graph.initializer[1].external_data'}]": "other bytes",
        '"words.again"': "This has type str",
    },
)
def _tied(answer: Any) -> None:
    sentence = f"This has type {type(answer).__name__}; the answer is a model, or its proto."
    expect(isinstance(answer, onnx_nb.Model | onnx.ModelProto), sentence)
    folder = made("folder")
    model = onnx_nb.load(answer, data_dir=folder) if isinstance(answer, onnx.ModelProto) else answer
    stated = external_data.audit(folder / "model.onnx").tensors
    entries = external_data.audit(model).tensors
    names = [entry.name for entry in entries]
    lost = ", ".join(entry.name for entry in stated if entry.name not in names)
    expect(not lost, f"Gone: {lost}. Add a weight with the second name, and keep the first.")
    expect(len(names) > len(stated), "The model has no weight more than before, so the second name is missing.")
    expect(len(set(names)) == len(names), "Two weights have the same name: the second one needs a name of its own.")
    expect(len(names) == len(stated) + 1, "One weight more is enough: `words` under its second name.")
    (first,) = (entry for entry in entries if entry.name == "words")
    (second,) = (entry for entry in entries if entry.name not in {each.name for each in stated})
    expect(second.location, f"{second.name} has no entries for a data file: were its bytes copied?")
    expect(
        all(getattr(first, field) == getattr(second, field) for field in ("location", "offset", "length")),
        f"{second.name} has other bytes of the data file than `words`: compare the entries of both.",
    )
    expect(
        (first.dtype, first.shape) == (second.dtype, second.shape),
        f"{second.name} does not have the type and shape of `words`: copy the whole initializer.",
    )
    with tempfile.TemporaryDirectory(dir=folder) as place:
        written = external_data.audit(external_data.convert(model, Path(place) / "tied.onnx"))
    expect(written.ok and len(written.files) == 1, "The model cannot be written to one data file and audited.")
