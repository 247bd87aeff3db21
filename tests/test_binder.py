"""What `binder/environment.yml` installs with pip starts JupyterLab on the index and runs the first notebook.

`ONNX_NB_BINDER=1` really installs it, in a fresh virtual environment (minutes, 1.5 GB); otherwise the packages of this
environment are lent to one, after asking whether they are those that the file wants. conda's part, `dot`, is left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.servers import fetched

ROOT = Path(__file__).parent.parent
FILE = ROOT / "binder" / "environment.yml"
MOST_MEMORY = 2 << 30  # bytes: what mybinder.org allows


def wanted() -> tuple[list[str], list[str]]:
    """Return what the file installs with conda, and what with pip."""
    *conda, pip = yaml.safe_load(FILE.read_text(encoding="utf-8"))["dependencies"]
    return conda, pip["pip"]


def test_it_wants_what_is_tested_here() -> None:
    conda, pip = wanted()
    assert [name for name in conda if not re.match(r"(python|pip|jupyterlab|graphviz)\b", name)] == []
    assert ".." in pip
    requirements = [Requirement(line) for line in pip if line[0] not in ".-"]
    assert [each.name for each in requirements] == ["torch", "onnxscript", "tokenizers"]
    assert f"TORCH := {requirements[0]}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the Python of an environment that has what the file wants."""
    home = tmp_path_factory.mktemp("binder") / "venv"
    conda, pip = wanted()
    really = bool(os.environ.get("ONNX_NB_BINDER"))
    venv.create(home, with_pip=really)
    python = home / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    if really:
        named = [name for name in conda if not re.match(r"(python|pip|graphviz)\b", name)]
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            *named,
            *(word for line in pip for word in line.split()),
        ]
        # no second try: an index that cannot be reached here is asked for each package
        subprocess.run(command, check=True, cwd=FILE.parent, timeout=1800, env=os.environ | {"PIP_RETRIES": "0"})
    else:
        for requirement in (Requirement(line) for line in pip if line[0] not in ".-"):
            pytest.importorskip(requirement.name, reason=f"{requirement.name} is not installed here")
            assert requirement.specifier.contains(version(requirement.name)), requirement
        packages.joinpath("lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        shutil.copytree(
            ROOT / "onnx_nb", packages / "onnx_nb", ignore=shutil.ignore_patterns("frontend", "__pycache__")
        )
    yield python
    shutil.rmtree(home)


def test_lab_opens_the_index_and_the_first_notebook_runs(
    python: Path, tmp_path: Path, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MPLBACKEND")}
    environment |= {
        "HOME": str(tmp_path),
        "JUPYTER_PLATFORM_DIRS": "1",
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    options = ["--no-browser", "--allow-root", "--ServerApp.port=0", "--IdentityProvider.token=secret"]
    command = [str(python), "-m", "jupyterlab", *options, f"--ServerApp.root_dir={tmp_path}"]
    log = tmp_path / "log"
    with log.open("wb") as written:
        lab = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=written, stderr=written)
    try:
        deadline = time.monotonic() + 300
        while not (found := re.search(r"http://\S+?:(\d+)/lab\?token", log.read_text())):
            assert lab.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        for path in ("lab/tree/notebooks/index.ipynb", "api/contents/notebooks/index.ipynb?content=0"):
            url = f"http://127.0.0.1:{found[1]}/{path}{'&' if '?' in path else '?'}token=secret"
            assert fetched(url)
        lab_memory = int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{lab.pid}/status").read_text())[0]) << 10
    finally:
        lab.terminate()
        lab.wait(timeout=60)
    program = """
import asyncio, json, resource, nbformat, onnx_nb
from nbclient import NotebookClient
nb = nbformat.read("notebooks/00-first-light.ipynb", as_version=4)
NotebookClient(nb, resources={"metadata": {"path": "notebooks"}}).execute()
print(json.dumps([onnx_nb.__file__, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))
"""
    done = subprocess.run(
        [str(python), "-c", program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    where, memory = json.loads(done.stdout.splitlines()[-1])
    assert Path(where).is_relative_to(python.parents[1])
    assert lab_memory + memory < MOST_MEMORY
    size = sum(path.stat().st_size for path in python.parents[1].rglob("*") if not path.is_symlink())
    figures = {"JupyterLab": lab_memory, "kernel of 00": memory, "installed": size}
    with capsys.disabled():
        print("\n" + " · ".join(f"{name} {number / 1e6:,.0f} MB" for name, number in figures.items()))  # noqa: T201 - for those who wrote `make binder`
    for name, number in figures.items():
        record_property(name, number)
