"""What a simplification did, in JupyterLab: changes chosen, undone and done again by a person, and the result saved."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import Locator, expect

from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage

# a Reshape to a computed shape, a BatchNormalization behind its Conv, and an Identity between
SMALL = """
import onnx_nb, onnx.parser, numpy as np
from onnx import helper as h, numpy_helper as n, TensorProto as t
rng = np.random.default_rng(0)
w = lambda name, *shape: n.from_array(np.abs(rng.standard_normal(shape)).astype("f"), name)
part = lambda o: "head" if o in ("s", "f", "z", "c", "y") else "stem"
node = lambda op, i, o, **k: h.make_node(op, i, o, f"/{part(o[0])}/{op}", **k)
nodes = [
    node("Conv", ["x", "w"], ["conv"]), node("BatchNormalization", ["conv", "g", "b", "m", "v"], ["bn"]),
    node("Relu", ["bn"], ["relu"]), node("Identity", ["relu"], ["same"]),
    node("Shape", ["same"], ["s"]), node("Gather", ["s", "zero"], ["f"]), node("Unsqueeze", ["f", "axes"], ["z"]),
    node("Concat", ["z", "rest"], ["c"], axis=0), node("Reshape", ["same", "c"], ["y"]),
]
i64 = lambda name, value: n.from_array(np.array(value, np.int64), name)
weights = [w("w", 4, 3, 3, 3), w("g", 4), w("b", 4), w("m", 4), w("v", 4)]
weights += [i64("zero", 0), i64("axes", [0]), i64("rest", [144])]
graph = h.make_graph(nodes, "small", [h.make_tensor_value_info("x", t.FLOAT, ["batch", 3, 8, 8])],
    [h.make_tensor_value_info("y", t.FLOAT, ["batch", 144])], weights)
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
s = onnx_nb.simplify(model, trace=True)
"""


class PanelWidget:
    def __init__(self, lab: JupyterPage) -> None:
        self.lab = lab
        self.root = lab.widget("simplification")
        self.root.scroll_into_view_if_needed()
        self.original = GraphWidget(self.root.locator('.onnx-nb[data-widget="reference"]'))
        self.simplified = GraphWidget(self.root.locator('.onnx-nb[data-widget="candidate"]'))
        self.changes = self.root.get_by_role("grid", name="Changes")

    def selected(self, side: int) -> list[str]:
        found: list[str] = self.root.evaluate(
            """(root, side) => { const {state, columns} = root.onnxNb.pair.views[side];
                return [...state.others, state.selection].filter(t => t !== null).map(t => columns.nameOf(t)); }""",
            side,
        )
        return found

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.root.get_by_role("button", name=name)


def show(lab: JupyterPage, code: str, name: str = "simplified.ipynb") -> PanelWidget:
    lab.open(lab.server.write(name, code + "\np = onnx_nb.SimplificationPanel(s)\np")).run_all()
    return PanelWidget(lab)


def test_a_change_is_shown_in_both_graphs_undone_and_done_again(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    lab.page.set_viewport_size({"width": 1280, "height": 1150})
    panel = show(lab, SMALL)
    lab.screenshot(f"simplification-{lab.theme}")
    expect(panel.root.locator("header").first).to_contain_text("✓ Verified")
    expect(panel.root.locator("header").first).to_contain_text("9 → 3 nodes")
    panel.changes.get_by_role("row").filter(has_text="fuse_bn_into_conv").click()
    assert set(panel.selected(0)) == {"/stem/Conv", "/stem/BatchNormalization"}
    lab.page.wait_for_timeout(700)
    lab.screenshot(f"simplification-change-{lab.theme}")
