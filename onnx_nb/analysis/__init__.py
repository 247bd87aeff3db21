"""The shared analysis of ONNX models: it knows onnx, onnxruntime and numpy; no Jupyter, no plots."""
