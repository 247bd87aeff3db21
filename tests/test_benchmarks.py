"""The page on performance keeps what was not measured again."""

import json
import re
import shutil
from pathlib import Path

from benchmarks.__main__ import write
from benchmarks.measuring import ROOT


def test_a_part_that_did_not_run_keeps_its_section(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "performance.md", tmp_path)
    page = tmp_path / "performance.md"
    before = re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(before) > 10
    results = tmp_path / "results"
    results.mkdir()
    text = (ROOT / "benchmarks" / "load.py").read_text(encoding="utf-8").split('"""')[1]
    row = {"what": "a row", "figures": {"onnx_nb": "1 CPU s"}, "limit": "2 CPU s", "holds": True}
    (results / "load.json").write_text(json.dumps({"text": text, "rows": [row]}), encoding="utf-8")
    write(tmp_path, results)
    after = re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert [each for each in after if each not in before] == after[:1]
    assert "| a row | 1 CPU s | 2 CPU s | holds |" in after[0]
    assert [each.partition("\n")[0] for each in after] == [each.partition("\n")[0] for each in before]
