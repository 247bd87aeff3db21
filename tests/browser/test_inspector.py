"""The inspector of a node, a tensor, a weight and a scope: its contents and its appearance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.test_accessibility import AXE, violations

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def test_each_kind_of_thing_is_inspected(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    path = models.exported("resnet50", dynamo=True)
    source = f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r}, height=900)\ng"
    lab.open(lab.server.write("inspector.ipynb", source)).run_all()
    graph = GraphWidget(lab.widget("graph"))
    inspector = graph.root.get_by_label("Inspector")

    graph.press("Capture")
    expect(graph.root.get_by_role("button", name="Capture again")).to_be_visible()
    node = lab.kernel.evaluate("next(n.name for n in g.model.proto.graph.node if n.op_type == 'MaxPool')")
    graph.reveal(node, "node")
    graph.click(node, "node")
    for text in ("ceil_mode 0", "kernel_shape 3, 3", "modeling_resnet.py:", "FLOPs", "of the run"):
        expect(inspector).to_contain_text(text)
    lab.screenshot(f"inspector-node-{lab.theme}", inspector)
    inspector.get_by_text("Documentation").click()
    expect(inspector).to_contain_text("MaxPool consumes an input tensor")
    lab.screenshot(f"inspector-documentation-{lab.theme}", inspector)

    tensor = lab.kernel.evaluate("next(n.output[0] for n in g.model.proto.graph.node if n.op_type == 'MaxPool')")
    graph.click(tensor, "tensor")
    graph.press("Values")
    inspector.get_by_role("button", name="Channels").click()
    expect(inspector).to_contain_text("Slices 0 to 63 on one scale")
    lab.screenshot(f"inspector-tensor-{lab.theme}", inspector)
    lab.page.add_script_tag(path=AXE)
    assert violations(inspector) == []
    canvas = inspector.get_by_role("img", name="Picture of channels")
    canvas.click(position={"x": 5, "y": 5})
    expect(inspector.get_by_label("Index of dimension 1")).to_have_value("0")

    graph.call("view.dispatch({type: 'select', target: {kind: 'tensor', id: view.columns.graphInputs[0]}});")
    graph.press("Values")
    inspector.get_by_role("button", name="Color").click()
    expect(inspector.get_by_role("img", name="Picture of color")).to_be_visible()
    lab.screenshot(f"inspector-image-{lab.theme}", inspector)

    weight = lab.kernel.evaluate("max(g.model.initializers.values(), key=lambda w: w.nbytes).name")
    graph.call("const t = view.columns.find(args[0], 'tensor'); view.dispatch({type: 'select', target: t});", weight)
    expect(inspector).to_contain_text("mean ± std")
    graph.press("Values")
    expect(inspector.locator("td").first).to_be_visible()
    lab.screenshot(f"inspector-weight-{lab.theme}", inspector)

    graph.call("view.dispatch({type: 'select', target: {kind: 'scope', id: 1}});")
    for text in ("MACs", "FLOPs", "of the run", "parameters"):
        expect(inspector).to_contain_text(text)
    lab.screenshot(f"inspector-scope-{lab.theme}", inspector)
    assert lab.errors == []
