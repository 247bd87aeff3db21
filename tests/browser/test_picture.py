"""The static picture of a graph: hidden while the widget is live, shown otherwise, and saved as a file."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage

SVG = "{http://www.w3.org/2000/svg}"


def pictures(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found = (
        re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', "".join(output["data"]["text/html"]))
        for cell in cells
        for output in cell["outputs"]
        if "text/html" in output.get("data", {})
    )
    return [base64.b64decode(match[1]).decode() for match in found if match]


def test_a_saved_notebook_shows_the_graph_where_no_widget_lives(lab: JupyterPage) -> None:
    path = models.light("densenet121")
    name = lab.server.write("picture.ipynb", f"import onnx_nb\nonnx_nb.load({str(path)!r})")
    lab.open(name).run_all()
    GraphWidget(lab.widget("graph"))
    picture = lab.page.locator("img.onnx-nb-picture")
    expect(picture).to_have_count(1)
    expect(picture).to_be_hidden()
    lab.command("docmanager:save")
    (svg,) = pictures(lab.server.root / name)
    texts = {element.text for element in ET.fromstring(svg).iter(f"{SVG}text")}  # noqa: S314 - we wrote it
    assert {"Conv", "AveragePool"} & texts


def test_the_picture_follows_what_is_open_and_is_saved_as_a_file(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    source = f"import onnx_nb\nonnx_nb.ModelGraph({str(models.light('densenet121'))!r})"
    lab.open(lab.server.write("save.ipynb", source)).run_all()
    graph = GraphWidget(lab.widget("graph"))
    boxes = graph.drawn[-1]["boxes"]
    # so that not all of it is in view
    graph.root.locator(".onnx-nb-canvas").focus()
    for _ in range(5):
        lab.page.keyboard.press("+")
    graph.rest()
    for what, file in (("SVG, whole graph", "whole.svg"), ("SVG, this view", "view.svg"), ("PNG, this view", "v.png")):
        graph.press("Save")
        if what.startswith("PNG"):
            lab.screenshot(f"save-menu-{lab.theme}", graph.root)
        with lab.page.expect_download() as download:
            graph.root.get_by_role("menuitem", name=what, exact=True).click()
        assert download.value.suggested_filename == f"light_densenet121.{file.rsplit('.', 1)[1]}"
        download.value.save_as(tmp_path / file)
    assert (tmp_path / "v.png").read_bytes().startswith(b"\x89PNG")
    drawn = [ET.parse(tmp_path / file).getroot() for file in ("whole.svg", "view.svg")]  # noqa: S314 - we wrote them
    counts = [len(list(svg.iter(f"{SVG}text"))) for svg in drawn]
    assert counts[0] > counts[1] > 0
    assert counts[0] > boxes

    # the exported vectors, as a browser draws them
    lab.page.goto((tmp_path / "whole.svg").as_uri())
    lab.screenshot(f"saved-svg-{lab.theme}")
    assert lab.errors == []
