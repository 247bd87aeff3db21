"""Facts about operators: what the table says, and names, documentation and attributes from ``onnx.defs``.

`facts` returns the row of an operator in ``table.txt``, the one place that knows operators;
`names_where` the operators with a fact. Of an operator without a row, the category is guessed from its name.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
import onnx
import onnx.defs

from onnx_nb.analysis.formatting import plain_text, shape_text
from onnx_nb.analysis.model.functions import canonical
from onnx_nb.analysis.model.tensors import dtype_name

_TABLE: Final = Path(__file__).with_name("table.txt").read_text("utf-8")
CATEGORIES: Final = tuple(dict.fromkeys(re.findall(r"^\[(\w+)\]", _TABLE, re.MULTILINE)))
"""Kinds of operators; `category` returns an index into it."""

# Words in the names of operators that are in no table, most specific first.
_WORDS = (
    ("cast", "quant|cast|fakequant"),
    ("normalize", "norm"),
    ("pool", "pool|reduce|arg_?max|arg_?min|top_?k"),
    ("linear", "conv|mat_?mul|gemm|attention|linear|lstm|gru|rnn|einsum|bmm|addmm"),
    ("activation", "relu|gelu|silu|swish|sigmoid|softmax|tanh|activation|mish"),
    ("random", "rand|dropout|bernoulli"),
    ("shape", "shape|view|transpose|permute|concat|split|slice|gather|scatter|squeeze|expand|pad|interpolate|resize"),
    ("arithmetic", "add|sub|mul|div|pow|sqrt|exp|log|where|equal|less|greater|sum|mean|min|max|abs|neg"),
)
_RUNTIME_DOMAINS: Final = frozenset(("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"))
_SHARED: Final = _RUNTIME_DOMAINS | {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"}
"""Domains whose operators share rows."""
EVERY: Final = -1
"""The index in `Operator.moves` that stands for all inputs."""
Slots = tuple[int, int]
"""Indices of the inputs that hold a scale and a zero point; −1 for one that is not there."""


@dataclass(frozen=True)
class Operator:
    """What is known of an operator; the words are those of the table."""

    category: str
    traits: frozenset[str] = frozenset()
    like: str = ""
    moves: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    bias: int = -1
    scales: Mapping[int, Slots] = field(default_factory=dict)
    out: Slots = (-1, -1)
    channels: int | None = None
    range: tuple[float, float] | None = None
    fits: str = ""
    past: tuple[int, ...] = ()
    feeds: Mapping[int, str] = field(default_factory=dict)
    infer: str = ""
    cost: str = "?"
    is_guess: bool = False
    """Whether the table has no row for it."""

    @property
    def quantized(self) -> str:
        """How it is quantized: "rounds", "dequantizes", "integers", "packed", or empty."""
        return next((way for way in ("rounds", "dequantizes", "integers", "packed") if way in self.traits), "")

    @property
    def is_deterministic(self) -> bool:
        """Whether it is known to compute the same from the same inputs."""
        return not self.is_guess and self.category != "control" and "random" not in self.traits


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(EVERY if number == "*" else int(number) for number in text.split(","))


def _pair(text: str) -> Slots:
    first, second = _numbers(text)
    return first, second


_PARSED: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("moves", "weights", "past"), _numbers),
    **dict.fromkeys(("bias", "channels"), int),
    **dict.fromkeys(("like", "fits", "infer", "cost"), str),
    "scales": lambda text: {
        int(place): _pair(slots) for place, _, slots in (part.partition(":") for part in text.split(";"))
    },
    "out": _pair,
    "range": lambda text: (float(text.partition(",")[0]), float(text.partition(",")[2])),
}


_TRAITS: Final = frozenset(re.findall(r"^trait (\w+)", _TABLE, re.MULTILINE))
_NOT_SHARED: Final = frozenset(("commutes", "sizes", "view", "in_place"))
"""Traits that operators on integers do not share with the operator that they are like."""


@functools.cache
def table() -> Mapping[str, Operator]:
    """Return the facts of every operator in the table by its name, prefixed with a domain in rows for one domain."""
    rows: dict[str, Operator] = {}
    heading = Operator("other")
    for line in _TABLE.splitlines():
        if not line or line.startswith(("#", "trait ")):
            continue
        if line.startswith("["):
            name, _, words = line[1:].partition("]")
            heading = _with_facts(Operator(name), words, rows)
        else:
            names, _, words = line.partition(": ")
            row = _with_facts(heading, words, rows)
            for name in names.split():
                if rows.setdefault(name, row) is not row:
                    raise ValueError(f"{name} has two rows")
    return rows


def _with_facts(heading: Operator, text: str, rows: Mapping[str, Operator]) -> Operator:
    """Return the facts of a row; those of the operator that it is like, if any, come first."""
    if not text:
        return heading
    overrides: dict[str, Any] = {}
    words, feeds = set[str](), dict[int, str]()
    for word in text.split():
        key, separator, value = word.partition("=")
        if not separator:
            words.add(word)
        elif key.startswith("feed"):
            feeds[int(key[4:])] = value
        else:
            overrides[key] = _PARSED[key](value)
    if words - _TRAITS:
        raise ValueError(f"{', '.join(words - _TRAITS)}: no traits")
    base = vars(rows[overrides["like"]] if "like" in overrides else heading)
    traits, valid = base["traits"], base["feeds"]
    if "integers" in words:  # its inputs stand elsewhere, and the output has another scale
        base = {**base, "moves": ()}
        traits, valid = traits - _NOT_SHARED, {}
    common = {"category": heading.category, "traits": traits | words, "feeds": {**valid, **feeds}}
    return Operator(**{**base, **common, **overrides})


@functools.lru_cache(maxsize=8192)
def facts(op_type: str, domain: str = "") -> Operator:
    """Return what is known of an operator.

    Examples
    --------
    >>> facts("QLinearConv").scales
    {0: (1, 2), 3: (4, 5)}
    >>> facts("Attention").cost, facts("Attention", "com.microsoft").cost
    ('attention', 'packed_attention')
    """
    rows = table()
    row = rows.get(f"{domain}.{op_type}") or rows.get(op_type)
    if row is not None and "." not in op_type and (domain in _SHARED or f"{domain}.{op_type}" in rows):
        return row
    text = op_type[:200].lower()
    guess = next((kind for kind, words in _WORDS if re.search(words, text)), "other")
    traits = frozenset(["rounds"] if "uantize" in op_type else [])
    kind = guess if row is None else row.category
    return of_body(op_type, domain, guess) or Operator(kind, traits, is_guess=True)


def of_body(op_type: str, domain: str, kind: str = "other") -> Operator | None:
    """Return what the function says that the specification defines an operator by; None if it depends on the node."""
    # Any, as onnx's annotations lack functions
    definition: Any = schema(op_type, domain, _NEWEST)
    if definition is None or not definition.has_function:
        return None
    nodes = [facts(node.op_type, node.domain) for node in definition.function_body.node]
    if any(node.is_guess for node in nodes):
        return None
    return Operator(kind, frozenset({"random"} & frozenset().union(*(node.traits for node in nodes))))


def is_contributed(op_type: str, domain: str) -> bool:
    """Return whether an operator is one of those that onnxruntime adds to onnx's, one of them in onnx's domain."""
    return domain == "com.microsoft" or (op_type, domain) == ("SimplifiedLayerNormalization", "")


@functools.cache
def names_where(trait: str) -> frozenset[str]:
    """Return the operators that have a trait."""
    if trait not in _TRAITS:
        raise ValueError(f"{trait}: no trait")
    return frozenset(name for name, row in table().items() if trait in row.traits)


@functools.cache
def variants(*names: str) -> frozenset[str]:
    """Return standard operators and all that are like them: fused, quantized."""
    return frozenset(names) | {name for name, row in table().items() if row.like in names}


@functools.lru_cache(maxsize=8192)
def category(op_type: str, domain: str = "") -> int:
    """Return the kind of an operator, an index into `CATEGORIES`."""
    return CATEGORIES.index(facts(op_type, domain).category)


_NEWEST: Final = 2**31 - 1
"""An opset version that is not below any other one."""


def input_names(op_type: str, domain: str, opset: int) -> tuple[str, ...]:
    """Return the formal names of an operator's inputs; a variadic input is named once, as the last."""
    definition = schema(op_type, domain, opset)
    return () if definition is None else tuple(formal.name for formal in definition.inputs)


