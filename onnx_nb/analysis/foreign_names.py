"""Names that people know from other tools, and ours for them: for error messages and the documentation."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from onnx_nb.analysis.formatting import closest_text


@functools.cache
def table(part: Literal["names", "keywords", "export", "rules"]) -> Mapping[str, str]:
    """Return a part of ``foreign_names.toml``: their names, and words of ours."""
    return dict(tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))[part])


def advice(name: str, names: list[str]) -> str:
    """Return the counterpart in onnx_nb of another tool's name, else the closest of ``names``.

    Examples
    --------
    >>> advice("extract_model", [])
    'For onnx.utils.extract_model use onnx_nb.extract(model, inputs, outputs).save(path).'
    """
    if name not in table("names"):
        return closest_text(name, names)
    tool, _, counterpart = table("names")[name].partition(" ")
    return f"For {tool}.{name} use onnx_nb.{counterpart}."
