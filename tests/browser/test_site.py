"""The site builds without a warning and loads nothing from elsewhere; its gallery is live, from disk and offline."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import onnx_nb
from tests import models
from tests.browser.jupyter import ROOT, SCREENSHOTS

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    for name in ("resnet50", "llama", "vit"):
        models.exported(name, dynamo=True)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-c", "docs", "-d", f"{folder}/trees"]
    done = subprocess.run([*command, ".", f"{folder}/site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.relative_to(site): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > 30
    for path, page in pages.items():
        assert not re.search(r"<(?:script|img|iframe|link rel=.stylesheet.)[^>]* (?:src|href)=.https?:", page), path
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    for page in re.findall(r"\]\((.*)\)", listed):
        assert Path(page) in pages
    start = pages[Path("index.html")]
    assert "url=docs/index.html" in start
    assert Path("docs/index.html") in pages
    theirs = pages[Path("docs/coming-from.html")]
    assert "extract_model" in theirs
    assert "onnx_nb.extract(model, inputs, outputs)" in re.sub("<.*?>", "", theirs)
    rules = re.sub("<.*?>", "", pages[Path("docs/api/simplify.html")])
    assert [rule for rule in onnx_nb.rules() if rule not in rules] == []
    assert "eliminate_nop_flatten" in rules  # the name of another tool


def test_the_gallery_is_live_without_a_kernel_and_without_a_network(
    offline: Page, site: Path, request: pytest.FixtureRequest
) -> None:
    page, theme = offline, request.node.callspec.params["offline"]
    page.goto((site / "docs" / "gallery.html").as_uri())
    frames = page.locator(".live-pages iframe")
    expect(frames).to_have_count(7)
    for place in range(7):
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


def test_the_site_is_searched_read_by_keyboard_and_turned_dark(page: Page, site: Path) -> None:
    page.route("https://**", lambda route: route.abort())
    page.emulate_media(color_scheme="light")
    page.goto((site / "docs" / "index.html").as_uri())
    page.keyboard.press("Control+k")
    page.keyboard.type("extract_model")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Coming from another tool").and_(page.locator(".search a")).click()
    expect(page.get_by_role("heading", name="Coming from another tool")).to_be_visible()
    page.get_by_role("link", name="Gallery", exact=True).first.click()
    frame = page.locator(".live-pages iframe").first
    network = frame.content_frame.locator(".onnx-nb").last
    expect(network).not_to_have_class(re.compile("onnx-nb-dark"))
    page.get_by_label("Color mode").filter(visible=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Dark").press("Enter")
    expect(network).to_have_class(re.compile("onnx-nb-dark"))
    for _ in range(20):  # from the button over the other links of the head into the first live page
        page.keyboard.press("Tab")
        if frame.evaluate("(frame) => frame === document.activeElement"):
            break
    page.keyboard.press("Tab")
    expect(frame.content_frame.locator(":focus")).to_have_count(1)
    page.screenshot(path=SCREENSHOTS / "site-dark.png")
