"""What is written inside a torch model for onnx_nb: `mark`.

torch is imported when it is first used, so that everything else works without it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.operators import MARK

if TYPE_CHECKING:
    import torch


def mark(x: torch.Tensor, name: str) -> torch.Tensor:
    """Mark a tensor in a torch model, so that its export can be cut there by name.

    Written into ``forward``, it does nothing when the model runs in torch. In an export by either of torch's exporters
    it becomes a node ``Mark`` of the domain ``onnx_nb``, an identity that carries the name: `partition` cuts there by
    ``cuts="marks"``, and `extract` finds the tensor by that name. onnx_nb runs such a model as it is; other tools do
    not know the node, and take the parts, which hold no marks.

    Parameters
    ----------
    x
        Any tensor.
    name
        What to call the place. A mark that is reached several times marks several tensors: in a loop over layers each
        ends a part, side by side they are cut together.

    Returns
    -------
    torch.Tensor
        ``x`` itself, or in an export what stands for it.

    Raises
    ------
    TypeError
        If ``name`` is not a text.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2)
    >>> mark(x, "after the stem") is x
    True
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a mark is a text, not {type(name).__name__}.")
    import torch

    # torch.export alone is none of our business: its programs are run in torch, where the op below would give zeros
    if not torch.onnx.is_in_onnx_export():
        return x
    if torch.compiler.is_exporting():
        domain, operator = MARK
        marked: torch.Tensor = torch.onnx.ops.symbolic(
            f"{domain}::{operator}", (x,), attrs={"name": name}, dtype=x.dtype, shape=x.shape, version=1
        )
        return marked
    traced: torch.Tensor = _function().apply(x, name)
    return traced


@functools.cache
def _function() -> Any:
    """Give the autograd function whose symbolic the TorchScript exporter writes."""
    import torch

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor, _name: str) -> torch.Tensor:
            # a new tensor: the tracer takes one that is handed through for the same value, and drops the node
            return x.view_as(x)

        @staticmethod
        def symbolic(g: Any, x: Any, name: str) -> Any:
            made = g.op("::".join(MARK), x, name_s=name)
            made.setType(x.type())
            return made

    return Mark
