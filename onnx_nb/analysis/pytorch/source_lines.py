"""The line of user code that made a node: from the metadata of torch's exporters, or from the call stack."""

from __future__ import annotations

import functools
import itertools
import re
import sys
from typing import TYPE_CHECKING, Final

from onnx_nb.analysis import host

if TYPE_CHECKING:
    import onnx

_LIBRARIES: Final = ("/torch/", "/onnx_nb/analysis/")
_PLACE: Final = re.compile(r'(?:File "|^)([^"\n]+?\.py)(?:", line |[:(])(\d+)')
_WIDGETS: Final = "/onnx_nb/widgets/"
_LONGEST: Final = 100_000
"""Characters of a stack trace that are read: an untrusted model may hold megabytes there."""


def source_of(node: onnx.NodeProto) -> str:
    """Return the line of the torch module that a node comes from, such as ``modeling_bert.py:312``; empty if unknown.

    This is the innermost line of the stack trace in the node's metadata that is not of torch or onnx_nb.

    Examples
    --------
    >>> import onnx
    >>> source_of(onnx.helper.make_node("Relu", ["x"], ["y"], doc_string="/home/me/net.py(12): forward"))
    'net.py:12'
    """
    traces = (entry.value for entry in node.metadata_props if entry.key == "pkg.torch.onnx.stack_trace")
    trace = (next(traces, "") or node.doc_string)[:_LONGEST]
    lines = trace.splitlines()
    if 'File "' in trace:  # the TorchScript exporter begins with the innermost line, dynamo ends with it
        lines.reverse()
    places = (place.groups() for place in map(_PLACE.search, lines) if place is not None)
    first = next(places, None)
    if first is None:
        return ""
    own = (place for place in itertools.chain([first], places) if not any(part in place[0] for part in _LIBRARIES))
    return _line_text(*next(own, first))


def running_line() -> str:
    """Return the innermost running line that is not of torch or onnx_nb; empty if a click in the browser runs it."""
    frame = sys._getframe(1)  # noqa: SLF001 (inspect.stack reads every source file)
    while frame is not None:
        file = frame.f_code.co_filename
        place = _place(file)
        if place is _WIDGETS:
            return ""  # the lines beyond are not user code
        if place is not _LIBRARIES:
            return _line_text(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return ""


@functools.lru_cache(1024)
def _place(file: str) -> object:
    """Return `_WIDGETS` or `_LIBRARIES` for a file of them; None for user code."""
    file = file.replace("\\", "/")
    return _WIDGETS if _WIDGETS in file else _LIBRARIES if any(part in file for part in _LIBRARIES) else None


def _line_text(file: str, line: int | str) -> str:
    return f"{host.cell_name(file) or file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
