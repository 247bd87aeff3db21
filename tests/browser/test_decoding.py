"""Two decoders in JupyterLab: the first fault, the same in picture and table, and the operations of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest
from playwright.sync_api import expect

from tests.analysis.generate import packages
from tests.analysis.generate.test_compare_decoding import scale

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage

pytestmark = pytest.mark.browser


def test_a_fault_is_seen_chosen_and_drilled_into(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    wrong = packages.decoder(4)
    scale(wrong)
    onnx.save(packages.decoder(4), tmp_path / "right.onnx")
    onnx.save(wrong, tmp_path / "wrong.onnx")
    code = f"c = onnx_nb.compare_decoding({str(tmp_path / 'right.onnx')!r}, {str(tmp_path / 'wrong.onnx')!r}, steps=24)"
    lab.open(lab.server.write("decoding.ipynb", f"import onnx_nb\n{code}\nc")).run_all()
    panel = lab.widget("decoding")
    expect(panel.locator(".onnx-nb-said")).to_contain_text("layer 2 attention")
    step, part = lab.kernel.evaluate("c.first_fault")
    pane = panel.get_by_role("complementary", name="Step")
    expect(pane).to_contain_text(f"step {step}")
    expect(pane).to_contain_text(part)
    lab.screenshot(f"decoding-{lab.theme}", panel)
    picture = panel.get_by_role("slider", name="Errors of layers by step")
    picture.press("ArrowRight")
    expect(pane).to_contain_text(f"step {step + 1}")
    expect(panel.get_by_role("row", selected=True)).to_contain_text(part)
    panel.get_by_role("grid", name="Steps of").get_by_role("row").nth(5).click()
    expect(pane).to_contain_text("step 4")
    pane.get_by_role("button", name="Drill down").click()
    expect(panel.get_by_role("button", name="← All steps")).to_be_focused()
    expect(panel.locator(".onnx-nb-said")).to_contain_text("GroupQueryAttention")
    expect(panel.get_by_role("complementary", name="Point")).to_contain_text("GroupQueryAttention")
    lab.screenshot(f"decoding-operations-{lab.theme}", panel)
    panel.get_by_role("button", name="← All steps").click()
    expect(panel.locator(".onnx-nb-said")).to_contain_text("layer 2 attention")
    lab.page.set_viewport_size({"width": 420, "height": 900})
    lab.screenshot(f"decoding-narrow-{lab.theme}", panel)
    assert panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth")
    assert lab.errors == []
