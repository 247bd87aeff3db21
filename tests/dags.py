"""Random models for hypothesis: subgraphs, functions, symbolic dims, sequences, optionals, all element types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_nb.analysis.run import session
from tests.conformance.cases import plain

if TYPE_CHECKING:
    import onnx_nb

FLOAT: Final = TensorProto.FLOAT
VECTOR: Final = helper.make_tensor_type_proto(FLOAT, [2])
SCALAR: Final = helper.make_tensor_type_proto(FLOAT, [])
SEQUENCE: Final = helper.make_sequence_type_proto(VECTOR)
OPTIONAL: Final = helper.make_optional_type_proto(VECTOR)

MOVED: Final = ("Identity", "Transpose", "Reshape", "Concat", "Gather", "Split")
COMPUTED: Final = (*MOVED, "Add", "Where", "Equal")
ELEMENTS: Final = {
    **dict.fromkeys((TensorProto.INT32, TensorProto.INT64, TensorProto.DOUBLE), (17, COMPUTED)),
    **dict.fromkeys((TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT32), (17, COMPUTED)),
    **dict.fromkeys((TensorProto.UINT16, TensorProto.INT16, TensorProto.UINT64), (17, (*MOVED, "Add", "Equal"))),
    TensorProto.BOOL: (17, (*MOVED, "Equal")),
    TensorProto.STRING: (17, MOVED),
    # no sums: onnxruntime rounds them differently inside a session than between two
    TensorProto.FLOAT16: (17, (*MOVED, "Where")),
    TensorProto.BFLOAT16: (17, MOVED),
    **dict.fromkeys((TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2), (21, ("Identity", "Transpose", "Reshape"))),
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4), (21, ("Transpose",))),
}
"""Element type → the opset since which onnxruntime casts to it, and the operators for which it has kernels."""
BY_REFERENCE: Final = ELEMENTS | dict.fromkeys(
    (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ),
    (21, ("Identity", "Transpose", "Reshape")),
)
"""The same for onnx's reference evaluator."""

FEEDS: Final[dict[str, Any]] = {
    "x0": np.array([0.5, -1.25], np.float32),
    "x1": np.array([2.0, 3.5], np.float32),
    "flag": np.array(True),
    "rows": np.array([[1.5, -2], [0.25, 4], [-3, 1]], np.float32),
    "items": [np.array([1, -4], np.float32), np.array([0.5, 2], np.float32)],
    "given": np.array([3, -0.5], np.float32),
    "absent": None,
    "half": np.array([1.5, -2], np.float16),
    "brain": np.array([0.5, -3], ml_dtypes.bfloat16),
    "words": np.array(["1.5", "-2"], object),
    "bytes": np.array([3, 1], np.uint8),
}
"""A value for each input that a random model may have; `run` takes those that it has."""
INPUTS: Final = {
    "x0": VECTOR,
    "x1": VECTOR,
    "flag": helper.make_tensor_type_proto(TensorProto.BOOL, []),
    "rows": helper.make_tensor_type_proto(FLOAT, ["n", 2]),
    "items": SEQUENCE,
    "given": OPTIONAL,
    "absent": OPTIONAL,
    "half": helper.make_tensor_type_proto(TensorProto.FLOAT16, [2]),
    "brain": helper.make_tensor_type_proto(TensorProto.BFLOAT16, [2]),
    "words": helper.make_tensor_type_proto(TensorProto.STRING, [2]),
    "bytes": helper.make_tensor_type_proto(TensorProto.UINT8, [2]),
}


@st.composite
def dags(draw: st.DrawFn, *, by_reference: bool = False) -> ModelProto:
    """Draw a model of at most 16 steps, for onnxruntime or for onnx's reference evaluator.

    Vectors of two float32 are called ``v…``, tensors with symbolic dims ``r…``, sequences ``s…``, optionals ``o…``, and
    tensors of other element types ``e…``.
    """
    drawn = _Drawn(draw, draw(st.sampled_from([17, 21])), by_reference=by_reference)
    for _ in range(draw(st.integers(1, 16))):
        draw(st.sampled_from(STEPS))(drawn)
    return drawn.model()


