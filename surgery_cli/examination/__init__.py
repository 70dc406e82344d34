"""What stands in a run directory: whose each thing is, whether it is whole, and what to do about it."""
