"""Find the smallest part of a model on which a check still fails, by bisection over captured values.

The nodes are in order of execution. Bisection finds the last that the failure needs, then the last of those before it
that this one needs, and so on. A part runs on the values that its inputs had in the whole model, so that it needs none
of the nodes before it.
"""

from __future__ import annotations

import ast
import bisect
import inspect
import io
import math
import os
import shlex
import subprocess
import tempfile
import time
import types
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from onnx_nb.analysis import results
from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import CaptureError, ExtractionError, ModelFileError, OnnxNbError
from onnx_nb.analysis.formatting import count_text, duration_text, quoted, shape_text, shortened
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load
from onnx_nb.analysis.model.save import folder_at, together
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.run.capture import Capture, capture
from onnx_nb.analysis.run.session import one_feed
from onnx_nb.analysis.submodel.assembly import assemble, type_of_result
from onnx_nb.analysis.submodel.extraction import ports

Check = Callable[[Model, dict[str, Any]], bool]
"""A function of a submodel and its feeds that is true where all is right, and false where the fault shows."""

_UNKNOWN: Final = 125
"""Exit code of a command that cannot tell, as for ``git bisect run``."""
_NOT_FOUND: Final = (126, 127)
"""Exit codes of a shell that finds no such command."""
_FEW: Final = 32
"""Nodes; each of so few is left out once more in the end, as the check may not be monotone."""
_AGAIN: Final = 2
"""Calls of the check on the smallest part in the end, to find out whether it always fails."""
_FAILING: Final = 8
"""Maximum number of nodes that may fail in the capture."""


@dataclass(frozen=True)
class Trial:
    """One call of the check."""

    phase: str
    """"whole", "search", "each" (of few nodes left out) or "again"."""
    nodes: int
    inputs: int
    outputs: int
    result: str
    """"fails", "passes", "raises" (the check itself did) or "no model" (the nodes could not be made a model)."""
    seconds: float
    why: str
    """The error that was raised, or the last line that a command wrote; empty if there is none."""


@dataclass(frozen=True, eq=False, repr=False)
class Reduction(results.Table, results.Displayed):
    """The smallest part of a model on which a check fails, with its inputs. Made by `reduce`."""

    model: Model
    """The part, as a model that runs."""
    feeds: Mapping[str, Any]
    """The value of each of its inputs in the whole model."""
    nodes: tuple[str, ...]
    """Its nodes, as ``Conv '/stem/Conv'``, without constant ones."""
    total: int
    """Number of nodes of the whole model."""
    trials: tuple[Trial, ...]
    """Calls of the check, in order."""
    failures: tuple[int, int]
    """How often the check failed on the part, and how often it was called on it; they differ if the check is flaky."""
    minimal: bool
    """Whether the check passes without any single one of the nodes."""
    interrupted: bool
    """Whether the search was interrupted, so that a smaller part may fail."""
    note: str
    """What else limited the search; empty if nothing did."""
    check: Check | str
    """The check that was given."""

    @property
    def flaky(self) -> bool:
        """Whether the check did not fail each time it was called on the part."""
        return self.failures[0] < self.failures[1]

    @property
    def message(self) -> str:
        """The nodes on which the check fails, and how far they can be trusted."""
        names = ", ".join(self.nodes[:4]) + (f" and {len(self.nodes) - 4} more" if len(self.nodes) > 4 else "")
        calls = count_text(sum(trial.result != "no model" for trial in self.trials), "call")
        text = f"The check fails on {len(self.nodes)} of {count_text(self.total, 'node')}: {names} ({calls})."
        if self.flaky:
            text += f" But it is flaky: on this part it failed in {self.failures[0]} of {self.failures[1]} calls."
        reasons = [trial.why for trial in self.trials if trial.result == "raises"]
        if reasons:
            calls = count_text(len(reasons), "call")
            text += f" It raised in {calls}, which count as passed: {shortened(reasons[-1], 120)}"
        if self.interrupted:
            text += " The search was interrupted: a smaller part may fail."
        return f"{text} {self.note}".rstrip()

    def __repr__(self) -> str:
        return f"Reduction({len(self.nodes)} of {count_text(self.total, 'node')}, {len(self.trials)} trials)"

    def __str__(self) -> str:
        return f"{self.message}\nsave(folder) writes the part, its inputs and a script that shows the failure."

    _columns = ("phase", "nodes", "inputs", "outputs", "result", "seconds", "why")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each call of the check."""
        return [{name: getattr(trial, name) for name in self._columns} for trial in self.trials]

    def _panel(self) -> results.Panel:
        """Return the widget that shows the part, below the still."""
        return results.Panel("graph.ModelView", (self.model,), shows_result=False)

    def _still(self) -> results.Still:
        rows = [
            (name, *(("absent", "") if value is None else (str(np.asarray(value).dtype), shape_text(np.shape(value)))))
            for name, value in self.feeds.items()
            if not isinstance(value, list | tuple)
        ]
        steps = (
            '`.save("folder")` writes model.onnx, inputs.npz and run.py, which exits with 1 if the check fails.',
            "`onnx_nb.capture(part.model, part.feeds)` looks at each value inside the part.",
            f"`.rows()` lists {count_text(len(self.trials), 'trial')}, each with what the check said.",
        )
        heads = ("Trial", "Result", "Why", "Nodes", "Inputs", "Time")
        trials = [
            (row.phase, row.result, row.why, f"{row.nodes:,}", f"{row.inputs:,}", duration_text(row.seconds))
            for row in self.trials
        ]
        alarms = [trial.result == "fails" for trial in self.trials]
        inputs = results.StillTable(("Input", "Type", "Shape"), rows, "input", 3)
        calls = results.StillTable(heads, trials, "trial", 3, "Calls of the check", alarms)
        return results.Still(self.message, tables=(inputs, calls), steps=steps)

    def save(self, folder: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Write a folder that shows the failure, and return its path.

        Parameters
        ----------
        folder
            Receives ``model.onnx``, ``inputs.npz`` and ``run.py``, which exits with 1 if the check still fails.
        progress
            As for `reduce`.

        Raises
        ------
        ModelFileError
            If a file cannot be written.
        """
        place = folder_at(Path(folder))
        self.model.save(place / "model.onnx")
        with together(stage(progress, 0.5, 1.0)) as files:
            files.add(place / "inputs.npz", [_npz(self.feeds)])
            files.add(place / "run.py", [_script(self).encode()])
        return place


