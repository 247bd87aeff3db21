"""Faults planted into exports, and whether a comparison with torch names them: ``python -m tests.faults``."""
