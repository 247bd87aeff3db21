"""The audit of external data: what each tensor states of its bytes, against the files that hold them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from onnx import TensorProto

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, plain_text, quoted, shortened
from onnx_nb.analysis.model import storage, tensors
from onnx_nb.analysis.model.model import Model, label_of, storage_of
from onnx_nb.analysis.progress import CountedWork, Progress
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table

LARGEST_UNIT: Final = 65536
"""Bytes; Windows maps files in units of this size, and no tool asks for a larger alignment."""

_READ_SIZE: Final = 1 << 22
"""Bytes read at a time for a checksum."""


@dataclass(frozen=True)
class DataProblem:
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
class Audit(Displayed, Table, panel="audit.AuditPanel"):
    """The external data of a model, as stated and as found. Made by `audit`."""

    model: str
    tensors: tuple[TensorEntry, ...]
    files: tuple[DataFile, ...]
    problems: tuple[DataProblem, ...]

    def __repr__(self) -> str:
        outside = sum(entry.location is not None for entry in self.tensors)
        counts = Counter(problem.severity for problem in self.problems)
        severities = ", ".join(count_text(n, kind) for kind, n in sorted(counts.items()))
        present = [file.nbytes for file in self.files if file.nbytes is not None]
        size, files = bytes_text(sum(present)), count_text(len(present), "file")
        files += f" and {len(self.files) - len(present)} missing" if len(present) < len(self.files) else ""
        contents = f"{outside} of {len(self.tensors)} tensors outside, {size} in {files}"
        return f"Audit({shortened(self.model, 80)!r}: {contents}, {severities or 'no problems'})"

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return all(problem.severity != "error" for problem in self.problems)

    _columns = tuple(TensorEntry.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each tensor."""
        return [asdict(entry) for entry in self.tensors]

    def _still(self) -> Still:
        problems = [(entry.severity, entry.kind, f"{entry.message} {entry.advice}") for entry in self.problems]
        problems.sort(key=lambda row: row[0] != "error")
        sizes = [
            ["missing" if size is None else bytes_text(size) for size in (file.nbytes, file.padding, file.orphan)]
            for file in self.files
        ]
        files = [(file.location, f"{file.tensors:,}", *texts) for file, texts in zip(self.files, sizes, strict=True)]
        tables = (
            StillTable(("", "Problem", "What"), problems, "problem", 3, "", [row[0] == "error" for row in problems]),
            StillTable(("File", "Tensors", "Size", "Padding", "Unused"), files, "file"),
        )
        return Still(repr(self), tables=tables, ok=self.ok)


_REWRITE: Final = "external_data.convert(model, path) writes a copy without this."


