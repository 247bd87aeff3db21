"""The rounds of `simplify`: infer types, fold constants, apply rules, until nothing changes.

Subgraphs are part of the graph; each local function is a graph of its own, of whose inputs nothing is known. One
editor works on a graph through all rounds, so that its nodes keep their ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import onnx
from onnx import AttributeProto, FunctionProto, ModelProto

from onnx_nb.analysis.errors import SimplificationError
from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.shape_inference import Inference, infer
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import label_of, with_proto
from onnx_nb.analysis.simplify import rules_redundancy
from onnx_nb.analysis.simplify.constant_folding import Folding, Left
from onnx_nb.analysis.simplify.editor import Editor
from onnx_nb.analysis.simplify.rules import FOLDING, RULES
from onnx_nb.analysis.simplify.rules_onnxruntime import CONTRIB
from onnx_nb.analysis.simplify.symbolic_dims import MAIN, NodeIds, Place, first_ids, label, place_of

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.simplify.symbolic_dims import Change, Rule

ROUNDS: Final = 8
"""Rounds at most, each with a new inference of all types."""

_LATE: Final = ("eliminate_common_subexpression", "fuse_parallel_matmuls", "fuse_gather_into_shape")
"""Rules applied after all others: a Conv with two readers absorbs no BatchNormalization, and a size may be folded."""


@dataclass(frozen=True)
class Step:
    """A model between the original and the simplified one."""

    name: str
    """What was just done."""
    model: Model
    done: int = 0
    """Number of changes made so far."""
    node_ids: NodeIds = field(default_factory=dict, repr=False)
    """Ids of the model's nodes, as in `Change.taken` and `Change.made`."""


class Rounds:
    """Simplifies the graphs of a model, one after another."""

    def __init__(
        self, skipped: frozenset[str], *, contrib: bool, quantizing: bool, budget: int, tell: Progress, trace: bool
    ) -> None:
        self.fold = "constant_folding" not in skipped
        self.optimize = "rewrites" not in skipped
        self.infer = "shape_inference" not in skipped
        self.skipped = skipped if self.fold else skipped | set(FOLDING)
        self.contrib, self.quantizing, self.budget, self.tell, self.trace = contrib, quantizing, budget, tell, trace
        self.steps: list[Step] = []
        self.changes: list[Change] = []
        self.left: list[Left] = []
        self.same: dict[str, str] = {}
        """For a tensor of the main graph that is gone the equal tensor that replaced it."""
        self.original_ids: NodeIds = {}
        self.node_ids: dict[Place, tuple[int, ...]] = {}
        """Ids of the nodes of the model, as far as it is simplified."""
        self._ids = itertools.count()
        self._spent = 0

    def run(self, model: Model) -> Model:
        """Simplify a model; return the same model if nothing changed."""
        places = [(place_of(function), f"{label(function)}/") for function in model.proto.functions]
        functions = [_as_model(model, function) for function in model.proto.functions]
        start = 0
        for each, (place, _) in [(model, (MAIN, "")), *zip(functions, places, strict=True)]:
            self.node_ids |= first_ids(Graph.of(each), start, place)
            start += Graph.of(each).node_count
        self._ids = itertools.count(start)
        self.original_ids = dict(self.node_ids)
        result = self._simplified(model, MAIN, "")
        bodies = [self._simplified(each, *place) for each, place in zip(functions, places, strict=True)]
        changed = [new if new is not old else None for new, old in zip(bodies, functions, strict=True)]
        if any(changed):
            result = _with_functions(result, changed)
        if self.trace and len(self.changes) > (self.steps[-1].done if self.steps else 0):
            self.steps.append(Step("local functions", result, len(self.changes), dict(self.node_ids)))
        return result

    def _simplified(self, model: Model, place: Place, prefix: str) -> Model:
        """Simplify one graph; return the same model if nothing changed."""
        _check_structure(Graph.of(model))
        ids: NodeIds = {(MAIN if each == place else each): listed for each, listed in self.node_ids.items()}
        net = Editor(model, ids, self._ids.__next__, skipped=self.skipped, prefix=prefix)
        rules = [rule for rule in RULES if self.optimize or rule.name in FOLDING]
        left: list[Left] = []
        for number in range(ROUNDS):
            self.tell(min(0.45, 0.05 + 0.1 * number), f"round {number + 1}{' in ' + prefix[:-1] if prefix else ''}")
            net.learn(self._types(model), ids if number else None)
            done = len(net.changes)
            left = self._round(net, rules, first=number == 0)
            if len(net.changes) == done:
                break
            model, ids = net.model()
        if self.contrib and self.optimize:
            # last, as other rules know only standard operators
            net.learn(self._types(model), ids if net.changes else None)
            done = len(net.changes)
            self._apply(net, CONTRIB)
            if len(net.changes) > done:
                model, ids = net.model()
        self.left += left
        if net.changes:
            self.changes += net.changes
            if prefix:
                # a function has no initializers: `_function` writes Constant nodes first
                by_name = {net.names[value]: id_ for value, id_ in net.constant_ids.items()}
                first = [by_name.get(plain_text(tensor.name), -1) for tensor in model.proto.graph.initializer]
                ids = {**ids, MAIN: (*first, *ids[MAIN])}
            else:
                self.same = {net.names[old]: net.names[new] for old, new in net.same.items()}
            self.node_ids |= {(place if each == MAIN else each): listed for each, listed in ids.items()}
        return model

    def _types(self, model: Model) -> Inference:
        graph = Graph.of(model)
        return infer(graph) if self.infer else Inference.of_nothing(graph)

    def _round(self, net: Editor, rules: Sequence[Rule], *, first: bool) -> list[Left]:
        net.run([rule for rule in RULES if rule.name == "extract_constants"])
        if first:
            rules_redundancy.remove_unused_nodes(net)
            rules_redundancy.remove_unused_initializers(net)
        folding = Folding(net, budget=self.budget, spent=self._spent, quantizing=self.quantizing)
        if self.fold:
            folding.known_integers()
        while True:
            done = len(net.changes)
            if self.fold:
                folding.constants()
                self._keep(net, "fold constants")
            self._apply(net, rules)
            if len(net.changes) == done:
                break
        self._spent = folding.spent
        return list(folding.left.values())

    def _apply(self, net: Editor, rules: Sequence[Rule]) -> None:
        rules_redundancy.merge_constants(net)
        for late in (False, True):
            net.run([rule for rule in rules if (rule.name in _LATE) == late], self._tell_waiting)
        rules_redundancy.remove_unused_nodes(net)
        self._keep(net, "rewrite")

    def _tell_waiting(self, count: int) -> None:
        self.tell(0.3, f"{count} nodes to look at")

    def _keep(self, net: Editor, what: str) -> None:
        """Keep the model as a step if something changed."""
        done = len(self.changes) + len(net.changes)
        if self.trace and not net.prefix and done > (self.steps[-1].done if self.steps else 0):
            again = any(step.name == what for step in self.steps)
            model, ids = net.model()
            self.steps.append(Step(f"{what}, again" if again else what, model, done, {**self.node_ids, **ids}))


