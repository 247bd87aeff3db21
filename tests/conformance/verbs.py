"""What a verb must not change: each takes a case that runs and returns "right", "left out: …" or "wrong: …"."""

from __future__ import annotations

import copy
import functools
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime
from onnx import ModelProto, ValueInfoProto

import onnx_nb
from onnx_nb import load
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.run import session
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.types import Graph
from tests.conformance.cases import Case, Runnable, plain, same_bits
from tests.packed import unpacked

RIGHT = "right"
NEWER = 23
"""Opset to which models are converted."""
FEW = 12
"""Nodes that are looked at one by one."""
CONSTRAINED = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), (0,)),
    **dict.fromkeys(("AffineGrid", "BitShift", "CenterCropPad", "CumProd", "MaxUnpool", "Upsample"), (1,)),
    **dict.fromkeys(("CumSum", "Dropout", "OneHot", "Split", "Squeeze", "Unsqueeze"), (1,)),
    **dict.fromkeys((f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min")), (1,)),
    **dict.fromkeys((f"Reduce{name}" for name in ("Prod", "Sum", "SumSquare")), (1,)),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), (1,)),
    **dict.fromkeys(("SequenceAt", "SequenceErase", "SplitToSequence", "ReverseSequence", "Scatter"), (1,)),
    **dict.fromkeys(("RoiAlign", "SequenceInsert", "TensorScatter"), (2,)),
    "DFT": (1, 2),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3),
    "Pad": (3,),
    "STFT": (1, 3),
}
"""Inputs with values that only some operators restrict, and that graph inputs feed in onnx's own cases alone."""


def outcome(verb: Callable[[Runnable], str], one: Runnable) -> str:
    """What a verb makes of a case; an error of ours is wrong, as the model runs in onnxruntime."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inputs that nothing reads, of infinite values
        try:
            return verb(one)
        except OnnxNbError as error:
            return f"wrong: {type(error).__name__}: {error}"


def equal(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    if list(found) != list(expected):
        return f"wrong: outputs {list(found)}, not {list(expected)}"
    other = [name for name in expected if not same_bits(found[name], expected[name])]
    return f"wrong: other values in {other[:3]}" if other else RIGHT


def made_of(proto: ModelProto) -> list[str]:
    return [output for node in proto.graph.node for output in node.output if output]


def all_values(one: Runnable) -> dict[str, Any] | None:
    """Every value of the main graph, by onnxruntime; None if it refuses to give them."""
    proto = ModelProto()
    proto.CopyFrom(one.model)
    declared = {value.name: value for value in proto.graph.output}
    del proto.graph.output[:]
    proto.graph.output.extend(declared.get(name, ValueInfoProto(name=name)) for name in made_of(proto))
    try:
        return plain(proto, one.feeds, optimize=False)
    except Exception:  # noqa: BLE001  # onnxruntime has many
        return None


NO_IDENTITY = "left out: no Identity takes its types"
NO_VALUES = "left out: onnxruntime refuses all values as outputs"


def run(one: Runnable) -> str:
    return equal(session.run(one.model, one.feeds), one.outputs)


def run_on_random_feeds(one: Runnable) -> str:
    own = {
        node.input[index]
        for node in one.model.graph.node
        for index in CONSTRAINED.get(node.op_type, ())
        if index < len(node.input)
    }
    feeds = {**onnx_nb.random_feeds(one.model), **{name: one.feeds[name] for name in own & one.feeds.keys()}}
    try:
        session.run(one.model, feeds)
    except OnnxNbError:
        return "left out: its operator restricts values in other ways"
    return RIGHT


def extract_whole(one: Runnable) -> str:
    made = {*made_of(one.model)}
    if not all(value.name in made for value in one.model.graph.output):
        return "left out: an output that no node makes"
    whole = onnx_nb.extract(one.model, list(one.feeds), list(one.outputs))
    return equal(session.run(whole, one.feeds), one.outputs)


def extract_up_to_nodes(one: Runnable) -> str:
    """Extract what computes the outputs of each of the first nodes."""
    values = all_values(one)
    if values is None:
        return NO_VALUES
    for node in one.model.graph.node[:FEW]:
        outputs = [name for name in node.output if name]
        part = onnx_nb.extract(one.model, list(one.feeds), outputs, infer_by_running=True)
        found, expected = run_part(part, one.feeds), {name: values[name] for name in outputs}
        if equal(found, expected) != RIGHT and not rounded(one, found, expected):
            return f"{equal(found, expected)} up to node {node.op_type}"
    return RIGHT


def rounded(one: Runnable, found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Return whether only roundings of float16 differ: without a kernel, onnxruntime rounds where a session ends."""
    own = 8 * float(np.finfo(np.float16).eps)
    return any(name.endswith("float16") for name in dtypes(one)) and all(
        same_bits(found[name], value)
        or (np.asarray(value).dtype.kind == "f" and np.allclose(found[name], value, own, own, equal_nan=True))
        for name, value in expected.items()
    )


