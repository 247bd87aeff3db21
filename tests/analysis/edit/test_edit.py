"""Edits: what each does against onnx's own tools and by running, what is refused and why, proofs, undo and code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.compose
import onnx.parser
import onnx.reference
import onnx.version_converter
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_nb
from tests import models
from tests.analysis.edit import sequences

HEAD = '<ir_version: 8, opset_import: ["": 17, "local": 1]>'


def parsed(text: str, head: str = HEAD) -> ModelProto:
    return onnx.parser.parse_model(f"{head} {text}")


def outputs(model: onnx_nb.Model | ModelProto, feed: dict[str, Any]) -> list[Any]:
    """What onnx's reference implementation gives: it shares nothing with the code that edits."""
    proto = model.to_proto() if isinstance(model, onnx_nb.Model) else model
    return list(onnx.reference.ReferenceEvaluator(proto).run(None, feed))


X = np.arange(6, dtype=np.float32).reshape(2, 3)
CHAIN = "g (float[2,3] x) => (float[2,3] y) <float[3] b = {1,2,3}> { [r] a = Relu(x) [n] c = Add(a, b) [e] y = Neg(c) }"
BODIES = """g (float[n] x, bool c) => (float[n] y) <float[1] w = {2}> { [choose] y = If (c) <
    then_branch = one () => (float[n] p) { [inner] p = Mul (x, w) },
    else_branch = two () => (float[n] q) { r = Identity (w)  q = Add (x, r) }> }"""


# --- rename ----------------------------------------------------------------------------------------------------------


def test_names_change_wherever_they_are_used() -> None:
    e = onnx_nb.edit(parsed(BODIES)).rename({"x": "data", "w": "weight", "n": "length", "inner": "scale", "y": "out"})
    proto = e.model.to_proto()
    onnx.checker.check_model(proto, full_check=True)
    assert [info.name for info in (*proto.graph.input, *proto.graph.output)] == ["data", "c", "out"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "length"
    body = proto.graph.node[0].attribute[0].g
    assert (body.node[0].name, list(body.node[0].input)) == ("scale", ["data", "weight"])
    x = np.array([1, 2], np.float32)
    for flag in (np.array(True), np.array(False)):
        (former,), (now,) = outputs(parsed(BODIES), {"x": x, "c": flag}), outputs(proto, {"data": x, "c": flag})
        assert np.array_equal(former, now)
    assert e.verify().steps[0].proof == "equal"


def test_names_may_be_swapped_and_are_those_of_a_function() -> None:
    text = """g (float[2] x) => (float[2] y) { a = local.F (x)  y = Neg (a) }
        <domain: "local", opset_import: ["": 17]> F (x) => (t) { t = Abs (x) }"""
    e = onnx_nb.edit(parsed(text)).rename({"x": "y", "y": "x", "F::t": "F::result"})
    assert [info.name for info in (*e.model.inputs, *e.model.outputs)] == ["y", "x"]
    (function,) = e.model.proto.functions
    assert (list(function.input), list(function.output)) == (["x"], ["result"])
    assert e.verify().steps[0].proof == "equal"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"q": "z"}, "has no 'q'"),
        ({"x": "b"}, "there would be two tensors 'b'"),
        ({"x": "new", "a": "new"}, "two tensors 'new'"),
        ({"x": ""}, "'x' cannot be called ''"),
        ({"r": "n"}, "there would be two nodes 'n'"),
    ],
)
def test_names_that_cannot_be_given(names: dict[str, str], message: str) -> None:
    e = onnx_nb.edit(parsed(CHAIN))
    with pytest.raises(onnx_nb.EditError, match=message):
        e.rename(names)
    assert not e.steps
    assert e.model.proto == onnx_nb.load(parsed(CHAIN)).proto


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("rename", ["x"], "rename.. takes names as a dict by name"),
        ("rename", [{"x": 5}], "'x' cannot be called 5"),
        ("dtype", ["x"], "dtype.. takes types as a dict by name"),
        ("free", ["batch", 5], "free.. takes axes as a dict by name"),
        ("convert", ["17"], "convert.. takes opset as a whole number"),
        ("undo", ["a"], "undo.. takes step as a whole number"),
        ("remove", [5], "remove takes names, not"),
        ("drop", [5], "drop takes names, not"),
        ("insert", [5, "x"], "insert takes names, not 5"),
        ("insert", ["Add", "x", 5], "insert cannot use what it is given: 'int' object is not iterable"),
        ("set", [5], "set takes names, not 5"),
        ("fix", [5], "fix.. takes shapes as a dict by name"),
        ("weight", ["b", "missing.npy"], r"weight cannot use what it is given: .*No such file.*'missing\.npy'"),
        ("weight", ["b", [[1], [1, 2]]], "weight cannot use what it is given"),
        ("before", ["missing.onnx"], "no file 'missing.onnx'"),
        ("compare", [5], "there is no step 5. It has 0 steps"),
        ("convert", [None, 0], "no valid model"),
        *((verb, [], f"{verb} is given nothing") for verb in ("fix", "remove", "output", "drop", "convert")),
        *((verb, [{}], f"{verb} is given nothing") for verb in ("rename", "dtype")),
        ("dtype", [{"x": None}], "there is no type None"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(verb: str, arguments: list[Any], message: str) -> None:
    e = onnx_nb.edit(parsed(CHAIN))
    with pytest.raises((onnx_nb.OnnxNbError, TypeError), match=message):
        getattr(e, verb)(*arguments)
    assert not e.steps


# --- nodes -----------------------------------------------------------------------------------------------------------


def test_a_removed_node_is_read_past_and_outputs_keep_their_names() -> None:
    e = onnx_nb.edit(parsed(CHAIN)).remove("n")
    assert [node.op_type for node in e.model.proto.graph.node] == ["Relu", "Neg"]
    assert not e.model.initializers, "the weight that only it read went too"
    assert np.array_equal(outputs(e.model, {"x": X})[0], -X)
    e.remove("e")
    assert [(node.op_type, list(node.output)) for node in e.model.proto.graph.node] == [("Relu", ["y"])]
    e.remove("r")
    assert [node.op_type for node in e.model.proto.graph.node] == ["Identity"]
    assert np.array_equal(outputs(e.model, {"x": X})[0], X)
    assert [step.proof for step in e.verify().steps[:2]] == ["changed", "changed"]
    assert "'y' moves by" in e.steps[0].reason


def test_a_node_that_others_cannot_do_without_stays() -> None:
    model = parsed("g (float[2,3] x) => (float[3,2] y) { [t] a = Transpose(x)  y = Neg(a) }")
    message = r"without 't' nothing makes 'a' \(3×2 float32\).*reads 'x' \(2×3 float32\)"
    with pytest.raises(onnx_nb.EditError, match=message):
        onnx_nb.edit(model).remove("t")
    split = parsed("g (float[4] x) => (float[2] y) { [s] a, b = Split(x)  y = Add(a, b) }")
    with pytest.raises(onnx_nb.EditError, match=r"others read 'a', 'b', and one input cannot stand for all.*replace\("):
        onnx_nb.edit(split).remove("s")
    with pytest.raises(onnx_nb.EditError, match=r"no node or scope 'tt'.*'t'"):
        onnx_nb.edit(model).remove("tt")


def test_a_node_without_a_name_is_known_by_what_it_makes() -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y) { a = Abs(x)  y = Softmax <axis = 0> (a) }")
    e = onnx_nb.edit(model).remove("a").set("y", axis=1)
    assert np.allclose(outputs(e.model, {"x": -X})[0].sum(1), 1)


