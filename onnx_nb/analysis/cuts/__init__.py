"""Submodels: one cut out, or the whole in parts."""
