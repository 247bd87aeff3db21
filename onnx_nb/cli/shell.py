"""The command line ``onnx-nb``: parameters, output, errors and exit codes around the verbs."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

import onnx_nb
from onnx_nb.analysis import progress
from onnx_nb.analysis.errors import ModelFileError, OnnxNbError, SimplificationError
from onnx_nb.analysis.formatting import closest_text, printable
from onnx_nb.cli.verbs import MODEL, RUN, VERBS, Verb, fail_option

if TYPE_CHECKING:
    from onnx_nb.cli.document import Block

CHECK, ERROR, INTERNAL, INTERRUPTION = 1, 2, 3, 130
"""Exit codes: a check failed; a wrong argument or an unusable file; a fault of onnx_nb; Ctrl-C."""

_COMMON: Final = (
    click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object, as docs/json.md describes it."),
    click.Option(
        ["--github"], is_flag=True, help="Add Markdown, with a picture of a diff, to the job summary of GitHub Actions."
    ),
    click.Option(["--code"], is_flag=True, help="Print the Python that does the same, and run nothing."),
    # `main` reads it from the line: an error may come before it is parsed
    click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."),
)
_EXIT_CODE: Final = click.Option(["--exit-code"], is_flag=True, help="Exit with 1 if there are differences.")
_WITH_SUMMARY: Final = ("summary", "diff", "compare", "simplify")


class _Verbs(click.Group):
    """The verbs, with the nearest name for an unknown one."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            near = closest_text(args[0], self.commands) or f"There are: {', '.join(self.commands)}."
            hint = " To show a model: onnx-nb show FILE." if args[0].endswith(".onnx") else ""
            raise click.UsageError(f"there is no command {args[0]!r}. {near}{hint}", ctx)
        return super().resolve_command(ctx, args)


def _command_of(verb: Verb) -> click.Command:
    common = [option for option in _COMMON if option.name != "github" or verb.name in _WITH_SUMMARY]
    params = [*verb.params, *([_EXIT_CODE] if verb.name == "diff" else []), *common]
    return _command(verb.name, functools.partial(_run, verb), verb.help, *params)


def _command(name: str, callback: Callable[..., int], text: str, *params: click.Parameter) -> click.Command:
    """Return a command; the list of commands has the beginning of its help."""
    return click.Command(name, callback=callback, params=[*params], help=text, short_help=re.split("[.:,]", text)[0])


def _run(verb: Verb, *, as_json: bool, code: bool, github: bool = False, exit_code: bool = False, **values: Any) -> int:
    from onnx_nb.cli.document import BLOCKS

    script = verb.build(**values)
    if code:
        click.echo(script.code())
        return 0
    if sys.stderr.isatty():
        progress.bars.append(_progress)
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("default")
        variables = script.run()
    for warning in records:
        if issubclass(warning.category, UserWarning):
            click.echo(_line(f"warning: {warning.message}"), err=True)
    if as_json:
        from onnx_nb.cli.record import record

        _print_json(record(verb.name, variables))
    else:
        _print(BLOCKS[verb.name](variables))
    if github:
        _summarize(BLOCKS[verb.name](variables))
    if verb.name == "reduce" and variables["reduction"].interrupted:
        return INTERRUPTION
    is_wrong = verb.name == "simplify" and variables["s"].verdict == "wrong"
    has_errors = verb.name == "audit" and not variables["audit"].ok
    return CHECK if is_wrong or has_errors or variables.get("failed") or (exit_code and variables["d"]) else 0


def _print_json(record: dict[str, Any]) -> None:
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1)
    # JSON escapes few of the characters that a terminal obeys
    letters = (letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)
    click.echo("".join(letters))


def _print(blocks: Sequence[Block]) -> None:
    from onnx_nb.cli.document import for_terminal

    click.echo(for_terminal(blocks, width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None))


def _summarize(blocks: Sequence[Block]) -> None:
    """Add a result to the job summary; print it where there is none."""
    from onnx_nb.cli.document import for_markdown

    text = for_markdown(blocks)
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        click.echo(text)
        return
    try:
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 (appending)
            file.write(f"{text}\n")
    except OSError as error:
        message = f"the job summary {path!r} cannot be written: {error.strerror}."
        raise OnnxNbError(message, advice="GITHUB_STEP_SUMMARY names its file.") from error


def _progress() -> contextlib.AbstractContextManager[progress.Progress]:

    def draw(fraction: float, what: str) -> None:
        bar = "━" * round(fraction * 20)
        click.echo(f"\r\x1b[2K{bar:╌<20} {fraction:4.0%}  {_line(what)[:50]}", err=True, nl=False)

    return progress.shown_progress(draw, lambda: click.echo("\r\x1b[2K", err=True, nl=False))


