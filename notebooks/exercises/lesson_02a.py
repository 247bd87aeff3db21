"""Graders of "Choices of an export"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from . import Lesson, NotYet, expect, made
from .lesson_02 import enlarges_as_net, model_of

check: Final = Lesson()


def _exported(network: str, axes: str) -> str:
    """Return the expression of an export with dynamic axes, by the faster exporter."""
    return f'onnx_nb.export({network}, image, exporter="torchscript", dynamic_axes={{"image": {axes}}}, **options)'


@check.exercise(
    1,
    "anything",
    "anything",
    {
        "net": "returns a model",
        "by_dynamo": "Every size",
        _exported("net", "{0: 'batch'}"): "The height and width are",
        _exported("net", "{2: 'height', 3: 'width'}"): "The batch is",
        'onnx_nb.export(layers, row, exporter="torchscript")': "Export `net` itself",
        _exported("type(net)().eval()", "{0: 'n', 2: 'h', 3: 'w'}"): "computes something else",
    },
)
def _dynamic_sizes(answer: Any) -> None:
    model = model_of(answer)
    shape = model.inputs[0].shape or ()
    expect(len(shape) == 4, f"It takes shape {shape}. Export `net` itself, which takes batch, channel, height, width.")
    fixed = [name for axis, name in {0: "batch", 2: "height", 3: "width"}.items() if isinstance(shape[axis], int)]
    expect(len(fixed) < 3, f"Every size of its input {shape} is fixed: say at export which axes are dynamic.")
    verb = "is" if len(fixed) == 1 else "are"
    expect(not fixed, f"The {' and '.join(fixed)} {verb} still fixed in its input {shape}.")
    for sizes in ((1, 1, 32, 64), (3, 1, 20, 20), (2, 1, 41, 17)):
        expect(enlarges_as_net(model, sizes), f"For shape {sizes}, it computes something else than `net`.")


@check.exercise(
    2,
    "messages",
    "messages",
    {
        "messages[0]": "a list of three",
        "messages[:2]": "a list of three",
        "messages[::-1]": "in the order",
        '["fine", *messages[1:]]': "Message (a) is another",
        '[messages[0], complaint(session.run, None, {"image": np.repeat(image.numpy(), 2, axis=0)}), messages[2]]': (
            "Message (b) is another"
        ),
        '[*messages[:2], complaint(session.run, None, {"image": image.numpy().astype(np.float16)})]': "Message (c)",
    },
)
def _messages(answer: Any) -> None:
    is_three = isinstance(answer, list | tuple) and len(answer) == 3
    expect(is_three, "The answer is a list of three messages: what `session.run` says to three wrong inputs.")
    image = made("image").numpy()
    provoked = [
        _complaint({"x": image}),
        _complaint({"image": np.repeat(image, 8, axis=0)}),
        _complaint({"image": image.astype(np.float64)}),
    ]
    # an exception, its text and its representation all hold the message
    given = [str(message).replace("\\n", "\n") for message in answer]
    is_in = [[all(line in text for line in lines) for lines in provoked] for text in given]
    is_right = [row[place] for place, row in enumerate(is_in)]
    is_complete = all(map(any, zip(*is_in, strict=True)))
    expect(all(is_right) or not is_complete, "These are the right messages; put them in the order (a), (b), (c).")
    advice = {
        "a": "which name does the input of `session` have, and which one does the message mention?",
        "b": "which axis has index 0, and how many images does the message mention?",
        "c": "which type do the numbers have that `session` takes, and which one does the message mention?",
    }
    for (letter, question), right in zip(advice.items(), is_right, strict=True):
        expect(right, f"Message ({letter}) is another one: {question}")


def _complaint(feeds: dict[str, Any]) -> list[str]:
    """Return the lines of what onnxruntime says to wrong inputs."""
    try:
        made("session").run(None, feeds)
    except Exception as error:  # noqa: BLE001 (its kinds of error are its own)
        return [line.strip() for line in str(error).strip().splitlines()]
    raise NotYet("`session` takes every input here: run the cell again that makes it from srcnn.onnx.")
