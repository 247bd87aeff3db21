"""Model: a ModelProto without its weights, and where their bytes lie.

`load` takes whatever holds a model and reads only its structure, by `wire.scan` for files and bytes. Large weights are
external data in `Model.proto`, whose bytes are mapped when `Model.tensor` asks for one and streamed when `Model.save`
writes them. Files are not trusted: every offset, length and path is checked before it is used.
"""

from __future__ import annotations

import fnmatch
import math
import mmap
import os
import secrets
import stat
import sys
import threading
import weakref
from collections import ChainMap
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import ml_dtypes
import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from onnx_nb.analysis import wire
from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError, closest

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

MEMORY: Final = "onnx_nb.memory"
"""Locations that start so name bytes held by a Model, not a file of that name."""

DENSE_LIMIT: Final = 1 << 30
"""A sparse weight is given as a dense array up to so many bytes."""


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
        advice = " Export it first: torch.onnx.export(module, args, dynamo=True)."
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
        folder: Path | None = None,
        sources: Mapping[str, _Source] | None = None,
    ) -> None:
        self.proto: Final = proto
        """ModelProto without the bytes of large weights, each of which is external data in it. Do not change it."""
        self.name: Final = name
        """What to call the model in a heading or a message."""
        self.path: Final = path
        """The file it was loaded from, if there is one."""
        self.folder: Final = folder
        """Where the locations of external data are looked up."""
        self.lock: Final = threading.RLock()
        """Held while something is derived and put into `memo`."""
        self.memo: Final[dict[object, Any]] = {}
        """What other modules derived from the model, so that it is derived once."""
        # In messages: names may hold line breaks, or be very long.
        self._called = name if name.isprintable() and len(name) <= 200 else shown(name)
        self._sources: dict[str, _Source] = dict(sources or {})
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
        return f"Model({name!r}, {nodes}, {_readable(self.nbytes)}, opset {named or 'unknown'})"

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
        """Give the values of a weight; only its bytes are mapped from the file, and nothing is copied.

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
        if isinstance(tensor, SparseTensorProto):
            array = self._dense(name, tensor)
        else:
            array = self._values(tensor, f"weight {shown(name)} of {self._called}")
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
            ``True``, or the name of a file in the same folder: put the weights there. ``False``: keep all in one file.
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
        if not target.name or os.path.isdir(target):  # noqa: PTH112  # Path.is_dir raises if the name is too long
            raise ModelFileError(f"{shown(str(target))} is a folder.", advice="Give the name of a file in it.")
        if not target.parent.is_dir():
            raise ModelFileError(f"the folder {shown(str(target.parent))} does not exist.", advice="Create it first.")
        extents = self._extents()
        if external_data is None:
            total = self.proto.ByteSize() + sum(extent.nbytes + 32 for extent in extents)
            external_data = total > wire.PROTO_LIMIT
        if external_data is False:
            self._write({target: self._inside(extents)})
            return target
        data = target.parent / (f"{target.name}.data" if external_data is True else external_data)
        if data.parent != target.parent or data in (target, target.parent) or os.path.isdir(data):  # noqa: PTH112
            raise ModelFileError(
                f"{shown(str(external_data))} cannot hold the weights of {target.name}.",
                advice="Give the name of another file, which is then written beside the model.",
            )
        proto, chunks = self._beside(extents, data.name)
        self._write({data: chunks, target: [proto]})
        return target

    def to_proto(self) -> ModelProto:
        """Give a new ModelProto with the weights inside.

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
                f"{self._called} is {_readable(total)} with its weights, and a ModelProto holds at most 2 GB.",
                advice="Save it with model.save(path), which puts the weights into a file of their own.",
            )
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        for tensor, extent in zip(_external(proto), extents, strict=True):
            _embed(tensor, extent)
        return proto

    def with_proto(self, proto: ModelProto, name: str | None = None) -> Model:
        """Give another model whose weights are found where this one's are; for models made out of this one.

        Parameters
        ----------
        proto
            Its external data refers to the same places as that of `proto`. It is taken over, not copied.
        name
            What to call it.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
        >>> model = load(onnx.parser.parse_model(text))
        >>> model.with_proto(model.proto, "a copy")
        Model('a copy', 1 node, 0 B, opset 17)
        """
        return Model(proto, name=self.name if name is None else name, folder=self.folder, sources=self._sources)

    def for_onnxruntime(self) -> tuple[ModelProto, Path | None, dict[str, NDArray[np.uint8]]]:
        """Give what onnxruntime needs to find the weights, after checking that all of them are there.

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
        extents = self._extents()
        used: dict[str, _Extent] = {}
        for tensor, extent in zip(_external(self.proto), extents, strict=True):
            used.setdefault(_location(tensor), extent)
        if all(self._is_inside(location, extent.source) for location, extent in used.items()):
            return self.proto, self.folder, {}
        # Buffers serve only the main graph; for the rest onnxruntime insists on files.
        proto, _ = self._with_inner_weights(extents)
        locations = dict.fromkeys(map(_location, _external(proto)))
        buffers = {at: used[at].source.array(0, used[at].source.nbytes, used[at].what) for at in locations}
        return proto, self.folder, buffers

    def _is_inside(self, location: str, source: _Source) -> bool:
        if self.folder is None or source.path is None or source.path != self.folder / location:
            return False
        return source.path.resolve().is_relative_to(self.folder.resolve())

    def _moved_to(self, folder: Path) -> Model:
        kept = {location: source for location, source in self._sources.items() if source.permanent}
        return Model(self.proto, name=self.name, path=self.path, folder=folder, sources=kept)

    def _tensors(self) -> dict[str, TensorProto | SparseTensorProto]:
        if self._index is None:
            graph = self.proto.graph
            index: dict[str, TensorProto | SparseTensorProto] = {text(t.name): t for t in graph.initializer}
            index.update((text(sparse.values.name), sparse) for sparse in graph.sparse_initializer)
            self._index = index
        return self._index

    def _no_weight(self, name: str) -> OnnxNbError:
        for node in self.proto.graph.node:
            if name in node.output:
                maker = f"{text(node.op_type)} {shown(text(node.name))}".removesuffix(" ''")
                return OnnxNbError(
                    f"tensor {shown(name)} of {self._called} is not a weight: {maker} computes it when the model runs.",
                    advice="model.tensor_names() lists the weights.",
                )
        if any(name == value.name for value in self.proto.graph.input):
            return OnnxNbError(f"tensor {shown(name)} of {self._called} is not a weight: it is an input of the model.")
        near = closest(name, self._tensors())
        hint = f" Closest names: {', '.join(map(shown, near))}." if near else ""
        pattern = repr(f"{near[0][:12]}*") if near else ""
        message = f"tensor {shown(name)} is not in {self._called}.{hint}"
        return OnnxNbError(message, advice=f"List them with model.tensor_names({pattern}).")

    def _of(self, tensor: TensorProto) -> str:
        return f"weight {shown(text(tensor.name))} of {self._called}"

    def _values(self, tensor: TensorProto, what: str) -> NDArray[Any]:
        if tensor.data_location == TensorProto.EXTERNAL:
            extent = self._extent(tensor, what)
            return decoded(extent.array(), tensor, what)
        if tensor.HasField("segment"):
            raise ModelFileError(f"{what} is one segment of a tensor, which no version of ONNX defines how to join.")
        if tensor.data_type == TensorProto.STRING:
            count = _count(tensor, what)
            if len(tensor.string_data) != count:
                raise ModelFileError(f"{what} has {len(tensor.string_data)} strings for shape {_shape(tensor)}.")
            strings = np.empty(count, object)
            strings[:] = [text(data) for data in tensor.string_data]
            return _reshaped(strings, tensor, what)
        if tensor.HasField("raw_data"):
            return decoded(np.frombuffer(tensor.raw_data, np.uint8), tensor, what)
        _dtype(tensor, what)
        _count(tensor, what)
        try:
            return np.array(onnx.numpy_helper.to_array(tensor))
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise ModelFileError(f"{what} does not hold what its type and shape say: {error}.") from error

    def _extents(self) -> list[_Extent]:
        """Give where all external data lies, in the order of `_external`: first the weights of the main graph."""
        return [self._extent(tensor, self._of(tensor)) for tensor in _external(self.proto)]

    def _extent(self, tensor: TensorProto, what: str) -> _Extent:
        """Check where external data lies: nothing of it is trusted."""
        entries = {text(entry.key): text(entry.value) for entry in tensor.external_data}
        if tensor.data_type == TensorProto.STRING:
            raise ExternalDataError(f"{what} has strings as external data, which ONNX does not define.")
        expected = _stored(_count(tensor, what), tensor.data_type, what)
        offset = _whole_number(entries.get("offset") or "0", "offset", what)
        length = _whole_number(entries["length"], "length", what) if entries.get("length") else expected
        if length != expected:
            raise ExternalDataError(
                f"{what} has {length} bytes of external data, but {_type(tensor)} with shape {_shape(tensor)} takes "
                f"{expected}."
            )
        source = self._source(_location(tensor), what)
        if offset + length > source.nbytes:
            raise ExternalDataError(
                f"{what} lies at bytes {offset} to {offset + length} of {shown(source.label)}, which has only "
                f"{source.nbytes}.",
                advice="Get the whole file again.",
            )
        return _Extent(source, offset, length, what)

    def _source(self, location: str, what: str) -> _Source:
        source = self._sources.get(location)
        if source is None:
            source = _File(self._located(location, what), ExternalDataError, what=what)
            self._sources[location] = source
        return source

    def _located(self, location: str, what: str) -> Path:
        """Give the file, by onnxruntime's rule: inside the folder, also after following symbolic links.

        A hub cache keeps a folder of links to files named by their hash. There the model's file is itself a link, and
        its data may lie where the model's file really is.
        """
        if self.folder is None:
            raise ExternalDataError(
                f"{what} is external data in {shown(location)}, but a model from memory has no folder.",
                advice="Give it: onnx_nb.load(model, data_dir=…).",
            )
        windows = PureWindowsPath(location)
        if not location or "\0" in location:
            raise ExternalDataError(f"{what} is external data without a usable location: {shown(location)}.")
        if Path(location).is_absolute() or windows.drive or windows.root or ".." in windows.parts:
            raise ExternalDataError(
                f"{what} is external data in {shown(location)}, which leads out of the model's folder.",
                advice="Only files in that folder, or below it, are read.",
            )
        path = self.folder / location
        try:
            real = path.resolve(strict=True)
            roots = [self.folder.resolve()]
            if self.path is not None and self.path.is_symlink():
                roots.append(self.path.resolve().parent)
        except (OSError, RuntimeError) as error:
            raise self._missing(location, what, error) from None
        if not any(real.is_relative_to(root) for root in roots):
            raise ExternalDataError(
                f"{what} is external data in {shown(location)}, a symbolic link that leads out of the model's folder.",
                advice="Copy the file into the folder, or give its folder: onnx_nb.load(path, data_dir=…).",
            )
        return path

    def _missing(self, location: str, what: str, error: Exception) -> ExternalDataError:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            reason = error.strerror or type(error).__name__
            return ExternalDataError(f"{what} is external data in {shown(location)}, which cannot be used: {reason}.")
        folder = cast("Path", self.folder)
        near = closest(location, _file_names(folder))
        hint = f" Closest names: {', '.join(map(shown, near))}." if near else ""
        return ExternalDataError(
            f"{what} is external data in {shown(location)}, which is not in {shown(str(folder))}.{hint}",
            advice="Put the file there, or give its folder: onnx_nb.load(path, data_dir=…).",
        )

    def _dense(self, name: str, sparse: SparseTensorProto) -> NDArray[Any]:
        what = f"sparse weight {shown(name)} of {self._called}"
        values = self._values(sparse.values, what)
        indices = self._values(sparse.indices, f"the indices of {what}")
        shape = tuple(sparse.dims)
        if any(dim < 0 for dim in shape):
            raise ModelFileError(f"{what} has a negative dimension: shape {_shape(sparse)}.")
        needed = math.prod(shape) * values.dtype.itemsize
        if needed > DENSE_LIMIT:
            raise ModelFileError(
                f"{what} would take {_readable(needed)} as a dense array of shape {_shape(sparse)}.",
                advice="Read its values and indices from model.proto.graph.sparse_initializer.",
            )
        fitting = {(values.size,), (values.size, len(shape))}
        if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in fitting:
            raise ModelFileError(
                f"{what} has values of shape {list(values.shape)} and {indices.dtype} indices of shape "
                f"{list(indices.shape)}, which do not fit each other."
            )
        size = math.prod(shape)
        if indices.ndim == 2:
            inside = ((indices >= 0) & (indices < np.array(shape, np.int64))).all()
            flat = np.ravel_multi_index(tuple(indices.T), shape) if inside and shape else np.zeros(len(values), int)
        else:
            flat = indices
            inside = ((flat >= 0) & (flat < size)).all()
        if not inside:
            raise ModelFileError(f"{what} has indices outside its shape {_shape(sparse)}.")
        dense = np.full(size, "", object) if values.dtype == object else np.zeros(size, values.dtype)
        dense[flat] = values
        return dense.reshape(shape)

    def _inside(self, extents: list[_Extent]) -> list[bytes | wire.Chunk]:
        """Give the parts of one file that holds everything."""
        proto, streamed = self._with_inner_weights(extents)
        total = proto.ByteSize() + sum(extent.nbytes for extent in streamed)
        if total > wire.PROTO_LIMIT:
            raise ModelFileError(
                f"{self._called} is {_readable(total)}, and one .onnx file holds at most 2 GB.",
                advice="Leave out external_data=False, and the weights go into a file of their own.",
            )
        return wire.splice(proto.SerializeToString(), lambda tensor: self._extent(tensor, self._of(tensor)))

    def _with_inner_weights(self, extents: list[_Extent]) -> tuple[ModelProto, list[_Extent]]:
        """Put the few weights in that are elsewhere than in the main graph, and give where the others lie."""
        count = sum(tensor.data_location == TensorProto.EXTERNAL for tensor in self.proto.graph.initializer)
        if len(extents) == count:
            return self.proto, extents
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        for tensor, extent in list(zip(_external(proto), extents, strict=True))[count:]:
            _embed(tensor, extent)
        return proto, extents[:count]

    def _beside(self, extents: list[_Extent], name: str) -> tuple[bytes, list[bytes | wire.Chunk]]:
        """Give the model's file, and the parts of the file of weights beside it."""
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        chunks: list[bytes | wire.Chunk] = []
        position = 0
        for tensor, extent in zip(_external(proto), extents, strict=True):
            # Pages can then be mapped; 64 KiB is the unit of Windows, as the ONNX specification recommends.
            unit = 65536 if extent.nbytes >= 1 << 20 else 64
            padding = -position % unit
            checksum = [entry.value for entry in tensor.external_data if entry.key == "checksum"]
            _refer(tensor, name, position + padding, extent.nbytes)
            for value in checksum:
                tensor.external_data.add(key="checksum", value=value)
            chunks += [bytes(padding), extent]
            position += padding + extent.nbytes
        return proto.SerializeToString(), chunks

    def _write(self, files: Mapping[Path, list[bytes | wire.Chunk]]) -> None:
        """Write all the files, or none."""
        for path in files:
            for source in self._sources.values():
                if source.path is not None and _is_same(path, source.path):
                    raise ModelFileError(
                        f"{shown(str(path))} holds weights of {self._called}, which is read from it.",
                        advice="Save under another name.",
                    )
        with ExitStack() as cleanup:
            temporary = {}
            try:
                for path, parts in files.items():
                    temporary[path] = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp")
                    cleanup.callback(temporary[path].unlink, missing_ok=True)
                    with temporary[path].open("xb") as file:
                        wire.write(file, parts)
                for path in files:
                    temporary[path].replace(path)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                raise ModelFileError(f"{shown(str(path))} cannot be written: {reason}.") from error


