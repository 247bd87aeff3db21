"""Profiles: every kernel that onnxruntime ran is given to the nodes of the model that it computes, once."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb import OnnxNbError, load, profile, random_feeds
from onnx_nb.analysis.profile.profile import SESSIONS
from onnx_nb.analysis.profile.rows import By
from onnx_nb.analysis.profile.sessions import Optimization
from onnx_nb.analysis.profile.trace import OWNERS
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.result_columns import resource_columns
from onnx_nb.types import Profile
from tests import models
from tests.analysis.profile.record import DATA, model

LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "layout": "ORT_ENABLE_LAYOUT",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}
TRUTH = json.loads((DATA / "truth.json").read_text())
SMALL = ("bert", "llama", "vit", "whisper", "detr")


@pytest.fixture(scope="module")
def resnet() -> Profile:
    """A profile that several tests read; of one thread, since others would spin while they wait."""
    return profile(models.exported("resnet50", dynamo=True), runs=2, warmup=0, threads=1)


def traced(path: Path, folder: Path, level: str = "all", runs: int = 2, optimized: Path | None = None) -> Path:
    """Profile a model by hand, and return the file that onnxruntime wrote."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "by-hand")
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    session = onnxruntime.InferenceSession(path, options)
    feeds = random_feeds(load(path)) if runs else {}
    for _ in range(runs):
        session.run(None, feeds)
    return Path(session.end_profiling())


def kernel_seconds(path: Path) -> float:
    """Return the seconds of all kernels of the last run in a file, without what is inside of others."""
    events = json.loads(path.read_text())
    last = max((event for event in events if event["name"] == "model_run"), key=lambda event: event["ts"])
    spans = [
        (event["ts"], event["ts"] + event["dur"], event["args"]["op_name"])
        for event in events
        if event["cat"] == "Node" and event["ts"] >= last["ts"] and event["name"].endswith("_kernel_time")
    ]
    owners = [(start, end) for start, end, op in spans if op in OWNERS]
    inside = [any(a <= start and end <= b and (a, b) != (start, end) for a, b in owners) for start, end, _ in spans]
    lasted = [float(end - start) for (start, end, _), inner in zip(spans, inside, strict=True) if not inner]
    return sum(lasted) / 1e6


def check(path: Path, level: Any, folder: Path) -> Profile:
    """Compare the profile of a model with a session and an optimized graph made by hand."""
    found = profile(path, runs=2, warmup=1, optimization=level, threads=1)
    proto = onnx.load(path, load_external_data=False)
    assert found.mapped >= 0.99
    assert found.shares.sum() == pytest.approx(1)
    total = np.sum([kernel.seconds for kernel in found.kernels], axis=0)
    assert total == pytest.approx(found.kernel_seconds)
    assert all(inner <= run * 1.01 for inner, run in zip(total, found.run_seconds, strict=True))

    optimized = folder / "optimized.onnx"
    traced(path, folder, level, runs=0, optimized=optimized)
    names = {node.name: node for node in onnx.load(optimized).graph.node if node.name}
    makers = {name: index for index, node in enumerate(proto.graph.node) for name in node.output if name}
    checked = 0
    for kernel in found.kernels:
        node = names.get(kernel.name)
        # names that onnxruntime makes up mean another node in each session
        if node is None or kernel.parent >= 0 or re.fullmatch(rf"{kernel.op}(_token_\d+)?", kernel.name):
            continue
        for name in node.output:
            if name in makers and kernel.edge != name:
                assert makers[name] in kernel.nodes, (kernel.name, name)
                checked += 1
    assert checked
    if level == "off":
        by_name = {node.name: index for index, node in enumerate(proto.graph.node) if node.name}
        known = [kernel for kernel in found.kernels if kernel.parent < 0 and kernel.name in by_name]
        assert all(by_name[kernel.name] in kernel.nodes for kernel in known)
        assert not found.inserted
    return found


@pytest.mark.parametrize("level", ["all", "off"])
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("name", ["bert", pytest.param("mobilevit", marks=[pytest.mark.slow, pytest.mark.rare])])
def test_every_kernel_contains_the_makers_of_its_outputs(name: str, dynamo: bool, level: str, tmp_path: Path) -> None:
    check(models.exported(name, dynamo=dynamo, small=True), level, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "level"),
    [
        *itertools.product(["bert", "llama", "vit", "whisper", "resnet50"], get_args(Optimization)),
        *(pytest.param(name, "all", marks=pytest.mark.rare) for name in ("detr", "segformer")),
    ],
)
@pytest.mark.parametrize("dynamo", [True, False])
def test_every_kernel_is_mapped_at_every_level(name: str, dynamo: bool, level: str, tmp_path: Path) -> None:
    check(models.exported(name, dynamo=dynamo, small=name in SMALL), level, tmp_path)


@pytest.mark.parametrize("level", get_args(Optimization))
def test_bodies_of_loops_and_branches_count_once(level: Optimization, tmp_path: Path) -> None:
    for path in (models.detection(), models.control_flow()):
        found = check(path, level, tmp_path)
        inside = [kernel for kernel in found.kernels if kernel.parent >= 0]
        assert inside
        graph = found.graph
        for kernel in inside:
            owner = found.kernels[kernel.parent]
            assert owner.op in OWNERS
            assert all(graph.subgraphs[graph.node_subgraph[node]].owner_node in owner.nodes for node in kernel.nodes)
        by_hand = traced(path, tmp_path, level, runs=1)
        read = Profile.read(by_hand, path)
        assert read.kernel_seconds[0] == pytest.approx(kernel_seconds(by_hand), rel=0.01, abs=2e-6)


def test_a_residual_and_its_activation_belong_to_the_convolution_that_adds_them(resnet: Profile) -> None:
    found = resnet
    ops = {index: node.op_type for index, node in enumerate(found.model.proto.graph.node)}
    sets = [tuple(ops[node] for node in kernel.nodes) for kernel in found.kernels if len(kernel.nodes) > 1]
    assert sorted(set(sets)) == [("Conv", "Add", "Relu"), ("Conv", "Relu")]
    assert sets.count(("Conv", "Add", "Relu")) == 16
    every = [node for kernel in found.kernels if not kernel.edge for node in kernel.nodes]
    assert len(every) == len(set(every)) == sum(not folded for folded in found.graph.folded)


