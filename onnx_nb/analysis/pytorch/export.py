"""Export a torch module to ONNX by either of torch's exporters, with tensors that its code names for the export.

A marked tensor becomes a node ``onnx_nb::Mark``, at which the model can be divided. A debugged tensor becomes a node
``my::Debug``; the debug model replaces it by an Identity, which onnxruntime can run, and has every such tensor as an
output.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from numpy.typing import NDArray
from onnx import ModelProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched
from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats
from onnx_nb.analysis.errors import AlignmentError, ExportError
from onnx_nb.analysis.foreign_names import table
from onnx_nb.analysis.formatting import closest_text, count_text, plain_text, quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import MARK
from onnx_nb.analysis.model.model import Model, ModelLike, load, with_proto
from onnx_nb.analysis.pytorch.module_scopes import source_of
from onnx_nb.analysis.pytorch.record import checked_arguments, intercept, labeled_arguments, tensors_in, watch
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.feeds import to_numpy
from onnx_nb.analysis.submodel.extraction import extract, mark_name

if TYPE_CHECKING:
    import torch

EXPORTERS: Final = ("dynamo", "torchscript")
DEBUG: Final = ("my", "Debug")
"""Domain and operator type of the nodes of debugged tensors."""


@known_arguments
def export(
    module: torch.nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    exporter: str = "dynamo",
    opset: int | None = None,
    **options: Any,
) -> Model:
    """Export a module to ONNX, in memory.

    Parameters
    ----------
    module, args, kwargs
        As for `record`.
    exporter
        ``"dynamo"``, torch's default, or ``"torchscript"``, the older one, which traces.
    opset
        Opset version; the exporter's default if ``None``.
    **options
        Passed on to ``torch.onnx.export``: ``dynamic_shapes``, ``dynamic_axes``, ``input_names``, ``optimize`` …

    Returns
    -------
    Model
        With the TorchScript exporter, its inputs are the tensors among the arguments in order, its outputs the tensors
        of the result, and each node keeps its line of Python.

    Raises
    ------
    ExportError
        If torch cannot export the module: the message begins with torch's own reason and names the submodule. Also if
        the exporter used another opset than ``opset``, which torch itself only logs, or ``dynamic_axes`` names a tensor
        that is no input or output, for which torch frees no axis.

    Warns
    -----
    UserWarning
        If tracing turned a value that depends on the inputs into a constant, if an ``if`` in Python decided by a size
        that is free in the result, or if an argument has no effect as an input of the result: an int or a float, whose
        value becomes part of the graph, or a tensor that no node reads.

    Examples
    --------
    >>> import torch
    >>> model = export(torch.nn.Linear(2, 3).eval(), torch.ones(1, 2), exporter="torchscript")
    >>> [node.op_type for node in model.proto.graph.node]
    ['Gemm']
    """
    import torch

    if exporter not in EXPORTERS:
        raise ExportError(f"there is no exporter {quoted(exporter)}.", advice=f"Choose one of {', '.join(EXPORTERS)}.")
    for keyword in table("export").keys() & options:
        message = f"export takes no {keyword}=, as torch.onnx.export does: it returns a model."
        raise ExportError(message, advice=f"Use {table('export')[keyword]} instead.")
    module, args, kwargs = checked_arguments(module, args, kwargs)
    arguments = labeled_arguments(type(module), args, kwargs)
    if opset is not None:
        options["opset_version"] = opset
    running: list[torch.nn.Module] = []
    other = f"exporter={EXPORTERS[exporter == EXPORTERS[0]]!r}"
    try:
        with _silenced() as caught, watch(module) as running, _decisions() as decisions:
            if exporter == "dynamo":
                options = {"kwargs": kwargs or None, "verbose": False, **options}
                program: Any = torch.onnx.export(module, args, dynamo=True, **options)
                model = load(program)
            else:
                file: Any = io.BytesIO()
                with _flattened(module, args, kwargs, arguments) as (tensors, names), torch.no_grad():
                    # verbose writes the Python stack into doc_string
                    options = {"input_names": names, "verbose": True, **options}
                    torch.onnx.export(module, tensors, file, dynamo=False, **options)
                model = load(file.getvalue())
    except Exception as error:
        _check_axes(options, [*_input_names(arguments, options), *(options.get("output_names") or ())])
        reason, path = _reason(module, running, args, kwargs, error)
        message = f"{reason} torch's {exporter} exporter cannot export {type(module).__name__}."
        failure = ExportError(message, advice=f"Try the other exporter: {other}.")
        failure.module = path
        raise failure from error
    ports = [port.name for port in (*model.proto.graph.input, *model.proto.graph.output)]
    _check_axes(options, ports, _input_names(arguments, options))
    traces = [str(one.message) for one in caught if one.category.__name__ == "TracerWarning"]
    if traces:  # it may explain an error
        traces[0] = f"torch made a value constant while tracing: {shortened(traces[0], 400)}"
    losses = _lost_arguments(arguments, model, options.get("input_names"))
    for texts, what in ((traces, "place"), ([*decisions.values()], "place"), (losses, "argument")):
        if texts:
            more = f" ({count_text(len(texts) - 1, f'more such {what}')})" if len(texts) > 1 else ""
            warnings.warn(f"{texts[0]}{more}", stacklevel=3)
    got = next((entry.version for entry in model.proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset is not None and got != opset:
        message = f"opset {opset} was asked for, but torch's {exporter} exporter used opset {got}."
        raise ExportError(message, advice=f"Ask for opset {got}, or try the other exporter: {other}.")
    return with_proto(model, model.proto, type(module).__name__)


def _check_axes(options: Mapping[str, Any], names: Sequence[str], labels: Sequence[str] = ()) -> None:
    """Raise an error if ``dynamic_axes`` names no input or output; the exporter may have lost ``labels``."""
    for name in options.get("dynamic_axes") or ():
        if name not in names and name not in labels:
            message = f"dynamic_axes names {quoted(name)}, which is no input or output of the exported model."
            ports = f"The model has {', '.join(map(quoted, names[:16]))}{', …' if len(names) > 16 else ''}."
            raise ExportError(message, advice=f"{closest_text(name, names)} {ports}".strip())


def _input_names(arguments: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Return what the exporters name the inputs: a name that was asked for replaces the one of the argument."""
    labels = [label.replace(".", "_") for label, _ in tensors_in(arguments)]
    names = list(options.get("input_names") or ())
    return [*names, *labels[len(names) :]]


