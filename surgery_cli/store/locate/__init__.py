"""Which checkpoint an argument names: root, step, item or file; and what is none."""