def run_part(part: onnx_nb.Model, values: Mapping[str, Any]) -> dict[str, Any]:
    """Run a submodel without optimization on those of the values that are its inputs."""
    wanted = {entry.name for entry in part.inputs}
    return session.run(part, {name: value for name, value in values.items() if name in wanted}, optimize=False)


def partition(one: Runnable) -> str:
    if len(one.model.graph.node) < 2:
        return "left out: one node"
    try:
        expected = plain(one.model, one.feeds, optimize=False)
    except Exception:  # noqa: BLE001  # onnxruntime has many
        return "left out: onnxruntime runs it only optimized"
    values = dict(one.feeds)
    for part in onnx_nb.partition(one.model, 2, infer_by_running=True):
        values |= run_part(part, values)
    said = equal({name: values[name] for name in expected}, expected)
    return f"{RIGHT}, but for float16" if said != RIGHT and rounded(one, values, expected) else said


def dtypes(one: Runnable) -> list[str]:
    return [str(np.asarray(value).dtype) for value in one.feeds.values()]


def capture(one: Runnable, *, subprocess: bool = False) -> str:
    expected = all_values(one)
    if expected is None:
        return NO_VALUES
    cap = onnx_nb.capture(one.model, one.feeds, keep="*", subprocess=subprocess)
    return equal({name: cap[name] for name in expected}, expected)


def simplify(one: Runnable) -> str:
    return _simplified(one.model, one.feeds)


def simplify_constant_inputs(one: Runnable) -> str:
    proto = with_constant_inputs(one)
    return "left out: an input that is no plain tensor" if proto is None else _simplified(proto, {})


def _simplified(proto: ModelProto, feeds: dict[str, Any]) -> str:
    try:
        expected = plain(proto, feeds, optimize=False)
    except Exception:  # noqa: BLE001  # onnxruntime has many
        return "left out: onnxruntime does not run it so"
    result = onnx_nb.simplify(proto, check_n=0, size_budget=1 << 40).model.to_proto()
    said = fault(proto, result, feeds, expected)
    if said:
        return f"wrong: {said}"
    before, after = len(proto.graph.node), sum(node.op_type != "Constant" for node in result.graph.node)
    return f"{RIGHT}, all folded" if not after else f"{RIGHT}, smaller" if after < before else f"{RIGHT}, the same"


def save(one: Runnable) -> str:
    """Save, move weights out, and in again: the same bytes, and the same values."""
    with tempfile.TemporaryDirectory() as folder:
        saved = onnx_nb.load(one.model).save(Path(folder) / "saved.onnx")
        if onnx.load(saved) != one.model:
            return "wrong: another model was saved"
        outside = onnx_nb.external_data.convert(saved, Path(folder) / "outside.onnx", threshold=0)
        if not onnx_nb.external_data.audit(outside).ok:
            return "wrong: the audit finds fault with it"
        said = equal(session.run(outside, one.feeds), one.outputs)
        inside = onnx_nb.external_data.inline(outside, Path(folder) / "inside.onnx")
        return said if said != RIGHT else equal(session.run(inside, one.feeds), one.outputs)


def diff(one: Runnable) -> str:
    same = onnx_nb.diff(one.model, onnx_nb.load(one.model.SerializeToString()))
    return f"wrong: {same}" if same.changes else RIGHT


def compare(one: Runnable) -> str:
    """A model against itself: no error anywhere."""
    try:
        found = onnx_nb.compare(one.model, one.model, one.feeds)
    except onnx_nb.AlignmentError:
        constants = {name for node in one.model.graph.node if node.op_type == "Constant" for name in node.output}
        values = all_values(one) or {}
        if any(isinstance(value, np.ndarray) for name, value in values.items() if name not in constants):
            raise
        return "left out: it computes no tensor, and only tensors are compared"
    bad = [point.name for point in found.points if point.cumulative is not None and not point.cumulative.is_equal]
    return f"wrong: errors in {bad[:3]}" if bad else RIGHT


