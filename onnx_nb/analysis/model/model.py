"""Model: a ModelProto without its weights, and where their bytes are.

`load` reads only the structure (`structure`). Large weights are external data in `Model.proto`: `Storage` knows where
they are, maps one when `Model.tensor` asks for it and streams all when `Model.save` writes them. The functions at the
end serve the rest of the package.
"""

from __future__ import annotations

import fnmatch
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from onnx import ModelProto, SparseTensorProto, TensorProto

from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError
from onnx_nb.analysis.foreign_names import known_keywords
from onnx_nb.analysis.formatting import bytes_text, closest, closest_text, count_text, plain_text, quoted, shortened
from onnx_nb.analysis.model import structure, tensors, wire
from onnx_nb.analysis.model.save import Layout, write_model
from onnx_nb.analysis.model.storage import Source, Storage, embed, is_number, references
from onnx_nb.analysis.model.tensors import ValueInfo, external, value_info
from onnx_nb.analysis.results import Displayed

if TYPE_CHECKING:
    import onnx_ir
    import torch
    from numpy.typing import NDArray

    ModelLike: TypeAlias = (
        "str | os.PathLike[str] | bytes | ModelProto | onnx_ir.Model | torch.onnx.ONNXProgram | Model"
    )
else:
    ModelLike = object

T = TypeVar("T")