def test_nodes_are_inserted_behind_inputs_values_and_outputs() -> None:
    b = np.array([1, 2, 3], np.float32)
    for after, expected in (("x", np.maximum(X * 2, 0) + b), ("a", X * 2 + b), ("y", (X + b) * 2)):
        e = onnx_nb.edit(parsed(CHAIN)).insert("Mul", after, [np.float32(2)])
        onnx.checker.check_model(e.model.to_proto(), full_check=True)
        assert [info.name for info in e.model.outputs] == ["y"]
        assert np.array_equal(outputs(e.model, {"x": X})[0], -expected.astype(np.float32)), after
    e = onnx_nb.edit(parsed(CHAIN)).insert("Cast", "y", to="float16")
    assert e.model.outputs[0].dtype == "float16"
    with pytest.raises(onnx_nb.EditError, match="after insert this is no valid model"):
        onnx_nb.edit(parsed(CHAIN)).insert("Cast", "x", to="float16")
    with pytest.raises(onnx_nb.EditError, match=r"no operator 'Mull'.*'Mul'"):
        onnx_nb.edit(parsed(CHAIN)).insert("Mull", "x")
    with pytest.raises(onnx_nb.EditError, match=r"Cast has no attribute 'too'.*'to'"):
        onnx_nb.edit(parsed(CHAIN)).insert("Cast", "x", too=1)


