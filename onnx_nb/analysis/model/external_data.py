"""Audit, convert and check the files that hold a model's weights; an audit without checksums reads no weights.

A tensor with external data states the file of its bytes and their position in it. `audit` compares these statements
with the files. `convert` and `inline` write a new copy of the model. `check` combines onnx's checker with `audit`.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import onnx
from google.protobuf.message import EncodeError
from onnx import ModelProto, TensorProto

from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, plain_text, quoted, shortened
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, storage_of
from onnx_nb.analysis.model.save import PAGE, Layout, write_model
from onnx_nb.analysis.model.storage import (
    KNOWN_KEYS,
    Claim,
    Extent,
    File,
    MissingFileError,
    Source,
    UnsafeLocationError,
    embed,
    path_of,
    refer,
    references,
)
from onnx_nb.analysis.model.tensors import (
    Place,
    declared_bytes,
    dtype_name,
    held_bytes,
    numpy_dtype,
    placed,
    type_and_shape,
)
from onnx_nb.analysis.progress import CountedWork, Progress
from onnx_nb.analysis.results import Displayed, Table

LARGEST_UNIT: Final = 65536
"""Bytes; Windows maps files in units of this size, and no tool asks for a larger alignment."""

_READ_SIZE: Final = 1 << 22
"""Bytes read at a time for a checksum."""


@dataclass(frozen=True)
class Problem:
    """A fault of a tensor or a data file."""

    kind: str
    """"missing file", "unsafe path", "file", "bounds", "size", "number", "key", "basepath", "length", "overlap",
    "checksum", "link", "sparse" or "orphan"."""
    severity: str
    """"error": onnx, onnxruntime or onnx_nb cannot use the tensor, or its values are wrong. "warning": it works in
    some or all of them."""
    message: str
    """The fault, with the tensor and the file."""
    advice: str
    tensors: int = 1
    """Number of affected tensors; the message names the first."""
    location: str | None = None
    """The data file; ``None`` if the fault is in the model's own file."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} {self.advice}".rstrip()


@dataclass(frozen=True)
class TensorEntry:
    """The external data of one tensor, as stated and as found."""

    name: str
    """Name of the weight, or of the attribute if its tensor has no name."""
    place: str
    """Place in the model, as "weight 'w'" or "attribute 'value' of Constant '/c'"."""
    dtype: str
    shape: tuple[int, ...]
    nbytes: int | None
    """Bytes required by dtype and shape; ``None`` if unknown."""
    location: str | None
    """The data file as the tensor names it; ``None`` if the bytes are in the model itself."""
    offset: int | None
    """Bytes before it in the file."""
    length: int | None
    """Bytes stated by the tensor; ``None`` if it states none."""
    agrees: bool | None
    """Whether the length, or the size of the values in the model, equals ``nbytes``."""
    inside: bool | None
    """Whether the bytes are within the file; ``None`` if unknown."""
    alignment: int | None
    """Largest power of two that divides the offset, at most 65536: 4096 and more can be mapped everywhere."""
    overlaps: tuple[str, ...]
    """Places of tensors that share some of the bytes, but not all."""
    checksum: str
    """"" (none given), "not verified", "verified", or "wrong"."""
    keys: tuple[str, ...]
    """Keys that the specification does not define."""
    problems: tuple[str, ...]
    """Kinds of the tensor's problems."""


@dataclass(frozen=True)
class DataFile:
    """One file of external data, and how its bytes are used."""

    location: str
    """Location as the tensors name it."""
    nbytes: int | None
    """Bytes of the file; ``None`` if it is missing or must not be read."""
    tensors: int
    """Number of tensors in it."""
    used: int
    """Bytes that belong to a tensor."""
    padding: int
    """Bytes before a tensor that align its offset."""
    orphan: int
    """Bytes that belong to no tensor of this model."""
    sha1: str
    """Checksum of the whole file, in hexadecimal; empty if it was not computed."""


