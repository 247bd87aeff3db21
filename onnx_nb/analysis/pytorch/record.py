"""Run a torch module once and record the inputs and outputs of every submodule call.

Recording uses forward hooks and removes them afterwards, so the module's code need not change. torch is imported only
when it is used: everything else works without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.formatting import bytes_text, closest_text, quoted
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.model.storage import available_memory
from onnx_nb.analysis.model.tensors import listed
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.pytorch.module_scopes import line_text, running_place
from onnx_nb.analysis.run.feeds import to_numpy
from onnx_nb.analysis.run.value_recorder import Store, unspilled

if TYPE_CHECKING:
    import torch

Run: TypeAlias = "tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]"
"""Module, args and kwargs."""
_DEEPEST: Final = 16
"""Maximum number of levels of nested lists, dicts and dataclasses that are searched for tensors."""
_MOST: Final = 2000
"""Maximum number of aten operations of a call."""
_SCALARS: Final = (int, float, str, type(None))
"""Types of most arguments that are not tensors."""

ATTRIBUTES: Final[Mapping[str, tuple[str, Any]]] = {
    "eps": ("epsilon", 1e-5),
    "approximate": ("approximate", "none"),
    "negative_slope": ("alpha", 0.01),
    "alpha": ("alpha", 1.0),
    "dim": ("axis", None),
    "kernel_size": ("kernel_shape", None),
    "stride": ("strides", 1),
    "padding": ("pads", 0),
    "dilation": ("dilations", 1),
    "ceil_mode": ("ceil_mode", 0),
    "groups": ("group", 1),
    "padding_mode": ("", "zeros"),
}
"""Attribute of a submodule that is recorded → the attribute of an ONNX operator with the same meaning, its default."""


class Slot(NamedTuple):
    """One tensor among the inputs or outputs of a call."""

    label: str
    """Position: empty for a single tensor, else "0", "hidden_states.3" or the name of an argument."""
    value: int
    """Number of the value in the recording; a tensor that has not changed since keeps its number."""


@dataclass(frozen=True)
class ModuleCall:
    """One call of a submodule."""

    path: str
    """Path as in ``module.named_modules()``; empty for the module itself."""
    aliases: tuple[str, ...]
    """Other paths under which the submodule is registered."""
    cls: str
    """Class of the submodule, such as "Linear"."""
    index: int
    """Number of earlier calls of the same submodule."""
    parent: int
    """Index in `Recording.calls` of the calling submodule call; −1 for the outermost."""
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the submodule that an ONNX operator also has, such as ``eps``."""
    known: int = 0
    """Number of values recorded before the call, including its inputs."""
    root: str = "model"
    """Name of the module itself: "model", or its class if a submodule has that path."""

    @property
    def name(self) -> str:
        """The path, with "#2" for a second call; `root` for the module itself."""
        return f"{self.path or self.root}{f'#{self.index + 1}' if self.index else ''}"


