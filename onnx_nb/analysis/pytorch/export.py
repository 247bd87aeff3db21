"""Export of a torch module to ONNX by either exporter, and marks that name places in it."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.errors import ExportError
from onnx_nb.analysis.formatting import quoted, shortened
from onnx_nb.analysis.graph.operators import MARK
from onnx_nb.analysis.model.model import Model, load, with_proto
from onnx_nb.analysis.pytorch.record import as_given, is_tensor, is_traced_by_dynamo, parameters_of, tensors_in, watched

if TYPE_CHECKING:
    import torch
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch


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
        The version of the operators; the exporter's own choice if ``None``.
    **options
        Passed on to ``torch.onnx.export``: ``dynamic_shapes``, ``dynamic_axes``, ``input_names``, ``optimize`` …

    Returns
    -------
    Model
        By the TorchScript exporter its inputs are the tensors among the arguments, in order, and its outputs those of
        the result; the Python line of each node is kept.

    Raises
    ------
    ExportError
        If torch cannot export it: torch's own reason first, and the submodule. Or if the exporter gave another opset
        than was asked for, which torch itself only logs.

    Examples
    --------
    >>> import torch
    >>> model = export(torch.nn.Linear(2, 3).eval(), torch.ones(1, 2), exporter="torchscript")
    >>> [node.op_type for node in model.proto.graph.node]
    ['Gemm']
    """
    if exporter not in EXPORTERS:
        raise ExportError(f"there is no exporter {quoted(exporter)}.", advice=f"Choose one of {', '.join(EXPORTERS)}.")
    module, args, kwargs = as_given(module, args, kwargs)
    if opset is not None:
        options["opset_version"] = opset
    run = _by_dynamo if exporter == "dynamo" else _by_torchscript
    watch = _Watch(module)
    try:
        with _plain() as caught, watch:
            model = run(module, args, kwargs, options)
    except Exception as error:
        raise _refused(watch, args, kwargs, exporter, error) from error
    traced = [str(one.message) for one in caught if one.category.__name__ == "TracerWarning"]
    if traced:  # it may explain an error
        more = f" ({len(traced) - 1} more such places)" if len(traced) > 1 else ""
        message = f"torch made something constant while tracing: {shortened(traced[0], 400)}{more}"
        warnings.warn(message, stacklevel=2)
    got = next((entry.version for entry in model.proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset is not None and got != opset:
        message = f"opset {opset} was asked for, and torch's {exporter} exporter gave opset {got}."
        raise ExportError(message, advice=f"Ask for opset {got}, or try the other exporter: {_other(exporter)}.")
    return with_proto(model, model.proto, type(module).__name__)


def _by_dynamo(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
) -> Model:
    import torch

    program: Any = torch.onnx.export(module, args, kwargs=kwargs or None, dynamo=True, verbose=False, **options)
    return load(program)


def _by_torchscript(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
) -> Model:
    import torch

    flat = _Flat(module, args, kwargs)
    options.setdefault("input_names", flat.input_names)
    # with verbose the exporter writes the Python stack into doc_string
    options.setdefault("verbose", True)
    file: Any = io.BytesIO()
    with flat, torch.no_grad():
        torch.onnx.export(module, flat.tensors, file, dynamo=False, **options)
    return load(file.getvalue())


class _Flat:
    """Lets a module take its tensors one after another and give a tuple of tensors, as the TorchScript exporter wants.

    It fills in every optional argument of a signature itself, which many models do not take.
    """

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._module, self._args, self._kwargs = module, args, kwargs
        named = dict(zip(parameters_of(type(module)), args, strict=False))
        found = tensors_in({**named, **{str(i): a for i, a in enumerate(args[len(named) :])}, **kwargs})
        self.tensors = tuple(tensor for _, tensor in found)
        self.input_names = [label if not label[:1].isdigit() else f"input.{label}" for label, _ in found]

    def __enter__(self) -> None:
        import torch

        forward = self._module.forward
        self._had = self._module.__dict__.get("forward")
        if isinstance(self._module, torch.jit.ScriptModule):
            return

        def flat(*tensors: torch.Tensor) -> Any:
            given = iter(tensors)
            args, kwargs = _replaced(self._args, given), _replaced(self._kwargs, given)
            made = [tensor for _, tensor in tensors_in(forward(*args, **kwargs))]
            return made[0] if len(made) == 1 else tuple(made)

        self._module.__dict__["forward"] = flat

    def __exit__(self, *_: object) -> None:
        self._module.__dict__.pop("forward", None)
        if self._had is not None:
            self._module.__dict__["forward"] = self._had


def _replaced(value: Any, given: Iterator[Any]) -> Any:
    """Put other tensors in the place of those that `tensors_in` finds, in the same order."""
    import torch

    if isinstance(value, torch.Tensor):
        return next(given) if is_tensor(value) else value
    if isinstance(value, Mapping):
        return dict.fromkeys(value) | {key: _replaced(one, given) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replaced(one, given) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(_replaced(one, given) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{each.name: _replaced(getattr(value, each.name), given) for each in fields(value)})
    return value


@contextlib.contextmanager
def _plain() -> Iterator[list[warnings.WarningMessage]]:
    """Keep back what the exporters print and log; give the warnings."""
    import torch

    log = getattr(torch._C, "_jit_onnx_log", None)  # noqa: SLF001 (it writes the whole graph to the terminal)
    disabled = logging.root.manager.disable  # torch gives many of its loggers handlers of their own
    fused = torch.backends.mha.get_fastpath_enabled()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            logging.disable(logging.CRITICAL)
            torch.backends.mha.set_fastpath_enabled(False)  # ONNX has no such operators
            if log is not None:
                torch._C._jit_onnx_log = lambda *_: None  # noqa: SLF001
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                yield caught
        finally:
            logging.disable(disabled)
            torch.backends.mha.set_fastpath_enabled(fused)
            if log is not None:
                torch._C._jit_onnx_log = log  # noqa: SLF001


class _Watch:
    """Knows in which submodule an export is."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._names = {id(part): name for name, part in module.named_modules()}
        self.stack: list[torch.nn.Module] = []
        self._undone = contextlib.ExitStack()

    @property
    def where(self) -> tuple[str, str] | None:
        """Path and class of the innermost submodule that has begun and not ended."""
        return (self._names.get(id(self.stack[-1]), ""), type(self.stack[-1]).__name__) if self.stack else None

    def __enter__(self) -> None:

        for part in watched(self.module):
            self._undone.callback(part.register_forward_pre_hook(self._before).remove)
            self._undone.callback(part.register_forward_hook(self._after).remove)

    def __exit__(self, *_: object) -> None:
        self._undone.close()

    def _before(self, part: torch.nn.Module, _args: Any) -> None:
        if is_traced_by_dynamo():
            return
        if not self.stack or part is self.module:
            self.stack.clear()
        self.stack.append(part)

    def _after(self, part: torch.nn.Module, _args: Any, _output: Any) -> None:
        if is_traced_by_dynamo():
            return
        while self.stack and self.stack.pop() is not part:
            pass


def _refused(
    watch: _Watch, args: tuple[Any, ...], kwargs: dict[str, Any], exporter: str, error: BaseException
) -> ExportError:
    """Return why torch could not export: the innermost reason first, then where, then what to do."""
    module, cause = watch.module, error
    while (inner := cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)) is not None:
        cause = inner
    paragraph = _without_color(str(cause)).strip().partition("\n\n")[0]
    reason = " ".join(paragraph.split()) or type(cause).__name__
    reason = shortened(reason, 600).rstrip(".")
    where = watch.where
    operator = re.search(r"aten(?:::|\.)_?([a-z_0-9]+)", reason)
    if where is None and operator is not None:
        where = _caller_of(module, args, kwargs, operator[1])
    place = ""
    if where is not None:
        place = f" This is in {where[1]} {quoted(where[0]) if where[0] else '(the module itself)'}."
    message = f"{reason}.{place} torch's {exporter} exporter cannot export {type(module).__name__}."
    found = ExportError(message, advice=f"Try the other exporter: {_other(exporter)}.")
    found.module = where[0] if where is not None else None
    return found


def _other(exporter: str) -> str:
    return f"exporter={EXPORTERS[exporter == EXPORTERS[0]]!r}"


def _without_color(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _caller_of(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], operator: str
) -> tuple[str, str] | None:
    """Find the submodule that calls an ATen operator, by running the module."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    watch = _Watch(module)
    found: list[tuple[str, str]] = []

    class Listening(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.__name__.partition(".")[0].strip("_") == operator.strip("_") and watch.where is not None:
                found.append(watch.where)
            return func(*args, **(kwargs or {}))

    # it failed already: whatever it raises now tells nothing more
    with contextlib.suppress(Exception), torch.no_grad(), watch, Listening():  # type: ignore[no-untyped-call]
        module(*args, **kwargs)
    return found[0] if found else None


def mark(x: torch.Tensor, name: str) -> torch.Tensor:
    """Mark a tensor in a torch model, so that its export can be cut there by name.

    Written into ``forward``, it does nothing when the model runs in torch. In an export by either of torch's exporters
    it becomes a node ``Mark`` of the domain ``onnx_nb``, an identity that carries the name: `partition` cuts there by
    ``at="marks"``, and `extract` finds the tensor by that name. onnx_nb runs such a model as it is; other tools do
    not know the node, and take the parts, which hold no marks.

    Parameters
    ----------
    x
        Any tensor.
    name
        What to call the place. A mark that is reached several times marks several tensors: in a loop over layers each
        ends a part, side by side they are cut together.

    Returns
    -------
    torch.Tensor
        ``x`` itself, or in an export what stands for it.

    Raises
    ------
    TypeError
        If ``name`` is not a text.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2)
    >>> mark(x, "after the stem") is x
    True
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a mark is a text, not {type(name).__name__}.")
    return marked(x, name, MARK)


def marked(x: torch.Tensor, name: str, operator: tuple[str, str]) -> torch.Tensor:
    """Return a tensor itself, or in an export by either exporter the output of a node that carries a name.

    Parameters
    ----------
    x
        Any tensor.
    name
        The node's attribute of this name.
    operator
        Domain and type of the node.
    """
    import torch

    # torch.export alone is none of our business: its programs are run in torch, where the op below would give zeros
    if not torch.onnx.is_in_onnx_export():
        return x
    if torch.compiler.is_exporting():
        made: torch.Tensor = torch.onnx.ops.symbolic(
            "::".join(operator), (x,), attrs={"name": name}, dtype=x.dtype, shape=x.shape, version=1
        )
        return made
    traced: torch.Tensor = _function("::".join(operator)).apply(x, name)
    return traced


@functools.cache
def _function(operator: str) -> Any:
    """Return the autograd function whose symbolic the TorchScript exporter writes."""
    import torch

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor, _name: str) -> torch.Tensor:
            # a new tensor: the tracer takes one that is handed through for the same value, and drops the node
            return x.view_as(x)

        @staticmethod
        def symbolic(g: Any, x: Any, name: str) -> Any:
            made = g.op(operator, x, name_s=name)
            made.setType(x.type())
            return made

    return Mark


EXPORTERS: Final = ("dynamo", "torchscript")
