"""Which leaves mirror params, in which state, driven by which clocks: found by structure."""
