"""Report known vulnerabilities of what onnx_nb installs and bundles, from the databases behind PyPI and npm.

Ends with 1 if there are any, and with 2 if a database could not be reached: then nothing is known, which is no success.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class UnreachableError(Exception):
    """A database did not answer."""


def python_findings(report: dict[str, Any]) -> list[str]:
    """Return the vulnerabilities in a report of pip-audit; it skips what it cannot look up without failing."""
    packages = report["dependencies"]
    skipped = {package["name"]: package["skip_reason"] for package in packages if "skip_reason" in package}
    # those that are nowhere on PyPI: this package, and builds of torch for one kind of machine
    unknown = {name: reason for name, reason in skipped.items() if name not in ("onnx-nb", "torch", "torchvision")}
    if unknown:
        name, reason = next(iter(unknown.items()))
        raise UnreachableError(f"PyPI has nothing about {len(unknown)} of {len(packages)} packages ({name}: {reason})")
    return [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'none'}"
        for package in packages
        for found in package.get("vulns", [])
    ]


def npm_findings(report: dict[str, Any]) -> list[str]:
    """Return the vulnerabilities in a report of npm audit."""
    if "vulnerabilities" not in report:
        raise UnreachableError(f"npm's registry has no report ({report.get('message') or report.get('error')})")
    return [f"{name} {found['range']}: {found['severity']}" for name, found in report["vulnerabilities"].items()]


def _python_report() -> dict[str, Any]:
    folder = ROOT / "build" / "audit"
    tool = folder / "bin" / "pip-audit"
    if not tool.exists():
        venv.create(folder, with_pip=True)
        install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "pip-audit>=2.9"]
        if subprocess.run(install, check=False).returncode:
            raise UnreachableError("pip-audit could not be installed")
    command = [tool, "--path", sysconfig.get_path("purelib"), "--progress-spinner", "off", "--format", "json"]
    return _report(command, ROOT)


def _npm_report(folder: Path) -> dict[str, Any]:
    return _report(["npm", "audit", "--json"], folder)


def _report(command: list[Any], folder: Path) -> dict[str, Any]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines() or ["no report"]
        raise UnreachableError(lines[-1]) from None
    return report


def main() -> int:
    """Print both reports; return the status to end with."""
    status = 0
    audits = (
        ("Python packages", python_findings, _python_report),
        ("npm packages", npm_findings, lambda: _npm_report(ROOT / "onnx_nb" / "frontend")),
        ("npm packages of the Writer's page", npm_findings, lambda: _npm_report(ROOT / "notebooks" / "writer")),
    )
    for name, findings, report in audits:
        try:
            found = findings(report())
        except UnreachableError as error:
            print(f"{name}: NOT CHECKED, a database could not be reached: {error}", file=sys.stderr)
            status = status or 2
            continue
        print(f"{name}: {len(found)} known vulnerabilities", *found, sep="\n  ")
        status = 1 if found else status
    return status


if __name__ == "__main__":
    sys.exit(main())
