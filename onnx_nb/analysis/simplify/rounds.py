"""Rounds of `simplify`: infer types, fold constants, apply rules, until nothing changes. Names of all rules.

Subgraphs are part of the graph; each local function is a separate graph with unknown inputs. One editor works on
a graph through all rounds, so that its nodes keep their ids. Nodes of an explicit list of deterministic operators
whose inputs are all constant run in onnxruntime, in one session and without its optimizations.
"""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import onnx
import onnx.numpy_helper
from onnx import FunctionProto, ModelProto

from onnx_nb.analysis import foreign_names
from onnx_nb.analysis.errors import OnnxNbError, SimplificationError
from onnx_nb.analysis.formatting import bytes_text, closest_text, plain_text, quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import facts
from onnx_nb.analysis.graph.shape_inference import TypeWalk, infer
from onnx_nb.analysis.graph.types import may_divide
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import Model, label_of, with_proto
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.run import session
from onnx_nb.analysis.simplify import rules_redundancy
from onnx_nb.analysis.simplify.editor import Change, Editor, Rule
from onnx_nb.analysis.simplify.known_graph import FLOATS, MAIN, Array, NodeIds, Op, Place, label
from onnx_nb.analysis.simplify.rules_fusion import FUSIONS

ROUNDS: Final = 8
"""Maximum number of rounds, each with a new inference of all types."""
TOGETHER: Final = 2000
"""Nodes that one session folds; nothing can interrupt its creation."""
FREE: Final = 1024
"""Maximum bytes of a result that is always folded: the removed node takes as much."""

RULES: Final[tuple[Rule, ...]] = (*rules_redundancy.NO_OPS, *FUSIONS, *rules_redundancy.SHAPE_RULES)
"""Rules that rewrite standard operators to standard operators, in the order in which they are tried on a node."""
FOLDING: Final = ("fold_constants", "fold_shapes", "fold_reshape")
"""Rules of constant folding."""
STAGES: Final = ("shape_inference", "constant_folding", "rewrites")
"""Kinds of work that can be skipped as a whole."""
_LATE: Final = (
    *("eliminate_common_subexpression", "fuse_parallel_matmuls", "fuse_parallel_adds", "fuse_gather_into_shape"),
)
"""Rules applied after all others: a Conv with two readers absorbs no BatchNormalization, and a size may be folded."""


def rules() -> dict[str, str]:
    """Return the rules of `simplify`: name → description in one line.

    Examples
    --------
    >>> rules()["eliminate_identity"]
    'Remove Identity nodes'
    """
    folding = {"fold_constants": "Run nodes whose inputs are constant, and store their results"}
    standard = {rule.name: rule.does for rule in sorted(RULES, key=lambda rule: rule.name not in FOLDING)}
    return {**folding, **standard, **rules_redundancy.CLEANING}


def skipped_names(skip: Iterable[str]) -> frozenset[str]:
    """Return the stages, rules and keys of changes to skip, with names of other tools replaced by ours."""
    rules_ = [*rules(), *STAGES]
    names: set[str] = set()
    for name in (skip,) if isinstance(skip, str) else skip:
        if name in foreign_names.table("rules"):
            names.update(foreign_names.table("rules")[name].split())
        elif name.partition(": ")[0] in rules_:
            names.add(name)
        else:
            near = closest_text(name, [*rules_, *foreign_names.table("rules")])
            near = near or f"Rules: {', '.join(map(quoted, rules_))}."
            advice = f"{near} onnx_nb.rules() lists all rules; keys of changes are in s.changes."
            raise SimplificationError(f"there is no rule {quoted(name)}.", advice=advice)
    return frozenset(names)


@dataclass(frozen=True)
class Step:
    """A model between the original and the simplified one."""

    name: str
    """Name of the step that was just done."""
    model: Model
    done: int = 0
    """Number of changes made so far."""
    node_ids: NodeIds = field(default_factory=dict, repr=False)
    """Ids of the model's nodes, as in `Change.taken` and `Change.made`."""


