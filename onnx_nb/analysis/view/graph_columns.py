"""The graph as the browser receives it: columns of nodes, values and scopes; `frontend/protocol/columns.ts` reads them.

Names of nodes and tensors are added to the string table as blocks, without a search for equal ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import depths, upward
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.types import ValueType
from onnx_nb.analysis.model.model import ModelLike, cached, load
from onnx_nb.analysis.model.protofields import Ints, Longs, Spans, sorted_unique
from onnx_nb.analysis.model.tensors import dtype_name
from onnx_nb.analysis.scopes.repeat_differences import RepeatDifference, repeat_differences
from onnx_nb.analysis.scopes.scopes import BODY, FUNCTION, ROWS, Scopes, scopes
from onnx_nb.analysis.view.columns import Columns, StringTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from onnx_nb.analysis.graph.diagnostics import Problem

FOLDED, FAULTY, CALLS, DIFFERS = 1, 2, 4, 8
"""Flags of a node: drawn inside its readers; has a problem; calls a local function; differs in a repeat."""
OUTPUT, CONSTANT, FAULTY_VALUE = 1, 2, 4
"""Flags of a value: graph output; weight or result of a folded node; has a problem."""

VERSION = 1
LITERAL_LIMIT = 4
"""Maximum number of elements of a constant that is shown as numbers."""
LISTED = 12
"""Maximum number of differing members listed at a repeat."""
DIFFERENCE_LIMIT = 300
ATTRIBUTES_LIMIT = 80
"""Characters of a node's attributes."""


def columns(model: ModelLike) -> Columns:
    """Return the columns of a model's graph, made at the first call and kept with the model."""
    loaded = load(model)
    graph = Graph.opened(loaded)
    return cached(loaded, Columns, lambda: _columns(graph, scopes(graph)))


def _columns(graph: Graph, tree: Scopes) -> Columns:
    table = StringTable()
    size = _Sizes(graph)
    arrays: dict[str, NDArray[Any]] = {}
    arrays |= _operator_columns(graph, table)
    arrays |= _node_columns(graph, tree, table)
    arrays |= _value_columns(graph, size, table)
    pairs = np.asarray([pair for _, *pair in yields(graph)], np.int32).reshape(-1, 2)
    arrays |= {"yield_value": pairs[:, 0].copy(), "yield_output": pairs[:, 1].copy()}
    arrays |= {"graph_inputs": graph.inputs, "graph_outputs": graph.outputs}
    arrays |= _scope_columns(graph, tree, size, table)
    arrays |= _differences(graph, tree, arrays, table)
    return Columns(table.arrays() | arrays, _meta(graph, tree, size))


class _Sizes:
    """Elements and bytes of every weight, from its type."""

    def __init__(self, graph: Graph) -> None:
        known = graph.known_types
        self.by_type = np.asarray([_elements(kind) for kind in known])
        width = np.asarray([_BITS.get(kind.dtype, 0) / 8 for kind in known])
        weight = graph.value_kind == INITIALIZER
        self.elements = np.where(weight, self.by_type[graph.type_index], 0.0)
        self.bytes = np.ceil(self.elements * width[graph.type_index])


def _elements(kind: ValueType) -> float:
    if kind.shape is None or not all(isinstance(dim, int) for dim in kind.shape):
        return math.inf
    product = 1.0
    for dim in kind.shape:
        product *= max(int(dim or 0), 0)
    return min(product, 1e300)


_BITS = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 64),
    "complex128": 128,
    "float8e8m0": 8,
    **dict.fromkeys(("int4", "uint4", "float4e2m1"), 4),
    **dict.fromkeys(("int2", "uint2"), 2),
}


def _operator_columns(graph: Graph, table: StringTable) -> dict[str, NDArray[Any]]:
    inputs = []
    functions = {(domain, name): function for (domain, name, _), function in graph.functions.items()}
    for op, domain in graph.operators:
        called = functions.get((domain, op))
        names = [plain_text(name) for name in called.input] if called else _input_names(graph, op, domain)
        inputs.append(",".join(name.replace(",", " ") for name in names))
    return {
        "op_name": table.each([op for op, _ in graph.operators]),
        "op_domain": table.each([domain for _, domain in graph.operators]),
        "op_category": np.asarray([operators.category(*key) for key in graph.operators], np.uint8),
        "op_inputs": table.each(inputs),
        "op_defaults": table.each([_defaults_text(graph, op, domain, functions) for op, domain in graph.operators]),
    }


