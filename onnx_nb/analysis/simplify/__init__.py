"""A smaller model that computes the same: rules, constant folding, editor, verification."""
