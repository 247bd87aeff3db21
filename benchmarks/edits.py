"""Edits at 10,000 nodes: a step of `onnx_nb.edit` against onnx-graphsurgeon's import, edit and export.

``python -m benchmarks.edits [VERB …]``: each step follows others of its kind on a chain of transformer blocks, as a
person makes one after the other; the least of ten counts. What a step checks at once is in it; the proof, which runs
the model, is not. The other tool is measured where it is installed, with what it needs to get from a model to a model.
"""

from __future__ import annotations

from benchmarks.measuring import Limit, Report, Way, command_line, measured
from tests import models

NODES = 10_000
LIMIT = 0.05
"""CPU seconds of a step."""
OURS = """
import itertools, numpy as np, onnx, onnx.parser, onnx_nb
head = '<ir_version: 8, opset_import: ["": 20]>'
part = onnx.parser.parse_model(head + 'p (float[batch,seq,4] v) => (float[batch,seq,4] w) { w = Neg (v) }')
mlp = onnx.parser.parse_model(head + 'p (float[batch,seq,16] v) => (float[batch,seq,16] w) { w = Neg (v) }')
e, layers = onnx_nb.edit(path), itertools.count(200)
e.insert("Identity", "/layers.150/attn/Mul_output_0")
"""
OUTPUTS = "e.output(*(f'/layers.{layer}/attn/Mul_output_0' for layer in range(100, 112)))"
THEIRS = """
import itertools, numpy as np, onnx, onnx_graphsurgeon as gs
model, layers = onnx.load(path), itertools.count(200)

def read():
    graph = gs.import_onnx(model)
    return graph, graph.tensors()

def pass_on(tensor, other):
    for reader in [*tensor.outputs]:
        reader.inputs[[*map(id, reader.inputs)].index(id(tensor))] = other
"""
WRITE = "; gs.export_onnx(graph.cleanup().toposort())"
SCORES = "/layers.{next(layers)}/attn/Mul_output_0"
VERBS: dict[str, tuple[str, str]] = {
    # verb: ours, and theirs if there is such an edit
    "rename": (
        f"e.rename({{f'{SCORES}': f'q{{next(layers)}}'}})",
        f"graph, t = read(); t[f'{SCORES}'].name = 'q'{WRITE}",
    ),
    "fix": ("e.fix(batch=1); e.undo()", ""),
    "remove": (
        "e.remove(f'/layers.{next(layers)}/Identity')",
        "graph, t = read(); here = f'/layers.{next(layers)}'; "
        f"pass_on(t[here + '/Identity_output_0'], t[here + '/mlp/Add_output_0']){WRITE}",
    ),
    "insert": (
        f"e.insert('Relu', f'{SCORES}')",
        f"graph, t = read(); old, new = t[f'{SCORES}'], gs.Variable('new', np.float32); pass_on(old, new); "
        f"graph.nodes.append(gs.Node('Relu', inputs=[old], outputs=[new])){WRITE}",
    ),
    "replace": (
        "here = f'/layers.{next(layers)}/mlp/'; "
        "e.replace([here + 'up/MatMul_output_0'], [here + 'act/Gelu_output_0'], mlp)",
        "graph, t = read(); here = f'/layers.{next(layers)}/mlp/'; end = t[here + 'act/Gelu_output_0']; "
        f"end.inputs.clear(); graph.layer(op='Neg', inputs=[t[here + 'up/MatMul_output_0']], outputs=[end]){WRITE}",
    ),
    "before": ("e.before(part)", ""),
    "after": ("e.after(part)", ""),
    "output": (
        f"e.output(f'{SCORES}')",
        f"graph, t = read(); end = t[f'{SCORES}']; end.dtype = np.float32; graph.outputs.append(end){WRITE}",
    ),
    "drop": ("e.drop(e.model.outputs[-1].name)", ""),
    "set": (
        "e.set(f'/layers.{next(layers)}/attn/Softmax', axis=1)",
        f"graph, t = read(); t[f'/layers.{{next(layers)}}/attn/Softmax_output_0'].inputs[0].attrs['axis'] = 1{WRITE}",
    ),
    "weight": (
        "e.weight(f'layers.{next(layers)}.attn.q.weight', np.ones((4, 4), np.float32))",
        f"graph, t = read(); t[f'layers.{{next(layers)}}.attn.q.weight'].values = np.ones((4, 4), np.float32){WRITE}",
    ),
    "tie": ("i = next(layers); e.tie(f'layers.{i}.attn.q.weight', f'layers.{i}.attn.k.weight')", ""),
    "dtype": ("e.dtype({'x': 'float64'})", ""),
}


def main() -> int:
    """Measure; 1 if a step takes longer than it may."""
    verbs, _ = command_line(__doc__, VERBS)
    report = Report(__spec__.name, __doc__)
    for verb in verbs:
        ours, theirs = VERBS[verb]
        ways = {"onnx_nb": Way(ours, OURS + OUTPUTS if verb == "drop" else OURS, 10)}
        if theirs:
            ways["onnx-graphsurgeon"] = Way(theirs, THEIRS, 3)
        report.compare(verb, measured(ways, {"path": str(models.chain(NODES))}, rounds=3), [Limit("cpu", LIMIT)])
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
