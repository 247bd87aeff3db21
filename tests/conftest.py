"""What every test can count on."""

from __future__ import annotations

import os

# before anything imports them: no network, no window, jupyter_core's own folders without its warning
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "agg"
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
