"""Every case that onnx ships, through every verb: ``python -m tests.conformance`` prints one table."""
