"""The cost of a run: parameters, MACs, FLOPs, bytes."""
