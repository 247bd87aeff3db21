"""The structure of a model: nodes, values, who makes and who takes them, what is broken."""
