"""The exam of notebook 09b: each seed is solved by what the course teaches, and each wrong answer gets its hint."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_nb
from notebooks.exercises import NONE, PART

torch: Any = pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")

from notebooks.digits import digits, trained  # noqa: E402 (it needs torch)
from notebooks.exercises import exam as exams  # noqa: E402 (the same)

SEEDS: Final = range(20)


@pytest.fixture(scope="module")
def lesson() -> Iterator[dict[str, Any]]:
    """What the lesson takes from the course: the network, and the function for digits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield {"net": trained(), "digits": digits}
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def held_out(lesson: dict[str, Any]) -> Any:
    return lesson["digits"](30, seed=2)[0]


class Solver:
    """A reader, who has the network, the files and the library, and nothing else."""

    def __init__(self, net: Any, images: Any) -> None:
        self.net, self.images = net, images

        class First(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.position, self.block = net.position, net.blocks[0]

            def forward(self, x: Any) -> Any:
                return self.block(x.flatten(2).transpose(1, 2) + self.position)

        class Last(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.head = net.head

            def forward(self, x: Any) -> Any:
                return self.head(x.mean(dim=1))

        self.stages = {"stem.8": net.stem, "blocks.0": First(), "blocks.1": net.blocks[1], "blocks.2": net.blocks[2]}
        self.stages |= {"norm": net.norm, "head": Last()}

    def solve(self, file: Path) -> tuple[Any, Any, str]:
        """Return the point, the repaired file and what the comparison says."""
        found = onnx_nb.compare_torch(self.net, self.images, model=file)
        point = found.first_divergent()
        assert point is not None
        e = onnx_nb.edit(file)
        wrong = [each for each in found.weights().points if not each.errors().rel_l2 < 1e-6]
        for each in wrong:
            e.weight(each.candidate, self.value(each.name))
        if not wrong and "Epsilon is" in found.message:
            e.set(point.candidate, epsilon=self.net.get_submodule(point.name).eps)
        elif not wrong and "Approximate is" in found.message:
            e.set(point.candidate, approximate="none")
        elif not wrong:
            self.replace(e, found, point)
        return point, e, found.message

    def value(self, name: str) -> Any:
        """Return a parameter as the export has it: a product's transposed, a convolution's with its normalization."""
        path, _, entry = name.partition(" → ")
        module = self.net if path == "model" else self.net.get_submodule(path)
        if isinstance(module, torch.nn.Conv2d):
            place = int(path.removeprefix("stem."))
            module = torch.nn.utils.fusion.fuse_conv_bn_eval(module, self.net.stem[place + 1])
        values = getattr(module, entry).detach().numpy()
        return values.T if isinstance(module, torch.nn.Linear) and values.ndim == 2 and path != "head" else values

    def replace(self, e: Any, found: Any, point: Any) -> None:
        """Put a new export in the place of the stages from the last right value to the next one behind a point."""
        order, ends = list(found), [name for name in self.stages if name in found]
        place = order.index(point.name)
        before = [name for name in ends if order.index(name) < place][-1:]
        after = next(name for name in ends if order.index(name) >= place)
        names = list(self.stages)
        start = names.index(before[0]) + 1 if before else 0
        part = torch.nn.Sequential(*(self.stages[name] for name in names[start : names.index(after) + 1])).eval()
        given = torch.tensor(np.asarray(found.recording[before[0]] if before else self.images)[:2])
        free = {"x": {0: "batch"}, "y": {0: "batch"}}
        options: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": free}
        other = onnx_nb.export(part, given, exporter="torchscript", **options)
        e.replace([found[before[0]].candidate if before else "image"], [found[after].candidate], other)


@pytest.fixture(scope="module")
def solver(lesson: dict[str, Any]) -> Solver:
    return Solver(lesson["net"], lesson["digits"](16, seed=1)[0])


# a few in `make test`, all in `make rare`
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.rare] if seed > 4 else []) for seed in SEEDS])
def test_an_exam_is_solved_by_what_the_course_teaches(
    seed: int, held_out: Any, solver: Solver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = solver.net
    check = exams.exam(seed, net, held_out, tmp_path)
    for number, file in enumerate(check.files, 1):
        point, repaired, message = solver.solve(file)
        assert "nothing is repaired yet" in check.verdict(number, point, file)
        assert check.verdict(number, point, ...).startswith(PART)
        check(number, point, repaired)
        # the network itself, and not the grader, says that it is repaired
        with torch.no_grad():
            expected = net(solver.images).numpy()
        session = onnxruntime.InferenceSession(repaired.model.to_proto().SerializeToString())
        (scores,) = session.run(None, {"image": solver.images.numpy()})
        assert np.allclose(scores, expected, rtol=1e-4, atol=1e-4)
        # and the fault is where the point is, or just before it
        _, changed = exams.faulty(seed, number, net)
        named = [point.name, *re.findall(r"'([^']+)'", message.split(":")[0])]
        assert any(f"{name} ".startswith(f"{path} ") or name.startswith(f"{path}.") or not path
                   for name in named for path in changed)  # fmt: skip
    printed = capsys.readouterr().out.splitlines()
    assert printed == [*(f"✓ {number}. Right." for number in (1, 2, 3)), f"{check}. Can you beat seed {seed}?"]
    assert repr(check) == f"exam {seed}: 3 of 3 in 1 minute"


@pytest.mark.parametrize(("seed", "number"), [(5, 3), (14, 3)])
def test_a_node_that_is_missing_is_inserted(
    seed: int, number: int, held_out: Any, solver: Solver, tmp_path: Path
) -> None:
    """As the hint of the lesson says: behind the last point that is right."""
    check = exams.exam(seed, solver.net, held_out, tmp_path)
    file = check.files[number - 1]
    found = onnx_nb.compare_torch(solver.net, solver.images, model=file)
    *before, point = re.findall(r"'([^']+)'", found.message.split(" (LayerNorm)")[0])
    assert found.message.startswith("First differs somewhere between")
    skipped = found[before[0]].candidate if len(before) > 1 else solver.net.position.detach().numpy()
    e = onnx_nb.edit(file).insert("Add", after=found[before[-1]].candidate, inputs=[skipped])
    assert check.verdict(number, point, e) == ""


def test_the_seeds_draw_every_fault_and_each_its_own() -> None:
    assert {fault for seed in SEEDS for fault in exams.drawn(seed)} == set(exams.POOL)
    assert len(exams.POOL) >= 12
    assert all(len({*exams.drawn(seed)}) == exams.COUNT for seed in range(200))
    assert len({tuple(exams.drawn(seed)) for seed in range(200)}) > 180


def test_a_seed_writes_the_same_exam_again(lesson: dict[str, Any], held_out: Any, tmp_path: Path) -> None:
    first, again, other = (
        exams.exam(seed, lesson["net"], held_out, tmp_path / f"{at}") for at, seed in enumerate((3, 3, 4))
    )
    for number in range(exams.COUNT):
        scores = [exams.scores_of(onnx_nb.load(check.files[number]), held_out) for check in (first, again, other)]
        assert np.array_equal(scores[0], scores[1])
        assert not np.allclose(scores[0], scores[2], rtol=1e-3)
        text = b"".join(node.SerializeToString() for node in onnx_nb.load(first.files[number]).proto.graph.node)
        assert b".py" not in text  # no line of code tells what was changed


def test_each_wrong_answer_gets_its_hint(lesson: dict[str, Any], held_out: Any, solver: Solver, tmp_path: Path) -> None:
    check = exams.exam(15, lesson["net"], held_out, tmp_path)
    point, repaired, _ = solver.solve(check.files[0])
    say = functools.partial(check.verdict, 1)
    assert say(point.name, repaired) == say(point, repaired.model) == say(point, repaired.model.to_proto()) == ""
    assert say(..., ...) == say(..., repaired) == NONE
    assert "should be a point" in say(3, repaired)
    assert "no point of the comparison" in say("nowhere", repaired)
    assert "'head' is right for what it reads" in say("head", ...)
    assert "should be the repaired model" in say(point, 3)
    other = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20]>
        other (float[n,1,32,32] image) => (float[n,1,1,1] scores) { scores = GlobalAveragePool(image) }""")
    assert "another model: it has 0 of" in say(point, other)
    assert "its inputs are ['picture']" in say(point, onnx_nb.edit(repaired.model).rename({"image": "picture"}))
    assert "The scores of 30 of 30 digits" in say(point, check.files[1])
    assert "does not run" in say(point, onnx_nb.edit(repaired.model).fix(batch=30))
    assert "right for 29 of 30 digits" in say(point, spoiled_for_one(repaired.model, held_out))
    infinite = onnx_nb.edit(repaired.model).insert("Div", "scores", [np.float32(0)])
    assert "The scores of 30 of 30" in say(point, infinite)
    assert repr(check) == "exam 15: 1 of 3 in 1 minute"


def spoiled_for_one(model: onnx_nb.Model, images: Any) -> onnx.ModelProto:
    """Return a model that is wrong for the brightest image alone."""
    brightness = images.mean(dim=(1, 2, 3)).sort().values
    limit = np.float32((brightness[-1] + brightness[-2]) / 2)
    proto = model.to_proto()
    last = proto.graph.node[-1]
    assert list(last.output) == ["scores"]
    last.output[0] = "right"
    part = onnx.parser.parse_graph(
        """spoiled (float[n,1,32,32] image, float[n,10] right) => (float[n,10] scores) {
        axes = Constant<value_ints = [1, 2, 3]>()  one = Constant<value_ints = [1]>()
        mean = ReduceMean<keepdims = 0>(image, axes)  is_brighter = Greater(mean, limit)
        amount = Cast<to = 1>(is_brighter)  column = Unsqueeze(amount, one)  scores = Add(right, column) }"""
    )
    proto.graph.node.extend(part.node)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(limit), "limit"))
    return proto
