"""What people come for, model on screen: how many clicks and keys each takes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import onnx
import onnx.checker
import onnx.parser
import pytest
from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import await_value

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator

    from tests.browser.jupyter import JupyterPage

SICK = """import numpy as np, onnx, onnx_nb
model = onnx.load({path!r})
weights = {{weight.name: weight for weight in model.graph.initializer}}
convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
weight = weights[convolutions[len(convolutions) // 2].input[1]]
array = onnx.numpy_helper.to_array(weight).copy()
array.flat[0] = np.nan
weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
g = onnx_nb.ModelGraph(model)
g"""


class Person:
    """Counts what a person does."""

    def __init__(self) -> None:
        self.clicks = 0

    def click(self, target: Locator) -> None:
        target.click()
        self.clicks += 1


def shown(lab: JupyterPage, name: str, code: str) -> GraphWidget:
    lab.open(lab.server.write(f"{name}.ipynb", code)).run_all()
    return GraphWidget(lab.widget("graph"))


def test_where_nan_begins_takes_one_click(themed_lab: JupyterPage) -> None:
    lab, person = themed_lab, Person()
    path = models.exported("segformer", dynamo=True)
    graph = shown(lab, "nan", SICK.format(path=str(path)))
    person.click(graph.root.get_by_role("button", name="Color by NaN"))
    legend = graph.root.get_by_role("group", name="Colors: NaN")
    expect(legend).to_contain_text("begins here")
    first = graph.root.locator(".onnx-nb-top li").first
    expect(first).to_be_visible()
    expect(graph.root.locator(".onnx-nb-extract")).to_contain_text("is given to the model with 1 NaN")
    weight = lab.kernel.evaluate("weight.name")
    graph.expect_selection(weight)
    graph.rest()
    assert person.clicks == 1
    lab.screenshot(f"job-nan-{lab.theme}", graph.root)
    assert lab.errors == []


def test_the_slowest_layer_takes_one_click(themed_lab: JupyterPage) -> None:
    lab, person = themed_lab, Person()
    path = models.exported("segformer", dynamo=True)
    graph = shown(lab, "slow", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")
    person.click(graph.root.get_by_role("button", name="Color by Time"))
    top = graph.root.locator(".onnx-nb-top li")
    expect(top).to_have_count(10)
    slowest = lab.kernel.evaluate("max(g.timing.kernels, key=lambda kernel: kernel.median).op")
    assert slowest in top.first.inner_text()
    assert person.clicks == 1
    top.first.get_by_role("button").hover()
    graph.expect("view.state.hover?.kind", "node")
    lab.screenshot(f"job-slow-{lab.theme}", graph.root)
    assert lab.errors == []


def test_the_largest_weight_takes_one_click_and_a_shape_none(lab: JupyterPage) -> None:
    person = Person()
    path = models.exported("bert", dynamo=True)
    graph = shown(lab, "large", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")
    weights = {weight.name: weight for weight in onnx.load(path).graph.initializer}
    assert "1×8" in graph.call("return view.viewport.still();") or "batch" in graph.call(
        "return view.viewport.still();"
    )
    person.click(graph.root.get_by_role("button", name="Color by Size"))
    first = graph.root.locator(".onnx-nb-top button").first
    largest = max(weights.values(), key=lambda weight: weight.ByteSize()).name
    first.hover()
    assert person.clicks == 1
    node = graph.call("return view.columns.nameOf(view.state.hover);")
    assert largest in lab.kernel.evaluate(
        f"list(next(n for n in g.model.proto.graph.node if n.name == {node!r}).input)"
    )
    assert lab.errors == []


def test_cutting_the_encoder_and_saving_it_takes_three_clicks_and_its_name(lab: JupyterPage, tmp_path: Path) -> None:
    person = Person()
    path = shutil.copy(models.exported("bert", dynamo=True), tmp_path / "bert.onnx")
    graph = shown(lab, "cut", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")
    scope = graph.call(
        """const closed = view.columns.childrenOf(0).find(id => !view.state.open.has(id));
           return view.columns.nameOf({kind: 'scope', id: closed});"""
    )
    lab.page.mouse.click(*graph.locate(scope, "scope"))
    person.clicks += 1
    person.click(graph.root.locator(".onnx-nb-inspector").get_by_role("button", name="Extract"))
    person.click(graph.root.get_by_role("button", name="Save…"))
    lab.page.keyboard.press("Control+A")
    lab.page.keyboard.type(str(tmp_path / "encoder.onnx"))
    lab.page.keyboard.press("Enter")
    await_value((tmp_path / "encoder.onnx").exists, wanted=True, what="the file")
    assert person.clicks == 3
    for name in lab.kernel.evaluate("g.inputs + g.outputs"):
        assert graph.find(name, "tensor") is not None, f"the cut is framed, with {name}"
    lab.screenshot("job-cut", graph.root)
    onnx.checker.check_model(str(tmp_path / "encoder.onnx"))
    assert lab.errors == []


@pytest.mark.parametrize("place", ["cell", "tab"])
def test_removing_identity_nodes_takes_two_clicks(lab: JupyterPage, place: str) -> None:
    person = Person()
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] z) { a = Identity(x)  b = Neg(a)  c = Identity(b)  z = Neg(c) }"""
    source, target = (lab.server.root / f"{place}-{name}.onnx" for name in ("identity", "identity-simplified"))
    target.unlink(missing_ok=True)
    onnx.save(onnx.parser.parse_model(text), source)
    if place == "tab":
        graph = GraphWidget(lab.browse().double_click(source.name).document())
    else:
        graph = shown(lab, "identity", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(source)!r})\ng")
    person.click(graph.root.get_by_role("button", name="Simplify"))
    person.click(graph.root.get_by_role("button", name="Save…"))
    lab.page.keyboard.press("Enter")
    await_value(target.exists, wanted=True, what="the file")
    assert person.clicks == 2
    assert [node.op_type for node in onnx.load(target).graph.node] == ["Neg", "Neg"]
    expect(graph.root.locator(".onnx-nb-extract").first).to_contain_text("1 output agrees on 3 random feeds")
    lab.screenshot(f"job-identity-{place}", graph.root)
    assert lab.errors == []


def test_the_worst_layer_of_an_int8_model_takes_no_click(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    paths = models.exported("bert", dynamo=True), models.transformed("bert", "qdq")
    code = f"import onnx_nb\nonnx_nb.compare({str(paths[0])!r}, {str(paths[1])!r})"
    lab.open(lab.server.write("int8.ipynb", code)).run_all()
    panel = lab.widget("comparison")
    rows = panel.get_by_role("grid", name="Layers").locator("[data-row]")
    expect(rows.first).to_be_visible()
    # a layer's share in all squares, from the table of points, in which nothing is grouped
    lab.kernel.run(
        "from collections import Counter\n"
        "rows = Out[1].to_frame()\n"
        "moves = rows.op_type.isin(['Reshape', 'Transpose', 'Slice', 'Unsqueeze', 'Expand', 'Cast'])\n"
        "squares = rows[~moves & (rows.scope != '')].groupby('scope').isolated_rel_l2.apply(lambda x: (x**2).sum())"
    )
    worst = lab.kernel.evaluate("squares.idxmax()")
    expect(panel.locator("header.onnx-nb-bar")).to_contain_text(f"No layer stands out: '{worst}' adds the most")
    expect(rows.first).to_contain_text(worst)
    expect(rows.first).to_have_attribute("aria-selected", "true")
    expect(panel.get_by_label("Errors of the point")).to_contain_text(worst)
    lab.screenshot(f"job-int8-{lab.theme}", panel)
