"""Paths, patterns and specs: the words in which everything else speaks of a checkpoint."""
