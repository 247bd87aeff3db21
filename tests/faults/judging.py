"""Plant a fault, compare with torch, and judge what the comparison says: independent of the code that says it.

The truth is the node that was edited, and the module that its exporter wrote down for it. A point is right if

- the nodes between it and the other points contain the faulty one, and those of at most one other leaf module, not
  counting modules whose output is no tensor of the sound export, because the exporter fused them;
- in the sound export its tensor carries what torch computes for its name;
- its name is that of the faulty module, or it says between which others its region lies.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn

import onnx_nb
from tests import models, modules
from tests.faults import architectures
from tests.faults.planting import KINDS, Export, fixed_tensors

LEAST: Final = 1e-5
"""Smallest change of an output, relative to its norm, for which a fault counts."""
CLOSE: Final = 1e-3
"""Maximum distance, relative to the largest value, of two arrays that are the same but for rounding."""
STEPS: Final = 2
"""Maximum number of operations in the region that a drill points at."""


class Sound:
    """A module, its sound export and all values of both."""

    def __init__(self, architecture: str, length: str, exporter: str) -> None:
        self.module, self.kwargs = architectures.built(architecture, length)
        source = Path(architectures.__file__).read_bytes() + Path(modules.__file__).read_bytes()
        versions = "-".join(importlib.metadata.version(package) for package in ("torch", "transformers"))
        folder = f"faults/{versions}-{hashlib.sha256(source).hexdigest()[:12]}"
        path = models.cached(
            f"{folder}/{architecture}-{length}-{exporter}.onnx", lambda path: self._export(path, exporter)
        )
        self.proto = onnx.load(path)
        recording = onnx_nb.record(self.module, (), self.kwargs)
        self.feeds = self._feeds(recording)
        self.values = every_value(self.proto, self.feeds)
        self.recorded = self._recorded()
        self.paths: dict[int, str] = {}
        for path_of, part in self.module.named_modules(remove_duplicate=False):
            self.paths.setdefault(id(part), path_of)
        self.names = {name: self.paths[id(part)] for name, part in self.module.named_modules(remove_duplicate=False)}

    def _export(self, path: Path, exporter: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            onnx.save(onnx_nb.export(self.module, (), self.kwargs, **modules.EXPORTS[exporter]).to_proto(), path)

    def _feeds(self, recording: onnx_nb.types.Recording) -> dict[str, NDArray[Any]]:
        given = {slot.label: recording.value(slot.value) for slot in recording.calls[0].inputs}
        names = [port.name for port in self.proto.graph.input]
        rest = [array for name, array in given.items() if name not in names]
        return {name: given[name] if name in given else rest.pop(0) for name in names}

    def _recorded(self) -> dict[str, list[NDArray[Any]]]:
        """Return what each leaf module returned, call by call."""
        found: dict[str, list[NDArray[Any]]] = {}
        handles = []
        for path, part in self.module.named_modules():

            def note(_part: nn.Module, _args: Any, output: Any, path: str = path) -> None:
                if isinstance(output, torch.Tensor):
                    found.setdefault(path, []).append(output.detach().numpy().copy())

            if not list(part.children()):
                handles.append(part.register_forward_hook(note))
        with torch.no_grad():
            self.module(**self.kwargs)
        for handle in handles:
            handle.remove()
        return found

    @functools.cached_property
    def separate(self) -> set[str]:
        """Leaf modules each of whose outputs is a tensor of the export."""
        by_shape: dict[tuple[int, ...], list[NDArray[Any]]] = {}
        for array in self.values.values():
            by_shape.setdefault(array.shape, []).append(array)
        return {
            path
            for path, arrays in self.recorded.items()
            if all(any(is_same(array, other) for other in by_shape.get(array.shape, [])) for array in arrays)
        }

    def owner(self, node: onnx.NodeProto) -> str | None:
        """Return the path of the innermost module that a node is of, as its exporter wrote it; None if it did not."""
        written = next((each.value for each in node.metadata_props if each.key == "pkg.torch.onnx.name_scopes"), None)
        if written is not None:
            scopes = [re.sub(r"@\d+$", "", name) for name in ast.literal_eval(written)[:-1]]
            return next((self.names[name] for name in reversed(scopes) if name in self.names), None)
        if "/" not in node.name:
            return None
        path = ""
        for part in node.name.split("/")[1:-1]:
            for name in (part, re.sub(r"_\d+$", "", part)):
                inside = (each for each in self.names if each.startswith(f"{path}." if path else "") and each != path)
                fitting = [each for each in inside if each == name or each.endswith(f".{name}")]
                if fitting:
                    path = min(fitting, key=len)
                    break
            else:
                return None
        return self.names[path]


def is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays are equal but for rounding."""
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        return False
    largest = float(np.abs(one).max(initial=0)) if one.dtype.kind == "f" else 0
    return bool(np.allclose(one, other, rtol=CLOSE, atol=CLOSE * largest))


