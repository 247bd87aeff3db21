"""The graph as the browser receives it: columns of nodes, values and scopes; `frontend/protocol/columns.ts` reads them.

Names of nodes and tensors are added to the string table as blocks, without a search for equal ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import shape_nodes, upward
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.types import ValueType, weight_sizes
from onnx_nb.analysis.model.model import ModelLike, cached, label_of, load, storage_of
from onnx_nb.analysis.model.protofields import Spans, sorted_unique
from onnx_nb.analysis.model.tensors import as_tensor, dtype_name
from onnx_nb.analysis.scopes.repeat_differences import RepeatDifference, repeat_differences
from onnx_nb.analysis.scopes.scopes import BODY, FUNCTION, ROWS, Scopes, scopes
from onnx_nb.analysis.scopes.weights import scope_weights, weights_read
from onnx_nb.analysis.view.columns import Columns, StringTable

FOLDED, FAULTY, CALLS, DIFFERS, SHAPES = 1, 2, 4, 8, 16
"""Flags of a node: drawn inside its readers; problem; call of a function; differs in a repeat; computes only shapes."""
OUTPUT, CONSTANT, FAULTY_VALUE = 1, 2, 4
"""Flags of a value: graph output; weight or result of a folded node; has a problem."""

VERSION = 1
_NARROW = (
    *("node_op", "node_scope", "node_module", "node_attributes", "value_dtype", "value_shape", "value_literal"),
    *("scope_class", "scope_nodes", "scope_repeat", "scope_differs", "scope_difference"),
)
"""Columns of numbers that are small in most graphs: a page holds them as they are sent."""
LITERAL_LIMIT = 4
"""Maximum number of elements of a constant that is displayed as numbers."""
MEMBERS_LIMIT = 12
"""Maximum number of differing members listed at a repeat."""
DIFFERENCE_LIMIT = 300
ATTRIBUTES_LIMIT = 80
"""Maximum number of characters of a node's attributes."""


def columns(model: ModelLike) -> Columns:
    """Return the columns of a model's graph, which are computed once and kept with the model."""
    source = load(model)
    graph = Graph.opened(source)
    return cached(source, Columns, lambda: _columns(graph, scopes(graph)))


def _columns(graph: Graph, tree: Scopes) -> Columns:
    table = StringTable()
    pairs = np.asarray([pair for _, *pair in yields(graph)], np.int32).reshape(-1, 2)
    arrays: dict[str, NDArray[Any]] = {**_operator_columns(graph, table), **_node_columns(graph, tree, table)}
    flags = np.where(graph.constant_values, CONSTANT, 0).astype(np.uint8)
    flags[graph.outputs[graph.outputs >= 0]] |= OUTPUT
    flags[graph.structural_problems.values] |= FAULTY_VALUE
    dtypes = table.each([kind.dtype for kind in graph.known_types])
    shapes = table.each([kind.shape_text for kind in graph.known_types])
    counts = np.bincount(tree.node_scope[~graph.folded], minlength=len(tree.scope_parent)).astype(np.float64)
    reader, value, *sizes = weights_read(graph)
    arrays |= {
        "value_name": table.block(graph.value_spans),
        "value_kind": graph.value_kind,
        "value_flags": flags,
        "value_dtype": dtypes[graph.type_index],
        "value_shape": shapes[graph.type_index],
        "value_literal": _literals(graph, table),
        "graph_inputs": graph.inputs,
        "graph_outputs": graph.outputs,
        "yield_value": pairs[:, 0].copy(),
        "yield_output": pairs[:, 1].copy(),
        **{name: getattr(tree, name) for name in ("scope_parent", "scope_kind", "scope_node")},
        "scope_name": table.each(tree.scope_name),
        "scope_path": table.block(Spans.of(tree.scope_path)),
        "scope_class": table.each(tree.scope_class),
        "scope_nodes": upward(np.add, counts, tree.scope_parent).astype(np.uint32),
        "scope_params": scope_weights(tree, reader, value, sizes[0]),
        "scope_bytes": scope_weights(tree, reader, value, sizes[1]),
        "scope_repeat": tree.scope_repeat.astype(np.uint32),
    }
    arrays |= _differences(graph, tree, arrays, table)
    arrays |= {name: arrays[name].astype(np.min_scalar_type(int(arrays[name].max(initial=0)))) for name in _NARROW}
    proto = graph.model.proto
    producer = (plain_text(proto.producer_name), plain_text(proto.producer_version))
    meta = {
        "version": VERSION,
        "name": graph.model.name,
        "ir_version": int(proto.ir_version),
        "opsets": dict(graph.opsets),
        "producer": " ".join(filter(None, producer)),
        "categories": list(operators.CATEGORIES),
        "scope_source": tree.source,
        "main_nodes": graph.main_count,
        "nodes": graph.node_count,
        "values": graph.value_count,
        "nbytes": int(min(graph.model.nbytes if graph.functions else weight_sizes(graph)[1].sum(), 2**53)),
        "faults": [
            *(
                {"kind": "external_data", "message": str(error), "node": -1, "value": graph.value(name)}
                for name, error in storage_of(graph.model).unusable(proto, label_of(graph.model))
            ),
            *map(asdict, graph.problems),
        ],
    }
    return Columns(table.arrays() | arrays, meta)


