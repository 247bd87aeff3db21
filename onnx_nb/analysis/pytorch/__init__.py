"""Comparison with torch: record, export, align, compare, drill down, weights, Debugger."""
