"""Submodule calls and source lines of the nodes of an export, by the metadata or names of torch's exporters."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onnx_nb.analysis.errors import AlignmentError

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.pytorch.record import Recording
import sys
from typing import TYPE_CHECKING

from onnx_nb.analysis import results

if TYPE_CHECKING:
    import onnx

Scope: TypeAlias = tuple[str, ...]
"""Names of the submodules around a call or a node, outermost first."""
_QUOTED: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")


class ModuleScopes:
    """The scope of each recorded call and of each node of the main graph; a call and its nodes have the same scope."""

    def __init__(self, recording: Recording, graph: Graph) -> None:
        self._graph = graph
        self._calls = recording.calls
        written = [_name_scopes(node) for node in graph.model.proto.graph.node]
        self._by_path = any(scopes is not None for scopes in written)
        """Whether metadata holds the paths; else the TorchScript exporter wrote names into the nodes' names."""
        if not self._by_path:
            names = graph.names
            written = [names[node].split("/")[1:-1] if "/" in names[node] else None for node in range(graph.main_count)]
        self._written = written
        self.of_call = self._scopes_of_calls()
        """Scope of each call."""
        known = {scope[:depth] for scope in self.of_call for depth in range(len(scope) + 1)}
        longest = functools.cache(functools.partial(self._longest_known, known=frozenset(known)))
        found = [None if names is None else longest(tuple(names)) for names in written]
        if len(known) > 1 and len(found) > 1 and not any(found):
            message = (
                f"no node of {graph.model.name} bears the name of a submodule of {recording.cls}: it is the export of "
                f"another module, or a tool removed the names."
            )
            advice = "Align the export itself, save the alignment, and pass it as alignment=."
            raise AlignmentError(message, advice=advice)
        self.guessed = [scope is None for scope in found]
        """Whether the exporter wrote no scope, for each node."""
        self.of_node = self._completed(found)
        """Scope of each node; a node without one has what its neighbors have in common."""

    def label(self, node: int, depth: int) -> str | None:
        """Return the name of a node's scope as the TorchScript exporter wrote it: it numbers repeated calls."""
        written = self._written[node]
        return None if self._by_path or written is None or len(written) < depth else written[depth - 1]

    def _scopes_of_calls(self) -> list[Scope]:
        """Return the scope of each call: the paths around it, or the names that the TorchScript exporter uses."""
        scopes: list[Scope] = []
        for call in self._calls:
            name = call.path if self._by_path else _torchscript_name(call.path)
            scopes.append((*scopes[call.parent], name) if call.parent >= 0 else ())
        if self._by_path:
            self._canonical = {name: call.path for call in self._calls for name in (call.path, *call.aliases)}
            return scopes
        self._times = Counter((scope[:-1], scope[-1]) for scope in scopes if scope)
        """Scope and name → number of calls."""
        return [self._merged(scope) for scope in scopes]

    def _merged(self, scope: Scope) -> Scope:
        """Return one scope for names that cannot be told apart: "c_1" is a second call of "c", or a module "c_1"."""
        merged: list[str] = []
        above: Scope = ()
        for name in scope:
            shorter = list(_without_numbers(name))
            repeated = [each for each in shorter[1:] if self._times[above, each] > 1]
            named = [each for each in shorter if self._times[above, each]]
            choice = repeated[-1] if repeated else named[0] if named else name
            merged.append(choice)
            above = (*above, name if self._times[above, name] else choice)
        return tuple(merged)

    def _longest_known(self, names: tuple[str, ...], known: frozenset[Scope]) -> Scope:
        """Return the longest beginning of a node's scope that some call has."""
        if self._by_path:
            paths = [re.sub(r"@\d+$", "", path) for path in names]
            scope = tuple(self._canonical[path] for path in paths if path and path in self._canonical)
        else:
            scope = self._merged(names)
        while scope not in known:
            scope = scope[:-1]
        return scope

    def _completed(self, found: Sequence[Scope | None]) -> list[Scope]:
        graph = self._graph
        scopes = [scope or () for scope in found]
        for node in graph.order.tolist():
            if found[node] is None:
                makers = [int(graph.producer[value]) for value in graph.node_inputs(node).tolist() if value >= 0]
                near = [found[maker] for maker in makers if maker >= 0]
                for value in graph.node_outputs(node).tolist():
                    readers = graph.consumers(value).tolist() if value >= 0 else []
                    near += [found[reader] for reader in readers if reader < graph.main_count]
                some = [scope for scope in near if scope is not None]
                scopes[node] = functools.reduce(_common, some) if some else ()
        return scopes


def _common(a: Scope, b: Scope) -> Scope:
    return tuple(name for name, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _torchscript_name(path: str) -> str:
    """Return the name of a submodule in the TorchScript exporter: "layer.0" for "encoder.layer.0"."""
    names = path.split(".")
    for place in range(len(names) - 1, -1, -1):
        if not names[place].isnumeric():
            return ".".join(names[place:])
    return path


def _without_numbers(name: str) -> Iterator[str]:
    """Yield a name with fewer and fewer numbers at its end: "c_1_1", "c_1", "c"."""
    yield name
    while (found := re.fullmatch(r"(.+)_\d+", name)) is not None:
        name = found[1]
        yield name


def _name_scopes(node: Any) -> list[str] | None:
    """Return the module paths around a node in the metadata of torch's default exporter, without the operation."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            return [a or b for a, b in _QUOTED.findall(entry.value)][:-1]
    return None


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
    return f"{results.cell_name(file) or file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
