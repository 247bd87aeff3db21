"""Creation of every onnxruntime session, and the casts that onnxruntime adds for float16, as nodes.

A session gets the proto without weights and the folder in which onnxruntime finds and maps them itself. Where it would
refuse to (a hub cache of symbolic links, a model from memory), it gets our own maps instead. onnxruntime is imported
when the first session is created.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import itertools
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import FeedError, ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import plain_text, quoted, shortened
from onnx_nb.analysis.graph.diagnostics import Problem
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import MARK, schema
from onnx_nb.analysis.model.functions import check_calls, check_nodes
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, storage_of, with_proto
from onnx_nb.analysis.model.save import working_folder
from onnx_nb.analysis.model.storage import KNOWN_KEYS, File, available_memory, embed, references
from onnx_nb.analysis.model.tensors import all_nodes, decoded, external, listed, may_be_shape, numpy_dtype
from onnx_nb.analysis.model.wire import set_entries
from onnx_nb.analysis.run import feeds as feeding
from onnx_nb.analysis.run.random_feeds import REFUSAL, on_random_feeds

if TYPE_CHECKING:
    import onnxruntime

Value: TypeAlias = "onnxruntime.OrtValue"
"""A value of onnxruntime; in ``Value | None``, None is an absent optional value."""

_MARK_BYTES: Final = bytes([NodeProto.DOMAIN_FIELD_NUMBER << 3 | 2, len(MARK[0])]) + MARK[0].encode()
"""Bytes that occur in every serialized model with marks: the domain of a node."""
_MAX_SESSIONS: Final = 4
"""Sessions that `run` keeps: each also keeps the memory that its largest run took."""
_sessions: Final[weakref.WeakKeyDictionary[Model, tuple[Any, Any]]] = weakref.WeakKeyDictionary()
"""Model → arguments and session of its last run, which is freed with it; the latest are the last."""
_lock: Final = threading.RLock()
_orphans: Final[list[Any]] = []
"""Sessions of the process that this one is a fork of, without whose threads they can neither run nor end."""


def _let_go() -> None:
    _orphans.extend(_sessions.values())
    _sessions.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_let_go)


@known_arguments
@on_random_feeds
def run(
    model: ModelLike,
    feeds: Any = None,
    *,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    outputs: Iterable[str] | None = None,
    providers: Sequence[str] | None = None,
    optimize: bool = True,
) -> dict[str, Any]:
    """Run a model once. The session of a `Model` is kept for the next call, and freed with it.

    Parameters
    ----------
    model
        Any `ModelLike`.
    feeds, shapes
        One feed in any form that `read_feeds` takes: a dict of arrays, arrays in the order of the inputs, torch
        tensors, files, or ``None`` for random values, whose sizes ``shapes`` gives.
    outputs
        Names of tensors of the main graph, including intermediate ones; the model's outputs if ``None``.
    providers
        Execution providers, best first; the CPU if ``None``.
    optimize
        ``False`` switches off graph optimization, which fuses nodes: intermediate values then differ in the last bits.

    Returns
    -------
    dict of str to numpy.ndarray
        Sequences are lists of arrays, and an absent optional value is ``None``.

    Raises
    ------
    FeedError
        If an input is missing or unknown, has another type or shape than declared, or if there are several feeds.
    OnnxNbError
        If onnxruntime cannot run the model.

    Examples
    --------
    >>> import numpy, onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = Neg(x)  y = Exp(a) }'
    >>> run(onnx.parser.parse_model(text), {"x": numpy.zeros(2, numpy.float32)}, outputs=["a", "y"])
    {'a': array([-0., -0.], dtype=float32), 'y': array([1., 1.], dtype=float32)}
    """
    source = load(model)
    feed = one_feed(source, feeds, shapes)
    return run_session(_session_of(source, outputs, providers, optimize=optimize), feed, name=source.name)


@known_arguments
def session(
    model: ModelLike,
    *,
    state: Mapping[str, str] | None = None,
    outputs: Iterable[str] | None = None,
    providers: Sequence[str] | None = None,
    optimize: bool = True,
) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a model on a feed, for a loop: the model is prepared once.

    Parameters
    ----------
    model, outputs, providers, optimize
        As in `run`.
    state
        Input → output whose value it gets in the next call, such as ``{"state": "stateN"}``. A dict of feeds may then
        leave inputs out: they keep the value of the call before.

    Examples
    --------
    >>> import numpy, onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x, float s) => (float t) { t = Add(x, s) }'
    >>> add = session(onnx.parser.parse_model(text), state={"s": "t"})
    >>> [add({"x": numpy.float32(x), "s": numpy.float32(0)} if x < 2 else {})["t"].item() for x in (1, 2, 3)]
    [1.0, 2.0, 3.0]
    """
    source, states = load(model), dict(state or {})
    runner = _session_of(source, outputs, providers, optimize=optimize)
    inputs, results = ([end.name for end in ends] for ends in (runner.get_inputs(), runner.get_outputs()))
    check_state(states, inputs, results, label_of(source))
    last: dict[str, Any] = {}

    def step(feeds: Any = None) -> dict[str, Any]:
        feed = one_feed(source, {**last, **feeds} if isinstance(feeds, Mapping) else feeds)
        results = run_session(runner, feed, name=source.name)
        last.update((feed if states else {}) | {name: results[output] for name, output in states.items()})
        return results

    return step


