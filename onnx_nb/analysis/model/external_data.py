"""Write a model with its weights in files of their own, or in one file; check it with the files of its weights.

`audit` compares the external data that tensors state with the files. `convert` and `inline` write a new copy of the
model. `check` combines onnx's checker with `audit`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import EncodeError
from onnx import ModelProto, TensorProto

from onnx_nb.analysis.errors import ExternalDataError, ModelFileError
from onnx_nb.analysis.formatting import shortened
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.audit import Audit, DataFile, Problem, TensorEntry, audit
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, storage_of
from onnx_nb.analysis.model.save import PAGE, Layout, write_model
from onnx_nb.analysis.model.storage import embed, refer
from onnx_nb.analysis.model.tensors import placed

if TYPE_CHECKING:
    from onnx_nb.analysis.progress import Progress

__all__ = ["Audit", "DataFile", "Problem", "TensorEntry", "audit", "check", "convert", "inline"]


def convert(
    model: ModelLike,
    path: str | os.PathLike[str],
    *,
    location: str | None = None,
    per_tensor: bool = False,
    threshold: int = wire.THRESHOLD,
    attributes: bool = False,
    alignment: int = PAGE,
    checksums: bool = False,
    shard_size: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write a model with its weights in separate files, reading a few megabytes at a time.

    All files appear together when they are complete, with the usual permissions; if anything fails, none does. Existing
    files are replaced, except those that the model is read from: replacing two files takes two steps, and a process
    killed in between would leave a model without its weights. Write under another name instead.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    path
        The new model's file.
    location
        Name of the data file, in the same folder; by default ``<path>.data``. With several files, their names derive
        from it.
    per_tensor
        Write a file for each tensor, named after it; characters that some file systems refuse become ``_``.
    threshold
        Bytes; smaller tensors go into the model's file, where they cost less than a reference.
    attributes
        Also write tensors of attributes, such as those of Constant nodes, to data files. Tensors that are external data
        already stay so. Strings cannot be external data; sparse weights could, but onnx's helpers overlook them.
    alignment
        Bytes that each offset is a multiple of. 4096, as the specification advises, lets every system but Windows map a
        single tensor; 65536 also Windows; 1 wastes no space.
    checksums
        Give each tensor the SHA1 of its data file, which `audit` verifies.
    shard_size
        Maximum bytes of a data file; the weights are split into several.
    progress
        Called with the part done and a message; an error that it raises ends the writing, and no file appears.

    Returns
    -------
    pathlib.Path
        The model's file.

    Raises
    ------
    ModelFileError
        If a file cannot be written, a tensor is larger than ``shard_size``, or a high ``threshold`` makes the model's
        file larger than 2 GB.
    ExternalDataError
        If the bytes of a tensor cannot be read.
    ValueError
        If an option is invalid.

    Notes
    -----
    Keys other than location, offset, length and checksum are left out, among them ``basepath`` (see `audit`).

    Examples
    --------
    >>> import numpy, onnx, tempfile
    >>> weight = onnx.numpy_helper.from_array(numpy.arange(1000.0), "w")
    >>> proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     audit(convert(proto, f"{folder}/model.onnx", location="weights.bin"))
    Audit('model.onnx': 1 of 1 tensors outside, 8.0 kB in 1 file, no problems)
    """
    loaded = load(model)
    target = Path(path)
    layout = Layout(
        location=f"{target.name}.data" if location is None else location,
        per_tensor=per_tensor,
        shard_size=shard_size,
        alignment=alignment,
        threshold=threshold,
        attributes=attributes,
        checksums=checksums,
    )
    write_model(target, loaded.proto, storage_of(loaded), label_of(loaded), layout=layout, progress=progress)
    return target


def inline(model: ModelLike, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
    """Write a model as one file with all its weights in it.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    path
        The file to write. An existing file is replaced, unless this model is read from it.
    progress
        Called with the part done and a message; an error that it raises ends the writing, and no file appears.

    Raises
    ------
    ModelFileError
        If the file cannot be written, or would be over 2 GB, which protobuf can neither write nor read.
    ExternalDataError
        If the bytes of a tensor cannot be read.

    Examples
    --------
    >>> import numpy, onnx, tempfile
    >>> weight = onnx.numpy_helper.from_array(numpy.arange(1000.0), "w")
    >>> proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     separate = convert(proto, f"{folder}/separate.onnx")
    ...     onnx.load(inline(separate, f"{folder}/one.onnx")) == proto
    True
    """
    loaded = load(model)
    target = Path(path)
    write_model(target, loaded.proto, storage_of(loaded), label_of(loaded), layout=None, progress=progress)
    return target


def check(model: ModelLike, *, full: bool = False, checksums: bool = False, progress: Progress | None = None) -> Audit:
    """Check a model of any size with onnx's checker and `audit`; the model need not be in a file.

    The checker gets the model without its weights, so it needs neither 2 GB of memory nor a file, and accepts data
    files that are symbolic links. It only sees that external data exists; `audit` checks the rest.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    full
        Also infer all types and shapes, and compare them with the declared ones.
    checksums
        Also verify the checksums; see `audit`.
    progress
        As for `audit`.

    Returns
    -------
    Audit
        It holds no errors, but perhaps warnings.

    Raises
    ------
    ModelFileError
        If the checker refuses the model, or a tensor in it does not have the bytes that its shape takes.
    ExternalDataError
        If the external data has a fault; the first one is reported.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
    >>> check(onnx.parser.parse_model(text))
    Audit('g': 0 of 0 tensors outside, 0 B in 0 files, no problems)
    """
    loaded = load(model)
    audited = audit(loaded, checksums=checksums, progress=progress)
    errors = [problem for problem in audited.problems if problem.severity == "error"]
    if errors:
        first = errors[0]
        more = f" There are {len(errors) - 1} more: external_data.audit(model).problems." if len(errors) > 1 else ""
        kind = ModelFileError if first.location is None else ExternalDataError
        raise kind(first.message, advice=f"{first.advice}{more}")
    with tempfile.TemporaryDirectory(prefix="onnx_nb-") as folder:
        path = Path(folder, "model.onnx")
        try:
            path.write_bytes(_for_checker(loaded).SerializeToString())
        except EncodeError as error:
            message = f"{label_of(loaded)} holds more than 2 GB besides the weights of its main graph."
            raise ModelFileError(message, advice="Move large Constant nodes to initializers.") from error
        Path(folder, "weights").touch()
        try:
            onnx.checker.check_model(path, full_check=full)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
            said = shortened(str(error).replace(folder, "").strip(), 1000)
            raise ModelFileError(
                f"onnx's checker refuses {label_of(loaded)}: {said.rstrip('.')}.",
                advice="Export the model again, or repair what it names.",
            ) from error
    return audited


def _for_checker(model: Model) -> ModelProto:
    """Return the model with all large weights in one file, which the checker does not read."""
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    for tensor, place in placed(proto):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        extent = storage_of(model).extent(tensor, f"{place.label} of {label_of(model)}")
        # Shapes are inferred from the values of small tensors, and the checker reads the indices of sparse ones.
        if extent.nbytes < wire.THRESHOLD or place.kind == "sparse indices":
            embed(tensor, extent)
        else:
            refer(tensor, "weights", 0, extent.nbytes)
    return proto
