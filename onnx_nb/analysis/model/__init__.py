"""A model in files: load, save, wire scan, storage, tensors, external data."""