def check_state(state: Mapping[str, str], inputs: Iterable[str], outputs: Iterable[str], label: str) -> None:
    """Raise `FeedError` if a state names an input or output that a model has not."""
    for what, names, ends in (("input", state, [*inputs]), ("output", state.values(), [*outputs])):
        if unknown := [name for name in names if name not in ends]:
            message = f"state names {listed(unknown)}, which is no {what} of {label}."
            raise FeedError(message, advice=f"Its {what}s: {listed(ends)}.")


def _session_of(model: Model, outputs: Any, providers: Any, *, optimize: bool) -> onnxruntime.InferenceSession:
    """Return the session of a model that was kept if its arguments and files are the same, else a new one."""
    outputs, providers = (names if isinstance(names, str | None) else tuple(names) for names in (outputs, providers))
    with _lock:
        former = _sessions.pop(model, None)
        if former is None or former[0] != (outputs, providers, optimize) or not storage_of(model).is_current():
            former = None  # freed before there is another one
            options = outputs, providers, optimize
            former = options, create(model, optimize=optimize, outputs=outputs, providers=providers)
            limit = available_memory() // 4 - model.nbytes
            while _sessions and (len(_sessions) >= _MAX_SESSIONS or sum(other.nbytes for other in _sessions) > limit):
                del _sessions[next(iter(_sessions))]
            if limit < 0:
                return former[1]
        _sessions[model] = former
    return former[1]