def _lost_arguments(arguments: Mapping[str, Any], model: Model, names: Sequence[str] | None) -> list[str]:
    """Return a sentence for each argument that has no effect as an input of the exported model."""
    texts = [
        f"argument {quoted(label)} has no input in the model: its value {value!r} became part of the graph. "
        "Pass it as a tensor, and compute with the tensor; or bind it before the export if it never changes."
        for label, value in arguments.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    graph = Graph.opened(model)
    inputs = [graph.value_names[value] for value in graph.inputs]
    read = {name for name, value in zip(inputs, graph.inputs, strict=True) if len(graph.consumers(value))}
    read |= {graph.value_names[value] for value in graph.outputs}
    for place, (label, _) in enumerate(tensors_in(arguments)):
        # the exporters write "pair.0" and "pair_0"; a given name replaces either
        forms = {label, label.replace(".", "_"), f"input.{label}", *list(names or ())[place : place + 1]}
        if forms.isdisjoint(read):
            lacks = "has no input in the model" if forms.isdisjoint(inputs) else "is an input that no node reads"
            advice = "If forward turns it into a number, with .item() or int(), compute with the tensor instead; "
            texts.append(f"argument {quoted(label)} {lacks}. {advice}if forward does not need it, leave it out.")
    return texts


@contextlib.contextmanager
def _decisions() -> Iterator[dict[tuple[str, int], str]]:
    """Yield a sentence for each place where Python code outside of torch decides by a free size during an export."""
    import torch
    from torch.fx.experimental.symbolic_shapes import statically_known_false, statically_known_true

    decisions: dict[tuple[str, int], str] = {}
    decide: Any = torch.SymBool.__bool__
    root = str(Path(torch.__file__).parent)

    def noted(condition: torch.SymBool) -> bool:
        caller = sys._getframe(1)  # noqa: SLF001 (the line that decides)
        file, line = caller.f_code.co_filename, caller.f_lineno
        text, following = (linecache.getline(file, line + more).strip() for more in (0, 1))
        # what only refuses some sizes computes the same for all others
        is_check = text.startswith("assert ") or following.startswith("raise ")
        is_open = not (file.startswith(root) or is_check or (file, line) in decisions) and not (
            statically_known_true(condition) or statically_known_false(condition)
        )
        outcome: bool = decide(condition)
        if is_open:
            decisions[file, line] = (
                f"the export holds for sizes for which `{shortened(text or str(condition), 100)}` "
                f"({Path(file).name}:{line}) is {outcome}, as for the given inputs: the other branch is not in the "
                "model. Export each case separately, fix that size, or write the branch with torch.cond."
            )
        return outcome

    torch.SymBool.__bool__ = noted  # type: ignore[method-assign]
    try:
        yield decisions
    finally:
        torch.SymBool.__bool__ = decide  # type: ignore[method-assign]


@contextlib.contextmanager
def _flattened(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: Mapping[str, Any]
) -> Iterator[tuple[tuple[torch.Tensor, ...], list[str]]]:
    """Patch a module to take and return flat tuples of tensors; yield its tensors and the names of its inputs.

    The TorchScript exporter otherwise fills in every optional argument of a signature, which many models do not accept.
    """
    import torch

    inputs = tensors_in(arguments)
    names = [label if not label[:1].isdigit() else f"input.{label}" for label, _ in inputs]
    forward, override = module.forward, module.__dict__.get("forward")

    def flat(*tensors: torch.Tensor) -> Any:
        feed = iter(tensors)
        outputs = [tensor for _, tensor in tensors_in(forward(*_replaced(args, feed), **_replaced(kwargs, feed)))]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    if not isinstance(module, torch.jit.ScriptModule):
        module.__dict__["forward"] = flat
    try:
        yield tuple(tensor for _, tensor in inputs), names
    finally:
        module.__dict__.pop("forward", None)
        if override is not None:
            module.__dict__["forward"] = override


def _replaced(value: Any, tensors: Iterator[Any]) -> Any:
    """Replace the tensors that `tensors_in` finds, in the same order."""
    import torch

    if isinstance(value, torch.Tensor):
        return next(tensors) if tensors_in(value) else value
    if isinstance(value, Mapping):
        return dict.fromkeys(value) | {key: _replaced(item, tensors) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replaced(item, tensors) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_replaced(item, tensors) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{field.name: _replaced(getattr(value, field.name), tensors) for field in fields(value)})
    return value


@contextlib.contextmanager
def _silenced() -> Iterator[list[warnings.WarningMessage]]:
    """Suppress the output and the logs of the exporters; yield the list of their warnings."""
    import torch

    log = getattr(torch._C, "_jit_onnx_log", None)  # noqa: SLF001 (it writes the whole graph to the terminal)
    with contextlib.ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)  # many of torch's loggers have their own handlers
        if log is not None:
            stack.callback(setattr, torch._C, "_jit_onnx_log", log)  # noqa: SLF001
            torch._C._jit_onnx_log = lambda *_: None  # noqa: SLF001
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield caught


