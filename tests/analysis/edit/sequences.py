"""Random sequences of edits with random undos: what was undone is gone, the code makes the same model, files load.

``python -m tests.analysis.edit.sequences [COUNT]`` tries 2,000 sequences on small models, numbered from 0: each number
always is the same sequence.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

import onnx_nb
from onnx_nb.types import Edit, Graph, ValueInfo

HEAD = '<ir_version: 8, opset_import: ["": 17, "local": 1]>'
TEXTS = (
    f"""{HEAD} g (float[2, 3] x) => (float[2, 6] y, float[2, 3] d) <int64[2] shape = {{2, 6}}, float[3, 6] w = {{
    1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, float[3] b = {{1, 2, 3}}, float[3] b2 = {{1, 2, 3}}> {{
    [drop] a = Dropout (x)  [add] s = Add (a, b)  [relu] r = Relu (s)  [mul] d = Mul (r, b2)
    [mat] m = MatMul (d, w)  [view] y = Reshape (m, shape) }}""",
    f"""{HEAD} g (float[n, 4] x, bool c) => (float[n, 4] y) <float[4] b = {{1, 2, 3, 4}}> {{
    [id] i = Identity (x)  [choose] t = If (c) <
      then_branch = one () => (float[n, 4] p) {{ [inner] p = Add (i, b) }},
      else_branch = two () => (float[n, 4] q) {{ [other] q = Neg (i) }}>
    [call] f = local.Twice (t)  [soft] y = Softmax <axis = 1> (f) }}
    <domain: "local", opset_import: ["": 17]> Twice (v) => (z) {{ u = Abs (v)  z = Add (u, u) }}""",
    f"""{HEAD} g (float[1, 2, 4, 4] x) => (float[1, 8] y) <
    float[2, 2, 1, 1] k = {{1, 2, 3, 4}}, int64[2] s = {{1, 8}}> {{
    [conv] c = Conv (x, k)  [act] a = Relu (c)  [pool] p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
    [res] r = Add (p, p)  [flat] y = Reshape (r, s) }}""",
)
MODELS = [onnx.parser.parse_model(text) for text in TEXTS]


def negation(info: ValueInfo, folder: Path) -> str:
    """Write a model that negates a tensor of some type; return its path."""
    shape = ",".join(map(str, info.shape or ()))
    path = folder / f"{info.dtype} {shape}.onnx"
    if not path.exists():
        kind = f"{info.dtype.replace('float32', 'float').replace('float64', 'double')}[{shape}]"
        text = f'<ir_version: 8, opset_import: ["": 17]> s ({kind} v) => ({kind} w) {{ w = Neg (v) }}'
        onnx.save(onnx.parser.parse_model(text), path)
    return str(path)


def attempt(e: Edit, random: np.random.Generator, folder: Path) -> None:
    """Make one random edit; what it chooses may not be possible."""
    graph = Graph.of(e.model)
    nodes = [name for name in graph.names[: graph.main_count] if name]
    values = [name for name, home in zip(graph.value_names, graph.value_subgraph, strict=True) if home == 0]
    weights = list(e.model.initializers)
    ends = [info.name for info in (*e.model.inputs, *e.model.outputs)]
    dims = [dim for info in e.model.inputs for dim in info.shape or () if isinstance(dim, str)]

    def one(names: list[str]) -> str:
        return names[int(random.integers(len(names)))] if names else "nothing"

    new = f"new{int(random.integers(1000))}"
    part = one(weights)
    verbs: tuple[Callable[[], Any], ...] = (
        lambda: e.rename({one([*values, *nodes, *dims]): new}),
        lambda: e.fix({one(dims): int(random.integers(1, 5))}),
        lambda: e.free("batch"),
        lambda: e.remove(one(nodes)),
        lambda: e.insert(one(["Relu", "Identity", "Neg"]), after=one(values)),
        lambda: e.insert("Add", one(values), [np.float32(1)]),
        lambda: e.output(one(values)),
        lambda: e.drop(one(ends)),
        lambda: e.set(one(nodes), axis=int(random.integers(-2, 2))),
        lambda: (
            e.weight(part, np.atleast_1d(e.model.tensor(part))[::-1].reshape(e.model.tensor(part).shape))
            if part in weights
            else None
        ),
        lambda: e.tie(one(weights), one(weights)),
        lambda: e.dtype({one(ends): one(["float64", "float16", "int32"])}),
        lambda: e.convert(opset=int(random.integers(13, 22))),
        lambda: e.before(negation(e.model.inputs[0], folder)),
        lambda: e.after(negation(e.model.outputs[0], folder)),
        lambda: e.replace([one(values)], [one(values)], negation(e.model.outputs[0], folder)),
    )
    verbs[int(random.integers(len(verbs)))]()


def assert_types(e: Edit, number: int) -> None:
    """Compare the types that edits handed on with those that are inferred from the file."""
    graph, fresh = Graph.of(e.model), Graph.of(onnx_nb.load(e.model.to_proto()))
    assert graph.value_names == fresh.value_names, number
    for value, name in enumerate(fresh.value_names):
        found, expected = graph.type_of(value), fresh.type_of(value)
        assert found == expected, f"{number}: {name} is {found}, not {expected}: {e.code}"


def check(number: int, folder: Path, length: int = 8) -> Counter[str]:
    """Run a sequence, raise `AssertionError` if it breaks a promise, and count what was done and refused."""
    random = np.random.default_rng(number)
    model = MODELS[number % len(MODELS)]
    before = model.SerializeToString(deterministic=True)
    e, counts = onnx_nb.edit(model), Counter[str]()
    for _ in range(length):
        state = e.model.to_proto().SerializeToString(deterministic=True)
        try:
            if e.steps and random.random() < 0.2:
                e.undo(int(random.integers(1, len(e.steps) + 1)))
                counts["undone"] += 1
            else:
                attempt(e, random, folder)
                counts[e.steps[-1].call.partition("(")[0]] += 1
        except onnx_nb.OnnxNbError:
            counts["refused"] += 1
            state_now = e.model.to_proto().SerializeToString(deterministic=True)
            assert state_now == state, number
        if random.random() < 0.7:  # the other times, the types wait for the next step
            assert_types(e, number)
    onnx.checker.check_model(e.model.to_proto(), full_check=True)
    scope: dict[str, Any] = {"model": model}
    code = e.code
    exec(code, scope)  # noqa: S102 (what the edits wrote)
    again, proto = scope["e"].model.to_proto(), e.model.to_proto()
    assert again.SerializeToString(deterministic=True) == proto.SerializeToString(deterministic=True), (
        f"{number}: {code}"
    )
    for step in e.verify().steps:
        counts[step.proof] += 1
        # what is put in by hand may not run; what is the same by design must, if onnxruntime has the operator: a Relu
        # of integers runs at opset 18 alone, as a function
        is_known = "NOT_IMPLEMENTED" in step.reason
        assert step.proof != "wrong" or not step._outcome.is_same or is_known, f"{number}: {step}\n{code}"
    onnx_nb.load(e.save(folder / "edited.onnx", check=False)).to_proto()
    while e.steps:
        e.undo()
    assert (
        e.model.to_proto().SerializeToString(deterministic=True)
        == before
        == model.SerializeToString(deterministic=True)
    )
    return counts


if __name__ == "__main__":
    total = Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        for sequence in range(int(sys.argv[1]) if len(sys.argv) > 1 else 2000):
            total += check(sequence, Path(name))
    print(total)  # noqa: T201 (its result)
