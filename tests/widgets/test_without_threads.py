"""A kernel that can start no thread and has no onnxruntime, as Pyodide: what runs no model works, the rest says why."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np
import onnx.parser
import onnx.reference
import pytest

import onnx_nb
from onnx_nb import OnnxNbError
from onnx_nb.analysis.run.statistics import Statistics
from onnx_nb.analysis.run.value_recorder import SMALL, Record, statistics_pool
from tests.widgets.test_panels import LOG


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)


@pytest.mark.usefixtures("browser")
def test_a_model_is_shown_clicked_and_extracted_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx_nb.load(onnx.parser.parse_model(LOG))
    summary, graph = onnx_nb.ModelSummary(model), onnx_nb.ModelGraph(model)
    sent: list[dict[str, Any]] = []
    for widget in (summary, graph):
        monkeypatch.setattr(widget, "send", lambda content, _buffers=None: sent.append(content))
    wanted = {"inputs": ["x"], "outputs": ["b"]}
    requests = [
        (summary, "costs", {}),
        (graph, "columns", {"part": "columns"}),
        (graph, "inspect", {"kind": "node", "id": 0}),
        (graph, "plan", wanted),
        (graph, "extract", wanted),
        (graph, "capture", {"value": 0}),
    ]
    for number, (widget, verb, args) in enumerate(requests):
        widget._handle_custom_msg({"id": number, "verb": verb, "args": args}, [])
        assert sent[-1]["id"] == number, f"{verb} was not answered in line"
    *answered, captured = sent
    assert [answer["error"] for answer in answered if "error" in answer] == []
    assert graph.submodel is not None
    feeds = {"x": np.array([-1, -2, -3, -4], np.float32)}
    (found,) = onnx.reference.ReferenceEvaluator(graph.submodel.proto).run(None, feeds)
    np.testing.assert_array_equal(found, np.log(-feeds["x"]))
    assert captured["error"]["type"] == "OnnxNbError"
    assert "onnxruntime" in captured["error"]["message"]
    assert "Pyodide" in captured["error"]["advice"]


@pytest.mark.parametrize("allowed", [0, 1])
def test_statistics_are_those_of_numpy_where_the_system_allows_few_threads(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    start, asked = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        asked.append(thread)
        if len(asked) > allowed:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    arrays = np.random.default_rng(0).normal(size=(6, SMALL // 4 + 1)).astype(np.float32)
    records = [Record("float32", arrays.shape[1:], arrays[0].nbytes) for _ in arrays]
    with statistics_pool() as pool:
        for record, array in zip(records, arrays, strict=True):
            record.add(array, pool, Statistics.of)
        found = [record.settled() for record in records]
    assert len(asked) > allowed, "no thread was refused"
    for statistics, array in zip(found, arrays, strict=True):
        assert statistics is not None
        assert (statistics.min, statistics.max) == (array.min(), array.max())
        assert statistics.mean == pytest.approx(array.mean(dtype=np.float64))


@pytest.mark.usefixtures("browser")
def test_running_a_model_without_onnxruntime_says_what_to_install() -> None:
    with pytest.raises(OnnxNbError, match="no model can be run here") as raised:
        onnx_nb.run(onnx.parser.parse_model(LOG), None)
    assert "pip install onnxruntime" in raised.value.advice
