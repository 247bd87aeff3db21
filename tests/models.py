"""Models for tests, notebooks and benchmarks, made on demand and cached under build/models.

Nothing is downloaded: the light models come with the installed onnx package, the real architectures are built from
their transformers configuration with seeded random weights and exported by both of torch's exporters, the rest is
made of onnx.helper calls. Every function returns the path of a finished file.

``python -m tests.models`` makes all of them and prints what they are.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests import architectures
from tests.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "models"
# raise it when a recipe below changes: a cached file is never checked against its recipe
RECIPES = 2
CACHE = FOLDER / f"r{RECIPES}-onnx-{onnx.__version__}"

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
EXPORTED = ("resnet50", "bert", "llama")
EXPORTABLE = (*EXPORTED, "segformer", "vit")
"""With what few tests ask for."""
MEASURED = ("llama-32", *(name for name in EXPORTABLE if name != "llama"))
"""What benchmarks measure: the Llama has twice as many layers, and its export takes four times as long."""


def light(name: str) -> Path:
    """One of the onnx package's own models: IR 3, flat names, weights that a ConstantOfShape generates."""
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    if not path.exists():
        raise FileNotFoundError(f"the installed onnx {onnx.__version__} has no light model {name!r}; it has {LIGHT}")
    return path


def exported(name: str, *, dynamo: bool, small: bool = False, dynamic: bool = True) -> Path:
    """A model of `EXPORTABLE` from its transformers configuration; skips the test without torch.

    ``small`` asks for one of the small architectures of `tests.architectures`.
    """
    names = ARCHITECTURES if small else (*EXPORTABLE, *MEASURED)
    if name not in names:
        raise ValueError(f"no recipe {name!r}; there are {names}")
    missing = [package for package in ("torch", "transformers") if importlib.util.find_spec(package) is None]
    if missing:
        import pytest

        pytest.skip(f"{' and '.join(missing)} not installed, needed to export {name}: `make test` installs it")

    def export(path: Path) -> None:
        _apart(_export, name, path, dynamo=dynamo, small=small, dynamic=dynamic)

    versions = f"torch-{importlib.metadata.version('torch')}-transformers-{importlib.metadata.version('transformers')}"
    kind = ("small-" if small else "") + ("" if dynamic else "static-")
    return cached(f"{versions}/{kind}{'dynamo' if dynamo else 'torchscript'}/{name}.onnx", export)


TRANSFORMS = ("fp16", "qdq", "qoperator", "dynamic")


def transformed(name: str, how: str) -> Path:
    """An exported model in float16, or quantized by onnxruntime.

    Static as "qdq" or "qoperator", "dynamic", or only its weights to four bits: for MatMulNBits and
    GatherBlockQuantized ("nbits"), or for DequantizeLinear ("blocks").
    """
    source = exported(name, dynamo=True)

    def transform(path: Path) -> None:
        _apart(_transform, how, source, path)

    return cached(f"onnxruntime-{importlib.metadata.version('onnxruntime')}/{name}-{how}.onnx", transform)


def chain(nodes: int, *, named: bool = True) -> Path:
    """Transformer blocks one after another, `nodes` nodes in all, each weight a few dozen bytes.

    Without names, neither nodes nor weights show any scopes, as in a file that a converter wrote.
    """
    name = f"chain-{nodes}.onnx" if named else f"chain-{nodes}-unnamed.onnx"
    return cached(name, lambda path: onnx.save(_chain(nodes, named=named), path))


def experts(layers: int, experts: int) -> Path:
    """Layers of gated experts in parallel, six nodes each: a graph as wide as it is long."""
    return cached(f"experts-{layers}-{experts}.onnx", lambda path: onnx.save(_experts(layers, experts), path))


def control_flow() -> Path:
    """If, Loop and Scan with subgraphs that read outer-scope values, and an If inside the Loop."""
    return cached("control_flow.onnx", lambda path: onnx.save(_control_flow(), path))


