"""The report: one page with several parts; what may be in it, what is in it once, and what is refused."""

from __future__ import annotations

import html.parser
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import pytest
from matplotlib.figure import Figure

import onnx_nb
from onnx_nb import OnnxNbError
from onnx_nb.notebook.report import markdown

if TYPE_CHECKING:
    from pathlib import Path

EVIL = '</script><img src=x onerror="alert(1)"><script>alert(1)</script><!--'


@pytest.fixture
def model() -> onnx_nb.Model:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
    return onnx_nb.load(onnx.parser.parse_model(text))


def about(page: str) -> list[dict[str, Any]]:
    found = re.search(r'id="onnx-nb-report">([^<]*)<', page)
    assert found is not None
    parts: list[dict[str, Any]] = json.loads(found[1])
    return parts


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    found: list[tuple[str, dict[str, str | None]]] = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Parser().feed(page)
    return found


def test_every_kind_of_part_is_on_the_page(model: onnx_nb.Model, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model.save(tmp_path / "m.onnx")
    graph = onnx_nb.ModelGraph(model)
    parts = {
        "Proto": (model.to_proto(), "graph"),
        "File": (tmp_path / "m.onnx", "graph"),
        "Graph": (graph, "graph"),
        "View": (onnx_nb.ModelView(model), "graph"),
        "Summary": (onnx_nb.summarize(model), "summary"),
        "Capture": (onnx_nb.capture(model), "capture"),
        "Errors": (onnx_nb.compare(model, model), "comparison"),
        "Panel": (onnx_nb.ComparisonPanel(onnx_nb.compare(model, model), graph=graph), "comparison"),
        "Diff": (onnx_nb.diff(model, model), "pair"),
        "Simplification": (onnx_nb.simplify(model, check_n=1), "simplification"),
        "Audit": (onnx_nb.external_data.audit(model), "external_data"),
        "Costs": (onnx_nb.costs(model), ""),
        "Frame": (pandas.DataFrame({"a": [1, 2], "b": ["x", "<y>"]}), ""),
        "Rows": ([{"a": 1}, {"a": 2, "b": None}], ""),
        "Figure": (Figure(), ""),
        "Text": ("# Title", ""),
    }
    written = onnx_nb.report(
        tmp_path / "new" / "r.html", {name: part for name, (part, _) in parts.items()}, title="All"
    )
    page = written.read_text()
    assert [(part["title"], part["kind"]) for part in about(page)] == [
        (name, kind) for name, (_, kind) in parts.items()
    ]
    assert "&lt;y&gt;" in page
    assert "<title>All</title>" in page
    ids = [attributes["id"] for _, attributes in elements(page) if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {name for part in about(page) for name in part["data"].values()} <= {str(each)[8:] for each in ids}


def test_a_page_says_nothing_of_the_folders_of_its_author(model: onnx_nb.Model, tmp_path: Path) -> None:
    folder = tmp_path / "home of the author"
    folder.mkdir()
    file = onnx_nb.load(onnx_nb.external_data.convert(model, folder / "m.onnx"))
    parts = {
        "Model": file,
        "Summary": onnx_nb.ModelSummary(file),
        "Simplification": onnx_nb.simplify(file, check_n=1),
        "Errors": onnx_nb.compare(file, model),
        "Difference": onnx_nb.DiffPanel(file, model),
        "Values": onnx_nb.capture(file),
        "Weights": onnx_nb.external_data.audit(file),
    }
    text = onnx_nb.report(tmp_path / "r.html", parts).read_text()
    assert folder.name not in text
    assert '"path": "m.onnx"' in text
    assert "onnx_nb.simplify('m.onnx', check_n=1)" in text


def test_the_program_and_equal_columns_are_there_once(model: onnx_nb.Model, tmp_path: Path) -> None:
    one = onnx_nb.report(tmp_path / "one.html", {"A": model}).stat().st_size
    page = onnx_nb.report(tmp_path / "two.html", {"A": model, "B": onnx_nb.ModelGraph(model)})
    first, second = (part["data"] for part in about(page.read_text()))
    assert first == second
    assert page.stat().st_size < one + 5_000


def test_the_page_may_load_nothing_and_runs_only_its_program(model: onnx_nb.Model, tmp_path: Path) -> None:
    parts = {EVIL: model, "Text": EVIL + f"\n\n- {EVIL}\n\n[a](javascript:alert(1)) `{EVIL}`", "Rows": [{EVIL: EVIL}]}
    page = onnx_nb.report(tmp_path / "r.html", parts, title=EVIL).read_text()
    assert "default-src 'none'; script-src 'sha256-" in page
    found = elements(page)
    scripts = [attributes for tag, attributes in found if tag == "script"]
    assert [each for each in scripts if each.get("type") not in ("application/json", "text/plain")] == [
        {"type": "module"}
    ]
    assert not [
        tag for tag, attributes in found if tag in ("img", "iframe", "object") or {"src", "onerror"} & set(attributes)
    ]
    assert not re.search(r'href="(?!#|https?:)', page.partition("<script")[0])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "a report needs parts"),
        ({" ": "text"}, "a part of the report has no title"),
        ({"Numbers": np.ones(3)}, "the part 'Numbers' is a ndarray, which a page cannot show.*A part is a model"),
        ({"Nothing": None}, "the part 'Nothing' is a NoneType"),
    ],
)
def test_a_part_that_cannot_be_shown_is_named(parts: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(OnnxNbError, match=message):
        onnx_nb.report(tmp_path / "r.html", parts)
    assert list(tmp_path.iterdir()) == []


def test_a_report_never_replaces_a_model_in_it(model: onnx_nb.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.onnx")
    before = (tmp_path / "m.onnx").read_bytes()
    with pytest.raises(OnnxNbError, match=r"is the file of .*m\.onnx"):
        onnx_nb.report(tmp_path / "m.onnx", {"Model": tmp_path / "m.onnx"})
    assert (tmp_path / "m.onnx").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("## A\ntext", "<h3>A</h3>\n<p>text</p>\n"),
        ("- [ ] a\n- [x] b", "<ul>\n<li>☐ a</li>\n<li>☑ b</li>\n</ul>\n"),
        ("`*a*` and *b c*, 2 * 3", "<p><code>*a*</code> and <em>b c</em>, 2 * 3</p>\n"),
        ("[x](https://a.b/c?d=1)", '<p><a href="https://a.b/c?d=1" rel="noreferrer">x</a></p>\n'),
        ("[x](#errors)", '<p><a href="#errors" rel="noreferrer">x</a></p>\n'),
        ("", ""),
    ],
)
def test_markdown_is_shown_below_the_title_of_the_page(text: str, wanted: str) -> None:
    assert markdown(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))",
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "![x](https://a.b/c.png)",
        "[x](data:text/html,<script>)",
        "[x]: javascript:alert(1)\n[x]",
    ],
)
def test_markdown_runs_nothing_and_loads_nothing(text: str) -> None:
    assert not re.search(r"<(script|img)|(href|src)=.(javascript|data)", markdown(text))
