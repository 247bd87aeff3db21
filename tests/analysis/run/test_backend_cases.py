"""Every case that onnx ships for backends, and its light models: extracted whole and captured whole, nothing changes.

What onnxruntime itself gives is the truth, and onnx's reference values stand behind it. What is left out is counted,
with the reason; ``pytest -s`` prints the counts, and ``build/truth.json`` holds them with all names.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, ValueInfoProto, numpy_helper
from onnx.backend.test import loader

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.capture import capture
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.random_feeds import random_feeds
from onnx_nb.analysis.submodel.extraction import extract
from tests import models

OPSET, IR = 26, 13
"""The newest that onnxruntime knows."""

RANDOM = re.compile(r"bernoulli|multinomial|training_dropout_(?!zero)|training_dropout$")
"""Cases that draw random numbers: two runs of one session differ."""


@dataclass
class Case:
    name: str
    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float = 1e-3
    atol: float = 1e-7


@dataclass
class Report:
    """What became of each case: by outcome, the names."""

    names: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: str, case: str) -> None:
        self.names[outcome].append(case)

    @property
    def counts(self) -> dict[str, int]:
        return {outcome: len(names) for outcome, names in sorted(self.names.items(), key=lambda item: -len(item[1]))}

    def finish(self, title: str) -> None:
        print(f"\n{title}: {json.dumps(self.counts, indent=2)}")  # noqa: T201  # asked for with -s
        path = models.ROOT / "build" / "truth.json"
        path.parent.mkdir(exist_ok=True)
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, title: {"counts": self.counts, "names": dict(self.names)}}, indent=1))
        assert not self.failures, f"{len(self.failures)} cases:\n" + "\n".join(self.failures[:30])


@functools.cache
def node_cases() -> list[Case]:
    with warnings.catch_warnings():
        # numpy's opinion on the values that the cases are made of
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    return [
        Case(case.name, case.model, unpacked(inputs), unpacked(outputs), case.rtol, case.atol)
        for case in found
        if case.model is not None and case.data_sets
        for inputs, outputs in case.data_sets[:1]
    ]


def unpacked(values: Sequence[Any]) -> list[Any]:
    return [numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value for value in values]


@functools.cache
def folder_cases() -> list[Case]:
    """The cases that come as folders with a model and test data."""
    found = []
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for case in loader.load_model_tests(kind=kind):
            folder = Path(case.model_dir or "")
            proto = onnx.load(folder / "model.onnx")
            (feed, *_) = read_feeds(proto, folder)
            kinds = [value.type for value in proto.graph.output]
            paths = [folder / "test_data_set_0" / f"output_{index}.pb" for index in range(len(kinds))]
            outputs = [parsed(path, kind) for path, kind in zip(paths, kinds, strict=True)]
            found.append(Case(case.name, proto, list(feed.values()), outputs, case.rtol, case.atol))
    return found


def parsed(path: Path, kind: onnx.TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def within_reach(model: ModelProto) -> ModelProto | None:
    """The model in the newest opset that onnxruntime takes, if its operators are valid there."""
    proto = ModelProto()
    proto.CopyFrom(model)
    proto.ir_version = min(proto.ir_version, IR)
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version > OPSET:
            entry.version = OPSET
            try:
                onnx.checker.check_model(proto, full_check=True)
            except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
                return None
    return proto


def plain(proto: ModelProto, feeds: dict[str, Any], *, optimize: bool) -> dict[str, Any]:
    """What onnxruntime gives, asked without onnx_nb's sessions."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in made.get_outputs()]
    if any(
        re.search(r"bfloat16|float8|float4|int4|int2", entry.type)
        for entry in (*made.get_outputs(), *made.get_inputs())
    ):
        values = {name: session.to_value(value) for name, value in feeds.items() if value is not None}
        return dict(zip(names, map(session.to_array, made.run_with_ort_values(names, values)), strict=True))
    return dict(zip(names, made.run(names, feeds), strict=True))


def same_bits(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same_bits, found, expected))
    if expected is None or isinstance(expected, dict):
        return bool(found == expected)
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    return bool((found == expected).all()) if found.dtype == object else found.tobytes() == expected.tobytes()


