"""How often tests repeat what they try at random: once in `make test`, fifty times in `make robust`.

`make test` draws the same examples every time, `make robust` new ones.
"""

import os

from hypothesis import HealthCheck, settings

DEPTH = int(os.environ.get("ONNX_NB_DEPTH", "1"))


def examples(count: int) -> settings:
    """Return settings for as many examples in `make test`, however long each takes."""
    return settings(max_examples=count * DEPTH, deadline=None, suppress_health_check=[*HealthCheck])
