"""ProfilePanel: what it hands to the browser, and how it goes with a graph."""

from __future__ import annotations

import html
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import pytest

import onnx_nb
from onnx_nb import ModelGraph, OnnxNbError, ProfilePanel, profile
from onnx_nb.notebook.display import widget_of
from onnx_nb.types import Profile
from tests import models
from tests.packed import Unpacked, unpacked

if TYPE_CHECKING:
    from pathlib import Path

OTHER = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { z = Neg(x) }'


@pytest.fixture(scope="module")
def found() -> Profile:
    return profile(models.detection(), runs=2, warmup=0, threads=1)


def part(panel: ProfilePanel, name: str = "columns") -> Unpacked:
    return unpacked(panel._part(name))


def test_the_columns_hold_every_kernel_and_span(found: Profile) -> None:
    packed = part(ProfilePanel(found))
    assert packed.texts("name") == [kernel.name for kernel in found.kernels]
    assert packed.arrays["seconds"].tolist() == [kernel.median for kernel in found.kernels]
    assert packed.arrays["share"].sum() == pytest.approx(1)
    ends, nodes = packed.arrays["node_ptr"].tolist(), packed.arrays["node"].tolist()
    assert [tuple(nodes[a:b]) for a, b in itertools.pairwise(ends)] == [k.nodes for k in found.kernels]
    starts = packed.arrays["span_start"].tolist()
    shown = zip(starts, packed.arrays["span_kernel"].tolist(), packed.arrays["span_seconds"].tolist(), strict=True)
    assert sorted(shown) == sorted((span.start, span.kernel, span.seconds) for span in found.spans)
    assert starts == sorted(starts)
    assert packed.meta["message"] == found.message
    assert len(packed.arrays["change_after"]) == 0


def test_each_node_leads_to_the_kernel_that_runs_it(found: Profile) -> None:
    panel = ProfilePanel(found)
    ran = part(panel, "differences").arrays
    assert found.optimized is not None
    nodes = found.optimized.proto.graph.node
    for kernel in found.kernels:
        if kernel.parent < 0 and kernel.nodes and not kernel.edge:
            assert ran["node_0"][list(kernel.nodes)].tolist() == [kernel.optimized] * len(kernel.nodes)
            assert nodes[kernel.optimized].op_type == kernel.op
    assert part(panel, "candidate").meta["faults"] == []
    assert int(np.count_nonzero(ran["node_state_1"])) == len(found.inserted)


def test_a_kernel_and_its_nodes_are_selected_in_panel_and_graph(found: Profile) -> None:
    graph = ModelGraph(found.model)
    panel = ProfilePanel(found, graph=graph)
    assert graph._overlay is not None
    fused = next(n for n, kernel in enumerate(found.kernels) if len(kernel.nodes) > 1)
    panel.kernel = fused
    assert [each["id"] for each in graph.selection] == list(found.kernels[fused].nodes)
    single = next(n for n, kernel in enumerate(found.kernels) if len(kernel.nodes) == 1 and not kernel.edge)
    node = found.kernels[single].nodes[0]
    graph.selection = [{"kind": "node", "name": found.graph.names[node], "id": node}]
    assert (panel.kernel, len(panel.selection)) == (single, 1)
    last = found.kernels[fused].nodes[-1]
    graph.selection = [{"kind": "node", "name": found.graph.names[last]}]
    assert panel.kernel == fused
    assert len(graph.selection) == 1  # the person's own choice stays
    panel.graph = None
    assert graph._overlay is None
    with pytest.raises(OnnxNbError, match=r"the profile is one of .*, not of g"):
        ProfilePanel(found, graph=ModelGraph(onnx.parser.parse_model(OTHER)))


def test_unlinking_leaves_colors_that_were_chosen_in_the_graph(found: Profile) -> None:
    graph = ModelGraph(found.model)
    panel = ProfilePanel(found, graph=graph)
    assert (colors := graph._colors()) is not None
    assert colors.label == "seconds"
    graph.set_state({"view": {"color": "parameters"}})  # as the bar does
    assert (colors := graph._colors()) is not None
    assert colors.label == "parameters"
    panel.graph = None
    assert graph.view == {"color": "parameters"}
    panel.graph = graph
    assert graph.view == {}
    panel.graph = None
    assert graph._colors() is None


def test_a_profile_displays_as_its_panel_with_a_table(found: Profile, tmp_path: Path) -> None:
    panel: Any = widget_of(found)
    assert isinstance(panel, ProfilePanel)
    assert "<table>" in panel._still
    assert html.escape(found.message.split(";")[0]) in panel._still
    page = onnx_nb.report(tmp_path / "report.html", {"Time": found, "Changes": found.compare(found)}).read_text()
    assert '"kind": "profile"' in page
    assert panel.to_html(tmp_path / "page.html").stat().st_size > 300_000
    loaded = Profile.load(found.save(tmp_path / "saved.json"), found.model)
    assert part(ProfilePanel(loaded)).meta["pair"] is False
    with pytest.raises(OnnxNbError, match="was loaded"):
        ProfilePanel(loaded)._part("differences")


def test_changes_are_listed_with_their_noise(found: Profile) -> None:
    other = profile(models.detection(), runs=2, warmup=0, threads=1, optimization="off")
    panel = ProfilePanel(found.compare(other))
    packed = part(panel)
    assert panel.compared is not None
    assert packed.meta["compared"] is True
    assert packed.texts("change_verdict") == [change.verdict for change in panel.compared.changes]
    assert packed.arrays["change_noise"].tolist() == [change.noise for change in panel.compared.changes]
    assert panel.profile is other


def test_the_curve_of_memory_is_that_of_the_costs_at_the_shapes_that_ran(found: Profile) -> None:
    packed, memory = part(ProfilePanel(found), "resources"), onnx_nb.costs(found.model, found.shapes).memory
    assert packed.arrays["step_bytes"].tolist() == memory.alive.tolist()
    assert packed.arrays["step_bytes"].max() == memory.peak
    for node, kernel in zip(memory.order.tolist(), packed.arrays["step_kernel"].tolist(), strict=True):
        assert (node in found.kernels[kernel].nodes) if kernel >= 0 else all(node not in k.nodes for k in found.kernels)
    held = zip(packed.texts("tensor"), packed.arrays["held_bytes"].tolist(), strict=True)
    assert list(held) == [(each.tensor, each.nbytes) for each in memory.alive_at_peak]
    assert tuple(packed.meta["speeds"]) == found.peak


def test_a_tensor_that_is_alive_at_the_peak_is_selected_in_the_graph(found: Profile) -> None:
    graph = ModelGraph(found.model)
    panel = ProfilePanel(found, graph=graph)
    name = next(each.tensor for each in found.costs.memory.alive_at_peak)
    panel.selection = [{"kind": "tensor", "name": name}]
    assert graph.selection[0]["name"] == panel.selection[0]["name"] == name
    maker = found.graph.producer[found.graph.value_names.index(name)]
    assert maker in found.kernels[panel.kernel].nodes
    panel.kernel = next(n for n, kernel in enumerate(found.kernels) if kernel.nodes and n != panel.kernel)
    assert [each["kind"] for each in panel.selection] == ["node"] * len(found.kernels[panel.kernel].nodes)
    assert graph.selection == panel.selection
