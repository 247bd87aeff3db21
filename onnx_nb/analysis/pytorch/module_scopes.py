"""Submodule calls and source lines of the nodes of an export, from the metadata or names of torch's exporters."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import traceback
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import onnx

from onnx_nb.analysis import results
from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.graph import Graph

if TYPE_CHECKING:
    from onnx_nb.analysis.pytorch.record import Recording

Scope: TypeAlias = tuple[str, ...]
"""Names of the submodules around a call or a node, outermost first."""
_QUOTES: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")


class ModuleScopes:
    """Scopes of the recorded calls and of the nodes of the main graph; a call and its nodes have the same scope."""

    def __init__(self, recording: Recording, graph: Graph) -> None:
        nodes = graph.model.proto.graph.node
        paths, names = (
            [next((entry.value for entry in node.metadata_props if entry.key == key), None) for node in nodes]
            for key in ("pkg.torch.onnx.name_scopes", "pkg.onnxscript.name_scopes")
        )
        by_path = any(text is not None for text in paths)
        if by_path:
            texts = paths
        elif any(text is not None for text in names):  # mobius writes the name of each submodule within the one above
            texts = [text and "/".join(a or b for a, b in _QUOTES.findall(text)) for text in names]
        else:  # the TorchScript exporter wrote the names into the names of the nodes
            texts = [name.rpartition("/")[0] if "/" in name else None for name in graph.names[: graph.main_count]]
        self.labels = [[] if by_path else (text or "").removeprefix("/").split("/") for text in texts]
        """Names of each node's scopes as the TorchScript exporter wrote them: it numbers repeated calls."""
        self.of_call: list[Scope] = []
        """Scope of each call: the paths around it, or the names of the TorchScript exporter."""
        for call in recording.calls:
            # "layer.0" for "encoder.layer.0"
            short = None if by_path else re.search(r"[^.]*[^.\d][^.]*(\.\d+)*$", call.path)
            name = call.path if short is None else short[0]
            self.of_call.append((*self.of_call[call.parent], name) if call.parent >= 0 else ())
        times = Counter(self.of_call)
        if not by_path:
            self.of_call = [_merged(scope, times) for scope in self.of_call]
        prefixes = {scope[:depth] for scope in self.of_call for depth in range(len(scope) + 1)}
        canonical = {name: call.path for call in recording.calls for name in (call.path, *call.aliases)}

        @functools.cache
        def longest(text: str) -> Scope:
            """Return the longest prefix of a node's scope that is the scope of a call."""
            if by_path:  # the last one is the operation
                paths = [re.sub(r"@\d+$", "", a or b) for a, b in _QUOTES.findall(text)][:-1]
                scope = tuple(canonical[path] for path in paths if path and path in canonical)
            else:
                scope = _merged(tuple(text.removeprefix("/").split("/")), times)
            while scope not in prefixes:
                scope = scope[:-1]
            return scope

        scopes = [None if text is None else longest(text) for text in texts]
        if len(prefixes) > 1 and len(scopes) > 1 and not any(scopes):
            message = f"no node of {graph.model.name} bears the name of a submodule of {recording.cls}"
            message += ": it is the export of another module, or a tool removed the names."
            advice = "Align the export itself, save the alignment, and pass it as alignment=."
            raise AlignmentError(message, advice=advice)
        self.guessed = [scope is None for scope in scopes]
        """Whether the exporter wrote no scope for each node."""
        self.of_node = [scope or () for scope in scopes]
        """Scope of each node; for a node without one, the part that the scopes of its neighbors have in common."""
        for node, scope in enumerate(scopes):
            if scope is None:
                near = [int(graph.producer[value]) for value in graph.node_inputs(node).tolist() if value >= 0]
                near += [reader for value in graph.results(node) for reader in graph.consumers(value).tolist()]
                some = [scopes[other] or () for other in near if 0 <= other < len(scopes) and scopes[other] is not None]
                common = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*some, strict=False))
                self.of_node[node] = tuple(names[0] for names in common)


def _merged(scope: Scope, times: Mapping[Scope, int]) -> Scope:
    """Return one scope for names that cannot be distinguished: "c_1" is a second call of "c", or a module "c_1".

    ``times`` has the number of calls with each scope.
    """
    names: list[str] = []
    above: Scope = ()
    for name in scope:
        shorter = [name]  # "c_1_1", "c_1", "c"
        while (match := re.fullmatch(r"(.+)_\d+", shorter[-1])) is not None:
            shorter.append(match[1])
        repeats = [short for short in shorter[1:] if times[*above, short] > 1]
        hits = [short for short in shorter if times[*above, short]]
        names.append((repeats[-1:] or hits[:1] or [name])[0])
        above = (*above, name if times[*above, name] else names[-1])
    return tuple(names)


_LIBRARIES: Final = ("/torch/", "/onnx_nb/analysis/")
_PLACE: Final = re.compile(r'(?:File "|^)([^"\n]+?\.py)(?:", line |[:(])(\d+)')
_WIDGETS: Final = "/onnx_nb/widgets/"
_LONGEST: Final = 100_000
"""Maximum number of characters read of a stack trace: an untrusted model may hold megabytes there."""


def source_of(node: onnx.NodeProto) -> str:
    """Return the line of the torch module that a node comes from, such as ``modeling_bert.py:312``; empty if unknown.

    This is the innermost line of the stack trace in the node's metadata that is outside torch and onnx_nb.
    """
    traces = (entry.value for entry in node.metadata_props if entry.key == "pkg.torch.onnx.stack_trace")
    trace = plain_text((next(traces, "") or node.doc_string)[:_LONGEST])
    lines = trace.splitlines()
    if 'File "' in trace:  # the TorchScript exporter begins with the innermost line, dynamo ends with it
        lines.reverse()
    places = (place.groups() for place in map(_PLACE.search, lines) if place is not None)
    first = next(places, None)
    if first is None:
        return ""
    user = (place for place in itertools.chain([first], places) if not any(part in place[0] for part in _LIBRARIES))
    return line_text(*next(user, first))


def running_place() -> tuple[str, int] | None:
    """Return file and number of the innermost running line outside torch and onnx_nb; None if a click runs it."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):  # noqa: SLF001 (inspect.stack reads every source file)
        place = _place(frame.f_code.co_filename)
        if place is not _LIBRARIES:  # the lines beyond a widget are not user code
            return None if place is _WIDGETS else (frame.f_code.co_filename, line)
    return None


def raising_lines(error: BaseException) -> list[tuple[str, int]]:
    """Return the lines outside torch and onnx_nb through which an error came, the innermost first."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return [line for line in reversed(lines) if _place(line[0]) is None]


@functools.lru_cache(1024)
def _place(file: str) -> object:
    """Return `_WIDGETS` or `_LIBRARIES` for a file that belongs to them; None for user code."""
    file = file.replace("\\", "/")
    return _WIDGETS if _WIDGETS in file else _LIBRARIES if any(part in file for part in _LIBRARIES) else None


def line_text(file: str, line: int | str) -> str:
    """Return a line as a text: its cell or the name of its file, and its number."""
    return f"{results.cell_name(file) or file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
