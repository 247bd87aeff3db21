"""``python -m tests.faults.trained_faults``: a table of what `compare` says of faults in quantized trained networks.

Ends with 1 if the goals do not hold: the layer itself is named first for each fault, the cause for 95 of 100, and
nothing is named in models without a fault, of all ways in which onnxruntime quantizes.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

import onnx_nb
from tests.faults import trained

CAUSE: Final = 0.95
PLACES: Final = 3
"""Places of each kind of fault in each model."""
FEED: Final = 100
"""Seed of the feed on which the sides are compared; others calibrated the models."""


class Fault(NamedTuple):
    """Models that differ by more than rounding, and what should be said."""

    reference: onnx.ModelProto
    candidate: onnx.ModelProto
    names: set[str]
    """Names of the weights or tensors that are wrong."""
    outputs: set[str]
    """Tensors of the float model that the faulty layer ends with."""
    fault: str
    """`Quantizer.fault`; empty if the fault is none of a quantizer."""
    words: str = ""
    """Pattern that the message has, too."""


class Weight(NamedTuple):
    """A quantized weight: names of the float weight, integers, scale and zero point."""

    name: str
    integers: str
    scale: str
    zero: str


class Pair:
    """Copies of a float and a quantized model that a fault changes."""

    def __init__(self, name: str, way: str) -> None:
        self.name, self.way = name, way
        self.reference, self.candidate = onnx.load(trained.network(name)), onnx.load(trained.quantized(name, way))
        self.tensors = [{t.name: t for t in proto.graph.initializer} for proto in (self.reference, self.candidate)]

    def get(self, name: str, side: int = 1) -> NDArray[Any]:
        """Return a weight of the candidate, or for 0 of the reference."""
        return numpy_helper.to_array(self.tensors[side][name]).copy()

    def put(self, name: str, array: Any, side: int = 1) -> None:
        """Replace a weight, with its type."""
        like = self.get(name, side)
        self.tensors[side][name].CopyFrom(numpy_helper.from_array(np.asarray(array).astype(like.dtype), name))

    @property
    def weights(self) -> list[Weight]:
        """The quantized weights of at least two axes."""
        endings = (
            ("_quantized", "_scale", "_zero_point"),
            ("_Q4", "_scales", "_zero_points"),
            ("_DQ_Q4", "_DQ_scales", ""),
        )
        return [
            Weight(name, *(name + ending if ending else "" for ending in them))
            for name, tensor in self.tensors[0].items()
            for them in (*endings, ("_Q8", "_scales", ""))
            if len(tensor.dims) > 1 and name + them[0] in self.tensors[1]
        ]

    @property
    def biases(self) -> list[Weight]:
        """The biases that are quantized."""
        found = []
        for name, tensor in self.tensors[0].items():
            if len(tensor.dims) == 1 and f"{name}_quantized" in self.tensors[1]:
                found.append(Weight(name, f"{name}_quantized", f"{name}_quantized_scale", ""))
        return found

    @property
    def sites(self) -> list[onnx.NodeProto]:
        """The QuantizeLinear nodes of activations with many values, the first of each scale."""
        values = self.values
        nodes = {n.input[1]: n for n in reversed(self.candidate.graph.node) if n.op_type == "QuantizeLinear"}
        return [n for n in reversed(nodes.values()) if len(np.unique(values.get(n.input[0], np.zeros(1)))) > 64]

    @functools.cached_property
    def values(self) -> trained.Arrays:
        """What the float model computes."""
        from tests.faults.quantized import all_values

        return all_values(self.reference, trained.feeds(self.name, FEED))

    def layer(self, weight: str) -> set[str]:
        """Return the outputs of the nodes that read a weight of the float model, and of an activation behind them."""
        nodes = self.reference.graph.node
        outputs = {out for node in nodes if weight in node.input for out in node.output}
        return outputs | self.behind(outputs)

    def behind(self, outputs: set[str]) -> set[str]:
        """Return what is computed of values by bias, activation and what moves data only."""
        light = ("Add", "Clip", "Relu", "Squeeze", "BatchNormalization")
        nodes = self.reference.graph.node
        return {out for node in nodes if outputs & {*node.input} and node.op_type in light for out in node.output}

    def of_weight(self, weight: Weight, fault: str, words: str = "") -> Fault:
        """Return a fault of a weight."""
        return Fault(self.reference, self.candidate, {weight.name}, self.layer(weight.name), fault, words)

    def of_site(self, site: onnx.NodeProto, fault: str) -> Fault:
        """Return a fault of an activation."""
        scale = site.input[1]
        names = {n.input[0] for n in self.candidate.graph.node if scale in n.input and n.op_type == "QuantizeLinear"}
        names |= self.behind(names)
        return Fault(self.reference, self.candidate, names, names, fault)


def activation(factor: float, fault: str) -> Callable[[Pair, int], Fault]:
    """Return the fault of a scale times a factor."""

    def plant(pair: Pair, at: int) -> Fault:
        site = pair.sites[at]
        pair.put(site.input[1], pair.get(site.input[1]) * factor)
        return pair.of_site(site, fault)

    return plant


def disagreement(place: int) -> Callable[[Pair, int], Fault]:
    """Return the fault of a DequantizeLinear with another scale (1) or zero point (2) than its QuantizeLinear."""

    def plant(pair: Pair, at: int) -> Fault:
        site = pair.sites[at]
        old = pair.get(site.input[place])
        wrong = old * 1.5 if place == 1 else old + np.where(old < 100, 9, -9)
        tensor = numpy_helper.from_array(np.asarray(wrong, old.dtype), f"{site.name} wrong")
        pair.candidate.graph.initializer.append(tensor)
        for reader in pair.candidate.graph.node:
            if site.output[0] in reader.input:
                reader.input[place] = tensor.name
        return pair.of_site(site, "mismatch")

    return plant


def scale(pair: Pair, at: int) -> Fault:
    """The scale of a weight is twice as large."""
    weight = pair.weights[at]
    pair.put(weight.scale, pair.get(weight.scale) * 2)
    return pair.of_weight(weight, "values", r"0\.(49\d|50?\d?) times as large")


def channel(pair: Pair, at: int) -> Fault:
    """A channel of a weight has the wrong sign."""
    weight = pair.weights[at]
    integers = pair.get(weight.integers)
    is_turned = any(weight.name in n.input and n.op_type == "Gemm" for n in pair.reference.graph.node)
    axis = 0 if integers.ndim == 4 or is_turned else -1
    zero = int(pair.get(weight.zero).reshape(-1)[0]) if weight.zero in pair.tensors[1] else 0
    rows = np.moveaxis(integers, axis, 0)
    norms = np.abs(rows.astype(int) - zero).reshape(len(rows), -1).sum(1)
    wrong = 2 * zero - rows[norms.argmax()].astype(int)
    limits = np.iinfo(integers.dtype)
    rows[norms.argmax()] = wrong.clip(limits.min, limits.max)
    pair.put(weight.integers, integers)
    return pair.of_weight(weight, "channel")


def zero(pair: Pair, at: int) -> Fault:
    """The zero point of unsigned integers is left out."""
    weight = pair.weights[at]
    old = pair.get(weight.zero)
    if not old.any():
        raise IndexError
    pair.put(weight.zero, np.zeros_like(old))
    return pair.of_weight(weight, "values", "zero point of|zero points")


def shifted(pair: Pair, at: int) -> Fault:
    """The scales of channels or blocks are shifted by one."""
    weight = [w for w in pair.weights if pair.get(w.scale).size > 1][at]
    scales = pair.get(weight.scale)
    if "int4" in pair.way and "qdq" not in pair.way:  # shape (N, K / 32)
        blocks = -(-pair.get(weight.name, 0).shape[0] // 32)
        pair.put(weight.scale, np.roll(scales.reshape(-1, blocks), 1, 0).reshape(scales.shape))
    else:
        pair.put(weight.scale, np.roll(scales, 1, -1))
    return pair.of_weight(weight, "", "shifted by 1")


def neighbor(pair: Pair, at: int) -> Fault:
    """A weight has the scales of another one."""
    weights = [w for w in pair.weights if pair.get(w.scale).size > 1]
    pairs = [
        (one, two)
        for one in weights
        for two in weights
        if one != two and pair.get(one.scale).shape == pair.get(two.scale).shape
    ]
    one, two = pairs[at * 2]
    scales = pair.get(one.scale)
    pair.put(one.scale, pair.get(two.scale))
    copy = numpy_helper.from_array(scales, two.scale)  # they are exchanged
    pair.tensors[1][two.scale].CopyFrom(copy)
    names = pair.of_weight(one, "", re.escape(two.scale))
    second = pair.of_weight(two, "")
    return names._replace(
        names=names.names | second.names, outputs=names.outputs | second.outputs, words="the scales of '"
    )


def axis(pair: Pair, at: int) -> Fault:
    """The scales of a square weight are along the other axis."""
    weight = [w for w in pair.weights if pair.get(w.name, 0).ndim == 2 and len({*pair.get(w.name, 0).shape}) == 1][at]
    for node in pair.candidate.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] == weight.integers:
            for attribute in node.attribute:
                if attribute.name == "axis":
                    attribute.i = 1 - attribute.i % 2
    return pair.of_weight(weight, "", "other axis")


def transposed(pair: Pair, at: int) -> Fault:
    """The integers of a square weight are transposed."""
    weight = [w for w in pair.weights if pair.get(w.name, 0).ndim == 2 and len({*pair.get(w.name, 0).shape}) == 1][at]
    pair.put(weight.integers, pair.get(weight.integers).T)
    return pair.of_weight(weight, "values", "transposed")


def bias(pair: Pair, at: int) -> Fault:
    """A bias is four times as large: by its scale, or by its integers."""
    weight = pair.biases[at]
    name = weight.scale if weight.scale in pair.tensors[1] and pair.way != "qoperator" else weight.integers
    pair.put(name, pair.get(name) * 4)
    return pair.of_weight(weight, "values", r"0\.25 times as large|4 times what")


def nibbles(pair: Pair, at: int) -> Fault:
    """The integers of four bits are stored with the other nibble first."""
    weight = pair.weights[at]
    tensor = pair.tensors[1][weight.integers]
    octets = np.frombuffer(tensor.raw_data, np.uint8)
    tensor.raw_data = ((octets >> 4) | (octets << 4)).astype(np.uint8).tobytes()
    return pair.of_weight(weight, "values", "nibbles")


def order(pair: Pair, at: int) -> Fault:
    """The scales of blocks are stored column by column."""
    weight = [w for w in pair.weights if pair.get(w.name, 0).shape[0] > 32][at]
    scales = pair.get(weight.scale)
    width = -(-pair.get(weight.name, 0).shape[0] // 32)
    pair.put(weight.scale, scales.reshape(-1, width).T.reshape(scales.shape))
    return pair.of_weight(weight, "values", "order of columns")


def block(pair: Pair, at: int) -> Fault:
    """Blocks of 32 are read as blocks of 16."""
    weight = [w for w in pair.weights if pair.get(w.name, 0).shape[0] > 32][at]
    for node in pair.candidate.graph.node:
        if weight.integers in node.input:
            count, depth = (next(a.i for a in node.attribute if a.name == key) for key in "NK")
            next(a for a in node.attribute if a.name == "block_size").i = 16
            integers = pair.get(weight.integers).reshape(count, -1, 8)
            scales = pair.get(weight.scale)
            wide = np.concatenate([scales.reshape(-1)] * 2).reshape(count, -1)
            shape = scales.ndim
            pair.tensors[1][weight.scale].CopyFrom(
                numpy_helper.from_array(wide if shape > 1 else wide.reshape(-1), weight.scale)
            )
            pair.tensors[1][weight.integers].CopyFrom(numpy_helper.from_array(integers, weight.integers))
            assert depth % 32 == 0
    return pair.of_weight(weight, "values", "blocks of 32")


def overflow(pair: Pair, at: int) -> Fault:
    """Values are beyond those of float16; the weights behind undo it."""
    pairs = {
        "transformer": [("blocks.0.v", "blocks.0.o"), ("blocks.1.v", "blocks.1.o")],
        "lstm": [("mix", "head")],
        "depthwise": [("layers/layers.5", "layers/layers.7"), ("layers/layers.10", "layers/layers.12")],
    }[pair.name]
    readers = {node.name: node for node in pair.reference.graph.node}
    one, two = (f"/{part.replace('blocks.', 'blocks.').replace('.v', '/v').replace('.o', '/o')}/" for part in pairs[at])
    first, second = (readers[f"{part}{'Conv' if 'layers' in part else 'MatMul'}"] for part in (one, two))
    behind = next((n for n in pair.reference.graph.node if n.op_type == "Add" and first.output[0] in n.input), None)
    factor = 1e6 if "layers" in one else 1e5
    names = [
        first.input[1],
        *first.input[2:],
        *(name for name in (behind.input if behind else ()) if name in pair.tensors[0]),
    ]
    for name in names:
        pair.put(name, pair.get(name, 0) * factor, 0)
    pair.put(second.input[1], pair.get(second.input[1], 0) / factor, 0)
    import importlib

    float16 = importlib.import_module("onnxruntime.transformers.float16")
    candidate = float16.convert_float_to_float16(pair.reference, keep_io_types=True, max_finite_val=65504.0)
    outputs = set(first.output) | (set(behind.output) if behind else set())
    return Fault(pair.reference, candidate, outputs, outputs, "", "65,504")


def salient(pair: Pair, at: int) -> Fault:
    """Some channels that a weight reads are far larger than the others."""
    weight = [w for w in pair.weights if w.name in _behind_norms(pair)][at]
    every = [w for w in pair.weights if w.name in _behind_norms(pair)]
    one = pair.of_weight(weight, "salient", "nput channels 5, 40")
    return one._replace(names={w.name for w in every}, outputs={o for w in every for o in pair.layer(w.name)})


def _behind_norms(pair: Pair) -> set[str]:
    norms = {n.output[0] for n in pair.reference.graph.node if n.op_type == "LayerNormalization" and "blocks" in n.name}
    return {n.input[1] for n in pair.reference.graph.node if n.op_type == "MatMul" and n.input[0] in norms}


def outliers(pair: Pair, _at: int) -> Fault:
    """One scale for a tensor in which some channels are far larger than the others."""
    names = {n.output[0] for n in pair.reference.graph.node if n.op_type == "LayerNormalization" and "blocks" in n.name}
    outputs = {o for w in _behind_norms(pair) for o in pair.layer(w)}
    return Fault(pair.reference, pair.candidate, names, names | outputs, "outliers", "Channels 5, 40")


QDQ: Final = ("tensor", "channel", "contrib")
KINDS: Final[dict[str, tuple[Callable[[Pair, int], Fault], tuple[str, ...], tuple[str, ...]]]] = {
    "coarse": (activation(4, "coarse"), ("depthwise", "transformer", "lstm"), ("tensor", "contrib")),
    "clipping": (activation(0.25, "clipping"), ("depthwise", "transformer", "lstm"), ("tensor", "channel", "unsigned")),
    "other scale": (disagreement(1), ("depthwise", "transformer", "lstm"), ("channel",)),
    "other zero": (disagreement(2), ("depthwise", "transformer", "lstm"), ("tensor",)),
    "scale": (scale, ("depthwise", "transformer", "lstm"), ("tensor", "qoperator", "dynamic", "int4")),
    "sign": (channel, ("depthwise", "transformer", "lstm"), ("channel", "dynamic")),
    "zero": (zero, ("depthwise", "transformer", "lstm"), ("dynamic-unsigned", "int4-asymmetric")),
    "shifted": (shifted, ("depthwise", "transformer", "lstm"), ("channel", "dynamic-channel", "int4")),
    "neighbor": (neighbor, ("depthwise", "transformer"), ("channel",)),
    "axis": (axis, ("transformer", "lstm"), ("channel",)),
    "transposed": (transposed, ("transformer", "lstm"), ("channel",)),
    "bias": (bias, ("depthwise",), ("channel", "qoperator")),
    "nibbles": (nibbles, ("transformer", "lstm"), ("int4", "int4-qdq")),
    "order": (order, ("transformer",), ("int4",)),
    "block": (block, ("transformer",), ("int4",)),
    "overflow": (overflow, ("depthwise", "transformer", "lstm"), ("float16",)),
    "salient": (salient, ("outliers",), ("int4", "int4-asymmetric", "int8-blocks", "int4-qdq")),
    "outliers": (outliers, ("outliers",), ("tensor", "channel", "dynamic")),
}  # fmt: skip


class Verdict(NamedTuple):
    """What was said of a fault; "" where it was right."""

    model: str
    kind: str
    layer: str
    cause: str
    message: str


def judged(name: str, kind: str, way: str, fault: Fault) -> Verdict:
    """Compare the models of a fault and judge what is said."""
    c = onnx_nb.compare(fault.reference, fault.candidate, trained.feeds(name, FEED))
    first, label = c.first_divergent(), f"{name} {way}"
    if first is None:
        return Verdict(label, kind, "nothing", "nothing", f"{sorted(fault.names)}: {c.message}")
    faulty = first.faulty
    names = {first.reference} | ({faulty.name} if faulty is not None else set())
    right = first.reference in fault.outputs or bool(faulty and faulty.name in fault.names)
    cause = faulty.fault if faulty is not None else "none"
    is_cause = (cause == fault.fault or not fault.fault) and re.search(fault.words, c.message)
    wrong = f"{cause}, not {fault.fault} {fault.words}"
    return Verdict(
        label,
        kind,
        "" if right else f"{sorted(names)}, not {sorted(fault.names)}",
        "" if is_cause else wrong,
        c.message,
    )


def planted(names: Sequence[str], kinds: Sequence[str], places: int = PLACES) -> Iterator[Verdict]:
    """Yield the verdicts on faults."""
    for kind in kinds:
        plant, networks, ways = KINDS[kind]
        for name in [name for name in networks if name in names]:
            for way in ways:
                if name == "depthwise" and way.startswith("int4"):
                    continue
                for at in range(1 if kind in ("outliers", "salient") else places):
                    try:
                        fault = plant(Pair(name, way), at)
                    except IndexError:  # fewer places
                        break
                    yield judged(name, kind, way, fault)


def alarms(names: Sequence[str] = tuple(trained.NETWORKS)) -> dict[str, str]:
    """Return what is said of models without a fault, of all ways to quantize; "" if nothing."""
    messages = {}
    for name, way in [each for each in trained.sounds() if each[0] in names]:
        c = onnx_nb.compare(trained.network(name), trained.quantized(name, way), trained.feeds(name, FEED))
        messages[f"{name} {way}"] = "" if c.first_divergent() is None else c.message
    return messages


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.trained_faults", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(trained.NETWORKS))
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND")
    parser.add_argument("--places", type=int, default=PLACES)
    chosen = parser.parse_args(arguments)
    verdicts = list(planted(chosen.networks or list(trained.NETWORKS), chosen.kinds, chosen.places))
    for title in ("kind", "model"):
        print(f"\n{title:26} faults  layer  cause")
        for name in dict.fromkeys(getattr(verdict, title) for verdict in verdicts):
            print(_row(name, [verdict for verdict in verdicts if getattr(verdict, title) == name]))
    print(f"\n{_row('all', verdicts)}")
    texts = alarms()
    print(f"{len(texts)} sound models, {sum(map(bool, texts.values()))} alarms")
    for name, text in texts.items():
        if text:
            print(f"  {name}: {text}")
    for verdict in verdicts:
        if verdict.layer or verdict.cause:
            print(" | ".join(verdict))
    layers, causes = (sum(not getattr(verdict, judged) for verdict in verdicts) for judged in ("layer", "cause"))
    return int(any(texts.values()) or layers < len(verdicts) or causes < CAUSE * len(verdicts))


def _row(name: str, some: list[Verdict]) -> str:
    shares = [
        sum(not getattr(verdict, judged) for verdict in some) / max(len(some), 1) for judged in ("layer", "cause")
    ]
    return f"{name:26} {len(some):6} {shares[0]:6.0%} {shares[1]:6.0%}"


if __name__ == "__main__":
    sys.exit(main())