def similar(found: Any, expected: Any, case: Case) -> bool:
    """As onnx's backend tests compare; types smaller than a float by their values."""
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(
            similar(one, other, case) for one, other in zip(found, expected, strict=True)
        )
    if expected is None:
        return found is None
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return False
    if found.dtype == object or expected.dtype.kind in "OUS":
        return bool((found.astype(str) == expected.astype(str)).all())
    rtol = max(case.rtol, 2**-6) if found.dtype.name == "bfloat16" else case.rtol
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    return bool(np.allclose(found.astype(wide), expected.astype(wide), rtol=rtol, atol=case.atol, equal_nan=True))


@dataclass
class Runnable:
    """A case that onnxruntime runs, and what it gives."""

    case: Case
    model: ModelProto
    feeds: dict[str, Any]
    outputs: dict[str, Any]


@functools.cache
def runnable(cases: Callable[[], list[Case]]) -> tuple[list[Runnable], Report]:
    report, found = Report(), []
    for case in cases():
        if RANDOM.search(case.name):
            report.add("left out: draws random numbers", case.name)
            continue
        model = within_reach(case.model)
        if model is None:
            report.add("left out: an operator newer than onnxruntime", case.name)
            continue
        weights = {tensor.name for tensor in model.graph.initializer}
        names = [value.name for value in model.graph.input if value.name not in weights]
        feeds = dict(zip(names, case.inputs, strict=False))
        try:
            (feeds,) = read_feeds(model, feeds)
            outputs = plain(model, feeds, optimize=True)
        except OnnxNbError:
            report.failures.append(f"{case.name}: its own feeds are refused")
            continue
        except Exception as error:  # noqa: BLE001  # onnxruntime has many
            text = str(error)
            unknown = "NOT_IMPLEMENTED" in text or "not a registered function" in text
            report.add(f"left out: onnxruntime {'has no kernel for it' if unknown else 'refuses it'}", case.name)
            continue
        agrees = all(map(functools.partial(similar, case=case), outputs.values(), case.outputs))
        if not agrees and case.model.opset_import[0].version > OPSET:
            report.add("left out: its operator gave something else in older opsets", case.name)
            continue
        if not agrees:
            # not for us to judge; what we do to it must still change nothing
            report.add("onnxruntime is not within the tolerance of the reference", case.name)
        found.append(Runnable(case, model, feeds, outputs))
    return found, report


SOURCES = {"node cases": node_cases, "folder cases": folder_cases}
FLOORS = {"node cases": 0.88, "folder cases": 0.7}
"""At least this share of all cases has to come through."""


def enough(report: Report, outcome: str, source: str) -> bool:
    cases = len(SOURCES[source]())
    return cases > 100 and len(report.names[outcome]) >= FLOORS[source] * cases


@pytest.mark.parametrize("source", SOURCES)
def test_what_onnxruntime_runs(source: str) -> None:
    found, report = runnable(SOURCES[source])
    report.names["ran"] = [one.case.name for one in found]
    report.finish(f"{source}, run")
    assert enough(report, "ran", source)
    assert len(report.names["onnxruntime is not within the tolerance of the reference"]) <= 25


@pytest.mark.parametrize("source", SOURCES)
def test_extracting_everything_changes_nothing(source: str) -> None:
    report = Report()
    for one in runnable(SOURCES[source])[0]:
        name, graph = one.case.name, one.model.graph
        made = {output for node in graph.node for output in node.output}
        if not all(value.name in made for value in graph.output):
            report.add("left out: an output that no node makes", name)
            continue
        try:
            with warnings.catch_warnings():
                # of inputs that nothing reads
                warnings.simplefilter("ignore", UserWarning)
                whole = extract(one.model, list(one.feeds), list(one.outputs))
            found = session.run(whole, one.feeds)
        except OnnxNbError as error:
            report.failures.append(f"{name}: {error}"[:300])
            continue
        if list(found) == list(one.outputs) and all(map(same_bits, found.values(), one.outputs.values())):
            report.add("equal", name)
        else:
            report.failures.append(f"{name}: other values")
    report.finish(f"{source}, extracted")
    assert enough(report, "equal", source)


