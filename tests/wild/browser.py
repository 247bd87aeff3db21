"""Drive real models in JupyterLab as a person does: ``python -m tests.wild.browser``.

Each is shown by its name at the end of a cell, captured without a size and with one, looked into and cut; a step that
shows an error, or does not end, fails. ``python -m tests.wild.browser NAME …`` takes the models whose paths have one of
these texts. Pictures go to build/screenshots/wild.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playwright.sync_api import expect, sync_playwright

import onnx_nb
from tests.browser.conftest import FLAGS, be_patient, chromium_path
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import PATIENCE, JupyterPage, JupyterServer
from tests.wild.collection import CACHE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, ViewportSize

    from tests.browser.jupyter import Theme

LARGE: Final[ViewportSize] = {"width": 1400, "height": 1000}
SMALL: Final[ViewportSize] = {"width": 700, "height": 800}
MODELS: Final[dict[str, dict[str, str]]] = {
    "models/rapidocr-onnxruntime/rapidocr_onnxruntime_models_ch_PP-OCRv4_det_infer": {
        "p2o.DynamicDimension.1": "96",
        "p2o.DynamicDimension.2": "128",
    },
    "models/rapidocr-onnxruntime/rapidocr_onnxruntime_models_ch_PP-OCRv4_rec_infer": {"x": "2x3x48x160"},
    "models/rapidocr-onnxruntime/rapidocr_onnxruntime_models_ch_ppocr_mobile_v2.0_cls_infer": {"x": "2x3x48x192"},
    "models/magika/magika_models_standard_v3_3_model": {"bytes": "3x2048"},
    "models/nudenet/nudenet_320n": {"height": "160", "width": "320"},
    "models/silero-vad/silero_vad_data_silero_vad": {"input": "1x512", "state": "2x1x128"},
    "models/silero-vad/silero_vad_data_silero_vad_openvino_16k": {},
    "models/ddddocr/ddddocr_common_det": {},
    "models/basic-pitch/basic_pitch_saved_models_icassp_2022_nmp": {"serving_default_input_2:0": "2x43844x1"},
    "models/arabic-name-romanizer/arabic_name_romanizer_resources_decoder": {"batch": "2"},
    "generators/llama/int4/model": {"sequence_length": "5"},
    "generators/gemma2/fp32/model": {"batch_size": "2"},
}
"""Path in the cache → the sizes that are typed in."""
DARK: Final = 3
"""Every so many models are shown in the dark."""


def middle(path: Path) -> str:
    """Return an output of the middle one of the nodes that depend on an input."""
    graph = onnx_nb.load(path).proto.graph
    fed = {value.name for value in graph.input} - {value.name for value in graph.initializer}
    results: list[str] = []
    for node in graph.node:
        if fed & set(node.input):
            fed |= set(node.output) - {""}
            results.append(str(node.output[0]))
    return results[len(results) // 2]


class Drive:
    """One model in one notebook, and the seconds of its steps."""

    def __init__(self, lab: JupyterPage, path: Path, sizes: dict[str, str]) -> None:
        self.lab = lab
        self.path = path
        self.sizes = sizes
        self.name = str(path.relative_to(CACHE).with_suffix("")).replace("/", "-")[-40:]
        self.seconds: dict[str, float] = {}

    def step(self, name: str, action: Callable[[], None]) -> None:
        """Take a step, its seconds and a picture; what JavaScript complains of fails it."""
        started = time.monotonic()
        action()
        self.seconds[name] = time.monotonic() - started
        self.lab.screenshot(f"wild/{self.name}-{len(self.seconds)}-{name}")
        assert self.lab.errors == [], self.lab.errors

    def everything(self) -> None:
        """Take all steps."""
        source = f"import onnx_nb\nonnx_nb.load({str(self.path)!r})"
        self.lab.open(self.lab.server.write(f"{self.name}.ipynb", source))
        self.step("show", self.lab.run_all)
        self.graph = GraphWidget(self.lab.widget("graph"))
        self.step("draw", self.graph.rest)
        self.step("capture", self.capture)
        self.step("sizes", self.type_sizes)
        self.step("tensor", self.look)
        self.step("extract", self.cut)
        self.lab.page.set_viewport_size(SMALL)
        self.step("small", self.graph.rest)

    @property
    def bar(self) -> Locator:
        """The line that says how a capture went."""
        return self.graph.root.locator(".onnx-nb-extract").first

    def capture(self) -> None:
        """Capture on what is made up without a word."""
        self.graph.press("Capture")
        expect(self.bar).to_contain_text(re.compile(r"✓ Captured \d+ values in 1 run on random inputs"))

    def type_sizes(self) -> None:
        """Type sizes into the form, and capture again."""
        group = self.graph.root.get_by_role("group", name="Sizes of inputs")
        if not self.sizes:
            expect(group).to_have_count(0)
            return
        for name, size in self.sizes.items():
            group.get_by_label(f"Size of {name}", exact=True).fill(size)
        self.graph.press("Capture again")
        expect(self.bar).to_contain_text(re.compile(r"✓ Captured \d+ values in 1 run on random inputs"))
        for size in self.sizes.values():  # not those of the first one
            expect(self.bar).to_contain_text(size.replace("x", "×"))

    def look(self) -> None:
        """Click a tensor; its numbers are those of the capture."""
        self.graph.click(middle(self.path), "tensor")
        expect(self.graph.root.get_by_label("Values", exact=True)).to_contain_text("captured, 1 run")

    def cut(self) -> None:
        """Extract what leads to the tensor."""
        self.graph.press("Output")
        self.graph.extract()


def drive(browser: Browser, server: JupyterServer, path: Path, sizes: dict[str, str], theme: Theme) -> dict[str, float]:
    """Drive one model in a window of its own; return the seconds of its steps."""
    context = browser.new_context(viewport=LARGE)
    be_patient(context)
    with JupyterPage(server, context.new_page(), theme) as lab:
        steps = Drive(lab, path, sizes)
        try:
            steps.everything()
        except Exception:
            lab.page.screenshot(path=f"build/screenshots/wild/{steps.name}-failed.png")
            raise
    context.close()
    return steps.seconds


def main() -> int:
    """Drive what was asked for; 1 if a step of a model failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.wild.browser", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    chosen = parser.parse_args().names
    failed = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = JupyterServer(Path(folder))
        expect.set_options(timeout=PATIENCE * 1000)
        browser = playwright.chromium.launch(executable_path=chromium_path(playwright), args=list(FLAGS))
        for number, (name, sizes) in enumerate(MODELS.items()):
            if chosen and not any(text in name for text in chosen):
                continue
            try:
                seconds = drive(browser, server, CACHE / f"{name}.onnx", sizes, "light" if number % DARK else "dark")
                print(name, *(f"{step} {second:.1f} s" for step, second in seconds.items()), sep="\n  ", flush=True)
            except Exception as error:  # noqa: BLE001 - a test of its own
                failed += 1
                print(f"{name}: {error}", flush=True)
        browser.close()
        server.stop()
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