def _input_names(graph: Graph, op: str, domain: str) -> Sequence[str]:
    domain = operators.canonical(domain)
    return operators.input_names(op, domain, graph.opsets.get(domain, 0))


def _node_columns(graph: Graph, tree: Scopes, table: StringTable) -> dict[str, NDArray[Any]]:
    flags = np.where(graph.folded, FOLDED, 0).astype(np.uint8)
    flags[graph.problem_nodes] |= FAULTY
    local = {(name, domain) for domain, name, _ in graph.functions}
    calls = np.asarray([key in local for key in graph.operators], bool)
    flags[calls[graph.op_index]] |= CALLS if len(calls) else 0
    bodies = np.full(graph.node_count, -1, np.int32)
    owned = np.flatnonzero((tree.scope_kind == BODY) | (tree.scope_kind == FUNCTION))
    bodies[tree.scope_node[owned]] = owned
    return {
        "node_op": graph.op_index.astype(np.uint32),
        "node_name": table.block(graph.name_spans),
        "node_scope": tree.node_scope.astype(np.uint32),
        "node_flags": flags,
        "node_attributes": _attributes(graph, table),
        "node_body": bodies,
        "in_ptr": graph.in_ptr.astype(np.uint32),
        "in_value": graph.in_value,
        "out_ptr": graph.out_ptr.astype(np.uint32),
        "out_value": graph.out_value,
    }


def _attributes(graph: Graph, table: StringTable) -> NDArray[np.uint32]:
    """Describe the attributes of each node; equal bytes are described once."""
    found = np.zeros(graph.node_count, np.uint32)
    seen: dict[tuple[int, bytes], int] = {}
    index = graph.op_index
    for node, serialized in graph.with_attributes():
        key = int(index[node]), serialized
        number = seen.get(key)
        if number is None:
            op, domain = graph.operators[key[0]]
            number = seen[key] = table.one(_attributes_text(graph, op, domain, serialized))
        found[node] = number
    return found


_IDLE = {"dilations": 1, "strides": 1, "pads": 0}
"""Neutral element of attributes that are lists: they have no effect if all their numbers are this."""


def _attributes_text(graph: Graph, op: str, domain: str, serialized: bytes) -> str:
    if op == "Constant":
        return ""  # its value shows it
    domain = operators.canonical(domain)
    defaults = operators.attribute_defaults(op, domain, graph.opsets.get(domain, 0))
    shown = []
    for attribute in onnx.NodeProto.FromString(serialized).attribute:
        name = plain_text(attribute.name)
        value = _attribute_text(name, attribute, defaults.get(name))
        if value:
            shown.append(f"{name} {value}")
    joined = " · ".join(shown)
    return shortened(joined, ATTRIBUTES_LIMIT)


def _defaults_text(graph: Graph, op: str, domain: str, functions: Mapping[tuple[str, str], onnx.FunctionProto]) -> str:
    """Describe the default attributes of an operator, in the form of `_attributes_text`."""
    if (called := functions.get((domain, op))) is not None:
        parts = [
            (plain_text(attribute.name), _attribute_text("", attribute, None)) for attribute in called.attribute_proto
        ]
    else:
        domain = operators.canonical(domain)
        opset = graph.opsets.get(domain, 0)
        defaults = operators.attribute_defaults(op, domain, opset)
        parts = [(n, _attribute_text(n, onnx.helper.make_attribute(n, value), None)) for n, value in defaults.items()]
        schema = operators.schema(op, domain, opset)
        # one number for each axis, which onnx documents only in words
        parts += [(n, f"{idle}…") for n, idle in _IDLE.items() if schema is not None and n in schema.attributes]
    return " · ".join(f"{name} {value}" for name, value in parts if value)


