"""``python -m tests.wild.decoding_faults``: faults planted into decoders of six layers, compared with transformers.

A Llama and a Gemma 2 as onnxruntime-genai's builder writes them. A fault counts as named by its step and the half of
the layer it is in. One that moves no half beyond rounding is counted apart: it cannot show.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import onnx_nb
from tests.analysis.generate import packages
from tests.wild import collection

LAYERS = 6
Plant = Callable[[onnx.ModelProto], None]


def attention(model: onnx.ModelProto, layer: int) -> onnx.NodeProto:
    """Return the attention of a layer."""
    nodes: list[onnx.NodeProto] = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    return nodes[layer]


def attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Set an attribute."""
    rest = [entry for entry in node.attribute if entry.name != name]
    del node.attribute[:]
    node.attribute.extend([*rest, helper.make_attribute(name, value)])


def weight(model: onnx.ModelProto, name: str, change: Callable[[Any], Any]) -> None:
    """Change a weight."""
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)).astype(np.float32), name))


def scale(model: onnx.ModelProto, layer: int) -> None:
    """Multiply the scale of the scores."""
    node = attention(model, layer)
    attribute(node, "scale", 1.1 * {entry.name: entry.f for entry in node.attribute}.get("scale", 0.25))


def rotary(model: onnx.ModelProto, layer: int) -> None:
    """Double the base of the rotary embedding."""
    (table,) = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == "cos_cache")
    count, half = table.shape
    angles = np.outer(np.arange(count), 20_000.0 ** (-np.arange(half) / half))
    for slot, name, values in ((7, "cos", np.cos(angles)), (8, "sin", np.sin(angles))):
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
        attention(model, layer).input[slot] = name


def forgotten(model: onnx.ModelProto, layer: int) -> None:
    """Let a layer read zeros as its past."""
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "zero"))
    node = attention(model, layer)
    for slot in (3, 4):
        model.graph.node.insert(0, helper.make_node("Mul", [node.input[slot], "zero"], [f"zero.{slot}"]))
        node.input[slot] = f"zero.{slot}"


def swapped(model: onnx.ModelProto, first: int, second: int) -> None:
    """Swap the pasts of two layers."""
    a, b = attention(model, first), attention(model, second)
    for slot in (3, 4):
        a.input[slot], b.input[slot] = b.input[slot], a.input[slot]


def epsilon(model: onnx.ModelProto, layer: int) -> None:
    """Change the ε of the first norm."""
    name = f"/model/layers.{layer}/input_layernorm/output_0"
    (node,) = (node for node in model.graph.node if name in node.output)
    attribute(node, "epsilon", 1e-5)


def late(model: onnx.ModelProto, layer: int) -> None:
    """Write the cache a token too late: the first slot is empty, and the last token is lost."""
    pads = np.array([0, 0, 1, 0, 0, 0, -1, 0], np.int64)
    model.graph.initializer.append(numpy_helper.from_array(pads, "one_token"))
    node = attention(model, layer)
    for slot in (1, 2):
        name, node.output[slot] = node.output[slot], f"early.{slot}"
        model.graph.node.append(helper.make_node("Pad", [f"early.{slot}", "one_token"], [name]))


def no_norm(model: onnx.ModelProto, layer: int) -> None:
    """Let the MLP read the stream itself in place of its norm."""
    norms = (f"/model/layers.{layer}/{name}_layernorm/output_0" for name in ("pre_feedforward", "post_attention"))
    makers = {output: node for node in model.graph.node for output in node.output}
    norm = next(makers[name] for name in norms if name in makers)
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == norm.output[0]:
                node.input[place] = norm.output[3]


def one_block(array: Any) -> Any:
    """Return scales of blocks, one of them half as large again."""
    copy = array.copy()
    copy.reshape(-1)[7] *= 1.5
    return copy


def one_element(array: Any) -> Any:
    """Return an array with one element off by 5%."""
    copy = array.copy()
    copy[3] *= 1.05
    return copy