def every_value(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return every tensor of a model on its feeds, weights included."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    names = [name for node in copy.graph.node for name in node.output if name]
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    made = dict(zip(names, session(copy).run(names, dict(feeds)), strict=True))
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in copy.graph.initializer}
    return {**weights, **feeds, **{name: array for name, array in made.items() if isinstance(array, np.ndarray)}}


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return a session that computes what the file says."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Verdict(NamedTuple):
    """What a comparison said of one fault; an empty text is right, another one is the reason why not."""

    architecture: str
    length: str
    exporter: str
    kind: str
    place: str
    """Faulty node and its module."""
    first: str
    ranked: str
    drill: str
    """Whether the drill has the faulty operation, the module's output, and the difference that the point has."""
    inside: str
    """Whether the drill names the faulty operation."""
    message: str
    mispaired: tuple[str, ...] = ()
    """Points whose tensor carries another value in the sound export."""
    points: int = 0


class Planted(NamedTuple):
    """A faulty model, the outputs of its faulty nodes, and the modules that these are of."""

    kind: str
    proto: onnx.ModelProto
    faulty: set[str]
    owners: set[str]
    place: str


def planted(sound: Sound, kind: str, places: int) -> Iterator[Planted | str]:
    """Yield faulty models with one kind of fault, at up to so many places; or why a place does not count."""
    count = len(list(KINDS[kind](Export(sound.proto, sound.values))))
    step = max(count / places, 1)
    for number in sorted({int(step * (place + 0.5)) for place in range(places) if step * (place + 0.5) < count}):
        export = Export(sound.proto, sound.values)
        faulty = list(KINDS[kind](export))[number]()
        nodes = [node for node in export.graph.node if faulty & set(node.output)]
        blamed = nodes if export.missing is None else [export.missing]
        owners = {owner for node in blamed if (owner := sound.owner(node)) is not None}
        if not owners:
            yield "no module"
            continue
        try:
            made = session(export.proto).run(None, sound.feeds)
        except Exception as error:  # noqa: BLE001 (onnxruntime's errors have many classes)
            yield f"invalid: {error}"
            continue
        right = [sound.values[port.name] for port in sound.proto.graph.output]
        if any(one.shape != other.shape for one, other in zip(right, made, strict=True)):
            yield "other shape"
            continue
        if not any(changed(one, other) for one, other in zip(right, made, strict=True)):
            yield "no effect"
            continue
        place = ", ".join(f"{node.op_type} {node.name} of {sound.owner(node)!r}" for node in blamed)
        yield Planted(kind, export.proto, faulty, owners, place)


