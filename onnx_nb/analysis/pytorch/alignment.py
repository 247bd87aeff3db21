"""Which tensor of an ONNX model carries which output of a recorded module call; `align` finds it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnx_nb.analysis.errors import AlignmentError, FeedError
from onnx_nb.analysis.formatting import closest_text, quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import GRAPH_INPUT, INITIALIZER, NODE_OUTPUT
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.model.tensors import input_types, numpy_dtype
from onnx_nb.analysis.results import Table
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.feeds import validate_feeds
from onnx_nb.analysis.run.windows import Sink

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.pytorch.record import Recording
    from onnx_nb.analysis.run.session import Value

FORMAT: Final = 1
"""Version of the files that `Alignment.save` writes."""


@dataclass(frozen=True)
class Match:
    """One output of a module call, and the ONNX tensor that carries it."""

    path: str
    """Path of the submodule, as in ``module.named_modules()``."""
    call: int
    """Number of its earlier calls."""
    output: str
    """Label of the output, as in `Slot.label`."""
    cls: str
    """Class of the submodule."""
    tensor: str
    """Name of the ONNX tensor; empty if there is none."""
    how: str
    """How it was found: "output" (of the model), "input", "scope", "value" (values broke a tie), "folded" (the nodes of
    another module include this one), "equal" (another call computed the same), "constant" (a weight), "inputs" (of a
    function: its node reads the function's arguments), "suffix" (see `Alignment.on`); empty if there is no tensor."""
    why: str = ""
    """Reason why there is no tensor."""
    function: str = ""
    """Function that returned the value in the ``forward`` of the submodule, such as "add_"; empty for an output."""
    source: str = ""
    """Line of Python that called the function, such as ``modeling_bert.py:312``."""
    exported: str = ""
    """Name of its tensor in the export if `Alignment.on` found another one or none; else empty."""

    @property
    def name(self) -> str:
        """Name of the output: "encoder.layer.1", "shared#2", "lstm → 1.0"."""
        call = f"#{self.call + 1}" if self.call else ""
        return f"{self.path or 'model'}{call}{f' → {self.output}' if self.output else ''}"


Pairs: TypeAlias = Mapping[int, tuple[int, Match]]
"""Number of a recorded value → tensor and match."""


@dataclass(frozen=True, eq=False, repr=False)
class Alignment(Table):
    """Which output of which module call is which tensor, as returned by `align`.

    ``alignment["encoder.layer.1"]`` is a `Match`.

    Examples
    --------
    >>> import torch, onnx_nb
    >>> module, x = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()).eval(), torch.ones(1, 2)
    >>> found = onnx_nb.align(onnx_nb.record(module, x), onnx_nb.export(module, x, exporter="torchscript"))
    >>> found
    Alignment(3 of 3 module outputs)
    >>> found["0"].tensor
    '/0/Gemm_output_0'
    """

    matches: tuple[Match, ...]
    """Outputs in the order in which the calls began, then the recorded functions that have a tensor."""

    def __getitem__(self, name: str) -> Match:
        for match in self.matches:
            if match.name == name or (match.path == name and not match.call and not match.function):
                return match
        message = f"no output of a submodule {quoted(name)} was recorded."
        raise AlignmentError(message, advice=closest_text(name, [match.name for match in self.matches]))

    def __len__(self) -> int:
        return len(self.matches)

    @property
    def matched(self) -> tuple[Match, ...]:
        """Matches with a tensor."""
        return tuple(match for match in self.matches if match.tensor)

    @property
    def unmatched(self) -> tuple[Match, ...]:
        """Matches without a tensor; `Match.why` is the reason."""
        return tuple(match for match in self.matches if not match.tensor)

    def __repr__(self) -> str:
        functions = sum(bool(match.function) for match in self.matches)
        more = f", {functions:,} functions" if functions else ""
        outputs = len(self.matches) - functions
        return f"Alignment({outputs - len(self.unmatched):,} of {outputs:,} module outputs{more})"

    _columns = ("name", *Match.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return a dict for each match."""
        return [{"name": match.name, **asdict(match)} for match in self.matches]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the alignment as JSON, for later use with models made from the export by tools that drop its names.

        Raises
        ------
        ModelFileError
            If the file cannot be written.
        """
        file = Path(path)
        content = {"format": FORMAT, "kind": "onnx_nb alignment", "matches": [asdict(match) for match in self.matches]}
        with together() as files:
            files.add(file, [(json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()])
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Alignment:
        """Read a file that `save` wrote.

        Raises
        ------
        AlignmentError
            If the file is something else.
        """
        file = Path(path)
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["kind"] != "onnx_nb alignment" or content["format"] > FORMAT:
                raise AlignmentError(f"{quoted(str(file))} is of another kind, or of a later version of onnx_nb.")
            return cls(tuple(Match(**match) for match in content["matches"]))
        except OSError as error:
            message = f"{quoted(str(file))} cannot be read: {error.strerror}."
            raise AlignmentError(message, advice="Write it with alignment.save(path).") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"{quoted(str(file))} is no alignment that onnx_nb wrote."
            raise AlignmentError(message, advice="Write it with alignment.save(path).") from error

    def on(self, model: ModelLike) -> Alignment:
        """Return the alignment of a model made from the aligned one: optimized, float16, or quantized.

        Tensors are found by name. The dequantized copy of a quantized tensor is preferred, because quantization may
        include the operator before it, such as a Relu.
        """
        graph = Graph.of(load(model))
        names = graph.value_names
        made = {names[value] for value in main_values(graph) if graph.value_kind[value] in (NODE_OUTPUT, GRAPH_INPUT)}
        found = []
        for match in self.matches:
            suffixed = (f"{match.tensor}{suffix}" for suffix in ("_DequantizeLinear_Output", "_DequantizeLinear", ""))
            tensor = next((name for name in suffixed if name in made), "") if match.tensor else ""
            why = match.why if not match.tensor or tensor else f"tensor {quoted(match.tensor)} is not in this model"
            how = match.how if tensor == match.tensor else "suffix" if tensor else ""
            exported = "" if tensor == match.tensor else match.exported or match.tensor
            found.append(dataclasses.replace(match, tensor=tensor, how=how, why=why, exported=exported))
        return Alignment(tuple(found))

    def pairs(self, recording: Recording, graph: Graph) -> dict[int, tuple[int, Match]]:
        """Return number of a recorded value → its tensor and the match of the innermost call that made it."""
        calls = recording.calls
        slots = {
            (call.path, call.index, slot.label): (number, slot.value)
            for number, call in enumerate(calls)
            for slot in call.outputs
        }
        functions = {
            (calls[each.call].path, calls[each.call].index, label): (each.call, each.value)
            for each, label in recording.labeled()
        }
        tensors = {graph.value_names[value]: value for value in main_values(graph)}
        inputs = {slot.value for slot in calls[0].inputs}
        found: dict[int, tuple[int, Match]] = {}
        deepest: dict[int, int] = {}
        for match in self.matched:
            place = (functions if match.function else slots).get((match.path, match.call, match.output))
            if place is None or match.tensor not in tensors:
                continue
            (call, number), value = place, tensors[match.tensor]
            if number in inputs or graph.value_kind[value] not in (NODE_OUTPUT, INITIALIZER):
                continue
            passed_through = any(slot.value == number for slot in calls[call].inputs)
            if number not in found or (call > deepest[number] and not passed_through):
                found[number] = value, match
                deepest[number] = call
        return dict(sorted(found.items()))


def main_values(graph: Graph) -> list[int]:
    """Return the values of the main graph."""
    values: list[int] = np.flatnonzero(graph.value_subgraph == 0).tolist()
    return values


def feeds_of(recording: Recording, model: Model, feeds: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the model's inputs with the recorded arguments: by name, else in order; ``feeds`` instead if given."""
    if feeds is not None:
        return validate_feeds(model, feeds)
    inputs = input_types(model)
    needed = [name for name in inputs if name not in model.initializers]
    given = {slot.label: recording.value(slot.value) for slot in recording.calls[0].inputs}
    found = {name: given.pop(name) for name in needed if name in given}
    rest = [name for name in needed if name not in found]
    if len(given) < len(rest):
        message = f"inputs {', '.join(map(quoted, rest[:4]))} of {model.name} are no arguments of {recording.cls}."
        raise FeedError(message, advice="Pass the inputs of the model as feeds=.")
    found |= dict(zip(rest, given.values(), strict=False))
    for name, kind in inputs.items():
        wanted = numpy_dtype(kind.tensor_type.elem_type) if kind.HasField("tensor_type") else None
        array = found.get(name)
        # a float16 model runs on the arguments of the float32 module
        if array is not None and wanted is not None and _is_float(array.dtype) and _is_float(wanted):
            found[name] = array.astype(wanted, copy=False)
    return validate_feeds(model, found)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or "float" in dtype.name


class TensorSink(Sink):
    """Passes each tensor of a run in windows to a function."""

    def __init__(
        self,
        graph: Graph,
        progress: Progress | None,
        take: Callable[[int, NDArray[Any]], object],
        held: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(graph, progress)
        self._take, self._held = take, held

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:
        """Pass on a tensor of the main graph."""
        if found is not None and found.is_tensor() and not index:
            self._take(value, sessions.to_array(found))

    def held(self) -> int:
        """Return the bytes that are kept in memory."""
        return self._held()