def _operator_columns(graph: Graph, table: StringTable) -> dict[str, NDArray[Any]]:
    inputs, defaults = [], []
    functions = {(domain, name): function for (domain, name, _), function in graph.functions.items()}
    for op, domain in graph.operators:
        opset, body = graph.opsets.get(domain, 0), functions.get((domain, op))
        if body is not None:
            names = [plain_text(name) for name in body.input]
            attributes = {attribute.name: attribute for attribute in body.attribute_proto}
        else:
            names = [*operators.input_names(op, domain, opset)]
            pairs = operators.attribute_defaults(op, domain, opset).items()
            attributes = {name: onnx.helper.make_attribute(name, value) for name, value in pairs}
        texts = {name: _attribute_text("" if body else name, entry, None) for name, entry in attributes.items()}
        parts = [(plain_text(name), text) for name, text in texts.items()]
        if body is None and (schema := operators.schema(op, domain, opset)) is not None:
            # one number for each axis, which onnx only documents in prose
            parts += [(name, f"{idle}…") for name, idle in _IDLE.items() if name in schema.attributes]
        inputs.append(",".join(name.replace(",", " ") for name in names))
        defaults.append(" · ".join(f"{name} {value}" for name, value in parts if value))
    return {
        "op_name": table.each([op for op, _ in graph.operators]),
        "op_domain": table.each([domain for _, domain in graph.operators]),
        "op_category": np.asarray([operators.category(*key) for key in graph.operators], np.uint8),
        "op_inputs": table.each(inputs),
        "op_defaults": table.each(defaults),
    }