def test_attributes_are_set_and_removed() -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y) { [s] y = Softmax <axis = 0> (x) }")
    assert np.allclose(outputs(onnx_nb.edit(model).set("s", axis=1).model, {"x": X})[0].sum(1), 1)
    assert not onnx_nb.edit(model).set("s", axis=None).model.proto.graph.node[0].attribute
    with pytest.raises(onnx_nb.EditError, match=r"no attribute 'axes'.*'axis'"):
        onnx_nb.edit(model).set("s", axes=1)
    with pytest.raises(onnx_nb.EditError, match="no node 'S'"):
        onnx_nb.edit(model).set("S", axis=1)
    transpose = parsed("g (float[2,3] x) => (float[3,2] y) { [t] a = Transpose <perm = [1, 0]> (x)  y = Neg(a) }")
    e = onnx_nb.edit(transpose).set("t", perm=[0, 1])
    assert e.model.outputs[0].shape == (2, 3), "the output has the type that follows"


def test_another_model_takes_the_place_of_a_part() -> None:
    other = parsed("o (float[2,3] v) => (float[2,3] w) <float[3] b = {10,20,30}> { a = Mul(v, b)  w = Abs(a) }")
    e = onnx_nb.edit(parsed(CHAIN)).replace(["a"], ["c"], other)
    assert [node.op_type for node in e.model.proto.graph.node] == ["Relu", "Mul", "Abs", "Neg"]
    assert np.array_equal(outputs(e.model, {"x": X})[0], -np.abs(X * [10, 20, 30]).astype(np.float32))
    with pytest.raises(onnx_nb.EditError, match="needs"):
        onnx_nb.edit(parsed(CHAIN)).replace(["c"], ["a"], other)
    with pytest.raises(onnx_nb.EditError, match="has 1 input and 1 output, and 2 and 1 are named"):
        onnx_nb.edit(parsed(CHAIN)).replace(["x", "a"], ["c"], other)


# --- two models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["before", "after"])
def test_two_models_are_joined_as_onnx_compose_joins_them(where: str) -> None:
    text = "g (float[2,3] xK) => (float[2,3] yK) { hK = Exp(xK)  yK = Neg(hK) }"
    one, two = (parsed(text.replace("K", number)) for number in "12")
    expected = onnx.compose.merge_models(one, two, [("y1", "x2")])
    e = onnx_nb.edit(two).before(one) if where == "before" else onnx_nb.edit(one).after(two)
    assert [[p.name for p in ends] for ends in (e.model.inputs, e.model.outputs)] == [["x1"], ["y2"]]
    assert np.array_equal(outputs(e.model, {"x1": X})[0], outputs(expected, {"x1": X})[0])
    assert e.verify().steps[0].proof == "equal"


