"""What a quantized model would compute otherwise: mixed models, what-if, ranges."""
