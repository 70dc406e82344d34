"""Proofs about a checkpoint: structure, digests, finite values."""