class Rounds:
    """Simplifies the graphs of a model, one after another."""

    def __init__(self, skipped: frozenset[str], *, quantizing: bool, budget: int, tell: Progress, trace: bool) -> None:
        self.infer, self.fold, self.optimize = (stage not in skipped for stage in STAGES)
        self.skipped = skipped if self.fold else skipped | set(FOLDING)
        self.quantizing, self.budget, self.tell, self.trace = quantizing, budget, tell, trace
        self.steps: list[Step] = []
        self.changes: list[Change] = []
        self.left: list[Unfolded] = []
        self.same: dict[str, str] = {}
        """Removed tensor of the main graph → the equal tensor that replaced it."""
        self.original_ids: NodeIds = {}
        self.node_ids: dict[Place, tuple[int, ...]] = {}
        """Ids of the nodes in the graphs of the model that have been simplified."""
        self._ids = itertools.count()
        self._spent = 0

    def run(self, model: Model) -> Model:
        """Simplify a model; return the same model if nothing changed."""
        graphs: list[tuple[Model, Place, str]] = [(model, MAIN, "")]
        graphs += [(_as_model(model, f), ("function", label(f)), f"{label(f)}/") for f in model.proto.functions]
        start = 0
        for graph_model, main, _ in graphs:
            for sub in Graph.of(graph_model).subgraphs:
                place = (start + sub.owner_node, sub.attribute) if sub.owner_node >= 0 else main
                self.node_ids[place] = tuple(range(start + sub.start, start + sub.stop))
            start += Graph.of(graph_model).node_count
        self._ids = itertools.count(start)
        self.original_ids = dict(self.node_ids)
        result, *bodies = itertools.starmap(self._simplified, graphs)
        replacements = [new if new is not old else None for new, (old, _, _) in zip(bodies, graphs[1:], strict=True)]
        if any(replacements):
            result = _with_functions(result, replacements)
        if self._is_new_step(len(self.changes)):
            self.steps.append(Step("local functions", result, len(self.changes), dict(self.node_ids)))
        return result

    def _is_new_step(self, count: int) -> bool:
        """Return whether steps are kept and a model has more changes than the last of them."""
        return self.trace and count > (self.steps[-1].done if self.steps else 0)

    def _simplified(self, model: Model, place: Place, prefix: str) -> Model:
        """Simplify one graph; return the same model if nothing changed."""
        for problem in Graph.of(model).problems:
            if problem.kind in ("cycle", "recursion") or (problem.kind == "duplicate_name" and problem.value >= 0):
                raise SimplificationError(f"{label_of(model)}: {problem.message}", advice="Repair or export it again.")
        # a copy for each function would take the square of their number
        ids: NodeIds = ChainMap({MAIN: self.node_ids[place]}, self.node_ids)
        net = Editor(model, ids, self._ids.__next__, skipped=self.skipped, prefix=prefix)
        rules = [rule for rule in RULES if self.optimize or rule.name in FOLDING]
        left: Iterable[Unfolded] = ()
        for number in range(ROUNDS):
            self.tell(min(0.45, 0.05 + 0.1 * number), f"round {number + 1}{' in ' + prefix[:-1] if prefix else ''}")
            graph, count = Graph.of(model), len(net.changes)
            net.learn(infer(graph) if self.infer else TypeWalk(graph, graph.declared).run(()), ids if count else None)
            left = self._round(net, rules, first=number == 0)
            if len(net.changes) == count:
                break
            model, ids = net.model()
        self.left += left
        if net.changes:
            self.changes += net.changes
            if prefix:
                # a function has no initializers: `_with_functions` writes Constant nodes first
                by_name = {net.names[value]: id_ for value, id_ in net.constant_ids.items()}
                first = [by_name.get(plain_text(tensor.name), -1) for tensor in model.proto.graph.initializer]
                ids = {**ids, MAIN: (*first, *ids[MAIN])}
            else:
                self.same = {net.names[old]: net.names[new] for old, new in net.same.items()}
            self.node_ids |= {(place if key == MAIN else key): numbers for key, numbers in ids.items()}
        return model

    def _round(self, net: Editor, rules: Sequence[Rule], *, first: bool) -> Iterable[Unfolded]:
        """Fold and rewrite one graph until nothing changes; return the nodes that were not folded."""
        net.run([rule for rule in RULES if rule.name == "extract_constants"])
        if first:
            rules_redundancy.remove_unused_nodes(net)
            rules_redundancy.remove_unused_initializers(net)
        folding = _Folding(net, self.budget, self._spent, quantizing=self.quantizing)
        if self.fold:
            folding.known_integers()
        count = -1
        while len(net.changes) > count:
            count = len(net.changes)
            if self.fold:
                folding.constants()
                self._keep(net, "fold constants")
            rules_redundancy.merge_constants(net)
            for late in (False, True):
                batch = [rule for rule in rules if (rule.name in _LATE) == late]
                net.run(batch, lambda number: self.tell(0.3, f"{number} nodes to look at"))
            rules_redundancy.remove_unused_nodes(net)
            self._keep(net, "rewrite")
        self._spent = folding.spent
        return folding.left.values()

    def _keep(self, net: Editor, what: str) -> None:
        """Keep the model as a step if something changed."""
        count = len(self.changes) + len(net.changes)
        if not net.prefix and self._is_new_step(count):
            again = any(step.name == what for step in self.steps)
            model, ids = net.model()
            self.steps.append(Step(f"{what}, again" if again else what, model, count, {**self.node_ids, **ids}))


