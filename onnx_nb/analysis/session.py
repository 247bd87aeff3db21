"""Every onnxruntime session is made here.

A session gets the proto without weights and the folder in which onnxruntime finds them and maps them itself. Where it
would refuse to look (a hub cache of symbolic links, a model from memory) it is handed our own maps instead. onnxruntime
is imported when the first session is made.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import ModelProto, TensorProto, ValueInfoProto

from onnx_nb.analysis.errors import FeedError, OnnxNbError, closest, shown
from onnx_nb.analysis.model import load
from onnx_nb.analysis.tensors import decoded, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnxruntime
    from numpy.typing import NDArray

    from onnx_nb.analysis.model import Model, ModelLike


def run(
    model: ModelLike, feeds: Mapping[str, NDArray[Any]], *, outputs: Iterable[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Run a model once.

    Parameters
    ----------
    model
        Any `ModelLike`.
    feeds
        An array for each input.
    outputs
        Names of tensors of the main graph, intermediate ones too; the model's outputs if ``None``.

    Returns
    -------
    dict of str to numpy.ndarray

    Raises
    ------
    FeedError
        If an input is missing, unknown, or has another type or shape than declared.
    OnnxNbError
        If onnxruntime cannot run the model.

    Examples
    --------
    >>> import numpy, onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = Neg(x)  y = Exp(a) }'
    >>> run(onnx.parser.parse_model(text), {"x": numpy.zeros(2, numpy.float32)}, outputs=["a", "y"])
    {'a': array([-0., -0.], dtype=float32), 'y': array([1., 1.], dtype=float32)}
    """
    loaded = load(model)
    return run_session(create(loaded, outputs=outputs), feeds, name=loaded.name)


def create(
    model: ModelLike,
    *,
    optimize: bool = True,
    providers: Sequence[str] | None = None,
    outputs: Iterable[str] | None = None,
    threads: int | None = None,
) -> onnxruntime.InferenceSession:
    """Make an onnxruntime session; models over 2 GB too, and without reading weights twice.

    Parameters
    ----------
    model
        Any `ModelLike`.
    optimize
        ``False`` switches off all graph optimisations: they change intermediate values.
    providers
        Execution providers, best first; the CPU if ``None``.
    outputs
        Names of tensors of the main graph that the session is to give instead of the model's outputs.
    threads
        How many threads an operator may use; onnxruntime's choice if ``None``.

    Raises
    ------
    OnnxNbError
        If onnxruntime refuses the model.
    ExternalDataError
        If the bytes of a weight are not there.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Exp(x) }'
    >>> [output.name for output in create(onnx.parser.parse_model(text)).get_outputs()]
    ['y']
    """
    import onnxruntime as ort

    loaded = load(model)
    proto, folder, buffers = loaded.for_onnxruntime()
    if outputs is not None:
        proto = _with_outputs(loaded, proto, list(outputs))
    options = ort.SessionOptions()
    # Errors reach the caller as exceptions; onnxruntime would print them, and warnings, as well.
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads is not None:
        options.intra_op_num_threads = threads
    if buffers:
        sizes = [buffer.nbytes for buffer in buffers.values()]
        options.add_external_initializers_from_files_in_memory(list(buffers), list(buffers.values()), sizes)
    elif folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    try:
        data = proto.SerializeToString()
    except EncodeError as error:
        message = f"{loaded.name} holds more than 2 GB besides the weights of its main graph."
        raise OnnxNbError(message, advice="Move large Constant nodes to initializers.") from error
    try:
        return ort.InferenceSession(data, options, providers=list(providers or ["CPUExecutionProvider"]))
    except Exception as error:
        raise _refused(loaded, error) from error


def run_session(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, NDArray[Any]], *, name: str = "the model"
) -> dict[str, NDArray[Any]]:
    """Run a session that `create` made.

    Parameters
    ----------
    session
        From `create`.
    feeds
        An array for each input.
    name
        What to call the model in an error message.

    Examples
    --------
    >>> import numpy, onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Exp(x) }'
    >>> run_session(create(onnx.parser.parse_model(text)), {"x": numpy.zeros(2, numpy.float32)})
    {'y': array([1., 1.], dtype=float32)}
    """
    _check_feeds(session, feeds, name)
    types = {entry.name: entry.type for entry in session.get_outputs()}
    values = {key: _given(value) for key, value in feeds.items()}
    try:
        if not any(_is_foreign(_dtype_of(kind)) for kind in types.values()):
            return dict(zip(types, session.run(list(types), values), strict=True))
        found = session.run_with_ort_values(list(types), {key: _as_ort(value) for key, value in values.items()})
    except Exception as error:
        raise OnnxNbError(f"onnxruntime could not run {name}: {_cause(error)}") from error
    return {key: _taken(value, types[key], key) for key, value in zip(types, found, strict=True)}


def _is_foreign(dtype: np.dtype[Any] | None) -> bool:
    """Say whether onnxruntime cannot exchange such arrays with numpy: bfloat16, float8, int4 and so on."""
    return dtype is not None and dtype.isbuiltin == 2


def _given(value: Any) -> Any:  # an array, or what onnxruntime takes for a sequence or map
    if not isinstance(value, np.ndarray | np.generic) or not _is_foreign(value.dtype):
        return value
    import onnxruntime as ort

    data_type = next(number for number in TensorProto.DataType.values() if numpy_dtype(number) == value.dtype)
    data = np.frombuffer(onnx.numpy_helper.from_array(np.asarray(value)).raw_data, np.uint8)
    given = ort.OrtValue.ortvalue_from_shape_and_type(list(value.shape), data_type)
    ctypes.memmove(given.data_ptr(), data.ctypes.data, data.nbytes)
    return given


