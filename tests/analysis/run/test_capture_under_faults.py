"""Workers that die and interrupts at any moment: nothing is lost, and what is computed afterwards is right."""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

import onnx_nb
from onnx_nb.analysis.errors import CaptureError
from onnx_nb.analysis.quantize.calibration import Method
from onnx_nb.analysis.run.capture import capture
from tests import models
from tests.analysis.run.test_capture import SET_MODEL, dataset, equal, same
from tests.analysis.run.test_capture_subprocess import script
from tests.depth import DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator


def kills(name: str, array: Any, *, marker: str, always: bool) -> bool:
    """Keep one value, and end the process that computes it: the first one, or each."""
    if name == "b" and len(array) == 6 and (always or not Path(marker).exists()):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return name == "b"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[concurrent.futures.Executor]:
    distributed = pytest.importorskip("distributed")
    # a busy machine is long at starting workers
    settings = {"distributed.comm.timeouts.connect": "300s", "distributed.scheduler.allowed-failures": 1}
    with (
        __import__("dask").config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=tmp_path / "dask"
        ) as made,
        distributed.Client(made) as client,
        client.get_executor() as executor,
    ):
        yield executor


@pytest.mark.slow
def test_a_dask_worker_that_is_killed_midway_loses_nothing(
    cluster: concurrent.futures.Executor, tmp_path: Path
) -> None:
    feeds = dataset(9)
    kill = functools.partial(kills, marker=str(tmp_path / "killed"), always=False)
    cap = capture(SET_MODEL, feeds, keep=kill, executor=cluster)
    assert (tmp_path / "killed").exists()
    single = capture(SET_MODEL, feeds, keep="b")
    assert equal(cap, single)
    assert all(same(cap["b", i], single["b", i]) for i in range(len(feeds)))


@pytest.mark.slow
def test_a_calibration_over_dask_is_that_of_one_process_though_a_worker_is_killed(
    cluster: concurrent.futures.Executor, tmp_path: Path
) -> None:
    feeds = dataset(9)
    kill = functools.partial(kills, marker=str(tmp_path / "killed"), always=False)
    spread = capture(SET_MODEL, feeds, ranges=True, keep=kill, executor=cluster)
    assert (tmp_path / "killed").exists()
    single = capture(SET_MODEL, feeds, ranges=True, keep=kill)
    for method in get_args(Method):
        mine, yours = onnx_nb.calibrate(spread, method), onnx_nb.calibrate(single, method)
        assert list(mine) == list(yours) == ["x", "a", "b", "c"]
        assert all(mine[name] == yours[name] for name in mine)
    # numpy's own figures, so that both are not wrong together
    every = np.concatenate([feed["x"] for feed in feeds])
    found = onnx_nb.calibrate(spread)["x"]
    assert (found.low, found.high, found.histogram.total) == (every.min(), every.max(), every.size)
    assert found.channel_lows == tuple(every.min(axis=0))
    assert found.channel_highs == tuple(every.max(axis=0))


@pytest.mark.slow
def test_a_feed_that_kills_every_dask_worker_is_an_error(cluster: concurrent.futures.Executor, tmp_path: Path) -> None:
    kill = functools.partial(kills, marker=str(tmp_path / "killed"), always=True)
    with pytest.raises(CaptureError, match=r"a worker process of the executor ended while feed \d ran"):
        capture(SET_MODEL, dataset(9), keep=kill, executor=cluster)


def test_a_worker_of_a_process_pool_that_is_killed_is_an_error(tmp_path: Path) -> None:
    kill = functools.partial(kills, marker=str(tmp_path / "killed"), always=True)
    with (
        concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor,
        pytest.raises(CaptureError, match=r"a worker process of the executor ended while feed \d ran.*names the node"),
    ):
        capture(SET_MODEL, dataset(3), keep=kill, executor=executor)


INTERRUPTED = """if True:
    import gc, hashlib, pathlib, random, signal, sys, threading, time
    import numpy, onnx_nb
    from onnx_nb.analysis.view.graph_columns import columns

    path, target, count = sys.argv[1], pathlib.Path("saved.onnx"), int(sys.argv[2])
    feeds = onnx_nb.random_feeds(onnx_nb.load(path))

    def work(model):
        capture = onnx_nb.capture(model, feeds)
        simplified = onnx_nb.simplify(model, check_n=1)
        model.save(target)
        return (
            str(onnx_nb.summarize(model)), str(onnx_nb.costs(model)), columns(model).to_bytes(),
            [(name, str(capture.statistics(name))) for name in capture], str(simplified),
            hashlib.sha256(target.read_bytes()).hexdigest(),
        )

    def interrupt(*_):
        raise KeyboardInterrupt

    expected = work(onnx_nb.load(path))
    started = time.perf_counter()
    assert work(onnx_nb.load(path)) == expected
    usual = time.perf_counter() - started
    signal.signal(signal.SIGALRM, interrupt)
    dice, interrupted = random.Random(5), 0
    for _ in range(count):
        model = onnx_nb.load(path)
        before = target.read_bytes()
        try:
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.001, usual))
            work(model)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert target.read_bytes() == before
        assert work(model) == expected, "what was interrupted left something wrong behind"
    gc.collect()
    left = [entry.name for entry in pathlib.Path().iterdir()]
    print(interrupted > 0, left, threading.active_count())
"""


def test_what_is_interrupted_at_any_moment_is_right_the_next_time(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    path = onnx_nb.load(models.chain(60)).save(tmp_path / "model.onnx")
    with script(INTERRUPTED, tmp_path / "work", arguments=(str(path), str(5 * DEPTH))) as process:
        said = process.communicate(timeout=300 * DEPTH)[0]
    assert said == "True ['saved.onnx'] 1\n"
