"""Memory by liveness, compared with what onnxruntime allocates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from onnx_nb import costs, load, random_feeds, summarize
from onnx_nb.analysis.graph.operators import names_where
from tests import models
from tests.analysis.generate import packages


def allocated(path: Path, folder: Path) -> tuple[int, dict[str, tuple[int, ...]]]:
    """Return the most bytes of values that onnxruntime has at once without its plan of reuse, and the shapes fed."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = options.enable_mem_reuse = False
    options.intra_op_num_threads = 1
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "memory")
    session = onnxruntime.InferenceSession(path, options)
    feeds = random_feeds(load(path))
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [event["args"] for event in events if event["cat"] == "Node"]
    used = [int(kernel["mem_bytes_requested_in_use"]) for kernel in kernels]
    before = used[0] - int(kernels[0]["mem_requested_in_use_delta"])  # packed weights
    return max(used) - before, {name: value.shape for name, value in feeds.items()}


@pytest.mark.parametrize(
    ("name", "dynamo", "small"),
    [
        *[("bert", dynamo, True) for dynamo in (True, False)],
        *[
            pytest.param(name, dynamo, True, marks=[pytest.mark.slow, pytest.mark.rare])
            for name in ("vit", "whisper", "swin")
            for dynamo in (True, False)
        ],
        pytest.param("resnet50", True, False, marks=pytest.mark.slow),
        pytest.param("segformer", False, False, marks=pytest.mark.slow),
    ],
)
def test_the_peak_is_what_onnxruntime_allocates(name: str, dynamo: bool, small: bool, tmp_path: Path) -> None:
    path = models.exported(name, dynamo=dynamo, small=small)
    peak, shapes = allocated(path, tmp_path)
    found = costs(path, shapes).memory
    assert found.unknown == 0
    assert found.peak == peak


def test_the_peak_of_a_model_with_unknown_sizes_is_that_of_those_that_are_known(tmp_path: Path) -> None:
    peak, shapes = allocated(models.detection(), tmp_path)
    found = costs(models.detection(), shapes).memory
    assert found.unknown == 3  # of what NonMaxSuppression finds
    assert (found.peak, peak) == (12_288, 12_288)


@pytest.mark.parametrize(
    "op", [*sorted(names_where("in_place") - {"ScatterElements"}), "Exp", "Neg", "Abs", "Erf", "Hardmax"]
)
def test_outputs_that_onnxruntime_writes_over_inputs_are_counted_so(op: str, tmp_path: Path) -> None:
    node, dtype = f"{op} <to = 6>" if op == "Cast" else op, "int32" if op == "Cast" else "float"
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[8, 9] x) => ({dtype}[1, 1] z) {{
            a = Transpose(x)  b = {node} (a)  c = {node} (b)  z = ReduceMax(c) }}""")
    onnx.save(proto, path := tmp_path / "model.onnx")
    peak, shapes = allocated(path, tmp_path)
    size = 8 * 9 * 4
    assert costs(path, shapes).memory.peak == peak == (size + 4 if op in names_where("in_place") else 2 * size)


CHAIN = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 10] x, bool c) => (float[m] z) <float[10, 10] w = {%s}, int64[1] shape = {-1}> {
        a = MatMul(x, w)  b = Relu(a)  s = Add(b, a)  q = Neg(s)
        p = Reshape(q, shape)
        [if] z = If(c) <
            then_branch = yes () => (float[m] t) { u = Exp(p)  v = Abs(u)  t = Neg(v) },
            else_branch = no () => (float[m] e) { e = Neg(p) }>
    }"""


