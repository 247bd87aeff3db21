"""onnx_nb."""
