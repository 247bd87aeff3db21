"""Data for the browser: packed columns, inspection, selection, overlays, tables."""
