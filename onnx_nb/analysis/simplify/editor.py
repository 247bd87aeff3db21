"""A graph while it is rewritten: nodes and values that rules take away, add and connect anew, and what each change was.

The numbering is that of `Graph`: values of the main graph and of all bodies in one table, so that a rule sees a reader
in a body of an If as it sees any other. Nothing of the model is copied before it is changed, and weights stay where
they are. `Rewriting.model` writes the result down; what was not changed keeps its names, metadata and weights.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto, TensorProto

from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph import shape_inference
from onnx_nb.analysis.model import storage, tensors, wire
from onnx_nb.analysis.model.model import read_tensor, with_proto
from onnx_nb.analysis.model.value_info import Dims, dimensions

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.model.storage import Source

Array = NDArray[Any]
Apply = Callable[["Rewriting", "Op"], "str | None"]
"""Rewrites where it can and says why it may; None where it cannot, without having changed anything."""

LEFT_OUT: Final = -1
"""An optional input or output that is not there."""
PROVENANCE: Final = "onnx_nb.merged"
"""The key in a node's metadata under which the names of the nodes that it was made of stand, as a list in JSON."""
READ_AT_MOST: Final = 1 << 24
"""Constants of more bytes are not looked at by rules that ask for values."""


@dataclass(frozen=True)
class Change:
    """One thing that was done to the graph."""

    rule: str
    """A name of `rules`, as "fuse_bn_into_conv"."""
    key: str
    """The name of this change among all: of the tensor that was made where it happened."""
    before: tuple[str, ...]
    """Names of the nodes that are gone."""
    after: tuple[str, ...]
    """Names of the nodes that came."""
    tensors: tuple[str, ...]
    """Names of the tensors that are constants now, or have another producer."""
    gone: tuple[str, ...]
    """Names of the tensors that the nodes that are gone made; nodes may have no name."""
    renamed: tuple[tuple[str, str], ...]
    """Tensors for which others stand now: outputs of the model keep their names, and of equal constants one stays."""
    why: str
    """In words."""


