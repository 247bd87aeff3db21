"""What a tab of JupyterLab asks its kernel for: the file as the kernel sees it, its view, the cells of a notebook."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb.notebook import document
from tests import models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_views() -> Iterator[None]:
    """Close the views of a test, as the end of its kernel does."""
    yield
    for shown in document._shown.values():
        shown.view.close()
    document._shown.clear()


def value(reply: document.TabReply) -> dict[str, Any]:
    """Return what the tab gets."""
    found: dict[str, Any] = reply._repr_mimebundle_()["application/json"]
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "root" / "sub" / "m.onnx"
    path.parent.mkdir(parents=True)
    shutil.copyfile(models.light("squeezenet"), path)
    return path


def test_a_file_is_found_below_the_root_or_where_the_kernel_started(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = model.stat().st_size
    monkeypatch.chdir(tmp_path)
    assert value(document.view("sub/m.onnx", root=str(tmp_path / "root"), size=size))["file"] == str(model)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert value(document.view("sub/m.onnx", root="~/root", size=size))["file"] == str(model)
    monkeypatch.chdir(model.parent)
    assert value(document.view("elsewhere/m.onnx", root="/nowhere", size=size))["file"] == str(model)
    assert value(document.view("sub/m.onnx"))["file"] == str(model)


def test_a_link_has_its_length_in_the_file_browser(model: Path, tmp_path: Path) -> None:
    link = tmp_path / "root" / "link.onnx"
    link.symlink_to(model)  # as every file in a cache of huggingface_hub
    reply = value(document.view("link.onnx", root=str(tmp_path / "root"), size=link.lstat().st_size))
    assert reply["file"] == str(link)


def test_a_file_of_the_same_name_elsewhere_is_not_taken_for_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    refused = value(document.view("other/m.onnx", root="/nowhere", size=7))
    assert "it is another file, or is being written" in refused["what"]
    assert refused["actions"] == ["again", "choose"]
    refused = value(document.view("far/away.onnx", root="/nowhere"))
    assert (
        f"sees no file 'away.onnx': it looked for '/nowhere/far/away.onnx' and '{model.parent}/away" in refused["what"]
    )
    assert "Choose a kernel that runs where the file is" in refused["now"]
    assert document._shown == {}


def test_a_broken_file_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"<!doctype html>")
    refused = value(document.view("m.onnx", root=str(tmp_path)))
    assert refused == {
        "what": "m.onnx is not an ONNX model: it is an HTML page.",
        "now": "Use the link of the file itself to download it.",
        "actions": ["again"],
    }


def test_a_folder_is_called_one(model: Path) -> None:
    folder = model.rename(model.parent / "inner.onnx").parent.rename(model.parents[1] / "folder.onnx")
    shutil.copy(folder / "inner.onnx", folder / "other.onnx")
    assert value(document.view("folder.onnx", root=str(folder.parent))) == {
        "what": f"'{folder}' is a folder.",
        "now": "Models in it: 'inner.onnx', 'other.onnx'.",
        "actions": ["again"],
    }


def test_a_model_whose_weights_are_missing_is_shown(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.zeros(1000, np.float32), "w")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in "xy"]
    proto = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], [weight]))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="lost.data", size_threshold=0)
    (tmp_path / "lost.data").unlink()
    assert "widget" in value(document.view("m.onnx", root=str(tmp_path)))


def test_an_unchanged_file_has_one_view_and_a_changed_or_renamed_one_its_state(model: Path) -> None:
    root = str(model.parents[1])
    first = value(document.view("sub/m.onnx", root=root))
    assert value(document.view("sub/m.onnx", root=root)) == first
    graph = document._shown[model].view.graph
    graph.direction, graph.view = "right", {"open": ["fire2"]}

    model.write_bytes(model.read_bytes() + onnx.ModelProto(doc_string="again").SerializeToString())
    second = value(document.view("sub/m.onnx", root=root, before=str(model)))
    assert second["widget"] != first["widget"]
    assert graph.comm is None, "the one before is closed"
    renamed = model.rename(model.with_name("n.onnx"))
    third = value(document.view("sub/n.onnx", root=root, before=str(model)))
    assert list(document._shown) == [renamed]
    assert third["file"] == str(renamed)
    graph = document._shown[renamed].view.graph
    assert (graph.direction, graph.view) == ("right", {"open": ["fire2"]})


@pytest.mark.parametrize("chosen", [False, True])
def test_the_cells_of_a_notebook_run(*, chosen: bool, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    file = value(document.view("m.onnx"))["file"]
    if chosen:
        graph = document._shown[model].view.graph
        graph.inputs, graph.outputs = ["data_0"], ["r15"]
    show, cut, compare = value(document.cells(file))["cells"]
    assert "load('m.onnx')" in show, "in its own folder a name does"
    assert ("['data_0'], ['r15']" in cut) is chosen
    names: dict[str, Any] = {}
    for cell in (show, cut, compare):
        exec(cell, names)  # noqa: S102 - the cells are what is tested
    assert isinstance(names["g"], onnx_nb.ModelGraph)
    assert 0 < len(names["part"].proto.graph.node) < len(names["model"].proto.graph.node)
