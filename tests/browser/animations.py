"""Film the loops of about 20 seconds in notebooks/pictures: ``python -m tests.browser.animations [NAME …]``.

A frame is taken after each move, and has the same length whatever this machine took for it: a loop shows what a person
does at the pace of a person. The pointer is drawn, for a browser without a screen has none.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from onnx_nb import extract, load
from tests.browser.conftest import FLAGS, be_patient, chromium_path
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import PATIENCE, ROOT, JupyterPage, JupyterServer
from tests.models import exported

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, FloatRect, Locator, Page, ViewportSize

FOLDER: Final = ROOT / "notebooks" / "pictures"
SIZE: Final[ViewportSize] = {"width": 1080, "height": 800}
WIDTH: Final = 820
"""Pixels of a loop."""
RATE: Final = 10
"""Frames a second."""
POINTER: Final = """() => {
    if (document.getElementById('pointer')) return;
    const arrow = document.createElement('div');
    arrow.id = 'pointer';
    arrow.innerHTML = `<svg width="22" height="26" viewBox="0 0 22 26"><path d="M2 1 L2 20 L7 15.5 L10.5 24 L14 22.5
        L10.6 14.4 L17 14 Z" fill="#111" stroke="#fff" stroke-width="1.6"/></svg>`;
    arrow.style.cssText = 'position:fixed; left:0; top:0; z-index:2147483647; pointer-events:none';
    document.body.append(arrow);
}"""
MOVE: Final = """([x, y, pressed]) => {
    const arrow = document.getElementById('pointer');
    arrow.style.transform = `translate(${x}px, ${y}px) scale(${pressed ? 0.8 : 1})`;
}"""


@dataclass
class Film:
    """Frames of a page, and the pointer in them."""

    page: Page
    clip: FloatRect
    """The part of it that is filmed."""
    frames: list[Image.Image] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    x: float = 700
    y: float = 520

    def frame(self, seconds: float = 1 / RATE, *, pressed: bool = False) -> None:
        """Take a picture that stays for some seconds; if it is as the one before, that stays longer."""
        self.page.evaluate(POINTER)
        self.page.evaluate(MOVE, [self.x, self.y, pressed])
        picture = Image.open(io.BytesIO(self.page.screenshot(clip=self.clip, caret="initial"))).convert("RGB")
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
        if self.frames and picture.tobytes() == self.frames[-1].tobytes():
            self.seconds[-1] += seconds
        else:
            self.frames.append(picture)
            self.seconds.append(seconds)

    def wait(self, seconds: float) -> None:
        """Film what happens by itself, then stand still."""
        for _ in range(4):
            self.frame()
        self.frame(max(seconds - 4 / RATE, 0.1))

    def go(self, x: float, y: float, *, steps: int = 7) -> None:
        """Move the pointer, fast in the middle of its way."""
        begin = self.x, self.y
        for step in range(1, steps + 1):
            part = step / steps
            part = part * part * (3 - 2 * part)
            self.x, self.y = begin[0] + (x - begin[0]) * part, begin[1] + (y - begin[1]) * part
            self.page.mouse.move(self.x, self.y)
            self.frame()

    def go_to(self, target: Locator) -> None:
        """Move the pointer to the middle of an element."""
        box = target.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < SIZE["height"], f"{target} cannot be seen"
        self.go(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def click(self, seconds: float = 0.8) -> None:
        """Click where the pointer is, and wait."""
        self.page.mouse.down()
        self.frame(pressed=True)
        self.page.mouse.up()
        self.wait(seconds)

    def save(self, name: str) -> Path:
        """Write the loop."""
        FOLDER.mkdir(exist_ok=True)
        path = FOLDER / f"{name}.webp"
        lengths = [round(1000 * seconds) for seconds in self.seconds]
        first, *others = self.frames
        first.save(path, save_all=True, append_images=others, duration=lengths, loop=0, quality=45, method=6)
        return path


NETWORK: Final = """
import onnx_nb, torch, warnings
warnings.simplefilter("ignore")
from transformers import SegformerConfig, SegformerModel
torch.manual_seed(0)
sizes = dict(depths=[2, 2], hidden_sizes=[16, 32], num_encoder_blocks=2, sr_ratios=[2, 1], patch_sizes=[7, 3],
             strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2])
