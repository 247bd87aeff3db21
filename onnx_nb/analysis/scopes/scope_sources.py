"""Scopes that a file names: in the exporter's metadata, in node names, in weight names."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Ints

from onnx_nb.analysis.scopes.structure import FLAT_LIMIT, Part

DEPTH_LIMIT = 24
"""Depth of scopes; deeper names join the scope at this depth."""

OPERATION = 6
"""Nodes up to which a torch operator's call is no scope: the exporter names every call."""

Source = tuple[list[str], Mapping[str, str]]
"""The path of each item, and the class of each path."""


def metadata(part: Part) -> Source | None:
    """Read the nested scopes and their classes from ``metadata_props`` of torch's exporter."""
    nodes = part.graph.nodes if any(n.metadata_props for n in _sample(part.graph, part.items)) else []
    if not nodes:
        return None
    classes: dict[str, str] = {}
    seen: dict[tuple[str, str], tuple[str, str] | None] = {}
    places: list[tuple[str, str] | None] = []
    for item in part.items.tolist():
        entries = {entry.key: entry.value for entry in nodes[item].metadata_props}
        key = entries.get("pkg.torch.onnx.name_scopes", ""), entries.get("pkg.torch.onnx.class_hierarchy", "")
        if key not in seen:
            seen[key] = _torch_path(*key, classes)
        places.append(seen[key])
    size = Counter(places)
    paths = [
        None if place is None else "/".join(filter(None, place)) if size[place] > OPERATION else place[0]
        for place in places
    ]
    found = _spread(part, paths, 0.5)
    return None if found is None else (found, classes)


def _torch_path(scopes: str, hierarchy: str, classes: dict[str, str]) -> tuple[str, str] | None:
    """Turn "['', 'encoder', 'encoder.layer.0', 'linear']" into "encoder/layer.0" and the operator's "linear"."""
    names = [a or b for a, b in _QUOTED.findall(scopes)]
    kinds = [a or b for a, b in _QUOTED.findall(hierarchy)]
    if not names:
        return None
    above, path = "", ""
    for name, kind in itertools.zip_longest(names[: DEPTH_LIMIT + 1], kinds[: len(names)], fillvalue=""):
        if not name or name.startswith("_empty_nn_module_stack"):
            continue
        short = name[len(above) + 1 :] if above and name.startswith(f"{above}.") else name
        short = short.replace("/", ".")
        if kind.startswith(_OPERATORS):
            return path, short
        path = f"{path}/{short}" if path else short
        if path not in classes:
            classes[path] = kind.rpartition(".")[2]
        above = name
    return path, ""


_OPERATORS = ("aten.", "prims.", "torchvision.", "quantized_decomposed.")
"""Start of the class of a scope that is a torch operator."""
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
"""An item of a list that the exporter wrote with Python's repr."""


def _sample(graph: Graph, items: Ints) -> Iterable[onnx.NodeProto]:
    nodes = graph.model.proto.graph.node
    chosen = items[:: max(1, len(items) // 64)].tolist()
    return [nodes[i] if i < graph.main_count else graph.nodes[i] for i in chosen]


def node_names(part: Part) -> Source | None:
    """Read the scopes from node names: "/encoder/layer.0/MatMul"."""
    names, start = part.graph.names, len(part.prefix)
    paths: list[str | None] = [
        name[start:].rpartition("/")[0] if "/" in (name := names[item])[start:] else None
        for item in part.items.tolist()
    ]
    found = _spread(part, paths, 0.5)
    return None if found is None else (found, {})


def weight_names(part: Part) -> Source | None:
    """Read the scopes from weight names: "encoder.layer.0.dense.weight"."""
    if part.count <= FLAT_LIMIT:
        return None
    paths = [next((path for name in names if (path := _weight_path(name))), None) for names in part.constants]
    found = _spread(part, paths, 0.1, follow=True)
    return None if found is None else (found, {})


@functools.lru_cache(maxsize=1 << 16)
def _weight_path(name: str) -> str:
    if name.startswith("onnx::") or len(name) > 500:  # names that a tool made up
        return ""
    if "/" in name:
        return name.rpartition("/")[0]
    parts: list[str] = []
    for each in name.split(".")[:-1]:
        if each.isdigit() and parts:
            parts[-1] += f".{each}"
        elif each:
            parts.append(each)
    return "/".join(parts[:DEPTH_LIMIT])


def _spread(part: Part, paths: list[str | None], share: float, *, follow: bool = False) -> list[str] | None:
    """Assign nodes without a path the scope that their neighbors share; None if too few nodes have a path.

    With ``follow`` a node may also join all the nodes that it reads from, as the Relu behind a Conv.
    """
    missing = paths.count(None)
    if part.count - missing < share * part.count:
        return None
    if not missing:
        return [path or "" for path in paths]

    below = list(paths)
    for item in range(part.count - 1, -1, -1):
        if below[item] is None:
            below[item] = _deepest(below[other] for other in part.after[item])
    for item, path in enumerate(paths):
        if path is None:
            above = [found for other in part.before[item] if (found := paths[other]) is not None]
            shared = functools.reduce(_common_path, above) if above and follow else ""
            lead = _deepest(above)
            through = _common_path(lead, below[item] or "") if lead else (below[item] or "").rpartition("/")[0]
            paths[item] = max(shared, through, key=_length)
    return [path or "" for path in paths]


def _length(path: str) -> int:
    return path.count("/") + bool(path)


def _deepest(paths: Iterable[str | None]) -> str | None:
    return max((path for path in paths if path is not None), key=_length, default=None)


@functools.lru_cache(maxsize=1 << 14)
def _common_path(a: str, b: str) -> str:
    shared = []
    for left, right in zip(a.split("/"), b.split("/"), strict=False):
        if left != right:
            break
        shared.append(left)
    return "/".join(shared)


def gathered(paths: list[str]) -> list[str]:
    """Move each item that has its path to itself one scope up: most modules are a single node, not worth a scope."""
    count = Counter(paths)
    deep = {path: tidy(path) for path in count if path.count("/") > DEPTH_LIMIT}
    if deep:
        paths = [deep.get(path, path) for path in paths]
        count = Counter(paths)
    above: dict[str, str] = {}
    new: Iterable[str] = list(count)
    while new:
        above.update(zip(new, [path.rpartition("/")[0] for path in new], strict=True))
        inner = set(above.values())
        new = list(inner.difference(above))
    moved = {path: above[path] for path, times in count.items() if times == 1 and path not in inner}
    return [moved.get(path, path) for path in paths]


def tidy(path: str) -> str:
    """Return a path without empty parts, of limited depth."""
    if path.count("/") < DEPTH_LIMIT and not path.startswith("/") and "//" not in path:
        return path
    return "/".join([part for part in path.split("/") if part][:DEPTH_LIMIT])
