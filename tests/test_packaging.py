"""The wheel: built from a clean checkout without Node, it contains the bundle and works."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import onnx_nb

ROOT = Path(__file__).parent.parent
BUNDLES = ("stub.js", "widget.js")
LABEXTENSION = ROOT / "onnx_nb" / "static" / "labextension"
# a machine that has Python and nothing else
BARE = {name: value for name, value in os.environ.items() if name not in {"PATH", "PYTHONPATH", "VIRTUAL_ENV"}}


WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))


def step(job: str, name: str) -> str:
    """Return the shell of a step of the release workflow."""
    found: str = next(each["run"] for each in WORKFLOW["jobs"][job]["steps"] if each.get("name") == name)
    return found


def shell(text: str, cwd: Path, python: str, **variables: str) -> str:
    """Run what GitHub would, with `python` as this one, and no index to install from."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "python"
        program.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        program.chmod(0o755)
        offline = {"PATH": f"{folder}:/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
        # without it, pip would take onnx_nb out of the environment that lends its packages
        variables = {**offline, "PIP_IGNORE_INSTALLED": "1", **variables}
        return _run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text], cwd, variables)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with what the release workflow builds from tracked files, in a clean checkout without Node."""
    folder = tmp_path_factory.mktemp("packaging")
    checkout = folder / "checkout"
    for name in tracked():
        target = checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    shell(step("build", "Build"), checkout, sys.executable)
    return checkout / "dist"


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout, so there is no telling what a clean one holds")
    return [name for name in filter(None, listed.stdout.split("\0")) if (ROOT / name).exists()]


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


def test_the_wheel_carries_the_bundles_and_not_their_sources(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in BUNDLES:
            bundle = archive.read(f"onnx_nb/static/{name}")
            assert bundle == (ROOT / "onnx_nb" / "static" / name).read_bytes()
            assert b"export" in bundle
            assert len(bundle) <= 450_000
    assert {name.removeprefix("onnx_nb/static/") for name in names if name.startswith("onnx_nb/static/")} == {
        *BUNDLES,
        "THIRD-PARTY-LICENSES.txt",
    }
    left_out = ("onnx_nb/frontend/", "onnx_nb/static/labextension/", "onnx_nb/static/onnx_nb.cdx.json")
    assert {name for name in names if name.startswith("onnx_nb/")} == {
        name for name in tracked() if name.startswith("onnx_nb/") and not name.startswith(left_out)
    }
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


def test_the_bill_of_materials_lists_what_is_bundled(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
        bill = json.loads(archive.read(path))
    assert bill["metadata"]["component"]["version"] == onnx_nb.__version__
    lock = json.loads((ROOT / "onnx_nb" / "frontend" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    listed = {each["name"]: (each["version"], each["licenses"][0]["license"]["id"]) for each in bill["components"]}
    shipped = {name.removeprefix("node_modules/"): each for name, each in lock.items() if name and not each.get("dev")}
    assert listed == {name: (each["version"], each["license"]) for name, each in shipped.items()}


@pytest.mark.parametrize("address", ["", "https://github.com/ada/onnx_nb"])
def test_the_page_of_the_index_has_links_from_the_one_setting(address: str, dist: Path, tmp_path: Path) -> None:
    # tarfile before Python 3.11.4 knows no filter, and later ones warn without
    _run(["tar", "-xzf", str(next(dist.glob("*.tar.gz")))], tmp_path, {})
    (root,) = tmp_path.iterdir()
    setting = root / "pyproject.toml"
    setting.write_text(setting.read_text().replace('repository = ""', f'repository = "{address}"'))
    about = json.loads(_run([sys.executable, "-m", "hatchling", "metadata", "--compact"], root, {}))
    text = about["readme"]["text"]
    assert [url.startswith(address) for url in about.get("urls", {}).values()] == [True] * 5 * bool(address)
    relative = re.findall(r"\]\((?!https?://|#)([^)]*)\)", text)
    assert relative == []
    assert ("![A model in a cell" in text) == bool(address)
    for kind, path in re.findall(
        rf"\]\({address}/(blob|raw)/v{onnx_nb.__version__}/([^)]*)\)", text if address else ""
    ):
        assert (root / path).is_file(), path
        assert (kind == "raw") == path.endswith(".png")


def test_the_recipe_of_conda_forge_wants_what_the_wheel_wants(dist: Path) -> None:
    recipe = yaml.safe_load((dist / "recipe.yaml").read_text(encoding="utf-8"))
    (sdist,) = dist.glob("*.tar.gz")
    assert recipe["source"]["sha256"] == hashlib.sha256(sdist.read_bytes()).hexdigest()
    assert recipe["source"]["url"].replace("${{ version }}", recipe["context"]["version"]).endswith(f"/{sdist.name}")
    setting = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = {"matplotlib-base": "matplotlib", "python-graphviz": "graphviz"}
    wanted = [line.split() for line in recipe["requirements"]["run"] if not line.startswith("python ")]
    there = {f"{names.get(name, name)}{version}" for name, version in wanted}
    assert there == {requirement.partition(";")[0].strip() for requirement in setting["project"]["dependencies"]}
    assert f">={recipe['context']['python_min']}" == setting["project"]["requires-python"]
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {what}" for name, what in setting["project"]["scripts"].items()
    ]
    (hatchling,) = setting["build-system"]["requires"]
    assert hatchling.replace(">=", " >=") in recipe["requirements"]["host"]


def test_a_release_is_told_what_is_unset(tmp_path: Path) -> None:
    for name in (
        "pyproject.toml",
        "CITATION.cff",
        "CHANGELOG.md",
        "conda/recipe.yaml",
        "onnx_nb/__init__.py",
        "onnx_nb/static/labextension/package.json",
        ".ci/release.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    check = [sys.executable, str(tmp_path / ".ci" / "release.py"), "check", "--tag"]
    version = onnx_nb.__version__
    done = subprocess.run([*check, "v9.9"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"the tag is '9.9', pyproject.toml says {version}." in done.stdout.splitlines()
    assert "authors in [project]" in done.stdout

    def replace(name: str, *pairs: tuple[str, str]) -> None:
        text = (tmp_path / name).read_text(encoding="utf-8")
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / name).write_text(text, encoding="utf-8")

    address = "https://github.com/ada/onnx_nb"
    authors = 'requires-python = ">=3.11"\nauthors = [{name = "Ada"}]'
    replace("pyproject.toml", ('repository = ""', f'repository = "{address}"'), ('requires-python = ">=3.11"', authors))
    replace("CITATION.cff", ("  - name: The authors of onnx_nb", f"  - name: Ada\nrepository-code: {address}"))
    replace("CHANGELOG.md", ("## Unreleased", f"## {version}"))
    replace("conda/recipe.yaml", ("recipe-maintainers: []", "recipe-maintainers: [ada]"))
    assert _run([*check, f"v{version}"], tmp_path, {}) == "Nothing is unset.\n"


def test_the_workflow_tries_the_wheel_in_every_environment_and_keeps_no_token() -> None:
    matrix = WORKFLOW["jobs"]["try"]["strategy"]["matrix"]
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert matrix["python"] == classified
    assert [name.partition("-")[0] for name in matrix["system"]] == ["ubuntu", "macos", "windows"]
    assert [(each["system"], each["python"]) for each in matrix["include"]] == [
        (system, classified[0]) for system in matrix["system"]
    ]
    publish = WORKFLOW["jobs"]["publish"]
    assert publish["permissions"]["id-token"] == "write"
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")


def test_the_wheel_works_in_an_environment_of_its_own(dist: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    # lends the dependencies but not onnx_nb: a .pth found in a folder that a .pth names is not followed
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    packages.joinpath("lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    shutil.copytree(dist, tmp_path / "dist")
    assert f"onnx-nb {onnx_nb.__version__}" in shell(
        step("try", "Try the wheel"), tmp_path, str(home / "bin" / "python"), CONSTRAINTS=""
    )


def test_jupyter_finds_the_extension_of_the_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    """`jupyter labextension list` reads the folder that pip installs the wheel's data into."""
    # without --ignore-installed, pip would take onnx_nb out of the environment that runs the tests
    options = ["--ignore-installed", "--no-deps", "--no-index", "--quiet", "--prefix", str(tmp_path)]
    _run([sys.executable, "-m", "pip", "install", *options, str(wheel)], tmp_path, {})
    extensions = tmp_path / "share" / "jupyter" / "labextensions"
    remote = json.loads((extensions / "onnx-nb" / "package.json").read_text())["jupyterlab"]["_build"]["load"]
    assert b"_JUPYTERLAB" in (extensions / "onnx-nb" / remote).read_bytes()
    home = {**BARE, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_PATH": str(extensions.parent)}
    command = [sys.executable, "-m", "jupyter", "labextension", "list"]
    listed = subprocess.run(command, env=home, capture_output=True, text=True, check=True)
    (line,) = [line for line in listed.stderr.splitlines() if "onnx-nb" in line and "enabled" in line]
    assert f"v{onnx_nb.__version__}" in line
    assert "OK" in line


def _run(command: list[str], cwd: Path, variables: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=cwd, env={**BARE, **variables}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
