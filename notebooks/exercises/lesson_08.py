"""Graders of "External data"."""

from __future__ import annotations

import tempfile
from numbers import Integral
from pathlib import Path
from typing import Any, Final

import onnx

import onnx_nb
from onnx_nb import external_data

from . import Lesson, NotYet, expect, made

check: Final = Lesson()


@check.exercise(
    1,
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


_WITH = 'model_of(helper.make_graph(proto.graph.node, "tied", proto.graph.input, proto.graph.output, %s))'
_AGAIN = 'TensorProto(name="words.again", data_type=1, dims=[400, 64], data_location=1, external_data=%s)'
_ENTRIES = "small.graph.initializer[0].external_data"


@check.exercise(
    2,
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
