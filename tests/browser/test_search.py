"""Search in JupyterLab: type a query, see the matches highlighted, step through them with the keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import await_value

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator

    from tests.browser.jupyter import JupyterPage


class SearchBox:
    """The search field of a graph and the list below it."""

    def __init__(self, graph: GraphWidget) -> None:
        self.graph = graph
        self.field = graph.root.get_by_role("combobox", name="Search", exact=True)
        self.box = graph.root.get_by_role("search")

    def type(self, text: str) -> None:
        """Type a query key by key and wait until its results are shown."""
        self.field.fill("")
        self.field.press_sequentially(text)
        self.graph.expect("view.state.search", text)

    @property
    def options(self) -> Locator:
        return self.box.get_by_role("option")

    def expect_hits(self, names: list[Any]) -> None:
        await_value(lambda: self.hits, names, "what is found")

    @property
    def hits(self) -> list[Any]:
        """Names of the matches; for a chain, the operators of its nodes."""
        found: list[Any] = self.graph.call(
            """return view.state.hits.map(hit => hit.chain
                ? hit.chain.map(node => view.columns.opOf(node)) : view.columns.nameOf(hit));"""
        )
        return found


def opened(lab: JupyterPage, name: str, path: Path) -> GraphWidget:
    lab.open(lab.server.write(f"{name}.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    return GraphWidget(lab.widget("graph"))


def test_a_search_in_bert_by_words_fields_and_chains(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    graph = opened(lab, f"search-{lab.theme}", models.exported("bert", dynamo=True))
    search = SearchBox(graph)

    search.field.focus()
    expect(search.options.first).to_contain_text("op:")
    lab.screenshot(f"search-empty-{lab.theme}", graph.root)

    search.type("attention softmax")
    assert len(search.hits) == 12
    expect(search.box).to_contain_text("1 of 12")
    search.field.press("Enter")
    graph.expect_selection(search.hits[0])
    lab.screenshot(f"search-words-{lab.theme}", graph.root)

    search.type("MatMul > * > Softmax")
    assert search.hits == [["MatMul", "Add", "Softmax"]] * 12
    search.field.press("Enter")
    search.field.press("ArrowDown")
    expect(search.box).to_contain_text("2 of 12")
    active = search.field.get_attribute("aria-activedescendant")
    expect(search.box.locator("[aria-selected=true]")).to_have_attribute("id", active or "none")
    lab.screenshot(f"search-chain-{lab.theme}", graph.root)

    search.type("op:So")
    expect(search.options.first).to_have_text("Softmax12")
    lab.screenshot(f"search-completion-{lab.theme}", graph.root)
    search.field.press("ArrowDown")
    search.field.press("Enter")
    expect(search.field).to_have_value("op:Softmax")
    expect(search.box).to_contain_text("1 of 12")

    search.type("/layer[/")
    expect(search.box).to_contain_text("not understood")
    expect(search.box).to_contain_text("Unterminated character class")
    lab.screenshot(f"search-problem-{lab.theme}", graph.root)
    search.type("attr:no")
    expect(search.box).to_contain_text("nothing found")
    lab.screenshot(f"search-nothing-{lab.theme}", graph.root)
    search.field.press("Escape")
    expect(search.field).to_have_value("")
    search.expect_hits([])
    graph.page.keyboard.press("?")
    expect(graph.root.get_by_role("dialog")).to_contain_text("MatMul > * > Softmax")
    lab.screenshot(f"search-help-{lab.theme}", graph.root)
    assert lab.errors == []


def test_what_a_search_in_resnet_finds_is_lit_in_the_picture(lab: JupyterPage) -> None:
    path = models.exported("resnet50", dynamo=True)
    graph = opened(lab, "search-resnet", path)
    search = SearchBox(graph)
    lab.kernel.run("wide = [n for n in onnx_nb.types.Graph.of(g.model).nodes if n.op_type == 'Conv']")
    convolutions = lab.kernel.evaluate("[n.name for n in wide]")

    picture = "root.querySelector('canvas').toDataURL()"
    plain = graph.call(f"return {picture};")
    search.type("op:conv")
    assert search.hits == convolutions
    graph.expect(f"{picture} !== args[0]", True, plain)
    search.field.press("Enter")
    search.field.press("Shift+Enter")
    graph.expect_selection(convolutions[-1])

    search.type("attr:kernel_shape=7x7")
    assert search.hits == convolutions[:1]
    search.type("shape:batch*x256x*")
    search.type("dtype:float32 -kind:weight")
    assert len(search.hits) == graph.call(
        """const {columns} = view; let count = 0;
        for (let id = 0; id < columns.valueCount; id++)
            if (columns.dtypeOf(id) === 'float32' && !columns.isConstant(id)) count++;
        return count;"""
    )
    lab.screenshot("search-tensors", graph.root)

    graph.root.evaluate("root => { root.style.width = '600px'; }")
    search.type("Conv > Relu > Conv > Relu > Conv")
    assert all(hit == ["Conv", "Relu", "Conv", "Relu", "Conv"] for hit in search.hits)
    assert len(search.hits) >= 16
    search.field.press("Enter")
    lab.screenshot("search-narrow", graph.root)
    assert lab.errors == []


def test_a_search_of_a_hundred_thousand_nodes_answers_while_one_types(lab: JupyterPage) -> None:
    graph = opened(lab, "search-large", models.chain(100_000))
    search = SearchBox(graph)
    search.type("attn softmax")
    expect(search.box).to_contain_text(re.compile("^1 of "))
    search.type("/^[\\w\\/.]+[\\w\\/]+Softmax$/")
    expect(search.box).to_contain_text("of 5,882")
    search.type("MatMul > ** > Softmax")
    expect(search.box).to_contain_text("1 of 5,000+")
    search.field.press("Enter")
    lab.screenshot("search-large", graph.root)
    assert lab.errors == []


def test_one_field_takes_sizes_misspelt_words_and_verbs(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    graph = opened(lab, f"verbs-{lab.theme}", models.exported("segformer", dynamo=True))
    search = SearchBox(graph)
    large = lab.kernel.evaluate(
        "[w.name for w in onnx_nb.load(g.model.path).proto.graph.initializer"
        " if 4 * __import__('math').prod(w.dims) > 1_000_000]"
    )
    search.type("weights > 1 MB")
    await_value(lambda: sorted(search.hits), sorted(large), "weights of more than a million bytes")
    search.type("matmull")
    expect(search.options.first).to_contain_text("did you mean this?")
    lab.screenshot(f"search-nearest-{lab.theme}", graph.root)
    search.field.press("ArrowDown")
    search.field.press("Enter")
    await_value(
        lambda: len(search.hits),
        lab.kernel.evaluate("sum('matmul' in (n.op_type + n.name).lower() for n in g.model.proto.graph.node)"),
        "products",
    )
    search.field.press("Escape")
    lab.page.keyboard.press("Control+k")
    expect(search.field).to_be_focused()
    search.field.press_sequentially("extract decode_head")
    expect(search.options.first).to_contain_text("extract decode_head")
    lab.screenshot(f"search-verb-{lab.theme}", graph.root)
    search.field.press("ArrowDown")
    search.field.press("Enter")
    expect(graph.root).to_contain_text("✓ Extracted")
    lab.kernel.expect("len(g.submodel.proto.graph.node) > 20 and [o.name for o in g.submodel.outputs]", ["logits"])
    lab.page.keyboard.press("Control+k")
    expect(search.field.first).to_be_focused()  # the other one is the part's
    lab.page.keyboard.type("color si")
    expect(search.options.first).to_contain_text("color by")
    lab.page.keyboard.press("Enter")
    expect(graph.root.get_by_role("group", name="Colors: weight bytes")).to_be_visible()
    assert lab.errors == []
