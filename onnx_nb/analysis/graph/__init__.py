"""The structure of a model: nodes, values, subgraphs, operators, types, data flow, diagnostics."""
