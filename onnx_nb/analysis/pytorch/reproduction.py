"""One submodule's part of an export, with torch's values: a small model that shows an error without the module."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.errors import AlignmentError, ModelFileError
from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.model.tensors import numpy_dtype
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.pytorch.isolated_error import nodes_between
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.submodel.assembly import assemble

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.pytorch.alignment import Pairs
    from onnx_nb.analysis.pytorch.record import Call, Recording

_CPU: Final = ("CPUExecutionProvider",)
_SCRIPT: Final = '''"""Run model.onnx on the inputs of {path} in torch, and compare with its outputs in torch."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime

here = Path(__file__).parent


def arrays(kind):
    files = sorted((here / "test_data_set_0").glob(f"{{kind}}_*.pb"), key=lambda file: int(file.stem.split("_")[1]))
    tensors = [onnx.load_tensor(str(file)) for file in files]
    return {{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}}


options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(str(here / "model.onnx"), options, providers={providers})
names = [output.name for output in session.get_outputs()]
found = dict(zip(names, session.run(names, arrays("input"))))
for name, wanted in arrays("output").items():
    error = np.abs(found[name].astype(np.float64) - wanted.astype(np.float64))
    print(f"{{name}}: max |error| {{error.max(initial=0):.3g}}, of values up to {{np.abs(wanted).max(initial=0):.3g}}")
