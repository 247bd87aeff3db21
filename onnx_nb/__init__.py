"""Look at an ONNX model in a notebook cell, take it apart, and find out why it does not compute what PyTorch computed.

>>> import onnx_nb
>>> "load" in dir(onnx_nb) and "ModelGraph" in dir(onnx_nb)
True

``__init__.pyi`` lists the public names, ``types.pyi`` the classes of results. Each is imported when it is first used,
so that ``import onnx_nb`` takes milliseconds and a script that only extracts a submodel never imports a widget.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis import progress, results

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

# onnxruntime's first session would write an id of the device below the home folder, and look up names of hosts
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def _lazy_names(module: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a module whose names its stub imports from their homes."""
    stub = (pkgutil.get_data(__name__, f"{'types' if module != __name__ else '__init__'}.pyi") or b"").decode()
    homes = {name: home for home, name in re.findall(r"^from (onnx_nb\S*) import \w+ as (\w+)$", stub, re.MULTILINE)}
    names = sorted(homes)

    def attribute(name: str) -> Any:
        if name not in homes:
            from onnx_nb.analysis.foreign_names import advice

            hint = "" if name.startswith("_") else advice(name, names)
            if module == __name__ and name in importlib.import_module("onnx_nb.types").__all__:
                hint = f"It is onnx_nb.types.{name}."
            msg = f"module {module!r} has no attribute {name!r}. {hint}".strip()
            raise AttributeError(msg)
        home = importlib.import_module(homes[name])
        value = vars(home).get(name) or importlib.import_module(f"{homes[name]}.{name}")
        vars(sys.modules[module])[name] = value
        return value

    return names, attribute, lambda: ["__all__", "__doc__", "__version__", *names]


__all__, __getattr__, __dir__ = _lazy_names(__name__)


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
results.display = lambda *arguments: importlib.import_module(_NOTEBOOK).bundle(*arguments)
results.widget = lambda result: importlib.import_module(_NOTEBOOK).widget_of(result)
progress.bars.append(lambda: importlib.import_module(_NOTEBOOK).cell_progress())
results.cell_name = lambda file: importlib.import_module(_NOTEBOOK).cell_name(file)
