"""What is done to a torch module: record what each submodule got and gave, export it, mark places in it.

Recording works through forward hooks, which are gone afterwards, so that the module's code need not change. torch is
imported when it is first used, so that everything else works without it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import ml_dtypes
from numpy.typing import NDArray

from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.formatting import bytes_text, closest, quoted
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.pytorch.attribute_proof import RECORDED
from onnx_nb.analysis.pytorch.source_lines import running_line
from onnx_nb.analysis.run.array_store import Store, available_memory, unspilled

if TYPE_CHECKING:
    import torch

_DEEPEST: Final = 16
"""Lists in lists in lists: what is nested deeper in an output is not looked at."""
_SCALARS: Final = (int, float, str, type(None))
"""What most arguments are that are no tensors."""


class Slot(NamedTuple):
    """One tensor among the inputs or outputs of a call."""

    label: str
    """Where it was: empty for a lone tensor, else as "0", "hidden_states.3" or the name of an argument."""
    value: int
    """Number of the value in the recording; the same tensor, unchanged since, has the same number."""


@dataclass(frozen=True)
class Call:
    """One call of a submodule."""

    path: str
    """As in ``module.named_modules()``; empty for the module itself."""
    aliases: tuple[str, ...]
    """Its other paths, where it is registered more than once."""
    cls: str
    """Class of the submodule, as "Linear"."""
    index: int
    """How many calls of the same submodule came before."""
    parent: int
    """The call inside of which it was made, a number in `Recording.calls`; −1 for the outermost."""
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Those of the submodule that an operator of ONNX has as well, as ``eps``."""

    @property
    def name(self) -> str:
        """The path, with "#2" for a second call, and "model" for the module itself."""
        return f"{self.path or 'model'}{f'#{self.index + 1}' if self.index else ''}"


class FunctionCall(NamedTuple):
    """A call of a torch function or method in some module's ``forward``, that gave a tensor."""

    name: str
    """As "add_", "softmax" or "scaled_dot_product_attention"."""
    call: int
    """The call of a module that made it, a number in `Recording.calls`."""
    source: str
    """The line of Python, as ``modeling_bert.py:312``."""
    inputs: tuple[int, ...]
    """Numbers of the recorded values that it got."""
    value: int
    """Number of what it gave."""