def draw(one: Runnable) -> str:
    """What the browser decodes holds each node of the main graph, its operator and its inputs."""
    packed = unpacked(columns(one.model).to_bytes())
    arrays = packed.arrays
    operators, names = packed.texts("op_name"), packed.texts("value_name")
    for number, node in enumerate(one.model.graph.node):
        values = arrays["in_value"][arrays["in_ptr"][number] : arrays["in_ptr"][number + 1]]
        reads = [names[value] if value >= 0 else "" for value in values.tolist()]
        if operators[arrays["node_op"][number]] != node.op_type or reads != [*node.input]:
            return f"wrong: node {number} reads {reads}"
    return RIGHT


def summarize(one: Runnable) -> str:
    found = onnx_nb.summarize(one.model)
    counted = Counter[str]()
    for each in found.op_counts:
        counted[each.op] += each.count
    missing = Counter(node.op_type for node in one.model.graph.node) - counted
    return f"wrong: {missing} are not counted" if missing else RIGHT


def count_costs(one: Runnable) -> str:
    found = onnx_nb.costs(one.model)
    return RIGHT if found.rows() or not one.model.graph.node else "wrong: no rows"


def edit_names(one: Runnable) -> str:
    """Rename every tensor: onnxruntime gives the same under other names."""
    names = {name: f"new {name}" for name in dict.fromkeys(Graph.of(load(one.model)).value_names) if name}
    proto = onnx_nb.edit(one.model).rename(names).model.to_proto()
    feeds = {names.get(name, name): value for name, value in one.feeds.items()}
    expected = {names.get(name, name): value for name, value in as_written(one).items()}
    return equal(plain(proto, feeds, optimize=False), expected)


def edit_opset(one: Runnable) -> str:
    """Convert to another opset: what onnx's converter makes, and it computes the same."""
    try:
        expected = onnx.version_converter.convert_version(one.model, NEWER)
        onnx.checker.check_model(expected, full_check=True)
    except Exception:  # noqa: BLE001  # it has many
        return "left out: onnx's converter refuses it, or makes no valid model"
    found = onnx_nb.edit(one.model).convert(opset=NEWER).model.to_proto()
    if [node.op_type for node in found.graph.node] != [node.op_type for node in expected.graph.node]:
        return "wrong: other operators"
    try:
        outputs = plain(expected, one.feeds, optimize=False)
    except Exception:  # noqa: BLE001  # onnxruntime has many
        return "left out: onnxruntime refuses what onnx's converter made"
    return equal(plain(found, one.feeds, optimize=False), outputs)


def edit_joined(one: Runnable) -> str:
    """Put an Identity model before and after: the same names, the same values."""
    kinds = {info.name: info.type for info in (*one.model.graph.input, *one.model.graph.output)}
    first, last = next(iter(one.feeds), ""), next(iter(one.outputs))
    if not all(name in kinds and kinds[name].tensor_type.HasField("shape") for name in (first, last)):
        return "left out: its first input or output is no tensor of a known rank"
    e = onnx_nb.edit(one.model)
    opset = max((entry.version for entry in one.model.opset_import if entry.domain in ("", "ai.onnx")), default=13)
    e.before(identity(first, f"{first} ", kinds[first], opset)).after(identity(f" {last}", last, kinds[last], opset))
    try:
        found = plain(e.model.to_proto(), one.feeds, optimize=False)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return NO_IDENTITY
    return equal({name: found.get(name) for name in one.outputs}, as_written(one))


