"""The notebooks as a course: they lead to each other, every link leads somewhere, and every word is spelled right."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest

from notebooks import contents, translation
from notebooks.navigation import COLAB_CELL, LINKS, Stop, course, main, translation_of
from notebooks.translation import blocks
from tests.saved_outputs import (
    PLAIN,
    PLAIN_SUMMARY,
    SOLUTION,
    differences,
    fingerprint,
    with_solutions,
    without_solutions,
)

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CHINESE_LESSONS = sorted((ROOT / "notebooks" / "zh").glob("*.ipynb"))
INDEX = ROOT / "notebooks" / "index.ipynb"
COVERAGE = ROOT / "notebooks" / "coverage.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def prose(path: Path) -> str:
    """Return a document, or the text cells of a notebook."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


# --- the path ---------------------------------------------------------------------------------------------------------


def test_each_notebook_leads_to_its_neighbors_and_readme_to_all() -> None:
    assert main(["--check"]) == 0, "run: python -m notebooks.navigation"
    names = [stop.path.name for stop in course()]
    assert names == sorted(names, key=lambda name: (name != "index.ipynb", name))
    for before, after in itertools.pairwise(names):
        assert f"→]({after})" in read(ROOT / "notebooks" / before).cells[0].source
        assert f"]({before})" in read(ROOT / "notebooks" / after).cells[0].source
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(notebooks/([\w-]+\.ipynb)\)", "".join(re.findall(r"(?m)^\| \[.*", readme)))
    assert links == names


def small_course(folder: Path) -> Path:
    """Write a course of three stops and a translation."""
    for name in ("index", "index.zh", "06-two", "06b-three"):
        title = "# 06 Two\n\n**Time** 20 minutes · **You should know** a little" if name == "06-two" else "# Title"
        cells = [nbformat.v4.new_markdown_cell(title), nbformat.v4.new_code_cell("1 + 1")]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{name}.ipynb")
    return folder


def test_the_index_is_first_and_a_translation_no_stop(tmp_path: Path) -> None:
    stops = course(small_course(tmp_path))
    assert [stop.path.stem for stop in stops] == ["index", "06-two", "06b-three"]
    assert (stops[1].name, stops[1].minutes) == ("06 Two", 20)
    assert main(["--folder", str(tmp_path)]) == 0
    last = {path.stem: read(path).cells[0].source.split("\n")[-1] for path in tmp_path.iterdir()}
    assert last == {
        "index": "[06 Two →](06-two.ipynb) · [简体中文](index.zh.ipynb)",
        "index.zh": "[English](index.ipynb)",
        "06-two": "[← Map of the course](index.ipynb) · [06b Title →](06b-three.ipynb)",
        "06b-three": "[← 06 Two](06-two.ipynb) · [Map of the course](index.ipynb)",
    }
    assert main(["--folder", str(tmp_path), "--check"]) == 0


@pytest.mark.parametrize("address", ["https://github.com/somebody/onnx_nb", "https://github.com/a/b/"])
def test_with_an_address_each_notebook_opens_on_binder_and_colab(tmp_path: Path, address: str) -> None:
    folder = small_course(tmp_path)
    main(["--folder", str(folder)])
    without = {path: path.read_text() for path in folder.iterdir()}
    setting = ["--folder", str(folder), "--repository", address]
    assert main([*setting, "--check"]) == 1
    assert main(setting) == 0
    assert main([*setting, "--check"]) == 0
    owner_and_name = address.removeprefix("https://github.com/").rstrip("/")
    for path in without:
        first, second = read(path).cells[:2]
        for target in (
            f"https://mybinder.org/v2/gh/{owner_and_name}/main?urlpath=lab/tree/notebooks/{path.name}",
            f"https://colab.research.google.com/github/{owner_and_name}/blob/main/notebooks/{path.name}",
        ):
            assert first.source.count(f"]({target})") == 1
        assert second.id == COLAB_CELL
        assert f"git+https://github.com/{owner_and_name}" in second.source
        # elsewhere the guarded cell runs, and installs nothing
        assert f"git clone --quiet --depth 1 https://github.com/{owner_and_name} " in second.source
        exec(re.sub("%pip|!git", "raise SystemExit  #", second.source), {})  # noqa: S102 - written above
    assert main(["--folder", str(folder), "--repository", ""]) == 0
    assert {path: path.read_text() for path in folder.iterdir()} == without


def test_an_address_that_binder_cannot_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="OWNER/NAME only"):
        main(["--folder", str(small_course(tmp_path)), "--repository", "https://example.org/onnx_nb"])


