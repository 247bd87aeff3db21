"""SimplificationPanel and its provenance: what became of each node, what each change took and made; undo and save."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from IPython.core.interactiveshell import InteractiveShell

import onnx_nb
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.match.diff import FOLDED, ONLY, SAME
from onnx_nb.analysis.run import session
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.result_columns import Provenance
from tests import models
from tests.packed import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD = '<ir_version: 8, opset_import: ["": 17, "local": 1]>'
SMALL = onnx.parser.parse_model(
    HEAD
    + """ g (float[n, 2, 3] x) => (float[n, 6] y) <float[2] w = {1, 2}, int64[1] six = {6}, int64 zero = {0}> {
    a = Identity(x)  size = Shape(a)  first = Gather(size, zero)  axes = Constant <value_ints = [0]> ()
    z = Unsqueeze(first, axes)  shape = Concat <axis = 0> (z, six)  dead = Exp(a)
    b = Dropout(a)  r = Reshape(b, shape)  t = Neg(r)  y = Identity(t) }"""
)


@pytest.fixture
def panel() -> Iterator[onnx_nb.SimplificationPanel]:
    made = onnx_nb.SimplificationPanel(onnx_nb.simplify(SMALL, trace=True))
    yield made
    made.close()


def ask(panel: onnx_nb.SimplificationPanel, verb: str, **args: Any) -> tuple[dict[str, Any], list[bytes]]:
    """Send what the browser would send, and return the reply that comes after all progress."""
    got: list[tuple[dict[str, Any], list[bytes]]] = []
    done = threading.Event()

    def send(content: dict[str, Any], buffers: list[bytes]) -> None:
        if "progress" not in content:
            got.append((content, buffers))
            done.set()

    panel.send = send
    panel._handle_custom_msg({"id": 1, "verb": verb, "args": args}, [])
    assert done.wait(60)
    return got[0]


def named(found: Provenance, side: int, change: int) -> list[str]:
    """Return what a change is about on a side: op types of nodes, names of tensors."""
    graph = (Graph.opened(found.before), Graph.opened(found.after))[side]
    return [
        graph.operators[graph.op_index[target]][0] if target >= 0 else graph.value_names[-1 - target]
        for target in found.targets[side][change]
    ]


def test_every_node_is_found_by_its_id() -> None:
    s = onnx_nb.simplify(SMALL)
    found = Provenance(s)
    assert [node.op_type for node in s.model.proto.graph.node] == ["Reshape", "Neg"]
    states = dict(zip([node.output[0] for node in SMALL.graph.node], found.sides[0].node_state.tolist(), strict=True))
    gone, folded = {"a", "dead", "b", "y"}, {"size", "first", "z", "shape", "axes"}
    assert states == {name: ONLY if name in gone else FOLDED if name in folded else SAME for name in states}
    assert found.sides[1].node_state.tolist() == [FOLDED, SAME]
    # what made t makes y now, for the model's output keeps its name
    assert found.sides[0].node.tolist()[-3:] == [0, 1, -1]
    assert found.sides[1].node.tolist() == [8, 9]
    by_rule = {change.rule: row for row, change in enumerate(s.changes)}
    reshape = by_rule["fold_reshape"]
    assert set(named(found, 0, reshape)) >= {"Shape", "Gather", "Unsqueeze", "Concat"}
    assert named(found, 1, reshape) == ["Reshape"]
    dropout = by_rule["eliminate_nop_dropout"]
    assert (named(found, 0, dropout), named(found, 1, dropout)) == (["Dropout"], ["x"])


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("dynamo", [True, False])
def test_matched_nodes_compute_the_same(name: str, dynamo: bool) -> None:
    """Against onnxruntime: matched nodes of both models compute equal values; every other node belongs to a change."""
    model = onnx_nb.load(models.exported(name, dynamo=dynamo))
    s = onnx_nb.simplify(model, check_n=0)
    found = Provenance(s)
    one, other = Graph.opened(s.original), Graph.opened(s.model)
    for at in (0, 1):
        side, graph = found.sides[at], (one, other)[at]
        assert np.all((side.node_state == SAME) | (found.change_of[at] >= 0))
        assert len(side.node_state) == graph.node_count
        assert all(found.targets[at][row] for row in range(len(s.changes)) if s.changes[row].taken)
    same = np.flatnonzero(found.sides[0].node_state == SAME)
    assert len(same) > 100
    chosen = same[:: max(1, len(same) // 25)].tolist()
    feed = onnx_nb.random_feeds(model, 3)
    pairs = []
    for n in chosen:
        m = int(found.sides[0].node[n])
        assert one.operators[one.op_index[n]] == other.operators[other.op_index[m]]
        pairs.append((one.value_names[one.node_outputs(n)[0]], other.value_names[other.node_outputs(m)[0]]))
    expected = session.run(s.original, feed, outputs=[pair[0] for pair in pairs], optimize=False)
    values = session.run(s.model, feed, outputs=[pair[1] for pair in pairs], optimize=False)
    for left, right in pairs:
        np.testing.assert_allclose(values[right], expected[left], rtol=1e-4, atol=1e-5)


def test_changes_inside_of_functions_are_found_at_each_call() -> None:
    model = onnx.parser.parse_model(
        HEAD
        + """ g (float[2] x) => (float[2] y) { [one] a = local.Twice(x)  [two] y = local.Twice(a) }
        <domain: "local", opset_import: ["": 17]> Twice (i) => (o) { c = Identity(i)  o = Add(c, c) }"""
    )
    s = onnx_nb.simplify(model)
    assert [change.key for change in s.changes] == ["eliminate_identity: local.Twice/c"]
    found = Provenance(s)
    assert named(found, 0, 0) == ["Identity", "Identity"]
    assert found.sides[0].node_state.tolist() == [SAME, SAME, ONLY, SAME, ONLY, SAME]
    assert found.sides[0].node.tolist() == [0, 1, -1, 2, -1, 3]


def test_steps_are_the_models_in_between() -> None:
    s = onnx_nb.simplify(models.light("squeezenet"), check_n=0, trace=True)
    assert [step.done for step in s.steps] == sorted(step.done for step in s.steps)
    assert s.steps[-1].done == len(s.changes)
    for number in range(1, len(s.steps)):
        found = Provenance(s, number)
        assert found.before is s.steps[number - 1].model
        assert len(found.changes) == s.steps[number].done - s.steps[number - 1].done
        assert np.all((found.sides[0].node_state == SAME) | (found.change_of[0] >= 0))


def test_the_browser_gets_both_graphs_and_every_change(panel: onnx_nb.SimplificationPanel) -> None:
    s = panel.simplification
    assert panel._parts["reference"] == columns(s.original).to_bytes()
    assert panel._parts["candidate"] == columns(s.model).to_bytes()
    sent = unpacked(panel._parts["differences"])
    rules = sent.meta["rules"]
    keys = [
        f"{rules[rule][0]}: {key}" for rule, key in zip(sent.arrays["rule"].tolist(), sent.texts("key"), strict=True)
    ]
    assert keys == [change.key for change in s.changes]
    assert {rule: count for rule, _, count in rules} == {
        rule: sum(change.rule == rule for change in s.changes) for rule in {change.rule for change in s.changes}
    }
    assert sent.texts("why") == [change.why for change in s.changes]
    about = panel._about
    assert about["verdict"] == "verified"
    assert about["nodes"] == [len(SMALL.graph.node), 2]
    assert {name: (before, after) for name, before, after in about["operators"]}["Identity"] == (2, 0)
    assert about["steps"][0][0] == "original"


def test_a_change_is_undone_and_done_again(panel: onnx_nb.SimplificationPanel) -> None:
    revision = panel._revision
    key = next(change.key for change in panel.simplification.changes if change.rule == "eliminate_nop_dropout")
    reply, _ = ask(panel, "again", skipped=[key])
    assert "value" in reply
    assert panel.skipped == [key]
    assert [node.op_type for node in panel.simplification.model.proto.graph.node] == ["Dropout", "Reshape", "Neg"]
    assert panel._about["skipped"] == [key]
    assert panel._revision == revision + 1
    assert repr(key) in panel._about["call"]
    with pytest.raises(onnx_nb.OnnxNbError, match="'more' is not left out"):
        panel.redo("more")
    panel.undo("eliminate_identity")
    assert panel.skipped == sorted([key, "eliminate_identity"])
    panel.redo(key)
    assert panel.skipped == ["eliminate_identity"]
    panel.redo()
    assert [node.op_type for node in panel.simplification.model.proto.graph.node] == ["Reshape", "Neg"]


def test_a_failure_changes_nothing(panel: onnx_nb.SimplificationPanel) -> None:
    before, revision = panel.simplification, panel._revision
    reply, _ = ask(panel, "again", skipped=["eliminate_idenity"])
    assert "there is no rule 'eliminate_idenity'" in reply["error"]["message"]
    assert "eliminate_identity" in reply["error"]["advice"]
    assert panel.simplification is before
    assert panel._revision == revision


def test_saving_replaces_no_file_without_consent(panel: onnx_nb.SimplificationPanel, tmp_path: Path) -> None:
    target = tmp_path / "simple.onnx"
    reply, _ = ask(panel, "save", path=str(target))
    assert reply["value"] == {"path": str(target), "exists": False, "size": reply["value"]["size"]}
    assert onnx.load(target).graph.node[0].op_type == "Reshape"
    target.write_bytes(b"mine")
    reply, _ = ask(panel, "save", path=str(target))
    assert reply["value"] == {"path": str(target), "exists": True, "size": ""}
    assert target.read_bytes() == b"mine"
    with pytest.raises(onnx_nb.OnnxNbError, match="there is a file"):
        panel.save(target)
    reply, _ = ask(panel, "save", path=str(target), replace=True)
    assert onnx.load(target) == panel.simplification.model.to_proto()
    reply, _ = ask(panel, "save", path="  ")
    assert "no path" in reply["error"]["message"]
    reply, _ = ask(panel, "save", path=str(target / "x.onnx"))
    assert reply["error"]["type"] == "ModelFileError"


def test_a_step_is_asked_for(panel: onnx_nb.SimplificationPanel) -> None:
    s = panel.simplification
    for part, model in (("reference", s.steps[0].model), ("candidate", s.steps[1].model)):
        _, buffers = ask(panel, "columns", part=f"{part}-1")
        assert bytes(buffers[0]) == columns(model).to_bytes()
    reply, _ = ask(panel, "columns", part="candidate-99")
    assert "there is no step 99" in reply["error"]["message"]
    reply, _ = ask(panel, "inspect", part="candidate", step=0, kind="node", id=0)
    assert reply["value"]["rows"]


def test_the_line_of_python_makes_the_same_model() -> None:
    s = onnx_nb.simplify(models.light("squeezenet"), check_n=1, skip={"eliminate_nop_dropout"}, size_budget=0)
    again = eval(s.call(), {"onnx_nb": onnx_nb})  # noqa: S307 - of what we wrote
    assert again.model.to_proto() == s.model.to_proto()
    assert [change.key for change in again.changes] == [change.key for change in s.changes]
    assert s.again(size_budget=1 << 20).options["skip"] == ("eliminate_nop_dropout",)


def test_the_verdict_distinguishes_unchecked_from_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert onnx_nb.simplify(SMALL).verdict == "verified"
    assert onnx_nb.simplify(SMALL, check_n=0).verdict == "unchecked"
    from onnx_nb.analysis.simplify.editor import Editor

    plain = Editor.model

    def broken(self: Editor) -> Any:
        made, ids = plain(self)
        next(node for node in made.proto.graph.node if node.op_type == "Neg").op_type = "Abs"
        return made, ids

    monkeypatch.setattr(Editor, "model", broken)
    with pytest.warns(UserWarning, match="not the same"):
        s = onnx_nb.simplify(SMALL)
    assert s.verdict == "wrong"
    panel = onnx_nb.SimplificationPanel(s)
    assert panel._about["verdict"] == "wrong"
    assert panel._about["outputs"][0][0] == "y"
    assert panel._about["outputs"][0][2] > 0


def test_a_simplification_at_the_end_of_a_cell_is_its_panel() -> None:
    shell = InteractiveShell.instance()
    try:
        s = onnx_nb.simplify(SMALL, check_n=0)
        data, _ = shell.display_formatter.format(s)  # type: ignore[union-attr]
        assert data["text/plain"] == repr(s)
        assert "application/vnd.jupyter.widget-view+json" in data
    finally:
        InteractiveShell.clear_instance()
