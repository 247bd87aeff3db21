"""A repository with a budget, in which a model is simplified, quantized badly, exported again and made too large."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
import yaml
from onnxruntime.quantization import CalibrationDataReader, quantize_static

import onnx_nb
from onnx_nb.cli.changes import budget_of, read_budgets
from tests.cli.test_ci import ROOT, git, run_action
from tests.cli.test_shell import Ran

BUDGET = """
["models/*.onnx"]
fail = ["sqnr < 15 dB"]
feeds = { x = "tests/x.npy" }

["models/float.onnx"]
nodes = 8
megabytes = 1
"""


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    """Four feeds."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.feeds = iter([{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def network() -> onnx.ModelProto:
    """Return three convolutions, each behind an Identity that does nothing."""
    body = "".join(
        f"i{n} = Identity(a{n})  c{n} = Conv<pads = [1,1,1,1]>(i{n}, w{n})  a{n + 1} = Relu(c{n})  " for n in range(3)
    )
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] z)'
    model = onnx.parser.parse_model(f"{text} {{ a0 = Relu(x)  {body} z = Identity(a3) }}")
    rng = np.random.default_rng(1)
    for n in range(3):
        weight = (rng.standard_normal((3, 3, 3, 3)) / 4).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{n}"))
    return model


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    for folder in ("models", "tests"):
        Path(folder).mkdir()
    onnx.save(network(), "models/float.onnx")
    quantize_static("models/float.onnx", "models/int8.onnx", Calibration())
    np.save("tests/x.npy", np.random.default_rng(2).standard_normal((1, 3, 8, 8)).astype(np.float32))
    Path("onnx-nb.toml").write_text(BUDGET)
    git("add", ".")
    git("commit", "-qm", "One")
    return tmp_path


def commit() -> None:
    git("add", ".")
    git("commit", "-qm", "Another")


def first_lines(capsys: pytest.CaptureFixture[str], *models: str) -> tuple[str, int, Ran]:
    """Return what command, hook and Action say of the uncommitted models in their first line, the status, and more."""
    ran = Ran("changes", capsys)
    line = ran.out.splitlines()[0]
    (hook, *_) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    hooked = Ran(" ".join([*shlex.split(hook["entry"])[1:], *models]), capsys)
    assert (hooked.out.splitlines()[0], hooked.status) == (line, ran.status)
    status, output, summary = run_action(Path.cwd(), {"base": "HEAD"})
    assert (output.splitlines()[1], status) == (line, ran.status)  # the line before it stops workflow commands
    title = summary[summary.rindex("### models/") :].splitlines()[0]  # a runner has a summary of each step
    assert html.unescape(title) == f"### {line}"
    for table in re.findall(r"^\|.*\n\|[- :|]*\|$", summary, re.MULTILINE):
        head, rule = (row.count("|") for row in table.splitlines())
        assert head == rule, "GitHub shows no table whose first rows have other columns"
    return line, ran.status, ran