class _Drawn:
    """A model in the making: nodes, weights, and the types of values."""

    def __init__(self, draw: Callable[..., Any], opset: int, *, by_reference: bool) -> None:
        self.draw, self.opset, self.by_reference = draw, opset, by_reference
        known = BY_REFERENCE if by_reference else ELEMENTS
        self.elements = {element: names for element, (since, names) in known.items() if since <= opset}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.types: dict[str, TypeProto] = {name: INPUTS[name] for name in ("x0", "x1", "flag")}

    def pick(self, wanted: TypeProto = VECTOR, limit: int = 8) -> str:
        """Draw one of the last values of a type; one is made if there is none."""
        found = [name for name, of in self.types.items() if of == wanted]
        return self.draw(st.sampled_from(found[-limit:])) if found else MADE[wanted.WhichOneof("value") or ""](self)

    def weight(self, values: Any, dtype: Any = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def input(self, name: str) -> str:
        self.types.setdefault(name, INPUTS[name])
        return name

    def node(self, op: str, reads: Sequence[str], made: TypeProto = VECTOR, letter: str = "v", **given: Any) -> str:
        """Add a node with one output."""
        number = len(self.nodes)
        name = f"{letter}{number}"
        self.nodes.append(helper.make_node(op, reads, [name], f"n{number}", **given))
        self.types[name] = made
        return name

    def body(self, node: onnx.NodeProto, made: TypeProto = VECTOR) -> GraphProto:
        """Return a body of one node without inputs."""
        return helper.make_graph([node], "body", [], [helper.make_value_info(node.output[0], made)])

    def inner(self) -> str:
        return f"b{len(self.nodes)}"

    def model(self) -> ModelProto:
        infos = {name: helper.make_value_info(name, of) for name, of in self.types.items()}
        made = [name for name in self.types if name not in INPUTS]
        results = self.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
        declared = [infos[name] for name in made if name not in results] if self.draw(st.booleans()) else []
        inputs = [infos[name] for name in INPUTS if name in self.types]
        outputs = [infos[name] for name in results]
        graph = helper.make_graph(self.nodes, "dag", inputs, outputs, self.weights, value_info=declared)
        opset = [helper.make_opsetid("", self.opset), helper.make_opsetid("local", 1)]
        twice = helper.make_node("Sub", ["a", "b"], ["c"])
        pack = [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("SequenceConstruct", ["n", "b"], ["c"])]
        functions = [
            helper.make_function("local", name, ["a", "b"], ["c"], nodes, opset[:1])
            for name, nodes in (("Twice", [twice]), ("Pack", pack))
        ]
        ir_version = 8 if self.opset == 17 else 10
        return helper.make_model(graph, ir_version=ir_version, opset_imports=opset, functions=functions)


# --- steps ------------------------------------------------------------------------------------------------------------


def _neg(at: _Drawn) -> None:
    at.node("Neg", [at.pick()])


def _add(at: _Drawn) -> None:
    at.node(at.draw(st.sampled_from(["Add", "Mul"])), [at.pick(), at.pick(limit=20)])


def _sum(at: _Drawn) -> None:
    at.node("Sum", [at.pick() for _ in range(at.draw(st.integers(1, 3)))])


def _clip(at: _Drawn) -> None:
    at.node("Clip", [at.pick(), "", at.weight(3)])  # the lower bound is left out


def _top(at: _Drawn) -> None:
    """Two results; the second is cast by the next node."""
    name = at.node("TopK", [at.pick(), at.weight([2], np.int64)])
    at.nodes[-1].output.append(f"{name}_index")
    at.node("Cast", [f"{name}_index"], to=FLOAT)


def _constant(at: _Drawn) -> None:
    at.node("Constant", [], value=numpy_helper.from_array(np.array([len(at.nodes), -1], np.float32), "c"))


def _weight(at: _Drawn) -> None:
    at.node("Add", [at.pick(), at.weight([len(at.nodes), 1])])


def _function(at: _Drawn) -> None:
    if at.draw(st.booleans()):
        at.node("Twice", [at.pick(), at.pick()], domain="local")
    else:
        at.node("Pack", [at.pick(), at.pick()], SEQUENCE, "s", domain="local")


def _if(at: _Drawn) -> None:
    """Both branches read values of the outer graph."""
    one, other, inner = at.pick(limit=20), at.pick(limit=20), at.inner()
    then = helper.make_node("Neg", [one], [f"{inner}_t"])
    orelse = helper.make_node("Add", [other, at.weight([1, 2])], [f"{inner}_e"])
    at.node("If", [at.input("flag")], then_branch=at.body(then), else_branch=at.body(orelse))


def _loop(at: _Drawn) -> None:
    outer, inner = at.pick(limit=20), at.inner()
    step, on, carried, on_out, out = (f"{inner}_{port}" for port in ("step", "on", "carried", "on_out", "out"))
    nodes = [helper.make_node("Identity", [on], [on_out]), helper.make_node("Add", [carried, outer], [out])]
    body = _body(nodes, {step: _of(TensorProto.INT64, []), on: _FLAG, carried: VECTOR}, {on_out: _FLAG, out: VECTOR})
    at.node("Loop", [at.weight(2, np.int64), "", at.pick()], body=body)


def _loop_of_sequences(at: _Drawn) -> None:
    """The state is a sequence, which each iteration makes longer."""
    outer, inner = at.pick(limit=20), at.inner()
    step, on, carried, on_out, out = (f"{inner}_{port}" for port in ("step", "on", "carried", "on_out", "out"))
    nodes = [helper.make_node("Identity", [on], [on_out]), helper.make_node("SequenceInsert", [carried, outer], [out])]
    ends = {on_out: _FLAG, out: SEQUENCE}
    body = _body(nodes, {step: _of(TensorProto.INT64, []), on: _FLAG, carried: SEQUENCE}, ends)
    at.node("Loop", [at.weight(2, np.int64), "", at.pick(SEQUENCE)], SEQUENCE, "s", body=body)


def _scan(at: _Drawn) -> None:
    """A running sum, times a value of the outer graph; the state at the end is broadcast by the next node."""
    outer, inner = at.pick(limit=20), at.inner()
    state, item, total, first, out = (f"{inner}_{port}" for port in ("state", "item", "total", "first", "out"))
    nodes = [
        helper.make_node("Add", [state, item], [total]),
        helper.make_node("Gather", [outer, at.weight(0, np.int64)], [first]),
        helper.make_node("Mul", [total, first], [out]),
    ]
    body = _body(nodes, {state: SCALAR, item: SCALAR}, {total: SCALAR, out: SCALAR})
    reads = [at.weight(0.5), at.pick()]
    name = at.node("Scan", reads, SCALAR, "a", body=body, num_scan_inputs=1)
    made = f"v{name}"
    at.nodes[-1].output.append(made)
    at.types[made] = VECTOR
    at.node("Add", [at.pick(), name])


def _rows(at: _Drawn) -> None:
    """Tensors whose first dim is known only when the model runs."""
    rows = [name for name in at.types if name[0] == "r"] or [at.input("rows")]
    one, other = at.draw(st.sampled_from(rows)), at.draw(st.sampled_from(rows))
    open_rows = _of(FLOAT, [f"d{len(at.nodes)}", 2])
    match at.draw(st.sampled_from(["Neg", "Add", "Concat", "Compress", "NonZero", "Slice", "ReduceSum", "Shape"])):
        case "Neg":
            at.node("Neg", [one], at.types[one], "r")
        case "Add":
            at.node("Add", [one, at.pick()], at.types[one], "r")
        case "Concat":
            at.node("Concat", [one, other], open_rows, "r", axis=0)
        case "Compress":
            # a condition for each row, however few are left: a longer one is no model that must run
            dim = f"d{len(at.nodes)}"
            first = at.node("Gather", [one, at.weight(0, np.int64)], _of(FLOAT, [dim]), "a", axis=1)
            above = at.node("Greater", [first, at.weight(0)], _of(TensorProto.BOOL, [dim]), "i")
            at.node("Compress", [one, above], open_rows, "r", axis=0)
        case "NonZero":
            dim = f"d{len(at.nodes)}"
            name = at.node("NonZero", [at.pick()], _of(TensorProto.INT64, [1, dim]), "i")
            name = at.node("Transpose", [name], _of(TensorProto.INT64, [dim, 1]), "i")
            name = at.node("Cast", [name], _of(FLOAT, [dim, 1]), "a", to=FLOAT)
            at.node("Concat", [name, name], open_rows, "r", axis=1)
        case "Slice":
            ends = [at.weight([at.draw(st.integers(0, 1))], np.int64), at.weight([9], np.int64)]
            at.node("Slice", [one, *ends, at.weight([0], np.int64)], open_rows, "r")
        case "ReduceSum":
            at.node("ReduceSum", [one, at.weight([0], np.int64)], keepdims=0)
        case "Shape":
            name = at.node("Shape", [one], _of(TensorProto.INT64, [2]), "i")
            at.node("Cast", [name], to=FLOAT)


def _sequence(at: _Drawn) -> None:
    name = at.pick(SEQUENCE)
    match at.draw(st.sampled_from(["Construct", "Insert", "At", "Length", "Join", "Split", "If", "Identity", "Map"])):
        case "Construct":
            at.node("SequenceConstruct", [at.pick(), at.pick(limit=20)], SEQUENCE, "s")
        case "Insert":
            at.node("SequenceInsert", [name, at.pick(), at.weight(0, np.int64)], SEQUENCE, "s")
        case "At":
            at.node("SequenceAt", [name, at.weight(at.draw(st.integers(-2, 1)), np.int64)])
        case "Length":
            length = at.node("SequenceLength", [name], _of(TensorProto.INT64, []), "i")
            at.node("Add", [at.pick(), at.node("Cast", [length], SCALAR, "a", to=FLOAT)])
        case "Join":
            rows = _of(FLOAT, [f"d{len(at.nodes)}", 2])
            at.node("ConcatFromSequence", [name], rows, "r", axis=0, new_axis=1)
        case "Split":
            both = at.node("Concat", [at.pick(), at.pick()], _of(FLOAT, [4]), "a", axis=0)
            at.node("SplitToSequence", [both, at.weight(2, np.int64)], SEQUENCE, "s")
        case "If":
            then = helper.make_node("Identity", [name], [f"{at.inner()}_t"])
            orelse = helper.make_node("SequenceConstruct", [at.pick()], [f"{at.inner()}_e"])
            bodies = {"then_branch": at.body(then, SEQUENCE), "else_branch": at.body(orelse, SEQUENCE)}
            at.node("If", [at.input("flag")], SEQUENCE, "s", **bodies)
        case "Identity":
            at.node("Identity", [name], SEQUENCE, "s")
        case "Map":
            item, out = f"{at.inner()}_item", f"{at.inner()}_out"
            # the reference evaluator has no outer values here
            node = helper.make_node("Mul", [item, item if at.by_reference else at.pick()], [out])
            at.node("SequenceMap", [name], SEQUENCE, "s", body=_body([node], {item: VECTOR}, {out: VECTOR}))


def _optional(at: _Drawn) -> None:
    """Values that may be absent: read only where a branch knows that they are there."""
    name = at.pick(OPTIONAL)
    # the reference evaluator gets a list of one from what Optional makes
    got = [] if at.by_reference else ["Get"]
    match at.draw(st.sampled_from(["Optional", "Empty", "Has", *got])):
        case "Optional":
            at.node("Optional", [at.pick()], OPTIONAL, "o")
        case "Empty":
            at.node("Optional", [], OPTIONAL, "o", type=VECTOR)
        case "Has":
            has = at.node("OptionalHasElement", [name], _FLAG, "i")
            at.node("Cast", [has], SCALAR, "a", to=FLOAT)
            at.node("Add", [at.pick(), at.nodes[-1].output[0]])
        case "Get":
            has = at.node("OptionalHasElement", [name], _FLAG, "i")
            then = helper.make_node("OptionalGetElement", [name], [f"{at.inner()}_t"])
            orelse = helper.make_node("Neg", [at.pick()], [f"{at.inner()}_e"])
            at.node("If", [has], then_branch=at.body(then), else_branch=at.body(orelse))


def _element(at: _Drawn) -> None:
    """To another element type, through some operators, and back."""
    element = at.draw(st.sampled_from(list(at.elements)))
    made = _of(element, [2])
    fed = next((name for name, of in INPUTS.items() if of == made), None)
    if fed and at.draw(st.booleans()):
        name = at.input(fed)
    else:
        # what lies outside of a type's range is not defined
        inside = at.node("Clip", [at.pick(), at.weight(0), at.weight(3)])
        name = at.node("Cast", [inside], made, "e", to=element)
    for _ in range(at.draw(st.integers(0, 3))):
        name = _moved(at, at.draw(st.sampled_from(at.elements[element])), name, made)
    at.node("Cast", [name], to=FLOAT)


def _moved(at: _Drawn, op: str, name: str, made: TypeProto) -> str:
    element = made.tensor_type.elem_type
    integers = np.int64
    match op:
        case "Reshape":
            column = at.node("Reshape", [name, at.weight([2, 1], integers)], _of(element, [2, 1]), "a")
            return at.node("Reshape", [column, at.weight([2], integers)], made, "e")
        case "Concat":
            both = at.node("Concat", [name, at.pick(made)], _of(element, [4]), "a", axis=0)
            return at.node("Slice", [both, at.weight([1], integers), at.weight([3], integers)], made, "e")
        case "Gather":
            return at.node("Gather", [name, at.weight([1, 0], integers)], made, "e")
        case "Split":
            given = {"num_outputs": 2} if at.opset >= 18 else {}
            first = at.node("Split", [name], _of(element, [1]), "a", axis=0, **given)
            at.nodes[-1].output.append(f"{first}_rest")
            at.types[f"{first}_rest"] = _of(element, [1])
            return at.node("Concat", [f"{first}_rest", first], made, "e", axis=0)
        case "Add":
            return at.node("Add", [name, at.pick(made)], made, "e")
        case "Where":
            return at.node("Where", [at.input("flag"), name, at.pick(made)], made, "e")
        case "Equal":
            same = at.node("Equal", [name, at.pick(made)], _of(TensorProto.BOOL, [2]), "e")
            return name if element == TensorProto.BOOL else at.node("Cast", [same], made, "e", to=element)
        case _:
            return at.node(op, [name], made, "e")


def _of(element: int, shape: Sequence[int | str]) -> TypeProto:
    return helper.make_tensor_type_proto(element, shape)


def _body(nodes: Sequence[onnx.NodeProto], inputs: dict[str, TypeProto], outputs: dict[str, TypeProto]) -> GraphProto:
    given, made = ([helper.make_value_info(name, of) for name, of in ends.items()] for ends in (inputs, outputs))
    return helper.make_graph(nodes, "body", given, made)


_FLAG: Final = _of(TensorProto.BOOL, [])
STEPS: Final[Sequence[Callable[[_Drawn], None]]] = (
    *(_neg, _add, _sum, _clip, _top, _constant, _weight, _function, _if, _loop, _scan, _rows, _element),
    *(_sequence, _loop_of_sequences, _optional),
)
MADE: Final[dict[str, Callable[[_Drawn], str]]] = {
    "sequence_type": lambda at: at.input("items"),
    "optional_type": lambda at: at.input(at.draw(st.sampled_from(["given", "absent"]))),
}
"""What stands for a value of a kind of which there is none yet."""

# --- runs -------------------------------------------------------------------------------------------------------------


def all_values(proto: ModelProto) -> dict[str, Any]:
    """Return every value of the main graph, as onnxruntime gives it without onnx_nb."""
    wanted = ModelProto()
    wanted.CopyFrom(proto)
    declared = {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}
    made = [name for node in proto.graph.node for name in node.output]
    del wanted.graph.output[:]
    wanted.graph.output.extend(declared.get(name, onnx.ValueInfoProto(name=name)) for name in made)
    feeds = {value.name: FEEDS[value.name] for value in proto.graph.input}
    return feeds | plain(wanted, feeds, optimize=False)


def run(model: onnx_nb.Model, feeds: dict[str, Any], outputs: Iterable[str] | None = None) -> dict[str, Any]:
    """Run a model without optimization, on one thread, with those feeds that are its inputs."""
    made = session.create(model, optimize=False, outputs=outputs, threads=1)
    wanted = {entry.name for entry in made.get_inputs()}
    return session.run_session(made, {name: value for name, value in feeds.items() if name in wanted})


def run_by_reference(model: onnx_nb.Model, feeds: dict[str, Any]) -> dict[str, Any]:
    """Run a model in onnx's reference evaluator, with those feeds that are its inputs."""
    proto = model.to_proto()
    wanted = {value.name for value in proto.graph.input}
    evaluator = ReferenceEvaluator(proto)
    found = evaluator.run(None, {name: value for name, value in feeds.items() if name in wanted})
    return dict(zip(evaluator.output_names, found, strict=True))


def run_in_sequence(
    parts: Iterable[onnx_nb.Model], feeds: dict[str, Any], by: Callable[..., dict[str, Any]] = run
) -> dict[str, Any]:
    """Run parts in sequence, each on the model's inputs and the outputs of the parts before it."""
    values = dict(feeds)
    for part in parts:
        values |= by(part, values)
    return values
