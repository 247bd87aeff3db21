"""What a panel shows of a simplification: what became of each node, and which nodes each change took and made.

Nodes keep their ids from the original to the result, and a `Change` names the ids that it took and made, so that all
of this is looked up.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnx_nb.analysis.compare.counterparts import FOLDED, ONLY, SAME, Counterparts, counterparts, inverse
from onnx_nb.analysis.formatting import shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.simplify.rules import rules
from onnx_nb.analysis.simplify.symbolic_dims import NodeIds, identify
from onnx_nb.analysis.view.columns import Columns
from onnx_nb.analysis.view.diff_columns import side_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.model.protofields import Ints
    from onnx_nb.analysis.simplify.simplify import Simplification
    from onnx_nb.analysis.simplify.symbolic_dims import Change

SHOWN: Final = 64
"""Nodes of a change shown on each side at most."""
LONGEST: Final = 200
"""Characters of a name or reason shown in a list at most."""
LISTED: Final = 1000
"""Nodes that were left, and outputs that differ, listed at most."""
KINDS: Final = 4
"""Operators of a change named at most."""

Target = int
"""A node, or −1 − v for the value v."""


@dataclass(frozen=True, eq=False)
class Provenance:
    """Correspondence between a model and the model derived from it by changes."""

    before: Model
    after: Model
    changes: tuple[Change, ...]
    sides: tuple[Counterparts, Counterparts]
    """State of each node and value: SAME in both models, ONLY in this one (taken or made), or FOLDED."""
    targets: tuple[list[list[Target]], list[list[Target]]]
    """For each change what to show in either graph, at most `SHOWN`: what it took or made, or else where it was."""
    change_of: tuple[Ints, Ints]
    """For each node of either graph the change that took, folded or made it; −1 for none."""

    def columns(self) -> Columns:
        """Return everything in one buffer for the browser; see ``frontend/protocol/simplification.ts``."""
        arrays: dict[str, NDArray[Any]] = side_columns(self.sides)
        for at, (found, change) in enumerate(zip(self.targets, self.change_of, strict=True)):
            arrays[f"targets_{at}"] = np.asarray([target for each in found for target in each], np.int32)
            arrays[f"targets_end_{at}"] = np.cumsum([0, *map(len, found)]).astype(np.int32)
            arrays[f"change_{at}"] = change
        known = rules()
        counts = Counter(change.rule for change in self.changes)
        names = {rule: row for row, rule in enumerate(counts)}
        arrays["rule"] = np.asarray([names[change.rule] for change in self.changes], np.uint32)
        texts = {
            "what": self._what(),
            "why": [shortened(change.why, LONGEST) for change in self.changes],
            "key": [change.key.partition(": ")[2] for change in self.changes],
        }
        meta: dict[str, Any] = {
            "changes": [],
            "total": 0,
            "counts": {},
            "message": "",
            "made": "new",
            "rules": [[rule, known.get(rule, ""), count] for rule, count in counts.items()],
            "nodes": [
                [len(side.node_state), *(int(np.sum(side.node_state == state)) for state in (ONLY, FOLDED))]
                for side in self.sides
            ],
        }
        return Columns.of(arrays, texts, meta)

    def _what(self) -> list[str]:
        """Describe each change by operators: "Conv + BatchNormalization → Conv"."""
        graphs = Graph.opened(self.before), Graph.opened(self.after)
        operators = [[graph.operators[index][0] for index in graph.op_index.tolist()] for graph in graphs]
        found = []
        for number, change in enumerate(self.changes):
            taken, made = (
                [
                    operators[at][target]
                    for target in self.targets[at][number]
                    if target >= 0 and self.change_of[at][target] >= 0
                ]
                for at in (0, 1)
            )
            if not change.taken:
                taken = []
            if not change.after:
                made = []
            end = _ENDS.get(change.rule, "nothing")
            begin = "nothing" if made else "a constant"
            found.append(f"{_listed(taken) or begin} → {_listed(made) or end}")
        return found

    def __repr__(self) -> str:
        return f"Provenance({len(self.changes)} changes from {self.before!r} to {self.after!r})"


_FOLDING: Final = frozenset({"fold_constants", "fold_shapes", "fold_reshape", "extract_constants"})
"""Rules that leave a constant."""
_ENDS: Final = {**dict.fromkeys(_FOLDING, "a constant"), "eliminate_duplicate_initializer": "an equal one"}


def provenance(found: Simplification, step: int | None = None) -> Provenance:
    """Return what became of each node in a simplification, or in one of its steps, counted from 1."""
    if step is None:
        models, ids, changes = (found.original, found.model), found.node_ids, found.changes
    else:
        one, other = found.steps[step - 1], found.steps[step]
        models, ids, changes = (
            (one.model, other.model),
            (one.node_ids, other.node_ids),
            found.changes[one.done : other.done],
        )
    return _Lookup(models, ids, changes, found.mapping).provenance()


def account(found: Simplification) -> dict[str, Any]:
    """Return what a panel shows of a simplification besides its changes, as JSON: sizes, operators, what was left."""
    names = sorted({*found.before, *found.after})
    left = sorted(found.left, key=lambda each: -each.nbytes)
    return {
        "name": shortened(found.original.name, LONGEST),
        "verdict": found.verdict,
        "said": shortened(found.verification, 2000),
        "call": found.call(),
        "nodes": [sum(found.before.values()), sum(found.after.values())],
        "bytes": [model.nbytes for model in (found.original, found.model)],
        "operators": [[name, found.before.get(name, 0), found.after.get(name, 0)] for name in names],
        "left": [
            [shortened(each.node, LONGEST), each.op_type, each.nbytes, shortened(each.why, LONGEST)]
            for each in left[:LISTED]
        ],
        "left_count": len(left),
        "skipped": list(found.options.get("skip", ())),
        "outputs": [
            [shortened(name, LONGEST), f"{errors.max_abs:.3g}", errors.outside, errors.count]
            for name, errors in list(found.differences.items())[:LISTED]
        ],
        "steps": [[step.name, len(step.model.proto.graph.node), step.done] for step in found.steps],
        "path": _file_name(found.original),
    }


def _file_name(model: Model) -> str:
    """Return a file name for the simplified model."""
    name = "model.onnx" if model.path is None else model.path.name
    stem, _, end = name.rpartition(".")
    return f"{stem or name}.simplified.{end if stem else 'onnx'}"


class _Lookup:
    """Looks up the nodes of two models by the ids that changes name."""

    def __init__(
        self,
        models: tuple[Model, Model],
        ids: tuple[NodeIds, NodeIds],
        changes: tuple[Change, ...],
        mapping: Mapping[str, str | None],
    ) -> None:
        self.models, self.changes, self.mapping = models, changes, mapping
        self.graphs = one, other = Graph.opened(models[0]), Graph.opened(models[1])
        keys = identify(one, ids[0]), identify(other, ids[1])
        there = {key: m for m, key in enumerate(keys[1]) if key[0] >= 0}
        self.node = np.asarray([there.get(key, -1) for key in keys[0]], np.int32)
        self.value = self._counterparts_of_values()
        mentioned = {id_ for change in changes for id_ in (*change.taken, *change.made, *change.rewired)}
        # a node of a function is in the opened graph once for each call
        self.nodes: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
        for nodes, listed in zip(self.nodes, keys, strict=True):
            for n, (id_, _) in enumerate(listed):
                if id_ in mentioned:
                    nodes.setdefault(id_, []).append(n)

    def provenance(self) -> Provenance:
        one, other = self.graphs
        node = self.node
        back = inverse(node, other.node_count)
        state = [np.where(each < 0, ONLY, SAME).astype(np.uint8) for each in (node, back)]
        change_of = np.full(one.node_count, -1, np.int32), np.full(other.node_count, -1, np.int32)
        for number, change in enumerate(self.changes):
            for n in self._listed(0, change.taken):
                if node[n] < 0:
                    change_of[0][n] = number
                    state[0][n] = FOLDED if change.rule in _FOLDING else ONLY
            change_of[1][self._listed(1, change.made)] = number
        left, right = self._left(), self._right()
        made = [[m for m in each if m >= 0 and back[m] < 0] for each in right]
        for number, (change, targets) in enumerate(zip(self.changes, right, strict=True)):
            for m in targets if change.rule in _FOLDING else ():
                if m >= 0 and state[1][m] == SAME and not other.folded[m]:
                    state[1][m], change_of[1][m] = FOLDED, number
        # the counterpart of a node that was taken is a node that was made of it, if possible one of its name
        for taken, new in zip(left, made, strict=True):
            for n in taken if new else ():
                if n >= 0 and node[n] < 0:
                    node[n] = next((m for m in new if one.names[n] and one.names[n] == other.names[m]), new[-1])
        values = self.value, inverse(self.value, other.value_count)
        value_state = [np.where(each < 0, ONLY, SAME).astype(np.uint8) for each in values]
        found = counterparts(
            self.graphs,
            (node, inverse(node, other.node_count)),
            values,
            ((state[0], value_state[0]), (state[1], value_state[1])),
        )
        return Provenance(*self.models, self.changes, found, (left, right), change_of)

    def _listed(self, side: int, ids: Iterable[int]) -> list[int]:
        """Return the nodes of a graph with some ids."""
        return [n for id_ in ids for n in self.nodes[side].get(id_, ())]

    def _left(self) -> list[list[Target]]:
        """Return what each change is about in the first graph: nodes that it took, by way of earlier changes too."""
        maker: dict[int, int] = {}
        found: list[list[Target]] = []
        for number, change in enumerate(self.changes):

            def resolved(ids: Iterable[int]) -> list[Target]:
                earlier = (found[maker[id_]] for id_ in ids if id_ in maker)
                return [*self._listed(0, ids), *itertools.chain.from_iterable(earlier)]

            taken = sorted({n for n in resolved(change.taken) if n >= 0 and self.node[n] < 0})
            found.append((taken or self._tensor(0, change) or resolved(change.rewired))[:SHOWN])
            maker.update(dict.fromkeys(change.made, number))
        return found

    def _right(self) -> list[list[Target]]:
        """Return what each change is about in the second graph: nodes made, or tensors that replace what was taken."""
        taker: dict[int, int] = {}
        found: list[list[Target]] = [[] for _ in self.changes]
        for number in reversed(range(len(self.changes))):
            change = self.changes[number]

            def resolved(ids: Iterable[int]) -> list[Target]:
                later = (found[taker[id_]] for id_ in ids if id_ in taker)
                return list(dict.fromkeys([*self._listed(1, ids), *itertools.chain.from_iterable(later)]))

            made = resolved(change.made)
            replaced = [] if change.rule in _FOLDING else self._replacing(change)
            found[number] = (made or replaced or resolved(change.rewired) or self._tensor(1, change))[:SHOWN]
            taker.update(dict.fromkeys(change.taken, number))
        return found

    def _replacing(self, change: Change) -> list[Target]:
        """Return the tensors that replace the outputs of the nodes that a change took, or the tensor it is about."""
        graph = self.graphs[0]
        values = [v for n in self._listed(0, change.taken) for v in graph.node_outputs(n).tolist() if v >= 0]
        values = values or [-1 - target for target in self._tensor(0, change)]
        return list(dict.fromkeys(-1 - int(self.value[v]) for v in values if self.value[v] >= 0))

    def _tensor(self, side: int, change: Change) -> list[Target]:
        """Return the tensor where a change happened, if a graph has it."""
        value = self._values[side].get(change.key.partition(": ")[2], -1)
        return [-1 - value] if value >= 0 else []

    def _counterparts_of_values(self) -> Ints:
        """Return for each value of the first graph the equal value of the second: by name, or as `mapping` says."""
        one, _other = self.graphs
        self._values = [{name: v for v, name in reversed(list(enumerate(g.value_names)))} for g in self.graphs]
        same = self._values[1]
        found = [same.get(name, -1) for name in one.value_names]
        for value in np.flatnonzero((np.asarray(found, np.int32) < 0) & (one.value_subgraph == 0)).tolist():
            found[value] = same.get(self.mapping.get(one.value_names[value]) or "", -1)
        return np.asarray(found, np.int32)


def _listed(operators: Sequence[str]) -> str:
    """Return operators as text, with the number of equal ones."""
    counts = Counter(operators)
    parts = [name if count == 1 else f"{count} {name}" for name, count in list(counts.items())[:KINDS]]
    rest = sum(counts.values()) - sum(list(counts.values())[:KINDS])
    return " + ".join([*parts, *([f"{rest} more"] if rest else [])])