def _reason(
    module: torch.nn.Module, running: list[torch.nn.Module], args: Any, kwargs: Any, cause: BaseException
) -> tuple[str, str | None]:
    """Return the innermost reason for a failed export with its submodule, and the path of the submodule."""
    import torch

    cause = root_cause(cause)
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(cause))
    reason = " ".join(text.strip().partition("\n\n")[0].split()) or type(cause).__name__
    reason = shortened(reason, 600).rstrip(".")
    innermost = running[-1:]
    operator = re.search(r"aten(?:::|\.)_?([a-z_0-9]+)", reason)
    if not innermost and operator is not None:
        op = operator[1].strip("_")

        def note(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
            if func.__name__.partition(".")[0].strip("_") == op:
                innermost.extend(inside[-1:])
            return func(*args, **kwargs)

        # find the submodule that calls the operator; the export already failed, and an error of this run adds nothing
        with contextlib.suppress(Exception), torch.no_grad(), watch(module) as inside, intercept(note, aten=True):
            module(*args, **kwargs)
    if not innermost:
        return f"{reason}.", None
    path = next((name for name, part in module.named_modules() if part is innermost[0]), "")
    place = quoted(path) if path else "(the module itself)"
    return f"{reason}. This is in {type(innermost[0]).__name__} {place}.", path


def root_cause(error: BaseException) -> BaseException:
    """Return the error from which others were raised, down to this one."""
    while (inner := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        error = inner
    return error


def mark(x: torch.Tensor, name: str) -> torch.Tensor:
    """Name a tensor in a torch model so that its export can be partitioned there.

    A mark in ``forward`` has no effect when the model runs in torch. Both of torch's exporters write it as a node
    ``Mark`` of the domain ``onnx_nb``, an identity that carries the name: ``partition(model, "marks")`` divides the
    model there, and `extract` finds the tensor by this name. onnx_nb runs such a model unchanged. Other tools do not
    know the node, but the parts that `partition` returns contain no marks.

    Parameters
    ----------
    x
        Any tensor.
    name
        Name of the mark. A mark that is reached several times marks several tensors: in a loop over layers each one
        ends a part, while parallel branches are divided at the same point.

    Returns
    -------
    torch.Tensor
        ``x`` itself, or its replacement during an export.

    Raises
    ------
    TypeError
        If ``name`` is not a string.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2)
    >>> mark(x, "after the stem") is x
    True
    """
    return marked(x, name, MARK)


def marked(x: torch.Tensor, name: str, operator: tuple[str, str]) -> torch.Tensor:
    """Return ``x`` itself; during an export, the output of a node ``(domain, type)`` with the attribute ``name``."""
    import torch

    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor must be a string, not {type(name).__name__}.")
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"a mark names a tensor x, not {type(x).__name__}.")
    # not in a plain torch.export: its programs run in torch, where the op below would return zeros
    if not torch.onnx.is_in_onnx_export():
        return x
    if torch.compiler.is_exporting():
        symbol: torch.Tensor = torch.onnx.ops.symbolic(
            "::".join(operator), (x,), attrs={"name": name}, dtype=x.dtype, shape=x.shape, version=1
        )
        return symbol
    output: torch.Tensor = _mark_function("::".join(operator)).apply(x, name)
    return output


@functools.cache
def _mark_function(operator: str) -> Any:
    """Return an autograd function that the TorchScript exporter writes as a node of this operator."""
    import torch

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor, _name: str) -> torch.Tensor:
            # a new tensor: if x were returned, the tracer would drop the node
            return x.view_as(x)

        @staticmethod
        def symbolic(g: Any, x: Any, name: str) -> Any:
            output = g.op(operator, x, name_s=name)
            output.setType(x.type())
            return output

    return Mark


