"""The model as it lies in files: what is read without its weights, what is written, and where weight bytes are."""
