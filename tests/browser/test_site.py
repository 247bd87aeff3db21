"""The gallery of the site: live pages in frames, opened from disk without a network."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import ROOT, SCREENSHOTS

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", "docs", "-d", f"{folder}/trees"]
    subprocess.run([*command, ".", f"{folder}/site", "docs/gallery.md", "docs/index.md"], cwd=ROOT, check=True)
    return folder / "site"


def test_the_gallery_is_live_without_a_kernel_and_without_a_network(
    offline: Page, site: Path, request: pytest.FixtureRequest
) -> None:
    page, theme = offline, request.node.callspec.params["offline"]
    page.goto((site / "docs" / "gallery.html").as_uri())
    frames = page.locator(".live-pages iframe")
    expect(frames).to_have_count(6)
    for place in range(6):
        frames.nth(place).scroll_into_view_if_needed()
        widgets = frames.nth(place).content_frame.locator(".onnx-nb")
        expect(widgets.first).to_be_visible()
    network = frames.nth(0).content_frame
    frames.nth(0).scroll_into_view_if_needed()
    network.get_by_placeholder("Search").fill("op:Gemm")
    network.get_by_placeholder("Search").press("Enter")
    expect(network.get_by_text("aten.linear.default")).to_be_visible()  # in the inspector
    page.screenshot(path=SCREENSHOTS / f"gallery-{theme}.png")
    frames.nth(2).scroll_into_view_if_needed()
    expect(frames.nth(2).content_frame.get_by_text("First differs at 'layers.2.norm1'")).to_be_visible()
    page.screenshot(path=SCREENSHOTS / f"gallery-export-{theme}.png")
