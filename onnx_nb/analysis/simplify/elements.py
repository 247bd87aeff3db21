"""What an editor works on: nodes, constants, types; and the record of each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto, TensorProto

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph import shape_inference

Array = NDArray[Any]

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


def kind(elem_type: int, shape: Sequence[int | str | None] | None) -> shape_inference.Kind:
    """Return the type of a tensor."""
    proto = onnx.helper.make_tensor_type_proto(elem_type, shape)
    return shape_inference.Kind(proto, elem_type, None if shape is None else tuple(shape))


def kind_of(array: Array) -> shape_inference.Kind:
    """Return the type of an array."""
    return kind(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
