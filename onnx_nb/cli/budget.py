"""Limits on the models of a repository: ``onnx-nb.toml`` at its root, with a table for each pattern of paths.

It is read as it is in the base revision, and so are the feeds that it names: no change raises its own budget. It is
data only: conditions, numbers, and files of the repository.
"""

from __future__ import annotations

import fnmatch
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np

from onnx_nb.analysis.compare.metrics import Condition
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, closest_text, count_text, duration_text, quoted, shortened
from onnx_nb.analysis.model.model import load

FILE: Final = "onnx-nb.toml"


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
        from onnx_nb import profile

        if self.nodes is self.megabytes is self.milliseconds is None:
            return
        model = load(path)
        if self.nodes is not None and (count := len(model.proto.graph.node)) > self.nodes:
            yield f"{count_text(count, 'node')}, {self.nodes:,.0f} allowed"
        if self.megabytes is not None and model.nbytes > self.megabytes * 1e6:
            yield f"{bytes_text(model.nbytes)} of weights, {bytes_text(int(self.megabytes * 1e6))} allowed"
        if self.milliseconds is not None:
            seconds = float(np.median(profile(model, feeds, shapes=shapes).run_seconds))
            if seconds * 1e3 > self.milliseconds:
                yield f"{duration_text(seconds)} a run, {duration_text(self.milliseconds / 1e3)} allowed"


def budget_of(tables: Mapping[str, Budget], path: str) -> Budget:
    """Return the budget of a model: of the last pattern that its path fits, else one that allows anything."""
    return next((tables[pattern] for pattern in [*tables][::-1] if fnmatch.fnmatchcase(path, pattern)), Budget())


def read_budgets(text: str) -> dict[str, Budget]:
    r"""Return the budgets in a file, by pattern.

    Raises
    ------
    OnnxNbError
        If it is no TOML, or an entry is none of a `Budget` or leads out of the repository.

    Examples
    --------
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