'''


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction:
    """A submodule's part of an export, with the inputs and outputs of the submodule in torch."""

    path: str
    """Path of the submodule; "shared#2" for a second call."""
    model: Model
    feeds: Mapping[str, NDArray[Any]]
    """Torch's value for each input of the model."""
    expected: Mapping[str, NDArray[Any]]
    """Torch's value for each output of the model."""
    providers: tuple[str, ...] | None = None
    """Execution providers that run it; the CPU if None."""

    def __repr__(self) -> str:
        return f"Reproduction({quoted(self.path)}, {self.model!r})"

    def errors(self) -> dict[str, ErrorStats]:
        """Run the model and return the errors of each output against torch's."""
        made = sessions.run(self.model, self.feeds, optimize=False, providers=self.providers)
        return {name: ErrorStats.of(wanted, made[name]) for name, wanted in self.expected.items()}

    def save(self, folder: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Write a folder that shows the error with nothing but onnx and onnxruntime.

        Parameters
        ----------
        folder
            Receives ``model.onnx``, ``test_data_set_0`` in the layout of onnx's own tests, and ``run.py``.
        progress
            Called with the fraction done and the file being written. An exception that it raises ends the work; the
            data files appear together or not at all.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        ModelFileError
            If a file cannot be written.
        """
        place = Path(folder)
        data = place / "test_data_set_0"
        try:
            data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"folder {quoted(str(data))} cannot be made: {error.strerror}."
            raise ModelFileError(message, advice="Choose another folder.") from error
        if progress is not None:
            progress(0.0, "writing model.onnx")
        self.model.save(place / "model.onnx")
        total = sum(array.nbytes for arrays in (self.feeds, self.expected) for array in arrays.values())
        former = {*data.glob("input_*.pb"), *data.glob("output_*.pb")}
        with together(stage(progress, 0.5, 1.0), total) as files:
            for kind, arrays in (("input", self.feeds), ("output", self.expected)):
                for number, (name, array) in enumerate(arrays.items()):
                    tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
                    files.add(data / f"{kind}_{number}.pb", [tensor.SerializeToString()])
                    former.discard(data / f"{kind}_{number}.pb")
            script = _SCRIPT.format(path=ascii(self.path or "the model"), providers=list(self.providers or _CPU))
            files.add(place / "run.py", [script.encode()])
        for old in former:  # of another submodule that was saved here before
            old.unlink(missing_ok=True)
        return place


def reproduce(
    recording: Recording,
    graph: Graph,
    pairs: Pairs,
    given: Mapping[str, Any],
    path: str,
    *,
    providers: tuple[str, ...] | None = None,
) -> Reproduction:
    """Extract the part of an export that computes a submodule."""
    number = recording.find_call(path.partition(" → ")[0])
    call = recording.calls[number]
    numbers = {value: recorded for recorded, (value, _) in pairs.items()}
    nodes, starts = submodule_nodes(recording, graph, pairs, number)
    if not nodes:
        raise _refusal(graph, call, pairs)
    ends = _computed_outputs(graph, call, pairs)
    model = assemble(graph.model, nodes, starts, ends, name=f"{graph.model.name} [{path or 'model'}]")
    names = graph.value_names
    kinds = {plain_text(port.name): port.type.tensor_type.elem_type for port in model.proto.graph.input}
    feeds = {}
    for value in starts:
        name = names[value]
        array = recording.value(numbers[value]) if value in numbers else np.asarray(given[name])
        with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there, too
            feeds[name] = array.astype(numpy_dtype(kinds[name]) or array.dtype, copy=False)
    expected = {names[value]: recording.value(numbers[value]) for value in ends}
    return Reproduction(path, model, feeds, expected, providers)


def submodule_nodes(recording: Recording, graph: Graph, pairs: Pairs, number: int) -> tuple[set[int], list[int]]:
    """Return the nodes between the input tensors of a call and its output tensors, and the tensors they start from.

    Both are empty if none of the outputs is a tensor that a node computes. Where an input has no tensor, the nodes
    begin at the nearest aligned tensors that were computed before the call.
    """
    ends = _computed_outputs(graph, recording.calls[number], pairs)
    inside = _values_made_inside(recording, number)
    numbers = {value: recorded for recorded, (value, _) in pairs.items()}
    return nodes_between(graph, ends, lambda value: value in numbers and numbers[value] not in inside)


def _computed_outputs(graph: Graph, call: Call, pairs: Pairs) -> list[int]:
    """Return the output tensors of a call that nodes compute."""
    ends = dict.fromkeys(pairs[slot.value][0] for slot in call.outputs if slot.value in pairs)
    return [value for value in ends if graph.producer[value] >= 0]


def _refusal(graph: Graph, call: Call, pairs: Pairs) -> AlignmentError:
    """Return the error for a call without nodes."""
    constants = [graph.value_names[pairs[slot.value][0]] for slot in call.outputs if slot.value in pairs]
    if constants:
        weight = quoted(constants[0])
        message = f"the output of {call.cls} {quoted(call.name)} was computed in advance: it is the weight {weight}."
        advice = "There is nothing to run. See model.tensor(name), or choose the module around it."
    else:
        message = f"no output of {call.cls} {quoted(call.name)} has a tensor in {graph.model.name}."
        advice = "See comparison.unmatched for the reason, or choose the module around it."
    return AlignmentError(message, advice=advice)


def call_around(recording: Recording, known: Collection[int], name: str) -> int:
    """Return the index of the innermost call around a submodule, or of it itself, whose inputs all have a tensor."""
    number = recording.find_call(name.partition(" → ")[0])
    calls = recording.calls
    there = {slot.value for slot in calls[0].inputs} | set(known)
    while calls[number].parent >= 0 and any(slot.value not in there for slot in calls[number].inputs):
        number = calls[number].parent
    return number


def _values_made_inside(recording: Recording, number: int) -> set[int]:
    """Return the values that a call and its inner calls made."""
    calls = recording.calls
    around = set()
    above = calls[number].parent
    while above >= 0:
        around.add(above)
        above = calls[above].parent
    last = number
    while last + 1 < len(calls) and calls[last + 1].parent >= number:
        last += 1
    before = {slot.value for slot in calls[number].inputs}
    for other in range(number):
        before.update(slot.value for slot in calls[other].inputs)
        if other not in around:
            before.update(slot.value for slot in calls[other].outputs)
    return {slot.value for call in calls[number : last + 1] for slot in call.outputs} - before