def faults() -> list[tuple[str, int, str, Plant]]:
    """Return what is planted: the half of a layer, the first step that shows it, what to look at, and how."""

    def larger(array: Any) -> Any:
        return array * 1.02

    def window(model: onnx.ModelProto, layer: int) -> None:
        attribute(attention(model, layer), "local_window_size", 12)

    found: list[tuple[str, int, str, Plant]] = []
    for layer in range(LAYERS):
        name, half = f"model.layers.{layer}", f"layer {layer} attention"
        plants = (
            (scale, "scale"),
            (rotary, "rotary"),
            (window, "window of 12 tokens"),
            (epsilon, "norm"),
            (forgotten, "its past"),
            (late, "its past"),
        )
        for plant, word in plants:
            found.append((half, int(word == "its past"), word, functools.partial(plant, layer=layer)))
        found.append((f"layer {layer} mlp", 0, "mlp", functools.partial(no_norm, layer=layer)))
        for place, part, word, change in (
            (half, "input_layernorm.weight", "norm", one_element),
            (half, "attn.o_proj.MatMul.weight", "output projection", larger),
            (f"layer {layer} mlp", "mlp.down_proj.MatMul.weight", "mlp", larger),
        ):
            found.append((place, 0, word, functools.partial(weight, name=f"{name}.{part}", change=change)))
    for first, second in ((0, 1), (2, 4), (1, 5)):
        plant = functools.partial(swapped, first=first, second=second)
        found.append((f"layer {first} attention", 1, "its past", plant))
    return found


def faults_in_four_bits() -> list[tuple[str, int, str, Plant]]:
    """Return what is planted into a decoder in four bits: the scale of one block."""
    return [
        (
            f"layer {layer} {half}",
            0,
            "",
            functools.partial(weight, name=f"model.layers.{layer}.{name}", change=one_block),
        )
        for layer in range(LAYERS)
        for half, name in (
            ("attention", "attn.o_proj.MatMul.weight_scales"),
            ("mlp", "mlp.down_proj.MatMul.weight_scales"),
        )
    ]


def main() -> int:
    """Print each miss and the totals; return 1 if fewer than 95% are named, or a sound package has a fault."""
    warnings.simplefilter("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    import transformers

    reasons, totals, alarms = 0, {"named": 0, "missed": 0, "invisible": 0, "refused by onnxruntime": 0}, 0
    for name in ("llama", "gemma2"):
        folder = collection.build_deep(name, LAYERS)
        kind: Any = transformers.AutoModelForCausalLM
        module = kind.from_pretrained(folder / "checkpoint", attn_implementation="eager")
        module = module.float().eval()
        in_float = onnx.load(Path(folder, "fp32", "model.onnx"))
        in_four_bits = packages.four_bits(in_float)
        for reference, sound in ((module, in_float), (in_four_bits, in_four_bits)):
            c = onnx_nb.compare_decoding(reference, sound, steps=64)
            alarms += c.first_fault is not None
            sys.stdout.write(f"{name}, sound: {c.message}\n")
        plants = [(module, in_float, *fault) for fault in faults()]
        plants += [(in_four_bits, in_four_bits, *fault) for fault in faults_in_four_bits()]
        for number, (reference, sound, half, step, word, plant) in enumerate(plants):
            model = onnx.ModelProto()
            model.CopyFrom(sound)
            plant(model)
            try:
                c = onnx_nb.compare_decoding(reference, model, steps=8)
            except onnx_nb.OnnxNbError:
                totals["refused by onnxruntime"] += 1
                continue
            result = "named" if c.first_fault == (step, half) else "missed"
            if result == "missed" and c.first_fault is None and float(c.errors.max()) < 1e-5:
                result = "invisible"
            totals[result] += 1
            reasons += result == "named" and word in c.message
            if result == "named" and word not in c.message:
                sys.stdout.write(f"{name}, fault {number}, {word} is not named: {c.message}\n")
            if result == "missed":
                sys.stdout.write(f"{name}, fault {number} in step {step}, {half}: {c.message}\n")
    sys.stdout.write(
        ", ".join(f"{count} {kind}" for kind, count in totals.items()) + f", {alarms} alarms, {reasons} reasons\n"
    )
    return int(bool(alarms) or totals["named"] < 0.95 * (totals["named"] + totals["missed"]))


if __name__ == "__main__":
    sys.exit(main())