def _attribute_text(name: str, attribute: onnx.AttributeProto, default: Any) -> str:
    kind = attribute.type
    if kind == onnx.AttributeProto.INT:
        if attribute.i == default:
            return ""
        return dtype_name(attribute.i) if name in ("to", "dtype", "output_dtype") else str(attribute.i)
    if kind == onnx.AttributeProto.FLOAT:
        return "" if attribute.f == default else _number(attribute.f)
    if kind == onnx.AttributeProto.STRING:
        value = plain_text(attribute.s[:ATTRIBUTES_LIMIT])
        return "" if value == default else value
    if kind == onnx.AttributeProto.INTS:
        idle = _IDLE.get(name)
        if attribute.ints and all(i == idle for i in attribute.ints[:16]):
            return ""
        items = [str(i) for i in attribute.ints[:8]] + ["…"] * (len(attribute.ints) > 8)  # fits a box
        return "×".join(items) if name in ("kernel_shape", "strides", "dilations") else f"[{', '.join(items)}]"
    if kind == onnx.AttributeProto.FLOATS:
        items = [_number(f) for f in attribute.floats[:8]] + ["…"] * (len(attribute.floats) > 8)
        return f"[{', '.join(items)}]"
    if kind == onnx.AttributeProto.TENSOR:
        return _literal(attribute.t) or str(ValueType(dtype_name(attribute.t.data_type), tuple(attribute.t.dims)))
    return ""


def _value_columns(graph: Graph, size: _Sizes, table: StringTable) -> dict[str, NDArray[Any]]:
    flags = np.where(graph.constant_values, CONSTANT, 0).astype(np.uint8)
    flags[graph.outputs[graph.outputs >= 0]] |= OUTPUT
    flags[graph.problem_values] |= FAULTY_VALUE
    dtypes = table.each([kind.dtype for kind in graph.known_types])
    shapes = table.each([kind.shape_text for kind in graph.known_types])
    return {
        "value_name": table.block(graph.value_spans),
        "value_kind": graph.value_kind,
        "value_flags": flags,
        "value_dtype": dtypes[graph.type_index],
        "value_shape": shapes[graph.type_index],
        "value_literal": _literals(graph, size, table),
    }


def yields(graph: Graph) -> Iterator[tuple[int, int, int]]:
    """Yield each subgraph and result of it with the output of its owner: of each branch of an If, of a Loop's last run.

    The owner may omit trailing outputs, a body may not.
    """
    for number, subgraph in enumerate(graph.subgraphs[1:], 1):
        loop = graph.operators[graph.op_index[subgraph.owner_node]] == (
            "Loop",
            "",
        )  # whose first result is the condition
        made = graph.node_outputs(subgraph.owner_node).tolist()
        for value, output in zip(subgraph.outputs.tolist()[loop:], made, strict=False):
            if value >= 0 and output >= 0:
                yield number, value, output


def _literals(graph: Graph, size: _Sizes, table: StringTable) -> NDArray[np.uint32]:
    """Write out constants of a few elements: weights kept in the proto, and Constant nodes."""
    found = np.zeros(graph.value_count, np.uint32)
    for frame in graph.subgraphs:
        kind = graph.type_index[frame.weights]
        small = np.flatnonzero(size.by_type[kind[: len(frame.graph.initializer)]] <= LITERAL_LIMIT)
        for number in np.unique(kind[small]).tolist():
            positions = small[kind[small] == number].tolist()
            tensors = [frame.graph.initializer[position] for position in positions]
            shown = _literals_of(graph.known_types[number], int(size.by_type[number]), tensors)
            found[frame.weights[positions]] = table.each(shown)
    constants: dict[bytes, int] = {}
    makers = np.asarray([operator == ("Constant", "") for operator in graph.operators], bool)
    for node in np.flatnonzero(makers[graph.op_index]).tolist() if len(makers) else ():
        serialized = graph.attribute_bytes(node)
        if serialized not in constants:
            constants[serialized] = table.one(_constant_literal(serialized))
        for value in graph.node_outputs(node).tolist():
            if value >= 0:
                found[value] = constants[serialized]
    return found


