"""The base of all widgets: the bundle, the theme, checked keyword arguments, the channel, and the saved picture."""

from __future__ import annotations

import difflib
import uuid
from typing import TYPE_CHECKING, Any

import anywidget
import ipywidgets
import traitlets

from onnx_nb.widgets._channel import Call, Channel, Reply, Verb
from onnx_nb.widgets._code import SharedCode, bundle, shared_code, stub

if TYPE_CHECKING:
    from onnx_nb.widgets._snapshot import Picture


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


class PicturedWidget(OnnxWidget):
    """Base of the widgets that leave a picture in the notebook for places where widgets are not shown."""

    _picture_id = traitlets.Unicode().tag(sync=True)
    """Id of the picture, which the browser hides while the widget is shown."""

    def __init__(self, picture: Picture, **traits: Any) -> None:
        self._picture = picture
        super().__init__(_picture_id=picture.id, **traits)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        self.show_picture()
        return super()._repr_mimebundle_(**kwargs)

    def show_picture(self) -> None:
        """Put the picture's output before the widget's; called on display."""
        self._picture.show()

    def _verbs(self) -> dict[str, Verb]:
        return {**super()._verbs(), "picture": self._answer_picture}

    def _answer_picture(self, call: Call) -> Reply:
        self._picture.draw(str(call.args.get("svg")))
        return Reply()
