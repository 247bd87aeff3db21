"""The magics in a real IPython shell."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx.printer
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

import onnx_nb
from onnx_nb.cli.magics import MAGICS

ONE = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[2, 3] z) <float[3] w = {1, 2, 3}> {
  a = Mul(x, w)  "layers.0/relu:0" = Relu(a)  i = Identity("layers.0/relu:0")  z = Neg(i) }""")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    onnx.save(ONE, "one.onnx")
    made: Any = InteractiveShell()
    made.run_line_magic("load_ext", "onnx_nb")
    made.user_ns["one"] = onnx_nb.load(ONE)
    yield made
    made.history_manager.end_session()


LINES = {
    "onnx": ("one.onnx", onnx_nb.ModelView),
    "onnx_summary": ("one", onnx_nb.types.Summary),
    "onnx_extract": ("one --inputs a --outputs i", onnx_nb.Model),
    "onnx_simplify": ("one.onnx --check-n 1", onnx_nb.types.Simplification),
    "onnx_diff": ("one one.onnx", onnx_nb.types.Diff),
    "onnx_compare": ("one one.onnx", onnx_nb.types.Comparison),
    "onnx_capture": ("one --tensors a", onnx_nb.types.Capture),
    "onnx_edit": ("one --opset 18", onnx_nb.types.Edit),
    "onnx_profile": ("one --runs 2", onnx_nb.types.Profile),
    "onnx_audit": ("one.onnx", onnx_nb.types.Audit),
}


def test_every_magic_is_tried_here() -> None:
    assert set(LINES) == set(MAGICS)


@pytest.mark.parametrize("name", LINES)
def test_a_magic_returns_the_result_and_names_it(shell: Any, name: str) -> None:
    line, kind = LINES[name]
    assert type(shell.run_line_magic(name, line)) is kind
    found = shell.run_line_magic(name, f"{line} --name mine")
    assert shell.user_ns["mine"] is (found.model if name == "onnx" else found)


