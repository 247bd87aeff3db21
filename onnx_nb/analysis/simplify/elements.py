"""What an editor works on: nodes with ids, constants, types, rules, and the record of each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto, TensorProto

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.types import ValueType

if TYPE_CHECKING:
    from onnx import FunctionProto

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.simplify.editor import Editor

Array = NDArray[Any]
Apply = Callable[["Editor", "Op"], str | None]

LEFT_OUT: Final = -1
"""An optional input or output that is left out."""


@dataclass(frozen=True)
class Change:
    """One change made to the graph."""

    rule: str
    """A name of `rules`, as "fuse_bn_into_conv"."""
    key: str
    """Unique name of this change: the rule and the tensor where it happened."""
    why: str
    """Reason in words."""
    before: tuple[str, ...]
    """Names of the nodes that were removed."""
    after: tuple[str, ...]
    """Names of the nodes that were added."""
    tensors: tuple[str, ...]
    """Names of the tensors that became constant, or are made by another node now."""
    taken: tuple[int, ...]
    """Ids of the nodes that were removed."""
    made: tuple[int, ...]
    """Ids of the nodes that were added."""
    rewired: tuple[int, ...]
    """Ids of the nodes that stay and read another tensor, or one that became constant."""


@dataclass(slots=True, eq=False)
class Op:
    """A node."""

    number: int
    """Position in `Editor.ops`."""
    id: int
    """Identity of the node, from the original model to the result."""
    op_type: str
    domain: str
    name: str
    inputs: list[int]
    """Values; `LEFT_OUT` for an optional input that is left out."""
    outputs: list[int]
    subgraph: int
    place: tuple[int, ...]
    """Position among the nodes of its subgraph, in an order in which they can run."""
    proto: NodeProto
    """The node from which attributes, documentation and metadata are taken."""
    attributes: Mapping[str, AttributeProto] | None = None
    """Attributes of a node that was added; None for those of `proto`."""
    origins: tuple[str, ...] = ()
    """Names of the nodes that this node was made of."""
    bodies: tuple[int, ...] = ()
    """Subgraphs of an If, Loop or Scan."""
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

    def attribute_values(self) -> dict[str, Any]:
        """Return the values of all attributes by name."""
        return {name: onnx.helper.get_attribute_value(each) for name, each in self.all_attributes().items()}


@dataclass(slots=True, eq=False)
class Constant:
    """A value that is known before the model runs."""

    tensor: TensorProto | onnx.SparseTensorProto | None
    """The tensor in the model; None if it was computed."""
    array: Array | None = None
    """The values, once they were read or computed."""
    subgraph: int = 0
    """Subgraph whose initializer it is or becomes."""
    is_initializer: bool = False
    """Whether it was an initializer in the original."""
    location: str = ""
    """Location under which the process holds the values of a large computed constant."""


def kind(elem_type: int, shape: Sequence[int | str | None] | None) -> ValueType:
    """Return the type of a tensor."""
    proto = onnx.helper.make_tensor_type_proto(elem_type, shape)
    return ValueType.of(proto)


def kind_of(array: Array) -> ValueType:
    """Return the type of an array."""
    return kind(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


# --- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A way to rewrite a node and its neighbors."""

    name: str
    does: str
    """What it does, in one line."""
    apply: Apply
    """Rewrites the graph and returns the reason; returns None, with nothing changed, where the rule does not apply."""
    ops: tuple[str, ...]
    """Standard operators that the rule starts from; all if empty."""
    since: int = 0
    """Lowest opset for which the rule holds."""


def rule(rules: list[Rule], name: str, *ops: str, since: int = 0) -> Callable[[Apply], Apply]:
    """Register a function as a rule; the first line of its docstring says what it does."""

    def register(apply: Apply) -> Apply:
        does = (apply.__doc__ or "").strip().split("\n")[0].rstrip(".")
        rules.append(Rule(name, does, apply, ops, since))
        return apply

    return register


# --- ids of nodes -----------------------------------------------------------------------------------------------------

# ONNX gives nodes no identity: a node keeps its id however often the model is written between the rounds.
Place = tuple[int | str, str]
"""A graph: `MAIN`, a function ("function", its label), or a subgraph (id of the owner node, name of the attribute)."""
NodeIds = Mapping[Place, tuple[int, ...]]
"""The ids of the nodes of each graph, in order."""
Key = tuple[int, tuple[int, ...]]
"""Id of a node, and the ids of the calls of functions that it is inside of."""

MAIN: Final[Place] = ("", "")


def label(function: FunctionProto) -> str:
    """Return the label of a local function, as in keys of changes: "domain.name"."""
    overload = f":{plain_text(function.overload)}" if function.overload else ""
    return f"{plain_text(function.domain)}.{plain_text(function.name)}{overload}"


def place_of(function: FunctionProto) -> Place:
    """Return the place of the nodes of a local function."""
    return "function", label(function)


def first_ids(graph: Graph, start: int, main: Place = MAIN) -> dict[Place, tuple[int, ...]]:
    """Return consecutive ids for the nodes of a graph and its subgraphs."""
    return {
        (start + each.owner_node, each.attribute) if each.owner_node >= 0 else main: tuple(
            range(start + each.start, start + each.stop)
        )
        for each in graph.subgraphs
    }


def identify(graph: Graph, ids: NodeIds) -> list[Key]:
    """Return the key of each node of a graph, in which calls may be opened; id −1 for a node that `ids` lacks."""
    found: list[Key] = [(-1, ())] * graph.node_count
    calls: list[tuple[int, ...]] = []
    for each in graph.subgraphs:
        owner = found[each.owner_node][0] if each.owner_node >= 0 else -1
        around = calls[each.parent] if each.parent >= 0 else ()
        calls.append((*around, owner) if each.function is not None else around)
        place = MAIN if each.owner_node < 0 else (owner, each.attribute)
        listed = ids.get(place_of(each.function) if each.function is not None else place, ())
        if len(listed) == each.stop - each.start:
            found[each.start : each.stop] = [(id_, calls[-1]) for id_ in listed]
    return found