def one_feed(model: Model, feeds: Any, shapes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the only feed of ``feeds``."""
    several = feeding.read_feeds(model, feeds, shapes)
    first = next(several, None)
    if first is None or next(several, None) is not None:
        message = f"{'no feed' if first is None else 'more than one feed'} is given, and a model runs on one."
        raise FeedError(message, advice="Loop over onnx_nb.read_feeds(model, feeds).")
    return first


def create(
    model: ModelLike,
    *,
    optimize: bool = True,
    providers: Sequence[str] | None = None,
    outputs: Iterable[str] | None = None,
    threads: int = 0,
    transient: bool = False,
    shared_arena: bool = False,
    written_to: Path | None = None,
    options: onnxruntime.SessionOptions | None = None,
    checked: bool = False,
) -> onnxruntime.InferenceSession:
    """Create an onnxruntime session, also of a model over 2 GB; weights are not read twice.

    Given ``options`` are changed where another argument asks for it. If ``checked``, the model is part of one that
    `check_dimensions` accepted, and declares no sizes that this one does not.
    """
    ort = runtime()
    source = load(model)
    check_calls(source.proto, label_of(source))
    proto, folder, buffers = for_onnxruntime(source)
    if isinstance(outputs, str):
        message = f"outputs is a single name, {quoted(outputs)}, not a list of names."
        raise OnnxNbError(message, advice=f"Write outputs=[{quoted(outputs)}].")
    if outputs is not None:
        proto = _with_outputs(source, proto, list(outputs))
    options = options or ort.SessionOptions()
    # Errors reach the caller as exceptions; onnxruntime would print them, and warnings, as well.
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads:
        options.intra_op_num_threads = threads
    if transient:
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if shared_arena:
        _make_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
    if written_to is not None:
        options.optimized_model_filepath = str(written_to)
    if buffers:
        sizes = [buffer.nbytes for buffer in buffers.values()]
        try:
            options.add_external_initializers_from_files_in_memory(list(buffers), list(buffers.values()), sizes)
        except RuntimeError as error:  # by an earlier session
            message = "these session options hold weights of a model in memory already."
            raise OnnxNbError(message, advice="Make new ones, or save the model to a file and pass that.") from error
    elif folder is not None:
        set_entry(options, "session.model_external_initializers_file_folder_path", str(folder))
    providers = [providers] if isinstance(providers, str) else providers or storage_of(source).options.get("providers")
    if unknown := [provider for provider in providers or () if provider not in ort.get_available_providers()]:
        message = f"onnxruntime has no {', '.join(map(quoted, unknown))} here."
        raise OnnxNbError(message, advice=f"It has: {', '.join(ort.get_available_providers())}.")
    data = _serialized(source, proto)
    if any(mark in data for mark in (b"Einsum", b"GatherND", b"num_outputs")):
        check_nodes(proto, label_of(source))
    if b"Slice" in data and not checked:
        check_dimensions(Graph.opened(source))
    if _MARK_BYTES in data:
        data = _serialized(source, _with_marks(proto))
    provider_names = list(providers or ([] if options.has_providers() else ["CPUExecutionProvider"]))
    try:
        if (library := storage_of(source).options.get("custom_ops")) is not None:
            options.register_custom_ops_library(str(library))
        # raised: onnxruntime would print it, and continue without the provider
        session = ort.InferenceSession(data, options, providers=provider_names or None, enable_fallback=False)
    except Exception as error:
        raise _refused(source, error) from error
    try:
        _ = [entry.name for entry in (*session.get_inputs(), *session.get_outputs())]
    except UnicodeDecodeError as error:
        message = f"the name of an input or output of {label_of(source)} is not valid UTF-8: {error.object!r:.100}."
        raise ModelFileError(message, advice="Rename it in the model.") from error
    if missing := [provider for provider in provider_names if provider not in session.get_providers()]:
        message = f"{', '.join(map(quoted, missing))} could not be started, and {source.name} would run without."
        raise OnnxNbError(message, advice="Are its driver and libraries installed? Or leave it out of providers=.")
    return session


def entry(options: onnxruntime.SessionOptions, key: str) -> str:
    """Return a configuration entry of session options; empty if there is none."""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return ""


def set_entry(options: onnxruntime.SessionOptions, key: str, value: str) -> None:
    """Set a configuration entry of session options; onnxruntime would print a warning for one that is there."""
    if entry(options, key) != value:
        options.add_session_config_entry(key, value)


def fatal_problem(graph: Graph) -> Problem | None:
    """Return the problem of a graph on which native type inference ends the process; types are inferred if need be."""
    return graph.inference.fatal if ("Slice", "") in graph.operators else None


def check_dimensions(graph: Graph) -> None:
    """Raise `ModelFileError` for a model on which onnxruntime's type inference ends the process."""
    if (fatal := fatal_problem(graph)) is not None:
        raise ModelFileError(f"{fatal.message}.", advice="Correct the sizes there, or export the model again.")


def runtime() -> Any:
    """Return onnxruntime, which is imported when the first model is run."""
    try:
        import onnxruntime
    except ImportError as error:
        advice = "pip install onnxruntime. In a browser (Pyodide) there is none: look at models there and cut them."
        raise OnnxNbError(f"no model can be run here: {error}.", advice=advice) from error
    return onnxruntime


def release_arena() -> None:
    """Return unused memory of the shared arena to the system."""
    options = runtime().RunOptions()  # only a run can ask for this
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    _nothing().run(["y"], {}, options)


@functools.cache
def _make_arena() -> None:
    """Create the arena of this process; it grows by the requested bytes, not to the next power of two."""
    ort = runtime()
    kind = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    exact_growth = 1
    ort.create_and_register_allocator(kind, ort.OrtArenaCfg(0, exact_growth, -1, -1))


@functools.cache
def _nothing() -> onnxruntime.InferenceSession:
    return tiny([helper.make_node("Constant", [], ["y"], value_int=0)], {}, transient=True, shared_arena=True)


def run_session(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, Any], *, name: str = "the model"
) -> dict[str, Any]:
    """Run a session made by `create`."""
    entries = session.get_outputs()
    elements = [element_type(entry.type) for entry in entries if "seq(" not in entry.type]
    if any(_is_foreign(numpy_dtype(element)) for element in elements if element is not None):
        types = {entry.name: entry.type for entry in session.get_inputs()}
        # the declared type is needed for empty sequences; an absent optional is one that is not fed
        present = ((key, value) for key, value in feeds.items() if value is not None)
        values = {k: to_value(v, data_type=element_type(types.get(k, "")) or TensorProto.FLOAT) for k, v in present}
        arrays = {key: to_array(value) for key, value in run_values(session, values, name=name).items()}
        # the caller may write to them
        return {k: a.copy() if isinstance(a, np.ndarray) and not a.flags.writeable else a for k, a in arrays.items()}
    names = [entry.name for entry in entries]
    foreign = {key: to_value(v) for key, v in feeds.items() if isinstance(v, np.ndarray) and _is_foreign(v.dtype)}
    try:
        return dict(zip(names, session.run(names, {**feeds, **foreign}), strict=True))
    except Exception as error:
        raise _failed(name, error) from error


