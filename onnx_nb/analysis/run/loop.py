"""The loop of a model that reads what it wrote in the step before: key-value caches, recurrent and streaming states.

States are bound by their names, as every exporter writes them (``past_key_values.0.key`` → ``present.0.key``,
``state`` → ``stateN``, ``x`` → ``x_next``), and by equal types; other ones by ``state={"input": "output"}``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.model.package import Package
from onnx_nb.analysis.model.tensors import ValueInfo, input_types, numpy_dtype
from onnx_nb.analysis.run.random_feeds import feed_shapes, required_sizes
from onnx_nb.analysis.run.session import check_state, run

IDS: Final = ("input_ids", "decoder_input_ids", "tokens", "ids")
"""Names of the input with the tokens."""
_GROWS: Final = re.compile("past|seq|len|total|step|time", re.IGNORECASE)
"""Symbol of an axis of a state that is empty at first."""


class Loop:
    """How one step of a model follows another; ``state`` is input → output, by their names if ``None``.

    ``feeds`` stay the same in each step. Of a package with an encoder they have its inputs, too: it runs once, and the
    decoder reads what it makes.
    """

    def __init__(
        self, model: Model, state: Mapping[str, str] | None = None, feeds: Mapping[str, Any] | None = None
    ) -> None:
        self.model = model
        self.inputs = {info.name: info for info in model.inputs}
        self.dtypes = {name: numpy_dtype(kind.tensor_type.elem_type) for name, kind in input_types(model).items()}
        self.outputs = {info.name: info for info in model.outputs}
        self.states: dict[str, str] = dict(_states(self.inputs, self.outputs) if state is None else state)
        check_state(self.states, self.inputs, self.outputs, model.name)
        integers = [name for name, info in self.inputs.items() if info.dtype == "int64" and name not in self.states]
        plain = [name for name in integers if not re.search("mask|position|len|sr$|rate", name)]
        self.ids = next((name for name in IDS if name in self.inputs), plain[0] if len(plain) == 1 else "")
        """The input with the tokens; empty if there is none."""
        results = (name for name in self.outputs if name not in self.states.values())
        self.logits = "logits" if "logits" in self.outputs else next(results, "")
        """The output with a number for each token of the vocabulary."""
        graph = Graph.of(model)
        self.axes = {name: required_sizes(graph, name, len(self.inputs[name].shape or ())) for name in self.states}
        """Axis → size for each state, where the operators that read it fix one: heads, window, head size."""
        if not isinstance({} if feeds is None else feeds, Mapping):
            raise FeedError(f"feeds is {feeds!r:.80}, and the other inputs of a loop are a dict by name.")
        self.constants = dict(self._encoded(feeds) if feeds else {})
        """The feeds that stay the same in each step."""
        both = [name for name in self.inputs if name in self.constants]
        pairs = (zip(self.inputs[name].shape or (), np.shape(self.constants[name]), strict=False) for name in both)
        self._sizes: dict[str, int] = {dim: size for dim, size in itertools.chain(*pairs) if isinstance(dim, str)}
        # some exporters leave caches of the encoder among the inputs that nobody reads
        shapes = feed_shapes(model, self._sizes) if self.constants else {}
        unread = [name for name in shapes if not graph.consumers(graph.value(name)).size]
        zeros = {name: np.zeros(shapes[name], self.dtypes[name] or np.float32) for name in unread}
        self.constants = zeros | self.constants

    @property
    def windows(self) -> dict[str, int]:
        """The capacity of each state that is a sliding window: as many tokens as it holds."""
        return {name: axes[2] for name, axes in self.axes.items() if 2 in axes}

    @property
    def vocabulary(self) -> int:
        """The number of tokens that the logits tell apart; 0 if it is not declared."""
        size = (self.outputs[self.logits].shape or (0,))[-1] if self.logits else 0
        return size if isinstance(size, int) else 0

    def start(self, batch: int = 1) -> dict[str, NDArray[Any]]:
        """Return the states before the first step: caches without a token, windows and states of zeros."""
        usual, states = feed_shapes(self.model, self._sizes), dict[str, NDArray[Any]]()
        for name in self.states:
            dims = self.inputs[name].shape or usual.get(name, ())
            sizes = enumerate(zip(dims, usual.get(name, ()), strict=True))
            shape = [self._first_size(name, axis, dim, size, batch) for axis, (dim, size) in sizes]
            states[name] = np.zeros(shape, self.dtypes[name] or np.float32)
        return states

    def feeds(
        self,
        ids: NDArray[np.int64],
        states: Mapping[str, Any],
        mask: NDArray[np.int64] | None = None,
        others: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the feeds of a step, which reads the tokens ``ids`` [batch, n]; ``others`` are of this step alone.

        The ``mask`` [batch, total] is 1 for each token so far, those of the step among them, and 0 for padding.
        """
        mask = np.ones(ids.shape, np.int64) if mask is None else mask
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, -ids.shape[1] :]
        start = mask.shape[1] - ids.shape[1]
        values: dict[str, Any] = {
            self.ids: ids,
            "attention_mask": mask,
            "decoder_attention_mask": mask,
            "position_ids": positions,
            "cache_position": np.arange(start, mask.shape[1]),
            "use_cache_branch": np.array([start > 0]),
            "num_logits_to_keep": np.asarray(0),
            **states,
            **self.constants,
            **(others or {}),
        }
        arrays = {name: np.asarray(values[name]) for name in self.inputs if name in values}
        return {name: array.astype(self.dtypes[name] or array.dtype, copy=False) for name, array in arrays.items()}

    def next_states(self, results: Mapping[str, Any], states: Mapping[str, Any]) -> dict[str, Any]:
        """Return the states of the next step from the outputs of this one.

        What an output leaves empty stays as it was in ``states``: decoders that are merged from two models return the
        keys and values of the encoder only in the first step.
        """
        return {
            name: results[output] if np.size(results[output]) else states[name] for name, output in self.states.items()
        }

    def valid(self, name: str, states: Mapping[str, Any], total: int) -> NDArray[Any]:
        """Return the part of a state that holds tokens: behind it a window holds memory that nobody has written.

        A window of capacity ``c`` for ``w`` tokens begins after ``t`` tokens at ``ceil(max(0, t − c) / (c − w + 1)) ·
        (c − w + 1)``, as measured on onnxruntime's GroupQueryAttention.
        """
        array = np.asarray(states[name])
        if name not in self.windows or array.ndim < 3:
            return array
        width, capacity = self.windows[name], array.shape[2]
        stride = capacity - width + 1
        first = -(-max(0, total - capacity) // stride) * stride
        return array[:, :, : total - first]

    def _first_size(self, name: str, axis: int, dim: int | str | None, usual: int, batch: int) -> int:
        if axis in self.axes[name] or isinstance(dim, int):
            return self.axes[name].get(axis) or usual
        if isinstance(dim, str) and dim in self._sizes:
            return self._sizes[dim]
        if isinstance(dim, str) and ("batch" in dim.lower() or (axis == 0 and not _GROWS.search(dim))):
            return batch
        return 0 if isinstance(dim, str) and _GROWS.search(dim) else usual

    def _encoded(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the feeds that stay the same: those given, and what the encoder of a package makes of its own."""
        encoder = self.model.models.get("encoder") if isinstance(self.model, Package) else None
        if encoder is None or all(name in feeds for name in self.inputs if name.startswith("encoder_")):
            return feeds
        own = {info.name: feeds[info.name] for info in encoder.inputs if info.name in feeds}
        results = run(encoder, own)
        hidden = next(iter(results.values()))
        mask = own.get("attention_mask", np.ones(np.shape(hidden)[:2], np.int64))
        rest = {name: array for name, array in feeds.items() if name not in own}
        values = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask, **results, **rest}
        return {name: array for name, array in values.items() if name in self.inputs or name in rest}


def _states(inputs: Mapping[str, ValueInfo], outputs: Mapping[str, ValueInfo]) -> Iterator[tuple[str, str]]:
    """Yield each input that is a state, and the output with its next value, by their names and types."""
    for name, info in inputs.items():
        for other in filter(outputs.__contains__, _successors(name)):
            ranks = {len(one.shape) for one in (info, outputs[other]) if one.shape is not None}
            if outputs[other].dtype == info.dtype and len(ranks) < 2:
                yield name, other
                break


def _successors(name: str) -> Iterator[str]:
    """Yield the names that an output with the next value of an input may have."""
    if "past" in name:
        for new in ("present", "present_key_values", "present_key"):
            yield name.replace("past_key_values", new).replace("past", "present")
            yield re.sub(r"past_key_values|past_states|past", new, name)
    yield from (f"{name}_next", f"next_{name}", f"new_{name}", f"{name}_new", f"{name}_out", f"out_{name}", f"{name}N")
    yield from (f"{name}n", f"output_{name}")
    if name[-1:] == "0":
        yield name[:-1] + "n"
    if "in" in name:
        yield re.sub(r"in$|(?<![a-z])in(?![a-z])", "out", name)
        yield name.replace("input", "output")
