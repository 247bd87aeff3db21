"""A decoder as the builder writes it, and transformers' module of the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.analysis.generate import packages

if TYPE_CHECKING:
    import onnx

LAYERS = 3


@pytest.fixture(scope="module")
def sound() -> onnx.ModelProto:
    return packages.decoder(LAYERS, seed=4)


@pytest.fixture(scope="module")
def module(sound: onnx.ModelProto) -> Any:
    return packages.llama(sound)