class Auditor:
    """Collects the problems of one audit."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.label = label_of(model)
        self.problems: list[DataProblem] = []
        self.files: dict[object, _FileUses] = {}
        self.missing: list[DataFile] = []

    def audit(self, *, checksums: bool, progress: Progress | None) -> Audit:
        """Check every tensor and every data file."""
        places = tensors.placed(self.model.proto)
        uses = [_Use(tensor, place, f"{place.label} of {self.label}") for tensor, place in places]
        by_location: dict[str, list[_Use]] = {}
        for use in uses:
            if use.tensor.data_location == TensorProto.EXTERNAL:
                use.claim = storage.Claim.of(use.tensor, use.what)
                by_location.setdefault(use.claim.location, []).append(use)
            else:
                self._check_inner(use)
        for location, users in by_location.items():
            self._check_location(location, users)
        dense = [use for use in uses if use.location is not None and not use.place.kind.startswith("sparse")]
        small = [use for use in dense if tensors.may_be_shape(use.tensor)]
        if small:
            names = _uses_text(small)
            message = f"{names} of {self.label} may decide shapes, which onnxruntime infers before it reads files."
            advice = f"onnxruntime refuses the model if an operator such as Reshape reads it. {_REWRITE}"
            self._report("warning", "shape", small, message, advice)
        for file in self.files.values():
            self._check_file(file)
        self._check_checksums(compute=checksums, progress=progress)
        present = [DataFile(f.location, f.source.nbytes, len(f.users), *f.counts, f.sha1) for f in self.files.values()]
        entries = tuple(use.entry() for use in uses)
        return Audit(self.model.name, entries, (*self.missing, *present), tuple(self.problems))

    def _report(self, severity: str, kind: str, uses: Sequence[_Use], message: str, advice: str = _REWRITE) -> None:
        for use in uses:
            use.problems.append(kind)
        self.problems.append(DataProblem(kind, severity, message, advice, len(uses), uses[0].location))

    def _check_inner(self, use: _Use) -> None:
        """Compare the values that a tensor holds itself with its type and shape."""
        tensor, what = use.tensor, use.what
        if tensor.HasField("segment"):
            message = f"{what} is one segment of a tensor, which no version of ONNX defines how to join."
            self._report("error", "size", [use], message, "Export the model again.")
        if tensor.data_type == TensorProto.STRING:
            unit, count, expected_count = "strings", len(tensor.string_data), tensors.elements(tensor.dims)
        else:
            unit, count, expected_count = "bytes", tensors.held_bytes(tensor), tensors.declared_bytes(tensor)
            if tensors.numpy_dtype(tensor.data_type) is None or expected_count < 0:
                message = f"{what} has element type {tensor.data_type} and shape {list(tensor.dims)[:12]}."
                self._report("error", "size", [use], message, "Its size in bytes is unknown. Export it again.")
                return
            use.nbytes, use.length = expected_count, count
        use.agrees = count == expected_count
        if not use.agrees:
            message = f"{what} holds {count} {unit}, but {tensors.type_and_shape(tensor)} takes {expected_count}."
            self._report("error", "size", [use], message, "The file is damaged, or was written by a faulty tool.")

    def _check_location(self, location: str, uses: list[_Use]) -> None:
        source: storage.Source | None = None
        failure: OnnxNbError | None = None
        try:
            source = storage_of(self.model).source(location, f"{_uses_text(uses)} of {self.label}")
        except OnnxNbError as error:
            failure = error
        for use in uses:
            self._check_claim(use, source)
        if failure is not None:
            missing = isinstance(failure, storage.MissingFileError)
            unsafe = isinstance(failure, storage.UnsafeLocationError)
            kind = "missing file" if missing else "unsafe path" if unsafe else "file"
            self._report("error", kind, uses, failure.message, failure.advice)
            self.missing.append(DataFile(location, None, len(uses), 0, 0, 0, ""))
        elif isinstance(source, storage.File) and not source.permanent:
            # "data" and "./data" are one file
            self.files.setdefault(source.identity, _FileUses(location, source)).users += uses

    def _check_claim(self, use: _Use, source: storage.Source | None) -> None:
        """Check a tensor's claim against the file, and for entries that onnx and onnxruntime read differently."""
        claim, what = use.claim, use.what
        assert claim is not None  # noqa: S101  # only tensors with external data get here
        use.nbytes, use.length = claim.nbytes, claim.length
        use.agrees = None if None in (claim.nbytes, claim.length) else claim.nbytes == claim.length
        inner = source is not None and source.permanent
        if not inner:
            use.location, use.offset = claim.location, claim.offset
        beyond = list(claim.beyond(source)) if source is not None else []
        if source is not None and claim.span is not None:
            use.inside = not beyond
        for kind, error in [*claim.problems, *(("bounds", error) for error in beyond)]:
            self._report("error", kind, [use], error.message, error.advice)
        if inner:
            return
        for key in ("offset", "length"):
            if claim.entries.get(key) == "":
                message = f"{what} has external data with an empty {key}, which onnx and onnxruntime refuse."
                self._report("error", "number", [use], message)
        keys = [plain_text(entry.key) for entry in use.tensor.external_data]
        use.keys = tuple(dict.fromkeys(key for key in keys if key not in storage.KNOWN_KEYS))
        for key in dict.fromkeys(keys):
            if key in storage.KNOWN_KEYS:
                if keys.count(key) > 1:
                    message = f"{what} gives {key!r} {keys.count(key)} times; the last one counts."
                    self._report("warning", "key", [use], message)
            elif key == "basepath":
                message = f"{what} has the key 'basepath', with which onnxruntime refuses to load the model."
                advice = f"It only notes from where some program loaded the model. {_REWRITE}"
                self._report("error", "basepath", [use], message, advice)
            elif key.startswith("prepacked"):
                message = f"{what} has the key {quoted(key)}, which only onnxruntime defines; onnx warns of it."
                self._report("warning", "key", [use], message)
            else:
                message = f"{what} has the unknown key {quoted(key)}: onnxruntime refuses to load the model."
                self._report("error", "key", [use], message)
        if use.place.kind.startswith("sparse"):
            refusal = ", and which onnx's checker refuses" if use.place.kind == "sparse indices" else ""
            message = f"{what} is external data, which onnx.load leaves unread{refusal}."
            self._report("warning", "sparse", [use], message, "external_data.inline(model, path) puts it in.")
        if source is not None and "length" not in claim.entries and claim.span and claim.span[1] < source.nbytes:
            message = f"{what} gives no length, and {quoted(source.label)} goes on after it: onnx.load reads to "
            message += "the end of the file, and then the shape does not fit."
            self._report("warning", "length", [use], message)

    def _check_file(self, file: _FileUses) -> None:
        """Count used bytes, padding and bytes that belong to no tensor, and find overlaps."""
        name, uses, end = quoted(file.location), file.users, file.source.nbytes
        spans = [(*use.span, use) for use in uses if use.inside and use.span]
        position = size = 0
        gaps: list[tuple[int, int]] = []
        previous: tuple[int, int, _Use] | None = None
        for start, stop, use in sorted(spans, key=lambda span: (span[0], -span[1])):
            if start == stop:
                continue
            gaps.append((max(start - position, 0), start))
            size += max(stop - max(start, position), 0)
            position = max(position, stop)
            if "size" in use.problems:  # its real end is unknown
                continue
            if previous is not None and start < previous[1] and (start, stop) != previous[:2]:
                other = previous[2]
                message = f"{other.place.label} and {use.place.label} of {self.label} use some of the same bytes of "
                message += f"{name}, at {previous[0]} to {previous[1]} and {start} to {stop}."
                advice = "One of them has values that are not its own, unless that was meant: export the model again."
                # A tensor inside another may be intended; a partial overlap never is.
                self._report("warning" if stop <= previous[1] else "error", "overlap", [other, use], message, advice)
                use.overlaps.append(other.place.label)
                other.overlaps.append(use.place.label)
            if previous is None or stop > previous[1]:
                previous = start, stop, use
        gaps.append((end - position, end))
        padding = sum(gap for gap, at in gaps if gap < _alignment(at))
        orphan = sum(gap for gap, _ in gaps) - padding
        file.counts = size, padding, orphan
        if file.source.is_linked:
            form = "is a symbolic link" if file.source.path.is_symlink() else f"has {file.source.links} hard links"
            inner = [use for use in uses if use.place.in_body]
            if inner:
                message = f"{name} {form}, and onnxruntime refuses that for {inner[0].what}."
                self._report("error", "link", inner, message)
            message = f"{name}, with {_uses_text(uses)} of {self.label}, {form}: onnx.load refuses to read it."
            self._report("warning", "link", uses, message)
        if orphan:
            message = f"{orphan} of the {end} bytes of {name} belong to no tensor of {self.label}."
            advice = f"They may be left from an earlier save, or belong to another model. {_REWRITE}"
            self.problems.append(DataProblem("orphan", "warning", message, advice, 0, file.location))

    def _check_checksums(self, *, compute: bool, progress: Progress | None) -> None:
        files = [file for file in self.files.values() if any(use.given_checksum for use in file.users)]
        work = CountedWork(progress, sum(file.source.nbytes for file in files))
        for file in files if compute else ():
            uses = [use for use in file.users if use.given_checksum]
            what = f"{quoted(file.location)} of {self.label}"
            try:
                file.sha1 = _sha1(storage.Extent(file.source, 0, file.source.nbytes, what), work)
                self._compare(file, uses, work)
            except OnnxNbError as error:
                self._report("error", "file", uses, error.message, error.advice)

    def _compare(self, file: _FileUses, uses: list[_Use], work: CountedWork) -> None:
        """Compare the checksums in tensors with that of their file, else with that of the tensor's own bytes."""
        wrong: dict[str, list[_Use]] = {}
        exact: list[_Use] = []
        spans: dict[str, set[tuple[int, int] | None]] = {}
        for use in uses:
            spans.setdefault(use.given_checksum, set()).add(use.span)
        for use in uses:
            checksum = use.given_checksum.strip().lower()
            # Different bytes have different checksums: one stated by many tensors is meant for the file.
            span = use.span if use.inside and len(spans[use.given_checksum]) == 1 else None
            if checksum == file.sha1:
                use.checksum = "verified"
            elif span and checksum == _sha1(storage.Extent(file.source, span[0], span[1] - span[0], use.what), work):
                use.checksum = "verified"
                exact.append(use)
            else:
                use.checksum = "wrong"
                wrong.setdefault(use.given_checksum, []).append(use)
        for checksum, users in wrong.items():
            message = f"the SHA1 of {quoted(file.location)} is {file.sha1}, but by {_uses_text(users)} of "
            message += f"{self.label} it should be {quoted(checksum)}."
            advice = "The file was changed or damaged after the model was written: get it again."
            self._report("error", "checksum", users, message, advice)
        if exact:
            message = f"the checksum in {_uses_text(exact)} of {self.label} is that of the tensor's own bytes; the "
            message += f"specification means that of the whole file {quoted(file.location)}."
            self._report("warning", "checksum", exact, message)


