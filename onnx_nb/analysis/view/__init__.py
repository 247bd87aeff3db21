"""What the browser is handed: packed columns, inspection, selection, overlays, tables."""
