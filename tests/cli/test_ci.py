"""Models in a repository: ``onnx-nb changes``, the action, the hook, and git's own diff, each run in a repository."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
import yaml

import onnx_nb
from tests.cli.test_shell import Ran

ROOT = Path(__file__).parents[2]
HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 3] z) '


def git(*words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(path: str, body: str, *, data: str = "", scale: float = 1) -> None:
    proto = onnx.parser.parse_model(HEAD + body)
    weight = onnx.numpy_helper.from_array(np.asarray([1, 2, 3 * scale], np.float32), "w")
    proto.graph.initializer.append(weight)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).with_name(data or "none").unlink(missing_ok=True)  # onnx.save appends
    options: Any = {"save_as_external_data": True, "location": data, "size_threshold": 0} if data else {}
    onnx.save(proto, path, **options)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Repository in which, since its last commit, models were changed, added, removed, and one has other weights."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    write("a model/net.onnx", "{ a = Mul(x, w)  z = Relu(a) }")
    write("old.onnx", "{ z = Mul(x, w) }")
    write("same.onnx", "{ z = Mul(x, w) }")
    write("data/big.onnx", "{ z = Mul(x, w) }", data="big.bin")
    git("add", ".")
    git("commit", "-qm", "One")
    write("a model/net.onnx", "{ a = Mul(x, w)  z = LeakyRelu(a) }")
    write("new.onnx", "{ z = Add(x, w) }")
    write("data/big.onnx", "{ z = Mul(x, w) }", data="big.bin", scale=2)
    Path("old.onnx").unlink()
    git("add", ".")
    return tmp_path


def test_changes_are_those_of_git_with_the_diffs_of_the_models(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "data/big.onnx" not in git("diff", "--name-only", "HEAD")  # only its data file changed
    ran = Ran("changes --json --pages pages --audit", capsys)
    models = {model["path"]: model for model in ran.record["models"]}
    assert {path: model["what"] for path, model in models.items()} == {
        "a model/net.onnx": "changed", "data/big.onnx": "changed", "new.onnx": "added", "old.onnx": "removed",
    }  # fmt: skip
    assert ran.status == 0
    git("stash", "-q")
    before = onnx.load("a model/net.onnx")
    git("stash", "pop", "-q")
    expected = onnx_nb.diff(before, "a model/net.onnx")
    found = models["a model/net.onnx"]["diff"]["differences"]
    assert [each["message"] for each in found] == [each.message for each in expected.changes]
    assert [each["kind"] for each in models["data/big.onnx"]["diff"]["differences"]] == ["weight"]
    assert models["new.onnx"]["summary"]["nodes"] == 1
    pages = sorted(str(page.relative_to(repository)) for page in repository.glob("pages/**/*.html"))
    assert pages == ["pages/a model/net.onnx.html", "pages/data/big.onnx.html", "pages/new.onnx.html"]


def test_changes_can_fail(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Ran("changes --exit-code", capsys).status == 1
    assert Ran("changes HEAD same.onnx --exit-code", capsys).status == 0
    assert Ran("changes HEAD data --fail 'sqnr < 3 dB'", capsys).status == 1
    assert Ran("changes HEAD data --fail 'max_abs > 1e9'", capsys).status == 0
    np.save("ones.npy", np.ones((4, 3), np.float32))
    for inputs in ("--feeds ones.npy", "--feed x=ones.npy", "--shape n=4"):
        ran = Ran(f"changes HEAD data --fail 'max_abs > 1e9' {inputs} --json", capsys)
        (point,) = [point for point in ran.record["models"][0]["compare"]["points"] if point["name"] == "z"]
        assert point["shape"] == [4, 3]
    # the third weight is 6 and was 3
    assert Ran("changes HEAD data --fail 'max_abs > 2.9' --feeds ones.npy", capsys).status == 1
    assert Ran("changes HEAD data --fail 'max_abs > 3.1' --feeds ones.npy", capsys).status == 0
    Path("ones.npy").unlink()
    Path("new.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
    ran = Ran("changes", capsys)
    assert ran.status == 1
    assert "git-LFS pointer" in ran.out


def test_outside_of_a_repository_and_an_unknown_revision(
    repository: Path, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ran = Ran("changes nowhere", capsys)
    assert (ran.status, ran.out) == (2, "")
    assert re.fullmatch(r"onnx-nb: git diff failed: .*nowhere.*\n", ran.err)
    os.chdir(tmp_path_factory.mktemp("plain"))
    assert "not a git repository" in Ran("changes", capsys).err


@pytest.mark.parametrize("location", ["", ".", "a\0b", "a" * 300, "../w", "/etc/passwd", "w.onnx/w"])
def test_no_model_hides_another(tmp_path: Path, location: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.chdir(tmp_path)
    git("init", "-q")
    names = ["w.onnx", os.fsdecode(b"caf\xe9.onnx"), "z.onnx"]
    for body in ("{ z = Mul(x, w) }", "{ z = Add(x, w) }"):
        for name in names:
            write(name, body)
        proto = onnx.load("w.onnx")
        (weight,) = proto.graph.initializer
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        Path("w.onnx").write_bytes(proto.SerializeToString())
        git("add", ".")
        if "Mul" in body:
            git("commit", "-qm", "One")
    ran = Ran("changes --json --audit --pages pages", capsys)
    models = {model["path"]: model for model in ran.record["models"]}
    assert list(models) == ["caf\\xe9.onnx", "w.onnx", "z.onnx"]
    assert not models["w.onnx"]["ok"]
    assert {change["kind"] for change in models["z.onnx"]["diff"]["differences"]} == {"operator"}
    assert models["caf\\xe9.onnx"]["error"] is None
    assert sorted(path.name for path in Path("pages").iterdir()) == ["caf\\xe9.onnx.html", "z.onnx.html"]
    ran = Ran("changes --audit", capsys)
    assert (ran.status, ran.err) == (1, "")
    assert "z.onnx: changed" in ran.out


def test_a_link_out_of_the_repository_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    os.chdir(repository)
    git("init", "-q")
    git("commit", "-qm", "One", "--allow-empty")
    write("../secret.onnx", "{ z = Mul(x, w) }")
    Path("link.onnx").symlink_to("../secret.onnx")
    git("add", ".")
    ran = Ran("changes --json", capsys)
    (model,) = ran.record["models"]
    assert "leads out of the repository" in model["error"]
    assert model["summary"] is None


@pytest.mark.parametrize("base", ["--output=precious.txt", "--upload-pack=touch owned"])
def test_a_revision_is_no_option_of_git(repository: Path, base: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("precious.txt").write_text("mine")
    ran = Ran(f"changes -- {shlex.quote(base)}", capsys)
    assert (ran.status, Path("precious.txt").read_text()) == (2, "mine")
    status, output, _ = run_action(repository, {"base": base})
    assert status, output
    assert Path("precious.txt").read_text() == "mine"
    assert not list(repository.parent.rglob("owned"))


def steps() -> list[dict[str, Any]]:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    found: list[dict[str, Any]] = action["runs"]["steps"]
    return found


def run_action(folder: Path, inputs: dict[str, str], *, installs: bool = False) -> tuple[int, str, str]:
    """Run the shell steps as a runner does; return the exit code, the output and the job summary."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    values = {name: each.get("default", "") for name, each in action["inputs"].items()} | inputs
    runner = folder.parent / f"{folder.name}-runner"
    runner.mkdir(exist_ok=True)
    (runner / "github_step_summary").touch()
    env = {**os.environ, "GITHUB_ACTION_PATH": str(ROOT), "RUNNER_TEMP": str(runner)}
    env |= {name: str(runner / name.lower()) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    output = ""
    for step in (each for each in steps() if "run" in each):
        if step["name"].startswith("Install") and not installs:
            continue
        given = {
            k: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], v)
            for k, v in step.get("env", {}).items()
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env={**env, **given}, cwd=folder)
        output += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, output, (runner / "github_step_summary").read_text()
    return 0, output, (runner / "github_step_summary").read_text()


