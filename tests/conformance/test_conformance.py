"""All cases run, one in six simplified, some through the other verbs; `make conformance` for everything."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.capture import capture
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.simplify.simplify import simplify
from onnx_nb.analysis.submodel.extraction import extract
from tests import models
from tests.conformance.cases import LEAST, RANDOM, SOURCES, Runnable, node_cases, plain, runnable, same_bits
from tests.conformance.verbs import VERBS, draws, feeds_of, outcome, with_constant_inputs

STEPS = {"run": 4, "simplify": 6}
"""One case in so many goes through a verb here; through verbs that are not named, one in `STEP`."""
STEP = 24
HEAVY = {"bvlc_alexnet", "vgg19", "zfnet512"}
"""Light models whose large weights take long in every verb, and that look like the others to it."""
TOO_LONG = ("capture in a subprocess",)


@pytest.mark.parametrize("source", SOURCES)
def test_cases_run_in_onnxruntime(source: str) -> None:
    found, left = runnable(source)
    assert len(found) >= LEAST[source] * (len(found) + left.total())
    assert sum(not one.agrees for one in found) <= 25


WAYS = [
    # what goes wrong with one of the larger models goes wrong with small ones too; these take ten minutes
    pytest.param(verb, source, marks=[pytest.mark.rare] if source == "larger" else [])
    for verb in VERBS
    if verb not in TOO_LONG
    for source in SOURCES
]


@pytest.mark.parametrize(("verb", "source"), WAYS)
def test_nothing_changes(verb: str, source: str) -> None:
    cases = runnable(source)[0]
    if source == "larger":
        chosen = [one for one in cases if verb == "run" or one.case.name not in HEAVY]
    else:
        step = STEPS.get(verb, STEP)
        chosen = cases[[*VERBS].index(verb) % step :: step]  # not the same ones for each verb
    outcomes = Counter[str]()
    wrong = []
    for one in chosen:
        said = outcome(VERBS[verb], one)
        outcomes[said] += 1
        if said.startswith("wrong"):
            wrong.append(f"{one.case.name}: {said}"[:400])
    assert not wrong, f"{len(wrong)} of {len(chosen)} cases:\n" + "\n".join(wrong[:30])
    assert sum(count for said, count in outcomes.items() if said.startswith("right")) >= len(chosen) // 5, outcomes


def test_what_draws_random_numbers_goes_on_drawing() -> None:
    cases = [case for case in node_cases() if RANDOM.search(case.name)]
    assert len(cases) >= 10
    for case in cases:
        proto = with_constant_inputs(Runnable(case, case.model, feeds_of(case), {}))
        assert proto is not None
        assert draws(simplify(proto, check_n=0, size_budget=1 << 40).model.proto) == draws(proto), case.name


def same_dicts(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return list(found) == list(expected) and all(map(same_bits, found.values(), expected.values()))


def test_cases_from_every_kind_of_source(tmp_path: Path) -> None:
    """A file, a file with external data in another folder, bytes, a proto, and a Model of each: one result."""
    proto = onnx.load(models.control_flow())
    weights = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "large"))
    proto.graph.node.append(onnx.helper.make_node("MatMul", ["large", "total"], ["product"], "/product"))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("product", onnx.TensorProto.FLOAT, [300]))
    (feeds,) = read_feeds(proto, None)
    expected = plain(proto, feeds, optimize=False)
    inside = tmp_path / "inside.onnx"
    onnx.save(proto, inside)
    (tmp_path / "data").mkdir()
    outside, copied = tmp_path / "data" / "outside.onnx", ModelProto()
    copied.CopyFrom(proto)
    onnx.save(copied, outside, save_as_external_data=True, size_threshold=0, location="weights.bin")
    moved = tmp_path / "moved.onnx"
    moved.write_bytes(outside.read_bytes())
    sources: list[Any] = [
        *(inside, str(inside), inside.read_bytes(), proto),
        *(outside, load(moved, data_dir=tmp_path / "data"), load(outside.read_bytes(), data_dir=tmp_path / "data")),
    ]
    for source in sources:
        for model in (source, load(source)):
            assert same_dicts(session.run(model, feeds), expected)
            whole = extract(model, list(feeds), list(expected))
            assert same_dicts(session.run(whole, feeds), expected)
            cap = capture(model, feeds, keep="*")
            assert same_dicts({name: cap[name] for name in expected}, expected)
            assert cap.statistics("product").count == 300
    saved = extract(outside, ["total"], ["product"]).save(tmp_path / "saved.onnx")
    total = {"total": expected["total"]}
    assert same_bits(session.run(saved, total)["product"], expected["product"])