def changed(right: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether an output is another one by more than rounding."""
    distance = float(np.linalg.norm((right.astype(np.float64) - other).ravel()))
    return not distance <= LEAST * float(np.linalg.norm(right.astype(np.float64).ravel()))


class Judge:
    """Judges the points of one comparison."""

    def __init__(self, sound: Sound, fault: Planted, found: onnx_nb.types.TorchComparison) -> None:
        self.sound, self.fault, self.found = sound, fault, found
        graph = fault.proto.graph
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.fixed = fixed_tensors(graph)
        self.stops = {point.candidate for point in found.points}

    def region(self, tensor: str, stops: set[str]) -> list[onnx.NodeProto]:
        """Return the nodes that compute a tensor from others, without those that compute shapes and constants."""
        found: dict[str, onnx.NodeProto] = {}
        todo = [tensor]
        while todo:
            name = todo.pop()
            node = self.makers.get(name)
            if node is None or node.output[0] in found or name in self.fixed or (name in stops and name != tensor):
                continue
            found[node.output[0]] = node
            todo += node.input
        return list(found.values())

    def point(self, point: onnx_nb.types.Point | None) -> str:
        """Return why a point of the comparison is wrong; "" if it is right."""
        if point is None:
            return "none: nothing stands out"
        nodes = self.region(point.candidate, self.stops)
        if not any(self.fault.faulty & set(node.output) for node in nodes):
            return f"elsewhere: {point.name}"
        if self.is_mispaired(point):
            return f"mispaired: {point.name} with {point.candidate}"
        # an Identity, as of a Dropout, cannot be at fault
        owners = {self.sound.owner(node) for node in nodes if node.op_type != "Identity"} - self.fault.owners
        others = sorted(owner for owner in owners if owner in self.sound.separate)
        if len(others) > 1:
            return f"wide: {point.name} with {', '.join(others)}"
        scope = self.sound.names.get(point.scope, point.scope)
        fused = not any(owner in self.sound.separate or self._has_children(owner) for owner in self.fault.owners)
        between = getattr(point, "between", None) or "between" in self.found.message
        if scope not in self.fault.owners and not between and not fused:
            return f"named: {point.name}"
        return ""

    def is_mispaired(self, point: onnx_nb.types.Point) -> bool:
        """Return whether a point's tensor carries another value than its name in the sound export."""
        recorded, carried = self.found.recording, self.sound.values.get(point.candidate)
        assert recorded is not None
        return carried is not None and not is_same(recorded[point.name], carried)

    def _has_children(self, path: str) -> bool:
        return any(True for _ in self.sound.module.get_submodule(path).children())

    def drill(self, first: onnx_nb.types.Point | None) -> tuple[str, str]:
        """Return why the drill of a point, or of the faulty module if it is wrong, lacks the faulty operation.

        Then why the operation that the drill names is not the faulty one.
        """
        right = first if first is not None and not self.point(first) else None
        path = right.name if right is not None else max(self.fault.owners)
        inside = self.found.drill(path)
        stops = self.stops | {point.candidate for point in inside.points}
        texts = {point.name: self._operation(point, stops) for point in inside.points}
        worst = [inside.first_divergent(), *inside.ranked("isolated")[:1]] if inside.points else []
        named = {texts[point.name] for point in worst if point is not None}
        pointed = "" if "" in named else f"{path}: {', '.join(sorted(named)) or 'nothing stands out'}"
        known = right.difference if right is not None else ""
        if "" not in texts.values():
            why = next((text for text in texts.values() if "wide" in text), f"not among {len(texts)} points")
        elif not any(point.output or point.matched == "output" for point in inside.points):
            why = "its own output is no point"
        elif known and known not in inside.message and not any(known in point.difference for point in inside.points):
            why = f"does not say that {known}"
        else:
            return "", pointed
        return f"{path or 'model'}: {why}", pointed

    def _operation(self, point: onnx_nb.types.Point, stops: set[str]) -> str:
        """Return why a point of a drill is not the faulty operation."""
        nodes = self.region(point.candidate, stops)
        steps = {self._step(node) for node in nodes if node.op_type not in _MOVING}
        if not any(self.fault.faulty & set(node.output) for node in nodes):
            return f"elsewhere: {point.name}"
        if point.isolated is None or point.isolated.is_equal:
            return f"no error: {point.name}"
        return f"wide: {point.name} has {len(steps)} operations" if len(steps) > STEPS else ""

    @staticmethod
    def _step(node: onnx.NodeProto) -> str:
        """Return the operation of torch that a node is a part of."""
        written = (each.value for each in node.metadata_props if each.key == "pkg.torch.onnx.fx_node")
        return next(written, "") or node.doc_string or node.output[0]


_MOVING: Final = ("Reshape", "Transpose", "Cast", "Identity", "Expand", "Unsqueeze", "Squeeze", "Flatten", "Constant")
"""Operators that compute nothing: they do not count as operations."""


def judged(sound: Sound, names: tuple[str, str, str], fault: Planted) -> Verdict:
    """Compare a faulty model with its module and judge the result; ``names`` are those of architecture and such."""
    given = *names, fault.kind, fault.place
    try:
        found = onnx_nb.compare_torch(sound.module, (), sound.kwargs, model=fault.proto)
    except onnx_nb.OnnxNbError as error:
        text = f"error: {error}"
        return Verdict(*given, text, text, text, text, "")
    judge, first = Judge(sound, fault, found), found.first_divergent()
    mispaired = tuple(f"{each.name} with {each.candidate}" for each in found.points if judge.is_mispaired(each))
    named = judge.point(first), judge.point(next(iter(found.ranked("isolated")), None))
    try:
        drilled = judge.drill(first)
    except onnx_nb.OnnxNbError as error:
        drilled = f"error: {error}", f"error: {error}"
    return Verdict(*given, *named, *drilled, found.message, mispaired, len(found.points))


def alarm(sound: Sound) -> str:
    """Return what the comparison of a sound export complains of, or pairs wrongly; "" if nothing."""
    found = onnx_nb.compare_torch(sound.module, (), sound.kwargs, model=sound.proto)
    inside = found.drill("")
    texts = [f"{each.message} ({first!r})" for each in (found, inside) if (first := each.first_divergent()) is not None]
    texts += [f"{point.name}: {point.difference}" for point in (*found.points, *inside.points) if point.difference]
    judge = Judge(sound, Planted("", sound.proto, set(), set(), ""), found)
    wrong = [point for point in found.points if judge.is_mispaired(point)]
    wrong += [point for point in inside.points if point.errors("cumulative").rel_l2 > CLOSE]
    return "; ".join([*texts, *(f"{point.name} is paired with {point.candidate}" for point in wrong)])


def verdicts(
    which: Iterable[tuple[str, str, str]], kinds: Sequence[str], places: int, report: Callable[[str], None]
) -> tuple[list[Verdict], dict[str, str], dict[str, int]]:
    """Return the verdicts, what was said of each sound export, and how many places did not count, by why."""
    made: list[Verdict] = []
    sounds: dict[str, str] = {}
    dropped: dict[str, int] = {}
    for names in which:
        sound = Sound(*names)
        sounds[" ".join(names)] = alarm(sound)
        for kind in kinds:
            for fault in planted(sound, kind, places):
                if isinstance(fault, str):
                    why = fault.partition(":")[0]
                    dropped[why] = dropped.get(why, 0) + 1
                    continue
                made.append(judged(sound, names, fault))
        report(" ".join(names))
    return made, sounds, dropped
