"""Edits that a person makes in a graph: each request is a call of `Edit`."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, Final

from onnx_nb.analysis.edit.edit import Edit
from onnx_nb.analysis.errors import EditError
from onnx_nb.analysis.formatting import count_text, quoted, shape_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.match.diff import diff
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.result_columns import diff_columns
from onnx_nb.widgets.protocol import EditRequest

SMALL: Final = (1000, 1 << 24)
"""Nodes, and bytes of weights, of a model whose edits are proved at once."""


def apply(edits: Edit, request: EditRequest, progress: Progress) -> None:
    seen, text = _name_of(edits, request), request.text
    name = request.name or edits.current_name(seen)
    match request.edit:
        case "show" | "verify":
            pass
        case "undo":
            edits.undo(request.step)
        case "redo":
            edits.redo()
        case "rename":
            edits.rename({name: text})
        case "free":
            edits.free(text or "batch", progress=progress)
        case "shape":
            former = edits.model if request.name else edits.original
            shape = next((entry.shape for entry in former.inputs if entry.name == seen), None)
            _reshape(edits, name, shape, text, progress)
        case "insert":
            operator, attributes = _call(text)
            edits.insert(operator, name, **attributes)
        case "set":
            edits.set(name, **_call(f"set({text})")[1])
        case verb:
            {"remove": edits.remove, "output": edits.output, "drop": edits.drop}[verb](name)


def is_small(model: Model) -> bool:
    return len(model.proto.graph.node) <= SMALL[0] and model.nbytes <= SMALL[1]


def tables(edits: Edit, step: int) -> list[bytes]:
    """Return the columns of the model after a step, 0 for the last, and what it changed."""
    models = [edits.original, *(entry.model for entry in edits.steps)]
    if step >= len(models):
        raise EditError(f"there is no step {step}.", advice=f"There are {len(models) - 1}.")
    before, after = (models[step - 1], models[step]) if step else (edits.original, edits.model)
    return [columns(after).to_bytes(), diff_columns(diff(before, after)).to_bytes()]


def _name_of(edits: Edit, request: EditRequest) -> str:
    """Return the name of what was clicked; of a node without one, that of what it makes."""
    kind, number = request.kind, request.id
    if request.name or not kind:
        return request.name
    graph = Graph.opened(edits.original)
    if kind == "scope":
        return scopes(graph).scope_path[number]
    if kind == "tensor":
        return graph.value_names[number]
    return graph.names[number] or graph.value_names[int(graph.node_outputs(number)[0])]


def _reshape(edits: Edit, name: str, seen: Sequence[Any] | None, text: str, progress: Progress) -> None:
    """Fix, free and rename the dimensions of an input in which a text differs from the shape seen: all or none."""
    words = [word.strip() for word in re.split("[×,]", text)]
    if seen is None or len(seen) != len(words):
        rank = "no known shape" if seen is None else count_text(len(seen), "dimension")
        raise EditError(f"{quoted(name)} has {rank}, not those of {quoted(text)}.", advice="For example batch×3×224.")
    count = len(edits.steps)
    try:
        for axis in (at for at, word in enumerate(words) if word != shape_text([seen[at]])):
            _resize(edits, name, axis, words[axis], progress)
    except BaseException:
        while len(edits.steps) > count:
            edits.undo()
        raise


def _resize(edits: Edit, name: str, axis: int, word: str, progress: Progress) -> None:
    shapes = {entry.name: entry.shape for entry in edits.model.inputs if entry.shape}
    size = shapes[name][axis]
    if word.isdigit() and isinstance(size, int) and size != int(word):
        raise EditError(f"dimension {axis} of {quoted(name)} is {size} in the file.", advice="Free it by a name first.")
    if word.isdigit():
        sizes = {name: [int(word) if at == axis else None for at in range(len(shapes[name]))]}
        edits.fix({size: int(word)} if isinstance(size, str) else sizes)
    elif isinstance(size, str):
        edits.rename({size: word})
    else:
        is_batch = axis == 0 and all(other[0] == size for other in shapes.values())
        edits.free(word, None if is_batch else {name: axis}, progress=progress)


def _call(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of ``Cast(to=float16)`` or ``Relu``; a bare word is a text."""
    try:
        tree = ast.parse(text if "(" in text else f"{text}()", mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
            values = {str(keyword.arg): keyword.value for keyword in tree.keywords}
            literals = {key: v.id if isinstance(v, ast.Name) else ast.literal_eval(v) for key, v in values.items()}
            return tree.func.id, literals
    except (SyntaxError, ValueError):
        pass  # as what parses and is no such call
    advice = "An operator: Relu, or Cast(to=float16). Attributes: axis=1, mode=linear."
    raise EditError(f"{quoted(text)} cannot be read.", advice=advice)