def detection() -> Path:
    """A small detector: a convolutional backbone, two heads, NonMaxSuppression, an If with a Loop and an If inside."""
    return cached("detection.onnx", lambda path: onnx.save(_detection(), path))


def functions() -> Path:
    """Two model-local functions; one calls the other, and both are called twice."""
    return cached("functions.onnx", lambda path: onnx.save(_functions(), path))


def one_node() -> Path:
    """A model of one Relu."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], "relu")], "one", [_float("x", 2)], [_float("y", 2)]
    )
    return cached("one_node.onnx", lambda path: onnx.save(_model(graph), path))


def empty() -> Path:
    """A valid file whose graph has no nodes, inputs or outputs."""
    return cached("empty.onnx", lambda path: onnx.save(_model(helper.make_graph([], "empty", [], [])), path))


def _apart(make: Callable[..., None], *args: Any, **options: Any) -> None:
    """Call in a process of its own: exporters and quantizers warn, patch torch and keep gigabytes.

    It is forked from one that has imported torch, which takes longer than most exports.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.exporters"])
    with ProcessPoolExecutor(1, mp_context=context) as process:
        process.submit(make, *args, **options).result()


def cached(name: str, build: Callable[[Path], object]) -> Path:
    """Return the cached file of that name; concurrent processes build it only once."""
    path = CACHE / name
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_name(f"{path.stem}.{os.getpid()}.unfinished.onnx")
            try:
                build(unfinished)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
    return path


def _float(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _scalar(value: float, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, np.int64 if isinstance(value, int) else np.float32), name)


def _model(graph: onnx.GraphProto, functions: Sequence[onnx.FunctionProto] = ()) -> onnx.ModelProto:
    opsets = [
        helper.make_opsetid("", 20),
        *(helper.make_opsetid(domain, 1) for domain in {f.domain for f in functions}),
    ]
    model = helper.make_model(
        graph, opset_imports=opsets, functions=functions, producer_name="onnx_nb tests", ir_version=10
    )
    if graph.node:
        onnx.checker.check_model(model)
    return model


