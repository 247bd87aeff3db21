"""The shared analysis of ONNX models. It depends on onnx, onnxruntime and numpy, not on Jupyter or plotting libraries.

Each folder imports only from those above it in this list, and from `errors`, `formatting`, `progress`, `results` (data
frames and display) and `foreign_names` (names of other tools):

- `model`: a model in files: load, save, wire scan, storage, tensors, external data.
- `graph`: its structure: nodes, values, subgraphs, operators, types and shape inference, data flow, diagnostics.
- `scopes`: nodes in scopes; repeated layers and their differences.
- `run`: execution: feeds, sessions, windows, capture, statistics, executors.
- `cost`: the cost of a run, counted: parameters, MACs, bytes.
- `profile`: the cost of a run, measured: the profile of onnxruntime, mapped back to nodes.
- `submodel`: extraction, assembly, partition.
- `match`: what corresponds in two graphs: node matching, diff. No values.
- `compare`: two sides of one computation: metrics, lockstep, isolated errors, quantizers, verdicts.
- `pytorch`: the torch side: record, export, align, compare, drill down, weights, Debugger.
- `quantize`: functions of a comparison or a capture: mixed models, what-if, calibration.
- `simplify`: rules, constant folding, the editor they work on, verification.
- `edit`: small edits of a model: what each does, its proof, undo, code.
- `generate`: models that are run in a loop: states, decoding, checks of the caches.
- `view`: data for the browser: packed columns, inspection, selection, overlays, tables, array previews.
"""
