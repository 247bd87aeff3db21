"""Two models, tensor by tensor: `onnx_nb.compare` against keeping all values of both runs and numpy.

``python -m benchmarks.comparison``: ResNet-50, a batch of 4, against its float16 and its quantized version. Then BERT
against its quantized version: the whole comparison against one run of each side with all values as outputs and one more
session; and the CPU seconds of its regions, each by itself, against those of a session for each region that holds
nothing else, and of a session for each layer that runs the whole model with only this layer quantized, as vendors'
tools do. Making those models is not counted.
"""

from __future__ import annotations

from benchmarks.arrays import SETUP
from benchmarks.measuring import Limit, Report, Way, measured
from tests import models

BATCH = 4
FEEDS = (
    SETUP
    + """
import onnx, onnxruntime
from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.run.random_feeds import random_feeds
feeds = random_feeds(paths[0], shapes={"batch": batch})

options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
# threads that wait for work without computing would count as CPU time, and ours do not
options.add_session_config_entry("session.intra_op.allow_spinning", "0")

def all_values(path):
    proto = onnx.load(path)
    there = {output.name for output in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output if name and name not in there]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [output.name for output in session.get_outputs()]
    return dict(zip(wanted, session.run(wanted, feeds), strict=True))

def keep_all():
    mine, yours = map(all_values, paths)
    for name in mine.keys() & yours.keys():
        if mine[name].shape == yours[name].shape and mine[name].dtype.kind == "f":
            errors_by_numpy(mine[name].ravel(), yours[name].ravel())
"""
)
EACH = (
    FEEDS
    + """
import time
from onnx_nb.analysis.compare import engine
from onnx_nb.analysis.quantize.mixed import Mixer
from onnx_nb.analysis.model.model import load

def timed(function):
    def run(*given, **options):
        began = time.process_time()
        found = function(*given, **options)
        more["regions"] = time.process_time() - began
        return found
    return run

engine.isolated_errors = timed(engine.isolated_errors)

@timed
def a_session_each():
    values, proto = all_values(paths[0]), onnx.load(paths[1])
    maker = {name: node for node in proto.graph.node for name in node.output}
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    place = {id(node): number for number, node in enumerate(proto.graph.node)}
    known = {name: array for name, array in values.items() if name in maker} | feeds
    known |= {f"{name}_DequantizeLinear_Output": array for name, array in known.items()}
    ends = [name for name in known if name in maker]
    for end in ends:
        nodes, read, todo = {}, {}, [end]
        while todo:
            node = maker[todo.pop()]
            if id(node) not in nodes:
                nodes[id(node)] = node
                read |= {name: known[name] for name in node.input if name in known}
                todo += [name for name in node.input if name in maker and name not in known]
        graph = onnx.helper.make_graph(
            sorted(nodes.values(), key=lambda node: place[id(node)]), "region",
            [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
             for name, array in read.items()],
            [onnx.ValueInfoProto(name=end)],
            [weights[name] for name in {each for node in nodes.values() for each in node.input} & weights.keys()])
        region = onnx.helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
        session = onnxruntime.InferenceSession(
            region.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run([end], read)[0]
        if found.dtype.kind == "f":
            errors_by_numpy(known[end].ravel(), found.ravel())

@timed
def run_each(protos, expected):
    for proto in protos:
        session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
        for mine, yours in zip(expected, session.run(None, feeds), strict=True):
            errors_by_numpy(mine.ravel(), yours.ravel())

def a_whole_model_each():
    mixer = Mixer(*map(load, paths))
    layers = sorted({mixer.completed({name}) for name in mixer.nodes}, key=sorted)
    protos = [mixer.mixed(mixer.nodes.keys() - layer).to_proto().SerializeToString() for layer in layers]
    session = onnxruntime.InferenceSession(paths[0], options, providers=["CPUExecutionProvider"])
    run_each(protos, session.run(None, feeds))
"""
)
REGIONS = {
    "onnx_nb": Way("compare(*paths, feeds)", EACH, 2),
    "each side once": Way("keep_all(); all_values(paths[1])", EACH, 2),
    "a session each": Way("a_session_each()", EACH),
    "a whole model each": Way("a_whole_model_each()", EACH),
}
WAYS = {"onnx_nb": Way("compare(*paths, feeds)", FEEDS), "keeping all": Way("keep_all()", FEEDS)}


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    for kind in ("fp16", "qdq"):
        paths = models.exported("resnet50", dynamo=True), models.transformed("resnet50", kind)
        given = {"paths": [*map(str, paths)], "batch": BATCH, "count": 1, "dtype": "float32"}
        limits = [Limit("memory", 1, "keeping all")]
        report.compare(f"ResNet-50 against {kind}, a batch of {BATCH}", measured(WAYS, given, rounds=3), limits)
    pair = models.exported("bert", dynamo=True), models.transformed("bert", "qdq")
    given = {"paths": [*map(str, pair)], "batch": 1, "count": 1, "dtype": "float32"}
    limits = [Limit("cpu", 5, "each side once"), Limit("regions", 1 / 20, "a whole model each")]
    report.compare("BERT against qdq, each region by itself", measured(REGIONS, given, rounds=3), limits)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