def _chain(nodes: int, *, named: bool) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    width = 4
    made: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int) -> str:
        values = random.normal(scale=0.3, size=shape).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name if named else f"onnx::w_{len(weights)}"))
        return weights[-1].name

    def node(scope: str, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{scope}/{op}" if named else ""
        output = f"{name}_output_0" if named else str(len(made))
        made.append(helper.make_node(op, inputs, [output], name, **attributes))
        return output

    def norm(scope: str, x: str) -> str:
        scale, bias = (
            weight(f"{scope[1:]}.weight".replace("/", "."), width),
            weight(f"{scope[1:]}.bias".replace("/", "."), width),
        )
        return node(scope, "LayerNormalization", [x, scale, bias], axis=-1)

    def linear(scope: str, x: str) -> str:
        return node(scope, "MatMul", [x, weight(f"{scope[1:]}.weight".replace("/", "."), width, width)])

    scale = _scalar(width**-0.5, "scale")
    x = "x"
    for layer in range(nodes // 17):
        block = f"/layers.{layer}"
        normed = norm(f"{block}/norm1", x)
        q, k, v = (linear(f"{block}/attn/{name}", normed) for name in "qkv")
        turned = node(f"{block}/attn", "Transpose", [k], perm=[0, 2, 1])
        scaled = node(f"{block}/attn", "Mul", [q, "scale"])
        weighted = node(f"{block}/attn", "Softmax", [node(f"{block}/attn/scores", "MatMul", [scaled, turned])])
        mixed = linear(f"{block}/attn/o", node(f"{block}/attn/mix", "MatMul", [weighted, v]))
        x = node(f"{block}/attn", "Add", [x, mixed])
        widened = linear(f"{block}/mlp/up", norm(f"{block}/norm2", x))
        x = node(f"{block}/mlp", "Add", [x, linear(f"{block}/mlp/down", node(f"{block}/mlp/act", "Gelu", [widened]))])
        x = node(block, "Identity", [x])
    for last in range(nodes - len(made)):
        x = node(f"/head.{last}", "Tanh", [x])
    made[-1].output[0] = "y"
    shape = ("batch", "seq", width)
    return _model(
        helper.make_graph(made, f"chain {nodes}", [_float("x", *shape)], [_float("y", *shape)], [scale, *weights])
    )


def _experts(layers: int, experts: int) -> onnx.ModelProto:
    made: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def node(name: str, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        made.append(helper.make_node(op, inputs, [f"{name}/{op}_output_0"], f"{name}/{op}", **attributes))
        return f"{name}/{op}_output_0"

    def linear(scope: str, x: str) -> str:
        weights.append(numpy_helper.from_array(np.eye(2, dtype=np.float32), f"{scope[1:].replace('/', '.')}.weight"))
        return node(scope, "MatMul", [x, weights[-1].name])

    x = "x"
    for layer in range(layers):
        block = f"/layers.{layer}"
        routed = node(f"{block}/router", "Softmax", [linear(f"{block}/router/gate", x)], axis=-1)
        mixed = []
        for expert in range(experts):
            scope = f"{block}/experts.{expert}"
            opened = node(f"{scope}/act", "Sigmoid", [linear(f"{scope}/gate", x)])
            gated = node(f"{scope}/gated", "Mul", [opened, linear(f"{scope}/up", x)])
            mixed.append(node(scope, "Mul", [linear(f"{scope}/down", gated), routed]))
        x = node(f"{block}/mix", "Sum", [x, *mixed])
    made[-1].output[0] = "y"
    return _model(
        helper.make_graph(made, f"experts {layers}x{experts}", [_float("x", "n", 2)], [_float("y", "n", 2)], weights)
    )


def _control_flow() -> onnx.ModelProto:
    def branch(name: str, op: str) -> onnx.GraphProto:
        out = f"{name}_out"
        # reads "hidden" of the outer graph
        return helper.make_graph(
            [helper.make_node(op, ["hidden", "one"], [out], f"/choose/{name}/{op}")], name, [], [_float(out, 2, 3)]
        )

    choose = helper.make_node(
        "If", ["flag"], ["chosen"], "/choose/If", then_branch=branch("then", "Add"), else_branch=branch("else", "Sub")
    )
    inner = helper.make_node(
        "If",
        ["goes_on"],
        ["grown"],
        "/loop/If",
        then_branch=helper.make_graph(
            [helper.make_node("Mul", ["carried", "two"], ["m"], "/loop/then/Mul")], "grow", [], [_float("m", 2, 3)]
        ),
        else_branch=helper.make_graph(
            [helper.make_node("Identity", ["carried"], ["i"], "/loop/else/Identity")], "keep", [], [_float("i", 2, 3)]
        ),
    )
    body = helper.make_graph(
        [
            inner,
            helper.make_node("Identity", ["goes_on"], ["goes_on_out"], "/loop/Identity"),
            helper.make_node("Add", ["grown", "x"], ["carried_out"], "/loop/Add"),
        ],
        "loop body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            _float("carried", 2, 3),
        ],
        [helper.make_tensor_value_info("goes_on_out", TensorProto.BOOL, []), _float("carried_out", 2, 3)],
    )
    loop = helper.make_node("Loop", ["trips", "", "chosen"], ["looped"], "/loop/Loop", body=body)
    scanned = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "row"], ["sum_out"], "/scan/Add"),
            helper.make_node("Identity", ["sum_out"], ["row_out"], "/scan/Identity"),
        ],
        "scan body",
        [_float("sum_in", 3), _float("row", 3)],
        [_float("sum_out", 3), _float("row_out", 3)],
    )
    scan = helper.make_node(
        "Scan", ["zeros", "looped"], ["total", "sums"], "/scan/Scan", body=scanned, num_scan_inputs=1
    )
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["hidden"], "/Mul"), choose, loop, scan],
        "control flow",
        [_float("x", 2, 3), helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [_float("total", 3), _float("sums", 2, 3)],
        [
            _scalar(1.0, "one"),
            _scalar(2.0, "two"),
            _scalar(3, "trips"),
            numpy_helper.from_array(np.zeros(3, np.float32), "zeros"),
        ],
    )
    return _model(graph)


