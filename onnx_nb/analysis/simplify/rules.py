"""All rules, and the names that ``simplify(skip=…)`` takes: rules, stages, keys of changes, names from other tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from onnx_nb.analysis.errors import SimplificationError
from onnx_nb.analysis.formatting import closest_text, quoted
from onnx_nb.analysis.simplify.rules_fusion import FUSIONS
from onnx_nb.analysis.simplify.rules_onnxruntime import CONTRIB
from onnx_nb.analysis.simplify.rules_redundancy import CLEANING, NO_OPS, SHAPE_RULES

if TYPE_CHECKING:
    from onnx_nb.analysis.simplify.symbolic_dims import Rule

RULES: Final[tuple[Rule, ...]] = (*NO_OPS, *FUSIONS, *SHAPE_RULES)
"""Rules that make standard operators of standard operators, in the order in which they are tried on a node."""

FOLDING: Final = {
    "fold_constants": "Run nodes whose inputs are constant, and store their results",
    "fold_shapes": "Fold sizes taken out of a shape where they are known, even if other sizes are not",
    "fold_reshape": "Make the shape of a Reshape constant where it keeps a dimension or leaves one to be inferred",
}
"""Rules of constant folding, with a line about each."""
STAGES: Final = ("shape_inference", "constant_folding", "rewrites")
"""Kinds of work that can be skipped as a whole."""

FOREIGN: Final[dict[str, tuple[str, ...]]] = {
    # onnxoptimizer, whose names onnxsim takes too
    "extract_constant_to_initializer": ("extract_constants",),
    "eliminate_nop_flatten": ("eliminate_nop_reshape",),
    "eliminate_nop_with_unit": ("eliminate_nop_arithmetic",),
    "eliminate_consecutive_idempotent_ops": ("eliminate_idempotent",),
    "eliminate_shape_gather": ("fold_shapes",),
    "eliminate_shape_op": ("fold_shapes",),
    "eliminate_slice_after_shape": ("fold_shapes",),
    "fuse_concat_into_reshape": ("fold_reshape",),
    "fuse_consecutive_unsqueezes": ("fuse_consecutive_squeezes",),
    "fuse_qkv": ("fuse_parallel_matmuls",),
    **dict.fromkeys(
        (
            *("adjust_add", "adjust_slice_and_matmul", "fuse_pad_into_pool", "lift_lexical_references", "nop"),
            *("rename_input_output", "replace_einsum_with_matmul", "rewrite_input_dtype", "rewrite_where"),
            *("set_unique_name_for_nodes", "split_init", "split_predict"),
        ),
        (),
    ),
    # onnxslim
    "dead_node_elimination": ("eliminate_deadend",),
    "graph_fusion": ("rewrites",),
    "subexpression_elimination": ("eliminate_common_subexpression",),
    "weight_tying": ("eliminate_duplicate_initializer",),
}
"""Names of other tools, and the rules of ours that do the same; none where `simplify` never does it."""


def rules() -> dict[str, str]:
    """Return the rules of `simplify`: a line about each by its name.

    Examples
    --------
    >>> rules()["eliminate_identity"]
    'Remove Identity nodes'
    """
    standard = {rule.name: rule.does for rule in RULES if rule.name not in FOLDING}
    return {**FOLDING, **standard, **CLEANING, **{rule.name: f"{rule.does}; for onnxruntime only" for rule in CONTRIB}}


def skipped_names(skip: Iterable[str]) -> frozenset[str]:
    """Return the stages, rules and keys of changes to skip, names of other tools replaced by ours."""
    known = [*rules(), *STAGES]
    found: set[str] = set()
    for name in (skip,) if isinstance(skip, str) else skip:
        if name in FOREIGN:
            found.update(FOREIGN[name])
        elif name.partition(": ")[0] in known:
            found.add(name)
        else:
            near = closest_text(name, [*known, *FOREIGN]) or f"Rules: {', '.join(map(quoted, known))}."
            advice = f"{near} onnx_nb.rules() lists all rules; keys of changes are in s.changes."
            raise SimplificationError(f"there is no rule {quoted(name)}.", advice=advice)
    return frozenset(found)
