"""Array kits: the same arithmetic on the host (NumPy) and on JAX devices, and random values."""
