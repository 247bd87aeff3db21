"""A model file in a tab of JupyterLab or Notebook: what `frontend/labextension` asks the tab's kernel for.

The tab sends paths, never contents. The view stays in the kernel, so that a reloaded page gets the same one again.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any, NamedTuple

from onnx_nb.analysis.errors import ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, quoted
from onnx_nb.analysis.model.model import load
from onnx_nb.widgets.graph import ModelView


class TabReply:
    """A value that reaches the tab as JSON, in the reply to an expression."""

    def __init__(self, **value: Any) -> None:
        self._value = value

    def _repr_mimebundle_(self, **_kwargs: Any) -> dict[str, Any]:
        return {"application/json": self._value, "text/plain": repr(self._value)}


class _Shown(NamedTuple):
    stamp: tuple[int, int]
    """Time and size of the file that is shown."""
    view: ModelView


_shown: dict[Path, _Shown] = {}


def view(path: str, *, root: str = "", size: int | None = None, before: str = "") -> TabReply:
    """Reply with the widget that shows a file: the one that showed it before if the file is unchanged.

    ``path`` is as the server knows it, with slashes, without a drive; ``root`` the server's folder, perhaps with ``~``,
    or empty if it does not tell; ``size`` the bytes that it sees, of a symbolic link those of the link, by which a file
    of the same name elsewhere is recognized. A renamed file keeps the state of its view, whose file was ``before``.
    """
    file = None
    try:
        file = _located(path, root, size)
        shell = _opened(file, Path(before) if before else file)
    except OnnxNbError as error:
        return TabReply(what=error.message, now=error.advice, actions=["again"] if file else ["again", "choose"])
    return TabReply(file=str(file), widget=shell.model_id, parts=[shell.summary.model_id, shell.graph.model_id])


def cells(file: str) -> TabReply:
    """Reply with the source of the cells of *Open in a notebook*: show, cut and compare the model of a tab."""
    path = Path(file)
    name = path.name if path.parent == Path.cwd() else str(path)
    show = f"import onnx_nb\n\nmodel = onnx_nb.load({name!r})\ng = onnx_nb.ModelGraph(model)\ng"
    compare = "simplified = onnx_nb.simplify(model)\nonnx_nb.compare(model, simplified.model)"
    return TabReply(cells=[show, _cut(path, _shown[path].view), compare])


def _located(path: str, root: str, size: int | None) -> Path:
    """Return the file as this kernel sees it: below the server's folder, or in the folder where the kernel started."""
    name = path.rsplit("/", 1)[-1]
    places = [*([Path(root).expanduser() / path] if root else []), Path.cwd() / name]
    for place in dict.fromkeys(places):
        is_same = place.is_file() and size in (None, place.stat().st_size, place.lstat().st_size)
        if is_same or (place.is_dir() and size is None):
            return Path(os.path.normpath(place))  # `load` says what a folder is
    other = next((place for place in places if place.is_file()), None)
    if other is not None:
        message = f"{quoted(str(other))} has {bytes_text(other.stat().st_size)} where the kernel runs, and"
        message += f" {bytes_text(size or 0)} in the file browser: it is another file, or is being written."
        raise ModelFileError(message, advice="Try again, or choose a kernel that runs where the file is.")
    labels = " and ".join(quoted(str(place)) for place in dict.fromkeys(places))
    raise ModelFileError(
        f"The kernel, on {platform.node()}, sees no file {quoted(name)}: it looked for {labels}.",
        advice="Choose a kernel that runs where the file is, or copy the file into a folder that the kernel sees.",
    )


def _opened(file: Path, before: Path) -> ModelView:
    """Return the view of a file: a new one, in the state of the one before, if the file changed or was renamed."""
    status = file.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    former = _shown.get(file)
    if former is not None and former.stamp == stamp and former.view.comm is not None:
        return former.view
    model = load(file)
    last = _shown.pop(before, None) or former
    view_ = ModelView(model)
    if last is not None:
        view_.graph.view, view_.graph.direction = last.view.graph.view, last.view.graph.direction
        last.view.close()
    _shown[file] = _Shown(stamp, view_)
    return view_


def _cut(file: Path, tab: ModelView) -> str:
    """Return a cell that extracts what is chosen in the graph or, if that is no submodel yet, about the first half."""
    from onnx_nb.analysis.submodel.extraction import plan_extraction
    from onnx_nb.analysis.submodel.partition import partition

    model, inputs, outputs = tab.model, tab.graph.inputs, tab.graph.outputs
    if not outputs or plan_extraction(model, inputs, outputs).missing:
        part = model
        with contextlib.suppress(OnnxNbError):  # of one node, or with a type in the middle that nobody knows
            part = partition(model, 2)[0]
        inputs, outputs = [port.name for port in part.inputs], [port.name for port in part.outputs]
    call = f"onnx_nb.extract(model, {list(inputs)!r}, {list(outputs)!r})"
    return f"part = {call}  # part.save({f'{file.stem}-part.onnx'!r}) writes it\npart"