def test_each_commit_is_said_in_its_first_line(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_nb.simplify(onnx.load("models/float.onnx")).model.save("models/float.onnx")
    line, status, _ = first_lines(capsys, "models/float.onnx")
    assert (line, status) == ("models/float.onnx: changed, 4 nodes removed", 0)
    commit()

    model = onnx.load("models/int8.onnx")
    scales = [weight for weight in model.graph.initializer if weight.name == "a2_scale"]
    before = onnx.numpy_helper.to_array(scales[0])
    scales[0].CopyFrom(onnx.numpy_helper.from_array(np.asarray(before / 3.7, np.float32), "a2_scale"))
    onnx.save(model, "models/int8.onnx")
    line, status, ran = first_lines(capsys, "models/int8.onnx")
    texts = f"{float(before):.3g} → {float(before) / 3.7:.3g}"
    assert line == f"models/int8.onnx: changed, 1 scale changed; most: 'a2_scale': scale {texts}, ÷ 3.7"
    assert "clips" in ran.out  # the comparison that the budget asks for says what it costs
    assert status == 1
    commit()

    model = onnx.load("models/int8.onnx")
    for at, node in enumerate(model.graph.node):
        node.name = f"node_{at}"
    onnx.save(model, "models/int8.onnx")
    line, status, _ = first_lines(capsys, "models/int8.onnx")
    count = len(model.graph.node)
    assert (line, status) == (f"models/int8.onnx: changed, only names differ: {count} of {count} nodes", 0)


def test_a_change_does_not_raise_its_own_budget(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    for n in range(4):
        model.graph.node.add(op_type="Neg", input=["x"], output=[f"n{n}"])
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"n{n}", 1, [1, 3, 8, 8]))
    weight = np.zeros(300_000, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "much"))
    onnx.save(model, "models/float.onnx")
    Path("onnx-nb.toml").unlink()  # neither its absence nor what it allows now counts
    Path("tests/x.npy").unlink()
    ran = Ran("changes --json", capsys)
    (entry,) = ran.record["models"]
    assert not entry["ok"]
    assert entry["excesses"] == ["15 nodes, 8 allowed", "1.2 MB of weights, 1.0 MB allowed"]
    assert entry["compare"] is None  # the last pattern that fits has no conditions
    Path("onnx-nb.toml").write_text('["models/*.onnx"]\nmilliseconds = 0.000001\n')
    commit()
    onnx.save(network(), "models/float.onnx")
    (entry,) = Ran("changes --json", capsys).record["models"]
    (excess,) = entry["excesses"]
    assert excess.endswith("s a run, 0.001 µs allowed")
    Path("onnx-nb.toml").write_text('["models/*.onnx"]\nfeeds = "tests/x.npy"\n')
    commit()
    onnx.save(model, "models/float.onnx")
    (entry,) = Ran("changes --json", capsys).record["models"]
    assert "names the feeds tests/x.npy, which HEAD does not have" in entry["error"]


def test_a_model_that_does_not_run_still_has_its_diff(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load("models/int8.onnx")
    for node in model.graph.node:
        node.name = "the same"  # onnxruntime refuses that
    onnx.save(model, "models/int8.onnx")
    ran = Ran("changes", capsys)
    assert ran.out.startswith("models/int8.onnx: changed, only names differ")
    assert "has the name of another node" in ran.out
    assert ran.status == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = 3", "'nodes' stands in no table"),
        ("[[", "is no TOML"),
        ('["*"]\nmax = 1', "max = 1 is no entry of a budget"),
        ('["*"]\nnode = 1', "Closest names: 'nodes'"),
        ('["*"]\nnodes = true', "Write nodes = 420"),
        ('["*"]\nnodes = -1', "Write nodes = 420"),
        ('["*"]\nfail = "sqnr < 3 dB"', "Write fail = "),
        ('["*"]\nfail = ["sqnr < 3 kB"]', "'sqnr < 3 kB' is no condition"),
        ('["*"]\nfeeds = "../x.npy"', "a file of the repository"),
        ('["*"]\nfeeds = "/etc/passwd"', "a file of the repository"),
        ('["*"]\nfeeds = { x = 1 }', "a file of the repository"),
        ('["*"]\nshapes = { n = "1" }', "Write shapes = "),
    ],
)
def test_a_wrong_budget_is_refused(text: str, message: str) -> None:
    with pytest.raises(onnx_nb.OnnxNbError, match=r"onnx-nb\.toml|condition") as caught:
        read_budgets(text)
    assert message in str(caught.value)


def test_the_last_pattern_that_fits_counts() -> None:
    budgets = read_budgets('["*"]\nnodes = 1\n["a/*"]\nnodes = 2.5\nshapes = { n = 2, x = [1, 3] }')
    assert [budget_of(budgets, path).nodes for path in ("a/b.onnx", "b.onnx")] == [2.5, 1]
    assert budget_of(budgets, "a/b.onnx").shapes == {"n": 2, "x": [1, 3]}