def run_values(
    session: onnxruntime.InferenceSession, values: Mapping[str, onnxruntime.OrtValue], *, name: str = "the model"
) -> dict[str, onnxruntime.OrtValue]:
    """Run a session on onnxruntime's own values, so that they pass from one session to the next without a copy."""
    names = [entry.name for entry in session.get_outputs()]
    try:
        return dict(zip(names, session.run_with_ort_values(names, dict(values)), strict=True))
    except Exception as error:
        raise _failed(name, error) from error


def to_value(array: Any, *, data_type: int = TensorProto.FLOAT) -> onnxruntime.OrtValue:
    """Return an array, or a list of arrays, as onnxruntime's own value."""
    ort = runtime()
    if isinstance(array, list | tuple):
        values = {f"x{index}": to_value(element) for index, element in enumerate(array)}
        empty = helper.make_node("SequenceEmpty", [], ["y"], dtype=data_type)
        node = helper.make_node("SequenceConstruct", list(values), ["y"]) if values else empty
        types = {key: helper.make_tensor_type_proto(value.element_type(), None) for key, value in values.items()}
        return run_values(tiny([node], types), values)["y"]
    array = np.asarray(array)
    if array.dtype.kind in "OUST":
        # onnxruntime takes strings from numpy only as feeds of a session; a constant is a workaround.
        constant = onnx.numpy_helper.from_array(array.astype(object))
        return run_values(tiny([helper.make_node("Constant", [], ["y"], value=constant)], {}), {})["y"]
    if not _is_foreign(array.dtype):
        native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
        return ort.OrtValue.ortvalue_from_numpy(native)
    tensor = onnx.numpy_helper.from_array(array)
    data = np.frombuffer(tensor.raw_data, np.uint8)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), tensor.data_type)
    ctypes.memmove(value.data_ptr(), data.ctypes.data, data.nbytes)
    return value


