"""The traced computation, run again: values and gradients at its calls, the first bad one, two runs compared."""
