"""The main job in a real JupyterLab: look at a model, click two tensors, get a submodel that computes the same."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import PATIENCE, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.jupyter import JupyterPage

# runs in the kernel: the whole model and the submodel on the same values
COMPUTES_THE_SAME = """
import numpy as np
import onnxruntime

def feeds_of(model):
    random = np.random.default_rng(0)
    for entry in model.proto.graph.input:
        if entry.name in model.initializers:
            continue
        sizes = {"batch": 2, "seq": 7}
        shape = [d.dim_value or sizes.get(d.dim_param, 2) for d in entry.type.tensor_type.shape.dim]
        if entry.type.tensor_type.elem_type == 1:
            yield entry.name, random.normal(size=shape).astype(np.float32)
        else:
            yield entry.name, random.integers(1, 2, size=shape)

def computes_the_same(model, submodel):
    inputs = [entry.name for entry in submodel.proto.graph.input if entry.name not in submodel.initializers]
    outputs = [entry.name for entry in submodel.proto.graph.output]
    feeds = dict(feeds_of(model))
    whole = onnx_nb.run(model, feeds, outputs=[name for name in inputs + outputs if name not in feeds]) | feeds
    # a file that only onnxruntime has to understand
    session = onnxruntime.InferenceSession(submodel.to_proto().SerializeToString())
    piece = dict(zip(outputs, session.run(outputs, {name: whole[name] for name in inputs})))
    return all(np.allclose(piece[name], whole[name], rtol=1e-4, atol=1e-5) for name in outputs)
"""

# runs in the kernel: names of the outputs of main nodes of one op, in an order in which they can run
OUTPUTS_OF = """
graph = onnx_nb.types.Graph.of(model)

def outputs_of(op):
    return [graph.nodes[i].output[0] for i in graph.order if graph.nodes[i].op_type == op]