@dataclass(slots=True, eq=False)
class Op:
    """A node."""

    number: int
    op_type: str
    domain: str
    name: str
    inputs: list[int]
    """Values; `LEFT_OUT` for one that is not there."""
    outputs: list[int]
    frame: int
    place: tuple[int, ...]
    """Where it stands among the nodes of its frame."""
    proto: NodeProto
    """Whence attributes, documentation and metadata come."""
    attributes: Mapping[str, AttributeProto] | None = None
    """In place of those of `proto`."""
    origins: tuple[str, ...] = ()
    """Names of the nodes it was made of, if it was made."""
    bodies: tuple[int, ...] = ()
    alive: bool = True

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute."""
        if self.attributes is not None:
            found = self.attributes.get(name)
        else:
            found = next((each for each in self.proto.attribute if each.name == name), None)
        if found is None:
            return default
        value = onnx.helper.get_attribute_value(found)
        return plain_text(value) if isinstance(value, bytes) else value

    def all_attributes(self) -> dict[str, AttributeProto]:
        """Return all attributes by name."""
        if self.attributes is not None:
            return dict(self.attributes)
        return {each.name: each for each in self.proto.attribute}


@dataclass(slots=True, eq=False)
class Constant:
    """A value that is known before the model runs."""

    tensor: TensorProto | onnx.SparseTensorProto | None
    """As it is in the model, or as it will be; None for what was only computed so far."""
    array: Array | None = None
    frame: int = 0
    """The graph whose initializer it is, or will be."""
    home: int = -1
    """The graph of the model whose initializer it was; −1 if it was none."""


@dataclass
class _Open:
    """A change while it is made."""

    rule: str
    key: str
    why: str = ""
    before: dict[str, None] = field(default_factory=dict)
    after: list[Op] = field(default_factory=list)
    tensors: dict[int, None] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)


class Rewriting:
    """A graph that rules change.

    Parameters
    ----------
    model
        It is not changed.
        Its initializers are taken for constants: one that a caller may replace is to be an input only.
    types
        The types of its values, as `shapes.infer` finds them.
    skipped
        Names of rules, and keys of single changes, that are not to be made.
    prefix
        What keys of changes say of where the graph is, as "a function/".
    """

    def __init__(
        self, model: Model, types: shape_inference.Types, *, skipped: Iterable[str] = (), prefix: str = ""
    ) -> None:
        graph = self.graph = types.graph
        self.skipped = frozenset(skipped)
        self.prefix = prefix
        self.source = model
        self.types = types
        self.opsets = dict(graph.opsets)
        self.names: list[str] = list(graph.value_names)
        self._taken: set[str] | None = None
        self.ops: list[Op] = []
        self.producer: list[int] = graph.producer.tolist()
        self.subgraph_of: list[int] = graph.value_subgraph.tolist()
        self.constants: dict[int, Constant] = {}
        self.changes: list[Change] = []
        self._kinds: dict[int, shape_inference.Kind | None] = {}
        self._infos: dict[int, dict[str, onnx.ValueInfoProto]] = {}
        self._open: _Open | None = None
        self._waiting: deque[int] = deque()
        self._queued: set[int] = set()
        self._since: dict[tuple[str, ...], set[int]] = {}
        """For some rules the nodes to look at again since they were applied."""
        self._by_subgraph: dict[int, list[Op]] = {}
        self._counted = -1
        self._computed: dict[tuple[Any, ...], int] = {}
        self.large: dict[str, Source] = {}
        """Large constants that were computed, by the location that tensors name."""
        self.same: dict[str, str] = {}
        """What stands for a tensor that is gone: one that is always equal."""
        self.memo: dict[Any, Any] = {}
        """What was found out of values in this run; they stay what they are, whatever is rewritten."""
        self._dirty: set[int] = set()
        """Nodes that are no longer what they were."""
        self._marked: set[int] = set()
        """Frames in which something changed."""
        self._parent = [frame.parent for frame in graph.subgraphs]
        self.subgraph_outputs: list[list[int]] = [frame.outputs.tolist() for frame in graph.subgraphs]
        self._is_output: dict[int, int] = {}
        for outputs in self.subgraph_outputs:
            for value in outputs:
                self._is_output[value] = self._is_output.get(value, 0) + 1
        self._body_inputs = frozenset(v for frame in graph.subgraphs[1:] for v in frame.inputs.tolist())
        for number, frame in enumerate(graph.subgraphs):
            stored = [*frame.graph.initializer, *frame.graph.sparse_initializer]
            for value, tensor in zip(frame.weights.tolist(), stored, strict=False):
                self.constants[value] = Constant(tensor, frame=number, home=number)
        self._read_ops()

    def _read_ops(self) -> None:
        graph = self.graph
        ins, in_ptr = graph.in_value.tolist(), graph.in_ptr.tolist()
        outs, out_ptr = graph.out_value.tolist(), graph.out_ptr.tolist()
        kinds, frames = graph.op_index.tolist(), graph.node_subgraph.tolist()
        # nodes in an order in which they can run; a longer place leaves room for what comes out of a body
        place = np.arange(graph.node_count)
        place[graph.order] = np.arange(len(graph.order))
        places = place.tolist()
        owners: dict[int, list[int]] = {}
        for number, frame in enumerate(graph.subgraphs[1:], 1):
            owners.setdefault(frame.owner_node, []).append(number)
        self.readers: list[dict[int, int]] = [{} for _ in range(graph.value_count)]
        """The nodes that name a value, and how often."""
        names = graph.names
        for number, proto in enumerate(graph.nodes):
            op_type, domain = graph.operators[kinds[number]]
            read = ins[in_ptr[number] : in_ptr[number + 1]]
            made = outs[out_ptr[number] : out_ptr[number + 1]]
            bodies = tuple(owners.get(number, ()))
            at = (places[number],)
            op = Op(number, op_type, domain, names[number], read, made, frames[number], at, proto, bodies=bodies)
            self.ops.append(op)
            for value in read:
                if value >= 0:
                    self._note(op, value)
        for op, case in zip(self.ops, self.types.case_of.tolist(), strict=True):
            if case < 0:
                continue
            found_case = self.types.cases[case]
            for value, kind in zip((*op.inputs, *op.outputs), (*found_case.inputs, *found_case.outputs), strict=False):
                if value >= 0 and kind is not None:
                    self._kinds[value] = kind

    # --- looking ----------------------------------------------------------------------------------------------------

    def opset(self, domain: str = "") -> int:
        """Return the version of a domain that the model imports; 0 if it imports none."""
        return self.opsets.get(domain, 0)

    def maker(self, value: int) -> Op | None:
        """Return the node that makes a value."""
        number = self.producer[value] if value >= 0 else -1
        return self.ops[number] if number >= 0 else None

    def uses(self, value: int) -> list[Op]:
        """Return the nodes that read a value, once each."""
        return [self.ops[number] for number in self.readers[value]]

    def is_output(self, value: int) -> bool:
        """Return whether the main graph or a body gives a value out."""
        return value in self._is_output

    def only_use(self, value: int) -> Op | None:
        """Return the one node that reads a value, if it reads it once and nobody else sees it."""
        if len(self.readers[value]) != 1 or value in self._is_output:
            return None
        [(number, times)] = self.readers[value].items()
        return self.ops[number] if times == 1 else None

    def before(self, op: Op, slot: int, *op_types: str) -> Op | None:
        """Return the node that makes an input, if it is of one of some standard operators, and is there for this only.

        It stands in the same frame, and what it makes first is read once, by this node.
        """
        maker = self.maker(op.inputs[slot]) if slot < len(op.inputs) else None
        if maker is None or maker.op_type not in op_types or maker.domain or maker.frame != op.frame:
            return None
        made = op.inputs[slot]
        return maker if maker.outputs[0] == made and self.only_use(made) is op else None

    def operands(self, op: Op, *op_types: str) -> Iterator[tuple[Op, int]]:
        """Return for each of two inputs that `before` gives a node for, this node and the other input."""
        for slot in (0, 1):
            maker = self.before(op, slot, *op_types)
            if maker is not None:
                yield maker, op.inputs[1 - slot]

    def kind(self, value: int) -> shape_inference.Kind | None:
        """Return the type of a value as far as it is known."""
        if value < 0:
            return None
        if value not in self._kinds:
            self._kinds[value] = self._declared(value)
        return self._kinds[value]

    def _declared(self, value: int) -> shape_inference.Kind | None:
        known = self.constants.get(value)
        if known is not None and isinstance(known.tensor, TensorProto):
            return kind(known.tensor.data_type, known.tensor.dims)
        info = self._info(value)
        if info is None or not info.type.HasField("tensor_type"):
            return None
        return shape_inference.Kind(info.type, info.type.tensor_type.elem_type, dimensions(info.type))

    def _info(self, value: int) -> onnx.ValueInfoProto | None:
        """Return what the model declares of a value."""
        if value >= self.graph.value_count:
            return None
        frame = int(self.graph.value_subgraph[value])
        if frame not in self._infos:
            graph = self.graph.subgraphs[frame].graph
            self._infos[frame] = {plain_text(i.name): i for i in (*graph.value_info, *graph.output, *graph.input)}
        return self._infos[frame].get(self.graph.value_names[value])

    def shape(self, value: int) -> Dims | None:
        """Return the shape of a value, with symbols where a dimension has no known size."""
        kind = self.kind(value)
        return None if kind is None else kind.shape

    def dtype(self, value: int) -> int:
        """Return the type of the elements as in ``onnx.TensorProto.DataType``; 0 if it is unknown."""
        kind = self.kind(value)
        return 0 if kind is None else kind.elem_type

    def constant(self, value: int) -> Array | None:
        """Return a value that is known before the model runs; None if it is not, or too large to look at."""
        known = self.constants.get(value) if value >= 0 else None
        if known is None:
            return None
        if known.array is None:
            known.array = self.read(value) if self.constant_bytes(value) <= READ_AT_MOST else None
        return known.array

    def is_constant(self, value: int) -> bool:
        """Return whether a value is known before the model runs."""
        return value in self.constants

    def constant_bytes(self, value: int) -> int:
        """Return how many bytes a constant has."""
        known = self.constants[value]
        if known.tensor is None:
            assert known.array is not None  # noqa: S101 (one of the two)
            return known.array.nbytes
        if isinstance(known.tensor, TensorProto):
            return tensors.declared_bytes(known.tensor)
        return tensors.declared_bytes(known.tensor.values) + tensors.declared_bytes(known.tensor.indices)

    def read(self, value: int) -> Array:
        """Return the values of a constant, however large."""
        known = self.constants[value]
        if known.array is not None:
            return known.array
        what = f"tensor {quoted(self.names[value])}"
        if isinstance(known.tensor, TensorProto) and known.tensor.data_location != TensorProto.EXTERNAL:
            return tensors.values(known.tensor, what)
        assert known.tensor is not None  # noqa: S101 (one of the two)
        return read_tensor(self.source, known.tensor, self.names[value])

    def twin(self, op: Op) -> Op | None:
        """Return another node of the same frame that stands earlier and computes the same."""
        attributes = b"".join(a.SerializeToString(deterministic=True) for _, a in sorted(op.all_attributes().items()))
        key = (op.op_type, op.domain, op.frame, tuple(op.inputs), len(op.outputs), attributes)
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

    def new_value(self, hint: str, frame: int, kind: shape_inference.Kind | None = None) -> int:
        """Add a value that nobody makes yet."""
        self.names.append(self._free_name(hint))
        self.producer.append(-1)
        self.subgraph_of.append(frame)
        self.readers.append({})
        value = len(self.names) - 1
        self._kinds[value] = kind
        return value

    def _free_name(self, hint: str) -> str:
        if self._taken is None:
            self._taken = set(self.names)
        name, number = hint, 1
        while name in self._taken:
            name = f"{hint}_{number}"
            number += 1
        self._taken.add(name)
        return name

    def new_constant(self, array: Array, hint: str) -> int:
        """Add a constant that all nodes can read."""
        value = self.new_value(hint, 0, kind_of(array))
        self.constants[value] = Constant(None, array)
        return value

    def make_constant(self, value: int, array: Array | TensorProto) -> None:
        """Put a constant in the place of what a node makes. The node goes if nothing else of it is read."""
        maker = self.maker(value)
        assert maker is not None and self._open is not None  # noqa: PT018, S101 (rules see to it)
        if isinstance(array, TensorProto):
            self.constants[value] = Constant(array, frame=self.subgraph_of[value])
            self._kinds[value] = kind(array.data_type, array.dims)
        else:
            self.constants[value] = Constant(None, array, self.subgraph_of[value])
            self._kinds[value] = kind_of(array)
        self.producer[value] = -1
        self._open.tensors[value] = None
        self._touch(value)
        self._drop_if_useless(maker)

    def set_input(self, op: Op, slot: int, value: int) -> None:
        """Let a node read something else."""
        old = op.inputs[slot]
        if old == value:
            return
        op.inputs[slot] = value
        if value >= 0:
            self._note(op, value)
        self._changed(op)
        if old >= 0:
            self._forget(op, old)
            self._collect(old)

    def redirect(self, old: int, new: int) -> bool:
        """Let all who read a value read another one that is the same; False if the model's outputs forbid it."""
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
            # the output keeps its name: who makes the other value makes it now
            assert maker is not None  # noqa: S101 (of swap)
            former = self.maker(old)
            if former is not None:
                self._take(former, old)
            maker.outputs[maker.outputs.index(new)] = old
            self.producer[old], self.producer[new] = maker.number, -1
            self._kinds[old] = self._kinds.get(old) or self._kinds.get(new)
            self._changed(maker)
            self.same[self.names[new]] = self.names[old]
            self._rename(new, old)
            self._move_readers(new, old)
            if former is not None:
                self._drop_if_useless(former)
            return True
        self.same[self.names[old]] = self.names[new]
        self._move_readers(old, new)
        maker = self.maker(old)
        if maker is not None:
            self._drop_if_useless(maker)
        return True

    def _move_readers(self, old: int, new: int) -> None:
        for number in list(self.readers[old]):
            op = self.ops[number]
            for slot, value in enumerate(op.inputs):
                if value == old:
                    op.inputs[slot] = new
            times = self.readers[old].pop(number)
            self.readers[new][number] = self.readers[new].get(number, 0) + times
            self._changed(op)

    def _take(self, op: Op, value: int) -> None:
        """Let a node no longer make a value, which another one makes now."""
        assert self._open is not None  # noqa: S101 (rules only)
        op.outputs[op.outputs.index(value)] = LEFT_OUT
        self._open.gone[self.names[value]] = None

    def remove(self, op: Op) -> None:
        """Take a node away. Nobody may read what it makes any more."""
        assert self._open is not None  # noqa: S101 (rules only)
        op.alive = False
        self._open.before[op.name or op.op_type] = None
        self._open.gone.update(dict.fromkeys(self.names[value] for value in op.outputs if value >= 0))
        for value in op.outputs:
            if value >= 0 and self.producer[value] == op.number:
                self.producer[value] = -1
        self._mark(op.frame)
        read = {value for value in op.inputs if value >= 0}
        for value in read:
            self.readers[value].pop(op.number, None)
        for frame in op.bodies:
            self._remove_body(frame)
        for value in read:
            self._collect(value)

    def _remove_body(self, frame: int) -> None:
        for value in self.subgraph_outputs[frame]:
            self._release(value)
        self.subgraph_outputs[frame] = []
        for op in self.ops_of(frame):
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
        """Add a node that does what some did, where the last of them stands; it makes what they made so far.

        With ``before`` it stands before the last of them, which reads what it makes; with ``at`` where another stands.

        Name, documentation and metadata are those of ``like``, by default the node of the same operator, or the last.
        """
        last = olds[-1] if at is None else at
        if like is None:
            like = next((op for op in reversed(olds) if op.op_type == op_type and not op.domain), olds[-1])
        origins = [each for op in olds for each in _origins(op)]
        made = Op(
            number=len(self.ops),
            op_type=op_type,
            domain=domain,
            name=like.name if name is None else name,
            inputs=list(inputs),
            outputs=list(outputs),
            frame=last.frame,
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
        assert self._open is not None  # noqa: S101 (rules only)
        self._open.after.append(made)
        for value in made.inputs:
            if value >= 0:
                self._note(made, value)
        for value in made.outputs:
            former = self.maker(value)
            if former is not None:
                self._take(former, value)
            if value >= 0:
                self.producer[value] = made.number
                self._open.tensors[value] = None
        self._changed(made)
        return made

    def replace(
        self,
        olds: Sequence[Op],
        op_type: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        domain: str = "",
        at: Op | None = None,
        like: Op | None = None,
    ) -> Op:
        """Put one node in the place of some, as `add`; they go if nothing else of them is read."""
        made = self.add(olds, op_type, inputs, outputs, attributes, name=name, domain=domain, at=at, like=like)
        for op in olds:
            self._drop_if_useless(op)
        for value in made.outputs:
            if value >= 0:
                self._touch(value)
        return made

    def credit(self, op: Op, other: Op) -> None:
        """Write down that a node does what another one did."""
        op.origins = tuple(dict.fromkeys((*_origins(op), *_origins(other))))
        self._dirty.add(op.number)
        self._mark(op.frame)

    def inline(self, op: Op, body: int) -> None:
        """Put the nodes of a body that runs once, and without inputs of its own, in the place of its node."""
        moved = self.ops_of(body)
        given = self.subgraph_outputs[body]
        # bodies may use the same names as others do, but not as the branch that goes
        gone = set(op.bodies) - {body}
        used = Counter(name for name, frame in zip(self.names, self.subgraph_of, strict=True) if frame not in gone)
        for value, frame in enumerate(self.subgraph_of):
            if frame == body:
                self.subgraph_of[value] = op.frame
                if used[self.names[value]] > 1:
                    self.names[value] = self._free_name(f"{op.name or op.op_type}_{self.names[value]}")
        for known in self.constants.values():
            if known.frame == body:
                known.frame = op.frame
        for number, each in enumerate(moved):
            each.frame, each.place = op.frame, (*op.place, number)
            self._changed(each)
            for frame in each.bodies:
                self._parent[frame] = op.frame
                self._mark(frame)
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
        if op.alive and not self._is_useful(op):
            self.remove(op)

    def _is_useful(self, op: Op) -> bool:
        return any(
            v >= 0 and self.producer[v] == op.number and (self.readers[v] or v in self._is_output) for v in op.outputs
        )

    def _collect(self, value: int) -> None:
        """Take away what makes a value that nobody reads any more."""
        if self.readers[value] or value in self._is_output:
            self._touch(value)
            return
        maker = self.maker(value)
        if maker is not None and maker.alive:
            self._drop_if_useless(maker)
            if maker.alive:
                self.queue(maker)

    def _note(self, op: Op, value: int) -> None:
        found = self.readers[value]
        found[op.number] = found.get(op.number, 0) + 1

    def _forget(self, op: Op, value: int) -> None:
        found = self.readers[value]
        found[op.number] -= 1
        if not found[op.number]:
            del found[op.number]

    def _changed(self, op: Op) -> None:
        self._dirty.add(op.number)
        self._mark(op.frame)
        self.queue(op)
        for value in (*op.inputs, *op.outputs):
            if value >= 0:
                self._touch(value)

    def _touch(self, value: int) -> None:
        """Look again at those who make and who read a value."""
        maker = self.maker(value)
        if maker is not None:
            self.queue(maker)
        if len(self.readers[value]) <= 64:
            for number in self.readers[value]:
                self.queue(self.ops[number])

    def queue(self, op: Op) -> None:
        """Let the rules look at a node once more."""
        if op.alive and op.number not in self._queued:
            self._queued.add(op.number)
            self._waiting.append(op.number)
            for numbers in self._since.values():
                numbers.add(op.number)

    def _mark(self, frame: int) -> None:
        while frame not in self._marked:
            self._marked.add(frame)
            if frame == 0:
                return
            frame = self._parent[frame]

    # --- driving ----------------------------------------------------------------------------------------------------

    def key(self, rule: str, value: int) -> str:
        """Name a change among all: by its rule and a tensor that it is about."""
        return f"{rule}: {self.prefix}{self.names[value]}"

    def may(self, rule: str, value: int) -> bool:
        """Return whether a change was not asked to be left out."""
        return not self.skipped or (rule not in self.skipped and self.key(rule, value) not in self.skipped)

    @contextlib.contextmanager
    def change(self, rule: str, value: int, why: str) -> Iterator[None]:
        """Write down what is done inside as one change, named by the rule and a value."""
        self._open = _Open(rule, self.key(rule, value), why)
        try:
            yield
        finally:
            self._close()

    def _close(self) -> None:
        done, self._open = self._open, None
        assert done is not None  # noqa: S101 (opened before)
        after = tuple(op.name or op.op_type for op in done.after if op.alive)
        made = tuple(self.names[value] for value in done.tensors)
        self.changes.append(
            Change(
                done.rule,
                done.key,
                tuple(done.before),
                after,
                made,
                tuple(done.gone),
                tuple(done.renamed.items()),
                done.why,
            )
        )

    def run(self, rules: Iterable[Rule], told: Callable[[int], None] | None = None) -> None:
        """Apply rules until none applies any more.

        Parameters
        ----------
        rules
            Each is tried on the nodes it names, in the order given; nodes near a change are looked at again. The same
            rules once more look only at nodes near what was changed since.
        told
            Is given how many nodes wait, now and then; what it raises ends the run.
        """
        by_type: dict[str, list[Rule]] = {}
        for_all = []
        rules = list(rules)
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
            if told is not None and looked % 4096 == 0:
                told(len(self._waiting))
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

    def merge_constants(self) -> None:
        """Keep one of constants that are equal, and none that nobody reads."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for value, constant in self.constants.items():
            if self.readers[value] or value in self._is_output:
                key = self._looks(constant)
                if key is not None:
                    alike.setdefault(key, []).append(value)
        for values in alike.values():
            if len(values) > 1:
                self._merge(values)

    def _merge(self, values: Sequence[int]) -> None:
        known: dict[tuple[Any, ...], int] = {}
        for value in values:
            key = self._content(value)
            first = known.setdefault(key, value) if key is not None else value
            rule = "eliminate_duplicate_initializer"
            if first == value or value in self._is_output or not self.may(rule, value):
                continue
            with self.change(rule, value, f"{self.names[first]} is the same"):
                self.same[self.names[value]] = self.names[first]
                self._tell(value)
                self._rename(value, first)
                self._move_readers(value, first)

    def drop_unused(self) -> None:
        """Take away initializers that nobody reads."""
        rule = "eliminate_unused_initializer"
        for value, constant in list(self.constants.items()):
            unused = not self.readers[value] and value not in self._is_output
            if unused and constant.home >= 0 and self.may(rule, value):
                with self.change(rule, value, "nobody reads it"):
                    self._tell(value)
                    self._mark(constant.frame)
                    del self.constants[value]

    def _tell(self, value: int) -> None:
        assert self._open is not None  # noqa: S101 (rules only)
        self._open.tensors[value] = None

    def _rename(self, old: int, new: int) -> None:
        assert self._open is not None  # noqa: S101 (rules only)
        self._open.renamed[self.names[old]] = self.names[new]

    def _looks(self, known: Constant) -> tuple[Any, ...] | None:
        """Return type and shape; None for a constant that is sparse, or lies in a body."""
        if known.frame or isinstance(known.tensor, onnx.SparseTensorProto):
            return None
        if known.tensor is not None:
            return known.tensor.data_type, *known.tensor.dims
        assert known.array is not None  # noqa: S101 (one of the two)
        return onnx.helper.np_dtype_to_tensor_dtype(known.array.dtype), *known.array.shape

    def _content(self, value: int) -> tuple[Any, ...] | None:
        """Return what is the same for equal constants; None for what is too large to look at."""
        array = self.constant(value)
        if array is None or array.dtype.hasobject:
            return None
        return (
            array.dtype.name,
            array.shape,
            hashlib.sha1(np.ascontiguousarray(array).tobytes(), usedforsecurity=False).digest(),
        )

    def sweep(self) -> None:
        """Take away nodes of which nobody reads anything, in one change each; those in bodies too."""
        for op in sorted(self.ops, key=lambda op: op.place, reverse=True):
            if op.alive and not self._is_useful(op):
                made = next((value for value in op.outputs if value >= 0), LEFT_OUT)
                if made >= 0 and self.may("eliminate_deadend", made):
                    with self.change("eliminate_deadend", made, "nobody reads what it makes"):
                        self.remove(op)

    # --- writing down -----------------------------------------------------------------------------------------------

    def ops_of(self, frame: int) -> list[Op]:
        """Return the nodes of a frame, in an order in which they can run."""
        if self._counted != len(self.ops):
            self._by_subgraph = {}
            self._counted = len(self.ops)
            for op in self.ops:
                self._by_subgraph.setdefault(op.frame, []).append(op)
        found = [op for op in self._by_subgraph.get(frame, ()) if op.alive]
        return sorted(found, key=lambda op: (op.place, op.number))

    def model(self) -> Model:
        """Write the graph down as a model whose weights are where they were."""
        origin = self.source.proto
        proto = onnx.ModelProto()
        wire.copy_fields(origin, proto, without=("graph",))
        if 0 < proto.ir_version < 4:
            proto.ir_version = 4
        for domain in sorted(set(self.opsets) - set(self.graph.opsets)):
            proto.opset_import.add(domain=domain, version=self.opset(domain))
        self._write_graph(proto.graph, 0)
        return with_proto(self.source, proto, self.source.name, self.large)

    def _write_graph(self, target: onnx.GraphProto, frame: int) -> None:
        origin = self.graph.subgraphs[frame].graph
        wire.copy_fields(origin, target, without=("node", "initializer", "sparse_initializer", "value_info"))
        for value in self.subgraph_outputs[frame]:
            # what a graph gives out must be made in it
            if self.producer[value] < 0 and value in self.constants and self.constants[value].tensor is None:
                tensor = onnx.numpy_helper.from_array(self.read(value))
                target.node.add(op_type="Constant", output=[self.names[value]]).attribute.append(
                    onnx.helper.make_attribute("value", tensor)
                )
        for op in self.ops_of(frame):
            self._write_op(op, target.node.add())
        for value, known in self.constants.items():
            is_made = known.tensor is None and value in self._is_output
            if known.frame == frame and not is_made and (self.readers[value] or value in self._is_output):
                self._write_constant(known, target, self.names[value])
        live = {value for op in self.ops_of(frame) for value in op.outputs if value >= 0}
        ends = set(self.subgraph_outputs[frame]) | set(self.graph.subgraphs[frame].inputs.tolist())
        for value in sorted(live - ends):
            kind, info = self._kinds.get(value), self._info(value)
            if kind is not None and kind.elem_type and kind.shape is not None:
                target.value_info.add(name=self.names[value], type=kind.proto)
            elif info is not None:
                target.value_info.append(info)
        if frame == 0:
            self._write_ends(target)

    def _write_ends(self, target: onnx.GraphProto) -> None:
        """Return which types outputs have, as far as is known; weights are no inputs."""
        values = {self.names[value]: value for value in self.subgraph_outputs[0]}
        weights = {self.names[value] for value in self.graph.subgraphs[0].weights.tolist()}
        given = [info for info in target.input if plain_text(info.name) not in weights]
        if len(given) < len(target.input):
            del target.input[:]
            target.input.extend(given)
        for info in target.output:
            kind = self.kind(values.get(plain_text(info.name), LEFT_OUT))
            if kind is not None and kind.elem_type:
                _refine(info.type, kind)

    def in_order(self) -> list[Op]:
        """Return all nodes so that those of a body follow what the body captures, and a node what it reads."""
        place: dict[int, tuple[tuple[int, ...], ...]] = {}

        def path(op: Op) -> tuple[tuple[int, ...], ...]:
            if op.frame == 0:
                return (op.place,)
            if op.frame not in place:
                place[op.frame] = path(self.ops[self.graph.subgraphs[op.frame].owner_node])
            return (*place[op.frame], op.place)

        return sorted((op for op in self.ops if op.alive), key=path)

    def write_node(self, op: Op, target: NodeProto, named: Callable[[int], str]) -> None:
        """Write a node without bodies down, with other names for what it reads and makes."""
        target.op_type, target.domain, target.name = op.op_type, op.domain, op.name
        target.input.extend(named(v) for v in _without_tail(op.inputs))
        target.output.extend(named(v) for v in _without_tail(op.outputs))
        target.attribute.extend(op.all_attributes().values())

    def write_constant(self, value: int, target: onnx.GraphProto, name: str) -> None:
        """Write a constant down as an initializer."""
        self._write_constant(self.constants[value], target, name)

    def _write_op(self, op: Op, target: NodeProto) -> None:
        bodies = [frame for frame in op.bodies if frame in self._marked]
        target.CopyFrom(op.proto)
        if op.number in self._dirty:
            target.op_type, target.domain = op.op_type, op.domain
            target.name = op.name
            del target.input[:]
            target.input.extend(self.names[v] if v >= 0 else "" for v in _without_tail(op.inputs))
            del target.output[:]
            target.output.extend(self.names[v] if v >= 0 else "" for v in _without_tail(op.outputs))
            if op.attributes is not None:
                del target.attribute[:]
                target.attribute.extend(op.attributes.values())
            if op.origins:
                _say_origin(target, op.origins)
        for frame in bodies:
            attribute = next(a for a in target.attribute if a.name == self.graph.subgraphs[frame].attribute)
            attribute.g.Clear()
            self._write_graph(attribute.g, frame)

    def _write_constant(self, known: Constant, target: onnx.GraphProto, name: str) -> None:
        tensor = known.tensor
        if tensor is None and self._refer(known, target, name):
            return
        if tensor is None:
            assert known.array is not None  # noqa: S101 (one of the two)
            tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(known.array).reshape(known.array.shape))
        if isinstance(tensor, TensorProto):
            target.initializer.append(tensor)
            target.initializer[-1].name = name
        else:
            target.sparse_initializer.append(tensor)
            target.sparse_initializer[-1].values.name = name

    def _refer(self, known: Constant, target: onnx.GraphProto, name: str) -> bool:
        """Write a large constant of the main graph down as one that this process holds; say whether it is one."""
        array = known.array
        if array is None or known.frame or array.nbytes < wire.THRESHOLD or array.dtype.kind not in "fiubc":
            return False
        location = f"{storage.MEMORY}/{uuid.uuid4().hex}"
        self.large[location] = storage.Memory(array, array.nbytes, "a folded constant")
        tensor = target.initializer.add(name=name, data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        tensor.dims.extend(array.shape)
        storage.refer(tensor, location, 0, array.nbytes)
        return True


@dataclass(frozen=True)
class Rule:
    """A way to rewrite a node and those around it."""

    name: str
    does: str
    """What it does, in one line."""
    apply: Apply
    ops: tuple[str, ...]
    """Standard operators that it starts from; all if empty."""


def rule(rules: list[Rule], name: str, *ops: str) -> Callable[[Apply], Apply]:
    """Add a function to some rules; the first line of its docstring says what it does."""

    def register(apply: Apply) -> Apply:
        does = (apply.__doc__ or "").strip().split("\n")[0].rstrip(".")
        rules.append(Rule(name, does, apply, ops))
        return apply

    return register


def attributes_of(op: Op) -> dict[str, Any]:
    """Return the values of all attributes of a node by name."""
    return {name: onnx.helper.get_attribute_value(each) for name, each in op.all_attributes().items()}


def kind_of(array: Array) -> shape_inference.Kind:
    """Return the type of an array."""
    elem_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return kind(elem_type, array.shape)


def kind(elem_type: int, shape: Sequence[int | str | None] | None) -> shape_inference.Kind:
    """Make the type of a tensor."""
    return shape_inference.Kind(
        onnx.helper.make_tensor_type_proto(elem_type, shape), elem_type, None if shape is None else tuple(shape)
    )


def _refine(declared: onnx.TypeProto, found: shape_inference.Kind) -> None:
    """Write sizes that were found into a declared type where it has none."""
    if not declared.HasField("tensor_type"):
        if not declared.WhichOneof("value"):
            declared.CopyFrom(found.proto)
        return
    if not declared.tensor_type.elem_type:
        declared.tensor_type.elem_type = found.elem_type
    before = dimensions(declared)
    if before is None or found.shape is None or len(before) != len(found.shape):
        if before is None and found.shape is not None and found.proto.HasField("tensor_type"):
            declared.tensor_type.shape.CopyFrom(found.proto.tensor_type.shape)
        return
    for dim, old, new in zip(declared.tensor_type.shape.dim, before, found.shape, strict=True):
        if isinstance(new, int) and not isinstance(old, int):
            dim.dim_value = new
        elif isinstance(new, str) and old is None:
            dim.dim_param = new


def _without_tail(values: list[int]) -> list[int]:
    """Leave out optional ones at the end that are not there."""
    count = len(values)
    while count and values[count - 1] < 0:
        count -= 1
    return values[:count]


def _origins(op: Op) -> tuple[str, ...]:
    """Return the names of the nodes that a node was made of, in this graph or before."""
    if op.origins:
        return op.origins
    return merged(op.proto) or ((op.name,) if op.name else ())


def merged(node: NodeProto) -> tuple[str, ...]:
    """Return the names of the nodes that `simplify` made a node of; empty if it was not or does not say."""
    said = next((plain_text(entry.value) for entry in node.metadata_props if entry.key == PROVENANCE), "")
    try:
        found = json.loads(said) if said else []
    except (ValueError, RecursionError):
        return ()
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def _say_origin(target: NodeProto, origins: Sequence[str]) -> None:
    """Write into the metadata which nodes a node was made of."""
    if len(origins) < 2:
        return
    kept = [entry for entry in target.metadata_props if entry.key != PROVENANCE]
    del target.metadata_props[:]
    target.metadata_props.extend(kept)
    target.metadata_props.add(key=PROVENANCE, value=json.dumps(origins, ensure_ascii=False))