def to_array(value: onnxruntime.OrtValue) -> Any:
    """Return onnxruntime's value as an array, a sequence as a list, an absent optional as ``None``."""
    if not value.has_value():
        return None
    if not value.is_tensor():
        element = element_type(value.data_type())
        if element is None:
            message = f"onnxruntime cannot convert a value of type {value.data_type()} to an array."
            raise OnnxNbError(message, advice="Run the model with only such outputs: then they are Python's own.")
        return _opener(element).run(["y"], {"x": value})[0]
    data_type = value.element_type()
    dtype = numpy_dtype(data_type)
    if dtype is None or dtype.kind == "O" or value.device_name() != "cpu":
        try:
            return value.numpy()
        except UnicodeDecodeError as error:
            message = f"a tensor of strings holds {error.object!r:.100}, which is not valid UTF-8."
            raise OnnxNbError(message, advice="onnxruntime can hand over no others.") from error
    shape = value.shape()
    if dtype.isbuiltin == 1 and 0 not in shape:
        return np.asarray(_ValueMemory(value, tuple(shape), dtype.str))
    data = np.asarray(_ValueMemory(value, (value.tensor_size_in_bytes(),), "|u1"))
    array = decoded(data, TensorProto(data_type=data_type, dims=shape), "a value of onnxruntime")
    array.flags.writeable = False
    return array


class _ValueMemory:
    """The memory of a value in numpy's array interface; it keeps the value alive as long as numpy uses it."""

    def __init__(self, value: onnxruntime.OrtValue, shape: tuple[int, ...], typestr: str) -> None:
        self._value = value
        place = value.data_ptr(), True  # read-only
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": typestr, "data": place}


def _is_foreign(dtype: np.dtype[Any] | None) -> bool:
    """Return whether onnxruntime cannot exchange such arrays with numpy: bfloat16, float8, int4 and so on."""
    return dtype is not None and dtype.isbuiltin == 2


@functools.cache
def _opener(data_type: int) -> onnxruntime.InferenceSession:
    """Return a session that outputs its input sequence, which onnxruntime converts to a list."""
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(data_type, None))
    return tiny([helper.make_node("Identity", ["x"], ["y"])], {"x": sequence})


