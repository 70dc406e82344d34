"""Rescue: what is left of broken checkpoints, held against what was saved."""
