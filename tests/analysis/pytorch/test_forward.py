"""What `show` makes of a torch module: its export, or the forward pass as far as it ran, with a mark where it fails.

torch.fx, which traces symbolically, says which functions a module calls; hooks tell the shapes that submodules return.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import onnx_nb
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.pytorch.forward import Forward, forward_or_export
from onnx_nb.analysis.scopes.scopes import scopes

torch = pytest.importorskip("torch")


class Block(torch.nn.Module):  # type: ignore[name-defined, misc]
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(outputs)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.norm(self.conv(x)))


class Network(torch.nn.Module):  # type: ignore[name-defined, misc]
    """Sound, but for what subclasses change."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.stem = Block(3, 8)
        self.body = torch.nn.Sequential(Block(8, 8), Block(channels, 8))
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.middle(self.body(self.stem(x))).mean((2, 3)))

    def middle(self, x: Any) -> Any:
        return x


class Branch(Network):
    def middle(self, x: Any) -> Any:
        if x.mean() > 0:  # decides by values
            x = x * 2
        return x


class Refusal(Network):
    def middle(self, x: Any) -> Any:
        if x.shape[1] != 9:
            raise ValueError("nine channels are needed")
        return x


class Unsupported(Network):
    def middle(self, x: Any) -> Any:
        return x + torch.linalg.qr(x.mean((2, 3)))[0].sum()


X = torch.ones(2, 3, 8, 8)


def shown(module: Any) -> Forward:
    torch.manual_seed(0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = forward_or_export(module.eval(), X)
    assert isinstance(found, Forward)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    return found


def line_of(words: str) -> int:
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


FUNCTIONS = {torch.nn.Conv2d: "conv2d", torch.nn.BatchNorm2d: "batch_norm", torch.nn.Linear: "linear"}


def fx_names(module: Any) -> list[str]:
    """Return the functions that torch.fx finds in a module."""
    names = []
    for node in torch.fx.Tracer().trace(module).nodes:
        if node.op == "call_module":
            names.append(FUNCTIONS[type(module.get_submodule(node.target))])
        elif node.op in ("call_function", "call_method"):
            names.append(node.target if isinstance(node.target, str) else node.target.__name__)
    return names


def test_a_sound_module_is_its_export() -> None:
    model = forward_or_export(Network().eval(), X)
    assert isinstance(model, onnx_nb.Model)
    (output,) = onnx_nb.run(model, {model.inputs[0].name: X.numpy()}).values()
    assert output.shape == (2, 2)


def test_a_forward_that_fails_is_shown_up_to_the_function_that_raised() -> None:
    found = shown(Network(channels=9))
    assert found.failures == ("body.1.conv.conv2d",)
    with pytest.raises(RuntimeError) as error:  # torch's own words
        Network(channels=9).eval()(X)
    assert str(error.value).rstrip(".") in found.message
    assert f"conv2d of 'body.1.conv' (test_forward.py:{line_of('return torch.relu(self.norm')})" in found.message
    nodes = found.model.proto.graph.node
    assert [node.op_type for node in nodes] == fx_names(Network().eval())[:7]
    assert (nodes[-1].name, list(nodes[-1].output)) == ("body.1.conv.conv2d", [])
    assert [*nodes[-1].input] == [*nodes[-2].output, "body.1.conv.weight", "body.1.conv.bias"]


def test_an_error_of_python_code_is_a_node_behind_what_its_module_was_given() -> None:
    found = shown(Refusal())
    (name,) = found.failures
    assert name == "ValueError"
    assert (
        f"ValueError (test_forward.py:{line_of('nine channels are needed')}): nine channels are needed" in found.message
    )


def test_a_branch_that_depends_on_values_is_marked_where_it_decides() -> None:
    found = shown(Branch())
    (name,) = found.failures
    node = next(node for node in found.model.proto.graph.node if node.name == name)
    assert node.op_type == "bool"
    assert f"(test_forward.py:{line_of('decides by values')})" in found.message
    assert "data-dependent" in found.message
    assert "torch.where" in found.advice
    graph = Graph.of(found.model)
    assert graph.op_type(int(graph.producer[graph.value(node.input[0])])) == "gt"


def test_an_operator_that_the_exporter_lacks_is_marked() -> None:
    found = shown(Unsupported())
    (name,) = found.failures
    assert re.fullmatch(r"linalg_qr.*", name)
    assert "No ONNX function found" in found.message


def test_the_graph_has_the_functions_shapes_and_scopes_of_the_forward_pass() -> None:
    module = Branch().eval()
    shapes: dict[str, tuple[int, ...]] = {}
    handles = [
        part.register_forward_hook(lambda _part, _args, output, path=path: shapes.update({path: tuple(output.shape)}))
        for path, part in module.named_modules()
    ]
    module(X)
    for handle in handles:
        handle.remove()
    found = shown(module)
    graph = Graph.of(found.model)
    last: dict[str, Any] = {}
    for node in range(graph.node_count):
        outputs = graph.node_outputs(node).tolist()
        if outputs:
            last[graph.names[node].rpartition(".")[0]] = graph.type_of(outputs[0]).shape
    assert last.pop("") == (2, 8)  # the mean: what the module returns is its head's
    assert last == {path: shape for path, shape in shapes.items() if path in last}
    assert {"stem", "stem.conv", "body.1.norm", "head"} <= last.keys()
    assert {"stem", "body/0", "body/1"} <= {*scopes(Graph.opened(found.model)).scope_path}
    weights = {tensor.name for tensor in found.model.proto.graph.initializer}
    assert weights == {name for name, _ in module.named_parameters()} | {
        name for name, _ in module.named_buffers() if not name.endswith("num_batches_tracked")
    }
    assert found.model.tensor("head.weight").tolist() == module.head.weight.tolist()


def test_functions_that_change_a_tensor_in_place_are_a_chain() -> None:
    class InPlace(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any) -> Any:
            y = x * 2
            y.add_(1).relu_()
            return y.tolist() and y.nonexistent

    found = forward_or_export(InPlace().eval(), torch.ones(3))
    assert isinstance(found, Forward)
    nodes = found.model.proto.graph.node
    assert [node.op_type for node in nodes] == ["mul", "add", "relu", "tolist", "AttributeError"]
    for former, node in itertools.pairwise([*nodes][:4]):
        assert former.output[0] in node.input


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_type_that_onnx_lacks_is_no_failure_of_forward() -> None:
    class Half(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any) -> Any:
            return x.to(torch.complex32).real.float()

    module = Half().eval()
    module(torch.ones(3))
    found = forward_or_export(module, torch.ones(3))
    assert isinstance(found, Forward)
    assert found.message.startswith("Half runs in torch, but its export fails")


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, not"):
        forward_or_export(lambda x: x, X)  # type: ignore[arg-type]
