"""The ipywidgets: each turns clicks into calls of `onnx_nb.analysis` and paints what comes back; none computes."""
