"""What became of each node of a simplified model, and which nodes each change took and made: what two graphs show.

A `Change` names the tensors of the nodes that it took, made and renamed. Going through the changes in order, and
keeping for each tensor who makes it, tells of every node of the result which one of the original it is, or which change
made it; and of every change what it took of the original, also by way of changes before it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnx_nb.analysis.compare.diff import FOLDED, ONLY, SAME, Side, inverse, sides
from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.graph.graph import INITIALIZER, Graph
from onnx_nb.analysis.simplify.rule_names import rules
from onnx_nb.analysis.view.capture_table import numbered
from onnx_nb.analysis.view.diff_columns import side_columns
from onnx_nb.analysis.view.graph_columns import Columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.model.protofields import Ints
    from onnx_nb.analysis.simplify.editor import Change
    from onnx_nb.analysis.simplify.simplify import Simplification

SHOWN: Final = 64
"""So many nodes of a change are shown on each side."""
FAR: Final = 64
"""So many nodes around one that is gone are looked at to find where it was."""
LONGEST: Final = 200
"""Characters of a name or reason that are shown in a list."""
LISTED: Final = 1000
"""At most so many of what was left are listed."""
KINDS: Final = 4
"""So many operators of a change are named."""

Target = int
"""A node, or −1 − v for the value v."""


@dataclass(frozen=True, eq=False)
class Provenance:
    """How two models belong together of which changes made the second of the first."""

    before: Model
    after: Model
    changes: tuple[Change, ...]
    sides: tuple[Side, Side]
    """What each node and value is to the other model: SAME, ONLY for what was taken or made, FOLDED."""
    targets: tuple[list[list[Target]], list[list[Target]]]
    """For each change what it is about in either graph, at most `SHOWN`: what it took and made, else where it was."""
    change_of: tuple[Ints, Ints]
    """For each node of either graph the change that took, folded or made it; −1 for none."""

    def columns(self) -> Columns:
        """Return everything in one buffer for the browser; see the module ``simplification.ts``."""
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
        for name, column in texts.items():
            meta[f"{name}s"], places = numbered(column)
            arrays[name] = np.asarray(places, np.uint32)
        return Columns(arrays, meta)

    def _what(self) -> list[str]:
        """Describe, of each change what became of what, by operators: "Conv + BatchNormalization → Conv"."""
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
            if not change.gone:
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


def provenance(
    before: Model, after: Model, changes: Iterable[Change], mapping: Mapping[str, str | None] | None = None
) -> Provenance:
    """Tell which node of one model is which of the other, and what each change took and made.

    Parameters
    ----------
    before, after
        Two models; the changes made the second of the first.
    changes
        In order, as `Simplification.changes` has them.
    mapping
        What stands for tensors that are gone, as `Simplification.mapping`.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.simplify.simplify import simplify
    >>> s = simplify(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Identity(x)  b = Neg(a)  z = Exp(b) }'''))
    >>> found = provenance(s.original, s.model, s.changes, s.mapping)
    >>> found.sides[0].node.tolist(), found.sides[0].node_state.tolist(), found.targets
    ([-1, 0, 1], [1, 0, 0], ([[0]], [[-1]]))
    """
    return _Trail(before, after, tuple(changes), mapping or {}).provenance()


def of_simplification(found: Simplification, step: int | None = None) -> Provenance:
    """Return the `provenance` of a whole simplification, or of one of its steps: what it did to the model before it."""
    if step is None:
        return provenance(found.original, found.model, found.changes, found.mapping)
    one, other = found.steps[step - 1], found.steps[step]
    return provenance(one.model, other.model, found.changes[one.done : other.done])


def account(found: Simplification) -> dict[str, Any]:
    """Return what is said of a simplification besides its changes, as plain JSON: sizes, operators, what was left."""
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
        "path": _beside(found.original),
    }


def _beside(model: Model) -> str:
    """Propose where to write the simplified model."""
    name = "model.onnx" if model.path is None else model.path.name
    stem, _, end = name.rpartition(".")
    return f"{stem or name}.simplified.{end if stem else 'onnx'}"


class _Trail:
    """Goes through the changes."""

    def __init__(
        self, before: Model, after: Model, changes: tuple[Change, ...], mapping: Mapping[str, str | None]
    ) -> None:
        self.before, self.after, self.changes, self.mapping = before, after, changes, mapping
        self.graphs = Graph.opened(before), Graph.opened(after)
        self.labels = _labels(self.graphs[0]), _labels(self.graphs[1])
        self.values = _places(self.labels[0]), _places(self.labels[1])
        self.functions = sorted(
            {f"{plain_text(f.domain)}.{plain_text(f.name)}/" for f in self.graphs[0].functions.values()},
            key=len,
            reverse=True,
        )

    def provenance(self) -> Provenance:
        one, other = self.graphs
        holder, taken, about = self._walk()
        node = np.full(one.node_count, -1, np.int32)
        made_by = self._ends(holder, node)
        back = inverse(node, other.node_count)
        value = self._matched_values()
        state = np.where(node < 0, ONLY, SAME).astype(np.uint8), np.where(back < 0, ONLY, SAME).astype(np.uint8)
        change_of = np.full(one.node_count, -1, np.int32), made_by
        nodes: list[list[int]] = [sorted(n for n in each if node[n] < 0) for each in taken]
        for number, each in enumerate(nodes):
            change_of[0][each] = np.where(change_of[0][each] < 0, number, change_of[0][each])
            if self.changes[number].rule in _FOLDING:
                state[0][each] = FOLDED
        made = self._made(made_by)
        targets: tuple[list[list[Target]], list[list[Target]]] = ([], [])
        for number, change in enumerate(self.changes):
            readers = self._readers(change) if change.rule in _FOLDING and not made[number] else []
            readers = readers or (self._after_gone(nodes[number], node) if not made[number] else [])
            if change.rule in _FOLDING:
                for reader in readers:
                    if state[1][reader] == SAME and not other.folded[reader]:
                        state[1][reader], change_of[1][reader] = FOLDED, number
            left: list[Target] = list(nodes[number]) or self._where(0, change) or list(about[number])
            right: list[Target] = list(made[number]) or self._stands(change) or list(readers) or self._where(1, change)
            targets[0].append((left or self._near(1, right, back))[:SHOWN])
            targets[1].append((right or self._near(0, left, node))[:SHOWN])
        self._pair_made(node, nodes, made)
        there = node, inverse(node, other.node_count)
        values = value, inverse(value, other.value_count)
        value_state = tuple(np.where(each < 0, ONLY, SAME).astype(np.uint8) for each in values)
        found = sides(self.graphs, there, values, ((state[0], value_state[0]), (state[1], value_state[1])))
        return Provenance(self.before, self.after, self.changes, found, targets, change_of)

    def _walk(self) -> tuple[dict[str, tuple[int, ...]], list[list[int]], list[list[int]]]:
        """Return who makes each tensor at the end, a node or −1 − the change that made it; and what each change took.

        The last are nodes of the original of which the tensors came that a change is about.
        """
        graph = self.graphs[0]
        holder: dict[str, tuple[int, ...]] = {}
        for value, node in enumerate(graph.producer.tolist()):
            if node >= 0:
                label = self.labels[0][value]
                holder[label] = (*holder.get(label, ()), node)
        taken: list[list[int]] = []
        about: list[list[int]] = []

        def nodes(makers: Iterable[int]) -> dict[int, None]:
            return {n: None for maker in makers for n in (taken[-1 - maker] if maker < 0 else (maker,))}

        for number, change in enumerate(self.changes):
            where = self._prefix(change)
            about.append(list(nodes(m for name in change.tensors for m in holder.get(where + name, ()))))
            before: dict[int, None] = {}
            for name in change.gone:
                before |= nodes(holder.pop(where + name, ()))
            for old, new in change.renamed:
                if where + old in holder:
                    holder[where + new] = holder.pop(where + old)
            for name in change.tensors:
                holder[where + name] = (-1 - number,)
            taken.append(list(before))
        return holder, taken, about

    def _ends(self, holder: Mapping[str, tuple[int, ...]], node: Ints) -> Ints:
        """Match the nodes that are still what they were; give the changes that made the others."""
        one, other = self.graphs
        made_by = np.full(other.node_count, -1, np.int32)
        for value, m in enumerate(other.producer.tolist()):
            if m < 0:
                continue
            makers = holder.get(self.labels[1][value], ())
            if makers and makers[0] < 0:
                made_by[m] = -1 - makers[0]
                continue
            # of several calls of a function that of the same name
            found = [n for n in makers if node[n] < 0]
            same = next((n for n in found if one.names[n] == other.names[m]), found[0] if found else -1)
            if same >= 0:
                node[same] = m
        return made_by

    def _made(self, made_by: Ints) -> list[list[int]]:
        """Return for each change the nodes of the result that it made, or that were made of what it made."""
        made: list[list[int]] = [[] for _ in self.changes]
        for m in np.flatnonzero(made_by >= 0).tolist():
            made[made_by[m]].append(m)
        maker: dict[str, int] = {}
        follows: list[set[int]] = [set() for _ in self.changes]
        for number, change in enumerate(self.changes):
            where = self._prefix(change)
            for name in change.gone:
                former = maker.pop(where + name, -1)
                if former >= 0:
                    follows[former].add(number)
            for old, new in change.renamed:
                if where + old in maker:
                    maker[where + new] = maker.pop(where + old)
            for name in change.tensors:
                maker[where + name] = number
        for number in range(len(self.changes) - 1, -1, -1):
            later = [m for each in sorted(follows[number]) for m in made[each]]
            made[number] = sorted({*made[number], *later[:SHOWN]})
        return made

    def _pair_made(self, node: Ints, nodes: Sequence[Sequence[int]], made: Sequence[Sequence[int]]) -> None:
        """Let what was made be the counterpart of what it was made of."""
        one, other = self.graphs
        for taken, new in zip(nodes, made, strict=True):
            for n in taken:
                if node[n] < 0 and new:
                    node[n] = next((m for m in new if one.names[n] and one.names[n] == other.names[m]), new[-1])

    def _readers(self, change: Change) -> list[int]:
        """Return the nodes of the result that read what a change made constant."""
        graph, where = self.graphs[1], self._prefix(change)
        found: dict[int, None] = {}
        for name in change.tensors:
            for value in self.values[1].get(where + name, ()):
                if graph.value_kind[value] == INITIALIZER:
                    found.update(dict.fromkeys(graph.consumers(value)[:SHOWN].tolist()))
        return list(found)

    def _after_gone(self, nodes: Sequence[int], node: Ints) -> list[int]:
        """Return the counterparts of what read the nodes that a change took."""
        graph = self.graphs[0]
        found: dict[int, None] = {}
        for n in nodes[:SHOWN]:
            for value in graph.node_outputs(n).tolist():
                readers = graph.consumers(value)[:SHOWN] if value >= 0 else ()
                found.update({int(node[reader]): None for reader in readers if node[reader] >= 0})
        return list(found)

    def _stands(self, change: Change) -> list[Target]:
        """Return the tensors of the result that stand for what a change took away."""
        where = self._prefix(change)
        if change.rule in _FOLDING:
            return []
        found: dict[Target, None] = {}
        for name in change.gone:
            label = where + (name if where else self.mapping.get(name) or name)
            found.update({-1 - value: None for value in self.values[1].get(label, ())})
        for _, name in change.renamed:
            found.update({-1 - value: None for value in self.values[1].get(where + name, ())})
        return list(found)

    def _where(self, side: int, change: Change) -> list[Target]:
        """Return the tensors that a change names, if a graph has them."""
        where = self._prefix(change)
        names = [*change.tensors, change.key.partition(": ")[2].removeprefix(where)]
        found = dict.fromkeys(-1 - value for name in names for value in self.values[side].get(where + name, ()))
        return list(found)

    def _near(self, side: int, targets: Sequence[Target], there: Ints) -> list[Target]:
        """Return the counterpart of what is nearest to nodes that the other graph lacks: after them, or else before."""
        graph = self.graphs[side]

        def after(node: int) -> list[int]:
            return [n for value in graph.node_outputs(node).tolist() if value >= 0 for n in graph.consumers(value)]

        def before(node: int) -> list[int]:
            read = graph.node_inputs(node).tolist()
            return [int(graph.producer[value]) for value in read if value >= 0 and graph.producer[value] >= 0]

        for step in (after, before):
            waiting = [target for target in targets if target >= 0]
            seen = set(waiting)
            # what is found is gone through as well
            for node in itertools.islice(waiting, FAR):
                for other in step(node):
                    if there[other] >= 0:
                        return [int(there[other])]
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
        return []

    def _matched_values(self) -> Ints:
        """Return for each value of the original the one of the result that is equal."""
        one, other = self.graphs
        same = {name: value for value, name in enumerate(other.value_names)}
        found = np.full(one.value_count, -1, np.int32)
        for value, name in enumerate(one.value_names):
            there = same.get(name, -1)
            if there < 0 and one.value_subgraph[value] == 0:
                there = same.get(self.mapping.get(name) or "", -1)
            found[value] = there
        return found

    def _prefix(self, change: Change) -> str:
        """Describe, of which function a change is about: "domain.name/", or nothing for the main graph."""
        if not self.functions:
            return ""
        about = change.key.partition(": ")[2]
        return next((prefix for prefix in self.functions if about.startswith(prefix)), "")


def _labels(graph: Graph) -> list[str]:
    """Name each value as keys of changes do: of a function what it is called there, behind the function's name."""
    if not graph.functions:
        return graph.value_names
    prefixes: dict[int, tuple[str, str]] = {0: ("", "")}
    for number, frame in enumerate(graph.subgraphs[1:], 1):
        called = frame.function
        if called is None:
            prefixes[number] = prefixes[frame.parent]
        else:
            prefixes[number] = f"{plain_text(called.domain)}.{plain_text(called.name)}/", graph.prefix(number)
    return [
        prefixes[frame][0] + name.removeprefix(prefixes[frame][1])
        for name, frame in zip(graph.value_names, graph.value_subgraph.tolist(), strict=True)
    ]


def _places(labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for value, label in enumerate(labels):
        found[label] = (*found[label], value) if label in found else (value,)
    return found


def _listed(operators: Sequence[str]) -> str:
    """Write operators down, equal ones counted."""
    counts = Counter(operators)
    parts = [name if count == 1 else f"{count} {name}" for name, count in list(counts.items())[:KINDS]]
    rest = sum(counts.values()) - sum(list(counts.values())[:KINDS])
    return " + ".join([*parts, *([f"{rest} more"] if rest else [])])
