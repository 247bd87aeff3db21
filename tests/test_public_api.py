"""The public names: where they are defined, and the errors for names of other tools."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import onnx_nb
from onnx_nb.analysis.foreign_names import table
from tests import models


def test_every_public_name_is_what_its_module_calls_so() -> None:
    for module in (onnx_nb, onnx_nb.types):
        for name in module.__all__:
            value = getattr(module, name)
            if name != "ModelLike" and callable(value):
                assert value.__name__ == name
                assert pickle.loads(pickle.dumps(value)) is value  # noqa: S301 (our own bytes)


def test_classes_of_results_are_in_types() -> None:
    assert not {*onnx_nb.__all__} & {*onnx_nb.types.__all__}
    with pytest.raises(AttributeError, match=r"no attribute 'Comparison'\. It is onnx_nb\.types\.Comparison\."):
        onnx_nb.Comparison  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"'onnx_nb\.types' has no attribute 'Comparisn'\. Closest names: 'Comp"):
        onnx_nb.types.Comparisn  # type: ignore[attr-defined]  # noqa: B018


ALIASES = {"Count", "Size", "Ints", "Longs", "Floats", "Column", "Number", "Dims", "Key", "NodeIds", "Check"}
"""Names of arrays, numbers, tuples of them, and functions."""
LITERALS = {"Fault", "What", "Verdict", "Proof", "Origin", "Scale", "Aggregate", "How"}
OTHERS = {
    *[
        "Any",
        "Self",
        "Literal",
        "None",
        "Annotated",
        "ForwardRef",
        "Iterator",
        "Callable",
        "Sequence",
        "Mapping",
        "Path",
        "NDArray",
        "DataFrame",
        "Figure",
        "Digraph",
    ]
}
OTHERS |= {"TensorProto", "SparseTensorProto", "AttributeProto"}
OTHERS |= {"Tensor", "ModelProto", "NodeProto", "GraphProto", "FunctionProto", "ValueInfoProto", "TypeProto"}
COLUMNS = {"Spans", "DeclaredTypes", "Inference", "Problems"}
"""Columns of a `Graph`, which other modules read."""


def test_everything_that_a_person_gets_can_be_named() -> None:
    annotations: list[object] = []
    for value in (getattr(module, name) for module in (onnx_nb, onnx_nb.types) for name in module.__all__):
        if inspect.isfunction(value):
            annotations.append(inspect.signature(value).return_annotation)
        if not inspect.isclass(value) or issubclass(value, Exception):
            continue
        for base in (each for each in value.__mro__ if each.__module__.startswith("onnx_nb")):
            annotations += [kind for key, kind in inspect.get_annotations(base).items() if key[0] != "_"]
            for key, member in base.__dict__.items():
                function = getattr(member, "fget", None) or getattr(member, "func", None) or member
                if key[0] != "_" and inspect.isfunction(function):
                    annotations.append(function.__annotations__.get("return"))
    classes = {part for text in map(str, annotations) for part in re.findall(r"\b[A-Z]\w+", text)}
    assert classes - ALIASES - LITERALS - OTHERS - COLUMNS <= {*onnx_nb.__all__, *onnx_nb.types.__all__}


def test_import_loads_no_heavy_library() -> None:
    code = "import sys, onnx_nb; print([m for m in ('onnx', 'numpy', 'IPython', 'ipywidgets') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_run_writes_nothing_below_the_home_folder(tmp_path: Path) -> None:
    code = f"import onnx_nb; onnx_nb.run({str(models.one_node())!r})"
    env = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**env, "HOME": str(tmp_path), "XDG_CACHE_HOME": ""})
    assert list(tmp_path.rglob("*")) == []


def test_showing_a_model_imports_only_what_that_needs() -> None:
    heavy = ("onnx.reference", "onnxruntime", "numpy.ma", "PIL", "graphviz", "pandas", "matplotlib")
    code = f"""import sys, onnx_nb
onnx_nb.ModelGraph({str(models.light("squeezenet"))!r})
ours = ("compare", "run", "simplify", "pytorch")
print([m for m in {heavy!r} if m in sys.modules], [m for m in ours if f"onnx_nb.analysis.{{m}}" in sys.modules])"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["[]", "[]"]


def test_names_of_other_tools_are_answered_with_ours() -> None:
    with pytest.raises(AttributeError, match=r"For onnx\.utils\.extract_model use onnx_nb\.extract\("):
        onnx_nb.extract_model  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"Closest names: 'simplify'"):
        onnx_nb.simplfy  # type: ignore[attr-defined]  # noqa: B018
    for name, ours in ((name, text.partition(" ")[2]) for name, text in table("names").items()):
        assert name not in onnx_nb.__all__
        assert ours.split("(")[0].split(".")[0] in {*onnx_nb.__all__, "model"}


def test_keywords_of_other_tools_are_answered_with_ours() -> None:
    proto = onnx.ModelProto()
    with pytest.raises(TypeError, match=r"has no argument 'skip_fuse_bn'\. Use skip=\[\"fuse_bn_into_conv\"\]"):
        onnx_nb.simplify(proto, skip_fuse_bn=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"costs\(\) has no argument 'overwrite_input_shapes'\. Use shapes="):
        onnx_nb.costs(proto, overwrite_input_shapes={})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"extract\(\) has no argument 'output_names'\. Use outputs="):
        onnx_nb.extract(proto, output_names=["y"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"capture\(\) has no argument 'progres'\. Closest names: 'progress'"):
        onnx_nb.capture(proto, progres=print)  # type: ignore[call-arg]
    functions = [value for name in onnx_nb.__all__ if inspect.isfunction(value := getattr(onnx_nb, name))]
    parameters = {name for function in functions for name in inspect.signature(function).parameters}
    ours = {each.partition("=")[0] for text in table("keywords").values() for each in text.split(" ")}
    assert ours - {"subprocess"} <= parameters
