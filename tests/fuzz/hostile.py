"""Small files that claim, nest or repeat far more than they hold: each once hung, crashed or filled the memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

N = helper.make_node
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def value(name: str, shape: Sequence[int | str | None] | None = None, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    """Declare a tensor."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[NodeProto],
    weights: Sequence[TensorProto] = (),
    inputs: Sequence[ValueInfoProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> ModelProto:
    """Return a model whose output is ``y``."""
    graph = helper.make_graph(nodes, "g", [*(inputs or [value("x", ["n"])])], [value("y")], weights)
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=9)


def _function(name: str, nodes: Sequence[NodeProto]) -> onnx.FunctionProto:
    return helper.make_function("f", name, ["a"], ["b"], nodes, OPSETS)


def _calling(name: str, functions: Sequence[onnx.FunctionProto]) -> ModelProto:
    return model([N(name, ["x"], ["m"], domain="f"), N("Relu", ["m"], ["y"])], functions=functions)


def chained_functions(count: int = 3000) -> ModelProto:
    """Return functions that call each other in a chain."""
    chain = [_function(f"F{i}", [N(f"F{i - 1}", ["a"], ["b"], domain="f")]) for i in range(1, count)]
    return _calling(f"F{count - 1}", [_function("F0", [N("Relu", ["a"], ["b"])]), *chain])


def multiplying_functions(count: int = 40, calls: int = 10) -> ModelProto:
    """Return functions that each call the one before many times."""
    functions = [_function("F0", [N("Relu", ["a"], ["b"])])]
    for i in range(1, count):
        names = ["a", *(f"t{k}" for k in range(calls - 1)), "b"]
        nodes = [N(f"F{i - 1}", [one], [other], domain="f") for one, other in itertools.pairwise(names)]
        functions.append(_function(f"F{i}", nodes))
    return _calling(f"F{count - 1}", functions)


def recursive_function() -> ModelProto:
    """Return a function that calls itself."""
    return _calling("A", [_function("A", [N("A", ["a"], ["b"], domain="f")])])


def _loop(trips: int, body: Sequence[NodeProto], carried: str) -> ModelProto:
    inputs = [value("i", [], TensorProto.INT64), value("ci", [], TensorProto.BOOL), value("v", [None])]
    outputs = [value("co", [], TensorProto.BOOL), value(carried, [None])]
    graph = helper.make_graph([N("Identity", ["ci"], ["co"]), *body], "b", inputs, outputs)
    nodes = [N("Loop", ["m", "c", "o"], ["f"], body=graph), N("Add", ["x", "f"], ["y"])]
    weights = {"m": np.array(trips), "c": np.array(True), "o": np.ones(1, "f4")}
    return model(nodes, [numpy_helper.from_array(array, name) for name, array in weights.items()])


def endless_loop() -> ModelProto:
    """Return a loop that no run finishes."""
    return _loop(2**62, [N("Identity", ["v"], ["vo"])], "vo")


def doubling_loop() -> ModelProto:
    """Return a loop that doubles its state 34 times."""
    return _loop(34, [N("Concat", ["v", "v"], ["vo"], axis=0)], "vo")


def large_input() -> ModelProto:
    """Return an input that declares 40 terabytes."""
    return model([N("Relu", ["x"], ["y"])], inputs=[value("x", ["n", 10**13])])


def negative_dimension() -> ModelProto:
    """Return a Slice of a dimension that is −1, as some exporters write one that is free."""
    nodes = [N("Slice", ["x", "begin", "end", "axes"], ["s"]), N("Relu", ["s"], ["y"])]
    ends = {"begin": 0, "end": 1, "axes": 1}
    weights = [numpy_helper.from_array(np.asarray([number]), name) for name, number in ends.items()]
    made = model(nodes, weights, [value("x", [2, -1])])
    made.graph.output[0].CopyFrom(value("y", ["n", "m"]))  # without a shape, the checker ends before it infers types
    return made


def negative_sizes() -> dict[str, ModelProto]:
    """Return models that compute a negative dimension, of which a Slice reads: onnx's inference ends the process."""
    ends = {"begin": [0], "end": [1], "axes": [2], "sizes": [1, 1, -5, 2], "less": [1, 1, -1, 1]}
    ends |= {"pads": [0, 0, -9, 0, 0, 0, 0, 0]}
    weights = [numpy_helper.from_array(np.asarray(numbers), name) for name, numbers in ends.items()]
    grow, part = N("Expand", ["x", "sizes"], ["q"]), N("Slice", ["q", "begin", "end", "axes"], ["s"])
    inside = helper.make_graph([grow, part], "then", [], [value("s")])
    other = helper.make_graph([N("Neg", ["x"], ["o"])], "else", [], [value("o")])
    flag = value("flag", [], TensorProto.BOOL)
    grown = helper.make_function("f", "Grown", ["a", "b"], ["c"], [N("Expand", ["a", "b"], ["c"])], OPSETS)
    cases: dict[str, list[NodeProto]] = {
        "Expand": [N("Expand", ["x", "sizes"], ["p"]), N("Relu", ["p"], ["q"]), part],
        "Pad": [N("Pad", ["x", "pads"], ["q"]), part],
        "MaxPool": [N("MaxPool", ["x"], ["q"], kernel_shape=[9, 1]), part],
        "computed": [N("Shape", ["x"], ["n"]), N("Mul", ["n", "less"], ["m"]), N("Expand", ["x", "m"], ["q"]), part],
        "function": [N("Grown", ["x", "sizes"], ["q"], domain="f"), part],
        "branch": [N("If", ["flag"], ["s"], then_branch=inside, else_branch=other)],
    }
    made = {}
    for name, nodes in cases.items():
        inputs = [value("x", [1, 1, 1, 2]), *([flag] if name == "branch" else [])]
        made[name] = model([*nodes, N("Relu", ["s"], ["y"])], weights, inputs, [grown])
        made[name].graph.output[0].CopyFrom(value("y", ["a", "b", "c", "d"]))
    return made