TWICE = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
 g (float[n, 4] x, bool yes) => (float[n, 4] z, float[n, 4] w) {
   [first] y = own.Outer(x, yes)  [second] z = own.Outer(y, yes)  [cos] w = Cos(z) }
 <domain: "own", opset_import: ["": 17, "own": 1]> Outer (x, yes) => (y) {
   [one] a = own.Inner(x)  [two] b = own.Inner(a)  [erf] e = Erf(b)
   [if] y = If(yes) <then_branch = t () => (float[n, 4] p) { [three] p = own.Inner(e) },
                     else_branch = f () => (float[n, 4] q) { [neg] q = Neg(e) }> }
 <domain: "own", opset_import: ["": 17]> Inner (x) => (y) { [sin] s = Sin(x)  two = Constant<value_float = 2.0>()
   [div] y = Div(s, two) }"""


@pytest.mark.parametrize("level", ["off", "all"])
def test_kernels_inside_functions_belong_to_their_call_and_to_the_nodes_inside(level: Any, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(TWICE), path := tmp_path / "twice.onnx")
    feeds = {"x": np.ones((500, 4), np.float32), "yes": np.asarray(True)}
    found = profile(path, feeds, runs=3, optimization=level, threads=1)
    by_op = {
        (op, call): f"{call}::{inner}" for call in ("first", "second") for op, inner in [("Erf", "erf"), ("If", "if")]
    }
    names = found.graph.names
    seen = set[str]()
    for kernel in found.kernels:
        (call,) = (names[node] for node in kernel.nodes)
        inside = tuple(names[node] for node in kernel.opened)
        if kernel.op == "Cos":
            assert (call, inside) == ("cos", ())
            continue
        if kernel.op in ("Erf", "If"):
            assert inside == (by_op[kernel.op, call],)
        assert all(name.startswith(f"{call}::") for name in inside)
        assert not seen & set(inside)  # each node is computed once
        seen |= set(inside)
    assert {name for name in seen if name.endswith(("::sin", "::div"))} == {
        f"{call}::{inner}::{node}"
        for call in ("first", "second")
        for inner in ("one", "two", "three")
        for node in ("sin", "div")
    }
    rows = {row["node"]: row for row in found.rows("node")}
    for call in ("first", "second", "first::one", "second::two"):
        own = [kernel for kernel in found.kernels if any(names[n].startswith(f"{call}::") for n in kernel.opened)]
        assert rows[call]["seconds"] == pytest.approx(sum(kernel.median for kernel in own))
    calls = sum(rows[name]["seconds"] for name in ("first", "second", "cos"))
    assert calls == pytest.approx(sum(kernel.median for kernel in found.kernels))
    by_scope = {row["scope"]: row["kernels"] for row in found.rows("scope")}
    assert by_scope["first"] == by_scope["second"] == sum(kernel.op != "Cos" for kernel in found.kernels) / 2
    read = Profile.read(traced(path, tmp_path, level), path)
    assert read.mapped == pytest.approx(1)
    assert read.fit == 1
    assert {kernel.opened for kernel in read.kernels} == {kernel.opened for kernel in found.kernels}
    same = Profile.load(found.save(tmp_path / "saved.json"), path)
    assert [kernel.opened for kernel in same.kernels] == [kernel.opened for kernel in found.kernels]


def test_inserted_kernels_stand_on_an_edge() -> None:
    found = profile(models.detection(), runs=1, warmup=0, threads=1)
    names = {value for node in found.model.proto.graph.node for value in node.output}
    assert found.inserted
    assert all(kernel.op == "ReorderOutput" and kernel.edge in names for kernel in found.inserted)


@pytest.mark.parametrize("op", ["Mish", "HardSwish"])
def test_kernels_of_an_operator_that_onnxruntime_inlines_belong_to_its_nodes(op: str) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[1, 8, 16] x) => (float[1, 8, 16] y)
        { a = Relu(x)  b = OP(a)  c = OP(b)  y = Neg(c) }"""
    found = profile(onnx.parser.parse_model(text.replace("OP", op)), runs=2)
    kernels = [(kernel.op, kernel.nodes) for kernel in found.kernels]
    inside = ["Softplus", "Tanh", "Mul"] if op == "Mish" else ["HardSigmoid", "Mul"]
    expected = [("Relu", (0,)), *((name, (node,)) for node in (1, 2) for name in inside), ("Neg", (3,))]
    assert kernels == expected
    assert found.mapped == pytest.approx(1)


def test_kernels_of_a_function_whose_nodes_have_no_names_belong_to_its_calls() -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "f": 1]>
        g (float[8, 16] x) => (float[8, 16] y) { a = f.F(x)  y = f.F(a) }
        <domain: "f", opset_import: ["": 18]> F (p) => (q) { r = Exp(p)  s = Tanh(r)  q = Sqrt(s) }"""
    kernels = profile(onnx.parser.parse_model(text), runs=2).kernels
    assert [(kernel.op, kernel.nodes, kernel.opened) for kernel in kernels] == [
        (op, (call,), (2 + 3 * call + place,)) for call in (0, 1) for place, op in enumerate(("Exp", "Tanh", "Sqrt"))
    ]


def test_float16_that_is_computed_in_float32_belongs_to_its_nodes() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float16[4, 16, 16] x) => (float16[4, 16, 16] y)
        { [mm0] a = MatMul(x, x)  [soft] b = Softmax<axis = -1>(a)  [mm1] c = MatMul(b, x)  [erf] y = Erf(c) }"""
    kernels = profile(onnx.parser.parse_model(text), runs=2).kernels
    inserted = [kernel for kernel in kernels if kernel.edge]
    assert {kernel.edge for kernel in inserted} == {"x", "y"}
    computed = {kernel.op: kernel.nodes for kernel in kernels if not kernel.edge}
    assert computed.pop("MatMul") in ((0,), (2,))
    assert computed.pop("Erf") == (3,)
    assert set(computed.values()) == {(1,)}
    assert [kernel.nodes for kernel in kernels if kernel.op == "MatMul"] == [(0,), (2,)]