@known_arguments
def reduce(
    model: ModelLike,
    check: Check | str,
    feeds: Any = None,
    *,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    subprocess: bool = False,
    progress: Progress | None = None,
) -> Reduction:
    """Find the smallest part of a model on which a check still fails.

    The check is called on fewer and fewer nodes: about log2(n) times for each of n nodes that the failure needs. Each
    part is a model with inputs from a run of the whole.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    check
        A function of a `Model` and its feeds (a dict of arrays). It returns ``True`` where all is right, and ``False``
        where the fault shows. An error that it raises on a part counts as passed, since it may be another fault. Or a
        command, such as ``"python check.py {model} {feeds}"``, where ``{model}`` and ``{feeds}`` are the paths of a
        .onnx and a .npz file: it exits with 0 where all is right, with 125 where it cannot tell, and with anything
        else, or by a signal, where the fault shows.
    feeds, shapes
        One feed of the whole model, as `read_feeds` takes it; random values if ``None``, whose sizes ``shapes`` gives.
    subprocess
        Do this run in a separate process, for a model that crashes.
    progress
        Called before each step with the fraction done and the next step; an error that it raises ends the search.

    Returns
    -------
    Reduction
        After Ctrl-C, the smallest part found so far.

    Raises
    ------
    OnnxNbError
        If the check does not fail on the whole model, or raises there.
    FeedError
        If a feed does not fit the model.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] y) { a = Neg(x)  b = Log(a)  c = Exp(b)  y = Neg(c) }''')
    >>> def check(part, feeds):
    ...     return not any(np.isnan(each).any() for each in onnx_nb.run(part, feeds).values())
    >>> import onnx_nb
    >>> found = reduce(model, check, {"x": np.array([1, -1], np.float32)})
    >>> print(found.message)
    The check fails on 1 of 4 nodes: Log (6 calls).
    >>> found.feeds
    {'a': array([-1.,  1.], dtype=float32)}
    """
    whole = load(model)
    search = _Search(whole, check, one_feed(whole, feeds, shapes), progress)
    search.check_whole()
    is_partial = False
    try:
        search.captured(subprocess=subprocess, progress=stage(progress, 0.0, 0.2))
        search.run()
    except KeyboardInterrupt:
        is_partial = True
    return search.result(is_partial=is_partial)