def _as_ort(value: Any) -> onnxruntime.OrtValue:  # as above
    import onnxruntime as ort

    return ort.OrtValue.ortvalue_from_numpy(value) if isinstance(value, np.ndarray | np.generic) else value


def _taken(value: onnxruntime.OrtValue, ort_type: str, name: str) -> NDArray[Any]:
    dtype = _dtype_of(ort_type)
    if not _is_foreign(dtype):
        array: NDArray[Any] = value.numpy()
        return array
    tensor = TensorProto(data_type=_data_type_of(ort_type), dims=value.shape())
    data = np.empty(value.tensor_size_in_bytes(), np.uint8)
    ctypes.memmove(data.ctypes.data, value.data_ptr(), data.nbytes)
    return decoded(data, tensor, f"output {shown(name)}")


def _with_outputs(model: Model, source: ModelProto, names: list[str]) -> ModelProto:
    graph = source.graph
    made = {name for node in graph.node for name in node.output}
    known = made.union((value.name for value in graph.input), model.initializers)
    for name in names:
        if name not in known or not name:
            near = closest(name, known)
            hint = f" Closest names: {', '.join(map(shown, near))}." if near else ""
            message = f"tensor {shown(name)} is not in the main graph of {model.name}.{hint}"
            raise OnnxNbError(message, advice="Tensors inside If, Loop and Scan bodies cannot be outputs.")
    declared = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    proto = ModelProto()
    proto.CopyFrom(source)
    del proto.graph.output[:]
    # onnxruntime infers the type of an output that declares none.
    proto.graph.output.extend(declared.get(name) or ValueInfoProto(name=name) for name in dict.fromkeys(names))
    return proto


def _refused(model: Model, error: Exception) -> OnnxNbError:
    cause = _cause(error)
    advice = ""
    if "max supported IR version" in cause:
        advice = "Update onnxruntime, or write the model for an older one: onnx.helper.make_model(…, ir_version=…)."
    elif "opset" in cause and "under development" in cause:
        advice = "Update onnxruntime, or convert the model: onnx.version_converter.convert_version(proto, version)."
    elif "is not a registered function/op" in cause or "No Op registered" in cause:
        advice = "onnxruntime does not know this operator: cut the model before it, or register its library."
    elif "NOT_IMPLEMENTED" in cause:
        advice = "onnxruntime has no kernel for this operator with these types on this provider."
    return OnnxNbError(f"onnxruntime cannot use {model.name}: {cause}", advice=advice)


def _cause(error: Exception) -> str:
    """Give onnxruntime's message; it may hold names of any length."""
    text = str(error).removeprefix("[ONNXRuntimeError] : ").strip()
    if len(text) > 1000:
        text = f"{text[:1000]}…"
    return text if text.endswith((".", "…")) else f"{text}."


def _check_feeds(session: onnxruntime.InferenceSession, feeds: Mapping[str, Any], name: str) -> None:
    inputs = {entry.name: entry for entry in session.get_inputs()}
    overridable = {entry.name: entry for entry in session.get_overridable_initializers()}
    for key in feeds:
        if key not in inputs and key not in overridable:
            near = ", ".join(map(shown, closest(str(key), inputs) or inputs)) or "none"
            raise FeedError(f"{name} has no input {shown(str(key))}.", advice=f"Its inputs: {near}.")
    missing = [entry for key, entry in inputs.items() if key not in feeds]
    if missing:
        named = ", ".join(f"{shown(entry.name)} ({entry.type} {entry.shape})" for entry in missing)
        raise FeedError(f"{name} also needs {named}.", advice="Give an array for each input.")
    for key, value in feeds.items():
        _check_feed(inputs.get(key) or overridable[key], value)


def _check_feed(entry: onnxruntime.NodeArg, value: object) -> None:
    dtype = _dtype_of(entry.type)
    if dtype is None:  # a sequence, a map, an optional: onnxruntime checks them
        return
    if not isinstance(value, np.ndarray | np.generic):
        message = f"input {shown(entry.name)} is given a {type(value).__name__}, not an array."
        raise FeedError(message, advice=f"Use numpy.asarray(…, dtype={dtype.name!r}).")
    if value.dtype != dtype and not (dtype.kind == "O" and value.dtype.kind in "UST"):
        message = f"input {shown(entry.name)} takes {dtype.name}, and is given {value.dtype.name}."
        raise FeedError(message, advice=f"Use array.astype({dtype.name!r}).")
    expected = entry.shape
    fits = len(expected) == value.ndim and all(
        not isinstance(want, int) or want == have for want, have in zip(expected, value.shape, strict=True)
    )
    # onnxruntime reports no shape for an unknown rank as it does for a scalar.
    if expected and not fits:
        raise FeedError(f"input {shown(entry.name)} takes shape {expected}, and is given {list(value.shape)}.")


def _data_type_of(ort_type: str) -> int | None:
    """Give the ONNX element type of "tensor(float)"; ``None`` if it is no tensor."""
    name = ort_type.removeprefix("tensor(").removesuffix(")")
    if f"tensor({name})" != ort_type:
        return None
    known = dict(TensorProto.DataType.items())
    return known.get(name.upper())


def _dtype_of(ort_type: str) -> np.dtype[Any] | None:
    data_type = _data_type_of(ort_type)
    return None if data_type is None else numpy_dtype(data_type)
