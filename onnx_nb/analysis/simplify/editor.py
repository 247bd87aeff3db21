"""The graph that rules rewrite: one editor for all rounds, which records every change.

Unchanged parts keep their names, metadata and weights.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import onnx
from onnx import TensorProto

from onnx_nb.analysis.graph.types import ValueType
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.simplify.known_graph import LEFT_OUT, Array, Constant, KnownGraph, NodeIds, Op, tensor_kind

Attributes: TypeAlias = Mapping[str, Any] | None
"""Attributes of a new node; those that are None are left out."""
NEAR_AT_MOST: Final = 64
"""Maximum number of readers of a value up to which they are visited again when a node at it changes."""


@dataclass(frozen=True)
class Change:
    """One change made to the graph."""

    rule: str
    """A name of `rules`, such as "fuse_bn_into_conv"."""
    key: str
    """Unique name of this change: the rule and the tensor to which it was applied."""
    why: str
    """Reason in words."""
    before: tuple[str, ...]
    """Names of the nodes that were removed."""
    after: tuple[str, ...]
    """Names of the nodes that were added."""
    tensors: tuple[str, ...]
    """Names of the tensors that became constant, or are now produced by another node."""
    taken: tuple[int, ...]
    """Ids of the nodes that were removed."""
    made: tuple[int, ...]
    """Ids of the nodes that were added."""
    rewired: tuple[int, ...]
    """Ids of the remaining nodes that now read another tensor, or one that became constant."""


@dataclass
class OpenChange:
    """A change while it is being made."""

    rule: str
    key: str
    why: str = ""
    removed: list[Op] = field(default_factory=list)
    added: list[Op] = field(default_factory=list)
    constant_ids: list[int] = field(default_factory=list)
    tensors: dict[int, None] = field(default_factory=dict)
    rewired: dict[int, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """A way to rewrite a node and its neighbors."""

    name: str
    does: str
    """Effect of the rule, in one line."""
    apply: Callable[[Editor, Op], str | None]
    """Rewrites the graph and returns the reason; returns None and changes nothing where the rule does not apply."""
    ops: tuple[str, ...]
    """Standard operators at which the rule starts; all if empty."""
    since: int = 0
    """Lowest opset for which the rule is valid."""


def rule(rules: list[Rule], name: str, *ops: str, since: int = 0) -> Callable[[Apply], Apply]:
    """Register a function as a rule; the first line of its docstring describes the rule."""

    def register(apply: Apply) -> Apply:
        rules.append(Rule(name, (apply.__doc__ or "").strip().split("\n")[0].rstrip("."), apply, ops, since))
        return apply

    return register


def unused_name(base: str, names: Collection[str]) -> str:
    """Return a name, with a number if there is one like it."""
    candidates = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(1)))
    return next(name for name in candidates if name not in names)


class Editor(KnownGraph):
    """A graph that rules change; changes whose rule or key is in ``skipped`` are not made."""

    def __init__(
        self, model: Model, ids: NodeIds, new_id: Callable[[], int], *, skipped: frozenset[str], prefix: str
    ) -> None:
        super().__init__(model, ids, prefix)
        self.skipped = skipped
        self.changes: list[Change] = []
        self.same: dict[int, int] = {}
        """Removed value → the equal value that replaced it."""
        self._new_id = new_id
        self._taken_names: set[str] = set()
        self._open: OpenChange | None = None
        self._waiting: OrderedDict[int, None] = OrderedDict()

    def twin(self, op: Op) -> Op | None:
        """Return an earlier node of the same subgraph that computes the same."""
        attributes = sorted(part.SerializeToString(deterministic=True) for part in op.proto.attribute)
        key = (op.op_type, op.domain, op.subgraph, tuple(op.inputs), len(op.outputs), tuple(attributes))
        earlier = self.ops[self._computed.setdefault(key, op.number)]
        if earlier is op:
            return None
        if earlier.alive and earlier.inputs == op.inputs and earlier.place <= op.place:
            return earlier
        self._computed[key] = op.number
        if earlier.alive and earlier.inputs == op.inputs:
            self.queue(earlier)
        return None

    # --- changing ---------------------------------------------------------------------------------------------------

    @property
    def _change(self) -> OpenChange:
        assert self._open is not None  # noqa: S101 (the graph is only changed inside a change)
        return self._open

    def new_value(self, hint: str, subgraph: int, kind: ValueType) -> int:
        """Add a value that no node produces yet."""
        self.names.append(self._free_name(hint))
        self.producer.append(-1)
        self.subgraph_of.append(subgraph)
        self.output_count.append(0)
        self.readers.append({})
        value = len(self.names) - 1
        self.kinds[value] = kind
        return value

    def _free_name(self, hint: str) -> str:
        self._taken_names = self._taken_names or set(self.names)
        name = unused_name(hint, self._taken_names)
        self._taken_names.add(name)
        return name

    def new_constant(self, array: Array, hint: str) -> int:
        """Add a constant that every node can read."""
        value = self.new_value(hint, 0, ValueType())
        self._hold(value, array, None)
        return value

    def make_constant(self, value: int, content: Array | TensorProto) -> None:
        """Make an output of a node constant. The node is removed if its other outputs are unused."""
        maker = self.ops[self.producer[value]]
        self._hold(value, content, maker)
        self.producer[value] = -1
        self._change.tensors[value] = None
        self._change.rewired.update(dict.fromkeys(self.readers[value]))
        self._touch(value)
        self._drop_if_useless(maker)

    def _hold(self, value: int, content: Array | TensorProto, maker: Op | None) -> None:
        """Store a constant, and the id of the Constant node that it needs in a function, or as an output of a graph."""
        if isinstance(content, TensorProto):
            self.constants[value] = Constant(content, subgraph=self.subgraph_of[value])
            self.kinds[value] = tensor_kind(content.data_type, content.dims)
        else:
            self.constants[value] = Constant(None, content, self.subgraph_of[value])
            self.kinds[value] = tensor_kind(onnx.helper.np_dtype_to_tensor_dtype(content.dtype), content.shape)
        if self.prefix or self.output_count[value]:
            is_constant = maker is not None and maker.op_type == "Constant"
            id_ = self.constant_ids[value] = maker.id if maker is not None and is_constant else self._new_id()
            self._change.constant_ids += [] if is_constant else [id_]

    def set_input(self, op: Op, slot: int, value: int) -> None:
        """Make a node read another value."""
        old = op.inputs[slot]
        if old == value:
            return
        op.inputs[slot] = value
        self._note(op, value)
        self._change.rewired[op.number] = None
        self._changed(op)
        self.readers[old][op.number] -= 1
        if not self.readers[old][op.number]:
            del self.readers[old][op.number]
        self.remove(old)

    def redirect(self, old: int, new: int) -> bool:
        """Replace all uses of ``old`` by the equal value ``new``; return False if that would change a graph output."""
        former = self.maker(old)
        if self.output_count[old]:
            maker = self.maker(new)
            is_inside = self.subgraph_of[new] == self.subgraph_of[old] and not self.output_count[new]
            if maker is None or not maker.alive or not is_inside:
                return False
            # the output keeps its name: the node that produced the other value now produces it
            if former is not None:
                former.outputs[former.outputs.index(old)] = LEFT_OUT
            maker.outputs[maker.outputs.index(new)] = old
            self.producer[old], self.producer[new] = maker.number, -1
            self.kinds[old] = self.kind(old) if self.kind(old).dtype else self.kind(new)
            self._changed(maker)
            old, new = new, old
        self.same[old] = new
        self.move_readers(old, new)
        if former is not None:
            self._drop_if_useless(former)
        return True

    def bypass(self, op: Op, why: str) -> str | None:
        """Replace the first output of a node by its first input; return the reason, or None if that is not possible."""
        has_more = any(value >= 0 and self.is_read(value) for value in op.outputs[1:])
        return why if not has_more and self.redirect(op.outputs[0], op.inputs[0]) else None

    def move_readers(self, old: int, new: int) -> None:
        """Make all readers of a value read another one."""
        for op in self.uses(old):
            op.inputs[:] = [new if value == old else value for value in op.inputs]
            self.readers[new][op.number] = self.readers[new].get(op.number, 0) + self.readers[old].pop(op.number)
            self._change.rewired[op.number] = None
            self._changed(op)

    def remove(self, part: Op | int) -> None:
        """Remove a node whose outputs are unused, or the producer of an unused value, and what becomes useless."""
        waiting = [part]
        while waiting:
            op = waiting.pop()
            if isinstance(op, int):
                maker = self.maker(op)
                if self.is_read(op):
                    self._touch(op)
                elif maker is not None and self.is_useful(maker):
                    self.queue(maker)
                elif maker is not None:
                    waiting.append(maker)
            elif op.alive:
                op.alive = False
                self._change.removed.append(op)
                for value in op.outputs:
                    if value >= 0 and self.producer[value] == op.number:
                        self.producer[value] = -1
                self.mark(op.subgraph)
                read = [*{value for value in op.inputs if value >= 0}]
                waiting += read[::-1]
                for value in read:
                    self.readers[value].pop(op.number, None)
                for subgraph in op.bodies:
                    self._release_outputs(subgraph)
                waiting += [inner for subgraph in op.bodies for inner in self.in_order(subgraph)][::-1]

    def _release_outputs(self, subgraph: int) -> None:
        for value in self.subgraph_outputs[subgraph]:
            self.output_count[value] -= 1
        self.subgraph_outputs[subgraph] = []

    def add(
        self,
        olds: Sequence[Op],
        op_type: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        attributes: Attributes = None,
        *,
        name: str | None = None,
        before: bool = False,
        at: Op | None = None,
        like: Op | None = None,
    ) -> Op:
        """Add a node in the place of the last of ``olds``, ``before`` it or ``at`` another; metadata as in ``like``."""
        last = at or olds[-1]
        like = like or next((op for op in reversed(olds) if op.op_type == op_type and not op.domain), olds[-1])
        proto = copy.deepcopy(like.proto)
        proto.op_type, proto.domain = op_type, ""
        if name is not None:
            proto.name = name
        settings = {key: value for key, value in (attributes or {}).items() if value is not None}
        wire.set_entries(proto.attribute, (onnx.helper.make_attribute(*setting) for setting in settings.items()))
        place = (*last.place, 0) if before else last.place
        new = self._join(proto, self._new_id(), [*inputs], [*outputs], subgraph=last.subgraph, place=place)
        new.credit(origin for op in olds for origin in op.origins())
        if before:
            last.place = (*last.place, 1)
        self._change.added.append(new)
        for value in new.outputs:
            former = self.maker(value)
            if former is not None:
                former.outputs[former.outputs.index(value)] = LEFT_OUT
            if value >= 0:
                self.producer[value] = new.number
                self._change.tensors[value] = None
        self._changed(new)
        return new

    def replace(
        self, olds: Sequence[Op], op_type: str, inputs: Sequence[int], attributes: Attributes = None, **options: Any
    ) -> None:
        """Replace nodes by one that produces the outputs of the last, as `add`; unused ones are removed."""
        self.add(olds, op_type, inputs, attributes=attributes, **{"outputs": olds[-1].outputs, **options})
        for op in olds:
            self._drop_if_useless(op)

    def credit(self, op: Op, other: Op) -> None:
        """Record that a node also does the work of another one."""
        op.proto = copy.deepcopy(op.proto)
        op.credit([*op.origins(), *other.origins()])
        self.mark(op.subgraph)

    def inline(self, op: Op, body: int) -> None:
        """Replace a node by the nodes of one of its subgraphs, which runs once and has no inputs."""
        members, ends = self.in_order(body), self.subgraph_outputs[body]
        # a subgraph may use the same names as another, but not those of the removed branch
        branches = set(op.bodies) - {body}
        uses = Counter(name for name, where in zip(self.names, self.subgraph_of, strict=True) if where not in branches)
        for value, where in enumerate(self.subgraph_of):
            if where == body:
                self.subgraph_of[value] = op.subgraph
                if uses[self.names[value]] > 1:
                    self.names[value] = self._free_name(f"{op.name or op.op_type}_{self.names[value]}")
        for constant in self.constants.values():
            if constant.subgraph == body:
                constant.subgraph = op.subgraph
        self.members[body] = []
        self.members[op.subgraph] += members
        for number, member in enumerate(members):
            member.subgraph, member.place = op.subgraph, (*op.place, number)
            self._changed(member)
            for inner in member.bodies:
                self.parent[inner] = op.subgraph
                self.mark(inner)
        self._release_outputs(body)
        for end, inner in zip(list(op.outputs), ends, strict=True):
            if end >= 0 and not self.redirect(end, inner):
                self.replace([op], "Identity", [inner], outputs=[end])
        if op.alive:
            self.remove(op)

    def _drop_if_useless(self, op: Op) -> None:
        if op.alive and not self.is_useful(op):
            self.remove(op)

    def _changed(self, op: Op) -> None:
        self.dirty.add(op.number)
        self.mark(op.subgraph)
        self.queue(op)
        for value in (*op.inputs, *op.outputs):
            if value >= 0:
                self._touch(value)

    def _touch(self, value: int) -> None:
        """Revisit the nodes that produce and read a value."""
        maker = self.maker(value)
        if maker is not None:
            self.queue(maker)
        if len(self.readers[value]) <= NEAR_AT_MOST:
            for op in self.uses(value):
                self.queue(op)

    def queue(self, op: Op) -> None:
        """Visit a node once more."""
        if op.alive and op.number not in self._waiting:
            self._waiting[op.number] = None
            for numbers in self._since.values():
                numbers.add(op.number)

    def mark(self, subgraph: int) -> None:
        """Note that a subgraph and those around it changed."""
        while subgraph >= 0 and subgraph not in self.marked:
            self.marked.add(subgraph)
            subgraph = self.parent[subgraph]

    # --- driving ----------------------------------------------------------------------------------------------------

    def key(self, rule: str, value: int) -> str:
        """Return the unique name of a change: its rule and the tensor to which it is applied."""
        return f"{rule}: {self.prefix}{self.names[value]}"

    def may(self, rule: str, value: int) -> bool:
        """Return whether a change is not in ``skipped``."""
        return not self.skipped or (rule not in self.skipped and self.key(rule, value) not in self.skipped)

    @contextlib.contextmanager
    def change(self, rule: str, value: int, why: str) -> Iterator[OpenChange]:
        """Record everything done inside as one change, named by the rule and a value."""
        self._open = OpenChange(rule, self.key(rule, value), why)
        try:
            yield self._open
        finally:
            self._close()

    def _close(self) -> None:
        change, self._open = self._change, None
        ops = [op for op in change.added if op.alive]
        ids = {op.number for op in ops}
        readers = [self.ops[number] for number in change.rewired if number not in ids]
        self.changes.append(
            Change(
                rule=change.rule,
                key=change.key,
                why=change.why,
                before=tuple(dict.fromkeys(op.name or op.op_type for op in change.removed)),
                after=tuple(op.name or op.op_type for op in ops),
                tensors=tuple(self.names[value] for value in change.tensors),
                taken=tuple(op.id for op in change.removed),
                made=(*(op.id for op in ops), *change.constant_ids),
                rewired=tuple(op.id for op in readers if op.alive),
            )
        )

    def run(self, rules: Iterable[Rule], tell: Callable[[int], None] | None = None) -> None:
        """Apply rules in their order until none applies; a later run only visits nodes near changes made since."""
        # rules for all operators come last
        rules = sorted((rule for rule in rules if self.opset >= rule.since), key=lambda rule: not rule.ops)
        key = tuple(rule.name for rule in rules)
        near = self._since.pop(key, None)
        self.memo.clear()
        again = self.ops if near is None else map(self.ops.__getitem__, near)
        ready = sorted((op for op in again if op.alive), key=lambda op: op.place)
        self._waiting = OrderedDict.fromkeys(op.number for op in ready)

        @functools.cache
        def fitting(op_type: str, domain: str) -> list[Rule]:
            return [rule for rule in rules if not rule.ops or (op_type in rule.ops and not domain)]

        visits = 0
        while self._waiting:
            op = self.ops[self._waiting.popitem(last=False)[0]]
            visits += 1
            if tell is not None and visits % 4096 == 0:
                tell(len(self._waiting))
            while op.alive and self._apply(op, fitting(op.op_type, op.domain)):
                pass
        self._since[key] = set()

    def _apply(self, op: Op, rules: Sequence[Rule]) -> bool:
        value_ = next((value for value in op.outputs if value >= 0), LEFT_OUT)
        for rule in rules if value_ >= 0 else ():
            if not self.may(rule.name, value_):
                continue
            self._open = change = OpenChange(rule.name, self.key(rule.name, value_))
            why = rule.apply(self, op)
            if why is not None:
                change.why = why
                self._close()
                return True
        self._open = None
        return False


Apply = Callable[[Editor, Op], str | None]
