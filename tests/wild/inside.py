"""``python -m tests.wild.inside``: are probabilities of attentions and dequantized weights those of others?

Each decoder that onnxruntime-genai's builder and mobius make. The probabilities of every attention, at the prefill and
in two steps, must lead to the output that onnxruntime gave, and in float32 be those of transformers; every packed
weight must be what onnxruntime multiplies an identity by. Prints a table; the exit status is 1 if one is off.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Final

import numpy as np
import onnx
import torch
import transformers
from numpy.typing import NDArray
from onnx import helper

import onnx_nb
from onnx_nb.analysis.compare.operands import block_reader
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.tensors import attributes
from onnx_nb.analysis.run.attention import ATTENTIONS
from tests.wild import collection

PROMPT: Final = [7 * n % 290 + 3 for n in range(24)]
HEADS: Final = "| package | attentions | from their output | from transformers | packed weights | from onnxruntime |"
OFF: Final = 1e-4


def distance(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the largest difference, by the largest value of the second."""
    return float(np.abs(first - second).max() / np.abs(second).max())


def output_error(captured: Any, node: onnx.NodeProto, probabilities: NDArray[Any]) -> float:
    """Return how far an output is from the one that the probabilities lead to."""
    options, output = attributes(node), captured[node.output[0]]
    groups = options["kv_num_heads"]
    values = captured[node.input[2] or node.input[0]]
    width = output.shape[-1] // probabilities.shape[1]
    values = values[..., -groups * width :].reshape(*values.shape[:2], groups, width).swapaxes(1, 2)
    past = node.input[4 if node.op_type == "GroupQueryAttention" else 5]
    used = np.asarray(probabilities.any(axis=(0, 1, 2)))[
        :, None
    ]  # behind the tokens a window holds memory that nobody has written
    values = np.where(used, np.concatenate([captured[past], values], axis=2), 0)
    heads = probabilities @ np.repeat(values, probabilities.shape[1] // groups, axis=1)
    return distance(heads.swapaxes(1, 2).reshape(output.shape), output)


def attention_errors(package: Any, checkpoint: Any) -> tuple[int, float, float]:
    """Return the count of attentions, and the errors against the outputs and against transformers."""
    graph, decoding = Graph.of(package), onnx_nb.decode(package, PROMPT, 6, stop=())
    nodes = [node for node in graph.order.tolist() if graph.op_type(node) in ATTENTIONS]
    module: Any = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager")
    module = module.float().eval()
    with torch.no_grad():
        expected = module(torch.tensor([PROMPT]), output_attentions=True).attentions
    errors, others = [0.0], [0.0]
    for step in (0, 1, 5):
        captured = onnx_nb.capture(package, decoding.feeds(step), keep="*")
        for node, attention in zip(nodes, expected, strict=False):
            probabilities = captured.attention(graph.value_names[graph.node_outputs(node)[0]])
            errors.append(output_error(captured, graph.nodes[node], probabilities))
            if step == 0:
                others.append(distance(probabilities[..., -len(PROMPT) :], attention.numpy()))
    return len(nodes), max(errors), max(others)


def weight_errors(package: Any) -> tuple[int, float]:
    """Return the count of packed weights, and their largest error against what onnxruntime reads."""
    graph, errors = Graph.of(package), list[float]()
    for name in package.initializers:
        pair = block_reader(graph, graph.value(name)) if graph.value(name) >= 0 else None
        if pair is None:
            continue
        node, operand = graph.nodes[pair[0]], pair[1]
        is_table = node.op_type == "GatherBlockQuantized"
        x = np.arange(operand.array.shape[0]) if is_table else np.eye(operand.array.shape[0], dtype=np.float32)
        alone = onnx.NodeProto()
        alone.CopyFrom(node)
        alone.input[1 if is_table else 0] = "x"
        weights = [tensor for tensor in package.to_proto().graph.initializer if tensor.name in alone.input]
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        result = helper.make_tensor_value_info(alone.output[0], onnx.TensorProto.FLOAT, None)
        body = helper.make_graph([alone], "g", [helper.make_tensor_value_info("x", kind, x.shape)], [result], weights)
        for entry in alone.attribute:
            if entry.name == "accuracy_level":
                entry.i = 0  # not rounded to int8
        model = helper.make_model(body, opset_imports=package.proto.opset_import, ir_version=10)
        errors.append(distance(operand.array, onnx_nb.run(model, {"x": x})[alone.output[0]]))
    return len(errors), max(errors, default=0.0)


def main() -> int:
    """Print a row for each package; return 1 if a number is off."""
    warnings.simplefilter("ignore")
    paths, _ = collection.generators()
    folders = [(path.parent, path.parent.parent / "checkpoint") for path in paths]
    folders += [
        (folder, collection.CACHE / "generators" / folder.name / "checkpoint")
        for folder in sorted((collection.CACHE / "mobius").iterdir())
        if (collection.CACHE / "generators" / folder.name).is_dir()
    ]
    is_wrong = False
    sys.stdout.write(f"{HEADS}\n|---|---|---|---|---|---|\n")
    for folder, checkpoint in folders:
        package = onnx_nb.load(folder)
        count, error, other = attention_errors(package, checkpoint)
        weights, weight_error = weight_errors(package)
        is_float = folder.name != "int4"
        # of mobius' Gemma 2 it is the window that the export has lost
        is_wrong |= max(error, weight_error, other if folder.name == "fp32" else 0) > OFF
        cells = [f"{folder.parent.name} {folder.name}", f"{count}", f"{error:.0e}" if count else "–"]
        cells += [
            f"{other:.0e}" if is_float and count else "–",
            f"{weights}",
            f"{weight_error:.0e}" if weights else "–",
        ]
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
