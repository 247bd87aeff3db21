"""Model: a ModelProto without its weights, and the locations of their bytes.

`load` reads only the structure. Large weights are external data in `Model.proto`: `Storage` knows where they are, maps
one when `Model.tensor` asks for it and streams all when `Model.save` writes them.
"""

from __future__ import annotations

import copy
import fnmatch
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import (
    bytes_text,
    closest,
    closest_text,
    count_text,
    path_text,
    plain_text,
    quoted,
    shortened,
)
from onnx_nb.analysis.model import tensors, wire
from onnx_nb.analysis.model.storage import (
    MEMORY,
    File,
    MemorySource,
    Source,
    Sources,
    Storage,
    embed,
    file_names,
    is_number,
    path_of,
    refer,
    references,
)
from onnx_nb.analysis.model.tensors import ValueInfo, WeightProto, all_weights, as_tensor, external, value_info
from onnx_nb.analysis.results import Displayed

if TYPE_CHECKING:
    import onnx_ir
    import torch

    ModelLike: TypeAlias = (
        "str | os.PathLike[str] | bytes | ModelProto | onnx_ir.Model | torch.onnx.ONNXProgram | Model"
    )
else:
    ModelLike = object


T = TypeVar("T")


@known_arguments
def load(
    source: ModelLike,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    custom_ops: str | os.PathLike[str] | None = None,
    providers: Sequence[str] | None = None,
) -> Model:
    """Open a model without reading its weights: milliseconds at any size.

    Parameters
    ----------
    source
        Path of a .onnx file, or of a folder of models that are run together (a `Package`); the bytes of a file, an
        ``onnx.ModelProto``, an ``onnx_ir.Model``, a ``torch.onnx.ONNXProgram``, or
        a `Model`. It is never changed, and must not change while the Model is in use.
    data_dir
        Folder of the external data; by default the folder of the model's file.
    custom_ops
        Library of operators (``.so``, ``.dll``) for every verb that runs this model. Its code runs: trust it.
    providers
        Execution providers for every verb that runs this model, best first; the CPU if ``None``.

    Returns
    -------
    Model
        The structure, and the locations of the weights' bytes. A `Model` is returned as it is if nothing else is given.

    Raises
    ------
    ModelFileError
        If the file does not exist, is not an ONNX model, or is truncated.
    ExternalDataError
        If ``data_dir`` is not a folder.

    Examples
    --------
    >>> import onnx.parser
    >>> load(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'))
    Model('g', 1 node, 0 B, opset 17)
    """
    folder = None if data_dir is None else path_of(data_dir).absolute()
    if folder is not None and not folder.is_dir():
        message = f"data_dir {quoted(str(data_dir))} is not a folder."
        raise ExternalDataError(message, advice="Give the folder of the data files.")
    options: dict[str, Any] = {} if custom_ops is None else {"custom_ops": path_of(custom_ops).absolute()}
    if providers is not None:
        options["providers"] = [providers] if isinstance(providers, str) else list(providers)
    if options and not isinstance(source, Model):
        source, folder = load(source, data_dir=data_dir), None
    if isinstance(source, Model):
        if folder is None and not options:
            return source
        storage = storage_of(source).like({}, folder, **options)
        return Model(source.proto, name=source.name, path=source.path, storage=storage)
    ir = sys.modules.get("onnx_ir")
    inner = getattr(source, "model", None) if type(source).__name__ == "ONNXProgram" else source
    if isinstance(source, str | os.PathLike):
        return _from_file(os.fspath(source), folder)
    if isinstance(source, bytes | bytearray | memoryview):
        content, location, title = bytes(source), f"{MEMORY}/bytes", "the given bytes"
        proto = _parsed(wire.scan(content, location=location, name=title), title)
        return _unnamed(proto, {location: MemorySource(content, len(content), title)}, folder)
    if isinstance(source, ModelProto):
        return _from_proto(source, folder)
    if ir is not None and isinstance(inner, ir.Model):
        return _from_ir(inner, folder)
    advice = ""
    if hasattr(source, "state_dict"):
        advice = " Export it first, onnx_nb.export(module, args), or compare it by onnx_nb.compare_torch(module, args)."
    kinds = "a path, bytes, an onnx.ModelProto, an onnx_ir.Model or a torch.onnx.ONNXProgram"
    raise TypeError(f"a model is {kinds}, not {type(source).__module__}.{type(source).__qualname__}.{advice}")


