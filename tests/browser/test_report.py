"""A report: several results on one page, opened from disk without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from matplotlib.figure import Figure
from playwright.sync_api import expect

import onnx_nb
from tests import models
from tests.browser.jupyter import SCREENSHOTS
from tests.browser.test_accessibility import AXE, violations

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

NOTES = """# Checklist

- [x] the file opens **offline**
- [ ] `int8` on the device

See [the plot](#plot)."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    exact = onnx_nb.load(models.light("squeezenet"))
    rough = exact.to_proto()
    next(node for node in rough.graph.node if node.op_type == "Relu").op_type = "Sigmoid"
    figure = Figure()
    figure.add_subplot().plot([1, 2, 4])
    return onnx_nb.report(
        tmp_path_factory.mktemp("report") / "squeezenet.html",
        {
            "Model": exact,
            "Errors": onnx_nb.compare(exact, rough),
            "Simplification": onnx_nb.simplify(exact, check_n=1),
            "Values": onnx_nb.capture(exact),
            "Weights": onnx_nb.external_data.audit(exact),
            "Table": [{"file": "a.onnx", "nodes": 66}, {"file": "b.onnx", "nodes": 49}],
            "Plot": figure,
            "Notes": NOTES,
        },
    )


def test_each_tab_of_a_report_opens_by_click_by_key_and_by_address(
    offline: Page, report: Path, request: pytest.FixtureRequest
) -> None:
    page, theme = offline, request.node.callspec.params["offline"]
    page.goto(report.as_uri())
    page.evaluate(AXE.read_text(encoding="utf-8"))
    tabs = page.get_by_role("tab")
    expect(tabs).to_have_count(8)
    expect(page.locator('.onnx-nb[data-widget="graph"][data-state="drawn"]')).to_be_visible()
    for name in ("Errors", "Simplification", "Values", "Weights"):
        tabs.filter(has_text=name).click()
        panel = page.get_by_role("tabpanel", name=name)
        expect(panel.locator(".onnx-nb[data-widget]").first).to_have_attribute("data-state", "drawn")
        expect(page.get_by_role("tabpanel")).to_have_count(1)
        page.wait_for_timeout(300)
        page.screenshot(path=SCREENSHOTS / f"report-{name.lower()}-{theme}.png")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tabpanel", name="Table")).to_contain_text("a.onnx")
    page.keyboard.press("End")
    notes = page.get_by_role("tabpanel", name="Notes")
    expect(notes).to_contain_text("☑ the file opens offline")
    page.screenshot(path=SCREENSHOTS / f"report-notes-{theme}.png")
    notes.get_by_role("link", name="the plot").click()
    image = page.get_by_role("tabpanel", name="Plot").get_by_role("img")
    expect(image).to_be_visible()
    assert image.evaluate("it => it.naturalWidth") > 100
    page.go_back()
    expect(notes).to_be_visible()
    assert page.url.endswith("#notes")
    assert violations(page.locator("body")) == []


def test_a_tensor_chosen_in_one_part_is_chosen_in_the_others(offline: Page, report: Path) -> None:
    page = offline
    page.goto(f"{report.as_uri()}#values")
    rows = page.get_by_role("tabpanel", name="Values").locator(".onnx-nb-tbody .onnx-nb-tr")
    rows.nth(5).click()
    name = rows.nth(5).locator("> *").first.inner_text()
    page.get_by_role("tab", name="Model").click()
    graph = page.locator('.onnx-nb[data-widget="graph"]')
    expect(graph.get_by_label("Inspector")).to_contain_text(name)
    page.get_by_role("tab", name="Errors").click()
    expect(page.get_by_label("Errors of the point")).to_contain_text(name)
