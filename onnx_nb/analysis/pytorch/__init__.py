"""The torch side: record, export, align, compare, drill down, weights, Debugger."""
