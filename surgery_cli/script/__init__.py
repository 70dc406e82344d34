"""The training script's own word: would its restore take this tree, and what mends it if not."""
