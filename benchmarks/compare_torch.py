"""A torch module against its export: `onnx_nb.compare_torch` against torch's own verification, and just running both.

``python -m benchmarks.compare_torch [bert bert-small resnet50]``. torch's ``verify_onnx_program`` with
``compare_intermediates=True`` makes a session for every value, which takes minutes.

Our points are tensors that a run makes, modules' and by ``drill("")`` all operations', each with its cumulative and its
isolated error, and weights against parameters, which torch does not look at; "with drill and weights" is the CPU time
of all three. Histograms of a small model's points are excluded: they are computed on request.
"""

from __future__ import annotations

from benchmarks.measuring import Limit, Report, Way, command_line, measured

MODELS = {
    # name: code that makes module and kwargs, limit of the time relative to running both, of the CPU time to torch's
    "bert": ("from tests import modules; module, kwargs = modules.fresh('bert')", 3.0, 1 / 100),
    "bert-small": (
        """
config = transformers.BertConfig(
    vocab_size=30522, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048)
tokens = torch.randint(0, config.vocab_size, (1, 128))
module = transformers.BertModel(config).eval()
kwargs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
""",
        3.0,
        1 / 100,
    ),
    "resnet50": (
        """
module = transformers.ResNetForImageClassification(transformers.ResNetConfig()).eval()
kwargs = {"pixel_values": torch.randn(1, 3, 224, 224)}
""",
        None,
        1 / 30,
    ),
}
"""BERT of the tests (four layers, 48 wide), BERT-Small in its published size, and ResNet-50, with random weights."""
SETUP = """
import logging, warnings
import onnxruntime, torch, transformers
import onnx_nb
from onnx_nb.analysis.pytorch.align import feeds_of
from torch.onnx.verification import verify_onnx_program
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
torch.manual_seed(0)
{make}
program = torch.onnx.export(module, (), kwargs=kwargs, dynamo=True, verbose=False)
data = program.model_proto.SerializeToString()
feeds = feeds_of(onnx_nb.record(module, (), kwargs), onnx_nb.load(data))

def plain():
    with torch.no_grad():
        module(**kwargs)
    onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)

def compared():
    return onnx_nb.compare_torch(module, (), kwargs, model=onnx_nb.load(data))

def everything():
    made = compared()
    parts = made, made.drill(""), made.weights()
    tensors = {{point.candidate for each in parts[:2] for point in each.points}}
    return {{"points": len(tensors) + len(parts[2])}}

def verified():
    return {{"points": len(verify_onnx_program(program, compare_intermediates=True))}}
"""


def main() -> int:
    """Measure what was asked for; 1 if a limit is missed."""
    names, flags = command_line(__doc__, MODELS, quick="without torch's own verification")
    report = Report(__spec__.name, __doc__)
    for name in names:
        make, times, part = MODELS[name]
        setup = SETUP.format(make=make)
        ways = {"onnx_nb": Way("compared()", setup, 9), "torch and a session": Way("plain()", setup, 9)}
        limits = [] if times is None else [Limit("wall", times, "torch and a session")]
        report.compare(name, measured(ways, rounds=3), limits)
        whole = {"onnx_nb": Way("more.update(everything())", setup, 5)}
        if not flags.quick:
            whole["verify_onnx_program"] = Way("more.update(verified())", setup)
        found = measured(whole, rounds=1)
        limits = [] if flags.quick else [Limit("cpu", part, "verify_onnx_program")]
        report.compare(f"{name}, with drill and weights", found, limits)
        if not flags.quick:
            points = [each.median("points") for each in found.values()]
            report.row(
                f"{name}, points",
                dict(zip(found, map("{:,.0f}".format, points), strict=True)),
                "more than torch verifies",
                holds=points[0] > points[1],
            )
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