@dataclass(frozen=True)
class TensorInfo:
    """Type, size and location of a weight, known without reading it."""

    name: str
    dtype: int
    """Element type, as in ``onnx.TensorProto.DataType``."""
    shape: tuple[int, ...]
    nbytes: int
    """Bytes that its values take in the file (or in the proto)."""
    location: str | None = None
    """External data: the file. ``None`` for a weight inside the proto."""
    offset: int | None = None
    """External data: bytes before it in the file."""
    sparse: bool = False


class Model(Displayed, panel="graph.ModelView"):
    """The structure of a model, and the locations of its weights' bytes. Made by `load`.

    Examples
    --------
    >>> import numpy, onnx
    >>> weight = onnx.numpy_helper.from_array(numpy.arange(1000.0), "w")
    >>> model = load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight])))
    >>> model.nbytes, model.proto.graph.initializer[0].HasField("raw_data")
    (8000, False)
    >>> model.tensor("w")[:3]
    array([0., 1., 2.])
    """

    def __init__(
        self, proto: ModelProto, *, name: str, path: Path | None = None, storage: Storage | None = None
    ) -> None:
        self.proto: Final = proto
        """ModelProto in which every large weight is external data. Do not change it."""
        self.name: Final = name
        """Name of the model in headings and messages."""
        self.path: Final = path
        """The file it was loaded from; ``None`` if it came from memory."""
        self._internals = _Internals(storage or Storage(), name)

    def __repr__(self) -> str:
        versions = {entry.domain: entry.version for entry in self.proto.opset_import}
        others = ", ".join(f"{domain} {version}" for domain, version in list(versions.items())[:3])
        opset = versions.get("", versions.get("ai.onnx", others or "unknown"))
        nodes = count_text(len(self.proto.graph.node), "node")
        return f"Model({shortened(self.name, 80)!r}, {nodes}, {bytes_text(self.nbytes)}, opset {opset})"

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """Name, dtype and shape of each input that has no initializer.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 3] y) { y = Abs(x) }'
        >>> load(onnx.parser.parse_model(text)).inputs
        (ValueInfo(name='x', dtype='float32', shape=('n', 3)),)
        """
        return tuple(info for info in map(value_info, self.proto.graph.input) if info.name not in direct_weights(self))

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """Name, dtype and shape of each output; the shape is ``None`` where the model does not declare it."""
        return tuple(map(value_info, self.proto.graph.output))

    @property
    def nbytes(self) -> int:
        """Bytes of all weights, those of bodies and functions among them."""
        return sum(info.nbytes for info in weights_of(self).values())

    @property
    def initializers(self) -> Mapping[str, TensorInfo]:
        """Type, size and location of each weight of the main graph, sparse or not, by name, in the model's order.

        Examples
        --------
        >>> import numpy, onnx
        >>> weight = onnx.numpy_helper.from_array(numpy.arange(1000.0), "w")
        >>> model = load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight])))
        >>> model.initializers["w"].shape, model.initializers["w"].nbytes
        ((1000,), 8000)
        """
        weights = direct_weights(self)
        return cached(self, TensorInfo, lambda: MappingProxyType({n: weight_info(n, w) for n, w in weights.items()}))

    @known_arguments
    def tensor_names(self, pattern: str = "*") -> list[str]:
        """List the names of weights: ``"w"``, in function Block ``"Block::w"``, in a forest ``"trees.nodes_ids"``.

        Parameters
        ----------
        pattern
            A glob with ``*``, ``?`` and ``[…]``, as for file names.

        Examples
        --------
        >>> import numpy, onnx
        >>> weights = [onnx.numpy_helper.from_array(numpy.zeros(1), name) for name in ("a.weight", "a.bias")]
        >>> load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], weights))).tensor_names("*bias")
        ['a.bias']
        """
        return [name for name in weights_of(self) if pattern == "*" or fnmatch.fnmatchcase(name, pattern)]

    @known_arguments
    def tensor(self, name: str) -> NDArray[Any]:
        """Return the values of a weight. Only its bytes are mapped from the file; nothing is copied.

        Parameters
        ----------
        name
            One of `tensor_names`.

        Returns
        -------
        numpy.ndarray
            Read-only, and perhaps unaligned, as in the file; ``.copy()`` returns a writable one. Types that numpy lacks
            are those of ``ml_dtypes`` (bfloat16, float8…, int4…; values smaller than a byte are unpacked). Strings are
            an object array of ``str``. A sparse weight is returned dense.

        Raises
        ------
        OnnxNbError
            If no weight has this name.
        ModelFileError, ExternalDataError
            If its bytes are missing, or their number does not fit dtype and shape.

        Examples
        --------
        >>> import numpy, onnx
        >>> weight = onnx.numpy_helper.from_array(numpy.arange(3.0), "w")
        >>> load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))).tensor("w")
        array([0., 1., 2.])
        """
        weight = direct_weights(self).get(name) or cached(self, all_weights, lambda: all_weights(self.proto)).get(name)
        if weight is not None:
            return read_tensor(self, weight, name)
        what = f"tensor {quoted(name)} of {label_of(self)} is not a weight"
        for node in self.proto.graph.node:
            if name in node.output:
                maker = f"{plain_text(node.op_type)} {quoted(plain_text(node.name))}".removesuffix(" ''")
                advice = "model.tensor_names() lists the weights."
                raise OnnxNbError(f"{what}: {maker} computes it at run time.", advice=advice)
        if any(name == value.name for value in self.proto.graph.input):
            raise OnnxNbError(f"{what}: it is an input of the model.")
        near = closest(name, weights_of(self))
        pattern = repr(f"{near[0][:12]}*") if near else ""
        advice = f"{closest_text(name, weights_of(self))} List them with model.tensor_names({pattern}).".strip()
        raise OnnxNbError(f"tensor {quoted(name)} is not in {label_of(self)}.", advice=advice)

    @known_arguments
    def save(
        self, path: str | os.PathLike[str], *, external_data: bool | str | None = None, replace: bool = False
    ) -> Path:
        """Write the model and its weights to a new file, a few megabytes at a time.

        The file appears when it is complete: readers of ``path`` see the old file or the new one, never a part.

        Parameters
        ----------
        path
            The file to write. An existing file is replaced, unless this model is read from it; of a link, its target.
        external_data
            ``True``, or the name of a file in the same folder: write the weights there, except those below 1 kB
            (`external_data.convert` has more options). ``False``: keep everything in one file.
            By default one file is written; above 2 GB, the limit of one file, the weights go to ``<path>.data``.
        replace
            Also replace a file that this model is read from; then load it again, as its weights were there.

        Returns
        -------
        pathlib.Path
            The file that was written.

        Raises
        ------
        ModelFileError
            If the file cannot be written.
        ExternalDataError
            If the bytes of a weight cannot be read.

        Examples
        --------
        >>> import numpy, onnx, tempfile
        >>> weight = onnx.numpy_helper.from_array(numpy.arange(1000.0), "w")
        >>> proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     onnx.load(load(proto).save(f"{folder}/copy.onnx")) == proto
        True
        """
        from onnx_nb.analysis.model.save import Layout, write_model

        target = path_of(path)
        if external_data is None:
            external_data = self._inline_bytes() > wire.PROTO_LIMIT
        layout = None
        if external_data is not False:
            layout = Layout(f"{target.name}.data" if external_data is True else external_data)
        return write_model(target, self, layout, replace=replace)

    def to_proto(self) -> ModelProto:
        """Return a new ModelProto with the weights inside.

        Raises
        ------
        ModelFileError
            If it would exceed the 2 GB that protobuf can write.
        ExternalDataError
            If the bytes of a weight cannot be read.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
        >>> proto = onnx.parser.parse_model(text)
        >>> load(proto).to_proto() == proto
        True
        """
        total = self._inline_bytes()
        if total > wire.PROTO_LIMIT:
            message = f"{label_of(self)} is {bytes_text(total)} with its weights, and a ModelProto holds at most 2 GB."
            advice = "Save it with model.save(path), which puts the weights into a file of their own."
            raise ModelFileError(message, advice=advice)
        proto = copy.deepcopy(self.proto)
        for tensor, extent in zip(external(proto), storage_of(self).extents(self.proto, label_of(self)), strict=True):
            embed(tensor, extent)
        return proto

    def _inline_bytes(self) -> int:
        """Return an upper bound of the bytes of the model with all weights inside."""
        extents = storage_of(self).extents(self.proto, label_of(self))
        return int(self.proto.ByteSize()) + sum(extent.nbytes + 32 for extent in extents)


