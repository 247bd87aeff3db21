"""`reduce` against planted faults: what the parts compute is compared with onnx's reference evaluator."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_erf

import onnx_nb
from onnx_nb import OnnxNbError, reduce
from onnx_nb.notebook.display import widget_of
from tests.conformance.cases import same_bits
from tests.dags import FEEDS, all_values, dags, run
from tests.depth import examples

COUNT = 300
X = {"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)}


def layered(ops: dict[int, str], count: int = COUNT) -> onnx.ModelProto:
    """Build nodes n0, n1, … in which every third adds an earlier value; some have another operator."""
    nodes, names = [], ["x"]
    for number in range(count):
        op = ops.get(number, ("Tanh", "Add", "Mul")[number % 3])
        reads = [names[-1]] if op in ("Tanh", "Erf", "Softsign", "Neg") else [names[-1], names[max(0, number - 7)]]
        reads = [names[-1], "w"] if op == "Mul" else reads
        nodes.append(onnx.helper.make_node(op, reads, [f"t{number}"], f"n{number}"))
        names.append(f"t{number}")
    value = onnx.helper.make_tensor_value_info
    inputs, outputs = ([value(name, onnx.TensorProto.FLOAT, ["batch", 4])] for name in ("x", names[-1]))
    weight = onnx.numpy_helper.from_array(np.array([0.5, 1, -1, 1.5], np.float32), "w")
    graph = onnx.helper.make_graph(nodes, "layered", inputs, outputs, [weight])
    return onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])


def ops_of(part: onnx_nb.Model) -> list[str]:
    return [node.op_type for node in part.proto.graph.node]


class Erf(op_erf.Erf):
    """A kernel that is wrong."""

    op_domain = ""

    def _run(self, x: Any, **_: Any) -> Any:
        return (np.tanh(x).astype(x.dtype),)


def runtimes_agree(part: onnx_nb.Model, feeds: dict[str, Any]) -> bool:
    wanted = onnx_nb.run(part, feeds)
    found = ReferenceEvaluator(part.to_proto(), new_ops=[Erf]).run(list(wanted), feeds)
    return all(np.allclose(a, b, atol=1e-5) for a, b in zip(wanted.values(), found, strict=True))


def test_a_wrong_kernel_among_300_nodes_is_found_by_bisection() -> None:
    found = reduce(layered({137: "Erf"}), runtimes_agree, X)
    assert found.nodes == ("Erf 'n137'",)
    assert ops_of(found.model) == ["Erf"]
    assert list(found.feeds) == ["t136"]
    assert (found.failures, found.flaky, found.minimal, found.interrupted) == ((3, 3), False, True, False)
    assert len(found.trials) <= math.ceil(math.log2(COUNT)) + 4  # the whole, the node by itself, and that again twice
    assert not runtimes_agree(found.model, dict(found.feeds))
    assert found.message == f"The check fails on 1 of 300 nodes: Erf 'n137' ({len(found.trials)} calls)."
    assert found._repr_mimebundle_()[0]["text/plain"] == str(found)
    assert str(found).startswith(f"{found.message}\n")
    assert type(widget_of(found)).__name__ == "ModelView"


@pytest.mark.parametrize("order", [(40, 221), (221, 222), (0, 299)])
def test_two_nodes_that_fail_only_together_are_found(order: tuple[int, int]) -> None:
    first, second = order

    def check(part: onnx_nb.Model, feeds: dict[str, Any]) -> bool:
        ops = ops_of(part)
        assert all(array.shape == (3, 4) for array in feeds.values())
        return not {"Erf", "Softsign"}.issubset(ops)

    found = reduce(layered({first: "Erf", second: "Softsign"}), check, X)
    assert found.nodes == (f"Erf 'n{first}'", f"Softsign 'n{second}'")
    assert len(found.trials) <= 2 * math.ceil(math.log2(COUNT)) + 7
    found.model.proto.SerializeToString()
    assert list(onnx_nb.run(found.model, dict(found.feeds)))[-1] == f"t{second}"


def test_a_pattern_of_nodes_that_are_far_apart_is_found() -> None:
    needed = {"n10", "n11", "n90", "n170", "n171"}
    found = reduce(layered({}), lambda part, _: not needed <= {node.name for node in part.proto.graph.node}, X)
    assert {name.split("'")[1] for name in found.nodes} == needed
    assert found.minimal
    assert len(found.trials) <= 2 * len(needed) * math.ceil(math.log2(COUNT))


@given(model=dags(), data=st.data())
@examples(25)
def test_every_part_is_a_model_that_computes_what_the_whole_does(model: onnx.ModelProto, data: st.DataObject) -> None:
    loaded = onnx_nb.load(model)
    whole = onnx_nb.types.Graph.of(loaded)
    names = [name for name in whole.names[: whole.main_count] if name]
    needed = set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)))
    expected = all_values(model)
    wrong: list[str] = []

    def check(part: onnx_nb.Model, feeds: dict[str, Any]) -> bool:
        if part.proto is not loaded.proto:
            onnx.checker.check_model(part.to_proto(), full_check=True)
            wrong.extend(name for name, made in run(part, feeds).items() if not same_bits(made, expected[name]))
        return not needed <= {node.name for node in part.proto.graph.node}

    given_feeds = {value.name: FEEDS[value.name] for value in model.graph.input}
    found = reduce(loaded, check, given_feeds)
    assert not wrong
    assert needed <= {node.name for node in found.model.proto.graph.node}
    assert {trial.result for trial in found.trials} <= {"fails", "passes", "no model"}


def test_what_is_wrong_with_the_check_is_said() -> None:
    model = layered({5: "Erf"}, 12)
    with pytest.raises(OnnxNbError, match="the check does not fail on the whole of layered"):
        reduce(model, lambda *_: True, X)
    with pytest.raises(
        OnnxNbError, match=r"raises on the whole of layered: ValueError: 'no' .*catch it and return False"
    ):
        reduce(model, lambda *_: ["yes"].index("no") == 0, X)
    with pytest.raises(OnnxNbError, match="returns NoneType, not True or False"):
        reduce(model, lambda *_: None, X)  # type: ignore[arg-type]

    def reads_the_output(part: onnx_nb.Model, feeds: dict[str, Any]) -> bool:
        made = onnx_nb.run(part, feeds)["t11"]
        return "Erf" not in ops_of(part) or made is None

    found = reduce(model, reads_the_output, X)  # which only parts with the last node have
    assert found.nodes[0] == "Erf 'n5'"
    assert found.nodes[-1] == "Mul 'n11'"
    assert "It raised in" in found.message
    assert "KeyError: 't11'" in found.message
    calls = iter([False, False, False, True, False])
    flaky = reduce(model, lambda *_: next(calls, True), X)
    assert flaky.flaky
    assert "it is flaky: on this part it failed in" in flaky.message


def test_an_interrupt_returns_the_smallest_part_so_far() -> None:
    sizes = []

    def check(part: onnx_nb.Model, _feeds: dict[str, Any]) -> bool:
        sizes.append(len(part.proto.graph.node))
        if len(sizes) == 4:
            raise KeyboardInterrupt
        return "Erf" not in ops_of(part)

    found = reduce(layered({20: "Erf"}), check, X)
    assert found.interrupted
    assert len(found.nodes) == min(sizes[:3]) < COUNT
    assert "interrupted: a smaller part may fail" in found.message


def test_a_node_that_no_runtime_has_is_found_though_nothing_behind_it_has_values() -> None:
    model = layered({}, 40)
    model.graph.node[22].op_type = "NoSuchOperator"
    model.graph.node[22].domain = "elsewhere"
    model.opset_import.append(onnx.helper.make_opsetid("elsewhere", 1))
    value = onnx.helper.make_tensor_value_info
    model.graph.value_info.extend(value(f"t{n}", onnx.TensorProto.FLOAT, ["batch", 4]) for n in range(39))

    def check(part: onnx_nb.Model, feeds: dict[str, Any]) -> bool:
        try:
            onnx_nb.run(part, feeds)
        except OnnxNbError:
            return False
        return True

    found = reduce(model, check, X)
    assert found.nodes == ("NoSuchOperator 'n22'",)
    assert [array.shape for array in found.feeds.values()] == [(3, 4), (3, 4)]


def test_a_command_is_a_check_and_the_saved_folder_reproduces_the_failure(tmp_path: Path) -> None:
    code = "import onnx, sys, numpy; m = onnx.load(sys.argv[1]); f = numpy.load(sys.argv[2]); "
    code += "assert set(f) == {i.name for i in m.graph.input}; sys.exit(any(n.op_type == 'Erf' for n in m.graph.node))"
    command = f'"{sys.executable}" -c "{code}" {{model}} {{feeds}}'
    found = reduce(layered({3: "Erf"}, 8), command, X)
    assert found.nodes == ("Erf 'n3'",)
    folder = found.save(tmp_path / "by command")
    assert sorted(file.name for file in folder.iterdir()) == ["inputs.npz", "model.onnx", "run.py"]
    again = subprocess.run([sys.executable, folder / "run.py"], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (1, "fails\n"), again.stderr
    with pytest.raises(OnnxNbError, match="cannot be run: No such file"):
        reduce(layered({}, 4), "no-such-command-here {model}", X)
    with pytest.raises(OnnxNbError, match="exits with 125"):
        reduce(layered({}, 4), f'"{sys.executable}" -c "raise SystemExit(125)" {{model}}', X)
    with pytest.raises(OnnxNbError, match="does not say where the model goes"):
        reduce(layered({}, 4), "trtexec", X)


def test_inputs_of_a_command_may_have_the_names_of_parameters_of_numpy(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2] file, float[2] allow_pickle) => (float[2] y) { y = Add(file, allow_pickle) }""")
    code = "import numpy, sys; sys.exit(set(numpy.load(sys.argv[1])) == {'file', 'allow_pickle'})"
    feeds = {name: np.ones(2, np.float32) for name in ("file", "allow_pickle")}
    part = reduce(model, f'"{sys.executable}" -c "{code}" {{feeds}} {{model}}', feeds)
    part.save(tmp_path / "part")
    assert np.load(tmp_path / "part" / "inputs.npz").keys() == part.feeds.keys()


LIMIT = 0.5


def test_the_saved_script_has_the_source_of_the_check(tmp_path: Path) -> None:
    least = -1

    def below(part: onnx_nb.Model, feeds: dict[str, Any]) -> bool:
        made = onnx_nb.run(part, feeds)
        return all(np.max(array) <= LIMIT and np.min(array) > least for array in made.values())

    found = reduce(layered({}, 9), below, {"x": np.full((1, 4), 0.4, np.float32)})
    text = (found.save(tmp_path / "one") / "run.py").read_text()
    for line in ("import numpy as np", "LIMIT = 0.5", "least = -1", "check = below"):
        assert line in text.splitlines()
    for folder, check in (("two", lambda part, feeds: not len(onnx_nb.run(part, feeds))), ("one", below)):
        if folder == "two":
            found = reduce(layered({}, 9), check, X)
            found.save(tmp_path / folder)
        again = subprocess.run(
            [sys.executable, tmp_path / folder / "run.py"], capture_output=True, text=True, check=False
        )
        assert (again.returncode, again.stdout) == (1, "fails\n"), again.stderr
