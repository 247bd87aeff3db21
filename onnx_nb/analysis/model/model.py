"""Model: a ModelProto without its weights, and where their bytes lie.

`load` takes whatever holds a model and reads only its structure, by `wire.scan` for files and bytes. Large weights are
external data in `Model.proto`: `storage` knows where they lie, maps one when `Model.tensor` asks for it and streams all
when `Model.save` writes them; `tensors` makes arrays of bytes.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import sys
import threading
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto, SparseTensorProto, TensorProto

from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, closest, plain_text, quoted
from onnx_nb.analysis.model import tensors, wire
from onnx_nb.analysis.model.save import Layout, write_model
from onnx_nb.analysis.model.storage import (
    KNOWN_KEYS,
    MEMORY,
    Extent,
    File,
    Memory,
    Source,
    Storage,
    embed,
    file_names,
    is_number,
    refer,
    references,
)
from onnx_nb.analysis.model.tensors import external

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import onnx_ir
    import torch
    from numpy.typing import NDArray

    ModelLike: TypeAlias = (
        "str | os.PathLike[str] | bytes | ModelProto | onnx_ir.Model | torch.onnx.ONNXProgram | Model"
    )
else:
    ModelLike = object


def load(source: ModelLike, *, data_dir: str | os.PathLike[str] | None = None) -> Model:
    """Open a model without reading its weights: milliseconds at any size.

    Parameters
    ----------
    source
        Path of a .onnx file, its bytes, an ``onnx.ModelProto``, an ``onnx_ir.Model``, a ``torch.onnx.ONNXProgram``, or
        a `Model`, which is returned as it is. It is never changed, and must not change while the Model is in use.
    data_dir
        Folder of the external data, if it is not the folder of the model's file.

    Returns
    -------
    Model
        The structure, and where the bytes of the weights lie.

    Raises
    ------
    ModelFileError
        If there is no such file, or it is not an ONNX model, or only a part of one.

    Examples
    --------
    >>> import onnx.parser
    >>> load(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'))
    Model('g', 1 node, 0 B, opset 17)
    """
    folder = None if data_dir is None else _checked_folder(data_dir)
    if isinstance(source, Model):
        return source if folder is None else source._moved_to(folder)  # noqa: SLF001  # Model is of this module
    if isinstance(source, str | os.PathLike):
        return _load_file(os.fspath(source), folder)
    if isinstance(source, bytes | bytearray | memoryview):
        return _load_bytes(bytes(source), folder)
    if isinstance(source, ModelProto):
        return _load_proto(source, folder)
    ir = sys.modules.get("onnx_ir")
    inner = getattr(source, "model", None) if type(source).__name__ == "ONNXProgram" else source
    if ir is not None and isinstance(inner, ir.Model):
        return _load_ir(inner, folder)
    advice = ""
    if hasattr(source, "state_dict"):
        advice = " Export it first, onnx_nb.export(module, args), or compare it by onnx_nb.compare_torch(module, args)."
    raise TypeError(
        f"a model is a path, bytes, an onnx.ModelProto, an onnx_ir.Model or a torch.onnx.ONNXProgram, "
        f"not {type(source).__module__}.{type(source).__qualname__}.{advice}"
    )


@dataclass(frozen=True)
class TensorInfo:
    """What is known of a weight without reading it."""

    name: str
    dtype: int
    """As in ``onnx.TensorProto.DataType``."""
    shape: tuple[int, ...]
    nbytes: int
    """How many bytes the file (or the proto) spends on its values."""
    location: str | None = None
    """External data: which file. ``None`` for a weight inside the proto."""
    offset: int | None = None
    """External data: where in the file."""
    sparse: bool = False


class Model:
    """A model's structure, and where the bytes of its weights lie. Made by `load`.

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
        self,
        proto: ModelProto,
        *,
        name: str,
        path: Path | None = None,
        storage: Storage | None = None,
    ) -> None:
        self.proto: Final = proto
        """ModelProto without the bytes of large weights, each of which is external data in it. Do not change it."""
        self.name: Final = name
        """What to call the model in a heading or a message."""
        self.path: Final = path
        """The file it was loaded from, if there is one."""
        self.storage: Final = Storage() if storage is None else storage
        """Where the bytes of its external data lie."""
        self.folder: Final = self.storage.folder
        """Where the locations of external data are looked up."""
        self.lock: Final = threading.RLock()
        """Held while something is derived and put into `memo`."""
        self.memo: Final[dict[object, Any]] = {}
        """What other modules derived from the model, so that it is derived once."""
        self.called: Final = name if name.isprintable() and len(name) <= 200 else quoted(name)
        """The name as messages have it: a stranger's may hold line breaks, or be very long."""
        self._index: dict[str, TensorProto | SparseTensorProto] | None = None
        self._initializers: Mapping[str, TensorInfo] | None = None

    def __repr__(self) -> str:
        count = len(self.proto.graph.node)
        versions = {entry.domain: entry.version for entry in self.proto.opset_import}
        opset = versions.get("", versions.get("ai.onnx"))
        if opset is None:
            named = ", ".join(f"{domain} {version}" for domain, version in list(versions.items())[:3])
        else:
            named = str(opset)
        name = self.name if len(self.name) <= 80 else self.name[:79] + "…"
        nodes = "1 node" if count == 1 else f"{count} nodes"
        return f"Model({name!r}, {nodes}, {bytes_text(self.nbytes)}, opset {named or 'unknown'})"

    def __getstate__(self) -> dict[str, Any]:
        left_out: dict[str, Any] = {"lock": None, "memo": {}, "_index": None, "_initializers": None}
        return {**self.__dict__, **left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.RLock())

    @property
    def nbytes(self) -> int:
        """Bytes of all weights of the main graph."""
        return sum(info.nbytes for info in self.initializers.values())

    @property
    def initializers(self) -> Mapping[str, TensorInfo]:
        """What is known of each weight of the main graph, sparse ones too, by name and in the model's order.

        Examples
        --------
        >>> import numpy, onnx
        >>> weight = onnx.numpy_helper.from_array(numpy.arange(1000.0), "w")
        >>> model = load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight])))
        >>> model.initializers["w"].shape, model.initializers["w"].nbytes
        ((1000,), 8000)
        """
        if self._initializers is None:
            with self.lock:
                infos = {name: _info(name, tensor) for name, tensor in self._tensors().items()}
                self._initializers = MappingProxyType(infos)
        return self._initializers

    def tensor_names(self, pattern: str = "*") -> list[str]:
        """List the weights whose names match.

        Parameters
        ----------
        pattern
            With ``*``, ``?`` and ``[…]`` as in file names.

        Examples
        --------
        >>> import numpy, onnx
        >>> weights = [onnx.numpy_helper.from_array(numpy.zeros(1), name) for name in ("a.weight", "a.bias")]
        >>> load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], weights))).tensor_names("*bias")
        ['a.bias']
        """
        if pattern == "*":
            return list(self._tensors())
        return [name for name in self._tensors() if fnmatch.fnmatchcase(name, pattern)]

    def tensor(self, name: str) -> NDArray[Any]:
        """Return the values of a weight; only its bytes are mapped from the file, and nothing is copied.

        Types that numpy lacks are those of ``ml_dtypes`` (bfloat16, float8…, int4…; values smaller than a byte are
        unpacked), strings are an object array of ``str``, and a sparse weight is given dense.

        Parameters
        ----------
        name
            As in `tensor_names`.

        Returns
        -------
        numpy.ndarray
            Read-only. It may be unaligned in memory, as weights lie in the file; ``.copy()`` gives one of your own.

        Raises
        ------
        OnnxNbError
            If no weight has this name.
        ModelFileError, ExternalDataError
            If its bytes are not there, or are not as many as its type and shape say.

        Examples
        --------
        >>> import numpy, onnx
        >>> weight = onnx.numpy_helper.from_array(numpy.arange(3.0), "w")
        >>> load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))).tensor("w")
        array([0., 1., 2.])
        """
        tensor = self._tensors().get(name)
        if tensor is None:
            raise self._no_weight(name)
        return self.read(tensor, name)

    def read(self, tensor: TensorProto | SparseTensorProto, name: str) -> NDArray[Any]:
        """Return the values of a tensor of `proto`, wherever in it: of a weight in a body too.

        Parameters
        ----------
        tensor
            Of `proto`; where its bytes lie is known by it.
        name
            For errors.
        """
        if isinstance(tensor, SparseTensorProto):
            what = f"sparse weight {quoted(name)} of {self.called}"
            values = self._values(tensor.values, what)
            array = tensors.dense(tensor, values, self._values(tensor.indices, f"the indices of {what}"), what)
        else:
            array = self._values(tensor, f"weight {quoted(name)} of {self.called}")
        array.flags.writeable = False
        return array

    def save(self, path: str | os.PathLike[str], *, external_data: bool | str | None = None) -> Path:
        """Write the model and its weights to a new file, reading a few megabytes at a time.

        The file appears when it is complete: whoever looks at ``path`` sees the file from before, or the new one.

        Parameters
        ----------
        path
            Where to. A file that is there is replaced, but never one that this model is read from.
        external_data
            ``True``, or the name of a file in the same folder: put the weights there, except those below 1 kB (see
            `external_data.convert` for other choices). ``False``: keep all in one file.
            By default one file is written; above 2 GB, which one file cannot hold, the weights go to ``<path>.data``.

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
        target = Path(path)
        if external_data is None:
            total = self.proto.ByteSize() + sum(extent.nbytes + 32 for extent in self._extents())
            external_data = total > wire.PROTO_LIMIT
        layout = None
        if external_data is not False:
            layout = Layout(f"{target.name}.data" if external_data is True else external_data)
        write_model(target, self.proto, self.storage, self.called, layout=layout)
        return target

    def to_proto(self) -> ModelProto:
        """Return a new ModelProto with the weights inside.

        Raises
        ------
        ModelFileError
            If it would be larger than the 2 GB that protobuf can write.
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
        extents = self._extents()
        total = self.proto.ByteSize() + sum(extent.nbytes + 32 for extent in extents)
        if total > wire.PROTO_LIMIT:
            raise ModelFileError(
                f"{self.called} is {bytes_text(total)} with its weights, and a ModelProto holds at most 2 GB.",
                advice="Save it with model.save(path), which puts the weights into a file of their own.",
            )
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        for tensor, extent in zip(external(proto), extents, strict=True):
            embed(tensor, extent)
        return proto

    def with_proto(
        self, proto: ModelProto, name: str | None = None, sources: Mapping[str, Source] | None = None
    ) -> Model:
        """Return another model whose weights are found where this one's are; for models made out of this one.

        Parameters
        ----------
        proto
            Its external data refers to the same places as that of `proto`. It is taken over, not copied.
        name
            What to call it.
        sources
            What lies at locations that this model does not have.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
        >>> model = load(onnx.parser.parse_model(text))
        >>> model.with_proto(model.proto, "a copy")
        Model('a copy', 1 node, 0 B, opset 17)
        """
        storage = self.storage.joined(sources) if sources else self.storage
        return Model(proto, name=self.name if name is None else name, storage=storage)

    def for_onnxruntime(self) -> tuple[ModelProto, Path | None, dict[str, NDArray[np.uint8]]]:
        """Return what onnxruntime needs to find the weights, after checking that all of them are there.

        Returns
        -------
        proto : onnx.ModelProto
            Without large weights.
        folder : pathlib.Path or None
            Where onnxruntime can look up the locations itself.
        buffers : dict of str to numpy.ndarray
            If it cannot: the content of the file at each location, mapped, not read. Else empty.

        Raises
        ------
        ExternalDataError
            If the bytes of a weight are not there.

        Examples
        --------
        >>> import numpy, onnx
        >>> weight = onnx.numpy_helper.from_array(numpy.arange(1000.0), "w")
        >>> model = load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight])))
        >>> proto, folder, buffers = model.for_onnxruntime()
        >>> folder, [content.nbytes for content in buffers.values()]
        (None, [8000])
        """
        proto, held = self.proto, self._external()
        extents = self._extents(held)
        entries = [references(tensor) for tensor, _ in held]
        used = self._used(entries, extents)
        inside = self._are_inside(used)
        # In bodies of If, Loop and Scan onnxruntime refuses files that are links; buffers serve only the main graph.
        inner = extents[self._main_count() :]
        if inner and (not inside or any(isinstance(e.source, File) and e.source.is_linked for e in inner)):
            proto, extents = self._with_inner_weights(extents)
            entries = [references(tensor) for tensor in external(proto)]
            used = self._used(entries, extents)
            inside = self._are_inside(used)
        if not all(KNOWN_KEYS.issuperset(each) for each in entries):
            proto = _without_foreign_keys(proto)
        if inside:
            return proto, self.folder, {}
        buffers = {at: e.source.array(0, e.source.nbytes, e.what) for at, e in used.items()}
        return proto, self.folder, buffers

    @staticmethod
    def _used(entries: list[dict[str, str]], extents: list[Extent]) -> dict[str, Extent]:
        """Return what lies at each location."""
        return {each.get("location", ""): extent for each, extent in zip(entries, extents, strict=True)}

    def _are_inside(self, used: Mapping[str, Extent]) -> bool:
        return all(self.storage.is_inside(location, extent.source) for location, extent in used.items())

    def _main_count(self) -> int:
        return sum(tensor.data_location == TensorProto.EXTERNAL for tensor in self.proto.graph.initializer)

    def _moved_to(self, folder: Path) -> Model:
        return Model(self.proto, name=self.name, path=self.path, storage=self.storage.moved_to(folder))

    def _tensors(self) -> dict[str, TensorProto | SparseTensorProto]:
        if self._index is None:
            graph = self.proto.graph
            index: dict[str, TensorProto | SparseTensorProto] = {plain_text(t.name): t for t in graph.initializer}
            index.update((plain_text(sparse.values.name), sparse) for sparse in graph.sparse_initializer)
            self._index = index
        return self._index

    def _no_weight(self, name: str) -> OnnxNbError:
        for node in self.proto.graph.node:
            if name in node.output:
                maker = f"{plain_text(node.op_type)} {quoted(plain_text(node.name))}".removesuffix(" ''")
                return OnnxNbError(
                    f"tensor {quoted(name)} of {self.called} is not a weight: {maker} computes it when the model runs.",
                    advice="model.tensor_names() lists the weights.",
                )
        if any(name == value.name for value in self.proto.graph.input):
            return OnnxNbError(f"tensor {quoted(name)} of {self.called} is not a weight: it is an input of the model.")
        near = closest(name, self._tensors())
        hint = f" Closest names: {', '.join(map(quoted, near))}." if near else ""
        pattern = repr(f"{near[0][:12]}*") if near else ""
        message = f"tensor {quoted(name)} is not in {self.called}.{hint}"
        return OnnxNbError(message, advice=f"List them with model.tensor_names({pattern}).")

    def _values(self, tensor: TensorProto, what: str) -> NDArray[Any]:
        if tensor.data_location == TensorProto.EXTERNAL:
            extent = self.storage.extent(tensor, what)
            return tensors.decoded(extent.array(), tensor, what)
        return tensors.values(tensor, what)

    def _external(self) -> list[tuple[TensorProto, tensors.Place]]:
        """Return the tensors with external data and where they are, in the order of `external`."""
        external = TensorProto.EXTERNAL
        return [(tensor, place) for tensor, place in tensors.placed(self.proto) if tensor.data_location == external]

    def _extents(self, held: Iterable[tuple[TensorProto, tensors.Place]] | None = None) -> list[Extent]:
        """Return where all external data lies, in the order of `external`: first the weights of the main graph."""
        held = self._external() if held is None else held
        return [self.storage.extent(tensor, f"{place.label} of {self.called}") for tensor, place in held]

    def _with_inner_weights(self, extents: list[Extent]) -> tuple[ModelProto, list[Extent]]:
        """Put the few weights in that are elsewhere than in the main graph, and give where the others lie."""
        count = self._main_count()
        if len(extents) == count:
            return self.proto, extents
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        for tensor, extent in list(zip(external(proto), extents, strict=True))[count:]:
            embed(tensor, extent)
        return proto, extents[:count]


