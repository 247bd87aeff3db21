"""Nodes in scopes; repeated layers found and told apart."""