def text(name: str | bytes) -> str:
    r"""Give a name of a proto as text; protobuf hands over bytes where a file breaks the rule that names are UTF-8.

    Examples
    --------
    >>> text("w"), text(b"\xffw")
    ('w', '\\xffw')
    """
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name


class _Source(Protocol):
    """What bytes of weights are read from."""

    @property
    def nbytes(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def path(self) -> Path | None:
        """The file, if it is one: it is never overwritten."""

    @property
    def permanent(self) -> bool:
        """Whether it is meant whatever the folder is."""

    def array(self, start: int, stop: int, what: str) -> NDArray[np.uint8]: ...
    def stream(self, start: int, stop: int, size: int, what: str) -> Iterator[bytes | memoryview]: ...


class _File:
    """A file, mapped for arrays and read for copies. All arrays share one map: each map would take a file handle."""

    _maps: Final[weakref.WeakValueDictionary[tuple[str, int, int], mmap.mmap]] = weakref.WeakValueDictionary()

    def __init__(self, path: Path, error: type[OnnxNbError], *, what: str, permanent: bool = False) -> None:
        self.path = path.absolute()  # the working directory may change
        self.label = path.name
        self.permanent = permanent
        self._error = error
        found = self._stat(what)
        self.nbytes = found.st_size
        self._modified = found.st_mtime_ns

    def _stat(self, what: str) -> os.stat_result:
        try:
            found = self.path.stat()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self._error(f"{what}: {shown(str(self.path))} cannot be opened: {reason}.") from error
        if not stat.S_ISREG(found.st_mode):
            raise self._error(f"{what}: {shown(str(self.path))} is not an ordinary file.")
        return found

    def _check(self, what: str) -> None:
        found = self._stat(what)
        if (found.st_size, found.st_mtime_ns) != (self.nbytes, self._modified):
            message = f"{what}: {shown(str(self.path))} was changed after the model was loaded."
            raise self._error(message, advice="Load the model again.")

    def map(self, what: str) -> mmap.mmap:
        """Give the whole file; pages are read when they are touched."""
        self._check(what)
        key = str(self.path), self.nbytes, self._modified
        mapped = self._maps.get(key)
        if mapped is None:
            try:
                with self.path.open("rb") as file:
                    mapped = mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise self._error(f"{what}: {shown(str(self.path))} cannot be mapped: {error}.") from error
            self._maps[key] = mapped
        return mapped

    def array(self, start: int, stop: int, what: str) -> NDArray[np.uint8]:
        return np.frombuffer(self.map(what), np.uint8, stop - start, start)

    def stream(self, start: int, stop: int, size: int, what: str) -> Iterator[bytes | memoryview]:
        self._check(what)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(start)
                buffer = memoryview(bytearray(min(size, stop - start)))
                while start < stop:
                    count = file.readinto(buffer[: stop - start])
                    if not count:
                        raise self._error(f"{what}: {shown(str(self.path))} ended while it was read.")
                    yield buffer[:count]
                    start += count
        except OSError as error:
            raise self._error(f"{what}: {shown(str(self.path))} cannot be read: {error.strerror}.") from error


class _Memory:
    """Bytes that something in this process holds: the object it was loaded from stays their only owner."""

    path = None
    permanent = True

    def __init__(self, held: bytes | TensorProto | onnx_ir.TensorProtocol, nbytes: int, label: str) -> None:
        self._held = held
        self.nbytes = nbytes
        self.label = label

    def __getstate__(self) -> dict[str, Any]:
        # Other processes get the bytes: a torch tensor or an onnx_ir one may not travel.
        held = self._held if isinstance(self._held, bytes | TensorProto) else self._bytes("a weight").tobytes()
        return {"_held": held, "nbytes": self.nbytes, "label": self.label}

    def _bytes(self, what: str) -> NDArray[np.uint8]:
        held = self._held
        if isinstance(held, bytes):
            data = np.frombuffer(held, np.uint8)
        elif isinstance(held, TensorProto):
            data = np.frombuffer(held.raw_data, np.uint8)
        else:
            data = _ir_bytes(held, what)
        if len(data) != self.nbytes:
            raise ModelFileError(
                f"{what} has {len(data)} bytes, and had {self.nbytes} when the model was loaded.",
                advice="Load the model again after changing it.",
            )
        return data

    def array(self, start: int, stop: int, what: str) -> NDArray[np.uint8]:
        return self._bytes(what)[start:stop]

    def stream(self, start: int, stop: int, size: int, what: str) -> Iterator[bytes | memoryview]:
        data = np.ascontiguousarray(self._bytes(what)).data
        for position in range(start, stop, size):
            yield data[position : min(position + size, stop)]


@dataclass(frozen=True)
class _Extent:
    """Where the bytes of one weight lie; a `wire.Chunk`."""

    source: _Source
    offset: int
    nbytes: int
    what: str

    def array(self) -> NDArray[np.uint8]:
        if not self.nbytes:
            return np.empty(0, np.uint8)
        return self.source.array(self.offset, self.offset + self.nbytes, self.what)

    def stream(self, size: int) -> Iterator[bytes | memoryview]:
        return self.source.stream(self.offset, self.offset + self.nbytes, size, self.what)


def _load_file(name: str, folder: Path | None) -> Model:
    path = Path(name)
    quoted = shown(str(path))
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_file(path) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(f"{quoted} cannot be opened: {reason}.") from error
    if stat.S_ISDIR(found.st_mode):
        models = sorted(other for other in _file_names(path) if other.endswith(".onnx"))
        advice = f"Models in it: {', '.join(map(shown, models[:5]))}." if models else "No .onnx file is in it."
        raise ModelFileError(f"{quoted} is a folder.", advice=advice)
    if not stat.S_ISREG(found.st_mode):
        raise ModelFileError(f"{quoted} is not an ordinary file.", advice="Copy what it gives into one.")
    path = path.absolute()
    own = _File(path, ModelFileError, what=quoted, permanent=True)
    # onnxruntime can look the file up by its own name, unless data lies elsewhere or the name is no UTF-8.
    usable = folder is None and path.name.isprintable() and len(PureWindowsPath(path.name).parts) == 1
    location = path.name if usable else f"{MEMORY}/file"
    try:
        with path.open("rb", buffering=0) as file:
            stripped = wire.scan(cast("Any", file), location=location, name=path.name)
    except OSError as error:
        raise ModelFileError(f"{quoted} cannot be read: {error.strerror or error}.") from error
    proto = _parsed(stripped.proto, path.name)
    return Model(proto, name=path.name, path=path, folder=folder or path.parent, sources={location: own})


def _load_bytes(data: bytes, folder: Path | None) -> Model:
    location = f"{MEMORY}/bytes"
    proto = _parsed(wire.scan(data, location=location, name="the given bytes").proto, "the given bytes")
    source = _Memory(data, len(data), "the given bytes")
    return Model(proto, name=_graph_name(proto), folder=folder, sources={location: source})


def _load_proto(source: ModelProto, folder: Path | None) -> Model:
    """Copy the structure; a large weight is referred to, and stays in the given proto."""
    proto = ModelProto()
    _copy_fields(source, proto, "graph")
    if source.HasField("graph"):
        _copy_fields(source.graph, proto.graph, "initializer")
    sources: dict[str, _Source] = {}
    for tensor in source.graph.initializer:
        target = proto.graph.initializer.add()
        nbytes = _raw_length(tensor, target)
        if nbytes is None:
            target.CopyFrom(tensor)
            continue
        location = f"{MEMORY}/{len(sources)}"
        _refer(target, location, 0, nbytes)
        sources[location] = _Memory(tensor, nbytes, "the given ModelProto")
    return Model(proto, name=_graph_name(proto), folder=folder, sources=sources)


def _load_ir(source: onnx_ir.Model, folder: Path | None) -> Model:
    """Serialize all but large weights, for which stand-ins are serialized as external data."""
    import onnx_ir as ir

    if not isinstance(source.graph, ir.Graph):
        raise ModelFileError("the given onnx_ir.Model has no graph.")
    sources: dict[str, _Source] = {}
    values: dict[str, Any] = {}
    for name, value in source.graph.initializers.items():
        tensor = value.const_value
        if tensor is None:
            raise ModelFileError(f"initializer {shown(name)} of the given onnx_ir.Model has no value.")
        if isinstance(tensor, ir.ExternalTensor) and folder is None:
            folder = Path(tensor.base_dir).absolute()
        values[name] = _StandIn(value, const_value=_ir_tensor(name, tensor, folder, sources))
    stand_in = _StandIn(source, graph=_StandIn(source.graph, initializers=values))
    try:
        proto = ir.serde.serialize_model(cast("Any", stand_in))
    except Exception as error:
        raise ModelFileError(f"the given onnx_ir.Model cannot be serialized: {error}") from error
    return Model(proto, name=_graph_name(proto), folder=folder, sources=sources)


def _ir_tensor(
    name: str, tensor: onnx_ir.TensorProtocol, folder: Path | None, sources: dict[str, _Source]
) -> onnx_ir.TensorProtocol | _StandIn:
    import onnx_ir as ir

    external = isinstance(tensor, ir.ExternalTensor)
    if isinstance(tensor, ir.ExternalTensor) and Path(tensor.base_dir).absolute() == folder:
        return tensor
    if tensor.dtype == ir.DataType.STRING or (tensor.nbytes < wire.THRESHOLD and not external):
        # Serializing sets the tensor's name: let it set that of a stand-in.
        return tensor if tensor.name == name else _StandIn(tensor, name=name)
    location = f"{MEMORY}/{len(sources)}"
    sources[location] = _Memory(tensor, tensor.nbytes, "the given onnx_ir.Model")
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


def _ir_bytes(tensor: onnx_ir.TensorProtocol, what: str) -> NDArray[np.uint8]:
    try:
        if tensor.dtype.bitwidth >= 8:
            # A view of what the tensor holds; tobytes would copy.
            return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
        return np.frombuffer(tensor.tobytes(), np.uint8)
    except Exception as error:
        raise ExternalDataError(f"{what} cannot be read from the given model: {error}") from error


def _parsed(data: bytes, name: str) -> ModelProto:
    try:
        proto: ModelProto = ModelProto.FromString(data)
    except DecodeError as error:
        if "MaxDepth" in str(error):
            raise ModelFileError(
                f"{name} nests graphs more deeply than protobuf can read (100 levels of messages)."
            ) from error
        raise ModelFileError(
            f"{name} is not an ONNX model, or a damaged one: protobuf cannot parse it.",
            advice="Check that the download or copy was completed, or export the model again.",
        ) from error
    return proto


def _no_file(path: Path) -> ModelFileError:
    if str(path).startswith(("http:", "https:")):
        return ModelFileError(f"{shown(str(path))} is a web address.", advice="Download the file and give its path.")
    near = closest(path.name, _file_names(path.parent))
    hint = f" Closest names: {', '.join(map(shown, near))}." if near else ""
    where = "" if path.is_absolute() else f" in {shown(str(Path.cwd()))}"
    return ModelFileError(f"there is no file {shown(str(path))}{where}.{hint}")


def _file_names(folder: Path) -> list[str]:
    """List some files of a folder, for a hint; none if it cannot be read."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) == 2000:
                    break
    except OSError:
        return names
    return names


def _checked_folder(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    if not path.is_dir():
        message = f"data_dir {shown(str(path))} is not a folder."
        raise ExternalDataError(message, advice="Give the folder of the data files.")
    return path.absolute()


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False


def _graph_name(proto: ModelProto) -> str:
    return text(proto.graph.name) or "model"


def _copy_fields(source: ModelProto | GraphProto, target: ModelProto | GraphProto, left_out: str) -> None:
    for field, value in source.ListFields():
        if field.name == left_out:
            continue
        if isinstance(value, str | bytes | int):
            setattr(target, field.name, value)
        elif hasattr(value, "MergeFrom") and not hasattr(value, "CopyFrom"):
            getattr(target, field.name).MergeFrom(value)
        else:
            getattr(target, field.name).CopyFrom(value)


def _raw_length(tensor: TensorProto, rest: TensorProto) -> int | None:
    """Give the length of the raw data and fill in the rest; ``None`` if the tensor is to stay as it is."""
    plain = tensor.data_location == TensorProto.DEFAULT and tensor.data_type != TensorProto.STRING
    if not plain or tensor.HasField("segment") or not tensor.HasField("raw_data"):
        return None
    length = _declared(tensor)
    if not 1 << 20 <= length <= wire.PROTO_LIMIT:
        # Protobuf tells the length of bytes only by copying them. That is spared for large ones, where the shape is
        # believed until the values are read.
        length = len(tensor.raw_data)
    if length < wire.THRESHOLD:
        return None
    for name in _BESIDE_RAW:  # not ListFields, which copies the raw data
        value = getattr(tensor, name)
        if not isinstance(value, str | bytes | int):
            getattr(rest, name).MergeFrom(value)
        elif tensor.HasField(name):
            setattr(rest, name, value)
    return length


_BESIDE_RAW: Final = [
    field.name for field in TensorProto.DESCRIPTOR.fields if field.name not in {"raw_data", "segment"}
]


def _declared(tensor: TensorProto) -> int:
    bits = _BITS.get(tensor.data_type, 0)
    return (math.prod(tensor.dims) * bits + 7) // 8 if all(dim >= 0 for dim in tensor.dims) else -1


def _refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _embed(tensor: TensorProto, extent: _Extent) -> None:
    tensor.raw_data = extent.array().tobytes()
    del tensor.external_data[:]
    tensor.ClearField("data_location")


def _location(tensor: TensorProto) -> str:
    return next((text(entry.value) for entry in tensor.external_data if entry.key == "location"), "")


def _external(proto: ModelProto) -> Iterator[TensorProto]:
    """Give every tensor with external data, wherever a model can hold one."""
    return (tensor for tensor in _all_tensors(proto) if tensor.data_location == TensorProto.EXTERNAL)


def _all_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    yield from _graph_tensors(proto.graph)
    for function in proto.functions:
        yield from _attribute_tensors(function.node)
        for attribute in function.attribute_proto:
            yield from _tensors_of(attribute)
    for training in proto.training_info:
        yield from _graph_tensors(training.initialization)
        yield from _graph_tensors(training.algorithm)


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    yield from _attribute_tensors(graph.node)


def _attribute_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in _WITH_TENSORS:
                yield from _tensors_of(attribute)


_WITH_TENSORS: Final = frozenset(
    (
        AttributeProto.UNDEFINED,  # IR versions before 2 leave it out
        AttributeProto.TENSOR,
        AttributeProto.TENSORS,
        AttributeProto.SPARSE_TENSOR,
        AttributeProto.SPARSE_TENSORS,
        AttributeProto.GRAPH,
        AttributeProto.GRAPHS,
    )
)


def _tensors_of(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for tensor in [*sparse, *attribute.sparse_tensors]:
        yield tensor.values
        yield tensor.indices
    for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
        yield from _graph_tensors(graph)


def _info(name: str, tensor: TensorProto | SparseTensorProto) -> TensorInfo:
    if isinstance(tensor, SparseTensorProto):
        nbytes = _info(name, tensor.values).nbytes + _info(name, tensor.indices).nbytes
        return TensorInfo(name, tensor.values.data_type, tuple(tensor.dims), nbytes, sparse=True)
    shape = tuple(tensor.dims)
    if tensor.data_location != TensorProto.EXTERNAL:
        return TensorInfo(name, tensor.data_type, shape, _inline_bytes(tensor))
    entries = {text(entry.key): text(entry.value) for entry in tensor.external_data}
    # A number that is none is reported when the weight is read; until then the model can be looked at.
    numbers = entries.get("offset", "0"), entries.get("length", "")
    offset, length = (int(number) if _is_number(number) else None for number in numbers)
    nbytes = max(_declared(tensor), 0) if length is None else length
    return TensorInfo(name, tensor.data_type, shape, nbytes, entries.get("location"), offset)


def _inline_bytes(tensor: TensorProto) -> int:
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data)
    if tensor.data_type == TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        return 4 * len(tensor.float_data) + 8 * len(tensor.double_data)
    # Of the other fields one is filled; each entry is one value, or as many small ones as a byte holds.
    entries = sum(
        len(values)
        for values in (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    )
    return entries * max(_BITS.get(tensor.data_type, 0), 8) // 8


def _dtypes() -> dict[int, np.dtype[Any]]:
    names = {
        "FLOAT": "float32",
        "DOUBLE": "float64",
        "FLOAT4E2M1": "float4_e2m1fn",
        "FLOAT6E2M3": "float6_e2m3fn",
        "FLOAT6E3M2": "float6_e3m2fn",
        "FLOAT8E4M3FN": "float8_e4m3fn",
        "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
        "FLOAT8E5M2": "float8_e5m2",
        "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
        "FLOAT8E8M0": "float8_e8m0fnu",
        "BOOL": "bool",
        "STRING": "object",
    }
    table: dict[int, np.dtype[Any]] = {}
    for name, number in TensorProto.DataType.items():
        own = names.get(name, name.lower())
        scalar = getattr(ml_dtypes, own, None)
        if scalar is not None or own in np.sctypeDict:
            table[number] = np.dtype(scalar or own)
    return table


_DTYPES: Final = _dtypes()
_PACKED: Final = {
    number: bits
    for bits, names in ((2, ("INT2", "UINT2")), (4, ("INT4", "UINT4", "FLOAT4E2M1")), (6, ("FLOAT6E2M3", "FLOAT6E3M2")))
    for name, number in TensorProto.DataType.items()
    if name in names
}
_BITS: Final = ChainMap(_PACKED, {number: 8 * dtype.itemsize for number, dtype in _DTYPES.items() if dtype.kind != "O"})


def numpy_dtype(data_type: int) -> np.dtype[Any] | None:
    """Give the type of the arrays that hold an ONNX element type, or ``None`` if the installed onnx has no such type.

    Examples
    --------
    >>> numpy_dtype(onnx.TensorProto.BFLOAT16), numpy_dtype(99)
    (dtype(bfloat16), None)
    """
    return _DTYPES.get(data_type)


def decoded(data: NDArray[np.uint8], tensor: TensorProto, what: str) -> NDArray[Any]:
    """Give bytes as values of a tensor's type and shape; a view of them, except for values smaller than a byte.

    Examples
    --------
    >>> tensor = TensorProto(data_type=TensorProto.UINT4, dims=[3])
    >>> decoded(np.array([0x21, 0x03], np.uint8), tensor, "a weight")
    array([1, 2, 3], dtype=uint4)
    """
    count = _count(tensor, what)
    expected = _stored(count, tensor.data_type, what)
    if len(data) != expected:
        raise ModelFileError(
            f"{what} has {len(data)} bytes, but {_type(tensor)} with shape {_shape(tensor)} takes {expected}.",
            advice="The file is damaged, or was written by a faulty tool.",
        )
    bits = _PACKED.get(tensor.data_type)
    dtype = _dtype(tensor, what)
    values = data.view(dtype) if bits is None else _unpacked(data, bits, count).view(dtype)
    return _reshaped(values, tensor, what)


def _unpacked(data: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint8]:
    """Give each value its own byte; the first lies in the lowest bits."""
    if bits == 6:
        padded = np.zeros(-(-len(data) // 3) * 3, np.uint8)
        padded[: len(data)] = data
        low, middle, high = padded.reshape(-1, 3).T
        values = np.stack((low, low >> 6 | middle << 2, middle >> 4 | high << 4, high >> 2), axis=1)
    else:
        values = data[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)
    return (values & np.uint8((1 << bits) - 1)).reshape(-1)[:count]


def _reshaped(values: NDArray[Any], tensor: TensorProto, what: str) -> NDArray[Any]:
    try:
        return values.reshape(tuple(tensor.dims))
    except ValueError as error:
        # No values, but dimensions whose product numpy cannot hold, or more than 64 dimensions.
        raise ModelFileError(f"{what} has shape {_shape(tensor)}, which numpy cannot represent.") from error


def _dtype(tensor: TensorProto, what: str) -> np.dtype[Any]:
    dtype = _DTYPES.get(tensor.data_type)
    if dtype is None:
        raise ModelFileError(
            f"{what} has element type {tensor.data_type}, which the installed onnx {onnx.__version__} does not know.",
            advice="A newer onnx may.",
        )
    return dtype


def _count(tensor: TensorProto, what: str) -> int:
    if any(dim < 0 for dim in tensor.dims):
        raise ModelFileError(f"{what} has a negative dimension: shape {_shape(tensor)}.")
    return math.prod(tensor.dims)


def _stored(count: int, data_type: int, what: str) -> int:
    bits = _BITS.get(data_type)
    if bits is None:
        raise ModelFileError(f"{what} has element type {data_type}, which has no bytes of a known layout.")
    return (count * bits + 7) // 8


def _whole_number(value: str, key: str, what: str) -> int:
    if not _is_number(value):
        raise ExternalDataError(f"{what} has external data with {key} {shown(value)}, which is not a number of bytes.")
    return int(value)


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) < 20


def _type(tensor: TensorProto) -> str:
    return str(TensorProto.DataType.Name(tensor.data_type))


def _shape(tensor: TensorProto | SparseTensorProto) -> str:
    dims = tensor.dims
    return str(list(dims)) if len(dims) <= 12 else f"[{', '.join(map(str, dims[:12]))}, …]"


def shown(name: str) -> str:
    """Quote a name in a message; it may be thousands of characters long, or hold line breaks.

    Examples
    --------
    >>> shown("w"), len(shown("w" * 10_000))
    ("'w'", 183)
    """
    return repr(name if len(name) <= 200 else f"{name[:120]}…{name[-60:]}")


def _readable(nbytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"
