"""What each layer of a quantized model does to the outputs by itself, and what it would cost in float."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.comparison import Comparison
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, decibels_text, duration_text, number_text, quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import facts
from onnx_nb.analysis.model.model import Model, label_of
from onnx_nb.analysis.progress import CountedWork, Progress, stage
from onnx_nb.analysis.quantize.what_if import ExclusionCurve, ExclusionStep, WhatIf
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table
from onnx_nb.analysis.scopes.scopes import layer_of


@dataclass(frozen=True)
class LayerEffect:
    """What one layer does to the worst output."""

    layer: str
    nodes: tuple[str, ...]
    """Names of the reference's nodes that put it back to float, for `mixed` and ``nodes_to_exclude``."""
    alone: float
    """Signal to noise ratio, in dB, if it is quantized and nothing else."""
    gain: float
    """What the ratio gains, in dB, if it is in float and all else is quantized."""
    seconds: float
    """How much longer a run takes with it in float, by the kernels of both models; NaN if they were not timed."""


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity(Table, Displayed):
    """The effect of each layer that is quantized, the largest gain first. Made by `sensitivity`."""

    layers: tuple[LayerEffect, ...]
    front: ExclusionCurve
    """The quantized model, then the best choices by dB and time, each with all layers of those before it in float."""

    @property
    def message(self) -> str:
        """The layer that gains most, and the last choice that costs no time."""
        first, steps = self.layers[0], self.front.steps
        cost = f" and {'costs' if first.seconds > 0 else 'saves'} {duration_text(abs(first.seconds))} a run"
        text = f"{decibels_text(steps[0].sqnr)} at the outputs; {quoted(first.layer)} in float gains"
        text = f"{text} {decibels_text(first.gain)}{'' if math.isnan(first.seconds) else cost}"
        count = sum(step.seconds <= 0 for step in steps) - 1
        if count > 0:
            many, free = count_text(len(self.front.nodes(count)), "node"), steps[count]
            text += f"; {many} in float give {decibels_text(free.sqnr)} and save {duration_text(abs(free.seconds))}"
        return f"{text}."

    def __repr__(self) -> str:
        return f"Sensitivity({count_text(len(self.layers), 'layer')}: {self.message.removesuffix('.')})"

    _columns = tuple(LayerEffect.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each layer."""
        return [asdict(effect) for effect in self.layers]

    def _still(self) -> Still:
        rows = [
            (e.layer, f"{len(e.nodes):,}", number_text(e.alone, 3), number_text(e.gain, 2), _signed(e.seconds))
            for e in self.layers
        ]
        tables = [StillTable(("Layer", "Nodes", "Alone, dB", "Gain in float, dB", "Time in float"), rows, "layer")]
        choices = [
            (f"{row['nodes']:,}", row["name"] or "none", number_text(row["sqnr"], 3), _signed(row["seconds"]))
            for row in self.front.rows()
        ]
        tables.append(StillTable(("Nodes in float", "The last", "dB", "Time"), choices, "choice", 2, "Best choices"))
        advice = "mixed(c, s.front.nodes(1)) makes the model of a choice."
        return Still(self.message, tables=tables, steps=(advice if len(choices) > 1 else "timed=True adds the time.",))


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "−" if seconds < 0 else ""
    return "" if math.isnan(seconds) else sign + duration_text(abs(seconds))


@known_arguments
def sensitivity(
    comparison: Comparison, *, feeds: Any = None, timed: bool = False, progress: Progress | None = None
) -> Sensitivity:
    """Return what each quantized layer does to the outputs by itself, and what it gains and costs in float.

    A layer is the scope of nodes, or a node where nothing names scopes.

    Parameters
    ----------
    comparison
        Comparison of a float model with its quantized copy, from `compare`.
    feeds
        Feeds of the reference, as `read_feeds` takes them; the first one of the comparison if ``None``.
    timed
        Profile both models and say how much longer a run takes with each layer in float: the time of its kernels in the
        float model less that in the quantized one.
    progress
        Called before each layer with the fraction done; if it raises, the work ends.

    Returns
    -------
    Sensitivity

    Raises
    ------
    OnnxNbError
        If nothing is quantized that could be in float: for the reasons of `mixed`.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.compare.compare import compare
    >>> exact = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] y) { [exp] h = Exp(x)  y = Tanh(h) }''')
    >>> rough = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] y) <float s = {0.1}, int8 z = {0}> {
    ...   [exp] h = Exp(x)  q = QuantizeLinear(h, s, z)  d = DequantizeLinear(q, s, z)  y = Tanh(d) }''')
    >>> [effect.nodes for effect in sensitivity(compare(exact, rough)).layers]
    [('exp',)]
    """
    return effects(WhatIf(comparison, feeds), timed=timed, progress=progress)


def effects(what_if: WhatIf, *, timed: bool, progress: Progress | None = None) -> Sensitivity:
    """Return the result of `sensitivity` by runs that may know some outcomes already."""
    mixer, runs, members = what_if.mixer, what_if.runs, defaultdict[str, set[str]](set)
    graph = Graph.of(mixer.reference)
    for name, node in mixer.nodes.items():
        members[layer_of(graph, graph.value(node.output[0])) or name] |= mixer.completed({name})
    if not members:
        message = f"no quantized node of {label_of(mixer.candidate)} is one of {label_of(mixer.reference)}."
        raise OnnxNbError(message, advice="Tensors of the quantized model need the names that they had.")
    profiles = list[dict[str, float]]()
    for at, model in enumerate((mixer.candidate, mixer.reference) if timed else ()):
        profiles.append(_seconds(model, mixer.nodes, what_if.comparison.feed, stage(progress, at / 4, (at + 1) / 4)))
    work = CountedWork(stage(progress, 0.5 if timed else 0.0, 1.0), len(members))
    quantized, layers = runs.outcome(()).sqnr, list[LayerEffect]()
    for number, (layer, region) in enumerate(members.items()):
        work.reached(number, quoted(layer))
        names = tuple(name for name in mixer.nodes if name in region)
        alone, after = (runs.outcome(nodes).sqnr for nodes in (mixer.nodes.keys() - region, names))
        gain = after - quantized if after != quantized else 0.0  # both are infinite where nothing is lost
        layers.append(LayerEffect(layer, names, alone, gain, _cost(profiles, names)))
    work.finished()
    layers.sort(key=lambda effect: (-effect.gain, effect.alone))
    order = sorted(layers, key=lambda effect: (effect.seconds > 0, -effect.gain / max(effect.seconds, 1e-9)))
    nodes, choices = tuple[str, ...](), list[ExclusionStep]()
    for effect in order if timed else ():
        nodes = tuple(name for name in mixer.nodes if name in nodes or name in effect.nodes)
        step = ExclusionStep(effect.layer, nodes, *runs.outcome(nodes)[:3], _cost(profiles, nodes))
        choices = [choice for choice in choices if choice.sqnr > step.sqnr or choice.seconds < step.seconds]
        if step.sqnr > quantized and all(c.sqnr < step.sqnr or c.seconds > step.seconds for c in choices):
            choices.append(step)
    front = [ExclusionStep("", (), *runs.outcome(())[:3], 0.0 if timed else math.nan)]
    for former, step in itertools.pairwise([front[0], *choices]):
        front.append(replace(step, nodes=tuple(name for name in step.nodes if name not in former.nodes)))
    return Sensitivity(tuple(layers), ExclusionCurve(tuple(front)))


def _cost(profiles: Sequence[Mapping[str, float]], names: Collection[str]) -> float:
    """Return how many seconds longer a run takes with nodes in float; NaN if nothing was timed."""
    return sum(profiles[1].get(name, 0.0) - profiles[0].get(name, 0.0) for name in names) if profiles else math.nan


def _seconds(model: Model, names: Collection[str], feed: Any, progress: Progress | None) -> dict[str, float]:
    """Return the seconds of a run by node of the float model; what only rounds counts for the node that reads it."""
    from onnx_nb.analysis.profile.profile import profile

    result = profile(model, dict(feed or {}), progress=progress)
    totals = defaultdict[str, float](float)
    for kernel in result.kernels:
        owners = [name for node in kernel.nodes if (name := result.graph.names[node]) in names]
        if not owners and kernel.nodes:
            owners = list(filter(None, [_reader(result.graph, kernel.nodes[0], names)]))
        for name in owners:
            totals[name] += kernel.median / len(owners)
    return totals


def _reader(graph: Graph, node: int, names: Collection[str]) -> str:
    """Return the name of the node that reads what a quantizer makes, or else of the one that made it; or ""."""
    if facts(graph.op_type(node)).quantized not in ("rounds", "dequantizes"):
        return ""  # it computes the same in both models
    reader = next(iter(graph.consumers(int(graph.node_outputs(node)[0])).tolist()), -1)
    if reader >= 0:
        name = graph.names[reader]
        if name := name if name in names else _reader(graph, reader, names):
            return name
    maker = int(graph.producer[graph.node_inputs(node)[0]])
    return graph.names[maker] if maker >= 0 and graph.names[maker] in names else ""
