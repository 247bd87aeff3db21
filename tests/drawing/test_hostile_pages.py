"""Pages and clicks take sizes from declarations, whatever a file claims, and never replace the model."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path

import onnx
import pytest

import onnx_nb
from onnx_nb.analysis.cost import costs
from onnx_nb.analysis.run.random_feeds import feed_shapes
from onnx_nb.analysis.view.inspection import figures
from tests import models
from tests.fuzz import hostile


def test_a_click_and_a_page_allocate_nothing_for_declared_sizes(tmp_path: Path) -> None:
    model = onnx_nb.load(hostile.large_input())
    onnx_nb.ModelGraph(hostile.endless_loop()).to_html(tmp_path / "warm.html")
    tracemalloc.start()
    assert ("activations", "40000.0 GB") in figures(model, "node", 0)
    onnx_nb.ModelGraph(model).to_html(tmp_path / "page.html")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000
    with pytest.raises(onnx_nb.FeedError, match=r"random values for input 'x' of shape \[\d+, 10000000000000\]"):
        onnx_nb.random_feeds(model)


def test_shapes_of_feeds_are_those_of_the_values() -> None:
    for path in (models.light("squeezenet"), models.detection(), models.control_flow()):
        feeds = onnx_nb.random_feeds(path)
        assert feed_shapes(path) == {name: value.shape for name, value in feeds.items() if not isinstance(value, list)}


def test_a_map_input_with_an_open_dimension_has_a_page(tmp_path: Path) -> None:
    model = onnx_nb.load(hostile.map_input())
    assert onnx_nb.ModelGraph(model).to_html(tmp_path / "page.html").stat().st_size > 10_000
    assert ("counted for", "n = 1") in figures(model, "node", 0)


def test_an_error_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fails(*_: object) -> None:
        asked.append(1)
        raise onnx_nb.OnnxNbError("it fails.", advice="Do not.")

    monkeypatch.setattr(costs, "infer", fails)
    model = onnx_nb.load(models.one_node())
    for _ in range(3):
        with pytest.raises(onnx_nb.OnnxNbError, match=r"it fails\. Do not\."):
            onnx_nb.costs(model)
    assert len(asked) == 1


def test_a_rank_that_no_array_has_counts_as_unknown() -> None:
    graph = onnx_nb.types.Graph.of(hostile.high_rank())
    kinds = {name: graph.type_of(graph.value(name)) for name in ("x", "w", "h", "y")}
    assert {kind.dtype for kind in kinds.values()} == {"float32"}
    assert {kind.shape for kind in kinds.values()} == {None}
    assert onnx_nb.summarize(graph.model).parameters == 2**63 + 2  # the constant is one


def test_a_page_does_not_replace_the_model(tmp_path: Path) -> None:
    path = Path(shutil.copy(models.one_node(), tmp_path / "model.onnx"))
    before = path.read_bytes()
    os.link(path, tmp_path / "link.html")
    for page in (path, tmp_path / "link.html"):
        for widget in (onnx_nb.ModelGraph(path), onnx_nb.DiffPanel(models.one_node(), path)):
            with pytest.raises(onnx_nb.OnnxNbError, match=r"is the file of model\.onnx, which would be replaced"):
                widget.to_html(page)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["page\0.html", "folder\0/page.html"])
def test_a_path_that_no_system_has_is_an_error_of_ours(name: str) -> None:
    with pytest.raises(onnx_nb.OnnxNbError, match="null byte"):
        onnx_nb.ModelGraph(models.one_node()).to_html(name)


@pytest.mark.skipif(os.name != "posix", reason="names of files are bytes only there")
def test_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"m\xff\xfe.onnx")
    shutil.copy(models.one_node(), path)
    page = onnx_nb.ModelGraph(path).to_html(tmp_path / "page.html").read_text("utf-8")
    assert r"m\\xff\\xfe.onnx" in page
    assert onnx_nb.summarize(path).path.endswith(r"m\xff\xfe.onnx")
    assert onnx.load(onnx_nb.load(path).save(tmp_path / "copy.onnx")) == onnx.load(str(models.one_node()))
