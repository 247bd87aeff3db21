"""Seeds and mutations: of protobuf fields, of the structure of messages, of bytes; and the smallest form of a find."""

from __future__ import annotations

import functools
import importlib.util
import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError, EncodeError, Message
from onnx import ModelProto
from onnx.backend.test import loader

from tests import models
from tests.fuzz import hostile

LARGEST = 60_000
"""Bytes of the largest seed: small files are mutated where it matters, and quickly."""

NUMBERS: Final = (0, 1, -1, 2, 7, 8, 17, 63, 64, 65, 127, 255, 256, 10**6, 2**31 - 1, -(2**31))
LARGE_NUMBERS: Final = (2**31, 2**32, 2**40, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, float("inf"), float("nan"))
TEXTS: Final = (
    "",
    "x",
    "y",
    "\0",
    "\u202e",
    "a" * 300,
    "../../etc/passwd",
    "n*n*n",
    "ai.onnx",
    "com.microsoft",
    "Loop",
)


@functools.cache
def seeds() -> list[bytes]:
    """Return small models: onnx's backend cases, models of every kind of structure, torch exports, hostile ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case.model for kind in ("node", "simple") for case in loader.load_model_tests(kind=kind)]
    made = (models.functions, models.control_flow, models.detection, models.one_node, models.empty)
    found = [proto.SerializeToString() for proto in cases if proto is not None]
    found += [path().read_bytes() for path in (*made, *torch_exports())]
    small = {"chained_functions": 5, "multiplying_functions": 4, "many_constants": 6, "nested_loops": 2}
    for name, build in hostile.BUILT.items():
        if name not in ("high_rank", "long_symbol"):
            make: Callable[..., ModelProto] = build
            found.append((make(small[name]) if name in small else make()).SerializeToString())
    return sorted({data for data in found if len(data) <= LARGEST})


def torch_exports() -> list[Callable[[], Path]]:
    """Return small torch modules as both exporters write them; none without torch."""
    if importlib.util.find_spec("torch") is None:
        return []

    def export(name: str, how: str, path: Path) -> None:
        from tests import modules  # imports torch, which no child of a fuzzer needs

        modules.exported(name, how)[2].save(path)

    return [
        functools.partial(models.cached, f"fuzz-{name}-{how}.onnx", functools.partial(export, name, how))
        for name in ("conv", "conv_bn", "shared", "tuples")
        for how in ("torchscript", "dynamo")
    ]


def mutated(random_: random.Random) -> bytes:
    """Return a seed with one to eight mutations."""
    data = random_.choice(seeds())
    proto = ModelProto.FromString(data)
    other = ModelProto.FromString(random_.choice(seeds()))
    for _ in range(random_.choice((1, 1, 2, 3, 5, 8))):
        _change(random_, proto, other)
    try:
        data = proto.SerializeToString()
    except (EncodeError, ValueError):
        return data
    if random_.random() < 0.25:
        data = _spoiled(random_, data)
    return data


def _change(random_: random.Random, proto: Message, other: Message) -> None:
    """Change one field of one message."""
    message = random_.choice(list(_messages(proto)))
    fields = message.DESCRIPTOR.fields
    present = [field for field, _ in message.ListFields()]
    field = random_.choice(present if present and random_.random() < 0.8 else fields)
    try:
        if field.is_repeated:
            _change_repeated(random_, message, field, other)
        elif field.type == field.TYPE_MESSAGE:
            donors = [each for each in _messages(other) if each.DESCRIPTOR is field.message_type]
            if random_.random() < 0.3 or not donors:
                message.ClearField(field.name)
            else:
                getattr(message, field.name).CopyFrom(random_.choice(donors))
        elif field.type == field.TYPE_STRING and random_.random() < 0.3:
            message.MergeFromString(_foreign_text(field.number))
        elif random_.random() < 0.15:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _scalar(random_, field, proto))
    except (ValueError, TypeError, DecodeError):
        pass  # a value that the field does not take: no mutation


def _change_repeated(random_: random.Random, message: Message, field: Any, other: Message) -> None:
    values = getattr(message, field.name)
    how = random_.randrange(5)
    if how == 0 and values:
        del values[random_.randrange(len(values))]
    elif how == 1 and values:
        values.append(random_.choice(values))
    elif how == 2 and len(values) > 1:
        items = list(values) if field.type != field.TYPE_MESSAGE else [_copy(each) for each in values]
        random_.shuffle(items)
        del values[:]
        values.extend(items)
    elif field.type == field.TYPE_STRING and random_.random() < 0.3:
        message.MergeFromString(_foreign_text(field.number))
    elif field.type != field.TYPE_MESSAGE:
        if values and how == 3:
            values[random_.randrange(len(values))] = _scalar(random_, field, message)
        else:
            values.extend(_scalar(random_, field, message) for _ in range(random_.choice((1, 2, 70))))
    elif donors := [each for each in _messages(other) if each.DESCRIPTOR is field.message_type]:
        values.append(random_.choice(donors))


def _foreign_text(number: int) -> bytes:
    """Return a field with a text that is not UTF-8, which protobuf reads as bytes."""
    return bytes([*((number << 3 | 2,) if number < 16 else (number << 3 & 127 | 130, number >> 4)), 3]) + b"\xff\xfea"


def _copy(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _scalar(random_: random.Random, field: Any, proto: Message) -> Any:
    if field.type == field.TYPE_STRING:
        texts = [text for text in _texts(proto) if text]
        return random_.choice(texts) if texts and random_.random() < 0.7 else random_.choice(TEXTS)
    if field.type == field.TYPE_BYTES:
        return random_.choice((b"", b"\0", b"\xff" * 8, random_.randbytes(random_.choice((1, 3, 4, 8, 40)))))
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random_.choice(FLOATS)
    if field.type == field.TYPE_ENUM:
        return random_.choice([*field.enum_type.values_by_number, 99])
    wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    return random_.choice(NUMBERS + LARGE_NUMBERS if wide and random_.random() < 0.6 else NUMBERS[:14])


def _messages(message: Message) -> Iterator[Message]:
    """Yield a message and those in it, without recursion."""
    waiting = [message]
    while waiting:
        at = waiting.pop()
        yield at
        for field, value in at.ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting.extend(value if field.is_repeated else [value])


def _texts(proto: Message) -> list[str]:
    return [
        text
        for message in _messages(proto)
        for field, value in message.ListFields()
        if field.type == field.TYPE_STRING
        for text in (value if field.is_repeated else [value])
        if isinstance(text, str)
    ]


def _spoiled(random_: random.Random, data: bytes) -> bytes:
    """Change bytes, also those of strings, which then are no UTF-8."""
    spoiled = bytearray(data)
    for _ in range(random_.choice((1, 2, 5))):
        at = random_.randrange(len(spoiled)) if spoiled else 0
        how = random_.randrange(4)
        if how == 0 and spoiled:
            spoiled[at] ^= 1 << random_.randrange(8)
        elif how == 1 and spoiled:
            spoiled[at] = random_.choice((0, 0x7F, 0x80, 0xFF, random_.randrange(256)))
        elif how == 2:
            spoiled[at:at] = random_.randbytes(random_.choice((1, 2, 8)))
        else:
            del spoiled[at : at + random_.choice((1, 4, 100))]
    return bytes(spoiled)


def smallest(data: bytes, is_found: Callable[[bytes], bool], seconds: float = 90) -> bytes:
    """Return a smaller file of the same find: fields are removed as long as it stays."""
    end = time.monotonic() + seconds
    try:
        proto = ModelProto.FromString(data)
        data = min(data, proto.SerializeToString(), key=lambda each: (not is_found(each), len(each)))
    except (DecodeError, EncodeError):
        return data
    proto = ModelProto.FromString(data)
    shrunk = True
    while shrunk and time.monotonic() < end:
        shrunk = False
        for place in list(_places(proto)):
            if time.monotonic() > end:
                break
            smaller = _without(proto, place)
            candidate = data if smaller is None else smaller.SerializeToString()
            if smaller is not None and len(candidate) < len(data) and is_found(candidate):
                proto, data, shrunk = smaller, candidate, True
    return data


Place = tuple[tuple[str, int], ...]
"""Names of fields, each with an index; −1 for the whole field."""


def _places(message: Message, above: Place = ()) -> Iterator[Place]:
    """Yield the places of fields, large ones first."""
    for field, value in message.ListFields():
        yield (*above, (field.name, -1))
        if field.is_repeated:
            yield from ((*above, (field.name, index)) for index in reversed(range(min(len(value), 50))))
        if field.type == field.TYPE_MESSAGE:
            items: Sequence[Message] = value if field.is_repeated else [value]
            for index, item in enumerate(items[:50]):
                yield from _places(item, (*above, (field.name, index if field.is_repeated else -2)))


def _without(proto: Message, place: Place) -> Message | None:
    """Return a copy without the field at a place; None if that is gone."""
    copy = _copy(proto)
    at: Any = copy
    try:
        for name, index in place[:-1]:
            at = getattr(at, name) if index == -2 else getattr(at, name)[index]
        name, index = place[-1]
        if index < 0:
            at.ClearField(name)
        else:
            del getattr(at, name)[index]
    except (IndexError, AttributeError):
        return None
    return copy
