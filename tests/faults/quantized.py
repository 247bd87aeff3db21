"""``python -m tests.faults.quantized``: a table of what `compare` says of faults planted into QDQ models.

Ends with 1 if the goals do not hold: the faulty tensor is named first for 95 of 100, the kind of fault for 90, and
nothing is named in sound models. With ``--exclusion``: how many nodes `suggest_exclusion` leaves in float, against
greedy search; ends with 1 if they are more than 1.2 times as many.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.quantize.what_if import WhatIf
from tests import models

if TYPE_CHECKING:
    from onnx_nb.analysis.quantize.what_if import Runs

MODELS: Final = ("resnet50", "bert", "vit", "conv")
NAMED, KIND = 0.95, 0.9
EXCLUDED: Final = 1.2
"""Maximum number of suggested nodes, as a multiple of those of greedy search."""
STEP: Final = 7
"""Places between one fault and the next."""
_MATRICES: Final = ("MatMul", "Gemm", "Conv")
Arrays = dict[str, NDArray[Any]]


class Planted(NamedTuple):
    """A fault and what should be said of it."""

    reference: onnx.ModelProto
    candidate: onnx.ModelProto
    names: set[str]
    """Tensors or weights that are faulty."""
    fault: str
    """`Quantizer.fault`."""


class Verdict(NamedTuple):
    """What was said of a fault; "" where it was right."""

    model: str
    kind: str
    named: str
    fault: str
    message: str


class Sound:
    """A float model, its quantized one, and what the float model computes."""

    def __init__(self, name: str) -> None:
        paths = (conv_network(), conv_network(quantized=True)) if name == "conv" else (
            models.exported(name, dynamo=True), models.transformed(name, "qdq"),
        )  # fmt: skip
        self.name, (self.reference, self.candidate) = name, map(onnx.load, paths)
        self.feeds = onnx_nb.random_feeds(self.reference, 0)
        self.values = all_values(self.reference, self.feeds)
        self.initializers = {tensor.name: tensor for tensor in self.reference.graph.initializer}
        self.readers = {read: node.op_type for node in reversed(self.reference.graph.node) for read in node.input}

    @functools.cached_property
    def sites(self) -> list[onnx.NodeProto]:
        """Return the QuantizeLinear nodes whose values are many, the first with each scale."""
        found: dict[str, onnx.NodeProto] = {}
        for node in self.candidate.graph.node:
            if node.op_type == "QuantizeLinear" and node.input[1] not in found:
                found[node.input[1]] = node
        return [node for node in found.values() if len(np.unique(self.value(node))) > 64]

    def value(self, node: onnx.NodeProto) -> NDArray[Any]:
        """Return what a QuantizeLinear should round."""
        found = self.values.get(node.input[0].removesuffix("_QuantizeLinear_Input"), np.zeros(1))
        return np.maximum(found, 0) if self.readers.get(node.input[0]) == "Relu" else found

    def names_of(self, scale: str) -> set[str]:
        """Return the tensors that have a scale, and what a removed Relu makes of them."""
        found = {
            node.input[0].removesuffix("_QuantizeLinear_Input")
            for node in self.candidate.graph.node
            if scale in node.input[1:2]
        }
        relus = [node for node in self.reference.graph.node if node.op_type == "Relu"]
        return found | {node.output[0] for node in relus if node.input[0] in found}

    @functools.cached_property
    def weights(self) -> list[tuple[str, int]]:
        """Return the matrices and filters of the float model that are quantized, with their output axis."""
        there = {tensor.name for tensor in self.candidate.graph.initializer}
        found: dict[str, int] = {}
        for node in self.reference.graph.node:
            if node.op_type in _MATRICES and f"{node.input[1]}_quantized" in there:
                flipped = any(each.name == "transB" and each.i for each in node.attribute)
                found[node.input[1]] = 0 if node.op_type == "Conv" or flipped else -1
        return list(found.items())


def all_values(proto: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """Return every float tensor that a model computes."""
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    names = [name for node in proto.graph.node for name in node.output if name]
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return feeds | dict(zip(names, session.run(names, feeds), strict=True))


class Edit:
    """Copies of both models that a fault changes."""

    def __init__(self, sound: Sound) -> None:
        self.sound = sound
        self.reference, self.candidate = onnx.ModelProto(), onnx.ModelProto()
        self.reference.CopyFrom(sound.reference)
        self.candidate.CopyFrom(sound.candidate)
        self.weights = [{w.name: w for w in proto.graph.initializer} for proto in (self.reference, self.candidate)]

    def get(self, name: str, side: int = 1) -> NDArray[Any]:
        """Return a weight of the candidate, or for 0 of the reference."""
        return numpy_helper.to_array(self.weights[side][name]).copy()

    def put(self, name: str, array: Any, side: int = 1) -> None:
        """Replace the values of a weight by others of the same type."""
        old = self.weights[side][name]
        like = numpy_helper.to_array(old)
        old.CopyFrom(numpy_helper.from_array(np.asarray(array).astype(like.dtype).reshape(like.shape), name))

    def done(self, names: set[str], fault: str) -> Planted:
        """Return the fault."""
        return Planted(self.reference, self.candidate, names, fault)


def scale(sound: Sound, at: int) -> Planted:
    """A scale is four times too large, of a tensor or of a weight."""
    edit = Edit(sound)
    if at % 2:
        weight, _ = sound.weights[at % len(sound.weights)]
        edit.put(f"{weight}_scale", edit.get(f"{weight}_scale") * 4)
        return edit.done({weight}, "values")
    name = sound.sites[at % len(sound.sites)].input[1]
    edit.put(name, edit.get(name) * 4)
    return edit.done(sound.names_of(name), "coarse")


def zero_point(sound: Sound, at: int) -> Planted:
    """The zero point of a DequantizeLinear is off by nine, of a tensor or of a weight."""
    edit = Edit(sound)
    if at % 3 == 2:
        weight, _ = sound.weights[at % len(sound.weights)]
        edit.put(f"{weight}_zero_point", edit.get(f"{weight}_zero_point") + 9)
        return edit.done({weight}, "values")
    node = sound.sites[at % len(sound.sites)]
    for reader in [each for each in edit.candidate.graph.node if node.output[0] in each.input]:
        zero = edit.get(reader.input[2])
        wrong = np.asarray(zero + (9 if zero < 100 else -9), zero.dtype)
        edit.candidate.graph.initializer.append(numpy_helper.from_array(wrong, f"{reader.output[0]} wrong"))
        reader.input[2] = f"{reader.output[0]} wrong"
    return edit.done({node.input[0], *sound.names_of(node.input[1])}, "mismatch")


def channel(sound: Sound, at: int) -> Planted:
    """One channel of a weight has the wrong sign."""
    edit = Edit(sound)
    weight, axis = sound.weights[at % len(sound.weights)]
    integers = edit.get(f"{weight}_quantized")
    place = [slice(None)] * integers.ndim
    place[axis] = slice(at % integers.shape[axis], at % integers.shape[axis] + 1)
    integers[tuple(place)] = -np.maximum(integers[tuple(place)], -127)
    edit.put(f"{weight}_quantized", integers)
    return edit.done({weight}, "channel")


def clipped(sound: Sound, at: int) -> Planted:
    """The range ends at the 90th percentile of the magnitudes."""
    edit, node = Edit(sound), sound.sites[at % len(sound.sites)]
    value = sound.value(node)
    limit = float(np.percentile(np.abs(value), 90))
    low, high = min(max(float(value.min()), -limit), 0.0), max(min(float(value.max()), limit), 0.0)
    step = (high - low) / 255
    edit.put(node.input[1], step)
    edit.put(node.input[2], np.rint(-128 - low / step))
    return edit.done(sound.names_of(node.input[1]), "clipping")


def outliers(sound: Sound, at: int) -> Planted:
    """A channel of the float model is far larger than the others; the model is calibrated anew, with one scale."""
    edit = Edit(sound)
    there = edit.weights[1]
    nodes = [
        node
        for node in sound.reference.graph.node
        if node.op_type in ("LayerNormalization", "Conv")
        and f"{node.input[1]}_quantized" in there
    ]  # fmt: skip
    node = nodes[at % len(nodes)]
    for name in node.input[1:3]:
        array = edit.get(name, 0)
        array[len(array) // 3] *= 300
        edit.put(name, array, 0)
    calibrate(edit, all_values(edit.reference, sound.feeds))
    # exporters merge equal weights: all normalizations may read the same one
    made = {
        each.output[0] for each in nodes if each.input[1] == node.input[1] or node.input[2:3] == each.input[2:3] != []
    }
    readers = {out for each in sound.reference.graph.node if made.intersection(each.input) for out in each.output}
    return edit.done(made | readers, "outliers")


def calibrate(edit: Edit, values: Arrays) -> None:
    """Set all scales of a QDQ model from what the float model computes, and round its weights again."""
    sound = edit.sound
    before, sound.values = sound.values, values
    done: set[str] = set()
    try:
        for node in sound.candidate.graph.node:
            if node.op_type == "QuantizeLinear":
                of_table = node.input[1].removesuffix("_scale") in sound.initializers  # a Gather passes its scale on
                if of_table or node.input[1] in done or edit.get(node.input[1]).size > 1:
                    continue
                done.add(node.input[1])
                value = sound.value(node)
                low, high = min(float(value.min()), 0.0), max(float(value.max()), 0.0)
                step = (high - low) / 255 or 1.0
                edit.put(node.input[1], step)
                edit.put(node.input[2], np.rint(-128 - low / step))
    finally:
        sound.values = before
    for name in edit.weights[0]:
        if np.array_equal(edit.get(name, 0), numpy_helper.to_array(sound.initializers[name])):
            continue
        integers = edit.weights[1].get(f"{name}_quantized")
        scales = next((each for each in (f"{name}_scale", f"{name}_quantized_scale") if each in edit.weights[1]), "")
        if integers is None or not scales or edit.get(scales).size > 1:
            continue
        array, wide = edit.get(name, 0), edit.get(f"{name}_quantized").dtype == np.int32
        step = float(edit.get(scales).ravel()[0]) if wide else float(np.abs(array).max()) / 127 or 1.0
        edit.put(scales, step)
        edit.put(
            f"{name}_quantized", np.clip(np.rint(array / step), -(2**31) if wide else -127, 2**31 - 1 if wide else 127)
        )


KINDS: Final[dict[str, Callable[[Sound, int], Planted]]] = {
    "scale": scale, "zero_point": zero_point, "channel": channel, "clipped": clipped, "outliers": outliers,
}  # fmt: skip


def judged(name: str, kind: str, planted: Planted, feeds: Arrays) -> Verdict:
    """Compare the models of a fault and judge what is said."""
    c = onnx_nb.compare(planted.reference, planted.candidate, feeds)
    first = c.first_divergent()
    if first is None:
        return Verdict(name, kind, "nothing stands out", "nothing stands out", c.message)
    found = first.faulty
    names = {first.reference, first.candidate} | ({found.name} if found is not None else set())
    fault = found.fault if found is not None else "none"
    return Verdict(
        name,
        kind,
        "" if names & planted.names else f"{sorted(names)} instead of {sorted(planted.names)}",
        "" if fault == planted.fault else f"{fault} instead of {planted.fault}",
        c.message,
    )


def verdicts(names: Sequence[str], kinds: Sequence[str], places: int) -> tuple[list[Verdict], dict[str, str]]:
    """Return the verdicts, and what was said of the sound models."""
    made, alarms = [], {}
    for name in names:
        sound = Sound(name)
        c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
        alarms[name] = "" if c.first_divergent() is None else c.message
        for kind in kinds:
            made += [judged(name, kind, KINDS[kind](sound, STEP * at), sound.feeds) for at in range(places)]
            print(name, kind, file=sys.stderr, flush=True)
    return made, alarms


class Excluded(NamedTuple):
    """How many nodes stay in float for a target, by our suggestion and by greedy search."""

    model: str
    target: float
    """SQNR in dB."""
    ours: int
    greedy: int
    """Fewest of both searches; 0 if neither reached it."""
    seconds: float
    """CPU seconds of the suggestion."""


def exclusions(sound: Sound, gains: Sequence[float], count: int = 1) -> list[Excluded]:
    """Compare suggestions with greedy search, for targets so many dB above the quantized model, on ``count`` feeds."""
    feeds = [sound.feeds, *(onnx_nb.random_feeds(sound.reference, seed) for seed in range(1, count))]
    c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
    start = onnx_nb.types.ExclusionCurve.of(c, order=(), feeds=feeds).steps[0].sqnr
    targets = [start + gain for gain in gains]
    searched = [greedy(WhatIf(c, feeds).runs, max(targets), whole=whole) for whole in (False, True)]
    found = []
    for target in targets:
        began = time.process_time()
        ours = onnx_nb.suggest_exclusion(
            c, sqnr=target, feeds=feeds
        )  # in sessions of its own: nothing is known from greedy search
        seconds = time.process_time() - began
        steps = [count for way in searched for count, ratio in way if ratio >= target]
        found.append(Excluded(sound.name, target, len(ours), min(steps, default=0), seconds))
    return found


def greedy(runs: Runs, target: float, *, whole: bool) -> list[tuple[int, float]]:
    """Return the number of nodes in float and the SQNR after each step of greedy search.

    Each step runs the mixed model with each node in turn, and keeps the one with which the outputs are best; with
    ``whole``, each tensor with all nodes that touch it, and the most dB for a node. It ends where no step gains any.
    """
    mixer = runs.mixer
    order = {name: place for place, name in enumerate(mixer.nodes)}
    sets = mixer.touched_by.values() if whole else (mixer.completed({name}) for name in mixer.nodes)
    # in the order of the model, so that least of it runs again
    moves = sorted({*sets}, key=lambda nodes: sorted(map(order.__getitem__, nodes)))
    excluded, ratio = frozenset[str](), runs.outcome(()).sqnr
    found = [(0, ratio)]
    while ratio < target and len(excluded) < len(mixer.nodes):
        best = (-np.inf, ratio, excluded)
        for nodes in moves:
            if nodes <= excluded:
                continue
            after = runs.outcome(excluded | nodes).sqnr
            gain = (after - ratio) / len(nodes - excluded) if whole else after
            best = max(best, (gain, after, excluded | nodes), key=lambda each: each[0])
        if len(found) > _PATIENCE and best[1] <= found[-_PATIENCE][1]:
            break
        _, ratio, excluded = best
        found.append((len(excluded), ratio))
    return found


_PATIENCE: Final = 5
"""Steps without any gain after which greedy search gives up."""


def conv_network(*, quantized: bool = False) -> Path:
    """A small convolutional network, or its quantized version."""
    return models.cached(f"quantized-conv{'-qdq' * quantized}.onnx", _quantize if quantized else _write)


def _write(path: Path) -> None:
    random = np.random.default_rng(0)
    nodes, weights, last, width = [], [], "x", 3
    for at, size in enumerate((16, 32, 32, 48)):
        array = random.normal(scale=(width * 9) ** -0.5, size=(size, width, 3, 3)).astype(np.float32)
        bias = random.normal(scale=0.1, size=size).astype(np.float32)
        weights += [numpy_helper.from_array(array, f"w{at}"), numpy_helper.from_array(bias, f"b{at}")]
        nodes.append(helper.make_node("Conv", [last, f"w{at}", f"b{at}"], [f"c{at}"], f"conv{at}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"], f"relu{at}"))
        last, width = f"r{at}", size
    weights.append(numpy_helper.from_array(random.normal(scale=0.2, size=(48, 10)).astype(np.float32), "head"))
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("MatMul", ["flat", "head"], ["y"], "classify"),
    ]
    ends = [helper.make_tensor_value_info(*each) for each in (("x", 1, [2, 3, 16, 16]), ("y", 1, [2, 10]))]
    graph = helper.make_graph(nodes, "conv", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def _quantize(path: Path) -> None:
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    feeds = iter([onnx_nb.random_feeds(conv_network(), seed) for seed in range(2)])
    reader = type("Reader", (quantization.CalibrationDataReader,), {"get_next": lambda _: next(feeds, None)})()
    quantization.quantize_static(conv_network(), path, reader)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.quantized", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND")
    parser.add_argument("--places", type=int, default=5, help="places of each kind of fault in each model")
    parser.add_argument("--exclusion", action="store_true", help="compare c.suggest_exclusion with greedy search")
    parser.add_argument("--gains", nargs="+", type=float, default=[0.5, 1, 2, 3, 6], metavar="DB")
    parser.add_argument("--feeds", type=int, default=1, help="feeds on which the outputs are judged")
    chosen = parser.parse_args(arguments)
    if chosen.exclusion:
        return _print_exclusions(chosen.models or MODELS, chosen.gains, chosen.feeds)
    made, alarms = verdicts(chosen.models or MODELS, chosen.kinds, chosen.places)
    for title in ("model", "kind"):
        print(f"\n{title:12} faults   named    kind")
        for name in dict.fromkeys(getattr(verdict, title) for verdict in made):
            print(_row(name, [verdict for verdict in made if getattr(verdict, title) == name]))
    print(f"\n{_row('all', made)}")
    for name, text in alarms.items():
        print(f"{name}, sound: {text or 'nothing stands out'}")
    for verdict in made:
        if verdict.named or verdict.fault:
            print(" | ".join(verdict))
    shares = [
        sum(not getattr(verdict, judged) for verdict in made) / max(len(made), 1) for judged in ("named", "fault")
    ]
    return int(any(alarms.values()) or shares[0] < NAMED or shares[1] < KIND)


def _print_exclusions(names: Sequence[str], gains: Sequence[float], feeds: int) -> int:
    print(f"model     {'gain':>6} {'target':>9} {'ours':>5} {'greedy':>6} {'ratio':>6}  CPU s")
    failed = False
    for name in names:
        for gain, each in zip(gains, exclusions(Sound(name), gains, feeds), strict=True):
            ratio = each.ours / each.greedy if each.greedy else 0.0
            failed |= ratio > EXCLUDED
            print(
                f"{name:9} {gain:6.1f} {each.target:6.1f} dB {each.ours:5} {each.greedy or '-':>6} {ratio:6.2f} "
                f"{each.seconds:6.1f}",
                flush=True,
            )
    return int(failed)


def _row(name: str, some: list[Verdict]) -> str:
    shares = [
        sum(not getattr(verdict, judged) for verdict in some) / max(len(some), 1) for judged in ("named", "fault")
    ]
    return f"{name:12} {len(some):6} {''.join(f'{share:8.1%}' for share in shares)}"


if __name__ == "__main__":
    sys.exit(main())
