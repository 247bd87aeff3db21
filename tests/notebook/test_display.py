"""The notebook extension in a real IPython shell."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import ipywidgets
import nbclient
import nbconvert
import nbformat
import numpy as np
import onnx
import onnx.parser
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import onnx_nb
from onnx_nb.notebook import display
from tests import models
from tests.analysis.submodel.test_extraction import BRANCHES
from tests.widgets.test_widgets import ask

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def shell() -> Iterator[Any]:
    shell: Any = InteractiveShell()
    yield shell
    shell.history_manager.end_session()


def shown(shell: Any, value: object) -> dict[str, Any]:
    data: dict[str, Any] = shell.display_formatter.format(value)[0]
    return data


def test_a_bare_proto_shows_the_view_instead_of_its_text(shell: Any) -> None:
    proto = onnx.parser.parse_model(BRANCHES)
    before = shown(shell, proto)
    assert WIDGET not in before
    shell.run_line_magic("load_ext", "onnx_nb")
    data = shown(shell, proto)
    assert WIDGET in data
    assert data["text/plain"] == "Model('branches', 9 nodes, 36 B, opset 17)"
    shell.run_line_magic("unload_ext", "onnx_nb")
    assert shown(shell, proto) == before


def test_a_notebook_that_no_browser_showed_is_not_blank() -> None:
    """As ``nbconvert --execute --to html`` writes it: a page without a network shows what the widget is about."""
    lines = ["import onnx.parser, onnx_nb", f"model = onnx_nb.load(onnx.parser.parse_model({BRANCHES!r}))", "model"]
    shown = "ipywidgets.Tab([onnx_nb.ModelSummary(model)]), onnx_nb.ModelView(model)"
    box = f"import ipywidgets\nipywidgets.HBox([{shown}])"
    cells = [nbformat.v4.new_code_cell(source) for source in ("\n".join(lines), box)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    exporter = nbconvert.HTMLExporter()  # type: ignore[no-untyped-call]
    page, _ = exporter.from_notebook_node(notebook)
    text = re.sub(r"<script.*?</script>|<[^>]*>", "", page, flags=re.DOTALL)
    assert text.count("Graph of branches: 9 nodes") == 2, "also in a box"
    assert "9 nodes, 9 parameters" in text


def test_the_picture_is_empty_in_a_page_that_will_draw_it_and_a_text_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = onnx_nb.ModelGraph(onnx.parser.parse_model(BRANCHES))
    said: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: said.append(data))
    requests: list[dict[str, Any]] = [{"deletedCells": []}, {}]
    for metadata in requests:
        kernel = SimpleNamespace(kernel=object(), get_parent=lambda metadata=metadata: {"metadata": metadata})
        monkeypatch.setattr("IPython.get_ipython", lambda kernel=kernel: kernel)
        graph.show_picture()
    # the shell of Solara knows no request
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    graph.show_picture()
    page, elsewhere, solara = said
    assert solara.data == elsewhere.data
    assert base64.b64decode(page["image/gif"]).startswith(b"GIF89a")
    assert page["text/plain"] == "Graph of branches: 9 nodes"
    assert "Graph of branches: 9 nodes" in elsewhere.data


@pytest.mark.parametrize("make", [onnx_nb.load, onnx_nb.simplify, onnx_nb.summarize, onnx_nb.capture])
def test_marimo_gets_the_widget_of_a_model_or_a_result(make: Callable[..., Any]) -> None:
    """marimo displays what ``_display_`` returns, and no MIME bundle of a widget."""
    result = make(onnx.parser.parse_model(BRANCHES))
    assert isinstance(result._display_(), ipywidgets.DOMWidget)


def test_lines_of_a_cell_are_named_by_its_number() -> None:
    shell = InteractiveShell.instance()
    try:
        shell.run_cell("1 + 1", store_history=True)
        shell.run_cell(
            "from onnx_nb.analysis.pytorch import module_scopes as at\n\nline = at.line_text(*at.running_place())",
            store_history=True,
        )
        assert shell.user_ns["line"] == "In[2]:3"
    finally:
        InteractiveShell.clear_instance()


def test_a_huge_proto_is_never_printed(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run_line_magic("load_ext", "onnx_nb")
    proto = onnx.load(models.light("densenet121"))
    printers = shell.display_formatter.formatters["text/plain"]
    monkeypatch.setattr(type(printers), "__call__", lambda *_: pytest.fail("the proto was printed"))
    assert shown(shell, proto)["text/plain"].startswith("Model('")


def test_what_another_extension_showed_comes_back(shell: Any) -> None:
    def other(model: object, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": "theirs"}

    shell.display_formatter.mimebundle_formatter.for_type_by_name("onnx.onnx_ml_pb2", "ModelProto", other)
    shell.run_line_magic("load_ext", "onnx_nb")
    assert WIDGET in shown(shell, onnx.ModelProto())
    shell.run_line_magic("reload_ext", "onnx_nb")
    shell.run_line_magic("unload_ext", "onnx_nb")
    assert shown(shell, onnx.ModelProto()) == {"text/plain": "theirs"}


def test_a_proto_that_cannot_be_shown_says_why(shell: Any) -> None:
    shell.run_line_magic("load_ext", "onnx_nb")
    data = shown(shell, onnx.ModelProto())
    assert "text/plain" in data
    assert "Traceback" not in data["text/plain"]


def test_the_magic_loads_names_and_is_gone_after_unload(shell: Any) -> None:
    shell.run_line_magic("load_ext", "onnx_nb")
    path = models.light("squeezenet")
    view = shell.run_line_magic("onnx", f"'{path}' --name net")
    assert isinstance(view, onnx_nb.ModelView)
    assert shell.user_ns["net"] is view.model
    with pytest.raises(UsageError, match=r"nowhere\.onnx"):
        shell.run_line_magic("onnx", "nowhere.onnx")
    shell.run_line_magic("unload_ext", "onnx_nb")
    assert shell.find_line_magic("onnx") is None


def test_loading_the_extension_imports_neither_onnx_nor_widgets() -> None:
    code = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "onnx_nb")
print([m for m in ("onnx", "onnxruntime", "ipywidgets", "anywidget", "matplotlib.pyplot") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_import_registers_nothing_in_the_shell() -> None:
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
formatter = shell.display_formatter.mimebundle_formatter
before = [dict(formatter.type_printers), dict(formatter.deferred_printers)]
import onnx_nb
assert [formatter.type_printers, formatter.deferred_printers] == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


RESULTS: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "model": onnx_nb.load,
    "capture": onnx_nb.capture,
    "comparison": lambda proto: onnx_nb.compare(proto, proto),
    "diff": lambda proto: onnx_nb.diff(proto, proto),
    "simplification": lambda proto: onnx_nb.simplify(proto, check_n=0),
    "summary": onnx_nb.summarize,
}


@pytest.mark.parametrize("name", RESULTS)
def test_models_and_results_show_widgets_and_their_text(name: str) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Exp(x) z = Neg(y) }'
    )
    result = RESULTS[name](proto)
    data, _ = result._repr_mimebundle_()
    assert WIDGET in data
    assert data["text/plain"] == repr(result)


def test_a_calibration_shows_the_worst_ranges_and_one_in_its_histogram(shell: Any) -> None:
    feeds = [{"x": np.random.default_rng(0).standard_t(3, (4, 64)).astype(np.float32)}]
    network = '<ir_version: 8, opset_import: ["": 17]> g (float[4, 64] x) => (float[4, 64] <b>) { <b> = Neg(x) }'
    proto = onnx.parser.parse_model(network.replace("<b>", "y"))
    proto.graph.node[0].output[0] = proto.graph.output[0].name = "<b>"
    found = onnx_nb.calibrate(onnx_nb.capture(proto, feeds, ranges=True), "percentile", percentile=95)
    data = shown(shell, found)
    assert data["text/plain"] == str(found)
    page = data["text/html"]
    assert "<b>&lt;b&gt;" not in page
    assert page.count("<tr>") == 3
    picture = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert picture is not None
    assert b"<svg" in base64.b64decode(picture[1])
    assert display.widget_of(found).value.partition("<img")[0] == page.partition("<img")[0]


def test_a_reduction_says_what_it_found_before_its_graph(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = Neg(x) b = Log(a) y = Exp(b) }'
    )

    def check(part: onnx_nb.Model, feeds: dict[str, Any]) -> bool:
        return not any(np.isnan(each).any() for each in onnx_nb.run(part, feeds).values())

    found = onnx_nb.reduce(proto, check, {"x": np.array([1, -1], np.float32)})
    said: list[str] = []
    monkeypatch.setattr(display, "_shell", lambda: shell)
    monkeypatch.setattr("IPython.display.display", lambda html: said.append(html.data))
    data = shown(shell, found)
    assert WIDGET in data
    assert data["text/plain"].startswith(found.message)
    assert f"<b>{found.message}</b>" in said[0]
    assert ">a</td>" in said[0]
    assert "run.py" in said[0]
    assert "run.py" not in data["text/plain"]


def test_a_submodel_has_the_name_that_a_cell_has_for_it(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Exp(x) z = Neg(y) }'
    shell.user_ns |= {"text": text, "onnx": onnx, "onnx_nb": onnx_nb}
    shell.run_cell("view = onnx_nb.ModelView(onnx.parser.parse_model(text)); part_of = onnx_nb.ModelGraph(view.model)")
    view, graph = shell.user_ns["view"], shell.user_ns["part_of"]
    shown = onnx_nb.ModelGraph(view.model)
    places = {": view.graph.submodel": view.graph, ": part_of.submodel": graph}
    for end, each in (places | {". Copy Python copies the call.": shown}).items():
        content, _ = ask(each, "extract", inputs=["x"], outputs=["y"])
        assert content["value"]["message"] == f"Extracted 1 node{end}"
        variable = end.removeprefix(": ").removesuffix(".submodel") if "submodel" in end else ""
        assert f"extract({f'{variable}.model' if variable else 'model'}, " in content["value"]["code"]


def test_a_terminal_gets_text_only() -> None:
    code = """