class _Search:
    def __init__(self, model: Model, check: Check | str, feed: dict[str, Any], progress: Progress | None) -> None:
        self.graph = Graph.of(model)
        self._check, self._given, self._feed = _Command(check) if isinstance(check, str) else check, check, feed
        self._progress = progress
        self._flow = Flow.of(self.graph)
        ancestors = self._flow.ancestors(self.graph.outputs.tolist())
        self._nodes = [node for node in self._flow.sorted(ancestors) if self._flow.runtime[node]]
        self._trials: list[Trial] = []
        self._known: dict[frozenset[int], bool] = {}
        self._capture: Capture | None = None
        self._phase = "whole"
        self._best: tuple[list[int], Model, dict[str, Any]] = (self._nodes, model, feed)
        self._failures, self._minimal, self._note = (1, 1), False, ""
        self._error: Exception | None = None

    def check_whole(self) -> None:
        """Call the check on the whole model, where it has to fail."""
        _, model, feed = self._best
        result, why = self._call(model, feed, len(self._nodes), len(self.graph.outputs))
        if result == "raises":
            if isinstance(self._error, OnnxNbError) and isinstance(self._given, str):
                raise self._error
            message = f"the check raises on the whole of {label_of(model)}: {why}"
            advice = "Return True or False; where the error is the fault that you look for, catch it and return False."
            raise OnnxNbError(f"{message.rstrip('.')}.", advice=advice) from self._error
        if result == "passes":
            message = f"the check does not fail on the whole of {label_of(model)}."
            advice = "Give the feeds with which it fails. It returns False, or exits with 1, where the fault shows."
            raise OnnxNbError(message, advice=advice)
        self._known[frozenset(self._nodes)] = True

    def captured(self, *, subprocess: bool, progress: Progress | None) -> None:
        """Run the model and keep its values, except those behind nodes that fail."""
        graph, failing = self.graph, list[int]()
        options: dict[str, Any] = {"subprocess": subprocess, "progress": progress}
        while values := self._values_before(failing):
            try:
                self._capture = capture(graph.model, self._feed, tensors=values, keep="*", **options)
            except CaptureError as error:
                node = graph.names.index(error.node) if error.node in graph.names and error.node else -1
                if node < 0 or node in failing or len(failing) == _FAILING:
                    why = shortened(error.message, 200).rstrip(".")
                    self._note = f"No value was captured, so that all parts begin at the inputs: {why}."
                    return
                failing.append(node)
                labels = graph.node_labels(failing)
                self._note = f"Nodes behind {labels} have no values, and were only left out together."
            else:
                return

    def _values_before(self, failing: Iterable[int]) -> list[str]:
        """Return the names of values that depend on none of the nodes that fail."""
        graph, behind, names = self.graph, set(failing), list[str]()
        for node in self._nodes:
            if node in behind or any(self._flow.producer[value] in behind for value in self._flow.reads(node)):
                behind.add(node)
            else:
                names += [graph.value_names[value] for value in graph.results(node)]
        return names

    def run(self) -> None:
        """Find the nodes that the failure needs; then try each of few again."""
        self._phase, culprits, before = "search", list[int](), self._nodes
        while before and not (culprits and self._fails(culprits)):
            counts = range(1, len(before))
            last = bisect.bisect_left(counts, x=True, key=lambda count: self._fails([*before[:count], *culprits]))
            culprits, before = [before[last], *culprits], before[:last]
        self._fails(culprits)
        smallest = self._best[0]
        self._phase = "each"
        while 1 < len(smallest) <= _FEW:
            if not any(self._fails([candidate for candidate in smallest if candidate != node]) for node in smallest):
                break
            smallest = self._best[0]
        self._minimal = len(smallest) <= _FEW
        self._phase = "again"
        nodes, model, feed = self._best
        again = [self._call(model, feed, len(nodes), len(model.outputs))[0] for _ in range(_AGAIN)]
        self._failures = (1 + again.count("fails"), 1 + _AGAIN)

    def _fails(self, some: Iterable[int]) -> bool:
        """Return whether the check fails on some nodes; a part that is no model does not."""
        nodes = self._flow.sorted(some)
        key = frozenset(nodes)
        if key in self._known:
            return self._known[key]
        try:
            model, feed = self._part(nodes)
        except OnnxNbError as error:
            self._trials.append(Trial(self._phase, len(nodes), 0, 0, "no model", 0.0, error.message))
            self._known[key] = False
            return False
        self._known[key] = self._call(model, feed, len(nodes), len(model.outputs))[0] == "fails"
        if self._known[key] and len(nodes) < len(self._best[0]):
            self._best = nodes, model, feed
        return self._known[key]

    def _part(self, nodes: list[int]) -> tuple[Model, dict[str, Any]]:
        """Return nodes, with the constant ones that they read, as a model, and the values of its inputs."""
        graph, flow = self.graph, self._flow
        inputs, outputs = ports(graph, nodes)
        read = {value for node in nodes for value in flow.reads(node) if flow.producer[value] >= 0}
        constants = [value for value in read if not flow.runtime[flow.producer[value]]]
        feed = {graph.value_names[value]: self._value(value) for value in inputs}
        types = {}
        for value in (*inputs, *outputs):
            name = graph.value_names[value]
            array = feed.get(name)
            if array is None and self._capture is not None and name in self._capture.array_names:
                array = self._capture[name]
            if isinstance(array, np.ndarray) and not graph.type_of(value).dtype:
                types[value] = type_of_result(array)
        name = f"{graph.model.name}, {count_text(len(nodes), 'node')} of {len(self._nodes)}"
        members = {*nodes, *flow.ancestors(constants)}
        return assemble(graph.model, members, inputs, outputs, name=name, types=types), feed

    def _value(self, value: int) -> Any:
        name = self.graph.value_names[value]
        if self._flow.producer[value] < 0:
            return self._feed.get(name)
        if self._capture is None or name not in self._capture.array_names:
            raise ExtractionError(f"{quoted(name)} has no value.")
        array = self._capture[name]
        if not isinstance(array, np.ndarray):
            raise ExtractionError(f"{quoted(name)} is a sequence, which is no input that can be saved.")
        return array

    def _call(self, model: Model, feed: Mapping[str, Any], nodes: int, outputs: int) -> tuple[str, str]:
        if self._progress is not None:
            smallest = math.log2(len(self._best[0])) / max(math.log2(len(self._nodes)), 1.0)
            what = f"the check on {count_text(nodes, 'node')}; the smallest that fails has {len(self._best[0])}"
            self._progress(0.2 + 0.8 * (1 - smallest) * 0.99, what)
        began, why = time.perf_counter(), ""
        try:
            right = self._check(model, dict(feed))
        except Exception as error:  # noqa: BLE001 (a person's function, which may raise anything)
            self._error = error
            result, why = "raises", f"{type(error).__name__}: {error}"
        else:
            if not isinstance(right, bool | np.bool_):
                message = f"the check returns {type(right).__name__}, not True or False."
                raise OnnxNbError(message, advice="Return True where all is right, and False where the fault shows.")
            result, why = ("passes" if right else "fails"), getattr(self._check, "said", "")
        self._trials.append(Trial(self._phase, nodes, len(feed), outputs, result, time.perf_counter() - began, why))
        return result, why

    def result(self, *, is_partial: bool) -> Reduction:
        nodes, model, feed = self._best
        part = model, feed, tuple(map(self.graph.node_label, nodes)), len(self._nodes), tuple(self._trials)
        return Reduction(*part, self._failures, self._minimal, is_partial, self._note, self._given)