def _literals_of(kind: ValueType, count: int, tensors: Sequence[onnx.TensorProto]) -> list[str]:
    """Write out weights of one type, those with plain numbers all at once."""
    raw = [tensor.raw_data for tensor in tensors]
    width = {"float32": 4, "int64": 8, "int32": 4, "float64": 8}.get(kind.dtype, 0)
    if not count or not width or any(len(data) != width * count for data in raw):
        return [_literal(tensor) for tensor in tensors]
    numbers = np.frombuffer(b"".join(raw), f"<{kind.dtype[0]}{width}").tolist()
    form = ", ".join(["%.6g" if kind.dtype[0] == "f" else "%d"] * count)
    form = f"[{form}]" if kind.shape else form
    return [form % row for row in zip(*[iter(numbers)] * count, strict=True)]


def _constant_literal(serialized: bytes) -> str:
    for attribute in onnx.NodeProto.FromString(serialized).attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            return _literal(attribute.t)
        kinds = {"value_float": "f", "value_int": "i", "value_string": "s"}
        lists = {"value_floats": "floats", "value_ints": "ints", "value_strings": "strings"}
        name = plain_text(attribute.name)
        if name in kinds:
            return _plain(getattr(attribute, kinds[name]))
        if name in lists and len(getattr(attribute, lists[name])) <= LITERAL_LIMIT:
            return f"[{', '.join(_plain(item) for item in getattr(attribute, lists[name]))}]"
    return ""


def _literal(tensor: onnx.TensorProto) -> str:
    """Write out a small tensor as "0.125" or "[0, 0, 768]"; empty if it is large, elsewhere or damaged."""
    large = len(tensor.dims) > LITERAL_LIMIT or math.prod(max(dim, 0) for dim in tensor.dims) > LITERAL_LIMIT
    if large or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return ""
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except Exception:  # noqa: BLE001 (a damaged tensor raises whatever numpy raises; it has no preview, and tensor() tells why)
        return ""
    items = [_plain(item) for item in array.ravel().tolist()]
    return items[0] if not array.ndim and items else f"[{', '.join(items)}]"


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        value = plain_text(value[:40])
    if isinstance(value, float):
        return _number(value)
    return shortened(str(value), 24)  # fits a box


def _number(value: float) -> str:
    """Write a float32 with as many digits as it has.

    >>> _number(np.float32(0.1).item()), _number(1e-12), _number(-3.4028234663852886e38), _number(2.0)
    ('0.1', '1e-12', '-3.40282e+38', '2')
    """
    return f"{value:.6g}"


def _scope_columns(graph: Graph, tree: Scopes, size: _Sizes, table: StringTable) -> dict[str, NDArray[Any]]:
    count = len(tree.scope_parent)
    drawn = np.bincount(tree.node_scope[~graph.folded], minlength=count).astype(np.float64)
    pairs = _weights_by_scope(graph, tree)
    depth = depths(tree.scope_parent)
    return {
        "scope_parent": tree.scope_parent,
        "scope_name": table.each(tree.scope_name),
        "scope_path": table.block(Spans.of(tree.scope_path)),
        "scope_class": table.each(tree.scope_class),
        "scope_kind": tree.scope_kind,
        "scope_node": tree.scope_node,
        "scope_nodes": upward(np.add, drawn, tree.scope_parent).astype(np.uint32),
        "scope_params": _distinct(*pairs, size.elements, tree.scope_parent, depth),
        "scope_bytes": _distinct(*pairs, size.bytes, tree.scope_parent, depth),
        "scope_repeat": tree.scope_repeat.astype(np.uint32),
    }


def _differences(
    graph: Graph, tree: Scopes, arrays: Mapping[str, NDArray[Any]], table: StringTable
) -> dict[str, NDArray[Any]]:
    """Mark and describe where the members of repeats differ."""
    told = np.zeros(len(tree.scope_parent), np.uint32)
    if not bool(np.any(np.isin(tree.scope_kind, ROWS))):
        return {"scope_differs": told, "scope_difference": told}
    literal = arrays["value_literal"].astype(np.int64)
    different = repeat_differences(graph, tree, graph.attribute_numbers, literal)
    arrays["node_flags"][different.nodes] |= DIFFERS
    texts: dict[int, list[str]] = {}
    members: dict[int, dict[str, None]] = {}
    for each in different.found:
        text_ = _difference(graph, arrays, table, each)
        if each.member >= 0:
            texts.setdefault(each.member, []).append(text_)
        name = tree.scope_name[each.member] if each.member >= 0 else graph.names[-1 - each.member]
        members.setdefault(each.roof, {})[name or text_] = None
    for roof, names in members.items():
        texts[roof] = [*list(names)[:LISTED], *(["…"] if len(names) > LISTED else [])]
    for group, parts in texts.items():
        joined = (", " if tree.scope_kind[group] in ROWS else "; ").join(parts)
        told[group] = table.one(shortened(joined, DIFFERENCE_LIMIT))
    return {"scope_differs": different.scope_differs.astype(np.uint32), "scope_difference": told}