def _detection() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    made: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def node(name: str, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        made.append(helper.make_node(op, inputs, [f"{name}/{op}_output_0"], f"{name}/{op}", **attributes))
        return f"{name}/{op}_output_0"

    def weight(name: str, array: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def conv(scope: str, x: str, ins: int, outs: int, stride: int) -> str:
        name = scope[1:].replace("/", ".")
        kernel = weight(f"{name}.weight", (random.normal(size=(outs, ins, 3, 3)) / ins).astype(np.float32))
        bias = weight(f"{name}.bias", np.zeros(outs, np.float32))
        return node(scope, "Conv", [x, kernel, bias], kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2)

    x = "image"
    for stage, (ins, outs) in enumerate([(3, 8), (8, 16), (16, 16)]):
        x = node(f"/backbone/stage.{stage}", "Relu", [conv(f"/backbone/stage.{stage}/conv", x, ins, outs, 2)])
    flat = [weight(f"flat.{count}", np.asarray([1, count, -1])) for count in (4, 3)]
    offsets = node("/head/boxes", "Reshape", [conv("/head/boxes/conv", x, 16, 4, 1), flat[0]])
    corners = node("/head/boxes", "Transpose", [offsets], perm=[0, 2, 1])
    raw = node("/head/scores", "Reshape", [conv("/head/scores/conv", x, 16, 3, 1), flat[1]])
    scores = node("/head/scores", "Sigmoid", [raw])
    limits = [
        weight("at_most", np.asarray([5])),
        weight("overlap", np.asarray([0.5], np.float32)),
        weight("at_least", np.asarray([0.3], np.float32)),
    ]
    selected = node("/nms", "NonMaxSuppression", [corners, scores, *limits])
    count = node("/any", "Gather", [node("/any", "Shape", [selected]), weight("first", np.asarray(0))])
    found = node("/any", "Greater", [count, "first"])
    better = helper.make_node(
        "If",
        ["is_better"],
        ["best_out"],
        "/pick/loop/If",
        then_branch=helper.make_graph(
            [helper.make_node("Identity", ["score"], ["kept"], "/pick/loop/then/Identity")],
            "take",
            [],
            [_float("kept")],
        ),
        else_branch=helper.make_graph(
            [helper.make_node("Identity", ["best"], ["same"], "/pick/loop/else/Identity")],
            "leave",
            [],
            [_float("same")],
        ),
    )
    body = helper.make_graph(
        [
            helper.make_node("Gather", [selected, "step"], ["row"], "/pick/loop/row"),
            helper.make_node("GatherND", [scores, "row"], ["score"], "/pick/loop/score"),
            helper.make_node("Greater", ["score", "best"], ["is_better"], "/pick/loop/Greater"),
            better,
            helper.make_node("Identity", ["goes_on"], ["goes_on_out"], "/pick/loop/goes_on"),
        ],
        "look at each",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            _float("best"),
        ],
        [helper.make_tensor_value_info("goes_on_out", TensorProto.BOOL, []), _float("best_out")],
    )
    pick = helper.make_graph(
        [helper.make_node("Loop", [count, "", "nothing"], ["picked"], "/pick/Loop", body=body)],
        "pick the best",
        [],
        [_float("picked")],
    )
    none = helper.make_graph(
        [helper.make_node("Neg", ["one"], ["none"], "/pick/none")], "none found", [], [_float("none")]
    )
    made.append(helper.make_node("If", [found], ["best_score"], "/pick/If", then_branch=pick, else_branch=none))
    made.append(helper.make_node("Identity", [selected], ["selected"], "/out"))
    weights += [_scalar(0.0, "nothing"), _scalar(1.0, "one")]
    outputs = [helper.make_tensor_value_info("selected", TensorProto.INT64, ["found", 3]), _float("best_score")]
    return _model(helper.make_graph(made, "detection", [_float("image", 1, 3, 32, 32)], outputs, weights))


def _functions() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("onnx_nb.tests", 1)]
    scaled = helper.make_function(
        "onnx_nb.tests",
        "Scaled",
        ["x", "factor"],
        ["y"],
        [helper.make_node("Mul", ["x", "factor"], ["y"], "scale")],
        opsets[:1],
    )
    block = helper.make_function(
        "onnx_nb.tests",
        "Block",
        ["x", "weight", "factor"],
        ["y"],
        [
            helper.make_node("MatMul", ["x", "weight"], ["h"], "project"),
            helper.make_node("Scaled", ["h", "factor"], ["s"], "scale", domain="onnx_nb.tests"),
            helper.make_node("Relu", ["s"], ["y"], "act"),
        ],
        opsets,
    )
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.normal(size=(3, 3)).astype(np.float32), f"block.{i}.weight") for i in (0, 1)
    ]
    graph = helper.make_graph(
        [
            helper.make_node("Block", ["x", "block.0.weight", "factor"], ["h"], "/block.0", domain="onnx_nb.tests"),
            helper.make_node("Block", ["h", "block.1.weight", "factor"], ["b"], "/block.1", domain="onnx_nb.tests"),
            helper.make_node("Scaled", ["b", "factor"], ["s"], "/scaled", domain="onnx_nb.tests"),
            helper.make_node("Add", ["s", "x"], ["y"], "/Add"),
        ],
        "functions",
        [_float("x", "rows", 3)],
        [_float("y", "rows", 3)],
        [*weights, _scalar(0.5, "factor")],
    )
    return _model(graph, [scaled, block])


