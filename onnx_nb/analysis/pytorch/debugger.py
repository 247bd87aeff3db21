"""Compare chosen tensors of a torch model with its export step by step, with explicit files.

A debugged tensor becomes a node ``my::Debug`` of the export. The debug model replaces it by an Identity, which
onnxruntime can run, and has every such tensor as an output.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from numpy.typing import NDArray
from onnx import ModelProto

from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched
from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats
from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.model.model import Model, ModelLike, load, with_proto
from onnx_nb.analysis.pytorch.export import marked
from onnx_nb.analysis.pytorch.module_scopes import source_of
from onnx_nb.analysis.pytorch.record import to_numpy
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.submodel.extraction import extract

if TYPE_CHECKING:
    import torch

DEBUG: Final = ("my", "Debug")
"""Domain and type of the nodes."""


class Debugger:
    """Compares named tensors of a torch model with those of its export.

    `compare_torch` finds the tensors by itself; a debugger compares those that ``forward`` passes to `debug`.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> debugger = Debugger()
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         x = debugger.debug(x * 2, "doubled")
    ...         return debugger.debug(x.exp(), "exp")
    >>> folder, x = tempfile.mkdtemp(), torch.zeros(1, 3)
    >>> from onnx_nb.analysis.pytorch.export import export
    >>> model = export(Model(), x, exporter="torchscript").save(f"{folder}/model.onnx")
    >>> _ = debugger.extract_debug_model(model, f"{folder}/debug.onnx")
    >>> debugger.run_debug_model({"x": x.numpy()}, f"{folder}/debug.onnx")
    >>> debugger
    Debugger(2 tensors in torch, 2 in the model, 2 in both)
    >>> debugger.print_debug_result()
    doubled MSE: 0.0
    exp MSE: 0.0
    """

    def __init__(self) -> None:
        self.torch_value: dict[str, NDArray[Any]] = {}
        """Name → value in torch, of the last run."""
        self.onnx_value: dict[str, NDArray[Any]] = {}
        """Name → value in the debug model."""
        self.output_debug_name: list[str] = []
        """Name of the debugged tensor that each output of the debug model is."""
        self._tensors: dict[str, tuple[str, str, str]] = {}
        self._inputs: list[str] = []

    def __repr__(self) -> str:
        both = sum(name in self.onnx_value for name in self.torch_value)
        return (
            f"Debugger({len(self.torch_value)} tensors in torch, {len(self.onnx_value)} in the model, {both} in both)"
        )

    def debug(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Debug a tensor: called in ``forward``, it returns the tensor unchanged.

        In torch, the value is stored in `torch_value`. In an export by either exporter, it becomes a node
        ``my::Debug``. The default exporter computes no values, so the module has to run in torch as well.

        Parameters
        ----------
        x
            Any tensor.
        name
            Name of the tensor. If several tensors have one name, the last value is stored.

        Returns
        -------
        torch.Tensor
            ``x``, or its stand-in during an export.

        Raises
        ------
        TypeError
            If ``name`` is not a string.
        """
        import torch

        made = marked(x, name, DEBUG)
        if not torch.compiler.is_compiling():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns that numpy values are constants in a trace
                self.torch_value[name] = to_numpy(x).copy()
        return made

    def extract_debug_model(self, input_path: ModelLike, output_path: str | os.PathLike[str]) -> Model:
        """Write the debug model, which has every debugged tensor as an output.

        Parameters
        ----------
        input_path
            Export of the module.
        output_path
            File to write.

        Returns
        -------
        Model
            The debug model.

        Raises
        ------
        AlignmentError
            If the export has no ``Debug`` nodes.
        """
        source = load(input_path)
        proto = ModelProto()
        proto.CopyFrom(source.proto)
        self.output_debug_name = []
        self._tensors = {}
        outputs: list[str] = []
        for node in proto.graph.node:
            if (plain_text(node.domain), plain_text(node.op_type)) != DEBUG:
                continue
            name = next((plain_text(attribute.s) for attribute in node.attribute if attribute.name == "name"), "")
            self.output_debug_name.append(name)
            outputs.append(plain_text(node.output[0]))
            self._tensors[name] = outputs[-1], plain_text(node.name), source_of(node)
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:]
        if not outputs:
            message = f"{source.name} has no Debug nodes."
            advice = "Write x = debugger.debug(x, name) into forward, outside of loops and branches, and export again."
            raise AlignmentError(message, advice=advice)
        given = [port.name for port in proto.graph.input if port.name not in source.initializers]
        self._inputs = given
        debugging = extract(with_proto(source, proto), given, outputs, keep_redundant=False)
        debugging.save(output_path)
        return debugging

    def run_debug_model(self, input: Mapping[str, Any], debug_model: ModelLike) -> None:  # noqa: A002 (as it is known)
        """Run the debug model and store its outputs in `onnx_value`.

        Parameters
        ----------
        input
            Array for each input of the export.
        debug_model
            Model that `extract_debug_model` wrote.

        Raises
        ------
        FeedError
            If the inputs do not fit.
        AlignmentError
            If it is another model.
        """
        model = load(debug_model)
        if len(model.proto.graph.output) != len(self.output_debug_name):
            message = f"{model.name} is not the model that extract_debug_model wrote last: it has other outputs."
            raise AlignmentError(message, advice="Call extract_debug_model again.")
        wanted = {port.name for port in model.proto.graph.input}
        # an input of the export that no debugged tensor depends on is not one of the debug model
        feed = {name: array for name, array in input.items() if name in wanted or name not in self._inputs}
        made = sessions.run(model, feed, optimize=False)
        self.onnx_value = dict(zip(self.output_debug_name, made.values(), strict=True))

    def print_debug_result(self) -> None:
        """Print the mean squared error of each debugged tensor."""
        if not self.torch_value and not self.onnx_value:
            print("no tensor was debugged yet: run the module in torch, then the debug model")  # noqa: T201
        for name in self.torch_value:
            if name in self.onnx_value:
                errors = ErrorStats.of(self.torch_value[name], self.onnx_value[name])
                print(f"{name} MSE: {errors.mse}")  # noqa: T201 (its purpose)
            else:
                print(f"{name}: not in the debug model")  # noqa: T201
        for name in self.onnx_value:
            if name not in self.torch_value:
                print(f"{name}: run the module in torch first, module(x)")  # noqa: T201

    def comparison(self, *, rtol: float = RTOL, atol: float = ATOL) -> Comparison:
        """Return the debugged tensors as a `Comparison`, with every metric, histograms and the panel.

        Parameters
        ----------
        rtol, atol
            Tolerances of `ErrorStats.outside`.

        Raises
        ------
        AlignmentError
            If torch or the debug model was not run yet, or the shapes of a tensor differ.
        """
        both = [name for name in self.torch_value if name in self.onnx_value]
        if not both:
            advice = "Run the module in torch, then extract_debug_model and run_debug_model."
            raise AlignmentError("no tensor has values of both torch and the debug model.", advice=advice)
        points = []
        for depth, name in enumerate(both):
            tensor, node, source = self._tensors.get(name, ("", "", ""))
            errors = ErrorStats.of(self.torch_value[name], self.onnx_value[name], rtol=rtol, atol=atol)
            point = Point(name, name, tensor, "debug", depth, "Debug", node, source=source, cumulative=errors)
            points.append(point)
        rest = [
            Unmatched(name, "reference", "the export has no such Debug node", "Debug")
            for name in self.torch_value
            if name not in self.onnx_value
        ]
        rest += [
            Unmatched(name, "candidate", "the module has not run in torch", "Debug")
            for name in self.onnx_value
            if name not in self.torch_value
        ]
        return Comparison("torch", "debug model", tuple(points), tuple(rest))