module = SegformerModel(SegformerConfig(**sizes)).eval()
args = (torch.randn(1, 3, 64, 64),)
proto = onnx_nb.export(module, args).to_proto()
norms = [node for node in proto.graph.node if node.op_type == "LayerNormalization"]
next(each for each in norms[9].attribute if each.name == "epsilon").f = 1e-2
"""
"""Arguments, a module, and an export of it with the epsilon of one norm a thousand times too large."""


def cut(lab: JupyterPage) -> Film:
    """From two clicks to a submodel."""
    source = exported("segformer", dynamo=True, small=True)
    (lab.server.root / "segformer.onnx").write_bytes(source.read_bytes())
    film = stage(lab, 'import onnx_nb\n\nonnx_nb.ModelGraph("segformer.onnx", height=440)')
    graph = GraphWidget(lab.widget("graph"))
    block = extract(load(source), around="stages.0.blocks.0").proto.graph
    film.wait(2)
    for value, button in ((block.input[0], "Input"), (block.output[0], "Output")):
        film.go(*graph.locate(value.name, "tensor"))
        film.click(1.2)
        graph.expect_selection(value.name)
        film.go_to(graph.root.get_by_role("button", name=button, exact=True).first)
        film.click(1.2)
    graph.wait_for_plan()
    film.wait(1)
    film.go_to(graph.root.locator(".onnx-nb-extract").first.get_by_role("button", name="Extract", exact=True))
    film.click(0.2)
    expect(graph.root.locator('.onnx-nb[data-widget="submodel"]')).to_have_attribute("data-state", "drawn")
    graph.rest()
    film.wait(4)
    return film


def errors(lab: JupyterPage) -> Film:
    """From the curve of errors to the layer that brings them in."""
    film = stage(lab, "onnx_nb.compare_torch(module, args, model=proto)", before=NETWORK)
    panel = lab.widget("comparison")
    film.wait(3)
    plot = panel.get_by_role("slider", name="Errors against depth").bounding_box()
    assert plot is not None
    for part, height in ((0.2, 0.75), (0.45, 0.6), (0.8, 0.4)):
        film.go(plot["x"] + part * plot["width"], plot["y"] + height * plot["height"])
        film.wait(1)
    rows = panel.get_by_role("grid", name="Layers").locator("[data-row]")
    for row in (2, 0):
        film.go_to(rows.nth(row))
        film.click(1.5)
    film.wait(2)
    return film


def writing(lab: JupyterPage) -> Film:
    """A text that a small decoder writes in the browser."""
    page, path = lab.page, ROOT / "build" / "writer.html"
    subprocess.run([sys.executable, "-m", "notebooks.writer.page", "-o", path], cwd=ROOT, check=True)
    page.goto(path.as_uri())
    expect(page.locator("main")).to_have_attribute("data-state", "ready")
    film = Film(page, {"x": 0, "y": 0, **SIZE})
    film.wait(1)
    film.go_to(page.get_by_label("Your text"))
    film.click(0.3)
    page.get_by_label("Your text").fill("")
    for letter in "LANGUAGE, n.":
        page.keyboard.type(letter)
        film.frame()
    film.go_to(page.get_by_role("radio", name="Greedy"))
    film.click()
    step = page.get_by_role("button", name="One token")
    film.go_to(step)
    for _ in range(28):
        step.click()
        film.frame(0.25)
    choice = page.locator("#choices button").nth(1)
    film.go_to(choice)
    film.click()
    film.go_to(step)
    for _ in range(10):
        step.click()
        film.frame(0.25)
    film.wait(2)
    return film


SCENES: Final[dict[str, Callable[[JupyterPage], Film]]] = {"cut": cut, "errors": errors, "writing": writing}


def stage(lab: JupyterPage, cell: str, before: str = "") -> Film:
    """Run a cell after others that are not seen; leave out the frame around the notebook."""
    lab.open(lab.server.write(f"{len(cell)}.ipynb", cell))
    lab.kernel.run(before)
    lab.run_cell(0)
    clip = lab.cell(0).bounding_box()
    assert clip is not None
    height = min(clip["height"], SIZE["height"] - 32 - clip["y"])  # the status bar is below
    return Film(lab.page, {**clip, "height": height})


def main(names: list[str]) -> None:
    """Film some scenes, or all."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE * 1000)
        browser: Browser = playwright.chromium.launch(executable_path=chromium_path(playwright), args=list(FLAGS))
        browser.on("context", be_patient)
        server = JupyterServer(Path(folder))
        try:
            for name in names or SCENES:
                context = browser.new_context(viewport=SIZE)
                with JupyterPage(server, context.new_page()) as lab:
                    film = SCENES[name](lab)
                path = film.save(name)
                print(f"{path.name}: {sum(film.seconds):.0f} s, {path.stat().st_size:,} bytes")
                context.close()
        finally:
            server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