def _export(name: str, path: Path, *, dynamo: bool, small: bool, dynamic: bool) -> None:
    """Export a model in a process that ends with it; see `exported`."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(2)
    module, given, outputs, axes = (architectures.recipe if small else _recipe)(name)
    module.eval()
    options: dict[str, Any]
    if dynamo:
        options = {"args": (), "kwargs": given, "dynamic_shapes": axes if dynamic else None, "external_data": False}
    else:
        first = next(iter(axes.values()))
        axes_of = axes | {name: {0: "batch"} for name in outputs} | dict.fromkeys(outputs[:1], first)
        options = {"args": tuple(given.values()), "dynamic_axes": axes_of if dynamic else None, "opset_version": 18}
        # this exporter fills in every optional argument of the signature, which transformers does not take
        forward = module.forward
        module.forward = lambda *tensors: _tensors(forward(**dict(zip(given, tensors, strict=True))))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, f=path, input_names=list(given), output_names=outputs, dynamo=dynamo, **options)


def _tensors(output: Any) -> tuple[Any, ...]:
    """Return the tensors of what a module of transformers returns."""
    values = output.to_tuple() if hasattr(output, "to_tuple") else output
    return tuple(each for v in values for each in (_tensors(v) if not hasattr(v, "shape") else (v,)))


def _transform(how: str, source: Path, path: Path) -> None:
    """Transform a model in a process that ends with it; see `transformed`."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    from onnx_nb import random_feeds

    if how == "fp16":
        float16: Any = importlib.import_module("onnxruntime.transformers.float16")
        onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), path)
    elif how == "dynamic":
        # it gives up on types of weights that torch's exporter writes
        stripped = onnx.load(source)
        del stripped.graph.value_info[:]
        quantization.quantize_dynamic(stripped, path)
    elif how in ("nbits", "blocks"):
        onnx.save(weight_only(source, how), path)
    else:
        feeds = iter([random_feeds(source, seed) for seed in range(2)])
        reader = type("Reader", (quantization.CalibrationDataReader,), {"get_next": lambda _: next(feeds, None)})()
        formats = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}
        quantization.quantize_static(source, path, reader, quant_format=formats[how])