def test_nodes_without_names_and_with_the_same_name_are_told_apart() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[64, 64] x) => (float[64, 64] z) { a = Sin(x)  b = Cos(a)  [n] c = Sin(b)  [n] z = Cos(c) }""")
    found = profile(proto, runs=2, warmup=0, optimization="off")
    assert sorted(kernel.nodes for kernel in found.kernels) == [(0,), (1,), (2,), (3,)]
    assert [row["status"] for row in found.rows("node")] == ["measured"] * 4


def test_rows_sum_to_the_time_and_sets_are_not_split(resnet: Profile) -> None:
    found = resnet
    for by in ("kernel", "operator", "provider"):
        assert sum(row["share"] for row in found.rows(by)) == pytest.approx(1)
    assert found.rows("scope")[0]["kernels"] == len(found.kernels)
    rows = found.rows("node")
    assert [row["status"] for row in rows].count("in a set") == 2 * 33 + 3 * 16
    single = sum(kernel.median for kernel in found.kernels if len(kernel.nodes) == 1 and not kernel.edge)
    assert sum(row["seconds"] or 0 for row in rows) == pytest.approx(single)
    for by in get_args(By):
        assert all(list(found.to_frame(by).columns) == list(row) for row in found.rows(by)[:1])
    assert found.rows("fallback") == []
    conv = max((row for row in found.rows() if row["op"] == "Conv"), key=lambda row: row["seconds"])
    assert found.peak is not None
    assert 0 < conv["gflops"] < 20 * found.peak[0] / 1e9
    assert found.memory_peak


def test_a_message_names_what_takes_the_time(resnet: Profile) -> None:
    found = resnet
    layer, share, op, place = re.match(
        r"'(.+)' takes (\d+)% of a run of .+?; the slowest kernel, (\w+) (?:in )?'(.+?)', ", found.message
    ).groups()  # type: ignore[union-attr]  # it matches
    kernels, tree = found.kernels, scopes(found.graph)
    inside = [
        kernel.median
        for kernel, scope in zip(kernels, found.kernel_scopes, strict=True)
        if scope >= 0 and f"{tree.scope_path[scope]}/".startswith(f"{layer}/")
    ]
    assert sum(inside) / sum(kernel.median for kernel in kernels) == pytest.approx(int(share) / 100, abs=0.02)
    slowest = max(zip(kernels, found.kernel_scopes, strict=True), key=lambda pair: pair[0].median)
    assert op == slowest[0].op
    assert place in (found.graph.names[slowest[0].nodes[0]], tree.scope_path[slowest[1]])
    assert found.message.endswith("all on CPU. feeds: random, pixel_values 1×3×224×224.")
    assert "100% mapped" in repr(found)


def test_the_time_of_other_work_is_told_apart_from_that_of_kernels(resnet: Profile) -> None:
    runs = 5
    calm = {number: np.full(runs, 1e-3) for number in range(len(resnet.kernels))}
    disturbed = {number: seconds.copy() for number, seconds in calm.items()}
    for run in range(runs):
        disturbed[run][run] = 1.0  # another kernel waits in each run
    quiet, loud = changed(resnet, calm), changed(resnet, disturbed)
    assert "% of a run of 58 ms; " in quiet.message
    assert loud.message == quiet.message
    assert not any("disturbed" in fact for fact in quiet.facts)
    assert "disturbed by other work: 58 ms if no kernel had waited for it" in loud.facts


def test_a_profile_survives_a_file_and_is_refused_for_another_model(tmp_path: Path) -> None:
    path = models.detection()
    found = profile(path, runs=3, threads=1)
    again = Profile.load(found.save(tmp_path / "profile.json"), path)
    assert again.rows("node") == found.rows("node")
    assert again.message == found.message
    with pytest.raises(OnnxNbError, match="other nodes than"):
        Profile.load(tmp_path / "profile.json", models.control_flow())
    events = json.loads(found.to_chrome_trace(tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == len(found.spans) == sum(kernel.calls for kernel in found.kernels)
    assert all(set(event["args"]["nodes"]) <= set(found.graph.names) for event in events)


def test_a_profile_has_the_roofline_of_its_own_machine(tmp_path: Path) -> None:
    found = profile(models.detection(), runs=1, warmup=0, threads=1)
    saved = found.save(tmp_path / "saved.json")
    text = json.loads(saved.read_text())
    assert tuple(text["peak"]) == found.peak
    saved.write_text(json.dumps({**text, "peak": [1e15, 1e13]}))  # as a larger machine
    far = Profile.load(saved, models.detection())
    assert far.peak == (1e15, 1e13)
    assert tuple(resource_columns(far).meta["speeds"]) == far.peak
    assert Profile.load(far.save(tmp_path / "again.json"), models.detection()).peak == far.peak
    saved.write_text(json.dumps({name: value for name, value in text.items() if name != "peak"}))  # as older versions
    read = Profile.read(traced(models.detection(), tmp_path), models.detection())
    for unknown in (Profile.load(saved, models.detection()), read):
        assert unknown.peak is None
        assert tuple(resource_columns(unknown).meta["speeds"]) == (0, 0)
        assert "what its machine can do is unknown: no roofline" in unknown.facts
    assert "no roofline" not in " ".join((*far.facts, *found.facts))
    assert Profile.read(traced(models.detection(), tmp_path), models.detection(), peak=(1e9, 2e9)).peak == (1e9, 2e9)


@pytest.mark.parametrize("level", ["all", "extended", "basic", "off"])
def test_a_file_of_onnxruntime_is_read(level: str, tmp_path: Path) -> None:
    path = models.exported("bert", dynamo=False, small=True)
    found = Profile.read(traced(path, tmp_path, level, runs=3), path, warmup=1)
    assert (found.fit, len(found.run_seconds)) == (1, 2)
    assert found.mapped == pytest.approx(1)


def test_a_truncated_file_has_its_complete_runs(tmp_path: Path) -> None:
    path, whole = models.detection(), traced(models.detection(), tmp_path, runs=4)
    data = whole.read_bytes()
    end = data.index(b'"model_run"', data.index(b'"model_run"') + 1)
    for cut in (end + 3000, data.index(b"]", end + 1000) + 1):
        (tmp_path / "part.json").write_bytes(data[:cut])
        found = Profile.read(tmp_path / "part.json", path)
        assert len(found.run_seconds) == 2
        assert "truncated: it has 2 complete runs" in found.message
    (tmp_path / "part.json").write_bytes(data[:3000])
    with pytest.raises(OnnxNbError, match="no complete run of the model: it is truncated"):
        Profile.read(tmp_path / "part.json", path)
    with pytest.raises(OnnxNbError, match=r"Profile\.load"):
        Profile.read(found.save(tmp_path / "saved.json"), path)


def test_a_profile_of_another_model_says_how_many_names_fit(tmp_path: Path) -> None:
    file = traced(models.detection(), tmp_path)
    with pytest.raises(OnnxNbError, match=r"no kernel in .* has a name of"):
        Profile.read(file, models.chain(60))
    proto = onnx.load(models.detection())
    for node in proto.graph.node[:-4]:
        node.name = f"other {node.name}"
    found = Profile.read(traced(models.detection(), tmp_path, "off"), proto)
    assert 0 < found.fit < 1
    assert f"{found.fit:.0%} of the names" in found.message
    assert any(not kernel.nodes for kernel in found.kernels)


EVENT = b'{"cat" : "Node","pid" :1,"tid" :1,"dur" :%s,"ts" :2,"ph" : "X","name" :"Neg_0_kernel_time","args" : %s},\n'
RUN = b'{"cat" : "Session","pid" :1,"tid" :1,"dur" :10,"ts" :1,"ph" : "X","name" :"model_run","args" : {}}\n]'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 100_000,
        b'[{"cat":"Node","name":"a_kernel_time","dur":1e999,"ts":0}]',
        b'[{"cat":"Node","name":"a_kernel_time","dur":%s,"ts":0}]' % (b"9" * 30),
        b"[\n" + EVENT % (b"9" * 400, b"{}") + RUN,
        b"[\n" + EVENT % (b"5", b"[" * 100_000) + RUN,
        b"[\n" + EVENT % (b"5", b"[]") + RUN,
        b"[\n" + (EVENT % (b"5", b"{}")).replace(b"Neg_0", rb"\x") + RUN,
        None,
    ],
    ids=["empty", "nested", "infinite", "long number", "long line", "nested event", "no object", "escape", "fifo"],
)
def test_a_hostile_profile_is_read_or_refused(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    if data is None:
        os.mkfifo(path)
    else:
        path.write_bytes(data)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    for read in (Profile.read, Profile.load):
        with contextlib.suppress(OnnxNbError):  # whatever else it raises is a fault
            found = read(path, onnx.parser.parse_model(text))
            assert math.isfinite(found.seconds)
            found.rows()


def test_a_file_in_another_writing_is_read(tmp_path: Path) -> None:
    file = traced(models.detection(), tmp_path)
    (tmp_path / "pretty.json").write_text(json.dumps({"traceEvents": json.loads(file.read_text())}, indent=1))
    found, same = (Profile.read(each, models.detection()) for each in (tmp_path / "pretty.json", file))
    assert found.rows() == same.rows()


def test_the_run_on_the_timeline_is_one_in_which_no_kernel_waited(tmp_path: Path) -> None:
    lasted = [(10, 900), (11, 12), (800, 11)]  # microseconds of two kernels in three runs
    events = []
    for run, each in enumerate(lasted):
        start = 10_000 * run
        events.append({"cat": "Session", "name": "model_run", "ts": start, "dur": sum(each) + 2})
        for at, name, duration in ((start + 1, "first", each[0]), (start + 1 + each[0], "second", each[1])):
            events.append({"cat": "Node", "name": f"{name}_kernel_time", "ts": at, "dur": duration})
    file = tmp_path / "profile.json"
    file.write_text(json.dumps([{"ph": "X", "pid": 1, "tid": 1, "args": {}} | event for event in events]))
    nodes = [helper.make_node("Neg", [a], [b], name=name) for a, b, name in (("x", "h", "first"), ("h", "y", "second"))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    found = Profile.read(file, helper.make_model(helper.make_graph(nodes, "two", ends[:1], ends[1:])))
    assert [round(span.seconds * 1e6) for span in found.spans] == [11, 12]


def test_the_tables_of_a_profile_have_a_bound_in_its_size(tmp_path: Path) -> None:
    """Of n runs and n kernels, each in one run, a table would have n² numbers; so would the depth of n nested loops."""
    events = list[dict[str, Any]]()
    for n in range(3000):
        events.append({"cat": "Session", "name": "model_run", "ts": 10 * n, "dur": 5})
        events.append({"cat": "Node", "name": f"n{n}_kernel_time", "ts": 10 * n + 1, "dur": 2})
    file = tmp_path / "profile.json"
    file.write_text(json.dumps([{"ph": "X", "pid": 1, "tid": 1, "args": {}} | event for event in events]))
    with pytest.raises(OnnxNbError, match=r"profile.json' has 3,000 runs and 3,000 kernels, of which few are in a run"):
        Profile.read(file, models.detection())
    count = 30_000
    events = [{"cat": "Session", "name": "model_run", "ts": 0, "dur": 3 * count}]
    for n in range(count):
        event = {
            "cat": "Node",
            "name": f"n{n}_kernel_time",
            "ts": n,
            "dur": 2 * (count - n),
            "args": {"op_name": "Loop"},
        }
        events.append(event)
    file.write_text(json.dumps([{"ph": "X", "pid": 1, "tid": 1} | event for event in events]))
    started = time.perf_counter()
    with pytest.raises(OnnxNbError, match="no kernel in"):
        Profile.read(file, models.detection())
    assert time.perf_counter() - started < 20


def test_options_of_a_session_are_used_and_left_as_they_were() -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    found = profile(models.detection(), runs=1, warmup=0, session_options=options)
    assert not found.inserted
    assert {kernel.threads for kernel in found.kernels} == {1}
    assert (options.enable_profiling, options.optimized_model_filepath) == (False, "")
    assert options.intra_op_num_threads == 1


def test_what_cannot_be_profiled_is_named() -> None:
    with pytest.raises(OnnxNbError, match="a profile of 0 runs"):
        profile(models.detection(), runs=0)
    with pytest.raises(OnnxNbError, match=r"onnxruntime has no 'NoneExecutionProvider' here"):
        profile(models.detection(), providers=["NoneExecutionProvider"])
    with pytest.raises(TypeError, match=r"session_options as onnxruntime.SessionOptions, not dict"):
        profile(models.detection(), session_options={})
    with pytest.raises(OnnxNbError, match=r"no optimization 'most'.* Use 'all' or 'layout' or"):
        profile(models.detection(), optimization="most")  # type: ignore[arg-type]


def test_the_optimized_model_has_the_node_of_each_kernel(resnet: Profile) -> None:
    assert resnet.optimized is not None
    nodes = resnet.optimized.proto.graph.node
    assert all(nodes[kernel.optimized].op_type == kernel.op for kernel in resnet.kernels)
    assert all(kernel.types for kernel in resnet.kernels)
    assert "114 nodes fused into 49 kernels" in resnet.facts


def changed(found: Profile, seconds: dict[int, np.ndarray]) -> Profile:
    """Return a profile with other seconds for some kernels."""
    kernels = [
        dataclasses.replace(kernel, seconds=seconds.get(number, kernel.seconds))
        for number, kernel in enumerate(found.kernels)
    ]
    return dataclasses.replace(found, kernels=tuple(kernels))


def test_a_difference_within_the_spread_is_noise() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[64, 64] x) => (float[64, 64] z) { a = Sin(x)  b = Cos(a)  z = Tanh(b) }""")
    measured = profile(proto, runs=5, warmup=0, optimization="off", threads=1)
    still, wide = np.full(5, 1e-3), np.asarray([2, 5, 1, 4, 3]) * 1e-3
    before = changed(measured, {0: still, 1: wide, 2: still})
    after = changed(measured, {0: still + 1e-4, 1: wide + 1e-4, 2: still - 5e-4})
    rows = before.compare(after).rows()
    assert [(row["op"], row["verdict"]) for row in rows] == [("Tanh", "faster"), ("Sin", "slower"), ("Cos", "noise")]
    assert [row["difference"] for row in rows] == pytest.approx([-5e-4, 1e-4, 1e-4])
    assert rows[2]["noise"] == pytest.approx(4.001e-3)
    assert "Only" not in before.compare(after).message
    assert {row["verdict"] for row in before.compare(before).rows("operator")} == {"noise"}
    assert list(before.compare(after).to_frame().columns) == list(rows[0])
    with pytest.raises(OnnxNbError, match="have no node in common"):
        before.compare(profile(models.detection(), runs=1, threads=1))


