"""Graders of "Reading a simplification"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations
from typing import Any, Final

import onnx_nb

from . import Lesson, NotYet, expect, made

check: Final = Lesson()

_SIZES: Final = {0: "batch", 2: "height", 3: "width"}


def _sizes_in(choice: Any) -> set[str]:
    """Return the names of the sizes in a choice: a name, names in one text, an axis, or several of them."""
    if isinstance(choice, str):
        found = set(re.findall(r"\w+", choice)) - {"and", "all", "fixed", "none"}
    elif isinstance(choice, Iterable):
        found = set().union(*map(_sizes_in, choice))
    else:
        found = {_SIZES.get(choice, str(choice))}
    for name in found - {*_SIZES.values()}:
        raise NotYet(f"{name!r} is none of the sizes of this exercise: they are batch, height and width.")
    return found


@check.exercise(
    1,
    "one_node",
    "[axes for count in range(4) for axes in combinations(free_sizes.values(), count)"
    ' if "batch" not in axes or count == 1]',
    {
        "4": "should be a list",
        '["channels"]': "none of the sizes",
        '["batch", "height", "width"]': "at least one more",
        '[("batch",), ("height",), ("width",), ("batch", "width"), ("height", "width")]': "an empty batch",
    },
)
def _free_sizes(answer: Any) -> None:
    is_list = isinstance(answer, list | tuple | set | frozenset)
    expect(
        is_list, f"This is a {type(answer).__name__}; it should be a list of choices, each with the names of its sizes."
    )
    given = {frozenset(_sizes_in(choice)) for choice in answer}
    right = {frozenset[str]()}
    for count in 1, 2, 3:
        for axes in combinations(_SIZES, count):
            exported = made("export")({axis: _SIZES[axis] for axis in axes})
            if len(onnx_nb.simplify(exported, check_n=0).model.proto.graph.node) == 1:
                right.add(frozenset(_SIZES[axis] for axis in axes))
    expect(given <= right, "With one of these choices more nodes are left: what would 0 and -1 make of an empty batch?")
    expect(given >= right - {frozenset()}, "These are right, and there is at least one more.")


@check.exercise(
    2,
    "half_joined",
    "half_joined",
    {
        "half_joined.model": "`again` returns",
        "smaller": "blocks 0, 1, 2 and 3 are joined",
        'smaller.again(skip=["fuse_parallel_matmuls"])': "No block",
        "smaller.again(skip=[joined[0].key])": "blocks 1, 2 and 3 are joined",
        "smaller.again(skip=[change.key for change in joined[2:]])": "blocks 0 and 1 are joined",
        'smaller.again(skip=[*(change.key for change in joined[:2]), "fold_reshape"])': "something else was left out",
    },
)
def _half_joined(answer: Any) -> None:
    is_result = isinstance(answer, onnx_nb.types.Simplification)
    expect(is_result, f"This is a {type(answer).__name__}; it should be what `again` returns.")
    wanted = {name: place for place, change in enumerate(made("joined")) for name in change.before}
    kept = {node.name for node in answer.model.proto.graph.node}
    places = [str(place) for place in sorted({wanted[name] for name in wanted.keys() - kept})]
    expect(places, "No block has a joined product: leave out single changes, and not the rule.")
    which = " and ".join(filter(None, (", ".join(places[:-1]), places[-1])))
    expect(places == ["2", "3"], f"The products of the blocks {which} are joined; it should be those of 2 and 3.")
    most = len(made("smaller").model.proto.graph.node) + 12
    expect(len(kept) <= most, "The right products are left, but something else was left out as well.")