def weight_only(source: Path, how: str, exclude: Sequence[str] = ()) -> onnx.ModelProto:
    """Return a model with its weights quantized by onnxruntime, apart from those of some nodes; see `transformed`."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    module: Any = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    packed = how == "nbits"
    settings = module.DefaultWeightOnlyQuantConfig(
        block_size=32,
        quant_format=quantization.QuantFormat.QOperator if packed else quantization.QuantFormat.QDQ,
        op_types_to_quantize=("MatMul", "Gather") if packed else ("MatMul",),
    )
    made = module.MatMulNBitsQuantizer(onnx.load(source), nodes_to_exclude=exclude, algo_config=settings)
    with np.errstate(all="ignore"):  # it divides by the scale of a row of zeros
        made.process()
    found: onnx.ModelProto = made.model.model
    return found


def _recipe(name: str) -> tuple[Any, dict[str, Any], list[str], dict[str, dict[int, str]]]:
    """Return module, arguments by name, names of outputs, and the dynamic axes of each argument."""
    import torch

    transformers: Any = importlib.import_module("transformers")
    if name == "resnet50":
        module = transformers.ResNetForImageClassification(transformers.ResNetConfig())
        return module, {"pixel_values": torch.randn(2, 3, 224, 224)}, ["logits"], {"pixel_values": {0: "batch"}}
    if name == "segformer":
        module = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig())
        return module, {"pixel_values": torch.randn(1, 3, 128, 128)}, ["logits"], {"pixel_values": {}}
    if name == "vit":
        sizes = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4, "image_size": 32}
        module = transformers.ViTModel(transformers.ViTConfig(**sizes, patch_size=8, attn_implementation="sdpa"))
        outputs = ["last_hidden_state", "pooler_output"]
        return module, {"pixel_values": torch.randn(2, 3, 32, 32)}, outputs, {"pixel_values": {0: "batch"}}
    small = {"num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 64, "attn_implementation": "sdpa"}
    if name == "bert":
        module = transformers.BertModel(transformers.BertConfig(hidden_size=48, intermediate_size=96, **small))
        outputs = ["last_hidden_state", "pooler_output"]
    else:
        # as many as Llama 3.2 1B has, or Llama 3 8B
        layers = 32 if name == "llama-32" else 16
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": layers, "num_key_value_heads": 2}
        module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **small, use_cache=False))
        outputs = ["logits"]
    tokens = torch.randint(0, 100, (2, 7))
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    return module, given, outputs, {each: {0: "batch", 1: "seq"} for each in given}


def _main() -> None:
    recipes: list[tuple[str, Callable[[], Path]]] = [
        *((f.__name__, f) for f in (one_node, empty, functions, control_flow)),
        *((f"chain of {n:,}", lambda n=n: chain(n)) for n in (10_000, 100_000)),
        *(
            (f"{name}, dynamo={d}", lambda name=name, d=d: exported(name, dynamo=d))
            for name in EXPORTABLE
            for d in (True, False)
        ),
    ]
    for label, recipe in recipes:
        start = time.perf_counter()
        path = recipe()
        seconds = time.perf_counter() - start
        nodes = len(onnx.load(path, load_external_data=False).graph.node)
        print(f"{label:28}{nodes:8,} nodes {path.stat().st_size / 1e6:7.1f} MB  {seconds:5.1f} s  {path}")  # noqa: T201


if __name__ == "__main__":
    _main()
