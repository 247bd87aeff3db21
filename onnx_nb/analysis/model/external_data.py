"""Audit, convert and check the files that hold a model's weights; an audit without checksums reads no weights.

A tensor with external data states the file of its bytes and their position in it. `audit` compares these statements
with the files. `convert` and `inline` write a new copy of the model. `check` combines onnx's checker with `audit`.
"""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import onnx
from google.protobuf.message import EncodeError
from onnx import TensorProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import ExternalDataError, ModelFileError
from onnx_nb.analysis.formatting import path_text, shortened
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.auditor import Audit, Auditor, DataProblem
from onnx_nb.analysis.model.functions import check_calls, check_nodes
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, storage_of
from onnx_nb.analysis.model.package import Package
from onnx_nb.analysis.model.save import PAGE, Layout, ending, python_command, working_folder, write_model
from onnx_nb.analysis.model.storage import embed, path_of, refer
from onnx_nb.analysis.model.tensors import all_nodes, graphs_of, may_be_shape, placed
from onnx_nb.analysis.progress import Progress


@known_arguments
def audit(model: ModelLike, *, checksums: bool = False, progress: Progress | None = None) -> Audit:
    """Compare the stated external data of every tensor with the files; takes milliseconds at any size.

    All problems are reported, not only the first. Tensors in attributes, in the subgraphs of If, Loop and Scan, in
    functions and in sparse weights are included.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    checksums
        Also verify the checksums of tensors, which reads the files once. By the specification, a checksum is the SHA1
        of the whole *file*; that of the tensor's bytes is also accepted, with a warning.
    progress
        Called with the part done and a message while checksums are computed; an error that it raises ends the audit.

    Returns
    -------
    Audit
        One `TensorEntry` for each tensor, one `DataFile` for each file, and the problems.

    Raises
    ------
    ModelFileError
        If the model itself cannot be opened. A fault of its data is a `Problem`, not an error.

    Notes
    -----
    By onnxruntime's rule, external data must be in the model's folder or below it, also after following symbolic links.
    If the model's file is itself a link, as in the cache of a model hub, the folder of its target is also allowed.
    Through a link, onnxruntime reads no weights of the subgraphs of If, Loop and Scan, and onnx reads none at all.

    The key ``basepath`` is never followed. The specification (IR.md) lets a program note in it the folder from which it
    loaded a model; ``onnx.external_data_helper`` never reads it, and onnxruntime rejects a file that has it. It would
    be a path of another machine in a file that is not trusted.

    Examples
    --------
    >>> import onnx, pathlib, tempfile
    >>> weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[100], data_location=1)
    >>> for key, value in {"location": "w.bin", "offset": "0", "length": "400"}.items():
    ...     _ = weight.external_data.add(key=key, value=value)
    >>> proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     onnx.save(proto, f"{folder}/model.onnx")
    ...     print(audit(f"{folder}/model.onnx").problems[0].kind)
    ...     _ = pathlib.Path(folder, "w.bin").write_bytes(bytes(400))
    ...     audit(f"{folder}/model.onnx")
    missing file
    Audit('model.onnx': 1 of 1 tensors outside, 400 B in 1 file, no problems)
    """
    source = load(model)
    if not isinstance(source, Package):
        return Auditor(source).audit(checksums=checksums, progress=progress)
    parts = [Auditor(part).audit(checksums=checksums, progress=progress) for part in source.models.values()]
    advice = "Correct the configuration, or export the model again: a runtime makes caches and feeds by it."
    wrong = [entry.message for entry in source.statements() if not entry.ok]
    problems = [DataProblem("configuration", "error", message, advice, 0) for message in wrong]
    tensors, files, others = (
        itertools.chain.from_iterable(getattr(p, n) for p in parts) for n in ("tensors", "files", "problems")
    )
    return Audit(path_text(source.folder.name), tuple(tensors), tuple(files), (*problems, *others))


@known_arguments
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
        Write a file for each tensor, named after it; characters that some file systems reject become ``_``.
    threshold
        Bytes; smaller tensors go into the model's file, where they cost less than a reference. Scalars and vectors of
        up to 8192 integers or 8 floats stay there in any case: onnxruntime infers shapes before it opens data files.
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
        If a file cannot be written, a tensor is larger than ``shard_size``, or the model's file would be over 2 GB,
        which protobuf can neither write nor read.
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
    target = path_of(path)
    location = f"{target.name}.data" if location is None else location
    layout = Layout(location, per_tensor, shard_size, alignment, threshold, attributes, checksums)
    return write_model(target, load(model), layout, progress=progress)


