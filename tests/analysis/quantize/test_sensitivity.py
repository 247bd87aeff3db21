"""The effect of each layer against models that onnxruntime runs, and where the time of kernels goes."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import onnx_nb
from onnx_nb.analysis.quantize import sensitivity as module
from tests import models


@pytest.fixture(scope="module")
def comparison() -> onnx_nb.types.Comparison:
    source = models.exported("bert", dynamo=True)
    return onnx_nb.compare(source, models.transformed("bert", "qdq"), onnx_nb.random_feeds(source, 0))


def noise(comparison: onnx_nb.types.Comparison, nodes: list[str]) -> float:
    """Return the SQNR of the worst output in dB of the model with some nodes in float."""
    assert comparison.models is not None
    right = onnx_nb.run(comparison.models[0], comparison.feed, optimize=False)
    mixed = onnx_nb.run(onnx_nb.mixed(comparison, nodes), comparison.feed, optimize=False)
    with np.errstate(divide="ignore"):  # all in float
        ratios = [np.linalg.norm(right[name]) / np.linalg.norm(right[name] - mixed[name]) for name in right]
    return float(20 * np.log10(min(ratios)))


def test_each_layer_alone_and_in_float_is_what_mixed_models_compute(comparison: onnx_nb.types.Comparison) -> None:
    found = onnx_nb.sensitivity(comparison)
    everything = {name for effect in found.layers for name in effect.nodes}
    assert len(found.layers) > 20
    assert {"encoder.layer.0.attention.self.query"} <= {effect.layer.replace("/", ".") for effect in found.layers}
    quantized = noise(comparison, [])
    assert found.front.steps[0].sqnr == pytest.approx(quantized, abs=0.01)
    assert len(found.front.steps) == 1  # nothing was timed
    for effect in found.layers[:: len(found.layers) // 4]:
        assert effect.gain == pytest.approx(noise(comparison, [*effect.nodes]) - quantized, abs=0.01)
        others = noise(comparison, sorted(everything - {*effect.nodes}))
        assert effect.alone == pytest.approx(others, abs=0.01)
        assert np.isnan(effect.seconds)
    gains = [effect.gain for effect in found.layers]
    assert gains == sorted(gains, reverse=True)
    assert found.rows()[0]["layer"] == found.layers[0].layer


def test_the_best_choices_have_what_their_models_compute(comparison: onnx_nb.types.Comparison) -> None:
    found = onnx_nb.sensitivity(comparison, timed=True)
    steps = found.front.steps
    assert (steps[0].name, steps[0].seconds) == ("", 0.0)
    assert len(steps) > 1
    for count, step in enumerate(steps[1:], 1):
        # with all in float what is left are biases of 32 bits, which `mixed` puts back too
        assert min(step.sqnr, 120) == pytest.approx(min(noise(comparison, found.front.nodes(count)), 120), abs=0.01)
    # each choice after another is better, and costs more
    assert [step.sqnr for step in steps] == sorted(step.sqnr for step in steps)
    assert [step.seconds for step in steps[1:]] == sorted(step.seconds for step in steps[1:])
    first = found.layers[0]
    assert first.layer in found.message
    assert ("saves" if first.seconds < 0 else "costs") in found.message
    layers, choices = found._still().tables
    assert (len(layers.rows), len(choices.rows)) == (len(found.layers), len(steps))


def test_every_kernel_of_a_quantized_model_counts_for_a_node_of_the_float_model(
    comparison: onnx_nb.types.Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = []
    measured = onnx_nb.profile

    def profile(*args: object, **kwargs: object) -> onnx_nb.types.Profile:
        profiles.append(measured(*args, **kwargs))  # type: ignore[arg-type]
        return profiles[-1]

    monkeypatch.setattr("onnx_nb.analysis.profile.profile.profile", profile)
    assert comparison.models is not None
    names = {node.name for node in comparison.models[0].proto.graph.node}
    for model in comparison.models:
        seconds = module._seconds(model, names, comparison.feed, None)
        kernels = [kernel for kernel in profiles[-1].kernels if kernel.nodes]
        assert sum(seconds.values()) == pytest.approx(sum(kernel.median for kernel in kernels), rel=0.02)
        assert seconds.keys() <= names


def test_what_is_not_quantized_is_refused() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) { [exp] h = Exp(x)  y = Tanh(h) }""")
    with pytest.raises(onnx_nb.OnnxNbError, match="no pairs of QuantizeLinear and DequantizeLinear"):
        onnx_nb.sensitivity(onnx_nb.compare(model, model))


def _pair(body: str) -> onnx_nb.types.Comparison:
    """Return the comparison of two functions with a copy whose first result is rounded, on values that lose nothing."""
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)'
    exact = onnx.parser.parse_model(f"{head} {{ [exp] h = Exp(x)  [tanh] y = Tanh(h) }}")
    rough = onnx.parser.parse_model(f"{head} <float s = {{0.5}}, int8 z = {{0}}> {{ {body} }}")
    return onnx_nb.compare(exact, rough, {"x": np.zeros(2, np.float32)})


def test_tensors_of_other_names_are_refused_with_what_to_do() -> None:
    renamed = "e = Exp(x)  q = QuantizeLinear(e, s, z)  d = DequantizeLinear(q, s, z)  y = Tanh(d)"
    with pytest.raises(onnx_nb.OnnxNbError, match="need the names that they had"):
        onnx_nb.sensitivity(_pair(renamed))


def test_where_nothing_is_lost_nothing_is_gained() -> None:
    body = "[exp] h = Exp(x)  q = QuantizeLinear(h, s, z)  d = DequantizeLinear(q, s, z)  [tanh] y = Tanh(d)"
    found = onnx_nb.sensitivity(_pair(body))
    assert [(effect.alone, effect.gain) for effect in found.layers] == [(np.inf, 0.0)]
    assert "NaN" not in found.message
