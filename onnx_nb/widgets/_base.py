"""The base of all widgets: the bundle, the theme, checked keyword arguments, the channel, and the saved picture."""

from __future__ import annotations

import difflib
import uuid
from typing import TYPE_CHECKING, Any, Final

import anywidget
import ipywidgets
import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.widgets._channel import Call, Channel, Reply, Verb
from onnx_nb.widgets._code import SharedCode, bundle, shared_code, stub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx_nb.widgets._snapshot import Picture


COLUMNS_IN_STATE: Final = 1_000_000
"""Bytes of columns up to which a widget saves them with the notebook, which then reopens without a kernel."""


class OnnxWidget(anywidget.AnyWidget):
    """Base of the widgets.

    A subclass names its kind in `_kind` and what the browser may ask in `_verbs`. An unknown keyword argument raises
    a `TypeError` that names the closest one.
    """

    _esm = stub()

    _code = traitlets.Instance(SharedCode, allow_none=True).tag(sync=True, **ipywidgets.widget_serialization)
    """The model that holds the bundle; ``None`` where `_esm` is the bundle."""

    _kind = traitlets.Unicode().tag(sync=True)
    """Which of the bundle's widgets the browser shows."""

    _own = traitlets.Unicode().tag(sync=True)
    """Id of this widget, by which the browser finds the model below anywidget's."""

    theme = traitlets.Enum(("auto", "light", "dark"), default_value="auto").tag(sync=True)
    """Colors of the view; ``"auto"`` follows the notebook."""

    _channel: Channel | None = None
    """Answers the browser; ``None`` if an argument was wrong."""

    def __init__(self, **traits: Any) -> None:
        for name in traits:
            if name not in self.trait_names():
                public = sorted(known for known in self.trait_names() if not known.startswith("_"))
                near = difflib.get_close_matches(name, public, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(public)}."
                raise TypeError(f"{type(self).__name__} has no argument {name!r}. {hint}")
        own, code = uuid.uuid4().hex, shared_code()
        if code is None:
            self._esm = bundle()
        super().__init__(model_id=own, _own=own, _code=code, **traits)
        self._channel = Channel(self, {"code": lambda _call: Reply(bundle()), **self._verbs()})

    def close(self) -> None:
        """Remove the view and end its worker."""
        if self._channel is not None:
            self._channel.close()
        super().close()

    def _verbs(self) -> dict[str, Verb]:
        """Return what the browser may ask, by name."""
        return {}


class PackedWidget(OnnxWidget):
    """Base of the widgets that show packed columns, and leave a picture for places where widgets are not shown."""

    _picture_id = traitlets.Unicode().tag(sync=True)
    """Id of the picture, which the browser hides while the widget is shown."""

    _parts = traitlets.Dict(value_trait=traitlets.Bytes()).tag(sync=True)
    """``Columns.to_bytes()`` by name; empty if they are too large to be saved, then the browser asks for each."""

    def __init__(self, picture: Picture, packed: Mapping[str, bytes], **traits: Any) -> None:
        self._picture = picture
        self._packed = dict(packed)
        super().__init__(_picture_id=picture.id, _parts=in_state(packed), **traits)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        self.show_picture()
        return super()._repr_mimebundle_(**kwargs)

    def show_picture(self) -> None:
        """Put the picture's output before the widget's; called on display."""
        self._picture.show()

    def _part(self, name: str) -> bytes:
        """Return one part by name."""
        if name not in self._packed:
            message = f"{type(self).__name__} has no part {quoted(name)}."
            raise OnnxNbError(message, advice=f"It has {', '.join(self._packed)}.")
        return self._packed[name]

    def _verbs(self) -> dict[str, Verb]:
        return {**super()._verbs(), "columns": self._answer_columns, "picture": self._answer_picture}

    def _answer_columns(self, call: Call) -> Reply:
        return Reply(buffers=[self._part(str(call.args.get("part")))])

    def _answer_picture(self, call: Call) -> Reply:
        self._picture.draw(str(call.args.get("svg")))
        return Reply()


def in_state(packed: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the parts to save with the notebook: all of them or, above `COLUMNS_IN_STATE`, none."""
    return dict(packed) if sum(map(len, packed.values())) <= COLUMNS_IN_STATE else {}