# --- the index --------------------------------------------------------------------------------------------------------


def table(text: str, *heading: str) -> list[list[str]]:
    """Return the rows of the tables with that heading."""
    _, *parts = text.split("| " + " | ".join(heading) + " |\n")
    rows = [itertools.takewhile(lambda line: line.startswith("|"), part.split("\n")[1:]) for part in parts]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in itertools.chain(*rows)]


def test_the_index_lists_every_notebook_with_its_time() -> None:
    stops = course()[1:]
    listed = table(prose(INDEX), "notebook", "about", "time")
    assert [cells[0] for cells in listed] == [f"[{stop.name}]({stop.path.name})" for stop in stops]
    assert all(cells[1] for cells in listed)
    (drawn,) = (cell.source for cell in read(INDEX).cells if cell.source.startswith("COURSE = "))
    values = {name: ast.literal_eval(node.value) for node in ast.parse(drawn).body[:2] for name in names_of(node)}
    assert [row[:2] for row in values["COURSE"]] == [(stop.number, stop.title) for stop in stops]
    for stop, cells, (*_, minutes) in zip(stops, listed, values["COURSE"], strict=True):
        assert cells[2] == f"{minutes}\N{NO-BREAK SPACE}min"
        assert stop.minutes == minutes
    for way in ("Deploy something today", "Find what is wrong", "Understand the format"):
        (line,) = re.findall(rf"^- \*\*{way}\*\*.*", prose(INDEX), re.MULTILINE)
        assert re.findall(r"\[(\w+)\]", line) == values["WAYS"][way.replace(" ", "\n", 1)]


def test_what_the_index_derives_from_the_lessons_is_current() -> None:
    assert contents.main(["--check"]) == 0, "run: python -m notebooks.contents && python -m notebooks.translation"


def required(number: str) -> set[str]:
    """Return the lessons that a reader of one should know, with those that these require."""
    (path,) = (ROOT / "notebooks").glob(f"{number}-*.ipynb")
    header = re.sub(r"\]\(.*?\)", "]", read(path).cells[0].source)
    found = set(re.findall(r"\d\d[a-z]?", header.split("**You should know**")[1].split("\n")[0]))
    return found.union(*map(required, found))


@pytest.mark.parametrize("way", contents.WAYS)
def test_each_way_has_what_its_lessons_require_before_them(way: str) -> None:
    lessons = contents.WAYS[way]
    for place, number in enumerate(lessons):
        assert required(number) <= {*lessons[:place]}, number


def test_the_course_in_order_has_what_each_lesson_requires_before_it() -> None:
    numbers = [stop.number for stop in course()[1:]]
    for stop in course()[1:]:
        assert required(stop.number) <= {*numbers[: numbers.index(stop.number)]}, stop.number
        assert {*contents.requirements(stop)} <= required(stop.number)
    assert required("09") >= {"06b", "08", "04", "00"}


BEFORE: Final = (
    "kernel", "domain", "attribute", "forward hook", "transformer", "attention", "LayerNorm", "norm", "stem", "head",
    "mean squared error", "residual connection", "constant folding", "opset", "calibration",
)  # fmt: skip
"""Words of the field that once stood before their boxes, and more."""