def test_joined_models_may_have_equal_names_other_opsets_and_weights_elsewhere(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.arange(9, dtype=np.float32).reshape(3, 3), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "n")],
        "linear",
        [helper.make_tensor_value_info("x", 1, [2, 3])],
        [helper.make_tensor_value_info("y", 1, [2, 3])],
        [weight],
    )
    linear = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "linear.onnx"
    onnx.save(linear, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    e = onnx_nb.edit(path).rename({"y": "x2"}).after(onnx_nb.edit(parsed(CHAIN)).rename({"x": "x2"}).model).before(path)
    saved = onnx.load(e.save(tmp_path / "joined.onnx"))
    w = numpy_helper.to_array(weight)
    assert np.allclose(outputs(saved, {"x": X})[0], -np.maximum(X @ w @ w, 0) - np.array([1, 2, 3]))
    assert {step.proof for step in e.steps} <= {"equal", "rounding"}
    two = parsed("g (float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }")
    with pytest.raises(onnx_nb.EditError, match="reads 'a', 'b', and the outputs are 'y'"):
        onnx_nb.edit(parsed(CHAIN)).after(two)


# --- inputs and outputs ----------------------------------------------------------------------------------------------


def test_outputs_come_and_go_with_what_only_they_need() -> None:
    e = onnx_nb.edit(parsed(CHAIN)).output("a").drop("y")
    assert [info.name for info in e.model.outputs] == ["a"]
    assert [node.op_type for node in e.model.proto.graph.node] == ["Relu"]
    with pytest.raises(onnx_nb.EditError, match="every output would go"):
        e.drop("a")
    with pytest.raises(onnx_nb.EditError, match="input 'x' is read by Relu 'r'"):
        e.drop("x")
    two = parsed("g (float[2] x, float[2] z) => (float[2] y) { y = Neg(x) }")
    assert [info.name for info in onnx_nb.edit(two).drop("z").model.inputs] == ["x"]


def test_element_types_of_inputs_and_outputs() -> None:
    e = onnx_nb.edit(parsed(CHAIN)).dtype({"x": "uint8", "y": "float64"})
    assert [info.dtype for info in (*e.model.inputs, *e.model.outputs)] == ["uint8", "float64"]
    assert np.array_equal(outputs(e.model, {"x": X.astype(np.uint8)})[0], outputs(parsed(CHAIN), {"x": X})[0])
    assert e.verify().steps[0].proof == "equal"
    with pytest.raises(onnx_nb.EditError, match="no type 'floaty'"):
        e.dtype({"x": "floaty"})
    with pytest.raises(onnx_nb.EditError, match="'a' is no tensor that is an input or output"):
        e.dtype({"a": "uint8"})


def test_sizes_are_fixed() -> None:
    model = parsed("g (float[n, 3] x) => (float[n, 3] y) { y = Neg(x) }")
    assert onnx_nb.edit(model).fix(n=4).model.outputs[0].shape == (4, 3)
    assert onnx_nb.edit(model).fix({"x": [5, 3]}).model.inputs[0].shape == (5, 3)
    with pytest.raises(onnx_nb.EditError, match=r"nor a dimension 'm'.*'n'"):
        onnx_nb.edit(model).fix(m=4)


# --- weights ---------------------------------------------------------------------------------------------------------


def test_weights_are_changed_and_tied(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.array([7, 8, 9], np.float32))
    e = onnx_nb.edit(parsed(CHAIN)).weight("b", tmp_path / "b.npy")
    assert np.array_equal(outputs(e.model, {"x": X})[0], -(X + np.array([7, 8, 9], np.float32)))
    assert onnx_nb.edit(parsed(CHAIN)).weight("b", np.ones(1)).model.initializers["b"].shape == (1,)
    with pytest.raises(onnx_nb.EditError, match=r"after weight this is no valid model"):
        e.weight("b", np.ones(2, np.float32))
    with pytest.raises(onnx_nb.EditError, match="is float32, and the new values are complex128"):
        e.weight("b", np.ones(3, complex))
    with pytest.raises(onnx_nb.OnnxNbError, match="'c' of g is not a weight: Add 'n' computes it"):
        e.weight("c", np.ones(3))
    weights = "float[2] p = {1, 2}, float[2] q = {1, 2}"
    two = parsed(f"g (float[2] x) => (float[2] y) <{weights}> {{ a = Add(x, p)  y = Mul(a, q) }}")
    e = onnx_nb.edit(two).tie("q", "p")
    assert list(e.model.initializers) == ["p"]
    assert e.verify().steps[0].proof == "equal"
    with pytest.raises(onnx_nb.OnnxNbError, match=r"'x' of g is not a weight: it is an input"):
        e.tie("p", "x")


# --- whole models ----------------------------------------------------------------------------------------------------


def test_versions_are_converted_as_onnx_converts_them_and_metadata_stays() -> None:
    model = onnx.load(models.exported("bert", dynamo=False, small=True))
    model.graph.node[0].metadata_props.add(key="where", value="line 3")
    e = onnx_nb.edit(model).convert(opset=21, ir=10)
    expected = onnx.version_converter.convert_version(model, 21)
    proto = e.model.to_proto()
    assert (proto.opset_import[0].version, proto.ir_version) == (21, 10)
    assert [node.op_type for node in proto.graph.node] == [node.op_type for node in expected.graph.node]
    assert proto.graph.node[0].metadata_props[0].value == "line 3"
    assert e.verify().steps[0].proof == "equal"
    with pytest.raises(onnx_nb.EditError, match=r"version converter cannot bring .* to opset 99"):
        e.convert(opset=99)


def test_half_precision_keeps_what_would_overflow() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) <float[1] big = {100000}, float[1] small = {0.00002}> {"
    model = parsed(f"{text} [up] a = Mul(x, big)  [down] b = Mul(a, small)  [last] y = Relu(b) }}")
    feeds = {"x": X + np.float32(0.1)}
    e = onnx_nb.edit(model).to_float16(feeds=feeds)
    assert "2 nodes kept in float32; 'a' reaches 5.1e+05" in e.steps[0].text
    (former,), (now,) = outputs(model, feeds), outputs(e.model, feeds)
    assert np.allclose(now, former, rtol=2e-3)
    assert not np.array_equal(now, former), "the rest is float16"
    assert e.verify(feeds).steps[0].proof != "wrong"
    assert onnx_nb.edit(model).to_float16(["up", "down", "last"]).verify(feeds).steps[0].proof == "equal"


# --- the list --------------------------------------------------------------------------------------------------------


def test_any_step_is_undone_unless_a_later_one_needs_it() -> None:
    e = onnx_nb.edit(parsed(CHAIN)).rename({"x": "image"}).remove("n").output("a")
    with pytest.raises(onnx_nb.EditError, match=r"step 2 needs step 1: without it.*'picture'|step"):
        onnx_nb.edit(parsed(CHAIN)).rename({"a": "picture"}).output("picture").undo(1)
    whole = e.model.to_proto()
    e.undo(2)
    assert [node.op_type for node in e.model.proto.graph.node] == ["Relu", "Add", "Neg"]
    assert [step.call for step in e.steps] == ["rename({'x': 'image'})", "output('a')"]
    e.redo()
    assert e.model.to_proto() == whole
    e.undo().undo().undo()
    assert e.model.to_proto() == onnx_nb.load(parsed(CHAIN)).to_proto()
    with pytest.raises(onnx_nb.EditError, match="nothing to undo"):
        e.undo()
    with pytest.raises(onnx_nb.EditError, match="nothing to redo"):
        onnx_nb.edit(parsed(CHAIN)).redo()


def test_the_code_makes_the_same_file_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parsed(CHAIN), path)
    np.save(tmp_path / "b.npy", np.ones(3, np.float32))
    e = onnx_nb.edit(path).rename({"x": "image"}).weight("b", tmp_path / "b.npy").insert("Mul", "a", [np.float32(2)])
    e.set("e").undo().fix({"image": [2, 3]}).convert(opset=19)
    e.save(tmp_path / "one.onnx")
    code = f"{e.code}\ne.save({str(tmp_path / 'two.onnx')!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_a_step_that_should_compute_the_same_and_does_not_is_not_saved(tmp_path: Path, monkeypatch: Any) -> None:
    from onnx_nb.analysis.edit import edit, surgery

    def wrong(model: onnx_nb.Model, _names: Any) -> surgery.EditResult:
        return surgery.EditResult(surgery.insert(model, "Neg", "x", ()).model, "renamed", is_same=True)

    monkeypatch.setitem(edit._VERBS, "rename", wrong)
    e = onnx_nb.edit(parsed(CHAIN)).rename({"x": "image"})
    with pytest.raises(onnx_nb.EditError, match="is not the same after rename"):
        e.save(tmp_path / "edited.onnx")
    assert not (tmp_path / "edited.onnx").exists()
    assert repr(e) == "Edit('g': 1 step, 1 wrong)"
    assert e.save(tmp_path / "edited.onnx", check=False).exists()


