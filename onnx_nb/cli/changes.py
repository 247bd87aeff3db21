"""The models that differ between a revision of git and the working tree: for pull requests and hooks.

A former model is written to a temporary folder with the data files that it names, through the filters of git, so that
git-LFS works. Its external data is looked for there only.

A repository may set limits: ``onnx-nb.toml`` at its root has a table for each pattern of paths. It is read as it is in
the base revision, and so are the feeds that it names: no change raises its own budget. It is data only: conditions,
numbers, and files of the repository.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

import numpy as np

import onnx_nb
from onnx_nb.analysis.compare.metrics import Condition
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import (
    bytes_text,
    closest_text,
    count_text,
    duration_text,
    path_text,
    quoted,
    shortened,
)
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.model.save import working_folder
from onnx_nb.cli.document import BLOCKS, Text
from onnx_nb.cli.verbs import VERBS

FILE: Final = "onnx-nb.toml"
What = Literal["added", "removed", "changed"]
_STATUS: Final[dict[str, What]] = {"A": "added", "D": "removed"}


@dataclass(frozen=True)
class ModelChange:
    """One model that changed, and what was found about it."""

    path: str
    """Path from the root of the repository."""
    what: What
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Verbs that were run, with the variables of their scripts: "summary" of a new model, "diff" and "compare"."""
    error: str = ""
    """Reason why a version cannot be read."""
    excesses: Sequence[str] = ()
    """Limits of the budget that the model exceeds, each in a sentence with both numbers."""

    @property
    def ok(self) -> bool:
        """Whether it can be read, passes its conditions and its budget, and its external data has no errors."""
        compare, audit = (self.results.get(verb, {}) for verb in ("compare", "audit"))
        return not (self.error or self.excesses or compare.get("failed")) and (not audit or audit["audit"].ok)


def changes(
    base: str, paths: Sequence[str] = (), *, pages: str | None = None, audit: bool = False, **comparison: Any
) -> Iterator[ModelChange]:
    """Yield the models that differ from a revision, each with its diff, and its comparison if it may fail."""
    root = Path(_git("rev-parse", "--show-toplevel").decode(errors="surrogateescape").rstrip("\n"))
    with working_folder() as folder:
        file = folder / FILE
        _write(root, base, FILE, file)
        budgets = read_budgets(file.read_text(errors="replace") if file.exists() else "")
        for path, what in _changed(root, base, paths):
            budget = budget_of(budgets, path)
            options = {**comparison, "fail": (*comparison.get("fail", ()), *budget.fail)}
            results: dict[str, dict[str, Any]] = {}
            try:
                options["feeds"] = comparison.get("feeds") or _former_feeds(root, base, budget, folder)
                options["shapes"] = comparison.get("shapes") or budget.shapes
                page = str(Path(pages) / f"{path_text(path)}.html") if pages else ""
                with working_folder() as former:
                    looks = _looks(former, root, base, path, what, page=page, audit=audit, options=options)
                    results.update(looks)  # also what comes before an error
                    numbers = options["feeds"] or None, options["shapes"] or None
                    excesses = () if what == "removed" else tuple(budget.excesses(str(root / path), *numbers))
                    yield ModelChange(path, what, results, excesses=excesses)
            except Exception as error:  # noqa: BLE001 (whatever one model does, the others are looked at)
                kind = "" if isinstance(error, OnnxNbError) else f"{type(error).__name__}: "
                yield ModelChange(path, what, results, error=f"{kind}{error}")


