"""Record the profiles of `data`: a model on a provider with memory of its own and on the CPU, and on the CPU alone.

``python -m tests.analysis.profile.record`` needs ``onnxruntime-ep-webgpu``, and a GPU or a driver that computes on the
CPU, as SwiftShader (``VK_ICD_FILENAMES=…/vk_swiftshader_icd.json``). Sessions and times are real. The copies between
providers are in the graph that onnxruntime writes: that is the truth in ``truth.json``, and its own answer to which
provider has which node. Of an event, only what says nothing of places is left out, to keep the files small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx.parser
import onnxruntime

DATA: Final = Path(__file__).parent / "data"
RUNS: Final = 20
MODEL: Final = """<ir_version: 8, opset_import: ["": 17]>
 g (float[n, 4] x, bool yes) => (int64[2, m] i, float[n, 4] z, int64[2] t, float[n, 4] b) {
   [mm] a = MatMul(x, w)  [nz] i = NonZero(a)  [relu] r = Relu(a)  [nan] u = IsNaN(r)  [where] v = Where(u, a, r)
   [sin] s = Sin(x)  [hard] h = Hardmax(s)  [add] p = Add(h, v)  [nan_x] ux = IsNaN(x)  [where_x] z = Where(ux, x, p)
   [sh] q = Shape(a)  [double] t = Add(q, q)
   [if] b = If(yes) <
     then_branch = yes_body () => (float[n, 4] b1) { [exp] e = Exp(p) [hard_e] k = Hardmax(e) [sum] b1 = Add(k, p) },
     else_branch = no_body () => (float[n, 4] b2) { [neg] b2 = Neg(p) }> }"""
KEPT: Final = ("op_name", "provider", "node_index", "input_type_shape", "output_type_shape")


def model() -> onnx.ModelProto:
    """Return the model: of both providers' nodes, with tensors of equal shape between them, and an If."""
    proto = onnx.parser.parse_model(MODEL)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    return proto


def copies(graph: onnx.GraphProto, inside: str = "") -> list[dict[str, str]]:
    """Return the copies of an optimized graph: name, operator, node whose body it is in, and tensor."""
    found = []
    for node in graph.node:
        if node.op_type in ("MemcpyToHost", "MemcpyFromHost"):
            edge = (node.output if node.op_type == "MemcpyToHost" else node.input)[0]
            found.append({"name": node.name, "op": node.op_type, "inside": inside, "edge": edge})
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += copies(attribute.g, node.name)
    return found


def record(devices: Any, target: Path) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Profile the model, and return its copies and the provider of each node of the main graph."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(target.with_suffix(""))
    options.optimized_model_filepath = str(target.with_suffix(".onnx"))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if devices:
        options.add_provider_for_devices(devices, {})
    session = onnxruntime.InferenceSession(model().SerializeToString(), options)
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    for _ in range(RUNS):
        session.run(None, {"x": x, "yes": np.asarray(True)})
    file = Path(session.end_profiling())
    events = json.loads(file.read_text())
    for event in events:
        event["args"] = {name: value for name, value in event["args"].items() if name in KEPT}
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events if event["cat"] != "Api")
    target.write_text(f"[\n{lines}\n]")
    found = copies(onnx.load(options.optimized_model_filepath).graph)
    Path(options.optimized_model_filepath).unlink()
    file.unlink()
    groups = session.get_provider_graph_assignment_info()
    return found, {node.name: group.ep_name for group in groups for node in group.get_nodes()}


def main() -> None:
    """Record both."""
    import onnxruntime_ep_webgpu

    onnxruntime.register_execution_provider_library("webgpu", onnxruntime_ep_webgpu.get_library_path())
    devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == onnxruntime_ep_webgpu.get_ep_name()]
    if not devices:
        raise SystemExit("WebGPU finds no device here: see the first lines of this file.")
    found, providers = record(devices, DATA / "webgpu_and_cpu.json")
    record([], DATA / "cpu.json")
    (DATA / "truth.json").write_text(json.dumps({"copies": found, "providers": providers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
