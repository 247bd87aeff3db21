"""The notebook extension: how models and results display in a cell, and the ``%onnx`` magic."""
