"""The magics: the verbs of the command line in a cell, where a variable may stand for a model.

Options are written and read by click, completion comes from the same parameters, and ``--code`` prints the Python.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

import click
from click.shell_completion import ShellComplete
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import printable
from onnx_nb.cli.verbs import VERBS, VIEW, Verb

_RESULTS: Final = {f"onnx_{name}": verb for name, verb in VERBS.items() if verb.result and name != "reduce"}
MAGICS: Final[Mapping[str, Verb]] = {"onnx": VIEW, **_RESULTS}
"""Name of a line magic → its verb; not *reduce*, whose check is a command, and a function in a notebook."""
_OPTIONS: Final = (
    click.Option(["--name"], metavar="NAME", help="Variable to assign the result to."),
    click.Option(["--code"], is_flag=True, help="Print the Python that does the same, and run nothing."),
)
_COMMANDS: Final = {
    name: click.Command(f"%{name}", {"max_content_width": 100}, params=[*verb.params, *_OPTIONS], help=verb.help)
    for name, verb in MAGICS.items()
}
_LINE: Final = re.compile(r"(?:^|\n)\s*(?:\w+\s*=\s*)?%{1,2}(onnx\w*)[ \t]+([^\n]*)$")


def add_magics(shell: InteractiveShell) -> None:
    """Add the magics and their completion to a shell."""
    register: Any = shell.register_magic_function
    for name in MAGICS:
        magic = functools.partial(_run, shell, name)
        magic.__doc__ = _help(_COMMANDS[name])  # which ``%onnx_summary?`` shows
        register(magic, "line", name)
    shell.set_hook("complete_command", _complete, re_key=_LINE.pattern)


def remove_magics(shell: InteractiveShell) -> None:
    """Undo `add_magics`."""
    for name in MAGICS:
        shell.magics_manager.magics["line"].pop(name, None)
    shell.strdispatchers["complete_command"].regexs.pop(re.compile(_LINE.pattern), None)


def _help(command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name=command.name))


def _run(shell: InteractiveShell, name: str, line: str) -> Any:
    verb, command = MAGICS[name], _COMMANDS[name]
    try:  # not POSIX: keeps the backslashes of Windows paths
        words = [word.strip("'\"") for word in shlex.split(line, posix=False)]
    except ValueError as error:
        raise UsageError(f"the line cannot be read: {error}. Close the quotation mark.") from error
    if {"--help", "-h"} & {*words}:
        print(_help(command))  # noqa: T201 (the output of the cell)
        return None
    try:
        values = command.make_context(str(command.name), words, obj=shell.user_ns).params
        variable, code = values.pop("name"), values.pop("code")
        if variable and not variable.isidentifier():
            raise UsageError(f"--name {variable!r} is not the name of a variable.")
        script = verb.build(into=variable, **values)
        if code:
            print(script.code())  # noqa: T201
            return None
        variables = script.run(shell.user_ns)
    except click.ClickException as error:
        raise UsageError(error.format_message()) from error
    except OnnxNbError as error:
        raise UsageError(str(error)) from error
    except KeyboardInterrupt:
        raise UsageError("interrupted; nothing was assigned.") from None
    if variable:
        shell.user_ns[variable] = variables[variable]
    if variables.get("failed"):
        print(f"failed: {', '.join(printable(point.name) for point in variables['failed'])}")  # noqa: T201
    return variables.get("view", variables.get(variable or verb.result))


def _complete(shell: InteractiveShell, event: Any) -> list[str]:
    """Return what may follow: options, choices, files, variables, tensors of the model that the line names."""
    match = _LINE.search(event.text_until_cursor)
    command = _COMMANDS.get(match[1]) if match else None
    if match is None or command is None:
        return []
    *words, incomplete = re.split(r"\s+", match[2])
    quote = incomplete[:1] if incomplete[:1] in ("'", '"') else ""
    plain = [word.strip("'\"") for word in words]
    completion = ShellComplete(command, {"obj": shell.user_ns}, str(command.name), "")
    items = completion.get_completions(plain, incomplete.removeprefix(quote))
    names: dict[str, None] = {}
    for item in items:
        names.update(dict.fromkeys(_files(str(item.value)) if item.type in ("file", "dir") else [str(item.value)]))
    # IPython replaces only the end of the word, from the last character that separates names in Python
    return [name[max(len(incomplete) - len(quote) - len(event.symbol), 0) :] for name in names]


def _files(begin: str) -> list[str]:
    """Return folders and models whose path begins with a text."""
    paths = sorted(glob.glob(f"{glob.escape(os.path.expanduser(begin))}*"))  # noqa: PTH111, PTH207 (as it was written)
    return [f"{path}/" if os.path.isdir(path) else path for path in paths][:200]  # noqa: PTH112
