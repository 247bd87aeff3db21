"""Text for people is short, safe and in one form everywhere."""

from __future__ import annotations

import math

import pytest

from onnx_nb.analysis import formatting as f


def test_closest_names_are_listed_first() -> None:
    assert f.closest("layer1.weigth", ["layer1.weight", "layer1.bias", "head"], n=1) == ["layer1.weight"]
    assert f.closest_text("wieght", ["weight", "bias"]) == "Closest names: 'weight'."
    assert f.closest_text("x", ["weight"]) == ""


def test_names_from_files_are_made_safe() -> None:
    assert (f.plain_text("w"), f.plain_text(b"\xffw")) == ("w", "\\xffw")
    assert (f.quoted("w"), len(f.quoted("w" * 10_000))) == ("'w'", 183)
    assert (f.shortened("batch", 24), f.shortened("batch", 4)) == ("batch", "bat…")
    assert f.printable("a\u202egnp.exe\n\u2028\x9b\ud800") == "a·gnp.exe····"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (f.bytes_text(512), "512 B"),
        (f.bytes_text(438_000_000), "438.0 MB"),
        (f.count_text(1, "node"), "1 node"),
        (f.count_text(1200, "node"), "1,200 nodes"),
        (f.count_text(2, "body", "bodies"), "2 bodies"),
        (f.scaled_text(512, "MACs"), "512 MACs"),
        (f.scaled_text(4_089_184_256, "MACs"), "4.09 GMACs"),
        (f.scaled_text(512), "512"),
        (f.duration_text(0.0000123), "12.3 µs"),
        (f.duration_text(0.00123), "1.23 ms"),
        (f.duration_text(12.3), "12.3 s"),
        (f.ratio_text(2.345), "2.3×"),
        (f.ratio_text(123_456), "100,000×"),
        (f.ratio_text(math.inf), "infinitely"),
        (f.number_text(0.1 + 0.2), "0.3"),
        (f.number_text(-math.inf), "−∞"),
        (f.number_text(math.nan), "NaN"),
        (f.number_text(True), "true"),
        (f.number_text(-12), "−12"),
        (f.number_text(1 - 2j), "1−2j"),
        (f.shape_text((1, "n", None)), "1×n×?"),
        (f.shape_text(()), "scalar"),
    ],
)
def test_numbers_and_shapes(found: str, expected: str) -> None:
    assert found == expected