@pytest.mark.parametrize("name", LINES)
def test_the_python_of_a_magic_runs_in_the_notebook(shell: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, kind = LINES[name]
    assert shell.run_line_magic(name, f"{line} --name mine --code") is None
    code = capsys.readouterr().out
    assert "mine" not in shell.user_ns  # nothing ran
    assert shell.run_cell(code).success
    assert isinstance(shell.user_ns["mine"], onnx_nb.Model if name == "onnx" else kind)


def test_help_is_printed_and_in_the_docstring(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_line_magic("onnx_simplify", "--help") is None
    text = capsys.readouterr().out
    assert text.startswith("Usage: %onnx_simplify [OPTIONS] MODEL")
    assert shell.find_line_magic("onnx_simplify").__doc__.strip() == text.strip()


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("onnx_summary", "nowhere.onnx", "there is no file"),
        ("onnx_summary", "oen", "there is no variable and no file 'oen'. Closest names: 'one'"),
        ("onnx_summary", "one --nmae x", "No such option"),
        ("onnx_summary", "", "Missing argument"),
        ("onnx_summary", "one --name 3x", "not the name of a variable"),
        ("onnx_summary", "'one", "Close the quotation mark"),
        ("onnx_extract", "one --inputs q --outputs z", "'q'"),
        ("onnx_compare", "one one --fail 'sqrn<3'", "Closest names: 'sqnr'"),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(shell: Any, name: str, line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        shell.run_line_magic(name, line)


def test_points_that_fail_are_named(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    other = onnx.ModelProto.FromString(ONE.SerializeToString())
    other.graph.node[-1].op_type = "Abs"
    shell.user_ns["other"] = other
    c = shell.run_line_magic("onnx_compare", "one other --fail sqnr<30")
    assert capsys.readouterr().out == f"failed: {', '.join(point.name for point in c.failed(sqnr='< 30'))}\n"


def completed(shell: Any, text: str) -> list[str]:
    """Return whole lines, as a person gets them."""
    from IPython.core.completer import provisionalcompleter

    with provisionalcompleter():
        found = list(shell.Completer.completions(text, len(text)))
    return [text[: each.start] + each.text + text[each.end :] for each in found]


def test_variables_files_options_tensors_and_metrics_are_completed(shell: Any) -> None:
    assert "%onnx_summary one" in completed(shell, "%onnx_summary o")
    assert "%onnx_summary one.onnx" in completed(shell, "%onnx_summary o")
    assert "s = %onnx_simplify one --fold-quantization" in completed(shell, "s = %onnx_simplify one --fo")
    assert completed(shell, "%onnx_extract one --inputs lay") == ["%onnx_extract one --inputs layers.0/relu:0"]
    line = "%onnx_extract one.onnx --outputs "
    assert f"{line}layers.0/relu:0" in completed(shell, f"{line}layers.0/relu:")  # Jedi adds names of Python
    assert "%onnx_compare one one --fail sqnr" in completed(shell, "%onnx_compare one one --fail sq")


def test_a_kernel_completes_and_shows() -> None:
    """Through the messages that JupyterLab sends."""
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        client.execute_interactive(
            "%load_ext onnx_nb\nimport onnx.parser, onnx_nb\n"
            f"one = onnx_nb.load(onnx.parser.parse_model({onnx.printer.to_text(ONE)!r}))",
            timeout=60,
        )
        for line, match in (
            ("%onnx_extract one --inputs lay", "layers.0/relu:0"),
            ("%onnx_compare one one --f", "--fail"),
        ):
            found = client.complete(f"x = 1\n{line}", reply=True, timeout=60)["content"]
            assert match in found["matches"]
        shown: list[Any] = []
        client.execute_interactive("%onnx_summary one", timeout=60, output_hook=shown.append)
        results = [each["content"]["data"] for each in shown if each["msg_type"] == "execute_result"]
        assert [WIDGET in data for data in results] == [True]
        _assert_progress_and_interrupt(manager, client)
        _assert_one_bar_of_a_call(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _assert_progress_and_interrupt(manager: KernelManager, client: BlockingKernelClient) -> None:
    """A long magic draws a bar, which is gone when it ends, and an interrupt is one line."""
    client.execute_interactive(
        "import time\nfrom onnx_nb.analysis.arguments import known_arguments\n"
        "@known_arguments\n"
        "def slow(*args, progress=None, **kwargs):\n"
        "    for number in range(600):\n"
        "        progress(number / 600, 'layer <0>')\n"
        "        time.sleep(0.1)\n"
        "onnx_nb.capture = slow",
        timeout=60,
    )
    shown: list[Any] = []

    def interrupt(message: Any) -> None:
        shown.append(message)
        bars = [each for each in shown if "display_data" in each["msg_type"]]
        if message in bars and len(bars) in {2, 20}:
            manager.interrupt_kernel()

    reply = client.execute_interactive("%onnx_capture one", timeout=60, output_hook=interrupt)
    drawn = [each["content"]["data"]["text/html"] for each in shown if "display_data" in each["msg_type"]]
    assert drawn[0].startswith("<progress")
    assert "layer &lt;0&gt;" in drawn[0]
    assert not drawn[-1]
    printed = "".join(each["content"]["text"] for each in shown if each["msg_type"] == "stream")
    assert reply["content"]["status"] == "error"
    assert "UsageError: interrupted" in printed
    assert "Traceback" not in printed


def _assert_one_bar_of_a_call(client: BlockingKernelClient) -> None:
    """A call in a cell draws one bar within a second, although its step reports nothing, and none for its parts."""
    shown: list[tuple[float, Any]] = []
    client.execute_interactive(
        "@known_arguments\ndef part(*, progress=None):\n    progress and progress(0.9, 'a part')\n    time.sleep(0.5)\n"
        "@known_arguments\ndef whole(*, progress=None):\n    progress(0.25, 'the whole')\n    part()\n"
        "    time.sleep(1)\n",
        timeout=60,
    )
    start = time.monotonic()
    client.execute_interactive(
        "whole()", timeout=60, output_hook=lambda message: shown.append((time.monotonic() - start, message))
    )
    bars = [(at, each) for at, each in shown if "display_data" in each["msg_type"]]
    texts = [each["content"]["data"]["text/plain"] for _, each in bars]
    assert [each["msg_type"] for _, each in bars].count("display_data") == 1
    assert bars[0][0] < 1
    assert set(texts[:-1]) == {" 25%  the whole"}
    assert texts[-1] == ""


def test_unloading_removes_magics_and_completion(shell: Any) -> None:
    shell.run_line_magic("unload_ext", "onnx_nb")
    assert [name for kind in shell.magics_manager.magics.values() for name in kind if name.startswith("onnx")] == []
    assert "%onnx_extract one --inputs layers.0/relu:0" not in completed(shell, "%onnx_extract one --inputs lay")


# --- bare protos -----------------------------------------------------------------------------------------------------

WIDGET = "application/vnd.jupyter.widget-view+json"


def shown(shell: Any, value: object) -> dict[str, Any]:
    data: dict[str, Any] = shell.display_formatter.format(value)[0]
    return data


def test_parts_of_a_model_show_their_graph(shell: Any) -> None:
    function = onnx.helper.make_function("my", "twice", ["x"], ["z"], [*ONE.graph.node[3:]], ONE.opset_import)
    for value, text in (
        (ONE.graph, "Model('g', 4 nodes, 12 B"),
        (function, "Model('twice', 1 node"),
        (ONE.graph.node[0], "Model('Mul', 1 node"),
    ):
        data = shown(shell, value)
        assert WIDGET in data
        assert data["text/plain"].startswith(text)


def test_models_of_other_libraries_show_their_graph(shell: Any) -> None:
    ir = pytest.importorskip("onnx_ir")
    data = shown(shell, ir.serde.deserialize_model(ONE))
    assert WIDGET in data
    assert data["text/plain"].startswith("Model('g', 4 nodes")


def test_an_exported_program_shows_its_graph(shell: Any) -> None:
    torch, ir = pytest.importorskip("torch"), pytest.importorskip("onnx_ir")
    data = shown(shell, torch.onnx.ONNXProgram(ir.serde.deserialize_model(ONE), None))
    assert WIDGET in data
    assert data["text/plain"].startswith("Model('g', 4 nodes")


def test_a_tensor_shows_its_type_statistics_and_values(shell: Any) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = shown(shell, onnx.numpy_helper.from_array(array, "<b>w"))
    assert data["text/plain"] == f"TensorProto '<b>w': float32 2×3, 24 B\n{array}"
    assert re.findall(r"<td[^>]*>([^<]*)", data["text/html"]) == ["float32", "2×3", "0", "5", "2.5", "1.708", "1", "0"]
    assert "<b>" not in data["text/html"]
    missing = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location="EXTERNAL")
    missing.external_data.add(key="location", value="w.bin")
    assert "w.bin" in shown(shell, missing)["text/plain"]