def documentation(op_type: str, domain: str, opset: int) -> str:
    """Return onnx's description of an operator as plain text; empty if there is none."""
    definition = schema(op_type, domain, opset)
    return "" if definition is None else textwrap.dedent(definition.doc or "").strip()


@functools.lru_cache(maxsize=8192)
def attribute_defaults(op_type: str, domain: str, opset: int) -> Mapping[str, Any]:
    """Return the defaults of an operator's attributes, those that have one."""
    definition = schema(op_type, domain, opset)
    if definition is None:
        return MappingProxyType({})
    defaults = {}
    for name in sorted(definition.attributes):
        proto = definition.attributes[name].default_value
        if proto.type != onnx.AttributeProto.UNDEFINED:
            value = onnx.helper.get_attribute_value(proto)
            defaults[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return MappingProxyType(defaults)


MARK: Final = ("onnx_nb", "Mark")
"""Domain and type of the nodes that `mark` leaves in an exported model; they return their input."""


@functools.lru_cache(maxsize=8192)
def schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    """Return onnx's schema of an operator at an opset version; None if there is none."""
    domain = canonical(domain)
    if not 0 < opset < 2**31 or "\0" in op_type + domain:
        return None
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def body(node: onnx.NodeProto, opset: int, inputs: Sequence[onnx.TypeProto]) -> onnx.FunctionProto | None:
    """Return the function that the specification defines a node by, for inputs of these types; None if it has none."""
    # Any, as onnx's annotations lack functions
    definition: Any = schema(plain_text(node.op_type), plain_text(node.domain), opset)
    if definition is None or len(node.input) < definition.min_input or "" in node.input[: definition.min_input]:
        return None
    if definition.has_function:
        return cast("onnx.FunctionProto", definition.function_body)
    if not definition.has_context_dependent_function:
        return None
    try:
        kinds = [kind.SerializeToString() for kind in inputs]
        function: bytes = definition.get_context_dependent_function(node.SerializeToString(), kinds)
    except (RuntimeError, onnx.defs.SchemaError):  # it depends on what is not known
        return None
    return onnx.FunctionProto.FromString(function) if function else None


@functools.cache
def onnx_domains() -> frozenset[str]:
    """Return the domains that onnx defines operators for; the default one is ""."""
    return frozenset(entry.domain for entry in onnx.defs.get_all_schemas())


@functools.cache
def known_domains() -> frozenset[str]:
    """Return the domains that onnx, onnxruntime and torch define operators for."""
    more = {"com.microsoft.experimental", "com.microsoft.dml", "org.pytorch.aten", "torch"}
    return onnx_domains() | _RUNTIME_DOMAINS | more


@functools.lru_cache(maxsize=8192)
def may_hold_graphs(op_type: str, domain: str, opset: int) -> bool:
    """Return whether a node of this operator can have a graph as an attribute; unknown operators can."""
    definition = schema(op_type, domain, opset)
    if definition is None:
        return True
    kinds = (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS)
    return any(attribute.type in kinds for attribute in definition.attributes.values())


LONGEST = 2000
"""Characters; longer texts are cut, as an untrusted model may hold megabytes in an attribute."""


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """Return the value of an attribute as text: a number, a string, or the kind of object it holds."""
    kind = onnx.AttributeProto
    if attribute.ref_attr_name:
        return f"the function's {plain_text(attribute.ref_attr_name)}"
    match attribute.type:
        case kind.GRAPH:
            return f"a graph of {len(attribute.g.node)} nodes"
        case kind.GRAPHS:
            return f"{len(attribute.graphs)} graphs"
        case kind.TENSOR:
            return f"{shape_text(attribute.t.dims)} {dtype_name(attribute.t.data_type)}"
        case kind.TENSORS | kind.SPARSE_TENSOR | kind.SPARSE_TENSORS | kind.TYPE_PROTO | kind.TYPE_PROTOS:
            return str(kind.AttributeType.Name(attribute.type)).lower().replace("_", " ")
        case kind.STRING:
            return attribute.s[:LONGEST].decode("utf-8", "replace")
        case kind.STRINGS:
            return ", ".join(text[:LONGEST].decode("utf-8", "replace") for text in attribute.strings[:100])
        case kind.INT | kind.INTS | kind.FLOAT | kind.FLOATS:
            value = onnx.helper.get_attribute_value(attribute)
            return default_text(value[:200] if isinstance(value, list) else value)
        case other:
            return f"of unknown type {other}"


def default_text(value: Any) -> str:
    """Write a default as `attribute_text` writes an attribute: a float, which is a float32, with only its digits."""
    if isinstance(value, list | tuple):
        return ", ".join(map(default_text, value))
    return str(np.float32(value)) if isinstance(value, float) else str(value)