class _Command:
    def __init__(self, command: str) -> None:
        self._command, self._words = command, shlex.split(command)
        self.said = ""
        """The last line that it wrote to standard error, or else to standard output."""
        if not any("{model}" in word for word in self._words):
            message = f"{quoted(command)} does not say where the model goes."
            raise OnnxNbError(message, advice='Write {model} for its path, such as "python check.py {model} {feeds}".')

    def __call__(self, model: Model, feeds: dict[str, Any]) -> bool:
        with tempfile.TemporaryDirectory(prefix="onnx_nb-") as folder:
            model_path, feeds_path = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
            model.save(model_path)
            feeds_path.write_bytes(_npz(feeds))
            words = (word.replace("{model}", str(model_path)) for word in self._words)
            line = [word.replace("{feeds}", str(feeds_path)) for word in words]
            try:
                ran = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            except OSError as error:
                message = f"{quoted(self._words[0])} cannot be run: {error.strerror or error}"
                raise OnnxNbError(f"{message}.", advice="Is it installed, and on the PATH?") from error
        lines = (ran.stderr.strip() or ran.stdout.strip()).decode(errors="replace").splitlines()
        self.said = shortened(lines[-1].strip(), 200) if lines else ""
        if ran.returncode == _UNKNOWN or ran.returncode in _NOT_FOUND:
            message = f"{quoted(shortened(self._command, 80))} exits with {ran.returncode}"
            raise OnnxNbError(f"{message}: {self.said}" if self.said else f"{message}.")
        return ran.returncode == 0