class Recording:
    """Every submodule call of one forward pass, with the values; what `record` gives.

    Examples
    --------
    >>> import torch
    >>> recording = record(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()).eval(), torch.ones(1, 2))
    >>> recording
    Recording(Sequential, 3 calls, 3 values, 32 B)
    >>> [(call.name, call.cls, recording["1"].shape) for call in recording.calls if call.path == "1"]
    [('1', 'ReLU', (1, 3))]
    """

    def __init__(self, cls: str, calls: tuple[Call, ...], contents: list[Any], store: Store) -> None:
        self.cls = cls
        """Class of the module."""
        self.calls = calls
        """In the order in which they began; the first is the module itself."""
        self.nbytes = sum(array.nbytes for array in map(unspilled, contents))
        self.functions: tuple[FunctionCall, ...] = ()
        """What the forwards of the modules called; see ``functions`` of `record`."""
        self.unstable: tuple[str, ...] = ()
        """Calls that gave other values when run again, innermost and earliest first; see ``repeat`` of `record`."""
        self.random: tuple[str, ...] = ()
        """Calls that drew random numbers in their own ``forward``, in order."""
        self._contents = contents
        self._store = store

    @property
    def value_count(self) -> int:
        """How many different values were recorded."""
        return len(self._contents)

    def value(self, number: int) -> NDArray[Any]:
        """Return a value, read-only; bfloat16 and float8 as numpy types of ``ml_dtypes``."""
        array: NDArray[Any] = unspilled(self._contents[number])
        return array

    def labeled(self) -> Iterator[tuple[FunctionCall, str]]:
        """Return each function with what tells it from the others of the same call: "add()", "add()#2"."""
        count: Counter[tuple[int, str]] = Counter()
        for each in self.functions:
            count[each.call, each.name] += 1
            times = count[each.call, each.name]
            yield each, f"{each.name}(){f'#{times}' if times > 1 else ''}"

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return an output of a call, or of a function, by name.

        A path alone is the first output of the first call, "shared#2" is of the second call, "lstm → 1.0" is the
        output that has this label, and "layer.1 → add()" is what a function gave.
        """
        path, _, label = name.partition(" → ")
        for call in self.calls:
            if call.name == path or (not call.index and path in (call.path, *call.aliases)):
                values = [slot.value for slot in call.outputs if not label or slot.label == label]
                values += [
                    each.value for each, called in self.labeled() if called == label and self.calls[each.call] is call
                ]
                if values:
                    return self.value(values[0])
                what = f"no output {quoted(label)}" if label else "no tensor"
                labels = ", ".join(slot.label for slot in call.outputs)
                advice = f"Its outputs: {labels}." if labels else "Ask for a submodule inside or around it."
                raise AlignmentError(f"submodule {quoted(path)} gave {what}.", advice=advice)
        near = ", ".join(map(quoted, closest(path, [call.name for call in self.calls])))
        message = f"no call of submodule {quoted(path)} was recorded."
        raise AlignmentError(message, advice=f"Closest names: {near}." if near else "")

    def __len__(self) -> int:
        return len(self.calls)

    def __repr__(self) -> str:
        counts = f"{len(self.calls):,} calls, {self.value_count:,} values"
        return f"Recording({self.cls}, {counts}, {bytes_text(self.nbytes)})"


def record(
    module: torch.nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    functions: bool = False,
    repeat: bool = False,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Recording:
    """Run a module once and record what each call of a submodule got and gave.

    Shared and repeated modules, tuples, dicts, dataclasses and in-place operations are taken as they come; the module
    is left as it was, also if it raises. It runs without gradients, on the device where it is.

    Parameters
    ----------
    module
        In eval mode; in train mode dropout and batch normalization compute something that is never exported.
    args
        Positional arguments, a tuple; a lone tensor may be given as it is.
    kwargs
        Named arguments.
    functions
        Record also the tensors that functions and methods give which a module calls in its own ``forward``, such as the
        sum of a residual connection.
    repeat
        Run a second time and compare: `Recording.unstable` then names the submodules that gave other values, with a
        warning.
    memory_limit
        Half of so many bytes may be taken by values in memory, the rest goes into files of a temporary folder; half of
        the memory that is available if ``None``.
    progress
        Called before each call of a submodule, with about the part done and the submodule. What it raises ends the run.

    Returns
    -------
    Recording

    Raises
    ------
    TypeError
        If it is no ``torch.nn.Module``.
    Exception
        What the module raises, with a note that names the submodule.

    Warns
    -----
    UserWarning
        If dropout or batch normalization is in train mode, a second run gave other values, or, where there was none,
        random numbers were drawn.

    Examples
    --------
    >>> import torch
    >>> recording = record(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 1)).eval(), torch.ones(1, 2, 2))
    >>> [call.name for call in recording.calls]
    ['model', '0', '1']
    """
    module, args, kwargs = as_given(module, args, kwargs)
    if not any(part is module for part in watched(module)):
        message = f"{type(module).__name__} is scripted by torch.jit, and what it calls cannot be seen."
        raise TypeError(f"{message} Give the module that was scripted.")
    in_training = _warn_of_training(module)
    store = Store(available_memory() // 2 if memory_limit is None else memory_limit)
    halves = 0.5 if repeat else 1.0
    first = _Recorder(module, store, None, functions=functions, progress=stage(progress, 0.0, halves))
    first.run(args, kwargs)
    recording = Recording(type(module).__name__, first.finished(), first.contents, store)
    recording.functions = tuple(first.functions)
    recording.random = tuple(recording.calls[number].name for number in sorted(first.random))
    if not repeat and any(recording.calls[number].path not in in_training for number in first.random):
        drew = [number for number in sorted(first.random) if recording.calls[number].path not in in_training]
        named = ", ".join(
            f"{recording.calls[number].cls} {quoted(recording.calls[number].name)}" for number in drew[:3]
        )
        more = f" and {len(drew) - 3} more" if len(drew) > 3 else ""
        message = (
            f"{named}{more} drew random numbers: what is random there will show as an error. Make it deterministic, or "
            f"see by repeat=True which values change."
        )
        warnings.warn(message, stacklevel=2)
    if repeat:
        again = _Recorder(module, store, first.contents, functions=functions, progress=stage(progress, halves, 1.0))
        again.run(args, kwargs)
        recording.unstable = _unstable(again, recording)
        if recording.unstable:
            named = ", ".join(f"{quoted(name)}" for name in recording.unstable[:3])
            message = (
                f"{named} gave other values in a second run of {recording.cls}: what is random there will show as an "
                f"error. Call module.eval(), or make it deterministic."
            )
            warnings.warn(message, stacklevel=2)
    return recording


def as_given(module: Any, args: Any, kwargs: Any) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return a module and its arguments in the form in which it is called."""
    import torch

    module = getattr(module, "_orig_mod", module)  # what torch.compile wrapped
    if not isinstance(module, torch.nn.Module):
        what = type(module).__name__
        raise TypeError(f"a torch.nn.Module is wanted, not {what}. Wrap a function into a module with a forward.")
    given = tuple(args) if isinstance(args, list | tuple) else () if args is None else (args,)
    return module, given, dict(kwargs or {})


