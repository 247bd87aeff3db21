"""The side of PyTorch: what a module computed, its export, its source lines and attributes."""
