"""A model as onnxruntime takes it: a proto, and where it finds the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onnx import ModelProto, TensorProto

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.model.model import Model, label_of, storage_of
from onnx_nb.analysis.model.storage import KNOWN_KEYS, Extent, File, embed, references
from onnx_nb.analysis.model.tensors import external

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RuntimeModel(NamedTuple):
    """Arguments of an onnxruntime session."""

    proto: ModelProto
    """Without large weights."""
    folder: Path | None
    """Folder in which onnxruntime looks locations up."""
    buffers: dict[str, NDArray[Any]]
    """Location → content of the file there (mapped, not read), if onnxruntime cannot look it up itself; else empty."""


def for_onnxruntime(model: Model) -> RuntimeModel:
    """Return what onnxruntime needs to find the weights of a model."""
    proto, storage = model.proto, storage_of(model)
    extents = storage.extents(proto, label_of(model))
    entries = [references(tensor) for tensor in external(proto)]
    main_count = sum(tensor.data_location == TensorProto.EXTERNAL for tensor in proto.graph.initializer)
    used = _by_location(entries, extents)
    inside = all(storage.is_inside(location, extent.source) for location, extent in used.items())
    # In bodies of If, Loop and Scan onnxruntime refuses files that are links; buffers serve only the main graph.
    inner = extents[main_count:]
    if inner and (not inside or any(isinstance(e.source, File) and e.source.is_linked for e in inner)):
        proto = _with_inner_weights(proto, extents, main_count)
        entries, extents = entries[:main_count], extents[:main_count]
        used = _by_location(entries, extents)
        inside = all(storage.is_inside(location, extent.source) for location, extent in used.items())
    if not all(KNOWN_KEYS.issuperset(each) for each in entries):
        proto = _without_foreign_keys(proto)
    buffers = {} if inside else {at: e.source.array(0, e.source.nbytes, e.what) for at, e in used.items()}
    return RuntimeModel(proto, storage.folder, buffers)


def _by_location(entries: list[dict[str, str]], extents: list[Extent]) -> dict[str, Extent]:
    return {each.get("location", ""): extent for each, extent in zip(entries, extents, strict=True)}


def _with_inner_weights(proto: ModelProto, extents: list[Extent], main_count: int) -> ModelProto:
    """Embed the few weights that are not initializers of the main graph."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    for tensor, extent in list(zip(external(copy), extents, strict=True))[main_count:]:
        embed(tensor, extent)
    return copy


def _without_foreign_keys(proto: ModelProto) -> ModelProto:
    """Remove entries for which onnxruntime would refuse the model."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    for tensor in external(copy):
        known = [entry for entry in tensor.external_data if plain_text(entry.key) in KNOWN_KEYS]
        del tensor.external_data[:]
        tensor.external_data.extend(known)
    return copy