"""


def test_opening_a_scope_shows_what_it_holds(lab: JupyterPage) -> None:
    source = f"import onnx_nb\nonnx_nb.ModelGraph({str(models.light('densenet121'))!r})"
    lab.open(lab.server.write("scopes.ipynb", source)).run_all()
    graph = GraphWidget(lab.widget("graph"))
    scope = graph.scope(is_open=True)
    boxes = [graph.drawn[-1]["boxes"]]
    for _ in range(2):
        graph.toggle(scope)
        boxes.append(graph.drawn[-1]["boxes"])
    as_first, closed, opened = boxes
    assert closed < opened <= as_first
    assert lab.errors == []


# model, and the two tensors as (op, which one of that op's outputs)
CUTS: list[tuple[str, Callable[[], Path], tuple[str, int], tuple[str, int]]] = [
    ("bert-dynamo", lambda: models.exported("bert", dynamo=True), ("LayerNormalization", 3), ("LayerNormalization", 5)),
    (
        "bert-torchscript",
        lambda: models.exported("bert", dynamo=False),
        ("LayerNormalization", 3),
        ("LayerNormalization", 5),
    ),
    ("resnet50-dynamo", lambda: models.exported("resnet50", dynamo=True), ("Relu", 9), ("Relu", 14)),
    ("llama-dynamo", lambda: models.exported("llama", dynamo=True), ("Softmax", 3), ("Softmax", 4)),
    ("densenet121", lambda: models.light("densenet121"), ("Concat", 3), ("Concat", 6)),
]


@pytest.mark.parametrize(
    ("model", "start", "end"),
    [
        pytest.param(*cut, id=name, marks=[] if name in ("llama-dynamo", "densenet121") else [pytest.mark.rare])
        for name, *cut in CUTS
    ],
)
def test_two_clicks_on_a_real_model_give_a_submodel_that_computes_the_same(
    lab: JupyterPage,
    request: pytest.FixtureRequest,
    model: Callable[[], Path],
    start: tuple[str, int],
    end: tuple[str, int],
) -> None:
    name = request.node.callspec.id
    lab.open(
        lab.server.write(
            f"{name}.ipynb",
            f"import onnx_nb\nmodel = onnx_nb.load({str(model())!r})",
            "g = onnx_nb.ModelGraph(model)\ng",
        )
    ).run_all()
    graph = GraphWidget(lab.widget("graph"))
    lab.screenshot(f"{name}-first-view", graph.root)
    assert 5 <= graph.drawn[0]["boxes"] <= 80
    lab.kernel.run(OUTPUTS_OF + COMPUTES_THE_SAME)
    first, last = (lab.kernel.evaluate(f"outputs_of({op!r})[{at}]") for op, at in (start, end))

    graph.click(first, "tensor")
    graph.press("Input")
    graph.click(last, "tensor")
    graph.press("Output")
    graph.wait_for_plan()
    lab.screenshot(f"{name}-cut", graph.root)
    graph.extract()
    lab.screenshot(f"{name}-submodel", graph.root)

    lab.kernel.expect(f"{first!r} in g.inputs")
    lab.kernel.expect("g.outputs", [last])
    assert 0 < lab.kernel.evaluate("len(g.submodel.proto.graph.node)") < lab.kernel.evaluate("graph.main_count")
    assert lab.kernel.evaluate("computes_the_same(model, g.submodel)", timeout=120) is True
    assert lab.errors == []


def test_the_graph_is_alive_while_a_cell_runs(lab: JupyterPage, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    lab.open(
        lab.server.write(
            "busy.ipynb",
            f"import onnx_nb\ng = onnx_nb.ModelGraph({str(models.light('squeezenet'))!r})\ng",
            f"import pathlib, time\nwhile not pathlib.Path({str(enough)!r}).exists():\n    time.sleep(0.1)",
        )
    ).run_cell(0)
    graph = GraphWidget(lab.widget("graph"))
    lab.page.evaluate(
        """() => { const {content} = jupyterapp.shell.currentWidget; content.activeCellIndex = 1;
                   void jupyterapp.commands.execute('notebook:run-cell'); }"""
    )
    expect(lab.page.get_by_text("[*]:")).to_be_visible()
    tensor = graph.call("""
        const nameOf = id => view.columns.nameOf({kind: 'tensor', id});
        for (let id = 0; id < view.columns.valueCount; id++) if (view.locate(nameOf(id), 'tensor')) return nameOf(id);
        return null;""")
    assert tensor is not None
    graph.click(tensor, "tensor")
    expect(graph.root).to_contain_text(tensor)
    expect(lab.page.get_by_text("[*]:")).to_be_visible()
    enough.touch()
    expect(lab.page.get_by_text("[*]:")).to_have_count(0)


def test_a_page_that_was_too_busy_to_start_a_widget_in_time_hears_of_the_kernel(
    fresh_lab: JupyterPage,
) -> None:
    lab = fresh_lab
    # anywidget's 2 s are over at once
    lab.page.add_init_script(
        "{ const s = AbortSignal, {timeout} = s; s.timeout = ms => timeout.call(s, ms === 2000 ? 1 : ms); }"
    )
    source = f"import onnx_nb\ng = onnx_nb.ModelGraph({str(models.light('squeezenet'))!r})"
    lab.open(lab.server.write("late.ipynb", source, "g")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    lab.kernel.run("g.outputs = [next(n.output[0] for n in g.model.proto.graph.node if n.op_type == 'MaxPool')]")
    graph.expect("view.state.boundary.outputs.length", 1)
    graph.click("data_0", "tensor")
    graph.press("Input")
    graph.extract()
    lab.kernel.expect("len(g.submodel.proto.graph.node) > 0")


def test_a_hundred_thousand_nodes_open(lab: JupyterPage) -> None:
    lab.open(
        lab.server.write("large.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(models.chain(100_000))!r})\ng")
    ).run_all()
    graph = GraphWidget(lab.widget("graph"))
    assert graph.call("return view.columns.nodeCount;") == 100_000
    assert 1 < graph.drawn[0]["boxes"] <= 200
    name = "/layers.3000/attn/Softmax_output_0"
    graph.click(name, "tensor")
    lab.screenshot("chain-100000", graph.root)

    # all scopes open: the list beside it has rows for what is in view only, and a category lights every node of it
    graph.press("Tree")
    drawn = len(graph.drawn)
    graph.press("Expand all")
    graph.expect_drawing_after(drawn)
    expect(graph.root.locator("[role=treeitem][aria-selected=true]")).to_have_count(1)
    assert graph.root.locator("[role=treeitem]").count() < 200
    assert graph.root.locator(".onnx-nb-rows-all").evaluate("list => list.offsetHeight") > 100_000 * 24
    graph.root.get_by_role("group", name="Colors of op categories").get_by_role("button").first.click()
    graph.expect("view.state.hits.length > 5000")
    lit = graph.call("return [view.state.search, view.state.hits.length];")
    ops = lit[0].removeprefix("op:").split("|")
    nodes = onnx.load(models.chain(100_000), load_external_data=False).graph.node
    assert lit[1] == sum(node.op_type in ops for node in nodes)
    assert lab.errors == []


def test_nothing_from_a_model_becomes_html(lab: JupyterPage, tmp_path: Path) -> None:
    evil = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'
    names = [evil, "two\nlines", "🙂" * 20, "n" * 10_000, "&lt;b&gt;"]
    nodes, value = [], f"in {evil}"
    for name in names:
        nodes.append(helper.make_node("Relu", [value], [f"out {name}"], f"/{name}/Relu", doc_string=evil))
        value = f"out {name}"
    graph = helper.make_graph(
        nodes,
        evil,
        [helper.make_tensor_value_info(f"in {evil}", TensorProto.FLOAT, [evil, 2])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [evil, 2])],
    )
    model = helper.make_model(graph, producer_name=evil, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "<b>evil.onnx"
    onnx.save(model, path)
    lab.open(lab.server.write("evil.ipynb", f"import onnx_nb\nonnx_nb.load({str(path)!r})")).run_all()
    lab.widget("summary")
    view = GraphWidget(lab.widget("graph"))
    for name in names:
        view.reveal(f"out {name}", "tensor")
        view.click(f"out {name}", "tensor")
    lab.screenshot("evil-names", view.root)
    assert lab.page.evaluate("window.broken") is None
    assert lab.page.locator(".onnx-nb img, .onnx-nb script, .onnx-nb b b").count() == 0
    assert lab.errors == []


def test_a_bare_proto_shows_as_a_graph_once_the_extension_is_loaded(lab: JupyterPage) -> None:
    lab.open(
        lab.server.write(
            "extension.ipynb",
            f"import onnx\nproto = onnx.load({str(models.one_node())!r})\n%load_ext onnx_nb",
            "proto",
            f"%onnx {models.functions()}",
            "%unload_ext onnx_nb",
            "proto",
        )
    ).run_all()
    for index in (1, 2):
        GraphWidget(lab.widget("graph", within=lab.cell(index)))
    lab.screenshot("extension")
    after = lab.cell(4)
    expect(after.locator(".jp-OutputArea")).to_contain_text("ModelProto(ir_version=10")
    assert after.locator(".onnx-nb").count() == 0
    assert lab.errors == []


def test_an_unreadable_model_is_a_clear_error(lab: JupyterPage, tmp_path: Path) -> None:
    page = tmp_path / "model.onnx"
    page.write_text("<!DOCTYPE html><html>Not found</html>")
    lab.open(lab.server.write("unreadable.ipynb", f"import onnx_nb\nonnx_nb.load({str(page)!r})"))
    with pytest.raises(AssertionError, match="ModelFileError"):
        lab.run_all()


@pytest.fixture(scope="module")
def exported_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "first-light.html"
    command = [sys.executable, str(ROOT / "notebooks" / "run.py"), "--html", str(path)]
    subprocess.run(command, check=True, timeout=600)
    return path


def test_the_exported_page_is_alive_without_kernel_and_network(browser: Browser, exported_page: Path) -> None:
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900}, color_scheme="dark")
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(exported_page.as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]').first)
    graph.click("/blocks.1/Add_output_0", "tensor")
    expect(graph.root).to_contain_text("/blocks.1/Add_output_0")
    page.screenshot(path=ROOT / "build" / "screenshots" / "exported-page.png")
    assert said == []
    context.close()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def test_the_demo_opens_a_notebook_that_has_been_run_and_is_alive(browser: Browser, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    before = contents(tmp_path / "notebooks")
    hidden = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(tmp_path / "notebooks" / "run.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        try:
            assert demo.stdout
            url = next(line.strip() for line in demo.stdout if "token=" in line)
            with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
                page = context.new_page()
                page.goto(url)
                graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]').first)
                graph.click("data_0", "tensor")
                graph.press("Input")
                graph.click("fc6_1", "tensor")
                graph.press("Output")
                graph.extract()
        finally:
            demo.send_signal(signal.SIGINT)
            try:
                demo.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                demo.kill()  # or this test would wait for it for ever
                raise
    assert demo.returncode == 0
    # what git tracks is as it was, and nothing came to it
    assert contents(tmp_path / "notebooks") == before
    (copy,) = tmp_path.glob("build/demo-*/notebooks/00-first-light.ipynb")
    assert "application/vnd.jupyter.widget-view+json" in copy.read_text()
