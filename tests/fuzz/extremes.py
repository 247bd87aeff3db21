"""``python -m tests.fuzz.extremes``: the extremes of each attribute, input and count of every operator, one at a time.

Each is a model of one node that is looked at, simplified and drawn in a child process, which must not crash, hang, or
raise a foreign error. Nothing is drawn at random.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

import onnx_nb
from tests.fuzz.isolated import finds

FINDS: Final = Path(__file__).with_name("finds")
VERBS: Final = ("look", "summarize", "costs", "graph", "check", "simplify")
ENDS: Final = (-(2**63), -(2**31), -1000, -2, -1, 0, 1, 2, 1000, 2**31 - 1, 2**40, 2**63 - 1)
"""Integers that something may be multiplied with, divided by, or allocated for."""
SHAPES: Final[tuple[tuple[int, ...] | None, ...]] = ((2, 3), (2, 3, 4, 4), (), (0, 2), None)
KINDS: Final = defs.OpSchema.AttrType
VALUES: Final[dict[Any, tuple[Any, ...]]] = {
    KINDS.INT: ENDS,
    KINDS.INTS: ([], *([end] for end in ENDS), [-1, -1], [0, 0, 0], [2**62] * 4, [1] * 64),
    KINDS.FLOAT: (float("nan"), float("inf"), -1e38, -1.0, 0.0, 1e38),
    KINDS.FLOATS: ([], [float("nan")], [-1.0, 0.0, 1e38]),
    KINDS.STRING: (b"", b"x", b"\xff\xfe", b"a" * 5000, b"NOTSET", b"SAME_UPPER"),
    KINDS.STRINGS: ([], [b""], [b"\xff"], [b"a", b"b"]),
    KINDS.TENSOR: (
        numpy_helper.from_array(np.zeros(0, np.float32)),
        numpy_helper.from_array(np.ones((2, 2), np.int64)),
    ),
    KINDS.TYPE_PROTO: (onnx.TypeProto(), helper.make_tensor_type_proto(99, [2])),
}
"""Type of an attribute → the values that are tried."""
PREFERRED: Final = ("tensor(float)", "tensor(int64)", "tensor(bool)", "tensor(string)", "tensor(uint8)")


def schemas() -> list[defs.OpSchema]:
    """Return the newest schema of every operator that onnx defines, in order of their names."""
    every = defs.get_all_schemas()
    return sorted(
        (schema for schema in every if not schema.deprecated), key=lambda schema: (schema.domain, schema.name)
    )


def extremes(schema: defs.OpSchema) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield models of one node, each with a label of what is extreme in it."""
    count = min(max(schema.min_input, len(schema.inputs)), 6)
    for shape in SHAPES:
        yield f"shape {shape}", model(schema, count, shape=shape)
    for number in range(min(schema.max_input, 7) + 2):
        yield f"{number} inputs", model(schema, number)
    for number in range(min(schema.max_output, 7) + 2):
        yield f"{number} outputs", model(schema, count, outputs=number)
    for name, attribute in sorted(schema.attributes.items()):
        for value, shape in itertools.product(VALUES.get(attribute.type, ()), SHAPES[:3]):
            text = repr(value)[:40]
            yield f"{name}={text} on {shape}", model(schema, count, shape=shape, attributes={name: value})
            yield (
                f"{name}={text} of constants",
                model(schema, count, shape=shape, attributes={name: value}, constant=True),
            )
    for place in range(count):
        for value in (*([end] for end in ENDS), [], [-1, -1], [2**62] * 4, [1] * 64, -1, 0, 2**62):
            yield f"input {place} is {value}", model(schema, count, constants={place: value})


