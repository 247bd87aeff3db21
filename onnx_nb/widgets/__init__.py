"""The ipywidgets: each turns clicks into calls of `onnx_nb.analysis` and draws the results; none computes."""
