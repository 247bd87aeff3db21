"""Every public verb as a function of a model's bytes; what is random is drawn from a seed, so that finds repeat."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

import onnx_nb
from onnx_nb.analysis.view.inspection import figures, inspect, select
from onnx_nb.analysis.view.overlays import OWN

FEW = 60
"""Nodes and tensors that are looked at one by one."""


class Given:
    """A model's bytes, a folder to write to, and choices among its names."""

    def __init__(self, data: bytes, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.random = random.Random(len(data))

    @property
    def model(self) -> onnx_nb.Model:
        """The model, loaded again for each verb: nothing is remembered."""
        return onnx_nb.load(self.data)

    def names(self, model: onnx_nb.Model, count: int) -> list[str]:
        """Choose names of tensors."""
        known = onnx_nb.types.Graph.of(model).value_names
        return self.random.sample(known, min(count, len(known))) or ["x"]

    def outputs(self, model: onnx_nb.Model) -> list[str]:
        """Return the names of the model's outputs."""
        return [port.name for port in model.outputs]


def _look(given: Given) -> None:
    model = given.model
    texts = [
        repr(model),
        repr(model.inputs),
        repr(model.outputs),
        str(model.nbytes),
        repr(onnx_nb.types.Graph.of(model)),
    ]
    texts += [problem.message for problem in onnx_nb.types.Graph.of(model).problems]
    "".join(texts).encode()


def _weights(given: Given) -> None:
    model = given.model
    for name in model.tensor_names()[:FEW]:
        try:
            model.tensor(name)
        except onnx_nb.OnnxNbError as error:
            str(error).encode()


def _summarize(given: Given) -> None:
    found = onnx_nb.summarize(given.model)
    json.dumps(found.to_json(), ensure_ascii=False).encode()
    repr(found).encode()
    found.rows()


def _costs(given: Given) -> None:
    found = onnx_nb.costs(given.model)
    repr(found).encode()
    found.rows()
    found.rows("scope")


def _inspect(given: Given) -> None:
    model = given.model
    graph = onnx_nb.types.Graph.opened(model)
    for kind, count in (("node", graph.node_count), ("tensor", graph.value_count)):
        for index in range(min(count, FEW)):
            reply = {**inspect(model, kind, index).to_json(), "figures": figures(model, kind, index)}
            json.dumps(reply, ensure_ascii=False).encode()
    select(model, range(min(graph.node_count, FEW)))


def _overlay(given: Given) -> None:
    model = given.model
    for name in OWN:
        onnx_nb.ModelGraph(model).overlay(name)


def _plan(given: Given) -> None:
    model = given.model
    for count in (1, 3):
        repr(onnx_nb.plan_extraction(model, given.names(model, count), given.names(model, 1))).encode()


def _extract(given: Given) -> None:
    model = given.model
    with contextlib.suppress(onnx_nb.ExtractionError):
        onnx_nb.extract(model, [port.name for port in model.inputs], given.outputs(model))
    onnx_nb.extract(model, given.names(model, 2), given.names(model, 1))


def _diff(given: Given) -> None:
    model = given.model
    other = onnx_nb.load(model.proto)
    found = onnx_nb.diff(model, other)
    repr(found).encode()
    found.rows()


def _graphviz(given: Given) -> None:
    onnx_nb.to_graphviz(given.model, open=["*"]).source.encode()


def _check(given: Given) -> None:
    model = given.model
    onnx_nb.external_data.audit(model)
    for full in (False, True):
        try:
            onnx_nb.external_data.check(model, full=full)
        except onnx_nb.OnnxNbError as error:
            str(error).encode()


def _random_feeds(given: Given) -> None:
    model = given.model
    onnx_nb.validate_feeds(model, onnx_nb.random_feeds(model))


def _capture(given: Given) -> None:
    found = onnx_nb.capture(given.model, memory_limit=100_000_000)
    found.rows()
    onnx_nb.CapturePanel(found)


def _capture_in_a_subprocess(given: Given) -> None:
    with contextlib.suppress(onnx_nb.CaptureError):  # which names the nodes that ended it
        onnx_nb.capture(given.model, memory_limit=100_000_000, subprocess=True)


def _compare(given: Given) -> None:
    model = given.model
    shapes = [[min(dim, 64) if isinstance(dim, int) else 2 for dim in port.shape or ()][:4] for port in model.inputs]
    feeds = [np.zeros(shape, np.float32) for shape in shapes]
    onnx_nb.compare(model, model, feeds).rows()


def _profile(given: Given) -> None:
    model = given.model
    found = onnx_nb.profile(model, runs=1, warmup=0)
    found.message.encode()
    found.rows("node")
    found.save(given.folder / "profile.json")
    onnx_nb.types.Profile.load(given.folder / "profile.json", model)


LOOK: Final[Mapping[str, Callable[[Given], object]]] = {
    "look": _look,
    "weights": _weights,
    "summarize": _summarize,
    "costs": _costs,
    "inspect": _inspect,
    "overlay": _overlay,
    "plan": _plan,
    "extract": _extract,
    "partition": lambda given: onnx_nb.partition(given.model, 2),
    "partition_scopes": lambda given: onnx_nb.partition(given.model, scopes=1),
    "diff": _diff,
    "graph": lambda given: onnx_nb.ModelGraph(given.model),
    "html": lambda given: onnx_nb.ModelGraph(given.model).to_html(given.folder / "page.html", statistics=True),
    "diff_panel": lambda given: onnx_nb.DiffPanel(given.model, given.model).to_html(given.folder / "diff.html"),
    "report": lambda given: onnx_nb.report(given.folder / "report.html", {"Model": given.model}),
    "summary_panel": lambda given: onnx_nb.ModelSummary(given.model),
    "audit_panel": lambda given: onnx_nb.AuditPanel(given.model),
    "graphviz": _graphviz,
    "save": lambda given: given.model.save(given.folder / "saved.onnx"),
    "to_proto": lambda given: given.model.to_proto(),
    "check": _check,
    "convert": lambda given: onnx_nb.external_data.convert(given.model, given.folder / "converted.onnx", threshold=0),
    "inline": lambda given: onnx_nb.external_data.inline(given.model, given.folder / "inlined.onnx"),
}
"""Verbs that run nothing: they end soon, in little memory, and can be interrupted."""

RUN: Final[Mapping[str, Callable[[Given], object]]] = {
    "random_feeds": _random_feeds,
    "simplify": lambda given: onnx_nb.simplify(given.model, check_n=0),
    "run": lambda given: onnx_nb.run(given.model),
    "capture": _capture,
    "capture_subprocess": _capture_in_a_subprocess,
    "compare": _compare,
    "profile": _profile,
}
"""Verbs that run the model, or nodes of it: its own loops and sizes may last; their errors and crashes are judged."""

KERNELS: Final = ("run", "capture", "compare", "profile")
"""Verbs that run all kernels of a model in this process, and end with it where a kernel crashes."""

VERBS: Final[Mapping[str, Callable[[Given], object]]] = dict(itertools.chain(LOOK.items(), RUN.items()))
