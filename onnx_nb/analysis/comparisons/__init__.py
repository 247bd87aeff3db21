"""Two sides of one computation: which tensor is which, and how far they are from each other."""
