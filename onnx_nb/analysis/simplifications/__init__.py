"""A smaller model that computes the same: its rewrites, folds, checks, and what came of what."""
