"""What every graph asks about its model: details of a target, what it costs, and numbers to color by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.view.inspection import figures, inspect
from onnx_nb.analysis.view.overlays import COSTS, OWN, STATISTICS, Overlay, overlay
from onnx_nb.widgets._channel import Call, Reply, Verb

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.run.capture import Capture


def model_verbs(
    model: Callable[[Call], Model], captured: Callable[[], Capture | None] = lambda: None
) -> dict[str, Verb]:
    """Return the verbs ``inspect``, ``figures`` and ``overlay``.

    Parameters
    ----------
    model
        Returns the model that a request is about.
    captured
        Returns the last capture of that model, which adds times and statistics.
    """

    def answer_inspect(call: Call) -> Reply:
        return Reply(inspect(model(call), *_target(call)).to_json())

    def answer_figures(call: Call) -> Reply:
        seen = captured()
        times = None if seen is None else overlay(model(call), seen, label="seconds")
        return Reply(figures(model(call), *_target(call), times))

    def answer_overlay(call: Call) -> Reply:
        return Reply(*packed_overlay(named_overlay(model(call), str(call.args.get("name")), captured())))

    return {"inspect": answer_inspect, "figures": answer_figures, "overlay": answer_overlay}


def named_overlay(model: Model, name: str, captured: Capture | None = None) -> Overlay:
    """Return the numbers of this name: those of every model, or of a capture."""
    if name in OWN:
        return overlay(model, name)
    if captured is not None:
        return overlay(model, captured, label=name)
    advice = "Press Capture first." if name in (*COSTS, *STATISTICS) else f"There are {', '.join(OWN)}."
    raise OnnxNbError(f"there are no numbers called {quoted(name)}.", advice=advice)


def packed_overlay(made: Overlay) -> tuple[dict[str, Any], list[bytes]]:
    """Return an overlay as a reply holds it: what the numbers are, and those of nodes and of scopes."""
    about = {"label": made.label, "scale": made.scale, "reduce": made.reduce, "unmatched": len(made.unmatched)}
    return about, [column.astype("<f8").tobytes() for column in (made.nodes, made.scopes)]


def _target(call: Call) -> tuple[str, int]:
    return str(call.args.get("kind")), int(call.args.get("id") or 0)