@pytest.mark.parametrize("word", BEFORE)
def test_no_lesson_uses_a_word_before_its_box(word: str) -> None:
    """The box is in the same lesson, not below the first use, or in one that the lesson requires."""
    box = re.compile(rf"(?m)^>.*\*\*{word}s?\*\*(?: \([^)]*\))?:")
    homes = {stop.number for stop in course()[1:] if box.search(prose(stop.path))}
    assert homes
    for stop in course()[1:]:
        if homes & required(stop.number):
            continue
        for cell in read(stop.path).cells[1:]:  # the first one says what will be taught
            if cell.cell_type == "markdown" and box.search(cell.source):
                break
            text = re.sub(r"(?s)```.*?```|`[^`]*`|\*What .*? before\.\*", "", cell.source)
            is_used = cell.cell_type == "markdown" and re.search(rf"(?i)\b{word}s?\b", text)
            assert not is_used, f"{stop.path.name}, cell {cell.id}"


def lesson(folder: Path, number: str, text: str) -> None:
    cells = [nbformat.v4.new_markdown_cell(f"# {number} Title\n\n**Time** 5 minutes · **You should know** {text}")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{number}-title.ipynb")


def test_terms_are_read_from_boxes(tmp_path: Path) -> None:
    one = (
        "> **edge** (line): a tensor. It has a name. · **leaf**: a node;\n> nobody reads it.\n>\n> **`code`**: nothing."
    )
    lesson(tmp_path, "01", f"nothing\n\n{one}\n\n> **Careful.** It bites: a lot.")
    lesson(tmp_path, "02b", "[01](01-title.ipynb)\n\n> **leafs**: later.\n>\n> **root** and **trunk**: below")
    stops = course(tmp_path)
    assert list(map(contents.requirements, stops)) == [[], ["01"]]
    terms = contents.terms(stops)
    assert [(term.name, term.meaning, term.stop.number) for term in terms] == [
        ("edge", "a tensor", "01"),
        ("leaf", "a node", "01"),
        ("root", "below", "02b"),
        ("trunk", "below", "02b"),
    ]
    words = {
        terms[0].box: "> **edge**（边，line）：一个张量。有名称。· **叶**（leaf）：一个节点；没有读者。",
        "# 01 Title": "# 01 题目",
    }
    assert terms[0].chinese_row(words) == "| edge | 边 | 一个张量 | [01 题目](01-title.ipynb) |"
    assert terms[1].row(words) == "| leaf | 叶 | a node | [01 Title](01-title.ipynb) |"
    assert terms[2].chinese_row(words) == ""


def names_of(node: ast.stmt) -> list[str]:
    return [each.id for each in node.targets if isinstance(each, ast.Name)] if isinstance(node, ast.Assign) else []


def test_each_term_of_the_glossary_is_defined_where_it_says() -> None:
    rows = table(prose(INDEX), "term", "中文", "meaning", "defined in")
    assert len(rows) >= 30
    assert [row[0] for row in rows] == sorted({row[0] for row in rows}, key=str.lower)
    for term, chinese, meaning, home in rows:
        assert re.search(r"[\u4e00-\u9fff]", chinese), term
        assert len(meaning) > 10, term
        (name,) = re.findall(r"\]\((.*)\)$", home)
        boxes = "\n".join(re.findall(r"(?m)^>.*", prose(ROOT / "notebooks" / name)))
        assert re.search(rf"\*\*{re.escape(term)}s?\*\*", boxes), f"{name} does not define {term!r}"


def test_each_point_of_the_coverage_is_taught_in_a_section_that_exists_or_has_a_reason() -> None:
    rows = table(prose(COVERAGE), "", "point", "taught in")
    numbers = {letter: [int(row[0][1:]) for row in rows if row[0][0] == letter] for letter in "ESDC"}
    assert numbers == {letter: list(range(1, last + 1)) for letter, last in zip("ESDC", (34, 83, 97, 7), strict=True)}
    pages = {path.name: path for path in NOTEBOOKS}
    pages |= {f"../docs/api/{path.name}": path for path in (ROOT / "docs" / "api").glob("*.md")}
    pages["../docs/coming-from.md"] = ROOT / "docs" / "coming-from.md"
    headings = {name: set(re.findall(r"(?m)^#+ (.+?) *$", prose(path))) for name, path in pages.items()}
    for number, point, where in rows:
        assert len(point) > 3, number
        places = re.findall(r"\[\w+\]\(([\w./-]+)\) \*(.+?)\*(?= · |$)", where)
        assert [place for place in places if place[1] not in headings[place[0]]] == [], number
        reason = re.fullmatch(r"(?!Not yet)[A-Z][^[]{30,}\.", where)
        assert places or reason, f"{number} has neither a section nor a sentence"


def test_what_a_run_of_each_notebook_takes_is_noted() -> None:
    """`ONNX_NB_DOCS=1` in tests/browser/test_notebooks.py writes it."""
    rows = table(prose(COVERAGE), "notebook", "CPU s", "peak MiB")
    assert [row[0] for row in rows] == [f"[{stop.name}]({stop.path.name})" for stop in course()]
    assert all(0 < int(seconds) < 60 and 50 < int(size) < 1700 for _, seconds, size in rows)


# --- Chinese ----------------------------------------------------------------------------------------------------------


def test_the_chinese_index_has_every_heading_and_box() -> None:
    assert translation.main(["--check"]) == 0, "translate what is printed above in notebooks/zh.json"
    english, chinese = read(INDEX).cells, read(INDEX.with_suffix(".zh.ipynb")).cells
    assert [cell.cell_type for cell in chinese] == [*(cell.cell_type for cell in english), "markdown"]
    for one, other in zip(english, chinese, strict=False):
        assert marks(one.source) == marks(other.source)
        assert one.cell_type == "markdown" or one.source == other.source
    _, *sections = re.split(r"(?m)^### \[.*?\]\((.*)\)$", chinese[-1].source)
    names = [name.removeprefix("zh/") for name in sections[::2]]
    assert names == [stop.path.name for stop in course()[1:]]
    for name, section in zip(names, sections[1::2], strict=True):
        text = re.sub(r"(?ms)^```.*?^```", "", prose(ROOT / "notebooks" / name))
        headings = re.findall(r"(?m)^##+ ", text)
        lines = itertools.pairwise(["", *text.split("\n")])
        boxes = sum(line.startswith("> ") and ("> |" in line or not before.startswith("> ")) for before, line in lines)
        assert len(re.findall(r"(?m)^\*\*.*\*\*$", section)) == len(headings), name
        assert len(re.findall(r"(?m)^> ", section)) == boxes, name


def test_each_translation_is_chinese_and_keeps_code_and_links() -> None:
    words = json.loads((ROOT / "notebooks" / translation.WORDS).read_text(encoding="utf-8"))
    assert [block for block, chinese in words.items() if not re.search(r"[\u4e00-\u9fff]", chinese)] == []
    assert [block for block, chinese in words.items() if marks(block) != marks(chinese)] == []


CHINESE = [stop for stop in course()[1:] if translation_of(stop.path).exists()]


@pytest.mark.parametrize("stop", CHINESE, ids=lambda stop: stop.number)
def test_a_chinese_lesson_is_the_english_one_in_other_words(stop: Stop) -> None:
    english, chinese = read(stop.path).cells, read(translation.chinese(stop)).cells
    assert chinese.pop(1).source == translation.FOLDER
    assert [(cell.id, cell.cell_type) for cell in chinese] == [(cell.id, cell.cell_type) for cell in english]
    for one, other in zip(english, chinese, strict=True):
        if one.cell_type == "code":
            assert (one.source, one.outputs) == (other.source, other.outputs)
            continue
        assert FENCES.findall(one.source) == FENCES.findall(other.source), one.id
        texts = [FENCES.sub("", cell.source) for cell in (one, other)]
        links = texts[0], texts[1].replace("(../", "(").replace(".zh.ipynb", ".ipynb")
        assert marks("\n".join(blocks(links[0]))) == marks("\n".join(blocks(links[1]))), one.id
        assert re.search(r"[\u4e00-\u9fff]", texts[1]) or not re.search(r"[A-Za-z]{2}", texts[0]), one.id
        # a page shows the end of a line as a space
        assert re.findall(r"[\u3000-\u9fff\uff00-\uffef]\n(?:> )?[\u4e00-\u9fff]", texts[1]) == [], one.id
        words = re.sub(
            r"`[^`\n]+`|\]\([^)]+\)|<[^>]+>|\"[^\"\n]+\"|“[^”]+”|\*[^*\n]+\*", "", texts[1].replace("**", "")
        )
        assert re.findall(r"(?:\b[A-Za-z][a-z']*[ ,;]+){6,}", words) == [], one.id


FENCES = re.compile(r"(?ms)^```python\n.*?^```$")


def marks(text: str) -> list[str]:
    """Return the code and the targets of links in a text, and how its lines begin; not those to the neighbors."""
    lines = "\n".join(line for line in text.split("\n") if not LINKS.fullmatch(line))
    return sorted(re.findall(r"`[^`\n]+`|\]\([^)]+\)|^(?:#+|>|\||-|\d+\.)(?= )", lines, re.MULTILINE))


def test_a_heading_without_a_translation_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = small_course(tmp_path)
    folder.joinpath("index.zh.ipynb").unlink()
    assert translation.main(["--folder", str(folder)]) == 1
    words = dict.fromkeys(json.loads((folder / translation.WORDS).read_text()), "# 标题")
    (folder / translation.WORDS).write_text(json.dumps(words))
    assert translation.main(["--folder", str(folder)]) == 0
    assert translation.main(["--folder", str(folder), "--check"]) == 0
    notebook = read(folder / "06b-three.ipynb")
    notebook.cells[0].source += "\n\n## New heading\n\n> **term**: a new\n> box"
    nbformat.write(notebook, folder / "06b-three.ipynb")
    capsys.readouterr()
    assert translation.main(["--folder", str(folder), "--check"]) == 1
    assert capsys.readouterr().out.split("\n")[:2] == [
        "not translated: ## New heading",
        "not translated: > **term**: a new box",
    ]


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*NOTEBOOKS, *CHINESE_LESSONS, *DOCUMENTS], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert [link for link in links_of(path) if not leads_somewhere(path, link)] == []