def test_the_action_runs_no_python_of_the_pull_request(repository: Path) -> None:
    trap = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()\n"
    for name in ("onnx_nb", "numpy", "google", "onnx", "pip", "json", "sitecustomize"):
        Path(f"{name}.py").write_text(trap)
    git("add", ".")
    status, output, summary = run_action(repository, {"base": git("rev-parse", "HEAD").strip()})
    assert status == 0, output
    assert "net.onnx" in summary
    for step in steps():
        assert "python -m" not in step.get("run", ""), "python -m puts the checkout first on the path"
    assert not list(repository.rglob("*.ran"))


def test_names_in_models_are_no_commands_of_a_workflow(repository: Path) -> None:
    command = "::set-output name=pages::/etc"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], command, [], [])), "new.onnx")
    Path(f"{command.replace('/', '')}.onnx").write_bytes(Path("new.onnx").read_bytes())
    git("add", ".")
    status, output, _ = run_action(repository, {"base": "HEAD", "exit-code": "true"})
    assert status == 1
    begin = re.search(r"^::stop-commands::(\w{32})\n", output, re.MULTILINE)
    assert begin
    named = [match.start() for match in re.finditer("::set-output", output)]
    assert len(named) >= 2
    assert begin.end() <= min(named)
    assert max(named) < output.index(f"\n::{begin[1]}::\n")


