"""Differences as Mermaid, which GitHub draws inside Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnx_nb.analysis.formatting import printable, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.match.diff import CHANGED, ONLY

if TYPE_CHECKING:
    from onnx_nb.analysis.match.diff import Diff

BOXES: Final = 40
"""Maximum number of changed nodes in a picture; Mermaid's own layout is slow and illegible beyond."""
_CLASSES: Final = (
    "classDef added fill:#dcf5e3,stroke:#1a7f37,color:#0b3d1a",
    "classDef removed fill:#fde3e1,stroke:#cf222e,color:#5c0f14",
    "classDef changed fill:#fff3cd,stroke:#9a6700,color:#4d3300",
    "classDef same fill:#f3f4f6,stroke:#8c959f,color:#24292f",
)


def of_diff(diff: Diff) -> str:
    r"""Return the changed nodes of both models with the nodes next to them; empty if no node changed.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.match.diff import diff
    >>> head = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] z) '
    >>> one, other = (onnx.parser.parse_model(head + body) for body in (
    ...     "{ y = Neg(x)  z = Abs(y) }", "{ a = Neg(x)  b = Relu(a)  z = Abs(b) }"))
    >>> print(*of_diff(diff(one, other)).splitlines()[:6], sep="\n")
    flowchart TB
      b0["Neg"]:::same
      b1["Relu"]:::added
      b2["Abs"]:::same
      b0 --> b1
      b1 --> b2
    """
    graphs = Graph.opened(diff.reference), Graph.opened(diff.candidate)
    sides = diff.sides
    # the candidate's nodes, then those that only the reference has; a node of both is drawn once
    states = {(1, node): "added" if state == ONLY else "changed" for node, state in _states(sides[1].node_state)}
    states |= {(0, node): "removed" for node, state in _states(sides[0].node_state) if state == ONLY}
    states = dict(list(states.items())[:BOXES])

    def box(side: int, node: int) -> tuple[int, int]:
        there = int(sides[0].node[node]) if side == 0 else -1
        return (1, there) if there >= 0 else (side, node)

    edges: dict[tuple[tuple[int, int], tuple[int, int]], None] = {}
    for side, node in list(states):
        graph = graphs[side]
        for value in graph.node_inputs(node).tolist():
            maker = int(graph.producer[value]) if value >= 0 else -1
            if maker >= 0 and not graph.folded[maker]:
                edges[box(side, maker), (side, node)] = None
        for value in graph.node_outputs(node).tolist():
            readers = graph.consumers(value).tolist() if value >= 0 else []
            edges.update(dict.fromkeys(((side, node), box(side, reader)) for reader in readers[:4]))
    boxes = dict.fromkeys([*states, *(part for edge in edges for part in edge)])
    boxes = dict.fromkeys(sorted(boxes, key=lambda at: _rank(graphs[at[0]], at[1])))
    numbers = {part: number for number, part in enumerate(boxes)}
    if not states:
        return ""
    lines = ["flowchart TB"]
    lines += [f'  b{numbers[at]}["{_node(graphs[at[0]], at[1])}"]:::{states.get(at, "same")}' for at in boxes]
    lines += [f"  b{numbers[one]} --> b{numbers[other]}" for one, other in edges]
    return "\n".join([*lines, *(f"  {part}" for part in _CLASSES)])


def _rank(graph: Graph, node: int) -> int:
    """Return the place of a node in topological order; nodes of bodies follow."""
    return int(graph.rank[node]) if node < graph.main_count else node


def _states(states: Any) -> list[tuple[int, int]]:
    nodes = np.flatnonzero((states == ONLY) | (states == CHANGED)).tolist()
    return [(node, int(states[node])) for node in nodes]


def _node(graph: Graph, node: int) -> str:
    op, name = graph.operators[graph.op_index[node]][0], graph.names[node].strip("/")
    # exporters call a node by its place and its operator
    place = name.removesuffix(op).rstrip("/") or name
    return _text(op) + (f"<br/>{_text(place if len(place) <= 32 else f'…{place[-31:]}')}" if place else "")


def _text(text: str) -> str:
    """Return text that Mermaid does not read as its own language."""
    plain = shortened(printable(text), 60)
    return "".join(letter if letter.isalnum() or letter in " _.-/" else f"#{ord(letter)};" for letter in plain)