@known_arguments
def inline(model: ModelLike, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
    """Write a model as one file with all its weights in it; parameters, result and errors are those of `convert`.

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
    return write_model(path_of(path), load(model), None, progress=progress)


@known_arguments
def check(model: ModelLike, *, full: bool = False, checksums: bool = False, progress: Progress | None = None) -> Audit:
    """Check a model of any size with onnx's checker and `audit`; the model need not be in a file.

    The checker gets the model without its weights, so it needs neither 2 GB of memory nor a file, and accepts data
    files that are symbolic links. It only sees that external data exists; `audit` checks the rest.

    Parameters
    ----------
    model, checksums, progress
        As for `audit`.
    full
        Also infer all types and shapes, and compare them with the declared ones.

    Returns
    -------
    Audit
        An audit without errors; it may have warnings.

    Raises
    ------
    ModelFileError
        If the checker rejects the model, or a tensor in it does not have the bytes that its shape requires.
    ExternalDataError
        If the external data has a fault; the first one is reported.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
    >>> check(onnx.parser.parse_model(text))
    Audit('g': 0 of 0 tensors outside, 0 B in 0 files, no problems)
    """
    return accepted(load(model), full=full, apart=full, checksums=checksums, progress=progress)


def accepted(model: Model, *, full: bool, apart: bool, **options: Any) -> Audit:
    """Check a model as `check` does; ``apart``, onnx's checker runs in a process of its own, which it may end."""
    report = audit(model, **options)
    errors = [problem for problem in report.problems if problem.severity == "error"]
    if errors:
        first = errors[0]
        more = f" There are {len(errors) - 1} more: external_data.audit(model).problems." if len(errors) > 1 else ""
        kind = ModelFileError if first.location is None else ExternalDataError
        raise kind(first.message, advice=f"{first.advice}{more}")
    check_calls(model.proto, label_of(model))
    check_nodes(model.proto, label_of(model))
    try:
        proto = copy.deepcopy(model.proto)
        # some exporters write free dimensions as −1: onnx's inference of a Slice of one ends the process
        nodes = itertools.chain(proto.graph.node, *(function.node for function in proto.functions))
        graphs = (proto.graph, *(body for node in all_nodes(nodes) for _, body in graphs_of(node)))
        fields = [field for graph in graphs for field in (graph.input, graph.output, graph.value_info)]
        fields += [function.value_info for function in proto.functions]
        for dim in (dim for info in itertools.chain(*fields) for dim in info.type.tensor_type.shape.dim):
            if dim.dim_value < 0:
                dim.Clear()
        for tensor, place in placed(proto):
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            extent = storage_of(model).extent(tensor, f"{place.label} of {label_of(model)}")
            # Shapes are inferred from the values of small tensors, and the checker reads the indices of sparse ones.
            if extent.nbytes < wire.THRESHOLD or may_be_shape(tensor) or place.kind == "sparse indices":
                embed(tensor, extent)
            else:  # all in one file, which the checker does not read
                refer(tensor, "weights", 0, extent.nbytes)
        data = proto.SerializeToString()
    except EncodeError as error:
        message = f"{label_of(model)} holds more than 2 GB besides the weights of its main graph."
        raise ModelFileError(message, advice="Move large Constant nodes to initializers.") from error
    with working_folder() as folder:
        path = folder / "model.onnx"
        path.write_bytes(data)
        (folder / "weights").touch()
        said = _refusal(path) if apart else _refused(path, full=full)
        if said:
            said = shortened(said.replace(str(folder), "").strip(), 1000).rstrip(".")
            message = f"onnx's checker refuses {label_of(model)}: {said}."
            raise ModelFileError(message, advice="Export the model again, or repair what it names.")
    return report


_CHECKER: Final = """
import onnx.checker
try:
    onnx.checker.check_model(sys.argv[1], full_check=True)
except Exception as error:
    sys.exit(str(error))
"""


def _refusal(path: Path) -> str:
    """Return why onnx's checker refuses a model or the types in it; inference may end the process, so not this one."""
    try:
        command = python_command(_CHECKER, str(path))
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:  # no process can be started, as in a browser
        return _refused(path, full=True)
    said = process.stderr.decode("utf-8", "replace").strip()
    last = "".join(f": {line}" for line in said.splitlines()[-1:])
    return f"it {ending(process.returncode)}{last}" if process.returncode < 0 else said if process.returncode else ""


def _refused(path: Path, *, full: bool) -> str:
    try:
        onnx.checker.check_model(path, full_check=full)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        return str(error)
    return ""
