"""The notebook extension."""