class FunctionCall(NamedTuple):
    """A new tensor that a torch function or method in the ``forward`` of a submodule returned."""

    name: str
    """Name of the function, such as ``"add_"``, ``"softmax"`` or ``"scaled_dot_product_attention"``."""
    call: int
    """Index in `Recording.calls` of the calling submodule call."""
    source: str
    """Line of Python, such as ``modeling_bert.py:312``."""
    inputs: tuple[int, ...]
    """Numbers of the recorded values among its arguments; −1 for another tensor, unless it is a parameter or buffer."""
    value: int
    """Number of the value that it returned."""
    numbers: tuple[int, ...] = ()
    """Integers among its arguments, such as axes."""


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """Every submodule call of one forward pass with its values, as returned by `record`.

    ``recording["encoder.layer.1"]`` is an output as an array.

    Examples
    --------
    >>> import torch
    >>> recording = record(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()).eval(), torch.ones(1, 2))
    >>> recording
    Recording(Sequential, 3 calls, 3 values, 32 B)
    >>> [(call.name, call.cls, recording["1"].shape) for call in recording.calls if call.path == "1"]
    [('1', 'ReLU', (1, 3))]
    """

    cls: str
    """Class of the module."""
    calls: tuple[ModuleCall, ...]
    """Calls in the order in which they began; the first is that of the module itself."""
    functions: tuple[FunctionCall, ...]
    """Function calls in the forwards of the submodules, recorded with ``functions=True``."""
    unstable: tuple[str, ...]
    """Names of calls whose outputs differed in a second run, innermost and earliest first; see ``repeat``."""
    random: tuple[str, ...]
    """Names of calls that drew random numbers in their own ``forward``, in order."""
    _contents: list[Any]
    _store: Store
    """Owner of the files that hold some of the values."""

    @functools.cached_property
    def nbytes(self) -> int:
        """Bytes of all recorded values."""
        return sum(self.value(number).nbytes for number in range(self.value_count))

    @property
    def value_count(self) -> int:
        """Number of distinct recorded values."""
        return len(self._contents)

    def value(self, number: int) -> NDArray[Any]:
        """Return a recorded value by its number, read-only; bfloat16 and float8 have dtypes of ``ml_dtypes``."""
        array: NDArray[Any] = unspilled(self._contents[number])
        return array

    def labeled(self) -> Iterator[tuple[FunctionCall, str]]:
        """Yield each function call with a label that is unique in its submodule call: "add()", "add()#2"."""
        count: Counter[tuple[int, str]] = Counter()
        for function in self.functions:
            count[function.call, function.name] += 1
            times = count[function.call, function.name]
            yield function, f"{function.name}(){f'#{times}' if times > 1 else ''}"

    def find_call(self, name: str) -> int:
        """Return the index in `calls` of the call with this name: a path or an alias, "shared#2" for a second call.

        "model" is the module itself; if a submodule has that path, the module itself has the name of its class.

        Raises
        ------
        AlignmentError
            If there is no such call.
        """
        return self._find(name)[0]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return an output of a submodule call or of a function call.

        A path means the first output of the first call, "shared#2" of the second call, "lstm → 1.0" the output with
        this label, and "layer.1 → add()" the result of a function.
        """
        number, value = self._find(name)
        if value is not None:
            return self.value(value)
        path, _, label = name.partition(" → ")
        what = f"output {quoted(label)}" if label else "tensor"
        labels = ", ".join(slot.label for slot in self.calls[number].outputs)
        advice = f"Its outputs: {labels}." if labels else "Ask for a submodule inside or around it."
        raise AlignmentError(f"submodule {quoted(path)} returned no {what}.", advice=advice)

    def _find(self, name: str) -> tuple[int, int | None]:
        """Return the index of the call with this name, and the number of the value that the name means, if any."""
        path, _, label = name.partition(" → ")
        matches: dict[int, int | None] = {}
        for number, call in enumerate(self.calls):
            if call.name == path or (not call.index and path in (call.path, *call.aliases)):
                matches[number] = next((slot.value for slot in call.outputs if not label or slot.label == label), None)
        for function, title in self.labeled() if label else ():
            if title == label and matches.get(function.call, 0) is None:
                matches[function.call] = function.value
        if not matches:
            message = f"no call of submodule {quoted(path)} was recorded."
            raise AlignmentError(message, advice=closest_text(path, [call.name for call in self.calls]))
        return min(matches.items(), key=lambda entry: (entry[1] is None, entry[0]))

    def __len__(self) -> int:
        return len(self.calls)

    def __repr__(self) -> str:
        counts = f"{len(self.calls):,} calls, {self.value_count:,} values"
        return f"Recording({self.cls}, {counts}, {bytes_text(self.nbytes)})"


@known_arguments
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
    """Run a module once and record the inputs and outputs of every submodule call.

    Shared and repeated submodules, tuples, dicts, dataclasses and in-place operations are supported. The module runs
    without gradients on its own device and is left unchanged, even if it raises.

    Parameters
    ----------
    module
        A module in eval mode; in train mode, dropout and batch normalization compute something that is never exported.
    args
        Positional arguments as a tuple, or a single tensor.
    kwargs
        Named arguments.
    functions
        Also record the results of functions and methods that a submodule calls in its own ``forward``, such as the
        sum of a residual connection.
    repeat
        Run the module a second time and warn about submodules whose outputs change; `Recording.unstable` names them.
    memory_limit
        Bytes of memory; recorded values take at most half of it, and the rest is written to temporary files. Half of
        the available memory if ``None``.
    progress
        Called before each submodule call with the estimated fraction done and the submodule. An exception that it
        raises ends the run.

    Returns
    -------
    Recording

    Raises
    ------
    TypeError
        If ``module`` is not a ``torch.nn.Module``, or is scripted by ``torch.jit``.
    Exception
        Whatever the module raises, with a note that names the submodule.

    Warns
    -----
    UserWarning
        If dropout or batch normalization is in train mode, if a second run computed other values, or, without a second
        run, if random numbers were drawn.

    Examples
    --------
    >>> import torch
    >>> recording = record(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 1)).eval(), torch.ones(1, 2, 2))
    >>> [call.name for call in recording.calls]
    ['model', '0', '1']
    """
    import torch

    module, args, kwargs = checked_arguments(module, args, kwargs)
    if isinstance(module, torch.jit.ScriptModule):
        message = f"{type(module).__name__} is scripted by torch.jit, and what it calls cannot be seen."
        raise TypeError(f"{message} Pass the module that was scripted.")
    batch_norm = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001 (the base of all of them)
    dropout = torch.nn.modules.dropout._DropoutNd  # noqa: SLF001 (the same)
    in_training = {
        name: f"{type(part).__name__} {quoted(name)}"
        for name, part in module.named_modules()
        if part.training and (isinstance(part, batch_norm) or (isinstance(part, dropout) and part.p > 0))
    }
    if in_training:
        verb = "does" if len(in_training) == 1 else "do"
        what = f"{listed(in_training.values(), str, 3)} {verb} not compute what the export does"
        message = f"{type(module).__name__} is in train mode: {what}. Call module.eval() first."
        warnings.warn(message, stacklevel=3)
    store = Store(available_memory() // 2 if memory_limit is None else memory_limit)
    half = 0.5 if repeat else 1.0
    first = _CallRecorder(module, store, None, stage(progress, 0.0, half))
    first.run(args, kwargs, functions=functions)
    unstable: list[str] = []
    if repeat:
        second = _CallRecorder(module, store, first.contents, stage(progress, half, 1.0))
        second.run(args, kwargs, functions=functions)
        around: set[int] = set()
        for number in second.ended:  # inner calls end before the calls around them
            if number < len(first.calls) and second.changes_by(call := first.calls[number]):
                unstable += [] if number in around else [call.name]
                around.add(call.parent)
    drew = (first.calls[number] for number in sorted(first.random))
    suspects = [f"{call.cls} {quoted(call.name)}" for call in drew if call.path not in in_training]
    who, what = suspects, "drew random numbers"
    advice = "Make it deterministic, or use repeat=True to see which values change."
    if repeat:
        who, what = list(map(quoted, unstable)), f"gave other values in a second run of {type(module).__name__}"
        advice = "Call module.eval(), or make it deterministic."
    if who:
        warnings.warn(f"{listed(who, str, 3)} {what}: this randomness will show as an error. {advice}", stacklevel=3)
    return first.recording(unstable)


def record_operations(run: Run, call: int, progress: Progress | None) -> Recording:
    """Run a module again and record the values and the aten operations of one call, with attention as its steps."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    module, args, kwargs = run
    recorder = _CallRecorder(module, Store(available_memory() // 2), None, progress, within=call)
    with sdpa_kernel(SDPBackend.MATH):
        recorder.run(args, kwargs, functions=True)
    return recorder.recording()


def checked_arguments(module: Any, args: Any, kwargs: Any) -> Run:
    """Return a module without the wrapper of torch.compile, its args as a tuple and its kwargs as a dict."""
    import torch

    module = getattr(module, "_orig_mod", module)  # inside the result of torch.compile
    if not isinstance(module, torch.nn.Module):
        what = type(module).__name__
        raise TypeError(f"expected a torch.nn.Module, not {what}. Wrap a function into a module with a forward.")
    arguments = tuple(args) if isinstance(args, list | tuple) else () if args is None else (args,)
    return module, arguments, dict(kwargs or {})


# --- hooks ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def watch(
    module: torch.nn.Module,
    before: Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], None] | None = None,
    after: Callable[[torch.nn.Module, Any], None] | None = None,
) -> Iterator[list[torch.nn.Module]]:
    """Call ``before(submodule, args, kwargs)`` and ``after(submodule, output)`` around every submodule call.

    Yields the list of running submodules, outermost first. Submodules that torch.jit scripted cannot have
    hooks. Nothing is called while dynamo traces a branch of ``torch.cond``. The hooks are removed on exit.
    """
    import torch

    running: list[torch.nn.Module] = []

    def begin(part: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.compiler.is_dynamo_compiling():
            if part is module:
                running.clear()
            running.append(part)
            if before is not None:
                before(part, args, kwargs)

    def end(part: torch.nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_dynamo_compiling():
            while running and running.pop() is not part:  # an inner call that raised, and whose caller caught it
                pass
            if after is not None:
                after(part, output)

    with contextlib.ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # torch's fused transformer layers call no submodules
        for part in module.modules():
            if not isinstance(part, torch.jit.ScriptModule):
                stack.enter_context(part.register_forward_pre_hook(begin, with_kwargs=True))
                stack.enter_context(part.register_forward_hook(end))
        yield running


def intercept(
    call: Callable[[Any, Any, Mapping[str, Any]], Any], *, aten: bool = False
) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which ``call(f, args, kwargs)`` runs in place of each torch function or aten operation f."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    def run(_mode: Any, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(function, args, kwargs or {})

    base, method = (TorchDispatchMode, "__torch_dispatch__") if aten else (TorchFunctionMode, "__torch_function__")
    mode: contextlib.AbstractContextManager[Any] = type(
        "Intercept", (base,), {method: run, "supports_higher_order_operators": True}
    )()
    return mode


class _CallRecorder:
    """Records one forward pass, or compares it with the recorded values ``reference`` of an earlier one."""

    def __init__(
        self,
        module: torch.nn.Module,
        store: Store,
        reference: list[Any] | None,
        progress: Progress | None,
        *,
        within: int | None = None,
    ) -> None:
        self.calls: list[ModuleCall] = []
        self.contents: list[Any] = []
        self.functions: list[FunctionCall] = []
        self.changed: set[int] = set()
        """Numbers of values that differ from ``reference``."""
        self.ended: list[int] = []
        """Indices of calls in the order in which they ended."""
        self.random: set[int] = set()
        """Indices of calls that drew random numbers outside their inner calls."""
        self._module, self._store, self._known, self._progress = module, store, reference, progress
        self._in_own_code = False
        """Whether onnx_nb itself is calling torch functions."""
        self._state = b""
        """State of the random generators when a call last began or ended."""
        self._stack: list[tuple[int, torch.nn.Module]] = []
        self._count: Counter[int] = Counter()
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], int, int]] = {}
        """Identity of a tensor → the tensor, its version and the number of its value."""
        self._within = within
        """Index of the call whose aten operations are recorded; None for all functions."""
        self._alive: list[torch.Tensor] = []
        """Tensors that live until the end, where aten operations are recorded."""
        self._constants = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
        self._names = followers((id(part), name) for name, part in module.named_modules(remove_duplicate=False))
        self._root = type(module).__name__ if any("model" in names for names in self._names.values()) else "model"

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, functions: bool) -> None:
        import torch

        watching = intercept(self._function, aten=self._within is not None) if functions else contextlib.nullcontext()
        with torch.no_grad(), watch(self._module, self._before, self._after), watching:
            try:
                self._module(*args, **kwargs)
            except Exception as error:
                if self._stack:
                    call = self.calls[self._stack[-1][0]]
                    error.add_note(f"raised in {call.cls} {quoted(call.path or 'the module itself')}")
                raise

    def recording(self, unstable: Iterable[str] = ()) -> Recording:
        random = tuple([self.calls[number].name for number in sorted(self.random)])
        of_run = tuple(self.calls), tuple(self.functions), tuple(unstable), random
        return Recording(type(self._module).__name__, *of_run, self.contents, self._store)

    def changes_by(self, call: ModuleCall) -> bool:
        """Return whether a call returned other values than in the earlier run for the same inputs."""
        outputs, inputs = ({slot.value for slot in slots} for slots in (call.outputs, call.inputs))
        return not self.changed.isdisjoint(outputs) and self.changed.isdisjoint(inputs)

    def _before(self, part: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path, *aliases = self._names[id(part)]
        cls = type(part).__name__
        if self._progress is not None:
            share = len(self.calls) / max(len(self._names), len(self.calls) + 1)
            self._progress(share, f"torch: {cls} {quoted(path or 'the module itself')}")
        with self._own_code():
            self._note_random_numbers()
            parent = self._stack[-1][0] if self._stack else -1
            self._stack.append((len(self.calls), part))
            tensors = tensors_in(labeled_arguments(type(part), args, kwargs)) if self._is_recorded() else []
            inputs = tuple([Slot(label, self._take(tensor)) for label, tensor in tensors])
            index = self._count[id(part)]
            self._count[id(part)] += 1
            attributes = {name: value for name in ATTRIBUTES if _is_plain(value := vars(part).get(name))}
            place = (path, tuple(aliases), cls, index, parent)
            self.calls.append(ModuleCall(*place, inputs, (), attributes, len(self.contents), self._root))

    def _after(self, part: torch.nn.Module, output: Any) -> None:
        with self._own_code():
            self._note_random_numbers()
            tensors = tensors_in(output) if self._is_recorded() else []
            number, top = self._stack.pop()
            while top is not part:  # an inner call that raised, and whose caller caught it
                number, top = self._stack.pop()
            self.ended.append(number)
            outputs = tuple([Slot(label, self._take(tensor)) for label, tensor in tensors])
            self.calls[number] = dataclasses.replace(self.calls[number], outputs=outputs)

    def _is_recorded(self) -> bool:
        """Return whether values are recorded now: always, or inside the call whose operations are."""
        return self._within is None or any(number == self._within for number, _ in self._stack)

    @contextlib.contextmanager
    def _own_code(self) -> Iterator[None]:
        """Keep our own use of tensors out of the recording."""
        import torch

        before, self._in_own_code = self._in_own_code, True
        try:
            with torch._C.DisableTorchFunction():  # noqa: SLF001 (torch has no other)
                yield
        finally:
            self._in_own_code = before

    def _note_random_numbers(self) -> None:
        """Note the innermost call if random numbers were drawn since a call last began or ended."""
        import torch

        state: bytes = torch.default_generator.get_state().numpy().tobytes()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            state += b"".join(generator.get_state().numpy().tobytes() for generator in torch.cuda.default_generators)
        if state != self._state and self._stack:
            self.random.add(self._stack[-1][0])
        self._state = state

    def _function(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call a torch function; record the tensors that it returns if they are new and have more than one element."""
        import torch

        if self._in_own_code or not self._stack or torch.compiler.is_dynamo_compiling() or not self._is_recorded():
            return function(*args, **kwargs)
        with self._own_code():
            values = (*args, *kwargs.values())
            tensors = [tensor for _, tensor in tensors_in(values) if id(tensor) not in self._constants]
            inputs = tuple([-1 if (number := self._number(tensor)) is None else number for tensor in tensors])
            items = [item for value in values for item in (value if isinstance(value, list | tuple) else (value,))]
            integers = tuple([item for item in items if isinstance(item, int) and not isinstance(item, bool)])
        output = function(*args, **kwargs)
        results = output if isinstance(output, list | tuple) else (output,)
        with self._own_code():
            # inside torch.vmap a tensor represents a batch and has no values of its own
            is_wrapper = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 (torch has no other)
            for tensor in results:
                if is_tensor(tensor) and tensor.numel() > 1 and not is_wrapper(tensor):
                    name, next_number = getattr(function, "__name__", "function"), len(self.contents)
                    if self._within is not None:
                        name = str(function).rpartition(".")[0] or str(function)  # torch.cond has no overloads
                    if self._take(tensor, changes=self._within is not None and name.endswith("_")) == next_number:
                        line = line_text(*place) if (place := running_place()) else ""
                        call = FunctionCall(name, self._stack[-1][0], line, inputs, next_number, integers)
                        self.functions.append(call)
        if self._within is not None and len(self.functions) > _MOST:
            what = quoted(self.calls[self._within].path or "the module")
            message = f"{what} has more than {_MOST:,} operations."
            raise AlignmentError(message, advice="Drill down into one of its submodules.")
        return output

    def _number(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor's value if it was recorded and has not changed since."""
        memo = self._seen.get(id(tensor))
        # below autograd, where aten operations run, a view has another version than above, and changes are recorded
        if memo is not None and memo[0]() is tensor and (self._within is not None or memo[1] == _version(tensor) >= 0):
            return memo[2]
        return None

    def _take(self, tensor: torch.Tensor, *, changes: bool = False) -> int:
        """Return the number of a tensor's value; a new value is copied, as it may be changed in place later.

        An aten operation that ``changes`` its argument counts as a change only after it returns.
        """
        import torch

        known_number = None if changes else self._number(tensor)
        if known_number is not None:
            return known_number
        number = len(self.contents)
        is_plain = type(tensor) is torch.Tensor  # a subclass may define its values by __torch_function__
        with contextlib.nullcontext() if is_plain else torch._C._EnableTorchFunction():  # noqa: SLF001 (the same)
            array = to_numpy(tensor)
        if self._known is None:
            self.contents.append(self._store.put(array))
        else:
            before = unspilled(self._known[number]) if number < len(self._known) else None
            kind = array.shape, array.dtype
            if before is None or (before.shape, before.dtype) != kind or before.tobytes() != array.tobytes():
                self.changed.add(number)
            self.contents.append(None)
        self._seen[id(tensor)] = (weakref.ref(tensor), _version(tensor) + changes, number)
        if self._within is not None:  # else torch may give the same tensor another identity between two operations
            self._alive.append(tensor)
        return number


def _version(tensor: torch.Tensor) -> int:
    """Return the number of in-place changes of a tensor; −1 if torch does not count them."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 (torch has no other)


def _is_plain(value: Any) -> bool:
    return all(isinstance(item, int | float | str) for item in (value if isinstance(value, tuple) else (value,)))


@functools.lru_cache(256)
def _parameters_of(cls: Any) -> tuple[str, ...]:
    try:
        parameters = list(inspect.signature(cls.forward).parameters.values())[1:]
    except (AttributeError, TypeError, ValueError):  # a class of torch.jit has no forward of its own
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(one.name for one in parameters if one.kind in positional)


def labeled_arguments(cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a module of class ``cls`` by their parameters."""
    names = _parameters_of(cls)
    more = {str(place): value for place, value in enumerate(args[len(names) :])}
    return {**dict(zip(names, args, strict=False)), **more, **kwargs}


def tensors_in(value: Any, label: str = "", levels: int = _DEEPEST) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors in nested tuples, lists, dicts and dataclasses, each with its position as a label."""
    import torch

    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, torch.Tensor):
        return [(label, value)] if is_tensor(value) else []
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        inner = zip(value._fields, value, strict=True)
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    elif is_dataclass(value) and not isinstance(value, type):
        inner = ((entry.name, getattr(value, entry.name)) for entry in fields(value))
    tensors: list[tuple[str, torch.Tensor]] = []
    for name, item in inner if levels else ():
        if not isinstance(item, _SCALARS):
            tensors += tensors_in(item, f"{label}.{name}" if label else str(name), levels - 1)
    return tensors


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor that numpy can hold: strided, not quantized, with data."""
    import torch

    is_dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return is_dense and not value.is_quantized and not value.is_meta
