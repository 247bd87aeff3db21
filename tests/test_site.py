"""The pages of the site: each public name is described, and the examples run; tests/browser builds it."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_nb

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ANSWERS = re.findall(
    r"^## (.*?)\n(.*?)(?=^## |\Z)", (DOCS / "how-to.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
TASKS = {title: text for title, text in ANSWERS if "```py\n" in text}
"""Title → text of each answer that runs on the model of a package."""


def test_every_page_of_a_table_of_contents_is_one_that_the_site_has() -> None:
    """Sphinx says so too, after two minutes."""
    settings: dict[str, Any] = {}
    lines = (DOCS / "conf.py").read_text(encoding="utf-8").splitlines()
    exec("\n".join(line for line in lines if line.startswith("include_patterns")), settings)  # noqa: S102 (our own lines)
    pages = {path.relative_to(ROOT) for pattern in settings["include_patterns"] for path in ROOT.glob(pattern)}
    missing = []
    for page in DOCS.rglob("*.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for entry in re.findall(r"^(?!:)(?:.*<)?([^<>\s]+)>?$", tree, re.MULTILINE):
                found = {path for suffix in (".md", ".ipynb") for path in page.parent.glob(entry + suffix)}
                here = {path.resolve().relative_to(ROOT) for path in found}
                missing += [f"{page.name}: {entry}"] if not here & pages else []
    assert missing == []


def test_each_public_name_is_in_the_reference_once() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    described = re.findall(r"^\.\. auto(?:function|class|module):: (?:onnx_nb\.)?(?:types\.)?(\w+)", text, re.MULTILINE)
    assert sorted(described) == sorted({*onnx_nb.__all__, *onnx_nb.types.__all__} - {"ModelLike", "types"})


def test_the_answers_to_how_do_i_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    args = (torch.randn(2, 5, 16),)
    onnx_nb.export(net, args, input_names=["x"], dynamic_shapes=({0: "batch"},)).save(tmp_path / "model.onnx")
    onnx_nb.simplify(tmp_path / "model.onnx").model.save(tmp_path / "other.onnx")
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    feeds = iter([{"x": args[0].numpy()}])
    reader = type("Reader", (quantization.CalibrationDataReader,), {"get_next": lambda _: next(feeds, None)})()
    quantization.quantize_static(tmp_path / "model.onnx", tmp_path / "int8.onnx", reader)
    monkeypatch.chdir(tmp_path)
    text = DOCS.joinpath("how-to.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"net": net, "args": args, "feeds": {"x": args[0].numpy()}}
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 10
    for block in blocks:
        exec(block, names)  # noqa: S102 - our own page
    assert names["c"].message
    assert names["outputs"]
    assert names["parts"]
    assert names["origin"] is None  # all finite
    assert {type(array) for array in names["arrays"].values()} == {np.ndarray}
    with torch.no_grad():
        np.testing.assert_allclose(
            onnx_nb.run("model.onnx", names["feeds"])[names["model"].outputs[0].name], net(*args), rtol=1e-4, atol=1e-5
        )
    for written in ("block.onnx", "smaller.onnx", "big.onnx", "report.html", "mixed.onnx"):
        assert tmp_path.joinpath(written).stat().st_size > 0


@pytest.mark.filterwarnings("ignore:input 'x' is page.png")
@pytest.mark.parametrize("title", TASKS)
def test_a_task_prints_what_the_page_says(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = re.findall(r'distribution\("(.+?)"\)', TASKS[title])
    if missing := set(packages) - {entry.metadata["Name"] for entry in importlib.metadata.distributions()}:
        pytest.skip(f"needs the model of {', '.join(missing)}: pip install --no-deps, as the page says")
    programs = re.findall(r'run\(\["(.+?)"|program (\w+)$', TASKS[title], re.MULTILINE)
    if absent := [name for pair in programs for name in pair if name and not shutil.which(name)]:
        pytest.skip(f"needs the program {', '.join(absent)}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```", TASKS[title], re.MULTILINE | re.DOTALL)
    for block, printed in blocks:
        exec(block, names)  # noqa: S102 - our own page
        assert capsys.readouterr().out == printed
    for picture in re.findall(r"\((how-to-\w+\.png)\)", TASKS[title]):
        assert tmp_path.joinpath(picture).stat().st_size > 0
        assert 0 < DOCS.joinpath(picture).stat().st_size < 150_000
