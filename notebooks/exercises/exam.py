"""The exam, notebook 09b: ``check = exam(17, net, images, folder)`` plants the faults of seed 17.

Nothing here knows the answers. A seed draws three faults, and each is planted into a copy of the network, which is
exported. A repaired file is right if it computes what the network computes, and a point is right if it lies where the
export of the seed, made anew, goes wrong by itself. Do not read on if you want to find the faults yourself: the pool
is below.
"""

from __future__ import annotations

import copy
import functools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import onnx_nb

from . import NONE, PART, Exercise, Lesson, NotYet, expect

Fault = Callable[[Any, np.random.Generator], Any]
"""Changes a copy of the network. It returns what it has changed: a module or several, or a name for a part of one."""
COUNT: Final = 3
"""Files of an exam."""
TOLERANCE: Final = 5e-6
"""Relative difference of the scores of an image, above rounding and far below the faults."""
OWN_ERROR: Final = 0.2
"""Share of the largest isolated error from which on a point is wrong by itself too, as of swapped modules."""
KEPT: Final = 0.25
"""Share of a file's nodes that are still in a repaired file. A new export of another exporter has none of them."""


def exam(seed: int, network: Any, images: torch.Tensor, folder: Path) -> Exam:
    """Write three faulty exports of a network into a folder, and return what checks the answers.

    Parameters
    ----------
    seed
        Draws the faults: the same ones each time, and others for another seed.
    network
        The trained network of the lesson, in evaluation mode.
    images
        Held-out digits on which repaired files are judged.
    folder
        Receives a.onnx, b.onnx and c.onnx.

    Examples
    --------
    >>> check = exam(17, net, held_out, folder)          # doctest: +SKIP
    >>> check(1, "blocks.0.norm1", repaired)             # doctest: +SKIP
    ✓ 1. Right.
    """
    return Exam(seed, network, images, folder)