class _Internals:
    def __init__(self, storage: Storage, name: str) -> None:
        self.storage, self.name = storage, name
        self.label = name if name.isprintable() and len(name) <= 200 else quoted(name)
        self.lock = threading.RLock()
        self.cache: dict[object, Any] = {}

    def __reduce__(self) -> tuple[type[_Internals], tuple[Storage, str]]:
        return _Internals, (self.storage, self.name)


def _internals(model: Model) -> _Internals:
    return model._internals  # noqa: SLF001 (the one place)


def direct_weights(model: Model) -> Mapping[str, WeightProto]:
    """Return the initializers of the main graph by name."""
    return cached(model, direct_weights, lambda: tensors.initializers_of(model.proto.graph))


def weights_of(model: Model) -> Mapping[str, TensorInfo]:
    """Return type, size and location of every weight by name; see `tensors.all_weights`."""
    return cached(model, weights_of, lambda: {n: weight_info(n, w) for n, w in all_weights(model.proto).items()})


def storage_of(model: Model) -> Storage:
    """Return the storage of a model's weights."""
    return _internals(model).storage


def label_of(model: Model) -> str:
    """Return the name of a model for messages; a name from a file may hold line breaks, or be very long."""
    return _internals(model).label


def cached(model: Model, key: object, make: Callable[[], T]) -> T:
    """Return the result of ``make`` from the first call with this key, under the model's lock, or raise its error."""
    internals = _internals(model)
    with internals.lock:
        if key not in internals.cache:
            try:
                internals.cache[key] = make()
            except OnnxNbError as error:  # asked for each node of a page, it would be found again each time
                internals.cache[key] = error.with_traceback(None)
        value: T | OnnxNbError = internals.cache[key]
    if isinstance(value, OnnxNbError):
        raise copy.copy(value)
    return value


