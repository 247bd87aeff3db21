"""Which nodes of an export belong to which submodules, by what torch's exporters wrote: metadata, or names of nodes."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.errors import AlignmentError

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.pytorch.record import Recording

Key = tuple[str, ...]
"""What the calls of a submodule have in common with their nodes: the submodules around them, outermost first."""


class Keys:
    """Ties nodes to submodules by what the exporters wrote."""

    def __init__(self, recording: Recording, graph: Graph) -> None:
        self._graph = graph
        self._calls = recording.calls
        labels = [_scopes_of(node) for node in graph.model.proto.graph.node]
        paths = sum(isinstance(label, list) for label in labels)
        self._by_path = paths > 0
        if not paths:
            names = graph.names
            labels = [names[node].split("/")[1:-1] if "/" in names[node] else None for node in range(graph.main_count)]
        self._labels = labels
        self.of_call = self._keys_of_calls()
        known = {key[:depth] for key in self.of_call for depth in range(len(key) + 1)}
        cache: dict[Key, Key] = {}
        found: list[Key | None] = []
        for label in labels:
            raw = None if label is None else tuple(label)
            if raw is not None and raw not in cache:
                cache[raw] = self._key(raw, known)
            found.append(None if raw is None else cache[raw])
        self._check(recording, found, known)
        self.guessed = [key is None for key in found]
        self.of_node = self._spread(found)

    def label(self, node: int, depth: int) -> str | None:
        """Return the name of a node's scope as the TorchScript exporter wrote it: it counts repeated calls."""
        label = self._labels[node]
        return None if self._by_path or label is None or len(label) < depth else label[depth - 1]

    def _keys_of_calls(self) -> list[Key]:
        """Return the key of each call: the paths around it, or what the TorchScript exporter makes of them."""
        keys: list[Key] = []
        if self._by_path:
            self._canonical = {name: call.path for call in self._calls for name in (call.path, *call.aliases)}
            for call in self._calls:
                keys.append((*keys[call.parent], call.path) if call.parent >= 0 else ())
            return keys
        times: dict[tuple[Key, str], int] = {}
        raw: list[Key] = []
        for call in self._calls:
            above = raw[call.parent] if call.parent >= 0 else ()
            raw.append((*above, _segment(call.path)) if call.parent >= 0 else ())
            if call.parent >= 0:
                times[above, raw[-1][-1]] = times.get((above, raw[-1][-1]), 0) + 1
        self._times = times
        return [self._merged(key) for key in raw]

    def _merged(self, key: Key) -> Key:
        """Return one key for names easily confused: a second call of "c" is written "c_1", as is a module "c_1"."""
        merged: list[str] = []
        above: Key = ()
        for name in key:
            known = (above, name) in self._times
            shorter = list(_shortened(name))
            repeated = [one for one in shorter[1:] if self._times.get((above, one), 0) > 1]
            named = [one for one in shorter if (above, one) in self._times]
            choice = repeated[-1] if repeated else named[0] if named else name
            merged.append(choice)
            above = (*above, name if known else choice)
        return tuple(merged)

    def _key(self, raw: Key, known: set[Key]) -> Key:
        """Return the key of a node's scope: the longest beginning that some call has."""
        if self._by_path:
            paths = [re.sub(r"@\d+$", "", path) for path in raw]
            key = tuple(self._canonical[path] for path in paths if path and path in self._canonical)
        else:
            key = self._merged(raw)
        while key not in known:
            key = key[:-1]
        return key

    def _check(self, recording: Recording, found: Sequence[Key | None], known: set[Key]) -> None:
        placed = sum(key is not None and len(key) > 0 for key in found)
        if len(known) > 1 and not placed and len(found) > 1:
            message = (
                f"no node of {self._graph.model.name} bears the name of a submodule of {recording.cls}: it is the "
                f"export of another module, or a tool removed the names."
            )
            advice = "Align the export itself, save the alignment, and give it as alignment=."
            raise AlignmentError(message, advice=advice)

    def _spread(self, found: list[Key | None]) -> list[Key]:
        """Return nodes without a scope what their neighbors have in common."""
        graph = self._graph
        keys = list(found)
        for node in graph.order.tolist():
            if keys[node] is None:
                read = graph.node_inputs(node).tolist()
                makers = [int(graph.producer[value]) for value in read if value >= 0]
                near = [found[maker] for maker in makers if maker >= 0]
                for value in graph.node_outputs(node).tolist():
                    readers = graph.consumers(value).tolist() if value >= 0 else []
                    near += [found[reader] for reader in readers if reader < graph.main_count]
                some = [key for key in near if key is not None]
                keys[node] = functools.reduce(_common, some) if some else ()
        return [key or () for key in keys]


def _common(a: Key, b: Key) -> Key:
    shared = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return tuple(one for one, _ in shared)


def _segment(path: str) -> str:
    """Return what the TorchScript exporter calls a submodule: "layer.0" for "encoder.layer.0"."""
    atoms = path.split(".")
    for place in range(len(atoms) - 1, -1, -1):
        if not atoms[place].isnumeric():
            return ".".join(atoms[place:])
    return path


def _shortened(name: str) -> Iterable[str]:
    """Return a name with fewer and fewer counts at its end: "c_1_1", "c_1", "c"."""
    yield name
    while (found := re.fullmatch(r"(.+)_\d+", name)) is not None:
        name = found[1]
        yield name


def _scopes_of(node: Any) -> list[str] | None:
    """Read the module paths around a node from what torch's default exporter wrote; the last one is the operation."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            return [a or b for a, b in _QUOTED.findall(entry.value)][:-1]
    return None


_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