def _difference(graph: Graph, arrays: Mapping[str, NDArray[Any]], table: StringTable, found: RepeatDifference) -> str:
    """Return how a node differs from the other members: "Softmax axis 1, others −1"."""
    op, domain = graph.operators[graph.op_index[found.node]]
    if found.slot < 0:
        mine, others = (table.text(int(arrays["node_attributes"][node])) for node in (found.node, found.like))
        return f"{shortened(op, 40)} {mine or 'without attributes'}, others {others or 'none'}"

    def said(node: int) -> str:
        value = int(graph.node_inputs(node)[found.slot])
        if value < 0:
            return "nothing"
        if not arrays["value_flags"][value] & CONSTANT:
            return "computed"
        return table.text(int(arrays["value_literal"][value])) or str(graph.type_of(value)) or "a constant"

    names = _input_names(graph, op, domain)
    name = names[found.slot] if found.slot < len(names) else f"input {found.slot}"
    return f"{shortened(op, 40)} {shortened(name, 40)} {said(found.node)}, others {said(found.like)}"


def _weights_by_scope(graph: Graph, tree: Scopes) -> tuple[Longs, Longs]:
    """Return each distinct (scope, weight) where a node directly in the scope reads the weight."""
    value = np.repeat(np.arange(graph.value_count), np.diff(graph.consumer_ptr))
    weight = graph.value_kind[value] == INITIALIZER
    value, group = value[weight], tree.node_scope[graph.consumer_node[weight]].astype(np.int64)
    return _unique_pairs(group, value, graph.value_count)


def _unique_pairs(group: Longs, value: Longs, values: int) -> tuple[Longs, Longs]:
    found, rest = np.divmod(sorted_unique(group * max(values, 1) + value), max(values, 1))
    return found, rest


def _distinct(group: Longs, value: Longs, size: NDArray[np.float64], parent: Ints, depth: Longs) -> NDArray[np.float64]:
    """Sum the sizes of the distinct weights in each scope, at any depth."""
    shared = np.bincount(value, minlength=len(size))[value] > 1
    own = np.bincount(group[~shared], size[value[~shared]], minlength=len(parent)).astype(np.float64)
    total = upward(np.add, own, parent)
    group, value = group[shared], value[shared]
    for level in range(int(depth.max()), -1, -1):
        here = depth[group] == level
        np.add.at(total, group[here], size[value[here]])
        group = np.where(here, parent[group], group)
        kept = group >= 0
        group, value = _unique_pairs(group[kept], value[kept], len(size))
    return total


def _meta(graph: Graph, tree: Scopes, size: _Sizes) -> dict[str, Any]:
    proto = graph.model.proto
    return {
        "version": VERSION,
        "name": graph.model.name,
        "ir_version": int(proto.ir_version),
        "opsets": dict(graph.opsets),
        "producer": " ".join(
            part for part in (plain_text(proto.producer_name), plain_text(proto.producer_version)) if part
        ),
        "categories": list(operators.CATEGORIES),
        "scope_source": tree.source,
        "main_nodes": graph.main_count,
        "nodes": graph.node_count,
        "values": graph.value_count,
        "nbytes": int(min(size.bytes[graph.subgraphs[0].weights].sum(), 2**53)),
        "faults": [_fault(fault) for fault in graph.problems],
    }


def _fault(fault: Problem) -> dict[str, Any]:
    return {"kind": fault.kind, "message": fault.message, "node": fault.node, "value": fault.value}
