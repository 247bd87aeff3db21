"""The differences of two models as packed columns; ``frontend/protocol/diff.ts`` reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from onnx_nb.analysis.compare.counterparts import Counterparts
from onnx_nb.analysis.view.columns import Columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.compare.diff import Diff

LISTED: Final = 5000
"""Changes that are sent to the browser at most."""


def diff_columns(differences: Diff) -> Columns:
    """Return both sides and the first `LISTED` changes."""
    about = [
        [c.what, c.kind, c.name, c.op, c.detail, c.reference, c.candidate, c.how, *c.nodes, *c.tensors]
        for c in differences.changes[:LISTED]
    ]
    counts = Counter(change.what for change in differences.changes)
    meta = {
        "changes": about,
        "total": len(differences.changes),
        "counts": dict(counts),
        "message": differences.message,
    }
    return Columns(side_columns(differences.sides), meta)


def side_columns(sides: tuple[Counterparts, Counterparts]) -> dict[str, NDArray[Any]]:
    """Return the columns of both sides by name and number of the side."""
    return {
        f"{field.name}_{at}": getattr(side, field.name)
        for at, side in enumerate(sides)
        for field in fields(Counterparts)
    }