@dataclass(frozen=True)
class Audit(Displayed, Table):
    """The external data of a model, as stated and as found. Made by `audit`."""

    model: str
    tensors: tuple[TensorEntry, ...]
    files: tuple[DataFile, ...]
    problems: tuple[Problem, ...]

    def __repr__(self) -> str:
        outside = sum(entry.location is not None for entry in self.tensors)
        counts = Counter(problem.severity for problem in self.problems)
        found = ", ".join(count_text(n, kind) for kind, n in sorted(counts.items()))
        present = [file.nbytes for file in self.files if file.nbytes is not None]
        size, files = bytes_text(sum(present)), count_text(len(present), "file")
        files += f" and {len(self.files) - len(present)} missing" if len(present) < len(self.files) else ""
        held = f"{outside} of {len(self.tensors)} tensors outside, {size} in {files}"
        return f"Audit({shortened(self.model, 80)!r}: {held}, {found or 'no problems'})"

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return all(problem.severity != "error" for problem in self.problems)

    _columns = tuple(TensorEntry.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each tensor."""
        return [asdict(entry) for entry in self.tensors]


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
    return _Auditor(load(model)).audit(checksums=checksums, progress=progress)


def missing_files(model: ModelLike) -> list[tuple[str, OnnxNbError]]:
    """Return the first weight in each data file that cannot be used, and why; reads no file.

    Examples
    --------
    >>> import onnx
    >>> weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[100], data_location=1)
    >>> _ = weight.external_data.add(key="location", value="w.bin")
    >>> proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))
    >>> [name for name, _ in missing_files(proto)]
    ['w']
    """
    loaded = load(model)
    storage, label = storage_of(loaded), label_of(loaded)
    users: dict[str, list[str]] = {}
    for tensor in loaded.proto.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            users.setdefault(references(tensor).get("location", ""), []).append(plain_text(tensor.name))
    found = []
    for location, names in users.items():
        try:
            storage.source(location, f"the data of {count_text(len(names), 'weight')} of {label}")
        except OnnxNbError as error:
            found.append((names[0], error))
    return found


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
    loaded, target = load(model), path_of(path)
    location = f"{target.name}.data" if location is None else location
    layout = Layout(location, per_tensor, shard_size, alignment, threshold, attributes, checksums)
    return write_model(target, loaded.proto, storage_of(loaded), label_of(loaded), layout, progress=progress)


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
    loaded = load(model)
    return write_model(path_of(path), loaded.proto, storage_of(loaded), label_of(loaded), None, progress=progress)


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
    loaded = load(model)
    audited = audit(loaded, checksums=checksums, progress=progress)
    errors = [problem for problem in audited.problems if problem.severity == "error"]
    if errors:
        first = errors[0]
        more = f" There are {len(errors) - 1} more: external_data.audit(model).problems." if len(errors) > 1 else ""
        kind = ModelFileError if first.location is None else ExternalDataError
        raise kind(first.message, advice=f"{first.advice}{more}")
    proto = ModelProto()
    try:
        proto.CopyFrom(loaded.proto)
        for tensor, place in placed(proto):
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            extent = storage_of(loaded).extent(tensor, f"{place.label} of {label_of(loaded)}")
            # Shapes are inferred from the values of small tensors, and the checker reads the indices of sparse ones.
            if extent.nbytes < wire.THRESHOLD or place.kind == "sparse indices":
                embed(tensor, extent)
            else:  # all in one file, which the checker does not read
                refer(tensor, "weights", 0, extent.nbytes)
        data = proto.SerializeToString()
    except EncodeError as error:
        message = f"{label_of(loaded)} holds more than 2 GB besides the weights of its main graph."
        raise ModelFileError(message, advice="Move large Constant nodes to initializers.") from error
    with tempfile.TemporaryDirectory(prefix="onnx_nb-") as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(data)
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


_REWRITE: Final = "external_data.convert(model, path) writes a copy without this."


class _Auditor:
    """Collects the problems of one audit."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.label = label_of(model)
        self.problems: list[Problem] = []
        self.files: dict[object, _File] = {}
        self.missing: list[DataFile] = []

    def audit(self, *, checksums: bool, progress: Progress | None) -> Audit:
        every = [_Found(tensor, place, f"{place.label} of {self.label}") for tensor, place in placed(self.model.proto)]
        by_location: dict[str, list[_Found]] = {}
        for found in every:
            if found.tensor.data_location == TensorProto.EXTERNAL:
                found.claim = Claim.of(found.tensor, found.what)
                by_location.setdefault(found.claim.location, []).append(found)
            else:
                self._check_inner(found)
        for location, users in by_location.items():
            self._check_location(location, users)
        for file in self.files.values():
            self._check_file(file)
        self._check_checksums(compute=checksums, progress=progress)
        present = [
            DataFile(file.location, file.source.nbytes, len(file.users), *file.counts, file.sha1)
            for file in self.files.values()
        ]
        tensors = tuple(found.entry() for found in every)
        return Audit(self.model.name, tensors, (*self.missing, *present), tuple(self.problems))

    def _report(self, severity: str, kind: str, users: Sequence[_Found], message: str, advice: str = _REWRITE) -> None:
        for found in users:
            found.problems.append(kind)
        self.problems.append(Problem(kind, severity, message, advice, len(users), users[0].location))

    def _check_inner(self, found: _Found) -> None:
        """Compare the values that a tensor holds itself with its type and shape."""
        tensor, what = found.tensor, found.what
        if tensor.HasField("segment"):
            message = f"{what} is one segment of a tensor, which no version of ONNX defines how to join."
            self._report("error", "size", [found], message, "Export the model again.")
        if tensor.data_type == TensorProto.STRING:
            unit, held, needed = "strings", len(tensor.string_data), math.prod(tensor.dims)
        else:
            unit, held, needed = "bytes", held_bytes(tensor), declared_bytes(tensor)
            if numpy_dtype(tensor.data_type) is None or needed < 0:
                message = f"{what} has element type {tensor.data_type} and shape {list(tensor.dims)[:12]}."
                self._report("error", "size", [found], message, "Its size in bytes is unknown. Export it again.")
                return
            found.nbytes, found.length = needed, held
        found.agrees = held == needed
        if not found.agrees:
            message = f"{what} holds {held} {unit}, but {type_and_shape(tensor)} takes {needed}."
            self._report("error", "size", [found], message, "The file is damaged, or was written by a faulty tool.")

    def _check_location(self, location: str, users: list[_Found]) -> None:
        """Check all tensors with bytes at one location."""
        source: Source | None = None
        failed: OnnxNbError | None = None
        try:
            source = storage_of(self.model).source(location, f"{_named(users)} of {self.label}")
        except OnnxNbError as error:
            failed = error
        for found in users:
            self._check_claim(found, source)
        if failed is not None:
            missing, unsafe = isinstance(failed, MissingFileError), isinstance(failed, UnsafeLocationError)
            kind = "missing file" if missing else "unsafe path" if unsafe else "file"
            self._report("error", kind, users, failed.message, failed.advice)
            self.missing.append(DataFile(location, None, len(users), 0, 0, 0, ""))
        elif isinstance(source, File) and not source.permanent:
            # "data" and "./data" are one file
            self.files.setdefault(source.identity, _File(location, source)).users += users

    def _check_claim(self, found: _Found, source: Source | None) -> None:
        """Check a tensor's claim against the file, and for entries that onnx and onnxruntime read differently."""
        claim, what = found.claim, found.what
        assert claim is not None  # noqa: S101  # only tensors with external data get here
        found.nbytes, found.length = claim.nbytes, claim.length
        found.agrees = None if None in (claim.nbytes, claim.length) else claim.nbytes == claim.length
        inner = source is not None and source.permanent
        if not inner:
            found.location, found.offset = claim.location, claim.offset
        beyond = list(claim.beyond(source)) if source is not None else []
        if source is not None and claim.span is not None:
            found.inside = not beyond
        for kind, error in [*claim.problems, *(("bounds", error) for error in beyond)]:
            self._report("error", kind, [found], error.message, error.advice)
        if inner:
            return
        for key in ("offset", "length"):
            if claim.entries.get(key) == "":
                message = f"{what} has external data with an empty {key}, which onnx and onnxruntime refuse."
                self._report("error", "number", [found], message)
        keys = [plain_text(entry.key) for entry in found.tensor.external_data]
        found.keys = tuple(dict.fromkeys(key for key in keys if key not in KNOWN_KEYS))
        for key in dict.fromkeys(keys):
            if key in KNOWN_KEYS:
                if keys.count(key) > 1:
                    message = f"{what} gives {key!r} {keys.count(key)} times; the last one counts."
                    self._report("warning", "key", [found], message)
            elif key == "basepath":
                message = f"{what} has the key 'basepath', with which onnxruntime refuses to load the model."
                advice = f"It only notes from where some program loaded the model. {_REWRITE}"
                self._report("error", "basepath", [found], message, advice)
            elif key.startswith("prepacked"):
                message = f"{what} has the key {quoted(key)}, which only onnxruntime defines; onnx warns of it."
                self._report("warning", "key", [found], message)
            else:
                message = f"{what} has the unknown key {quoted(key)}: onnxruntime refuses to load the model."
                self._report("error", "key", [found], message)
        if found.place.kind.startswith("sparse"):
            refused = ", and which onnx's checker refuses" if found.place.kind == "sparse indices" else ""
            message = f"{what} is external data, which onnx.load leaves unread{refused}."
            self._report("warning", "sparse", [found], message, "external_data.inline(model, path) puts it in.")
        if source is not None and "length" not in claim.entries and claim.span and claim.span[1] < source.nbytes:
            message = (
                f"{what} gives no length, and {quoted(source.label)} goes on after it: onnx.load reads to the "
                "end of the file, and then the shape does not fit."
            )
            self._report("warning", "length", [found], message)

    def _check_file(self, file: _File) -> None:
        """Count used bytes, padding and bytes that belong to no tensor, and find overlaps."""
        name, users, end = quoted(file.location), file.users, file.source.nbytes
        spans = [(*found.span, found) for found in users if found.inside and found.span]
        position = used = 0
        gaps: list[tuple[int, int]] = []
        last: tuple[int, int, _Found] | None = None
        for start, stop, found in sorted(spans, key=lambda span: (span[0], -span[1])):
            if start == stop:
                continue
            gaps.append((max(start - position, 0), start))
            used += max(stop - max(start, position), 0)
            position = max(position, stop)
            if "size" in found.problems:  # its real end is unknown
                continue
            if last is not None and start < last[1] and (start, stop) != last[:2]:
                other = last[2]
                message = (
                    f"{other.place.label} and {found.place.label} of {self.label} use some of the same bytes of "
                    f"{name}, at {last[0]} to {last[1]} and {start} to {stop}."
                )
                advice = "One of them has values that are not its own, unless that was meant: export the model again."
                # A tensor inside another may be intended; a partial overlap never is.
                severity = "warning" if stop <= last[1] else "error"
                self._report(severity, "overlap", [other, found], message, advice)
                found.overlaps.append(other.place.label)
                other.overlaps.append(found.place.label)
            if last is None or stop > last[1]:
                last = start, stop, found
        gaps.append((end - position, end))
        padding = sum(gap for gap, at in gaps if gap < _alignment(at))
        orphan = sum(gap for gap, _ in gaps) - padding
        file.counts = used, padding, orphan
        if file.source.is_linked:
            symbolic = file.source.path.is_symlink()
            form = "is a symbolic link" if symbolic else f"has {file.source.links} hard links"
            inner = [found for found in users if found.place.in_body]
            if inner:
                message = f"{name} {form}, and onnxruntime refuses that for {inner[0].what}."
                self._report("error", "link", inner, message)
            message = f"{name}, with {_named(users)} of {self.label}, {form}: onnx.load refuses to read it."
            self._report("warning", "link", users, message)
        if orphan:
            message = f"{orphan} of the {end} bytes of {name} belong to no tensor of {self.label}."
            advice = f"They may be left from an earlier save, or belong to another model. {_REWRITE}"
            self.problems.append(Problem("orphan", "warning", message, advice, 0, file.location))

    def _check_checksums(self, *, compute: bool, progress: Progress | None) -> None:
        files = [file for file in self.files.values() if any(found.given_checksum for found in file.users)]
        work = CountedWork(progress, sum(file.source.nbytes for file in files))
        for file in files if compute else ():
            users = [found for found in file.users if found.given_checksum]
            what = f"{quoted(file.location)} of {self.label}"
            try:
                file.sha1 = _sha1(Extent(file.source, 0, file.source.nbytes, what), work)
                self._compare(file, users, work)
            except OnnxNbError as error:
                self._report("error", "file", users, error.message, error.advice)

    def _compare(self, file: _File, users: list[_Found], work: CountedWork) -> None:
        """Compare the checksums in tensors with that of their file, else with that of the tensor's own bytes."""
        wrong: dict[str, list[_Found]] = {}
        own: list[_Found] = []
        spans: dict[str, set[tuple[int, int] | None]] = {}
        for found in users:
            spans.setdefault(found.given_checksum, set()).add(found.span)
        for found in users:
            given = found.given_checksum.strip().lower()
            # Different bytes have different checksums: one stated by many tensors is meant for the file.
            single = found.inside and len(spans[found.given_checksum]) == 1
            span = found.span if single else None
            if given == file.sha1:
                found.checksum = "verified"
            elif span and given == _sha1(Extent(file.source, span[0], span[1] - span[0], found.what), work):
                found.checksum = "verified"
                own.append(found)
            else:
                found.checksum = "wrong"
                wrong.setdefault(found.given_checksum, []).append(found)
        for given, those in wrong.items():
            message = (
                f"the SHA1 of {quoted(file.location)} is {file.sha1}, but by {_named(those)} of {self.label} it "
                f"should be {quoted(given)}."
            )
            advice = "The file was changed or damaged after the model was written: get it again."
            self._report("error", "checksum", those, message, advice)
        if own:
            message = (
                f"the checksum in {_named(own)} of {self.label} is that of the tensor's own bytes; the "
                f"specification means that of the whole file {quoted(file.location)}."
            )
            self._report("warning", "checksum", own, message)