def test_liveness_of_a_chain_counted_by_hand() -> None:
    model = onnx.parser.parse_model(CHAIN % ", ".join(["1"] * 100))
    found = costs(model, {"n": 5})
    size = 5 * 10 * 4
    # a; a, b; a, b, s; s, q; the view p is q
    assert found.memory.alive.tolist()[:5] == [size, 2 * size, 3 * size, 2 * size, size]
    assert found.memory.input_bytes == size + 1
    assert found.memory.weight_bytes == 400 + 8
    # p, z, and of u, v and t two at a time
    assert found.memory.alive[5] == 4 * size
    assert found.memory.peak == max(found.memory.alive)
    assert sum(each.nbytes for each in found.memory.alive_at_peak) <= found.memory.peak


def test_an_unknown_size_makes_the_peak_a_lower_bound() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] z) { y = Relu(x)  z = Neg(y) }'
    )
    found = costs(model)
    assert found.memory.unknown == 3
    assert repr(found.memory) == "Memory(≥ 0 B at its peak, 0 B of weights, 0 B of inputs)"
    assert repr(costs(model, {"n": 250}).memory) == "Memory(2.0 kB at its peak, 0 B of weights, 1.0 kB of inputs)"


def test_the_bytes_of_a_cache_are_those_of_its_arrays() -> None:
    past = ", ".join(
        f"{dtype}[batch, {heads}, past_length, 64] past_key_values_{layer}_{kind}"
        for layer, dtype, heads in ((0, "float16", 8), (1, "float", 2))
        for kind in ("key", "value")
    )
    cross = "float[batch, 4, encoder_length, 32] past_key_values_0_encoder_key"
    other = "int64[batch, past_length] past_mask, float[batch, 3, past_length, 5] image, int64[n] cache_position"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({past}, {cross}, {other}) => (float[n] z)'
        "{ z = Cast<to = 1>(cache_position) }"
    )
    own, encoder = costs(model, {"batch": 3}).caches
    assert (own.length, encoder.length) == ("past_length", "encoder_length")
    assert encoder.inputs == ("past_key_values_0_encoder_key",)
    for tokens in (1, 77, 512):
        arrays = [np.zeros((3, 8, tokens, 64), np.float16)] * 2 + [np.zeros((3, 2, tokens, 64), np.float32)] * 2
        assert own.nbytes(tokens) == sum(array.nbytes for array in arrays)
        assert encoder.nbytes(tokens) == np.zeros((3, 4, tokens, 32), np.float32).nbytes
    assert own.counted_as_one == ()
    assert costs(model).caches[0].counted_as_one == ("batch",)
    assert own.nbytes(512) == 3 * costs(model, {"past_length": 9}).caches[0].rows()[1]["nbytes"]
    assert repr(own) == "Cache(9.2 kB for each token of 'past_length', 4 inputs)"
    assert summarize(model, {"batch": 3}).caches == (own, encoder)


def test_a_model_without_past_has_no_cache() -> None:
    assert costs(onnx.parser.parse_model(CHAIN % ", ".join(["1"] * 100))).caches == ()


def test_a_head_size_that_only_the_attention_knows() -> None:
    """As onnxruntime-genai's builder declares caches: the last axis is a symbol."""
    model = packages.decoder(2)
    (cache,) = costs(model).caches
    assert cache.length == "past_sequence_length"
    assert cache.bytes_per_token == 2 * 2 * packages.KV_HEADS * packages.HEAD * 4
    # a window has as many slots after a step as before it
    window = packages.decoder(2, window=8)
    shapes = {"batch_size": 1, "sequence_length": 1, "total_sequence_length": 9, "past_sequence_length": 8}
    shapes |= {"past_sliding_length": 8, "kv_cache_dim": packages.HEAD}
    assert costs(window, shapes).unknown == ()


def test_a_message_names_the_node_at_the_peak_if_it_has_a_name() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[250] x) => (float[250] z) { y = Relu(x)  z = Neg(y) }'
    )
    assert costs(model).memory.message == "Peak 2.0 kB in 2 tensors"
    model.graph.node[1].name = "last"
    assert costs(model).memory.message == "Peak 2.0 kB in 2 tensors while 'last' runs"
