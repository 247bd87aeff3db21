"""Extraction, assembly and partition."""
