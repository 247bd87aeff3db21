"""The nodes of a graph in scopes, repeated layers folded, as columns that a browser draws."""