def model(
    schema: defs.OpSchema,
    inputs: int,
    *,
    outputs: int | None = None,
    shape: tuple[int, ...] | None = (2, 3),
    attributes: dict[str, Any] | None = None,
    constants: dict[int, Any] | None = None,
    constant: bool = False,
) -> onnx.ModelProto:
    """Return a model of one node, whose inputs are those of the graph, or constants."""
    weights, ports, names = [], [], []
    for place in range(inputs):
        kind = helper.np_dtype_to_tensor_dtype(dtype_of(schema, place))
        name = f"x{place}"
        names.append(name)
        if constants and place in constants:
            array = np.asarray(constants[place], np.int64)
            weights.append(numpy_helper.from_array(array, name))
        elif constant and shape is not None:
            weights.append(numpy_helper.from_array(np.ones(shape, dtype_of(schema, place)), name))
        else:
            ports.append(helper.make_tensor_value_info(name, kind, shape))
    count = min(max(schema.min_output, 1), 4) if outputs is None else outputs
    node = helper.make_node(schema.name, names, [f"y{place}" for place in range(count)], "n", domain=schema.domain)
    for name, value in (required(schema) | (attributes or {})).items():
        code: Any = schema.attributes[name].type
        number: Any = int(code)
        attribute = onnx.AttributeProto(name=name, type=number)
        set_value(attribute, value)
        kept = [other for other in node.attribute if other.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, attribute])
    # what reads two outputs keeps both alive
    nodes = [node, *([helper.make_node("Add", node.output[:2], ["sum"])] if count > 1 else [])]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name=name) for name in nodes[-1].output], weights)
    opset = helper.make_opsetid(schema.domain, schema.since_version)
    more = [] if not schema.domain else [helper.make_opsetid("", defs.onnx_opset_version())]
    return helper.make_model(graph, opset_imports=[opset, *more], ir_version=10)


def required(schema: defs.OpSchema) -> dict[str, Any]:
    """Return a plain value for each attribute that an operator needs."""
    plain = {
        KINDS.INT: 1, KINDS.INTS: [1], KINDS.FLOAT: 1.0, KINDS.FLOATS: [1.0], KINDS.STRING: b"x", KINDS.STRINGS: [b"x"],
    }  # fmt: skip
    return {
        name: plain[attribute.type]
        for name, attribute in schema.attributes.items()
        if attribute.required and attribute.type in plain
    }


def set_value(attribute: onnx.AttributeProto, value: Any) -> None:
    """Set the value of an attribute whose type is known."""
    fields = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings", 13: "tp"}
    field = fields[attribute.type]
    if field in ("t", "tp"):
        getattr(attribute, field).CopyFrom(value)
    elif isinstance(value, list):
        getattr(attribute, field).extend(value)
    else:
        setattr(attribute, field, value)


def dtype_of(schema: defs.OpSchema, place: int) -> np.dtype[Any]:
    """Return a type that an operator takes at an input."""
    formal = schema.inputs[min(place, len(schema.inputs) - 1)] if schema.inputs else None
    kinds = {str(kind) for kind in formal.types} if formal is not None else set()
    for name, dtype in zip(PREFERRED, ("float32", "int64", "bool", "object", "uint8"), strict=True):
        if name in kinds:
            return np.dtype(dtype)
    return np.dtype(np.float32)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pass and return the exit status: 1 if something was found, whose models are kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.extremes", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR")
    parser.add_argument("--verbs", nargs="*", default=list(VERBS))
    chosen = parser.parse_args(arguments)
    for name in dir(onnx_nb):  # imported once here, not in every child
        getattr(onnx_nb, name, None)
    known: set[tuple[str, str, str]] = set()
    tried = 0
    for schema in schemas():
        if chosen.operators and schema.name not in chosen.operators:
            continue
        for label, proto in extremes(schema):
            tried += 1
            data = proto.SerializeToString()
            for find in finds(data, chosen.verbs):
                cause = schema.name, find.kind, find.about
                if cause not in known:
                    (FINDS / f"{schema.name}_{find.name}.onnx").write_bytes(data)
                    print(f"{schema.domain} {schema.name}, {label}: {find.verb} {find.kind} {find.about}", flush=True)
                known.add(cause)
    print(f"{tried:,} models, {len(known)} finds")
    return int(bool(known))


if __name__ == "__main__":
    sys.exit(main())