def with_proto(model: Model, proto: ModelProto, name: str = "", sources: Sources | None = None) -> Model:
    """Return a model derived from another one, with its weights in the same places."""
    storage = storage_of(model).like(sources) if sources else storage_of(model)
    return Model(proto, name=name or model.name, storage=storage)


def read_tensor(model: Model, weight: WeightProto, name: str) -> NDArray[Any]:
    """Return the values of a weight anywhere in ``model.proto``, subgraphs included; ``name`` is for errors."""
    storage, label = storage_of(model), label_of(model)
    tensor = as_tensor(weight)
    if isinstance(tensor, SparseTensorProto):
        what = f"sparse weight {quoted(name)} of {label}"
        indices = storage.values(tensor.indices, f"the indices of {what}")
        array = tensors.dense(tensor, storage.values(tensor.values, what), indices, what)
    else:
        array = storage.values(tensor, f"weight {quoted(name)} of {label}")
    array.flags.writeable = False
    return array


def weight_info(name: str, weight: WeightProto) -> TensorInfo:
    """Return the name, type, shape, size and location of a weight; no value is read."""
    if isinstance(weight, AttributeProto) and (entries := weight.floats or weight.ints or weight.strings):
        # as a tensor, millions of them would take seconds
        if weight.strings:
            return TensorInfo(name, TensorProto.STRING, (len(entries),), sum(map(len, weight.strings)))
        data_type, size = (TensorProto.FLOAT, 4) if weight.floats else (TensorProto.INT64, 8)
        return TensorInfo(name, data_type, (len(entries),), size * len(entries))
    tensor = as_tensor(weight)
    if isinstance(tensor, SparseTensorProto):
        nbytes = weight_info(name, tensor.values).nbytes + weight_info(name, tensor.indices).nbytes
        return TensorInfo(name, tensor.values.data_type, tuple(tensor.dims), nbytes, sparse=True)
    shape = tuple(tensor.dims)
    if tensor.data_location != TensorProto.EXTERNAL:
        return TensorInfo(name, tensor.data_type, shape, tensors.held_bytes(tensor))
    entries = references(tensor)
    # An entry that is not a number is reported when the weight is read; until then the model can be inspected.
    numbers = entries.get("offset", "0"), entries.get("length", "")
    offset, length = (int(number) if is_number(number) else None for number in numbers)
    nbytes = max(tensors.declared_bytes(tensor), 0) if length is None else length
    return TensorInfo(name, tensor.data_type, shape, nbytes, entries.get("location"), offset)