def noisy(noise: str, generator: np.random.Generator, runs: int, kernels: int) -> np.ndarray:
    """Return the seconds of kernels of 2 µs to 5 ms, with about 5% of noise, as a clock of microseconds counts them."""
    seconds = np.exp(np.linspace(np.log(2e-6), np.log(5e-3), kernels))
    factor = 0.05 * generator.standard_normal((runs, kernels))
    if noise == "outliers":
        factor = 0.03 * generator.standard_t(2, (runs, kernels)) + 1.6 * (generator.random((runs, kernels)) < 0.05)
    if noise == "repeated":  # each run resembles the one before
        for run in range(1, runs):
            factor[run] = 0.7 * factor[run - 1] + 0.7 * factor[run]
    if noise == "other programs":
        factor += np.abs(0.3 * generator.standard_normal((runs, 1)))
    if noise == "machine":
        factor += 0.3 * generator.standard_normal()
    if noise == "session":
        factor += 0.05 * generator.standard_normal(kernels)
    ticks = np.floor(seconds * np.exp(np.clip(factor, -3, 3)) * 1e6 + generator.random((runs, kernels)))
    return np.asarray(ticks * 1e-6)


def test_equal_profiles_raise_no_alarm_and_a_slow_kernel_is_found(deep: Profile) -> None:
    generator, kernels = np.random.default_rng(0), len(deep.kernels)

    def measured(noise: str) -> tuple[Profile, np.ndarray]:
        seconds = noisy(noise, generator, 20, kernels)
        return changed(deep, dict(enumerate(seconds.T))), seconds

    for noise in ("independent", "outliers", "repeated", "other programs", "machine", "session"):
        alarms = 0
        for _ in range(10_000 // kernels):
            found = measured(noise)[0].compare(measured(noise)[0])
            alarms += sum(change.verdict != "noise" for change in found.changes)
        assert alarms <= 1, noise
    for noise in ("independent", "outliers", "other programs", "machine"):
        (before, _), (after, seconds) = measured(noise), measured(noise)
        slow = changed(after, {kernels - 9: seconds[:, kernels - 9] * 1.2})
        changes = [change for change in before.compare(slow).changes if change.verdict != "noise"]
        assert [(change.verdict, change.kernels[1]) for change in changes] == [("slower", (kernels - 9,))], noise
    slower = changed(after, dict(enumerate(1.5 * seconds.T)))
    assert before.compare(slower).drift == pytest.approx(1.5 * after.compare(before).drift ** -1, rel=0.02)
    assert "which is the machine" in after.compare(slower).message


@pytest.fixture(scope="module")
def deep() -> Profile:
    """A profile of 1,000 kernels."""
    return profile(models.chain(1000), runs=1, warmup=0, threads=1, optimization="off")


def test_runs_are_spread_over_sessions(tmp_path: Path) -> None:
    path = models.exported("mobilevit", dynamo=True, small=True)
    found = profile(path, runs=5, warmup=1, sessions=2, threads=1)
    assert (found.sessions, len(found.run_seconds)) == ((3, 2), 5)
    assert profile(path, runs=5, warmup=0, threads=1).sessions == (2, 2, 1)
    one = profile(path, runs=5, warmup=1, sessions=1, threads=1)
    assert one.sessions == ()
    # each kernel ran in each run of each session, also those whose names onnxruntime makes up anew
    assert all((kernel.seconds > 0).any() for kernel in found.kernels if kernel.median > 5e-6)
    computed = [sorted((kernel.op, kernel.nodes) for kernel in each.kernels) for each in (found, one)]
    assert computed[0] == computed[1]  # the order of equal ones differs from session to session
    assert found.notes == ("feeds: random, pixel_values 1×3×128×128",)
    assert found.mapped == pytest.approx(1)
    assert all(inner <= run * 1.01 for inner, run in zip(found.kernel_seconds, found.run_seconds, strict=True))
    assert Profile.load(found.save(tmp_path / "saved.json"), path).sessions == (3, 2)
    for sessions in (0, 6):
        with pytest.raises(OnnxNbError, match=f"5 runs cannot be spread over {sessions} sessions"):
            profile(path, runs=5, sessions=sessions)


def test_what_differs_between_sessions_is_noise(deep: Profile) -> None:
    generator, count = np.random.default_rng(2), len(deep.kernels)

    def measured(sessions: int) -> tuple[Profile, np.ndarray]:
        parts = [noisy("session", generator, 60 // sessions, count) for _ in range(sessions)]
        seconds = np.concatenate(parts)
        found = changed(deep, dict(enumerate(seconds.T)))
        return dataclasses.replace(found, sessions=tuple(map(len, parts)) if sessions > 1 else ()), seconds

    hits = dict[int, int]()
    for sessions in (1, SESSIONS):
        hits[sessions] = alarms = 0
        for kernel in range(count // 2, count, count // 60):
            (before, _), (after, seconds) = measured(sessions), measured(sessions)
            slow = changed(after, {kernel: seconds[:, kernel] * 1.3})
            changes = [change for change in before.compare(slow).changes if change.verdict != "noise"]
            hits[sessions] += any(change.kernels[1] == (kernel,) for change in changes)
            alarms += sum(change.kernels[1] != (kernel,) for change in changes)
        assert alarms <= 1, f"{sessions} sessions"
    assert hits[1] < hits[SESSIONS]
    assert hits[SESSIONS] >= 25


def test_kernels_that_overlap_are_named() -> None:
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    found = profile(models.detection(), runs=1, warmup=0, threads=1, session_options=options)
    assert found.mapped == pytest.approx(1)
    assert found.made_with["execution"] == "parallel"
    slow, fast = (dataclasses.replace(found, run_seconds=(found.seconds * factor,)) for factor in (4, 0.5))
    assert "kernels take 25% of a run" in slow.facts
    assert "kernels overlap: together they take 2.00× as long as a run" in fast.facts


def test_threads_of_parallel_execution_are_those_of_the_file(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 64] x) => (float[64, 64] z) {
        a = Sin(x)  b = Cos(x)  c = Tanh(x)  d = MatMul(a, a)  e = MatMul(b, b)  f = MatMul(c, c)  z = Sum(d, e, f) }"""
    onnx.save(onnx.parser.parse_model(text), path := tmp_path / "branches.onnx")
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads, options.intra_op_num_threads = 3, 1
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "parallel")
    session = onnxruntime.InferenceSession(path, options)
    session.run(None, {"x": np.ones((64, 64), np.float32)})
    file = Path(session.end_profiling())
    events = [event for event in json.loads(file.read_text()) if event["cat"] == "Node"]
    by_hand = {event["name"]: event["tid"] for event in events}
    read = Profile.read(file, path)
    assert {f"{read.kernels[span.kernel].name}_kernel_time": span.thread for span in read.spans} == by_hand
    options = onnxruntime.SessionOptions()
    options.execution_mode, options.inter_op_num_threads = onnxruntime.ExecutionMode.ORT_PARALLEL, 3
    found = profile(path, runs=2, session_options=options)
    is_one = len({span.thread for span in found.spans}) == 1
    assert is_one == (len(set(by_hand.values())) == 1)
    assert any("parallel execution, but all on one thread" in fact for fact in found.facts) == is_one


def test_session_options_that_hold_the_weights_of_a_model_are_refused() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[256, 256] x) => (float[256, 256] y) { y = Add(x, w) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((256, 256), np.float32), "w"))
    options = onnxruntime.SessionOptions()
    profile(proto, runs=2, sessions=2)
    with pytest.raises(OnnxNbError, match="hold weights of a model in memory already"):
        profile(proto, runs=2, sessions=2, session_options=options)


def test_what_differs_between_two_profiles_is_named(tmp_path: Path) -> None:
    first = profile(models.detection(), runs=1, warmup=0, threads=1)
    loaded = Profile.load(first.save(tmp_path / "saved.json"), first.model)
    assert first.compare(loaded).differences == ()
    other = dataclasses.replace(loaded, made_with={**loaded.made_with, "onnxruntime": "1.0", "threads": "4"})
    assert first.compare(other).differences == (
        "threads 1 → 4",
        f"onnxruntime {onnxruntime.__version__} → 1.0",
    )
    plain = profile(models.detection(), runs=1, warmup=0, threads=1, optimization="off")
    assert first.compare(plain).differences == ("optimization all → off",)
    assert "What differs: optimization all → off" in first.compare(plain).message


def test_fused_kernels_are_compared_with_those_of_the_same_nodes() -> None:
    path = models.exported("bert", dynamo=True, small=True)
    fused = profile(path, runs=2, warmup=0, threads=1)
    plain = profile(path, runs=2, warmup=0, threads=1, optimization="off")
    found = plain.compare(fused)
    changes = [change for change in found.changes if change.kernels[0] and change.kernels[1]]
    assert any(change.op == "SkipLayerNormalization" and change.before_op.startswith("Add") for change in changes)
    for change in changes:
        sides = [
            {node for number in numbers for node in side.kernels[number].nodes}
            for side, numbers in zip((plain, fused), change.kernels, strict=True)
        ]
        assert not any(
            side.kernels[n].edge for side, own in zip((plain, fused), change.kernels, strict=True) for n in own
        )
        assert sides[1] <= sides[0] or sides[0] <= sides[1]
    total = sum(change.after for change in found.changes)
    assert total == pytest.approx(sum(kernel.median for kernel in fused.kernels), rel=0.2)
    assert "Only 2 runs" in found.message


@pytest.fixture(scope="module")
def two() -> Profile:
    """A profile that `record` made on two providers, one with memory of its own."""
    return Profile.read(DATA / "webgpu_and_cpu.json", model())


def test_copies_between_providers_stand_on_the_edges_where_onnxruntime_put_them(two: Profile) -> None:
    truth = {(each["name"], each["op"], each["inside"]): each["edge"] for each in TRUTH["copies"]}
    found = {
        (kernel.name, kernel.op, two.kernels[kernel.parent].name if kernel.parent >= 0 else ""): kernel.edge
        for kernel in two.copies
    }
    assert found == truth
    assert two.mapped == pytest.approx(1)
    assert (two.fit, len(two.run_seconds)) == (1, 20)
    assert {kernel.how for kernel in two.copies} == {"edge"}
    makers = {name: node.name for node in model().graph.node for name in node.output}
    for kernel in two.copies:
        if kernel.edge in makers:
            assert [two.graph.names[node] for node in kernel.nodes] == [makers[kernel.edge]]
    assert "of unknown nodes" not in two.message


def test_each_node_of_two_providers_is_on_its_own(two: Profile) -> None:
    by_name = {name.rsplit("/", 1)[-1]: provider for name, provider in TRUTH["providers"].items()}
    rows = {row["node"].rsplit("/", 1)[-1]: row["provider"] for row in two.rows("node")}
    assert {name: provider for name, provider in rows.items() if provider} == {
        name: provider
        for name, provider in by_name.items()
        if name != "neg"  # the branch that did not run
    }
    counts = {row["provider"]: row["nodes"] for row in two.rows("provider")}
    providers = [provider for name, provider in by_name.items() if name != "neg"]
    assert counts == {provider: providers.count(provider) for provider in set(providers)}


def test_kernels_whose_names_another_session_made_up_are_found_by_their_order(tmp_path: Path) -> None:
    path = models.exported("bert", dynamo=False, small=True)
    file = traced(path, tmp_path, "off")
    whole = Profile.read(file, path)
    renamed = {}
    for number, kernel in enumerate(whole.kernels):
        if kernel.op in ("Erf", "Softmax"):  # a node for another layout keeps its name, a fused one may not
            renamed[kernel.name] = f"{kernel.op if kernel.op == 'Erf' else kernel.name}_token_{number}"
    text = file.read_text()
    for name, other in renamed.items():
        text = text.replace(f'"{name}_kernel_time"', f'"{other}_kernel_time"')
    file.write_text(text)
    found = Profile.read(file, path)
    assert (len(renamed), found.fit) == (4, 1)
    assert [kernel.nodes for kernel in found.kernels] == [kernel.nodes for kernel in whole.kernels]


@pytest.mark.parametrize("names", [("Memcpy", "Memcpy_token_7"), ("copy_1", "copy_2")])
def test_a_copy_that_fits_several_edges_is_placed_on_none(names: tuple[str, str], tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4, 4] x) => (float[4, 4] y) {
        [mm] b = MatMul(x, x)  [neg] a = Neg(b)  [add] y = Add(a, b) }"""
    onnx.save(onnx.parser.parse_model(text), path := tmp_path / "model.onnx")
    events = json.loads(traced(path, tmp_path, "off", runs=20).read_text())
    kernels = [event for event in events if event["cat"] == "Node"]
    for event in kernels:
        if event["name"].startswith(("mm", "neg")):
            event["args"]["provider"] = "FarExecutionProvider"
        if event["name"].startswith("neg"):  # both copies run between the last node there and the first one here
            copied = {**event, "ts": event["ts"] + event["dur"], "dur": 0}
            for name in names:
                about = {**event["args"], "op_name": "MemcpyToHost", "node_index": f"9{names.index(name)}"}
                events.append({**copied, "name": f"{name}_kernel_time", "args": about})
    (tmp_path / "two.json").write_text(json.dumps(events))
    found = Profile.read(tmp_path / "two.json", path)
    if names[0] == "Memcpy":  # onnxruntime names copies in the order of the names of their tensors
        assert [(kernel.name, kernel.edge) for kernel in found.copies] == [(names[0], "a"), (names[1], "b")]
        return
    assert [(kernel.edges, kernel.edge, kernel.nodes) for kernel in found.copies] == [(("b", "a"), "", ())] * 2
    assert "2 of them on one of several edges: 'copy_1' on 'b' or 'a'" in found.message
    again = Profile.load(found.save(tmp_path / "saved.json"), path)
    assert [kernel.edges for kernel in again.kernels] == [kernel.edges for kernel in found.kernels]


def test_what_is_not_on_the_provider_asked_for_is_named_with_its_reason(two: Profile) -> None:
    assert two.wanted == "WebGpuExecutionProvider"
    rows = two.rows("fallback")
    on_cpu = {name for name, provider in TRUTH["providers"].items() if provider == "CPUExecutionProvider"}
    assert {row["kernel"] for row in rows} == on_cpu
    reasons = {row["kernel"]: row["reason"] for row in rows}
    assert reasons["nz"].startswith("WebGpu did not take them, probably for want of a kernel")
    assert reasons["double"].endswith("probably because they compute shapes, which onnxruntime leaves on the CPU")
    assert {row["assigned"] for row in rows} == {""}  # a file does not say where onnxruntime put which node
    assert re.search(r"IsNaN ×2.*: WebGpu did not take them", two.message)
    assert "9 copies between providers" in two.message
    assert list(two.to_frame("fallback").columns) == list(rows[0])
    cpu = Profile.read(DATA / "cpu.json", model())
    assert cpu.rows("fallback") == []
    changes = {change.name: change for change in cpu.compare(two).changes}
    assert (changes["mm"].before_provider, changes["mm"].provider) == ("CPUExecutionProvider", two.wanted)
    copy = changes["MemcpyToHost on a"]
    assert (changes["mm"].verdict, copy.before, copy.after > 0) == ("slower", 0, True)


def test_a_provider_that_ran_nothing_is_named_first() -> None:
    providers = ["AzureExecutionProvider", "CPUExecutionProvider"]  # the first is built in, and has no kernels
    found = profile(models.detection(), runs=1, warmup=0, threads=1, providers=providers)
    assert found.message.startswith("AzureExecutionProvider was asked for and took no node")
    assert {row["wanted"] for row in found.rows("fallback")} == {"AzureExecutionProvider"}
    assert len(found.rows("fallback")) == len(found.kernels)


def test_onnxruntime_is_asked_where_it_put_each_node(tmp_path: Path) -> None:
    path, entry = models.detection(), "session.record_ep_graph_assignment_info"
    providers = ["AzureExecutionProvider", "CPUExecutionProvider"]
    options = onnxruntime.SessionOptions()
    found = profile(path, runs=1, warmup=0, optimization="off", providers=providers, session_options=options)
    assert options.get_session_config_entry(entry) == "1"
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    groups = onnxruntime.InferenceSession(path, options, providers=providers).get_provider_graph_assignment_info()
    by_hand = {node.name: group.ep_name for group in groups for node in group.get_nodes()}
    assert {found.graph.names[node]: provider for node, provider in found.assigned.items()} == by_hand
    for row in found.rows("fallback"):
        assert row["assigned"] == "CPUExecutionProvider"
        assert row["reason"].startswith("onnxruntime gave them to CPU, probably ")
    assert Profile.load(found.save(tmp_path / "saved.json"), path).assigned == found.assigned
    assert profile(path, runs=1, warmup=0).assigned == {}


def test_work_is_ended_by_its_progress() -> None:
    done: list[float] = []

    def stop(fraction: float, _: str) -> None:
        done.append(fraction)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(models.detection(), runs=5, progress=stop)
    assert len(done) == 3
    assert onnx_nb.profile(models.detection(), runs=1, progress=lambda fraction, _: done.append(fraction)).kernels
    assert done[-1] == 1


def test_a_norm_that_adds_what_two_layers_give_belongs_to_its_own_layer() -> None:
    """onnxruntime fuses the Add of one scope with the norm of another: its time is of the norm."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights = {"one": np.ones(64), "zero": np.zeros(64)}
    stream = "x"
    for layer in range(4):
        name, width = f"/blocks.{layer}", 64
        weights |= {f"{layer}.{part}": random.normal(size=(width, width)) / 8 for part in "ab"}
        parts: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
            ("MatMul", [stream, f"{layer}.a"], "up/MatMul", {}),
            ("Relu", [f"{name}/up/MatMul"], "act/Relu", {}),
            ("MatMul", [f"{name}/act/Relu", f"{layer}.b"], "down/MatMul", {}),
            ("Add", [stream, f"{name}/down/MatMul"], "Add", {}),
        )
        for op, inputs, place, attributes in parts:
            nodes.append(helper.make_node(op, inputs, [f"{name}/{place}"], f"{name}/{place}", **attributes))
        stream = f"/norms.{layer}/part/LayerNormalization"
        norm = helper.make_node("LayerNormalization", [f"{name}/Add", "one", "zero"], [stream], stream, axis=-1)
        nodes += [norm, helper.make_node("Relu", [stream], [f"/norms.{layer}/part/Relu"], f"/norms.{layer}/part/Relu")]
        stream = f"/norms.{layer}/part/Relu"
    tensors = [numpy_helper.from_array(array.astype(np.float32), key) for key, array in weights.items()]
    ends = [helper.make_tensor_value_info(key, TensorProto.FLOAT, [1, 8, 64]) for key in ("x", stream)]
    graph = helper.make_graph(nodes, "blocks", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    p = onnx_nb.profile(model, runs=2)
    tree = scopes(p.graph)
    pairs = zip(p.kernels, p.kernel_scopes, strict=True)
    fused = [(kernel, scope) for kernel, scope in pairs if kernel.op == "SkipLayerNormalization"]
    norms = [node for node in range(p.graph.node_count) if p.graph.op_type(node) == "LayerNormalization"]
    assert [scope for _, scope in fused] == [int(tree.node_scope[node]) for node in norms]
    assert all({p.graph.op_type(node) for node in kernel.nodes} == {"Add", "LayerNormalization"} for kernel, _ in fused)
    assert any(int(tree.node_scope[node]) != scope for kernel, scope in fused for node in kernel.nodes)


def test_scopes_of_one_name_are_one_row() -> None:
    branch = "then_branch = a () => (float[2] t) { t = Exp(x) }, else_branch = b () => (float[2] e) { e = Sin(x) }"
    text = f"g (float[2] x, bool c) => (float[2] z) {{ p = If (c) <{branch}> q = If (c) <{branch}> z = Add(p, q) }}"
    found = onnx_nb.profile(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), runs=3)
    rows = found.rows("scope")
    assert len({row["scope"] for row in rows}) == len(rows)
    assert [row["kernels"] for row in rows if row["scope"] == "If"] == [sum(k.op == "Exp" for k in found.kernels)]
