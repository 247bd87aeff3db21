"""Audit, convert and relocate the files in which a model keeps its weights.

A tensor with external data says in which file its bytes lie, and where. `audit` compares what every tensor says with
what is there, without reading the weights; `convert` and `inline` write the model anew, with its weights beside it or
in it; `check` is onnx's checker and `audit` together.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx
from google.protobuf.message import EncodeError
from onnx import ModelProto, TensorProto

from onnx_nb.analysis.dataframes import data_frame
from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, plain_text, quoted, shortened
from onnx_nb.analysis.host import Displayed
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
    refer,
)
from onnx_nb.analysis.model.tensors import declared_bytes, dtype_name, held_bytes, placed, type_and_shape
from onnx_nb.analysis.progress import CountedWork, Progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from onnx_nb.analysis.model.tensors import Place

__all__ = ["Audit", "DataFile", "Problem", "TensorEntry", "audit", "check", "convert", "inline"]

LARGEST_UNIT: Final = 65536
"""Windows maps files in units of it; no tool asks for a larger alignment."""

_READ_SIZE: Final = 1 << 22


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a tensor or a data file.

    Parameters
    ----------
    kind
        "missing file", "unsafe path", "file", "bounds", "size", "number", "key", "basepath", "length", "overlap",
        "checksum", "link", "sparse" or "orphan".
    severity
        "error": onnx, onnxruntime or onnx_nb cannot use the tensor, or its values are not those meant. "warning": it
        works, or works in some of them.
    message
        What is wrong, naming the tensor and the file.
    advice
        What to do.
    tensors
        How many tensors it concerns; the message names the first.
    location
        The data file; ``None`` if it is about the model's own file.
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
    """What one tensor says of its data, and what is found there."""

    name: str
    """The weight's; an attribute's own name where its tensor has none."""
    place: str
    """Where in the model it is, as "weight 'w'" or "attribute 'value' of Constant '/c'"."""
    dtype: str
    shape: tuple[int, ...]
    nbytes: int | None
    """What dtype and shape take; ``None`` if that cannot be told."""
    location: str | None
    """The data file as the tensor names it; ``None``: the bytes are in the model itself."""
    offset: int | None
    length: int | None
    """As the tensor says; ``None`` if it does not."""
    agrees: bool | None
    """Whether the length, or the values in the model, are as many bytes as dtype and shape take."""
    inside: bool | None
    """Whether the bytes lie within the file; ``None`` if that cannot be told."""
    alignment: int | None
    """The largest power of two that divides the offset, at most 65536: 4096 and more can be mapped everywhere."""
    overlaps: tuple[str, ...]
    """Places of tensors that use some of the same bytes, but not exactly the same."""
    checksum: str
    """"" (none given), "not verified", "verified", or "wrong"."""
    keys: tuple[str, ...]
    """Keys that the specification does not define."""
    problems: tuple[str, ...]
    """Kinds of the problems with this tensor."""


@dataclass(frozen=True)
class DataFile:
    """One file of external data, and what of it is used."""

    location: str
    """As the tensors name it."""
    nbytes: int
    tensors: int
    """How many have their bytes in it."""
    used: int
    """Bytes that belong to a tensor."""
    padding: int
    """Bytes in front of a tensor that only make its offset a round number."""
    orphan: int
    """Bytes that belong to no tensor of this model."""
    sha1: str
    """Of the whole file, in hexadecimal; empty if it was not computed."""


@dataclass(frozen=True)
class Audit(Displayed):
    """What the tensors of a model say of their data, compared with what is there. Made by `audit`."""

    model: str
    tensors: tuple[TensorEntry, ...]
    files: tuple[DataFile, ...]
    problems: tuple[Problem, ...]

    def __repr__(self) -> str:
        outside = sum(entry.location is not None for entry in self.tensors)
        counts = Counter(problem.severity for problem in self.problems)
        found = ", ".join(f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in sorted(counts.items()))
        size = bytes_text(sum(file.nbytes for file in self.files))
        files = f"{len(self.files)} file{'' if len(self.files) == 1 else 's'}"
        held = f"{outside} of {len(self.tensors)} tensors outside, {size} in {files}"
        return f"Audit({shortened(self.model, 80)!r}: {held}, {found or 'no problems'})"

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return all(problem.severity != "error" for problem in self.problems)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each tensor."""
        return [asdict(entry) for entry in self.tensors]

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each tensor as a ``pandas.DataFrame`` (needs pandas)."""
        return data_frame(self.rows(), list(TensorEntry.__dataclass_fields__))


def audit(model: ModelLike, *, checksums: bool = False, progress: Progress | None = None) -> Audit:
    """Compare what every tensor says of its external data with what is there; milliseconds at any size.

    It goes on after a problem, so that all of them are told. Tensors in attributes, in the bodies of If, Loop and Scan,
    in functions and in sparse weights are looked at too.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    checksums
        Also verify the checksums that tensors give, which reads the files once. By the specification it is the SHA1 of
        the whole *file*; where it is that of the tensor's bytes instead, it counts as verified, with a warning.
    progress
        Called with a fraction and a message while checksums are computed; what it raises ends the audit.

    Returns
    -------
    Audit
        One `TensorEntry` for each tensor, one `DataFile` for each file, and the problems.

    Raises
    ------
    ModelFileError
        If the model itself cannot be opened. What is wrong with its data is a `Problem`, not an error.

    Notes
    -----
    By onnxruntime's rule external data lies in the model's folder or below it, also after following symbolic links;
    where the model's file is itself a link, as in the cache of a model hub, also where that file really is. Through a
    link onnxruntime reads no weights of the bodies of If, Loop and Scan, and onnx none at all.

    Examples
    --------
    >>> import onnx, tempfile
    >>> weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[100], data_location=1)
    >>> for key, value in {"location": "w.bin", "offset": "0", "length": "400"}.items():
    ...     _ = weight.external_data.add(key=key, value=value)
    >>> proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [weight]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     onnx.save(proto, f"{folder}/model.onnx")
    ...     print(audit(f"{folder}/model.onnx").problems[0].kind)
    ...     _ = Path(folder, "w.bin").write_bytes(bytes(400))
    ...     audit(f"{folder}/model.onnx")
    missing file
    Audit('model.onnx': 1 of 1 tensors outside, 400 B in 1 file, no problems)
    """
    return _Auditor(load(model)).audit(checksums=checksums, progress=progress)


class _Auditor:
    """Collects what is found; one use."""

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

    def _say(
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
            self._say("size", "error", (message, "Export the model again."), [found])
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
                self._say("size", "error", (message, "Nothing tells how many bytes that is. Export it again."), [found])
                return
            held = held_bytes(tensor)
            found.nbytes, found.length, found.agrees = needed, held, held == needed
        if not found.agrees:
            message = f"{what} holds {held} {unit}, but {type_and_shape(tensor)} takes {needed}."
            self._say("size", "error", (message, "The file is damaged, or was written by a faulty tool."), [found])

    def _check_location(self, location: str, users: list[_Found]) -> None:
        """Check all tensors whose bytes lie at one location."""
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
            self._say(kind, "error", failed, users)
        elif isinstance(source, File) and not inner:
            # "data" and "./data" are one file
            file = self.files.setdefault(source.identity, _File(location, source))
            file.users += users

    def _check_claim(self, found: _Found, source: Source | None, *, inner: bool) -> None:
        claim = found.claim
        assert claim is not None  # noqa: S101  # only tensors with external data come here
        found.take(claim, inner=inner)
        for kind, error in claim.problems:
            self._say(kind, "error", error, [found])
        if source is not None:
            beyond = list(claim.beyond(source))
            if claim.offset is not None and (claim.length is not None or claim.nbytes is not None):
                found.inside = not beyond
            for error in beyond:
                self._say("bounds", "error", error, [found])
        if not inner:
            self._check_entries(found, claim, source)

    def _check_entries(self, found: _Found, claim: Claim, source: Source | None) -> None:
        """Look for what onnx and onnxruntime read differently."""
        for key in ("offset", "length"):
            if claim.entries.get(key) == "":
                message = f"{claim.what} has external data with an empty {key}, which onnx and onnxruntime refuse."
                self._say("number", "error", (message, _REWRITE), [found])
        keys = [plain_text(entry.key) for entry in found.tensor.external_data]
        for key in dict.fromkeys(keys):
            if key in KNOWN_KEYS:
                if keys.count(key) > 1:
                    message = f"{claim.what} gives {key!r} {keys.count(key)} times; the last counts."
                    self._say("key", "warning", (message, _REWRITE), [found])
            elif key == "basepath":
                message = f"{claim.what} has the key 'basepath', with which onnxruntime refuses to load the model."
                advice = f"It is a note of where some program loaded it from, and means nothing. {_REWRITE}"
                self._say("basepath", "error", (message, advice), [found])
            elif key.startswith("prepacked"):
                message = f"{claim.what} has the key {quoted(key)} of onnxruntime's own, of which onnx warns."
                self._say("key", "warning", (message, _REWRITE), [found])
            else:
                message = f"{claim.what} has the unknown key {quoted(key)}: onnxruntime refuses to load the model."
                self._say("key", "error", (message, _REWRITE), [found])
        found.keys = tuple(key for key in dict.fromkeys(keys) if key not in KNOWN_KEYS)
        if found.place.kind.startswith("sparse"):
            message = f"{claim.what} is external data, which onnx.load leaves unread."
            if found.place.kind == "sparse indices":
                message = f"{message[:-1]}, and which onnx's checker refuses."
            self._say("sparse", "warning", (message, "external_data.inline(model, path) puts it in."), [found])
        offset, nbytes = claim.offset, claim.nbytes
        if source is None or offset is None or nbytes is None:
            return
        if "length" not in claim.entries and offset + nbytes < source.nbytes:
            message = (
                f"{claim.what} gives no length, and {quoted(source.label)} goes on after it: onnx.load reads to the "
                "end of the file, and then the shape does not fit."
            )
            self._say("length", "warning", (message, _REWRITE), [found])

    def _overlap(self, found: _Found, other: _Found, file: _File) -> None:
        message = (
            f"{found.place.label} and {other.place.label} of {self.label} use some of the same bytes of "
            f"{quoted(file.location)}, at {found.start} to {found.stop} and {other.start} to {other.stop}."
        )
        advice = "One of them has values that are not its own, unless that was meant: export the model again."
        # A part of a tensor may be a tensor by intention; two that only share a border never are.
        within = found.stop is not None and other.stop is not None and other.stop <= found.stop
        self._say("overlap", "warning" if within else "error", (message, advice), [found, other])
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
                self._say("link", "error", (message, _REWRITE), inner)
            message = f"{name}, with {_named(users)} of {self.label}, {form}: onnx.load refuses to read it."
            self._say("link", "warning", (message, _REWRITE), users)
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
                    self._say("file", "error", error, users)

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
            self._say("checksum", "error", (message, advice), those)
        if own:
            message = (
                f"the checksum in {_named(own)} of {self.label} is that of the tensor's own bytes; the "
                f"specification means that of the whole file {quoted(file.location)}."
            )
            self._say("checksum", "warning", (message, _REWRITE), own)

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
    return users[0].place.label + (f" and {more} more tensor{'' if more == 1 else 's'}" if more else "")


class _Found:
    """What is found out of one tensor."""

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
        """Return where the tensors lie that lie in the file: by their start, the longest first."""
        inside = ((f.start, f.stop, f) for f in self.users if f.inside)
        spans = [(start, stop, f) for start, stop, f in inside if start is not None and stop is not None]
        return sorted((span for span in spans if span[0] < span[1]), key=lambda span: (span[0], -span[1]))

    def measure(self) -> None:
        """Tell what is used, what is padding and what belongs to no tensor."""
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
        """Return pairs of tensors with some bytes in common; with all of them they share, which is fine."""
        last: tuple[int, int, _Found] | None = None
        for span in self.spans():
            if "size" in span[2].problems:  # where it really ends is not known
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
    """Write a model with its weights in files beside it, reading a few megabytes at a time.

    All files appear together when they are complete, with the usual permissions; if anything fails, none does. Files of
    these names are replaced, but never one that the model is read from: replacing two files is not one step, and a
    process killed in between would leave a model whose weights are gone. Write under another name instead.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    path
        Of the new model's file.
    location
        Name of the data file beside it, by default ``<path>.data``. Of several files the names are made of it.
    per_tensor
        A file for each tensor, named after it; characters that not every file system takes become ``_``.
    threshold
        Tensors of fewer bytes go into the model's file, where they cost less than a reference.
    attributes
        Also put out the tensors in attributes, as of Constant nodes. Those that are external data already stay so.
        Strings cannot be external data; sparse weights could, but onnx's helpers overlook them.
    alignment
        Each offset is a multiple of it: 4096, as the specification advises, lets every system but Windows map a single
        tensor; 65536 also Windows; 1 wastes nothing.
    checksums
        Give each tensor the SHA1 of its data file, which `audit` verifies.
    shard_size
        Several files of at most so many bytes.
    progress
        Called with a fraction and a message; what it raises ends the writing, and no file has appeared.

    Returns
    -------
    pathlib.Path
        The model's file.

    Raises
    ------
    ModelFileError
        If a file cannot be written, a tensor is larger than ``shard_size``, or the model would be over 2 GB because of
        a high ``threshold``.
    ExternalDataError
        If the bytes of a tensor cannot be read.
    ValueError
        If an option makes no sense.

    Notes
    -----
    Keys other than location, offset, length and checksum are left out, among them ``basepath`` (see `load_from`).

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
        Where to. A file that is there is replaced, but never one that this model is read from.
    progress
        Called with a fraction and a message; what it raises ends the writing, and no file has appeared.

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
    ...     beside = convert(proto, f"{folder}/beside.onnx")
    ...     onnx.load(inline(beside, f"{folder}/one.onnx")) == proto
    True
    """
    loaded = load(model)
    target = Path(path)
    write_model(target, loaded.proto, storage_of(loaded), label_of(loaded), layout=None, progress=progress)
    return target


def check(model: ModelLike, *, full: bool = False, checksums: bool = False, progress: Progress | None = None) -> Audit:
    """Check a model with onnx's checker and everything that it misses; of any size, also one that is not in a file.

    The checker is given the model without its weights, so it needs neither 2 GB of memory nor a file, and refuses no
    data file for being a symbolic link. Of external data it only sees that there is some file; the rest is `audit`'s.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    full
        Also infer all types and shapes, and compare them with those declared.
    checksums
        Also verify the checksums; see `audit`.
    progress
        As for `audit`.

    Returns
    -------
    Audit
        Without errors; it may hold warnings.

    Raises
    ------
    ModelFileError
        If the checker refuses the model, or a tensor in it does not have the bytes that its shape takes.
    ExternalDataError
        If something is wrong with the external data; it tells the first problem.

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
    """Return the model with all large weights in one file that nobody reads."""
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