def _named(users: Sequence[_Found]) -> str:
    """Name the first tensor, and count the others."""
    more = len(users) - 1
    return users[0].place.label + (f" and {count_text(more, 'more tensor')}" if more else "")


@dataclass(eq=False)
class _Found:
    """Findings about one tensor."""

    tensor: TensorProto
    place: Place
    what: str
    claim: Claim | None = None
    location: str | None = None
    offset: int | None = None
    nbytes: int | None = None
    length: int | None = None
    agrees: bool | None = None
    inside: bool | None = None
    checksum: str = ""
    keys: tuple[str, ...] = ()
    overlaps: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def span(self) -> tuple[int, int] | None:
        """The bytes of its data file."""
        return self.claim.span if self.claim else None

    @property
    def given_checksum(self) -> str:
        """The checksum that the tensor states."""
        return self.claim.entries.get("checksum", "") if self.claim and self.location is not None else ""

    def entry(self) -> TensorEntry:
        return TensorEntry(
            name=plain_text(self.tensor.name) or self.place.name,
            place=self.place.label,
            dtype=dtype_name(self.tensor.data_type),
            shape=tuple(self.tensor.dims),
            alignment=None if self.offset is None else _alignment(self.offset),
            overlaps=tuple(self.overlaps),
            checksum=self.checksum or ("not verified" if self.given_checksum else ""),
            problems=tuple(dict.fromkeys(self.problems)),
            nbytes=self.nbytes,
            location=self.location,
            offset=self.offset,
            length=self.length,
            agrees=self.agrees,
            inside=self.inside,
            keys=self.keys,
        )


@dataclass
class _File:
    """One data file, and the tensors in it."""

    location: str
    source: File
    users: list[_Found] = field(default_factory=list)
    counts: tuple[int, int, int] = (0, 0, 0)
    """Bytes used, bytes of padding, and bytes of no tensor."""
    sha1: str = ""


def _sha1(extent: Extent, work: CountedWork) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    for data in extent.stream(_READ_SIZE) if extent.nbytes else ():
        digest.update(data)
        work.add(len(data), f"reading {extent.source.label}")
    return digest.hexdigest()


def _alignment(offset: int) -> int:
    return min(offset & -offset or LARGEST_UNIT, LARGEST_UNIT)
