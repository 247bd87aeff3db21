"""Any message that a page could send: each request is answered once, and none is a fault or changes what is private."""

from __future__ import annotations

import functools
import itertools
import random
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import pytest
import traitlets
from hypothesis import given, settings
from hypothesis import strategies as st

import onnx_nb
from onnx_nb import OnnxNbError
from onnx_nb.widgets._base import OnnxWidget, SharedCode, static_text
from tests.analysis.generate import packages
from tests.depth import DEPTH
from tests.widgets.test_panels import LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@functools.cache
def comparison() -> Any:
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    return onnx_nb.compare_torch(module, (torch.ones(1, 2),))


def model() -> onnx_nb.Model:
    return onnx_nb.load(onnx.parser.parse_model(LOG))


DECODER = packages.decoder(1)
EXAMPLES = 3 * DEPTH
"""Random messages for each request."""

WIDGETS: dict[str, Callable[[], OnnxWidget]] = {
    "ModelGraph": lambda: onnx_nb.ModelGraph(model()),
    "ModelSummary": lambda: onnx_nb.ModelSummary(model()),
    "CapturePanel": lambda: onnx_nb.CapturePanel(onnx_nb.capture(model()), graph=onnx_nb.ModelGraph(model())),
    "ComparisonPanel": lambda: onnx_nb.ComparisonPanel(comparison()),
    "ProfilePanel": lambda: onnx_nb.ProfilePanel(onnx_nb.profile(model(), runs=1, warmup=0, threads=1)),
    "DecodingPanel": lambda: onnx_nb.DecodingPanel(
        onnx_nb.compare_decoding(packages.decoder(1), packages.decoder(1), [3, 4], 1)
    ),
    "DiffPanel": lambda: onnx_nb.DiffPanel(model(), model()),
    "SimplificationPanel": lambda: onnx_nb.SimplificationPanel(onnx_nb.simplify(model(), trace=True)),
    "AuditPanel": lambda: onnx_nb.AuditPanel(model()),
}


def test_every_widget_is_tried() -> None:
    def below(kind: type[Any]) -> Iterator[type[Any]]:
        other: type[Any]
        for other in kind.__subclasses__():
            yield other
            yield from below(other)

    ours = {each.__name__ for each in below(OnnxWidget) if each.__module__.startswith("onnx_nb.")}
    assert ours - set(WIDGETS) <= {"PackedWidget", "LinkedWidget", "GraphWidget", "PairWidget", "ChartWidget"}


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.sampled_from([2**31, 2**53, 2**64, -(2**63), 10**400]),
    st.floats(),
    st.sampled_from(["node", "tensor", "scope", "reference", "candidate", "columns", "a", "z", "slice", "<svg >"]),
    st.text(max_size=5),
    st.sampled_from(["\ud800", "\0", "x" * 10_000]),
)
VALUES = (
    LEAVES
    | st.lists(LEAVES, max_size=3)
    | st.dictionaries(st.sampled_from(["x", "name", ""]), LEAVES | st.lists(LEAVES))
)
NAMES = ("id", "kind", "name", "value", "index", "row", "column", "look", "nodes", "scopes", "inputs", "outputs", "svg")
MORE = ("part", "step", "skipped", "path", "replace", "shapes", "inside", "statistics")
ARGS = st.dictionaries(st.sampled_from((*NAMES, *MORE)), VALUES, max_size=5).map(lambda args: args | inside(args))


def inside(args: dict[str, Any]) -> dict[str, Any]:
    """Keep a path within the working folder."""
    path = args.get("path")
    return {"path": path.translate({ord("/"): "_", ord("~"): "_"})} if isinstance(path, str) else {}


IDS = st.one_of(st.integers(), VALUES.filter(lambda value: value is not None))


@pytest.mark.parametrize("name", WIDGETS)
def test_each_request_is_answered_once_and_none_is_a_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a path that *Save* accepts is relative to it
    widget = WIDGETS[name]()
    answers: list[dict[str, Any]] = []
    came = threading.Semaphore(0)

    def send(content: dict[str, Any], buffers: list[bytes]) -> None:
        if "progress" not in content:
            answers.append(content)
            came.release()

    monkeypatch.setattr(widget, "send", send)
    verbs = [*widget._verbs(), "ping"]
    numbers = itertools.count(1)

    def ask(number: Any, verb: Any, args: Any) -> None:
        for each in ({"id": number, "verb": verb, "args": args}, {"id": next(numbers), "verb": "code"}):
            widget._handle_custom_msg(each, [])  # requests are answered in order: an answer too many would come first
        for _ in range(2):
            assert came.acquire(timeout=120), f"no answer to {verb!r} with {args!r}"
        first, last = answers
        answers.clear()
        assert last["value"] == static_text("widget.js")
        assert len({"value", "error", "cancelled"} & set(first)) == 1
        assert "fault in onnx_nb" not in str(first), f"{verb!r} with {args!r}: {first}"

    @settings(max_examples=EXAMPLES * len(verbs), database=None)
    @given(st.sampled_from(verbs), ARGS)
    def arguments(verb: str, args: dict[str, Any]) -> None:
        ask(next(numbers), verb, args)

    @settings(max_examples=5 * EXAMPLES, database=None)
    @given(IDS, VALUES | st.sampled_from(verbs), VALUES | ARGS)
    def anything(number: Any, verb: Any, args: Any) -> None:
        ask(number, verb, args)

    arguments()
    anything()
    assert not [entry for entry in tmp_path.rglob("*") if entry.suffix == ".tmp"]
    widget.close()


