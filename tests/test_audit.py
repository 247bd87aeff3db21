"""An audit that could look nothing up says so, and never that all is well."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from tests import models


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit", models.ROOT / ".ci" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAFE = {"name": "numpy", "version": "2.4.0", "vulns": []}
SKIPPED = "Dependency not found on PyPI and could not be audited"


def test_vulnerabilities_are_listed(audit: Any) -> None:
    odd = {"name": "odd", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"]}]}
    own = {"name": "onnx-nb", "skip_reason": SKIPPED}
    assert audit.python_findings({"dependencies": [SAFE, odd, own]}) == ["odd 1.0: PYSEC-1, fixed in 1.1, 2.0"]
    assert audit.python_findings({"dependencies": [SAFE]}) == []
    found = {"vulnerabilities": {"left-pad": {"severity": "high", "range": "<1.3"}}}
    assert audit.npm_findings(found) == ["left-pad <1.3: high"]
    assert audit.npm_findings({"vulnerabilities": {}}) == []


def test_a_database_that_does_not_answer_is_no_success(audit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(audit.UnreachableError, match=r"PyPI has nothing about 1 of 2 packages \(onnx"):
        audit.python_findings({"dependencies": [SAFE, {"name": "onnx", "skip_reason": SKIPPED}]})
    with pytest.raises(audit.UnreachableError, match="405"):
        audit.npm_findings({"message": "405 Method Not Allowed", "method": "POST"})
    for name in ("_python_report", "_report"):
        setattr(audit, name, lambda *_: {"dependencies": [], "error": "offline"})
    assert audit.main() == 2
    assert "npm packages: NOT CHECKED" in capsys.readouterr().err


def test_each_promise_in_the_security_model_names_a_test_that_exists() -> None:
    text = (models.ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) > 20
    for file, test in named:
        assert f"\ndef {test}(" in (models.ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"
