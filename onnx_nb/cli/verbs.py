"""The table of verbs: what each is called with, and the Python that it stands for.

A verb is a `click.Command`, whose parameters the command line and the magics both read. Its function adds calls to a
`Script`; the last one is the result. No verb computes.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from onnx_nb.cli.script import Script, ScriptCall, Source


@dataclass(frozen=True)
class Verb:
    """One verb."""

    name: str
    build: Callable[..., Script]
    params: tuple[click.Parameter, ...]
    result: str = ""
    """The variable of its result; empty for a verb that is no magic, as it only writes a page."""

    @property
    def help(self) -> str:
        """Its docstring."""
        return inspect.cleandoc(self.build.__doc__ or "")


# --- types of parameters ---------------------------------------------------------------------------------------------


class ModelType(click.ParamType):  # type: ignore[type-arg]  # since click 8.4 only
    """A model: a path, or in a notebook, whose variables are the context's object, also a variable."""

    name = "model"

    def convert(self, value: Any, _param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a variable, or an attribute or element of one, as source; else the path."""
        variables = _variables(ctx)
        match = re.fullmatch(r"([^\W\d]\w*)(\.\w+|\[[^\[\]]+\])*", value)
        if not match or match[1] not in variables:
            near = [name for name, value_ in variables.items() if _is_model(value_) and name[0] != "_"]
            if match and match[0] == match[1] and near and not Path(value).exists():
                from onnx_nb.analysis.formatting import closest_text

                self.fail(f"there is no variable and no file {value!r}. {closest_text(value, near)}".rstrip())
            return value
        try:
            eval(value, {}, variables)  # noqa: S307 (a name that a person wrote into a cell)
        except (AttributeError, LookupError, NameError, SyntaxError, TypeError):
            return value  # model.onnx where model is a variable
        return Source(value)

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete variables and files."""
        variables = _variables(ctx).items()
        names = [
            name for name, value in variables if name.startswith(incomplete) and name[0] != "_" and _is_model(value)
        ]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def _variables(ctx: click.Context | None) -> Mapping[str, Any]:
    """Return the variables of the notebook; a shell has none."""
    return (ctx.obj or {}) if ctx else {}


def _is_model(value: Any) -> bool:
    return type(value).__name__ in ("Model", "ModelProto", "ONNXProgram")


class TensorType(click.ParamType):  # type: ignore[type-arg]  # since click 8.4 only
    """A tensor of the model that the line names, or with ``scopes`` one of its scopes."""

    name = "tensor"

    def __init__(self, *, scopes: bool = False) -> None:
        self.scopes = scopes
        self.name = "scope" if scopes else "tensor"

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete names of the model."""
        from onnx_nb.analysis.errors import OnnxNbError
        from onnx_nb.analysis.graph.graph import Graph
        from onnx_nb.analysis.model.model import load
        from onnx_nb.analysis.scopes.scopes import scopes

        # a line that ends in an option without its value leaves the arguments before it unread
        words = [ctx.params.get("model"), ctx.params.get("reference"), *ctx.args]
        source = next((MODEL.convert(word, None, ctx) for word in words if word), None)
        if source is None:
            return []
        try:
            model = load(eval(source, {}, _variables(ctx)) if isinstance(source, Source) else source)  # noqa: S307 (as above)
        except (OnnxNbError, TypeError):
            return []  # the line has no model yet; running it says why
        names: Iterable[str] = scopes(Graph.of(model)).scope_path if self.scopes else Graph.of(model).value_names
        return [CompletionItem(name) for name in names if name and name.startswith(incomplete)][:200]


class ShapeType(click.ParamType):  # type: ignore[type-arg]  # since click 8.4 only
    """``batch=1`` or ``x=1,3,224,224``."""

    name = "shape"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> tuple[str, Any]:
        """Return the name and the size or shape."""
        if isinstance(value, tuple):
            return value
        name, _, sizes = value.rpartition("=")
        try:
            shape = tuple(int(size) for size in re.split(r"[,x×]", sizes))
        except ValueError:
            shape = ()
        if not name or not shape:
            self.fail(f"{value!r} is no shape. Write NAME=SIZE or NAME=SIZE,SIZE,… such as batch=1 or x=1,3,224,224.")
        return name, shape[0] if len(shape) == 1 else shape


class ConditionType(click.ParamType):  # type: ignore[type-arg]
    """A condition of `Comparison.failed`, read before anything runs."""

    name = "condition"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> str:
        """Return the condition in its usual form."""
        from onnx_nb.analysis.compare.conditions import Condition

        return str(Condition.read(value))

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the metric."""
        from onnx_nb.analysis.compare.metrics import METRICS

        return [CompletionItem(name) for name in METRICS if name.startswith(incomplete)]


MODEL: Final = ModelType()
TENSOR: Final = TensorType()


def _argument(name: str, kind: Any = None, **more: Any) -> click.Argument:
    return click.Argument([name], type=kind or MODEL, **more)


def _option(*names: str, **more: Any) -> click.Option:
    return click.Option([*names], **more)


def _file(*names: str, text: str, **more: Any) -> click.Option:
    return click.Option([*names], type=click.Path(), metavar="FILE", help=text, **more)


_DATA_DIR = click.Option(["--data-dir"], type=click.Path(), help="Folder of the external data; by default the model's.")
_SHAPES = _option(
    "--shape",
    "shapes",
    type=ShapeType(),
    multiple=True,
    metavar="NAME=SIZE",
    help="Size of a dimension, or shape of an input.",
)
_FEEDS = _file("--feeds", text="Feeds: a .npz, .npy or .pb file, or a folder of them; random ones by default.")
_PAGE = _file("--page", text="Also write the result as a page, which needs no network.")
_TENSORS = _option(
    "--tensors",
    "--tensor",
    type=TENSOR,
    multiple=True,
    metavar="NAME",
    help="Only these tensors; * and ? stand for any.",
)


def _loaded(script: Script, model: str, data_dir: str | None, into: str = "model") -> str:
    """Return the model as an argument: a variable as it is, else a path, which only ``data_dir`` has to load."""
    if isinstance(model, Source) or not data_dir:
        return model
    return script.call("onnx_nb.load", model, data_dir=data_dir, into=into)


def _paged(script: Script, page: str | None, title: str, result: Source) -> Script:
    if page:
        script.call("onnx_nb.report", page, {title: result}, into="page")
    return script


# --- verbs -----------------------------------------------------------------------------------------------------------


def show(model: str, page: str | None = None, data_dir: str | None = None) -> Script:
    """Show a model as a page in the browser, or write the page.

    The page has the graph, which opens and closes by clicks, its search, costs and inspector. It needs no network.
    """
    script = Script()
    if not page:
        script.call("onnx_nb.show", _loaded(script, model, data_dir), into="page")
        return script
    graph = script.call("onnx_nb.ModelGraph", _loaded(script, model, data_dir), into="graph")
    script.call(f"{graph}.to_html", page, into="page")
    return script


def view(model: str, data_dir: str | None = None) -> Script:
    """Load a model and show its summary and graph."""
    script = Script()
    whole = script.call("onnx_nb.load", model, data_dir=data_dir, into="model")
    script.call("onnx_nb.ModelView", whole, into="view")
    return script


def summary(
    model: str, shapes: Sequence[tuple[str, Any]] = (), data_dir: str | None = None, page: str | None = None
) -> Script:
    """Summarize a model: inputs and outputs, operators, weights, costs. No weight is read."""
    script = Script()
    result = script.call("onnx_nb.summarize", _loaded(script, model, data_dir), shapes=dict(shapes), into="summary")
    return _paged(script, page, "Summary", result)


def extract(
    model: str,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    around: str | None = None,
    save: str | None = None,
    data_dir: str | None = None,
    infer_by_running: bool = False,
) -> Script:
    """Extract the part between tensors, or the part of a scope, as a model that runs."""
    script = Script()
    names = {"inputs": [*inputs], "outputs": [*outputs]}
    ports: dict[str, Any] = {name: values or None for name, values in names.items()}
    running = infer_by_running or None
    whole = _loaded(script, model, data_dir)
    part = script.call("onnx_nb.extract", whole, **ports, around=around, infer_by_running=running, into="submodel")
    if save:
        script.call(f"{part}.save", save, into="file")
    return script


def reduce(
    model: str, *, check: str, feeds: str | None = None, save: str | None = None, data_dir: str | None = None
) -> Script:
    """Find the smallest part of a model on which a command still fails.

    The command is run on smaller and smaller parts, with {model} as the path of a .onnx file and {feeds} as that of a
    .npz file with its inputs. It exits with 0 where all is right and with 125 where it cannot tell; anything else, also
    a crash, is the failure. The folder has the smallest part, its inputs, and a script that shows the failure.
    """
    script = Script()
    result = script.call("onnx_nb.reduce", _loaded(script, model, data_dir), check, feeds=feeds, into="reduction")
    if save:
        script.call(f"{result}.save", save, into="file")
    return script


def simplify(
    model: str,
    *,
    save: str | None = None,
    shapes: Sequence[tuple[str, Any]] = (),
    skip: Sequence[str] = (),
    target: str | None = None,
    check_n: int | None = None,
    feeds: str | None = None,
    data_dir: str | None = None,
    page: str | None = None,
    fold_quantization: bool = False,
    drop_inputs: bool = False,
) -> Script:
    """Simplify a model, verify the result, and explain each change.

    The result is written only if it is verified, or unchecked with --check-n 0.
    """
    script = Script()
    result = script.call(
        "onnx_nb.simplify",
        _loaded(script, model, data_dir),
        shapes=dict(shapes),
        skip=[*skip] or None,
        target=target,
        check_n=check_n,
        feeds=feeds,
        fold_quantization=fold_quantization or None,
        keep_inputs=False if drop_inputs else None,
        strict=True if save and check_n != 0 else None,
        into="s",
    )
    if save:
        script.call(f"{result}.model.save", save, into="file")
    return _paged(script, page, "Simplification", result)


def diff(reference: str, candidate: str, page: str | None = None, *, no_weights: bool = False) -> Script:
    """List what differs between two models: nodes, attributes, wires, weights, types."""
    script = Script()
    result = script.call("onnx_nb.diff", reference, candidate, weights=False if no_weights else None, into="d")
    return _paged(script, page, "Diff", result)


def compare(
    reference: str,
    candidate: str,
    *,
    feeds: str | None = None,
    tensors: Sequence[str] = (),
    rtol: float | None = None,
    atol: float | None = None,
    fail: Sequence[str] = (),
    page: str | None = None,
    save: str | None = None,
    outputs: bool = False,
) -> Script:
    """Run two models on the same feeds and compare them, tensor by tensor.

    A condition of --fail is a metric, a sign and a number, such as "sqnr < 30 dB", "cosine < 0.99" or "outside > 1 %".
    """
    script = Script()
    result = script.call(
        "onnx_nb.compare", reference, candidate, feeds=feeds, tensors=[*tensors] or None, rtol=rtol, atol=atol, into="c"
    )
    if save:
        script.call(f"{result}.save", save, into="file")
    if fail:
        script.call(f"{result}.failed", *fail, outputs=outputs or None, into="failed")
    return _paged(script, page, "Comparison", result)


def capture(
    model: str,
    *,
    feeds: str | None = None,
    tensors: Sequence[str] = (),
    data_dir: str | None = None,
    page: str | None = None,
) -> Script:
    """Run a model and take statistics of every tensor."""
    script = Script()
    whole = _loaded(script, model, data_dir)
    result = script.call("onnx_nb.capture", whole, feeds=feeds, tensors=[*tensors] or None, into="capture")
    return _paged(script, page, "Capture", result)


def profile(
    model: str,
    *,
    feeds: str | None = None,
    runs: int | None = None,
    warmup: int | None = None,
    providers: Sequence[str] = (),
    optimization: str | None = None,
    threads: int | None = None,
    read: str | None = None,
    data_dir: str | None = None,
    page: str | None = None,
) -> Script:
    """Run a model as in production, and find out which nodes take the time.

    With --read it is not run: the file is what onnxruntime's own profiling wrote.
    """
    script = Script()
    whole = _loaded(script, model, data_dir)
    if read:
        result = script.call("onnx_nb.types.Profile.read", read, whole, warmup=warmup, into="p")
    else:
        options = {"optimization": optimization, "threads": threads, "providers": [*providers] or None}
        result = script.call("onnx_nb.profile", whole, feeds=feeds, runs=runs, warmup=warmup, **options, into="p")
    return _paged(script, page, "Profile", result)


def audit(model: str, data_dir: str | None = None, page: str | None = None, *, checksums: bool = False) -> Script:
    """Check the external data of a model: every tensor's bytes against the files that hold them."""
    script = Script()
    whole = _loaded(script, model, data_dir)
    result = script.call("onnx_nb.external_data.audit", whole, checksums=checksums or None, into="audit")
    return _paged(script, page, "External data", result)


def report(page: str, parts: Sequence[str], title: str = "", *, diff: bool = False, compare: bool = False) -> Script:
    """Write one page with a tab for each part: a model, or a text in Markdown (.md).

    With --diff or --compare the first two models are also compared.
    """
    script = Script()
    paths = [(_stem(part, parts), ScriptCall("pathlib.Path", (str(part),), {}, "")) for part in parts]
    content: dict[str, Any] = {
        name: ScriptCall("pathlib.Path.read_text", (path,), {}, "") if str(path.args[0]).endswith(".md") else path
        for name, path in paths
    }
    models = [part for part in parts if not part.endswith(".md")]
    if (diff or compare) and len(models) < 2:
        raise click.UsageError("--diff and --compare need two models.")
    if diff:
        content = {"Diff": script.call("onnx_nb.diff", *models[:2], into="d"), **content}
    if compare:
        content = {"Errors": script.call("onnx_nb.compare", *models[:2], into="c"), **content}
    script.call("onnx_nb.report", page, content, title=title, into="page")
    return script


def _stem(part: str, parts: Sequence[str]) -> str:
    """Return the title of a part: the name of its file, with its folder where two have the same."""
    names = [Path(path).stem for path in parts]
    return Path(part).stem if names.count(Path(part).stem) == 1 else str(Path(part).with_suffix(""))


def lab(model: str, options: Sequence[str] = ()) -> list[str]:
    """Return the words that open a model in JupyterLab: the graph in a tab, with a kernel."""
    from onnx_nb.analysis.errors import ModelFileError, OnnxNbError

    path = Path(model).expanduser()
    if not path.is_file():
        raise ModelFileError(f"there is no file {model!r}.", advice="Give the path of a .onnx file.")
    if importlib.util.find_spec("jupyterlab") is None:
        raise OnnxNbError("JupyterLab is not installed here.", advice="Run pip install jupyterlab.")
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 (a link is opened where it is)
    # not the path itself: with --no-browser, JupyterLab would print an address without the model
    place = [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{quote(name)}"]
    return [sys.executable, "-m", "jupyterlab", *place, *options]


_TO_MODEL = _file("--save", "-o", text="Write the model to this file.")
VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb
    for verb in (
        Verb(
            "show",
            show,
            (
                _argument("model"),
                _file("--page", "-o", text="Write the page to this file, and open nothing."),
                _DATA_DIR,
            ),
        ),
        Verb("summary", summary, (_argument("model"), _SHAPES, _DATA_DIR, _PAGE), "summary"),
        Verb(
            "extract",
            extract,
            (
                _argument("model"),
                _option(
                    "--inputs",
                    "--input",
                    "-i",
                    type=TENSOR,
                    multiple=True,
                    metavar="NAME",
                    help="Tensor where the part begins.",
                ),
                _option(
                    "--outputs",
                    "--output",
                    "-t",
                    type=TENSOR,
                    multiple=True,
                    metavar="NAME",
                    help="Tensor where the part ends.",
                ),
                _option("--around", type=TensorType(scopes=True), help="Scope to extract, such as encoder.layer.1."),
                _option("--infer-by-running", is_flag=True, help="Find types that nobody declares by a run."),
                _TO_MODEL,
                _DATA_DIR,
            ),
            "submodel",
        ),
        Verb(
            "reduce",
            reduce,
            (
                _argument("model"),
                _option("--check", required=True, metavar="COMMAND", help='Such as "python check.py {model} {feeds}".'),
                _FEEDS,
                _file("--save", "-o", text="Write model.onnx, inputs.npz and run.py to this folder."),
                _DATA_DIR,
            ),
        ),
        Verb(
            "simplify",
            simplify,
            (
                _argument("model"),
                _TO_MODEL,
                _SHAPES,
                _option("--skip", multiple=True, metavar="RULE", help="Step or rule to skip; see onnx_nb.rules()."),
                _option("--target", type=click.Choice(("onnx", "onnxruntime")), help="Operators that may be produced."),
                _option(
                    "--check-n", type=click.IntRange(min=0), help="Random feeds of the verification; 3 by default."
                ),
                _FEEDS,
                _option("--fold-quantization", is_flag=True, help="Also fold QuantizeLinear and DequantizeLinear."),
                _option("--drop-inputs", is_flag=True, help="Remove inputs that become unused."),
                _DATA_DIR,
                _PAGE,
            ),
            "s",
        ),
        Verb(
            "diff",
            diff,
            (
                _argument("reference"),
                _argument("candidate"),
                _option("--no-weights", is_flag=True, help="Compare only types and shapes of weights, and read none."),
                _PAGE,
            ),
            "d",
        ),
        Verb(
            "compare",
            compare,
            (
                _argument("reference"),
                _argument("candidate"),
                _FEEDS,
                _TENSORS,
                _option("--rtol", type=click.FloatRange(min=0), help="Relative tolerance."),
                _option("--atol", type=click.FloatRange(min=0), help="Absolute tolerance."),
                _option(
                    "--fail",
                    type=ConditionType(),
                    multiple=True,
                    metavar="CONDITION",
                    help='Points that are too bad, such as "sqnr < 30 dB".',
                ),
                _option("--outputs", is_flag=True, help="Apply --fail only to outputs of the model."),
                _file("--save", "-o", text="Write the comparison to a file that Comparison.load reads."),
                _PAGE,
            ),
            "c",
        ),
        Verb("capture", capture, (_argument("model"), _FEEDS, _TENSORS, _DATA_DIR, _PAGE), "capture"),
        Verb(
            "profile",
            profile,
            (
                _argument("model"),
                _FEEDS,
                _option("--runs", type=click.IntRange(min=1), help="Runs that are measured; 20 by default."),
                _option("--warmup", type=click.IntRange(min=0), help="Runs before them; 2 by default."),
                _option(
                    "--provider", "providers", multiple=True, metavar="NAME", help="Execution provider, best first."
                ),
                _option(
                    "--optimization",
                    type=click.Choice(("all", "layout", "extended", "basic", "off")),
                    help="Level of graph optimization; all by default, as in production.",
                ),
                _option("--threads", type=click.IntRange(min=1), help="Threads of an operator."),
                _file("--read", text="Read this profile of onnxruntime instead of running the model."),
                _DATA_DIR,
                _PAGE,
            ),
            "p",
        ),
        Verb(
            "audit",
            audit,
            (
                _argument("model"),
                _option("--checksums", is_flag=True, help="Also compute and compare checksums, which reads all files."),
                _DATA_DIR,
                _PAGE,
            ),
            "audit",
        ),
        Verb(
            "report",
            report,
            (
                _argument("page", click.Path()),
                _argument("parts", nargs=-1, required=True),
                _option("--title", default="", help="Title of the page."),
                _option("--diff", is_flag=True, help="Begin with the diff of the first two models."),
                _option("--compare", is_flag=True, help="Begin with their errors on random feeds."),
            ),
        ),
    )
}
"""Verbs by name. `lab` is none: it starts a program."""

VIEW: Final = Verb("view", view, (_argument("model"), _DATA_DIR), "model")
"""The verb of ``%onnx``, which returns the view and names the model."""