def _check_structure(graph: Graph) -> None:
    for problem in graph.problems:
        if problem.kind in ("cycle", "recursion") or (problem.kind == "duplicate_name" and problem.value >= 0):
            message = f"{label_of(graph.model)}: {problem.message}"
            raise SimplificationError(message, advice="Repair or export it again.")


def _as_model(model: Model, function: FunctionProto) -> Model:
    """Return a model whose main graph is the body of a local function; it calls other functions without having them."""
    proto = ModelProto(ir_version=max(model.proto.ir_version, 8), opset_import=function.opset_import)
    proto.graph.name = function.name
    proto.graph.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
    proto.graph.node.extend(function.node)
    proto.graph.value_info.extend(function.value_info)
    return with_proto(model, proto, label(function))


def _with_functions(model: Model, bodies: Sequence[Model | None]) -> Model:
    """Return a model with new bodies of local functions, None for those that stay."""
    proto = ModelProto()
    wire.copy_fields(model.proto, proto, without=("functions",))
    used: dict[str, int] = {}
    for function, body in zip(model.proto.functions, bodies, strict=True):
        proto.functions.append(function if body is None else _function(function, body.proto))
        if body is not None:
            used |= {entry.domain: entry.version for entry in body.proto.opset_import}
    for domain in sorted(set(used) - {entry.domain for entry in proto.opset_import}):
        proto.opset_import.add(domain=domain, version=used[domain])
    return with_proto(model, proto)


def _function(function: FunctionProto, body: ModelProto) -> FunctionProto:
    """Return a local function with another body, whose initializers become Constant nodes."""
    found = FunctionProto()
    wire.copy_fields(function, found, without=("node", "value_info", "opset_import"))
    found.opset_import.extend(body.opset_import)
    written = {plain_text(node.output[0]): node for node in function.node if node.op_type == "Constant"}
    for tensor in body.graph.initializer:
        if plain_text(tensor.name) in written:
            found.node.append(written[plain_text(tensor.name)])
            continue
        node = onnx.helper.make_node("Constant", [], [tensor.name])
        node.attribute.add(name="value", type=AttributeProto.TENSOR, t=tensor)
        found.node.append(node)
    found.node.extend(body.graph.node)
    found.value_info.extend(body.graph.value_info)
    return found
