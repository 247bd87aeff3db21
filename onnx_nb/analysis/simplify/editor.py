"""The graph that rules rewrite: one editor from the first round to the last, with every change on record.

`Editor.model` writes the graph as a model; unchanged parts keep their names, metadata and weights.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import onnx
from onnx import TensorProto

from onnx_nb.analysis.simplify import known_graph
from onnx_nb.analysis.simplify.known_graph import KnownGraph
from onnx_nb.analysis.simplify.symbolic_dims import LEFT_OUT, Array, Change, Constant, Op, kind, kind_of

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.types import ValueType
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.model.storage import Source
    from onnx_nb.analysis.simplify.symbolic_dims import NodeIds, Rule

NEAR_AT_MOST: Final = 64
"""Readers of the most-read value whose readers are looked at again when it changes."""


@dataclass
class _Open:
    """A change while it is being made."""

    rule: str
    key: str
    why: str = ""
    removed: list[Op] = field(default_factory=list)
    added: list[Op] = field(default_factory=list)
    constant_ids: list[int] = field(default_factory=list)
    tensors: dict[int, None] = field(default_factory=dict)
    rewired: dict[int, None] = field(default_factory=dict)


class Editor(KnownGraph):
    """A graph that rules change; changes whose rule or key is in ``skipped`` are not made."""

    def __init__(
        self,
        model: Model,
        ids: NodeIds,
        new_id: Callable[[], int],
        *,
        skipped: Iterable[str] = (),
        prefix: str = "",
    ) -> None:
        super().__init__(model, ids, prefix)
        self.skipped = frozenset(skipped)
        self.changes: list[Change] = []
        self.same: dict[int, int] = {}
        """For a value that is gone the equal value that replaced it."""
        self.large: dict[str, Source] = {}
        """Large computed constants by the location that tensors name."""
        self.dirty: set[int] = set()
        """Nodes that differ from their proto."""
        self.marked: set[int] = set()
        """Subgraphs in which something changed."""
        self._new_id = new_id
        self._taken_names: set[str] | None = None
        self._open: _Open | None = None
        self._waiting: deque[int] = deque()
        self._queued: set[int] = set()

    def model(self) -> tuple[Model, NodeIds]:
        """Return the graph as a model whose weights are where they were, and the ids of its nodes."""
        return known_graph.write(self)

    def twin(self, op: Op) -> Op | None:
        """Return an earlier node of the same subgraph that computes the same."""
        attributes = b"".join(a.SerializeToString(deterministic=True) for _, a in sorted(op.all_attributes().items()))
        key = (op.op_type, op.domain, op.subgraph, tuple(op.inputs), len(op.outputs), attributes)
        number = self._computed.setdefault(key, op.number)
        found = self.ops[number]
        if found is op:
            return None
        if not found.alive or found.inputs != op.inputs:
            self._computed[key] = op.number
            return None
        if found.place > op.place:
            self._computed[key] = op.number
            self.queue(found)
            return None
        return found

    # --- changing ---------------------------------------------------------------------------------------------------

    def new_value(self, hint: str, subgraph: int, kind: ValueType | None = None) -> int:
        """Add a value that no node makes yet."""
        self.names.append(self._free_name(hint))
        self.producer.append(-1)
        self.subgraph_of.append(subgraph)
        self.readers.append({})
        value = len(self.names) - 1
        self.kinds[value] = kind
        return value

    def _free_name(self, hint: str) -> str:
        if self._taken_names is None:
            self._taken_names = set(self.names)
        name, number = hint, 1
        while name in self._taken_names:
            name = f"{hint}_{number}"
            number += 1
        self._taken_names.add(name)
        return name

    def new_constant(self, array: Array, hint: str) -> int:
        """Add a constant that every node can read."""
        value = self.new_value(hint, 0, kind_of(array))
        self.constants[value] = Constant(None, array)
        self._identify_constant(value, None)
        return value

    def make_constant(self, value: int, array: Array | TensorProto) -> None:
        """Make what a node computes constant. The node is removed if its other outputs are unused."""
        maker = self.maker(value)
        change = self._change
        assert maker is not None  # noqa: S101 (rules see to it)
        subgraph = self.subgraph_of[value]
        if isinstance(array, TensorProto):
            self.constants[value] = Constant(array, subgraph=subgraph)
            self.kinds[value] = kind(array.data_type, array.dims)
        else:
            self.constants[value] = Constant(None, array, subgraph)
            self.kinds[value] = kind_of(array)
        self.producer[value] = -1
        change.tensors[value] = None
        change.rewired.update(dict.fromkeys(self.readers[value]))
        self._identify_constant(value, maker)
        self._touch(value)
        self._drop_if_useless(maker)

    def _identify_constant(self, value: int, maker: Op | None) -> None:
        """Set the id of the Constant node that a constant needs in a function, or as an output of a graph."""
        if not self.prefix and value not in self._is_output:
            return
        if maker is not None and maker.op_type == "Constant":
            self.constant_ids[value] = maker.id
            return
        self.constant_ids[value] = self._new_id()
        self._change.constant_ids.append(self.constant_ids[value])

    @property
    def _change(self) -> _Open:
        assert self._open is not None  # noqa: S101 (the graph is only changed inside of a change)
        return self._open

    def set_input(self, op: Op, slot: int, value: int) -> None:
        """Make a node read another value."""
        old = op.inputs[slot]
        if old == value:
            return
        op.inputs[slot] = value
        if value >= 0:
            self._note(op, value)
        self._change.rewired[op.number] = None
        self._changed(op)
        if old >= 0:
            self._forget(op, old)
            self._collect(old)

    def redirect(self, old: int, new: int) -> bool:
        """Replace all uses of ``old`` by the equal value ``new``; return False if that would change a graph output."""
        if old in self._is_output:
            maker = self.maker(new)
            swap = (
                maker is not None
                and new not in self._is_output
                and self.subgraph_of[new] == self.subgraph_of[old]
                and maker.alive
            )
            if not swap:
                return False
            # the output keeps its name: the node that makes the other value makes it now
            assert maker is not None  # noqa: S101 (of swap)
            former = self.maker(old)
            if former is not None:
                self._take(former, old)
            maker.outputs[maker.outputs.index(new)] = old
            self.producer[old], self.producer[new] = maker.number, -1
            self.kinds[old] = self.kinds.get(old) or self.kinds.get(new)
            self._changed(maker)
            self.same[new] = old
            self.move_readers(new, old)
            if former is not None:
                self._drop_if_useless(former)
            return True
        self.same[old] = new
        self.move_readers(old, new)
        maker = self.maker(old)
        if maker is not None:
            self._drop_if_useless(maker)
        return True

    def bypass(self, op: Op, why: str) -> str | None:
        """Replace the first output of a node by its first input; return the reason, or None if that is not possible."""
        return why if self.redirect(op.outputs[0], op.inputs[0]) else None

    def move_readers(self, old: int, new: int) -> None:
        """Make all nodes that read a value read another one."""
        for number in list(self.readers[old]):
            op = self.ops[number]
            for slot, value in enumerate(op.inputs):
                if value == old:
                    op.inputs[slot] = new
            times = self.readers[old].pop(number)
            self.readers[new][number] = self.readers[new].get(number, 0) + times
            self._change.rewired[number] = None
            self._changed(op)

    def _take(self, op: Op, value: int) -> None:
        """Take an output from a node: another node makes it now."""
        op.outputs[op.outputs.index(value)] = LEFT_OUT

    def remove(self, op: Op) -> None:
        """Remove a node whose outputs are unused."""
        op.alive = False
        self._change.removed.append(op)
        for value in op.outputs:
            if value >= 0 and self.producer[value] == op.number:
                self.producer[value] = -1
        self.mark(op.subgraph)
        read = {value for value in op.inputs if value >= 0}
        for value in read:
            self.readers[value].pop(op.number, None)
        for subgraph in op.bodies:
            self._remove_subgraph(subgraph)
        for value in read:
            self._collect(value)

    def _remove_subgraph(self, subgraph: int) -> None:
        for value in self.subgraph_outputs[subgraph]:
            self._release(value)
        self.subgraph_outputs[subgraph] = []
        for op in self.ops_of(subgraph):
            if op.alive:
                self.remove(op)

    def add(
        self,
        olds: Sequence[Op],
        op_type: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        domain: str = "",
        before: bool = False,
        at: Op | None = None,
        like: Op | None = None,
    ) -> Op:
        """Add a node in the place of the last of ``olds``, ``before`` it or ``at`` another, with ``like`` metadata."""
        last = olds[-1] if at is None else at
        if like is None:
            like = next((op for op in reversed(olds) if op.op_type == op_type and not op.domain), olds[-1])
        origins = [each for op in olds for each in known_graph.origins(op)]
        made = Op(
            number=len(self.ops),
            id=self._new_id(),
            op_type=op_type,
            domain=domain,
            name=like.name if name is None else name,
            inputs=list(inputs),
            outputs=list(outputs),
            subgraph=last.subgraph,
            place=(*last.place, 0) if before else last.place,
            proto=like.proto,
            attributes={k: onnx.helper.make_attribute(k, v) for k, v in (attributes or {}).items() if v is not None},
            origins=tuple(dict.fromkeys(origins)),
        )
        if before:
            last.place = (*last.place, 1)
        if domain:
            self.opsets.setdefault(domain, 1)
        self.ops.append(made)
        self._by_id[made.id] = made
        self._change.added.append(made)
        for value in made.inputs:
            if value >= 0:
                self._note(made, value)
        for value in made.outputs:
            former = self.maker(value)
            if former is not None:
                self._take(former, value)
            if value >= 0:
                self.producer[value] = made.number
                self._change.tensors[value] = None
        self._changed(made)
        return made

    def replace(
        self,
        olds: Sequence[Op],
        op_type: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Op:
        """Replace nodes by one, as `add`; nodes whose other outputs are unused are removed."""
        made = self.add(olds, op_type, inputs, outputs, attributes, **options)
        for op in olds:
            self._drop_if_useless(op)
        for value in made.outputs:
            if value >= 0:
                self._touch(value)
        return made

    def credit(self, op: Op, other: Op) -> None:
        """Record that a node also does what another one did."""
        op.origins = tuple(dict.fromkeys((*known_graph.origins(op), *known_graph.origins(other))))
        self.dirty.add(op.number)
        self.mark(op.subgraph)

    def inline(self, op: Op, body: int) -> None:
        """Replace a node by the nodes of one of its subgraphs, which runs once and has no inputs of its own."""
        moved = self.ops_of(body)
        given = self.subgraph_outputs[body]
        # subgraphs may use the same names as others do, but not as the branch that is removed
        gone = set(op.bodies) - {body}
        used = Counter(name for name, where in zip(self.names, self.subgraph_of, strict=True) if where not in gone)
        for value, where in enumerate(self.subgraph_of):
            if where == body:
                self.subgraph_of[value] = op.subgraph
                if used[self.names[value]] > 1:
                    self.names[value] = self._free_name(f"{op.name or op.op_type}_{self.names[value]}")
        for known in self.constants.values():
            if known.subgraph == body:
                known.subgraph = op.subgraph
        for number, each in enumerate(moved):
            each.subgraph, each.place = op.subgraph, (*op.place, number)
            self._changed(each)
            for inner in each.bodies:
                self.parent[inner] = op.subgraph
                self.mark(inner)
        self._counted = -1
        self.subgraph_outputs[body] = []
        for value in given:
            self._release(value)
        for made, inner in zip(list(op.outputs), given, strict=True):
            if made >= 0 and not self.redirect(made, inner):
                self.replace([op], "Identity", [inner], [made])
        if op.alive:
            self.remove(op)

    def _release(self, value: int) -> None:
        self._is_output[value] -= 1
        if not self._is_output[value]:
            del self._is_output[value]

    def _drop_if_useless(self, op: Op) -> None:
        if op.alive and not self.is_useful(op):
            self.remove(op)

    def _collect(self, value: int) -> None:
        """Remove the node that makes a value if the value is unused now."""
        if self.readers[value] or value in self._is_output:
            self._touch(value)
            return
        maker = self.maker(value)
        if maker is not None and maker.alive:
            self._drop_if_useless(maker)
            if maker.alive:
                self.queue(maker)

    def _forget(self, op: Op, value: int) -> None:
        found = self.readers[value]
        found[op.number] -= 1
        if not found[op.number]:
            del found[op.number]

    def _changed(self, op: Op) -> None:
        self.dirty.add(op.number)
        self.mark(op.subgraph)
        self.queue(op)
        for value in (*op.inputs, *op.outputs):
            if value >= 0:
                self._touch(value)

    def _touch(self, value: int) -> None:
        """Look again at the nodes that make and read a value."""
        maker = self.maker(value)
        if maker is not None:
            self.queue(maker)
        if len(self.readers[value]) <= NEAR_AT_MOST:
            for number in self.readers[value]:
                self.queue(self.ops[number])

    def queue(self, op: Op) -> None:
        """Look at a node once more."""
        if op.alive and op.number not in self._queued:
            self._queued.add(op.number)
            self._waiting.append(op.number)
            for numbers in self._since.values():
                numbers.add(op.number)

    def mark(self, subgraph: int) -> None:
        """Note that a subgraph changed, and so did those around it."""
        while subgraph not in self.marked:
            self.marked.add(subgraph)
            if subgraph == 0:
                return
            subgraph = self.parent[subgraph]

    # --- driving ----------------------------------------------------------------------------------------------------

    def key(self, rule: str, value: int) -> str:
        """Return the unique name of a change: its rule and the tensor where it happens."""
        return f"{rule}: {self.prefix}{self.names[value]}"

    def may(self, rule: str, value: int) -> bool:
        """Return whether a change is not to be skipped."""
        return not self.skipped or (rule not in self.skipped and self.key(rule, value) not in self.skipped)

    @contextlib.contextmanager
    def change(self, rule: str, value: int, why: str) -> Iterator[None]:
        """Record what is done inside as one change, named by the rule and a value."""
        self._open = _Open(rule, self.key(rule, value), why)
        try:
            yield
        finally:
            self._close()

    def _close(self) -> None:
        done, self._open = self._change, None
        added = [op for op in done.added if op.alive]
        ids = {op.number for op in added}
        rewired = [self.ops[number] for number in done.rewired if number not in ids]
        self.changes.append(
            Change(
                rule=done.rule,
                key=done.key,
                why=done.why,
                before=tuple(dict.fromkeys(op.name or op.op_type for op in done.removed)),
                after=tuple(op.name or op.op_type for op in added),
                tensors=tuple(self.names[value] for value in done.tensors),
                taken=tuple(op.id for op in done.removed),
                made=(*(op.id for op in added), *done.constant_ids),
                rewired=tuple(op.id for op in rewired if op.alive),
            )
        )

    def run(self, rules: Iterable[Rule], tell: Callable[[int], None] | None = None) -> None:
        """Apply rules in their order until none applies; when run once more they look only near what changed since."""
        by_type: dict[str, list[Rule]] = {}
        for_all = []
        rules = [rule for rule in rules if self.opset() >= rule.since]
        key = tuple(rule.name for rule in rules)
        near = self._since.pop(key, None)
        for rule in rules:
            for op_type in rule.ops:
                by_type.setdefault(op_type, []).append(rule)
            if not rule.ops:
                for_all.append(rule)
        self.memo.clear()
        again = self.ops if near is None else map(self.ops.__getitem__, near)
        self._queued.clear()
        self._waiting.clear()
        for op in sorted((op for op in again if op.alive), key=lambda op: op.place):
            self._queued.add(op.number)
            self._waiting.append(op.number)
        looked = 0
        none: list[Rule] = []
        while self._waiting:
            number = self._waiting.popleft()
            self._queued.discard(number)
            op = self.ops[number]
            looked += 1
            if tell is not None and looked % 4096 == 0:
                tell(len(self._waiting))
            while op.alive and self._apply(op, by_type.get(op.op_type, none) if op.domain == "" else none, for_all):
                pass
        self._since[key] = set()

    def _apply(self, op: Op, own: Sequence[Rule], for_all: Sequence[Rule]) -> bool:
        made = next((value for value in op.outputs if value >= 0), -1)
        if made < 0:
            return False
        for rule in (*own, *for_all):
            if not self.may(rule.name, made):
                continue
            self._open = opened = _Open(rule.name, self.key(rule.name, made))
            why = rule.apply(self, op)
            if why is None:
                self._open = None
                continue
            opened.why = why
            self._close()
            return True
        return False

    def note_tensor(self, value: int) -> None:
        """Record that the open change is about a tensor."""
        self._change.tensors[value] = None
