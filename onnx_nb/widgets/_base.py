"""What every widget of onnx_nb shares: the bundles, the theme, and keyword arguments that are checked."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

if TYPE_CHECKING:
    from onnx_nb.widgets._channel import Channel

STATIC = Path(str(resources.files("onnx_nb"))) / "static"


class OnnxWidget(anywidget.AnyWidget):
    """Base of the widgets.

    An unknown keyword argument is an error that names the closest one, not a silent new attribute.
    """

    _esm = STATIC / "widget.js"

    _kind = traitlets.Unicode().tag(sync=True)
    """Which of the bundle's views the browser shows."""

    theme = traitlets.Enum(("auto", "light", "dark"), default_value="auto").tag(sync=True)
    """``"auto"`` follows the notebook's theme."""

    _channel: Channel | None = None
    """Answers the browser, in widgets that have something to ask for."""

    def __init__(self, **traits: Any) -> None:
        public = sorted(name for name in self.trait_names() if not name.startswith("_"))
        for name in traits:
            if name not in self.trait_names():
                near = difflib.get_close_matches(name, public, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else f" It has {', '.join(public)}."
                msg = f"{type(self).__name__} has no argument {name!r}.{hint}"
                raise TypeError(msg)
        super().__init__(**traits)

    def close(self) -> None:
        """Remove the view and end its worker."""
        if self._channel is not None:
            self._channel.close()
        super().close()


class ResultWidget(OnnxWidget):
    """Base of the widgets that show a result, and no graph: they have a smaller bundle."""

    _esm = STATIC / "results.js"