from IPython.terminal.interactiveshell import TerminalInteractiveShell
shell = TerminalInteractiveShell.instance()
import onnx, onnx_nb
model = onnx_nb.load(onnx.ModelProto())
import sys
print(model._repr_mimebundle_()[0] == {"text/plain": repr(model)}, "ipywidgets" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip().splitlines()[-1] == "True False"


def test_show_is_a_widget_in_a_notebook_and_a_page_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    proto = onnx.parser.parse_model(BRANCHES)
    page = onnx_nb.show(proto)
    assert opened == [page.as_uri()]
    assert page.read_text().startswith("<!doctype html>")
    audit = onnx_nb.show(onnx_nb.external_data.audit(proto))
    assert 'id="onnx-nb-external_data"' in audit.read_text()
    InteractiveShell.instance()
    try:
        view = onnx_nb.show(proto, height=300)
        assert isinstance(view, onnx_nb.ModelView)
        assert view.graph.height == 300
    finally:
        InteractiveShell.clear_instance()


def test_show_takes_a_torch_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(webbrowser, "open", lambda _uri: True)
    sound = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)).eval()
    wrong = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(4, 2)).eval()
    assert "Gemm" in onnx_nb.show(sound, torch.ones(1, 2)).read_text()
    assert capsys.readouterr().out == ""
    onnx_nb.show(wrong, torch.ones(1, 2))
    assert capsys.readouterr().out.startswith("forward of Sequential fails at linear of '1' (")
    with pytest.raises(TypeError, match="those of a torch module"):
        onnx_nb.show(onnx.parser.parse_model(BRANCHES), torch.ones(1))
    InteractiveShell.instance()
    try:
        view = onnx_nb.show(wrong, torch.ones(1, 2))
        assert view.graph.selection == [{"kind": "node", "name": "1.linear"}]
        assert view.graph._colors().labels == ("fails here",)
    finally:
        InteractiveShell.clear_instance()


def test_import_in_a_notebook_is_enough_for_a_model_to_show_itself() -> None:
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import onnx_nb
model = onnx_nb.load(PATH)
print(sorted(shell.display_formatter.format(model)[0]))
""".replace("PATH", repr(str(models.light("squeezenet"))))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['application/vnd.jupyter.widget-view+json', 'text/plain']"
