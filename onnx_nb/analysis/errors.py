"""Every error of onnx_nb, and how its messages write names, sizes and what was probably meant.

A message names the tensor, node or file; ``advice`` says what to do next. Catch `OnnxNbError` to catch them all.
Names come from files that are not trusted: they may be bytes, thousands of characters long, or hold line breaks.
"""

from __future__ import annotations

import difflib
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OnnxNbError(Exception):
    """The base of every error that onnx_nb raises on purpose.

    Parameters
    ----------
    message
        What is wrong, naming the tensor, node or file.
    advice
        What to do next; may be empty.

    Examples
    --------
    >>> error = OnnxNbError("tensor '24' is not in the model.", advice="List them with model.tensor_names('24*').")
    >>> str(error)
    "tensor '24' is not in the model. List them with model.tensor_names('24*')."
    >>> error.advice
    "List them with model.tensor_names('24*')."
    """

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message} {self.advice}" if self.advice else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive Exception's own pickling, and errors travel between processes.
        return _rebuild, (type(self), self.message, self.advice, dict(self.__dict__))


class ModelFileError(OnnxNbError):
    """A file or buffer cannot be read or written as an ONNX model."""


class ExternalDataError(OnnxNbError):
    """The bytes of a tensor that lie outside its model file cannot be used."""


class ExtractionError(OnnxNbError):
    """A submodel cannot be cut out.

    Parameters
    ----------
    missing
        The tensors that would have to be inputs as well.

    Examples
    --------
    >>> ExtractionError("output '28' also needs '26'.", missing=["26"]).missing
    ('26',)
    """

    def __init__(self, message: str, *, advice: str = "", missing: Iterable[str] = ()) -> None:
        super().__init__(message, advice=advice)
        self.missing = tuple(missing)


class FeedError(OnnxNbError):
    """The arrays given as model inputs do not fit the model."""


class CaptureError(OnnxNbError):
    """Intermediate values could not be captured.

    Parameters
    ----------
    node
        Name of the node at which it failed, if it is known.

    Examples
    --------
    >>> CaptureError("Conv '/stem/Conv' failed.", node="/stem/Conv").node
    '/stem/Conv'
    """

    def __init__(self, message: str, *, advice: str = "", node: str | None = None) -> None:
        super().__init__(message, advice=advice)
        self.node = node


class SimplificationError(OnnxNbError):
    """A model could not be simplified, or the result could not be verified."""


class AlignmentError(OnnxNbError):
    """The tensors of two models could not be matched with each other."""


class ExportError(OnnxNbError):
    """torch could not export a module.

    Attributes
    ----------
    module
        Path of the submodule where it failed; ``None`` if that is not known.
    """

    module: str | None = None


def closest(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """Give the names most like ``name``, best first; for "Closest names: …" in a message.

    Parameters
    ----------
    name
        What was asked for.
    names
        What there is.
    n
        At most so many are returned.

    Returns
    -------
    list of str
        May be empty when nothing is alike.

    Examples
    --------
    >>> closest("layer1.weigth", ["layer1.weight", "layer1.bias", "head"], n=1)
    ['layer1.weight']
    """
    candidates = dict.fromkeys(names)
    if name and len(candidates) > 2000:
        # difflib costs about 20 µs a name: of many names look first at those that hold the text or share its start.
        lowered = name.lower()
        stem = lowered[: max(3, len(lowered) // 2)]
        near = [other for other in candidates if lowered in other.lower() or other.lower().startswith(stem)]
        candidates = dict.fromkeys(near[:2000] or list(candidates)[:2000])
    usable = [other for other in candidates if len(other) <= 500]
    found = difflib.get_close_matches(name[:500], usable, n=n, cutoff=0.5)
    contained = [other for other in usable if name and name in other and other not in found]
    return (found + sorted(contained, key=len))[:n]


def text(name: str | bytes) -> str:
    r"""Give a name of a proto as text; protobuf hands over bytes where a file breaks the rule that names are UTF-8.

    Examples
    --------
    >>> text("w"), text(b"\xffw")
    ('w', '\\xffw')
    """
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name


def shown(name: str) -> str:
    """Quote a name in a message; its beginning and end if it is very long.

    Examples
    --------
    >>> shown("w"), len(shown("w" * 10_000))
    ("'w'", 183)
    """
    return repr(name if len(name) <= 200 else f"{name[:120]}…{name[-60:]}")


def cut(text: str, limit: int) -> str:
    """Give a text in at most ``limit`` characters: where it is longer, its beginning.

    Examples
    --------
    >>> cut("batch", 24), cut("batch", 4)
    ('batch', 'bat…')
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def plain(text: str) -> str:
    r"""Give a text without what would turn its direction, break its line or hide: dots stand for that.

    Examples
    --------
    >>> plain("a\u202egnp.exe\n")
    'a·gnp.exe·'
    """
    return "".join("·" if unicodedata.category(character) in ("Cc", "Cf") else character for character in text)


def readable(nbytes: int) -> str:
    """Write a number of bytes as a person would.

    Examples
    --------
    >>> readable(512), readable(438_000_000)
    ('512 B', '438.0 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"


def _rebuild(kind: type[OnnxNbError], message: str, advice: str, state: dict[str, object]) -> OnnxNbError:
    error = kind(message, advice=advice)
    error.__dict__.update(state)
    return error
