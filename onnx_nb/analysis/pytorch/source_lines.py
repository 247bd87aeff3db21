"""Which line of a person's Python made a node: read from what torch's exporters note, or from the call stack."""

from __future__ import annotations

import functools
import itertools
import re
import sys
from typing import TYPE_CHECKING, Final

from onnx_nb.analysis import host

if TYPE_CHECKING:
    import onnx

_NOT_THE_MODEL: Final = ("/torch/", "/onnx_nb/analysis/")
_PLACE: Final = re.compile(r'(?:File "|^)([^"\n]+?\.py)(?:", line |[:(])(\d+)')
_A_CLICK: Final = "/onnx_nb/widgets/"
_LONGEST: Final = 100_000
"""No more of a trace is read: a stranger's model may hold megabytes there."""


def source_of(node: onnx.NodeProto) -> str:
    """Return the line of the torch module that a node comes from, as ``modeling_bert.py:312``; empty if it is not told.

    It is the innermost line of the stack trace that torch's exporters keep that is neither torch's nor ours.

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
    own = (place for place in itertools.chain([first], places) if not any(part in place[0] for part in _NOT_THE_MODEL))
    return _told(*next(own, first))


def running_line() -> str:
    """Return the innermost line that runs now and is neither torch's nor ours."""
    frame = sys._getframe(1)  # noqa: SLF001 (inspect.stack reads every source file)
    while frame is not None:
        file = frame.f_code.co_filename
        place = _place(file)
        if place is _A_CLICK:
            return ""  # run from the browser: what lies beyond is no line of a person
        if place is not _NOT_THE_MODEL:
            return _told(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return ""


@functools.lru_cache(1024)
def _place(file: str) -> object:
    """Describe, of which kind a file is."""
    file = file.replace("\\", "/")
    return _A_CLICK if _A_CLICK in file else _NOT_THE_MODEL if any(part in file for part in _NOT_THE_MODEL) else None


def _told(file: str, line: int | str) -> str:
    return f"{host.cell_name(file) or file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
