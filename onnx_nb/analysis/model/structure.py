"""Read the structure of a model from whatever holds it: a file, bytes, a ModelProto or an onnx_ir.Model.

Large weights become external data of the returned proto; its `Storage` knows where their bytes are.
"""

from __future__ import annotations

import stat
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from google.protobuf.message import DecodeError
from onnx import ModelProto

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import closest_text, plain_text, quoted
from onnx_nb.analysis.model import tensors, wire
from onnx_nb.analysis.model.storage import MEMORY, File, Memory, Source, Storage, file_names, refer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir


class Structure(NamedTuple):
    """A ModelProto without the bytes of large weights, and where these are."""

    proto: ModelProto
    name: str
    storage: Storage
    path: Path | None = None


def from_file(name: str, folder: Path | None) -> Structure:
    """Read a file; ``folder`` holds its external data if that is not the file's own folder."""
    path = Path(name)
    label = quoted(str(path))
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_file(path) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(f"{label} cannot be opened: {reason}.") from error
    if stat.S_ISDIR(found.st_mode):
        models = sorted(other for other in file_names(path) if other.endswith(".onnx"))
        advice = f"Models in it: {', '.join(map(quoted, models[:5]))}." if models else "It contains no .onnx file."
        raise ModelFileError(f"{label} is a folder.", advice=advice)
    if not stat.S_ISREG(found.st_mode):
        raise ModelFileError(f"{label} is not an ordinary file.", advice="Copy its content into one.")
    path = path.absolute()
    own = File(path, ModelFileError, what=label, permanent=True)
    # onnxruntime can look the file up by its own name, unless the data is elsewhere or the name is not UTF-8.
    usable = folder is None and path.name.isprintable() and len(PureWindowsPath(path.name).parts) == 1
    location = path.name if usable else f"{MEMORY}/file"
    try:
        with path.open("rb", buffering=0) as file:
            stripped = wire.scan(cast("Any", file), location=location, name=path.name)
    except OSError as error:
        raise ModelFileError(f"{label} cannot be read: {error.strerror or error}.") from error
    proto = _parsed(stripped.proto, path.name)
    return Structure(proto, path.name, Storage({location: own}, folder=folder or path.parent, path=path), path)


def from_bytes(data: bytes, folder: Path | None) -> Structure:
    """Read a serialized model; its weights stay in ``data``."""
    location = f"{MEMORY}/bytes"
    proto = _parsed(wire.scan(data, location=location, name="the given bytes").proto, "the given bytes")
    source = Memory(data, len(data), "the given bytes")
    return Structure(proto, _graph_name(proto), Storage({location: source}, folder=folder))


def from_proto(source: ModelProto, folder: Path | None) -> Structure:
    """Copy the structure; large weights stay in the given proto."""
    proto = ModelProto()
    try:
        wire.copy_fields(source, proto, without=["graph"])
        if source.HasField("graph"):
            wire.copy_fields(source.graph, proto.graph, without=["initializer"])
    except DecodeError as error:  # protobuf copies by writing and reading again
        raise _unreadable(error, "the given ModelProto") from error
    sources: dict[str, Source] = {}
    for tensor in source.graph.initializer:
        target = proto.graph.initializer.add()
        nbytes = tensors.raw_length(tensor, target)
        if nbytes is None:
            target.CopyFrom(tensor)
            continue
        location = f"{MEMORY}/{len(sources)}"
        refer(target, location, 0, nbytes)
        sources[location] = Memory(tensor, nbytes, "the given ModelProto")
    return Structure(proto, _graph_name(proto), Storage(sources, folder=folder))


def from_ir(source: onnx_ir.Model, folder: Path | None) -> Structure:
    """Serialize the structure; stand-ins without values are serialized for large weights."""
    import onnx_ir as ir

    if not isinstance(source.graph, ir.Graph):
        raise ModelFileError("the given onnx_ir.Model has no graph.")
    sources: dict[str, Source] = {}
    values: dict[str, Any] = {}
    for name, value in source.graph.initializers.items():
        tensor = value.const_value
        if tensor is None:
            raise ModelFileError(f"initializer {quoted(name)} of the given onnx_ir.Model has no value.")
        if isinstance(tensor, ir.ExternalTensor) and folder is None:
            folder = Path(tensor.base_dir).absolute()
        values[name] = _StandIn(value, const_value=_ir_tensor(name, tensor, folder, sources))
    stand_in = _StandIn(source, graph=_StandIn(source.graph, initializers=values))
    try:
        proto = ir.serde.serialize_model(cast("Any", stand_in))
    except Exception as error:
        raise ModelFileError(f"the given onnx_ir.Model cannot be serialized: {error}") from error
    return Structure(proto, _graph_name(proto), Storage(sources, folder=folder))


def _ir_tensor(
    name: str, tensor: onnx_ir.TensorProtocol, folder: Path | None, sources: dict[str, Source]
) -> onnx_ir.TensorProtocol | _StandIn:
    import onnx_ir as ir

    external = isinstance(tensor, ir.ExternalTensor)
    if isinstance(tensor, ir.ExternalTensor) and Path(tensor.base_dir).absolute() == folder:
        return tensor
    if tensor.dtype == ir.DataType.STRING or (tensor.nbytes < wire.THRESHOLD and not external):
        # Serializing sets the tensor's name: let it set that of a stand-in.
        return tensor if tensor.name == name else _StandIn(tensor, name=name)
    location = f"{MEMORY}/{len(sources)}"
    sources[location] = Memory(tensor, tensor.nbytes, "the given onnx_ir.Model")
    return ir.ExternalTensor(
        location,
        0,
        tensor.nbytes,
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props) or None,
    )


class _StandIn:
    """An object that differs from another in some attributes, without changing it."""

    def __init__(self, original: object, **attributes: object) -> None:
        self.__dict__.update(attributes, _original=original)

    def __getattr__(self, name: str) -> Any:  # whatever the original has
        return getattr(self._original, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._original)


def _parsed(data: bytes, name: str) -> ModelProto:
    try:
        proto: ModelProto = ModelProto.FromString(data)
    except DecodeError as error:
        raise _unreadable(error, name) from error
    return proto


def _unreadable(error: DecodeError, name: str) -> ModelFileError:
    if "MaxDepth" in str(error):
        return ModelFileError(f"{name} nests graphs more deeply than protobuf can read (100 levels of messages).")
    return ModelFileError(
        f"{name} is not an ONNX model, or a damaged one: protobuf cannot parse it.",
        advice="Check that the download or copy was completed, or export the model again.",
    )


def _no_file(path: Path) -> ModelFileError:
    if str(path).startswith(("http:", "https:")):
        return ModelFileError(f"{quoted(str(path))} is a web address.", advice="Download the file and give its path.")
    where = "" if path.is_absolute() else f" in {quoted(str(Path.cwd()))}"
    advice = closest_text(path.name, file_names(path.parent))
    return ModelFileError(f"there is no file {quoted(str(path))}{where}.", advice=advice)


def _graph_name(proto: ModelProto) -> str:
    return plain_text(proto.graph.name) or "model"