@known_keywords
def load(source: ModelLike, *, data_dir: str | os.PathLike[str] | None = None) -> Model:
    """Open a model without reading its weights: milliseconds at any size.

    Parameters
    ----------
    source
        Path of a .onnx file, its bytes, an ``onnx.ModelProto``, an ``onnx_ir.Model``, a ``torch.onnx.ONNXProgram``, or
        a `Model`. It is never changed, and must not change while the Model is in use.
    data_dir
        Folder of the external data; by default the folder of the model's file.

    Returns
    -------
    Model
        The structure, and where the bytes of the weights are. A `Model` is returned unchanged unless ``data_dir`` is
        given.

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
    folder = None if data_dir is None else _checked_folder(data_dir)
    if isinstance(source, Model):
        if folder is None:
            return source
        return Model(source.proto, name=source.name, path=source.path, storage=storage_of(source).moved_to(folder))
    ir = sys.modules.get("onnx_ir")
    inner = getattr(source, "model", None) if type(source).__name__ == "ONNXProgram" else source
    if isinstance(source, str | os.PathLike):
        found = structure.from_file(os.fspath(source), folder)
    elif isinstance(source, bytes | bytearray | memoryview):
        found = structure.from_bytes(bytes(source), folder)
    elif isinstance(source, ModelProto):
        found = structure.from_proto(source, folder)
    elif ir is not None and isinstance(inner, ir.Model):
        found = structure.from_ir(inner, folder)
    else:
        raise _not_a_model(source)
    return Model(found.proto, name=found.name, path=found.path, storage=found.storage)


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


class Model(Displayed):
    """The structure of a model, and where the bytes of its weights are. Made by `load`.

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
        """ModelProto without the bytes of large weights, each of which is external data in it. Do not change it."""
        self.name: Final = name
        """Name of the model in headings and messages."""
        self.path: Final = path
        """The file it was loaded from; ``None`` if it came from memory."""
        self._internals = _Internals(storage or Storage(), name)

    def __repr__(self) -> str:
        versions = {entry.domain: entry.version for entry in self.proto.opset_import}
        opset = versions.get("", versions.get("ai.onnx"))
        if opset is None:
            named = ", ".join(f"{domain} {version}" for domain, version in list(versions.items())[:3])
        else:
            named = str(opset)
        nodes = count_text(len(self.proto.graph.node), "node")
        return f"Model({shortened(self.name, 80)!r}, {nodes}, {bytes_text(self.nbytes)}, opset {named or 'unknown'})"

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
        return tuple(info for info in map(value_info, self.proto.graph.input) if info.name not in self.initializers)

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """Name, dtype and shape of each output; the shape is ``None`` where the model does not declare it."""
        return tuple(map(value_info, self.proto.graph.output))

    @property
    def nbytes(self) -> int:
        """Bytes of all weights of the main graph."""
        return sum(info.nbytes for info in self.initializers.values())

    @property
    def initializers(self) -> Mapping[str, TensorInfo]:
        """Type, size and location of each weight of the main graph (sparse ones too), by name, in the model's order.

        Examples
        --------
        >>> import numpy, onnx
        >>> weight = onnx.numpy_helper.from_array(numpy.arange(1000.0), "w")
        >>> model = load(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight])))
        >>> model.initializers["w"].shape, model.initializers["w"].nbytes
        ((1000,), 8000)
        """
        return cached(
            self,
            TensorInfo,
            lambda: MappingProxyType({name: _info(name, tensor) for name, tensor in self._tensors().items()}),
        )

    def tensor_names(self, pattern: str = "*") -> list[str]:
        """List the names of weights.

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
        return [name for name in self._tensors() if pattern == "*" or fnmatch.fnmatchcase(name, pattern)]

    def tensor(self, name: str) -> NDArray[Any]:
        """Return the values of a weight. Only its bytes are mapped from the file; nothing is copied.

        Parameters
        ----------
        name
            One of `tensor_names`.

        Returns
        -------
        numpy.ndarray
            Read-only, and perhaps unaligned, as in the file; ``.copy()`` makes one of your own. Types that numpy lacks
            are those of ``ml_dtypes`` (bfloat16, float8…, int4…; values smaller than a byte are unpacked). Strings are
            an object array of ``str``. A sparse weight is returned dense.

        Raises
        ------
        OnnxNbError
            If no weight has this name.
        ModelFileError, ExternalDataError
            If its bytes are missing, or their number differs from what dtype and shape take.

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
        return read_tensor(self, tensor, name)

    def save(self, path: str | os.PathLike[str], *, external_data: bool | str | None = None) -> Path:
        """Write the model and its weights to a new file, a few megabytes at a time.

        The file appears when it is complete: readers of ``path`` see the old file or the new one, never a part.

        Parameters
        ----------
        path
            The file to write. An existing file is replaced, unless this model is read from it.
        external_data
            ``True``, or the name of a file in the same folder: write the weights there, except those below 1 kB
            (`external_data.convert` has more options). ``False``: keep everything in one file.
            By default one file is written; above 2 GB, the limit of one file, the weights go to ``<path>.data``.

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
            external_data = self._inline_bytes() > wire.PROTO_LIMIT
        layout = None
        if external_data is not False:
            layout = Layout(f"{target.name}.data" if external_data is True else external_data)
        write_model(target, self.proto, storage_of(self), label_of(self), layout=layout)
        return target

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
            raise ModelFileError(
                f"{label_of(self)} is {bytes_text(total)} with its weights, and a ModelProto holds at most 2 GB.",
                advice="Save it with model.save(path), which puts the weights into a file of their own.",
            )
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        for tensor, extent in zip(external(proto), storage_of(self).extents(self.proto, label_of(self)), strict=True):
            embed(tensor, extent)
        return proto

    def _inline_bytes(self) -> int:
        """Return the bytes of the model with all weights inside, from above."""
        extents = storage_of(self).extents(self.proto, label_of(self))
        structure_bytes: int = self.proto.ByteSize()
        return structure_bytes + sum(extent.nbytes + 32 for extent in extents)

    def _tensors(self) -> Mapping[str, TensorProto | SparseTensorProto]:
        return cached(self, TensorProto, lambda: _by_name(self.proto))

    def _no_weight(self, name: str) -> OnnxNbError:
        for node in self.proto.graph.node:
            if name in node.output:
                maker = f"{plain_text(node.op_type)} {quoted(plain_text(node.name))}".removesuffix(" ''")
                message = f"tensor {quoted(name)} of {label_of(self)} is not a weight: {maker} computes it at run time."
                return OnnxNbError(message, advice="model.tensor_names() lists the weights.")
        if any(name == value.name for value in self.proto.graph.input):
            message = f"tensor {quoted(name)} of {label_of(self)} is not a weight: it is an input of the model."
            return OnnxNbError(message)
        near = closest(name, self._tensors())
        pattern = repr(f"{near[0][:12]}*") if near else ""
        advice = f"{closest_text(name, self._tensors())} List them with model.tensor_names({pattern}).".strip()
        return OnnxNbError(f"tensor {quoted(name)} is not in {label_of(self)}.", advice=advice)


class _Internals:
    """State of a Model that only the package uses."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.label = name if name.isprintable() and len(name) <= 200 else quoted(name)
        self.lock = threading.RLock()
        self.cache: dict[object, Any] = {}

    def __getstate__(self) -> tuple[Storage, str]:
        return self.storage, self.label

    def __setstate__(self, state: tuple[Storage, str]) -> None:
        self.storage, self.label = state
        self.lock = threading.RLock()
        self.cache = {}


