"""torch against a package of fused nodes: the module's arguments are enough, and every layer is where it belongs.

The norm of a layer computes the sum that the layer before it returns, and one node is all of an attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import onnx_nb
from onnx_nb.analysis.pytorch.side import feeds_of
from tests.analysis.generate import packages
from tests.analysis.generate.conftest import LAYERS
from tests.analysis.generate.test_compare_decoding import FAULTS, IDS

if TYPE_CHECKING:
    from pathlib import Path

    from onnx_nb.types import Point

torch = pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
PLACES = {
    "window": "model.layers.1.self_attn",
    "scale": "model.layers.2.self_attn",
    "rotary base": "model.layers.0.self_attn",
    "epsilon": "model.layers.2.input_layernorm",
    "mlp": "model.layers.1.mlp.down_proj",
    "output": "model.layers.0.self_attn.o_proj",
    "head": "lm_head",
}


def isolated(point: Point) -> float:
    """Return the isolated error of a point, relative to the norm; 0 if it has none."""
    return 0.0 if point.isolated is None else point.isolated.rel_l2


def test_a_package_needs_no_feeds_and_is_sound(sound: onnx.ModelProto, module: Any, tmp_path: Path) -> None:
    c = onnx_nb.compare_torch(module, torch.tensor([IDS]), model=packages.write(tmp_path, sound))
    assert c.first_divergent() is None
    tensors = {point.name: point.candidate for point in c.points}
    for layer in range(LAYERS):
        name, node = f"model.layers.{layer}", f"/model/layers.{layer}"
        assert tensors[f"{name}.post_attention_layernorm"] == f"{node}/post_attention_layernorm/output_0"
        assert tensors[f"{name} → add()"] == f"{node}/post_attention_layernorm/output_3"
        assert f"{node}/attn/GroupQueryAttention/output_0" in tensors.values()
        if layer < LAYERS - 1:  # the last sum stays inside the last norm
            assert tensors[name] == f"/model/layers.{layer + 1}/input_layernorm/output_3"
            assert isolated(c[name]) < 1e-6
    (last,) = (rest for rest in c.unmatched if rest.name == f"model.layers.{LAYERS - 1}")
    assert "fused with the next operator" in last.reason


def test_submodules_may_be_named_in_metadata_alone(sound: onnx.ModelProto, module: Any) -> None:
    """As in packages of mobius, whose fused nodes are called "node_…"."""
    renamed = onnx.ModelProto()
    renamed.CopyFrom(sound)
    for number, node in enumerate(renamed.graph.node):
        scopes = node.name.split("/")[:-1] or [""]
        node.metadata_props.add(key="pkg.onnxscript.name_scopes", value=repr(scopes))
        node.name = f"node_{number}"
    first, second = (onnx_nb.compare_torch(module, torch.tensor([IDS]), model=model) for model in (sound, renamed))
    assert second.first_divergent() is None
    assert [(p.name, p.candidate) for p in second.points] == [(p.name, p.candidate) for p in first.points]


def test_four_bits_are_paired_as_float_is_and_raise_no_alarm(sound: onnx.ModelProto, module: Any) -> None:
    models = sound, packages.four_bits(sound)
    first, second = (onnx_nb.compare_torch(module, torch.tensor([IDS]), model=model) for model in models)
    assert second.first_divergent() is None
    names = {point.name: point.candidate.removesuffix("_Q4") for point in second.points}
    assert names == {point.name: point.candidate for point in first.points}
    assert all(isolated(point) < 0.3 for point in second.points)
    assert any(isolated(point) > 0.03 for point in second.points), "four bits are seen"


@pytest.mark.parametrize("name", PLACES)
def test_a_fault_in_a_fused_node_is_named_where_it_is(name: str, sound: onnx.ModelProto, module: Any) -> None:
    wrong = onnx.ModelProto()
    wrong.CopyFrom(sound)
    FAULTS[name][0](wrong)
    c = onnx_nb.compare_torch(module, torch.tensor([IDS]), model=wrong)
    first = c.first_divergent()
    assert first is not None
    assert PLACES[name] in (first.name, first.scope, *first.inside), c.message
    others = [point for point in c.points if point is not first and point.scope]
    assert max(map(isolated, others)) < 1e-3 * isolated(first)


def test_rows_with_padding_keep_their_mask(sound: onnx.ModelProto, module: Any) -> None:
    ids, mask = torch.tensor([IDS, IDS[::-1]]), torch.ones(2, len(IDS), dtype=torch.long)
    mask[1, -5:] = 0
    recording = onnx_nb.record(module, (ids,), {"attention_mask": mask})
    assert onnx_nb.align(recording, sound)["model.layers.0"].tensor == "/model/layers.1/input_layernorm/output_3"
    c = onnx_nb.compare_torch(module, ids, {"attention_mask": mask}, model=sound)
    right = onnx_nb.run(sound, feeds_of(recording, onnx_nb.load(sound)), outputs=["/model/layers.0/mlp/Mul/y"])
    point = c["model.layers.0.mlp → mul()"]
    assert point.cumulative is not None
    assert point.cumulative.max_abs < 1e-5
    assert np.isfinite(right["/model/layers.0/mlp/Mul/y"]).all()
