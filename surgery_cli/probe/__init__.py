"""Runs the user's model on a checkpoint and looks inside: intermediates, gradients, the first NaN."""
