"""Every error of onnx_nb. Catch `OnnxNbError` to catch them all.

A message names the tensor, node or file; ``advice`` is the next step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable


class OnnxNbError(Exception):
    """Base class of every error that onnx_nb raises on purpose.

    Parameters
    ----------
    message
        The problem, naming the tensor, node or file.
    advice
        The next step; may be empty.

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
        self.message, self.advice = message, advice

    def __str__(self) -> str:
        return f"{self.message} {self.advice}" if self.advice else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive Exception's own pickling, and errors travel between processes.
        return functools.partial(type(self), advice=self.advice), (self.message,), self.__dict__


class ModelFileError(OnnxNbError):
    """A file or buffer cannot be read or written as an ONNX model."""


class ExternalDataError(OnnxNbError):
    """The external data of a tensor (its bytes outside the model file) cannot be used."""


class ExtractionError(OnnxNbError):
    """A submodel cannot be extracted.

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
        Name of the node that failed, if it is known.

    Examples
    --------
    >>> CaptureError("Conv '/stem/Conv' failed.", node="/stem/Conv").node
    '/stem/Conv'
    """

    def __init__(self, message: str, *, advice: str = "", node: str | None = None) -> None:
        super().__init__(message, advice=advice)
        self.node = node


class SimplificationError(OnnxNbError):
    """A model could not be simplified, or the result could not be verified.

    Parameters
    ----------
    wrong
        Whether the result was found to differ from the original.

    Examples
    --------
    >>> SimplificationError("model.onnx simplified is not the same.", wrong=True).wrong
    True
    """

    def __init__(self, message: str, *, advice: str = "", wrong: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.wrong = wrong


class EditError(OnnxNbError):
    """A model cannot be edited as asked.

    Parameters
    ----------
    node
        Name of the node in the way, or of the tensor that it makes; may be empty.
    """

    def __init__(self, message: str, *, advice: str = "", node: str = "") -> None:
        super().__init__(message, advice=advice)
        self.node = node


class AlignmentError(OnnxNbError):
    """The tensors of two models could not be matched with each other."""


class ExportError(OnnxNbError):
    """torch could not export a module.

    Attributes
    ----------
    module
        Path of the submodule where the export failed; ``None`` if it is unknown.
    """

    module: str | None = None
