"""How often tests repeat what they try at random: once in `make test`, fifty times in `make robust`."""

import os

DEPTH = int(os.environ.get("ONNX_NB_DEPTH", "1"))