def test_the_action_writes_a_summary_and_pages_from_a_shallow_checkout(repository: Path) -> None:
    git("commit", "-qm", "Two")
    base, shallow = git("rev-parse", "HEAD~1").strip(), repository.parent / "shallow"
    git("config", "uploadpack.allowAnySHA1InWant", "true")  # as on GitHub
    git("clone", "-q", "--depth=1", f"file://{repository}", str(shallow))
    status, output, summary = run_action(
        shallow, {"base": base, "paths": "a model\nnew.onnx", "fail": "max_abs > 1e9\n"}
    )
    assert status == 0, output
    assert "### a model/net&#46;onnx" in summary or "a model/net.onnx" in summary
    assert "old.onnx" not in summary
    runner = shallow.parent / "shallow-runner"
    assert sorted(page.name for page in runner.glob("onnx-nb/**/*.html")) == ["net.onnx.html", "new.onnx.html"]
    assert (runner / "github_output").read_text() == f"pages={runner}/onnx-nb\n"
    assert run_action(shallow, {"base": base, "exit-code": "true"})[0] == 1


def test_actions_of_others_are_pinned_by_their_commit() -> None:
    files = [ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")]
    used = [name for file in files for name in re.findall(r"^ *(?:- )?uses: (\S+)", file.read_text(), re.MULTILINE)]
    assert len(used) > 10
    loose = [name for name in used if not re.search("@[0-9a-f]{40}$", name)]
    assert loose == ["pypa/gh-action-pypi-publish@release/v1"]  # which release.yml explains


def test_inputs_of_the_action_are_no_code(repository: Path) -> None:
    for step in steps():
        assert "${{" not in step.get("run", "")
    status, output, _ = run_action(
        repository, {"base": "HEAD", "fail": '$(touch owned)\n"; touch owned', "paths": "--help"}
    )
    assert status == 2
    assert "is no condition" in output
    for name, words in (("feeds", "cannot be read"), ("shapes", "has no numbers")):
        inputs = {"base": "HEAD", "fail": "sqnr < 3 dB", name: '$(touch owned)\n"; touch owned', "paths": "data"}
        status, output, _ = run_action(repository, inputs)
        assert status != 0
        assert words in output or "there is no file" in output
    assert not Path("owned").exists()


@pytest.mark.slow
def test_the_action_installs_from_its_own_folder(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NO_DEPS": "1", "NO_INDEX": "1", "NO_BUILD_ISOLATION": "0", "TARGET": "site"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    status, output, _ = run_action(repository, {"base": "HEAD"}, installs=True)
    assert status == 0, output
    assert (repository / "site" / "onnx_nb" / "__main__.py").exists()


def test_hooks_run_on_staged_models(repository: Path) -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    staged = [path for path in git("diff", "--cached", "--name-only", "-z", "--diff-filter=d").split("\0") if path]
    for hook in hooks:
        files = [path for path in staged if re.search(hook["files"], path)]
        assert files == ["a model/net.onnx", "new.onnx"]
        program, *words = shlex.split(hook["entry"])
        assert program == "onnx-nb"
        command = [sys.executable, "-m", "onnx_nb", *words, *files]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "LeakyRelu" in done.stdout
        Path("broken.onnx").write_text("no model")
        git("add", "broken.onnx")
        done = subprocess.run([*command, "broken.onnx"], check=False, capture_output=True, text=True)
        assert done.returncode == 1
        assert "broken.onnx" in done.stdout
        git("rm", "-qf", "--cached", "broken.onnx")


def test_git_compares_summaries(repository: Path) -> None:
    Path(".gitattributes").write_text("*.onnx diff=onnx\n")
    textconv = shlex.join([sys.executable, "-m", "onnx_nb", "summary"])
    text = git("-c", f"diff.onnx.textconv={textconv}", "diff", "HEAD", "--", "a model")
    assert re.search(r"^-  Relu .* 1$", text, re.MULTILINE)
    assert re.search(r"^\+  LeakyRelu .* 1$", text, re.MULTILINE)
