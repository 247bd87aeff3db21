"""A forward pass of a torch module as a graph, as far as it ran: what there is to show where an export fails.

Each node is a call of a torch function or method, in the scope of the submodule whose ``forward`` made it. It is
recorded while the module runs once: nothing is traced again, and no part of the module is cut out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onnx_nb.analysis.errors import ExportError
from onnx_nb.analysis.formatting import count_text, quoted, shortened
from onnx_nb.analysis.model.model import Model, load
from onnx_nb.analysis.model.tensors import listed
from onnx_nb.analysis.pytorch.export import export, root_cause
from onnx_nb.analysis.pytorch.module_scopes import line_text, raising_lines, running_place
from onnx_nb.analysis.pytorch.operations import plain_name
from onnx_nb.analysis.pytorch.record import checked_arguments, intercept, labeled_arguments, tensors_in, watch
from onnx_nb.analysis.results import Displayed, Panel, Still

if TYPE_CHECKING:
    import onnx_ir
    import torch

_DECISIONS: Final = {"bool", "item", "int", "float", "index", "tolist"}
"""Methods that turn values into Python's, by which an ``if`` or a loop may decide."""


@dataclass(frozen=True, eq=False, repr=False)
class Forward(Displayed):
    """A forward pass that fails, or of a module whose export fails, as `show` displays it."""

    model: Model
    """Graph of the torch functions that ran, in the domain "torch": no runtime has them."""
    failures: tuple[str, ...]
    """Names of the nodes at which it fails; empty if nothing says which."""
    message: str
    """What fails, where and why."""
    advice: str
    """What to do about it."""

    def __repr__(self) -> str:
        return self.message

    def _panel(self) -> Panel:
        return Panel("graph.ModelView", (self.model,), shows_result=False, marks=self.failures)

    def _still(self) -> Still:
        marks = f", with a mark at {listed(self.failures, quoted, 3)}" if self.failures else ""
        count = count_text(len(self.model.proto.graph.node), "call")
        facts = f"The {count} of torch functions in forward{marks}. No runtime runs this graph."
        return Still(self.message, facts, steps=(self.advice,), ok=False)


def forward_or_export(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any] | None = None) -> Model | Forward:
    """Return the export of a module; where that fails, the forward pass, with what fails and why."""
    try:
        return export(module, args, kwargs)
    except ExportError as error:
        failure = error
    module, args, kwargs = checked_arguments(module, args, kwargs)
    recorder, cls = _Recorder(module), type(module).__name__
    try:
        recorder.run(args, kwargs)
    except Exception as error:  # noqa: BLE001 - any code may stand in forward, and the result tells its error
        failed = recorder.failed or [recorder.of_error(error)]
        reason = shortened(" ".join(str(error).split()), 400).rstrip(".") or type(error).__name__
        texts = f"forward of {cls} fails", f": {reason}."
    else:
        failed = recorder.blame(failure)
        texts = f"{cls} runs in torch, but its export fails", f". {failure.message}"
    advice = "Change the module, and show it again."
    where = ""
    if failed:
        path, line = failed[0].meta["path"], failed[0].meta["line"]
        within = f" of {quoted(path)}" if path else ""
        at = f" ({line_text(*line)})" if line else ""
        where = f" at {failed[0].op_type}{within}{at}"
    if any(node.op_type in _DECISIONS for node in failed):
        advice = "Values decide in Python here: compute both cases and take torch.where, or use torch.cond."
    return Forward(recorder.model(cls), tuple(node.name or "" for node in failed), where.join(texts), advice)