def _npz(feeds: Mapping[str, Any]) -> bytes:
    """Return arrays as a .npz file; optional inputs that are absent are left out."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:  # numpy.savez has names of its own, which no input could have
        for name, value in feeds.items():
            if isinstance(value, list | tuple):
                message = f"input {quoted(name)} is a sequence, which no .npz file holds."
                raise ModelFileError(message, advice="Save .model and .feeds by yourself.")
            if value is not None:
                array = np.asarray(value)
                array = array.astype(str) if array.dtype.kind == "O" else array
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    return data.getvalue()


# --- the script -----------------------------------------------------------------------------------------------------

_SCRIPT: Final = '''"""Check model.onnx on inputs.npz: {what}

Exits with 1 if the check still fails.
"""

from pathlib import Path

{check}

here = Path(__file__).parent
{run}
print("passes" if right else "fails")
raise SystemExit(not right)
'''
_CALL: Final = """model = onnx_nb.load(here / "model.onnx")
feeds = next(onnx_nb.read_feeds(model, here / "inputs.npz"))
right = check(model, feeds)"""
_COMMAND: Final = """model, feeds = str(here / "model.onnx"), str(here / "inputs.npz")
command = [word.replace("{{model}}", model).replace("{{feeds}}", feeds) for word in {words!r}]
right = subprocess.run(command).returncode == 0"""


def _script(reduction: Reduction) -> str:
    what = f"{count_text(len(reduction.nodes), 'node')} of {reduction.total}.".replace("\\", "/").replace('"', "'")
    if isinstance(reduction.check, str):
        run = _COMMAND.format(words=shlex.split(reduction.check))
        return _SCRIPT.format(what=what, check="import subprocess", run=run)
    return _SCRIPT.format(what=what, check=f"import onnx_nb\n{_source(reduction.check)}", run=_CALL)


def _source(check: Check) -> str:
    """Return the source of a function, after what it reads from its module; how to get it, if it is not found."""
    function = inspect.unwrap(check)
    definition = _defined(function)
    if isinstance(definition, ast.FunctionDef):
        arguments = definition.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            argument.annotation = None  # may need names that only a type checker imports
        definition.returns, definition.decorator_list = None, []
        body = ast.unparse(definition) + ("" if definition.name == "check" else f"\n\n\ncheck = {definition.name}")
    elif definition is not None:
        body = f"check = {ast.unparse(definition)}"
    else:
        body = 'def check(model, feeds):\n    raise NotImplementedError("the source of the check was not found")'
    lines = []
    for name, value in _read_by(function).items():
        module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if name in ("onnx_nb", getattr(function, "__name__", "")):
            continue
        if isinstance(value, types.ModuleType):
            lines.append(f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}"))
        elif isinstance(value, bool | int | float | str | bytes | tuple | None):
            lines.append(f"{name} = {value!r}")
        elif module not in (None, "__main__", "builtins") and qualname.isidentifier():
            lines.append(f"from {module} import {qualname}" + ("" if qualname == name else f" as {name}"))
        else:
            lines.append(f"{name} = ...  # {type(value).__name__}: the check reads it; write it here")
    return "\n".join([*lines, "", "", body])


def _defined(function: Any) -> ast.FunctionDef | ast.Lambda | None:
    """Return the definition of a function; None if it is not found, or shares its line with another one."""
    try:
        lines, _ = inspect.findsource(function)
        tree = ast.parse("".join(lines))
    except (OSError, TypeError, SyntaxError):
        return None
    line = function.__code__.co_firstlineno
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    starts = [min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))]) for node in nodes]
    definitions = [node for node, start in zip(nodes, starts, strict=True) if start == line]
    return definitions[0] if len(definitions) == 1 else None


def _read_by(function: Any) -> dict[str, Any]:
    """Return what a function, or one inside it, reads from its module and from functions around it."""
    try:
        closure = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return {}
    values: dict[str, Any] = {**closure.globals, **closure.nonlocals}
    for code in (constant for constant in function.__code__.co_consts if isinstance(constant, types.CodeType)):
        values |= {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    return values
