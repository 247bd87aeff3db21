"""Models that nobody here made: shipped inside packages, or written by onnxruntime-genai's builder."""
