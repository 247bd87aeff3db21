"""How packed columns reach the browser: as a trait saved with the notebook, or by a request if they are large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.widgets._base import PicturedWidget
from onnx_nb.widgets._channel import Call, Reply, Verb

if TYPE_CHECKING:
    from onnx_nb.widgets._snapshot import Picture

COLUMNS_IN_STATE: Final = 1_000_000
"""Bytes of columns up to which a widget saves them with the notebook, which then reopens without a kernel."""


class PackedWidget(PicturedWidget):
    """Base of the widgets that show packed columns.

    Parameters
    ----------
    picture
        What replaces the widget where widgets are not shown.
    packed
        ``Columns.to_bytes()`` by the name of the part.
    """

    _parts = traitlets.Dict(value_trait=traitlets.Bytes()).tag(sync=True)
    """Packed columns by name; empty if they are too large to be saved, then the browser asks for each."""

    def __init__(self, picture: Picture, packed: Mapping[str, bytes], **traits: Any) -> None:
        self._packed = dict(packed)
        super().__init__(picture, _parts=in_state(packed), **traits)

    def _part(self, name: str) -> bytes:
        """Return one part by name."""
        if name not in self._packed:
            message = f"{type(self).__name__} has no part {quoted(name)}."
            raise OnnxNbError(message, advice=f"It has {', '.join(self._packed)}.")
        return self._packed[name]

    def _verbs(self) -> dict[str, Verb]:
        return {**super()._verbs(), "columns": self._answer_columns}

    def _answer_columns(self, call: Call) -> Reply:
        return Reply(buffers=[self._part(str(call.args.get("part")))])


def in_state(packed: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the parts to save with the notebook: all of them or, above `COLUMNS_IN_STATE`, none."""
    return dict(packed) if sum(map(len, packed.values())) <= COLUMNS_IN_STATE else {}