def test_a_file_that_changed_is_not_edited_on(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    big = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    model = parsed("g (float[64,64] x) => (float[64,64] y) { y = Neg(x) }")
    model.graph.initializer.append(big)
    onnx.save(model, path)
    e = onnx_nb.edit(path)
    onnx.save(parsed(CHAIN), path)
    with pytest.raises(onnx_nb.EditError, match="has changed on disk"):
        e.rename({"x": "image"})


def test_a_step_that_needs_more_memory_than_there_is_stays_unproved(monkeypatch: Any) -> None:
    from onnx_nb.analysis.edit import edit

    monkeypatch.setattr(edit, "available_memory", lambda: 23)  # the weight of both models takes 24 bytes
    e = onnx_nb.edit(parsed(CHAIN)).rename({"x": "image"}).verify()
    assert e.steps[0].verdict == "not proved: needs 24 B"
    monkeypatch.setattr(edit, "available_memory", lambda: 24)
    assert e.verify().steps[0].proof == "equal"


def test_steps_are_shown_and_compared() -> None:
    e = onnx_nb.edit(parsed(CHAIN)).remove("n").verify()
    assert e.rows()[0]["proof"] == "changed"
    assert list(e.to_frame()["call"]) == ["remove('n')"]
    assert e.compare(1, {"x": X})["y"].cumulative.max_abs == 3  # type: ignore[union-attr]  # it has errors
    assert "1 node" in repr(e.diff)
    assert e._still().tables[0].rows[0][1] == "e.remove('n')"
    assert onnx_nb.edit(parsed(CHAIN))._still().tables == ()


@pytest.mark.parametrize("number", range(24))
def test_random_sequences(number: int, tmp_path: Path) -> None:
    sequences.check(number, tmp_path)


def test_a_rename_copies_no_weight() -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20], raw_data=bytes(4 << 20))
    model = parsed("g (float[1] x) => (float[1] y) { y = Neg(x) }")
    model.graph.initializer.append(weight)
    e = onnx_nb.edit(model).rename({"w": "weight"})
    assert e.model.proto.ByteSize() < 1000
    assert e.model.tensor("weight").nbytes == 4 << 20
