"""Which ONNX tensor carries which module's output: judged by values only, which the alignment hardly looks at."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import onnx_nb
from onnx_nb import AlignmentError, FeedError, ModelFileError, export, record
from onnx_nb.analysis.pytorch import operations
from onnx_nb.analysis.pytorch.align import Alignment, align
from onnx_nb.analysis.pytorch.side import feeds_of
from onnx_nb.types import Graph

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
    pytest.skip("torch or transformers is not installed", allow_module_level=True)

import torch
from torch import nn

from tests import modules

# module outputs with a tensor, of all: TorchScript, dynamo, dynamo without optimization
FOUND = {
    "conv": (17, 17, 17, 17),
    "conv_bn": (21, 16, 16, 21),
    "resnet": (278, 225, 225, 278),
    "bert": (80, 80, 80, 80),
    "bert_eager": (88, 88, 88, 88),
    "llama": (59, 59, 57, 59),
    "shared": (22, 22, 22, 22),
    "tuples": (15, 13, 12, 13),
}


def every_value(model: onnx_nb.Model, feeds: dict[str, Any]) -> dict[str, Any]:
    """What onnxruntime gives for every tensor of the main graph, weights included."""
    proto = model.to_proto()
    names = [name for node in proto.graph.node for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    return {**weights, **feeds, **dict(zip(names, session.run(names, feeds), strict=True))}


def same(a: Any, b: Any) -> bool:
    if not isinstance(b, np.ndarray) or a.shape != b.shape:
        return False
    largest = float(np.abs(a).max(initial=0))  # rounding grows through 50 layers
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-5 + 1e-4 * largest))


@pytest.mark.parametrize("how", list(modules.EXPORTS))
@pytest.mark.parametrize("name", list(modules.MODULES))
def test_no_match_is_wrong_and_none_is_missed(name: str, how: str) -> None:
    _, _, model, recording = modules.exported(name, how)
    found = align(recording, model)
    values = every_value(model, feeds_of(recording, model))
    slots = [slot for call in recording.calls for slot in call.outputs]
    computed = [value for key, value in values.items() if key not in model.initializers]
    for match, slot in zip(found.matches, slots, strict=True):
        recorded = recording.value(slot.value)
        if match.tensor:
            assert same(recorded, values[match.tensor]), match
        else:
            assert match.why
            assert not any(same(recorded, value) for value in computed), match
    counts = FOUND[name]
    assert len(found) == counts[0]
    assert len(found.matched) >= counts[1 + list(modules.EXPORTS).index(how)]
    folded = [match for match in found.unmatched if "fold" in match.why]
    if name in ("conv_bn", "resnet") and how != "plain":
        assert len(folded) == len(found.unmatched)
        assert {match.cls for match in folded} == {"Conv2d"}


def test_an_alignment_can_be_saved_and_applied_to_a_model_made_from_the_export(tmp_path: Path) -> None:
    _, _, model, recording = modules.exported("conv_bn", "plain")
    found = align(recording, model)
    again = Alignment.load(found.save(tmp_path / "alignment.json"))
    assert again.matches == found.matches
    bare = model.to_proto()
    for node in bare.graph.node:  # as most optimizers leave it
        del node.metadata_props[:]
        node.name = ""
    with pytest.raises(AlignmentError, match=r"no node of .* bears the name of a submodule of ConvBN"):
        align(recording, bare)
    assert again.on(bare).matched == found.matched
    fused = onnx.shape_inference.infer_shapes(bare)
    head = found["fc"].tensor
    quantized = next(node for node in fused.graph.node if found["pool"].tensor in node.output)
    quantized.output[0] = f"{found['pool'].tensor}_DequantizeLinear_Output"
    for node in fused.graph.node:
        for place, name in enumerate(node.input):
            if name == found["pool"].tensor:
                node.input[place] = quantized.output[0]
    there = again.on(fused)
    assert there["fc"].tensor == head
    assert (there["pool"].tensor, there["pool"].how) == (quantized.output[0], "suffix")
    with pytest.raises(ModelFileError, match="cannot be read as a saved alignment"):
        Alignment.load(Path(__file__))
    with pytest.raises(ModelFileError, match="there is no file"):
        Alignment.load(tmp_path / "none.json")
    with pytest.raises(ModelFileError, match="cannot be written"):
        found.save(tmp_path / "no folder" / "alignment.json")


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_the_export_of_another_module_is_an_error(exporter: str) -> None:
    _, _, model, _ = modules.exported("bert", exporter)
    module, kwargs = modules.fresh("conv")
    with pytest.raises(AlignmentError, match="it is the export of another module"):
        align(record(module, (), kwargs), model)


def test_arguments_that_do_not_fit_are_an_error() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.add(x, y)

    module, x = Two().eval(), torch.ones(2)
    model = export(module, (x, x), exporter="torchscript", input_names=["a", "b"])
    recording = record(module, (x, 2 * x))
    assert {name: float(array[0]) for name, array in feeds_of(recording, model).items()} == {"a": 1, "b": 2}
    single = record(nn.ReLU().eval(), x)
    with pytest.raises(FeedError, match="ReLU has no argument for 'b' of Two"):
        feeds_of(single, model)
    longer = record(module, (torch.ones(3), torch.ones(3)))
    with pytest.raises(FeedError, match="'a'"):
        feeds_of(longer, model)


def test_rows_equal_the_data_frame() -> None:
    _, _, model, recording = modules.exported("shared", "torchscript")
    found = align(recording, model)
    frame = found.to_frame()
    assert list(frame["name"]) == [match.name for match in found.matches]
    assert found["block.c#2"].tensor != found["block.c"].tensor
    with pytest.raises(AlignmentError, match="Closest names: 'block"):
        found["blokc"]
    assert Graph.of(model).value(found["lin#2"].tensor) >= 0


# functions that the forwards call and that have a tensor: TorchScript, dynamo, dynamo without optimization
FUNCTIONS = {
    "conv_bn": (3, 3, 3),
    "resnet": (16, 16, 16),
    "bert": (43, 43, 47),
    "bert_eager": (51, 51, 55),
    "llama": (145, 145, 142),
    "tuples": (2, 3, 3),
}


@pytest.mark.parametrize("how", list(modules.EXPORTS))
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions_of_a_forward_have_their_tensor_and_no_match_is_wrong(name: str, how: str) -> None:
    module, kwargs, model, single = modules.exported(name, how)
    recording = record(module, (), kwargs, functions=True)
    found = align(recording, model)
    calls = [match for match in found.matches if not match.function]
    assert [(match.name, bool(match.tensor)) for match in calls] == [
        (match.name, bool(match.tensor)) for match in align(single, model).matches
    ]
    functions = [match for match in found.matches if match.function]
    assert len(functions) >= FUNCTIONS[name][list(modules.EXPORTS).index(how)]
    values = every_value(model, feeds_of(recording, model))
    for match in functions:
        assert same(recording[match.name], values[match.tensor]), match
        assert match.source
    tensors = [match.tensor for match in functions]
    assert len(set(tensors)) == len(tensors)
    assert not {match.tensor for match in calls} & set(tensors)
    if name == "resnet":
        assert {match.function for match in functions} == {"add_"}
        assert {match.source.partition(":")[0] for match in functions} == {"modeling_resnet.py"}


def test_no_operation_ends_at_a_node_of_another_that_only_its_name_resembles() -> None:
    """A mul is no MatMul, in four bits or not; a gelu may be a FastGelu, which no row of the table has."""
    assert not np.isfinite([operations.cost_of_end("mul", op) for op in ("MatMul", "MatMulNBits", "FusedMatMul")]).any()
    assert [operations.cost_of_end(*pair) for pair in (("linear", "MatMulNBits"), ("gelu", "FastGelu"))] == [0, 0]


def exported(nodes: list[onnx.NodeProto], arrays: dict[str, Any], given: Any, size: list[int]) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in arrays.items()]
    result = helper.make_tensor_value_info("result", onnx.TensorProto.FLOAT, size)
    graph = helper.make_graph(nodes, "by hand", [given], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def node(op_type: str, *inputs: str, scope: str, output: str = "") -> onnx.NodeProto:
    name = f"/{scope}/{op_type}"
    return helper.make_node(op_type, inputs, [output or f"{name}/output_0"], name)


def test_what_an_export_does_to_an_embedding_in_its_scope_is_not_the_embedding() -> None:
    """onnxruntime-genai's builder writes Granite's factor beside the Gather, in the scope of the submodule."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens, self.head = torch.nn.Embedding(30, 8), torch.nn.Linear(8, 5, bias=False)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.head(self.embed_tokens(ids) * 12.0)
            return scores

    torch.manual_seed(0)
    module = Scaled().eval()
    nodes = [
        node("Gather", "table", "ids", scope="embed_tokens"),
        node("Mul", "/embed_tokens/Gather/output_0", "twelve", scope="embed_tokens"),
        node("MatMul", "/embed_tokens/Mul/output_0", "w", scope="head", output="result"),
    ]
    arrays = {"table": module.embed_tokens.weight.detach(), "w": module.head.weight.detach().T, "twelve": 12}
    ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, 4])
    c = onnx_nb.compare_torch(module, torch.tensor([[3, 1, 4, 1]]), model=exported(nodes, arrays, ids, [1, 4, 5]))
    assert c.first_divergent() is None
    assert c["embed_tokens"].candidate == "/embed_tokens/Gather/output_0"
    assert c["model → mul()"].candidate == "/embed_tokens/Mul/output_0"


def test_an_operation_in_the_middle_of_a_module_is_not_its_result() -> None:
    """The builder writes Nemotron's squared Relu with the square beside the scope of the submodule."""

    class Squared(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.square(torch.nn.functional.relu(x))

    torch.manual_seed(0)
    up, down = torch.nn.Linear(4, 6, bias=False), torch.nn.Linear(6, 3, bias=False)
    module = torch.nn.Sequential(up, Squared(), down).eval()
    nodes = [
        node("MatMul", "x", "up", scope="0"),
        node("Relu", "/0/MatMul/output_0", scope="1"),
        node("Pow", "/1/Relu/output_0", "two", scope="square"),
        node("MatMul", "/square/Pow/output_0", "down", scope="2", output="result"),
    ]
    arrays = {"up": up.weight.detach().T, "down": down.weight.detach().T, "two": 2}
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [5, 4])
    c = onnx_nb.compare_torch(module, torch.randn(5, 4), model=exported(nodes, arrays, x, [5, 3]))
    assert c.first_divergent() is None
    assert [point.candidate for point in c.points if point.name == "1"] in ([], ["/square/Pow/output_0"])