def _without_foreign_keys(proto: ModelProto) -> ModelProto:
    """Return the model without entries for which onnxruntime would refuse it."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    for tensor in external(copy):
        kept = [entry for entry in tensor.external_data if plain_text(entry.key) in KNOWN_KEYS]
        del tensor.external_data[:]
        tensor.external_data.extend(kept)
    return copy


def _load_file(name: str, folder: Path | None) -> Model:
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
        advice = f"Models in it: {', '.join(map(quoted, models[:5]))}." if models else "No .onnx file is in it."
        raise ModelFileError(f"{label} is a folder.", advice=advice)
    if not stat.S_ISREG(found.st_mode):
        raise ModelFileError(f"{label} is not an ordinary file.", advice="Copy what it gives into one.")
    path = path.absolute()
    own = File(path, ModelFileError, what=label, permanent=True)
    # onnxruntime can look the file up by its own name, unless data lies elsewhere or the name is no UTF-8.
    usable = folder is None and path.name.isprintable() and len(PureWindowsPath(path.name).parts) == 1
    location = path.name if usable else f"{MEMORY}/file"
    try:
        with path.open("rb", buffering=0) as file:
            stripped = wire.scan(cast("Any", file), location=location, name=path.name)
    except OSError as error:
        raise ModelFileError(f"{label} cannot be read: {error.strerror or error}.") from error
    proto = _parsed(stripped.proto, path.name)
    return Model(
        proto, name=path.name, path=path, storage=Storage({location: own}, folder=folder or path.parent, path=path)
    )


def _load_bytes(data: bytes, folder: Path | None) -> Model:
    location = f"{MEMORY}/bytes"
    proto = _parsed(wire.scan(data, location=location, name="the given bytes").proto, "the given bytes")
    source = Memory(data, len(data), "the given bytes")
    return Model(proto, name=_graph_name(proto), storage=Storage({location: source}, folder=folder))


def _load_proto(source: ModelProto, folder: Path | None) -> Model:
    """Copy the structure; a large weight is referred to, and stays in the given proto."""
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
    return Model(proto, name=_graph_name(proto), storage=Storage(sources, folder=folder))


def _load_ir(source: onnx_ir.Model, folder: Path | None) -> Model:
    """Serialize all but large weights, for which stand-ins are serialized as external data."""
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
    return Model(proto, name=_graph_name(proto), storage=Storage(sources, folder=folder))


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
    near = closest(path.name, file_names(path.parent))
    hint = f" Closest names: {', '.join(map(quoted, near))}." if near else ""
    where = "" if path.is_absolute() else f" in {quoted(str(Path.cwd()))}"
    return ModelFileError(f"there is no file {quoted(str(path))}{where}.{hint}")


def _checked_folder(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    if not path.is_dir():
        message = f"data_dir {quoted(str(path))} is not a folder."
        raise ExternalDataError(message, advice="Give the folder of the data files.")
    return path.absolute()


def _graph_name(proto: ModelProto) -> str:
    return plain_text(proto.graph.name) or "model"


def _info(name: str, tensor: TensorProto | SparseTensorProto) -> TensorInfo:
    if isinstance(tensor, SparseTensorProto):
        nbytes = _info(name, tensor.values).nbytes + _info(name, tensor.indices).nbytes
        return TensorInfo(name, tensor.values.data_type, tuple(tensor.dims), nbytes, sparse=True)
    shape = tuple(tensor.dims)
    if tensor.data_location != TensorProto.EXTERNAL:
        return TensorInfo(name, tensor.data_type, shape, tensors.held_bytes(tensor))
    entries = references(tensor)
    # A number that is none is reported when the weight is read; until then the model can be looked at.
    numbers = entries.get("offset", "0"), entries.get("length", "")
    offset, length = (int(number) if is_number(number) else None for number in numbers)
    nbytes = max(tensors.declared_bytes(tensor), 0) if length is None else length
    return TensorInfo(name, tensor.data_type, shape, nbytes, entries.get("location"), offset)
