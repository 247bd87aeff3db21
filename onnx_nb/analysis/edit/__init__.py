"""Edits of a model: what each does, the proof that it does no more, and the list of them."""
