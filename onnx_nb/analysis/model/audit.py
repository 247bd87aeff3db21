"""Audit the files in which a model keeps its weights, without reading the weights.

A tensor with external data states the file of its bytes, and where they are in it. `audit` compares these statements
with the files.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from onnx import TensorProto

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, plain_text, quoted, shortened
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, storage_of
from onnx_nb.analysis.model.storage import (
    KNOWN_KEYS,
    Claim,
    Extent,
    File,
    MissingFileError,
    Source,
    UnsafeLocationError,
)
from onnx_nb.analysis.model.tensors import declared_bytes, dtype_name, held_bytes, placed, type_and_shape
from onnx_nb.analysis.progress import CountedWork, Progress
from onnx_nb.analysis.results import Displayed, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnx_nb.analysis.model.tensors import Place

LARGEST_UNIT: Final = 65536
"""Bytes; Windows maps files in units of it, and no tool asks for a larger alignment."""

_READ_SIZE: Final = 1 << 22
"""Bytes read at once for a checksum."""


@dataclass(frozen=True)
class Problem:
    """A fault of a tensor or a data file.

    Parameters
    ----------
    kind
        "missing file", "unsafe path", "file", "bounds", "size", "number", "key", "basepath", "length", "overlap",
        "checksum", "link", "sparse" or "orphan".
    severity
        "error": onnx, onnxruntime or onnx_nb cannot use the tensor, or its values are wrong. "warning": it works in all
        of them, or in some.
    message
        Describes the fault, and names the tensor and the file.
    advice
        What to do next.
    tensors
        Number of tensors concerned; the message names the first.
    location
        The data file; ``None`` if the fault is in the model's own file.
    """

    kind: str
    severity: str
    message: str
    advice: str
    tensors: int = 1
    location: str | None = None

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
    """Bytes that dtype and shape take; ``None`` if unknown."""
    location: str | None
    """The data file as the tensor names it; ``None`` if the bytes are in the model itself."""
    offset: int | None
    """Bytes before it in the file."""
    length: int | None
    """Bytes, as the tensor states; ``None`` if it does not."""
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
    nbytes: int
    """Bytes of the file."""
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
        size = bytes_text(sum(file.nbytes for file in self.files))
        files = count_text(len(self.files), "file")
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
    """Compare the external data of every tensor, as stated, with the files; milliseconds at any size.

    All problems are reported, not only the first. Tensors in attributes, in the subgraphs of If, Loop and Scan, in
    functions and in sparse weights are included.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    checksums
        Also verify the checksums of tensors, which reads the files once. By the specification a checksum is the SHA1 of
        the whole *file*; that of the tensor's bytes counts as verified too, with a warning.
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
    By onnxruntime's rule external data must be in the model's folder or below it, also after following symbolic links.
    If the model's file is itself a link, as in the cache of a model hub, the folder of its target is allowed too.
    Through a link onnxruntime reads no weights of the subgraphs of If, Loop and Scan, and onnx reads none at all.

    The key ``basepath`` is never followed. The specification (IR.md) lets a program note in it the folder from which it
    loaded a model; ``onnx.external_data_helper`` never reads it, and onnxruntime refuses a file that has it. It would
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