def _warn_of_training(module: torch.nn.Module) -> frozenset[str]:
    """Warn of what is in train mode, and give the paths of it."""
    import torch

    batch_norm = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001 (the base of all of them)
    dropout = torch.nn.modules.dropout._DropoutNd  # noqa: SLF001 (the same)
    named = [
        (name, part)
        for name, part in module.named_modules()
        if part.training and (isinstance(part, batch_norm) or (isinstance(part, dropout) and part.p > 0))
    ]
    if named:
        listed = ", ".join(f"{type(part).__name__} {quoted(name)}" for name, part in named[:3])
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        verb = "does" if len(named) == 1 else "do"
        message = (
            f"{type(module).__name__} is in train mode: {listed}{more} {verb} not compute there what an export does. "
            f"Call module.eval() first."
        )
        warnings.warn(message, stacklevel=3)
    return frozenset(name for name, _ in named)


def watched(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Return the submodules that can have hooks, itself included: what torch.jit scripted cannot."""
    import torch

    return (part for part in module.modules() if not isinstance(part, torch.jit.ScriptModule))


def is_traced_by_dynamo() -> bool:
    """Return whether a branch of ``torch.cond`` or the like is being traced, where hooks must not record."""
    import torch

    return torch.compiler.is_dynamo_compiling()


def _random_state() -> bytes:
    """Return the state of torch's random generators, which changes when they are asked for numbers."""
    import torch

    state: bytes = torch.default_generator.get_state().numpy().tobytes()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state += b"".join(generator.get_state().numpy().tobytes() for generator in torch.cuda.default_generators)
    return state


class _Recorder:
    """The hooks of one forward pass."""

    def __init__(
        self,
        module: torch.nn.Module,
        store: Store,
        known: list[Any] | None,
        *,
        functions: bool,
        progress: Progress | None,
    ) -> None:
        self.contents: list[Any] = []
        self.functions: list[FunctionCall] = []
        self.changed: set[int] = set()
        """Numbers of values that are not those of ``known``."""
        self.ended: list[int] = []
        self.random: set[int] = set()
        """Numbers of the calls that drew random numbers, and not by a call inside of them."""
        self._module = module
        self._store = store
        self._known = known
        self._listens = functions
        self._progress = progress
        self._looks = False
        """Whether it is our own code that calls torch now."""
        self._state = b""
        """Of the random generators when a call last began or ended."""
        self._calls: list[dict[str, Any]] = []
        self._stack: list[tuple[int, Any]] = []
        self._count: dict[int, int] = {}
        self._seen: dict[int, tuple[Any, int, int]] = {}
        self._signatures: dict[type, tuple[str, ...]] = {}
        self._names: dict[int, list[str]] = {}
        for name, part in module.named_modules(remove_duplicate=False):
            self._names.setdefault(id(part), []).append(name)

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Run the module; nothing stays behind on it."""
        import torch

        with contextlib.ExitStack() as undone, torch.no_grad():
            hooks: list[torch.utils.hooks.RemovableHandle] = []
            undone.callback(_remove, hooks)
            for part in watched(self._module):
                hooks.append(part.register_forward_pre_hook(self._before, with_kwargs=True))
                hooks.append(part.register_forward_hook(self._after))
            # torch's fused transformer layers call no submodules
            fused = torch.backends.mha.get_fastpath_enabled()
            undone.callback(torch.backends.mha.set_fastpath_enabled, fused)
            torch.backends.mha.set_fastpath_enabled(False)
            if self._listens:
                undone.enter_context(_listening(self._called))
            self._state = _random_state()
            try:
                self._module(*args, **kwargs)
            except Exception as error:
                if self._stack:
                    call = self._calls[self._stack[-1][0]]
                    error.add_note(f"raised in {call['cls']} {quoted(call['path'] or 'the module itself')}")
                raise

    def finished(self) -> tuple[Call, ...]:
        return tuple(Call(**call) for call in self._calls)

    def _before(self, part: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        import torch

        if torch.compiler.is_compiling() or id(part) not in self._names:
            return
        path, *aliases = self._names[id(part)]
        cls = type(part).__name__
        if self._progress is not None:
            done = len(self._calls) / max(len(self._names), len(self._calls) + 1)
            self._progress(done, f"torch: {cls} {quoted(path or 'the module itself')}")
        with torch._C.DisableTorchFunction():  # noqa: SLF001 (what we ask of a tensor is no call of the module)
            self._look_for_chance()
            if type(part) not in self._signatures:
                self._signatures[type(part)] = parameters_of(type(part))
            parameters = self._signatures[type(part)]
            index = self._count.get(id(part), 0)
            self._count[id(part)] = index + 1
            given = {**dict(zip(parameters, args, strict=False)), **kwargs}
            if len(args) > len(parameters):
                given.update((str(place), value) for place, value in enumerate(args[len(parameters) :]))
            self._calls.append(
                {
                    "path": path,
                    "aliases": tuple(aliases),
                    "cls": cls,
                    "index": index,
                    "parent": self._stack[-1][0] if self._stack else -1,
                    "inputs": tuple([Slot(label, self._take(tensor)) for label, tensor in tensors_in(given)]),
                    "outputs": (),
                    "attributes": _said(part),
                }
            )
            self._stack.append((len(self._calls) - 1, part))

    def _after(self, part: torch.nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        import torch

        if torch.compiler.is_compiling() or all(open_part is not part for _, open_part in self._stack):
            return
        with torch._C.DisableTorchFunction():  # noqa: SLF001 (see above)
            self._look_for_chance()
            number, closed = self._stack.pop()
            while closed is not part:  # a call inside that raised, which its caller caught
                number, closed = self._stack.pop()
            self.ended.append(number)
            outputs = tuple([Slot(label, self._take(tensor)) for label, tensor in tensors_in(output)])
            self._calls[number]["outputs"] = outputs

    def _look_for_chance(self) -> None:
        """Note the innermost call if random numbers were drawn since another one began or ended."""
        state = _random_state()
        if state != self._state and self._stack:
            self.random.add(self._stack[-1][0])
        self._state = state

    def _called(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call a torch function, and take the tensor that it gives, if it is a new one of more than one value."""
        import torch

        if self._looks or not self._stack or is_traced_by_dynamo():
            return function(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # noqa: SLF001 (see above)
            known = self._numbers((*args, *kwargs.values()))
        made = function(*args, **kwargs)
        if isinstance(made, torch.Tensor):
            with torch._C.DisableTorchFunction():  # noqa: SLF001 (see above)
                if is_tensor(made) and made.numel() > 1 and not _is_wrapped(made):
                    before = len(self.contents)
                    number = self._take(made)
                    if number == before:
                        name = getattr(function, "__name__", "function")
                        self.functions.append(FunctionCall(name, self._stack[-1][0], running_line(), known, number))
        return made

    def _numbers(self, given: Iterable[Any]) -> tuple[int, ...]:
        """Return the numbers of the values among what a function got that are known."""
        import torch

        found: list[int | None] = []
        for one in given:
            if isinstance(one, torch.Tensor):
                found.append(self._number(one))
            elif not isinstance(one, _SCALARS):
                found += [self._number(tensor) for _, tensor in tensors_in(one)]
        return tuple([number for number in found if number is not None])

    def _number(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a value that was taken already, and not changed since."""
        seen = self._seen.get(id(tensor))
        known = seen is not None and seen[0]() is tensor and seen[1] == _version(tensor) >= 0
        return seen[2] if seen is not None and known else None

    def _take(self, tensor: torch.Tensor) -> int:
        """Return the number of a value; a copy is kept, as it may be changed in place later."""
        there = self._number(tensor)
        if there is not None:
            return there
        number = len(self.contents)
        array = self._array(tensor)
        if self._known is None:
            self.contents.append(self._store.put(array))
        else:
            known = unspilled(self._known[number]) if number < len(self._known) else None
            if known is None or known.shape != array.shape or not _same(known, array):
                self.changed.add(number)
            self.contents.append(None)
        self._seen[id(tensor)] = (weakref.ref(tensor), _version(tensor), number)
        return number

    def _array(self, tensor: torch.Tensor) -> NDArray[Any]:
        import torch

        if type(tensor) is torch.Tensor:
            return to_numpy(tensor)
        # a class of its own may say what its values are
        self._looks = True
        try:
            with torch._C._EnableTorchFunction():  # noqa: SLF001 (torch has no other)
                return to_numpy(tensor)
        finally:
            self._looks = False


def _version(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place; −1 if torch does not know."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 (torch has no other)


def _is_wrapped(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one of many inside of ``torch.vmap`` and the like: it has no values of its own."""
    import torch

    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))  # noqa: SLF001 (torch has no other)


def _listening(called: Callable[[Any, Any, Mapping[str, Any]], Any]) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which every call of a torch function is made by another one."""
    from torch.overrides import TorchFunctionMode

    class Listening(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return called(func, args, kwargs or {})

    return Listening()


def _remove(hooks: Iterable[torch.utils.hooks.RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()


def _said(part: torch.nn.Module) -> dict[str, Any]:
    """Return the attributes of a module that are a number, a text or several numbers, of those that ONNX has, too."""
    own = part.__dict__
    return {name: own[name] for name in RECORDED if name in own and _is_said(own[name])}


def _is_said(value: Any) -> bool:
    several = value if isinstance(value, tuple) else (value,)
    return all(isinstance(one, int | float | str) for one in several)


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _unstable(again: _Recorder, recording: Recording) -> tuple[str, ...]:
    """Name the calls that gave other values though they got the same."""
    found: list[int] = []
    around: set[int] = set()
    for number in again.ended:  # calls inside end before those around them
        if number >= len(recording.calls):
            continue
        call = recording.calls[number]
        other = any(slot.value in again.changed for slot in call.outputs)
        if other and not any(slot.value in again.changed for slot in call.inputs):
            if number not in around:
                found.append(number)
            around.add(call.parent)
    return tuple(recording.calls[number].name for number in found)


def parameters_of(kind: Any) -> tuple[str, ...]:
    """Return the names of positional arguments of a class's forward."""
    function = inspect.unwrap(kind.forward, stop=lambda one: hasattr(one, "__signature__"))
    if isinstance(function, types.FunctionType) and not hasattr(function, "__signature__"):
        code = function.__code__  # what inspect.signature would say of it, at a tenth of the time
        return code.co_varnames[1 : code.co_argcount]
    try:
        found = list(inspect.signature(kind.forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(one.name for one in found if one.kind in positional)


def tensors_in(value: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of nested tuples, lists, dicts and dataclasses, and where they are."""
    found: list[tuple[str, torch.Tensor]] = []
    _gather(value, "", _DEEPEST, found)
    return found


def _gather(value: Any, label: str, levels: int, found: list[tuple[str, torch.Tensor]]) -> None:
    import torch

    if isinstance(value, torch.Tensor):
        if is_tensor(value):
            found.append((label, value))
        return
    inner: Iterable[tuple[Any, Any]] = ()
    if not levels:
        return
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        inner = zip(value._fields, value, strict=True)
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    elif is_dataclass(value) and not isinstance(value, type):
        inner = ((each.name, getattr(value, each.name)) for each in fields(value))
    for name, one in inner:
        if not isinstance(one, _SCALARS):
            _gather(one, f"{label}.{name}" if label else str(name), levels - 1, found)


def is_tensor(value: Any) -> bool:
    """Return whether it is a tensor that an array can hold."""
    import torch

    if not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not value.is_quantized and not value.is_meta


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor as an array, which may share its memory; bfloat16 and float8 as types of ``ml_dtypes``.

    Examples
    --------
    >>> import torch
    >>> to_numpy(torch.ones(2, dtype=torch.bfloat16)).dtype
    dtype(bfloat16)
    """
    import torch

    foreign = _foreign(tensor.dtype)
    plain = tensor.detach()
    if not plain.is_cpu or plain.is_conj() or plain.is_neg():
        plain = plain.cpu().resolve_conj().resolve_neg()
    plain = plain.contiguous()
    if foreign is None:
        array: NDArray[Any] = plain.numpy()
        return array
    raw = {1: torch.uint8, 2: torch.int16}[plain.element_size()]
    seen: NDArray[Any] = plain.view(raw).numpy().view(foreign)
    return seen


@functools.cache
def _foreign(dtype: torch.dtype) -> Any:
    """Return the type of ``ml_dtypes`` that numpy lacks; None if it has it."""
    return getattr(ml_dtypes, str(dtype).removeprefix("torch."), None)


# --- exporting ------------------------------------------------------------------------------------------------------


# --- marks ----------------------------------------------------------------------------------------------------------