def links_of(path: Path) -> list[str]:
    """Return the targets of links and pictures, without those in code."""
    text = re.sub(r"(?ms)^( *)```.*?^\1```|``.+?``|`[^`\n]+`", "", prose(path))
    links = re.finditer(r"\]\(([^()\s]+(?:\([^()]*\))?)\)|(?:href|src)=\"([^\"]+)\"", text)
    return [found[1] or found[2] for found in links]


def leads_somewhere(path: Path, link: str) -> bool:
    """Return whether a link leads to a file and a heading that exist; pages of other hosts are not asked for."""
    if re.match(r"https?://[\w.-]+\.\w+(/|$)|mailto:|data:image/", link):
        return True
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(path: Path) -> set[str]:
    """Return the anchors of headings: GitHub's in a document, JupyterLab's in a notebook."""
    headings = re.findall(r"(?m)^#{1,6} +(.+?) *#*$", re.sub(r"(?ms)^```.*?^```", "", prose(path)))
    plain = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading) for heading in headings]
    if path.suffix == ".ipynb":
        return {heading.replace(" ", "-") for heading in plain}
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading, `quoted`\n[a](#a-heading-quoted) [b](page.md) [c](#no) [d](none.md)\n```\n[e](f)\n```\n"
    )
    assert [link for link in links_of(page) if not leads_somewhere(page, link)] == ["#no", "none.md"]