class _Auditor:
    """Collects problems; used once."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.label = label_of(model)
        self.problems: list[Problem] = []
        self.found: list[_Found] = []
        self.files: dict[object, _File] = {}

    def audit(self, *, checksums: bool, progress: Progress | None) -> Audit:
        by_location: dict[str, list[_Found]] = {}
        for tensor, place in placed(self.model.proto):
            found = _Found(tensor, place)
            self.found.append(found)
            if tensor.data_location == TensorProto.EXTERNAL:
                found.claim = Claim.of(tensor, f"{place.label} of {self.label}")
                by_location.setdefault(found.claim.location, []).append(found)
            else:
                self._check_inner(found)
        for location, users in by_location.items():
            self._check_location(location, users)
        for file in self.files.values():
            file.measure()
            for found, other in file.overlapping():
                self._overlap(found, other, file)
            self._check_file(file)
        self._check_checksums(compute=checksums, progress=progress)
        return Audit(
            self.model.name,
            tuple(found.entry() for found in self.found),
            tuple(file.row() for file in self.files.values()),
            tuple(self.problems),
        )

    def _report(
        self,
        kind: str,
        severity: str,
        error: OnnxNbError | tuple[str, str],
        users: Sequence[_Found],
    ) -> None:
        message, advice = error if isinstance(error, tuple) else (error.message, error.advice)
        for found in users:
            found.problems.append(kind)
        location = users[0].location if users else None
        self.problems.append(Problem(kind, severity, message, advice, len(users), location))

    def _check_inner(self, found: _Found) -> None:
        """Compare the values that a tensor holds itself with its type and shape."""
        tensor, what = found.tensor, f"{found.place.label} of {self.label}"
        if tensor.HasField("segment"):
            message = f"{what} is one segment of a tensor, which no version of ONNX defines how to join."
            self._report("size", "error", (message, "Export the model again."), [found])
        held: int
        unit = "bytes"
        if tensor.data_type == TensorProto.STRING:
            unit = "strings"
            held, needed = len(tensor.string_data), math.prod(tensor.dims)
            found.agrees = held == needed
        else:
            needed = declared_bytes(tensor)
            known = dtype_name(tensor.data_type) and not dtype_name(tensor.data_type).startswith("dtype ")
            if not known or needed < 0:
                message = f"{what} has element type {tensor.data_type} and shape {list(tensor.dims)[:12]}."
                self._report("size", "error", (message, "Its size in bytes is unknown. Export it again."), [found])
                return
            held = held_bytes(tensor)
            found.nbytes, found.length, found.agrees = needed, held, held == needed
        if not found.agrees:
            message = f"{what} holds {held} {unit}, but {type_and_shape(tensor)} takes {needed}."
            self._report("size", "error", (message, "The file is damaged, or was written by a faulty tool."), [found])

    def _check_location(self, location: str, users: list[_Found]) -> None:
        """Check all tensors with bytes at one location."""
        what = f"{_named(users)} of {self.label}"
        source: Source | None = None
        failed: OnnxNbError | None = None
        try:
            source = storage_of(self.model).source(location, what)
        except OnnxNbError as error:
            failed = error
        inner = source is not None and source.permanent
        for found in users:
            self._check_claim(found, source, inner=inner)
        if failed is not None:
            missing, unsafe = isinstance(failed, MissingFileError), isinstance(failed, UnsafeLocationError)
            kind = "missing file" if missing else "unsafe path" if unsafe else "file"
            self._report(kind, "error", failed, users)
        elif isinstance(source, File) and not inner:
            # "data" and "./data" are one file
            file = self.files.setdefault(source.identity, _File(location, source))
            file.users += users

    def _check_claim(self, found: _Found, source: Source | None, *, inner: bool) -> None:
        claim = found.claim
        assert claim is not None  # noqa: S101  # only tensors with external data come here
        found.take(claim, inner=inner)
        for kind, error in claim.problems:
            self._report(kind, "error", error, [found])
        if source is not None:
            beyond = list(claim.beyond(source))
            if claim.offset is not None and (claim.length is not None or claim.nbytes is not None):
                found.inside = not beyond
            for error in beyond:
                self._report("bounds", "error", error, [found])
        if not inner:
            self._check_entries(found, claim, source)

    def _check_entries(self, found: _Found, claim: Claim, source: Source | None) -> None:
        """Check for entries that onnx and onnxruntime read differently."""
        for key in ("offset", "length"):
            if claim.entries.get(key) == "":
                message = f"{claim.what} has external data with an empty {key}, which onnx and onnxruntime refuse."
                self._report("number", "error", (message, _REWRITE), [found])
        keys = [plain_text(entry.key) for entry in found.tensor.external_data]
        for key in dict.fromkeys(keys):
            if key in KNOWN_KEYS:
                if keys.count(key) > 1:
                    message = f"{claim.what} gives {key!r} {keys.count(key)} times; the last one counts."
                    self._report("key", "warning", (message, _REWRITE), [found])
            elif key == "basepath":
                message = f"{claim.what} has the key 'basepath', with which onnxruntime refuses to load the model."
                advice = f"It only notes from where some program loaded the model. {_REWRITE}"
                self._report("basepath", "error", (message, advice), [found])
            elif key.startswith("prepacked"):
                message = f"{claim.what} has the key {quoted(key)}, which only onnxruntime defines; onnx warns of it."
                self._report("key", "warning", (message, _REWRITE), [found])
            else:
                message = f"{claim.what} has the unknown key {quoted(key)}: onnxruntime refuses to load the model."
                self._report("key", "error", (message, _REWRITE), [found])
        found.keys = tuple(key for key in dict.fromkeys(keys) if key not in KNOWN_KEYS)
        if found.place.kind.startswith("sparse"):
            message = f"{claim.what} is external data, which onnx.load leaves unread."
            if found.place.kind == "sparse indices":
                message = f"{message[:-1]}, and which onnx's checker refuses."
            self._report("sparse", "warning", (message, "external_data.inline(model, path) puts it in."), [found])
        offset, nbytes = claim.offset, claim.nbytes
        if source is None or offset is None or nbytes is None:
            return
        if "length" not in claim.entries and offset + nbytes < source.nbytes:
            message = (
                f"{claim.what} gives no length, and {quoted(source.label)} goes on after it: onnx.load reads to the "
                "end of the file, and then the shape does not fit."
            )
            self._report("length", "warning", (message, _REWRITE), [found])

    def _overlap(self, found: _Found, other: _Found, file: _File) -> None:
        message = (
            f"{found.place.label} and {other.place.label} of {self.label} use some of the same bytes of "
            f"{quoted(file.location)}, at {found.start} to {found.stop} and {other.start} to {other.stop}."
        )
        advice = "One of them has values that are not its own, unless that was meant: export the model again."
        # A part of a tensor may be a tensor by intention; two that only share a border never are.
        within = found.stop is not None and other.stop is not None and other.stop <= found.stop
        self._report("overlap", "warning" if within else "error", (message, advice), [found, other])
        found.overlaps.append(other.place.label)
        other.overlaps.append(found.place.label)

    def _check_file(self, file: _File) -> None:
        name, users = quoted(file.location), file.users
        if file.source.is_linked:
            symbolic = file.source.path.is_symlink()
            form = "is a symbolic link" if symbolic else f"has {file.source.links} hard links"
            inner = [found for found in users if found.place.in_body]
            if inner:
                message = f"{name} {form}, and onnxruntime refuses that for {inner[0].place.label} of {self.label}."
                self._report("link", "error", (message, _REWRITE), inner)
            message = f"{name}, with {_named(users)} of {self.label}, {form}: onnx.load refuses to read it."
            self._report("link", "warning", (message, _REWRITE), users)
        if file.orphan:
            message = f"{file.orphan} of the {file.source.nbytes} bytes of {name} belong to no tensor of {self.label}."
            advice = f"They may be left from an earlier save, or belong to another model. {_REWRITE}"
            self.problems.append(Problem("orphan", "warning", message, advice, 0, file.location))

    def _check_checksums(self, *, compute: bool, progress: Progress | None) -> None:
        given = {id(file): [f for f in file.users if f.given_checksum] for file in self.files.values()}
        total = sum(file.source.nbytes for file in self.files.values() if given[id(file)])
        work = CountedWork(progress, total)
        for file in self.files.values():
            users = given[id(file)]
            for found in users:
                found.checksum = "not verified"
            if users and compute:
                extent = Extent(file.source, 0, file.source.nbytes, f"{quoted(file.location)} of {self.label}")
                try:
                    file.sha1 = _sha1(extent, work)
                    self._compare(file, users, work)
                except OnnxNbError as error:
                    self._report("file", "error", error, users)

    def _compare(self, file: _File, users: list[_Found], work: CountedWork) -> None:
        wrong: dict[str, list[_Found]] = {}
        own: list[_Found] = []
        spans: dict[str, set[tuple[int | None, int | None]]] = {}
        for found in users:
            spans.setdefault(found.given_checksum, set()).add((found.start, found.stop))
        for found in users:
            if found.given_checksum.strip().lower() == file.sha1:
                found.checksum = "verified"
            elif len(spans[found.given_checksum]) == 1 and self._is_own(found, file, work):
                # Different bytes do not have the same checksum: one given to many is meant for the file.
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
            self._report("checksum", "error", (message, advice), those)
        if own:
            message = (
                f"the checksum in {_named(own)} of {self.label} is that of the tensor's own bytes; the "
                f"specification means that of the whole file {quoted(file.location)}."
            )
            self._report("checksum", "warning", (message, _REWRITE), own)

    def _is_own(self, found: _Found, file: _File, work: CountedWork) -> bool:
        if not found.inside or found.start is None or found.stop is None:
            return False
        what = f"{found.place.label} of {self.label}"
        digest = _sha1(Extent(file.source, found.start, found.stop - found.start, what), work)
        return found.given_checksum.strip().lower() == digest


_REWRITE: Final = "external_data.convert(model, path) writes a copy without this."


def _named(users: Sequence[_Found]) -> str:
    """Name the first tensor, and count the others."""
    more = len(users) - 1
    return users[0].place.label + (f" and {count_text(more, 'more tensor')}" if more else "")


class _Found:
    """Findings about one tensor."""

    def __init__(self, tensor: TensorProto, place: Place) -> None:
        self.tensor = tensor
        self.place = place
        self.claim: Claim | None = None
        self.location: str | None = None
        self.nbytes: int | None = None
        self.offset: int | None = None
        self.length: int | None = None
        self.agrees: bool | None = None
        self.inside: bool | None = None
        self.given_checksum = ""
        self.checksum = ""
        self.keys: tuple[str, ...] = ()
        self.overlaps: list[str] = []
        self.problems: list[str] = []

    def take(self, claim: Claim, *, inner: bool) -> None:
        self.nbytes, self.length = claim.nbytes, claim.length
        self.agrees = None if None in (claim.nbytes, claim.length) else claim.nbytes == claim.length
        if not inner:
            self.location, self.offset = claim.location, claim.offset
            self.given_checksum = claim.entries.get("checksum", "")

    @property
    def start(self) -> int | None:
        return self.offset

    @property
    def stop(self) -> int | None:
        nbytes = self.nbytes if self.length is None else self.length
        return None if self.offset is None or nbytes is None else self.offset + nbytes

    def entry(self) -> TensorEntry:
        alignment = None if self.offset is None else _alignment(self.offset)
        return TensorEntry(
            name=plain_text(self.tensor.name) or self.place.name,
            place=self.place.label,
            dtype=dtype_name(self.tensor.data_type),
            shape=tuple(self.tensor.dims),
            nbytes=self.nbytes,
            location=self.location,
            offset=self.offset,
            length=self.length,
            agrees=self.agrees,
            inside=self.inside,
            alignment=alignment,
            overlaps=tuple(self.overlaps),
            checksum=self.checksum,
            keys=self.keys,
            problems=tuple(dict.fromkeys(self.problems)),
        )


@dataclass
class _File:
    """One data file, and the tensors in it."""

    location: str
    source: File
    users: list[_Found] = field(default_factory=list)
    used: int = 0
    padding: int = 0
    orphan: int = 0
    sha1: str = ""

    def spans(self) -> list[tuple[int, int, _Found]]:
        """Return the byte ranges of the tensors in the file, by their start, the longest first."""
        inside = ((f.start, f.stop, f) for f in self.users if f.inside)
        spans = [(start, stop, f) for start, stop, f in inside if start is not None and stop is not None]
        return sorted((span for span in spans if span[0] < span[1]), key=lambda span: (span[0], -span[1]))

    def measure(self) -> None:
        """Count the bytes that are used, that are padding, and that belong to no tensor."""
        position = 0
        end = self.source.nbytes
        for start, stop, _ in [*self.spans(), (end, end, None)]:
            if start > position:
                gap = start - position
                if gap < _alignment(start):
                    self.padding += gap
                else:
                    self.orphan += gap
            self.used += max(stop - max(start, position), 0)
            position = max(position, stop)

    def overlapping(self) -> Iterator[tuple[_Found, _Found]]:
        """Return pairs of tensors that share some of their bytes; sharing all of them is fine."""
        last: tuple[int, int, _Found] | None = None
        for span in self.spans():
            if "size" in span[2].problems:  # its real end is unknown
                continue
            if last is not None and span[0] < last[1] and span[:2] != last[:2]:
                yield last[2], span[2]
            if last is None or span[1] > last[1]:
                last = span

    def row(self) -> DataFile:
        return DataFile(
            self.location, self.source.nbytes, len(self.users), self.used, self.padding, self.orphan, self.sha1
        )


def _sha1(extent: Extent, work: CountedWork) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    if extent.nbytes:
        for data in extent.stream(_READ_SIZE):
            digest.update(data)
            work.add(len(data), f"reading {extent.source.label}")
    return digest.hexdigest()


def _alignment(offset: int) -> int:
    return min(offset & -offset or LARGEST_UNIT, LARGEST_UNIT)