def _uses_text(users: Sequence[_Use]) -> str:
    more = len(users) - 1
    return users[0].place.label + (f" and {count_text(more, 'more tensor')}" if more else "")


@dataclass(eq=False)
class _Use:
    tensor: TensorProto
    place: tensors.Place
    what: str
    claim: storage.Claim | None = None
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
        return self.claim.span if self.claim else None

    @property
    def given_checksum(self) -> str:
        return self.claim.entries.get("checksum", "") if self.claim and self.location is not None else ""

    def entry(self) -> TensorEntry:
        same = ("nbytes", "location", "offset", "length", "agrees", "inside", "keys")
        fields: dict[str, Any] = {name: getattr(self, name) for name in same}
        return TensorEntry(
            name=plain_text(self.tensor.name) or self.place.name,
            place=self.place.label,
            dtype=tensors.dtype_name(self.tensor.data_type),
            shape=tuple(self.tensor.dims),
            alignment=None if self.offset is None else _alignment(self.offset),
            overlaps=tuple(self.overlaps),
            checksum=self.checksum or ("not verified" if self.given_checksum else ""),
            problems=tuple(dict.fromkeys(self.problems)),
            **fields,
        )


@dataclass
class _FileUses:
    location: str
    source: storage.File
    users: list[_Use] = field(default_factory=list)
    counts: tuple[int, int, int] = (0, 0, 0)
    """Bytes used, bytes of padding, and bytes of no tensor."""
    sha1: str = ""


def _sha1(extent: storage.Extent, work: CountedWork) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    for data in extent.stream(_READ_SIZE) if extent.nbytes else ():
        digest.update(data)
        work.add(len(data), f"reading {extent.source.label}")
    return digest.hexdigest()


def _alignment(offset: int) -> int:
    return min(offset & -offset or LARGEST_UNIT, LARGEST_UNIT)