@pytest.mark.parametrize("name", WIDGETS)
def test_a_page_sets_no_private_trait_and_wrong_values_change_nothing(name: str) -> None:
    widget = WIDGETS[name]()
    public = [each for each in widget.keys if not each.startswith("_")]

    def private() -> dict[str, Any]:
        return {each: getattr(widget, each) for each in widget.keys if each.startswith("_") and each != "_view_count"}

    before = private()
    widget.set_state({**dict.fromkeys(before, "alert(1)"), "theme": "dark"})
    assert private() == before
    assert widget.theme == "dark"

    @settings(max_examples=10 * EXAMPLES, database=None)
    @given(st.dictionaries(st.sampled_from(public), VALUES | st.lists(ARGS, max_size=1), max_size=2))
    def state(given: dict[str, Any]) -> None:
        former = {each: getattr(widget, each) for each in given}
        try:
            widget.set_state(given)
        except (traitlets.TraitError, OnnxNbError):
            assert {each: getattr(widget, each) for each in given} == former

    state()
    widget.close()


def test_a_strange_selection_selects_nothing_in_a_linked_panel() -> None:
    graph = onnx_nb.ModelGraph(model())
    panel = onnx_nb.CapturePanel(onnx_nb.capture(graph.model), graph=graph)
    for first in ({}, {"kind": 5}, {"kind": "node", "name": "", "id": "a"}, {"kind": "tensor", "name": [1]}):
        graph.set_state({"selection": [first]})
        assert panel.selection == []


def test_a_page_cannot_replace_the_bundle() -> None:
    onnx_nb.ModelSummary(model())
    code = SharedCode.this()
    assert code is not None
    before = code.code
    code.set_state({"code": "alert(1)"})
    assert code.code == before


def test_clicks_meet_cells_that_change_the_same_widget() -> None:
    """Messages arrive on the thread of a subshell while cells run: each is answered once, and what is left is whole."""
    graph = onnx_nb.ModelGraph(model())
    panel = onnx_nb.CapturePanel(onnx_nb.capture(graph.model), graph=graph)
    changes = onnx_nb.SimplificationPanel(onnx_nb.simplify(model()))
    answers: dict[Any, list[dict[str, Any]]] = {}
    faults: list[BaseException] = []
    lock = threading.Lock()

    def send(content: dict[str, Any], buffers: list[bytes]) -> None:
        if "progress" not in content:
            with lock:
                answers.setdefault(content["id"], []).append(content)

    for widget in (graph, panel, changes):
        widget.send = send
    numbers = itertools.count()
    requests: tuple[tuple[OnnxWidget, str, dict[str, Any]], ...] = (
        (graph, "extract", {"inputs": ["a"], "outputs": ["z"]}),
        (graph, "plan", {"inputs": ["x"], "outputs": ["b"]}),
        (graph, "capture", {"value": 1}),
        (graph, "capture", {}),
        (graph, "statistics", {"value": 1}),
        (graph, "overlay", {"name": "MACs"}),
        (panel, "columns", {"part": "columns"}),
        (changes, "again", {"skipped": []}),
        (changes, "columns", {"part": "candidate"}),
        (changes, "inspect", {"part": "candidate", "kind": "node", "id": 0}),
    )

    def page() -> None:
        dice = random.Random(1)
        try:
            for _ in range(100 * DEPTH):
                widget, verb, args = dice.choice(requests)
                number = next(numbers)
                widget._handle_custom_msg({"id": number, "verb": verb, "args": args}, [])
                if dice.random() < 0.2:
                    widget._handle_custom_msg({"id": number, "cancel": True}, [])
                if threading.current_thread() is pages[0]:  # a subshell is one thread
                    graph.set_state({"selection": [{"kind": "tensor", "name": dice.choice("xabz")}]})
        except BaseException as error:  # noqa: BLE001 - raised below
            faults.append(error)

    pages = [threading.Thread(target=page) for _ in range(2)]
    for thread in pages:
        thread.start()
    dice = random.Random(2)
    while any(thread.is_alive() for thread in pages):
        what = dice.randrange(6)
        if what == 0:
            graph.inputs, graph.outputs = ["a"], ["z"]
            graph.extract()
        elif what == 1:
            graph.feeds = {"x": np.ones(4, np.float32)}
        elif what == 2:
            graph.overlay(dice.choice(["parameters", "MACs"]))
        elif what == 3:
            panel.graph = dice.choice([graph, None])
        elif what == 4:
            panel.selection = [{"kind": "tensor", "name": dice.choice("abz")}]
        else:
            changes.redo()
    for thread in pages:
        thread.join()
    assert not faults
    for widget in (graph, panel, changes):
        channel: Any = widget._channel
        if channel._worker is not None:
            channel._queue.put(None)  # after everything that waits
            channel._worker.join(100 * DEPTH)
            assert not channel._worker.is_alive()
    assert sorted(answers) == list(range(next(numbers)))
    assert {len(given) for given in answers.values()} == {1}
    assert "fault in onnx_nb" not in str(answers)
    assert graph.submodel is not None
    assert len(graph.submodel.proto.graph.node) == 2
