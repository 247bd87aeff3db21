"""Nodes in scopes: where scopes come from, which repeat, and how the members of a repeat differ."""
