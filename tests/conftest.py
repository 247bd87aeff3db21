"""What every test can count on."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# a slow machine is no fault of the code: benchmarks measure, tests do not
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# before anything imports them: no network, no window, jupyter_core's own folders without its warning
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "agg"
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test was run once more: that it passed then says nothing of the person who meets it first."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed, and was run once more: {report.nodeid}")
        report.toterminal(terminalreporter._tw)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many `-n auto` are: one more than cores, since a browser test also waits; each takes up to 2 GB."""
    return min(os.cpu_count() or 1, 5) + 1
