"""Simplification of models: rules, constant folding, editor, verification."""