def _looks(
    former: Path, root: Path, base: str, path: str, what: What, *, page: str, audit: bool, options: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what verbs make of a model and its former version, which is written into a folder."""
    now = str(root / path)
    if not Path(now).resolve().is_relative_to(root.resolve()):
        raise OnnxNbError("it is a link that leads out of the repository.", advice="Commit the model itself.")
    if what == "added":
        yield "summary", VERBS["summary"].build(model=now, page=page).run()
    if audit and what != "removed":
        yield "audit", VERBS["audit"].build(model=now).run()
    if what == "changed":
        pair = {"reference": _former(root, base, path, former), "candidate": now}
        diff = VERBS["diff"].build(**pair).run()
        yield "diff", diff
        parts = {"Diff": diff["d"]}
        if options["fail"]:
            compare = VERBS["compare"].build(**pair, **options).run()
            yield "compare", compare
            parts["Errors"] = compare["c"]
        if page:
            diff["page"] = onnx_nb.report(page, parts, title=path)


def _former_feeds(root: Path, base: str, budget: Budget, folder: Path) -> Any:
    """Write the feeds of a budget, as they are in a revision, into a folder; return what `read_feeds` takes."""
    files = {"": budget.feeds} if isinstance(budget.feeds, str) else budget.feeds
    targets = {name: folder / "feeds" / file for name, file in files.items() if file}
    for name, target in targets.items():
        _write(root, base, files[name], target)
        if not target.exists():
            message = f"{FILE} names the feeds {files[name]}, which {base} does not have."
            raise OnnxNbError(message, advice="Commit them, or correct the name.")
    paths = {name: str(target) for name, target in targets.items()}
    return paths.get("") if isinstance(budget.feeds, str) else paths


def _changed(root: Path, base: str, paths: Sequence[str]) -> Iterator[tuple[str, What]]:
    """Yield models that changed, or whose data file in the same folder did."""
    words = _git("diff", "--name-status", "--no-renames", "-z", "--end-of-options", base, "--", *paths).split(b"\0")
    status = {os.fsdecode(name): letter.decode()[:1] for letter, name in zip(words[::2], words[1::2], strict=False)}
    models = {path: _STATUS.get(letter, "changed") for path, letter in status.items() if path.endswith(".onnx")}
    others = {path for path, letter in status.items() if path not in models and letter != "D"}
    for folder in {PurePosixPath(path).parent for path in others}:
        names = _git("ls-files", "-z", "--", str(root / folder), root=root).split(b"\0")
        for path in map(os.fsdecode, names):
            is_model = path.endswith(".onnx") and path not in models and PurePosixPath(path).parent == folder
            if is_model and others & {str(folder / name) for name in _data_files(root / path)}:
                models[path] = "changed"
    yield from sorted(models.items())


def _data_files(path: Path, *, missing: bool = False) -> list[str]:
    """Return the locations of a model's external data, or of files that are not there; none if it is no model."""
    try:
        audit = onnx_nb.external_data.audit(path)
    except OnnxNbError:
        return []  # reported if the model itself changed
    if missing:
        return [problem.location or "" for problem in audit.problems if problem.kind == "missing file"]
    return [file.location for file in audit.files]


def _former(root: Path, base: str, path: str, folder: Path) -> str:
    """Write a model of a revision, with its external data, into a folder; return its path."""
    target = folder / PurePosixPath(path).name
    _write(root, base, path, target)
    # in a folder of its own every file is missing, apart from those outside of it, which the audit names
    for location in _data_files(target, missing=True):
        _write(root, base, str(PurePosixPath(path).parent / location), folder / location)
    return str(target)


def _write(root: Path, base: str, path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        command = ["git", "-C", str(root), "cat-file", "--filters", "--end-of-options", f"{base}:{path}"]
        process = subprocess.run(command, check=False, stdout=file, stderr=subprocess.PIPE)
    if process.returncode:
        target.unlink()  # as missing as it is in the revision


def _git(*words: str, root: Path | None = None) -> bytes:
    try:
        command = ["git", *(["-C", str(root)] if root else []), *words]
        process = subprocess.run(command, check=False, capture_output=True)
    except FileNotFoundError as error:
        raise OnnxNbError("git is not installed here.", advice="Install it, or use onnx-nb diff OLD NEW.") from error
    if process.returncode:
        said = process.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise OnnxNbError(f"git {words[0]} failed: {said}.", advice="Run this in a repository, with a revision it has.")
    return process.stdout


@dataclass(frozen=True)
class Budget:
    """Limits on a model; an empty field allows anything."""

    fail: Sequence[str] = ()
    """Conditions of ``onnx-nb changes --fail``, against the version of the base revision."""
    feeds: str | Mapping[str, str] = ""
    """A file of the repository with all inputs, or one for each input."""
    shapes: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    """Sizes where feeds are made up."""
    milliseconds: float | None = None
    """Median time of a run on the machine that looks."""
    nodes: float | None = None
    megabytes: float | None = None

    def excesses(self, path: str, feeds: Any, shapes: Any) -> Iterator[str]:
        """Yield a sentence for each number of a model that is above the budget; it is run if its time counts."""
        if self.nodes is self.megabytes is self.milliseconds is None:
            return
        model = load(path)
        if self.nodes is not None and (count := len(model.proto.graph.node)) > self.nodes:
            yield f"{count_text(count, 'node')}, {self.nodes:,.0f} allowed"
        if self.megabytes is not None and model.nbytes > self.megabytes * 1e6:
            yield f"{bytes_text(model.nbytes)} of weights, {bytes_text(int(self.megabytes * 1e6))} allowed"
        if self.milliseconds is not None:
            seconds = float(np.median(onnx_nb.profile(model, feeds, shapes=shapes).run_seconds))
            if seconds * 1e3 > self.milliseconds:
                yield f"{duration_text(seconds)} a run, {duration_text(self.milliseconds / 1e3)} allowed"


def budget_of(tables: Mapping[str, Budget], path: str) -> Budget:
    """Return the budget of a model: of the last pattern that its path fits, else one that allows anything."""
    return next((tables[pattern] for pattern in [*tables][::-1] if fnmatch.fnmatchcase(path, pattern)), Budget())


def read_budgets(text: str) -> dict[str, Budget]:
    r"""Return the budgets in a file, by pattern; `OnnxNbError` if an entry is none, or leads out of the repository.

    >>> budgets = read_budgets('["models/*.onnx"]\nfail = ["sqnr < 30 dB"]\nnodes = 420')
    >>> budget_of(budgets, "models/net.onnx").nodes, budget_of(budgets, "net.onnx").nodes
    (420, None)
    """
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OnnxNbError(f"{FILE} is no TOML: {error}.", advice="Correct it in the base revision.") from None
    budgets = dict[str, Budget]()
    for pattern, table in tables.items():
        if not isinstance(table, dict):
            advice = f'Write a table for each pattern of paths: ["models/*.onnx"], then {pattern} = …'
            raise OnnxNbError(f"{FILE}: {quoted(pattern)} stands in no table.", advice=advice)
        for name, value in table.items():
            if not _is_valid(name, value):
                advice = closest_text(name, _EXAMPLES) or f"There are {', '.join(_EXAMPLES)}."
                advice = f"Write {name} = {_EXAMPLES[name]}." if name in _EXAMPLES else advice
                entry = f"{name} = {shortened(repr(value), 80)}"
                raise OnnxNbError(f'{FILE}, ["{pattern}"]: {entry} is no entry of a budget.', advice=advice)
        budgets[pattern] = Budget(**table)
    return budgets


_EXAMPLES: Final = {
    "fail": '["sqnr < 30 dB"]',
    "feeds": '"tests/feeds.npz", a file of the repository',
    "shapes": "{batch = 1}",
    "milliseconds": "12.5",
    "nodes": "420",
    "megabytes": "25",
}


def _is_valid(name: str, value: Any) -> bool:
    """Return whether an entry is what its name says; raise `OnnxNbError` for a condition that is none."""
    if name == "fail":
        return isinstance(value, list) and all(isinstance(text, str) and Condition.read(text) for text in value)
    if name == "feeds":
        files = value.values() if isinstance(value, dict) else [value]
        paths = [PurePosixPath(file) for file in files if isinstance(file, str) and file]
        is_inside = not any(path.is_absolute() or ".." in path.parts for path in paths)
        return is_inside and len(paths) == len(files)
    if name == "shapes":
        sizes = value.values() if isinstance(value, dict) else [None]
        flat = itertools.chain(*(size if isinstance(size, list) else [size] for size in sizes))
        return all(isinstance(size, int) for size in flat)
    return name in _EXAMPLES and isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


_VERBS_SHOWN: Final = ("summary", "diff", "compare", "audit")


def blocks_of(change: ModelChange) -> list[Any]:
    """Return the blocks of a change."""
    message = f", {change.results['diff']['d'].message}" if "diff" in change.results else ""
    blocks: list[Any] = [Text(f"{path_text(change.path)}: {change.what}{message}", "title")]
    if change.excesses:
        blocks.append(Text(f"Over its budget: {'; '.join(change.excesses)}", "bad"))
    for verb in _VERBS_SHOWN:
        variables = change.results.get(verb, {})
        if variables and (verb != "audit" or variables["audit"].problems):
            blocks += BLOCKS[verb](variables)[verb == "diff" :]
    return [*blocks, Text(change.error, "bad")] if change.error else blocks


def entry_of(change: ModelChange) -> dict[str, Any]:
    """Return a change as plain JSON."""
    from onnx_nb.cli.record import record

    records = {verb: record(verb, change.results[verb]) if verb in change.results else None for verb in _VERBS_SHOWN}
    head = {"path": path_text(change.path), "what": change.what, "ok": change.ok, "error": change.error or None}
    return {**head, "excesses": [*change.excesses], **records}