def _internals(model: Model) -> _Internals:
    return model._internals  # noqa: SLF001 (the one place)


def storage_of(model: Model) -> Storage:
    """Return the storage of a model's weights."""
    return _internals(model).storage


def label_of(model: Model) -> str:
    """Return the name of a model for messages; a name from a file may hold line breaks, or be very long."""
    return _internals(model).label


def cached(model: Model, key: object, make: Callable[[], T]) -> T:
    """Return what ``make`` returned at the first call with this key, under the model's lock."""
    internals = _internals(model)
    with internals.lock:
        if key not in internals.cache:
            internals.cache[key] = make()
        found: T = internals.cache[key]
    return found


def with_proto(
    model: Model, proto: ModelProto, name: str | None = None, sources: Mapping[str, Source] | None = None
) -> Model:
    """Return a model made of another one, whose weights are found in the same places."""
    storage = storage_of(model).joined(sources) if sources else storage_of(model)
    return Model(proto, name=model.name if name is None else name, storage=storage)


def read_tensor(model: Model, tensor: TensorProto | SparseTensorProto, name: str) -> NDArray[Any]:
    """Return the values of a tensor anywhere in ``model.proto``, subgraphs included; ``name`` is for errors."""
    storage, label = storage_of(model), label_of(model)
    if isinstance(tensor, SparseTensorProto):
        what = f"sparse weight {quoted(name)} of {label}"
        indices = storage.values(tensor.indices, f"the indices of {what}")
        array = tensors.dense(tensor, storage.values(tensor.values, what), indices, what)
    else:
        array = storage.values(tensor, f"weight {quoted(name)} of {label}")
    array.flags.writeable = False
    return array


def _checked_folder(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    if not path.is_dir():
        message = f"data_dir {quoted(str(path))} is not a folder."
        raise ExternalDataError(message, advice="Give the folder of the data files.")
    return path.absolute()


def _not_a_model(source: object) -> TypeError:
    advice = ""
    if hasattr(source, "state_dict"):
        advice = " Export it first, onnx_nb.export(module, args), or compare it by onnx_nb.compare_torch(module, args)."
    return TypeError(
        f"a model is a path, bytes, an onnx.ModelProto, an onnx_ir.Model or a torch.onnx.ONNXProgram, "
        f"not {type(source).__module__}.{type(source).__qualname__}.{advice}"
    )


def _by_name(proto: ModelProto) -> dict[str, TensorProto | SparseTensorProto]:
    index: dict[str, TensorProto | SparseTensorProto] = {plain_text(t.name): t for t in proto.graph.initializer}
    index.update((plain_text(sparse.values.name), sparse) for sparse in proto.graph.sparse_initializer)
    return index


def _info(name: str, tensor: TensorProto | SparseTensorProto) -> TensorInfo:
    if isinstance(tensor, SparseTensorProto):
        nbytes = _info(name, tensor.values).nbytes + _info(name, tensor.indices).nbytes
        return TensorInfo(name, tensor.values.data_type, tuple(tensor.dims), nbytes, sparse=True)
    shape = tuple(tensor.dims)
    if tensor.data_location != TensorProto.EXTERNAL:
        return TensorInfo(name, tensor.data_type, shape, tensors.held_bytes(tensor))
    entries = references(tensor)
    # An entry that is not a number is reported when the weight is read; until then the model can be looked at.
    numbers = entries.get("offset", "0"), entries.get("length", "")
    offset, length = (int(number) if is_number(number) else None for number in numbers)
    nbytes = max(tensors.declared_bytes(tensor), 0) if length is None else length
    return TensorInfo(name, tensor.data_type, shape, nbytes, entries.get("location"), offset)
