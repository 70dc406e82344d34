"""A new checkpoint: planned, staged, written item by item, renamed into place."""
