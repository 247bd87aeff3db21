"""The ``%onnx`` magic: load a model and show it in one line."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic_arguments import argument, magic_arguments

from onnx_nb.analysis.errors import OnnxNbError

if TYPE_CHECKING:
    from onnx_nb.widgets.graph import ModelView


def add_magics(shell: InteractiveShell) -> None:
    """Add ``%onnx`` to a shell."""

    @magic_arguments()  # type: ignore[untyped-decorator]
    @argument("path", help="the .onnx file")  # type: ignore[untyped-decorator]
    @argument("--data-dir", help="the folder of its external data; by default the file's own")  # type: ignore[untyped-decorator]
    @argument("--name", help="a variable to assign the Model to")  # type: ignore[untyped-decorator]
    def onnx(line: str) -> ModelView:
        """Load an ONNX model and show its summary and graph.

        ``%onnx bert.onnx --name bert`` also keeps the Model as the variable ``bert``.
        """
        from onnx_nb.analysis.model.model import load
        from onnx_nb.widgets.graph import ModelView

        # not POSIX: keeps the backslashes of Windows paths
        words = [word.strip("'\"") for word in shlex.split(line, posix=False)]
        given = onnx.parser.parse_args(words)
        try:
            model = load(given.path, data_dir=given.data_dir)
        except OnnxNbError as error:
            raise UsageError(str(error)) from error
        if given.name:
            shell.user_ns[given.name] = model
        return ModelView(model)

    shell.register_magic_function(onnx, "line", "onnx")