@dataclass(frozen=True)
class Unfolded:
    """A node with constant inputs that was not folded."""

    node: str
    op_type: str
    nbytes: int
    """Bytes of its outputs; 0 if unknown."""
    why: str


class _Folding:
    """Replaces values that do not depend on the inputs of a graph by constants, within a budget of bytes."""

    def __init__(self, net: Editor, budget: int, spent: int, *, quantizing: bool) -> None:
        self.net, self.budget, self.spent = net, budget, spent
        self.left: dict[int, Unfolded] = {}
        self._quantized = ("", "rounds", "dequantizes") if quantizing else ("",)
        """Kinds of quantization that may be folded; the other kinds say how a weight is stored."""
        self._refused: set[int] = set()

    def known_integers(self) -> None:
        """Fold the integers that type inference computed, such as the shapes of tensors with fixed shape."""
        net = self.net
        arrays = {
            value: array
            for op, case in net.cases
            if not net.repeats(op.subgraph)
            for value, array in zip(op.inputs, case.values, strict=False)
            if value >= 0 and array is not None and array.dtype.kind in "iub"
        }
        for value, array in arrays.items():
            maker = net.maker(value)
            if maker is None or maker.bodies or maker.op_type == "Constant" or maker.domain or len(maker.outputs) != 1:
                continue
            fits = net.dtype(value) == onnx.helper.np_dtype_to_tensor_dtype(array.dtype) and net.may_be_constant(value)
            if fits and net.may("fold_shapes", value):
                text = shortened(" ".join(str(array.tolist()).split()), 60)
                with net.change("fold_shapes", value, f"it is always {text}"):
                    net.make_constant(value, array)

    def constants(self) -> None:
        """Run the nodes whose inputs are constant, and store their results."""
        net, refusals = self.net, -1
        ops, ends = list[Op](), list[int]()
        while len(self._refused) > refusals:
            ops = self._foldable()
            numbers = {op.number for op in ops}
            values = [value for op in ops for value in op.outputs if value >= 0]
            ends = [v for v in values if net.output_count[v] or not numbers.issuperset(net.readers[v])]
            refusals = len(self._refused)
            self._refuse_over_budget(ends)
        for value, array in self._run(ops, ends).items() if ends else ():
            if net.maker(value) is not None:
                with net.change("fold_constants", value, "its inputs are constant"):
                    net.make_constant(value, array)

    def _foldable(self) -> list[Op]:
        net = self.net
        results: set[int] = set()
        ops = []
        for op in net.in_order():
            row = facts(op.op_type)
            if op.domain or op.bodies or op.number in self._refused or row.quantized not in self._quantized:
                continue
            if not row.is_deterministic or "sequence" in row.traits or op.op_type in ("Constant", "Dropout"):
                continue
            if not all(v < 0 or v in results or v in net.constants for v in op.inputs):
                continue
            if not all(net.may("fold_constants", v) and net.may_be_constant(v) for v in op.outputs if v >= 0):
                continue
            if op.op_type in ("Div", "Mod") and net.dtype(op.outputs[0]) not in FLOATS:
                divisor = op.inputs[-1]
                if divisor in results:
                    continue  # known in the next round
                if not may_divide(net.constant(divisor)):
                    self._leave(op, 0, "it may divide an integer by 0 or −1, which can end the process")
                    continue
            nbytes = self._bytes(op)
            if nbytes is None:
                # more may be known once its inputs are folded
                if all(v < 0 or v in net.constants for v in op.inputs):
                    self._leave(op, 0, "the size of its outputs is not known before it runs")
            elif nbytes > max(self._paid(op), self.budget, FREE):
                over = f"more than the budget of {bytes_text(self.budget)}"
                self._leave(op, nbytes, f"its outputs take {bytes_text(nbytes)}, {over}")
            else:
                results.update(v for v in op.outputs if v >= 0)
                ops.append(op)
        return ops

    def _leave(self, op: Op, nbytes: int, why: str) -> None:
        self._refused.add(op.number)
        self.left[op.number] = Unfolded(op.name or op.op_type, op.op_type, nbytes, why)

    def _bytes(self, op: Op) -> int | None:
        """Return the size of the outputs of a node; None if it is unknown before the node runs."""
        kinds = [self.net.kind(value) for value in op.outputs if value >= 0]
        if any(kind.size is None for kind in kinds):
            return None
        return sum(kind.nbytes or 8 * (kind.size or 0) for kind in kinds)  # strings have no declared size

    def _paid(self, op: Op) -> int:
        """Return the bytes of constants that become unused once a node is folded."""
        net = self.net
        read = {v for v in op.inputs if v in net.constants and len(net.readers[v]) == 1 and not net.output_count[v]}
        return sum(map(net.constant_bytes, read))

    def _refuse_over_budget(self, values: Sequence[int]) -> None:
        """Refuse the nodes whose results no longer fit the budget; if all fit, spend their bytes."""
        total, refusals = self.spent, len(self._refused)
        for value in values:
            op = self.net.ops[self.net.producer[value]]
            nbytes = self._bytes(op) or 0
            if nbytes > max(FREE, self._paid(op)):
                if total + nbytes > self.budget:
                    why = f"{bytes_text(nbytes)} do not fit the rest of the budget of {bytes_text(self.budget)}"
                    self._leave(op, nbytes, why)
                else:
                    total += nbytes
        if len(self._refused) == refusals:
            self.spent = total

    def _run(self, ops: Sequence[Op], values: Sequence[int]) -> dict[int, Array]:
        """Run nodes together in onnxruntime; if that fails, by halves, to refuse only those that it cannot run."""
        last_reader = {value: place for place, op in enumerate(ops) for value in op.inputs}
        targets, readers = set(values), self.net.readers
        arrays: dict[int, Array] = {}
        waiting = [range(len(ops))[at : at + TOGETHER] for at in range(0, len(ops), TOGETHER)][::-1]
        while waiting:
            places = waiting.pop()
            some, middle = ops[places.start : places.stop], len(places) // 2
            results = dict.fromkeys(value for op in some for value in op.outputs if value >= 0)
            here = [value for value in results if value in targets or last_reader.get(value, -1) >= places.stop]
            inputs = (value for op in some for value in op.inputs if value >= 0 and value not in results)
            failure = ""
            if all(value in arrays or value in self.net.constants for value in inputs):
                try:
                    arrays |= self._run_together(some, here or list(results), arrays)
                    continue
                except OnnxNbError as error:
                    failure = f"onnxruntime cannot run it: {error}"
            if middle:
                waiting += [places[middle:], places[:middle]]
            elif failure:
                self._leave(some[0], 0, failure)
            else:
                self._refused.add(some[0].number)  # an earlier node could not be run
        # a node that was refused still needs its inputs
        return {v: array for v, array in arrays.items() if v in targets or not self._refused.isdisjoint(readers[v])}

    def _run_together(self, ops: Sequence[Op], values: Sequence[int], arrays: Mapping[int, Array]) -> dict[int, Array]:
        net = self.net
        proto = ModelProto(ir_version=max(net.source.proto.ir_version, 4))
        proto.opset_import.extend(net.source.proto.opset_import)
        proto.graph.name = "constants"
        results_ = {value for op in ops for value in op.outputs}
        for value in dict.fromkeys(v for op in ops for v in op.inputs if v >= 0 and v not in results_):
            if value in arrays:
                proto.graph.initializer.append(onnx.numpy_helper.from_array(arrays[value], _name(value)))
            else:
                net.write_constant(net.constants[value], proto.graph, _name(value))
        for op in ops:
            node = proto.graph.node.add()
            node.CopyFrom(op.proto)
            op.write_ports(node, _name)
        proto.graph.output.extend(onnx.ValueInfoProto(name=_name(value)) for value in values)
        model = with_proto(net.source, proto, f"constants of {net.source.name}", net.large)
        results = session.run_session(session.create(model, optimize=False, transient=True), {}, name=model.name)
        return {value: np.asarray(results[_name(value)]) for value in values}