def _node_columns(graph: Graph, tree: Scopes, table: StringTable) -> dict[str, NDArray[Any]]:
    flags = (FOLDED * graph.folded + SHAPES * shape_nodes(graph)).astype(np.uint8)
    flags[graph.structural_problems.nodes] |= FAULTY
    local = {(name, domain) for domain, name, _ in graph.functions}
    calls = np.asarray([key in local for key in graph.operators], bool)
    flags[calls[graph.op_index]] |= CALLS if len(calls) else 0
    bodies = np.full(graph.node_count, -1, np.int32)
    owners = np.flatnonzero((tree.scope_kind == BODY) | (tree.scope_kind == FUNCTION))
    bodies[tree.scope_node[owners]] = owners
    modules = np.zeros(graph.node_count, np.uint32)
    modules[list(tree.node_module)] = table.each([*tree.node_module.values()])
    return {
        "node_op": graph.op_index.astype(np.uint32),
        "node_name": table.block(graph.name_spans),
        "node_scope": tree.node_scope.astype(np.uint32),
        "node_module": modules,
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
    numbers = np.zeros(graph.node_count, np.uint32)
    texts: dict[tuple[int, bytes], int] = {}
    index = graph.op_index
    for node, content in graph.with_attributes():
        key = int(index[node]), content
        if key not in texts:
            op, domain = graph.operators[key[0]]
            defaults = operators.attribute_defaults(op, domain, graph.opsets.get(domain, 0))
            entries = onnx.NodeProto.FromString(content).attribute if op != "Constant" else ()  # its value is shown
            rows = [(plain_text(entry.name), entry) for entry in entries]
            pairs = ((name, _attribute_text(name, entry, defaults.get(name))) for name, entry in rows)
            parts = [f"{name} {value}" for name, value in pairs if value]
            texts[key] = table.one(shortened(" · ".join(parts), ATTRIBUTES_LIMIT))
        numbers[node] = texts[key]
    return numbers


_IDLE = {"dilations": 1, "strides": 1, "pads": 0}
"""Neutral element of attributes that are lists: they have no effect if all their numbers equal it."""
_KIND = onnx.AttributeProto
_FIELD = {_KIND.INT: "i", _KIND.FLOAT: "f", _KIND.STRING: "s", _KIND.TENSOR: "t"}
_FIELD |= {_KIND.INTS: "ints", _KIND.FLOATS: "floats"}
"""Type of an attribute → field of the message that holds its value, for the types that are displayed."""


def _attribute_text(name: str, attribute: onnx.AttributeProto, default: Any) -> str:
    """Return the value of an attribute as short text; empty if it is the default or has no effect."""
    field = "t" if attribute.HasField("t") else _FIELD.get(attribute.type, "")
    value: Any = getattr(attribute, field, None)
    if field == "s":
        value = plain_text(attribute.s[:ATTRIBUTES_LIMIT])
        return "" if value == default else value
    if field == "t":
        return _literal(attribute.t) or str(ValueType(dtype_name(attribute.t.data_type), tuple(attribute.t.dims)))
    if field in ("i", "f"):
        is_dtype = field == "i" and name in ("to", "dtype", "output_dtype")
        return "" if value == default else dtype_name(attribute.i) if is_dtype else _plain(value)
    if not field or (field == "ints" and value and all(i == _IDLE.get(name) for i in value[:16])):
        return ""
    items = [*map(_plain, value[:8]), *(["…"] if len(value) > 8 else [])]  # fits a box
    return "×".join(items) if name in ("kernel_shape", "strides", "dilations") else f"[{', '.join(items)}]"


def yields(graph: Graph) -> Iterator[tuple[int, int, int]]:
    """Yield subgraph, result of the subgraph, output of its owner: for each branch of an If, for a Loop's last run.

    The owner may omit trailing outputs, a body may not.
    """
    for number, subgraph in enumerate(graph.subgraphs[1:], 1):
        # the first result of a Loop is the condition
        is_loop = graph.operators[graph.op_index[subgraph.owner_node]] == ("Loop", "")
        outputs = graph.node_outputs(subgraph.owner_node).tolist()
        for value, output in zip(subgraph.outputs.tolist()[is_loop:], outputs, strict=False):
            if value >= 0 and output >= 0:
                yield number, value, output


def _literals(graph: Graph, table: StringTable) -> NDArray[np.uint32]:
    """Write out constants of a few elements: weights kept in the proto, and Constant nodes."""
    numbers = np.zeros(graph.value_count, np.uint32)
    counts = [LITERAL_LIMIT + 1 if kind.size is None else kind.size for kind in graph.known_types]
    few = np.asarray(counts) <= LITERAL_LIMIT
    for subgraph in graph.subgraphs:
        kind = graph.type_index[subgraph.weights]
        small = np.flatnonzero(few[kind[: len(subgraph.graph.initializer)]])
        for number in sorted_unique(kind[small]).tolist():
            positions = small[kind[small] == number].tolist()
            tensors = [subgraph.graph.initializer[position] for position in positions]
            literals = _literals_of(graph.known_types[number], counts[number], tensors)
            numbers[subgraph.weights[positions]] = table.each(literals)
    constants: dict[bytes, int] = {}
    for node in np.flatnonzero(graph.is_constant).tolist():
        content = graph.attribute_bytes(node)
        if content not in constants:
            entries = map(as_tensor, onnx.NodeProto.FromString(content).attribute)
            written = (_literal(entry) for entry in entries if isinstance(entry, onnx.TensorProto))
            constants[content] = table.one(next(written, ""))
        numbers[graph.results(node)] = constants[content]
    return numbers


def _literals_of(kind: ValueType, count: int, tensors: Sequence[onnx.TensorProto]) -> list[str]:
    """Write out weights of one type, those with plain numbers in one step."""
    raw = [tensor.raw_data for tensor in tensors]
    width = {"float32": 4, "int64": 8, "int32": 4, "float64": 8}.get(kind.dtype, 0)
    if not count or not width or any(len(data) != width * count for data in raw):
        return [_literal(tensor) for tensor in tensors]
    numbers = np.frombuffer(b"".join(raw), f"<{kind.dtype[0]}{width}").tolist()
    form = ", ".join(["%.6g" if kind.dtype[0] == "f" else "%d"] * count)
    form = f"[{form}]" if kind.shape else form
    return [form % row for row in zip(*[iter(numbers)] * count, strict=True)]


def _literal(tensor: onnx.TensorProto) -> str:
    """Write out a small tensor as "0.125" or "[0, 0, 768]"; empty if it is large, external or damaged."""
    large = len(tensor.dims) > LITERAL_LIMIT or math.prod(max(dim, 0) for dim in tensor.dims) > LITERAL_LIMIT
    if large or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return ""
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except Exception:  # noqa: BLE001 (a damaged tensor raises whatever numpy raises; no preview, and tensor() has the reason)
        return ""
    items = [_plain(item) for item in array.ravel().tolist()]
    return items[0] if not array.ndim and items else f"[{', '.join(items)}]"


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        value = plain_text(value[:40])
    # the significant digits of a float32; a text that fits a box
    return f"{value:.6g}" if isinstance(value, float) else shortened(str(value), 24)


def _differences(
    graph: Graph, tree: Scopes, arrays: Mapping[str, NDArray[Any]], table: StringTable
) -> dict[str, NDArray[Any]]:
    """Mark and describe the differences between the members of repeats."""
    numbers = np.zeros(len(tree.scope_parent), np.uint32)
    if not bool(np.any(np.isin(tree.scope_kind, ROWS))):
        return {"scope_differs": numbers, "scope_difference": numbers}
    literals = arrays["value_literal"].astype(np.int64)
    differs, nodes, differences = repeat_differences(graph, tree, graph.attribute_numbers, literals)
    arrays["node_flags"][nodes] |= DIFFERS
    texts: dict[int, list[str]] = {}
    members: dict[int, dict[str, None]] = {}
    for entry in differences:
        text_ = _difference(graph, arrays, table, entry)
        if entry.member >= 0:
            texts.setdefault(entry.member, []).append(text_)
        name = tree.scope_name[entry.member] if entry.member >= 0 else graph.names[-1 - entry.member]
        members.setdefault(entry.roof, {})[name or text_] = None
    for roof, names in members.items():
        texts[roof] = [*list(names)[:MEMBERS_LIMIT], *(["…"] if len(names) > MEMBERS_LIMIT else [])]
    for group, parts in texts.items():
        line = (", " if tree.scope_kind[group] in ROWS else "; ").join(parts)
        numbers[group] = table.one(shortened(line, DIFFERENCE_LIMIT))
    return {"scope_differs": differs.astype(np.uint32), "scope_difference": numbers}


def _difference(graph: Graph, arrays: Mapping[str, NDArray[Any]], table: StringTable, entry: RepeatDifference) -> str:
    """Describe the difference between a node and the other members: "Softmax axis 1, others −1"."""
    op, domain = graph.operators[graph.op_index[entry.node]]
    if entry.slot < 0:
        words, others = (table.text(int(arrays["node_attributes"][node])) for node in (entry.node, entry.like))
        return f"{shortened(op, 40)} {words or 'without attributes'}, others {others or 'none'}"

    def text(node: int) -> str:
        value = int(graph.node_inputs(node)[entry.slot])
        if value < 0:
            return "nothing"
        if not arrays["value_flags"][value] & CONSTANT:
            return "computed"
        return table.text(int(arrays["value_literal"][value])) or str(graph.type_of(value)) or "a constant"

    names = operators.input_names(op, domain, graph.opsets.get(domain, 0))
    name = names[entry.slot] if entry.slot < len(names) else f"input {entry.slot}"
    return f"{shortened(op, 40)} {shortened(name, 40)} {text(entry.node)}, others {text(entry.like)}"
