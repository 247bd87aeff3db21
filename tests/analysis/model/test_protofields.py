"""Fields of many messages and equal strings among them, against protobuf and a dictionary."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from onnx_nb.analysis.model import protofields
from onnx_nb.analysis.model.protofields import Spans, find

STRINGS = st.lists(
    st.one_of(st.text(max_size=30), st.binary(max_size=30), st.sampled_from(["a" * 8, "a" * 9, "a" * 16]))
)


def numbered_by_hand(strings: list[str | bytes]) -> list[int]:
    index: dict[bytes, int] = {}
    raw = [s.encode("utf-8", "replace") if isinstance(s, str) else s for s in strings]
    return [index.setdefault(s, len(index)) if s else -1 for s in raw]


@given(STRINGS)
def test_equal_strings_get_equal_numbers(strings: list[str | bytes]) -> None:
    spans = Spans.of(strings)
    number, first = spans.numbered()
    expected = numbered_by_hand(strings)
    assert number.tolist() == expected
    assert [expected[i] for i in first] == list(range(len(first)))
    assert [expected.index(n) for n in range(len(first))] == first.tolist()


@given(STRINGS)
def test_strings_with_one_hash_are_told_apart(strings: list[str | bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protofields, "_hashed", lambda _, begin, __: np.zeros(len(begin), np.uint64))
        assert Spans.of(strings).numbered()[0].tolist() == numbered_by_hand(strings)


@given(STRINGS, STRINGS)
def test_joined_buffers_hold_the_same_strings(one: list[str | bytes], other: list[str | bytes]) -> None:
    a, b = Spans.of(one), Spans.of(other)
    assert Spans.joined([a, b, a]).pieces() == [*a.pieces(), *b.pieces(), *a.pieces()]


@given(st.lists(st.text(max_size=10)))
def test_text_comes_out_as_it_went_in(strings: list[str]) -> None:
    assert Spans.of(strings).strings() == strings


NODES = st.builds(
    lambda inputs, outputs, name, op, ints: helper.make_node(
        op, inputs, outputs, name, **({"a": ints} if ints else {})
    ),
    st.lists(st.text(max_size=200), max_size=130),
    st.lists(st.text(max_size=5), max_size=3),
    st.text(max_size=5),
    st.text(max_size=5),
    st.lists(st.integers(0, 9), max_size=3),
)


@given(st.lists(NODES, max_size=5))
def test_fields_are_those_protobuf_wrote(nodes: list[onnx.NodeProto]) -> None:
    parts = [node.SerializeToString() for node in nodes]
    ends = np.cumsum([0, *map(len, parts)])
    buffer = b"".join(parts)
    found = find(buffer, ends[:-1], ends[1:])
    for row, node in enumerate(nodes):
        mine = found.row == row
        tags, begin, end = found.tag[mine], found.begin[mine], found.end[mine]
        texts = [buffer[b:e] for b, e in zip(begin, end, strict=True)]
        name = [node.name] if node.HasField("name") else []
        for number, values in ((1, node.input), (2, node.output), (3, name), (4, [node.op_type])):
            assert [t for t, tag in zip(texts, tags, strict=True) if tag >> 3 == number] == [v.encode() for v in values]
        # spans without gaps: from the start of the message to its end
        assert sorted([*found.start[mine].tolist(), int(ends[row + 1])]) == sorted([int(ends[row]), *end.tolist()])