def map_input() -> ModelProto:
    """Return an open dimension and a map among the inputs, for which no random values exist."""
    kind = TypeProto()
    kind.map_type.key_type = TensorProto.INT64
    kind.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    nodes = [N("Relu", ["x" if not i else f"v{i}"], ["y" if i == 299 else f"v{i + 1}"]) for i in range(300)]
    return model(nodes, inputs=[value("x", ["n", 4]), ValueInfoProto(name="mp", type=kind)])


def high_rank() -> ModelProto:
    """Return a weight, an input and a constant of 200,000 axes."""
    axes = 200_000
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1] * axes, raw_data=b"\0" * 4)
    huge = TensorProto(name="h", data_type=TensorProto.FLOAT, dims=[2**62] * (axes // 10), raw_data=b"\0" * 4)
    nodes = [N("Add", ["x", "w"], ["a"]), N("Add", ["a", "c"], ["d"]), N("Mul", ["d", "h"], ["y"])]
    constant = N("Constant", [], ["c"], value=TensorProto(data_type=TensorProto.FLOAT, dims=[1] * axes, float_data=[1]))
    return model([constant, *nodes], [weight, huge], inputs=[value("x", [1] * axes)])


def long_symbol() -> ModelProto:
    """Return a dimension with a name of a megabyte, in shapes that all differ."""
    nodes = [N("Unsqueeze", ["x" if not i else f"v{i}", "axes"], [f"v{i + 1}"]) for i in range(40)]
    axes = numpy_helper.from_array(np.zeros(1, np.int64), "axes")
    return model([*nodes, N("Relu", ["v40"], ["y"])], [axes], [value("x", ["n" * 1_000_000])])


def many_constants(count: int = 5_000) -> ModelProto:
    """Return many small constants for a simplifier to compute."""
    nodes = [N("ConstantOfShape", ["s"], [f"c{i}"]) for i in range(count)]
    gathered = N("Concat", [f"c{i}" for i in range(count)], ["c"], axis=0)
    last = [N("ReduceSum", ["c"], ["s_"], keepdims=0), N("Add", ["x", "s_"], ["y"])]
    return model([*nodes, gathered, *last], [numpy_helper.from_array(np.asarray([3]), "s")])


def lying_range() -> ModelProto:
    """Return a Range whose element count overflows where onnx counts it."""
    ends = {"a": -(2**31), "b": 2**31 - 1, "d": 1}
    weights = [numpy_helper.from_array(np.asarray(number, np.int32), name) for name, number in ends.items()]
    nodes = [N("Range", ["a", "b", "d"], ["r"]), N("Cast", ["r"], ["f"], to=1), N("Add", ["x", "f"], ["y"])]
    return model(nodes, weights)


def negative_batch() -> ModelProto:
    """Return a GatherND whose dimensions onnx's inference looks for before the first one."""
    indices = numpy_helper.from_array(np.zeros((2, 1), np.int64), "i")
    return model([N("GatherND", ["x", "i"], ["y"], batch_dims=-(2**31))], [indices])


def outputs_too_many() -> ModelProto:
    """Return an Identity with a second output that is read, which a simplifier must not take for the first one."""
    return model([N("Identity", ["x"], ["a", "b"]), N("Add", ["a", "b"], ["y"])])


def nested_loops(depth: int = 8, nodes: int = 60) -> ModelProto:
    """Return loops inside loops, whose bodies are walked again and again until their types are stable."""

    def body(level: int) -> onnx.GraphProto:
        state = f"v{level}"
        names = [state, *(f"{state}_{i}" for i in range(nodes))]
        chain = [N("Unsqueeze", [one, "axes"], [other]) for one, other in itertools.pairwise(names)]
        last = names[-1]
        inner = [N("Loop", ["m", "", last], [f"{state}_o"], body=body(level + 1))] if level < depth else []
        made = f"{state}_o" if inner else last
        ends = [N("Identity", [f"c{level}"], [f"k{level}"]), N("Identity", [made], [f"r{level}"])]
        inputs = [value(f"i{level}", [], 7), value(f"c{level}", [], 9), value(state, [None])]
        outputs = [value(f"k{level}", [], 9), value(f"r{level}", None)]
        return helper.make_graph([*chain, *inner, *ends], f"b{level}", inputs, outputs)

    weights = {"m": np.asarray(3), "axes": np.zeros(1, np.int64)}
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return model([N("Loop", ["m", "", "x"], ["y"], body=body(0))], tensors)


LARGE: Final = ("chained_functions", "multiplying_functions", "high_rank", "many_constants", "nested_loops")
"""Those that take seconds."""
BUILT: Final[Mapping[str, Callable[[], ModelProto]]] = {
    each.__name__: each
    for each in (
        *(chained_functions, multiplying_functions, recursive_function, endless_loop, doubling_loop),
        *(
            large_input,
            negative_dimension,
            map_input,
            high_rank,
            long_symbol,
            many_constants,
            lying_range,
            negative_batch,
            outputs_too_many,
            nested_loops,
        ),
    )
}
