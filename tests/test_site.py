"""The site: its pages are whole, its examples run, and it needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_nb
from tests import models

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_each_public_name_is_in_the_reference_once() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    described = re.findall(r"^\.\. auto(?:function|class|module):: (?:onnx_nb\.)?(\w+)", text, re.MULTILINE)
    assert sorted(described) == sorted(set(onnx_nb.__all__) - {"ModelLike", "__version__"})


def test_the_answers_to_how_do_i_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    args = (torch.randn(2, 5, 16),)
    onnx_nb.export(net, args, input_names=["x"], dynamic_shapes=({0: "batch"},)).save(tmp_path / "model.onnx")
    onnx_nb.simplify(tmp_path / "model.onnx").model.save(tmp_path / "other.onnx")
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
    assert names["arrays"]
    with torch.no_grad():
        np.testing.assert_allclose(
            onnx_nb.run("model.onnx", names["feeds"])[names["model"].outputs[0].name], net(*args), rtol=1e-4, atol=1e-5
        )
    for written in ("block.onnx", "smaller.onnx", "big.onnx", "report.html"):
        assert tmp_path.joinpath(written).stat().st_size > 0


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    for name in ("resnet50", "llama", "vit"):
        models.exported(name, dynamo=True)
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-c", "docs", "-d", f"{tmp_path}/trees"]
    done = subprocess.run([*command, ".", f"{tmp_path}/site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(tmp_path / "site"): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    assert len(pages) > 30
    for path, page in pages.items():
        assert not re.search(r"<(?:script|img|iframe|link rel=.stylesheet.)[^>]* (?:src|href)=.https?:", page), path
    listed = tmp_path.joinpath("site", "llms.txt").read_text(encoding="utf-8")
    for page in re.findall(r"\]\((.*)\)", listed):
        assert Path(page) in pages
    start = pages[Path("index.html")]
    assert "url=docs/index.html" in start
    assert Path("docs/index.html") in pages
    theirs = pages[Path("docs/coming-from.html")]
    assert "extract_model" in theirs
    assert "onnx_nb.extract(model, inputs, outputs)" in re.sub("<.*?>", "", theirs)
