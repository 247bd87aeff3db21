"""Attributes in which a torch module and its ONNX node provably differ, such as ``LayerNorm.eps`` and ``epsilon``.

Only attributes with the same meaning on both sides are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx

RECORDED: Final = (
    "eps", "approximate", "negative_slope", "alpha", "dim", "kernel_size", "stride", "padding", "dilation", "groups",
    "padding_mode", "ceil_mode",
)  # fmt: skip
"""Attributes of torch modules that are recorded."""

_Rule = tuple[str, str, Any, Callable[[Any, int], Any]]
"""Attribute of the module, of the node, its default, and a function from the former's form to the latter's."""


def _plain(value: Any, _rank: int) -> Any:
    return value


def _axis(value: Any, rank: int) -> Any:
    return None if value is None else value % rank if rank else value


def _each(value: Any, rank: int) -> Any:
    """Return a number for each spatial axis."""
    return [value] * (rank - 2) if isinstance(value, int) else list(value)


def _both_ends(value: Any, rank: int) -> Any:
    return None if isinstance(value, str) else _each(value, rank) * 2


_EPSILON: Final[_Rule] = ("eps", "epsilon", 1e-5, _plain)
_WINDOW: Final[tuple[_Rule, ...]] = (
    ("kernel_size", "kernel_shape", None, _each),
    ("stride", "strides", 1, _each),
    ("padding", "pads", 0, _both_ends),
    ("dilation", "dilations", 1, _each),
    ("ceil_mode", "ceil_mode", 0, lambda value, _: int(value)),
    ("groups", "group", 1, _plain),
)
_RULES: Final[tuple[tuple[str, str, tuple[_Rule, ...]], ...]] = (
    (r"LayerNorm", "LayerNormalization", (_EPSILON,)),
    (r"RMSNorm", "RMSNormalization", (_EPSILON,)),
    (r"BatchNorm\dd", "BatchNormalization", (_EPSILON,)),
    (r"GroupNorm", "GroupNormalization", (_EPSILON,)),
    (r"InstanceNorm\dd", "InstanceNormalization", (_EPSILON,)),
    (r"GELU", "Gelu", (("approximate", "approximate", "none", _plain),)),
    (r"LeakyReLU", "LeakyRelu", (("negative_slope", "alpha", 0.01, _plain),)),
    (r"ELU", "Elu", (("alpha", "alpha", 1.0, _plain),)),
    (r"CELU", "Celu", (("alpha", "alpha", 1.0, _plain),)),
    (r"Softmax", "Softmax", (("dim", "axis", None, _axis),)),
    (r"LogSoftmax", "LogSoftmax", (("dim", "axis", None, _axis),)),
    (r"Conv[123]d", "Conv", _WINDOW),
    (r"MaxPool[123]d", "MaxPool", _WINDOW),
    (r"AvgPool[123]d", "AveragePool", _WINDOW[:2]),  # padding may be a node of its own
)


def attribute_difference(cls: str, attributes: Mapping[str, Any], node: onnx.NodeProto, rank: int) -> str:
    """Describe the attributes in which a module and the node of its output differ; empty if none provably does."""
    if node.domain not in ("", "ai.onnx") or attributes.get("padding_mode", "zeros") != "zeros":
        return ""
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    if "auto_pad" in given and given["auto_pad"] != b"NOTSET":
        return ""
    rules = next((rules for kind, op, rules in _RULES if op == node.op_type and re.fullmatch(kind, cls)), ())
    texts = []
    for own, name, default, convert in rules:
        wanted = convert(attributes[own], rank) if own in attributes else None
        got = given.get(name, default)
        if got is None or wanted is None:
            continue
        got = got.decode(errors="replace") if isinstance(got, bytes) else got
        got = convert(got, rank) if name not in given or convert is _axis else got
        if not _equal(wanted, got):
            texts.append(f"{name} is {_text(got)} instead of {_text(wanted)}")
    return ", ".join(texts)


def _equal(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, float):  # ONNX stores 32 bits of it
        return bool(np.isclose(np.float32(wanted), np.float32(got), rtol=1e-6, atol=0))
    if isinstance(wanted, list):
        return len(wanted) != len(got) or wanted == list(got)
    return bool(wanted == got)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "×".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
