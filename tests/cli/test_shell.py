"""The command line against the public functions, and against what people type by mistake."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

import onnx_nb
from onnx_nb.analysis.simplify import editor, known_graph, rounds
from onnx_nb.cli.shell import main, program
from onnx_nb.cli.verbs import VERBS
from tests import json_schema, models
from tests.servers import fetched

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 3] z) '
SCHEMA = json.loads(json_schema.FILE.read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with the models one.onnx and other.onnx, in which commands run."""
    bodies = {
        "one": "<float[3] w = {1, 2, 3}> { a = Mul(x, w)  b = Relu(a)  i = Identity(b)  z = Neg(i) }",
        "other": "<float[3] w = {1, 2, 3.1}> { a = Mul(x, w)  b = LeakyRelu(a)  z = Neg(b) }",
    }
    for name, body in bodies.items():
        onnx.save(onnx.parser.parse_model(HEAD + body), tmp_path / f"{name}.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Ran:
    """What a command printed, and its exit code."""

    def __init__(self, line: str, capsys: pytest.CaptureFixture[str]) -> None:
        capsys.readouterr()
        self.status = main(shlex.split(line))
        self.out, self.err = capsys.readouterr()

    @property
    def record(self) -> Any:
        found = json.loads(self.out)
        jsonschema.validate(found, SCHEMA)
        return found


LINES = {
    "show": "show one.onnx -o page.html",
    "summary": "summary one.onnx --shape n=2",
    "extract": "extract one.onnx --inputs a --outputs b -o part.onnx",
    "reduce": "reduce one.onnx --check 'sh -c \"! grep -q Relu {model}\"' -o part",
    "simplify": "simplify one.onnx -o simple.onnx --page page.html",
    "edit": "edit one.onnx --remove i --fix n=3 --rename x=image -o new.onnx --page page.html",
    "diff": "diff one.onnx other.onnx --page page.html",
    "compare": "compare one.onnx other.onnx --fail 'sqnr < 30' --page page.html",
    "capture": "capture one.onnx",
    "profile": "profile one.onnx --runs 3 --page page.html",
    "audit": "audit one.onnx --page page.html",
    "report": "report page.html one.onnx other.onnx --diff --compare",
}


def test_every_verb_is_tried_here() -> None:
    assert set(LINES) == set(VERBS)
    assert set(program.commands) == {*VERBS, "changes", "lab"}


def test_the_schema_is_that_of_the_results() -> None:
    assert json_schema.schema() == SCHEMA, "python -m tests.json_schema"


@pytest.mark.parametrize("name", LINES)
def test_json_of_every_verb_fits_the_schema_and_text_is_plain_in_a_pipe(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Ran(f"{LINES[name]} --json", capsys)
    assert (ran.record["format"], ran.record["command"]) == (1, name)
    assert ran.err == ""
    text = Ran(LINES[name], capsys)
    assert text.out
    assert "\x1b" not in text.out + text.err
    assert text.status == ran.status == (1 if name == "compare" else 0)
    for written in re.findall(r"\S+\.html|\bp?art\.onnx|simple\.onnx", LINES[name]):
        assert (folder / written).stat().st_size > 50


@pytest.mark.parametrize("name", LINES)
def test_the_printed_python_runs(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(f"{LINES[name]} --code", capsys)
    assert sorted(folder.iterdir()) == [folder / "one.onnx", folder / "other.onnx"]  # nothing ran
    variables: dict[str, Any] = {}
    exec(ran.out, variables)  # noqa: S102 (what a person would paste into a cell)
    last = ran.out.strip().splitlines()[-1].partition(" = ")[0]
    assert variables[last] is not None


def test_a_library_of_operators_goes_with_each_model_that_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Ran(
        "compare one.onnx other.onnx --custom-ops my.so --constant sr=1 --rtol 0.1 --no-regions --code", capsys
    ).out.splitlines()[-3:] == [
        "reference = onnx_nb.load('one.onnx', custom_ops='my.so')",
        "candidate = onnx_nb.load('other.onnx', custom_ops='my.so')",
        "c = onnx_nb.compare(reference, candidate, constants={'sr': 1}, rtol=0.1, isolated=False)",
    ]
    ran = Ran("simplify one.onnx -o simple.onnx --custom-ops my.so", capsys)
    assert ran.status == 2
    assert "my.so" in ran.err
    assert not (folder / "simple.onnx").exists()


@pytest.mark.usefixtures("folder")
def test_a_constant_of_the_command_line_is_a_number_or_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    line = "simplify one.onnx --constant sr=16000 --constant gain=0.5,2 --constant loud=true --code"
    constants = "{'sr': 16000, 'gain': (0.5, 2), 'loud': True}"
    assert f"onnx_nb.simplify('one.onnx', constants={constants})" in Ran(line, capsys).out
    assert "'sr=fast' has no numbers" in Ran("simplify one.onnx --constant sr=fast", capsys).err


def test_summary_counts_what_onnx_counts(capsys: pytest.CaptureFixture[str]) -> None:
    path = models.light("squeezenet")
    proto = onnx.load(path)
    found = Ran(f"summary '{path}' --json", capsys).record
    assert found["nodes"] == len(proto.graph.node)
    assert {row["op"]: row["count"] for row in found["operators"]} == {
        op: sum(node.op_type == op for node in proto.graph.node) for op in {node.op_type for node in proto.graph.node}
    }
    assert found["parameters"] == sum(int(np.prod(w.dims)) for w in proto.graph.initializer)
    assert found["macs"] == onnx_nb.costs(path).total.macs


def test_a_submodel_computes_what_the_whole_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Ran("extract one.onnx -i a -t b -o part.onnx", capsys)
    a = np.asarray([[-1, 0, 2]], np.float32)
    (found,) = onnx.reference.ReferenceEvaluator(str(folder / "part.onnx")).run(None, {"a": a})
    assert np.asarray(found).tolist() == [[0, 0, 2]]


def test_simplify_writes_a_model_that_onnx_accepts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran("simplify one.onnx -o simple.onnx --json", capsys)
    simple = onnx.load(folder / "simple.onnx")
    onnx.checker.check_model(simple, full_check=True)
    assert [node.op_type for node in simple.graph.node] == ["Mul", "Relu", "Neg"]
    assert sum(ran.record["operators_before"].values()) - sum(ran.record["operators_after"].values()) == 1


def test_simplify_exits_with_1_and_writes_nothing_where_the_result_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(net: editor.Editor, op: known_graph.Op) -> str | None:
        """Break the model."""
        return "it is wrong" if net.redirect(op.outputs[0], op.inputs[0]) else None

    monkeypatch.setattr(rounds, "RULES", [editor.Rule("wrong", "Break the model", wrong, ("Mul",))])
    for options in ("", "-o simple.onnx"):
        ran = Ran(f"simplify one.onnx {options}", capsys)
        assert ran.status == 1
        assert "is not the same" in ran.err
    assert not (folder / "simple.onnx").exists()
    # no check failed: it could not be made
    np.savez(folder / "feeds.npz", x=np.zeros(2, np.float32))
    assert Ran("simplify one.onnx --feeds feeds.npz -o simple.onnx", capsys).status == 2


def test_diff_exits_with_1_only_if_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Ran("diff one.onnx other.onnx", capsys).status == 0
    assert Ran("diff one.onnx other.onnx --exit-code", capsys).status == 1
    assert Ran("diff one.onnx one.onnx --exit-code", capsys).status == 0
    found = Ran("diff one.onnx other.onnx --json", capsys).record
    assert [row["message"] for row in found["differences"]] == [
        each.message for each in onnx_nb.diff("one.onnx", "other.onnx").changes
    ]


def test_compare_fails_on_the_points_of_failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(folder / "feeds.npz", x=np.asarray([[1, 2, 3], [-1, -2, -3]], np.float32))
    ran = Ran("compare one.onnx other.onnx --feeds feeds.npz --fail 'sqnr < 30 dB' --fail 'max_abs > 9' --json", capsys)
    c = onnx_nb.compare("one.onnx", "other.onnx", "feeds.npz")
    assert ran.record["failed"] == [point.name for point in c.failed(sqnr="< 30 dB", max_abs="> 9")] != []
    assert ran.status == 1
    fine = Ran("compare one.onnx other.onnx --feeds feeds.npz --fail 'sqnr < 0 dB' --outputs", capsys)
    assert (fine.status, fine.err) == (0, "")
    assert "No point failed" in fine.out


def test_what_runs_takes_sizes_and_files_of_single_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feeds = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.save(folder / "a=b.npy", feeds)
    for inputs in ("--shape n=5", "--shape x=5,3", "--feeds 'a=b.npy'", "--feed 'x=a=b.npy'"):
        for verb in ("capture one.onnx", "compare one.onnx other.onnx"):
            ran = Ran(f"{verb} {inputs} --json", capsys)
            (row,) = [row for row in ran.record.get("values", ran.record.get("points")) if row["name"] == "z"]
            assert row["shape"] == [5, 3]
        code = Ran(f"profile one.onnx {inputs} --runs 1 --code", capsys).out
        scope: dict[str, Any] = {}
        exec(code, scope)  # noqa: S102 (what --code prints)
        assert scope["p"].shapes == {"x": (5, 3)}
    assert Ran("report page.html one.onnx other.onnx --compare --shape n=5", capsys).status == 0
    code = Ran("reduce one.onnx --check 'true {model} {feeds}' --shape n=5 --code", capsys).out
    assert "shapes={'n': 5}" in code
    ran = Ran("capture one.onnx --shape n=5 --feeds 'a=b.npy'", capsys)
    assert (ran.status, "shapes= are sizes of feeds that are made up" in ran.err) == (2, True)
    ran = Ran("capture one.onnx --feed y=nowhere.npy", capsys)
    assert ran.status == 2
    assert "one.onnx has no input 'y'" in ran.err
    many = Ran("capture one.onnx --feeds a=b.npy --feeds a=b.npy --json", capsys)
    assert many.record["feeds"] == 2


def test_audit_fails_on_missing_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = onnx.load("one.onnx")
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"))
    onnx.save(proto, "outside.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert Ran("audit outside.onnx", capsys).status == 0
    (folder / "w.bin").unlink()
    ran = Ran("audit outside.onnx --json", capsys)
    assert (ran.status, ran.record["ok"]) == (1, False)
    assert "w.bin" in Ran("audit outside.onnx", capsys).out
    failed = Ran("compare outside.onnx one.onnx", capsys)
    assert failed.status == 2
    assert "w.bin" in failed.err


WRONG = {
    "summary nowhere.onnx": "there is no file 'nowhere.onnx'",
    "summary on.onnx": "Closest names: 'one.onnx'",
    "summary .": "folder",
    "summary text.onnx": "text.onnx",
    "sumary one.onnx": "there is no command 'sumary'. Closest names: 'summary'",
    "one.onnx": "onnx-nb show FILE",
    "summary one.onnx --jsn": "--json",
    "summary one.onnx --shape n": "NAME=SIZE",
    "summary one.onnx --shape m=1": "'m'",
    "extract one.onnx -i q -t b -o part.onnx": "'q'",
    "extract one.onnx -t a -o nowhere/deep/\0.onnx": "part",
    "compare one.onnx other.onnx --fail 'sqrn < 3'": "Closest names: 'sqnr'",
    "compare one.onnx other.onnx --fail 'sqnr = 3'": "is no condition",
    "compare one.onnx other.onnx --feeds nowhere.npz": "nowhere.npz",
    "report page.html one.onnx --diff": "two models",
    "simplify one.onnx -o .": "",
    "lab nowhere.onnx": "there is no file",
}
del WRONG["extract one.onnx -t a -o nowhere/deep/\0.onnx"]


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_one_line_that_says_what_to_do(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "text.onnx").write_text("<!doctype html>" * 99)
    before = sorted(folder.iterdir())
    ran = Ran(line, capsys)
    assert ran.status == 2
    assert ran.out == ""
    assert re.fullmatch(r"onnx-nb: [^\n]+\n", ran.err)
    assert WRONG[line] in ran.err
    assert sorted(folder.iterdir()) == before


def test_a_condition_is_read_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_nb, "compare", lambda *_args, **_kwargs: pytest.fail("it ran"))
    assert Ran("compare one.onnx other.onnx --fail 'sqrn < 3'", capsys).status == 2


def test_an_unwritable_output_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("")
    for line in ("extract one.onnx -i x -t a -o file/part.onnx", "show one.onnx -o file/page.html"):
        ran = Ran(line, capsys)
        assert (ran.status, ran.out) == (2, "")
        assert "file" in ran.err
    assert len(list(folder.iterdir())) == 3


def test_debug_shows_the_traceback(folder: Path) -> None:
    with pytest.raises(onnx_nb.ModelFileError):
        main(["summary", "nowhere.onnx", "--debug"])


def test_a_fault_of_ours_is_one_line_too(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("half way")

    monkeypatch.setattr(onnx_nb, "diff", broken)
    ran = Ran("diff one.onnx other.onnx", capsys)
    assert ran.status == 3
    assert ran.err == "onnx-nb: ZeroDivisionError: half way --debug shows where.\n"


def test_names_of_a_model_cannot_steer_a_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = onnx.load("one.onnx")
    evil = "\x1b[2J\x9b2J\u2028\u2029\u202e\x85\nline"
    proto.graph.name = f"evil{evil}"
    proto.graph.doc_string = evil
    proto.graph.node[0].name = evil
    for node, name in ((proto.graph.node[1], f"b{evil}"), (proto.graph.node[2], f"i{evil}")):
        proto.graph.node[proto.graph.node[:].index(node) + 1].input[0] = node.output[0] = name
    onnx.save(proto, "evil.onnx")
    lines = [
        "summary evil.onnx",
        "diff one.onnx evil.onnx",
        "compare one.onnx evil.onnx",
        "simplify evil.onnx -o s.onnx",
    ]
    lines += [
        "capture evil.onnx",
        "profile evil.onnx --runs 1",
        "audit evil.onnx",
        "extract evil.onnx --outputs zz -o p.onnx",
    ]
    for line in (f"{each}{way}" for each in lines for way in ("", " --json", " --code")):
        ran = Ran(line, capsys)
        assert (ran.out + ran.err).replace("\n", "").isprintable(), line
        if "--json" in line and ran.out:
            assert ran.record


# --- as a process ----------------------------------------------------------------------------------------------------

ONNX_NB = [sys.executable, "-m", "onnx_nb"]


def test_help_imports_no_model_library() -> None:
    heavy = ("onnx", "numpy", "onnxruntime", "ipywidgets", "IPython", "matplotlib")
    code = "import sys; from onnx_nb.cli.shell import main; main(['diff', '--help']); "
    code += f"print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("[]\n")
    assert "--exit-code" in done.stdout


def test_the_version_is_that_of_the_package() -> None:
    done = subprocess.run([*ONNX_NB, "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"onnx-nb {onnx_nb.__version__}\n"


@pytest.mark.parametrize(("no_color", "colored"), [("", True), ("1", False)])
def test_a_terminal_gets_colors_unless_no_color(folder: Path, no_color: str, *, colored: bool) -> None:
    reader, writer = pty.openpty()
    command = [*ONNX_NB, "diff", "one.onnx", "other.onnx"]
    env = {**os.environ, "NO_COLOR": no_color, "COLUMNS": "60"}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=env, check=True)
    os.close(writer)
    text = os.read(reader, 100_000).decode()
    os.close(reader)
    assert ("\x1b[" in text) is colored
    assert done.stderr == b""
    plain = re.sub(r"\x1b\[\d*m", "", text).splitlines()
    assert max(map(len, plain)) <= 60


def test_head_closes_the_pipe_without_a_word(folder: Path) -> None:
    path = models.chain(3000)
    line = f"{shlex.join(ONNX_NB)} diff one.onnx '{path}' | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], check=False, capture_output=True, text=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


@pytest.mark.parametrize("existing", [False, True])
def test_ctrl_c_half_way_leaves_no_file(folder: Path, *, existing: bool) -> None:
    """The signal comes when half of a file is written."""
    code = """
import os, signal, sys
from onnx_nb.analysis.model import wire
# a job in the background of a shell inherits that it is to ignore the signal
signal.signal(signal.SIGINT, signal.default_int_handler)
write = wire.write
def half(file, parts, watch):
    def interrupt(data):
        file.flush()
        os.kill(os.getpid(), signal.SIGINT)
        watch(data)
    write(file, parts, interrupt)
wire.write = half
from onnx_nb.cli.shell import main
sys.exit(main(sys.argv[1:]))
"""
    if existing:
        Path("out.onnx").write_text("old")
        Path("page.html").write_text("old")
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    for line in (
        "simplify one.onnx -o out.onnx",
        "diff one.onnx other.onnx --page page.html",
        "show one.onnx -o page.html",
    ):
        done = subprocess.run([sys.executable, "-c", code, *line.split()], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr.strip()) == (130, "onnx-nb: interrupted.")
        assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def completions(line: str) -> list[str]:
    env = {**os.environ, "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    env["_ONNX_NB_COMPLETE"] = "bash_complete"
    done = subprocess.run(ONNX_NB, env=env, check=True, capture_output=True, text=True)
    return [row.partition(",")[2] for row in done.stdout.splitlines()]


def test_shells_complete_commands_options_and_tensor_names(folder: Path) -> None:
    assert completions("onnx-nb di") == ["diff"]
    assert "--exit-code" in completions("onnx-nb diff one.onnx other.onnx --e")
    assert completions("onnx-nb extract one.onnx --inputs ") == ["x", "w", "a", "b", "i", "z"]
    assert completions("onnx-nb compare one.onnx other.onnx --fail sq") == ["sqnr"]


# --- job summaries ---------------------------------------------------------------------------------------------------


def test_a_job_summary_is_appended_as_markdown(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = folder / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    Ran("diff one.onnx other.onnx --github", capsys)
    text = summary.read_text()
    assert text.startswith("before\n### ")
    assert "| + | node | LeakyRelu" in text


def test_names_of_a_model_are_no_markup_in_a_job_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = onnx.load("one.onnx")
    proto.graph.node[0].name = "<img src=x>|@everyone [a](http://b) ```"
    proto.graph.node[1].op_type = 'X"]; click b0 "javascript:1"'
    onnx.save(proto, "evil.onnx")
    out = Ran("diff one.onnx evil.onnx --github", capsys).out.partition("###")[2]
    for bad in ("<img", "@everyone", "](http", "\n```\n```"):
        assert bad not in out
    assert "```" not in out


# --- JupyterLab ------------------------------------------------------------------------------------------------------


def test_lab_serves_the_folder_of_the_model_and_prints_its_address(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "a b.onnx").write_bytes((folder / "one.onnx").read_bytes())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token=t"]
    command = [*ONNX_NB, "lab", "inner/a b.onnx", "--", *options]
    env = {**os.environ, "JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTER_DATA_DIR": str(folder / "data")}
    lab = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    try:
        assert lab.stdout is not None
        address = next(found[0] for line in lab.stdout if (found := re.search(r"http://127\.\S+", line)))
        assert urllib.parse.urlsplit(address).path == "/lab/tree/a%20b.onnx"
        contents = address.partition("/lab/")[0] + "/api/contents/a%20b.onnx?content=0&token=t"
        assert json.loads(fetched(contents))["size"] == (folder / "one.onnx").stat().st_size
    finally:
        lab.terminate()
        lab.communicate(timeout=30)


@pytest.mark.parametrize("has_data_file", [False, True])
def test_simplify_may_write_the_file_that_it_reads(
    has_data_file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 300] x) => (float[1, 300] y) { a = Identity(x)  b = MatMul(a, w)  y = Identity(b) }""")
    weight = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=has_data_file, location="model.data", size_threshold=0)
    ran = Ran(f"simplify {path} -o {path}", capsys)
    assert "3 → 1 nodes, verified" in ran.out
    written = onnx.load(path)
    assert [node.op_type for node in written.graph.node] == ["MatMul"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(written.graph.initializer[0]), weight)
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx"} | ({"model.data"} if has_data_file else set())
