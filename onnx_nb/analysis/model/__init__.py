"""A model as it lies in files: load, save, wire scan, storage, tensors, external data."""