def _line(text: str) -> str:
    """Return a message as one line of a terminal, whatever the model is called."""
    return printable(" ".join(text.split()))


def _lab(model: str, options: Sequence[str], *, code: bool) -> int:
    path = Path(model).expanduser()
    if not path.is_file():
        raise ModelFileError(f"there is no file {model!r}.", advice="Give the path of a .onnx file.")
    if importlib.util.find_spec("jupyterlab") is None:
        raise OnnxNbError("JupyterLab is not installed here.", advice="Run pip install jupyterlab.")
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 (a link is opened where it is)
    # not the path itself: with --no-browser, JupyterLab would print an address without the model
    place = [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{quote(name)}"]
    words = [sys.executable, "-m", "jupyterlab", *place, *options]
    if code:
        click.echo(shlex.join(words))
        return 0
    os.execv(words[0], words)  # noqa: S606 (JupyterLab takes the place of this process, and its signals)
    return 0


def _changes(base: str, *, exit_code: bool, as_json: bool, github: bool, **options: Any) -> int:
    from onnx_nb.cli.changes import blocks_of, changes, entry_of

    models, ok = [], True
    for change in changes(base, **options):
        ok = ok and change.ok
        # at once: the former version is gone with the next one
        models.append(entry_of(change) if as_json else {})
        if not as_json:
            _print(blocks_of(change))
        if github:
            _summarize(blocks_of(change))
    if as_json:
        from onnx_nb.cli.record import head

        _print_json({**head("changes"), "base": base, "models": models})
    elif not models:
        click.echo(f"No model differs from {base}.")
    return CHECK if (models and exit_code) or not ok else 0


_HELP: Final = """See, extract, simplify and compare ONNX models. Each command is a function of onnx_nb.

\b
onnx-nb show model.onnx                              the graph in the browser
onnx-nb diff old.onnx new.onnx                       what changed
onnx-nb compare a.onnx b.onnx --fail "sqnr < 30 dB"  exits with 1 if a tensor is worse
"""

_CHANGES: Final = _command(
    "changes",
    _changes,
    "Show the models that differ from a revision of git, each with its diff.",
    click.Argument(["base"], default="HEAD"),
    click.Argument(["paths"], nargs=-1, type=click.Path()),
    click.Option(["--pages"], type=click.Path(), metavar="FOLDER", help="Write a page for each model there."),
    fail_option("Also run both versions: points that are too bad"),
    *RUN[:2],
    click.Option(["--audit"], is_flag=True, help="Also check external data."),
    _EXIT_CODE,
    *(option for option in _COMMON if option.name != "code"),
)
_LAB: Final = _command(
    "lab",
    _lab,
    """Open a model in JupyterLab: the graph in a tab, with a kernel.

    Options after -- are JupyterLab's, such as -- --no-browser --port 8899.""",
    click.Argument(["model"], type=MODEL),
    click.Argument(["options"], nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS]"),
    *_COMMON[2:],
)
program: Final = _Verbs(
    "onnx-nb",
    [*map(_command_of, VERBS.values()), _CHANGES, _LAB],
    help=_HELP,
    no_args_is_help=True,
    params=[click.Option(["--debug"], is_flag=True, hidden=True, expose_value=False)],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(onnx_nb.__version__, message="onnx-nb %(version)s")(program)


def main(words: Sequence[str] | None = None, errors: IO[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    arguments = [*(sys.argv[1:] if words is None else words)]
    color = False if os.environ.get("NO_COLOR") else None

    def fail(text: str, status: int) -> int:
        click.echo(f"{click.style('onnx-nb:', fg='red', bold=True)} {_line(text)}", file=errors, err=True, color=color)
        return status

    try:
        status_: Any = program.main(arguments, "onnx-nb", standalone_mode=False, color=color)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ERROR
    except click.ClickException as error:
        return fail(error.format_message(), ERROR)
    except (KeyboardInterrupt, click.Abort):
        return fail("interrupted.", INTERRUPTION)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (the interpreter flushes it at its end)
        return 0
    except Exception as error:
        if "--debug" in arguments:
            raise
        if isinstance(error, OnnxNbError):
            return fail(str(error), CHECK if isinstance(error, SimplificationError) and error.wrong else ERROR)
        return fail(f"{type(error).__name__}: {error} --debug shows where.", INTERNAL)
    return int(status_ or 0)
