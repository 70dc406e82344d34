"""An opened checkpoint and its items, from metadata alone."""