def _from_file(name: str, folder: Path | None) -> Model:
    """Read a file; ``folder`` holds its external data if that is not the file's own folder."""
    path = path_of(name)
    label = quoted(str(path))
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if _ADDRESS.match(name):
            raise ModelFileError(f"{quoted(name)} is a web address.", advice="Download it and give its path.") from None
        where = "" if path.is_absolute() else f" in {quoted(str(Path.cwd()))}"
        advice = closest_text(path.name, file_names(path.parent))
        raise ModelFileError(f"there is no file {label}{where}.", advice=advice) from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{label} cannot be opened: {getattr(error, 'strerror', None) or error}.") from error
    if stat.S_ISDIR(status.st_mode):
        from onnx_nb.analysis.model.package import open_package

        if folder is None and (package := open_package(path.absolute())) is not None:
            return package
        models = sorted(other for other in file_names(path) if other.endswith(".onnx"))
        if len(models) == 1:
            return _from_file(str(path / models[0]), folder)
        advice = f"Models in it: {', '.join(map(quoted, models[:5]))}." if models else "It contains no .onnx file."
        raise ModelFileError(f"{label} is a folder.", advice=advice)
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{label} is not an ordinary file.", advice="Copy its content into one.")
    path = path.absolute()
    file = File(path, ModelFileError, what=label, permanent=True)
    # onnxruntime can look the file up by its own name, unless the data is elsewhere or the name is not UTF-8.
    usable = folder is None and path.name.isprintable() and len(PureWindowsPath(path.name).parts) == 1
    location, title = path.name if usable else f"{MEMORY}/file", path_text(path.name)
    try:
        with path.open("rb", buffering=0) as stream:
            content = wire.scan(cast("Any", stream), location=location, name=title)
    except OSError as error:
        raise ModelFileError(f"{label} cannot be read: {error.strerror or error}.") from error
    storage = Storage({location: file}, folder=folder or path.parent, path=path)
    return Model(_parsed(content, title), name=title, path=path, storage=storage)


def _from_proto(source: ModelProto, folder: Path | None) -> Model:
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
        sources[location] = MemorySource(tensor, nbytes, "the given ModelProto")
    return _unnamed(proto, sources, folder)


def _from_ir(source: onnx_ir.Model, folder: Path | None) -> Model:
    """Serialize the structure; stand-ins without values are serialized for large weights."""
    import onnx_ir as ir

    if not isinstance(source.graph, ir.Graph):
        raise ModelFileError("the given onnx_ir.Model has no graph.")
    sources: dict[str, Source] = {}
    values: dict[str, Any] = {}
    for name, value in source.graph.initializers.items():
        tensor: Any = value.const_value
        if tensor is None:
            raise ModelFileError(f"initializer {quoted(name)} of the given onnx_ir.Model has no value.")
        place = Path(tensor.base_dir).absolute() if isinstance(tensor, ir.ExternalTensor) else None
        folder = folder or place
        if place is None and (tensor.dtype == ir.DataType.STRING or tensor.nbytes < wire.THRESHOLD):
            # Serializing sets the tensor's name: let it set that of a stand-in.
            tensor = tensor if tensor.name == name else _StandIn(tensor, name=name)
        elif place is None or place != folder:
            location = f"{MEMORY}/{len(sources)}"
            sources[location] = MemorySource(tensor, tensor.nbytes, "the given onnx_ir.Model")
            notes = {"doc_string": tensor.doc_string, "metadata_props": dict(tensor.metadata_props) or None}
            shape = ir.Shape(tensor.shape.numpy())
            tensor = ir.ExternalTensor(location, 0, tensor.nbytes, tensor.dtype, shape=shape, name=name, **notes)
        values[name] = _StandIn(value, const_value=tensor)
    stand_in = _StandIn(source, graph=_StandIn(source.graph, initializers=values))
    try:
        proto = ir.serde.serialize_model(cast("Any", stand_in))
    except Exception as error:
        raise ModelFileError(f"the given onnx_ir.Model cannot be serialized: {error}") from error
    return _unnamed(proto, sources, folder)


class _StandIn:
    """A view of an object with some attributes replaced; the object itself does not change."""

    def __init__(self, original: object, **attributes: object) -> None:
        self.__dict__.update(attributes, _original=original)

    def __getattr__(self, name: str) -> Any:  # any attribute of the original
        return getattr(self._original, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._original)


def _parsed(data: bytes, name: str) -> ModelProto:
    try:
        return cast("ModelProto", ModelProto.FromString(data))
    except DecodeError as error:
        raise _unreadable(error, name) from error


def _unreadable(error: DecodeError, name: str) -> ModelFileError:
    if "MaxDepth" in str(error):
        return ModelFileError(f"{name} nests graphs more deeply than protobuf can read (100 levels of messages).")
    message = f"{name} is not an ONNX model, or a damaged one: protobuf cannot parse it."
    return ModelFileError(message, advice="Check that the download or copy was completed, or export the model again.")


_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def _unnamed(proto: ModelProto, sources: Sources, folder: Path | None) -> Model:
    return Model(proto, name=plain_text(proto.graph.name) or "model", storage=Storage(sources, folder=folder))
