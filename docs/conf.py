"""How Sphinx builds the site (``make docs``), from the folder of the repository: links are those that GitHub shows."""

from __future__ import annotations

import html
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from docs.gallery import CARDS, write_gallery
from onnx_nb import rules
from onnx_nb.analysis.foreign_names import table

if TYPE_CHECKING:
    from docutils.nodes import Node
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PYPROJECT["tool"]["onnx-nb"]["repository"]

project = "onnx_nb"
version = release = PYPROJECT["project"]["version"]
copyright = "the authors of onnx_nb"  # noqa: A001 - a setting of Sphinx
extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_design"]

root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/api/*.md", "notebooks/*.ipynb", "notebooks/zh/*.ipynb"]
include_patterns += ["notebooks/coverage.md", "notebooks/review.md"]
exclude_patterns = [".venv", "build", "**/node_modules", "**/.ipynb_checkpoints"]

# notebooks are shown as they were saved, with pictures where widgets were: nothing runs, nothing comes from elsewhere
nb_execution_mode = "off"
nb_custom_formats = {".ipynb": "docs.conf.folded"}
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
nb_render_markdown_format = "myst"
myst_enable_extensions = ["colon_fence", "attrs_inline", "tasklist"]
myst_heading_anchors = 4
suppress_warnings = ["mystnb.unknown_mime_type"]

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "onnx_nb"
html_static_path = ["site.css", "site.js"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_extra_path = [str(ROOT / "build" / "site-extra")]
html_sidebars: dict[str, list[str]] = {f"docs/{page}": [] for page in ("index", "gallery", "how-to", "coming-from")}
html_theme_options = {
    "logo": {"text": "onnx_nb"},
    "show_prev_next": False,
    "navigation_with_keys": True,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": False,
    **({"github_url": REPOSITORY} if REPOSITORY else {}),
}


def folded(text: str) -> nbformat.NotebookNode:
    """Return a notebook whose folded cells are folded on the site as well."""
    notebook: nbformat.NotebookNode = nbformat.reads(text, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
    return notebook


class OtherTools(SphinxDirective):
    """The names of other tools and ours, from the table that error messages use."""

    def run(self) -> list[Node]:
        """Return a section for each tool."""
        tools: dict[str, list[str]] = {}
        for name, (tool, ours) in ((name, text.split(" ", 1)) for name, text in table("names").items()):
            tools.setdefault(tool, []).append(f"| `{name}` | `onnx_nb.{ours}` |")
        lines = []
        for tool, rows in tools.items():
            lines += [f"## {tool}", "", "| there | here |", "|---|---|", *rows, ""]
        return list(self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True))


class Rules(SphinxDirective):
    """The rules of `simplify` and their names in other tools, from the tables that it uses."""

    def run(self) -> list[Node]:
        """Return one table."""
        elsewhere: dict[str, list[str]] = {}
        for name, ours in table("rules").items():
            for rule in ours.split():
                elsewhere.setdefault(rule, []).append(f"`{name}`")
        rows = [f"| `{rule}` | {does} | {', '.join(elsewhere.get(rule, ()))} |" for rule, does in rules().items()]
        return list(
            self.parse_text_to_nodes("\n".join(["| rule | what it does | elsewhere |", "|---|---|---|", *rows]))
        )


class Gallery(SphinxDirective):
    """Cards that are live pages: each in a frame that may run its own script and nothing else."""

    def run(self) -> list[Node]:
        """Return the cards as HTML."""
        cards = [
            f'<figure><iframe src="../gallery/{name}.html" sandbox="allow-scripts" loading="lazy" '
            f'title="{html.escape(card.title)}"></iframe><figcaption><strong>{html.escape(card.title)}</strong> '
            f'{html.escape(card.text)} <a href="../gallery/{name}.html">Open it alone</a></figcaption></figure>'
            for name, card in CARDS.items()
        ]
        return [nodes.raw("", f'<div class="live-pages">{"".join(cards)}</div>', format="html")]


def write_entry(app: Sphinx, error: Exception | None) -> None:
    """Write what stands at the top of the site: the way to its first page, and a list of its pages for programs."""
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    out.joinpath("index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>onnx_nb</title>'
        '<meta http-equiv="refresh" content="0; url=docs/index.html"><a href="docs/index.html">onnx_nb</a>\n',
        encoding="utf-8",
    )
    lines = ["# onnx_nb", "", f"> {PYPROJECT['project']['description']}.", ""]
    for page, title in sorted(app.env.titles.items()):
        lines.append(f"- [{title.astext()}]({page}.html)")
    out.joinpath("llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives and what is written beside the pages."""
    app.add_directive("other-tools", OtherTools)
    app.add_directive("rules", Rules)
    app.add_directive("gallery", Gallery)
    write_gallery(ROOT / "build" / "site-extra" / "gallery")
    app.connect("build-finished", write_entry)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