def _name(value: int) -> str:
    return f"v{value}"


def _as_model(model: Model, function: FunctionProto) -> Model:
    """Return a model whose main graph is the body of a local function; it lacks the other functions that it calls."""
    proto = ModelProto(ir_version=max(model.proto.ir_version, 8), opset_import=function.opset_import)
    proto.graph.name = plain_text(function.name)
    proto.graph.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
    proto.graph.node.extend(function.node)
    proto.graph.value_info.extend(function.value_info)
    return with_proto(model, proto, label(function))


def _with_functions(model: Model, bodies: Sequence[Model | None]) -> Model:
    """Return a model with new bodies of local functions, None for unchanged ones; weights become Constant nodes."""
    proto = ModelProto()
    wire.copy_fields(model.proto, proto, without=("functions",))
    for function, new in zip(model.proto.functions, bodies, strict=True):
        if new is None:
            proto.functions.append(function)
            continue
        body, target = new.proto, proto.functions.add()
        wire.copy_fields(function, target, without=("node", "value_info"))
        constants = {plain_text(node.output[0]): node for node in function.node if node.op_type == "Constant"}
        for tensor in body.graph.initializer:
            constant = onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
            target.node.append(constants.get(plain_text(tensor.name), constant))
        target.node.extend(body.graph.node)
        target.value_info.extend(body.graph.value_info)
    return with_proto(model, proto)
