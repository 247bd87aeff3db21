"""The notebook extension: how models show themselves in a cell, and the ``%onnx`` magic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_nb.notebook.display import show_models, show_protos, unshow_protos
from onnx_nb.notebook.magics import add_magics, remove_magics

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_extension(shell: InteractiveShell) -> None:
    """Show ``onnx.ModelProto`` as a graph and add ``%onnx``; doing it twice changes nothing."""
    show_models(shell)
    show_protos(shell)
    add_magics(shell)


def unload_extension(shell: InteractiveShell) -> None:
    """Undo `load_extension`."""
    unshow_protos(shell)
    remove_magics(shell)