# --- spelling ---------------------------------------------------------------------------------------------------------


def test_words_are_spelled_right(tmp_path: Path) -> None:
    """Ask codespell, which knows common mistakes and British spellings; tests/words.txt has what it must not change."""
    for path in NOTEBOOKS:
        sources = [cell.source for cell in read(path).cells]
        (tmp_path / f"{path.stem}.md").write_text("\n\n".join(sources), encoding="utf-8")
    for path in DOCUMENTS:
        shutil.copy(path, tmp_path)
    done = spelled(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelling_is_found(tmp_path: Path) -> None:
    tmp_path.joinpath("page.md").write_text("The colour was definately chosen.\n")
    assert spelled(tmp_path).stdout.count("==>") == 2


def spelled(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "codespell_lib", "--toml", str(ROOT / "pyproject.toml"), str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


# --- what a reader sees without running anything ----------------------------------------------------------------------


@pytest.mark.parametrize("stop", course(), ids=lambda stop: stop.path.stem)
def test_a_notebook_is_saved_with_what_it_shows(stop: Any) -> None:
    cells = [cell for cell in read(stop.path).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert all(cell.execution_count for cell in cells if cell.source and cell.id != COLAB_CELL)
    assert [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) or "data:image/" in str(output) for output in outputs)
    assert not any("needs_background" in str(output.metadata) for output in outputs if "metadata" in output), (
        "Jupyter paints a white ground behind it in a dark notebook"
    )


@pytest.mark.parametrize("stop", course(), ids=lambda stop: stop.path.stem)
def test_no_notebook_tells_its_solutions(stop: Any) -> None:
    """A solution is folded text behind an empty cell, wherever it is shown, and is not run."""
    cells = read(stop.path).cells
    for before, cell in itertools.pairwise(cells):
        assert not {"solution", "planted"} & set(cell.metadata.get("tags", ())), (
            "faults are made in notebooks/faults.py"
        )
        code = SOLUTION.findall(cell.source)
        assert len(code) == cell.source.count("<summary>Solution"), "the form that tests run"
        if code:
            compile(code[0], cell.id, "exec")
            assert before.cell_type == "code", "an answer has no place"
    if stop.number:
        assert any(SOLUTION.search(cell.source) for cell in cells)


@pytest.mark.parametrize("stop", course(), ids=lambda stop: stop.path.stem)
def test_a_plain_way_does_without_us_and_checks_its_result(stop: Any) -> None:
    """The test of each notebook in JupyterLab runs it, where an assertion compares it with what our call gave."""
    made: set[str] = set()
    for cell in read(stop.path).cells:
        if cell.cell_type == "code":
            tree = ast.parse(re.sub(r"(?m)^ *[%!].*", "", cell.source) if cell.id != COLAB_CELL else "")
            made.update(name for node in ast.walk(tree) for name in bound_by(node))
        codes = PLAIN.findall(cell.source)
        assert len(codes) == cell.source.count(PLAIN_SUMMARY), f"{cell.id}: the form that tests run"
        for code in codes:
            tree = ast.parse(code)
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            assert not {"onnx_nb", "external_data"} & names, cell.id
            given = names & made - {name for node in ast.walk(tree) for name in bound_by(node)}
            checks = [node for node in ast.walk(tree) if isinstance(node, ast.Assert) or "assert" in called(node)]
            assert checks, cell.id
            assert given, f"{cell.id}: compared with nothing of the lesson"


def definitions(name: str) -> dict[str, str]:
    """Return the source of each class and function that the code cells of a notebook define."""
    codes = [cell.source for cell in read(ROOT / "notebooks" / name).cells if cell.cell_type == "code"]
    nodes = [node for code in codes for node in ast.parse(re.sub(r"(?m)^ *[%!].*", "", code)).body]
    return {node.name: ast.unparse(node) for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_lesson_10b_begins_with_the_network_of_10() -> None:
    """A folded cell defines it again, so that the notebook runs by itself."""
    first, second = map(definitions, ("10-where-the-time-goes.ipynb", "10b-layouts-threads-memory.ipynb"))
    assert {"Mix", "Block", "Enlarger", "Early", "ByConvolution", "variant"} <= first.keys() & second.keys()
    assert {name for name in first.keys() & second.keys() if first[name] != second[name]} == set()


def bound_by(node: ast.AST) -> list[str]:
    """Return the names that a node of a program binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    return [node.name] if isinstance(node, ast.FunctionDef) else [node.arg] if isinstance(node, ast.arg) else []


def called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def test_a_plain_way_is_run_and_leaves_the_notebook_as_it_is() -> None:
    code = "```python\nvalue = 2\nassert value == 2 * %s\n```"
    box = f"<details>{PLAIN_SUMMARY}\n\nHow onnx does it:\n\n{code}\n\nSlow.\n</details>"
    cells = [nbformat.v4.new_code_cell("value, half = 1, 1"), nbformat.v4.new_markdown_cell("Text.\n\n" + box % "half")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    names: dict[str, Any] = {}
    for cell in with_solutions(notebook).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)  # noqa: S102 - written above
    assert names["value"] == 1
    assert without_solutions(with_solutions(notebook)) == notebook
    notebook.cells[1].source = box % "value"
    *_, plain = with_solutions(notebook).cells
    with pytest.raises(AssertionError):
        exec(plain.source, names)  # noqa: S102 - written above


def notebook_with(text: str, *tags: str) -> Any:
    """Return a notebook of one cell that printed a text in two parts and put out a picture."""
    outputs = [nbformat.v4.new_output("stream", name="stdout", text=part) for part in (text[:3], text[3:])]
    html = f'<img class="onnx-nb-picture onnx-nb-picture-{len(text)}" alt="a" src="data:image/svg+xml;base64,{text}">'
    outputs.append(nbformat.v4.new_output("display_data", {"text/html": html}))
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("1", metadata={"tags": list(tags)}, outputs=outputs)]
    )


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ("12 nodes, 0.33", "12 nodes,   0.34", True),  # another processor rounds differently
        ("off by 1.2e-07", "off by 3e-8", True),
        ("12 nodes", "13 nodes", False),
        ("0.33 dB", "0.44 dB", False),
        ("21 dB", "19 dB", False),
        ("21.4 dB", "20.9 dB", True),
        ("4,000,000× smaller", "3,000,000× smaller", False),
        ("133,772 values", "133,771 values", False),
        ("1,288 values", "1,289 values", False),
        ("off by 0.001", "off by 0.01", False),
        ("at blocks.1", "at blocks.2", False),
        ("the first", "the last", False),
        ("a", "a\nb", False),
    ],
)
def test_outputs_that_changed_are_found(before: str, after: str, equal: bool) -> None:
    assert list(differences(notebook_with(before), notebook_with(before))) == []
    assert (list(differences(notebook_with(before), notebook_with(after))) == []) == equal
    assert list(differences(notebook_with(before, "timing"), notebook_with(after))) == []


def test_a_lesson_has_changed_with_its_code_its_outputs_and_the_modules_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "exercises").mkdir()
    for name in ("__init__", "lesson_04", "lesson_05"):
        (tmp_path / "exercises" / f"{name}.py").write_text("import faults\n")
    (tmp_path / "faults.py").write_text("import json\n")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "__init__.py").write_text("")
    (tmp_path / "weights" / "net.npz").write_bytes(b"1")
    code = nbformat.v4.new_code_cell("%matplotlib inline\nfrom exercises.lesson_04 import check\nimport weights")
    code.outputs = [nbformat.v4.new_output("stream", text="7\n")]
    lesson = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), code])
    before = fingerprint(lesson, tmp_path)
    lesson.cells[0].source = "# A better title"
    (tmp_path / "exercises" / "lesson_05.py").write_text("2\n")
    assert fingerprint(lesson, tmp_path) == before
    numbers = {before}
    for file in ("exercises/__init__.py", "exercises/lesson_04.py", "faults.py", "weights/net.npz"):
        (tmp_path / file).write_text("3\n" if file != "exercises/lesson_04.py" else "import faults\n3\n")
        numbers.add(fingerprint(lesson, tmp_path))
    code.outputs[0].text = "8\n"
    numbers.add(fingerprint(lesson, tmp_path))
    lesson.cells[0].source = "<details><summary>Solution</summary>\n\n```python\n1\n```\n\n</details>"
    numbers.add(fingerprint(lesson, tmp_path))
    assert len(numbers) == 7
