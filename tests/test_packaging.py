"""The wheel: built from a clean checkout without Node, it contains the bundle and works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import onnx_nb
from tests import models

ROOT = Path(__file__).parent.parent
BUNDLES = ("stub.js", "widget.js")
LABEXTENSION = ROOT / "onnx_nb" / "static" / "labextension"
# a machine that has Python and nothing else
BARE = {name: value for name, value in os.environ.items() if name not in {"PATH", "PYTHONPATH", "VIRTUAL_ENV"}}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel built from tracked files through the sdist, with an empty PATH, so without Node."""
    folder = tmp_path_factory.mktemp("packaging")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout, so there is no telling what a clean one holds")
    checkout = folder / "checkout"
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            target = checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    dist = folder / "dist"
    _run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(dist)], cwd=checkout)
    (sdist,) = dist.glob("*.tar.gz")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(dist)]
    _run([sys.executable, "-m", "pip", "wheel", *options, str(sdist)], cwd=folder)
    (wheel,) = dist.glob("*.whl")
    return wheel


def test_the_wheel_carries_the_bundles_and_not_their_sources(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in BUNDLES:
            bundle = archive.read(f"onnx_nb/static/{name}")
            assert bundle == (ROOT / "onnx_nb" / "static" / name).read_bytes()
            assert b"export" in bundle
            assert len(bundle) <= 380_000
    assert {name.removeprefix("onnx_nb/static/") for name in names if name.startswith("onnx_nb/static/")} == {
        *BUNDLES,
        "THIRD-PARTY-LICENSES.txt",
    }
    assert "onnx_nb/py.typed" in names
    assert [name for name in names if name.startswith("onnx_nb/frontend") or "node_modules" in name] == []
    about = wheel.name.rsplit("-", 3)[0]
    assert {name.split("/")[0] for name in names} == {"onnx_nb", f"{about}.dist-info", f"{about}.data"}
    within = f"{about}.data/data/share/jupyter/labextensions/onnx-nb/"
    shared = {path.relative_to(LABEXTENSION).as_posix() for path in LABEXTENSION.rglob("*") if path.is_file()}
    assert {name.removeprefix(within) for name in names if ".data/" in name} == shared
    assert len(shared) == 3
    assert wheel.stat().st_size < 1_500_000


def test_the_wheel_has_the_licenses_of_what_is_bundled(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
        about = path.rpartition("/licenses/")[0]
        notices = archive.read(f"{about}/licenses/onnx_nb/static/THIRD-PARTY-LICENSES.txt").decode()
        assert "THIRD-PARTY-LICENSES.txt" in archive.read(f"{about}/METADATA").decode()
    lock = json.loads((ROOT / "onnx_nb" / "frontend" / "package-lock.json").read_text(encoding="utf-8"))
    shipped = {
        name.removeprefix("node_modules/"): package
        for name, package in lock["packages"].items()
        if name and not package.get("dev")
    }
    assert shipped
    for name, package in shipped.items():
        assert f"{name} {package['version']} ({package['license']})" in notices
    assert notices.count("Permission to use, copy, modify, and/or distribute this software") == len(shipped)


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == onnx_nb.__version__
    assert citation["license"] == "Apache-2.0"


def test_the_installed_wheel_opens_a_model_and_makes_a_widget(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    # lends the dependencies but not onnx_nb: a .pth found in a folder that a .pth names is not followed
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    packages.joinpath("lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    _run([*pip, "install", "--no-deps", "--no-index", "--quiet", str(wheel)], cwd=tmp_path)
    program = f"""
import json, onnx_nb
from onnx_nb.analysis.view.graph_columns import columns
model = onnx_nb.load({str(models.light("squeezenet"))!r})
widget = onnx_nb.ModelGraph(model)
packed = columns(model).to_bytes()
print(json.dumps([onnx_nb.__file__, len(model.proto.graph.node), packed[:4].decode(), len(widget._code.code)]))
"""
    where, nodes, magic, bundle = json.loads(_run([str(python), "-c", program], cwd=tmp_path))
    assert Path(where).is_relative_to(packages)
    assert (nodes, magic) == (105, "ONB2")
    assert bundle > 10_000
    line = [str(home / "bin" / "onnx-nb"), "summary", str(models.light("squeezenet")), "--json"]
    assert json.loads(_run(line, cwd=tmp_path))["nodes"] == nodes


def test_jupyter_finds_the_extension_of_the_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    """`jupyter labextension list` reads the folder that pip installs the wheel's data into."""
    # without --ignore-installed, pip would take onnx_nb out of the environment that runs the tests
    options = ["--ignore-installed", "--no-deps", "--no-index", "--quiet", "--prefix", str(tmp_path)]
    _run([sys.executable, "-m", "pip", "install", *options, str(wheel)], cwd=tmp_path)
    extensions = tmp_path / "share" / "jupyter" / "labextensions"
    remote = json.loads((extensions / "onnx-nb" / "package.json").read_text())["jupyterlab"]["_build"]["load"]
    assert b"_JUPYTERLAB" in (extensions / "onnx-nb" / remote).read_bytes()
    home = {**BARE, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_PATH": str(extensions.parent)}
    command = [sys.executable, "-m", "jupyter", "labextension", "list"]
    listed = subprocess.run(command, env=home, capture_output=True, text=True, check=True)
    (line,) = [line for line in listed.stderr.splitlines() if "onnx-nb" in line and "enabled" in line]
    assert f"v{onnx_nb.__version__}" in line
    assert "OK" in line


def _run(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, env=BARE, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
