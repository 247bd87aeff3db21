"""Graders of "Faulty and quantized decoders"."""

from __future__ import annotations

from typing import Any, Final

import onnx_nb

from . import Lesson, expect, is_number, made, opened

check: Final = Lesson()


def _expect_place(step: Any, part: Any, fault: tuple[int, str]) -> None:
    expect(is_number(step), f"The step is a {type(step).__name__}; it is a number, 0 for the first one.")
    expect(isinstance(part, str), f"The half of a layer is a {type(part).__name__}; it is a text.")
    expect(step == fault[0], "In another step it is off before that, or not yet: read `first_fault`.")
    layers, halves = ([text.rpartition(" ")[place] for text in (part, fault[1])] for place in (0, 2))
    expect(layers[0] == layers[1], "That is another layer: take the first one that is off, not what follows from it.")
    expect(halves[0] == halves[1], "That is the right layer, and the other half of it.")


@check.exercise(
    1,
    "step, part, states",
    "step, part, states",
    {
        "part, step, states": "it is a number",
        "1, part, states": "another step",
        'step, "layer 1 attention", states': "another layer",
        'step, "layer 2 mlp", states': "other half",
        'step, part, "values"': "what it says about keys",
        'step, part, "both"': "what it says about keys",
        "step, part, 2": "one of four words",
    },
)
def _suspect(step: Any, part: Any, states: Any) -> None:
    net, prompt = made("net"), made("PROMPT")
    suspect = made("faults").decoder_of_12(made("model"), 2)
    compared = onnx_nb.compare_decoding(net, suspect, made("tokenizer").encode(prompt).ids, 8)
    expect(compared.first_fault, "The suspect has no fault: run the cells above again.")
    _expect_place(step, part, compared.first_fault or (0, ""))
    words = {(True, False): "keys", (False, True): "values", (True, True): "both", (False, False): "neither"}
    expect(states in words.values(), f"The last part is one of four words: {', '.join(words.values())}.")
    right = words[compared.cache_faults[0], compared.cache_faults[1]]
    expect(states == right, "The states that it writes are others: read in the message what it says about keys.")


@check.exercise(
    2,
    "fixed",
    "fixed",
    {
        "suspect": "still off in layer 1 mlp",
        "faults.decoder_of_12(model, 2)": "off in layer 2 attention",
        "eight": "rounded",
        "42": "a model",
    },
)
def _fixed(answer: Any) -> None:
    model = opened(answer, f"This is a {type(answer).__name__}; the answer is a model.")
    is_float = all(node.op_type != "MatMulNBits" for node in model.proto.graph.node)
    expect(is_float, "The weights of this model are rounded: start from `suspect`.")
    net, ids = made("net"), made("tokenizer").encode(made("PROMPT")).ids
    compared = onnx_nb.compare_decoding(net, model, ids, 12)
    fault = compared.first_fault
    expect(fault is None, f"This model is still off in {fault[1] if fault else ''}.")


@check.exercise(
    3,
    "in_float",
    "in_float",
    {
        "[]": "Nothing is left in float",
        "[node.name for node in model.proto.graph.node]": "larger than 1.2 MB",
        "halves['layer 3 mlp']": "more than 60 %",
        "list(halves)": "no node",
        "'node_linear'": "a list of names",
    },
)
def _in_float(answer: Any) -> None:
    is_list = isinstance(answer, list | tuple | set) and all(isinstance(name, str) for name in answer)
    expect(is_list, "The answer is a list of names of nodes.")
    expect(answer, "Nothing is left in float: name the nodes.")
    names = {node.name for node in made("model").proto.graph.node}
    unknown = sorted(set(answer) - names)
    expect(not unknown, f"The model has no node {unknown[0] if unknown else ''!r}: `halves` has the names of nodes.")
    candidate = made("quantized")("answer", in_float=list(answer))
    expect(made("size")(candidate) < 1_200_000, "The file is larger than 1.2 MB: leave fewer nodes in float.")
    share = made("divergence")(candidate) / made("divergences")["4 bits"]
    expect(share < 0.6, f"{share:.0%} of the divergence is left, which is more than 60 %: early layers gain most.")
