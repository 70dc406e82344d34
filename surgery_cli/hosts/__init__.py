"""One run on many hosts: processes that find each other by JAX's own runtime, share work, and end together."""