class Debugger:
    """Compares named tensors of a torch model with those of its export.

    `compare_torch` finds the tensors automatically; a debugger compares those that ``forward`` passes to `debug`.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> debugger = Debugger()
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         x = debugger.debug(x * 2, "doubled")
    ...         return debugger.debug(x.exp(), "exp")
    >>> folder, x = tempfile.mkdtemp(), torch.zeros(1, 3)
    >>> from onnx_nb.analysis.pytorch.export import export
    >>> model = export(Model(), x, exporter="torchscript").save(f"{folder}/model.onnx")
    >>> _ = debugger.extract_debug_model(model, f"{folder}/debug.onnx")
    >>> debugger.run_debug_model({"x": x.numpy()}, f"{folder}/debug.onnx")
    >>> debugger
    Debugger(2 tensors in torch, 2 in the model, 2 in both)
    >>> debugger.print_debug_result()
    doubled MSE: 0
    exp MSE: 0
    """

    def __init__(self) -> None:
        self.torch_value: dict[str, NDArray[Any]] = {}
        """Name → value in the last run in torch."""
        self.onnx_value: dict[str, NDArray[Any]] = {}
        """Name → value in the debug model."""
        self.output_debug_name: list[str] = []
        """Name of the debugged tensor for each output of the debug model."""
        self._tensors: dict[str, tuple[str, str, str]] = {}
        self._inputs: list[str] = []

    def __repr__(self) -> str:
        counts = (len(names) for names in (self.torch_value, self.onnx_value, self._both()))
        return "Debugger({} tensors in torch, {} in the model, {} in both)".format(*counts)

    def _both(self) -> list[str]:
        return [name for name in self.torch_value if name in self.onnx_value]

    def debug(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Debug a tensor in ``forward``: return the tensor unchanged, or its replacement during an export.

        In torch, the value is stored in `torch_value`. In an export by either exporter, it becomes a node
        ``my::Debug``. The default exporter computes no values, so the module has to run in torch as well.

        Parameters
        ----------
        x, name
            As for `mark`. If several tensors have the same name, the last value is stored.

        Raises
        ------
        TypeError
            If ``name`` is not a string.
        """
        import torch

        output = marked(x, name, DEBUG)
        if not torch.compiler.is_compiling():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns that numpy values are constants in a trace
                self.torch_value[name] = to_numpy(x).copy()
        return output

    def extract_debug_model(self, input_path: ModelLike, output_path: str | os.PathLike[str]) -> Model:
        """Write the debug model of an export, which has every debugged tensor as an output, and return it.

        Raises
        ------
        AlignmentError
            If the export has no ``Debug`` nodes.
        """
        source = load(input_path)
        proto = ModelProto()
        proto.CopyFrom(source.proto)
        self._tensors = {}
        self.output_debug_name, outputs = [], []
        for node in proto.graph.node:
            if (plain_text(node.domain), plain_text(node.op_type)) == DEBUG:
                name = mark_name(node)
                self.output_debug_name.append(name)
                outputs.append(plain_text(node.output[0]))
                self._tensors[name] = outputs[-1], plain_text(node.name), source_of(node)
                node.op_type, node.domain = "Identity", ""
                del node.attribute[:]
        if not outputs:
            message = f"{source.name} has no Debug nodes."
            advice = "Write x = debugger.debug(x, name) into forward, outside of loops and branches, and export again."
            raise AlignmentError(message, advice=advice)
        self._inputs = [port.name for port in proto.graph.input if port.name not in source.initializers]
        debugging = extract(with_proto(source, proto), self._inputs, outputs, keep_redundant=False)
        debugging.save(output_path)
        return debugging

    def run_debug_model(self, input: Mapping[str, Any], debug_model: ModelLike) -> None:  # noqa: A002 (as it is known)
        """Run the debug model and store its outputs in `onnx_value`.

        Parameters
        ----------
        input
            An array for each input of the export.
        debug_model
            Model that `extract_debug_model` wrote.

        Raises
        ------
        FeedError
            If the inputs do not fit.
        AlignmentError
            If it is another model.
        """
        model = load(debug_model)
        if len(model.proto.graph.output) != len(self.output_debug_name):
            message = f"{model.name} is not the model that extract_debug_model wrote last: it has other outputs."
            raise AlignmentError(message, advice="Call extract_debug_model again.")
        names = {port.name for port in model.proto.graph.input}
        # the debug model lacks inputs of the export that no debugged tensor depends on
        feed = {name: array for name, array in input.items() if name in names or name not in self._inputs}
        outputs = sessions.run(model, feed, optimize=False)
        self.onnx_value = dict(zip(self.output_debug_name, outputs.values(), strict=True))

    def print_debug_result(self) -> None:
        """Print the mean squared error of each debugged tensor."""
        lines = {name: f"{name}: not in the debug model" for name in self.torch_value}
        lines |= {name: f"{name}: run the module in torch first, module(x)" for name in self.onnx_value}
        for name in self._both():
            lines[name] = f"{name} MSE: {ErrorStats.of(self.torch_value[name], self.onnx_value[name]).mse:.3g}"
        nothing = "no tensor was debugged yet: run the module in torch, then the debug model"
        print("\n".join(lines.values()) or nothing)  # noqa: T201 (its purpose)

    def comparison(self, *, rtol: float = RTOL, atol: float = ATOL) -> Comparison:
        """Return the debugged tensors as a `Comparison`, with all metrics, histograms and the panel.

        Parameters
        ----------
        rtol, atol
            Tolerances of `ErrorStats.outside`.

        Raises
        ------
        AlignmentError
            If torch or the debug model was not run yet, or the shapes of a tensor differ.
        """
        if not self._both():
            advice = "Run the module in torch, then extract_debug_model and run_debug_model."
            raise AlignmentError("no tensor has values of both torch and the debug model.", advice=advice)
        points = []
        for depth, name in enumerate(self._both()):
            tensor, node, source = self._tensors.get(name, ("", "", ""))
            errors = ErrorStats.of(self.torch_value[name], self.onnx_value[name], rtol=rtol, atol=atol)
            points.append(Point(name, name, tensor, "debug", depth, "Debug", node, source=source, cumulative=errors))
        there = (name for name in self.torch_value if name not in self.onnx_value)
        rest = [Unmatched(name, "reference", "the export has no such Debug node", "Debug") for name in there]
        there = (name for name in self.onnx_value if name not in self.torch_value)
        rest += [Unmatched(name, "candidate", "the module has not run in torch", "Debug") for name in there]
        return Comparison("torch", "debug model", tuple(points), tuple(rest))
