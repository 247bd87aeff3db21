"""Graders of "Checking external data"."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final

import onnx

from . import Lesson, expect, made

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
        "[each.name for each in proto.graph.initializer]": "Not whole: second.weight",
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
        'external_data.convert(proto, folder / "each.onnx", per_tensor=True), ["words"]': "no checksum",
        'path, ["words"]': "Not damaged",
        'external_data.convert(proto, folder / "sound.onnx", per_tensor=True, checksums=True), []': "flip a bit",
        "path, [*wrong, 'first.bias']": "Not damaged",
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
