"""Fixtures and options that all tests share."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.depth import DEPTH

# a slow machine is no fault of the code: benchmarks measure, tests do not. `make test` draws the same examples every
# time, so that a failure is the change's; `make robust` draws new ones
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=DEPTH == 1, print_blob=True
)
settings.load_profile("patient")

# before anything imports them: no network, no window, jupyter_core's own folders without its warning
os.environ["HF_HUB_OFFLINE"] = "1"
# threads of torch wait for work in a loop, at the cost of the workers beside them
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["MPLBACKEND"] = "agg"
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"

# it imports for others, and holds no examples
collect_ignore = ["exporters.py"]

SLOW = {
    f"tests/{name}.py"
    for name in (
        "analysis/compare/test_compare_models",
        "analysis/compare/test_isolated",
        "analysis/compare/test_quantization",
        "analysis/generate/test_compare_decoding",
        "analysis/match/test_diff",
        "analysis/profile/test_profile",
        "analysis/pytorch/test_align",
        "analysis/pytorch/test_compare_torch",
        "analysis/pytorch/test_faulty_modules",
        "analysis/pytorch/test_odd_modules",
        "analysis/pytorch/test_record",
        "analysis/pytorch/test_weights",
        "analysis/quantize/test_sensitivity",
        "analysis/run/test_capture_subprocess",
        "analysis/run/test_capture_under_faults",
        "analysis/simplify/test_simplify",
        "cli/test_ci",
        "cli/test_shell",
        "conformance/test_conformance",
        "drawing/test_graphviz",
        "drawing/test_html",
        "faults/test_faults",
        "fuzz/test_finds",
        "notebook/test_many_displays",
        "test_binder",
        "test_exam",
        "test_notebooks",
        "test_packaging",
        "test_site",
        "test_writer",
        "widgets/test_comparison",
        "widgets/test_simplification",
    )
}
"""Files that take more than twenty seconds; `make test-fast` leaves them to `make test`."""


LONG = ("tests/fuzz/", "tests/conformance/", "tests/browser/test_notebooks.py", "tests/browser/", "tests/faults/")
"""What begins first, in this order: no worker is left with a long file when the others are done."""


THEMES = ("test_accessibility.py", "test_states.py")
"""Browser tests that look at colors; the others seldom break in one theme alone, so that in the dark they are rare."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the slow files and those that repeat another in the dark, and put long files first."""
    names = {item.nodeid for item in items}
    for item in items:
        is_dark = "browser/" in item.nodeid and "[dark" in item.nodeid and item.path.name not in THEMES
        if is_dark and item.nodeid.replace("[dark", "[light") in names:
            item.add_marker("rare")
        if item.path.is_relative_to(config.rootpath) and item.path.relative_to(config.rootpath).as_posix() in SLOW:
            item.add_marker("slow")
    items.sort(key=lambda item: next((at for at, part in enumerate(LONG) if item.nodeid.startswith(part)), len(LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files, but each notebook by itself: together they take longer than any other file."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda test: test if "/test_notebooks.py::" in test else file_of(test)
    return scheduler


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test was run again: a later pass does not excuse the first failure."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed, and was run once more: {report.nodeid}")
        report.toterminal(terminalreporter._tw)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for `-n auto`: one more than cores, as browser tests wait; each takes up to 2 GB."""
    return min(os.cpu_count() or 1, 5) + 1