def tiny(
    nodes: Sequence[NodeProto], inputs: Mapping[str, TypeProto], *, threads: int = 1, **options: Any
) -> onnxruntime.InferenceSession:
    """Return a session of a few nodes that compute "y"."""
    infos = [helper.make_value_info(name, proto) for name, proto in inputs.items()]
    graph = helper.make_graph(nodes, "value", infos, [ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return create(proto, optimize=False, threads=threads, **options)


def _serialized(model: Model, proto: ModelProto) -> bytes:
    try:
        return bytes(proto.SerializeToString())
    except EncodeError as error:
        message = f"{model.name} holds more than 2 GB besides the weights of its main graph."
        raise OnnxNbError(message, advice="Move large Constant nodes to initializers.") from error


def _with_marks(source: ModelProto) -> ModelProto:
    """Return a model whose marks onnxruntime can run: a local function implements them as Identity."""
    domain, op = MARK
    nodes = all_nodes(itertools.chain(source.graph.node, *(function.node for function in source.functions)))
    if not any((node.domain, node.op_type) == MARK for node in nodes) or any(
        (function.domain, function.name) == MARK for function in source.functions
    ):
        return source
    proto = copy.deepcopy(source)
    versions = [entry.version for entry in source.opset_import if entry.domain in ("", "ai.onnx")]
    opset = helper.make_opsetid("", max(versions, default=17))
    identity = helper.make_node("Identity", ["x"], ["y"])
    for imports in (proto.opset_import, *(function.opset_import for function in proto.functions)):
        if all(entry.domain != domain for entry in imports):
            imports.add(domain=domain, version=1)
    proto.functions.append(helper.make_function(domain, op, ["x"], ["y"], [identity], [opset], ["name"]))
    proto.ir_version = max(proto.ir_version, 8)  # the first that has functions
    return proto


def _with_outputs(model: Model, source: ModelProto, names: list[str]) -> ModelProto:
    graph = source.graph
    outputs = {name for node in graph.node for name in node.output}
    tensors = outputs.union((value.name for value in graph.input), model.initializers)
    for name in names:
        if name not in tensors or not name:
            Graph.of(model).value(name)  # raises, unless it is in a body
            message = f"tensor {quoted(name)} is not in the main graph of {model.name}."
            raise OnnxNbError(message, advice="Tensors inside If, Loop and Scan bodies cannot be outputs.")
    infos = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    proto = copy.deepcopy(source)
    # onnxruntime infers the type of an output that declares none.
    set_entries(proto.graph.output, (infos.get(name) or ValueInfoProto(name=name) for name in dict.fromkeys(names)))
    return proto


def _refused(model: Model, error: Exception) -> OnnxNbError:
    cause = _cause(error)
    advice = ""
    if "max supported IR version" in cause:
        advice = "Update onnxruntime, or write the model for an older one: onnx.helper.make_model(…, ir_version=…)."
    elif "opset" in cause and "under development" in cause:
        advice = "Update onnxruntime, or convert the model: onnx.version_converter.convert_version(proto, version)."
    elif "is not a registered function/op" in cause or "No Op registered" in cause:
        advice = "onnxruntime does not know this operator: cut the model before it, or load(model, custom_ops=…)."
    elif wrong := re.search(r"Type \((.*?)\) of output arg \((.*?)\) of node", cause):
        advice = f"The model declares {quoted(wrong[2])} as {wrong[1]}: drop it from graph.value_info or correct it."
    elif "NOT_IMPLEMENTED" in cause:
        advice = "onnxruntime has no kernel for this operator with these types on this provider."
    return OnnxNbError(f"onnxruntime cannot use {model.name}: {cause}", advice=advice)


def _cause(error: Exception) -> str:
    """Return onnxruntime's message; it may hold names of any length."""
    text = shortened(str(error).removeprefix("[ONNXRuntimeError] : ").strip(), 1000)
    return text if text.endswith((".", "…")) else f"{text}."


def _failed(name: str, error: Exception) -> OnnxNbError:
    op, _, label = name.partition(" ")
    again = f"Non-zero status code returned while running {op} node. Name:{label} "
    return OnnxNbError(f"{REFUSAL} {name}: {_cause(error).replace(again, '')}")


@functools.cache
def parsed_type(text: str) -> TypeProto:
    """Parse a type that onnxruntime wrote into a TypeProto; tensors have no shape."""
    kind, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    if kind == "seq":
        return helper.make_sequence_type_proto(parsed_type(inner))
    if kind == "optional":
        return helper.make_optional_type_proto(parsed_type(inner))
    if kind == "map":
        key, _, value = inner.partition(",")
        return helper.make_map_type_proto(_data_type(key), parsed_type(value.strip()))
    if kind == "sparse_tensor":
        return helper.make_sparse_tensor_type_proto(_data_type(inner), None)
    return helper.make_tensor_type_proto(_data_type(inner), None)


@functools.cache
def element_type(text: str) -> int | None:
    """Return the element type of a tensor, or of the tensors in a sequence or optional; ``None`` for other types."""
    match = re.fullmatch(r"(?:optional\(|seq\()*tensor\((\w+)\)+", text)
    return None if match is None else dict(TensorProto.DataType.items()).get(match[1].upper())


def _data_type(name: str) -> int:
    return int(TensorProto.DataType.Value(name.strip().upper()))


def for_onnxruntime(model: Model) -> tuple[ModelProto, Path | None, dict[str, NDArray[Any]]]:
    """Return a proto without large weights, their folder, and buffers of files that onnxruntime cannot find."""
    proto, storage = model.proto, storage_of(model)
    extents = storage.extents(proto, label_of(model))
    entries = [references(tensor) for tensor in external(proto)]
    outside = [place for place, tensor in enumerate(external(proto)) if not may_be_shape(tensor)]
    main_count = sum(tensor.data_location == TensorProto.EXTERNAL for tensor in proto.graph.initializer)
    inner = [extents[place].source for place in outside if place >= main_count]
    while True:
        files = {entries[place].get("location", ""): extents[place] for place in outside}
        inside = all(storage.is_inside(location, extent.source) for location, extent in files.items())
        # In bodies of If, Loop and Scan onnxruntime rejects files that are links; buffers serve only the main graph.
        if not inner or (inside and not any(isinstance(source, File) and source.is_linked for source in inner)):
            break
        outside, inner = [place for place in outside if place < main_count], []
    if len(outside) < len(extents) or not all(KNOWN_KEYS.issuperset(entries[place]) for place in outside):
        proto = copy.deepcopy(proto)
        tensors = [*external(proto)]
        for place in {*range(len(tensors))}.difference(outside):
            embed(tensors[place], extents[place])
        for place in outside:  # with other keys onnxruntime would reject the model
            pairs = tensors[place].external_data
            set_entries(pairs, (entry for entry in pairs if plain_text(entry.key) in KNOWN_KEYS))
    buffers = {} if inside else {at: e.source.array(0, e.source.nbytes, e.what) for at, e in files.items()}
    return proto, storage.folder, buffers


CAST_PREFIX: Final = "InsertedPrecisionFreeCast_"
"""Prefix of the name of a value's float32 copy in onnxruntime."""


def with_explicit_casts(graph: Graph, values: Collection[int]) -> tuple[Graph, dict[int, int]]:
    """Return the graph with onnxruntime's casts (itself if it has none or loses a value), and each original."""
    model, identity = graph.model, (graph, {value: value for value in values})
    if not _has_float16(graph):
        return identity
    with working_folder() as folder:
        path = folder / "casts.onnx"
        try:
            create(_without_weights(model), optimize=False, transient=True, written_to=path)
        except OnnxNbError:
            return identity  # running it in windows finds the node that fails
        proto = onnx.load(path)
    source, target = model.proto.graph, proto.graph
    set_entries(target.output, source.output)
    set_entries(target.input, source.input)
    there = {tensor.name for tensor in target.initializer}
    target.initializer.extend(tensor for tensor in source.initializer if tensor.name not in there)
    cast = Graph.of(with_proto(model, proto))
    places, cast_places = (zip(g.value_subgraph.tolist(), g.value_names, strict=True) for g in (graph, cast))
    number = {place: value for value, place in enumerate(places)}
    # the subgraphs of inlined functions are in between
    same_subgraphs = [place.attribute for place in graph.subgraphs] == [place.attribute for place in cast.subgraphs]
    pairs = [(value, place) for value, place in enumerate(cast_places) if same_subgraphs or place[0] == 0]
    original = {value: number[place] for value, place in pairs if place in number}
    # without those in functions with subgraphs, their nodes round one by one
    return (cast, original) if set(values) <= set(original.values()) else identity


def _without_weights(model: Model) -> Model:
    """Turn weights into inputs, as only types matter, and every value into an output."""
    source = model.proto
    proto = copy.deepcopy(source)
    graph = proto.graph
    graph.initializer.clear()
    inputs = {info.name for info in source.graph.input}
    for tensor in source.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            graph.input.add(name=tensor.name, type=kind)
    outputs = dict.fromkeys(name for node in source.graph.node for name in node.output if name)
    texts = (name for name in outputs if isinstance(name, str))  # bytes are not UTF-8
    set_entries(graph.output, (ValueInfoProto(name=name) for name in texts))
    return with_proto(model, proto)


_TYPE_ATTRIBUTES: Final = frozenset(("to", "dtype", "output_dtype", "output_datatype", "value"))
"""Attributes that may make float16 from inputs of other types."""


def _has_float16(graph: Graph) -> bool:
    proto, half = graph.model.proto, TensorProto.FLOAT16
    inputs = (info.type.tensor_type.elem_type for info in proto.graph.input)
    weights = (tensor.data_type for place in graph.subgraphs for tensor in place.graph.initializer)
    if half in inputs or half in weights:
        return True
    definitions = (schema(op, domain, graph.opsets.get(domain, 0)) for op, domain in graph.operators)
    attributes = (_TYPE_ATTRIBUTES if definition is None else definition.attributes for definition in definitions)
    makers = [number for number, names in enumerate(attributes) if not _TYPE_ATTRIBUTES.isdisjoint(names)]
    nodes = (graph.nodes[node] for node in np.flatnonzero(np.isin(graph.op_index, makers)).tolist())
    inside = (node for function in proto.functions for node in all_nodes(function.node))
    entries = (attribute for node in itertools.chain(nodes, inside) for attribute in node.attribute)
    return any(a.t.data_type == half or (a.i == half and plain_text(a.name) in _TYPE_ATTRIBUTES) for a in entries)
