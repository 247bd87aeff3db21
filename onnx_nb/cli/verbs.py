"""The table of verbs: what each is called with, and the Python that it stands for.

The command line and the magics both read its parameters. Its function adds calls to a `Script`. No verb computes.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text
from onnx_nb.cli.script import Script, Source


@dataclass(frozen=True)
class Verb:
    """One verb."""

    write: Callable[..., Source]
    """Adds its calls to a script; returns the variable of the result."""
    params: tuple[click.Parameter, ...]
    result: str = ""
    """The variable of its result; empty for a verb that only writes a page."""
    title: str = ""
    """The tab of its result in a page."""

    @property
    def name(self) -> str:
        """The word of the command line."""
        return self.write.__name__

    @property
    def help(self) -> str:
        """Its docstring."""
        return inspect.cleandoc(self.write.__doc__ or "")

    def build(self, *, into: str | None = None, page: str | None = None, **values: Any) -> Script:
        """Return the calls for the values of its parameters, with the result in another variable if one is named."""
        script = Script({self.result: into} if into else {})
        options = {
            name: [*value] if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and value is not False and value not in ((), {}, "")
        }
        # a path has to be loaded only for data elsewhere, and a variable only for a library
        files = {name: options.pop(name) for name in ("data_dir", "custom_ops") if name in options}
        for name in ("model", "reference", "candidate") if files else ():
            if name in options and ("custom_ops" in files or not isinstance(options[name], Source)):
                options[name] = script.call("onnx_nb.load", options[name], **files, into=name)
        result = self.write(script, **options)
        if page:
            script.call("onnx_nb.report", page, {self.title: result}, into="page")
        return script


VERBS: Final[dict[str, Verb]] = {}


def _verb(*params: click.Parameter, result: str = "", title: str = "") -> Callable[[Callable[..., Source]], Verb]:
    """Register a function as a verb: its docstring is the help, and it gets the options that a line has."""

    def register(write: Callable[..., Source]) -> Verb:
        return VERBS.setdefault(write.__name__, Verb(write, params, result, title))

    return register


class _ModelType(click.ParamType):  # type: ignore[type-arg]  # since click 8.4 only
    """A model: a path, or in a notebook, whose variables are the context's object, also a variable."""

    name = "model"

    def convert(self, value: Any, _param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a variable, or an attribute or element of one, as source; else the path."""
        variables = _variables(ctx)
        match = re.fullmatch(r"([^\W\d]\w*)(\.\w+|\[[^\[\]]+\])*", value)
        if not match or match[1] not in variables:
            near = _models(ctx)
            if match and match[0] == match[1] and near and not Path(value).exists():
                self.fail(f"there is no variable and no file {value!r}. {closest_text(value, near)}".rstrip())
            return value
        try:
            eval(value, {}, variables)  # noqa: S307 (a name that a person wrote into a cell)
        except (AttributeError, LookupError, NameError, SyntaxError, TypeError):
            return value  # model.onnx where model is a variable
        return Source(value)

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [name for name in _models(ctx) if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def _variables(ctx: click.Context | None) -> Mapping[str, Any]:
    """Return the variables of the notebook; a shell has none."""
    return (ctx.obj or {}) if ctx else {}


def _models(ctx: click.Context | None) -> list[str]:
    kinds = ("Model", "ModelProto", "ONNXProgram")
    return [name for name, value in _variables(ctx).items() if type(value).__name__ in kinds and name[0] != "_"]


class _TensorType(click.ParamType):  # type: ignore[type-arg]  # since click 8.4 only
    """A tensor of the model that the line names, or with ``scopes`` one of its scopes."""

    def __init__(self, *, scopes: bool = False) -> None:
        self.scopes = scopes
        self.name = "scope" if scopes else "tensor"

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
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


class _ShapeType(click.ParamType):  # type: ignore[type-arg]  # since click 8.4 only
    """``batch=1`` or ``x=1,3,224,224``."""

    name = "shape"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        name, _, sizes = value.rpartition("=")
        try:
            shape = tuple(json.loads(size) for size in re.split(r"[,x×]", sizes))
        except ValueError:
            shape = ()
        if not name or not shape:
            form = "Write NAME=SIZE or NAME=SIZE,SIZE,… such as batch=1 or x=1,3,224,224."
            self.fail(f"{value!r} has no numbers. {form}")
        return name, shape[0] if len(shape) == 1 else shape


class _ConditionType(click.ParamType):  # type: ignore[type-arg]
    """A condition of `Comparison.failed`, read before anything runs."""

    name = "condition"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> str:
        from onnx_nb.analysis.compare.metrics import Condition

        return str(Condition.read(value))

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from onnx_nb.analysis.compare.metrics import METRICS

        return [CompletionItem(name) for name in METRICS if name.startswith(incomplete)]


MODEL: Final = _ModelType()
TENSOR: Final = _TensorType()


def _option(*names: str, text: str, **more: Any) -> click.Option:
    return click.Option([*names], help=text, **more)


def _several(*names: str, text: str, metavar: str = "NAME", **more: Any) -> click.Option:
    return _option(*names, text=text, multiple=True, metavar=metavar, **more)


def _numbers(*names: str, **more: Any) -> click.Option:
    return _several(*names, type=_ShapeType(), callback=lambda _ctx, _param, pairs: dict(pairs), **more)


def _flag(name: str, text: str) -> click.Option:
    return _option(name, text=text, is_flag=True)


def _file(*names: str, text: str) -> click.Option:
    return _option(*names, text=text, type=click.Path(), metavar="FILE")


def _feeds(_ctx: click.Context, _param: click.Parameter, words: Sequence[str]) -> Any:
    """Return files by input, or files with all inputs."""
    pairs = dict(word.split("=", 1) for word in words if "=" in word and not os.path.lexists(word))
    return pairs if words and len(pairs) == len(words) else words[0] if len(words) == 1 else words


_MODEL: Final = click.Argument(["model"], type=MODEL)
_PAIR: Final = [click.Argument([name], type=MODEL) for name in ("reference", "candidate")]
_DATA_DIR: Final = _option("--data-dir", text="Folder of the external data; by default the model's.", type=click.Path())
_SHAPES: Final = _numbers("--shape", "shapes", text="Size of a dimension, or shape of an input.", metavar="NAME=SIZE")
_CONSTANTS: Final = _numbers("--constant", "constants", text="Value of an input.", metavar="NAME=NUMBER")
RUN: Final = (
    _several(
        *("--feeds", "--feed"),
        text="A .npz file or a folder with all inputs, or a file of one input, also a picture, .wav or .txt.",
        type=click.Path(),
        metavar="[INPUT=]FILE",
        callback=_feeds,
    ),
    _SHAPES,
    _file("--custom-ops", text="Library of operators for the model. Its code runs: trust it."),
)
_TOLERANCES: Final = [
    _option(f"--{word[0].lower()}tol", text=f"{word} tolerance.", type=click.FloatRange(min=0))
    for word in ("Relative", "Absolute")
]
_PAGE: Final = _file("--page", text="Also write the result as a page, which needs no network.")
_TENSORS: Final = _several("--tensors", "--tensor", text="Only these tensors; * and ? stand for any.", type=TENSOR)
_TO_MODEL: Final = _file("--save", "-o", text="Write the model to this file.")


def fail_option(text: str) -> click.Option:
    """Return the option of conditions on points."""
    return _several("--fail", text=f'{text}, such as "sqnr < 30 dB".', type=_ConditionType(), metavar="CONDITION")


@_verb(_MODEL, _file("--page", "-o", "save", text="Write the page to this file, and open nothing."), _DATA_DIR)
def show(script: Script, model: str, save: str | None = None) -> Source:
    """Show a model as a page in the browser, or write the page.

    The page has the graph, which opens and closes by clicks, its search, costs and inspector. It needs no network.
    """
    if not save:
        return script.call("onnx_nb.show", model, into="page")
    graph = script.call("onnx_nb.ModelGraph", model, into="graph")
    return script.call(f"{graph}.to_html", save, into="page")


@_verb(_MODEL, _SHAPES, _DATA_DIR, _PAGE, result="summary", title="Summary")
def summary(script: Script, model: str, **options: Any) -> Source:
    """Summarize a model: inputs and outputs, operators, weights, costs. No weight is read."""
    return script.call("onnx_nb.summarize", model, **options, into="summary")


@_verb(
    _MODEL,
    _several("--inputs", "--input", "-i", text="Tensor where the part begins.", type=TENSOR),
    _several("--outputs", "--output", "-t", text="Tensor where the part ends.", type=TENSOR),
    _option("--around", text="Scope to extract, such as encoder.layer.1.", type=_TensorType(scopes=True)),
    _flag("--infer-by-running", "Find types that nobody declares by a run."),
    _TO_MODEL,
    _DATA_DIR,
    result="submodel",
)
def extract(script: Script, model: str, save: str | None = None, **options: Any) -> Source:
    """Extract the part between tensors, or the part of a scope, as a model that runs."""
    return script.save(script.call("onnx_nb.extract", model, **options, into="submodel"), save)


@_verb(
    _MODEL,
    _option("--check", text='Such as "python check.py {model} {feeds}".', required=True, metavar="COMMAND"),
    *RUN,
    _file("--save", "-o", text="Write model.onnx, inputs.npz and run.py to this folder."),
    _DATA_DIR,
    result="reduction",
)
def reduce(script: Script, model: str, check: str, save: str | None = None, **options: Any) -> Source:
    """Find the smallest part of a model on which a command still fails.

    The command is run on smaller and smaller parts, with {model} as the path of a .onnx file and {feeds} as that of a
    .npz file with its inputs. It exits with 0 where all is right and with 125 where it cannot tell; anything else, also
    a crash, is the failure. The folder has the smallest part, its inputs, and a script that shows the failure.
    """
    return script.save(script.call("onnx_nb.reduce", model, check, **options, into="reduction"), save)


@_verb(
    _MODEL,
    _TO_MODEL,
    _SHAPES,
    _CONSTANTS,
    _several("--skip", text="Step or rule to skip; see onnx_nb.rules().", metavar="RULE"),
    _option("--check-n", text="Random feeds of the verification; 3 by default.", type=click.IntRange(min=0)),
    RUN[0],
    RUN[2],
    *_TOLERANCES,
    _flag("--fold-quantization", "Also fold QuantizeLinear and DequantizeLinear."),
    _flag("--drop-inputs", "Remove inputs that become unused."),
    _DATA_DIR,
    _PAGE,
    result="s",
    title="Simplification",
)
def simplify(script: Script, model: str, save: str | None = None, **options: Any) -> Source:
    """Simplify a model, verify the result, and explain each change.

    The result is written only if it is verified, or unchecked with --check-n 0.
    """
    options |= {"keep_inputs": False} if options.pop("drop_inputs", False) else {}
    options |= {"strict": True} if save and options.get("check_n") != 0 else {}
    result = script.call("onnx_nb.simplify", model, **options, into="s")
    script.save(Source(f"{result}.model"), save, original=model)
    return result


def _pairs(name: str, **more: Any) -> click.Option:
    return _several(name, callback=lambda _ctx, _param, words: dict(word.split("=", 1) for word in words), **more)


@_verb(
    _MODEL,
    _TO_MODEL,
    _option("--opset", "convert", text="Convert to this opset.", type=int),
    _numbers("--fix", text="Fix a dimension, or the shape of an input.", metavar="NAME=SIZE"),
    _option("--free", text="Make the batch dynamic, under this name.", metavar="NAME"),
    _several("--remove", text="Remove a node or scope.", metavar="NODE"),
    _several("--output", text="Make a tensor an output."),
    _several("--drop", text="Drop an output, with what only it needs, or an input that nothing reads."),
    _pairs("--dtype", text="Element type of an input or output.", metavar="NAME=TYPE"),
    _option("--float16", "to_float16", text="Convert to float16, except what would overflow.", is_flag=True),
    _pairs("--rename", text="Rename a tensor, node or dimension.", metavar="OLD=NEW"),
    _flag("--unchecked", "Write the result without running it against the original."),
    _DATA_DIR,
    _PAGE,
    result="e",
    title="Edits",
)
def edit(script: Script, model: str, save: str | None = None, *, unchecked: bool = False, **steps: Any) -> Source:
    """Edit a model: fix or free its batch, remove nodes, rename, convert. Each step is proved on random feeds.

    The edits are made in the order of these options. The result is written only if what should compute the same does.
    """
    result = script.call("onnx_nb.edit", model, into="e")
    for name in ("convert", "fix", "free", "remove", "output", "drop", "dtype", "to_float16", "rename"):
        if argument := steps.get(name):
            arguments = argument if isinstance(argument, list) else [] if argument is True else [argument]
            script.call(f"{result}.{name}", *arguments, into=result)
    if not unchecked:
        script.call(f"{result}.verify", into=result)
    return script.save(result, save, original=model, **({"check": False} if unchecked else {}))


@_verb(
    *_PAIR,
    _flag("--no-weights", "Compare only types and shapes of weights, and read none."),
    _PAGE,
    result="d",
    title="Diff",
)
def diff(script: Script, reference: str, candidate: str, *, no_weights: bool = False) -> Source:
    """List what differs between two models: nodes, attributes, wires, weights, types."""
    return script.call("onnx_nb.diff", reference, candidate, **({"weights": False} if no_weights else {}), into="d")


@_verb(
    *_PAIR,
    *RUN,
    _TENSORS,
    _CONSTANTS,
    _flag("--no-regions", "Leave out the errors that regions add by themselves: faster."),
    *_TOLERANCES,
    fail_option("Points that are too bad"),
    _flag("--outputs", "Apply --fail only to outputs of the model."),
    _file("--save", "-o", text="Write the comparison to a file that Comparison.load reads."),
    _PAGE,
    result="c",
    title="Comparison",
)
def compare(script: Script, reference: str, candidate: str, save: str | None = None, **options: Any) -> Source:
    """Run two models on the same feeds and compare them, tensor by tensor.

    A condition of --fail is a metric, a sign and a number, such as "sqnr < 30 dB", "cosine < 0.99" or "outside > 1 %".
    """
    fail, outputs = options.pop("fail", ()), options.pop("outputs", False)
    options |= {"isolated": False} if options.pop("no_regions", False) else {}
    result = script.save(script.call("onnx_nb.compare", reference, candidate, **options, into="c"), save)
    if fail:
        script.call(f"{result}.failed", *fail, **({"outputs": True} if outputs else {}), into="failed")
    return result


@_verb(_MODEL, *RUN, _TENSORS, _DATA_DIR, _PAGE, result="capture", title="Capture")
def capture(script: Script, model: str, **options: Any) -> Source:
    """Run a model and take statistics of every tensor."""
    return script.call("onnx_nb.capture", model, **options, into="capture")


@_verb(
    _MODEL,
    *RUN,
    _option("--runs", text="Runs that are measured; 20 by default.", type=click.IntRange(min=1)),
    _option("--warmup", text="Runs before them; 2 by default.", type=click.IntRange(min=0)),
    _several("--provider", "providers", text="Execution provider, best first."),
    _option(
        "--optimization",
        text="Level of graph optimization; all by default, as in production.",
        type=click.Choice(("all", "layout", "extended", "basic", "off")),
    ),
    _option("--threads", text="Threads of an operator.", type=click.IntRange(min=1)),
    _file("--read", text="Read this profile of onnxruntime instead of running the model."),
    _DATA_DIR,
    _PAGE,
    result="p",
    title="Profile",
)
def profile(script: Script, model: str, read: str | None = None, **options: Any) -> Source:
    """Run a model as in production, and find out which nodes take the time.

    With --read it is not run: the file is what onnxruntime's own profiling wrote.
    """
    if read:
        warmup = {"warmup": options["warmup"]} if "warmup" in options else {}
        return script.call("onnx_nb.types.Profile.read", read, model, **warmup, into="p")
    return script.call("onnx_nb.profile", model, **options, into="p")


@_verb(
    _MODEL,
    _flag("--checksums", "Also compute and compare checksums, which reads all files."),
    _DATA_DIR,
    _PAGE,
    result="audit",
    title="External data",
)
def audit(script: Script, model: str, **options: Any) -> Source:
    """Check the external data of a model: every tensor's bytes against the files that hold them."""
    return script.call("onnx_nb.external_data.audit", model, **options, into="audit")


@_verb(
    click.Argument(["file"], type=click.Path(), metavar="PAGE"),
    click.Argument(["parts"], type=MODEL, nargs=-1, required=True),
    _option("--title", text="Title of the page."),
    _flag("--diff", "Begin with the diff of the first two models."),
    _flag("--compare", "Begin with their errors on the same feeds."),
    *RUN[:2],
)
def report(
    script: Script, file: str, parts: Sequence[str], *, diff: bool = False, compare: bool = False, **options: Any
) -> Source:
    """Write one page with a tab for each part: a model, or a text in Markdown (.md).

    With --diff or --compare the first two models are also compared.
    """
    stems = [Path(part).stem for part in parts]
    content: dict[str, Any] = {}
    for part, stem in zip(parts, stems, strict=True):
        # the title of a part has its folder where two have the same name
        title = stem if stems.count(stem) == 1 else str(Path(part).with_suffix(""))
        content[title] = Source(f"pathlib.Path({part!r}){'.read_text()' if part.endswith('.md') else ''}")
    models = [part for part in parts if not part.endswith(".md")]
    run = {name: options.pop(name) for name in ("feeds", "shapes") if name in options}
    if (diff or compare) and len(models) < 2:
        raise click.UsageError("--diff and --compare need two models.")
    if diff:
        content = {"Diff": script.call("onnx_nb.diff", *models[:2], into="d"), **content}
    if compare:
        content = {"Errors": script.call("onnx_nb.compare", *models[:2], **run, into="c"), **content}
    return script.call("onnx_nb.report", file, content, **options, into="page")


def _view(script: Script, model: str) -> Source:
    """Load a model and show its summary and graph."""
    return script.call("onnx_nb.ModelView", script.call("onnx_nb.load", model, into="model"), into="view")


VIEW: Final = Verb(_view, (_MODEL, _DATA_DIR), "model")
"""The verb of ``%onnx``, which returns the view and names the model."""
