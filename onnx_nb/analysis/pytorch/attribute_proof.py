"""In what a torch module and the ONNX node that it became are proven to differ: by what both say of themselves.

Only pairs that mean the same are compared, such as ``LayerNorm.eps`` and the ``epsilon`` of LayerNormalization; what
one of the two does not say in these words proves nothing.
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
"""Attributes of torch's modules that are looked at."""

_Rule = tuple[str, str, Any, Callable[[Any, int], Any]]
"""Attribute of the module, that of the node, its default, and how the former is written as the latter."""


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


def proven(cls: str, said: Mapping[str, Any], node: onnx.NodeProto, rank: int) -> str:
    """Return how a module and the node that gives its output differ; empty if nothing is proven.

    Parameters
    ----------
    cls
        Class of the module.
    said
        Its attributes, of those in `RECORDED`.
    node
        The node whose output the module's is.
    rank
        Number of axes of that output.

    Examples
    --------
    >>> node = onnx.helper.make_node("LayerNormalization", ["x", "s"], ["y"], epsilon=1e-12)
    >>> proven("LayerNorm", {"eps": 1e-5}, node, 3)
    'epsilon is 1e-12 instead of 1e-05'
    >>> proven("LayerNorm", {"eps": 1e-12}, node, 3)
    ''
    """
    if node.domain not in ("", "ai.onnx") or said.get("padding_mode", "zeros") != "zeros":
        return ""
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    if "auto_pad" in given and given["auto_pad"] != b"NOTSET":
        return ""
    texts = []
    for kind, operator, rules in _RULES:
        if operator != node.op_type or not re.fullmatch(kind, cls):
            continue
        for mine, name, default, write in rules:
            if mine not in said:
                continue
            wanted = write(said[mine], rank)
            got = given.get(name, default)
            if got is None or wanted is None:
                continue
            got = got.decode(errors="replace") if isinstance(got, bytes) else got
            got = write(got, rank) if name not in given or write is _axis else got
            if not _same(wanted, got):
                texts.append(f"{name} is {_shown(got)} instead of {_shown(wanted)}")
    return ", ".join(texts)


def _same(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, float):  # ONNX keeps 32 bits of it
        return bool(np.isclose(np.float32(wanted), np.float32(got), rtol=1e-6, atol=0))
    if isinstance(wanted, list):
        return len(wanted) != len(got) or wanted == list(got)
    return bool(wanted == got)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "×".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