def identity(name: str, output: str, kind: onnx.TypeProto, opset: int) -> ModelProto:
    ports = [ValueInfoProto(name=name, type=kind), ValueInfoProto(name=output, type=kind)]
    nodes = [onnx.helper.make_node("Identity", [name], [output])]
    graph = onnx.helper.make_graph(nodes, "identity", ports[:1], ports[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


def as_written(one: Runnable) -> dict[str, Any]:
    """What onnxruntime gives without its optimizations, which see other neighbors in an edited model."""
    return plain(one.model, copy.deepcopy(one.feeds), optimize=False)


def edit_inserted(one: Runnable) -> str:
    """Insert an Identity behind values, and remove it again."""
    e, left, expected = onnx_nb.edit(one.model), 0, as_written(one)
    for name in made_of(one.model)[:3]:
        try:
            e.insert("Identity", name)
        except onnx_nb.EditError:
            left += 1  # a type that Identity does not take in this opset
            continue
        try:
            said = equal(plain(e.model.to_proto(), copy.deepcopy(one.feeds), optimize=False), expected)
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            return NO_IDENTITY
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
            if "Subgraph must have the shape set" in str(error):
                return "left out: onnxruntime infers no shape for a Scan through an Identity"
            raise
        if said != RIGHT:
            return said
        inserted = next(node.name for node in e.model.proto.graph.node if node.name.startswith("insert_identity"))
        e.remove(inserted)
        # onnxruntime writes the means of a BatchNormalization that trains into its feeds
        said = equal(plain(e.model.to_proto(), copy.deepcopy(one.feeds), optimize=False), expected)
        if said != RIGHT or len(e.model.proto.graph.node) != len(one.model.graph.node):
            return f"{said}, {len(e.model.proto.graph.node)} nodes left"
    return NO_IDENTITY if left and not e.steps else RIGHT


VERBS: dict[str, Callable[[Runnable], str]] = {
    "run": run,
    "random_feeds": run_on_random_feeds,
    "extract": extract_whole,
    "extract, up to each node": extract_up_to_nodes,
    "partition": partition,
    "capture": capture,
    "capture in a subprocess": functools.partial(capture, subprocess=True),
    "simplify": simplify,
    "simplify, inputs as initializers": simplify_constant_inputs,
    "save, convert, inline": save,
    "diff": diff,
    "compare": compare,
    "draw": draw,
    "summarize": summarize,
    "costs": count_costs,
    "edit, every tensor renamed": edit_names,
    "edit, another opset": edit_opset,
    "edit, joined with others": edit_joined,
    "edit, inserted and removed": edit_inserted,
}

# --- simplified models ------------------------------------------------------------------------------------------------


def feeds_of(case: Case) -> dict[str, Any]:
    names = (value.name for value in case.model.graph.input)
    return {name: np.asarray(value) for name, value in zip(names, case.inputs, strict=False)}


def with_constant_inputs(one: Runnable) -> ModelProto | None:
    """Return the case with its inputs as initializers; None if one is not a tensor."""
    proto = ModelProto()
    proto.CopyFrom(one.model)
    if not all(isinstance(array, np.ndarray) and array.dtype.kind != "O" for array in one.feeds.values()):
        return None
    kinds = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    for name, array in one.feeds.items():
        tensor = onnx.numpy_helper.from_array(array, name)
        if tensor.data_type != kinds[name]:
            return None
        proto.graph.initializer.append(tensor)
    kept = [value for value in proto.graph.input if value.name not in one.feeds]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return proto


INVALID = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)


def fault(before: ModelProto, after: ModelProto, feeds: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return what is wrong with a model derived from another, "" if nothing; the kind of fault comes before a colon."""
    try:
        onnx.checker.check_model(after, full_check=True)
    except INVALID as error:
        try:
            onnx.checker.check_model(before, full_check=True)
        except INVALID:
            pass  # it never was valid
        else:
            return f"invalid: {error}"
    try:
        found = plain(after, feeds, optimize=False)
    except Exception as error:  # noqa: BLE001  # onnxruntime has many
        return f"invalid: it does not run: {error}"
    if list(found) != list(expected):
        return f"wrong: outputs {list(found)}, not {list(expected)}"
    return "" if all(map(close, found.values(), expected.values())) else "wrong: other values"


INVALID = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)


def close(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if same_bits(found, expected):
        return True
    if not isinstance(expected, np.ndarray) or found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if expected.dtype.kind != "f":
        return False
    # onnxruntime computes much of float16 in float32, and rounds where nodes end
    own = 8 * float(np.finfo(expected.dtype).eps)
    return np.allclose(found, expected, rtol=max(1e-4, own), atol=max(1e-5, own), equal_nan=True)


def draws(proto: ModelProto) -> int:
    """How many nodes of the main graph draw random numbers."""
    return sum(node.op_type in names_where("random") or node.op_type == "Dropout" for node in proto.graph.node)
