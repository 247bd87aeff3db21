"""The shared analysis of ONNX models: it knows onnx, onnxruntime and numpy; no Jupyter, no plots.

Each folder imports only from those above it in this list, and from `errors`, `progress` and `data_frames`:

- `files`: the model as it lies in files: what is read without its weights, what is written, and where weight bytes are.
- `graphs`: the structure of a model: nodes, values, who makes and who takes them, what is broken.
- `groups`: the nodes of a graph in scopes, repeated layers folded, as columns that a browser draws.
- `runs`: what a model computes: feeds, sessions, every intermediate value in windows, its statistics.
- `sizes`: what can be told without running: shapes, parameters, MACs, bytes.
- `cuts`: submodels: one cut out, or the whole in parts.
- `torch_modules`: the side of PyTorch: what a module computed, its export, its source lines and attributes.
- `comparisons`: two sides of one computation: which tensor is which, and how far they are from each other.
- `answers`: what a click asks: all there is to say of a node, a tensor, a scope, a cut, an overlay.
- `simplifications`: a smaller model that computes the same: its rewrites, folds, checks, and what came of what.
"""