@pytest.mark.parametrize("source", SOURCES)
def test_capturing_everything_is_what_all_outputs_give(source: str) -> None:
    report = Report()
    for one in runnable(SOURCES[source])[0]:
        name, graph = one.case.name, one.model.graph
        values = [output for node in graph.node for output in node.output if output]
        proto = ModelProto()
        proto.CopyFrom(one.model)
        declared = {value.name: value for value in graph.output}
        del proto.graph.output[:]
        proto.graph.output.extend(declared.get(value, ValueInfoProto(name=value)) for value in values)
        try:
            expected = plain(proto, one.feeds, optimize=False)
        except Exception:  # noqa: BLE001  # onnxruntime has many
            report.add("left out: onnxruntime refuses all values as outputs", name)
            continue
        try:
            cap = capture(one.model, one.feeds, keep="*")
            found = {value: cap[value] for value in values}
        except OnnxNbError as error:
            report.failures.append(f"{name}: {type(error).__name__} {error}"[:300])
            continue
        wrong = [value for value in values if not same_bits(found[value], expected[value])]
        if wrong:
            report.failures.append(f"{name}: other values in {wrong[:3]}")
        else:
            report.add("equal", name)
    report.finish(f"{source}, captured")
    assert enough(report, "equal", source)


CONSTRAINED = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), (0,)),
    **dict.fromkeys(("AffineGrid", "BitShift", "CenterCropPad", "CumProd", "MaxUnpool", "Upsample"), (1,)),
    **dict.fromkeys(("CumSum", "Dropout", "OneHot", "Split", "Squeeze", "Unsqueeze"), (1,)),
    **dict.fromkeys((f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min")), (1,)),
    **dict.fromkeys((f"Reduce{name}" for name in ("Prod", "Sum", "SumSquare")), (1,)),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), (1,)),
    **dict.fromkeys(("SequenceAt", "SequenceErase", "SplitToSequence", "ReverseSequence", "Scatter"), (1,)),
    **dict.fromkeys(("RoiAlign", "SequenceInsert", "TensorScatter"), (2,)),
    "DFT": (1, 2),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3),
    "Pad": (3,),
    "STFT": (1, 3),
}
"""Inputs with values that only some operators restrict, and that graph inputs feed in onnx's own cases alone."""


def feeds_for(one: Runnable) -> dict[str, Any]:
    """Random feeds, with the case's own values where an input is in `CONSTRAINED`."""
    own = {
        node.input[index]
        for node in one.model.graph.node
        for index in CONSTRAINED.get(node.op_type, ())
        if index < len(node.input)
    }
    return {**random_feeds(one.model), **{name: one.feeds[name] for name in own & one.feeds.keys()}}


@pytest.mark.parametrize("source", SOURCES)
def test_cases_run_on_random_feeds(source: str) -> None:
    report = Report()
    for one in runnable(SOURCES[source])[0]:
        try:
            session.run(one.model, feeds_for(one))
        except OnnxNbError:
            report.add("not on these", one.case.name)
        else:
            report.add("ran", one.case.name)
    report.finish(f"{source}, random feeds")
    assert enough(report, "ran", source)


LARGER: dict[str, Callable[[], Path]] = {
    **{name: functools.partial(models.light, name) for name in models.LIGHT},
    **{
        f"{name} by {'dynamo' if dynamo else 'torchscript'}": functools.partial(models.exported, name, dynamo=dynamo)
        for name in models.EXPORTED
        for dynamo in (True, False)
    },
    "control flow": models.control_flow,
    "functions": models.functions,
    "a chain": functools.partial(models.chain, 1000),
}


@pytest.mark.parametrize("name", LARGER)
def test_models_extracted_and_captured(name: str) -> None:
    path = LARGER[name]()
    proto = onnx.load(path)
    reference = path.with_name(f"{path.stem}_output_0.pb")
    (feeds,) = read_feeds(path, ramp(proto) if reference.exists() else None)
    expected = plain(proto, feeds, optimize=True)
    if reference.exists():
        outputs = unpacked([onnx.TensorProto.FromString(reference.read_bytes())])
        assert similar(list(expected.values()), outputs, Case(name, proto, [], outputs))
    assert same_dicts(session.run(extract(path, list(feeds), list(expected)), feeds), expected)
    values = [output for node in proto.graph.node for output in node.output if output]
    declared = {value.name: value for value in proto.graph.output}
    del proto.graph.output[:]
    proto.graph.output.extend(declared.get(value, ValueInfoProto(name=value)) for value in values)
    cap = capture(path, feeds, keep="*")
    assert same_dicts({value: cap[value] for value in values}, plain(proto, feeds, optimize=False))


def ramp(proto: ModelProto) -> list[Any]:
    """What onnx's backend tests run their light models on."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    (first,) = (value for value in proto.graph.input if value.name not in weights)
    shape = [dim.dim_value for dim in first.type.tensor_type.shape.dim]
    return [(np.arange(np.prod(shape)) / np.prod(shape)).reshape(shape).astype(np.float32)]


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
