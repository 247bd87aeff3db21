"""What a server of a test says, which prints its address before it listens."""

from __future__ import annotations

import time
import urllib.error
import urllib.request


def fetched(address: str) -> bytes:
    """Return what a server says at an address of `http`, once it listens; what it refuses is an error."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(address, timeout=60) as reply:  # noqa: S310 (our own server)
                found: bytes = reply.read()
                return found
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