class _Recorder:
    def __init__(self, module: torch.nn.Module) -> None:
        from torch.utils.weak import WeakIdKeyDictionary

        self._module = module
        self._paths = {id(part): path for path, part in module.named_modules()}
        self._weights = {id(weight): name for name, weight in (*module.named_parameters(), *module.named_buffers())}
        self._running: list[torch.nn.Module] = []
        self._nodes: list[onnx_ir.Node] = []
        """Calls of torch functions; their ``meta`` has the path of the calling submodule, and file and line."""
        self.failed: list[onnx_ir.Node] = []
        """The function that raised, unless others ran after it."""
        self._values: MutableMapping[torch.Tensor, onnx_ir.Value] = WeakIdKeyDictionary()
        """Tensor → its value; a function that changes it in place gives it another."""
        self._node_names, self._value_names = Counter[str](), Counter[str]()
        self._inputs: list[onnx_ir.Value] = []
        self._outputs: list[onnx_ir.Value] = []
        self._initializers: list[onnx_ir.Value] = []
        self._given: list[torch.Tensor] = []
        """Tensors that the innermost submodule was given when it began."""

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        import torch

        def enter(_part: torch.nn.Module, args: Any, kwargs: Any) -> None:
            self._given = [tensor for _, tensor in tensors_in((*args, *kwargs.values()))]

        inputs = tensors_in(labeled_arguments(type(self._module), args, kwargs))
        self._inputs = [self._new(tensor, label) for label, tensor in inputs]
        with torch.no_grad(), watch(self._module, enter) as self._running, intercept(self._function):
            output = self._module(*args, **kwargs)
        self._outputs = [self._value(tensor) for _, tensor in tensors_in(output)]

    def of_error(self, error: Exception) -> onnx_ir.Node:
        """Add a node that bears the name of an error of Python code."""
        return self._add(type(error).__name__, self._given, [], {}, next(iter(raising_lines(error)), None))

    def blame(self, failure: ExportError) -> list[onnx_ir.Node]:
        """Return the functions of the line at which an export fails; else of the operator or submodule it names."""
        for line in raising_lines(root_cause(failure)):
            if nodes := [node for node in self._nodes if node.meta["line"] == line]:
                return [node for node in nodes if node.op_type in _DECISIONS] or nodes
        operators = tuple(re.findall(r"(?:aten|prims)(?:::|\.)_*([a-z_0-9]+)", failure.message))
        nodes = [node for node in self._nodes if failure.module in (None, node.meta["path"])]
        return [node for node in nodes if node.op_type.endswith(operators)] or (nodes[-1:] if failure.module else [])

    def model(self, name: str) -> Model:
        """Return the graph; of a pass that failed, its outputs are what no function read."""
        import onnx_ir

        nodes, opsets = self._nodes, {"torch": 1}
        read = {id(value) for node in nodes for value in node.inputs}
        ends = self._outputs or [value for node in nodes for value in node.outputs if id(value) not in read]
        graph = onnx_ir.Graph(
            self._inputs, ends, nodes=nodes, initializers=self._initializers, opset_imports=opsets, name=name
        )
        return load(onnx_ir.Model(graph, ir_version=10))

    def _function(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        name = getattr(function, "__name__", "function")
        if name == "__get__":  # a property such as x.T
            name = getattr(getattr(function, "__self__", None), "__name__", name)
        tensors = [tensor for _, tensor in tensors_in((*args, *kwargs.values()))]
        attributes = {f"arg{at}": value for at, value in enumerate(args) if _is_plain(value)}
        attributes |= {key: value for key, value in kwargs.items() if _is_plain(value)}
        try:
            output = function(*args, **kwargs)
        except Exception:
            self.failed = [self._add(plain_name(name), tensors, [], attributes, running_place())]
            raise
        results = [tensor for _, tensor in tensors_in(output)]
        if (results or plain_name(name) in _DECISIONS) and tensors + results:
            self.failed = []
            self._add(plain_name(name), tensors, results, attributes, running_place())
        return output

    def _add(
        self,
        op: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        attributes: Mapping[str, Any],
        line: tuple[str, int] | None,
    ) -> onnx_ir.Node:
        import onnx_ir

        parts = self._running or [self._module]
        paths = [self._paths.get(id(part), "") for part in parts]
        path = paths[-1]
        classes = [f"{type(part).__module__}.{type(part).__qualname__}" for part in parts]
        name = _unique(f"{path}.{op}" if path else op, self._node_names)
        metadata = {
            "pkg.torch.onnx.name_scopes": repr([*paths, name]),
            "pkg.torch.onnx.class_hierarchy": repr([*classes, f"aten.{op}"]),
        }
        if line is not None:
            metadata["pkg.torch.onnx.stack_trace"] = f'File "{line[0]}", line {line[1]}, in forward'
        values = [self._value(tensor) for tensor in inputs]
        results = [self._new(tensor, name) for tensor in outputs]
        node = onnx_ir.node(op, values, attributes, domain="torch", outputs=results, name=name, metadata_props=metadata)
        node.meta.update(path=path, line=line)
        self._nodes.append(node)
        return node

    def _value(self, tensor: torch.Tensor) -> onnx_ir.Value:
        """Return the value of a tensor; one that no function returned is a weight or a constant."""
        if tensor not in self._values:
            from onnx_ir.tensor_adapters import TorchTensor

            value = self._new(tensor, self._weights.get(id(tensor), "constant"))
            value.const_value = TorchTensor(tensor, value.name)
            self._initializers.append(value)
        return self._values[tensor]

    def _new(self, tensor: torch.Tensor, name: str) -> onnx_ir.Value:
        import onnx_ir
        from onnx_ir.tensor_adapters import from_torch_dtype

        try:
            kind = onnx_ir.TensorType(from_torch_dtype(tensor.dtype))
        except TypeError:  # one that ONNX lacks, such as complex32
            kind = None
        value = onnx_ir.Value(name=_unique(name, self._value_names), shape=onnx_ir.Shape(tensor.shape), type=kind)
        self._values[tensor] = value
        return value


def _unique(name: str, names: Counter[str]) -> str:
    names[name] += 1
    return name if names[name] == 1 else _unique(f"{name}#{names[name]}", names)


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, list | tuple) and value else [value]
    return all(isinstance(item, int) for item in items) or isinstance(value, float | str)
