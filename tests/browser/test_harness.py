"""The test harness itself, tried on a standard ipywidget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def test_a_click_in_the_page_reaches_the_kernel_and_comes_back(themed_lab: JupyterPage) -> None:
    name = themed_lab.server.write(
        "harness.ipynb",
        "import ipywidgets\nclicks = []",
        "button = ipywidgets.Button(description='Press')\n"
        "label = ipywidgets.Label('untouched')\n"
        "def pressed(_):\n    clicks.append(1)\n    label.value = f'pressed {len(clicks)}'\n"
        "button.on_click(pressed)\nipywidgets.HBox([button, label])",
    )
    themed_lab.open(name).run_all()
    cell = themed_lab.cell(1).locator(".jp-OutputArea")
    expect(cell.get_by_text("untouched")).to_be_visible()
    cell.get_by_role("button", name="Press").click()
    expect(cell.get_by_text("pressed 1")).to_be_visible()
    assert themed_lab.kernel.evaluate("{'clicks': clicks}") == {"clicks": [1]}
    assert themed_lab.screenshot(f"harness-{themed_lab.theme}").stat().st_size > 10_000
    assert themed_lab.errors == []
