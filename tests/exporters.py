"""What both exporters of torch import, before the processes fork that export the models of `tests.models`."""

from __future__ import annotations

import importlib
import importlib.util
import os

os.environ["HF_HUB_OFFLINE"] = "1"
if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
    for name in ("torch.onnx", "torch._dynamo", "torch.export", "onnxscript", "transformers.modeling_utils"):
        importlib.import_module(name)
