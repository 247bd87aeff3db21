"""Look at an ONNX model in a notebook cell, take it apart, and find out why it does not compute what PyTorch computed.

>>> import onnx_nb
>>> "load" in dir(onnx_nb) and "ModelGraph" in dir(onnx_nb)
True

``__init__.pyi`` lists the public names. Each is imported when it is first used, so that ``import onnx_nb`` takes
milliseconds and a script that only extracts a submodel never imports a widget.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis import results

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

_STUB = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_HOME = {name: module for module, name in re.findall(r"^from (onnx_nb\S+) import \w+ as (\w+)$", _STUB, re.MULTILINE)}
"""Public name → its module."""

__all__ = sorted(_HOME)  # noqa: PLE0605 (type checkers read the stub)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from onnx_nb.analysis.foreign_names import advice

        hint = "" if name.startswith("_") else advice(name, __all__)
        msg = f"module 'onnx_nb' has no attribute {name!r}. {hint}".strip()
        raise AttributeError(msg)
    module = importlib.import_module(_HOME[name])
    value = getattr(module, name, None) or importlib.import_module(f"{_HOME[name]}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__all__", "__doc__", "__version__", *__all__]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Display bare models and protos of onnx, and add the magics; called by ``%load_ext onnx_nb``."""
    from onnx_nb.cli import magics
    from onnx_nb.notebook import display

    display.show_protos(shell)
    magics.add_magics(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Undo `load_ipython_extension`; called by ``%unload_ext onnx_nb``."""
    from onnx_nb.cli import magics
    from onnx_nb.notebook import display

    display.unshow_protos(shell)
    magics.remove_magics(shell)


_NOTEBOOK = "onnx_nb.notebook.display"
results.display = lambda *given: importlib.import_module(_NOTEBOOK).bundle(*given)
results.widget = lambda result: importlib.import_module(_NOTEBOOK).widget_of(result)
results.cell_name = lambda file: importlib.import_module(_NOTEBOOK).cell_name(file)
