"""Scopes of nodes: their sources, repeated scopes, and differences between the members of a repeat."""