class Exam(Lesson):
    """Three exercises: each answer is a point and a repaired file."""

    def __init__(self, seed: int, network: Any, images: torch.Tensor, folder: Path) -> None:
        super().__init__()
        self.seed, self.network, self.images = seed, network, images
        self.files: Final = tuple(folder / f"{letter}.onnx" for letter in "abc"[:COUNT])
        self._models = [exported(faulty(seed, number, network)[0], images[:2]) for number in range(1, COUNT + 1)]
        self._scores = [scores_of(model, images) for model in self._models]
        self._comparisons: dict[int, onnx_nb.types.TorchComparison] = {}
        self._solved: dict[int, float] = {}
        with torch.no_grad():
            self._expected = network(images).numpy()
        folder.mkdir(parents=True, exist_ok=True)
        for number, (model, file) in enumerate(zip(self._models, self.files, strict=True), 1):
            model.save(file)
            grade = functools.partial(self._grade, number)
            self.exercises[number] = Exercise(grade, "point, repaired", "point, repaired", _wrong(number))
        self._start = time.monotonic()

    def __repr__(self) -> str:
        seconds = max(self._solved.values(), default=0)
        minutes = max(1, round(seconds / 60))
        taken = f" in {minutes} {'minute' if minutes == 1 else 'minutes'}" if self._solved else ""
        return f"exam {self.seed}: {len(self._solved)} of {COUNT}{taken}"

    def __call__(self, number: int, *answer: Any) -> None:
        """Print what is not right yet about an answer, and the result once all are right."""
        super().__call__(number, *answer)
        if len(self._solved) == COUNT:
            print(f"{self}. Can you beat seed {self.seed}?")

    def verdict(self, number: int, *answer: Any) -> str:
        """Return what is not right yet; a point may be handed in before the repaired file."""
        if len(answer) == 2 and answer[0] is not ... and answer[1] is ...:
            sentence = super().verdict(number, answer[0])
            return sentence or f"{PART} Now repair {self.files[number - 1].name}, and hand in the model."
        return super().verdict(number, *answer)

    def points(self, number: int) -> set[str]:
        """Return the names of the points at which a file goes wrong by itself."""
        theirs = self._comparison(number)
        errors = {point.name: point.isolated.rel_l2 for point in theirs.points if point.isolated is not None}
        first, least = theirs.first_divergent(), OWN_ERROR * max(errors.values())
        return {name for name, error in errors.items() if error >= least} | ({first.name} if first else set())

    def _comparison(self, number: int) -> onnx_nb.types.TorchComparison:
        if number not in self._comparisons:
            model = self._models[number - 1]
            self._comparisons[number] = onnx_nb.compare_torch(self.network, self.images[:32], model=model)
        return self._comparisons[number]

    def _grade(self, number: int, *answer: Any) -> None:
        self._grade_point(number, answer[0])
        if len(answer) > 1:
            self._grade_model(number, answer[1])
            self._solved.setdefault(number, time.monotonic() - self._start)

    def _grade_point(self, number: int, answer: Any) -> None:
        name, kind = getattr(answer, "name", answer), type(answer).__name__
        expect(isinstance(name, str), f"The first part is a {kind}; it should be a point, or its name.")
        theirs = self._comparison(number)
        expect(name in theirs, f"{name!r} is no point of the comparison: `list(comparison)` has their names.")
        if name in self.points(number):
            return
        errors = theirs[name].isolated
        is_exact = errors is None or errors.rel_l2 < TOLERANCE
        exact = f"{name!r} is right for what it reads, so it is not the fault: what does it get, and from where?"
        expect(not is_exact, exact)
        raise NotYet(f"{name!r} is not quite exact, but another point is wrong by far more: sort by isolated error.")

    def _grade_model(self, number: int, answer: Any) -> None:
        model, file, as_it_was = _opened(answer), self.files[number - 1].name, self._models[number - 1]
        inputs, outputs = ([port.name for port in ports] for ports in (model.inputs, model.outputs))
        ports = f"its inputs are {inputs} and its outputs {outputs}, not `image` and `scores`."
        expect((inputs, outputs) == (["image"], ["scores"]), f"This is another model: {ports}")
        names = {node.name for node in as_it_was.proto.graph.node}
        kept = len(names & {node.name for node in model.proto.graph.node})
        another = f"This is another model: it has {kept} of the {len(names)} nodes of {file}. Repair that file instead."
        expect(kept > KEPT * len(names), another)
        scores = _run(model, self.images)
        expect(scores.shape == self._expected.shape, f"The scores have shape {scores.shape}, not a row for each image.")
        is_wrong, total = ~(distances(scores, self._expected) < TOLERANCE), len(self.images)
        is_same = np.all(distances(scores, self._scores[number - 1]) < TOLERANCE)
        unchanged = f"The model computes what {file} computes, so nothing is repaired yet: did you hand in the edit?"
        expect(not (is_same and is_wrong.any()), unchanged)
        count = int(is_wrong.sum())
        few = f"The model is right for {total - count} of {total} digits: compare it with the network on more of them."
        expect(count == 0 or count > total // 2, few)
        left = f"The scores of {count} of {total} digits are not the network's: what does `compare_torch` say now?"
        expect(count == 0, left)
        alone = _run(model, self.images[:1])
        fixed = "The model is right for many images at once, but not for one alone: a size is fixed in it."
        expect(alone.shape == (1, *self._expected.shape[1:]), fixed)
        expect(distances(alone, self._expected[:1])[0] < TOLERANCE, fixed)


def drawn(seed: int) -> list[Fault]:
    """Return the kinds of fault of a seed, one for each file."""
    places = np.random.default_rng(seed).permutation(len(POOL))[:COUNT]
    return [POOL[place] for place in places]


def faulty(seed: int, number: int, network: Any) -> tuple[Any, list[str]]:
    """Return a copy of the network with one of the faults of a seed, and the names of the modules with it."""
    changed = copy.deepcopy(network).eval()
    with torch.no_grad():
        parts = drawn(seed)[number - 1](changed, np.random.default_rng((seed, number)))
    parts = parts if isinstance(parts, tuple) else (parts,)
    return changed, [name for name, module in changed.named_modules() if any(module is part for part in parts)]


def exported(network: Any, example: torch.Tensor) -> onnx_nb.Model:
    """Export the network as a colleague does, without the notes that tell which line of code each node is from."""
    free = {"image": {0: "batch"}, "scores": {0: "batch"}}
    names: dict[str, Any] = {"input_names": ["image"], "output_names": ["scores"], "dynamic_axes": free}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, of constants in the plumbing
        proto = onnx_nb.export(network, example, exporter="torchscript", **names).to_proto()
    for node in proto.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    return onnx_nb.load(proto)


def scores_of(model: onnx_nb.Model, images: torch.Tensor) -> NDArray[Any]:
    """Return the scores of a model for some images."""
    (scores,) = onnx_nb.run(model, {"image": images.numpy()}).values()
    return np.asarray(scores)


def distances(scores: NDArray[Any], expected: NDArray[Any]) -> NDArray[Any]:
    """Return how far the scores of each image are from others, relative to these; NaN where a score is none."""
    return np.asarray(np.linalg.norm(scores - expected, axis=1) / np.linalg.norm(expected, axis=1))


def _opened(answer: Any) -> onnx_nb.Model:
    answer = answer.model if isinstance(answer, onnx_nb.types.Edit) else answer
    try:
        return onnx_nb.load(answer)
    except TypeError:
        kind = type(answer).__name__
        raise NotYet(f"The second part is a {kind}; it should be the repaired model, its path or the `Edit`.") from None


def _run(model: onnx_nb.Model, images: torch.Tensor) -> NDArray[Any]:
    try:
        return scores_of(model, images)
    except onnx_nb.OnnxNbError as error:
        reason = error.message.splitlines()[0][:120]
        raise NotYet(f"The model does not run on {len(images)} images at once: {reason}") from None


def _wrong(number: int) -> dict[str, str]:
    """Return wrong answers, as the tests try them in the notebook, and words of their hints."""
    file = f"check.files[{number - 1}]"
    return {
        "..., repaired": NONE,
        "point, ...": PART,
        f"point, {file}": "nothing is repaired yet",
        'point, onnx_nb.export(net, test[:2], input_names=["image"], output_names=["scores"])': "another model",
        "'nowhere', repaired": "no point of the comparison",
        "3, repaired": "should be a point",
        "point, point": "should be the repaired model",
    }


# --- the pool ---------------------------------------------------------------------------------------------------------


def _block(network: Any, random: np.random.Generator) -> Any:
    return network.blocks[int(random.integers(len(network.blocks)))]


def _tanh(network: Any, random: np.random.Generator) -> Any:
    mlp = _block(network, random).mlp
    mlp[1] = nn.GELU(approximate="tanh")
    return mlp[1]


def _epsilon(network: Any, random: np.random.Generator) -> Any:
    norms = [norm for block in network.blocks for norm in (block.norm1, block.norm2)] + [network.norm]
    norm = norms[int(random.integers(len(norms)))]
    norm.eps = float(random.choice([1e-3, 1e-2]))
    return norm


def _transposed(network: Any, random: np.random.Generator) -> Any:
    linear = getattr(_block(network, random).attention, str(random.choice(["query", "key", "value", "out"])))
    linear.weight.copy_(linear.weight.T.clone())
    return linear


def _swapped(network: Any, random: np.random.Generator) -> Any:
    attention = _block(network, random).attention
    one, other = (("query", "key"), ("key", "value"), ("query", "value"))[int(random.integers(3))]
    first, second = getattr(attention, one), getattr(attention, other)
    setattr(attention, one, second)
    setattr(attention, other, first)
    return first, second


def _row(network: Any, random: np.random.Generator) -> Any:
    """Write one row of a weight twice, where its neighbor should be."""
    block = _block(network, random)
    linear = block.mlp[0] if random.integers(2) else block.mlp[2]
    row = int(random.integers(1, len(linear.weight)))
    linear.weight[row] = linear.weight[row - 1]
    return linear


def _bias(network: Any, random: np.random.Generator) -> Any:
    # not that of the keys: it adds the same to all scores of a token, and softmax does not see it
    linear = getattr(_block(network, random).attention, str(random.choice(["query", "value", "out"])))
    linear.bias.copy_(linear.bias.roll(int(random.integers(1, len(linear.bias)))))
    return linear


def _attention(attention: Any, mixed: Callable[[Any, Any, Any], Any]) -> Any:
    """Let an attention mix its values in another way."""

    class Theirs(type(attention)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            return self.out(mixed(query, key, value).transpose(1, 2).flatten(2))

    attention.__class__ = Theirs
    return attention


def _scale(network: Any, random: np.random.Generator) -> Any:
    attention = _block(network, random).attention
    width = attention.query.in_features
    divisor = (1.0, width**0.5, width / attention.heads, attention.heads**0.5)[int(random.integers(4))]
    return _attention(attention, lambda q, k, v: (q @ k.transpose(2, 3) / divisor).softmax(dim=3) @ v)


def _mask(network: Any, random: np.random.Generator) -> Any:
    """Let each token attend to those before it, or to those after it, as a decoder does."""
    mask = torch.full((16, 16), float("-inf"))
    mask = mask.triu(1) if random.integers(2) else mask.tril(-1)
    attention = _block(network, random).attention
    size = (attention.query.in_features / attention.heads) ** 0.5
    return _attention(attention, lambda q, k, v: (q @ k.transpose(2, 3) / size + mask).softmax(dim=3) @ v)


def _axis(network: Any, random: np.random.Generator) -> Any:
    attention = _block(network, random).attention
    size = (attention.query.in_features / attention.heads) ** 0.5
    axis = int(random.integers(1, 3))
    return _attention(attention, lambda q, k, v: (q @ k.transpose(2, 3) / size).softmax(dim=axis) @ v)


def _residual(network: Any, random: np.random.Generator) -> Any:
    block, is_first = _block(network, random), bool(random.integers(2))

    class Theirs(type(block)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            attended = self.attention(self.norm1(x))
            x = attended if is_first else x + attended
            mixed = self.mlp(self.norm2(x))
            return x + mixed if is_first else mixed

    block.__class__ = Theirs
    return block


def _reader(network: Any, tokens: Callable[[Any, Any], Any], pooled: Callable[[Any], Any] | None = None) -> Any:
    """Let the network make or pool its tokens in another way."""

    class Theirs(type(network)):  # type: ignore[misc]
        def forward(self, image: Any) -> Any:
            x = self.norm(self.blocks(tokens(self, self.stem(image))))
            return self.head(x.mean(dim=1) if pooled is None else pooled(x))

    network.__class__ = Theirs
    return network


def _in_rows(network: Any, x: Any) -> Any:
    return x.flatten(2).transpose(1, 2) + network.position


def _order(network: Any, random: np.random.Generator) -> Any:
    """Read the tokens in columns, or backwards."""
    change = (lambda x: x.transpose(2, 3), lambda x: x.flip(3), lambda x: x.flip(2))[int(random.integers(3))]
    return _reader(network, lambda self, x: _in_rows(self, change(x)))  # type: ignore[no-untyped-call]


def _position(network: Any, random: np.random.Generator) -> Any:
    network.position.copy_(network.position.roll(int(random.integers(1, 16)), 0))
    return network


def _no_position(network: Any, _: np.random.Generator) -> Any:
    return _reader(network, lambda _, x: x.flatten(2).transpose(1, 2))


def _pooling(network: Any, random: np.random.Generator) -> Any:
    pooled = (lambda x: x.amax(dim=1), lambda x: x[:, 0])[int(random.integers(2))]
    return _reader(network, _in_rows, pooled)


def _statistics(network: Any, random: np.random.Generator) -> Any:
    """Mix up the mean or the variance of the channels of a normalization."""
    place = int(random.integers(3))
    norm, entry = network.stem[3 * place + 1], ("running_mean", "running_var")[int(random.integers(2))]
    values = getattr(norm, entry)
    values.copy_(values.roll(int(random.integers(1, len(values)))))
    return network.stem[3 * place], norm


def _activation(network: Any, random: np.random.Generator) -> Any:
    place = 3 * int(random.integers(3)) + 2
    network.stem[place] = nn.LeakyReLU(0.01 if random.integers(2) else 0.1)
    return network.stem[place]


def _image(network: Any, random: np.random.Generator) -> Any:
    """Normalize the image once more."""
    mean, deviation = float(random.choice([0.1307, 0.5])), float(random.choice([0.3081, 0.5]))
    stem = network.stem

    class Theirs(type(stem)):  # type: ignore[misc]
        def forward(self, image: Any) -> Any:
            return super().forward((image - mean) / deviation)

    stem.__class__ = Theirs
    return stem


POOL: Final[tuple[Fault, ...]] = (
    _tanh, _epsilon, _transposed, _swapped, _row, _bias, _scale, _mask, _axis, _residual, _order, _position,
    _no_position, _pooling, _statistics, _activation, _image,
)  # fmt: skip
