"""The rounds of `simplify`: infer types, fold constants, apply rules, until nothing changes.

Subgraphs are part of the graph; each local function is a graph of its own, of whose inputs nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, ModelProto

from onnx_nb.analysis.errors import SimplificationError
from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph import shape_inference
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import label_of, with_proto
from onnx_nb.analysis.model.nodes import all_nodes
from onnx_nb.analysis.simplify.constant_folding import Folding, Left
from onnx_nb.analysis.simplify.editor import Change, Rewriting, Rule
from onnx_nb.analysis.simplify.rule_names import FOLDING
from onnx_nb.analysis.simplify.rules import RULES
from onnx_nb.analysis.simplify.rules_onnxruntime import CONTRIB

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress

ROUNDS: Final = 8
"""Rounds at most, each with a new inference of all types."""

_OPAQUE: Final = "onnx_nb.opaque "
"""Before the domain of a node whose attributes only a call of its function knows."""
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


class Rounds:
    """Simplifies the graphs of a model, one after another."""

    def __init__(
        self,
        skipped: frozenset[str],
        *,
        contrib: bool,
        quantizing: bool,
        budget: int,
        tell: Progress,
        trace: bool,
    ) -> None:
        self.fold = "constant_folding" not in skipped
        self.optimize = "rewrites" not in skipped
        self.infer = "shape_inference" not in skipped
        self.skipped = skipped if self.fold else skipped | set(FOLDING)
        self.contrib, self.quantizing, self.budget, self.tell = contrib, quantizing, budget, tell
        self.trace = trace
        self.steps: list[Step] = []
        self.changes: list[Change] = []
        self.left: list[Left] = []
        self.same: dict[str, str] = {}
        self.spent = 0

    def run(self, model: Model) -> Model:
        """Simplify a model; return the same model if nothing changed."""
        result = self.functions(self.rewritten(model))
        if self.trace and len(self.changes) > (self.steps[-1].done if self.steps else 0):
            self.steps.append(Step("local functions", result, len(self.changes)))
        return result

    def rewritten(self, model: Model, prefix: str = "") -> Model:
        """Rewrite a graph until nothing changes; give the same model if nothing did."""
        _check_structure(Graph.of(model))
        rules = [rule for rule in RULES if self.optimize or rule.name in FOLDING]
        left: list[Left] = []
        for number in range(ROUNDS):
            self.tell(min(0.45, 0.05 + 0.1 * number), f"round {number + 1}{' in ' + prefix[:-1] if prefix else ''}")
            net = Rewriting(model, self._types(model), skipped=self.skipped, prefix=prefix)
            left = self._round(net, rules, first=number == 0)
            model = self._done(net)
            if not net.changes:
                break
        if self.contrib and self.optimize:
            # at last, as other rules know the standard's operators only
            net = Rewriting(model, self._types(model), skipped=self.skipped, prefix=prefix)
            self._rules(net, CONTRIB)
            model = self._done(net)
        self.left += left
        return model

    def _done(self, net: Rewriting) -> Model:
        """Write down what was changed."""
        if not net.changes:
            return net.source
        self.changes += net.changes
        if not net.prefix:
            self.same |= net.same
        return net.model()

    def _types(self, model: Model) -> shape_inference.Types:
        if self.infer:
            return shape_inference.infer(model)
        graph = Graph.of(model)
        return shape_inference.Types(graph, [], np.full(graph.node_count, -1, np.int32), {}, ())

    def _round(self, net: Rewriting, rules: Sequence[Rule], *, first: bool) -> list[Left]:
        net.run([rule for rule in RULES if rule.name == "extract_constants"])
        if first:
            net.sweep()
            net.drop_unused()
        folding = Folding(net, budget=self.budget, spent=self.spent, quantizing=self.quantizing)
        if self.fold:
            folding.known_integers()
        while True:
            count = len(net.changes)
            if self.fold:
                folding.constants()
                self._keep(net, "fold constants")
            self._rules(net, rules)
            if len(net.changes) == count:
                break
        self.spent = folding.spent
        return list(folding.left.values())

    def _rules(self, net: Rewriting, rules: Sequence[Rule]) -> None:
        net.merge_constants()
        net.run([rule for rule in rules if rule.name not in _LATE], self._waiting)
        net.run([rule for rule in rules if rule.name in _LATE], self._waiting)
        net.sweep()
        self._keep(net, "rewrite")

    def _waiting(self, count: int) -> None:
        self.tell(0.3, f"{count} nodes to look at")

    def _keep(self, net: Rewriting, what: str) -> None:
        done = len(self.changes) + len(net.changes)
        if self.trace and not net.prefix and done > (self.steps[-1].done if self.steps else 0):
            again = any(step.name == what for step in self.steps)
            self.steps.append(Step(f"{what}, again" if again else what, net.model(), done))

    def functions(self, model: Model) -> Model:
        """Rewrite the body of each local function as a graph of its own, of whose inputs nothing is known."""
        functions = model.proto.functions
        found = [self._function(model, function) for function in functions]
        if all(new is None for new in found):
            return model
        proto = ModelProto()
        wire.copy_fields(model.proto, proto, without=("functions",))
        proto.functions.extend(new or old for new, old in zip(found, functions, strict=True))
        imported = {entry.domain for entry in proto.opset_import}
        used = {entry.domain: entry.version for new in found if new is not None for entry in new.opset_import}
        for domain in sorted(set(used) - imported):
            proto.opset_import.add(domain=domain, version=used[domain])
        return with_proto(model, proto)

    def _function(self, model: Model, function: FunctionProto) -> FunctionProto | None:
        proto = ModelProto(ir_version=max(model.proto.ir_version, 8), opset_import=function.opset_import)
        proto.graph.name = function.name
        proto.graph.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
        proto.graph.node.extend(function.node)
        proto.graph.value_info.extend(function.value_info)
        for node in all_nodes(proto.graph.node):
            if any(attribute.ref_attr_name for attribute in node.attribute):
                node.domain = _OPAQUE + node.domain
        prefix = f"{plain_text(function.domain)}.{plain_text(function.name)}/"
        rewritten = self.rewritten(with_proto(model, proto, prefix[:-1]), prefix).proto
        if rewritten is proto:
            return None
        body = rewritten.graph
        found = FunctionProto()
        wire.copy_fields(function, found, without=("node", "value_info", "opset_import"))
        found.opset_import.extend(rewritten.opset_import)
        written = {plain_text(node.output[0]): node for node in function.node if node.op_type == "Constant"}
        for tensor in body.initializer:
            if plain_text(tensor.name) in written:
                found.node.append(written[plain_text(tensor.name)])
                continue
            node = onnx.helper.make_node("Constant", [], [tensor.name])
            node.attribute.add(name="value", type=AttributeProto.TENSOR, t=tensor)
            found.node.append(node)
        found.node.extend(body.node)
        for node in all_nodes(found.node):
            node.domain = node.domain.removeprefix(_OPAQUE)
        found.value_info.extend(body.value_info)
        return found


def _check_structure(graph: Graph) -> None:
    for fault in graph.problems:
        if fault.kind in ("cycle", "recursion") or (fault.kind == "duplicate_name" and fault.value >= 0):
            raise SimplificationError(f"{label_of(graph.model)}: {fault.message}", advice="Repair or export it again.")
